//! Releases of which only a part is here.

use std::fs;

use super::PLAIN;
use super::sample::{Follows, archive, id, seen};

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
