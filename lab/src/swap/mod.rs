//! Swaps releases of a served archive under load, as often as asked, and measures what that costs.
//!
//! ```text
//!   publisher   gannet publish, gannet rollback ─▶ store ─▶ server, two workers
//!   visitors    a page, then its assets on other connections; every byte is checked
//!   open loop   latency of others while an archive of 100,000 files is replaced at its path
//! ```
//!
//! A request that fails, a body that is cut off or of two releases ends the run with an error. The
//! figures are printed beside their bounds; a machine that is busy with other things exceeds them.

mod latency;
mod site;
mod visitors;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gannet_testkit::client::Client;
use gannet_testkit::tls::{Authority, KeyKind};
use lexopt::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use xtask::process;
use xtask::served::Served;

use self::site::{RELEASES, release_of_page};
use self::visitors::{KINDS, Server, Shared, Visitors};
use crate::idle::allow_descriptors;
use crate::open_loop::Latencies;

const HELP: &str = "\
cargo xtask swap [FLAGS]

  --minutes N      of swaps under load; default: 1. The bound is for 10
  --per-minute N   swaps and rollbacks a minute; default: 100
  --connections N  of clients; default: 1000
  --engine NAME    io_uring or epoll; default: the server's choice
  --gannet PATH    measure this binary instead of building a release
";

/// Maximum time for a release to be served once it was published.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Pause between looks at what is served.
const LOOK: Duration = Duration::from_millis(2);

/// The swaps after which memory is measured. The bound of its growth is for the first and the last of
/// these.
const MEMORY_AFTER: [u32; 5] = [10, 30, 100, 300, 1_000];

/// Maximum growth of the memory, in percent.
const GROWTH_MAX: f64 = 5.0;

/// Memory that changes by less than this within [`QUIET`] has settled, in percent.
const SETTLED: f64 = 0.5;
const QUIET: Duration = Duration::from_secs(3);
/// Maximum time for that; visitors are paused meanwhile.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// How long latency is measured, with swaps and without.
const LATENCY_TIME: Duration = Duration::from_secs(20);

/// Pause between two swaps of that measurement.
const BETWEEN: Duration = Duration::from_millis(200);

/// Maximum difference of the 99th percentiles, in milliseconds.
const P99_MAX_MS: f64 = 2.0;

/// What the memory of a kept release may exceed its metadata by, in bytes: huge pages, and what the
/// allocator holds for the next blocks.
const ROUNDED: u64 = 4 << 20;

/// What to run.
struct Settings {
    minutes: f64,
    per_minute: u32,
    connections: usize,
    engine: Option<String>,
    gannet: PathBuf,
}

/// `cargo xtask swap`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut minutes, mut per_minute, mut connections) = (1.0, 100, 1_000usize);
    let (mut engine, mut gannet) = (None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("minutes") => minutes = parser.value()?.parse()?,
            Long("per-minute") => per_minute = parser.value()?.parse()?,
            Long("connections") => connections = parser.value()?.parse()?,
            Long("engine") => engine = Some(parser.value()?.string()?),
            Long("gannet") => gannet = Some(PathBuf::from(parser.value()?).canonicalize()?),
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            _ => return Err(argument.unexpected().into()),
        }
    }
    ensure!(
        minutes > 0.0 && per_minute > 0 && connections > 0,
        "nothing to do"
    );
    allow_descriptors(2 * connections as u64 + 256)?;
    let gannet = match gannet {
        Some(path) => path,
        None => process::build(&["-p", "gannet"], "dist")?,
    };
    let settings = Settings {
        minutes,
        per_minute,
        connections,
        engine,
        gannet,
    };
    let folder = std::env::temp_dir().join(format!("gannet-swap-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let result = swap_under_load(&settings, &folder)
        .context("swaps under load")
        .and_then(|()| measure_memory(&settings, &folder).context("memory"))
        .and_then(|()| measure_latency(&settings, &folder).context("latency"));
    fs::remove_dir_all(&folder)?;
    result
}

impl Settings {
    fn serve(&self, content: &Path) -> Command {
        let mut command = Command::new(&self.gannet);
        command.args(["serve", "--workers", "2", "--log", "off"]);
        command.args(["--idle-timeout", "300s"]);
        if let Some(engine) = &self.engine {
            command.args(["--engine", engine]);
        }
        command.arg(content);
        command
    }
}

/// Starts a server, whose messages about releases are not shown.
fn start(command: &mut Command) -> Result<Served> {
    let server = Served::start(command.stderr(std::process::Stdio::null()))?;
    server.context("the server does not start")
}

fn loopback(port: &str) -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, port.parse()?).into())
}

/// Publishes to a store and goes back.
struct Publisher<'s> {
    gannet: &'s Path,
    store: PathBuf,
    archives: Vec<PathBuf>,
    /// The release in force, and the one before.
    current: usize,
    before: usize,
    published: u32,
    rolled_back: u32,
}

impl Publisher<'_> {
    /// Publishes another release; every third time, goes back.
    fn swap(&mut self, number: u32) -> Result<()> {
        let mut command = Command::new(self.gannet);
        let next = match number % 3 {
            2 => self.before,
            _ => (self.current + 1) % RELEASES,
        };
        match number % 3 {
            2 => {
                command.arg("rollback").arg(&self.store);
                self.rolled_back += 1;
            }
            _ => {
                command.args(["publish", "--quiet"]);
                command.arg(&self.archives[next]).arg(&self.store);
                self.published += 1;
            }
        }
        process::capture(&mut command)?;
        self.before = std::mem::replace(&mut self.current, next);
        Ok(())
    }
}

/// Waits until a release is served; returns how long that took.
fn wait_for(client: &mut Client, release: usize) -> Result<Duration> {
    let start = Instant::now();
    while release_of_page(&client.get("/").expect(200).body) != release {
        ensure!(start.elapsed() < SERVED_WITHIN, "not served");
        thread::sleep(LOOK);
    }
    Ok(start.elapsed())
}

/// Swaps releases of a store while visitors use the site.
fn swap_under_load(settings: &Settings, folder: &Path) -> Result<()> {
    let mut publisher = Publisher {
        gannet: &settings.gannet,
        store: folder.join("store"),
        archives: site::pack_releases(&settings.gannet, folder)?,
        current: RELEASES - 1,
        before: RELEASES - 1,
        published: 0,
        rolled_back: 0,
    };
    publisher.swap(0)?;
    let authority = Authority::new();
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    let mut command = settings.serve(&publisher.store);
    command.arg("--tls-cert").arg(certificate);
    command.args(["--listen", "https://127.0.0.1:0"]);
    let server = start(command.args(["--listen", "http://127.0.0.1:0"]))?;
    let clear = loopback(server.other_ports.first().context("two addresses")?)?;
    let target = Server::new(clear, loopback(&server.port)?, &authority);
    let shared = Arc::new(Shared::default());
    let visitors = Visitors::start(target, settings.connections, &shared)?;

    let interval = Duration::from_secs(60) / settings.per_minute;
    let count = (settings.minutes * f64::from(settings.per_minute)).ceil() as u32;
    let mut looker = Client::connect(clear);
    let (mut delays, mut memory) = (Vec::new(), Vec::new());
    let (mut start, mut paused) = (Instant::now(), Duration::ZERO);
    let begun = start;
    for number in 1..=count {
        thread::sleep((start + interval * number).saturating_duration_since(Instant::now()));
        publisher.swap(number)?;
        delays.push(wait_for(&mut looker, publisher.current)?);
        shared.check()?;
        if MEMORY_AFTER.contains(&number) || number == count {
            let pause = Instant::now();
            memory.push((number, memory_while_paused(&server, &shared)?));
            start += pause.elapsed();
            paused += pause.elapsed();
        }
    }
    let time = begun.elapsed() - paused;
    visitors.end()?;
    delays.sort_unstable();
    report_swaps(settings, (&publisher, count), (time, &delays));
    report_requests(settings, &shared);
    report_memory(&memory);
    Ok(())
}

/// The server's memory while no visitor asks.
fn memory_while_paused(server: &Served, shared: &Shared) -> Result<u64> {
    let paused = shared.pause.write().unwrap_or_else(PoisonError::into_inner);
    let memory = settled(server);
    drop(paused);
    memory
}

fn report_swaps(
    settings: &Settings,
    (publisher, count): (&Publisher<'_>, u32),
    (time, delays): (Duration, &[Duration]),
) {
    let minutes = time.as_secs_f64() / 60.0;
    let rate = f64::from(count) / minutes;
    let middle = delays[delays.len() / 2].as_secs_f64();
    let longest = delays[delays.len() - 1].as_secs_f64();
    println!(
        "swaps: {count} in {minutes:.1} minutes, {rate:.0} a minute (wanted: {}): {} published, \
         {} rolled back; served {middle:.2} s later (median), {longest:.2} s at most",
        settings.per_minute,
        publisher.published - 1,
        publisher.rolled_back
    );
    if rate < 0.95 * f64::from(settings.per_minute) {
        println!("swaps: this machine is too slow, or too busy, for as many as wanted");
    }
}

fn report_requests(settings: &Settings, shared: &Shared) {
    let counts = |of: &[AtomicU64]| {
        let counts = of.iter().map(|count| count.load(Ordering::SeqCst));
        counts.collect::<Vec<_>>()
    };
    let (pages, assets) = (counts(&shared.pages), counts(&shared.assets));
    println!(
        "requests: {} pages, {} assets, {} of these of earlier releases than the last page's; {:.1} \
         GB; all whole, each of one release, none failed; {} connections",
        pages.iter().sum::<u64>(),
        assets.iter().sum::<u64>(),
        shared.earlier.load(Ordering::SeqCst),
        shared.bytes.load(Ordering::SeqCst) as f64 / 1e9,
        settings.connections.next_multiple_of(KINDS.len())
    );
    for (kind, (pages, assets)) in KINDS.iter().zip(pages.iter().zip(assets)) {
        println!("  {kind:18} {pages:8} pages {assets:9} assets");
    }
}

/// Prints the memory after some swaps under load, each with their number.
fn report_memory(memory: &[(u32, u64)]) {
    let shown = |(number, bytes): &(u32, u64)| format!("{} after {number}", mib(*bytes));
    let all: Vec<_> = memory.iter().map(shown).collect();
    let all = all.join(", ");
    println!("memory (PSS) under load, with caches that fill: {all} swaps");
}

/// Measures the memory after many swaps of two small archives. Nothing else happens, so that caches
/// and connections do not show.
fn measure_memory(settings: &Settings, folder: &Path) -> Result<()> {
    let archives = site::pack_small(&settings.gannet, folder)?;
    let served = folder.join("small.gannet");
    fs::hard_link(&archives[0], &served)?;
    let server = start(settings.serve(&served).args(["--listen", "127.0.0.1:0"]))?;
    let mut client = Client::connect(loopback(&server.port)?);
    let [first, .., last] = MEMORY_AFTER;
    let mut before = 0;
    for number in 1..=last {
        let release = number as usize % 2;
        replace(&server, &archives[release], &served)?;
        wait_for(&mut client, release)?;
        let kept = client.get(&site::asset(1 - release, site::SMALL));
        site::check_asset(&kept.expect(200).body, 1 - release, site::SMALL);
        if number == first {
            before = settled(&server)?;
        }
    }
    let after = settled(&server)?;
    let growth = percent(before, after);
    println!(
        "memory (PSS) without load: {} after {first} swaps, {} after {last}: {growth:+.1} % (bound: \
         {GROWTH_MAX} %, {})",
        mib(before),
        mib(after),
        verdict(growth <= GROWTH_MAX)
    );
    Ok(())
}

/// Puts an archive at the served path, and asks the server to look.
fn replace(server: &Served, archive: &Path, served: &Path) -> Result<()> {
    let pid = Pid::from_raw(server.pid().cast_signed()).context("a process")?;
    let new = served.with_extension("new");
    fs::hard_link(archive, &new)?;
    fs::rename(&new, served)?;
    kill_process(pid, Signal::HUP)?;
    Ok(())
}

/// Measures the latency of requests while an archive with many files is replaced, and the memory
/// of a release that is kept.
fn measure_latency(settings: &Settings, folder: &Path) -> Result<()> {
    let archives = site::pack_many(&settings.gannet, folder)?;
    let served = folder.join("served.gannet");
    fs::hard_link(&archives[0], &served)?;
    let server = start(settings.serve(&served).args(["--listen", "127.0.0.1:0"]))?;
    let address = loopback(&server.port)?;
    let never = AtomicBool::new(false);
    // Warms caches and clocks.
    latency::run(address, LATENCY_TIME / 10, &never)?;
    let alone = settled(&server)?;
    let [_, calm] = latency::run(address, LATENCY_TIME, &never)?;
    let is_swapping = AtomicBool::new(false);
    let (swaps, during) = thread::scope(|scope| {
        let swapper = scope.spawn(|| replace_often(&server, &archives, &served, &is_swapping));
        let latencies = latency::run(address, LATENCY_TIME, &is_swapping);
        let swaps = swapper.join();
        let swaps = swaps.unwrap_or_else(|_| bail!("a page was wrong, see above"));
        Ok::<_, anyhow::Error>((swaps?, latencies?))
    })?;
    let [during, _] = during;
    ensure!(during.count() > 0, "nothing was asked for during a swap");
    let (files, number) = (site::FILES, swaps.len());
    let longest = swaps.iter().max().copied().unwrap_or_default();
    println!(
        "latency: {} without swaps; {} during {number} swaps of an archive of {files} files, of up to \
         {:.0} ms",
        shown(&calm),
        shown(&during),
        longest.as_secs_f64() * 1e3
    );
    let more = during.percentile(99.0) - calm.percentile(99.0);
    let is_met = verdict(more <= P99_MAX_MS);
    println!("latency: p99 {more:+.2} ms (bound: +{P99_MAX_MS} ms, {is_met})");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores < 4 {
        println!(
            "latency: clients and server share {cores} cores, which is part of the difference"
        );
    }
    let kept = settled(&server)?.saturating_sub(alone);
    let metadata = site::metadata_len(&settings.gannet, &archives[0])?;
    println!(
        "kept: a kept release of {files} files costs {} of memory (PSS); its metadata has {} (bound: \
         as much, rounded up by {}, {})",
        mib(kept),
        mib(metadata),
        mib(ROUNDED),
        verdict(kept <= metadata + ROUNDED)
    );
    Ok(())
}

/// Replaces the archive at a path for as long as latency is measured; returns how long it took each
/// time until the new one was served.
fn replace_often(
    server: &Served,
    archives: &[PathBuf; 2],
    served: &Path,
    is_swapping: &AtomicBool,
) -> Result<Vec<Duration>> {
    let mut client = Client::connect(loopback(&server.port)?);
    let (start, mut times) = (Instant::now(), Vec::new());
    // The last one is over when the measurement is.
    while start.elapsed() + 2 * BETWEEN < LATENCY_TIME {
        thread::sleep(BETWEEN);
        let release = (times.len() + 1) % 2;
        is_swapping.store(true, Ordering::SeqCst);
        replace(server, &archives[release], served)?;
        times.push(wait_for(&mut client, release)?);
        is_swapping.store(false, Ordering::SeqCst);
    }
    Ok(times)
}

/// The server's memory once it has settled.
fn settled(server: &Served) -> Result<u64> {
    let start = Instant::now();
    let (mut last, mut since) = (pss(server)?, start);
    while since.elapsed() < QUIET && start.elapsed() < SETTLED_WITHIN {
        thread::sleep(Duration::from_millis(100));
        let now = pss(server)?;
        if percent(last, now).abs() > SETTLED {
            (last, since) = (now, Instant::now());
        }
    }
    pss(server)
}

/// The server's share of memory, in bytes.
pub(crate) fn pss(server: &Served) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid()))
        .context("cannot read the server's memory")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = number.context("no Pss in its memory")?.parse()?;
    Ok(kib << 10)
}

fn percent(before: u64, after: u64) -> f64 {
    (after as f64 / before as f64 - 1.0) * 100.0
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

pub(crate) fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "NOT met" }
}

fn shown(latencies: &Latencies) -> String {
    let [p50, p99] = [50.0, 99.0].map(|percent| latencies.percentile(percent));
    let count = latencies.count();
    format!("p50 {p50:.2} ms, p99 {p99:.2} ms of {count} requests")
}
