//! Certificates of clients (RFC 8446 section 4.3.2): the authorities that issue them, and bounds.
//!
//! Every client of an HTTPS or HTTP/3 address then needs one. Sessions are not resumed: a ticket
//! would admit its client after the certificate has expired or the authority was removed.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError as Invalid, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};

use super::certificates::{Authorities, Cause, CertificateError, Warning, subject};
use super::config::provider;
use super::limits::{CLIENT_CHAIN_BYTES_MAX, CLIENT_CHAIN_LEN_MAX};

/// Verifies the certificates of clients; equal only to itself.
#[derive(Clone, Debug)]
pub struct Verifier(Arc<Bounded>);

impl PartialEq for Verifier {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Verifier {}

impl Verifier {
    /// Reads the PEM files of the authorities; `None` if there are no files: then clients are not
    /// asked for certificates. `now` is in Unix seconds.
    ///
    /// # Errors
    /// A file cannot be read or has no certificate, one in it is not of an authority, all have expired,
    /// or there are too many.
    pub fn read(
        files: &[PathBuf],
        now: i64,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Self>, CertificateError> {
        let Some(first) = files.first() else {
            return Ok(None);
        };
        let Authorities {
            roots, subjects, ..
        } = Authorities::read(files, now, warnings)?;
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let library = builder.build().map_err(|error| CertificateError {
            path: Some(first.clone()),
            cause: Cause::Library(error.to_string()),
        })?;
        Ok(Some(Self(Arc::new(Bounded { library, subjects }))))
    }

    /// The subjects of the authorities, none twice.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self
            .0
            .subjects
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(super) fn library(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0) as Arc<dyn ClientCertVerifier>
    }
}

/// The library's verifier, for chains of limited length that leave it nothing to choose from: it would
/// try every certificate whose subject is an issuer's, in every order, and check a signature each time.
#[derive(Debug)]
struct Bounded {
    library: Arc<dyn ClientCertVerifier>,
    /// The encoded subjects of the authorities, and those as text.
    subjects: Vec<(Vec<u8>, String)>,
}

impl Bounded {
    /// The first intermediate of each subject, but for those of authorities, which are known.
    fn distinct<'o, 'c>(&self, others: &'o [CertificateDer<'c>]) -> Vec<CertificateDer<'o>>
    where
        'c: 'o,
    {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut kept = Vec::new();
        for other in others {
            let Some(subject) = subject(other) else {
                continue;
            };
            let is_known = self.subjects.iter().any(|(it, _)| *it == subject);
            if !is_known && !seen.contains(&subject) {
                seen.push(subject);
                kept.push(CertificateDer::from(other.as_ref()));
            }
        }
        kept
    }
}

impl ClientCertVerifier for Bounded {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.library.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = leaf.len() + others.iter().map(|other| other.len()).sum::<usize>();
        if others.len() >= CLIENT_CHAIN_LEN_MAX || bytes > CLIENT_CHAIN_BYTES_MAX {
            return Err(Error::InvalidCertificate(Invalid::BadEncoding));
        }
        self.library
            .verify_client_cert(leaf, &self.distinct(others), now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.library
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.library
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.library.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn named(name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("made");
        params.self_signed(&key).expect("made").der().clone()
    }

    #[test]
    fn the_library_has_nothing_to_choose_from() {
        let authority = named("authority");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.clone()).expect("parsed");
        let roots = Arc::new(roots);
        let library = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let bounded = Bounded {
            library: library.build().expect("one root"),
            subjects: vec![(subject(&authority).expect("parsed"), "authority".into())],
        };
        let (a, b) = (named("a"), named("b"));
        let broken = CertificateDer::from(vec![0x30, 0]);
        let sent = [named("authority"), a.clone(), named("a"), broken, b.clone()];
        assert_eq!(bounded.distinct(&sent), [a, b]);
    }
}
