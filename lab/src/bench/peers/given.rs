//! Peers that no distribution packages: programs that the user built and names, or has in PATH.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{GivenProgram, Launch, Task, show};
use xtask::process;

/// The peer's name, and that of its program in PATH.
pub(super) fn names(given: GivenProgram) -> (&'static str, &'static str) {
    match given {
        GivenProgram::Kawipiko => ("kawipiko", "kawipiko-server"),
        GivenProgram::Httpd => ("ianic-httpd", "ianic-httpd"),
        GivenProgram::Faf => ("faf", "faf"),
    }
}

/// Descriptors for ianic's httpd: below 20,000, a common limit of processes.
const HTTPD_FDS: usize = 19_000;
/// Descriptors per connection: socket, file and both ends of a pipe.
const HTTPD_FDS_EACH: usize = 4;
/// Connections that faf supports: its tables have 1,024 entries, and it uses some of them itself.
const FAF_CONNECTIONS: usize = 1000;

/// The number of concurrent connections it supports.
pub(super) fn connections_max(given: GivenProgram) -> usize {
    match given {
        GivenProgram::Kawipiko => usize::MAX,
        GivenProgram::Httpd => HTTPD_FDS / HTTPD_FDS_EACH,
        GivenProgram::Faf => FAF_CONNECTIONS,
    }
}

/// Finds the program: at `path` if given, else by name.
pub(super) fn find(given: GivenProgram, path: Option<&Path>) -> Result<(PathBuf, String)> {
    let (name, program) = names(given);
    let program = match path {
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("--peer-binary {name}={}", path.display()))?,
        None => process::find(program).with_context(|| {
            format!("no '{program}' on the path (build it and give --peer-binary {name}=PATH)")
        })?,
    };
    ensure!(
        program.is_file(),
        "'{}' is not a program",
        program.display()
    );
    let version = match given {
        GivenProgram::Kawipiko => {
            let archiver = archiver(&program);
            ensure!(
                archiver.is_file(),
                "kawipiko-archiver is not beside '{}'",
                program.display()
            );
            let text = process::output(&program.to_string_lossy(), &["--version"])?;
            kawipiko_version(&text)
        }
        GivenProgram::Httpd | GivenProgram::Faf => format!("{name} (reports no version)"),
    };
    Ok((program, version))
}

/// kawipiko prints it in one of several lines, `* version       : 1.2.3`.
fn kawipiko_version(text: &str) -> String {
    let value = |line: &str| {
        let (key, value) = line.strip_prefix("* ")?.split_once(':')?;
        (key.trim() == "version").then(|| value.trim().to_owned())
    };
    let version = text.lines().find_map(value);
    let first = || text.lines().next().unwrap_or_default().trim().to_owned();
    version.map_or_else(first, |version| format!("kawipiko {version}"))
}

fn archiver(server: &Path) -> PathBuf {
    server.with_file_name("kawipiko-archiver")
}

pub(super) fn launch(given: GivenProgram, program: &Path, task: &Task<'_>) -> Result<Launch> {
    let mut command = Command::new(program);
    let port = task.port.to_string();
    match given {
        GivenProgram::Kawipiko => add_kawipiko(&mut command, program, task)?,
        GivenProgram::Httpd => {
            command.args(["start", "--http-port", &port, "--root"]);
            command.arg(&task.site.root);
            let fds = HTTPD_FDS.to_string();
            command.args(["--buf-count", "16", "--sqes", "32768", "--fds", &fds]);
        }
        // A library: the program around it takes its port as an argument.
        GivenProgram::Faf => {
            command.arg(port);
        }
    }
    let configuration = show(&command);
    Ok(Launch {
        command,
        input: None,
        configuration,
    })
}

/// One process with one thread; the archive is mapped, read once and indexed in memory.
fn add_kawipiko(command: &mut Command, program: &Path, task: &Task<'_>) -> Result<()> {
    let archive = archive_of(&task.site.root);
    if !archive.exists() {
        let mut pack = Command::new(archiver(program));
        pack.arg("--sources").arg(&task.site.root);
        pack.arg("--archive").arg(&archive).arg("--exclude-cache");
        process::capture(&mut pack).context("packing for kawipiko")?;
    }
    command.arg("--archive").arg(archive);
    command.args(["--archive-mmap", "--archive-preload", "--index-all"]);
    command.args(["--processes", "1", "--threads", "1"]);
    command.args(["--security-headers-disable", "--hosts-disable", "--quiet"]);
    let address = format!("127.0.0.1:{}", task.port);
    match task.certificate {
        None => command.args(["--bind", &address]),
        Some(certificate) => {
            command.args(["--bind-tls", &address]);
            command.arg("--tls-public").arg(&certificate.chain);
            command.arg("--tls-private").arg(&certificate.key)
        }
    };
    Ok(())
}

/// The path of kawipiko's archive of the site in `root`.
pub(crate) fn archive_of(root: &Path) -> PathBuf {
    root.with_extension("cdb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{peers::by_name, scenario};

    #[test]
    fn programs_are_left_out_where_they_could_not_answer() {
        let scenarios = xtask::process::root().join("lab/scenarios");
        let scenarios = scenario::read_all(&scenarios).expect("the project's own");
        let unfit = |peer: &str, name: &str| {
            let mut cells = scenarios.iter().flat_map(|s| s.cells());
            let cell = cells.find(|cell| cell.name() == name).expect("is a cell");
            by_name(peer).expect("is a peer").unfit(&cell).is_some()
        };
        for (peer, fits, not) in [
            ("faf", "plaintext-c500", "connection-per-request-c64"),
            ("faf", "plaintext-c64", "many-connections-c2048"),
            ("faf", "plaintext-c1", "site-mix-c1"),
            (
                "ianic-httpd",
                "many-connections-c4096",
                "many-connections-c16384",
            ),
            (
                "ianic-httpd",
                "site-mix-per-request-c1",
                "https-site-mix-c1",
            ),
        ] {
            assert!(!unfit(peer, fits) && unfit(peer, not), "{peer}");
        }
    }

    #[test]
    fn the_version_of_kawipiko_is_that_of_its_line() {
        let text = "* tool          : kawipiko-server\n* version       : 0.1.0-dev\n";
        assert_eq!(kawipiko_version(text), "kawipiko 0.1.0-dev");
        assert_eq!(kawipiko_version("0.1.0\nmore"), "0.1.0");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_the_way_to_give_it() {
        let error = find(GivenProgram::Faf, Some(Path::new("/nowhere/faf"))).expect_err("none");
        let error = format!("{error:#}");
        assert!(error.contains("--peer-binary faf=/nowhere/faf"), "{error}");
    }
}
