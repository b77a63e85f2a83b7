//! Redirects from `http` to `https` on the same host.

/// The ports of the redirect from `http` to `https`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Redirect {
    /// The port of the `http` listener.
    pub(crate) from: u16,
    /// The port of the `https` listener.
    pub(crate) to: u16,
}

impl Redirect {
    /// The authority of the same host under `https`; `None` if `asked` is malformed.
    ///
    /// A client that names no port connected to port 80. If that is not our port, a port mapping is
    /// in between, which then maps 443 as well.
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
