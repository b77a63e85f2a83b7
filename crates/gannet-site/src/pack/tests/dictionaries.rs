//! New versions of files, coded with earlier ones, and files that are carried on.

use gannet_archive::SectionKind;

use super::*;
use crate::archive::{Change, diff};
use crate::pack::{decode_with_dictionary, sha256};

/// A script of some kilobytes, of which versions share nearly all.
fn script(seed: u32, version: &str) -> String {
    let mut state = seed;
    let mut text = format!("// {version}\n");
    for _ in 0..600 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(&format!("f{:x}({});\n", state >> 12, state >> 22));
    }
    text
}

const OLD: &str = "assets/app-BxY3k9Zq.js";
const NEW: &str = "assets/app-CsGmk6Qp.js";
const NEWER: &str = "assets/app-DkXz1a2B.js";

impl Place {
    /// Replaces the site's only script, and the page that refers to it.
    fn release(&self, name: &str, content: &str) {
        let _ = fs::remove_dir_all(self.site());
        self.file(name, content);
        self.file("index.html", format!("<script src=/{name}></script>"));
    }

    /// Packs the site into an archive with this name, after others.
    fn pack_as(&self, name: &str, previous: &[&str], carry: Option<u64>, time: i64) -> PackReport {
        let options = PackOptions {
            output: self.0.join(name),
            previous: previous.iter().map(|name| self.0.join(name)).collect(),
            carry,
            source_date_epoch: Some(time),
            ..self.options()
        };
        pack(&options, &mut NoProgress).expect("it packs")
    }

    fn open_as(&self, name: &str) -> ArchiveFile {
        ArchiveFile::open(&self.0.join(name)).expect("it opens")
    }
}

/// The fields of a path's first variant.
fn fields(file: &ArchiveFile, path: &str) -> String {
    let entry = file.archive().lookup(Key::content(path.as_bytes()));
    let block = entry.expect("packed").variants().next().expect("one").h1();
    String::from_utf8_lossy(&block.whole()).into_owned()
}

/// The dictionaries of a path, and whether what is coded with each is what it should be.
fn dictionaries(file: &ArchiveFile, path: &str, olds: &[&str], new: &str) -> Vec<(Coding, String)> {
    let entry = file.archive().lookup(Key::content(path.as_bytes()));
    let entry = entry.expect("packed");
    let found = entry.dictionary_variants().map(|variant| {
        let dictionary = variant.dictionary().expect("it has one");
        let mut olds = olds.iter();
        let old = olds.find(|old| sha256(old.as_bytes()) == dictionary.sha256);
        let old = old.expect("a dictionary that clients have");
        assert_eq!(dictionary.len, old.len() as u64);
        let mut coded = Vec::new();
        let mut stored = file.stored(&variant).expect("readable");
        stored.read_to_end(&mut coded).expect("readable");
        let both = (old.as_bytes(), dictionary.sha256);
        let decoded = decode_with_dictionary(variant.coding(), &coded, both, new.len() as u64);
        assert!(decoded.expect("sound") == new.as_bytes());
        let block = variant.h1().whole().into_owned();
        let block = String::from_utf8(block).expect("text");
        let line = format!("Content-Encoding: {}\r\n", variant.coding().name());
        assert!(block.contains(&line), "{block}");
        assert!(block.contains("Vary: accept-encoding, available-dictionary\r\n"));
        assert!(block.contains("Use-As-Dictionary: match="), "{block}");
        let path = String::from_utf8_lossy(dictionary.path).into_owned();
        (variant.coding(), path)
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

const VARY: &str = "Vary: accept-encoding, available-dictionary\r\n";

#[test]
fn a_new_version_is_coded_with_those_that_clients_have() {
    let place = Place::new();
    let texts = ["one", "two", "three"].map(|version| script(1, version));
    place.release(OLD, &texts[0]);
    assert_eq!(
        place
            .pack_as("1", &[], None, 1_700_000_000)
            .dictionary_count,
        0
    );
    let first = place.open_as("1");
    let pattern = "Use-As-Dictionary: match=\"/assets/app-*.js\"\r\n";
    // A first release says what its files may be used for.
    let block = fields(&first, &format!("/{OLD}"));
    assert!(block.contains(pattern) && !block.contains(VARY), "{block}");
    assert!(!fields(&first, "/").contains("Use-As-Dictionary"));
    place.release(NEW, &texts[1]);
    let report = place.pack_as("2", &["1"], None, 1_700_000_000);
    assert_eq!(report.dictionary_count, 1);
    let second = place.open_as("2");
    let path = format!("/{NEW}");
    let olds = [texts[0].as_str(), &texts[1]];
    let found = dictionaries(&second, &path, &olds, &texts[1]);
    assert_eq!(found, [(Coding::DictionaryBrotli, format!("/{OLD}"))]);
    let block = fields(&second, &path);
    assert!(block.contains(pattern) && block.contains(VARY), "{block}");
    assert!(!fields(&second, "/").contains("available-dictionary"));
    // Packed again after itself, it is the same: what it has of the first release stays.
    place.pack_as("2b", &["2"], None, 1_700_000_000);
    let read = |name| fs::read(place.0.join(name)).expect("written");
    assert!(read("2") == read("2b"));
    // From both releases before, and from the second alone with what it carries on.
    place.release(NEWER, &texts[2]);
    place.pack_as("3", &["2", "1"], None, 1_700_000_000);
    let both = dictionaries(&place.open_as("3"), &format!("/{NEWER}"), &olds, &texts[2]);
    let paths: Vec<_> = both.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, [format!("/{OLD}"), format!("/{NEW}")]);
    place.release(NEW, &texts[1]);
    place.pack_as("2c", &["1"], Some(1), 1_700_000_000);
    place.release(NEWER, &texts[2]);
    place.pack_as("3c", &["2c"], Some(1), 1_700_000_000);
    let carried = dictionaries(&place.open_as("3c"), &format!("/{NEWER}"), &olds, &texts[2]);
    assert_eq!(carried, both);
    // Again, the same bytes.
    place.pack_as("3d", &["2c"], Some(1), 1_700_000_000);
    assert!(read("3c") == read("3d"));
    for name in ["2", "3", "3c"] {
        verify(&place.0.join(name)).expect("intact");
    }
}

#[test]
fn what_no_client_has_or_what_does_not_pay_is_no_dictionary() {
    let old = script(1, "old");
    let check = |rules: &str, name: &str, new: &str, encoders: Option<Vec<Encoder>>, expect| {
        let place = Place::new();
        place.release(OLD, &old);
        place.file("_headers", rules);
        place.pack_as("1", &[], None, 1_700_000_000);
        place.release(name, new);
        place.file("_headers", rules);
        let options = PackOptions {
            previous: vec![place.0.join("1")],
            encoders: encoders.unwrap_or(Encoder::all(Effort::Fast)),
            ..place.options()
        };
        pack(&options, &mut NoProgress).expect("it packs");
        let file = place.open();
        let entry = file
            .archive()
            .lookup(Key::content(format!("/{name}").as_bytes()));
        let entry = entry.expect("packed");
        let codings: Vec<_> = entry.dictionary_variants().map(|it| it.coding()).collect();
        assert_eq!(codings, expect, "{rules:?} {name}");
        let has_vary = fields(&file, &format!("/{name}")).contains("available-dictionary");
        assert_eq!(has_vary, !codings.is_empty(), "{rules:?} {name}");
    };
    let new = script(1, "new");
    let (dcb, dcz) = (Coding::DictionaryBrotli, Coding::DictionaryZstd);
    check("", NEW, &new, None, vec![dcb]);
    let only = |encoder| Some(vec![encoder]);
    check("", NEW, &new, only(Encoder::Zstd(19)), vec![dcz]);
    check("", NEW, &new, only(Encoder::Libdeflate(6)), vec![]);
    check("", NEW, &new, Some(Vec::new()), vec![]);
    // Other content; another file; too short.
    check("", NEW, &script(2, "other"), None, vec![]);
    check("", "assets/main-CsGmk6Qp.js", &new, None, vec![]);
    check("", NEW, &new[..3_000], None, vec![]);
    // The site's rules: not to be stored for so long, not a dictionary, without what caches need.
    let rule = |line: &str| format!("/assets/*\n  {line}\n");
    check(&rule("Cache-Control: max-age=60"), NEW, &new, None, vec![]);
    check(&rule("! Use-As-Dictionary"), NEW, &new, None, vec![]);
    check(&rule("! Vary"), NEW, &new, None, vec![]);
    check(&rule("Content-Encoding: gzip"), NEW, &new, None, vec![]);
    check(&rule("Vary: Origin"), NEW, &new, None, vec![dcb]);
    check("https://a.example/*\n  X-A: b\n", NEW, &new, None, vec![]);
    // A name that changes by a rule alone.
    let by_rule = rule("Cache-Control: public, immutable");
    check(&by_rule, NEW, &new, None, vec![dcb]);
}

/// Browsers keep one dictionary for all names that differ in their hash alone.
#[test]
fn of_many_files_that_are_alike_none_is_a_dictionary() {
    const HASHES: [&str; 5] = ["BxY3k9Zq", "CsGmk6Qp", "DkXz1a2B", "EkX2z1aC", "FkX3z1aD"];
    let check = |old_count: usize, new_count: usize, expect: u64| {
        let place = Place::new();
        let write = |count: usize, version: &str| {
            let _ = fs::remove_dir_all(place.site());
            let mut page = String::new();
            for (number, hash) in HASHES.iter().enumerate().take(count) {
                let hash = format!("{}{hash}", version.len());
                let name = format!("assets/chunk-{}.js", &hash[..8]);
                place.file(&name, script(number as u32, version));
                page.push_str(&format!("<script src=/{name}></script>"));
            }
            place.file("index.html", page);
        };
        write(old_count, "old");
        place.pack_as("1", &[], None, 1_700_000_000);
        write(new_count, "other");
        let report = place.pack_as("2", &["1"], None, 1_700_000_000);
        assert_eq!(report.dictionary_count, expect, "{old_count}, {new_count}");
        // Nor is one kept in vain.
        for (archive, count) in [("1", old_count), ("2", new_count)] {
            let file = place.open_as(archive);
            let paths = file.archive().entries();
            let paths = paths.map(|entry| String::from_utf8_lossy(entry.path()).into_owned());
            let chunks = paths.filter(|path| path.contains("/chunk-"));
            let offers = |path: &String| fields(&file, path).contains("Use-As-Dictionary: ");
            let offered = chunks.filter(offers).count();
            assert_eq!(offered, if count < 5 { count } else { 0 }, "{archive}");
        }
    };
    check(4, 4, 4);
    check(5, 1, 0);
    check(1, 5, 0);
}

/// Most clients have the release before, whatever the lengths of its files.
#[test]
fn of_what_is_carried_on_the_newest_are_dictionaries() {
    let place = Place::new();
    let mut texts = Vec::new();
    let name = |release: u8| format!("assets/app-{}Y3k9Zqx.js", char::from(b'A' + release));
    for release in 0..6 {
        let text = script(1, &"longer ".repeat(usize::from(release % 3)));
        texts.push(format!("{text}// {release}"));
        place.release(&name(release), &texts[usize::from(release)]);
        let time = 1_700_000_000 + i64::from(release);
        let last = release.checked_sub(1).map(|last| last.to_string());
        let last: Vec<_> = last.iter().map(String::as_str).collect();
        let carry = (!last.is_empty()).then_some(60);
        place.pack_as(&release.to_string(), &last, carry, time);
    }
    let olds: Vec<_> = texts.iter().map(String::as_str).collect();
    let path = format!("/{}", name(5));
    let mut found = dictionaries(&place.open_as("5"), &path, &olds, &texts[5]);
    found.sort_by(|a, b| a.1.cmp(&b.1));
    let paths: Vec<_> = found.into_iter().map(|(_, path)| path).collect();
    assert_eq!(
        paths,
        [2, 3, 4].map(|release| format!("/{}", name(release)))
    );
}

const DAY: i64 = 86_400;

/// The entries that are carried on: path, and since when.
fn carried(file: &ArchiveFile) -> Vec<(String, i64)> {
    let entries = file.archive().entries();
    let found = entries.filter_map(|entry| {
        let path = String::from_utf8_lossy(entry.path()).into_owned();
        Some((path, entry.carried_since()?))
    });
    found.collect()
}

#[test]
fn files_that_are_gone_are_carried_on_for_so_long_and_no_longer() {
    let place = Place::new();
    let week = Some(7 * DAY as u64);
    let start = 1_700_000_000;
    place.release(OLD, &script(1, "one"));
    place.file("assets/page-BxY3k9Zq.html", "<p>hashed, but a page");
    place.file("_headers", "/*.html\n  Cache-Control: immutable\n");
    place.pack_as("1", &[], None, start);
    place.release(NEW, &script(1, "two"));
    let report = place.pack_as("2", &["1"], week, start + DAY);
    assert_eq!(report.carried_count, 1);
    let old = format!("/{OLD}");
    assert_eq!(carried(&place.open_as("2")), [(old.clone(), start + DAY)]);
    // Its bytes and fields are those of its release.
    let (first, second) = (place.open_as("1"), place.open_as("2"));
    assert_eq!(get(&second, &old), get(&first, &old));
    assert_eq!(fields(&second, &old), fields(&first, &old));
    assert_eq!(second.archive().stats().file_count, 2);
    // Each is carried from the time at which it was gone.
    place.release(NEWER, &script(1, "three"));
    place.pack_as("3", &["2"], week, start + 8 * DAY);
    let new = format!("/{NEW}");
    let both = [(old.clone(), start + DAY), (new.clone(), start + 8 * DAY)];
    assert_eq!(carried(&place.open_as("3")), both);
    place.pack_as("4", &["3"], week, start + 8 * DAY + 1);
    assert_eq!(carried(&place.open_as("4")), [(new, start + 8 * DAY)]);
    place.pack_as("5", &["4"], None, start + 9 * DAY);
    assert_eq!(carried(&place.open_as("5")), []);
    // What is part of the site again is not carried on.
    place.file(OLD, script(1, "one"));
    place.file("index.html", format!("{OLD} {NEWER}"));
    place.pack_as("6", &["3"], week, start + 9 * DAY);
    let file = place.open_as("6");
    let entry = file.archive().lookup(Key::content(old.as_bytes()));
    assert_eq!(entry.expect("packed").carried_since(), None);
    for number in ["2", "3", "4", "6"] {
        verify(&place.0.join(number)).expect("intact");
    }
}

#[test]
fn what_is_carried_on_is_no_file_of_the_site() {
    let place = Place::new();
    let week = Some(7 * DAY as u64);
    place.release(OLD, &script(1, "one"));
    place.pack_as("1", &[], None, 1_700_000_000);
    place.release(NEW, &script(1, "two"));
    place.pack_as("2", &["1"], week, 1_700_000_000);
    let output = place.0.join("out");
    let options = ExtractOptions {
        archive: place.0.join("2"),
        output: output.clone(),
    };
    assert_eq!(extract(&options).expect("it extracts").file_count, 2);
    assert!(output.join(NEW).exists() && !output.join(OLD).exists());
    let changes = |before: &str, after: &str| {
        let mut found = Vec::new();
        let (before, after) = (place.0.join(before), place.0.join(after));
        diff(&before, &after, &mut |url, change| {
            if url.starts_with("/assets") {
                found.push((url.to_owned(), change.clone()));
            }
            Ok(())
        })
        .expect("readable");
        found
    };
    let (old, new) = (format!("/{OLD}"), format!("/{NEW}"));
    let carried = [(old.clone(), Change::Carried), (new, Change::Added)];
    assert_eq!(changes("1", "2"), carried);
    place.pack_as("3", &[], None, 1_700_000_000);
    assert_eq!(changes("2", "3"), [(old.clone(), Change::Expired)]);
    assert_eq!(changes("3", "2"), [(old.clone(), Change::Carried)]);
    assert_eq!(changes("2", "2"), []);
    // Back again: what was carried on is part of the site.
    assert!(changes("2", "1").contains(&(old, Change::Added)));
}

#[test]
fn hosts_have_their_own_versions_and_what_is_stored_in_a_coding_alone_stays_so() {
    let place = Place::new();
    let release = |name: &str, version: &str| {
        let _ = fs::remove_dir_all(place.site());
        for (seed, host) in [(1, "a.example"), (2, "b.example")] {
            place.file(&format!("{host}/{name}"), script(seed, version));
            place.file(&format!("{host}/index.html"), name);
        }
    };
    let options = |output: &str, previous: Vec<PathBuf>| PackOptions {
        hosts: true,
        drop_identity: true,
        output: place.0.join(output),
        previous,
        carry: Some(60),
        ..place.options()
    };
    release(OLD, "one");
    pack(&options("1", Vec::new()), &mut NoProgress).expect("it packs");
    release(NEW, "two");
    let report = pack(&options("2", vec![place.0.join("1")]), &mut NoProgress);
    let report = report.expect("it packs");
    assert_eq!((report.dictionary_count, report.carried_count), (2, 2));
    let file = place.open_as("2");
    for (number, seed) in [(1, 1), (2, 2)] {
        let key = |name: &'static str| Key::content(name.as_bytes()).on(number);
        let old = answer(&file, key("/assets/app-BxY3k9Zq.js")).expect("carried");
        assert_eq!(old, script(seed, "one"));
        let entry = file.archive().lookup(key("/assets/app-CsGmk6Qp.js"));
        let entry = entry.expect("packed");
        let variant = entry.dictionary_variants().next().expect("one");
        let dictionary = variant.dictionary().expect("it has one");
        assert_eq!(dictionary.sha256, sha256(old.as_bytes()));
        let carried = file.archive().lookup(key("/assets/app-BxY3k9Zq.js"));
        let identity = carried.expect("carried").select(Coding::Identity.into());
        assert!(identity.expect("there").stored_as().is_some());
    }
    verify(&place.0.join("2")).expect("intact");
}

/// Parts of a long file can be verified, whichever way it came into the archive: in memory, from an earlier
/// archive, carried on, or streamed.
#[test]
fn long_files_have_trees() {
    let place = Place::new();
    let film = |name: &str, seed: u8| {
        let content: Vec<u8> = (0..1_300_000u32).map(|at| (at >> 9) as u8 ^ seed).collect();
        place.release(name, "");
        place.file(name, content);
    };
    film(OLD, 1);
    place.pack_as("1", &[], None, 1_700_000_000);
    place.pack_as("2", &["1"], None, 1_700_000_000);
    film(NEW, 2);
    let streamed = fs::File::create(place.site().join("streamed.mp4")).expect("writable");
    streamed
        .set_len(crate::pack::limits::STREAMED_FROM)
        .expect("sparse");
    let report = place.pack_as("3", &["2"], Some(60), 1_700_000_001);
    assert_eq!(report.carried_count, 1);
    for (name, groups) in [("1", 20), ("2", 20), ("3", 2 * 20 + 1024)] {
        let file = place.open_as(name);
        let trees = file.archive().section(SectionKind::Trees);
        assert_eq!(trees.map(<[u8]>::len), Some(groups * 32), "{name}");
        verify(&place.0.join(name)).expect("intact");
    }
}

#[test]
fn without_a_time_nothing_can_be_carried_on() {
    let place = Place::new();
    place.release(OLD, &script(1, "one"));
    place.pack_as("1", &[], None, 1_700_000_000);
    for path in ["index.html", OLD] {
        let file = fs::File::options()
            .write(true)
            .open(place.site().join(path));
        let file = file.expect("there");
        file.set_modified(UNIX_EPOCH).expect("writable");
    }
    let options = PackOptions {
        previous: vec![place.0.join("1")],
        carry: Some(1),
        ..place.options()
    };
    let refused = pack(&options, &mut NoProgress);
    assert!(matches!(refused, Err(PackError::NoTime(_))), "{refused:?}");
}
