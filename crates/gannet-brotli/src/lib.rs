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
