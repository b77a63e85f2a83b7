//! How much of a send list has been sent: the one place that continues it after a short send.

use std::ops::Range;

use crate::operation::{PIECES_MAX, Piece, SendList};

/// A send list under way, and how many of its bytes have been sent.
///
/// Invariant: `sent <= total`, and `total` is the sum of the pieces' lengths.
#[derive(Debug)]
pub(crate) struct Progress {
    list: SendList,
    total: u64,
    sent: u64,
}

impl Progress {
    /// Panics if a piece is out of bounds, or there are more than [`PIECES_MAX`].
    pub(crate) fn new(list: SendList) -> Self {
        assert!(
            list.pieces.len() <= PIECES_MAX,
            "a send list has at most PIECES_MAX pieces"
        );
        let total = if list.pieces.is_empty() {
            list.wire.len() as u64
        } else {
            list.pieces
                .iter()
                .map(|piece| part_of(&list, piece).len as u64)
                .sum()
        };
        Self {
            list,
            total,
            sent: 0,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn is_done(&self) -> bool {
        self.sent == self.total
    }

    /// Whether more bytes follow after this list (`MSG_MORE`).
    pub(crate) fn has_more(&self) -> bool {
        self.list.more
    }

    /// Records that `count` more bytes have been sent. Panics if that is more than were left.
    pub(crate) fn advance(&mut self, count: u64) {
        self.sent += count;
        assert!(
            self.sent <= self.total,
            "the kernel sends no more than it was given"
        );
    }

    /// What is left, if it is one contiguous run of the wire bytes (the usual case).
    pub(crate) fn as_one(&self) -> Option<Part> {
        self.wire_left().map(|left| Part {
            start: left.as_ptr(),
            len: left.len(),
        })
    }

    /// What is left, if it is one such run, as a slice.
    pub(crate) fn wire_left(&self) -> Option<&[u8]> {
        let sent = self.sent as usize;
        match &*self.list.pieces {
            [] => Some(&self.list.wire[sent..]),
            [Piece::Wire(range)] => {
                let range = range.start as usize..range.end as usize;
                Some(&self.list.wire[range][sent..])
            }
            _ => None,
        }
    }

    /// What is left, in order, without empty parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let mut skip = self.sent as usize;
        let one = self.as_one();
        let pieces = match one {
            Some(_) => &[],
            None => &*self.list.pieces,
        };
        let whole = one.into_iter().filter(|part| part.len > 0);
        let pieces = pieces.iter().filter_map(move |piece| {
            let part = part_of(&self.list, piece);
            let skipped = skip.min(part.len);
            skip -= skipped;
            (part.len > skipped).then(|| Part {
                start: part.start.wrapping_add(skipped),
                len: part.len - skipped,
            })
        });
        whole.chain(pieces)
    }

    /// Returns the list, so that its vector can be reused.
    pub(crate) fn into_list(self) -> SendList {
        self.list
    }

    /// Bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

/// A run of bytes for the kernel to read; valid while the [`Progress`] that returned it lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Part {
    pub(crate) start: *const u8,
    pub(crate) len: usize,
}

fn part_of(list: &SendList, piece: &Piece) -> Part {
    match piece {
        Piece::Wire(range) => {
            let bytes = &list.wire[range.start as usize..range.end as usize];
            Part {
                start: bytes.as_ptr(),
                len: bytes.len(),
            }
        }
        Piece::Memory(memory, range) => Part {
            start: memory.address(range),
            len: Range::len(range),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::Memory;

    fn bytes_of(progress: &Progress) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in progress.parts() {
            // SAFETY: all parts of these tests point into heap bytes that `progress` owns.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(part.start, part.len) });
        }
        bytes
    }

    fn pieces() -> SendList {
        let memory = Arc::new(Memory::from_vec(b"0123456789".to_vec()));
        SendList {
            wire: b"head-tail".to_vec(),
            pieces: vec![
                Piece::Wire(0..5),
                Piece::Memory(Arc::clone(&memory), 2..6),
                Piece::Wire(5..5),
                Piece::Memory(memory, 0..1),
                Piece::Wire(5..9),
            ],
            more: false,
        }
    }

    /// However short the sends are, the same bytes go out in the same order.
    #[test]
    fn continues_at_every_byte() {
        let whole = b"head-23450tail";
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let mut progress = Progress::new(pieces());
                assert_eq!(progress.total(), whole.len() as u64);
                progress.advance(first as u64);
                assert_eq!(bytes_of(&progress), whole[first..]);
                progress.advance((second - first) as u64);
                assert_eq!(bytes_of(&progress), whole[second..]);
                assert_eq!(progress.is_done(), second == whole.len());
            }
        }
    }

    /// Without pieces, exactly the wire bytes are sent.
    #[test]
    fn takes_the_wire_alone() {
        let list = SendList {
            wire: b"abc".to_vec(),
            ..SendList::default()
        };
        let mut progress = Progress::new(list);
        assert_eq!(progress.as_one().map(|part| part.len), Some(3));
        progress.advance(2);
        assert_eq!(bytes_of(&progress), b"c");
        assert_eq!(progress.as_one().map(|part| part.len), Some(1));
    }

    /// A single piece of the wire is sent like a shorter wire.
    #[test]
    fn takes_a_part_of_the_wire_alone() {
        let list = SendList {
            wire: b"abcdef".to_vec(),
            pieces: vec![Piece::Wire(1..4)],
            more: false,
        };
        let mut progress = Progress::new(list);
        assert_eq!(
            (progress.total(), progress.wire_left()),
            (3, Some(&b"bcd"[..]))
        );
        progress.advance(2);
        assert_eq!(bytes_of(&progress), b"d");
        assert_eq!(progress.as_one().map(|part| part.len), Some(1));
        progress.advance(1);
        assert!(progress.is_done());
        assert_eq!(bytes_of(&progress), b"");
    }

    #[test]
    #[should_panic(expected = "no more than it was given")]
    fn refuses_too_much() {
        Progress::new(pieces()).advance(15);
    }
}
