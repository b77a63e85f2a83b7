//! The gannet program.
fn main() {}
