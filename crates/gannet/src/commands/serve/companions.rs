//! Processes of this program beside the server, for what a serving process does not do itself: ask
//! other servers.

use std::ffi::OsString;

use gannet_io::companion::Companion;
use gannet_io::user::User;

use crate::messages::Failure;

/// A process to run.
pub(super) struct Wanted {
    /// What messages call it.
    pub(super) name: String,
    /// Its command line, without the program.
    pub(super) arguments: Vec<OsString>,
}

/// Those of this server. They end with it, or when this is dropped.
#[derive(Default)]
pub(super) struct Companions {
    all: Vec<Companion>,
    have_begun: bool,
}

impl Companions {
    /// Makes ready to start these. Called before any other thread starts, and before rights are given up.
    ///
    /// # Errors
    /// The system refuses another process.
    pub(super) fn fork(wanted: Vec<Wanted>, user: Option<&User>) -> Result<Self, Failure> {
        let fork = |it: Wanted| {
            Companion::fork(&it.name, it.arguments, user)
                .map_err(|error| Failure::of_system("start", &it.name, &error))
        };
        Ok(Self {
            all: wanted.into_iter().map(fork).collect::<Result<_, _>>()?,
            have_begun: false,
        })
    }

    /// Starts them, if they do not run yet.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.have_begun, true) {
            self.all.iter().for_each(Companion::begin);
        }
    }

    /// Ends them: another server has taken this one's place, or this one ends.
    pub(super) fn end(&mut self) {
        self.all.clear();
    }
}
