//! The files of a site with their contents: read, told apart by digest, compressed, stored.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use gannet_archive::Coding;
use gannet_content::mime::Types;

use super::compress::decoder;
use super::host::{self, SourceHost};
use super::limits::{COPY_CHUNK, IN_FLIGHT_MAX, IN_FLIGHT_MIN, STREAMED_FROM};
use super::parallel::{Work, in_order};
use super::progress::{Phase, Progress};
use super::stamps::{Stamp, Stamps};
use super::walk::{Skipped, SourceFile};
use super::{PackError, PackOptions};

/// What is packed.
#[derive(Debug)]
pub(super) struct Sources {
    /// In the order of their paths.
    pub(super) files: Vec<Source>,
    /// Distinct contents, in the order of the first file that has each.
    pub(super) contents: Vec<SourceContent>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) warnings: Vec<String>,
    /// The hosts, in the order of their numbers; one with the number 0 if there are none.
    pub(super) hosts: Vec<SourceHost>,
    /// The names of the hosts; the first has the number 1.
    pub(super) host_names: Vec<String>,
    /// What the next build may know unread.
    pub(super) stamps: Stamps,
    /// Files that had to be read.
    pub(super) read_count: u64,
}

/// A file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: SourceFile,
    pub(super) content_type: Arc<str>,
    /// Whether its type is worth compressing.
    pub(super) is_compressible: bool,
    /// Which of the contents it has.
    pub(super) content: usize,
}

/// A content that one file has, or several.
#[derive(Debug)]
pub(super) struct SourceContent {
    /// The first file that has it.
    pub(super) first: usize,
    pub(super) digest: [u8; 32],
    pub(super) len: u64,
    /// How many files have it.
    pub(super) file_count: u32,
    /// Whether a type under which it appears is worth compressing.
    pub(super) is_compressible: bool,
}

/// What is known of the files' contents.
#[derive(Debug, Default)]
struct Digests {
    /// Of each file, in the order of the files.
    files: Vec<[u8; 32]>,
    /// What the files decode to that may be sidecars, by their number.
    decoded: HashMap<usize, [u8; 32]>,
    read_count: u64,
}

impl Sources {
    /// Walks through the site and reads every file that `known` does not know.
    pub(super) fn read(
        options: &PackOptions,
        types: &Types,
        known: &Stamps,
        progress: &mut dyn Progress,
    ) -> Result<Self, PackError> {
        let (tree, hosts) = match options.hosts {
            true => host::walk_hosts(options, progress)?,
            false => host::walk_one(options, progress)?,
        };
        let digests = read_all(options, &tree.files, known, progress)?;
        let mut sources = Self {
            stamps: stamps(&tree.files, &digests),
            read_count: digests.read_count,
            files: Vec::with_capacity(tree.files.len()),
            contents: Vec::new(),
            skipped: tree.skipped,
            warnings: tree.warnings,
            host_names: hosts.iter().filter_map(|host| host.name.clone()).collect(),
            hosts,
        };
        let sidecars = sidecars(&tree.files, &digests);
        let mut by_digest = HashMap::new();
        let mut known_types: HashSet<Arc<str>> = HashSet::new();
        for (number, file) in tree.files.into_iter().enumerate() {
            if sidecars.contains(&number) {
                sources.skipped.push(Skipped {
                    path: file.path,
                    rule: "sidecar: the codings are made by gannet".into(),
                });
                continue;
            }
            let digest = digests.files[number];
            let content_type = types.content_type(&file.url);
            let content_type = match known_types.get(content_type) {
                Some(known) => Arc::clone(known),
                None => {
                    let new: Arc<str> = content_type.into();
                    known_types.insert(Arc::clone(&new));
                    new
                }
            };
            let is_compressible = options.compressible.fits(&content_type);
            let content = *by_digest.entry(digest).or_insert_with(|| {
                sources.contents.push(SourceContent {
                    first: sources.files.len(),
                    digest,
                    len: file.len,
                    file_count: 0,
                    is_compressible: false,
                });
                sources.contents.len() - 1
            });
            sources.contents[content].is_compressible |= is_compressible;
            sources.contents[content].file_count += 1;
            sources.files.push(Source {
                file,
                content_type,
                is_compressible,
                content,
            });
        }
        sources.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        sources.warn();
        Ok(sources)
    }

    /// The files of a host, which stand together.
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
        for source in &self.files {
            let url = String::from_utf8_lossy(&source.file.url);
            if source.file.len >= STREAMED_FROM && source.is_compressible {
                self.warnings
                    .push(format!("'{url}' is too large to be compressed"));
            }
        }
    }
}

fn read_all(
    options: &PackOptions,
    files: &[SourceFile],
    known: &Stamps,
    progress: &mut dyn Progress,
) -> Result<Digests, PackError> {
    // Hard links, and links to files, have one stamp: they are read once.
    let mut by_stamp: HashMap<Stamp, Option<[u8; 32]>> = HashMap::with_capacity(files.len());
    let mut unread = Vec::new();
    for file in files {
        by_stamp.entry(file.stamp).or_insert_with(|| {
            let digest = known.get(&file.stamp);
            if digest.is_none() {
                unread.push(file);
            }
            digest
        });
    }
    progress.begin(Phase::Reading, unread.iter().map(|file| file.len).sum());
    let work = Work {
        items: &unread,
        threads: options.threads,
        cost_max: IN_FLIGHT_MAX,
    };
    in_order(
        &work,
        |_| IN_FLIGHT_MIN,
        |file| read_one(file),
        |file, digest| {
            by_stamp.insert(file.stamp, Some(digest?));
            progress.advance(file.len);
            Ok::<(), PackError>(())
        },
    )?;
    progress.end();
    let digest_of = |file: &SourceFile| by_stamp.get(&file.stamp).copied().flatten();
    let mut digests = Digests {
        files: files
            .iter()
            .map(|file| digest_of(file).unwrap_or_default())
            .collect(),
        decoded: HashMap::new(),
        read_count: unread.len() as u64,
    };
    for (number, file) in files.iter().enumerate() {
        let Some((original, coding)) = original_of(file, files) else {
            continue;
        };
        let kept = known.get(&Stamp::of_decoded(&digests.files[number]));
        let decoded = kept.or_else(|| decode(file, coding, files[original].len));
        digests
            .decoded
            .extend(decoded.map(|digest| (number, digest)));
    }
    Ok(digests)
}

/// The digest of a file, which must have the length that was seen.
fn read_one(file: &SourceFile) -> Result<[u8; 32], PackError> {
    let hashed = hash(open(&file.path)?, file.len).map_err(PackError::io("read", &file.path))?;
    let (digest, len) = hashed;
    if len != file.len {
        return Err(PackError::Changed(file.path.clone()));
    }
    Ok(digest)
}

/// The digest of what a file decodes to; nothing if it cannot be decoded, or is longer than its
/// original, and so no sidecar.
fn decode(file: &SourceFile, coding: Coding, original_len: u64) -> Option<[u8; 32]> {
    let coded = File::open(&file.path).ok()?;
    let decoded = decoder(coding, coded).ok()?;
    let (digest, len) = hash(decoded.take(original_len + 1), original_len).ok()?;
    (len == original_len).then_some(digest)
}

fn stamps(files: &[SourceFile], digests: &Digests) -> Stamps {
    let mut stamps = Stamps::default();
    for (file, digest) in files.iter().zip(&digests.files) {
        if file.is_settled {
            stamps.insert(file.stamp, *digest);
        }
    }
    for (number, decoded) in &digests.decoded {
        stamps.insert(Stamp::of_decoded(&digests.files[*number]), *decoded);
    }
    stamps
}

/// The number of the file that a path would be a sidecar of, and in which coding.
fn original_of(file: &SourceFile, files: &[SourceFile]) -> Option<(usize, Coding)> {
    let suffixes: [(&[u8], Coding); 3] = [
        (b".br", Coding::Brotli),
        (b".gz", Coding::Gzip),
        (b".zst", Coding::Zstd),
    ];
    let (original, coding) = suffixes
        .into_iter()
        .find_map(|(suffix, coding)| Some((file.url.strip_suffix(suffix)?, coding)))?;
    let number = files
        .binary_search_by(|other| (other.host, other.url.as_slice()).cmp(&(file.host, original)))
        .ok()?;
    Some((number, coding))
}

fn sidecars(files: &[SourceFile], digests: &Digests) -> HashSet<usize> {
    let decodes_to_original = |number: usize, decoded: &[u8; 32]| {
        let original = original_of(&files[number], files);
        original.is_some_and(|(original, _)| digests.files[original] == *decoded)
    };
    digests
        .decoded
        .iter()
        .filter(|(number, decoded)| decodes_to_original(**number, decoded))
        .map(|(number, _)| *number)
        .collect()
}

pub(super) fn open(path: &Path) -> Result<File, PackError> {
    File::open(path).map_err(PackError::io("read", path))
}

/// Digest and length of all that `source` gives, which is about `len` bytes: for a small file no
/// large chunk is made.
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
