//! Brotli's encoder, compiled once.
//!
//! The library's encoder is generic over where its memory is from and what it reads: every crate that calls
//! it compiles all of it, once for each kind of memory. Here it is one function, for packing and for serving.

#![forbid(unsafe_code)]

mod memory;

use std::io::{self, Read};

use brotli::enc::{BrotliCompressCustomIoCustomDict, BrotliEncoderParams};
use brotli::{IoReaderWrapper, IoWriterWrapper};

pub use memory::Memory;

/// How to compress.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Effort {
    /// 0 to 11.
    pub level: u8,
    /// The logarithm of the window's length in bytes: 10 to 24 (RFC 7932, section 9.1).
    pub window_bits: u8,
}

/// Appends `len` bytes of `source`, compressed, to `out`. The decoder needs `dictionary`, too, unless that is
/// empty.
///
/// # Errors
/// Those of reading `source`.
pub fn compress(
    (source, len): (&mut dyn Read, usize),
    effort: Effort,
    dictionary: &[u8],
    memory: Memory,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let params = BrotliEncoderParams {
        quality: i32::from(effort.level),
        lgwin: i32::from(effort.window_bits),
        size_hint: len,
        use_dictionary: effort.level != 10 || len <= WORDS_UP_TO,
        ..Default::default()
    };
    let mut source = source;
    let (mut input, mut output) = ([0; 4096], [0; 4096]);
    BrotliCompressCustomIoCustomDict(
        &mut IoReaderWrapper(&mut source),
        &mut IoWriterWrapper(out),
        &mut input,
        &mut output,
        &params,
        memory,
        &mut |_, _, _, _| (),
        dictionary,
        io::ErrorKind::UnexpectedEof.into(),
    )?;
    Ok(())
}

/// Level 10 looks for words of the standard's dictionary at every position, a fifth of its time for a long text.
/// Whatever the length of a text, they save some 2 KB: up to here 3 to 7 %, beyond it 0.9 %.
const WORDS_UP_TO: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The coded length of words that the standard's dictionary has, followed by lines up to `len` bytes.
    fn coded_len(len: usize) -> usize {
        let words =
            "information university development government association environment department";
        let mut text = words.as_bytes().to_vec();
        text.resize(len, b'\n');
        let effort = Effort {
            level: 10,
            window_bits: 20,
        };
        let mut coded = Vec::new();
        let source: (&mut dyn Read, usize) = (&mut &text[..], len);
        compress(source, effort, b"", Memory::default(), &mut coded).expect("in memory");
        let mut decoded = Vec::new();
        let mut decoder = brotli::Decompressor::new(&coded[..], 4096);
        decoder.read_to_end(&mut decoded).expect("sound");
        assert_eq!(decoded, text);
        coded.len()
    }

    #[test]
    fn words_are_not_looked_up_in_long_texts() {
        let (short, long) = (coded_len(WORDS_UP_TO), coded_len(WORDS_UP_TO + 1));
        assert!(long > short + 20, "{short} and {long} bytes");
    }
}
