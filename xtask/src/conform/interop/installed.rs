//! Clients that no registry has as programs: they are used if they are in PATH, or in `conform/bin` below the
//! build directory. A file beside the program may hold its version (`picoquicdemo.version`).

use std::fs;
use std::process::Command;

use xtask::process;

use super::clients::{Client, Fetch, script};

type Made = Result<Client, String>;

/// A client of its own name; `build` adds the arguments for some paths, and returns what it has to write, as for
/// [`script`], or `None` if it lacks the case.
fn client(
    name: &'static str,
    program: &str,
    build: fn(&mut Command, &Fetch<'_>, &[String]) -> Option<&'static str>,
) -> Made {
    let path = process::find(program).or_else(|| {
        let path = process::target().join("conform/bin").join(program);
        path.is_file().then_some(path)
    });
    let Some(path) = path else {
        return Err(format!("{program} is not installed"));
    };
    let version = fs::read_to_string(path.with_extension("version")).unwrap_or_default();
    Ok(Client {
        name,
        version: format!("{name} {}", version.trim()).trim().to_owned(),
        command: Box::new(move |fetch| {
            let mut shows = "";
            let mut commands = Vec::new();
            for paths in fetch.connections() {
                let mut command = Command::new(&path);
                shows = build(&mut command, fetch, paths)?;
                commands.push(command);
            }
            Some(script(commands.into_iter(), shows, fetch))
        }),
    })
}

/// quiche-client, of quiche's repository.
pub(super) fn quiche() -> Made {
    client("quiche", "quiche-client", |command, fetch, paths| {
        command.args(["--http-version=HTTP/3", "--idle-timeout=60000"]);
        command.arg(format!("--connect-to=127.0.0.1:{}", fetch.port));
        command.arg("--trust-origin-ca-pem").arg(fetch.cacert);
        command.arg("--dump-responses").arg(fetch.folder);
        match fetch.case {
            // It asks for one that no server has, unless it is given one.
            "v2" => {}
            "chacha20" | "keyupdate" | "ecn" => return None,
            _ => drop(command.arg("--wire-version=1")),
        }
        if matches!(fetch.case, "resumption" | "zerortt") {
            command.arg("--session-file=session");
        }
        if fetch.case == "zerortt" {
            command.arg("--early-data");
        }
        command.args(fetch.urls(paths));
        Some("")
    })
}

/// picoquicdemo, of picoquic's repository.
pub(super) fn picoquic() -> Made {
    client("picoquic", "picoquicdemo", |command, fetch, paths| {
        command.args(["-n", "localhost", "-a", "h3", "-d", "60000"]);
        command.args(["-T", "tickets", "-N", "tokens", "-t"]);
        command.arg(fetch.cacert).arg("-o").arg(fetch.folder);
        let shows = match fetch.case {
            "chacha20" => {
                command.args(["-C", "20"]);
                "suite = 1303"
            }
            "keyupdate" => {
                command.args(["-u", "20"]);
                "phase ENC: 1, phase DEC: 1"
            }
            "ecn" => "ECN was acknowledged .ect0: [1-9]",
            "zerortt" => "Zero RTT data is accepted",
            // It ends when the server names its versions.
            "v2" => return None,
            _ => "",
        };
        command.args(["127.0.0.1", &fetch.port.to_string()]);
        let streams = paths.iter().enumerate();
        let streams = streams.map(|(number, path)| format!("{}:-:{path}", 4 * number));
        command.arg(streams.collect::<Vec<_>>().join(";"));
        Some(shows)
    })
}
