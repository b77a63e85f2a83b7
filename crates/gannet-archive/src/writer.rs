//! Writing an archive: blobs go to the file as they come, everything else is kept for the end.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh3::xxh3_64;

use crate::archive::{Archive, Key, Namespace, usize_of};
use crate::entry::{Coding, FieldBlock};
use crate::error::{ArchiveError, Rule};
use crate::hosts;
use crate::index;
use crate::layout::{self, align_up, blob, entry, put, section, slice, superblock as at, variant};
use crate::limits::{
    BLOB_ALIGN, ENTRY_COUNT_MAX, INFLATED_LEN_MAX, PAGE_ALIGN, PAGE_ALIGNED_FROM, TINY_MAX,
    TINY_TOTAL_MAX, VARIANT_COUNT_MAX,
};
use crate::superblock::{Options, SUPERBLOCK_LEN, SectionKind, Superblock, seal};

/// Names a blob of one [`Writer`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlobId(u32);

/// Names the variants of one representation in one [`Writer`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VariantsId {
    first: u32,
    count: u8,
}

/// What became of a blob.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placed {
    /// Its name.
    pub id: BlobId,
    /// Where in the file the caller writes its bytes now; `None` if nothing is to be written,
    /// because the same bytes are there already or they go into the metadata region. The bytes
    /// between the end of one blob and the start of the next are zero.
    pub write_at: Option<u64>,
}

/// A variant to be written.
#[derive(Clone, Copy, Debug)]
pub struct VariantDraft<'a> {
    /// Its coding.
    pub coding: Coding,
    /// Its stored bytes.
    pub blob: BlobId,
    /// Its entity tag, quotes included; empty for none.
    pub entity_tag: &'a [u8],
    /// Its field block for HTTP/1.
    pub h1: &'a [u8],
    /// End of the `content-length` line.
    pub length_end: u16,
    /// Start of the fields that a 304 carries too.
    pub shared_start: u16,
    /// The same fields for HTTP/2, with cuts of their own.
    pub hpack: Option<FieldBlock<'a>>,
}

/// A content entry to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content<'a> {
    /// The content type, as the value of its field.
    pub content_type: &'a [u8],
    /// When the source was last modified, in seconds since 1970-01-01T00:00:00Z.
    pub last_modified: Option<i64>,
    /// Another name of an entry that is there too.
    pub is_alias: bool,
    /// Made while packing, without a source file.
    pub is_generated: bool,
    /// Its variants; entries may share them.
    pub variants: VariantsId,
}

/// The end of the work: what the caller writes after the blobs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parts {
    /// Goes to offset 0. Write it last: a file without it is no archive.
    pub superblock: [u8; SUPERBLOCK_LEN],
    /// Where `metadata` goes.
    pub metadata_offset: u64,
    /// The metadata region.
    pub metadata: Vec<u8>,
    /// How long the file then is, in bytes.
    pub file_len: u64,
}

/// BLAKE3 of `bytes`: what blobs are told apart by.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

/// Gathers blobs, variants and entries; [`Writer::finish`] gives the metadata region.
///
/// Call order: blobs with [`Writer::add_bytes`] or [`Writer::add_hashed`] (write them where it
/// says), then their variants, then the entries that have them; in any interleaving. The same calls
/// in the same order give the same bytes. What is wrong with an input is found by
/// [`Writer::finish`], which opens what it has made.
#[derive(Debug)]
pub struct Writer {
    options: Options,
    blob_end: u64,
    blobs: Vec<BlobDraft>,
    by_digest: HashMap<[u8; 32], BlobId>,
    tiny: Vec<u8>,
    tiny_total_max: u64,
    fields: Pool,
    fields_hpack: Pool,
    strings: Pool,
    variants: Vec<[u8; variant::LEN]>,
    entries: Vec<EntryDraft>,
    /// Sections that an archive may have, in the order of their kinds.
    optional: BTreeMap<u32, (SectionKind, Vec<u8>)>,
    error: Option<ArchiveError>,
}

#[derive(Clone, Copy, Debug)]
struct BlobDraft {
    digest: [u8; 32],
    len: u64,
    /// In the file, or in the tiny section; or [`blob::INFLATED`] and the [`BlobId`] of its gzip.
    offset: u64,
    is_tiny: bool,
}

impl BlobDraft {
    fn is_inflated(&self) -> bool {
        self.offset & blob::INFLATED != 0
    }
}

#[derive(Debug)]
struct EntryDraft {
    host: u16,
    namespace: Namespace,
    path: Vec<u8>,
    record: [u8; entry::LEN],
}

impl EntryDraft {
    fn key(&self) -> Key<'_> {
        Key {
            host: self.host,
            namespace: self.namespace,
            path: &self.path,
        }
    }
}

/// Byte strings kept once each.
#[derive(Debug, Default)]
struct Pool {
    bytes: Vec<u8>,
    /// Where a string with this hash lies. Of two strings with one hash, which no archive will ever
    /// see, the second is kept as often as it comes.
    places: HashMap<u64, (u64, usize)>,
}

impl Pool {
    fn add(&mut self, string: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        let place = *self
            .places
            .entry(xxh3_64(string))
            .or_insert((offset, string.len()));
        if place.0 < offset && slice(&self.bytes, place.0 as usize, place.1) == string {
            return place.0;
        }
        self.bytes.extend_from_slice(string);
        offset
    }

    fn take(&mut self) -> Vec<u8> {
        self.places = HashMap::new();
        std::mem::take(&mut self.bytes)
    }
}

impl Writer {
    /// An empty archive.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            blob_end: SUPERBLOCK_LEN as u64,
            blobs: Vec::new(),
            by_digest: HashMap::new(),
            tiny: Vec::new(),
            tiny_total_max: TINY_TOTAL_MAX,
            fields: Pool::default(),
            fields_hpack: Pool::default(),
            strings: Pool::default(),
            variants: Vec::new(),
            entries: Vec::new(),
            optional: BTreeMap::new(),
            error: None,
        }
    }

    /// Adds stored bytes.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> Placed {
        self.add_digested(bytes, digest(bytes))
    }

    /// Adds stored bytes whose digest ([`digest`]) is known.
    pub fn add_digested(&mut self, bytes: &[u8], digest: [u8; 32]) -> Placed {
        let len = bytes.len() as u64;
        let tiny_total = self.tiny.len() as u64 + len;
        if len > TINY_MAX
            || tiny_total > self.tiny_total_max
            || self.by_digest.contains_key(&digest)
        {
            return self.add_hashed(digest, len);
        }
        let offset = self.tiny.len() as u64;
        self.tiny.extend_from_slice(bytes);
        Placed {
            id: self.push(BlobDraft {
                digest,
                len,
                offset,
                is_tiny: true,
            }),
            write_at: None,
        }
    }

    /// Adds stored bytes that are not in memory, by their digest ([`digest`]) and length. They are
    /// never made a tiny blob.
    pub fn add_hashed(&mut self, digest: [u8; 32], len: u64) -> Placed {
        if let Some(id) = self.by_digest.get(&digest) {
            return Placed {
                id: *id,
                write_at: None,
            };
        }
        let align = if len >= PAGE_ALIGNED_FROM {
            PAGE_ALIGN
        } else {
            BLOB_ALIGN
        };
        let place = align_up(self.blob_end, align)
            .and_then(|offset| offset.checked_add(len).map(|end| (offset, end)))
            .filter(|(_, end)| *end < TINY_MARK);
        let Some((offset, end)) = place else {
            self.refuse(SectionKind::Blobs, Rule::Range);
            return Placed {
                id: BlobId(0),
                write_at: None,
            };
        };
        self.blob_end = end;
        let id = self.push(BlobDraft {
            digest,
            len,
            offset,
            is_tiny: false,
        });
        Placed {
            id,
            write_at: Some(offset),
        }
    }

    /// Adds bytes that are stored as gzip alone, which was added before: their digest
    /// ([`digest`]) and length. Nothing is written for them. `None` if that cannot be, and they
    /// have to be stored: they are longer than [`INFLATED_LEN_MAX`], not longer than the gzip, or
    /// that is not stored itself.
    pub fn add_inflated(&mut self, digest: [u8; 32], len: u64, gzip: BlobId) -> Option<BlobId> {
        if let Some(id) = self.by_digest.get(&digest) {
            return Some(*id);
        }
        let stored = self.blobs.get(gzip.0 as usize)?;
        if stored.is_inflated() || len <= stored.len || len > INFLATED_LEN_MAX {
            return None;
        }
        Some(self.push(BlobDraft {
            digest,
            len,
            offset: blob::INFLATED | u64::from(gzip.0),
            is_tiny: false,
        }))
    }

    /// Adds the variants of one representation, in any order, no coding twice.
    pub fn add_variants(&mut self, drafts: &[VariantDraft<'_>]) -> VariantsId {
        let mut drafts = drafts.to_vec();
        drafts.sort_by_key(|draft| (self.blob_len(draft.blob), draft.coding));
        let first = self.variants.len() as u64;
        let count = drafts.len() as u64;
        if count > u64::from(VARIANT_COUNT_MAX) || first + count > ENTRY_COUNT_MAX {
            self.refuse(SectionKind::Variants, Rule::Limit);
            return VariantsId::default();
        }
        for draft in drafts {
            self.push_variant(&draft);
        }
        VariantsId {
            first: first as u32,
            count: count as u8,
        }
    }

    /// Adds a content entry.
    pub fn add_content(&mut self, key: Key<'_>, content: &Content<'_>) {
        let mut record = [0; entry::LEN];
        let mut flags = 0;
        if let Some(seconds) = content.last_modified {
            flags |= entry::FLAG_LAST_MODIFIED;
            put(&mut record, entry::LAST_MODIFIED, &seconds.to_le_bytes());
        }
        if content.is_alias {
            flags |= entry::FLAG_ALIAS;
        }
        if content.is_generated {
            flags |= entry::FLAG_GENERATED;
        }
        record[entry::FLAGS] = flags;
        record[entry::KIND] = entry::KIND_CONTENT;
        record[entry::VARIANT_COUNT] = content.variants.count;
        put(
            &mut record,
            entry::FIRST_VARIANT,
            &content.variants.first.to_le_bytes(),
        );
        self.push_entry(key, content.content_type, record);
    }

    /// Adds a redirect: `status` is 301, 302, 303, 307 or 308, `location` the value of its field.
    pub fn add_redirect(&mut self, key: Key<'_>, status: u16, location: &[u8]) {
        let mut record = [0; entry::LEN];
        record[entry::KIND] = entry::KIND_REDIRECT;
        put(&mut record, entry::STATUS, &status.to_le_bytes());
        self.push_entry(key, location, record);
    }

    /// Names the virtual hosts, in ascending order: the first is number 1 of [`Key::host`]. Without
    /// names nothing is written.
    pub fn set_hosts<'n>(&mut self, names: impl IntoIterator<Item = &'n [u8]>) {
        match hosts::render(names) {
            Ok(bytes) => self.set_section(SectionKind::Hosts, bytes),
            Err(rule) => self.refuse(SectionKind::Hosts, rule),
        }
    }

    /// Gives the bytes of a section of [`SectionKind::OPTIONAL`]. Empty ones are not written.
    pub fn set_section(&mut self, kind: SectionKind, bytes: Vec<u8>) {
        if !SectionKind::OPTIONAL.contains(&kind) {
            return self.refuse(kind, Rule::SectionCount);
        }
        if !bytes.is_empty() {
            self.optional.insert(kind.number(), (kind, bytes));
        }
    }

    fn compatible_features(&self) -> u64 {
        if self.fields_hpack.bytes.is_empty() {
            0
        } else {
            layout::COMPATIBLE_HPACK
        }
    }

    fn incompatible_features(&self) -> u64 {
        let has = |kind: SectionKind| self.optional.contains_key(&kind.number());
        let has_rules = has(SectionKind::RedirectRules) || has(SectionKind::FieldRules);
        let has_namespaces = self
            .entries
            .iter()
            .any(|entry| entry.namespace > Namespace::NotFoundPage);
        let has_inflated = self.blobs.iter().any(BlobDraft::is_inflated);
        let bit = |is_set: bool, bit| if is_set { bit } else { 0 };
        bit(has(SectionKind::Hosts), layout::INCOMPATIBLE_HOSTS)
            | bit(has_rules, layout::INCOMPATIBLE_RULES)
            | bit(has_namespaces, layout::INCOMPATIBLE_NAMESPACES)
            | bit(has_inflated, layout::INCOMPATIBLE_INFLATED)
    }

    /// Makes superblock and metadata region, and opens them once as a server will.
    ///
    /// # Errors
    ///
    /// An [`ArchiveError`] that names what was wrong with the input: two entries with one key, a
    /// path that is not normalised, a malformed field block, and all else that a server refuses.
    pub fn finish(mut self) -> Result<Parts, ArchiveError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        // A large site fills the memory with these: nothing more is looked up in them.
        self.by_digest = HashMap::new();
        self.fields.places = HashMap::new();
        self.fields_hpack.places = HashMap::new();
        self.entries.sort_by(|a, b| a.key().cmp(&b.key()));
        if let Some(number) = self
            .entries
            .windows(2)
            .position(|two| two[0].key() == two[1].key())
        {
            let index = number as u64 + 1;
            let section = SectionKind::Entries;
            return Err(ArchiveError::Record {
                section,
                index,
                rule: Rule::Order,
            });
        }
        let metadata_offset =
            align_up(self.blob_end, PAGE_ALIGN).ok_or(ArchiveError::Superblock(Rule::Range))?;
        let entries = self.render_entries();
        let index = index::render(self.entries.iter().map(EntryDraft::key))?;
        let features = (self.incompatible_features(), self.compatible_features());
        self.entries = Vec::new();
        let (blobs, digests, variants) = self.render_blobs();
        let tiny = std::mem::take(&mut self.tiny);
        let mut sections = vec![
            (SectionKind::Index, index),
            (SectionKind::Entries, entries),
            (SectionKind::Variants, variants),
            (SectionKind::Blobs, blobs),
            (SectionKind::Digests, digests),
            (SectionKind::Strings, self.strings.take()),
            (SectionKind::FieldsH1, self.fields.take()),
            (SectionKind::FieldsHpack, self.fields_hpack.take()),
            (SectionKind::FieldsQpack, Vec::new()),
            (SectionKind::TinyBlobs, tiny),
        ];
        sections.extend(std::mem::take(&mut self.optional).into_values());
        let parts = assemble(self.options, features, metadata_offset, sections)?;
        let superblock = Superblock::parse(&parts.superblock, parts.file_len)?;
        Archive::new(superblock, parts.metadata.as_slice())?;
        Ok(parts)
    }

    fn blob_len(&self, id: BlobId) -> u64 {
        self.blobs.get(id.0 as usize).map_or(0, |blob| blob.len)
    }

    fn push(&mut self, draft: BlobDraft) -> BlobId {
        let count = self.blobs.len() as u64;
        if count >= ENTRY_COUNT_MAX {
            self.refuse(SectionKind::Blobs, Rule::Limit);
            return BlobId(0);
        }
        let id = BlobId(count as u32);
        self.by_digest.insert(draft.digest, id);
        self.blobs.push(draft);
        id
    }

    fn push_variant(&mut self, draft: &VariantDraft<'_>) {
        let h1_len = u16::try_from(draft.h1.len());
        let tag_len = u16::try_from(draft.entity_tag.len());
        let (Ok(h1_len), Ok(tag_len)) = (h1_len, tag_len) else {
            self.refuse(SectionKind::Variants, Rule::Limit);
            return;
        };
        let mut record = [0; variant::LEN];
        let h1 = self.fields.add(draft.h1);
        let tag = self.strings.add(draft.entity_tag);
        put(&mut record, variant::H1_OFFSET, &h1.to_le_bytes());
        put(&mut record, variant::ENTITY_TAG_OFFSET, &tag.to_le_bytes());
        put(&mut record, variant::BLOB, &draft.blob.0.to_le_bytes());
        put(&mut record, variant::H1_LEN, &h1_len.to_le_bytes());
        put(
            &mut record,
            variant::H1_LENGTH_END,
            &draft.length_end.to_le_bytes(),
        );
        put(
            &mut record,
            variant::H1_SHARED_START,
            &draft.shared_start.to_le_bytes(),
        );
        put(&mut record, variant::ENTITY_TAG_LEN, &tag_len.to_le_bytes());
        if let Some(hpack) = draft.hpack {
            let Ok(len) = u16::try_from(hpack.bytes.len()) else {
                return self.refuse(SectionKind::Variants, Rule::Limit);
            };
            let offset = self.fields_hpack.add(hpack.bytes);
            let cuts = (
                hpack.length_end.to_le_bytes(),
                hpack.shared_start.to_le_bytes(),
            );
            put(&mut record, variant::HPACK_OFFSET, &offset.to_le_bytes());
            put(&mut record, variant::HPACK_LEN, &len.to_le_bytes());
            put(&mut record, variant::HPACK_LENGTH_END, &cuts.0);
            put(&mut record, variant::HPACK_SHARED_START, &cuts.1);
        }
        record[variant::CODING] = draft.coding as u8;
        self.variants.push(record);
    }

    fn push_entry(&mut self, key: Key<'_>, value: &[u8], mut record: [u8; entry::LEN]) {
        let path_len = u32::try_from(key.path.len());
        let value_len = u32::try_from(value.len());
        let (Ok(path_len), Ok(value_len)) = (path_len, value_len) else {
            return self.refuse(SectionKind::Entries, Rule::Limit);
        };
        if self.entries.len() as u64 >= ENTRY_COUNT_MAX {
            return self.refuse(SectionKind::Entries, Rule::Limit);
        }
        let value = self.strings.add(value);
        put(&mut record, entry::VALUE_OFFSET, &value.to_le_bytes());
        put(&mut record, entry::PATH_LEN, &path_len.to_le_bytes());
        put(&mut record, entry::VALUE_LEN, &value_len.to_le_bytes());
        put(&mut record, entry::HOST, &key.host.to_le_bytes());
        record[entry::NAMESPACE] = key.namespace as u8;
        self.entries.push(EntryDraft {
            host: key.host,
            namespace: key.namespace,
            path: key.path.to_vec(),
            record,
        });
    }

    fn refuse(&mut self, section: SectionKind, rule: Rule) {
        let index = match section {
            SectionKind::Blobs => self.blobs.len(),
            SectionKind::Variants => self.variants.len(),
            _ => self.entries.len(),
        } as u64;
        self.error.get_or_insert(ArchiveError::Record {
            section,
            index,
            rule,
        });
    }

    /// Paths go into the pool in the order of the entries, so neighbours lie side by side.
    fn render_entries(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * entry::LEN);
        for draft in &mut self.entries {
            let path = self.strings.add(&draft.path);
            put(&mut draft.record, entry::PATH_OFFSET, &path.to_le_bytes());
            bytes.extend_from_slice(&draft.record);
        }
        bytes
    }

    /// The blobs of the file first, then the tiny ones, then those that are stored as gzip alone, in
    /// the order of that: so the table is in the order of offsets. Tiny offsets become absolute in [`assemble`]. Variants follow the new numbers.
    fn render_blobs(&mut self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut order: Vec<usize> = (0..self.blobs.len()).collect();
        order.sort_by_key(|number| {
            let draft = &self.blobs[*number];
            let is_inflated = draft.is_inflated();
            let place = match is_inflated {
                true => &self.blobs[usize_of(draft.offset & !blob::INFLATED)],
                false => draft,
            };
            (is_inflated, place.is_tiny, place.offset)
        });
        let mut renumbered = vec![0u32; order.len()];
        let (mut blobs, mut digests) = (Vec::new(), Vec::new());
        for (new, old) in order.into_iter().enumerate() {
            let draft = &self.blobs[old];
            renumbered[old] = new as u32;
            let offset = match draft.is_inflated() {
                // Its gzip stands before it, so it has its number.
                true => {
                    let gzip = usize_of(draft.offset & !blob::INFLATED);
                    blob::INFLATED | u64::from(renumbered[gzip])
                }
                false if draft.is_tiny => draft.offset | TINY_MARK,
                false => draft.offset,
            };
            blobs.extend_from_slice(&offset.to_le_bytes());
            blobs.extend_from_slice(&draft.len.to_le_bytes());
            digests.extend_from_slice(&draft.digest);
        }
        let mut variants = Vec::with_capacity(self.variants.len() * variant::LEN);
        for record in &mut self.variants {
            let old = layout::u32_at(record, variant::BLOB) as usize;
            let new = renumbered.get(old).copied().unwrap_or(u32::MAX);
            put(record, variant::BLOB, &new.to_le_bytes());
            variants.extend_from_slice(record);
        }
        (blobs, digests, variants)
    }
}

/// Marks an offset in the tiny section until the place of that section is known. No file offset
/// has this bit: no file system has files so long.
const TINY_MARK: u64 = 1 << 62;

fn assemble(
    options: Options,
    (incompatible, compatible): (u64, u64),
    metadata_offset: u64,
    mut sections: Vec<(SectionKind, Vec<u8>)>,
) -> Result<Parts, ArchiveError> {
    let overflow = ArchiveError::Superblock(Rule::Range);
    let mut offsets = Vec::with_capacity(sections.len());
    let mut end = metadata_offset;
    let mut tiny_start = metadata_offset;
    for (kind, bytes) in &sections {
        let offset = align_up(end, section::ALIGN).ok_or(overflow)?;
        end = offset.checked_add(bytes.len() as u64).ok_or(overflow)?;
        if *kind == SectionKind::TinyBlobs {
            tiny_start = offset;
        }
        offsets.push(offset);
    }
    for (kind, bytes) in &mut sections {
        if *kind == SectionKind::Blobs {
            resolve_tiny(bytes, tiny_start);
        }
    }
    let metadata_len = end - metadata_offset;
    let mut first = [0; SUPERBLOCK_LEN];
    put(&mut first, 0, &layout::MAGIC);
    put(&mut first, at::VERSION, &layout::VERSION.to_le_bytes());
    put(&mut first, at::INCOMPATIBLE, &incompatible.to_le_bytes());
    put(&mut first, at::COMPATIBLE, &compatible.to_le_bytes());
    put(&mut first, at::ARCHIVE_LEN, &end.to_le_bytes());
    put(
        &mut first,
        at::METADATA_OFFSET,
        &metadata_offset.to_le_bytes(),
    );
    put(&mut first, at::METADATA_LEN, &metadata_len.to_le_bytes());
    put(&mut first, at::OPTIONS, &options.bits().to_le_bytes());
    let count = sections.len() as u32;
    put(&mut first, at::SECTION_COUNT, &count.to_le_bytes());
    let mut metadata = vec![0; usize_of(metadata_len)];
    for (number, ((kind, bytes), offset)) in sections.into_iter().zip(offsets).enumerate() {
        let row = at::SECTIONS + number * section::LEN;
        let checksum = xxh3_64(&bytes);
        let (kind, len) = (kind.number(), bytes.len() as u64);
        put(&mut first, row + section::KIND, &kind.to_le_bytes());
        put(&mut first, row + section::OFFSET, &offset.to_le_bytes());
        put(&mut first, row + section::BYTES, &len.to_le_bytes());
        put(&mut first, row + section::CHECKSUM, &checksum.to_le_bytes());
        move_into(&mut metadata, usize_of(offset - metadata_offset), bytes);
    }
    seal(&mut first, &metadata);
    Ok(Parts {
        superblock: first,
        metadata_offset,
        metadata,
        file_len: end,
    })
}

/// Moves `section` to its place, from its end on, and gives memory back on the way: sections of a
/// large site are gigabytes, and are not held twice.
fn move_into(metadata: &mut [u8], place: usize, mut section: Vec<u8>) {
    while !section.is_empty() {
        let start = section.len().saturating_sub(MOVED_AT_ONCE);
        let part = &section[start..];
        metadata[place + start..place + section.len()].copy_from_slice(part);
        section.truncate(start);
        section.shrink_to_fit();
    }
}

const MOVED_AT_ONCE: usize = 64 << 20;

fn resolve_tiny(blobs: &mut [u8], tiny_start: u64) {
    for record in blobs.chunks_exact_mut(blob::LEN) {
        let offset = layout::u64_at(record, blob::OFFSET);
        if offset & TINY_MARK != 0 {
            let offset = tiny_start + (offset & !TINY_MARK);
            put(record, blob::OFFSET, &offset.to_le_bytes());
        }
    }
}
