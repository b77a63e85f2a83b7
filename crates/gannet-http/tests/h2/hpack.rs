//! HPACK against the examples of RFC 7541 and against another implementation.
//!
//! The examples are `tests/fixtures/hpack/*.txt`: `table SIZE` begins a connection, `block HEX` is
//! a field block, and lines `name: value` are what it decodes to.

use std::fs;
use std::path::Path;

use gannet_http::binary::CodingError;
use gannet_http::binary::limits::FIELD_SECTION_DECODED_MAX;
use gannet_http::h2::hpack::Decoder;
use gannet_http::h2::limits::DYNAMIC_TABLE_MAX;
use gannet_testkit::h2::hpack;
use proptest::prelude::*;

use super::h2_checks;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Pairs, CodingError> {
    let mut pairs = Vec::new();
    decoder.decode_each(block, |name, value| {
        pairs.push((name.to_vec(), value.to_vec()))
    })?;
    Ok(pairs)
}

fn from_hex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..][..2], 16).expect("two digits"))
        .collect()
}

#[test]
fn the_examples_of_the_standard_decode() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hpack");
    let mut block_count = 0;
    for entry in fs::read_dir(folder).expect("the folder of examples") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a readable example");
        let mut decoder = Decoder::new();
        for part in text.split("\nblock ").skip(1) {
            let mut lines = part.lines();
            let block = from_hex(lines.next().expect("the block"));
            let found = decode(&mut decoder, &block).expect("a block of the standard");
            let found: Vec<_> = found
                .iter()
                .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
                .collect();
            let expect: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            assert_eq!(found, expect, "{} {block:x?}", path.display());
            block_count += 1;
        }
    }
    assert_eq!(block_count, 16, "all examples were read");
}

#[test]
fn what_cannot_be_decoded_is_refused_for_its_reason() {
    use CodingError::{Huffman, Index, Integer, SizeUpdate, Truncated};
    let check = |hex: &str, expect| {
        let found = decode(&mut Decoder::new(), &from_hex(hex)).map(|_| ());
        assert_eq!(found, expect, "{hex}");
    };
    check("", Ok(()));
    check("80", Err(Index));
    check("bd", Ok(()));
    check("be", Err(Index));
    check("7e0161", Err(Index));
    check("ffffffffffff", Err(Integer));
    check("ff80", Err(Truncated));
    check("00", Err(Truncated));
    check("000161", Err(Truncated));
    check("0001610262", Err(Truncated));
    check("00016181ff", Err(Huffman));
    check("3f", Err(Truncated));
    check("3fe11f", Ok(()));
    check("3fe21f", Err(SizeUpdate));
    check("20203fe11f", Err(SizeUpdate));
    check("203fe11f", Ok(()));
    check("8820", Err(SizeUpdate));
}

#[test]
fn a_bomb_of_references_to_a_large_entry_is_cut_off() {
    let mut decoder = Decoder::new();
    let value = vec![b'v'; 4000];
    let mut oracle = hpack::Encoder::new();
    let entry = oracle.encode([(&b"x"[..], &value[..])]);
    assert_eq!(decode(&mut decoder, &entry).map(|pairs| pairs.len()), Ok(1));
    let mut decoded = 0;
    let bomb = [0xbe; 30_000];
    let result = decoder.decode_each(&bomb, |_, value| decoded += value.len() as u32);
    assert_eq!(result, Err(CodingError::TooLarge));
    assert!(decoded <= FIELD_SECTION_DECODED_MAX + DYNAMIC_TABLE_MAX);
}

/// Fields that repeat, so that tables are used, and others that do not.
fn any_fields() -> impl Strategy<Value = Vec<Pairs>> {
    let names = prop_oneof![
        Just(&b":path"[..]),
        Just(&b"user-agent"[..]),
        Just(&b"accept"[..]),
        Just(&b"x-one"[..]),
        Just(&b"cookie"[..])
    ];
    let value = prop_oneof![
        4 => Just(b"a value".to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(any::<u8>(), 900..1100),
    ];
    let field = (names, value).prop_map(|(name, value)| (name.to_vec(), value));
    proptest::collection::vec(proptest::collection::vec(field, 0..10), 0..20)
}

proptest! {
    #[test]
    fn what_another_encoder_writes_decodes(sections in any_fields()) {
        let mut encoder = hpack::Encoder::new();
        let mut decoder = Decoder::new();
        for section in sections {
            let fields = section.iter().map(|(name, value)| (&name[..], &value[..]));
            let block = encoder.encode(fields);
            prop_assert_eq!(decode(&mut decoder, &block), Ok(section));
        }
    }

    #[test]
    fn any_block_decodes_as_another_decoder_does_it(
        block in proptest::collection::vec(prop_oneof![
            2 => any::<u8>(), 1 => 0x80u8..=0xc8, 1 => 0x40u8..0x50, 2 => 0u8..8], 0..80)
    ) {
        h2_checks::hpack(&block);
    }
}
