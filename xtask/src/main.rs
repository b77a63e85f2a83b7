//! The project's own chores, run as `cargo xtask NAME`.
#![forbid(unsafe_code)]

mod load;

fn main() {}
