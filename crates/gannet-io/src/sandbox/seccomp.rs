//! Filters of system calls: classic BPF programs, which the kernel runs for each call (seccomp(2)).
//!
//! ```text
//!  another processor's call ─▶ the process ends
//!  a call with conditions   ─▶ allowed if its argument meets them, else EPERM
//!  any other of the list    ─▶ allowed, without running the program since Linux 5.11
//!  unknown to this program  ─▶ ENOSYS, so that the C library falls back to an older call
//!  the rest                 ─▶ EPERM
//! ```

use std::io;

use libc::sock_filter;
use rustix::io::Errno;

use super::{Calls, calls};
use crate::residency::last_errno;

/// A condition on a call: its argument of this index, masked, has one of these values. Only the low
/// 32 bits are compared, all that the kernel looks at in the arguments concerned.
pub(super) struct Condition {
    pub(super) call: libc::c_long,
    pub(super) argument: u32,
    pub(super) mask: u32,
    pub(super) values: &'static [u32],
}

/// The architecture's number (`linux/audit.h`): ELF machine, 64 bits, little-endian.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

// The offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

// Instructions: load a word, and, compare, return (`linux/bpf_common.h`).
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The first number that no list here was made with: Linux 6.18 has 470 calls.
const UNKNOWN: u32 = 470;

/// Whether the kernel filters calls, with all that [`Filter`] needs.
pub(super) fn check() -> Result<(), Errno> {
    if ARCHITECTURE.is_none() {
        return Err(Errno::NOSYS);
    }
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: for this operation the kernel reads one number.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0_u32,
            &raw const action,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// A program.
pub(super) struct Filter(Vec<sock_filter>);

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} instructions)", self.0.len())
    }
}

impl Filter {
    /// Allows these calls and no others.
    pub(super) fn new(calls: Calls) -> Self {
        Self::of(&calls::conditions(calls), &calls::allowed(calls))
    }

    fn of(conditions: &[Condition], allowed: &[libc::c_long]) -> Self {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let missing = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        let allow = libc::SECCOMP_RET_ALLOW;
        let mut program = vec![
            step(LOAD, ARCH),
            compare(IF_EQUAL, ARCHITECTURE.unwrap_or_default(), 1, 0),
            step(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
            step(LOAD, NUMBER),
        ];
        for condition in conditions {
            let values = condition.values;
            // Load, mask, two for each value, and the refusal.
            let len = 3 + 2 * values.len();
            let len = u8::try_from(len).expect("conditions have few values");
            program.push(compare(IF_EQUAL, condition.call as u32, 0, len));
            program.push(step(LOAD, ARGUMENTS + 8 * condition.argument));
            program.push(step(AND, condition.mask));
            for value in values {
                program.push(compare(IF_EQUAL, *value, 0, 1));
                program.push(step(RETURN, allow));
            }
            program.push(step(RETURN, refused));
        }
        for call in allowed {
            program.push(compare(IF_EQUAL, *call as u32, 0, 1));
            program.push(step(RETURN, allow));
        }
        // The C library makes a thread by `clone3` only where that exists; its flags are in memory,
        // which no filter can see, those of `clone` are not.
        program.extend([
            compare(IF_EQUAL, libc::SYS_clone3 as u32, 0, 1),
            step(RETURN, missing),
            compare(IF_AT_LEAST, UNKNOWN, 0, 1),
            step(RETURN, missing),
            step(RETURN, refused),
        ]);
        Self(program)
    }

    /// Has the kernel run this for each call of the calling thread.
    pub(super) fn enter(&self) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: u16::try_from(self.0.len()).expect("the lists are short"),
            filter: self.0.as_ptr().cast_mut(),
        };
        // Refused calls go to the kernel's log. Nothing here runs code of others, so the kernel need
        // not slow the thread down for the sake of speculation.
        let flags = libc::SECCOMP_FILTER_FLAG_LOG | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        // SAFETY: the kernel reads the program, which outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(last_errno().into()),
        }
    }
}

fn step(code: u16, value: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k: value,
    }
}

/// Compares, and skips `yes` or `no` instructions.
fn compare(code: u16, value: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter {
        code,
        jt: yes,
        jf: no,
        k: value,
    }
}
