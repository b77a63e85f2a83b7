//! The engine: connections, protocols and content meet here, on any [`gannet_io::driver::Driver`].
//!
//! One worker per core, each with its own engine, listeners and view of the content. The path of a
//! request: `worker` finds the connection that a completion is for; `connection/receiving` lends the
//! bytes to `exchange/pump`, which takes requests from them; `release` says what is there;
//! `exchange/answering` makes the answer; `exchange/outgoing` gathers answers for
//! `connection/sending`.
#![forbid(unsafe_code)]

pub mod config;
mod connection;
pub mod driven;
mod exchange;
mod limits;
mod observe;
mod quic;
mod release;
mod start;
pub mod tls;
mod worker;

pub use exchange::own_fields::FAVICON;
pub use observe::{metrics, notices};
pub use release::rules::RulesError;
pub use start::bound::{Bound, bind};
pub use start::open::{OpenError, permission};
pub use start::running::{Running, SiteReport, StartReport};
pub use start::start_error::StartError;
pub use start::{Prepared, prepare};
pub use worker::ledger;
