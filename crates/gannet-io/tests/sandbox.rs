//! Threads in domains try what they must not do, and what they must be able to.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use gannet_io::driver::Root;
use gannet_io::named_file;
use gannet_io::sandbox::{Calls, Domain, Kernel, Reach, forbid_privileges};
use gannet_io::user::{User, is_root};
use gannet_testkit::left_out;
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use rustix::process::{DumpableBehavior, dumpable_behavior};

/// Runs this on a thread of its own in such a domain, if the kernel has all parts of it.
fn confined<T: Send + 'static>(
    reach: &Reach,
    calls: Calls,
    run: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let kernel = Kernel::look();
    if let Err(errno) = kernel.landlock {
        left_out("Landlock", errno);
        return None;
    }
    if let Err(errno) = kernel.seccomp {
        left_out("seccomp", errno);
        return None;
    }
    let domain = Domain::new(&kernel, reach, calls).expect("a domain");
    let main = move || {
        forbid_privileges().expect("every process may");
        domain.enter().expect("the kernel has all of it");
        run()
    };
    Some(thread::spawn(main).join().expect("it does not panic"))
}

fn folder(name: &str) -> PathBuf {
    let name = format!("gannet-sandbox-{}-{name}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("site")).unwrap();
    fs::write(folder.join("site/page"), "page").unwrap();
    fs::write(folder.join("secret"), "secret").unwrap();
    folder
}

#[track_caller]
fn refused<T>(result: io::Result<T>) {
    let errno = result.err().and_then(|error| error.raw_os_error());
    let refusals = [libc::EPERM, libc::EACCES];
    assert!(errno.is_some_and(|it| refusals.contains(&it)), "{errno:?}");
}

/// What no thread may do, wherever files are open to it.
fn refuses_the_rest(folder: &Path) {
    refused(fs::write(folder.join("site/new"), "x"));
    refused(fs::write(folder.join("site/page"), "x"));
    refused(File::create(folder.join("new")));
    refused(fs::rename(folder.join("secret"), folder.join("moved")));
    refused(fs::create_dir(folder.join("made")));
    refused(fs::remove_file(folder.join("site/page")));
    refused(symlink("/", folder.join("link")));
    refused(TcpListener::bind("127.0.0.1:0"));
    refused(TcpStream::connect("127.0.0.1:9"));
    refused(std::net::UdpSocket::bind("127.0.0.1:0"));
    refused(UnixStream::connect("/run/socket"));
    refused(UnixDatagram::pair());
    // Firewalls and other processes' sockets (NETLINK_NETFILTER, NETLINK_SOCK_DIAG); interfaces are
    // allowed.
    for (protocol, is_allowed) in [(12, false), (4, false), (0, true)] {
        let made = raw(
            libc::SYS_socket,
            [libc::AF_NETLINK, libc::SOCK_RAW, protocol],
        );
        assert_eq!(made.is_ok(), is_allowed, "{protocol}: {made:?}");
        if !is_allowed {
            refused(made);
        }
    }
    // Other processes.
    let other = std::os::unix::process::parent_id() as i32;
    refused(raw(libc::SYS_tgkill, [other, other, 0]));
    refused(raw(libc::SYS_setpriority, [0, other, 19]));
    refused(raw(libc::SYS_fcntl, [2, libc::F_SETOWN, other]));
    refused(Command::new("/bin/true").spawn());
    // Executable memory.
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::EXEC;
    assert_eq!(map(access), Err(Errno::PERM));
}

#[test]
fn a_worker_of_archives_reaches_nothing_but_what_is_open() {
    let folder = folder("archive");
    let mut open = File::open(folder.join("site/page")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = thread::spawn(move || {
        let mut answer = String::new();
        let stream = TcpStream::connect(address);
        stream.unwrap().read_to_string(&mut answer).unwrap();
        answer
    });
    let inner = folder.clone();
    let calls = Calls::Worker { opens: false };
    let ran = confined(&Reach::default(), calls, move || {
        refused(File::open(inner.join("site/page")));
        refused(fs::read_dir(inner.join("site")));
        refused(File::open("/proc/self/maps"));
        refuses_the_rest(&inner);
        // A thread started here is confined as well.
        let same = inner.clone();
        thread::spawn(move || refused(File::open(same.join("site/page"))))
            .join()
            .unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(text.as_bytes()).unwrap();
    });
    match ran {
        Some(()) => assert_eq!(client.join().unwrap(), "page"),
        None => drop(TcpStream::connect(address)),
    }
    fs::remove_dir_all(folder).unwrap();
}

/// A listener that stopped being one could be connected, by the first data sent.
#[test]
fn no_socket_that_is_open_can_be_connected() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = target.local_addr().unwrap();
    for calls in [Calls::Worker { opens: false }, Calls::Control] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        confined(&Reach::default(), calls, move || {
            for how in [Shutdown::Read, Shutdown::Both] {
                refused(rustix::net::shutdown(&listener, how).map_err(Into::into));
            }
            let flags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
            let sent = rustix::net::sendto(&listener, b"x", flags, &to);
            refused(sent.map_err(Into::into));
            let none = &mut SendAncillaryBuffer::default();
            let bytes = [IoSlice::new(b"x")];
            let sent = rustix::net::sendmsg_addr(&listener, &to, &bytes, none, flags);
            refused(sent.map_err(Into::into));
            refused(TcpStream::connect(to));
            // What the engines do.
            assert!(rustix::net::shutdown(&listener, Shutdown::Write).is_ok());
        });
    }
    target.set_nonblocking(true).unwrap();
    assert_eq!(
        target.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

#[test]
fn a_worker_of_directories_reads_them_and_nothing_else() {
    let folder = folder("directory");
    symlink("../secret", folder.join("site/out")).unwrap();
    let reach = Reach {
        read: vec![folder.join("site"), folder.join("not-there")],
        ..Reach::default()
    };
    let inner = folder.clone();
    confined(&reach, Calls::Worker { opens: true }, move || {
        assert_eq!(fs::read(inner.join("site/page")).unwrap(), b"page");
        assert!(fs::read_dir(inner.join("site")).unwrap().count() >= 2);
        refused(File::open(inner.join("secret")));
        refused(File::open(inner.join("site/out")));
        refused(File::open("/proc/self/exe"));
        refuses_the_rest(&inner);
    });
    fs::remove_dir_all(folder).unwrap();
}

/// Wherever the user may write. Landlock lets workers empty what they can read, where their filter
/// lets them open files by structures alone that cannot be changed.
#[test]
fn a_worker_of_directories_empties_no_file_that_it_reads() {
    // Before, nobody can be kept from it: see decision 16.
    if let Ok(version @ ..3) = Kernel::look().landlock {
        return left_out("a kernel with Landlock 3", version);
    }
    let folder = folder("emptied");
    let page = folder.join("site/page");
    let root = Root::open(&folder.join("site")).unwrap();
    let reach = Reach {
        read: vec![folder.join("site")],
        ..Reach::default()
    };
    let inner = page.clone();
    confined(&reach, Calls::Worker { opens: true }, move || {
        let path = CString::new(inner.as_os_str().as_bytes()).unwrap();
        let at = path.as_ptr();
        for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_ACCMODE] {
            let flags = access | libc::O_TRUNC | libc::O_CLOEXEC;
            let how = [flags as u64, 0, 0];
            // SAFETY: the path ends with a zero, and `how` is a whole `open_how`.
            let opened = unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    libc::AT_FDCWD,
                    at,
                    &how,
                    size_of_val(&how),
                )
            };
            refused(result(opened));
            // SAFETY: the path ends with a zero.
            refused(result(unsafe {
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, at, flags)
            }));
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the path ends with a zero.
            refused(result(unsafe { libc::syscall(libc::SYS_open, at, flags) }));
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the path ends with a zero.
        refused(result(unsafe { libc::syscall(libc::SYS_creat, at, 0o600) }));
        // SAFETY: the path ends with a zero.
        refused(result(unsafe { libc::syscall(libc::SYS_truncate, at, 0) }));
        // What the engines do.
        let file = named_file::open_below(&root, Path::new("page")).unwrap();
        assert!(file.set_len(0).is_err(), "it is open for reading");
        assert_eq!(io::read_to_string(file).unwrap(), "page");
        assert_eq!(root.names(Path::new("")).unwrap().len(), 1);
    });
    assert_eq!(fs::read(page).unwrap(), b"page");
    fs::remove_dir_all(folder).unwrap();
}

/// A link that is swapped all the time between a file inside and one outside.
#[test]
fn a_race_of_links_leads_nowhere() {
    let folder = folder("race");
    let reach = Reach {
        read: vec![folder.join("site")],
        ..Reach::default()
    };
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let swapped = folder.clone();
    symlink("page", folder.join("site/link")).unwrap();
    let swaps = thread::spawn(move || {
        let (link, new) = (swapped.join("site/link"), swapped.join("site/new-link"));
        let mut targets = ["../secret", "page"].into_iter().cycle();
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            symlink(targets.next().unwrap(), &new).unwrap();
            fs::rename(&new, &link).unwrap();
        }
    });
    let inner = folder.clone();
    confined(&reach, Calls::Worker { opens: true }, move || {
        let mut seen = [0; 2];
        // Until both have been met, and often enough for a race.
        while seen.iter().sum::<i32>() < 20_000 || seen.contains(&0) {
            match fs::read(inner.join("site/link")) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"page");
                    seen[0] += 1;
                }
                error => {
                    refused(error);
                    seen[1] += 1;
                }
            }
        }
    });
    drop(stop);
    swaps.join().unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_control_thread_writes_and_removes_only_where_it_may() {
    let folder = folder("control");
    fs::create_dir(folder.join("logs")).unwrap();
    fs::create_dir(folder.join("sockets")).unwrap();
    fs::write(folder.join("sockets/one"), "").unwrap();
    let reach = Reach {
        read: vec![folder.join("site")],
        write: vec![folder.join("logs")],
        remove: vec![folder.join("sockets")],
        ..Reach::default()
    };
    let inner = folder.clone();
    confined(&reach, Calls::Control, move || {
        fs::write(inner.join("logs/new"), "line").unwrap();
        fs::remove_file(inner.join("sockets/one")).unwrap();
        refused(fs::remove_file(inner.join("logs/new")));
        refused(File::create(inner.join("sockets/new")));
        refused(File::open(inner.join("secret")));
        refuses_the_rest(&inner);
    });
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_process_that_writes_a_store_changes_that_alone_and_connects_to_nothing() {
    let folder = folder("store");
    fs::create_dir(folder.join("store")).unwrap();
    let reach = Reach {
        read: vec![folder.join("site")],
        change: vec![folder.join("store")],
        ..Reach::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let inner = folder.clone();
    confined(&reach, Calls::Store, move || {
        let store = inner.join("store");
        fs::create_dir(store.join("log")).unwrap();
        fs::write(store.join("log/.new"), "pointer").unwrap();
        fs::hard_link(store.join("log/.new"), store.join("log/1")).unwrap();
        fs::rename(store.join("log/.new"), store.join("log/2")).unwrap();
        fs::remove_file(store.join("log/2")).unwrap();
        let file = File::open(store.join("log/1")).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        // Landlock says that these are other file systems.
        fs::hard_link(inner.join("secret"), store.join("log/3")).unwrap_err();
        fs::rename(store.join("log/1"), inner.join("site/1")).unwrap_err();
        refused(File::open(inner.join("secret")));
        let (stream, _) = listener.accept().unwrap();
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        refuses_the_rest(&inner);
    });
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    fs::remove_dir_all(folder).unwrap();
}

/// What the C library and the standard library do by themselves still works.
#[test]
fn a_confined_thread_can_still_start_threads_panic_and_allocate() {
    confined(&Reach::default(), Calls::Worker { opens: false }, || {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                thread::Builder::new()
                    .name(format!("inner-{n}"))
                    .spawn(move || vec![n as u8; 8 << 20].len())
                    .unwrap()
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), 8 << 20);
        }
        let own = std::process::id() as i32;
        assert!(raw(libc::SYS_tgkill, [own, own, 0]).is_ok());
        // Down, which every process may.
        assert!(raw(libc::SYS_setpriority, [0, 0, 19]).is_ok());
        // TCGETS2, by which glibc 2.42 asks whether something is a terminal. It fails before
        // anything is written.
        let file = rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let asked = raw(
            libc::SYS_ioctl,
            [file.as_raw_fd(), 0x802c_542a_u32 as i32, 0],
        );
        assert_eq!(asked.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        let panic = thread::spawn(|| std::panic::resume_unwind(Box::new("on purpose")));
        assert!(panic.join().is_err());
        thread::park_timeout(std::time::Duration::from_nanos(1));
        assert!(thread::available_parallelism().is_ok());
    });
}

/// A call that takes numbers alone.
fn raw(call: libc::c_long, numbers: [libc::c_int; 3]) -> io::Result<libc::c_long> {
    let [one, two, three] = numbers;
    // SAFETY: the callers' calls read and write no memory of this process.
    result(unsafe { libc::syscall(call, one, two, three) })
}

fn result(returned: libc::c_long) -> io::Result<libc::c_long> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn map(access: rustix::mm::ProtFlags) -> Result<(), Errno> {
    let flags = rustix::mm::MapFlags::PRIVATE;
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing uses.
    unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, access, flags) }.map(drop)
}

/// A thread that acts as another user leaves a process that cannot be dumped so, whatever the machine's setting.
#[test]
fn to_act_as_a_user_makes_no_process_dumpable() {
    if !is_root() {
        return left_out("root", "only root can become another user");
    }
    let setting = fs::read_to_string("/proc/sys/fs/suid_dumpable").unwrap();
    if setting.trim() != "1" {
        return left_out("fs.suid_dumpable=1", format!("it is {}", setting.trim()));
    }
    let user = User::find("65534", Some("65534")).unwrap();
    let main = move || {
        forbid_privileges().expect("every process may");
        let meanwhile = user.act(dumpable_behavior).expect("root may");
        (meanwhile, dumpable_behavior())
    };
    let (meanwhile, after) = thread::spawn(main).join().expect("it does not panic");
    assert_eq!(meanwhile, Ok(DumpableBehavior::NotDumpable));
    assert_eq!(after, Ok(DumpableBehavior::NotDumpable));
}
