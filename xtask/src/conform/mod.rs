//! Other people's conformance suites, from their public sources: nothing of them is in the project but
//! the lists of cases that do not hold, with reasons.

mod bogo;
mod desync;
mod h3spec;
mod interop;
mod limbo;
mod lint;
mod page;
mod structured;
mod vectors;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use xtask::process;

const HELP: &str = "\
cargo xtask conform [NAME...] [--source DIR] [--program FILE] [--page]
                    [--case NAME] [--client NAME] [--streams N] [--seed N]

  NAME             a suite; all without a name:
                     bogo        BoringSSL's tests of TLS: handshake and record layer of the server
                     desync      ambiguous requests through eight proxies: what gannet answers is passed on
                     h3spec      errors of clients of QUIC and HTTP/3 that a server has to notice
                     interop     the QUIC interop runner's cases, with eight clients over a relay
                     limbo       chains of clients' certificates that may not pass, or have to
                     lint        httplint over answers of every kind, of a directory and an archive
                     redbot      REDbot's own requests for the same sites
                     hpack       stories of ten encoders for HTTP/2's field compression
                     qpack       the same for HTTP/3
                     structured  the working group's cases of structured fields
  --source DIR     a copy of the suite's repository or package, which is fetched otherwise
  --program FILE   the gannet of 'desync', 'h3spec', 'interop', 'lint' and 'redbot', which is built otherwise
  --case NAME      a single case of 'interop'
  --client NAME    a single client of it
  --streams N      streams of 'desync' through each proxy [2000]
  --seed N         which streams [1]
  --page           also write the results to docs/manual/proof.md, beside those that it has of other suites
";

/// A test suite of another project.
struct Suite {
    name: &'static str,
    /// Whose it is, and what it shows.
    about: &'static str,
    /// Where it comes from.
    origin: &'static str,
    run: fn(&Inputs) -> Result<Outcome>,
}

const SUITES: [Suite; 10] = [
    Suite {
        name: "bogo",
        about: "BoringSSL's tests of TLS 1.2 and 1.3: handshakes, records, alerts, key updates, tickets",
        origin: bogo::SOURCE,
        run: bogo::run,
    },
    Suite {
        name: "desync",
        about: "Requests whose framing can be read in more than one way, through eight proxies: each of gannet's answers reaches the client that asked, and none is given that no proxy asked for",
        origin: "https://packages.debian.org/",
        run: desync::run,
    },
    Suite {
        name: "h3spec",
        about: "The cases of h3spec and their neighbours, sent by aioquic: errors of clients of QUIC, its TLS, HTTP/3 and QPACK that a server has to notice",
        origin: h3spec::SOURCE,
        run: h3spec::run,
    },
    Suite {
        name: "interop",
        about: "Cases of the QUIC interop runner over HTTP/3, with clients of other implementations, through a relay that delays, loses, damages and renumbers",
        origin: interop::SOURCE,
        run: interop::run,
    },
    Suite {
        name: "limbo",
        about: "x509-limbo's chains of certificates: what `--tls-client-ca` lets pass, and what not",
        origin: limbo::SOURCE,
        run: limbo::run,
    },
    Suite {
        name: "lint",
        about: "Mark Nottingham's httplint: contradictory, wrong and useless fields of answers",
        origin: "https://pypi.org/project/httplint/",
        run: lint::httplint,
    },
    Suite {
        name: "redbot",
        about: "REDbot of the same author: its own requests for each resource, which ask for gzip, for a range, and with its validators",
        origin: "https://pypi.org/project/redbot/",
        run: lint::redbot,
    },
    Suite {
        name: "hpack",
        about: "Stories of HTTP/2's field compression by the encoders of several projects",
        origin: vectors::HPACK,
        run: vectors::hpack,
    },
    Suite {
        name: "qpack",
        about: "Sections of HTTP/3's field compression by the encoders of several projects",
        origin: vectors::QPACK,
        run: vectors::qpack,
    },
    Suite {
        name: "structured",
        about: "The HTTP working group's cases of structured fields (RFC 9651)",
        origin: structured::STRUCTURED,
        run: structured::run,
    },
];

/// What the caller has already.
#[derive(Default)]
struct Inputs {
    /// A copy of the suite.
    source: Option<PathBuf>,
    program: Option<PathBuf>,
    /// The only case of 'interop'.
    case: Option<String>,
    /// The only client of it.
    client: Option<String>,
    /// Streams through each proxy, and where they begin.
    streams: Option<u32>,
    seed: u64,
}

impl Inputs {
    /// The caller's program, or one that is built.
    fn gannet(&self) -> Result<PathBuf> {
        match &self.program {
            Some(program) => Ok(std::path::absolute(program)?),
            None => process::build(&["--package", "gannet"], "dev"),
        }
    }
}

/// What came of a suite.
enum Outcome {
    /// No case failed that was expected to pass.
    Passed(Passed),
    /// It cannot run here.
    Skipped(String),
}

struct Passed {
    /// Cases that passed.
    cases: usize,
    /// The suite's version or commit.
    version: String,
    /// What was not compared, or is known to differ.
    differences: String,
    /// More of the results, for the page.
    table: String,
}

/// Runs suites, and prints a line for each.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut names, mut inputs, mut has_page) = (Vec::new(), Inputs::default(), false);
    inputs.seed = 1;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Long("source") => inputs.source = Some(parser.value()?.into()),
            Long("program") => inputs.program = Some(parser.value()?.into()),
            Long("case") => inputs.case = Some(parser.value()?.string()?),
            Long("client") => inputs.client = Some(parser.value()?.string()?),
            Long("streams") => inputs.streams = Some(parser.value()?.parse()?),
            Long("seed") => inputs.seed = parser.value()?.parse()?,
            Long("page") => has_page = true,
            Value(name) => names.push(name.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    if let Some(name) = (names.iter()).find(|it| SUITES.iter().all(|suite| suite.name != **it)) {
        bail!("no suite is named '{name}'; 'cargo xtask conform --help' lists them");
    }
    ensure!(
        inputs.source.is_none() || names.len() == 1,
        "--source is the copy of one suite: name it"
    );
    ensure!(
        inputs.case.is_none() && inputs.client.is_none() || !has_page,
        "--page shows all cases and clients, not one"
    );
    let mut rows = Vec::new();
    for suite in &SUITES {
        if !names.is_empty() && !names.iter().any(|it| it == suite.name) {
            continue;
        }
        let outcome = (suite.run)(&inputs);
        match outcome.with_context(|| format!("suite {}", suite.name))? {
            Outcome::Passed(passed) => {
                let Passed {
                    cases,
                    version,
                    differences,
                    ..
                } = &passed;
                println!(
                    "{} ({version}): {cases} cases passed; {differences}",
                    suite.name
                );
                rows.push((suite, passed));
            }
            Outcome::Skipped(why) => println!("{}: skipped: {why}", suite.name),
        }
    }
    if has_page {
        page::write(&rows)?;
    }
    Ok(())
}

/// A copy of a public repository: the caller's, or one made once.
fn cloned(inputs: &Inputs, url: &str, name: &str) -> Option<PathBuf> {
    if inputs.source.is_some() {
        return inputs.source.clone();
    }
    let copy = process::target().join("conform").join(name);
    if copy.is_dir() {
        return Some(copy);
    }
    let mut command = Command::new("git");
    command.args([
        "clone",
        "--quiet",
        "--depth",
        "1",
        "--filter=blob:none",
        url,
    ]);
    let status = command.arg(&copy).status().ok()?;
    status.success().then_some(copy)
}

/// The folder of Python packages: the caller's, or one that pip fills once. The error says why there is none.
fn packages(inputs: &Inputs, wanted: &[&str]) -> std::result::Result<PathBuf, String> {
    if let Some(packages) = &inputs.source {
        return Ok(packages.clone());
    }
    installed(wanted).map_err(|why| format!("pip cannot install {}: {why:#}", wanted.join(" ")))
}

/// The folder of Python packages of these versions, which pip fills once.
fn installed(wanted: &[&str]) -> Result<PathBuf> {
    let name = wanted.join("+");
    let folder = process::target().join("conform/python").join(&name);
    if !folder.is_dir() {
        let python = process::find_or_install("python3", "python3")?;
        let made = folder.with_file_name(format!("{name}.new"));
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"]);
        process::capture(pip.arg(&made).args(wanted))?;
        fs::rename(&made, &folder)?;
    }
    Ok(folder)
}

/// The commit of a copy, with its date.
fn commit(copy: &Path) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(copy);
    command.args(["show", "--no-patch", "--format=%h of %cs", "HEAD"]);
    let shown = process::capture(&mut command);
    shown.map_or_else(|_| "a copy".into(), |text| text.trim().to_owned())
}

/// That suites need a copy of a repository that cannot be had.
fn without(url: &str) -> Outcome {
    Outcome::Skipped(format!("{url} cannot be cloned; name a copy by --source"))
}
