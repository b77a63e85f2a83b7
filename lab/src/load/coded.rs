//! Content of which neither the length nor the form is known before: in a coding that the server chose,
//! in chunks where it coded while it sent.
//!
//! Every byte is believed only after it was checked. The first answer in each form is decoded and
//! compared with the file; later ones must be one of the forms that were found right, byte by byte.

use std::io::{self, Read};

use super::Content;

/// Longest line of a chunk's size: eight digits and its end.
const SIZE_LINE_MAX: usize = 10;
/// Content longer than its file by more than this is no form of it, in bytes.
const EXPANSION_MAX: u64 = 1024;
/// Forms kept of each file; more are decoded each time.
const FORMS_MAX: usize = 4;

/// What the content of a response was coded with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Nothing.
    #[default]
    Identity,
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Coding {
    /// The coding of that name in `Content-Encoding`.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let names = [
            ("identity", Self::Identity),
            ("gzip", Self::Gzip),
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
        ];
        let mut names = names.into_iter();
        let found = names.find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, coding)| coding)
    }

    /// What `coded` was made of, as far as `len_max` bytes.
    fn decode(self, coded: &[u8], len_max: u64) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        match self {
            Self::Identity => plain.extend_from_slice(coded),
            Self::Gzip => {
                let mut decoder = flate2::bufread::GzDecoder::new(coded);
                decoder.by_ref().take(len_max).read_to_end(&mut plain)?;
                if !decoder.into_inner().is_empty() && (plain.len() as u64) < len_max {
                    return Err(io::Error::other("bytes after the end of the gzip member"));
                }
            }
            Self::Brotli => {
                let decoder = brotli_decompressor::Decompressor::new(coded, 4096);
                decoder.take(len_max).read_to_end(&mut plain)?;
            }
            Self::Zstd => {
                let decoder = zstd::Decoder::with_buffer(coded)?;
                decoder.take(len_max).read_to_end(&mut plain)?;
            }
        }
        Ok(plain)
    }
}

/// How the end of content is told (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By its length, in bytes.
    Length(u64),
    /// By the last chunk.
    Chunks,
}

/// What comes next in content that has arrived in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// So many bytes of content, and then the end.
    Last(u64),
    /// The line with the size of a chunk.
    Size,
    /// So many bytes of a chunk, and then the end of its line.
    Chunk(u64),
    /// The empty line after a chunk, or after the last one: then nothing follows.
    LineEnd { is_last: bool },
    /// Nothing.
    End,
}

/// Content on its way.
#[derive(Debug)]
pub(crate) struct Incoming {
    coding: Coding,
    next: Next,
    line: Vec<u8>,
    bytes: Vec<u8>,
    len_max: u64,
}

impl Incoming {
    /// Content in `coding` of a file of `len` bytes.
    pub(crate) fn new(coding: Coding, framing: Framing, len: u64) -> Result<Self, String> {
        let len_max = len + EXPANSION_MAX;
        let next = match framing {
            Framing::Length(0) => Next::End,
            Framing::Length(found) if found > len_max => {
                return Err(format!("{found} bytes for a file of {len}"));
            }
            Framing::Length(found) => Next::Last(found),
            Framing::Chunks => Next::Size,
        };
        Ok(Self {
            coding,
            next,
            line: Vec::new(),
            bytes: Vec::new(),
            len_max,
        })
    }

    /// Takes what has arrived; returns how many bytes of it are content.
    pub(crate) fn receive(&mut self, mut input: &[u8]) -> Result<u64, String> {
        let before = self.bytes.len();
        while !input.is_empty() {
            match self.next {
                Next::Last(left) | Next::Chunk(left) => {
                    let take = left.min(input.len() as u64);
                    let (content, rest) = input.split_at(take as usize);
                    self.bytes.extend_from_slice(content);
                    input = rest;
                    let left = left - take;
                    self.next = match self.next {
                        Next::Last(_) if left == 0 => Next::End,
                        Next::Last(_) => Next::Last(left),
                        _ if left == 0 => Next::LineEnd { is_last: false },
                        _ => Next::Chunk(left),
                    };
                }
                Next::Size | Next::LineEnd { .. } => {
                    self.line.push(input[0]);
                    input = &input[1..];
                    if self.line.ends_with(b"\r\n") {
                        self.next = self.after_line()?;
                        self.line.clear();
                    } else if self.line.len() >= SIZE_LINE_MAX {
                        return Err("a chunk has no size".into());
                    }
                }
                Next::End => {
                    let extra = input.len();
                    return Err(format!("{extra} bytes after the end of the response"));
                }
            }
        }
        Ok((self.bytes.len() - before) as u64)
    }

    fn after_line(&self) -> Result<Next, String> {
        let line = &self.line[..self.line.len() - 2];
        match self.next {
            Next::LineEnd { is_last } if line.is_empty() => Ok(match is_last {
                true => Next::End,
                false => Next::Size,
            }),
            Next::LineEnd { .. } => Err("a chunk is longer than its size says".into()),
            _ => {
                let is_size = !line.is_empty() && line.iter().all(u8::is_ascii_hexdigit);
                let size = str::from_utf8(line).ok().filter(|_| is_size);
                let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                match size {
                    None => Err("a chunk has no size".into()),
                    Some(0) => Ok(Next::LineEnd { is_last: true }),
                    Some(size) if self.bytes.len() as u64 + size > self.len_max => {
                        Err("more bytes than the file has".into())
                    }
                    Some(size) => Ok(Next::Chunk(size)),
                }
            }
        }
    }

    /// Whether nothing is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.next == Next::End
    }

    /// Bytes of content so far.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether it is something else than the file itself.
    pub(crate) fn is_coded(&self) -> bool {
        self.coding != Coding::Identity
    }
}

/// The forms of one file that were decoded and found right.
#[derive(Debug, Default)]
pub(crate) struct Forms(Vec<(Coding, Box<[u8]>)>);

impl Forms {
    /// Checks that `incoming`, which is whole, is `content` in its coding.
    pub(crate) fn check(&mut self, incoming: Incoming, content: &Content) -> Result<(), String> {
        let Incoming { coding, bytes, .. } = incoming;
        let mut known = self.0.iter();
        if known.any(|(of, form)| *of == coding && **form == *bytes) {
            return Ok(());
        }
        // One byte more than the file has shows that there are more.
        let plain = coding.decode(&bytes, content.len() + 1);
        let plain = plain.map_err(|e| format!("{coding:?}: {e}"))?;
        let (found, expected) = (plain.len() as u64, content.len());
        if found != expected {
            return Err(format!(
                "{coding:?}: length {found} at least (expected {expected})"
            ));
        }
        if !content.matches(0, &plain) {
            return Err(format!("{coding:?}: content differs"));
        }
        if self.0.len() < FORMS_MAX {
            self.0.push((coding, bytes.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TEXT: &[u8] = b"Hello, World! Hello, World! Hello, World!";

    fn content() -> Content {
        Content::new(TEXT.into(), 0, TEXT.len() as u64)
    }

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::default();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        encoder.write_all(plain).expect("memory");
        encoder.finish().expect("memory")
    }

    fn coded(coding: Coding, plain: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Identity => plain.to_vec(),
            Coding::Gzip => gzip(plain),
            Coding::Zstd => zstd::encode_all(plain, 3).expect("memory"),
            // An uncompressed metablock, and the empty last one (RFC 7932 section 9.2).
            Coding::Brotli => {
                let head = (plain.len() as u32 - 1) << 4 | 1 << 20;
                let bytes = [head as u8, (head >> 8) as u8, (head >> 16) as u8];
                [&bytes[..], plain, &[3]].concat()
            }
        }
    }

    /// What becomes of `bytes` as an answer in `coding`.
    fn outcome(coding: Coding, bytes: &[u8]) -> Result<(), String> {
        let framing = Framing::Length(bytes.len() as u64);
        let mut incoming = Incoming::new(coding, framing, TEXT.len() as u64)?;
        assert_eq!(incoming.receive(bytes), Ok(bytes.len() as u64));
        assert!(incoming.is_whole());
        Forms::default().check(incoming, &content())
    }

    #[test]
    fn content_in_every_coding_is_decoded_and_compared() {
        use Coding::{Brotli, Gzip, Identity, Zstd};
        for coding in [Identity, Gzip, Brotli, Zstd] {
            assert_eq!(outcome(coding, &coded(coding, TEXT)), Ok(()), "{coding:?}");
            let mut wrong = TEXT.to_vec();
            wrong[40] ^= 1;
            for (what, plain) in [
                ("another byte", &wrong[..]),
                ("too short", &TEXT[..40]),
                ("too long", &[TEXT, b"!"].concat()),
            ] {
                let found = outcome(coding, &coded(coding, plain));
                assert!(found.is_err(), "{coding:?}, {what}");
            }
            if coding != Identity {
                assert!(outcome(coding, TEXT).is_err(), "{coding:?}: not coded");
                let whole = coded(coding, TEXT);
                let cut = &whole[..whole.len() - 1];
                assert!(outcome(coding, cut).is_err(), "{coding:?}: cut off");
            }
        }
        let twice = [gzip(TEXT), b"x".to_vec()].concat();
        assert!(outcome(Gzip, &twice).is_err(), "something follows");
    }

    /// A form that was right once does not make another one right.
    #[test]
    fn each_form_is_checked() {
        let mut forms = Forms::default();
        let mut check = |bytes: &[u8]| {
            let framing = Framing::Length(bytes.len() as u64);
            let mut incoming = Incoming::new(Coding::Gzip, framing, TEXT.len() as u64)?;
            incoming.receive(bytes)?;
            forms.check(incoming, &content())
        };
        let good = gzip(TEXT);
        for _ in 0..3 {
            assert_eq!(check(&good), Ok(()));
        }
        // Its checksum and its length (RFC 1952 section 2.3.1).
        for at in good.len() - 8..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(check(&bad).is_err(), "byte {at}");
        }
        let mut other = TEXT.to_vec();
        other[7..12].copy_from_slice(b"Wurld");
        assert!(check(&gzip(&other)).is_err());
        assert_eq!(forms.0.len(), 1);
    }

    #[test]
    fn chunks_are_put_together_wherever_they_are_cut() {
        let whole = b"5\r\nHello\r\n0A\r\n, World! H\r\n0\r\n\r\n";
        for cut in 0..whole.len() {
            let mut incoming = Incoming::new(Coding::Identity, Framing::Chunks, 15).expect("good");
            let (first, second) = whole.split_at(cut);
            let mut count = incoming.receive(first).expect("good");
            assert!(!incoming.is_whole(), "cut at {cut}");
            count += incoming.receive(second).expect("good");
            assert!(incoming.is_whole(), "cut at {cut}");
            assert_eq!((count, &incoming.bytes[..]), (15, &b"Hello, World! H"[..]));
        }
    }

    #[test]
    fn wrong_chunks_are_noticed() {
        for wrong in [
            "\r\n",
            "x\r\n",
            "+5\r\nHello\r\n",
            "5;a=b\r\nHello\r\n",
            "5\r\nHello!\r\n",
            "FFFFFFFFF\r\n",
            "5\nHello\n\r\n",
            "FFFF\r\n",
            "0\r\nTrailer: x\r\n\r\n",
            "0\r\n\r\nHTTP",
        ] {
            let mut incoming = Incoming::new(Coding::Identity, Framing::Chunks, 15).expect("good");
            let found = incoming.receive(wrong.as_bytes());
            assert!(found.is_err(), "{wrong:?}: {found:?}");
        }
        let long = Incoming::new(Coding::Gzip, Framing::Length(15 + EXPANSION_MAX + 1), 15);
        assert!(long.is_err(), "longer than any form of the file");
    }
}
