//! The recipe: lines in an archive that describe how its codings were made.
//!
//! ```text
//! gannet-recipe 1
//! rule 2 text/csv=no
//! gzip=12 libdeflater-1.26.1
//! br=11 brotli-9.1.1
//! index=zstd 1 zstd-0.14.3
//! ```
//!
//! The rule covers which contents are tried and which results are kept: its number changes with the
//! thresholds in `compress.rs`, and the exceptions of content types follow.

use std::fmt::Write as _;

use super::Compressible;
use super::encoders::{Encoder, packed_recipe};

/// How the codings of an archive were made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Recipe {
    rule: String,
    encoders: Vec<String>,
}

impl Recipe {
    /// The recipe of a build.
    pub(super) fn new(encoders: &[Encoder], compressible: &Compressible) -> Self {
        Self {
            rule: rule(compressible),
            encoders: encoders
                .iter()
                .map(|encoder| encoder.recipe())
                .chain([packed_recipe()])
                .collect(),
        }
    }

    /// Parses the section of an archive; `None` if it has another form.
    pub(super) fn parse(section: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(section).ok()?.lines();
        if lines.next() != Some(TITLE) {
            return None;
        }
        Some(Self {
            rule: lines.next()?.to_string(),
            encoders: lines.map(str::to_string).collect(),
        })
    }

    /// The bytes of the section.
    pub(super) fn to_section(&self) -> Vec<u8> {
        let mut lines = format!("{TITLE}\n{}\n", self.rule);
        for encoder in &self.encoders {
            lines.push_str(encoder);
            lines.push('\n');
        }
        lines.into_bytes()
    }

    /// Whether the same encoder was used.
    pub(super) fn has(&self, encoder: Encoder) -> bool {
        let recipe = encoder.recipe();
        self.encoders.contains(&recipe)
    }

    /// Whether the same contents were tried, with the same thresholds.
    pub(super) fn has_rule(&self, compressible: &Compressible) -> bool {
        self.rule == rule(compressible)
    }
}

fn rule(compressible: &Compressible) -> String {
    let mut text = String::from(RULE);
    for (pattern, answer) in compressible.exceptions() {
        let answer = if *answer { "yes" } else { "no" };
        // Writing to a string cannot fail.
        let _ = write!(text, " {pattern}={answer}");
    }
    text
}

const TITLE: &str = "gannet-recipe 1";
const RULE: &str = "rule 2";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Effort;

    #[test]
    fn a_recipe_comes_back_and_tells_encoders_apart() {
        let exceptions = Compressible::new(vec![("text/csv".into(), false)]);
        let encoders = [Encoder::Libdeflate(12), Encoder::Brotli(11)];
        let recipe = Recipe::new(&encoders, &exceptions);
        let read = Recipe::parse(&recipe.to_section()).expect("sound");
        assert_eq!(read, recipe);
        assert!(read.has(Encoder::Brotli(11)) && !read.has(Encoder::Brotli(10)));
        assert!(!read.has(Encoder::Zopfli) && !read.has(Encoder::Zstd(1)));
        // Another level of the packed metadata makes another release.
        let level = format!("\nindex=zstd {} zstd-", super::super::limits::PACKED_LEVEL);
        let section = String::from_utf8(recipe.to_section()).expect("text");
        assert!(section.contains(&level), "{section}");
        assert!(read.has_rule(&exceptions) && !read.has_rule(&Compressible::default()));
        let plain = Recipe::new(&Encoder::all(Effort::Fast), &Compressible::default());
        assert!(plain.has_rule(&Compressible::default()));
        assert_eq!(Recipe::parse(b"something else"), None);
        assert_eq!(Recipe::parse(b"\xff"), None);
    }
}
