//! Contents into the archive: compressed on all cores, or taken over from an earlier archive.

use std::io::Read;
use std::path::Path;

use gannet_archive::{BlobId, Coding, Writer, digest};

use super::compress::{Coded, compress};
use super::encoders::Encoder;
use super::limits::{IN_FLIGHT_MAX, IN_FLIGHT_MIN, KEPT_READ_MAX, STREAMED_FROM};
use super::output::Output;
use super::parallel::{Work, in_order};
use super::previous::{KeptBlob, Known, Previous};
use super::progress::{Phase, Progress};
use super::sources::{SourceContent, Sources, open};
use super::{PackError, PackOptions};

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

    /// Its variants under one of its types: a picture stays as it is, even if the same bytes are
    /// text under another name.
    pub(super) fn variants_as(&self, is_compressible: bool) -> &[StoredVariant] {
        let count = if is_compressible {
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

/// A content with its codings, ready to be written.
struct Prepared<'p> {
    /// Identity first, then in the order of the codings.
    variants: Vec<(Coding, Bytes<'p>)>,
    is_reused: bool,
}

/// Where the bytes of a variant are.
enum Bytes<'p> {
    Memory(Vec<u8>, [u8; 32]),
    Kept(KeptBlob<'p>),
    /// In the source file, too large for memory.
    Source,
}

/// What storing has come to.
pub(super) struct Stored {
    pub(super) contents: Vec<StoredContent>,
    /// Contents that were taken over whole from an earlier archive.
    pub(super) reused_count: u64,
}

/// Where contents go.
pub(super) struct Target<'t> {
    pub(super) writer: &'t mut Writer,
    pub(super) output: &'t mut Output,
}

/// Compresses every content, or finds it in an earlier archive, and writes what is kept.
pub(super) fn store(
    sources: &Sources,
    options: &PackOptions,
    previous: &Previous,
    target: &mut Target<'_>,
    progress: &mut dyn Progress,
) -> Result<Stored, PackError> {
    let total = sources.contents.iter().map(|content| content.len).sum();
    progress.begin(Phase::Compressing, total);
    let work = Work {
        items: &sources.contents,
        threads: options.threads,
        cost_max: IN_FLIGHT_MAX,
    };
    let cost = |content: &SourceContent| match content.len {
        STREAMED_FROM.. => IN_FLIGHT_MIN,
        len => len.max(IN_FLIGHT_MIN),
    };
    let mut stored = Stored {
        contents: Vec::with_capacity(sources.contents.len()),
        reused_count: 0,
    };
    in_order(
        &work,
        cost,
        |content| prepare(content, sources, options, previous),
        |content, prepared| {
            let prepared = prepared?;
            stored.reused_count += u64::from(prepared.is_reused);
            let path = &sources.files[content.first].file.path;
            stored.contents.push(target.place(content, path, prepared)?);
            progress.advance(content.len);
            Ok::<(), PackError>(())
        },
    )?;
    progress.end();
    Ok(stored)
}

/// Gathers the variants of a content. On any thread.
fn prepare<'p>(
    content: &SourceContent,
    sources: &Sources,
    options: &PackOptions,
    previous: &'p Previous,
) -> Result<Prepared<'p>, PackError> {
    let is_streamed = content.len >= STREAMED_FROM;
    let encoders: &[Encoder] = if content.is_compressible && !is_streamed {
        &options.encoders
    } else {
        &[]
    };
    let mut missing = Vec::new();
    let mut variants = Vec::with_capacity(encoders.len() + 1);
    for encoder in encoders {
        match previous.coded(&content.digest, *encoder) {
            Some(Known::NotWorth) => {}
            Some(Known::Kept(blob)) => match keep(blob) {
                Some(bytes) => variants.push((encoder.coding(), bytes)),
                None => missing.push(*encoder),
            },
            None => missing.push(*encoder),
        }
    }
    let kept = previous.identity(&content.digest).and_then(keep);
    let path = &sources.files[content.first].file.path;
    let is_reused = kept.is_some() && missing.is_empty();
    let identity = match kept {
        Some(kept) if missing.is_empty() => kept,
        _ if is_streamed => Bytes::Source,
        _ => {
            let body = read_whole(path, content)?;
            let coded = compress(&body, &missing).map_err(PackError::io("compress", path))?;
            for Coded { coding, bytes } in coded {
                let digest = digest(&bytes);
                variants.push((coding, Bytes::Memory(bytes, digest)));
            }
            Bytes::Memory(body, content.digest)
        }
    };
    variants.push((Coding::Identity, identity));
    variants.sort_by_key(|(coding, _)| *coding);
    Ok(Prepared {
        variants,
        is_reused,
    })
}

/// The bytes of an earlier archive, if they are what they should be.
fn keep(blob: KeptBlob<'_>) -> Option<Bytes<'_>> {
    if blob.len <= KEPT_READ_MAX {
        return Some(Bytes::Memory(blob.read()?, *blob.digest));
    }
    blob.is_sound().then_some(Bytes::Kept(blob))
}

impl Target<'_> {
    fn place(
        &mut self,
        content: &SourceContent,
        path: &Path,
        prepared: Prepared<'_>,
    ) -> Result<StoredContent, PackError> {
        let mut variants = Vec::with_capacity(prepared.variants.len());
        for (coding, bytes) in prepared.variants {
            variants.push(match bytes {
                Bytes::Memory(bytes, digest) => self.place_bytes(coding, &bytes, digest)?,
                Bytes::Kept(blob) => {
                    let (placed, stored) = self.add(coding, *blob.digest, blob.len);
                    if let Some(offset) = placed {
                        self.output.copy_kept(offset, &blob)?;
                    }
                    stored
                }
                Bytes::Source => {
                    let (placed, stored) = self.add(coding, content.digest, content.len);
                    if let Some(offset) = placed {
                        let copied = self.output.copy_at(offset, &mut open(path)?, path)?;
                        if copied != (content.digest, content.len) {
                            return Err(PackError::Changed(path.to_path_buf()));
                        }
                    }
                    stored
                }
            });
        }
        Ok(StoredContent { variants })
    }

    /// Adds bytes that are not in memory, and says where they go if they are new.
    fn add(&mut self, coding: Coding, digest: [u8; 32], len: u64) -> (Option<u64>, StoredVariant) {
        let placed = self.writer.add_hashed(digest, len);
        let stored = StoredVariant {
            coding,
            blob: placed.id,
            digest,
            len,
        };
        (placed.write_at, stored)
    }

    /// Adds bytes to the archive, and writes them if they are new and not tiny.
    pub(super) fn place_bytes(
        &mut self,
        coding: Coding,
        bytes: &[u8],
        digest: [u8; 32],
    ) -> Result<StoredVariant, PackError> {
        let placed = self.writer.add_digested(bytes, digest);
        if let Some(offset) = placed.write_at {
            self.output.write_at(offset, bytes)?;
        }
        Ok(StoredVariant {
            coding,
            blob: placed.id,
            digest,
            len: bytes.len() as u64,
        })
    }
}

/// The bytes of a content, which must be those whose digest was taken.
fn read_whole(path: &Path, content: &SourceContent) -> Result<Vec<u8>, PackError> {
    let mut body = Vec::with_capacity(usize::try_from(content.len).unwrap_or(0));
    // One byte more tells a file that has grown.
    open(path)?
        .take(content.len + 1)
        .read_to_end(&mut body)
        .map_err(PackError::io("read", path))?;
    if digest(&body) != content.digest {
        return Err(PackError::Changed(path.to_path_buf()));
    }
    Ok(body)
}
