//! A table from digests to numbers.

use std::hash::{BuildHasher, RandomState};

/// Numbers by digests that are stored elsewhere: eight bytes each, and some free slots. A map with
/// the digests as its keys would store them a second time.
///
/// Works for any digest. An author of files may choose their content so that parts of digests are equal, and one
/// of an archive may state the same digest again and again; so the place of one is not known in advance, and of
/// equal ones only the first 32 (`EQUAL_MAX`) are stored.
#[derive(Clone, Debug, Default)]
pub struct DigestTable {
    /// The first half is a digest's hash, so that other digests need not be read; the second half is the
    /// number. A power of two of them, at most 0.7 full.
    slots: Vec<u64>,
    count: usize,
    hashes: RandomState,
}

/// Numbers with one hash. To find one takes a step for each; even four billion different digests have fewer.
const EQUAL_MAX: usize = 32;

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
            hashes: RandomState::new(),
        }
    }

    /// The number that has this digest, if it is in the table; `has_it` checks a number.
    pub fn find<const N: usize>(
        &self,
        digest: &[u8; N],
        has_it: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let hash = self.hash_of(digest);
        let mut slot = self.home(hash)?;
        loop {
            let found = self.slots[slot];
            if found == EMPTY {
                return None;
            }
            if found >> 32 == hash && has_it(found as u32) {
                return Some(found as u32);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Adds a number, below `u32::MAX`. A digest that is in the table is found under an earlier number.
    pub fn insert<const N: usize>(&mut self, number: u32, digest: &[u8; N]) {
        if (self.count + 1) * 10 > self.slots.len() * 7 {
            let wider = (self.slots.len() * 2).max(1024);
            let old = std::mem::replace(&mut self.slots, vec![EMPTY; wider]);
            for slot in old.into_iter().filter(|slot| *slot != EMPTY) {
                self.put(slot);
            }
        }
        if self.put(self.hash_of(digest) << 32 | u64::from(number)) {
            self.count += 1;
        }
    }

    /// Returns whether it is stored.
    fn put(&mut self, numbered: u64) -> bool {
        let Some(mut slot) = self.home(numbered >> 32) else {
            return false;
        };
        let mut equal = 0;
        while self.slots[slot] != EMPTY {
            equal += usize::from(self.slots[slot] >> 32 == numbered >> 32);
            if equal == EQUAL_MAX {
                return false;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = numbered;
        true
    }

    fn hash_of<const N: usize>(&self, digest: &[u8; N]) -> u64 {
        self.hashes.hash_one(digest) >> 32
    }

    fn home(&self, hash: u64) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        Some(hash as usize & last)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn equal_digests_take_few_steps() {
        let mut table = DigestTable::default();
        for number in 0..100_000 {
            table.insert(number, &[7; 32]);
        }
        assert_eq!(table.find(&[7; 32], |_| true), Some(0));
        let steps = Cell::new(0);
        let count = |_| {
            steps.set(steps.get() + 1);
            false
        };
        assert_eq!(table.find(&[7; 32], count), None);
        assert_eq!(steps.get(), EQUAL_MAX);
        assert_eq!(table.slots.len(), 1024);
    }

    /// As of content that was chosen for that.
    #[test]
    fn digests_with_the_same_start_take_few_steps() {
        let digest = |number: u32| [[7; 4], number.to_le_bytes()].concat();
        let digests: Vec<[u8; 8]> = (0..100_000)
            .map(|it| digest(it).try_into().expect("eight bytes"))
            .collect();
        let mut table = DigestTable::default();
        let steps = Cell::new(0);
        for (number, digest) in (0..).zip(&digests) {
            table.insert(number, digest);
            let has_it = |found: u32| {
                steps.set(steps.get() + 1);
                digests[found as usize] == *digest
            };
            assert_eq!(table.find(digest, has_it), Some(number));
        }
        // One for each, and a few with another digest of the same hash.
        assert!(steps.get() < 2 * digests.len(), "{}", steps.get());
    }

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
