//! The gannet program: its command line, configuration, commands and messages.
//!
//! `main.rs` is the whole program in one `match`. The library exists so that tests can read the
//! tables that generate help, manual, completions, environment and configuration; it is no public
//! API. Build on the crates below it instead.
#![forbid(unsafe_code)]

mod alt_svc;
pub mod command_line;
pub mod commands;
pub mod components;
mod dev;
pub mod documents;
mod https_record;
pub mod json;
pub mod messages;
pub mod quantities;
pub mod room;
