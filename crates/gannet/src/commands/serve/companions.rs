//! The processes beside a server, which do what a serving process does not: ask other servers.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use gannet_io::companion::Companion;
use gannet_io::user::User;

use crate::messages::Failure;

/// A process to run.
pub(super) struct CompanionCommand {
    /// What messages call it.
    pub(super) name: String,
    /// Its command line, without the program.
    pub(super) arguments: Vec<OsString>,
    /// A variable of its environment, for what a command line would show to everybody.
    pub(super) variable: Option<(&'static str, OsString)>,
    /// Its standard input.
    pub(super) input: Option<OwnedFd>,
    /// Its standard output; otherwise that is its standard error.
    pub(super) output: Option<OwnedFd>,
}

/// A process, and what messages call it.
struct NamedProcess {
    name: String,
    companion: Companion,
}

/// Those of one server. They end with it, or when this is dropped.
pub(super) struct Companions {
    waiting: Vec<NamedProcess>,
    begun: Vec<NamedProcess>,
}

impl Companions {
    /// Makes ready to start these. Called before any other thread starts, and before rights are given up.
    ///
    /// # Errors
    /// The system refuses another process.
    pub(super) fn fork(
        wanted: impl IntoIterator<Item = CompanionCommand>,
        user: Option<&User>,
    ) -> Result<Self, Failure> {
        let fork = |it: CompanionCommand| {
            let variable = it.variable.as_ref();
            let variables: Vec<_> = variable
                .map(|(name, value)| (*name, &**value))
                .into_iter()
                .collect();
            let pipes = [it.input, it.output];
            match Companion::fork(&it.name, it.arguments, &variables, pipes, user) {
                Ok(companion) => Ok(NamedProcess {
                    name: it.name,
                    companion,
                }),
                Err(error) => Err(Failure::of_system("start", &it.name, &error)),
            }
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
            one.companion.begin();
            self.begun.push(one);
        }
    }

    /// The next one that runs no more, and is not started again: what started it was killed.
    pub(super) fn lost(&mut self) -> Option<String> {
        let at = self.begun.iter().position(|it| it.companion.is_lost())?;
        Some(self.begun.remove(at).name)
    }

    /// Ends them: another server has taken this one's place, or this one ends.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
        self.begun.clear();
    }
}
