//! Measures what a visitor of cached files waits while others flood the server.
//!
//! ```text
//!   codings   others ask for ever new text, which gannet compresses in the background
//!   clients   10,000 addresses ask for twice what client.requests allows each
//!   disk      others ask for large files that are never cached, from a slow disk
//! ```
//!
//! The visitor's requests are an open loop. Calm and flooded windows alternate, and what counts begins
//! when the flood is up:
//!
//! ```text
//!   calm:     ├ warm ┤├── counts ──┤
//!   flooded:  ├ until it is up ┤├ warm ┤├── counts ──┤      and again
//! ```
//!
//! The bounds are printed beside the figures, and one that is not met ends the run with an error. So
//! does a flood that was less than intended: it says nothing about the server.

mod clients;
mod codings;
mod disk;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gannet_testkit::client::Client;
use lexopt::prelude::*;
use xtask::process;
use xtask::served::Served;

use crate::open_loop::{self, Latencies, Pace};
use crate::swap::verdict;

const HELP: &str = "\
cargo xtask flood [FLAGS] [NAME]...

  NAME             codings, clients or disk; default: all of them
  --seconds N      of each measurement, in four windows; default: 20
  --engine NAME    io_uring or epoll; default: the server's choice
  --gannet PATH    measure this binary instead of building a release
";

/// Prints what it measures; returns whether all bounds are met, by a flood as it was intended.
type Scenario = fn(&Setting) -> Result<bool>;

/// What is flooded, and how.
const SCENARIOS: [(&str, Scenario); 3] = [
    ("codings", codings::run),
    ("clients", clients::run),
    ("disk", disk::run),
];

/// Requests a second of the visitor.
const RATE: u32 = 400;

/// The visitor's connections, each on a thread of its own.
const CONNECTIONS: usize = 8;

/// How long the visitor asks before what counts: caches and clocks warm up.
const WARM: Duration = Duration::from_secs(2);

/// Windows with a flood, and as many without: what changes slowly on the machine is part of both.
const WINDOWS: u32 = 4;

/// Name and content of the file for which the visitor asks.
const CACHED: (&str, &str) = ("cached.css", "body { margin: 0 }\n");

/// Niceness of the flood's threads.
const NICE: i32 = 19;

/// What a flood may make of the visitor's 99th percentile, as a factor.
const P99_FACTOR_MAX: f64 = 2.0;

/// The part of the intended rate that a flood must reach to be one.
const RATE_PART_MIN: f64 = 0.8;

/// What is the same for all scenarios.
struct Setting {
    /// Below the folder of temporary files.
    folder: PathBuf,
    time: Duration,
    engine: Option<String>,
    gannet: PathBuf,
}

/// `cargo xtask flood`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut seconds, mut engine, mut gannet) = (20, None, None);
    let mut names = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => seconds = parser.value()?.parse()?,
            Long("engine") => engine = Some(parser.value()?.string()?),
            Long("gannet") => gannet = Some(PathBuf::from(parser.value()?).canonicalize()?),
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Value(name) => names.push(name.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    for name in &names {
        let is_known = SCENARIOS.iter().any(|(known, _)| known == name);
        ensure!(is_known, "no scenario is called '{name}'; see --help");
    }
    let gannet = match gannet {
        Some(path) => path,
        None => process::build(&["-p", "gannet"], "dist")?,
    };
    let folder = std::env::temp_dir().join(format!("gannet-flood-{}", std::process::id()));
    let setting = Setting {
        folder,
        time: Duration::from_secs(seconds),
        engine,
        gannet,
    };
    let mut is_met = true;
    for (name, scenario) in SCENARIOS {
        if names.is_empty() || names.iter().any(|it| it == name) {
            fs::create_dir_all(&setting.folder)?;
            fs::write(setting.folder.join(CACHED.0), CACHED.1)?;
            let result = scenario(&setting).context(name);
            fs::remove_dir_all(&setting.folder)?;
            is_met &= result?;
        }
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores < 4 {
        println!("clients and server share {cores} cores, which is part of every latency");
    }
    ensure!(
        is_met,
        "a bound is not met, or there is no verdict, see above"
    );
    Ok(())
}

impl Setting {
    /// Serves the folder.
    fn serve(&self, flags: &[&str]) -> Result<(Served, SocketAddr)> {
        let mut command = Command::new(&self.gannet);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "off"]);
        command.args(self.engine.iter().flat_map(|it| ["--engine", it.as_str()]));
        command.args(flags).arg(&self.folder);
        command.stderr(Stdio::inherit());
        let server = Served::start(&mut command)?.context("the server does not start")?;
        let address = (Ipv4Addr::LOCALHOST, server.port.parse()?).into();
        Ok((server, address))
    }

    /// How long one window counts.
    fn window(&self) -> Duration {
        self.time / WINDOWS
    }

    /// One window of the visitor, from the addresses that `connect` chooses, while `flood` runs.
    fn visit_during(
        &self,
        connect: impl Fn() -> Result<Vec<Client>>,
        rate: u32,
        flood: impl FnOnce(&Flood) -> Result<()> + Send,
    ) -> Result<Window> {
        let warm = Pace { rate, time: WARM };
        let real = Pace {
            time: self.window(),
            ..warm
        };
        let state = Flood::default();
        thread::scope(|scope| {
            let flooding = scope.spawn(|| flood(&state));
            while !state.is_up() && !flooding.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
            let visit = |pace| open_loop::run::<1>(connect()?, pace, |client, _| ask(client));
            let visited = visit(warm).and_then(|_| {
                let (before, start) = (state.count(), Instant::now());
                let [latencies] = visit(real)?;
                let flooded = (state.count() - before) as f64;
                Ok(Window {
                    latencies,
                    flooded: flooded / start.elapsed().as_secs_f64(),
                })
            });
            state.is_over.store(true, Ordering::SeqCst);
            match flooding.join() {
                Ok(result) => result?,
                Err(_) => bail!("a request of the flood failed, see above"),
            }
            visited
        })
    }

    /// All windows in turn: those of the first kind, and those of the second.
    fn alternate(
        &self,
        mut first: impl FnMut() -> Result<Window>,
        mut second: impl FnMut() -> Result<Window>,
    ) -> Result<[Window; 2]> {
        let mut all = [Window::none()?, Window::none()?];
        for _ in 0..WINDOWS {
            let [calm, flooded] = all;
            all = [calm.with(&first()?)?, flooded.with(&second()?)?];
        }
        Ok(all)
    }
}

/// A flood while it runs, shared by its threads.
#[derive(Default)]
struct Flood {
    /// Its threads that have still to begin, once that is known.
    beginning: AtomicU64,
    is_known: AtomicBool,
    is_over: AtomicBool,
    /// What it has done: requests, or bytes.
    count: AtomicU64,
}

impl Flood {
    /// It has so many threads.
    fn has(&self, threads: u64) {
        self.beginning.store(threads, Ordering::SeqCst);
        self.is_known.store(true, Ordering::SeqCst);
    }

    /// One of them is at work.
    fn begins(&self) {
        self.beginning.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_up(&self) -> bool {
        self.is_known.load(Ordering::SeqCst) && self.beginning.load(Ordering::SeqCst) == 0
    }

    /// Whether its threads are to end.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn add(&self, count: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// What a visitor has measured, in one window or in several.
struct Window {
    latencies: Latencies,
    /// What the flood did a second meanwhile; the least of several windows.
    flooded: f64,
}

impl Window {
    fn none() -> Result<Self> {
        Ok(Self {
            latencies: Latencies::new()?,
            flooded: f64::INFINITY,
        })
    }

    fn with(self, more: &Self) -> Result<Self> {
        Ok(Self {
            latencies: self.latencies.with(&more.latencies)?,
            flooded: self.flooded.min(more.flooded),
        })
    }
}

/// Asks for the cached file.
fn ask(client: &mut Client) -> usize {
    let response = client.get(&format!("/{}", CACHED.0)).expect(200);
    assert_eq!(response.text(), CACHED.1);
    0
}

/// The visitor's connections, from one address.
fn from_one_address(address: SocketAddr) -> Result<Vec<Client>> {
    let connect = |_| Client::try_connect(address).context("the visitor cannot connect");
    (0..CONNECTIONS).map(connect).collect()
}

/// Prints one measurement.
fn print(scenario: &str, what: &str, latencies: &Latencies) {
    let [p50, p99, most] = [50.0, 99.0, 100.0].map(|percent| latencies.percentile(percent));
    let count = latencies.count();
    println!(
        "{scenario}: {what}: p50 {p50:.2} ms, p99 {p99:.2} ms, most {most:.2} ms of {count} requests"
    );
}

/// Prints what a flood does to the 99th percentile; returns whether that is within the bound, and each of
/// the floods that there were was about as fast as intended, in requests a second.
fn compare(
    scenario: &str,
    calm: &Latencies,
    flooded: &Latencies,
    rates: &[f64],
    rate: f64,
) -> bool {
    let factor = flooded.percentile(99.0) / calm.percentile(99.0);
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    println!(
        "{scenario}: the flood asked {least:.0} times a second at least, of {rate:.0} intended"
    );
    if !is_flood(least, rate) {
        println!("{scenario}: p99 {factor:.2} times (NO verdict: that was not the flood intended)");
        return false;
    }
    let is_met = factor <= P99_FACTOR_MAX;
    let verdict = verdict(is_met);
    println!("{scenario}: p99 {factor:.2} times (bound: {P99_FACTOR_MAX}, {verdict})");
    is_met
}

fn is_flood(rate: f64, intended: f64) -> bool {
    rate >= RATE_PART_MIN * intended
}

/// Lowers the priority of a thread of a flood: real ones do not run on the processors of the server
/// and of its visitors.
fn give_way() -> Result<()> {
    rustix::process::setpriority_process(None, NICE).context("cannot lower a priority")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_flood_is_none() {
        assert!(is_flood(400.0, 500.0));
        assert!(!is_flood(399.0, 500.0));
        let least = |rates: [f64; 2]| {
            let window = |flooded| Window {
                latencies: Latencies::new().expect("memory"),
                flooded,
            };
            let both = rates.map(window);
            let all = Window::none().and_then(|it| it.with(&both[0])?.with(&both[1]));
            all.expect("alike").flooded
        };
        assert_eq!(least([500.0, 100.0]), 100.0);
        assert_eq!(least([100.0, 500.0]), 100.0);
    }

    #[test]
    fn a_flood_is_up_when_all_of_it_is() {
        let flood = Flood::default();
        assert!(!flood.is_up());
        flood.has(2);
        flood.begins();
        assert!(!flood.is_up());
        flood.begins();
        assert!(flood.is_up());
    }
}
