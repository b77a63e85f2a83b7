//! Turns the command line, the environment and a configuration file into typed settings.
//!
//! ```text
//!  flag.rs          what a declaration is
//!  serve_flags/     the table of `serve`       ─┐
//!  pack_flags.rs    the table of `pack`        ─┼─▶ arguments.rs, layers.rs, documents/
//!  site_flags.rs    what both have in common   ─┤
//!  commands.rs      the other commands' shapes ─┘
//! ```
//!
//! Precedence: command line, environment, configuration file, default.

pub mod arguments;
pub mod commands;
pub mod config_file;
pub mod flag;
pub mod idle;
pub mod layers;
pub mod nearest;
pub mod other_names;
pub mod pack_flags;
pub mod public_hosts;
pub mod serve_flags;
pub mod settings;
pub mod site_arguments;
pub mod site_flags;
pub mod site_settings;
pub mod values;
