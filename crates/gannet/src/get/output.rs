//! The file that a download becomes: under another name until it is complete and checked.
//!
//! `FILE.part` has the bytes, `FILE.part.tag` the entity tag they belong to. Only a download over
//! one connection can go on later: one in parts has holes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Algorithm, Context, SHA256, SHA512};

use super::limits::READ_LEN;
use super::response::Head;

/// One connection's share of the content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part {
    /// Its first byte.
    pub(super) start: u64,
    /// Its length, where it is known.
    pub(super) len: Option<u64>,
}

/// A file that is being written.
pub(super) struct Output {
    path: PathBuf,
    part: PathBuf,
    tag: PathBuf,
    file: File,
    /// Bytes that are there from before, and the entity tag they had.
    kept: Option<(u64, String)>,
    len: Option<u64>,
}

impl Output {
    /// Opens the file beside `path`, and keeps what is in it if a download goes on.
    pub(super) fn open(path: &Path, resumes: bool) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::Error::other("it is a directory"));
        }
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let (part, tag) = (beside(".part"), beside(".part.tag"));
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&part)?;
        let len = file.metadata()?.len();
        let kept = match fs::read_to_string(&tag) {
            Ok(tag) if resumes && len > 0 => Some((len, tag)),
            _ => None,
        };
        Ok(Self {
            path: path.to_owned(),
            part,
            tag,
            file,
            kept,
            len: None,
        })
    }

    /// The fields that ask for the rest.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("want-repr-digest", "sha-256=9, sha-512=5".to_owned())];
        if let Some((len, tag)) = &self.kept {
            fields.push(("range", format!("bytes={len}-")));
            fields.push(("if-range", tag.clone()));
        }
        fields
    }

    /// Whether a partial response is the rest of what is there.
    pub(super) fn fits(&self, head: &Head) -> bool {
        let kept = self.kept.as_ref().map(|(len, _)| *len);
        head.content_range
            .is_some_and(|(first, last, whole)| Some(first) == kept && last + 1 == whole)
    }

    /// Forgets what is there.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Gets ready for the content of `head` over at most `connections`.
    pub(super) fn begin(&mut self, head: &Head, connections: usize) -> io::Result<Vec<Part>> {
        let start = match (&self.kept, head.status) {
            (Some((len, _)), 206) => *len,
            _ => 0,
        };
        self.file.set_len(start)?;
        self.len = match head.content_range {
            Some((_, _, whole)) => Some(whole),
            None => head.content_length,
        };
        let left = self.len.map(|len| len.saturating_sub(start));
        let parts = match left {
            Some(left) if head.accepts_ranges || head.status == 206 => {
                shares(start, left, connections)
            }
            _ => vec![Part { start, len: left }],
        };
        match (&head.tag, parts.len()) {
            (Some(tag), 1) => fs::write(&self.tag, tag)?,
            _ => remove(&self.tag)?,
        }
        Ok(parts)
    }

    /// Writes `bytes` at `offset`.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Checks the length and the digest, and gives the file its name. The algorithm of the digest,
    /// where the server named one.
    pub(super) fn finish(&mut self, head: &Head) -> io::Result<Option<&'static str>> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let found = self.file.metadata()?.len();
        if let Some(len) = self.len.filter(|len| *len != found) {
            return Err(wrong(format!("{found} bytes came (expected {len})")));
        }
        let digest = head.repr_digest.as_deref().and_then(wanted_digest);
        if let Some((name, algorithm, wanted)) = &digest {
            let found = self.digest(algorithm)?;
            if found != *wanted {
                // What is wrong must not be gone on with.
                remove(&self.tag)?;
                return Err(wrong(format!(
                    "the {name} digest is {found} (expected {wanted})"
                )));
            }
        }
        fs::rename(&self.part, &self.path)?;
        remove(&self.tag)?;
        Ok(digest.map(|(name, _, _)| name))
    }

    fn digest(&mut self, algorithm: &'static Algorithm) -> io::Result<String> {
        let mut file = File::open(&self.part)?;
        let (mut context, mut buffer) = (Context::new(algorithm), vec![0; READ_LEN]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(base64(context.finish().as_ref())),
                count => context.update(&buffer[..count]),
            }
        }
    }
}

/// `left` bytes from `start` on, in at most `count` parts of about the same length.
fn shares(start: u64, left: u64, count: usize) -> Vec<Part> {
    let count = (count as u64).min(left.max(1));
    let at = |index: u64| start + (u128::from(left) * u128::from(index) / u128::from(count)) as u64;
    (0..count)
        .map(|index| Part {
            start: at(index),
            len: Some(at(index + 1) - at(index)),
        })
        .collect()
}

/// The first digest of `repr-digest` that can be checked: a dictionary of byte sequences
/// (RFC 9530 section 3, RFC 9651 section 3.2).
fn wanted_digest(field: &str) -> Option<(&'static str, &'static Algorithm, String)> {
    field.split(',').find_map(|member| {
        let (name, value) = member.trim().split_once('=')?;
        let value = value.strip_prefix(':')?.strip_suffix(':')?.to_owned();
        match name {
            "sha-256" => Some(("sha-256", &SHA256, value)),
            "sha-512" => Some(("sha-512", &SHA512, value)),
            _ => None,
        }
    })
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= group.len() {
                letter.into()
            } else {
                '='
            });
        }
    }
    text
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for (start, left, count) in [(0, 10, 3), (5, 1, 4), (0, 0, 2), (7, 1 << 40, 1024)] {
            let parts = shares(start, left, count);
            let mut at = start;
            for part in &parts {
                assert_eq!(part.start, at);
                at += part.len.expect("known");
            }
            assert_eq!(at, start + left);
            assert!(!parts.is_empty() && parts.len() <= count);
        }
    }

    #[test]
    fn digests_are_read_and_written() {
        for (bytes, expect) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), expect);
        }
        let found = wanted_digest("md5=:x:, sha-256=:abc=:, sha-512=:y:");
        assert_eq!(
            found.map(|(name, _, value)| (name, value)),
            Some(("sha-256", "abc=".into()))
        );
        assert!(wanted_digest("sha-256=abc").is_none());
    }
}
