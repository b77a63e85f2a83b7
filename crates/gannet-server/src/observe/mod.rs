//! Observability of a running server: counters, metrics, the access log, messages.

pub(crate) mod log;
pub mod metrics;
pub(crate) mod metrics_server;
pub mod notices;
pub(crate) mod snapshots;
