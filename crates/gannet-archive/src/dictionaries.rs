//! Content coded with a dictionary (RFC 9842): what the dictionaries are, and the head of each
//! body. A dictionary is the content of a file of an earlier release.

use gannet_http::semantics::coding::Coding;

use crate::archive::{Namespace, View, usize_of};
use crate::entry::Stored;
use crate::error::Rule;
use crate::layout::{blob, dictionary, entry, slice, u8_at, u32_at, u64_at, variant};
use crate::limits::{DICTIONARY_LEN_MAX, PATH_LEN_MAX, VARIANT_COUNT_MAX};
use crate::path::is_normalised;

/// A dictionary: a file that a client has from an earlier release.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dictionary<'a> {
    /// SHA-256 of its content, as clients name it in `Available-Dictionary`.
    pub sha256: &'a [u8],
    /// Its path in that release, on the same host.
    pub path: &'a [u8],
    /// The length of its content in bytes.
    pub len: u64,
}

/// The bytes before the coded stream (RFC 9842 sections 4 and 5); empty for a coding without a
/// dictionary.
#[must_use]
pub fn dictionary_head(coding: Coding, sha256: &[u8]) -> Vec<u8> {
    let magic: &[u8] = match coding {
        Coding::DictionaryBrotli => b"\xff\x44\x43\x42",
        Coding::DictionaryZstd => b"\x5e\x2a\x4d\x18\x20\0\0\0",
        _ => return Vec::new(),
    };
    [magic, sha256].concat()
}

/// The record of a dictionary whose path has this place in the strings.
pub(crate) fn record(sha256: &[u8; 32], path: (u64, usize), len: u64) -> [u8; dictionary::LEN] {
    let mut record = [0; dictionary::LEN];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(dictionary::SHA256, sha256);
    put(dictionary::PATH_OFFSET, &path.0.to_le_bytes());
    put(dictionary::PATH_LEN, &(path.1 as u32).to_le_bytes());
    put(dictionary::BYTES, &len.to_le_bytes());
    record
}

/// The dictionary of a record.
pub(crate) fn of(view: View<'_>, number: u32) -> Dictionary<'_> {
    let at = (number as usize).saturating_mul(dictionary::LEN);
    let record = slice(view.section(&view.layout.dictionaries), at, dictionary::LEN);
    let path_len = u32_at(record, dictionary::PATH_LEN) as usize;
    Dictionary {
        sha256: slice(record, dictionary::SHA256, dictionary::SHA256_LEN),
        path: view.string(u64_at(record, dictionary::PATH_OFFSET), path_len),
        len: u64_at(record, dictionary::BYTES),
    }
}

/// Checks all records; an error has the number of its record.
pub(crate) fn check(view: View<'_>) -> Result<(), (u64, Rule)> {
    let strings = view.section(&view.layout.strings);
    let records = view.section(&view.layout.dictionaries);
    for (number, record) in (0..).zip(records.chunks_exact(dictionary::LEN)) {
        check_record(record, strings).map_err(|rule| (number, rule))?;
    }
    Ok(())
}

fn check_record(record: &[u8], strings: &[u8]) -> Result<(), Rule> {
    let reserved = [
        slice(record, dictionary::RESERVED, 4),
        slice(record, dictionary::RESERVED_END, 8),
    ];
    if reserved.concat().iter().any(|byte| *byte != 0) {
        return Err(Rule::Reserved);
    }
    let path_len = u64::from(u32_at(record, dictionary::PATH_LEN));
    if path_len > PATH_LEN_MAX || u64_at(record, dictionary::BYTES) > DICTIONARY_LEN_MAX {
        return Err(Rule::Limit);
    }
    let start = u64_at(record, dictionary::PATH_OFFSET);
    let end = start.checked_add(path_len).ok_or(Rule::Range)?;
    let path = strings.get(usize_of(start)..usize_of(end));
    match is_normalised(path.ok_or(Rule::Range)?) {
        true => Ok(()),
        false => Err(Rule::Path),
    }
}

/// A variant of a coding with a dictionary names one, and its blob is stored and longer than its
/// head; any other names none.
pub(crate) fn check_variant(view: View<'_>, bytes: &[u8], blob: u32) -> Result<(), Rule> {
    let coding = Coding::from_number(u8_at(bytes, variant::CODING)).ok_or(Rule::Value)?;
    let number = u32_at(bytes, variant::DICTIONARY);
    if !coding.has_dictionary() {
        return match number {
            0 => Ok(()),
            _ => Err(Rule::Reserved),
        };
    }
    if number >= view.layout.dictionary_count {
        return Err(Rule::Range);
    }
    let (offset, len) = view.blob_range(blob);
    let head = dictionary_head(coding, of(view, number).sha256);
    if blob::coded_of(offset).is_some() || len <= head.len() as u64 {
        return Err(Rule::Value);
    }
    match view.stored((offset, len)) {
        Stored::Tiny(body) if !body.starts_with(&head) => Err(Rule::Value),
        _ => Ok(()),
    }
}

/// Variants with a dictionary are those of a path's own content, which is stored in no coding too and
/// not too long. They are shorter than that, and in order: shortest first, then by coding and
/// dictionary. The ordinary variants of the entry are checked already.
pub(crate) fn check_entry(view: View<'_>, bytes: &[u8]) -> Result<(), Rule> {
    let first = u32_at(bytes, entry::FIRST_CODED);
    let count = u8_at(bytes, entry::CODED_COUNT);
    if count == 0 {
        return match first {
            0 => Ok(()),
            _ => Err(Rule::Reserved),
        };
    }
    let end = first.checked_add(u32::from(count)).ok_or(Rule::Range)?;
    if end > view.layout.variant_count {
        return Err(Rule::Range);
    }
    let is_own = u8_at(bytes, entry::NAMESPACE) == Namespace::Content as u8
        && u8_at(bytes, entry::KIND) == entry::KIND_CONTENT
        && u8_at(bytes, entry::FLAGS) & entry::FLAG_ALIAS == 0;
    if !is_own || count > VARIANT_COUNT_MAX {
        return Err(Rule::Variants);
    }
    let variant = |number: u32| {
        let at = view.layout.variants.start + number as usize * variant::LEN;
        let record = slice(view.bytes, at, variant::LEN);
        let len = view.blob_range(u32_at(record, variant::BLOB)).1;
        (record, u8_at(record, variant::CODING), len)
    };
    let ordinary = u32_at(bytes, entry::FIRST_VARIANT);
    let mut ordinary = ordinary..ordinary + u32::from(u8_at(bytes, entry::VARIANT_COUNT));
    let identity = ordinary.find_map(|number| match variant(number) {
        (_, coding, len) if coding == Coding::Identity as u8 => Some(len),
        _ => None,
    });
    let content_len = identity.ok_or(Rule::Variants)?;
    if content_len > DICTIONARY_LEN_MAX {
        return Err(Rule::Limit);
    }
    let mut previous = None;
    for number in first..end {
        let (record, coding, len) = variant(number);
        let order = (len, coding, u32_at(record, variant::DICTIONARY));
        let has_dictionary = usize::from(coding) >= Coding::ALL.len();
        if !has_dictionary || len >= content_len || previous >= Some(order) {
            return Err(Rule::Variants);
        }
        previous = Some(order);
    }
    Ok(())
}
