//! Which hosts a request may name to get what is for the author of the site alone.
//!
//! A page of another site can lead its own name to this machine (DNS rebinding), and then read what
//! is answered under that name. It cannot lead others' names here, nor addresses.

use std::net::IpAddr;

/// Whether an authority names this machine in a way that no other site can: by an address, as
/// `localhost` or a name below it, or as `own`, the machine's name, if there is one.
pub(super) fn is_own(authority: &[u8], own: Option<&str>) -> bool {
    let Ok(authority) = std::str::from_utf8(authority) else {
        return false;
    };
    let host = match authority.strip_prefix('[') {
        Some(rest) => {
            let address = rest.split(']').next().unwrap_or_default();
            return address.parse::<IpAddr>().is_ok_and(|it| it.is_ipv6());
        }
        None => authority.split(':').next().unwrap_or_default(),
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_machine = |own: &str| {
        let own = own.to_ascii_lowercase();
        host == own || host.strip_suffix(".local") == Some(&own)
    };
    host.parse::<IpAddr>().is_ok()
        || host == "localhost"
        || host.ends_with(".localhost")
        || own.filter(|it| !it.is_empty()).is_some_and(is_machine)
}

/// Whether a request with this `Origin` comes from a page that was loaded from this authority.
pub(super) fn is_same_origin(origin: &[u8], authority: &[u8]) -> bool {
    let at = origin.windows(3).position(|it| it == b"://");
    at.is_some_and(|at| origin[at + 3..].eq_ignore_ascii_case(authority))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_compared_with_the_host() {
        let check = |origin: &[u8], expect| {
            assert_eq!(is_same_origin(origin, b"Localhost:8080"), expect);
        };
        check(b"http://localhost:8080", true);
        // A proxy that speaks TLS is in front.
        check(b"https://localhost:8080", true);
        check(b"http://localhost", false);
        check(b"http://localhost:8081", false);
        check(b"http://example.org", false);
        check(b"null", false);
        check(b"", false);
    }

    #[test]
    fn names_of_other_sites_are_not_own() {
        let check = |authority: &str, expect| {
            assert_eq!(is_own(authority.as_bytes(), None), expect, "{authority}");
        };
        check("localhost:8080", true);
        check("LOCALHOST.", true);
        check("app.localhost:8080", true);
        check("127.0.0.1", true);
        check("[::1]:8080", true);
        check("192.168.1.5:8080", true);
        check("example.org:8080", false);
        check("localhost.example.org", false);
        check("notlocalhost", false);
        check("127.0.0.1.example.org", false);
        check("[example.org]", false);
        check("", false);
        check("laptop:8080", false);
        assert!(is_own(b"laptop.local:8080", Some("Laptop")));
        assert!(is_own(b"laptop", Some("laptop")));
        assert!(!is_own(b"laptop.example.org", Some("laptop")));
        assert!(!is_own(b"", Some("")));
    }
}
