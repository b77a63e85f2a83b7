//! Bounds on what is done for a client, each with its reason.

use crate::bounds::limits::FETCHES_MAX;

/// The most elements of a list of forwarding proxies that are read, the nearest first: a chain of
/// trusted proxies is no longer.
pub(crate) const HOPS_MAX: usize = 32;

/// How far a client may be ahead of its rate, in nanoseconds: what it has not used for ten seconds, it
/// may use at once. A page asks for all it consists of within a moment.
pub(crate) const BURST_NS: u64 = 10_000_000_000;

/// The clients whose use is known at the same time, over all workers: 1.5 MiB.
pub(crate) const CLIENTS_MAX: usize = 1 << 16;

/// Parts of releases on demand that workers ask for at the same time for one client: a page of 250 files. A worker
/// has its part of it, and as many as a connection has streams, unless that is more than half of all of its own.
pub(crate) const FETCHES_OF_CLIENT_MAX: usize = FETCHES_MAX / 4;

/// Those that a worker may ask for however many workers there are: half the streams of a connection.
pub(crate) const FETCHES_LEFT: usize = 64;

/// The entries among which a client has its own: a look at three cache lines. With four times fewer
/// clients than entries, fewer than one in a hundred finds all of them taken.
pub(crate) const PLACE_ENTRIES: usize = 8;

/// How often a worker tries again because another one has changed an entry meanwhile.
pub(crate) const ENTRY_ATTEMPTS_MAX: usize = 8;
