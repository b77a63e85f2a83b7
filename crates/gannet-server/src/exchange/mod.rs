//! One request from its event to its response, the same for every version of HTTP.
//!
//! A transport has `workbench` answer its requests, with what `find` finds at a site, as far as that needs only
//! memory. Any other waits with the release that it began with (`waiting::WaitingRequest`): `waiting` drives it,
//! `first_reads`, `listing`, `loading` and `surveying` do work shared by several waiters, `shortage` defers
//! those that found a resource exhausted. `answering` builds responses with the site's content, `own_answers`
//! all others; `timing` is their `server-timing`; `outgoing` gathers the responses of one send. `shared` is what
//! all connections of a worker use, and `waiters` and `stream_waits` who waits for a result.

pub(crate) mod answering;
mod before_sites;
pub(crate) mod digests;
pub(crate) mod fetching;
mod find;
pub(crate) mod first_reads;
pub(crate) mod listing;
pub(crate) mod loading;
pub(crate) mod outgoing;
mod own_answers;
pub(crate) mod shared;
pub(crate) mod shortage;
pub(crate) mod stream_waits;
pub(crate) mod surveying;
pub(crate) mod timing;
pub(crate) mod unopened;
pub(crate) mod waiters;
pub(crate) mod waiting;
pub(crate) mod workbench;
