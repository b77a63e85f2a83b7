//! Certificates that are ordered, by a process beside the server or by one of its own.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};

use gannet_io::companion;
use gannet_io::user::{User, is_root};
use gannet_server::tls::certificates::PairPaths;
use gannet_server::tls::on_demand::{Issues, OnDemand};
use gannet_server::tls::watch::Ordered;

use super::companions::CompanionCommand;
use super::confinement;
use super::state_folder::state_folder;
use crate::command_line::public_hosts::check_public;
use crate::command_line::settings::{AcmeSettings, Settings};
use crate::command_line::values::ON_DEMAND;
use crate::commands::acme::check_key;
use crate::messages::Failure;

/// What a server has to know of certificates that are ordered for it; `None` if none are. Those of `named`
/// that are in the folder of the process that orders are taken out: they are its hosts.
///
/// # Errors
/// There is no folder for them, or no host is named for which they could be ordered on demand.
pub(super) fn ordered(
    settings: &Settings,
    named: &mut Vec<PairPaths>,
) -> Result<Option<Ordered>, Failure> {
    let acme = &settings.tls.acme;
    if !acme.is_wanted() && acme.folder.is_none() {
        return Ok(None);
    }
    check_on_demand(settings)?;
    let mut ordered = Ordered {
        folder: folder(acme)?,
        is_apart: !acme.is_wanted(),
        ..Ordered::default()
    };
    let certificates = ordered.certificates();
    named.retain(|pair| match host_of(&certificates, pair) {
        Some(host) => {
            ordered.hosts.push(host);
            false
        }
        None => true,
    });
    ordered.hosts.extend(acme.hosts.iter().cloned());
    let mut known = HashSet::new();
    ordered.hosts.retain(|host| known.insert(host.clone()));
    Ok(Some(ordered))
}

/// Refuses to order on demand where no hosts are known.
fn check_on_demand(settings: &Settings) -> Result<(), Failure> {
    let (what, help) = match (settings.hosts, settings.ignores_host()) {
        _ if !settings.tls.acme.is_on_demand => return Ok(()),
        (true, false) => return Ok(()),
        (true, true) => ("with --unknown-host ignore", "leave one of them out"),
        (false, _) => (
            "without --hosts, which names the hosts",
            "serve a folder of hosts with --hosts, or name each host with --acme HOST",
        ),
    };
    let failure = Failure::usage(format!("--acme {ON_DEMAND} has no effect {what}"));
    Err(failure.help(help))
}

/// The host of a file in the folder of certificates, which has its key.
fn host_of(certificates: &Path, pair: &PairPaths) -> Option<String> {
    let PairPaths { certificate, key } = pair;
    let is_there = certificate == key && certificate.parent() == Some(certificates);
    let name = certificate.file_name().filter(|_| is_there)?.to_str()?;
    name.strip_suffix(".pem").map(str::to_owned)
}

/// The process that orders, with its folder, which is made, and the channel for names that clients
/// request; `None` if nothing is to be ordered.
///
/// # Errors
/// There is no folder for what it gets.
pub(super) fn orderer(
    settings: &Settings,
    user: Option<&User>,
) -> Result<Option<(CompanionCommand, Option<OnDemand>)>, Failure> {
    let Some(arguments) = arguments(settings, user)? else {
        return Ok(None);
    };
    check_on_demand(settings)?;
    make_folder(settings, user)?;
    let acme = &settings.tls.acme;
    let (input, on_demand) = match acme.is_on_demand {
        true => {
            let (read, write) =
                companion::input().map_err(|error| Failure::of_system("make", "a pipe", &error))?;
            (Some(read), Some(OnDemand::new(write, issues(acme))))
        }
        false => (None, None),
    };
    let wanted = CompanionCommand {
        name: "'gannet acme'".to_owned(),
        arguments,
        variable: None,
        input,
        output: None,
    };
    Ok(Some((wanted, on_demand)))
}

/// Whether the ACME server is a public one.
fn is_public(acme: &AcmeSettings) -> bool {
    matches!(acme.server.as_deref(), None | Some("staging"))
}

/// Tells for which hosts of a folder the ACME server issues.
fn issues(acme: &AcmeSettings) -> Issues {
    match is_public(acme) {
        true => |name| check_public(&[name.to_owned()]).is_ok(),
        false => |_| true,
    }
}

/// Its command line, as what `user` runs.
///
/// # Errors
/// A flag that requires another one is given without it, or no authority would issue what is ordered.
pub(super) fn arguments(
    settings: &Settings,
    user: Option<&User>,
) -> Result<Option<Vec<OsString>>, Failure> {
    let acme = &settings.tls.acme;
    if !acme.is_wanted() {
        let alone = [
            ("'acme.email'", acme.email.is_some()),
            ("--acme-server", acme.server.is_some()),
            ("'acme.profile'", acme.profile.is_some()),
            ("'acme.eab-kid'", acme.key_id.is_some()),
            ("'acme.eab-key'", acme.key.is_some()),
        ];
        return match alone.iter().find(|(_, is_given)| *is_given) {
            None => Ok(None),
            Some((flag, _)) => Err(Failure::usage(format!("{flag} is given without --acme"))
                .help("add --acme HOST, or leave it out")),
        };
    }
    if !cfg!(feature = "fleet") {
        let what = "--acme: this program was built without the feature 'fleet'";
        return Err(Failure::usage(what).help("build it with its default features"));
    }
    if is_public(acme) {
        check_public(&acme.hosts).map_err(|why| {
            Failure::usage(format!("--acme: {why}")).help(
                "use --tls for tries on this machine, or name an ACME server of your own with --acme-server URL",
            )
        })?;
    }
    let mut all: Vec<OsString> = vec!["acme".into(), "--challenge".into(), "tls-alpn-01".into()];
    all.extend(["--dir".into(), folder(acme)?.into_os_string()]);
    if let Some(email) = &acme.email {
        all.extend(["--email".into(), email.into()]);
    }
    match acme.server.as_deref() {
        None => {}
        Some("staging") => all.push("--staging".into()),
        Some(server) => all.extend(["--server".into(), server.into()]),
    }
    if let Some(profile) = &acme.profile {
        all.extend(["--profile".into(), profile.into()]);
    }
    match (&acme.key_id, &acme.key) {
        (None, None) => {}
        (Some(key_id), Some(key)) => {
            // What the other process would say again and again.
            check_key_as(user, key)?;
            // One may start with a hyphen.
            all.push(format!("--eab-kid={key_id}").into());
            all.extend(["--eab-key".into(), key.into()]);
        }
        _ => {
            let what = "'acme.eab-kid' and 'acme.eab-key' belong together";
            return Err(Failure::usage(what).help("give both, or none"));
        }
    }
    if acme.is_on_demand {
        all.push("--names-from-stdin".into());
    }
    all.push("--".into());
    all.extend(acme.hosts.iter().map(OsString::from));
    Ok(Some(all))
}

/// Reads the key of an account elsewhere with the rights of the process that orders.
///
/// # Errors
/// It cannot; or this process cannot become the user.
fn check_key_as(user: Option<&User>, file: &Path) -> Result<(), Failure> {
    confinement::check_as(user, || check_key(file))
}

/// Makes the folder for the user that orders, and reads what was ordered.
///
/// # Errors
/// It cannot be made, or given to that user.
fn make_folder(settings: &Settings, user: Option<&User>) -> Result<(), Failure> {
    let folder = folder(&settings.tls.acme)?;
    let refuse = |error: io::Error| {
        Failure::of_system("make", folder.display(), &error)
            .help("name a folder for the account and the certificates with --acme-dir DIR")
    };
    // Those above it may be there for others, too.
    folder
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .map_err(refuse)?;
    let ordered = Ordered {
        folder: folder.clone(),
        ..Ordered::default()
    };
    let parts = [ordered.certificates(), ordered.challenges()];
    let parts = [ordered.folder].into_iter().chain(parts);
    let parts: Vec<PathBuf> = parts.collect();
    let mut made = Vec::new();
    for part in &parts {
        match DirBuilder::new().mode(0o700).create(part) {
            Ok(()) => made.push(part),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && part.is_dir() => {}
            Err(error) => return Err(refuse(error)),
        }
    }
    let Some(user) = user else {
        return Ok(());
    };
    // The outer one last, in which the user could put something else into their places; and never what
    // a link leads to.
    for part in made.into_iter().rev() {
        lchown(part, Some(user.uid), Some(user.gid)).map_err(refuse)?;
    }
    Ok(())
}

/// The folder of `gannet acme`: account, certificates, challenges.
///
/// # Errors
/// Nothing in the environment says where it could be.
pub(super) fn folder(acme: &AcmeSettings) -> Result<PathBuf, Failure> {
    if let Some(folder) = &acme.folder {
        return Ok(folder.clone());
    }
    let state = state_folder(is_root(), |name| std::env::var_os(name));
    state.map(|it| it.join("acme")).ok_or_else(|| {
        Failure::usage("--acme: neither STATE_DIRECTORY nor XDG_STATE_HOME nor HOME is set")
            .help("name a folder for the account and the certificates with --acme-dir DIR")
    })
}
