//! Taking over what another store has: which pointers, and what a loss of power leaves behind.

mod disk;

use std::fs;
use std::path::{Path, PathBuf};

use disk::{Recorder, Unflushed, cut_power};
use gannet_store::files::Files;
use gannet_store::{Keep, Pointer, Publisher, ReleaseId, Store, StoreError};

const NOW: u64 = 1_800_000_000;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn archive(letter: u8) -> Vec<u8> {
    format!("archive {letter}\n").repeat(9).into_bytes()
}

/// The pointer of another store to the release of a letter.
fn pointer(serial: u64, letter: u8) -> Pointer {
    Pointer {
        serial,
        replaces: Some(serial - 1).filter(|it| *it > 0),
        release: ReleaseId::of_build_id(&[letter; 32]),
        size: archive(letter).len() as u64,
        digest: *blake3::hash(&archive(letter)).as_bytes(),
        published: NOW,
        publisher: "ann@build".into(),
        activate: None,
        stages: Vec::new(),
        keep: Keep::default(),
        void: Vec::new(),
        note: String::new(),
        expires: None,
    }
}

fn open(folder: &Path) -> Publisher<Unflushed> {
    Publisher::open_with(folder, "node", NOW, Unflushed).unwrap()
}

/// Takes over a pointer with its release.
fn take<F: Files>(copy: &Publisher<F>, pointer: &Pointer, letter: u8) -> Result<(), StoreError> {
    assert!(copy.store().is_news(Path::new("there"), pointer, NOW)?);
    fs::write(copy.part_path(pointer.release), archive(letter)).unwrap();
    copy.adopt_release(pointer)?;
    copy.adopt(pointer, &pointer.to_text())
}

/// The serial in force, whose release is whole and which the log has.
fn in_force(folder: &Path) -> u64 {
    let store = Store::open(folder, None).unwrap();
    let pointer = store.pointer().unwrap();
    store.intact_file(&pointer).unwrap();
    assert_eq!(store.logged(pointer.serial).unwrap(), pointer);
    pointer.serial
}

fn refuses(copy: &Publisher<Unflushed>, pointer: &Pointer, expect: &str) {
    let refused = copy
        .store()
        .is_news(Path::new("there"), pointer, NOW)
        .unwrap_err();
    assert!(refused.to_string().contains(expect), "{refused}");
}

#[test]
fn serials_only_rise() {
    let folder = Folder::new("serials");
    let copy = open(&folder.0);
    take(&copy, &pointer(3, 1), 1).unwrap();
    assert!(
        !copy
            .store()
            .is_news(Path::new("there"), &pointer(3, 1), NOW)
            .unwrap()
    );
    refuses(
        &copy,
        &pointer(2, 1),
        "it has serial 2, and serial 3 was in force already",
    );
    refuses(
        &copy,
        &pointer(3, 2),
        "it has serial 3, and serial 3 was in force already",
    );
    let mut expired = pointer(4, 2);
    expired.expires = Some(NOW);
    refuses(&copy, &expired, "serial 4 has expired");
    take(&copy, &pointer(9, 2), 2).unwrap();
    assert_eq!(in_force(&folder.0), 9);
    // The log remembers what the pointer no longer says.
    fs::remove_file(folder.0.join("current")).unwrap();
    refuses(&copy, &pointer(8, 1), "serial 9 was in force already");
    fs::write(folder.0.join("current"), "damaged").unwrap();
    refuses(&copy, &pointer(9, 1), "serial 9 was in force already");
    take(&copy, &pointer(9, 2), 2).unwrap();
    assert_eq!(in_force(&folder.0), 9);
}

#[test]
fn entries_of_the_log_are_never_replaced_by_others() {
    let folder = Folder::new("entries");
    let copy = open(&folder.0);
    let adopt = |pointer: &Pointer| copy.adopt_entry(pointer, &pointer.to_text());
    adopt(&pointer(3, 1)).unwrap();
    adopt(&pointer(3, 1)).unwrap();
    assert!(matches!(
        adopt(&pointer(3, 2)),
        Err(StoreError::Older { .. })
    ));
    assert_eq!(copy.store().logged(3).unwrap(), pointer(3, 1));
    // Half of one, as a loss of power may leave it where there are no links.
    let text = pointer(2, 1).to_text();
    fs::write(copy.store().log_path(2), &text[..20]).unwrap();
    adopt(&pointer(2, 1)).unwrap();
    assert_eq!(copy.store().logged(2).unwrap(), pointer(2, 1));
}

#[test]
fn a_part_becomes_a_release_only_if_it_is_what_the_pointer_names() {
    let folder = Folder::new("parts");
    let copy = open(&folder.0);
    let wanted = pointer(1, 1);
    let part = copy.part_path(wanted.release);
    fs::write(&part, archive(2)).unwrap();
    assert!(
        matches!(copy.adopt_release(&wanted), Err(StoreError::OtherFile(path)) if path == part)
    );
    assert!(part.exists());
    assert_eq!(copy.store().releases().unwrap(), []);
    fs::write(&part, archive(1)).unwrap();
    copy.adopt_release(&wanted).unwrap();
    assert!(!part.exists());
    copy.store().intact_file(&wanted).unwrap();
    // Parts outlive their process, and go when they are of no use.
    let [one, two] = [2, 3].map(|letter| copy.part_path(ReleaseId::of_build_id(&[letter; 32])));
    for part in [&one, &two] {
        fs::write(part, "half").unwrap();
    }
    drop(copy);
    let copy = open(&folder.0);
    assert!(one.exists() && two.exists());
    copy.discard_parts(Some(ReleaseId::of_build_id(&[3; 32])));
    assert!(!one.exists() && two.exists());
    copy.discard_parts(None);
    assert!(!two.exists());
    assert_eq!(copy.store().releases().unwrap(), [wanted.release]);
}

#[test]
fn a_loss_of_power_leaves_the_one_before_or_the_new_one() {
    let folder = Folder::new("power");
    let (root, place) = (folder.0.join("disk"), folder.0.join("after"));
    fs::create_dir_all(&root).unwrap();
    let store = root.join("store");
    let (first, second) = (pointer(1, 1), pointer(2, 2));
    let copy = open(&store);
    take(&copy, &first, 1).unwrap();
    fs::write(copy.part_path(second.release), archive(2)).unwrap();
    drop(copy);
    let mut found = [0, 0];
    let states = cut_power(
        &root,
        &place,
        |files: Recorder| {
            let copy = Publisher::open_with(&store, "node", NOW, files).unwrap();
            copy.adopt_release(&second).unwrap();
            copy.adopt(&second, &second.to_text()).unwrap();
        },
        &mut |disk, is_after| {
            let store = disk.join("store");
            let serial = in_force(&store);
            assert!(serial == 2 || !is_after, "what was told is lost");
            found[usize::from(serial == 2)] += 1;
            let copy = open(&store);
            if serial == 1 {
                take(&copy, &second, 2).unwrap();
            }
            assert_eq!(in_force(&store), 2);
        },
    );
    assert!(
        found.iter().all(|count| *count > 0),
        "{found:?} of {states}"
    );
}
