//! Coding with a dictionary (RFC 9842): encoders and decoders of `dcb` and `dcz`.

use std::io::{self, Read, Write};

use gannet_archive::{Coding, dictionary_head};
use gannet_brotli::{Effort, Memory};

use super::encoders::Encoder;

/// Codes `body` by the encoder's library and level, with its dictionary; `None` if the encoder has
/// no such coding, or the coding cannot hold so much.
pub(super) fn encode(
    encoder: Encoder,
    body: &[u8],
    dictionary: &[u8],
    sha256: &[u8; 32],
) -> io::Result<Option<(Coding, Vec<u8>)>> {
    let coding = match encoder {
        Encoder::Brotli(_) => Coding::DictionaryBrotli,
        Encoder::Zstd(_) => Coding::DictionaryZstd,
        Encoder::Libdeflate(_) | Encoder::Zopfli | Encoder::Huffman => return Ok(None),
    };
    let mut out = dictionary_head(coding, sha256);
    match encoder {
        Encoder::Brotli(level) => {
            // Beyond the window, the encoder's notion of distances differs from the standard's.
            if body.len() + dictionary.len() > BROTLI_WINDOW_MAX {
                return Ok(None);
            }
            brotli(body, level, dictionary, &mut out)?;
        }
        Encoder::Zstd(level) => zstd(body, level, dictionary, &mut out)?,
        Encoder::Libdeflate(_) | Encoder::Zopfli | Encoder::Huffman => {}
    }
    Ok(Some((coding, out)))
}

fn brotli(body: &[u8], level: u8, dictionary: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let window = window_bits(body.len() + dictionary.len() + BROTLI_WINDOW_GAP, 24);
    let effort = Effort {
        level,
        window_bits: window as u8,
    };
    let source: (&mut dyn Read, usize) = (&mut &body[..], body.len());
    gannet_brotli::compress(source, effort, dictionary, Memory::pooled(), out)
}

fn zstd(body: &[u8], level: u8, dictionary: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder =
        zstd::stream::write::Encoder::with_ref_prefix(out, i32::from(level), dictionary)?;
    // Decoded with a wrong dictionary, it would otherwise be other bytes without an error.
    encoder.include_checksum(true)?;
    encoder.include_contentsize(true)?;
    encoder.set_pledged_src_size(Some(body.len() as u64))?;
    encoder.window_log(window_bits(
        body.len().max(dictionary.len()),
        ZSTD_WINDOW_BITS_MAX,
    ))?;
    encoder.write_all(body)?;
    encoder.finish()?;
    Ok(())
}

/// Decodes what was coded with `dictionary`, to at most `len` bytes.
///
/// # Errors
/// The bytes are corrupt, longer than that, or coded with another dictionary.
pub(crate) fn decode(
    coding: Coding,
    coded: &[u8],
    (dictionary, sha256): (&[u8], &[u8]),
    len: u64,
) -> io::Result<Vec<u8>> {
    let head = dictionary_head(coding, sha256);
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let stream = coded
        .strip_prefix(head.as_slice())
        .ok_or_else(|| wrong("it is coded with another dictionary"))?;
    let reader: Box<dyn Read + '_> = match coding {
        Coding::DictionaryBrotli => {
            // A window beyond 16 MiB, which the coding does not have.
            if stream.first().is_some_and(|first| first & 0x7f == 0x11) {
                return Err(wrong("it has a window that is too large"));
            }
            let dictionary = dictionary.to_vec().into();
            let buffer_len = 64 << 10;
            Box::new(brotli::Decompressor::new_with_custom_dict(
                stream, buffer_len, dictionary,
            ))
        }
        Coding::DictionaryZstd => {
            let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(stream, dictionary)?;
            decoder.window_log_max(ZSTD_WINDOW_BITS_MAX)?;
            Box::new(decoder)
        }
        _ => return Err(wrong("its coding has no dictionary")),
    };
    let mut content = Vec::new();
    reader.take(len + 1).read_to_end(&mut content)?;
    match content.len() as u64 <= len {
        true => Ok(content),
        false => Err(wrong("it is longer than the file")),
    }
}

/// The smallest window that covers so many bytes.
fn window_bits(len: usize, max: u32) -> u32 {
    let needed = usize::BITS - len.saturating_sub(1).leading_zeros();
    needed.clamp(16, max)
}

/// The largest window of brotli (RFC 7932 section 9.1).
const BROTLI_WINDOW_MAX: usize = (1 << 24) - BROTLI_WINDOW_GAP;
const BROTLI_WINDOW_GAP: usize = 16;

/// 8 MiB: what every client decodes, whatever the length of the dictionary (RFC 9842 section 5).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::store::sha256;

    /// Bytes without repetitions, but with a dictionary nearly nothing.
    fn noise(len: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(|_| byte()).collect()
    }

    fn check(dictionary: &[u8], body: &[u8], coded_max: usize) {
        let sha256 = sha256(dictionary);
        for encoder in [Encoder::Brotli(11), Encoder::Brotli(5), Encoder::Zstd(19)] {
            let coded = encode(encoder, body, dictionary, &sha256).expect("memory");
            let (coding, coded) = coded.expect("it has a coding");
            let both = (dictionary, sha256.as_slice());
            let decoded = decode(coding, &coded, both, body.len() as u64).expect("sound");
            assert!(decoded == body, "{encoder}");
            assert!(coded.len() <= coded_max, "{encoder}: {} bytes", coded.len());
            // Nothing beyond the announced length.
            assert!(decode(coding, &coded, both, body.len() as u64 - 1).is_err());
            // The head shows another dictionary, and so does the checksum where there is one.
            let other = noise(dictionary.len(), 77);
            let other_sha256 = super::super::store::sha256(&other);
            let wrong = (other.as_slice(), other_sha256.as_slice());
            assert!(decode(coding, &coded, wrong, body.len() as u64).is_err());
            let decoded = decode(coding, &coded, (&other, &sha256), body.len() as u64);
            assert!(decoded.is_err() || decoded.is_ok_and(|decoded| decoded != body));
            if coding == Coding::DictionaryZstd {
                assert!(decode(coding, &coded, (&other, &sha256), body.len() as u64).is_err());
            }
        }
    }

    #[test]
    fn what_is_coded_with_a_dictionary_decodes_with_it_alone() {
        let old = noise(100_000, 1);
        let mut new = old.clone();
        new.splice(50_000..50_010, *b"something else");
        new.extend_from_slice(b"and an end");
        check(&old, &new, 400);
        // Longer than the dictionary, with the dictionary at its end: the largest distances.
        let longer = [noise(300_000, 2), old.clone()].concat();
        check(&old, &longer, 301_000);
        check(&old, &old[..4_000], 200);
        let text = b"words of a small file ".repeat(200);
        check(&text[..3_000], &text, 200);
    }

    #[test]
    fn only_brotli_and_zstd_have_such_codings_and_brotli_up_to_its_window() {
        let sha256 = [0; 32];
        let encode = |encoder, body: &[u8], dictionary: &[u8]| {
            let coded = encode(encoder, body, dictionary, &sha256).expect("memory");
            coded.map(|(coding, _)| coding)
        };
        assert_eq!(encode(Encoder::Libdeflate(6), b"a", b"b"), None);
        assert_eq!(encode(Encoder::Zopfli, b"a", b"b"), None);
        let half = vec![0; 8 << 20];
        assert_eq!(encode(Encoder::Brotli(5), &half, &half), None);
        let zstd = encode(Encoder::Zstd(1), &half, &half);
        assert_eq!(zstd, Some(Coding::DictionaryZstd));
    }

    #[test]
    fn changed_streams_come_to_an_end() {
        let dictionary = noise(3_000, 4);
        let body = [&dictionary[..2_000], b"changed", &dictionary[1_000..]].concat();
        let sha256 = sha256(&dictionary);
        let both = (dictionary.as_slice(), sha256.as_slice());
        for encoder in [Encoder::Brotli(9), Encoder::Zstd(19)] {
            let coded = encode(encoder, &body, &dictionary, &sha256).expect("memory");
            let (coding, coded) = coded.expect("it has a coding");
            let head = dictionary_head(coding, &sha256).len();
            for changes in noise(20_000, 5).chunks_exact(4) {
                let mut changed = coded.clone();
                for change in changes.chunks_exact(2) {
                    let place = head + usize::from(change[0]) % (coded.len() - head);
                    changed[place] ^= change[1];
                }
                if let Ok(decoded) = decode(coding, &changed, both, 6_000) {
                    assert!(decoded.len() <= 6_000);
                }
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        let dictionary = noise(5_000, 3);
        let sha256 = sha256(&dictionary);
        let both = (dictionary.as_slice(), sha256.as_slice());
        for encoder in [Encoder::Brotli(11), Encoder::Zstd(19)] {
            let coded = encode(encoder, &dictionary, &dictionary, &sha256).expect("memory");
            let (coding, coded) = coded.expect("it has a coding");
            for len in 0..coded.len() - 1 {
                let found = decode(coding, &coded[..len], both, 5_000);
                assert!(found.is_err() || found.is_ok_and(|it| it != dictionary));
            }
        }
        let mut wide = dictionary_head(Coding::DictionaryBrotli, &sha256);
        wide.extend_from_slice(&[0x11, 0x1e, 3]);
        assert!(decode(Coding::DictionaryBrotli, &wide, both, 5_000).is_err());
        assert!(decode(Coding::Brotli, b"", both, 5_000).is_err());
    }
}
