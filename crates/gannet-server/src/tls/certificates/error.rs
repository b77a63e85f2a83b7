//! Errors and warnings of certificates and keys, with help for the operator.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_io::sandbox::{HIDDEN, is_hidden};

use super::authorities::{PKCS12, TRUSTED_CERTIFICATE};
use crate::bounds::tls::{
    AUTHORITIES_MAX, AUTHORITIES_OF_ONE_NAME_MAX, CHAIN_LEN_MAX, CHALLENGES_MAX, PAIRS_MAX,
};

/// An unusable pair.
#[derive(Debug)]
pub struct CertificateError {
    /// The file, if the pair came from one.
    pub path: Option<PathBuf>,
    /// The defect.
    pub cause: Cause,
}

/// The defect of a pair.
#[derive(Debug)]
pub enum Cause {
    /// No certificate was given.
    NonePairs,
    /// More pairs than a server supports.
    TooManyPairs(usize),
    /// The folder has more challenges of ACME servers than are answered.
    TooManyChallenges,
    /// The file cannot be read.
    Read(io::Error),
    /// The file is empty, as while it is written, or where a disk was full.
    Empty,
    /// The file is not PEM, or is corrupt.
    Pem(String),
    /// The file is a PKCS #12 store (`.p12`, `.pfx`).
    Pkcs12,
    /// The file contains a certificate but no private key, and no other file was named for the key.
    OnlyCertificate,
    /// The file contains a private key but no certificate, and no other file was named for the
    /// certificate.
    OnlyKey,
    /// The certificate (counted from one) that matches the key is of an X.509 version that cannot
    /// contain host names.
    Version {
        /// Number of the certificate in the file.
        number: usize,
        /// Its X.509 version.
        version: u32,
        /// Its common name.
        name: Option<String>,
        /// Path of its key.
        key: PathBuf,
    },
    /// The certificate (counted from one) that matches the key is unusable.
    Unusable(usize, String),
    /// The file contains no certificate; what it contains instead.
    NoCertificate(Option<&'static str>),
    /// The file contains no certificate of an authority; what it contains instead.
    NoAuthority(Option<&'static str>),
    /// Too many authorities.
    TooManyAuthorities,
    /// Too many authorities of this name.
    TooManyOfOneName(String),
    /// The certificate (counted from one) with this subject cannot issue others.
    OfNoAuthority(usize, String),
    /// The certificate file contains a private key, and the key file a certificate.
    Exchanged,
    /// The file is a PKCS #7 collection of certificates (`.p7b`).
    Pkcs7,
    /// The file contains no private key; what it contains instead.
    NoKey(Option<&'static str>),
    /// The private key is protected by a passphrase.
    EncryptedKey,
    /// Too many certificates in one file.
    TooLong(usize),
    /// A certificate (counted from one) cannot be parsed.
    Malformed(usize, String),
    /// The kind or length of the private key is unsupported.
    UnusableKey,
    /// The curve of the private key is written as its parameters, not by its name.
    ExplicitCurve,
    /// The text starts with a byte order mark.
    ByteOrderMark,
    /// The key matches none of the certificates.
    Mismatch {
        /// Path of the certificates.
        certificate: PathBuf,
    },
    /// The certificate has expired.
    Expired {
        /// Date of expiry.
        on: String,
        /// How long ago.
        ago: String,
    },
    /// The TLS library rejects it.
    Library(String),
}

impl CertificateError {
    pub(in crate::tls) fn at(path: &Path, cause: Cause) -> Self {
        Self {
            path: Some(path.to_owned()),
            cause,
        }
    }

    /// Adapts the error if one file was named for both.
    pub(super) fn in_one_file(mut self, is_one: bool) -> Self {
        self.cause = match self.cause {
            Cause::NoKey(Some("certificate")) if is_one => Cause::OnlyCertificate,
            Cause::NoCertificate(Some("private key")) if is_one => Cause::OnlyKey,
            cause => cause,
        };
        self
    }

    pub(in crate::tls) fn none() -> Self {
        Self {
            path: None,
            cause: Cause::NonePairs,
        }
    }

    fn is_hidden(&self, error: &io::Error) -> bool {
        let path = self.path.as_deref();
        path.is_some_and(|path| is_hidden(path, false, error))
    }

    /// The file, quoted for a shell.
    fn shown_path(&self) -> String {
        let path = self.path.as_deref().unwrap_or(Path::new("FILE"));
        quoted(&path.to_string_lossy())
    }

    /// How to convert a file of another format, if this is one.
    fn conversion(&self) -> Option<String> {
        let file = self.shown_path();
        Some(match &self.cause {
            Cause::Pem(_) => {
                format!(
                    "certificates and keys are read as PEM: text with lines '-----BEGIN ...-----'; \
                     a DER file is converted by 'openssl x509 -inform DER -in {file} -out site.pem', \
                     or 'openssl pkey -inform DER -in {file} -out site.key' if it is a key"
                )
            }
            Cause::Pkcs7 => {
                format!(
                    "convert it by 'openssl pkcs7 -print_certs -in {file} -out site.pem', with \
                     '-inform DER' if it is not text; it has no key: that is a file of its own"
                )
            }
            Cause::Pkcs12 => {
                format!(
                    "convert it by 'openssl pkcs12 -in {file} -nodes -out site.pem', protect the new \
                     file by its permissions, and use it as certificate (--tls-cert site.pem): it \
                     has the key, too"
                )
            }
            Cause::NoCertificate(Some(TRUSTED_CERTIFICATE)) => {
                format!("convert it by 'openssl x509 -in {file} -out site.pem'")
            }
            Cause::NoAuthority(Some(PKCS12)) => {
                format!("convert it by 'openssl pkcs12 -in {file} -nokeys -cacerts -out ca.pem'")
            }
            Cause::NoAuthority(Some(TRUSTED_CERTIFICATE)) => {
                format!("convert it by 'openssl x509 -in {file} -out ca.pem'")
            }
            _ => return None,
        })
    }

    /// How to fix it, if known.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        Some(match &self.cause {
            Cause::NonePairs => "name a certificate and its key".into(),
            Cause::TooManyChallenges => {
                "remove what no 'gannet acme' that runs has put there: each has one at a time"
                    .into()
            }
            Cause::TooManyPairs(_)
            | Cause::TooLong(_)
            | Cause::TooManyAuthorities
            | Cause::Library(_) => return None,
            Cause::Read(error) => match error.kind() {
                io::ErrorKind::NotFound => "check the path".into(),
                _ if self.is_hidden(error) => HIDDEN.into(),
                io::ErrorKind::PermissionDenied => {
                    "let the user that gannet runs as read the file".into()
                }
                io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
                    "name the file itself, in PEM form".into()
                }
                _ => return None,
            },
            Cause::Pem(_)
            | Cause::Pkcs7
            | Cause::Pkcs12
            | Cause::NoCertificate(Some(TRUSTED_CERTIFICATE))
            | Cause::NoAuthority(Some(PKCS12 | TRUSTED_CERTIFICATE)) => return self.conversion(),
            Cause::Empty => "was it copied completely, and is its disk full?".into(),
            Cause::OnlyCertificate => {
                "name the file with its private key, too: --tls-key FILE".into()
            }
            Cause::OnlyKey => format!(
                "name the certificate by --tls-cert FILE, and this file by --tls-key {}",
                self.shown_path()
            ),
            Cause::Version { name, key, .. } => make_line(name.as_deref(), key),
            Cause::Unusable(..) => "ask your certificate authority for another one".into(),
            Cause::Exchanged => "this is the key: exchange the certificate and the key".into(),
            Cause::NoCertificate(_) => "give the file with the certificate chain".into(),
            Cause::TooManyOfOneName(_) => "leave out those that issue no more".into(),
            Cause::OfNoAuthority(..) => {
                "give the certificate of the authority that issues those of clients: it says \
                 'CA:TRUE'"
                    .into()
            }
            Cause::NoAuthority(_) => {
                "give the file with the certificate of the authority that issues those of clients"
                    .into()
            }
            Cause::NoKey(_) => "give the file with the private key".into(),
            Cause::EncryptedKey => {
                "remove the passphrase with 'openssl pkey -in FILE -out NEW', and protect the new \
                 file by its permissions"
                    .into()
            }
            Cause::Malformed(..) => "ask your certificate authority for the file again".into(),
            Cause::UnusableKey => {
                "supported are ECDSA (P-256, P-384, P-521), Ed25519 and RSA from 2048 bits".into()
            }
            Cause::ExplicitCurve => format!(
                "name the curve by 'openssl ec -in {} -param_enc named_curve -out site.key'",
                self.shown_path()
            ),
            Cause::ByteOrderMark => {
                "save it as plain text, as ASCII or as UTF-8 without a byte order mark".into()
            }
            Cause::Mismatch { .. } => "give the key that the certificate was requested with".into(),
            Cause::Expired { .. } => "renew the certificate".into(),
        })
    }
}

/// A name for an example, quoted for a shell if necessary.
fn quoted(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._/".contains(&b);
    match text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("\"{}\"", text.escape_default()),
    }
}

/// The command that creates a certificate accepted by browsers, for the same key.
fn make_line(name: Option<&str>, key: &Path) -> String {
    let is_host = |name: &&str| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        !name.is_empty() && name.bytes().all(is_plain)
    };
    let name = name.filter(is_host).unwrap_or("localhost");
    let key = quoted(&key.to_string_lossy());
    format!(
        "make one of version 3: 'openssl req -x509 -new -key {key} -days 365 -subj /CN={name} \
         -addext subjectAltName=DNS:{name} -out new.pem'; an authority that signs by 'openssl x509 \
         -req' adds '-copy_extensions copy'"
    )
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            let verb = if matches!(self.cause, Cause::Read(_)) {
                "read"
            } else {
                "use"
            };
            write!(f, "cannot {verb} '{}': ", path.display())?;
        }
        write!(f, "{}", self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonePairs => f.write_str("no certificate was given"),
            Self::TooManyPairs(count) => {
                write!(f, "{count} certificates, at most {PAIRS_MAX} can be used")
            }
            Self::TooManyChallenges => {
                write!(f, "it has more than {CHALLENGES_MAX} challenges")
            }
            Self::Read(error) => f.write_str(&gannet_io::cause::cause(error)),
            Self::Empty => f.write_str("it is empty"),
            Self::Pem(why) => write!(f, "not a PEM file: {why}"),
            Self::Pkcs12 => f.write_str("a PKCS #12 store, not a PEM file"),
            Self::OnlyCertificate => f.write_str("it has a certificate and no private key"),
            Self::OnlyKey => f.write_str("it has a private key and no certificate"),
            Self::Version {
                number, version, ..
            } => write!(
                f,
                "certificate {number} of the file is of X.509 version {version}, which has no host \
                 names; clients want version 3"
            ),
            Self::Unusable(number, why) => {
                write!(f, "certificate {number} of the file cannot be used: {why}")
            }
            Self::Pkcs7 => f.write_str("a PKCS #7 collection of certificates, not a PEM file"),
            Self::Exchanged => missing(f, "certificate", Some("private key")),
            Self::NoCertificate(found) => missing(f, "certificate", *found),
            Self::NoAuthority(found) => missing(f, "certificate of an authority", *found),
            Self::TooManyAuthorities => {
                write!(f, "more than {AUTHORITIES_MAX} authorities")
            }
            Self::TooManyOfOneName(name) => {
                write!(
                    f,
                    "more than {AUTHORITIES_OF_ONE_NAME_MAX} authorities are called '{name}'"
                )
            }
            Self::OfNoAuthority(number, subject) => write!(
                f,
                "certificate {number} of the file ({subject}) is not one of an authority"
            ),
            Self::NoKey(found) => missing(f, "private key", *found),
            Self::EncryptedKey => f.write_str("the private key is protected by a passphrase"),
            Self::TooLong(count) => {
                write!(
                    f,
                    "{count} certificates in one file, at most {CHAIN_LEN_MAX} make sense"
                )
            }
            Self::Malformed(number, why) => {
                write!(
                    f,
                    "certificate {number} of the file cannot be parsed: {why}"
                )
            }
            Self::UnusableKey => {
                f.write_str("the private key is of a kind or a length that is not supported")
            }
            Self::ExplicitCurve => f.write_str(
                "the curve of the private key is given by explicit parameters, not by its name",
            ),
            Self::ByteOrderMark => f.write_str("not a PEM file: it starts with a byte order mark"),
            Self::Mismatch { certificate } => {
                write!(f, "the key does not belong to '{}'", certificate.display())
            }
            Self::Expired { on, ago } => {
                write!(f, "the certificate expired on {on}, {ago} ago")
            }
            Self::Library(why) => f.write_str(why),
        }
    }
}

fn missing(f: &mut fmt::Formatter<'_>, wanted: &str, found: Option<&str>) -> fmt::Result {
    match found {
        Some(found) => write!(f, "no {wanted} in the file (found a {found})"),
        None => write!(f, "no {wanted} in the file"),
    }
}

impl std::error::Error for CertificateError {}

/// A warning about a pair that is used nevertheless.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// The file.
    pub path: PathBuf,
    /// The kind of warning.
    pub kind: WarningKind,
}

/// The kind of warning.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WarningKind {
    /// It expires in less than two weeks, and in less than a third of its lifetime.
    ExpiresSoon {
        /// Date of expiry.
        on: String,
        /// How long until then.
        left: String,
    },
    /// It has expired, and is used all the same, but in no valid one's place.
    HasExpired {
        /// Date of expiry.
        on: String,
    },
    /// It has been ordered, and is not there yet.
    Awaited,
    /// The file of a certificate that has been ordered is gone; what was read before stays in use.
    Gone,
    /// The file of a certificate that has been ordered cannot be used, and is waited for.
    Unusable {
        /// Why, without the path.
        why: String,
    },
    /// The same, and it is in use no more, since there are too many others.
    Dropped,
    /// The folder has more files than are read.
    TooMany,
    /// The folder cannot be read; what was read of it before stays in use.
    UnreadableFolder {
        /// Why, without the path.
        why: String,
    },
    /// There is no folder of certificates that are ordered.
    NoFolder,
    /// It is not valid yet: usually because of a wrong clock.
    NotYetValid {
        /// Start of validity.
        from: String,
    },
    /// The certificates were not in order from the leaf to the root.
    WrongOrder,
    /// Certificates (subjects) that do not belong to the chain were omitted.
    Unrelated(Vec<String>),
    /// The leaf is from an authority that signs with intermediates, and the file contains none.
    NoIntermediate {
        /// The issuer.
        issuer: String,
    },
    /// It has no names that a browser would accept.
    NoNames,
    /// An authority of clients has expired, and is left out.
    AuthorityHasExpired {
        /// Its subject.
        subject: String,
        /// Date of expiry.
        on: String,
    },
    /// The file of an authority of clients has a private key, too.
    KeyOfAuthority,
    /// Any user of this machine can read the private key.
    WorldReadable {
        /// The permission bits.
        mode: u32,
    },
}

impl WarningKind {
    /// Whether the certificate in use is an earlier one, or there is none.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(
            self,
            Self::Gone
                | Self::Dropped
                | Self::Unusable { .. }
                | Self::TooMany
                | Self::UnreadableFolder { .. }
        )
    }
}

impl Warning {
    /// How to fix it.
    #[must_use]
    pub fn help(&self) -> String {
        let path = self.path.display();
        match &self.kind {
            WarningKind::ExpiresSoon { .. } | WarningKind::HasExpired { .. } => {
                "renew the certificate; the files are read again when they change".into()
            }
            WarningKind::Awaited => "handshakes fail until 'gannet acme' has got it".into(),
            WarningKind::Gone => {
                "the certificate stays in use until a restart, unless there is a new one, or others \
                need its place"
                    .into()
            }
            WarningKind::Dropped => {
                let max = crate::bounds::tls::FOLDER_PAIRS_MAX;
                format!("at most {max} are in use; put it back in place of another one")
            }
            WarningKind::UnreadableFolder { .. } => {
                "let the server's user read it, and restart the server if it was made after the start: a \
                sandbox may not reach it; certificates in use stay so"
                    .into()
            }
            WarningKind::Unusable { .. } => {
                "'gannet acme' replaces it; what was read of it before stays in use".into()
            }
            WarningKind::NoFolder => {
                "start 'gannet acme' first, which makes it: a sandbox may not reach \
                one that is made later"
                    .into()
            }
            WarningKind::TooMany => "move elsewhere those of hosts that are no longer served".into(),
            WarningKind::NotYetValid { .. } => "check the clock".into(),
            WarningKind::WrongOrder => {
                format!("it was put right; sort '{path}' from the server's certificate to the root")
            }
            WarningKind::Unrelated(_) => format!("remove them from '{path}'"),
            WarningKind::NoIntermediate { .. } => {
                "use the file with the whole chain ('fullchain.pem')".into()
            }
            WarningKind::NoNames => {
                "request a certificate with subject alternative names; common names do not count"
                    .into()
            }
            WarningKind::AuthorityHasExpired { .. } => {
                format!("clients with its certificates are refused; remove it from '{path}'")
            }
            WarningKind::KeyOfAuthority => "keep it on another machine: a user who reads it makes \
                certificates of clients"
                .into(),
            WarningKind::WorldReadable { .. } => format!("chmod 600 '{path}'"),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': ", self.path.display())?;
        match &self.kind {
            WarningKind::ExpiresSoon { on, left } => {
                write!(f, "the certificate expires in {left}, on {on}")
            }
            WarningKind::HasExpired { on } => write!(f, "the certificate expired on {on}"),
            WarningKind::Awaited => f.write_str("there is no certificate yet"),
            WarningKind::Gone => f.write_str("the file of a certificate in use is gone"),
            WarningKind::Dropped => {
                f.write_str("the certificate is no longer in use: its file is gone")
            }
            WarningKind::UnreadableFolder { why } => write!(f, "cannot be read: {why}"),
            WarningKind::Unusable { why } => write!(f, "cannot be used: {why}"),
            WarningKind::NoFolder => f.write_str("there is no such folder"),
            WarningKind::TooMany => {
                let max = crate::bounds::tls::FOLDER_PAIRS_MAX;
                write!(
                    f,
                    "more than {max} certificates, and the others are not used"
                )
            }
            WarningKind::NotYetValid { from } => {
                write!(f, "the certificate is not valid before {from}")
            }
            WarningKind::WrongOrder => f.write_str("the certificates are in the wrong order"),
            WarningKind::Unrelated(subjects) => {
                write!(
                    f,
                    "not part of the chain, left out: {}",
                    subjects.join("; ")
                )
            }
            WarningKind::NoIntermediate { issuer } => {
                write!(f, "the certificate of the issuer ({issuer}) is missing")
            }
            WarningKind::NoNames => f.write_str("the certificate has no host names"),
            WarningKind::AuthorityHasExpired { subject, on } => {
                write!(f, "the authority ({subject}) expired on {on}")
            }
            WarningKind::KeyOfAuthority => f.write_str("it has a private key of an authority"),
            WarningKind::WorldReadable { mode } => {
                write!(f, "every user can read the private key (mode {mode:03o})")
            }
        }
    }
}
