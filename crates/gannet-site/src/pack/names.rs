//! The paths of a site with content, stored compactly, since a large site has millions.

use std::hash::{BuildHasher, RandomState};

use gannet_archive::DigestTable;

/// Paths, each with the number of a file or none.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    names: Vec<Name>,
    /// Indexes of names by hash of the path.
    places: DigestTable,
    hashes: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    start: u64,
    len: u32,
    file: u32,
}

/// A path without a file.
const NONE: u32 = u32::MAX;

impl Names {
    /// Adds a new path. `file` is below 2^32 - 1.
    pub(super) fn insert(&mut self, path: &[u8], file: Option<usize>) {
        let name = Name {
            start: self.bytes.len() as u64,
            len: path.len() as u32,
            file: file.map_or(NONE, |file| file as u32),
        };
        let number = self.names.len() as u32;
        self.bytes.extend_from_slice(path);
        self.names.push(name);
        self.places.insert(number, &self.hash(path));
    }

    /// The file of a path, if the path is known.
    pub(super) fn get(&self, path: &[u8]) -> Option<Option<usize>> {
        let has_it = |number: u32| self.path(&self.names[number as usize]) == path;
        let number = self.places.find(&self.hash(path), has_it)?;
        let name = &self.names[number as usize];
        Some((name.file != NONE).then_some(name.file as usize))
    }

    /// Whether a path is known.
    pub(super) fn contains(&self, path: &[u8]) -> bool {
        self.get(path).is_some()
    }

    /// The paths in insertion order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|name| self.path(name))
    }

    fn path(&self, name: &Name) -> &[u8] {
        let start = name.start as usize;
        &self.bytes[start..start + name.len as usize]
    }

    fn hash(&self, path: &[u8]) -> [u8; 8] {
        self.hashes.hash_one(path).to_le_bytes()
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
