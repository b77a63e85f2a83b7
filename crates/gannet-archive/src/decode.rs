//! Content that is stored in a coding alone: decoding it.
//!
//! The buffer for the result is allocated once, and nothing beyond it is ever written, whatever the
//! coded bytes claim. The decoder's other memory is bounded: 32 KiB for gzip, by its format; for
//! brotli a window of [`WINDOW_MAX`] and up to three sets of tables, by [`Heap`]. If there is no
//! memory for that, decoding fails, and the process continues.

use core::fmt;

use brotli_decompressor::{
    Allocator, BrotliDecompressStream, BrotliResult, BrotliState, SliceWrapper, SliceWrapperMut,
};
use gannet_http::semantics::coding::Coding;
use zlib_rs::{Inflate, InflateFlush, Status};

use crate::limits::DECODED_LEN_MAX;

/// Why coded bytes do not decode to the announced content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DecodeError {
    /// They are corrupt: not exactly one member of gzip (RFC 1952) or one stream of brotli (RFC
    /// 7932). Also if the requested coding is not [decodable](is_decodable).
    Damaged,
    /// The content is not of the announced length, or gzip's checksum is wrong.
    Length,
    /// The announced length exceeds the limit for such content
    /// ([`DECODED_LEN_MAX`](crate::limits::DECODED_LEN_MAX)).
    Limit,
    /// There is no memory for it at the moment.
    Memory,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "not sound in its coding",
            Self::Length => "not of the length that was announced",
            Self::Limit => "longer than what may be stored in a coding alone",
            Self::Memory => "not decoded: out of memory",
        })
    }
}

impl std::error::Error for DecodeError {}

/// Whether a body may be stored in this coding alone.
pub const fn is_decodable(coding: Coding) -> bool {
    matches!(coding, Coding::Gzip | Coding::Brotli)
}

/// Decodes `coded` to `len` bytes. Gzip (one member) has a checksum, which is compared; brotli has
/// none: only a digest shows whether these are the original bytes.
///
/// # Errors
///
/// `coded` is corrupt, or its content is not of this length; `len` is beyond
/// [`DECODED_LEN_MAX`](crate::limits::DECODED_LEN_MAX); there is no memory.
pub fn decode(coding: Coding, coded: &[u8], len: u64) -> Result<Vec<u8>, DecodeError> {
    if len > DECODED_LEN_MAX {
        return Err(DecodeError::Limit);
    }
    let mut content = room(len)?;
    match coding {
        Coding::Gzip => inflate(coded, &mut content)?,
        Coding::Brotli => match unbrotli(coded, &mut content)? {
            filled if filled == content.len() => {}
            _ => return Err(DecodeError::Length),
        },
        Coding::Identity | Coding::Zstd | Coding::DictionaryBrotli | Coding::DictionaryZstd => {
            return Err(DecodeError::Damaged);
        }
    }
    Ok(content)
}

/// Decodes `brotli`, to at most [`DECODED_LEN_MAX`](crate::limits::DECODED_LEN_MAX) bytes.
///
/// # Errors
///
/// `brotli` is corrupt, or its content is longer; there is no memory.
pub fn decode_brotli(brotli: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut content = room(DECODED_LEN_MAX)?;
    let filled = unbrotli(brotli, &mut content)?;
    content.truncate(filled);
    content.shrink_to_fit();
    Ok(content)
}

/// This many zeros, to be overwritten.
fn room(len: u64) -> Result<Vec<u8>, DecodeError> {
    let mut room = Vec::new();
    let reserved = room.try_reserve_exact(len as usize);
    reserved.map_err(|_| DecodeError::Memory)?;
    room.resize(len as usize, 0);
    Ok(room)
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
        // The buffer is full, and there is more input: content, or a truncated checksum.
        return Err(DecodeError::Length);
    }
    if inflate.total_in() != gzip.len() as u64 {
        return Err(DecodeError::Damaged);
    }
    Ok(())
}

/// Fills `content` from brotli; returns how many bytes it wrote.
fn unbrotli(brotli: &[u8], content: &mut [u8]) -> Result<usize, DecodeError> {
    let (mut unread, mut read) = (brotli.len(), 0);
    let (mut room, mut filled, mut total) = (content.len(), 0, 0);
    let heap = Heap::default;
    // Without windows beyond 16 MiB, which RFC 7932 does not allow.
    let mut state = BrotliState::new_strict(heap(), heap(), heap());
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
    let heaps = [&state.alloc_u8, &state.alloc_u32, &state.alloc_hc];
    match result {
        _ if heaps.iter().any(|heap| heap.is_out) => Err(DecodeError::Memory),
        BrotliResult::ResultSuccess if unread == 0 => Ok(filled),
        BrotliResult::ResultSuccess | BrotliResult::ResultFailure => Err(DecodeError::Damaged),
        BrotliResult::NeedsMoreInput => Err(DecodeError::Damaged),
        BrotliResult::NeedsMoreOutput => Err(DecodeError::Length),
    }
}

/// The memory of the brotli decoder. Refusing a request ends the decoding.
///
/// The coded bytes decide how much memory the decoder requests: a handful of them announces a
/// window of 16 MiB, and 700 bytes make 2 MiB of tables, over and over.
#[derive(Default)]
struct Heap {
    /// Bytes allocated so far.
    given: usize,
    /// There was no memory.
    is_out: bool,
}

/// The most bytes of one allocation: the window that the longest content fills, and what the
/// decoder adds to it. A set of tables (256 of them) is not much longer than that content.
const WINDOW_MAX: usize = 2 * DECODED_LEN_MAX as usize;

/// The most bytes allocated for one stream. Each meta-block has new tables: encoders write less
/// than 20 KiB of them for a short one, so this is enough for thousands; and filling them takes no
/// longer than some tens of milliseconds.
const GIVEN_MAX: usize = 64 << 20;

/// Allocations up to this length are assumed to succeed: the program has a reserve for them.
const SMALL: usize = 64 << 10;

impl<T: Clone + Default> Allocator<T> for Heap {
    type AllocatedMemory = Cells<T>;

    fn alloc_cell(&mut self, len: usize) -> Cells<T> {
        let bytes = len.saturating_mul(size_of::<T>());
        self.given = self.given.saturating_add(bytes);
        if bytes > WINDOW_MAX || self.given > GIVEN_MAX {
            return Cells::default();
        }
        if bytes <= SMALL {
            return Cells(vec![T::default(); len]);
        }
        let mut cells = Vec::new();
        match cells.try_reserve_exact(len) {
            Ok(()) => cells.resize(len, T::default()),
            Err(_) => self.is_out = true,
        }
        Cells(cells)
    }

    fn free_cell(&mut self, _: Cells<T>) {}
}

/// Memory of the decoder; empty if it was refused.
struct Cells<T>(Vec<T>);

impl<T> Default for Cells<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> SliceWrapper<T> for Cells<T> {
    fn slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> SliceWrapperMut<T> for Cells<T> {
    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// The widest window of gzip, plus 16 for its header and trailer.
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
        // A window beyond 16 MiB, an extension of RFC 7932.
        check(b"\x11\x1e\x00\x00", 24, Err(DecodeError::Damaged));
    }

    /// Writes bits, the least significant one first (RFC 7932 section 1.4).
    #[derive(Default)]
    struct Bits {
        bytes: Vec<u8>,
        pending: u64,
        len: u32,
    }

    impl Bits {
        fn put(&mut self, value: u64, len: u32) {
            self.pending |= value << self.len;
            self.len += len;
            while self.len >= 8 {
                self.bytes.push(self.pending as u8);
                self.pending >>= 8;
                self.len -= 8;
            }
        }

        /// A prefix code of one symbol.
        fn code(&mut self, symbol: u64, symbol_len: u32) {
            self.put(1, 2);
            self.put(0, 2);
            self.put(symbol, symbol_len);
        }

        /// A number of prefix codes: one, or the maximum, none of them needed.
        fn codes(&mut self, is_many: bool) {
            if !is_many {
                return self.put(0, 1);
            }
            self.put(0b111_1111_1111, 11);
            self.put(0, 1);
            self.code(0, 8);
            self.put(0, 1);
        }

        /// A meta-block of `len` times the letter A, which is not the last one.
        fn meta_block(&mut self, len: u64, is_many: bool) {
            let nibbles = if len > 1 << 16 { 6 } else { 4 };
            self.put(0, 1);
            self.put(nibbles - 4, 2);
            self.put(len - 1, 4 * nibbles as u32);
            // Compressed; one type of block each; plain distances; one context mode.
            self.put(0, 1 + 3 + 6 + 2);
            self.codes(is_many);
            self.codes(is_many);
            let codes = if is_many { 256 } else { 1 };
            for _ in 0..codes {
                self.code(65, 8);
            }
            // Inserts one byte, and copies two from the last distance.
            self.code(8, 10);
            for _ in 0..codes {
                self.code(0, 6);
            }
        }

        /// The whole stream, with an empty last meta-block.
        fn end(mut self) -> Vec<u8> {
            self.put(0b11, 2);
            self.put(0, 7);
            self.bytes
        }
    }

    #[test]
    fn a_few_bytes_of_brotli_buy_neither_memory_nor_time() {
        let stream = |blocks: usize, len, is_many| {
            let mut bits = Bits::default();
            // A window of 16 MiB.
            bits.put(0b1111, 4);
            for _ in 0..blocks {
                bits.meta_block(len, is_many);
            }
            bits.end()
        };
        // A valid stream is decoded, even with the largest possible tables.
        for is_many in [false, true] {
            let sound = stream(3, 1, is_many);
            assert_eq!(decode_brotli(&sound).as_deref(), Ok(&b"AAA"[..]));
        }
        // A window for content of 16 MiB.
        let announced = stream(1, 1 << 24, false);
        assert!(announced.len() < 20);
        assert_eq!(decode_brotli(&announced), Err(DecodeError::Damaged));
        // Tables of a thousand meta-blocks.
        let tables = stream(1_000, 1, true);
        assert!(tables.len() < DECODED_LEN_MAX as usize);
        assert_eq!(decode_brotli(&tables), Err(DecodeError::Damaged));
        assert_eq!(
            decode(Coding::Brotli, &tables, 1_000),
            Err(DecodeError::Damaged)
        );
        // An encoder that is flushed often writes few of them each time.
        let flushed = stream(4_000, 1, false);
        assert_eq!(decode_brotli(&flushed), Ok(vec![b'A'; 4_000]));
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
        // Flags, modification time, extra flags and system (RFC 1952 section 2.3): some of their
        // bits do not affect the content.
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
