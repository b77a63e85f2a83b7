//! HTTP semantics (RFC 9110), the same for every version of the protocol.

pub mod response;
