//! The record of the DNS that tells browsers of HTTP/3 before their first connection.

use std::net::IpAddr;

/// The HTTPS record (RFC 9460) for URLs with this host and port, as zone files have it, where HTTP/3 is
/// spoken at the port `announced`; `None` for what has no name in the DNS that others could ask for.
///
/// URLs with another port than 443 are asked for under a name of their own (sections 2.3 and 9.1). Where
/// HTTP/3 is spoken at another port than theirs, the record is about HTTP/3 alone, as the others may be
/// spoken at theirs alone (section 7.1.1).
#[must_use]
pub(crate) fn https_record(host: &str, port: u16, announced: u16) -> Option<String> {
    let host = host.trim_end_matches('.');
    let is_name = host.contains('.') && !host.contains(['*', ':']);
    if !is_name || host.parse::<IpAddr>().is_ok() {
        return None;
    }
    let (owner, target) = match port {
        443 => (format!("{host}."), ".".to_owned()),
        _ => (format!("_{port}._https.{host}."), format!("{host}.")),
    };
    let versions = match port == announced {
        true => "alpn=\"h3,h2,http/1.1\"",
        false => "alpn=\"h3\" no-default-alpn",
    };
    let at = match (port, announced) {
        (443, 443) => String::new(),
        _ => format!(" port={announced}"),
    };
    Some(format!("{owner} 3600 IN HTTPS 1 {target} {versions}{at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_for_names() {
        let record =
            |host, port, announced| https_record(host, port, announced).unwrap_or_default();
        assert_eq!(
            record("example.org", 443, 443),
            "example.org. 3600 IN HTTPS 1 . alpn=\"h3,h2,http/1.1\""
        );
        assert_eq!(
            record("example.org.", 8443, 8443),
            "_8443._https.example.org. 3600 IN HTTPS 1 example.org. alpn=\"h3,h2,http/1.1\" port=8443"
        );
        // The owner is the URL's; the port is that of HTTP/3.
        assert_eq!(
            record("example.org", 8443, 443),
            "_8443._https.example.org. 3600 IN HTTPS 1 example.org. alpn=\"h3\" no-default-alpn port=443"
        );
        assert_eq!(
            record("example.org", 443, 8443),
            "example.org. 3600 IN HTTPS 1 . alpn=\"h3\" no-default-alpn port=8443"
        );
        for none in ["localhost", "*.example.org", "192.0.2.1", "2001:db8::1", ""] {
            assert_eq!(https_record(none, 443, 443), None, "{none}");
        }
    }
}
