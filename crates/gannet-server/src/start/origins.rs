//! Where what is served comes from. Threads look there for changes.

use std::path::PathBuf;
use std::sync::Arc;

use super::follow::{self, LiveDirectory};
use super::releases::{self, Surroundings};
use super::running::Running;
use super::sandbox::Sandbox;
use super::start_error::StartError;
use super::{password_file, sites};
use crate::coder::Coder;
use crate::release::opened::Opened;

/// The origins of a server's content and passwords.
#[derive(Default)]
pub(super) struct Origins {
    /// Of live directories, with their indices among the contents.
    pub(super) directories: Vec<(usize, LiveDirectory)>,
    /// Of archives.
    pub(super) archives: Vec<releases::ArchiveOrigin>,
    /// Sites that are opened when they are requested.
    pub(super) sites: Option<sites::Waiting>,
    pub(super) passwords: Option<PathBuf>,
}

impl Origins {
    /// Whether files may be served live.
    pub(super) fn has_live(&self) -> bool {
        !self.directories.is_empty() || self.sites.is_some()
    }

    /// Descriptors of sites that are opened on demand.
    pub(super) fn open_max(&self) -> usize {
        self.sites.as_ref().map_or(0, sites::Waiting::open_max)
    }

    /// Starts the threads, each of which ends with the server.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn follow(
        self,
        running: &mut Running,
        surroundings: &Surroundings,
        opened: &Opened,
        coder: &Arc<Coder>,
        sandbox: &Sandbox,
    ) -> Result<(), StartError> {
        let published = &surroundings.published;
        let lookouts = follow::follow(self.directories, published, sandbox.readable());
        running.follow(lookouts.map_err(StartError::Resource)?);
        let lookouts = releases::follow(self.archives, &opened.contents, surroundings);
        running.follow(lookouts.map_err(StartError::Resource)?);
        if let Some(sites) = self.sites {
            let remotes = running.remotes().to_vec();
            let lookout = sites.start(surroundings, coder, &remotes, sandbox.readable());
            running.follow(vec![lookout.map_err(StartError::Resource)?]);
        }
        if let (Some(path), Some(current)) = (self.passwords, &opened.passwords) {
            let lookout = password_file::follow(path, Arc::clone(current), Arc::clone(published));
            running.follow(vec![lookout.map_err(StartError::Resource)?]);
        }
        Ok(())
    }
}
