//! Watches folders: what has been made, changed, replaced or removed in them.
//!
//! inotify only wakes; what changed is found by comparing all files with what they were. So nothing
//! depends on the order or the completeness of events, on how an editor replaces a file, or on whether
//! a folder was made and filled before it was watched. Where the kernel gives no more watches, the same
//! look is taken at intervals.
//!
//! A file has changed if its content has: generators write all files anew, most of them as they were.
//! Metadata only say which files to read again.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gannet_io::named_file;
use gannet_server::notices::{ERRORS, OUTPUT};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::limits::{
    COMPARED_LEN_MAX, COMPARED_TOTAL_MAX, DEPTH_MAX, LOOK_EVERY, LOOK_LONG, WATCHED_MAX,
};
use crate::messages::printable;

/// A file's state: device, inode, length, and the times of modification and of change.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// A file or a folder as it was found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    stamp: Stamp,
    /// A digest of what is in it; `None` for folders, and for files that are not read.
    content: Option<u64>,
}

impl Found {
    fn differs(&self, other: &Self) -> bool {
        match (self.content, other.content) {
            (Some(one), Some(another)) => one != another,
            _ => self.stamp != other.stamp,
        }
    }
}

/// A folder that is watched.
struct Root {
    path: PathBuf,
    /// Folders in it that are not looked at, or links to them.
    without: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Found>,
    /// How long the last look at it took.
    took: Duration,
}

/// Watches folders.
pub(super) struct Watcher {
    roots: Vec<Root>,
    /// `None` where inotify cannot be used.
    inotify: Option<OwnedFd>,
    /// How often to look without having been woken.
    every: Option<Duration>,
    /// Device and inode of where our own lines go, which may be files in a watched folder.
    own: [Option<(u64, u64)>; 2],
    /// Makes digests, which are compared within this run only.
    digests: RandomState,
    has_warned: bool,
    /// A look has taken long, and this was reported.
    is_known_to_be_slow: bool,
}

/// Folders of tools: they are large, and not part of what is written by hand.
const TOOLS: [&[u8]; 2] = [b"node_modules", b"__pycache__"];

impl Watcher {
    /// Watches nothing yet. `wake` is called, on another thread, after each change.
    pub(super) fn new(wake: impl Fn() + Send + 'static) -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(|fd| {
                let mut events = File::from(fd.try_clone()?);
                let listen = move || {
                    let mut buffer = [0; 16 << 10];
                    loop {
                        // The contents of events do not matter.
                        match events.read(&mut buffer) {
                            Ok(_) => wake(),
                            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                            Err(_) => return,
                        }
                    }
                };
                thread::Builder::new()
                    .name("gannet-dev-watch".into())
                    .spawn(listen)?;
                Ok(fd)
            });
        Self {
            roots: Vec::new(),
            every: inotify.is_err().then_some(LOOK_EVERY),
            inotify: inotify.ok(),
            own: [
                identity(io::stdout().as_fd()),
                identity(io::stderr().as_fd()),
            ],
            digests: RandomState::new(),
            has_warned: false,
            is_known_to_be_slow: false,
        }
    }

    /// Watches a folder, which need not exist, but for some folders in it. Returns its number.
    pub(super) fn add(&mut self, path: &Path, without: Vec<PathBuf>) -> usize {
        self.roots.push(Root {
            path: path.to_path_buf(),
            without,
            files: BTreeMap::new(),
            took: Duration::ZERO,
        });
        let number = self.roots.len() - 1;
        self.look(number);
        number
    }

    /// The numbers of the folders.
    pub(super) fn numbers(&self) -> Range<usize> {
        0..self.roots.len()
    }

    /// How often to call [`Watcher::look`] without having been woken.
    pub(super) fn every(&self) -> Option<Duration> {
        self.every
    }

    /// The paths in a folder that changed since the last look at it.
    pub(super) fn look(&mut self, number: usize) -> Vec<PathBuf> {
        let started = Instant::now();
        let root = &mut self.roots[number];
        let path = root.path.clone();
        let before = std::mem::take(&mut root.files);
        // A link may lead elsewhere by now.
        let real = |it: &PathBuf| it.canonicalize().unwrap_or_else(|_| it.clone());
        let without = root.without.iter().map(real).collect();
        // The folder itself may be made again.
        if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            self.watch(parent, PARENT);
        }
        let mut look = Look {
            started,
            real: real(&path),
            without,
            before: &before,
            seen: HashSet::new(),
            files: BTreeMap::new(),
            count: 0,
            bytes: 0,
        };
        if let Ok(metadata) = fs::metadata(&path) {
            look.seen.insert((metadata.dev(), metadata.ino()));
        }
        look.folder(self, &path, Path::new(""), 0);
        let Look { files, count, .. } = look;
        if count > WATCHED_MAX && !std::mem::replace(&mut self.has_warned, true) {
            ERRORS.log(format_args!(
                "gannet: '{}' has more than {WATCHED_MAX} files: changes of some are not \
                 noticed\nhelp: watch a smaller folder, with --watch DIR",
                printable(&path.to_string_lossy())
            ));
        }
        let is_changed = |(path, found): &(&PathBuf, &Found)| {
            before.get(*path).is_none_or(|it| it.differs(found))
        };
        let changed = files.iter().filter(is_changed).map(|(path, _)| path);
        let gone = before.keys().filter(|it| !files.contains_key(*it));
        let changed = changed.chain(gone).cloned().collect();
        self.roots[number].files = files;
        self.roots[number].took = started.elapsed();
        if let Some(every) = &mut self.every {
            // Looking takes a twentieth of the time at most.
            let all: Duration = self.roots.iter().map(|root| root.took).sum();
            *every = LOOK_EVERY.max(all * 20);
        }
        changed
    }

    fn watch(&mut self, path: &Path, flags: WatchFlags) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let Err(error) = inotify::add_watch(inotify.as_fd(), path, flags) else {
            return;
        };
        use rustix::io::Errno;
        if matches!(error, Errno::NOSPC | Errno::NOMEM) && self.every.is_none() {
            self.every = Some(LOOK_EVERY);
            ERRORS.log(
                "gannet: the kernel watches no more folders; looking for changes every second\n\
                 help: raise fs.inotify.max_user_watches (sysctl), or watch a smaller folder",
            );
        }
    }
}

fn identity(stream: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(stream).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// The folder that the watched one is in, where others may write a lot. It may be watched as well.
const PARENT: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);

const FOLDER: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The file that a link leads to, in a folder that may not be watched.
const LINKED: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// One look at a folder.
struct Look<'a> {
    started: Instant,
    real: PathBuf,
    without: Vec<PathBuf>,
    /// What the last look found.
    before: &'a BTreeMap<PathBuf, Found>,
    /// Folders that were looked at: links can lead to one twice, or in a circle.
    seen: HashSet<(u64, u64)>,
    files: BTreeMap<PathBuf, Found>,
    count: usize,
    /// How much was read of files.
    bytes: u64,
}

impl Look<'_> {
    fn folder(&mut self, watcher: &mut Watcher, path: &Path, inner: &Path, depth: usize) {
        if !watcher.is_known_to_be_slow && self.started.elapsed() > LOOK_LONG {
            watcher.is_known_to_be_slow = true;
            OUTPUT.write(format!(
                "looking at all files of '{}', {} so far: a smaller folder is watched sooner\n",
                printable(&self.real.to_string_lossy()),
                self.count
            ));
        }
        // Before it is read: what comes after that wakes.
        watcher.watch(path, FOLDER);
        // One that cannot be read is as good as empty.
        for item in fs::read_dir(path).into_iter().flatten().flatten() {
            let name = item.file_name();
            if is_left_out(&name) {
                continue;
            }
            self.count += 1;
            if self.count > WATCHED_MAX {
                return;
            }
            let (path, inner) = (path.join(&name), inner.join(&name));
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            let is_link = item.file_type().is_ok_and(|it| it.is_symlink());
            if metadata.is_dir() {
                let is_elsewhere = is_link
                    && !path
                        .canonicalize()
                        .is_ok_and(|it| it.starts_with(&self.real));
                let is_new = self.seen.insert((metadata.dev(), metadata.ino()));
                let full = self.real_of(&path);
                if is_elsewhere || !is_new || depth >= DEPTH_MAX || self.without.contains(&full) {
                    continue;
                }
                // That it is there: listings show it. What changes in it has changed itself. One around what is
                // left out may have been made for that.
                if !self.without.iter().any(|it| it.starts_with(&full)) {
                    self.files.insert(inner.clone(), Found::default());
                }
                self.folder(watcher, &path, &inner, depth + 1);
            } else if !watcher
                .own
                .contains(&Some((metadata.dev(), metadata.ino())))
            {
                if is_link {
                    watcher.watch(&path, LINKED);
                }
                let stamp = stamp(&metadata);
                let same = self.before.get(&inner).filter(|it| it.stamp == stamp);
                let found = same.copied().unwrap_or_else(|| Found {
                    stamp,
                    content: self.digest(&watcher.digests, &path, &metadata),
                });
                self.files.insert(inner, found);
            }
        }
    }

    /// A digest of a file, if it is one and not too long. What is written to it later wakes again.
    fn digest(&mut self, digests: &RandomState, path: &Path, metadata: &Metadata) -> Option<u64> {
        let is_read = metadata.is_file()
            && metadata.len() <= COMPARED_LEN_MAX
            && self.bytes + metadata.len() <= COMPARED_TOTAL_MAX;
        if !is_read {
            return None;
        }
        // It may have become a pipe meanwhile: opening that does not wait for a writer.
        let mut file = named_file::open(path).ok()?;
        let mut digest = digests.build_hasher();
        let mut chunk = [0; 16 << 10];
        let mut len = 0;
        loop {
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    digest.write(&chunk[..count]);
                    len += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            // It grows.
            if len > COMPARED_LEN_MAX {
                return None;
            }
        }
        self.bytes += len;
        digest.write_u64(len);
        Some(digest.finish())
    }

    /// The path without links, if something is left out; else the path.
    fn real_of(&self, path: &Path) -> PathBuf {
        let real = (!self.without.is_empty()).then(|| path.canonicalize().ok());
        real.flatten().unwrap_or_else(|| path.to_owned())
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    (
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        (metadata.mtime(), metadata.mtime_nsec()),
        (metadata.ctime(), metadata.ctime_nsec()),
    )
}

/// Hidden names, folders of tools, and what editors write beside a file.
fn is_left_out(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_of_editor = name.ends_with(b"~")
        || name.ends_with(b".swp")
        || name.ends_with(b".swx")
        || (name.starts_with(b"#") && name.ends_with(b"#"))
        || name == b"4913";
    name.starts_with(b".") || is_of_editor || TOOLS.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A folder, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("gannet-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("it is new");
            Self(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn our_own_lines_in_a_watched_folder_are_no_change() {
        let folder = Folder::new("watch-own");
        folder.write("log", "a");
        folder.write("page", "a");
        let mut watcher = Watcher::new(|| {});
        let log = File::open(folder.0.join("log")).expect("it is there");
        watcher.own[1] = identity(log.as_fd());
        watcher.add(&folder.0, Vec::new());
        folder.write("log", "more");
        assert_eq!(watcher.look(0), [] as [PathBuf; 0]);
        folder.write("page", "more");
        assert_eq!(watcher.look(0), [PathBuf::from("page")]);
    }

    /// Also where the build makes the folder that it is in.
    #[test]
    fn what_is_left_out_is_no_change() {
        let folder = Folder::new("watch-without");
        let root = folder.0.canonicalize().expect("it is there");
        let mut watcher = Watcher::new(|| {});
        watcher.add(&root, vec![root.join("made/deep/out")]);
        folder.write("made/deep/out/page", "a");
        assert_eq!(watcher.look(0), [] as [PathBuf; 0]);
        folder.write("made/page", "a");
        assert_eq!(watcher.look(0), [PathBuf::from("made/page")]);
    }

    #[test]
    fn changes_wake_and_are_named() {
        let folder = Folder::new("watch");
        folder.write("site/a.html", "a");
        folder.write("site/css/a.css", "a");
        folder.write("outside/a.txt", "a");
        let (wake, woken) = mpsc::channel();
        let mut watcher = Watcher::new(move || {
            let _ = wake.send(());
        });
        let site = folder.0.join("site");
        watcher.add(
            &site,
            vec![site.join("out").canonicalize().unwrap_or(site.join("out"))],
        );
        let mut check = |expect: &[&str]| {
            let mut found = BTreeMap::new();
            // The events of a change may come one by one.
            while found
                .keys()
                .map(PathBuf::as_path)
                .ne(expect.iter().map(Path::new))
            {
                let _: () = woken
                    .recv_timeout(Duration::from_secs(20))
                    .expect("it wakes");
                found.extend(watcher.look(0).into_iter().map(|path| (path, ())));
            }
        };
        folder.write("site/a.html", "changed");
        check(&["a.html"]);
        // As editors save.
        folder.write("site/css/a.css~", "new");
        fs::rename(site.join("css/a.css~"), site.join("css/a.css")).expect("renamed");
        check(&["css/a.css"]);
        folder.write("site/new/deep/b.html", "b");
        check(&["new", "new/deep", "new/deep/b.html"]);
        fs::create_dir(site.join("empty")).expect("made");
        check(&["empty"]);
        folder.write("site/new/deep/b.html", "changed");
        check(&["new/deep/b.html"]);
        fs::remove_file(site.join("a.html")).expect("removed");
        check(&["a.html"]);
        symlink("../outside/a.txt", site.join("link.txt")).expect("a link");
        check(&["link.txt"]);
        folder.write("outside/a.txt", "changed");
        check(&["link.txt"]);
        // Recreated, as builds do.
        fs::rename(&site, folder.0.join("before")).expect("renamed");
        check(&[
            "css",
            "css/a.css",
            "empty",
            "link.txt",
            "new",
            "new/deep",
            "new/deep/b.html",
        ]);
        folder.write("site/out/left-out.html", "a");
        folder.write("site/.git/index", "a");
        folder.write("site/node_modules/a.js", "a");
        folder.write("site/c.html", "c");
        check(&["c.html"]);
    }

    /// A look at a pipe does not wait for a writer.
    #[test]
    fn pipes_are_found_and_not_read() {
        let folder = Folder::new("watch-pipe");
        folder.write("a.html", "a");
        let mut watcher = Watcher::new(|| {});
        watcher.add(&folder.0, Vec::new());
        assert!(watcher.look(0).is_empty());
        let pipe = |name| {
            let path = folder.0.join(name);
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).expect("made");
        };
        pipe("pipe");
        assert_eq!(watcher.look(0), [PathBuf::from("pipe")]);
        fs::remove_file(folder.0.join("a.html")).expect("removed");
        pipe("a.html");
        assert_eq!(watcher.look(0), [PathBuf::from("a.html")]);
    }

    #[test]
    fn what_is_written_anew_as_it_was_is_no_change() {
        let folder = Folder::new("watch-content");
        let long = "x".repeat(COMPARED_LEN_MAX as usize + 1);
        let write = |style: &str| {
            folder.write("index.html", "page");
            folder.write("empty", "");
            folder.write("css/a.css", style);
            folder.write("long", &long);
        };
        write("one");
        let mut watcher = Watcher::new(|| {});
        watcher.add(&folder.0, Vec::new());
        let mut check = |expect: &[&str]| {
            let expect: Vec<_> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(watcher.look(0), expect);
        };
        check(&[]);
        write("one");
        // Files that are too long to be read are judged by their times.
        check(&["long"]);
        // Removed first, as generators do, which takes a look of its own if it takes long.
        fs::remove_dir_all(folder.0.join("css")).expect("removed");
        fs::remove_file(folder.0.join("index.html")).expect("removed");
        write("two");
        check(&["css/a.css", "long"]);
        folder.write("index.html", "egap");
        fs::write(folder.0.join("empty"), "\0").expect("written");
        check(&["empty", "index.html"]);
        let later = std::time::SystemTime::now() + Duration::from_secs(9);
        let file = File::options().write(true).open(folder.0.join("css/a.css"));
        file.and_then(|it| it.set_modified(later)).expect("set");
        check(&[]);
    }

    #[test]
    fn no_more_is_read_than_the_limit() {
        let folder = Folder::new("watch-total");
        let count = COMPARED_TOTAL_MAX / COMPARED_LEN_MAX + 2;
        for number in 0..count {
            let file = File::create(folder.0.join(number.to_string())).expect("a file");
            file.set_len(COMPARED_LEN_MAX).expect("a length");
        }
        let mut watcher = Watcher::new(|| {});
        watcher.add(&folder.0, Vec::new());
        let found = watcher.roots[0].files.values();
        let read = found.filter(|it| it.content.is_some()).count() as u64;
        assert_eq!(read, COMPARED_TOTAL_MAX / COMPARED_LEN_MAX);
    }

    #[test]
    fn links_in_a_circle_are_looked_at_once() {
        let folder = Folder::new("watch-circle");
        folder.write("a/b.html", "b");
        symlink("..", folder.0.join("a/up")).expect("a link");
        symlink("/", folder.0.join("all")).expect("a link");
        let mut watcher = Watcher::new(|| {});
        watcher.add(&folder.0, Vec::new());
        assert!(
            watcher.roots[0].files.len() <= 2,
            "{:?}",
            watcher.roots[0].files
        );
    }
}
