//! The system user.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use gannet_io::user::User;

use super::texts::USER;
use crate::messages::Failure;

/// Whether there is one.
pub(super) fn exists() -> bool {
    User::find(USER, None).is_ok()
}

/// Makes it: by systemd from its file, else by useradd.
///
/// # Errors
/// Neither is there, or it failed.
pub(super) fn make(file: &Path) -> Result<(), Failure> {
    let mut systemd = Command::new("systemd-sysusers");
    let mut useradd = Command::new("useradd");
    useradd.args(["--system", "--user-group", "--no-create-home"]);
    useradd.args(["--home-dir", "/", "--shell", "/usr/sbin/nologin", USER]);
    match finish(systemd.arg(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => finish(&mut useradd),
        result => result,
    }
    .map_err(|error| {
        Failure::of_system("make the user", USER, &error).help(format!(
            "make a system user and a group '{USER}', and run this again"
        ))
    })
}

/// Removes it.
///
/// # Errors
/// There is no userdel, or it failed.
pub(super) fn remove() -> Result<(), Failure> {
    finish(Command::new("userdel").arg(USER)).map_err(|error| {
        Failure::of_system("remove the user", USER, &error).help(format!(
            "stop its processes, or remove the user '{USER}' yourself"
        ))
    })
}

/// Runs a command; what it says on standard error is the cause of its failure.
fn finish(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said
        .trim()
        .lines()
        .next_back()
        .unwrap_or("it failed")
        .to_owned();
    let name = command.get_program().to_string_lossy().into_owned();
    Err(io::Error::other(format!("{name}: {said}")))
}
