//! Why a request is rejected before its target is examined, and with which status.

use crate::semantics::status::Status;

/// A request that is answered with an error; the connection closes after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// The status to answer with.
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
    /// No method, or white space or line ends that are not exactly as the grammar has them.
    RequestLine,
    /// The request line is longer than [`super::limits::REQUEST_LINE_MAX`].
    RequestLineTooLong,
    /// The same, and there is nothing but a method in it.
    MethodTooLong,
    /// A target in no form, in one that the method does not have, or with a byte that is not visible
    /// ASCII: RFC 3986 has no others, and two readers may decode them in two ways.
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
    /// A `Host` that is no host and port.
    HostInvalid,
    /// `Content-Length` is not one number.
    ContentLength,
    /// `Transfer-Encoding` in HTTP/1.0, malformed, or without `chunked` as its last coding.
    TransferEncoding,
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndCoding,
    /// A transfer coding other than `chunked` below it.
    CodingUnsupported,
    /// An expectation other than `100-continue`.
    ExpectationUnknown,
    /// The head did not arrive in time; only callers know.
    Timeout,
}
