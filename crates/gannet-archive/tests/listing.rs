//! Entries that are found in the file.

mod sample;

use std::io;

use gannet_archive::{Listing, Namespace, SUPERBLOCK_LEN, Superblock};
use sample::{common, hosts, inflated, long, open, site};

#[test]
fn each_entry_is_found_with_its_blobs() {
    for file in [site(), hosts(), inflated(), common(), long()] {
        let mut read = |at: u64, buffer: &mut [u8]| -> io::Result<()> {
            let bytes = file.get(at as usize..at as usize + buffer.len());
            buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        let archive = open(&file).expect("sound");
        let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], file.len() as u64);
        let listing = Listing::of(&superblock.expect("sound"));
        assert_eq!(listing.count(), archive.entries().len() as u64);
        let mut found_count = 0;
        for (number, entry) in (0..).zip(archive.entries()) {
            let key = entry.key();
            let listed = listing.entry(number, &mut read).expect("in the file");
            let variants: Vec<_> = entry.variants().collect();
            let is_listed = key.namespace == Namespace::Content && !variants.is_empty();
            assert_eq!(listed.is_some(), is_listed, "{key:?}");
            let found = listing
                .find(key.host, key.path, &mut read)
                .expect("in the file");
            let Some(listed) = listed else {
                continue;
            };
            found_count += 1;
            let path = listing.path(&listed, &mut read).expect("in the file");
            assert_eq!((listed.host(), path.as_slice()), (key.host, key.path));
            let blobs = variants
                .iter()
                .map(|it| (it.coding() as u8, it.blob_number()));
            let blobs: Vec<_> = blobs.collect();
            assert_eq!(
                listing.blobs(&listed, &mut read).ok().as_ref(),
                Some(&blobs)
            );
            let found = found.expect("it is there");
            assert_eq!(listing.blobs(&found, &mut read).ok().as_ref(), Some(&blobs));
        }
        assert!(found_count > 0);
        for (host, path) in [(0, &b"/none"[..]), (0, b""), (0, b"/zzz"), (9, b"/")] {
            let found = listing.find(host, path, &mut read).expect("in the file");
            assert!(found.is_none(), "{path:?}");
        }
    }
}
