//! What a connection over TLS knows beside what every connection does.

use gannet_io::driver::{Piece, SendList};

use crate::tls::alert::Alert;
use crate::tls::handshake::Handshake;
use crate::tls::record::aead::Secrets;
use crate::tls::session::Session;

/// The TLS side of a connection.
#[derive(Default)]
pub(crate) struct Secure {
    pub(crate) state: State,
    /// Ciphertext that waits for a send of the handshake, or for the worker's next turn.
    pub(crate) waiting: Vec<u8>,
    /// A send of the handshake is under way.
    pub(crate) is_sending: bool,
    /// The ClientHello waits for a turn in which there is time for it.
    pub(crate) is_queued: bool,
    /// The peer broke the protocol; it is told when the send under way has ended.
    pub(crate) fault: Option<Alert>,
    /// Nothing is sent any more: our last record is made, or the peer does not listen.
    pub(crate) is_over: bool,
    /// Bytes sent before the first answer.
    pub(crate) handshake_bytes: u64,
    /// The kernel was asked to seal, and will not.
    pub(crate) stays_ours: bool,
    /// Keys for the kernel, to be installed when the `KeyUpdate` under way was sent.
    pub(crate) next_keys: Option<Secrets>,
    /// What is sent after that.
    pub(crate) pending: Option<SendList>,
}

/// How far it has come.
#[expect(
    clippy::large_enum_variant,
    reason = "a connection boxes it as a whole, and nearly all are open"
)]
pub(crate) enum State {
    /// The handshake is under way.
    Shaking(Handshake),
    /// Records are exchanged.
    Open(Session),
}

impl Default for State {
    fn default() -> Self {
        Self::Shaking(Handshake::new())
    }
}

/// Plaintext could not be sealed: its source has become shorter, or the key is used up.
#[derive(Debug)]
pub(crate) struct NotSealed;

impl Secure {
    /// Seals what a send would carry and appends the records to `wire`. Pieces that user code may
    /// not touch are read into `scratch` first. With `is_last`, `close_notify` follows in the same
    /// send.
    ///
    /// # Errors
    /// [`NotSealed`]; the answer cannot be finished.
    pub(crate) fn seal(
        &mut self,
        list: &SendList,
        is_last: bool,
        scratch: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), NotSealed> {
        let State::Open(session) = &mut self.state else {
            return Err(NotSealed);
        };
        if list.pieces.is_empty() {
            session.seal(&[&list.wire], wire).map_err(|_| NotSealed)?;
        } else {
            read_mapped(&list.pieces, scratch)?;
            let mut read = 0;
            let mut slices: Vec<&[u8]> = Vec::with_capacity(list.pieces.len());
            for piece in &list.pieces {
                slices.push(match piece {
                    Piece::Wire(range) => &list.wire[range.start as usize..range.end as usize],
                    Piece::Memory(memory, range) => match memory.as_heap_slice() {
                        Some(bytes) => &bytes[range.clone()],
                        None => {
                            read += range.len();
                            &scratch[read - range.len()..read]
                        }
                    },
                });
            }
            session.seal(&slices, wire).map_err(|_| NotSealed)?;
        }
        if is_last && !self.is_over {
            self.is_over = true;
            session.end(Alert::CLOSE_NOTIFY, wire);
        }
        Ok(())
    }
}

/// Reads the pieces that lie in mapped files, one behind the other: touching the mapping of a
/// truncated file would end the process.
fn read_mapped(pieces: &[Piece], scratch: &mut Vec<u8>) -> Result<(), NotSealed> {
    scratch.clear();
    for piece in pieces {
        let Piece::Memory(memory, range) = piece else {
            continue;
        };
        if memory.as_heap_slice().is_none() {
            let start = scratch.len();
            scratch.resize(start + range.len(), 0);
            memory
                .copy_to(range.clone(), &mut scratch[start..])
                .map_err(|_| NotSealed)?;
        }
    }
    Ok(())
}
