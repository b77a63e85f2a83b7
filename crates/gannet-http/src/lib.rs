//! HTTP for a server of static content: bytes and time in, events and wire bytes out.
//!
//! Nothing here does I/O, reads a clock or sees a body byte (RFC 9110, 9112).
#![forbid(unsafe_code)]

pub mod semantics;
