//! How memory is allocated and returned: tables grow in small steps, and free memory of the heap is
//! returned to the system.
//!
//! The C library's allocator keeps freed memory unless it is at the very end of the heap: one small
//! block there, and the peak left by a crowd of connections stays for good.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::reserve;

/// Makes room in a table with one entry per connection, if it is full: an eighth more. The usual
/// doubling could need a quarter of all memory, at the very moment when memory runs out.
pub fn grow<T>(table: &mut Vec<T>) {
    if table.len() == table.capacity() {
        table.reserve_exact((table.len() / 8).max(64));
    }
}

/// A thread is trimming already.
static IS_GIVING: AtomicBool = AtomicBool::new(false);

/// The stack of that thread, in bytes.
const STACK: usize = 64 << 10;

/// Starts a thread that returns the pages of the heap that no block needs. A worker calls it when
/// many of its connections have ended, and the thread that follows releases when it has freed one.
/// Threads that allocate meanwhile may wait for the heap's
/// lock, about 0.1 s for each gigabyte returned. Does nothing under a memory limit: that bounds
/// what is kept, and there may be no room for a thread. False if such a thread is running already.
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

/// Bytes that stay at the end of each heap, for the next allocations.
#[cfg(target_env = "gnu")]
const KEPT: usize = 1 << 20;

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: the argument is a plain number; the allocator locks whatever it inspects.
    unsafe {
        libc::malloc_trim(KEPT);
    }
}

/// Other allocators return memory by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}
