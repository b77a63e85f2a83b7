//! The processes beside a server, which do what a serving process does not: ask other servers.

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

/// Those of one server. They end with it, or when this is dropped.
pub(super) struct Companions {
    waiting: Vec<Companion>,
    begun: Vec<Companion>,
}

impl Companions {
    /// Makes ready to start these. Called before any other thread starts, and before rights are given up.
    ///
    /// # Errors
    /// The system refuses another process.
    pub(super) fn fork(
        wanted: impl IntoIterator<Item = Wanted>,
        user: Option<&User>,
    ) -> Result<Self, Failure> {
        let fork = |it: Wanted| {
            Companion::fork(&it.name, it.arguments, user)
                .map_err(|error| Failure::of_system("start", &it.name, &error))
        };
        Ok(Self {
            waiting: wanted.into_iter().map(fork).collect::<Result<_, _>>()?,
            begun: Vec::new(),
        })
    }

    /// Starts the first one, before the server serves: it waits for what that brings.
    pub(super) fn begin_first(&mut self) {
        self.begin_some(1);
    }

    /// Starts those that do not run yet.
    pub(super) fn begin(&mut self) {
        self.begin_some(self.waiting.len());
    }

    fn begin_some(&mut self, count: usize) {
        for one in self.waiting.drain(..count) {
            one.begin();
            self.begun.push(one);
        }
    }

    /// Ends them: another server has taken this one's place, or this one ends.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
        self.begun.clear();
    }
}
