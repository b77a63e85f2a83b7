//! Compresses a body in each coding, and keeps results that are worth it.

use std::cell::RefCell;
use std::io::{self, Read};
use std::num::NonZeroU64;

use gannet_archive::Coding;
use gannet_brotli::{Effort as BrotliEffort, Memory as BrotliMemory};
use gannet_content::mime::is_read_by_ranges;
use libdeflater::{CompressionLvl, Compressor};
use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, compress_to_output,
    create_comp_flags_from_zip_params,
};

use super::encoders::Encoder;
use super::limits::CODED_BUFFER_MAX;

/// A body in one coding.
#[derive(Clone, Debug)]
pub(super) struct Coded {
    pub(super) coding: Coding,
    pub(super) bytes: Vec<u8>,
}

/// Compresses `body` with each of `encoders`; returns the worthwhile results. `advance` receives the
/// work done, in the units of [`Encoder::work_per_byte`].
pub(super) fn compress(
    body: &[u8],
    encoders: &[Encoder],
    advance: &dyn Fn(u64),
) -> io::Result<Vec<Coded>> {
    let mut kept = Vec::new();
    if body.len() < LEN_MIN || is_read_by_ranges(body) || !looks_compressible(body) {
        return Ok(kept);
    }
    for encoder in encoders {
        let bytes = match *encoder {
            Encoder::Libdeflate(level) => gzip(body, level)?,
            Encoder::Zopfli => zopfli(body)?,
            Encoder::Huffman => huffman(body),
            Encoder::Brotli(level) => {
                let work = encoder.work_per_byte();
                brotli(body, level, &|count| advance(count * work))?
            }
            Encoder::Zstd(level) => zstd(body, level)?,
        };
        // Brotli, the slowest, has reported its work as it read the body.
        if !matches!(encoder, Encoder::Brotli(_)) {
            advance(body.len() as u64 * encoder.work_per_byte());
        }
        if pays(body.len(), bytes.len()) {
            kept.push(Coded {
                coding: encoder.coding(),
                bytes,
            });
        }
    }
    Ok(kept)
}

/// Whether a saving is worth another variant. A small file must shrink by a larger fraction: it
/// fits into the first packets either way, and a variant costs some hundred bytes of metadata that
/// a server holds in memory.
fn pays(len: usize, coded_len: usize) -> bool {
    let saved = len.saturating_sub(coded_len);
    if saved < SAVED_MIN {
        return false;
    }
    let percent = match len {
        0..=1024 => 25,
        1025..=4096 => 15,
        4097..=16_384 => 10,
        16_385..=65_536 => 8,
        65_537..=1_048_576 => 5,
        _ => 2,
    };
    saved * 100 >= len * percent
}

/// A smaller saving in bytes never pays: it saves no packet.
const SAVED_MIN: usize = 128;

/// Bodies below this length fit one packet with the response head, whatever their coding.
const LEN_MIN: usize = 256;

/// A quick probe, to skip the slow encoders for files that are compressed already, although their
/// names do not show it.
fn looks_compressible(body: &[u8]) -> bool {
    if body.len() < PROBE_FROM {
        return true;
    }
    // The start of a file is often atypical: sample three places.
    let probe_len = PROBE_FROM / 4;
    let places = [0, (body.len() - probe_len) / 2, body.len() - probe_len];
    // Not `fastest`, which stores without compressing.
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut out = vec![0; compressor.deflate_compress_bound(probe_len)];
    places.iter().any(|start| {
        let probe = &body[*start..*start + probe_len];
        let coded = compressor.deflate_compress(probe, &mut out);
        coded.is_ok_and(|coded_len| coded_len * 100 < probe_len * 97)
    })
}

const PROBE_FROM: usize = 64 << 10;

/// Encoders with their tables. Recreating them for each of a million small files would take longer
/// than compressing.
struct Compressors {
    /// The encoder with its level.
    gzip: Option<(u8, Compressor)>,
    zstd: Option<(u8, zstd::bulk::Compressor<'static>)>,
    brotli: BrotliMemory,
    /// A scratch buffer for coded bytes.
    buffer: Vec<u8>,
}

thread_local! {
    static COMPRESSORS: RefCell<Compressors> = RefCell::new(Compressors {
        gzip: None,
        zstd: None,
        brotli: BrotliMemory::pooled(),
        buffer: Vec::new(),
    });
}

impl Compressors {
    /// A scratch buffer of `len` bytes.
    fn buffer(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        &mut buffer[..len]
    }

    /// Releases the buffer of a large file.
    fn shrink(&mut self) {
        if self.buffer.len() > CODED_BUFFER_MAX {
            self.buffer = Vec::new();
        }
    }

    fn gzip(&mut self, body: &[u8], level: u8) -> io::Result<Vec<u8>> {
        let (_, compressor) = match &mut self.gzip {
            Some(made) if made.0 == level => made,
            other => {
                let number = CompressionLvl::new(i32::from(level)).map_err(|_| level_error())?;
                other.insert((level, Compressor::new(number)))
            }
        };
        let out = Self::buffer(&mut self.buffer, compressor.gzip_compress_bound(body.len()));
        let len = compressor
            .gzip_compress(body, out)
            .map_err(io::Error::other)?;
        Ok(out[..len].to_vec())
    }

    fn zstd(&mut self, body: &[u8], level: u8) -> io::Result<Vec<u8>> {
        let (_, compressor) = match &mut self.zstd {
            Some(made) if made.0 == level => made,
            other => {
                let mut made = zstd::bulk::Compressor::new(i32::from(level))?;
                made.include_checksum(false)?;
                other.insert((level, made))
            }
        };
        // Levels above 19 would use windows that browsers reject.
        compressor.window_log(window_bits(body.len(), ZSTD_WINDOW_BITS_MAX) as u32)?;
        let bound = zstd::zstd_safe::compress_bound(body.len());
        let out = Self::buffer(&mut self.buffer, bound);
        let len = compressor.compress_to_buffer(body, out)?;
        Ok(out[..len].to_vec())
    }
}

/// Calls `run` with this thread's encoders.
fn with_compressors<O>(run: impl FnOnce(&mut Compressors) -> O) -> O {
    COMPRESSORS.with_borrow_mut(|compressors| {
        let result = run(compressors);
        compressors.shrink();
        result
    })
}

fn gzip(body: &[u8], level: u8) -> io::Result<Vec<u8>> {
    with_compressors(|compressors| compressors.gzip(body, level))
}

fn zstd(body: &[u8], level: u8) -> io::Result<Vec<u8>> {
    with_compressors(|compressors| compressors.zstd(body, level))
}

fn zopfli(body: &[u8]) -> io::Result<Vec<u8>> {
    let rounds = if body.len() <= ZOPFLI_LARGE { 15 } else { 5 };
    let options = zopfli::Options {
        iteration_count: NonZeroU64::new(rounds).unwrap_or(NonZeroU64::MIN),
        ..zopfli::Options::default()
    };
    let mut out = Vec::with_capacity(body.len() / 3);
    zopfli::compress(options, zopfli::Format::Gzip, body, &mut out)?;
    Ok(out)
}

/// Bytes in codes of their frequencies alone, as a gzip file (RFC 1952).
fn huffman(body: &[u8]) -> Vec<u8> {
    let strategy = CompressionStrategy::HuffmanOnly as i32;
    let flags = create_comp_flags_from_zip_params(9, RAW_DEFLATE, strategy);
    let mut out = GZIP_HEAD.to_vec();
    let mut compressor = CompressorOxide::new(flags);
    compress_to_output(&mut compressor, body, TDEFLFlush::Finish, |bytes| {
        out.extend_from_slice(bytes);
        true
    });
    out.extend(libdeflater::crc32(body).to_le_bytes());
    // Modulo 2^32, as the format has it.
    out.extend((body.len() as u32).to_le_bytes());
    out
}

/// Deflate without a file name, a date and an operating system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Negative window bits stand for no head of zlib.
const RAW_DEFLATE: i32 = -15;

/// Above this length, further Zopfli iterations cost minutes and save almost nothing.
const ZOPFLI_LARGE: usize = 1 << 20;

/// A body that is read, with a receiver of the number of bytes.
struct Counted<'b> {
    rest: &'b [u8],
    advance: &'b dyn Fn(u64),
}

impl Read for Counted<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.rest.read(bytes)?;
        (self.advance)(count as u64);
        Ok(count)
    }
}

fn brotli(body: &[u8], level: u8, advance: &dyn Fn(u64)) -> io::Result<Vec<u8>> {
    let effort = BrotliEffort {
        level,
        window_bits: brotli_window_bits(body.len(), level) as u8,
    };
    let memory = with_compressors(|compressors| compressors.brotli.clone());
    let mut out = Vec::with_capacity(body.len() / 3);
    let mut source = Counted {
        rest: body,
        advance,
    };
    gannet_brotli::compress((&mut source, body.len()), effort, b"", memory, &mut out)?;
    out.shrink_to_fit();
    Ok(out)
}

fn level_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no such compression level")
}

/// The smallest window that covers the body, since decoders allocate it.
fn window_bits(len: usize, max: i32) -> i32 {
    let needed = usize::BITS - len.saturating_sub(1).leading_zeros();
    (needed as i32).clamp(WINDOW_BITS_MIN, max)
}

/// Levels 5 to 9 get a window of at least 128 KiB: for smaller ones the encoder allocates tables of
/// 32 MiB, and a site of small pages takes five times as long.
fn brotli_window_bits(len: usize, level: u8) -> i32 {
    let bits = window_bits(len, BROTLI_WINDOW_BITS_MAX);
    if (5..=9).contains(&level) {
        bits.max(WINDOW_BITS_MIN + 1)
    } else {
        bits
    }
}

/// Smaller windows save nothing: zstd's blocks are about as large.
const WINDOW_BITS_MIN: i32 = 16;
/// The largest window of the `br` coding (RFC 7932 section 9.1).
const BROTLI_WINDOW_BITS_MAX: i32 = 24;
/// 8 MiB, which every decoder of the `zstd` coding must support (RFC 9659).
const ZSTD_WINDOW_BITS_MAX: i32 = 23;
/// 128 MiB: what `zstd --ultra -22` uses, and the program of that name reads without being asked to.
/// Not every compressed file is for browsers.
const ZSTD_DECODED_WINDOW_BITS_MAX: u32 = 27;

/// A reader of the decoded bytes.
///
/// # Errors
///
/// The decoder cannot be created; reading fails if `coded` is corrupt.
pub(crate) fn decoder<'r>(coding: Coding, coded: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    Ok(match coding {
        Coding::Identity => Box::new(coded),
        Coding::Gzip => Box::new(flate2::read::MultiGzDecoder::new(coded)),
        Coding::Brotli => Box::new(brotli::Decompressor::new(br_only(coded)?, 64 << 10)),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(coded)?;
            decoder.window_log_max(ZSTD_DECODED_WINDOW_BITS_MAX)?;
            Box::new(decoder)
        }
        Coding::DictionaryBrotli | Coding::DictionaryZstd => {
            let what = "its dictionary is missing";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    })
}

/// Refuses windows above the 16 MiB of the `br` coding: the library accepts a gigabyte, browsers do
/// not. Such streams start with these seven bits (RFC 7932 section 9.1 reserves them).
fn br_only(mut coded: impl Read) -> io::Result<impl Read> {
    let mut first = Vec::new();
    coded.by_ref().take(1).read_to_end(&mut first)?;
    if first.first().is_some_and(|byte| byte & 0x7f == 0x11) {
        let what = "its window is larger than the coding br allows";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(io::Cursor::new(first).chain(coded))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::pack::Effort;

    #[test]
    fn every_coding_decodes_to_the_body() {
        let body: Vec<u8> = (0..30_000u32)
            .flat_map(|n| (n / 3).to_string().into_bytes())
            .collect();
        for effort in [Effort::Fast, Effort::Standard, Effort::Best] {
            let encoders = Encoder::all(effort);
            let work = Cell::new(0);
            let advance = |more| work.set(work.get() + more);
            let coded = compress(&body, &encoders, &advance).expect("compressing works");
            let per_byte: u64 = encoders.iter().map(|it| it.work_per_byte()).sum();
            assert_eq!(work.get(), per_byte * body.len() as u64);
            let codings: Vec<_> = coded.iter().map(|coded| coded.coding).collect();
            assert_eq!(codings, [Coding::Gzip, Coding::Brotli, Coding::Zstd]);
            for Coded { coding, bytes } in coded {
                assert!(bytes.len() < body.len() / 2, "{coding:?} {}", bytes.len());
                let mut decoded = Vec::new();
                let mut reader = decoder(coding, bytes.as_slice()).expect("a decoder");
                reader.read_to_end(&mut decoded).expect("sound");
                assert!(decoded == body, "{coding:?}");
            }
        }
    }

    #[test]
    fn codes_of_frequencies_alone_are_a_gzip_file() {
        for body in [&b""[..], b"a", &b"0123456789".repeat(30_000)] {
            let coded = huffman(body);
            assert!(coded.len() < 32 + body.len() * 45 / 100, "{}", coded.len());
            let mut decoded = Vec::new();
            let mut reader = decoder(Coding::Gzip, coded.as_slice()).expect("a decoder");
            reader.read_to_end(&mut decoded).expect("sound");
            assert_eq!(decoded, body);
        }
        // Matches would make almost nothing of it.
        assert!(huffman(&b"0123456789".repeat(30_000)).len() > 100_000);
    }

    #[test]
    fn the_zstd_window_stays_within_what_decoders_must_take() {
        let body = b"window ".repeat(3 << 20);
        for level in [1, 22] {
            let coded = zstd(&body, level).expect("compressing works");
            let mut decoder =
                zstd::stream::read::Decoder::new(coded.as_slice()).expect("a decoder");
            decoder.window_log_max(23).expect("8 MiB");
            let decoded = io::copy(&mut decoder, &mut io::sink()).expect("sound");
            assert_eq!(decoded, body.len() as u64);
        }
    }

    #[test]
    fn windows_that_browsers_refuse_are_refused() {
        // An empty stream with a window of 1 GiB.
        assert!(decoder(Coding::Brotli, b"\x11\x1e\x03".as_slice()).is_err());
        let body = b"window ".repeat(3 << 20);
        let coded = brotli(&body, 1, &|_| {}).expect("in memory");
        let mut sound = decoder(Coding::Brotli, coded.as_slice()).expect("a decoder");
        assert_eq!(
            io::copy(&mut sound, &mut io::sink()).expect("sound"),
            body.len() as u64
        );
    }

    #[test]
    fn what_does_not_pay_is_not_kept() {
        let mut state = 1u64;
        let noise: Vec<u8> = (0..200_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        for body in [&noise[..], &noise[..5000], b"short".as_slice(), b""] {
            let kept =
                compress(body, &Encoder::all(Effort::Fast), &|_| {}).expect("compressing works");
            assert!(kept.is_empty(), "{} bytes", body.len());
        }
    }

    #[test]
    fn the_smaller_the_file_the_larger_the_part_it_must_save() {
        let parts = [500, 3000, 10_000, 50_000, 500_000, 5_000_000];
        let least = parts.map(|len| (0..len).find(|saved| pays(len, len - saved)).expect("some"));
        assert_eq!(least, [128, 450, 1000, 4000, 25_000, 100_000]);
    }
}
