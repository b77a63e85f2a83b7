//! Stores contents in the archive: compressed on all cores, or copied from an earlier archive.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest::{Context, SHA256};
use gannet_archive::{BlobId, Coding, DictionaryId, Room, Writer, decode, digest, has_tree};

use super::compress::{Coded, compress};
use super::encoders::Encoder;
use super::limits::{COPY_CHUNK, IN_FLIGHT_MAX, IN_FLIGHT_MIN, KEPT_READ_MAX, STREAMED_FROM};
use super::output::Output;
use super::parallel::{Work, batches, in_order};
use super::previous::{KeptBlob, Known, Previous};
use super::progress::{Phase, Progress};
use super::sources::{SourceContent, Sources, open};
use super::walk::SourceFile;
use super::{PackError, PackOptions};

/// A content in the archive.
#[derive(Debug)]
pub(super) struct StoredContent {
    /// Identity first.
    pub(super) variants: Box<[StoredVariant]>,
    /// Several files have it.
    pub(super) is_shared: bool,
}

impl StoredContent {
    /// Its uncoded length.
    pub(super) fn identity_len(&self) -> u64 {
        self.variants.first().map_or(0, |variant| variant.len)
    }

    /// Its variants for one of its content types: a picture stays uncoded, even if the same bytes
    /// are text under another name.
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
#[derive(Clone, Debug)]
pub(super) struct StoredVariant {
    pub(super) coding: Coding,
    pub(super) blob: BlobId,
    /// The SHA-256 of the same bytes, if answers carry it.
    pub(super) sha256: Option<Box<[u8; 32]>>,
    pub(super) len: u64,
    /// It is not stored, but decoded from the only stored coding.
    pub(super) is_decoded: bool,
}

/// A content with its codings, ready to be written.
struct Prepared<'p> {
    /// Identity first, then in the order of the codings.
    variants: Vec<(Coding, Bytes<'p>, Option<[u8; 32]>)>,
    is_reused: bool,
    /// It was examined, and is not valid UTF-8 if taken for text.
    is_not_utf8: bool,
    /// The only coding to store, verified to decode to the identity, which is then not stored.
    alone: Option<Coding>,
}

/// Where the bytes of a variant are.
enum Bytes<'p> {
    Memory(Vec<u8>, [u8; 32]),
    Kept(KeptBlob<'p>),
    /// In the source file, which is too large for memory.
    Source,
}

/// The result of storing.
pub(super) struct Stored {
    pub(super) contents: Vec<StoredContent>,
    /// Contents copied entirely from an earlier archive.
    pub(super) reused_count: u64,
    /// Sorted indexes of contents that are not valid UTF-8 if taken for text. Only contents that
    /// this build has in memory are examined.
    pub(super) not_utf8: Vec<usize>,
}

/// The destination of contents.
pub(super) struct ContentTarget<'t> {
    writer: &'t mut Writer,
    output: &'t mut Output,
    /// Tiny bodies of an earlier archive that the writer still needs.
    tiny: Option<Run>,
    /// A buffer for them.
    chunk: Vec<u8>,
}

/// Adjacent bytes of an earlier archive that are copied together.
struct Run {
    source: Arc<File>,
    start: u64,
    len: u64,
}

/// Compresses every content, or finds it in an earlier archive, and writes the result.
pub(super) fn store(
    sources: &Sources,
    options: &PackOptions,
    previous: &Previous,
    target: &mut ContentTarget<'_>,
    progress: &mut dyn Progress,
) -> Result<Stored, PackError> {
    let contents = sources.contents.iter();
    let total = contents
        .map(|content| work_for(content, options, previous))
        .sum();
    progress.begin(Phase::Compressing, total);
    let (done, mut reported) = (AtomicU64::new(0), 0);
    let batches = batches(&sources.contents, options.threads, |content| content.len);
    let work = Work {
        items: &batches,
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
        not_utf8: Vec::new(),
    };
    let prepare = |content| {
        let work = work_for(content, options, previous);
        // What was not necessary after all counts as done.
        let left = Cell::new(work);
        let advance = |work: u64| {
            let work = work.min(left.get());
            left.set(left.get() - work);
            done.fetch_add(work, Ordering::Relaxed);
        };
        let prepared = prepare(content, sources, options, previous, &advance);
        advance(work);
        prepared
    };
    in_order(
        &work,
        |batch| batch.iter().map(cost).sum(),
        |batch| batch.iter().map(prepare).collect::<Vec<_>>(),
        |batch, all_prepared| {
            for (content, prepared) in batch.iter().zip(all_prepared) {
                let prepared = prepared?;
                stored.reused_count += u64::from(prepared.is_reused);
                if prepared.is_not_utf8 {
                    stored.not_utf8.push(stored.contents.len());
                }
                let path = &sources.files[content.first].file.path;
                stored.contents.push(target.place(content, path, prepared)?);
            }
            Ok::<(), PackError>(())
        },
        || {
            let now = done.load(Ordering::Relaxed);
            progress.advance(now - reported);
            reported = now;
        },
    )?;
    target.give_tiny()?;
    progress.end();
    Ok(stored)
}

/// The encoders for a content.
fn encoders_for<'o>(content: &SourceContent, options: &'o PackOptions) -> &'o [Encoder] {
    match content.is_compressible && content.len < STREAMED_FROM {
        true => &options.encoders,
        false => &[],
    }
}

/// The work that a content takes, in the units of [`Encoder::work_per_byte`].
fn work_for(content: &SourceContent, options: &PackOptions, previous: &Previous) -> u64 {
    let encoders = encoders_for(content, options).iter();
    let missing = encoders.filter(|it| previous.coded(&content.digest, **it).is_none());
    let per_byte: u64 = missing.map(|encoder| encoder.work_per_byte()).sum();
    content.len.saturating_mul(COPY_WORK + per_byte)
}

/// Nanoseconds for reading, hashing and writing a byte.
const COPY_WORK: u64 = 2;

/// Gathers the variants of a content. Runs on any thread.
fn prepare<'p>(
    content: &SourceContent,
    sources: &Sources,
    options: &PackOptions,
    previous: &'p Previous,
    advance: &dyn Fn(u64),
) -> Result<Prepared<'p>, PackError> {
    let is_streamed = content.len >= STREAMED_FROM;
    let encoders = encoders_for(content, options);
    // Trusted bytes are left unread unless these options need them.
    let is_blind = !options.drop_identity && !options.repr_digest;
    let keep = |blob| keep(blob, is_blind);
    let mut missing = Vec::new();
    let mut variants = Vec::with_capacity(encoders.len() + 1);
    for encoder in encoders {
        match previous.coded(&content.digest, *encoder) {
            Some(Known::NotWorth) => {}
            Some(Known::Kept(blob)) => match keep(blob) {
                Some(bytes) => variants.push((encoder.coding(), bytes, None)),
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
            let body = read_whole(&sources.files[content.first].file, content)?;
            let coded = compress(&body, &missing, advance);
            let coded = coded.map_err(PackError::io("compress", path))?;
            for Coded { coding, bytes } in coded {
                let digest = digest(&bytes);
                variants.push((coding, Bytes::Memory(bytes, digest), None));
            }
            Bytes::Memory(body, content.digest)
        }
    };
    variants.push((Coding::Identity, identity, None));
    variants.sort_unstable_by_key(|(coding, ..)| *coding);
    if options.repr_digest {
        for (_, bytes, sha256) in &mut variants {
            *sha256 = Some(bytes.sha256(content, path)?);
        }
    }
    let is_not_utf8 = match variants.first() {
        Some((Coding::Identity, Bytes::Memory(body, _), _)) => !is_utf8_or_marked(body),
        _ => false,
    };
    Ok(Prepared {
        is_not_utf8,
        alone: alone(&variants).filter(|_| options.drop_identity),
        variants,
        is_reused,
    })
}

/// Whether text is UTF-8, or has the byte order mark of UTF-16, which overrides its content type.
fn is_utf8_or_marked(text: &[u8]) -> bool {
    text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") || str::from_utf8(text).is_ok()
}

/// The coding that decodes exactly to the identity, and is sufficient for a server.
fn alone(variants: &[(Coding, Bytes<'_>, Option<[u8; 32]>)]) -> Option<Coding> {
    let bytes_in = |wanted| match variants.iter().find(|(coding, ..)| *coding == wanted) {
        Some((_, Bytes::Memory(bytes, _), _)) => Some(bytes.as_slice()),
        _ => None,
    };
    coding_alone(bytes_in(Coding::Identity)?, bytes_in)
}

/// The only coding that a body needs to be stored in, of those that `coded` has bytes for.
pub(super) fn coding_alone<'b>(
    body: &[u8],
    coded: impl Fn(Coding) -> Option<&'b [u8]>,
) -> Option<Coding> {
    // gzip first: it has a checksum, and decodes faster than Brotli.
    let is_enough = |coding: &Coding| {
        let decoded = coded(*coding).map(|bytes| decode(*coding, bytes, body.len() as u64));
        decoded.is_some_and(|decoded| decoded.is_ok_and(|decoded| decoded == body))
    };
    [Coding::Gzip, Coding::Brotli].into_iter().find(is_enough)
}

impl Bytes<'_> {
    /// The SHA-256 of the bytes.
    fn sha256(&self, content: &SourceContent, path: &Path) -> Result<[u8; 32], PackError> {
        let (found, expect) = match self {
            Self::Memory(bytes, _) => return Ok(sha256(bytes)),
            Self::Kept(blob) => {
                let file = &blob.archive.file;
                let read = |chunk: &mut [u8], at| file.read_at(chunk, blob.offset + at);
                let found = digests(read, blob.len);
                (found, (blob.digest, blob.len))
            }
            Self::Source => {
                let file = open(path)?;
                let read = |chunk: &mut [u8], at| file.read_at(chunk, at);
                (digests(read, content.len), (&content.digest, content.len))
            }
        };
        let (digest, sha256, len) = found.map_err(PackError::io("read", path))?;
        if (&digest, len) != expect {
            return Err(PackError::Changed(path.to_path_buf()));
        }
        Ok(sha256)
    }
}

/// SHA-256 of bytes in memory.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The archive's digest and the SHA-256 of the same bytes, of which there are at most `len`, and
/// their number. `read` fills a part of the buffer with the bytes at an offset.
fn digests(
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    len: u64,
) -> io::Result<([u8; 32], [u8; 32], u64)> {
    let (mut own, mut sha256) = (blake3::Hasher::new(), Context::new(&SHA256));
    let mut chunk = vec![0; COPY_CHUNK];
    let mut at = 0;
    while at < len {
        let wanted = usize::try_from(len - at).map_or(COPY_CHUNK, |left| left.min(COPY_CHUNK));
        match read(&mut chunk[..wanted], at) {
            Ok(0) => break,
            Ok(count) => {
                own.update(&chunk[..count]);
                sha256.update(&chunk[..count]);
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let sha256 = sha256.finish();
    let sha256 = sha256.as_ref().try_into().expect("SHA-256 has 32 bytes");
    Ok((*own.finalize().as_bytes(), sha256, at))
}

/// The bytes of an earlier archive, if they match their digest. They are not read if they are
/// trusted and not needed.
fn keep(blob: KeptBlob<'_>, is_blind: bool) -> Option<Bytes<'_>> {
    if is_blind && blob.is_ready() {
        return Some(Bytes::Kept(blob));
    }
    if blob.len <= KEPT_READ_MAX {
        return Some(Bytes::Memory(blob.read()?, *blob.digest));
    }
    blob.is_sound().then_some(Bytes::Kept(blob))
}

impl<'t> ContentTarget<'t> {
    pub(super) fn new(writer: &'t mut Writer, output: &'t mut Output) -> Self {
        Self {
            writer,
            output,
            tiny: None,
            chunk: Vec::new(),
        }
    }

    fn place(
        &mut self,
        content: &SourceContent,
        path: &Path,
        prepared: Prepared<'_>,
    ) -> Result<StoredContent, PackError> {
        let mut variants: Vec<StoredVariant> = Vec::with_capacity(prepared.variants.len());
        let mut given = prepared.variants;
        if prepared.alone.is_some() {
            // After the coding that it is decoded from.
            given.rotate_left(1);
        }
        for (coding, bytes, sha256) in given {
            let stored = match bytes {
                Bytes::Memory(bytes, digest) => match prepared.alone {
                    Some(alone) if coding == Coding::Identity => {
                        self.place_identity(&bytes, digest, (&variants, alone))?
                    }
                    _ => self.place_bytes(coding, &bytes, digest)?,
                },
                Bytes::Kept(blob) => self.place_kept(coding, &blob)?,
                Bytes::Source => {
                    let (placed, stored) = self.add(coding, content.digest, content.len);
                    if let Some(offset) = placed {
                        let copied = self.output.copy_at(offset, &mut open(path)?, path)?;
                        let (len, digest, tree) = copied;
                        if (len, digest) != (content.len, content.digest) {
                            return Err(PackError::Changed(path.to_path_buf()));
                        }
                        self.writer.set_tree(stored.blob, tree);
                    }
                    stored
                }
            };
            variants.push(StoredVariant {
                sha256: sha256.map(Box::new),
                ..stored
            });
        }
        variants.sort_by_key(|variant| variant.coding);
        Ok(StoredContent {
            variants: variants.into(),
            is_shared: content.file_count > 1,
        })
    }

    /// Copies bytes from an earlier archive.
    fn place_kept(
        &mut self,
        coding: Coding,
        blob: &KeptBlob<'_>,
    ) -> Result<StoredVariant, PackError> {
        let (id, room) = self.writer.add_elsewhere(*blob.digest, blob.len);
        match room {
            Room::Known => {}
            Room::File(offset) => {
                self.output.copy_kept(offset, blob)?;
                if has_tree(blob.len) {
                    let tree = blob.tree();
                    let tree = tree.map_err(PackError::io("read", self.output.target()))?;
                    self.writer.set_tree(id, tree);
                }
            }
            Room::Tiny => {
                let source = &blob.archive.file;
                let goes_on = |run: &&mut Run| {
                    Arc::ptr_eq(&run.source, source)
                        && run.start + run.len == blob.offset
                        && run.len < COPY_CHUNK as u64
                };
                if let Some(run) = self.tiny.as_mut().filter(goes_on) {
                    run.len += blob.len;
                } else {
                    self.give_tiny()?;
                    self.tiny = Some(Run {
                        source: Arc::clone(source),
                        start: blob.offset,
                        len: blob.len,
                    });
                }
            }
        }
        Ok(StoredVariant {
            coding,
            blob: id,
            sha256: None,
            len: blob.len,
            is_decoded: false,
        })
    }

    /// Passes the pending tiny bodies to the writer.
    fn give_tiny(&mut self) -> Result<(), PackError> {
        let Some(Run { source, start, len }) = self.tiny.take() else {
            return Ok(());
        };
        // At most a chunk and one tiny body.
        self.chunk.resize(len as usize, 0);
        let read = source.read_exact_at(&mut self.chunk, start);
        read.map_err(PackError::io("read", self.output.target()))?;
        self.writer.fill_tiny(&self.chunk);
        Ok(())
    }

    /// Adds bytes that are not in memory; returns their offset if they are new.
    fn add(&mut self, coding: Coding, digest: [u8; 32], len: u64) -> (Option<u64>, StoredVariant) {
        let placed = self.writer.add_hashed(digest, len);
        let stored = StoredVariant {
            coding,
            blob: placed.id,
            sha256: None,
            len,
            is_decoded: false,
        };
        (placed.write_at, stored)
    }

    /// Adds a body that is to be stored only in the coding `alone`, if one of `variants` has that
    /// coding and the body is not too long.
    pub(super) fn place_identity(
        &mut self,
        body: &[u8],
        digest: [u8; 32],
        (variants, alone): (&[StoredVariant], Coding),
    ) -> Result<StoredVariant, PackError> {
        let coded = variants.iter().find(|it| it.coding == alone);
        let len = body.len() as u64;
        let blob = coded.and_then(|it| self.writer.add_decoded(digest, len, (alone, it.blob)));
        match blob {
            Some(blob) => Ok(StoredVariant {
                coding: Coding::Identity,
                blob,
                sha256: None,
                len,
                is_decoded: true,
            }),
            None => self.place_bytes(Coding::Identity, body, digest),
        }
    }

    /// Adds a dictionary ([`Writer::add_dictionary`]).
    pub(super) fn add_dictionary(
        &mut self,
        sha256: &[u8; 32],
        path: &[u8],
        len: u64,
    ) -> DictionaryId {
        self.writer.add_dictionary(sha256, path, len)
    }

    /// Adds bytes to the archive, and writes them if they are new and not tiny.
    pub(super) fn place_bytes(
        &mut self,
        coding: Coding,
        bytes: &[u8],
        digest: [u8; 32],
    ) -> Result<StoredVariant, PackError> {
        self.give_tiny()?;
        let placed = self.writer.add_digested(bytes, digest);
        if let Some(offset) = placed.write_at {
            self.output.write_at(offset, bytes)?;
        }
        Ok(StoredVariant {
            coding,
            blob: placed.id,
            sha256: None,
            len: bytes.len() as u64,
            is_decoded: false,
        })
    }
}

/// The bytes of a content, verified against its digest.
pub(super) fn read_whole(file: &SourceFile, content: &SourceContent) -> Result<Vec<u8>, PackError> {
    let mut body = Vec::with_capacity(usize::try_from(content.len).unwrap_or(0));
    // One extra byte detects a file that has grown.
    file.content()?
        .take(content.len + 1)
        .read_to_end(&mut body)
        .map_err(PackError::io("read", &file.path))?;
    if digest(&body) != content.digest {
        return Err(PackError::Changed(file.path.clone()));
    }
    Ok(body)
}
