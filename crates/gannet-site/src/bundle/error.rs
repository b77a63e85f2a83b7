//! Errors of images.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_io::cause::{FileError, next_step};

use crate::archive::SiteError;

/// Why an image was not made. A file that was there before is untouched.
#[derive(Debug)]
pub enum BundleError {
    /// The archive cannot be used.
    Archive(SiteError),
    /// The program is not one, with the reason.
    Program(PathBuf, &'static str),
    /// The program needs a dynamic linker and libraries, which an image does not have.
    Dynamic(PathBuf),
    /// Not a name of an image, with the reason.
    Name(String, &'static str),
    /// The image would replace the archive that it is made of.
    Itself(PathBuf),
    /// The file that the image would replace is something else than an image.
    Foreign(PathBuf),
    /// The archive became shorter or longer meanwhile.
    Changed(PathBuf),
    /// The system refused something.
    Io(FileError),
}

impl BundleError {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        FileError::when(doing, path, Self::Io)
    }
}

impl From<SiteError> for BundleError {
    fn from(error: SiteError) -> Self {
        Self::Archive(error)
    }
}

impl BundleError {
    /// The next step, for a line `help: ...`; that of an archive is the archive's.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Archive(_) => None,
            Self::Program(..) | Self::Dynamic(_) => Some(
                "use a static program, as 'cargo xtask dist' makes it, or make an image of the \
                 archive alone with --no-program",
            ),
            Self::Name(..) => Some("name it such as 'registry.example.org/docs:1.2' with --name"),
            Self::Itself(_) => Some("name another file with -o"),
            Self::Foreign(_) => Some("name another file with -o, or remove this one first"),
            Self::Changed(_) => Some("try again when nothing writes to it"),
            Self::Io(FileError { error, .. }) => next_step(error),
        }
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive(error) => error.fmt(f),
            Self::Program(path, why) => {
                write!(f, "cannot put '{}' into an image: {why}", path.display())
            }
            Self::Dynamic(path) => write!(
                f,
                "cannot put '{}' into an image: it needs a C library, which is not in one",
                path.display()
            ),
            Self::Name(name, why) => write!(f, "cannot name an image '{name}': {why}"),
            Self::Itself(path) => {
                write!(f, "cannot write '{}': it is the archive", path.display())
            }
            Self::Foreign(path) => write!(
                f,
                "cannot replace '{}': the existing file is not an image",
                path.display()
            ),
            Self::Changed(path) => {
                write!(f, "cannot read '{}': it has changed", path.display())
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BundleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Archive(error) => Some(error),
            Self::Io(FileError { error, .. }) => Some(error),
            _ => None,
        }
    }
}
