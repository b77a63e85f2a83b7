//! The contents of a certificate (RFC 5280).

use aws_lc_rs::digest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};
use x509_parser::time::ASN1Time;

/// Facts about a certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Facts {
    /// Its DNS names, in lower case, wildcards with `*.`, sorted.
    pub names: Vec<Box<str>>,
    /// Whether it has IP addresses; certificates are not chosen by these, because clients send
    /// none.
    pub has_addresses: bool,
    /// The subject, for messages.
    pub subject: String,
    /// The issuer, for messages.
    pub issuer: String,
    /// The first second of its validity, Unix time.
    pub not_before: i64,
    /// The last second of its validity, Unix time.
    pub not_after: i64,
    /// Both times as text.
    pub validity: (String, String),
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
}

impl Facts {
    /// The fingerprint as browsers show it: `AB:CD:...`.
    #[must_use]
    pub fn fingerprint_text(&self) -> String {
        let pairs: Vec<_> = self
            .fingerprint
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        pairs.join(":")
    }
}

/// A parsed certificate of a chain.
pub(super) struct Parsed {
    pub(super) facts: Facts,
    /// Encoded subject and issuer, which link a chain.
    pub(super) subject: Vec<u8>,
    pub(super) issuer: Vec<u8>,
    /// Its encoded public key (RFC 5280 section 4.1.2.7).
    pub(super) public_key: Vec<u8>,
    /// Its X.509 version: 3 for all current certificates.
    pub(super) version: u32,
    /// The subject's common name.
    pub(super) common_name: Option<String>,
    /// It has a URL of its issuer's certificate, as those of public authorities do, whose issuers
    /// are intermediates.
    pub(super) has_issuer_url: bool,
    /// It may issue others: it says so, or is of a version that cannot (RFC 5280 section 4.2.1.9).
    pub(super) is_authority: bool,
}

impl Parsed {
    /// Whether it is self-signed: the end of a chain.
    pub(super) fn is_root(&self) -> bool {
        self.subject == self.issuer
    }
}

pub(super) fn parse(der: &[u8]) -> Result<Parsed, String> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| match error {
        x509_parser::nom::Err::Error(error) | x509_parser::nom::Err::Failure(error) => {
            error.to_string()
        }
        x509_parser::nom::Err::Incomplete(_) => "cut short".into(),
    })?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow it", rest.len()));
    }
    let mut names: Vec<Box<str>> = Vec::new();
    let mut has_addresses = false;
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        for name in &extension.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase().into()),
                GeneralName::IPAddress(_) => has_addresses = true,
                _ => {}
            }
        }
    }
    let has_issuer_url = certificate.extensions().iter().any(|extension| {
        matches!(extension.parsed_extension(), ParsedExtension::AuthorityInfoAccess(access)
            if access.iter().any(|one| one.access_method == OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS))
    });
    let constraints = certificate.basic_constraints().ok().flatten();
    let is_authority = match constraints {
        Some(extension) => extension.value.ca,
        None => certificate.version() != X509Version::V3,
    };
    names.sort_unstable();
    names.dedup();
    let validity = certificate.validity();
    let facts = Facts {
        names,
        has_addresses,
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
        validity: (text(&validity.not_before), text(&validity.not_after)),
        fingerprint: fingerprint(der),
    };
    Ok(Parsed {
        facts,
        subject: certificate.subject().as_raw().to_vec(),
        issuer: certificate.issuer().as_raw().to_vec(),
        public_key: certificate.public_key().raw.to_vec(),
        // Counted from zero.
        version: certificate.version().0.saturating_add(1),
        common_name: common_name(&certificate),
        has_issuer_url,
        is_authority,
    })
}

/// The encoded subject of a certificate, if it can be parsed.
pub(in crate::tls) fn subject(der: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.subject().as_raw().to_vec())
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

fn text(time: &ASN1Time) -> String {
    time.to_rfc2822()
        .unwrap_or_else(|_| format!("second {} of Unix time", time.timestamp()))
}

fn fingerprint(der: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, der);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
