//! The paths of a site that have content: close together, since a large site has millions.

use std::hash::{BuildHasher, RandomState};

/// Paths, each with the number of a file or none.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    names: Vec<Name>,
    /// Numbers of names by the hashes of their paths; a power of two, at most 0.7 full.
    slots: Vec<u32>,
    hashes: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    start: u64,
    len: u32,
    file: u32,
}

/// No name, and no file.
const NONE: u32 = u32::MAX;

impl Names {
    /// Adds a path that is not there yet. `file` is below 2^32 - 1.
    pub(super) fn insert(&mut self, path: &[u8], file: Option<usize>) {
        let name = Name {
            start: self.bytes.len() as u64,
            len: path.len() as u32,
            file: file.map_or(NONE, |file| file as u32),
        };
        self.bytes.extend_from_slice(path);
        self.names.push(name);
        if self.names.len() * 10 > self.slots.len() * 7 {
            let wider = (self.slots.len() * 2).max(1024);
            self.slots.clear();
            self.slots.resize(wider, NONE);
            for number in 0..self.names.len() {
                self.put(number as u32);
            }
        } else {
            self.put(self.names.len() as u32 - 1);
        }
    }

    /// The file of a path, if the path is there.
    pub(super) fn get(&self, path: &[u8]) -> Option<Option<usize>> {
        let mut slot = self.home(path)?;
        loop {
            let name = self.names.get(self.slots[slot] as usize)?;
            if self.path(name) == path {
                return Some((name.file != NONE).then_some(name.file as usize));
            }
            slot = (slot + 1) % self.slots.len();
        }
    }

    /// Whether a path is there.
    pub(super) fn contains(&self, path: &[u8]) -> bool {
        self.get(path).is_some()
    }

    /// The paths, in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|name| self.path(name))
    }

    fn path(&self, name: &Name) -> &[u8] {
        let start = name.start as usize;
        &self.bytes[start..start + name.len as usize]
    }

    fn put(&mut self, number: u32) {
        let path = self.path(&self.names[number as usize]);
        let Some(mut slot) = self.home(path) else {
            return;
        };
        while self.slots[slot] != NONE {
            slot = (slot + 1) % self.slots.len();
        }
        self.slots[slot] = number;
    }

    fn home(&self, path: &[u8]) -> Option<usize> {
        (self.hashes.hash_one(path) as usize).checked_rem(self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_their_files() {
        let mut names = Names::default();
        assert_eq!(names.get(b"/"), None);
        let path = |number: usize| format!("/{number}");
        for number in 0..5000 {
            let file = (number % 3 > 0).then_some(number);
            names.insert(path(number).as_bytes(), file);
        }
        for number in 0..5000 {
            let file = (number % 3 > 0).then_some(number);
            assert_eq!(names.get(path(number).as_bytes()), Some(file));
        }
        assert!(!names.contains(b"/5000"));
        assert_eq!(names.iter().nth(7), Some(b"/7".as_slice()));
    }
}
