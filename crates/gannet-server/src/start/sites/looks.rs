//! Looks for changes of the folder and of open sites, one after the other, by a thread that is left to
//! itself where a file system hangs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::set::Sites;
use crate::bounds::limits::{SITE_LOOKERS_MAX, SITE_SLOW_MS};

/// What to look at: the folder, then sites.
struct Round {
    sites: Vec<(Arc<[u8]>, usize)>,
    /// An operator has asked for it.
    is_asked: bool,
    /// How many looks were begun.
    begun: AtomicUsize,
}

impl Round {
    /// Begins the next look, and returns after it; false if there is none.
    fn look(&self, sites: &Sites) -> bool {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let Some(number) = number.checked_sub(1) else {
            sites.read_folder(self.is_asked);
            return true;
        };
        let Some((host, place)) = self.sites.get(number) else {
            return false;
        };
        sites.look_at(host, *place, self.is_asked);
        true
    }
}

/// Has a thread look at sites.
pub(super) struct Looks {
    sites: Arc<Sites>,
    /// The thread that is not known to hang: what it is to do, and a word when that is done.
    looker: Option<(Sender<Arc<Round>>, Receiver<()>)>,
    /// One for each thread.
    all: Arc<()>,
}

impl Looks {
    pub(super) fn new(sites: Arc<Sites>) -> Self {
        Self {
            sites,
            looker: None,
            all: Arc::default(),
        }
    }

    /// Looks at the folder and all open sites, but at nothing that another thread is still looking at.
    /// Waits a moment for what hangs, once.
    pub(super) fn look(&mut self, is_asked: bool) {
        let round = Arc::new(Round {
            sites: self.sites.to_look_at(),
            is_asked,
            begun: AtomicUsize::new(0),
        });
        while !self.go_through(&round) {}
    }

    /// Has a thread go through a round, or through the rest of it. False if that hangs.
    fn go_through(&mut self, round: &Arc<Round>) -> bool {
        if self.looker.is_none() && Arc::strong_count(&self.all) <= SITE_LOOKERS_MAX {
            // Without one, the next look tries again.
            self.looker = self.start().ok();
        }
        let Some((rounds, done)) = &self.looker else {
            return true;
        };
        let slow = Duration::from_millis(SITE_SLOW_MS);
        let mut ended = rounds.send(Arc::clone(round)).is_err();
        while !ended {
            let begun = || round.begun.load(Ordering::Relaxed);
            let before = begun();
            match done.recv_timeout(slow) {
                Err(RecvTimeoutError::Timeout) if begun() == before => {
                    self.looker = None;
                    return false;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => ended = true,
            }
        }
        true
    }

    fn start(&self) -> io::Result<(Sender<Arc<Round>>, Receiver<()>)> {
        let (rounds, inbox) = channel::<Arc<Round>>();
        let (outbox, done) = channel();
        let (sites, counted) = (Arc::clone(&self.sites), Arc::clone(&self.all));
        let work = move || {
            let _counted = counted;
            for round in inbox {
                while round.look(&sites) {}
                if outbox.send(()).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("gannet-looker".into());
        thread.spawn(work)?;
        Ok((rounds, done))
    }
}
