#![forbid(unsafe_code)]
//! The gannet program.

use std::process::ExitCode;

use gannet_io::reserve::WithReserve;

/// Where memory is limited, a server is to refuse clients rather than to end.
#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve;

fn main() -> ExitCode {
    ExitCode::from(gannet::run(std::env::args_os().collect()))
}
