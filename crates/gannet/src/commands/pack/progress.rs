//! Telling how far packing is: to a person at a terminal by a bar, elsewhere by a line now and then.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use gannet_site::pack::{Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::quantities::size;

/// After so much time a line says how far packing is, where no bar does, and that there is a faster
/// way. Most sites are packed by then, and the log of a build gets few lines.
const TOLD_EVERY: Duration = Duration::from_secs(20);

/// What to do about a pack that takes long.
const FASTER: &str = "'--fast' packs several times as fast, for trying things out";

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Reading => "reading",
        Phase::Compressing => "compressing",
    }
}

/// A bar on standard error. Make one only if standard error is a terminal.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
    started: Instant,
    offers_fast: bool,
}

impl Bar {
    /// A bar that shows when packing begins. If packing takes long it names the faster way, if
    /// there is one.
    #[must_use]
    pub(super) fn new(offers_fast: bool) -> Self {
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
        // The default bar serves as well if the template were wrong; a test holds it right.
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

/// A line on standard error now and then, for logs of builds.
#[derive(Debug)]
pub(super) struct ProgressLines {
    every: Duration,
    last: Instant,
    offers_fast: bool,
    phase: Phase,
    done: u64,
    all: u64,
}

impl ProgressLines {
    /// Shows nothing if packing finishes quickly. The first line names the faster way, if there is
    /// one.
    #[must_use]
    pub(super) fn new(offers_fast: bool) -> Self {
        Self {
            every: TOLD_EVERY,
            last: Instant::now(),
            offers_fast,
            phase: Phase::Reading,
            done: 0,
            all: 0,
        }
    }

    /// The line that is due, if one is.
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
            // Who does not read it does not stop the pack.
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
