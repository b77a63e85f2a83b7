//! Opening, reading and listing below a root.

mod desk;

use std::fs::FileTimes;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use desk::{Desk, Folder, each, pattern};
use gannet_io::driver::{
    DirectoryEntry, Done, Errno, FileKind, KeepName, OpenedFile, Render, Root, Started, Survey,
    Token,
};
use gannet_io::links::Outside;
use gannet_io::lookups::Lookups;
use gannet_testkit::{DEADLINE, left_out};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Runs the body on every engine, with each way to resolve paths below the folder.
fn each_way(folder: &Path, body: impl Fn(Desk, &Root, Lookups)) {
    for lookups in [Lookups::Kernel, Lookups::Walk] {
        each(|desk| {
            let root = Root::open_by(folder, &Outside::default(), lookups).unwrap();
            body(desk, &root, lookups);
        });
    }
}

fn open(desk: &mut Desk, root: &Root, path: &str) -> Result<OpenedFile, Errno> {
    match desk.driver.open(root, path.as_bytes(), Token(1)) {
        Started::Now(result) => result,
        Started::Pending => {
            let completion = desk.next();
            assert_eq!(completion.token, Token(1));
            match completion.result? {
                Done::Opened(opened) => Ok(opened),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn read(desk: &mut Desk, opened: &OpenedFile, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    match desk.driver.read(&opened.file, offset, len, Token(2)) {
        Started::Now(result) => result,
        Started::Pending => match desk.next().result? {
            Done::Read(bytes) => Ok(bytes),
            other => panic!("{other:?}"),
        },
    }
}

fn list(
    desk: &mut Desk,
    root: &Root,
    path: &str,
    max: usize,
) -> Result<(Vec<DirectoryEntry>, bool), Errno> {
    let (sender, entries) = mpsc::channel();
    let render = Render::new(move |entries, is_partial| {
        sender.send((entries, is_partial)).unwrap();
        b"rendered".to_vec()
    });
    let started = desk
        .driver
        .list(root, path.as_bytes(), (max, true), render, Token(3));
    let listed = match started {
        Started::Now(result) => result?,
        Started::Pending => match desk.next().result? {
            Done::Listed(listed) => listed,
            other => panic!("{other:?}"),
        },
    };
    assert_eq!(listed.rendered, b"rendered");
    let opened = open(desk, root, path)?;
    assert_eq!(listed.meta, opened.meta, "the directory's own");
    Ok(entries.recv().unwrap())
}

/// A copy has the first bytes of the file, and nothing can change it.
#[test]
fn copies_what_nobody_can_change() {
    let folder = Folder::new("open-copy");
    let content = pattern(1_000_000);
    let path = folder.path().join("file");
    std::fs::write(&path, &content).unwrap();
    let root = Root::open(folder.path()).unwrap();
    each(|mut desk| {
        std::fs::write(&path, &content).unwrap();
        let opened = open(&mut desk, &root, "file").unwrap();
        let mut copy = |range| {
            let started = desk.driver.copy(&opened.file, range, Token(4));
            assert!(matches!(started, Started::Pending), "on a helper thread");
            match desk.next().result? {
                Done::Copied(file) => Ok::<_, Errno>(file),
                other => panic!("{other:?}"),
            }
        };
        for beyond in [0..1_000_001, 1_000_000..1_000_001, 2_000_000..2_000_001] {
            assert_eq!(copy(beyond).unwrap_err(), Errno::NODATA);
        }
        let ranges = [0..1_000_000, 0..300_001, 5_001..400_000, 0..0];
        let copies = ranges.map(|range| (copy(range.start as u64..range.end as u64), range));
        std::fs::write(&path, "other").unwrap();
        for (copy, range) in copies {
            let file = copy.unwrap();
            let meta = desk.driver.meta(&file).unwrap();
            assert_eq!(meta.len, range.len() as u64);
            let opened = OpenedFile {
                file,
                meta,
                content: Vec::new(),
            };
            assert!(read(&mut desk, &opened, 0, 1_000_001).unwrap() == content[range.clone()]);
            assert_eq!(opened.file.sealed_memory().is_some(), !range.is_empty());
        }
    });
}

/// A vector that was given back is read into again, and has the bytes of the new file alone.
#[test]
fn a_short_file_after_a_long_one_has_its_own_bytes() {
    let folder = Folder::new("open-reuse");
    let (long, short) = (pattern(20_000), b"short");
    std::fs::write(folder.path().join("long"), &long).unwrap();
    std::fs::write(folder.path().join("short"), short).unwrap();
    let root = Root::open(folder.path()).unwrap();
    each(|mut desk| {
        let opened = ["long", "short"].map(|name| open(&mut desk, &root, name).unwrap());
        let bytes = read(&mut desk, &opened[0], 0, long.len()).unwrap();
        assert!(bytes == long);
        let memory = bytes.as_ptr();
        desk.driver.give_back(bytes);
        let bytes = read(&mut desk, &opened[1], 0, 100).unwrap();
        assert_eq!(bytes, short);
        assert_eq!(bytes.as_ptr(), memory, "the same memory");
    });
}

/// Reading leaves the time of the last access alone where the file is the user's own. Others are read all the
/// same.
#[test]
fn access_times_stay_as_they_are() {
    let folder = Folder::new("open-access-time");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let path = |name: &str| folder.path().join(name);
    let accessed = |name: &str| std::fs::metadata(path(name)).unwrap().accessed().unwrap();
    for name in ["own", "foreign"] {
        let file = std::fs::File::create(path(name)).unwrap();
        std::io::Write::write_all(&mut &file, b"content").unwrap();
        let times = FileTimes::new().set_accessed(long_ago);
        file.set_times(times.set_modified(SystemTime::now()))
            .unwrap();
    }
    let is_root = rustix::process::geteuid().is_root();
    match is_root {
        true => chown(path("foreign"), Some(65_534), None).unwrap(),
        false => left_out("files of other users", "only root makes them"),
    }
    let tried = || {
        if is_root {
            // Of root's rights, a server keeps only those to read.
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::FOWNER;
            set_capabilities(None, sets).unwrap();
        }
        each_way(folder.path(), |mut desk, root, _| {
            for name in ["own", "foreign"] {
                let opened = open(&mut desk, root, name).unwrap();
                assert_eq!(read(&mut desk, &opened, 0, 10).unwrap(), b"content");
            }
            assert_eq!(accessed("own"), long_ago);
        });
    };
    std::thread::scope(|scope| scope.spawn(tried).join().unwrap());
}

/// Files and directories open, with the metadata of their descriptor.
#[test]
fn opens_files_and_directories() {
    let folder = Folder::new("open-plain");
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    let content = pattern(100_000);
    std::fs::write(folder.path().join("a/b/file"), &content).unwrap();
    each_way(folder.path(), |mut desk, root, lookups| {
        let opened = open(&mut desk, root, "a/b/file").unwrap();
        let expected = std::fs::metadata(folder.path().join("a/b/file")).unwrap();
        assert_eq!(opened.meta.kind, FileKind::Regular);
        assert_eq!(opened.meta.len, 100_000);
        let mtime = std::os::unix::fs::MetadataExt::mtime(&expected);
        assert_eq!(
            opened.meta.mtime_ns.div_euclid(1_000_000_000),
            i128::from(mtime)
        );
        assert_eq!(
            opened.meta.identity.1,
            std::os::unix::fs::MetadataExt::ino(&expected)
        );
        assert_eq!(desk.driver.meta(&opened.file), Ok(opened.meta));
        // Only the kernel can tell what it has cached.
        let is_seen = lookups == Lookups::Kernel;
        let seen = desk.driver.peek(root, b"a/b/file");
        assert_eq!(seen, is_seen.then_some(opened.meta));
        assert_eq!(desk.driver.peek(root, b"a/b/absent"), None);
        assert!(read(&mut desk, &opened, 0, 100_000).unwrap() == content);
        assert!(read(&mut desk, &opened, 99_990, 50).unwrap() == content[99_990..]);
        assert!(read(&mut desk, &opened, 200_000, 50).unwrap().is_empty());
        assert_eq!(
            open(&mut desk, root, "a").unwrap().meta.kind,
            FileKind::Directory
        );
        assert_eq!(
            open(&mut desk, root, "a/").unwrap().meta.kind,
            FileKind::Directory
        );
        assert_eq!(
            open(&mut desk, root, "").unwrap().meta.kind,
            FileKind::Directory
        );
        assert_eq!(open(&mut desk, root, "absent").unwrap_err(), Errno::NOENT);
        assert_eq!(
            open(&mut desk, root, "a/b/file/x").unwrap_err(),
            Errno::NOTDIR
        );
        assert_eq!(
            open(&mut desk, root, "a/b/file/").unwrap_err(),
            Errno::NOTDIR
        );
        let long = "x".repeat(300);
        assert_eq!(
            open(&mut desk, root, &long).unwrap_err(),
            Errno::NAMETOOLONG
        );
    });
}

/// Nothing outside of the root is reachable, by any path.
#[test]
fn refuses_to_leave_the_root() {
    let outside = Folder::new("open-outside");
    outside.file("secret", b"secret");
    let folder = Folder::new("open-inside");
    let inside = folder.path();
    std::fs::create_dir(inside.join("sub")).unwrap();
    std::fs::write(inside.join("file"), b"file").unwrap();
    symlink("../file", inside.join("sub/good")).unwrap();
    symlink("sub", inside.join("good-folder")).unwrap();
    symlink(outside.path().join("secret"), inside.join("absolute")).unwrap();
    symlink(inside.join("file"), inside.join("absolute-inside")).unwrap();
    let name = outside.path().file_name().unwrap();
    symlink(
        Path::new("..").join(name).join("secret"),
        inside.join("relative"),
    )
    .unwrap();
    symlink(outside.path(), inside.join("folder")).unwrap();
    symlink("/proc/self/root", inside.join("magic")).unwrap();
    symlink("loop", inside.join("loop")).unwrap();
    for count in 1..=41 {
        let target = match count {
            1 => "file".to_owned(),
            _ => format!("chain-{}", count - 1),
        };
        symlink(target, inside.join(format!("chain-{count}"))).unwrap();
    }
    each_way(inside, |mut desk, root, _| {
        for path in [
            "sub/good",
            "good-folder/good",
            "good-folder/../file",
            "absolute-inside",
        ] {
            let opened = open(&mut desk, root, path).unwrap();
            assert_eq!(read(&mut desk, &opened, 0, 10).unwrap(), b"file", "{path}");
            // Following a link may set its access time, and `..` may race with a rename elsewhere:
            // then the kernel cannot answer without waiting.
            if let Some(seen) = desk.driver.peek(root, path.as_bytes()) {
                assert_eq!(seen, opened.meta, "{path}");
            }
        }
        let refused = [
            "absolute",
            "relative",
            "folder/secret",
            "..",
            "sub/../../x",
            "/",
        ];
        for path in refused {
            assert_eq!(
                open(&mut desk, root, path).unwrap_err(),
                Errno::XDEV,
                "{path}"
            );
            assert_eq!(desk.driver.peek(root, path.as_bytes()), None, "{path}");
        }
        for path in ["magic/etc/passwd", "magic"] {
            let errno = open(&mut desk, root, path).unwrap_err();
            assert!(
                matches!(errno, Errno::XDEV | Errno::LOOP),
                "{path}: {errno:?}"
            );
        }
        for path in ["loop", "loop/file", "chain-41"] {
            assert_eq!(
                open(&mut desk, root, path).unwrap_err(),
                Errno::LOOP,
                "{path}"
            );
        }
        assert!(open(&mut desk, root, "chain-40").is_ok());
        let long = "sub/../".repeat(585);
        assert!(open(&mut desk, root, &long[..4094]).is_ok());
        assert_eq!(
            open(&mut desk, root, &format!("{long}.")).unwrap_err(),
            Errno::NAMETOOLONG
        );
        assert!(open(&mut desk, root, "file\0x").is_err());
    });
}

/// Absolute links, and those that climb out, lead below the root again, or into a folder outside of it that
/// was named; by the paths of these as they were named, and by those without links.
#[test]
fn links_lead_back_and_where_they_may() {
    let place = Folder::new("open-targets");
    let at = |name: &str| place.path().join(name);
    for folder in ["releases/7/a/b", "shared/inner", "other"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    for file in [
        "releases/7/a/file",
        "releases/7/a/b/file",
        "shared/inner/file",
    ] {
        std::fs::write(at(file), file).unwrap();
    }
    std::fs::write(at("other/file"), "secret").unwrap();
    std::fs::write(at("secret"), "secret").unwrap();
    symlink("releases/7", at("current")).unwrap();
    symlink("shared", at("alias")).unwrap();
    symlink("../../other", at("shared/inner/away")).unwrap();
    symlink("../../current/a/file", at("shared/inner/back")).unwrap();
    let link = |target: &Path, name: &str| symlink(target, at("releases/7").join(name)).unwrap();
    for (name, target) in [
        ("own", at("current/a/file")),
        ("real", at("releases/7/a/file")),
        ("folder", at("current/a")),
        ("slash", at("current/a/")),
        ("root", at("current")),
        ("chain", at("current/own")),
        ("within", at("current/folder/b/../file")),
        ("doubled", Path::new("/").join(at("current//./a/file"))),
        ("up", "../7/a/file".into()),
        ("a/b/up", "../../../7/a/file".into()),
        ("shared", at("shared/inner")),
        ("alias", at("alias/inner/file")),
        ("near", "../../shared/inner/file".into()),
        ("loop", at("current/loop")),
        ("out", at("secret")),
        ("out-near", "../../secret".into()),
        ("out-folder", at("other")),
        ("sibling", at("releases/8/a/file")),
        ("prefix", at("current-not/a/file")),
        ("winding", at("other/../current/a/file")),
        ("above", place.path().to_owned()),
        ("everything", "/".into()),
        ("file-slash", at("current/a/file/")),
    ] {
        link(&target, name);
    }
    let file = "releases/7/a/file";
    let (deep, shared) = ("releases/7/a/b/file", "shared/inner/file");
    for lookups in [Lookups::Kernel, Lookups::Walk] {
        for is_named in [false, true] {
            let named: &[_] = if is_named { &[at("alias")] } else { &[] };
            let outside = Outside::new(named);
            let root = Root::open_by(&at("current"), &outside, lookups).unwrap();
            let of_named = |path: &'static str| if is_named { Ok(path) } else { Err(Errno::XDEV) };
            each(|mut desk| {
                for (path, expect) in [
                    ("own", Ok(file)),
                    ("real", Ok(file)),
                    ("folder/file", Ok(file)),
                    ("folder/b/file", Ok(deep)),
                    ("slash/b/file", Ok(deep)),
                    ("root/root/a/file", Ok(file)),
                    ("chain", Ok(file)),
                    ("within", Ok(file)),
                    ("doubled", Ok(file)),
                    ("up", Ok(file)),
                    ("folder/b/up", Ok(file)),
                    ("shared/file", of_named(shared)),
                    ("alias", of_named(shared)),
                    ("near", of_named(shared)),
                    ("shared/back", of_named(file)),
                    ("shared/away/file", Err(Errno::XDEV)),
                    ("loop", Err(Errno::LOOP)),
                    ("out", Err(Errno::XDEV)),
                    ("out-near", Err(Errno::XDEV)),
                    ("out-folder/file", Err(Errno::XDEV)),
                    ("sibling", Err(Errno::XDEV)),
                    ("prefix", Err(Errno::XDEV)),
                    ("winding", Err(Errno::XDEV)),
                    ("above/secret", Err(Errno::XDEV)),
                    ("everything/etc/passwd", Err(Errno::XDEV)),
                    ("file-slash", Err(Errno::NOTDIR)),
                    ("folder/../../../secret", Err(Errno::XDEV)),
                    ("root/../../secret", Err(Errno::XDEV)),
                ] {
                    let opened = open(&mut desk, &root, path);
                    let found = opened.and_then(|opened| read(&mut desk, &opened, 0, 100));
                    let expect = expect.map(|content| content.as_bytes().to_vec());
                    assert_eq!(found, expect, "{path}, {lookups:?}, {is_named}");
                }
                let names = |path: &str, desk: &mut Desk| {
                    let (entries, _) = list(desk, &root, path, 100).unwrap();
                    let names = entries.into_iter().map(|it| it.name);
                    names.collect::<std::collections::BTreeSet<_>>()
                };
                let all = names("", &mut desk);
                assert!(all.contains(&b"own"[..]) && !all.contains(&b"out"[..]));
                assert_eq!(all.contains(&b"shared"[..]), is_named);
                assert_eq!(names("folder", &mut desk).len(), 2);
            });
            // What is in the root above is outside of one below.
            let below = root.open_below(Path::new("a/b")).unwrap();
            each(|mut desk| {
                let opened = open(&mut desk, &below, "up");
                assert_eq!(opened.map(drop), Err(Errno::XDEV));
            });
        }
    }
    let no_folder = Outside::new(&[at("shared"), at("secret")]);
    let (path, error) = no_folder.check().unwrap_err();
    assert_eq!(path, at("secret"));
    assert_eq!(error.kind(), std::io::ErrorKind::NotADirectory);
}

/// A link is swapped all the time between targets inside, in a named folder, and outside; so are the folders
/// themselves.
#[test]
fn swapped_absolute_links_never_leak() {
    let place = Folder::new("open-targets-swap");
    let at = |name: &str| place.path().join(name);
    for folder in ["site/d", "shared/d", "outside/d"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    for (file, content) in [
        ("site", "public"),
        ("shared", "public"),
        ("outside", "secret"),
    ] {
        std::fs::write(at(file).join("d/file"), content).unwrap();
    }
    for (name, target) in [("0", "site/d"), ("1", "outside/d"), ("2", "shared/d")] {
        symlink(at(target), at("site").join(name)).unwrap();
    }
    symlink("../outside/d", at("site/3")).unwrap();
    symlink(at("outside/d"), at("shared/evil")).unwrap();
    let outside = Outside::new(&[at("shared")]);
    for lookups in [Lookups::Kernel, Lookups::Walk] {
        let root = Root::open_by(&at("site"), &outside, lookups).unwrap();
        each(|mut desk| {
            let is_over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let exchange = |one: &str, other: &str| {
                        let flags = rustix::fs::RenameFlags::EXCHANGE;
                        let (cwd, other) = (rustix::fs::CWD, at(other));
                        rustix::fs::renameat_with(cwd, at(one), cwd, other, flags).unwrap();
                    };
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        for other in ["site/1", "site/2", "site/3"] {
                            exchange("site/0", other);
                        }
                        exchange("shared/d", "shared/evil");
                        exchange("shared/d", "shared/evil");
                    }
                });
                let (mut tried_count, mut opened_count) = (0, 0);
                let start = Instant::now();
                // On a busy machine the other thread may rest where the link leads outside.
                let is_unlucky = |opened| opened == 0 && start.elapsed() < DEADLINE;
                while tried_count < 5000 || is_unlucky(opened_count) {
                    tried_count += 1;
                    if let Ok(opened) = open(&mut desk, &root, "0/file") {
                        opened_count += 1;
                        assert_eq!(read(&mut desk, &opened, 0, 10).unwrap(), b"public");
                    }
                }
                is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                assert!(opened_count > 0);
            });
        });
    }
}

/// FIFOs, sockets and devices are recognised at once, and not opened.
#[test]
fn does_not_block_on_special_files() {
    let folder = Folder::new("open-special");
    let fifo = folder.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Bound where the path is short enough for a socket, then moved.
    let short = std::env::temp_dir().join(format!("gannet-open-{}", std::process::id()));
    let _listener = UnixListener::bind(&short).unwrap();
    let mut special = vec!["fifo"];
    if std::fs::rename(&short, folder.path().join("socket")).is_ok() {
        special.push("socket");
    } else {
        std::fs::remove_file(&short).unwrap();
        left_out(
            "a socket",
            "the temporary directory is on another file system",
        );
    }
    let zero = rustix::fs::makedev(1, 5);
    let device = folder.path().join("device");
    let kind = rustix::fs::FileType::CharacterDevice;
    match rustix::fs::mknodat(rustix::fs::CWD, &device, kind, mode, zero) {
        Ok(()) => special.push("device"),
        Err(errno) => left_out("device files", errno),
    }
    each_way(folder.path(), |mut desk, root, _| {
        for path in &special {
            let opened = open(&mut desk, root, path).unwrap();
            assert_eq!(opened.meta.kind, FileKind::Other, "{path}");
            assert!(
                read(&mut desk, &opened, 0, 10).is_err(),
                "{path} is not readable"
            );
        }
    });
}

/// A listing has the entries of the directory, links followed inside the root, others left out.
#[test]
fn lists_directories() {
    let folder = Folder::new("open-list");
    let path = folder.path();
    std::fs::create_dir(path.join("sub")).unwrap();
    std::fs::write(path.join("sub/file"), b"12345").unwrap();
    std::fs::create_dir(path.join("sub/folder")).unwrap();
    symlink("file", path.join("sub/link")).unwrap();
    symlink("/etc/passwd", path.join("sub/outside")).unwrap();
    symlink("absent", path.join("sub/broken")).unwrap();
    each_way(path, |mut desk, root, _| {
        let (mut entries, is_partial) = list(&mut desk, root, "sub", 100).unwrap();
        assert!(!is_partial);
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| (&*entry.name, entry.kind, entry.len))
            .collect();
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert_eq!(seen[0], (b"file".as_slice(), FileKind::Regular, 5));
        assert_eq!(
            (seen[1].0, seen[1].1),
            (b"folder".as_slice(), FileKind::Directory)
        );
        assert_eq!(seen[2], (b"link".as_slice(), FileKind::Regular, 5));
        assert_eq!(list(&mut desk, root, "", 1).unwrap().0.len(), 1);
        assert!(!list(&mut desk, root, "", 1).unwrap().1);
        let (some, is_partial) = list(&mut desk, root, "sub", 2).unwrap();
        assert_eq!((some.len(), is_partial), (2, true));
        assert_eq!(
            list(&mut desk, root, "absent", 2).unwrap_err(),
            Errno::NOENT
        );
        assert_eq!(
            list(&mut desk, root, "sub/file", 2).unwrap_err(),
            Errno::NOTDIR
        );
    });
}

/// A path that is constantly swapped with a link out of the root never leaks.
#[test]
fn swapped_links_never_leak() {
    let outside = Folder::new("open-swap-outside");
    std::fs::create_dir(outside.path().join("d")).unwrap();
    std::fs::write(outside.path().join("d/file"), b"secret").unwrap();
    let folder = Folder::new("open-swap");
    let path = folder.path().to_owned();
    std::fs::create_dir(path.join("real")).unwrap();
    std::fs::write(path.join("real/file"), b"public").unwrap();
    symlink(outside.path().join("d"), path.join("evil")).unwrap();
    each_way(&path, |mut desk, root, _| {
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (d, real, evil) = (path.join("d"), path.join("real"), path.join("evil"));
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for other in [&real, &evil] {
                        std::fs::rename(other, &d).unwrap();
                        std::fs::rename(&d, other).unwrap();
                    }
                }
            });
            let mut opened_count = 0;
            for _ in 0..5000 {
                if let Ok(opened) = open(&mut desk, root, "d/file") {
                    opened_count += 1;
                    assert_eq!(read(&mut desk, &opened, 0, 10).unwrap(), b"public");
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            eprintln!("{}: {opened_count} of 5000 opened", desk.engine);
        });
    });
}

fn survey(desk: &mut Desk, root: &Root, path: &str, max: usize) -> Result<Survey, Errno> {
    // Keeps the length of names that have a dot.
    let keep: KeepName = |name| name.contains(&b'.').then_some(name.len() as u64);
    match desk
        .driver
        .survey(root, path.as_bytes(), (max, keep), Token(4))
    {
        Started::Now(result) => result,
        Started::Pending => match desk.next().result? {
            Done::Surveyed(survey) => Ok(survey),
            other => panic!("{other:?}"),
        },
    }
}

/// The names of a folder as far as they are asked for, and whether opening them may have effects.
#[test]
fn surveys_names() {
    let folder = Folder::new("survey");
    for name in ["a.gz", "b", "c.html"] {
        std::fs::write(folder.path().join(name), "x").unwrap();
    }
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let root = Root::open(folder.path()).unwrap();
    each(|mut desk| {
        let found = survey(&mut desk, &root, "", 10).unwrap();
        let mut kept = found.kept.clone();
        kept.sort_unstable();
        assert_eq!((kept, found.count), (vec![4, 6], 4));
        assert!(found.is_whole && found.is_plain);
        assert_eq!(Some(found.meta), desk.driver.peek(&root, b""));
        let part = survey(&mut desk, &root, "", 3).unwrap();
        assert_eq!((part.count, part.is_whole), (3, false));
        assert_eq!(survey(&mut desk, &root, "b", 3), Err(Errno::NOTDIR));
        assert_eq!(survey(&mut desk, &root, "missing", 3), Err(Errno::NOENT));
        for (path, kind) in [("b", FileKind::Regular), ("d", FileKind::Directory)] {
            let opened = desk.driver.open_plain(&root, path.as_bytes(), 0, Token(1));
            let Started::Now(Ok(opened)) = opened else {
                panic!("{opened:?}")
            };
            assert_eq!(opened.meta.kind, kind);
        }
    });
    symlink("b", folder.path().join("link")).unwrap();
    each(|mut desk| assert!(!survey(&mut desk, &root, "", 10).unwrap().is_plain));
}

/// A file that is short enough is read when it is opened, and whatever else took its place is not.
#[test]
fn reads_short_files_ahead() {
    let folder = Folder::new("ahead");
    let names = [
        ("short", 2_000),
        ("exact", 4_000),
        ("long", 4_001),
        ("empty", 0),
    ];
    for (name, len) in names {
        std::fs::write(folder.path().join(name), pattern(len)).unwrap();
    }
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let root = Root::open(folder.path()).unwrap();
    each(|mut desk| {
        let mut open = |name: &str, ahead| {
            let opened = desk
                .driver
                .open_plain(&root, name.as_bytes(), ahead, Token(1));
            match opened {
                Started::Now(opened) => opened.unwrap(),
                Started::Pending => panic!("all is in memory"),
            }
        };
        for (name, len) in names {
            let opened = open(name, 4_000);
            assert_eq!(opened.meta.len, len as u64);
            let expected = if len > 4_000 {
                Vec::new()
            } else {
                pattern(len)
            };
            assert!(opened.content == expected, "{name}");
            assert!(opened.content.capacity() <= 2 * 4_000, "{name}");
            assert!(open(name, 0).content.is_empty(), "{name}");
        }
        for (name, kind) in [("folder", FileKind::Directory), ("fifo", FileKind::Other)] {
            let opened = open(name, 4_000);
            assert_eq!((opened.meta.kind, opened.content.len()), (kind, 0));
        }
    });
}
