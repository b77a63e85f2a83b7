//! The HTTP/3 machine from outside: every rule, any deliveries, floods, responses, QPACK.

mod conformance;
mod deliveries;
mod floods;
#[path = "../h3_checks/mod.rs"]
mod h3_checks;
mod messages;
mod qpack;
mod replay;
mod responses;
mod rules;
