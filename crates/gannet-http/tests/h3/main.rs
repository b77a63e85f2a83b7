//! The HTTP/3 state machine through its public interface: rules, deliveries, floods, responses,
//! QPACK.

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
