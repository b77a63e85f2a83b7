//! Fetches what partial releases lack, when servers ask for it.
//!
//! ```text
//! question ─▶ units that are lacking ─▶ one range of the store ─▶ digests ─▶ file ─▶ sync ─▶ bits ─▶ answer
//! ```
//!
//! All of it happens on one thread, which owns the files; syncing alone waits on another one, for all units
//! that were written meanwhile. Equal questions are one, and questions for the same units wait for one fetch.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gannet_store::{ReleaseId, Store};
use tokio::runtime::Builder;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::demand::Demand;
use crate::error::FleetError;
use crate::limits::MESSAGES_MAX;
use crate::remote::Remote;

/// What a server needs of a partial release.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Want {
    /// The release.
    pub release: ReleaseId,
    /// The number of a stored blob.
    pub blob: u32,
    /// A range of the blob, counted from its start; it may go beyond its end.
    pub range: Range<u64>,
    /// Whom it is for, if that is known: those who want much at the same time take turns.
    pub client: Option<u128>,
    /// No client waits for it yet.
    pub is_ahead: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The units at the start of the range are there, as many as fit into
    /// [`FETCH_LEN_MAX`](crate::limits::FETCH_LEN_MAX).
    Present(Effort),
    /// They are not.
    Failed(Reason, Effort),
}

/// Why something was not fetched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The store sends other bytes than those of the release.
    Damaged,
    /// The store does not answer, or not in time, or refuses.
    Unreachable,
    /// There is no room for it, or the disk fails.
    NoRoom,
    /// Too many wait already.
    Busy,
    /// There is no such partial release here, or it has no such blob.
    Unknown,
}

/// What it took. Of those that wait for one fetch, the first alone learns of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Effort {
    /// Bytes that came from the store.
    pub fetched: u64,
    /// How long the store took; zero if nothing was fetched.
    pub took: Duration,
    /// Units that were not what they should be.
    pub unverified: u32,
}

/// Is called with an answer, on the fetcher's thread, which it must not hold up.
pub type Answered = Box<dyn FnOnce(Answer) + Send>;

/// A message to the fetcher's thread.
pub(crate) enum Message {
    Ask(Want, Answered),
    Used(Want),
    InForce(ReleaseId),
}

/// Fetches units of the partial releases of a copy, on a thread of its own, which ends with this.
pub struct Fetcher {
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Fetcher {
    /// Begins. The [`Follower`](crate::Follower) of the folder has to live as long: it has the lock. All files of
    /// releases take `room` bytes on the disk at most. `report` is
    /// called with what fails, on the fetcher's thread; the same failure is reported once until a fetch succeeds.
    ///
    /// # Errors
    /// The folder is no store yet, or the system has no thread.
    pub fn start(
        remote: Remote,
        folder: &Path,
        room: u64,
        report: impl FnMut(FleetError) + Send + 'static,
    ) -> Result<Self, FleetError> {
        let store = Store::open(folder, None)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(FleetError::io("fetch into", folder))?;
        let (messages, received) = channel(MESSAGES_MAX);
        let demand = move || Demand::new(Arc::new(remote), store, room, Box::new(report));
        let thread = thread::Builder::new()
            .name("fetcher".into())
            .spawn(move || {
                runtime.block_on(run(demand(), received));
                // Syncing may still wait for the disk.
                runtime.shutdown_background();
            });
        let thread = thread.map_err(FleetError::io("fetch into", folder))?;
        Ok(Self {
            messages: Some(messages),
            thread: Some(thread),
        })
    }

    /// Makes what a server needs present, and reads ahead to the end of the blob; of a longer one
    /// [`FETCH_LEN_MAX`](crate::limits::FETCH_LEN_MAX) bytes.
    pub fn ask(&self, want: Want, answered: Answered) {
        let refused = match &self.messages {
            Some(messages) if want.is_ahead && messages.capacity() <= MESSAGES_MAX / 2 => {
                Err(TrySendError::Full(Message::Ask(want, answered)))
            }
            Some(messages) => messages.try_send(Message::Ask(want, answered)),
            None => return,
        };
        if let Err(refused) = refused
            && let Message::Ask(_, answered) = refused.into_inner()
        {
            answered(Answer::Failed(Reason::Busy, Effort::default()));
        }
    }

    /// A server has sent this without asking: what is used stays, and is fetched first of the next release. It is
    /// dropped if there is much to do.
    pub fn used(&self, want: Want) {
        if let Some(messages) = &self.messages
            && messages.capacity() > MESSAGES_MAX / 2
        {
            let _ = messages.try_send(Message::Used(want));
        }
    }

    /// This release is in force from here on: it is warmed by the use of the one before.
    pub fn in_force(&self, release: ReleaseId) {
        if let Some(messages) = &self.messages {
            // With a full queue it is news still: the next question opens the release.
            let _ = messages.try_send(Message::InForce(release));
        }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Works until nothing asks any more.
async fn run(mut demand: Demand, mut messages: Receiver<Message>) {
    loop {
        demand.advance();
        let message = poll_fn(|context| {
            if demand.poll(context).is_ready() {
                return Poll::Ready(Some(None));
            }
            messages.poll_recv(context).map(|it| it.map(Some))
        });
        match message.await {
            Some(Some(message)) => demand.take(message),
            Some(None) => {}
            None => return,
        }
    }
}

impl From<&io::Error> for Reason {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Self::Unknown,
            _ => Self::NoRoom,
        }
    }
}
