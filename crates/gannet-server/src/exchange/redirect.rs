//! Where clients that come by `http` find the same host by `https`.

/// Where clients are sent that came by `http` and should come by `https`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Redirect {
    /// The port that they came to.
    pub(crate) from: u16,
    /// The port that speaks TLS.
    pub(crate) to: u16,
}

impl Redirect {
    /// The authority under which the same host is reached by `https`; `None` for one that is not
    /// well formed.
    ///
    /// A client that names no port came to port 80. If that is not where we listen, ports are
    /// mapped on the way, and 443 is what the other end of the mapping will be.
    pub(crate) fn authority(self, asked: &[u8]) -> Option<Vec<u8>> {
        let is_port = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
        let colon = asked.iter().rposition(|b| *b == b':');
        let (host, has_port) = match colon {
            Some(at) if is_port(&asked[at + 1..]) => (&asked[..at], at + 1 < asked.len()),
            _ => (asked, false),
        };
        let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%[]:".contains(b);
        if host.is_empty() || !host.iter().all(is_plain) {
            return None;
        }
        let mut authority = host.to_vec();
        let is_mapped = !has_port && self.from != 80;
        if self.to != 443 && !is_mapped {
            authority.extend_from_slice(format!(":{}", self.to).as_bytes());
        }
        Some(authority)
    }
}
