//! What is copied, and how little is fetched for it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gannet_fleet::limits::TIDY_S;
use gannet_fleet::{Cause, FleetError, Follower, Patience, Remote};
use gannet_store::{Keep, Publisher, Store};

use crate::stand_in::{Answer, Asked, StandIn};
use crate::stores::{Fleet, archive, bytes, fails, files, id_of, now, release, succeeds};

#[test]
fn a_new_copy_has_what_the_store_has() {
    let fleet = Fleet::signed();
    fleet.publish(1);
    fleet.publish(2);
    let pointer = fleet.publish(3);
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    let round = succeeds(&fleet, &mut follower);
    assert_eq!((round.pointer, round.is_new), (pointer, true));
    assert!(Store::is_store(&fleet.copy()));
}

#[test]
fn a_store_in_a_folder_is_followed_as_well() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let url = format!("file://{}", fleet.store().display());
    let mut follower = fleet.follower(&url);
    assert!(succeeds(&fleet, &mut follower).is_new);
    fleet.publish(2);
    assert!(succeeds(&fleet, &mut follower).is_new);
    assert!(!succeeds(&fleet, &mut follower).is_new);
}

#[test]
fn a_store_below_a_path_is_found() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let above = fleet.store();
    let server = StandIn::new(above.parent().unwrap());
    for url in ["/store", "/store/"] {
        let mut follower = fleet.follower(&(server.url() + url));
        succeeds(&fleet, &mut follower);
    }
}

#[test]
fn of_a_later_release_only_what_is_new_is_fetched() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    let whole = succeeds(&fleet, &mut follower).fetched;
    assert!(whole > 8 * 150_000, "{whole}");
    let pointer = fleet.publish(2);
    server.asked();
    let fetched = succeeds(&fleet, &mut follower).fetched;
    assert!(
        (150_000..170_000).contains(&fetched),
        "{fetched} of {whole}"
    );
    let ranges = server
        .asked()
        .iter()
        .filter(|it| it.range.is_some())
        .count();
    assert_eq!(ranges, 3, "superblock, metadata, one blob");
    // Going back fetches nothing.
    fleet.publish(1);
    let round = succeeds(&fleet, &mut follower);
    assert_eq!(
        (round.fetched, round.pointer.serial),
        (0, pointer.serial + 1)
    );
}

#[test]
fn a_store_that_has_not_changed_is_asked_for_its_pointer_alone() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    server.asked();
    for _ in 0..3 {
        let round = succeeds(&fleet, &mut follower);
        assert_eq!((round.is_new, round.fetched), (false, 0));
    }
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    let is_conditional = |it: &Asked| it.path == "current" && it.if_none_match.is_some();
    assert!(asked.iter().all(is_conditional), "{asked:?}");
    // Neither is one whose server names no entity tags.
    let text = fs::read_to_string(fleet.store().join("current")).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", text.len());
    let answer = format!("{head}connection: close\r\n\r\n{text}");
    server.lie(move |_| Answer::Raw(answer.clone().into_bytes()));
    succeeds(&fleet, &mut follower);
    succeeds(&fleet, &mut follower);
    assert!(server.asked().iter().all(|it| it.path == "current"));
}

#[test]
fn a_body_that_breaks_off_is_continued_from_there() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let server = StandIn::new(fleet.store());
    let mut is_cut = true;
    server.lie(move |asked| match &asked.range {
        Some(range) if range.len() > 500_000 && std::mem::take(&mut is_cut) => Answer::Cut(400_000),
        _ => Answer::Truth,
    });
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    let asked = server.asked().into_iter().filter_map(|it| it.range);
    let ranges: Vec<_> = asked.filter(|it| it.len() > 500_000).collect();
    assert_eq!(ranges.len(), 2, "{ranges:?}");
    assert_eq!(ranges[1].end, ranges[0].end);
    let kept = ranges[1].start - ranges[0].start;
    assert!((1..=400_000).contains(&kept), "{ranges:?}");
}

#[test]
fn a_follower_that_has_ended_leaves_what_the_next_one_goes_on_with() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let server = StandIn::new(fleet.store());
    // Every request for the blobs ends after three of them.
    let begun = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&begun);
    server.lie(move |asked| match &asked.range {
        Some(range) if range.len() > 500_000 && !set.swap(true, Ordering::Relaxed) => {
            Answer::Cut(3 * 160_000)
        }
        Some(range) if range.len() > 500_000 => Answer::Cut(0),
        _ => Answer::Truth,
    });
    let mut follower = fleet.follower(&server.url());
    fails(&fleet, &mut follower, "releases/");
    drop(follower);
    server.be_honest();
    server.asked();
    let mut follower = fleet.follower(&server.url());
    let fetched = succeeds(&fleet, &mut follower).fetched;
    assert!(fetched < 6 * 150_000, "{fetched}");
    let head = server.asked().into_iter().filter_map(|it| it.range);
    assert!(head.min_by_key(|it| it.start).unwrap().start > 0);
}

#[test]
fn a_new_copy_of_a_store_with_a_staged_release_has_what_is_active_before_it() {
    let fleet = Fleet::new();
    let first = fleet.publish(1);
    let staged = fleet.publish_with(&release(2), now(), |next| next.activate = Some(now() + 600));
    let server = StandIn::new(fleet.store());
    let copy = fleet.copy();
    server.lie(move |asked| {
        if asked.path.contains(&staged.release.to_string()) {
            let store = Store::open(&copy, None).unwrap();
            assert!(store.pointer().is_err(), "it is not in force yet");
            assert!(store.release_path(first.release).exists());
        }
        Answer::Truth
    });
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
}

#[test]
fn what_the_store_no_longer_keeps_goes_here_as_well() {
    let fleet = Fleet::new();
    let then = now() - 1000;
    let old = fleet.publish_with(&release(1), then, |_| {});
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    fleet.publish_with(&release(2), then + 10, |next| {
        next.keep = Keep::parse("0s 0..0").unwrap();
    });
    let round = succeeds(&fleet, &mut follower);
    assert_eq!(round.removed, 1);
    let store = Store::open(&fleet.copy(), None).unwrap();
    assert!(!store.release_path(old.release).exists());
}

#[test]
fn a_release_that_would_not_fit_is_refused() {
    let mut fleet = Fleet::new();
    fleet.publish(1);
    let server = StandIn::new(fleet.store());
    fleet.settings.disk_max = 1_500_000;
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    fleet.publish(2);
    server.asked();
    let error = fails(&fleet, &mut follower, "may have 1500000");
    assert!(error.help().unwrap().contains("--disk"));
    assert!(server.asked().iter().all(|it| it.range.is_none()));
    // Releases that are kept have to go without.
    drop(follower);
    fs::remove_dir_all(fleet.copy()).unwrap();
    let mut follower = fleet.follower(&server.url());
    assert!(follower.round(now()).unwrap().is_new);
    let releases = fs::read_dir(fleet.copy().join("releases")).unwrap();
    assert_eq!(releases.count(), 1);
}

/// A copy with more room than two releases take, but less than three.
#[test]
fn kept_releases_give_way_to_one_that_comes_into_force() {
    let mut fleet = Fleet::new();
    fleet.settings.disk_max = 3_000_000;
    let then = now() - 1000;
    fleet.publish_with(&release(1), then, |_| {});
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    fleet.publish_with(&release(2), then + 10, |_| {});
    succeeds(&fleet, &mut follower);
    // Both are kept in the store; here the older one goes, and does not come again.
    for (letter, at) in [(3, 20), (4, 30)] {
        let pointer = fleet.publish_with(&release(letter), then + at, |_| {});
        let round = follower.round(now()).unwrap();
        assert_eq!((&round.pointer, round.is_new), (&pointer, true));
        assert_eq!(round.removed, 1);
        let copy = Store::open(&fleet.copy(), None).unwrap();
        assert_eq!(copy.pointer().unwrap(), pointer);
        assert_eq!(copy.releases().unwrap().len(), 2);
        assert!(copy.release_path(pointer.release).exists());
    }
}

/// What nodes serve until the moment of a staged pointer does not give way.
#[test]
fn what_is_active_stays_until_its_successor_is() {
    let mut fleet = Fleet::new();
    let then = now() - 1000;
    let active = fleet.publish_with(&release(1), then, |_| {});
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    let in_an_hour = |next: &mut gannet_store::Next| next.activate = Some(now() + 3600);
    let staged = fleet.publish_with(&release(2), now(), in_an_hour);
    succeeds(&fleet, &mut follower);
    drop(follower);
    fleet.settings.disk_max = 3_000_000;
    let mut follower = fleet.follower(&server.url());
    follower.round(now()).unwrap();
    fleet.publish_with(&release(3), now(), in_an_hour);
    let error = follower.round(now()).unwrap_err();
    assert!(matches!(error, FleetError::Disk { .. }), "{error}");
    let copy = Store::open(&fleet.copy(), None).unwrap();
    for pointer in [active, staged] {
        assert!(copy.release_path(pointer.release).exists());
    }
}

/// A quiet store: releases are kept for a time all the same.
#[test]
fn what_has_been_kept_long_enough_goes_without_news() {
    let fleet = Fleet::new();
    let then = now() - 1000;
    for letter in [1, 2] {
        fleet.publish_with(&release(letter), then + u64::from(letter), |next| {
            next.keep = Keep::parse("1h 0..9").unwrap();
        });
    }
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    assert_eq!(follower.round(now() + TIDY_S).unwrap().removed, 0);
    assert_eq!(follower.round(now() + 7200).unwrap().removed, 1);
}

#[test]
fn a_name_and_a_password_in_a_url_are_sent_to_its_host_alone() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let (server, other) = (StandIn::new(fleet.store()), StandIn::new(fleet.store()));
    let url = |server: &StandIn| server.url().replace("//", "//ann:s%40crét@");
    let mut follower = fleet.follower(&url(&server));
    succeeds(&fleet, &mut follower);
    for asked in server.asked() {
        let value = asked.authorization.as_deref();
        assert_eq!(value, Some("Basic YW5uOnNAY3LDqXQ="), "{asked:?}");
    }
    let elsewhere = other.url().replace("127.0.0.1", "localhost");
    server.lie(move |asked| {
        let path = &asked.path;
        let head = format!("HTTP/1.1 302 Found\r\nlocation: {elsewhere}/{path}\r\n");
        Answer::Raw((head + "content-length: 0\r\nconnection: close\r\n\r\n").into())
    });
    fleet.publish(2);
    succeeds(&fleet, &mut follower);
    let asked = other.asked();
    assert!(!asked.is_empty() && asked.iter().all(|it| it.authorization.is_none()));
}

#[test]
fn a_local_release_that_is_damaged_is_not_copied_from() {
    let fleet = Fleet::new();
    let first = fleet.publish(1);
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    let store = Store::open(&fleet.copy(), None).unwrap();
    let path = store.release_path(first.release);
    let mut content = fs::read(&path).unwrap();
    for at in (4096..content.len() - 4096).step_by(10_000) {
        content[at] ^= 1;
    }
    fs::write(&path, content).unwrap();
    let second = fleet.publish(2);
    let round = follower.round(now()).unwrap();
    assert_eq!(round.pointer, second);
    assert!(round.fetched > 8 * 150_000, "{}", round.fetched);
    store.intact_file(&second).unwrap();
    // A follower that begins finds out about the one in force.
    drop(follower);
    fs::write(store.release_path(second.release), release(9)).unwrap();
    let mut follower = fleet.follower(&server.url());
    follower.round(now()).unwrap();
    store.intact_file(&second).unwrap();
}

#[test]
fn an_archive_that_is_not_as_its_blobs_say_is_fetched_whole() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    let mut odd = release(2);
    let gap = (4096 + 150_000..)
        .find(|at| odd[*at..*at + 8] == [0; 8])
        .unwrap();
    odd[gap + 3] = 7;
    fleet.publish_with(&odd, now(), |_| {});
    let fetched = succeeds(&fleet, &mut follower).fetched;
    assert!(fetched > 8 * 150_000, "{fetched}");
}

#[test]
fn an_archive_without_bodies_is_copied() {
    let fleet = Fleet::new();
    let empty = archive(&[]);
    fleet.publish_with(&empty, now(), |_| {});
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    assert_eq!(succeeds(&fleet, &mut follower).fetched, empty.len() as u64);
    // And one whose bodies are all the same.
    let same = archive(&[bytes(1, 70_000), bytes(1, 70_000)]);
    fleet.publish_with(&same, now(), |_| {});
    succeeds(&fleet, &mut follower);
}

#[test]
fn a_copy_has_one_follower() {
    let fleet = Fleet::new();
    let pointer = fleet.publish(1);
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    succeeds(&fleet, &mut follower);
    let another = Publisher::open(&fleet.copy(), "bob@build", now());
    let error = another.err().expect("the folder is locked").to_string();
    assert!(
        error.contains("another publisher is at work (node"),
        "{error}"
    );
    drop(follower);
    Publisher::open(&fleet.copy(), "bob@build", now()).unwrap();
    assert_eq!(files(&fleet.copy()).len(), 3);
    assert_eq!(pointer.release, id_of(&release(1)));
}

/// Two stores have the same serials.
#[test]
fn a_copy_is_that_of_one_store() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let [server, other] = [0; 2].map(|_| StandIn::new(fleet.store()));
    let url = server.url().replace("http://", "http://ann:secret@");
    succeeds(&fleet, &mut fleet.follower(&url));
    let note = fleet.copy().join(".origin");
    assert_eq!(fs::read_to_string(&note).unwrap(), server.url() + "\n");
    let foreign = || {
        let remote = Remote::open(&other.url(), fleet.patience).unwrap();
        let settings = fleet.settings.clone();
        Follower::open(remote, &fleet.copy(), None, settings, "node", now())
    };
    let error = foreign().err().expect("it is the copy of another");
    let (copy, of) = (fleet.copy().display().to_string(), server.url());
    let expect = format!("cannot copy to '{copy}': it has a copy of '{of}'");
    assert_eq!(error.to_string(), expect);
    let help = error.help().unwrap();
    assert!(help.ends_with(&format!("rm '{copy}/.origin'")), "{help}");
    // One that was made before there were notes, and one whose note is torn.
    for content in [None, Some("http://127")] {
        fs::remove_file(&note).unwrap();
        if let Some(content) = content {
            fs::write(&note, content).unwrap();
        }
        succeeds(&fleet, &mut foreign().unwrap());
        assert_eq!(fs::read_to_string(&note).unwrap(), other.url() + "\n");
    }
}

#[test]
fn it_is_known_of_which_store_a_copy_is_before_it_has_anything() {
    let fleet = Fleet::new();
    fleet.publish(1);
    fleet.publish(2);
    let server = StandIn::new(fleet.store());
    // What cannot be replaced by a file.
    let note = fleet.copy().join(".origin");
    fs::create_dir_all(note.join("inside")).unwrap();
    let mut follower = fleet.follower(&server.url());
    let error = follower.round(now()).unwrap_err().to_string();
    let expect = format!("cannot write '{}': ", note.display());
    assert!(error.starts_with(&expect), "{error}");
    assert!(files(&fleet.copy()).is_empty());
    fs::remove_dir_all(&note).unwrap();
    succeeds(&fleet, &mut follower);
    assert_eq!(fs::read_to_string(&note).unwrap(), server.url() + "\n");
}

/// As after `rm -r copy/*`, which leaves what begins with a dot.
#[test]
fn a_copy_of_which_only_its_note_is_left_is_that_of_any_store() {
    let fleet = Fleet::new();
    fleet.publish(1);
    let [server, other] = [0; 2].map(|_| StandIn::new(fleet.store()));
    for server in [&server, &other] {
        succeeds(&fleet, &mut fleet.follower(&server.url()));
        for name in ["log", "releases"] {
            fs::remove_dir_all(fleet.copy().join(name)).unwrap();
        }
        fs::remove_file(fleet.copy().join("current")).unwrap();
        assert!(fleet.copy().join(".origin").exists());
    }
    succeeds(&fleet, &mut fleet.follower(&server.url()));
    let note = fs::read_to_string(fleet.copy().join(".origin")).unwrap();
    assert_eq!(note, server.url() + "\n");
}

#[test]
fn a_url_that_is_none_of_a_store_is_refused() {
    let check = |url: &str, expect: &str| {
        let refused = Remote::open(url, Patience::default());
        let error = refused.err().expect("it is refused");
        assert!(matches!(error, FleetError::Url { .. }), "{error:?}");
        assert!(error.to_string().contains(expect), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    };
    check("./store", "relative URL");
    check("ftp://host/store", "not a URL of a store");
    check("memory:///", "not a URL of a store");
    check("https://ann:secret@host/store?x=1", "'https://host/store'");
    check("https://host/#part", "query or a fragment");
    check("s3://ann:secret@bucket/store", "a name or a password");
}

#[test]
fn a_store_that_is_gone_or_empty_is_said() {
    let fleet = Fleet::new();
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    let error = fails(&fleet, &mut follower, "/current': there is none");
    assert!(error.help().unwrap().contains("published"), "{error:?}");
    drop(follower);
    // A port that the kernel gives to nobody who asks for any.
    let mut follower = fleet.follower("http://127.0.0.1:1");
    let error = fails(&fleet, &mut follower, "connection refused (ECONNREFUSED)");
    let again = fails(&fleet, &mut follower, "");
    assert_eq!(error.to_string(), again.to_string());
    assert!(matches!(
        error,
        FleetError::Remote {
            cause: Cause::Objects(_),
            ..
        }
    ));
}
