//! Huffman coding of strings (RFC 7541 section 5.2 and appendix B).
//!
//! The decoder is a state machine that takes four bits at a time: its states are the 256 inner
//! nodes of the code tree, and no four bits complete more than one symbol, because no code is
//! shorter than five. The table is computed from the codes at compile time.

use super::CodingError;

/// Appends the decoded string: at most 8/5 of the bytes of `coded`.
///
/// # Errors
/// [`CodingError::Huffman`] for the end-of-string symbol, or padding of 8 bits or more, or of bits
/// that are not all ones.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), CodingError> {
    let start = out.len();
    // One byte of slack: each step writes to the place of the next symbol, whether it completes one
    // or not, which avoids an unpredictable branch.
    out.resize(start + coded.len() * 8 / SHORTEST_CODE + 1, 0);
    let symbols = &mut out[start..];
    let mut len = 0;
    let mut state = 0;
    let mut failure = 0;
    for &byte in coded {
        for nibble in [byte >> 4, byte & 15] {
            let step = STEPS[state as usize][usize::from(nibble)];
            symbols[len] = (step >> 8) as u8;
            len += usize::from(step & EMITS != 0);
            state = step & 0xff;
            failure |= step;
        }
    }
    out.truncate(start + len);
    if failure & FAILS != 0 || PADDING_DEPTH[state as usize] == NO_PADDING {
        return Err(CodingError::Huffman);
    }
    Ok(())
}

/// Length of `plain` when coded, in bytes.
#[must_use]
pub fn coded_len(plain: &[u8]) -> usize {
    let bits: usize = plain
        .iter()
        .map(|&byte| usize::from(CODES[usize::from(byte)].1))
        .sum();
    bits.div_ceil(8)
}

/// Appends the coded string, padded with ones.
pub fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let mut pending = 0u64;
    let mut pending_len = 0;
    for &byte in plain {
        let (code, len) = CODES[usize::from(byte)];
        pending = pending << len | u64::from(code);
        pending_len += len;
        while pending_len >= 8 {
            pending_len -= 8;
            out.push((pending >> pending_len) as u8);
        }
    }
    if pending_len > 0 {
        let padding = 8 - pending_len;
        out.push((pending << padding) as u8 | ((1u16 << padding) - 1) as u8);
    }
}

/// Bits of the shortest code.
const SHORTEST_CODE: usize = 5;

/// In a step: a symbol is complete.
const EMITS: u32 = 1 << 16;
/// In a step: the end-of-string symbol was found.
const FAILS: u32 = 1 << 17;

/// By state and four bits: the next state, the symbol from bit 8 on, and the two flags above.
static STEPS: [[u32; 16]; INNER_NODES] = make_steps();

/// By state: how many ones lead there from the root, if only ones do and there are fewer than 8; a
/// string may end in such a state.
static PADDING_DEPTH: [u8; INNER_NODES] = make_padding_depths();

const NO_PADDING: u8 = u8::MAX;

/// A binary tree of 257 leaves has one inner node less.
const INNER_NODES: usize = 256;

/// A child: an inner node, or [`LEAF`] and a symbol. 0 means none yet; the root is never a child.
type Tree = [[u16; 2]; INNER_NODES];

const LEAF: u16 = 0x8000;

const fn make_tree() -> Tree {
    let mut tree = [[0; 2]; INNER_NODES];
    let mut node_count = 1;
    let mut symbol = 0;
    while symbol < CODES.len() {
        let (code, len) = CODES[symbol];
        let mut node = 0;
        let mut bit_index = len;
        while bit_index > 1 {
            bit_index -= 1;
            let bit = (code >> bit_index & 1) as usize;
            if tree[node][bit] == 0 {
                tree[node][bit] = node_count;
                node_count += 1;
            }
            node = tree[node][bit] as usize;
        }
        tree[node][(code & 1) as usize] = LEAF | symbol as u16;
        symbol += 1;
    }
    tree
}

const fn make_steps() -> [[u32; 16]; INNER_NODES] {
    let tree = make_tree();
    let mut steps = [[0; 16]; INNER_NODES];
    let mut state = 0;
    while state < INNER_NODES {
        let mut nibble = 0;
        while nibble < 16 {
            steps[state][nibble] = make_step(&tree, state, nibble);
            nibble += 1;
        }
        state += 1;
    }
    steps
}

const fn make_step(tree: &Tree, state: usize, nibble: usize) -> u32 {
    let mut node = state;
    let mut emitted = 0;
    let mut bit_index = 4;
    while bit_index > 0 {
        bit_index -= 1;
        let child = tree[node][nibble >> bit_index & 1];
        if child == LEAF | END_OF_STRING {
            return FAILS;
        }
        if child & LEAF != 0 {
            emitted = EMITS | ((child & !LEAF) as u32) << 8;
            node = 0;
        } else {
            node = child as usize;
        }
    }
    emitted | node as u32
}

const fn make_padding_depths() -> [u8; INNER_NODES] {
    let tree = make_tree();
    let mut depths = [NO_PADDING; INNER_NODES];
    let mut node = 0;
    let mut depth = 0;
    while depth < 8 {
        depths[node] = depth;
        node = tree[node][1] as usize;
        depth += 1;
    }
    depths
}

const END_OF_STRING: u16 = 256;

/// By symbol: its code, and the number of bits of the code (RFC 7541 appendix B).
#[rustfmt::skip]
static CODES: [(u32, u8); 257] = [
    (0x1ff8, 13), (0x7fffd8, 23), (0xfffffe2, 28), (0xfffffe3, 28), (0xfffffe4, 28),
    (0xfffffe5, 28), (0xfffffe6, 28), (0xfffffe7, 28), (0xfffffe8, 28), (0xffffea, 24),
    (0x3ffffffc, 30), (0xfffffe9, 28), (0xfffffea, 28), (0x3ffffffd, 30), (0xfffffeb, 28),
    (0xfffffec, 28), (0xfffffed, 28), (0xfffffee, 28), (0xfffffef, 28), (0xffffff0, 28),
    (0xffffff1, 28), (0xffffff2, 28), (0x3ffffffe, 30), (0xffffff3, 28), (0xffffff4, 28),
    (0xffffff5, 28), (0xffffff6, 28), (0xffffff7, 28), (0xffffff8, 28), (0xffffff9, 28),
    (0xffffffa, 28), (0xffffffb, 28), (0x14, 6), (0x3f8, 10), (0x3f9, 10), (0xffa, 12),
    (0x1ff9, 13), (0x15, 6), (0xf8, 8), (0x7fa, 11), (0x3fa, 10), (0x3fb, 10), (0xf9, 8),
    (0x7fb, 11), (0xfa, 8), (0x16, 6), (0x17, 6), (0x18, 6), (0x0, 5), (0x1, 5), (0x2, 5),
    (0x19, 6), (0x1a, 6), (0x1b, 6), (0x1c, 6), (0x1d, 6), (0x1e, 6), (0x1f, 6), (0x5c, 7),
    (0xfb, 8), (0x7ffc, 15), (0x20, 6), (0xffb, 12), (0x3fc, 10), (0x1ffa, 13), (0x21, 6),
    (0x5d, 7), (0x5e, 7), (0x5f, 7), (0x60, 7), (0x61, 7), (0x62, 7), (0x63, 7), (0x64, 7),
    (0x65, 7), (0x66, 7), (0x67, 7), (0x68, 7), (0x69, 7), (0x6a, 7), (0x6b, 7), (0x6c, 7),
    (0x6d, 7), (0x6e, 7), (0x6f, 7), (0x70, 7), (0x71, 7), (0x72, 7), (0xfc, 8), (0x73, 7),
    (0xfd, 8), (0x1ffb, 13), (0x7fff0, 19), (0x1ffc, 13), (0x3ffc, 14), (0x22, 6), (0x7ffd, 15),
    (0x3, 5), (0x23, 6), (0x4, 5), (0x24, 6), (0x5, 5), (0x25, 6), (0x26, 6), (0x27, 6), (0x6, 5),
    (0x74, 7), (0x75, 7), (0x28, 6), (0x29, 6), (0x2a, 6), (0x7, 5), (0x2b, 6), (0x76, 7),
    (0x2c, 6), (0x8, 5), (0x9, 5), (0x2d, 6), (0x77, 7), (0x78, 7), (0x79, 7), (0x7a, 7), (0x7b, 7),
    (0x7ffe, 15), (0x7fc, 11), (0x3ffd, 14), (0x1ffd, 13), (0xffffffc, 28), (0xfffe6, 20),
    (0x3fffd2, 22), (0xfffe7, 20), (0xfffe8, 20), (0x3fffd3, 22), (0x3fffd4, 22), (0x3fffd5, 22),
    (0x7fffd9, 23), (0x3fffd6, 22), (0x7fffda, 23), (0x7fffdb, 23), (0x7fffdc, 23), (0x7fffdd, 23),
    (0x7fffde, 23), (0xffffeb, 24), (0x7fffdf, 23), (0xffffec, 24), (0xffffed, 24), (0x3fffd7, 22),
    (0x7fffe0, 23), (0xffffee, 24), (0x7fffe1, 23), (0x7fffe2, 23), (0x7fffe3, 23), (0x7fffe4, 23),
    (0x1fffdc, 21), (0x3fffd8, 22), (0x7fffe5, 23), (0x3fffd9, 22), (0x7fffe6, 23), (0x7fffe7, 23),
    (0xffffef, 24), (0x3fffda, 22), (0x1fffdd, 21), (0xfffe9, 20), (0x3fffdb, 22), (0x3fffdc, 22),
    (0x7fffe8, 23), (0x7fffe9, 23), (0x1fffde, 21), (0x7fffea, 23), (0x3fffdd, 22), (0x3fffde, 22),
    (0xfffff0, 24), (0x1fffdf, 21), (0x3fffdf, 22), (0x7fffeb, 23), (0x7fffec, 23), (0x1fffe0, 21),
    (0x1fffe1, 21), (0x3fffe0, 22), (0x1fffe2, 21), (0x7fffed, 23), (0x3fffe1, 22), (0x7fffee, 23),
    (0x7fffef, 23), (0xfffea, 20), (0x3fffe2, 22), (0x3fffe3, 22), (0x3fffe4, 22), (0x7ffff0, 23),
    (0x3fffe5, 22), (0x3fffe6, 22), (0x7ffff1, 23), (0x3ffffe0, 26), (0x3ffffe1, 26), (0xfffeb, 20),
    (0x7fff1, 19), (0x3fffe7, 22), (0x7ffff2, 23), (0x3fffe8, 22), (0x1ffffec, 25), (0x3ffffe2, 26),
    (0x3ffffe3, 26), (0x3ffffe4, 26), (0x7ffffde, 27), (0x7ffffdf, 27), (0x3ffffe5, 26),
    (0xfffff1, 24), (0x1ffffed, 25), (0x7fff2, 19), (0x1fffe3, 21), (0x3ffffe6, 26),
    (0x7ffffe0, 27), (0x7ffffe1, 27), (0x3ffffe7, 26), (0x7ffffe2, 27), (0xfffff2, 24),
    (0x1fffe4, 21), (0x1fffe5, 21), (0x3ffffe8, 26), (0x3ffffe9, 26), (0xffffffd, 28),
    (0x7ffffe3, 27), (0x7ffffe4, 27), (0x7ffffe5, 27), (0xfffec, 20), (0xfffff3, 24), (0xfffed, 20),
    (0x1fffe6, 21), (0x3fffe9, 22), (0x1fffe7, 21), (0x1fffe8, 21), (0x7ffff3, 23), (0x3fffea, 22),
    (0x3fffeb, 22), (0x1ffffee, 25), (0x1ffffef, 25), (0xfffff4, 24), (0xfffff5, 24),
    (0x3ffffea, 26), (0x7ffff4, 23), (0x3ffffeb, 26), (0x7ffffe6, 27), (0x3ffffec, 26),
    (0x3ffffed, 26), (0x7ffffe7, 27), (0x7ffffe8, 27), (0x7ffffe9, 27), (0x7ffffea, 27),
    (0x7ffffeb, 27), (0xffffffe, 28), (0x7ffffec, 27), (0x7ffffed, 27), (0x7ffffee, 27),
    (0x7ffffef, 27), (0x7fffff0, 27), (0x3ffffee, 26), (0x3fffffff, 30),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, CodingError> {
        let mut out = b"before".to_vec();
        decode(coded, &mut out)?;
        Ok(out.split_off(6))
    }

    #[test]
    fn every_byte_comes_back_alone_and_among_others() {
        for byte in 0..=255 {
            for plain in [vec![byte], vec![b'a', byte, b'z'], vec![byte; 9]] {
                let mut coded = Vec::new();
                encode(&plain, &mut coded);
                assert_eq!(coded.len(), coded_len(&plain));
                assert_eq!(decoded(&coded), Ok(plain));
            }
        }
    }

    #[test]
    fn padding_is_short_and_all_ones() {
        let fail = Err(CodingError::Huffman);
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decoded(&[0b0001_1110]), fail);
        assert_eq!(decoded(&[0b0001_1111, 0xff]), fail);
        assert_eq!(decoded(&[0xff]), fail);
        assert_eq!(decoded(&[0xff; 4]), fail);
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    #[test]
    fn the_end_of_string_symbol_is_refused() {
        let fail = Err(CodingError::Huffman);
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), fail);
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff, 0x1f]), fail);
    }

    proptest! {
        #[test]
        fn strings_come_back(plain in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut coded = Vec::new();
            encode(&plain, &mut coded);
            prop_assert_eq!(decoded(&coded), Ok(plain));
        }

        #[test]
        fn what_decodes_is_what_encodes(coded in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(plain) = decoded(&coded) {
                let mut again = Vec::new();
                encode(&plain, &mut again);
                prop_assert_eq!(again, coded);
            }
        }
    }
}
