//! A store: the releases of a site in a folder, and a pointer to the one in force.
//!
//! ```text
//! releases/<id>.gannet   archives, which never change
//! current                the pointer: which release is in force, from when on, what is kept
//! log/<serial>           every pointer there ever was
//! ```
//!
//! The folder is the interface: whoever publishes adds files and replaces `current`, whoever serves
//! reads them. Nothing needs to run in between, and the same layout works in a bucket or behind
//! HTTPS. `FORMAT.md` beside this crate specifies the pointer.
//!
//! ```
//! use gannet_store::{Pointer, ReleaseId};
//!
//! let text = "gannet pointer 1\n\
//!     serial 1\n\
//!     release 3f0a9c21d4e84b7796e1c02d5a86f913\n\
//!     size 81920\n\
//!     blake3 8d1f2c0b6a5e49378071f2e3d4c5b6a798897a6b5c4d3e2f1a0b9c8d7e6f5a4b\n\
//!     published 2026-11-23T08:30:00Z by ann@build\n\
//!     keep 7d 3..20\n";
//! let pointer = Pointer::parse(text.as_bytes())?;
//! assert_eq!(pointer.release, ReleaseId::of_build_id(&[
//!     0x3f, 0x0a, 0x9c, 0x21, 0xd4, 0xe8, 0x4b, 0x77, 0x96, 0xe1, 0xc0, 0x2d, 0x5a, 0x86, 0xf9,
//!     0x13, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa,
//!     0xaa, 0xaa,
//! ]));
//! assert_eq!(pointer.activation("node-1"), 0, "at once");
//! assert_eq!(pointer.to_text(), text);
//! # Ok::<(), gannet_store::PointerError>(())
//! ```
#![forbid(unsafe_code)]

mod copying;
mod error;
pub mod files;
mod keep;
mod lock;
mod pointer;
mod prune;
mod publisher;
mod quantity;
mod release_id;
mod stages;
mod store;

pub mod limits;

pub use copying::{JOURNAL, ORIGIN, SEEN};
pub use error::StoreError;
pub use keep::Keep;
pub use pointer::{FIRST_LINE, Pointer, PointerError, split_signature};
pub use prune::Pruned;
pub use publisher::{Next, Placed, Publisher};
pub use quantity::{parse_time, time_text};
pub use release_id::{NotAReleaseId, ReleaseId};
pub use stages::Stage;
pub use store::{Earlier, History, Kept, KeptRelease, Skipped, Store};
