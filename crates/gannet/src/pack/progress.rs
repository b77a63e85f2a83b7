//! Telling a person at a terminal how far packing is.

use indicatif::{ProgressBar, ProgressStyle};

/// The parts of packing that take time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Every file is read and hashed.
    Reading,
    /// Every distinct body is compressed and written.
    Compressing,
}

/// Is told how far packing is.
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

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn found(&mut self, _: u64, _: u64) {}
    fn begin(&mut self, _: Phase, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn end(&mut self) {}
}

/// A bar on standard error. Make one only if standard error is a terminal.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar that shows when packing begins.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bar: ProgressBar::new_spinner(),
        }
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for Bar {
    fn found(&mut self, file_count: u64, _: u64) {
        self.bar.set_message(format!("{file_count} files"));
        self.bar.tick();
    }

    fn begin(&mut self, phase: Phase, bytes: u64) {
        self.bar.finish_and_clear();
        self.bar = ProgressBar::new(bytes);
        let template = "{msg:11} [{bar:30}] {bytes} of {total_bytes}, {eta} left";
        // The default bar serves as well if the template were wrong; a test holds it right.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
        self.bar.set_message(match phase {
            Phase::Reading => "reading",
            Phase::Compressing => "compressing",
        });
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}
