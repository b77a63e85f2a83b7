//! `gannet receive`, which runs beside a server: takes releases that publishers bring to its store.

use std::ffi::OsString;
#[cfg(feature = "fleet")]
use std::io::ErrorKind;
use std::path::PathBuf;

use clap::ArgMatches;
use gannet_server::config::SandboxChoice;

use crate::messages::Failure;

/// Its arguments. Only a server writes them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Arguments {
    /// The folder of the store.
    pub store: PathBuf,
    /// The public key.
    pub key: String,
    /// Whether the process confines itself.
    pub sandbox: SandboxChoice,
    /// A folder of certificates.
    pub folder: Option<PathBuf>,
    /// Files of certificates and their keys.
    pub pairs: Vec<(PathBuf, PathBuf)>,
}

impl Arguments {
    /// As they are typed.
    #[must_use]
    pub fn typed(self) -> Vec<OsString> {
        let sandbox = match self.sandbox {
            SandboxChoice::Off => "off",
            SandboxChoice::Auto => "auto",
            SandboxChoice::Require => "require",
        };
        let pairs = self.pairs.into_iter().flat_map(|(chain, key)| [chain, key]);
        let mut typed: Vec<OsString> = vec!["--".into(), self.store.into(), self.key.into()];
        typed.extend([
            sandbox.into(),
            self.folder.unwrap_or_default().into_os_string(),
        ]);
        typed.extend(pairs.map(PathBuf::into_os_string));
        typed
    }

    /// Reads what [`typed`](Self::typed) has written; `None` if that is something else.
    #[must_use]
    pub fn read(typed: &[OsString]) -> Option<Self> {
        let [store, key, sandbox, folder, pairs @ ..] = typed else {
            return None;
        };
        let pairs = pairs.chunks_exact(2);
        if !pairs.remainder().is_empty() {
            return None;
        }
        Some(Self {
            store: store.into(),
            key: key.to_str()?.to_owned(),
            sandbox: match sandbox.to_str()? {
                "off" => SandboxChoice::Off,
                "auto" => SandboxChoice::Auto,
                "require" => SandboxChoice::Require,
                _ => return None,
            },
            folder: Some(PathBuf::from(folder)).filter(|it| !it.as_os_str().is_empty()),
            pairs: pairs.map(|it| ((&it[0]).into(), (&it[1]).into())).collect(),
        })
    }
}

/// Receives until it is ended. Its standard input is a socket that listens.
///
/// # Errors
/// It is not started by a server, or cannot confine itself.
#[cfg(feature = "fleet")]
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    receiving::run(matches)
}

/// Says what is missing.
///
/// # Errors
/// Always.
#[cfg(not(feature = "fleet"))]
pub fn run(_: &ArgMatches) -> Result<u8, Failure> {
    check().map(|()| 0)
}

/// Refuses to receive if the program lacks what it takes.
///
/// # Errors
/// It was built without.
pub(crate) fn check() -> Result<(), Failure> {
    if cfg!(feature = "fleet") {
        return Ok(());
    }
    let cause = "cannot receive releases: this program was built without the feature 'fleet'";
    Err(Failure::usage(cause).help("build it with its default features"))
}

/// Refuses files of certificates that cannot be used, before anything waits for a first release.
///
/// # Errors
/// The file, and why; or as for [`check`].
#[cfg(feature = "fleet")]
pub(crate) fn check_pairs(pairs: Vec<(PathBuf, PathBuf)>) -> Result<(), Failure> {
    use gannet_fleet::{FleetError, Identity};
    use gannet_io::cause::FileError;
    let identity = Identity {
        pairs,
        folder: None,
    };
    identity.check().map_err(|error| {
        let is_denied = matches!(&error, FleetError::Io(FileError { error, .. }) if error.kind() == ErrorKind::PermissionDenied);
        let failure = Failure::from(error);
        match is_denied {
            true => failure.help("let the server's user (--user) read it: the receiver runs as that one"),
            false => failure,
        }
    })
}

#[cfg(not(feature = "fleet"))]
pub(crate) fn check_pairs(_: Vec<(PathBuf, PathBuf)>) -> Result<(), Failure> {
    check()
}

#[cfg(feature = "fleet")]
mod receiving {
    use std::ffi::OsString;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, PoisonError};
    use std::{fs, io, process};

    use clap::ArgMatches;
    use gannet_fleet::limits::DISK_DEFAULT;
    use gannet_fleet::{
        Counted, FleetError, Identity, Listener, Outcome, Received, Receiver, Report,
    };
    use gannet_io::cause::FileError;
    use gannet_io::sandbox::{Calls, Domain, Kernel, Reach, forbid_privileges};
    use gannet_server::config::SandboxChoice;
    use gannet_server::config::receipts::{Receipts, ReceiverCounts, ReceiverRefusal};
    use gannet_server::notices::ERRORS;
    use gannet_store::StoreError;

    use super::Arguments;
    use crate::commands::stores;
    use crate::messages::{Failure, printable};
    use crate::quantities::size;

    pub(super) fn run(matches: &ArgMatches) -> Result<u8, Failure> {
        let typed = matches.get_many::<OsString>("arguments");
        let typed: Vec<_> = typed.unwrap_or_default().cloned().collect();
        let not_for_users = || {
            Failure::usage("'gannet receive' is started by 'gannet serve --receive'")
                .help("see 'gannet serve --help'")
        };
        let arguments = Arguments::read(&typed).ok_or_else(not_for_users)?;
        let socket = io::stdin().as_fd().try_clone_to_owned();
        let socket = TcpListener::from(socket.map_err(|_| not_for_users())?);
        let address = socket.local_addr().map_err(|_| not_for_users())?;
        let memory = io::stdout().as_fd().try_clone_to_owned();
        let receipts = Receipts::new(memory.map_err(|_| not_for_users())?.into());
        // It reads private keys: no other process of its user looks into it, and no dump has them.
        forbid_privileges()
            .map_err(|error| Failure::of_system("confine", "the receiver", &error))?;
        let identity = Identity {
            pairs: arguments.pairs,
            folder: arguments.folder,
        };
        identity.check()?;
        // It may have been removed.
        let _ = fs::create_dir(&arguments.store);
        let begun = identity_of(&arguments.store);
        let store = arguments.store.clone();
        let confined = confine(arguments.sandbox, &arguments.store, &identity)?;
        let scheme = if identity.is_empty() { "http" } else { "https" };
        let folder = printable(&arguments.store.to_string_lossy());
        ERRORS.log(format_args!(
            "gannet: receiving releases for '{folder}' at {scheme}://{address} (confined by {confined})"
        ));
        let receiver = Receiver {
            folder: arguments.store,
            key: arguments.key,
            disk_max: DISK_DEFAULT,
            name: stores::publisher_name(),
        };
        let report = |report: Report| match report {
            Report::Received(received) => log_received(&folder, &received),
            Report::Refused(error) | Report::Unknown(error) => {
                // The room of a receiver is fixed.
                let is_full = matches!(error, FleetError::Disk { .. });
                let failure = Failure::from(error);
                let failure = match is_full {
                    true => failure.help("keep fewer releases: 'gannet publish --keep'"),
                    false => failure,
                };
                let message = format!("refused a publisher: {}", failure.message);
                Failure { message, ..failure }.report();
                if identity_of(&store) != begun {
                    // It was made again, out of reach: so is this process, by its keeper.
                    process::exit(1);
                }
            }
        };
        // What a receiver before this one has counted.
        let counts = Mutex::new(receipts.read());
        let count = |event: Counted<'_>| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            add(&mut counts, &event, stores::now());
            // If this fails, the next record has these, too.
            let _ = receipts.write(&counts);
        };
        Listener::new(receiver, identity, stores::now).run(&socket, &report, &count)
    }

    fn add(counts: &mut ReceiverCounts, event: &Counted<'_>, now: u64) {
        let refusal = match event {
            Counted::Connection => return counts.connections += 1,
            Counted::Bytes(bytes) => return counts.bytes += bytes,
            Counted::Received(Received {
                pointer, outcome, ..
            }) => {
                if *outcome == Outcome::Activated {
                    counts.releases += 1;
                    (counts.serial, counts.activated) = (pointer.serial, now);
                }
                return;
            }
            Counted::Crowded => ReceiverRefusal::Crowded,
            Counted::Handshake => ReceiverRefusal::Tls,
            Counted::Certificate => ReceiverRefusal::Certificate,
            Counted::Protocol => ReceiverRefusal::Protocol,
            Counted::Left => ReceiverRefusal::Left,
            Counted::Refused(error) => refusal(error),
        };
        counts.refused[refusal as usize] += 1;
    }

    fn refusal(error: &FleetError) -> ReceiverRefusal {
        use io::ErrorKind::{InvalidData, QuotaExceeded, StorageFull};
        match error {
            FleetError::Disk { .. } => ReceiverRefusal::Room,
            FleetError::Remote { .. } => ReceiverRefusal::Damaged,
            FleetError::Io(FileError { error, .. })
            | FleetError::Store(StoreError::Io(FileError { error, .. })) => match error.kind() {
                StorageFull | QuotaExceeded => ReceiverRefusal::Room,
                InvalidData => ReceiverRefusal::Malformed,
                _ => ReceiverRefusal::Store,
            },
            FleetError::Store(error) => match error {
                StoreError::Pointer(..) => ReceiverRefusal::Malformed,
                StoreError::Signature(..) => ReceiverRefusal::Signature,
                StoreError::Expired(..) => ReceiverRefusal::Expired,
                StoreError::Older { .. } | StoreError::Overtaken { .. } => ReceiverRefusal::Older,
                StoreError::Busy { .. } => ReceiverRefusal::Busy,
                StoreError::OtherFile(_) => ReceiverRefusal::Damaged,
                _ => ReceiverRefusal::Store,
            },
            _ => ReceiverRefusal::Store,
        }
    }

    /// Which folder it is, whatever its name.
    fn identity_of(folder: &Path) -> Option<(u64, u64)> {
        let found = fs::metadata(folder).ok()?;
        Some((found.dev(), found.ino()))
    }

    fn log_received(folder: &str, received: &Received) {
        let Received {
            pointer,
            bytes,
            outcome,
        } = received;
        let what = match outcome {
            Outcome::NoNews => return,
            // A client that has seen its pointer can send that again and again.
            Outcome::Brought if *bytes == 0 => return,
            Outcome::Brought => "not in force yet",
            Outcome::Activated => "in force",
        };
        let release = &pointer.release.to_string()[..16];
        ERRORS.log(format_args!(
            "gannet: '{folder}': serial {}, release {release}, received from {} and {what} ({} sent, it \
             has {})",
            pointer.serial,
            printable(&pointer.publisher),
            size(*bytes),
            size(pointer.size)
        ));
    }

    /// Confines the process to the store and the certificates, without any connection that it makes
    /// itself; returns by what.
    fn confine(
        choice: SandboxChoice,
        store: &Path,
        identity: &Identity,
    ) -> Result<String, Failure> {
        if choice == SandboxChoice::Off {
            return Ok("nothing".into());
        }
        let refuse = |error: &io::Error| Failure::of_system("confine", "the receiver", error);
        let kernel = Kernel::look();
        let mut by = Vec::new();
        match kernel.landlock {
            Ok(version) => by.push(format!("landlock {version}")),
            Err(errno) if choice == SandboxChoice::Require => return Err(refuse(&errno.into())),
            Err(_) => {}
        }
        match kernel.seccomp {
            Ok(()) => by.push("seccomp".to_owned()),
            Err(errno) if choice == SandboxChoice::Require => return Err(refuse(&errno.into())),
            Err(_) => {}
        }
        let reach = Reach {
            read: identity.files().flat_map(folders).collect(),
            change: vec![store.to_path_buf()],
            ..Reach::default()
        };
        let domain = Domain::new(&kernel, &reach, Calls::Store);
        domain
            .and_then(|it| it.enter())
            .map_err(|error| refuse(&error))?;
        Ok(if by.is_empty() {
            "nothing".into()
        } else {
            by.join(", ")
        })
    }

    /// The folders in which a file, or what a link in its place leads to, is replaced.
    fn folders(file: &Path) -> Vec<PathBuf> {
        if file.is_dir() {
            return vec![file.to_path_buf()];
        }
        let above = |file: &Path| file.parent().map(Path::to_path_buf);
        let target = file.canonicalize().ok();
        [above(file), target.as_deref().and_then(above)]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_are_typed() {
        let mut arguments = Arguments {
            store: "-store".into(),
            key: "RWQ".into(),
            sandbox: SandboxChoice::Auto,
            folder: None,
            pairs: Vec::new(),
        };
        let read = |it: &Arguments| Arguments::read(&it.clone().typed()[1..]);
        assert_eq!(read(&arguments).as_ref(), Some(&arguments));
        arguments.folder = Some("certificates".into());
        arguments.pairs = vec![("a.pem".into(), "a.key".into())];
        assert_eq!(read(&arguments).as_ref(), Some(&arguments));
        let typed = arguments.typed();
        assert_eq!(Arguments::read(&typed[1..typed.len() - 1]), None);
        assert_eq!(Arguments::read(&[]), None);
    }
}
