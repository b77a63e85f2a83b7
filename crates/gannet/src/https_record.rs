//! The record of the DNS that tells browsers of HTTP/3 before their first connection.

use std::net::IpAddr;

/// The HTTPS record (RFC 9460) of a host whose port speaks HTTP/3, as zone files have it; `None` for
/// what has no name in the DNS that others could ask for.
///
/// Another port than 443 is asked for under a name of its own (section 9.1), and said once more for
/// origins that are mapped to it.
#[must_use]
pub(crate) fn https_record(host: &str, port: u16) -> Option<String> {
    let host = host.trim_end_matches('.');
    let is_name = host.contains('.') && !host.contains(['*', ':']);
    if !is_name || host.parse::<IpAddr>().is_ok() {
        return None;
    }
    const VERSIONS: &str = "alpn=\"h3,h2,http/1.1\"";
    Some(match port {
        443 => format!("{host}. 3600 IN HTTPS 1 . {VERSIONS}"),
        _ => format!("_{port}._https.{host}. 3600 IN HTTPS 1 {host}. {VERSIONS} port={port}"),
    })
}

/// The port that an `alt-svc` field (RFC 7838 section 3) names for HTTP/3 on the same host.
#[must_use]
pub(crate) fn announced_port(alt_svc: &str) -> Option<u16> {
    let (_, rest) = alt_svc.split_once("h3=\":")?;
    rest.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_for_names() {
        let record = |host, port| https_record(host, port).unwrap_or_default();
        assert_eq!(
            record("example.org", 443),
            "example.org. 3600 IN HTTPS 1 . alpn=\"h3,h2,http/1.1\""
        );
        assert_eq!(
            record("example.org.", 8443),
            "_8443._https.example.org. 3600 IN HTTPS 1 example.org. alpn=\"h3,h2,http/1.1\" port=8443"
        );
        for none in ["localhost", "*.example.org", "192.0.2.1", "2001:db8::1", ""] {
            assert_eq!(https_record(none, 443), None, "{none}");
        }
    }

    #[test]
    fn ports_are_read() {
        assert_eq!(announced_port("h3=\":443\"; ma=86400"), Some(443));
        assert_eq!(announced_port("h2=\":1\", h3=\":8443\""), Some(8443));
        for none in ["clear", "h3=\"other.example:443\"", "h3=\":x\"", ""] {
            assert_eq!(announced_port(none), None, "{none}");
        }
    }
}
