//! What can be wrong with a certificate or a key, in words that say what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A pair that cannot be used.
#[derive(Debug)]
pub struct CertificateError {
    /// The file, if it came from one.
    pub path: Option<PathBuf>,
    /// What is wrong.
    pub cause: Cause,
}

/// What is wrong with a pair.
#[derive(Debug)]
pub enum Cause {
    /// No certificate was given.
    NonePairs,
    /// More pairs than a server takes.
    TooManyPairs(usize),
    /// The file cannot be read.
    Read(io::Error),
    /// The file is not PEM, or damaged.
    Pem(String),
    /// The file is a PKCS #12 store (`.p12`, `.pfx`).
    Pkcs12,
    /// There is a certificate in the file, no private key, and no other file was named for it.
    OnlyCertificate,
    /// There is a private key in the file, no certificate, and no other file was named for it.
    OnlyKey,
    /// The certificate (counted from one) that the key belongs to has a form in which it cannot
    /// name a host.
    Version {
        /// Which certificate of the file.
        number: usize,
        /// The version of its form.
        version: u32,
        /// The name that it has.
        name: Option<String>,
        /// Where its key is.
        key: PathBuf,
    },
    /// The certificate (counted from one) that the key belongs to cannot be used.
    Unusable(usize, String),
    /// There is no certificate in the file; what there is instead.
    NoCertificate(Option<&'static str>),
    /// The file of the certificate has a private key, and that of the key a certificate.
    Exchanged,
    /// The file is a PKCS #7 collection of certificates (`.p7b`).
    Pkcs7,
    /// There is no private key in the file; what there is instead.
    NoKey(Option<&'static str>),
    /// The private key is protected by a passphrase.
    EncryptedKey,
    /// Too many certificates in one file.
    TooLong(usize),
    /// A certificate (counted from one) cannot be parsed.
    Malformed(usize, String),
    /// The private key is of a kind or a length that is not used.
    UnusableKey,
    /// The key belongs to none of the certificates.
    Mismatch {
        /// Where the certificates are.
        certificate: PathBuf,
    },
    /// The certificate is not valid any more.
    Expired {
        /// Since when.
        on: String,
        /// Days since then.
        days: i64,
    },
    /// The TLS library does not take it.
    Library(String),
}

impl CertificateError {
    pub(super) fn at(path: &Path, cause: Cause) -> Self {
        Self {
            path: Some(path.to_owned()),
            cause,
        }
    }

    /// The same where one file was named for both.
    pub(super) fn in_one_file(mut self, is_one: bool) -> Self {
        self.cause = match self.cause {
            Cause::NoKey(Some("certificate")) if is_one => Cause::OnlyCertificate,
            Cause::NoCertificate(Some("private key")) if is_one => Cause::OnlyKey,
            cause => cause,
        };
        self
    }

    pub(super) fn none() -> Self {
        Self {
            path: None,
            cause: Cause::NonePairs,
        }
    }

    /// The file, for a line that is typed into a shell.
    fn shown_path(&self) -> String {
        let path = self.path.as_deref().unwrap_or(Path::new("FILE"));
        quoted(&path.to_string_lossy())
    }

    /// What to do about it, if we know.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        Some(match &self.cause {
            Cause::NonePairs => "name a certificate and its key".into(),
            Cause::TooManyPairs(_) | Cause::TooLong(_) | Cause::Library(_) => return None,
            Cause::Read(error) => match error.kind() {
                io::ErrorKind::NotFound => "check the path".into(),
                io::ErrorKind::PermissionDenied => {
                    "let the user that gannet runs as read the file".into()
                }
                io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
                    "name the file itself, in PEM form".into()
                }
                _ => return None,
            },
            Cause::Pem(_) => {
                let file = self.shown_path();
                format!(
                    "certificates and keys are read as PEM: text with lines '-----BEGIN ...-----'; \
                     a DER file is converted by 'openssl x509 -inform DER -in {file} -out site.pem', \
                     or 'openssl pkey -inform DER -in {file} -out site.key' if it is a key"
                )
            }
            Cause::Pkcs7 => {
                let file = self.shown_path();
                format!(
                    "convert it by 'openssl pkcs7 -print_certs -in {file} -out site.pem', with \
                     '-inform DER' if it is not text; it has no key: that is a file of its own"
                )
            }
            Cause::Pkcs12 => {
                let file = self.shown_path();
                format!(
                    "convert it by 'openssl pkcs12 -in {file} -nodes -out site.pem', protect the new \
                     file by its permissions, and use it as certificate (--tls-cert site.pem): it \
                     has the key, too"
                )
            }
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
            Cause::Mismatch { .. } => "give the key that the certificate was requested with".into(),
            Cause::Expired { .. } => "renew the certificate".into(),
        })
    }
}

/// A name for an example, quoted for a shell where it has to be.
fn quoted(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._/".contains(&b);
    match text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("\"{}\"", text.escape_default()),
    }
}

/// The line that makes a certificate that browsers take, for the same key.
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
        match &self.cause {
            Cause::NonePairs => f.write_str("no certificate was given"),
            Cause::TooManyPairs(count) => {
                let max = super::super::limits::PAIRS_MAX;
                write!(f, "{count} certificates, at most {max} can be used")
            }
            Cause::Read(error) => f.write_str(&gannet_io::cause::cause(error)),
            Cause::Pem(why) => write!(f, "not a PEM file: {why}"),
            Cause::Pkcs12 => f.write_str("a PKCS #12 store, not a PEM file"),
            Cause::OnlyCertificate => f.write_str("it has a certificate and no private key"),
            Cause::OnlyKey => f.write_str("it has a private key and no certificate"),
            Cause::Version {
                number, version, ..
            } => write!(
                f,
                "certificate {number} of the file is of X.509 version {version}, which has no host \
                 names; clients want version 3"
            ),
            Cause::Unusable(number, why) => {
                write!(f, "certificate {number} of the file cannot be used: {why}")
            }
            Cause::Pkcs7 => f.write_str("a PKCS #7 collection of certificates, not a PEM file"),
            Cause::Exchanged => missing(f, "certificate", Some("private key")),
            Cause::NoCertificate(found) => missing(f, "certificate", *found),
            Cause::NoKey(found) => missing(f, "private key", *found),
            Cause::EncryptedKey => f.write_str("the private key is protected by a passphrase"),
            Cause::TooLong(count) => {
                let max = super::super::limits::CHAIN_LEN_MAX;
                write!(
                    f,
                    "{count} certificates in one file, at most {max} make sense"
                )
            }
            Cause::Malformed(number, why) => {
                write!(
                    f,
                    "certificate {number} of the file cannot be parsed: {why}"
                )
            }
            Cause::UnusableKey => {
                f.write_str("the private key is of a kind or a length that is not supported")
            }
            Cause::Mismatch { certificate } => {
                write!(f, "the key does not belong to '{}'", certificate.display())
            }
            Cause::Expired { on, days } => {
                write!(f, "the certificate expired on {on}, {days} days ago")
            }
            Cause::Library(why) => f.write_str(why),
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

/// Something about a pair that an operator should know; it is used all the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// The file.
    pub path: PathBuf,
    /// What it is.
    pub kind: WarningKind,
}

/// What an operator should know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WarningKind {
    /// Less than two weeks are left.
    ExpiresSoon {
        /// When.
        on: String,
        /// Whole days until then.
        days: i64,
    },
    /// It has expired, and is used because it was asked for.
    HasExpired {
        /// When.
        on: String,
    },
    /// Its time has not come: a wrong clock, usually.
    NotYetValid {
        /// From when on it is valid.
        from: String,
    },
    /// The certificates were in another order than from the leaf to the root.
    WrongOrder,
    /// Certificates (subjects) that do not belong to the chain were left out.
    Unrelated(Vec<String>),
    /// The leaf is from an authority that signs with intermediates, and none is in the file.
    NoIntermediate {
        /// The issuer.
        issuer: String,
    },
    /// There are no names that a browser would accept.
    NoNames,
    /// Everybody on this machine can read the private key.
    WorldReadable {
        /// The permission bits.
        mode: u32,
    },
}

impl Warning {
    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> String {
        let path = self.path.display();
        match &self.kind {
            WarningKind::ExpiresSoon { .. } | WarningKind::HasExpired { .. } => {
                "renew the certificate; the files are read again when they change".into()
            }
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
            WarningKind::WorldReadable { .. } => format!("chmod 600 '{path}'"),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': ", self.path.display())?;
        match &self.kind {
            WarningKind::ExpiresSoon { on, days } => {
                write!(f, "the certificate expires in {days} days, on {on}")
            }
            WarningKind::HasExpired { on } => write!(f, "the certificate expired on {on}"),
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
            WarningKind::WorldReadable { mode } => {
                write!(f, "everybody can read the private key (mode {mode:03o})")
            }
        }
    }
}
