//! Support for the tests of all crates: clients, sites, servers, and a record of skipped tests.
//!
//! Only a dev-dependency, and one of the lab. It has its own clients for HTTP/1, HTTP/2, HTTP/3 and TLS
//! and uses no crate of the product, so that a defect of the product cannot hide itself in its tests.
//! [`h1`], [`h2`] and [`h3`] convert between bytes and values: the same frames serve the tests of the
//! protocol crate, of the simulator, and over sockets. Tests that the machine cannot run are recorded
//! by [`left_out()`].
//!
//! Features select what a crate's tests need, so that those of the protocol crate are not delayed
//! by building a TLS library.

pub mod content;
pub mod exposition;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod hostile;
mod left_out;
pub mod long_heads;
mod seeds;
pub mod stand_in;
mod workload;

pub use left_out::{left_out, tool};
pub use seeds::replay_seeds;
pub use workload::workload;

#[cfg(feature = "tls")]
pub mod configuration;
#[cfg(feature = "tls")]
mod folder;
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(feature = "tls")]
pub use folder::Folder;

#[cfg(feature = "program")]
pub mod client;
#[cfg(feature = "program")]
pub mod engine;
#[cfg(feature = "program")]
pub mod fuse;
#[cfg(feature = "program")]
pub mod mount;
#[cfg(feature = "program")]
mod port;
#[cfg(feature = "program")]
pub mod process;
#[cfg(feature = "program")]
mod program;
#[cfg(feature = "quic")]
pub mod quic;
#[cfg(feature = "program")]
pub mod seccomp;
#[cfg(feature = "program")]
mod secure;
#[cfg(all(feature = "program", feature = "quic"))]
pub mod versions;

#[cfg(feature = "program")]
pub use port::FreePort;
#[cfg(feature = "program")]
pub use program::{
    Ended, Gannet, Signal, clean, command, command_of_nobody, gannet, gannet_in, of_nobody, passed,
    program, run, same,
};

use std::time::Duration;

/// Nothing here takes this long unless it hangs; the test then fails instead of waiting forever.
pub const DEADLINE: Duration = Duration::from_secs(60);
