//! Certificates of clients (RFC 8446 section 4.3.2): the authorities that issue them, and bounds.
//!
//! Every client of an HTTPS or HTTP/3 address is then asked for one, which it needs or may leave out:
//! see [`Demand`]. Sessions are not resumed. A ticket would admit its client after the certificate has
//! expired or the authority was removed; and a client that came without one would not be asked again.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError as Invalid, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

use super::certificates::{Authorities, Cause, CertificateError, Facts, Warning, subject};
use super::config::provider;
use crate::bounds::tls::{CLIENT_CHAIN_BYTES_MAX, CLIENT_CHAIN_LEN_MAX};

/// What becomes of a client that shows no certificate. One that does not verify is always refused.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Demand {
    /// It is refused.
    #[default]
    Required,
    /// It is served like one that shows a certificate.
    Optional,
}

/// The certificates that clients need.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientCertificates {
    /// Whether clients need one.
    pub demand: Demand,
    /// The subjects of the authorities that issue them, none twice. They may have any characters.
    pub authorities: Vec<String>,
}

impl fmt::Display for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.demand {
            Demand::Required => "need",
            Demand::Optional => "may show",
        };
        let authorities = self.authorities.join("; ");
        write!(f, "clients {verb} a certificate of: {authorities}")
    }
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

impl Verifier {
    /// Reads the PEM files of the authorities; `None` if there are no files: then clients are not
    /// asked for certificates. `now` is in Unix seconds.
    ///
    /// # Errors
    /// A file cannot be read or has no certificate, one in it is not of an authority, all have expired,
    /// or there are too many.
    pub fn read(
        files: &[PathBuf],
        demand: Demand,
        now: i64,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Self>, CertificateError> {
        let Some(first) = files.first() else {
            return Ok(None);
        };
        let Authorities { roots, known, .. } = Authorities::read(files, now, warnings)?;
        let roots = Arc::new(roots);
        let library = verifier_of(Arc::clone(&roots)).map_err(|error| CertificateError {
            path: Some(first.clone()),
            cause: Cause::Library(error.to_string()),
        })?;
        Ok(Some(Self(Arc::new(Bounded {
            library,
            roots,
            known,
            demand,
        }))))
    }

    /// What becomes of a client that shows no certificate.
    pub(super) fn demand(&self) -> Demand {
        self.0.demand
    }

    /// What clients have to show.
    pub(super) fn asked(&self) -> ClientCertificates {
        let mut authorities: Vec<_> = self.facts().map(|it| it.subject.clone()).collect();
        authorities.sort_unstable();
        authorities.dedup();
        ClientCertificates {
            demand: self.0.demand,
            authorities,
        }
    }

    /// Facts about the authorities.
    pub(super) fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.0.known.iter().map(|(_, facts)| facts)
    }

    /// What verifies them in handshakes.
    pub fn library(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0) as Arc<dyn ClientCertVerifier>
    }
}

/// The library's verifier of these authorities, of which it needs one.
fn verifier_of(
    roots: Arc<RootCertStore>,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    WebPkiClientVerifier::builder_with_provider(roots, provider()).build()
}

/// The library's verifier, for chains of limited length that leave it nothing to choose from: it would
/// try every certificate whose subject is an issuer's, in every order, and check a signature each time.
/// And for authorities that are valid, which the library takes for granted.
#[derive(Debug)]
struct Bounded {
    /// Of all authorities.
    library: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    /// Their encoded subjects, and facts about them, in the same order.
    known: Vec<(Vec<u8>, Facts)>,
    demand: Demand,
}

impl Bounded {
    /// The verifier of the authorities that are valid at this time.
    ///
    /// # Errors
    /// None is.
    fn at(&self, now: UnixTime) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let is_valid = |(_, it): &(Vec<u8>, Facts)| (it.not_before..=it.not_after).contains(&now);
        if self.known.iter().all(is_valid) {
            return Ok(Arc::clone(&self.library));
        }
        // One has expired since they were read: few handshakes, until someone replaces it.
        let valid = self.known.iter().map(is_valid);
        let roots = self.roots.roots.iter().zip(valid);
        let roots = roots.filter(|(_, is_valid)| *is_valid);
        let valid = RootCertStore {
            roots: roots.map(|(root, _)| root.clone()).collect(),
        };
        verifier_of(Arc::new(valid)).map_err(|_| Error::InvalidCertificate(Invalid::Expired))
    }

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
            let is_known = self.known.iter().any(|(it, _)| *it == subject);
            if !is_known && !seen.contains(&subject) {
                seen.push(subject);
                kept.push(CertificateDer::from(other.as_ref()));
            }
        }
        kept
    }
}

impl ClientCertVerifier for Bounded {
    fn client_auth_mandatory(&self) -> bool {
        self.demand == Demand::Required
    }

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
        self.at(now)?
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
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    /// A verifier of these authorities with the times from which and until which they are valid.
    fn bounded_by(authorities: &[(CertificateDer<'static>, [i64; 2])]) -> Bounded {
        let mut roots = RootCertStore::empty();
        let mut known = Vec::new();
        for (authority, [not_before, not_after]) in authorities {
            roots.add(authority.clone()).expect("parsed");
            let facts = Facts {
                names: Vec::new(),
                has_addresses: false,
                subject: String::new(),
                issuer: String::new(),
                not_before: *not_before,
                not_after: *not_after,
                validity: Default::default(),
                fingerprint: [0; 32],
            };
            known.push((subject(authority).expect("parsed"), facts));
        }
        let roots = Arc::new(roots);
        Bounded {
            library: verifier_of(Arc::clone(&roots)).expect("there are some"),
            roots,
            known,
            demand: Demand::Required,
        }
    }

    fn named(name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("made");
        params.self_signed(&key).expect("made").der().clone()
    }

    #[test]
    fn the_library_has_nothing_to_choose_from() {
        let bounded = bounded_by(&[(named("authority"), [0, i64::MAX])]);
        let (a, b) = (named("a"), named("b"));
        let broken = CertificateDer::from(vec![0x30, 0]);
        let sent = [named("authority"), a.clone(), named("a"), broken, b.clone()];
        assert_eq!(bounded.distinct(&sent), [a, b]);
    }

    /// Authorities expire while a server runs; their clients' certificates may be valid for longer.
    #[test]
    fn an_authority_counts_only_while_it_is_valid() {
        let year = |year| rcgen::date_time_ymd(year, 1, 1);
        let (mut authorities, mut leaves) = (Vec::new(), Vec::new());
        for (name, until) in [("short", 2030), ("long", 2040)] {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params.not_before, params.not_after) = (year(2020), year(until));
            let key = KeyPair::generate().expect("made");
            let made = params.self_signed(&key).expect("made");
            let period = [params.not_before, params.not_after].map(|it| it.unix_timestamp());
            authorities.push((made.der().clone(), period));
            let issuer = Issuer::new(params, key);
            let mut leaf = CertificateParams::default();
            (leaf.not_before, leaf.not_after) = (year(2020), year(2050));
            let signed = leaf.signed_by(&KeyPair::generate().expect("made"), &issuer);
            leaves.push(signed.expect("made").der().clone());
        }
        let bounded = bounded_by(&authorities);
        let check = |at: i32, expect: [bool; 2]| {
            let seconds = u64::try_from(year(at).unix_timestamp()).expect("after 1970");
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let found = [0, 1].map(|it| bounded.verify_client_cert(&leaves[it], &[], now));
            assert_eq!(found.map(|it| it.is_ok()), expect, "{at}");
        };
        check(2025, [true, true]);
        check(2035, [false, true]);
        check(2045, [false, false]);
    }
}
