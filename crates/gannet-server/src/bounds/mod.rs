//! What peers and authors can make a server hold or do: every bound with its reason, and the accounts
//! that are kept of it. Every other room may use this one, and this one uses none.

pub(crate) mod clients;
pub mod ledger;
pub(crate) mod limits;
pub(crate) mod quic;
pub mod tls;
pub(crate) mod waiting;
