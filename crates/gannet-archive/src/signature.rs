//! Signatures of releases: proof that an archive is what someone signed, byte for byte.
//!
//! A signature covers the build id, which covers the metadata, which holds the digest of every
//! body. So a check recomputes the build id and reads every body; opening an archive does neither.

use std::fmt;

use minisign_verify::{Error, Signature};

use crate::{Archive, Superblock, decode, digest, signed_text};

/// A minisign public key.
pub struct PublicKey(minisign_verify::PublicKey);

impl PublicKey {
    /// Reads a key: its line of Base64, or the whole text of a `.pub` file.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        minisign_verify::PublicKey::from_base64(line).ok().map(Self)
    }

    /// Checks that `signature`, the text of a minisign signature, is that of `signed`.
    ///
    /// # Errors
    /// `Malformed`, `OtherKey` or `Wrong`.
    pub fn verify(&self, signed: &[u8], signature: &str) -> Result<(), SignatureError> {
        let signature = Signature::decode(signature).map_err(|_| SignatureError::Malformed)?;
        match self.0.verify(signed, &signature, false) {
            Ok(()) => Ok(()),
            Err(Error::UnexpectedKeyId) => Err(SignatureError::OtherKey),
            Err(Error::InvalidSignature) => Err(SignatureError::Wrong),
            Err(_) => Err(SignatureError::Malformed),
        }
    }
}

/// Why an archive is not what was signed.
#[derive(Debug)]
pub enum SignatureError {
    /// The content to be served is not an archive.
    NoArchive,
    /// It has no signature.
    Missing,
    /// Its signature cannot be parsed.
    Malformed,
    /// It was signed with another key.
    OtherKey,
    /// The signature is not of this build.
    Wrong,
    /// The metadata does not match the build id.
    BuildId,
    /// The body at this offset does not match its digest.
    Body(u64),
    /// The given key is invalid.
    Key,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoArchive => out.write_str("only archives have signatures"),
            Self::Missing => out.write_str("it is not signed"),
            Self::Malformed => out.write_str("its signature is malformed"),
            Self::OtherKey => out.write_str("it was signed with another key"),
            Self::Wrong => out.write_str("its signature is wrong"),
            Self::BuildId => out.write_str("its metadata is not what was signed"),
            Self::Body(offset) => {
                write!(out, "the body at offset {offset} is not what was signed")
            }
            Self::Key => out.write_str("the public key is malformed"),
        }
    }
}

/// Checks the signature of an opened archive, and that its metadata is what was signed. Bodies are
/// left to [`check_bodies`].
///
/// # Errors
/// See [`SignatureError`].
pub fn check<B: AsRef<[u8]>>(archive: &Archive<B>, key: &PublicKey) -> Result<(), SignatureError> {
    let superblock: &Superblock = archive.superblock();
    let text = superblock.signature().ok_or(SignatureError::Missing)?;
    let text = str::from_utf8(text).map_err(|_| SignatureError::Malformed)?;
    key.verify(signed_text(superblock.build_id()).as_bytes(), text)?;
    check_build_id(archive)
}

/// Checks that the metadata of an opened archive is what was packed.
///
/// # Errors
/// [`SignatureError::BuildId`].
pub fn check_build_id<B: AsRef<[u8]>>(archive: &Archive<B>) -> Result<(), SignatureError> {
    let superblock = archive.superblock();
    match superblock.compute_build_id(archive.metadata()) == *superblock.build_id() {
        true => Ok(()),
        false => Err(SignatureError::BuildId),
    }
}

/// Reads every body of an archive, and compares its digest. `read` fills a buffer from an offset
/// on.
///
/// # Errors
/// Those of `read`. See [`SignatureError`] for a body that does not match.
pub fn check_bodies<B: AsRef<[u8]>, E>(
    archive: &Archive<B>,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), E>,
) -> Result<Result<(), SignatureError>, E> {
    if let Err(error) = check_stored_bodies(archive, &mut read)? {
        return Ok(Err(error));
    }
    let places: Vec<_> = archive.blobs().map(|it| (it.offset, it.len)).collect();
    for blob in archive.blobs() {
        let Some((coding, coded)) = blob.coded else {
            continue;
        };
        let (offset, len) = places[coded as usize];
        // Shorter than the body, whose length is bounded.
        let mut coded = vec![0; len as usize];
        read(&mut coded, offset)?;
        let body = decode(coding, &coded, blob.len);
        if !body.is_ok_and(|body| digest(&body) == blob.digest) {
            return Ok(Err(SignatureError::Body(offset)));
        }
    }
    Ok(Ok(()))
}

/// The same for what is stored, each byte once: a body of which only a coding is stored is not decoded.
///
/// # Errors
/// As for [`check_bodies`].
pub fn check_stored_bodies<B: AsRef<[u8]>, E>(
    archive: &Archive<B>,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), E>,
) -> Result<Result<(), SignatureError>, E> {
    let mut chunk = vec![0; CHUNK];
    for blob in archive.blobs().filter(|blob| blob.coded.is_none()) {
        let mut hasher = blake3::Hasher::new();
        let (mut offset, end) = (blob.offset, blob.offset + blob.len);
        while offset < end {
            let len = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
            read(&mut chunk[..len], offset)?;
            hasher.update(&chunk[..len]);
            offset += len as u64;
        }
        if hasher.finalize().as_bytes() != blob.digest {
            return Ok(Err(SignatureError::Body(blob.offset)));
        }
    }
    Ok(Ok(()))
}

/// Bytes read at one time.
const CHUNK: usize = 1 << 20;
