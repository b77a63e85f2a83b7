//! Errors of fleets: the object, the cause, and what to do.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::ArchiveError;
use gannet_io::cause::{cause, next_step};
use gannet_store::StoreError;

use crate::limits::WORDS_LEN_MAX;

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
        /// What was being done: `read`, `write`, `remove`, `take over`.
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
    /// The pointer, the log, or a release cannot be used, or the copy cannot be written.
    Store(StoreError),
    /// The system refuses something.
    Io {
        /// What was being done: `read`, `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
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
    /// What is there under a release's name is not a whole archive of it.
    Damaged,
    /// Another publisher has removed a release that came into force, and this happened when it was
    /// written again.
    Gone(Box<FleetError>),
    /// What nothing kept may be needed again: another pointer is in force.
    Replaced,
    /// The store does not keep to conditions: it has written what was there already.
    Unconditional,
    /// The folder has more names than are read.
    Crowded,
}

impl Cause {
    /// Whether another attempt may succeed at once.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Objects(error) => matches!(error, object_store::Error::Generic { .. }),
            Self::NoAnswer | Self::Slow | Self::Short => true,
            _ => false,
        }
    }
}

impl Cause {
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

impl FleetError {
    /// Whether the file system has no room.
    pub(crate) fn is_full(&self) -> bool {
        let error = match self {
            Self::Io { error, .. } | Self::Store(StoreError::Io { error, .. }) => error,
            _ => return false,
        };
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(error.kind(), StorageFull | QuotaExceeded)
    }

    pub(crate) fn io<'p>(
        doing: &'static str,
        path: &'p Path,
    ) -> impl FnOnce(io::Error) -> Self + use<'p> {
        move |error| Self::Io {
            doing,
            path: path.to_path_buf(),
            error,
        }
    }

    /// The next step, for a line `help: ...`.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        use object_store::Error as Objects;
        let text = match self {
            Self::Store(error) => return error.help(),
            Self::Io { error, .. } => next_step(error)?,
            Self::Url { .. } => {
                "name the folder of a store: https://HOST/PATH, s3://BUCKET/PATH, gs://BUCKET/PATH, \
                 az://CONTAINER/PATH"
            }
            Self::ReadOnly(url) if url.starts_with("file:") => {
                "name the folder itself, without 'file://'"
            }
            Self::ReadOnly(_) => {
                "publish to a folder on its machine, or to a bucket: s3://BUCKET/PATH, \
                 gs://BUCKET/PATH, az://CONTAINER/PATH"
            }
            Self::Trust(_) => {
                "name a file of certificates in PEM form, or leave it out to trust the system's"
            }
            Self::Disk { .. } => {
                "allow for more with --disk, or keep fewer releases: 'gannet publish --keep'"
            }
            Self::Remote { cause, .. } => match cause {
                Cause::Objects(Objects::NotFound { .. }) => {
                    "is this the URL of a store, and has anything been published there?"
                }
                Cause::Objects(
                    Objects::PermissionDenied { .. } | Objects::Unauthenticated { .. },
                ) => {
                    "give credentials in the environment, such as AWS_ACCESS_KEY_ID and \
                     AWS_SECRET_ACCESS_KEY"
                }
                Cause::Objects(Objects::NotSupported { .. }) => {
                    "a web server for a store has to answer requests for ranges (RFC 9110 section 14)"
                }
                Cause::Objects(Objects::NotImplemented { .. }) | Cause::Unconditional => {
                    "publishing takes a store with conditional writes (If-None-Match, If-Match), as \
                     those of Amazon, Google, Microsoft, Cloudflare, MinIO and Ceph"
                }
                Cause::Damaged => "remove this object, and publish again",
                Cause::Gone(_) => "its pointer is in force: publish its site again",
                Cause::Replaced => "the next 'gannet publish' removes it, if nothing keeps it",
                Cause::Crowded => "give the store a folder of its own",
                Cause::Objects(_) | Cause::NoAnswer | Cause::Slow | Cause::Short | Cause::Long => {
                    return None;
                }
                Cause::OtherLen { .. } | Cause::NotAnArchive(_) | Cause::OtherArchive => {
                    "it was damaged or replaced there: publish its site again"
                }
            },
        };
        Some(text.to_owned())
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
            Self::Store(error) => error.fmt(out),
            Self::Io { doing, path, error } => {
                write!(out, "cannot {doing} '{}': {}", path.display(), cause(error))
            }
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
            Self::Damaged => out.write_str("it is not a whole archive of that release"),
            Self::Gone(error) => {
                write!(out, "another publisher has removed it in the meantime: {error}")
            }
            Self::Replaced => out.write_str("another pointer is in force now"),
            Self::Unconditional => out.write_str(
                "the store ignores conditions, so that one publisher could overwrite another's work",
            ),
            Self::Crowded => out.write_str("it has more names than a store has"),
        }
    }
}

/// The root cause of an error, without what differs each time (the library adds how long a
/// request took), and without what could confuse a terminal.
fn words(error: &object_store::Error) -> String {
    use object_store::Error as Objects;
    match error {
        Objects::NotFound { .. } => return "there is none".into(),
        Objects::PermissionDenied { .. } => return "permission denied".into(),
        Objects::Unauthenticated { .. } => return "it asks for credentials".into(),
        Objects::NotSupported { .. } => return "it sends no ranges".into(),
        Objects::NotImplemented { .. } => return "the store has no conditional writes".into(),
        _ => {}
    }
    let mut root: &dyn Error = error;
    while let Some(below) = root.source() {
        root = below;
    }
    if let Some(error) = root.downcast_ref::<io::Error>() {
        return cause(error);
    }
    let text = root.to_string();
    let text = text.strip_prefix(STATUS).map_or_else(
        || text.clone(),
        |status| format!("status {}", status.trim_end_matches([':', ' '])),
    );
    let shown = text.chars().take(WORDS_LEN_MAX);
    shown
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

/// How the library names an answer that is an error.
const STATUS: &str = "Server returned non-2xx status code: ";
