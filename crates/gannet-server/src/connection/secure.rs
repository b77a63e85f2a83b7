//! The TLS state of a connection.

use gannet_io::driver::{Nanos, PIECES_MAX, Piece, SendList};

use crate::bounds::limits::RESTED_NS;
use crate::bounds::tls::{PLAINTEXT_MAX, RECORD_OVERHEAD_MAX};
use crate::tls::alert::Alert;
use crate::tls::handshake::Handshake;
use crate::tls::record::aead::Secrets;
use crate::tls::session::Session;

/// The TLS side of a connection.
#[derive(Default)]
pub(crate) struct Secure {
    pub(crate) state: TlsState,
    /// Ciphertext that waits for a send of the handshake, or for the worker's next turn.
    pub(crate) waiting: Vec<u8>,
    /// A send of the handshake is in progress.
    pub(crate) is_sending: bool,
    /// Deferred: this turn's handshake budget is used up.
    pub(crate) is_queued: bool,
    /// When the handshake began to wait for a certificate that is coming.
    pub(crate) held_from: Option<Nanos>,
    /// It waits now, until then at most.
    pub(crate) held_until: Option<Nanos>,
    /// The peer violated the protocol; the alert follows the send in progress.
    pub(crate) fault: Option<Alert>,
    /// Nothing more is sent: our last record is made, or the peer is gone.
    pub(crate) is_over: bool,
    /// Bytes sent before the first response.
    pub(crate) handshake_bytes: u64,
    /// When data was last encrypted; `None` before the first response.
    pub(crate) encrypted_at: Option<Nanos>,
    /// The kernel cannot encrypt this connection.
    pub(crate) stays_ours: bool,
    /// Keys for the kernel, to be installed once the `KeyUpdate` in progress is sent.
    pub(crate) next_keys: Option<Secrets>,
    /// The send to continue with afterwards.
    pub(crate) pending: Option<SendList>,
}

/// State of the TLS connection.
#[expect(
    clippy::large_enum_variant,
    reason = "a connection boxes it as a whole, and nearly all are open"
)]
pub(crate) enum TlsState {
    /// The handshake is in progress.
    Shaking(Handshake),
    /// Early data was accepted: requests are answered before the client has finished.
    Early(Handshake),
    /// Records are exchanged.
    Open(Session),
}

impl Default for TlsState {
    fn default() -> Self {
        Self::Shaking(Handshake::new())
    }
}

/// Plaintext could not be encrypted: its source has become shorter, or the key is used up.
#[derive(Debug)]
pub(crate) struct NotEncrypted;

impl Secure {
    /// Bytes received and not yet decrypted, or not yet used.
    pub(crate) fn held_bytes(&self) -> u64 {
        let state = match &self.state {
            TlsState::Shaking(handshake) | TlsState::Early(handshake) => handshake.held_bytes(),
            TlsState::Open(session) => session.held_bytes(),
        };
        (self.waiting.capacity() + state) as u64
    }

    /// Records that data is about to be encrypted. True if the connection is new or has rested: the
    /// client waits for the first bytes, and TCP sends no more than ten segments at once.
    pub(crate) fn has_rested(&mut self, now: Nanos) -> bool {
        let before = self.encrypted_at.replace(now);
        before.is_none_or(|at| now.0.saturating_sub(at.0) >= RESTED_NS)
    }

    /// Encrypts the contents of a send into a vector from `output`, which has at least the length
    /// passed to it. With `is_last`, `close_notify` follows in the same send.
    ///
    /// # Errors
    /// [`NotEncrypted`]; the response cannot be completed.
    pub(crate) fn encrypt(
        &mut self,
        list: &SendList,
        is_last: bool,
        output: impl FnOnce(usize) -> Vec<u8>,
    ) -> Result<SendList, NotEncrypted> {
        if list.pieces.is_empty() {
            return self.encrypt_slices(&[&list.wire], is_last, output);
        }
        let mut slices: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
        for (slice, piece) in slices.iter_mut().zip(&list.pieces) {
            *slice = match piece {
                Piece::Wire(range) => &list.wire[range.start as usize..range.end as usize],
                Piece::Memory(memory, range) => &memory.bytes()[range.clone()],
            };
        }
        self.encrypt_slices(&slices[..list.pieces.len()], is_last, output)
    }

    /// Encrypts slices as one stream, as [`encrypt`](Self::encrypt) does.
    ///
    /// # Errors
    /// [`NotEncrypted`]; the response cannot be completed.
    pub(crate) fn encrypt_slices(
        &mut self,
        slices: &[&[u8]],
        is_last: bool,
        output: impl FnOnce(usize) -> Vec<u8>,
    ) -> Result<SendList, NotEncrypted> {
        let session = match &mut self.state {
            TlsState::Open(session) => session,
            TlsState::Early(handshake) => {
                let len: usize = slices.iter().map(|slice| slice.len()).sum();
                let records = len.div_ceil(PLAINTEXT_MAX) + 1;
                let mut wire = output(len + records * RECORD_OVERHEAD_MAX + GOODBYE_LEN_MAX);
                wire.clear();
                if !handshake.encrypt_early(slices, &mut wire) {
                    return Err(NotEncrypted);
                }
                if is_last && !self.is_over {
                    self.is_over = handshake.end_early(&mut wire);
                }
                return Ok(list_of(wire));
            }
            TlsState::Shaking(_) => return Err(NotEncrypted),
        };
        let (mut wire, mut used) = encrypted(session, slices, output)?;
        if is_last && !self.is_over {
            self.is_over = true;
            let mut goodbye = Vec::new();
            session.end(Alert::CLOSE_NOTIFY, &mut goodbye);
            let end = used + goodbye.len();
            debug_assert!(end <= wire.len(), "room was left for it");
            wire[used..end].copy_from_slice(&goodbye);
            used = end;
        }
        if wire.len() - used < CUT_MAX {
            wire.truncate(used);
            return Ok(list_of(wire));
        }
        let end = u32::try_from(used).expect("a send is far shorter");
        Ok(SendList {
            pieces: vec![Piece::Wire(0..end)],
            ..list_of(wire)
        })
    }
}

/// A send of all of `wire`.
fn list_of(wire: Vec<u8>) -> SendList {
    SendList {
        wire,
        ..SendList::default()
    }
}

/// Encrypts slices as one stream; returns a vector and its used length, followed by at least
/// [`GOODBYE_LEN_MAX`] free bytes. Clears nothing, and copies only what precedes the slices.
fn encrypted(
    session: &mut Session,
    slices: &[&[u8]],
    output: impl FnOnce(usize) -> Vec<u8>,
) -> Result<(Vec<u8>, usize), NotEncrypted> {
    let len = slices.iter().map(|slice| slice.len()).sum();
    let mut first = Vec::new();
    session.prepare(&mut first).map_err(|_| NotEncrypted)?;
    let encryptor = session.encryptor();
    let encrypted_len = encryptor.encrypted_len(len);
    let mut wire = output(first.len() + encrypted_len + GOODBYE_LEN_MAX);
    let (front, records) = wire.split_at_mut(first.len());
    front.copy_from_slice(&first);
    let used = encryptor
        .encrypt_into(slices, &mut records[..encrypted_len])
        .map_err(|_| NotEncrypted)?;
    Ok((wire, first.len() + used))
}

/// With fewer unused bytes than this, the vector is truncated; with more it keeps its length, so
/// that reuse needs no clearing, at the cost of a list of pieces.
const CUT_MAX: usize = 1024;

/// Maximum length of an encrypted alert: reserving it prevents a long vector from growing.
const GOODBYE_LEN_MAX: usize = 2 + RECORD_OVERHEAD_MAX;
