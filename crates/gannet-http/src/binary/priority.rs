//! Extensible priorities (RFC 9218): urgency 0 to 7 and an incremental flag.
//!
//! The value is a structured-field dictionary (RFC 8941), of which `u` and `i` are used. As RFC
//! 9218 section 4 requires, a member out of range or of another type is ignored, and a value that
//! is not a dictionary means the default.

/// A priority of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Priority {
    /// 0 (first) to 7 (last).
    pub urgency: u8,
    /// Whether the client can use parts of the response as they arrive, so that several responses
    /// of the same urgency share the connection.
    pub is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            is_incremental: false,
        }
    }
}

/// The number of levels: two for each urgency.
pub const LEVELS: usize = 16;

impl Priority {
    /// The rank of a response among the others, 0 (first) to 15: by urgency, and within an urgency
    /// non-incremental responses first, since only the whole is useful. Within a level,
    /// non-incremental responses follow each other in request order; incremental ones take turns
    /// of [`QUANTUM`](super::limits::QUANTUM) bytes. RFC 9218 section 10 leaves this to the server.
    #[inline]
    #[must_use]
    pub fn level(self) -> u8 {
        2 * self.urgency + u8::from(self.is_incremental)
    }

    /// Reads a `priority` field value or the value of a PRIORITY_UPDATE frame.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|&byte| byte == b',').take(MEMBERS_MAX) {
            // Parameters of a member are ignored.
            let end = member.iter().position(|&byte| byte == b';');
            match trim(&member[..end.unwrap_or(member.len())]) {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

fn trim(member: &[u8]) -> &[u8] {
    member.trim_ascii()
}

/// The most members of a value that are parsed: two are known, a few more may be defined.
const MEMBERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, urgency, is_incremental| {
            let expect = Priority {
                urgency,
                is_incremental,
            };
            assert_eq!(Priority::parse(value.as_bytes()), expect, "{value:?}");
        };
        check("", 3, false);
        check("u=0", 0, false);
        check("u=7, i", 7, true);
        check("i,u=5", 5, true);
        check("i=?1", 3, true);
        check("i, i=?0", 3, false);
        check("u=1, u=2", 2, false);
        check("u=8", 3, false);
        check("u=-1", 3, false);
        check("u=1.0", 3, false);
        check("u=\"1\"", 3, false);
        check("U=1", 3, false);
        check("i=1", 3, false);
        check("u=2;x=y, i;a", 2, true);
        check("foo, bar=(1 2), u=4", 4, false);
        check(&format!("{}u=1", "a,".repeat(100)), 3, false);
    }

    #[test]
    fn levels_follow_urgency_first() {
        let level = |value: &str| usize::from(Priority::parse(value.as_bytes()).level());
        assert_eq!(["u=0", "u=0, i", "u=1", ""].map(level), [0, 1, 2, 6]);
        assert_eq!(level("u=7, i"), LEVELS - 1);
    }
}
