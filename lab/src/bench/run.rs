//! One run: one peer, one cell; gives one figure, or the reason why there is none.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::{
    content,
    h2load::{self, Shape},
    peers::{Found, Task},
    programs::{self, Driver},
    scenario::{Cell, Protocol, Unit},
    server::Server,
    statistics, usage, wrk,
};
use crate::load::{self, Content, Order, Phase, Plan, Target, Tls, h3};
use xtask::certificate::Certificate;

/// A CPU that is busy for at least this share of the time is the bottleneck.
const SATURATED: f64 = 0.93;
/// A figure is noisy if other processes use more than this share of the server's CPU.
const NOISE: f64 = 0.05;
/// The quantiles of the latency to record.
const QUANTILES: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0];
/// Maximum silence on all connections before a run fails.
const STALL: Duration = Duration::from_secs(10);

/// Time for a server to accept the last connections of its backlog before requests begin.
const SETTLE: Duration = Duration::from_millis(100);

/// Maximum time until every file comes coded, once each has been asked for.
const CODED_WITHIN: Duration = Duration::from_secs(30);
/// Quiet between two looks, so that a server can code at low priority.
const CODING_PAUSE: Duration = Duration::from_millis(500);

/// The two CPUs of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Cpus {
    /// The server's CPU.
    pub(crate) server: usize,
    /// The client's CPU.
    pub(crate) client: usize,
}

impl Cpus {
    /// Those of the server, with so many workers, and of the client. Where the server has all, the client shares
    /// them.
    fn of(self, workers: Option<usize>) -> (Vec<usize>, Vec<usize>) {
        let Some(workers) = workers else {
            return (vec![self.server], vec![self.client]);
        };
        let all = super::host::allowed_cpus();
        let (server, client) = all.split_at(workers.min(all.len()));
        let client = if client.is_empty() { server } else { client };
        (server.to_vec(), client.to_vec())
    }
}

/// The load client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    /// The lab's own load client, which checks everything.
    Own,
    /// wrk.
    Wrk,
}

/// The method of runs; the same for all runs of a measurement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Method {
    /// Counted time of a run, in seconds.
    pub(crate) duration_s: f64,
    /// Warm-up before it, in seconds.
    pub(crate) warm_up_s: f64,
    /// The CPUs of both sides.
    pub(crate) cpus: Cpus,
    /// The load client.
    pub(crate) client: Client,
    /// Whether servers that have kernel TLS use it.
    #[serde(default)]
    pub(crate) ktls: bool,
}

/// The figures of one run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Figures {
    /// CPU time of the server's process tree, in the unit of the scenario.
    pub(crate) cost: f64,
    /// The part of the cost spent in user mode, 0 to 1.
    pub(crate) user_share: f64,
    /// Responses counted.
    pub(crate) requests: u64,
    /// Responses per second.
    pub(crate) requests_per_s: f64,
    /// Content bits per second, in units of 10^9.
    pub(crate) gigabits_per_s: f64,
    /// Median latency, in microseconds; unknown for ab and downloads.
    pub(crate) p50_us: Option<f64>,
    /// 99th percentile of the latency, in microseconds; unknown for ab and downloads.
    pub(crate) p99_us: Option<f64>,
    /// Quantiles of the latency, 0 to 1, each with its microseconds; empty if unknown.
    #[serde(default)]
    pub(crate) latency_us: Vec<(f64, f64)>,
    /// Mean latency, in microseconds; unknown for wrk.
    pub(crate) mean_us: Option<f64>,
    /// For bursts: median time until the last response of a burst, in microseconds.
    #[serde(default)]
    pub(crate) last_us: Option<f64>,
    /// Peak resident memory of the tree, mapped file pages included, in bytes.
    pub(crate) peak_memory: u64,
    /// Resident anonymous memory of the tree at the end, in bytes.
    pub(crate) anonymous_memory: u64,
    /// Share of the time in which the server's tree was on a CPU.
    pub(crate) server_cpu: f64,
    /// Share of the time in which the client was on a CPU, over all CPUs; unknown for wrk and
    /// h2load.
    pub(crate) client_cpu: Option<f64>,
    /// Share of the time in which other processes used the server's CPU.
    pub(crate) others_cpu: f64,
    /// Connections without a single response; unknown for wrk.
    pub(crate) unserved: Option<usize>,
    /// Responses per connection: minimum, median, maximum; unknown for wrk.
    pub(crate) served: Option<(u64, u64, u64)>,
    /// Connections that the server closed gracefully and that were reopened.
    pub(crate) reconnects: u64,
    /// TLS handshakes within the window, and how many were resumptions; known if each request has
    /// its own.
    #[serde(default)]
    pub(crate) handshakes: Option<(u64, u64)>,
    /// Where codings are accepted: how much of its file a response has, in bytes.
    #[serde(default)]
    pub(crate) coded: Option<CodedLen>,
    /// Responses compared byte for byte within the window.
    pub(crate) verified: u64,
    /// Kernel worker threads of io_uring in the tree.
    pub(crate) io_workers: usize,
    /// Which side was the bottleneck.
    pub(crate) saturated: String,
    /// Reasons to doubt this figure; empty for a clean one.
    pub(crate) flags: Vec<Flag>,
}

/// Bytes of content that the mean response has, as sent; by wrk those of its head as well.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct CodedLen {
    /// Bytes.
    pub(crate) len: f64,
    /// Their share of the bytes of its file.
    pub(crate) share: f64,
}

/// A reason to doubt a figure, with its extent.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Flag {
    /// The reason.
    pub(crate) doubt: Doubt,
    /// The number of connections or threads, or a percentage.
    pub(crate) value: f64,
}

/// The reasons to doubt a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Doubt {
    /// Connections that never got a response.
    Unserved,
    /// Connections that requests per second times latency account for.
    Occupancy,
    /// Persistent connections that the server closed.
    Closed,
    /// Percentage of the server's CPU used by other processes.
    Others,
    /// Kernel worker threads of io_uring.
    IoWorkers,
    /// Percentage of handshakes that were full instead of resumed.
    Full,
    /// Percentage of responses that were not coded although a coding was accepted.
    Plain,
}

impl std::fmt::Display for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.value;
        match self.doubt {
            Doubt::Unserved => write!(f, "{value:.0} connections unserved"),
            Doubt::Occupancy => write!(f, "rate x latency fits {value:.0} connections"),
            Doubt::Closed => write!(f, "{value:.0} connections closed by the server"),
            Doubt::Others => write!(f, "others used {value:.0} % of the server's CPU"),
            Doubt::Full => write!(f, "{value:.0} % of the handshakes were full"),
            Doubt::Plain => write!(f, "{value:.1} % of the responses were not coded"),
            Doubt::IoWorkers => write!(f, "{value:.0} io_uring worker threads"),
        }
    }
}

/// The client that fetches the files of a plan before a run and after it.
#[derive(Clone, Copy)]
pub(super) enum Asker<'a> {
    /// The own client, over HTTP/1.1.
    Own,
    /// The own client, over HTTP/3.
    OwnH3(h3::Shape),
    /// h2load; curl compares.
    H2load(Shape<'a>),
}

/// Measures `found` in `task` once.
pub(crate) fn measure(
    found: &Found,
    task: &Task<'_>,
    method: &Method,
    interrupt: &AtomicBool,
) -> Result<(Figures, String)> {
    let (server_cpus, client_cpus) = method.cpus.of(task.cell.workers);
    super::host::pin(&server_cpus)?;
    let server = Server::start(found, task, interrupt);
    super::host::pin(&client_cpus)?;
    let mut server = server?;
    let load = &task.cell.scenario.load;
    let tls = |check| {
        let make = |c: &Certificate| Tls::new(&c.der, load.resume, check);
        task.certificate.map(make).transpose()
    };
    let (tls, tls_checking) = (tls(false)?, tls(true)?);
    let constant = found.peer.constant().map(|text| {
        let content = Content::new(text.as_bytes().into(), 0, text.len() as u64);
        let with = |target: &Target| Target {
            path: target.path.clone(),
            content: content.clone(),
        };
        task.site.targets.iter().map(with).collect::<Vec<_>>()
    });
    let is_once = load.order == Order::Once;
    let plan = Plan {
        address: server.address,
        targets: constant.as_ref().unwrap_or(&task.site.targets),
        connections: task.cell.connections,
        order: load.order,
        keep_alive: load.keep_alive,
        bursts: load.bursts,
        tls: tls.as_ref(),
        preface: "",
        fields: "",
        codings: &load.codings,
        ack_frequency: load.ack_frequency,
        verify_every: load.verify_every,
        warm_up: Duration::from_secs_f64(if is_once { 0.0 } else { method.warm_up_s }),
        duration: Duration::from_secs_f64(if is_once { 0.0 } else { method.duration_s }),
        stall: STALL,
        // Thousands of connections take a while when a backlog overflows.
        connect: Duration::from_secs(20),
        settle: SETTLE,
        interrupt,
    };
    let asked = Shape {
        protocol: found.peer.protocol(load.protocol),
        streams: task.cell.streams,
        certificate: task.certificate,
        threads: client_cpus.len(),
    };
    let asker = match load.protocol {
        Protocol::H1 => Asker::Own,
        Protocol::H2 => Asker::H2load(asked),
        Protocol::H3 => Asker::OwnH3(match load.rate {
            Some(rate) => h3::Shape::Open(rate),
            None => h3::Shape::Closed(task.cell.streams),
        }),
    };
    let driver = match load.client {
        None => None,
        Some(program) => Some(Driver {
            program,
            path: task
                .tools
                .get(program)
                .map_err(|reason| anyhow!("{reason}"))?,
            shape: asked,
            work: task.work,
        }),
    };
    let to_check = targets_to_check(plan.targets, task.first, load.protocol == Protocol::H2);
    let check = Plan {
        targets: &to_check,
        ..plan.clone()
    };
    let check = Plan {
        tls: tls_checking.as_ref(),
        ..check
    };
    // What is requested for the first time during the run is compared then.
    let checked = match to_check.is_empty() || is_once {
        true => Ok(()),
        false => check_all(&check, asker, task.work),
    };
    let codes_itself = !load.codings.is_empty() && !task.cell.content.compressed;
    let coded = checked.and_then(|()| match codes_itself {
        true => until_coded(&check, interrupt),
        false => Ok(()),
    });
    coded.map_err(|e| explain(e, &mut server))?;
    let mut readings = Readings::default();
    let pid = server.pid();
    let mut observe = |phase| readings.take(phase, pid, &server_cpus);
    let figures = match (driver, asker, method.client) {
        (Some(driver), _, _) => driver.run(&plan, &mut observe).map(Load::Program),
        (None, Asker::H2load(shape), _) => {
            h2load::run(&plan, shape, task.work, &mut observe).map(Load::H2load)
        }
        (None, Asker::OwnH3(shape), _) => h3::run(&plan, shape, &mut observe)
            .map_err(anyhow::Error::from)
            .map(|tally| Load::Own(Box::new(tally))),
        (None, Asker::Own, Client::Wrk) if !load.bursts && !is_once && load.codings.is_empty() => {
            wrk::run(&plan, asked, task.work, &mut observe).map(Load::Wrk)
        }
        (None, Asker::Own, _) => load::run(&plan, &mut observe)
            .map_err(anyhow::Error::from)
            .map(|tally| Load::Own(Box::new(tally))),
    };
    let load = figures.map_err(|e| explain(e, &mut server))?;
    server.check_alive()?;
    // A quick run has fewer files.
    let is_whole = task.site.targets.len() == task.cell.content.files;
    if task.cell.scenario.uncopied && is_whole && found.peer.has_copied(&server.text())? {
        bail!("the archive was copied into memory, which is not what this scenario measures");
    }
    let tls = tls_checking.as_ref();
    answers_still(&plan, asker, tls, task.work).map_err(|e| explain(e, &mut server))?;
    // wrk counts heads as content, and h2load counts its warm-up: the mean file length gives the
    // content transferred.
    let mean_len = task.site.bytes() as f64 / task.site.targets.len() as f64;
    let figures = readings.figures(&load, task.cell, mean_len)?;
    Ok((figures, server.configuration.clone()))
}

/// The files to compare before a run: all of them before a peer's first run, later those that take
/// less time than a run. Over HTTP/2 (`slowly`) that is a single file.
fn targets_to_check(targets: &[Target], first: bool, slowly: bool) -> Vec<Target> {
    let small = |target: &&Target| first || target.content.len() <= content::LARGE;
    let most = if first || !slowly { usize::MAX } else { 1 };
    targets.iter().filter(small).take(most).cloned().collect()
}

/// Fetches every file of `plan` once and compares its content, before anything is measured.
fn check_all(plan: &Plan<'_>, asker: Asker<'_>, work: &Path) -> Result<()> {
    let check = one_pass(plan);
    match asker {
        Asker::Own => load::run(&check, &mut |_| {}).map(drop)?,
        Asker::OwnH3(_) => h3::run(&check, h3::Shape::Closed(1), &mut |_| {}).map(drop)?,
        Asker::H2load(shape) => h2load::check_all(plan, shape, work)?,
    }
    Ok(())
}

/// Each file of `plan` once, one after the other, each compared.
fn one_pass<'a>(plan: &Plan<'a>) -> Plan<'a> {
    Plan {
        connections: 1,
        order: Order::RoundRobin,
        bursts: false,
        verify_every: 1,
        warm_up: Duration::ZERO,
        duration: Duration::ZERO,
        settle: Duration::ZERO,
        ..plan.clone()
    }
}

/// Fetches every file of `plan` until all of them come coded, as each does from a server that codes once
/// what was asked for.
fn until_coded(plan: &Plan<'_>, interrupt: &AtomicBool) -> Result<()> {
    let begin = Instant::now();
    loop {
        let tally = load::run(&one_pass(plan), &mut |_| {})?;
        if tally.coded == plan.targets.len() as u64 {
            return Ok(());
        }
        let (coded, all) = (tally.coded, plan.targets.len());
        if interrupt.load(Ordering::Relaxed) || begin.elapsed() > CODED_WITHIN {
            let seconds = CODED_WITHIN.as_secs();
            bail!("{coded} of {all} files come coded {seconds} s after each was asked for");
        }
        std::thread::sleep(CODING_PAUSE);
    }
}

/// Fetches one file once more, unless that takes as long as a run. Clients ignore requests
/// outstanding at the end of their time: a server that hangs during a run would be judged by its
/// earlier responses.
pub(super) fn answers_still(
    plan: &Plan<'_>,
    asker: Asker<'_>,
    tls: Option<&Tls>,
    work: &Path,
) -> Result<()> {
    let smallest = plan.targets.iter().min_by_key(|t| t.content.len());
    let Some(target) = smallest.filter(|t| t.content.len() <= content::LARGE) else {
        return Ok(());
    };
    let one = std::slice::from_ref(target);
    let check = Plan {
        targets: one,
        tls,
        ..plan.clone()
    };
    check_all(&check, asker, work).context("after the run the server does not answer as before it")
}

/// A dead server explains an error better than the client that encountered it.
fn explain(error: anyhow::Error, server: &mut Server) -> anyhow::Error {
    match server.check_alive() {
        Ok(()) => error,
        Err(death) => death.context(error),
    }
}

enum Load {
    H2load(h2load::Printed),
    Own(Box<load::Tally>),
    Program(programs::Printed),
    Wrk(wrk::Printed),
}

#[derive(Default)]
struct Readings {
    usage: [usage::Usage; 2],
    cpu: [usage::CpuTime; 2],
    at: [Option<Instant>; 2],
    failed: bool,
}

impl Readings {
    fn take(&mut self, phase: Phase, pid: u32, cpus: &[usize]) {
        let index = usize::from(phase == Phase::Closes);
        self.at[index] = Some(Instant::now());
        self.cpu[index] = usage::of_cpus(cpus);
        match usage::of_tree(pid) {
            Ok(usage) => self.usage[index] = usage,
            Err(_) => self.failed = true,
        }
    }

    fn figures(&self, load: &Load, cell: &Cell<'_>, mean_len: f64) -> Result<Figures> {
        let (before, after) = (&self.usage[0], &self.usage[1]);
        if self.failed || before.processes == 0 || after.processes == 0 {
            bail!("cannot read the server's CPU time");
        }
        let [Some(start), Some(end)] = self.at else {
            bail!("the run has no measured window")
        };
        let wall = (end - start).as_secs_f64();
        let cpu = after.cpu_since(before).as_secs_f64();
        let user = after.user.saturating_sub(before.user).as_secs_f64();
        let (requests, body_bytes, seconds) = match load {
            Load::H2load(p) => (p.requests, p.requests as f64 * mean_len, p.seconds),
            Load::Own(t) => (t.requests, t.body_bytes as f64, t.elapsed.as_secs_f64()),
            Load::Program(p) => (p.requests, p.content(cell, mean_len), p.seconds),
            Load::Wrk(p) => (p.requests, p.requests as f64 * mean_len, p.seconds),
        };
        if requests == 0 && cell.scenario.unit == Unit::Request || body_bytes == 0.0 {
            bail!("not one response was counted");
        }
        let cost = match cell.scenario.unit {
            Unit::Request => cpu * 1e6 / requests as f64,
            Unit::Gigabyte => cpu * 1e3 / (body_bytes / 1e9),
        };
        let server_cpu = cpu / wall;
        let others_cpu = (self.cpu[1].share_since(&self.cpu[0]) - server_cpu).max(0.0);
        let mut figures = Figures {
            cost,
            user_share: if cpu > 0.0 { user / cpu } else { 0.0 },
            requests,
            requests_per_s: requests as f64 / seconds,
            gigabits_per_s: body_bytes * 8e-9 / seconds,
            p50_us: None,
            p99_us: None,
            latency_us: Vec::new(),
            mean_us: None,
            last_us: None,
            peak_memory: after.peak_memory,
            anonymous_memory: after.anonymous_memory,
            server_cpu,
            client_cpu: None,
            others_cpu,
            unserved: None,
            served: None,
            reconnects: 0,
            handshakes: None,
            coded: None,
            verified: 0,
            io_workers: before.io_workers.max(after.io_workers),
            saturated: String::new(),
            flags: Vec::new(),
        };
        figures.add_load(load);
        if matches!(load, Load::Program(_)) && !cell.scenario.load.codings.is_empty() {
            let len = body_bytes / requests as f64;
            let share = len / mean_len;
            figures.coded = Some(CodedLen { len, share });
        }
        figures.judge(seconds, cell);
        if let Load::Own(tally) = load
            && tally.wire_bytes.1 > 0
            && tally.coded < tally.requests
            && !cell.content.compressed
        {
            let plain = 1.0 - tally.coded as f64 / tally.requests as f64;
            figures.flags.push(Flag {
                doubt: Doubt::Plain,
                value: plain * 100.0,
            });
        }
        Ok(figures)
    }
}

impl Figures {
    fn add_load(&mut self, load: &Load) {
        match load {
            Load::Own(tally) => {
                let quantile = |q| tally.latency.value_at_quantile(q) as f64 / 1e3;
                self.p50_us = Some(quantile(0.5));
                self.p99_us = Some(quantile(0.99));
                self.latency_us = QUANTILES.map(|q| (q, quantile(q))).to_vec();
                self.mean_us = Some(tally.latency.mean() / 1e3);
                let last_us = tally.last.value_at_quantile(0.5) as f64 / 1e3;
                self.last_us = (!tally.last.is_empty()).then_some(last_us);
                let seconds = tally.elapsed.as_secs_f64();
                self.client_cpu = Some(tally.client_cpu.as_secs_f64() / seconds);
                self.unserved = Some(tally.unserved);
                self.served = Some(tally.served);
                self.reconnects = tally.reconnects;
                self.verified = tally.verified;
                let (wire, plain) = tally.wire_bytes;
                self.coded = (plain > 0).then(|| CodedLen {
                    len: wire as f64 / tally.requests as f64,
                    share: wire as f64 / plain as f64,
                });
                if tally.handshakes > 0 {
                    self.handshakes = Some((tally.handshakes, tally.resumed));
                }
            }
            Load::H2load(printed) => {
                self.mean_us = Some(printed.mean_us);
                self.p50_us = printed.quantile_us(0.5);
                self.p99_us = printed.quantile_us(0.99);
                let quantile = |q| Some((q, printed.quantile_us(q)?));
                self.latency_us = QUANTILES.into_iter().filter_map(quantile).collect();
            }
            Load::Program(printed) => {
                self.p50_us = printed.p50_us;
                self.p99_us = printed.p99_us;
                self.reconnects = printed.closed;
                self.client_cpu = printed.client_cpu;
            }
            Load::Wrk(printed) => {
                self.p50_us = Some(printed.p50_us);
                self.p99_us = Some(printed.p99_us);
                self.client_cpu = Some(printed.client_cpu);
            }
        }
    }

    /// Determines the bottleneck, and the reasons to doubt the figure.
    fn judge(&mut self, seconds: f64, cell: &Cell<'_>) {
        let server = self.server_cpu >= SATURATED * cell.workers.unwrap_or(1) as f64;
        self.saturated = match self.client_cpu {
            Some(client) if client >= SATURATED => {
                if server {
                    "both"
                } else {
                    "client"
                }
            }
            _ if server => "server",
            _ => "neither",
        }
        .to_owned();
        let mut doubt = |doubt, value| self.flags.push(Flag { doubt, value });
        if let Some(count @ 1..) = self.unserved {
            doubt(Doubt::Unserved, count as f64);
        }
        // h2load's mean is that of a sample, which does not match its rate.
        // Between bursts, connections are idle.
        let own = self.unserved.is_some() && !cell.scenario.load.bursts;
        let mean_s = self.mean_us.filter(|_| own).map(|us| us / 1e6);
        let misfit = mean_s.and_then(|m| {
            statistics::misfit(self.requests, seconds, m, cell.connections * cell.streams)
        });
        if let Some(busy) = misfit {
            doubt(Doubt::Occupancy, busy);
        }
        if self.reconnects > 0 {
            doubt(Doubt::Closed, self.reconnects as f64);
        }
        if cell.scenario.load.resume
            && let Some((all, resumed)) = self.handshakes
            && (resumed as f64) < 0.99 * all as f64
        {
            doubt(Doubt::Full, 100.0 * (1.0 - resumed as f64 / all as f64));
        }
        if self.others_cpu > NOISE {
            doubt(Doubt::Others, self.others_cpu * 100.0);
        }
        if self.io_workers > 0 {
            doubt(Doubt::IoWorkers, self.io_workers as f64);
        }
    }
}
