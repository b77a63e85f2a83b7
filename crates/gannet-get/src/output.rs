//! The output file of a download, under another name until it is complete and verified.
//!
//! `FILE.part` holds the bytes, `FILE.part.tag` records which (see [`PartialDownload`]), so that a download
//! can be resumed, however it ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Algorithm, Context, SHA256, SHA512};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gannet_http::semantics::date::parse_date;
use gannet_io::cause::printable;
use gannet_io::named_file;

use super::error::unwritten;
use super::limits::{READ_LEN, TAG_LEN_MAX};
use super::partial::PartialDownload;
use super::response::Head;

/// One connection's share of the content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part {
    /// Its first byte.
    pub(super) start: u64,
    /// Its length, if known.
    pub(super) len: Option<u64>,
}

/// A file being written.
pub(super) struct Output {
    path: PathBuf,
    part: PathBuf,
    tag: PathBuf,
    file: File,
    /// The state of an earlier download.
    partial: Option<PartialDownload>,
    /// Why existing bytes are unusable, if they are.
    pub(super) note: Option<String>,
    /// The length of the whole content, if known.
    len: Option<u64>,
    /// The strong entity tag of the content, if it has one.
    strong: Option<String>,
    parts: Vec<Part>,
    /// Bytes written to each part.
    written: Vec<AtomicU64>,
}

impl Output {
    /// Opens the file beside `path`, and keeps its bytes if the download is resumed.
    pub(super) fn open(path: &Path, resumes: bool) -> io::Result<Self> {
        let path = resolved(path)?;
        let (part, tag) = (beside(&path, ".part"), beside(&path, ".part.tag"));
        // An existing device or FIFO would be renamed to the output file in the end.
        if let Ok(found) = fs::metadata(&part)
            && !found.is_file()
        {
            let shown = part.display();
            let what = format!("'{shown}' exists and is not a file");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let mut options = OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&part)?;
        let len = file.metadata()?.len();
        let is_begun = resumes && len > 0;
        let (partial, lost) = match named_file::read_text(&tag, TAG_LEN_MAX) {
            _ if !is_begun => (None, None),
            Ok(text) => {
                let partial = PartialDownload::read(&text, len);
                let lost = partial.is_none().then_some("does not record what it holds");
                (partial, lost)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, Some("is missing")),
            Err(_) => (None, Some("cannot be read")),
        };
        // Tells a user who expects the rest of a long file that all of it is fetched again.
        let note = lost.map(|why| {
            let (part, tag) = (shown(&part), shown(&tag));
            format!("cannot resume '{part}', since '{tag}' {why}: starting over")
        });
        Ok(Self {
            note,
            path,
            part,
            tag,
            file,
            partial,
            len: None,
            strong: None,
            parts: Vec::new(),
            written: Vec::new(),
        })
    }

    /// The request fields for the missing bytes.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("want-repr-digest", "sha-256=9, sha-512=5".to_owned()),
            ("accept-encoding", "identity".to_owned()),
        ];
        if let Some(partial) = &self.partial {
            fields.push(("range", partial.range()));
            fields.push(("if-range", partial.tag.clone()));
        }
        fields
    }

    /// Whether a partial response continues the existing bytes.
    pub(super) fn fits(&self, head: &Head) -> bool {
        let range = head.content_range;
        let partial = self.partial.as_ref();
        partial
            .zip(range)
            .is_some_and(|(partial, range)| partial.fits(range))
    }

    /// Discards the earlier state.
    pub(super) fn forget(&mut self) {
        self.partial = None;
    }

    /// Prepares for the content of `head` over at most `connections`: returns what each of them
    /// fetches, part by part. The response at hand is the first part of the first.
    pub(super) fn begin(
        &mut self,
        head: &Head,
        connections: usize,
    ) -> io::Result<Vec<Vec<(usize, Part)>>> {
        self.len = head.whole_len();
        self.strong.clone_from(&head.tag);
        let (parts, written) = match (&self.partial, head.status) {
            (Some(partial), 206) => partial.parts(self.len.unwrap_or(0), connections),
            _ => {
                self.file.set_len(0)?;
                let parts = match self.len {
                    Some(len) if head.accepts_ranges => shares(0, len, connections),
                    len => vec![Part { start: 0, len }],
                };
                let written = vec![0; parts.len()];
                (parts, written)
            }
        };
        let mut tasks = vec![Vec::new(); connections.min(parts.len())];
        let count = tasks.len();
        let left = parts.iter().zip(&written).enumerate();
        let left = left.filter(|(_, (part, written))| part.len.is_none_or(|len| len > **written));
        for (turn, (index, (part, written))) in left.enumerate() {
            let rest = Part {
                start: part.start + written,
                len: part.len.map(|len| len - written),
            };
            tasks[turn % count].push((index, rest));
        }
        tasks.retain(|parts| !parts.is_empty());
        if tasks.is_empty() {
            // Even an empty content has a response to read.
            tasks.push(vec![(0, parts[0])]);
        }
        self.parts = parts;
        self.written = written.into_iter().map(AtomicU64::new).collect();
        remove(&self.tag)?;
        self.keep()?;
        Ok(tasks)
    }

    /// Writes `bytes` to part `index` at `offset` of the file.
    pub(super) fn write(&self, index: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let result = self.file.write_all_at(bytes, offset);
        result.map_err(|error| unwritten(&self.path, &error))?;
        // Recorded only once it is written: recorded bytes must be present.
        self.written[index].fetch_add(bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Records which bytes are present, so that a later download can resume. Does nothing if the
    /// server sends no strong entity tag, the only proof that the parts still belong together.
    pub(super) fn keep(&self) -> io::Result<()> {
        let Some(tag) = &self.strong else {
            return Ok(());
        };
        let written = self.written.iter().map(|n| n.load(Ordering::Acquire));
        let text = PartialDownload::write(tag, &self.parts, written);
        let mut new = self.tag.as_os_str().to_owned();
        new.push(".new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.tag));
        if written.is_err() {
            // The first error is reported; earlier bytes are still valid.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Ends a failed download: removes files that cannot be resumed. Returns whether any are left.
    pub(super) fn abandon(&self) -> bool {
        let any = self.written.iter().any(|n| n.load(Ordering::Acquire) > 0);
        if any && self.strong.is_some() {
            return self.keep().is_ok() || self.tag.exists();
        }
        // Nothing was begun: the state of the earlier download is still valid.
        if self.written.is_empty() && self.partial.is_some() {
            return true;
        }
        // The first error is reported.
        let _ = remove(&self.part);
        let _ = remove(&self.tag);
        false
    }

    /// Checks length and digest, and renames the file. Returns the digest's algorithm, if the
    /// server named one.
    pub(super) fn finish(&mut self, head: &Head) -> io::Result<Option<&'static str>> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let found = self.file.metadata()?.len();
        if let Some(len) = self.len.filter(|len| *len != found) {
            return Err(wrong(format!("received {found} bytes (expected {len})")));
        }
        let digest = head.repr_digest.as_deref().and_then(wanted_digest);
        if let Some((name, algorithm, wanted)) = &digest {
            let found = digest_of(&self.part, algorithm)?;
            if found != *wanted {
                // Content that fails its digest must not be resumed.
                self.strong = None;
                return Err(wrong(format!(
                    "the {name} digest is {found} (expected {wanted})"
                )));
            }
        }
        if let Some(date) = head.last_modified.as_deref()
            && let Some(modified) = parse_date(date.as_bytes(), unix_now())
            && let Ok(since) = u64::try_from(modified)
        {
            // Lets a later download see that nothing has changed. A file system without times is no
            // reason to fail.
            let _ = self
                .file
                .set_modified(UNIX_EPOCH + Duration::from_secs(since));
        }
        fs::rename(&self.part, &self.path)?;
        remove(&self.tag)?;
        Ok(digest.map(|(name, _, _)| name))
    }
}

/// The name of a file with `suffix` appended.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The digest of a file, in base64.
pub(super) fn digest_of(path: &Path, algorithm: &'static Algorithm) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut context, mut buffer) = (Context::new(algorithm), vec![0; READ_LEN]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(base64(context.finish().as_ref())),
            count => context.update(&buffer[..count]),
        }
    }
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// The path with links resolved. Only regular files are accepted, since a device or pipe would be
/// replaced by one.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found?,
    };
    if found.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a directory",
        ));
    }
    if !found.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a file",
        ));
    }
    fs::canonicalize(path)
}

/// Splits `left` bytes from `start` into at most `count` parts of about the same length.
pub(super) fn shares(start: u64, left: u64, count: usize) -> Vec<Part> {
    let count = (count as u64).min(left.max(1));
    let at = |index: u64| start + (u128::from(left) * u128::from(index) / u128::from(count)) as u64;
    (0..count)
        .map(|index| Part {
            start: at(index),
            len: Some(at(index + 1) - at(index)),
        })
        .collect()
}

/// The first digest of `repr-digest` that can be verified: a dictionary of byte sequences (RFC 9530
/// section 3, RFC 9651 section 3.2).
pub(super) fn wanted_digest(field: &str) -> Option<(&'static str, &'static Algorithm, String)> {
    field.split(',').find_map(|member| {
        let (name, value) = member.trim().split_once('=')?;
        // Parameters of a member are ignored.
        let value = value.split(';').next()?.trim_end();
        let value = value.strip_prefix(':')?.strip_suffix(':')?.to_owned();
        match name {
            "sha-256" => Some(("sha-256", &SHA256, value)),
            "sha-512" => Some(("sha-512", &SHA512, value)),
            _ => None,
        }
    })
}

/// RFC 4648 section 4.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
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
    fn digests_are_read() {
        let found = wanted_digest("md5=:x:, sha-256=:abc=:, sha-512=:y:");
        assert_eq!(
            found.map(|(name, _, value)| (name, value)),
            Some(("sha-256", "abc=".into()))
        );
        assert!(wanted_digest("sha-256=abc").is_none());
        assert!(wanted_digest("sha-256=:abc=:;a=1").is_some());
    }
}
