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
    CertificateError as Invalid, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

use super::certificates::{Cause, CertificateError, read_authorities};
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
    /// asked for certificates.
    ///
    /// # Errors
    /// A file cannot be read, has no certificate, or there are too many.
    pub fn read(files: &[PathBuf]) -> Result<Option<Self>, CertificateError> {
        let Some(first) = files.first() else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for file in files {
            read_authorities(file, &mut roots)?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let library = builder.build().map_err(|error| CertificateError {
            path: Some(first.clone()),
            cause: Cause::Library(error.to_string()),
        })?;
        Ok(Some(Self(Arc::new(Bounded(library)))))
    }

    pub(super) fn library(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0) as Arc<dyn ClientCertVerifier>
    }
}

/// The library's verifier, for chains of limited length.
#[derive(Debug)]
struct Bounded(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Bounded {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
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
        self.0.verify_client_cert(leaf, others, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
