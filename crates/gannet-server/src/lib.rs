//! The engine: joins connections, protocols and content on any [`gannet_io::driver::Driver`].
//!
//! One worker per core, each with its own engine, listeners and view of the content. The path of a
//! request: `worker` finds the connection of a completion; `connection/receiving` lends the received
//! bytes to `connection/http1`, which takes requests from them; `exchange/workbench` answers each; `release`
//! resolves the path;
//! `exchange/answering` builds the response; `exchange/outgoing` gathers responses for
//! `connection/sending`.
#![forbid(unsafe_code)]

mod bounds;
mod clients;
mod coder;
pub mod config;
mod connection;
pub mod driven;
mod exchange;
mod ground;
mod observe;
mod passwords;
mod quic;
mod release;
mod report;
mod start;
pub mod tls;
mod watch;
mod worker;

pub use bounds::ledger;
pub use coder::{CoderCounts, coder_threads};
pub use config::network::Network;
pub use config::rate::Rate;
pub use config::template::{Template, TemplateError, TemplateFault};
pub use observe::{measures, metrics, stages};
pub use passwords::checker::hash_password;
pub use passwords::file::PasswordFileError;
pub use quic::settings::SECRETS_LEN;
pub use release::archive_room::{
    kept_memory, machine_memory, usual_cache_memory, usual_encoder_memory, usual_rules_memory,
};
pub use release::own_fields::FAVICON;
pub use release::rules::RulesError;
pub use start::bound::{Bound, bind, bind_unnamed};
pub use start::estate::{Inheritance, Item};
pub use start::open::{OpenError, permission};
pub use start::quic::Http3Report;
pub use start::rights::{Again, Denied};
pub use start::running::{Running, SiteReport, StartReport, Stopped};
pub use start::sandbox::{SandboxReport, WithinReach, within_reach, worker_folders};
pub use start::sites::at_start::opened_at_start;
pub use start::start_error::StartError;
pub use start::{Prepared, prepare};
pub use watch::in_time::however_long;
pub use watch::notices;
