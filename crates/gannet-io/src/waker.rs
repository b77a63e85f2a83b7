//! Waking a driver from another thread, through an eventfd.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::EventfdFlags;

/// Wakes a driver from another thread.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<WakerInner>);

impl Waker {
    /// Makes the driver's `wait` return with `Done::Woken`. Several calls may become one.
    pub fn wake(&self) {
        self.0.wake();
    }
}

/// What a [`Waker`] holds.
#[derive(Debug)]
pub(crate) enum WakerInner {
    /// A driver of a real kernel.
    Bell(Arc<Bell>),
    /// The simulator checks the flag in its `wait`.
    Flag(Arc<AtomicBool>),
}

impl WakerInner {
    pub(crate) fn wake(&self) {
        match self {
            Self::Bell(bell) => {
                bell.woken.store(true, Ordering::Release);
                bell.ring();
            }
            Self::Flag(flag) => flag.store(true, Ordering::Release),
        }
    }
}

/// An eventfd that a driver watches; helper threads and wakers ring it.
#[derive(Debug)]
pub(crate) struct Bell {
    eventfd: OwnedFd,
    /// Rung and not yet heard: further rings need no system call.
    rung: AtomicBool,
    /// Rung by a waker, and not only by a helper thread with an answer.
    woken: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = rustix::event::eventfd(0, flags)?;
        Ok(Self {
            eventfd,
            rung: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        })
    }

    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Cannot fail: the counter is at most 1, and a write of 8 bytes is always whole.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// To be called when the eventfd is readable, before checking what the ringers left: a ring
    /// after this call makes it readable again. Returns whether a waker rang.
    pub(crate) fn hear(&self) -> bool {
        let mut counter = [0; 8];
        // EAGAIN if another reader was faster: nothing to do.
        let _ = rustix::io::read(&self.eventfd, &mut counter);
        // A swap, not a store: it has to observe what the last ringer wrote before it rang.
        self.rung.swap(false, Ordering::AcqRel);
        self.woken.swap(false, Ordering::AcqRel)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
