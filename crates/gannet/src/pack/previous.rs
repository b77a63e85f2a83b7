//! Archives of earlier builds: what they hold need not be read, compressed or stored anew.
//!
//! An archive tells which bytes a content has in each coding, and its recipe tells by which
//! encoders. What an encoder of the same name and release has made from the same content is what it
//! would make again, so the new archive has the same bytes as without the old one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use gannet_archive::{Archive, Coding, Entry, EntryKind, SectionKind, inflate};

use super::Compressible;
use super::encoders::Encoder;
use super::limits::{AHEAD_COUNT, COPY_CHUNK, READ_AHEAD};
use super::recipe::Recipe;
use super::stamps::{Stamp, Stamps};
use crate::archive_commands::ArchiveFile;

/// Stored bytes in an earlier archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptBlob<'a> {
    pub(super) archive: &'a PreviousArchive,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) digest: &'a [u8; 32],
    /// They are stored as gzip alone, which is at this offset and so long.
    gzip: Option<(u64, u64)>,
}

/// What is known of a content in one coding.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    /// Its bytes are there.
    Kept(KeptBlob<'a>),
    /// It was tried and did not pay.
    NotWorth,
}

/// The archives of earlier builds that could be opened.
#[derive(Debug, Default)]
pub(super) struct Previous {
    archives: Vec<PreviousArchive>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct PreviousArchive {
    pub(super) file: File,
    /// Tells it from others that this process has opened.
    number: u64,
    /// Nothing has written to it since it was packed, so its bytes need no check.
    is_trusted: bool,
    recipe: Recipe,
    blobs: Vec<BlobPlace>,
    /// For each content, by its digest without coding, the blobs of its codings.
    contents: HashMap<[u8; 32], [u32; 4]>,
}

#[derive(Clone, Copy, Debug)]
struct BlobPlace {
    offset: u64,
    len: u64,
    digest: [u8; 32],
    /// The number of the blob that has it as gzip, and is all there is of it.
    gzip: Option<u32>,
}

/// How many archives were opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Nothing is known of this coding.
const UNKNOWN: u32 = u32::MAX;
/// This coding did not pay.
const NOT_WORTH: u32 = u32::MAX - 1;

impl Previous {
    /// Opens those of `paths` that are sound archives with a recipe; others are of no use.
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

    /// The bytes of a content without coding.
    pub(super) fn identity(&self, digest: &[u8; 32]) -> Option<KeptBlob<'_>> {
        self.archives.iter().find_map(|archive| {
            let numbers = archive.contents.get(digest)?;
            archive.blob(numbers[Coding::Identity as usize])
        })
    }

    /// What became of a content under an encoder.
    pub(super) fn coded(&self, digest: &[u8; 32], encoder: Encoder) -> Option<Known<'_>> {
        self.archives.iter().find_map(|archive| {
            if !archive.recipe.has(encoder) {
                return None;
            }
            match archive.contents.get(digest)?[encoder.coding() as usize] {
                NOT_WORTH => Some(Known::NotWorth),
                number => archive.blob(number).map(Known::Kept),
            }
        })
    }
}

impl PreviousArchive {
    fn open(path: &Path, compressible: &Compressible, stamps: &Stamps) -> Option<Self> {
        let file = File::open(path).ok()?;
        let stamp = Stamp::of_archive(&file.metadata().ok()?);
        let opened = ArchiveFile::open(path).ok()?;
        let archive = opened.archive();
        // A write between the two openings shows in the stamp.
        if Stamp::of_archive(&file.metadata().ok()?) != stamp {
            return None;
        }
        let build_id = archive.superblock().build_id();
        let recipe = Recipe::parse(archive.section(SectionKind::Recipe)?)?;
        let judges_alike = recipe.has_rule(compressible);
        let mut contents = HashMap::new();
        for entry in archive.entries() {
            if let Some((digest, numbers)) = contents_of(&entry, judges_alike, compressible) {
                let known = contents.entry(digest).or_insert(numbers);
                for (known, found) in known.iter_mut().zip(numbers) {
                    *known = (*known).min(found);
                }
            }
        }
        Some(Self {
            file,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            is_trusted: stamps.get(&stamp).as_ref() == Some(build_id),
            recipe,
            blobs: blobs(archive),
            contents,
        })
    }

    /// Bytes of the archive, by a buffer of this thread if they are few: those of the next content
    /// are beside them.
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
            all.truncate(AHEAD_COUNT - 1);
            let mut bytes = vec![0; READ_AHEAD];
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
        let place = self.blobs.get(number as usize)?;
        Some(KeptBlob {
            archive: self,
            offset: place.offset,
            len: place.len,
            digest: &place.digest,
            gzip: match place.gzip {
                None => None,
                Some(gzip) => {
                    let gzip = self.blobs.get(gzip as usize)?;
                    Some((gzip.offset, gzip.len))
                }
            },
        })
    }
}

/// What a thread has read of an archive beyond what it needed.
struct Ahead {
    archive: u64,
    start: u64,
    bytes: Vec<u8>,
}

thread_local! {
    /// The latest first.
    static AHEAD: RefCell<Vec<Ahead>> = RefCell::default();
}

/// Fills the buffer as far as the file goes.
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

fn blobs(archive: &Archive<Vec<u8>>) -> Vec<BlobPlace> {
    let place = |blob: gannet_archive::Blob<'_>| BlobPlace {
        offset: blob.offset,
        len: blob.len,
        // A digest has 32 bytes; if not, nothing has it.
        digest: blob.digest.try_into().unwrap_or_default(),
        gzip: blob.gzip,
    };
    archive.blobs().map(place).collect()
}

/// A content and the numbers of its blobs. Numbers of blobs are smaller than the marks, so the
/// least of several findings says most.
fn contents_of(
    entry: &Entry<'_>,
    judges_alike: bool,
    compressible: &Compressible,
) -> Option<([u8; 32], [u32; 4])> {
    if entry.kind() != EntryKind::Content {
        return None;
    }
    let digest = entry.select(Coding::Identity.bit())?.digest();
    let content_type = str::from_utf8(entry.content_type()).unwrap_or_default();
    // What is not there was tried only if its type is one that is tried.
    let absent = if judges_alike && compressible.fits(content_type) {
        NOT_WORTH
    } else {
        UNKNOWN
    };
    let mut numbers = [absent; 4];
    for variant in entry.variants() {
        numbers[variant.coding() as usize] = variant.blob_number();
    }
    Some((digest.try_into().ok()?, numbers))
}

impl KeptBlob<'_> {
    /// The bytes, if they are what they should be.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        let (offset, len) = self.gzip.unwrap_or((self.offset, self.len));
        let mut bytes = self.archive.read(offset, usize::try_from(len).ok()?).ok()?;
        if self.gzip.is_some() {
            bytes = inflate(&bytes, self.len).ok()?;
        }
        let is_sound = self.archive.is_trusted || blake3::hash(&bytes).as_bytes() == self.digest;
        is_sound.then_some(bytes)
    }

    /// Whether the bytes are what they should be; reads them only if somebody may have written to
    /// the archive.
    pub(super) fn is_sound(&self) -> bool {
        self.archive.is_trusted || self.hashes().is_ok_and(|digest| digest == *self.digest)
    }

    fn hashes(&self) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0; COPY_CHUNK];
        let mut offset = self.offset;
        let end = self.offset + self.len;
        while offset < end {
            let len = usize::try_from(end - offset).unwrap_or(COPY_CHUNK);
            let part = &mut chunk[..len.min(COPY_CHUNK)];
            self.archive.file.read_exact_at(part, offset)?;
            hasher.update(part);
            offset += part.len() as u64;
        }
        Ok(*hasher.finalize().as_bytes())
    }
}
