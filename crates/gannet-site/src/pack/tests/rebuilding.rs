//! Rebuilds do as little work as possible, and give the same bytes as a fresh build.

use gannet_archive::limits::{TINY_MAX, TINY_TOTAL_MAX};

use super::*;
use crate::pack::{BuildMemory, Compressible};

/// A site whose files are old enough for their stamps to be trusted.
fn site() -> Place {
    let place = Place::new();
    for number in 0..40u32 {
        let text = format!("page {number} ").repeat(100 + number as usize * 20);
        place.file(&format!("{}/{number}.html", number % 3), text);
    }
    place.file("photo.png", vec![9; 5000]);
    place.file("film.mp4", vec![5; 1_500_000]);
    place.file("index.html", "short");
    wait_for_the_clock(&place);
    place
}

/// Waits until files written now get later times than those written before.
fn wait_for_the_clock(place: &Place) {
    let settled = || {
        let metadata = fs::metadata(place.site().join("index.html")).expect("written");
        crate::pack::stamps::is_settled(&metadata, crate::pack::stamps::now_ns())
    };
    while !settled() {
        std::thread::yield_now();
    }
}

fn with_memory(place: &Place) -> PackOptions {
    PackOptions {
        memory: BuildMemory {
            folder: Some(place.0.join("cache")),
            ..BuildMemory::default()
        },
        ..place.options()
    }
}

/// The archive made without any earlier build.
fn fresh(place: &Place, options: &PackOptions) -> Vec<u8> {
    let output = place.0.join("fresh.gannet");
    let options = PackOptions {
        output: output.clone(),
        memory: BuildMemory::default(),
        ..options.clone()
    };
    pack(&options, &mut NoProgress).expect("it packs");
    let bytes = fs::read(&output).expect("written");
    fs::remove_file(output).expect("there");
    bytes
}

fn packed(place: &Place) -> Vec<u8> {
    fs::read(place.archive()).expect("written")
}

#[test]
fn an_archive_that_lies_in_the_site_is_a_file_like_others() {
    let place = site();
    let inside = PackOptions {
        output: place.site().join("old.bin"),
        ..with_memory(&place)
    };
    pack(&inside, &mut NoProgress).expect("it packs");
    let options = with_memory(&place);
    pack(&options, &mut NoProgress).expect("it packs with the archive in the site");
    assert!(packed(&place) == fresh(&place, &options));
}

#[test]
fn an_unchanged_site_is_neither_read_nor_compressed_again() {
    let place = site();
    let options = with_memory(&place);
    let first = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!((first.read_count, first.reused_count), (43, 0));
    let before = packed(&place);
    let second = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!((second.read_count, second.reused_count), (0, 43));
    assert!(packed(&place) == before);
    assert!(fresh(&place, &options) == before);
}

#[test]
fn only_what_changed_is_done_again() {
    let place = site();
    let options = with_memory(&place);
    pack(&options, &mut NoProgress).expect("it packs");
    place.file("1/7.html", "something new ".repeat(300));
    fs::rename(
        place.site().join("2/8.html"),
        place.site().join("2/moved.html"),
    )
    .expect("moved");
    fs::remove_file(place.site().join("0/9.html")).expect("there");
    let report = pack(&options, &mut NoProgress).expect("it packs");
    // A renamed file has another change time: it is read, but not compressed.
    assert_eq!((report.read_count, report.reused_count), (2, 41));
    assert!(packed(&place) == fresh(&place, &options));
    verify(&place.archive()).expect("sound");
}

#[test]
fn a_file_that_keeps_its_length_and_date_is_noticed() {
    let place = site();
    let options = with_memory(&place);
    pack(&options, &mut NoProgress).expect("it packs");
    let path = place.site().join("index.html");
    let date = fs::metadata(&path)
        .and_then(|it| it.modified())
        .expect("dated");
    fs::write(&path, "other").expect("writable");
    fs::File::open(&path)
        .expect("there")
        .set_modified(date)
        .expect("a date");
    pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!(get(&place.open(), "/").as_deref(), Some("other"));
}

#[test]
fn the_archive_alone_saves_the_compressing() {
    let place = site();
    place.pack();
    let report = place.pack();
    assert_eq!((report.read_count, report.reused_count), (43, 43));
    assert!(packed(&place) == fresh(&place, &place.options()));
}

#[test]
fn other_levels_and_rules_are_compressed_anew() {
    let place = site();
    place.pack();
    let mut options = place.options();
    options.encoders = vec![Encoder::Libdeflate(6), Encoder::Brotli(7)];
    let report = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!(report.reused_count, 2, "the picture and the film");
    assert!(packed(&place) == fresh(&place, &options));
    options.compressible = Compressible::new(vec![("image/png".into(), true)]);
    pack(&options, &mut NoProgress).expect("it packs");
    assert!(packed(&place) == fresh(&place, &options));
    let entry_codings = |path: &[u8]| {
        let file = place.open();
        let entry = file.archive().lookup(Key::content(path)).expect("packed");
        entry.variants().len()
    };
    assert_eq!(entry_codings(b"/photo.png"), 3);
}

#[test]
fn what_was_stored_as_gzip_alone_can_be_stored_again_and_the_other_way_round() {
    let place = site();
    let stored = place.options();
    let inflated = PackOptions {
        drop_identity: true,
        ..place.options()
    };
    let with_digests = PackOptions {
        repr_digest: true,
        ..inflated.clone()
    };
    let expect = [&stored, &inflated, &with_digests].map(|options| fresh(&place, options));
    assert!(expect[1].len() + 50_000 < expect[0].len());
    let builds = [
        (&stored, 0, 0),
        (&inflated, 1, 43),
        (&inflated, 1, 43),
        (&with_digests, 2, 43),
        (&stored, 0, 43),
        (&with_digests, 2, 43),
        (&inflated, 1, 43),
    ];
    for (step, (options, expected, reused)) in builds.into_iter().enumerate() {
        let report = pack(options, &mut NoProgress).expect("it packs");
        assert_eq!(report.reused_count, reused, "step {step}");
        assert!(packed(&place) == expect[expected], "step {step}");
        verify(&place.archive()).expect("sound");
    }
}

#[test]
fn a_damaged_archive_spoils_nothing() {
    let place = site();
    place.pack();
    let sound = packed(&place);
    let mut damaged = sound.clone();
    // All over the blobs: copied bytes are verified.
    let end = damaged.len() - 40_000;
    for at in (5000..end).step_by(1000) {
        damaged[at] ^= 1;
    }
    fs::write(place.archive(), &damaged).expect("writable");
    place.pack();
    assert!(packed(&place) == sound);
    fs::write(place.archive(), "no archive at all").expect("writable");
    place.pack();
    assert!(packed(&place) == sound);
}

#[test]
fn a_cache_directory_remembers_archives_that_were_moved_away() {
    let place = site();
    let mut options = with_memory(&place);
    options.memory.keeps_archives = true;
    for _ in 0..4 {
        pack(&options, &mut NoProgress).expect("it packs");
    }
    let sound = packed(&place);
    fs::remove_file(place.archive()).expect("there");
    let report = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!((report.read_count, report.reused_count), (0, 43));
    assert!(packed(&place) == sound);
    let mut names: Vec<_> = fs::read_dir(place.0.join("cache"))
        .expect("readable")
        .map(|item| item.expect("readable").file_name())
        .filter(|name| name.as_bytes().starts_with(b"last"))
        .collect();
    names.sort();
    assert_eq!(names, ["last-1.gannet", "last-2.gannet"]);
}

#[test]
fn sources_can_be_read_all_the_same_and_earlier_builds_left_alone() {
    let place = site();
    let mut options = with_memory(&place);
    pack(&options, &mut NoProgress).expect("it packs");
    options.memory.verify_sources = true;
    let report = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!((report.read_count, report.reused_count), (43, 43));
    options.memory.verify_sources = false;
    options.memory.is_fresh = true;
    let report = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!((report.read_count, report.reused_count), (43, 0));
}

#[test]
fn a_cache_that_cannot_be_written_is_told_and_no_more() {
    let place = site();
    let mut options = with_memory(&place);
    options.memory.folder = Some(place.file("no-folder", "a file"));
    let report = pack(&options, &mut NoProgress).expect("it packs");
    let warnings = warnings(&report).join("\n");
    assert!(
        warnings.contains("the next build will take longer: cannot write"),
        "{warnings}"
    );
}

/// Bodies in the index are side by side, those after them have padding between them.
#[test]
fn a_body_that_leaves_the_index_takes_no_other_along() {
    let place = Place::new();
    let fill = |folder: &str, count: u64| {
        for number in 0..count {
            let text = format!("{folder}{number:07}").repeat(512);
            place.file(&format!("{folder}/{number}.bin"), text);
        }
    };
    let one = TINY_MAX;
    assert_eq!(one, 512 * 8);
    fill("a", TINY_TOTAL_MAX / one - 10);
    place.file("z/1.bin", [1; 100]);
    // As long as the padding after the first.
    let removed = place.file("z/2.bin", b"removed".repeat(4));
    place.file("z/3.bin", [3; 64]);
    let options = PackOptions {
        encoders: Vec::new(),
        ..with_memory(&place)
    };
    // The last one, for which the clock is waited for.
    place.file("index.html", "short");
    wait_for_the_clock(&place);
    pack(&options, &mut NoProgress).expect("it packs");
    fs::remove_file(removed).expect("there");
    fill("b", 20);
    let report = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!(report.read_count, 20);
    verify(&place.archive()).expect("sound");
    assert!(packed(&place) == fresh(&place, &options));
}
