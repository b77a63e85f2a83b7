//! Simulates the whole server: seeds become runs with clients, faults and changing files.
//!
//! A failing run names its seed; `GANNET_SIM_SEED=N` runs that one alone. `GANNET_SIM_SEEDS=N` runs
//! that many instead of the usual 200. Each list of seeds prints one hash of what all its clients
//! received, and when: a change of structure alone leaves it as it was (`cargo xtask shape`).

#[path = "sim/ahead.rs"]
mod ahead;
#[path = "sim/archive_bodies.rs"]
mod archive_bodies;
#[path = "sim/asks.rs"]
mod asks;
#[path = "sim/budget.rs"]
mod budget;
#[path = "sim/client.rs"]
mod client;
#[path = "sim/clients.rs"]
mod clients;
#[path = "sim/coding.rs"]
mod coding;
#[path = "sim/cold.rs"]
mod cold;
#[path = "sim/datagrams.rs"]
mod datagrams;
#[path = "sim/directed.rs"]
mod directed;
#[path = "sim/error_pages.rs"]
mod error_pages;
#[path = "sim/exchange.rs"]
mod exchange;
#[path = "sim/files.rs"]
mod files;
#[path = "sim/first_reads.rs"]
mod first_reads;
#[path = "sim/floods.rs"]
mod floods;
#[path = "sim/folders.rs"]
mod folders;
#[path = "sim/forged.rs"]
mod forged;
#[path = "sim/growing.rs"]
mod growing;
#[path = "sim/link.rs"]
mod link;
#[path = "sim/loading.rs"]
mod loading;
#[path = "sim/long_copies.rs"]
mod long_copies;
#[path = "sim/long_heads.rs"]
mod long_heads;
#[path = "sim/measures.rs"]
mod measures;
#[path = "../../gannet-http/tests/fuzz_checks/pipelines.rs"]
mod model;
#[path = "sim/on_demand.rs"]
mod on_demand;
#[path = "sim/passwords.rs"]
mod passwords;
#[path = "sim/pipelines.rs"]
mod pipelines;
#[path = "sim/quic_addresses.rs"]
mod quic_addresses;
#[path = "sim/quic_closes.rs"]
mod quic_closes;
#[path = "sim/quic_deadlines.rs"]
mod quic_deadlines;
#[path = "sim/quic_floods.rs"]
mod quic_floods;
#[path = "sim/quic_gathering.rs"]
mod quic_gathering;
#[path = "sim/releases.rs"]
mod releases;
#[path = "sim/response.rs"]
mod response;
#[path = "sim/rewrites.rs"]
mod rewrites;
#[path = "sim/run.rs"]
mod run;
#[path = "sim/secure.rs"]
mod secure;
#[path = "sim/server.rs"]
mod server;
#[path = "sim/shared_room.rs"]
mod shared_room;
#[path = "sim/sites.rs"]
mod sites;
#[path = "sim/states.rs"]
mod states;
#[path = "sim/streams.rs"]
mod streams;
#[path = "sim/swaps.rs"]
mod swaps;
#[path = "sim/turns.rs"]
mod turns;
#[path = "sim/unknown_peers.rs"]
mod unknown_peers;
#[path = "sim/waits.rs"]
mod waits;
#[path = "sim/wire.rs"]
mod wire;

#[path = "tls_support/mod.rs"]
mod tls_support;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gannet_io::sim::{Faults, Random};

use crate::run::{Outcome, Scenario, Tls, sim};

/// Number of seeds in a normal test run.
const SEEDS: u64 = 200;

/// Bytes a second that clients are sent where that is limited: answers wait for it, and no client is ahead
/// of it by so much that it is refused.
const RATE: u64 = 1 << 20;

/// Seeds that exposed bugs: old versions from a slow disk, a folder that vanished; and a client of
/// HTTP/2 that asked for one file after the other without a window for any.
const KEPT: [u64; 4] = [3_495, 10_911, 13_949, 1_016];

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number of seeds"))
}

/// The run of a seed, in clear text.
fn run(seed: u64) -> Result<Outcome, String> {
    run_over(seed, Speaks::Http1, |_| Tls::None)
}

/// The run of a seed over TLS.
fn run_secure(seed: u64) -> Result<Outcome, String> {
    run_over(seed, Speaks::Http1, |random| match random.below(5) {
        0 | 1 => Tls::Own,
        2 => Tls::Kernel { can_update: true },
        3 => Tls::Kernel { can_update: false },
        _ => Tls::Refused,
    })
}

/// The run of a seed with HTTP/2 clients, one in three over TLS.
fn run_streams(seed: u64) -> Result<Outcome, String> {
    run_over(seed, Speaks::Http2, |random| match random.below(6) {
        0 => Tls::Own,
        1 => Tls::Kernel { can_update: true },
        _ => Tls::None,
    })
}

/// The same with HTTP/3 clients, mostly over bad networks.
fn run_datagrams(seed: u64) -> Result<Outcome, String> {
    run_over(seed, Speaks::Http3, |_| Tls::Own)
}

/// The version that most clients of a run speak.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Speaks {
    Http1,
    Http2,
    Http3,
}

fn run_over(
    seed: u64,
    speaks: Speaks,
    tls: impl Fn(&mut Random) -> Tls,
) -> Result<Outcome, String> {
    let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let scenario = Scenario::random(&mut random);
    let scenario = Scenario {
        has_streams: speaks == Speaks::Http2,
        has_datagrams: speaks == Speaks::Http3,
        tls: tls(&mut Random::new(seed)),
        // A few with latency: shorter than the timeouts, which keep running.
        delay_ms: if seed.is_multiple_of(16) {
            1 + seed / 16 % 200
        } else {
            0
        },
        rate: if seed % 8 == 5 { RATE } else { 0 },
        ..scenario
    };
    let faults = match random.below(4) {
        0 => Faults::none(),
        // No fault that excuses a missing response.
        1 => Faults {
            accept_fails: 0,
            ..Faults::benign()
        },
        2 => Faults::benign(),
        _ => Faults::harsh(),
    };
    let faults = match speaks {
        Speaks::Http3 => network(faults, &mut random),
        Speaks::Http1 | Speaks::Http2 => faults,
    };
    let told = format!("{scenario:?}, {faults:?}");
    let run = || sim(seed, &faults, scenario);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let result = result.unwrap_or_else(|_| Err("a panic: see above".into()));
    result.map_err(|why| {
        format!(
            "seed {seed}: {why}\n  {told}\n  replay: GANNET_SIM_SEED={seed} cargo test -p \
             gannet-server --test sim seeds"
        )
    })
}

/// A network that loses 0, 1 or 3 % of datagrams, with further faults in some runs.
fn network(faults: Faults, random: &mut Random) -> Faults {
    let mut some = |most: u64| {
        if random.chance(500) {
            random.below(most + 1) as u32
        } else {
            0
        }
    };
    let faults = Faults {
        datagram_duplicate: some(30),
        datagram_corrupt: some(10),
        datagram_late: some(200),
        datagram_full: some(30),
        datagram_latency_ns: 1_000 * u64::from(some(40_000)),
        delay_max_ns: faults
            .delay_max_ns
            .max(1_000_000 + 1_000 * u64::from(some(30_000))),
        ..faults
    };
    Faults {
        // Faults that make the server slower than its clients would make every round trip take
        // seconds.
        no_buffers: faults.no_buffers.min(10),
        late_wait: faults.late_wait.min(10),
        datagram_loss: [0, 10, 30][random.below(3) as usize],
        datagram_mtu: 1_200 + random.below(301) as usize,
        datagram_queue_max: if random.chance(300) { 64 } else { 1_000 },
        ..faults
    }
}

/// For any seed: every response is one version of one file, no resource leaks, and no connection
/// outlives its deadline.
#[test]
fn seeds() {
    all_seeds(run);
}

/// The same over TLS, encrypted by our record layer or by the kernel.
#[test]
fn secure_seeds() {
    all_seeds(run_secure);
}

/// The same over HTTP/2: concurrent streams, reset, stalled, half-closed, with small windows.
#[test]
fn streams_seeds() {
    all_seeds(run_streams);
}

/// The same over HTTP/3: concurrent, cancelled and stalled requests; datagrams lost, delayed,
/// duplicated and corrupted; clients whose addresses change.
#[test]
fn datagrams_seeds() {
    all_seeds(run_datagrams);
}

fn all_seeds(run: fn(u64) -> Result<Outcome, String>) {
    if let Some(seed) = number("GANNET_SIM_SEED") {
        match run(seed) {
            Ok(outcome) => println!("seed {seed}: {outcome:?}"),
            Err(why) => panic!("{why}"),
        }
        return;
    }
    let count = number("GANNET_SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let answered = AtomicU64::new(0);
    let traces = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut failures = Vec::new();
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let kept = KEPT.get(turn as usize);
                let seed = kept.map_or_else(|| turn - KEPT.len() as u64, |seed| *seed);
                if seed >= count && kept.is_none() || failures.len() > 5 {
                    return failures;
                }
                match run(seed) {
                    Ok(outcome) => {
                        answered.fetch_add(outcome.answered, Ordering::Relaxed);
                        traces.lock().unwrap().insert(seed, outcome.trace);
                    }
                    Err(why) => failures.push(why),
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<String>>| worker.join().unwrap();
        workers.into_iter().flat_map(join).collect()
    });
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
    assert!(
        answered.into_inner() > count,
        "runs with few responses prove little"
    );
    let mut whole = blake3::Hasher::new();
    for (seed, trace) in traces.into_inner().unwrap() {
        whole.update(&seed.to_le_bytes());
        whole.update(&trace.to_le_bytes());
    }
    let thread = std::thread::current();
    let list = thread.name().unwrap_or_default();
    println!(
        "traces of {list}, {count}: {}",
        &whole.finalize().to_hex()[..16]
    );
}

/// A long run with every kind of client: ten minutes of simulated time, or `GANNET_SIM_HOURS`
/// hours.
#[test]
fn a_long_run() {
    let hours = number("GANNET_SIM_HOURS");
    let lasts = hours.map_or(600, |hours| hours * 3_600) * 1_000_000_000;
    let mut random = Random::new(24);
    let scenario = Scenario {
        is_live: true,
        clients: 3,
        has_changes: true,
        in_place: false,
        has_rude_clients: true,
        lasts,
        stops_at: None,
        has_datagrams: true,
        has_streams: true,
        tls: Tls::Own,
        ..Scenario::random(&mut random)
    };
    let faults = Faults {
        accept_fails: 0,
        clock_jump: 0,
        ..Faults::benign()
    };
    let faults = Faults {
        datagram_mtu: 1_400,
        ..network(faults, &mut random)
    };
    let outcome = sim(1, &faults, scenario).unwrap_or_else(|why| panic!("{why}"));
    println!("{} s: {outcome:?}", outcome.lasted / 1_000_000_000);
    assert!(outcome.answered > lasts / 10_000_000_000, "{outcome:?}");
}

/// A seed determines its run, to the byte and the nanosecond; another seed gives another run.
#[test]
fn a_seed_is_a_run() {
    let mut traces = std::collections::BTreeSet::new();
    for seed in 1000..1010 {
        for run in [run, run_datagrams] {
            let (first, second) = (run(seed), run(seed));
            assert_eq!(first, second);
            traces.insert(first.map(|outcome| outcome.trace));
        }
    }
    assert_eq!(traces.len(), 20);
}
