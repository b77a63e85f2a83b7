//! Examines an existing file before a download: it may already be complete, or be the beginning
//! that another tool downloaded.
//!
//! A download must never include bytes of another file, so the server has to confirm which it is:
//! by `If-Range` with the file's date (RFC 9110 section 13.1.5; gannet, `curl -R` and `wget` set a
//! file's date to that of the content), or by the digest of the whole representation.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gannet_http::semantics::date::write_date;
use gannet_io::cause::printable;

use super::Client;
use super::error::{GetError, Remedy, failure, redirected, unexpected};
use super::output::{beside, digest_of, wanted_digest};
use super::response::Head;
use super::url::Url;

/// What a file turned out to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Existing {
    /// Nothing to resume, or our own partial download.
    Nothing,
    /// The complete content, with the digest's algorithm if that was the proof.
    Whole(Option<&'static str>),
}

impl Client {
    /// Examines the file `path` and compares it with the server's. The beginning of the content
    /// gets the name and state of an interrupted download, which is then resumed.
    pub(super) fn examine(&self, url: &Url, path: &Path) -> Result<Existing, GetError> {
        let (part, tag) = (beside(path, ".part"), beside(path, ".part.tag"));
        let found = match fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() > 0 && !part.exists() => found,
            // If it cannot be examined, writing will report the error.
            _ => return Ok(Existing::Nothing),
        };
        let len = found.len();
        let date = write_date(found.mtime());
        let fields = [
            ("want-repr-digest", "sha-256=9, sha-512=5".to_owned()),
            ("accept-encoding", "identity".to_owned()),
            ("range", format!("bytes={}-{}", len - 1, len - 1)),
            ("if-range", String::from_utf8_lossy(&date).into_owned()),
        ];
        let fail = |error| failure(url, &error);
        let (head, _, at) = self.open(url, &fields).map_err(fail)?;
        let is_same = match head.status {
            206 => head
                .content_range
                .is_some_and(|(first, last, _)| (first, last) == (len - 1, len - 1)),
            200 => false,
            416 => {
                return Err(unproven(
                    url,
                    path,
                    &head,
                    "it is longer than the content of",
                ));
            }
            _ => return Err(fail(redirected(unexpected(&head), url, &at))),
        };
        let read = |error: io::Error| GetError::of_system("read", path, &error);
        if head.whole_len() == Some(len) {
            if is_same {
                return Ok(Existing::Whole(None));
            }
            if let Some(name) = proof(&head, path).map_err(read)? {
                return Ok(Existing::Whole(Some(name)));
            }
            return Err(unproven(
                url,
                path,
                &head,
                "nothing proves that it is the content of",
            ));
        }
        match head.tag.as_ref().filter(|_| is_same) {
            Some(strong) => {
                let write = |error: io::Error| GetError::of_system("write", &tag, &error);
                fs::write(&tag, format!("{strong}\n")).map_err(write)?;
                fs::rename(path, &part).map_err(write)?;
                Ok(Existing::Nothing)
            }
            None => {
                let why = "nothing proves that it is the beginning of";
                Err(unproven(url, path, &head, why))
            }
        }
    }
}

/// The algorithm of the server's digest, if the file matches it.
fn proof(head: &Head, path: &Path) -> io::Result<Option<&'static str>> {
    let wanted = head.repr_digest.as_deref().and_then(wanted_digest);
    let Some((name, algorithm, wanted)) = wanted else {
        return Ok(None);
    };
    Ok((digest_of(path, algorithm)? == wanted).then_some(name))
}

fn unproven(url: &Url, path: &Path, head: &Head, why: &str) -> GetError {
    let shown = printable(&path.to_string_lossy());
    let help = match &head.last_modified {
        Some(date) if head.whole_len() > fs::metadata(path).ok().map(|it| it.len()) => {
            let date = printable(date);
            format!("if you know that it is, say so: touch -d '{date}' {shown}")
        }
        _ => "remove it".to_owned(),
    };
    GetError::Failed {
        doing: "continue",
        object: path.display().to_string(),
        cause: format!("{why} {}", printable(url.typed())),
        help: Some(help),
        remedies: vec![Remedy::FetchAll],
    }
}
