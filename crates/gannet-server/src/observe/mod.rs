//! What can be seen of a running server: counters, metrics, the log.

pub(crate) mod log;
pub mod metrics;
pub(crate) mod metrics_server;
pub(crate) mod snapshots;
