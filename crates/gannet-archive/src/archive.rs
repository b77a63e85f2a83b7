//! An opened archive: from a key to its entry, in bounded time, without possible errors.

use core::ops::Range;

use gannet_http::semantics::coding::Coding;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::dictionaries::{self, Dictionary};
use crate::entry::{Entry, Stored};
use crate::error::ArchiveError;
use crate::hosts::{self, HostNames, HostRules};
use crate::layout::{blob, entry, index, record, slice, u8_at, u16_at, u32_at, u64_at};
use crate::stats::Stats;
use crate::superblock::{Options, SectionKind, Superblock};
use crate::validate;

/// The name spaces of keys.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Namespace {
    /// The resource that a request's path names.
    #[default]
    Content = 0,
    /// The not-found page of a folder, for missing paths below it; the path is the folder's, ending
    /// with `/`.
    NotFoundPage = 1,
    /// The page, sent with 200, for missing paths below a folder that do not look like an asset;
    /// the path is the folder's.
    ApplicationPage = 2,
    /// The page, sent with 200, for all missing paths below a folder; the path is the folder's.
    Wildcard = 3,
    /// The same as the content at this path, but with the fields that it would have without field
    /// rules: it answers for other paths, whose rules apply.
    Unruled = 4,
}

impl Namespace {
    /// All name spaces, by number.
    pub(crate) const ALL: [Self; 5] = [
        Self::Content,
        Self::NotFoundPage,
        Self::ApplicationPage,
        Self::Wildcard,
        Self::Unruled,
    ];

    /// Whether its paths are those of folders.
    pub(crate) const fn is_of_folders(self) -> bool {
        matches!(
            self,
            Self::NotFoundPage | Self::ApplicationPage | Self::Wildcard
        )
    }
}

/// Identifies an entry.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key<'k> {
    /// The virtual host: 0 for any unnamed host, otherwise one more than a position in
    /// [`Archive::hosts`].
    pub host: u16,
    /// The name space.
    pub namespace: Namespace,
    /// The path: decoded, normalised ([`crate::is_normalised`]), starting with `/`.
    pub path: &'k [u8],
}

impl<'k> Key<'k> {
    /// The key of the resource at `path`.
    pub const fn content(path: &'k [u8]) -> Self {
        Self {
            host: 0,
            namespace: Namespace::Content,
            path,
        }
    }

    /// The key of the not-found page of `folder`, which ends with `/`.
    pub const fn not_found_page(folder: &'k [u8]) -> Self {
        Self {
            host: 0,
            namespace: Namespace::NotFoundPage,
            path: folder,
        }
    }

    /// The same on a virtual host.
    pub const fn on(self, host: u16) -> Self {
        Self { host, ..self }
    }

    /// The same in another name space.
    pub const fn within(self, namespace: Namespace) -> Self {
        Self { namespace, ..self }
    }

    /// XXH3-64 of the path, seeded by host and name space, so that equal paths are spread.
    #[inline]
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        let space = u64::from(self.namespace as u8) | u64::from(self.host) << 8;
        xxh3_64_with_seed(self.path, seed ^ space)
    }
}

/// Stored bytes: the body of one or more variants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Blob<'a> {
    /// Where it starts in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// BLAKE3 of its bytes.
    pub digest: &'a [u8],
    /// Whether it is in the metadata region.
    pub is_tiny: bool,
    /// The coding and the number of the blob of which this is the decoded content. It is not stored
    /// itself then, and `offset` is 0.
    pub coded: Option<(Coding, u32)>,
}

/// An opened archive over the bytes `B` of its metadata region.
#[derive(Clone, Debug)]
pub struct Archive<B> {
    superblock: Superblock,
    bytes: B,
    layout: Layout,
}

impl<B: AsRef<[u8]>> Archive<B> {
    /// Checks the metadata region, once and completely: checksums, every offset and length, the
    /// order of everything that is ordered, that the index finds every entry, and that no field
    /// block could break a message. The checks are those of `FORMAT.md`, section "Validation".
    ///
    /// # Errors
    ///
    /// An [`ArchiveError`] that names the section, the record and the rule.
    pub fn new(superblock: Superblock, metadata: B) -> Result<Self, ArchiveError> {
        let layout = validate::check(&superblock, metadata.as_ref())?;
        Ok(Self {
            superblock,
            bytes: metadata,
            layout,
        })
    }

    /// The entry of `key`. Probes at most [`crate::limits::PROBE_MAX`] slots.
    #[inline]
    pub fn lookup(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let view = self.view();
        view.find(key).map(|record| Entry { view, record })
    }

    /// The entries, in the order of host, name space and path bytes.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        let view = self.view();
        (0..self.layout.entry_count).map(move |record| Entry { view, record })
    }

    /// The entry with this number ([`Entry::number`]).
    pub fn entry(&self, number: u32) -> Option<Entry<'_>> {
        let view = self.view();
        (number < self.layout.entry_count).then_some(Entry {
            view,
            record: number,
        })
    }

    /// All blobs, in the order of the file.
    pub fn blobs(&self) -> impl ExactSizeIterator<Item = Blob<'_>> {
        let view = self.view();
        (0..self.layout.blob_count).map(move |number| view.blob(number))
    }

    /// The number of the blob that has this byte of the file, and its place there. `None` for a byte of none, and
    /// for those in the metadata.
    #[must_use]
    pub fn blob_at(&self, offset: u64) -> Option<(u32, Range<u64>)> {
        let view = self.view();
        let (mut from, mut to) = (0, self.layout.blob_count);
        // Blobs that are stored in a coding alone follow those in the file, with higher offsets.
        while from < to {
            let middle = from + (to - from) / 2;
            match view.blob_range(middle).0 <= offset {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        let number = from.checked_sub(1)?;
        let (start, len) = view.blob_range(number);
        let place = start..start.saturating_add(len);
        let is_outside = place.end <= self.layout.metadata_offset;
        (is_outside && place.contains(&offset)).then_some((number, place))
    }

    /// All dictionaries, by number.
    pub fn dictionaries(&self) -> impl ExactSizeIterator<Item = Dictionary<'_>> {
        let view = self.view();
        (0..self.layout.dictionary_count).map(move |number| dictionaries::of(view, number))
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// How the site is to be served.
    pub fn options(&self) -> Options {
        self.superblock.options()
    }

    /// The names of the virtual hosts, in their order: the first is number 1.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let names = self.host_names();
        (0..names.starts.len()).map(move |index| names.at(index).unwrap_or_default())
    }

    /// The name of the virtual host with this number; `None` for number 0 and for a number without
    /// a host.
    pub fn host_name(&self, number: u16) -> Option<&[u8]> {
        self.host_names().at(usize::from(number).checked_sub(1)?)
    }

    /// The number of the virtual host with this name, which is in lower case.
    pub fn host_number(&self, name: &[u8]) -> Option<u16> {
        let index = self.host_names().index_of(name)?;
        u16::try_from(index + 1).ok()
    }

    fn host_names(&self) -> HostNames<'_> {
        HostNames {
            section: self.section(SectionKind::Hosts).unwrap_or_default(),
            starts: &self.layout.host_starts,
        }
    }

    /// The rules for a virtual host, or for any other host: its own, or those of the whole archive.
    pub fn rules(&self, host: u16) -> HostRules<'_> {
        match self.section(SectionKind::HostRules) {
            Some(section) => hosts::rules_of(section, &self.layout.rules_starts, host),
            None => HostRules {
                redirects: self.section(SectionKind::RedirectRules).unwrap_or_default(),
                fields: self.section(SectionKind::FieldRules).unwrap_or_default(),
            },
        }
    }

    /// The bytes of an optional section.
    pub fn section(&self, kind: SectionKind) -> Option<&[u8]> {
        let section = self.superblock.section(kind)?;
        let start = section.offset.checked_sub(self.layout.metadata_offset)?;
        Some(slice(
            self.bytes.as_ref(),
            usize_of(start),
            usize_of(section.len),
        ))
    }

    /// The names of index pages by which its pages answer for folders, apart from those of its dialect.
    pub fn index_names(&self) -> impl Iterator<Item = &[u8]> {
        let section = self.section(SectionKind::IndexNames).unwrap_or_default();
        let names = section.split(|byte| *byte == 0);
        names.filter(|name| !name.is_empty())
    }

    /// Whether there is an entry of this host in this name space.
    pub fn has_namespace(&self, host: u16, namespace: Namespace) -> bool {
        let view = self.view();
        let (mut low, mut high) = (0, self.layout.entry_count);
        while low < high {
            let middle = low + (high - low) / 2;
            let key = view.key(middle);
            if (key.host, key.namespace) < (host, namespace) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found = (low < self.layout.entry_count).then(|| view.key(low));
        found.is_some_and(|key| (key.host, key.namespace) == (host, namespace))
    }

    /// The metadata region.
    pub fn metadata(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The index's number of slots, and the longest probe of any entry.
    pub fn index_shape(&self) -> (u64, u32) {
        (self.layout.slot_count as u64, self.layout.probe_max)
    }

    /// Counts and sizes. Walks over all records.
    pub fn stats(&self) -> Stats {
        Stats::of(self)
    }

    #[inline]
    fn view(&self) -> View<'_> {
        View {
            bytes: self.bytes.as_ref(),
            layout: &self.layout,
        }
    }
}

/// Where the sections are in the metadata region, and the numbers a lookup needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) metadata_offset: u64,
    pub(crate) slots: Range<usize>,
    pub(crate) entries: Range<usize>,
    pub(crate) variants: Range<usize>,
    pub(crate) blobs: Range<usize>,
    pub(crate) digests: Range<usize>,
    pub(crate) strings: Range<usize>,
    pub(crate) fields_h1: Range<usize>,
    pub(crate) fields_hpack: Range<usize>,
    pub(crate) fields_common: Range<usize>,
    /// Variants have field blocks for HTTP/2.
    pub(crate) has_hpack: bool,
    pub(crate) tiny_blobs: Range<usize>,
    pub(crate) seed: u64,
    pub(crate) home_bits: u32,
    pub(crate) slot_count: usize,
    pub(crate) probe_max: u32,
    pub(crate) entry_count: u32,
    pub(crate) variant_count: u32,
    pub(crate) blob_count: u32,
    pub(crate) dictionaries: Range<usize>,
    pub(crate) dictionary_count: u32,
    pub(crate) carried: Range<usize>,
    /// Where the name of each host begins in its section.
    pub(crate) host_starts: Vec<u32>,
    /// The hosts with their own rules, and where those begin in their section.
    pub(crate) rules_starts: Vec<(u16, usize)>,
}

/// The metadata region with its layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) layout: &'a Layout,
}

impl<'a> View<'a> {
    pub(crate) fn section(self, range: &Range<usize>) -> &'a [u8] {
        self.bytes.get(range.clone()).unwrap_or(&[])
    }

    /// Slots are in the order of their hashes with gaps between, so a probe may stop at the first
    /// empty slot and at the first greater hash.
    #[inline]
    pub(crate) fn find(self, key: Key<'_>) -> Option<u32> {
        let hash = key.hash(self.layout.seed);
        let home = home(hash, self.layout.home_bits);
        let slots = self.section(&self.layout.slots);
        let mut at = home.checked_mul(index::SLOT_LEN)?;
        for _ in 0..self.layout.probe_max {
            let slot = slots.get(at..at + index::SLOT_LEN)?;
            let entry = u32_at(slot, index::SLOT_ENTRY);
            let found = u64_at(slot, index::SLOT_HASH);
            if entry == index::EMPTY || found > hash {
                return None;
            }
            let len = u32_at(slot, index::SLOT_PATH_LEN) as usize;
            if found == hash && len == key.path.len() && self.key(entry) == key {
                return Some(entry);
            }
            at += index::SLOT_LEN;
        }
        None
    }

    #[inline]
    pub(crate) fn entry_record(self, number: u32) -> &'a [u8; entry::LEN] {
        let at = self.layout.entries.start + number as usize * entry::LEN;
        record(self.bytes, at)
    }

    #[inline]
    pub(crate) fn key(self, number: u32) -> Key<'a> {
        let record = self.entry_record(number);
        Key {
            host: u16_at(record, entry::HOST),
            namespace: Namespace::ALL
                .get(usize::from(u8_at(record, entry::NAMESPACE)))
                .copied()
                .unwrap_or_default(),
            path: self.string(
                u64_at(record, entry::PATH_OFFSET),
                u32_at(record, entry::PATH_LEN) as usize,
            ),
        }
    }

    #[inline]
    pub(crate) fn string(self, offset: u64, len: usize) -> &'a [u8] {
        slice(self.section(&self.layout.strings), usize_of(offset), len)
    }

    pub(crate) fn blob_range(self, number: u32) -> (u64, u64) {
        let at = self.layout.blobs.start + number as usize * blob::LEN;
        let record = slice(self.bytes, at, blob::LEN);
        (u64_at(record, blob::OFFSET), u64_at(record, blob::BYTES))
    }

    /// The range of a tiny blob in the metadata region.
    #[inline]
    pub(crate) fn tiny_range(self, offset: u64, len: u64) -> Option<Range<usize>> {
        let start = usize_of(offset.checked_sub(self.layout.metadata_offset)?);
        Some(start..start.checked_add(usize_of(len))?)
    }

    /// The bytes of a blob with this range.
    #[inline]
    pub(crate) fn stored(self, (offset, len): (u64, u64)) -> Stored<'a> {
        if offset < self.layout.metadata_offset {
            return Stored::Blob { offset, len };
        }
        let range = self.tiny_range(offset, len).unwrap_or(0..0);
        Stored::Tiny(self.bytes.get(range).unwrap_or(&[]))
    }

    pub(crate) fn digest(self, number: u32) -> &'a [u8] {
        let at = self.layout.digests.start + number as usize * blob::DIGEST_LEN;
        slice(self.bytes, at, blob::DIGEST_LEN)
    }

    fn blob(self, number: u32) -> Blob<'a> {
        let (offset, len) = self.blob_range(number);
        let coded = blob::coded_of(offset);
        Blob {
            offset: if coded.is_some() { 0 } else { offset },
            len,
            digest: self.digest(number),
            is_tiny: coded.is_none() && offset >= self.layout.metadata_offset,
            coded,
        }
    }
}

/// The slot where the search for `hash` starts: its highest bits.
#[inline]
pub(crate) fn home(hash: u64, home_bits: u32) -> usize {
    usize_of(hash.checked_shr(64 - home_bits).unwrap_or(0))
}

/// Offsets were checked against the length of a slice, so they fit; if one did not, it would be out
/// of range everywhere.
#[inline]
pub(crate) fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
