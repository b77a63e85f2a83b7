//! Reports the progress of packing: as a bar on a terminal, elsewhere as a line now and then.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use gannet_site::pack::{Phase, Progress};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::quantities::counted;

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

/// The time left after `elapsed` for the part that is done, from the second second on: all of the
/// phase counts, since its parts differ more than it does.
fn left(elapsed: Duration, done: u64, all: u64) -> String {
    if elapsed < Duration::from_secs(1) || done == 0 || all < done {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (all - done) as f64 / done as f64;
    let seconds = seconds.round() as u64;
    match seconds {
        0..100 => format!(", {seconds} s left"),
        100..6000 => format!(", {} min left", (seconds + 30) / 60),
        _ => format!(", {} h left", (seconds + 1800) / 3600),
    }
}

/// The form that fits standard error. If packing takes long, it names the faster way, if there is
/// one.
#[must_use]
pub(in crate::commands) fn shown(offers_fast: bool) -> Box<dyn Progress> {
    match io::stderr().is_terminal() {
        true => Box::new(PackBar::new(offers_fast)),
        false => Box::new(ProgressLines::new(offers_fast)),
    }
}

/// A bar on standard error; create it only if that is a terminal.
#[derive(Debug)]
struct PackBar {
    bar: ProgressBar,
    started: Instant,
    offers_fast: bool,
}

impl PackBar {
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

impl Progress for PackBar {
    fn found(&mut self, file_count: u64, _: u64) {
        self.bar.set_message(counted(file_count, "file"));
        self.bar.tick();
    }

    fn begin(&mut self, phase: Phase, work: u64) {
        self.bar.finish_and_clear();
        self.bar = ProgressBar::new(work);
        let template = "{msg:11} [{bar:30}] {percent:>3} %{left}";
        // An invalid template would leave the default bar; a test checks it.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let left = |state: &ProgressState, out: &mut dyn fmt::Write| {
                let all = state.len().unwrap_or_default();
                let _ = write!(out, "{}", left(state.elapsed(), state.pos(), all));
            };
            self.bar
                .set_style(style.with_key("left", left).progress_chars("=> "));
        }
        self.bar.set_message(name(phase));
    }

    fn advance(&mut self, work: u64) {
        self.bar.inc(work);
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
    begun: Instant,
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
            begun: Instant::now(),
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
        let percent = u128::from(self.done) * 100 / u128::from(self.all.max(1));
        let left = left(self.begun.elapsed(), self.done, self.all);
        let mut line = format!("gannet: {}: {percent} %{left}", name(self.phase));
        if std::mem::take(&mut self.offers_fast) {
            line.push_str(&format!("; {FASTER}"));
        }
        Some(line)
    }
}

impl Progress for ProgressLines {
    fn found(&mut self, _: u64, _: u64) {}

    fn begin(&mut self, phase: Phase, work: u64) {
        (self.phase, self.done, self.all) = (phase, 0, work);
        self.begun = Instant::now();
    }

    fn advance(&mut self, work: u64) {
        self.done += work;
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
    fn the_time_left_follows_from_the_work_done() {
        let check = |ms, done, all, expect: &str| {
            assert_eq!(left(Duration::from_millis(ms), done, all), expect);
        };
        check(999, 1, 2, "");
        check(1000, 0, 2, "");
        check(1000, 1, 2, ", 1 s left");
        check(3000, 1, 31, ", 90 s left");
        check(10_000, 1, 31, ", 5 min left");
        check(10_000, 1, 3001, ", 8 h left");
        check(5000, 3, 2, "");
        check(5000, 2, 2, ", 0 s left");
    }

    #[test]
    fn a_line_is_due_after_its_time_and_offers_the_faster_way_once() {
        let mut lines = ProgressLines::new(true);
        lines.begin(Phase::Compressing, 4096);
        lines.advance(1024);
        assert_eq!(lines.due(), None);
        lines.every = Duration::ZERO;
        let first = lines.due().expect("it is due");
        assert_eq!(first, format!("gannet: compressing: 25 %; {FASTER}"));
        let next = lines.due().expect("it is due");
        assert_eq!(next, "gannet: compressing: 25 %");
    }
}
