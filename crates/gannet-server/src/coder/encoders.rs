//! The encoders, at levels that fit work done while a site is served.
//!
//! Nothing is kept between two files: an idle server holds no tables.

use gannet_http::semantics::coding::Coding;
use libdeflater::{CompressionLvl, Compressor};

/// Codes `source` in a coding; `None` if it has no encoder here, or that failed.
pub(crate) fn encode(coding: Coding, source: &[u8]) -> Option<Vec<u8>> {
    match coding {
        Coding::Brotli => brotli(source),
        Coding::Zstd => zstd(source),
        Coding::Gzip => gzip(source),
        Coding::Identity | Coding::DictionaryBrotli | Coding::DictionaryZstd => None,
    }
}

/// 27 ms for 1 MB of HTML, to 17.5 %; level 4 takes two thirds of the time, to 18.7 %, level 6 half as
/// much again, to 17.4 %. zstd's level 9: 12 ms, to 18.2 %, and level 12 40 ms, to 18.1 %. gzip's level
/// 6: 9 ms, to 19.0 %, and level 9 20 ms, to 18.7 %.
const BROTLI_LEVEL: i32 = 5;
const ZSTD_LEVEL: i32 = 9;
const GZIP_LEVEL: i32 = 6;

/// Brotli's smaller windows make this encoder allocate tables of 32 MiB.
const BROTLI_WINDOW_BITS_MIN: u32 = 17;
const ZSTD_WINDOW_BITS_MIN: u32 = 16;
/// 4 MiB, the longest file of which Brotli is made. Twice as much would make 8 MiB of a search index 0.2 %
/// shorter with zstd.
const WINDOW_BITS_MAX: u32 = 22;

/// The logarithm of the window that holds `len` bytes.
fn window_bits(len: usize, min: u32) -> u32 {
    let needed = usize::BITS - len.saturating_sub(1).leading_zeros();
    needed.clamp(min, WINDOW_BITS_MAX)
}

fn brotli(source: &[u8]) -> Option<Vec<u8>> {
    let params = brotli::enc::BrotliEncoderParams {
        quality: BROTLI_LEVEL,
        lgwin: window_bits(source.len(), BROTLI_WINDOW_BITS_MIN) as i32,
        size_hint: source.len(),
        ..Default::default()
    };
    let mut out = Vec::with_capacity(source.len() / 4);
    brotli::BrotliCompress(&mut &source[..], &mut out, &params).ok()?;
    Some(out)
}

fn zstd(source: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?;
    let window = window_bits(source.len(), ZSTD_WINDOW_BITS_MIN);
    compressor.window_log(window).ok()?;
    compressor.compress(source).ok()
}

fn gzip(source: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = Compressor::new(CompressionLvl::new(GZIP_LEVEL).ok()?);
    let mut out = vec![0; compressor.gzip_compress_bound(source.len())];
    let len = compressor.gzip_compress(source, &mut out).ok()?;
    out.truncate(len);
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use gannet_content::directory::coding::MADE;

    use super::*;

    fn decode(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Brotli => {
                let mut decoder = brotli::Decompressor::new(coded, 4_096);
                decoder.read_to_end(&mut out).expect("sound");
            }
            Coding::Zstd => out = zstd::decode_all(coded).expect("sound"),
            _ => {
                out.resize(10 << 20, 0);
                let mut decoder = libdeflater::Decompressor::new();
                let len = decoder.gzip_decompress(coded, &mut out).expect("sound");
                out.truncate(len);
            }
        }
        out
    }

    /// Every coding of every length decodes to the same bytes; text becomes much shorter.
    #[test]
    fn what_is_coded_can_be_decoded() {
        let line = |number: usize| format!("line {number} of {}\n", number * number % 1_003);
        let text: String = (0..450_000).map(line).collect();
        for len in [1_024, 1_025, 31_000, 70_000, 1 << 20, 4 << 20, 8 << 20] {
            let source = &text.as_bytes()[..len];
            for coding in MADE {
                let coded = encode(coding, source).expect("it can be coded");
                assert!(
                    coded.len() * 2 < len,
                    "{coding:?}: {} of {len}",
                    coded.len()
                );
                assert_eq!(decode(coding, &coded), source, "{coding:?}, {len} bytes");
            }
        }
        assert_eq!(encode(Coding::Identity, b"text"), None);
    }
}
