//! The archives of kawipiko: a constant database (<https://cr.yp.to/cdb/cdb.txt>) in which a path
//! names a metadata record and a content record.
//!
//! ```text
//! files-content:/a.html  ─▶  KEY:KEY      resource-metadata:KEY  resource-data:KEY     until 2021
//! f:/a.html              ─▶  KEY:KEY      m:KEY  c:KEY                         early in 2021
//! f:/a.html              ─▶  mXXXXXXXdXXXXXXX     mXXXXXXX  dXXXXXXX     since; redirects by r:
//! ```
//!
//! Metadata is lines of fields, or pairs of a name's number and a value: again a number, both in
//! tables compiled into kawipiko, or `Z`, three letters and the text. The tables grew over the
//! years, but agree in what matters here: the numbers of the codings, and that the status, if there
//! is one, has the first name. Content types are derived from file names again. Records are read in
//! file order; the hash tables are not needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;

use gannet_archive::Coding;
use gannet_content::rules::{Compat, SourceFile, redirects};

use super::kawipiko_types::{Suffixes, TypeRules};
use super::limits::{FILES_MAX, RECORD_LEN_MAX, REDIRECTS_LEN_MAX};
use super::range::{InputRange, Positioned, RangeReader};
use super::{Entries, ImportError, read_error};
use crate::pack::decoder;

/// The header of a constant database: 256 pairs of position and number of slots.
const HEADER_LEN: u64 = 2048;
/// Suffixes that kawipiko drops to make a second name.
const STRIPPED: [&str; 5] = [".html", ".htm", ".xhtml", ".xht", ".txt"];
/// Suffixes of additional index pages of a folder.
const INDEX_SUFFIXES: [&str; 2] = [".json", ".xml"];
/// The index names that kawipiko looks for.
const INDEX: [&str; 14] = [
    "index.html",
    "index.htm",
    "index.xhtml",
    "index.xht",
    "index.txt",
    "index.json",
    "index.xml",
    "_index.html",
    "_index.htm",
    "_index.xhtml",
    "_index.xht",
    "_index.txt",
    "_index.json",
    "_index.xml",
];

/// Whether a file begins like a constant database: the hash tables follow the records without gaps,
/// and end where the file ends.
pub(super) fn looks_like(first: &[u8], len: u64) -> bool {
    let Some(tables) = tables(first) else {
        return false;
    };
    let end = |(position, slots): (u64, u64)| position + slots * 8;
    let is_sound = |table: &(u64, u64)| table.0 >= HEADER_LEN && end(*table) <= len;
    tables.iter().all(is_sound) && tables.iter().map(|table| end(*table)).max() == Some(len)
}

fn tables(first: &[u8]) -> Option<Vec<(u64, u64)>> {
    let header = first.get(..HEADER_LEN as usize)?;
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    let pairs = header.chunks_exact(8);
    let pairs = pairs.map(|pair| (u64::from(number(&pair[..4])), u64::from(number(&pair[4..]))));
    Some(pairs.collect())
}

/// The parsed records.
#[derive(Default)]
struct Records {
    /// Paths with the keys of metadata and content.
    files: BTreeMap<Vec<u8>, Vec<u8>>,
    redirects: BTreeMap<Vec<u8>, Vec<u8>>,
    metadata: HashMap<Vec<u8>, InputRange>,
    contents: HashMap<Vec<u8>, InputRange>,
}

/// A content with its coding and fields.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct KawipikoContent {
    content: Option<InputRange>,
    /// Its metadata may be shared by any number of paths, each of which reads it.
    metadata_len: u64,
    coding: Option<Coding>,
    status: u16,
    location: Option<String>,
    /// The content type, as text or as its number.
    content_type: Vec<u8>,
}

/// Passes on the files of an archive, and its redirects as a file `_redirects`.
pub(super) fn read(file: &dyn Positioned, entries: &mut dyn Entries) -> Result<(), ImportError> {
    let records = Records::read(file)?;
    let paths: BTreeSet<&[u8]> = records.files.keys().map(Vec::as_slice).collect();
    let suffixes = records.suffixes(file)?;
    let mut types = TypeRules::default();
    for (path, reference) in &records.files {
        let stored = records.stored(file, path, reference)?;
        entries.account(stored.metadata_len)?;
        let is_page = |suffix: &str| {
            STRIPPED
                .iter()
                .chain(&INDEX_SUFFIXES)
                .any(|it| *it == suffix)
        };
        let suffix = suffixes.most(&stored.content_type, is_page);
        let suffix = suffix.unwrap_or(".html");
        let Some(name) = records.file_name(path, reference, &paths, &stored, suffix) else {
            continue;
        };
        let Some(range) = stored.content else {
            return Err(damaged(path, "has no content"));
        };
        let reader = RangeReader { file, range };
        let coding = stored.coding.unwrap_or(Coding::Identity);
        let mut content = decoder(coding, reader).map_err(read_error)?;
        entries.file(&name, None, None, &mut content)?;
        if !types.add(&name, &stored.content_type, &suffixes) {
            entries.left_out(&name, "its content type: too many have no suffix");
        }
    }
    if let Some(mut types) = types.file().filter(|_| !paths.contains(&b"/_headers"[..])) {
        entries.file(b"_headers", None, None, &mut types)?;
    }
    let mut lines = String::new();
    for (source, reference) in &records.redirects {
        let stored = records.stored(file, source, reference)?;
        entries.account(stored.metadata_len)?;
        if is_of_slash(source, &stored, &paths) {
            continue;
        }
        match redirect(source, &stored) {
            Ok(line) if lines.len() + line.len() > REDIRECTS_LEN_MAX => {
                return Err(ImportError::TooMuch("its redirects are too long".into()));
            }
            Ok(line) => lines.push_str(&line),
            Err(why) => entries.left_out(source, why),
        }
    }
    if !lines.is_empty() {
        entries.file(b"_redirects", None, None, &mut lines.as_bytes())?;
    }
    Ok(())
}

/// Whether a redirect adds or removes a slash at the end of a file's path. kawipiko stores one for each file since 2022,
/// and packing makes them again: as rules, those of 50,000 pages would be more than a site may have.
fn is_of_slash(source: &[u8], stored: &KawipikoContent, paths: &BTreeSet<&[u8]>) -> bool {
    let target = stored.location.as_deref().unwrap_or_default().as_bytes();
    let is_with = |long: &[u8], short: &[u8]| long.strip_suffix(b"/") == Some(short);
    stored.status == 308
        && (is_with(source, target) || is_with(target, source))
        && paths.contains(target)
}

/// A line of the file `_redirects` in kawipiko's dialect.
///
/// # Errors
/// The reason why there is none: a file with an invalid line could not be packed.
fn redirect(source: &[u8], stored: &KawipikoContent) -> Result<String, &'static str> {
    let unread = "a redirect whose target cannot be read";
    let source = str::from_utf8(source).map_err(|_| unread)?;
    let location = stored.location.as_deref().ok_or(unread)?;
    if !matches!(stored.status, 301 | 302 | 303 | 307 | 308) {
        return Err(unread);
    }
    let line = format!("{source} {location} {}\n", stored.status);
    let file = SourceFile {
        path: "_redirects",
        text: line.as_bytes(),
    };
    let (read, problems) = redirects::parse(&[file], Compat::Kawipiko);
    match (read.rules.len(), problems.is_empty()) {
        (1, true) => Ok(line),
        _ => Err("a redirect that gannet does not support"),
    }
}

fn damaged(path: &[u8], what: &str) -> ImportError {
    let path = String::from_utf8_lossy(path);
    ImportError::Damaged(format!("'{path}' {what}"))
}

impl Records {
    fn read(file: &dyn Positioned) -> Result<Self, ImportError> {
        let mut header = vec![0; HEADER_LEN as usize];
        let whole = InputRange {
            offset: 0,
            len: HEADER_LEN,
        };
        RangeReader { file, range: whole }
            .read_exact(&mut header)
            .map_err(read_error)?;
        let tables = tables(&header).unwrap_or_default();
        let end = tables.iter().map(|table| table.0).min().unwrap_or(0);
        let len = file.total_len().map_err(read_error)?;
        let mut records = Self::default();
        let mut at = HEADER_LEN;
        let mut count = 0;
        while at < end.min(len) {
            at = records.record(file, at, end.min(len))?;
            count += 1;
            // Each file has a path, metadata and content.
            if count > FILES_MAX * 3 {
                return Err(ImportError::TooMuch("it has too many files".into()));
            }
        }
        if records.files.is_empty() {
            let what = "a constant database, but not one of kawipiko: it names no files";
            return Err(ImportError::Damaged(what.into()));
        }
        Ok(records)
    }

    /// Parses the record at `at` and returns the offset of the next one.
    fn record(&mut self, file: &dyn Positioned, at: u64, end: u64) -> Result<u64, ImportError> {
        let mut lens = [0; 8];
        let range = InputRange { offset: at, len: 8 };
        RangeReader { file, range }
            .read_exact(&mut lens)
            .map_err(read_error)?;
        let [a, b, c, d, e, f, g, h] = lens;
        let key_len = u32::from_le_bytes([a, b, c, d]);
        let len = u64::from(u32::from_le_bytes([e, f, g, h]));
        let data = InputRange {
            offset: at + 8 + u64::from(key_len),
            len,
        };
        let next = data.offset + len;
        if key_len > RECORD_LEN_MAX || next > end {
            let what = format!("the record at {at} reaches beyond the records");
            return Err(ImportError::Damaged(what));
        }
        let key = bytes(file, at + 8, key_len)?;
        let small = || bytes(file, data.offset, u32::try_from(len).unwrap_or(u32::MAX));
        if let Some(path) = strip(&key, &[b"files-content:", b"f:"]) {
            self.files.insert(path.to_vec(), small()?);
        } else if let Some(path) = strip(&key, &[b"redirects-content:", b"r:"]) {
            self.redirects.insert(path.to_vec(), small()?);
        } else if let Some(key) = strip(&key, &[b"resource-metadata:", b"m:"]) {
            self.metadata.insert(key.to_vec(), data);
        } else if let Some(key) = strip(&key, &[b"resource-data:", b"c:"]) {
            self.contents.insert(key.to_vec(), data);
        } else if key.len() == 8 && key[0] == b'm' {
            self.metadata.insert(key, data);
        } else if key.len() == 8 && key[0] == b'd' {
            self.contents.insert(key, data);
        }
        Ok(next)
    }

    /// The metadata and content that a path refers to.
    fn stored(
        &self,
        file: &dyn Positioned,
        path: &[u8],
        reference: &[u8],
    ) -> Result<KawipikoContent, ImportError> {
        let metadata = keys(reference).find_map(|key| self.metadata.get(key));
        let content = keys(reference).find_map(|key| self.contents.get(key));
        let Some(metadata) = metadata else {
            // kawipiko's archiver loses the metadata of an empty file that follows redirects.
            if let Some(content) = content.filter(|content| content.len == 0) {
                return Ok(KawipikoContent {
                    content: Some(*content),
                    status: 200,
                    ..KawipikoContent::default()
                });
            }
            return Err(damaged(path, "has no metadata"));
        };
        let len = u32::try_from(metadata.len).unwrap_or(u32::MAX);
        let mut stored = fields(&bytes(file, metadata.offset, len)?);
        stored.content = content.copied();
        stored.metadata_len = metadata.len;
        Ok(stored)
    }

    /// Suffixes by content type, learned from other files: the suffixes of pages for whole folders
    /// are not stored.
    fn suffixes(&self, file: &dyn Positioned) -> Result<Suffixes, ImportError> {
        let mut suffixes = Suffixes::default();
        let mut types: HashMap<&[u8], Vec<u8>> = HashMap::new();
        for (path, reference) in &self.files {
            let Some(key) = self.metadata_key(reference) else {
                continue;
            };
            if !types.contains_key(key) {
                types.insert(key, self.stored(file, path, reference)?.content_type);
            }
            if let Some(content_type) = types.get(key) {
                suffixes.count(path, content_type);
            }
        }
        Ok(suffixes)
    }

    /// The key of the metadata that a path refers to.
    fn metadata_key<'r>(&self, reference: &'r [u8]) -> Option<&'r [u8]> {
        keys(reference).find(|key| self.metadata.contains_key(*key))
    }

    /// The name under which a file is kept; `None` for additional names of a file.
    fn file_name(
        &self,
        path: &[u8],
        reference: &[u8],
        paths: &BTreeSet<&[u8]>,
        stored: &KawipikoContent,
        suffix: &str,
    ) -> Option<Vec<u8>> {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let is_same = |other: &[u8]| {
            paths.contains(other) && self.files.get(other).is_some_and(|it| it == reference)
        };
        let folder = relative.strip_suffix(b"*");
        // Only a whole segment is a catch-all: `file*` is an ordinary name.
        if let Some(folder) = folder.filter(|it| it.is_empty() || it.ends_with(b"/")) {
            let name: &[u8] = match stored.status {
                404 if suffix == ".html" => b"404",
                404 => b"_404",
                _ => b"_wildcard",
            };
            return Some([folder, name, suffix.as_bytes()].concat());
        }
        if relative.is_empty() || relative.ends_with(b"/") {
            let mut names = INDEX.iter();
            let has_own = names.any(|name| is_same(&[path, name.as_bytes()].concat()));
            return (!has_own).then(|| [relative, b"index", suffix.as_bytes()].concat());
        }
        let mut suffixes = STRIPPED.iter();
        let has_own = suffixes.any(|suffix| is_same(&[path, suffix.as_bytes()].concat()));
        (!has_own).then(|| relative.to_vec())
    }
}

/// The keys in a reference: two of eight bytes, or any number separated by colons.
fn keys(reference: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_fixed = reference.len() == 16 && reference.first() == Some(&b'm');
    let fixed = reference.chunks(8).filter(move |_| is_fixed);
    let split = reference.split(|byte| *byte == b':');
    fixed.chain(split.filter(move |_| !is_fixed))
}

fn strip<'k>(key: &'k [u8], prefixes: &[&[u8]]) -> Option<&'k [u8]> {
    prefixes.iter().find_map(|prefix| key.strip_prefix(*prefix))
}

fn bytes(file: &dyn Positioned, offset: u64, len: u32) -> Result<Vec<u8>, ImportError> {
    if len > RECORD_LEN_MAX {
        let what = format!("the record at {offset} is too long");
        return Err(ImportError::Damaged(what));
    }
    let range = InputRange {
        offset,
        len: u64::from(len),
    };
    let mut bytes = Vec::new();
    RangeReader { file, range }
        .read_to_end(&mut bytes)
        .map_err(read_error)?;
    Ok(bytes)
}

/// Parses the relevant fields. Lines are `Name: value CRLF`, or `Name : value LF` in the first
/// years.
fn fields(metadata: &[u8]) -> KawipikoContent {
    let mut stored = KawipikoContent {
        status: 200,
        ..KawipikoContent::default()
    };
    if metadata.first() == Some(&b'h') {
        let mut rest = metadata;
        while let Some((name, value, after)) = pair(rest) {
            numbered(name, value, &mut stored);
            rest = after;
        }
        return stored;
    }
    for line in String::from_utf8_lossy(metadata).lines() {
        let Some((name, value)) = line.split_once(": ") else {
            continue;
        };
        match name.trim_end().to_ascii_lowercase().as_str() {
            "content-encoding" => {
                stored.coding = Coding::ALL.into_iter().find(|it| it.name() == value);
            }
            "content-type" => stored.content_type = value.as_bytes().to_vec(),
            "location" => stored.location = Some(value.to_owned()),
            "!status" => stored.status = value.parse().unwrap_or(200),
            _ => {}
        }
    }
    stored
}

/// The first pair, and the rest. A text ends where the next pair begins.
fn pair(metadata: &[u8]) -> Option<(u32, Value<'_>, &[u8])> {
    let (name, rest) = metadata.split_at_checked(8)?;
    let name = number(name, b'h')?;
    if let Some(value) = rest.get(..8).and_then(|key| number(key, b'H')) {
        return Some((name, Value::Number(value), &rest[8..]));
    }
    let text = rest.strip_prefix(b"Z")?.get(TEXT_PREFIX_LEN..)?;
    let is_next = |at: &usize| {
        let (name, value) = (text.get(*at..*at + 8), text.get(*at + 8));
        name.is_some_and(|name| number(name, b'h').is_some()) && matches!(value, Some(b'H' | b'Z'))
    };
    let end = (0..text.len()).find(is_next).unwrap_or(text.len());
    Some((name, Value::Text(&text[..end]), &text[end..]))
}

/// A value of metadata.
#[derive(Clone, Copy)]
enum Value<'m> {
    /// A position in kawipiko's table, from 1.
    Number(u32),
    Text(&'m [u8]),
}

/// Letters between `Z` and a text.
const TEXT_PREFIX_LEN: usize = 3;
/// The number of the status: no other name is ever used in this position.
const STATUS_NAME: u32 = 1;
/// The numbers of the content type, before and since statuses exist.
const TYPE_NAMES: [u32; 2] = [0x25, 0x26];
/// The number of the value `200`.
const STATUS_OK: u32 = 13;

/// The number in a key: `H0000005` is the fifth value.
fn number(key: &[u8], prefix: u8) -> Option<u32> {
    let digits = str::from_utf8(key.strip_prefix(&[prefix])?).ok()?;
    let is_sound = digits.len() == 7 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_sound.then(|| u32::from_str_radix(digits, 16).ok())?
}

fn numbered(name: u32, value: Value<'_>, stored: &mut KawipikoContent) {
    match (name, value) {
        (STATUS_NAME, Value::Number(STATUS_OK)) => stored.status = 200,
        // The only other number that files have. A redirect's target is then unknown, which is
        // reported.
        (STATUS_NAME, Value::Number(_)) => stored.status = 404,
        (STATUS_NAME, Value::Text(text)) => {
            let text = String::from_utf8_lossy(text);
            stored.status = text.parse().unwrap_or(200);
        }
        (_, Value::Number(3)) => stored.coding = Some(Coding::Identity),
        (_, Value::Number(5)) => stored.coding = Some(Coding::Gzip),
        (_, Value::Number(6)) => stored.coding = Some(Coding::Brotli),
        (_, Value::Number(value)) if TYPE_NAMES.contains(&name) => {
            stored.content_type = value.to_be_bytes().to_vec();
        }
        (_, Value::Number(_)) => {}
        (_, Value::Text(text)) if TYPE_NAMES.contains(&name) => {
            stored.content_type = text.to_vec();
        }
        // Names are in alphabetical order, and only an entity tag can precede the location.
        (_, Value::Text(text)) => {
            stored.location = String::from_utf8(text.to_vec()).ok();
        }
    }
}
