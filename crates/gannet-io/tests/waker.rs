//! Waking a driver from another thread, waiting with a limit, and probing for the ring.

mod desk;

use desk::{each, in_child};
use gannet_io::driver::{Done, Errno, Nanos, Token};
use gannet_io::options::EngineOptions;
use gannet_io::probe;

/// Wakes from many threads end a wait without a limit, as often as needed.
#[test]
fn wakes_from_other_threads() {
    each(|mut desk| {
        let waker = desk.driver.waker(Token(42));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let waker = waker.clone();
                std::thread::spawn(move || (0..100).for_each(|_| waker.wake()))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let mut out = Vec::new();
        for _ in 0..3 {
            waker.wake();
            while out.is_empty() {
                desk.driver.wait(None, &mut out).unwrap();
            }
            for completion in out.drain(..) {
                assert_eq!(completion.token, Token(42));
                assert!(
                    matches!(completion.result, Ok(Done::Woken)),
                    "{completion:?}"
                );
            }
        }
    });
}

/// A wait ends at its limit, not before, with nothing; the clock has advanced.
#[test]
fn waits_until_its_limit() {
    each(|mut desk| {
        let mut out = Vec::new();
        desk.driver.wait(Some(Nanos(0)), &mut out).unwrap();
        let until = Nanos(desk.driver.now().0 + 3_000_000);
        while desk.driver.now() < until {
            desk.driver.wait(Some(until), &mut out).unwrap();
        }
        assert!(out.is_empty());
        let real = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        assert!(desk.driver.unix_seconds().abs_diff(real.as_secs() as i64) <= 2);
        assert!(desk.driver.counters().enters > 0);
        assert!(!desk.driver.report().name.is_empty());
    });
}

/// A sandbox that forbids io_uring is recognised and explained, whichever error it returns.
#[test]
fn explains_a_forbidden_ring() {
    const NAME: &str = "explains_a_forbidden_ring";
    let Ok(mark) = std::env::var("GANNET_TEST_CHILD") else {
        for (errno, word) in [(libc::EPERM, "EPERM"), (libc::ENOSYS, "ENOSYS")] {
            let output = in_child(NAME, &errno.to_string());
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}");
            assert!(text.contains(word) && text.contains("seccomp"), "{text}");
        }
        return;
    };
    let errno: i32 = mark.parse().unwrap();
    forbid_io_uring(errno);
    let why = probe::check(&EngineOptions::default()).unwrap_err();
    assert_eq!(why.errno, Errno::from_raw_os_error(errno));
    assert!(why.help.is_some());
    println!("{why}");
}

/// A seccomp filter like those of container runtimes: `io_uring_setup` fails with the given error.
fn forbid_io_uring(errno: i32) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        statement(LOAD_WORD, 0, 0, 0),
        statement(JUMP_IF_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        statement(RETURN, 0, 0, ERRNO | errno as u32),
        statement(RETURN, 0, 0, ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    rustix::thread::set_no_new_privs(true).unwrap();
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel copies the program, which is alive during the call.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// On this kernel, the probe succeeds or says why not.
#[test]
fn probes_this_kernel() {
    match probe::check(&EngineOptions::default()) {
        Ok(()) => {}
        Err(why) => assert!(!why.why.is_empty(), "{why:?}"),
    }
    let odd = EngineOptions {
        buffers: 3,
        ..EngineOptions::default()
    };
    assert!(
        probe::check(&odd).is_err(),
        "the number of buffers is a power of two"
    );
}
