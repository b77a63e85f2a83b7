//! Another process of this program beside the server, which does what a serving process does not:
//! ask other servers.
//!
//! ```text
//!  server ──(pipe)── keeper ──▶ the program with other arguments
//!     └── a byte: begin ──▶ │ spawn, and again after each end, with growing pauses
//!     └── the end: the server is gone ──▶ │ kill
//! ```
//!
//! The keeper is forked before the server has threads and gives up rights, as nothing can be started
//! after that. It knows one command only. What the server learns of its companion are files, and what that may
//! write to a pipe, or to a few bytes of memory; what the companion learns of the server, it may read from another
//! pipe. Neither outlives the server, however that ends: the pipe ends with it, and with the keeper the kernel
//! ends what that has started.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};

use crate::cause::cause;
use crate::sandbox::forbid_privileges;
use crate::starter::{
    OWN_VARIABLES, block_signals, close_all_but, fork_alone, program, restore_signals,
};
use crate::user::User;

/// The pause after a first end; it doubles with each further one.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MOST: Duration = Duration::from_secs(300);
/// What has run for so long has done something useful: the next pause is a short one.
const STEADY: Duration = Duration::from_secs(600);

/// Bytes that the pipe of [`wide_input`] takes.
pub const WIDE_INPUT_LEN: usize = 256 << 10;

/// Variables that concern the service manager's own process.
const MANAGER_VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// The server's hold on a companion, which ends when this is dropped.
#[derive(Debug)]
pub struct Companion(OwnedFd);

impl Companion {
    /// Forks the keeper of a process of this program with these arguments and this environment, to which
    /// `variables` are added. If `user` is given, both run as that user. The keeper starts nothing before
    /// [`begin`](Self::begin). `name` is what its messages call the process. Each process that it starts has
    /// `input` as its standard input, one after the other, or nothing; and `output` as its standard output, or
    /// its standard error.
    ///
    /// # Errors
    /// Another thread is running, which a forked process would lack, or cannot be ruled out: `/proc` is
    /// not there. Those of `fork` and `pipe` (`EAGAIN`, `EMFILE`, `ENOMEM`).
    pub fn fork<A: AsRef<OsStr>>(
        name: &str,
        arguments: impl IntoIterator<Item = A>,
        variables: &[(&str, &OsStr)],
        [input, output]: [Option<OwnedFd>; 2],
        user: Option<&User>,
    ) -> io::Result<Self> {
        let typed = std::env::args_os().next().unwrap_or_default();
        let mut command = Command::new(program(&typed));
        command.args(arguments);
        command.stdin(match &input {
            Some(_) => Stdio::inherit(),
            None => Stdio::null(),
        });
        for variable in OWN_VARIABLES.iter().chain(&MANAGER_VARIABLES) {
            command.env_remove(variable);
        }
        command.envs(variables.iter().copied());
        let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let mask = block_signals();
        let forked = fork_alone(|| {
            let standard = [(&input, libc::STDIN_FILENO), (&output, libc::STDOUT_FILENO)];
            for (pipe, number) in standard {
                if let Some(Err(error)) = pipe.as_ref().map(|it| become_standard(it, number)) {
                    return log(name, &format!("cannot be started: {}", cause(&error)));
                }
            }
            close_all_but(theirs.as_raw_fd(), ours.as_raw_fd());
            let _ = rustix::thread::set_name(c"gannet-keeper");
            // Signals of a terminal are for the server, and reach its whole group.
            let _ = rustix::process::setpgid(None, None);
            let keeper = rustix::process::getpid();
            // SAFETY: between fork and exec these are system calls only, which are async-signal-safe.
            unsafe {
                command.pre_exec(move || {
                    restore_signals(&mask);
                    end_with(keeper)
                });
            }
            let say = |command| match &output {
                Some(_) => Ok(()),
                None => say_by_error(command),
            };
            if let Err(error) = give_up_rights(user).and_then(|()| say(&mut command)) {
                return log(name, &format!("cannot be started: {}", cause(&error)));
            }
            keep(theirs.as_fd(), name, &mut command);
        });
        restore_signals(&mask);
        forked.map(|()| Self(ours))
    }

    /// Whether the keeper has ended, and the process with it: it was killed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let mut end = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::empty())];
        // An error of the pipe is reported whatever the caller waits for.
        poll(&mut end, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Starts the process.
    pub fn begin(&self) {
        // Without a keeper it is not started, and the server continues.
        let _ = rustix::io::write(&self.0, b"b");
    }
}

/// A pipe for the standard input of a companion: the end that it reads, and the one to write to, which
/// does not block: what does not fit is refused (`WouldBlock`).
///
/// # Errors
/// `EMFILE`.
pub fn input() -> io::Result<(OwnedFd, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&write, true)?;
    Ok((read, File::from(write)))
}

/// The same that takes more, unless the system allows less: a companion that is started again finds what was written
/// meanwhile.
///
/// # Errors
/// `EMFILE`.
pub fn wide_input() -> io::Result<(OwnedFd, File)> {
    let (read, write) = input()?;
    let _ = rustix::pipe::fcntl_setpipe_size(&write, WIDE_INPUT_LEN);
    Ok((read, write))
}

/// A pipe for the standard output of a companion: the end that it writes to, and the one to read.
///
/// # Errors
/// `EMFILE`.
pub fn output() -> io::Result<(OwnedFd, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((write, File::from(read)))
}

/// Memory for the standard output of a companion, of `len` bytes, which both write and read by offsets. It cannot
/// grow: what the companion has there outlives it.
///
/// # Errors
/// `EMFILE`, `ENOMEM`.
pub fn memory(len: u64) -> io::Result<(OwnedFd, File)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = memfd_create(c"gannet-companion", flags)?;
    ftruncate(&memory, len)?;
    fcntl_add_seals(
        &memory,
        SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok((memory.try_clone()?, File::from(memory)))
}

/// Makes this the standard input or output of the calling process.
fn become_standard(pipe: &OwnedFd, number: libc::c_int) -> io::Result<()> {
    // SAFETY: the first descriptor is open, and the second one has no owner: it is only replaced.
    match unsafe { libc::dup2(pipe.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn give_up_rights(user: Option<&User>) -> io::Result<()> {
    user.map_or(Ok(()), User::become_it)?;
    forbid_privileges()
}

/// Has the process write to standard error what it writes to standard output, where the server's log may
/// be.
fn say_by_error(command: &mut Command) -> io::Result<()> {
    let error = io::stderr().as_fd().try_clone_to_owned()?;
    command.stdout(error);
    Ok(())
}

/// Has the kernel kill the calling process when its parent ends.
fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match rustix::process::getppid() == Some(parent) {
        true => Ok(()),
        // It has ended before that.
        false => Err(Errno::SRCH.into()),
    }
}

/// The keeper's life.
fn keep(server: BorrowedFd<'_>, name: &str, command: &mut Command) {
    let mut byte = [0];
    loop {
        match rustix::io::read(server, &mut byte) {
            Err(Errno::INTR) => {}
            Ok(1) => break,
            _ => return,
        }
    }
    let mut ends = 0;
    loop {
        let begun = Instant::now();
        // Who stops a service may ask all of its processes to end at once (systemd does): that of this
        // one is worth a word only if the server continues.
        let mut is_asked = false;
        let ended = match command.spawn() {
            Ok(child) => match attend(child, server) {
                Some(Ok(status)) => {
                    is_asked = status.signal() == Some(libc::SIGTERM);
                    format!("has ended ({status})")
                }
                Some(Err(error)) => format!("has ended ({})", cause(&error)),
                None => return,
            },
            Err(error) => format!("cannot be started: {}", cause(&error)),
        };
        if begun.elapsed() >= STEADY {
            ends = 0;
        }
        let pause = pause_after(ends);
        ends += 1;
        if !is_asked {
            let pause = pause.as_secs();
            log(name, &format!("{ended}; started again in {pause} s"));
        }
        let end = Instant::now() + pause;
        let mut server = [PollFd::from_borrowed_fd(server, PollFlags::IN)];
        match wait(&mut server, Some(end)) {
            Waited::InVain if is_asked => log(name, &format!("{ended}; started again now")),
            Waited::InVain => {}
            Waited::Ready | Waited::Failed => return,
        }
    }
}

/// Waits until the process has ended, and returns how; `None` if the server has, or if neither can be
/// waited for, and the process with it.
fn attend(mut child: Child, server: BorrowedFd<'_>) -> Option<io::Result<ExitStatus>> {
    let own = Pid::from_child(&child);
    // Without a descriptor of the process, its end is noticed as late as that of a pause.
    let descriptor = pidfd_open(own, PidfdFlags::empty()).ok();
    let is_left = match &descriptor {
        Some(descriptor) => {
            let mut both = [
                PollFd::from_borrowed_fd(server, PollFlags::IN),
                PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN),
            ];
            match wait(&mut both, None) {
                Waited::Ready | Waited::InVain => !both[0].revents().is_empty(),
                Waited::Failed => true,
            }
        }
        None => loop {
            let mut one = [PollFd::from_borrowed_fd(server, PollFlags::IN)];
            match wait(&mut one, Some(Instant::now() + PAUSE_LEAST)) {
                Waited::Ready | Waited::Failed => break true,
                Waited::InVain if matches!(child.try_wait(), Ok(None)) => {}
                Waited::InVain => break false,
            }
        },
    };
    if is_left {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    Some(child.wait())
}

/// How a wait has ended.
enum Waited {
    /// One of what was waited for is ready.
    Ready,
    /// The time is over.
    InVain,
    /// It is not possible. Then no request is answered: as if the server had ended.
    Failed,
}

/// Waits for any of these, or until then. After the byte that begins, the server's end has nothing but
/// its end to tell.
fn wait(all: &mut [PollFd<'_>], until: Option<Instant>) -> Waited {
    loop {
        let left = until.map(|it| it.saturating_duration_since(Instant::now()));
        let left = left.map(|it| Timespec {
            tv_sec: it.as_secs().cast_signed(),
            tv_nsec: it.subsec_nanos().into(),
        });
        match poll(all, left.as_ref()) {
            Ok(0) => return Waited::InVain,
            Ok(_) => return Waited::Ready,
            Err(Errno::INTR) => {}
            Err(_) => return Waited::Failed,
        }
    }
}

fn pause_after(ends: u32) -> Duration {
    PAUSE_LEAST
        .saturating_mul(1 << ends.min(16))
        .min(PAUSE_MOST)
}

fn log(name: &str, what: &str) {
    // Standard error may be gone.
    let _ = writeln!(io::stderr(), "gannet: {name} {what}");
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn memory_of_a_companion_has_its_length() {
        let (theirs, ours) = memory(16).expect("the system has memory");
        let theirs = File::from(theirs);
        theirs.write_all_at(&[1; 16], 0).expect("it has room");
        let mut bytes = [0; 16];
        ours.read_exact_at(&mut bytes, 0).expect("they are there");
        assert_eq!(bytes, [1; 16]);
        let denied = |result: io::Result<()>| {
            let error = result.expect_err("it has another length");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        };
        denied(theirs.write_all_at(&[1], 1 << 20));
        denied(theirs.set_len(15));
        denied(fcntl_add_seals(&theirs, SealFlags::WRITE).map_err(io::Error::from));
        assert_eq!(ours.metadata().expect("it is open").len(), 16);
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let pauses: Vec<_> = (0..12).map(|ends| pause_after(ends).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(pause_after(u32::MAX), PAUSE_MOST);
    }
}
