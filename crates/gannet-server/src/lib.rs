//! The engine: connections, protocols and content meet here, on any [`gannet_io::driver::Driver`].
//!
//! One worker per core, each with its own engine, listeners and view of the content. The path of
//! a request through the files: `worker` (completions) to `worker/receiving` to `pump` (requests)
//! to `site` (content) to `serve` (the answer) to `outgoing` (one send) to `worker/sending`.
#![forbid(unsafe_code)]

mod archive_room;
pub mod config;
mod conn;
mod digests;
pub mod driven;
mod limits;
mod log;
pub mod metrics;
mod metrics_server;
mod open;
mod outgoing;
mod own_fields;
mod pump;
mod redirect;
mod rules_watch;
mod running;
mod secure;
mod serve;
pub mod signature;
mod site;
mod start;
mod start_error;
mod streams;
mod timers;
pub mod tls;
mod worker;

pub use open::OpenError;
pub use running::{Running, SiteReport, StartReport};
pub use site::rules::{RulesError, redirects_files};
pub use start::{Bound, bind, start};
pub use start_error::StartError;
