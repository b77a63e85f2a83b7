//! Reports the progress of packing.

/// The parts of packing that take time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Every file is read and hashed.
    Reading,
    /// Every distinct body is compressed and written.
    Compressing,
}

/// Receives the progress of packing.
pub trait Progress {
    /// `file_count` files of `bytes` bytes in total have been found so far.
    fn found(&mut self, file_count: u64, bytes: u64);
    /// A phase of `work` units begins: bytes while reading, about nanoseconds of a processor while
    /// compressing.
    fn begin(&mut self, phase: Phase, work: u64);
    /// Another `work` units of the phase are done. Called several times a second.
    fn advance(&mut self, work: u64);
    /// The phase ends.
    fn end(&mut self);
}

/// Reports nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn found(&mut self, _: u64, _: u64) {}
    fn begin(&mut self, _: Phase, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn end(&mut self) {}
}
