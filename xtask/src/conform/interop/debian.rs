//! Programs of a newer Debian: ngtcp2's client, and curl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::process;

use super::clients::{Client, Fetch, script};

/// The Debian with clients of HTTP/3.
const SUITE: &str = "trixie";

/// Programs of a newer Debian, unpacked beside this system and run by their own loader.
#[derive(Clone)]
pub(super) struct Debian(PathBuf);

impl Debian {
    pub(super) fn unpack() -> Result<Self> {
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
pub(super) fn ngtcp2(debian: &Debian) -> Client {
    let version = debian.version("ngtcp2-client").unwrap_or_default();
    let debian = debian.clone();
    Client {
        name: "ngtcp2",
        version: format!("ngtcp2 {version}"),
        command: Box::new(move |fetch| {
            let shows = match fetch.case {
                // Packets of the next keys came; its marks are acknowledged.
                "keyupdate" => "pkt rx .*type=1RTT k=1",
                "ecn" => "frm rx .*1RTT ACK.*ect0=[1-9]",
                _ => "",
            };
            let parts = fetch.connections();
            let commands = parts.iter().map(|paths| {
                let mut command = debian.command("gtlsclient");
                command.args(["--exit-on-all-streams-close", "--download"]);
                command.arg(fetch.folder);
                command.args(["--timeout=60s", "--handshake-timeout=60s"]);
                if shows.is_empty() {
                    command.arg("--quiet");
                }
                command.args(ngtcp2_flags(fetch, paths.len() < fetch.paths.len()));
                command.args(["localhost", &fetch.port.to_string()]);
                command.args(fetch.urls(paths));
                command
            });
            Some(script(commands, shows, fetch))
        }),
    }
}

fn ngtcp2_flags(fetch: &Fetch<'_>, is_twice: bool) -> Vec<&'static str> {
    let mut flags = Vec::new();
    match fetch.case {
        "chacha20" => {
            flags.push("--ciphers=NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305");
        }
        // By then the server has updated its own keys, as it does once within its first 1,000 packets, and
        // three PTO have passed (RFC 9001 section 6.5): earlier the client gives up.
        "keyupdate" => flags.push("--key-update=3s"),
        "resumption" => flags.push("--disable-early-data"),
        "v2" => flags.extend(["--version=0xbabababa", "--preferred-versions=v1"]),
        _ => {}
    }
    if is_twice {
        flags.extend(["--session-file=session", "--tp-file=parameters"]);
        flags.push("--wait-for-ticket");
    }
    flags
}

/// curl with OpenSSL's own QUIC.
pub(super) fn curl(debian: &Debian) -> Client {
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
            for (number, url) in fetch.urls(fetch.paths).enumerate() {
                command
                    .arg(url)
                    .arg("-o")
                    .arg(fetch.folder.join(number.to_string()));
            }
            Some(command)
        }),
    }
}
