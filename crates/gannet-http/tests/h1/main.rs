//! The HTTP/1 machine from outside: conversations, probes, and any split of the same bytes.

mod conversations;
#[path = "../fuzz_checks/mod.rs"]
mod fuzz_checks;
#[path = "../golden/mod.rs"]
mod golden;
mod pieces;
mod pipelines;
mod probes;
mod replay;
