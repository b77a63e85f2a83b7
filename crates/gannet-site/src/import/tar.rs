//! tar: ustar, GNU's long names and POSIX's extended headers (POSIX.1-2024, pax).
//!
//! Headers are parsed by the crate of that name, but records are read here: the crate reads those
//! that extend a header whole, whatever length they claim.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::limits::{EXTENDED_HEADER_MAX, NAME_RECORD_MAX};
use super::{Entries, ImportError, read_error};

/// The length of a header, bytes.
pub(super) const HEADER_LEN: u64 = 512;

/// Whether a tar starts with these bytes: a header with a valid checksum, or the zeros of an empty
/// one.
pub(super) fn is_header(first: &[u8]) -> bool {
    let Ok(bytes) = <&[u8; HEADER_LEN as usize]>::try_from(first) else {
        return false;
    };
    is_end(bytes) || is_sound(Header::from_byte_slice(bytes))
}

/// Zeros follow the last entry.
fn is_end(header: &[u8; HEADER_LEN as usize]) -> bool {
    header.iter().all(|byte| *byte == 0)
}

fn is_sound(header: &Header) -> bool {
    // The checksum field itself counts as spaces.
    let (before, rest) = header.as_bytes().split_at(148);
    let sum = before
        .iter()
        .chain(&rest[8..])
        .map(|byte| u32::from(*byte))
        .sum::<u32>()
        + 8 * 32;
    header.cksum().is_ok_and(|it| it == sum)
}

pub(super) fn read(from: impl Read, entries: &mut dyn Entries) -> Result<(), ImportError> {
    let mut records = TarRecords { from, position: 0 };
    let mut next = Extensions::default();
    while let Some(record) = records.next()? {
        entries.account(HEADER_LEN)?;
        match record.kind {
            EntryType::GNULongName => next.path = Some(records.name(&record, entries)?),
            EntryType::GNULongLink => next.link = Some(records.name(&record, entries)?),
            EntryType::XHeader => {
                let bytes = records.extension(&record, EXTENDED_HEADER_MAX, entries)?;
                next.read(&bytes, &record)?;
            }
            // Its fields are of no use here: comments, and defaults for owners and times.
            EntryType::XGlobalHeader => {
                records.extension(&record, EXTENDED_HEADER_MAX, entries)?;
            }
            _ => records.entry(&record, &std::mem::take(&mut next), entries)?,
        }
    }
    match next {
        Extensions {
            path: None,
            link: None,
            len: None,
            ..
        } => Ok(()),
        _ => Err(ImportError::Damaged(
            "its last record describes an entry that is missing".into(),
        )),
    }
}

/// A header.
struct Record {
    header: Header,
    kind: EntryType,
    /// The position of the header in the decoded archive.
    offset: u64,
    /// The length that the header claims for what follows.
    len: u64,
}

/// What records say about the entry after them.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    len: Option<u64>,
    is_sparse: bool,
}

impl Extensions {
    /// Reads an extended header: lines of `LENGTH KEY=VALUE`, where the length is that of the line
    /// and the value may contain line ends.
    fn read(&mut self, mut rest: &[u8], record: &Record) -> Result<(), ImportError> {
        while !rest.is_empty() {
            let Some((key, value, after)) = extended_line(rest) else {
                let what = format!("the extended header at byte {} is malformed", record.offset);
                return Err(ImportError::Damaged(what));
            };
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.len = str::from_utf8(value).ok().and_then(|it| it.parse().ok()),
                _ => self.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
            rest = after;
        }
        Ok(())
    }
}

/// The key and value of the first line, and what follows it.
fn extended_line(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = rest.iter().position(|byte| *byte == b' ')?;
    let len: usize = str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let (line, after) = rest.split_at_checked(len)?;
    let line = line.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = line.iter().position(|byte| *byte == b'=')?;
    Some((&line[..equals], &line[equals + 1..], after))
}

/// Reads records in order.
struct TarRecords<R> {
    from: R,
    position: u64,
}

impl<R: Read> TarRecords<R> {
    /// The next header; `None` at the end.
    fn next(&mut self) -> Result<Option<Record>, ImportError> {
        let mut bytes = Vec::new();
        self.from
            .by_ref()
            .take(HEADER_LEN)
            .read_to_end(&mut bytes)
            .map_err(read_error)?;
        let Ok(bytes) = <[u8; HEADER_LEN as usize]>::try_from(bytes.as_slice()) else {
            return match bytes.len() {
                0 => Ok(None),
                _ => Err(self.cut_short()),
            };
        };
        if is_end(&bytes) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&bytes).clone();
        let offset = self.position;
        if !is_sound(&header) {
            let what = format!("the header at byte {offset} has a wrong checksum");
            return Err(ImportError::Damaged(what));
        }
        let len = header.entry_size().map_err(read_error)?;
        self.position += HEADER_LEN;
        Ok(Some(Record {
            kind: header.entry_type(),
            header,
            offset,
            len,
        }))
    }

    fn cut_short(&self) -> ImportError {
        ImportError::Damaged(format!("it is cut short after byte {}", self.position))
    }

    /// A long name, without the zero byte that GNU tar ends it with.
    fn name(&mut self, record: &Record, entries: &mut dyn Entries) -> Result<Vec<u8>, ImportError> {
        let mut name = self.extension(record, NAME_RECORD_MAX, entries)?;
        name.pop_if(|last| *last == 0);
        Ok(name)
    }

    /// The content of a record that extends the next header, or of one that is skipped.
    fn extension(
        &mut self,
        record: &Record,
        max: u64,
        entries: &mut dyn Entries,
    ) -> Result<Vec<u8>, ImportError> {
        let Record {
            kind, offset, len, ..
        } = record;
        if *len > max {
            let kind = kind.as_byte().escape_ascii();
            return Err(ImportError::TooMuch(format!(
                "the record of type '{kind}' at byte {offset} has {len} bytes (at most {max})"
            )));
        }
        entries.account(*len)?;
        let mut content = Vec::new();
        self.from
            .by_ref()
            .take(*len)
            .read_to_end(&mut content)
            .map_err(read_error)?;
        self.end(*len, *len - content.len() as u64)?;
        Ok(content)
    }

    /// Skips what is left of a content, and the padding after it.
    fn end(&mut self, len: u64, left: u64) -> Result<(), ImportError> {
        let padded = len.checked_next_multiple_of(HEADER_LEN);
        let next = padded.and_then(|padded| self.position.checked_add(padded));
        let (Some(padded), Some(next)) = (padded, next) else {
            return Err(self.cut_short());
        };
        let wanted = left + (padded - len);
        let skipped = io::copy(&mut self.from.by_ref().take(wanted), &mut io::sink());
        // The padding of the last entry may be missing.
        if skipped.map_err(read_error)? < left {
            return Err(self.cut_short());
        }
        self.position = next;
        Ok(())
    }

    fn entry(
        &mut self,
        record: &Record,
        extensions: &Extensions,
        entries: &mut dyn Entries,
    ) -> Result<(), ImportError> {
        let path = extensions
            .path
            .clone()
            .unwrap_or_else(|| record.header.path_bytes().into_owned());
        let shown = || String::from_utf8_lossy(&path).into_owned();
        let is_file = matches!(record.kind, EntryType::Regular | EntryType::Continuous);
        if record.kind == EntryType::GNUSparse || extensions.is_sparse {
            let what = format!("entry '{}' is a sparse file", shown());
            return Err(ImportError::Unsupported(what));
        }
        // Before there was a type for folders, they were marked by a slash.
        if is_file && !path.ends_with(b"/") {
            let len = extensions.len.unwrap_or(record.len);
            let modified = record
                .header
                .mtime()
                .ok()
                .and_then(|at| i64::try_from(at).ok());
            let mut content = self.from.by_ref().take(len);
            entries.file(&path, modified, Some(len), &mut content)?;
            let left = content.limit();
            return self.end(len, left);
        }
        self.extension(record, EXTENDED_HEADER_MAX, entries)?;
        match record.kind {
            EntryType::Link => {
                let own = record.header.link_name_bytes();
                match extensions.link.as_deref().or(own.as_deref()) {
                    Some(before) => entries.same_as(&path, before)?,
                    None => entries.left_out(&path, "a dangling link"),
                }
            }
            EntryType::Symlink => entries.left_out(&path, "a symbolic link"),
            _ if is_file || record.kind == EntryType::Directory => {}
            _ => entries.left_out(&path, "neither a file nor a folder"),
        }
        Ok(())
    }
}
