//! Verifies every byte of an archive against its digest.

use std::io::{self, Read};
use std::path::Path;

use gannet_archive::signature::{self, PublicKey, SignatureError};
use gannet_archive::{
    Archive, Blob, Coding, Entry, FieldBlock, GroupHash, Key, SUPERBLOCK_LEN, SectionKind,
    TreeHasher, Units, Variant, dictionary_head, digest, of_metadata,
};
use gannet_http::h2::hpack::Decoder;
use gannet_http::semantics::field_names::write_title;

use super::file::decoded;
use super::{ArchiveFile, SiteError, hex, url};
use crate::pack::{decode_with_dictionary, sha256};

/// What was verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VerifyReport {
    /// Blobs whose digests match.
    pub blob_count: u64,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Bytes of the packed metadata behind it, which are not verified: who unpacks them does that.
    pub packed_len: u64,
    /// Bodies coded with dictionaries that the archive does not have as files: their digests match,
    /// but they were not decoded.
    pub undecoded_count: u64,
    /// The build id, which matches too.
    pub build_id: [u8; 32],
}

/// Checks the signature of an archive, of which only a part may be here, and its metadata; the bodies are left to
/// [`verify`].
///
/// # Errors
/// The archive cannot be opened, or is not signed with this public key (in Base64).
pub fn verify_signature(path: &Path, key: &str) -> Result<(), SiteError> {
    let file = ArchiveFile::open_metadata(path)?;
    PublicKey::parse(key)
        .ok_or(SignatureError::Key)
        .and_then(|key| signature::check(file.archive(), &key))
        .map_err(|error| SiteError::Signature(path.to_path_buf(), error))
}

/// Reads the whole archive and verifies the checksums of its metadata, the digest of every blob,
/// that the gaps between blobs are zero, and the build id.
///
/// # Errors
///
/// The archive cannot be opened or read, or verification fails; the error names the first entry
/// with damaged bytes.
pub fn verify(path: &Path) -> Result<VerifyReport, SiteError> {
    verify_open(&ArchiveFile::open(path)?)
}

/// The same for an archive that is open: what is read from it afterwards is what was verified, whatever
/// has its path by then.
///
/// # Errors
/// As [`verify`].
pub fn verify_open(file: &ArchiveFile) -> Result<VerifyReport, SiteError> {
    let path = file.path();
    let refuse = |error| SiteError::io("read", path)(error);
    let damaged = |what| SiteError::Damaged {
        archive: path.to_path_buf(),
        what,
    };
    let archive = file.archive();
    let superblock = archive.superblock();
    let mut chunk = vec![0; 256 << 10];
    let mut end = SUPERBLOCK_LEN as u64;
    let places: Vec<_> = archive.blobs().map(|it| (it.offset, it.len)).collect();
    let has_trees = archive.section(SectionKind::Trees).is_some();
    let mut read = of_metadata(superblock, archive.metadata());
    let units = match has_trees {
        true => Units::read(superblock, &mut read).map_err(refuse)?,
        false => Units::default(),
    };
    let mut tree_of = |blob| units.tree(blob, &mut read);
    for (number, blob) in archive.blobs().enumerate() {
        if let Some((coding, coded)) = blob.coded {
            let place = places[coded as usize];
            check_decoded(file, &blob, (coding, place))
                .map_err(|what| damaged(format!("{what} of {}", user_of(archive, number))))?;
            continue;
        }
        if !blob.is_tiny {
            let gap = file.range(end, blob.offset - end);
            if !is_zero(gap, &mut chunk).map_err(refuse)? {
                return Err(damaged(format!(
                    "bytes before offset {} are not zero",
                    blob.offset
                )));
            }
            end = blob.offset + blob.len;
        }
        let tree = check_stored(file, (number, &blob), &mut chunk)?;
        if has_trees && tree_of(number as u32).map_err(refuse)? != tree {
            let user = user_of(archive, number);
            return Err(damaged(format!("wrong tree of {user}")));
        }
    }
    let metadata = superblock.metadata_range().start;
    let gap = file.range(end, metadata - end);
    if !is_zero(gap, &mut chunk).map_err(refuse)? {
        return Err(damaged(format!(
            "bytes before offset {metadata} are not zero"
        )));
    }
    let build_id = superblock.compute_build_id(archive.metadata());
    if build_id != *superblock.build_id() {
        let (found, expected) = (hex(&build_id), hex(superblock.build_id()));
        return Err(damaged(format!(
            "wrong build id (found {found}, expected {expected})"
        )));
    }
    let undecoded_count = check_dictionaries(file).map_err(damaged)?;
    if let Some(entry) = archive.entries().find(|entry| !has_equal_fields(entry)) {
        return Err(damaged(format!(
            "the HTTP/2 fields of '{}' differ from those for HTTP/1",
            url(entry.path())
        )));
    }
    let blob_count = archive.blobs().len() as u64;
    Ok(VerifyReport {
        blob_count,
        bytes: superblock.archive_len(),
        packed_len: file.packed_len(),
        undecoded_count,
        build_id,
    })
}

/// Checks the digest of stored bytes; returns their tree, if they are as long as to have one.
fn check_stored(
    file: &ArchiveFile,
    (number, blob): (usize, &Blob<'_>),
    chunk: &mut [u8],
) -> Result<Vec<GroupHash>, SiteError> {
    let mut bytes = file.range(blob.offset, blob.len);
    let mut hasher = TreeHasher::default();
    loop {
        match bytes.read(chunk) {
            Ok(0) => break,
            Ok(count) => hasher.update(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(SiteError::io("read", file.path())(error)),
        }
    }
    let (_, found, tree) = hasher.finish();
    if found == blob.digest {
        return Ok(tree);
    }
    let (user, found) = (user_of(file.archive(), number), hex(&found));
    let (offset, len, expected) = (blob.offset, blob.len, hex(blob.digest));
    let what = format!(
        "wrong digest of {user} at offset {offset}, {len} bytes (found {found}, expected {expected})"
    );
    let archive = file.path().to_path_buf();
    Err(SiteError::Damaged { archive, what })
}

/// Checks that a body stored only in a coding decodes to its digest; else returns the reason.
fn check_decoded(
    file: &ArchiveFile,
    blob: &Blob<'_>,
    (coding, (offset, len)): (Coding, (u64, u64)),
) -> Result<(), String> {
    let mut coded = Vec::new();
    let read = file.range(offset, len).read_to_end(&mut coded);
    let body = read.and_then(|_| decoded(coding, &coded, blob.len));
    let name = coding.name();
    let body = body.map_err(|error| format!("wrong {name} at offset {offset} ({error})"))?;
    let found = digest(&body);
    if found == blob.digest {
        return Ok(());
    }
    let (found, expected) = (hex(&found), hex(blob.digest));
    Err(format!(
        "wrong digest (found {found}, expected {expected}) after decoding the {name} at offset \
         {offset}"
    ))
}

/// Checks that content coded with a dictionary names it, and decodes to the content of its entry if
/// the archive has the dictionary as a file. Returns how many cannot be decoded without theirs, or
/// what is wrong.
fn check_dictionaries(file: &ArchiveFile) -> Result<u64, String> {
    let mut undecoded_count = 0;
    for entry in file.archive().entries() {
        for variant in entry.dictionary_variants() {
            let (name, path) = (variant.coding().name(), url(entry.path()));
            let is_decoded = check_coded(file, &entry, &variant)
                .map_err(|error| format!("wrong {name} of '{path}' ({error})"))?;
            undecoded_count += u64::from(!is_decoded);
        }
    }
    Ok(undecoded_count)
}

/// Whether a body could be decoded, to what it should be. What it takes in memory is bounded by the
/// format.
fn check_coded(file: &ArchiveFile, entry: &Entry<'_>, variant: &Variant<'_>) -> io::Result<bool> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let (Some(dictionary), Some(identity)) =
        (variant.dictionary(), entry.select(Coding::Identity.into()))
    else {
        return Ok(false);
    };
    let coding = variant.coding();
    let mut coded = Vec::new();
    file.stored(variant)?.read_to_end(&mut coded)?;
    if !coded.starts_with(&dictionary_head(coding, dictionary.sha256)) {
        return Err(wrong("it names another dictionary"));
    }
    let key = Key::content(dictionary.path).on(entry.key().host);
    let old = file.archive().lookup(key);
    let old = old.and_then(|old| old.select(Coding::Identity.into()));
    let Some(old) = old.filter(|old| old.blob_len() == dictionary.len) else {
        return Ok(false);
    };
    let mut content = Vec::new();
    file.stored(&old)?.read_to_end(&mut content)?;
    if sha256(&content) != dictionary.sha256 {
        return Ok(false);
    }
    let both = (content.as_slice(), dictionary.sha256);
    let decoded = decode_with_dictionary(coding, &coded, both, identity.blob_len())?;
    match digest(&decoded) == identity.digest() {
        true => Ok(true),
        false => Err(wrong("it decodes to other content")),
    }
}

/// Whether an entry's field blocks for HTTP/2 decode to those for HTTP/1, part by part.
fn has_equal_fields(entry: &Entry<'_>) -> bool {
    let mut variants = entry.variants().chain(entry.dictionary_variants());
    variants.all(|variant| {
        let Some(hpack) = variant.hpack() else {
            return true;
        };
        let h1 = variant.h1();
        let pieces = |block: &FieldBlock<'_>| {
            let [length, common, own, shared] = block.pieces();
            let cut = usize::from(block.shared_start.saturating_sub(block.length_end));
            [length, common, &own[..cut.min(own.len())], own, shared].map(<[u8]>::to_vec)
        };
        pieces(&h1)
            .into_iter()
            .zip(pieces(&hpack))
            .all(|(lines, fields)| {
                let mut decoded = Vec::new();
                let result = Decoder::new().decode_each(&fields, |name, value| {
                    let name = String::from_utf8_lossy(name);
                    write_title(&name, &mut decoded);
                    decoded.extend_from_slice(&[b": ", value, b"\r\n"].concat());
                });
                result.is_ok() && decoded == lines
            })
    })
}

/// Names the first entry that uses a blob, and the coding.
fn user_of(archive: &Archive<Vec<u8>>, blob: usize) -> String {
    let files = || archive.entries().filter(|entry| !entry.is_alias());
    let aliases = archive.entries().filter(|entry| entry.is_alias());
    for entry in files().chain(aliases) {
        for variant in entry.variants().chain(entry.dictionary_variants()) {
            if variant.blob_number() as usize == blob {
                return format!("'{}' ({})", url(entry.path()), variant.coding().name());
            }
        }
    }
    String::from("a blob without an entry")
}

fn is_zero(mut bytes: impl Read, chunk: &mut [u8]) -> io::Result<bool> {
    loop {
        match bytes.read(chunk) {
            Ok(0) => return Ok(true),
            Ok(count) if chunk[..count].iter().any(|byte| *byte != 0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
