//! A trie over path segments, with branches for placeholders and the splat.
//!
//! Every node is reached by only one route, which determines how much of the path is consumed, so a
//! walk visits each node at most once: its cost is bounded by the rules that share a prefix with
//! the path, and for usual rules it is a few look-ups per segment. All edges are in one hash table,
//! keyed by node and text: no node tries its children in a row.
//!
//! ```text
//! (root) ──"news"──▶ (1) ──:name──▶ (2) end
//!    │                └──splat──▶ (3) ──close──▶ end       /news/*
//!    └─────splat──▶ (4) ──close ".js"──▶ end               /*.js
//!                    └──tail "latest"──▶ (5) ──close──▶ end  /*/latest
//! ```
//!
//! After a splat, segments are matched backwards from the end of the path.

use std::collections::BTreeMap;

use super::pattern::{Segment, Splat, Subject, equal};

/// A set of patterns, ready to be walked.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    /// Lengths of the texts around placeholders and splats, by node.
    lens: Vec<(u16, u16)>,
    edges: Edges,
}

/// The receiver of a walk's results.
pub(crate) trait Visit {
    /// Whether any rule below a node is of interest, given the first of them.
    fn wants(&self, first: u32) -> bool;

    /// Reports an end: its patterns match.
    fn end(&mut self, end: u32);
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The first rule below.
    first: u32,
    /// The child for a placeholder with nothing around it, or `NONE`.
    placeholder: u32,
    /// The end of patterns, or `NONE`.
    end: u32,
    /// In `lens`: first those of placeholders, then those of splats, then those that close.
    lens: [u32; 4],
}

const NONE: u32 = u32::MAX;

impl Trie {
    /// Visits the ends of all patterns that match, from this root.
    pub(crate) fn walk(&self, root: u32, subject: &Subject<'_>, visit: &mut impl Visit) {
        self.walk_head(root, subject, subject.first(), visit);
    }

    fn walk_head(
        &self,
        node: u32,
        subject: &Subject<'_>,
        at: Option<usize>,
        visit: &mut impl Visit,
    ) {
        let known = self.nodes[node as usize];
        if !visit.wants(known.first) {
            return;
        }
        self.walk_splats(node, subject, at, visit);
        let Some(start) = at else {
            if known.end != NONE {
                visit.end(known.end);
            }
            return;
        };
        let (end, next) = subject.segment(start);
        self.children(node, &subject.bytes[start..end], |child| {
            self.walk_head(child, subject, next, visit);
        });
    }

    fn walk_splats(
        &self,
        node: u32,
        subject: &Subject<'_>,
        at: Option<usize>,
        visit: &mut impl Visit,
    ) {
        let start = match at {
            Some(start) => start,
            None if subject.ignores_trailing_slash => subject.bytes.len(),
            None => return,
        };
        for &(len, _) in self.lens(node, SPLAT_LENS) {
            let from = start + usize::from(len);
            let Some(prefix) = subject.bytes.get(start..from) else {
                continue;
            };
            if let Some(child) = self.edges.find(node, Kind::Splat, prefix, b"") {
                let region = Region {
                    start,
                    from,
                    end: subject.bytes.len(),
                };
                self.walk_tail(child, subject, region, visit);
            }
        }
    }

    fn walk_tail(&self, node: u32, subject: &Subject<'_>, region: Region, visit: &mut impl Visit) {
        if !visit.wants(self.nodes[node as usize].first) {
            return;
        }
        for &(len, _) in self.lens(node, CLOSE_LENS) {
            let cut = region.end.checked_sub(usize::from(len));
            let Some(cut) = cut.filter(|&cut| cut >= region.from) else {
                continue;
            };
            let suffix = &subject.bytes[cut..region.end];
            if let Some(end) = self.edges.find(node, Kind::Close, suffix, b"") {
                visit.end(end);
            }
        }
        let rest = &subject.bytes[region.start..region.end];
        let slash = rest.iter().rposition(|&byte| byte == subject.separator);
        let Some(slash) = slash.map(|slash| region.start + slash) else {
            return;
        };
        self.children(node, &subject.bytes[slash + 1..region.end], |child| {
            let region = Region {
                end: slash,
                ..region
            };
            self.walk_tail(child, subject, region, visit);
        });
    }

    /// The children that a segment leads to.
    fn children(&self, node: u32, segment: &[u8], mut visit: impl FnMut(u32)) {
        if let Some(child) = self.edges.find(node, Kind::Literal, segment, b"") {
            visit(child);
        }
        let placeholder = self.nodes[node as usize].placeholder;
        if placeholder != NONE && !segment.is_empty() {
            visit(placeholder);
        }
        for &(prefix_len, suffix_len) in self.lens(node, PLACEHOLDER_LENS) {
            let (prefix_len, suffix_len) = (usize::from(prefix_len), usize::from(suffix_len));
            if segment.len() <= prefix_len + suffix_len {
                continue;
            }
            let prefix = &segment[..prefix_len];
            let suffix = &segment[segment.len() - suffix_len..];
            if let Some(child) = self.edges.find(node, Kind::Placeholder, prefix, suffix) {
                visit(child);
            }
        }
    }

    fn lens(&self, node: u32, which: usize) -> &[(u16, u16)] {
        let lens = &self.nodes[node as usize].lens;
        &self.lens[lens[which] as usize..lens[which + 1] as usize]
    }
}

const PLACEHOLDER_LENS: usize = 0;
const SPLAT_LENS: usize = 1;
const CLOSE_LENS: usize = 2;

/// The part that a splat may still match: `start <= from`, and `end` shrinks towards `start`.
#[derive(Clone, Copy)]
struct Region {
    /// Where the segment of the splat begins.
    start: usize,
    /// After the text before the splat.
    from: usize,
    /// Before the segments that were matched from the end.
    end: usize,
}

/// A trie under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrieBuilder {
    nodes: Vec<Growing>,
    end_count: u32,
}

#[derive(Clone, Debug)]
struct Growing {
    first: u32,
    edges: BTreeMap<Key, u32>,
    end: u32,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Key {
    kind: Kind,
    before: Vec<u8>,
    after: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Kind {
    Literal,
    Placeholder,
    Splat,
    Close,
    /// The values of a query, not of a path.
    Query,
}

impl TrieBuilder {
    /// Adds a root.
    pub(crate) fn root(&mut self) -> u32 {
        self.nodes.push(Growing {
            first: NONE,
            edges: BTreeMap::new(),
            end: NONE,
        });
        self.nodes.len() as u32 - 1
    }

    /// Adds a pattern, and returns the number of its end: a new one, one more than the last, or
    /// that of an equal pattern.
    pub(crate) fn insert(
        &mut self,
        root: u32,
        head: &[Segment],
        splat: Option<&Splat>,
        rule: u32,
    ) -> u32 {
        let mut node = root;
        self.mark(node, rule);
        for segment in head {
            node = self.child(node, Key::of(segment), rule);
        }
        let Some(splat) = splat else {
            let end = &mut self.nodes[node as usize].end;
            if *end == NONE {
                *end = self.end_count;
                self.end_count += 1;
            }
            return *end;
        };
        node = self.child(node, Key::new(Kind::Splat, &splat.prefix, b""), rule);
        for segment in splat.tail.iter().rev() {
            node = self.child(node, Key::of(segment), rule);
        }
        let next = self.end_count;
        let key = Key::new(Kind::Close, &splat.suffix, b"");
        let end = *self.nodes[node as usize].edges.entry(key).or_insert(next);
        self.end_count += u32::from(end == next);
        end
    }

    /// The number of different patterns.
    pub(crate) fn end_count(&self) -> u32 {
        self.end_count
    }

    fn child(&mut self, node: u32, key: Key, rule: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let child = *self.nodes[node as usize].edges.entry(key).or_insert(next);
        if child == next {
            self.root();
        }
        self.mark(child, rule);
        child
    }

    fn mark(&mut self, node: u32, rule: u32) {
        let first = &mut self.nodes[node as usize].first;
        *first = rule.min(*first);
    }

    pub(crate) fn build(self) -> Trie {
        let edge_count = self.nodes.iter().map(|node| node.edges.len()).sum();
        let mut trie = Trie {
            nodes: Vec::with_capacity(self.nodes.len()),
            lens: Vec::new(),
            edges: Edges::with_capacity(edge_count),
        };
        for (index, growing) in self.nodes.into_iter().enumerate() {
            let mut node = Node {
                first: growing.first,
                placeholder: NONE,
                end: growing.end,
                lens: [0; 4],
            };
            let mut lens = [Vec::new(), Vec::new(), Vec::new()];
            for (key, child) in growing.edges {
                let len = (key.before.len() as u16, key.after.len() as u16);
                match key.kind {
                    Kind::Placeholder if len == (0, 0) => {
                        node.placeholder = child;
                        continue;
                    }
                    Kind::Placeholder => lens[PLACEHOLDER_LENS].push(len),
                    Kind::Splat => lens[SPLAT_LENS].push(len),
                    Kind::Close => lens[CLOSE_LENS].push(len),
                    Kind::Literal | Kind::Query => {}
                }
                let edge = (index as u32, key.kind);
                trie.edges.insert(edge, &key.before, &key.after, child);
            }
            for (which, lens) in lens.iter_mut().enumerate() {
                lens.sort_unstable();
                lens.dedup();
                node.lens[which] = trie.lens.len() as u32;
                trie.lens.append(lens);
            }
            node.lens[3] = trie.lens.len() as u32;
            trie.nodes.push(node);
        }
        trie
    }
}

impl Key {
    fn new(kind: Kind, before: &[u8], after: &[u8]) -> Self {
        Self {
            kind,
            before: before.to_vec(),
            after: after.to_vec(),
        }
    }

    fn of(segment: &Segment) -> Self {
        match segment {
            Segment::Literal(literal) => Self::new(Kind::Literal, literal, b""),
            Segment::Placeholder { prefix, suffix, .. } => {
                Self::new(Kind::Placeholder, prefix, suffix)
            }
        }
    }
}

/// A hash table from a node and two texts to a number. At most half full, so an unsuccessful search
/// probes two entries on average. The hash has no key: the *content* of the table comes from the
/// site, and searches cannot lengthen its chains.
#[derive(Clone, Debug)]
pub(crate) struct Edges {
    /// Positions in `edges`, or `NONE`; a power of two of them.
    slots: Vec<u32>,
    edges: Vec<Edge>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    hash: u64,
    node: u32,
    target: u32,
    /// In `bytes`.
    start: u32,
    before_len: u16,
    after_len: u16,
    kind: Kind,
}

impl Edges {
    pub(crate) fn with_capacity(count: usize) -> Self {
        let slot_count = (count * 2).max(1).next_power_of_two();
        Self {
            slots: vec![NONE; slot_count],
            edges: Vec::with_capacity(count),
            bytes: Vec::new(),
        }
    }

    /// Adds an edge, or changes its target. There must be room.
    pub(crate) fn insert(
        &mut self,
        (node, kind): (u32, Kind),
        before: &[u8],
        after: &[u8],
        target: u32,
    ) {
        assert!(self.edges.len() * 2 <= self.slots.len(), "room was made");
        let hash = hash(node, kind, before, after);
        let mut slot = self.first_slot(hash);
        while self.slots[slot] != NONE {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = self.edges.len() as u32;
        self.edges.push(Edge {
            hash,
            node,
            target,
            start: self.bytes.len() as u32,
            before_len: before.len() as u16,
            after_len: after.len() as u16,
            kind,
        });
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(after);
    }

    /// The target of an edge.
    #[inline]
    pub(crate) fn find(&self, node: u32, kind: Kind, before: &[u8], after: &[u8]) -> Option<u32> {
        let hash = hash(node, kind, before, after);
        let mut slot = self.first_slot(hash);
        // The table is never full: the loop ends at an empty slot.
        loop {
            let edge = self.edges.get(self.slots[slot] as usize)?;
            if edge.hash == hash
                && (edge.node, edge.kind) == (node, kind)
                && self.is_text(edge, before, after)
            {
                return Some(edge.target);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    fn is_text(&self, edge: &Edge, before: &[u8], after: &[u8]) -> bool {
        let start = edge.start as usize;
        let middle = start + usize::from(edge.before_len);
        let end = middle + usize::from(edge.after_len);
        equal(&self.bytes[start..middle], before) && equal(&self.bytes[middle..end], after)
    }

    fn first_slot(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.slots.len() - 1)
    }
}

fn hash(node: u32, kind: Kind, before: &[u8], after: &[u8]) -> u64 {
    let seed = u64::from(node) << 8 | kind as u64;
    let hash = mix(seed.wrapping_mul(FACTOR), before);
    // The lengths distinguish ("ab", "c") from ("a", "bc").
    mix(
        hash ^ (before.len() as u64) << 16 ^ after.len() as u64,
        after,
    )
}

#[inline]
fn mix(mut hash: u64, bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word));
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = fold(hash ^ u64::from_le_bytes(word));
    }
    fold(hash)
}

#[inline]
fn fold(value: u64) -> u64 {
    let wide = u128::from(value ^ FACTOR) * u128::from(FACTOR);
    (wide >> 64) as u64 ^ wide as u64
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
