//! A virtual network, disk and clock, driven by a seed: the third engine.

/// A virtual open file.
#[derive(Debug)]
pub(crate) struct SimFile;

/// A virtual root directory.
#[derive(Debug)]
pub(crate) struct SimRoot;

/// The simulated engine.
pub struct Sim {}
