//! The one pass over the metadata region that makes every later access safe.
//!
//! Order matters: checksums first, then the sizes of the sections, then the records, each kind
//! after those it refers to.

use core::ops::Range;

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::response::FieldBlock;
use xxhash_rust::xxh3::xxh3_64;

use crate::archive::{Layout, Namespace, View, home};
use crate::carried;
use crate::dictionaries;
use crate::entry::Entry;
use crate::error::{ArchiveError, Rule};
use crate::field_block::{self, is_entity_tag, is_value_byte};
use crate::hosts;
use crate::hpack_block;
use crate::layout::{
    COMPATIBLE_HPACK, INCOMPATIBLE_BROTLI_ALONE, INCOMPATIBLE_GZIP_ALONE, INCOMPATIBLE_NAMESPACES,
};
use crate::layout::{
    blob, dictionary, entry, index, slice, u8_at, u16_at, u32_at, u64_at, variant,
};
use crate::limits::{
    BLOB_ALIGN, DECODED_LEN_MAX, ENTRY_COUNT_MAX, FIELD_BLOCK_LEN_MAX, GROUP_LEN,
    INDEX_NAMES_LEN_MAX, PAGE_ALIGN, PAGE_ALIGNED_FROM, PATH_LEN_MAX, PROBE_MAX, SHARED_FREE,
    SHARED_PER_BYTE_MAX, TINY_MAX, VALUE_LEN_MAX, VARIANT_COUNT_MAX,
};
use crate::path::{is_location, is_normalised};
use crate::superblock::{SUPERBLOCK_LEN, Section, SectionKind, Superblock};
use crate::tree::{GroupHash, has_tree};

/// Checks everything, and returns the location of everything.
pub(crate) fn check(superblock: &Superblock, bytes: &[u8]) -> Result<Layout, ArchiveError> {
    let region = superblock.metadata_range();
    let expected = region.end - region.start;
    let found = bytes.len() as u64;
    if found != expected {
        return Err(ArchiveError::Truncated { expected, found });
    }
    check_bytes(superblock, bytes, region.start)?;
    let layout = lay_out(superblock, bytes, region.start)?;
    let view = View {
        bytes,
        layout: &layout,
    };
    let has_namespaces = superblock.features().0 & INCOMPATIBLE_NAMESPACES != 0;
    let groups = check_blobs(view, superblock.features().0)?;
    if let Some(trees) = superblock.section(SectionKind::Trees)
        && trees.len != groups * size_of::<GroupHash>() as u64
    {
        return self::record(SectionKind::Trees, groups, Rule::SectionLen);
    }
    dictionaries::check(view)
        .or_else(|(index, rule)| self::record(SectionKind::Dictionaries, index, rule))?;
    let mut budget = CheckBudget(SHARED_FREE + SHARED_PER_BYTE_MAX * expected);
    check_variants(view, &mut budget)?;
    check_entries(view, has_namespaces, &mut budget)?;
    check_index(view)?;
    let is_immutable = |record| {
        let entry = Entry { view, record };
        record < layout.entry_count && entry.is_immutable()
    };
    carried::check(view.section(&layout.carried), is_immutable)
        .or_else(|(index, rule)| self::record(SectionKind::Carried, index, rule))?;
    Ok(layout)
}

/// Bytes that checking records may still go through.
struct CheckBudget(u64);

impl CheckBudget {
    fn take(&mut self, len: u64) -> Result<(), Rule> {
        self.0 = self.0.checked_sub(len).ok_or(Rule::Shared)?;
        Ok(())
    }
}

fn record<T>(section: SectionKind, index: u64, rule: Rule) -> Result<T, ArchiveError> {
    Err(ArchiveError::Record {
        section,
        index,
        rule,
    })
}

/// Every byte of the region is covered by a checksum, or is zero padding.
fn check_bytes(superblock: &Superblock, bytes: &[u8], base: u64) -> Result<(), ArchiveError> {
    let mut end = 0;
    for section in superblock.sections() {
        let range = range_of(section, base)?;
        if slice(bytes, end, range.start - end)
            .iter()
            .any(|byte| *byte != 0)
        {
            return Err(ArchiveError::Superblock(Rule::Reserved));
        }
        end = range.end;
        let found = xxh3_64(slice(bytes, range.start, range.len()));
        if found != section.checksum {
            let expected = section.checksum;
            return Err(ArchiveError::SectionChecksum {
                section: section.kind,
                expected,
                found,
            });
        }
    }
    Ok(())
}

/// The range of a section in the region; the superblock has checked that it is within it.
fn range_of(section: &Section, base: u64) -> Result<Range<usize>, ArchiveError> {
    let place = |offset: u64| {
        offset
            .checked_sub(base)
            .and_then(|place| usize::try_from(place).ok())
    };
    let start = place(section.offset);
    let end = section.offset.checked_add(section.len).and_then(place);
    start
        .zip(end)
        .map(|(start, end)| start..end)
        .ok_or(ArchiveError::Superblock(Rule::Range))
}

fn lay_out(superblock: &Superblock, bytes: &[u8], base: u64) -> Result<Layout, ArchiveError> {
    let range = |kind| {
        let section = superblock
            .section(kind)
            .ok_or(ArchiveError::Superblock(Rule::SectionCount))?;
        range_of(section, base)
    };
    let count = |kind, range: &Range<usize>, len: usize| {
        let count = (range.len() / len) as u64;
        if !range.len().is_multiple_of(len) || count > ENTRY_COUNT_MAX {
            return record(kind, count, Rule::SectionLen);
        }
        Ok(count as u32)
    };
    let mut layout = Layout {
        metadata_offset: base,
        entries: range(SectionKind::Entries)?,
        variants: range(SectionKind::Variants)?,
        blobs: range(SectionKind::Blobs)?,
        digests: range(SectionKind::Digests)?,
        strings: range(SectionKind::Strings)?,
        fields_h1: range(SectionKind::FieldsH1)?,
        fields_hpack: range(SectionKind::FieldsHpack)?,
        has_hpack: superblock.features().1 & COMPATIBLE_HPACK != 0,
        tiny_blobs: range(SectionKind::TinyBlobs)?,
        ..Layout::default()
    };
    if superblock.section(SectionKind::FieldsCommon).is_some() {
        layout.fields_common = range(SectionKind::FieldsCommon)?;
    }
    layout.entry_count = count(SectionKind::Entries, &layout.entries, entry::LEN)?;
    layout.variant_count = count(SectionKind::Variants, &layout.variants, variant::LEN)?;
    layout.blob_count = count(SectionKind::Blobs, &layout.blobs, blob::LEN)?;
    let digest_count = count(SectionKind::Digests, &layout.digests, blob::DIGEST_LEN)?;
    if digest_count != layout.blob_count {
        return record(
            SectionKind::Digests,
            u64::from(digest_count),
            Rule::SectionLen,
        );
    }
    if superblock.section(SectionKind::Dictionaries).is_some() {
        layout.dictionaries = range(SectionKind::Dictionaries)?;
        let rows = &layout.dictionaries;
        layout.dictionary_count = count(SectionKind::Dictionaries, rows, dictionary::LEN)?;
    }
    if let Some(names) = superblock.section(SectionKind::IndexNames)
        && names.len > INDEX_NAMES_LEN_MAX
    {
        return record(SectionKind::IndexNames, 0, Rule::Limit);
    }
    if superblock.section(SectionKind::Carried).is_some() {
        layout.carried = range(SectionKind::Carried)?;
    }
    if superblock.section(SectionKind::Hosts).is_some() {
        let names = range(SectionKind::Hosts)?;
        layout.host_starts = hosts::check(slice(bytes, names.start, names.len()))
            .or_else(|(index, rule)| record(SectionKind::Hosts, index, rule))?;
    }
    if superblock.section(SectionKind::HostRules).is_some() {
        let rules = range(SectionKind::HostRules)?;
        let rules = slice(bytes, rules.start, rules.len());
        layout.rules_starts = hosts::check_rules(rules, layout.host_starts.len())
            .or_else(|(index, rule)| record(SectionKind::HostRules, index, rule))?;
    }
    lay_out_index(&mut layout, bytes, range(SectionKind::Index)?)?;
    Ok(layout)
}

fn lay_out_index(
    layout: &mut Layout,
    bytes: &[u8],
    range: Range<usize>,
) -> Result<(), ArchiveError> {
    let refuse = |rule| record(SectionKind::Index, 0, rule);
    let Some(slots_len) = range.len().checked_sub(index::HEADER_LEN) else {
        return refuse(Rule::SectionLen);
    };
    let header = slice(bytes, range.start, index::HEADER_LEN);
    let slot_count = u64_at(header, index::SLOT_COUNT);
    if slots_len % index::SLOT_LEN != 0 || (slots_len / index::SLOT_LEN) as u64 != slot_count {
        return refuse(Rule::SectionLen);
    }
    layout.seed = u64_at(header, index::SEED);
    layout.probe_max = u32_at(header, index::PROBE_MAX);
    layout.home_bits = u32_at(header, index::HOME_BITS);
    layout.slot_count = slots_len / index::SLOT_LEN;
    layout.slots = range.start + index::HEADER_LEN..range.end;
    let homes_fit = layout.home_bits <= 32 && slot_count >= 1 << layout.home_bits;
    if !homes_fit || layout.probe_max > PROBE_MAX {
        return refuse(Rule::IndexShape);
    }
    if slice(header, 24, index::HEADER_LEN - 24)
        .iter()
        .any(|byte| *byte != 0)
    {
        return refuse(Rule::Reserved);
    }
    Ok(())
}

/// Blobs are in the blob region or the tiny section, in order, without overlap. Bodies stored in a
/// coding alone follow all others, ordered by coding and coded blob. Returns how many groups the trees have.
fn check_blobs(view: View<'_>, features: u64) -> Result<u64, ArchiveError> {
    let base = view.layout.metadata_offset;
    let tiny_start = base + view.layout.tiny_blobs.start as u64;
    let tiny_end = base + view.layout.tiny_blobs.end as u64;
    let mut previous_end = SUPERBLOCK_LEN as u64;
    let mut groups = 0;
    for number in 0..view.layout.blob_count {
        let refuse = |rule| record(SectionKind::Blobs, u64::from(number), rule);
        let (offset, len) = view.blob_range(number);
        let Some(end) = offset.checked_add(len) else {
            return refuse(Rule::Range);
        };
        if offset < previous_end {
            return refuse(Rule::Overlap);
        }
        if let Some((coding, coded)) = blob::coded_of(offset) {
            if features & alone(coding) == 0 {
                return refuse(Rule::Range);
            }
            check_decoded(view, number, (coding, coded)).or_else(|rule| refuse(rule).map(drop))?;
            previous_end = offset + 1;
            continue;
        }
        let is_tiny = offset >= base;
        let fits = if is_tiny {
            offset >= tiny_start && end <= tiny_end
        } else {
            end <= base
        };
        if !fits {
            return refuse(Rule::Range);
        }
        if is_tiny && len > TINY_MAX {
            return refuse(Rule::Limit);
        }
        let align = if len >= PAGE_ALIGNED_FROM {
            PAGE_ALIGN
        } else {
            BLOB_ALIGN
        };
        if !is_tiny && offset % align != 0 {
            return refuse(Rule::Alignment);
        }
        if has_tree(len) {
            groups += len.div_ceil(GROUP_LEN);
        }
        previous_end = end;
    }
    Ok(groups)
}

/// The feature that announces bodies stored in this coding alone.
fn alone(coding: Coding) -> u64 {
    match coding {
        Coding::Brotli => INCOMPATIBLE_BROTLI_ALONE,
        _ => INCOMPATIBLE_GZIP_ALONE,
    }
}

/// Coded bytes are stored, and shorter than their content, which fits in the memory of a server.
fn check_decoded(view: View<'_>, number: u32, (coding, coded): (Coding, u32)) -> Result<(), Rule> {
    let (offset, len) = view.blob_range(number);
    if offset != blob::decoded_from(coding, coded) || coded >= number {
        return Err(Rule::Range);
    }
    let (coded_offset, coded_len) = view.blob_range(coded);
    if blob::coded_of(coded_offset).is_some() {
        return Err(Rule::Value);
    }
    if coded_len >= len || len > DECODED_LEN_MAX {
        return Err(Rule::Limit);
    }
    Ok(())
}

fn check_variants(view: View<'_>, budget: &mut CheckBudget) -> Result<(), ArchiveError> {
    let variants = view.section(&view.layout.variants);
    let fields = view.section(&view.layout.fields_h1);
    let mut checked = CheckedCommon::new(budget);
    for (number, bytes) in variants.chunks_exact(variant::LEN).enumerate() {
        check_variant(view, fields, bytes, &mut checked)
            .or_else(|rule| record(SectionKind::Variants, number as u64, rule))?;
    }
    Ok(())
}

fn check_variant(
    view: View<'_>,
    fields: &[u8],
    bytes: &[u8],
    checked: &mut CheckedCommon<'_>,
) -> Result<(), Rule> {
    let has_common = match u8_at(bytes, variant::FLAGS) {
        0 => false,
        variant::FLAG_COMMON if !view.layout.fields_common.is_empty() => true,
        _ => return Err(Rule::Reserved),
    };
    let own_reserved = slice(bytes, variant::HPACK_COMMON_SHARED_START, 2);
    if !has_common && own_reserved != [0, 0] {
        return Err(Rule::Reserved);
    }
    let blob = u32_at(bytes, variant::BLOB);
    if blob >= view.layout.blob_count {
        return Err(Rule::Range);
    }
    dictionaries::check_variant(view, bytes, blob)?;
    let lens = [variant::ENTITY_TAG_LEN, variant::H1_LEN, variant::HPACK_LEN];
    let lens = lens.map(|len| u64::from(u16_at(bytes, len)));
    checked.budget.take(lens.iter().sum())?;
    let tag_len = lens[0];
    let tag_offset = u64_at(bytes, variant::ENTITY_TAG_OFFSET);
    let tag = if has_common {
        part(fields, tag_offset, tag_len)?
    } else {
        string(view, tag_offset, tag_len)?
    };
    if !is_entity_tag(tag) {
        return Err(Rule::EntityTag);
    }
    let offset = u64_at(bytes, variant::H1_OFFSET);
    let block = part(fields, offset, u64::from(u16_at(bytes, variant::H1_LEN)))?;
    let length_end = u16_at(bytes, variant::H1_LENGTH_END);
    let shared_start = u16_at(bytes, variant::H1_SHARED_START);
    field_block::check(block, length_end, shared_start, view.blob_range(blob).1)?;
    check_hpack(view, bytes)?;
    if has_common {
        let len_of =
            |own, common| usize::from(u16_at(bytes, own)) + usize::from(u16_at(bytes, common));
        if len_of(variant::H1_LEN, variant::H1_COMMON_LEN) > FIELD_BLOCK_LEN_MAX
            || len_of(variant::HPACK_LEN, variant::HPACK_COMMON_LEN) > FIELD_BLOCK_LEN_MAX
        {
            return Err(Rule::Limit);
        }
        checked.check_h1(view, bytes)?;
        checked.check_hpack(view, bytes)?;
    }
    Ok(())
}

/// Checks common parts of field blocks, and remembers those it has seen lately: a million variants
/// share only a few.
struct CheckedCommon<'a> {
    h1: [u64; REMEMBERED],
    hpack: [u64; REMEMBERED],
    budget: &'a mut CheckBudget,
}

const REMEMBERED: usize = 256;

impl<'a> CheckedCommon<'a> {
    fn new(budget: &'a mut CheckBudget) -> Self {
        Self {
            h1: [0; REMEMBERED],
            hpack: [0; REMEMBERED],
            budget,
        }
    }

    fn check_h1(&mut self, view: View<'_>, bytes: &[u8]) -> Result<(), Rule> {
        let offset = u32_at(bytes, variant::H1_COMMON_OFFSET);
        let len = u16_at(bytes, variant::H1_COMMON_LEN);
        let shared_start = u16_at(bytes, variant::H1_COMMON_SHARED_START);
        let seen = (&mut self.h1, &mut *self.budget);
        check_common(seen, view, (offset, len, shared_start), |common| {
            field_block::check_common(common, shared_start)
        })
    }

    fn check_hpack(&mut self, view: View<'_>, bytes: &[u8]) -> Result<(), Rule> {
        let offset = u32_at(bytes, variant::HPACK_COMMON_OFFSET);
        let len = u16_at(bytes, variant::HPACK_COMMON_LEN);
        let shared_start = u16_at(bytes, variant::HPACK_COMMON_SHARED_START);
        let seen = (&mut self.hpack, &mut *self.budget);
        check_common(seen, view, (offset, len, shared_start), |common| {
            hpack_block::check_common(common, shared_start)
        })
    }
}

fn check_common(
    (seen, budget): (&mut [u64; REMEMBERED], &mut CheckBudget),
    view: View<'_>,
    (offset, len, shared_start): (u32, u16, u16),
    check: impl FnOnce(&[u8]) -> Result<(), Rule>,
) -> Result<(), Rule> {
    let key = u64::from(offset) << 32 | u64::from(len) << 16 | u64::from(shared_start);
    let place = &mut seen[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize];
    // A zero key means no common part at all, which is valid.
    if *place == key {
        return Ok(());
    }
    budget.take(len.into())?;
    let section = view.section(&view.layout.fields_common);
    check(part(section, offset.into(), len.into())?)?;
    *place = key;
    Ok(())
}

/// Checks the field block for HTTP/2, if the archive has such blocks and this variant has one.
fn check_hpack(view: View<'_>, bytes: &[u8]) -> Result<(), Rule> {
    let len = u16_at(bytes, variant::HPACK_LEN);
    if !view.layout.has_hpack || len == 0 {
        return Ok(());
    }
    let fields = view.section(&view.layout.fields_hpack);
    let offset = u64_at(bytes, variant::HPACK_OFFSET);
    hpack_block::check(FieldBlock {
        bytes: part(fields, offset, u64::from(len))?,
        length_end: u16_at(bytes, variant::HPACK_LENGTH_END),
        shared_start: u16_at(bytes, variant::HPACK_SHARED_START),
        ..FieldBlock::default()
    })
}

fn check_entries(
    view: View<'_>,
    has_namespaces: bool,
    budget: &mut CheckBudget,
) -> Result<(), ArchiveError> {
    let namespace_max = if has_namespaces {
        Namespace::ALL.len() as u8 - 1
    } else {
        Namespace::NotFoundPage as u8
    };
    for number in 0..view.layout.entry_count {
        let refuse = |rule| record(SectionKind::Entries, u64::from(number), rule);
        check_entry(view, number, namespace_max, budget).or_else(refuse)?;
        if number > 0 && view.key(number - 1) >= view.key(number) {
            return refuse(Rule::Order);
        }
    }
    Ok(())
}

fn check_entry(
    view: View<'_>,
    number: u32,
    namespace_max: u8,
    budget: &mut CheckBudget,
) -> Result<(), Rule> {
    let bytes = view.entry_record(number);
    let flags = u8_at(bytes, entry::FLAGS);
    let namespace = u8_at(bytes, entry::NAMESPACE);
    let host = u16_at(bytes, entry::HOST);
    if usize::from(host) > view.layout.host_starts.len()
        || namespace > namespace_max
        || flags & !entry::FLAGS_KNOWN != 0
    {
        return Err(Rule::Value);
    }
    let last_modified = u64_at(bytes, entry::LAST_MODIFIED);
    let no_date = flags & entry::FLAG_LAST_MODIFIED == 0 && last_modified != 0;
    let reserved = &bytes[entry::RESERVED_FIELDS..entry::HOST];
    let middle = &bytes[entry::RESERVED..entry::FIRST_CODED];
    let mut reserved = [reserved, middle, &bytes[entry::RESERVED_END..]].into_iter();
    if no_date || reserved.any(|bytes| bytes.iter().any(|byte| *byte != 0)) {
        return Err(Rule::Reserved);
    }
    let path_len = u64::from(u32_at(bytes, entry::PATH_LEN));
    let value_len = u64::from(u32_at(bytes, entry::VALUE_LEN));
    if path_len > PATH_LEN_MAX || value_len > VALUE_LEN_MAX {
        return Err(Rule::Limit);
    }
    budget.take(path_len + value_len)?;
    let path = string(view, u64_at(bytes, entry::PATH_OFFSET), path_len)?;
    let is_of_folder = view.key(number).namespace.is_of_folders();
    if !is_normalised(path) || is_of_folder && !path.ends_with(b"/") {
        return Err(Rule::Path);
    }
    let value = string(view, u64_at(bytes, entry::VALUE_OFFSET), value_len)?;
    let status = u16_at(bytes, entry::STATUS);
    match u8_at(bytes, entry::KIND) {
        entry::KIND_CONTENT => {
            if status != 0 {
                return Err(Rule::Reserved);
            }
            let is_field = value.iter().all(|byte| is_value_byte(*byte));
            if !is_field || value.trim_ascii() != value {
                return Err(Rule::ContentType);
            }
            check_entry_variants(view, bytes)?;
        }
        entry::KIND_REDIRECT => {
            let no_variants =
                u8_at(bytes, entry::VARIANT_COUNT) == 0 && u32_at(bytes, entry::FIRST_VARIANT) == 0;
            let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
            if !no_variants || !is_redirect || !is_location(value) {
                return Err(Rule::Redirect);
            }
        }
        _ => return Err(Rule::Value),
    }
    dictionaries::check_entry(view, bytes)
}

/// At least one variant; shortest first, the lower coding first among equals; no coding twice.
fn check_entry_variants(view: View<'_>, bytes: &[u8]) -> Result<(), Rule> {
    let first = u32_at(bytes, entry::FIRST_VARIANT);
    let count = u8_at(bytes, entry::VARIANT_COUNT);
    let end = first.checked_add(u32::from(count)).ok_or(Rule::Range)?;
    if end > view.layout.variant_count {
        return Err(Rule::Range);
    }
    if count == 0 || count > VARIANT_COUNT_MAX {
        return Err(Rule::Variants);
    }
    let mut seen = 0u8;
    let mut previous = None;
    for number in first..end {
        let at = view.layout.variants.start + number as usize * variant::LEN;
        let record = slice(view.bytes, at, variant::LEN);
        let coding = u8_at(record, variant::CODING);
        let order = (view.blob_range(u32_at(record, variant::BLOB)).1, coding);
        let has_dictionary = usize::from(coding) >= Coding::ALL.len();
        if has_dictionary || seen & 1 << coding != 0 || previous >= Some(order) {
            return Err(Rule::Variants);
        }
        seen |= 1 << coding;
        previous = Some(order);
    }
    Ok(())
}

/// Every full slot names an entry, no entry occurs twice, none is missing, and each is where a
/// lookup of its key passes: at its home or after it, within the longest probe, with no empty slot
/// and no greater hash between.
fn check_index(view: View<'_>) -> Result<(), ArchiveError> {
    // Hashed in the order of the entries: the order of the slots would jump through memory.
    let mut expected: Vec<_> = (0..view.layout.entry_count)
        .map(|number| {
            let key = view.key(number);
            Some((key.hash(view.layout.seed), key.path.len()))
        })
        .collect();
    let slots = view.section(&view.layout.slots);
    let mut full_count = 0u64;
    let mut previous = 0;
    let mut run_start = 0;
    for (number, slot) in slots.chunks_exact(index::SLOT_LEN).enumerate() {
        let refuse = |rule| record(SectionKind::Index, number as u64, rule);
        let entry = u32_at(slot, index::SLOT_ENTRY);
        let hash = u64_at(slot, index::SLOT_HASH);
        let path_len = u32_at(slot, index::SLOT_PATH_LEN);
        if entry == index::EMPTY {
            if hash != 0 || path_len != 0 {
                return refuse(Rule::Reserved);
            }
            run_start = number + 1;
            continue;
        }
        // Taken, so that a second slot with this entry finds none.
        let of_entry = expected.get_mut(entry as usize).and_then(Option::take);
        if hash < previous || of_entry != Some((hash, path_len as usize)) {
            return refuse(Rule::IndexSlot);
        }
        let home = home(hash, view.layout.home_bits);
        if home > number || home < run_start || number - home >= view.layout.probe_max as usize {
            return refuse(Rule::IndexMissing);
        }
        previous = hash;
        full_count += 1;
    }
    if full_count != u64::from(view.layout.entry_count) {
        return record(SectionKind::Index, full_count, Rule::IndexMissing);
    }
    Ok(())
}

fn string(view: View<'_>, offset: u64, len: u64) -> Result<&[u8], Rule> {
    part(view.section(&view.layout.strings), offset, len)
}

fn part(bytes: &[u8], offset: u64, len: u64) -> Result<&[u8], Rule> {
    let end = offset.checked_add(len).ok_or(Rule::Range)?;
    usize::try_from(offset)
        .ok()
        .zip(usize::try_from(end).ok())
        .and_then(|(start, end)| bytes.get(start..end))
        .ok_or(Rule::Range)
}
