//! Errors of orders: the object, the cause, and what to do.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_io::cause::{FileError, cause, next_step};
use instant_acme::{Error as Acme, Problem};

use super::client::NoDirectory;
use super::{Challenge, folder};
use crate::limits::PROBLEM_LEN_MAX;
use crate::trust::{DISTRUSTED_HELP, is_distrusted};

const DIRECTORY_HELP: &str = "name the directory of an ACME server: https://HOST/PATH";

/// An error of an orderer. The same failure has the same text each time.
#[derive(Debug)]
pub enum AcmeError {
    /// Not the URL of an ACME server.
    Url(String, String),
    /// The system refuses something.
    Io(FileError),
    /// A file is not what was written there.
    Damaged(PathBuf, String),
    /// There is no account.
    Account {
        /// The server's URL.
        server: String,
        /// Why.
        cause: AcmeRefusal,
        /// The file with the key that it was to have, if that is known.
        draft: Option<PathBuf>,
    },
    /// It is not tried again yet: before a restart it has failed too often.
    Waits {
        /// A certificate for this host, or the account.
        host: Option<String>,
        /// The server's URL.
        server: String,
        /// In a row.
        failures: u32,
        /// When it is tried again, Unix seconds.
        until: i64,
        /// The file that says so.
        history: PathBuf,
    },
    /// The server does not know the account any more, which has been replaced already.
    Gone {
        /// The server's URL.
        server: String,
        /// The file that says when.
        history: PathBuf,
    },
    /// The account keeps its earlier address.
    Contact {
        /// The server's URL.
        server: String,
        /// Why.
        cause: AcmeRefusal,
    },
    /// The account is there already, and was bound to another one, or to none.
    Bound {
        /// The server's URL.
        server: String,
        /// The key that was given.
        key_id: String,
        /// The file of the account.
        path: PathBuf,
    },
    /// There is no certificate.
    Order {
        /// For this host.
        host: String,
        /// Why.
        cause: AcmeRefusal,
        /// How control was to be proved.
        challenge: Challenge,
    },
}

/// Why a server gave nothing.
#[derive(Clone, Debug)]
pub struct AcmeRefusal {
    /// In words.
    pub(crate) words: String,
    /// The kind of problem (RFC 8555 section 6.7), if the server named one: `rateLimited`.
    pub(crate) kind: Option<String>,
    /// The next step, if there is one whatever was requested.
    help: Option<&'static str>,
}

impl AcmeRefusal {
    pub(crate) fn new(words: impl AsRef<str>) -> Self {
        let words = shown(words.as_ref());
        Self {
            words,
            kind: None,
            help: None,
        }
    }

    pub(crate) fn of_problem(problem: &Problem) -> Self {
        let kind = problem.r#type.as_deref();
        let kind = kind.and_then(|it| it.strip_prefix("urn:ietf:params:acme:error:"));
        let details = problem
            .subproblems
            .iter()
            .filter_map(|it| it.detail.as_deref());
        let detail = problem.detail.as_deref().into_iter().chain(details);
        let mut words = detail.collect::<Vec<_>>().join("; ");
        if let Some(kind) = kind {
            words = match words.is_empty() {
                true => kind.to_owned(),
                false => format!("{words} ({kind})"),
            };
        }
        Self {
            kind: kind.map(str::to_owned),
            ..Self::new(words)
        }
    }

    /// Whether another key may be accepted (RFC 8555 section 6.7).
    fn is_of_key(&self) -> bool {
        let kind = self.kind.as_deref();
        kind.is_some_and(|kind| {
            ["unauthorized", "badPublicKey", "badSignatureAlgorithm"].contains(&kind)
        })
    }
}

/// Whether a nonce was refused (RFC 8555 section 6.5), as often as the library sends one request.
pub(super) fn is_of_nonce(error: &Acme) -> bool {
    matches!(error, Acme::Api(problem) if AcmeRefusal::of_problem(problem).kind.as_deref() == Some("badNonce"))
}

impl From<Acme> for AcmeRefusal {
    fn from(error: Acme) -> Self {
        match error {
            Acme::Api(problem) => Self::of_problem(&problem),
            Acme::Timeout(_) => Self::new("the server does not finish"),
            Acme::Json(_) => Self::new("the server's answer makes no sense"),
            Acme::Other(error) => {
                let mut root: &dyn Error = error.as_ref();
                while let Some(below) = root.source() {
                    root = below;
                }
                let refused = root.downcast_ref::<io::Error>();
                let help = match refused.is_some_and(is_distrusted) {
                    true => Some(DISTRUSTED_HELP),
                    false => root.is::<NoDirectory>().then_some(DIRECTORY_HELP),
                };
                let words = refused.map_or_else(|| root.to_string(), cause);
                Self {
                    help,
                    ..Self::new(words)
                }
            }
            error => Self::new(error.to_string()),
        }
    }
}

/// Words of a server, without what could confuse a terminal, and no more than fit a line or two.
fn shown(words: &str) -> String {
    let letters = words.chars().take(PROBLEM_LEN_MAX);
    let plain = letters.map(|it| if it.is_control() { ' ' } else { it });
    plain.collect()
}

impl AcmeError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        FileError::when(doing, path, Self::Io)
    }

    /// Whether the command line is wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Url(..))
    }

    /// Whether it is about every host: about the account, the files that are kept for all, or
    /// [the disk](Self::is_of_disk).
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        match self {
            Self::Account { .. } | Self::Gone { .. } | Self::Waits { host: None, .. } => true,
            Self::Io(FileError { path, .. }) | Self::Damaged(path, _) => {
                self.is_of_disk() || !folder::is_of_host(path)
            }
            _ => false,
        }
    }

    /// Whether the disk takes nothing more, whatever file is named: each host would have its own.
    #[must_use]
    pub fn is_of_disk(&self) -> bool {
        let Self::Io(FileError { error, .. }) = self else {
            return false;
        };
        matches!(
            error.kind(),
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::ReadOnlyFilesystem
        )
    }

    /// The next step, for a line `help: ...`.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        let (cause, port) = match self {
            Self::Url(..) => return Some(DIRECTORY_HELP.into()),
            Self::Io(FileError { error, .. }) => return next_step(error).map(str::to_owned),
            Self::Damaged(path, _) => {
                return Some(format!(
                    "remove '{}', and a new one is made",
                    path.display()
                ));
            }
            Self::Waits { history, .. } | Self::Gone { history, .. } => {
                return Some(format!(
                    "to try at once, remove '{}', and start again",
                    history.display()
                ));
            }
            Self::Bound { path, .. } => {
                return Some(format!(
                    "leave --eab-kid out, or remove '{}', and a new account is made",
                    path.display()
                ));
            }
            Self::Account {
                cause,
                draft: Some(draft),
                ..
            } if cause.is_of_key() => {
                return Some(format!(
                    "remove '{}', and the account is made with another key",
                    draft.display()
                ));
            }
            // For these, no name is looked up and no port is tried.
            Self::Account { cause, .. } | Self::Contact { cause, .. } => (cause, None),
            Self::Order {
                cause, challenge, ..
            } => match challenge {
                Challenge::Http => (cause, Some(80)),
                Challenge::Tls => (cause, Some(443)),
            },
        };
        if let Some(help) = cause.help {
            return Some(help.into());
        }
        let text = match cause.kind.as_deref()? {
            "externalAccountRequired" => {
                "get a key for an account there, and give it with --eab-kid and --eab-key".into()
            }
            "rateLimited" => "try a new setup with --staging, whose limits are high".into(),
            "invalidContact" => "give another address with --email, or none".into(),
            "invalidProfile" => "leave --profile out, or name one that the server offers".into(),
            "accountDoesNotExist" => "the next order makes a new account, once a day".into(),
            "caa" => "allow this authority in the CAA records of the name".into(),
            "rejectedIdentifier" | "unsupportedIdentifier" => {
                "name hosts that are public, or another ACME server".into()
            }
            "dns" | "connection" | "unauthorized" | "incorrectResponse" | "tls" => {
                let port = port?;
                format!(
                    "does the name lead to this server, and is port {port} reached from outside?"
                )
            }
            _ => return None,
        };
        Some(text)
    }
}

impl fmt::Display for AcmeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url, why) => write!(out, "cannot use '{url}': {why}"),
            Self::Io(error) => error.fmt(out),
            Self::Damaged(path, why) => write!(out, "cannot use '{}': {why}", path.display()),
            Self::Account { server, cause, .. } => {
                write!(out, "cannot get an account at '{server}': {}", cause.words)
            }
            Self::Waits {
                host,
                server,
                failures,
                ..
            } => {
                match host {
                    Some(host) => write!(out, "cannot get a certificate for '{host}' yet")?,
                    None => write!(out, "cannot get an account at '{server}' yet")?,
                }
                match failures {
                    0 => write!(out, ": earlier attempts did not end"),
                    1 => write!(out, ": it has failed before"),
                    many => write!(out, ": it has failed {many} times in a row"),
                }
            }
            Self::Gone { server, .. } => write!(
                out,
                "the account at '{server}' is gone again, less than a day after a new one was made"
            ),
            Self::Contact { server, cause } => write!(
                out,
                "cannot change the address of the account at '{server}': {}",
                cause.words
            ),
            Self::Bound { server, key_id, .. } => write!(
                out,
                "the account at '{server}' was not made with --eab-kid '{key_id}', which has no effect"
            ),
            Self::Order { host, cause, .. } => {
                write!(
                    out,
                    "cannot get a certificate for '{host}': {}",
                    cause.words
                )
            }
        }
    }
}

impl Error for AcmeError {}
