//! Which file names the texts of a site mention.

use std::collections::HashMap;

use super::limits::NAME_MENTIONED_MAX;

/// Names to search for in texts, and whether they were found.
#[derive(Clone, Debug, Default)]
pub struct Mentions {
    wanted: HashMap<Vec<u8>, bool>,
    /// How many of them have not been found.
    missing: usize,
}

impl Mentions {
    /// Adds a name to search for.
    pub fn want(&mut self, name: &str) {
        if self
            .wanted
            .insert(name.as_bytes().to_vec(), false)
            .is_none()
        {
            self.missing += 1;
        }
    }

    /// Whether all names have been found.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.missing == 0
    }

    /// Whether a name has been found.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.wanted.get(name.as_bytes()) == Some(&true)
    }

    /// Reads the next bytes of a text. `open` holds the unfinished end of the previous piece, and
    /// is replaced by that of this one: a name may span both.
    pub fn read(&mut self, bytes: &[u8], open: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|byte| !is_name_byte(*byte)) {
            let (last, name) = piece.split_last().unwrap_or((&b'/', &[]));
            let (name, is_ended) = match is_name_byte(*last) {
                true => (piece, false),
                false => (name, true),
            };
            // A run that is too long for a name stays too long.
            let room = (NAME_MENTIONED_MAX + 1).saturating_sub(open.len());
            if is_ended && open.is_empty() {
                self.found(name);
                continue;
            }
            open.extend_from_slice(&name[..name.len().min(room)]);
            if is_ended {
                self.found(open);
                open.clear();
            }
        }
    }

    /// Ends the text.
    pub fn end(&mut self, open: &mut Vec<u8>) {
        self.found(open);
        open.clear();
    }

    fn found(&mut self, name: &[u8]) {
        if !(8..=NAME_MENTIONED_MAX).contains(&name.len()) {
            return;
        }
        if let Some(is_found) = self.wanted.get_mut(name)
            && !*is_found
        {
            *is_found = true;
            self.missing -= 1;
        }
    }
}

/// Bytes of names as bundlers write them; the characters around a name in a page, a script or a
/// style are not among them.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'~' | b'@' | b'+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_is_found_wherever_the_text_is_cut() {
        let text =
            b"<script src=/assets/index-BxY3k9Zq.js></script>{17:\"b6a4b1a8\"}url(a-x.css)zzzzzzz9";
        for cut in 0..=text.len() {
            let mut mentions = Mentions::default();
            for name in [
                "index-BxY3k9Zq.js",
                "b6a4b1a8",
                "zzzzzzz9",
                "BxY3k9Zq.js",
                "ndex-BxY3k9Zq.js",
            ] {
                mentions.want(name);
            }
            let mut open = Vec::new();
            mentions.read(&text[..cut], &mut open);
            mentions.read(&text[cut..], &mut open);
            mentions.end(&mut open);
            for (name, expect) in [
                ("index-BxY3k9Zq.js", true),
                ("b6a4b1a8", true),
                ("zzzzzzz9", true),
                ("BxY3k9Zq.js", false),
                ("ndex-BxY3k9Zq.js", false),
                ("a-x.css", false),
            ] {
                assert_eq!(mentions.has(name), expect, "{name}, cut at {cut}");
            }
            assert!(!mentions.is_done());
        }
    }

    #[test]
    fn a_run_that_is_too_long_is_bounded_and_no_name() {
        let mut mentions = Mentions::default();
        mentions.want("aaaaaaaa");
        let mut open = Vec::new();
        for _ in 0..10 {
            mentions.read(&[b'a'; 100], &mut open);
        }
        assert!(open.len() <= NAME_MENTIONED_MAX + 1);
        mentions.end(&mut open);
        assert!(!mentions.has("aaaaaaaa"));
        mentions.read(b"aaaaaaaa", &mut open);
        mentions.end(&mut open);
        assert!(mentions.is_done());
    }
}
