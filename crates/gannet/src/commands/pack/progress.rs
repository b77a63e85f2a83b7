//! Reports the progress of packing: as a bar on a terminal, elsewhere as a line now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use gannet_site::pack::{Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::quantities::size;

/// The interval between lines where there is no bar; the first also names the faster way. Most
/// sites are packed sooner, and build logs get few lines.
const TOLD_EVERY: Duration = Duration::from_secs(20);

/// The suggestion when packing takes long.
const FASTER: &str = "'--fast' packs several times as fast, for trying things out";

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Reading => "reading",
        Phase::Compressing => "compressing",
    }
}

/// The form that fits standard error. If packing takes long, it names the faster way, if there is
/// one.
#[must_use]
pub(in crate::commands) fn shown(offers_fast: bool) -> Box<dyn Progress> {
    match io::stderr().is_terminal() {
        true => Box::new(Bar::new(offers_fast)),
        false => Box::new(ProgressLines::new(offers_fast)),
    }
}

/// A bar on standard error; create it only if that is a terminal.
#[derive(Debug)]
struct Bar {
    bar: ProgressBar,
    started: Instant,
    offers_fast: bool,
}

impl Bar {
    /// Creates a bar that appears when packing begins.
    #[must_use]
    fn new(offers_fast: bool) -> Self {
        Self {
            bar: ProgressBar::new_spinner(),
            started: Instant::now(),
            offers_fast,
        }
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
        // An invalid template would leave the default bar; a test checks it.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
        self.bar.set_message(name(phase));
    }

    fn advance(&mut self, bytes: u64) {
        self.bar.inc(bytes);
        if self.offers_fast && self.started.elapsed() >= TOLD_EVERY {
            self.offers_fast = false;
            self.bar.println(format!("gannet: {FASTER}"));
        }
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Prints a line on standard error now and then, for build logs.
#[derive(Debug)]
struct ProgressLines {
    every: Duration,
    last: Instant,
    offers_fast: bool,
    phase: Phase,
    done: u64,
    all: u64,
}

impl ProgressLines {
    /// Prints nothing if packing finishes quickly.
    #[must_use]
    fn new(offers_fast: bool) -> Self {
        Self {
            every: TOLD_EVERY,
            last: Instant::now(),
            offers_fast,
            phase: Phase::Reading,
            done: 0,
            all: 0,
        }
    }

    /// The line to print now, if one is due.
    fn due(&mut self) -> Option<String> {
        if self.last.elapsed() < self.every {
            return None;
        }
        self.last = Instant::now();
        let (phase, done, all) = (name(self.phase), size(self.done), size(self.all));
        let mut line = format!("gannet: {phase}: {done} of {all}");
        if std::mem::take(&mut self.offers_fast) {
            line.push_str(&format!("; {FASTER}"));
        }
        Some(line)
    }
}

impl Progress for ProgressLines {
    fn found(&mut self, _: u64, _: u64) {}

    fn begin(&mut self, phase: Phase, bytes: u64) {
        (self.phase, self.done, self.all) = (phase, 0, bytes);
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(line) = self.due() {
            // Failing to report progress does not stop packing.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    fn end(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_after_its_time_and_offers_the_faster_way_once() {
        let mut lines = ProgressLines::new(true);
        lines.begin(Phase::Compressing, 4096);
        lines.advance(1024);
        assert_eq!(lines.due(), None);
        lines.every = Duration::ZERO;
        let first = lines.due().expect("it is due");
        assert_eq!(
            first,
            format!("gannet: compressing: 1.0 KiB of 4.0 KiB; {FASTER}")
        );
        let next = lines.due().expect("it is due");
        assert_eq!(next, "gannet: compressing: 1.0 KiB of 4.0 KiB");
    }
}
