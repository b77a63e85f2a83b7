//! What is reported of all workers: their counters, as metrics, as a health check, and as lines about the
//! traffic.

pub(crate) mod exposition;
pub(crate) mod health;
pub(crate) mod metrics_server;
pub(crate) mod snapshots;
pub(crate) mod traffic;
