#![doc = include_str!("../README.md")]
//! # Modules
//!
//! * [`semantics`]: the meaning of HTTP, for every version: requests and their fields, dates,
//!   entity tags, ranges, content codings, target paths, responses.
//! * [`h1`]: the HTTP/1 machine: parses requests, frames responses, decides on persistence.
//! * [`h2`]: the HTTP/2 machine: frames, field compression, streams, flow control, priorities.
//! * [`h3`]: the HTTP/3 machine: the streams of a QUIC connection.
//! * [`binary`]: shared by the last two: rules of requests, strings, priorities, the budget.
//! * [`proxy_protocol`]: the header in which a proxy names a connection's client.
#![forbid(unsafe_code)]

pub mod binary;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod proxy_protocol;
mod scan;
pub mod semantics;
