//! The sites of a measurement and their archives: generated when a cell needs them, and kept for
//! other cells with the same site as long as they are small.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;

use super::{
    content::{self, Site},
    peers::{self, Found},
    scenario::{ContentSpec, Filling},
};

/// Maximum size of kept content, in bytes: enough for the sites of most scenarios.
pub(crate) const KEPT: u64 = 512 << 20;

/// A site and its archive.
pub(crate) struct Made {
    spec: ContentSpec,
    /// The files.
    pub(crate) site: Site,
    /// The archive, or why there is none; `None` if it has not been requested yet.
    archive: Option<Result<PathBuf, String>>,
}

impl Made {
    /// The archive, if [`Sites::get`] was called with a packer.
    pub(crate) fn archive(&self) -> Result<&Path, &str> {
        match &self.archive {
            Some(Ok(path)) => Ok(path),
            Some(Err(reason)) => Err(reason),
            None => Err("none has been requested"),
        }
    }
}

/// The existing sites.
pub(crate) struct Sites {
    directory: PathBuf,
    quick: bool,
    /// As [`KEPT`], in bytes.
    kept: u64,
    /// How long what was written may take to settle.
    settles: fn(&ContentSpec, bool) -> Duration,
    made: Vec<Made>,
    count: usize,
}

impl Sites {
    /// An empty collection; sites are created in `directory`.
    pub(crate) fn new(directory: &Path, quick: bool) -> Self {
        Self {
            directory: directory.to_owned(),
            quick,
            kept: KEPT,
            settles: content::settles,
            made: Vec::new(),
            count: 0,
        }
    }

    /// Whether the site of `spec` exists, with its archive if `packed`.
    pub(crate) fn has(&self, spec: &ContentSpec, packed: bool) -> bool {
        let mut made = self.made.iter();
        made.any(|made| made.spec == *spec && (made.archive.is_some() || !packed))
    }

    /// The site of `spec`, and its archive if there is a `packer`.
    ///
    /// # Errors
    ///
    /// The files cannot be written. Failure to pack them is reported by [`Made::archive`].
    pub(crate) fn get(&mut self, spec: &ContentSpec, packer: Option<&Found>) -> Result<&Made> {
        let index = match self.made.iter().position(|made| made.spec == *spec) {
            Some(index) => index,
            None => self.make(spec)?,
        };
        let made = &mut self.made[index];
        if let Some(packer) = packer
            && made.archive.is_none()
        {
            let path = made.site.root.with_extension("gannet");
            // No level compresses random bytes, and the best ones take many times as long.
            let is_fast = self.quick || spec.filling == Filling::Random;
            made.archive = Some(match spec.sparse {
                true => Err("files of holes are not packed".into()),
                false => match packer.pack(&made.site, &path, is_fast) {
                    Ok(()) => Ok(path),
                    Err(e) => Err(format!("the site could not be packed: {e:#}")),
                },
            });
        }
        Ok(made)
    }

    fn make(&mut self, spec: &ContentSpec) -> Result<usize> {
        let size = |spec| content::size_of(spec, self.quick);
        let kept: u64 = self.made.iter().map(|made| size(&made.spec)).sum();
        if kept + size(spec) > self.kept {
            self.clear()?;
        }
        let root = self.directory.join(format!("site-{}", self.count));
        self.count += 1;
        let site = content::create(spec, &root, self.quick)?;
        std::thread::sleep((self.settles)(spec, self.quick));
        self.made.push(Made {
            spec: spec.clone(),
            site,
            archive: None,
        });
        Ok(self.made.len() - 1)
    }

    fn clear(&mut self) -> Result<()> {
        for made in self.made.drain(..) {
            let packed = peers::kawipiko_archive_of(&made.site.root);
            if packed.exists() {
                fs::remove_file(packed)?;
            }
            fs::remove_dir_all(made.site.root)?;
            if let Some(Ok(archive)) = made.archive {
                fs::remove_file(archive)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::scenario::Sizes;

    fn spec(size: u64, sparse: bool) -> ContentSpec {
        ContentSpec {
            files: 1,
            extension: "bin".into(),
            filling: Filling::Random,
            per_directory: 0,
            seed: 1,
            sparse,
            compressed: false,
            sizes: Sizes::Fixed { size },
        }
    }

    #[test]
    fn the_same_content_is_made_once_and_large_content_replaces_it() {
        let directory = std::env::temp_dir().join(format!("gannet-sites-{}", std::process::id()));
        fs::create_dir(&directory).expect("a writable temporary directory");
        let kept = 64 << 10;
        let mut sites = Sites {
            kept,
            settles: |_, _| Duration::ZERO,
            ..Sites::new(&directory, false)
        };
        let mut root = |size, sparse| {
            let made = sites.get(&spec(size, sparse), None).expect("writable");
            made.site.root.clone()
        };
        let first = root(10, false);
        assert_eq!(root(10, false), first);
        assert_ne!(root(11, false), first);
        assert!(first.exists());
        // Holes take no space: nothing has to be removed for them.
        root(kept * 2, true);
        assert!(first.exists());
        root(kept - 20, false);
        assert!(!first.exists());
        fs::remove_dir_all(directory).expect("ours");
    }
}
