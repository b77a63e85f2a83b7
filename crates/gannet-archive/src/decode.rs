//! Content that is stored in a coding alone: from the coded bytes back to it.
//!
//! A length is known beforehand, so the room for the result is made once and nothing beyond it is
//! ever written, whatever the coded bytes claim to be. What a decoder holds beside it is bounded by
//! its format: 32 KiB for gzip, and for brotli a window of 16 MiB and its tables, which are made as
//! far as content fills them.

use core::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use zlib_rs::{Inflate, InflateFlush, Status};

use crate::entry::Coding;
use crate::limits::DECODED_LEN_MAX;

/// Why coded bytes do not come to the content that was announced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DecodeError {
    /// They are not sound: not one member of gzip (RFC 1952) or one stream of brotli (RFC 7932), or
    /// something follows it. Also if a coding was asked for that is not [decodable](is_decodable).
    Damaged,
    /// The content has another length than was announced, or gzip's checksum is wrong.
    Length,
    /// More was announced than an archive may store like this
    /// ([`DECODED_LEN_MAX`](crate::limits::DECODED_LEN_MAX)).
    Limit,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "not sound in its coding",
            Self::Length => "not of the length that was announced",
            Self::Limit => "longer than what may be stored in a coding alone",
        })
    }
}

impl std::error::Error for DecodeError {}

/// Whether a body may be stored in this coding alone.
pub const fn is_decodable(coding: Coding) -> bool {
    matches!(coding, Coding::Gzip | Coding::Brotli)
}

/// The `len` bytes that `coded` comes to. Gzip (one member) has a checksum, which is compared; brotli
/// has none: a digest tells whether these are the bytes that were coded.
///
/// # Errors
///
/// `coded` is damaged, or its content is not of this length; `len` is beyond
/// [`DECODED_LEN_MAX`](crate::limits::DECODED_LEN_MAX).
pub fn decode(coding: Coding, coded: &[u8], len: u64) -> Result<Vec<u8>, DecodeError> {
    if len > DECODED_LEN_MAX {
        return Err(DecodeError::Limit);
    }
    let mut content = vec![0; len as usize];
    match coding {
        Coding::Gzip => inflate(coded, &mut content)?,
        Coding::Brotli => match unbrotli(coded, &mut content)? {
            filled if filled == content.len() => {}
            _ => return Err(DecodeError::Length),
        },
        Coding::Identity | Coding::Zstd => return Err(DecodeError::Damaged),
    }
    Ok(content)
}

/// What `brotli` comes to, if that is at most [`DECODED_LEN_MAX`](crate::limits::DECODED_LEN_MAX) bytes.
///
/// # Errors
///
/// `brotli` is damaged, or comes to more.
pub fn decode_brotli(brotli: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut content = vec![0; DECODED_LEN_MAX as usize];
    let filled = unbrotli(brotli, &mut content)?;
    content.truncate(filled);
    content.shrink_to_fit();
    Ok(content)
}

/// Fills `content` from gzip.
fn inflate(gzip: &[u8], content: &mut [u8]) -> Result<(), DecodeError> {
    let mut inflate = Inflate::new(true, GZIP_WINDOW_BITS);
    let status = inflate
        .decompress(gzip, content, InflateFlush::Finish)
        .map_err(|_| DecodeError::Damaged)?;
    if inflate.total_out() != content.len() as u64 {
        return Err(DecodeError::Length);
    }
    if status != Status::StreamEnd {
        // All of the room is used, and there is more to come: content, or a checksum that is cut.
        return Err(DecodeError::Length);
    }
    if inflate.total_in() != gzip.len() as u64 {
        return Err(DecodeError::Damaged);
    }
    Ok(())
}

/// Fills `content` from brotli, and says how far.
fn unbrotli(brotli: &[u8], content: &mut [u8]) -> Result<usize, DecodeError> {
    let (mut unread, mut read) = (brotli.len(), 0);
    let (mut room, mut filled, mut total) = (content.len(), 0, 0);
    let alloc = StandardAlloc::default;
    // Without windows beyond 16 MiB, which RFC 7932 does not have.
    let mut state = BrotliState::new_strict(alloc(), alloc(), alloc());
    let result = BrotliDecompressStream(
        &mut unread,
        &mut read,
        brotli,
        &mut room,
        &mut filled,
        content,
        &mut total,
        &mut state,
    );
    match result {
        BrotliResult::ResultSuccess if unread == 0 => Ok(filled),
        BrotliResult::ResultSuccess | BrotliResult::ResultFailure => Err(DecodeError::Damaged),
        BrotliResult::NeedsMoreInput => Err(DecodeError::Damaged),
        BrotliResult::NeedsMoreOutput => Err(DecodeError::Length),
    }
}

/// The widest window of gzip, and 16 for its header and trailer.
const GZIP_WINDOW_BITS: u8 = 16 + 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// "hello hello hello hello\n", by gzip -9n.
    const HELLO: &[u8] = &[
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9,
        0x57, 0xc8, 0x40, 0x27, 0xb9, 0x00, 0x00, 0x88, 0x59, 0x0b, 0x18, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn only_the_announced_content_comes_out() {
        let check = |gzip: &[u8], len, expect: Result<&[u8], DecodeError>| {
            let got = decode(Coding::Gzip, gzip, len);
            assert_eq!(got.as_deref(), expect.as_ref().copied());
        };
        let text = b"hello hello hello hello\n";
        check(HELLO, 24, Ok(text));
        check(HELLO, 23, Err(DecodeError::Length));
        check(HELLO, 25, Err(DecodeError::Length));
        check(HELLO, 0, Err(DecodeError::Length));
        check(HELLO, u64::MAX, Err(DecodeError::Limit));
        check(HELLO, DECODED_LEN_MAX + 1, Err(DecodeError::Limit));
        check(b"", 24, Err(DecodeError::Length));
        check(b"hello hello hello", 24, Err(DecodeError::Damaged));
        check(&[HELLO, b"\0"].concat(), 24, Err(DecodeError::Damaged));
        check(&[HELLO, HELLO].concat(), 24, Err(DecodeError::Damaged));
        for len in 0..HELLO.len() {
            assert!(
                decode(Coding::Gzip, &HELLO[..len], 24).is_err(),
                "cut at {len}"
            );
        }
    }

    /// The same by brotli in quality 11.
    const HELLO_BROTLI: &[u8] =
        b"\x1b\x17\x00\xf8\x8d\x94\x6e\xde\x44\x55\x86\xd6\x0a\x20\x6c\x6f\x4a\x11\x79\xe2\x80\xae\x16";

    #[test]
    fn of_brotli_only_content_of_the_announced_length_comes_out() {
        let check = |brotli: &[u8], len, expect: Result<&[u8], DecodeError>| {
            let got = decode(Coding::Brotli, brotli, len);
            assert_eq!(got.as_deref(), expect.as_ref().copied());
        };
        check(HELLO_BROTLI, 24, Ok(b"hello hello hello hello\n"));
        check(HELLO_BROTLI, 23, Err(DecodeError::Length));
        check(HELLO_BROTLI, 25, Err(DecodeError::Length));
        check(HELLO_BROTLI, 0, Err(DecodeError::Length));
        check(HELLO_BROTLI, u64::MAX, Err(DecodeError::Limit));
        check(b"", 24, Err(DecodeError::Damaged));
        check(HELLO, 24, Err(DecodeError::Damaged));
        let behind = [HELLO_BROTLI, b"\0"].concat();
        check(&behind, 24, Err(DecodeError::Damaged));
        for len in 0..HELLO_BROTLI.len() {
            let cut = decode(Coding::Brotli, &HELLO_BROTLI[..len], 24);
            assert_eq!(cut, Err(DecodeError::Damaged), "cut at {len}");
        }
        // A window beyond 16 MiB, as other than RFC 7932 has it.
        check(b"\x11\x1e\x00\x00", 24, Err(DecodeError::Damaged));
    }

    #[test]
    fn what_others_wrote_over_brotli_comes_to_so_many_bytes_or_none() {
        let mut state = 1_u64;
        let mut number = move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize
        };
        let mut sound = 0;
        for _ in 0..20_000 {
            let mut brotli = HELLO_BROTLI.to_vec();
            for _ in 0..1 + number() % 4 {
                let at = number() % brotli.len();
                brotli[at] = number() as u8;
            }
            let len = number() as u64 % 64;
            if let Ok(content) = decode(Coding::Brotli, &brotli, len) {
                assert_eq!(content.len() as u64, len);
                sound += 1;
            }
        }
        assert!(sound > 0);
    }

    #[test]
    fn a_flip_of_a_byte_that_counts_is_refused() {
        // Flags, modification time, extra flags and system (RFC 1952 section 2.3): some of their bits
        // say nothing of the content.
        let says_nothing = 3..10;
        for at in (0..HELLO.len()).filter(|at| !says_nothing.contains(at)) {
            for mask in [0x01, 0x80, 0xff] {
                let mut gzip = HELLO.to_vec();
                gzip[at] ^= mask;
                assert!(
                    decode(Coding::Gzip, &gzip, 24).is_err(),
                    "byte {at} ^ {mask:#x}"
                );
            }
        }
    }
}
