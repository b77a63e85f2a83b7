//! What tests of several modules need.

use gannet_archive::Superblock;
use gannet_store::{Keep, Pointer, ReleaseId};

/// A first pointer, to a release whose file has so many bytes.
pub(crate) fn pointer_to(superblock: &Superblock, size: u64) -> Pointer {
    Pointer {
        serial: 1,
        replaces: None,
        release: ReleaseId::of_build_id(superblock.build_id()),
        size,
        digest: [0; 32],
        published: 0,
        publisher: "ann@build".into(),
        activate: None,
        stages: Vec::new(),
        keep: Keep::default(),
        void: Vec::new(),
        note: String::new(),
        expires: None,
    }
}
