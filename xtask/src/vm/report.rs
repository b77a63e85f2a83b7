//! Reads the console of a VM: which suites ran, and how many tests passed in each.

use std::collections::BTreeMap;
use std::fmt;

/// The outcome of one boot.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The tests began to run.
    pub(super) has_started: bool,
    /// The tests ran to the end.
    has_finished: bool,
    suites: Vec<Suite>,
    /// Lines of `/proc/net/tls_stat`.
    counters: BTreeMap<String, u64>,
    /// Measurements: name, nanoseconds, and the number of sockets with kernel encryption.
    measured: Vec<(String, u64, u64)>,
    /// The whole console, in case something fails.
    console: Vec<String>,
}

#[derive(Debug, Default)]
struct Suite {
    name: String,
    passed: u32,
    failed: u32,
    /// Whole seconds of its clock.
    seconds: u64,
    status: Option<i32>,
    /// Skipped tests with the reason, without duplicates.
    left_out: Vec<String>,
    first_line: usize,
}

/// Lines shown of a failed boot.
const TAIL_LINES: usize = 30;

impl Report {
    /// Processes one line of the console.
    pub(super) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        self.console.push(line.to_owned());
        if let Some(word) = line.strip_prefix("vm: ") {
            self.own_line(word);
            return;
        }
        let Some(suite) = self.suites.last_mut() else {
            return;
        };
        if let Some((_, counts)) = line.split_once("test result: ") {
            suite.passed += number_before(counts, " passed");
            suite.failed += number_before(counts, " failed");
            let time = counts.split_once("finished in ").map(|(_, time)| time);
            let seconds = time.and_then(|time| time.split('.').next()?.parse::<u64>().ok());
            suite.seconds += seconds.unwrap_or(0);
        } else if let Some((_, reason)) = line.split_once(" left out: ")
            && !suite.left_out.iter().any(|known| known == reason)
        {
            suite.left_out.push(reason.to_owned());
        }
    }

    fn own_line(&mut self, word: &str) {
        let words: Vec<&str> = word.split_whitespace().collect();
        match words[..] {
            ["started", _] => self.has_started = true,
            ["suite", name] => self.suites.push(Suite {
                name: name.to_owned(),
                first_line: self.console.len(),
                ..Suite::default()
            }),
            ["ended", _, "with", status] => {
                if let Some(suite) = self.suites.last_mut() {
                    suite.status = status.parse().ok();
                }
            }
            ["counter", name, value] => {
                let value = value.parse().unwrap_or(0);
                self.counters.insert(name.to_owned(), value);
            }
            // The lines before were the warm-up.
            ["counted"] => self.measured.clear(),
            ["bench", name, cost, encrypted] => {
                let number = |text: &str| text.parse().unwrap_or(0);
                self.measured
                    .push((name.to_owned(), number(cost), number(encrypted)));
            }
            ["finished"] => self.has_finished = true,
            _ => {}
        }
    }

    /// Whether all suites ran to their end without a failure.
    pub(super) fn is_success(&self) -> bool {
        let has_run = self.suites.iter().any(|suite| suite.passed > 0);
        self.has_finished && has_run && self.suites.iter().all(Suite::is_success)
    }

    /// The suites that ran and failed, if the machine reached the end.
    pub(super) fn failed(&self) -> Vec<&str> {
        let failed = self.suites.iter().filter(|suite| !suite.is_success());
        match self.has_finished {
            true => failed.map(|suite| suite.name.as_str()).collect(),
            false => Vec::new(),
        }
    }

    /// Whether the machine reached the end.
    pub(super) fn has_finished(&self) -> bool {
        self.has_finished
    }

    /// Costs of downloads in the order of the runs: name, nanoseconds, and the number of sockets
    /// with kernel encryption.
    pub(super) fn measured(&self) -> &[(String, u64, u64)] {
        &self.measured
    }

    /// `31 passed, 0 failed`.
    pub(super) fn summary(&self) -> String {
        let passed: u32 = self.suites.iter().map(|suite| suite.passed).sum();
        let failed: u32 = self.suites.iter().map(|suite| suite.failed).sum();
        let end = match (self.has_started, self.has_finished) {
            (false, _) => ", it did not boot",
            (true, false) => ", it did not reach the end",
            (true, true) => "",
        };
        format!("{passed} passed, {failed} failed{end}")
    }

    /// The last lines of the console.
    pub(super) fn tail(&self) -> String {
        let from = self.console.len().saturating_sub(TAIL_LINES);
        self.console[from..].join("\n")
    }
}

impl Suite {
    fn is_success(&self) -> bool {
        self.status == Some(0) && self.failed == 0 && self.passed > 0
    }
}

impl fmt::Display for Report {
    /// One line per suite; for a failed suite, its whole output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, suite) in self.suites.iter().enumerate() {
            writeln!(
                f,
                "  {:<13} {:>3} passed in {:>3} s",
                suite.name, suite.passed, suite.seconds
            )?;
            for reason in &suite.left_out {
                writeln!(f, "                left out: {reason}")?;
            }
            if !suite.is_success() {
                let end = self.suites.get(index + 1).map(|next| next.first_line);
                let lines = &self.console[suite.first_line..end.unwrap_or(self.console.len())];
                let status = suite
                    .status
                    .map_or("no end".to_owned(), |s| format!("status {s}"));
                writeln!(
                    f,
                    "  FAILED: {}, {status}:\n{}",
                    suite.name,
                    lines.join("\n")
                )?;
            }
        }
        if !self.has_finished {
            writeln!(f, "  the end of the console:\n{}", self.tail())?;
        }
        let encrypted: u64 = ["TlsTxSw", "TlsTxDevice"]
            .iter()
            .filter_map(|name| self.counters.get(*name))
            .sum();
        let updated = self.counters.get("TlsTxRekeyOk").copied().unwrap_or(0);
        writeln!(
            f,
            "  the kernel encrypted for {encrypted} sockets and replaced {updated} keys"
        )
    }
}

fn number_before(text: &str, mark: &str) -> u32 {
    let before = text.split(mark).next().unwrap_or_default();
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        text.lines().for_each(|line| report.line(line));
        report
    }

    #[test]
    fn counts_what_passed() {
        let report = read(
            "noise\nvm: started 6.1.0\nvm: suite send\nrunning 2 tests\ntest a ... send::a left out: io_uring: too old\r\n\
             test result: ok. 12 passed; 0 failed; 0 ignored; finished in 21.32s\nvm: ended send with 0\n\
             vm: counter TlsTxSw 7\nvm: finished\n",
        );
        assert!(report.has_started && report.is_success());
        assert_eq!(report.summary(), "12 passed, 0 failed");
        let shown = report.to_string();
        assert!(
            shown.contains("left out: io_uring: too old")
                && shown.contains("12 passed in  21 s")
                && shown.contains("for 7 sockets"),
            "{shown}"
        );
    }

    #[test]
    fn what_does_not_end_has_failed() {
        let begin = "vm: started 6.1.0\nvm: suite send\n";
        assert!(!read(begin).is_success());
        let failed = "test result: FAILED. 1 passed; 2 failed\nvm: ended send with 101\n";
        let report = read(&format!("{begin}{failed}vm: finished\n"));
        assert!(!report.is_success());
        assert_eq!(report.failed(), ["send"]);
        assert!(report.to_string().contains("status 101"));
        assert!(!read(&format!("{begin}vm: ended send with 0\nvm: finished\n")).is_success());
        assert_eq!(
            read("panic\n").summary(),
            "0 passed, 0 failed, it did not boot"
        );
    }
}
