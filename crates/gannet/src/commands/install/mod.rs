//! `gannet install`: the program as a service of systemd, and its removal.
//!
//! What a version of this program has written is recognised by its content, and replaced or removed.
//! Anything else was changed by someone, and stays.

mod account;
mod steps;
mod texts;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use gannet_io::user::is_root;
use rustix::fs::Mode;

use self::steps::{Step, Target};
use self::texts::Texts;
use super::stream;
use crate::messages::{Exit, Failure, printable};

/// Installs, removes, or prints what would be done.
///
/// # Errors
/// The program cannot be started from where it is, or something cannot be written or removed.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let root = matches.get_one::<OsString>("root").map(PathBuf::from);
    let is_dry = matches.get_flag("dry-run");
    if root.is_none() && !is_dry && !is_root() {
        let failure = Failure::usage("only root can install a service");
        return Err(Failure {
            exit: Exit::Failed,
            ..failure.help("use sudo; --dry-run prints what would be done")
        });
    }
    let target = Target {
        makes_user: root.is_none(),
        root: root.unwrap_or_else(|| "/".into()),
    };
    let program = program(&target.root, matches.get_flag("remove"))?;
    // What is made is for the service to read, whatever the administrator's own files are for.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let texts = |with_socket| Texts {
        program: &program,
        with_socket,
    };
    let is_asked = matches.get_flag("socket");
    // An update leaves it to systemd to bind the addresses where it does.
    let with_socket = is_asked || target.at(&texts(true).socket_path()).exists();
    let steps = match matches.get_flag("remove") {
        false => target.install(&texts(with_socket))?,
        true if is_asked => {
            return Err(Failure::usage("--socket makes no sense with --remove")
                .help("leave it out: both forms are removed"));
        }
        true => target.remove([&texts(false), &texts(true)])?,
    };
    let next = next(&steps, with_socket);
    let is_installed = target.makes_user && !matches.get_flag("remove");
    stream(|out| {
        for step in &steps {
            let mut line = format!("{step}\n");
            if is_dry && let Step::Write(_, text) | Step::Replace(_, text) = step {
                let indented = text.lines().map(|line| format!("    {line}"));
                line.extend(indented.map(|line| format!("{}\n", line.trim_end())));
            }
            if !is_dry {
                step.take(&target)?;
            }
            out.write_all(line.as_bytes())
                .map_err(Failure::from_output)?;
        }
        match is_installed {
            true => out.write_all(next.as_bytes()).map_err(Failure::from_output),
            false => Ok(()),
        }
    })
}

/// What is left to do for the administrator.
fn next(steps: &[Step], with_socket: bool) -> String {
    let is_update =
        |step: &Step| matches!(step, Step::Replace(path, _) if path.ends_with(".service"));
    let is_socket = |step: &Step| matches!(step, Step::Write(path, _) if path.ends_with(".socket"));
    let is_update = steps.iter().any(is_update);
    let command = match (is_update, steps.iter().any(is_socket)) {
        // A running service holds the address that the socket is for.
        (true, true) => "restart gannet && systemctl enable gannet.socket",
        (true, false) => "restart gannet",
        (false, _) if with_socket => "enable --now gannet.socket",
        (false, _) => "enable --now gannet",
    };
    let mut next = format!("next: systemctl daemon-reload && systemctl {command}\n");
    let folders = ["/usr/sbin", "/usr/bin", "/sbin"].map(Path::new);
    if !folders.iter().any(|it| it.join("logrotate").exists()) {
        next += "note: logrotate is not installed, and nothing else keeps the access log short\n";
    }
    next
}

/// The path of this program as the unit names it: without `root`, if it is there.
fn program(root: &Path, is_removed: bool) -> Result<String, Failure> {
    let path = std::env::current_exe()
        .map_err(|error| Failure::of_system("find", "this program", &error))?;
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let path = match path.strip_prefix(&root) {
        Ok(below) => Path::new("/").join(below),
        Err(_) => path,
    };
    match is_removed {
        true => Ok(path.to_string_lossy().into_owned()),
        false => program_at(&path.to_string_lossy()),
    }
}

/// Refuses a path that no unit can start.
fn program_at(path: &str) -> Result<String, Failure> {
    /// Where units with `ProtectHome=` and `PrivateTmp=` see nothing.
    const HIDDEN: [&str; 5] = ["/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"];
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._+-".contains(letter);
    let cause = if HIDDEN.iter().any(|folder| path.starts_with(folder)) {
        "a service does not see this folder"
    } else if !path.chars().all(is_plain) {
        "a unit cannot name this path"
    } else {
        return Ok(path.to_owned());
    };
    let shown = printable(path);
    Err(Failure::new("install", path, cause).help(format!(
        "put the program in its place first: install -m 755 '{shown}' /usr/local/bin/gannet && \
         /usr/local/bin/gannet install"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_is_for_what_was_installed() {
        let path = |name: &str| format!("/etc/systemd/system/{name}");
        let written = |name| Step::Write(path(name), String::new());
        let replaced = Step::Replace(path("gannet.service"), String::new());
        let check = |steps: &[Step], with_socket, expect: &str| {
            let next = next(steps, with_socket);
            let expect = format!("next: systemctl daemon-reload && systemctl {expect}\n");
            assert!(next.starts_with(&expect), "{next}");
        };
        let both = [written("gannet.service"), written("gannet.socket")];
        check(&both[..1], false, "enable --now gannet");
        check(&both, true, "enable --now gannet.socket");
        check(std::slice::from_ref(&replaced), true, "restart gannet");
        let moved = [replaced, written("gannet.socket")];
        check(
            &moved,
            true,
            "restart gannet && systemctl enable gannet.socket",
        );
    }

    #[test]
    fn a_program_that_a_service_cannot_start_is_refused() {
        let check = |path: &str, expect: Option<&str>| match (program_at(path), expect) {
            (Ok(got), None) => assert_eq!(got, path),
            (Err(failure), Some(part)) => assert!(failure.message.contains(part), "{failure}"),
            (got, _) => panic!("{path}: {got:?}"),
        };
        check("/usr/local/bin/gannet", None);
        check("/opt/gannet-0.1/gannet", None);
        check("/home/anna/.cargo/bin/gannet", Some("does not see"));
        check("/tmp/gannet", Some("does not see"));
        check("/opt/my server/gannet", Some("cannot name"));
        check("/opt/50%/gannet", Some("cannot name"));
    }
}
