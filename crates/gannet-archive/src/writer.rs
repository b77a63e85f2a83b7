//! Writing an archive: blobs go to the file as they are added, everything else is kept for the end.

mod finish;
mod spool;
mod variants;

use std::collections::{BTreeMap, HashMap};

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::response::FieldBlock;

use crate::archive::{Key, Namespace};
use crate::decode::is_decodable;
use crate::dictionaries;
use crate::digest_table::DigestTable;
use crate::error::{ArchiveError, Rule};
use crate::field_block::is_value_byte;
use crate::hosts::{self, HostRules};
use crate::layout::{
    align_up, blob, dictionary, entry, put, slice, u16_at, u32_at, u64_at, variant,
};
use crate::limits::{
    BLOB_ALIGN, DECODED_LEN_MAX, ENTRY_COUNT_MAX, GROUP_LEN, INDEX_NAMES_LEN_MAX, PAGE_ALIGN,
    PAGE_ALIGNED_FROM, PATH_LEN_MAX, TINY_MAX, TINY_TOTAL_MAX, VALUE_LEN_MAX,
};
use crate::path::{is_location, is_normalised};
use crate::superblock::{Options, SUPERBLOCK_LEN, SectionKind};
use crate::tree::{GroupHash, group_hash, has_tree};

pub use spool::{MemorySpool, Spool};
use spool::{Pool, Spooled};

/// Identifies a blob of one [`Writer`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlobId(u32);

/// Identifies the variants of one representation in one [`Writer`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VariantsId {
    first: u32,
    count: u8,
}

/// Identifies a dictionary of one [`Writer`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DictionaryId(u32);

/// The placement of a blob.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placed {
    /// Its identifier.
    pub id: BlobId,
    /// Where in the file the caller writes its bytes now; `None` if there is nothing to write,
    /// because the same bytes are stored already or they go into the metadata region. The bytes
    /// between the end of one blob and the start of the next are zero.
    pub write_at: Option<u64>,
}

/// Where to put the bytes of a blob that the writer has not seen ([`Writer::add_elsewhere`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// Nowhere: the same bytes are stored already.
    Known,
    /// Into the file, at this offset.
    File(u64),
    /// To [`Writer::fill_tiny`].
    Tiny,
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
    /// Its field block for HTTP/1. Lines that many blocks have in common are stored once.
    pub h1: FieldBlock<'a>,
    /// The same fields for HTTP/2, with their own cuts; with common ones if HTTP/1 has any.
    pub hpack: Option<FieldBlock<'a>>,
}

/// A content entry to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content<'a> {
    /// The content type, as the value of its field.
    pub content_type: &'a [u8],
    /// When the source was last modified, in seconds since 1970-01-01T00:00:00Z.
    pub last_modified: Option<i64>,
    /// Another name of an entry that exists too.
    pub is_alias: bool,
    /// Generated while packing, without a source file.
    pub is_generated: bool,
    /// It belongs to an earlier release and is carried on: when it was last part of a site, in
    /// seconds since 1970-01-01T00:00:00Z. Only for immutable content.
    pub carried_since: Option<i64>,
    /// Its variants; entries may share them.
    pub variants: VariantsId,
    /// Those coded with a dictionary ([`Writer::add_dictionary_variants`]).
    pub dictionary_variants: VariantsId,
}

/// The result: what the caller writes after the blobs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parts {
    /// Goes to offset 0. Write it last: a file without it is not an archive.
    pub superblock: [u8; SUPERBLOCK_LEN],
    /// The offset of `metadata`.
    pub metadata_offset: u64,
    /// The metadata region.
    pub metadata: Vec<u8>,
    /// The resulting length of the file, in bytes.
    pub file_len: u64,
}

/// The result if the metadata region was passed on in pieces.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finished {
    /// Goes to offset 0. Write it last: a file without it is not an archive.
    pub superblock: [u8; SUPERBLOCK_LEN],
    /// The offset of the metadata region.
    pub metadata_offset: u64,
    /// The length of the archive, in bytes.
    pub file_len: u64,
    /// The metadata region is to follow a second time; see [`Writer::pack_metadata_from`].
    pub is_packed: bool,
}

/// BLAKE3 of `bytes`: the identity of a blob.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

/// Collects blobs, variants and entries; [`Writer::finish`] returns the metadata region, or
/// [`Writer::finish_into`] if that may exceed the memory.
///
/// Call order: blobs with [`Writer::add_bytes`] or [`Writer::add_hashed`] (write them where the
/// result says), then their variants, then the entries that have them; in any interleaving. The
/// same calls in the same order give the same bytes. Invalid input is detected by
/// [`Writer::finish`], which opens its own result.
#[derive(Debug)]
pub struct Writer {
    options: Options,
    blob_end: u64,
    blobs: Vec<BlobDraft>,
    by_digest: DigestTable,
    tiny_total_max: u64,
    /// The file continues with the packed metadata region if that is as long as this.
    packed_from: u64,
    spool: Box<dyn Spool>,
    /// Check records when they are added, since the whole will not be opened.
    checks_records: bool,
    variants: Spooled,
    fields: Spooled,
    fields_hpack: Spooled,
    tiny: Spooled,
    fields_common: Pool,
    strings: Pool,
    /// Paths in the order in which they were added.
    paths: Vec<u8>,
    /// Records whose path is still the one in `paths`.
    entries: Vec<[u8; entry::LEN]>,
    /// Records of dictionaries.
    dictionaries: Vec<[u8; dictionary::LEN]>,
    dictionary_numbers: HashMap<[u8; dictionary::LEN], u32>,
    /// Carried entries, by the place of their path in `paths`.
    carried: HashMap<u64, i64>,
    /// Trees of blobs that have one.
    trees: HashMap<u32, Vec<GroupHash>>,
    /// Optional sections, in the order of their kinds.
    optional: BTreeMap<u32, (SectionKind, Vec<u8>)>,
    error: Option<ArchiveError>,
}

#[derive(Clone, Copy, Debug)]
struct BlobDraft {
    digest: [u8; 32],
    len: u64,
    /// In the file; with [`TINY_MARK`] in the tiny section; or the value of [`blob::decoded_from`]
    /// for the [`BlobId`] of its coded bytes.
    offset: u64,
}

/// Marks an offset in the tiny section until the position of that section is known. No file offset
/// has this bit: no file system supports such long files.
const TINY_MARK: u64 = 1 << 62;

impl BlobDraft {
    fn is_tiny(&self) -> bool {
        self.offset & TINY_MARK != 0
    }

    /// Its coding and the number of its coded bytes, if only these are stored.
    fn coded(&self) -> Option<(Coding, u32)> {
        blob::coded_of(self.offset)
    }
}

/// The key of an entry whose path is in `paths`.
fn key_of<'p>(record: &[u8; entry::LEN], paths: &'p [u8]) -> Key<'p> {
    let namespace = Namespace::ALL.get(usize::from(record[entry::NAMESPACE]));
    let start = u64_at(record, entry::PATH_OFFSET) as usize;
    Key {
        host: u16_at(record, entry::HOST),
        namespace: namespace.copied().unwrap_or_default(),
        path: slice(paths, start, u32_at(record, entry::PATH_LEN) as usize),
    }
}

impl Writer {
    /// An empty archive whose sections are collected in memory.
    pub fn new(options: Options) -> Self {
        Self {
            checks_records: false,
            ..Self::with_spool(options, Box::new(MemorySpool::default()))
        }
    }

    /// An empty archive whose large sections are collected in `spool`.
    pub fn with_spool(options: Options, spool: Box<dyn Spool>) -> Self {
        Self {
            options,
            blob_end: SUPERBLOCK_LEN as u64,
            blobs: Vec::new(),
            by_digest: DigestTable::default(),
            tiny_total_max: TINY_TOTAL_MAX,
            packed_from: u64::MAX,
            spool,
            checks_records: true,
            variants: Spooled::new(SectionKind::Variants),
            fields: Spooled::new(SectionKind::FieldsH1),
            fields_hpack: Spooled::new(SectionKind::FieldsHpack),
            tiny: Spooled::new(SectionKind::TinyBlobs),
            fields_common: Pool::default(),
            strings: Pool::default(),
            paths: Vec::new(),
            entries: Vec::new(),
            dictionaries: Vec::new(),
            dictionary_numbers: HashMap::new(),
            carried: HashMap::new(),
            trees: HashMap::new(),
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
        if let Some(id) = self.blob_of(&digest) {
            return Placed { id, write_at: None };
        }
        if !self.is_tiny(len) {
            let placed = self.add_hashed(digest, len);
            if has_tree(len) {
                let groups = bytes.chunks(GROUP_LEN as usize);
                let groups = (0..).zip(groups).map(|(number, it)| group_hash(number, it));
                self.set_tree(placed.id, groups.collect());
            }
            return placed;
        }
        let offset = self.tiny.append(&mut *self.spool, bytes) | TINY_MARK;
        Placed {
            id: self.push(BlobDraft {
                digest,
                len,
                offset,
            }),
            write_at: None,
        }
    }

    /// Adds stored bytes as [`Writer::add_digested`] does, but returns their place instead of
    /// taking them: for copying runs of blobs from another archive.
    pub fn add_elsewhere(&mut self, digest: [u8; 32], len: u64) -> (BlobId, Room) {
        if let Some(id) = self.blob_of(&digest) {
            return (id, Room::Known);
        }
        if !self.is_tiny(len) {
            let placed = self.add_hashed(digest, len);
            return (placed.id, placed.write_at.map_or(Room::Known, Room::File));
        }
        let offset = self.tiny.reserve(len) | TINY_MARK;
        let draft = BlobDraft {
            digest,
            len,
            offset,
        };
        (self.push(draft), Room::Tiny)
    }

    /// Passes the bytes of blobs whose room is [`Room::Tiny`], in the order in which they were
    /// added, before anything else that may be tiny, in pieces of any length.
    pub fn fill_tiny(&mut self, bytes: &[u8]) {
        self.tiny.fill(&mut *self.spool, bytes);
    }

    fn is_tiny(&self, len: u64) -> bool {
        len <= TINY_MAX && self.tiny.len + len <= self.tiny_total_max
    }

    /// Says in the superblock that the metadata region follows a second time, as one frame of zstd, if it has at least
    /// so many bytes. Who writes the file sees to that; see [`Finished::is_packed`].
    pub fn pack_metadata_from(&mut self, len: u64) {
        self.packed_from = len;
    }

    /// Adds stored bytes that are not in memory, by their digest ([`digest`]) and length. They are
    /// never made a tiny blob. Those that [have a tree](has_tree) need it ([`Writer::set_tree`]).
    pub fn add_hashed(&mut self, digest: [u8; 32], len: u64) -> Placed {
        if let Some(id) = self.blob_of(&digest) {
            return Placed { id, write_at: None };
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
        });
        Placed {
            id,
            write_at: Some(offset),
        }
    }

    /// Sets the tree of a blob that [has one](has_tree), and was not added as bytes in memory.
    pub fn set_tree(&mut self, id: BlobId, groups: Vec<GroupHash>) {
        self.trees.insert(id.0, groups);
    }

    /// Adds bytes that are stored in a coding alone, as `coded`, which was added before: their
    /// digest ([`digest`]) and length. Nothing is written for them. `None` if that is impossible,
    /// and they have to be stored: they are longer than [`DECODED_LEN_MAX`] or not longer than the
    /// coded bytes, these are not stored themselves, or readers do not decode the coding
    /// ([`is_decodable`](crate::is_decodable)).
    pub fn add_decoded(
        &mut self,
        digest: [u8; 32],
        len: u64,
        (coding, coded): (Coding, BlobId),
    ) -> Option<BlobId> {
        if let Some(id) = self.blob_of(&digest) {
            return Some(id);
        }
        let stored = self.blobs.get(coded.0 as usize)?;
        let is_short = len <= stored.len || len > DECODED_LEN_MAX;
        if stored.coded().is_some() || is_short || !is_decodable(coding) {
            return None;
        }
        Some(self.push(BlobDraft {
            digest,
            len,
            offset: blob::decoded_from(coding, coded.0),
        }))
    }

    /// The digest of an added blob.
    pub fn digest_of(&self, id: BlobId) -> [u8; 32] {
        self.blobs
            .get(id.0 as usize)
            .map_or([0; 32], |blob| blob.digest)
    }

    /// Adds a dictionary: its SHA-256, its path in an earlier release on the same host, its length
    /// in bytes.
    pub fn add_dictionary(&mut self, sha256: &[u8; 32], path: &[u8], len: u64) -> DictionaryId {
        let place = (self.strings.add(path).0, path.len());
        let record = dictionaries::record(sha256, place, len);
        let next = self.dictionaries.len() as u32;
        let number = *self.dictionary_numbers.entry(record).or_insert(next);
        if number == next {
            self.dictionaries.push(record);
        }
        DictionaryId(number)
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
        let coded = content.dictionary_variants;
        put(&mut record, entry::FIRST_CODED, &coded.first.to_le_bytes());
        record[entry::CODED_COUNT] = coded.count;
        if let Some(since) = content.carried_since {
            self.carried.insert(self.paths.len() as u64, since);
        }
        self.push_entry(key, content.content_type, record);
    }

    /// Adds a redirect: `status` is 301, 302, 303, 307 or 308, `location` the value of its field.
    pub fn add_redirect(&mut self, key: Key<'_>, status: u16, location: &[u8]) {
        let mut record = [0; entry::LEN];
        record[entry::KIND] = entry::KIND_REDIRECT;
        put(&mut record, entry::STATUS, &status.to_le_bytes());
        self.push_entry(key, location, record);
    }

    /// Sets the names of the virtual hosts, in ascending order: the first is number 1 of
    /// [`Key::host`]. Without names nothing is written.
    pub fn set_hosts<'n>(&mut self, names: impl IntoIterator<Item = &'n [u8]>) {
        match hosts::render(names) {
            Ok(bytes) => self.set_section(SectionKind::Hosts, bytes),
            Err(rule) => self.refuse(SectionKind::Hosts, rule),
        }
    }

    /// Sets rules for each virtual host, in the order of their numbers; 0 is any other host.
    /// Excludes rules for the whole archive. Without rules nothing is written.
    pub fn set_host_rules<'r>(&mut self, rules: impl IntoIterator<Item = (u16, HostRules<'r>)>) {
        match hosts::render_rules(rules) {
            Ok(bytes) => self.set_section(SectionKind::HostRules, bytes),
            Err(rule) => self.refuse(SectionKind::HostRules, rule),
        }
    }

    /// Sets the names of index pages by which pages answer for folders, apart from those of the dialect.
    pub fn set_index_names<'n>(&mut self, names: impl IntoIterator<Item = &'n [u8]>) {
        let bytes: Vec<u8> = names
            .into_iter()
            .flat_map(|name| [name, &[0]].concat())
            .collect();
        match bytes.len() as u64 <= INDEX_NAMES_LEN_MAX {
            true => self.set_section(SectionKind::IndexNames, bytes),
            false => self.refuse(SectionKind::IndexNames, Rule::Limit),
        }
    }

    /// Sets the bytes of a section of [`SectionKind::OPTIONAL`]. Empty ones are not written.
    pub fn set_section(&mut self, kind: SectionKind, bytes: Vec<u8>) {
        if !SectionKind::OPTIONAL.contains(&kind) {
            return self.refuse(kind, Rule::SectionCount);
        }
        if !bytes.is_empty() {
            self.optional.insert(kind.number(), (kind, bytes));
        }
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
        self.by_digest.insert(id.0, &draft.digest);
        self.blobs.push(draft);
        id
    }

    fn blob_of(&self, digest: &[u8; 32]) -> Option<BlobId> {
        let has_it = |number: u32| {
            let blob = self.blobs.get(number as usize);
            blob.is_some_and(|blob| blob.digest == *digest)
        };
        self.by_digest.find(digest, has_it).map(BlobId)
    }

    fn variant_count(&self) -> u64 {
        self.variants.len / variant::LEN as u64
    }

    fn push_entry(&mut self, key: Key<'_>, value: &[u8], mut record: [u8; entry::LEN]) {
        let is_too_long =
            key.path.len() as u64 > PATH_LEN_MAX || value.len() as u64 > VALUE_LEN_MAX;
        if is_too_long || self.entries.len() as u64 >= ENTRY_COUNT_MAX {
            return self.refuse(SectionKind::Entries, Rule::Limit);
        }
        if self.checks_records
            && let Err(rule) = check_entry(key, value, &record)
        {
            return self.refuse(SectionKind::Entries, rule);
        }
        let (path_len, value_len) = (key.path.len() as u32, value.len() as u32);
        let (value, _) = self.strings.add(value);
        let path = self.paths.len() as u64;
        self.paths.extend_from_slice(key.path);
        put(&mut record, entry::PATH_OFFSET, &path.to_le_bytes());
        put(&mut record, entry::VALUE_OFFSET, &value.to_le_bytes());
        put(&mut record, entry::PATH_LEN, &path_len.to_le_bytes());
        put(&mut record, entry::VALUE_LEN, &value_len.to_le_bytes());
        put(&mut record, entry::HOST, &key.host.to_le_bytes());
        record[entry::NAMESPACE] = key.namespace as u8;
        self.entries.push(record);
    }

    fn refuse(&mut self, section: SectionKind, rule: Rule) {
        let index = match section {
            SectionKind::Blobs => self.blobs.len(),
            SectionKind::Variants | SectionKind::FieldsCommon => self.variant_count() as usize,
            _ => self.entries.len(),
        } as u64;
        self.error.get_or_insert(ArchiveError::Record {
            section,
            index,
            rule,
        });
    }
}

/// The checks of an entry that opening the archive would make.
fn check_entry(key: Key<'_>, value: &[u8], record: &[u8; entry::LEN]) -> Result<(), Rule> {
    if !is_normalised(key.path) || key.namespace.is_of_folders() && !key.path.ends_with(b"/") {
        return Err(Rule::Path);
    }
    if record[entry::KIND] == entry::KIND_REDIRECT {
        let status = u16_at(record, entry::STATUS);
        let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
        return if is_redirect && is_location(value) {
            Ok(())
        } else {
            Err(Rule::Redirect)
        };
    }
    if record[entry::VARIANT_COUNT] == 0 {
        return Err(Rule::Variants);
    }
    let is_field = value.iter().all(|byte| is_value_byte(*byte));
    if is_field && value.trim_ascii() == value {
        Ok(())
    } else {
        Err(Rule::ContentType)
    }
}
