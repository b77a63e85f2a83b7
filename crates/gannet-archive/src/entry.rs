//! Entries and variants: the results of lookups.

use core::ops::Range;

use gannet_http::semantics::coding::{Coding, CodingSet};
use gannet_http::semantics::response::FieldBlock;

use crate::archive::{Key, Namespace, View, usize_of};
use crate::carried;
use crate::dictionaries::{self, Dictionary};
use crate::immutable::is_immutable;
use crate::layout::{blob, entry, i64_at, record, slice, u8_at, u16_at, u32_at, u64_at, variant};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EntryKind<'a> {
    /// A representation, in one or more variants.
    Content,
    /// A redirect. Keeping the request's query is up to the server.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The value of the `location` field: a path of this site, percent-encoded, or a URL.
        location: &'a [u8],
    },
}

/// One resource.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub(crate) view: View<'a>,
    pub(crate) record: u32,
}

impl<'a> Entry<'a> {
    /// Its number: 0-based, in the order of the keys. Valid for [`crate::Archive::entry`].
    pub fn number(&self) -> u32 {
        self.record
    }

    /// Its key.
    pub fn key(&self) -> Key<'a> {
        self.view.key(self.record)
    }

    /// Its decoded path.
    pub fn path(&self) -> &'a [u8] {
        self.key().path
    }

    /// Its kind.
    #[inline]
    pub fn kind(&self) -> EntryKind<'a> {
        let record = self.bytes();
        match u8_at(record, entry::KIND) {
            entry::KIND_REDIRECT => EntryKind::Redirect {
                status: u16_at(record, entry::STATUS),
                location: self.value(),
            },
            _ => EntryKind::Content,
        }
    }

    /// The content type, as the value of its field; empty for redirects.
    pub fn content_type(&self) -> &'a [u8] {
        match self.kind() {
            EntryKind::Content => self.value(),
            EntryKind::Redirect { .. } => &[],
        }
    }

    /// When the source was last modified, in seconds since 1970-01-01T00:00:00Z; `None` if unknown.
    pub fn last_modified(&self) -> Option<i64> {
        let record = self.bytes();
        (self.flags() & entry::FLAG_LAST_MODIFIED != 0)
            .then(|| i64_at(record, entry::LAST_MODIFIED))
    }

    /// Whether it is another name of an entry that exists too (`/dir/` of `/dir/index.html`).
    /// Extraction leaves it out.
    pub fn is_alias(&self) -> bool {
        self.flags() & entry::FLAG_ALIAS != 0
    }

    /// Whether it was generated while packing and has no source file (a listing).
    pub fn is_generated(&self) -> bool {
        self.flags() & entry::FLAG_GENERATED != 0
    }

    /// Whether it is content whose own path never has other content: `cache-control` in its field
    /// block has `immutable` (RFC 8246), by the packer's finding or by a rule that depends on the
    /// path alone. Such an entry may answer for its path after a later release has dropped it.
    /// Never true for aliases, redirects, generated content, or content that answers other paths.
    /// Reads the block, about 200 bytes: not for every request.
    pub fn is_immutable(&self) -> bool {
        self.key().namespace == Namespace::Content
            && !self.is_alias()
            && !self.is_generated()
            && self
                .variants()
                .next()
                .is_some_and(|variant| is_immutable(variant.h1()))
    }

    /// When it was last part of a site, in seconds since 1970-01-01T00:00:00Z, if it belongs to an
    /// earlier release and is carried on; `None` if it is part of this one.
    pub fn carried_since(&self) -> Option<i64> {
        carried::find(self.view.section(&self.view.layout.carried), self.record)
    }

    /// The variants that need no dictionary, shortest first. A redirect has none.
    #[inline]
    pub fn variants(&self) -> impl ExactSizeIterator<Item = Variant<'a>> + use<'a> {
        let Self {
            view,
            record: number,
        } = *self;
        let record = self.bytes();
        let first = u32_at(record, entry::FIRST_VARIANT);
        let end = first + u32::from(u8_at(record, entry::VARIANT_COUNT));
        (first..end).map(move |record| Variant {
            view,
            entry: number,
            record,
        })
    }

    /// Whether it has [`dictionary_variants`](Self::dictionary_variants).
    #[inline]
    pub fn has_dictionary_variants(&self) -> bool {
        u8_at(self.bytes(), entry::CODED_COUNT) != 0
    }

    /// The variants that are coded with a dictionary (RFC 9842), shortest first, for clients that
    /// have it.
    pub fn dictionary_variants(&self) -> impl ExactSizeIterator<Item = Variant<'a>> + use<'a> {
        let Self {
            view,
            record: number,
        } = *self;
        let record = self.bytes();
        let first = u32_at(record, entry::FIRST_CODED);
        let end = first + u32::from(u8_at(record, entry::CODED_COUNT));
        (first..end).map(move |record| Variant {
            view,
            entry: number,
            record,
        })
    }

    /// The shortest variant in one of the acceptable codings with the dictionary of this SHA-256.
    pub fn select_with_dictionary(
        &self,
        acceptable: CodingSet,
        sha256: &[u8; 32],
    ) -> Option<Variant<'a>> {
        self.dictionary_variants().find(|variant| {
            let has_it = |it: Dictionary<'_>| it.sha256 == sha256.as_slice();
            acceptable.contains(variant.coding()) && variant.dictionary().is_some_and(has_it)
        })
    }

    /// The variant of this entry with this number ([`Variant::number`]).
    pub fn variant(&self, number: u32) -> Option<Variant<'a>> {
        let mut variants = self.variants().chain(self.dictionary_variants());
        variants.find(|variant| variant.record == number)
    }

    /// The shortest variant in one of the acceptable codings.
    #[inline]
    pub fn select(&self, acceptable: CodingSet) -> Option<Variant<'a>> {
        // By number: only the one that is found becomes a value.
        let record = self.bytes();
        let first = u32_at(record, entry::FIRST_VARIANT);
        let mut numbers = first..first + u32::from(u8_at(record, entry::VARIANT_COUNT));
        let of = |number| Variant {
            view: self.view,
            entry: self.record,
            record: number,
        };
        numbers
            .find(|number| acceptable.has_number(u8_at(of(*number).bytes(), variant::CODING)))
            .map(of)
    }

    #[inline]
    fn bytes(&self) -> &'a [u8; entry::LEN] {
        self.view.entry_record(self.record)
    }

    fn flags(&self) -> u8 {
        u8_at(self.bytes(), entry::FLAGS)
    }

    fn value(&self) -> &'a [u8] {
        let record = self.bytes();
        let len = u32_at(record, entry::VALUE_LEN) as usize;
        self.view.string(u64_at(record, entry::VALUE_OFFSET), len)
    }
}

/// The location of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Body<'a> {
    /// Stored.
    Plain(Stored<'a>),
    /// Not stored: it is the content of stored coded bytes, for [`decode`](crate::decode).
    Decoded {
        /// The coded bytes, which are shorter than the body.
        stored: Stored<'a>,
        /// Their coding.
        coding: Coding,
        /// The length of the body in bytes, at most
        /// [`DECODED_LEN_MAX`](crate::limits::DECODED_LEN_MAX).
        len: u64,
    },
}

/// The location of stored bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stored<'a> {
    /// In memory.
    Tiny(&'a [u8]),
    /// In the file.
    Blob {
        /// Where they start in the file.
        offset: u64,
        /// Their length in bytes.
        len: u64,
    },
}

/// One content coding of an entry's representation.
#[derive(Clone, Copy, Debug)]
pub struct Variant<'a> {
    view: View<'a>,
    entry: u32,
    record: u32,
}

impl<'a> Variant<'a> {
    /// Its number: 0-based, in the order of the section. Valid for [`Entry::variant`].
    pub fn number(&self) -> u32 {
        self.record
    }

    /// The dictionary that it is coded with, if any.
    pub fn dictionary(&self) -> Option<Dictionary<'a>> {
        let number = u32_at(self.bytes(), variant::DICTIONARY);
        let has_one = self.coding().has_dictionary();
        has_one.then(|| dictionaries::of(self.view, number))
    }

    /// Its coding.
    #[inline]
    pub fn coding(&self) -> Coding {
        Coding::from_number(u8_at(self.bytes(), variant::CODING)).unwrap_or(Coding::Identity)
    }

    /// The stored bytes, or their location.
    #[inline]
    pub fn body(&self) -> Body<'a> {
        let (offset, len) = self.blob_range();
        match blob::coded_of(offset) {
            None => Body::Plain(self.view.stored((offset, len))),
            Some((coding, number)) => Body::Decoded {
                stored: self.view.stored(self.view.blob_range(number)),
                coding,
                len,
            },
        }
    }

    /// The range of the body in the metadata region, if it is a tiny blob.
    #[inline]
    pub fn tiny_range(&self) -> Option<Range<usize>> {
        let (offset, len) = self.blob_range();
        if blob::coded_of(offset).is_some() {
            return None;
        }
        self.view.tiny_range(offset, len)
    }

    /// Length of the bytes that are sent.
    pub fn blob_len(&self) -> u64 {
        self.blob_range().1
    }

    /// Where the stored bytes start in the file, tiny or not; the coded ones, if only they are
    /// stored.
    pub fn blob_offset(&self) -> u64 {
        let offset = self.blob_range().0;
        match blob::coded_of(offset) {
            None => offset,
            Some((_, number)) => self.view.blob_range(number).0,
        }
    }

    /// The coding in which alone the bytes are stored, if they are not stored themselves.
    pub fn stored_as(&self) -> Option<Coding> {
        blob::coded_of(self.blob_range().0).map(|(coding, _)| coding)
    }

    /// BLAKE3 of the bytes that are sent.
    pub fn digest(&self) -> &'a [u8] {
        self.view.digest(self.blob_number())
    }

    /// The field block for HTTP/1.
    #[inline]
    pub fn h1(&self) -> FieldBlock<'a> {
        let record = self.bytes();
        FieldBlock {
            bytes: self.view.bytes.get(self.h1_range()).unwrap_or(&[]),
            length_end: u16_at(record, variant::H1_LENGTH_END),
            shared_start: u16_at(record, variant::H1_SHARED_START),
            common: self.common(variant::H1_COMMON_OFFSET, variant::H1_COMMON_LEN),
            common_shared_start: u16_at(record, variant::H1_COMMON_SHARED_START),
        }
    }

    /// Whether its blocks have common parts and its entity tag is in its block.
    #[inline]
    fn has_common(&self) -> bool {
        u8_at(self.bytes(), variant::FLAGS) & variant::FLAG_COMMON != 0
    }

    #[inline]
    fn common(&self, offset: usize, len: usize) -> &'a [u8] {
        if !self.has_common() {
            return &[];
        }
        let record = self.bytes();
        let start = u32_at(record, offset) as usize;
        let section = self.view.section(&self.view.layout.fields_common);
        slice(section, start, u16_at(record, len).into())
    }

    /// The field block for HTTP/2, if there is one: HPACK (RFC 7541) that neither uses nor changes
    /// the dynamic table, with cuts like those of [`h1`](Self::h1).
    #[inline]
    pub fn hpack(&self) -> Option<FieldBlock<'a>> {
        if !self.view.layout.has_hpack {
            return None;
        }
        let record = self.bytes();
        let len = usize::from(u16_at(record, variant::HPACK_LEN));
        let offset = usize_of(u64_at(record, variant::HPACK_OFFSET));
        let start = self.view.layout.fields_hpack.start.saturating_add(offset);
        let bytes = self.view.bytes.get(start..start.saturating_add(len))?;
        (len > 0).then_some(FieldBlock {
            bytes,
            length_end: u16_at(record, variant::HPACK_LENGTH_END),
            shared_start: u16_at(record, variant::HPACK_SHARED_START),
            common: self.common(variant::HPACK_COMMON_OFFSET, variant::HPACK_COMMON_LEN),
            common_shared_start: u16_at(record, variant::HPACK_COMMON_SHARED_START),
        })
    }

    /// The range of the field block for HTTP/1 in the metadata region, without common parts.
    #[inline]
    pub fn h1_range(&self) -> Range<usize> {
        let record = self.bytes();
        let offset = usize_of(u64_at(record, variant::H1_OFFSET));
        let start = self.view.layout.fields_h1.start.saturating_add(offset);
        start..start.saturating_add(usize::from(u16_at(record, variant::H1_LEN)))
    }

    /// The entity tag, quotes included; empty if there is none.
    pub fn entity_tag(&self) -> &'a [u8] {
        let record = self.bytes();
        let len = usize::from(u16_at(record, variant::ENTITY_TAG_LEN));
        let offset = u64_at(record, variant::ENTITY_TAG_OFFSET);
        if self.has_common() {
            let section = self.view.section(&self.view.layout.fields_h1);
            return slice(section, usize_of(offset), len);
        }
        self.view.string(offset, len)
    }

    /// The content type of its entry.
    pub fn content_type(&self) -> &'a [u8] {
        Entry {
            view: self.view,
            record: self.entry,
        }
        .content_type()
    }

    /// The number of its blob: equal for variants that share their bytes.
    pub fn blob_number(&self) -> u32 {
        u32_at(self.bytes(), variant::BLOB)
    }

    /// The number of the blob that is read for it: another one if it is stored only in a coding.
    pub fn stored_blob_number(&self) -> u32 {
        let coded = blob::coded_of(self.blob_range().0);
        coded.map_or(self.blob_number(), |(_, number)| number)
    }

    fn blob_range(&self) -> (u64, u64) {
        self.view.blob_range(self.blob_number())
    }

    #[inline]
    fn bytes(&self) -> &'a [u8; variant::LEN] {
        let at = self.view.layout.variants.start + self.record as usize * variant::LEN;
        record(self.view.bytes, at)
    }
}
