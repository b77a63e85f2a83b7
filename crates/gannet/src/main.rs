#![forbid(unsafe_code)]
//! The gannet program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gannet::run(std::env::args_os().collect()))
}
