//! The ring itself: setting it up, submitting entries, entering the kernel, reaping completions.

use std::collections::VecDeque;
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr;

use io_uring::register::Restriction;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::limits::COMPLETIONS_MIN;
use crate::residency::last_errno;
use crate::unavailable::Unavailable;

/// A set-up ring. Belongs to the thread that made it (`IORING_SETUP_SINGLE_ISSUER`).
pub(super) struct Ring {
    uring: IoUring,
    /// The ring's index among the thread's registered rings: saves a descriptor look-up per enter.
    registered: Option<u32>,
    /// Entries that found the queue full even after a flush: at most a few per socket.
    backlog: VecDeque<squeue::Entry>,
    /// Whether the kernel took the ring without the indirection array (Linux 6.6).
    pub(super) is_direct: bool,
    /// Whether it takes only the operations in [`OPERATIONS`]; if not though that was wanted, why.
    pub(super) restricted: Option<Result<(), Errno>>,
    pub(super) enters: u64,
    pub(super) submissions: u64,
    pub(super) queue_full: u64,
    pub(super) overflows: u64,
}

// From `linux/io_uring.h`; the crate does not export them.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RingUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// How many completions are copied from the queue at a time.
pub(super) const BATCH: usize = 32;

impl Ring {
    /// A ring that does not run before [`start`](Self::start).
    pub(super) fn new(entries: u32, completions: u32) -> Result<Self, Unavailable> {
        let (uring, is_direct) = build_with_memory(entries, completions)
            .map_err(|errno| Unavailable::explain("io_uring_setup", errno))?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(Unavailable::explain("io_uring features", Errno::INVAL));
        }
        // None of our operations should need worker threads; if one does, a few suffice.
        let _ = uring.submitter().register_iowq_max_workers(&mut [4, 4]);
        let registered = register(&uring);
        Ok(Self {
            uring,
            registered,
            backlog: VecDeque::new(),
            is_direct,
            restricted: None,
            enters: 0,
            submissions: 0,
            queue_full: 0,
            overflows: 0,
        })
    }

    /// Lets the ring run, after everything was registered with it. A restricted one takes no other
    /// operations than ours from then on, and no registrations: neither files nor restrictions.
    pub(super) fn start(&mut self, restricts: bool) -> Result<(), Errno> {
        let submitter = self.uring.submitter();
        if restricts {
            self.restricted = Some(
                submitter
                    .register_restrictions(&mut restrictions())
                    .map_err(errno),
            );
        }
        submitter.register_enable_rings().map_err(errno)
    }

    pub(super) fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    pub(super) fn uring(&self) -> &IoUring {
        &self.uring
    }

    /// Queues an entry; flushes the queue first if it is full.
    ///
    /// # Safety
    /// All memory that the entry names must stay valid, and not be accessed in conflict with the
    /// operation, until its last completion has been reaped.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        self.submissions += 1;
        if self.backlog.is_empty() {
            // SAFETY: passed on to our caller.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.queue_full += 1;
            // The next wait meets an error again, and reports it.
            let _ = self.enter(0, None);
            // SAFETY: passed on to our caller.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Moves entries that found the queue full into it, in order.
    fn push_backlog(&mut self) {
        let mut queue = self.uring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the caller of `push` guaranteed its condition for every entry of the backlog.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Submits what is queued, runs deferred work, waits for `want` completions or `timeout`.
    ///
    /// # Errors
    /// Only if the ring cannot continue at all.
    pub(super) fn enter(&mut self, want: u32, timeout: Option<Timespec>) -> Result<(), Errno> {
        self.enters += 1;
        if !self.backlog.is_empty() {
            self.push_backlog();
        }
        let queued = {
            let queue = self.uring.submission();
            if queue.cq_overflow() {
                self.overflows += 1;
            }
            queue.len() as u32
        };
        let (fd, mut flags) = match self.registered {
            Some(index) => (index as i32, ENTER_GETEVENTS | ENTER_REGISTERED_RING),
            None => (self.uring.as_raw_fd(), ENTER_GETEVENTS),
        };
        let args = timeout
            .as_ref()
            .map(|timeout| SubmitArgs::new().timespec(timeout));
        let (arg, arg_len) = match &args {
            Some(args) => {
                flags |= ENTER_EXT_ARG;
                (
                    ptr::from_ref(args).cast::<libc::c_void>(),
                    size_of::<SubmitArgs<'_, '_>>(),
                )
            }
            None => (ptr::null(), 0),
        };
        // SAFETY: the descriptor or index is that of our ring, on its own thread; `arg` is null or
        // points to a `SubmitArgs` (laid out as `io_uring_getevents_arg`) that lives until after
        // the call, as does the `Timespec` in it. The condition of `push` keeps valid whatever the
        // queued entries name.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                queued,
                want,
                flags,
                arg,
                arg_len,
            )
        };
        if result >= 0 {
            return Ok(());
        }
        match last_errno() {
            // The time is up; a signal arrived; the kernel is short of memory for requests; its
            // list of overflown completions has to be emptied first. In all cases: reap, and enter
            // again.
            Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY => Ok(()),
            errno => Err(errno),
        }
    }

    pub(super) fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Takes some completions out of the queue.
    pub(super) fn reap<'a>(
        &mut self,
        room: &'a mut [MaybeUninit<cqueue::Entry>; BATCH],
    ) -> &'a mut [cqueue::Entry] {
        self.uring.completion().fill(room)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(index) = self.registered {
            let update = RingUpdate {
                offset: index,
                reserved: 0,
                data: 0,
            };
            // SAFETY: the kernel reads one `io_uring_rsrc_update`. On another thread, where the
            // index is not ours, the table is that thread's own and the call fails or ends a
            // registration that this crate never shares between threads; rings are dropped by the
            // thread that created them.
            let _ = unsafe { ring_register(&self.uring, UNREGISTER_RING_FDS, &update) };
        }
    }
}

/// Lengths of the completion queue to try, longest first, while the kernel has no memory for it.
fn lengths(most: u32) -> impl Iterator<Item = u32> {
    iter::successors(Some(most), |len| {
        Some(len / 2).filter(|half| *half >= COMPLETIONS_MIN)
    })
}

/// Sets the ring up, if need be with fewer completions. Returns it and whether it is direct.
fn build_with_memory(entries: u32, completions: u32) -> Result<(IoUring, bool), Errno> {
    let mut built = Err(Errno::NOMEM);
    for completions in lengths(completions) {
        built = build_for_kernel(entries, completions);
        if !matches!(built, Err(Errno::NOMEM)) {
            break;
        }
    }
    built
}

/// The same with exactly these sizes.
fn build_for_kernel(entries: u32, completions: u32) -> Result<(IoUring, bool), Errno> {
    match build(entries, completions, true) {
        // Before Linux 6.6.
        Err(Errno::INVAL) => build(entries, completions, false).map(|uring| (uring, false)),
        built => built.map(|uring| (uring, true)),
    }
}

fn build(entries: u32, completions: u32, direct: bool) -> Result<IoUring, Errno> {
    let mut builder = IoUring::builder();
    builder
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_r_disabled()
        .setup_cqsize(completions.max(entries))
        .setup_clamp();
    if direct {
        builder.setup_no_sqarray();
    }
    builder.build(entries).map_err(errno)
}

/// All operations that the engine submits.
const OPERATIONS: [u8; 7] = [
    opcode::PollAdd::CODE,
    opcode::AcceptMulti::CODE,
    opcode::Recv::CODE,
    opcode::RecvMsgMulti::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
    opcode::AsyncCancel2::CODE,
];

fn restrictions() -> Vec<Restriction> {
    let flags = squeue::Flags::BUFFER_SELECT | squeue::Flags::SKIP_SUCCESS;
    let others = [
        Restriction::sqe_flags_allowed(flags.bits()),
        // The ring's end: see `Drop`.
        Restriction::register_op(UNREGISTER_RING_FDS as u8),
    ];
    let operations = OPERATIONS.into_iter().map(Restriction::sqe_op);
    operations.chain(others).collect()
}

fn errno(error: std::io::Error) -> Errno {
    error
        .raw_os_error()
        .map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Registers the ring with its thread; `None` if the kernel cannot (before Linux 5.18).
fn register(uring: &IoUring) -> Option<u32> {
    let fd = u64::try_from(uring.as_raw_fd()).ok()?;
    let update = RingUpdate {
        offset: u32::MAX,
        reserved: 0,
        data: fd,
    };
    // SAFETY: the kernel reads one `io_uring_rsrc_update` and writes the index into it.
    unsafe { ring_register(uring, REGISTER_RING_FDS, &update) }
}

/// # Safety
/// `opcode` must be one that takes one `io_uring_rsrc_update`.
unsafe fn ring_register(uring: &IoUring, opcode: libc::c_uint, update: &RingUpdate) -> Option<u32> {
    let mut update = RingUpdate { ..*update };
    let fd = uring.as_raw_fd();
    // SAFETY: `update` is one of the structures that the opcode takes, alive during the call.
    let result =
        unsafe { libc::syscall(libc::SYS_io_uring_register, fd, opcode, &raw mut update, 1) };
    (result == 1).then_some(update.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of an operation that the engine never submits.
    fn foreign(restricts: bool) -> Option<i32> {
        let mut ring = Ring::new(8, 8).ok()?;
        ring.start(restricts).unwrap();
        if ring
            .restricted
            .is_some_and(|restricted| restricted.is_err())
        {
            return None;
        }
        // SAFETY: the operation names no memory.
        unsafe { ring.push(opcode::Nop::new().build()) };
        ring.enter(1, None).unwrap();
        let mut room = [const { MaybeUninit::uninit() }; BATCH];
        ring.reap(&mut room).first().map(cqueue::Entry::result)
    }

    #[test]
    fn a_ring_has_fewer_completions_before_it_has_none() {
        let all = |most| lengths(most).collect::<Vec<_>>();
        assert_eq!(all(16_384), [16_384, 8_192, 4_096, 2_048]);
        assert_eq!(all(2_048), [2_048]);
        // Asked for so few, it has no fewer.
        assert_eq!(all(8), [8]);
    }

    #[test]
    fn a_restricted_ring_takes_no_foreign_operations() {
        let Some(result) = foreign(false) else {
            return gannet_testkit::left_out("io_uring", "no ring can be set up");
        };
        assert_eq!(result, 0);
        match foreign(true) {
            None => gannet_testkit::left_out("ring restrictions", "the kernel refuses them"),
            Some(result) => assert_eq!(result, -libc::EACCES),
        }
    }
}
