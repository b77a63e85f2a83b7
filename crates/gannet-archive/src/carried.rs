//! Files of earlier releases that an archive carries on: which they are, and since when.

use crate::error::Rule;
use crate::layout::{carried, i64_at, u32_at};

/// The record of an entry by number, and when it was last part of a site.
pub(crate) fn record(entry: u32, since: i64) -> [u8; carried::LEN] {
    let mut record = [0; carried::LEN];
    record[carried::ENTRY..carried::ENTRY + 4].copy_from_slice(&entry.to_le_bytes());
    record[carried::SINCE..carried::SINCE + 8].copy_from_slice(&since.to_le_bytes());
    record
}

/// When an entry was last part of a site; `None` if it is part of this one.
pub(crate) fn find(section: &[u8], entry: u32) -> Option<i64> {
    let (records, _) = section.as_chunks::<{ carried::LEN }>();
    let found = records.binary_search_by_key(&entry, |record| u32_at(record, carried::ENTRY));
    Some(i64_at(records.get(found.ok()?)?, carried::SINCE))
}

/// Checks all records; an error has the number of its record. `is_immutable` decides for an entry.
pub(crate) fn check(section: &[u8], is_immutable: impl Fn(u32) -> bool) -> Result<(), (u64, Rule)> {
    let (records, rest) = section.as_chunks::<{ carried::LEN }>();
    if !rest.is_empty() {
        return Err((records.len() as u64, Rule::SectionLen));
    }
    let mut previous = None;
    for (number, record) in (0..).zip(records) {
        let entry = u32_at(record, carried::ENTRY);
        if previous >= Some(entry) {
            return Err((number, Rule::Order));
        }
        if u32_at(record, carried::RESERVED) != 0 {
            return Err((number, Rule::Reserved));
        }
        if !is_immutable(entry) {
            return Err((number, Rule::Value));
        }
        previous = Some(entry);
    }
    Ok(())
}
