//! Hostile archives: content that is coded with a dictionary, but not to what it should be.

use std::fs;
use std::io::Write;

use gannet_archive::{Content, FieldBlock, Options, VariantDraft, Writer};

use super::*;

const OLD: &[u8] = b"the old script, which is here as the file of an earlier release";
const NEW: &[u8] = b"the new script, which has to be a bit longer than what is coded: that has \
    forty bytes for its head alone, and a frame needs some more";

/// An archive of the new script in no coding, and coded as `coded` with a dictionary of this hash
/// and path; and of the old script, carried on.
fn archive(coding: Coding, hash: &[u8; 32], path: &[u8], coded: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new(Options::default());
    let dictionary = writer.add_dictionary(hash, path, OLD.len() as u64);
    let blocks = [NEW, coded, OLD].map(|body| {
        let length = format!("Content-Length: {}\r\n", body.len());
        let block = format!("{length}cache-control: immutable\r\n");
        (writer.add_bytes(body).id, length.len() as u16, block)
    });
    let codings = [Coding::Identity, coding, Coding::Identity];
    let [new, coded, old] = [0, 1, 2].map(|number| {
        let (blob, length_end, block) = &blocks[number];
        VariantDraft {
            coding: codings[number],
            blob: *blob,
            entity_tag: b"",
            h1: FieldBlock {
                bytes: block.as_bytes(),
                length_end: *length_end,
                shared_start: *length_end,
                ..FieldBlock::default()
            },
            hpack: None,
        }
    });
    let content = Content {
        variants: writer.add_variants(&[new]),
        dictionary_variants: writer.add_dictionary_variants(&[(coded, dictionary)]),
        ..Content::default()
    };
    writer.add_content(Key::content(b"/new.js"), &content);
    let carried = Content {
        carried_since: Some(0),
        variants: writer.add_variants(&[old]),
        ..Content::default()
    };
    writer.add_content(Key::content(b"/old.js"), &carried);
    let parts = writer.finish().expect("its metadata are sound");
    let mut file = parts.superblock.to_vec();
    file.resize(parts.metadata_offset as usize, 0);
    file.extend_from_slice(&parts.metadata);
    file
}

/// A frame without references to any dictionary, with a window of so many bits.
fn frame(content: &[u8], window_bits: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 19).expect("memory");
    encoder.window_log(window_bits).expect("a valid window");
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// A stream of brotli without compression, of at most 64 KiB (RFC 7932 section 9.2): windows of 16
/// bits, the length, and an empty last block.
fn stream(content: &[u8]) -> Vec<u8> {
    let len = content.len() as u32 - 1;
    // 0: the window; 0: not the last; 00: four digits for the length; 1: not compressed.
    let head = len << 4 | 1 << 20;
    [&head.to_le_bytes()[..3], content, &[3]].concat()
}

#[test]
fn what_is_coded_with_a_dictionary_decodes_to_the_content_of_its_path() {
    let folder = std::env::temp_dir().join(format!("gannet-coded-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("writable");
    let path = folder.join("site.gannet");
    let found = |coding, hash: [u8; 32], old: &[u8], stream: &[u8]| {
        let coded = [&dictionary_head(coding, &hash), stream].concat();
        fs::write(&path, archive(coding, &hash, old, &coded)).expect("writable");
        verify(&path).map(|report| report.undecoded_count)
    };
    let check = |coding, stream: &[u8], expect: &str| {
        let error = found(coding, sha256(OLD), b"/old.js", stream).expect_err(expect);
        let error = error.to_string();
        let name = coding.name();
        let is_named = error.contains(&format!("wrong {name} of '/new.js'"));
        assert!(is_named && error.contains(expect), "{error}");
    };
    let (dcb, dcz) = (Coding::DictionaryBrotli, Coding::DictionaryZstd);
    let short = &NEW[..60];
    let both = [(dcb, stream(short)), (dcz, frame(short, 20))];
    for (coding, other) in both {
        check(coding, &other, "it decodes to other content");
        check(coding, &other[..other.len() - 5], "");
        check(coding, b"\xff\xff\xff\xff\xff", "");
        // Its content is unknown without its dictionary, or with another file in its place.
        assert_eq!(found(coding, [7; 32], b"/old.js", &other).ok(), Some(1));
        assert_eq!(found(coding, sha256(OLD), b"/no.js", &other).ok(), Some(1));
        // A dictionary that is the path's own content.
        assert_eq!(found(coding, sha256(NEW), b"/new.js", &other).ok(), Some(1));
    }
    // Longer than the content, by far.
    check(
        dcz,
        &frame(&vec![0; 1 << 20], 20),
        "it is longer than the file",
    );
    let mut zeros = Vec::new();
    let effort = gannet_brotli::Effort {
        level: 5,
        window_bits: 22,
    };
    let source: (&mut dyn std::io::Read, usize) = (&mut &vec![0; 1 << 20][..], 1 << 20);
    gannet_brotli::compress(source, effort, b"", Default::default(), &mut zeros).expect("memory");
    check(dcb, &zeros, "it is longer than the file");
    // A window that clients do not have.
    check(dcz, &frame(short, 27), "");
    check(dcb, b"\x11\x1e\x03", "it has a window that is too large");
    fs::remove_dir_all(&folder).expect("there");
}

/// A tree that does not lead to the digest of its file: nothing could be fetched of that.
#[test]
fn a_tree_is_that_of_its_file() {
    let folder = std::env::temp_dir().join(format!("gannet-tree-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("writable");
    let path = folder.join("site.gannet");
    let body: Vec<u8> = (0..1_100_000u32).map(|at| (at >> 8) as u8).collect();
    let packed = |change: u8| {
        let mut hasher = TreeHasher::default();
        hasher.update(&body);
        let (len, digest, mut tree) = hasher.finish();
        tree[3][31] ^= change;
        let mut writer = Writer::new(Options::default());
        let placed = writer.add_hashed(digest, len);
        writer.set_tree(placed.id, tree);
        let parts = writer.finish().expect("its metadata are sound");
        let mut file = parts.superblock.to_vec();
        file.extend_from_slice(&body);
        file.resize(parts.metadata_offset as usize, 0);
        file.extend_from_slice(&parts.metadata);
        fs::write(&path, file).expect("writable");
        verify(&path).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(packed(0), Ok(()));
    let error = packed(1).expect_err("another tree");
    assert!(error.contains("wrong tree of"), "{error}");
    fs::remove_dir_all(&folder).expect("there");
}
