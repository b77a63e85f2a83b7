//! What a connection has to send: wire bytes, and the names of the content bytes between them.

use std::ops::Range;

use super::StreamId;

/// A range of a response's content that follows the frame header written last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Body {
    /// The stream whose content it is.
    pub stream: StreamId,
    /// Which bytes of the content, counted from the first one that is sent (0 for a range
    /// response too). Never empty.
    pub range: Range<u64>,
    /// Whether the content ends here: the caller forgets the stream once these are sent.
    pub is_last: bool,
}

/// A piece of output.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Segment {
    /// These bytes of [`Output::wire`].
    Wire(Range<u32>),
    /// Bytes that the caller has.
    Body(Body),
}

/// Output in the order in which it is to be sent.
///
/// Only the ends of the segments matter to the writer: [`Segment::Wire`] ranges are in order, do
/// not overlap and cover `wire`.
#[derive(Debug, Default)]
pub struct Output {
    /// Frame headers, field blocks and control frames.
    pub wire: Vec<u8>,
    /// The order of it all.
    pub segments: Vec<Segment>,
}

impl Output {
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.wire.clear();
        self.segments.clear();
    }

    /// Bytes in all segments together.
    #[must_use]
    pub fn len(&self) -> u64 {
        let bodies = self.segments.iter().map(|segment| match segment {
            Segment::Wire(_) => 0,
            Segment::Body(body) => body.range.end - body.range.start,
        });
        self.wire.len() as u64 + bodies.sum::<u64>()
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wire.is_empty() && self.segments.is_empty()
    }

    /// Enters the wire bytes written since the last segment.
    pub(crate) fn note_wire(&mut self) {
        let noted = self
            .segments
            .iter()
            .rev()
            .find_map(|segment| match segment {
                Segment::Wire(range) => Some(range.end),
                Segment::Body(_) => None,
            });
        let start = noted.unwrap_or(0);
        let end = self.wire.len() as u32;
        if start == end {
            return;
        }
        match self.segments.last_mut() {
            Some(Segment::Wire(range)) => range.end = end,
            _ => self.segments.push(Segment::Wire(start..end)),
        }
    }

    /// Enters content after the wire bytes written so far.
    pub(crate) fn push_body(&mut self, body: Body) {
        self.note_wire();
        self.segments.push(Segment::Body(body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_the_wire_in_order() {
        let mut output = Output::default();
        let body = |start: u64, end: u64| Body {
            stream: StreamId(1),
            range: start..end,
            is_last: false,
        };
        output.note_wire();
        assert!(output.is_empty());
        output.wire.extend_from_slice(b"abc");
        output.note_wire();
        output.wire.extend_from_slice(b"d");
        output.push_body(body(0, 10));
        output.push_body(body(10, 11));
        output.wire.extend_from_slice(b"ef");
        output.note_wire();
        assert_eq!(
            output.segments,
            [
                Segment::Wire(0..4),
                Segment::Body(body(0, 10)),
                Segment::Body(body(10, 11)),
                Segment::Wire(4..6)
            ]
        );
        assert_eq!(output.len(), 17);
        output.clear();
        assert!(output.is_empty());
    }
}
