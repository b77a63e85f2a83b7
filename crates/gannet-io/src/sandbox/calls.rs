//! The system calls of each kind of thread: those of the engines, of the standard library, and of
//! the C libraries glibc and musl.

use libc::c_long;

use super::Calls;
use super::seccomp::{Condition, Test};
use crate::fixed::ENABLE_VERITY;
use crate::how;

/// The calls that are allowed with any arguments, beside those with [`conditions`].
pub(super) fn allowed(calls: Calls) -> Vec<c_long> {
    let lists: &[&[c_long]] = match calls {
        Calls::Worker { opens: false } => &[WORKERS, WORKERS_OF_OLD, OF_MUSL],
        Calls::Worker { opens: true } => &[WORKERS, WORKERS_OF_OLD, OF_MUSL, OPENS, OPENS_OF_OLD],
        Calls::Control => CONTROLS,
        Calls::Store => return [CONTROLS, &[STORES, STORES_OF_OLD]].concat().concat(),
    };
    lists.concat()
}

/// Opening by these structures alone, and in other ways without emptying the file: whatever the
/// other calls of [`Calls::Worker`] do takes a descriptor that is open for writing.
pub(super) fn only_by(hows: &[u64]) -> Vec<Condition> {
    let halves = |number: u64| ((number >> 32) as u32, number as u32);
    let (page, _) = halves(hows[0]);
    let are_together = hows.iter().all(|how| halves(*how).0 == page);
    assert!(are_together, "the structures are in one page");
    let all: Vec<u32> = hows.iter().map(|how| halves(*how).1).collect();
    let (len_high, len) = halves(how::LEN as u64);
    vec![
        when(
            libc::SYS_openat2,
            [
                Test::one_of(2, &all),
                Test::high(2, page),
                Test::one_of(3, &[len]),
                Test::high(3, len_high),
            ],
        ),
        when(libc::SYS_openat, [without(2, libc::O_TRUNC)]),
        #[cfg(target_arch = "x86_64")]
        when(libc::SYS_open, [without(1, libc::O_TRUNC)]),
    ]
}

/// The calls that are allowed with some arguments.
pub(super) fn conditions(calls: Calls) -> Vec<Condition> {
    let own = std::process::id();
    // With the other directions a listener ends, and the socket could be connected, where that is allowed.
    let directions: &[u32] = match calls {
        Calls::Store => &[libc::SHUT_WR as u32, libc::SHUT_RDWR as u32],
        Calls::Worker { .. } | Calls::Control => &[libc::SHUT_WR as u32],
    };
    let requests = match calls {
        Calls::Store => [REQUESTS, &[ENABLE_VERITY]].concat(),
        Calls::Worker { .. } | Calls::Control => REQUESTS.to_vec(),
    };
    // Never with addresses: no other process has the other end.
    let pairs = [libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32];
    vec![
        // Memory is never executable.
        when(libc::SYS_mmap, [without(2, libc::PROT_EXEC)]),
        when(libc::SYS_mprotect, [without(2, libc::PROT_EXEC)]),
        // Threads, never processes.
        when(libc::SYS_clone, [Test::masked(0, THREAD, &[THREAD])]),
        // `route` asks the kernel for interfaces. No other protocol of netlink, and no other sockets.
        when(
            libc::SYS_socket,
            [
                Test::one_of(0, &[libc::AF_NETLINK as u32]),
                Test::one_of(2, &[libc::NETLINK_ROUTE as u32]),
            ],
        ),
        when(libc::SYS_shutdown, [Test::one_of(1, directions)]),
        // Connects a TCP socket.
        when(libc::SYS_sendto, [without(3, libc::MSG_FASTOPEN)]),
        when(libc::SYS_sendmsg, [without(2, libc::MSG_FASTOPEN)]),
        when(libc::SYS_sendmmsg, [without(3, libc::MSG_FASTOPEN)]),
        when(libc::SYS_ioctl, [Test::one_of(1, &requests)]),
        when(libc::SYS_fcntl, [Test::one_of(1, COMMANDS)]),
        when(libc::SYS_prctl, [Test::one_of(0, NAMES)]),
        // Limits of this process, priorities of the calling thread, signals to own threads (for
        // `abort`): none of others.
        when(libc::SYS_prlimit64, [Test::one_of(0, &[0])]),
        when(
            libc::SYS_setpriority,
            [Test::one_of(0, &[PRIO_PROCESS]), Test::one_of(1, &[0])],
        ),
        when(libc::SYS_tgkill, [Test::one_of(0, &[own])]),
        when(libc::SYS_socketpair, [Test::masked(1, SOCKET_TYPE, &pairs)]),
    ]
}

fn when<const N: usize>(call: c_long, tests: [Test; N]) -> Condition {
    Condition {
        call,
        tests: tests.into(),
    }
}

/// None of these flags in an argument.
fn without(argument: u32, flags: libc::c_int) -> Test {
    Test::masked(argument, flags as u32, &[0])
}

/// What makes a clone a thread of this process.
const THREAD: u32 = (libc::CLONE_THREAD | libc::CLONE_VM) as u32;

/// A socket's type, without the flags beside it.
const SOCKET_TYPE: u32 = 0xf;

/// `libc` has it in the types of each C library.
const PRIO_PROCESS: u32 = 0;

/// Calls on sockets and terminals. Nothing that types into a terminal.
const REQUESTS: &[u32] = &[
    libc::FIONBIO as u32,
    libc::FIONREAD as u32,
    libc::FIOCLEX as u32,
    libc::TCGETS as u32,
    // TCGETS2, by which glibc 2.42 and later ask whether something is a terminal.
    0x802c_542a,
    libc::TIOCGWINSZ as u32,
    // SIOCOUTQ has the number of TIOCOUTQ.
    libc::TIOCOUTQ as u32,
    // SIOCOUTQNSD
    0x894b,
];

/// Commands of `fcntl`. Not who gets a file's signals.
const COMMANDS: &[u32] = &[
    libc::F_DUPFD as u32,
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_ADD_SEALS as u32,
    libc::F_GET_SEALS as u32,
];

/// Names of threads and, from the C library, of mappings.
const NAMES: &[u32] = &[
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    // PR_SET_VMA
    0x5356_4d41,
];

/// Everything on descriptors that are open, memory, threads, and time.
const WORKERS: &[c_long] = &[
    // Engines.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendfile,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Open files. `newfstatat` and `statx` take paths as well: that something exists is no secret
    // that Landlock would keep.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    CACHESTAT,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Threads, and their end.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Time, chance, and facts.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
];

/// `libc` lacks it on some platforms. Linux 6.5; the same number everywhere.
const CACHESTAT: c_long = 451;

/// Calls that only this processor has beside newer ones.
#[cfg(target_arch = "x86_64")]
const WORKERS_OF_OLD: &[c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const WORKERS_OF_OLD: &[c_long] = &[];

/// By which musl's `raise` and `abort` signal the calling thread. No filter can tell that from
/// another process's: that takes Landlock 6.
#[cfg(target_env = "musl")]
const OF_MUSL: &[c_long] = &[libc::SYS_tkill];
#[cfg(not(target_env = "musl"))]
const OF_MUSL: &[c_long] = &[];

/// Opening files; which ones is for Landlock to decide.
const OPENS: &[c_long] = &[
    libc::SYS_openat2,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
];
#[cfg(target_arch = "x86_64")]
const OPENS_OF_OLD: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OPENS_OF_OLD: &[c_long] = &[];

/// All lists of the rest of the process.
const CONTROLS: &[&[c_long]] = &[
    WORKERS,
    WORKERS_OF_OLD,
    OF_MUSL,
    OPENS,
    OPENS_OF_OLD,
    CONTROL,
    CONTROL_OF_OLD,
];

/// Those of its own.
const CONTROL: &[c_long] = &[
    libc::SYS_unlinkat,
    libc::SYS_statfs,
    libc::SYS_getcwd,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_pipe2,
    libc::SYS_epoll_create1,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getppid,
    // The C library changes the user on every thread: see `user`. Without privileges, none of them
    // leads to another one.
    libc::SYS_setgroups,
    libc::SYS_setgid,
    libc::SYS_setuid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
];
#[cfg(target_arch = "x86_64")]
const CONTROL_OF_OLD: &[c_long] = &[libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const CONTROL_OF_OLD: &[c_long] = &[];

/// Changing what is in a folder.
const STORES: &[c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_flock,
    libc::SYS_copy_file_range,
];
#[cfg(target_arch = "x86_64")]
const STORES_OF_OLD: &[c_long] = &[
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
];
#[cfg(target_arch = "aarch64")]
const STORES_OF_OLD: &[c_long] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const STORES_OF_OLD: &[c_long] = &[];
