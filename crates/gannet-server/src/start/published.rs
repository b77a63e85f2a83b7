//! The release served now, and the workers that serve it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::release::opened::{Opened, OpenedContent, What};
use crate::start::running::Remote;
use crate::worker::Message;

/// See the module documentation. Followers replace content here.
pub(crate) struct Published {
    opened: Mutex<Arc<Opened>>,
    workers: Vec<Remote>,
}

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
    pub(crate) fn replace(&self, place: usize, change: impl FnOnce(&What) -> What) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // The workers still hold the previous release; only its list of contents is copied.
        let content = &mut Arc::make_mut(&mut opened).contents[place];
        *content = Arc::new(OpenedContent {
            hosts: content.hosts.clone(),
            what: change(&content.what),
        });
        for worker in &self.workers {
            worker.tell(Message::Release(Arc::clone(&opened)));
        }
    }
}
