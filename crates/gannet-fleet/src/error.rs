//! Errors of fleets: the object, the cause, and what to do.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::ArchiveError;
use gannet_io::cause::{FileError, cause, next_step};
use gannet_store::StoreError;
use gannet_store::limits::FOLLOWED_MAX;

use crate::limits::WORDS_LEN_MAX;
use crate::refusal;

/// An error of a follower. The same failure has the same text each time.
#[derive(Debug)]
pub enum FleetError {
    /// Not the URL of a store.
    Url {
        /// As it was given, without a password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing can be written to this store.
    ReadOnly(String),
    /// There is no certificate of an authority where this variable says.
    Trust(&'static str),
    /// The store does not do what it should.
    Remote {
        /// What was being done: `read`, `fetch`, `write`, `remove`, `keep`, `take over`.
        doing: &'static str,
        /// The URL of the object.
        object: String,
        /// Why it failed.
        cause: Cause,
    },
    /// The releases of the copy would have more bytes than they may.
    Disk {
        /// The copy.
        folder: PathBuf,
        /// What they would have.
        bytes: u64,
        /// What they may have.
        most: u64,
    },
    /// The folder has the copy of another store.
    OtherCopy {
        /// The folder.
        folder: PathBuf,
        /// The URL of that store.
        of: String,
        /// It is the same URL, at another service, or of another account.
        is_elsewhere: bool,
        /// The file that says so.
        note: PathBuf,
    },
    /// The bucket was put back to a state before the one that this machine has seen there.
    Rewound {
        /// The URL of the store.
        url: String,
        /// The serial of its pointer; `None` if it has none.
        found: Option<u64>,
        /// The serial that this machine has seen.
        seen: u64,
        /// The picture, which remembers that.
        picture: PathBuf,
    },
    /// The pointer, the log, or a release cannot be used, or the copy cannot be written.
    Store(StoreError),
    /// The system refuses something.
    Io(FileError),
}

/// Why a store could not be read.
#[derive(Debug)]
pub enum Cause {
    /// It said so, or could not be reached.
    Objects(object_store::Error),
    /// It did not answer in time.
    NoAnswer,
    /// A body came more slowly than it must.
    Slow,
    /// A body ended early.
    Short,
    /// A body went on after its end.
    Long,
    /// The file has another length than its pointer says.
    OtherLen {
        /// Its length.
        found: u64,
        /// That in the pointer.
        expected: u64,
    },
    /// The file is no archive.
    NotAnArchive(ArchiveError),
    /// The file is the archive of another release, or was changed.
    OtherArchive,
    /// Bytes of the file are not those of the release.
    Unverified {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        len: u64,
    },
    /// What is there under a release's name is not a whole archive of it.
    Damaged,
    /// Another publisher has removed a release that came into force, and this happened when it was
    /// written again.
    Gone(Box<FleetError>),
    /// A release came into force, and whether it is there cannot be seen.
    Unseen(Box<FleetError>),
    /// What nothing kept may be needed again: another pointer is in force.
    Replaced,
    /// Nothing says what is kept: the pointer was removed.
    NoPointer,
    /// It has more bytes than may be fetched.
    Large {
        /// Its length.
        bytes: u64,
        /// What may be fetched.
        most: u64,
        /// That is for want of room here.
        is_disk: bool,
    },
    /// What nothing kept was removed, and is needed: it is the release of a pointer that came into force
    /// at the same time.
    Needed,
    /// The store does not keep to conditions: it has written what was there already.
    Unconditional,
    /// It got no answer, and may be written yet; or it was refused, and this happened when it was asked
    /// for. Whether it is there is unknown.
    Unknown(Box<Cause>),
    /// The folder has more names than are read.
    Crowded,
    /// The newest entries of the log, as many as are fetched, are none that can be used.
    Hidden,
}

impl Cause {
    /// Whether another attempt may succeed at once.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Objects(error) => is_passing(error),
            Self::NoAnswer | Self::Slow | Self::Short => true,
            _ => false,
        }
    }
}

impl Cause {
    /// Whether a write that ended like this may still take effect, or has.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            Self::NoAnswer => true,
            Self::Objects(error @ object_store::Error::Generic { .. }) => {
                refusal::of(error, |it| Some(it.leaves_open())).unwrap_or_else(|| {
                    // Nothing was sent.
                    root_kind(error) != Some(io::ErrorKind::ConnectionRefused)
                })
            }
            _ => false,
        }
    }

    /// Whether a write was refused since its condition is not met.
    pub(crate) fn is_unmet(&self) -> bool {
        use object_store::Error as Objects;
        match self {
            Self::Objects(Objects::AlreadyExists { .. } | Objects::Precondition { .. }) => true,
            cause => cause.is_none(),
        }
    }

    /// Whether the store says that there is no such object, as it does to those who may list. That
    /// there is no such bucket is another thing.
    pub(crate) fn is_none(&self) -> bool {
        match self {
            Self::Objects(error @ object_store::Error::NotFound { .. }) => {
                refusal::of(error, |it| it.next_step()).is_none()
            }
            _ => false,
        }
    }

    /// Whether the object is not there. Object storages deny what does not exist to those who may not
    /// list.
    pub(crate) fn is_absence(&self) -> bool {
        use object_store::Error as Objects;
        matches!(
            self,
            Self::Objects(
                Objects::NotFound { .. }
                    | Objects::PermissionDenied { .. }
                    | Objects::Unauthenticated { .. }
            )
        )
    }
}

/// Whether another attempt at a request may succeed at once.
pub(crate) fn is_passing(error: &object_store::Error) -> bool {
    use object_store::Error as Objects;
    match error {
        Objects::Generic { .. } => refusal::of(error, |it| Some(it.is_passing()))
            .unwrap_or_else(|| root_kind(error) != Some(io::ErrorKind::FileTooLarge)),
        Objects::AlreadyExists { .. } => {
            refusal::of(error, |it| Some(it.is_conflict())).unwrap_or(false)
        }
        _ => false,
    }
}

/// The kind of the error of the system at the root of another one.
fn root_kind(error: &object_store::Error) -> Option<io::ErrorKind> {
    let error = root(error).downcast_ref::<io::Error>();
    error.map(io::Error::kind)
}

/// What lies at the root of an error.
fn root(error: &object_store::Error) -> &(dyn Error + 'static) {
    let mut root: &(dyn Error + 'static) = error;
    while let Some(below) = root.source() {
        root = below;
    }
    root
}

impl FleetError {
    /// Whether the store says that there is no such object.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Remote { cause, .. } if cause.is_none())
    }

    /// Whether the store no longer has an upload, or does not take its parts.
    pub(crate) fn is_of_upload(&self) -> bool {
        let Self::Remote {
            cause: Cause::Objects(error),
            ..
        } = self
        else {
            return false;
        };
        use object_store::Error as Objects;
        match error {
            Objects::NotFound { .. } => true,
            Objects::Generic { .. } => {
                refusal::of(error, |it| Some(it.is_of_upload())).unwrap_or(false)
            }
            _ => false,
        }
    }

    /// Whether the file system has no room.
    pub(crate) fn is_full(&self) -> bool {
        let error = match self {
            Self::Io(FileError { error, .. })
            | Self::Store(StoreError::Io(FileError { error, .. })) => error,
            _ => return false,
        };
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(error.kind(), StorageFull | QuotaExceeded)
    }

    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        FileError::when(doing, path, Self::Io)
    }

    /// The next step, for a line `help: ...`.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        if let Self::Remote {
            cause: Cause::Objects(error),
            ..
        } = self
            && let Some(next) = refusal::of(error, |it| it.next_step())
        {
            return Some(next.to_owned());
        }
        let text = match self {
            Self::Store(error) => return error.help(),
            Self::Io(FileError { error, .. }) => next_step(error)?,
            Self::Url { .. } => {
                "name the folder of a store: https://HOST/PATH, s3://BUCKET/PATH, gs://BUCKET/PATH, \
                 az://CONTAINER/PATH"
            }
            Self::ReadOnly(url) if url.starts_with("file:") => {
                "name the folder itself, without 'file://'"
            }
            Self::ReadOnly(_) => {
                "publish to a folder, or to a bucket: s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH; \
                 a server with --receive is named after that store: gannet publish SITE STORE https://HOST:PORT"
            }
            Self::Trust(_) => {
                "name a file of certificates in PEM form, or leave it out to trust the system's"
            }
            Self::OtherCopy {
                note, is_elsewhere, ..
            } => {
                let note = note.display();
                let service = match is_elsewhere {
                    true => {
                        "name the service and the account as before, in the environment \
                         (AWS_ENDPOINT_URL, GOOGLE_BASE_URL, AZURE_STORAGE_ACCOUNT_NAME), or "
                    }
                    false => "",
                };
                return Some(format!(
                    "{service}name another folder; if both are the same store under two names: rm \
                     '{note}'"
                ));
            }
            Self::Rewound { seen, picture, .. } => {
                let picture = picture.display();
                return Some(format!(
                    "put the newer state back. If the older one is meant, remove what is remembered \
                     of the other, 'rm -r {picture}', and publish until the serial is above {seen}: \
                     followers that have seen it take nothing below"
                ));
            }
            Self::Disk { .. } => {
                "allow for more with --disk, on demand with --on-demand, or keep fewer releases: 'gannet publish --keep'"
            }
            Self::Remote { cause, .. } => cause.help()?,
        };
        Some(text.to_owned())
    }
}

impl Cause {
    /// The next step.
    fn help(&self) -> Option<&'static str> {
        use object_store::Error as Objects;
        Some(match self {
            Self::Objects(Objects::NotFound { .. }) => {
                "is this the URL of a store, and has anything been published there?"
            }
            Self::Objects(Objects::PermissionDenied { .. } | Objects::Unauthenticated { .. }) => {
                "give credentials in the environment, such as AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY"
            }
            Self::Objects(Objects::NotSupported { .. }) => {
                "a web server for a store has to answer requests for ranges (RFC 9110 section 14)"
            }
            Self::Objects(Objects::NotImplemented { .. }) | Self::Unconditional => {
                "publishing takes a store with conditional writes (If-None-Match, If-Match), as \
                 those of Amazon, Google, Microsoft, Cloudflare, MinIO and Ceph"
            }
            Self::Damaged => "remove this object, and publish again",
            Self::Gone(_) | Self::Unseen(_) | Self::Needed => {
                "its pointer is in force: publish its site again"
            }
            Self::NoPointer => "publish again: that writes one",
            Self::Large { is_disk: true, .. } => {
                "make room, or name another disk for what is kept of stores: \
                 XDG_CACHE_HOME=/var/cache/gannet, or CACHE_DIRECTORY where that is set"
            }
            Self::Large { is_disk: false, .. } => "to go back to it, publish its site again",
            Self::Replaced => "the next 'gannet publish' removes it, if nothing keeps it",
            Self::Unknown(_) => {
                "'gannet releases' with the store's URL shows what is in force: look there before \
                 you publish again"
            }
            Self::Crowded => {
                "remove what does not belong to the store, and the oldest entries of its log"
            }
            Self::Hidden => {
                "remove them, or publish from a machine that has published there with this key before"
            }
            Self::Objects(_) | Self::NoAnswer | Self::Slow | Self::Short | Self::Long => {
                return None;
            }
            Self::OtherLen { .. }
            | Self::NotAnArchive(_)
            | Self::OtherArchive
            | Self::Unverified { .. } => "it was damaged or replaced there: publish its site again",
        })
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, why } => write!(out, "cannot use '{url}': {why}"),
            Self::ReadOnly(url) => write!(
                out,
                "cannot change store '{url}': what is behind such a URL can only be read"
            ),
            Self::Trust(variable) => write!(
                out,
                "cannot trust any store: no certificate of an authority is where {variable} says"
            ),
            Self::Remote {
                doing,
                object,
                cause,
            } => write!(out, "cannot {doing} '{object}': {cause}"),
            Self::Disk {
                folder,
                bytes,
                most,
            } => write!(
                out,
                "cannot copy to '{}': its releases would have {bytes} bytes, and may have {most}",
                folder.display()
            ),
            Self::OtherCopy {
                folder,
                of,
                is_elsewhere,
                ..
            } => {
                let folder = folder.display();
                write!(out, "cannot copy to '{folder}': it has a copy of '{of}'")?;
                match is_elsewhere {
                    true => out.write_str(" at another service, or of another account"),
                    false => Ok(()),
                }
            }
            Self::Rewound {
                url, found, seen, ..
            } => {
                write!(out, "cannot change store '{url}': ")?;
                match found {
                    Some(serial) => write!(out, "its pointer has serial {serial}")?,
                    None => out.write_str("it has no pointer")?,
                }
                write!(
                    out,
                    ", and this machine has seen serial {seen} there: it was put back to an older state"
                )
            }
            Self::Store(error) => error.fmt(out),
            Self::Io(error) => error.fmt(out),
        }
    }
}

impl Error for FleetError {}

impl From<StoreError> for FleetError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Objects(error) => out.write_str(&words(error)),
            Self::NoAnswer => out.write_str("no answer in time"),
            Self::Slow => out.write_str("it comes too slowly"),
            Self::Short => out.write_str("it ended early"),
            Self::Long => out.write_str("it is longer than it should be"),
            Self::OtherLen { found, expected } => {
                write!(out, "it has {found} bytes, and its pointer says {expected}")
            }
            Self::NotAnArchive(error) => error.fmt(out),
            Self::OtherArchive => out.write_str("it is not the file that its pointer names"),
            Self::Unverified { offset, len } => {
                write!(out, "its {len} bytes at offset {offset} are not those of the release")
            }
            Self::Damaged => out.write_str("it is not a whole archive of that release"),
            Self::Unseen(error) => {
                write!(out, "its pointer is in force, and it may be there: {error}")
            }
            Self::Gone(error) => {
                write!(out, "another publisher has removed it in the meantime: {error}")
            }
            Self::Replaced => out.write_str("another pointer is in force now"),
            Self::NoPointer => out.write_str("the store no longer has a pointer"),
            Self::Large {
                bytes,
                most,
                is_disk,
            } => {
                write!(out, "it has {bytes} bytes, and at most {most} are fetched")?;
                match is_disk {
                    true => out.write_str(": half of what is free here"),
                    false => Ok(()),
                }
            }
            Self::Needed => out.write_str(
                "it was removed when a pointer of another publisher came into force that names it",
            ),
            Self::Unconditional => out.write_str(
                "the store ignores conditions, so that one publisher could overwrite another's work",
            ),
            Self::Unknown(cause) => {
                write!(out, "it is not known whether it was written: {cause}")
            }
            Self::Crowded => out.write_str("it has more names than a store has"),
            Self::Hidden => write!(
                out,
                "its newest {FOLLOWED_MAX} entries are none that can be used, such as those with another \
                 signature than is required: they hide the others"
            ),
        }
    }
}

/// The root cause of an error, without what differs each time (the library adds how long a
/// request took), and without what could confuse a terminal.
fn words(error: &object_store::Error) -> String {
    use object_store::Error as Objects;
    if let Some(refused) = refusal::of(error, |it| it.words()) {
        return printable(&refused);
    }
    match error {
        Objects::NotFound { .. } => return "there is none".into(),
        Objects::PermissionDenied { .. } => return "permission denied".into(),
        Objects::Unauthenticated { .. } => return "it requires credentials".into(),
        Objects::NotSupported { .. } => return "it sends no ranges".into(),
        Objects::NotImplemented { .. } => return "the store has no conditional writes".into(),
        _ => {}
    }
    if let Some(status) = refusal::of(error, |it| Some(it.status_words())) {
        return printable(&status);
    }
    let root = root(error);
    match root.downcast_ref::<io::Error>() {
        Some(error) => cause(error),
        None => printable(&root.to_string()),
    }
}

/// The part of a foreign text that is shown.
fn printable(text: &str) -> String {
    let shown = text.chars().take(WORDS_LEN_MAX);
    shown
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}
