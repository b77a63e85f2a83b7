//! How memory is taken and given back: tables grow in small steps, and free memory of the heap goes
//! back to the system.
//!
//! The C library's allocator keeps what is freed unless it is at the very end of the heap: one small
//! block there, and a crowd that has gone leaves its peak behind for good.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::reserve;

/// Makes room in a table with an entry for each connection, if it is full: an eighth more. The usual
/// doubling may be a quarter of all memory, at the moment when that runs out.
pub fn grow<T>(table: &mut Vec<T>) {
    if table.len() == table.capacity() {
        table.reserve_exact((table.len() / 8).max(64));
    }
}

/// A thread is giving back already.
static IS_GIVING: AtomicBool = AtomicBool::new(false);

/// The stack of that thread, in bytes.
const STACK: usize = 64 << 10;

/// Has a thread of its own give back the pages that no block of the heap needs. A worker calls it when
/// many of its connections have ended. Who allocates meanwhile may wait for the heap's lock, some
/// 0.1 s for each gigabyte given back. Under a limit of memory nothing happens: that bounds what is kept,
/// and there may be no room for a thread. False if such a thread runs already.
pub fn give_back() -> bool {
    if reserve::is_kept() {
        return true;
    }
    if IS_GIVING.swap(true, Ordering::AcqRel) {
        return false;
    }
    let thread = thread::Builder::new().name("heap".into());
    let started = thread.stack_size(STACK).spawn(|| {
        trim();
        IS_GIVING.store(false, Ordering::Release);
    });
    if started.is_err() {
        IS_GIVING.store(false, Ordering::Release);
    }
    true
}

/// Bytes that stay at the end of each heap, for what comes next.
#[cfg(target_env = "gnu")]
const KEPT: usize = 1 << 20;

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it is given a number; the allocator locks what it looks at.
    unsafe {
        libc::malloc_trim(KEPT);
    }
}

/// Other allocators give back by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}
