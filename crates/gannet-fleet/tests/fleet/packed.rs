//! The metadata of releases, in the packed form that follows them.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use gannet_archive::Superblock;
use gannet_archive::limits::PACKED_WINDOW_LOG;
use gannet_store::Store;

use crate::stand_in::{Answer, Asked, StandIn};
use crate::stores::{Fleet, Tail, archive_with, bytes, files, now};

/// A release whose metadata is most of it, and where that is.
pub(crate) fn release(letter: u8, tail: Tail<'_>) -> (Vec<u8>, Range<usize>) {
    release_of(256, letter, tail)
}

/// The same of so many files.
pub(crate) fn release_of(count: usize, letter: u8, tail: Tail<'_>) -> (Vec<u8>, Range<usize>) {
    let files: Vec<_> = (0..count)
        .map(|file| bytes((file % 256) as u8, 100 + file / 256 + usize::from(letter)))
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

/// Publishes a release, and has it copied; returns how many bytes were fetched.
fn fetched(fleet: &Fleet, (archive, metadata): &(Vec<u8>, Range<usize>)) -> u64 {
    fleet.publish_with(archive, now(), |_| {});
    let server = StandIn::new(fleet.store());
    let round = fleet.follower(&server.url()).round(now()).unwrap();
    is_here(fleet, archive, metadata);
    round.fetched
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
            let release = release(1, tail);
            let fetched = fetched(&fleet, &release);
            let (archive, metadata) = release;
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
        let release = release(1, &tail);
        let fetched = fetched(&fleet, &release);
        let (archive, metadata) = release;
        let all = match fleet.settings.on_demand {
            true => archive.len() - metadata.start + 2 * 4096,
            false => archive.len(),
        } as u64;
        // The index and its packed form, and blobs once.
        assert!((all - 4096..=all).contains(&fetched), "{fetched} of {all}");
    }
}

/// Bytes of the packed form that come before the connection is lost.
pub(crate) const CUT_AT: usize = 200_000;

/// Bytes that are fetched again, as they may have been written in part.
pub(crate) const AGAIN_MAX: usize = 80_000;

/// The answers of a store that is lost while what starts there is fetched.
fn cut(asked: &Asked, packed: usize) -> Answer {
    match &asked.range {
        Some(range) if range.start == packed => Answer::Cut(CUT_AT),
        Some(range) if range.start > packed => Answer::Raw(Vec::new()),
        _ => Answer::Truth,
    }
}

/// A follower ends while the packed form comes: the next one fetches the rest of it.
#[test]
fn a_packed_form_that_was_cut_is_resumed() {
    for fleet in fleets() {
        let (archive, metadata) = release_of(8000, 1, &pack);
        assert!(archive.len() - metadata.end > CUT_AT + AGAIN_MAX);
        let server = StandIn::new(fleet.store());
        fleet.publish_with(&archive, now(), |_| {});
        let packed = metadata.end;
        server.lie(move |asked| cut(asked, packed));
        fleet.follower(&server.url()).round(now()).unwrap_err();
        server.be_honest();
        server.asked();
        let mut follower = fleet.follower(&server.url());
        follower.round(now()).unwrap();
        is_here(&fleet, &archive, &metadata);
        let ranges = server.asked().into_iter().filter_map(|it| it.range);
        let ranges: Vec<_> = ranges.filter(|it| it.start > 4096).collect();
        let resumed = &ranges[0];
        assert_eq!(resumed.end, archive.len());
        assert!(
            (packed + CUT_AT - AGAIN_MAX..=packed + CUT_AT).contains(&resumed.start),
            "{resumed:?} after {packed}"
        );
        assert!(ranges[1..].iter().all(|it| it.end <= metadata.start));
    }
}

/// What a loss of power has taken of it leads to no other bytes: the metadata is fetched.
#[test]
fn a_packed_form_with_a_gap_is_not_resumed() {
    for fleet in fleets() {
        let (archive, metadata) = release_of(8000, 1, &pack);
        let pointer = fleet.publish_with(&archive, now(), |_| {});
        let server = StandIn::new(fleet.store());
        let packed = metadata.end;
        server.lie(move |asked| cut(asked, packed));
        let mut follower = fleet.follower(&server.url());
        follower.round(now()).unwrap_err();
        let part = format!("releases/.part-{}.gannet", pointer.release);
        let part = File::options()
            .write(true)
            .open(fleet.copy().join(part))
            .unwrap();
        part.write_all_at(&[0; 8192], packed as u64 + 50_000)
            .unwrap();
        server.be_honest();
        server.asked();
        follower.round(now()).unwrap();
        is_here(&fleet, &archive, &metadata);
        let ranges = server.asked().into_iter().filter_map(|it| it.range);
        let ranges: Vec<_> = ranges.collect();
        assert!(ranges.iter().any(|it| it.start == metadata.start));
        assert!(!ranges.contains(&(0..archive.len())), "nor all of it");
    }
}
