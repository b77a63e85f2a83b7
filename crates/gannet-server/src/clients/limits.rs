//! Bounds on what is done for a client, each with its reason.

/// The most elements of a list of forwarding proxies that are read, the nearest first: a chain of
/// trusted proxies is no longer.
pub(super) const HOPS_MAX: usize = 32;

