//! h2load as the client for HTTP/2, and for HTTP/1.1 in comparisons of both.
//!
//! h2load checks statuses but not contents: curl fetches every file once before a measurement, and
//! the number of content bytes must be plausible.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use super::scenario::Protocol;
use crate::load::{Phase, Plan};
use xtask::certificate::Certificate;
use xtask::process;

/// Parameters of h2load in addition to a plan.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'a> {
    /// The protocol.
    pub(crate) protocol: Protocol,
    /// Requests outstanding on each connection.
    pub(crate) streams: usize,
    /// The server's certificate; clear text if there is none.
    pub(crate) certificate: Option<&'a Certificate>,
    /// Threads of the client.
    pub(crate) threads: usize,
}

impl Shape<'_> {
    /// The URL of `path`.
    pub(crate) fn url(&self, plan: &Plan<'_>, path: &str) -> String {
        let scheme = if self.certificate.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}{path}", plan.address)
    }

    /// Connections, and requests outstanding on each: HTTP/1.1 uses a connection per stream.
    pub(crate) fn connections(&self, plan: &Plan<'_>) -> (usize, usize) {
        match self.protocol {
            Protocol::H2 | Protocol::H3 => (plan.connections, self.streams),
            Protocol::H1 => (plan.connections * self.streams, 1),
        }
    }
}

/// The output of h2load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Printed {
    /// Correct responses.
    pub(crate) requests: u64,
    /// Length of the run, in seconds.
    pub(crate) seconds: f64,
    /// Content bytes, those of the warm-up included.
    pub(crate) content: u64,
    /// Mean time of a request, in microseconds.
    pub(crate) mean_us: f64,
    /// The time of each request in microseconds, in ascending order; empty if unknown.
    pub(crate) times_us: Vec<u32>,
    /// The negotiated protocol.
    pub(crate) protocol: String,
    /// The cipher suite, over TLS.
    pub(crate) cipher: Option<String>,
}

/// Fetches every target once with curl over the protocol of `shape`, and compares its content.
pub(crate) fn check_all(plan: &Plan<'_>, shape: Shape<'_>, work: &Path) -> Result<()> {
    process::find_or_install("curl", "curl")?;
    let output = work.join("fetched");
    fs::create_dir(&output)?;
    // In clear text, curl 7.88 fails on a reused connection: one run per file.
    let together = match shape.certificate {
        Some(_) => plan.targets.len(),
        None => 1,
    };
    let mut versions = String::new();
    for (group, targets) in plan.targets.chunks(together).enumerate() {
        let mut list = String::new();
        for (index, target) in targets.iter().enumerate() {
            let file = output.join((group * together + index).to_string());
            let url = shape.url(plan, &target.path);
            let _ = writeln!(list, "url = \"{url}\"\noutput = \"{}\"", file.display());
        }
        versions.push_str(&fetch(&list, shape, work)?);
        versions.push('\n');
    }
    let wanted = match shape.protocol {
        Protocol::H1 => "1.1",
        Protocol::H2 => "2",
        Protocol::H3 => "3",
    };
    for (index, target) in plan.targets.iter().enumerate() {
        let version = versions.lines().nth(index).unwrap_or("none");
        let path = &target.path;
        ensure!(version == wanted, "'{path}' was sent over HTTP/{version}");
        let bytes = fs::read(output.join(index.to_string())).unwrap_or_default();
        let same = bytes.len() as u64 == target.content.len() && target.content.matches(0, &bytes);
        ensure!(same, "wrong response to '{path}': the content differs");
    }
    fs::remove_dir_all(output)?;
    Ok(())
}

/// Fetches the files in `list` with curl; returns the HTTP version of each, one per line.
fn fetch(list: &str, shape: Shape<'_>, work: &Path) -> Result<String> {
    let config = work.join("curl.conf");
    fs::write(&config, list)?;
    let mut curl = Command::new("curl");
    curl.args([
        "-q",
        "-sS",
        "--fail",
        "-w",
        "%{http_version}\\n",
        "--max-time",
        "20",
    ]);
    curl.arg(match (shape.protocol, shape.certificate) {
        (Protocol::H1, _) => "--http1.1",
        (Protocol::H2, None) => "--http2-prior-knowledge",
        (Protocol::H2, Some(_)) => "--http2",
        (Protocol::H3, _) => "--http3-only",
    });
    if let Some(certificate) = shape.certificate {
        curl.arg("--cacert").arg(&certificate.chain);
    }
    curl.arg("--config").arg(&config).stdin(Stdio::null());
    process::capture(&mut curl).context("fetching every file once")
}

/// Runs h2load: warm-up, then the counted window; calls `observe` at both ends of the window.
pub(crate) fn run(
    plan: &Plan<'_>,
    shape: Shape<'_>,
    work: &Path,
    observe: &mut dyn FnMut(Phase),
) -> Result<Printed> {
    let (urls, errors) = (work.join("urls"), work.join("h2load.err"));
    let log = work.join("h2load.log");
    let mut text = String::new();
    for target in plan.targets {
        let _ = writeln!(text, "{}", shape.url(plan, &target.path));
    }
    fs::write(&urls, text)?;
    let (connections, streams) = shape.connections(plan);
    let mut command = Command::new("h2load");
    let threads = shape.threads.min(connections);
    command.args([
        &format!("-t{threads}"),
        &format!("-c{connections}"),
        &format!("-m{streams}"),
    ]);
    let milliseconds = |time: Duration| format!("{}ms", time.as_millis().max(1));
    command.args(["-D", &milliseconds(plan.duration)]);
    command.args(["--warm-up-time", &milliseconds(plan.warm_up)]);
    command.args([
        "--tls13-ciphers",
        "TLS_AES_128_GCM_SHA256",
        "--groups",
        "X25519",
    ]);
    if shape.protocol == Protocol::H1 {
        command.arg("--h1");
    }
    command.arg("--log-file").arg(&log);
    command.arg("-i").arg(&urls).stdin(Stdio::null());
    command
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&errors)?);
    let mut child = command.spawn().context("cannot start h2load")?;
    let text = follow(&mut child, plan, observe);
    if text.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let text = text?;
    let errors = fs::read_to_string(&errors).unwrap_or_default();
    ensure!(
        status.success(),
        "h2load failed ({status}): {}",
        errors.trim()
    );
    let mut printed = parse(&text)?;
    check(&printed, plan, shape)?;
    let times = times(BufReader::new(fs::File::open(&log)?))?;
    // A log with another number of requests is not that of the figures.
    if times.len() as u64 == printed.requests {
        printed.times_us = times;
    }
    fs::remove_file(log)?;
    Ok(printed)
}

/// The times in h2load's log in ascending order: each line has start, status and time of a request,
/// in microseconds.
fn times(log: impl BufRead) -> Result<Vec<u32>> {
    let mut times = Vec::new();
    for line in log.lines() {
        let line = line?;
        let time = line.split('\t').nth(2).and_then(|time| time.parse().ok());
        times.push(time.with_context(|| format!("h2load logged '{line}'"))?);
    }
    times.sort_unstable();
    Ok(times)
}

impl Printed {
    /// The time not exceeded by the share `quantile` (0 to 1) of the requests.
    pub(crate) fn quantile_us(&self, quantile: f64) -> Option<f64> {
        let rank = (quantile * self.times_us.len() as f64).ceil() as usize;
        let time = self.times_us.get(rank.saturating_sub(1))?;
        Some(f64::from(*time))
    }
}

/// Reads h2load's output while it runs, which announces the beginning and end of its window.
fn follow(child: &mut Child, plan: &Plan<'_>, observe: &mut dyn FnMut(Phase)) -> Result<String> {
    let output = child.stdout.take().context("h2load's output")?;
    let (mut text, mut phases) = (String::new(), 0);
    thread::scope(|scope| {
        let (sender, lines) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        // A run that does not end is killed: it stalls on the server.
        let deadline =
            std::time::Instant::now() + plan.connect + plan.warm_up + plan.duration + plan.stall;
        loop {
            use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
            match lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => {
                    if phases == 0 && line.starts_with("Main benchmark duration is started") {
                        observe(Phase::Opens);
                        phases = 1;
                    } else if phases == 1 && line.starts_with("Main benchmark duration is over") {
                        observe(Phase::Closes);
                        phases = 2;
                    }
                    text.push_str(&line);
                    text.push('\n');
                }
                Err(Disconnected) => return Ok(()),
                Err(Timeout) => {
                    let late = std::time::Instant::now() > deadline;
                    let stop = plan.interrupt.load(Ordering::Relaxed);
                    if late || stop {
                        let _ = child.kill();
                        bail!(if stop {
                            "interrupted"
                        } else {
                            "h2load did not end in time"
                        });
                    }
                }
            }
        }
    })?;
    ensure!(phases == 2, "h2load had no measured window:\n{text}");
    Ok(text)
}

fn parse(text: &str) -> Result<Printed> {
    let missing = || format!("h2load's output has an unknown form:\n{text}");
    let line = |start: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(start))
            .with_context(missing)
    };
    let numbers = |line: &str| -> Vec<u64> {
        line.split_whitespace()
            .filter_map(|word| word.trim_matches(|c| "(),".contains(c)).parse().ok())
            .collect()
    };
    // total, started, done, succeeded, failed, errored, timeout
    let requests = line("requests:")?;
    let counts = numbers(requests);
    let &[.., succeeded, failed, errored, timeout] = counts.as_slice() else {
        bail!(missing());
    };
    ensure!(
        failed == 0 && errored == 0 && timeout == 0,
        "h2load saw errors: {}",
        requests.trim()
    );
    let seconds = line("finished in ")?.split(',').next().and_then(micros);
    // The exact numbers are in parentheses: total, fields, content.
    let traffic = numbers(line("traffic:")?);
    let mean = line("time for request:")?.split_whitespace().nth(2);
    Ok(Printed {
        requests: succeeded,
        seconds: seconds.with_context(missing)? / 1e6,
        content: *traffic.last().with_context(missing)?,
        mean_us: mean.and_then(micros).with_context(missing)?,
        times_us: Vec::new(),
        protocol: line("Application protocol:")?.trim().to_owned(),
        cipher: line("Cipher:").ok().map(|cipher| cipher.trim().to_owned()),
    })
}

/// Checks that the run did what was requested.
fn check(printed: &Printed, plan: &Plan<'_>, shape: Shape<'_>) -> Result<()> {
    let wanted = match (shape.protocol, shape.certificate) {
        (Protocol::H1, _) => "http/1.1",
        (Protocol::H2, Some(_)) => "h2",
        (Protocol::H2, None) => "h2c",
        (Protocol::H3, _) => "h3",
    };
    let found = &printed.protocol;
    ensure!(
        found == wanted,
        "the server agreed on {found}, not on {wanted}"
    );
    if shape.certificate.is_some() {
        let cipher = printed.cipher.as_deref().unwrap_or("none");
        ensure!(cipher == "TLS_AES_128_GCM_SHA256", "the cipher is {cipher}");
    }
    // The count includes the content of the warm-up, so that only too little content can be
    // detected.
    let lens = plan.targets.iter().map(|target| target.content.len());
    let (connections, streams) = shape.connections(plan);
    let open = (connections * streams) as u64;
    let fewest = printed.requests.saturating_sub(open) * lens.min().unwrap_or(0);
    let (content, requests) = (printed.content, printed.requests);
    ensure!(
        content >= fewest,
        "{content} content bytes for {requests} responses (expected at least {fewest})"
    );
    Ok(())
}

/// A time such as `12us`, `1.20ms`, `2.00s`, in microseconds.
fn micros(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match &text[unit..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(text[..unit].parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "TLS Protocol: TLSv1.3
Cipher: TLS_AES_128_GCM_SHA256
Application protocol: h2

finished in 1.50s, 2000.00 req/s, 265.75KB/s
requests: 2002 total, 2004 started, 2002 done, 2002 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 2002 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 265.75KB (272132) total, 205.08KB (210000) headers (space savings 40.00%), 25.39KB (26026) data
                     min         max         mean         sd        +/- sd
time for request:       38us      3.64ms        96us       159us    99.80%
";

    #[test]
    fn figures_are_read() {
        let expect = Printed {
            requests: 2002,
            seconds: 1.5,
            content: 26_026,
            mean_us: 96.0,
            times_us: Vec::new(),
            protocol: "h2".into(),
            cipher: Some("TLS_AES_128_GCM_SHA256".into()),
        };
        assert_eq!(parse(GOOD).expect("good output"), expect);
    }

    #[test]
    fn quantiles_come_from_the_log() {
        let log = "1\t200\t30\n2\t200\t10\n3\t200\t20\n4\t200\t40\n";
        let mut printed = parse(GOOD).expect("good output");
        assert_eq!(printed.quantile_us(0.5), None);
        printed.times_us = times(log.as_bytes()).expect("good log");
        let found = [0.0, 0.5, 0.75, 0.99, 1.0].map(|q| printed.quantile_us(q));
        assert_eq!(found, [10.0, 20.0, 30.0, 40.0, 40.0].map(Some));
        assert!(times("1 200 30\n".as_bytes()).is_err());
    }

    #[test]
    fn errors_are_no_figures() {
        for (from, to) in [
            ("0 failed", "2 failed"),
            ("0 errored", "1 errored"),
            ("0 timeout", "3 timeout"),
            ("requests:", "requests"),
            ("time for request:", "time:"),
        ] {
            assert!(parse(&GOOD.replace(from, to)).is_err(), "{to}");
        }
    }
}
