//! Publishing: what is written in which order, what a loss of power, a full disk or another
//! publisher leaves behind, and what is removed.

mod disk;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{SystemTime, UNIX_EPOCH};

use disk::{Recorder, Unflushed, cut_power};
use gannet_io::cause::FileError;
use gannet_store::files::Files;
use gannet_store::limits::SERIAL_MAX;
use gannet_store::{Keep, Next, Placed, Pointer, Publisher, ReleaseId, Stage, Store, StoreError};

const DAY: u64 = 86_400;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("gannet-publish-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn id(letter: u8) -> ReleaseId {
    ReleaseId::of_build_id(&[letter; 32])
}

/// The archive of a release.
fn archive(letter: u8) -> Vec<u8> {
    format!("archive {letter}\n").repeat(9).into_bytes()
}

fn next(letter: u8, placed: Placed) -> Next {
    Next::at_once(id(letter), placed)
}

fn is_intact(letter: u8) -> impl Fn(&Path) -> bool {
    move |path| fs::read(path).is_ok_and(|bytes| bytes == archive(letter))
}

/// Publishes a release, with a change to what is to be in force.
fn publish_with<F: Files>(
    publisher: &Publisher<F>,
    letter: u8,
    now: u64,
    change: impl FnOnce(&mut Next),
) -> Result<Pointer, StoreError> {
    let source = std::env::temp_dir().join(format!(
        "gannet-archive-{letter}-{:?}-{}",
        std::thread::current().id(),
        std::process::id()
    ));
    fs::write(&source, archive(letter)).unwrap();
    let copied = publisher.copy(&source);
    fs::remove_file(source).unwrap();
    copied?;
    let placed = publisher.place(id(letter), is_intact(letter))?;
    let mut next = next(letter, placed);
    change(&mut next);
    let pointer = publisher.next(next, now)?;
    publisher.commit(&pointer, &pointer.to_text())?;
    Ok(pointer)
}

fn publish(store: &Path, letter: u8) -> Pointer {
    let publisher = Publisher::open_with(store, "ann@build", now(), Unflushed).unwrap();
    publish_with(&publisher, letter, now(), |_| {}).unwrap()
}

/// The letter of the release in force, whose file is whole; `None` if nothing has been published.
fn in_force(store: &Path) -> Option<u8> {
    let pointer = match Store::open(store, None).and_then(|store| store.pointer()) {
        Ok(pointer) => pointer,
        Err(StoreError::Empty(_)) => return None,
        // A folder without the folders of a store.
        Err(StoreError::NotAStore(_)) => return None,
        Err(StoreError::Io(FileError { error, .. }))
            if error.kind() == std::io::ErrorKind::NotFound =>
        {
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let store = Store::open(store, None).unwrap();
    let bytes = fs::read(store.release_path(pointer.release)).unwrap();
    let letter = (1..9)
        .find(|letter| id(*letter) == pointer.release)
        .unwrap();
    assert_eq!(bytes, archive(letter));
    assert_eq!(pointer.digest, *blake3::hash(&bytes).as_bytes());
    assert_eq!(pointer.size, bytes.len() as u64);
    assert_eq!(
        store.logged(pointer.serial).unwrap(),
        pointer,
        "the log is never behind"
    );
    Some(letter)
}

/// After a loss of power at any moment, the release before or the new one is in force and whole,
/// and the next publisher succeeds.
#[test]
fn a_loss_of_power_leaves_the_old_release_or_the_new_one() {
    let folder = Folder::new("power");
    let (root, place) = (folder.at("root"), folder.at("after"));
    fs::create_dir(&root).unwrap();
    // The first release, a second one, one over the remains of another publisher, one that was
    // there, and a pruning one.
    for (letter, before) in [(1, None), (2, Some(1)), (3, Some(2)), (1, Some(3))] {
        if letter == 3 {
            fs::write(root.join("store/releases/.new-1-2.gannet"), "half").unwrap();
            fs::write(root.join("store/log/.new-1-2"), "half").unwrap();
            fs::write(root.join("store/.new-1-2"), "half").unwrap();
        }
        let mut found = [0, 0];
        let states = cut_power(
            &root,
            &place,
            |files| {
                let store = root.join("store");
                let publisher = Publisher::open_with(&store, "ann@build", now(), files).unwrap();
                let pointer = publish_with(&publisher, letter, now(), |next| {
                    next.keep = Keep {
                        age_s: 0,
                        least: 0,
                        most: 1,
                        bytes: None,
                    };
                });
                let pruned = publisher.prune(&pointer.unwrap(), now());
                assert!(pruned.errors.is_empty(), "{:?}", pruned.errors);
            },
            &mut |disk, is_after| {
                let store = disk.join("store");
                let release = in_force(&store);
                assert!(release == before || release == Some(letter), "{release:?}");
                assert!(
                    release == Some(letter) || !is_after,
                    "what was told is lost"
                );
                found[usize::from(release == Some(letter))] += 1;
                let earlier = highest(&store);
                let pointer = publish(&store, 8);
                assert_eq!(in_force(&store), Some(8));
                assert!(pointer.serial > earlier);
                let history = Store::open(&store, None).unwrap().history().unwrap();
                assert_eq!(history.pointers[0], pointer);
                assert_eq!(unfinished(&store), Vec::<String>::new());
            },
        );
        assert!(
            states > 30 && found[0] > 10 && found[1] > 0,
            "{states} {found:?}"
        );
        assert_eq!(in_force(&root.join("store")), Some(letter));
    }
}

/// The highest serial in the log, readable or not.
fn highest(store: &Path) -> u64 {
    let names = fs::read_dir(store.join("log")).into_iter().flatten();
    let serials = names.filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok());
    serials.max().unwrap_or(0)
}

/// Names of unfinished files.
fn unfinished(store: &Path) -> Vec<String> {
    let folders = ["", "releases", "log"].map(|name| store.join(name));
    let names = folders.iter().flat_map(|it| fs::read_dir(it).unwrap());
    let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with('.') && name != ".lock")
        .collect()
}

/// A disk that is full from some operation on: an error, the old release in force, and room enough
/// is all that the next publisher needs.
#[test]
fn a_full_disk_leaves_the_old_release_in_force() {
    let folder = Folder::new("full");
    let root = folder.at("");
    let store = folder.at("store");
    publish(&store, 1);
    let mut at = 0;
    loop {
        let recorder = Recorder::new(&root, Some(at));
        let published = Publisher::open_with(&store, "ann@build", now(), recorder.clone())
            .and_then(|publisher| publish_with(&publisher, 2, now(), |_| {}));
        if published.is_ok() {
            break;
        }
        let error = published.unwrap_err();
        assert!(
            error.to_string().contains("no space") || error.to_string().contains("storage"),
            "{error}"
        );
        assert!(error.help().unwrap().contains("free some space"));
        assert_eq!(in_force(&store), Some(1), "full at {at}");
        at += 1;
    }
    assert!(at > 8, "{at} operations need room");
    assert_eq!(in_force(&store), Some(2));
    publish(&store, 3);
    assert_eq!(in_force(&store), Some(3));
}

#[test]
fn one_of_two_publishers_is_told_of_the_other() {
    let folder = Folder::new("two");
    let store = folder.at("store");
    let first = Publisher::open(&store, "ann@build", 1_795_422_600).unwrap();
    let second = Publisher::open(&store, "bob", now()).err().unwrap();
    assert!(matches!(second, StoreError::Busy { .. }));
    assert!(
        second
            .to_string()
            .ends_with("another publisher is at work (ann@build, since 2026-11-23T08:30:00Z)"),
        "{second}"
    );
    publish_with(&first, 1, now(), |_| {}).unwrap();
    drop(first);
    publish(&store, 2);
    assert_eq!(in_force(&store), Some(2));
}

/// Where locks do not reach, the serial decides, and nothing is overwritten.
#[test]
fn a_serial_is_taken_once() {
    let folder = Folder::new("serial");
    let store = folder.at("store");
    publish(&store, 1);
    let publisher = Publisher::open(&store, "bob", now()).unwrap();
    let placed = publisher.placed(id(1)).unwrap();
    let pointer = publisher.next(next(1, placed), now()).unwrap();
    // The lock of a machine that does not see this one.
    fs::remove_file(store.join(".lock")).unwrap();
    let other = Publisher::open(&store, "ann@build", now()).unwrap();
    let theirs = publish_with(&other, 2, 1_795_422_600, |_| {}).unwrap();
    assert_eq!(theirs.serial, pointer.serial);
    let error = publisher.commit(&pointer, &pointer.to_text()).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "serial 2 was published at 2026-11-23T08:30:00Z by \
        ann@build in the meantime"
        ),
        "{error}"
    );
    assert_eq!(in_force(&store), Some(2));
    // One that was slower between the two steps does not bring an older pointer back.
    let slow = publisher.next(next(1, placed), now()).unwrap();
    publish_with(&other, 3, now(), |_| {}).unwrap();
    fs::remove_file(other.store().log_path(slow.serial)).unwrap();
    let error = publisher.commit(&slow, &slow.to_text()).unwrap_err();
    assert!(matches!(error, StoreError::Overtaken { .. }), "{error}");
    assert_eq!(in_force_unlogged(&store), id(3));
}

/// Where locks do not reach, nobody gives a name to what another publisher wrote.
#[test]
fn drafts_are_not_mixed_up() {
    let folder = Folder::new("drafts");
    let store = folder.at("store");
    publish(&store, 1);
    let publisher = Publisher::open(&store, "bob", now()).unwrap();
    fs::write(folder.at("two"), archive(2)).unwrap();
    fs::write(folder.at("three"), archive(3)).unwrap();
    publisher.copy(&folder.at("two")).unwrap();
    fs::remove_file(store.join(".lock")).unwrap();
    let other = Publisher::open(&store, "ann@build", now()).unwrap();
    other.copy(&folder.at("three")).unwrap();
    let error = publisher.place(id(2), is_intact(2)).unwrap_err();
    assert!(error.to_string().ends_with("(ENOENT)"), "{error}");
    other.place(id(3), is_intact(3)).unwrap();
    let releases = Store::open(&store, None).unwrap().releases().unwrap();
    assert!(!releases.contains(&id(2)) && releases.contains(&id(3)));
}

/// A file system without links.
struct Unlinked;

impl Files for Unlinked {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        Unflushed.make_folder(path)
    }

    fn create(&self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        Unflushed.create(path, content)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Unflushed.rename(from, to)
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(rustix::io::Errno::PERM.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Unflushed.remove(path)
    }

    fn flush_folder(&self, path: &Path) -> io::Result<()> {
        Unflushed.flush_folder(path)
    }
}

#[test]
fn a_file_system_needs_no_links() {
    let folder = Folder::new("unlinked");
    let store = folder.at("store");
    let publisher = Publisher::open_with(&store, "bob", now(), Unlinked).unwrap();
    publish_with(&publisher, 1, now(), |_| {}).unwrap();
    let slow = publisher.next(next(1, publisher.placed(id(1)).unwrap()), now());
    publish_with(&publisher, 2, now(), |_| {}).unwrap();
    assert_eq!(in_force(&store), Some(2));
    let slow = slow.unwrap();
    let error = publisher.commit(&slow, &slow.to_text()).unwrap_err();
    assert!(matches!(error, StoreError::Overtaken { .. }), "{error}");
    assert_eq!(in_force(&store), Some(2));
    assert_eq!(unfinished(&store), Vec::<String>::new());
}

fn in_force_unlogged(store: &Path) -> ReleaseId {
    Store::open(store, None).unwrap().pointer().unwrap().release
}

/// Threads that publish at the same time: each release that was published is in the log once.
#[test]
fn publishers_take_turns() {
    let folder = Folder::new("turns");
    let store = folder.at("store");
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for letter in 1..=4 {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                start.wait();
                let mut published = 0;
                while published < 5 {
                    match Publisher::open(store, "ann@build", now()) {
                        Ok(publisher) => {
                            publish_with(&publisher, letter, now(), |_| {}).unwrap();
                            published += 1;
                        }
                        Err(StoreError::Busy { .. }) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let history = Store::open(&store, None).unwrap().history().unwrap();
    let serials: Vec<_> = history.pointers.iter().map(|it| it.serial).collect();
    assert_eq!(serials, (1..=20).rev().collect::<Vec<_>>());
    for pointer in &history.pointers {
        assert_eq!(
            pointer.replaces,
            pointer.serial.checked_sub(1).filter(|it| *it > 0)
        );
    }
}

#[test]
fn only_a_store_or_an_empty_folder_is_published_to() {
    let folder = Folder::new("kinds");
    let open = |name: &str| Publisher::open(&folder.at(name), "ann", now()).map(drop);
    fs::create_dir_all(folder.at("site/releases")).unwrap();
    fs::write(folder.at("site/releases/index.html"), "x").unwrap();
    assert!(matches!(open("site"), Err(StoreError::NotAStore(_))));
    fs::write(folder.at("file"), "x").unwrap();
    let file = open("file").unwrap_err().to_string();
    assert!(file.ends_with("not a directory (ENOTDIR)"), "{file}");
    let deep = open("none/store").unwrap_err().to_string();
    assert!(
        deep.ends_with("no such file or directory (ENOENT)"),
        "{deep}"
    );
    fs::create_dir(folder.at("empty")).unwrap();
    open("empty").unwrap();
    // One whose publisher ended right after the first step.
    fs::create_dir_all(folder.at("begun/releases")).unwrap();
    open("begun").unwrap();
    let begun = Publisher::open(&folder.at("begun"), "ann", now()).unwrap();
    let modes = ["", "releases", "log"].map(|name| {
        let path = folder.at("begun").join(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    });
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    assert_eq!(modes, [0o777 & !umask.bits(); 3]);
    drop(begun);
}

/// A first publisher that publishes nothing leaves nothing behind.
#[test]
fn what_was_begun_in_vain_is_removed() {
    let folder = Folder::new("vain");
    let there = |name: &str| -> Vec<String> {
        let names = fs::read_dir(folder.at(name)).unwrap();
        names
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let store = folder.at("store");
    let publisher = Publisher::open(&store, "ann", now()).unwrap();
    assert!(store.join("log").is_dir());
    drop(publisher);
    assert_eq!(there(""), Vec::<String>::new());
    // Somebody else's folder stays.
    fs::create_dir(&store).unwrap();
    drop(Publisher::open(&store, "ann", now()).unwrap());
    assert_eq!(there("store"), Vec::<String>::new());
    publish(&store, 1);
    drop(Publisher::open(&store, "ann", now()).unwrap());
    assert_eq!(in_force(&store), Some(1));
    // A copy without the log and the lock.
    fs::remove_dir_all(store.join("log")).unwrap();
    fs::remove_file(store.join(".lock")).unwrap();
    let second = publish(&store, 2);
    assert_eq!((second.serial, second.replaces), (2, Some(1)));
    assert_eq!(in_force(&store), Some(2));
}

/// Folders that a file system or a tool has there are in nobody's way.
#[test]
fn hidden_folders_stay() {
    let folder = Folder::new("hidden");
    let store = folder.at("store");
    publish(&store, 1);
    for name in ["releases/.snapshot", "log/.snapshot", "releases/.new"] {
        fs::create_dir(store.join(name)).unwrap();
    }
    fs::write(store.join("releases/.nfs0001"), "x").unwrap();
    publish(&store, 2);
    assert_eq!(in_force(&store), Some(2));
    assert!(store.join("releases/.nfs0001").exists());
}

/// Servers have nothing else to serve.
#[test]
fn the_first_release_is_active_at_once() {
    let folder = Folder::new("first");
    let store = folder.at("store");
    let publisher = Publisher::open_with(&store, "ann", now(), Unflushed).unwrap();
    let later = |next: &mut Next| {
        next.activate = Some(now() + DAY);
        next.stages = Stage::parse_list("5% +0s, 100% +1h").unwrap();
    };
    let first = publish_with(&publisher, 1, now(), later).unwrap();
    assert_eq!((first.activate, &*first.stages), (None, &[][..]));
    let second = publish_with(&publisher, 2, now(), later).unwrap();
    assert!(second.activate.is_some() && second.stages.len() == 2);
}

/// A damaged file is replaced; one with other bytes for the same release stays.
#[test]
fn a_file_of_a_release_stays_unless_it_is_damaged() {
    let folder = Folder::new("damaged");
    let store = folder.at("store");
    let first = publish(&store, 1);
    let path = Store::open(&store, None).unwrap().release_path(id(1));
    fs::write(&path, "damaged").unwrap();
    assert_eq!(publish(&store, 1).digest, first.digest);
    assert_eq!(in_force(&store), Some(1));
    let signed = [archive(1), b"signature".to_vec()].concat();
    fs::write(&path, &signed).unwrap();
    let publisher = Publisher::open(&store, "ann", now()).unwrap();
    fs::write(publisher.draft_path(), archive(1)).unwrap();
    let placed = publisher.place(id(1), |_| true).unwrap();
    assert_eq!(placed.digest, *blake3::hash(&signed).as_bytes());
    assert!(placed.was_there && !publisher.draft_path().exists());
}

#[test]
fn what_is_no_longer_kept_is_removed() {
    let folder = Folder::new("prune");
    let store = folder.at("store");
    let there = || {
        let names = fs::read_dir(store.join("releases")).unwrap();
        let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        let letter = |name: String| (1..9).find(|it| name.starts_with(&id(*it).to_string()));
        let mut letters: Vec<u8> = names.filter_map(letter).collect();
        letters.sort_unstable();
        letters
    };
    let start = now();
    let at = |days: u64| start + days * DAY;
    let keep = |age_s, least, most| Keep {
        age_s,
        least,
        most,
        bytes: None,
    };
    let step = |letter: u8, days: u64, change: &dyn Fn(&mut Next)| {
        let publisher = Publisher::open(&store, "ann", at(days)).unwrap();
        let pointer = publish_with(&publisher, letter, at(days), change).unwrap();
        let pruned = publisher.prune(&pointer, at(days));
        assert!(pruned.errors.is_empty(), "{:?}", pruned.errors);
        pruned.releases
    };
    let of = |keep: Keep| move |next: &mut Next| next.keep = keep;
    step(1, 0, &of(keep(DAY, 1, 5)));
    step(2, 0, &of(keep(DAY, 1, 5)));
    assert_eq!(step(3, 1, &of(keep(DAY + 1, 1, 5))), []);
    assert_eq!(there(), [1, 2, 3], "release 1 was replaced a day ago");
    let mut removed = step(4, 3, &of(keep(DAY, 1, 5)));
    removed.sort_unstable();
    assert_eq!(removed, [id(1), id(2)]);
    assert_eq!(there(), [3, 4]);
    // One that never came into force stays as long as what is kept by age.
    fs::write(store.join(format!("releases/{}.gannet", id(7))), "x").unwrap();
    fs::write(store.join("releases/README"), "x").unwrap();
    step(5, 3, &of(keep(7 * DAY, 1, 1)));
    assert_eq!(there(), [4, 5, 7]);
    // As long as nodes have not left it, a release stays whatever the bounds are, void or not.
    step(6, 4, &|next| {
        next.keep = keep(7 * DAY, 0, 0);
        next.activate = Some(at(6));
        next.void = vec![id(5)];
    });
    assert_eq!(there(), [5, 6, 7]);
    step(6, 7, &|next| {
        next.keep = keep(DAY, 0, 5);
        next.void = vec![id(5)];
    });
    assert_eq!(there(), [6]);
    assert!(store.join("releases/README").exists());
}

/// A pointer that is damaged is replaced, and its serial is not used again.
#[test]
fn a_damaged_pointer_is_replaced() {
    let folder = Folder::new("pointer");
    let store = folder.at("store");
    publish(&store, 1);
    publish(&store, 2);
    fs::write(store.join("current"), "damaged").unwrap();
    let pointer = publish(&store, 3);
    assert_eq!((pointer.serial, pointer.replaces), (3, Some(2)));
    // Names that are taken are left out, and those far ahead do not use the serials up.
    for taken in [4, 5, SERIAL_MAX] {
        fs::write(store.join("log").join(taken.to_string()), "").unwrap();
    }
    let publisher = Publisher::open(&store, "ann", now()).unwrap();
    let placed = publisher.placed(id(3)).unwrap();
    let pointer = publisher.next(next(3, placed), now()).unwrap();
    assert_eq!((pointer.serial, pointer.replaces), (6, Some(3)));
    let last = publisher.store().log_path(SERIAL_MAX);
    let text = pointer
        .to_text()
        .replace("serial 6\n", &format!("serial {SERIAL_MAX}\n"));
    fs::write(last, text).unwrap();
    let error = publisher.next(next(3, placed), now()).unwrap_err();
    assert!(
        error.to_string().ends_with("the serials are used up"),
        "{error}"
    );
    let mut wrong = next(3, placed);
    wrong.note = "two\nlines".into();
    fs::remove_file(publisher.store().log_path(SERIAL_MAX)).unwrap();
    assert!(publisher.next(wrong, now()).is_err());
}

/// Who ends without a release removes what it has made of the store, while others look at it.
#[test]
fn who_begins_a_store_together_with_others_waits_at_most() {
    let folder = Folder::new("begun-together");
    let store = folder.at("store");
    std::thread::scope(|scope| {
        for name in ["ann", "bob", "cyd", "dan"] {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..1000 {
                    match Publisher::open(store, name, now()) {
                        Ok(_) | Err(StoreError::Busy { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}
