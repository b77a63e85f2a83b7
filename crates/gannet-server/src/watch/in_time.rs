//! Work with things some of which may be on file systems that do not answer.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gannet_io::named_file;

use crate::bounds::limits::START_WAIT_TOLD_S;
use crate::watch::notices::ERRORS;

/// How long work may take.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// After this, another thread continues with the next thing.
    pub(crate) slow: Duration,
    /// After this, the result is not waited for.
    pub(crate) most: Duration,
}

/// A thread sender that it starts with the thing of a number, or the result.
enum Progress<R> {
    Begun(usize),
    Done(usize, R),
}

/// What one thread was last heard to do.
struct ThreadState {
    since: Instant,
    /// The number of the thing that it is at work with.
    at: Option<usize>,
}

/// The results of `work` with each of `items`, in their order; `None` for each that takes longer than
/// `patience` allows. One thread does one after the other. A thread that hangs is left to itself; it ends
/// when its file system answers.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn each<T, R>(
    items: Vec<T>,
    patience: Patience,
    work: impl Fn(&T) -> R + Send + Sync + 'static,
) -> io::Result<Vec<Option<R>>>
where
    T: Send + Sync + 'static,
    R: Send + 'static,
{
    let count = items.len();
    let all = Arc::new((items, AtomicUsize::new(0), work));
    let (sender, finished) = channel();
    let start = |number: usize| {
        let (all, sender): (_, Sender<(usize, Progress<R>)>) = (Arc::clone(&all), sender.clone());
        let work = move || {
            let (items, next, work) = &*all;
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else {
                    return;
                };
                // Without a receiver the rest is not needed.
                if sender.send((number, Progress::Begun(at))).is_err() {
                    return;
                }
                let _ = sender.send((number, Progress::Done(at, work(item))));
            }
        };
        thread::Builder::new()
            .name("gannet-opener".into())
            .spawn(work)
            .map(|_| ThreadState {
                since: Instant::now(),
                at: None,
            })
    };
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let mut threads: Vec<ThreadState> = Vec::new();
    loop {
        let now = Instant::now();
        let is_past = |it: &ThreadState, time| now.duration_since(it.since) >= time;
        let late = threads.iter().filter(|it| is_past(it, patience.most));
        let late = late.filter(|it| it.at.is_some()).count();
        let done = results.iter().flatten().count();
        if done + late == count {
            return Ok(results);
        }
        let are_left = all.1.load(Ordering::Relaxed) < count;
        if are_left && threads.iter().all(|it| is_past(it, patience.slow)) {
            threads.push(start(threads.len())?);
        }
        let Ok((number, result)) = finished.recv_timeout(patience.slow) else {
            continue;
        };
        let at = match result {
            Progress::Begun(at) => Some(at),
            Progress::Done(at, result) => {
                results[at] = Some(result);
                None
            }
        };
        threads[number] = ThreadState {
            since: Instant::now(),
            at,
        };
    }
}

/// Does `work`, which takes what is at a path, however long that takes. It is reported once what is waited
/// for.
pub fn however_long<R>(path: &Path, work: impl FnOnce() -> R) -> R {
    let (ended, end) = channel::<()>();
    let watch = move || {
        let patience = Duration::from_secs(START_WAIT_TOLD_S);
        if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            ERRORS.log(format_args!(
                "gannet: waiting for '{}' for {START_WAIT_TOLD_S} s now: its file system does not answer, or is \
                 slow, or much is read\nhelp: if no disk is busy, see which disk or network file system hangs; \
                 the start continues when it answers",
                path.display()
            ));
        }
    };
    thread::scope(|scope| {
        let watching = thread::Builder::new().name("gannet-waiting".into());
        // Where no thread can be had, none of those that a server needs can, which is an error then.
        let watching = watching.spawn_scoped(scope, watch).ok();
        let result = work();
        drop(ended);
        watching.map(thread::ScopedJoinHandle::join);
        result
    })
}

/// Waits until the file system of a file that is to be read answers, in the same way. A thread that reads it then
/// says what is wrong with it.
pub(crate) fn until_it_answers(path: &Path) {
    however_long(path, || {
        let file = named_file::open(path);
        let _ = file.and_then(|mut file| file.read(&mut [0]));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;

    use super::*;

    const PATIENCE: Patience = Patience {
        slow: Duration::from_millis(20),
        most: Duration::from_secs(3),
    };

    /// What hangs costs a thread, and neither a place in the order nor the time of others.
    #[test]
    fn what_hangs_is_left_out() {
        let (release, held) = channel::<()>();
        let held: Mutex<Receiver<()>> = Mutex::new(held);
        let hanging = [1, 2, 5];
        let results = each((0..6).collect(), PATIENCE, move |number: &usize| {
            if hanging.contains(number) {
                // Until the test ends: the sender is gone then. Others wait for the lock.
                let _ = held.lock().map(|held| held.recv());
            }
            *number * 10
        });
        let expect = [Some(0), None, None, Some(30), Some(40), None];
        assert_eq!(results.expect("threads"), expect);
        drop(release);
    }

    #[test]
    fn each_is_done_once_and_in_order() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&order);
        let patience = Patience {
            slow: PATIENCE.most,
            ..PATIENCE
        };
        let results = each((0..100).collect(), patience, move |number: &usize| {
            seen.lock().map(|mut seen| seen.push(*number)).is_ok()
        });
        assert_eq!(results.expect("threads"), [const { Some(true) }; 100]);
        let order = order.lock().expect("not poisoned");
        assert_eq!(*order, (0..100).collect::<Vec<_>>());
        let none = each(Vec::<usize>::new(), PATIENCE, |_| ());
        assert_eq!(none.expect("no thread"), []);
    }
}
