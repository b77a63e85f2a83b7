//! A strict parser for HTTP/3 responses.
//!
//! It accepts only what a static file needs (RFC 9114 sections 4.1 and 7.2): a HEADERS frame that
//! begins with `:status: 200` from the static table, then DATA. It skips unknown frames; anything
//! else is an error, because a measurement of wrong responses is worse than none.

/// Maximum field section in bytes: four times what any of the measured servers sends.
const SECTION_MAX: u64 = 4096;
/// Frame types.
const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
/// Types forbidden on a request stream: those of control streams and of HTTP/2.
const FORBIDDEN: [u64; 9] = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];
/// A section without dynamic references whose first field is entry 25 of the static table (RFC 9204
/// appendix A): `:status: 200`.
const OK: [u8; 3] = [0, 0, 0xc0 | 25];

/// The position of the next byte in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The header of a frame.
    Frame,
    /// A field section, with this many bytes left.
    Section(u64),
    /// Content, likewise.
    Data(u64),
    /// An unknown frame, likewise.
    Unknown(u64),
}

/// A response being received.
#[derive(Debug)]
pub(crate) struct Response {
    at: At,
    /// The received part of an incomplete frame header or field section.
    partial: Vec<u8>,
    has_head: bool,
}

impl Response {
    /// Creates a response of which nothing was received.
    pub(crate) fn new() -> Self {
        Self {
            at: At::Frame,
            partial: Vec::new(),
            has_head: false,
        }
    }

    /// Parses the next bytes and passes content to `content`.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        content: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        while let Some(&next) = bytes.first() {
            match self.at {
                At::Frame => {
                    self.partial.push(next);
                    bytes = &bytes[1..];
                    if let Some((kind, len)) = header(&self.partial) {
                        self.partial.clear();
                        self.begin(kind, len)?;
                    }
                }
                At::Section(left) => {
                    let (here, rest) = split(bytes, left);
                    self.partial.extend_from_slice(here);
                    bytes = rest;
                    self.at = At::Section(left - here.len() as u64);
                    if self.at == At::Section(0) {
                        self.section()?;
                    }
                }
                At::Data(left) => {
                    let (here, rest) = split(bytes, left);
                    content(here)?;
                    bytes = rest;
                    self.at = after(At::Data, left, here);
                }
                At::Unknown(left) => {
                    let (here, rest) = split(bytes, left);
                    bytes = rest;
                    self.at = after(At::Unknown, left, here);
                }
            }
        }
        Ok(())
    }

    /// Whether the stream may end here.
    pub(crate) fn is_complete(&self) -> bool {
        self.has_head && self.at == At::Frame && self.partial.is_empty()
    }

    fn begin(&mut self, kind: u64, len: u64) -> Result<(), String> {
        self.at = match kind {
            HEADERS if self.has_head => return Err("a second field section".into()),
            HEADERS if len > SECTION_MAX => return Err(format!("a field section of {len} bytes")),
            HEADERS if len == 0 => return Err("an empty field section".into()),
            HEADERS => At::Section(len),
            DATA if !self.has_head => return Err("content before the head".into()),
            _ if FORBIDDEN.contains(&kind) => return Err(format!("a frame of type {kind:#x}")),
            _ if len == 0 => At::Frame,
            DATA => At::Data(len),
            _ => At::Unknown(len),
        };
        Ok(())
    }

    fn section(&mut self) -> Result<(), String> {
        if !self.partial.starts_with(&OK) {
            let first = &self.partial[..self.partial.len().min(8)];
            return Err(format!(
                "a head that begins with {first:02x?}, not with status 200"
            ));
        }
        self.partial.clear();
        self.has_head = true;
        self.at = At::Frame;
        Ok(())
    }
}

/// Splits `bytes` after at most `left` bytes.
fn split(bytes: &[u8], left: u64) -> (&[u8], &[u8]) {
    bytes.split_at(left.min(bytes.len() as u64) as usize)
}

/// The position after `here`, if `left` bytes were left before.
fn after(at: fn(u64) -> At, left: u64, here: &[u8]) -> At {
    match left - here.len() as u64 {
        0 => At::Frame,
        left => at(left),
    }
}

/// The type and length of a frame, if its header is complete.
fn header(bytes: &[u8]) -> Option<(u64, u64)> {
    let (kind, rest) = varint(bytes)?;
    let (len, _) = varint(rest)?;
    Some((kind, len))
}

/// A variable-length integer (RFC 9000 section 16), and the bytes after it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let (number, rest) = bytes.split_at_checked(len)?;
    let start = u64::from(first & 0x3f);
    let value = number[1..]
        .iter()
        .fold(start, |v, &b| v << 8 | u64::from(b));
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head, unknown frames around it, and 70 bytes of content in two frames.
    fn good() -> Vec<u8> {
        let mut bytes = vec![0x21, 2, 9, 9, 0x01, 5];
        bytes.extend(OK);
        bytes.extend([0xd9, 0xd9, 0x21, 0, 0x00, 0x40, 64]);
        bytes.extend([7; 64]);
        bytes.extend([0x00, 6, 7, 7, 7, 7, 7, 7]);
        bytes
    }

    fn read(pieces: &[&[u8]]) -> Result<(bool, Vec<u8>), String> {
        let (mut response, mut content) = (Response::new(), Vec::new());
        for piece in pieces {
            response.take(piece, &mut |bytes| {
                content.extend_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok((response.is_complete(), content))
    }

    #[test]
    fn a_response_is_read_however_it_is_cut() {
        let bytes = good();
        for cut in 0..=bytes.len() {
            let (start, end) = bytes.split_at(cut);
            assert_eq!(read(&[start, end]), Ok((true, vec![7; 70])), "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), Ok((true, vec![7; 70])));
    }

    #[test]
    fn one_that_is_cut_off_is_not_complete() {
        let bytes = good();
        // Between frames, truncation shows only in the length of the content.
        let between = [11, 13, 80];
        for end in 0..bytes.len() {
            let (is_complete, _) = read(&[&bytes[..end]]).expect("valid so far");
            assert_eq!(is_complete, between.contains(&end), "cut off at {end}");
        }
    }

    #[test]
    fn what_is_wrong_is_an_error() {
        for (bytes, expect) in [
            (&[0x00, 1, 7][..], "before the head"),
            (&[0x01, 3, 0, 0, 0xc0 | 24], "not with status 200"),
            (&[0x01, 3, 0, 0, 0xc0 | 27], "not with status 200"),
            (&[0x01, 3, 1, 0, 0xc0 | 25], "not with status 200"),
            (&[0x01, 0], "an empty field section"),
            (&[0x01, 0x60, 0], "a field section of 8192 bytes"),
            (&[0x01, 3, 0, 0, 0xd9, 0x01, 3, 0, 0, 0xd9], "a second"),
            (&[0x04, 0], "a frame of type 0x4"),
            (&[0x02, 0], "a frame of type 0x2"),
        ] {
            let found = read(&[bytes]).expect_err("invalid");
            assert!(found.contains(expect), "{found:?} for {bytes:02x?}");
        }
    }
}
