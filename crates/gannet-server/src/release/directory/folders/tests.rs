use gannet_io::driver::FileKind;

use super::*;
use crate::bounds::limits::SETTLED_S;

/// The time of the surveys, Unix seconds.
const UNIX: i64 = 1_000;

/// A folder that changed this many seconds before.
fn meta(ago_s: i64) -> Meta {
    let changed_ns = i128::from(UNIX - ago_s) * 1_000_000_000;
    Meta {
        kind: FileKind::Directory,
        len: 4_096,
        mtime_ns: changed_ns,
        ctime_ns: changed_ns,
        identity: (1, 1),
        links: 2,
    }
}

fn survey(meta: Meta, names: &[&[u8]]) -> Survey {
    Survey {
        meta,
        kept: names.iter().filter_map(|name| sidecar_hash(name)).collect(),
        count: names.len(),
        is_whole: true,
        is_plain: true,
    }
}

/// Surveys the root, which has these names.
fn learn(folders: &mut Folders, ago_s: i64, names: &[&[u8]], now: Nanos) {
    folders.begin(b"", FOLDER_NAMES_FIRST);
    folders.take(b"", Some(survey(meta(ago_s), names)), (now, UNIX));
}

fn never(_: &[u8]) -> Option<Meta> {
    panic!("known without a query")
}

#[test]
fn an_unchanged_folder_stays_known_and_a_changed_one_is_surveyed_again() {
    let (mut folders, start) = (Folders::default(), Nanos(0));
    let glance = folders.glance((b"a.html", 1), start, never);
    assert_eq!(glance, Glance::Due(FOLDER_NAMES_FIRST));
    learn(&mut folders, SETTLED_S + 1, &[b"a.html"], start);
    let known = |as_of| Glance::Known {
        as_of,
        absent: u8::MAX,
    };
    let fresh = start.plus_ms(FOLDER_FRESH_MS);
    assert_eq!(folders.glance((b"a.html", 1), fresh, never), known(start));
    let later = fresh.plus_ms(1);
    let same = |_: &[u8]| Some(meta(SETTLED_S + 1));
    assert_eq!(folders.glance((b"a.html", 1), later, same), known(later));
    assert_eq!(folders.glance((b"b.html", 1), later, never), known(later));
    let stale = later.plus_ms(FOLDER_FRESH_MS + 1);
    let cold = folders.glance((b"a.html", 1), stale, |_| None);
    assert_eq!(cold, Glance::Unknown, "a query would wait");
    let changed = folders.glance((b"a.html", 1), stale, |_| Some(meta(0)));
    assert_eq!(changed, Glance::Due(FOLDER_NAMES_FIRST));
    assert_eq!(folders.plain(b"a.html", stale), None);
}

#[test]
fn a_folder_that_has_just_changed_is_not_recognized_by_its_metadata() {
    let (mut folders, start) = (Folders::default(), Nanos(0));
    learn(&mut folders, SETTLED_S, &[], start);
    let fresh = start.plus_ms(FOLDER_FRESH_MS);
    assert!(matches!(
        folders.glance((b"a", 1), fresh, never),
        Glance::Known { .. }
    ));
    let same = |_: &[u8]| Some(meta(SETTLED_S));
    let glance = folders.glance((b"a", 1), fresh.plus_ms(1), same);
    assert_eq!(glance, Glance::Due(FOLDER_NAMES_FIRST));
}

#[test]
fn only_sidecars_without_a_name_are_absent() {
    let (mut folders, now) = (Folders::default(), Nanos(0));
    let names: [&[u8]; 4] = [
        b"a.html",
        b"a.html.gz",
        b"B.HTML.BR",
        "é.html.gz".as_bytes(),
    ];
    learn(&mut folders, SETTLED_S + 1, &names, now);
    let mut absent = |name: &str| match folders.glance((name.as_bytes(), 1), now, never) {
        Glance::Known { absent, .. } => SIDECARS.map(|it| {
            let at = SIDECARS.iter().position(|other| other == &it);
            absent >> at.expect("one of them") & 1 == 1
        }),
        other => panic!("{other:?}"),
    };
    assert_eq!(absent("a.html"), [true, true, false]);
    assert_eq!(absent("b.html"), [false, true, true]);
    assert_eq!(absent("c.html"), [true; 3]);
    // Perhaps under another form of the same name.
    assert_eq!(absent("e\u{301}.html"), [false; 3]);
    assert_eq!(folder_of(b"d/e/a.html"), b"d/e");
}

/// A folder too long for the first survey: the next one is due when lookups have paid for it.
#[test]
fn a_long_folder_is_read_in_steps() {
    let (mut folders, now) = (Folders::default(), Nanos(0));
    let mut max = FOLDER_NAMES_FIRST;
    loop {
        folders.begin(b"", max);
        let part = Survey {
            count: max,
            is_whole: false,
            ..survey(meta(SETTLED_S + 1), &[])
        };
        folders.take(b"", Some(part), (now, UNIX));
        for _ in 1..max / FOLDER_NAMES_PER_MISS {
            assert_eq!(folders.glance((b"a", 1), now, never), Glance::Unknown);
        }
        let next = (8 * max).min(FOLDER_NAMES_MAX);
        assert_eq!(folders.glance((b"a", 1), now, never), Glance::Due(next));
        if max == FOLDER_NAMES_MAX {
            break;
        }
        max = next;
    }
    // One that cannot be read is rarely tried.
    folders.begin(b"", FOLDER_NAMES_FIRST);
    folders.take(b"", None, (now, UNIX));
    assert_eq!(folders.glance((b"a", 1), now, never), Glance::Unknown);
}

#[test]
fn what_is_known_has_a_bound() {
    let (mut folders, now) = (Folders::default(), Nanos(0));
    let sidecars: Vec<Vec<u8>> = (0..1_000).map(|n| format!("{n}.gz").into()).collect();
    let names: Vec<&[u8]> = sidecars.iter().map(Vec::as_slice).collect();
    let mut peak = 0;
    for number in 0..1_000 {
        let folder = format!("{number:0100}");
        folders.begin(folder.as_bytes(), FOLDER_NAMES_FIRST);
        let found = survey(meta(SETTLED_S + 1), &names);
        folders.take(folder.as_bytes(), Some(found), (now, UNIX));
        let counted: u64 = folders
            .folders
            .iter()
            .map(|(path, folder)| weight(path) + folder.known.as_ref().map_or(0, KnownFolder::held))
            .sum();
        assert_eq!(folders.held(), counted);
        peak = peak.max(counted);
    }
    assert!(
        peak <= FOLDERS_HELD_MAX && peak > FOLDERS_HELD_MAX / 2,
        "{peak}"
    );
}

/// Files are read ahead after enough short ones in a row, and no longer after a long one.
#[test]
fn files_are_read_ahead_where_the_last_ones_were_short() {
    let (mut folders, now) = (Folders::default(), Nanos(0));
    assert_eq!(folders.plain(b"a", now), None);
    learn(&mut folders, SETTLED_S + 1, &[], now);
    let most = READ_AHEAD_MAX as u64;
    for _ in 0..3 {
        for _ in 0..SHORT_FILES_SEEN {
            assert_eq!(folders.plain(b"a", now), Some(0));
            folders.glance((b"a", most), now, never);
        }
        assert_eq!(folders.plain(b"a", now), Some(READ_AHEAD_MAX));
        folders.glance((b"a", most + 1), now, never);
    }
    let late = now.plus_ms(FOLDER_PLAIN_MS + 1);
    assert_eq!(folders.plain(b"a", late), None);
    // Another folder, after a long file of this one, and after enough short ones.
    for (folder, ahead) in [(b"x".as_slice(), 0), (b"y", READ_AHEAD_MAX)] {
        folders.begin(folder, FOLDER_NAMES_FIRST);
        let names = survey(meta(SETTLED_S + 1), &[]);
        folders.take(folder, Some(names), (now, UNIX));
        let file = [folder, b"/a"].concat();
        assert_eq!(folders.plain(&file, now), Some(ahead));
        for _ in 0..SHORT_FILES_SEEN {
            folders.glance((b"a", most), now, never);
        }
    }
}
