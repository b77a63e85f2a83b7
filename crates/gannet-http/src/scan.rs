//! Scans over bytes, eight at a time: the first byte of a class.
//!
//! A word's predicate sets the high bit of each byte in the class, and perhaps of bytes above one
//! that is (a borrow propagates upwards), so the lowest bit set is always correct.

/// Index of the first control byte (below 0x20, or 0x7f); the length if there is none.
#[inline]
pub(crate) fn find_control(bytes: &[u8]) -> usize {
    find(
        bytes,
        |word| below(word, 0x20) | equal(word, 0x7f),
        |byte| byte.is_ascii_control(),
    )
}

/// Index of the first space or control byte (up to 0x20, or 0x7f); the length if there is none.
#[inline]
pub(crate) fn find_not_visible(bytes: &[u8]) -> usize {
    find(
        bytes,
        // Only a hit borrows.
        |word| (word.wrapping_sub(ONES * 0x21) | ((word & !HIGH) + ONES)) & !word & HIGH,
        |byte| byte <= b' ' || byte == 0x7f,
    )
}

/// Index of the first `needle` (ASCII); the length if there is none.
#[inline]
pub(crate) fn find_byte(bytes: &[u8], needle: u8) -> usize {
    find(bytes, |word| equal(word, needle), |byte| byte == needle)
}

/// Index of the first `?` or `#`; the length if there is none.
#[inline]
pub(crate) fn find_path_end(bytes: &[u8]) -> usize {
    find(
        bytes,
        |word| equal(word, b'?') | equal(word, b'#'),
        |byte| matches!(byte, b'?' | b'#'),
    )
}

/// Whether there is no control byte except tabs.
#[inline]
pub(crate) fn is_text(mut bytes: &[u8]) -> bool {
    loop {
        let control = find_control(bytes);
        match bytes.get(control) {
            None => return true,
            Some(b'\t') => bytes = &bytes[control + 1..],
            Some(_) => return false,
        }
    }
}

/// Whether `byte` is a `tchar` of RFC 9110 section 5.6.2.
#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

/// A table of the bytes that are ASCII letters, digits or among `others`.
pub(crate) const fn letters_digits_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
}

/// Marks bytes below `limit` (at most 0x80).
#[inline]
pub(crate) const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & HIGH
}

/// Marks bytes equal to `byte`.
#[inline]
pub(crate) const fn equal(word: u64, byte: u8) -> u64 {
    let zero_where_equal = word ^ (ONES * byte as u64);
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGH
}

/// Index of the first byte for which `is_hit`; `mark` is the same predicate for a little-endian
/// word.
#[inline]
fn find(bytes: &[u8], mark: impl Fn(u64) -> u64, is_hit: impl Fn(u8) -> bool) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let marks = mark(u64::from_le_bytes(*word));
        if marks != 0 {
            return index * 8 + (marks.trailing_zeros() / 8) as usize;
        }
    }
    if tail.is_empty() {
        return bytes.len();
    }
    // Nothing was found before the tail, so the last word has its first hit there.
    if let Some(last) = bytes.last_chunk::<8>() {
        let marks = mark(u64::from_le_bytes(*last));
        return match marks {
            0 => bytes.len(),
            _ => bytes.len() - 8 + (marks.trailing_zeros() / 8) as usize,
        };
    }
    tail.iter()
        .position(|&byte| is_hit(byte))
        .unwrap_or(bytes.len())
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

const TOKEN: [bool; 256] = letters_digits_and(b"!#$%&'*+-.^_`|~");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn scans_find_what_a_plain_loop_finds(bytes in proptest::collection::vec(
            prop_oneof![4 => 0x20u8..0x7f, 1 => any::<u8>()], 0..64)) {
            let plain = |hit: fn(u8) -> bool| {
                bytes.iter().position(|&byte| hit(byte)).unwrap_or(bytes.len())
            };
            prop_assert_eq!(find_control(&bytes), plain(|b| b < 0x20 || b == 0x7f));
            let is_text = |b: &u8| *b == b'\t' || (*b >= b' ' && *b != 0x7f);
            prop_assert_eq!(super::is_text(&bytes), bytes.iter().all(is_text));
            prop_assert_eq!(find_not_visible(&bytes), plain(|b| b <= 0x20 || b == 0x7f));
            prop_assert_eq!(find_byte(&bytes, b':'), plain(|b| b == b':'));
            prop_assert_eq!(find_path_end(&bytes), plain(|b| b == b'?' || b == b'#'));
        }
    }
}
