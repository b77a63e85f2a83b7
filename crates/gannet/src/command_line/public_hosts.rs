//! Hosts for which no public authority issues certificates.

use std::net::IpAddr;

/// Names under these have no owner: RFC 2606, RFC 6761, RFC 6762, RFC 7686, RFC 8375, and `internal`, which
/// ICANN has reserved. `onion` names have owners, but no address at which control is proved.
const RESERVED: [&str; 9] = [
    "example",
    "home.arpa",
    "internal",
    "invalid",
    "lan",
    "local",
    "localhost",
    "onion",
    "test",
];

/// Makes sure that all are public: names in a public domain, and addresses of the internet.
///
/// # Errors
/// Why one is not.
pub fn check_public(hosts: &[String]) -> Result<(), String> {
    hosts.iter().try_for_each(|host| match private(host) {
        None => Ok(()),
        Some(why) => Err(format!("no public authority issues for '{host}': {why}")),
    })
}

fn private(host: &str) -> Option<String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        let is_private = match address {
            IpAddr::V4(address) => {
                address.is_loopback()
                    || address.is_private()
                    || address.is_link_local()
                    || address.is_unspecified()
            }
            IpAddr::V6(address) => {
                address.is_loopback()
                    || address.is_unique_local()
                    || address.is_unicast_link_local()
                    || address.is_unspecified()
            }
        };
        return is_private.then(|| "it is not an address of the internet".into());
    }
    let is_under = |parent: &&&str| {
        let name = host.strip_suffix(**parent);
        name.is_some_and(|name| name.is_empty() || name.ends_with('.'))
    };
    match RESERVED.iter().find(is_under) {
        Some(parent) => Some(format!("'{parent}' is reserved for private use")),
        None => (!host.contains('.')).then(|| "it has no dot".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_nobody_are_refused() {
        let check = |host: &str| check_public(&[host.to_owned()]);
        for host in [
            "example.org",
            "www.example.com",
            "mylocalhost.net",
            "test.de",
            "8.8.8.8",
            "2600::1",
        ] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for (host, why) in [
            ("localhost", "'localhost' is reserved"),
            ("www.localhost", "'localhost' is reserved"),
            ("printer.local", "'local' is reserved"),
            ("db.internal", "'internal' is reserved"),
            ("nas.home.arpa", "'home.arpa' is reserved"),
            ("a.test", "'test' is reserved"),
            ("site.example", "'example' is reserved"),
            ("a.invalid", "'invalid' is reserved"),
            ("a.onion", "'onion' is reserved"),
            ("web", "it has no dot"),
            ("127.0.0.1", "not an address of the internet"),
            ("192.168.1.1", "not an address of the internet"),
            ("169.254.0.1", "not an address of the internet"),
            ("0.0.0.0", "not an address of the internet"),
            ("::1", "not an address of the internet"),
            ("::", "not an address of the internet"),
            ("fd00::1", "not an address of the internet"),
            ("fe80::1", "not an address of the internet"),
        ] {
            let error = check(host).expect_err(host);
            assert!(error.contains(why), "{error}");
        }
    }
}
