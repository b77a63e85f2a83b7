//! Memory set aside for the moment when the process runs out of it.
//!
//! A failed allocation ends the process unless its caller handles it. If the process has a memory
//! limit, an allocator with a reserve ([`WithReserve`]) releases a block of it and tries again; the
//! server sees [`is_spent`], sheds caches and idle connections, and refills the reserve
//! ([`restore`]). The blocks are mapped and never touched: they count towards the limits
//! (`RLIMIT_AS`, `RLIMIT_DATA`) but occupy no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::process::page_size;

/// Blocks of the reserve. Each one released is a warning; after the last, an allocation that fails
/// ends the process.
const BLOCKS: usize = 8;

static RESERVE: [AtomicPtr<c_void>; BLOCKS] = [const { AtomicPtr::new(null_mut()) }; BLOCKS];

/// Length of a block, in bytes; 0 if there is no reserve.
static BLOCK_LEN: AtomicUsize = AtomicUsize::new(0);

/// A block was released and has not been replaced yet.
static IS_SPENT: AtomicBool = AtomicBool::new(false);

/// The system's allocator, with the reserve behind it.
#[derive(Debug)]
pub struct WithReserve;

// SAFETY: every call goes to the system's allocator; a retry repeats the same call.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System` requires what our caller promises.
        again(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        again(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `System`, with this layout.
        unsafe { System.dealloc(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: as above; a call that fails leaves `memory` as it is.
        again(len, || unsafe { System.realloc(memory, layout, len) })
    }
}

/// Allocates; on failure, tries again once for each block of the reserve. A request for more than
/// half of what is left of the reserve fails at once: callers that ask for so much handle failure,
/// and all others need the rest.
#[inline]
fn again(len: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    loop {
        let memory = allocate();
        if !memory.is_null() || len > left() / 2 || !give_up_one() {
            return memory;
        }
    }
}

/// Bytes of the reserve that have not been released.
#[cold]
fn left() -> usize {
    let blocks = RESERVE.iter();
    let whole = blocks.filter(|block| !block.load(Ordering::Relaxed).is_null());
    whole.count() * BLOCK_LEN.load(Ordering::Relaxed)
}

/// Whether more than half of the reserve has been released.
#[must_use]
pub fn is_low() -> bool {
    left() < BLOCKS / 2 * BLOCK_LEN.load(Ordering::Relaxed)
}

/// Whether there is a memory limit, and a reserve for it.
#[must_use]
pub fn is_kept() -> bool {
    BLOCK_LEN.load(Ordering::Relaxed) > 0
}

/// Whether a mapping of this many bytes succeeds, releasing up to half of the reserve for it: a
/// thread that cannot map its stacks ends the process.
pub(crate) fn fits(bytes: usize) -> bool {
    if !is_kept() {
        return true;
    }
    loop {
        if let Ok(start) = map(bytes) {
            // SAFETY: the mapping made just now, whose address no other thread has.
            return unsafe { rustix::mm::munmap(start, bytes) }.is_ok();
        }
        if is_low() || !give_up_one() {
            return false;
        }
    }
}

/// Maps anonymous memory that is never touched.
fn map(len: usize) -> Result<*mut c_void, Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
    unsafe { rustix::mm::mmap_anonymous(null_mut(), len, access, flags) }
}

/// Releases one block to the system. False if none is left.
#[cold]
fn give_up_one() -> bool {
    for block in &RESERVE {
        let start = block.swap(null_mut(), Ordering::AcqRel);
        if !start.is_null() {
            IS_SPENT.store(true, Ordering::Release);
            let len = BLOCK_LEN.load(Ordering::Relaxed);
            // SAFETY: our mapping, with this length, whose address no other thread has: this thread
            // took it off the list.
            return unsafe { rustix::mm::munmap(start, len) }.is_ok();
        }
    }
    false
}

/// Sets up a reserve of about this many bytes. To be called once, when the process starts. False if
/// there is no room for it.
pub fn keep(bytes: usize) -> bool {
    let len = (bytes / BLOCKS).next_multiple_of(page_size());
    BLOCK_LEN.store(len, Ordering::Relaxed);
    restore()
}

/// Prepares the C library's allocator for a memory limit: all threads share one arena, and blocks
/// of 128 KiB and more are separate mappings. Memory freed by one thread is then available to every
/// other, and [`has_room`] holds for all of them. Each further arena would also reserve 64 MiB of
/// address space. To be called before any thread starts.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the arguments are plain numbers, and no other thread allocates meanwhile.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Whether part of the reserve has been released and not been restored yet.
#[inline]
#[must_use]
pub fn is_spent() -> bool {
    IS_SPENT.load(Ordering::Acquire)
}

/// Restores the reserve. False if there is not enough room yet.
pub fn restore() -> bool {
    let len = BLOCK_LEN.load(Ordering::Relaxed);
    if len == 0 {
        return true;
    }
    for block in &RESERVE {
        if !block.load(Ordering::Acquire).is_null() {
            continue;
        }
        let Ok(start) = map(len) else {
            return false;
        };
        let before = block.compare_exchange(null_mut(), start, Ordering::AcqRel, Ordering::Acquire);
        if before.is_err() {
            // Another thread was quicker.
            // SAFETY: the mapping made above, whose address no other thread has.
            let _ = unsafe { rustix::mm::munmap(start, len) };
        }
    }
    IS_SPENT.store(false, Ordering::Release);
    true
}

/// Whether this many bytes can be allocated now, in pieces, without the reserve.
#[must_use]
pub fn has_room(bytes: usize) -> bool {
    const PIECE: usize = 16 << 10;
    let Ok(layout) = Layout::from_size_align(PIECE, 16) else {
        return false;
    };
    let mut pieces = Vec::new();
    let count = bytes.div_ceil(PIECE);
    if pieces.try_reserve_exact(count).is_err() {
        return false;
    }
    while pieces.len() < count {
        // SAFETY: the layout is not empty.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            break;
        }
        pieces.push(memory);
    }
    let has_room = pieces.len() == count;
    for memory in pieces {
        // SAFETY: it was allocated just now, with this layout.
        unsafe { System.dealloc(memory, layout) };
    }
    has_room
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// An allocation is retried once per block; after that the caller gets a null pointer.
    #[test]
    fn a_reserve_is_used_up_block_by_block_and_made_whole() {
        assert!(
            restore() && !is_spent(),
            "without a reserve nothing happens"
        );
        assert!(again(1, null_mut).is_null());
        assert!(keep(1 << 20) && !is_spent());
        let tries = Cell::new(0);
        let memory = Cell::new(0_u8);
        let third = || {
            tries.set(tries.get() + 1);
            match tries.get() {
                3 => memory.as_ptr(),
                _ => null_mut(),
            }
        };
        assert!(!again(1, third).is_null());
        assert!(is_spent());
        assert_eq!(BLOCK_LEN.load(Ordering::Relaxed) * BLOCKS, 1 << 20);
        let block = BLOCK_LEN.load(Ordering::Relaxed);
        assert_eq!(left(), (BLOCKS - 2) * block);
        let too_much = left() / 2 + 1;
        assert!(again(too_much, null_mut).is_null());
        assert_eq!(left(), (BLOCKS - 2) * block, "kept for the others");
        assert!(again(1, null_mut).is_null(), "and then it is over");
        assert_eq!(left(), 0);
        assert!(restore() && !is_spent());
        assert_eq!(left(), BLOCKS * block);
        assert!(fits(1 << 20) && !is_spent());
        assert!(!fits(usize::MAX / 2) && is_spent() && is_low());
        assert!(left() >= (BLOCKS / 2 - 1) * block, "the rest is kept");
        assert!(restore() && !is_low());
        assert!(has_room(1_000) && !has_room(usize::MAX / 2));
    }
}
