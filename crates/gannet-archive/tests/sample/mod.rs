//! Archives for tests: whole files in memory, and a careful reader.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use gannet_archive::{
    Archive, ArchiveError, BlobId, Body, Coding, Content, FieldBlock, HostRules, Key, Namespace,
    Options, Parts, SUPERBLOCK_LEN, SectionKind, Stored, Superblock, VariantDraft, VariantsId,
    Writer, decode, dictionary_head, digest, limits,
};
use xxhash_rust::xxh3::xxh3_64;

/// A whole file, as a packer would write it.
pub(crate) struct File {
    writer: Writer,
    bytes: Vec<u8>,
}

impl File {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            writer: Writer::new(options),
            bytes: vec![0; SUPERBLOCK_LEN],
        }
    }

    /// Adds the representation in the given codings; its blobs go to the file.
    pub(crate) fn variants(&mut self, bodies: &[(Coding, &[u8])]) -> VariantsId {
        let bodies: Vec<_> = bodies
            .iter()
            .map(|(coding, body)| (*coding, self.place(body, true), *body))
            .collect();
        self.placed(&bodies)
    }

    /// Stores bytes; in the file, unless they may be tiny.
    fn place(&mut self, body: &[u8], may_be_tiny: bool) -> BlobId {
        let placed = match may_be_tiny {
            true => self.writer.add_bytes(body),
            false => self.writer.add_hashed(digest(body), body.len() as u64),
        };
        if let Some(offset) = placed.write_at {
            self.bytes.resize(offset as usize, 0);
            self.bytes.extend_from_slice(body);
        }
        placed.id
    }

    /// Adds the representation in the given codings, whose blobs are stored already.
    fn placed(&mut self, bodies: &[(Coding, BlobId, &[u8])]) -> VariantsId {
        let drafts: Vec<_> = bodies
            .iter()
            .map(|(coding, id, body)| {
                let tag = format!("\"{:02x}-{}\"", digest(body)[0], *coding as u8);
                let length = format!("Content-Length: {}\r\n", body.len());
                let coded = match coding {
                    Coding::Identity => String::new(),
                    _ => format!("Content-Encoding: {}\r\n", coding.name()),
                };
                let own = format!("{length}content-type: text/plain\r\n{coded}");
                let block = format!("{own}ETag: {tag}\r\nVary: accept-encoding\r\n");
                (
                    *coding,
                    *id,
                    tag,
                    block,
                    length.len() as u16,
                    own.len() as u16,
                )
            })
            .collect();
        let drafts: Vec<_> = drafts
            .iter()
            .map(
                |(coding, blob, tag, block, length_end, shared_start)| VariantDraft {
                    coding: *coding,
                    blob: *blob,
                    entity_tag: tag.as_bytes(),
                    h1: FieldBlock {
                        bytes: block.as_bytes(),
                        length_end: *length_end,
                        shared_start: *shared_start,
                        ..FieldBlock::default()
                    },
                    hpack: None,
                },
            )
            .collect();
        self.writer.add_variants(&drafts)
    }

    pub(crate) fn content(&mut self, key: Key<'_>, variants: VariantsId, is_alias: bool) {
        self.writer.add_content(
            key,
            &Content {
                content_type: b"text/plain",
                last_modified: is_alias.then_some(1_700_000_000),
                is_alias,
                variants,
                ..Content::default()
            },
        );
    }

    pub(crate) fn redirect(&mut self, path: &[u8], location: &[u8]) {
        self.writer.add_redirect(Key::content(path), 308, location);
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>, ArchiveError> {
        let Parts {
            superblock,
            metadata_offset,
            metadata,
            file_len,
        } = self.writer.finish()?;
        let mut bytes = self.bytes;
        bytes.resize(metadata_offset as usize, 0);
        bytes.extend_from_slice(&metadata);
        bytes[..SUPERBLOCK_LEN].copy_from_slice(&superblock);
        assert_eq!(bytes.len() as u64, file_len);
        Ok(bytes)
    }
}

/// One tiny entry: the dump in `FORMAT.md`.
pub(crate) fn hello() -> Vec<u8> {
    let mut file = File::new(Options::default());
    let variants = file.variants(&[(Coding::Identity, b"hello\n")]);
    file.content(Key::content(b"/hello.txt"), variants, false);
    file.finish().expect("a sound archive")
}

/// One tiny entry, and what this sets.
pub(crate) fn indexed(set: impl FnOnce(&mut Writer)) -> Result<Vec<u8>, ArchiveError> {
    let mut file = File::new(Options::default());
    set(&mut file.writer);
    let variants = file.variants(&[(Coding::Identity, b"hello\n")]);
    file.content(Key::content(b"/"), variants, false);
    file.finish()
}

/// All features of the format, small: tiny and large blobs, several codings, an alias, a not-found
/// page, a redirect.
pub(crate) fn site() -> Vec<u8> {
    let mut file = File::new(Options {
        spa: true,
        ..Options::default()
    });
    let large: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect();
    let page = file.variants(&[
        (Coding::Identity, b"<p>index index index index"),
        (Coding::Brotli, b"not really brotli"),
        (Coding::Gzip, b"nor is this gzip, but longer"),
    ]);
    let data = file.variants(&[(Coding::Identity, &large), (Coding::Zstd, &large[..4500])]);
    let missing = file.variants(&[(Coding::Identity, b"")]);
    file.content(Key::content(b"/index.html"), page, false);
    file.content(Key::content(b"/"), page, true);
    file.content(Key::content(b"/data/large.bin"), data, false);
    file.content(Key::content(b"/404.html"), missing, false);
    file.content(Key::not_found_page(b"/"), missing, true);
    file.redirect(b"/data", b"/data/");
    file.finish().expect("a sound archive")
}

/// Blobs in the file, tiny ones, and two long ones of which parts can be verified.
pub(crate) fn long() -> Vec<u8> {
    let mut file = File::new(Options::default());
    let bytes = |len: usize| (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
    let group = limits::GROUP_LEN as usize;
    let unit = limits::UNIT_LEN_MAX as usize;
    for (name, len) in [
        ("/a", 5000),
        ("/b", unit + 1),
        ("/c", 100),
        ("/d", unit),
        ("/e", unit + 2 * group),
        ("/f", 6000),
        ("/g", 7000),
    ] {
        let body: Vec<u8> = bytes(len);
        let variants = file.variants(&[(Coding::Identity, &body)]);
        file.content(Key::content(name.as_bytes()), variants, false);
    }
    file.finish().expect("a sound archive")
}

/// Two virtual hosts, rules, and a page in every name space.
pub(crate) fn hosts() -> Vec<u8> {
    let mut file = File::new(Options::default());
    let page = file.variants(&[(Coding::Identity, b"<p>page")]);
    let other = file.variants(&[(Coding::Identity, b"<p>other")]);
    file.writer.set_hosts([&b"a.example"[..], b"b.example"]);
    file.writer
        .set_section(SectionKind::RedirectRules, b"redirects".to_vec());
    file.writer
        .set_section(SectionKind::FieldRules, b"fields".to_vec());
    file.content(Key::content(b"/"), page, false);
    file.content(Key::content(b"/").on(1), other, false);
    file.content(Key::content(b"/").on(2), page, false);
    let folder = Key::not_found_page(b"/");
    file.content(folder.within(Namespace::ApplicationPage), page, true);
    file.content(folder.within(Namespace::Wildcard).on(2), page, true);
    file.content(folder.within(Namespace::Unruled).on(1), other, true);
    file.finish().expect("a sound archive")
}

/// A virtual host and all others, each with its own rules.
pub(crate) fn host_rules() -> Vec<u8> {
    let mut file = File::new(Options::default());
    let page = file.variants(&[(Coding::Identity, b"<p>page")]);
    file.writer.set_hosts([&b"a.example"[..]]);
    let rules = |redirects, fields| HostRules { redirects, fields };
    file.writer.set_host_rules([
        (0, rules(b"redirects".as_slice(), b"".as_slice())),
        (1, rules(b"more", b"fields")),
    ]);
    file.content(Key::content(b"/"), page, false);
    file.content(Key::content(b"/").on(1), page, false);
    file.finish().expect("a sound archive")
}

/// Bodies that are stored as gzip alone, in the metadata region and outside, one of them also under
/// a name whose type is not compressed.
pub(crate) fn inflated() -> Vec<u8> {
    alone(Coding::Gzip, SMALL_GZIP, LONG_GZIP)
}

/// The same bodies, stored as brotli alone.
pub(crate) fn unbrotlied() -> Vec<u8> {
    alone(Coding::Brotli, SMALL_BROTLI, LONG_BROTLI)
}

fn alone(coding: Coding, small_coded: &[u8], long_coded: &[u8]) -> Vec<u8> {
    let mut file = File::new(Options::default());
    let long = b"ab".repeat(4500);
    let small_stored = file.place(small_coded, true);
    let long_stored = file.place(long_coded, false);
    let mut decoded = |body: &[u8], stored| {
        let (digest, len) = (digest(body), body.len() as u64);
        let id = file.writer.add_decoded(digest, len, (coding, stored));
        id.expect("it is longer than what is stored")
    };
    let (small_id, long_id) = (decoded(SMALL, small_stored), decoded(&long, long_stored));
    let small = file.placed(&[
        (Coding::Identity, small_id, SMALL),
        (coding, small_stored, small_coded),
    ]);
    let long = file.placed(&[
        (Coding::Identity, long_id, &long),
        (coding, long_stored, long_coded),
    ]);
    let alone = file.placed(&[(Coding::Identity, small_id, SMALL)]);
    file.content(Key::content(b"/small.txt"), small, false);
    file.content(Key::content(b"/long.txt"), long, false);
    file.content(Key::content(b"/small.bin"), alone, false);
    file.finish().expect("a sound archive")
}

const SMALL: &[u8] = b"hello hello hello hello hello hello\n";
/// By gzip -9n.
const SMALL_GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\xc0\x47\x72\
    \x01\x00\xf3\xa0\x5d\xc7\x24\x00\x00\x00";
/// That of 4500 times "ab".
const LONG_GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xed\xc2\x01\x09\x00\x00\x00\x02\xa0\xad\
    \xf5\x7f\x44\x3f\x42\x34\x0d\x00\x00\x00\x00\x00\x00\x00\x00\xdc\x1b\xee\x07\xce\
    \xe4\x28\x23\x00\x00";

/// By brotli in quality 11.
const SMALL_BROTLI: &[u8] =
    b"\x1b\x23\x00\xf8\x8d\x94\x6e\xde\x44\x55\x86\xd6\x0a\x20\x6c\x6f\x4a\x11\x7a\
    \xe2\x80\x5e\x2d\x00";
const LONG_BROTLI: &[u8] = b"\x1b\x27\x23\xf8\xa5\xc2\xc4\xe2\xb2\x30\x00\x5c\x03\x40";

/// One entry with a field block for HTTP/2 beside the one for HTTP/1.
pub(crate) fn hpack() -> Vec<u8> {
    let mut file = File::new(Options::default());
    let placed = file.writer.add_bytes(b"hello\n");
    let variants = file.writer.add_variants(&[VariantDraft {
        coding: Coding::Identity,
        blob: placed.id,
        entity_tag: b"",
        h1: FieldBlock {
            bytes: b"Content-Length: 6\r\nContent-Type: text/plain\r\nVary: accept-encoding\r\n",
            length_end: 19,
            shared_start: 45,
            ..FieldBlock::default()
        },
        hpack: Some(FieldBlock {
            bytes: b"\x0f\x0d\x016\x0f\x10\x0atext/plain\x0f\x2c\x0faccept-encoding",
            length_end: 4,
            shared_start: 17,
            ..FieldBlock::default()
        }),
    }]);
    file.content(Key::content(b"/hello.txt"), variants, false);
    file.finish().expect("a sound archive")
}

/// Two entries whose field blocks, for both versions of HTTP, have common parts. The tag of the
/// second is not in its block.
pub(crate) fn common() -> Vec<u8> {
    let mut file = File::new(Options::default());
    for (path, body, own, own_hpack) in [
        (
            b"/a.txt",
            b"hello\n",
            &b"Content-Length: 6\r\nETag: \"1\"\r\n"[..],
            &b"\x0f\x0d\x016\x0f\x13\x03\"1\""[..],
        ),
        (
            b"/b.txt",
            b"world\n",
            b"Content-Length: 6\r\n",
            b"\x0f\x0d\x016",
        ),
    ] {
        let placed = file.writer.add_bytes(body);
        let variants = file.writer.add_variants(&[VariantDraft {
            coding: Coding::Identity,
            blob: placed.id,
            entity_tag: b"\"1\"",
            h1: FieldBlock {
                bytes: own,
                length_end: 19,
                shared_start: 19,
                common: b"Content-Type: text/plain\r\nVary: accept-encoding\r\n",
                common_shared_start: 26,
            },
            hpack: Some(FieldBlock {
                bytes: own_hpack,
                length_end: 4,
                shared_start: 4,
                common: b"\x0f\x10\x0atext/plain\x0f\x2c\x0faccept-encoding",
                common_shared_start: 13,
            }),
        }]);
        file.content(Key::content(path), variants, false);
    }
    file.finish().expect("a sound archive")
}

/// A file that is coded with two dictionaries, and one of them carried on. One coded body is in the
/// metadata region, one is not.
pub(crate) fn dictionaries() -> Vec<u8> {
    dictionaries_of(9000).expect("a sound archive")
}

/// The same, with so much content.
pub(crate) fn dictionaries_of(len: usize) -> Result<Vec<u8>, ArchiveError> {
    let mut file = File::new(Options::default());
    let mut variant = |coding: Coding, body: &[u8]| {
        let blob = file.place(body, true);
        let length = format!("Content-Length: {}\r\n", body.len());
        let rest = "Cache-Control: immutable\r\nVary: accept-encoding, available-dictionary\r\n";
        (coding, blob, length.len() as u16, format!("{length}{rest}"))
    };
    let coded = |coding, dictionary: [u8; 32], len| {
        [dictionary_head(coding, &dictionary), vec![7; len]].concat()
    };
    let (dcb, dcz) = (Coding::DictionaryBrotli, Coding::DictionaryZstd);
    let all = [
        variant(Coding::Identity, &vec![1; len]),
        variant(Coding::Gzip, &[2; 8000]),
        variant(dcb, &coded(dcb, [3; 32], 10)),
        variant(dcz, &coded(dcz, [4; 32], 5000)),
        variant(Coding::Identity, &[5; 8900]),
    ];
    let drafts = all.each_ref().map(dictionary_draft);
    let writer = &mut file.writer;
    let first = writer.add_dictionary(&[3; 32], b"/app.1.js", 8900);
    let second = writer.add_dictionary(&[4; 32], b"/app.0.js", 8 << 20);
    let content = Content {
        content_type: b"text/javascript",
        variants: writer.add_variants(&drafts[..2]),
        dictionary_variants: writer
            .add_dictionary_variants(&[(drafts[3], second), (drafts[2], first)]),
        ..Content::default()
    };
    writer.add_content(Key::content(b"/app.2.js"), &content);
    let carried = Content {
        content_type: b"text/javascript",
        variants: writer.add_variants(&drafts[4..]),
        carried_since: Some(1_700_000_000),
        ..Content::default()
    };
    writer.add_content(Key::content(b"/app.1.js"), &carried);
    file.finish()
}

fn dictionary_draft(
    (coding, blob, length_end, block): &(Coding, BlobId, u16, String),
) -> VariantDraft<'_> {
    VariantDraft {
        coding: *coding,
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
}

/// Opens a whole file.
pub(crate) fn open(file: &[u8]) -> Result<Archive<Vec<u8>>, ArchiveError> {
    let first = &file[..file.len().min(SUPERBLOCK_LEN)];
    let superblock = Superblock::parse(first, file.len() as u64)?;
    let range = superblock.metadata_range();
    let metadata = file[range.start as usize..range.end as usize].to_vec();
    Archive::new(superblock, metadata)
}

/// Whether all stored bytes match their digests, and all others are zero.
pub(crate) fn is_intact(archive: &Archive<Vec<u8>>, file: &[u8]) -> bool {
    let mut end = SUPERBLOCK_LEN;
    let places: Vec<_> = archive
        .blobs()
        .map(|blob| (blob.offset, blob.len))
        .collect();
    let blobs_are = archive.blobs().all(|blob| {
        if let Some((coding, coded)) = blob.coded {
            let (offset, len) = places[coded as usize];
            let coded = &file[offset as usize..(offset + len) as usize];
            return decode(coding, coded, blob.len).is_ok_and(|body| digest(&body) == blob.digest);
        }
        let (start, next) = (blob.offset as usize, (blob.offset + blob.len) as usize);
        let gap_is_zero = blob.is_tiny || file[end..start].iter().all(|byte| *byte == 0);
        end = if blob.is_tiny { end } else { next };
        gap_is_zero && digest(&file[start..next]) == blob.digest
    });
    let metadata = archive.superblock().metadata_range().start as usize;
    let superblock = archive.superblock();
    blobs_are
        && file[end..metadata].iter().all(|byte| *byte == 0)
        && superblock.compute_build_id(archive.metadata()) == *superblock.build_id()
}

/// Writes correct checksums for the current content of the section table.
pub(crate) fn reseal(file: &mut [u8]) {
    if file.len() < SUPERBLOCK_LEN {
        return;
    }
    for row in 0..(u32_at(file, 60) as usize).min(64) {
        let row = 128 + row * 32;
        let start = u64_at(file, row + 8);
        let end = start.saturating_add(u64_at(file, row + 16));
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        if let Some(bytes) = range.and_then(|(start, end)| file.get(start..end)) {
            let checksum = xxh3_64(bytes);
            file[row + 24..row + 32].copy_from_slice(&checksum.to_le_bytes());
        }
    }
    let checksum = xxh3_64(&file[..4088]);
    file[4088..4096].copy_from_slice(&checksum.to_le_bytes());
}

/// A number of the file, with zeros after its end.
pub(crate) fn u64_at(file: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(file.iter().skip(at)) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

fn u32_at(file: &[u8], at: usize) -> u32 {
    u64_at(file, at) as u32
}

/// Reads everything that an archive offers: nothing may panic, whatever passed validation.
pub(crate) fn read_all(archive: &Archive<Vec<u8>>) {
    let superblock = archive.superblock();
    let region = superblock.metadata_range();
    for entry in archive.entries() {
        let key = entry.key();
        let found = archive.lookup(key).expect("every entry is found");
        assert_eq!(found.number(), entry.number());
        assert!(archive.entry(entry.number()).is_some());
        let mut previous = 0;
        for variant in entry.variants() {
            assert!(
                variant.blob_len() >= previous,
                "variants are in the order of their lengths"
            );
            previous = variant.blob_len();
            assert!(variant.blob_offset() <= superblock.archive_len());
            match variant.body() {
                Body::Plain(Stored::Tiny(bytes)) => {
                    assert_eq!(bytes.len() as u64, variant.blob_len());
                    let range = variant.tiny_range().expect("it is tiny");
                    assert_eq!(&archive.metadata()[range], bytes);
                }
                Body::Plain(Stored::Blob { offset, len }) => {
                    assert!(offset >= SUPERBLOCK_LEN as u64 && offset + len <= region.start);
                    assert_eq!(variant.tiny_range(), None);
                }
                Body::Decoded {
                    stored,
                    coding,
                    len,
                } => {
                    assert_eq!((variant.tiny_range(), variant.blob_len()), (None, len));
                    let stored_len = match stored {
                        Stored::Tiny(bytes) => {
                            let _ = decode(coding, bytes, len);
                            bytes.len() as u64
                        }
                        Stored::Blob { offset, len } => {
                            assert!(offset + len <= region.start);
                            len
                        }
                    };
                    assert!(stored_len < len && len <= gannet_archive::limits::DECODED_LEN_MAX);
                }
            }
            let block = variant.h1();
            assert!(block.length_end <= block.shared_start);
            assert!(usize::from(block.shared_start) <= block.bytes.len());
            assert_eq!(&archive.metadata()[variant.h1_range()], block.bytes);
            let length = format!("Content-Length: {}\r\n", variant.blob_len());
            assert_eq!(
                &block.bytes[..usize::from(block.length_end)],
                length.as_bytes()
            );
            if let Some(block) = variant.hpack() {
                assert!(0 < block.length_end && block.length_end <= block.shared_start);
                assert!(usize::from(block.shared_start) <= block.bytes.len());
            }
            assert_eq!(variant.digest().len(), 32);
            assert_eq!(variant.content_type(), entry.content_type());
            let _ = variant.entity_tag();
            assert_eq!(variant.dictionary(), None);
            assert!(entry.variant(variant.number()).is_some());
        }
        assert_eq!(
            entry.has_dictionary_variants(),
            entry.dictionary_variants().len() > 0
        );
        for variant in entry.dictionary_variants() {
            let dictionary = variant.dictionary().expect("it needs one");
            let sha256 = dictionary.sha256.try_into().expect("32 bytes");
            let found = entry.select_with_dictionary(variant.coding().into(), &sha256);
            let found = found.expect("it is found").dictionary();
            assert_eq!(found.map(|it| it.sha256), Some(dictionary.sha256));
            assert!(variant.blob_len() > sha256.len() as u64);
            assert!(entry.variant(variant.number()).is_some());
            assert!(matches!(variant.body(), Body::Plain(_)));
            let _ = (variant.h1(), variant.hpack(), variant.digest());
        }
        let _ = (
            entry.kind(),
            entry.last_modified(),
            entry.is_alias(),
            entry.is_generated(),
            entry.is_immutable(),
            entry.carried_since(),
        );
    }
    let _ = (archive.stats(), archive.options(), archive.index_shape());
    for kind in SectionKind::OPTIONAL {
        let _ = archive.section(kind);
    }
    for (host, name) in (0..=u16::MAX).zip([b"".as_slice()].into_iter().chain(archive.hosts())) {
        assert!(name.len() < 256);
        let _ = archive.has_namespace(host, Namespace::Wildcard);
        let _ = archive.rules(host);
    }
    assert!(archive.blobs().all(|blob| blob.digest.len() == 32));
}

/// SplitMix64: numbers from a seed, the same on every machine.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
