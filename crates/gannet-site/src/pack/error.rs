//! Errors of packing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_archive::ArchiveError;
use gannet_content::rules::problem::Problem;
use gannet_io::cause::FileError;

use crate::archive::SiteError;

/// An error of packing. An archive that existed before is untouched.
#[derive(Debug)]
pub enum PackError {
    /// The system refused something.
    Io(FileError),
    /// The path to pack is not a directory.
    NotADirectory(PathBuf),
    /// There is nothing to pack.
    Empty(PathBuf),
    /// No folder has the name of a host.
    NoHosts(PathBuf),
    /// There are more hosts than an archive supports.
    TooManyHosts(PathBuf),
    /// A file changed while it was being packed.
    Changed(PathBuf),
    /// An invalid pair of suffix and content type.
    Types(String),
    /// An invalid pattern, or an unusable file of patterns, with the reason.
    Pattern(String, String),
    /// The rules files of the site have mistakes.
    Rules(Vec<Problem>),
    /// Something other than a file has the name of a rules or patterns file, which packing would
    /// otherwise ignore silently; says what it is.
    NoFile(PathBuf, &'static str),
    /// This path is decompressed from a file whose path, which follows, has other users.
    OtherUsers(String, String),
    /// A symbolic link leads out of the site, as this many others do.
    LeadsOut(PathBuf, usize),
    /// The folder of a host is a symbolic link that leads out of the folder of all hosts.
    HostLeadsOut(PathBuf),
    /// A patterns file is a symbolic link that leads out of the site.
    PatternsLeadOut(PathBuf),
    /// The previous release cannot be opened.
    Previous(SiteError),
    /// Files are to be carried on, but the site has no time: no file has a modification time.
    NoTime(PathBuf),
    /// A key that cannot be used for signing, with the reason.
    Key(PathBuf, String),
    /// The archive would violate its format.
    Archive(PathBuf, ArchiveError),
}

impl PackError {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        FileError::when(doing, path, Self::Io)
    }

    /// Prepends the site's folder to the names of rules files.
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
        // An error about a file names the file; one about a pattern has its line.
        Self::Pattern(format!("of '{}'", file.display()), error.to_string())
    }
}

/// The action in [`PackError::Io`] for files of the site.
pub const READ: &str = "read";
/// The action in [`PackError::Io`] for the archive.
pub const WRITE: &str = "write";
/// The action in [`PackError::Io`] for the key.
pub const READ_KEY: &str = "read the key";
/// The action in [`PackError::Io`] for the cache directory.
pub const KEEP: &str = "keep build state in";

fn write_problems(problems: &[Problem], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    out.write_str("cannot use the rules of the site:")?;
    for problem in problems {
        write!(out, "\n  {problem}")?;
        if let Some(help) = problem.what.help() {
            write!(out, " ({help})")?;
        }
    }
    Ok(())
}

impl fmt::Display for PackError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
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
            Self::NoTime(path) => write!(
                out,
                "cannot decide what to carry on: no file of '{}' has a modification time",
                path.display()
            ),
            Self::Key(path, why) => {
                write!(out, "cannot sign with '{}': {why}", path.display())
            }
            Self::NoFile(path, what) => write!(
                out,
                "cannot read '{}': it is {what} (expected a file)",
                path.display()
            ),
            Self::LeadsOut(path, others) => {
                let (path, more) = (path.display(), format!(" (and {others} more)"));
                let more = if *others > 0 { &*more } else { "" };
                write!(
                    out,
                    "cannot pack '{path}': a symbolic link leads out of the site{more}"
                )
            }
            Self::OtherUsers(path, stored) => write!(
                out,
                "cannot pack '{path}': it is decompressed from '{stored}', which has other users in '_headers'"
            ),
            Self::HostLeadsOut(path) => write!(
                out,
                "cannot pack '{}': the folder of a host is a symbolic link out of the directory",
                path.display()
            ),
            Self::PatternsLeadOut(path) => write!(
                out,
                "cannot read '{}': a symbolic link leads out of the site",
                path.display()
            ),
            Self::Types(pair) => write!(out, "cannot use content type '{pair}'"),
            Self::Rules(problems) => write_problems(problems, out),
            Self::Archive(path, error) => {
                write!(out, "cannot write archive '{}': {error}", path.display())
            }
        }
    }
}

impl std::error::Error for PackError {}
