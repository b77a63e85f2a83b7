//! Sets of rules, and tables from the parts of a request to the rules that they suit.
//!
//! An index over sources is inverted: for each property of a request, such as its second segment, it
//! has the rules that the property suits. A rule that matches is in one set of each property, so
//! candidates are found by intersecting sets, however the sources of an author overlap. Tables are
//! sorted and searched by halving: no keys make a search long.
//!
//! ```text
//!                        number of    first       second       rules
//! /news/:year    rule 0  2            "news"      any
//! /news/*        rule 1  2 or more    "news"      free
//! /*/:a.html     rule 2  2 or more    free        around ".html" (from the end)
//! ```

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::pattern::Segment;
use super::steps::{OutOfSteps, Steps};

/// A set of rules, in [`Sets`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Set {
    /// Where it is: in the lists or in the words.
    start: u32,
    /// The number of its rules.
    pub(super) count: u32,
}

/// The sets of an index over so many rules: those with more than a part of [`DENSE`] of all rules as
/// bits, others as lists, which are shorter then.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    rule_count: usize,
    lists: Vec<u32>,
    words: Vec<u64>,
}

/// The bits of a list's entry.
const DENSE: usize = u32::BITS as usize;

impl Sets {
    pub(super) fn new(rule_count: usize) -> Self {
        Self {
            rule_count,
            ..Self::default()
        }
    }

    /// The number of words with a bit for each rule.
    pub(super) fn word_count(&self) -> usize {
        self.rule_count.div_ceil(64)
    }

    fn is_dense(&self, count: usize) -> bool {
        count * DENSE > self.rule_count
    }

    /// Adds a set; its rules are in their order.
    pub(super) fn add(&mut self, rules: &[u32]) -> Set {
        if self.is_dense(rules.len()) {
            let mut bits = vec![0; self.word_count()];
            rules.iter().for_each(|rule| put(*rule, &mut bits));
            return self.add_bits(&bits);
        }
        let start = self.lists.len() as u32;
        self.lists.extend_from_slice(rules);
        Set {
            start,
            count: rules.len() as u32,
        }
    }

    fn add_bits(&mut self, bits: &[u64]) -> Set {
        let count = bits.iter().map(|word| word.count_ones()).sum();
        if !self.is_dense(count as usize) {
            let mut rules = Vec::new();
            let _ = each_bit(bits, |rule| {
                rules.push(rule);
                ControlFlow::<()>::Continue(())
            });
            return self.add(&rules);
        }
        let start = self.words.len() as u32;
        self.words.extend_from_slice(bits);
        Set { start, count }
    }

    /// Adds the rules of a set to these bits.
    #[inline]
    pub(super) fn put(&self, set: Set, bits: &mut [u64], steps: &Steps) -> Result<(), OutOfSteps> {
        let start = set.start as usize;
        if self.is_dense(set.count as usize) {
            steps.through(bits.len())?;
            let words = &self.words[start..start + bits.len()];
            for (bits, word) in bits.iter_mut().zip(words) {
                *bits |= word;
            }
        } else {
            steps.through(set.count as usize)?;
            let rules = &self.lists[start..start + set.count as usize];
            rules.iter().for_each(|rule| put(*rule, bits));
        }
        Ok(())
    }

    /// Appends the rules of a set.
    pub(super) fn list(&self, set: Set, rules: &mut Vec<u32>) {
        let start = set.start as usize;
        if self.is_dense(set.count as usize) {
            let _ = each_bit(&self.words[start..start + self.word_count()], |rule| {
                rules.push(rule);
                ControlFlow::<()>::Continue(())
            });
        } else {
            rules.extend_from_slice(&self.lists[start..start + set.count as usize]);
        }
    }
}

fn put(rule: u32, bits: &mut [u64]) {
    bits[rule as usize / 64] |= 1 << (rule % 64);
}

/// Visits the rules whose bits are set, in their order.
#[inline]
pub(super) fn each_bit<B>(
    bits: &[u64],
    mut visit: impl FnMut(u32) -> ControlFlow<B>,
) -> ControlFlow<B> {
    for (at, word) in bits.iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            visit(at as u32 * 64 + word.trailing_zeros())?;
            word &= word - 1;
        }
    }
    ControlFlow::Continue(())
}

/// The sets that one property of a request suits.
#[derive(Debug, Default)]
pub(super) struct Suiting {
    first: [Set; Self::FEW],
    count: usize,
    more: Vec<Set>,
}

impl Suiting {
    const FEW: usize = 8;

    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.more.clear();
    }

    #[inline]
    pub(super) fn add(&mut self, set: Set) {
        if set.count == 0 {
            return;
        }
        match self.first.get_mut(self.count) {
            Some(slot) => *slot = set,
            None => self.more.push(set),
        }
        self.count += 1;
    }

    pub(super) fn sets(&self) -> impl Iterator<Item = Set> {
        let few = self.count.min(Self::FEW);
        self.first[..few].iter().chain(&self.more).copied()
    }
}

/// A table from pairs of texts to sets. Either text may be empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Pairs of equal lengths, sorted by these.
    groups: Vec<RuleGroup>,
    /// The texts of all pairs.
    bytes: Vec<u8>,
    /// Of each pair, see [`head`].
    heads: Vec<u64>,
    sets: Vec<Set>,
}

#[derive(Clone, Copy, Debug)]
struct RuleGroup {
    lens: (u16, u16),
    /// In the table's sets.
    first: u32,
    count: u32,
    /// In the table's bytes.
    start: u32,
}

/// A pair of texts, and a rule that has it.
pub(super) type IndexedPair<'a> = (&'a [u8], &'a [u8], u32);

impl Table {
    pub(super) fn new(mut entries: Vec<IndexedPair<'_>>, sets: &mut Sets, steps: &Steps) -> Self {
        let lens =
            |&(before, after, _): &IndexedPair<'_>| (before.len() as u16, after.len() as u16);
        let mut compared = 0;
        // Rules with equal texts stay in their order.
        entries.sort_by(|a, b| {
            compared += 1;
            let texts = || order(a.0, b.0, b"").then_with(|| order(a.1, b.1, b""));
            lens(a).cmp(&lens(b)).then_with(texts)
        });
        let _ = steps.take(compared);
        let mut table = Self::default();
        for same in entries.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (before, after, _) = same[0];
            let lens = lens(&same[0]);
            let is_known = table.groups.last().is_some_and(|group| group.lens == lens);
            if !is_known {
                table.groups.push(RuleGroup {
                    lens,
                    first: table.sets.len() as u32,
                    count: 0,
                    start: table.bytes.len() as u32,
                });
            }
            if let Some(group) = table.groups.last_mut() {
                group.count += 1;
            }
            table.bytes.extend_from_slice(before);
            table.bytes.extend_from_slice(after);
            table.heads.push(head(before, after));
            let rules: Vec<u32> = same.iter().map(|entry| entry.2).collect();
            table.sets.push(sets.add(&rules));
        }
        table
    }

    /// The set of a pair; the empty one if there is none.
    #[inline]
    pub(super) fn find(
        &self,
        before: &[u8],
        after: &[u8],
        steps: &Steps,
    ) -> Result<Set, OutOfSteps> {
        if before.len() + after.len() > usize::from(u16::MAX) {
            return Ok(Set::default());
        }
        let lens = (before.len() as u16, after.len() as u16);
        match self.groups.binary_search_by_key(&lens, |group| group.lens) {
            Ok(at) => self.find_in(&self.groups[at], before, after, steps),
            Err(_) => steps.one().map(|()| Set::default()),
        }
    }

    /// The sets of all pairs that a text begins and ends with, around at least so many other bytes.
    #[inline]
    fn around(
        &self,
        text: &[u8],
        at_least: usize,
        steps: &Steps,
        out: &mut Suiting,
    ) -> Result<(), OutOfSteps> {
        for group in &self.groups {
            let (before, after) = (usize::from(group.lens.0), usize::from(group.lens.1));
            if before + after + at_least <= text.len() {
                let (before, after) = (&text[..before], &text[text.len() - after..]);
                out.add(self.find_in(group, before, after, steps)?);
            } else {
                steps.one()?;
            }
        }
        Ok(())
    }

    fn find_in(
        &self,
        group: &RuleGroup,
        before: &[u8],
        after: &[u8],
        steps: &Steps,
    ) -> Result<Set, OutOfSteps> {
        let len = before.len() + after.len();
        let first = group.first as usize;
        let heads = &self.heads[first..first + group.count as usize];
        let head = head(before, after);
        let compare = |at: usize| {
            let start = group.start as usize + at * len;
            let rest = || order(&self.bytes[start..start + len], before, after);
            heads[at].cmp(&head).then_with(rest)
        };
        let (mut low, mut high) = (0, heads.len());
        steps.through(len * (1 + high.ilog2() as usize))?;
        while low < high {
            let middle = low.midpoint(high);
            match compare(middle) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(self.sets[first + middle]),
            }
        }
        Ok(Set::default())
    }
}

/// The first bytes of two texts in a row, as a number in the order of texts that are as long: it
/// decides most comparisons.
#[inline]
fn head(before: &[u8], after: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let texts = before.iter().chain(after);
    bytes
        .iter_mut()
        .zip(texts)
        .for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(bytes)
}

/// Compares a text with two others in a row that are as long. Nothing is not compared: it has no
/// memory, see [`equal`](super::pattern::equal).
fn order(text: &[u8], before: &[u8], after: &[u8]) -> Ordering {
    let (first, second) = text.split_at(before.len());
    let mut found = Ordering::Equal;
    if !before.is_empty() {
        found = first.cmp(before);
    }
    if found.is_eq() && !after.is_empty() {
        found = second.cmp(after);
    }
    found
}

/// What rules want of the segment at one position, counted from the start or from the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    literals: Table,
    /// Placeholders with text around them.
    around: Table,
    /// The splat, with text before or after it.
    splats: Table,
    /// Placeholders with nothing around them.
    any: Set,
    /// Rules that want nothing here.
    free: Set,
}

impl Level {
    /// Adds the sets of the rules that a segment suits.
    #[inline]
    pub(super) fn suit(
        &self,
        segment: &[u8],
        steps: &Steps,
        out: &mut Suiting,
    ) -> Result<(), OutOfSteps> {
        out.add(self.literals.find(segment, b"", steps)?);
        if !segment.is_empty() {
            out.add(self.any);
        }
        self.around.around(segment, 1, steps, out)?;
        self.splats.around(segment, 0, steps, out)?;
        out.add(self.free);
        Ok(())
    }
}

/// The levels from the start or from the end, under construction.
#[derive(Debug, Default)]
pub(super) struct Levels<'a> {
    levels: Vec<GrowingLevel<'a>>,
}

#[derive(Debug, Default)]
struct GrowingLevel<'a> {
    literals: Vec<IndexedPair<'a>>,
    around: Vec<IndexedPair<'a>>,
    splats: Vec<IndexedPair<'a>>,
    any: Vec<u32>,
    /// Rules that want nothing from here on.
    free: Vec<u32>,
}

impl<'a> Levels<'a> {
    fn level(&mut self, at: usize) -> &mut GrowingLevel<'a> {
        if self.levels.len() <= at {
            self.levels.resize_with(at + 1, GrowingLevel::default);
        }
        &mut self.levels[at]
    }

    pub(super) fn segment(&mut self, at: usize, segment: &'a Segment, rule: u32) {
        let level = self.level(at);
        match segment {
            Segment::Literal(literal) => level.literals.push((literal, b"", rule)),
            Segment::Placeholder { prefix, suffix, .. } => {
                match prefix.is_empty() && suffix.is_empty() {
                    true => level.any.push(rule),
                    false => level.around.push((prefix, suffix, rule)),
                }
            }
        }
    }

    /// The splat with these texts, one of which is empty: that is at the other end.
    pub(super) fn splat(&mut self, at: usize, before: &'a [u8], after: &'a [u8], rule: u32) {
        let level = self.level(at);
        match before.is_empty() && after.is_empty() {
            true => level.free.push(rule),
            false => {
                level.splats.push((before, after, rule));
                self.free(at + 1, rule);
            }
        }
    }

    /// A rule that wants nothing from this level on.
    pub(super) fn free(&mut self, at: usize, rule: u32) {
        self.level(at).free.push(rule);
    }

    pub(super) fn build(self, sets: &mut Sets, steps: &Steps) -> Vec<Level> {
        let mut free = vec![0; sets.word_count()];
        let mut levels = Vec::with_capacity(self.levels.len());
        for level in self.levels {
            level.free.iter().for_each(|rule| put(*rule, &mut free));
            let _ = steps.through(sets.word_count());
            levels.push(Level {
                literals: Table::new(level.literals, sets, steps),
                around: Table::new(level.around, sets, steps),
                splats: Table::new(level.splats, sets, steps),
                any: sets.add(&level.any),
                free: sets.add_bits(&free),
            });
        }
        // The last ones may want nothing at all.
        let wants = |level: &Level| level.free.count as usize != sets.rule_count;
        let len = levels.iter().rposition(wants).map_or(0, |last| last + 1);
        levels.truncate(len);
        levels
    }
}

/// The rules by how many segments they have.
#[derive(Debug, Default)]
pub(super) struct Counts {
    exactly: Vec<Vec<u32>>,
    at_least: Vec<Vec<u32>>,
}

impl Counts {
    pub(super) fn exactly(&mut self, count: usize, rule: u32) {
        Self::at(&mut self.exactly, count).push(rule);
    }

    pub(super) fn at_least(&mut self, count: usize, rule: u32) {
        Self::at(&mut self.at_least, count).push(rule);
    }

    fn at(lists: &mut Vec<Vec<u32>>, at: usize) -> &mut Vec<u32> {
        if lists.len() <= at {
            lists.resize_with(at + 1, Vec::new);
        }
        &mut lists[at]
    }

    /// By number of segments: the rules that it suits. The last set is that of more as well.
    pub(super) fn build(self, sets: &mut Sets, steps: &Steps) -> Vec<Set> {
        let mut long = vec![0; sets.word_count()];
        let len = self.exactly.len().max(self.at_least.len()) + 1;
        let mut suiting = Vec::with_capacity(len);
        for count in 0..len {
            let at_least = self.at_least.get(count).into_iter().flatten();
            at_least.for_each(|rule| put(*rule, &mut long));
            let mut all = long.clone();
            let exactly = self.exactly.get(count).into_iter().flatten();
            exactly.for_each(|rule| put(*rule, &mut all));
            let _ = steps.through(sets.word_count());
            suiting.push(sets.add_bits(&all));
        }
        suiting
    }
}
