//! A damaged archive is refused at open, or the damage is in blob bytes and verifying finds it.

mod sample;

use gannet_archive::{ArchiveError, Lookalike, SUPERBLOCK_LEN, Superblock, partial_start};
use sample::{
    common, hello, host_rules, hosts, hpack, inflated, is_intact, open, read_all, site, unbrotlied,
};

#[test]
fn a_sound_archive_opens_and_is_intact() {
    for file in [
        hello(),
        site(),
        hosts(),
        hpack(),
        inflated(),
        unbrotlied(),
        common(),
        host_rules(),
    ] {
        let archive = open(&file).expect("sound");
        read_all(&archive);
        assert!(is_intact(&archive, &file));
    }
}

#[test]
fn a_flip_of_any_byte_is_refused_or_found_by_verifying() {
    flip_every_byte(&site());
    flip_every_byte(&hosts());
    flip_every_byte(&hpack());
    flip_every_byte(&inflated());
    flip_every_byte(&unbrotlied());
    flip_every_byte(&common());
    flip_every_byte(&host_rules());
}

fn flip_every_byte(sound: &[u8]) {
    let blobs = SUPERBLOCK_LEN..metadata_start(sound);
    let (mut refused, mut found) = (0, 0);
    for at in 0..sound.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut file = sound.to_vec();
            file[at] ^= mask;
            match open(&file) {
                Err(_) => refused += 1,
                Ok(archive) => {
                    assert!(blobs.contains(&at), "byte {at} ^ {mask:#x} was accepted");
                    assert!(
                        !is_intact(&archive, &file),
                        "byte {at} ^ {mask:#x} was not found"
                    );
                    found += 1;
                }
            }
        }
    }
    assert_eq!(refused + found, 3 * sound.len());
    assert_eq!(found, 3 * blobs.len(), "only blobs are left to verify");
}

#[test]
fn a_file_cut_anywhere_is_refused_as_cut_short() {
    let sound = site();
    for len in 0..sound.len() {
        let error = open(&sound[..len]).expect_err("it is cut short");
        let says_why = match error {
            ArchiveError::Truncated { found, .. } => found == len as u64,
            ArchiveError::Empty => len == 0,
            _ => false,
        };
        assert!(says_why, "{len}: {error}");
    }
}

#[test]
fn a_file_that_goes_on_is_refused() {
    let mut file = hello();
    let expected = file.len() as u64;
    file.push(0);
    let error = ArchiveError::TrailingBytes {
        expected,
        found: expected + 1,
    };
    assert_eq!(open(&file).err(), Some(error));
}

#[test]
fn metadata_of_another_length_is_refused() {
    let file = hello();
    let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], file.len() as u64).expect("sound");
    let metadata = &file[metadata_start(&file)..file.len() - 1];
    let error = gannet_archive::Archive::new(superblock, metadata).expect_err("one byte is gone");
    assert!(matches!(error, ArchiveError::Truncated { .. }), "{error}");
}

#[test]
fn what_is_no_archive_is_told_apart() {
    let check = |bytes: &[u8], lookalike, message: &str| {
        let error = Superblock::parse(bytes, bytes.len() as u64).expect_err("no archive");
        assert!(matches!(error, ArchiveError::Magic { lookalike: l, .. } if l == lookalike));
        assert_eq!(error.to_string(), message);
        assert!(error.help().is_some());
    };
    let magic = |found: &str| format!("wrong magic at offset 0 (found {found})");
    check(b"PK\x03\x04....", Lookalike::Zip, &magic("504b0304"));
    check(b"\x1f\x8b\x08\x00", Lookalike::Gzip, &magic("1f8b0800"));
    check(b"\x28\xb5\x2f\xfd", Lookalike::Zstd, &magic("28b52ffd"));
    check(b"\n <!DOCTYPE html>", Lookalike::Html, &magic("0a203c21"));
    check(
        b"\x09gannet\r\n\x1a\n\0",
        Lookalike::Converted,
        &magic("0967616e"),
    );
    let partial = partial_start(&hello()[..SUPERBLOCK_LEN]);
    check(&partial, Lookalike::Partial, &magic("89676e70"));
    assert_eq!(Superblock::parse(b"", 0).err(), Some(ArchiveError::Empty));
    let mut tar = vec![b'x'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    check(&tar, Lookalike::Tar, &magic("78787878"));
    check(&cdb(), Lookalike::Cdb, &magic("00080000"));
    check(
        &[cdb(), vec![0]].concat(),
        Lookalike::Unknown,
        &magic("00080000"),
    );
}

/// An empty constant database: 256 empty tables right after the list of tables.
fn cdb() -> Vec<u8> {
    [0x00, 0x08, 0, 0, 0, 0, 0, 0].repeat(256)
}

#[test]
fn archives_of_other_versions_are_refused_by_name() {
    let sound = hello();
    for (version, help) in [(1, "an older gannet wrote"), (3, "a newer gannet wrote")] {
        let mut other = sound.clone();
        other[12] = version;
        let Err(error) = open(&other) else {
            panic!("another version");
        };
        let found = u32::from(version);
        assert_eq!(error, ArchiveError::Version { found });
        assert!(error.help().expect("what to do").starts_with(help));
    }

    let mut feature = sound.clone();
    feature[16 + 5] = 4;
    reseal_superblock(&mut feature);
    assert_eq!(
        open(&feature).err(),
        Some(ArchiveError::Features { unknown: 4 << 40 })
    );

    let mut compatible = sound;
    compatible[24 + 7] = 0x80;
    reseal_superblock(&mut compatible);
    assert!(
        open(&compatible).is_ok(),
        "unknown compatible features are ignored"
    );
}

#[test]
fn a_tail_is_let_through_where_it_is_announced() {
    let mut file = hello();
    file[24] |= 1;
    reseal_superblock(&mut file);
    file.extend_from_slice(b"PK\x05\x06 and so on");
    assert!(open(&file).is_ok());
}

fn reseal_superblock(file: &mut [u8]) {
    let checksum = xxhash_rust::xxh3::xxh3_64(&file[..4088]);
    file[4088..4096].copy_from_slice(&checksum.to_le_bytes());
}

fn metadata_start(file: &[u8]) -> usize {
    let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], file.len() as u64).expect("sound");
    superblock.metadata_range().start as usize
}
