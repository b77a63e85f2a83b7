//! Why a request is rejected before its target is resolved, and with which status.

use crate::semantics::status::Status;

/// A request that is answered with an error; the connection closes after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// The status of the answer.
    pub status: Status,
    /// The cause.
    pub why: Why,
}

impl Rejection {
    /// The reaction to a cause: the one place where a status is chosen.
    #[must_use]
    pub const fn of(why: Why) -> Self {
        let status = match why {
            Why::RequestLineTooLong => Status::URI_TOO_LONG,
            Why::FieldSectionTooLarge | Why::TooManyFieldLines => {
                Status::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Why::VersionUnsupported => Status::HTTP_VERSION_NOT_SUPPORTED,
            Why::MethodTooLong | Why::CodingUnsupported => Status::NOT_IMPLEMENTED,
            Why::ExpectationUnknown => Status::EXPECTATION_FAILED,
            Why::Timeout => Status::REQUEST_TIMEOUT,
            Why::RequestLine
            | Why::Target
            | Why::VersionMalformed
            | Why::FieldName
            | Why::FieldValue
            | Why::HostMissing
            | Why::HostRepeated
            | Why::HostInvalid
            | Why::ContentLength
            | Why::TransferEncoding
            | Why::LengthAndCoding => Status::BAD_REQUEST,
        };
        Self { status, why }
    }
}

/// A cause of refusal.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Why {
    /// No method, or white space or line ends that deviate from the grammar.
    RequestLine,
    /// The request line is longer than [`super::limits::REQUEST_LINE_MAX`].
    RequestLineTooLong,
    /// As `RequestLineTooLong`, with nothing but a method in the line.
    MethodTooLong,
    /// A target in no known form, in one that the method does not allow, or with a byte that is not
    /// visible ASCII: RFC 3986 has no others, and two readers may decode them differently.
    Target,
    /// The version is missing or misspelt; HTTP/0.9 looks like this too.
    VersionMalformed,
    /// A major version other than 1.
    VersionUnsupported,
    /// A field name that is not a token, or white space or a line fold where a name must be.
    FieldName,
    /// A control byte, bare CR or bare LF in a field value.
    FieldValue,
    /// The field section is longer than [`super::limits::FIELD_SECTION_MAX`].
    FieldSectionTooLarge,
    /// More field lines than [`crate::semantics::limits::FIELD_LINES_MAX`].
    TooManyFieldLines,
    /// HTTP/1.1 without a `Host` field.
    HostMissing,
    /// More than one `Host` field line.
    HostRepeated,
    /// A `Host` that is not a host with an optional port.
    HostInvalid,
    /// `Content-Length` is not one number.
    ContentLength,
    /// `Transfer-Encoding` in HTTP/1.0, malformed, or without `chunked` as its last coding.
    TransferEncoding,
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndCoding,
    /// A transfer coding other than `chunked` before it.
    CodingUnsupported,
    /// An expectation other than `100-continue`.
    ExpectationUnknown,
    /// The head did not arrive in time; only the caller can tell.
    Timeout,
}

impl Why {
    /// The cause in a few words, for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestLine => "malformed request line",
            Self::RequestLineTooLong => "request line too long",
            Self::MethodTooLong => "method too long",
            Self::Target => "invalid request target",
            Self::VersionMalformed => "malformed version",
            Self::VersionUnsupported => "unsupported version",
            Self::FieldName => "invalid field name",
            Self::FieldValue => "invalid field value",
            Self::FieldSectionTooLarge => "field section too large",
            Self::TooManyFieldLines => "too many field lines",
            Self::HostMissing => "no host",
            Self::HostRepeated => "more than one host",
            Self::HostInvalid => "invalid host",
            Self::ContentLength => "invalid content-length",
            Self::TransferEncoding => "invalid transfer-encoding",
            Self::LengthAndCoding => "content-length with transfer-encoding",
            Self::CodingUnsupported => "unsupported transfer coding",
            Self::ExpectationUnknown => "unknown expectation",
            Self::Timeout => "too slow",
        }
    }
}
