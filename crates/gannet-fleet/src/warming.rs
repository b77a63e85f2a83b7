//! What to fetch of a release before it is requested: what was used most of the one before.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use gannet_archive::{Listing, SectionKind, Superblock, Units};
use gannet_store::SparseFile;

use crate::limits::WARMED_MAX;

/// A partial release, for reading its metadata on another thread.
pub(crate) struct Glimpse {
    pub(crate) superblock: Superblock,
    pub(crate) units: Units,
    pub(crate) data: Arc<File>,
}

impl Glimpse {
    fn read(&self) -> impl FnMut(u64, &mut [u8]) -> io::Result<()> + use<'_> {
        |at, buffer| self.data.read_at(buffer, at)
    }

    fn hosts(&self) -> Option<u64> {
        let mut sections = self.superblock.sections().iter();
        let hosts = sections.find(|it| it.kind == SectionKind::Hosts);
        hosts.map(|it| it.checksum)
    }
}

/// Blobs by number, and how often those before were used.
pub(crate) type Warm = Vec<(u32, u8)>;

/// The blobs of a release that have the paths and the codings of those used most of the one `before`, whose
/// units were `used` so often; with these numbers, the highest first, at most [`WARMED_MAX`].
///
/// # Errors
/// The metadata of one of them cannot be read.
pub(crate) fn most_used((before, used): (&Glimpse, &[u8]), next: &Glimpse) -> io::Result<Warm> {
    let listing = Listing::of(&before.superblock);
    let mut read = before.read();
    let mut most: BinaryHeap<Reverse<(u8, u64, u8)>> = BinaryHeap::new();
    for number in 0..listing.count() {
        let Some(listed) = listing.entry(number, &mut read)? else {
            continue;
        };
        for (coding, blob) in listing.blobs(&listed, &mut read)? {
            let unit = before.units.in_blob(blob, 0..1).start as usize;
            match used.get(unit).filter(|_| before.units.has(blob)) {
                Some(used) if *used > 0 => most.push(Reverse((*used, number, coding))),
                _ => continue,
            }
            if most.len() > WARMED_MAX {
                most.pop();
            }
        }
    }
    let others = Listing::of(&next.superblock);
    let has_same_hosts = before.hosts() == next.hosts();
    let mut read_next = next.read();
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for Reverse((used, number, coding)) in most.into_sorted_vec() {
        let Some(listed) = listing.entry(number, &mut read)? else {
            continue;
        };
        let path = listing.path(&listed, &mut read)?;
        let host = listed.host();
        let other = match host == 0 || has_same_hosts {
            true => others.find(host, &path, &mut read_next)?,
            false => None,
        };
        let Some(other) = other else {
            continue;
        };
        let blobs = others.blobs(&other, &mut read_next)?;
        let blob = blobs.iter().find(|(it, _)| *it == coding);
        found.extend(
            blob.filter(|(_, blob)| seen.insert(*blob))
                .map(|(_, it)| (*it, used)),
        );
    }
    Ok(found)
}
