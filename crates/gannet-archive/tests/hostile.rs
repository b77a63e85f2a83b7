//! Hostile archives with correct checksums: anything that passes validation is safe to read.

mod sample;

use gannet_archive::{ArchiveError, Options, Rule, SectionKind, Superblock, limits};
use sample::{
    File, Numbers, common, dictionaries, dictionaries_of, hello, host_rules, hosts, hpack,
    inflated, open, read_all, reseal, site, u64_at, unbrotlied,
};

/// Mutations per run; `GANNET_CASES` requests more.
fn case_count() -> usize {
    std::env::var("GANNET_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(30_000)
}

#[test]
fn random_mutations_with_fixed_checksums_never_panic() {
    let sound = [
        hello(),
        site(),
        hosts(),
        hpack(),
        inflated(),
        unbrotlied(),
        common(),
        dictionaries(),
        host_rules(),
    ];
    let mut numbers = Numbers(1);
    let (mut refused, mut behind_checksums, mut accepted) = (0, 0, 0);
    for case in 0..case_count() {
        let mut file = sound[case % sound.len()].clone();
        for _ in 0..1 + numbers.below(4) {
            mutate(&mut file, &mut numbers);
        }
        reseal(&mut file);
        match open(&file) {
            Ok(archive) => {
                accepted += 1;
                read_all(&archive);
            }
            Err(error) => {
                refused += 1;
                let is_checksum = matches!(
                    error,
                    ArchiveError::SectionChecksum { .. } | ArchiveError::SuperblockChecksum { .. }
                );
                behind_checksums += usize::from(!is_checksum);
                assert!(!error.to_string().is_empty());
            }
        }
    }
    // The test would be blind if everything failed at a checksum, or nothing was rejected.
    assert!(refused > 0 && accepted > 0);
    assert!(
        behind_checksums * 10 > refused * 9,
        "{behind_checksums} of {refused}"
    );
}

/// Numbers on which arithmetic fails.
const EDGES: [u64; 12] = [
    0,
    1,
    63,
    64,
    4095,
    4096,
    u32::MAX as u64,
    u32::MAX as u64 + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 63,
    u64::MAX,
];

/// Writes some of the bytes over others: records twice, those of one section in another, texts that share.
fn copy_within(bytes: &mut [u8], numbers: &mut Numbers) {
    let len = (8 << numbers.below(7)).min(bytes.len());
    let mut place = || numbers.below(bytes.len() - len + 1) / 8 * 8;
    let (from, to) = (place(), place());
    bytes.copy_within(from..from + len, to);
}

fn mutate(file: &mut [u8], numbers: &mut Numbers) {
    // Blob bytes have no structure: aim at the superblock's first part and the metadata.
    let metadata = u64_at(file, 40).min(file.len() as u64) as usize;
    let in_superblock = metadata == file.len() || numbers.below(8) == 0;
    let (start, len) = if in_superblock {
        (12, 500)
    } else {
        (metadata, file.len() - metadata)
    };
    if numbers.below(4) == 0 {
        return copy_within(&mut file[start..start + len], numbers);
    }
    let width = [1, 2, 4, 8][numbers.below(4)];
    let at = (start + numbers.below(len)) / width * width;
    let old = u64_at(file, at);
    let new = match numbers.below(4) {
        0 => EDGES[numbers.below(EDGES.len())],
        1 => old ^ 1 << numbers.below(64),
        2 => old.wrapping_add(numbers.below(128) as u64).wrapping_sub(64),
        _ => numbers.next(),
    };
    let end = (at + width).min(file.len());
    let bytes = new.to_le_bytes();
    file[at..end].copy_from_slice(&bytes[..end - at]);
}

/// Changes one number of a section of the sample site, fixes the checksums and returns the outcome.
fn with(kind: SectionKind, at: usize, value: &[u8]) -> Result<(), ArchiveError> {
    within(site(), kind, at, value)
}

fn within(
    mut file: Vec<u8>,
    kind: SectionKind,
    at: usize,
    value: &[u8],
) -> Result<(), ArchiveError> {
    let superblock = Superblock::parse(&file[..4096], file.len() as u64).expect("sound");
    let sections = superblock.sections();
    let section = sections
        .iter()
        .find(|section| section.kind == kind)
        .expect("the section exists");
    let at = section.offset as usize + at;
    file[at..at + value.len()].copy_from_slice(value);
    reseal(&mut file);
    open(&file).map(|archive| read_all(&archive))
}

#[test]
fn each_rule_refuses_what_it_is_for() {
    use SectionKind::{Blobs, Entries, Index, Strings, Variants};
    let check = |kind, at, value: &[u8], expect: Rule| match with(kind, at, value) {
        Err(ArchiveError::Record { rule, .. }) if rule == expect => {}
        other => panic!("{kind} + {at} = {value:02x?}: {other:?}, expected {expect:?}"),
    };
    let max = u64::MAX.to_le_bytes();
    let odd = 4097u64.to_le_bytes();
    check(Blobs, 0, &max, Rule::Range);
    check(Blobs, 0, &odd, Rule::Alignment);
    check(Blobs, 0, &0u64.to_le_bytes(), Rule::Overlap);
    check(Blobs, 8, &max, Rule::Range);
    check(Blobs, 8, &(1u64 << 40).to_le_bytes(), Rule::Range);
    check(Blobs, 16, &4096u64.to_le_bytes(), Rule::Overlap);
    check(Variants, 0, &max, Rule::Range);
    check(Variants, 24, &max, Rule::Range);
    check(Variants, 32, &u32::MAX.to_le_bytes(), Rule::Range);
    check(Variants, 32, &0u32.to_le_bytes(), Rule::ContentLength);
    check(Variants, 38, &3u16.to_le_bytes(), Rule::FieldBlock);
    check(Variants, 40, &u16::MAX.to_le_bytes(), Rule::FieldBlock);
    check(Variants, 56, &[9], Rule::Value);
    check(Variants, 56, &[0], Rule::Variants);
    check(Variants, 60, &[1], Rule::Reserved);
    check(Entries, 0, &max, Rule::Range);
    check(Entries, 0, &1u64.to_le_bytes(), Rule::Path);
    check(Entries, 24, &8193u32.to_le_bytes(), Rule::Limit);
    check(Entries, 28, &u32::MAX.to_le_bytes(), Rule::Range);
    check(Entries, 40, &[1], Rule::Value);
    check(Entries, 42, &[1], Rule::Reserved);
    check(Entries, 44, &[2], Rule::Value);
    check(Entries, 44, &[1], Rule::Order);
    check(Entries, 45, &[2], Rule::Value);
    check(Entries, 46, &[0], Rule::Variants);
    check(Entries, 47, &[0x80], Rule::Value);
    check(Entries, 48, &[1], Rule::Reserved);
    check(Index, 0, &max, Rule::IndexSlot);
    check(Index, 8, &max, Rule::SectionLen);
    check(Index, 16, &65u32.to_le_bytes(), Rule::IndexShape);
    check(Index, 16, &0u32.to_le_bytes(), Rule::IndexMissing);
    check(Index, 20, &40u32.to_le_bytes(), Rule::IndexShape);
    check(Index, 32, &[1], Rule::Reserved);
    // The paths are in the strings, and the first string is an entity tag.
    check(Strings, 0, b"\n", Rule::EntityTag);
}

/// A text that many records share is checked for each of them.
#[test]
fn records_that_share_too_much_are_refused() {
    let location = format!("/{}", "l".repeat(8000));
    let shared = |count: u32| {
        let mut file = File::new(Options::default());
        for number in 0..count {
            file.redirect(format!("/{number}").as_bytes(), location.as_bytes());
        }
        file.finish().and_then(|file| open(&file).map(drop))
    };
    shared(1000).expect("what a writer makes");
    match shared(20_000) {
        Err(ArchiveError::Record {
            section: SectionKind::Entries,
            rule: Rule::Shared,
            index,
        }) => assert!(index > 10_000, "{index}"),
        other => panic!("{other:?}"),
    }
}

/// The blobs of the sample are the gzip in the file, the tiny one, and the decoded contents of
/// both.
#[test]
fn what_is_stored_as_gzip_alone_names_gzip_that_is_stored_and_shorter() {
    const MARK: u64 = 1 << 63;
    let check = |number: usize, at: usize, value: u64, expect: Rule| {
        let at = number * 16 + at;
        match within(inflated(), SectionKind::Blobs, at, &value.to_le_bytes()) {
            Err(ArchiveError::Record { rule, .. }) if rule == expect => {}
            other => panic!("blob {number} + {at} = {value:#x}: {other:?}, expected {expect:?}"),
        }
    };
    // Itself, a later one, one that does not exist, one that is inflated, the same one twice.
    check(2, 0, MARK | 2, Rule::Range);
    check(2, 0, MARK | 3, Rule::Range);
    check(3, 0, u64::MAX, Rule::Range);
    check(3, 0, MARK | 2, Rule::Value);
    check(3, 0, MARK, Rule::Overlap);
    // Stored blobs come first; and the gzip is shorter.
    check(0, 0, MARK, Rule::Range);
    check(1, 0, MARK, Rule::Limit);
    // Not longer than its gzip, or too long for a server.
    check(2, 8, 1, Rule::Limit);
    check(2, 8, u64::MAX, Rule::Range);
    check(2, 8, 1 << 40, Rule::Limit);
    check(2, 8, (1 << 20) + 1, Rule::Limit);
    // Another length than in the field block.
    check(2, 8, 9001, Rule::ContentLength);

    // A coding in which bodies may not be stored alone, or one that is not announced.
    check(2, 0, MARK | 1 << 32, Rule::Range);
    check(3, 0, MARK | 3 << 32 | 1, Rule::Range);
    check(3, 0, MARK | 2 << 32 | 1, Rule::Range);

    // Features in bits 5 and 8 of the number that starts at byte 16.
    for mut file in [inflated(), unbrotlied()] {
        let features = u64_at(&file, 16) & !(1 << 5) & !(1 << 8);
        file[16..24].copy_from_slice(&features.to_le_bytes());
        reseal(&mut file);
        let error = open(&file).expect_err("the feature is not announced");
        assert!(matches!(
            error,
            ArchiveError::Record {
                rule: Rule::Range,
                ..
            }
        ));
    }
}

#[test]
fn what_is_coded_with_a_dictionary_names_one_and_what_is_carried_is_immutable() {
    use SectionKind::{Blobs, Carried, Dictionaries, Entries, Variants};
    let check = |kind, at, value: &[u8], expect: Rule| match within(dictionaries(), kind, at, value)
    {
        Err(ArchiveError::Record { rule, .. }) if rule == expect => {}
        other => panic!("{kind} + {at} = {value:02x?}: {other:?}, expected {expect:?}"),
    };
    assert!(within(dictionaries(), Dictionaries, 0, &[3; 32]).is_ok());
    let max = u32::MAX.to_le_bytes();
    check(Dictionaries, 32, &[0xff; 8], Rule::Range);
    check(Dictionaries, 40, &0u32.to_le_bytes(), Rule::Path);
    check(Dictionaries, 40, &max, Rule::Limit);
    check(Dictionaries, 44, &[1], Rule::Reserved);
    check(Dictionaries, 48, &[0xff; 8], Rule::Limit);
    check(Dictionaries, 56, &[1], Rule::Reserved);
    check(Carried, 0, &max, Rule::Value);
    check(Carried, 4, &[1], Rule::Reserved);
    // The other entry is immutable, too, and may be carried on.
    assert!(within(dictionaries(), Carried, 0, &1u32.to_le_bytes()).is_ok());
    // Variants: gzip and identity of the new file, its two coded ones, identity of the old one.
    let coded = |number: usize| 64 * number;
    check(Variants, coded(2) + 60, &max, Rule::Range);
    check(Variants, coded(2) + 60, &1u32.to_le_bytes(), Rule::Value);
    check(Variants, coded(2) + 56, &[5], Rule::Value);
    check(Variants, coded(3) + 56, &[0], Rule::Reserved);
    check(Variants, coded(3) + 56, &[6], Rule::Value);
    check(Variants, coded(0) + 60, &[1], Rule::Reserved);
    check(Variants, coded(0) + 56, &[4], Rule::Variants);
    // Entries: the old file, the new one.
    let new = 64;
    check(Entries, new + 28, &2u32.to_le_bytes(), Rule::Variants);
    check(Entries, new + 56, &0u32.to_le_bytes(), Rule::Variants);
    check(Entries, new + 56, &4u32.to_le_bytes(), Rule::Range);
    check(Entries, new + 56, &max, Rule::Range);
    check(Entries, new + 60, &[0], Rule::Reserved);
    check(Entries, new + 60, &[9], Rule::Range);
    check(Entries, new + 47, &[2], Rule::Variants);
    check(Entries, new + 61, &[1], Rule::Reserved);
    check(Entries, new + 48, &[1], Rule::Reserved);
    // The alias flag ends what is carried, too: an alias is not immutable.
    check(Entries, 47, &[2], Rule::Value);
    // Without the content in no coding there is nothing to compare with.
    check(Variants, coded(1) + 56, &[3], Rule::Variants);
    let short = 36u64.to_le_bytes();
    let tiny = blob_number(4096 - 1);
    check(Blobs, 16 * tiny + 8, &short, Rule::Value);
}

#[test]
fn what_is_coded_with_a_dictionary_is_not_too_long() {
    let max = limits::DICTIONARY_LEN_MAX as usize;
    assert!(dictionaries_of(max).is_ok());
    let check = |len: usize, expect: Rule| match dictionaries_of(len) {
        Err(ArchiveError::Record { rule, .. }) => assert_eq!(rule, expect),
        other => panic!("{:?}", other.map(|file| file.len())),
    };
    check(max + 1, Rule::Limit);
    // Shorter than what it is coded to.
    check(5_000, Rule::Variants);
}

/// The number of the sample's first blob of up to so many bytes.
fn blob_number(len: u64) -> usize {
    let file = dictionaries();
    let archive = open(&file).expect("sound");
    let mut blobs = archive.blobs();
    blobs.position(|blob| blob.len <= len).expect("there")
}

#[test]
fn dictionaries_are_a_section_if_and_only_if_their_feature_is_set() {
    for without in [1u64 << 1, 0] {
        let mut file = if without > 0 { dictionaries() } else { site() };
        let features = u64_at(&file, 16);
        let changed = if without > 0 {
            features & !without
        } else {
            features | 1 << 1
        };
        file[16..24].copy_from_slice(&changed.to_le_bytes());
        reseal(&mut file);
        let refused = open(&file).map(|_| ());
        assert_eq!(refused, Err(ArchiveError::Superblock(Rule::SectionCount)));
    }
}
