//! Threads for file calls that may block: slow opens, reads, listings, warming.
//!
//! They start when first needed, up to a limit, and wait for jobs in one bounded queue. Answers go
//! into a list of their driver, whose bell they ring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use rustix::io::Errno;

use crate::driver::{DirectoryEntry, File, OpenedFile, Root, Token};
use crate::files::Blocking;
use crate::limits;
use crate::waker::Bell;

/// A call that may block.
#[derive(Debug)]
pub(crate) enum Job {
    Open {
        root: Root,
        path: Box<[u8]>,
        token: Token,
    },
    Read {
        file: File,
        offset: u64,
        len: usize,
        token: Token,
    },
    List {
        root: Root,
        path: Box<[u8]>,
        max: usize,
        token: Token,
    },
    /// Reads a range into the page cache for a `sendfile` of the named socket.
    Warm {
        file: File,
        offset: u64,
        len: u64,
        asker: Asker,
    },
    /// Reads a range for a socket, from a file system where `sendfile` may block.
    Fetch {
        file: File,
        offset: u64,
        len: usize,
        asker: Asker,
    },
    /// Closes a descriptor on a file system where that may block.
    Close { fd: OwnedFd },
}

/// A socket that waits for a helper: its slot and the slot's generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Asker {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// What came of a job.
#[derive(Debug)]
pub(crate) enum Answer {
    Opened(Token, Result<OpenedFile, Errno>),
    Read(Token, Result<Vec<u8>, Errno>),
    Listed(Token, Result<Vec<DirectoryEntry>, Errno>),
    Warmed(Asker, Result<(), Errno>),
    Fetched(Asker, Result<Vec<u8>, Errno>),
}

/// The pool of one driver. Dropping it ends the threads when their current call returns.
#[derive(Debug)]
pub(crate) struct Helpers {
    shared: Arc<Shared>,
    started: usize,
    max: usize,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    answers: Mutex<Vec<Answer>>,
    bell: Arc<Bell>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads waiting for a job.
    idle: usize,
    ended: bool,
}

impl Helpers {
    pub(crate) fn new(max: usize, bell: Arc<Bell>) -> Self {
        let shared = Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            answers: Mutex::default(),
            bell,
        };
        Self {
            shared: Arc::new(shared),
            started: 0,
            max: max.clamp(1, 64),
        }
    }

    /// Hands a job over.
    ///
    /// # Errors
    /// `EAGAIN` when the queue is full, or no thread could be started.
    pub(crate) fn submit(&mut self, job: Job) -> Result<(), Errno> {
        let mut queue = lock(&self.shared.queue);
        if queue.jobs.len() >= limits::HELPER_QUEUE_MAX {
            return Err(Errno::AGAIN);
        }
        queue.jobs.push_back(job);
        let wants_thread = queue.idle < queue.jobs.len() && self.started < self.max;
        drop(queue);
        if wants_thread {
            match self.start() {
                Ok(()) => self.started += 1,
                Err(_) if self.started > 0 => {}
                Err(_) => {
                    lock(&self.shared.queue).jobs.pop_back();
                    return Err(Errno::AGAIN);
                }
            }
        }
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Takes the answers that have come in.
    pub(crate) fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut *lock(&self.shared.answers))
    }

    fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let name = format!("gannet-file-{}", self.started);
        thread::Builder::new()
            .name(name)
            .stack_size(128 * 1024)
            .spawn(move || shared.work())?;
        Ok(())
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.ended = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.changed.notify_all();
    }
}

/// Hands descriptors to the helpers to close.
#[derive(Debug)]
pub(crate) struct Closer(Weak<Shared>);

impl Closer {
    /// Closes the descriptor later; at once when the helpers are gone or hopelessly behind.
    pub(crate) fn close(&self, fd: OwnedFd) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let mut queue = lock(&shared.queue);
        // Ends are not refused at the bound of the queue, which is there for beginnings.
        if !queue.ended && queue.jobs.len() < 2 * limits::HELPER_QUEUE_MAX {
            queue.jobs.push_back(Job::Close { fd });
            drop(queue);
            shared.changed.notify_one();
        }
    }
}

impl Shared {
    /// A thread's life.
    fn work(self: &Arc<Self>) {
        while let Some(job) = self.next_job() {
            if let Some(answer) = job.run() {
                if let Answer::Opened(_, Ok(opened)) = &answer {
                    opened
                        .file
                        .as_real()
                        .close_by(|| Closer(Arc::downgrade(self)));
                }
                lock(&self.answers).push(answer);
                self.bell.ring();
            }
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.ended {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue.idle += 1;
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

impl Job {
    fn run(self) -> Option<Answer> {
        Some(match self {
            Self::Open { root, path, token } => {
                Answer::Opened(token, root.as_real().open(&path, Blocking::Yes))
            }
            Self::Read {
                file,
                offset,
                len,
                token,
            } => Answer::Read(token, file.as_real().read(offset, len, Blocking::Yes)),
            Self::List {
                root,
                path,
                max,
                token,
            } => Answer::Listed(token, root.as_real().list(&path, max)),
            Self::Warm {
                file,
                offset,
                len,
                asker,
            } => Answer::Warmed(asker, file.as_real().warm(offset, len)),
            Self::Fetch {
                file,
                offset,
                len,
                asker,
            } => Answer::Fetched(asker, file.as_real().read(offset, len, Blocking::Yes)),
            Self::Close { fd } => {
                drop(fd);
                return None;
            }
        })
    }
}

/// Locks; a thread that panicked left nothing half-done in these lists.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{PollFd, PollFlags};

    use super::*;

    /// More jobs than threads: all are answered, and the bell rings.
    #[test]
    fn answers_every_job() {
        let bell = Arc::new(Bell::new().unwrap());
        let mut helpers = Helpers::new(2, Arc::clone(&bell));
        let root = Root::open(std::path::Path::new("/")).unwrap();
        for n in 0..100 {
            let job = Job::Open {
                root: root.clone(),
                path: (*b"dev").into(),
                token: Token(n),
            };
            helpers.submit(job).unwrap();
        }
        let mut seen = [false; 100];
        let mut left = 100;
        while left > 0 {
            let mut polled = [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
            rustix::event::poll(&mut polled, None).unwrap();
            assert!(!bell.hear(), "helpers are not wakers");
            for answer in helpers.take_answers() {
                let Answer::Opened(Token(n), Ok(_)) = answer else {
                    panic!("{answer:?}")
                };
                assert!(!std::mem::replace(&mut seen[n as usize], true));
                left -= 1;
            }
        }
    }

    /// Where closing may block, a helper closes: the other end of the pipe hears of it.
    #[test]
    fn closes_for_others() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut helpers = Helpers::new(1, Arc::new(Bell::new().unwrap()));
        let file = File::real(writer, crate::files::Store::Remote);
        file.as_real()
            .close_by(|| Closer(Arc::downgrade(&helpers.shared)));
        drop(file);
        assert_eq!(lock(&helpers.shared.queue).jobs.len(), 1, "not closed here");
        let null = File::from(std::fs::File::open("/dev/null").unwrap());
        helpers
            .submit(Job::Read {
                file: null,
                offset: 0,
                len: 1,
                token: Token(0),
            })
            .unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
    }

    /// A queue that nobody empties refuses at its bound.
    #[test]
    fn refuses_beyond_the_bound() {
        let file = File::from(std::fs::File::open("/dev/null").unwrap());
        let mut helpers = Helpers::new(1, Arc::new(Bell::new().unwrap()));
        let job = || Job::Read {
            file: file.clone(),
            offset: 0,
            len: 1,
            token: Token(0),
        };
        // No thread runs before the first successful submit.
        lock(&helpers.shared.queue)
            .jobs
            .extend((0..limits::HELPER_QUEUE_MAX).map(|_| job()));
        assert_eq!(helpers.submit(job()), Err(Errno::AGAIN));
    }
}
