//! The files of a site with their contents: read, told apart by digest, compressed, stored.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use gannet_archive::{BlobId, Coding, Writer, digest};
use gannet_content::mime::{Types, is_compressible};

use super::compress::{Coded, compress, decoder};
use super::limits::{COPY_CHUNK, IN_FLIGHT_MAX, IN_FLIGHT_MIN, STREAMED_FROM};
use super::output::Output;
use super::parallel::{Work, in_order};
use super::progress::{Phase, Progress};
use super::walk::{Skipped, SourceFile, walk};
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
}

/// A file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) file: SourceFile,
    pub(super) content_type: String,
    /// Which of the contents it has.
    pub(super) content: usize,
}

/// A content that one file has, or several.
#[derive(Debug)]
pub(super) struct SourceContent {
    /// The first file that has it.
    first: usize,
    digest: [u8; 32],
    len: u64,
    /// Whether a type under which it appears is worth compressing.
    is_compressible: bool,
}

/// A content in the archive.
#[derive(Debug)]
pub(super) struct StoredContent {
    /// Identity first.
    pub(super) variants: Vec<StoredVariant>,
}

impl StoredContent {
    /// Its length without coding.
    pub(super) fn identity_len(&self) -> u64 {
        self.variants.first().map_or(0, |variant| variant.len)
    }

    /// Its variants under this type: a picture stays as it is, even if the same bytes are text
    /// under another name.
    pub(super) fn variants_as(&self, content_type: &str) -> &[StoredVariant] {
        let count = if is_compressible(content_type) {
            self.variants.len()
        } else {
            1
        };
        &self.variants[..count.min(self.variants.len())]
    }
}

/// A content in one coding, in the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredVariant {
    pub(super) coding: Coding,
    pub(super) blob: BlobId,
    pub(super) digest: [u8; 32],
    pub(super) len: u64,
}

/// What reading one file tells.
struct FileDigests {
    digest: [u8; 32],
    len: u64,
    /// The digest of what it decodes to, if it may be a sidecar.
    decoded: Option<[u8; 32]>,
}

impl Sources {
    /// Walks through the site and reads every file.
    pub(super) fn read(
        options: &PackOptions,
        types: &Types,
        progress: &mut dyn Progress,
    ) -> Result<Self, PackError> {
        let found = |count, bytes| progress.found(count, bytes);
        let mut tree = walk(&options.source, &options.output, options.dotfiles, found)?;
        let digests = read_all(options, &tree.files, progress)?;
        let mut sources = Self {
            files: Vec::with_capacity(tree.files.len()),
            contents: Vec::new(),
            skipped: std::mem::take(&mut tree.skipped),
            warnings: Vec::new(),
        };
        let mut by_digest = HashMap::new();
        for (number, read) in digests.iter().enumerate() {
            let file = &tree.files[number];
            if is_sidecar(&tree.files, &digests, number) {
                let rule = "sidecar: the codings are made by gannet";
                sources.skipped.push(Skipped {
                    path: file.path.clone(),
                    rule,
                });
                continue;
            }
            let content_type = types.content_type(&file.url).to_string();
            let content = *by_digest.entry(read.digest).or_insert_with(|| {
                sources.contents.push(SourceContent {
                    first: sources.files.len(),
                    digest: read.digest,
                    len: read.len,
                    is_compressible: false,
                });
                sources.contents.len() - 1
            });
            sources.contents[content].is_compressible |= is_compressible(&content_type);
            let mut file = file.clone();
            file.len = read.len;
            sources.files.push(Source {
                file,
                content_type,
                content,
            });
        }
        sources.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        sources.warn();
        Ok(sources)
    }

    /// Compresses every content and writes what is kept.
    pub(super) fn store(
        &self,
        options: &PackOptions,
        writer: &mut Writer,
        output: &mut Output,
        progress: &mut dyn Progress,
    ) -> Result<Vec<StoredContent>, PackError> {
        let total = self.contents.iter().map(|content| content.len).sum();
        progress.begin(Phase::Compressing, total);
        let work = Work {
            items: &self.contents,
            threads: options.threads,
            cost_max: IN_FLIGHT_MAX,
        };
        let cost = |content: &SourceContent| match content.len {
            STREAMED_FROM.. => IN_FLIGHT_MIN,
            len => len.max(IN_FLIGHT_MIN),
        };
        let mut stored = Vec::with_capacity(self.contents.len());
        in_order(
            &work,
            cost,
            |content| self.prepare(content, options),
            |content, prepared| {
                stored.push(self.place(content, prepared?, writer, output)?);
                progress.advance(content.len);
                Ok::<(), PackError>(())
            },
        )?;
        progress.end();
        Ok(stored)
    }

    /// Reads a content again and compresses it. On any thread.
    fn prepare(
        &self,
        content: &SourceContent,
        options: &PackOptions,
    ) -> Result<Option<Prepared>, PackError> {
        if content.len >= STREAMED_FROM {
            return Ok(None);
        }
        let path = &self.files[content.first].file.path;
        let body = read_whole(path, content.len)?;
        if digest(&body) != content.digest {
            return Err(PackError::Changed(path.clone()));
        }
        let codings: &[Coding] = if content.is_compressible {
            &options.codings
        } else {
            &[]
        };
        let coded =
            compress(&body, codings, options.effort).map_err(PackError::io("compress", path))?;
        Ok(Some(Prepared { body, coded }))
    }

    fn place(
        &self,
        content: &SourceContent,
        prepared: Option<Prepared>,
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<StoredContent, PackError> {
        let path = &self.files[content.first].file.path;
        let mut variants = Vec::new();
        let Some(Prepared { body, coded }) = prepared else {
            let placed = writer.add_hashed(content.digest, content.len);
            if let Some(offset) = placed.write_at {
                let mut file = open(path)?;
                let copied = output.copy_at(offset, &mut file, path)?;
                if copied != (content.digest, content.len) {
                    return Err(PackError::Changed(path.clone()));
                }
            }
            variants.push(StoredVariant {
                coding: Coding::Identity,
                blob: placed.id,
                digest: content.digest,
                len: content.len,
            });
            return Ok(StoredContent { variants });
        };
        for Coded { coding, bytes } in std::iter::once(Coded {
            coding: Coding::Identity,
            bytes: body,
        })
        .chain(coded)
        {
            variants.push(store_bytes(coding, &bytes, writer, output)?);
        }
        Ok(StoredContent { variants })
    }

    fn warn(&mut self) {
        for source in &self.files {
            let url = String::from_utf8_lossy(&source.file.url);
            if matches!(&*url, "/_redirects" | "/_headers") {
                let text = format!("'{url}' is packed as a file; its rules are not applied");
                self.warnings.push(text);
            }
            if source.file.len >= STREAMED_FROM && is_compressible(&source.content_type) {
                self.warnings
                    .push(format!("'{url}' is too large to be compressed"));
            }
        }
    }
}

/// A content in memory with its codings.
struct Prepared {
    body: Vec<u8>,
    coded: Vec<Coded>,
}

/// Adds bytes to the archive, and writes them if they are new and not tiny.
pub(super) fn store_bytes(
    coding: Coding,
    bytes: &[u8],
    writer: &mut Writer,
    output: &mut Output,
) -> Result<StoredVariant, PackError> {
    let placed = writer.add_bytes(bytes);
    if let Some(offset) = placed.write_at {
        output.write_at(offset, bytes)?;
    }
    Ok(StoredVariant {
        coding,
        blob: placed.id,
        digest: digest(bytes),
        len: bytes.len() as u64,
    })
}

fn read_all(
    options: &PackOptions,
    files: &[SourceFile],
    progress: &mut dyn Progress,
) -> Result<Vec<FileDigests>, PackError> {
    progress.begin(Phase::Reading, files.iter().map(|file| file.len).sum());
    let work = Work {
        items: files,
        threads: options.threads,
        cost_max: IN_FLIGHT_MAX,
    };
    let mut digests = Vec::with_capacity(files.len());
    in_order(
        &work,
        |_| IN_FLIGHT_MIN,
        |file| read_one(file, files),
        |file, read| {
            digests.push(read?);
            progress.advance(file.len);
            Ok::<(), PackError>(())
        },
    )?;
    progress.end();
    Ok(digests)
}

fn read_one(file: &SourceFile, files: &[SourceFile]) -> Result<FileDigests, PackError> {
    let hashed = hash(open(&file.path)?).map_err(PackError::io("read", &file.path))?;
    let (digest, len) = hashed;
    let decoded = match original_of(file, files) {
        Some((original, coding)) => {
            let coded = open(&file.path)?;
            // More than the original's length tells that it is something else. What cannot be
            // decoded is no sidecar.
            decoder(coding, coded)
                .and_then(|decoded| hash(decoded.take(original.len + 1)))
                .ok()
                .map(|(digest, _)| digest)
        }
        None => None,
    };
    Ok(FileDigests {
        digest,
        len,
        decoded,
    })
}

/// The file that `file` would be a sidecar of, and in which coding.
fn original_of<'f>(file: &SourceFile, files: &'f [SourceFile]) -> Option<(&'f SourceFile, Coding)> {
    let (url, coding) = sidecar_name(&file.url)?;
    let number = files
        .binary_search_by(|other| other.url.as_slice().cmp(url))
        .ok()?;
    Some((&files[number], coding))
}

fn sidecar_name(url: &[u8]) -> Option<(&[u8], Coding)> {
    let suffixes: [(&[u8], Coding); 3] = [
        (b".br", Coding::Brotli),
        (b".gz", Coding::Gzip),
        (b".zst", Coding::Zstd),
    ];
    suffixes
        .into_iter()
        .find_map(|(suffix, coding)| Some((url.strip_suffix(suffix)?, coding)))
}

fn is_sidecar(files: &[SourceFile], digests: &[FileDigests], number: usize) -> bool {
    let Some(decoded) = digests[number].decoded else {
        return false;
    };
    sidecar_name(&files[number].url)
        .and_then(|(url, _)| {
            files
                .binary_search_by(|other| other.url.as_slice().cmp(url))
                .ok()
        })
        .is_some_and(|original| digests[original].digest == decoded)
}

fn open(path: &Path) -> Result<File, PackError> {
    File::open(path).map_err(PackError::io("read", path))
}

fn read_whole(path: &Path, len: u64) -> Result<Vec<u8>, PackError> {
    let mut body = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    // One byte more tells a file that has grown.
    open(path)?
        .take(len + 1)
        .read_to_end(&mut body)
        .map_err(PackError::io("read", path))?;
    Ok(body)
}

/// Digest and length of all that `source` gives.
fn hash(mut source: impl Read) -> io::Result<([u8; 32], u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; COPY_CHUNK];
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
