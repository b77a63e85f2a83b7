//! What trusted proxies say of a request's client: `Forwarded` (RFC 7239), or else `X-Forwarded-For`,
//! `-Proto` and `-Host`.
//!
//! Each proxy appends the address of its own client. The lists are read from the right, as long as
//! the address that they name is that of a trusted proxy, which has appended what comes before: the
//! client is the first one that is not trusted, and nothing further to the left is read, since
//! anyone may have written it.

use std::net::IpAddr;

use gannet_content::rules::pattern::Scheme;
use gannet_http::h1::is_authority;
use gannet_http::semantics::fields::Fields;

use crate::bounds::clients::HOPS_MAX;

/// What is known about a request's client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Forwarded<'a> {
    /// Its address, or that of the first trusted proxy known; `None` if none is named.
    pub(crate) client: Option<IpAddr>,
    /// A trusted proxy names its client in a way that cannot be read, or there are too many hops:
    /// the address is that of a proxy, and the client is known.
    pub(crate) is_hidden: bool,
    /// By which scheme it sent the request.
    pub(crate) scheme: Option<Scheme>,
    /// The authority that it asked.
    pub(crate) authority: Option<&'a [u8]>,
}

/// The two kinds of fields name different clients. A proxy that sets one kind may forward the other
/// as the client sent it, so neither can be trusted. The same goes for a `Forwarded` with a
/// quoted string that does not end: the client may have begun it, to swallow what its proxy adds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Conflict;

impl<'a> Forwarded<'a> {
    /// Reads the fields of a request by a trusted proxy.
    ///
    /// # Errors
    /// See [`Conflict`].
    pub(crate) fn read(
        fields: &Fields<'a>,
        is_trusted: impl Fn(IpAddr) -> bool,
    ) -> Result<Self, Conflict> {
        let mut standard = List::default();
        let (mut clients, mut schemes, mut hosts) =
            (List::default(), List::default(), List::default());
        for (name, value) in fields.iter() {
            // By length first: this is done for every line of every such request.
            let list = match name.len() {
                9 if name.eq_ignore_ascii_case(b"forwarded") => &mut standard,
                15 if name.eq_ignore_ascii_case(b"x-forwarded-for") => &mut clients,
                16 if name.eq_ignore_ascii_case(b"x-forwarded-host") => &mut hosts,
                17 if name.eq_ignore_ascii_case(b"x-forwarded-proto") => &mut schemes,
                _ => continue,
            };
            if name.len() > 9 {
                // These have no quoted strings.
                let elements = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                let elements = elements.filter(|element| !element.is_empty());
                elements.for_each(|element| list.push(element));
                continue;
            }
            if !ends_unquoted(value) {
                return Err(Conflict);
            }
            elements(value).for_each(|element| list.push(element));
        }
        let walk = clients.walk(&is_trusted);
        // A proxy either appends to these lists as well, or sets one value.
        let found = Self {
            client: walk.client,
            is_hidden: walk.is_hidden,
            scheme: schemes.of_hop(walk.hop_count).and_then(scheme),
            authority: hosts
                .of_hop(walk.hop_count)
                .filter(|host| is_authority(host)),
        };
        if standard.is_empty() {
            return Ok(found);
        }
        let described = standard.read_standard(&is_trusted);
        if clients.is_empty() {
            return Ok(described);
        }
        if described.client != found.client {
            return Err(Conflict);
        }
        // The client may have sent either kind, with its own address. What both say is not its work.
        Ok(Self {
            is_hidden: found.is_hidden || described.is_hidden,
            scheme: found.scheme.filter(|_| found.scheme == described.scheme),
            authority: found
                .authority
                .filter(|_| found.authority == described.authority),
            ..found
        })
    }
}

/// The elements of a list, the last [`HOPS_MAX`] of them.
#[derive(Default)]
struct List<'a> {
    elements: [&'a [u8]; HOPS_MAX],
    /// Of all elements.
    count: usize,
}

impl<'a> List<'a> {
    fn push(&mut self, element: &'a [u8]) {
        self.elements[self.count % HOPS_MAX] = element;
        self.count += 1;
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// From the right.
    fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let first = self.count.saturating_sub(HOPS_MAX);
        (first..self.count)
            .rev()
            .map(|index| self.elements[index % HOPS_MAX])
    }

    /// Whether some elements are not held.
    fn is_cut(&self) -> bool {
        self.count > HOPS_MAX
    }

    /// Looks for the client. What is malformed ends the walk.
    fn walk(&self, is_trusted: &impl Fn(IpAddr) -> bool) -> Walk {
        let mut walk = Walk::default();
        for element in self.iter() {
            let Some(address) = address(element) else {
                walk.is_hidden = true;
                return walk;
            };
            walk.client = Some(address);
            walk.hop_count += 1;
            if !is_trusted(address) {
                return walk;
            }
        }
        walk.is_hidden = self.is_cut();
        walk
    }

    /// The element for the hop with this number, counted from 1 at the right; if there are fewer,
    /// the leftmost.
    fn of_hop(&self, hop: usize) -> Option<&'a [u8]> {
        let known = self.count.min(HOPS_MAX);
        self.iter().nth(hop.min(known).saturating_sub(1))
    }

    /// The same for elements of `Forwarded`, each of which describes one hop as a whole.
    fn read_standard(&self, is_trusted: &impl Fn(IpAddr) -> bool) -> Forwarded<'a> {
        let mut found = Forwarded::default();
        for element in self.iter() {
            let Some(hop) = Hop::parse(element) else {
                found.is_hidden = true;
                return found;
            };
            found.scheme = hop.proto.and_then(scheme).or(found.scheme);
            let authority = hop.host.filter(|host| is_authority(host));
            found.authority = authority.or(found.authority);
            // A proxy may describe what it was asked without saying by whom.
            let Some(node) = hop.node else {
                return found;
            };
            let Some(address) = address(node) else {
                found.is_hidden = true;
                return found;
            };
            found.client = Some(address);
            if !is_trusted(address) {
                return found;
            }
        }
        found.is_hidden = self.is_cut();
        found
    }
}

/// What a list of addresses says.
#[derive(Default)]
struct Walk {
    /// The client, or the first trusted proxy that is known.
    client: Option<IpAddr>,
    /// The number of hops from here to it.
    hop_count: usize,
    /// See [`Forwarded::is_hidden`].
    is_hidden: bool,
}

/// An element of `Forwarded`.
#[derive(Default)]
struct Hop<'a> {
    node: Option<&'a [u8]>,
    proto: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

impl<'a> Hop<'a> {
    /// Parses pairs (RFC 7239 section 4); `None` if one is malformed or occurs twice.
    fn parse(element: &'a [u8]) -> Option<Self> {
        let mut hop = Self::default();
        for pair in split_unquoted(element, b';') {
            let pair = pair.trim_ascii();
            if pair.is_empty() {
                continue;
            }
            let at = pair.iter().position(|&byte| byte == b'=')?;
            let place = match &pair[..at] {
                name if name.eq_ignore_ascii_case(b"for") => &mut hop.node,
                name if name.eq_ignore_ascii_case(b"proto") => &mut hop.proto,
                name if name.eq_ignore_ascii_case(b"host") => &mut hop.host,
                _ => continue,
            };
            if place.replace(unquoted(&pair[at + 1..])?).is_some() {
                return None;
            }
        }
        Some(hop)
    }
}

/// The value of a token or a quoted string. None of ours needs an escape.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    let Some(rest) = value.strip_prefix(b"\"") else {
        return Some(value);
    };
    let inner = rest.strip_suffix(b"\"")?;
    (!inner.contains(&b'\\') && !inner.contains(&b'"')).then_some(inner)
}

/// The elements of a field's value (RFC 9110 section 5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let elements = split_unquoted(value, b',').map(<[u8]>::trim_ascii);
    elements.filter(|element| !element.is_empty())
}

/// Whether each quoted string of a value ends.
fn ends_unquoted(value: &[u8]) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for &byte in value {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    !is_quoted
}

/// Splits at each separator that is not in a quoted string.
fn split_unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    value.split(move |&byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        byte == separator && !is_quoted
    })
}

/// An address, with or without a port, which may be hidden (RFC 7239 section 6): `192.0.2.1`,
/// `192.0.2.1:80`, `192.0.2.1:_x`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`. `None` for
/// `unknown`, obfuscated and malformed ones.
fn address(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node).ok()?;
    let is_port = |port: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !port.is_empty() && port.bytes().all(is_allowed)
    };
    let address = match node.strip_prefix('[') {
        Some(rest) => {
            let (bare, after) = rest.split_once(']')?;
            let port = after.strip_prefix(':');
            if !(after.is_empty() || port.is_some_and(is_port)) {
                return None;
            }
            IpAddr::V6(bare.parse().ok()?)
        }
        None => match (node.parse(), node.split_once(':')) {
            (Ok(address), _) => address,
            (Err(_), Some((bare, port))) if is_port(port) => IpAddr::V4(bare.parse().ok()?),
            (Err(_), _) => return None,
        },
    };
    Some(address.to_canonical())
}

fn scheme(name: &[u8]) -> Option<Scheme> {
    match name {
        name if name.eq_ignore_ascii_case(b"https") => Some(Scheme::Https),
        name if name.eq_ignore_ascii_case(b"http") => Some(Scheme::Http),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads fields behind proxies in 10.0.0.0/8. `expect`: client, scheme and authority.
    fn check(section: &str, expect: Result<(&str, &str, &str), Conflict>) {
        let section = section.replace('\n', "\r\n");
        let fields = Fields::parse(section.as_bytes()).expect("fields");
        let is_trusted = |address: IpAddr| address.to_string().starts_with("10.");
        let found = Forwarded::read(&fields, is_trusted).map(|found| {
            let client = found.client.map(|address| address.to_string());
            let scheme = found
                .scheme
                .map(|scheme| format!("{scheme:?}").to_lowercase());
            let authority = found.authority.map(|host| host.escape_ascii().to_string());
            [client, scheme, authority].map(Option::unwrap_or_default)
        });
        let expect = expect.map(|(client, scheme, host)| [client, scheme, host].map(str::to_owned));
        assert_eq!(found, expect, "{section}");
    }

    #[test]
    fn the_client_is_the_rightmost_one_that_is_not_trusted() {
        let check = |list: &str, client: &str| {
            check(&format!("x-forwarded-for: {list}\n"), Ok((client, "", "")));
            let hops: Vec<_> = list.split(", ").map(|it| format!("For=\"{it}\"")).collect();
            check(
                &format!("forwarded: {}\n", hops.join(",  ")),
                Ok((client, "", "")),
            );
        };
        check("203.0.113.7", "203.0.113.7");
        check("1.2.3.4, 203.0.113.7", "203.0.113.7");
        check("1.2.3.4, 203.0.113.7, 10.0.0.1, 10.9.9.9", "203.0.113.7");
        check("203.0.113.7:56324, 10.0.0.1:80", "203.0.113.7");
        check("[2001:db8::7]:56324, 10.0.0.1", "2001:db8::7");
        check("[2001:db8::7]", "2001:db8::7");
        check("::ffff:203.0.113.7", "203.0.113.7");
        // A chain of trusted ones alone: the first of them.
        check("10.0.0.2, 10.0.0.1", "10.0.0.2");
    }

    #[test]
    fn what_is_malformed_ends_the_walk() {
        let check = |list: &str, client: &str| {
            check(&format!("x-forwarded-for: {list}\n"), Ok((client, "", "")));
        };
        check("203.0.113.7, unknown", "");
        check("203.0.113.7, unknown, 10.0.0.1", "10.0.0.1");
        check("203.0.113.7, _hidden, 10.0.0.1", "10.0.0.1");
        check("203.0.113.7, 256.0.0.1, 10.0.0.1", "10.0.0.1");
        check("203.0.113.7, 10.0.0.1 10.0.0.2", "");
        // A client has no way to keep its proxy's element from being one.
        check("\", 203.0.113.7", "203.0.113.7");
        check("203.0.113.7, \", 10.0.0.1", "10.0.0.1");
        check("for=\"x, 203.0.113.7", "203.0.113.7");
        check("203.0.113.7:_p", "203.0.113.7");
        check("[2001:db8::7]:_p", "2001:db8::7");
        check("203.0.113.7:", "");
        check("[2001:db8::7]x", "");
        check("", "");
    }

    #[test]
    fn quoted_strings_swallow_nothing() {
        for begun in ["for=\"x", "\"", "for=\"x\\", "for=\"\\\""] {
            for end in [
                "for=203.0.113.7",
                "for=\"[2001:db8::7]\"",
                "for=\"a\";by=\"b\"",
            ] {
                check(&format!("forwarded: {begun}, {end}\n"), Err(Conflict));
            }
        }
        let whole = "forwarded: for=\"x\\\"\", for=203.0.113.7\n";
        check(whole, Ok(("203.0.113.7", "", "")));
    }

    #[test]
    fn a_client_that_is_not_named_is_hidden() {
        let check = |section: &str, expect: bool| {
            let section = section.replace('\n', "\r\n");
            let fields = Fields::parse(section.as_bytes()).expect("fields");
            let is_trusted = |address: IpAddr| address.to_string().starts_with("10.");
            let found = Forwarded::read(&fields, is_trusted).expect("no conflict");
            assert_eq!(found.is_hidden, expect, "{section}");
        };
        for (list, expect) in [
            ("203.0.113.7", false),
            ("10.0.0.2, 10.0.0.1", false),
            ("unknown, 203.0.113.7", false),
            ("unknown", true),
            ("203.0.113.7, unknown, 10.0.0.1", true),
            ("fe80::1%eth0", true),
            ("_abc", true),
        ] {
            check(&format!("x-forwarded-for: {list}\n"), expect);
            let hops: Vec<_> = list.split(", ").map(|it| format!("for=\"{it}\"")).collect();
            check(&format!("forwarded: {}\n", hops.join(", ")), expect);
        }
        check("forwarded: for=x;for=y\n", true);
        check("forwarded: proto=https\n", false);
        check("a: b\n", false);
        let proxies = ["10.0.0.1"; HOPS_MAX + 1].join(", ");
        check(&format!("x-forwarded-for: {proxies}\n"), true);
    }

    #[test]
    fn a_proxy_describes_its_own_hop() {
        let list = "for=1.2.3.4;proto=http;host=evil, for=203.0.113.7;proto=https;host=a.example, \
                    for=10.0.0.1;proto=http";
        let expect = Ok(("203.0.113.7", "https", "a.example"));
        check(&format!("forwarded: {list}\n"), expect);
        let lines = list.replace(", ", "\nforwarded: ");
        check(&format!("forwarded: {lines}\n"), expect);
        // The one next to the client does not say, the next one does.
        let list = "for=203.0.113.7, for=10.0.0.1;PROTO=\"HTTPS\";host=\"a.example:80\"";
        check(
            &format!("Forwarded: {list}\n"),
            Ok(("203.0.113.7", "https", "a.example:80")),
        );
        check("forwarded: for=203.0.113.7;for=1.2.3.4\n", Ok(("", "", "")));
        check("forwarded: for=203.0.113.7;by\n", Ok(("", "", "")));
        check(
            "forwarded: proto=https;secret=\"a;b,c=\\\"\"\n",
            Ok(("", "https", "")),
        );
        check("forwarded: proto=ftp;host=\"a b\"\n", Ok(("", "", "")));
    }

    #[test]
    fn scheme_and_host_may_be_lists_or_single_values() {
        let with = |clients: &str, schemes: &str, expect| {
            check(
                &format!("x-forwarded-for: {clients}\nx-forwarded-proto: {schemes}\n"),
                Ok((clients.split(',').next().unwrap_or_default(), expect, "")),
            );
        };
        with("203.0.113.7", "https", "https");
        with("203.0.113.7, 10.0.0.1", "https", "https");
        with("203.0.113.7, 10.0.0.1", "https, http", "https");
        // The client itself has sent the first one.
        with("203.0.113.7", "https, http", "http");
        check(
            "x-forwarded-host: a.example\nx-forwarded-proto: HTTPS\n",
            Ok(("", "https", "a.example")),
        );
        check("x-forwarded-host: a.example/b\n", Ok(("", "", "")));
    }

    #[test]
    fn where_both_kinds_are_sent_they_have_to_agree() {
        let both = |standard: &str, others: &str, expect| {
            let clients = "x-forwarded-for: 203.0.113.7\n";
            check(&format!("forwarded: {standard}\n{clients}{others}"), expect);
        };
        both(
            "for=203.0.113.7;proto=https;host=a.example",
            "x-forwarded-proto: https\nx-forwarded-host: a.example\n",
            Ok(("203.0.113.7", "https", "a.example")),
        );
        // Either may be the client's own.
        both(
            "for=203.0.113.7;proto=http;host=a.example",
            "x-forwarded-proto: https\n",
            Ok(("203.0.113.7", "", "")),
        );
        both(
            "for=203.0.113.7",
            "x-forwarded-proto: https\nx-forwarded-host: a.example\n",
            Ok(("203.0.113.7", "", "")),
        );
        check(
            "forwarded: for=203.0.113.7\nx-forwarded-for: 203.0.113.8\n",
            Err(Conflict),
        );
        check(
            "forwarded: proto=https\nx-forwarded-for: 203.0.113.8\n",
            Err(Conflict),
        );
    }

    /// Elements beyond the bound are not read, even if all behind them are trusted.
    #[test]
    fn a_chain_has_a_bound() {
        let list = |hops: usize| {
            let proxies = ", 10.0.0.1".repeat(hops);
            format!("x-forwarded-for: 203.0.113.7{proxies}\n")
        };
        check(&list(HOPS_MAX - 1), Ok(("203.0.113.7", "", "")));
        check(&list(HOPS_MAX), Ok(("10.0.0.1", "", "")));
        check(&list(900), Ok(("10.0.0.1", "", "")));
    }
}
