//! The workers' counters as other threads see them: asked for, and kept for when a worker is busy.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::SNAPSHOT_MS;
use crate::observe::metrics::Counters;
use crate::start::running::Remote;
use crate::worker::Message;

/// What is known of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerCounts {
    /// It has just answered.
    pub(crate) is_up: bool,
    /// Its counters, as of its last answer; `None` before the first.
    pub(crate) counters: Option<Counters>,
}

/// A way to the counters of all workers, for any thread.
#[derive(Clone)]
pub(crate) struct Snapshots(Arc<Mutex<Vec<Polled>>>);

/// A worker, and what it was asked.
struct Polled {
    remote: Remote,
    /// A question that it has not answered yet. It is asked no second one, so that questions do
    /// not gather in the inbox of a worker that is busy.
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

    /// Asks all workers, and waits for their answers no longer than [`SNAPSHOT_MS`] in all.
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
        // What came after the last time was over is older than what is asked for now.
        if let Some(answer) = &self.answer
            && let Ok(late) = answer.try_recv()
        {
            self.known.counters = Some(late);
            self.answer = None;
        }
        if self.answer.is_none() {
            let (reply, answer) = channel();
            self.remote.tell(Message::Snapshot(reply));
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
            // It has ended.
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

    /// A worker whose inbox is in the test's hands.
    fn worker() -> (Remote, Receiver<Message>) {
        let mut driver = Epoll::new(Vec::new(), &EngineOptions::default()).expect("epoll");
        let (sender, inbox) = channel();
        (Remote::new(sender, driver.waker(Token(0))), inbox)
    }

    fn question(inbox: &Receiver<Message>) -> Sender<Counters> {
        match inbox.try_recv() {
            Ok(Message::Snapshot(reply)) => reply,
            _ => panic!("it was not asked"),
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

    /// Counters never go down, and a busy worker has one question in its inbox, not one for each
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
                panic!("it was not asked");
            };
            reply.send(counts(2)).expect("it is waited for");
            taken.join().expect("taken")
        });
        assert_eq!(shown(&answers), [(true, Some(2))]);
        assert_eq!(shown(&snapshots.take()), [(false, Some(2))]);
        assert_eq!(shown(&snapshots.take()), [(false, Some(2))]);
        question(&inbox);
        assert!(inbox.try_recv().is_err(), "one question at a time");
    }

    #[test]
    fn a_worker_that_has_ended_is_not_waited_for() {
        let (remote, inbox) = worker();
        drop(inbox);
        let snapshots = Snapshots::new([remote]);
        assert_eq!(shown(&snapshots.take()), [(false, None)]);
    }
}
