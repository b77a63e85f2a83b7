//! What the writer stores once, rejects, and reproduces byte by byte.

mod sample;

use gannet_archive::{
    ArchiveError, BlobId, Coding, Content, FieldBlock, Key, Options, Rule, SectionKind, Superblock,
    VariantDraft, Writer, digest, limits,
};
use sample::{
    common, dictionaries, hello, host_rules, hpack, indexed, inflated, open, site, unbrotlied,
};

/// The committed files of each format version. A change of these bytes is a change of the format.
#[test]
fn golden_files_are_written_the_same_and_still_open() {
    for (name, bytes) in [
        ("v2-hello", hello()),
        ("v2-hpack", hpack()),
        ("v2-inflated", inflated()),
        ("v2-unbrotlied", unbrotlied()),
        ("v2-common", common()),
        ("v2-host-rules", host_rules()),
        ("v2-site", site()),
        ("v2-dictionaries", dictionaries()),
    ] {
        let path = format!("{}/tests/golden/{name}.gannet", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &bytes).expect("the folder exists");
        }
        let golden = std::fs::read(&path).expect("the file is committed");
        sample::read_all(&open(&golden).expect("old archives open"));
        let at = golden.iter().zip(&bytes).position(|(a, b)| a != b);
        assert!(
            golden == bytes,
            "{name} drifted: first difference at {at:?}"
        );
    }
}

/// The dump in `FORMAT.md` is that of the golden file.
#[test]
fn the_dump_of_the_specification_is_the_golden_file() {
    let text = include_str!("../FORMAT.md");
    let mut bytes: Vec<u8> = Vec::new();
    for line in text.lines() {
        let Some((offset, rest)) = line.split_once(": ") else {
            continue;
        };
        let Ok(offset) = usize::from_str_radix(offset, 16) else {
            continue;
        };
        // Omitted lines repeat the previous one.
        while bytes.len() < offset {
            bytes.extend_from_within(bytes.len() - 16..);
        }
        let digits: String = rest.split("  ").next().unwrap_or("").split(' ').collect();
        for pair in digits.as_bytes().chunks(2) {
            let pair = str::from_utf8(pair).expect("ASCII");
            bytes.push(u8::from_str_radix(pair, 16).expect("hexadecimal digits"));
        }
    }
    assert!(
        bytes == hello(),
        "the dump in FORMAT.md is of another archive"
    );
}

#[test]
fn equal_bodies_and_field_blocks_are_stored_once() {
    let mut writer = Writer::new(Options::default());
    let small = writer.add_bytes(b"x");
    assert_eq!(writer.add_bytes(b"x"), small);
    let body = vec![7; 5000];
    let first = writer.add_bytes(&body);
    assert_eq!(first.write_at, Some(4096));
    let again = writer.add_hashed(digest(&body), 5000);
    assert_eq!((again.id, again.write_at), (first.id, None));
    // 4096 + 5000, at the next cache line.
    let next = writer.add_hashed([1; 32], 10);
    assert_eq!(next.write_at, Some(9152));
    // A large blob starts on a page.
    assert_eq!(writer.add_hashed([2; 32], 64 << 10).write_at, Some(12288));

    let archive = open(&site()).expect("sound");
    let index = archive.lookup(Key::content(b"/")).expect("an entry");
    let page = archive
        .lookup(Key::content(b"/index.html"))
        .expect("an entry");
    let blocks = |entry: gannet_archive::Entry<'_>| {
        entry
            .variants()
            .map(|variant| variant.h1_range())
            .collect::<Vec<_>>()
    };
    assert_eq!(blocks(index), blocks(page));
}

#[test]
fn tiny_blobs_have_a_total() {
    let mut writer = Writer::new(Options::default());
    let mut body = vec![0; limits::TINY_MAX as usize];
    let fitting = limits::TINY_TOTAL_MAX / limits::TINY_MAX;
    for number in 0..fitting {
        body[..8].copy_from_slice(&number.to_le_bytes());
        assert_eq!(writer.add_bytes(&body).write_at, None);
    }
    body[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(
        writer.add_bytes(&body).write_at,
        Some(4096),
        "the room for tiny blobs is used up"
    );
}

#[test]
fn wrong_input_is_refused_when_finishing() {
    let good = (b"/a".as_slice(), b"a/b".as_slice(), b"\"1\"".as_slice());
    let entries = |rule| Err((SectionKind::Entries, rule));
    let variants = |rule| Err((SectionKind::Variants, rule));
    let check = |(path, content_type, tag): (&[u8], &[u8], &[u8]), extra: &str, expect| {
        let mut writer = Writer::new(Options::default());
        write_one(&mut writer, path, content_type, tag, extra);
        assert_eq!(outcome(writer), expect, "{path:?} {extra:?}");
    };
    check(good, "", Ok(()));
    check((b"a", good.1, good.2), "", entries(Rule::Path));
    check((&[b'/'; 9000], good.1, good.2), "", entries(Rule::Limit));
    check(
        (good.0, b"a/b\r\nx: y", good.2),
        "",
        entries(Rule::ContentType),
    );
    check((good.0, good.1, b"1"), "", variants(Rule::EntityTag));
    check(good, "x: y\r\n\r\n", variants(Rule::FieldBlock));
    check(
        good,
        &format!("x: {}\r\n", "y".repeat(40_000)),
        variants(Rule::Limit),
    );
    check(
        good,
        &format!("x: {}\r\n", "y".repeat(70_000)),
        variants(Rule::Limit),
    );

    let mut writer = Writer::new(Options::default());
    for _ in 0..2 {
        write_one(&mut writer, b"/a", b"a/b", b"\"1\"", "");
    }
    assert_eq!(
        outcome(writer),
        entries(Rule::Order),
        "two entries with one key"
    );

    for (status, location) in [(200, "/a/"), (308, "//host/"), (308, "/a\r\nx: y")] {
        let mut writer = Writer::new(Options::default());
        writer.add_redirect(Key::content(b"/a"), status, location.as_bytes());
        assert_eq!(
            outcome(writer),
            entries(Rule::Redirect),
            "{status} {location:?}"
        );
    }

    let mut writer = Writer::new(Options::default());
    writer.add_content(Key::content(b"/a"), &Content::default());
    assert_eq!(
        outcome(writer),
        entries(Rule::Variants),
        "content without a variant"
    );
}

fn outcome(writer: Writer) -> Result<(), (SectionKind, Rule)> {
    match writer.finish() {
        Ok(_) => Ok(()),
        Err(ArchiveError::Record { section, rule, .. }) => Err((section, rule)),
        Err(other) => panic!("unexpected: {other}"),
    }
}

fn write_one(
    writer: &mut Writer,
    path: &[u8],
    content_type: &[u8],
    entity_tag: &[u8],
    extra: &str,
) {
    let blob: BlobId = writer.add_bytes(b"hello\n").id;
    let h1 = format!("Content-Length: 6\r\n{extra}");
    let variants = writer.add_variants(&[VariantDraft {
        coding: Coding::Identity,
        blob,
        entity_tag,
        h1: FieldBlock {
            bytes: h1.as_bytes(),
            length_end: 19,
            shared_start: 19,
            ..FieldBlock::default()
        },
        hpack: None,
    }]);
    writer.add_content(
        Key::content(path),
        &Content {
            content_type,
            variants,
            ..Content::default()
        },
    );
}

#[test]
fn a_coding_alone_is_kept_only_where_it_is_stored_and_shorter() {
    let mut writer = Writer::new(Options::default());
    let stored = writer.add_hashed([1; 32], 100).id;
    let zstd = writer.add_decoded([2; 32], 101, (Coding::Zstd, stored));
    assert_eq!(zstd, None, "readers have no decoder");
    let gzip = (Coding::Gzip, stored);
    let inflated = writer.add_decoded([2; 32], 101, gzip);
    let inflated = inflated.expect("longer than its gzip");
    assert_eq!(
        writer.add_decoded([2; 32], 101, gzip),
        Some(inflated),
        "once"
    );
    assert_eq!(
        writer.add_hashed([2; 32], 101).write_at,
        None,
        "stored already"
    );
    assert_eq!(writer.add_decoded([3; 32], 100, gzip), None, "not longer");
    assert_eq!(
        writer.add_decoded([3; 32], 500, (Coding::Gzip, inflated)),
        None,
        "not stored itself"
    );
    let max = limits::DECODED_LEN_MAX;
    assert_eq!(writer.add_decoded([3; 32], max + 1, gzip), None, "too long");
    let stored = writer.add_hashed([4; 32], 500).id;
    assert_eq!(
        writer.add_decoded([4; 32], 500, gzip),
        Some(stored),
        "stored already"
    );
    assert!(writer.finish().is_ok());
}

/// The names come back; other archives have none. There are dozens at most, and a server opens no archive that
/// has more.
#[test]
fn names_of_index_pages_come_back() {
    let names = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let archive = open(bytes).expect("a sound archive");
        archive.index_names().map(<[u8]>::to_vec).collect()
    };
    assert_eq!(names(&hello()), Vec::<Vec<u8>>::new());
    assert_eq!(
        names(
            &indexed(|writer| {
                writer.set_index_names([&b"home.htm"[..], b"a b"]);
            })
            .expect("few names")
        ),
        [&b"home.htm"[..], b"a b"]
    );
    let most = usize::try_from(limits::INDEX_NAMES_LEN_MAX).expect("small");
    let long = |len| vec![b'a'; len];
    assert!(indexed(|writer| writer.set_index_names([&*long(most - 1)])).is_ok());
    let refused = ArchiveError::Record {
        section: SectionKind::IndexNames,
        index: 0,
        rule: Rule::Limit,
    };
    assert_eq!(
        indexed(|writer| writer.set_index_names([&*long(most)])).err(),
        Some(refused)
    );
    let section = |writer: &mut Writer| writer.set_section(SectionKind::IndexNames, long(most + 1));
    // What was written is checked as a reader does.
    assert_eq!(indexed(section).err(), Some(refused));
}

/// What the superblock says is part of the build id; what follows is not.
#[test]
fn long_metadata_is_said_to_follow() {
    let written = |from: Option<u64>| {
        let mut writer = Writer::new(Options::default());
        writer.add_redirect(Key::content(b"/old"), 301, b"/new");
        if let Some(from) = from {
            writer.pack_metadata_from(from);
        }
        let finished = writer.finish_into(&mut |_| {}).expect("sound");
        let superblock = Superblock::parse(&finished.superblock, finished.file_len);
        let longer = Superblock::parse(&finished.superblock, finished.file_len + 9);
        (finished, superblock.expect("sound"), longer)
    };
    let (plain, superblock, longer) = written(None);
    assert!(longer.is_err());
    assert_eq!(
        (plain.is_packed, superblock.packed_metadata(9)),
        (false, None)
    );
    let len = plain.file_len - plain.metadata_offset;
    assert_eq!(written(Some(len + 1)).0, plain);
    let (packed, superblock, longer) = written(Some(len));
    let end = packed.file_len;
    assert!(packed.is_packed && longer.is_ok() && end == plain.file_len);
    assert_eq!(superblock.packed_metadata(end + 9), Some(end..end + 9));
}
