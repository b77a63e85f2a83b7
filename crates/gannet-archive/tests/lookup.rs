//! A lookup finds what a map finds, and nothing else.

mod sample;

use std::collections::HashMap;

use gannet_archive::{Coding, CodingSet, EntryKind, Key, Namespace, Options, limits};
use sample::{File, Numbers, open};

#[test]
fn common_parts_of_blocks_are_kept_once_and_stand_where_they_belong() {
    let file = sample::common();
    let archive = open(&file).expect("sound");
    let variant = |path: &[u8]| {
        let entry = archive.lookup(Key::content(path)).expect("an entry");
        entry.variants().next().expect("one")
    };
    let (first, second) = (variant(b"/a.txt"), variant(b"/b.txt"));
    let lines = first.h1().whole().into_owned();
    assert_eq!(
        String::from_utf8_lossy(&lines),
        "Content-Length: 6\r\nContent-Type: text/plain\r\nETag: \"1\"\r\n\
         Vary: accept-encoding\r\n"
    );
    assert_eq!(first.entity_tag(), b"\"1\"");
    assert_eq!(second.entity_tag(), b"\"1\"");
    assert_eq!(first.h1().common.as_ptr(), second.h1().common.as_ptr());
    let fields =
        [first, second].map(|variant| variant.hpack().expect("an HPACK block").common.as_ptr());
    assert_eq!(fields[0], fields[1]);
    let text = archive.metadata().windows(15);
    let count = text.filter(|window| *window == b"accept-encoding").count();
    assert_eq!(count, 2, "once for each version of HTTP");
}

#[test]
fn lookup_agrees_with_a_map() {
    for (seed, count) in [(1, 0), (2, 1), (3, 2), (4, 100), (5, 20_000)] {
        let mut numbers = Numbers(seed);
        let mut file = File::new(Options::default());
        let mut map = HashMap::new();
        while map.len() < count {
            let (path, namespace) = random_key(&mut numbers);
            let status = map.len() % 7;
            if map.contains_key(&(path.clone(), namespace)) {
                continue;
            }
            let variants = file.variants(&[(Coding::Identity, &[b'x'; 8][..status])]);
            let key = Key {
                host: 0,
                namespace,
                path: path.as_bytes(),
            };
            file.content(key, variants, false);
            map.insert((path, namespace), status as u64);
        }
        let archive = open(&file.finish().expect("sound")).expect("sound");
        assert_eq!(archive.entries().len(), count);
        assert!(archive.index_shape().1 <= limits::PROBE_MAX);
        for ((path, namespace), len) in &map {
            let key = Key {
                host: 0,
                namespace: *namespace,
                path: path.as_bytes(),
            };
            let entry = archive.lookup(key).expect("the key was added");
            assert_eq!(entry.key(), key);
            assert_eq!(
                entry.variants().next().map(|variant| variant.blob_len()),
                Some(*len)
            );
            assert!(archive.lookup(Key { host: 1, ..key }).is_none());
        }
        for _ in 0..20_000 {
            let (path, namespace) = random_key(&mut numbers);
            let key = Key {
                host: 0,
                namespace,
                path: path.as_bytes(),
            };
            assert_eq!(
                archive.lookup(key).is_some(),
                map.contains_key(&(path.clone(), namespace))
            );
        }
        let keys: Vec<_> = archive.entries().map(|entry| entry.key()).collect();
        assert!(keys.is_sorted(), "entries are in the order of their keys");
    }
}

/// Short segments of few letters, so that random keys often collide.
fn random_key(numbers: &mut Numbers) -> (String, Namespace) {
    let mut path = String::new();
    for _ in 0..1 + numbers.below(4) {
        path.push('/');
        for _ in 0..1 + numbers.below(3) {
            path.push(char::from(b'a' + numbers.below(6) as u8));
        }
    }
    if numbers.below(8) == 0 {
        path.push('/');
        return (path, Namespace::NotFoundPage);
    }
    (path, Namespace::Content)
}

#[test]
fn the_shortest_acceptable_variant_is_selected() {
    let mut file = File::new(Options::default());
    let bodies: [(Coding, &[u8]); 4] = [
        (Coding::Identity, &[b'i'; 900]),
        (Coding::Gzip, &[b'g'; 300]),
        (Coding::Brotli, &[b'b'; 200]),
        (Coding::Zstd, &[b'z'; 250]),
    ];
    let variants = file.variants(&bodies);
    file.content(Key::content(b"/a"), variants, false);
    file.redirect(b"/b", b"/b/");
    let archive = open(&file.finish().expect("sound")).expect("sound");
    let entry = archive.lookup(Key::content(b"/a")).expect("it was added");
    let check = |acceptable: CodingSet, expect: Option<Coding>| {
        let found = entry.select(acceptable).map(|variant| variant.coding());
        assert_eq!(found, expect, "{acceptable:?}");
    };
    let up_to_gzip = CodingSet::IDENTITY.with(Coding::Gzip);
    check(CodingSet::EMPTY, None);
    check(CodingSet::IDENTITY, Some(Coding::Identity));
    check(up_to_gzip, Some(Coding::Gzip));
    check(up_to_gzip.with(Coding::Zstd), Some(Coding::Zstd));
    check(CodingSet::ALL, Some(Coding::Brotli));

    let redirect = archive.lookup(Key::content(b"/b")).expect("it was added");
    assert_eq!(
        redirect.kind(),
        EntryKind::Redirect {
            status: 308,
            location: b"/b/"
        }
    );
    assert!(redirect.select(CodingSet::ALL).is_none());
}

#[test]
fn hosts_and_name_spaces_have_entries_of_their_own() {
    use gannet_archive::{Namespace, SectionKind};
    let file = sample::hosts();
    let archive = sample::open(&file).expect("sound");
    let names: Vec<_> = archive.hosts().collect();
    assert_eq!(names, [&b"a.example"[..], b"b.example"]);
    for (number, name) in (1..).zip(names) {
        assert_eq!(archive.host_name(number), Some(name));
        assert_eq!(archive.host_number(name), Some(number));
    }
    assert_eq!((archive.host_name(0), archive.host_name(3)), (None, None));
    assert_eq!(archive.host_number(b"c.example"), None);
    let tag = |key: Key<'_>| {
        let entry = archive.lookup(key)?;
        Some(entry.variants().next()?.entity_tag().to_vec())
    };
    let page = tag(Key::content(b"/"));
    let other = tag(Key::content(b"/").on(1));
    assert!(page.is_some() && other.is_some() && page != other);
    assert_eq!(tag(Key::content(b"/").on(2)), page);
    assert_eq!(tag(Key::content(b"/").on(3)), None);
    let folder = Key::not_found_page(b"/");
    assert_eq!(tag(folder), None);
    assert_eq!(tag(folder.within(Namespace::ApplicationPage)), page);
    assert_eq!(tag(folder.within(Namespace::Wildcard)), None);
    assert_eq!(tag(folder.within(Namespace::Unruled).on(1)), other);
    let has = |host, namespace| archive.has_namespace(host, namespace);
    assert!(has(0, Namespace::ApplicationPage) && has(2, Namespace::Wildcard));
    assert!(!has(0, Namespace::Wildcard) && !has(1, Namespace::NotFoundPage));
    assert!(!has(2, Namespace::Unruled) && !has(3, Namespace::Content));
    let section = |kind| archive.section(kind).map(<[u8]>::to_vec);
    assert_eq!(
        section(SectionKind::RedirectRules),
        Some(b"redirects".to_vec())
    );
    assert_eq!(section(SectionKind::FieldRules), Some(b"fields".to_vec()));
    let plain = sample::site();
    let plain = sample::open(&plain).expect("sound");
    assert_eq!(
        plain.superblock().features(),
        (0, 0),
        "nothing that it does not use"
    );
    assert_eq!(plain.section(SectionKind::FieldRules), None);
}

#[test]
fn variants_with_a_dictionary_are_found_by_it_alone() {
    let file = sample::dictionaries();
    let archive = sample::open(&file).expect("a sound archive");
    let entry = |path: &[u8]| archive.lookup(Key::content(path)).expect("there");
    let new = entry(b"/app.2.js");
    // Ordinary requests never see them.
    let all = CodingSet::ALL
        .with(Coding::DictionaryBrotli)
        .with(Coding::DictionaryZstd);
    let selected = new.select(all).expect("there");
    assert_eq!(selected.coding(), Coding::Gzip);
    assert_eq!(new.variants().len(), 2);
    let check = |coding: Coding, sha256: u8, expect: Option<(u64, &[u8])>| {
        let found = new.select_with_dictionary(coding.into(), &[sha256; 32]);
        let found = found.map(|it| (it.blob_len(), it.dictionary().expect("it has one").path));
        assert_eq!(found, expect, "{coding:?} {sha256}");
    };
    let (dcb, dcz) = (Coding::DictionaryBrotli, Coding::DictionaryZstd);
    check(dcb, 3, Some((46, b"/app.1.js")));
    check(dcz, 4, Some((5040, b"/app.0.js")));
    check(dcz, 3, None);
    check(dcb, 4, None);
    check(dcb, 5, None);
    check(Coding::Gzip, 3, None);
    assert_eq!(archive.dictionaries().len(), 2);
    let old = entry(b"/app.1.js");
    assert!(!old.has_dictionary_variants() && new.has_dictionary_variants());
    assert_eq!(old.carried_since(), Some(1_700_000_000));
    assert_eq!(new.carried_since(), None);
    let stats = archive.stats();
    let counts = (stats.file_count, stats.carried_count, stats.immutable_count);
    assert_eq!(counts, (1, 1, 2));
    assert_eq!(stats.coding(dcb).variant_count, 1);
    assert_eq!(stats.dictionary_count, 2);
}
