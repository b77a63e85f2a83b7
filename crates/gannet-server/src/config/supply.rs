//! Asks the process beside the server for parts of releases that are not on this machine yet.
//!
//! Questions leave by a pipe, and never block; answers come by another one. The serving process learns from them
//! when to look again: what is present, the release's own files say.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use gannet_io::companion::WIDE_INPUT_LEN;

use crate::bounds::limits::{FETCHES_MAX, USED_PARTS_MAX};

/// The server's ends of the pipes; equal only to itself.
#[derive(Clone)]
pub struct Supply(Arc<(File, File)>);

/// A part of a release.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ReleasePart {
    /// The name of the release in its store.
    pub release: [u8; 16],
    /// The number of a blob.
    pub blob: u32,
    /// Bytes of that blob.
    pub range: Range<u64>,
}

/// The number of a question about what will be needed soon: no request waits for the answer.
pub const AHEAD: u64 = 0;

/// That of what is no question: the part was here, and was sent.
pub const USED: u64 = u64::MAX;

/// The client of a question that is for none: no packet comes from there.
pub const NO_CLIENT: u128 = u128::MAX;

/// How a question begins, which names how it is written: the other process may be of another version.
const FORM: [u8; 4] = *b"ask2";

/// What a pipe takes as a whole, or not at all (`PIPE_BUF`), and the piece of memory that it puts whole records in.
const PIPE_PIECE: usize = 4096;

/// Questions that the pipe takes while no process reads it.
const QUEUED_MAX: usize = WIDE_INPUT_LEN / PIPE_PIECE * (PIPE_PIECE / ReleasePart::LEN);

const _: () = assert!(USED_PARTS_MAX * ReleasePart::LEN <= PIPE_PIECE);
// What responses that have begun wait for, too, and as much again for what needs no answer.
const _: () = assert!(QUEUED_MAX >= FETCHES_MAX / 4 * 5 * 2);

/// An answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SupplyReply {
    /// The number of the question.
    pub number: u64,
    /// What has become of the part.
    pub supplied: Supplied,
    /// Bytes that were fetched for it.
    pub fetched: u64,
    /// How many pieces of it were not what their digests say when they came.
    pub unverified: u64,
}

/// What has become of a part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Supplied {
    /// It is here.
    Present,
    /// It cannot be had now.
    Unavailable,
    /// It is not what its digest says.
    Damaged,
    /// No answer came in time.
    Late,
    /// It was not asked for: too much was, or the pipe was full.
    Refused,
}

impl Supplied {
    /// All of them, with their names in the metrics.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Present, "present"),
        (Self::Unavailable, "unavailable"),
        (Self::Damaged, "damaged"),
        (Self::Late, "late"),
        (Self::Refused, "refused"),
    ];
}

impl ReleasePart {
    /// Bytes of a question.
    pub const LEN: usize = 64;

    fn to_bytes(&self, number: u64, client: u128) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&FORM);
        bytes[4..8].copy_from_slice(&self.blob.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.release);
        bytes[32..40].copy_from_slice(&self.range.start.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.range.end.to_le_bytes());
        bytes[48..].copy_from_slice(&client.to_le_bytes());
        bytes
    }

    /// The part that a question is about, its number, and for which client it is, or [`NO_CLIENT`]; `None` if it is
    /// none, or that of another version.
    #[must_use]
    pub fn read(bytes: &[u8; Self::LEN]) -> Option<(Self, u64, u128)> {
        let part = Self {
            release: bytes[16..32].try_into().expect("16 bytes"),
            blob: u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")),
            range: u64_at(bytes, 32)..u64_at(bytes, 40),
        };
        let client = u128::from_le_bytes(bytes[48..].try_into().expect("16 bytes"));
        (bytes[..4] == FORM).then(|| (part, u64_at(bytes, 8), client))
    }
}

impl SupplyReply {
    /// Bytes of an answer.
    pub const LEN: usize = 32;

    /// The answer as it is written: at once, so that a pipe takes it as a whole.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&(self.supplied as u64).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.fetched.to_le_bytes());
        bytes[24..].copy_from_slice(&self.unverified.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        let known = Supplied::ALL.get(u64_at(bytes, 8) as usize);
        Self {
            number: u64_at(bytes, 0),
            supplied: known.map_or(Supplied::Unavailable, |(it, _)| *it),
            fetched: u64_at(bytes, 16),
            unverified: u64_at(bytes, 24),
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl Supply {
    /// Questions are written to `questions`, which does not block; `answers` are read.
    #[must_use]
    pub fn new(questions: File, answers: File) -> Self {
        Self(Arc::new((questions, answers)))
    }

    /// Asks for a part, or for none; false if the pipe is full, or no process reads it any more.
    pub(crate) fn say(&self, part: &ReleasePart, number: u64, client: u128) -> bool {
        // A pipe takes a short record as a whole, or not at all.
        matches!(
            (&self.0.0).write(&part.to_bytes(number, client)),
            Ok(ReleasePart::LEN)
        )
    }

    /// Says of these that they were sent. What does not fit is lost.
    pub(crate) fn say_used(&self, parts: &[ReleasePart]) {
        let records = parts.iter().flat_map(|it| it.to_bytes(USED, NO_CLIENT));
        let _ = (&self.0.0).write(&records.collect::<Vec<_>>());
    }

    /// Waits for answers, and hands each to `deliver`, until there can be no more.
    ///
    /// # Errors
    /// The pipe cannot be read.
    pub(crate) fn read_replies(&self, mut deliver: impl FnMut(SupplyReply)) -> io::Result<()> {
        let mut bytes = [0; 128 * SupplyReply::LEN];
        loop {
            match (&self.0.1).read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(len) => bytes[..len]
                    .chunks_exact(SupplyReply::LEN)
                    .for_each(|it| deliver(SupplyReply::read(it))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Supply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Supply")
    }
}

impl PartialEq for Supply {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Supply {}

#[cfg(test)]
mod tests {
    use gannet_io::companion::wide_input;

    use super::*;

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        let part = ReleasePart {
            release: *b"0123456789abcdef",
            blob: 7,
            range: 9..u64::MAX,
        };
        for (number, client) in [(1 << 50, 0), (AHEAD, 3 << 100), (USED, u128::MAX)] {
            let mut bytes = part.to_bytes(number, client);
            let read = ReleasePart::read(&bytes);
            assert_eq!(read, Some((part.clone(), number, client)));
            bytes[3] += 1;
            assert_eq!(ReleasePart::read(&bytes), None, "it has another form");
        }
        for (supplied, _) in Supplied::ALL {
            let reply = SupplyReply {
                number: 3 << 48,
                supplied,
                fetched: 5,
                unverified: 6,
            };
            assert_eq!(SupplyReply::read(&reply.to_bytes()), reply);
        }
    }

    #[test]
    fn the_pipe_has_room_for_all_questions() {
        let (_questions, written) = wide_input().expect("descriptors");
        let nothing = File::open("/dev/null").expect("it is there");
        let supply = Supply::new(written, nothing);
        let part = ReleasePart {
            release: [7; 16],
            blob: 7,
            range: 0..1,
        };
        supply.say_used(&vec![part.clone(); USED_PARTS_MAX]);
        let fitting = (0..).take_while(|number| supply.say(&part, *number, NO_CLIENT));
        assert_eq!(fitting.count(), QUEUED_MAX - USED_PARTS_MAX);
    }
}
