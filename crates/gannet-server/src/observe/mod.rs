//! What a worker counts, measures and logs, and what followers note of releases. `report` makes it
//! public.

pub(crate) mod board;
pub(crate) mod incidents;
pub(crate) mod log;
pub mod measures;
pub mod metrics;
pub(crate) mod record;
pub mod stages;
mod trace_context;
