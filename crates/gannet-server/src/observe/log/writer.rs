//! The thread that writes log lines, so that no worker waits for a disk or a pipe.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;

use gannet_io::cause::cause;
use gannet_io::named_file;
use gannet_io::sandbox::{HIDDEN, is_hidden};
use gannet_io::user::User;

use super::LogSink;
use crate::bounds::limits::{LOG_FINISH_MS, LOG_QUEUE_MAX};
use crate::config::{LogFormat, LogLines};
use crate::watch::notices::ERRORS;

/// A command to the writer thread.
enum Order {
    Reopen,
}

/// The writer thread and the channels to it.
pub(crate) struct LogWriter {
    queue: Option<SyncSender<Vec<u8>>>,
    orders: Sender<Order>,
    /// The thread's work, until it begins.
    write: Option<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
    made: NewLogFile,
}

impl LogWriter {
    /// Starts the writer; with [`LogFormat::Off`] there is no thread. A log file that it makes is
    /// `owner`'s, who is to open it again after a rotation.
    ///
    /// # Errors
    /// When the log file cannot be opened, or not be given to its owner.
    pub(crate) fn start(
        (format, lines): (&LogFormat, LogLines),
        path: Option<&Path>,
        owner: Option<&User>,
    ) -> io::Result<(Self, LogFactory)> {
        let (orders, order_inbox) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel();
        if *format == LogFormat::Off {
            let writer = Self {
                queue: None,
                orders,
                write: None,
                thread: None,
                ended,
                made: NewLogFile(None),
            };
            return Ok((
                writer,
                LogFactory {
                    format: LogFormat::Off,
                    lines,
                    queue: None,
                    failed: Arc::default(),
                },
            ));
        }
        let (target, made) = Target::open(path)?;
        if let (Some(_), Some(owner)) = (&made.0, owner) {
            let file = &target.lines.out;
            fchown(file, Some(owner.uid), Some(owner.gid))?;
        }
        let (queue, batches) = std::sync::mpsc::sync_channel::<Vec<u8>>(LOG_QUEUE_MAX);
        let failed = Arc::new(AtomicU64::new(0));
        let factory = LogFactory {
            format: format.clone(),
            lines,
            queue: Some(queue.clone()),
            failed: Arc::clone(&failed),
        };
        let write = move || {
            write_lines(target, &batches, &order_inbox, &failed);
            drop(end);
        };
        Ok((
            Self {
                queue: Some(queue),
                orders,
                write: Some(Box::new(write)),
                thread: None,
                ended,
                made,
            },
            factory,
        ))
    }

    /// Called when the server serves: lines are written, and a log file that was created is kept.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        if let Some(write) = self.write.take() {
            // Not earlier: the thread is confined like the one that starts it.
            let thread = std::thread::Builder::new().name("gannet-log".into());
            self.thread = Some(thread.spawn(write)?);
        }
        self.made.0 = None;
        Ok(())
    }

    /// Makes the writer reopen its file (after a rotation).
    pub(crate) fn reopen(&self) {
        // The writer ends only with the server.
        let _ = self.orders.send(Order::Reopen);
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(Vec::new());
        }
    }

    /// Waits until all queued lines are written; the wait is bounded, because the reader of a pipe
    /// may have stopped reading. All sinks must be gone.
    pub(crate) fn finish(mut self) {
        drop(self.queue.take());
        let patience = std::time::Duration::from_millis(LOG_FINISH_MS);
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the workers' sinks.
#[derive(Clone)]
pub(crate) struct LogFactory {
    format: LogFormat,
    lines: LogLines,
    queue: Option<SyncSender<Vec<u8>>>,
    failed: Arc<AtomicU64>,
}

impl LogFactory {
    /// A sink for one worker.
    pub(crate) fn sink(&self) -> LogSink {
        LogSink::new(
            &self.format,
            self.lines,
            self.queue.clone(),
            Arc::clone(&self.failed),
        )
    }
}

/// A newly created log file. Dropping this removes the file if it is empty, so that a server that
/// does not start, or only checks whether it could, leaves nothing behind.
struct NewLogFile(Option<PathBuf>);

impl Drop for NewLogFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && fs::metadata(path).is_ok_and(|meta| meta.len() == 0)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Destination of log lines: standard output, or a file that can be reopened.
struct Target {
    path: Option<PathBuf>,
    lines: Lines<File>,
}

impl Target {
    fn open(path: Option<&Path>) -> io::Result<(Self, NewLogFile)> {
        let Some(path) = path else {
            // A copy of the descriptor: the standard library's own buffer would keep bytes that
            // could not be written, and repeat them.
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            let lines = Lines::new(file);
            return Ok((Self { path: None, lines }, NewLogFile(None)));
        };
        let (file, is_made) = open(path)?;
        let made = NewLogFile(is_made.then(|| path.to_owned()));
        let mut lines = Lines::new(file);
        if !is_made && ends_in_a_line(path) {
            // A previous process ended before it could complete its last line.
            lines.owed.push(b'\n');
        }
        let path = Some(path.to_owned());
        Ok((Self { path, lines }, made))
    }

    /// Reopens the file; returns the number of lines lost.
    fn reopen(&mut self) -> u64 {
        let Some(path) = &self.path else { return 0 };
        match open(path) {
            Ok((file, _)) => self.lines.go_on_in(file),
            Err(error) => {
                let help = match is_hidden(path, true, &error) {
                    true => HIDDEN,
                    false => {
                        "requests are logged to the file that was open before; give gannet's user the right \
                         to write to the folder, or have what renames the log make the new one"
                    }
                };
                ERRORS.log(format_args!(
                    "gannet: cannot reopen the access log: {}\nhelp: {help}",
                    cause(&error)
                ));
                0
            }
        }
    }
}

/// Opens a log file for appending; true if it was created.
fn open(path: &Path) -> io::Result<(File, bool)> {
    match named_file::append(path, false) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return Ok((opened?, false)),
    }
    match named_file::append(path, true) {
        // Another process created it first.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Ok((named_file::append(path, false)?, false))
        }
        made => Ok((made?, true)),
    }
}

/// Whether the last line of a file is incomplete.
fn ends_in_a_line(path: &Path) -> bool {
    // Only a regular file has a last byte, and opening a FIFO would block.
    let len = match fs::metadata(path) {
        Ok(meta) if meta.is_file() => meta.len(),
        _ => 0,
    };
    let mut last = [b'\n'];
    len > 0
        && File::open(path).is_ok_and(|file| file.read_exact_at(&mut last, len - 1).is_ok())
        && last != [b'\n']
}

/// Writes whole lines: the rest of a partly written line precedes all others.
struct Lines<W> {
    out: W,
    /// The rest of a partly written line; shorter than a batch.
    owed: Vec<u8>,
}

impl<W: Write> Lines<W> {
    fn new(out: W) -> Self {
        let owed = Vec::new();
        Self { out, owed }
    }

    /// Writes a batch of lines; an error carries the number of lines lost.
    fn write(&mut self, batch: &[u8]) -> Result<(), (u64, io::Error)> {
        let (len, written) = write_some(&mut self.out, &self.owed);
        self.owed.drain(..len);
        written.map_err(|error| (line_count(batch), error))?;
        let (len, written) = write_some(&mut self.out, batch);
        written.map_err(|error| {
            let (begun, rest) = batch.split_at(len);
            let is_torn = begun.last().is_some_and(|byte| *byte != b'\n');
            let end = rest.iter().position(|byte| *byte == b'\n');
            let end = end.map_or(rest.len(), |end| end + 1);
            let (torn, lost) = rest.split_at(if is_torn { end } else { 0 });
            self.owed = torn.to_vec();
            (line_count(lost), error)
        })
    }
}

impl Lines<File> {
    /// Continues in another file, which may be the same one; returns the number of lines lost.
    fn go_on_in(&mut self, file: File) -> u64 {
        let before = std::mem::replace(&mut self.out, file);
        let (len, _) = write_some(&mut &before, &self.owed);
        self.owed.drain(..len);
        let identity = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
        if self.owed.is_empty() || identity(&before) == identity(&self.out) {
            return 0;
        }
        self.owed.clear();
        1
    }
}

/// Writes as much as possible; returns the number of bytes written.
fn write_some(out: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut len = 0;
    while len < bytes.len() {
        match out.write(&bytes[len..]) {
            Ok(0) => return (len, Err(ErrorKind::WriteZero.into())),
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (len, Err(error)),
        }
    }
    (len, Ok(()))
}

fn line_count(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn complain(error: &io::Error) {
    let cause = cause(error);
    ERRORS.log(format_args!("gannet: cannot write the access log: {cause}"));
}

fn write_lines(
    mut target: Target,
    batches: &Receiver<Vec<u8>>,
    orders: &Receiver<Order>,
    failed: &AtomicU64,
) {
    // A full disk must not fill standard error as well: one complaint until a write succeeds.
    let mut complained = false;
    while let Ok(batch) = batches.recv() {
        if let Ok(Order::Reopen) = orders.try_recv() {
            failed.fetch_add(target.reopen(), Ordering::Relaxed);
        }
        let Err((lost, error)) = target.lines.write(&batch) else {
            complained = false;
            continue;
        };
        failed.fetch_add(lost, Ordering::Relaxed);
        if !complained {
            complained = true;
            complain(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with a limited amount of room.
    struct Disk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.room);
            if len == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= len;
            self.content.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// However much room the disk has, it receives whole lines in order, each once, and missing
    /// lines are counted.
    #[test]
    fn lines_stay_whole_on_a_full_disk() {
        for room in 0..24 {
            let disk = Disk {
                content: Vec::new(),
                room,
            };
            let mut lines = Lines::new(disk);
            let mut lost = 0;
            for (batch, more_room) in [("one\ntwo\nthree\n", 0), ("four\n", 3), ("five\n", 99)] {
                lines.out.room += more_room;
                if let Err((count, _)) = lines.write(batch.as_bytes()) {
                    lost += count;
                }
            }
            let text = String::from_utf8(lines.out.content).expect("as it was written");
            let all = ["one", "two", "three", "four", "five"];
            let got: Vec<&str> = text.split_terminator('\n').collect();
            let expect: Vec<&str> = all.into_iter().filter(|line| got.contains(line)).collect();
            assert_eq!(got, expect, "room for {room}");
            assert_eq!(lost as usize, all.len() - got.len(), "room for {room}");
        }
    }

    /// After a rotation, the rest of a line does not begin the new file; without one, the line is
    /// completed.
    #[test]
    fn another_file_begins_with_a_whole_line() {
        let name = |kind: &str| {
            let name = format!("gannet-log-{}-{kind}", std::process::id());
            std::env::temp_dir().join(name)
        };
        let (old, new) = (name("old"), name("new"));
        // Opened read-only: every write fails.
        fs::write(&old, "beg").expect("written");
        fs::write(&new, "").expect("written");
        let unwritable = || Lines {
            out: File::open(&old).expect("it is there"),
            owed: b"un\n".to_vec(),
        };
        let mut lines = unwritable();
        assert_eq!(lines.go_on_in(open(&new).expect("it is there").0), 1);
        lines.write(b"whole\n").expect("it can be written");
        assert_eq!(fs::read(&new).expect("it is there"), b"whole\n");
        let mut lines = unwritable();
        assert_eq!(lines.go_on_in(open(&old).expect("it is there").0), 0);
        lines.write(b"whole\n").expect("it can be written");
        assert_eq!(fs::read(&old).expect("it is there"), b"begun\nwhole\n");
        for path in [old, new] {
            fs::remove_file(path).expect("it is there");
        }
    }

    /// A line left incomplete by a killed process is ended first.
    #[test]
    fn a_line_without_an_end_gets_one() {
        let name = format!("gannet-log-{}-torn", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "torn").expect("written");
        let (mut target, _made) = Target::open(Some(&path)).expect("it is there");
        target.lines.write(b"whole\n").expect("it can be written");
        assert_eq!(fs::read(&path).expect("it is there"), b"torn\nwhole\n");
        fs::remove_file(path).expect("it is there");
    }
}
