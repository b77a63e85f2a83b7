//! What is here of a release that is served on demand.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gannet_archive::{ReadAt, SUPERBLOCK_LEN, Superblock, Unit, Units};
use gannet_site::offline::{Site, SiteOptions};
use gannet_store::{PARTIAL, PartialRelease, Presence};

use crate::messages::Failure;

/// The units of a release, and which of them are here.
pub(super) struct Part {
    file: File,
    superblock: Superblock,
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
    /// What is here; `None` for another file.
    ///
    /// # Errors
    /// It cannot be read, or what is present of it.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, Failure> {
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
        Ok(Some(Self {
            file,
            superblock,
            units,
            presence,
        }))
    }

    /// The build id of the release.
    pub(super) fn build_id(&self) -> &[u8; 32] {
        self.superblock.build_id()
    }

    /// Its length.
    pub(super) fn bytes(&self) -> u64 {
        self.superblock.archive_len()
    }

    /// Compares all that is here with the digests of the release, and returns how many bytes that are; `None` if that is
    /// all of it. Units may come and go meanwhile.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(super) fn verify(&self, path: &Path) -> Result<Option<u64>, Failure> {
        let damaged = |what: String| {
            Failure::new("verify", path.display(), what).help(
                "stop the server, remove the copy, and start it again: what is requested is fetched anew",
            )
        };
        let verified = |read: ReadAt<'_>| -> io::Result<Result<Option<u64>, String>> {
            if self.superblock.compute_build_id_from(read)? != *self.build_id() {
                return Ok(Err("wrong build id".into()));
            }
            let metadata = self.bytes() - self.superblock.metadata_range().start;
            let (mut here, mut count) = (SUPERBLOCK_LEN as u64 + metadata, 0);
            for number in 0..self.units.count() {
                let look = self.presence.look(number..number + 1)?;
                let Some(unit) = self
                    .units
                    .unit(number, read)?
                    .filter(|_| look.present() > 0)
                else {
                    continue;
                };
                let mut bytes = vec![0; unit.len as usize];
                read(unit.offset, &mut bytes)?;
                let is_sound = self.units.verify(&unit, &bytes, read)?;
                if self.presence.is_still(&look)? {
                    (here, count) = (here + unit.len, count + 1);
                    if !is_sound {
                        let Unit { offset, len, .. } = unit;
                        return Ok(Err(format!("wrong digest at offset {offset}, {len} bytes")));
                    }
                }
            }
            Ok(Ok((count < self.units.count()).then_some(here)))
        };
        let verified = verified(&mut |at, buffer| self.file.read_exact_at(buffer, at));
        let refuse = |error| Failure::of_system("read", path.display(), &error);
        verified.map_err(refuse)?.map_err(damaged)
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
