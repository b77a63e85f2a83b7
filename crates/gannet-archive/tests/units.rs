//! Parts of an archive that can be verified one by one.

mod sample;

use std::io;

use gannet_archive::limits::{GROUP_LEN, UNIT_LEN_MAX};
use gannet_archive::{
    Archive, ArchiveError, Options, Rule, SUPERBLOCK_LEN, SectionKind, Superblock, Unit, Units,
    Writer, archive_start, partial_start,
};
use sample::{inflated, long, open, reseal, site, u64_at};

fn reader(file: &[u8]) -> impl FnMut(u64, &mut [u8]) -> io::Result<()> {
    |at, buffer| {
        let bytes = file.get(at as usize..at as usize + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

fn units(file: &[u8]) -> io::Result<Units> {
    let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], file.len() as u64);
    Units::read(&superblock.expect("sound"), &mut reader(file))
}

/// All units, as blob by blob gives them.
fn expected(archive: &Archive<Vec<u8>>) -> Vec<Unit> {
    let mut units = Vec::new();
    for (blob, found) in (0..).zip(archive.blobs()) {
        if found.is_tiny || found.coded.is_some() {
            continue;
        }
        let (len, offset) = (found.len, found.offset);
        if len <= UNIT_LEN_MAX {
            let group = None;
            units.push(Unit {
                blob,
                group,
                offset,
                len,
            });
            continue;
        }
        for start in (0..len).step_by(GROUP_LEN as usize) {
            units.push(Unit {
                blob,
                group: Some(start / GROUP_LEN),
                offset: offset + start,
                len: (len - start).min(GROUP_LEN),
            });
        }
    }
    units
}

#[test]
fn units_are_in_the_order_of_the_file_and_cover_every_stored_blob() {
    for file in [site(), inflated(), long()] {
        let archive = open(&file).expect("sound");
        let units = units(&file).expect("sound");
        let expected = expected(&archive);
        assert_eq!(units.count(), expected.len() as u64);
        for (number, expect) in (0..).zip(&expected) {
            let unit = units.unit(number, &mut reader(&file)).expect("it is there");
            assert_eq!(unit.as_ref(), Some(expect));
            let start = expect.group.map_or(0, |group| group * GROUP_LEN);
            let found = units.in_blob(expect.blob, start..start + expect.len);
            assert_eq!(found, number..number + 1, "{expect:?}");
        }
        assert_eq!(
            units.unit(units.count(), &mut reader(&file)).ok(),
            Some(None)
        );
        for (blob, found) in (0..).zip(archive.blobs()) {
            let of_blob = |unit: &&Unit| unit.blob == blob;
            let all = units.in_blob(blob, 0..u64::MAX);
            let count = expected.iter().filter(of_blob).count() as u64;
            assert_eq!(all.end - all.start, count, "{found:?}");
            assert!(units.in_blob(blob, 5..5).is_empty());
        }
        assert!(units.in_blob(archive.blobs().len() as u32, 0..1).is_empty());
        let mut digests = Vec::new();
        let mut take = |number, digest: &[u8; 32]| digests.push((number, *digest));
        units.digests(&mut reader(&file), &mut take).expect("sound");
        let stored = (0..).zip(archive.blobs());
        let stored = stored.filter(|(_, it)| !it.is_tiny && it.coded.is_none());
        assert!(
            stored
                .map(|(number, it)| (number, it.digest.to_vec()))
                .eq(digests.iter().map(|(number, it)| (*number, it.to_vec())))
        );
    }
}

/// A range of a long blob has the groups that it touches.
#[test]
fn ranges_of_long_blobs_are_groups() {
    let file = long();
    let archive = open(&file).expect("sound");
    let units = units(&file).expect("sound");
    let is_long = |(_, blob): &(u32, gannet_archive::Blob<'_>)| blob.len > UNIT_LEN_MAX;
    let (blob, found) = (0..)
        .zip(archive.blobs())
        .find(is_long)
        .expect("one is long");
    let first = units.in_blob(blob, 0..1).start;
    let at = |range| {
        let found = units.in_blob(blob, range);
        (found.start - first, found.end - first)
    };
    assert_eq!(at(0..GROUP_LEN), (0, 1));
    assert_eq!(at(0..GROUP_LEN + 1), (0, 2));
    assert_eq!(at(GROUP_LEN - 1..GROUP_LEN + 1), (0, 2));
    assert_eq!(at(GROUP_LEN..GROUP_LEN + 1), (1, 2));
    assert_eq!(at(found.len - 1..u64::MAX), (16, 17));
    assert_eq!(at(u64::MAX - 1..u64::MAX), (17, 17), "beyond its end");
}

#[test]
fn a_unit_is_verified_by_its_bytes_and_its_place() {
    let file = long();
    let units = units(&file).expect("sound");
    let bytes = |unit: &Unit| &file[unit.offset as usize..(unit.offset + unit.len) as usize];
    let all: Vec<Unit> = (0..units.count())
        .filter_map(|number| units.unit(number, &mut reader(&file)).expect("sound"))
        .collect();
    let is = |unit: &Unit, bytes: &[u8]| {
        let verified = units.verify(unit, bytes, &mut reader(&file));
        verified.expect("the metadata is there")
    };
    for (number, unit) in all.iter().enumerate() {
        assert!(is(unit, bytes(unit)), "{unit:?}");
        let mut changed = bytes(unit).to_vec();
        let at = number * 7919 % changed.len();
        changed[at] ^= 1;
        assert!(!is(unit, &changed), "{unit:?}");
        assert!(!is(unit, &bytes(unit)[1..]), "{unit:?}");
        assert!(!is(unit, b""), "{unit:?}");
        let other = &all[(number + 1) % all.len()];
        assert!(!is(unit, bytes(other)), "{unit:?}");
    }
}

/// Nothing that reads part of an archive may be sent to other places by it.
#[test]
fn records_that_lead_elsewhere_are_refused() {
    let sound = long();
    let archive = open(&sound).expect("sound");
    let sections = archive.superblock().sections();
    let start = |kind| {
        let found = sections.iter().find(|it| it.kind == kind);
        found.expect("it is there").offset as usize
    };
    let records = start(SectionKind::Blobs);
    let metadata = archive.superblock().metadata_range().start;
    for (at, value) in [
        (records, 0),
        (records, 4000),
        (records, 4097),
        (records + 8, u64::MAX),
        (records + 8, metadata),
        // The second one, where the first one is.
        (records + 16, u64_at(&sound, records)),
        (records + 24, metadata - u64_at(&sound, records + 16) + 1),
        // A longer blob has more groups.
        (records + 24, u64_at(&sound, records + 24) + GROUP_LEN),
    ] {
        let mut file = sound.clone();
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let error = units(&file).expect_err("it leads elsewhere");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{at} {value}");
    }
}

/// Who makes holes looks at all blobs of a page.
#[test]
fn empty_blobs_share_no_place() {
    let mut file = site();
    let archive = open(&file).expect("sound");
    let mut sections = archive.superblock().sections().iter();
    let found = sections.find(|it| it.kind == SectionKind::Blobs);
    let records = found.expect("it is there").offset as usize;
    assert!(units(&file).expect("sound").count() > 1);
    file[records + 8..records + 16].fill(0);
    file.copy_within(records..records + 8, records + 16);
    assert!(units(&file).is_ok(), "one is empty");
    file[records + 24..records + 32].fill(0);
    let error = units(&file).expect_err("there is one already");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn trees_are_those_of_the_long_blobs() {
    let file = long();
    let archive = open(&file).expect("sound");
    let superblock = archive.superblock();
    let trees = superblock.sections().iter();
    let row = trees.clone().position(|it| it.kind == SectionKind::Trees);
    let (row, trees) = row.zip(trees.last()).expect("there are long blobs");
    assert_eq!(
        (trees.kind, trees.len),
        (SectionKind::Trees, (17 + 18) * 32)
    );
    // Another length: the last section, and with it the file, ends earlier.
    let mut short = file[..file.len() - 32].to_vec();
    let len = short.len() as u64;
    let region = len - superblock.metadata_range().start;
    for (at, value) in [
        (32, len),
        (48, region),
        (128 + row * 32 + 16, trees.len - 32),
    ] {
        short[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    reseal(&mut short);
    match open(&short) {
        Err(ArchiveError::Record {
            section: SectionKind::Trees,
            rule: Rule::SectionLen,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    // An archive of an earlier version: it opens, but no part of it can be verified.
    let mut old = file.clone();
    old[128 + row * 32..][..4].copy_from_slice(&40_u32.to_le_bytes());
    reseal(&mut old);
    open(&old).expect("the section is optional");
    let error = units(&old).expect_err("no trees");
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(units(&site()).is_ok(), "none of its blobs is long");
}

#[test]
fn a_long_blob_without_its_tree_is_not_written() {
    let add = |tree: Option<usize>| {
        let mut writer = Writer::new(Options::default());
        let placed = writer.add_hashed([1; 32], UNIT_LEN_MAX + 1);
        if let Some(groups) = tree {
            writer.set_tree(placed.id, vec![[0; 32]; groups]);
        }
        writer.finish().map(drop)
    };
    assert_eq!(add(Some(17)), Ok(()));
    for tree in [None, Some(16), Some(18)] {
        let error = add(tree).expect_err("no tree of this blob");
        assert_eq!(
            error.to_string(),
            "bad record 0 of section trees: a section has a length that does not fit its records"
        );
    }
}

/// The section is part of the format.
#[test]
fn the_same_bytes_are_written() {
    let archive = open(&long()).expect("sound");
    let id: String = archive.superblock().build_id()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(id, "65f4a254ec9efb19");
    let build_id = archive
        .superblock()
        .compute_build_id_from(&mut reader(&long()));
    assert_eq!(
        build_id.ok().as_ref(),
        Some(archive.superblock().build_id())
    );
}

#[test]
fn a_partial_copy_is_no_archive() {
    let file = site();
    let first = &file[..SUPERBLOCK_LEN];
    let partial = partial_start(first);
    let len = file.len() as u64;
    assert!(Superblock::parse(&partial, len).is_err());
    assert!(Superblock::parse_partial(first, len).is_err());
    let superblock = Superblock::parse_partial(&partial, len).expect("sound");
    assert_eq!(Some(superblock), Superblock::parse(first, len).ok());
    assert_eq!(archive_start(&partial), first);
    assert!(Superblock::parse_partial(&partial, len - 1).is_err());
}
