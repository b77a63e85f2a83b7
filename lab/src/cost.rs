//! Measures what a feature costs: CPU time per request with it, as a ratio to the same without it.
//!
//! ```text
//!   round ─▶ a server without ─▶ load ─▶ CPU time per request ┐
//!         └▶ a server with    ─▶ load ─▶ CPU time per request ┴─▶ ratio ─▶ mean, standard error
//! ```
//!
//! Servers are started anew for each run, and the order changes with each round: what differs between
//! processes, and what changes slowly on the machine, is part of the standard error. A bound that the
//! mean exceeds by more than two of these ends the run with an error, and so does an error that is too
//! large to tell.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use rustix::param::clock_ticks_per_second;
use xtask::process;
use xtask::served::Served;

use crate::bench::host::{Affinity, allowed_cpus, pin, share_core};
use crate::bench::usage;
use crate::load::{self, Content, Phase, Plan, Target};

const HELP: &str = "\
cargo xtask cost [FLAGS] [NAME]...

  NAME             metrics, limits, proxy, proxy-each, forwarded or sandbox; default: all
  --rounds N       each with a run without the feature and one with it; default: 20
  --seconds N      that count of each run; default: 1
  --engine NAME    io_uring or epoll; default: both
  --gannet PATH    measure this binary instead of building a release
";

/// A feature, and how it is turned on.
struct Feature {
    name: &'static str,
    /// Flags of the server without it, beside those of all; and of the one with it.
    flags: [&'static [&'static str]; 2],
    /// The configuration of the one with it.
    config: &'static str,
    /// What begins each connection to the server with it.
    preface: &'static str,
    /// Lines of each request, to both.
    fields: &'static str,
    /// False: each request has a connection of its own.
    keep_alive: bool,
    /// The bound on the ratio, if there is one.
    ratio_max: Option<f64>,
}

const ADDRESS: &str = "127.0.0.1:0";

const PROXIED: [&[&str]; 2] = [
    &["--listen", ADDRESS],
    &["--listen", "127.0.0.1:0,proxy", "--trust", "loopback"],
];

const HEADER: &str = "PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n";

const FEATURES: [Feature; 6] = [
    Feature {
        name: "metrics",
        flags: [
            &["--listen", ADDRESS],
            &["--listen", ADDRESS, "--metrics", ADDRESS],
        ],
        config: "",
        preface: "",
        fields: "",
        keep_alive: true,
        ratio_max: None,
    },
    // So many that no request is refused.
    Feature {
        name: "limits",
        flags: [&["--listen", ADDRESS], &["--listen", ADDRESS]],
        config: "client = { connections = 100000, requests = '100000000/s', rate = '100G' }",
        preface: "",
        fields: "",
        keep_alive: true,
        ratio_max: Some(1.03),
    },
    // The header comes before what counts: what remains is that the client's address is another one.
    Feature {
        name: "proxy",
        flags: PROXIED,
        config: "",
        preface: HEADER,
        fields: "",
        keep_alive: true,
        ratio_max: Some(1.03),
    },
    Feature {
        name: "proxy-each",
        flags: PROXIED,
        config: "",
        preface: HEADER,
        fields: "",
        keep_alive: false,
        ratio_max: None,
    },
    Feature {
        name: "forwarded",
        flags: [
            &["--listen", ADDRESS],
            &["--listen", ADDRESS, "--trust", "loopback"],
        ],
        config: "",
        preface: "",
        fields: "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: http\r\n",
        keep_alive: true,
        ratio_max: None,
    },
    Feature {
        name: "sandbox",
        flags: [
            &["--listen", ADDRESS, "--sandbox", "off"],
            &["--listen", ADDRESS, "--sandbox", "require"],
        ],
        config: "",
        preface: "",
        fields: "",
        keep_alive: true,
        ratio_max: Some(1.01),
    },
];

/// Connections, each with one request outstanding.
const CONNECTIONS: usize = 64;

/// How long a run goes on before what counts.
const WARM: Duration = Duration::from_millis(300);

/// How long nothing may arrive.
const STALL: Duration = Duration::from_secs(10);

/// Name and content of the file that is asked for.
const FILE: (&str, &str) = (
    "page.txt",
    "All work and no play makes a page of 64 bytes, or about so.\n",
);

/// The configuration of a server, beside that file.
const CONFIG: &str = "gannet.toml";

/// What is the same for all runs.
struct Setting {
    gannet: PathBuf,
    folder: PathBuf,
    rounds: usize,
    time: Duration,
    /// For the server, and for the client.
    cpus: [usize; 2],
}

/// `cargo xtask cost`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut rounds, mut seconds, mut engine, mut gannet) = (20, 1.0, None, None);
    let mut names = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("rounds") => rounds = parser.value()?.parse()?,
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
        let is_known = FEATURES.iter().any(|it| it.name == name);
        ensure!(is_known, "no feature is called '{name}'; see --help");
    }
    ensure!(rounds >= 2, "a standard error needs two rounds");
    let gannet = match gannet {
        Some(path) => path,
        None => process::build(&["-p", "gannet"], "dist")?,
    };
    let cpus = server_and_client(&allowed_cpus())?;
    let folder = std::env::temp_dir().join(format!("gannet-cost-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(FILE.0), FILE.1)?;
    let setting = Setting {
        gannet,
        folder,
        rounds,
        time: Duration::from_secs_f64(seconds),
        cpus,
    };
    let affinity = Affinity::save()?;
    let engines = engine.map_or(vec!["io_uring".to_owned(), "epoll".into()], |it| vec![it]);
    let mut is_met = Ok(true);
    for engine in &engines {
        for feature in &FEATURES {
            let is_asked = names.is_empty() || names.iter().any(|it| it == feature.name);
            if let (true, Ok(so_far)) = (is_asked, &is_met) {
                let met = setting.measure(feature, engine);
                let so_far = *so_far;
                is_met = met.map(|it| it && so_far).context(feature.name);
            }
        }
    }
    affinity.restore();
    fs::remove_dir_all(&setting.folder)?;
    ensure!(
        is_met?,
        "a bound is not met, or there is no verdict, see above"
    );
    Ok(())
}

/// A CPU for the server and one for the client, of another core if there is one.
fn server_and_client(allowed: &[usize]) -> Result<[usize; 2]> {
    let [server, rest @ ..] = allowed else {
        bail!("no CPU is allowed");
    };
    let elsewhere = rest.iter().find(|it| !share_core(*server, **it));
    let client = *elsewhere
        .or(rest.first())
        .context("server and client need a CPU each")?;
    if elsewhere.is_none() {
        println!(
            "server (CPU {server}) and client (CPU {client}) share a core: each slows the other down"
        );
    }
    Ok([*server, client])
}

/// What the rounds say about a bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Met,
    /// By less than two standard errors, or exceeded by less than that.
    WithinError,
    NotMet,
    /// The error alone is as large as what the bound allows.
    Unknown,
}

impl Verdict {
    fn of(mean: f64, error: f64, most: f64) -> Self {
        if mean - 2.0 * error > most {
            Self::NotMet
        } else if 2.0 * error > most - 1.0 {
            Self::Unknown
        } else if mean + 2.0 * error <= most {
            Self::Met
        } else {
            Self::WithinError
        }
    }
}

/// What one run has cost.
struct Cost {
    /// Seconds of CPU time per request.
    each: f64,
    /// The kernel does not say it more exactly than in clock ticks.
    in_ticks: bool,
}

impl Setting {
    /// Prints what a feature costs; returns whether its bound is met, or may be within the error.
    fn measure(&self, feature: &Feature, engine: &str) -> Result<bool> {
        let (mut ratios, mut in_ticks) = (Vec::new(), 0);
        for round in 0..self.rounds {
            let mut costs = [0.0; 2];
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let cost = self.run(feature, side, engine)?;
                costs[side] = cost.each;
                in_ticks += usize::from(cost.in_ticks);
            }
            ratios.push(costs[1] / costs[0]);
        }
        let (mean, error) = mean_and_error(&ratios);
        let verdict = feature.ratio_max.map(|most| Verdict::of(mean, error, most));
        let bound = feature.ratio_max.zip(verdict).map(|(most, verdict)| {
            let shown = match verdict {
                Verdict::Met => "met",
                Verdict::WithinError => "within the error",
                Verdict::NotMet => "NOT met",
                Verdict::Unknown => "NO verdict, with this error; more --rounds make it smaller",
            };
            format!(", at most {most}: {shown}")
        });
        let bound = bound.unwrap_or_default();
        println!(
            "{engine}: {}: {mean:.3} times the CPU time per request (standard error {error:.3}{bound})",
            feature.name
        );
        if in_ticks > 0 {
            let (runs, tick) = (2 * self.rounds, 1_000 / clock_ticks_per_second());
            println!("{in_ticks} of these {runs} runs were measured in clock ticks of {tick} ms");
        }
        Ok(!matches!(verdict, Some(Verdict::NotMet | Verdict::Unknown)))
    }

    /// The cost of a new server, without the feature (0) or with it (1).
    fn run(&self, feature: &Feature, side: usize, engine: &str) -> Result<Cost> {
        pin(&self.cpus[..1])?;
        let config = if side == 1 { feature.config } else { "" };
        fs::write(self.folder.join(CONFIG), config)?;
        let server = self.serve(feature.flags[side], engine)?;
        pin(&self.cpus[1..])?;
        let targets = [Target {
            path: format!("/{}", FILE.0),
            content: Content::new(FILE.1.as_bytes().into(), 0, FILE.1.len() as u64),
        }];
        let interrupt = AtomicBool::new(false);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port.parse()?));
        let plan = Plan {
            connections: CONNECTIONS,
            keep_alive: feature.keep_alive,
            preface: if side == 1 { feature.preface } else { "" },
            fields: feature.fields,
            verify_every: 100,
            warm_up: WARM,
            duration: self.time,
            ..Plan::one_pass(address, &targets, STALL, &interrupt)
        };
        let mut readings = Vec::new();
        let mut read = |_: Phase| readings.push(usage::of_tree(server.pid()));
        let tally = load::run(&plan, &mut read)?;
        let mut readings = readings.into_iter();
        let (Some(before), Some(after)) = (readings.next(), readings.next()) else {
            bail!("nothing was counted");
        };
        ensure!(tally.requests > 0, "nothing was answered");
        let (before, after) = (before?, after?);
        Ok(Cost {
            each: after.cpu_since(&before).as_secs_f64() / tally.requests as f64,
            in_ticks: after.exact_since(&before).is_none(),
        })
    }

    fn serve(&self, flags: &[&str], engine: &str) -> Result<Served> {
        let mut command = Command::new(&self.gannet);
        command.args([
            "serve",
            "--workers",
            "1",
            "--log",
            "off",
            "--engine",
            engine,
        ]);
        command.arg("--config").arg(self.folder.join(CONFIG));
        command.args(flags).arg(Path::new(&self.folder));
        command.stderr(Stdio::inherit());
        Served::start(&mut command)?.context("the server does not start")
    }
}

/// The mean of at least two values, and its standard error.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_mean() {
        let (mean, error) = mean_and_error(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(mean, 2.5);
        assert!((error - (5.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        assert_eq!(mean_and_error(&[1.5, 1.5]), (1.5, 0.0));
    }

    #[test]
    fn noise_is_no_verdict() {
        for (mean, error, expect) in [
            (1.0, 0.001, Verdict::Met),
            (1.02, 0.01, Verdict::WithinError),
            (1.04, 0.01, Verdict::WithinError),
            (1.06, 0.01, Verdict::NotMet),
            (1.0, 0.02, Verdict::Unknown),
            (0.9, 0.02, Verdict::Unknown),
            (1.2, 0.02, Verdict::NotMet),
        ] {
            assert_eq!(Verdict::of(mean, error, 1.03), expect, "{mean} {error}");
        }
    }
}
