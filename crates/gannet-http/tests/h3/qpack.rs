//! QPACK against the examples of RFC 9204 and against another implementation.

use gannet_http::h3::qpack::{decode_each, encoder};
use gannet_http::semantics::field_names::write_title;
use gannet_http::semantics::ready_fields::RepresentationFields;
use gannet_testkit::h3::qpack as oracle;
use proptest::prelude::*;

use super::h3_checks;
use super::h3_checks::Pairs;

fn decode(section: &[u8]) -> Pairs {
    let mut pairs = Pairs::new();
    decode_each(section, |name, value| {
        pairs.push((name.to_vec(), value.to_vec()));
    })
    .expect("a section");
    pairs
}

#[test]
fn the_static_table_is_that_of_the_standard() {
    for (index, (name, value)) in oracle::TABLE.iter().enumerate() {
        let mut section = vec![0, 0];
        oracle::integer(index, 0xc0, 6, &mut section);
        let pairs = decode(&section);
        assert_eq!(
            pairs,
            [(name.as_bytes().to_vec(), value.as_bytes().to_vec())]
        );
        let mut again = vec![0, 0];
        encoder::write_field(name, value.as_bytes(), &mut again);
        assert_eq!(again, section, "{name}: {value}");
    }
}

#[test]
fn the_example_of_the_standard_without_a_dynamic_table() {
    // RFC 9204 B.1
    let section = b"\x00\x00\x51\x0b/index.html";
    assert_eq!(
        decode(section),
        [(b":path".to_vec(), b"/index.html".to_vec())]
    );
}

/// A block in the form that archives store.
#[test]
fn ready_blocks_keep_their_meaning() {
    let fields = RepresentationFields {
        content_length: 1234,
        content_type: Some(b"text/html;charset=utf-8"),
        content_language: Some(b"en"),
        entity_tag: Some(b"\"0123456789abcdef\""),
        last_modified: Some(784_111_777),
        cache_control: Some(b"no-cache"),
        vary: Some(b"accept-encoding"),
        accept_ranges: true,
        nosniff: true,
        further: &[
            ("x-empty", b""),
            ("link", b"</a>"),
            ("x-tilde", b"~~~~~~~~~~~"),
        ],
        ..Default::default()
    };
    let ready = fields.render().expect("fields that may be sent");
    let hpack = gannet_http::h2::hpack::ready::render(ready.as_block()).expect("lines");
    let block = hpack.into_bytes();
    let mut section = vec![0, 0];
    assert!(gannet_http::h3::qpack::transcode(&block, &mut section).is_some());
    let mut lines = Vec::new();
    for (name, value) in decode(&section) {
        write_title(str::from_utf8(&name).expect("ours"), &mut lines);
        lines.extend_from_slice(&[b": ", &value[..], b"\r\n"].concat());
    }
    assert_eq!(lines, ready.as_block().bytes);
    h3_checks::transcodes(&block);
}

proptest! {
    #[test]
    fn any_section_decodes_as_another_decoder_does_it(
        section in proptest::collection::vec(prop_oneof![
            2 => any::<u8>(), 2 => 0xc0u8..=0xff, 2 => 0x50u8..0x60, 2 => 0x20u8..0x30, 3 => 0u8..6], 0..80)
    ) {
        h3_checks::qpack(&section);
    }

    #[test]
    fn any_stateless_block_keeps_its_meaning(
        block in proptest::collection::vec(prop_oneof![
            1 => any::<u8>(), 2 => 0x81u8..=0xbd, 3 => 0u8..0x20], 0..80)
    ) {
        h3_checks::transcodes(&block);
    }
}
