//! Assembling the collected sections: the metadata region, in file order.

use gannet_http::semantics::coding::Coding;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{BlobDraft, Finished, Parts, TINY_MARK, Writer, key_of};
use crate::archive::{Archive, Key, Namespace};
use crate::carried;
use crate::error::{ArchiveError, Rule};
use crate::index;
use crate::layout::{self, align_up, blob, entry, put, section, slice, superblock as at, variant};
use crate::limits::{GROUP_LEN, PAGE_ALIGN};
use crate::superblock::{SUPERBLOCK_LEN, SectionKind, Superblock, build_id_hasher, seal};
use crate::tree::has_tree;

/// A section whose bytes are ready, or are produced on demand.
struct Ready {
    kind: SectionKind,
    len: u64,
    bytes: Bytes,
}

enum Bytes {
    Memory(Vec<u8>),
    /// In the spool, with their checksum.
    Spooled(u64),
    Entries,
    Variants,
    Blobs,
    Digests,
}

impl Writer {
    fn compatible_features(&self, metadata_len: u64) -> u64 {
        let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
        let packed = layout::COMPATIBLE_TAIL | layout::COMPATIBLE_PACKED;
        bit(self.fields_hpack.len > 0, layout::COMPATIBLE_HPACK)
            | bit(metadata_len >= self.packed_from, packed)
    }

    fn incompatible_features(&self) -> u64 {
        let has = |kind: SectionKind| self.optional.contains_key(&kind.number());
        let has_rules = has(SectionKind::RedirectRules) || has(SectionKind::FieldRules);
        let last = Namespace::NotFoundPage as u8;
        let has_namespaces = self.entries.iter().any(|one| one[entry::NAMESPACE] > last);
        let has_alone = |wanted| {
            let mut drafts = self.blobs.iter();
            drafts.any(|draft| draft.coded().is_some_and(|(coding, _)| coding == wanted))
        };
        let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
        bit(has(SectionKind::Hosts), layout::INCOMPATIBLE_HOSTS)
            | bit(
                has(SectionKind::Dictionaries),
                layout::INCOMPATIBLE_DICTIONARIES,
            )
            | bit(has_rules, layout::INCOMPATIBLE_RULES)
            | bit(has(SectionKind::HostRules), layout::INCOMPATIBLE_HOST_RULES)
            | bit(has_namespaces, layout::INCOMPATIBLE_NAMESPACES)
            | bit(has_alone(Coding::Gzip), layout::INCOMPATIBLE_GZIP_ALONE)
            | bit(has_alone(Coding::Brotli), layout::INCOMPATIBLE_BROTLI_ALONE)
            | bit(has(SectionKind::FieldsCommon), layout::INCOMPATIBLE_COMMON)
    }

    /// Produces superblock and metadata region, and opens them once as a server will.
    ///
    /// # Errors
    ///
    /// An [`ArchiveError`] that names the error in the input: two entries with one key, a path that
    /// is not normalised, a malformed field block, and anything else that a server rejects.
    pub fn finish(self) -> Result<Parts, ArchiveError> {
        let mut metadata = Vec::new();
        let finished = self.finish_into(&mut |bytes| metadata.extend_from_slice(bytes))?;
        let superblock = Superblock::parse(&finished.superblock, finished.file_len)?;
        Archive::new(superblock, metadata.as_slice())?;
        Ok(Parts {
            superblock: finished.superblock,
            metadata_offset: finished.metadata_offset,
            metadata,
            file_len: finished.file_len,
        })
    }

    /// Passes the metadata region to `take`, in pieces and in order, and returns the superblock.
    ///
    /// # Errors
    ///
    /// As [`Writer::finish`], as far as possible without opening the whole: for that, a writer with
    /// a spool has checked each record when it was added.
    pub fn finish_into(mut self, take: &mut dyn FnMut(&[u8])) -> Result<Finished, ArchiveError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.tiny.is_filled() {
            return Err(ArchiveError::Record {
                section: SectionKind::TinyBlobs,
                index: 0,
                rule: Rule::Range,
            });
        }
        let common = std::mem::take(&mut self.fields_common).bytes;
        self.set_section(SectionKind::FieldsCommon, common);
        let dictionaries = std::mem::take(&mut self.dictionaries);
        let dictionaries = dictionaries.as_flattened().to_vec();
        self.set_section(SectionKind::Dictionaries, dictionaries);
        self.by_digest = Default::default();
        self.sort_entries()?;
        self.set_carried();
        let order = BlobOrder::of(&self.blobs);
        self.set_trees(&order)?;
        let metadata_offset =
            align_up(self.blob_end, PAGE_ALIGN).ok_or(ArchiveError::Superblock(Rule::Range))?;
        let keys = self
            .entries
            .iter()
            .map(|record| key_of(record, &self.paths));
        let index = index::render(keys)?;
        self.place_paths();
        let incompatible = self.incompatible_features();
        let sections = self.sections(index);
        let overflow = ArchiveError::Superblock(Rule::Range);
        let mut offsets = Vec::with_capacity(sections.len());
        let mut end = metadata_offset;
        for ready in &sections {
            let offset = align_up(end, section::ALIGN).ok_or(overflow)?;
            end = offset.checked_add(ready.len).ok_or(overflow)?;
            if ready.kind == SectionKind::TinyBlobs {
                self.place_tiny(offset);
            }
            offsets.push(offset);
        }
        let compatible = self.compatible_features(end - metadata_offset);
        let features = (incompatible, compatible);
        let mut first = [0; SUPERBLOCK_LEN];
        self.put_head(&mut first, features, metadata_offset, end, sections.len());
        for (number, (ready, offset)) in sections.iter().zip(&offsets).enumerate() {
            let checksum = self.checksum(ready, &order);
            put_row(&mut first, number, (ready, *offset, checksum));
        }
        let mut hasher = build_id_hasher(&first);
        let mut place = metadata_offset;
        for (ready, offset) in sections.iter().zip(&offsets) {
            let mut both = |bytes: &[u8]| {
                hasher.update(bytes);
                take(bytes);
            };
            // Less than the alignment of a section.
            let padding = (offset - place) as usize;
            both(slice(&[0; section::ALIGN as usize], 0, padding));
            self.give(ready, &order, &mut both);
            place = offset + ready.len;
        }
        seal(&mut first, hasher.finalize().as_bytes());
        Ok(Finished {
            superblock: first,
            metadata_offset,
            file_len: end,
            is_packed: compatible & layout::COMPATIBLE_PACKED != 0,
        })
    }

    /// Sorts the entries by their keys, none of which may occur twice.
    fn sort_entries(&mut self) -> Result<(), ArchiveError> {
        let paths = &self.paths;
        let keys = |record: &[u8; entry::LEN]| key_of(record, paths);
        // Stable, because this sort exploits runs that are in order: the files, and their other
        // names.
        self.entries.sort_by(|a, b| keys(a).cmp(&keys(b)));
        let mut pairs = self.entries.windows(2);
        match pairs.position(|two| keys(&two[0]) == keys(&two[1])) {
            None => Ok(()),
            Some(number) => Err(ArchiveError::Record {
                section: SectionKind::Entries,
                index: number as u64 + 1,
                rule: Rule::Order,
            }),
        }
    }

    /// Lists the carried entries, by the numbers that they have now.
    fn set_carried(&mut self) {
        let carried = std::mem::take(&mut self.carried);
        if carried.is_empty() {
            return;
        }
        let records = (0..).zip(&self.entries).filter_map(|(number, record)| {
            let since = carried.get(&layout::u64_at(record, entry::PATH_OFFSET))?;
            Some(carried::record(number, *since))
        });
        let records: Vec<_> = records.collect();
        self.set_section(SectionKind::Carried, records.as_flattened().to_vec());
    }

    /// Lists the trees in the order of their blobs.
    fn set_trees(&mut self, order: &BlobOrder) -> Result<(), ArchiveError> {
        let mut trees = Vec::new();
        for (number, id) in (0..).zip(&order.order) {
            let draft = self.blobs.get(*id as usize);
            let stored = draft.filter(|it| !it.is_tiny() && it.coded().is_none());
            let Some(len) = stored.map(|it| it.len).filter(|len| has_tree(*len)) else {
                continue;
            };
            let groups = self.trees.remove(id).unwrap_or_default();
            if groups.len() as u64 != len.div_ceil(GROUP_LEN) {
                return Err(ArchiveError::Record {
                    section: SectionKind::Trees,
                    index: number,
                    rule: Rule::SectionLen,
                });
            }
            trees.extend_from_slice(groups.as_flattened());
        }
        self.set_section(SectionKind::Trees, trees);
        Ok(())
    }

    /// Paths go into the strings in the order of the entries, so neighbours are adjacent. A path
    /// that content also has is stored once.
    fn place_paths(&mut self) {
        let paths = std::mem::take(&mut self.paths);
        for number in 0..self.entries.len() {
            let key = key_of(&self.entries[number], &paths);
            let offset = match self.content_with(key, number, &paths) {
                Some(offset) => offset,
                None => self.strings.append(key.path),
            };
            // The key is still found by its first place; see `content_with`.
            put(
                &mut self.entries[number],
                PLACED,
                &(offset as u32).to_le_bytes(),
            );
            put(
                &mut self.entries[number],
                PLACED_HIGH,
                &((offset >> 32) as u32).to_le_bytes(),
            );
        }
        for record in &mut self.entries {
            let low = u64::from(layout::u32_at(record, PLACED));
            let high = u64::from(layout::u32_at(record, PLACED_HIGH));
            let offset = high << 32 | low;
            put(record, entry::PATH_OFFSET, &offset.to_le_bytes());
            record[PLACED..PLACED + 4].fill(0);
            record[PLACED_HIGH..PLACED_HIGH + 4].fill(0);
        }
    }

    /// The new offset of an earlier entry's path, if that is the content at the same path on any
    /// host.
    fn content_with(&self, key: Key<'_>, number: usize, paths: &[u8]) -> Option<u64> {
        if (key.host, key.namespace) == (0, Namespace::Content) {
            return None;
        }
        let wanted = Key::content(key.path);
        let before = self.entries.get(..number)?;
        let found = before.binary_search_by(|record| key_of(record, paths).cmp(&wanted));
        let record = before.get(found.ok()?)?;
        let low = u64::from(layout::u32_at(record, PLACED));
        Some(u64::from(layout::u32_at(record, PLACED_HIGH)) << 32 | low)
    }

    fn place_tiny(&mut self, section_start: u64) {
        for draft in &mut self.blobs {
            if draft.is_tiny() {
                draft.offset += section_start;
            }
        }
    }

    fn sections(&mut self, index: Vec<u8>) -> Vec<Ready> {
        let (blob_count, entry_count) = (self.blobs.len() as u64, self.entries.len() as u64);
        let ready = |kind, len, bytes| Ready { kind, len, bytes };
        let memory = |kind, bytes: Vec<u8>| ready(kind, bytes.len() as u64, Bytes::Memory(bytes));
        let spooled = |kind, section: &super::Spooled| {
            ready(kind, section.len, Bytes::Spooled(section.checksum()))
        };
        let strings = std::mem::take(&mut self.strings).bytes;
        let entries_len = entry_count * entry::LEN as u64;
        let digests_len = blob_count * blob::DIGEST_LEN as u64;
        let mut sections = vec![
            memory(SectionKind::Index, index),
            ready(SectionKind::Entries, entries_len, Bytes::Entries),
            ready(SectionKind::Variants, self.variants.len, Bytes::Variants),
            ready(
                SectionKind::Blobs,
                blob_count * blob::LEN as u64,
                Bytes::Blobs,
            ),
            ready(SectionKind::Digests, digests_len, Bytes::Digests),
            memory(SectionKind::Strings, strings),
            spooled(SectionKind::FieldsH1, &self.fields),
            spooled(SectionKind::FieldsHpack, &self.fields_hpack),
            memory(SectionKind::FieldsQpack, Vec::new()),
            spooled(SectionKind::TinyBlobs, &self.tiny),
        ];
        let optional = std::mem::take(&mut self.optional).into_values();
        sections.extend(optional.map(|(kind, bytes)| memory(kind, bytes)));
        sections
    }

    fn put_head(
        &self,
        first: &mut [u8; SUPERBLOCK_LEN],
        (incompatible, compatible): (u64, u64),
        metadata_offset: u64,
        end: u64,
        section_count: usize,
    ) {
        put(first, 0, &layout::MAGIC);
        put(first, at::VERSION, &layout::VERSION.to_le_bytes());
        put(first, at::INCOMPATIBLE, &incompatible.to_le_bytes());
        put(first, at::COMPATIBLE, &compatible.to_le_bytes());
        put(first, at::ARCHIVE_LEN, &end.to_le_bytes());
        put(first, at::METADATA_OFFSET, &metadata_offset.to_le_bytes());
        let metadata_len = end - metadata_offset;
        put(first, at::METADATA_LEN, &metadata_len.to_le_bytes());
        put(first, at::OPTIONS, &self.options.bits().to_le_bytes());
        put(
            first,
            at::SECTION_COUNT,
            &(section_count as u32).to_le_bytes(),
        );
    }

    fn checksum(&mut self, ready: &Ready, order: &BlobOrder) -> u64 {
        match &ready.bytes {
            Bytes::Memory(bytes) => xxh3_64(bytes),
            Bytes::Spooled(checksum) => *checksum,
            _ => {
                let mut hasher = Xxh3::new();
                self.give(ready, order, &mut |bytes| hasher.update(bytes));
                hasher.digest()
            }
        }
    }

    /// Passes on the bytes of a section. Variants get the numbers that their blobs have in the
    /// file.
    fn give(&mut self, ready: &Ready, order: &BlobOrder, take: &mut dyn FnMut(&[u8])) {
        match &ready.bytes {
            Bytes::Memory(bytes) => take(bytes),
            Bytes::Spooled(_) => self.spool.read(ready.kind, take),
            Bytes::Entries => give_all(&self.entries, take),
            Bytes::Variants => {
                let mut records = Records::new(take);
                self.spool.read(ready.kind, &mut |bytes| {
                    records.add(bytes, |record| {
                        let old = layout::u32_at(record, variant::BLOB) as usize;
                        let new = order.number_of(old);
                        put(record, variant::BLOB, &new.to_le_bytes());
                    });
                });
            }
            Bytes::Blobs => {
                let record = |draft: &BlobDraft| {
                    let offset = match draft.coded() {
                        Some((coding, id)) => {
                            blob::decoded_from(coding, order.number_of(id as usize))
                        }
                        None => draft.offset & !TINY_MARK,
                    };
                    let mut record = [0; blob::LEN];
                    put(&mut record, blob::OFFSET, &offset.to_le_bytes());
                    put(&mut record, blob::BYTES, &draft.len.to_le_bytes());
                    record
                };
                give_mapped(order.drafts(&self.blobs).map(record), take);
            }
            Bytes::Digests => {
                let digests = order.drafts(&self.blobs).map(|draft| draft.digest);
                give_mapped(digests, take);
            }
        }
    }
}

/// Writes a row of the section table.
fn put_row(
    first: &mut [u8; SUPERBLOCK_LEN],
    number: usize,
    (ready, offset, checksum): (&Ready, u64, u64),
) {
    let row = at::SECTIONS + number * section::LEN;
    let kind = ready.kind.number();
    put(first, row + section::KIND, &kind.to_le_bytes());
    put(first, row + section::OFFSET, &offset.to_le_bytes());
    put(first, row + section::BYTES, &ready.len.to_le_bytes());
    put(first, row + section::CHECKSUM, &checksum.to_le_bytes());
}

/// While paths are placed, their new offsets are in reserved bytes of the records.
const PLACED: usize = entry::RESERVED;
const PLACED_HIGH: usize = entry::RESERVED + 4;

/// Records passed on at one time.
const RECORDS_AT_ONCE: usize = 4096;

/// The order of blobs in the file: those of the blob region first, then the tiny ones, then those
/// stored in a coding alone, ordered by coding and coded blob. So the table is in the order of
/// offsets.
struct BlobOrder {
    /// The numbers in which they were added, in file order.
    order: Vec<u32>,
    /// The inverse.
    numbers: Vec<u32>,
}

impl BlobOrder {
    fn of(blobs: &[BlobDraft]) -> Self {
        let numbered = || (0..).zip(blobs);
        let is_stored = |draft: &BlobDraft| !draft.is_tiny() && draft.coded().is_none();
        let mut order = Vec::with_capacity(blobs.len());
        let mut numbers = vec![u32::MAX; blobs.len()];
        order.extend(
            numbered()
                .filter(|(_, one)| is_stored(one))
                .map(|(id, _)| id),
        );
        order.extend(
            numbered()
                .filter(|(_, one)| one.is_tiny())
                .map(|(id, _)| id),
        );
        for (number, id) in (0..).zip(&order) {
            numbers[*id as usize] = number;
        }
        let place = |(id, draft): (u32, &BlobDraft)| {
            let (coding, coded) = draft.coded()?;
            Some((
                blob::decoded_from(coding, *numbers.get(coded as usize)?),
                id,
            ))
        };
        let mut decoded: Vec<(u64, u32)> = numbered().filter_map(place).collect();
        decoded.sort_unstable();
        for (_, id) in decoded {
            numbers[id as usize] = order.len() as u32;
            order.push(id);
        }
        Self { order, numbers }
    }

    fn number_of(&self, id: usize) -> u32 {
        self.numbers.get(id).copied().unwrap_or(u32::MAX)
    }

    fn drafts<'b>(&'b self, blobs: &'b [BlobDraft]) -> impl Iterator<Item = &'b BlobDraft> {
        self.order.iter().filter_map(|id| blobs.get(*id as usize))
    }
}

fn give_all<const N: usize>(records: &[[u8; N]], take: &mut dyn FnMut(&[u8])) {
    for some in records.chunks(RECORDS_AT_ONCE) {
        take(some.as_flattened());
    }
}

fn give_mapped<const N: usize>(
    records: impl Iterator<Item = [u8; N]>,
    take: &mut dyn FnMut(&[u8]),
) {
    let mut some = Vec::with_capacity(RECORDS_AT_ONCE);
    for record in records {
        some.push(record);
        if some.len() == RECORDS_AT_ONCE {
            take(some.as_flattened());
            some.clear();
        }
    }
    take(some.as_flattened());
}

/// Reassembles records of variants, which a spool returns in pieces of any length.
struct Records<'t> {
    take: &'t mut dyn FnMut(&[u8]),
    rest: Vec<u8>,
}

impl<'t> Records<'t> {
    fn new(take: &'t mut dyn FnMut(&[u8])) -> Self {
        Self {
            take,
            rest: Vec::new(),
        }
    }

    fn add(&mut self, bytes: &[u8], change: impl Fn(&mut [u8])) {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / variant::LEN * variant::LEN;
        self.rest[..whole]
            .chunks_exact_mut(variant::LEN)
            .for_each(change);
        (self.take)(&self.rest[..whole]);
        self.rest.drain(..whole);
    }
}
