//! The trees of long blobs, so that a part of one can be verified without the rest.
//!
//! BLAKE3 hashes a blob as a tree, whose root is the blob's digest. An archive has the chaining values of
//! the subtrees over each group of 64 KiB; the rest of the tree follows from them.

use blake3::Hasher;
use blake3::hazmat::{
    HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::limits::{GROUP_LEN, UNIT_LEN_MAX};

/// The chaining value of a group.
pub type GroupHash = [u8; 32];

/// Whether a blob of this length has a tree.
pub const fn has_tree(len: u64) -> bool {
    len > UNIT_LEN_MAX
}

/// The chaining value of the group with this number, from 0, of a blob that [has a tree](has_tree): of 1 to
/// [`GROUP_LEN`] bytes.
pub fn group_hash(number: u64, bytes: &[u8]) -> GroupHash {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(number * GROUP_LEN);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The digest of a blob of `len` bytes, from the chaining values of all of its groups; `None` unless it
/// [has a tree](has_tree) and these are as many as it has groups.
pub fn tree_root(groups: &[GroupHash], len: u64) -> Option<[u8; 32]> {
    if !has_tree(len) || groups.len() as u64 != len.div_ceil(GROUP_LEN) {
        return None;
    }
    let (left, right) = halves(groups, len);
    Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
}

/// The chaining values of both halves of a subtree of several groups.
fn halves(groups: &[GroupHash], len: u64) -> (GroupHash, GroupHash) {
    // A multiple of a group, since there is more than one.
    let left_len = left_subtree_len(len);
    let (left, right) = groups.split_at((left_len / GROUP_LEN) as usize);
    (subtree(left, left_len), subtree(right, len - left_len))
}

/// Recurses as deep as the tree is, 48 levels at most.
fn subtree(groups: &[GroupHash], len: u64) -> GroupHash {
    match groups {
        [one] => *one,
        _ => {
            let (left, right) = halves(groups, len);
            merge_subtrees_non_root(&left, &right, Mode::Hash)
        }
    }
}

/// Digest and tree of bytes that come in pieces.
#[derive(Clone, Debug, Default)]
pub struct TreeHasher {
    groups: Vec<GroupHash>,
    /// The first [`UNIT_LEN_MAX`] bytes, since the end may follow.
    start: Hasher,
    /// Those of the last group, which is not full.
    group: Hasher,
    group_len: u64,
    len: u64,
}

impl TreeHasher {
    /// Takes the next piece.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = (GROUP_LEN - self.group_len) as usize;
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            if !has_tree(self.len) {
                self.start.update(now);
            }
            self.group.update(now);
            self.len += now.len() as u64;
            self.group_len += now.len() as u64;
            if self.group_len == GROUP_LEN {
                self.end_group();
            }
            bytes = rest;
        }
    }

    fn end_group(&mut self) {
        self.groups.push(self.group.finalize_non_root());
        // Resetting it would keep the offset.
        self.group = Hasher::new();
        let next = self.groups.len() as u64 * GROUP_LEN;
        self.group.set_input_offset(next);
        self.group_len = 0;
    }

    /// The length and the digest of all bytes, and the chaining values of their groups; none of the latter
    /// unless they [have a tree](has_tree).
    pub fn finish(mut self) -> (u64, [u8; 32], Vec<GroupHash>) {
        if self.group_len > 0 {
            self.end_group();
        }
        match tree_root(&self.groups, self.len) {
            Some(root) => (self.len, root, self.groups),
            None => (self.len, *self.start.finalize().as_bytes(), Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: u64) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Lengths around those of a tree, a group, and full and other trees of groups.
    #[test]
    fn the_root_is_the_digest() {
        let group = GROUP_LEN;
        for len in [
            0,
            1,
            group,
            UNIT_LEN_MAX - 1,
            UNIT_LEN_MAX,
            UNIT_LEN_MAX + 1,
            UNIT_LEN_MAX + group,
            UNIT_LEN_MAX + group + 1,
            2 * UNIT_LEN_MAX,
            2 * UNIT_LEN_MAX + 5 * group - 1,
        ] {
            let bytes = bytes(len);
            for piece in [1 << 20, 100_000, 4096] {
                let mut hasher = TreeHasher::default();
                bytes.chunks(piece).for_each(|piece| hasher.update(piece));
                let (found_len, digest, groups) = hasher.finish();
                assert_eq!(found_len, len);
                assert_eq!(&digest, blake3::hash(&bytes).as_bytes(), "{len}");
                let expect = if has_tree(len) {
                    len.div_ceil(group)
                } else {
                    0
                };
                assert_eq!(groups.len() as u64, expect, "{len}");
                let each = (0..).zip(bytes.chunks(group as usize));
                for (found, (number, bytes)) in groups.iter().zip(each) {
                    assert_eq!(*found, group_hash(number, bytes));
                }
            }
        }
    }

    #[test]
    fn a_changed_tree_has_another_root() {
        let len = UNIT_LEN_MAX + 3;
        let mut hasher = TreeHasher::default();
        hasher.update(&bytes(len));
        let (_, digest, groups) = hasher.finish();
        for number in 0..groups.len() {
            let mut changed = groups.clone();
            changed[number][0] ^= 1;
            assert_ne!(tree_root(&changed, len), Some(digest));
        }
        assert_eq!(tree_root(&groups[1..], len), None);
        assert_eq!(tree_root(&groups, len + GROUP_LEN), None);
        assert_eq!(tree_root(&groups[..1], 5), None);
    }
}
