//! Filters of system calls: classic BPF programs, which the kernel runs for each call (seccomp(2)).
//!
//! ```text
//!  another processor's call ─▶ the process ends
//!  a call with conditions   ─▶ allowed if its arguments meet them, else EPERM
//!  any other of the list    ─▶ allowed, without running the program since Linux 5.11
//!  unknown to this program  ─▶ ENOSYS, so that the C library falls back to an older call
//!  the rest                 ─▶ EPERM
//! ```

use std::io;

use libc::sock_filter;
use rustix::io::Errno;

use super::{Calls, calls};
use crate::residency::last_errno;

/// A condition on a call: it passes all of these tests.
pub(super) struct Condition {
    pub(super) call: libc::c_long,
    pub(super) tests: Vec<Test>,
}

/// An argument, masked, has one of these values. Of an argument the low 32 bits are compared, all that
/// the kernel looks at in most, or the high ones.
pub(super) struct Test {
    /// Where it is in `struct seccomp_data`.
    offset: u32,
    mask: u32,
    values: Vec<u32>,
}

impl Test {
    /// The argument of this index has one of these values.
    pub(super) fn one_of(argument: u32, values: &[u32]) -> Self {
        Self::masked(argument, u32::MAX, values)
    }

    /// The same for the bits of a mask.
    pub(super) fn masked(argument: u32, mask: u32, values: &[u32]) -> Self {
        Self {
            offset: ARGUMENTS + 8 * argument,
            mask,
            values: values.to_vec(),
        }
    }

    /// The high 32 bits of the argument of this index are these: both architectures have the low
    /// ones first.
    pub(super) fn high(argument: u32, value: u32) -> Self {
        Self {
            offset: ARGUMENTS + 8 * argument + 4,
            mask: u32::MAX,
            values: vec![value],
        }
    }

    /// Continues after these instructions if it passes, else refuses.
    fn instructions(&self, refused: u32) -> Vec<sock_filter> {
        let mut program = vec![step(LOAD, self.offset)];
        if self.mask != u32::MAX {
            program.push(step(AND, self.mask));
        }
        let mut left = u8::try_from(self.values.len()).expect("tests have few values");
        for value in &self.values {
            // Over the rest of the values, and the refusal.
            program.push(compare(IF_EQUAL, *value, left, 0));
            left -= 1;
        }
        program.push(step(RETURN, refused));
        program
    }
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

/// What a refused call fails with.
const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// What a call fails with that is to be taken for a missing one.
const MISSING: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// A program.
pub(super) struct Filter {
    program: Vec<sock_filter>,
    is_logged: bool,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} instructions)", self.program.len())
    }
}

impl Filter {
    /// Allows these calls and no others. Refusals go to the kernel's log.
    ///
    /// It leaves `clone3` to [`Filter::without_clone3`]. Where these addresses of `open_how`
    /// structures are given, files are opened by them alone: see [`how`](crate::how).
    pub(super) fn new(calls: Calls, hows: Option<&[u64]>) -> Self {
        let mut conditions = hows.map_or_else(Vec::new, calls::only_by);
        conditions.extend(calls::conditions(calls));
        let program = program(&conditions, &calls::allowed(calls));
        Self {
            program,
            is_logged: true,
        }
    }

    /// Lets `clone3` fail as on a kernel without it, and nothing else. The C library makes threads
    /// by that where it exists; its flags are in memory, which no filter can see, those of `clone`
    /// are not. As each new thread would, this logs nothing.
    pub(super) fn without_clone3() -> Self {
        Self {
            program: vec![
                step(LOAD, NUMBER),
                compare(IF_EQUAL, libc::SYS_clone3 as u32, 0, 1),
                step(RETURN, MISSING),
                step(RETURN, libc::SECCOMP_RET_ALLOW),
            ],
            is_logged: false,
        }
    }

    /// One that the kernel refuses, as it has no instructions.
    #[cfg(test)]
    pub(super) fn refused() -> Self {
        Self {
            program: Vec::new(),
            is_logged: false,
        }
    }

    /// Has the kernel run this for each call of the calling thread.
    pub(super) fn enter(&self) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: u16::try_from(self.program.len()).expect("the lists are short"),
            filter: self.program.as_ptr().cast_mut(),
        };
        // Nothing here runs code of others, so the kernel need not slow the thread down for the sake
        // of speculation.
        let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW
            | match self.is_logged {
                true => libc::SECCOMP_FILTER_FLAG_LOG,
                false => 0,
            };
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

fn program(conditions: &[Condition], allowed: &[libc::c_long]) -> Vec<sock_filter> {
    let allow = libc::SECCOMP_RET_ALLOW;
    let mut program = vec![
        step(LOAD, ARCH),
        compare(IF_EQUAL, ARCHITECTURE.unwrap_or_default(), 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, NUMBER),
    ];
    for condition in conditions {
        let tests = condition.tests.iter();
        let tests: Vec<_> = tests.flat_map(|it| it.instructions(REFUSED)).collect();
        let len = u8::try_from(tests.len() + 1).expect("conditions have few tests");
        program.push(compare(IF_EQUAL, condition.call as u32, 0, len));
        program.extend(tests);
        program.push(step(RETURN, allow));
    }
    // `without_clone3` refuses it.
    for call in allowed.iter().chain(&[libc::SYS_clone3]) {
        program.push(compare(IF_EQUAL, *call as u32, 0, 1));
        program.push(step(RETURN, allow));
    }
    program.extend([
        compare(IF_AT_LEAST, UNKNOWN, 0, 1),
        step(RETURN, MISSING),
        step(RETURN, REFUSED),
    ]);
    program
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
