//! A release on demand as version 0.1 wrote it, which every later version reads: never written again.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use gannet_archive::{SUPERBLOCK_LEN, Superblock, Unit, Units, partial_start};
use gannet_store::{PartialRelease, PartialWriter, SparseFile};

/// An archive with a page and a blob of 1,200,000 zeros, and what was present of its copy: of 19 units the first
/// four and the last. The zeros are not in the tree.
fn frozen() -> (Vec<u8>, Vec<u8>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/0.1");
    let ends = fs::read(folder.join("ends")).unwrap();
    let (first, metadata) = ends.split_at(SUPERBLOCK_LEN);
    let number = |at: usize| u64::from_le_bytes(*first[at..].first_chunk().unwrap());
    let mut archive = first.to_vec();
    archive.resize(number(40) as usize, 0);
    archive.extend_from_slice(metadata);
    assert_eq!(archive.len() as u64, number(32));
    (archive, fs::read(folder.join("present")).unwrap())
}

fn read(archive: &[u8]) -> impl FnMut(u64, &mut [u8]) -> io::Result<()> + '_ {
    |at, buffer| {
        let from = at as usize;
        buffer.copy_from_slice(&archive[from..from + buffer.len()]);
        Ok(())
    }
}

fn units(archive: &[u8]) -> (Units, Vec<Unit>) {
    let superblock = Superblock::parse(&archive[..SUPERBLOCK_LEN], archive.len() as u64).unwrap();
    let units = Units::read(&superblock, &mut read(archive)).unwrap();
    let unit = |number| units.unit(number, &mut read(archive)).unwrap().unwrap();
    let all = (0..units.count()).map(unit).collect();
    (units, all)
}

#[test]
fn groups_of_a_long_blob_are_verified_by_its_tree() {
    let (archive, _) = frozen();
    let (units, all) = units(&archive);
    assert_eq!(all.len(), 19);
    for unit in &all {
        assert!(unit.group.is_some());
        let from = unit.offset as usize;
        let mut bytes = archive[from..from + unit.len as usize].to_vec();
        let verify = |bytes: &[u8]| units.verify(unit, bytes, &mut read(&archive)).unwrap();
        assert!(verify(&bytes));
        bytes[7] = 1;
        assert!(!verify(&bytes));
    }
}

#[test]
fn what_is_present_is_known() {
    let (archive, mut present) = frozen();
    let folder = std::env::temp_dir().join(format!("gannet-frozen-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("0.partial");
    let mut partial = archive.clone();
    let first = partial_start(&archive[..SUPERBLOCK_LEN]);
    partial[..SUPERBLOCK_LEN].copy_from_slice(&first);
    fs::write(&path, partial).unwrap();
    // It was tied to a file of the machine that it was made on.
    let identity = File::open(&path).unwrap().identity().unwrap();
    present[56..80].copy_from_slice(&identity);
    fs::write(folder.join("0.present"), present).unwrap();
    let release = PartialRelease::open(&path).unwrap();
    assert_eq!(release.first, archive[..SUPERBLOCK_LEN]);
    let looked = |range| release.presence.look(range).unwrap().present();
    assert_eq!((release.presence.count(), looked(0..19)), (19, 4));
    assert_eq!((looked(4..5), looked(17..18), looked(18..19)), (0, 0, 1));
    let writer = PartialWriter::open(&path).unwrap();
    let has: Vec<_> = (0..19).filter(|unit| writer.has(*unit)).collect();
    assert_eq!(has, [0, 1, 2, 3, 18]);
    fs::remove_dir_all(&folder).unwrap();
}
