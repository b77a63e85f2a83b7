//! What is here of a release that is served on demand.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gannet_archive::{Superblock, Units};
use gannet_site::offline::{Site, SiteOptions};
use gannet_store::{PARTIAL, PartialRelease, Presence};

use crate::messages::Failure;

/// The units of a release, and which of them are here.
pub(super) struct Part {
    units: Units,
    presence: Presence,
}

/// A site, and what is here of it, unless that is all.
///
/// # Errors
/// It cannot be read, or what is present of it.
pub(super) fn open(options: &SiteOptions) -> Result<(Site, Option<Part>), Failure> {
    let part = Part::of(&options.path)?;
    let site = match part {
        Some(_) => Site::of_part(options)?,
        None => Site::open(options)?,
    };
    Ok((site, part))
}

impl Part {
    fn of(path: &Path) -> Result<Option<Self>, Failure> {
        if !path.as_os_str().as_bytes().ends_with(PARTIAL.as_bytes()) {
            return Ok(None);
        }
        let refuse = |error| Failure::of_system("open", path.display(), &error);
        let PartialRelease {
            file,
            first,
            presence,
        } = PartialRelease::open(path).map_err(refuse)?;
        let len = file.metadata().map_err(refuse)?.len();
        let refused = |error| Failure::new("open", path.display(), error);
        let superblock = Superblock::parse(&first, len).map_err(refused)?;
        let mut read = |at: u64, buffer: &mut [u8]| file.read_exact_at(buffer, at);
        let units = Units::read(&superblock, &mut read).map_err(refuse)?;
        Ok(Some(Self { units, presence }))
    }

    /// Whether a blob is here, in words.
    pub(super) fn place(&self, blob: u32) -> &'static str {
        let units = self.units.in_blob(blob, 0..u64::MAX);
        let (mut here, all) = (0, units.end - units.start);
        for unit in units {
            let look = self.presence.look(unit..unit + 1);
            here += look.map_or(0, |it| it.present());
        }
        match here {
            here if here == all => ", here",
            0 => ", fetched when it is requested",
            _ => ", in part here; the rest is fetched when it is requested",
        }
    }
}
