//! Runs the program in a sandbox that denies some system calls.

use std::path::Path;
use std::process::Command;

use crate::{left_out, program};

/// The number of `io_uring_setup`.
pub const IO_URING_SETUP: u32 = 425;
/// The number of `openat2`.
pub const OPENAT2: u32 = 437;
/// The number of `memfd_create` on this machine.
#[cfg(target_arch = "x86_64")]
pub const MEMFD_CREATE: u32 = 319;
/// The number of `memfd_create` on this machine.
#[cfg(not(target_arch = "x86_64"))]
pub const MEMFD_CREATE: u32 = 279;
/// The number of `preadv2` on this machine.
#[cfg(target_arch = "x86_64")]
pub const PREADV2: u32 = 327;
/// The number of `preadv2` on this machine.
#[cfg(not(target_arch = "x86_64"))]
pub const PREADV2: u32 = 286;

/// The number of `seccomp` on this machine.
#[cfg(target_arch = "x86_64")]
pub const SECCOMP: u32 = 317;
/// The number of `seccomp` on this machine.
#[cfg(not(target_arch = "x86_64"))]
pub const SECCOMP: u32 = 277;

/// The number of `clock_gettime` on this machine.
#[cfg(target_arch = "x86_64")]
pub const CLOCK_GETTIME: u32 = 228;
/// The number of `clock_gettime` on this machine.
#[cfg(not(target_arch = "x86_64"))]
pub const CLOCK_GETTIME: u32 = 113;

/// A script that installs a filter which answers these system calls in this way, and executes the
/// given program. `NUMBER:I=A:J=B` means calls with these values as arguments `I` and `J`, from 0.
const SCRIPT: &str = r"
import ctypes, os, struct, sys
numbers, action = sys.argv[1].split(','), int(sys.argv[2])
step = lambda code, yes, no, value: struct.pack('HBBI', code, yes, no, value)
program = b''
end = step(0x06, 0, 0, action)
for number in numbers:
    number, *values = number.split(':')
    values = [map(int, value.split('=')) for value in values]
    # Its number, then its arguments, if they matter.
    checks = [(0, int(number))] + [(16 + 8 * nth, value) for nth, value in values]
    left = 2 * len(checks)
    for offset, value in checks:
        left -= 2
        program += step(0x20, 0, 0, offset) + step(0x15, 0, left + 1, value)
    program += end
program += step(0x06, 0, 0, 0x7fff0000)
held = ctypes.create_string_buffer(program, len(program))
filter = struct.pack('@HP', len(program) // 8, ctypes.addressof(held))
filter = ctypes.create_string_buffer(filter, len(filter))
call = ctypes.CDLL(None, use_errno=True).prctl
call.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
assert call(38, 1, 0, 0, 0) == 0, 'no_new_privs'
assert call(22, 2, ctypes.addressof(filter), 0, 0) == 0, 'seccomp'
os.execv(sys.argv[3], sys.argv[3:])
";

/// The number of `setsockopt` on this machine.
#[cfg(target_arch = "x86_64")]
const SETSOCKOPT: u32 = 54;
/// The number of `setsockopt` on this machine.
#[cfg(not(target_arch = "x86_64"))]
const SETSOCKOPT: u32 = 208;

/// A command for the binary in which these system calls fail with this error. `None` if no filter
/// can be installed: the test is left out.
pub fn without(calls: &[u32], errno: i32) -> Option<Command> {
    let calls: Vec<String> = calls.iter().map(u32::to_string).collect();
    refusing(&calls.join(","), errno)
}

/// The same, and the first of these calls ends the process, as filters of service managers do.
pub fn killed_by(calls: &[u32]) -> Option<Command> {
    const KILL_PROCESS: u32 = 0x8000_0000;
    let calls: Vec<String> = calls.iter().map(u32::to_string).collect();
    filtered(&calls.join(","), KILL_PROCESS)
}

/// The same for filters that the program installs itself, with the given flags.
pub fn without_filters(flags: u32, errno: i32) -> Option<Command> {
    refusing(&format!("{SECCOMP}:1={flags}"), errno)
}

/// The same for one operation of `io_uring_register`.
pub fn without_registration(operation: u32, errno: i32) -> Option<Command> {
    const IO_URING_REGISTER: u32 = 427;
    refusing(&format!("{IO_URING_REGISTER}:1={operation}"), errno)
}

/// The same for one socket option, which cannot be set.
pub fn without_option(level: u32, option: u32, errno: i32) -> Option<Command> {
    refusing(&format!("{SETSOCKOPT}:1={level}:2={option}"), errno)
}

/// A command for the binary on a kernel as it was before Linux 6.4, in what concerns a start: without
/// `mseal`, `cachestat`, and `PR_GET_AUXV` of `prctl`; and without these calls.
pub fn before_6_4(calls: &[u32]) -> Option<Command> {
    #[cfg(target_arch = "x86_64")]
    const PRCTL: u32 = 157;
    #[cfg(not(target_arch = "x86_64"))]
    const PRCTL: u32 = 167;
    const PR_GET_AUXV: u32 = 0x4155_5856;
    const MSEAL: u32 = 462;
    const CACHESTAT: u32 = 451;
    const ENOSYS: i32 = 38;
    let mut all = format!("{PRCTL}:0={PR_GET_AUXV},{MSEAL},{CACHESTAT}");
    for call in calls {
        all.push_str(&format!(",{call}"));
    }
    refusing(&all, ENOSYS)
}

fn refusing(calls: &str, errno: i32) -> Option<Command> {
    const ERRNO: u32 = 0x5_0000;
    filtered(calls, ERRNO | errno.unsigned_abs())
}

fn filtered(calls: &str, action: u32) -> Option<Command> {
    let sandbox = |program: &Path| {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT, calls, &action.to_string()]);
        command.arg(program);
        command.current_dir("/");
        command
    };
    match sandbox(Path::new("/bin/true")).output() {
        Ok(output) if output.status.success() => Some(sandbox(&program())),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            left_out("seccomp", why.trim());
            None
        }
        Err(error) => {
            left_out("python3", error);
            None
        }
    }
}
