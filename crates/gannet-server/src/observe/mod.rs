//! Observability of a running server: counters, metrics, the access log, messages.

pub(crate) mod health;
pub(crate) mod incidents;
pub(crate) mod log;
pub mod measures;
pub mod metrics;
pub(crate) mod metrics_server;
pub mod notices;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod snapshots;
mod trace_context;
