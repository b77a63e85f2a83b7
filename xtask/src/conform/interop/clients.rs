//! The clients: from PyPI, from Go's modules, and from a newer Debian, each below the build directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::process;

use super::super::{Inputs, packages};

const CLIENT_PY: &str = include_str!("client.py");
const CLIENT_GO: &str = include_str!("client.go");

/// The checked versions.
const AIOQUIC: &str = "aioquic==1.7.2";
const QUIC_GO: &str = "github.com/quic-go/quic-go@v0.65.0";

/// The Debian with clients of HTTP/3.
const SUITE: &str = "trixie";

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

    fn urls(&self) -> impl Iterator<Item = String> {
        let port = self.port;
        let paths = self.paths.iter();
        paths.map(move |path| format!("https://localhost:{port}{path}"))
    }
}

/// The clients that can be had, and why others cannot.
pub(super) fn all(inputs: &Inputs) -> (Vec<Client>, Vec<String>) {
    let (mut clients, mut without) = (Vec::new(), Vec::new());
    let debian = Debian::unpack();
    let debian = debian.as_ref().map_err(|why| format!("{why:#}"));
    for (name, made) in [
        ("aioquic", aioquic(inputs)),
        ("quic-go", quic_go().map_err(|why| format!("{why:#}"))),
        ("ngtcp2", debian.clone().map(ngtcp2)),
        ("curl", debian.map(curl)),
    ] {
        match made {
            Ok(client) => clients.push(client),
            Err(why) => without.push(format!("{name} is left out: {why}")),
        }
    }
    (clients, without)
}

fn aioquic(inputs: &Inputs) -> Result<Client, String> {
    let folder = packages(inputs, AIOQUIC, "aioquic")?;
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

/// Programs of a newer Debian, unpacked beside this system and run by their own loader.
#[derive(Clone)]
struct Debian(PathBuf);

impl Debian {
    fn unpack() -> Result<Self> {
        let folder = process::target().join("conform").join(SUITE);
        let root = folder.join("root");
        if root.join("usr/bin/curl").is_file() {
            return Ok(Self(root));
        }
        for part in [
            "state/lists/partial",
            "cache/archives/partial",
            "none",
            "root",
        ] {
            fs::create_dir_all(folder.join(part))?;
        }
        fs::write(folder.join("status"), "")?;
        let source = format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
             http://deb.debian.org/debian {SUITE} main\n"
        );
        fs::write(folder.join("sources.list"), source)?;
        fs::write(folder.join("apt.conf"), apt_settings(&folder))?;
        let apt = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            command.args(arguments);
            command.env("APT_CONFIG", folder.join("apt.conf"));
            process::capture(&mut command)
        };
        apt(&["update", "--quiet"])?;
        apt(&[
            "install",
            "--yes",
            "--download-only",
            "--no-install-recommends",
            "ngtcp2-client",
            "curl",
        ])?;
        for package in fs::read_dir(folder.join("cache/archives"))? {
            let package = package?.path();
            if package.extension().is_some_and(|it| it == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                process::capture(unpack.arg("--extract").arg(&package).arg(&root))?;
            }
        }
        Ok(Self(root))
    }

    fn command(&self, program: &str) -> Command {
        let libraries = self.0.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(libraries);
        command.arg(self.0.join("usr/bin").join(program));
        command
    }

    /// The version of a package.
    fn version(&self, package: &str) -> Result<String> {
        let archives = self.0.join("../cache/archives");
        let prefix = format!("{package}_");
        for file in fs::read_dir(archives)? {
            let name = file?.file_name().to_string_lossy().into_owned();
            if let Some(rest) = name.strip_prefix(&prefix) {
                return Ok(rest.split('_').next().unwrap_or(rest).to_owned());
            }
        }
        Err(anyhow::anyhow!("no {package}")).context(SUITE)
    }
}

/// So that nothing of the system's own apt is read or written.
fn apt_settings(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::State \"{folder}/state\";\nDir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\nDir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"{folder}/none\";\nDir::Etc::preferencesparts \"{folder}/none\";\n\
         Dir::Etc::preferences \"/dev/null\";\nAPT::Sandbox::User \"root\";\n"
    )
}

/// ngtcp2's own client, with GnuTLS.
fn ngtcp2(debian: &Debian) -> Client {
    let version = debian.version("ngtcp2-client").unwrap_or_default();
    let debian = debian.clone();
    Client {
        name: "ngtcp2",
        version: format!("ngtcp2 {version}"),
        command: Box::new(move |fetch| {
            let mut command = debian.command("gtlsclient");
            command.args(["--quiet", "--exit-on-all-streams-close", "--download"]);
            command.arg(fetch.folder);
            command.args(["--timeout=60s", "--handshake-timeout=60s"]);
            match fetch.case {
                "chacha20" => {
                    let ciphers = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305";
                    command.arg(format!("--ciphers={ciphers}"));
                }
                "keyupdate" => drop(command.arg("--key-update=10ms")),
                // What is written of sessions and acknowledgements is not read here.
                "resumption" | "zerortt" | "ecn" | "v2" => return None,
                _ => {}
            }
            command.args(["localhost", &fetch.port.to_string()]);
            command.args(fetch.urls());
            Some(numbered(command, fetch))
        }),
    }
}

/// Runs a client that names what came by the last part of the path, and renames that.
fn numbered(command: Command, fetch: &Fetch<'_>) -> Command {
    const RENAME: &str = "\"$@\" || exit 1; for file in *.bin; do mv $file ${file%.bin}; done";
    let mut shell = Command::new("sh");
    shell.args(["-c", RENAME, "sh"]).current_dir(fetch.folder);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

/// curl with OpenSSL's own QUIC.
fn curl(debian: &Debian) -> Client {
    let version = debian.version("curl").unwrap_or_default();
    let debian = debian.clone();
    Client {
        name: "curl",
        version: format!("curl {version} with OpenSSL's QUIC"),
        command: Box::new(move |fetch| {
            let mut command = debian.command("curl");
            command.args(["--http3-only", "--silent", "--show-error", "--fail"]);
            command
                .args(["--max-time", "120", "--parallel", "--cacert"])
                .arg(fetch.cacert);
            match fetch.case {
                "chacha20" => {
                    command.args(["--tls13-ciphers", "TLS_CHACHA20_POLY1305_SHA256"]);
                }
                "keyupdate" | "resumption" | "zerortt" | "ecn" | "v2" => return None,
                _ => {}
            }
            for (number, url) in fetch.urls().enumerate() {
                command
                    .arg(url)
                    .arg("-o")
                    .arg(fetch.folder.join(number.to_string()));
            }
            Some(command)
        }),
    }
}
