//! The HTTP/2 machine from outside: conversations, attacks, deliveries, and HPACK by its RFC.

mod attacks;
mod conversations;
mod deliveries;
#[path = "../golden/mod.rs"]
mod golden;
#[path = "../h2_checks/mod.rs"]
mod h2_checks;
mod hpack;
mod replay;
mod responses;
