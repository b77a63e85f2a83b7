//! What the tests of all crates share: clients, sites, servers, and a record of what was left out.
//!
//! Only a dev-dependency. It has clients of its own for HTTP/1, HTTP/2, HTTP/3 and TLS and uses no crate
//! of the product, so that a fault of the product is not shared by its test. [`h1`], [`h2`] and
//! [`h3`] turn bytes into bytes: the same frames serve the tests of the protocol crate, those of the simulator
//! and those over sockets. What a test can run on a machine depends on the machine: see
//! [`left_out()`].
//!
//! The features say how much a crate's tests need, so that those of the protocol crate do not wait
//! for a TLS library.

pub mod content;
pub mod h1;
pub mod h2;
pub mod h3;
mod left_out;

pub use left_out::{left_out, tool};

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
pub mod process;
#[cfg(feature = "program")]
mod program;
#[cfg(feature = "quic")]
pub mod quic;
#[cfg(feature = "program")]
pub mod seccomp;
#[cfg(feature = "program")]
mod secure;

#[cfg(feature = "program")]
pub use program::{
    Ended, Gannet, Signal, command, command_of_nobody, gannet, gannet_in, program, run, same,
};

use std::time::Duration;

/// Nothing here takes this long unless it hangs; then the test fails instead of waiting for ever.
pub const DEADLINE: Duration = Duration::from_secs(60);
