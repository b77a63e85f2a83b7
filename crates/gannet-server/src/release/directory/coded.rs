//! Content that a live directory has only in a coding, decoded for clients that do not accept it.

use std::rc::Rc;

use gannet_archive::{Body, Coding, Stored};
use gannet_io::driver::{Driver, Meta};

use crate::release::ServedFile;
use crate::release::bodies::{Bodies, Load, Unloaded};

/// The coded file from which content is decoded.
pub(crate) struct CodedAlone {
    pub(super) file: Rc<ServedFile>,
    coding: Coding,
    /// Its length in bytes.
    len: u64,
    bodies: Bodies,
    number: u32,
    /// Identifies its version, unless it may still be being written.
    version: Option<Meta>,
}

impl CodedAlone {
    /// `None` if these `bodies` have no number left.
    pub(super) fn new(
        file: Rc<ServedFile>,
        coding: Coding,
        (len, version): (u64, Option<Meta>),
        bodies: &Bodies,
    ) -> Option<Self> {
        Some(Self {
            file,
            coding,
            len,
            number: bodies.number_of(version)?,
            bodies: bodies.clone(),
            version,
        })
    }

    /// The coding of the file.
    pub(super) fn coding(&self) -> Coding {
        self.coding
    }

    /// The content of `len` bytes.
    pub(super) fn body(&self, len: u64) -> Unloaded<'_> {
        Unloaded {
            bodies: &self.bodies,
            file: &self.file,
            number: self.number,
            entry: 0,
            variant: 0,
            stored: Body::Decoded {
                stored: Stored::Blob {
                    offset: 0,
                    len: self.len,
                },
                coding: self.coding,
                len,
            },
            digest: None,
        }
    }

    /// The work that determines the length of the content.
    pub(super) fn load(&self) -> Option<Load> {
        self.body(0).load().map(Load::of_unknown_length)
    }

    /// Length of the content in bytes, if this version was decoded before; `Some(None)` if that
    /// failed.
    pub(super) fn known_len(&self) -> Option<Option<u64>> {
        self.bodies.decoded_len(self.version.as_ref()?)
    }

    /// Records the length of the content for this version.
    pub(super) fn note_len(&self, len: Option<u64>) {
        if let Some(version) = &self.version {
            self.bodies.note_decoded_len(version, len);
        }
    }

    /// Length of the content in bytes, if it is in memory.
    pub(super) fn body_len(&self) -> Option<u64> {
        self.body(0).body().map(|body| body.len())
    }

    /// Whether the file is unchanged since it was opened.
    pub(super) fn is_unchanged<D: Driver>(&self, driver: &D) -> bool {
        self.file.is_unchanged(driver)
    }
}
