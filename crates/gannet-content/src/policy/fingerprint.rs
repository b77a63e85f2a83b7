//! Whether a file name has a hash of the file's content in it.
//!
//! Bundlers put one there in a few well-known forms. What is not surely one of them is not taken:
//! a file kept for a year under a name that lives on is a mistake that no deploy can undo, while
//! one that is asked for again costs a round trip.

use super::limits::{HEX_HASH_MAX, HEX_HASH_MIN};

/// Whether the path's file name has a content hash, in a form that a bundler writes.
pub(super) fn has_content_hash(path: &str) -> bool {
    // Bundlers keep to ASCII; what follows cuts names between bytes.
    if !path.is_ascii() {
        return false;
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if is_page(name) {
        return false;
    }
    if is_hashed_folder(folder, name) {
        return true;
    }
    let Some(stem) = stem(name) else { return false };
    if ends_with_uuid(stem.text) {
        return false;
    }
    let in_bundle = is_bundle_folder(folder);
    if stem.is_whole() && in_bundle && is_whole_hash(stem.last) {
        return true;
    }
    has_hex_tail(&stem, in_bundle) || has_base64_tail(&stem, in_bundle, name)
}

/// A name without the suffixes that say what it is: `app.3f2a9c1b` of `app.3f2a9c1b.chunk.js.map`.
struct Stem<'a> {
    text: &'a str,
    /// What follows its last dot.
    last: &'a str,
}

impl Stem<'_> {
    /// Whether there is no dot in it.
    fn is_whole(&self) -> bool {
        self.text.len() == self.last.len()
    }
}

fn stem(name: &str) -> Option<Stem<'_>> {
    let (mut text, _suffix) = name.rsplit_once('.').filter(|(text, _)| !text.is_empty())?;
    while let Some((rest, last)) = text.rsplit_once('.')
        && !rest.is_empty()
        && DECORATIONS.contains(&last.to_ascii_lowercase().as_str())
    {
        text = rest;
    }
    let last = text.rsplit('.').next().unwrap_or(text);
    Some(Stem { text, last })
}

/// Pages have addresses that people keep.
fn is_page(name: &str) -> bool {
    let suffix = name.rsplit('.').next().unwrap_or_default();
    ["html", "htm", "xhtml", "xht"]
        .iter()
        .any(|page| suffix.eq_ignore_ascii_case(page))
}

/// Folders in which a framework stores nothing but content under names of its hash.
fn is_hashed_folder(folder: &str, name: &str) -> bool {
    let within = |inner: &str| format!("/{folder}/").contains(inner);
    within("/_next/static/")
        || within("/_app/immutable/")
        || within("/_astro/")
        || (within("/_nuxt/") && !within("/_nuxt/builds/") && name != "latest.json")
}

/// Folders that bundlers write to. Other files may lie there, so only the name's form decides,
/// but it may be a less certain one.
fn is_bundle_folder(folder: &str) -> bool {
    folder.split('/').any(|name| BUNDLE_FOLDERS.contains(&name))
}

/// `3f2a9c1b` at the end of the name, after a dot, a dash or an underscore.
fn has_hex_tail(stem: &Stem<'_>, in_bundle: bool) -> bool {
    let start = stem.last.rfind(|c: char| !c.is_ascii_alphanumeric());
    let token = &stem.last[start.map_or(0, |start| start + 1)..];
    let is_after_dot = start.is_none() && !stem.is_whole();
    let is_after_dash = start.is_some_and(|start| start > 0 || !stem.is_whole());
    if !is_hex(token) || !(is_after_dot || is_after_dash) {
        return false;
    }
    // "decade80" is hexadecimal too; a dot before it, or a bundler's folder, makes it unlikely.
    let changes_min = if is_after_dot || in_bundle { 1 } else { 2 };
    token.len() >= 16 || class_changes(token) >= changes_min
}

/// The whole name is a hash, as long as one of the usual ones.
fn is_whole_hash(name: &str) -> bool {
    matches!(name.len(), 16 | 20 | 32 | 40 | 64 | 128) && is_hex(name)
}

/// Lower-case hexadecimal with both digits and letters, so neither a date nor a word.
fn is_hex(token: &str) -> bool {
    let is_hex_byte = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (HEX_HASH_MIN..=HEX_HASH_MAX).contains(&token.len())
        && token.bytes().all(is_hex_byte)
        && token.bytes().any(|byte| byte.is_ascii_digit())
        && token.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Eight characters of base 64, as Vite and Rollup write, or of base 32, as esbuild does.
fn has_base64_tail(stem: &Stem<'_>, in_bundle: bool, name: &str) -> bool {
    let Some(cut) = stem.text.len().checked_sub(8).filter(|cut| *cut > 1) else {
        return false;
    };
    let Some((before, token)) = stem.text.split_at_checked(cut) else {
        return false;
    };
    let is_base64_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !before.ends_with(['-', '.']) || !token.bytes().all(is_base64_byte) {
        return false;
    }
    let is_code = [".js", ".mjs", ".css", ".map"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    (is_code && is_base32(token)) || is_mixed(token) || (in_bundle && is_no_word(token))
}

/// Upper-case letters and the digits that base 32 has, one of them not at the end.
fn is_base32(token: &str) -> bool {
    let is_base32_byte = |byte: u8| matches!(byte, b'A'..=b'Z' | b'2'..=b'7');
    token.bytes().all(is_base32_byte) && has_inner_digit(token)
}

/// Small and capital letters and digits, in no order that a name would have.
fn is_mixed(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && token.bytes().any(|byte| byte.is_ascii_uppercase())
        && token.bytes().any(|byte| byte.is_ascii_lowercase())
        && has_inner_digit(token)
        && class_changes(token) >= 5
}

/// Capital letters or digits among others, and no words, numbers or both after each other.
fn is_no_word(token: &str) -> bool {
    let is_of_one_class = class_changes(token) == 0;
    let lower_and_digits = token
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let upper_and_digits = token
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if is_of_one_class || lower_and_digits || (upper_and_digits && !has_inner_digit(token)) {
        return false;
    }
    // Of the pieces between dashes, none is a name or a number, and one is long enough to tell.
    let mut pieces = token
        .split(['-', '_'])
        .filter(|piece| piece.len() >= 3)
        .peekable();
    let is_named = |piece: &str| piece.bytes().all(|byte| byte.is_ascii_digit()) || is_words(piece);
    pieces.peek().is_some() && !pieces.any(is_named)
}

/// Whether it reads as words in camel case, perhaps with a number behind: each has a vowel.
fn is_words(text: &str) -> bool {
    let text = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_all_upper = text.len() >= 2 && text.bytes().all(|byte| byte.is_ascii_uppercase());
    let mut rest = text;
    while !rest.is_empty() {
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let tail = &rest[first..];
        let end = tail.find(|c: char| !c.is_ascii_lowercase());
        let word = &rest[..first + end.unwrap_or(tail.len())];
        let is_letters = word.bytes().all(|byte| byte.is_ascii_alphabetic());
        let has_vowel = word.bytes().any(|byte| b"aeiouyAEIOUY".contains(&byte));
        // As in "iPhone", the first may be one letter.
        let is_long_enough = word.len() >= 2 || (rest.len() == text.len() && first == 1);
        if !is_letters || !has_vowel || !is_long_enough {
            return is_all_upper;
        }
        rest = &rest[word.len()..];
    }
    true
}

/// Whether a digit stands before a letter.
fn has_inner_digit(token: &str) -> bool {
    let letters = token.trim_end_matches(|c: char| c.is_ascii_digit());
    letters.bytes().any(|byte| byte.is_ascii_digit())
}

/// How often small letters, capital letters, digits and others follow each other.
fn class_changes(token: &str) -> usize {
    let class = |byte: u8| match byte {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let classes: Vec<u8> = token.bytes().map(class).collect();
    classes.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// `550e8400-e29b-41d4-a716-446655440000` names a thing, not its content.
fn ends_with_uuid(stem: &str) -> bool {
    let Some((_, tail)) = stem
        .len()
        .checked_sub(36)
        .and_then(|cut| stem.split_at_checked(cut))
    else {
        return false;
    };
    let mut lens = tail.split('-').map(|group| {
        let is_hex = group.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex { group.len() } else { 0 }
    });
    [8, 4, 4, 4, 12].iter().all(|len| lens.next() == Some(*len)) && lens.next().is_none()
}

/// The part of a name that may be a hash, and the name without it: `app.` `.js` and `k3x9z1`. For
/// names in forms that are not known.
pub(super) fn split_token(name: &str) -> Option<(&str, &str, &str)> {
    let stem = stem(name)?;
    let start = stem.text.rfind(['.', '-', '_', '~'])? + 1;
    let token = &stem.text[start..];
    let has_digit = token.bytes().any(|byte| byte.is_ascii_digit());
    let has_letter = token.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_token = token.len() >= 6
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && has_digit
        && has_letter
        && !is_words(token);
    (is_token && start > 1).then(|| (&name[..start], token, &name[stem.text.len()..]))
}

/// Suffixes that stand before the last one.
const DECORATIONS: &[&str] = &[
    "async", "bundle", "chunk", "cjs", "css", "esm", "js", "lean", "legacy", "license", "map",
    "min", "mjs", "modern", "module", "prod", "worker",
];

const BUNDLE_FOLDERS: &[&str] = &[
    "_assets", "_build", "_chunks", "assets", "build", "bundle", "bundles", "chunks", "dist",
    "static",
];

#[cfg(test)]
mod tests {
    use super::has_content_hash;

    #[test]
    fn a_name_that_is_not_ascii_is_plain_and_harmless() {
        for name in [
            "é",
            "🐦",
            "assets/naïve-3f2a9c1b.js",
            "assets/index-é.js",
            "ü.3f2a9c1b.css",
        ] {
            assert!(!has_content_hash(name), "{name}");
        }
    }
}
