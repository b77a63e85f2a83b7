//! Files of a live directory: their copies in other codings, and what a server makes of them.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gannet_content::answer::{Resource, VARY_BY_CODING, ready_fields};
use gannet_content::directory::coding;
use gannet_content::directory::sidecars::{
    SIDECARS, Sidecar, is_copy_of, is_usable, may_have_sidecars,
};
use gannet_content::mime;
use gannet_content::policy::security;
use gannet_content::stored_coding::{self, START_LEN};
use gannet_content::validators::{LiveFile, last_modified, live_tag};
use gannet_http::semantics::coding::{Coding, CodingSet};
use gannet_io::driver::Root;
use gannet_io::named_file;
use gannet_site::offline::{DirectoryPlace, may};
use rustix::fs::Access;

use super::{ContentRequest, Variant, directory_url, lines_of, live_reason};
use crate::command_line::values::Compression;

/// The coding that a server makes of a directory's file for this client, if there is no sidecar.
pub(super) fn made_on_the_fly(
    directory: &DirectoryPlace,
    number: usize,
    accepted: CodingSet,
    variants: &[Variant],
) -> Option<Coding> {
    let url = &directory_url(directory, number);
    let original = variants.iter().find(|it| it.coding == Coding::Identity)?;
    let coding = coding::wanted(accepted, original.len)?;
    let is_made = coding::is_coded(url, mime::content_type(url), original.len)
        && !variants.iter().any(|it| it.coding == coding);
    is_made.then_some(coding)
}

/// A file as a live directory sees it.
fn live(path: &Path) -> Option<LiveFile> {
    // The server answers as if a file that it cannot open did not exist.
    let is_readable = may(path, Access::READ_OK);
    let metadata = fs::metadata(path).ok().filter(|_| is_readable)?;
    live_file(&metadata)
}

fn live_file(metadata: &Metadata) -> Option<LiveFile> {
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    metadata.is_file().then(|| LiveFile {
        mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        len: metadata.len(),
        identity: (metadata.dev(), metadata.ino()),
    })
}

/// The forms of a directory's file, and the fields of the one that is sent.
pub(super) fn of_directory(
    directory: &DirectoryPlace,
    number: usize,
    accepted: CodingSet,
    asked: &ContentRequest<'_>,
) -> (Vec<Variant>, Vec<(String, String)>) {
    let Some(path) = directory.path_of(number) else {
        return Default::default();
    };
    let Some(original) = live(&path) else {
        return Default::default();
    };
    let mut found = vec![(Coding::Identity, original)];
    let url = &directory_url(directory, number);
    let content_type = mime::content_type(url);
    if may_have_sidecars(url, original.len)
        && mime::is_compressible(content_type, original.len)
        && !stored_coding::is_possible(url)
    {
        let copies = SIDECARS.iter().filter_map(|sidecar| {
            let file = copy(directory, number, sidecar, asked.compression)?;
            is_usable((file.mtime_ns, file.len), (original.mtime_ns, original.len)).then_some(())?;
            let times = |it: &LiveFile| (it.mtime_ns, it.ctime_ns);
            let is_sent =
                asked.compression.copies.is_none() || is_copy_of(times(&file), times(&original));
            is_sent.then_some((sidecar.coding, file))
        });
        found.extend(copies);
    }
    found.sort_by_key(|(_, file)| file.len);
    let is_made = asked.may_code && coding::is_coded(url, content_type, original.len);
    let has_choice = is_made || found.len() > 1;
    let chosen = found.iter().find(|(coding, _)| accepted.contains(*coding));
    let chosen = chosen.or_else(|| found.iter().find(|(coding, _)| *coding == Coding::Identity));
    let lifetime = live_reason(directory, number).lifetime();
    let block = chosen.and_then(|(coding, file)| {
        let further = security::fields(None);
        let further: Vec<_> = further
            .iter()
            .filter(|(name, _)| *name != "x-content-type-options")
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        let resource = Resource {
            content_type,
            coding: *coding,
            len: file.len,
            entity_tag: &live_tag(file),
            last_modified: last_modified(original.mtime_ns, i64::MAX),
            vary: has_choice.then_some(VARY_BY_CODING),
            cache_control: Some(lifetime.cache_control()),
            fields: &further,
            common: None,
        };
        let ready = ready_fields(&resource).ok()?;
        let is_gzip = stored_coding::is_told_by_start(url) && begins_as_gzip(&path);
        let changes = stored_coding::with_coding(None, url, is_gzip).unwrap_or_default();
        let ready = changes.apply_to_block(ready.as_block()).ok()?;
        Some(lines_of(ready.as_block().bytes))
    });
    let variants = found.iter().map(|(coding, file)| Variant {
        coding: *coding,
        len: file.len,
        stored_as: None,
        dictionary: None,
        is_coded_for_client: false,
        place: "",
    });
    (variants.collect(), block.unwrap_or_default())
}

/// Whether the first bytes of a file are those of gzip.
fn begins_as_gzip(path: &Path) -> bool {
    let mut start = [0; START_LEN];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && stored_coding::is_gzip(&start)
}

/// A copy of a file in this coding, beside it or in a folder elsewhere.
fn copy(
    directory: &DirectoryPlace,
    number: usize,
    sidecar: &Sidecar,
    compression: &Compression,
) -> Option<LiveFile> {
    if !compression.is_stored {
        return None;
    }
    let suffix = OsStr::from_bytes(sidecar.suffix);
    let Some(folder) = &compression.copies else {
        let mut name = directory.path_of(number)?.into_os_string();
        name.push(suffix);
        return live(Path::new(&name));
    };
    let site = directory.root().canonicalize().ok()?;
    let mut name = site.strip_prefix("/").ok()?.as_os_str().to_owned();
    name.push(OsStr::from_bytes(&directory.files().get(number)?.url));
    name.push(suffix);
    let folder = Root::open_straight(folder).ok()?;
    let metadata = named_file::open_below(&folder, Path::new(&name))
        .ok()?
        .metadata();
    live_file(&metadata.ok()?)
}
