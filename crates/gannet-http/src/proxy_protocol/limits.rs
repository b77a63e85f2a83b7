//! Bounds on the header of the PROXY protocol, each with its reason.

/// The longest header of version 1 in bytes, including its CRLF: the protocol's own bound, with two
/// IPv6 addresses and two ports.
pub const V1_LEN_MAX: usize = 107;

/// The longest header in bytes. Version 2 can describe 64 KiB; with the name of a client
/// certificate and a load balancer's own values, headers stay below 1 KiB.
pub const HEADER_LEN_MAX: usize = 4096;
