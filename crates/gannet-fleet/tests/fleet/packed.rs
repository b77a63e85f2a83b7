//! The metadata of releases, in the packed form that follows them.

use std::io::Write;
use std::ops::Range;

use gannet_archive::Superblock;
use gannet_archive::limits::PACKED_WINDOW_LOG;
use gannet_store::Store;

use crate::stand_in::StandIn;
use crate::stores::{Fleet, Tail, archive_with, bytes, files, now};

/// A release whose metadata is most of it, and where that is.
pub(crate) fn release(letter: u8, tail: Tail<'_>) -> (Vec<u8>, Range<usize>) {
    let files: Vec<_> = (0..=255)
        .map(|seed| bytes(seed, 100 + usize::from(letter)))
        .collect();
    let archive = archive_with(&files, Some(tail));
    let superblock = Superblock::parse(&archive[..4096], archive.len() as u64).unwrap();
    let metadata = superblock.metadata_range();
    (archive, metadata.start as usize..metadata.end as usize)
}

pub(crate) fn pack(metadata: &[u8]) -> Vec<u8> {
    zstd::encode_all(metadata, 3).unwrap()
}

fn fleets() -> [Fleet; 2] {
    [false, true].map(|on_demand| {
        let mut fleet = Fleet::new();
        fleet.settings.on_demand = on_demand;
        fleet
    })
}

/// The copy has the release, or its metadata alone.
fn is_here(fleet: &Fleet, archive: &[u8], metadata: &Range<usize>) {
    if !fleet.settings.on_demand {
        return fleet.is_copied();
    }
    let store = Store::open(&fleet.copy(), None).unwrap();
    assert!(store.has_partial(&store.pointer().unwrap()));
    let files = files(&fleet.copy());
    let (_, partial) = files
        .iter()
        .find(|(_, it)| it.len() == archive.len())
        .unwrap();
    assert!(partial[metadata.clone()] == archive[metadata.clone()]);
    let tail = &partial[metadata.end..];
    assert!(tail.iter().all(|it| *it == 0), "it takes no room");
}

#[test]
fn the_packed_form_is_fetched() {
    for fleet in fleets() {
        let server = StandIn::new(fleet.store());
        for letter in [1, 2] {
            let (archive, metadata) = release(letter, &pack);
            assert!(archive.len() - metadata.end < metadata.len() / 2);
            fleet.publish_with(&archive, now(), |_| {});
            let mut follower = fleet.follower(&server.url());
            let fetched = follower.round(now()).unwrap().fetched;
            is_here(&fleet, &archive, &metadata);
            let mut ranges = server.asked().into_iter().filter_map(|it| it.range);
            assert!(ranges.all(|it| it.end <= metadata.start || it.start >= metadata.end));
            assert!(
                fetched <= (archive.len() - metadata.len()) as u64,
                "{fetched}"
            );
        }
    }
}

/// Nothing of the packed form is trusted: what it unpacks to has to fit, and to be what the build id is of.
#[test]
fn what_does_not_unpack_to_the_metadata_is_fetched() {
    let wide = |metadata: &[u8]| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(PACKED_WINDOW_LOG + 1).unwrap();
        encoder.write_all(metadata).unwrap();
        encoder.finish().unwrap()
    };
    let tails: [(&str, Tail<'_>); 8] = [
        ("small for its index", &|metadata| {
            vec![0; metadata.len() / 33]
        }),
        ("none", &|_| Vec::new()),
        ("no frame", &|metadata| metadata.to_vec()),
        ("a frame that is cut", &|metadata| {
            let packed = pack(metadata);
            packed[..packed.len() / 2].to_vec()
        }),
        ("less", &|metadata| pack(&metadata[1..])),
        ("more", &|metadata| {
            pack(&[metadata, &vec![0; 64 << 20]].concat())
        }),
        ("more after that", &|metadata| {
            [pack(metadata), pack(b"x")].concat()
        }),
        ("too wide a window", &wide),
    ];
    for (what, tail) in tails {
        for fleet in fleets() {
            let (archive, metadata) = release(1, tail);
            fleet.publish_with(&archive, now(), |_| {});
            let server = StandIn::new(fleet.store());
            let mut follower = fleet.follower(&server.url());
            let fetched = follower.round(now()).unwrap().fetched;
            is_here(&fleet, &archive, &metadata);
            let all = match fleet.settings.on_demand {
                true => archive.len() - (metadata.start - 4096),
                false => archive.len(),
            } as u64;
            // All of it once, perhaps but for zeros before the metadata.
            assert!((all - 4096..=all).contains(&fetched), "{what}: {fetched}");
        }
    }
}

/// What is a hole in the end does not count as metadata, which has half of the room.
#[test]
fn the_packed_form_counts_for_nothing_on_demand() {
    let [_, mut fleet] = fleets();
    let releases = [1, 2].map(|letter| release(letter, &pack));
    let metadata = releases.iter().map(|it| it.1.len() as u64);
    fleet.settings.disk_max = 2 * metadata.sum::<u64>();
    let server = StandIn::new(fleet.store());
    for (archive, metadata) in &releases {
        fleet.publish_with(archive, now(), |_| {});
        fleet.follower(&server.url()).round(now()).unwrap();
        is_here(&fleet, archive, metadata);
    }
    let store = Store::open(&fleet.copy(), None).unwrap();
    assert_eq!(store.releases().unwrap().len(), 2);
}

/// It has the right length: this is noticed at the end.
#[test]
fn what_unpacks_to_something_else_is_fetched_again() {
    for fleet in fleets() {
        let tail = |metadata: &[u8]| {
            let mut other = metadata.to_vec();
            other[metadata.len() / 2] ^= 1;
            pack(&other)
        };
        let (archive, metadata) = release(1, &tail);
        fleet.publish_with(&archive, now(), |_| {});
        let server = StandIn::new(fleet.store());
        let mut follower = fleet.follower(&server.url());
        let fetched = follower.round(now()).unwrap().fetched;
        is_here(&fleet, &archive, &metadata);
        let all = match fleet.settings.on_demand {
            true => archive.len() - metadata.start + 2 * 4096,
            false => archive.len(),
        } as u64;
        // The index and its packed form, and blobs once.
        assert!((all - 4096..=all).contains(&fetched), "{fetched} of {all}");
    }
}
