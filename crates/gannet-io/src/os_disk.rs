//! The file side that the two real engines share: which calls end at once, and which go to a
//! helper.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::completion::{Completion, Done};
use crate::disk::{Listed, Render};
use crate::file::{Blocking, File, OpenedFile, OsFile};
use crate::helpers::{Answer, Helpers, Job, Owner, SlotKey};
use crate::limits;
use crate::operation::{Nanos, Started, Token};
use crate::outputs::Outputs;
use crate::root::{LookupReach, Root};
use crate::store::Store;
use crate::survey::{KeepName, Survey};
use crate::waker::{Bell, Waker, WakerInner};

/// The file side of a real engine: the helpers, and the bell that they ring.
#[derive(Debug)]
pub(crate) struct OsDisk {
    pub(crate) bell: Arc<Bell>,
    helpers: Helpers,
    wake_token: Option<Token>,
    /// Vectors of reads, for reuse.
    reads: Vec<Vec<u8>>,
    /// The bytes that were last read ahead.
    ahead: Vec<u8>,
    /// Jobs handed to helpers.
    pub(crate) helped: u64,
}

/// The answer for a socket that waits for a helper.
#[derive(Debug)]
pub(crate) enum Ready {
    /// The range is in memory now.
    Warm,
    /// The bytes themselves.
    Bytes(Vec<u8>),
}

impl OsDisk {
    pub(crate) fn new(helpers_max: usize) -> Result<Self, Errno> {
        let bell = Arc::new(Bell::new()?);
        Ok(Self {
            helpers: Helpers::new(helpers_max, Arc::clone(&bell)),
            bell,
            wake_token: None,
            reads: Vec::new(),
            ahead: Vec::new(),
            helped: 0,
        })
    }

    pub(crate) fn start_helpers(&mut self) {
        self.helpers.start_first();
    }

    pub(crate) fn waker(&mut self, token: Token) -> Waker {
        self.wake_token = Some(token);
        Waker(Arc::new(WakerInner::Bell(Arc::clone(&self.bell))))
    }

    /// See [`Disk::open`](crate::disk::Disk::open).
    pub(crate) fn open(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile> {
        let real = root.as_os();
        match real.may_block() || real.is_straight() {
            true => self.open_later(root, path, token),
            false => self.opened(real.open(path, LookupReach::Cached), root, path, token),
        }
    }

    /// See [`Disk::open_plain`](crate::disk::Disk::open_plain).
    pub(crate) fn open_plain(
        &mut self,
        root: &Root,
        path: &[u8],
        ahead: usize,
        token: Token,
    ) -> Started<OpenedFile> {
        let real = root.as_os();
        if real.may_block() {
            return self.open_later(root, path, token);
        }
        let mut result = real.open_to_read(path, LookupReach::Cached, (ahead, &mut self.ahead));
        if let Ok(opened) = &mut result
            && ahead > 0
            && opened.meta.len > 0
            && opened.meta.len == self.ahead.len() as u64
        {
            // The buffer stays: a file that is kept would take more memory than it has bytes.
            let mut content = self.reads.pop().unwrap_or_default();
            content.clear();
            if content.try_reserve_exact(self.ahead.len()).is_ok() {
                content.extend_from_slice(&self.ahead);
                opened.content = content;
            }
        }
        self.opened(result, root, path, token)
    }

    /// The result of opening a path at once, unless that was not possible.
    fn opened(
        &mut self,
        result: Result<OpenedFile, Errno>,
        root: &Root,
        path: &[u8],
        token: Token,
    ) -> Started<OpenedFile> {
        match result {
            // The kernel's cache does not have all of the path, or the path leaves the root's
            // mount.
            Err(Errno::AGAIN | Errno::XDEV) => self.open_later(root, path, token),
            result => Started::Now(result),
        }
    }

    fn open_later(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile> {
        self.hand_over(Job::Open {
            root: root.clone(),
            path: path.into(),
            reach: root.as_os().reach(),
            token,
        })
    }

    pub(crate) fn read(
        &mut self,
        file: &File,
        (offset, len): (u64, usize),
        token: Token,
        outputs: &mut Outputs,
    ) -> Started<Vec<u8>> {
        let real = file.as_os();
        if self.reads.is_empty() {
            // Perhaps a vector that was read into and sent as it was.
            self.reads.extend(outputs.take_spare(len));
        }
        let result = match real.store {
            Store::Memory => self.read_now(real, offset, len, Blocking::Yes),
            Store::Disk => self.read_now(real, offset, len, Blocking::No),
            Store::Remote => Err(Errno::AGAIN),
        };
        match result {
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => self.hand_over(Job::Read {
                file: file.clone(),
                offset,
                len,
                token,
            }),
            result => Started::Now(result),
        }
    }

    fn read_now(
        &mut self,
        file: &OsFile,
        offset: u64,
        len: usize,
        how: Blocking,
    ) -> Result<Vec<u8>, Errno> {
        let mut bytes = self.reads.pop().unwrap_or_default();
        match file.read_into(offset, len, &mut bytes, how) {
            Ok(()) => Ok(bytes),
            Err(errno) => {
                self.give_back(bytes);
                Err(errno)
            }
        }
    }

    /// Takes back a vector that a read delivered.
    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        let fits = (1..=limits::OUTPUT_LARGE_MAX).contains(&bytes.capacity());
        if fits && self.reads.len() < limits::READS_KEPT_MAX {
            self.reads.push(bytes);
        }
    }

    pub(crate) fn survey(
        &mut self,
        root: &Root,
        path: &[u8],
        (max, keep): (usize, KeepName),
        token: Token,
    ) -> Started<Survey> {
        if root.as_os().may_block() {
            return Started::Now(Err(Errno::XDEV));
        }
        self.hand_over(Job::Survey {
            root: root.clone(),
            path: path.into(),
            max,
            keep,
            reach: LookupReach::Mount,
            token,
        })
    }

    pub(crate) fn list(
        &mut self,
        root: &Root,
        path: &[u8],
        (max, may_hang): (usize, bool),
        render: Render,
        token: Token,
    ) -> Started<Listed> {
        let reach = match may_hang {
            true => LookupReach::Everywhere,
            false if root.as_os().may_block() => return Started::Now(Err(Errno::XDEV)),
            false => LookupReach::Mount,
        };
        self.hand_over(Job::List {
            root: root.clone(),
            path: path.into(),
            max,
            reach,
            render,
            token,
        })
    }

    pub(crate) fn copy(&mut self, file: &File, range: Range<u64>, token: Token) -> Started<File> {
        self.hand_over(Job::Copy {
            file: file.clone(),
            range,
            token,
        })
    }

    pub(crate) fn share_copies(&self, max: u64) -> u64 {
        let copies = self.helpers.copies();
        copies.set_max(max);
        copies.lost()
    }

    fn hand_over<T>(&mut self, job: Job) -> Started<T> {
        match self.submit(job) {
            Ok(()) => Started::Pending,
            Err(errno) => Started::Now(Err(errno)),
        }
    }

    fn submit(&mut self, job: Job) -> Result<(), Errno> {
        self.helped += 1;
        self.helpers.submit(job)
    }

    /// See [`Disk::drop_unawaited`](crate::disk::Disk::drop_unawaited).
    pub(crate) fn drop_unawaited(&self, is_awaited: impl FnMut(Owner) -> bool) {
        self.helpers.retain(is_awaited);
    }

    /// Has a range read into the page cache for a socket.
    pub(crate) fn warm(
        &mut self,
        file: &File,
        offset: u64,
        len: u64,
        key: SlotKey,
    ) -> Result<(), Errno> {
        self.submit(Job::Warm {
            file: file.clone(),
            offset,
            len,
            key,
        })
    }

    /// Has a range read for a socket.
    pub(crate) fn fetch(
        &mut self,
        file: &File,
        offset: u64,
        len: usize,
        key: SlotKey,
    ) -> Result<(), Errno> {
        self.submit(Job::Fetch {
            file: file.clone(),
            offset,
            len,
            key,
        })
    }

    /// To be called when the bell's descriptor is readable: completes the operations that helpers
    /// and wakers have finished, and returns the answers for sockets that wait.
    pub(crate) fn hear(
        &mut self,
        out: &mut Vec<Completion>,
    ) -> Vec<(SlotKey, Result<Ready, Errno>)> {
        let woken = self.bell.hear();
        let mut end = |token, result| {
            out.push(Completion {
                token,
                result,
                more: false,
            })
        };
        let mut for_sockets = Vec::new();
        for answer in self.helpers.take_answers() {
            match answer {
                Answer::Opened(token, result) => end(token, result.map(Done::Opened)),
                Answer::Read(token, result) => end(token, result.map(Done::Read)),
                Answer::Surveyed(token, result) => end(token, result.map(Done::Surveyed)),
                Answer::Listed(token, result) => end(token, result.map(Done::Listed)),
                Answer::Copied(token, result) => end(token, result.map(Done::Copied)),
                Answer::Warmed(key, result) => {
                    for_sockets.push((key, result.map(|()| Ready::Warm)));
                }
                Answer::Fetched(key, result) => {
                    for_sockets.push((key, result.map(Ready::Bytes)));
                }
            }
        }
        if let (true, Some(token)) = (woken, self.wake_token) {
            end(token, Ok(Done::Woken));
        }
        for_sockets
    }
}

/// Whether a `sendfile` of the range would wait for the disk.
pub(crate) fn is_cold(file: &File, offset: u64, len: u64, now: Nanos) -> bool {
    let real = file.as_os();
    real.store != Store::Memory && !real.residency.is_resident(real.as_fd(), offset, len, now)
}
