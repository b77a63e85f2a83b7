//! The files of a site with their contents: read, deduplicated, compressed, stored.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use gannet_archive::{Coding, DigestTable};
use gannet_content::directory::sidecars::SIDECARS;
use gannet_content::mime::Types;
use gannet_content::policy::cache::{Lifetimes, Reason};
use gannet_content::stored_coding::{self, START_LEN};
use gannet_io::named_file;

use super::host::{self, SourceHost};
use super::lifetimes;
use super::limits::{COPY_CHUNK, IN_FLIGHT_MAX, IN_FLIGHT_MIN, STREAMED_FROM};
use super::parallel::{Work, batches, in_order};
use super::progress::{Phase, Progress};
use super::secrets;
use super::stamps::Stamps;
use super::walk::{Skipped, SourceFile, Tree};
use super::{PackError, PackOptions, READ, Warning};

/// The input of packing.
#[derive(Debug)]
pub(super) struct Sources {
    /// In the order of their paths.
    pub(super) files: Vec<Source>,
    /// Distinct contents, in the order of the first file that has each.
    pub(super) contents: Vec<SourceContent>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) warnings: Vec<Warning>,
    /// The hosts in the order of their numbers; only number 0 if there are no hosts.
    pub(super) hosts: Vec<SourceHost>,
    /// The names of the hosts, from number 1 on.
    pub(super) host_names: Vec<String>,
    /// Stamps that let the next build skip unchanged files.
    pub(super) stamps: Stamps,
    /// Files that had to be read.
    pub(super) read_count: u64,
    /// The findings about lifetimes to record in the archive.
    pub(super) lifetimes: Lifetimes,
}

/// A file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: SourceFile,
    pub(super) content_type: Arc<str>,
    /// Whether its content type is worth compressing.
    pub(super) is_compressible: bool,
    /// Its name says that it may be gzip, and its first bytes that it is.
    pub(super) is_gzip: bool,
    /// How long its answers may be cached, and why.
    pub(super) reason: Reason,
    /// The index of its content.
    pub(super) content: usize,
}

/// A content of one or more files.
#[derive(Debug)]
pub(super) struct SourceContent {
    /// The first file that has it.
    pub(super) first: usize,
    pub(super) digest: [u8; 32],
    pub(super) len: u64,
    /// The number of files that have it.
    pub(super) file_count: u32,
    /// Whether one of its content types is worth compressing.
    pub(super) is_compressible: bool,
}

/// The digests of the files' contents.
#[derive(Debug, Default)]
struct Digests {
    /// In the order of the files.
    files: Vec<[u8; 32]>,
    read_count: u64,
}

impl Sources {
    /// Walks the site and reads every file whose stamp `known` does not have.
    pub(super) fn read(
        options: &PackOptions,
        types: &Types,
        known: &Stamps,
        progress: &mut dyn Progress,
    ) -> Result<Self, PackError> {
        let (mut tree, hosts) = host::walk_all(options, progress)?;
        leave_out_copies(&mut tree, options, types);
        let digests = read_all(options, &tree.files, known, progress)?;
        let mut sources = Self {
            stamps: stamps(&tree.files, &digests),
            read_count: digests.read_count,
            lifetimes: Lifetimes::default(),
            files: Vec::with_capacity(tree.files.len()),
            contents: Vec::new(),
            skipped: tree.skipped,
            warnings: tree.warnings,
            host_names: hosts.iter().filter_map(|host| host.name.clone()).collect(),
            hosts,
        };
        let mut by_digest = DigestTable::with_capacity(tree.files.len());
        let mut known_types: HashSet<Arc<str>> = HashSet::new();
        for (number, file) in tree.files.into_iter().enumerate() {
            let digest = digests.files[number];
            let content_type = types.content_type(&file.url);
            let content_type = match known_types.get(&*content_type) {
                Some(known) => Arc::clone(known),
                None => {
                    let new: Arc<str> = content_type.into();
                    known_types.insert(Arc::clone(&new));
                    new
                }
            };
            let is_compressible = options.compressible.fits(&content_type, file.len)
                && !stored_coding::is_possible(&file.url);
            let contents = &sources.contents;
            let has_it = |number: u32| contents[number as usize].digest == digest;
            let content = match by_digest.find(&digest, has_it) {
                Some(known) => known as usize,
                None => {
                    let new = sources.contents.len();
                    by_digest.insert(new as u32, &digest);
                    sources.contents.push(SourceContent {
                        first: sources.files.len(),
                        digest,
                        len: file.len,
                        file_count: 0,
                        is_compressible: false,
                    });
                    new
                }
            };
            sources.contents[content].is_compressible |= is_compressible;
            sources.contents[content].file_count += 1;
            sources.files.push(Source {
                is_gzip: stored_coding::is_told_by_start(&file.url) && begins_as_gzip(&file)?,
                file,
                content_type,
                is_compressible,
                reason: Reason::Plain,
                content,
            });
        }
        sources.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        sources.warn();
        sources.lifetimes = lifetimes::apply(&mut sources, options)?;
        Ok(sources)
    }

    /// The files of a host, which are contiguous.
    pub(super) fn of_host(&self, host: u16) -> &[Source] {
        let start = self.files.partition_point(|it| it.file.host < host);
        let end = self.files.partition_point(|it| it.file.host <= host);
        &self.files[start..end]
    }

    /// The URL of a file, `//host/path` on a virtual host.
    pub(super) fn shown(&self, source: &Source) -> String {
        let host = usize::from(source.file.host).checked_sub(1);
        let url = String::from_utf8_lossy(&source.file.url);
        match host.and_then(|number| self.host_names.get(number)) {
            Some(name) => format!("//{name}{url}"),
            None => url.into_owned(),
        }
    }

    fn warn(&mut self) {
        let secrets = secrets::warning(&self.files, |source| self.shown(source));
        self.warnings.extend(secrets);
        for source in &self.files {
            let url = String::from_utf8_lossy(&source.file.url);
            if source.file.len >= STREAMED_FROM && source.is_compressible {
                self.warnings
                    .push(format!("'{url}' is too large to be compressed").into());
            }
        }
    }
}

/// Leaves out compressed copies of files that are packed, as servers of folders use them: the archive
/// has its own. Beside a file that is not compressed, another name is not taken for its copy, nor is
/// one that a pattern asks for: `--include '*.gz'` keeps downloads and the indices of packages.
fn leave_out_copies(tree: &mut Tree, options: &PackOptions, types: &Types) {
    let original_of = |file: &SourceFile| -> Option<Vec<u8>> {
        if file.is_asked_for {
            return None;
        }
        let original = SIDECARS
            .iter()
            .find_map(|it| file.url.strip_suffix(it.suffix))?;
        let wanted = (file.host, original);
        let by_name = |it: &SourceFile| (it.host, it.url.as_slice()).cmp(&wanted);
        let found = &tree.files[tree.files.binary_search_by(by_name).ok()?];
        let content_type = types.content_type(original);
        // Not if the original is itself decompressed from this file.
        let is_copy =
            found.coding == Coding::Identity && options.compressible.fits(&content_type, found.len);
        is_copy.then(|| original.to_vec())
    };
    let originals: Vec<_> = tree.files.iter().map(original_of).collect();
    let mut originals = originals.into_iter();
    let skipped = &mut tree.skipped;
    tree.files.retain(|file| {
        let Some(original) = originals.next().flatten() else {
            return true;
        };
        skipped.push(Skipped {
            path: file.path.clone(),
            rule: format!(
                "a compressed copy of {}",
                String::from_utf8_lossy(&original)
            ),
            is_excluded: false,
        });
        false
    });
}

fn read_all(
    options: &PackOptions,
    files: &[SourceFile],
    known: &Stamps,
    progress: &mut dyn Progress,
) -> Result<Digests, PackError> {
    // Hard links, and symbolic links to one file, share a stamp: they are read once.
    let mut by_stamp = DigestTable::with_capacity(files.len());
    let mut links = Vec::new();
    let mut unread = Vec::new();
    let mut digests = Digests {
        files: vec![[0; 32]; files.len()],
        ..Digests::default()
    };
    for (number, file) in files.iter().enumerate() {
        if file.coding != Coding::Identity {
            unread.push(number);
            continue;
        }
        let has_it = |other: u32| files[other as usize].stamp == file.stamp;
        if let Some(other) = by_stamp.find(file.stamp.as_bytes(), has_it) {
            links.push((number, other as usize));
            continue;
        }
        by_stamp.insert(number as u32, file.stamp.as_bytes());
        match known.get(&file.stamp) {
            Some(digest) => digests.files[number] = digest,
            None => unread.push(number),
        }
    }
    let len_of = |number: &usize| files[*number].len;
    progress.begin(Phase::Reading, unread.iter().map(len_of).sum());
    let batches = batches(&unread, options.threads, len_of);
    let work = Work {
        items: &batches,
        threads: options.threads,
        cost_max: IN_FLIGHT_MAX,
    };
    let read = |batch: &&[usize]| {
        let read = batch.iter().map(|number| read_one(&files[*number]));
        read.collect::<Vec<_>>()
    };
    in_order(
        &work,
        |_| IN_FLIGHT_MIN,
        read,
        |batch, read| {
            for (number, digest) in batch.iter().zip(read) {
                digests.files[*number] = digest?;
                progress.advance(len_of(number));
            }
            Ok::<(), PackError>(())
        },
        || {},
    )?;
    progress.end();
    for (number, other) in links {
        digests.files[number] = digests.files[other];
    }
    digests.read_count = unread.len() as u64;
    Ok(digests)
}

/// Whether the first bytes of a file are those of gzip.
fn begins_as_gzip(file: &SourceFile) -> Result<bool, PackError> {
    let mut start = Vec::with_capacity(START_LEN);
    file.content()?
        .take(START_LEN as u64)
        .read_to_end(&mut start)
        .map_err(PackError::io(READ, &file.path))?;
    Ok(stored_coding::is_gzip(&start))
}

/// The digest of a file, which must have the length recorded by the walk.
fn read_one(file: &SourceFile) -> Result<[u8; 32], PackError> {
    let hashed = hash(file.content()?, file.len).map_err(PackError::io("read", &file.path))?;
    let (digest, len) = hashed;
    if len != file.len {
        return Err(PackError::Changed(file.path.clone()));
    }
    Ok(digest)
}

fn stamps(files: &[SourceFile], digests: &Digests) -> Stamps {
    let mut stamps = Stamps::default();
    for (file, digest) in files.iter().zip(&digests.files) {
        if file.is_settled {
            stamps.insert(file.stamp, *digest);
        }
    }
    stamps
}

pub(super) fn open(path: &Path) -> Result<File, PackError> {
    // Another file may have been put in place of the one that the walk found.
    named_file::open(path).map_err(PackError::io("read", path))
}

/// Digest and length of everything in `source`. `len` is an estimate: for a small file, no large
/// buffer is allocated.
fn hash(mut source: impl Read, len: u64) -> io::Result<([u8; 32], u64)> {
    let mut hasher = blake3::Hasher::new();
    let expected = usize::try_from(len).map_or(COPY_CHUNK, |len| len.saturating_add(1));
    let mut chunk = vec![0; expected.min(COPY_CHUNK)];
    let mut len = 0;
    loop {
        match source.read(&mut chunk) {
            Ok(0) => return Ok((*hasher.finalize().as_bytes(), len)),
            Ok(count) => {
                hasher.update(&chunk[..count]);
                len += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
