//! Connections: accepting, receiving, sending; datagrams; and the wait that reports the end of an
//! engine's operations.
//!
//! Two engines implement [`Network`] over the kernel's sockets and share their common part in
//! [`os_engine`](crate::os_engine); the simulator has its own network.
//!
//! # Order of calls
//!
//! ```text
//!   accept ─▶ Accepted ─▶ receive ─▶ Received ─▶ received, release ─┐
//!                            ▲                                      │
//!                            │   (pause_receiving, receive)         ▼
//!                            └────────────── Sent ◀─ send, send_file, send_control
//!   encrypt_in_kernel: between two sends      shutdown_write: at any time, effective after the send
//!   close or reset: at any time, once; the socket is not used again
//! ```
//!
//! Datagram sockets exist from the start:
//!
//! ```text
//!   receive_datagrams ─▶ Datagram ─▶ received, release            stop_datagrams: at any time, once
//!   send_datagrams ─▶ EAGAIN ─▶ when_sendable ─▶ Sendable ─▶ send_datagrams
//! ```
//!
//! * A worker calls [`Network::wait`] once a turn. It submits all prepared operations and returns
//!   all that have completed meanwhile, those of the disk included. It also reads the clocks, which
//!   stand still otherwise.
//! * At most one `send`, `send_file` or `send_control` is under way per socket, and at most one
//!   `receive`.
//! * Completions of one `wait` are delivered in the order in which they happened, per socket.
//! * After [`Network::close`] or [`Network::reset`] no later wait delivers a completion for that
//!   socket, not even one already queued. Completions returned by the *same* wait as the one being
//!   handled are with the caller already: it has to recognise those tokens, and to release their
//!   leases. The socket's number is reused by a later wait at the earliest.

use rustix::io::Errno;

use crate::completion::Completion;
use crate::file::File;
use crate::ktls::{ControlType, TxKeys};
use crate::net::Peer;
use crate::operation::{DatagramSocket, Lease, Listener, Nanos, SendList, Socket, Token, Train};
use crate::waker::Waker;

/// An engine's description of itself, for the first lines of output and for `/metrics`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EngineReport {
    /// `io_uring`, `epoll` or `sim`.
    pub name: &'static str,
    /// Kernel features in use, by name (`multishot receive`, `provided buffers`, ...).
    pub in_use: Vec<&'static str>,
    /// Features not in use, each with the reason.
    pub missing: Vec<(&'static str, String)>,
}

/// The feature of a ring that takes only its engine's operations.
pub const RING_RESTRICTIONS: &str = "ring restrictions";

/// Counters of one driver since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct IoCounters {
    /// Calls that entered the kernel to submit or to wait.
    pub enters: u64,
    /// Operations submitted to a ring, and system calls made for operations.
    pub submissions: u64,
    /// Completions delivered.
    pub completions: u64,
    /// Sends that the kernel took only in part and that had to be continued.
    pub short_sends: u64,
    /// Times that no receive buffer was free.
    pub no_buffers: u64,
    /// Times that the submission queue was full and had to be flushed early.
    pub queue_full: u64,
    /// Times that the kernel reported an overflow of the completion queue.
    pub completion_overflows: u64,
    /// Completions dropped because their socket was already closed.
    pub stale: u64,
    /// Operations handed to the helper threads for slow files.
    pub helped: u64,
    /// Datagrams delivered.
    pub datagrams_received: u64,
    /// Datagrams accepted by the kernel; each datagram of a train counts.
    pub datagrams_sent: u64,
    /// Datagrams that the kernel dropped because a socket's buffer was full, as far as later
    /// datagrams have reported them.
    pub datagrams_dropped: u64,
    /// Datagrams dropped by the driver because they were longer than a receive buffer.
    pub datagrams_truncated: u64,
    /// Sockets whose trains are sent one datagram at a time, since the kernel has refused to cut one.
    pub segmentation_refused: u64,
}

/// The feature by which peers on the same machine are asked what they have read.
pub(crate) const PEER_QUERIES: &str = "queries of peers' sockets";

/// How it is known that a peer has what was sent, and no page of ours any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Receipt {
    /// It is not known: a container or a tunnel is at the other end.
    Unknown,
    /// It has acknowledged it, over an interface with a parent device: the bytes left the machine.
    Acknowledged,
    /// Its program has read it: it is in the same network namespace, where its socket can be asked, or at the
    /// other end of a Unix socket, whose queue is one for both (`SIOCOUTQ`). A program that moves pages on
    /// without reading them (`splice`) counts as having read them.
    Read,
}

/// The network side of an engine, and its clocks.
pub trait Network {
    /// The monotonic clock, read once per [`wait`](Self::wait).
    fn now(&self) -> Nanos;

    /// The real-time clock in milliseconds since the Unix epoch, read once per
    /// [`wait`](Self::wait).
    fn unix_ms(&self) -> i64;

    /// The same in seconds.
    fn unix_seconds(&self) -> i64 {
        self.unix_ms().div_euclid(1_000)
    }

    /// What this engine is and uses.
    fn report(&self) -> EngineReport;

    /// Counts since the start.
    fn counters(&self) -> IoCounters;

    /// A handle that wakes this driver from other threads; wakes complete with `token`.
    fn waker(&mut self, token: Token) -> Waker;

    /// Accepts connections until an error (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`) or
    /// [`stop_accepting`](Self::stop_accepting): a completion with `more == false` ends it, and a
    /// new call is needed. Errors of single connections (`ECONNABORTED`) are swallowed. Accepted
    /// TCP sockets have `TCP_NODELAY` set (on the listener, so that they inherit it).
    fn accept(&mut self, listener: Listener, token: Token);

    /// Stops accepting on the listener and closes its descriptor. No further `Accepted` for it
    /// is delivered; connections still in its queue are accepted before the close, if any, and
    /// delivered by the next wait. That holds if another process accepts from it as well: the kernel
    /// may have announced a connection to this driver only.
    fn stop_accepting(&mut self, listener: Listener);

    /// Whether a listener is open, or connections that were accepted have not been delivered yet:
    /// dropping the driver now would reset them.
    fn may_accept(&self) -> bool;

    /// The other end of a connection.
    fn peer(&self, socket: Socket) -> Peer;

    /// Receives until the end of the stream or an error. Running out of buffers is not an error:
    /// the driver resumes when buffers are returned.
    fn receive(&mut self, socket: Socket, token: Token);

    /// Receives once: a completion with `more == false` follows. For the first request of a
    /// connection, which may be its only one: nothing has to be cancelled when it closes.
    fn receive_once(&mut self, socket: Socket, token: Token) {
        self.receive(socket, token);
    }

    /// Stops receiving for now (the caller holds enough unparsed input). Bytes that have already
    /// arrived may still be delivered by the next wait. [`receive`](Self::receive) resumes.
    fn pause_receiving(&mut self, socket: Socket);

    /// The bytes of a lease.
    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8];

    /// Gives a lease back.
    fn release(&mut self, lease: Lease);

    /// An empty vector with some capacity for [`SendList::wire`], recycled from earlier sends.
    fn output(&mut self) -> Vec<u8>;

    /// As [`output`](Self::output), at least `len` bytes long and with arbitrary content, for
    /// callers that overwrite the part they send: one
    /// [`Piece::Wire`](crate::operation::Piece::Wire) gives its length.
    fn output_of(&mut self, len: usize) -> Vec<u8> {
        let mut vec = self.output();
        vec.resize(len, 0);
        vec
    }

    /// Sends the whole list: short sends are continued by the driver. Completes once.
    fn send(&mut self, socket: Socket, token: Token, list: SendList);

    /// Sends `head` (bytes made for this response, possibly empty; taken from
    /// [`output`](Self::output) and recycled), then `len` bytes of `file` from `offset` by
    /// `sendfile`, waiting for room in the socket as often as needed. The head is sent with
    /// `MSG_MORE`, so that it shares a segment with the file's first bytes; both are plain system
    /// calls on this thread, made at once if neither has to wait.
    ///
    /// Completes once with [`Done::Sent`](crate::completion::Done::Sent) of head and file bytes
    /// together, when all is sent or the file has ended early. A helper thread first reads in
    /// ranges that are not in memory. Callers keep `len` at or below 2 MiB, so that progress is
    /// visible and connections take turns.
    fn send_file(
        &mut self,
        socket: Socket,
        token: Token,
        head: Vec<u8>,
        file: &File,
        offset: u64,
        len: u64,
    );

    /// Has the kernel encrypt everything sent on this socket from now on, with these keys (kernel
    /// TLS, transmit only): `send` and `send_file` then take plaintext; received bytes are
    /// unchanged. All records encrypted elsewhere must have been sent, and no send may be under
    /// way. Whether this can work is determined once at start by
    /// [`ktls::probe`](crate::ktls::probe).
    ///
    /// A second call replaces the key; a `KeyUpdate` has to be sent by
    /// [`send_control`](Self::send_control) before it.
    ///
    /// # Errors
    /// Those of [`ktls::attach`](crate::ktls::attach) and [`ktls::install`](crate::ktls::install);
    /// sending continues as before this call: in the clear, or with the earlier key (`EBUSY` if the
    /// kernel cannot replace one).
    ///
    /// # Panics
    /// If a send is under way, or the key does not have the length that its cipher requires.
    fn encrypt_in_kernel(&mut self, socket: Socket, keys: &TxKeys<'_>) -> Result<(), Errno>;

    /// Sends a record that is not application data on a socket whose records the kernel encrypts:
    /// at most [`CONTROL_LEN_MAX`](crate::operation::CONTROL_LEN_MAX) bytes of content, in a
    /// separate record, after everything sent before. Completes once with
    /// [`Done::Sent`](crate::completion::Done::Sent) of the content's length.
    ///
    /// # Panics
    /// If a send is under way, or the kernel does not encrypt: the content would be sent in the
    /// clear.
    fn send_control(&mut self, socket: Socket, token: Token, control: ControlType, content: &[u8]);

    /// Ends the sending half of the connection (FIN after what is queued). Never blocks.
    fn shutdown_write(&mut self, socket: Socket);

    /// Forgets the socket: cancels its operations, and closes it once the kernel no longer uses it.
    fn close(&mut self, socket: Socket);

    /// As [`close`](Self::close), but the peer gets a reset and unsent bytes are dropped.
    fn reset(&mut self, socket: Socket);

    /// About how many bytes the socket would take at once, if at most about `unsent_max` of them
    /// may wait to be sent: what is left of its buffer (`SO_MEMINFO`, `SIOCOUTQNSD`). Any more
    /// would stay in our memory until the peer reads. 0 if unknown.
    fn room(&mut self, socket: Socket, unsent_max: u32) -> u64;

    /// Has the socket accept bytes only while fewer than about this many of them are unsent
    /// (`TCP_NOTSENT_LOWAT`), so that urgent bytes need not wait behind a full buffer. Bytes in
    /// flight do not count. No effect on a Unix socket, whose buffer is small.
    fn bound_unsent(&mut self, socket: Socket, bytes: u32);

    /// Has the kernel send no more than about this many bytes a second (`SO_MAX_PACING_RATE`), spread
    /// evenly. No effect on a Unix socket.
    fn pace(&mut self, socket: Socket, bytes_per_second: u64);

    /// With `on`, sends only full segments from now on (`TCP_CORK`); without, sends everything
    /// again. For large files, which are sent in several operations, each of which would end in a
    /// small segment. The kernel holds back the rest for at most 200 ms. No effect on a Unix
    /// socket.
    fn cork(&mut self, socket: Socket, on: bool);

    /// Acknowledges at once what has been received so far (`TCP_QUICKACK`), for when nothing is
    /// about to be sent that would carry the acknowledgement: a peer without `TCP_NODELAY` may hold
    /// back its next bytes until it arrives, and the kernel would delay it by 40 ms. No effect on a
    /// Unix socket.
    fn acknowledge(&mut self, socket: Socket);

    /// Bytes that the peer has acknowledged since the connection began (`TCP_INFO`,
    /// `tcpi_bytes_acked`); for a Unix socket, bytes sent less bytes queued. Queried only when a
    /// deadline passes, to distinguish a slow peer from one that reads nothing.
    fn acknowledged(&mut self, socket: Socket) -> u64;

    /// Bytes that the kernel has queued and the peer has not acknowledged (`SIOCOUTQ`); for a Unix
    /// socket, not read. Records that the kernel has encrypted and could not queue yet do not count.
    fn unacknowledged(&self, socket: Socket) -> u64;

    /// Whether the peer is on this machine. Over loopback, bytes that the peer has acknowledged
    /// and not yet read are still our own pages.
    fn is_local(&self, socket: Socket) -> bool;

    /// How it is known that the peer has bytes, so that the pages that held them may change. Costs
    /// some system calls.
    fn receipt(&self, socket: Socket) -> Receipt;

    /// Bytes since the connection began that the peer has in this sense; 0 if that is
    /// [unknown](Receipt::Unknown) or cannot be asked. Costs some system calls.
    fn received_by_peer(&mut self, socket: Socket) -> u64;

    /// Delivers the datagrams of a socket, each as a completion
    /// [`Done::Datagram`](crate::completion::Done::Datagram) with `more`, until
    /// [`stop_datagrams`](Self::stop_datagrams). Running out of buffers is not an error: datagrams
    /// that arrive meanwhile wait in the socket. Datagrams longer than a buffer, which QUIC
    /// endpoints announce not to accept, are dropped and counted.
    ///
    /// Errors of single datagrams (`ECONNREFUSED`, `EHOSTUNREACH`) are swallowed. Any other error
    /// is a completion without `more` and ends the operation.
    fn receive_datagrams(&mut self, socket: DatagramSocket, token: Token);

    /// Delivers no further datagrams of the socket, which another process receives from now on; it
    /// can still send. Datagrams that the kernel has delivered already are lost.
    fn leave_datagrams(&mut self, socket: DatagramSocket);

    /// Closes the socket. No completion for it is delivered afterwards, and it is not used again;
    /// datagrams still in its buffer are lost, unless another process has a duplicate of the
    /// socket.
    fn stop_datagrams(&mut self, socket: DatagramSocket);

    /// Sends trains in this order, by one system call that does not wait; `bytes` begins with theirs.
    /// Returns how many were sent, at least one: all but those that the next call is for. A train has at
    /// most [`TRAIN_SEGMENTS_MAX`](crate::udp::TRAIN_SEGMENTS_MAX) datagrams and
    /// [`TRAIN_LEN_MAX`](crate::udp::TRAIN_LEN_MAX) bytes.
    ///
    /// A train with datagrams longer than the interface's MTU counts as sent and is lost: a probe
    /// for a larger MTU fails that way.
    ///
    /// # Errors
    /// Those of the first train. `EAGAIN` if the socket's buffer is full: the caller keeps the train, and sends it
    /// again after [`when_sendable`](Self::when_sendable); if the route cannot segment trains, some of
    /// its datagrams may have been sent and are then sent twice, which QUIC tolerates. After any
    /// other error (`ENETUNREACH`, `EPERM` of a firewall, `EINVAL` for a local address that is
    /// gone, ...) the train is lost, as it might be on the path.
    ///
    /// # Panics
    /// If there is none, or one of those of the call is empty or too long.
    fn send_datagrams(
        &mut self,
        socket: DatagramSocket,
        bytes: &[u8],
        trains: &[Train],
    ) -> Result<usize, Errno>;

    /// After `EAGAIN`: one completion [`Done::Sendable`](crate::completion::Done::Sendable) when
    /// the socket takes datagrams again. A second call before that only changes the token.
    fn when_sendable(&mut self, socket: DatagramSocket, token: Token);

    /// Appends the completions of operations that were done at once to `out`: those that the next wait would
    /// deliver without asking the kernel. An engine may leave all of them to it.
    fn completed(&mut self, _out: &mut Vec<Completion>) {}

    /// Submits all prepared operations and waits for at least one completion, or until `until`.
    /// Appends completions to `out`. `None` waits without a limit.
    ///
    /// # Errors
    /// Only if the engine cannot continue at all.
    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno>;
}
