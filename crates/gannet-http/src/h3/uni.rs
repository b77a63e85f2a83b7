//! Input of the peer's unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2).

use super::StreamId;
use super::error::Why;
use super::frame::{FrameHeader, FrameType, Partial, read_varint};
use super::limits::CONTROL_FRAME_MAX;
use crate::binary::budget::{Budget, Cost};

/// A unidirectional stream of the peer.
#[derive(Clone, Debug)]
pub(super) struct UniStream {
    pub(super) id: StreamId,
    pub(super) kind: UniKind,
}

/// The purpose of a stream, which its first bytes determine.
#[derive(Clone, Debug)]
pub(super) enum UniKind {
    /// Its type is incomplete.
    Unknown(Partial),
    /// The control stream.
    Control(Box<ControlStream>),
    /// QPACK's encoder stream.
    Encoder,
    /// QPACK's decoder stream.
    Decoder(DecoderStream),
}

/// Types of streams (RFC 9114 section 11.2.4, RFC 9204 section 8.2).
pub(super) mod stream_types {
    pub(crate) const CONTROL: u64 = 0x0;
    pub(crate) const PUSH: u64 = 0x1;
    pub(crate) const ENCODER: u64 = 0x2;
    pub(crate) const DECODER: u64 = 0x3;
}

/// A known frame of the control stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum ControlFrame<'p> {
    Settings(&'p [u8]),
    Goaway(u64),
    MaxPushId(u64),
    CancelPush,
    /// The frame's type, the identifier of the stream or push, and the priority field value.
    PriorityUpdate(FrameType, u64, &'p [u8]),
}

/// The control stream. Buffers a frame of a known type until it is complete.
#[derive(Clone, Debug, Default)]
pub(super) struct ControlStream {
    partial: Partial,
    at: UniPosition,
    payload: Vec<u8>,
    has_settings: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum UniPosition {
    #[default]
    Header,
    Payload(FrameHeader),
    /// The payload of an unknown frame, with this many bytes left.
    Ignored(u64),
}

impl ControlStream {
    /// Reads input up to the end of a known frame and passes it to `take`; `None` if all input was
    /// read first.
    ///
    /// # Errors
    /// For frames that are not permitted there, and the errors of `take`.
    pub(super) fn receive<T>(
        &mut self,
        input: &mut &[u8],
        budget: &mut Budget,
        take: impl FnOnce(ControlFrame<'_>) -> Result<T, Why>,
    ) -> Result<Option<T>, Why> {
        loop {
            match self.at {
                UniPosition::Header => {
                    let Some(header) = self.partial.read_header(input) else {
                        return Ok(None);
                    };
                    self.at = self.begin(header, budget)?;
                }
                UniPosition::Ignored(left) => {
                    let len = left.min(input.len() as u64);
                    *input = &input[len as usize..];
                    if len < left {
                        self.at = UniPosition::Ignored(left - len);
                        return Ok(None);
                    }
                    self.at = UniPosition::Header;
                }
                UniPosition::Payload(header) => {
                    let left = header.len as usize - self.payload.len();
                    let (bytes, rest) = input.split_at(left.min(input.len()));
                    *input = rest;
                    self.payload.extend_from_slice(bytes);
                    if bytes.len() < left {
                        return Ok(None);
                    }
                    self.at = UniPosition::Header;
                    let result = parse(header.kind, &self.payload).and_then(take);
                    // Frames are short and rare, so no buffer is kept for them.
                    self.payload = Vec::new();
                    return result.map(Some);
                }
            }
        }
    }

    /// Handles a frame header: checks that the frame is permitted here, and returns what to do with
    /// its payload.
    fn begin(&mut self, header: FrameHeader, budget: &mut Budget) -> Result<UniPosition, Why> {
        if header.kind == FrameType::SETTINGS && !self.has_settings {
            self.has_settings = true;
        } else if !self.has_settings {
            return Err(Why::SettingsExpected);
        } else {
            match header.kind {
                FrameType::SETTINGS
                | FrameType::DATA
                | FrameType::HEADERS
                | FrameType::PUSH_PROMISE => return Err(Why::FrameUnexpected),
                kind if kind.is_reserved() => return Err(Why::FrameReserved),
                FrameType::GOAWAY | FrameType::MAX_PUSH_ID | FrameType::CANCEL_PUSH => {
                    budget.charge(Cost::Ignored)?;
                    if header.len > 8 {
                        return Err(Why::FrameLength);
                    }
                }
                FrameType::PRIORITY_UPDATE_REQUEST | FrameType::PRIORITY_UPDATE_PUSH => {
                    budget.charge(Cost::PriorityUpdate)?;
                }
                _ => {
                    charge_ignored(header.len, budget)?;
                    return Ok(UniPosition::Ignored(header.len));
                }
            }
        }
        if header.len > CONTROL_FRAME_MAX {
            return Err(Why::ControlFrameTooLong);
        }
        Ok(UniPosition::Payload(header))
    }

    /// Bytes on the heap.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.payload.capacity()
    }
}

/// Reads the payload of a known frame.
fn parse(kind: FrameType, payload: &[u8]) -> Result<ControlFrame<'_>, Why> {
    let mut rest = payload;
    if kind == FrameType::SETTINGS {
        return Ok(ControlFrame::Settings(payload));
    }
    let number = read_varint(&mut rest).ok_or(Why::FrameLength)?;
    match kind {
        FrameType::PRIORITY_UPDATE_REQUEST | FrameType::PRIORITY_UPDATE_PUSH => {
            Ok(ControlFrame::PriorityUpdate(kind, number, rest))
        }
        _ if !rest.is_empty() => Err(Why::FrameLength),
        FrameType::GOAWAY => Ok(ControlFrame::Goaway(number)),
        FrameType::MAX_PUSH_ID => Ok(ControlFrame::MaxPushId(number)),
        _ => Ok(ControlFrame::CancelPush),
    }
}

/// Charges for a frame of an unknown type by its announced length, so that the cost does not depend
/// on how its bytes are split.
pub(super) fn charge_ignored(len: u64, budget: &mut Budget) -> Result<(), Why> {
    let more = u32::try_from(len / super::limits::IGNORED_PER_CHARGE).unwrap_or(u32::MAX);
    budget.charge(Cost::Ignored)?;
    budget.charge(Cost::LongIgnored(more))?;
    Ok(())
}

/// Reads instructions of the encoder stream. Without a dynamic table, the only valid one sets its
/// capacity to 0, in one byte (RFC 9204 sections 3.2.3 and 4.3).
pub(super) fn receive_encoder(input: &mut &[u8], budget: &mut Budget) -> Result<(), Why> {
    for &byte in std::mem::take(input) {
        if byte != CAPACITY_ZERO {
            return Err(Why::EncoderInstruction);
        }
        budget.charge(Cost::Ignored)?;
    }
    Ok(())
}

/// Set Dynamic Table Capacity, to 0 (RFC 9204 section 4.3.1).
const CAPACITY_ZERO: u8 = 0x20;

/// The decoder stream. Without a dynamic table, the only valid instruction is Stream Cancellation,
/// which has no effect (RFC 9204 section 4.4).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecoderStream {
    /// Number of bytes of an incomplete stream identifier received after the first one.
    continued: Option<u8>,
}

impl DecoderStream {
    /// Reads instructions of the stream.
    pub(super) fn receive(&mut self, input: &mut &[u8], budget: &mut Budget) -> Result<(), Why> {
        for &byte in std::mem::take(input) {
            self.continued = match self.continued {
                // Section Acknowledgment, or Insert Count Increment.
                None if byte & 0xc0 != STREAM_CANCELLATION => return Err(Why::DecoderInstruction),
                None => {
                    budget.charge(Cost::Ignored)?;
                    (byte & 0x3f == 0x3f).then_some(0)
                }
                Some(_) if byte & 0x80 == 0 => None,
                Some(count) if count < CONTINUED_MAX => Some(count + 1),
                Some(_) => return Err(Why::DecoderInstruction),
            };
        }
        Ok(())
    }
}

/// Stream Cancellation, with a stream identifier in the low six bits (RFC 9204 section 4.4.2).
const STREAM_CANCELLATION: u8 = 0x40;

/// Maximum bytes of an identifier, after the first one, that announce another byte: nine hold 62
/// bits.
const CONTINUED_MAX: u8 = 8;

impl UniStream {
    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        match &self.kind {
            UniKind::Control(control) => control.memory(),
            UniKind::Unknown(_) | UniKind::Encoder | UniKind::Decoder(_) => 0,
        }
    }
}
