//! The names of virtual hosts: one byte of length before each, in ascending order.

use crate::error::Rule;
use crate::limits::{HOST_COUNT_MAX, HOST_LEN_MAX};

/// The names in a section, in their order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    rest: &'a [u8],
}

impl<'a> Names<'a> {
    pub(crate) fn new(section: &'a [u8]) -> Self {
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

/// Whether this is a host name as archives have them: lower-case letters, digits, hyphens and
/// underscores in labels with dots between (RFC 1123 section 2.1, and the underscore that is in
/// use), no port, no dot at an end.
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

/// Counts the names of a section; else the position of the first that is wrong.
pub(crate) fn check(section: &[u8]) -> Result<u16, (u64, Rule)> {
    let mut names = Names::new(section);
    let mut count: u16 = 0;
    let mut previous: &[u8] = b"";
    for name in names.by_ref() {
        let refuse = |rule| Err((u64::from(count), rule));
        if !is_host_name(name) {
            return refuse(Rule::Value);
        }
        if name <= previous {
            return refuse(Rule::Order);
        }
        if count == HOST_COUNT_MAX {
            return refuse(Rule::Limit);
        }
        previous = name;
        count += 1;
    }
    if !names.rest.is_empty() || count == 0 {
        return Err((u64::from(count), Rule::SectionLen));
    }
    Ok(count)
}

/// The bytes of the section; nothing without names.
pub(crate) fn render<'n>(names: impl IntoIterator<Item = &'n [u8]>) -> Result<Vec<u8>, Rule> {
    let mut bytes = Vec::new();
    for name in names {
        bytes.push(u8::try_from(name.len()).map_err(|_| Rule::Limit)?);
        bytes.extend_from_slice(name);
    }
    Ok(bytes)
}

/// The rules of one virtual host, as they are compiled.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HostRules<'a> {
    /// Its redirects; empty for none.
    pub redirects: &'a [u8],
    /// Its fields; empty for none.
    pub fields: &'a [u8],
}

/// The rules in a section, with the numbers of their hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RulesByHost<'a> {
    rest: &'a [u8],
}

impl<'a> RulesByHost<'a> {
    pub(crate) fn new(section: &'a [u8]) -> Self {
        Self { rest: section }
    }
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

/// Bytes with their length in four bytes before them, and what follows.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// Checks a section of rules by host: hosts ascend and are there, and nothing is left; else the
/// position of what is wrong.
pub(crate) fn check_rules(section: &[u8], host_count: u16) -> Result<(), (u64, Rule)> {
    let mut rules = RulesByHost::new(section);
    let mut previous = None;
    let mut index = 0;
    for (host, _) in rules.by_ref() {
        if host > host_count {
            return Err((index, Rule::Value));
        }
        if previous >= Some(host) {
            return Err((index, Rule::Order));
        }
        previous = Some(host);
        index += 1;
    }
    match rules.rest.is_empty() {
        true => Ok(()),
        false => Err((index, Rule::SectionLen)),
    }
}

/// The bytes of the section; nothing without rules.
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
        let check_names = |names: &[&str], expect: Result<u16, (u64, Rule)>| {
            let bytes = render(names.iter().map(|name| name.as_bytes())).expect("short names");
            assert_eq!(check(&bytes), expect, "{names:?}");
            let read: Vec<_> = Names::new(&bytes).map(<[u8]>::to_vec).collect();
            let written: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            assert_eq!(read, written);
        };
        check_names(&["a.example", "b.example"], Ok(2));
        check_names(&["_dmarc.a-b.example"], Ok(1));
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
        assert_eq!(check_rules(&bytes, 2), Ok(()));
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
