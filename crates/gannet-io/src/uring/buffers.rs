//! Receive buffers that the kernel picks from: one provided buffer ring per driver.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::operation::Lease;

/// The buffer group of the ring.
pub(super) const GROUP: u16 = 0;

/// The buffers and the ring that offers them.
///
/// Every buffer is either offered to the kernel or on loan; never both.
pub(super) struct Buffers {
    /// The ring of `count` entries, then (in a separate mapping) the buffers themselves.
    entries: Pages,
    bytes: Pages,
    /// A power of two.
    count: u16,
    buffer_len: u32,
    tail: u16,
    loaned: u16,
}

impl Buffers {
    /// Allocates and offers all buffers. The driver must drop the ring before the buffers.
    pub(super) fn new(uring: &IoUring, count: u16, buffer_len: u32) -> Result<Self, Errno> {
        if !count.is_power_of_two() || count > 1 << 15 || buffer_len == 0 {
            return Err(Errno::INVAL);
        }
        let entries = Pages::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let bytes = Pages::new(usize::from(count) * buffer_len as usize)?;
        let address = entries.base.as_ptr() as u64;
        // SAFETY: the ring's memory is page-aligned, holds `count` entries, and outlives the
        // registration: the driver drops the ring first.
        unsafe {
            uring
                .submitter()
                .register_buf_ring_with_flags(address, count, GROUP, 0)
        }
        .map_err(|error| {
            error
                .raw_os_error()
                .map_or(Errno::IO, Errno::from_raw_os_error)
        })?;
        let mut buffers = Self {
            entries,
            bytes,
            count,
            buffer_len,
            tail: 0,
            loaned: count,
        };
        for buffer in 0..count {
            buffers.offer(buffer);
        }
        Ok(buffers)
    }

    /// Records that the kernel has filled a buffer with `len` bytes.
    pub(super) fn loan(&mut self, buffer: u16, len: u32) -> Lease {
        assert!(
            buffer < self.count && len <= self.buffer_len,
            "a buffer of this ring"
        );
        self.loaned += 1;
        Lease {
            buffer: u32::from(buffer),
            start: 0,
            len,
        }
    }

    pub(super) fn bytes(&self, lease: &Lease) -> &[u8] {
        let in_buffer = u64::from(lease.start) + u64::from(lease.len) <= u64::from(self.buffer_len);
        assert!(lease.buffer < u32::from(self.count) && in_buffer);
        let start = self
            .start_of(lease.buffer as u16)
            .wrapping_add(lease.start as usize);
        // SAFETY: within `bytes` by the assertion; the kernel wrote these bytes (the mapping
        // initialised all of them) and leaves them alone until the buffer is offered again, which
        // takes the lease by value.
        unsafe { std::slice::from_raw_parts(start, lease.len as usize) }
    }

    pub(super) fn release(&mut self, lease: Lease) {
        self.offer(u16::try_from(lease.buffer).expect("leases name buffers of this ring"));
    }

    /// Buffers currently offered to the kernel.
    pub(super) fn offered(&self) -> u16 {
        self.count - self.loaned
    }

    /// Leaks the memory, because the kernel may still write to it.
    pub(super) fn leak(&mut self) {
        self.entries.len = 0;
        self.bytes.len = 0;
    }

    fn start_of(&self, buffer: u16) -> *mut u8 {
        let offset = usize::from(buffer) * self.buffer_len as usize;
        self.bytes.base.as_ptr().wrapping_add(offset)
    }

    fn offer(&mut self, buffer: u16) {
        assert!(
            buffer < self.count && self.loaned > 0,
            "only buffers on loan return"
        );
        let address = self.start_of(buffer) as u64;
        let base = self.entries.base.as_ptr().cast::<BufRingEntry>();
        let index = usize::from(self.tail & (self.count - 1));
        // SAFETY: `index` is below `count`, so the entry is within `entries`; the kernel does not
        // read it before the tail moves beyond it.
        let entry = unsafe { &mut *base.add(index) };
        entry.set_addr(address);
        entry.set_len(self.buffer_len);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.loaned -= 1;
        // SAFETY: `base` is the first entry of the ring, zeroed or initialised.
        let tail = unsafe { BufRingEntry::tail(base) };
        // SAFETY: the tail is an aligned `u16` within `entries`, shared with the kernel, which only
        // reads it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Anonymous memory of whole pages, huge ones if the system provides them.
struct Pages {
    base: NonNull<u8>,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let hint = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(hint, len, access, MapFlags::PRIVATE) }?;
        let pages = Self {
            base: NonNull::new(base.cast()).expect("mmap never returns null without MAP_FIXED"),
            len,
        };
        // SAFETY: the range is ours; the advice does not change its content.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxHugepage) };
        Ok(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: mapped in `new`, unmapped once, and no slice of it outlives its owner.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}
