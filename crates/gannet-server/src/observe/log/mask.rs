//! Addresses of clients without what distinguishes persons.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A client's name without its port and without the last 8 bits of an IPv4 address or the last 80 bits
/// of an IPv6 address. Names without an address stay.
pub(super) fn masked(peer: &str) -> Cow<'_, str> {
    let address = peer.parse().ok();
    let address = address.or_else(|| Some(peer.parse::<SocketAddr>().ok()?.ip()));
    match address.map(|address: IpAddr| address.to_canonical()) {
        Some(IpAddr::V4(address)) => {
            let network = Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8));
            network.to_string().into()
        }
        Some(IpAddr::V6(address)) => {
            // Those of 6to4 contain an IPv4 address (RFC 3056 section 2).
            let host_bits = match address.segments()[0] {
                0x2002 => 88,
                _ => 80,
            };
            let network = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << host_bits));
            network.to_string().into()
        }
        None if ["unix", "-"].contains(&peer) => peer.into(),
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bit_of_a_host_is_left() {
        for (peer, expect) in [
            ("192.0.2.255:443", "192.0.2.0"),
            ("192.0.2.1", "192.0.2.0"),
            ("[::ffff:192.0.2.1]:443", "192.0.2.0"),
            ("[2001:db8:abcd:1234:5:6:7:8]:443", "2001:db8:abcd::"),
            ("2001:db8:abcd:1234:5:6:7:8", "2001:db8:abcd::"),
            ("2002:cb00:714d:1::1", "2002:cb00:7100::"),
            ("[fe80::1%2]:80", "fe80::"),
            ("[::1]:80", "::"),
            ("unix", "unix"),
            ("-", "-"),
            ("192.0.2.1:443 x", "-"),
        ] {
            assert_eq!(masked(peer), expect, "{peer}");
        }
    }
}
