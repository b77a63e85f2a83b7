//! A disk that loses power: records what a publisher does, and makes every state in which a disk
//! may be found after it lost power at some moment.
//!
//! What was flushed survives. Of the other changes of names in a folder, any of them may survive,
//! in any combination (a rename whole or not at all); of a file that was not flushed, any part of
//! its bytes, or zeros in their place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gannet_store::files::{Files, SystemFiles};

/// What was done.
#[derive(Clone, Debug)]
enum Deed {
    Folder(PathBuf),
    Create(PathBuf),
    Write(PathBuf, Vec<u8>),
    FlushFile(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    FlushFolder(PathBuf),
}

/// The system's files, which take down what is done with them. Paths are below `root`.
#[derive(Clone)]
pub(crate) struct Recorder {
    root: PathBuf,
    deeds: Rc<RefCell<Vec<Deed>>>,
    /// The deed that fails as on a full disk, counted from 0.
    full_at: Option<usize>,
}

impl Recorder {
    pub(crate) fn new(root: &Path, full_at: Option<usize>) -> Self {
        Self {
            root: root.to_path_buf(),
            deeds: Rc::default(),
            full_at,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.deeds.borrow().len()
    }

    fn note(&self, deed: impl FnOnce(&dyn Fn(&Path) -> PathBuf) -> Deed) -> io::Result<()> {
        let below = |path: &Path| match path.strip_prefix(&self.root) {
            Ok(inner) => inner.to_path_buf(),
            Err(_) => PathBuf::new(),
        };
        let deed = deed(&below);
        let needs_room = !matches!(deed, Deed::Remove(_) | Deed::FlushFolder(_));
        if needs_room && self.full_at.is_some_and(|at| self.count() >= at) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.deeds.borrow_mut().push(deed);
        Ok(())
    }
}

impl Files for Recorder {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.note(|below| Deed::Folder(below(path)))?;
        SystemFiles.make_folder(path)
    }

    fn create(&self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        self.note(|below| Deed::Create(below(path)))?;
        fs::File::create_new(path)?;
        self.note(|below| Deed::Write(below(path), bytes.clone()))?;
        fs::write(path, &bytes)?;
        self.note(|below| Deed::FlushFile(below(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(|below| Deed::Rename(below(from), below(to)))?;
        SystemFiles.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note(|below| Deed::Link(below(from), below(to)))?;
        SystemFiles.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)?;
        self.note(|below| Deed::Remove(below(path)))
    }

    fn flush_folder(&self, path: &Path) -> io::Result<()> {
        self.note(|below| Deed::FlushFolder(below(path)))
    }
}

/// The system's files without flushing, which takes most of the time and cannot be seen by a test
/// that does not lose power.
pub(crate) struct Unflushed;

impl Files for Unflushed {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        SystemFiles.make_folder(path)
    }

    fn create(&self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        io::copy(content, &mut fs::File::create_new(path)?).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemFiles.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemFiles.remove(path)
    }

    fn flush_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A file or folder.
#[derive(Clone, Debug)]
struct Node {
    /// `None` for a folder.
    bytes: Option<Vec<u8>>,
    is_flushed: bool,
}

/// A change of names in one folder: all of it survives, or nothing.
#[derive(Clone, Debug)]
struct Change {
    removed: Option<PathBuf>,
    added: Option<(PathBuf, usize)>,
}

/// The disk at one moment.
#[derive(Clone, Debug, Default)]
struct Disk {
    nodes: Vec<Node>,
    /// The names on the disk, and those that programs see.
    durable: BTreeMap<PathBuf, usize>,
    seen: BTreeMap<PathBuf, usize>,
    /// Changes of names that are not on the disk yet, in order.
    pending: Vec<Change>,
}

impl Disk {
    /// A disk with the files and folders below `root`, all on the disk.
    fn of(root: &Path) -> Self {
        let mut disk = Self::default();
        disk.add(root, PathBuf::new());
        disk.durable = disk.seen.clone();
        disk
    }

    fn add(&mut self, path: &Path, name: PathBuf) {
        let bytes = path.is_file().then(|| fs::read(path).unwrap());
        if bytes.is_none() {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                self.add(&entry.path(), name.join(entry.file_name()));
            }
        }
        self.seen.insert(name, self.nodes.len());
        self.nodes.push(Node {
            bytes,
            is_flushed: true,
        });
    }

    fn change(&mut self, removed: Option<PathBuf>, added: Option<(PathBuf, usize)>) {
        if let Some(path) = &removed {
            self.seen.remove(path);
        }
        if let Some((path, node)) = &added {
            self.seen.insert(path.clone(), *node);
        }
        self.pending.push(Change { removed, added });
    }

    fn node(&mut self, bytes: Option<Vec<u8>>) -> usize {
        self.nodes.push(Node {
            bytes,
            is_flushed: false,
        });
        self.nodes.len() - 1
    }

    fn run(&mut self, deed: &Deed) {
        match deed {
            Deed::Folder(path) => {
                let node = self.node(None);
                self.change(None, Some((path.clone(), node)));
            }
            Deed::Create(path) => {
                let node = self.node(Some(Vec::new()));
                self.change(None, Some((path.clone(), node)));
            }
            Deed::Write(path, bytes) => {
                let node = &mut self.nodes[self.seen[path]];
                (node.bytes, node.is_flushed) = (Some(bytes.clone()), false);
            }
            Deed::FlushFile(path) => self.nodes[self.seen[path]].is_flushed = true,
            Deed::Rename(from, to) => {
                let node = self.seen[from];
                self.change(Some(from.clone()), Some((to.clone(), node)));
            }
            Deed::Link(from, to) => {
                let node = self.seen[from];
                self.change(None, Some((to.clone(), node)));
            }
            Deed::Remove(path) => self.change(Some(path.clone()), None),
            Deed::FlushFolder(folder) => {
                let pending = std::mem::take(&mut self.pending);
                for change in pending {
                    let path = change.removed.as_ref();
                    let path = path.or_else(|| change.added.as_ref().map(|(path, _)| path));
                    match path.and_then(|path| path.parent()) == Some(folder) {
                        true => apply(&mut self.durable, &change),
                        false => self.pending.push(change),
                    }
                }
            }
        }
    }

    /// Writes every state that may be found after the power went, one after the other, below a new
    /// folder; returns how many.
    fn after_power_loss(&self, place: &Path, check: &mut dyn FnMut(&Path)) -> usize {
        let count = self.pending.len();
        assert!(count <= 8, "too many combinations: a flush is missing");
        let mut states = 0;
        for chosen in 0..1_u32 << count {
            let mut names = self.durable.clone();
            for (index, change) in self.pending.iter().enumerate() {
                if chosen >> index & 1 == 1 {
                    apply(&mut names, change);
                }
            }
            let is_torn = names.values().any(|node| self.is_torn(*node));
            for torn in if is_torn { 0..4 } else { 0..1 } {
                self.write(&names, torn, place);
                check(place);
                let _ = fs::remove_dir_all(place);
                states += 1;
            }
        }
        states
    }

    fn is_torn(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        !node.is_flushed && node.bytes.is_some()
    }

    fn write(&self, names: &BTreeMap<PathBuf, usize>, torn: u32, place: &Path) {
        // Folders come before what is in them; without its folder a file is lost.
        for (name, &number) in names {
            let path = place.join(name);
            let Some(bytes) = &self.nodes[number].bytes else {
                if path.parent().is_some_and(Path::is_dir) {
                    fs::create_dir(&path).unwrap();
                }
                continue;
            };
            let half = bytes.len() / 2;
            let bytes = match (self.is_torn(number), torn) {
                (false, _) | (true, 0) => bytes.clone(),
                (true, 1) => Vec::new(),
                (true, 2) => bytes[..half].to_vec(),
                (true, _) => [&bytes[..half], &vec![0; bytes.len() - half]].concat(),
            };
            if path.parent().is_some_and(Path::is_dir) {
                fs::write(path, bytes).unwrap();
            }
        }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &Change) {
    if let Some(path) = &change.removed {
        names.remove(path);
    }
    if let Some((path, node)) = &change.added {
        names.insert(path.clone(), *node);
    }
}

/// Runs `work` below `root`, and calls `check` with every state in which a loss of power before,
/// during or after it may leave the disk, each below the folder `place`, and whether it was after.
/// Returns the number of states.
pub(crate) fn cut_power(
    root: &Path,
    place: &Path,
    work: impl FnOnce(Recorder),
    check: &mut dyn FnMut(&Path, bool),
) -> usize {
    let mut disk = Disk::of(root);
    let recorder = Recorder::new(root, None);
    work(recorder.clone());
    let mut states = disk.after_power_loss(place, &mut |place| check(place, false));
    let count = recorder.count();
    for (index, deed) in recorder.deeds.borrow().iter().enumerate() {
        disk.run(deed);
        let is_after = index + 1 == count;
        states += disk.after_power_loss(place, &mut |place| check(place, is_after));
    }
    states
}
