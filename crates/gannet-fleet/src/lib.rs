//! Fleets: servers whose store is a copy of one in an object store, or behind HTTPS.
//!
//! A [`Follower`] makes and keeps such a copy: it polls the pointer, checks it as a local store
//! does, fetches what it lacks of the release, compares the whole file with the digest in the
//! pointer, and only then puts the pointer into force. A server that serves the folder notices by
//! itself. It trusts the other store with nothing: whatever that sends costs at most the bounds in
//! [`limits`], and the copy stays as it was.
//!
//! ```text
//! pointer ─▶ log ─▶ head of the archive ─▶ blobs of local releases ─▶ ranges ─▶ digest ─▶ pointer
//! ```
//!
//! A [`Fetcher`] fetches the blobs of releases of which only the rest was copied, when servers ask for them.
//!
//! Nothing of this runs in a server's process: a follower is a command of its own. It has one
//! thread, on which a runtime drives the requests.
#![forbid(unsafe_code)]

pub mod acme;
mod bounded;
mod cache;
mod demand;
mod draft;
mod error;
mod fetcher;
mod flight;
mod follower;
mod identity;
mod journal;
pub mod limits;
mod listener;
pub mod opening;
mod origin;
mod pace;
mod paced;
mod picture;
mod plan;
mod publisher;
mod push;
mod receiver;
mod refusal;
mod remote;
#[cfg(test)]
mod samples;
mod target;
mod trust;
mod unpacking;
mod warming;
mod writing;

pub use error::{Cause, FleetError};
pub use fetcher::{Answer, Answered, Effort, Fetcher, Reason, Want};
pub use follower::{Follower, Round, Settings};
pub use identity::Identity;
pub use listener::{Counted, Listener, Report};
pub use origin::must_be_of;
pub use pace::{Patience, back_off, jittered};
pub use paced::Bounds;
pub use picture::Glance;
pub use publisher::RemotePublisher;
pub use push::{PushError, Pushed, push};
pub use receiver::{Offer, Outcome, Received, Receiver};
pub use remote::Remote;
pub use target::Target;
