//! What a store is, which pointer is in force, and which releases are kept.

mod sample;

use std::fs;
use std::path::{Path, PathBuf};

use gannet_store::limits::{COPY_LAG_S, FOLLOWED_MAX};
use gannet_store::{Earlier, Keep, KeptRelease, Pointer, ReleaseId, Stage, Store, StoreError};
use minisign::KeyPair;

const DAY: u64 = 86_400;
const NOW: u64 = 20_000 * DAY;

/// A new folder below the temporary one, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-store-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A store to which nothing has been published.
    fn with_store(name: &str) -> Self {
        let folder = Self::new(name);
        fs::create_dir(folder.0.join("releases")).unwrap();
        fs::create_dir(folder.0.join("log")).unwrap();
        folder
    }

    fn open(&self) -> Store {
        Store::open(&self.0, None).unwrap()
    }

    /// Puts a pointer into force.
    fn publish(&self, pointer: &Pointer) {
        let store = self.open();
        fs::write(store.release_path(pointer.release), "archive").unwrap();
        fs::write(store.log_path(pointer.serial), pointer.to_text()).unwrap();
        fs::write(store.pointer_path(), pointer.to_text()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn id(letter: u8) -> ReleaseId {
    ReleaseId::of_build_id(&[letter; 32])
}

/// The pointer of a serial to a release, published this many days ago.
fn pointer(serial: u64, letter: u8, days_ago: u64) -> Pointer {
    Pointer {
        serial,
        replaces: (serial > 1).then(|| serial - 1),
        release: id(letter),
        published: NOW - days_ago * DAY,
        size: 1000,
        activate: None,
        stages: Vec::new(),
        keep: Keep::default(),
        void: Vec::new(),
        ..Pointer::parse(sample::FULL.as_bytes()).unwrap()
    }
}

#[test]
fn a_store_is_told_apart_from_a_site() {
    let folder = Folder::new("kinds");
    let at = |name: &str| folder.0.join(name);
    assert!(!Store::is_store(&at("none")) && !Store::is_store(&folder.0));
    fs::create_dir(at("releases")).unwrap();
    assert!(!Store::is_store(&folder.0), "a site with releases");
    fs::create_dir(at("log")).unwrap();
    assert!(Store::is_store(&folder.0), "a store with nothing in it");
    let open = |path: &Path| Store::open(path, None).and_then(|it| it.pointer());
    assert!(matches!(open(&folder.0), Err(StoreError::Empty(_))));
    fs::write(at("current"), "damaged").unwrap();
    fs::write(at(".current.1"), "unfinished").unwrap();
    assert!(Store::is_store(&folder.0), "a store with a damaged pointer");
    assert!(matches!(open(&folder.0), Err(StoreError::Pointer(..))));
    fs::write(at("index.html"), "text").unwrap();
    assert!(
        !Store::is_store(&folder.0),
        "a site with folders of these names"
    );
    assert!(matches!(open(&folder.0), Err(StoreError::NotAStore(_))));
    fs::write(at("current"), sample::FULL).unwrap();
    assert!(
        Store::is_store(&folder.0),
        "a store with a file of somebody"
    );
    assert_eq!(open(&folder.0).unwrap().serial, 12);
    let missing = open(&at("none")).unwrap_err();
    assert_eq!(missing.help().unwrap(), "check the path");
    assert!(
        missing
            .to_string()
            .ends_with("/none': no such file or directory (ENOENT)")
    );
}

/// What was copied without the log, or without anything but the pointer, is no site either.
#[test]
fn a_pointer_alone_makes_a_store() {
    let folder = Folder::new("alone");
    fs::write(folder.0.join("current"), sample::FULL).unwrap();
    let store = folder.open();
    let current = store.pointer().unwrap();
    assert_eq!(current.serial, 12);
    assert_eq!(store.history().unwrap().pointers, []);
    assert_eq!(store.releases().unwrap(), []);
    assert_eq!(store.kept(&current, NOW).unwrap().releases, []);
    assert_eq!(store.earlier(&current).unwrap().next(), None);
}

#[test]
fn a_store_that_was_moved_is_not_an_empty_one() {
    let folder = Folder::with_store("moved");
    let store = folder.open();
    assert!(matches!(store.pointer(), Err(StoreError::Empty(_))));
    let away = folder.0.with_extension("away");
    fs::rename(&folder.0, &away).unwrap();
    let error = store.pointer().unwrap_err().to_string();
    fs::remove_dir_all(away).unwrap();
    let expect = format!(
        "cannot open store '{}': no such file or directory (ENOENT)",
        folder.0.display()
    );
    assert_eq!(error, expect);
}

#[test]
fn a_key_is_required_of_every_pointer() {
    let folder = Folder::with_store("signed");
    let keys = KeyPair::generate_unencrypted_keypair().unwrap();
    let key = keys.pk.to_base64();
    folder.publish(&pointer(1, 1, 9));
    folder.publish(&pointer(2, 2, 1));
    let store = Store::open(&folder.0, Some(&key)).unwrap();
    let unsigned = store.pointer().unwrap_err();
    assert!(
        unsigned
            .to_string()
            .ends_with("/current': it is not signed"),
        "{unsigned}"
    );
    let sign = |pointer: &Pointer| {
        let text = pointer.to_text();
        let signature = minisign::sign(None, &keys.sk, text.as_bytes(), None, None).unwrap();
        text + &signature.to_string()
    };
    let current = pointer(2, 2, 1);
    fs::write(store.pointer_path(), sign(&current)).unwrap();
    assert_eq!(store.pointer().unwrap(), current);
    let kept = store.kept(&current, NOW).unwrap();
    assert_eq!(
        (kept.releases.len(), kept.skipped.len()),
        (0, 1),
        "an unsigned entry of the log"
    );
    fs::write(store.log_path(1), sign(&pointer(1, 1, 9))).unwrap();
    assert_eq!(
        store.kept(&current, NOW).unwrap().releases[0].pointer,
        pointer(1, 1, 9)
    );
    fs::write(
        store.pointer_path(),
        sign(&current).replace("size 1000", "size 1001"),
    )
    .unwrap();
    let changed = store.pointer().unwrap_err().to_string();
    assert!(
        changed.ends_with("/current': its signature is wrong"),
        "{changed}"
    );
    assert!(Store::open(&folder.0, Some("key")).is_err());
}

#[test]
fn the_log_has_every_pointer_once() {
    let folder = Folder::with_store("log");
    for serial in 1..=10 {
        folder.publish(&pointer(serial, serial as u8, 20 - serial));
    }
    let store = folder.open();
    fs::write(store.log_path(4), "torn").unwrap();
    fs::write(store.log_path(3), pointer(2, 2, 18).to_text()).unwrap();
    for other in ["11.part", "011", "x", ".12"] {
        fs::write(folder.0.join("log").join(other), "").unwrap();
    }
    let history = store.history().unwrap();
    let serials: Vec<_> = history.pointers.iter().map(|it| it.serial).collect();
    assert_eq!(serials, [10, 9, 8, 7, 6, 5, 2, 1]);
    let skipped: Vec<_> = history.skipped.iter().map(|it| it.serial).collect();
    assert_eq!(skipped, [4, 3]);
    let copied = history.skipped[1].error.to_string();
    assert!(
        copied.ends_with("/log/3': it is the pointer of serial 2"),
        "{copied}"
    );
}

/// Ages, counts and bytes, from the day on which the next release came.
#[test]
fn what_is_kept_goes_by_age_count_and_bytes() {
    let folder = Folder::with_store("kept");
    for serial in 1..=10 {
        folder.publish(&pointer(serial, serial as u8, 30 - 3 * serial));
    }
    let store = folder.open();
    let check = |change: &dyn Fn(&mut Pointer), expect: &[u64]| {
        let mut current = pointer(10, 10, 0);
        change(&mut current);
        let kept = store.kept(&current, NOW).unwrap();
        let serials: Vec<_> = kept.releases.iter().map(|it| it.pointer.serial).collect();
        assert_eq!(serials, expect, "{:?}", current.keep);
    };
    // Replaced 0, 3, 6, 9, ... days ago.
    check(&|_| {}, &[9, 8, 7]);
    check(&|it| it.keep.age_s = 9 * DAY + 1, &[9, 8, 7, 6]);
    check(&|it| it.keep.least = 5, &[9, 8, 7, 6, 5]);
    check(&|it| it.keep.least = 0, &[9, 8, 7]);
    check(&|it| (it.keep.least, it.keep.age_s) = (0, 1), &[9]);
    check(&|it| (it.keep.least, it.keep.age_s) = (0, 0), &[]);
    check(&|it| it.keep.most = 2, &[9, 8]);
    check(&|it| it.keep.most = 0, &[]);
    check(&|it| it.keep.bytes = Some(2000), &[9, 8]);
    check(&|it| it.keep.bytes = Some(999), &[]);
    check(&|it| it.void = vec![id(8)], &[9, 7, 6]);
    // The last of the nodes left release 9 a week later.
    check(&|it| it.activate = Some(NOW + 7 * DAY), &[9, 8, 7]);
    // The clock of the publisher of 9 was ahead; 8 was left all the same.
    let ahead = Pointer {
        published: NOW + 999 * DAY,
        ..pointer(9, 9, 3)
    };
    fs::write(store.log_path(9), ahead.to_text()).unwrap();
    assert_eq!(ahead.last_activation(), 0, "at once");
    check(&|it| it.keep.least = 0, &[9, 8, 7]);
    check(&|it| it.keep.most = 1, &[9]);
    fs::write(store.log_path(9), pointer(9, 9, 3).to_text()).unwrap();
    // Back to an earlier release.
    check(&|it| it.release = id(8), &[9, 7, 6]);
    // The publisher of 9 ended before it was in force.
    check(&|it| it.replaces = Some(8), &[8, 7, 6]);
    check(&|it| it.replaces = None, &[]);
    fs::remove_file(store.release_path(id(9))).unwrap();
    check(&|_| {}, &[8, 7, 6]);
    fs::write(store.log_path(8), "torn").unwrap();
    check(&|_| {}, &[7, 6, 5]);
    assert_eq!(
        store.kept(&pointer(10, 10, 0), NOW).unwrap().skipped.len(),
        1
    );
}

/// Two releases that took turns: the log says nothing about others.
#[test]
fn the_log_is_read_as_far_as_there_are_files() {
    let folder = Folder::with_store("turns");
    for serial in 1..=10 {
        folder.publish(&pointer(serial, (serial % 2) as u8, 30 - serial));
    }
    let store = folder.open();
    fs::write(store.log_path(7), "torn").unwrap();
    let current = pointer(10, 0, 0);
    let kept = store.kept(&current, NOW).unwrap();
    assert_eq!(kept.releases[0].pointer, pointer(9, 1, 21));
    assert_eq!(kept.releases.len(), 1);
    assert!(kept.skipped.is_empty(), "{:?}", kept.skipped);
    assert_eq!(store.earlier(&current).unwrap().count(), 8);
    let mut releases = store.releases().unwrap();
    releases.sort_unstable();
    assert_eq!(releases, [id(0), id(1)]);
}

#[test]
fn a_long_log_is_followed_up_to_a_bound() {
    let folder = Folder::with_store("long");
    let store = folder.open();
    let last = FOLLOWED_MAX as u64 + 3;
    for serial in 2..last {
        fs::write(store.log_path(serial), pointer(serial, 2, 1).to_text()).unwrap();
    }
    folder.publish(&pointer(1, 1, 1));
    folder.publish(&pointer(last, 3, 1));
    let current = pointer(last, 3, 1);
    assert_eq!(store.earlier(&current).unwrap().count(), FOLLOWED_MAX);
    assert_eq!(store.kept(&current, NOW).unwrap().releases, []);
    // The first one is within the bound of the one before.
    let before = pointer(FOLLOWED_MAX as u64 + 1, 2, 1);
    assert_eq!(
        store.kept(&before, NOW).unwrap().releases[0].pointer,
        pointer(1, 1, 1)
    );
}

/// Each node knows its own stage; the first pointer of a store is active at once.
#[test]
fn who_had_not_activated_a_pointer_when_it_was_superseded_never_did() {
    let folder = Folder::with_store("activated");
    let publish = |serial: u64, after_s: Option<u64>, stages: &str| {
        let mut next = pointer(serial, serial as u8, 0);
        next.published = NOW + 100 * serial;
        next.activate = after_s.map(|after_s| next.published + after_s);
        next.stages = Stage::parse_list(stages).unwrap_or_default();
        folder.publish(&next);
        next
    };
    publish(1, Some(3600), "");
    publish(2, None, "");
    publish(3, Some(100), "");
    publish(4, Some(101), "");
    let staged = publish(5, None, "50% +0s, 100% +101s");
    let current = publish(6, Some(3600), "");
    let nodes: Vec<_> = (0..100).map(|number| number.to_string()).collect();
    let is_first = |node: &&String| staged.activation(node) == staged.published;
    let node = |is_wanted: bool| nodes.iter().find(|it| is_first(it) == is_wanted).unwrap();
    let (first, last) = (node(true), node(false));
    let store = folder.open();
    let row = |it: Earlier| {
        let of = [it.was_active_at(first), it.was_active_at(last)];
        let all = [it.was_active(), it.was_active_everywhere()];
        (it.pointer.serial, it.superseded_at - NOW, of, all)
    };
    let rows: Vec<_> = store.earlier(&current).unwrap().map(row).collect();
    let (no, yes, part) = ([false, false], [true, true], [true, false]);
    let expect = [
        (5, 600, part, part),
        (4, 500, no, no),
        (3, 400, yes, yes),
        (2, 300, yes, yes),
        (1, 200, yes, yes),
    ];
    assert_eq!(rows, expect);
}

/// Releases that no node has activated leave room for those that pages refer to.
#[test]
fn what_was_superseded_before_its_time_comes_last() {
    let folder = Folder::with_store("superseded");
    let publish = |serial: u64, after_s: Option<u64>| {
        let mut next = pointer(serial, serial as u8, 1);
        next.published = NOW + serial;
        next.activate = after_s.map(|after_s| next.published + after_s);
        folder.publish(&next);
        next
    };
    let keep = |current: &Pointer, now: u64| {
        let kept = folder.open().kept(current, now).unwrap().releases;
        let of = |it: &KeptRelease| (it.pointer.serial, it.was_active);
        kept.iter().map(of).collect::<Vec<_>>()
    };
    publish(1, Some(3600));
    publish(2, None);
    publish(3, Some(COPY_LAG_S + 1));
    publish(4, Some(COPY_LAG_S + 2));
    publish(5, Some(1));
    let mut current = publish(6, None);
    let active = [(5, true), (2, true), (1, true)];
    assert_eq!(
        keep(&current, NOW + 6),
        [&active[..], &[(3, false)]].concat(),
        "the fourth was to be active too late"
    );
    current.keep.most = 3;
    assert_eq!(keep(&current, NOW + 6), active);
    current.keep.most = 20;
    current.keep.bytes = Some(3000);
    assert_eq!(keep(&current, NOW + 6), active);
    current.keep.bytes = None;
    let week = current.keep.age_s;
    let young = keep(&current, NOW + 5 + week);
    assert_eq!(young, [&active[..], &[(3, false)]].concat());
    assert_eq!(keep(&current, NOW + 6 + week), active, "three of any age");
}
