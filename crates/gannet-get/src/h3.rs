//! The client side of one HTTP/3 request (RFC 9114), with the server's frame and QPACK code.

use std::io;

use gannet_http::h3::frame::{FRAME_HEADER_MAX, FrameType, read_varint, write_varint};
use gannet_http::h3::qpack::decode_each;
use gannet_http::h3::qpack::encoder::write_field;
use quinn_proto::{Dir, StreamId};

use super::binary::{take_section, write_request};
use super::error::wrong;
use super::limits::{FRAMES_IDLE_MAX, HEAD_MAX};
use super::quic::{Quic, Read};
use super::response::Head;
use super::transport::Tls;
use super::url::Url;

/// The type of our control stream, and an empty SETTINGS frame (RFC 9114 section 6.2.1).
const CONTROL: [u8; 3] = [0, 4, 0];

/// A response whose content is still to be read.
pub(super) struct Exchange {
    quic: Quic,
    stream: StreamId,
    frames: Frames,
    /// Content received together with the head.
    early: Vec<u8>,
}

/// The state of parsing the response stream.
#[derive(Default)]
struct Frames {
    /// The received part of an incomplete frame header.
    partial: Vec<u8>,
    /// The type of the current frame; `None` between frames.
    kind: Option<FrameType>,
    /// Bytes left of its payload.
    left: u64,
    /// The received part of the current field section.
    section: Vec<u8>,
    head: Option<Head>,
    count: usize,
}

/// Connects, requests `url` with additional `fields`, and reads the head of the final response.
///
/// # Errors
/// If the connection fails or the response is invalid.
pub(super) fn get(tls: &Tls, url: &Url, fields: &[(&str, String)]) -> io::Result<(Head, Exchange)> {
    let mut quic = Quic::connect(url, tls)?;
    quic.open(Dir::Uni, &CONTROL, false)?;
    // The prefix of a section without a dynamic table.
    let mut section = vec![0, 0];
    write_request(url, fields, write_field, &mut section);
    let mut request = Vec::new();
    write_varint(FrameType::HEADERS.0, &mut request);
    write_varint(section.len() as u64, &mut request);
    request.extend_from_slice(&section);
    let stream = quic.open(Dir::Bi, &request, true)?;
    let mut frames = Frames::default();
    let mut early = Vec::new();
    while frames.head.is_none() {
        let read = quic.read(stream, &mut |bytes| {
            let mut keep = |content: &[u8]| {
                early.extend_from_slice(content);
                Ok(())
            };
            frames.receive(bytes, &mut keep).map(|_| ())
        })?;
        if matches!(read, Read::End) {
            return Err(wrong("no response"));
        }
    }
    let head = frames.head.clone().unwrap_or_default();
    let exchange = Exchange {
        quic,
        stream,
        frames,
        early,
    };
    Ok((head, exchange))
}

impl Exchange {
    /// Passes the next content to `take`. Returns the number of bytes, or `None` at the end.
    ///
    /// # Errors
    /// Those of the connection and of `take`, and if the stream ends within a frame.
    pub(super) fn next(
        &mut self,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Option<u64>> {
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            return take(&early).map(|()| Some(early.len() as u64));
        }
        let frames = &mut self.frames;
        let mut count = 0;
        let read = self.quic.read(self.stream, &mut |bytes| {
            count += frames.receive(bytes, take)?;
            Ok(())
        })?;
        match read {
            Read::Bytes => Ok(Some(count)),
            Read::End if self.frames.is_between() => Ok(None),
            Read::End => Err(wrong("closed before the end of the stream")),
        }
    }
}

impl Frames {
    /// Whether the position is between two frames.
    fn is_between(&self) -> bool {
        self.kind.is_none() && self.partial.is_empty()
    }

    /// Parses `bytes`; passes content to `take` and returns its length.
    fn receive(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut count = 0;
        while !bytes.is_empty() {
            let Some(kind) = self.kind else {
                bytes = self.receive_header(bytes)?;
                continue;
            };
            let len = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (payload, rest) = bytes.split_at(len);
            bytes = rest;
            self.left -= len as u64;
            match kind {
                FrameType::DATA => {
                    take(payload)?;
                    count += len as u64;
                }
                FrameType::HEADERS => self.section.extend_from_slice(payload),
                _ => {}
            }
            if self.left == 0 {
                self.end_frame(kind)?;
            }
        }
        Ok(count)
    }

    /// Parses a frame header, and returns the rest of `bytes`.
    fn receive_header<'b>(&mut self, bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        let before = self.partial.len();
        let more = bytes.len().min(FRAME_HEADER_MAX - before);
        self.partial.extend_from_slice(&bytes[..more]);
        let mut input = &self.partial[..];
        let (Some(kind), Some(len)) = (read_varint(&mut input), read_varint(&mut input)) else {
            return Ok(&bytes[more..]);
        };
        let used = self.partial.len() - input.len() - before;
        self.partial.clear();
        self.count += 1;
        if self.count > FRAMES_IDLE_MAX {
            return Err(wrong("too many frames without content"));
        }
        let kind = FrameType(kind);
        match kind {
            FrameType::DATA if self.head.is_none() => {
                return Err(wrong("content without a response"));
            }
            FrameType::DATA if len > 0 => self.count = 1,
            FrameType::DATA => {}
            FrameType::SETTINGS | FrameType::GOAWAY | FrameType::PUSH_PROMISE => {
                return Err(wrong("a frame that no response has"));
            }
            FrameType::HEADERS if len > HEAD_MAX as u64 => {
                return Err(wrong("a field section is too long"));
            }
            _ if len > HEAD_MAX as u64 => {
                return Err(wrong("a frame of unknown type is too long"));
            }
            _ => {}
        }
        (self.kind, self.left) = (Some(kind), len);
        if len == 0 {
            self.end_frame(kind)?;
        }
        Ok(&bytes[used..])
    }

    fn end_frame(&mut self, kind: FrameType) -> io::Result<()> {
        self.kind = None;
        if kind != FrameType::HEADERS {
            return Ok(());
        }
        let section = std::mem::take(&mut self.section);
        take_section(&mut self.head, |take| decode_each(&section, take))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response may be split anywhere.
    #[test]
    fn responses_are_read_in_any_pieces() {
        let mut section = vec![0, 0];
        write_field(":status", b"200", &mut section);
        write_field("content-length", b"5", &mut section);
        let mut bytes = Vec::new();
        for (kind, payload) in [
            (0x21, &b"grease"[..]),
            (0x1, &section),
            (0x0, b"ab"),
            (0x40_0000, b""),
            (0x0, b""),
            (0x0, b"cde"),
            (0x1, b"\0\0"),
        ] {
            write_varint(kind, &mut bytes);
            write_varint(payload.len() as u64, &mut bytes);
            bytes.extend_from_slice(payload);
        }
        for step in 1..=bytes.len() {
            let (mut frames, mut content) = (Frames::default(), Vec::new());
            let mut count = 0;
            for piece in bytes.chunks(step) {
                let taken = frames.receive(piece, &mut |part| {
                    content.extend_from_slice(part);
                    Ok(())
                });
                count += taken.expect("a response");
            }
            assert_eq!((count, &content[..]), (5, &b"abcde"[..]), "{step}");
            let head = frames.head.as_ref().expect("a head");
            assert_eq!((head.status, head.content_length), (200, Some(5)));
            assert!(frames.is_between());
        }
    }

    /// Invalid responses are refused.
    #[test]
    fn nonsense_is_refused() {
        let refused = |bytes: &[u8]| Frames::default().receive(bytes, &mut |_| Ok(())).is_err();
        assert!(refused(&[0, 1, b'x']), "content first");
        assert!(refused(&[4, 0]), "settings");
        assert!(refused(&[1, 2, 0, 0]), "no status");
        assert!(refused(&[1, 3, 2, 0, 0]), "a dynamic table");
        assert!(refused(&[1, 0xc0, 0, 0, 1, 0, 0, 0, 0]), "too long");
        assert!(
            refused(&[0x21, 0xc0, 0, 0, 1, 0, 0, 0, 0]),
            "unknown, and too long"
        );
        let mut section = vec![0, 0];
        write_field(":status", b"200", &mut section);
        let head = [&[1, section.len() as u8][..], &section].concat();
        for (kind, what) in [(0x0, "empty content"), (0x1, "trailers"), (0x21, "unknown")] {
            let rest = match kind {
                0x1 => [1, 2, 0, 0].repeat(FRAMES_IDLE_MAX),
                _ => [kind, 0].repeat(FRAMES_IDLE_MAX),
            };
            assert!(refused(&[&head[..], &rest].concat()), "{what} without end");
            let rest = &rest[..rest.len() / 2];
            assert!(
                !refused(&[&head[..], rest, &[0, 1, b'x'], rest].concat()),
                "{what}"
            );
        }
        let mut frames = Frames::default();
        frames
            .receive(&[0x21, 2, 0], &mut |_| Ok(()))
            .expect("unknown");
        assert!(!frames.is_between());
    }
}
