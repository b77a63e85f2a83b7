//! The content of an inventory, compared with that of the opened archive.

mod sample;

use std::io;

use gannet_archive::{
    Blob, BlobId, Coding, EntryKind, Inventory, Options, Room, Rule, SUPERBLOCK_LEN, SectionKind,
    Superblock, Writer, digest, each_blob,
};
use sample::{open, site};

type Contents = Vec<(Vec<u8>, Vec<(Coding, u32)>)>;

fn inventory(file: &[u8], broken: bool) -> io::Result<(Inventory, Contents)> {
    let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], file.len() as u64);
    let mut contents = Contents::new();
    let mut read = |at: u64, buffer: &mut [u8]| {
        let from = at as usize;
        buffer.copy_from_slice(&file[from..from + buffer.len()]);
        if broken {
            buffer.iter_mut().for_each(|byte| *byte ^= 0xa5);
        }
        Ok(())
    };
    let inventory = Inventory::read(&superblock.expect("sound"), &mut read, &mut |_, held| {
        contents.push((held.content_type.to_vec(), held.variants.to_vec()));
    })?;
    Ok((inventory, contents))
}

#[test]
fn it_has_what_the_opened_archive_has() {
    let file = site();
    let archive = open(&file).expect("sound");
    let (inventory, contents) = inventory(&file, false).expect("readable");
    for (number, blob) in (0..).zip(archive.blobs()) {
        assert_eq!(inventory.blob(number), Some(blob));
        assert_eq!(
            inventory.digest(number).map(|it| &it[..]),
            Some(blob.digest)
        );
    }
    assert_eq!(inventory.blob(archive.blobs().len() as u32), None);
    let mut passed = archive.blobs();
    let mut read = |at: u64, buffer: &mut [u8]| {
        let from = at as usize;
        buffer.copy_from_slice(&file[from..from + buffer.len()]);
        Ok(())
    };
    let mut found = |blob: Blob<'_>| {
        assert_eq!(Some(blob), passed.next());
        Ok(())
    };
    each_blob(archive.superblock(), &mut read, &mut found).expect("readable");
    assert_eq!(passed.next(), None);
    let entries = archive
        .entries()
        .filter(|it| it.kind() == EntryKind::Content);
    let expect: Contents = entries
        .map(|entry| {
            let variants = entry.variants().map(|it| (it.coding(), it.blob_number()));
            (entry.content_type().to_vec(), variants.collect())
        })
        .collect();
    assert!(expect.len() > 3);
    assert_eq!(contents, expect);
}

#[test]
fn what_is_damaged_leads_nowhere() {
    let file = site();
    let (_, contents) = inventory(&file, true).expect("readable");
    let blobs = open(&file).expect("sound").blobs().len() as u32;
    let mut numbers = contents.iter().flat_map(|(_, variants)| variants);
    assert!(numbers.all(|(_, number)| *number < blobs));
    let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], file.len() as u64);
    let mut fails = |_: u64, _: &mut [u8]| Err(io::ErrorKind::UnexpectedEof.into());
    let read = Inventory::read(&superblock.expect("sound"), &mut fails, &mut |_, _| {});
    assert!(read.is_err());
}

/// Adds some bodies, whose bytes follow at once or later.
fn writer(later: bool) -> (Writer, Vec<(BlobId, Room)>) {
    let mut writer = Writer::new(Options::default());
    let bodies = [vec![1; 10], vec![2; 5000], vec![3; 20], vec![1; 10]];
    let mut tiny = Vec::new();
    let mut placed = Vec::new();
    for body in &bodies {
        if later {
            let (id, room) = writer.add_elsewhere(digest(body), body.len() as u64);
            if room == Room::Tiny {
                tiny.extend_from_slice(body);
            }
            placed.push((id, room));
        } else {
            let added = writer.add_bytes(body);
            placed.push((added.id, added.write_at.map_or(Room::Known, Room::File)));
        }
    }
    writer.fill_tiny(&tiny);
    (writer, placed)
}

#[test]
fn bodies_that_come_later_lie_where_they_would_have_lain() {
    let (now, expect) = writer(false);
    let (later, placed) = writer(true);
    let ids = |all: &[(BlobId, Room)]| all.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&placed), ids(&expect));
    let rooms: Vec<_> = placed.iter().map(|(_, room)| *room).collect();
    assert_eq!(
        rooms,
        [Room::Tiny, Room::File(4096), Room::Tiny, Room::Known]
    );
    let finished = now.finish().expect("sound");
    assert_eq!(later.finish().expect("sound"), finished);
}

#[test]
fn bodies_that_never_come_are_noticed() {
    let mut writer = Writer::new(Options::default());
    writer.add_elsewhere([7; 32], 10);
    writer.fill_tiny(&[0; 9]);
    let error = writer.finish().expect_err("a byte is missing");
    let text = error.to_string();
    let expect = gannet_archive::ArchiveError::Record {
        section: SectionKind::TinyBlobs,
        index: 0,
        rule: Rule::Range,
    };
    assert_eq!(error, expect, "{text}");
}
