//! Releases of which some units are there: what readers see of them, and what a loss of power leaves.

mod disk;
#[path = "disk/platter.rs"]
mod platter;
#[path = "sample/partial.rs"]
mod sample;

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use disk::{Unflushed, cut_power};
use gannet_archive::limits::{GROUP_LEN, UNIT_LEN_MAX};
use gannet_archive::{
    GroupHash, Options, SUPERBLOCK_LEN, Superblock, TreeHasher, Unit, Writer, partial_start,
};
use gannet_store::{
    Keep, LOOK_MAX, Look, PartialRelease, PartialWriter, Pointer, Presence, Publisher, ReleaseId,
    SparseFile, Store, StoreError,
};
use platter::SimFile;

const NOW: u64 = 1_800_000_000;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-part-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Numbers from a seed, the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 >> 33
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..len).map(|_| numbers.next() as u8).collect()
}

/// An archive of blobs of these lengths, none of which is tiny.
fn archive(lens: &[u64]) -> Vec<u8> {
    let mut writer = Writer::new(Options::default());
    let mut file = vec![0; SUPERBLOCK_LEN];
    for (seed, len) in (1..).zip(lens) {
        let body = bytes(seed, *len);
        let mut hasher = TreeHasher::default();
        hasher.update(&body);
        let (_, digest, tree): (u64, _, Vec<GroupHash>) = hasher.finish();
        let placed = writer.add_hashed(digest, *len);
        writer.set_tree(placed.id, tree);
        file.resize(placed.write_at.unwrap() as usize, 0);
        file.extend_from_slice(&body);
    }
    let parts = writer.finish().unwrap();
    file.resize(parts.metadata_offset as usize, 0);
    file.extend_from_slice(&parts.metadata);
    file[..SUPERBLOCK_LEN].copy_from_slice(&parts.superblock);
    file
}

/// Blobs that share pages, one in several pages, a long one, and some after it.
fn mixed() -> Vec<u8> {
    archive(&[
        100,
        3000,
        5000,
        0,
        900,
        70_000,
        64,
        UNIT_LEN_MAX + 3 * GROUP_LEN / 2,
        2000,
        10_000,
        1,
    ])
}

fn superblock(archive: &[u8]) -> Superblock {
    Superblock::parse(&archive[..SUPERBLOCK_LEN], archive.len() as u64).unwrap()
}

/// The pointer of another store to the release of an archive.
fn pointer(archive: &[u8]) -> Pointer {
    Pointer {
        serial: 1,
        replaces: None,
        release: ReleaseId::of_build_id(superblock(archive).build_id()),
        size: archive.len() as u64,
        digest: *blake3::hash(archive).as_bytes(),
        published: NOW,
        publisher: "ann@build".into(),
        activate: None,
        stages: Vec::new(),
        keep: Keep::default(),
        void: Vec::new(),
        note: String::new(),
        expires: None,
    }
}

/// A copy with a partial release of an archive.
fn copy_of(folder: &Path, archive: &[u8]) -> (Publisher<Unflushed>, Pointer) {
    let copy = Publisher::open_with(folder, "node", NOW, Unflushed).unwrap();
    let pointer = pointer(archive);
    fs::write(copy.part_path(pointer.release), archive).unwrap();
    copy.adopt_partial(&pointer).unwrap();
    (copy, pointer)
}

fn part<'a>(archive: &'a [u8], unit: &Unit) -> &'a [u8] {
    &archive[unit.offset as usize..(unit.offset + unit.len) as usize]
}

fn add<F: SparseFile>(
    writer: &mut PartialWriter<F>,
    archive: &[u8],
    units: impl IntoIterator<Item = u64>,
) -> io::Result<()> {
    let units: Vec<_> = units.into_iter().collect();
    write(writer, archive, &units)?;
    writer.data().sync()?;
    writer.set(units)
}

fn write<F: SparseFile>(
    writer: &mut PartialWriter<F>,
    archive: &[u8],
    units: &[u64],
) -> io::Result<()> {
    for number in units {
        let unit = writer.unit(*number)?;
        assert!(writer.verify(&unit, part(archive, &unit))?);
        writer.write((*number, &unit), part(archive, &unit))?;
    }
    Ok(())
}

#[test]
fn a_partial_release_has_everything_but_the_blobs() {
    let folder = Folder::new("all");
    let archive = mixed();
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let store = copy.store();
    assert_eq!(store.releases().unwrap(), [pointer.release]);
    let path = store.file_of(pointer.release);
    assert_eq!(path, store.partial_path(pointer.release));
    let found = fs::read(&path).unwrap();
    assert_eq!(found.len(), archive.len());
    assert_eq!(
        found[..SUPERBLOCK_LEN],
        partial_start(&archive[..SUPERBLOCK_LEN])
    );
    let metadata = superblock(&archive).metadata_range().start as usize;
    assert!(
        found[SUPERBLOCK_LEN..metadata]
            .iter()
            .all(|byte| *byte == 0)
    );
    assert!(found[metadata..] == archive[metadata..]);
    let partial = PartialRelease::open(&path).unwrap();
    assert_eq!(partial.first, archive[..SUPERBLOCK_LEN]);
    let count = partial.presence.count();
    assert_eq!(partial.presence.look(0..count).unwrap().present(), 0);
    assert!(!copy.part_path(pointer.release).exists());
    // The whole one takes its place.
    fs::write(copy.part_path(pointer.release), &archive).unwrap();
    copy.adopt_release(&pointer).unwrap();
    assert_eq!(
        store.file_of(pointer.release),
        store.release_path(pointer.release)
    );
    assert!(!path.exists() && !store.presence_path(pointer.release).exists());
    assert_eq!(store.releases().unwrap(), [pointer.release]);
    // One without blobs has all of it at once.
    let archive = self::archive(&[]);
    let (copy, pointer) = copy_of(&folder.join("empty"), &archive);
    let path = copy.store().partial_path(pointer.release);
    assert_eq!(PartialWriter::open(&path).unwrap().units().count(), 0);
    assert_eq!(PartialRelease::open(&path).unwrap().presence.count(), 0);
}

#[test]
fn another_file_becomes_no_partial_release() {
    let folder = Folder::new("other");
    let archive = mixed();
    let copy = Publisher::open_with(&folder.join("copy"), "node", NOW, Unflushed).unwrap();
    let pointer = pointer(&archive);
    let adopt = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut file = archive.clone();
        change(&mut file);
        fs::write(copy.part_path(pointer.release), file).unwrap();
        copy.adopt_partial(&pointer).unwrap_err()
    };
    let last = archive.len() - 1;
    for error in [
        adopt(&|file| file[last] ^= 1),
        adopt(&|file| file[64] ^= 1),
        adopt(&|file| file[0] ^= 1),
        adopt(&|file| *file = self::archive(&[5000])),
    ] {
        assert!(matches!(error, StoreError::OtherFile(_)), "{error}");
    }
    assert!(copy.store().releases().unwrap().is_empty());
}

/// What is no partial release, or is that of another one, is not opened.
#[test]
fn damaged_files_are_not_opened() {
    let folder = Folder::new("damaged");
    let archive = mixed();
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let partial = copy.store().partial_path(pointer.release);
    let present = copy.store().presence_path(pointer.release);
    let check = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let sound = fs::read(path).unwrap();
        let mut file = sound.clone();
        change(&mut file);
        fs::write(path, file).unwrap();
        for error in [
            PartialWriter::open(&partial).unwrap_err(),
            PartialRelease::open(&partial).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
        assert!(!copy.store().has_partial(&pointer));
        fs::write(path, sound).unwrap();
        PartialWriter::open(&partial).unwrap();
        PartialRelease::open(&partial).unwrap();
        assert!(copy.store().has_partial(&pointer));
    };
    check(&partial, &|file| {
        file[..SUPERBLOCK_LEN].copy_from_slice(&archive[..SUPERBLOCK_LEN])
    });
    check(&partial, &|file| file[100] ^= 1);
    check(&partial, &|file| file.truncate(archive.len() - 1));
    check(&present, &|file| file[0] ^= 1);
    check(&present, &|file| file[20] ^= 1);
    check(&present, &|file| file[50] ^= 1);
    check(&present, &|file| file[56] ^= 1);
    check(&present, &|file| file[70] ^= 1);
    check(&present, &|file| file.push(0));
    check(&present, &|file| file.truncate(4096));
    // All of the metadata is looked at, once.
    let mut file = fs::read(&partial).unwrap();
    let last = file.len() - 1;
    file[last] ^= 1;
    fs::write(&partial, file).unwrap();
    assert!(!copy.store().has_partial(&pointer));
    let other = Pointer {
        size: pointer.size + 1,
        ..pointer.clone()
    };
    assert!(!copy.store().has_partial(&other));
}

#[test]
fn units_are_found_across_blocks() {
    let folder = Folder::new("blocks");
    let archive = archive(&vec![64; 3 * LOOK_MAX as usize + 5]);
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let path = copy.store().partial_path(pointer.release);
    let mut writer = PartialWriter::open(&path).unwrap();
    let presence = PartialRelease::open(&path).unwrap().presence;
    let count = writer.units().count();
    assert_eq!((presence.count(), count), (count, 3 * LOOK_MAX + 5));
    let present = |range: Range<u64>| presence.look(range).unwrap().present();
    assert_eq!(present(0..count), 0);
    add(&mut writer, &archive, 400..500).unwrap();
    add(&mut writer, &archive, LOOK_MAX * 2..count).unwrap();
    assert_eq!(present(399..500), 0);
    assert_eq!(present(400..500), 100);
    assert_eq!(present(400..501), 100);
    assert_eq!(present(450..450), 0);
    assert_eq!(present(LOOK_MAX * 2..u64::MAX), LOOK_MAX, "at most so many");
    assert_eq!(present(count - 1..count), 1);
    assert_eq!(present(count..u64::MAX), 0);
    assert_eq!(present(u64::MAX..u64::MAX), 0);
    // All of it is still there after a restart.
    let again = PartialWriter::open(&path).unwrap();
    for unit in 0..count {
        assert_eq!(again.has(unit), writer.has(unit), "{unit}");
    }
}

/// What is removed gives its pages back, and no byte of what stays.
#[test]
fn a_hole_has_no_byte_of_a_neighbour() {
    let folder = Folder::new("holes");
    let archive = mixed();
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let path = copy.store().partial_path(pointer.release);
    let mut writer = PartialWriter::open(&path).unwrap();
    let count = writer.units().count();
    let empty = writer.data().allocated().unwrap();
    let file = File::open(&path).unwrap();
    let is_sound = |writer: &PartialWriter| {
        (0..count)
            .filter(|unit| writer.has(*unit))
            .for_each(|number| {
                let unit = writer.unit(number).unwrap();
                let mut found = vec![0; unit.len as usize];
                file.read_at(&mut found, unit.offset).unwrap();
                assert!(found == part(&archive, &unit), "{unit:?}");
            });
    };
    let mut numbers = Numbers(3);
    for _ in 0..40 {
        let some: Vec<_> = (0..count).filter(|_| numbers.below(3) == 0).collect();
        let lacking: Vec<_> = some.iter().copied().filter(|it| !writer.has(*it)).collect();
        write(&mut writer, &archive, &lacking).unwrap();
        // Others go before the written ones are on the disk.
        let some: Vec<_> = (0..count)
            .filter(|it| writer.has(*it) && numbers.below(3) == 0)
            .collect();
        writer.remove(&some).unwrap();
        writer.set(lacking).unwrap();
        is_sound(&writer);
    }
    let all: Vec<_> = (0..count).filter(|it| writer.has(*it)).collect();
    writer.remove(&all).unwrap();
    // The file system's own list of places may have grown by a block.
    let left = writer.data().allocated().unwrap();
    assert!(left <= empty + 4096, "{left} {empty}");
}

/// Readers at work while units come and go: one stage of some reader before and after each change of a file.
struct Readers {
    archive: Vec<u8>,
    presence: Presence,
    file: File,
    units: Vec<Unit>,
    numbers: Numbers,
    reading: Vec<Reading>,
    /// How many have read a unit that was there until the end, and how many one that went.
    right: u64,
    gone: u64,
}

enum Reading {
    Looked(u64, Look),
    Read(u64, Look, Vec<u8>),
}

impl Readers {
    fn step(&mut self) {
        for _ in 0..self.numbers.below(6) {
            if self.reading.len() < 20 {
                let unit = self.numbers.below(self.units.len() as u64);
                let look = self.presence.look(unit..unit + 1).unwrap();
                if look.present() == 1 {
                    self.reading.push(Reading::Looked(unit, look));
                }
            }
            if self.reading.is_empty() {
                continue;
            }
            let at = self.numbers.below(self.reading.len() as u64) as usize;
            match self.reading.swap_remove(at) {
                Reading::Looked(number, look) => {
                    let unit = self.units[number as usize];
                    let mut found = vec![0; unit.len as usize];
                    self.file.read_at(&mut found, unit.offset).unwrap();
                    self.reading.push(Reading::Read(number, look, found));
                }
                Reading::Read(number, look, found) => {
                    let unit = self.units[number as usize];
                    match self.presence.is_still(&look).unwrap() {
                        true => {
                            assert!(found == part(&self.archive, &unit), "{unit:?}");
                            self.right += 1;
                        }
                        false => self.gone += 1,
                    }
                }
            }
        }
    }
}

/// A file whose readers see every state.
struct Watched(File, Arc<Mutex<Readers>>);

impl Watched {
    fn step<T>(&self, change: impl FnOnce(&File) -> T) -> T {
        self.1.lock().unwrap().step();
        let changed = change(&self.0);
        self.1.lock().unwrap().step();
        changed
    }
}

impl SparseFile for Watched {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        // In two parts, as far as a reader can see.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.step(|file| file.write_at(first, at))?;
        self.step(|file| file.write_at(second, at + first.len() as u64))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn identity(&self) -> io::Result<[u8; 24]> {
        self.0.identity()
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        self.step(|file| file.punch(range))
    }

    fn allocated(&self) -> io::Result<u64> {
        self.0.allocated()
    }
}

#[test]
fn what_a_reader_takes_for_right_is_right() {
    let folder = Folder::new("readers");
    let archive = mixed();
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let path = copy.store().partial_path(pointer.release);
    let partial = PartialRelease::open(&path).unwrap();
    let writer = PartialWriter::open(&path).unwrap();
    let count = writer.units().count();
    let readers = Arc::new(Mutex::new(Readers {
        archive: archive.clone(),
        presence: partial.presence,
        file: partial.file,
        units: (0..count).map(|unit| writer.unit(unit).unwrap()).collect(),
        numbers: Numbers(7),
        reading: Vec::new(),
        right: 0,
        gone: 0,
    }));
    let open = |path: &Path| {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len();
        (Watched(file, Arc::clone(&readers)), len)
    };
    let (data, len) = open(&path);
    let (bits, bits_len) = open(&copy.store().presence_path(pointer.release));
    let mut writer = PartialWriter::of(data, len, bits, bits_len).unwrap();
    let mut numbers = Numbers(5);
    for _ in 0..100 {
        let lacking: Vec<_> = (0..count)
            .filter(|it| !writer.has(*it) && numbers.below(2) == 0)
            .collect();
        add(&mut writer, &archive, lacking).unwrap();
        let some: Vec<_> = (0..count)
            .filter(|it| writer.has(*it) && numbers.below(4) == 0)
            .collect();
        writer.remove(&some).unwrap();
    }
    let readers = readers.lock().unwrap();
    assert!(
        readers.right > 1000 && readers.gone > 100,
        "{} {}",
        readers.right,
        readers.gone
    );
}

/// The files of a partial release, whose identity is that of a [`SimFile`].
fn simulated(copy: &Publisher<Unflushed>, pointer: &Pointer) -> [Vec<u8>; 2] {
    let data = fs::read(copy.store().partial_path(pointer.release)).unwrap();
    [data, anonymous(copy, pointer)]
}

/// What is present of a release, of a file whose identity is zeros.
fn anonymous(copy: &Publisher<Unflushed>, pointer: &Pointer) -> Vec<u8> {
    let mut present = fs::read(copy.store().presence_path(pointer.release)).unwrap();
    present[56..80].fill(0);
    present
}

#[test]
fn after_a_loss_of_power_a_unit_that_is_there_is_right() {
    let folder = Folder::new("power");
    let archive = mixed();
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let files = simulated(&copy, &pointer);
    let mut numbers = Numbers(11);
    let (mut cut_at, mut found) = (0, 0);
    loop {
        let left = Arc::new(Mutex::new(cut_at));
        let [data, bits] = files.each_ref().map(|bytes| SimFile::new(bytes, &left));
        let platters = [&data, &bits].map(|file| Arc::clone(&file.platter));
        let lens = files.each_ref().map(|bytes| bytes.len() as u64);
        let mut writer = PartialWriter::of(data, lens[0], bits, lens[1]).unwrap();
        let ended = work(&mut writer, &archive);
        for _ in 0..3 {
            let [data, bits] = platters.each_ref().map(|platter| {
                let survivor = platter.lock().unwrap().survivor(&mut numbers);
                SimFile::new(&survivor, &left)
            });
            let after = PartialWriter::of(data, lens[0], bits, lens[1]).unwrap();
            for number in (0..after.units().count()).filter(|it| after.has(*it)) {
                let unit = after.unit(number).unwrap();
                let mut bytes = vec![0; unit.len as usize];
                after.data().read_at(&mut bytes, unit.offset).unwrap();
                assert!(bytes == part(&archive, &unit), "{unit:?} after {cut_at}");
                found += 1;
            }
        }
        match ended {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
        }
        cut_at += 1;
    }
    assert!(cut_at > 100 && found > 1000, "{cut_at} {found}");
}

/// A unit whose bit could not be cleared keeps its bytes, whatever goes after it.
#[test]
fn a_unit_that_could_not_be_removed_is_right() {
    let folder = Folder::new("removed");
    // The last unit of the first block of bits, and the first one of the next: in one page.
    let mut lens = vec![64; LOOK_MAX as usize + 2];
    lens[0] = 2000;
    let archive = archive(&lens);
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let files = simulated(&copy, &pointer);
    let left = Arc::new(Mutex::new(u64::MAX));
    let [data, bits] = files.each_ref().map(|bytes| SimFile::new(bytes, &left));
    let platters = [&data, &bits].map(|file| Arc::clone(&file.platter));
    let lens = files.each_ref().map(|bytes| bytes.len() as u64);
    let mut writer = PartialWriter::of(data, lens[0], bits, lens[1]).unwrap();
    let pair = [LOOK_MAX - 1, LOOK_MAX];
    add(&mut writer, &archive, pair).unwrap();
    *left.lock().unwrap() = 0;
    writer.remove(&pair[..1]).unwrap_err();
    *left.lock().unwrap() = u64::MAX;
    writer.remove(&pair[1..]).unwrap();
    let [data, bits] = platters
        .each_ref()
        .map(|it| SimFile::new(&it.lock().unwrap().seen, &left));
    let found = PartialWriter::of(data, lens[0], bits, lens[1]).unwrap();
    assert_eq!(pair.map(|unit| found.has(unit)), [true, false]);
    let unit = found.unit(pair[0]).unwrap();
    let mut bytes = [0; 64];
    found.data().read_at(&mut bytes, unit.offset).unwrap();
    assert!(bytes == part(&archive, &unit));
}

/// Nothing is known of a copy of a file, nor of another one under its name, whatever another file says of it.
#[test]
fn a_copy_of_a_partial_release_has_nothing() {
    let folder = Folder::new("copied");
    let archive = mixed();
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let partial = copy.store().partial_path(pointer.release);
    let present = copy.store().presence_path(pointer.release);
    let is_refused = || {
        for error in [
            PartialWriter::open(&partial).unwrap_err(),
            PartialRelease::open(&partial).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    };
    // A tool copies the data, then units come, then it copies the rest.
    let copied = folder.join("copied");
    fs::copy(&partial, &copied).unwrap();
    let mut writer = PartialWriter::open(&partial).unwrap();
    add(&mut writer, &archive, [0, 1]).unwrap();
    fs::rename(&copied, &partial).unwrap();
    is_refused();
    // Made anew, it is that of the new file, and not of the one that is open.
    let old_present = fs::read(&present).unwrap();
    fs::write(copy.part_path(pointer.release), &archive).unwrap();
    copy.adopt_partial(&pointer).unwrap();
    let again = PartialWriter::open(&partial).unwrap();
    assert!(!again.has(0) && PartialRelease::open(&partial).is_ok());
    fs::write(&present, old_present).unwrap();
    is_refused();
}

/// Units come, go, and come again, in part next to each other.
fn work(writer: &mut PartialWriter<SimFile>, archive: &[u8]) -> io::Result<()> {
    let count = writer.units().count();
    add(writer, archive, [0, 1, 2, 5])?;
    add(writer, archive, 7..12)?;
    writer.remove(&[1, 2, 8])?;
    add(writer, archive, [2, 3, 4, 6, 8])?;
    writer.remove(&[0, 2, 3, 10, 11])?;
    add(
        writer,
        archive,
        (0..count).filter(|it| ![4, 5, 6, 7, 8, 9].contains(it)),
    )?;
    writer.remove(&(0..count).collect::<Vec<_>>())?;
    add(writer, archive, [0, count - 1])
}

/// The presence of an earlier file of the same release never counts for a new one.
#[test]
fn a_loss_of_power_leaves_no_foreign_presence() {
    let folder = Folder::new("foreign");
    let archive = archive(&[5000, 6000]);
    let root = folder.join("copy");
    let (copy, pointer) = copy_of(&root, &archive);
    let partial = copy.store().partial_path(pointer.release);
    add(
        &mut PartialWriter::open(&partial).unwrap(),
        &archive,
        [0, 1],
    )
    .unwrap();
    fs::remove_file(&partial).unwrap();
    fs::write(copy.part_path(pointer.release), &archive).unwrap();
    drop(copy);
    let mut adopted = 0;
    let states = cut_power(
        &root,
        &folder.join("after"),
        |recorder| {
            let copy = Publisher::open_with(&root, "node", NOW, recorder).unwrap();
            copy.adopt_partial(&pointer).unwrap();
        },
        &mut |after, is_after| {
            let Ok(store) = Store::open(after, None) else {
                return;
            };
            let is_there = store.partial_path(pointer.release).exists();
            assert!(is_there || !is_after);
            if is_there {
                let presence = fs::read(store.presence_path(pointer.release)).unwrap();
                assert!(presence[4096..].iter().all(|byte| *byte == 0));
                adopted += 1;
            }
        },
    );
    assert!(states > 5 && adopted > 0, "{states} {adopted}");
}

#[test]
fn a_release_that_is_no_longer_kept_goes_with_its_presence() {
    let folder = Folder::new("pruned");
    let archive = archive(&[5000]);
    let (copy, pointer) = copy_of(&folder.join("copy"), &archive);
    let void = Pointer {
        serial: 2,
        replaces: Some(1),
        release: ReleaseId::of_build_id(&[7; 32]),
        void: vec![pointer.release],
        ..pointer.clone()
    };
    assert!(copy.bytes_here(void.release) > 0);
    let pruned = copy.prune(&void, NOW);
    assert_eq!(pruned.releases, [pointer.release]);
    assert!(!copy.store().presence_path(pointer.release).exists());
    assert!(copy.store().releases().unwrap().is_empty());
}

/// The bytes of [`sample::change`] for a release with some units.
fn sample_of(archive: &[u8], units: &[u64], folder: &Path) -> Vec<u8> {
    let (copy, pointer) = copy_of(folder, archive);
    let path = copy.store().partial_path(pointer.release);
    let mut writer = PartialWriter::open(&path).unwrap();
    writer.set(units.iter().copied()).unwrap();
    let present = anonymous(&copy, &pointer);
    let metadata = superblock(archive).metadata_range().start as usize;
    let len = u16::try_from(present.len()).unwrap().to_le_bytes();
    [
        &len,
        present.as_slice(),
        &archive[..SUPERBLOCK_LEN],
        &archive[metadata..],
    ]
    .concat()
}

#[test]
fn no_bytes_lead_a_change_elsewhere() {
    let folder = Folder::new("changed");
    let mut numbers = Numbers(13);
    for (name, archive) in [("mixed", mixed()), ("small", self::archive(&[5000, 6000]))] {
        let sound = sample_of(&archive, &[0, 1], &folder.join(name));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/partial");
            fs::create_dir_all(seeds).unwrap();
            fs::write(Path::new(seeds).join(name), &sound).unwrap();
        }
        sample::change(&sound);
        for _ in 0..300 {
            let mut changed = sound.clone();
            for _ in 0..=numbers.below(3) {
                // Mostly where places are.
                let parts = [2..4210, 4210..4210 + 600, 4210 + 4096..sound.len() as u64];
                let part = &parts[numbers.below(3) as usize];
                let at = part.start + numbers.below(part.end - part.start);
                changed[at as usize] = numbers.next() as u8;
            }
            sample::change(&changed);
        }
    }
}
