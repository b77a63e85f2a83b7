//! The encoders, at levels that fit work done while a site is served.
//!
//! Nothing is kept between two files: an idle server holds no tables. Only where an allocation may fail,
//! because the process has a limit, are those of gzip held all the time.

use std::io::Read;
use std::sync::{Mutex, PoisonError};

use gannet_brotli::{Effort, Memory};
use gannet_content::directory::coding::{CODED_FROM, MADE};
use gannet_http::semantics::coding::{Coding, CodingSet};
use libdeflater::{CompressionLvl, Compressor};
use zstd::zstd_safe::{CCtx, CParameter, compress_bound};

/// What encoders may take, and what they do if they do not get it.
pub(crate) struct Encoders {
    /// Bytes for one file.
    memory: u64,
    /// Where an allocation may fail: gzip's tables, which have to be there before.
    tables: Option<Mutex<Compressor>>,
}

impl Default for Encoders {
    /// With as much memory as they like.
    fn default() -> Self {
        Self::with(u64::MAX)
    }
}

impl Encoders {
    /// With `memory` bytes for one file.
    pub(crate) fn with(memory: u64) -> Self {
        Self {
            memory,
            tables: None,
        }
    }

    /// The same where an allocation may fail, because the process has a limit. Brotli's encoder would
    /// end the process then. Without memory for the tables, as `has_room` for so many bytes says,
    /// nothing is coded.
    pub(crate) fn that_may_fail(memory: u64, has_room: impl FnOnce(usize) -> bool) -> Self {
        // Gzip is not made, and Brotli even less.
        if memory < self::memory(Coding::Gzip, CODED_FROM) {
            return Self::with(memory);
        }
        // It would panic if it got none.
        if !has_room(GZIP_TABLES as usize) {
            return Self::with(0);
        }
        let tables = CompressionLvl::new(GZIP_LEVEL).map(Compressor::new);
        Self {
            memory,
            tables: tables.ok().map(Mutex::new),
        }
    }

    /// The codings that can be made of a file of `len` bytes.
    pub(crate) fn can_make(&self, len: u64) -> CodingSet {
        let fits = |coding: &Coding| {
            memory(*coding, len) <= self.memory
                && (self.tables.is_none() || *coding != Coding::Brotli)
        };
        let made = MADE.into_iter().filter(fits);
        made.fold(CodingSet::EMPTY, CodingSet::with)
    }

    /// Whether any can be made of the shortest file.
    pub(crate) fn can_make_any(&self) -> bool {
        !self.can_make(CODED_FROM).is_empty()
    }

    /// Codes `source`; `None` if that failed.
    pub(crate) fn encode(&self, coding: Coding, source: &[u8]) -> Option<Vec<u8>> {
        match (&self.tables, coding) {
            (Some(tables), Coding::Gzip) => {
                // What a panic may leave in the tables does not matter: each file begins anew.
                let mut tables = tables.lock().unwrap_or_else(PoisonError::into_inner);
                gzip_with(&mut tables, source)
            }
            _ => encode(coding, source),
        }
    }
}

/// Bytes that an encoder takes for a file of `len` bytes at the most, the coded form included. Of texts
/// of 1 KiB to 4 MiB, what it allocated was 1.1 to 48 MB with Brotli, with zstd 46 KB to 11 MB besides the
/// coded form.
fn memory(coding: Coding, len: u64) -> u64 {
    match coding {
        Coding::Brotli => len.saturating_mul(13).saturating_add(3 << 20),
        Coding::Zstd => {
            let tables = len.saturating_mul(24).saturating_add(128 << 10);
            tables.min(11 << 20).saturating_add(len)
        }
        _ => len.saturating_add(GZIP_TABLES),
    }
}

/// Not less than gzip's tables have.
const GZIP_TABLES: u64 = 1 << 20;

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
const BROTLI_LEVEL: u8 = 5;
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
    let effort = Effort {
        level: BROTLI_LEVEL,
        window_bits: window_bits(source.len(), BROTLI_WINDOW_BITS_MIN) as u8,
    };
    let mut out = Vec::with_capacity(source.len() / 4);
    let whole: (&mut dyn Read, usize) = (&mut &source[..], source.len());
    gannet_brotli::compress(whole, effort, b"", Memory::default(), &mut out).ok()?;
    Some(out)
}

fn zstd(source: &[u8]) -> Option<Vec<u8>> {
    let mut context = CCtx::try_create()?;
    let window = window_bits(source.len(), ZSTD_WINDOW_BITS_MIN);
    let level = CParameter::CompressionLevel(ZSTD_LEVEL);
    context.set_parameter(level).ok()?;
    context.set_parameter(CParameter::WindowLog(window)).ok()?;
    let mut out = Vec::new();
    out.try_reserve_exact(compress_bound(source.len())).ok()?;
    context.compress2(&mut out, source).ok()?;
    Some(out)
}

fn gzip(source: &[u8]) -> Option<Vec<u8>> {
    gzip_with(
        &mut Compressor::new(CompressionLvl::new(GZIP_LEVEL).ok()?),
        source,
    )
}

fn gzip_with(compressor: &mut Compressor, source: &[u8]) -> Option<Vec<u8>> {
    let bound = compressor.gzip_compress_bound(source.len());
    let mut out = Vec::new();
    out.try_reserve_exact(bound).ok()?;
    out.resize(bound, 0);
    let len = compressor.gzip_compress(source, &mut out).ok()?;
    out.truncate(len);
    Some(out)
}

#[cfg(test)]
mod tests {
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

    /// Where an allocation may fail, the same is made, but for Brotli, whose encoder cannot.
    #[test]
    fn encoders_that_may_fail_make_the_same() {
        let text = "a line of text, again and again\n".repeat(1_000);
        let may_fail = Encoders::that_may_fail(u64::MAX, |_| true);
        for _ in 0..2 {
            for coding in [Coding::Zstd, Coding::Gzip] {
                let made = may_fail.encode(coding, text.as_bytes()).expect("made");
                assert_eq!(made, encode(coding, text.as_bytes()).expect("made"));
            }
        }
        let all = CodingSet::EMPTY.with(Coding::Zstd).with(Coding::Gzip);
        assert_eq!(may_fail.can_make(1_024), all);
        let usual = Encoders::with(u64::MAX);
        assert_eq!(usual.can_make(1_024), all.with(Coding::Brotli));
    }

    /// Tables that nothing is made with would be missing elsewhere.
    #[test]
    fn encoders_that_may_fail_hold_only_what_they_use() {
        let check = |memory: u64, has_room: bool, holds: bool, expect: CodingSet| {
            let encoders = Encoders::that_may_fail(memory, |_| has_room);
            assert_eq!(encoders.tables.is_some(), holds, "{memory}");
            assert_eq!(encoders.can_make(CODED_FROM), expect, "{memory}");
        };
        let zstd = CodingSet::from(Coding::Zstd);
        let least = memory(Coding::Gzip, CODED_FROM);
        for has_room in [true, false] {
            check(0, has_room, false, CodingSet::EMPTY);
            check(least - 1, has_room, false, zstd);
        }
        check(least, true, true, zstd.with(Coding::Gzip));
        check(least, false, false, CodingSet::EMPTY);
    }

    #[test]
    fn what_would_take_too_much_is_not_made() {
        use Coding::{Brotli, Gzip, Zstd};
        let check = |memory: u64, len: u64, expect: &[Coding]| {
            let expect = expect.iter().copied();
            let expect = expect.fold(CodingSet::EMPTY, CodingSet::with);
            let found = Encoders::with(memory).can_make(len);
            assert_eq!(found, expect, "{len} bytes with {memory}");
        };
        const MIB: u64 = 1 << 20;
        check(0, 1_024, &[]);
        check(MIB, 1_024, &[Zstd]);
        check(2 * MIB, 1_024, &[Zstd, Gzip]);
        check(4 * MIB, 20_000, &[Brotli, Zstd, Gzip]);
        check(8 * MIB, MIB, &[Gzip]);
        check(12 * MIB, MIB, &[Zstd, Gzip]);
        check(16 * MIB, MIB, &[Brotli, Zstd, Gzip]);
        check(19 * MIB, 8 * MIB, &[Zstd, Gzip]);
        check(55 * MIB, 4 * MIB, &[Brotli, Zstd, Gzip]);
    }
}
