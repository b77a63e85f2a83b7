//! A development certificate: a local authority of this user, and a leaf for this machine.
//!
//! Both are created on first use and kept in one directory (`$XDG_DATA_HOME/gannet/tls`):
//!
//! ```text
//! authority.pem       the authority's certificate: import this one into a browser or a client
//! authority-key.pem   its certificate and key, 0600
//! localhost.pem       the leaf and its key, 0600; renewed well before it expires
//! ```
//!
//! The authority is constrained to the names and addresses of this machine (RFC 5280 section
//! 4.2.1.10): a stolen key cannot be used to impersonate any other site to its user. Files are
//! written atomically, and the first of two servers that start concurrently wins.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
    PKCS_ECDSA_P256_SHA256, SanType,
};

use super::certificates::{CertificateError, Facts, LoadOptions, Pair, PairPaths};

const DAY: i64 = 86_400;
/// Validity of an authority. Importing a new one is a nuisance.
const AUTHORITY_DAYS: i64 = 3650;
/// Validity of a leaf: short, because renewing it costs nothing.
const LEAF_DAYS: i64 = 90;
/// A leaf with fewer days left is renewed.
const LEAF_RENEW_DAYS: i64 = 30;
/// An authority with fewer days left than a leaf's validity is renewed.
const AUTHORITY_RENEW_DAYS: i64 = LEAF_DAYS + 1;

/// A development certificate, ready to be loaded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Development {
    /// Leaf and key.
    pub pair: PairPaths,
    /// The authority's certificate, for import into a client.
    pub authority: PathBuf,
    /// SHA-256 of the authority's certificate, as browsers show it.
    pub authority_fingerprint: String,
    /// SHA-256 of the leaf, as browsers show it.
    pub fingerprint: String,
    /// The names and addresses of the leaf.
    pub names: Vec<String>,
    /// Requested names that the existing authority is not permitted to certify. Removing its
    /// directory creates a new authority.
    pub left_out: Vec<String>,
    /// The authority was created just now, so no client trusts it yet.
    pub is_new: bool,
}

/// Why there is no development certificate.
#[derive(Debug)]
pub enum DevelopmentError {
    /// Neither `XDG_DATA_HOME` nor `HOME` is set.
    NoDirectory,
    /// A file cannot be read or written.
    File(PathBuf, io::Error),
    /// An existing file is corrupt.
    Damaged(PathBuf, String),
    /// The certificate cannot be created.
    Make(String),
}

impl fmt::Display for DevelopmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot make a certificate for development: ")?;
        match self {
            Self::NoDirectory => f.write_str("neither XDG_DATA_HOME nor HOME is set"),
            Self::File(path, error) => {
                let cause = gannet_io::cause::cause(error);
                write!(f, "'{}': {cause}", path.display())
            }
            Self::Damaged(path, why) => write!(f, "'{}' is damaged: {why}", path.display()),
            Self::Make(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DevelopmentError {}

impl DevelopmentError {
    /// How to fix it, if known.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::NoDirectory => Some("set XDG_DATA_HOME, or name a certificate and key".into()),
            Self::File(..) => Some("set XDG_DATA_HOME to a directory that can be written".into()),
            Self::Damaged(path, _) => {
                let directory = path.parent().unwrap_or(path).display();
                Some(format!(
                    "remove '{directory}', and import the new authority"
                ))
            }
            Self::Make(_) => None,
        }
    }
}

/// The directory for development certificates, from the environment of the process.
#[must_use]
pub fn default_directory() -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    Some(data?.join("gannet/tls"))
}

/// The names of this machine: `localhost` and its host name.
#[must_use]
pub fn machine_names() -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    if let Ok(text) = fs::read_to_string("/proc/sys/kernel/hostname") {
        let name = text.trim().to_ascii_lowercase();
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        if !name.is_empty() && name.len() <= 253 && name.bytes().all(is_plain) {
            names.push(name);
        }
    }
    names.dedup();
    names
}

/// Finds or creates the certificate in `directory`, valid for `names` and the loopback addresses,
/// at `now` (Unix seconds).
///
/// # Errors
/// [`DevelopmentError`]
pub fn prepare(
    directory: &Path,
    names: &[String],
    now: i64,
) -> Result<Development, DevelopmentError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .map_err(|e| DevelopmentError::File(directory.to_owned(), e))?;
    let (authority, is_new) = Authority::find(directory, names, now)?;
    let exported = directory.join("authority.pem");
    let is_exported = fs::read_to_string(&exported).is_ok_and(|text| text == authority.certificate);
    if !is_exported {
        replace(&exported, authority.certificate.as_bytes(), 0o644)?;
    }
    let (names, left_out): (Vec<_>, Vec<_>) = names
        .iter()
        .cloned()
        .partition(|name| authority.permits(name));
    let path = directory.join("localhost.pem");
    let facts = match find_leaf(&path, &authority, &names, now) {
        Some(facts) => facts,
        None => {
            let text = authority.issue(&names, now)?;
            replace(&path, text.as_bytes(), 0o600)?;
            read_pair(&path, now)?
        }
    };
    let addresses = loopback().map(|address| address.to_string());
    Ok(Development {
        pair: PairPaths {
            certificate: path.clone(),
            key: path,
        },
        authority: exported,
        authority_fingerprint: authority.facts.fingerprint_text(),
        fingerprint: facts.fingerprint_text(),
        names: names.into_iter().chain(addresses).collect(),
        left_out,
        is_new,
    })
}

fn loopback() -> [IpAddr; 2] {
    [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ]
}

/// The local authority.
struct Authority {
    /// PEM.
    certificate: String,
    key: KeyPair,
    facts: Facts,
    permitted: Vec<String>,
}

impl Authority {
    /// The authority of the directory, created if there is none, and whether it was created just
    /// now.
    fn find(
        directory: &Path,
        names: &[String],
        now: i64,
    ) -> Result<(Self, bool), DevelopmentError> {
        let path = directory.join("authority-key.pem");
        match fs::read_to_string(&path) {
            Ok(text) => {
                let found = Self::parse(&path, &text, now)?;
                if found.facts.not_after - now >= AUTHORITY_RENEW_DAYS * DAY {
                    return Ok((found, false));
                }
                replace(&path, Self::make(names, now)?.as_bytes(), 0o600)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_new(&path, Self::make(names, now)?.as_bytes())?;
            }
            Err(error) => return Err(DevelopmentError::File(path, error)),
        }
        let text = fs::read_to_string(&path)
            .map_err(|error| DevelopmentError::File(path.clone(), error))?;
        Ok((Self::parse(&path, &text, now)?, true))
    }

    fn parse(path: &Path, text: &str, now: i64) -> Result<Self, DevelopmentError> {
        let damaged = |why: String| DevelopmentError::Damaged(path.to_owned(), why);
        let pair = pair_of(path, text.as_bytes(), now).map_err(|e| damaged(e.to_string()))?;
        let key_at = text.find("-----BEGIN PRIVATE KEY-----").unwrap_or(0);
        let key = KeyPair::from_pem(&text[key_at..]).map_err(|error| damaged(error.to_string()))?;
        let end = "-----END CERTIFICATE-----\n";
        let start = text.find("-----BEGIN CERTIFICATE-----");
        let range = start.zip(text.find(end).map(|at| at + end.len()));
        let certificate = range
            .and_then(|(start, end)| text.get(start..end))
            .ok_or_else(|| damaged("no certificate".into()))?;
        let permitted = permitted_names(certificate).ok_or_else(|| damaged("no names".into()))?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key,
            facts: pair.facts,
            permitted,
        })
    }

    /// Creates an authority; returns its certificate and key as PEM.
    fn make(names: &[String], now: i64) -> Result<String, DevelopmentError> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // The number distinguishes successive authorities.
        let number = now.to_string();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "gannet");
        let name = format!("gannet development authority {number}");
        params.distinguished_name.push(DnType::CommonName, name);
        set_validity(&mut params, now, AUTHORITY_DAYS);
        let mut permitted: Vec<_> = names
            .iter()
            .map(|name| GeneralSubtree::DnsName(name.clone()))
            .collect();
        permitted.push(GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(
            [127, 0, 0, 0],
            8,
        )));
        let v6 = Ipv6Addr::LOCALHOST.octets();
        permitted.push(GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(
            v6, 128,
        )));
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: permitted,
            excluded_subtrees: Vec::new(),
        });
        let certificate = params.self_signed(&key).map_err(make_error)?;
        Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
    }

    fn permits(&self, name: &str) -> bool {
        let is_below = |base: &String| {
            name.strip_suffix(base.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.permitted.iter().any(is_below)
    }

    /// Creates a leaf; returns its certificate and key as PEM.
    fn issue(&self, names: &[String], now: i64) -> Result<String, DevelopmentError> {
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, &self.key).map_err(make_error)?;
        let key = new_key()?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(make_error)?;
        params
            .subject_alt_names
            .extend(loopback().map(SanType::IpAddress));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "gannet development certificate");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, LEAF_DAYS);
        let certificate = params.signed_by(&key, &issuer).map_err(make_error)?;
        Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
    }
}

fn new_key() -> Result<KeyPair, DevelopmentError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make_error)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "used as a function of map_err"
)]
fn make_error(error: rcgen::Error) -> DevelopmentError {
    DevelopmentError::Make(error.to_string())
}

/// Valid from yesterday, for clocks that are behind.
fn set_validity(params: &mut CertificateParams, now: i64, days: i64) {
    let at = |seconds: i64| {
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds.unsigned_abs())
    };
    params.not_before = at((now - DAY).max(0));
    params.not_after = at((now + days * DAY).max(0));
}

/// The DNS names that an authority is constrained to.
fn permitted_names(certificate: &str) -> Option<Vec<String>> {
    use x509_parser::extensions::GeneralName;
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let constraints = certificate.name_constraints().ok()??;
    let permitted = constraints.value.permitted_subtrees.as_ref()?;
    let names = permitted.iter().filter_map(|subtree| match subtree.base {
        GeneralName::DNSName(name) => Some(name.to_owned()),
        _ => None,
    });
    Some(names.collect())
}

/// The existing leaf, if it is still valid for all names.
fn find_leaf(path: &Path, authority: &Authority, names: &[String], now: i64) -> Option<Facts> {
    let facts = read_pair(path, now).ok()?;
    let is_ours = facts.issuer == authority.facts.subject;
    let is_fresh = facts.not_after - now >= LEAF_RENEW_DAYS * DAY && facts.not_before <= now;
    let is_whole = names
        .iter()
        .all(|name| facts.names.iter().any(|have| **have == **name));
    (is_ours && is_fresh && is_whole && facts.has_addresses).then_some(facts)
}

fn read_pair(path: &Path, now: i64) -> Result<Facts, DevelopmentError> {
    let text = fs::read(path).map_err(|error| DevelopmentError::File(path.to_owned(), error))?;
    let pair = pair_of(path, &text, now);
    pair.map(|pair| pair.facts)
        .map_err(|error| DevelopmentError::Damaged(path.to_owned(), error.to_string()))
}

fn pair_of(path: &Path, text: &[u8], now: i64) -> Result<Pair, CertificateError> {
    let paths = PairPaths {
        certificate: path.to_owned(),
        key: path.to_owned(),
    };
    // An expired one is not corrupt: it is renewed.
    let options = LoadOptions {
        allow_expired: true,
        now,
    };
    Pair::from_pem(&paths, text, text, &options, &mut Vec::new())
}

/// Writes a file atomically, replacing an older one.
fn replace(path: &Path, text: &[u8], mode: u32) -> Result<(), DevelopmentError> {
    let fail = |error| DevelopmentError::File(path.to_owned(), error);
    let beside = write_beside(path, text, mode).map_err(fail)?;
    fs::rename(&beside, path).map_err(fail)
}

/// Writes a file unless one exists, which is kept.
fn create_new(path: &Path, text: &[u8]) -> Result<(), DevelopmentError> {
    let fail = |error| DevelopmentError::File(path.to_owned(), error);
    let beside = write_beside(path, text, 0o600).map_err(fail)?;
    let linked = fs::hard_link(&beside, path);
    fs::remove_file(&beside).map_err(fail)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(fail(error)),
        _ => Ok(()),
    }
}

fn write_beside(path: &Path, text: &[u8], mode: u32) -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{count}.new", std::process::id()));
    // Left over from a killed process with the same number.
    let _ = fs::remove_file(&beside);
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    file.write_all(text)?;
    file.sync_all()?;
    Ok(beside)
}

#[cfg(test)]
mod tests;
