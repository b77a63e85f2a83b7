//! A table from digests to numbers.

use std::hash::{BuildHasher, RandomState};

/// Numbers by digests that are stored elsewhere: eight bytes each, and some free slots. A map with
/// the digests as its keys would store them a second time.
///
/// Works for any digest of at least four bytes. An author of files may choose their content so that
/// parts of digests are equal, so the place of one is not known in advance.
#[derive(Clone, Debug, Default)]
pub struct DigestTable {
    /// The first half is the beginning of a digest, so that other digests need not be read; the
    /// second half is the number. A power of two of them, at most 0.7 full.
    slots: Vec<u64>,
    count: usize,
    places: RandomState,
}

/// Matches no search: the number `u32::MAX` is not used.
const EMPTY: u64 = u64::MAX;

impl DigestTable {
    /// A table with room for this many numbers.
    pub fn with_capacity(count: usize) -> Self {
        let slots = (count.saturating_mul(10) / 7 + 1)
            .next_power_of_two()
            .max(1024);
        Self {
            slots: vec![EMPTY; slots],
            count: 0,
            places: RandomState::new(),
        }
    }

    /// The number that has this digest, if it is in the table; `has_it` checks a number.
    pub fn find<const N: usize>(
        &self,
        digest: &[u8; N],
        has_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let start = start_of(digest);
        let mut slot = self.home(start)?;
        loop {
            let found = self.slots[slot];
            if found == EMPTY {
                return None;
            }
            if found >> 32 == start && has_it(found as u32) {
                return Some(found as u32);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Adds a number, below `u32::MAX`, whose digest is not in the table yet.
    pub fn insert<const N: usize>(&mut self, number: u32, digest: &[u8; N]) {
        if (self.count + 1) * 10 > self.slots.len() * 7 {
            let wider = (self.slots.len() * 2).max(1024);
            let old = std::mem::replace(&mut self.slots, vec![EMPTY; wider]);
            old.into_iter()
                .filter(|slot| *slot != EMPTY)
                .for_each(|slot| self.put(slot));
        }
        self.put(start_of(digest) << 32 | u64::from(number));
        self.count += 1;
    }

    fn put(&mut self, numbered: u64) {
        let Some(mut slot) = self.home(numbered >> 32) else {
            return;
        };
        while self.slots[slot] != EMPTY {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = numbered;
    }

    fn home(&self, start: u64) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        Some(self.places.hash_one(start) as usize & last)
    }
}

/// The first 32 bits of a digest.
fn start_of<const N: usize>(digest: &[u8; N]) -> u64 {
    let first = digest.first_chunk().copied().unwrap_or_default();
    u64::from(u32::from_le_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_by_number() {
        let digests: Vec<[u8; 32]> = (0..5000u32)
            .map(|number| match number % 5 {
                // Some that start with the same bytes.
                0 => [&[7; 4], &number.to_le_bytes(), [0; 24].as_slice()]
                    .concat()
                    .try_into()
                    .expect("32 bytes"),
                _ => *blake3::hash(&number.to_le_bytes()).as_bytes(),
            })
            .collect();
        for mut table in [DigestTable::default(), DigestTable::with_capacity(5000)] {
            for (number, digest) in (0..).zip(&digests) {
                let has_it = |number: u32| digests[number as usize] == *digest;
                assert_eq!(table.find(digest, has_it), None);
                table.insert(number, digest);
            }
            for (number, digest) in (0..).zip(&digests) {
                let has_it = |number: u32| digests[number as usize] == *digest;
                assert_eq!(table.find(digest, has_it), Some(number));
            }
        }
    }
}
