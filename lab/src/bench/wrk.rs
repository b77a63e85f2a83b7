//! wrk as a second opinion: another client that says the same, or does not.
//!
//! wrk checks statuses but neither lengths nor contents, does not tell which connections were
//! served, and its warm-up is a run of its own.

use std::{
    fmt::Write,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use crate::load::{Phase, Plan};

/// What wrk printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Printed {
    /// Responses.
    pub(crate) requests: u64,
    /// Length of the run, in seconds.
    pub(crate) seconds: f64,
    /// Median latency, in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub(crate) p99_us: f64,
}

/// Runs wrk once to warm up and once for figures.
pub(crate) fn run(plan: &Plan<'_>, work: &Path, observe: &mut dyn FnMut(Phase)) -> Result<Printed> {
    let script = work.join("paths.lua");
    fs::write(&script, paths_script(plan))?;
    if !plan.warm_up.is_zero() {
        run_once(plan, &script, work, plan.warm_up)?;
    }
    observe(Phase::Opens);
    let text = run_once(plan, &script, work, plan.duration);
    observe(Phase::Closes);
    let printed = parse(&text?)?;
    let (connections, seconds) = (plan.connections, printed.seconds);
    ensure!(
        printed.requests > 0,
        "wrk got no response: before its first request it opens {connections} connections, one after \
         the other, and that took {seconds} s; give it a longer --duration"
    );
    Ok(printed)
}

fn run_once(plan: &Plan<'_>, script: &Path, work: &Path, time: Duration) -> Result<String> {
    let seconds = time.as_secs().max(1);
    let output = work.join("wrk.out");
    let mut command = Command::new("wrk");
    command.args(["-t1", "--latency", "--timeout", "10s"]);
    command
        .arg(format!("-c{}", plan.connections))
        .arg(format!("-d{seconds}s"));
    if !plan.keep_alive {
        command.args(["-H", "Connection: close"]);
    }
    command
        .arg("-s")
        .arg(script)
        .arg(format!("http://{}{}", plan.address, plan.targets[0].path));
    command
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output)?);
    let mut child = command.spawn().context("cannot start wrk")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if plan.interrupt.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            bail!("interrupted");
        }
        thread::sleep(Duration::from_millis(5));
    };
    ensure!(status.success(), "wrk failed: {status}");
    Ok(fs::read_to_string(output)?)
}

/// A script that asks for one path after the other; none is needed for a single path.
fn paths_script(plan: &Plan<'_>) -> String {
    if plan.targets.len() == 1 {
        return String::new();
    }
    let mut script = String::from("local paths = {\n");
    for target in plan.targets {
        // Paths are made by the runner: no quote is among their characters.
        let _ = writeln!(script, "  \"{}\",", target.path);
    }
    script.push_str(
        "}
local at, ready = 0, {}
init = function(arguments)
  for i, path in ipairs(paths) do ready[i] = wrk.format(nil, path) end
end
request = function()
  at = at % #ready + 1
  return ready[at]
end
",
    );
    script
}

fn parse(text: &str) -> Result<Printed> {
    for line in text.lines().map(str::trim) {
        let errors = line.starts_with("Socket errors:") || line.starts_with("Non-2xx");
        ensure!(!errors, "wrk saw errors: {line}");
    }
    let missing = || format!("wrk's output has an unknown form:\n{text}");
    let total = text
        .lines()
        .find(|line| line.contains(" requests in "))
        .with_context(missing)?;
    let (requests, rest) = total
        .trim()
        .split_once(" requests in ")
        .with_context(missing)?;
    let seconds = rest
        .split(',')
        .next()
        .and_then(micros)
        .with_context(missing)?
        / 1e6;
    let percentile = |label: &str| {
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(label));
        line.and_then(|value| micros(value.trim()))
            .with_context(missing)
    };
    Ok(Printed {
        requests: requests.parse().ok().with_context(missing)?,
        seconds,
        p50_us: percentile("50%")?,
        p99_us: percentile("99%")?,
    })
}

/// A time such as `12.34us`, `1.20ms`, `2.00s` or `1.10m`, in microseconds.
fn micros(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match &text[unit..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 6e7,
        _ => return None,
    };
    Some(text[..unit].parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Running 2s test @ http://127.0.0.1:1/
  Latency Distribution
     50%  310.00us
     75%  400.00us
     99%    1.20ms
  301215 requests in 2.10s, 70.95MB read
Requests/sec: 143435.71
";

    #[test]
    fn figures_are_read() {
        let printed = parse(GOOD).expect("good output");
        let expect = Printed {
            requests: 301_215,
            seconds: 2.1,
            p50_us: 310.0,
            p99_us: 1200.0,
        };
        assert_eq!(printed, expect);
    }

    #[test]
    fn errors_are_no_figures() {
        let socket = format!("{GOOD}  Socket errors: connect 0, read 5, write 0, timeout 0\n");
        assert!(parse(&socket).is_err());
        assert!(parse(&format!("{GOOD}  Non-2xx or 3xx responses: 7\n")).is_err());
        assert!(parse("Running 2s test").is_err());
    }
}
