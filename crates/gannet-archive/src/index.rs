//! Laying out the index: each entry in a slot near the home of its hash.

use crate::archive::{Key, home};
use crate::error::{ArchiveError, Rule};
use crate::layout::{index, put};
use crate::limits::PROBE_MAX;
use crate::superblock::SectionKind;

/// An entry to be placed in a slot.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Hashed {
    hash: u64,
    entry: u32,
    path_len: u32,
}

/// The index section of the entries with these keys, in the order of their numbers.
/// The slots hold the entries in the order of their hashes, each at its home or as soon after as
/// there is room. A table too full for [`PROBE_MAX`] is rebuilt twice as large; if that does not
/// help, which takes 64 hashes that are almost equal, with another seed.
pub(crate) fn render<'k>(
    keys: impl ExactSizeIterator<Item = Key<'k>> + Clone,
) -> Result<Vec<u8>, ArchiveError> {
    // At most 0.7 full.
    let wanted = (keys.len() as u64 * 10).div_ceil(7).max(1);
    let home_bits = wanted.next_power_of_two().trailing_zeros();
    for seed in 0..SEED_COUNT {
        let hashed = |(entry, key): (u32, Key<'_>)| Hashed {
            hash: key.hash(seed),
            entry,
            path_len: key.path.len() as u32,
        };
        let mut entries: Vec<_> = (0..).zip(keys.clone()).map(hashed).collect();
        entries.sort_unstable();
        for home_bits in home_bits..(home_bits + 4).min(33) {
            if let Some(bytes) = try_render(&entries, seed, home_bits) {
                return Ok(bytes);
            }
        }
    }
    let section = SectionKind::Index;
    Err(ArchiveError::Record {
        section,
        index: 0,
        rule: Rule::IndexShape,
    })
}

/// Seeds tried before giving up: the chance of 64 slots filled from one home is negligible for any
/// number of archives that will ever exist.
const SEED_COUNT: u64 = 8;

/// The section with this size, unless a probe would be too long.
fn try_render(entries: &[Hashed], seed: u64, home_bits: u32) -> Option<Vec<u8>> {
    let mut next = 0;
    let mut probe_max = 0;
    let mut places = Vec::with_capacity(entries.len());
    for Hashed { hash, .. } in entries {
        let home = home(*hash, home_bits);
        let place = home.max(next);
        probe_max = probe_max.max(place - home + 1);
        next = place + 1;
        places.push(place);
    }
    if probe_max > PROBE_MAX as usize {
        return None;
    }
    let slot_count = next.max(1 << home_bits);
    let mut empty = [0; index::SLOT_LEN];
    put(&mut empty, index::SLOT_ENTRY, &index::EMPTY.to_le_bytes());
    let mut bytes = vec![0; index::HEADER_LEN];
    bytes.extend_from_slice(&empty.repeat(slot_count));
    put(&mut bytes, index::SEED, &seed.to_le_bytes());
    put(
        &mut bytes,
        index::SLOT_COUNT,
        &(slot_count as u64).to_le_bytes(),
    );
    put(
        &mut bytes,
        index::PROBE_MAX,
        &(probe_max as u32).to_le_bytes(),
    );
    put(&mut bytes, index::HOME_BITS, &home_bits.to_le_bytes());
    for (
        Hashed {
            hash,
            entry,
            path_len,
        },
        place,
    ) in entries.iter().zip(places)
    {
        let at = index::HEADER_LEN + place * index::SLOT_LEN;
        put(&mut bytes, at + index::SLOT_HASH, &hash.to_le_bytes());
        put(&mut bytes, at + index::SLOT_ENTRY, &entry.to_le_bytes());
        put(
            &mut bytes,
            at + index::SLOT_PATH_LEN,
            &path_len.to_le_bytes(),
        );
    }
    Some(bytes)
}
