//! The release served now, and the workers that serve it.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ground::inbox::Applying;
use crate::ground::inbox::Message;
use crate::ground::inbox::Remote;
use crate::passwords::file::PasswordFile;
use crate::release::opened::{Generations, Opened};

/// See the module documentation. Followers replace content here.
pub(crate) struct Published {
    opened: Mutex<Arc<Opened>>,
    workers: Vec<Remote>,
}

/// A release on its way to the workers.
pub(crate) struct Applied(Receiver<Infallible>);

impl Published {
    /// The release that these workers were started with.
    pub(crate) fn new(opened: Arc<Opened>, workers: Vec<Remote>) -> Self {
        Self {
            opened: Mutex::new(opened),
            workers,
        }
    }

    /// Replaces the content at index `place` with the result of `change`, and sends the new release
    /// to all workers: all of them get the same releases, in the same order.
    pub(crate) fn replace(
        &self,
        place: usize,
        change: impl FnOnce(&Generations) -> Generations,
    ) -> Applied {
        self.publish(|opened| {
            // A site that was closed meanwhile stays closed.
            if let Some(content) = opened.contents.get_mut(&place) {
                *content = change(content);
            }
        })
    }

    /// Looks at the content at index `place`, unless it was closed.
    pub(crate) fn look<T>(&self, place: usize, look: impl FnOnce(&Generations) -> T) -> Option<T> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.contents.get(&place).map(look)
    }

    /// Replaces the operator's users.
    pub(crate) fn replace_passwords(&self, passwords: Arc<PasswordFile>) {
        self.publish(|opened| opened.passwords = Some(passwords));
    }

    /// Sends the result of `change` to all workers.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Opened)) -> Applied {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // The workers still hold the previous release; only its list of contents is copied.
        change(Arc::make_mut(&mut opened));
        let (sender, receiver) = channel();
        for worker in &self.workers {
            let applying = Applying {
                _sender: sender.clone(),
            };
            worker.send(Message::Release(Arc::clone(&opened), applying));
        }
        Applied(receiver)
    }
}

impl Applied {
    /// A release that was not sent.
    pub(crate) fn to_nobody() -> Self {
        Self(channel().1)
    }

    /// Waits until all workers serve the release, or have ended; false if that takes longer than
    /// `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        match self.0.recv_timeout(patience) {
            Err(RecvTimeoutError::Disconnected) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Ok(never) => match never {},
        }
    }
}
