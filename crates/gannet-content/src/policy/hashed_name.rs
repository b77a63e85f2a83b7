//! Where bundlers put a hash of the content into a file's name.
//!
//! Appearance alone proves nothing: `AvenirNextLTPro-MediumCn.woff2` has the form that Vite writes.
//! So a name counts if it is in a *folder* that a framework documents for such files, or has a
//! *form* that bundlers write, and then only if the site itself refers to the file by that whole
//! name, which the packer checks. Doubtful names count only beside a certain one in their folder: a
//! file that is stored for a year under a name that lives on is a mistake that no deploy can undo,
//! while revalidation costs one round trip.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::limits::{DIGEST_TOKEN_MIN, DIGEST_TOKEN_MIN_OTHER, DIGEST_TOKENS_MAX};

/// A form in which bundlers write names.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum HashedForm {
    /// `app.3f2a9c1b.js`: hexadecimal digits, by webpack and many others.
    Hex,
    /// `chunk-7XK2L3QZ.js`: eight characters of base 32, by esbuild and Angular.
    Base32,
    /// `assets/index-BxY3k9Zq.js`: eight characters of base 64, by Vite and Rollup.
    Base64,
}

impl HashedForm {
    /// The form as shown in messages, in place of the name.
    #[must_use]
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Hex => "NAME.HEX",
            Self::Base32 => "NAME-BASE32",
            Self::Base64 => "NAME-BASE64",
        }
    }

    /// The inverse of [`shown`](Self::shown).
    #[must_use]
    pub fn parse(shown: &str) -> Option<Self> {
        let all = [Self::Hex, Self::Base32, Self::Base64];
        all.into_iter().find(|form| form.shown() == shown)
    }
}

/// The folder that a framework uses only for files named by their hash, if the path is in one.
#[must_use]
pub fn framework_folder(path: &str) -> Option<&'static str> {
    let (folder, name) = split(path)?;
    if is_page(name) {
        return None;
    }
    let folder = format!("/{folder}/");
    for known in ["_next/static", "_app/immutable", "_astro", "_nuxt"] {
        let is_within = folder.contains(&format!("/{known}/"));
        // Nuxt also keeps the files there that name the newest build.
        if is_within && !folder.contains("/_nuxt/builds/") && name != "latest.json" {
            return Some(known);
        }
    }
    // Create React App: the folder and the form.
    let in_folder = |known: &str| folder.ends_with(&format!("/{known}/"));
    let known = ["static/js", "static/css", "static/media"];
    let known = known.into_iter().find(|known| in_folder(known))?;
    let is_media = known == "static/media";
    let lens: &[usize] = if is_media { &[8, 20, 32] } else { &[8] };
    let token = stem(name)?.text.rsplit_once('.')?.1;
    let is_code = is_media || Kind::of(name) == Kind::Code;
    (is_code && lens.contains(&token.len()) && is_hex(token)).then_some(known)
}

/// The form of a path's name, if bundlers write such names for this type of file.
#[must_use]
pub fn form(path: &str) -> Option<HashedForm> {
    let (folder, name) = split(path).unwrap_or(("", path));
    let kind = Kind::of(name);
    let stem = stem(name)?;
    let in_assets = folder.split('/').any(|part| ASSET_FOLDERS.contains(&part));
    if has_hex(stem.text) && (kind == Kind::Code || is_docusaurus(folder, stem.text, kind)) {
        return Some(HashedForm::Hex);
    }
    let token = eight(stem.text, in_assets)?;
    if is_base32(token) && kind != Kind::Other && !stem.text.ends_with(&format!(".{token}")) {
        return Some(HashedForm::Base32);
    }
    (in_assets && kind != Kind::Other).then_some(HashedForm::Base64)
}

/// Which of many names in a form contain a hash: a single one may be a word, but a bundler names
/// all files of a folder in its form.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    groups: HashMap<(String, HashedForm, Kind), Group>,
    /// The folders with a certain hash in base 32 or 64.
    certain: HashSet<String>,
    /// The number of names of a kind in each folder that have no form.
    plain: HashMap<(String, Kind), usize>,
}

/// Names of one folder in one form.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    count: usize,
    /// Those that do not read as a word, certain ones included.
    hashes: usize,
}

impl Groups {
    /// Groups the names of a site's files, given as paths.
    #[must_use]
    pub fn of<'p>(paths: impl Iterator<Item = &'p str> + Clone) -> Self {
        let mut groups = Self::default();
        for path in paths.clone() {
            let Some(form) = form(path) else { continue };
            let (folder, name) = split(path).unwrap_or(("", path));
            let key = (folder.to_owned(), form, Kind::of(name));
            let group = groups.groups.entry(key).or_default();
            let strength = strength(form, name);
            group.count += 1;
            group.hashes += usize::from(strength >= Strength::Weak);
            if strength == Strength::Strong && form != HashedForm::Hex {
                groups.certain.insert(folder.to_owned());
            }
        }
        let keys = groups.groups.keys();
        let keys = keys.map(|(folder, _, kind)| ((folder.clone(), *kind), 0));
        groups.plain = keys.collect();
        if groups.plain.is_empty() {
            return groups;
        }
        for path in paths.filter(|path| form(path).is_none()) {
            let (folder, name) = split(path).unwrap_or(("", path));
            let key = (folder.to_owned(), Kind::of(name));
            if let Some(count) = groups.plain.get_mut(&key) {
                *count += 1;
            }
        }
        groups
    }

    /// The form of a path, if its name contains a hash as far as names can show.
    #[must_use]
    pub fn hashed(&self, path: &str) -> Option<HashedForm> {
        let form = form(path)?;
        let (folder, name) = split(path).unwrap_or(("", path));
        let key = (folder.to_owned(), form, Kind::of(name));
        let group = self.groups.get(&key)?;
        let (folder, _, kind) = key;
        let is_whole = self
            .plain
            .get(&(folder.clone(), kind))
            .is_none_or(|count| *count == 0);
        let is_beside = self.certain.contains(&folder);
        // Vite's own name for the entry script or style of a page.
        let is_entry = name.starts_with("index-");
        let is_bundled = group.count > 1 && group.hashes == group.count;
        let is_hashed = match strength(form, name) {
            Strength::Strong => true,
            Strength::Weak => is_beside || (is_whole && (is_bundled || is_entry)),
            Strength::Faint => is_beside,
            Strength::Word => false,
        };
        is_hashed.then_some(form)
    }
}

/// Where the hash is in a path whose name is known to have one; `None` if it cannot be separated
/// from the rest, or if the name has nothing else. Files of other releases with the same rest are
/// versions of this one.
#[must_use]
pub fn hash_range(path: &str) -> Option<Range<usize>> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let text = stem(name)?.text;
    let start = match eight(text, true) {
        _ if has_hex(text) => text.rfind(['.', '-']).map_or(0, |at| at + 1),
        Some(token) if may_be_digest(token) => text.len() - token.len(),
        _ => {
            let tokens = digest_tokens(path);
            let last = tokens.into_iter().rfind(|token| text.ends_with(token))?;
            text.len() - last.len()
        }
    };
    let rest = text[..start].trim_matches(['.', '-', '_', '~']);
    let name_start = path.len() - name.len();
    (!rest.is_empty()).then(|| name_start + start..name_start + text.len())
}

/// The parts of a name that may be a digest of the content, or the beginning of one.
#[must_use]
pub fn digest_tokens(path: &str) -> Vec<&str> {
    let (_, name) = split(path).unwrap_or(("", path));
    if !name.is_ascii() || is_page(name) {
        return Vec::new();
    }
    let min = match Kind::of(name) {
        Kind::Code => DIGEST_TOKEN_MIN,
        Kind::Picture | Kind::Other => DIGEST_TOKEN_MIN_OTHER,
    };
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let mut tokens = Vec::new();
    for part in stem.split('.') {
        let starts = part.match_indices(['-', '_', '~']).map(|(at, _)| at + 1);
        for start in std::iter::once(0).chain(starts) {
            let tail = &part[start..];
            let run = tail.find(['-', '_', '~']).unwrap_or(tail.len());
            for token in [&tail[..run], tail] {
                let is_new = tokens.len() < DIGEST_TOKENS_MAX && !tokens.contains(&token);
                if token.len() >= min && is_new && may_be_digest(token) {
                    tokens.push(token);
                }
            }
        }
    }
    tokens
}

/// Digits among letters, or capitals among lower-case letters: words have neither.
fn may_be_digest(token: &str) -> bool {
    let bytes = || token.bytes();
    let is_token = bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let has_digit = bytes().any(|byte| byte.is_ascii_digit());
    let has_letter = bytes().any(|byte| byte.is_ascii_alphabetic());
    let has_both = bytes().any(|byte| byte.is_ascii_uppercase())
        && bytes().any(|byte| byte.is_ascii_lowercase());
    is_token && ((has_digit && has_letter) || has_both) && !is_words(token)
}

/// The type of a file, by its suffix.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Kind {
    /// Scripts and styles, and what belongs to them.
    Code,
    /// Fonts and pictures.
    Picture,
    /// Documents, data, archives, videos: people keep their addresses.
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        let suffix = name.rsplit('.').next().unwrap_or_default();
        match suffix.to_ascii_lowercase().as_str() {
            "js" | "mjs" | "css" | "wasm" | "map" => Self::Code,
            "txt" if name.ends_with(".js.LICENSE.txt") => Self::Code,
            "woff" | "woff2" | "ttf" | "otf" | "eot" => Self::Picture,
            "svg" | "png" | "jpg" | "jpeg" | "gif" | "webp" | "avif" | "ico" => Self::Picture,
            _ => Self::Other,
        }
    }
}

/// How certainly a name's token is a hash.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Strength {
    /// What people write: a word, a number or an abbreviation.
    Word,
    /// Nothing that people write, but near to a word: a hash only beside a certain one.
    Faint,
    /// Unlike a word: a hash also where all names of the folder have the form.
    Weak,
    /// Certain by itself.
    Strong,
}

fn strength(form: HashedForm, name: &str) -> Strength {
    let token = stem(name).and_then(|stem| eight(stem.text, true));
    let token = match (form, token) {
        (HashedForm::Hex, _) => return Strength::Strong,
        (_, Some(token)) => token,
        (_, None) => return Strength::Word,
    };
    if form == HashedForm::Base64 {
        return strength_of_base64(token);
    }
    match (has_inner_digit(token), is_words(token) || has_word(token)) {
        (true, _) if reads(token, 4) => Strength::Weak,
        (true, _) => Strength::Strong,
        (false, false) => Strength::Weak,
        (false, true) => Strength::Word,
    }
}

fn strength_of_base64(token: &str) -> Strength {
    let (changes, has_inner_digit) = (class_changes(token), has_inner_digit(token));
    let has_lower = token.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_certain = changes >= 6 || (changes >= 4 && has_inner_digit);
    let is_odd = has_odd_separators(token);
    let faint_if = |it| match it || is_odd {
        true => Strength::Faint,
        false => Strength::Word,
    };
    if is_numbered(token) || !has_inner_capital(token) {
        let is_mixed =
            (changes >= 2 && has_unreadable(token, 4)) || (changes >= 3 && !begins_as_word(token));
        let is_mixed = is_mixed && has_inner_digit && !is_numbered(token);
        faint_if(is_mixed || has_unreadable(token, 6))
    } else if is_words(token) {
        faint_if(has_unreadable(token, 4))
    } else if has_small_word(token) {
        faint_if(!reads(token, 5) || has_unreadable(token, 4))
    } else if is_certain && has_lower && !reads(token, 4) {
        Strength::Strong
    } else if changes >= 2 {
        Strength::Weak
    } else {
        faint_if(has_lower)
    }
}

/// A name without its type suffixes: `app.3f2a9c1b` of `app.3f2a9c1b.chunk.js.map`.
struct Stem<'a> {
    text: &'a str,
}

/// `None` for names that bundlers do not write.
fn stem(name: &str) -> Option<Stem<'_>> {
    // Bundlers keep to ASCII; the code below splits names between bytes.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    if !name.bytes().all(is_plain) || is_page(name) {
        return None;
    }
    let (mut text, _suffix) = name.rsplit_once('.').filter(|(text, _)| !text.is_empty())?;
    while let Some((rest, last)) = text.rsplit_once('.')
        && !rest.is_empty()
        && DECORATIONS.contains(&last.to_ascii_lowercase().as_str())
    {
        text = rest;
    }
    // Added by wasm-bindgen.
    let text = text.strip_suffix("_bg").unwrap_or(text);
    Some(Stem { text })
}

fn split(path: &str) -> Option<(&str, &str)> {
    path.trim_start_matches('/').rsplit_once('/')
}

/// Pages have addresses that people keep.
fn is_page(name: &str) -> bool {
    let suffix = name.rsplit('.').next().unwrap_or_default();
    ["html", "htm", "xhtml", "xht"]
        .iter()
        .any(|page| suffix.eq_ignore_ascii_case(page))
}

/// `3f2a9c1b` at the end, after a dot or a dash, in a length that bundlers use.
fn has_hex(stem: &str) -> bool {
    let start = stem.rfind(['.', '-']).map_or(0, |at| at + 1);
    let token = &stem[start..];
    let is_year = ["19", "20"].iter().any(|century| {
        let rest = token.strip_prefix(century).unwrap_or_default().as_bytes();
        rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_digit)
    });
    // "decade80" is hexadecimal, too; a dot before it makes a word unlikely.
    let is_after_dot = start > 0 && stem.as_bytes()[start - 1] == b'.';
    let letters = token.bytes().take_while(u8::is_ascii_alphabetic).count();
    let changes_min = if is_after_dot || letters <= 3 { 1 } else { 2 };
    start > 1
        && HEX_LENS.contains(&token.len())
        && is_hex(token)
        && !(token.len() == 8 && is_year)
        && (token.len() >= 16 || class_changes(token) >= changes_min)
}

/// Docusaurus writes `assets/images/name-` and an MD5 of the content before it was minified.
fn is_docusaurus(folder: &str, stem: &str, kind: Kind) -> bool {
    let in_folder = ["assets/images", "assets/fonts", "assets/medias"]
        .iter()
        .any(|known| folder == *known || folder.ends_with(&format!("/{known}")));
    let token = stem.rsplit('-').next().unwrap_or_default();
    in_folder && kind == Kind::Picture && token.len() == 32
}

/// Lower-case hexadecimal with both digits and letters, so neither a date nor a word.
fn is_hex(token: &str) -> bool {
    let is_hex_byte = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    token.bytes().all(is_hex_byte)
        && token.bytes().any(|byte| byte.is_ascii_digit())
        && token.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// The last eight characters, if they follow a dash, or a dot as VitePress writes them.
fn eight(stem: &str, takes_dot: bool) -> Option<&str> {
    let cut = stem.len().checked_sub(8).filter(|cut| *cut > 1)?;
    let (before, token) = stem.split_at_checked(cut)?;
    let is_base64_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_after = before.ends_with('-') || (takes_dot && before.ends_with('.'));
    (is_after && token.bytes().all(is_base64_byte)).then_some(token)
}

fn is_base32(token: &str) -> bool {
    token
        .bytes()
        .all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'))
}

/// Whether there is a capital letter after the first character: `Win32x64` has none.
fn has_inner_capital(token: &str) -> bool {
    token.bytes().skip(1).any(|byte| byte.is_ascii_uppercase())
}

/// `IMG_1234`, `pt_BR_v2`: between dashes, letters of one kind or a number, or both.
fn is_numbered(token: &str) -> bool {
    let is_plain = |piece: &str| {
        let letters = piece.trim_end_matches(|c: char| c.is_ascii_digit());
        letters.bytes().all(|byte| byte.is_ascii_lowercase())
            || letters.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    token.split(['-', '_']).all(is_plain)
}

/// As [`has_word`], in lower case, perhaps with an initial capital.
fn has_small_word(token: &str) -> bool {
    let is_small = |byte: u8| byte.is_ascii_lowercase();
    let mut rest = token;
    while let Some(start) = rest.bytes().position(is_small) {
        let first = start.saturating_sub(1);
        let first = if rest.as_bytes()[first].is_ascii_uppercase() {
            first
        } else {
            start
        };
        let len = rest[start..]
            .bytes()
            .take_while(|byte| is_small(*byte))
            .count();
        if has_word(&rest[first..start + len]) {
            return true;
        }
        rest = &rest[start + len..];
    }
    false
}

/// Whether five letters or more of it read as one word: with a vowel, and no four consonants in a
/// row.
fn has_word(token: &str) -> bool {
    let is_vowel = |byte: &u8| b"aeiouyAEIOUY".contains(byte);
    let bytes = token.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let rest = &bytes[start..];
        let is_upper = rest.len() > 1 && rest[..2].iter().all(u8::is_ascii_uppercase);
        let first = usize::from(rest[0].is_ascii_alphabetic());
        let class: fn(&u8) -> bool = match is_upper {
            true => u8::is_ascii_uppercase,
            false => u8::is_ascii_lowercase,
        };
        let tail = rest[first..].iter().take_while(|byte| class(byte)).count();
        let word = &rest[..first + tail];
        let consonants = word.split(is_vowel).map(<[u8]>::len).max().unwrap_or(0);
        if word.len() >= 5 && word.iter().any(is_vowel) && consonants < 4 {
            return true;
        }
        start += word.len().max(1);
    }
    false
}

/// Whether `len` letters in a row of it read as a part of a word: with a vowel, and each letter after
/// one that it often follows.
fn reads(token: &str, len: usize) -> bool {
    runs(token).any(|run| run.windows(len).any(is_readable))
}

/// Whether `len` letters or more in a row of it, at least four, are nothing that a word contains.
fn has_unreadable(token: &str, len: usize) -> bool {
    let mut long = runs(token).filter(|run| run.len() >= len);
    long.any(|run| !run.windows(4).any(is_readable))
}

/// Whether dashes and underscores are where no name has them: at an end, or in a row.
fn has_odd_separators(token: &str) -> bool {
    let is_separator = |byte: &u8| matches!(byte, b'-' | b'_');
    let bytes = token.as_bytes();
    token.starts_with('_')
        || bytes.last().is_some_and(is_separator)
        || bytes.windows(2).any(|pair| pair.iter().all(is_separator))
}

/// Whether it has a part of a word, or starts with a short one: `Win32x64`.
fn begins_as_word(token: &str) -> bool {
    let is_first = |run: &[u8]| run.len() >= 3 && token.as_bytes().starts_with(run);
    reads(token, 4)
        || runs(token)
            .next()
            .is_some_and(|run| is_first(run) && is_readable(run))
}

/// Its letters in a row, where capitals come first.
fn runs(token: &str) -> impl Iterator<Item = &[u8]> {
    token.as_bytes().chunk_by(|before, after| {
        let is_small = before.is_ascii_alphabetic() && after.is_ascii_lowercase();
        is_small || (before.is_ascii_uppercase() && after.is_ascii_uppercase())
    })
}

/// Whether letters are of one kind, but for a capital before the others, have a vowel, and each follows
/// one that it often follows.
fn is_readable(letters: &[u8]) -> bool {
    let is_vowel = |byte: &u8| b"aeiouyAEIOUY".contains(byte);
    let often = |pair: &[u8]| {
        let number = pair[0].to_ascii_lowercase().wrapping_sub(b'a');
        let followers = FOLLOWERS.get(usize::from(number));
        followers.is_some_and(|it| it.as_bytes().contains(&pair[1].to_ascii_lowercase()))
    };
    let rest = letters.get(1..).unwrap_or_default();
    let is_even =
        rest.iter().all(u8::is_ascii_lowercase) || letters.iter().all(u8::is_ascii_uppercase);
    is_even && letters.iter().any(is_vowel) && letters.windows(2).all(often)
}

/// Whether it reads as words in camel case, each with a vowel, perhaps followed by a number.
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
        // As in "iPhone", the first may be a single letter.
        let is_long_enough = word.len() >= 2 || (rest.len() == text.len() && first == 1);
        if !is_letters || !has_vowel || !is_long_enough {
            return is_all_upper && has_word(text);
        }
        rest = &rest[word.len()..];
    }
    true
}

/// Whether a digit precedes a letter.
fn has_inner_digit(token: &str) -> bool {
    let letters = token.trim_end_matches(|c: char| c.is_ascii_digit());
    letters.bytes().any(|byte| byte.is_ascii_digit())
}

/// How often lower-case letters, capitals, digits and others follow each other.
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

/// Numbers of digits that bundlers write: eight, XXH64, webpack's default, MD5, SHA-1, SHA-256.
const HEX_LENS: &[usize] = &[8, 16, 20, 32, 40, 64];

/// Output folders of Vite and of tools built on it.
const ASSET_FOLDERS: &[&str] = &["assets", "_assets"];

/// Suffixes that may precede the last one.
const DECORATIONS: &[&str] = &[
    "async", "bundle", "chunk", "cjs", "css", "esm", "js", "lean", "legacy", "license", "map",
    "min", "mjs", "modern", "module", "prod", "worker",
];

/// The letters that often follow each letter of the alphabet in English words: about four of ten
/// thousand pairs, counted in 27,000 words of manuals.
const FOLLOWERS: [&str; 26] = [
    "abcdefghiklmnprstuvwxyz",
    "aceilorsuy",
    "acdehiklmoprstu",
    "abcdefgilmorstuy",
    "abcdefghiklmnopqrstuvwxyz",
    "aefilorstu",
    "aeghilmnorstu",
    "aeilmnortuy",
    "abcdefgklmnoprstuvxz",
    "aeiou",
    "aehilorsu",
    "abcdefiklmopstuvy",
    "abdeilmopsu",
    "abcdefghiklnoprstuvy",
    "abcdefghiklmnoprstuvwxy",
    "acehiloprstuy",
    "u",
    "abcdefgiklmnoprstuvy",
    "acdeghiklmnoprstuwy",
    "acdefhilmnoprstuwyz",
    "abcdefgiklmnprst",
    "aeio",
    "aehinors",
    "aceipt",
    "aeilmnopst",
    "aei",
];
