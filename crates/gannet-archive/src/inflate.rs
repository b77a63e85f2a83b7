//! Content that is stored as gzip alone: from the coded bytes back to it.
//!
//! A length is known beforehand, so the room for the result is made once and nothing beyond it is
//! ever written, whatever the coded bytes claim to be.

use core::fmt;

use zlib_rs::{Inflate, InflateFlush, Status};

use crate::limits::INFLATED_LEN_MAX;

/// Why coded bytes do not come to the content that was announced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InflateError {
    /// They are not one sound member of gzip (RFC 1952), or something follows it.
    Damaged,
    /// The content has another length than was announced, or its checksum is wrong.
    Length,
    /// More was announced than an archive may store like this
    /// ([`INFLATED_LEN_MAX`](crate::limits::INFLATED_LEN_MAX)).
    Limit,
}

impl fmt::Display for InflateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "not one sound member of gzip",
            Self::Length => "not of the length that was announced",
            Self::Limit => "longer than what may be stored as gzip alone",
        })
    }
}

impl std::error::Error for InflateError {}

/// The `len` bytes that `gzip` (RFC 1952, one member) is the coding of. Its checksum is compared.
///
/// # Errors
///
/// `gzip` is damaged, or its content is not of this length; `len` is beyond
/// [`INFLATED_LEN_MAX`](crate::limits::INFLATED_LEN_MAX).
pub fn inflate(gzip: &[u8], len: u64) -> Result<Vec<u8>, InflateError> {
    if len > INFLATED_LEN_MAX {
        return Err(InflateError::Limit);
    }
    let mut content = vec![0; len as usize];
    let mut inflate = Inflate::new(true, GZIP_WINDOW_BITS);
    let status = inflate
        .decompress(gzip, &mut content, InflateFlush::Finish)
        .map_err(|_| InflateError::Damaged)?;
    if inflate.total_out() != len {
        return Err(InflateError::Length);
    }
    if status != Status::StreamEnd {
        // All of the room is used, and there is more to come: content, or a checksum that is cut.
        return Err(InflateError::Length);
    }
    if inflate.total_in() != gzip.len() as u64 {
        return Err(InflateError::Damaged);
    }
    Ok(content)
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
        let check = |gzip: &[u8], len, expect: Result<&[u8], InflateError>| {
            assert_eq!(inflate(gzip, len).as_deref(), expect.as_ref().copied());
        };
        let text = b"hello hello hello hello\n";
        check(HELLO, 24, Ok(text));
        check(HELLO, 23, Err(InflateError::Length));
        check(HELLO, 25, Err(InflateError::Length));
        check(HELLO, 0, Err(InflateError::Length));
        check(HELLO, u64::MAX, Err(InflateError::Limit));
        check(HELLO, INFLATED_LEN_MAX + 1, Err(InflateError::Limit));
        check(b"", 24, Err(InflateError::Length));
        check(b"hello hello hello", 24, Err(InflateError::Damaged));
        check(&[HELLO, b"\0"].concat(), 24, Err(InflateError::Damaged));
        check(&[HELLO, HELLO].concat(), 24, Err(InflateError::Damaged));
        for len in 0..HELLO.len() {
            assert!(inflate(&HELLO[..len], 24).is_err(), "cut at {len}");
        }
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
                assert!(inflate(&gzip, 24).is_err(), "byte {at} ^ {mask:#x}");
            }
        }
    }
}
