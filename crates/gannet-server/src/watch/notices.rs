//! Messages for people. No thread of the server waits for their reader.
//!
//! Before a server serves, and in a command, a message is written at once. From `begin` on, each
//! stream has a thread that writes: a worker, a follower or the signal handler must neither block
//! on a pipe without a reader nor end because a disk is full.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gannet_io::standard::{Direct, is_of_journal};

use crate::bounds::limits::{NOTICES_FINISH_MS, NOTICES_MAX};

/// Standard error.
pub static ERRORS: Channel = Channel::new(|bytes| {
    static IS_OF_JOURNAL: OnceLock<bool> = OnceLock::new();
    let mut errors = Direct(io::stderr());
    match IS_OF_JOURNAL.get_or_init(|| is_of_journal(io::stderr())) {
        true => errors.write_all(with_priorities(&String::from_utf8_lossy(bytes)).as_bytes()),
        false => errors.write_all(bytes),
    }
});
/// Standard output, which carries messages unless a program reads the access log from it.
pub static OUTPUT: Channel = Channel::new(|bytes| Direct(io::stdout()).write_all(bytes));

/// Starts the threads that write messages; called when the server begins to serve.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn begin() -> io::Result<()> {
    ERRORS.begin("gannet-errors")?;
    OUTPUT.begin("gannet-output")
}

/// Waits until all messages are written, or for as long as a disk may take; a reader that does not
/// read cannot delay it longer. Called before the process ends.
pub fn settle() {
    let patience = Duration::from_millis(NOTICES_FINISH_MS);
    ERRORS.settle(patience);
    OUTPUT.settle(patience);
}

/// What the first line of an error has.
const OF_ERRORS: [&str; 6] = [
    " cannot ",
    "gannet: no site for ",
    "gannet: not upgraded",
    "gannet: a worker has stopped",
    "; still serving release ",
    " is served, but not as it was published: ",
];

/// Begins each line with its priority in the journal (sd-daemon(3)): an error says what cannot be done, a warning has a
/// next step.
fn with_priorities(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut marked = String::new();
    for message in lines.chunk_by(|_, next| !next.starts_with("gannet: ")) {
        let has = |start| message.iter().any(|line| line.starts_with(start));
        let is_error = OF_ERRORS.iter().any(|words| message[0].contains(words));
        let priority = match (is_error, has("help: ")) {
            (true, _) => 3,
            (false, true) => 4,
            (false, false) => 6,
        };
        for line in message {
            marked += &format!("<{priority}>{line}\n");
        }
    }
    marked
}

/// A stream for messages, written whole and in order. A message that cannot be written is lost; the
/// next successful one is preceded by the number of lost messages.
#[derive(Debug)]
pub struct Channel {
    queue: Mutex<Queue>,
    /// A message was added, or all are written.
    changed: Condvar,
    write: fn(&[u8]) -> io::Result<()>,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<String>,
    /// Messages that could not be written and are not reported yet.
    lost: u64,
    /// A thread writes the queue.
    has_writer: bool,
    is_writing: bool,
}

impl Channel {
    /// A channel whose messages `write` writes.
    pub(crate) const fn new(write: fn(&[u8]) -> io::Result<()>) -> Self {
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

    /// Writes a message of one or several lines, the last one without its line end. Never fails;
    /// blocks only before `begin`.
    pub fn log(&self, message: impl Display) {
        self.write(format!("{message}\n"));
    }

    /// Writes complete lines, as [`log`](Self::log) does.
    pub fn write(&self, text: String) {
        let mut queue = self.lock();
        if !queue.has_writer {
            drop(queue);
            // The stream that would report the failure is the one that failed.
            let _ = (self.write)(text.as_bytes());
        } else if queue.waiting.len() < NOTICES_MAX {
            queue.waiting.push_back(text);
            self.changed.notify_all();
        } else {
            queue.lost += 1;
        }
    }

    /// Starts the writing thread, once.
    fn begin(&'static self, name: &str) -> io::Result<()> {
        let mut queue = self.lock();
        if !queue.has_writer {
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(|| self.write_what_waits())?;
            queue.has_writer = true;
        }
        Ok(())
    }

    /// Waits until everything is written, at most `patience`; false if that expires.
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

    #[test]
    fn each_line_has_the_priority_of_its_message() {
        let text = "serving 'site'\n\ngannet: reloaded\ngannet: cannot read 'a'\nof it\nhelp: look\n\
            gannet: old\nhelp: renew\ngannet: a worker has stopped: x\n\
            gannet: 'a': refused the new release: older; still serving release b\n\
            gannet: 'a' cannot read 'b' again: denied\ngannet: 'a': release b is served, but not as it was published: c\n";
        let expect = "<6>serving 'site'\n<6>\n<6>gannet: reloaded\n<3>gannet: cannot read 'a'\n<3>of it\n\
            <3>help: look\n<4>gannet: old\n<4>help: renew\n<3>gannet: a worker has stopped: x\n\
            <3>gannet: 'a': refused the new release: older; still serving release b\n\
            <3>gannet: 'a' cannot read 'b' again: denied\n\
            <3>gannet: 'a': release b is served, but not as it was published: c\n";
        assert_eq!(with_priorities(text), expect);
    }

    /// A reader that blocks until released; then the text written.
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
            WRITTEN.lock().expect("no holder panics").push(text);
            Ok(())
        });
        CHANNEL.begin("test").expect("a thread");
        CHANNEL.log("first");
        while !CHANNEL.lock().is_writing {
            std::thread::yield_now();
        }
        for count in 0..NOTICES_MAX + 10 {
            CHANNEL.log(count);
        }
        assert!(!CHANNEL.settle(Duration::ZERO), "the reader blocks");
        assert_eq!(CHANNEL.lock().lost, 10);
        for _ in 0..=NOTICES_MAX {
            READER.0.send(()).expect("it writes");
        }
        assert!(CHANNEL.settle(LONG));
        let written = WRITTEN.lock().expect("no holder panics").concat();
        let lines: Vec<&str> = written.lines().collect();
        let lost = "gannet: messages lost before the next one: 10";
        assert_eq!(lines[..4], ["first", lost, "0", "1"]);
        assert_eq!(lines.len(), 2 + NOTICES_MAX);
    }

    #[test]
    fn a_stream_that_cannot_be_written_harms_nobody() {
        static ROOM: Mutex<bool> = Mutex::new(false);
        static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());
        static CHANNEL: Channel = Channel::new(|bytes| {
            if !*ROOM.lock().expect("no holder panics") {
                return Err(ErrorKind::StorageFull.into());
            }
            WRITTEN.lock().expect("no holder panics").extend(bytes);
            Ok(())
        });
        CHANNEL.log("before there is a thread");
        CHANNEL.begin("test").expect("a thread");
        CHANNEL.log("one");
        CHANNEL.log("two\nof two lines");
        assert!(CHANNEL.settle(LONG), "lost messages are not waited for");
        *ROOM.lock().expect("no holder panics") = true;
        CHANNEL.log("three");
        CHANNEL.log("four");
        assert!(CHANNEL.settle(LONG));
        let expect = "gannet: messages lost before the next one: 2\nthree\nfour\n";
        let written = WRITTEN.lock().expect("no holder panics");
        assert_eq!(String::from_utf8_lossy(&written), expect);
    }
}
