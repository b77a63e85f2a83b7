//! Why a server did not start, and how to fix it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use gannet_io::cause::cause;
use gannet_io::probe::Unavailable;

use crate::bounds::limits::SITE_WAIT_S;
use crate::config::ListenAddress;
use crate::passwords::file::PasswordFileError;
use crate::start::open::OpenError;
use crate::tls::certificates::CertificateError;
use crate::tls::kernel::Off;

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// The content cannot be served.
    Content(OpenError),
    /// The file system of this content does not answer.
    Unanswered(PathBuf),
    /// The password file cannot be used.
    Passwords(PasswordFileError),
    /// The requested engine is not available.
    Engine {
        /// The engine and the cause.
        cause: String,
        /// How to fix it.
        help: Option<String>,
    },
    /// A system call required for serving files is missing.
    Files(Unavailable),
    /// The certificates cannot be used.
    Certificate(CertificateError),
    /// An address speaks TLS, and there is no certificate.
    NoCertificate,
    /// Kernel TLS is required, and not available.
    KernelTls(Off),
    /// The log file cannot be opened.
    Log(String, io::Error),
    /// The metrics address cannot be bound.
    Metrics(SocketAddr, io::Error),
    /// The file of a Unix socket cannot be put in place.
    Listen(ListenAddress, io::Error),
    /// The user that the server becomes cannot do what it has to, in words; and how to fix it.
    Denied(String, Option<String>),
    /// A part of the sandbox is required and missing, for this reason.
    Sandbox(&'static str, String),
    /// The process cannot become this user's.
    User(String, io::Error),
    /// The process whose place this one was to take continues, or has ended.
    NotBegun(io::Error),
    /// A thread cannot be started, or no descriptor is free.
    Resource(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(error) => error.fmt(f),
            Self::Unanswered(path) => write!(
                f,
                "cannot open '{}': not open after {SITE_WAIT_S} s, since its file system does not \
                 answer or its rules take long",
                path.display()
            ),
            Self::Passwords(error) => error.fmt(f),
            Self::Engine { cause, .. } => f.write_str(cause),
            Self::Files(no) => write!(f, "cannot serve files: {no}"),
            Self::Certificate(error) => error.fmt(f),
            Self::KernelTls(why) => write!(f, "cannot use kernel TLS: {why}"),
            Self::NotBegun(error) => write!(
                f,
                "cannot take the place of the running server: {}",
                cause(error)
            ),
            Self::NoCertificate => f.write_str("an HTTPS address has no certificate"),
            Self::Log(path, error) => write!(f, "cannot open log file '{path}': {}", cause(error)),
            Self::Metrics(address, error) => {
                write!(f, "cannot answer metrics on '{address}': {}", cause(error))
            }
            Self::Listen(address, error) => {
                write!(f, "cannot listen on '{address}': {}", cause(error))
            }
            Self::Denied(what, _) => f.write_str(what),
            Self::Sandbox(part, why) => write!(f, "cannot sandbox the server: {part}: {why}"),
            Self::User(name, error) => write!(f, "cannot run as '{name}': {}", cause(error)),
            Self::Resource(error) => write!(f, "cannot start the server: {}", cause(error)),
        }
    }
}

impl std::error::Error for StartError {}

impl StartError {
    /// How to fix it, if known.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Content(error) => error.help(),
            Self::Unanswered(_) => Some(
                "see which disk or network file system hangs; without --user the other hosts of a folder \
                 are served meanwhile"
                    .into(),
            ),
            Self::Passwords(error) => error.help(),
            Self::Engine { help, .. } => help.clone(),
            Self::Files(no) => no.help.clone(),
            Self::Certificate(error) => error.help(),
            Self::KernelTls(why) => why.help().map(Into::into),
            Self::NotBegun(_) => Some("the running server says why; it continues".into()),
            Self::NoCertificate => {
                Some("name one with --tls-cert FILE, or have one made with --tls".into())
            }
            Self::Log(..) => Some("check the directory and its permissions".into()),
            Self::Metrics(_, error) => match error.kind() {
                io::ErrorKind::AddrInUse => {
                    Some("choose another port with --metrics ADDR:PORT".into())
                }
                io::ErrorKind::PermissionDenied => {
                    Some("ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one".into())
                }
                io::ErrorKind::AddrNotAvailable => {
                    Some("name an address of this machine, such as 127.0.0.1".into())
                }
                _ => None,
            },
            Self::Listen(..) => None,
            Self::Denied(_, help) => help.clone(),
            Self::Sandbox(..) => Some("use --sandbox auto, which continues without it".into()),
            Self::User(_, error) => match error.raw_os_error() {
                Some(_) => Some("root has to start gannet, with CAP_SETUID and CAP_SETGID".into()),
                // In words: a thread that kept rights, or no /proc to see them in.
                None => Some(
                    "mount /proc, which shows the rights of each thread, or have a service manager \
                     change the user"
                        .into(),
                ),
            },
            Self::Resource(_) => Some(
                "check 'ulimit -n', 'ulimit -u' and 'ulimit -v', and how many tasks the unit or the \
                 container may have"
                    .into(),
            ),
        }
    }
}
