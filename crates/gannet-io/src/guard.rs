//! Read leases: being told before somebody changes a file's bytes.
//!
//! A lease break is a signal. One thread of the process takes them all: the signals are directed
//! at that thread (`F_OWNER_TID`), so that no other thread has to block them, and it passes each
//! on to the driver that holds the guard, by its bell. The signal is a real-time one
//! (`F_SETSIG`), which carries the descriptor. When the queue of signals is full, the kernel sends
//! a plain SIGIO instead, and the thread asks every guarded descriptor for its lease.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;

use rustix::io::Errno;

use crate::driver::{File, Token};
use crate::residency::last_errno;
use crate::waker::Bell;

/// The guards of one driver.
#[derive(Debug)]
pub(crate) struct Guards {
    /// By descriptor. The clone keeps the descriptor, and with it the lease, while guarded.
    held: HashMap<RawFd, (File, Token)>,
    inbox: Arc<Inbox>,
}

/// Where the signal thread leaves what it heard for one driver.
#[derive(Debug)]
struct Inbox {
    broken: Mutex<Vec<RawFd>>,
    bell: Arc<Bell>,
}

impl Guards {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        let inbox = Inbox {
            broken: Mutex::default(),
            bell,
        };
        Self {
            held: HashMap::new(),
            inbox: Arc::new(inbox),
        }
    }

    /// Takes a lease. Errors as in [`Driver::guard`](crate::driver::Driver::guard).
    pub(crate) fn hold(&mut self, file: &File, token: Token) -> Result<(), Errno> {
        let fd = file.as_real().as_fd();
        let raw = fd.as_raw_fd();
        if let Some((_, held)) = self.held.get_mut(&raw) {
            *held = token;
            return Ok(());
        }
        let registry = Registry::of_process()?;
        // Registered first: the break may come before the call that takes the lease returns.
        registry.lock().insert(raw, Arc::clone(&self.inbox));
        if let Err(errno) = take_lease(fd, registry.thread) {
            registry.lock().remove(&raw);
            return Err(errno);
        }
        self.held.insert(raw, (file.clone(), token));
        Ok(())
    }

    /// Gives the lease back.
    pub(crate) fn end(&mut self, file: &File) {
        let fd = file.as_real().as_fd();
        if self.held.remove(&fd.as_raw_fd()).is_some() {
            forget(fd);
        }
    }

    /// Tokens of the guards that were broken since the last call.
    pub(crate) fn take_broken(&mut self) -> Vec<Token> {
        let mut broken = std::mem::take(&mut *locked(&self.inbox.broken));
        broken.sort_unstable();
        broken.dedup();
        // A signal on its way may be older than the guard that has its descriptor now.
        broken
            .iter()
            .filter_map(|raw| self.held.get(raw))
            .filter(|(file, _)| is_breaking(file.as_real().as_fd().as_raw_fd()))
            .map(|&(_, token)| token)
            .collect()
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        for (file, _) in self.held.values() {
            forget(file.as_real().as_fd());
        }
    }
}

fn forget(fd: BorrowedFd<'_>) {
    if let Ok(registry) = Registry::of_process() {
        registry.lock().remove(&fd.as_raw_fd());
    }
    // Nothing to do about an error: closing the descriptor ends the lease as well.
    let _ = lease(fd.as_raw_fd(), libc::F_UNLCK);
}

/// All guards of the process, and the thread that takes the signals.
struct Registry {
    inboxes: Mutex<HashMap<RawFd, Arc<Inbox>>>,
    thread: libc::pid_t,
}

impl Registry {
    fn of_process() -> Result<&'static Self, Errno> {
        static REGISTRY: OnceLock<Result<Registry, Errno>> = OnceLock::new();
        REGISTRY
            .get_or_init(Self::start)
            .as_ref()
            .map_err(|&errno| errno)
    }

    fn start() -> Result<Self, Errno> {
        let (tell, told) = mpsc::channel();
        thread::Builder::new()
            .name("gannet-lease".into())
            .stack_size(128 * 1024)
            .spawn(move || {
                let me = rustix::thread::gettid().as_raw_nonzero().get();
                match block_signals() {
                    Ok(signals) => {
                        if tell.send(Ok(me)).is_ok() {
                            listen(&signals);
                        }
                    }
                    // The asker is told, and nobody gets a guard.
                    Err(errno) => drop(tell.send(Err(errno))),
                }
            })
            .map_err(|_| Errno::AGAIN)?;
        let thread = told.recv().map_err(|_| Errno::AGAIN)??;
        Ok(Self {
            inboxes: Mutex::default(),
            thread,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RawFd, Arc<Inbox>>> {
        locked(&self.inboxes)
    }

    fn pass_on(inbox: &Inbox, raw: RawFd) {
        locked(&inbox.broken).push(raw);
        inbox.bell.ring();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The real-time signal of a broken lease. The first few are used by C libraries.
fn break_signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

/// Blocks the two signals in this thread, so that they wait for `sigwaitinfo`.
fn block_signals() -> Result<libc::sigset_t, Errno> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line above, which cannot fail for a valid pointer.
    let mut set = unsafe { set.assume_init() };
    for signal in [break_signal(), libc::SIGIO] {
        // SAFETY: `set` is initialised, and both signal numbers exist.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: `set` is initialised; a null pointer means that the old mask is not wanted.
    let result =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if result == 0 {
        Ok(set)
    } else {
        Err(Errno::from_raw_os_error(result))
    }
}

/// The signal thread's life: as long as the process.
fn listen(signals: &libc::sigset_t) {
    loop {
        let mut details = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `signals` is initialised; the kernel writes at most one `siginfo_t`.
        let signal = unsafe { libc::sigwaitinfo(signals, details.as_mut_ptr()) };
        if signal < 0 {
            continue;
        }
        let Ok(registry) = Registry::of_process() else {
            return;
        };
        if signal == libc::SIGIO {
            // The queue of signals was full: any number of breaks may be missing.
            for (&raw, inbox) in registry.lock().iter().filter(|&(&raw, _)| is_breaking(raw)) {
                Registry::pass_on(inbox, raw);
            }
            continue;
        }
        // SAFETY: the kernel has written it, for a signal that `F_SETSIG` and `F_SETLEASE` asked
        // for, and such a signal carries `si_fd`; all bytes it did not write are zero.
        let raw = unsafe { details.assume_init().si_fd() };
        if let Some(inbox) = registry.lock().get(&raw) {
            Registry::pass_on(inbox, raw);
        }
    }
}

/// Asks for a read lease whose breaks are signalled to `thread`.
fn take_lease(fd: BorrowedFd<'_>, thread: libc::pid_t) -> Result<(), Errno> {
    /// `struct f_owner_ex` of `fcntl.h`.
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        pid: libc::pid_t,
    }
    const F_SETOWN_EX: libc::c_int = 15;
    const F_SETSIG: libc::c_int = 10;
    const F_OWNER_TID: libc::c_int = 0;
    let raw = fd.as_raw_fd();
    // SAFETY: the descriptor is open while borrowed; `F_SETSIG` takes an int.
    check(unsafe { libc::fcntl(raw, F_SETSIG, break_signal()) })?;
    // Before the owner is set: `F_SETLEASE` makes the calling process the owner when there is none,
    // and keeps one that is there; a signal to the whole process would end it.
    let owner = Owner {
        kind: F_OWNER_TID,
        pid: thread,
    };
    // SAFETY: the kernel reads one `f_owner_ex`, which `Owner` is laid out as.
    check(unsafe { libc::fcntl(raw, F_SETOWN_EX, &raw const owner) })?;
    lease(raw, libc::F_RDLCK)
}

fn lease(raw: RawFd, kind: libc::c_int) -> Result<(), Errno> {
    // SAFETY: `F_SETLEASE` takes an int and touches no memory of ours; on a descriptor that is
    // not ours any more it could at most end a lease that only this module takes.
    check(unsafe { libc::fcntl(raw, libc::F_SETLEASE, kind) })
}

/// Whether somebody waits for the lease: then it reads as what it is to become.
fn is_breaking(raw: RawFd) -> bool {
    // SAFETY: `F_GETLEASE` takes no argument and touches no memory of ours.
    unsafe { libc::fcntl(raw, libc::F_GETLEASE) != libc::F_RDLCK }
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == -1 {
        Err(last_errno())
    } else {
        Ok(())
    }
}
