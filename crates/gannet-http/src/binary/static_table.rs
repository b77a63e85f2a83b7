//! Static tables of field compression, with the same type of entries for HPACK and QPACK.

use super::line::NameKind;
use crate::semantics::fields::KnownField;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticEntry {
    /// The line, `name: value CRLF`.
    pub(crate) line: &'static str,
    /// Length of the name, in bytes.
    pub(crate) name_len: u8,
    /// Length of the value, in bytes.
    pub(crate) value_len: u8,
    /// The meaning of the name in a request.
    pub(crate) kind: NameKind,
}

impl StaticEntry {
    pub(crate) fn name(&self) -> &'static str {
        &self.line[..usize::from(self.name_len)]
    }

    /// Whether a request may have this line.
    #[inline]
    pub(crate) fn is_well_formed(&self) -> bool {
        let needs_value = matches!(
            self.kind,
            NameKind::Authority | NameKind::Known(KnownField::Host)
        );
        self.kind != NameKind::Refused && !needs_value
    }

    /// Whether another entry has the same name.
    pub(crate) const fn has_name_of(&self, other: &Self) -> bool {
        if self.name_len != other.name_len {
            return false;
        }
        let (name, other_name) = (self.line.as_bytes(), other.line.as_bytes());
        let mut at = 0;
        while at < self.name_len as usize {
            if name[at] != other_name[at] {
                return false;
            }
            at += 1;
        }
        true
    }

    pub(crate) fn value(&self) -> &'static str {
        let start = usize::from(self.name_len) + 2;
        &self.line[start..start + usize::from(self.value_len)]
    }

    /// Asserts that the recorded properties of name and value are correct.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        assert_eq!(NameKind::of(self.name().as_bytes()), self.kind, "{self:?}");
        let is_well_formed = self.kind.takes(self.value().as_bytes());
        // An entry without a value exists for its name; no encoder may refer to the whole entry.
        assert_eq!(is_well_formed, self.is_well_formed(), "{self:?}");
    }
}

/// The index of the first entry with this name, and that of the entry with this value too. Linear:
/// used when blocks are rendered ahead of time, and for the few fields of unusual responses.
pub(crate) fn find(
    entries: &[StaticEntry],
    name: &str,
    value: &[u8],
) -> (Option<usize>, Option<usize>) {
    let mut by_name = None;
    for (position, entry) in entries.iter().enumerate() {
        let is_as_long = usize::from(entry.name_len) == name.len();
        if is_as_long && entry.name() == name {
            by_name = by_name.or(Some(position));
            if entry.value().as_bytes() == value {
                return (by_name, Some(position));
            }
        }
    }
    (by_name, None)
}

/// The entries of a table: name, value and [`NameKind`] of each.
macro_rules! entries {
    ($($name:literal $value:literal $kind:expr;)*) => {{
        use $crate::binary::line::NameKind::*;
        use $crate::semantics::fields::KnownField::*;
        [$($crate::binary::static_table::StaticEntry {
            line: concat!($name, ": ", $value, "\r\n"),
            name_len: $name.len() as u8,
            value_len: $value.len() as u8,
            kind: $kind,
        },)*]
    }};
}

pub(crate) use entries;
