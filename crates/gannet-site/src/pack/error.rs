//! Why a site could not be packed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::ArchiveError;
use gannet_content::rules::problem::Problem;
use gannet_io::cause::cause;

use crate::archive::SiteError;

/// Why a site could not be packed. An archive that was there before is untouched.
#[derive(Debug)]
pub enum PackError {
    /// The system refused something.
    Io {
        /// What was being done: `read`, `write`, ...
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The path to pack is not a directory.
    NotADirectory(PathBuf),
    /// There is nothing to pack.
    Empty(PathBuf),
    /// No folder has the name of a host.
    NoHosts(PathBuf),
    /// There are more hosts than an archive has room for.
    TooManyHosts(PathBuf),
    /// A file changed while it was packed.
    Changed(PathBuf),
    /// A pair of suffix and content type that cannot be used.
    Types(String),
    /// A pattern that cannot be used, or a file of patterns, and why.
    Pattern(String, String),
    /// The rules files of the site have mistakes.
    Rules(Vec<Problem>),
    /// What has the name of a file of rules or of patterns is none, and would be left out with all
    /// that it says; what it is instead.
    NoFile(PathBuf, &'static str),
    /// The release before cannot be compared with.
    Previous(SiteError),
    /// A key that cannot sign, and why.
    Key(PathBuf, String),
    /// The archive would break a rule of its format.
    Archive(PathBuf, ArchiveError),
}

impl PackError {
    pub(super) fn io<'p>(
        doing: &'static str,
        path: &'p Path,
    ) -> impl FnOnce(io::Error) -> Self + use<'p> {
        move |error| Self::Io {
            doing,
            path: path.to_path_buf(),
            error,
        }
    }

    /// The same with the folder of the site before the names of rules files.
    pub(super) fn in_folder(mut self, folder: &Path) -> Self {
        if let Self::Rules(problems) = &mut self {
            let found = std::mem::take(problems).into_iter();
            *problems = found.map(|problem| problem.of_site(folder)).collect();
        }
        self
    }

    pub(super) fn pattern(pattern: &str, error: &ignore::Error) -> Self {
        Self::Pattern(format!("'{pattern}'"), error.to_string())
    }

    pub(super) fn patterns(file: &Path, error: &ignore::Error) -> Self {
        // The error of a file names the file, and of one pattern the line.
        Self::Pattern(format!("of '{}'", file.display()), error.to_string())
    }
}

/// What was being done to a file of the site, in [`PackError::Io`].
pub const READ: &str = "read";
/// What was being done to the archive, in [`PackError::Io`].
pub const WRITE: &str = "write";
/// What was being done to the key.
pub const READ_KEY: &str = "read the key";
/// What was being done to the directory that builds keep things in.
pub const KEEP: &str = "keep anything in";

impl fmt::Display for PackError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => {
                write!(out, "cannot {doing} '{}': {}", path.display(), cause(error))
            }
            Self::NotADirectory(path) => {
                write!(out, "cannot pack '{}': not a directory", path.display())
            }
            Self::NoHosts(path) => write!(
                out,
                "cannot pack '{}': no folder has the name of a host",
                path.display()
            ),
            Self::TooManyHosts(path) => write!(
                out,
                "cannot pack '{}': more than 65534 hosts",
                path.display()
            ),
            Self::Empty(path) => write!(out, "cannot pack '{}': no files in it", path.display()),
            Self::Changed(path) => {
                write!(
                    out,
                    "cannot pack '{}': it changed while it was being read",
                    path.display()
                )
            }
            Self::Pattern(object, error) => write!(out, "cannot use pattern {object}: {error}"),
            Self::Previous(error) => write!(out, "{error}"),
            Self::Key(path, why) => {
                write!(out, "cannot sign with '{}': {why}", path.display())
            }
            Self::NoFile(path, what) => write!(
                out,
                "cannot read '{}': it is {what} (expected a file)",
                path.display()
            ),
            Self::Types(pair) => write!(out, "cannot use content type '{pair}'"),
            Self::Rules(problems) => {
                out.write_str("cannot use the rules of the site:")?;
                for problem in problems {
                    write!(out, "\n  {problem}")?;
                    if let Some(help) = problem.what.help() {
                        write!(out, " ({help})")?;
                    }
                }
                Ok(())
            }
            Self::Archive(path, error) => {
                write!(out, "cannot write archive '{}': {error}", path.display())
            }
        }
    }
}

impl std::error::Error for PackError {}
