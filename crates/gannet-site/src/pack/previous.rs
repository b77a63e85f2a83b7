//! Archives of earlier builds, whose contents need not be read, compressed or stored again.
//!
//! An archive records the bytes of a content in each coding, and its recipe the encoders. Encoders
//! are deterministic: the same version produces the same bytes from the same content, so that the
//! new archive is the same as without the old one.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gannet_archive::{
    Coding, DigestTable, GroupHash, Inventory, ReadAt, SUPERBLOCK_LEN, SectionKind, Superblock,
    TreeHasher, Units, decode, of_metadata, tree_root,
};
use gannet_io::named_file;

use super::Compressible;
use super::encoders::Encoder;
use super::limits::{AHEAD_COUNT, COPY_CHUNK, READ_AHEAD, RECIPE_LEN_MAX};
use super::recipe::Recipe;
use super::stamps::{Stamp, Stamps};
use crate::archive::ArchiveFile;

/// Stored bytes of an earlier archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptBlob<'a> {
    pub(super) archive: &'a PreviousArchive,
    number: u32,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Whether it is in the metadata region.
    pub(super) is_tiny: bool,
    pub(super) digest: &'a [u8; 32],
    /// The only stored coding, with its offset and length, if the bytes are not stored uncoded.
    coded: Option<(Coding, u64, u64)>,
}

/// What is known of a content in one coding.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    /// Its bytes are stored.
    Kept(KeptBlob<'a>),
    /// It was tried and not worth storing.
    NotWorth,
}

/// The archives of earlier builds that could be opened.
#[derive(Debug, Default)]
pub(super) struct Previous {
    archives: Vec<PreviousArchive>,
}

/// An archive of an earlier build.
#[derive(Debug)]
pub(super) struct PreviousArchive {
    pub(super) file: Arc<File>,
    /// Identifies it among all archives opened by this process.
    number: u64,
    /// It has not been written to since it was packed, so that its bytes need no verification.
    is_trusted: bool,
    recipe: Recipe,
    inventory: Inventory,
    contents: PreviousBlobs,
    /// Where its trees are; `None` for an archive of an earlier version.
    units: Option<Units>,
}

/// The blobs of each content's codings.
#[derive(Debug, Default)]
struct PreviousBlobs {
    numbers: Vec<[u32; 4]>,
    /// Indexed by digests of uncoded contents.
    by_digest: DigestTable,
}

/// The number of archives opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Nothing is known of this coding.
const UNKNOWN: u32 = u32::MAX;
/// This coding was not worth storing.
const NOT_WORTH: u32 = u32::MAX - 1;

impl Previous {
    /// Opens those of `paths` that are valid archives with a recipe; others are ignored.
    pub(super) fn open<'p>(
        paths: impl IntoIterator<Item = &'p Path>,
        compressible: &Compressible,
        stamps: &Stamps,
    ) -> Self {
        let archives = paths
            .into_iter()
            .filter_map(|path| PreviousArchive::open(path, compressible, stamps))
            .collect();
        Self { archives }
    }

    /// The uncoded bytes of a content.
    pub(super) fn identity(&self, digest: &[u8; 32]) -> Option<KeptBlob<'_>> {
        self.archives.iter().find_map(|archive| {
            let numbers = archive.contents.get(digest, &archive.inventory)?;
            archive.blob(numbers[Coding::Identity as usize])
        })
    }

    /// The known outcome of an encoder for a content.
    pub(super) fn coded(&self, digest: &[u8; 32], encoder: Encoder) -> Option<Known<'_>> {
        self.archives.iter().find_map(|archive| {
            if !archive.recipe.has(encoder) {
                return None;
            }
            let numbers = archive.contents.get(digest, &archive.inventory)?;
            match numbers[encoder.coding() as usize] {
                NOT_WORTH => Some(Known::NotWorth),
                number => archive.blob(number).map(Known::Kept),
            }
        })
    }
}

impl PreviousBlobs {
    /// The blobs of a content by its uncoded digest.
    fn get(&self, digest: &[u8; 32], inventory: &Inventory) -> Option<&[u32; 4]> {
        let number = self.find(digest, inventory)?;
        self.numbers.get(number as usize)
    }

    fn find(&self, digest: &[u8; 32], inventory: &Inventory) -> Option<u32> {
        let has_it = |number: u32| {
            let numbers = self.numbers.get(number as usize);
            let found = numbers.and_then(|found| inventory.digest(found[IDENTITY]));
            found == Some(digest)
        };
        self.by_digest.find(digest, has_it)
    }

    /// Merges an entry. Blob numbers are smaller than the marks, so the minimum of several findings
    /// is the most informative.
    fn add(&mut self, inventory: &Inventory, variants: &[(Coding, u32)], absent: u32) {
        let mut numbers = [absent; 4];
        for (coding, number) in variants {
            numbers[*coding as usize] = *number;
        }
        let Some(digest) = inventory.digest(numbers[IDENTITY]) else {
            return;
        };
        let known = self.find(digest, inventory);
        match known.and_then(|known| self.numbers.get_mut(known as usize)) {
            Some(known) => {
                for (known, found) in known.iter_mut().zip(numbers) {
                    *known = (*known).min(found);
                }
            }
            None => {
                self.by_digest.insert(self.numbers.len() as u32, digest);
                self.numbers.push(numbers);
            }
        }
    }
}

const IDENTITY: usize = Coding::Identity as usize;

impl PreviousArchive {
    fn open(path: &Path, compressible: &Compressible, stamps: &Stamps) -> Option<Self> {
        let file = named_file::open(path).ok()?;
        let stamp = Stamp::of_archive(&file.metadata().ok()?);
        let superblock = superblock_of(&file)?;
        let is_trusted = stamps.get(&stamp).as_ref() == Some(superblock.build_id());
        let opened = match is_trusted {
            true => None,
            false => Some(ArchiveFile::open(path).ok()?),
        };
        let mut in_file = |at: u64, buffer: &mut [u8]| file.read_exact_at(buffer, at);
        let mut in_memory;
        let read: ReadAt<'_> = match &opened {
            None => &mut in_file,
            Some(opened) => {
                // A write between the two openings changes the stamp.
                let is_same = Stamp::of_archive(&file.metadata().ok()?) == stamp
                    && opened.archive().superblock() == &superblock;
                if !is_same {
                    return None;
                }
                in_memory = of_metadata(&superblock, opened.archive().metadata());
                &mut in_memory
            }
        };
        let recipe = recipe_of(&superblock, read)?;
        let units = Units::read(&superblock, read).ok();
        let judges_alike = recipe.has_rule(compressible);
        let mut contents = PreviousBlobs::default();
        let mut absent = Absent::default();
        let inventory = Inventory::read(&superblock, read, &mut |inventory, held| {
            let absent = absent.of(held.content_type, judges_alike, compressible);
            contents.add(inventory, held.variants, absent);
        });
        Some(Self {
            inventory: inventory.ok()?,
            file: Arc::new(file),
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            is_trusted,
            recipe,
            contents,
            units,
        })
    }

    /// Reads bytes of the archive, through a buffer of this thread if they are few: the next
    /// content is probably adjacent.
    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if len > READ_AHEAD / 16 {
            let mut bytes = vec![0; len];
            self.file.read_exact_at(&mut bytes, offset)?;
            return Ok(bytes);
        }
        let part = |one: &Ahead| {
            let start = usize::try_from(offset.checked_sub(one.start)?).ok()?;
            let found = one.bytes.get(start..start.checked_add(len)?)?;
            (one.archive == self.number).then(|| found.to_vec())
        };
        AHEAD.with_borrow_mut(|all| {
            if let Some(found) = all.iter().find_map(part) {
                return Ok(found);
            }
            let oldest = all.drain((AHEAD_COUNT - 1).min(all.len())..).next();
            let mut bytes = oldest.map_or_else(Vec::new, |oldest| oldest.bytes);
            bytes.resize(READ_AHEAD, 0);
            let count = read_some(&self.file, &mut bytes, offset)?;
            bytes.truncate(count);
            let one = Ahead {
                archive: self.number,
                start: offset,
                bytes,
            };
            let found = part(&one);
            all.insert(0, one);
            found.ok_or(io::ErrorKind::UnexpectedEof.into())
        })
    }

    fn blob(&self, number: u32) -> Option<KeptBlob<'_>> {
        let blob = self.inventory.blob(number)?;
        Some(KeptBlob {
            archive: self,
            number,
            offset: blob.offset,
            len: blob.len,
            is_tiny: blob.is_tiny,
            digest: self.inventory.digest(number)?,
            coded: match blob.coded {
                None => None,
                Some((coding, number)) => {
                    let coded = self.inventory.blob(number)?;
                    Some((coding, coded.offset, coded.len))
                }
            },
        })
    }
}

/// The superblock of an archive; `None` for other files.
fn superblock_of(file: &File) -> Option<Superblock> {
    let mut first = [0; SUPERBLOCK_LEN];
    file.read_exact_at(&mut first, 0).ok()?;
    Superblock::parse(&first, file.metadata().ok()?.len()).ok()
}

fn recipe_of(superblock: &Superblock, read: ReadAt<'_>) -> Option<Recipe> {
    let mut sections = superblock.sections().iter();
    let section = sections.find(|section| section.kind == SectionKind::Recipe)?;
    let len = usize::try_from(section.len).ok();
    let mut bytes = vec![0; len.filter(|len| *len <= RECIPE_LEN_MAX)?];
    read(section.offset, &mut bytes).ok()?;
    Recipe::parse(&bytes)
}

/// The meaning of a missing coding: it was tried only if the content type is compressible.
#[derive(Default)]
struct Absent {
    /// The last result: most entries have the same type as the one before.
    last: Option<(Vec<u8>, u32)>,
}

impl Absent {
    fn of(&mut self, content_type: &[u8], judges_alike: bool, compressible: &Compressible) -> u32 {
        if let Some((last, answer)) = &self.last
            && last == content_type
        {
            return *answer;
        }
        let text = str::from_utf8(content_type).unwrap_or_default();
        // Unknown types are tried by length: they count as untried.
        let answer = if judges_alike && compressible.fits(text, u64::MAX) {
            NOT_WORTH
        } else {
            UNKNOWN
        };
        self.last = Some((content_type.to_vec(), answer));
        answer
    }
}

/// Bytes of an archive read ahead by a thread.
struct Ahead {
    archive: u64,
    start: u64,
    bytes: Vec<u8>,
}

thread_local! {
    /// The most recent first.
    static AHEAD: RefCell<Vec<Ahead>> = RefCell::default();
}

/// Fills the buffer, or up to the end of the file.
fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl KeptBlob<'_> {
    /// Whether its bytes can be copied directly: they need no verification, and are stored uncoded.
    pub(super) fn is_ready(&self) -> bool {
        self.archive.is_trusted && self.coded.is_none()
    }

    /// The bytes, if they match their digest.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        let (offset, len) = match self.coded {
            Some((_, offset, len)) => (offset, len),
            None => (self.offset, self.len),
        };
        let mut bytes = self.archive.read(offset, usize::try_from(len).ok()?).ok()?;
        if let Some((coding, ..)) = self.coded {
            bytes = decode(coding, &bytes, self.len).ok()?;
        }
        let is_sound = self.archive.is_trusted || blake3::hash(&bytes).as_bytes() == self.digest;
        is_sound.then_some(bytes)
    }

    /// Whether the bytes match their digest; reads them only if the archive may have been modified.
    pub(super) fn is_sound(&self) -> bool {
        self.archive.is_trusted || self.hashes().is_ok_and(|digest| digest == *self.digest)
    }

    /// The tree of a long blob.
    ///
    /// # Errors
    /// The archive cannot be read, or was changed.
    pub(super) fn tree(&self) -> io::Result<Vec<GroupHash>> {
        let is_right = |tree: &Vec<_>| tree_root(tree, self.len).as_ref() == Some(self.digest);
        let file = &self.archive.file;
        let mut read = |at: u64, buffer: &mut [u8]| file.read_exact_at(buffer, at);
        let units = self.archive.units.as_ref();
        let tree = units.and_then(|units| units.tree(self.number, &mut read).ok());
        if let Some(tree) = tree.filter(is_right) {
            return Ok(tree);
        }
        let mut hasher = TreeHasher::default();
        self.pass(&mut |chunk| hasher.update(chunk))?;
        let (_, _, tree) = hasher.finish();
        Some(tree)
            .filter(is_right)
            .ok_or(io::ErrorKind::InvalidData.into())
    }

    fn hashes(&self) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        self.pass(&mut |chunk| {
            hasher.update(chunk);
        })?;
        Ok(*hasher.finalize().as_bytes())
    }

    /// Passes its bytes on in pieces.
    fn pass(&self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut chunk = vec![0; COPY_CHUNK];
        let mut offset = self.offset;
        let end = self.offset + self.len;
        while offset < end {
            let len = usize::try_from(end - offset).unwrap_or(COPY_CHUNK);
            let part = &mut chunk[..len.min(COPY_CHUNK)];
            self.archive.file.read_exact_at(part, offset)?;
            take(part);
            offset += part.len() as u64;
        }
        Ok(())
    }
}
