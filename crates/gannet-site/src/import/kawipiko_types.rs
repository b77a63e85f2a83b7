//! Infers the content types of a kawipiko archive.
//!
//! A type may be stored as a number in a table compiled into kawipiko. Its meaning follows from the
//! suffixes of the files that have it. This is a majority vote, because files with equal content
//! share the type of the first.

use std::collections::{BTreeMap, HashMap};

use gannet_content::mime;
use gannet_content::rules::{Compat, SourceFile, headers};

use super::limits::HEADERS_LEN_MAX;

/// Suffixes by content type, with the number of files that have both.
#[derive(Default)]
pub(super) struct Suffixes {
    counts: HashMap<Vec<u8>, BTreeMap<String, u64>>,
}

impl Suffixes {
    /// Counts a file.
    pub(super) fn count(&mut self, path: &[u8], content_type: &[u8]) {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let Some(dot) = name.iter().rposition(|byte| *byte == b'.') else {
            return;
        };
        if mime::content_type(name) != mime::UNKNOWN {
            let suffix = String::from_utf8_lossy(&name[dot..]).to_ascii_lowercase();
            let counts = self.counts.entry(content_type.to_vec()).or_default();
            *counts.entry(suffix).or_default() += 1;
        }
    }

    /// The most frequent suffix of this type among those for which `is_wanted` holds.
    pub(super) fn most(
        &self,
        content_type: &[u8],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Option<&str> {
        let counts = self.counts.get(content_type)?.iter();
        let wanted = counts.filter(|(suffix, _)| is_wanted(suffix));
        let most = wanted.max_by_key(|(_, count)| **count);
        most.map(|(suffix, _)| suffix.as_str())
    }

    /// The type as text; `None` for a number that no other file explains.
    fn text(&self, content_type: &[u8]) -> Option<String> {
        if !is_number(content_type) {
            return String::from_utf8(content_type.to_vec()).ok();
        }
        let suffix = self.most(content_type, |_| true)?;
        Some(mime::content_type(format!("x{suffix}").as_bytes()).to_owned())
    }
}

/// Numbers are small, so they start with a zero byte.
fn is_number(content_type: &[u8]) -> bool {
    content_type.first() == Some(&0)
}

/// A file `_headers` with the types that names do not imply.
#[derive(Default)]
pub(super) struct TypeRules(String);

impl TypeRules {
    /// Adds a rule for a file if it needs one. False if there is no room.
    pub(super) fn add(&mut self, name: &[u8], content_type: &[u8], suffixes: &Suffixes) -> bool {
        if mime::content_type(name) != mime::UNKNOWN {
            return true;
        }
        let text = suffixes.text(content_type);
        let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let Some(text) = text.filter(|text| text.bytes().all(is_plain)) else {
            return true;
        };
        let mut rule = String::from("/");
        for &byte in name {
            if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
                rule.push(char::from(byte));
            } else {
                rule.push_str(&format!("%{byte:02X}"));
            }
        }
        rule.push_str(&format!("\n  Content-Type: {text}\n"));
        let file = SourceFile {
            path: "_headers",
            text: rule.as_bytes(),
        };
        let (read, problems) = headers::parse(&file, Compat::Kawipiko);
        // A type that is not a valid field value was not set on purpose.
        if text == mime::UNKNOWN || read.rules.len() != 1 || !problems.is_empty() {
            return true;
        }
        let has_room = self.0.len() + rule.len() <= HEADERS_LEN_MAX;
        if has_room {
            self.0.push_str(&rule);
        }
        has_room
    }

    /// The file; `None` if no rule is needed.
    pub(super) fn file(&self) -> Option<&[u8]> {
        (!self.0.is_empty()).then_some(self.0.as_bytes())
    }
}
