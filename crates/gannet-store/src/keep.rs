//! What remains of releases that are no longer in force.

use std::fmt;

use crate::limits::KEEP_MAX;
use crate::quantity::{duration_text, parse_count, parse_duration, parse_size, size_text};

/// Which releases that are no longer in force are kept, so that pages which browsers and caches
/// still hold find their assets.
///
/// It must exceed the time for which shared caches hold pages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Keep {
    /// A release is kept for this many seconds after another one has replaced it.
    pub age_s: u64,
    /// At least this many releases are kept, whatever their age.
    pub least: u32,
    /// At most this many releases are kept, whatever their age.
    pub most: u32,
    /// All kept releases together have at most this many bytes, even if fewer than `least` remain.
    pub bytes: Option<u64>,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            age_s: 7 * 86_400,
            least: 3,
            most: 20,
            bytes: None,
        }
    }
}

impl Keep {
    /// Reads `7d 3..20`, or `7d 3..20 10GiB`: age, least and most count, bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let form = "not of the form '7d 3..20' or '7d 3..20 10GiB'";
        let mut words = text.split(' ');
        let age_s = words.next().and_then(parse_duration).ok_or(form)?;
        let (least, most) = words
            .next()
            .and_then(|it| it.split_once(".."))
            .ok_or(form)?;
        let count = |text: &str| {
            let count = parse_count(text).and_then(|it| u32::try_from(it).ok());
            count.filter(|it| *it <= KEEP_MAX).ok_or(form)
        };
        let (least, most) = (count(least)?, count(most)?);
        if least > most {
            return Err("the least count is above the most");
        }
        let bytes = words.next().map(|it| parse_size(it).ok_or(form));
        let bytes = bytes.transpose()?;
        if words.next().is_some() {
            return Err(form);
        }
        Ok(Self {
            age_s,
            least,
            most,
            bytes,
        })
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = duration_text(self.age_s);
        write!(out, "{age} {}..{}", self.least, self.most)?;
        match self.bytes {
            Some(bytes) => write!(out, " {}", size_text(bytes)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_a_form() {
        assert_eq!(Keep::default().to_string(), "7d 3..20");
        for text in ["7d 3..20", "0s 0..0", "36h 1..1000 10GiB"] {
            assert_eq!(Keep::parse(text).unwrap().to_string(), text);
        }
        for bad in [
            "",
            "7d",
            "7d 3",
            "7d 3..2",
            "7d 3..1001",
            "7 3..20",
            "7d 3..20 10",
            "7d 3..20 10GiB 1",
            "7d  3..20",
        ] {
            assert!(Keep::parse(bad).is_err(), "{bad}");
        }
    }
}
