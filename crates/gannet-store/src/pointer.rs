//! The pointer: which release is in force, from when on, and what becomes of the others.
//!
//! It is text, one line for each key, in one order. Each pointer has exactly one text, so that a
//! signature of the text is one of the pointer; `FORMAT.md` specifies it.

use std::cmp::Ordering;
use std::fmt;

use gannet_archive::signature::{PublicKey, SignatureError};

use crate::keep::Keep;
use crate::limits::{
    NOTE_LEN_MAX, POINTER_LEN_MAX, PUBLISHER_LEN_MAX, SERIAL_MAX, TIME_MAX, VOID_MAX,
};
use crate::quantity::{parse_count, parse_time, time_text};
use crate::release_id::{ReleaseId, digits};
use crate::stages::{Stage, list_text, share_of};

/// A pointer to a release.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pointer {
    /// Counts the pointers of a store, from 1. It never falls: a reader refuses a pointer with a
    /// lower serial than one that it has seen.
    pub serial: u64,
    /// The serial of the pointer that it replaces; `None` for the first.
    pub replaces: Option<u64>,
    /// The release.
    pub release: ReleaseId,
    /// The length of its file in bytes.
    pub size: u64,
    /// The BLAKE3 digest of its whole file.
    pub digest: [u8; 32],
    /// When it was published, in Unix seconds.
    pub published: u64,
    /// Who published it, `ann@build`: 1 to 32 bytes.
    pub publisher: String,
    /// When the first stage begins, in Unix seconds; `None` for at once.
    pub activate: Option<u64>,
    /// Which nodes activate it when; empty if all do so together.
    pub stages: Vec<Stage>,
    /// Which releases before it are kept.
    pub keep: Keep,
    /// Releases that answer nothing any more, the latest first.
    pub void: Vec<ReleaseId>,
    /// A remark for people, up to 100 bytes; empty for none.
    pub note: String,
    /// From when on it is no longer to be taken up, in Unix seconds, so that a copy of a store that
    /// is no longer refreshed is noticed.
    pub expires: Option<u64>,
}

impl Pointer {
    /// Reads a pointer, with or without a signature, which is not verified: see
    /// [`Pointer::verify`].
    ///
    /// # Errors
    /// The text is not exactly that of a pointer; the line says where.
    pub fn parse(text: &[u8]) -> Result<Self, PointerError> {
        if text.len() > POINTER_LEN_MAX {
            return Err(error(0, "longer than 1024 bytes"));
        }
        let text = str::from_utf8(text).map_err(|_| error(0, "not UTF-8"))?;
        let (signed, signature) = split_signature(text);
        let pointer = Lines::new(signed)?.pointer()?;
        // One text for each pointer: `07` or `168h` for `7d` would be a second one.
        let expected = pointer.to_text();
        for (index, (found, expected)) in signed.lines().zip(expected.lines()).enumerate() {
            if found != expected {
                return Err(error(index + 1, &format!("expected '{expected}'")));
            }
        }
        if let Some(signature) = signature {
            check_signature_form(signature, signed.lines().count())?;
        }
        Ok(pointer)
    }

    /// Verifies the signature of a pointer's text.
    ///
    /// # Errors
    /// There is none, or it is not one of this text by this key.
    pub fn verify(text: &[u8], key: &PublicKey) -> Result<(), SignatureError> {
        let text = str::from_utf8(text).map_err(|_| SignatureError::Malformed)?;
        let (signed, signature) = split_signature(text);
        let signature = signature.ok_or(SignatureError::Missing)?;
        key.verify(signed.as_bytes(), signature)
    }

    /// Its text, without a signature.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        let mut line = |key: &str, value: String| {
            text.extend([key, " ", &value, "\n"]);
        };
        line("serial", self.serial.to_string());
        if let Some(serial) = self.replaces {
            line("replaces", serial.to_string());
        }
        line("release", self.release.to_string());
        line("size", self.size.to_string());
        let digest = blake3::Hash::from_bytes(self.digest);
        line("blake3", digest.to_hex().to_string());
        let published = time_text(self.published);
        line("published", format!("{published} by {}", self.publisher));
        if let Some(activate) = self.activate {
            line("activate", time_text(activate));
        }
        if !self.stages.is_empty() {
            line("stages", list_text(&self.stages));
        }
        line("keep", self.keep.to_string());
        if !self.void.is_empty() {
            let void: Vec<_> = self.void.iter().map(ToString::to_string).collect();
            line("void", void.join(" "));
        }
        if !self.note.is_empty() {
            line("note", self.note.clone());
        }
        if let Some(expires) = self.expires {
            line("expires", time_text(expires));
        }
        text
    }

    /// When a node of this name activates the release, in Unix seconds: the moment of activation
    /// (of publishing, if there are only stages) plus the beginning of the first stage that has the
    /// node. 0 for at once.
    #[must_use]
    pub fn activation(&self, node: &str) -> u64 {
        let share = share_of(node, self.serial);
        let has_node = |stage: &&Stage| u64::from(stage.percent) > share;
        self.begins(self.stages.iter().find(has_node))
    }

    /// When the first nodes activate the release, in Unix seconds; 0 for at once.
    #[must_use]
    pub fn first_activation(&self) -> u64 {
        self.begins(self.stages.first())
    }

    /// When the last node activates the release, in Unix seconds; 0 for at once.
    #[must_use]
    pub fn last_activation(&self) -> u64 {
        self.begins(self.stages.last())
    }

    /// From when on the one before it is not in force anywhere, in Unix seconds: the last node has
    /// activated it, and it has been published.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.last_activation().max(self.published)
    }

    fn begins(&self, stage: Option<&Stage>) -> u64 {
        match (self.activate, stage) {
            (None, None) => 0,
            (moment, stage) => {
                let after_s = stage.map_or(0, |stage| stage.after_s);
                moment.unwrap_or(self.published).saturating_add(after_s)
            }
        }
    }

    /// Whether it may no longer be taken up at a moment, in Unix seconds.
    #[must_use]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// The signed text of a pointer, and its signature if there is one: the rest, from the line on with
/// which every minisign signature begins.
#[must_use]
pub fn split_signature(text: &str) -> (&str, Option<&str>) {
    match text.find(SIGNATURE_START) {
        Some(at) => (&text[..=at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Why a text is not a pointer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PointerError {
    /// The line, from 1; 0 for the text as a whole.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for PointerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => out.write_str(&self.why),
            line => write!(out, "line {line}: {}", self.why),
        }
    }
}

impl std::error::Error for PointerError {}

fn error(line: usize, why: &str) -> PointerError {
    PointerError {
        line,
        why: why.to_owned(),
    }
}

/// Two comments and two lines of Base64 (minisign's format), which only a key can verify.
fn check_signature_form(signature: &str, lines_before: usize) -> Result<(), PointerError> {
    let line = |index: usize| lines_before + index;
    let is_ended = signature.ends_with('\n');
    let lines: Vec<_> = signature.lines().collect();
    if lines.len() != 4 || !is_ended {
        return Err(error(
            line(1),
            "not a signature of four lines, and nothing after it",
        ));
    }
    if !lines[2].starts_with("trusted comment: ") {
        return Err(error(line(3), "not a trusted comment"));
    }
    for index in [1, 3] {
        let is_coded = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        if lines[index].is_empty() || !lines[index].bytes().all(is_coded) {
            return Err(error(line(index + 1), "not Base64"));
        }
    }
    match signature
        .chars()
        .any(|letter| letter.is_control() && letter != '\n')
    {
        true => Err(error(line(1), "a control character")),
        false => Ok(()),
    }
}

/// The lines of a text, of which the next is at `index`.
struct Lines<'t> {
    lines: Vec<(&'t str, &'t str)>,
    index: usize,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Result<Self, PointerError> {
        let body = text
            .strip_suffix('\n')
            .ok_or_else(|| error(0, "its last line has no end"))?;
        let mut lines = Vec::new();
        let mut last = None;
        for (index, line) in body.split('\n').enumerate() {
            if line.chars().any(char::is_control) {
                return Err(error(index + 1, "a control character"));
            }
            if index == 0 {
                if line != FIRST_LINE {
                    let newer = "not 'gannet pointer 1': not a pointer, or a newer format";
                    return Err(error(1, newer));
                }
                continue;
            }
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let Some(place) = KEYS.iter().position(|known| *known == key) else {
                return Err(error(index + 1, "an unknown key"));
            };
            match last.cmp(&Some(place)) {
                Ordering::Less => last = Some(place),
                Ordering::Equal => return Err(error(index + 1, &format!("a second '{key}'"))),
                Ordering::Greater => {
                    return Err(error(index + 1, &format!("'{key}' in a wrong place")));
                }
            }
            lines.push((key, value));
        }
        Ok(Self { lines, index: 0 })
    }

    /// The value of the next line if it has this key, read by `read`.
    fn optional<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&'t str) -> Result<T, &'static str>,
    ) -> Result<Option<T>, PointerError> {
        match self.lines.get(self.index) {
            Some((found, value)) if *found == key => {
                self.index += 1;
                // The first line has no key.
                let value = read(value).map_err(|why| error(self.index + 1, why))?;
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    fn required<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&'t str) -> Result<T, &'static str>,
    ) -> Result<T, PointerError> {
        let found = self.optional(key, read)?;
        found.ok_or_else(|| error(self.index + 2, &format!("'{key}' is missing")))
    }

    fn pointer(mut self) -> Result<Pointer, PointerError> {
        let serial = self.required("serial", read_serial)?;
        let replaces = self.optional("replaces", |value| {
            let replaced = read_serial(value)?;
            (replaced < serial)
                .then_some(replaced)
                .ok_or("not below its own serial")
        })?;
        let id = |value: &str| value.parse().map_err(|_| "not the id of a release");
        let release = self.required("release", id)?;
        let size = self.required("size", |value| parse_count(value).ok_or("not a length"))?;
        let digest = |value| digits(value).ok_or("not a digest of 64 hexadecimal digits");
        let digest = self.required("blake3", digest)?;
        let (published, publisher) = self.required("published", |value| {
            let (time, publisher) = value
                .split_once(" by ")
                .ok_or("not of the form TIME by NAME")?;
            Ok((read_time(time)?, read_text(publisher, PUBLISHER_LEN_MAX)?))
        })?;
        let activate = self.optional("activate", read_time)?;
        let stages = self.optional("stages", Stage::parse_list)?;
        let keep = self.required("keep", Keep::parse)?;
        let void = self.optional("void", |value| {
            let ids: Result<Vec<ReleaseId>, _> = value.split(' ').map(id).collect();
            let ids = ids?;
            match ids.len() > VOID_MAX || ids.contains(&release) {
                true => Err("more than 6 releases, or the one in force"),
                false => Ok(ids),
            }
        })?;
        let note = self.optional("note", |value| read_text(value, NOTE_LEN_MAX))?;
        let expires = self.optional("expires", read_time)?;
        Ok(Pointer {
            serial,
            replaces,
            release,
            size,
            digest,
            published,
            publisher,
            activate,
            stages: stages.unwrap_or_default(),
            keep,
            void: void.unwrap_or_default(),
            note: note.unwrap_or_default(),
            expires,
        })
    }
}

fn read_serial(value: &str) -> Result<u64, &'static str> {
    let serial = parse_count(value).filter(|serial| (1..=SERIAL_MAX).contains(serial));
    serial.ok_or("not a number from 1 to 999999999999")
}

fn read_time(value: &str) -> Result<u64, &'static str> {
    let time = parse_time(value).filter(|time| *time <= TIME_MAX);
    time.ok_or("not a time of the form 2026-11-23T08:30:00Z")
}

/// Text without control characters, which the caller has excluded.
fn read_text(value: &str, len_max: usize) -> Result<String, &'static str> {
    match value.is_empty() || value.len() > len_max || value.trim() != value {
        true => Err("empty, too long, or with a space at its end"),
        false => Ok(value.to_owned()),
    }
}

/// The first line of a pointer. A newer format has another one.
pub const FIRST_LINE: &str = "gannet pointer 1";

/// The keys, in their order.
const KEYS: [&str; 12] = [
    "serial",
    "replaces",
    "release",
    "size",
    "blake3",
    "published",
    "activate",
    "stages",
    "keep",
    "void",
    "note",
    "expires",
];

/// How a signature begins after the end of a line. No line of a pointer begins so.
const SIGNATURE_START: &str = "\nuntrusted comment: ";
