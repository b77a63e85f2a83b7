//! The superblock: the first 4096 bytes of an archive, which identify it and locate everything
//! else.

use core::fmt::{self, Write as _};
use core::ops::Range;
use std::io;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{ArchiveError, Lookalike, Rule};
use crate::inventory::ReadAt;
use crate::layout::{self, section, slice, superblock as at, u16_at, u32_at, u64_at};
use crate::limits::{METADATA_LEN_MAX, PAGE_ALIGN, SECTION_COUNT_MAX, SIGNATURE_LEN_MAX};

/// Length of the superblock in bytes.
pub const SUPERBLOCK_LEN: usize = 4096;

/// The kinds of section.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SectionKind {
    /// Key to entry.
    Index,
    /// One record for each key, in the order of the keys.
    Entries,
    /// One record for each coding of a representation.
    Variants,
    /// The location of each blob.
    Blobs,
    /// The digest of each blob.
    Digests,
    /// Paths, content types, locations, entity tags.
    Strings,
    /// Ready field lines for HTTP/1.
    FieldsH1,
    /// Ready field blocks for HTTP/2. Empty without compatible feature 1.
    FieldsHpack,
    /// Ready field blocks for HTTP/3. Empty in version 1.
    FieldsQpack,
    /// Small bodies.
    TinyBlobs,
    /// Names of virtual hosts.
    Hosts,
    /// Files of earlier releases with which content is coded.
    Dictionaries,
    /// Redirects that depend on more than a path, for the server to evaluate.
    RedirectRules,
    /// Fields by path and host, for the server to apply.
    FieldRules,
    /// Common parts of field blocks, for both versions of HTTP.
    FieldsCommon,
    /// Redirects and fields for each virtual host.
    HostRules,
    /// Which files belong to earlier releases and are carried on, and since when.
    Carried,
    /// How the codings were produced: text for a packer that makes the next archive from this one.
    Recipe,
    /// Why files have their lifetimes: text for a packer and for people.
    Lifetimes,
    /// Names of index pages by which a site was packed, to protect paths.
    IndexNames,
    /// Chaining values of groups of long blobs, to verify parts of them.
    Trees,
    /// A kind that this version does not know and need not know.
    Other(u32),
}

impl SectionKind {
    /// The kinds that every archive has, once each.
    pub const REQUIRED: [Self; 10] = [
        Self::Index,
        Self::Entries,
        Self::Variants,
        Self::Blobs,
        Self::Digests,
        Self::Strings,
        Self::FieldsH1,
        Self::FieldsHpack,
        Self::FieldsQpack,
        Self::TinyBlobs,
    ];

    /// The optional kinds, at most once each. A server must know those present, except for those
    /// that are for packers (carried, recipe and lifetimes), index names and trees.
    pub const OPTIONAL: [Self; 11] = [
        Self::Hosts,
        Self::Dictionaries,
        Self::RedirectRules,
        Self::FieldRules,
        Self::FieldsCommon,
        Self::HostRules,
        Self::Carried,
        Self::Recipe,
        Self::Lifetimes,
        Self::IndexNames,
        Self::Trees,
    ];

    /// The number written in the file.
    pub fn number(self) -> u32 {
        match self {
            Self::Index => 1,
            Self::Entries => 2,
            Self::Variants => 3,
            Self::Blobs => 4,
            Self::Digests => 5,
            Self::Strings => 6,
            Self::FieldsH1 => 7,
            Self::FieldsHpack => 8,
            Self::FieldsQpack => 9,
            Self::TinyBlobs => 10,
            Self::Hosts => 11,
            Self::Dictionaries => 12,
            Self::RedirectRules => 13,
            Self::FieldRules => 14,
            Self::FieldsCommon => 15,
            Self::HostRules => 16,
            Self::Carried => 17,
            Self::Recipe => 32,
            Self::Lifetimes => 33,
            Self::IndexNames => 34,
            Self::Trees => 35,
            Self::Other(number) => number,
        }
    }

    fn from_number(number: u32) -> Self {
        Self::REQUIRED
            .into_iter()
            .chain(Self::OPTIONAL)
            .find(|kind| kind.number() == number)
            .unwrap_or(Self::Other(number))
    }
}

impl fmt::Display for SectionKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Index => "index",
            Self::Entries => "entries",
            Self::Variants => "variants",
            Self::Blobs => "blobs",
            Self::Digests => "digests",
            Self::Strings => "strings",
            Self::FieldsH1 => "fields-h1",
            Self::FieldsHpack => "fields-hpack",
            Self::FieldsQpack => "fields-qpack",
            Self::TinyBlobs => "tiny-blobs",
            Self::Hosts => "hosts",
            Self::Dictionaries => "dictionaries",
            Self::RedirectRules => "redirect-rules",
            Self::FieldRules => "field-rules",
            Self::FieldsCommon => "fields-common",
            Self::HostRules => "host-rules",
            Self::Carried => "carried",
            Self::Recipe => "recipe",
            Self::Lifetimes => "lifetimes",
            Self::IndexNames => "index-names",
            Self::Trees => "trees",
            Self::Other(number) => return write!(out, "{number}"),
        })
    }
}

/// One row of the section table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Section {
    /// Its kind.
    pub kind: SectionKind,
    /// Where it starts in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// XXH3-64 of its bytes.
    pub checksum: u64,
}

/// How the site is to be served: chosen when it was packed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Missing paths that do not look like an asset are answered with `/index.html`, 200.
    pub spa: bool,
    /// Directory listings were packed.
    pub listing: bool,
    /// `/about` was packed as another name of `/about.html`.
    pub clean_urls: bool,
    /// `/about/` redirects to `/about` if that has content and `/about/` does not exist.
    pub slash_redirects: bool,
}

impl Options {
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.spa)
            | u32::from(self.listing) << 1
            | u32::from(self.clean_urls) << 2
            | u32::from(self.slash_redirects) << 3
    }

    /// Unknown bits are hints of a newer writer, and are ignored.
    fn from_bits(bits: u32) -> Self {
        Self {
            spa: bits & 1 != 0,
            listing: bits & 2 != 0,
            clean_urls: bits & 4 != 0,
            slash_redirects: bits & 8 != 0,
        }
    }
}

/// The checked superblock of an archive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Superblock {
    version: u32,
    incompatible: u64,
    compatible: u64,
    archive_len: u64,
    metadata: Range<u64>,
    options: Options,
    build_id: [u8; 32],
    signature: Vec<u8>,
    sections: Vec<Section>,
    build_id_prefix: Vec<u8>,
}

impl Superblock {
    /// Reads the superblock from the first [`SUPERBLOCK_LEN`] bytes of a file of `file_len` bytes.
    ///
    /// # Errors
    ///
    /// An [`ArchiveError`] if the file is not an archive, is newer than this version can read, is
    /// damaged, or does not have the right length.
    pub fn parse(first: &[u8], file_len: u64) -> Result<Self, ArchiveError> {
        if !first.starts_with(&layout::MAGIC) {
            return Err(not_an_archive(first, file_len));
        }
        let found = file_len.min(first.len() as u64);
        if found < SUPERBLOCK_LEN as u64 {
            return Err(ArchiveError::Truncated {
                expected: SUPERBLOCK_LEN as u64,
                found,
            });
        }
        let first = slice(first, 0, SUPERBLOCK_LEN);
        // The version precedes the checksum: a newer format may keep its checksum elsewhere.
        let version = u32_at(first, at::VERSION);
        let expected = u64_at(first, at::CHECKSUM);
        let found = xxh3_64(slice(first, 0, at::CHECKSUM));
        if version != layout::VERSION {
            return Err(ArchiveError::Version { found: version });
        }
        if expected != found {
            return Err(ArchiveError::SuperblockChecksum { expected, found });
        }
        let unknown = u64_at(first, at::INCOMPATIBLE) & !layout::INCOMPATIBLE_KNOWN;
        if unknown != 0 {
            return Err(ArchiveError::Features { unknown });
        }
        let superblock = Self::read(first)?;
        superblock.check_len(file_len)?;
        superblock.check_sections()?;
        Ok(superblock)
    }

    /// Reads the superblock of a partial copy of an archive of `file_len` bytes, which is as that of the archive
    /// but for the [magic](partial_start).
    ///
    /// # Errors
    /// As for [`Superblock::parse`]; what has the magic of an archive is not a partial copy.
    pub fn parse_partial(first: &[u8], file_len: u64) -> Result<Self, ArchiveError> {
        if !first.starts_with(&layout::MAGIC_PARTIAL) {
            return Err(not_an_archive(first, file_len));
        }
        Self::parse(&with_magic(first, &layout::MAGIC), file_len)
    }

    /// The range of the metadata region in the file: the bytes that [`crate::Archive::new`]
    /// expects.
    pub fn metadata_range(&self) -> Range<u64> {
        self.metadata.clone()
    }

    /// The format version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Features that a reader must support (first) and those it may ignore (second).
    pub fn features(&self) -> (u64, u64) {
        (self.incompatible, self.compatible)
    }

    /// Length of the archive in bytes; the file may be longer only if it has a tail.
    pub fn archive_len(&self) -> u64 {
        self.archive_len
    }

    /// Where a file of this length has the metadata region a second time, as one frame of zstd. Nothing says that it is
    /// the same.
    pub fn packed_metadata(&self, file_len: u64) -> Option<Range<u64>> {
        let bits = layout::COMPATIBLE_TAIL | layout::COMPATIBLE_PACKED;
        (self.compatible & bits == bits).then_some(self.archive_len..file_len)
    }

    /// How the site is to be served.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Identifies the release: equal for equal archives only. BLAKE3 of the superblock and the
    /// metadata region, which holds the digests of all blobs.
    pub fn build_id(&self) -> &[u8; 32] {
        &self.build_id
    }

    /// A signature of the build id in minisign's format, if any. Opening does not check it.
    pub fn signature(&self) -> Option<&[u8]> {
        (!self.signature.is_empty()).then_some(&self.signature)
    }

    /// Recomputes the build id. `verify` checks it, opening does not: the checksums of the sections
    /// already detect accidental damage.
    pub fn compute_build_id(&self, metadata: &[u8]) -> [u8; 32] {
        build_id(&self.build_id_prefix, metadata)
    }

    /// The same for a metadata region that is not in memory. `read` fills a buffer from an offset of the file on.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn compute_build_id_from(&self, read: ReadAt<'_>) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.build_id_prefix);
        let mut piece = vec![0; PIECE_LEN];
        for at in self.metadata_range().step_by(PIECE_LEN) {
            let left = usize::try_from(self.metadata.end - at).unwrap_or(PIECE_LEN);
            let piece = &mut piece[..left.min(PIECE_LEN)];
            read(at, piece)?;
            hasher.update(piece);
        }
        Ok(*hasher.finalize().as_bytes())
    }

    /// The section table, in the order of the offsets.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(crate) fn section(&self, kind: SectionKind) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    fn read(first: &[u8]) -> Result<Self, ArchiveError> {
        let count = u32_at(first, at::SECTION_COUNT) as usize;
        if count > SECTION_COUNT_MAX {
            return Err(ArchiveError::Superblock(Rule::SectionCount));
        }
        let sections = (0..count)
            .map(|row| {
                let row = slice(first, at::SECTIONS + row * section::LEN, section::LEN);
                Section {
                    kind: SectionKind::from_number(u32_at(row, section::KIND)),
                    offset: u64_at(row, section::OFFSET),
                    len: u64_at(row, section::BYTES),
                    checksum: u64_at(row, section::CHECKSUM),
                }
            })
            .collect();
        let start = u64_at(first, at::METADATA_OFFSET);
        let len = u64_at(first, at::METADATA_LEN);
        let end = start
            .checked_add(len)
            .ok_or(ArchiveError::Superblock(Rule::Range))?;
        let signature_len = usize::from(u16_at(first, at::SIGNATURE));
        if signature_len > SIGNATURE_LEN_MAX {
            return Err(ArchiveError::Superblock(Rule::Limit));
        }
        let mut build_id = [0; 32];
        build_id.copy_from_slice(slice(first, at::BUILD_ID, 32));
        Ok(Self {
            version: u32_at(first, at::VERSION),
            incompatible: u64_at(first, at::INCOMPATIBLE),
            compatible: u64_at(first, at::COMPATIBLE),
            archive_len: u64_at(first, at::ARCHIVE_LEN),
            metadata: start..end,
            options: Options::from_bits(u32_at(first, at::OPTIONS)),
            build_id,
            signature: slice(first, at::SIGNATURE + 2, signature_len).to_vec(),
            sections,
            build_id_prefix: build_id_prefix(first),
        })
    }

    fn check_len(&self, file_len: u64) -> Result<(), ArchiveError> {
        let expected = self.archive_len;
        if file_len < expected {
            return Err(ArchiveError::Truncated {
                expected,
                found: file_len,
            });
        }
        if file_len > expected && self.compatible & layout::COMPATIBLE_TAIL == 0 {
            return Err(ArchiveError::TrailingBytes {
                expected,
                found: file_len,
            });
        }
        let Range { start, end } = self.metadata;
        if start < SUPERBLOCK_LEN as u64 || end != self.archive_len {
            return Err(ArchiveError::Superblock(Rule::Range));
        }
        if start % PAGE_ALIGN != 0 {
            return Err(ArchiveError::Superblock(Rule::Alignment));
        }
        if end - start > METADATA_LEN_MAX {
            return Err(ArchiveError::Superblock(Rule::Limit));
        }
        Ok(())
    }

    fn check_sections(&self) -> Result<(), ArchiveError> {
        let mut end = self.metadata.start;
        for section in &self.sections {
            if section.offset % section::ALIGN != 0 {
                return Err(ArchiveError::Superblock(Rule::Alignment));
            }
            if section.offset < end {
                return Err(ArchiveError::Superblock(Rule::Overlap));
            }
            end = section
                .offset
                .checked_add(section.len)
                .filter(|end| *end <= self.metadata.end)
                .ok_or(ArchiveError::Superblock(Rule::Range))?;
        }
        // A region that continues after its last section would hold bytes without a checksum.
        if end != self.metadata.end {
            return Err(ArchiveError::Superblock(Rule::Range));
        }
        let count = |kind| {
            self.sections
                .iter()
                .filter(|section| section.kind == kind)
                .count()
        };
        let is_required = SectionKind::REQUIRED
            .into_iter()
            .all(|kind| count(kind) == 1);
        let is_once = SectionKind::OPTIONAL
            .into_iter()
            .all(|kind| count(kind) <= 1);
        if !is_required || !is_once {
            return Err(ArchiveError::Superblock(Rule::SectionCount));
        }
        // A section that readers must know requires its feature bit, and vice versa.
        let has = |kind| count(kind) == 1;
        let has_rules = has(SectionKind::RedirectRules) || has(SectionKind::FieldRules);
        let is = |bit| self.incompatible & bit != 0;
        if has(SectionKind::Hosts) != is(layout::INCOMPATIBLE_HOSTS)
            || has(SectionKind::Dictionaries) != is(layout::INCOMPATIBLE_DICTIONARIES)
            || has_rules != is(layout::INCOMPATIBLE_RULES)
            || has(SectionKind::FieldsCommon) != is(layout::INCOMPATIBLE_COMMON)
            || has(SectionKind::HostRules) != is(layout::INCOMPATIBLE_HOST_RULES)
            || has_rules && has(SectionKind::HostRules)
        {
            return Err(ArchiveError::Superblock(Rule::SectionCount));
        }
        Ok(())
    }
}

/// The text that a signature signs: the build id, preceded by words used for nothing else.
pub fn signed_text(build_id: &[u8; 32]) -> String {
    let mut text = String::from("gannet build ");
    for byte in build_id {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    text
}

/// Puts a signature into a finished superblock; false if there is not enough room.
#[must_use]
pub fn put_signature(first: &mut [u8; SUPERBLOCK_LEN], signature: &[u8]) -> bool {
    let Some(len) = u16::try_from(signature.len())
        .ok()
        .filter(|len| usize::from(*len) <= SIGNATURE_LEN_MAX)
    else {
        return false;
    };
    first[at::SIGNATURE..at::CHECKSUM].fill(0);
    layout::put(first, at::SIGNATURE, &len.to_le_bytes());
    layout::put(first, at::SIGNATURE + 2, signature);
    put_checksum(first);
    true
}

/// The first bytes of a partial copy of an archive, from those of the archive: nothing takes it for one.
pub fn partial_start(first: &[u8]) -> Vec<u8> {
    with_magic(first, &layout::MAGIC_PARTIAL)
}

/// The first bytes of an archive, from those of a partial copy.
pub fn archive_start(first: &[u8]) -> Vec<u8> {
    with_magic(first, &layout::MAGIC)
}

fn with_magic(first: &[u8], magic: &[u8]) -> Vec<u8> {
    let mut changed = first.to_vec();
    for (to, from) in changed.iter_mut().zip(magic) {
        *to = *from;
    }
    changed
}

/// Bytes read at one time.
const PIECE_LEN: usize = 256 << 10;

fn put_checksum(first: &mut [u8; SUPERBLOCK_LEN]) {
    let checksum = xxh3_64(slice(first, 0, at::CHECKSUM));
    layout::put(first, at::CHECKSUM, &checksum.to_le_bytes());
}

/// Fills in build id and checksum of an otherwise complete superblock.
pub(crate) fn seal(first: &mut [u8; SUPERBLOCK_LEN], build_id: &[u8; 32]) {
    layout::put(first, at::BUILD_ID, build_id);
    put_checksum(first);
}

/// A hasher for the build id that still needs the metadata region.
pub(crate) fn build_id_hasher(first: &[u8; SUPERBLOCK_LEN]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&build_id_prefix(first));
    hasher
}

/// The part of the superblock covered by the build id: all but the id, the room for a signature and
/// the checksum.
fn build_id_prefix(first: &[u8]) -> Vec<u8> {
    let after = at::BUILD_ID + 32;
    [
        slice(first, 0, at::BUILD_ID),
        slice(first, after, at::SIGNATURE - after),
    ]
    .concat()
}

fn build_id(prefix: &[u8], metadata: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(prefix).update(metadata);
    *hasher.finalize().as_bytes()
}

fn not_an_archive(first: &[u8], file_len: u64) -> ArchiveError {
    if first.is_empty() {
        return ArchiveError::Empty;
    }
    if layout::MAGIC.starts_with(first) {
        let expected = SUPERBLOCK_LEN as u64;
        return ArchiveError::Truncated {
            expected,
            found: first.len() as u64,
        };
    }
    let mut found = [0; 4];
    for (to, from) in found.iter_mut().zip(first) {
        *to = *from;
    }
    ArchiveError::Magic {
        found,
        lookalike: lookalike(first, file_len),
    }
}

fn lookalike(first: &[u8], file_len: u64) -> Lookalike {
    if first.starts_with(b"PK\x03\x04") || first.starts_with(b"PK\x05\x06") {
        return Lookalike::Zip;
    }
    if first.starts_with(b"\x1f\x8b") {
        return Lookalike::Gzip;
    }
    if first.starts_with(b"\x28\xb5\x2f\xfd") {
        return Lookalike::Zstd;
    }
    if slice(first, 257, 5) == b"ustar" {
        return Lookalike::Tar;
    }
    if first.starts_with(&layout::MAGIC_PARTIAL) {
        return Lookalike::Partial;
    }
    if slice(first, 1, 6) == b"gannet" {
        return Lookalike::Converted;
    }
    let text = first.trim_ascii_start();
    let is_tag = |tag: &[u8]| slice(text, 0, tag.len()).eq_ignore_ascii_case(tag);
    if is_tag(b"<!doctype html") || is_tag(b"<html") {
        return Lookalike::Html;
    }
    if is_cdb(first, file_len) {
        Lookalike::Cdb
    } else {
        Lookalike::Unknown
    }
}

/// A constant database has no magic, but it starts with 256 pairs of position and slot count, and
/// the tables they locate fill the file to its end without a gap.
fn is_cdb(first: &[u8], file_len: u64) -> bool {
    let pair = |row: usize| {
        (
            u64::from(u32_at(first, row * 8)),
            u64::from(u32_at(first, row * 8 + 4)),
        )
    };
    let mut next = pair(0).0;
    if first.len() < 2048 || next < 2048 {
        return false;
    }
    for row in 0..256 {
        let (position, slots) = pair(row);
        if position != next {
            return false;
        }
        next += slots * 8;
    }
    next == file_len
}
