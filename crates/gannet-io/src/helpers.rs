//! Threads for file calls that may block: slow opens, reads, listings, warming.
//!
//! They start when first needed, up to a limit, and take jobs from bounded queues. Their answers go
//! into a list of their driver, whose bell they ring.
//!
//! Jobs on a file system of another machine or process (NFS, FUSE), which may hang for any length
//! of time, have a separate queue and never occupy all threads. Which file system a path leads to
//! is unknown before the lookup: a lookup begins on the root's own mount, and changes the queue at
//! a mount boundary.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::io::Errno;

use crate::closer::{Closer, Closing};
use crate::disk::{Listed, Render};
use crate::file::{Blocking, File, OpenedFile};
use crate::limits;
use crate::operation::Token;
use crate::reserve;
use crate::root::{LookupReach, Root};
use crate::shared_pages::SharedPages;
use crate::survey::{KeepName, Survey, survey};
use crate::waker::Bell;

/// The stack of a helper thread, in bytes. The thread needs about as much again besides.
const STACK: usize = 128 << 10;

/// A call that may block.
#[derive(Debug)]
pub(crate) enum Job {
    Open {
        root: Root,
        path: Box<[u8]>,
        reach: LookupReach,
        token: Token,
    },
    Read {
        file: File,
        offset: u64,
        len: usize,
        token: Token,
    },
    Survey {
        root: Root,
        path: Box<[u8]>,
        max: usize,
        keep: KeepName,
        reach: LookupReach,
        token: Token,
    },
    List {
        root: Root,
        path: Box<[u8]>,
        max: usize,
        reach: LookupReach,
        render: Render,
        token: Token,
    },
    /// Copies a range of a file into sealed memory.
    Copy {
        file: File,
        range: Range<u64>,
        token: Token,
    },
    /// Reads a range into the page cache for a `sendfile` of the named socket.
    Warm {
        file: File,
        offset: u64,
        len: u64,
        key: SlotKey,
    },
    /// Reads a range for a socket, from a file system where `sendfile` may block.
    Fetch {
        file: File,
        offset: u64,
        len: usize,
        key: SlotKey,
    },
    /// Closes a file where that may take long.
    Close { closing: Closing, is_foreign: bool },
}

/// Closes a file whose helpers have ended, unless that might wait for a file system that does not
/// answer: then it is left to the process exit, which is imminent as a rule.
fn close_without_helpers(closing: Closing, is_foreign: bool) {
    if is_foreign {
        std::mem::forget(closing.fd);
    }
}

/// A socket that waits for a helper: its slot and the slot's generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SlotKey {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The requester of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    Caller(Token),
    Socket(SlotKey),
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Answer {
    Opened(Token, Result<OpenedFile, Errno>),
    Read(Token, Result<Vec<u8>, Errno>),
    Surveyed(Token, Result<Survey, Errno>),
    Listed(Token, Result<Listed, Errno>),
    Copied(Token, Result<File, Errno>),
    Warmed(SlotKey, Result<(), Errno>),
    Fetched(SlotKey, Result<Vec<u8>, Errno>),
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
    /// Threads that may be in jobs on other machines at once.
    foreign_max: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
    answers: Mutex<Vec<Answer>>,
    copies: SharedPages,
    bell: Arc<Bell>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs on file systems of another machine or process.
    foreign: VecDeque<Job>,
    /// How many of them are running.
    foreign_now: usize,
    /// Threads waiting for a job.
    idle: usize,
    ended: bool,
}

impl Helpers {
    pub(crate) fn new(max: usize, bell: Arc<Bell>) -> Self {
        let max = max.clamp(1, 64);
        let shared = Shared {
            foreign_max: (max - max / limits::HELPERS_LOCAL_PART).max(1),
            queue: Mutex::default(),
            changed: Condvar::new(),
            answers: Mutex::default(),
            copies: SharedPages::default(),
            bell,
        };
        Self {
            shared: Arc::new(shared),
            started: 0,
            max,
        }
    }

    /// Under a memory limit, starts the first thread while there is room: see [`submit`](Self::submit).
    pub(crate) fn start_first(&mut self) {
        if reserve::is_kept() && self.started == 0 && self.start().is_ok() {
            self.started = 1;
        }
    }

    /// Where copies are made.
    pub(crate) fn copies(&self) -> &SharedPages {
        &self.shared.copies
    }

    /// Hands a job over.
    ///
    /// # Errors
    /// `EAGAIN` when the queue is full, or no thread could be started.
    pub(crate) fn submit(&mut self, job: Job) -> Result<(), Errno> {
        let is_foreign = job.is_foreign();
        let mut queue = lock(&self.shared.queue);
        let jobs = queue.of(is_foreign);
        if job.is_new() && jobs.len() >= limits::HELPER_QUEUE_MAX {
            return Err(Errno::AGAIN);
        }
        jobs.push_back(job);
        let waiting = queue.jobs.len() + queue.foreign.len();
        // Other threads may use up the memory between the check for a thread's stacks and their
        // allocation, and a thread without stacks ends the process.
        let is_short = reserve::is_spent() && self.started > 0;
        let wants_thread = queue.idle < waiting && self.started < self.max && !is_short;
        drop(queue);
        if wants_thread {
            match self.start() {
                Ok(()) => self.started += 1,
                Err(_) if self.started > 0 => {}
                Err(_) => {
                    let refused = lock(&self.shared.queue).of(is_foreign).pop_back();
                    // After unlocking: see `retain`.
                    drop(refused);
                    return Err(Errno::AGAIN);
                }
            }
        }
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Drops jobs that are not awaited and that no thread has begun.
    pub(crate) fn retain(&self, mut is_awaited: impl FnMut(Owner) -> bool) {
        // Not under the lock: whatever is dropped here, also by the callback, may hold the last
        // reference to a file, and dropping that puts its descriptor into this queue to be closed.
        let taken = lock(&self.shared.queue).take();
        let kept = taken.map(|mut jobs| {
            jobs.retain(|job| job.owner().is_none_or(&mut is_awaited));
            jobs
        });
        lock(&self.shared.queue).put_first(kept);
        self.shared.changed.notify_all();
    }

    /// Takes the answers that have arrived.
    pub(crate) fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut *lock(&self.shared.answers))
    }

    fn start(&self) -> io::Result<()> {
        if !reserve::fits(3 * STACK) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let shared = Arc::clone(&self.shared);
        let name = format!("gannet-file-{}", self.started);
        thread::Builder::new()
            .name(name)
            .stack_size(STACK)
            .spawn(move || shared.work())?;
        Ok(())
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.ended = true;
        let left = queue.take();
        drop(queue);
        self.shared.changed.notify_all();
        for job in left.into_iter().flatten() {
            if let Job::Close {
                closing,
                is_foreign,
            } = job
            {
                close_without_helpers(closing, is_foreign);
            }
        }
    }
}

impl Queue {
    fn of(&mut self, is_foreign: bool) -> &mut VecDeque<Job> {
        match is_foreign {
            true => &mut self.foreign,
            false => &mut self.jobs,
        }
    }

    /// Takes all jobs that no thread has begun, with those that may hang last.
    fn take(&mut self) -> [VecDeque<Job>; 2] {
        [false, true].map(|is_foreign| std::mem::take(self.of(is_foreign)))
    }

    /// Puts such jobs back, ahead of any that were added meanwhile.
    fn put_first(&mut self, jobs: [VecDeque<Job>; 2]) {
        for (is_foreign, mut jobs) in [false, true].into_iter().zip(jobs) {
            jobs.append(self.of(is_foreign));
            *self.of(is_foreign) = jobs;
        }
    }
}

impl Shared {
    /// Hands files to the helpers to close, as long as there are any; `is_foreign` if that may hang.
    fn closer(self: &Arc<Self>, is_foreign: bool) -> Closer {
        let helpers = Arc::downgrade(self);
        Closer::new(move |closing| match helpers.upgrade() {
            Some(helpers) => helpers.close(closing, is_foreign),
            None => close_without_helpers(closing, is_foreign),
        })
    }

    /// Closes the file later. The queue's bound does not apply: it limits new jobs, and there are no
    /// more of these than descriptors.
    fn close(&self, closing: Closing, is_foreign: bool) {
        let mut queue = lock(&self.queue);
        if queue.ended {
            drop(queue);
            return close_without_helpers(closing, is_foreign);
        }
        let job = Job::Close {
            closing,
            is_foreign,
        };
        queue.of(is_foreign).push_back(job);
        drop(queue);
        self.changed.notify_one();
    }

    /// The main loop of a helper thread.
    fn work(self: &Arc<Self>) {
        while let Some((job, is_foreign)) = self.next_job() {
            let outcome = job.run(&self.copies);
            if is_foreign {
                self.end_foreign();
            }
            match outcome {
                Outcome::Answered(answer) => self.answer(answer),
                Outcome::Crosses(job) => self.cross(job),
                Outcome::Done => {}
            }
        }
    }

    fn answer(self: &Arc<Self>, answer: Answer) {
        match &answer {
            Answer::Opened(_, Ok(OpenedFile { file, .. })) | Answer::Copied(_, Ok(file)) => {
                let is_foreign = file.is_foreign();
                file.as_os().close_by(|| self.closer(is_foreign));
            }
            _ => {}
        }
        lock(&self.answers).push(answer);
        self.bell.ring();
    }

    /// A lookup has reached the boundary of the root's mount: it continues in the queue of jobs
    /// that may hang.
    fn cross(self: &Arc<Self>, job: Job) {
        let mut queue = lock(&self.queue);
        if queue.foreign.len() < limits::HELPER_QUEUE_MAX {
            queue.foreign.push_back(job);
            drop(queue);
            self.changed.notify_one();
        } else if let Some(answer) = job.refuse() {
            drop(queue);
            self.answer(answer);
        }
    }

    fn end_foreign(&self) {
        let mut queue = lock(&self.queue);
        queue.foreign_now -= 1;
        if !queue.foreign.is_empty() {
            drop(queue);
            self.changed.notify_one();
        }
    }

    /// The next job, and whether it may hang.
    fn next_job(&self) -> Option<(Job, bool)> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.ended {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some((job, false));
            }
            if queue.foreign_now < self.foreign_max
                && let Some(job) = queue.foreign.pop_front()
            {
                queue.foreign_now += 1;
                return Some((job, true));
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

/// The result of a job.
enum Outcome {
    Answered(Answer),
    /// It needs no answer.
    Done,
    /// It leaves the root's mount, and has to start over in the queue of jobs that may hang.
    Crosses(Job),
}

impl Job {
    /// The requester that waits for it, if any.
    fn owner(&self) -> Option<Owner> {
        match self {
            Self::Open { token, .. }
            | Self::Read { token, .. }
            | Self::Survey { token, .. }
            | Self::List { token, .. }
            | Self::Copy { token, .. } => Some(Owner::Caller(*token)),
            Self::Warm { key, .. } | Self::Fetch { key, .. } => Some(Owner::Socket(*key)),
            Self::Close { .. } => None,
        }
    }

    /// Whether it starts new work. A job on a file that is already open is never refused because of
    /// the queue's length: that would end a download, and the number of such jobs is bounded by
    /// descriptors and connections.
    fn is_new(&self) -> bool {
        match self {
            Self::Open { .. } | Self::Survey { .. } | Self::List { .. } | Self::Copy { .. } => true,
            Self::Read { .. } | Self::Warm { .. } | Self::Fetch { .. } | Self::Close { .. } => {
                false
            }
        }
    }

    /// Whether it may hang in a file system of another machine or process.
    fn is_foreign(&self) -> bool {
        match self {
            Self::Open { reach, .. } | Self::Survey { reach, .. } | Self::List { reach, .. } => {
                *reach == LookupReach::Everywhere
            }
            Self::Read { file, .. }
            | Self::Copy { file, .. }
            | Self::Warm { file, .. }
            | Self::Fetch { file, .. } => file.is_foreign(),
            Self::Close { is_foreign, .. } => *is_foreign,
        }
    }

    fn run(self, copies: &SharedPages) -> Outcome {
        Outcome::Answered(match self {
            Self::Open {
                root,
                path,
                reach,
                token,
            } => match root.as_os().open(&path, reach) {
                Err(Errno::XDEV) if reach == LookupReach::Mount => {
                    return Outcome::Crosses(Self::Open {
                        root,
                        path,
                        reach: LookupReach::Everywhere,
                        token,
                    });
                }
                result => Answer::Opened(token, result),
            },
            Self::Read {
                file,
                offset,
                len,
                token,
            } => Answer::Read(token, file.as_os().read(offset, len, Blocking::Yes)),
            Self::Survey {
                root,
                path,
                max,
                keep,
                reach,
                token,
            } => Answer::Surveyed(token, survey(root.as_os(), &path, max, keep, reach)),
            Self::List {
                root,
                path,
                max,
                reach,
                render,
                token,
            } => {
                let read = root.as_os().list(&path, max, reach);
                let listed = read.map(|(meta, read)| Listed {
                    meta,
                    rendered: render.run(read),
                });
                Answer::Listed(token, listed)
            }
            Self::Copy { file, range, token } => {
                Answer::Copied(token, copies.copy(file.as_os(), range))
            }
            Self::Warm {
                file,
                offset,
                len,
                key,
            } => Answer::Warmed(key, file.as_os().warm(offset, len)),
            Self::Fetch {
                file,
                offset,
                len,
                key,
            } => Answer::Fetched(key, file.as_os().read(offset, len, Blocking::Yes)),
            Self::Close { closing, .. } => {
                drop(closing);
                return Outcome::Done;
            }
        })
    }

    /// The answer to a lookup for which the queue has no room.
    fn refuse(self) -> Option<Answer> {
        match self {
            Self::Open { token, .. } => Some(Answer::Opened(token, Err(Errno::AGAIN))),
            _ => None,
        }
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
                reach: LookupReach::Mount,
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

    /// Where closing may block, a helper closes the descriptor: the other end of the pipe sees it.
    #[test]
    fn closes_for_others() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut helpers = Helpers::new(1, Arc::new(Bell::new().unwrap()));
        let file = File::os(writer, crate::store::Store::Remote);
        file.as_os().close_by(|| helpers.shared.closer(true));
        // Even when the helpers are far behind.
        let null = File::from(std::fs::File::open("/dev/null").unwrap());
        let read = || Job::Read {
            file: null.clone(),
            offset: 0,
            len: 1,
            token: Token(0),
        };
        let ahead = 2 * limits::HELPER_QUEUE_MAX;
        let jobs = (0..ahead).map(|_| read());
        lock(&helpers.shared.queue).foreign.extend(jobs);
        drop(file);
        let waiting = lock(&helpers.shared.queue).foreign.len();
        assert_eq!(waiting, ahead + 1, "not closed here");
        helpers.submit(read()).unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
    }

    /// Much memory is freed by a helper, mapping and all; little is freed at once.
    #[test]
    fn frees_long_copies_for_others() {
        let mut helpers = Helpers::new(1, Arc::new(Bell::new().unwrap()));
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let most = limits::FREED_AT_ONCE_MAX as u64;
        for (len, is_long) in [(most, false), (2 * most, true)] {
            let copied = crate::memory::sealed_file(&zeros, 0..len).unwrap();
            let file = File::from(std::fs::File::from(copied));
            let charge = Arc::new(());
            file.attach(Arc::clone(&charge));
            assert_eq!(file.sealed_memory().unwrap().len() as u64, len);
            // As it is done to what a helper has copied.
            helpers.shared.answer(Answer::Copied(Token(0), Ok(file)));
            drop(helpers.take_answers());
            let queued = lock(&helpers.shared.queue).jobs.len();
            assert_eq!(queued, usize::from(is_long), "{len}");
            assert_eq!(
                Arc::strong_count(&charge) > 1,
                is_long,
                "it counts until it is free"
            );
        }
        let null = File::from(std::fs::File::open("/dev/null").unwrap());
        helpers
            .submit(Job::Read {
                file: null,
                offset: 0,
                len: 1,
                token: Token(0),
            })
            .unwrap();
        while !lock(&helpers.shared.queue).jobs.is_empty() {
            thread::yield_now();
        }
    }

    /// A worker that stops does not wait for a file system that hangs.
    #[test]
    fn closes_nothing_when_it_has_ended() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let helpers = Helpers::new(1, Arc::new(Bell::new().unwrap()));
        let file = File::os(writer, crate::store::Store::Remote);
        file.as_os().close_by(|| helpers.shared.closer(true));
        let queued = rustix::io::dup(&reader).unwrap();
        lock(&helpers.shared.queue).foreign.push_back(Job::Close {
            closing: Closing {
                fd: queued,
                mapping: None,
            },
            is_foreign: true,
        });
        drop(helpers);
        drop(file);
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let read = rustix::io::read(&reader, &mut [0; 1]);
        assert_eq!(read, Err(Errno::AGAIN), "the other end is open");
    }

    /// Jobs that are not awaited make room for others, and never begin.
    #[test]
    fn skips_what_nobody_waits_for() {
        let mut helpers = Helpers::new(1, Arc::new(Bell::new().unwrap()));
        let root = Root::open(std::path::Path::new("/")).unwrap();
        let open = |number: usize| Job::Open {
            root: root.clone(),
            path: (*b"dev").into(),
            reach: if number.is_multiple_of(2) {
                LookupReach::Mount
            } else {
                LookupReach::Everywhere
            },
            token: Token(number as u64),
        };
        let (closed, writer) = rustix::pipe::pipe().unwrap();
        let file = File::os(writer, crate::store::Store::Remote);
        file.as_os().close_by(|| helpers.shared.closer(true));
        let of_socket = Job::Warm {
            file,
            offset: 0,
            len: 1,
            key: SlotKey {
                slot: 1,
                generation: 1,
            },
        };
        {
            let mut queue = lock(&helpers.shared.queue);
            queue.foreign.push_back(of_socket);
            for number in 0..2 * (limits::HELPER_QUEUE_MAX - 1) {
                queue.of(number % 2 == 1).push_back(open(number));
            }
        }
        // The caller drops what it kept for such a job, perhaps the last reference to a file.
        let (kept_closed, writer) = rustix::pipe::pipe().unwrap();
        let kept_file = File::os(writer, crate::store::Store::Remote);
        kept_file.as_os().close_by(|| helpers.shared.closer(true));
        let mut kept_file = Some(kept_file);
        helpers.retain(|owner| {
            kept_file.take();
            matches!(owner, Owner::Caller(Token(number)) if number % 1_000 < 2)
        });
        let kept = |jobs: &VecDeque<Job>| jobs.iter().filter_map(Job::owner).collect::<Vec<_>>();
        {
            let queue = lock(&helpers.shared.queue);
            let tokens = |first| (0..9u64).map(move |k| Owner::Caller(Token(1_000 * k + first)));
            assert!(kept(&queue.jobs).into_iter().eq(tokens(0)));
            assert!(kept(&queue.foreign).into_iter().eq(tokens(1)));
        }
        // Both files are closed in their turn.
        helpers.submit(open(9_000)).unwrap();
        assert_eq!(rustix::io::read(&closed, &mut [0; 1]), Ok(0));
        assert_eq!(rustix::io::read(&kept_closed, &mut [0; 1]), Ok(0));
    }

    /// A queue that is not drained refuses new work at its bound, and ends no download.
    #[test]
    fn refuses_beyond_the_bound() {
        let file = File::from(std::fs::File::open("/dev/null").unwrap());
        let root = Root::open(std::path::Path::new("/")).unwrap();
        let mut helpers = Helpers::new(1, Arc::new(Bell::new().unwrap()));
        let open = || Job::Open {
            root: root.clone(),
            path: (*b"dev").into(),
            reach: LookupReach::Mount,
            token: Token(0),
        };
        // No thread runs before the first successful submit.
        lock(&helpers.shared.queue)
            .jobs
            .extend((0..limits::HELPER_QUEUE_MAX).map(|_| open()));
        assert_eq!(helpers.submit(open()), Err(Errno::AGAIN));
        let (file, offset, len) = (&file, 0, 1);
        let key = SlotKey {
            slot: 1,
            generation: 1,
        };
        let going_on = [
            Job::Warm {
                file: file.clone(),
                offset,
                len: 1,
                key,
            },
            Job::Fetch {
                file: file.clone(),
                offset,
                len,
                key,
            },
            Job::Read {
                file: file.clone(),
                offset,
                len,
                token: Token(0),
            },
        ];
        for job in going_on {
            assert_eq!(helpers.submit(job), Ok(()));
        }
    }
}
