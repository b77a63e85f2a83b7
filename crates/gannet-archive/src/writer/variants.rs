//! The variants of a representation: their records, and their field blocks in those sections.

use gannet_http::semantics::response::FieldBlock;

use super::{DictionaryId, VariantDraft, VariantsId, Writer};
use crate::error::Rule;
use crate::field_block::{self, is_entity_tag};
use crate::hpack_block;
use crate::layout::{put, variant};
use crate::limits::{COMMON_LEN_MAX, ENTRY_COUNT_MAX, FIELD_BLOCK_LEN_MAX, VARIANT_COUNT_MAX};
use crate::superblock::SectionKind;

impl Writer {
    /// Adds the variants of one representation, in any order, no coding twice.
    pub fn add_variants(&mut self, drafts: &[VariantDraft<'_>]) -> VariantsId {
        let mut drafts = drafts.to_vec();
        drafts.sort_by_key(|draft| (self.blob_len(draft.blob), draft.coding));
        let drafts: Vec<_> = drafts.into_iter().map(|draft| (draft, 0)).collect();
        self.push_variants(&drafts)
    }

    /// Adds the variants of one representation that are coded with dictionaries, in any order, none
    /// twice in the same coding with the same dictionary.
    pub fn add_dictionary_variants(
        &mut self,
        drafts: &[(VariantDraft<'_>, DictionaryId)],
    ) -> VariantsId {
        let mut drafts: Vec<_> = drafts.iter().map(|(draft, id)| (*draft, id.0)).collect();
        drafts.sort_by_key(|(draft, number)| (self.blob_len(draft.blob), draft.coding, *number));
        self.push_variants(&drafts)
    }

    /// Adds variants with the numbers of their dictionaries.
    fn push_variants(&mut self, drafts: &[(VariantDraft<'_>, u32)]) -> VariantsId {
        if drafts.is_empty() {
            return VariantsId::default();
        }
        let first = self.variant_count();
        let count = drafts.len() as u64;
        if count > u64::from(VARIANT_COUNT_MAX) || first + count > ENTRY_COUNT_MAX {
            self.refuse(SectionKind::Variants, Rule::Limit);
            return VariantsId::default();
        }
        for (draft, dictionary) in drafts {
            self.push_variant(draft, *dictionary);
        }
        VariantsId {
            first: first as u32,
            count: count as u8,
        }
    }

    fn push_variant(&mut self, draft: &VariantDraft<'_>, dictionary: u32) {
        let (h1, hpack) = (draft.h1, draft.hpack.unwrap_or_default());
        let has_common = !h1.common.is_empty();
        let len_of = |block: &FieldBlock<'_>| block.bytes.len() + block.common.len();
        let is_too_long = len_of(&h1).max(len_of(&hpack)) > FIELD_BLOCK_LEN_MAX;
        if is_too_long || draft.entity_tag.len() > FIELD_BLOCK_LEN_MAX {
            return self.refuse(SectionKind::Variants, Rule::Limit);
        }
        let known = [h1.common, hpack.common].map(|common| self.fields_common.find(common));
        if self.checks_records
            && let Err(rule) = self.check_variant(draft, known)
        {
            return self.refuse(SectionKind::Variants, rule);
        }
        let mut record = [0; variant::LEN];
        put(&mut record, variant::BLOB, &draft.blob.0.to_le_bytes());
        put(&mut record, variant::DICTIONARY, &dictionary.to_le_bytes());
        let fields = self.fields.append(&mut *self.spool, h1.bytes);
        put(&mut record, variant::H1_OFFSET, &fields.to_le_bytes());
        put_lengths(&mut record, variant::H1_LEN, &h1);
        if draft.hpack.is_some() {
            let offset = self.fields_hpack.append(&mut *self.spool, hpack.bytes);
            put(&mut record, variant::HPACK_OFFSET, &offset.to_le_bytes());
            put_lengths(&mut record, variant::HPACK_LEN, &hpack);
        }
        let tag = if has_common {
            record[variant::FLAGS] = variant::FLAG_COMMON;
            self.put_common(&mut record, [&h1, &hpack], known);
            match position(h1.bytes, draft.entity_tag) {
                Some(place) => fields + place,
                None => self.fields.append(&mut *self.spool, draft.entity_tag),
            }
        } else {
            self.strings.add(draft.entity_tag).0
        };
        let tag_len = draft.entity_tag.len() as u16;
        put(&mut record, variant::ENTITY_TAG_OFFSET, &tag.to_le_bytes());
        put(&mut record, variant::ENTITY_TAG_LEN, &tag_len.to_le_bytes());
        record[variant::CODING] = draft.coding as u8;
        self.variants.append(&mut *self.spool, &record);
    }

    /// Puts the common parts of field blocks into their section, once each. `known` is their place
    /// if they are stored already.
    fn put_common(
        &mut self,
        record: &mut [u8; variant::LEN],
        blocks: [&FieldBlock<'_>; 2],
        known: [Option<u64>; 2],
    ) {
        let members = [
            (
                variant::H1_COMMON_OFFSET,
                variant::H1_COMMON_LEN,
                variant::H1_COMMON_SHARED_START,
            ),
            (
                variant::HPACK_COMMON_OFFSET,
                variant::HPACK_COMMON_LEN,
                variant::HPACK_COMMON_SHARED_START,
            ),
        ];
        for ((block, known), (offset_at, len_at, cut_at)) in blocks.iter().zip(known).zip(members) {
            let offset = known.unwrap_or_else(|| self.fields_common.add(block.common).0);
            if self.fields_common.bytes.len() > COMMON_LEN_MAX {
                return self.refuse(SectionKind::FieldsCommon, Rule::Limit);
            }
            let (len, cut) = (block.common.len() as u16, block.common_shared_start);
            put(record, offset_at, &(offset as u32).to_le_bytes());
            put(record, len_at, &len.to_le_bytes());
            put(record, cut_at, &cut.to_le_bytes());
        }
    }

    /// The checks that opening the archive would make.
    fn check_variant(&self, draft: &VariantDraft<'_>, known: [Option<u64>; 2]) -> Result<(), Rule> {
        let (h1, hpack) = (draft.h1, draft.hpack.unwrap_or_default());
        if !is_entity_tag(draft.entity_tag) {
            return Err(Rule::EntityTag);
        }
        let blob_len = self.blob_len(draft.blob);
        field_block::check(h1.bytes, h1.length_end, h1.shared_start, blob_len)?;
        if draft.hpack.is_some() {
            hpack_block::check(hpack)?;
        }
        // Stored ones were checked before.
        if known[0].is_none() && !h1.common.is_empty() {
            field_block::check_common(h1.common, h1.common_shared_start)?;
        }
        if known[1].is_none() && !hpack.common.is_empty() {
            hpack_block::check_common(hpack.common, hpack.common_shared_start)?;
        }
        Ok(())
    }
}

/// Length and cuts of a block's own part, which are adjacent.
fn put_lengths(record: &mut [u8; variant::LEN], at: usize, block: &FieldBlock<'_>) {
    let len = block.bytes.len() as u16;
    put(record, at, &len.to_le_bytes());
    put(record, at + 2, &block.length_end.to_le_bytes());
    put(record, at + 4, &block.shared_start.to_le_bytes());
}

/// Where `part` begins in `bytes`.
fn position(bytes: &[u8], part: &[u8]) -> Option<u64> {
    let mut windows = bytes.windows(part.len().max(1));
    let found = windows.position(|window| window == part)?;
    Some(found as u64)
}
