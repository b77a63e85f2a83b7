//! The progress bar of a download, on a terminal.

use std::io::{self, IsTerminal};
use std::time::Instant;

use gannet_get::Progress;
use gannet_server::notices::ERRORS;
use indicatif::{ProgressBar, ProgressStyle};

use super::report::rate;

/// A progress bar, shown only on a terminal.
pub(super) struct Meter {
    is_watched: bool,
    bar: Option<Bar>,
}

impl Meter {
    /// A bar only where it is wanted and standard error is a terminal.
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            is_watched: is_wanted && io::stderr().is_terminal(),
            bar: None,
        }
    }

    /// Removes it from the terminal.
    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.bar.finish_and_clear();
        }
    }
}

impl Progress for Meter {
    fn moved(&mut self, received: u64, expected: u64) {
        if self.is_watched {
            let bar = self.bar.get_or_insert_with(|| Bar::new(expected));
            bar.show(received, expected);
        }
    }

    fn note(&mut self, text: &str) {
        ERRORS.log(format_args!("gannet: {text}"));
    }
}

/// A bar, or a counter if the length is unknown.
struct Bar {
    bar: ProgressBar,
    started: Instant,
    is_known: bool,
}

impl Bar {
    /// Expects `expected` bytes; 0 if unknown.
    fn new(expected: u64) -> Self {
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

    /// Shows that `received` of `expected` bytes have arrived.
    fn show(&mut self, received: u64, expected: u64) {
        if self.is_known != (expected > 0) {
            self.is_known = expected > 0;
            self.set_style();
        }
        self.bar.set_length(expected.max(received));
        self.bar.set_position(received);
        self.bar.set_message(rate(received, self.started.elapsed()));
    }
}
