//! Sends one HTTP/2 request (RFC 9113) as a client, with the server's frames and HPACK.
//!
//! One stream per connection: parallel downloads use separate connections, as in HTTP/1.1.

use std::io;

use gannet_http::h2::frame::{FRAME_HEADER_LEN, FrameHeader, FrameType, flags};
use gannet_http::h2::hpack::Decoder;
use gannet_http::h2::hpack::encoder::write_field;
use gannet_http::h2::{ErrorCode, PREFACE};

use super::binary::{protocol_error, take_section, write_request};
use super::error::wrong;
use super::limits::{FRAMES_IDLE_MAX, HEAD_MAX};
use super::response::Head;
use super::transport::Transport;
use super::url::Url;

/// The only stream.
const STREAM: u32 = 1;
/// The largest window (RFC 9113 section 6.9.1).
const WINDOW_MAX: u32 = 0x7fff_ffff;
/// The window of a connection before its first update.
const WINDOW_INITIAL: u32 = 65_535;
/// Consumed content after which both windows are replenished.
const REFILL: u32 = 1 << 29;
/// The largest frame accepted: large frames mean fewer headers between content.
const FRAME_MAX: u32 = 1 << 20;

/// A response whose content has not been read yet.
pub(super) struct Exchange {
    transport: Transport,
    frames: Frames,
}

/// The state of the connection.
struct Frames {
    /// The beginning of an incomplete frame, including its header.
    partial: Vec<u8>,
    /// Content bytes left in the current DATA frame.
    content: u32,
    /// Padding after the content.
    padding: u32,
    decoder: Decoder,
    /// The field block while it is incomplete, and whether it ends the stream.
    block: Vec<u8>,
    head: Option<Head>,
    is_done: bool,
    /// Content received since the windows were replenished.
    consumed: u32,
    /// Frames to be sent.
    outgoing: Vec<u8>,
    count: usize,
}

/// Requests `url` with additional `fields`, and reads the head of the final response.
///
/// # Errors
/// The connection fails, or the response is malformed.
pub(super) fn get(
    mut transport: Transport,
    url: &Url,
    fields: &[(&str, String)],
) -> io::Result<(Head, Exchange)> {
    let mut block = Vec::new();
    write_request(url, fields, write_field, &mut block);
    let mut request = PREFACE.to_vec();
    let settings: [(u16, u32); 3] = [(0x2, 0), (0x4, WINDOW_MAX), (0x5, FRAME_MAX)];
    frame(FrameType::SETTINGS, 0, 0, 6 * settings.len(), &mut request);
    for (id, value) in settings {
        request.extend_from_slice(&id.to_be_bytes());
        request.extend_from_slice(&value.to_be_bytes());
    }
    window_update(0, WINDOW_MAX - WINDOW_INITIAL, &mut request);
    let flags = flags::END_STREAM | flags::END_HEADERS;
    frame(FrameType::HEADERS, flags, STREAM, block.len(), &mut request);
    request.extend_from_slice(&block);
    transport.send(&request)?;
    let mut frames = Frames {
        partial: Vec::new(),
        content: 0,
        padding: 0,
        decoder: Decoder::new(),
        block: Vec::new(),
        head: None,
        is_done: false,
        consumed: 0,
        outgoing: Vec::new(),
        count: 0,
    };
    // Content may arrive in the same read as the head: it is kept.
    let mut early = Vec::new();
    while frames.head.is_none() {
        let more = transport.receive(&mut |bytes| {
            frames.receive(bytes, &mut |content| {
                early.extend_from_slice(content);
                Ok(())
            })?;
            Ok(())
        })?;
        frames.flush(&mut transport)?;
        if !more {
            return Err(wrong("no response"));
        }
    }
    let head = frames.head.clone().unwrap_or_default();
    let exchange = Exchange { transport, frames };
    Ok((head, exchange.with_early(early)))
}

impl Exchange {
    fn with_early(mut self, early: Vec<u8>) -> Self {
        self.frames.block = early;
        self
    }

    /// Passes the next content to `take`. Returns the number of bytes, or `None` at the end.
    ///
    /// # Errors
    /// The connection fails, `take` fails, or the content is truncated.
    pub(super) fn next(
        &mut self,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Option<u64>> {
        // No field block follows the head; its buffer holds the early content.
        if !self.frames.block.is_empty() {
            let early = std::mem::take(&mut self.frames.block);
            return take(&early).map(|()| Some(early.len() as u64));
        }
        if self.frames.is_whole() {
            return Ok(None);
        }
        let frames = &mut self.frames;
        let mut count = 0;
        let more = self.transport.receive(&mut |bytes| {
            count += frames.receive(bytes, take)?;
            Ok(())
        })?;
        self.frames.flush(&mut self.transport)?;
        if !more && !self.frames.is_whole() {
            return Err(wrong("closed before the end of the stream"));
        }
        Ok(Some(count))
    }
}

impl Frames {
    /// Whether the stream has ended and all of its content was passed on.
    fn is_whole(&self) -> bool {
        self.is_done && self.content == 0 && self.padding == 0
    }

    fn flush(&mut self, transport: &mut Transport) -> io::Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let outgoing = std::mem::take(&mut self.outgoing);
        transport.send(&outgoing)
    }

    /// Parses frames in `bytes`; passes content to `take` and returns its length.
    fn receive(
        &mut self,
        mut bytes: &[u8],
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut count = 0;
        while !bytes.is_empty() {
            if self.content > 0 {
                let len = bytes.len().min(self.content as usize);
                take(&bytes[..len])?;
                (self.content, count) = (self.content - len as u32, count + len as u64);
                bytes = &bytes[len..];
            } else if self.padding > 0 {
                let len = bytes.len().min(self.padding as usize);
                self.padding -= len as u32;
                bytes = &bytes[len..];
            } else {
                bytes = self.receive_frame(bytes)?;
            }
        }
        Ok(count)
    }

    /// Consumes bytes of a frame header, or of a frame other than DATA.
    fn receive_frame<'b>(&mut self, bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        let rest = self.collect(bytes, FRAME_HEADER_LEN);
        if self.count == 0 && self.partial.starts_with(b"HTTP/1.") {
            return Err(wrong(
                "the server answers in HTTP/1: it does not speak HTTP/2 here",
            ));
        }
        let Some(header) = self.partial.first_chunk().map(FrameHeader::parse) else {
            return Ok(rest);
        };
        if header.len > FRAME_MAX {
            return Err(wrong("a frame is too long"));
        }
        let is_data = header.kind == FrameType::DATA;
        let padded = header.has(flags::PADDED) && is_data;
        // Of DATA only the padding length is collected; of other frames the whole payload.
        let wanted = match is_data {
            true => usize::from(padded),
            false => header.len as usize,
        };
        if !is_data && wanted > HEAD_MAX {
            return Err(wrong("a field block is too long"));
        }
        let rest = self.collect(rest, FRAME_HEADER_LEN + wanted);
        if self.partial.len() < FRAME_HEADER_LEN + wanted {
            return Ok(rest);
        }
        let frame = std::mem::take(&mut self.partial);
        self.count += 1;
        if self.count > FRAMES_IDLE_MAX {
            return Err(wrong("too many frames without content"));
        }
        self.handle(header, &frame[FRAME_HEADER_LEN..])?;
        self.partial = frame;
        self.partial.clear();
        Ok(rest)
    }

    /// Moves bytes until `len` bytes of the frame are collected.
    fn collect<'b>(&mut self, bytes: &'b [u8], len: usize) -> &'b [u8] {
        let missing = len.saturating_sub(self.partial.len()).min(bytes.len());
        self.partial.extend_from_slice(&bytes[..missing]);
        &bytes[missing..]
    }

    fn handle(&mut self, header: FrameHeader, payload: &[u8]) -> io::Result<()> {
        let ends = header.has(flags::END_STREAM);
        match header.kind {
            FrameType::DATA => {
                if header.stream != STREAM || self.head.is_none() {
                    return Err(wrong("content without a response"));
                }
                let padding = payload.first().map_or(0, |&len| u32::from(len));
                let taken = payload.len() as u32;
                let content = header.len.checked_sub(taken + padding);
                self.content =
                    content.ok_or_else(|| wrong("a frame has more padding than bytes"))?;
                self.padding = padding;
                if self.content > 0 {
                    self.count = 1;
                }
                self.is_done |= ends;
                self.consumed += header.len;
                if self.consumed >= REFILL {
                    window_update(0, self.consumed, &mut self.outgoing);
                    window_update(STREAM, self.consumed, &mut self.outgoing);
                    self.consumed = 0;
                }
            }
            FrameType::HEADERS => {
                let mut block = payload;
                if header.has(flags::PADDED) {
                    let (&padding, rest) =
                        block.split_first().ok_or_else(|| wrong("no padding"))?;
                    let len = rest.len().checked_sub(padding.into());
                    block = &rest[..len.ok_or_else(|| wrong("too much padding"))?];
                }
                if header.has(flags::PRIORITY) {
                    block = block
                        .get(5..)
                        .ok_or_else(|| wrong("a frame is too short"))?;
                }
                self.is_done |= ends;
                self.add_block(header, block)?;
            }
            FrameType::CONTINUATION => self.add_block(header, payload)?,
            FrameType::SETTINGS if !header.has(flags::ACK) => {
                frame(FrameType::SETTINGS, flags::ACK, 0, 0, &mut self.outgoing);
            }
            FrameType::PING if !header.has(flags::ACK) && payload.len() == 8 => {
                frame(FrameType::PING, flags::ACK, 0, 8, &mut self.outgoing);
                self.outgoing.extend_from_slice(payload);
            }
            // RFC 9113 section 8.1: after a complete response, the server may stop reading the
            // request.
            FrameType::RST_STREAM if self.is_done => {}
            FrameType::RST_STREAM => {
                let code = payload.first_chunk().map_or(0, |c| u32::from_be_bytes(*c));
                let name = ErrorCode(code).name();
                let what = "the server reset the stream";
                return Err(protocol_error(what, name, code.into(), b""));
            }
            FrameType::GOAWAY => {
                let last = payload.first_chunk().map_or(0, |c| u32::from_be_bytes(*c));
                if last < STREAM {
                    let code = payload.get(4..8).and_then(|c| c.first_chunk());
                    let code = code.map_or(0, |c| u32::from_be_bytes(*c));
                    let name = ErrorCode(code).name();
                    let what = "the server closed the connection";
                    return Err(protocol_error(what, name, code.into(), b""));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_block(&mut self, header: FrameHeader, block: &[u8]) -> io::Result<()> {
        self.block.extend_from_slice(block);
        if self.block.len() > HEAD_MAX {
            return Err(wrong("a field block is too long"));
        }
        if !header.has(flags::END_HEADERS) {
            return Ok(());
        }
        let block = std::mem::take(&mut self.block);
        let decoder = &mut self.decoder;
        take_section(&mut self.head, |take| decoder.decode_each(&block, take))
    }
}

fn frame(kind: FrameType, flags: u8, stream: u32, len: usize, out: &mut Vec<u8>) {
    let len = len as u32;
    let header = FrameHeader {
        len,
        kind,
        flags,
        stream,
    };
    header.write(out);
}

fn window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    frame(FrameType::WINDOW_UPDATE, 0, stream, 4, out);
    out.extend_from_slice(&increment.to_be_bytes());
}
