//! Disk operations for streams of HTTP/2 and HTTP/3: lookups of paths and reads of content, several per
//! connection at once.

use std::rc::Rc;

use gannet_io::driver::{Driver, Errno, Started};

use crate::exchange::shared::Shared;
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::ground::alive::Alive;
use crate::ground::token::{ConnId, Kind, token};
use crate::release::ServedFile;
use crate::release::wakeup::Wakeup;

/// Pending operations, by the number in their tokens. Each completes exactly once, whatever happens
/// to the stream; its number is free again afterwards.
#[derive(Default)]
pub(crate) struct StreamWaits {
    questions: Vec<Option<Question>>,
    free: Vec<u32>,
}

/// A pending operation and its owner.
pub(crate) struct Question {
    pub(crate) conn: ConnId,
    /// The stream's number, in any version.
    pub(crate) stream: u64,
    pub(crate) what: What,
}

/// The kind of operation.
pub(crate) enum What {
    /// The lookup of a request.
    Lookup(Box<WaitingRequest>),
    /// A read of this many bytes of a file.
    Read(Rc<ServedFile>, usize),
}

impl StreamWaits {
    /// Reserves an unused number.
    pub(crate) fn reserve(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        self.questions.push(None);
        u32::try_from(self.questions.len() - 1).expect("connections and their streams are bounded")
    }

    /// Records an operation under a reserved number.
    pub(crate) fn ask(&mut self, number: u32, question: Question) {
        self.questions[number as usize] = Some(question);
    }

    /// Forgets an operation whose connection is gone; returns whether it is.
    pub(crate) fn forget_if_gone(&mut self, alive: &Alive, number: u32) -> bool {
        let question = self.questions.get(number as usize).and_then(Option::as_ref);
        let is_gone = question.is_none_or(|question| !alive.has(question.conn));
        if is_gone {
            self.take(number);
        }
        is_gone
    }

    /// Frees a number without an operation.
    pub(crate) fn release(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Takes an operation and frees its number.
    pub(crate) fn take(&mut self, number: u32) -> Option<Question> {
        let question = self.questions.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(question)
    }
}

impl<D: Driver> Shared<D> {
    /// Continues a lookup for a stream of a connection; `None` if an operation is pending.
    pub(crate) fn look_up_for(
        &mut self,
        (conn, stream): (ConnId, u64),
        mut waiting: Box<WaitingRequest>,
        wakeup: Option<Result<Wakeup, Errno>>,
    ) -> Option<(Box<WaitingRequest>, Found)> {
        let number = self.waiters.streams.reserve();
        let waiter = token(Kind::StreamDisk, number);
        if let Some(found) = self.find_out(&mut waiting, waiter, wakeup) {
            self.waiters.streams.release(number);
            return Some((waiting, found));
        }
        let what = What::Lookup(waiting);
        let question = Question { conn, stream, what };
        self.waiters.streams.ask(number, question);
        None
    }

    /// Reads `len` bytes of a file from `offset` for a stream; `None` if the operation is pending.
    pub(crate) fn read_for(
        &mut self,
        (conn, stream): (ConnId, u64),
        file: &Rc<ServedFile>,
        (offset, len): (u64, usize),
    ) -> Option<Result<Wakeup, Errno>> {
        let number = self.waiters.streams.reserve();
        let waiter = token(Kind::StreamDisk, number);
        match self.driver.read(&file.file, offset, len, waiter) {
            Started::Now(result) => {
                self.waiters.streams.release(number);
                Some(result.map(Wakeup::Read))
            }
            Started::Pending => {
                let what = What::Read(Rc::clone(file), len);
                let question = Question { conn, stream, what };
                self.waiters.streams.ask(number, question);
                None
            }
        }
    }

    /// The bytes of a completed read of `len` bytes; `None` if it failed. The file may have become
    /// shorter than announced, or hold another version now.
    pub(crate) fn bytes_read(
        &mut self,
        (file, len): (&ServedFile, usize),
        wakeup: Result<Wakeup, Errno>,
    ) -> Option<Vec<u8>> {
        let is_same = file.is_unchanged(&self.driver);
        match wakeup {
            Ok(Wakeup::Read(bytes)) if is_same && bytes.len() == len => Some(bytes),
            _ => {
                self.counters.cut_short += 1;
                None
            }
        }
    }
}
