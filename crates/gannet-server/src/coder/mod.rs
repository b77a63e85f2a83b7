//! Codes files of live directories in the background, once for all workers.
//!
//! A request that would have used a coding which its file does not have is answered without it, and
//! queues the very bytes that it was answered with. A thread of low priority codes them, and
//! later requests to any worker find the result.
//!
//! ```text
//!   worker ──ask──▶ queue ──▶ thread ──▶ Codings (written once) ◀── every worker's next request
//! ```
//!
//! No file is opened here, and nothing is keyed by a name: a coded form belongs to bytes in memory
//! whose version the worker has checked. What two workers share is keyed by metadata that identify
//! a version ([`Coder::codings_of`]); a file that may still be changing is not shared.
//!
//! Workers never wait: they only try the lock, because the thread that holds it may not get the
//! processor for a while. Results belong to the cached files of the workers ([`Codings`] are kept
//! nowhere else), so the cache's memory limit bounds them, and what is evicted there is gone.

pub(crate) mod encoders;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::{io, thread};

use gannet_content::directory::coding::{MADE, pays};
use gannet_content::mime::is_read_by_ranges;
use gannet_http::semantics::coding::{Coding, CodingSet};
use gannet_io::driver::{File, Meta, WeakFile};
use gannet_io::memory::Memory;
use gannet_io::process::lower_priority;
use gannet_io::reserve;

use self::encoders::Encoders;
use crate::bounds::ledger::Charge;
use crate::bounds::limits::{CODED_FILES_MAX, CODER_QUEUE_MAX};
use crate::config::ContentOptions;

/// The coded forms of one version of a file: each is set once, and never changes.
#[derive(Default)]
pub(crate) struct Codings {
    /// Digest of the bytes that are coded.
    source: OnceLock<[u8; 32]>,
    /// The codings that were requested: bits of a [`CodingSet`].
    asked: AtomicU8,
    /// Those for which an encoder did not get its memory.
    failed: AtomicU8,
    /// In the order of [`MADE`]; `None` inside if the coding is not worth it, or failed.
    made: [OnceLock<Option<CodedForm>>; MADE.len()],
}

/// One coded form.
#[derive(Clone)]
pub(crate) struct CodedForm {
    pub(crate) content: Arc<Memory>,
    /// Distinguishes it from what another encoder would make of the same bytes.
    pub(crate) mark: u32,
}

impl Codings {
    /// The form in a coding, once it was made and if it is worth it.
    #[inline]
    pub(crate) fn made(&self, coding: Coding) -> Option<&CodedForm> {
        self.made[place(coding)?].get()?.as_ref()
    }

    /// Whether a coding was requested, by any worker.
    #[inline]
    pub(crate) fn is_asked(&self, coding: Coding) -> bool {
        self.asked.load(Ordering::Relaxed) & CodingSet::from(coding).bits() != 0
    }

    /// The codings of a set, but for those that could not be made.
    #[inline]
    pub(crate) fn possible(&self, set: CodingSet) -> CodingSet {
        let failed = self.failed.load(Ordering::Relaxed);
        if failed == 0 {
            return set;
        }
        MADE.into_iter()
            .filter(|coding| failed & CodingSet::from(*coding).bits() != 0)
            .fold(set, CodingSet::without)
    }

    /// Bytes of memory that they take, or will: at most `len` each, the length of the file.
    pub(crate) fn weight(&self, len: u64) -> u64 {
        let asked = MADE.into_iter().filter(|coding| self.is_asked(*coding));
        let weights = asked.map(|coding| match place(coding).map(|it| self.made[it].get()) {
            Some(Some(Some(made))) => made.content.len() as u64,
            Some(Some(None)) | None => 0,
            Some(None) => len,
        });
        weights.sum()
    }
}

/// The place of a coding in [`MADE`].
fn place(coding: Coding) -> Option<usize> {
    MADE.iter().position(|made| *made == coding)
}

/// The bytes of a file.
#[derive(Clone)]
pub(crate) enum FileBytes {
    /// In memory.
    Memory(Arc<Memory>, Range<usize>),
    /// In a sealed copy.
    Copy(File),
}

impl FileBytes {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Memory(memory, range) => memory.bytes().get(range.clone()),
            Self::Copy(file) => file.sealed_memory().map(|memory| memory.bytes()),
        }
    }
}

/// Content that is kept by the caches of workers alone.
enum CacheContent {
    Memory(Weak<Memory>, Range<usize>),
    Copy(WeakFile),
}

impl CacheContent {
    fn of(content: &FileBytes) -> Self {
        match content {
            FileBytes::Memory(memory, range) => Self::Memory(Arc::downgrade(memory), range.clone()),
            FileBytes::Copy(file) => Self::Copy(file.downgrade()),
        }
    }

    fn upgrade(&self) -> Option<FileBytes> {
        Some(match self {
            Self::Memory(memory, range) => FileBytes::Memory(memory.upgrade()?, range.clone()),
            Self::Copy(file) => FileBytes::Copy(file.upgrade()?),
        })
    }
}

/// What to code.
pub(crate) struct CodingRequest {
    pub(crate) coding: Coding,
    pub(crate) content: FileBytes,
    /// The charge for the result, at first of as many bytes as the content has.
    pub(crate) charge: Charge,
}

/// A queued coding. It keeps nothing of the file in memory: what the caches drop is not coded.
struct CodingJob {
    codings: Weak<Codings>,
    coding: Coding,
    source: CacheContent,
    charge: Charge,
}

#[derive(Default)]
struct CodingQueue {
    queue: VecDeque<CodingJob>,
    /// Codings by version of a file, for all workers.
    files: HashMap<Meta, Weak<Codings>, foldhash::fast::RandomState>,
    /// How many of them to keep until those that are gone are removed.
    files_max: usize,
    is_over: bool,
}

/// The work done and refused so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CoderCounts {
    /// Forms that were made.
    pub made: u64,
    /// Bytes of the files that they were made of.
    pub source_bytes: u64,
    /// Their own bytes.
    pub made_bytes: u64,
    /// Forms that were not worth it, or failed.
    pub useless: u64,
    /// Files whose content no worker had any more when it was their turn.
    pub dropped: u64,
    /// Files that were not queued: the queue was full, or there was little room for copies.
    pub refused: u64,
    /// Files in the queue now.
    pub queued: u64,
}

#[derive(Default)]
struct Counted {
    made: AtomicU64,
    source_bytes: AtomicU64,
    made_bytes: AtomicU64,
    useless: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    queued: AtomicU64,
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Coder {
    encoders: Encoders,
    /// The encoders' tables did not fit, although the options have memory for them: nothing is coded.
    lacks_room: bool,
    work: Mutex<CodingQueue>,
    is_due: Condvar,
    counted: Counted,
}

impl Coder {
    /// With the memory that the options give to all encoders together, for live content if there is any.
    pub(crate) fn start(options: &ContentOptions, has_live: bool) -> Self {
        let memory = options.encoder_memory / coder_threads();
        let usual = Encoders::with(memory);
        let is_used = has_live && options.codes_text() && usual.can_make_any();
        let encoders = match reserve::is_kept() && is_used {
            true => Encoders::that_may_fail(memory, reserve::has_room),
            false => usual,
        };
        Self {
            lacks_room: is_used && !encoders.can_make_any(),
            encoders,
            ..Self::default()
        }
    }

    /// Whether nothing is coded because the process has less memory than the options suppose.
    pub(crate) fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// Whether anything can be coded: otherwise it needs no threads.
    pub(crate) fn can_make_any(&self) -> bool {
        self.encoders.can_make_any()
    }

    /// The codings that can be made of a file of `len` bytes.
    pub(crate) fn can_make(&self, len: u64) -> CodingSet {
        self.encoders.can_make(len)
    }

    /// The codings of a version of a file, which must have been unchanged for so long that `meta`
    /// identify it. `None` if the lock is taken.
    pub(crate) fn codings_of(&self, meta: &Meta) -> Option<Arc<Codings>> {
        let mut work = self.work.try_lock().ok()?;
        if let Some(known) = work.files.get(meta).and_then(Weak::upgrade) {
            return Some(known);
        }
        let codings = Arc::new(Codings::default());
        // If it cannot be shared, each worker has it coded.
        if work.files.len() < CODED_FILES_MAX {
            work.files.insert(*meta, Arc::downgrade(&codings));
        }
        Some(codings)
    }

    /// The same, if another worker has them: then a first request here need not go without.
    pub(crate) fn known(&self, meta: &Meta) -> Option<Arc<Codings>> {
        let work = self.work.try_lock().ok()?;
        work.files.get(meta).and_then(Weak::upgrade)
    }

    /// Queues content to be coded. False if it is queued or done already, or cannot be queued now.
    pub(crate) fn ask(&self, codings: &Arc<Codings>, asked: CodingRequest) -> bool {
        let Ok(mut work) = self.work.try_lock() else {
            return false;
        };
        // They have room for copies, which others need.
        let is_unwanted = |job: &CodingJob| job.codings.strong_count() == 0;
        while work.queue.front().is_some_and(is_unwanted) {
            let unwanted = self.take(&mut work);
            add(&self.counted.dropped, u64::from(unwanted.is_some()));
        }
        if work.queue.len() >= CODER_QUEUE_MAX || work.is_over {
            self.refuse();
            return false;
        }
        let bit = CodingSet::from(asked.coding).bits();
        if codings.asked.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return false;
        }
        work.queue.push_back(CodingJob {
            codings: Arc::downgrade(codings),
            coding: asked.coding,
            source: CacheContent::of(&asked.content),
            charge: asked.charge,
        });
        add(&self.counted.queued, 1);
        drop(work);
        self.is_due.notify_one();
        true
    }

    /// Counts a file that is not queued.
    pub(crate) fn refuse(&self) {
        add(&self.counted.refused, 1);
    }

    /// Codes the first file of the queue; false if there is none.
    pub(crate) fn code_next(&self) -> bool {
        let job = self.take(&mut self.lock());
        let is_some = job.is_some();
        if let Some(job) = job {
            self.code(job);
        }
        is_some
    }

    /// Codes files until [`end`](Self::end).
    fn run(&self) {
        let mut work = self.lock();
        while !work.is_over {
            match self.take(&mut work) {
                Some(job) => {
                    drop(work);
                    self.code(job);
                    work = self.lock();
                }
                None => {
                    let waited = self.is_due.wait(work);
                    work = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Ends the threads after their current files.
    fn end(&self) {
        let mut work = self.lock();
        work.is_over = true;
        let left = std::mem::take(&mut work.queue);
        drop(work);
        drop(left);
        self.is_due.notify_all();
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> CoderCounts {
        let counted = &self.counted;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CoderCounts {
            made: read(&counted.made),
            source_bytes: read(&counted.source_bytes),
            made_bytes: read(&counted.made_bytes),
            useless: read(&counted.useless),
            dropped: read(&counted.dropped),
            refused: read(&counted.refused),
            queued: read(&counted.queued),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CodingQueue> {
        // No code under the lock can panic halfway.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, work: &mut CodingQueue) -> Option<CodingJob> {
        if work.files.len() > work.files_max {
            work.files.retain(|_, codings| codings.strong_count() > 0);
            work.files_max = 2 * work.files.len() + FILES_SPARE;
        }
        let job = work.queue.pop_front()?;
        self.counted.queued.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }

    fn code(&self, job: CodingJob) {
        let Some(codings) = job.codings.upgrade() else {
            return add(&self.counted.dropped, 1);
        };
        let Some(place) = place(job.coding) else {
            debug_assert!(false, "it can be made");
            return;
        };
        let Some(content) = job.source.upgrade() else {
            // Another worker has the codings, or another reading of the file: that may ask again.
            let bit = CodingSet::from(job.coding).bits();
            codings.asked.fetch_and(!bit, Ordering::Relaxed);
            return add(&self.counted.dropped, 1);
        };
        let made = content.bytes().and_then(|source| {
            let digest = *blake3::hash(source).as_bytes();
            if *codings.source.get_or_init(|| digest) != digest {
                // A version has one content; if not, nothing is mixed.
                add(&self.counted.useless, 1);
                return None;
            }
            if is_read_by_ranges(source) {
                // Its name says text; programs read it in place all the same.
                add(&self.counted.useless, 1);
                return None;
            }
            let coded = self.encoders.encode(job.coding, source);
            if coded.is_none() {
                // Others take less.
                let bit = CodingSet::from(job.coding).bits();
                codings.failed.fetch_or(bit, Ordering::Relaxed);
            }
            self.keep(coded, source, job.charge)
        });
        // Only one thread has this job.
        let _ = codings.made[place].set(made);
    }

    fn keep(&self, coded: Option<Vec<u8>>, source: &[u8], mut charge: Charge) -> Option<CodedForm> {
        let len = source.len() as u64;
        let Some(mut coded) = coded.filter(|coded| pays(len, coded.len() as u64)) else {
            add(&self.counted.useless, 1);
            return None;
        };
        coded.shrink_to_fit();
        charge.shrink_to(coded.len() as u64);
        add(&self.counted.made, 1);
        add(&self.counted.source_bytes, len);
        add(&self.counted.made_bytes, coded.len() as u64);
        let [a, b, c, d, ..] = *blake3::hash(&coded).as_bytes();
        Some(CodedForm {
            content: Arc::new(Memory::from_vec_with(coded, charge)),
            mark: u32::from_be_bytes([a, b, c, d]),
        })
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// Entries of files that are gone tolerated before they are removed.
const FILES_SPARE: usize = 1_024;

/// The running threads of a coder; they end with this value, without being waited for.
pub(crate) struct CoderThreads(Arc<Coder>);

impl CoderThreads {
    /// Starts them.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(coder: Arc<Coder>) -> io::Result<Self> {
        for _ in 0..coder_threads() {
            let coder = Arc::clone(&coder);
            let work = move || {
                // Otherwise it competes with the workers for the processor; the scheduler is fair.
                let _ = lower_priority();
                coder.run();
            };
            thread::Builder::new().name("coder".into()).spawn(work)?;
        }
        Ok(Self(coder))
    }
}

impl Drop for CoderThreads {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Threads that code text while a site is served: one, or on a machine with many processors two.
#[must_use]
pub fn coder_threads() -> u64 {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / PROCESSORS_PER_THREAD).clamp(1, THREADS_MAX) as u64
}

const PROCESSORS_PER_THREAD: usize = 4;
const THREADS_MAX: usize = 2;

#[cfg(test)]
mod tests;
