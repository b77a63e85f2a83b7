//! A small process that starts the program once more, for an upgrade.
//!
//! ```text
//!  server ──(socket pair)── starter ──▶ the new server
//!     └── start, with a descriptor ──▶ │ spawn
//!     └── end ────────────────────────▶ │ kill
//!     └── ended, with a descriptor ────▶ │ wait, kill; how it has ended goes back by the descriptor
//!     └── leave: it may serve now ─────▶ │
//!     └── the end: the server is gone ─▶ │ kill, unless it was left
//! ```
//!
//! It is forked before the server has threads and gives up rights, and waits until it is needed, or
//! until the server has ended. It knows one command only, the one that the server was started with:
//! an attacker who takes over the server cannot run anything else.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::parcels::Parcels;
use crate::readiness::{self, Interest};

/// The environment variable that names the descriptor by which the new server reaches the old one.
pub const PREDECESSOR: &str = "GANNET_PREDECESSOR";

/// The first byte of the message that the starter sends to the server in place of the new one, if it
/// cannot be started; the cause follows.
pub const NOT_STARTED: u8 = b'!';

/// What the server sends to its starter.
mod order {
    /// Start the program, which finds the descriptor that comes with this; what was started before is
    /// ended.
    pub(super) const START: &[u8] = b"start";
    /// End what was started.
    pub(super) const END: &[u8] = b"end";
    /// The same if it does not end by itself, and tell by the descriptor that comes with this how it has
    /// ended.
    pub(super) const ENDED: &[u8] = b"ended";
    /// What was started outlives the server.
    pub(super) const LEAVE: &[u8] = b"leave";
}

/// How long the server waits for the report how something has ended, which has ended before: the kernel
/// may still take its memory apart.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// How long a process that has closed its link may take to end by itself: what it ended with is worth more
/// than the signal of its starter. Much less than [`REPORT_MAX`].
const END_MAX: Duration = Duration::from_secs(3);

/// Variables that concern the server that was started with them alone.
pub(crate) const OWN_VARIABLES: [&str; 4] =
    ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", PREDECESSOR];

/// The server's connection to its starter, which ends when this is dropped.
#[derive(Debug)]
pub struct Starter(Parcels);

impl Starter {
    /// Forks the starter of this program with the arguments and the environment that it has now,
    /// without the variables `without`.
    ///
    /// # Errors
    /// Another thread is running, which a forked process would lack, or cannot be ruled out: `/proc` is
    /// not there. Those of `fork` (`EAGAIN`, `ENOMEM`).
    pub fn fork(without: &[&str]) -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let mut command = Command::new(program(&arguments.next().unwrap_or_default()));
        command.args(arguments);
        for name in OWN_VARIABLES.iter().chain(without) {
            command.env_remove(name);
        }
        let (ours, theirs) = Parcels::pair()?;
        let mask = block_signals();
        let forked = fork_alone(|| {
            close_all_but(theirs.as_fd().as_raw_fd(), ours.as_fd().as_raw_fd());
            let _ = rustix::thread::set_name(c"gannet-starter");
            // SAFETY: between fork and exec this only sets the thread's signal mask, which is
            // async-signal-safe.
            unsafe {
                command.pre_exec(move || {
                    restore_signals(&mask);
                    Ok(())
                });
            }
            wait_for_orders(&theirs, &mut command);
        });
        restore_signals(&mask);
        forked.map(|()| Self(ours))
    }

    /// Starts the program, which finds `socket` by [`PREDECESSOR`]. If that fails, the other end of
    /// the socket receives [`NOT_STARTED`]. What was started before is ended.
    ///
    /// # Errors
    /// The starter is gone (`EPIPE`).
    pub fn start(&self, socket: &Parcels) -> io::Result<()> {
        self.0.send(&[order::START], &[socket.as_fd()])
    }

    /// Ends what was started.
    pub fn end(&self) {
        // Without a starter there is nothing that could be ended.
        let _ = self.0.send(&[order::END], &[]);
    }

    /// Leaves what was started to itself: it does not end with this server.
    pub fn leave(&self) {
        // Without a starter it would not end.
        let _ = self.0.send(&[order::LEAVE], &[]);
    }

    /// How what was started has ended, such as `exit status: 3`; it is ended if it still runs after some
    /// seconds. `None` if nothing was started, or there is no starter to tell.
    #[must_use]
    pub fn how_it_ended(&self) -> Option<String> {
        let (ours, theirs) = Parcels::pair().ok()?;
        self.0.send(&[order::ENDED], &[theirs.as_fd()]).ok()?;
        drop(theirs);
        ours.set_patience(REPORT_MAX).ok()?;
        let mut report = Vec::new();
        ours.receive(&mut report).ok()?;
        String::from_utf8(report).ok().filter(|how| !how.is_empty())
    }
}

/// Forks a process that does this, and ends.
///
/// # Errors
/// Those of [`Starter::fork`].
pub(crate) fn fork_alone(life: impl FnOnce()) -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("there is more than one thread"));
    }
    // SAFETY: this is the only thread, so that the child's memory is consistent.
    let result = unsafe { libc::fork() };
    match result {
        0 => {
            life();
            // SAFETY: ends the process; what the server has registered for its end is not run.
            unsafe { libc::_exit(0) }
        }
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The starter's life.
fn wait_for_orders(orders: &Parcels, command: &mut Command) {
    let mut started: Option<Child> = None;
    let mut is_left = false;
    let mut order = Vec::new();
    loop {
        let descriptors = orders.receive(&mut order);
        let is_over = order.is_empty();
        if &*order == order::LEAVE {
            is_left = true;
            continue;
        }
        // Without its server, it would wait for ever, or for nothing.
        let ended = match is_over && is_left {
            true => None,
            false => started.take().and_then(|child| {
                if &*order == order::ENDED {
                    await_end(&child, orders);
                }
                end(child)
            }),
        };
        if is_over {
            return;
        }
        let socket = descriptors.unwrap_or_default().into_iter().next();
        match (&*order, socket) {
            (order::START, Some(socket)) => {
                started = start(command, socket);
                is_left = false;
            }
            (order::ENDED, Some(socket)) => {
                let how = ended.unwrap_or_default();
                // The server has ended meanwhile, or waits no more.
                let _ = Parcels::from(socket).send(&[how.as_bytes()], &[]);
            }
            _ => {}
        }
    }
}

/// Waits until a process has ended, for [`END_MAX`] at most, or until the next order. Where it cannot be
/// waited for, it is not.
fn await_end(child: &Child, orders: &Parcels) {
    if let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
        let watched = [process.as_fd(), orders.as_fd()].map(|it| (it, Interest::Input));
        let _ = readiness::wait(&watched, Some(END_MAX));
    }
}

/// Ends a process, and tells how it has ended: by itself, if it had begun to before.
fn end(mut child: Child) -> Option<String> {
    let _ = child.kill();
    child.wait().ok().map(|status| status.to_string())
}

fn start(command: &mut Command, socket: OwnedFd) -> Option<Child> {
    let spawned = rustix::io::fcntl_setfd(&socket, FdFlags::empty())
        .map_err(io::Error::from)
        .and_then(|()| {
            let number = socket.as_raw_fd().to_string();
            command.env(PREDECESSOR, number).spawn()
        });
    spawned
        .map_err(|error| {
            let cause = crate::cause::cause(&error);
            let program = Path::new(command.get_program()).display().to_string();
            let text = format!("cannot start '{program}': {cause}");
            // If the server has ended meanwhile, it does not wait for the cause.
            let _ = Parcels::from(socket).send(&[&[NOT_STARTED], text.as_bytes()], &[]);
        })
        .ok()
}

/// The path that this program was started by: a later start finds what is there then, also if it is
/// a link that leads elsewhere by then. If that is unknown, the path of the running program.
pub(crate) fn program(typed: &OsStr) -> PathBuf {
    let identity = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let own = identity(Path::new("/proc/self/exe"));
    let is_own = |path: &PathBuf| own.is_some() && identity(path) == own;
    let by_name = |folder: PathBuf| folder.join(typed);
    let found = match typed.as_encoded_bytes().contains(&b'/') {
        true => Some(PathBuf::from(typed)).filter(is_own),
        false => {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            let mut paths = std::env::split_paths(&folders).map(by_name);
            paths.find(is_own)
        }
    };
    let running = || fs::read_link("/proc/self/exe").unwrap_or_else(|_| typed.into());
    found.unwrap_or_else(running)
}

/// Closes all descriptors but the standard ones and `kept`. The server's sockets are among them, which
/// would not be accepted from here, and `other`: the server's end of what is kept, whose end tells that the
/// server has ended.
pub(crate) fn close_all_but(kept: RawFd, other: RawFd) {
    close(other);
    let number = kept.unsigned_abs();
    let mut ranges = [(3, number - 1), (number + 1, u32::MAX)].into_iter();
    let are_closed = ranges.all(|(first, last)| {
        // SAFETY: what owns these descriptors in this process is never used or dropped: it ends without
        // returning from the fork.
        first > last || unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) } == 0
    });
    // Linux before 5.9, or a container that does not allow the call.
    if !are_closed {
        close_listed_but(kept);
    }
}

fn close_listed_but(kept: RawFd) {
    let Ok(listed) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers = listed.flatten().filter_map(|entry| {
        let number: RawFd = entry.file_name().to_str()?.parse().ok()?;
        (number > 2 && number != kept).then_some(number)
    });
    // That of the list is among them, and closed before.
    let numbers: Vec<_> = numbers.collect();
    numbers.into_iter().for_each(close);
}

fn close(number: RawFd) {
    // SAFETY: as in `close_all_but`; a number that is not open is refused.
    unsafe { libc::close(number) };
}

/// Blocks all signals for this thread; returns what was blocked before. The starter must outlive
/// signals that are meant for the server and reach all processes of its group.
pub(crate) fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the call writes the whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set was written above, and the call writes the second one; it cannot fail with
    // a valid `how`.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    // SAFETY: written by the call above.
    unsafe { before.assume_init() }
}

pub(crate) fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: the set is initialised, and the call reads it.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of that name elsewhere is not this one.
    #[test]
    fn the_program_is_found_by_the_path_that_was_typed() {
        let running = std::env::current_exe().expect("it runs");
        assert_eq!(program(running.as_os_str()), running);
        assert_eq!(program(OsStr::new("/bin/sh")), running);
        assert_eq!(program(OsStr::new("sh")), running);
        let link = std::env::temp_dir().join(format!("gannet-link-{}", std::process::id()));
        std::os::unix::fs::symlink(&running, &link).expect("a link");
        assert_eq!(program(link.as_os_str()), link);
        fs::remove_file(link).expect("made");
    }
}
