//! Sets of addresses: networks in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The addresses that start with a prefix: `192.0.2.0/24`, `2001:db8::/32`, or a single address.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Network {
    /// An IPv4 address as an IPv4-mapped one.
    first: u128,
    /// Of the 128 bits.
    prefix_len: u32,
}

/// The number of bits in front of a mapped IPv4 address.
const MAPPED_LEN: u32 = 96;

impl Network {
    /// Parses networks: one in CIDR notation, or `loopback`, or `private` for the addresses of
    /// private networks (RFC 1918, RFC 4193).
    ///
    /// # Errors
    /// The cause, in words.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let named: &[&str] = match text {
            "loopback" => &["127.0.0.0/8", "::1"],
            "private" => &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"],
            one => return Self::parse_one(one).map(|network| vec![network]),
        };
        named.iter().copied().map(Self::parse_one).collect()
    }

    fn parse_one(text: &str) -> Result<Self, String> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| {
            format!("'{text}' is not a network such as 192.0.2.0/24, loopback or private")
        })?;
        let (before, most) = match address {
            IpAddr::V4(_) => (MAPPED_LEN, 32),
            IpAddr::V6(_) => (0, 128),
        };
        let is_number = |len: &&str| len.bytes().all(|byte| byte.is_ascii_digit());
        let len = match len {
            None => most,
            Some(len) => Some(len)
                .filter(is_number)
                .and_then(|len| len.parse().ok())
                .filter(|len| *len <= most)
                .ok_or_else(|| format!("a prefix length from 0 to {most} is needed in '{text}'"))?,
        };
        let bits = number(address);
        let network = Self {
            first: bits & mask(before + len),
            prefix_len: before + len,
        };
        match network.first == bits {
            true => Ok(network),
            false => Err(format!(
                "'{text}' is an address within {network}: write that"
            )),
        }
    }

    /// The length of the prefix; the longer, the more specific among networks of one family.
    pub(crate) fn prefix_len(&self) -> u32 {
        self.prefix_len
    }

    /// Whether it has every address of a family: `0.0.0.0/0`, `::/0`.
    #[must_use]
    pub fn is_everybody(&self) -> bool {
        self.prefix_len == 0 || (self.prefix_len == MAPPED_LEN && is_mapped(self.first))
    }

    /// Whether it contains an address. IPv4-mapped addresses are IPv4 addresses.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = number(address);
        let is_of_family = self.prefix_len >= MAPPED_LEN || !is_mapped(bits);
        is_of_family && bits & mask(self.prefix_len) == self.first
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.first);
        match address.to_ipv4_mapped() {
            Some(address) if self.prefix_len >= MAPPED_LEN => {
                write!(f, "{address}/{}", self.prefix_len - MAPPED_LEN)
            }
            _ => write!(f, "{address}/{}", self.prefix_len),
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The 128 bits of an address.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Whether these are the bits of an IPv4 address.
pub(crate) fn is_mapped(bits: u128) -> bool {
    bits >> 32 == 0xffff
}

/// The first `len` bits.
fn mask(len: u32) -> u128 {
    !u128::MAX.checked_shr(len).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_everybody_are_known() {
        let check = |text: &str, expect: bool| {
            let networks = Network::parse(text).expect(text);
            assert_eq!(networks.iter().any(Network::is_everybody), expect, "{text}");
        };
        check("0.0.0.0/0", true);
        check("::/0", true);
        check("::ffff:0:0/96", true);
        check("0.0.0.0/1", false);
        check("64:ff9b::/96", false);
        check("private", false);
    }

    #[test]
    fn networks_contain_their_addresses() {
        let check = |text: &str, inside: &[&str], outside: &[&str]| {
            let networks = Network::parse(text).expect(text);
            let is_inside = |address: &&&str| {
                let address = address.parse().expect("an address");
                networks.iter().any(|network| network.contains(address))
            };
            assert_eq!(
                inside.iter().filter(is_inside).count(),
                inside.len(),
                "{text}"
            );
            assert_eq!(outside.iter().filter(is_inside).count(), 0, "{text}");
        };
        check(
            "192.0.2.0/24",
            &["192.0.2.0", "192.0.2.255", "::ffff:192.0.2.9"],
            &["192.0.3.0"],
        );
        check(
            "192.0.2.1",
            &["192.0.2.1"],
            &["192.0.2.0", "192.0.2.2", "::192.0.2.1"],
        );
        check(
            "0.0.0.0/0",
            &["0.0.0.0", "255.255.255.255"],
            &["::", "2001:db8::1"],
        );
        check(
            "::/0",
            &["::", "2001:db8::1"],
            &["192.0.2.1", "::ffff:192.0.2.1"],
        );
        check(
            "2001:db8::/33",
            &["2001:db8:7fff::1"],
            &["2001:db8:8000::", "192.0.2.1"],
        );
        check("::ffff:192.0.2.0/120", &["192.0.2.7"], &["192.0.3.7"]);
        check(
            "loopback",
            &["127.0.0.1", "127.9.9.9", "::1"],
            &["::2", "10.0.0.1"],
        );
        let private = ["10.255.0.1", "172.31.0.1", "192.168.1.1", "fd00::1"];
        check(
            "private",
            &private,
            &["172.32.0.1", "11.0.0.0", "fe80::1", "127.0.0.1"],
        );
    }

    #[test]
    fn what_is_no_network_is_refused() {
        let check = |text: &str, part: &str| {
            let cause = Network::parse(text).expect_err(text);
            assert!(cause.contains(part), "{text}: {cause}");
        };
        check("192.0.2.1/24", "within 192.0.2.0/24");
        check("2001:db8::1/64", "within 2001:db8::/64");
        check("192.0.2.0/33", "0 to 32");
        check("::/129", "0 to 128");
        check("192.0.2.0/", "prefix length");
        check("192.0.2.0/+8", "prefix length");
        check("192.0.2/24", "not a network");
        check("proxy.example", "not a network");
        check("", "not a network");
    }
}
