//! What may go wrong in a simulated run, and how often.

/// Probabilities in thousandths (0 never, 1000 always), and sizes of the faults.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Faults {
    /// A receive delivers only part of the available bytes.
    pub short_receive: u32,
    /// The socket takes only part of a send.
    pub short_send: u32,
    /// An operation completes late, by up to [`delay_max_ns`](Self::delay_max_ns).
    pub delay: u32,
    /// The longest delay.
    pub delay_max_ns: u64,
    /// Of several available completions a wait delivers only some, in any order of sockets.
    pub reorder: u32,
    /// No receive buffer is free, however few are on loan.
    pub no_buffers: u32,
    /// The submission queue is full; the operation starts late.
    pub queue_full: u32,
    /// The peer resets the connection (drawn once per operation of the socket).
    pub reset: u32,
    /// A peer that is asked what it has read cannot be asked any more, nor can anybody tell (drawn once per
    /// question).
    pub peer_unknown: u32,
    /// Accepting fails with `EMFILE`.
    pub accept_fails: u32,
    /// Opening fails with `EMFILE` while this many files are open; 0 means that there is no limit.
    pub files_max: usize,
    /// A file or a range is not in memory: the answer comes later.
    pub cold: u32,
    /// An open, a read or a file send fails with `EIO`.
    pub io_error: u32,
    /// The wall clock jumps by up to an hour, back or forth.
    pub clock_jump: u32,
    /// A wait returns late, by up to [`delay_max_ns`](Self::delay_max_ns).
    pub late_wait: u32,
    /// A wait does not notice that another thread woke it; the next one may.
    pub late_wake: u32,
    /// Sockets hold at most this many bytes to send; 0 means 64 KiB.
    pub socket_capacity: usize,
    /// A datagram is lost.
    pub datagram_loss: u32,
    /// A datagram arrives twice.
    pub datagram_duplicate: u32,
    /// A bit of a datagram is wrong when it arrives.
    pub datagram_corrupt: u32,
    /// A datagram is late, by up to [`delay_max_ns`](Self::delay_max_ns), and others overtake it.
    pub datagram_late: u32,
    /// A datagram socket of the server is full, for up to [`delay_max_ns`](Self::delay_max_ns).
    pub datagram_full: u32,
    /// How long every datagram is in flight.
    pub datagram_latency_ns: u64,
    /// Datagrams longer than this are lost; 0 means that there is no limit.
    pub datagram_mtu: usize,
    /// The most datagrams that wait in a socket of the server: any more are dropped and counted. 0
    /// means that there is no limit.
    pub datagram_queue_max: usize,
}

impl Faults {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether any of them excuses an answer that is missing or cut short.
    #[must_use]
    pub fn may_cut(&self) -> bool {
        self.reset + self.peer_unknown + self.accept_fails + self.io_error > 0
    }

    /// Some of every fault under which a correct server must still answer all requests: no resets
    /// and no disk errors.
    #[must_use]
    pub fn benign() -> Self {
        Self {
            short_receive: 200,
            short_send: 300,
            delay: 200,
            delay_max_ns: 5_000_000,
            reorder: 500,
            no_buffers: 50,
            queue_full: 20,
            reset: 0,
            peer_unknown: 0,
            accept_fails: 20,
            files_max: 0,
            cold: 200,
            io_error: 0,
            clock_jump: 2,
            late_wait: 50,
            late_wake: 0,
            socket_capacity: 8192,
            datagram_loss: 20,
            datagram_duplicate: 20,
            datagram_corrupt: 10,
            datagram_late: 100,
            datagram_full: 20,
            datagram_latency_ns: 1_000_000,
            datagram_mtu: 0,
            datagram_queue_max: 0,
        }
    }

    /// As [`benign`](Self::benign), with resets and disk errors.
    #[must_use]
    pub fn harsh() -> Self {
        Self {
            reset: 5,
            peer_unknown: 20,
            io_error: 10,
            socket_capacity: 2048,
            datagram_loss: 150,
            datagram_corrupt: 50,
            datagram_mtu: 1252,
            datagram_queue_max: 64,
            ..Self::benign()
        }
    }
}
