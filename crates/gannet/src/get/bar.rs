//! The progress bar of a download, on a terminal.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::report::rate;

/// A bar, or a count if the length is unknown.
pub(super) struct Bar {
    bar: ProgressBar,
    started: Instant,
    is_known: bool,
}

impl Bar {
    /// For `expected` bytes; 0 where that is not known.
    pub(super) fn new(expected: u64) -> Self {
        let bar = ProgressBar::new(expected);
        let bar = Self {
            bar,
            started: Instant::now(),
            is_known: expected > 0,
        };
        bar.set_style();
        bar
    }

    fn set_style(&self) {
        let template = match self.is_known {
            true => "{wide_bar} {bytes}/{total_bytes} {msg} {eta} left",
            false => "{spinner} {bytes} {msg}",
        };
        let style = ProgressStyle::with_template(template);
        self.bar
            .set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    }

    /// Shows that `received` bytes of `expected` are there.
    pub(super) fn show(&mut self, received: u64, expected: u64) {
        if self.is_known != (expected > 0) {
            self.is_known = expected > 0;
            self.set_style();
        }
        self.bar.set_length(expected.max(received));
        self.bar.set_position(received);
        self.bar.set_message(rate(received, self.started.elapsed()));
    }

    /// Takes it off the terminal.
    pub(super) fn clear(self) {
        self.bar.finish_and_clear();
    }
}
