//! Packs files that exist only compressed: `data.json.gz` without `data.json` adds the latter.

use std::collections::HashSet;
use std::io::{self, Read};

use gannet_content::directory::sidecars::{SIDECARS, may_have_sidecars};
use gannet_content::routing::Routing;

use super::PackError;
use super::compress::decoder;
use super::limits::STREAMED_FROM;
use super::sources::open;
use super::walk::{SourceFile, Tree};

/// Adds the decompressed form of each compressed file of a host, unless it exists itself. The files
/// stay in the order of their paths.
///
/// # Errors
/// A file cannot be read, or is corrupt.
pub(super) fn add(tree: &mut Tree, routing: &Routing) -> Result<(), PackError> {
    let mut added = Vec::new();
    let mut names = HashSet::new();
    // gzip takes precedence over the others, as in a live directory.
    for sidecar in SIDECARS.iter().rev() {
        for file in &tree.files {
            let Some(url) = file.url.strip_suffix(sidecar.suffix) else {
                continue;
            };
            let is_rules_file = routing.is_rules_file(&url[1..]);
            let may_have = may_have_sidecars(url, 1);
            if !may_have
                || is_rules_file
                || is_there(&tree.files, url)
                || !names.insert(url.to_vec())
            {
                continue;
            }
            let whole = SourceFile {
                url: url.to_vec(),
                coding: sidecar.coding,
                // The stamp describes the compressed bytes.
                is_settled: false,
                ..file.clone()
            };
            let content = whole.content()?.take(STREAMED_FROM);
            let len = io::copy(&mut { content }, &mut io::sink());
            let len = len.map_err(PackError::io("decompress", &file.path))?;
            if len == STREAMED_FROM {
                let shown = String::from_utf8_lossy(&file.url);
                let warning = format!("'{shown}' is too long to be packed decompressed");
                tree.warnings.push(warning.into());
                continue;
            }
            added.push(SourceFile { len, ..whole });
        }
    }
    tree.files.append(&mut added);
    tree.files.sort_by(|a, b| a.url.cmp(&b.url));
    Ok(())
}

/// Whether a file or a folder has this path, or no file can have it.
fn is_there(files: &[SourceFile], url: &[u8]) -> bool {
    let folder = [url, b"/"].concat();
    let place = |url: &[u8]| files.partition_point(|it| it.url.as_slice() < url);
    let has =
        |place: usize, start: &[u8]| files.get(place).is_some_and(|it| it.url.starts_with(start));
    let is_file = files.get(place(url)).is_some_and(|it| it.url == url);
    url.ends_with(b"/") || is_file || has(place(&folder), &folder)
}

impl SourceFile {
    /// The path of the compressed file that it is decompressed from, if it is.
    pub(super) fn stored_url(&self) -> Option<Vec<u8>> {
        let mut sidecars = SIDECARS.iter();
        let sidecar = sidecars.find(|it| it.coding == self.coding)?;
        Some([self.url.as_slice(), sidecar.suffix].concat())
    }

    /// A reader of the bytes to pack.
    pub(super) fn content(&self) -> Result<Box<dyn Read>, PackError> {
        decoder(self.coding, open(&self.path)?).map_err(PackError::io("read", &self.path))
    }
}
