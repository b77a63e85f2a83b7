//! Requests that are well-formed but answered with an error at once.

use crate::semantics::status::Status;

/// A well-formed request that is answered with an error without being evaluated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// The status of the answer.
    pub status: Status,
    /// The cause.
    pub why: RejectionWhy,
}

impl Rejection {
    /// The reaction to a cause.
    #[must_use]
    pub const fn of(why: RejectionWhy) -> Self {
        let status = match why {
            RejectionWhy::FieldSectionTooLarge | RejectionWhy::TooManyFieldLines => {
                Status::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            RejectionWhy::ExpectationUnknown => Status::EXPECTATION_FAILED,
        };
        Self { status, why }
    }
}

/// A cause of a [`Rejection`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RejectionWhy {
    /// The decoded section is larger than [`super::limits::FIELD_SECTION_MAX`].
    FieldSectionTooLarge,
    /// More lines than [`crate::semantics::limits::FIELD_LINES_MAX`].
    TooManyFieldLines,
    /// An expectation other than `100-continue`.
    ExpectationUnknown,
}

impl RejectionWhy {
    /// The cause in a few words, for logs; the same as in HTTP/1.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FieldSectionTooLarge => "field section too large",
            Self::TooManyFieldLines => "too many field lines",
            Self::ExpectationUnknown => "unknown expectation",
        }
    }
}
