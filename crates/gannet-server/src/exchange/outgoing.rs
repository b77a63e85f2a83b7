//! The contents of one send: the responses of one turn, gathered for one connection.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use gannet_io::driver::{PIECES_MAX, Piece, SendList};
use gannet_io::memory::Memory;

use crate::bounds::limits::{COPY_MAX, RESPONSES_PER_SEND_MAX, SMALL_FILE_MAX, WIRE_MAX};
use crate::release::Source;
use crate::release::body::Body;

/// Responses gathered for one send, and the content to send after it.
///
/// Invariant: `covered <= list.wire.len()`; bytes of `wire` before `covered` belong to a piece,
/// unless there are no pieces at all.
#[derive(Default)]
pub(crate) struct Outgoing {
    list: SendList,
    covered: u32,
    responses: u32,
    /// Bytes in pieces of shared memory.
    shared: u64,
    /// Content to send afterwards, in order.
    pub(crate) parts: VecDeque<Body>,
    /// A vector that is free again, for the driver: the next file is read into it.
    pub(crate) spare: Vec<u8>,
}

impl Outgoing {
    /// Starts with `wire` as the buffer.
    pub(crate) fn new(wire: Vec<u8>) -> Self {
        Self {
            list: SendList {
                wire,
                ..SendList::default()
            },
            ..Self::default()
        }
    }

    /// The buffer that heads and small bodies are written to.
    pub(crate) fn wire(&mut self) -> &mut Vec<u8> {
        &mut self.list.wire
    }

    /// Adds a range of a representation in the cheapest form.
    pub(crate) fn content(&mut self, source: Source<'_>, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let bounds = || range.start as usize..range.end as usize;
        match source {
            Source::Bytes(bytes) if self.parts.is_empty() => {
                self.wire().extend_from_slice(&bytes[bounds()]);
            }
            Source::Made(memory, offset) if self.parts.is_empty() => {
                let range = offset + bounds().start..offset + bounds().end;
                self.wire().extend_from_slice(&memory.bytes()[range]);
            }
            Source::Memory(memory, offset)
                if range.end - range.start <= SMALL_FILE_MAX && !self.is_full() =>
            {
                self.memory(memory, offset + bounds().start..offset + bounds().end);
            }
            // Long ones are sent in slices.
            source => match Body::of(source, range) {
                Some(body) => self.part(body),
                None => debug_assert!(false, "bytes are at hand"),
            },
        }
    }

    /// Counts a response.
    pub(crate) fn count(&mut self) {
        self.responses += 1;
    }

    /// Adds a range of memory after the bytes written so far; copies it if it is short.
    pub(crate) fn memory(&mut self, memory: &Arc<Memory>, range: Range<usize>) {
        if range.len() <= COPY_MAX {
            return self.list.wire.extend_from_slice(&memory.bytes()[range]);
        }
        self.cover();
        self.shared += range.len() as u64;
        self.list
            .pieces
            .push(Piece::Memory(Arc::clone(memory), range));
    }

    /// Adds content that is sent on its own, after this send.
    pub(crate) fn part(&mut self, body: Body) {
        self.parts.push_back(body);
    }

    /// Whether the next response has to wait for this send.
    pub(crate) fn is_full(&self) -> bool {
        !self.parts.is_empty()
            || self.responses >= RESPONSES_PER_SEND_MAX
            || self.list.wire.len() >= WIRE_MAX
            || self.list.pieces.len() + 3 > PIECES_MAX
    }

    /// Length of the send in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.list.wire.len() as u64 + self.shared
    }

    /// Bytes of memory allocated for these responses.
    pub(crate) fn wire_len(&self) -> u64 {
        self.list.wire.capacity() as u64 + Body::held_by(&self.parts)
    }

    /// Whether the send is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.wire.is_empty() && self.list.pieces.is_empty() && self.parts.is_empty()
    }

    /// The send, and the content to send after it.
    pub(crate) fn finish(mut self) -> (SendList, VecDeque<Body>) {
        if !self.list.pieces.is_empty() {
            self.cover();
        }
        (self.list, self.parts)
    }

    /// Makes a piece of the wire bytes that belong to none yet.
    fn cover(&mut self) {
        let len = u32::try_from(self.list.wire.len()).expect("WIRE_MAX bounds it");
        if len > self.covered {
            self.list.pieces.push(Piece::Wire(self.covered..len));
            self.covered = len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes in the order of sending.
    fn flat(list: &SendList) -> Vec<u8> {
        if list.pieces.is_empty() {
            return list.wire.clone();
        }
        let mut out = Vec::new();
        for piece in &list.pieces {
            match piece {
                Piece::Wire(r) => out.extend(&list.wire[r.start as usize..r.end as usize]),
                Piece::Memory(m, r) => {
                    out.extend(&m.bytes()[r.clone()]);
                }
            }
        }
        out
    }

    #[test]
    fn pieces_keep_the_order_of_writing() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(3 * COPY_MAX).collect();
        let memory = Arc::new(Memory::from_vec(bytes.clone()));
        let mut out = Outgoing::new(Vec::new());
        out.wire().extend(b"a");
        out.memory(&memory, 2..2 * COPY_MAX);
        out.memory(&memory, 4..4);
        out.memory(&memory, 5..6);
        out.memory(&memory, 7..8 + COPY_MAX);
        out.wire().extend(b"b");
        let (list, parts) = out.finish();
        assert!(parts.is_empty());
        assert_eq!(list.pieces.len(), 5, "the short one is in the wire");
        let expected = [
            b"a",
            &bytes[2..2 * COPY_MAX],
            &bytes[5..6],
            &bytes[7..8 + COPY_MAX],
            b"b",
        ];
        assert_eq!(flat(&list), expected.concat());
    }

    #[test]
    fn wire_alone_has_no_pieces() {
        let mut out = Outgoing::new(Vec::new());
        out.wire().extend(b"ab");
        let (list, _) = out.finish();
        assert_eq!((flat(&list), list.pieces.len()), (b"ab".to_vec(), 0));
    }
}
