//! PUSH_PROMISE (RFC 9113 section 6.6): only servers may push, and this one does not.

use crate::h2::error::Why;

/// The error for a PUSH_PROMISE from a client, whatever its payload (RFC 9113 section 8.4).
pub(crate) const FROM_CLIENT: Why = Why::PushPromise;
