//! The workers' counters for other threads: polled, and cached for when a worker is busy.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::bounds::limits::SNAPSHOT_MS;
use crate::ground::inbox::Message;
use crate::ground::inbox::Remote;
use crate::observe::metrics::{Counters, WorkerCounts};

/// Access to the counters of all workers, for any thread.
#[derive(Clone)]
pub(crate) struct Snapshots(Arc<Mutex<Vec<Polled>>>);

/// A worker, and the poll it has not answered.
struct Polled {
    remote: Remote,
    /// A pending poll. No second one is sent, so that polls do not pile up in the inbox of a busy
    /// worker.
    answer: Option<Receiver<Counters>>,
    known: WorkerCounts,
}

impl Snapshots {
    pub(crate) fn new(remotes: impl IntoIterator<Item = Remote>) -> Self {
        let polled = remotes.into_iter().map(|remote| Polled {
            remote,
            answer: None,
            known: WorkerCounts::default(),
        });
        Self(Arc::new(Mutex::new(polled.collect())))
    }

    /// Polls all workers, and waits for their answers no longer than [`SNAPSHOT_MS`] in all.
    pub(crate) fn take(&self) -> Vec<WorkerCounts> {
        let mut workers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + Duration::from_millis(SNAPSHOT_MS);
        for worker in workers.iter_mut() {
            worker.ask();
        }
        let listen = |worker: &mut Polled| {
            worker.listen(end);
            worker.known.clone()
        };
        workers.iter_mut().map(listen).collect()
    }
}

impl Polled {
    fn ask(&mut self) {
        // An answer to an earlier poll, received after that poll's deadline, is older than this
        // poll.
        if let Some(answer) = &self.answer
            && let Ok(late) = answer.try_recv()
        {
            self.known.counters = Some(late);
            self.answer = None;
        }
        if self.answer.is_none() {
            let (reply, answer) = channel();
            self.remote.send(Message::Snapshot(reply));
            self.answer = Some(answer);
        }
    }

    fn listen(&mut self, end: Instant) {
        let Some(answer) = &self.answer else { return };
        let patience = end.saturating_duration_since(Instant::now());
        self.known.is_up = match answer.recv_timeout(patience) {
            Ok(counters) => {
                self.known.counters = Some(counters);
                self.answer = None;
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            // The worker has ended.
            Err(RecvTimeoutError::Disconnected) => {
                self.answer = None;
                false
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use gannet_io::driver::{Network, Token};
    use gannet_io::epoll::Epoll;
    use gannet_io::options::EngineOptions;

    use super::*;

    /// A worker whose inbox the test reads.
    fn worker() -> (Remote, Receiver<Message>) {
        let mut driver = Epoll::new(Vec::new(), &EngineOptions::default()).expect("epoll");
        let (sender, inbox) = channel();
        (Remote::new(sender, driver.waker(Token(0))), inbox)
    }

    fn question(inbox: &Receiver<Message>) -> Sender<Counters> {
        match inbox.try_recv() {
            Ok(Message::Snapshot(reply)) => reply,
            _ => panic!("no poll was sent"),
        }
    }

    fn counts(shed: u64) -> Counters {
        Counters {
            shed,
            ..Counters::default()
        }
    }

    fn shown(taken: &[WorkerCounts]) -> Vec<(bool, Option<u64>)> {
        let shown = |one: &WorkerCounts| (one.is_up, one.counters.as_ref().map(|it| it.shed));
        taken.iter().map(shown).collect()
    }

    /// Counters never decrease, and a busy worker has one poll in its inbox, not one for each
    /// scrape.
    #[test]
    fn a_busy_worker_keeps_its_last_numbers() {
        let (remote, inbox) = worker();
        let snapshots = Snapshots::new([remote]);
        assert_eq!(shown(&snapshots.take()), [(false, None)]);
        question(&inbox).send(counts(1)).expect("it is waited for");
        let answers = std::thread::scope(|scope| {
            let taken = scope.spawn(|| snapshots.take());
            let Ok(Message::Snapshot(reply)) = inbox.recv() else {
                panic!("no poll was sent");
            };
            reply.send(counts(2)).expect("it is waited for");
            taken.join().expect("taken")
        });
        assert_eq!(shown(&answers), [(true, Some(2))]);
        assert_eq!(shown(&snapshots.take()), [(false, Some(2))]);
        assert_eq!(shown(&snapshots.take()), [(false, Some(2))]);
        question(&inbox);
        assert!(inbox.try_recv().is_err(), "one poll at a time");
    }

    #[test]
    fn a_worker_that_has_ended_is_not_waited_for() {
        let (remote, inbox) = worker();
        drop(inbox);
        let snapshots = Snapshots::new([remote]);
        assert_eq!(shown(&snapshots.take()), [(false, None)]);
    }
}
