//! Guards: a writer waits until the driver has let go of the file.

mod desk;

use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use desk::{Desk, Folder, each};
use gannet_io::driver::{Done, Errno, File, Token};

/// The limit of queued signals is the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A process that empties the file and then ends.
fn truncator(path: &std::path::Path) -> Child {
    Command::new("sh")
        .args(["-c", ": > \"$0\""])
        .arg(path)
        .spawn()
        .unwrap()
}

fn guarded(desk: &mut Desk, file: &File, token: Token) -> bool {
    match desk.driver.guard(file, token) {
        Ok(()) => true,
        Err(errno) => {
            eprintln!("{}: skipped: no leases here ({errno})", desk.engine);
            false
        }
    }
}

fn check_one(desk: &mut Desk, folder: &Folder, token: Token) {
    let path = folder.file("content", b"true bytes");
    let file = File::from(std::fs::File::open(&path).unwrap());
    if !guarded(desk, &file, token) {
        return;
    }
    let mut writer = truncator(&path);
    let completion = desk.next();
    assert_eq!(completion.token, token);
    assert!(
        matches!(completion.result, Ok(Done::GuardBroken)),
        "{completion:?}"
    );
    assert_eq!(desk.driver.meta(&file).unwrap().len, 10, "the writer waits");
    assert!(writer.try_wait().unwrap().is_none());
    desk.driver.unguard(&file);
    assert!(writer.wait().unwrap().success());
    assert_eq!(desk.driver.meta(&file).unwrap().len, 0);
    // Gone: a further writer meets no guard, and no completion comes.
    assert!(truncator(&path).wait().unwrap().success());
    assert!(desk.settle().is_empty());
}

/// The guard is told before the file is truncated; the writer goes on when it ends.
#[test]
fn holds_a_writer_up() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("guard-one");
    each(|mut desk| {
        for n in 0..5 {
            check_one(&mut desk, &folder, Token(n));
        }
    });
}

/// When the kernel cannot queue the signal, the plain one in its place is understood.
#[test]
fn survives_a_full_signal_queue() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("guard-full");
    each(|mut desk| {
        let resource = rustix::process::Resource::Sigpending;
        let old = rustix::process::getrlimit(resource);
        let none = rustix::process::Rlimit {
            current: Some(0),
            ..old
        };
        rustix::process::setrlimit(resource, none).unwrap();
        check_one(&mut desk, &folder, Token(1));
        rustix::process::setrlimit(resource, old).unwrap();
    });
}

/// Many files, two drivers: each is told of its own.
#[test]
fn tells_the_right_driver() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("guard-many");
    let desks = std::cell::RefCell::new(Vec::new());
    each(|desk| desks.borrow_mut().push(desk));
    let mut desks = desks.into_inner();
    let mut held = Vec::new();
    for n in 0..20 {
        let path = folder.file(&format!("content-{n}"), b"true bytes");
        let file = File::from(std::fs::File::open(&path).unwrap());
        let owner = n % desks.len();
        if !guarded(&mut desks[owner], &file, Token(n as u64)) {
            return;
        }
        held.push((owner, path, file));
    }
    for (n, (owner, path, file)) in held.iter().enumerate().rev() {
        let mut writer = truncator(path);
        let completion = desks[*owner].next();
        assert_eq!(completion.token, Token(n as u64));
        desks[*owner].driver.unguard(file);
        assert!(writer.wait().unwrap().success());
    }
    for desk in &mut desks {
        assert!(desk.settle().is_empty());
    }
}

/// A file that somebody has open for writing cannot be guarded.
#[test]
fn refuses_what_is_being_written() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("guard-writing");
    each(|mut desk| {
        let path = folder.file("content", b"true bytes");
        let writer = std::fs::File::options().write(true).open(&path).unwrap();
        let file = File::from(std::fs::File::open(&path).unwrap());
        assert_eq!(desk.driver.guard(&file, Token(1)), Err(Errno::AGAIN));
        drop(writer);
        if guarded(&mut desk, &file, Token(1)) {
            desk.driver.unguard(&file);
        }
    });
}

/// A driver that is dropped lets its writers go.
#[test]
fn lets_go_when_dropped() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("guard-drop");
    each(|mut desk| {
        let path = folder.file("content", b"true bytes");
        let file = File::from(std::fs::File::open(&path).unwrap());
        if guarded(&mut desk, &file, Token(1)) {
            drop(desk);
            assert!(truncator(&path).wait().unwrap().success());
        }
    });
}
