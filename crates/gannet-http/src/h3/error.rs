//! Errors of a peer, and the codes sent for them (RFC 9114 section 8, RFC 9204 section 6).

use crate::binary::CodingError;
use crate::binary::budget::Spent;
use crate::binary::request::MalformedSection;

/// An application error code of QUIC, as HTTP/3 uses it: of CONNECTION_CLOSE, RESET_STREAM and
/// STOP_SENDING frames.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ErrorCode(pub u64);

impl ErrorCode {
    /// No error: a graceful end, or a request whose rest is not needed.
    pub const NO_ERROR: Self = Self(0x100);
    /// An internal error of this server.
    pub const INTERNAL_ERROR: Self = Self(0x102);
    /// A stream of a type that is not accepted, or accepted only once.
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    /// A stream that the connection needs was closed.
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    /// A frame that is not permitted on this stream or at this time.
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    /// A frame whose length does not match its content, or that was truncated.
    pub const FRAME_ERROR: Self = Self(0x106);
    /// The peer causes excessive load.
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    /// An invalid identifier, or one that may no longer be used.
    pub const ID_ERROR: Self = Self(0x108);
    /// Invalid settings.
    pub const SETTINGS_ERROR: Self = Self(0x109);
    /// The control stream does not start with SETTINGS.
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    /// The request was refused without any processing.
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    /// The request or its response is no longer needed.
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    /// The stream ended before its request did.
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    /// A message is malformed.
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    /// The connection of a CONNECT tunnel failed.
    pub const CONNECT_ERROR: Self = Self(0x10f);
    /// A field section cannot be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    /// An invalid instruction on the encoder stream.
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    /// An invalid instruction on the decoder stream.
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);

    /// The registered name, as logs and metrics have it; `UNKNOWN` for any other code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x100 => "H3_NO_ERROR",
            0x101 => "H3_GENERAL_PROTOCOL_ERROR",
            0x102 => "H3_INTERNAL_ERROR",
            0x103 => "H3_STREAM_CREATION_ERROR",
            0x104 => "H3_CLOSED_CRITICAL_STREAM",
            0x105 => "H3_FRAME_UNEXPECTED",
            0x106 => "H3_FRAME_ERROR",
            0x107 => "H3_EXCESSIVE_LOAD",
            0x108 => "H3_ID_ERROR",
            0x109 => "H3_SETTINGS_ERROR",
            0x10a => "H3_MISSING_SETTINGS",
            0x10b => "H3_REQUEST_REJECTED",
            0x10c => "H3_REQUEST_CANCELLED",
            0x10d => "H3_REQUEST_INCOMPLETE",
            0x10e => "H3_MESSAGE_ERROR",
            0x10f => "H3_CONNECT_ERROR",
            0x110 => "H3_VERSION_FALLBACK",
            0x200 => "QPACK_DECOMPRESSION_FAILED",
            0x201 => "QPACK_ENCODER_STREAM_ERROR",
            0x202 => "QPACK_DECODER_STREAM_ERROR",
            _ => "UNKNOWN",
        }
    }
}

/// An error that ends the connection: close it with `code`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionError {
    /// The code for the CONNECTION_CLOSE frame.
    pub code: ErrorCode,
    /// What was found.
    pub why: Why,
}

impl ConnectionError {
    /// The connection error for a cause.
    #[must_use]
    pub const fn of(why: Why) -> Self {
        let code = why.code();
        Self { code, why }
    }
}

/// An error that ends one request: reset its stream and stop reading it, both with `code`. The
/// connection continues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StreamError {
    /// The code for the RESET_STREAM and STOP_SENDING frames.
    pub code: ErrorCode,
    /// What was found.
    pub why: Why,
}

impl StreamError {
    /// The stream error for a cause.
    pub(crate) const fn of(why: Why) -> Self {
        let code = why.code();
        Self { code, why }
    }
}

/// An error on a request stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Ends the connection.
    Connection(ConnectionError),
    /// Ends the stream.
    Stream(StreamError),
}

impl From<ConnectionError> for Fault {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

/// A cause of an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Why {
    /// A push stream, which clients must not open.
    PushStream,
    /// A second control stream, encoder stream or decoder stream.
    SecondCriticalStream,
    /// A critical stream was closed or reset, or the peer has stopped ours.
    CriticalStreamClosed,
    /// The first frame of the control stream is not SETTINGS.
    SettingsExpected,
    /// A frame of a type that is not permitted on its stream, or not at this point.
    FrameUnexpected,
    /// A frame type of HTTP/2 that is reserved in HTTP/3.
    FrameReserved,
    /// A frame is longer or shorter than its content.
    FrameLength,
    /// The stream ended within a frame.
    FrameCut,
    /// A setting of HTTP/2 that is reserved in HTTP/3.
    SettingReserved,
    /// A repeated setting.
    SettingRepeated,
    /// A setting outside its range.
    SettingValue,
    /// MAX_PUSH_ID is lower than before.
    PushIdLowered,
    /// A push that was never promised.
    PushUnknown,
    /// GOAWAY names a higher identifier than before.
    GoawayRaised,
    /// A priority for a stream that is not a request stream, or that the peer may not open yet.
    PriorityTarget,
    /// A field section cannot be decoded.
    FieldSection,
    /// The encoder stream uses a dynamic table.
    EncoderInstruction,
    /// The decoder stream acknowledges a section or an insertion that was never sent, or has an
    /// invalid instruction.
    DecoderInstruction,
    /// The request is malformed (RFC 9114 section 4.1.2).
    Malformed,
    /// The stream ended without a header section.
    Incomplete,
    /// A trailer section exceeds the limit.
    TrailersTooLong,
    /// A control stream frame exceeds the limit, or has too many settings.
    ControlFrameTooLong,
    /// Too many unidirectional streams, at once or over the connection's life.
    TooManyStreams,
    /// The incomplete field sections of all requests exceed the limit.
    TooManySections,
    /// Too many pieces of streams wait for others before them. Found by the transport.
    TooManyPieces,
    /// The cost budget is exhausted: see [`crate::binary::budget`].
    BudgetSpent,
    /// The request arrived after the final GOAWAY.
    Refused,
}

impl Why {
    /// The error code for each cause; chosen nowhere else.
    const fn code(self) -> ErrorCode {
        match self {
            Self::PushStream | Self::SecondCriticalStream => ErrorCode::STREAM_CREATION_ERROR,
            Self::CriticalStreamClosed => ErrorCode::CLOSED_CRITICAL_STREAM,
            Self::SettingsExpected => ErrorCode::MISSING_SETTINGS,
            Self::FrameUnexpected | Self::FrameReserved => ErrorCode::FRAME_UNEXPECTED,
            Self::FrameLength | Self::FrameCut => ErrorCode::FRAME_ERROR,
            Self::SettingReserved | Self::SettingRepeated | Self::SettingValue => {
                ErrorCode::SETTINGS_ERROR
            }
            Self::PushIdLowered | Self::PushUnknown | Self::GoawayRaised | Self::PriorityTarget => {
                ErrorCode::ID_ERROR
            }
            Self::FieldSection => ErrorCode::QPACK_DECOMPRESSION_FAILED,
            Self::EncoderInstruction => ErrorCode::QPACK_ENCODER_STREAM_ERROR,
            Self::DecoderInstruction => ErrorCode::QPACK_DECODER_STREAM_ERROR,
            Self::Malformed => ErrorCode::MESSAGE_ERROR,
            Self::Incomplete => ErrorCode::REQUEST_INCOMPLETE,
            Self::TrailersTooLong
            | Self::ControlFrameTooLong
            | Self::TooManyStreams
            | Self::TooManySections
            | Self::TooManyPieces
            | Self::BudgetSpent => ErrorCode::EXCESSIVE_LOAD,
            Self::Refused => ErrorCode::REQUEST_REJECTED,
        }
    }

    /// A short name for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PushStream => "push_stream",
            Self::SecondCriticalStream => "second_critical_stream",
            Self::CriticalStreamClosed => "critical_stream_closed",
            Self::SettingsExpected => "settings_expected",
            Self::FrameUnexpected => "frame_unexpected",
            Self::FrameReserved => "frame_reserved",
            Self::FrameLength => "frame_length",
            Self::FrameCut => "frame_cut",
            Self::SettingReserved => "setting_reserved",
            Self::SettingRepeated => "setting_repeated",
            Self::SettingValue => "setting_value",
            Self::PushIdLowered => "push_id_lowered",
            Self::PushUnknown => "push_unknown",
            Self::GoawayRaised => "goaway_raised",
            Self::PriorityTarget => "priority_target",
            Self::FieldSection => "field_section",
            Self::EncoderInstruction => "encoder_instruction",
            Self::DecoderInstruction => "decoder_instruction",
            Self::Malformed => "malformed",
            Self::Incomplete => "incomplete",
            Self::TrailersTooLong => "trailers_too_long",
            Self::ControlFrameTooLong => "control_frame_too_long",
            Self::TooManyStreams => "too_many_streams",
            Self::TooManySections => "too_many_sections",
            Self::TooManyPieces => "too_many_pieces",
            Self::BudgetSpent => "budget_spent",
            Self::Refused => "refused",
        }
    }
}

impl From<Spent> for Why {
    fn from(Spent: Spent) -> Self {
        Self::BudgetSpent
    }
}

impl From<MalformedSection> for Why {
    fn from(MalformedSection: MalformedSection) -> Self {
        Self::Malformed
    }
}

impl From<CodingError> for Why {
    /// For a trailer section; an oversized header section is answered with 431 instead.
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::TooLarge => Self::TrailersTooLong,
            _ => Self::FieldSection,
        }
    }
}
