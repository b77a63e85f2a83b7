//! One request from its event to its response, the same for every version of HTTP.
//!
//! `pump` takes requests from a protocol machine and answers those that need only memory. Any other
//! waits with the release that it began with (`waiting::WaitingRequest`): `waiting` drives it,
//! `first_reads`, `listing` and `loading` do work shared by several waiters, `shortage` defers those
//! that found a resource exhausted. `answering` builds responses with the site's content, `own_answers`
//! all others; `timing` is their `server-timing`, `challenges` are those of ACME servers; `outgoing`
//! gathers the responses of one send, and `body` references content that follows it.

pub(crate) mod answering;
pub(crate) mod digests;
pub(crate) mod first_reads;
pub(crate) mod listing;
pub(crate) mod loading;
mod methods;
pub(crate) mod outgoing;
mod own_answers;
pub(crate) mod pump;
pub(crate) mod shortage;
pub(crate) mod timing;
pub(crate) mod unopened;
pub(crate) mod waiting;
