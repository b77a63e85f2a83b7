//! Generates the files of a scenario, identical on every machine, and their expected contents.
//!
//! The bytes come from pools, one for each extension, that repeat with a prime period. Responses are
//! compared with them, without a copy of the site in memory, and the wrong file, the wrong page or the
//! wrong range of the right file is detected. The bytes do not compress, unless a scenario asks for text.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use xtask::random::SplitMix;

use super::scenario::{ContentSpec, Filling, Sizes};
use crate::load::{Content, Target};

mod text;

/// Length of the pool: the largest prime below 1 MiB, so that no slice size divides it.
const POOL_LEN: usize = 1_048_573;

/// Files longer than this are compared in the first round only: comparing takes as long as a run.
pub(crate) const LARGE: u64 = 16 * 1024 * 1024;
/// Maximum file length in a quick run, in bytes: above the 4 MiB up to which gannet copies files of
/// a directory, so that both of its paths are exercised.
const QUICK_SIZE_MAX: u64 = 8 * 1024 * 1024;
/// How long files rest before they are requested: gannet does not cache content of a file that has
/// changed within the last two seconds, which is not typical of real sites.
pub(crate) const SETTLES: Duration = Duration::from_millis(2_200);
/// The same where some are longer than [`COPIED_MAX`]: if they changed within the last minute, they may still grow,
/// and gannet reads them twice.
const LONG_SETTLES: Duration = Duration::from_secs(62);
/// Maximum length of the files that gannet copies at once, in bytes.
const COPIED_MAX: u64 = 4 * 1024 * 1024;
/// Maximum number of files of a site in a quick run.
const QUICK_FILES_MAX: usize = 1_000;

/// A generated site.
pub(crate) struct Site {
    /// Its root directory.
    pub(crate) root: PathBuf,
    /// Every file.
    pub(crate) targets: Vec<Target>,
}

impl Site {
    /// The same files under new names: hard links below `root`, which must not exist.
    pub(crate) fn linked(&self, root: &Path) -> Result<Self> {
        for target in &self.targets {
            let name = target.path.trim_start_matches('/');
            let link = root.join(name);
            if let Some(folder) = link.parent().filter(|folder| !folder.exists()) {
                fs::create_dir_all(folder)?;
            }
            fs::hard_link(self.root.join(name), link)?;
        }
        std::thread::sleep(SETTLES);
        Ok(Self {
            root: root.to_owned(),
            targets: self.targets.clone(),
        })
    }

    /// Total size of the files, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.targets.iter().map(|target| target.content.len()).sum()
    }
}

/// Bytes that a site of `spec` occupies.
pub(crate) fn size_of(spec: &ContentSpec, quick: bool) -> u64 {
    if spec.sparse {
        return 0;
    }
    sizes(spec, quick).iter().sum()
}

/// The number of files of a site of `spec`, and their bytes, including holes.
pub(crate) fn extent_of(spec: &ContentSpec, quick: bool) -> (usize, u64) {
    let sizes = sizes(spec, quick);
    (sizes.len(), sizes.iter().sum())
}

/// How long the files of `spec` rest before they are requested.
pub(crate) fn settles(spec: &ContentSpec, quick: bool) -> Duration {
    match sizes(spec, quick).iter().any(|size| *size > COPIED_MAX) && !quick {
        true => LONG_SETTLES,
        false => SETTLES,
    }
}

/// Writes the files of `spec` under `root`, which must not exist.
pub(crate) fn create(spec: &ContentSpec, root: &Path, quick: bool) -> Result<Site> {
    fs::create_dir(root).with_context(|| format!("cannot create '{}'", root.display()))?;
    let pool_for = |extension: &str| -> Arc<[u8]> {
        match (&spec.sizes, spec.filling) {
            (Sizes::Text { text }, _) => text.as_bytes().into(),
            _ if spec.sparse => vec![0; POOL_LEN].into(),
            (_, Filling::Random) => pool(spec.seed).into(),
            _ if !is_text(extension) => pool(spec.seed).into(),
            (_, Filling::Site) => text::pool(extension, spec.seed, POOL_LEN).into(),
        }
    };
    let mut pools: BTreeMap<&str, Arc<[u8]>> = BTreeMap::new();
    let extensions: Vec<&str> = spec.extension.split_whitespace().collect();
    let mut random = SplitMix(spec.seed ^ 0x5bd1_e995);
    let mut targets = Vec::with_capacity(spec.files);
    for (index, len) in sizes(spec, quick).into_iter().enumerate() {
        let extension = extensions[index % extensions.len()];
        let path = path_of(spec, index, extension);
        let pool = pools
            .entry(extension)
            .or_insert_with(|| pool_for(extension));
        let start = match &spec.sizes {
            Sizes::Text { .. } => 0,
            _ => random.next() % POOL_LEN as u64,
        };
        let content = Content::new(pool.clone(), start, len);
        let file = root.join(&path[1..]);
        let written = match spec.sparse {
            true => make_hole(&file, len),
            false => write(&file, &content),
        };
        let written = written.and_then(|()| match spec.compressed && is_text(extension) {
            true => write_compressed(&file, &content),
            false => Ok(()),
        });
        written.with_context(|| format!("cannot write '{path}' under '{}'", root.display()))?;
        targets.push(Target { path, content });
    }
    Ok(Site {
        root: root.to_owned(),
        targets,
    })
}

fn path_of(spec: &ContentSpec, index: usize, extension: &str) -> String {
    match index.checked_div(spec.per_directory) {
        Some(directory) => format!("/d{directory:03}/f{index:05}.{extension}"),
        None => format!("/f{index:05}.{extension}"),
    }
}

fn make_hole(path: &Path, len: u64) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    Ok(File::create(path)?.set_len(len)?)
}

fn write(path: &Path, content: &Content) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for piece in content.pieces(0) {
        file.write_all(piece)?;
    }
    file.flush()?;
    Ok(())
}

/// Whether files with this extension are text, where content is that of a site.
fn is_text(extension: &str) -> bool {
    !matches!(extension, "webp" | "woff2")
}

/// Writes `content` in gzip's best form beside `path`.
fn write_compressed(path: &Path, content: &Content) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let file = BufWriter::new(File::create(name)?);
    let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    for piece in content.pieces(0) {
        file.write_all(piece)?;
    }
    file.finish()?.flush()?;
    Ok(())
}

/// The size of each file, in the order of their names.
fn sizes(spec: &ContentSpec, quick: bool) -> Vec<u64> {
    let count = match quick {
        true => spec.files.min(QUICK_FILES_MAX),
        false => spec.files,
    };
    let step = |index: usize| (index as f64 + 0.5) / count as f64;
    let mut sizes: Vec<u64> = match spec.sizes {
        Sizes::Text { ref text } => vec![text.len() as u64; count],
        Sizes::Fixed { size } => vec![size; count],
        Sizes::Uniform { min, max } => (0..count)
            .map(|i| min + (step(i) * (max - min) as f64) as u64)
            .collect(),
        Sizes::Skewed { min, max, mean } => {
            let size = |k: f64, i| min as f64 * (max as f64 / min as f64).powf(step(i).powf(k));
            let mean_of = |k: f64| (0..count).map(|i| size(k, i)).sum::<f64>() / count as f64;
            // A larger k makes every file smaller; 60 halvings exceed the precision of an f64.
            let (mut low, mut high) = (1e-3, 1e3);
            for _ in 0..60 {
                let middle = (low + high) / 2.0;
                if mean_of(middle) > mean as f64 {
                    low = middle
                } else {
                    high = middle
                }
            }
            (0..count).map(|i| size(low, i) as u64).collect()
        }
    };
    let mut random = SplitMix(spec.seed);
    for end in (1..count).rev() {
        sizes.swap(end, (random.next() % (end as u64 + 1)) as usize);
    }
    if quick {
        sizes
            .iter_mut()
            .for_each(|size| *size = (*size).min(QUICK_SIZE_MAX));
    }
    sizes
}

fn pool(seed: u64) -> Vec<u8> {
    let mut random = SplitMix(seed);
    let mut bytes: Vec<u8> = (0..POOL_LEN.div_ceil(8))
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    bytes.truncate(POOL_LEN);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(files: usize, sizes: Sizes) -> ContentSpec {
        ContentSpec {
            files,
            extension: "bin".into(),
            filling: Filling::Random,
            per_directory: 0,
            seed: 7,
            sparse: false,
            compressed: false,
            sizes,
        }
    }

    #[test]
    fn skewed_sizes_have_the_mean_that_was_asked_for() {
        let (min, max, mean) = (1024, 2_097_152, 125_000);
        let spec = spec(200, Sizes::Skewed { min, max, mean });
        let sizes = sizes(&spec, false);
        let found = sizes.iter().sum::<u64>() / 200;
        assert!(found.abs_diff(mean) < 100, "{found}");
        assert!(sizes.iter().all(|&size| (min..=max).contains(&size)));
        let (small, large) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*small < 2 * min && *large > max / 2, "{small} {large}");
    }

    #[test]
    fn sizes_are_shuffled_and_the_same_each_time() {
        let spec = spec(100, Sizes::Uniform { min: 10, max: 1010 });
        let (first, second) = (sizes(&spec, false), sizes(&spec, false));
        assert_eq!(first, second);
        assert!(!first.is_sorted());
        assert_eq!(first.iter().sum::<u64>() / 100, 510);
    }

    /// What gannet would take for files that may still grow rests for longer than a minute.
    #[test]
    fn long_files_rest_for_longer() {
        let settles = |size, quick| settles(&spec(1, Sizes::Fixed { size }), quick);
        assert_eq!(settles(COPIED_MAX, false), SETTLES);
        assert_eq!(settles(COPIED_MAX + 1, false), LONG_SETTLES);
        assert_eq!(settles(1 << 30, true), SETTLES);
    }

    #[test]
    fn a_quick_run_caps_sizes() {
        let spec = spec(1, Sizes::Fixed { size: 1 << 30 });
        assert_eq!(size_of(&spec, false), 1 << 30);
        assert_eq!(size_of(&spec, true), QUICK_SIZE_MAX);
    }

    #[test]
    fn files_hold_what_their_targets_say() {
        let root = std::env::temp_dir().join(format!("gannet-content-{}", std::process::id()));
        let mut spec = spec(
            5,
            Sizes::Uniform {
                min: 1,
                max: 3_000_000,
            },
        );
        spec.per_directory = 2;
        let site = create(&spec, &root, false).expect("a writable temporary directory");
        for target in &site.targets {
            let bytes = fs::read(root.join(&target.path[1..])).expect("written");
            let expect: Vec<u8> = target.content.pieces(0).flatten().copied().collect();
            assert!(bytes == expect, "{}", target.path);
        }
        assert_eq!(site.targets[4].path, "/d002/f00004.bin");
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn text_has_its_gzip_form_beside_it_and_pictures_have_none() {
        let root = std::env::temp_dir().join(format!("gannet-beside-{}", std::process::id()));
        let mut spec = spec(2, Sizes::Fixed { size: 50_000 });
        spec.extension = "css webp".into();
        (spec.filling, spec.compressed) = (Filling::Site, true);
        create(&spec, &root, false).expect("a writable temporary directory");
        let coded = fs::read(root.join("f00000.css.gz")).expect("written");
        let mut plain = Vec::new();
        let mut decoder = flate2::bufread::GzDecoder::new(&coded[..]);
        std::io::Read::read_to_end(&mut decoder, &mut plain).expect("sound");
        assert!(plain == fs::read(root.join("f00000.css")).expect("written"));
        assert!(coded.len() < 25_000, "{}", coded.len());
        assert!(!root.join("f00001.webp.gz").exists());
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn holes_take_no_room_and_read_as_their_targets_say() {
        let root = std::env::temp_dir().join(format!("gannet-holes-{}", std::process::id()));
        let mut spec = spec(1, Sizes::Fixed { size: 3_000_000 });
        spec.sparse = true;
        assert_eq!(size_of(&spec, false), 0);
        assert_eq!(extent_of(&spec, false), (1, 3_000_000));
        let site = create(&spec, &root, false).expect("a writable temporary directory");
        let bytes = fs::read(root.join("f00000.bin")).expect("written");
        assert!(bytes.len() == 3_000_000 && site.targets[0].content.matches(0, &bytes));
        fs::remove_dir_all(root).expect("ours");
    }
}
