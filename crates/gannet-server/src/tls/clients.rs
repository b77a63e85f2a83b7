//! Certificates of clients (RFC 8446 section 4.3.2): the authorities that issue them, and their
//! bounds.
//!
//! Sessions are then not resumed: a ticket would admit a client for hours after its certificate has
//! expired, and would have to carry the whole chain.

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
use super::limits::CLIENT_CHAIN_LEN_MAX;

/// Which certificates clients need.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authorities {
    /// PEM files of the authorities that may have issued them, at least one.
    pub files: Vec<PathBuf>,
    /// A client without a certificate is served as well.
    pub is_optional: bool,
}

/// Verifies the certificates of clients; equal only to itself.
#[derive(Clone, Debug)]
pub struct Verifier(Arc<Bounded>);

impl PartialEq for Verifier {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Verifier {}

impl Authorities {
    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or has no certificate that can issue others.
    pub fn verifier(&self) -> Result<Verifier, CertificateError> {
        let mut roots = RootCertStore::empty();
        for file in &self.files {
            read_authorities(file, &mut roots)?;
        }
        let path = self.files.first().cloned();
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let builder = match self.is_optional {
            true => builder.allow_unauthenticated(),
            false => builder,
        };
        let library = builder.build().map_err(|error| CertificateError {
            path,
            cause: Cause::Library(error.to_string()),
        })?;
        Ok(Verifier(Arc::new(Bounded(library))))
    }
}

impl Verifier {
    pub(super) fn library(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0) as Arc<dyn ClientCertVerifier>
    }
}

/// The library's verifier, for chains of limited length.
#[derive(Debug)]
struct Bounded(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Bounded {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // The library tries the others in any order.
        if others.len() >= CLIENT_CHAIN_LEN_MAX {
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
