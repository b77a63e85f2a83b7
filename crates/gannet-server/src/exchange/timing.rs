//! What a response says about itself in `server-timing` (W3C Server Timing), if the operator wants
//! it.

use std::fmt;

/// The field's name.
pub(super) const SERVER_TIMING: &str = "server-timing";

/// How a response came about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Timing {
    /// In the turn of its request: from memory, from an archive, or made by the server.
    AtOnce,
    /// After so many nanoseconds, for the disk or a body to be decoded.
    Waited(u64),
}

impl fmt::Display for Timing {
    /// The field's value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtOnce => f.write_str("cache;desc=hit"),
            Self::Waited(ns) => {
                let us = ns / 1_000;
                let (ms, us) = (us / 1_000, us % 1_000);
                write!(f, "cache;desc=miss, lookup;dur={ms}.{us:03}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_milliseconds() {
        let waited = |ns| Timing::Waited(ns).to_string();
        assert_eq!(waited(0), "cache;desc=miss, lookup;dur=0.000");
        assert_eq!(waited(12_034_567), "cache;desc=miss, lookup;dur=12.034");
        assert_eq!(Timing::AtOnce.to_string(), "cache;desc=hit");
    }
}
