//! The clients: from PyPI, Go's modules, crates.io and a newer Debian, each below the build directory, and
//! programs that are installed.

use std::cell::LazyCell;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::process;

use super::super::{Inputs, packages};
use super::{debian, installed};

const CLIENT_PY: &str = include_str!("client.py");
const CLIENT_GO: &str = include_str!("client.go");
const CLIENT_RS: &str = include_str!("client.rs");
const BROWSER_PY: &str = include_str!("browser.py");

/// The checked versions.
const AIOQUIC: &str = "aioquic==1.7.2";
const QUIC_GO: &str = "github.com/quic-go/quic-go@v0.65.0";
const S2N_QUIC: &str = "1.91.0";

/// A client.
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) version: String,
    pub(super) command: Box<Build>,
}

/// The command for a case; `None` if the client lacks it. What came for a path has to be in the folder, in
/// a file by the number of the path.
type Build = dyn Fn(&Fetch<'_>) -> Option<Command>;

/// What a client has to do.
pub(super) struct Fetch<'a> {
    pub(super) case: &'static str,
    pub(super) port: u16,
    pub(super) cacert: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) paths: &'a [String],
}

impl Fetch<'_> {
    fn arguments(&self, command: &mut Command) {
        command.arg(self.case);
        command.arg(format!("localhost:{}", self.port));
        command.arg(self.cacert).arg(self.folder).args(self.paths);
    }

    /// The paths of each connection: a client that comes back has the first path, and then the others.
    pub(super) fn connections(&self) -> Vec<&[String]> {
        match self.case {
            "resumption" | "zerortt" => vec![&self.paths[..1], &self.paths[1..]],
            _ => vec![self.paths],
        }
    }

    pub(super) fn urls(&self, paths: &[String]) -> impl Iterator<Item = String> {
        let port = self.port;
        let paths = paths.iter();
        paths.map(move |path| format!("https://localhost:{port}{path}"))
    }
}

/// Runs commands in the folder, one after the other, each of which names what came by the last part of its
/// path, and renames that. `shows` is what they have to write, as a pattern, if it is not empty.
pub(super) fn script(
    commands: impl Iterator<Item = Command>,
    shows: &str,
    fetch: &Fetch<'_>,
) -> Command {
    let quoted = |command: Command| {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|it| format!("'{}'", it.display())).collect();
        words.join(" ")
    };
    let all: Vec<_> = commands.map(quoted).collect();
    let mut text = format!(
        "{{ {}; }} >log 2>&1 || {{ tail -n 3 log >&2; exit 1; }}\n",
        all.join(" && ")
    );
    if !shows.is_empty() {
        text += &format!(
            "grep -qE '{shows}' log || {{ echo 'it does not write {shows}' >&2; exit 1; }}\n"
        );
    }
    text += "for file in *.bin; do mv \"$file\" \"${file%.bin}\"; done\n";
    let mut shell = Command::new("sh");
    shell.args(["-c", &text]).current_dir(fetch.folder);
    shell
}

/// Builds or finds a client, or says why not.
type Maker<'a> = &'a dyn Fn() -> Result<Client, String>;

/// The clients that can be had, or the one that is asked for, and why others cannot.
pub(super) fn all(inputs: &Inputs) -> (Vec<Client>, Vec<String>) {
    let newer = LazyCell::new(|| debian::Debian::unpack().map_err(|why| format!("{why:#}")));
    let told = |made: Result<Client>| made.map_err(|why| format!("{why:#}"));
    let makers: [(&str, Maker<'_>); 8] = [
        ("aioquic", &|| aioquic(inputs)),
        ("quic-go", &|| told(quic_go())),
        ("ngtcp2", &|| {
            newer.as_ref().map(debian::ngtcp2).map_err(Clone::clone)
        }),
        ("curl", &|| {
            newer.as_ref().map(debian::curl).map_err(Clone::clone)
        }),
        ("Chromium", &|| told(chromium())),
        ("quiche", &installed::quiche),
        ("picoquic", &installed::picoquic),
        ("s2n-quic", &|| told(s2n_quic())),
    ];
    let (mut clients, mut without) = (Vec::new(), Vec::new());
    let is_asked = |name| inputs.client.as_ref().is_none_or(|it| it == name);
    for (name, make) in makers.into_iter().filter(|(name, _)| is_asked(*name)) {
        match make() {
            Ok(client) => clients.push(client),
            Err(why) => without.push(format!("{name} is left out: {why}")),
        }
    }
    (clients, without)
}

fn aioquic(inputs: &Inputs) -> Result<Client, String> {
    let folder = packages(inputs, &[AIOQUIC])?;
    Ok(Client {
        name: "aioquic",
        version: AIOQUIC.replace("==", " "),
        command: Box::new(move |fetch| {
            let mut command = Command::new("python3");
            command.args(["-c", CLIENT_PY]).env("PYTHONPATH", &folder);
            fetch.arguments(&mut command);
            Some(command)
        }),
    })
}

fn quic_go() -> Result<Client> {
    let module = process::target().join("conform/quic-go");
    fs::create_dir_all(&module)?;
    fs::write(module.join("main.go"), CLIENT_GO)?;
    let is_new = !module.join("go.sum").is_file();
    let all = [
        &["get", QUIC_GO][..],
        &["mod", "tidy"],
        &["build", "-o", "client"],
    ];
    if is_new {
        fs::write(module.join("go.mod"), "module client\n\ngo 1.24\n")?;
    }
    for arguments in &all[if is_new { 0 } else { 2 }..] {
        let mut go = Command::new("go");
        process::capture(go.args(*arguments).current_dir(&module))?;
    }
    let program = module.join("client");
    let version = QUIC_GO.rsplit_once('@').map_or("", |(_, version)| version);
    Ok(Client {
        name: "quic-go",
        version: format!("quic-go {version}"),
        command: Box::new(move |fetch| {
            let mut command = Command::new(&program);
            fetch.arguments(&mut command);
            if fetch.case == "chacha20" {
                // Go prefers it where AES is slow, and has no other setting for it.
                command.env("GODEBUG", "cpu.aes=off");
            }
            Some(command)
        }),
    })
}

/// With s2n-tls, whose handshake is in C.
fn s2n_quic() -> Result<Client> {
    let package = process::target().join("conform/s2n-quic");
    fs::create_dir_all(package.join("src"))?;
    fs::write(package.join("src/main.rs"), CLIENT_RS)?;
    let manifest = format!(
        "[package]\nname = \"client\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         s2n-quic = {{ version = \"={S2N_QUIC}\", default-features = false, features = \
         [\"provider-address-token-default\", \"provider-tls-s2n\"] }}\n\
         tokio = {{ version = \"1\", features = [\"rt\", \"macros\"] }}\n\n\
         [profile.dev]\ndebug = 0\n"
    );
    fs::write(package.join("Cargo.toml"), manifest)?;
    let mut build = process::cargo();
    build.arg("build").current_dir(&package);
    build.env("CARGO_TARGET_DIR", package.join("target"));
    let programs = process::programs(&mut build)?;
    let program = programs.into_values().next_back();
    let program = program.context("cargo named no executable")?;
    Ok(Client {
        name: "s2n-quic",
        version: format!("s2n-quic {S2N_QUIC}"),
        command: Box::new(move |fetch| {
            let mut command = Command::new(&program);
            fetch.arguments(&mut command);
            Some(command)
        }),
    })
}

/// What a page's script fetches.
fn chromium() -> Result<Client> {
    const CANNOT: [&str; 6] = [
        "chacha20",
        "keyupdate",
        "resumption",
        "zerortt",
        "v2",
        "ecn",
    ];
    let program = process::find_or_install("chromium", "chromium")?;
    let version = process::capture(Command::new(&program).arg("--version"))?;
    let number = version.split(' ').nth(1).unwrap_or_default();
    Ok(Client {
        name: "Chromium",
        version: format!("Chromium {number}"),
        command: Box::new(move |fetch| {
            if CANNOT.contains(&fetch.case) {
                return None;
            }
            let mut command = Command::new("python3");
            command.args(["-c", BROWSER_PY]);
            command.arg(&program);
            fetch.arguments(&mut command);
            Some(command)
        }),
    })
}
