//! The project's chores, run as `cargo xtask NAME`.
#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};
use lexopt::prelude::*;
use xtask::process;

mod acme;
mod arm;
mod asan;
mod browser;
mod browser_dev;
mod browser_dictionaries;
mod browser_listing;
mod browser_site;
mod check;
mod conform;
mod crawl;
mod demo;
mod deployments;
mod dist;
mod fleet;
mod fuzz;
mod h2spec;
mod licenses;
mod no_io;
mod profile;
mod program;
mod proxies;
mod shape;
mod systemd;
mod tidy;
mod vm;
mod world;

const HELP: &str = "\
cargo xtask NAME

Try
  demo         serves a small site that shows what gannet does, and names what to try

Check: the tree, without other people's programs
  check        fmt, clippy, tidy, no-io and tests: run before submitting a change
  tidy         rules that neither the compiler nor clippy covers
  no-io        proof that the pure crates do no I/O
  shape        figures of the structure, and hashes of what the simulator's clients receive
               (--seeds N, 0: none; FIGURE lists what it counts)
  sim          more simulator seeds (--seeds N)
  upgrade      upgrades under load, one after the other (--count N)
  asan         tests under AddressSanitizer, leaks included: CRATE..., by default those with unsafe code and
               those that read what others write, and servers that end
  fuzz-smoke   each fuzz target for a short time (--help for its flags)
  licenses     the bill of materials and licence texts in the program (--check: compare only)
  oldest       the oldest Rust that Cargo.toml names compiles the program, also without its features
  package      every crate that is published can be (a dry run), and gannet-site packs without its features
  deny         licences and known vulnerabilities of dependencies
  dist         a static program, a .deb, a container image and checksums (--help for its flags)

Conform: other people's clients, servers, suites and systems
  conform      other people's suites of TLS, fields and their compression (--help for their names)
  h2spec       HTTP/2's conformance tests, on each engine, over TLS and in clear text
  acme         certificates from pebble: both challenges, renewal, refusals, under load
  world        other people's clients, and the engines of rules of Netlify and Cloudflare, against a live
               directory and an archive (--help for its flags)
  browser      headless Chromium: hundreds of assets, login windows, workers, WebAssembly, deploys, dev
  crawl        sites of twelve generators, compared with nginx path by path
  proxies      haproxy, nginx and Caddy in front of gannet: who the client is
  caches       nginx, Varnish, Apache, squid and Traffic Server in front of gannet, configured, and purged, as in
               the manual
  fleet        releases through a bucket to three nodes under load, also cut off and slow; S3, gs://, az://
               (--help for its flags)
  deployments  images, manifests for Kubernetes, a job for Nomad, units (--help for its flags)
  systemd      the service, sockets, followers, certificates and the .deb under a booted systemd (--help for its
               flags)
  arm          gannet for aarch64 in an emulator: tests, and packing (--help for its flags)
  vm           tests on Debian's kernels in QEMU, including kernel TLS (--help for its flags)

Measure: time, memory and bytes
  instructions count the instructions of the pure crates and of requests (--update commits new counts,
               --quick leaves out requests)
  bench        measure gannet and its peers side by side (--help for its flags)
  cost         what features cost, as ratios of CPU time per request (--help for its flags)
  flood        what a visitor waits while others flood the server (--help for its flags)
  idle         user memory of idle connections, of each kind (--help for its flags)
  profile      a flame graph of a worker under load, by perf (--help for its flags)
  link         page loads over slow and lossy links, compared with other servers (--help for its flags)
  swap         swaps of releases under load, and what they cost (--help for its flags)
  wire         bytes of a documentation's text while gannet compresses it (--help for its flags)
";

/// Chores of the lab.
const LAB: [&str; 9] = [
    "bench",
    "caches",
    "cost",
    "flood",
    "idle",
    "instructions",
    "link",
    "swap",
    "wire",
];

fn main() -> ExitCode {
    match dispatch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<()> {
    let mut parser = lexopt::Parser::from_env();
    let name = match parser.next()? {
        None | Some(Short('h') | Long("help")) => {
            print!("{HELP}");
            return Ok(());
        }
        Some(Value(name)) => name.string()?,
        Some(argument) => return Err(argument.unexpected().into()),
    };
    match name.as_str() {
        lab if LAB.contains(&lab) => return run_lab(lab, &mut parser),
        "asan" => return asan::main(&mut parser),
        "acme" => return acme::main(&mut parser),
        "arm" => return arm::main(&mut parser),
        "conform" => return conform::main(&mut parser),
        "demo" => return demo::main(&mut parser),
        "deployments" => return deployments::main(&mut parser),
        "dist" => return dist::main(&mut parser),
        "fleet" => return fleet::main(&mut parser),
        "fuzz-smoke" => return fuzz::main(&mut parser),
        "h2spec" => return h2spec::main(&mut parser),
        "licenses" => return licenses::main(&mut parser),
        "profile" => return profile::main(&mut parser),
        "systemd" => return systemd::main(&mut parser),
        "shape" => return shape::main(&mut parser),
        "sim" => return check::sim(&mut parser),
        "upgrade" => return check::upgrade(&mut parser),
        "vm" => return vm::main(&mut parser),
        "world" => return world::main(&mut parser),
        _ => {}
    }
    if let Some(argument) = parser.next()? {
        return Err(argument.unexpected().into());
    }
    match name.as_str() {
        "check" => check::check(),
        "tidy" => tidy::main(),
        "no-io" => no_io::main(),
        "proxies" => proxies::main(),
        "browser" => browser::main(),
        "crawl" => crawl::main(),
        "deny" => check::deny(),
        "oldest" => check::oldest(),
        "package" => check::package(),
        other => bail!("no chore is named '{other}'; 'cargo xtask --help' lists them"),
    }
}

/// Executes the lab, which cargo builds first: a separate program, so that the checks do not have
/// to wait for a load client to compile.
fn run_lab(name: &str, parser: &mut lexopt::Parser) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Arguments may be relative paths, so the working directory is kept.
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "gannet-lab"]);
    command.args(["--profile", "xtask", "--manifest-path"]);
    command.arg(process::root().join("Cargo.toml"));
    command.arg("--").arg(name).args(parser.raw_args()?);
    let error = command.exec();
    bail!("cannot start cargo for the lab: {error}")
}
