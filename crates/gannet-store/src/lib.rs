#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod copying;
mod error;
pub mod files;
mod keep;
mod lock;
mod partial;
mod pointer;
mod presence;
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
pub use partial::{PARTIAL, PartialRelease, PartialWriter, SparseFile};
pub use pointer::{FIRST_LINE, Pointer, PointerError, split_signature};
pub use presence::{LOOK_MAX, Look, Presence};
pub use prune::Pruned;
pub use publisher::{Next, Placed, Publisher};
pub use quantity::{parse_time, time_text};
pub use release_id::{NotAReleaseId, ReleaseId};
pub use stages::Stage;
pub use store::{Earlier, History, KeptRelease, KeptReleases, Skipped, Store};
