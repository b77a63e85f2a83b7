//! The memory that the rules of a file take with their index, counted rule by rule as they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::headers::{FieldOperation, HeaderRule, ValuePart};
use super::limits::RULES_MEMORY_MAX;
use super::lines::Wrong;
use super::pattern::{Pattern, Segment};
use super::redirects::{QueryParameter, QueryValue, Redirect};
use super::target::TargetPart;
use super::users::User;

/// What an allocation takes beside its bytes.
const ALLOCATION_LEN: usize = 16;

/// What the index takes for a segment, a label or a parameter, beside its text: an entry in a list that
/// grows, and its set, group and first bytes in a table.
const INDEXED_LEN: usize = 128;

/// Sites that have a part of their own: as many as may be open, each with the rules that it reads anew.
const OWN_PARTS: usize = 512;

/// What the rules of several sites may hold together. Half of it is shared; of the other half each site has a
/// part, however many others hold as much as they can. While rules are replaced, the next ones may be read
/// beside them: their base and the site's part are theirs, within three quarters of all.
#[derive(Debug)]
pub struct SitesMemory {
    max: usize,
    held: AtomicUsize,
}

impl SitesMemory {
    /// They may hold so many bytes.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self {
            max,
            held: AtomicUsize::new(0),
        }
    }

    /// The bytes that they may hold.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// The bytes that they hold, those being read included.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The bytes that sites share: half of all, so that their own parts stay free for the others.
    fn shared(&self) -> usize {
        self.max - self.max / 2
    }

    /// The bytes that a site may hold whatever the others hold.
    fn own_part(&self) -> usize {
        self.max / 2 / OWN_PARTS
    }

    /// The bytes that they may hold while a site reads rules in the place of others.
    fn while_replacing(&self) -> usize {
        self.max - self.max / 4
    }

    /// Takes so many, unless all would hold more than `most` then.
    fn take(&self, len: usize, most: usize) -> bool {
        let more = |held: usize| held.checked_add(len).filter(|all| *all <= most);
        let taken = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok()
    }
}

/// Bytes of the rules that others are read in the place of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replaced {
    /// All that they hold.
    taken: usize,
    /// Those that were there for them when they were read for the first time: what is read in the place of
    /// others does not raise it, so that a site cannot grow release by release.
    base: usize,
}

impl Replaced {
    /// All bytes that they hold.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }
}

/// What is left for a site among several.
#[derive(Debug)]
struct Share {
    sites: Arc<SitesMemory>,
    /// Bytes that were taken.
    taken: usize,
    /// Bytes of what sites share that it may have.
    of_shared: usize,
    /// The base of what is replaced.
    replaced: usize,
    /// It took more than what sites share had left.
    is_beyond: bool,
}

impl Share {
    fn new(sites: &Arc<SitesMemory>, replaced: Replaced) -> Self {
        let others = sites.held().saturating_sub(replaced.taken);
        Self {
            sites: Arc::clone(sites),
            taken: 0,
            of_shared: sites.shared().saturating_sub(others) / 2,
            replaced: replaced.base,
            is_beyond: false,
        }
    }

    /// The bytes that it may have beyond what sites share.
    fn beyond(&self) -> usize {
        self.replaced + self.sites.own_part()
    }

    /// The most that it may have.
    fn most(&self) -> usize {
        self.of_shared.max(self.beyond())
    }

    fn take(&mut self, len: usize) -> Result<(), TooMuchMemory> {
        let all = self.taken.saturating_add(len);
        let is_of_shared = all <= self.of_shared && self.sites.take(len, self.sites.shared());
        let beyond = match all <= self.sites.own_part() {
            true => self.sites.max,
            false => self.sites.while_replacing(),
        };
        if !is_of_shared {
            let is_its = all <= self.beyond() && self.sites.take(len, beyond);
            is_its.then_some(()).ok_or(TooMuchMemory::OfSites)?;
            self.is_beyond |= all > self.sites.own_part();
        }
        self.taken = all;
        Ok(())
    }
}

/// The bytes that the rules of a site may still hold. Those of one of several sites hold what they took
/// until this is dropped.
#[derive(Debug)]
pub struct MemoryRoom {
    of_file: usize,
    /// Of what all sites have, if it is one of several.
    share: Option<Share>,
    /// Something was too much for it.
    is_used_up: bool,
}

impl Default for MemoryRoom {
    fn default() -> Self {
        Self {
            of_file: RULES_MEMORY_MAX,
            share: None,
            is_used_up: false,
        }
    }
}

impl MemoryRoom {
    /// For one of several sites: half of what the others leave of what is shared, or its own part and the
    /// base of the rules that are `replaced` if that is more. They are held until these are there.
    #[must_use]
    pub fn among(sites: &Arc<SitesMemory>, replaced: Replaced) -> Self {
        Self {
            share: Some(Share::new(sites, replaced)),
            ..Self::default()
        }
    }

    /// The bytes that are left for the site.
    #[must_use]
    pub fn left(&self) -> usize {
        let left = |share: &Share| share.most().saturating_sub(share.taken);
        self.share.as_ref().map_or(usize::MAX, left)
    }

    /// The bytes that were taken of what all sites have.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.share.as_ref().map_or(0, |share| share.taken)
    }

    /// What those have that will be read in the place of the rules in it.
    #[must_use]
    pub fn replaced(&self) -> Replaced {
        self.share.as_ref().map_or_else(Replaced::default, |share| {
            let most = if share.is_beyond {
                share.replaced
            } else {
                usize::MAX
            };
            Replaced {
                taken: share.taken,
                base: share.taken.min(most),
            }
        })
    }

    /// Whether a rule was too much for it: what follows in the file is not read.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// The rules of another file follow.
    pub(super) fn begin_file(&mut self) {
        self.of_file = RULES_MEMORY_MAX;
        self.is_used_up = false;
    }

    /// Takes so many; none if there are not so many.
    ///
    /// # Errors
    /// What they would be too many for.
    pub(super) fn take(&mut self, len: usize) -> Result<(), TooMuchMemory> {
        let of_file = self.of_file.checked_sub(len);
        let of_file = of_file.ok_or(TooMuchMemory::OfFile)?;
        if let Some(share) = &mut self.share {
            share.take(len)?;
        }
        self.of_file = of_file;
        Ok(())
    }

    /// The same for a line of a file.
    ///
    /// # Errors
    /// There are not so many.
    pub(super) fn take_line(&mut self, len: usize) -> Result<(), (u32, Wrong)> {
        self.take(len).map_err(|too_much| {
            self.is_used_up = true;
            let found = "rules that hold too much memory, with those before";
            let wrong = match too_much {
                TooMuchMemory::OfFile => {
                    let expected = format!("at most {} MiB together", RULES_MEMORY_MAX >> 20);
                    let wrong = Wrong::words(found, expected);
                    wrong.help("fewer rules, or sources of fewer segments")
                }
                TooMuchMemory::OfSites => {
                    let most = (self.taken() + self.left()) >> 10;
                    let expected = format!("at most {most} KiB, by what other sites leave");
                    let wrong = Wrong::words(found, expected);
                    wrong.help(
                        "fewer rules, sources of fewer segments, or a server with more memory",
                    )
                }
            };
            (1, wrong)
        })
    }
}

impl Drop for MemoryRoom {
    fn drop(&mut self) {
        if let Some(Share { sites, taken, .. }) = &self.share {
            sites.held.fetch_sub(*taken, Ordering::Relaxed);
        }
    }
}

/// What rules hold too much memory for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TooMuchMemory {
    /// One file.
    OfFile,
    /// A site among several.
    OfSites,
}

fn allocated(len: usize) -> usize {
    match len {
        0 => 0,
        _ => len + ALLOCATION_LEN,
    }
}

/// What one of the shortest allocations takes.
const ALLOCATION_MIN: usize = 32;

/// A short text of its own.
fn text_len(len: usize) -> usize {
    allocated(len).max(ALLOCATION_MIN)
}

/// A list that grew by doubling, from four.
fn list_len<T>(count: usize) -> usize {
    allocated(count.next_power_of_two().max(4) * size_of::<T>())
}

fn segment_len(segment: &Segment) -> usize {
    let (texts, indexed) = match segment {
        Segment::Literal(text) => (allocated(text.len()), text.len()),
        Segment::Placeholder {
            prefix,
            name,
            suffix,
        } => {
            let texts = [prefix.len(), name.len(), suffix.len()].map(allocated);
            (texts.iter().sum(), prefix.len() + suffix.len())
        }
    };
    size_of::<Segment>() + texts + indexed + INDEXED_LEN
}

fn pattern_len(pattern: &Pattern) -> usize {
    let labels = pattern.host.iter().flatten();
    let splat = pattern.splat.as_ref();
    let tail = splat.iter().flat_map(|splat| &splat.tail);
    let segments = labels.chain(&pattern.head).chain(tail).map(segment_len);
    let around = splat.map_or(0, |splat| {
        2 * (allocated(splat.prefix.len()) + allocated(splat.suffix.len())) + INDEXED_LEN
    });
    segments.sum::<usize>() + around
}

fn parameter_len(parameter: &QueryParameter) -> usize {
    let value_len = match &parameter.value {
        QueryValue::Literal(value) => value.len(),
        QueryValue::Placeholder(name) => name.len(),
    };
    let texts = allocated(parameter.name.len()) + allocated(value_len);
    size_of::<QueryParameter>() + 2 * texts + INDEXED_LEN
}

/// Bytes that a rule for redirects holds, at most.
pub(super) fn redirect_len(rule: &Redirect) -> usize {
    let target = &rule.target;
    let parts = [
        Some(&target.path),
        target.query.as_ref(),
        target.fragment.as_ref(),
    ];
    let parts = parts
        .into_iter()
        .flatten()
        .flatten()
        .map(|part| match part {
            TargetPart::Literal(text) => size_of::<TargetPart>() + allocated(text.len()),
            TargetPart::Capture(_) => size_of::<TargetPart>(),
        });
    let languages = rule.languages.iter();
    let languages = languages.map(|it| size_of::<Vec<u8>>() + allocated(it.len()));
    let origin_len = target.origin.as_ref().map_or(0, String::len);
    size_of::<Redirect>()
        + pattern_len(&rule.pattern)
        + rule.query.iter().map(parameter_len).sum::<usize>()
        + parts.sum::<usize>()
        + languages.sum::<usize>()
        + allocated(origin_len)
}

/// Bytes that the source of a rule for fields holds, at most.
pub(super) fn source_len(pattern: &Pattern) -> usize {
    let operations = list_len::<FieldOperation>(1) + list_len::<u32>(1);
    size_of::<HeaderRule>() + pattern_len(pattern) + operations
}

/// Bytes that a line of a rule for fields holds, at most.
pub(super) fn operation_len(operation: &FieldOperation) -> usize {
    let value_len = match operation {
        FieldOperation::Remove { .. } => 0,
        FieldOperation::Set { value, .. } => {
            let texts = value.iter().map(|part| match part {
                ValuePart::Literal(text) => text_len(text.len()),
                ValuePart::Capture(_) => 0,
            });
            list_len::<ValuePart>(value.len()) + texts.sum::<usize>()
        }
    };
    // With its line, in lists of up to twice the length.
    let listed = size_of::<FieldOperation>() + size_of::<u32>();
    2 * listed + text_len(operation.name().len()) + value_len
}

/// Bytes that these users hold, at most, whose text is so long.
pub(super) fn users_len(users: &[User], text_len: usize) -> usize {
    2 * text_len + users.len() * (size_of::<User>() + 4 * ALLOCATION_LEN)
}

/// Bytes that the index of paths with users holds of this source, at most: as it is, and without the
/// suffix of a compressed copy.
pub(super) fn protected_len(pattern: &Pattern) -> usize {
    2 * (size_of::<(Pattern, u32)>() + pattern_len(pattern))
}

/// Bytes that a whole rule for fields holds, at most.
pub(super) fn header_rule_len(rule: &HeaderRule) -> usize {
    let operations = rule.operations.iter().map(operation_len);
    let of_users = match rule.users.is_empty() {
        true => 0,
        false => users_len(&rule.users, 0) + protected_len(&rule.pattern),
    };
    source_len(&rule.pattern) + operations.sum::<usize>() + of_users
}
