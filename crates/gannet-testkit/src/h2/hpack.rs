//! An encoder and a decoder independent of gannet's.
//!
//! The library makes a table of all letters for each string that is Huffman-coded, which took a fifth of what tests
//! over HTTP/2 compute. Hence it gets strings as they are: each is decoded once, by the library, and remembered.

use std::cell::RefCell;
use std::collections::HashMap;

pub use fluke_hpack::Encoder;
use fluke_hpack::decoder::DecoderError;
use fluke_hpack::huffman::HuffmanDecoder;

thread_local! {
    /// What was decoded, by its code.
    static DECODED: RefCell<HashMap<Vec<u8>, Vec<u8>>> = RefCell::default();
}

/// Strings that are remembered: a fuzzer makes ever new ones.
const DECODED_MAX: usize = 10_000;

/// The bit of a string that is Huffman-coded.
const CODED: u8 = 0x80;

/// A decoder of the fields of a connection.
pub struct Decoder<'a>(fluke_hpack::Decoder<'a>);

impl Decoder<'_> {
    /// A decoder with an empty table of 4,096 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(fluke_hpack::Decoder::new())
    }

    /// Decodes a whole field block.
    ///
    /// # Errors
    ///
    /// It is malformed.
    #[expect(clippy::type_complexity, reason = "the library's")]
    pub fn decode(&mut self, block: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, DecoderError> {
        // What is malformed is the library's to refuse.
        self.0.decode(plain(block).as_deref().unwrap_or(block))
    }
}

impl Default for Decoder<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// The same block, with strings that are not coded (RFC 7541 section 6).
fn plain(mut block: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(2 * block.len());
    while let Some(&first) = block.first() {
        let (prefix, is_literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (index, len) = integer(block, prefix)?;
        out.extend(&block[..len]);
        block = &block[len..];
        if is_literal {
            for _ in 0..if index == 0 { 2 } else { 1 } {
                block = string(block, &mut out)?;
            }
        }
    }
    Some(out)
}

/// Writes the string in front as it is; returns what follows it.
fn string<'b>(block: &'b [u8], out: &mut Vec<u8>) -> Option<&'b [u8]> {
    let (len, begin) = integer(block, 7)?;
    let string = block.get(begin..begin.checked_add(len)?)?;
    if block[0] & CODED == 0 {
        out.extend(&block[..begin + len]);
    } else {
        DECODED.with_borrow_mut(|decoded| {
            if !decoded.contains_key(string) {
                let letters = HuffmanDecoder::new().decode(string).ok()?;
                if decoded.len() == DECODED_MAX {
                    decoded.clear();
                }
                decoded.insert(string.to_vec(), letters);
            }
            write_string(&decoded[string], out);
            Some(())
        })?;
    }
    Some(&block[begin + len..])
}

fn write_string(letters: &[u8], out: &mut Vec<u8>) {
    let Some(mut rest) = letters.len().checked_sub(127) else {
        out.push(letters.len() as u8);
        return out.extend(letters);
    };
    out.push(127);
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend(letters);
}

/// The integer in front, and how many bytes it has (RFC 7541 section 5.1).
fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, usize)> {
    let most = (1 << prefix) - 1;
    let first = usize::from(bytes.first()? & most as u8);
    if first < most {
        return Some((first, 1));
    }
    let mut value = most;
    for (nth, byte) in bytes.iter().enumerate().skip(1).take(4) {
        value += usize::from(byte & 127) << (7 * (nth - 1));
        if byte & 128 == 0 {
            return Some((value, nth + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coded strings of every length around the ends of prefixes are those that the library itself decodes.
    #[test]
    fn fields_are_those_that_the_library_decodes() {
        let (mut library, mut ours) = (fluke_hpack::Decoder::new(), Decoder::new());
        for len in (0..400).step_by(7).chain([126, 127, 128, 254, 255, 256]) {
            // Each letter 'e' has five bits, 8 of them five bytes.
            let mut value = [0x29, 0x4a, 0x52, 0x94, 0xa5].repeat(len);
            value.push(0x2f);
            for first in [
                &[0x40, 1, b'x'][..],
                &[0x00, 0x81, 0xf3],
                &[0x4f, 0x22],
                &[0x20, 0x4f],
            ] {
                let mut block = first.to_vec();
                write_string(&value, &mut block);
                let at = first.len();
                block[at] |= CODED;
                assert_eq!(
                    ours.decode(&block).ok(),
                    library.decode(&block).ok(),
                    "{len} {first:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for block in [
            &b"\x40\x85x"[..],
            b"\x40\x01x\x81\x00",
            b"\x40",
            b"\x7f\xff\xff\xff\xff\xff\x0f",
        ] {
            assert!(Decoder::new().decode(block).is_err(), "{block:?}");
        }
    }
}
