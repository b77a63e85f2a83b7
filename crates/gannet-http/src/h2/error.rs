//! Errors of the peer, and the codes sent for them (RFC 9113 sections 5.4 and 7).

use crate::binary::budget::Spent;
use crate::binary::request::MalformedSection;

/// An error code of RST_STREAM and GOAWAY frames (RFC 9113 section 7).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error: a graceful end.
    pub const NO_ERROR: Self = Self(0x0);
    /// A protocol violation that no other code describes.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An error on our side.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// More was sent than the window allowed, or a window became too large.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// Settings were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame arrived for a stream that is closed, or half-closed by the peer.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame has a length that its type does not allow.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was refused before any processing.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(0x8);
    /// A field block cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The tunnel of a CONNECT broke.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer's behaviour costs too much.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// HTTP/1.1 is required.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// The registered name, as logs write it; `UNKNOWN` for any other code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x0 => "NO_ERROR",
            0x1 => "PROTOCOL_ERROR",
            0x2 => "INTERNAL_ERROR",
            0x3 => "FLOW_CONTROL_ERROR",
            0x4 => "SETTINGS_TIMEOUT",
            0x5 => "STREAM_CLOSED",
            0x6 => "FRAME_SIZE_ERROR",
            0x7 => "REFUSED_STREAM",
            0x8 => "CANCEL",
            0x9 => "COMPRESSION_ERROR",
            0xa => "CONNECT_ERROR",
            0xb => "ENHANCE_YOUR_CALM",
            0xc => "INADEQUATE_SECURITY",
            0xd => "HTTP_1_1_REQUIRED",
            _ => "UNKNOWN",
        }
    }
}

/// An error that ends the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionError {
    /// The code in the GOAWAY frame.
    pub code: ErrorCode,
    /// What was found.
    pub why: Why,
}

impl ConnectionError {
    /// The reaction to a cause: the one place where a code is chosen.
    #[must_use]
    pub const fn of(why: Why) -> Self {
        let code = match why {
            Why::FrameLength | Why::FrameTooLong => ErrorCode::FRAME_SIZE_ERROR,
            Why::FieldBlock => ErrorCode::COMPRESSION_ERROR,
            Why::WindowOverflow | Why::WindowExceeded => ErrorCode::FLOW_CONTROL_ERROR,
            Why::StreamClosed => ErrorCode::STREAM_CLOSED,
            Why::BudgetSpent | Why::FieldBlockTooLong | Why::Stalled => {
                ErrorCode::ENHANCE_YOUR_CALM
            }
            Why::Idle => ErrorCode::NO_ERROR,
            Why::Preface
            | Why::SettingsExpected
            | Why::ContinuationExpected
            | Why::ContinuationUnexpected
            | Why::StreamIdentifier
            | Why::IdleStream
            | Why::Padding
            | Why::SettingValue
            | Why::PushPromise
            | Why::SelfDependency
            | Why::ZeroIncrement
            | Why::Malformed
            | Why::HalfClosed
            | Why::TooManyStreams => ErrorCode::PROTOCOL_ERROR,
        };
        Self { code, why }
    }
}

/// An error that ends one stream; the connection continues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct StreamError {
    pub(crate) code: ErrorCode,
    pub(crate) why: Why,
}

impl StreamError {
    /// The reaction to a cause within one stream.
    pub(crate) const fn of(why: Why) -> Self {
        let code = match why {
            Why::HalfClosed => ErrorCode::STREAM_CLOSED,
            Why::TooManyStreams => ErrorCode::REFUSED_STREAM,
            _ => ConnectionError::of(why).code,
        };
        Self { code, why }
    }
}

/// A cause of an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Why {
    /// The connection does not start with the client's preface (RFC 9113 section 3.4).
    Preface,
    /// The preface is not followed by a SETTINGS frame.
    SettingsExpected,
    /// A frame of a type whose length is fixed has another one, or is too short for its flags.
    FrameLength,
    /// A frame is longer than SETTINGS_MAX_FRAME_SIZE allows.
    FrameTooLong,
    /// A field block is not followed by its CONTINUATION frame at once.
    ContinuationExpected,
    /// A CONTINUATION frame without a field block to continue.
    ContinuationUnexpected,
    /// A stream identifier of the wrong parity, zero where it must not be, not zero where it must
    /// be, or lower than an earlier one.
    StreamIdentifier,
    /// A frame other than HEADERS or PRIORITY for a stream that was never opened.
    IdleStream,
    /// A frame for a stream that is closed.
    StreamClosed,
    /// A frame after the one that ended the request.
    HalfClosed,
    /// More padding than payload.
    Padding,
    /// A setting outside its range.
    SettingValue,
    /// A client must not push.
    PushPromise,
    /// A stream that depends on itself.
    SelfDependency,
    /// A WINDOW_UPDATE of zero.
    ZeroIncrement,
    /// A window would exceed 2^31 - 1.
    WindowOverflow,
    /// More content than the window allows.
    WindowExceeded,
    /// A field block that cannot be decoded (RFC 7541).
    FieldBlock,
    /// A field block of too many bytes or frames.
    FieldBlockTooLong,
    /// A request that breaks RFC 9113 section 8.
    Malformed,
    /// More concurrent streams than announced.
    TooManyStreams,
    /// The cost budget is spent: see [`crate::binary::budget`].
    BudgetSpent,
    /// The peer made no progress in time.
    Stalled,
    /// No request arrived in time.
    Idle,
}

impl Why {
    /// A short name for counts and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preface => "preface",
            Self::SettingsExpected => "settings_expected",
            Self::FrameLength => "frame_length",
            Self::FrameTooLong => "frame_too_long",
            Self::ContinuationExpected => "continuation_expected",
            Self::ContinuationUnexpected => "continuation_unexpected",
            Self::StreamIdentifier => "stream_identifier",
            Self::IdleStream => "idle_stream",
            Self::StreamClosed => "stream_closed",
            Self::HalfClosed => "half_closed",
            Self::Padding => "padding",
            Self::SettingValue => "setting_value",
            Self::PushPromise => "push_promise",
            Self::SelfDependency => "self_dependency",
            Self::ZeroIncrement => "zero_increment",
            Self::WindowOverflow => "window_overflow",
            Self::WindowExceeded => "window_exceeded",
            Self::FieldBlock => "field_block",
            Self::FieldBlockTooLong => "field_block_too_long",
            Self::Malformed => "malformed",
            Self::TooManyStreams => "too_many_streams",
            Self::BudgetSpent => "budget_spent",
            Self::Stalled => "stalled",
            Self::Idle => "idle",
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
