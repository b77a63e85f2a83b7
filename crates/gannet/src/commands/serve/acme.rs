//! Certificates that are ordered, by a process beside the server or by one of its own.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::PathBuf;

use gannet_io::user::{User, is_root};
use gannet_server::tls::certificates::PairPaths;
use gannet_server::tls::watch::Ordered;

use super::companions::Wanted;
use super::state_folder::state_folder;
use crate::command_line::public_hosts::check_public;
use crate::command_line::settings::{AcmeSettings, Settings};
use crate::messages::Failure;

/// The folder of challenges in that of `gannet acme`.
const CHALLENGES: &str = "challenges";
/// The folder of certificates there.
const CERTIFICATES: &str = "certificates";

/// The files of the certificates that are ordered: each has its key.
///
/// # Errors
/// There is no folder for them.
pub(super) fn pairs(acme: &AcmeSettings) -> Result<Vec<PairPaths>, Failure> {
    if acme.hosts.is_empty() {
        return Ok(Vec::new());
    }
    let folder = folder(acme)?.join(CERTIFICATES);
    let file = |host: &String| folder.join(format!("{host}.pem"));
    let pair = |file: PathBuf| PairPaths {
        certificate: file.clone(),
        key: file,
    };
    Ok(acme.hosts.iter().map(file).map(pair).collect())
}

/// What a server has to know of certificates that are ordered; `None` if none are.
///
/// # Errors
/// There is no folder for them.
pub(super) fn ordered(settings: &Settings) -> Result<Option<Ordered>, Failure> {
    let acme = &settings.tls.acme;
    let is_alone = acme.hosts.is_empty() && acme.folder.is_none();
    if is_alone {
        let is_of_fleet = settings.server.content.acme_thumbprint.is_some();
        return Ok(is_of_fleet.then(Ordered::default));
    }
    Ok(Some(Ordered {
        challenges: Some(folder(acme)?.join(CHALLENGES)),
    }))
}

/// The process that orders, with its folder, which is made; `None` if nothing is to be ordered.
///
/// # Errors
/// There is no folder for what it gets.
pub(super) fn orderer(settings: &Settings, user: Option<&User>) -> Result<Option<Wanted>, Failure> {
    let Some(arguments) = arguments(settings)? else {
        return Ok(None);
    };
    make_folder(settings, user)?;
    Ok(Some(Wanted {
        name: "'gannet acme'".to_owned(),
        arguments,
        variable: None,
    }))
}

/// Its command line.
///
/// # Errors
/// A flag that requires another one is given without it, or nobody would issue what is ordered.
pub(super) fn arguments(settings: &Settings) -> Result<Option<Vec<OsString>>, Failure> {
    let acme = &settings.tls.acme;
    if acme.hosts.is_empty() {
        let alone = [
            ("--acme-email", acme.email.is_some()),
            ("--acme-server", acme.server.is_some()),
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
    if matches!(acme.server.as_deref(), None | Some("staging")) {
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
    all.push("--".into());
    all.extend(acme.hosts.iter().map(OsString::from));
    Ok(Some(all))
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
    let parts = ["", CERTIFICATES, CHALLENGES].map(|part| folder.join(part));
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
