//! The names of virtual hosts, in ascending order, each preceded by one byte of length.
//!
//! Items of variable length cannot be found by their number: checking a section records where each
//! name and each host's rules begin, so that a lookup among very many hosts is a binary search, not
//! a walk.

use std::cmp::Ordering;

use crate::error::Rule;
use crate::limits::{HOST_COUNT_MAX, HOST_LEN_MAX};

/// The names in a section, in their order.
#[derive(Clone, Copy, Debug)]
struct Names<'a> {
    rest: &'a [u8],
}

/// The names of a checked section, by number and by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostNames<'a> {
    pub(crate) section: &'a [u8],
    /// Where each begins, as [`check`] returned it.
    pub(crate) starts: &'a [u32],
}

impl<'a> HostNames<'a> {
    /// The name at a 0-based index.
    pub(crate) fn at(self, index: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(*self.starts.get(index)?).ok()?;
        Names::new(self.section.get(start..)?).next()
    }

    /// The index of a name.
    pub(crate) fn index_of(self, name: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.starts.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(middle)?.cmp(name) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Some(middle),
                Ordering::Greater => high = middle,
            }
        }
        None
    }
}

impl<'a> Names<'a> {
    fn new(section: &'a [u8]) -> Self {
        Self { rest: section }
    }
}

impl<'a> Iterator for Names<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.rest.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        self.rest = rest;
        Some(name)
    }
}

/// Whether this is a host name as archives store them: lower-case letters, digits, hyphens and
/// underscores in labels separated by dots (RFC 1123 section 2.1, plus the underscore, which is in
/// use), no port, no leading or trailing dot.
#[must_use]
pub fn is_host_name(name: &[u8]) -> bool {
    let is_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &[u8]| {
        !label.is_empty()
            && label
                .iter()
                .all(|b| is_byte(*b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= HOST_LEN_MAX && name.split(|byte| *byte == b'.').all(is_label)
}

/// Returns where each name of a section begins, or the position of the first invalid one.
pub(crate) fn check(section: &[u8]) -> Result<Vec<u32>, (u64, Rule)> {
    let mut names = Names::new(section);
    let mut starts = Vec::new();
    let mut start: u32 = 0;
    let mut previous: &[u8] = b"";
    for name in names.by_ref() {
        let refuse = |rule| Err((starts.len() as u64, rule));
        if !is_host_name(name) {
            return refuse(Rule::Value);
        }
        if name <= previous {
            return refuse(Rule::Order);
        }
        if starts.len() == usize::from(HOST_COUNT_MAX) {
            return refuse(Rule::Limit);
        }
        previous = name;
        starts.push(start);
        start += 1 + name.len() as u32;
    }
    if !names.rest.is_empty() || starts.is_empty() {
        return Err((starts.len() as u64, Rule::SectionLen));
    }
    Ok(starts)
}

/// The bytes of the section; empty without names.
pub(crate) fn render<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Result<Vec<u8>, Rule> {
    let mut bytes = Vec::new();
    for name in names {
        bytes.push(u8::try_from(name.len()).map_err(|_| Rule::Limit)?);
        bytes.extend_from_slice(name);
    }
    Ok(bytes)
}

/// The compiled rules of one virtual host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HostRules<'a> {
    /// Its redirects; empty for none.
    pub redirects: &'a [u8],
    /// Its fields; empty for none.
    pub fields: &'a [u8],
}

/// The rules in a section, with the numbers of their hosts.
#[derive(Clone, Copy, Debug)]
struct RulesByHost<'a> {
    rest: &'a [u8],
}

impl<'a> RulesByHost<'a> {
    fn new(section: &'a [u8]) -> Self {
        Self { rest: section }
    }
}

/// The rules of a host in a checked section; `starts` is the result of [`check_rules`].
pub(crate) fn rules_of<'a>(section: &'a [u8], starts: &[(u16, usize)], host: u16) -> HostRules<'a> {
    let found = starts.binary_search_by_key(&host, |(number, _)| *number);
    let found = found.ok().and_then(|index| section.get(starts[index].1..));
    let own = found.and_then(|rest| RulesByHost::new(rest).next());
    own.map_or_else(HostRules::default, |(_, rules)| rules)
}

impl<'a> Iterator for RulesByHost<'a> {
    type Item = (u16, HostRules<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (host, rest) = self.rest.split_first_chunk::<2>()?;
        let (redirects, rest) = sized(rest)?;
        let (fields, rest) = sized(rest)?;
        self.rest = rest;
        let rules = HostRules { redirects, fields };
        Some((u16::from_le_bytes(*host), rules))
    }
}

/// Bytes preceded by their length in four bytes, and the rest.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// Checks a section of rules by host: hosts are ascending and exist, and no bytes are left. Returns
/// each host with where its rules begin, or the position of an error.
pub(crate) fn check_rules(
    section: &[u8],
    host_count: usize,
) -> Result<Vec<(u16, usize)>, (u64, Rule)> {
    let mut rules = RulesByHost::new(section);
    let mut starts: Vec<(u16, usize)> = Vec::new();
    let mut start = 0;
    while let Some((host, _)) = rules.next() {
        let refuse = |rule| Err((starts.len() as u64, rule));
        if usize::from(host) > host_count {
            return refuse(Rule::Value);
        }
        if starts.last().is_some_and(|(previous, _)| *previous >= host) {
            return refuse(Rule::Order);
        }
        starts.push((host, start));
        start = section.len() - rules.rest.len();
    }
    match rules.rest.is_empty() {
        true => Ok(starts),
        false => Err((starts.len() as u64, Rule::SectionLen)),
    }
}

/// The bytes of the section; empty without rules.
pub(crate) fn render_rules<'r>(
    rules: impl IntoIterator<Item = (u16, HostRules<'r>)>,
) -> Result<Vec<u8>, Rule> {
    let mut bytes = Vec::new();
    for (host, HostRules { redirects, fields }) in rules {
        bytes.extend_from_slice(&host.to_le_bytes());
        for part in [redirects, fields] {
            let len = u32::try_from(part.len()).map_err(|_| Rule::Limit)?;
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_order_and_what_is_none_is_refused() {
        let check_names = |names: &[&str], expect: Result<usize, (u64, Rule)>| {
            let bytes = render(names.iter().map(|name| name.as_bytes())).expect("short names");
            let starts = check(&bytes);
            assert_eq!(
                starts.as_ref().map(Vec::len),
                expect.as_ref().copied(),
                "{names:?}"
            );
            let Ok(starts) = starts else { return };
            let host_names = HostNames {
                section: &bytes,
                starts: &starts,
            };
            for (index, name) in names.iter().enumerate() {
                assert_eq!(host_names.at(index), Some(name.as_bytes()));
                assert_eq!(host_names.index_of(name.as_bytes()), Some(index));
                assert_eq!(host_names.index_of(format!("{name}0").as_bytes()), None);
            }
            assert_eq!(host_names.at(names.len()), None);
            assert_eq!(host_names.index_of(b""), None);
        };
        check_names(&["a.example", "b.example"], Ok(2));
        check_names(&["_dmarc.a-b.example"], Ok(1));
        check_names(&["a", "a.b", "a.c", "aa", "b", "c.a", "d"], Ok(7));
        check_names(&["b.example", "a.example"], Err((1, Rule::Order)));
        check_names(&["a", "a"], Err((1, Rule::Order)));
        check_names(&["A.example"], Err((0, Rule::Value)));
        check_names(&["a..example"], Err((0, Rule::Value)));
        check_names(&["a.example."], Err((0, Rule::Value)));
        check_names(&["a:80"], Err((0, Rule::Value)));
        check_names(&[], Err((0, Rule::SectionLen)));
        assert_eq!(check(b"\x05abc"), Err((0, Rule::SectionLen)));
        assert_eq!(check(b"\x00"), Err((0, Rule::Value)));
    }

    #[test]
    fn rules_come_back_by_host_and_what_is_cut_or_out_of_order_is_refused() {
        let rules = |redirects, fields| HostRules { redirects, fields };
        let list = [
            (0, rules(b"any".as_slice(), b"".as_slice())),
            (2, rules(b"", b"two")),
        ];
        let bytes = render_rules(list).expect("short");
        assert_eq!(RulesByHost::new(&bytes).collect::<Vec<_>>(), list);
        let starts = check_rules(&bytes, 2).expect("in order");
        for (host, own) in [(1, HostRules::default()), (3, HostRules::default())] {
            assert_eq!(rules_of(&bytes, &starts, host), own);
        }
        for (host, own) in list {
            assert_eq!(rules_of(&bytes, &starts, host), own);
        }
        assert_eq!(check_rules(&bytes, 1), Err((1, Rule::Value)));
        for len in (0..bytes.len()).filter(|len| ![0, 13].contains(len)) {
            let refused = check_rules(&bytes[..len], 2);
            assert!(matches!(refused, Err((_, Rule::SectionLen))), "{len}");
        }
        let reversed = render_rules([list[1], list[0]]).expect("short");
        assert_eq!(check_rules(&reversed, 2), Err((1, Rule::Order)));
        let huge = [&[0, 0][..], &[0xff; 4], b"any"].concat();
        assert_eq!(check_rules(&huge, 2), Err((0, Rule::SectionLen)));
    }
}
