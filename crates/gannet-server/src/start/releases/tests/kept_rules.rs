//! The rules of releases that are kept.

use gannet_content::rules::memory::SitesMemory;

use super::sample::{Follows, length, seen};
use super::*;
use crate::bounds::limits::KEPT_RULES_PART;

/// Their rules may not keep those of the next release from being read.
#[test]
fn kept_releases_hold_their_part_of_the_memory_for_rules() {
    let mut it = Follows::store("rules-kept", |publish| publish('a', PLAIN));
    let one = it.follower.archive().rules_memory().taken();
    assert!(one > 0, "it has rules");
    let mut room = ArchiveRoom::new(100 * length());
    room.rules = Arc::new(SitesMemory::new(2 * one * KEPT_RULES_PART));
    it.follower.surroundings.room = Arc::new(room);
    for (letter, others) in [('b', "a"), ('c', "ba"), ('d', "cb"), ('e', "dc")] {
        it.publish(letter, PLAIN);
        assert_eq!(it.settle(), seen(letter, others));
    }
}
