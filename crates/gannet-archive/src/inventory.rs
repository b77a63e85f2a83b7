//! The stored content of an archive, without how it is served: for packing the next archive.

use std::collections::HashMap;
use std::io;

use gannet_http::semantics::coding::Coding;

use crate::archive::Blob;
use crate::layout::{blob, entry, slice, u8_at, u32_at, u64_at, variant};
use crate::limits::{VALUE_LEN_MAX, VARIANT_COUNT_MAX};
use crate::superblock::{Section, SectionKind, Superblock};

/// The stored bytes of an archive, and their types and codings.
///
/// It is read from the few sections needed, a piece at a time, and nothing is checked: that takes a
/// fraction of the time and the memory of opening the archive. Invalid numbers are left out. A
/// caller that reuses bytes must know by other means that the archive is intact, or verify the
/// digests.
#[derive(Debug, Default)]
pub struct Inventory {
    metadata_offset: u64,
    places: Vec<[u8; blob::LEN]>,
    digests: Vec<[u8; blob::DIGEST_LEN]>,
}

/// The content of one entry.
#[derive(Clone, Copy, Debug)]
pub struct HeldContent<'i> {
    /// The content type.
    pub content_type: &'i [u8],
    /// The codings in which it is stored, with the numbers of their blobs.
    pub variants: &'i [(Coding, u32)],
}

/// Fills a buffer from the archive's file at an offset.
pub type ReadAt<'r> = &'r mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>;

impl Inventory {
    /// Reads it, and passes the contents of all entries to `found`, in the order of the entries:
    /// content with several names is passed several times.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read(
        superblock: &Superblock,
        read: ReadAt<'_>,
        found: &mut dyn FnMut(&Self, HeldContent<'_>),
    ) -> io::Result<Self> {
        let inventory = Self::of_blobs(superblock, read)?;
        let known = inventory.places.len();
        let variants = variants(superblock, read)?;
        let strings = section(superblock, SectionKind::Strings);
        let mut content_types: HashMap<(u64, usize), Vec<u8>> = HashMap::new();
        let mut some = vec![0; records_at_once(entry::LEN)];
        let mut held = Vec::new();
        for (at, len) in pieces(section(superblock, SectionKind::Entries), some.len()) {
            read(at, &mut some[..len])?;
            for record in some[..len].chunks_exact(entry::LEN) {
                if record[entry::KIND] != entry::KIND_CONTENT {
                    continue;
                }
                let first = u32_at(record, entry::FIRST_VARIANT) as usize;
                let count = record[entry::VARIANT_COUNT].min(VARIANT_COUNT_MAX);
                held.clear();
                held.extend(variants.iter().skip(first).take(count.into()).filter_map(
                    |(coding, number)| {
                        let coding = *Coding::ALL.get(usize::from(*coding))?;
                        ((*number as usize) < known).then_some((coding, *number))
                    },
                ));
                let place = (
                    u64_at(record, entry::VALUE_OFFSET),
                    u32_at(record, entry::VALUE_LEN) as usize,
                );
                if !content_types.contains_key(&place) {
                    if content_types.len() == CONTENT_TYPES_MAX {
                        content_types.clear();
                    }
                    content_types.insert(place, string(strings, place, read)?);
                }
                let content = HeldContent {
                    content_type: content_types.get(&place).map_or(&[], Vec::as_slice),
                    variants: &held,
                };
                found(&inventory, content);
            }
        }
        Ok(inventory)
    }

    /// Reads the blobs alone, not what they are the content of.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn of_blobs(superblock: &Superblock, read: ReadAt<'_>) -> io::Result<Self> {
        let mut inventory = Self {
            metadata_offset: superblock.metadata_range().start,
            places: records(superblock, SectionKind::Blobs, read)?,
            digests: records(superblock, SectionKind::Digests, read)?,
        };
        let known = inventory.places.len().min(inventory.digests.len());
        inventory.places.truncate(known);
        Ok(inventory)
    }

    /// All blobs, by number.
    pub fn blobs(&self) -> impl Iterator<Item = Blob<'_>> {
        let numbers = 0..u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        numbers.filter_map(|number| self.blob(number))
    }

    /// The blob with this number.
    pub fn blob(&self, number: u32) -> Option<Blob<'_>> {
        let record = self.places.get(number as usize)?;
        Some(blob_of(record, self.digest(number)?, self.metadata_offset))
    }

    /// The digest of the blob with this number.
    pub fn digest(&self, number: u32) -> Option<&[u8; 32]> {
        self.digests.get(number as usize)
    }
}

/// Passes all blobs of an archive to `found`, in their order, and holds few at a time. As of an [`Inventory`], nothing
/// is checked.
///
/// # Errors
/// Those of `read` and `found`, which end it.
pub fn each_blob(
    superblock: &Superblock,
    read: ReadAt<'_>,
    found: &mut dyn FnMut(Blob<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let metadata = superblock.metadata_range().start;
    let mut places = vec![0; records_at_once(blob::LEN)];
    let mut digests = vec![0; records_at_once(blob::DIGEST_LEN)];
    let of_digests = pieces(section(superblock, SectionKind::Digests), digests.len());
    let of_places = pieces(section(superblock, SectionKind::Blobs), places.len());
    for ((at, len), (digests_at, digests_len)) in of_places.zip(of_digests) {
        read(at, &mut places[..len])?;
        read(digests_at, &mut digests[..digests_len])?;
        let places = places[..len].as_chunks().0.iter();
        let digests = digests[..digests_len].as_chunks().0;
        for (place, digest) in places.zip(digests) {
            found(blob_of(place, digest, metadata))?;
        }
    }
    Ok(())
}

fn blob_of<'d>(
    place: &[u8; blob::LEN],
    digest: &'d [u8; blob::DIGEST_LEN],
    metadata: u64,
) -> Blob<'d> {
    let offset = u64_at(place, blob::OFFSET);
    let coded = blob::coded_of(offset);
    Blob {
        offset: if coded.is_some() { 0 } else { offset },
        len: u64_at(place, blob::BYTES),
        digest,
        is_tiny: coded.is_none() && offset >= metadata,
        coded,
    }
}

/// Records of a section that are read at one time.
const RECORDS_AT_ONCE: usize = 4096;

/// The length of a piece of records that have this one.
pub(crate) const fn records_at_once(len: usize) -> usize {
    RECORDS_AT_ONCE * len
}

/// Content types held in memory at one time: a site has about twenty.
const CONTENT_TYPES_MAX: usize = 1024;

pub(crate) fn section(superblock: &Superblock, kind: SectionKind) -> Option<&Section> {
    superblock.section(kind)
}

/// The offsets and lengths of a section's pieces.
pub(crate) fn pieces(section: Option<&Section>, len: usize) -> impl Iterator<Item = (u64, usize)> {
    let (start, end) = section.map_or((0, 0), |one| (one.offset, one.offset + one.len));
    (start..end).step_by(len).map(move |at| {
        let rest = usize::try_from(end - at).unwrap_or(len);
        (at, rest.min(len))
    })
}

/// All records of a section.
fn records<const N: usize>(
    superblock: &Superblock,
    kind: SectionKind,
    read: ReadAt<'_>,
) -> io::Result<Vec<[u8; N]>> {
    let section = section(superblock, kind);
    let count = section.map_or(0, |section| section.len / N as u64);
    let mut records = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let mut some = vec![0; records_at_once(N)];
    for (at, len) in pieces(section, some.len()) {
        read(at, &mut some[..len])?;
        records.extend_from_slice(some[..len].as_chunks().0);
    }
    Ok(records)
}

/// The coding and the blob number of every variant.
fn variants(superblock: &Superblock, read: ReadAt<'_>) -> io::Result<Vec<(u8, u32)>> {
    let section = section(superblock, SectionKind::Variants);
    let count = section.map_or(0, |section| section.len / variant::LEN as u64);
    let mut variants = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let mut some = vec![0; records_at_once(variant::LEN)];
    for (at, len) in pieces(section, some.len()) {
        read(at, &mut some[..len])?;
        let records = some[..len].chunks_exact(variant::LEN);
        variants.extend(records.map(|record| {
            let coding = u8_at(record, variant::CODING);
            (coding, u32_at(record, variant::BLOB))
        }));
    }
    Ok(variants)
}

/// A string; empty if missing.
fn string(
    strings: Option<&Section>,
    (offset, len): (u64, usize),
    read: ReadAt<'_>,
) -> io::Result<Vec<u8>> {
    let end = offset.checked_add(len as u64);
    let Some(strings) = strings.filter(|strings| end.is_some_and(|end| end <= strings.len)) else {
        return Ok(Vec::new());
    };
    if len as u64 > VALUE_LEN_MAX {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; len];
    read(strings.offset + offset, &mut bytes)?;
    Ok(bytes)
}

/// A `read` for [`Inventory::read`] from an archive whose metadata region is in memory.
pub fn of_metadata<'m>(
    superblock: &Superblock,
    metadata: &'m [u8],
) -> impl FnMut(u64, &mut [u8]) -> io::Result<()> + use<'m> {
    let start = superblock.metadata_range().start;
    move |at, buffer| {
        let at = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        let found = slice(metadata, at, buffer.len());
        if found.len() != buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(found);
        Ok(())
    }
}
