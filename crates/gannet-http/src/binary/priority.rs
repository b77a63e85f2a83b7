//! Extensible priorities (RFC 9218): urgency 0 to 7 and an incremental flag.
//!
//! The value is a structured-field dictionary (RFC 9651), of which `u` and `i` are used. As RFC
//! 9218 section 4 requires, a member out of range or of another type is ignored, and a value that
//! is not a dictionary means the default.

use super::limits::EARLY_PRIORITIES_MAX;
use crate::semantics::structured::{self, Value};

/// A priority of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Priority {
    /// 0 (first) to 7 (last).
    pub urgency: u8,
    /// Whether the client can use parts of the response as they arrive, so that several responses
    /// of the same urgency share the connection.
    pub is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            is_incremental: false,
        }
    }
}

/// The number of levels: two for each urgency.
pub const LEVELS: usize = 16;

impl Priority {
    /// The rank of a response among the others, 0 (first) to 15: by urgency, and within an urgency
    /// non-incremental responses first, since only the whole is useful. Within a level,
    /// non-incremental responses follow each other in request order; incremental ones take turns
    /// of [`QUANTUM`](super::limits::QUANTUM) bytes. RFC 9218 section 10 leaves this to the server.
    #[inline]
    #[must_use]
    pub fn level(self) -> u8 {
        2 * self.urgency + u8::from(self.is_incremental)
    }

    /// Reads a `priority` field value or the value of a PRIORITY_UPDATE frame.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let default = Self::default();
        let mut priority = default;
        let parsed = structured::dictionary(value, |key, value| match (key, value) {
            (b"u", Value::Integer(urgency @ 0..=7)) => priority.urgency = urgency as u8,
            (b"u", _) => priority.urgency = default.urgency,
            (b"i", Value::Boolean(flag)) => priority.is_incremental = flag,
            (b"i", _) => priority.is_incremental = default.is_incremental,
            _ => {}
        });
        parsed.map_or(default, |()| priority)
    }
}

/// Priorities of streams that are not open yet (RFC 9218 section 7), at most [`EARLY_PRIORITIES_MAX`];
/// beyond that, those of further streams are dropped.
#[derive(Clone, Debug)]
pub(crate) struct EarlyPriorities<S> {
    known: Vec<(S, Priority)>,
}

impl<S: Copy + Ord> EarlyPriorities<S> {
    pub(crate) const fn new() -> Self {
        Self { known: Vec::new() }
    }

    /// Sets the priority of a stream, in place of an earlier one.
    pub(crate) fn set(&mut self, stream: S, priority: Priority) {
        if let Some((_, old)) = self.known.iter_mut().find(|(of, _)| *of == stream) {
            *old = priority;
        } else if self.known.len() < EARLY_PRIORITIES_MAX {
            self.known.push((stream, priority));
        }
    }

    /// Removes the priority of a stream that opens.
    #[inline]
    pub(crate) fn take(&mut self, stream: S) -> Option<Priority> {
        if self.known.is_empty() {
            return None;
        }
        let index = self.known.iter().position(|(of, _)| *of == stream)?;
        Some(self.known.swap_remove(index).1)
    }

    /// Drops those of streams below this one, which will never open.
    #[inline]
    pub(crate) fn drop_below(&mut self, stream: S) {
        self.known.retain(|(of, _)| *of >= stream);
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.known.capacity() * size_of::<(S, Priority)>()
    }

    /// Releases memory that is not used.
    pub(crate) fn trim(&mut self) {
        self.known.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, urgency, is_incremental| {
            let expect = Priority {
                urgency,
                is_incremental,
            };
            assert_eq!(Priority::parse(value.as_bytes()), expect, "{value:?}");
        };
        check("", 3, false);
        check("u=0", 0, false);
        check("u=7, i", 7, true);
        check("i,u=5", 5, true);
        check("i=?1", 3, true);
        check("i, i=?0", 3, false);
        check("u=1, u=2", 2, false);
        check("u=8", 3, false);
        check("u=-1", 3, false);
        check("u=1.0", 3, false);
        check("u=\"1\"", 3, false);
        check("U=1", 3, false);
        check("i=1", 3, false);
        check("u=2;x=y, i;a", 2, true);
        check("foo, bar=(1 2), u=4", 4, false);
        check(&format!("{}u=1", "a,".repeat(100)), 1, false);
        // The last value counts, even if it is ignored; a fault is one of the whole field.
        check("u=1, u=8", 3, false);
        check("i, i=1", 3, false);
        check("x=\"u=1,u=2\", i", 3, true);
        check("u=1, i, =", 3, false);
        check("u=1,", 3, false);
    }

    /// The last priority of a stream counts, once; others than those of the first streams are dropped.
    #[test]
    fn early_priorities_are_bounded() {
        let of = |urgency| Priority {
            urgency,
            ..Priority::default()
        };
        let mut early = EarlyPriorities::new();
        for stream in 0..=EARLY_PRIORITIES_MAX {
            early.set(stream, of(1));
        }
        early.set(3, of(2));
        assert_eq!(early.known.len(), EARLY_PRIORITIES_MAX);
        assert_eq!(early.take(EARLY_PRIORITIES_MAX), None);
        assert_eq!((early.take(3), early.take(3)), (Some(of(2)), None));
        early.drop_below(EARLY_PRIORITIES_MAX - 1);
        assert_eq!(early.take(EARLY_PRIORITIES_MAX - 2), None);
        assert_eq!(early.take(EARLY_PRIORITIES_MAX - 1), Some(of(1)));
        early.trim();
        assert_eq!(early.memory(), 0);
    }

    #[test]
    fn levels_follow_urgency_first() {
        let level = |value: &str| usize::from(Priority::parse(value.as_bytes()).level());
        assert_eq!(["u=0", "u=0, i", "u=1", ""].map(level), [0, 1, 2, 6]);
        assert_eq!(level("u=7, i"), LEVELS - 1);
    }
}
