//! Telling how far packing is.

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
    /// So many files, of so many bytes together, are found up to now.
    fn found(&mut self, file_count: u64, bytes: u64);
    /// A phase begins that has so many bytes before it.
    fn begin(&mut self, phase: Phase, bytes: u64);
    /// So many more bytes of the phase are done.
    fn advance(&mut self, bytes: u64);
    /// The phase is over.
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
