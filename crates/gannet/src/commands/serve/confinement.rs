//! What the process gives up: its user, and rights that no server needs.

use std::path::PathBuf;

use gannet_io::sandbox::{Calls, Domain, Kernel, Reach, forbid_privileges};
use gannet_io::user::{User, is_root};
use gannet_server::WithinReach;
use gannet_server::config::{Hosted, RunAs, SandboxChoice};

use super::output::log_file;
use super::tls;
use crate::command_line::settings::Settings;
use crate::messages::{Failure, cause, printable};

/// Gives up what could add rights later. Called before any thread starts, which would keep it.
///
/// # Errors
/// The kernel refused.
pub(super) fn begin(choice: SandboxChoice) -> Result<(), Failure> {
    if choice == SandboxChoice::Off {
        return Ok(());
    }
    forbid_privileges().map_err(|error| Failure::of_system("give up", "privileges", &error))
}

/// Confines the calling thread, which opens nothing at all. With `--user` (`becomes_user`) it has to
/// take part in the change of the user.
pub(super) fn confine(choice: SandboxChoice, becomes_user: bool) {
    if choice != SandboxChoice::Off {
        let domain = Domain::new(&Kernel::look(), &Reach::default(), Calls::Control);
        let domain = domain.map(|domain| match becomes_user {
            true => domain.keeping_capabilities(),
            false => domain,
        });
        // Whatever the kernel refuses here it refuses the main thread as well, which reports it.
        let _ = domain.and_then(|domain| domain.enter());
    }
}

/// What to do about files that confined workers could open.
pub(crate) const FOLDER_OF_ITS_OWN: &str =
    "move it, or keep the site in a folder of its own, two levels below";

/// Keys, passwords and logs that confined workers could open, since they lie below a folder from which
/// they open directories, in words.
pub(crate) fn within_reach(settings: &Settings, contents: &[Hosted]) -> Vec<String> {
    if settings.server.sandbox == SandboxChoice::Off {
        return Vec::new();
    }
    let certificates = tls::source(settings).ok().flatten();
    let keys = certificates.iter().flat_map(|source| {
        let ordered = source.ordered.iter().map(|it| &it.folder);
        source.pairs.iter().map(|pair| &pair.key).chain(ordered)
    });
    let passwords = settings.server.passwords.file.iter();
    let log = log_file(settings);
    let files = keys.chain(passwords).chain(&log).map(PathBuf::as_path);
    let found = gannet_server::within_reach(contents, files);
    let words = found.iter().map(|WithinReach { file, folder }| {
        let [file, folder] = [file, folder].map(|path| printable(&path.to_string_lossy()));
        format!("confined workers could open '{file}', as anything below '{folder}'")
    });
    words.collect()
}

/// Tries something with the rights that a process beside the server has.
///
/// # Errors
/// It fails; or this process cannot become the user.
pub(super) fn check_as(
    user: Option<&User>,
    check: impl FnOnce() -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    match user {
        None => check(),
        Some(user) => user
            .act(check)
            .map_err(|error| Failure::of_system("use", "the rights of --user", &error))?,
    }
}

/// The user that `--user NAME[:GROUP]` names.
///
/// # Errors
/// There is none of this name, or this process is not root's.
pub(super) fn run_as(named: Option<&str>) -> Result<Option<RunAs>, Failure> {
    let Some(named) = named else {
        return Ok(None);
    };
    if !is_root() {
        let text = format!("--user {named}: only root can become another user");
        return Err(Failure::usage(text).help("leave --user out, or start gannet as root"));
    }
    let (user, group) = match named.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (named, None),
    };
    let user = User::find(user, group).map_err(|error| {
        Failure::usage(format!("--user {named}: {}", cause(&error)))
            .help("name an account and a group of this machine, such as www-data:www-data")
    })?;
    Ok(Some(RunAs {
        name: named.to_owned(),
        user,
    }))
}
