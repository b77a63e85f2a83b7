//! TLS: handshakes by a library, our own record layer, and kernel TLS.
//!
//! ```text
//!  files ─▶ certificates ─▶ CertificateStore ──(snapshot per worker)──▶ CertificateSet
//!  development ─┘    ▲                                                      │ by SNI
//!                watch (re-reads)                                           ▼
//!  received bytes ───────────────────────────────────────────────▶ Handshake (rustls inside)
//!                                                                           │ Done
//!                                              plaintext ◀─ receive ─ Session ─ encrypt ─▶ records
//!                                                                           │ into_kernel
//!                                                                           ▼
//!                                                             gannet_io::ktls (transmit only)
//! ```
//!
//! `quic` configures the TLS side of the QUIC library, which performs the handshakes of HTTP/3
//! itself.
//!
//! No type of the TLS library leaves this module: the rest of the engine sees bytes, [`alert`]s
//! and [`session::Session`]. Nothing here does I/O on sockets; only `certificates`, `watch` and
//! `development` touch files, and never on a worker's thread.
//!
//! Standards: RFC 8446 (TLS 1.3), RFC 5246, 5288 and 7905 (TLS 1.2 with AEADs), RFC 6066 (server
//! name), RFC 7301 (ALPN), RFC 8470 (early data), RFC 9325 (recommendations).

pub mod alert;
pub mod certificates;
mod challenges;
pub mod clients;
mod compression;
pub mod config;
pub mod development;
mod folder;
pub mod handshake;
mod hello;
pub mod kernel;
pub mod negotiated;
pub mod on_demand;
pub(crate) mod quic;
pub mod record;
pub mod session;
pub mod watch;

pub use crate::bounds::tls as limits;
