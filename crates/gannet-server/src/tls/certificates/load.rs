//! Reads certificates and keys, and checks them before use.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_io::named_file;
use gannet_io::quantities::lasting;
use rustls::pki_types::pem::{self, SectionKind};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::{CertifiedKey, SigningKey};

use super::authorities::{TRUSTED_CERTIFICATE, is_trusted};
use super::error::{Cause, CertificateError, Warning, WarningKind};
use super::facts::{self, Facts, Parsed};
use crate::bounds::tls::{CHAIN_LEN_MAX, EXPIRY_WARNING_SECONDS, PAIRS_MAX, PEM_LEN_MAX};
use crate::tls::config::provider;

/// The files of a pair.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PairPaths {
    /// The certificate chain, PEM, the server's certificate first.
    pub certificate: PathBuf,
    /// The private key, PEM: PKCS#8, SEC1 or PKCS#1. May be the same file.
    pub key: PathBuf,
}

/// Options for checking pairs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoadOptions {
    /// Accept expired certificates, with a warning.
    pub allow_expired: bool,
    /// The time to check against, Unix seconds.
    pub now: i64,
}

impl PairPaths {
    /// A file that has both.
    #[must_use]
    pub fn of_one(file: PathBuf) -> Self {
        Self {
            certificate: file.clone(),
            key: file,
        }
    }

    /// Whether one of the files is not there.
    #[must_use]
    pub fn are_missing(&self) -> bool {
        let is_missing = |path: &Path| matches!(path.try_exists(), Ok(false));
        is_missing(&self.certificate) || is_missing(&self.key)
    }
}

impl LoadOptions {
    /// Strict, at the current time.
    #[must_use]
    pub fn now() -> Self {
        Self {
            allow_expired: false,
            now: now_unix(),
        }
    }
}

/// The current time, Unix seconds.
#[must_use]
pub fn now_unix() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// A certificate chain with its key, ready for use.
#[derive(Clone)]
pub struct Pair {
    /// Facts about the leaf.
    pub facts: Facts,
    pub(in crate::tls) key: Arc<CertifiedKey>,
    path: PathBuf,
}

impl Pair {
    /// Whether it has not expired at this time, Unix seconds.
    pub(in crate::tls) fn is_valid_at(&self, now: i64) -> bool {
        now <= self.facts.not_after
    }

    /// Reads a pair from PEM texts. The paths are for messages.
    ///
    /// # Errors
    /// [`CertificateError`]
    pub fn from_pem(
        paths: &PairPaths,
        certificates: &[u8],
        key: &[u8],
        options: &LoadOptions,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, CertificateError> {
        let is_one_file = paths.certificate == paths.key;
        let chain = read_chain(&paths.certificate, certificates).map_err(|mut error| {
            let is_key = matches!(error.cause, Cause::NoCertificate(Some("private key")));
            if is_key && !is_one_file && read_chain(&paths.key, key).is_ok() {
                error.cause = Cause::Exchanged;
            }
            error.in_one_file(is_one_file)
        })?;
        let key = read_key(&paths.key, key).map_err(|error| error.in_one_file(is_one_file))?;
        let mut identifiers = key.secret_der().windows(PRIME_FIELD.len());
        let has_parameters = identifiers.any(|it| it == PRIME_FIELD);
        let at_key = |cause| CertificateError::at(&paths.key, cause);
        let signing =
            provider()
                .key_provider
                .load_private_key(key)
                .map_err(|_| match has_parameters {
                    true => at_key(Cause::ExplicitCurve),
                    false => at_key(Cause::UnusableKey),
                })?;
        // The leaf is the certificate that matches the key, at any position in the file.
        let is_leaf = |der: &CertificateDer<'static>| {
            CertifiedKey::new(vec![der.clone()], Arc::clone(&signing))
                .keys_match()
                .is_ok()
        };
        let Some(leaf) = chain.iter().position(|(der, _)| is_leaf(der)) else {
            // The library recognizes the usual curves by their parameters, but in keys only.
            if has_parameters {
                return Err(at_key(Cause::ExplicitCurve));
            }
            return Err(no_leaf(&chain, signing.as_ref(), paths));
        };
        let (ordered, facts) = put_in_order(chain, leaf, &paths.certificate, warnings);
        check_time(&facts, &paths.certificate, options, warnings)?;
        if facts.names.is_empty() && !facts.has_addresses {
            warn(warnings, &paths.certificate, WarningKind::NoNames);
        }
        let key = Arc::new(CertifiedKey::new(ordered, signing));
        Ok(Self {
            facts,
            key,
            path: paths.certificate.clone(),
        })
    }

    pub(super) fn refuses(&self) -> impl Fn(String) -> CertificateError + use<> {
        let path = self.path.clone();
        move |why| CertificateError::at(&path, Cause::Library(why))
    }
}

/// Refuses more pairs that are named one by one than a server supports.
pub(in crate::tls) fn check_count(count: usize) -> Result<(), CertificateError> {
    match count > PAIRS_MAX {
        true => Err(CertificateError {
            path: None,
            cause: Cause::TooManyPairs(count),
        }),
        false => Ok(()),
    }
}

/// Reads and checks one pair.
///
/// # Errors
/// [`CertificateError`]
pub fn load_one(
    paths: &PairPaths,
    options: &LoadOptions,
    warnings: &mut Vec<Warning>,
) -> Result<Pair, CertificateError> {
    let (certificates, _) = read(&paths.certificate)?;
    let (key, mode) = read(&paths.key)?;
    if mode & 0o007 != 0 {
        warn(
            warnings,
            &paths.key,
            WarningKind::WorldReadable { mode: mode & 0o777 },
        );
    }
    Pair::from_pem(paths, &certificates, &key, options, warnings)
}

/// Reads the certificate for a challenge, with its key in the same file.
///
/// # Errors
/// [`CertificateError`]
pub(in crate::tls) fn challenge(path: &Path) -> Result<CertifiedKey, CertificateError> {
    let (pem, _) = read(path)?;
    let mut chain = read_chain(path, &pem).map_err(|error| error.in_one_file(true))?;
    let key = read_key(path, &pem).map_err(|error| error.in_one_file(true))?;
    let key = provider().key_provider.load_private_key(key);
    let key = key.map_err(|_| CertificateError::at(path, Cause::UnusableKey))?;
    let (certificate, parsed) = chain.swap_remove(0);
    // The library does not read a certificate with the extension of a challenge, which is critical.
    let is_pair = key
        .public_key()
        .is_some_and(|it| *it == parsed.public_key[..]);
    if !is_pair {
        let certificate = path.to_owned();
        return Err(CertificateError::at(path, Cause::Mismatch { certificate }));
    }
    Ok(CertifiedKey::new(vec![certificate], key))
}

/// Why the library rejects a certificate.
fn unusable(der: &CertificateDer<'static>) -> String {
    match rustls::server::ParsedCertificate::try_from(der) {
        Ok(_) => "its key is of another kind than it says".into(),
        Err(error) => error.to_string(),
    }
}

/// Why no certificate can be used with the key.
fn no_leaf(chain: &Chain, key: &dyn SigningKey, paths: &PairPaths) -> CertificateError {
    let public_key = key.public_key();
    let is_of_key = |parsed: &Parsed| {
        public_key
            .as_ref()
            .is_some_and(|it| **it == parsed.public_key[..])
    };
    let Some(at) = chain.iter().position(|(_, parsed)| is_of_key(parsed)) else {
        let certificate = paths.certificate.clone();
        return CertificateError::at(&paths.key, Cause::Mismatch { certificate });
    };
    let (der, parsed) = &chain[at];
    let cause = match parsed.version {
        3 => Cause::Unusable(at + 1, unusable(der)),
        version => Cause::Version {
            number: at + 1,
            version,
            name: parsed.common_name.clone(),
            key: paths.key.clone(),
        },
    };
    CertificateError::at(&paths.certificate, cause)
}

pub(super) fn warn(warnings: &mut Vec<Warning>, path: &Path, kind: WarningKind) {
    warnings.push(Warning {
        path: path.to_owned(),
        kind,
    });
}

/// The bytes and the mode of a file.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, u32), CertificateError> {
    let fail = |error| CertificateError::at(path, Cause::Read(error));
    let file = named_file::open(path).map_err(fail)?;
    let meta = file.metadata().map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(PEM_LEN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > PEM_LEN_MAX {
        let why = format!("longer than {PEM_LEN_MAX} bytes");
        return Err(CertificateError::at(path, Cause::Pem(why)));
    }
    Ok((bytes, meta.mode()))
}

type Chain = Vec<(CertificateDer<'static>, Parsed)>;

fn read_chain(path: &Path, text: &[u8]) -> Result<Chain, CertificateError> {
    let fail = |cause| CertificateError::at(path, cause);
    let mut chain = Chain::new();
    let mut found = None;
    for (kind, der) in sections(path, text)? {
        if kind != SectionKind::Certificate {
            found = found.or(Some(section_name(kind)));
            continue;
        }
        let number = chain.len() + 1;
        if number > CHAIN_LEN_MAX {
            return Err(fail(Cause::TooLong(number)));
        }
        let parsed = facts::parse(&der).map_err(|why| fail(Cause::Malformed(number, why)))?;
        chain.push((CertificateDer::from(der), parsed));
    }
    if chain.is_empty() {
        let trusted = is_trusted(text).then_some(TRUSTED_CERTIFICATE);
        return Err(fail(Cause::NoCertificate(trusted.or(found))));
    }
    Ok(chain)
}

fn read_key(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let fail = |cause| CertificateError::at(path, cause);
    let mut found = None;
    for (kind, der) in sections(path, text)? {
        match kind {
            SectionKind::PrivateKey => return Ok(PrivatePkcs8KeyDer::from(der).into()),
            SectionKind::RsaPrivateKey => return Ok(PrivatePkcs1KeyDer::from(der).into()),
            SectionKind::EcPrivateKey => return Ok(PrivateSec1KeyDer::from(der).into()),
            other => found = found.or(Some(section_name(other))),
        }
    }
    // The library skips sections of these types.
    let has = |needle: &[u8]| text.windows(needle.len()).any(|window| window == needle);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err(fail(Cause::EncryptedKey));
    }
    Err(fail(Cause::NoKey(found)))
}

pub(super) fn sections(
    path: &Path,
    text: &[u8],
) -> Result<Vec<(SectionKind, Vec<u8>)>, CertificateError> {
    let fail = |why: String| CertificateError::at(path, Cause::Pem(why));
    if BYTE_ORDER_MARKS.iter().any(|mark| text.starts_with(mark)) {
        return Err(CertificateError::at(path, Cause::ByteOrderMark));
    }
    if text.trim_ascii().is_empty() {
        return Err(CertificateError::at(path, Cause::Empty));
    }
    let mut rest = text;
    let mut sections = Vec::new();
    loop {
        match pem::from_buf(&mut rest) {
            Ok(Some(section)) => sections.push(section),
            Ok(None) => break,
            Err(error) => {
                // An encrypted key in the traditional form has lines that are not base64.
                let is_encrypted = text
                    .windows(22)
                    .any(|window| window == b"Proc-Type: 4,ENCRYPTED");
                let cause = if is_encrypted {
                    Cause::EncryptedKey
                } else {
                    Cause::Pem(pem_error(&error))
                };
                return Err(CertificateError::at(path, cause));
            }
        }
    }
    let is_text = text.windows(5).any(|window| window == b"-----");
    if sections.is_empty() && is_pkcs12(text) {
        return Err(CertificateError::at(path, Cause::Pkcs12));
    }
    if sections.is_empty() && is_pkcs7(text) {
        return Err(CertificateError::at(path, Cause::Pkcs7));
    }
    if sections.is_empty() && !is_text {
        return Err(fail("no line starts with '-----BEGIN'".into()));
    }
    Ok(sections)
}

/// Describes an error of a PEM file; the library formats its text as numbers.
fn pem_error(error: &pem::Error) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("the line '-----END {}-----' is missing", text(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("the line '{}' starts no section", text(line.trim_ascii()))
        }
        other => other.to_string(),
    }
}

/// Whether this is a PKCS #12 store: a sequence that starts with the number 3 (RFC 7292 section 4).
fn is_pkcs12(bytes: &[u8]) -> bool {
    let [0x30, len, rest @ ..] = bytes else {
        return false;
    };
    let skipped = match len {
        0x81..=0x84 => usize::from(len & 0x0f),
        _ => 0,
    };
    rest.get(skipped..)
        .is_some_and(|content| content.starts_with(&[2, 1, 3, 0x30]))
}

/// Whether this is a PKCS #7 collection: text, or a sequence that starts with the identifier of
/// signed data (RFC 2315 section 14).
fn is_pkcs7(bytes: &[u8]) -> bool {
    const SIGNED_DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02";
    let start = &bytes[..bytes.len().min(SIGNED_DATA.len() + 6)];
    let is_der = start.starts_with(&[0x30])
        && start
            .windows(SIGNED_DATA.len())
            .any(|window| window == SIGNED_DATA);
    let begin = b"-----BEGIN PKCS7-----";
    is_der || bytes.windows(begin.len()).any(|window| window == begin)
}

pub(super) fn section_name(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::Certificate => "certificate",
        SectionKind::PublicKey => "public key",
        SectionKind::RsaPrivateKey | SectionKind::PrivateKey | SectionKind::EcPrivateKey => {
            "private key"
        }
        SectionKind::Crl => "revocation list",
        SectionKind::Csr => "certificate request",
        _ => "section of another kind",
    }
}

/// The chain from the leaf to the last issuer present (RFC 8446 section 4.4.2 requires the leaf
/// first), and the facts of the leaf.
fn put_in_order(
    mut chain: Chain,
    leaf: usize,
    path: &Path,
    warnings: &mut Vec<Warning>,
) -> (Vec<CertificateDer<'static>>, Facts) {
    let mut is_moved = leaf != 0;
    let (der, mut last) = chain.remove(leaf);
    let facts = last.facts.clone();
    let mut ordered = vec![der];
    while !last.is_root() {
        let Some(at) = chain
            .iter()
            .position(|(_, parsed)| parsed.subject == last.issuer)
        else {
            break;
        };
        is_moved |= at != 0;
        let (der, parsed) = chain.remove(at);
        ordered.push(der);
        last = parsed;
    }
    if is_moved {
        warn(warnings, path, WarningKind::WrongOrder);
    }
    if !chain.is_empty() {
        let subjects = chain
            .into_iter()
            .map(|(_, parsed)| parsed.facts.subject)
            .collect();
        warn(warnings, path, WarningKind::Unrelated(subjects));
    }
    if ordered.len() == 1 && last.has_issuer_url && !last.is_root() {
        let issuer = last.facts.issuer;
        warn(warnings, path, WarningKind::NoIntermediate { issuer });
    }
    (ordered, facts)
}

fn check_time(
    facts: &Facts,
    path: &Path,
    options: &LoadOptions,
    warnings: &mut Vec<Warning>,
) -> Result<(), CertificateError> {
    let left = facts.not_after - options.now;
    let is_soon = EXPIRY_WARNING_SECONDS.min((facts.not_after - facts.not_before) / 3);
    let on = facts.validity.1.clone();
    if left < 0 && !options.allow_expired {
        return Err(CertificateError::at(
            path,
            Cause::Expired {
                on,
                ago: lasting(left.unsigned_abs()),
            },
        ));
    }
    if left < 0 {
        warn(warnings, path, WarningKind::HasExpired { on });
    } else if left < is_soon {
        warn(
            warnings,
            path,
            WarningKind::ExpiresSoon {
                on,
                left: lasting(left.unsigned_abs()),
            },
        );
    }
    if options.now < facts.not_before {
        warn(
            warnings,
            path,
            WarningKind::NotYetValid {
                from: facts.validity.0.clone(),
            },
        );
    }
    Ok(())
}

/// What editors for Windows begin a text with: UTF-8, and UTF-16 in either order.
const BYTE_ORDER_MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"];

/// The identifier `prime-field` (RFC 3279 section 2.3.5): it stands in a key only if the curve is
/// written as its parameters.
const PRIME_FIELD: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x01\x01";
