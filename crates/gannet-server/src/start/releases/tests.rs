//! A follower whose workers take what they are sent when the test says so, and whose clock is the
//! test's.

mod kept_rules;
mod partial;
mod sample;

use std::fs;
use std::time::Instant;

use gannet_store::{Keep, Stage};

use self::sample::{Change, Follows, NOW, archive, id, length, pass, printed, seen};
use super::origin::InStore;
use super::*;
use crate::bounds::limits::{KEPT_COPIES_BYTES_MAX, LATE_S, UNLINKED_BYTES_MAX};
use crate::observe::board::ReleaseState::{Current, Kept, Staged};

const DAY: u64 = 86_400;

/// A plain pointer.
const PLAIN: &Change = &|_| ();

/// It is activated half a minute later.
const LATER: &Change = &|next| next.activate = Some(NOW + 30);

fn store_of(it: &mut Follows) -> &mut InStore {
    match &mut it.follower.source.origin {
        Origin::Store(store) => store,
        Origin::Path(_) => panic!("a store is followed"),
    }
}

#[test]
fn no_worker_has_a_release_before_all_answer_for_its_assets() {
    let mut it = Follows::path("barrier", 2);
    it.settle();
    it.replace('b');
    it.look();
    assert_eq!(it.workers[0].take(), None, "it may be half written");
    it.look();
    for _ in 0..3 {
        it.look();
    }
    assert_eq!(it.workers[0].take(), seen('a', "b"));
    it.look();
    assert_eq!(it.workers[0].take(), None, "the other one is busy");
    assert_eq!(it.facts().releases[1].state, Staged);
    assert_eq!(printed(), [""; 0]);
    assert_eq!(it.workers[1].take(), seen('a', "b"));
    it.look();
    assert_eq!(it.workers[1].take(), seen('b', "a"));
    assert_eq!(it.workers[0].take(), seen('b', "a"));
    let facts = it.facts();
    let states: Vec<_> = facts.releases.iter().map(|it| it.state).collect();
    assert_eq!(states, [Current, Kept]);
    assert_eq!(facts.activated, NOW);
    assert_eq!(printed().len(), 1);
}

#[test]
fn nobody_waits_for_a_worker_that_has_ended() {
    let mut it = Follows::path("ended", 2);
    it.settle();
    it.workers.pop();
    it.replace('b');
    it.look();
    it.look();
    assert_eq!(it.workers[0].take(), seen('a', "b"));
    it.workers.pop();
    it.look();
    assert!(it.follower.staged.is_none());
    assert_eq!(it.facts().releases[0].id, it.follower.archive().short_id());
}

/// Another server may have activated a release that this one has only staged.
#[test]
fn a_staged_release_that_is_superseded_is_kept() {
    let mut it = Follows::store("superseded", |publish| publish('a', PLAIN));
    assert_eq!(it.settle(), seen('a', ""));
    it.publish('b', LATER);
    assert_eq!(it.settle(), seen('a', "b"));
    pass(10);
    it.publish('c', &|next| next.activate = Some(NOW + 40));
    assert_eq!(it.settle(), seen('a', "cb"));
    pass(29);
    assert_eq!(it.settle(), None, "a second too early");
    pass(1);
    assert_eq!(it.settle(), seen('c', "ab"), "what was current comes first");
    // The same for a return to what is current.
    it.publish('d', &|next| next.activate = Some(NOW + 90));
    assert_eq!(it.settle(), seen('c', "dab"));
    it.publish('c', PLAIN);
    assert_eq!(it.settle(), seen('c', "adb"));
    pass(60);
    assert_eq!(it.settle(), None);
    // And for what is kept.
    it.publish('a', PLAIN);
    assert_eq!(it.settle(), seen('a', "cdb"));
    assert_eq!(it.facts().serial, Some(6));
    // They are bounded, and leave room for what was current.
    for letter in 'e'..='z' {
        it.publish(letter, &|next| next.activate = Some(NOW + 200));
        it.settle();
    }
    let most = Keep::default().most as usize;
    assert_eq!(it.follower.kept.0.len(), most);
    assert!(it.follower.kept.0[0].was_current);
    pass(200);
    let (current, others) = it.settle().expect("it is due");
    assert_eq!((current, &others[..2]), ('z', "ac"));
    assert_eq!(others.len(), most);
}

#[test]
fn a_server_activates_at_its_own_stage() {
    let mut it = Follows::store("stages", |publish| publish('a', PLAIN));
    it.settle();
    it.publish('b', &|next| {
        let stage = |percent, after_s| Stage { percent, after_s };
        next.stages = vec![stage(1, 0), stage(100, 600)];
    });
    assert_eq!(it.settle(), seen('a', "b"));
    pass(599);
    assert_eq!(it.settle(), None);
    pass(1);
    assert_eq!(it.settle(), seen('b', "a"));
}

/// A publisher that ended between the log and the pointer put nothing into force.
#[test]
fn a_server_that_starts_takes_up_nothing_that_was_never_in_force() {
    let mut it = Follows::store("unfinished", |publish| {
        publish('a', PLAIN);
        let folder = format!("gannet-releases-unfinished-{}", std::process::id());
        let current = std::env::temp_dir().join(folder).join("store/current");
        let pointer = fs::read(&current).expect("published");
        publish('x', PLAIN);
        fs::write(current, pointer).expect("written");
        publish('b', LATER);
    });
    assert_eq!(it.settle(), seen('a', "b"));
    pass(30);
    assert_eq!(it.settle(), seen('b', "a"));
}

/// What was superseded before its moment was never served, and is not after a restart either.
#[test]
fn a_server_that_starts_takes_up_nothing_that_was_superseded_before_its_moment() {
    let mut it = Follows::store("restart", |publish| publish('a', PLAIN));
    it.settle();
    it.publish('b', LATER);
    assert_eq!(it.settle(), seen('a', "b"));
    pass(29);
    it.publish('c', &|next| next.activate = Some(NOW + 60));
    pass(2);
    assert_eq!(it.settle(), seen('a', "cb"));
    let mut new = it.restarted();
    assert_eq!(new.settle(), seen('a', "c"));
    pass(29);
    assert_eq!(new.settle(), seen('c', "ab"));
    // One whose moment came first was served.
    new.publish('d', &|next| next.activate = Some(NOW + 61));
    pass(1);
    new.publish('e', &|next| next.activate = Some(NOW + 90));
    assert_eq!(new.restarted().settle(), seen('d', "ecab"));
}

/// A void release answers nothing, whatever becomes of the release that the pointer names.
#[test]
fn void_releases_answer_nothing() {
    let mut it = Follows::store("void", |publish| publish('a', PLAIN));
    it.settle();
    it.publish('b', PLAIN);
    assert_eq!(it.settle(), seen('b', "a"));
    // The current one is void: it goes when the next one is current.
    it.publish('a', &|next| next.void = vec![id('b')]);
    assert_eq!(it.settle(), seen('a', ""));
    it.publish('c', &|next| next.void = vec![id('b')]);
    assert_eq!(it.settle(), seen('c', "a"));
    // A staged one.
    it.publish('d', &|next| {
        next.void = vec![id('b')];
        next.activate = Some(NOW + 30);
    });
    assert_eq!(it.settle(), seen('c', "da"));
    it.publish('e', &|next| {
        next.void = vec![id('d'), id('b')];
        next.activate = Some(NOW + 60);
    });
    assert_eq!(it.settle(), seen('c', "ea"));
    // A kept one, although the release itself cannot be staged.
    it.publish('f', &|next| next.void = vec![id('a'), id('d'), id('b')]);
    fs::remove_file(it.release('f')).expect("it was published");
    assert_eq!(it.settle(), seen('c', "e"));
    pass(LATE_S);
    assert!(!it.is_ready());
    it.publish('b', &|next| next.void = vec![id('c'), id('a'), id('d')]);
    assert_eq!(it.settle(), seen('b', "e"));
    assert!(it.is_ready());
    assert!(it.follower.leaving.is_empty());
    it.assert_copies(1);
}

/// A server that starts before a pointer is due starts with the one before, and does not keep what
/// the pointer in force calls void.
#[test]
fn a_server_that_starts_keeps_no_void_release() {
    let mut it = Follows::store("start", |publish| {
        publish('a', PLAIN);
        publish('b', PLAIN);
        publish('c', PLAIN);
        publish('d', &|next| {
            next.void = vec![id('b')];
            next.activate = Some(NOW + 30);
        });
    });
    assert_eq!(it.settle(), seen('c', "da"));
    pass(30);
    assert_eq!(it.settle(), seen('d', "ca"));
}

#[test]
fn pointers_that_cannot_be_used_are_refused_and_said_once() {
    let mut it = Follows::store("refused", |publish| publish('a', PLAIN));
    let first = fs::read(it.pointer()).expect("a pointer");
    it.settle();
    it.publish('b', PLAIN);
    let second = fs::read(it.pointer()).expect("a pointer");
    assert_eq!(it.settle(), seen('b', "a"));
    it.publish('c', LATER);
    let third = fs::read(it.pointer()).expect("a pointer");
    assert_eq!(it.settle(), seen('b', "ca"));
    printed();
    let refused = |it: &mut Follows, pointer: &[u8], reason: &str| {
        let before = it.facts().refused.get(reason).copied();
        fs::write(it.pointer(), pointer).expect("written");
        assert_eq!(it.settle(), None);
        it.ask();
        it.ask();
        assert_eq!(it.workers[0].take(), None);
        let all = printed();
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].contains(": refused the new release: "), "{all:?}");
        let count = it.facts().refused[reason];
        assert_eq!(count, before.unwrap_or(0) + 3, "each time, in the metrics");
    };
    // Replayed while a newer one is staged.
    refused(&mut it, &second, "older");
    refused(&mut it, &first, "older");
    fs::write(it.pointer(), &third).expect("written");
    pass(30);
    assert_eq!(it.settle(), seen('c', "ba"));
    printed();
    refused(&mut it, &second, "older");
    refused(&mut it, &third[..third.len() - 9], "malformed");
    fs::write(it.pointer(), &third).expect("written");
    assert_eq!(it.settle(), None);
    it.publish('d', &|next| next.expires = Some(NOW + 30));
    let fourth = fs::read(it.pointer()).expect("a pointer");
    refused(&mut it, &fourth, "expired");
    assert!(it.is_ready());
    let store = store_of(&mut it);
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let folder = store.store.folder().to_owned();
    store.store = gannet_store::Store::open(&folder, Some(key)).expect("a store");
    refused(&mut it, &fourth, "signature");
    assert_eq!(it.facts().serial, Some(3));
}

#[test]
fn a_release_that_cannot_be_staged_is_tried_again_and_late_once_it_is_due() {
    let mut it = Follows::store("late", |publish| publish('a', PLAIN));
    it.settle();
    it.publish('b', LATER);
    let whole = fs::read(it.release('b')).expect("it was published");
    let mut damaged = whole.clone();
    damaged[5000] ^= 1;
    fs::write(it.release('b'), damaged).expect("written");
    assert_eq!(it.settle(), None);
    assert_eq!(printed().len(), 1);
    assert!(it.is_ready(), "there is time");
    let try_again = |it: &mut Follows| {
        let at = store_of(it).again_at.replace(Instant::now());
        assert!(at.is_some(), "it will be tried again");
        it.settle()
    };
    fs::write(it.release('b'), &whole[1..]).expect("written");
    assert_eq!(try_again(&mut it), None);
    assert_eq!(printed().len(), 0, "it still is not what was published");
    fs::write(it.release('b'), archive('c')).expect("written");
    assert_eq!(try_again(&mut it), None);
    assert_eq!(it.facts().refused.values().sum::<u64>(), 3);
    pass(29);
    it.look();
    assert!(it.is_ready());
    pass(1 + LATE_S);
    assert!(
        !it.is_ready(),
        "it should be current, whether anybody looks or not"
    );
    assert_eq!(try_again(&mut it), None);
    assert!(!it.is_ready(), "another attempt gives it no more time");
    fs::write(it.release('b'), &whole).expect("written");
    assert_eq!(try_again(&mut it), seen('b', "a"));
    assert!(it.is_ready());
    assert_eq!(it.facts().checked, NOW + 30 + LATE_S);
    it.assert_copies(1);
}

/// As when the copy of a store is incomplete: the log says what was published.
#[test]
fn a_kept_release_that_is_damaged_is_left_out() {
    let mut it = Follows::store("damaged", |publish| {
        publish('a', PLAIN);
        publish('b', PLAIN);
        publish('c', PLAIN);
    });
    fs::write(it.release('b'), archive('x')).expect("written");
    assert_eq!(it.settle(), seen('c', "a"));
    let said = printed();
    assert!(said.iter().any(|it| it.contains("cannot keep")), "{said:?}");
    it.assert_copies(1);
}

#[test]
fn the_archive_at_a_path_is_followed() {
    let mut it = Follows::path("path", 1);
    assert_eq!(it.settle(), seen('a', ""));
    it.replace('b');
    it.ask();
    assert_eq!(it.workers[0].take(), seen('a', "b"), "at once, on request");
    assert_eq!(it.settle(), seen('b', "a"));
    printed();
    // The same again makes no difference.
    it.replace('b');
    assert_eq!(it.settle(), None);
    it.assert_copies(1);
    // Cut short: what is in memory goes on.
    let file = fs::File::options().write(true).open(it.site());
    file.and_then(|file| file.set_len(6000)).expect("cut");
    assert_eq!(it.settle(), None);
    assert_eq!(it.facts().refused["malformed"], 1);
    fs::write(it.site(), "").expect("written");
    assert_eq!(it.settle(), None);
    assert_eq!(printed().len(), 2, "each is another fault");
    // Removed, and back.
    fs::remove_file(it.site()).expect("it was there");
    assert_eq!(it.settle(), None);
    let said = printed();
    assert!(said.len() == 1 && said[0].contains("nothing is there"));
    it.replace('b');
    assert_eq!(it.settle(), None);
    it.replace('a');
    assert_eq!(it.settle(), seen('a', "b"));
    assert!(it.follower.leaving.is_empty());
    it.assert_copies(1);
}

/// A kept release whose file is gone needs its copy.
#[test]
fn what_is_overwritten_in_place_is_kept_in_memory() {
    let mut it = Follows::path("overwritten", 1);
    it.settle();
    for _ in 0..10 {
        fs::write(it.site(), archive('b')).expect("written");
        assert_eq!(it.settle(), seen('b', "a"));
        fs::write(it.site(), archive('a')).expect("written");
        assert_eq!(it.settle(), seen('a', "b"));
    }
    assert!(it.follower.kept.0[0].archive.is_copied);
    assert!(it.follower.leaving.is_empty());
    it.assert_copies(2);
}

#[test]
fn without_copies_the_same_build_is_served_from_its_new_file() {
    let mut it = Follows::file("file");
    it.settle();
    it.replace('a');
    assert_eq!(it.settle(), seen('a', ""));
    it.replace('b');
    assert_eq!(it.settle(), seen('b', "a"));
    it.replace('b');
    assert_eq!(it.settle(), seen('b', "a"));
    assert!(it.follower.leaving.is_empty());
}

/// While a worker is busy, the path gets a third release, and one that is current or was.
#[test]
fn what_is_superseded_at_its_path_is_kept() {
    let mut it = Follows::path("superseded-path", 1);
    it.settle();
    it.replace('b');
    it.ask();
    it.replace('c');
    it.ask();
    assert_eq!(it.workers[0].take(), seen('a', "cb"));
    it.look();
    assert_eq!(it.workers[0].take(), seen('c', "ab"));
    it.replace('d');
    it.ask();
    it.replace('c');
    it.ask();
    assert_eq!(it.workers[0].take(), seen('c', "adb"));
    assert_eq!(it.settle(), None, "the path has what is current");
    it.replace('a');
    it.ask();
    it.replace('e');
    it.ask();
    assert_eq!(it.workers[0].take(), seen('c', "eadb"), "pages refer to it");
    assert_eq!(it.settle(), seen('e', "cadb"));
    assert!(it.follower.leaving.is_empty());
    it.assert_copies(1);
}

#[test]
fn as_many_are_kept_as_a_path_keeps() {
    let mut it = Follows::path("bounds", 1);
    for letter in 'b'..='z' {
        it.replace(letter);
        it.settle();
    }
    let kept = |it: &Follows| it.follower.kept.0.len();
    assert_eq!(kept(&it), Keep::default().most as usize);
    pass(7 * DAY - 1);
    assert_eq!(it.settle(), None);
    pass(1);
    assert_eq!(it.settle(), seen('z', "yxw"), "three of any age");
    // As if each were this long.
    for kept in &mut it.follower.kept.0 {
        let long = kept.archive.for_preview();
        let len = UNLINKED_BYTES_MAX / 2;
        kept.archive = Arc::new(OpenedArchive { len, ..long });
    }
    assert_eq!(it.settle(), seen('z', "yx"));
    assert!(it.follower.leaving.is_empty());
    assert_eq!(it.facts().releases.len(), 3);
}

#[test]
fn a_store_keeps_what_its_pointer_says() {
    let mut it = Follows::store("keeps", |publish| publish('a', PLAIN));
    it.settle();
    for letter in ['b', 'c', 'd'] {
        it.publish(letter, PLAIN);
        pass(DAY);
        it.settle();
    }
    it.publish('e', &|next| {
        next.keep = Keep::parse("2d 1..2").expect("sound")
    });
    pass(1);
    assert_eq!(it.settle(), seen('e', "dc"));
    it.publish('f', &|next| {
        next.keep = Keep::parse("0s 0..0").expect("sound")
    });
    pass(1);
    assert_eq!(it.settle(), seen('f', ""));
    assert!(it.follower.leaving.is_empty());
    it.assert_copies(1);
}

#[test]
fn a_thousand_swaps_of_two_releases_cost_no_more_than_two() {
    let mut it = Follows::path("thousand", 2);
    it.settle();
    for letter in ['b', 'a'].into_iter().cycle().take(1_000) {
        it.replace(letter);
        for look in 0..3 {
            it.follower.look(look == 0);
            for worker in &mut it.workers {
                worker.take();
            }
        }
        let sent = (it.follower.kept.0.len(), it.follower.leaving.len());
        assert_eq!(sent, (1, 0));
        it.assert_copies(1);
    }
    assert!(!it.follower.kept.0[0].archive.is_copied);
    assert_eq!(printed().len(), 1_000);
    assert_eq!(length(), it.follower.archive().len);
}

/// As when a store is copied without its log, or before it.
#[test]
fn what_was_current_is_kept_without_a_log() {
    let mut it = Follows::store("no-log", |publish| publish('a', PLAIN));
    it.settle();
    it.publish('b', PLAIN);
    assert_eq!(it.settle(), seen('b', "a"));
    let log = it.pointer().with_file_name("log");
    let away = it.pointer().with_file_name(".log");
    it.publish('c', PLAIN);
    fs::rename(&log, &away).expect("it was there");
    assert_eq!(it.settle(), seen('c', "ba"));
    pass(7 * DAY);
    assert_eq!(it.settle(), None, "three of any age");
    // A server that starts knows them once the log is there.
    let mut new = it.restarted();
    assert_eq!(new.settle(), seen('c', ""));
    fs::rename(&away, &log).expect("it was there");
    assert_eq!(new.settle(), seen('c', "ba"));
    new.assert_copies(1);
}

/// A file that cannot be read at this moment is no damaged file.
#[test]
fn what_time_may_mend_is_tried_again() {
    let mut it = Follows::store("transient", |publish| publish('a', PLAIN));
    it.settle();
    it.publish('b', PLAIN);
    let file = it.release('b');
    // Neither the length nor a time of the folder's entry shows that it can be read.
    let whole = fs::read(&file).expect("it was published");
    fs::remove_file(&file).expect("it was there");
    fs::create_dir(&file).expect("made");
    assert_eq!(it.settle(), None);
    assert_eq!(it.follower.bad, None, "the file was not read");
    assert_eq!(it.facts().refused["unreadable"], 1);
    pass(LATE_S);
    assert!(!it.is_ready());
    fs::remove_dir(&file).expect("made");
    fs::write(&file, &whole).expect("written");
    store_of(&mut it).again_at = Some(Instant::now());
    assert_eq!(it.settle(), seen('b', "a"));
    assert!(it.is_ready());
    // One that is damaged is read again on request.
    it.publish('c', PLAIN);
    let file = it.release('c');
    let mut damaged = fs::read(&file).expect("it was published");
    damaged[5000] ^= 1;
    fs::write(&file, &damaged).expect("written");
    it.settle();
    assert!(it.follower.bad.is_some());
    let refused = it.facts().refused["damaged"];
    store_of(&mut it).again_at = Some(Instant::now());
    it.look();
    assert_eq!(
        it.facts().refused["damaged"],
        refused,
        "it is the same file"
    );
    it.ask();
    assert_eq!(it.facts().refused["damaged"], refused + 1);
}

#[test]
fn the_path_is_read_again_if_time_may_mend_it() {
    let mut it = Follows::path("transient-path", 1);
    it.settle();
    fs::remove_file(it.site()).expect("it was there");
    fs::create_dir(it.site()).expect("made");
    assert_eq!(it.settle(), None);
    assert_eq!(it.facts().refused["unreadable"], 1);
    let again = |it: &mut Follows| match &mut it.follower.source.origin {
        Origin::Path(at) => at.again_at(Instant::now()),
        Origin::Store(_) => panic!("a path is followed"),
    };
    again(&mut it);
    assert_eq!(it.settle(), None);
    assert_eq!(it.facts().refused["unreadable"], 2);
    it.ask();
    assert_eq!(it.facts().refused["unreadable"], 3);
    fs::remove_dir(it.site()).expect("made");
    it.replace('b');
    assert_eq!(it.settle(), seen('b', "a"));
}

/// Metrics show how long nothing has been known of the store.
#[test]
fn a_store_that_cannot_be_read_was_not_checked() {
    let mut it = Follows::store("unreadable", |publish| publish('a', PLAIN));
    it.settle();
    fs::remove_file(it.pointer()).expect("it was there");
    fs::create_dir(it.pointer()).expect("made");
    for _ in 0..3 {
        pass(10);
        it.look();
    }
    assert_eq!(it.facts().checked, NOW);
    fs::remove_dir(it.pointer()).expect("made");
    pass(10);
    it.look();
    assert_eq!(it.facts().checked, NOW);
    it.publish('b', PLAIN);
    assert_eq!(it.settle(), seen('b', "a"));
    it.look();
    assert_eq!(it.facts().checked, NOW + 40);
}

/// Releases that are sent from memory alone stay there while they are kept.
#[test]
fn copies_that_are_kept_are_bounded() {
    let mut it = Follows::store("copies", |publish| publish('a', PLAIN));
    let mut options = ContentOptions::clone(&it.follower.surroundings.options);
    options.require_signature = Some(String::new());
    it.follower.surroundings.options = Arc::new(options);
    it.settle();
    for letter in ['b', 'c', 'd'] {
        it.publish(letter, PLAIN);
        it.settle();
    }
    // As if each were this long; the first was opened without being asked for copies.
    for kept in &mut it.follower.kept.0 {
        let long = kept.archive.for_preview();
        assert!(long.is_copied);
        let len = KEPT_COPIES_BYTES_MAX / 2;
        kept.archive = Arc::new(OpenedArchive { len, ..long });
    }
    assert_eq!(it.settle(), None, "the first has room in the budget");
    it.lengthen_second();
    it.publish('e', PLAIN);
    assert_eq!(it.settle(), seen('e', "dca"));
    it.assert_copies(1);
}

/// Who aborts an activation looks at the metrics.
#[test]
fn the_board_has_what_is_served() {
    let mut it = Follows::store("board", |publish| publish('a', PLAIN));
    let states = |it: &Follows| {
        let facts = it.facts();
        let states = facts.releases.iter().map(|it| it.state);
        (facts.serial, states.collect::<Vec<_>>())
    };
    it.settle();
    it.publish('b', LATER);
    it.settle();
    let staged = [Current, Staged];
    assert_eq!(states(&it), (Some(1), staged.to_vec()));
    printed();
    it.publish('b', &|next| next.activate = Some(NOW + 60));
    it.settle();
    let said = printed();
    assert!(said.len() == 1 && said[0].contains(" in 60 s"), "{said:?}");
    it.publish('a', PLAIN);
    it.settle();
    let kept = [Current, Kept];
    assert_eq!(states(&it), (Some(4), kept.to_vec()));
    it.publish('c', LATER);
    it.settle();
    it.publish('d', LATER);
    fs::write(it.release('d'), "damaged").expect("written");
    it.settle();
    let kept = [Current, Kept, Kept];
    assert_eq!(states(&it), (Some(4), kept.to_vec()));
}

/// The file was right, and the pointer was not.
#[test]
fn a_pointer_that_was_mended_is_taken_up() {
    let mut it = Follows::store("mended", |publish| publish('a', PLAIN));
    it.settle();
    it.publish('b', PLAIN);
    let text = fs::read(it.pointer()).expect("published");
    let mut pointer = Pointer::parse(&text).expect("a pointer");
    pointer.digest = [0; 32];
    fs::write(it.pointer(), pointer.to_text()).expect("written");
    assert_eq!(it.settle(), None);
    assert_eq!(it.facts().refused["damaged"], 1);
    it.publish('b', PLAIN);
    assert_eq!(it.settle(), seen('b', "a"));
}

/// The log names a release that the bounds leave no room for beside those that were served here.
#[test]
fn what_there_is_no_room_for_is_opened_once() {
    let mut it = Follows::store("no-room", |publish| publish('a', PLAIN));
    it.settle();
    for letter in ['b', 'c', 'd'] {
        it.publish(letter, &|next| {
            next.keep = Keep::parse("7d 1..2").expect("sound")
        });
        it.settle();
    }
    for serial in ["2", "3"] {
        let entry = it.pointer().with_file_name("log").join(serial);
        fs::write(entry, "torn").expect("written");
    }
    it.publish('e', &|next| {
        next.keep = Keep::parse("7d 1..2").expect("sound")
    });
    assert_eq!(it.settle(), seen('e', "dc"));
    assert!(it.follower.unkept.contains_key(&id('a')));
    assert_eq!(it.settle(), None);
    assert!(it.follower.leaving.is_empty());
}

/// They would be read whole to be dropped.
#[test]
fn copies_beyond_the_bound_are_not_made() {
    let mut it = Follows::store("copies-kept", |publish| {
        publish('a', PLAIN);
        publish('b', PLAIN);
        publish('c', PLAIN);
    });
    let mut options = ContentOptions::clone(&it.follower.surroundings.options);
    options.require_signature = Some(String::new());
    it.follower.surroundings.options = Arc::new(options);
    it.lengthen_second();
    assert_eq!(it.settle(), seen('c', "a"));
    let size_is_wrong = it.follower.unkept.contains_key(&id('b'));
    assert!(size_is_wrong, "it is within the bound, and was read");
    it.publish('d', PLAIN);
    assert_eq!(it.settle(), seen('d', "ca"));
    assert!(it.follower.unkept.is_empty(), "it was not read");
}

/// At the start, only the metadata are looked at.
#[test]
fn a_damaged_release_that_is_served_is_not_healthy() {
    let mut it = Follows::store("unproven", |publish| publish('a', PLAIN));
    let whole = fs::read(it.release('a')).expect("published");
    it.settle();
    assert!(matches!(it.follower.file, CurrentFile::Proven(_)));
    let mut damaged = whole.clone();
    damaged[5000] ^= 1;
    fs::write(it.release('a'), &damaged).expect("written");
    assert_eq!(it.settle(), None, "it is in memory");
    assert!(it.is_ready());
    let mut it = it.restarted();
    assert_eq!(it.settle(), seen('a', ""));
    let said = printed();
    assert!(
        said.len() == 1 && said[0].contains("not as it was published"),
        "{said:?}"
    );
    assert_eq!(it.facts().refused["damaged"], 1);
    pass(LATE_S);
    assert!(!it.is_ready());
    it.settle();
    assert_eq!(printed(), [""; 0], "once");
    assert!(!it.is_ready());
    fs::write(it.release('a'), &whole).expect("written");
    assert_eq!(it.settle(), seen('a', ""));
    assert!(it.is_ready());
    assert!(it.follower.leaving.is_empty());
    it.assert_copies(1);
    // Another release makes good, too.
    fs::write(it.release('a'), &damaged).expect("written");
    let mut it = it.restarted();
    it.settle();
    it.publish('b', PLAIN);
    let (current, _) = it.settle().expect("another one");
    assert_eq!(current, 'b');
    pass(LATE_S);
    assert!(it.is_ready());
}

#[test]
fn what_expires_while_it_is_served_is_said_once() {
    let mut it = Follows::store("expires", |publish| {
        publish('a', &|next| next.expires = Some(NOW + 30));
    });
    it.settle();
    pass(30);
    printed();
    it.settle();
    assert_eq!(it.settle(), None);
    let said = printed();
    assert!(
        said.len() == 1 && said[0].contains("has expired"),
        "{said:?}"
    );
    assert_eq!(it.facts().refused["expired"], 1);
    assert!(it.is_ready(), "nothing better is there");
}

/// A server that runs would serve the one before on.
#[test]
fn a_server_that_starts_serves_what_is_whole() {
    let mut it = Follows::store("whole", |publish| {
        publish('a', PLAIN);
        publish('b', PLAIN);
        publish('c', PLAIN);
    });
    assert_eq!(it.settle(), seen('c', "ba"));
    let whole = fs::read(it.release('c')).expect("published");
    let mut damaged = fs::read(it.release('b')).expect("published");
    damaged[5000] ^= 1;
    fs::write(it.release('b'), damaged).expect("written");
    for bad in [&whole[..whole.len() - 1], &archive('x')] {
        fs::write(it.release('c'), bad).expect("written");
        it = it.restarted();
        assert_eq!(it.settle(), seen('a', ""));
        assert_eq!(it.facts().serial, Some(1));
        pass(LATE_S);
        assert!(!it.is_ready());
    }
    fs::remove_file(it.release('c')).expect("it was there");
    it = it.restarted();
    assert_eq!(it.settle(), seen('a', ""));
    fs::write(it.release('c'), &whole).expect("written");
    it.ask();
    let (current, others) = it.settle().expect("it is there again");
    assert_eq!((current, &*others), ('c', "a"));
    assert!(it.is_ready());
}
