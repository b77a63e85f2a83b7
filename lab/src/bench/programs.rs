//! Common clients as the load of a scenario: oha, wrk, ab, curl, a Go program and `gannet get`.
//!
//! Every file was fetched and compared before. Load generators must report no error and enough
//! content; every single download must have the right status and length.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{
    h2load::Shape,
    peers::Sources,
    scenario::{Cell, Protocol},
    usage, wrk,
};
use crate::load::{Phase, Plan};
use xtask::certificate::Certificate;
use xtask::process;

/// The request limit given to ab besides its time: it keeps a record of each request.
const AB_REQUESTS_MAX: &str = "1000000";
/// The interval between checks whether a client has ended.
const LOOK: Duration = Duration::from_millis(1);

/// A client program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// oha.
    Oha,
    /// wrk.
    Wrk,
    /// ApacheBench: HTTP/1.0 with `Connection: keep-alive`.
    Ab,
    /// A curl process for each request or download.
    Curl,
    /// `lab/clients/download.go`.
    Go,
    /// `gannet get`.
    Gannet,
}

/// The clients searched for: the path of each, or why it is unavailable.
pub(crate) struct Tools(BTreeMap<Program, Result<PathBuf, String>>);

impl Tools {
    /// Finds, installs or builds `programs`.
    pub(crate) fn find(programs: impl Iterator<Item = Program>, sources: &Sources<'_>) -> Self {
        let mut tools = BTreeMap::new();
        for program in programs {
            tools.entry(program).or_insert_with(|| {
                let found = find(program, sources);
                found.map_err(|e| format!("{e:#}"))
            });
        }
        Self(tools)
    }

    /// The path of `program`; the error is the reason to leave a cell out.
    pub(crate) fn get(&self, program: Program) -> Result<&Path, &str> {
        match self.0.get(&program) {
            Some(Ok(path)) => Ok(path),
            Some(Err(reason)) => Err(reason),
            None => Err("it was not searched for"),
        }
    }
}

fn find(program: Program, sources: &Sources<'_>) -> Result<PathBuf> {
    match program {
        Program::Oha => process::find_or_cargo_install("oha", sources.installs),
        Program::Wrk => process::find_or_install("wrk", "wrk"),
        Program::Ab => process::find_or_install("ab", "apache2-utils"),
        Program::Curl => process::find_or_install("curl", "curl"),
        Program::Gannet => sources.program(),
        Program::Go => build_go(&sources.build.join("download")),
    }
}

/// Builds the Go program as `program`.
pub(super) fn build_go(program: &Path) -> Result<PathBuf> {
    let go = process::find("go").context("go is not installed")?;
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(program);
    build.arg(process::root().join("lab/clients/download.go"));
    build.env("GOTOOLCHAIN", "local").env("GO111MODULE", "off");
    process::capture(&mut build).context("cannot build lab/clients/download.go")?;
    Ok(program.to_owned())
}

/// The figures reported by a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Printed {
    /// Correct responses.
    pub(crate) requests: u64,
    /// Length of the run, in seconds.
    pub(crate) seconds: f64,
    /// Median latency, in microseconds.
    pub(crate) p50_us: Option<f64>,
    /// 99th percentile of the latency, in microseconds.
    pub(crate) p99_us: Option<f64>,
    /// Persistent connections that the server closed.
    pub(crate) closed: u64,
    /// Bytes received, heads included; known for wrk.
    pub(crate) received: Option<f64>,
    /// Share of the time in which the client's processes were on a CPU, over all CPUs; unknown for
    /// wrk.
    pub(crate) client_cpu: Option<f64>,
}

impl Printed {
    /// Content bytes of files with this mean length: where codings are accepted, what was received.
    pub(crate) fn content(&self, cell: &Cell<'_>, mean_len: f64) -> f64 {
        let is_coded = !cell.scenario.load.codings.is_empty();
        let received = self.received.filter(|_| is_coded);
        received.unwrap_or(self.requests as f64 * mean_len)
    }
}

/// A client to run.
pub(crate) struct Driver<'a> {
    /// The client.
    pub(crate) program: Program,
    /// Its path.
    pub(crate) path: &'a Path,
    /// Protocol and certificate.
    pub(crate) shape: Shape<'a>,
    /// A directory for its files.
    pub(crate) work: &'a Path,
}

impl Driver<'_> {
    /// Runs the client: warm-up, then the counted window; calls `observe` at both ends of the
    /// window.
    pub(crate) fn run(&self, plan: &Plan<'_>, observe: &mut dyn FnMut(Phase)) -> Result<Printed> {
        if self.program == Program::Wrk {
            let printed = wrk::run(plan, self.shape, self.work, observe)?;
            return Ok(Printed {
                requests: printed.requests,
                seconds: printed.seconds,
                p50_us: Some(printed.p50_us),
                p99_us: Some(printed.p99_us),
                received: Some(printed.received),
                client_cpu: Some(printed.client_cpu),
                ..Printed::default()
            });
        }
        if !plan.warm_up.is_zero() {
            self.run_for(plan, plan.warm_up)?;
        }
        observe(Phase::Opens);
        let (begin, before) = (Instant::now(), usage::of_ended_children());
        let printed = self.run_for(plan, plan.duration);
        let used = usage::of_ended_children().saturating_sub(before);
        let share = used.as_secs_f64() / begin.elapsed().as_secs_f64();
        observe(Phase::Closes);
        Ok(Printed {
            client_cpu: Some(share),
            ..printed?
        })
    }

    fn run_for(&self, plan: &Plan<'_>, time: Duration) -> Result<Printed> {
        let len = plan.targets[0].content.len();
        match self.program {
            Program::Oha => {
                let open = plan.connections * self.shape.streams;
                parse_oha(&self.generate(plan, time)?, len, open as u64)
            }
            Program::Ab => parse_ab(&self.generate(plan, time)?, len),
            _ => self.download_for(plan, time, len),
        }
    }

    /// Runs a load generator once.
    fn generate(&self, plan: &Plan<'_>, time: Duration) -> Result<String> {
        let mut command = Command::new(self.path);
        let connections = plan.connections.to_string();
        // ab accepts whole seconds only.
        let seconds = time.as_secs().max(1).to_string();
        match self.program {
            Program::Ab => {
                command.args(["-q", "-k", "-c", &connections, "-t", &seconds]);
                command.args(["-n", AB_REQUESTS_MAX]);
            }
            _ => {
                // In less time, a busy machine may not complete a single response.
                let time = format!("{}ms", time.as_millis().max(1000));
                command.args(["--no-tui", "--output-format", "json", "--insecure"]);
                command.args(["-c", &connections, "-z", &time]);
                if self.shape.protocol == Protocol::H2 {
                    command.args(["--http2", "-p", &self.shape.streams.to_string()]);
                }
            }
        }
        command.arg(self.shape.url(plan, &plan.targets[0].path));
        let deadline = Instant::now() + time + plan.connect + plan.stall;
        let mut texts = self.run_all(vec![command], plan, deadline)?;
        texts.pop().context("one client ran")
    }

    /// Downloads repeatedly until `time` is over.
    fn download_for(&self, plan: &Plan<'_>, time: Duration, len: u64) -> Result<Printed> {
        let start = Instant::now();
        let mut requests = 0;
        while requests == 0 || start.elapsed() < time {
            let deadline = Instant::now() + time + plan.connect + plan.stall;
            let texts = self.run_all(self.downloads(plan), plan, deadline)?;
            let mut count = 0;
            for text in &texts {
                count += self.check_downloads(text, len)?;
            }
            let wanted = plan.connections;
            ensure!(count == wanted, "{count} downloads instead of {wanted}");
            requests += count as u64;
        }
        Ok(Printed {
            requests,
            seconds: start.elapsed().as_secs_f64(),
            ..Printed::default()
        })
    }

    /// The processes that download concurrently over all connections.
    fn downloads(&self, plan: &Plan<'_>) -> Vec<Command> {
        let url = self.shape.url(plan, &plan.targets[0].path);
        let connections = plan.connections.to_string();
        let mut command = Command::new(self.path);
        let certificate = self.shape.certificate;
        match self.program {
            Program::Curl => {
                let one = |_| curl(self.path, &url, self.shape.protocol, certificate);
                return (0..plan.connections).map(one).collect();
            }
            Program::Go => {
                command.args([&connections, &url]);
                command.args(certificate.map(|certificate| &certificate.chain));
            }
            _ => {
                // The certificate is self-signed, so it is not verified.
                command.args(["get", "--json", "--quiet", "--insecure"]);
                command.args(["-c", &connections, &url]);
                if self.shape.protocol == Protocol::H2 {
                    command.arg("--http2");
                }
            }
        }
        vec![command]
    }

    /// The number of downloads reported in `text`; all must be correct.
    fn check_downloads(&self, text: &str, len: u64) -> Result<usize> {
        if self.program == Program::Gannet {
            return check_meter(text, len);
        }
        let right = match (self.program, self.shape.protocol) {
            (Program::Go, _) => format!("200 {len}"),
            (_, Protocol::H1) => format!("200 {len} 1.1"),
            (_, Protocol::H2) => format!("200 {len} 2"),
            (_, Protocol::H3) => format!("200 {len} 3"),
        };
        for line in text.lines() {
            ensure!(
                line == right,
                "a download gave '{line}' (expected '{right}')"
            );
        }
        Ok(text.lines().count())
    }

    /// Runs `commands` concurrently to their ends and returns their output.
    fn run_all(
        &self,
        commands: Vec<Command>,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Vec<String>> {
        let mut running = Running(Vec::new());
        for (index, mut command) in commands.into_iter().enumerate() {
            let file = |suffix| self.work.join(format!("client-{index}.{suffix}"));
            let (out, err) = (file("out"), file("err"));
            command.stdin(Stdio::null());
            command
                .stdout(File::create(&out)?)
                .stderr(File::create(&err)?);
            let child = command.spawn();
            let child = child.with_context(|| format!("cannot start {:?}", self.program))?;
            running.0.push((child, out, err));
        }
        let mut texts = Vec::new();
        for (child, out, err) in &mut running.0 {
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                if plan.interrupt.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                ensure!(
                    Instant::now() < deadline,
                    "{:?} did not end in time",
                    self.program
                );
                thread::sleep(LOOK);
            };
            let errors = fs::read_to_string(err).unwrap_or_default();
            let program = self.program;
            ensure!(
                status.success(),
                "{program:?} failed ({status}): {}",
                errors.trim()
            );
            texts.push(fs::read_to_string(out)?);
        }
        Ok(texts)
    }
}

/// Processes that are killed on drop.
struct Running(Vec<(Child, PathBuf, PathBuf)>);

impl Drop for Running {
    fn drop(&mut self) {
        for (child, _, _) in &mut self.0 {
            // Both fail for a process that has ended, which is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn curl(path: &Path, url: &str, protocol: Protocol, certificate: Option<&Certificate>) -> Command {
    let mut command = Command::new(path);
    command.args(["-q", "-sS", "--fail", "-o", "/dev/null"]);
    command.args(["-w", "%{http_code} %{size_download} %{http_version}\\n"]);
    command.arg(match (protocol, certificate) {
        (Protocol::H1, _) => "--http1.1",
        (Protocol::H2, None) => "--http2-prior-knowledge",
        (Protocol::H2, Some(_)) => "--http2",
        (Protocol::H3, _) => "--http3-only",
    });
    if let Some(certificate) = certificate {
        command.args(["--tlsv1.3", "--curves", "X25519"]);
        command.args(["--tls13-ciphers", "TLS_AES_128_GCM_SHA256", "--cacert"]);
        command.arg(&certificate.chain);
    }
    command.arg(url);
    command
}

/// The number of downloads in a report of `gannet get`; all must have `len` bytes.
fn check_meter(text: &str, len: u64) -> Result<usize> {
    let report: serde_json::Value = serde_json::from_str(text).context("gannet get's report")?;
    let connections = report["connections"].as_array();
    let connections = connections.context("gannet get's report names no connections")?;
    for connection in connections {
        let bytes = connection["bytes"].as_u64();
        ensure!(
            bytes == Some(len),
            "a download had {bytes:?} bytes (expected {len})"
        );
    }
    Ok(connections.len())
}

fn parse_ab(text: &str, len: u64) -> Result<Printed> {
    let value = |label: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(label));
        let word = line.and_then(|line| line.split_whitespace().next());
        let value = word.and_then(|word| word.parse().ok());
        value.with_context(|| format!("ab's output has no '{label}':\n{text}"))
    };
    let requests = value("Complete requests:")?;
    let failed = value("Failed requests:")?;
    ensure!(failed == 0.0, "ab saw {failed} wrong responses");
    ensure!(
        !text.contains("Non-2xx responses:"),
        "ab saw statuses other than 2xx"
    );
    let found = value("Document Length:")?;
    ensure!(found == len as f64, "ab got {found} bytes (expected {len})");
    Ok(Printed {
        requests: requests as u64,
        seconds: value("Time taken for tests:")?,
        closed: (requests - value("Keep-Alive requests:")?).max(0.0) as u64,
        // Its times are in whole milliseconds.
        ..Printed::default()
    })
}

fn parse_oha(text: &str, len: u64, open: u64) -> Result<Printed> {
    let report: serde_json::Value = serde_json::from_str(text).context("oha's report")?;
    let number = |group: &str, name: &str| {
        let value = report[group][name].as_f64();
        value.with_context(|| format!("oha's report has no {group}.{name}"))
    };
    let statuses = report["statusCodeDistribution"].as_object();
    let statuses = statuses.context("oha's report has no statusCodeDistribution")?;
    ensure!(
        statuses.keys().all(|status| status == "200"),
        "oha saw statuses other than 200: {statuses:?}"
    );
    // Requests in progress at the end of its time are reported as errors.
    for (error, count) in report["errorDistribution"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let cut = error == "aborted due to deadline" && count.as_u64() <= Some(open);
        ensure!(cut, "oha saw errors: {error} ({count})");
    }
    let requests = statuses.get("200").and_then(serde_json::Value::as_u64);
    let requests = requests.unwrap_or(0);
    let content = number("summary", "totalData")?;
    ensure!(
        content >= requests as f64 * len as f64,
        "oha got {content} bytes in {requests} responses of {len}"
    );
    Ok(Printed {
        requests,
        seconds: number("summary", "total")?,
        p50_us: Some(number("latencyPercentiles", "p50")? * 1e6),
        p99_us: Some(number("latencyPercentiles", "p99")? * 1e6),
        ..Printed::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AB: &str = "Document Length:        13 bytes
Time taken for tests:   1.500 seconds
Complete requests:      3000
Failed requests:        0
Keep-Alive requests:    2990
";
    const OHA: &str = r#"{"summary": {"total": 1.5, "totalData": 26000},
        "latencyPercentiles": {"p50": 0.001, "p99": 0.002},
        "statusCodeDistribution": {"200": 2000},
        "errorDistribution": {"aborted due to deadline": 4}}"#;

    #[test]
    fn ab_is_read_and_its_errors_are_no_figures() {
        let printed = parse_ab(AB, 13).expect("good");
        assert_eq!((printed.requests, printed.closed), (3000, 10));
        for (from, to) in [
            ("Failed requests:        0", "Failed requests:        1"),
            ("13 bytes", "12 bytes"),
            ("Complete", "Incomplete"),
            ("Keep-Alive", "Non-2xx responses: 3\nKeep-Alive"),
        ] {
            assert!(parse_ab(&AB.replace(from, to), 13).is_err(), "{to}");
        }
    }

    #[test]
    fn oha_is_read_and_its_errors_are_no_figures() {
        let printed = parse_oha(OHA, 13, 4).expect("good");
        assert_eq!((printed.requests, printed.p99_us), (2000, Some(2000.0)));
        for (from, to) in [
            ("\"200\": 2000", "\"200\": 1999, \"404\": 1"),
            ("26000", "25999"),
            ("deadline\": 4", "deadline\": 5"),
            ("aborted due to deadline", "connection reset"),
            ("summary", "sum"),
        ] {
            assert!(parse_oha(&OHA.replace(from, to), 13, 4).is_err(), "{to}");
        }
    }

    #[test]
    fn a_short_download_is_no_figure() {
        let report = r#"{"connections": [{"bytes": 10}, {"bytes": 10}]}"#;
        assert_eq!(check_meter(report, 10).expect("good"), 2);
        assert!(check_meter(&report.replace("10}]", "9}]"), 10).is_err());
        assert!(check_meter("{}", 10).is_err());
    }
}
