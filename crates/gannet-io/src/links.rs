//! Where symbolic links may lead that the kernel does not follow: absolute ones, and those that climb out of
//! the folder that they are in.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The paths by which the target of a link may name a folder: as an operator has named it, and without
/// links. They are text, and open nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Names {
    named: Option<PathBuf>,
    real: Option<PathBuf>,
}

impl Names {
    /// The paths of a folder that is open or about to be.
    pub(crate) fn of(path: &Path) -> Self {
        Self {
            named: std::path::absolute(path).ok(),
            real: path.canonicalize().ok(),
        }
    }

    /// Those of a folder below.
    pub(crate) fn below(&self, path: &Path) -> Self {
        let parent = self.named.as_ref().or(self.real.as_ref());
        parent.map_or_else(Self::default, |parent| Self::of(&parent.join(path)))
    }

    /// Splits a target that is absolute: the number of names that lead to this folder, and what is left.
    fn strip<'a>(&self, target: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let names = [&self.named, &self.real].into_iter().flatten();
        let matches = names.filter_map(|folder| strip(folder.as_os_str().as_bytes(), target));
        matches.max_by_key(|(count, _)| *count)
    }

    /// The path of the folder above.
    pub(crate) fn parent(&self) -> Option<&Path> {
        self.real.as_deref()?.parent()
    }
}

/// Folders outside of a root into which links may lead. Cheap to clone.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outside(Arc<[Names]>);

impl Outside {
    /// These folders, which need not be there yet.
    #[must_use]
    pub fn new(paths: &[PathBuf]) -> Self {
        Self(paths.iter().map(|path| Names::of(path)).collect())
    }

    /// Opens each.
    ///
    /// # Errors
    /// The first path that is no folder, or cannot be opened, and why.
    pub fn check(&self) -> Result<(), (&Path, io::Error)> {
        let mut paths = self.paths();
        paths.try_for_each(|path| match open_folder(path) {
            Ok(_) => Ok(()),
            Err(errno) => Err((path, errno.into())),
        })
    }

    /// The folders, as they were named.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|names| names.named.as_deref())
    }
}

/// A folder that a link may lead into.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Base {
    /// The root itself.
    Root,
    /// The folder of this number outside of it.
    Outside(usize),
}

/// Where the links of a root may lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    pub(crate) own: Names,
    pub(crate) outside: Outside,
}

impl Targets {
    /// The folder that an absolute target leads into, and what is left of the target.
    pub(crate) fn find<'a>(&self, target: &'a [u8]) -> Option<(Base, &'a [u8])> {
        let outside = self.outside.0.iter().enumerate();
        let outside = outside.map(|(number, names)| (Base::Outside(number), names));
        let bases = std::iter::once((Base::Root, &self.own)).chain(outside);
        let found = bases.filter_map(|(base, names)| Some((base, names.strip(target)?)));
        let (base, (_, left)) =
            found.max_by_key(|(base, (count, _))| (*count, *base == Base::Root))?;
        Some((base, left))
    }

    pub(crate) fn names(&self, base: Base) -> &Names {
        match base {
            Base::Root => &self.own,
            Base::Outside(number) => &self.outside.0[number],
        }
    }

    /// Opens the folder outside of the root, by its path: an operator has named it, and decides where it
    /// leads.
    pub(crate) fn open(&self, number: usize) -> Result<OwnedFd, Errno> {
        let path = self.outside.0[number].named.as_deref();
        open_folder(path.ok_or(Errno::NOENT)?)
    }
}

fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// The number of names in `folder`, and what is left of `target` after them, if it starts with all.
fn strip<'a>(folder: &[u8], target: &'a [u8]) -> Option<(usize, &'a [u8])> {
    let mut left = target;
    let mut count = 0;
    for name in folder
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        if next_name(&mut left)? != name {
            return None;
        }
        count += 1;
    }
    Some((count, left))
}

/// Takes the next name of a path, without slashes and dots before it.
pub(crate) fn next_name<'a>(path: &mut &'a [u8]) -> Option<&'a [u8]> {
    loop {
        let begin = path.iter().position(|byte| *byte != b'/')?;
        let rest = &path[begin..];
        let end = rest.iter().position(|byte| *byte == b'/');
        let (name, left) = rest.split_at(end.unwrap_or(rest.len()));
        *path = left;
        if name != b"." {
            return Some(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_belongs_to_the_innermost_folder_that_it_names() {
        let names = |named: &str, real: &str| Names {
            named: Some(named.into()),
            real: Some(real.into()),
        };
        let targets = Targets {
            own: names("/srv/site", "/data/releases/7"),
            outside: Outside(Arc::new([
                names("/srv/shared", "/srv/shared"),
                names("/srv/site/inner", "/srv/site/inner"),
            ])),
        };
        let check = |target: &str, expect: Option<(Base, &str)>| {
            let found = targets.find(target.as_bytes());
            let expect = expect.map(|(base, left)| (base, left.as_bytes()));
            assert_eq!(found, expect, "{target}");
        };
        check("/srv/site/a/b", Some((Base::Root, "/a/b")));
        check("//srv/./site//a", Some((Base::Root, "//a")));
        check("/srv/site", Some((Base::Root, "")));
        check("/srv/site/", Some((Base::Root, "/")));
        check("/data/releases/7/a", Some((Base::Root, "/a")));
        check("/srv/shared/a", Some((Base::Outside(0), "/a")));
        check("/srv/site/inner/a", Some((Base::Outside(1), "/a")));
        for elsewhere in [
            "/srv",
            "/srv/sites/a",
            "/srv/sit",
            "/data/releases/8/a",
            "/srv/other/../site/a",
            "/",
        ] {
            check(elsewhere, None);
        }
        assert_eq!(Targets::default().find(b"/srv/site"), None);
    }
}
