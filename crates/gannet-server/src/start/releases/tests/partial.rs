//! Releases of which only a part is here, or less.

use std::fs;

use gannet_http::semantics::status::Status;
use gannet_store::{PartialWriter, SparseFile};

use super::sample::{Follows, archive, id, letter_of, seen};
use super::{LATER, PLAIN};

/// Its files are made anew, or all of it comes: what is fetched from then on is there.
#[test]
fn a_partial_release_is_served_from_the_file_that_has_its_name() {
    let it = Follows::store("partial", |publish| publish('a', PLAIN));
    it.make_partial();
    let mut it = it.restarted();
    it.settle();
    assert_eq!(it.settle(), None, "it is the same file");
    assert!(it.follower.archive().partial.is_some());
    it.make_partial();
    assert_eq!(it.settle(), seen('a', ""));
    assert!(it.follower.archive().partial.is_some());
    fs::write(it.release('a'), archive('a')).expect("written");
    assert_eq!(it.settle(), seen('a', ""));
    assert!(it.follower.archive().partial.is_none());
    assert!(it.follower.leaving.is_empty(), "no worker has them");
    assert_eq!(it.facts().releases.len(), 1);
}

#[test]
fn a_partial_release_that_is_not_kept_is_freed() {
    let it = Follows::store("freed", |publish| publish('a', PLAIN));
    it.make_partial();
    let mut it = it.restarted();
    it.settle();
    it.publish('b', PLAIN);
    assert_eq!(it.settle(), seen('b', "a"));
    it.follower.drop_void(&[id('a')]);
    assert_eq!(it.follower.leaving.len(), 1);
    assert_eq!(it.settle(), seen('b', ""));
    assert!(it.follower.leaving.is_empty(), "no worker has it");
}

/// A page for errors that was not here at the start, as after an upgrade, when the process that fetches is still
/// that of the server before.
#[test]
fn a_page_for_errors_that_comes_later_is_used() {
    let it = Follows::store("pages", |publish| publish('a', PLAIN));
    it.make_partial();
    let partial = it.release('a').with_extension("partial");
    let mut it = it.restarted();
    it.settle();
    let has_page = |it: &Follows| {
        let (_, _, rules) = &it.follower.archive().hosts[0];
        let pages = rules.as_ref().and_then(|rules| rules.pages());
        pages.is_some_and(|pages| pages.of(Status::SERVICE_UNAVAILABLE).is_some())
    };
    assert!(!has_page(&it));
    let mut writer = PartialWriter::open(&partial).expect("it is ours");
    let unit = writer.unit(0).expect("it has one");
    let bytes = &archive('a')[unit.offset as usize..][..unit.len as usize];
    writer.write((0, &unit), bytes).expect("there is room");
    writer.data().sync().expect("a sound disk");
    writer.set([0]).expect("there is room");
    assert_eq!(it.settle(), seen('a', ""));
    assert!(has_page(&it));
    assert_eq!(it.settle(), None, "it is here");
}

/// As one that is gone: a server that starts serves the next one before its time rather than nothing.
#[test]
fn an_earlier_release_that_is_cut_short_is_not_begun_with() {
    let mut it = Follows::store("cut", |publish| {
        publish('a', PLAIN);
        publish('b', LATER);
    });
    assert_eq!(it.settle(), seen('a', "b"));
    fs::write(it.release('a'), &archive('a')[..5000]).expect("written");
    let mut it = it.restarted();
    it.settle();
    assert_eq!(letter_of(it.follower.archive()), 'b');
}
