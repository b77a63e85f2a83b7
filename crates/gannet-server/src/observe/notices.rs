//! Messages for people. Nobody waits for those who read them.
//!
//! Until a server serves, and in a command, a message is written at once. From [`begin`] on each
//! stream has a thread that writes: a worker, a follower or the handling of signals must not hang in a
//! pipe that nobody reads, nor end because a disk is full.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gannet_io::standard::Direct;

use crate::limits::{NOTICES_FINISH_MS, NOTICES_MAX};

/// Standard error.
pub static ERRORS: Channel = Channel::new(|bytes| Direct(io::stderr()).write_all(bytes));
/// Standard output, where messages go as long as no program reads requests from it.
pub static OUTPUT: Channel = Channel::new(|bytes| Direct(io::stdout()).write_all(bytes));

/// A server serves from now on: threads write what is told.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn begin() -> io::Result<()> {
    ERRORS.begin("gannet-errors")?;
    OUTPUT.begin("gannet-output")
}

/// Waits until everything told is written, or for as long as a disk may take: not for ever for
/// somebody who does not read. Whoever ends the process calls this.
pub fn settle() {
    let patience = Duration::from_millis(NOTICES_FINISH_MS);
    ERRORS.settle(patience);
    OUTPUT.settle(patience);
}

/// A stream that messages are written to, whole and in their order. One that cannot be written is
/// lost; the next one that can be is preceded by the number of those.
#[derive(Debug)]
pub struct Channel {
    queue: Mutex<Queue>,
    /// Something was added, or all is written.
    changed: Condvar,
    write: fn(&[u8]) -> io::Result<()>,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<String>,
    /// Messages that could not be written, and that nobody was told of.
    lost: u64,
    /// A thread writes what waits.
    has_writer: bool,
    is_writing: bool,
}

impl Channel {
    const fn new(write: fn(&[u8]) -> io::Result<()>) -> Self {
        Self {
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                lost: 0,
                has_writer: false,
                is_writing: false,
            }),
            changed: Condvar::new(),
            write,
        }
    }

    /// Tells a message of one or several lines, the last one without its end. Never fails; waits only
    /// where there is no server yet.
    pub fn tell(&self, message: impl Display) {
        self.write(format!("{message}\n"));
    }

    /// The same for lines with their ends.
    pub fn write(&self, text: String) {
        let mut queue = self.lock();
        if !queue.has_writer {
            drop(queue);
            // There is nobody who could be told that nobody can be told.
            let _ = (self.write)(text.as_bytes());
        } else if queue.waiting.len() < NOTICES_MAX {
            queue.waiting.push_back(text);
            self.changed.notify_all();
        } else {
            queue.lost += 1;
        }
    }

    /// Starts the thread that writes, once.
    fn begin(&'static self, name: &str) -> io::Result<()> {
        let mut queue = self.lock();
        if !queue.has_writer {
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(|| self.write_what_waits())?;
            queue.has_writer = true;
        }
        Ok(())
    }

    /// Waits until everything is written, but not longer than this; false if it is not.
    fn settle(&self, patience: Duration) -> bool {
        let is_busy = |queue: &mut Queue| queue.is_writing || !queue.waiting.is_empty();
        let queue = self.lock();
        let waited = self.changed.wait_timeout_while(queue, patience, is_busy);
        let (_queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    fn write_what_waits(&self) {
        let mut queue = self.lock();
        loop {
            let Some(text) = queue.waiting.pop_front() else {
                self.changed.notify_all();
                let woken = self.changed.wait(queue);
                queue = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let lost = queue.lost;
            queue.is_writing = true;
            drop(queue);
            let text = match lost {
                0 => text,
                lost => format!("gannet: messages lost before the next one: {lost}\n{text}"),
            };
            let written = (self.write)(text.as_bytes());
            queue = self.lock();
            queue.is_writing = false;
            match written {
                Ok(()) => queue.lost -= lost,
                Err(_) => queue.lost += 1,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::LazyLock;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A reader that does not read, until it is told to; then what was written.
    type Pipe = (SyncSender<()>, Mutex<Receiver<()>>);

    #[test]
    fn nobody_waits_for_a_reader_and_what_has_no_room_is_counted() {
        static READER: LazyLock<Pipe> = LazyLock::new(|| {
            let (sender, receiver) = sync_channel(0);
            (sender, Mutex::new(receiver))
        });
        static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
        static CHANNEL: Channel = Channel::new(|bytes| {
            READER
                .1
                .lock()
                .expect("one writer")
                .recv()
                .expect("the test reads");
            let text = String::from_utf8(bytes.to_vec()).expect("text");
            WRITTEN.lock().expect("nobody panics").push(text);
            Ok(())
        });
        CHANNEL.begin("test").expect("a thread");
        CHANNEL.tell("first");
        while !CHANNEL.lock().is_writing {
            std::thread::yield_now();
        }
        for count in 0..NOTICES_MAX + 10 {
            CHANNEL.tell(count);
        }
        assert!(!CHANNEL.settle(Duration::ZERO), "nobody reads");
        assert_eq!(CHANNEL.lock().lost, 10);
        for _ in 0..=NOTICES_MAX {
            READER.0.send(()).expect("it writes");
        }
        assert!(CHANNEL.settle(LONG));
        let written = WRITTEN.lock().expect("nobody panics").concat();
        let lines: Vec<&str> = written.lines().collect();
        let told = "gannet: messages lost before the next one: 10";
        assert_eq!(lines[..4], ["first", told, "0", "1"]);
        assert_eq!(lines.len(), 2 + NOTICES_MAX);
    }

    #[test]
    fn a_stream_that_cannot_be_written_harms_nobody() {
        static ROOM: Mutex<bool> = Mutex::new(false);
        static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        static CHANNEL: Channel = Channel::new(|bytes| {
            if !*ROOM.lock().expect("nobody panics") {
                return Err(ErrorKind::StorageFull.into());
            }
            WRITTEN.lock().expect("nobody panics").extend(bytes);
            Ok(())
        });
        CHANNEL.tell("before there is a thread");
        CHANNEL.begin("test").expect("a thread");
        CHANNEL.tell("one");
        CHANNEL.tell("two\nof two lines");
        assert!(CHANNEL.settle(LONG), "what is lost is not waited for");
        *ROOM.lock().expect("nobody panics") = true;
        CHANNEL.tell("three");
        CHANNEL.tell("four");
        assert!(CHANNEL.settle(LONG));
        let expect = "gannet: messages lost before the next one: 2\nthree\nfour\n";
        let written = WRITTEN.lock().expect("nobody panics");
        assert_eq!(String::from_utf8_lossy(&written), expect);
    }
}
