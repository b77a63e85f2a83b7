//! The gannet program: its command line, configuration, commands and messages.
//!
//! `main.rs` is the whole program in one `match`. The library exists so that tests can look at the
//! tables from which help, manual, completions, environment and configuration are made; it is no
//! public API. What others can build on are the crates below it.
#![forbid(unsafe_code)]

pub mod command_line;
pub mod commands;
pub mod components;
pub mod documents;
pub mod json;
pub mod messages;
pub mod quantities;
