//! Errors of the libraries as failures of the program.

use std::path::Path;

use gannet_get::GetError;
use gannet_site::archive::SiteError;
use gannet_site::import::ImportError;
use gannet_site::pack::PackError;

use crate::messages::{Exit, Failure};

impl From<SiteError> for Failure {
    fn from(error: SiteError) -> Self {
        if let SiteError::Output(error) = error {
            // A closed pipe is not a failure.
            return Self::from_output(error);
        }
        Self {
            message: error.to_string(),
            help: error.help(),
            exit: Exit::Failed,
        }
    }
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        Self {
            message: error.to_string(),
            help: error.help(),
            exit: match error {
                PackError::Types(_) => Exit::Usage,
                _ => Exit::Failed,
            },
        }
    }
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        match error {
            GetError::Certificates(_) => Self::usage(error.to_string())
                .help("name a file of certificates (PEM) with --cacert FILE"),
            GetError::Output(error) => Self::from_output(error),
            GetError::Failed {
                doing,
                object,
                cause,
                help,
            } => Self {
                help,
                ..Self::new(doing, object, cause)
            },
        }
    }
}

/// An archive of another kind could not be imported.
pub(super) fn of_import(archive: &Path, error: &ImportError) -> Failure {
    Failure {
        help: error.help().map(Into::into),
        ..Failure::new("import", archive.display(), error)
    }
}
