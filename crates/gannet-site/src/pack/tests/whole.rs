//! Whole archives: content survives a round trip on any machine, and no byte of an archive can
//! change unnoticed.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use super::*;

/// Reproducible random numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Files of every kind by path: tiny, empty, large, equal, noise, odd names.
fn tree(seed: u64) -> BTreeMap<String, Vec<u8>> {
    let mut numbers = Numbers(seed);
    let mut files = BTreeMap::new();
    for number in 0..numbers.below(40) + 1 {
        let folder = ["", "a/", "a/b/", "ü ö/", "%41/", "x.html/"][numbers.below(6) as usize];
        let stem = ["index", "404", "page", "e\u{301}", "a b", "q?x", "200"];
        let stem = stem[numbers.below(7) as usize];
        let suffix = ["html", "css", "png", "svg", "", "bin"][numbers.below(6) as usize];
        let len = [0, 1, 200, 5000, 70_000][numbers.below(5) as usize];
        let content = match numbers.below(3) {
            0 => vec![b'e'; len],
            1 => (0..len).map(|_| numbers.below(256) as u8).collect(),
            _ => (0..len).map(|at| b"<p>text</p>\n"[at % 12]).collect(),
        };
        let dot = if suffix.is_empty() { "" } else { "." };
        files.insert(
            format!("{folder}{stem}{}{dot}{suffix}", number % 3),
            content,
        );
    }
    files
}

fn options(place: &Place, seed: u64) -> PackOptions {
    let mut numbers = Numbers(seed ^ 77);
    let mut flag = || numbers.below(2) == 1;
    PackOptions {
        listing: flag(),
        spa: flag(),
        clean_urls: flag(),
        threads: if flag() { 1 } else { 3 },
        drop_identity: flag(),
        ..place.options()
    }
}

#[test]
fn what_is_packed_is_what_is_extracted() {
    for seed in 0..30 {
        let place = Place::new();
        let files = tree(seed);
        for (path, content) in &files {
            place.file(path, content);
        }
        pack(&options(&place, seed), &mut NoProgress).expect("it packs");
        verify(&place.archive()).expect("sound");
        let output = place.0.join("extracted");
        let extracting = ExtractOptions {
            archive: place.archive(),
            output: output.clone(),
        };
        let report = extract(&extracting).expect("it extracts");
        assert_eq!(report.file_count, files.len() as u64, "seed {seed}");
        for (path, content) in &files {
            let got = fs::read(output.join(path)).expect("extracted");
            assert!(got == *content, "seed {seed}: {path}");
        }
    }
}

#[test]
fn order_and_cores_change_no_byte() {
    let moment = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let files = tree(5);
    let mut paths: Vec<&String> = files.keys().collect();
    let mut numbers = Numbers(9);
    let mut archives = Vec::new();
    for threads in [1, 2, 7] {
        // File systems list names in creation order, in reverse, or in any other.
        for at in (1..paths.len()).rev() {
            paths.swap(at, numbers.below(at as u64 + 1) as usize);
        }
        let place = Place::new();
        for path in &paths {
            let written = place.file(path, &files[*path]);
            let file = fs::File::open(written).expect("readable");
            file.set_modified(moment).expect("a date");
        }
        let options = PackOptions {
            threads,
            listing: true,
            ..place.options()
        };
        pack(&options, &mut NoProgress).expect("it packs");
        archives.push(fs::read(place.archive()).expect("written"));
    }
    assert!(archives.windows(2).all(|two| two[0] == two[1]));
}

#[test]
fn no_byte_of_an_archive_changes_unnoticed() {
    let place = Place::new();
    place.file("index.html", "front ".repeat(200));
    place.file("a/404.html", "missing");
    place.file("a/copy.html", "front ".repeat(200));
    place.file(
        "noise.bin",
        tree(3)
            .values()
            .flatten()
            .copied()
            .take(6000)
            .collect::<Vec<_>>(),
    );
    place.file("_redirects", "/old /a/ 301\n/x/* /a/:splat 302\n");
    place.file("_headers", "/a/*\n  x-test: yes\n");
    let key = place.0.join("release.key");
    let pair = minisign::KeyPair::generate_unencrypted_keypair().expect("random numbers");
    fs::write(&key, pair.sk.to_box(None).expect("a key").into_string()).expect("writable");
    let options = PackOptions {
        listing: true,
        spa: true,
        sign: Some(key),
        drop_identity: true,
        ..place.options()
    };
    pack(&options, &mut NoProgress).expect("it packs");
    let sound = fs::read(place.archive()).expect("written");
    verify(&place.archive()).expect("sound");
    let damaged = place.0.join("damaged.gannet");
    fs::write(&damaged, &sound).expect("writable");
    let file = fs::File::options()
        .write(true)
        .open(&damaged)
        .expect("there");
    for (at, byte) in sound.iter().enumerate() {
        let wrong = [byte ^ 1 << (at % 8)];
        file.write_all_at(&wrong, at as u64).expect("writable");
        assert!(verify(&damaged).is_err(), "byte {at} of {}", sound.len());
        file.write_all_at(&[*byte], at as u64).expect("writable");
    }
    verify(&damaged).expect("sound again");
    for len in (0..sound.len()).step_by(97) {
        fs::write(&damaged, &sound[..len]).expect("writable");
        assert!(verify(&damaged).is_err(), "cut off at {len}");
    }
}
