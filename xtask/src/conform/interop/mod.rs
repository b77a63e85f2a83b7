//! The cases of the QUIC interop runner, with other implementations' clients, over a relay that is the
//! network of each case; and a whole site, from a directory and from an archive, on each engine.

mod clients;
mod debian;
mod installed;
mod relay;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use xtask::certificate::{Certificate, ECDSA_P256};
use xtask::process;
use xtask::served::Served;

use self::clients::{Client, Fetch};
use self::relay::{Relay, Seen, Weather};
use super::{Inputs, Outcome, Passed};

pub(super) const SOURCE: &str = "https://github.com/quic-interop/quic-interop-runner";

/// A case of the runner.
struct Case {
    name: &'static str,
    weather: Weather,
    /// Lengths of the files.
    files: &'static [usize],
    /// How often the client is started, each time for all files.
    runs: usize,
    /// Connections of each run.
    connections: u64,
    /// The server's flags.
    flags: &'static [&'static str],
    is_packed: bool,
    /// What the relay and the server have to have seen.
    check: fn(&Seen, &Served) -> Result<()>,
}

const CALM: Weather = Weather {
    delay: Duration::from_millis(5),
    lost: 0,
    damaged: 0,
    rate: 0,
    rebind: 0,
    is_address: false,
    hole: 0,
    withholds: false,
};

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

/// Connections that see loss or damage in their handshakes.
const HANDSHAKES: usize = 10;

/// How many of them a client may give up by its own clock, as Chromium, curl and ngtcp2 do after some ten
/// seconds; it is started again then.
const GIVEN_UP_MAX: usize = 3;

const fn case(name: &'static str, weather: Weather, files: &'static [usize]) -> Case {
    Case {
        name,
        weather,
        files,
        runs: 1,
        connections: 1,
        flags: &[],
        is_packed: false,
        check: |_, _| Ok(()),
    }
}

/// Files of the site: 1 byte to 1.6 MB, each three times as long as the one before.
const SITE: &[usize] = &[
    1, 3, 9, 27, 81, 243, 729, 2_187, 6_561, 19_683, 59_049, 177_147, 531_441, 1_594_323,
];

/// The site, from a directory and from an archive, on each engine.
const fn site(name: &'static str, flags: &'static [&'static str], is_packed: bool) -> Case {
    Case {
        flags,
        is_packed,
        ..case(name, CALM, SITE)
    }
}

/// The cases, and what passes over the relay in each.
fn cases() -> Vec<Case> {
    let seen = |case, check| Case { check, ..case };
    let often = |case| Case {
        runs: HANDSHAKES,
        ..case
    };
    let rebind = |is_address| Weather {
        rebind: 256 << 10,
        is_address,
        ..CALM
    };
    let lost = |lost| Weather { lost, ..CALM };
    let damaged = |damaged| Weather { damaged, ..CALM };
    let hole = Weather {
        hole: 500 << 10,
        ..CALM
    };
    let withheld = Weather {
        withholds: true,
        ..CALM
    };
    let long = Weather {
        delay: Duration::from_millis(750),
        ..CALM
    };
    let slow = Weather {
        delay: Duration::from_millis(15),
        rate: 1_250_000,
        ..CALM
    };
    let twice = |case| Case {
        connections: 2,
        flags: &["--early-data"],
        ..case
    };
    let retry = Case {
        // So few places that every client has to show its address first.
        flags: &["--max-connections", "7", "--workers", "1"],
        ..case("retry", CALM, &[KB])
    };
    let resumption = twice(case("resumption", CALM, &[5 * KB, 10 * KB]));
    let early = twice(case("zerortt", CALM, &[KB, 2 * KB, 3 * KB]));
    vec![
        case("handshake", CALM, &[KB]),
        case("transfer", CALM, &[2 * MB, 3 * MB, 5 * MB]),
        case("chacha20", CALM, &[3 * MB]),
        // Long enough that the handshake is confirmed and the server has updated its keys before, and much is to
        // come after it.
        case("keyupdate", slow, &[6 * MB]),
        seen(retry, |seen, _| some(seen.retries, "Retry packet")),
        seen(resumption, |seen, _| {
            some(seen.resumed, "handshake without a certificate")
        }),
        seen(early, |seen, server| {
            some(seen.early, "0-RTT packet")?;
            let taken = server.metric("gannet_tls_early_data_total")?;
            ensure!(taken > 0, "the server took no early data");
            Ok(())
        }),
        case("http3", CALM, &[5 * KB, 10 * KB, 500 * KB]),
        case("multiplexing", CALM, &[32; 500]),
        seen(case("v2", CALM, &[KB]), |seen, _| {
            some(seen.negotiations, "Version Negotiation packet")
        }),
        case("ecn", CALM, &[100 * KB]),
        seen(case("rebind-port", rebind(false), &[3 * MB]), |seen, _| {
            some(seen.rebinds, "rebinding")
        }),
        seen(case("rebind-addr", rebind(true), &[3 * MB]), |seen, _| {
            some(seen.rebinds, "rebinding")
        }),
        seen(case("blackhole", hole, &[3 * MB]), |seen, _| {
            some(seen.holes, "black hole")
        }),
        case("amplificationlimit", withheld, &[5 * KB]),
        often(seen(case("handshakeloss", lost(300), &[KB]), |seen, _| {
            some(seen.lost, "loss")
        })),
        seen(case("transferloss", lost(20), &[2 * MB]), |seen, _| {
            some(seen.lost, "loss")
        }),
        often(seen(
            case("handshakecorruption", damaged(300), &[KB]),
            |seen, _| some(seen.damaged, "damage"),
        )),
        seen(
            case("transfercorruption", damaged(20), &[2 * MB]),
            |seen, _| some(seen.damaged, "damage"),
        ),
        case("longrtt", long, &[KB]),
        seen(case("goodput", slow, &[4 * MB]), |seen, _| {
            let most = 5 * (4 * MB as u64) / 4;
            let sent = seen.bytes_down;
            ensure!(
                sent <= most,
                "{sent} bytes for 4 MiB, more than a quarter too many"
            );
            Ok(())
        }),
        site("directory, io_uring", &["--engine", "io_uring"], false),
        site("directory, epoll", &["--engine", "epoll"], false),
        site("archive, io_uring", &["--engine", "io_uring"], true),
        site("archive, epoll", &["--engine", "epoll"], true),
    ]
}

impl Case {
    /// Its handshakes may take longer than the clock of a client allows.
    fn is_hard(&self) -> bool {
        self.runs == HANDSHAKES || self.weather.withholds
    }

    /// All files came over as many connections as the case is about; more only if a client gave some up.
    fn connected(&self, server: &Served) -> Result<()> {
        let runs = self.runs as u64;
        let (least, requested) = (runs * self.connections, runs * self.files.len() as u64);
        let connections = server.metric("gannet_h3_connections_total")?;
        let is_right = connections == least || self.is_hard() && connections > least;
        ensure!(is_right, "{connections} connections, not {least}");
        let requests = server.metric("gannet_h3_requests_total")?;
        ensure!(requests >= requested, "{requests} requests by HTTP/3");
        Ok(())
    }
}

fn some(count: u64, what: &str) -> Result<()> {
    ensure!(count > 0, "the relay saw no {what}");
    Ok(())
}

/// What came of a client in a case.
enum Cell {
    Passed,
    /// The client lacks it.
    Lacks,
    Failed(String),
}

pub(super) fn run(inputs: &Inputs) -> Result<Outcome> {
    let (clients, without) = clients::all(inputs);
    if clients.is_empty() {
        ensure!(!without.is_empty(), "no client has this name");
        return Ok(Outcome::Skipped(without.join("; ")));
    }
    let gannet = inputs.gannet()?;
    let folder = std::env::temp_dir().join(format!("gannet-interop-{}", std::process::id()));
    let result = Trial::new(gannet, folder.clone()).and_then(|trial| trial.all(inputs, &clients));
    fs::remove_dir_all(&folder)?;
    let (table, passed, lacking) = result?;
    let versions: Vec<_> = clients.iter().map(|it| it.version.as_str()).collect();
    let mut differences =
        format!("{lacking} cells are of what the client or its program here lacks; see below");
    for why in without {
        write!(differences, "; {why}")?;
    }
    Ok(Outcome::Passed(Passed {
        cases: passed,
        version: versions.join(", "),
        differences,
        table,
    }))
}

struct Trial {
    gannet: PathBuf,
    folder: PathBuf,
    certificate: Certificate,
}

impl Trial {
    fn new(gannet: PathBuf, folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        // Too long for what a server may send to an address that it does not know.
        let certificate = Certificate::create_long(ECDSA_P256, &folder, LONG_NAMES)?;
        Ok(Self {
            gannet,
            folder,
            certificate,
        })
    }

    /// The matrix, with how many cells passed, and how many a client lacks.
    fn all(&self, inputs: &Inputs, clients: &[Client]) -> Result<(String, usize, usize)> {
        let mut table = String::from("| case |");
        for client in clients {
            write!(table, " {} |", client.name)?;
        }
        write!(table, "\n|---|{}\n", "---|".repeat(clients.len()))?;
        let (mut passed, mut lacking, mut failed) = (0, 0, Vec::new());
        let named = |it: &Case| inputs.case.as_ref().is_none_or(|name| name == it.name);
        for case in cases().into_iter().filter(named) {
            write!(table, "| {} |", case.name)?;
            for client in clients {
                let cell = self.cell(&case, client);
                let cell = cell.unwrap_or_else(|why| Cell::Failed(format!("{why:#}")));
                let shown = match cell {
                    Cell::Passed => {
                        passed += 1;
                        "passed"
                    }
                    Cell::Lacks => {
                        lacking += 1;
                        "lacks it"
                    }
                    Cell::Failed(why) => {
                        println!("  {}, {}: {why}", case.name, client.name);
                        failed.push(format!("{}, {}: {why}", case.name, client.name));
                        "failed"
                    }
                };
                println!("  {}, {}: {shown}", case.name, client.name);
                write!(table, " {shown} |")?;
            }
            table.push('\n');
        }
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok((table, passed, lacking))
    }

    fn cell(&self, case: &Case, client: &Client) -> Result<Cell> {
        let site = self.folder.join(case.name);
        let files = write_site(&site, case.files)?;
        let served = if case.is_packed {
            let archive = self.folder.join("site.gannet");
            let mut pack = Command::new(&self.gannet);
            pack.args(["pack", "--quiet", "--fast"]).arg(&site);
            process::run(pack.arg("--output").arg(&archive))?;
            archive
        } else {
            site
        };
        let mut serve = Command::new(&self.gannet);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--log", "off"]);
        serve.args(["--metrics", "127.0.0.1:0"]).args(case.flags);
        // Flights that are lost again and again: both sides wait twice as long each time.
        serve.args(["--head-timeout", "2m"]);
        serve.arg("--tls-cert").arg(&self.certificate.chain);
        serve.arg("--tls-key").arg(&self.certificate.key);
        let server = Served::start(serve.arg(&served))?.context("the server does not start")?;
        let relay = Relay::start(server.port.parse()?, case.weather)?;
        // The relay does not pass marks of congestion on.
        let is_direct = case.name == "ecn";
        let port = if is_direct {
            server.port.parse()?
        } else {
            relay.port
        };
        let result = self.ask(case, client, port, &files);
        let seen = relay.stop()?;
        if matches!(result, Ok(Cell::Passed)) {
            ensure!(
                seen.amplified == 0,
                "more than three times the bytes of an address that is not known"
            );
            case.connected(&server)?;
            (case.check)(&seen, &server)?;
        }
        result
    }

    /// Starts the client as often as the case wants, and compares what it got.
    fn ask(&self, case: &Case, client: &Client, port: u16, files: &[Vec<u8>]) -> Result<Cell> {
        let paths: Vec<_> = (0..files.len()).map(|it| format!("/{it}.bin")).collect();
        let (mut whole, mut given_up) = (0, 0);
        while whole < case.runs {
            let got = self.folder.join("got");
            fs::create_dir_all(&got)?;
            let fetch = Fetch {
                case: case.name,
                port,
                cacert: &self.certificate.chain,
                folder: &got,
                paths: &paths,
            };
            let Some(mut command) = (client.command)(&fetch) else {
                return Ok(Cell::Lacks);
            };
            let output = command.output()?;
            match output.status.code() {
                Some(0) => {}
                Some(127) => return Ok(Cell::Lacks),
                _ if case.is_hard() && given_up < GIVEN_UP_MAX => {
                    given_up += 1;
                    fs::remove_dir_all(&got)?;
                    continue;
                }
                _ => bail!("{}", last_lines(&output.stderr)),
            }
            compare(&got, files).with_context(|| {
                let log = fs::read(got.join("log")).unwrap_or_default();
                format!("at its end: {}", last_lines(&log))
            })?;
            fs::remove_dir_all(&got)?;
            whole += 1;
        }
        Ok(Cell::Passed)
    }
}

/// Names of the certificate: some 6 KiB of them.
const LONG_NAMES: usize = 200;

/// The end of what a client wrote.
fn last_lines(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<_> = text.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

/// Files by their numbers.
fn write_site(site: &Path, lengths: &[usize]) -> Result<Vec<Vec<u8>>> {
    fs::create_dir_all(site)?;
    let mut files = Vec::new();
    for (number, len) in lengths.iter().enumerate() {
        let bytes: Vec<u8> = (0..*len)
            .map(|at| (at * 7 + at / 251 + number) as u8)
            .collect();
        fs::write(site.join(format!("{number}.bin")), &bytes)?;
        files.push(bytes);
    }
    Ok(files)
}

fn compare(got: &Path, files: &[Vec<u8>]) -> Result<()> {
    for (number, expect) in files.iter().enumerate() {
        let path = got.join(number.to_string());
        let bytes = fs::read(&path).with_context(|| format!("file {number} did not come"))?;
        ensure!(
            bytes == *expect,
            "file {number} has {} other bytes",
            bytes.len()
        );
    }
    Ok(())
}
