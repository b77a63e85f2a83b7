//! Integers with a prefix (RFC 7541 section 5.1).

use super::CodingError;

/// Reads an integer whose first byte is `first`, with a prefix of `prefix_len` bits (1 to 8);
/// further bytes are taken from `input`.
///
/// # Errors
/// [`CodingError::Truncated`], or [`CodingError::Integer`] for more than four further bytes: no
/// number in a field block needs more.
#[inline]
pub fn decode(first: u8, prefix_len: u8, input: &mut &[u8]) -> Result<u32, CodingError> {
    let mask = (0xff_u16 >> (8 - prefix_len)) as u8;
    let prefix = first & mask;
    if prefix < mask {
        return Ok(prefix.into());
    }
    decode_rest(mask.into(), input)
}

fn decode_rest(prefix: u32, input: &mut &[u8]) -> Result<u32, CodingError> {
    let mut number = prefix;
    for shift in [0, 7, 14, 21] {
        let (&byte, rest) = input.split_first().ok_or(CodingError::Truncated)?;
        *input = rest;
        // At most 2^28 - 1 + 255.
        number += u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(CodingError::Integer)
}

/// Appends an integer; `first` holds the bits before the prefix, followed by zeros.
pub fn encode(number: usize, first: u8, prefix_len: u8, out: &mut Vec<u8>) {
    let mask = (0xff_u16 >> (8 - prefix_len)) as u8;
    if number < usize::from(mask) {
        out.push(first | number as u8);
        return;
    }
    out.push(first | mask);
    let mut rest = number - usize::from(mask);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], prefix_len: u8) -> Result<(u32, usize), CodingError> {
        let mut input = &bytes[1..];
        decode(bytes[0], prefix_len, &mut input).map(|number| (number, input.len()))
    }

    #[test]
    fn integers_come_back() {
        for prefix_len in 1..=8 {
            for number in (0..1000).chain([0xffff, 0xf_ffff, (1 << 28) - 1]) {
                let mut bytes = Vec::new();
                encode(number, 0, prefix_len, &mut bytes);
                bytes.push(0x55);
                assert_eq!(decoded(&bytes, prefix_len), Ok((number as u32, 1)));
            }
        }
    }

    #[test]
    fn the_examples_of_the_standard() {
        // RFC 7541 C.1
        assert_eq!(decoded(&[0b1110_1010], 5), Ok((10, 0)));
        assert_eq!(
            decoded(&[0b1111_1111, 0b1001_1010, 0b0000_1010], 5),
            Ok((1337, 0))
        );
        assert_eq!(decoded(&[42], 8), Ok((42, 0)));
    }

    #[test]
    fn what_does_not_end_or_grows_too_large_is_refused() {
        assert_eq!(decoded(&[0x1f], 5), Err(CodingError::Truncated));
        assert_eq!(decoded(&[0x1f, 0x80, 0x80], 5), Err(CodingError::Truncated));
        assert_eq!(decoded(&[0x1f, 0x80, 0x80, 0x80, 0], 5), Ok((31, 0)));
        assert_eq!(
            decoded(&[0x1f, 0x80, 0x80, 0x80, 0x80, 0], 5),
            Err(CodingError::Integer)
        );
        assert_eq!(
            decoded(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 8),
            Err(CodingError::Integer)
        );
    }
}
