//! zip (PKWARE's APPNOTE 6.3.10), stored and deflated entries.
//!
//! Its list of files at the end is read entry by entry, so that no count or length in it decides
//! what is held in memory.

use std::io::{self, BufReader, Read};

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::limits::FILES_MAX;
use super::range::{InputRange, Positioned, RangeReader};
use super::{Entries, ImportError, read_error};

/// The bits of a Unix mode that mark a symbolic link.
const TYPE_MASK: u32 = 0o170_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

/// The fixed parts of the records, with their signatures.
const END_LEN: usize = 22;
const LOCATOR_LEN: usize = 20;
const END_64_LEN: usize = 56;
const ENTRY_LEN: usize = 46;
const LOCAL_LEN: usize = 30;

/// The longest comment after the last record.
const COMMENT_MAX: u64 = 0xffff;

/// Flags of encrypted entries, and of encrypted lists.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;

/// Extra fields: 64-bit lengths, and the name in UTF-8.
const EXTRA_ZIP64: u16 = 1;
const EXTRA_NAME: u16 = 0x7075;

pub(super) fn read(file: &dyn Positioned, entries: &mut dyn Entries) -> Result<(), ImportError> {
    let list = List::find(file)?;
    if list.count > FILES_MAX {
        return Err(ImportError::TooMuch("it has too many files".into()));
    }
    let range = list.range;
    let mut reader = BufReader::new(RangeReader { file, range });
    let mut buffer = Vec::new();
    for _ in 0..list.count {
        let entry = Entry::read(&mut reader, &mut buffer)?;
        if entry.name.ends_with(b"/") {
            continue;
        }
        if entry.is_link {
            entries.left_out(&entry.name, "a symbolic link");
            continue;
        }
        let mut content = entry.content(file, list.shift)?;
        entries.file(&entry.name, entry.modified, Some(entry.len), &mut content)?;
    }
    Ok(())
}

fn damaged() -> ImportError {
    let what = "its list of files, at its end, is missing or damaged: it may be cut short";
    ImportError::Damaged(what.into())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .and_then(|it| it.try_into().ok())
        .map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|it| it.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|it| it.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Reads a fixed part, if it is there and has its signature.
fn fixed<const LEN: usize>(
    file: &dyn Positioned,
    offset: u64,
    signature: [u8; 4],
) -> Result<Option<[u8; LEN]>, ImportError> {
    let mut bytes = [0; LEN];
    let range = InputRange {
        offset,
        len: LEN as u64,
    };
    match (RangeReader { file, range }).read_exact(&mut bytes) {
        Ok(()) => Ok(Some(bytes).filter(|bytes| bytes.starts_with(&signature))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(read_error(error)),
    }
}

/// The position of the list of files.
struct List {
    range: InputRange,
    count: u64,
    /// Bytes before the archive, such as a program that unpacks it.
    shift: u64,
}

impl List {
    fn find(file: &dyn Positioned) -> Result<Self, ImportError> {
        let len = file.total_len().map_err(ImportError::Read)?;
        let start = len.saturating_sub(END_LEN as u64 + COMMENT_MAX);
        let mut tail = Vec::new();
        let range = InputRange {
            offset: start,
            len: len - start,
        };
        RangeReader { file, range }
            .read_to_end(&mut tail)
            .map_err(read_error)?;
        let is_end = |at: &usize| {
            let rest = &tail[*at..];
            rest.starts_with(b"PK\x05\x06") && rest.len() - END_LEN >= u16_at(rest, 20).into()
        };
        let last = tail.len().checked_sub(END_LEN).ok_or_else(damaged)?;
        let at = (0..=last).rev().find(is_end).ok_or_else(damaged)?;
        let (end, position) = (&tail[at..], start + at as u64);
        if u16_at(end, 4) != 0 && u16_at(end, 4) != 0xffff {
            let what = "it is one of several volumes";
            return Err(ImportError::Unsupported(what.into()));
        }
        let (count, size, offset) = (u16_at(end, 10), u32_at(end, 12), u32_at(end, 16));
        if (count == u16::MAX || size == u32::MAX || offset == u32::MAX)
            && let Some(list) = Self::find_64(file, position)?
        {
            return Ok(list);
        }
        Self::new(file, position, [count.into(), size.into(), offset.into()])
    }

    /// The list of a zip64: a locator before the last record names another one.
    fn find_64(file: &dyn Positioned, end: u64) -> Result<Option<Self>, ImportError> {
        let Some(at) = end.checked_sub(LOCATOR_LEN as u64) else {
            return Ok(None);
        };
        let Some(locator) = fixed::<LOCATOR_LEN>(file, at, *b"PK\x06\x07")? else {
            return Ok(None);
        };
        // What is before the archive is not counted in the locator, but the record is next to it.
        for position in [Some(u64_at(&locator, 8)), at.checked_sub(END_64_LEN as u64)] {
            let position = position.ok_or_else(damaged)?;
            if let Some(end) = fixed::<END_64_LEN>(file, position, *b"PK\x06\x06")? {
                let values = [32, 40, 48].map(|at| u64_at(&end, at));
                return Self::new(file, position, values).map(Some);
            }
        }
        Err(damaged())
    }

    /// A list that ends at `end`, with the position that is stored for it.
    fn new(
        file: &dyn Positioned,
        end: u64,
        [count, len, stored]: [u64; 3],
    ) -> Result<Self, ImportError> {
        let before_end = end.checked_sub(len).ok_or_else(damaged)?;
        let shifted = before_end
            .checked_sub(stored)
            .map(|shift| (before_end, shift));
        // A signature may lie between the list and its end.
        for (offset, shift) in [shifted, Some((stored, 0))].into_iter().flatten() {
            if count == 0 || fixed::<4>(file, offset, *b"PK\x01\x02")?.is_some() {
                let range = InputRange { offset, len };
                return Ok(Self {
                    range,
                    count,
                    shift,
                });
            }
        }
        Err(damaged())
    }
}

/// An entry of the list.
struct Entry {
    name: Vec<u8>,
    modified: Option<i64>,
    is_link: bool,
    method: u16,
    flags: u16,
    crc: u32,
    coded_len: u64,
    len: u64,
    offset: u64,
}

impl Entry {
    fn read(list: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Self, ImportError> {
        let mut fixed = [0; ENTRY_LEN];
        list.read_exact(&mut fixed).map_err(|_| damaged())?;
        if !fixed.starts_with(b"PK\x01\x02") {
            return Err(damaged());
        }
        let [name_len, extra_len, comment_len] = [28, 30, 32].map(|at| u16_at(&fixed, at));
        let rest = u64::from(name_len) + u64::from(extra_len) + u64::from(comment_len);
        buffer.clear();
        list.take(rest).read_to_end(buffer).map_err(read_error)?;
        if buffer.len() as u64 != rest {
            return Err(damaged());
        }
        let (raw, extra) = buffer.split_at(name_len.into());
        let mode = u32_at(&fixed, 38) >> 16;
        let is_unix = fixed[5] == 3;
        let mut entry = Self {
            name: name(raw, None),
            modified: modified(u16_at(&fixed, 14), u16_at(&fixed, 12)),
            is_link: is_unix && mode & TYPE_MASK == SYMBOLIC_LINK,
            method: u16_at(&fixed, 10),
            flags: u16_at(&fixed, 8),
            crc: u32_at(&fixed, 16),
            coded_len: u32_at(&fixed, 20).into(),
            len: u32_at(&fixed, 24).into(),
            offset: u32_at(&fixed, 42).into(),
        };
        entry.read_extra(raw, &extra[..extra_len.into()]);
        Ok(entry)
    }

    fn read_extra(&mut self, raw: &[u8], mut extra: &[u8]) {
        while let Some((head, rest)) = extra.split_at_checked(4) {
            let Some((field, after)) = rest.split_at_checked(u16_at(head, 2).into()) else {
                return;
            };
            match u16_at(head, 0) {
                // Only the values that have no room elsewhere, in this order.
                EXTRA_ZIP64 => {
                    let mut values = field.chunks_exact(8);
                    for value in [&mut self.len, &mut self.coded_len, &mut self.offset] {
                        if *value == u64::from(u32::MAX) {
                            *value = values.next().map_or(*value, |it| u64_at(it, 0));
                        }
                    }
                }
                // Valid as long as nothing has changed the other name.
                EXTRA_NAME if field.first() == Some(&1) && u32_at(field, 1) == crc_of(raw) => {
                    self.name = name(raw, field.get(5..));
                }
                _ => {}
            }
            extra = after;
        }
    }

    /// A reader of the content.
    fn content<'f>(
        &self,
        file: &'f dyn Positioned,
        shift: u64,
    ) -> Result<Checked<Box<dyn Read + 'f>>, ImportError> {
        let shown = || String::from_utf8_lossy(&self.name).into_owned();
        if self.flags & ENCRYPTED != 0 {
            let what = format!("entry '{}' is encrypted", shown());
            return Err(ImportError::Unsupported(what));
        }
        let no_content = || {
            let what = format!("entry '{}' has no content where its list says", shown());
            ImportError::Damaged(what)
        };
        let offset = self.offset.checked_add(shift).ok_or_else(no_content)?;
        let local = fixed::<LOCAL_LEN>(file, offset, *b"PK\x03\x04")?.ok_or_else(no_content)?;
        let skipped = u64::from(u16_at(&local, 26)) + u64::from(u16_at(&local, 28));
        let offset = offset + LOCAL_LEN as u64 + skipped;
        let range = InputRange {
            offset,
            len: self.coded_len,
        };
        let coded = RangeReader { file, range };
        let inner: Box<dyn Read> = match self.method {
            0 => Box::new(coded),
            8 => Box::new(DeflateDecoder::new(coded)),
            method => {
                let what = format!("entry '{}' is compressed by method {method}", shown());
                return Err(ImportError::Unsupported(what));
            }
        };
        Ok(Checked {
            inner,
            crc: Crc::new(),
            left: self.len,
            expected: self.crc,
        })
    }
}

/// Compares a content with the length and checksum that are stored for it.
struct Checked<R> {
    inner: R,
    crc: Crc,
    left: u64,
    expected: u32,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.crc.update(&bytes[..count]);
        let left = self.left.checked_sub(count as u64);
        let is_at_end = count == 0 && !bytes.is_empty();
        self.left = match left {
            Some(left) if !is_at_end || (left == 0 && self.crc.sum() == self.expected) => left,
            _ => {
                let what = "a file differs from the length or checksum stored for it";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        };
        Ok(count)
    }
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Decodes the name of an entry. Many programs write UTF-8 without the flag for it, so that only
/// other bytes are taken as code page 437, unless a field has the name in UTF-8. Without a slash,
/// backslashes count as slashes, since older Windows programs write them.
fn name(raw: &[u8], in_utf8: Option<&[u8]>) -> Vec<u8> {
    let name = match (str::from_utf8(raw), in_utf8.map(str::from_utf8)) {
        (Ok(name), _) | (Err(_), Some(Ok(name))) => name.to_owned(),
        _ => raw.iter().map(|byte| code_page_437(*byte)).collect(),
    };
    match name.contains('/') {
        true => name.into(),
        false => name.replace('\\', "/").into(),
    }
}

fn code_page_437(byte: u8) -> char {
    const UPPER: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
        └┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";
    match byte.checked_sub(0x80) {
        None => byte.into(),
        Some(index) => UPPER.chars().nth(index.into()).unwrap_or('\u{fffd}'),
    }
}

/// The modification time in Unix seconds, from the date and time of MS-DOS.
fn modified(date: u16, time: u16) -> Option<i64> {
    let bits = |word: u16, at: u32, len: u32| i64::from(word >> at & ((1 << len) - 1));
    unix_seconds([
        1980 + bits(date, 9, 7),
        bits(date, 5, 4),
        bits(date, 0, 5),
        bits(time, 11, 5),
        bits(time, 5, 6),
        bits(time, 0, 5) * 2,
    ])
}

/// zip stores local times without a zone; they are taken as UTC. 1 January 1980 means none.
fn unix_seconds([year, month, day, hour, minute, second]: [i64; 6]) -> Option<i64> {
    if !(1..=12).contains(&month) || (year, month, day) == (1980, 1, 1) {
        return None;
    }
    // Days before the year, counted from March so that the leap day comes last.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
            - 719_469;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_unix_seconds() {
        let check = |at, expect| assert_eq!(unix_seconds(at), expect, "{at:?}");
        check([1980, 1, 1, 0, 0, 0], None);
        check([1980, 1, 2, 0, 0, 0], Some(315_619_200));
        check([2000, 2, 29, 12, 34, 56], Some(951_827_696));
        check([2024, 3, 1, 0, 0, 0], Some(1_709_251_200));
        check([2024, 0, 1, 0, 0, 0], None);
    }
}
