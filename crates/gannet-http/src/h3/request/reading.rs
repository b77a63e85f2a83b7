//! Input of a request stream: parses frames and applies them to the request.

use super::{At, Phase, RequestStream};
use crate::binary::CodingError;
use crate::binary::budget::Cost;
use crate::binary::limits::FIELD_BLOCK_MAX;
use crate::binary::priority::Priority;
use crate::binary::rejection::{Rejection, RejectionWhy};
use crate::binary::request::{Accepted, SectionState, is_trailer};
use crate::h3::connection::Connection;
use crate::h3::error::Why;
use crate::h3::frame::{FrameHeader, FrameType};
use crate::h3::limits::SMALL_DATA;
use crate::h3::qpack;
use crate::h3::uni::charge_ignored;
use crate::semantics::request::Method;

/// The result of reading input up to the next event.
pub(super) enum ReadingStep {
    Nothing,
    Request(SectionState, Accepted),
    Reject(Rejection),
}

/// An error in the input.
pub(super) enum Wrong {
    Connection(Why),
    Stream(Why),
}

impl<T: Into<Why>> From<T> for Wrong {
    /// A connection error, unless it is marked as a stream error.
    fn from(why: T) -> Self {
        Self::Connection(why.into())
    }
}

impl RequestStream {
    /// Reads input up to the next event.
    pub(super) fn read(
        &mut self,
        connection: &mut Connection,
        rest: &mut &[u8],
        is_fin: bool,
        scratch: &mut Vec<u8>,
    ) -> Result<ReadingStep, Wrong> {
        if self.phase == Phase::Ended {
            *rest = &[];
            return Ok(ReadingStep::Nothing);
        }
        loop {
            match self.at {
                At::Header => {
                    let Some(header) = self.partial.read_header(rest) else {
                        break;
                    };
                    if let Some(rejection) = self.begin(header, connection)? {
                        return Ok(ReadingStep::Reject(rejection));
                    }
                }
                At::Section(len) => {
                    let missing = len - self.section.len();
                    let Some((bytes, after)) = rest.split_at_checked(missing) else {
                        self.keep(len, std::mem::take(rest));
                        break;
                    };
                    *rest = after;
                    self.at = At::Header;
                    let step = if self.section.is_empty() {
                        self.read_section(bytes, connection, scratch)?
                    } else {
                        let mut section = std::mem::take(&mut self.section);
                        section.extend_from_slice(bytes);
                        self.read_section(&section, connection, scratch)?
                    };
                    if !matches!(step, ReadingStep::Nothing) {
                        return Ok(step);
                    }
                }
                At::Data(left) => {
                    let len = left.min(rest.len() as u64);
                    *rest = &rest[len as usize..];
                    self.content_received += len;
                    if len < left {
                        self.at = At::Data(left - len);
                        break;
                    }
                    self.at = At::Header;
                }
                At::Ignored(left) => {
                    let len = left.min(rest.len() as u64);
                    *rest = &rest[len as usize..];
                    if len < left {
                        self.at = At::Ignored(left - len);
                        break;
                    }
                    self.at = At::Header;
                }
            }
        }
        if is_fin {
            self.finish()
        } else {
            Ok(ReadingStep::Nothing)
        }
    }

    /// Handles a frame header: checks that the frame is permitted here, and sets what to do with
    /// its payload.
    #[inline]
    fn begin(
        &mut self,
        header: FrameHeader,
        connection: &mut Connection,
    ) -> Result<Option<Rejection>, Wrong> {
        match (header.kind, self.phase) {
            (FrameType::HEADERS, Phase::Head | Phase::Content) => {
                return self.begin_section(header.len, connection);
            }
            (FrameType::DATA, Phase::Content) => self.begin_data(header.len, connection)?,
            (
                FrameType::DATA
                | FrameType::HEADERS
                | FrameType::SETTINGS
                | FrameType::GOAWAY
                | FrameType::MAX_PUSH_ID
                | FrameType::CANCEL_PUSH
                | FrameType::PUSH_PROMISE
                | FrameType::PRIORITY_UPDATE_REQUEST
                | FrameType::PRIORITY_UPDATE_PUSH,
                _,
            ) => return Err(Why::FrameUnexpected.into()),
            (kind, _) if kind.is_reserved() => return Err(Why::FrameReserved.into()),
            _ => {
                charge_ignored(header.len, &mut connection.budget)?;
                self.at = At::Ignored(header.len);
            }
        }
        Ok(None)
    }

    #[inline]
    fn begin_section(
        &mut self,
        len: u64,
        connection: &mut Connection,
    ) -> Result<Option<Rejection>, Wrong> {
        if len <= FIELD_BLOCK_MAX as u64 {
            self.at = At::Section(len as usize);
            return Ok(None);
        }
        if self.phase == Phase::Content {
            return Err(Wrong::Stream(Why::TrailersTooLong));
        }
        // Skipped unread, so the method stays unknown.
        self.at = At::Ignored(len);
        self.reject_unread(connection).map(Some)
    }

    /// Refuses a request whose field section is too large.
    #[cold]
    fn reject_unread(&mut self, connection: &mut Connection) -> Result<Rejection, Wrong> {
        connection.budget.charge(Cost::WastedBlock)?;
        self.phase = Phase::Content;
        self.is_without_content = true;
        Ok(Rejection::of(RejectionWhy::FieldSectionTooLarge))
    }

    fn begin_data(&mut self, len: u64, connection: &mut Connection) -> Result<(), Wrong> {
        if len < SMALL_DATA {
            let is_empty = len == 0;
            connection.budget.charge(if is_empty {
                Cost::EmptyData
            } else {
                Cost::SmallData
            })?;
        }
        if let Some(left) = &mut self.content_left {
            let after = left.checked_sub(len);
            *left = after.ok_or(Wrong::Stream(Why::Malformed))?;
        }
        self.at = At::Data(len);
        Ok(())
    }

    /// Buffers a part of a field section.
    fn keep(&mut self, len: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.section.capacity() < self.section.len() + bytes.len() {
            // Doubles the buffer, up to the whole section: an announced length alone reserves
            // nothing.
            let most = len - self.section.len();
            let more = bytes.len().max(self.section.len()).max(KEPT_MIN).min(most);
            self.section.reserve_exact(more);
        }
        self.section.extend_from_slice(bytes);
    }

    /// Handles a complete field section.
    #[inline]
    fn read_section(
        &mut self,
        section: &[u8],
        connection: &mut Connection,
        scratch: &mut Vec<u8>,
    ) -> Result<ReadingStep, Wrong> {
        scratch.clear();
        if self.phase == Phase::Content {
            return self.read_trailers(section, scratch);
        }
        let mut head = SectionState::default();
        match qpack::decode(section, scratch, |line, _| head.add(line)) {
            Ok(()) => {}
            Err(CodingError::TooLarge) => {
                return self.reject_unread(connection).map(ReadingStep::Reject);
            }
            Err(error) => return Err(error.into()),
        }
        let accepted = head.finish(scratch, false);
        let accepted = accepted.map_err(|malformed| Wrong::Stream(malformed.into()))?;
        self.phase = Phase::Content;
        self.is_without_content = accepted.method == Method::Head;
        if let Some(rejection) = accepted.rejection {
            connection.budget.charge(Cost::WastedBlock)?;
            return Ok(ReadingStep::Reject(rejection));
        }
        self.content_left = accepted.content_length;
        // RFC 9218 7: a PRIORITY_UPDATE frame takes precedence over the field.
        if !self.is_priority_set
            && let Some(value) = head.priority(scratch)
        {
            self.priority = Priority::parse(value);
        }
        Ok(ReadingStep::Request(head, accepted))
    }

    /// Checks a trailer section, whose fields are dropped (RFC 9114 section 4.1).
    fn read_trailers(
        &mut self,
        section: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<ReadingStep, Wrong> {
        let mut are_trailers = true;
        let decoded = qpack::decode(section, scratch, |line, _| {
            are_trailers &= is_trailer(line);
            false
        });
        match decoded {
            Ok(()) if are_trailers => {
                self.phase = Phase::Trailed;
                Ok(ReadingStep::Nothing)
            }
            Ok(()) => Err(Wrong::Stream(Why::Malformed)),
            Err(CodingError::TooLarge) => Err(Wrong::Stream(Why::TrailersTooLong)),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks at the end of the stream that the request is complete.
    fn finish(&mut self) -> Result<ReadingStep, Wrong> {
        if self.at != At::Header || !self.partial.is_empty() {
            return Err(Why::FrameCut.into());
        }
        if self.phase == Phase::Head {
            return Err(Wrong::Stream(Why::Incomplete));
        }
        if self.content_left.is_some_and(|left| left > 0) {
            return Err(Wrong::Stream(Why::Malformed));
        }
        Ok(ReadingStep::Nothing)
    }
}

/// Minimum growth of the buffer for a field section, in bytes.
const KEPT_MIN: usize = 256;
