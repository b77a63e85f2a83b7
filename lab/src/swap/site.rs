//! The releases that are swapped: each body tells its release and its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::process;

/// Releases that take turns. All of them stay within what a store keeps.
pub(super) const RELEASES: usize = 4;

/// The page's length in bytes.
const PAGE_LEN: usize = 9_000;

/// Assets of each release, with their lengths in bytes.
pub(super) const ASSETS: [(&str, usize); 5] = [
    ("tiny", 13),
    ("small", 2_000),
    ("medium", 40_000),
    ("large", 1_000_000),
    ("huge", 100_000_000),
];

/// Index of a short asset.
pub(super) const SMALL: usize = 1;

/// Files of the site for the measurement of latency.
pub(super) const FILES: usize = 100_000;

/// Files in each of its folders.
const FOLDER: usize = 250;

/// The path of an asset.
pub(super) fn asset(release: usize, asset: usize) -> String {
    format!("/_astro/{}-{release}.bin", ASSETS[asset].0)
}

/// The release of a page.
///
/// # Panics
///
/// It is not whole, or not of one release.
pub(super) fn release_of_page(page: &[u8]) -> usize {
    let release = usize::from(page.first().map_or(0, |digit| digit.wrapping_sub(b'0')));
    check(page, release, "page", PAGE_LEN);
    release
}

/// Checks the body of an asset.
///
/// # Panics
///
/// It is not whole, or not of this release.
pub(super) fn check_asset(body: &[u8], release: usize, asset: usize) {
    let (name, len) = ASSETS[asset];
    check(body, release, name, len);
}

fn check(body: &[u8], release: usize, name: &str, len: usize) {
    assert_eq!(body.len(), len, "bytes of {name} of release {release}");
    let line = line(release, name);
    let is_right = |part: &[u8]| part == &line[..part.len()];
    assert!(
        body.chunks(line.len()).all(is_right),
        "other bytes in {name} of release {release}"
    );
}

/// What is repeated in a body.
fn line(release: usize, name: &str) -> Vec<u8> {
    format!("{release} {name} ").into_bytes()
}

fn body(release: usize, name: &str, len: usize) -> Vec<u8> {
    let line = line(release, name);
    line.iter().copied().cycle().take(len).collect()
}

/// Packs a site for each release.
pub(super) fn pack_releases(gannet: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let pack_one = |release| pack_release(gannet, folder, release, ASSETS.len());
    (0..RELEASES).map(pack_one).collect()
}

/// Packs two releases without the long assets, so that a swap takes a moment.
pub(super) fn pack_small(gannet: &Path, folder: &Path) -> Result<[PathBuf; 2]> {
    let pack_one = |release| pack_release(gannet, folder, release, SMALL + 1);
    Ok([pack_one(0)?, pack_one(1)?])
}

/// Packs a release with the first `assets` of its assets.
fn pack_release(gannet: &Path, folder: &Path, release: usize, assets: usize) -> Result<PathBuf> {
    let site = folder.join(format!("release-{release}"));
    fs::create_dir_all(site.join("_astro"))?;
    fs::write(site.join("index.html"), body(release, "page", PAGE_LEN))?;
    for (index, (name, len)) in ASSETS.into_iter().enumerate().take(assets) {
        let path = site.join(&asset(release, index)[1..]);
        fs::write(path, body(release, name, len))?;
    }
    let name = format!("{release}-{assets}");
    let packed = pack(gannet, &site, folder, &name)?;
    fs::remove_dir_all(site)?;
    Ok(packed)
}

/// The path of a file of the site with many files, and its content.
pub(super) fn file(number: usize) -> (String, String) {
    let (folder, number) = (number / FOLDER, number % FOLDER);
    let path = format!("/{folder}/{number}.txt");
    let content = format!("file {number} of folder {folder}\n");
    (path, content)
}

/// Packs two releases of a site with many files; they differ in the page alone.
pub(super) fn pack_many(gannet: &Path, folder: &Path) -> Result<[PathBuf; 2]> {
    let site = folder.join("many");
    for number in 0..FILES {
        let (path, content) = file(number);
        if number.is_multiple_of(FOLDER) {
            fs::create_dir_all(site.join(path[1..].split('/').next().unwrap_or_default()))?;
        }
        fs::write(site.join(&path[1..]), content)?;
    }
    let pack_one = |release| {
        fs::write(site.join("index.html"), body(release, "page", PAGE_LEN))?;
        pack(gannet, &site, folder, &format!("many-{release}"))
    };
    Ok([pack_one(0)?, pack_one(1)?])
}

fn pack(gannet: &Path, site: &Path, folder: &Path, name: &str) -> Result<PathBuf> {
    let archive = folder.join(format!("{name}.gannet"));
    let mut pack = Command::new(gannet);
    pack.args(["pack", "--quiet", "--fast"]).arg(site);
    process::run(pack.arg("-o").arg(&archive))?;
    Ok(archive)
}

/// The bytes of an archive's metadata.
pub(super) fn metadata_len(gannet: &Path, archive: &Path) -> Result<u64> {
    let mut inspect = Command::new(gannet);
    let text = process::capture(inspect.args(["inspect", "--json"]).arg(archive))?;
    let value: serde_json::Value = serde_json::from_str(&text)?;
    let len = value["length"].as_u64().context("a length")?;
    // The metadata is at the end; the index comes first.
    let first = value["sections"][0]["offset"].as_u64();
    Ok(len - first.context("an index")?)
}
