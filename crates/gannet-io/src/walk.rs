//! Resolves a path below a root name by name, as `openat2` with `RESOLVE_BENEATH` would, and follows links
//! to [where they may lead](crate::links) besides.
//!
//! ```text
//!            ┌── a folder ◀──────────────┐
//!   rest ─▶ openat(here, name, O_NOFOLLOW) ── the last name ─▶ opened
//!    ▲         │ a link
//!    └─────────┴ its target, then what was left
//! ```
//!
//! No call follows a link, and each name is opened from a folder that was reached in the same way from the
//! root, or from a folder that an operator has named. So whatever is swapped or renamed meanwhile, what is
//! opened was below one of these when its folder was. `..` never is a call: it drops the last name, and
//! those before it are opened again. The target of a link that is absolute, or climbs out, is compared with
//! the paths of these folders as text; it leads nowhere if it starts with none of them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::how::{LookupReach, Purpose};
use crate::limits::{PATH_LEN_MAX, WALK_LINKS_MAX, WALK_STEPS_MAX};
use crate::links::{Base, Targets, next_name};

/// Opens a path below a directory. May block; `EAGAIN` if something on the way was swapped meanwhile.
///
/// Only the kernel can tell what it has cached, and stop before a mount: a lookup that must not go
/// further fails at once, as the kernel's does.
pub(crate) fn open(
    (root, targets): (BorrowedFd<'_>, &Targets),
    path: &[u8],
    purpose: Purpose,
    reach: LookupReach,
) -> Result<OwnedFd, Errno> {
    match reach {
        LookupReach::Cached | LookupReach::Mount => return Err(Errno::XDEV),
        LookupReach::Everywhere | LookupReach::Straight => {}
    }
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    if path.len() > PATH_LEN_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if path[0] == b'/' {
        return Err(Errno::XDEV);
    }
    let walk = Walk {
        root,
        targets,
        base: (Base::Root, None),
        here: None,
        names: Vec::new(),
        rest: path.to_vec(),
        at: 0,
        own_len: path.len(),
        links_left: match reach {
            LookupReach::Straight => 0,
            _ => WALK_LINKS_MAX,
        },
        steps_left: WALK_STEPS_MAX,
    };
    walk.run(purpose)
}

/// A lookup on its way.
struct Walk<'a> {
    root: BorrowedFd<'a>,
    targets: &'a Targets,
    /// The folder that it began in, or that a link has led into; opened unless it is the root.
    base: (Base, Option<OwnedFd>),
    /// The folder that was reached; `None` is the base.
    here: Option<OwnedFd>,
    /// The names that lead there from the base, none of which is a link.
    names: Vec<Box<[u8]>>,
    /// What is left of the path, with the targets of links in their place, from [`at`](Self::at) on.
    /// Links may make it long, so a step does not copy it.
    rest: Vec<u8>,
    at: usize,
    /// Bytes at the end of it that are not of links.
    own_len: usize,
    links_left: usize,
    steps_left: usize,
}

/// A mere reference to a folder.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Walk<'_> {
    fn run(mut self, purpose: Purpose) -> Result<OwnedFd, Errno> {
        loop {
            let whole = std::mem::take(&mut self.rest);
            let rest = &whole[std::mem::take(&mut self.at)..];
            let end = rest.iter().position(|byte| *byte == b'/');
            let (name, left) = rest.split_at(end.unwrap_or(rest.len()));
            let slashes = left.iter().take_while(|byte| **byte == b'/').count();
            let left = &left[slashes..];
            // Only a folder can have a slash behind it.
            let flags = match (left.is_empty(), slashes) {
                (true, 0) => purpose.flags(),
                (true, _) => purpose.flags() | OFlags::DIRECTORY,
                (false, _) => FOLDER,
            };
            match name {
                b".." if self.names.is_empty() => {
                    drop(self.open(b".", FOLDER)?);
                    self.climb_out(rest.len() > self.own_len, &rest[name.len()..])?;
                    continue;
                }
                b"." | b".." => {
                    if name == b".." {
                        self.go_up()?;
                    }
                    // As a lookup does, this asks for the right to search the folder.
                    let opened = self.open(b".", flags)?;
                    if left.is_empty() {
                        return Ok(opened);
                    }
                }
                name => match self.open_name(name, flags)? {
                    Found::Opened(opened) if left.is_empty() => return Ok(opened),
                    Found::Opened(folder) => {
                        self.here = Some(folder);
                        self.names.push(name.into());
                    }
                    Found::Link(_) if purpose == Purpose::ReadOwnFolder && left.is_empty() => {
                        return Err(Errno::NOTDIR);
                    }
                    Found::Link(target) => {
                        self.follow(&target, &rest[name.len()..])?;
                        continue;
                    }
                },
            }
            self.at = whole.len() - left.len();
            self.rest = whole;
        }
    }

    /// Puts the target of a link before what is left.
    fn follow(&mut self, target: &[u8], left: &[u8]) -> Result<(), Errno> {
        self.links_left = self.links_left.checked_sub(1).ok_or(Errno::LOOP)?;
        self.own_len = self.own_len.min(left.len());
        let path = [target, left].concat();
        match target.first() {
            None => Err(Errno::NOENT),
            Some(b'/') => self.jump(&path),
            Some(_) => {
                self.rest = path;
                Ok(())
            }
        }
    }

    /// Continues in the folder that an absolute path leads into.
    fn jump(&mut self, path: &[u8]) -> Result<(), Errno> {
        let (base, left) = self.targets.find(path).ok_or(Errno::XDEV)?;
        let opened = match base {
            Base::Root => None,
            Base::Outside(number) => Some(self.targets.open(number)?),
        };
        self.base = (base, opened);
        self.here = None;
        self.names.clear();
        self.rest = [b".", left].concat();
        Ok(())
    }

    /// Goes above the base, which a link may do, and not the path itself.
    fn climb_out(&mut self, is_of_link: bool, left: &[u8]) -> Result<(), Errno> {
        let above = self.targets.names(self.base.0).parent();
        let mut above = above.filter(|_| is_of_link).ok_or(Errno::XDEV)?;
        let (mut left, mut rest) = (left, left);
        while next_name(&mut rest) == Some(b"..") {
            above = above.parent().unwrap_or(above);
            left = rest;
        }
        self.own_len = self.own_len.min(left.len());
        let path = [above.as_os_str().as_bytes(), left].concat();
        self.jump(&path)
    }

    /// Goes to the folder above.
    fn go_up(&mut self) -> Result<(), Errno> {
        drop(self.open(b".", FOLDER)?);
        self.names.pop();
        self.here = None;
        let names = std::mem::take(&mut self.names);
        for name in &names {
            let folder = self.open(name, FOLDER | OFlags::NOFOLLOW);
            self.here = Some(folder.map_err(|errno| match errno {
                // It was a folder.
                Errno::NOTDIR | Errno::NOENT => Errno::AGAIN,
                errno => errno,
            })?);
        }
        self.names = names;
        Ok(())
    }

    /// Opens a name, or reads it if it is a link.
    fn open_name(&mut self, name: &[u8], flags: OFlags) -> Result<Found, Errno> {
        let refused = match self.open(name, flags | OFlags::NOFOLLOW) {
            Ok(opened) => {
                // A mere reference may be one to a link.
                let may_be_link =
                    flags.contains(OFlags::PATH) && !flags.contains(OFlags::DIRECTORY);
                if !may_be_link || !is_link(&opened)? {
                    return Ok(Found::Opened(opened));
                }
                Errno::LOOP
            }
            Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => errno,
            Err(errno) => return Err(errno),
        };
        match rustix::fs::readlinkat(self.folder(), name, Vec::new()) {
            Ok(target) => Ok(Found::Link(target.into_bytes())),
            // No link. If it was one a moment ago, it was swapped.
            Err(Errno::INVAL) if refused == Errno::LOOP => Err(Errno::AGAIN),
            Err(Errno::INVAL) => Err(refused),
            Err(errno) => Err(errno),
        }
    }

    fn open(&mut self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(Errno::LOOP)?;
        rustix::fs::openat(self.folder(), name, flags, Mode::empty())
    }

    fn folder(&self) -> BorrowedFd<'_> {
        let folder = self.here.as_ref().or(self.base.1.as_ref());
        folder.map_or(self.root, AsFd::as_fd)
    }
}

/// What a name is.
enum Found {
    Opened(OwnedFd),
    /// A symbolic link, with its target.
    Link(Vec<u8>),
}

fn is_link(opened: &OwnedFd) -> Result<bool, Errno> {
    let stat = rustix::fs::fstat(opened)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use rustix::fs::CWD;

    use super::*;
    use crate::how;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("gannet-walk-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("root/a/b")).unwrap();
            std::fs::write(path.join("root/a/file"), "inside").unwrap();
            std::fs::write(path.join("file"), "outside").unwrap();
            Self(path)
        }

        fn root(&self) -> OwnedFd {
            rustix::fs::openat(CWD, self.0.join("root"), FOLDER, Mode::empty()).unwrap()
        }

        fn link(&self, target: &str, name: &str) {
            symlink(target, self.0.join("root").join(name)).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    type Open = fn(BorrowedFd<'_>, &[u8], Purpose, LookupReach) -> Result<OwnedFd, Errno>;

    /// Links may lead nowhere but below the root.
    fn alone(
        root: BorrowedFd<'_>,
        path: &[u8],
        purpose: Purpose,
        reach: LookupReach,
    ) -> Result<OwnedFd, Errno> {
        super::open((root, &Targets::default()), path, purpose, reach)
    }

    /// What an opened descriptor is of.
    fn identity(opened: Result<OwnedFd, Errno>) -> Result<(u64, u64), Errno> {
        let stat = rustix::fs::fstat(opened?)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Paths of all kinds of pieces, for each purpose: the same file, or the same error.
    #[test]
    fn it_finds_what_the_kernel_finds() {
        let folder = Folder::new("same");
        for (target, name) in [
            ("a", "to-a"),
            ("a/", "to-a-slash"),
            ("a/file", "to-file"),
            ("a/file/", "to-file-slash"),
            ("..", "up"),
            ("../file", "out"),
            ("/", "absolute"),
            ("none", "dangling"),
            ("again", "again"),
            (".", "here"),
            ("a/../to-a/b/..", "winding"),
            ("../to-a", "a/back"),
            ("../../file", "a/out"),
        ] {
            folder.link(target, name);
        }
        let root = folder.root();
        let pieces = [
            "a",
            "b",
            "file",
            "to-a",
            "to-a-slash",
            "to-file",
            "to-file-slash",
            "up",
            "out",
            "absolute",
            "dangling",
            "again",
            "here",
            "winding",
            "back",
            "none",
            ".",
            "..",
            "",
        ];
        let purposes = [
            Purpose::Read,
            Purpose::ReadQuietly,
            Purpose::Look,
            Purpose::ReadFolder,
            Purpose::LookAtFolder,
        ];
        let mut compared = 0;
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let path = format!("{first}/{second}/{third}");
                    for path in [&path[..], path.trim_end_matches('/')] {
                        for purpose in purposes {
                            for reach in [LookupReach::Everywhere, LookupReach::Straight] {
                                let path = path.as_bytes();
                                let by = |open: Open| loop {
                                    let found = open(root.as_fd(), path, purpose, reach);
                                    // The kernel's own `..` races with renames anywhere.
                                    if !matches!(found, Err(Errno::AGAIN)) {
                                        break identity(found);
                                    }
                                };
                                let (ours, kernels) = (by(alone), by(how::open));
                                let shown = String::from_utf8_lossy(path);
                                assert_eq!(ours, kernels, "{shown}: {purpose:?}, {reach:?}");
                                compared += usize::from(ours.is_ok());
                            }
                        }
                    }
                }
            }
        }
        assert!(compared > 1_000, "{compared}");
    }

    /// The author of a site decides how much work a link is.
    #[test]
    fn work_is_bounded() {
        let folder = Folder::new("work");
        let winding = "a/b/../../".repeat(400);
        folder.link(&winding, "link-0");
        for number in 1..30 {
            folder.link(
                &format!("link-{}/{winding}", number - 1),
                &format!("link-{number}"),
            );
        }
        let root = folder.root();
        let open = |path: &str| {
            let found = alone(
                root.as_fd(),
                path.as_bytes(),
                Purpose::Look,
                LookupReach::Everywhere,
            );
            found.map(drop)
        };
        assert_eq!(open("link-0"), Ok(()));
        assert_eq!(open("link-29"), Err(Errno::LOOP));
        let deep = "a/../".repeat(800);
        assert_eq!(open(&deep), Ok(()));
    }

    /// Each of these swaps is tried at every moment of the lookup.
    #[test]
    fn whatever_is_swapped_nothing_outside_is_opened() {
        let folder = Folder::new("swaps");
        let path = |name: &str| folder.0.join("root").join(name);
        std::fs::create_dir_all(folder.0.join("elsewhere/b")).unwrap();
        std::fs::write(folder.0.join("elsewhere/file"), "outside").unwrap();
        std::fs::write(folder.0.join("elsewhere/b/file"), "outside").unwrap();
        std::fs::write(path("a/b/file"), "inside").unwrap();
        folder.link("../elsewhere", "evil");
        folder.link("a/b/../file", "winding");
        folder.link("a/file", "good");
        folder.link("../file", "bad");
        let root = folder.root();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let exchange = |one: &Path, other: &Path| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, one, CWD, other, flags).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    exchange(&path("a"), &path("evil"));
                    exchange(&path("good"), &path("bad"));
                    // Out of the root and back.
                    exchange(&path("a"), &path("evil"));
                    exchange(&path("good"), &path("bad"));
                }
            });
            let mut opened = 0;
            for number in 0..40_000 {
                let name = ["a/file", "a/b/file", "winding", "good"][number % 4];
                let found = alone(
                    root.as_fd(),
                    name.as_bytes(),
                    Purpose::Read,
                    LookupReach::Everywhere,
                );
                if let Ok(file) = found {
                    let mut bytes = [0; 10];
                    let count = rustix::io::read(&file, &mut bytes).unwrap();
                    assert_eq!(&bytes[..count], b"inside", "{name}");
                    opened += 1;
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(opened > 100, "{opened}");
        });
    }
}
