//! The gannet program: its command line, configuration, commands and messages.
//!
//! `main` hands everything to [`run`]. The library exists so that tests can look at the tables from
//! which help, manual, completions, environment and configuration are made; it is no public API.
#![forbid(unsafe_code)]

pub mod messages;
