//! The kernel: one completion-shaped [`Driver`](driver::Driver) trait and its three engines.
//!
//! All `unsafe` code of the project is in this crate.

pub mod driver;
