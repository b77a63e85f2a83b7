//! Which content types are worth compressing.

use gannet_content::mime;

/// The built-in rule (`gannet_content::mime::is_compressible`) with exceptions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Compressible {
    exceptions: Vec<(String, bool)>,
}

impl Compressible {
    /// Creates the rule with exceptions: essences such as `text/csv`, or `font/*`, in lower case.
    /// The last one that matches a type wins.
    #[must_use]
    pub fn new(exceptions: Vec<(String, bool)>) -> Self {
        Self { exceptions }
    }

    pub(super) fn exceptions(&self) -> &[(String, bool)] {
        &self.exceptions
    }

    /// Whether `len` bytes of this type are compressed.
    #[must_use]
    pub fn fits(&self, content_type: &str, len: u64) -> bool {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let exception =
            self.exceptions
                .iter()
                .rev()
                .find(|(pattern, _)| match pattern.strip_suffix('*') {
                    Some(top) => {
                        let start = essence.get(..top.len()).unwrap_or_default();
                        start.eq_ignore_ascii_case(top)
                    }
                    None => essence.eq_ignore_ascii_case(pattern),
                });
        exception.map_or_else(
            || mime::is_compressible(content_type, len),
            |(_, answer)| *answer,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_come_before_the_rule_and_later_ones_before_earlier_ones() {
        let exceptions = [("font/*", true), ("font/woff2", false), ("text/csv", false)];
        let rule = Compressible::new(exceptions.map(|(name, yes)| (name.into(), yes)).to_vec());
        let check = |kind: &str, expect| assert_eq!(rule.fits(kind, 1), expect, "{kind}");
        check("text/html; charset=utf-8", true);
        check("image/png", false);
        check("font/woff", true);
        check("font/woff2", false);
        check("Text/CSV; charset=utf-8", false);
        check("", false);
    }
}
