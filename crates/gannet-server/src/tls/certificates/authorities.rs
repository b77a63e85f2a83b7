//! Reads the certificates of the authorities that issue those of clients.

use std::path::{Path, PathBuf};

use gannet_io::quantities::lasting;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::SectionKind;

use super::error::{Cause, CertificateError, Warning, WarningKind};
use super::facts::{self, Facts, Parsed};
use super::load::{read, section_name, sections, warn};
use crate::bounds::tls::{AUTHORITIES_MAX, AUTHORITIES_OF_ONE_NAME_MAX};

/// The authorities of clients.
pub(in crate::tls) struct Authorities {
    /// For the library: none has expired, none is there twice.
    pub(in crate::tls) roots: RootCertStore,
    /// The same: their encoded subjects, and facts about them.
    pub(in crate::tls) known: Vec<(Vec<u8>, Facts)>,
    /// One that was left out because it has expired: its file, the date, and how long ago that is.
    expired: Option<(PathBuf, String, String)>,
    fingerprints: Vec<[u8; 32]>,
}

impl Authorities {
    /// Reads PEM files. Those that have expired are left out, with a warning, unless none is left.
    ///
    /// # Errors
    /// [`CertificateError`]
    pub(in crate::tls) fn read(
        files: &[PathBuf],
        now: i64,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, CertificateError> {
        let mut all = Self {
            roots: RootCertStore::empty(),
            known: Vec::new(),
            expired: None,
            fingerprints: Vec::new(),
        };
        for file in files {
            all.add(file, now, warnings)?;
        }
        match all.expired.take() {
            Some((path, on, ago)) if all.roots.is_empty() => {
                Err(CertificateError::at(&path, Cause::Expired { on, ago }))
            }
            _ => Ok(all),
        }
    }

    fn add(
        &mut self,
        path: &Path,
        now: i64,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), CertificateError> {
        let fail = |cause| CertificateError::at(path, cause);
        let (text, _) = read(path)?;
        let sections = sections(path, &text).map_err(|mut error| {
            if matches!(error.cause, Cause::Pkcs12) {
                error.cause = Cause::NoAuthority(Some(PKCS12));
            }
            error
        })?;
        let (mut number, mut found) = (0, None);
        for (kind, der) in sections {
            if kind != SectionKind::Certificate {
                found = found.or(Some(section_name(kind)));
                continue;
            }
            number += 1;
            let malformed = |why| fail(Cause::Malformed(number, why));
            let parsed = facts::parse(&der).map_err(malformed)?;
            self.add_one(path, number, (der, parsed), now, warnings)?;
        }
        if number == 0 {
            let found = found.or(is_trusted(&text).then_some(TRUSTED_CERTIFICATE));
            return Err(fail(Cause::NoAuthority(found)));
        }
        if found == Some("private key") {
            warn(warnings, path, WarningKind::KeyOfAuthority);
        }
        Ok(())
    }

    fn add_one(
        &mut self,
        path: &Path,
        number: usize,
        (der, parsed): (Vec<u8>, Parsed),
        now: i64,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), CertificateError> {
        let fail = |cause| CertificateError::at(path, cause);
        let facts = parsed.facts;
        if !parsed.is_authority {
            return Err(fail(Cause::OfNoAuthority(number, facts.subject)));
        }
        if self.fingerprints.contains(&facts.fingerprint) {
            return Ok(());
        }
        if self.fingerprints.len() == AUTHORITIES_MAX {
            return Err(fail(Cause::TooManyAuthorities));
        }
        self.fingerprints.push(facts.fingerprint);
        let left = facts.not_after - now;
        if left < 0 {
            let (on, subject) = (facts.validity.1, facts.subject);
            self.expired = Some((path.to_owned(), on.clone(), lasting(left.unsigned_abs())));
            warn(
                warnings,
                path,
                WarningKind::AuthorityHasExpired { subject, on },
            );
            return Ok(());
        }
        let of_name = self.known.iter().filter(|(it, _)| *it == parsed.subject);
        if of_name.count() == AUTHORITIES_OF_ONE_NAME_MAX {
            return Err(fail(Cause::TooManyOfOneName(facts.subject)));
        }
        let added = self.roots.add(CertificateDer::from(der));
        added.map_err(|why| fail(Cause::Malformed(number, why.to_string())))?;
        self.known.push((parsed.subject, facts));
        Ok(())
    }
}

/// What may be in the place of an authority's certificate.
pub(super) const PKCS12: &str = "PKCS #12 store";
/// Whether a file has certificates in a form of OpenSSL's own, which nothing else reads.
pub(super) fn is_trusted(text: &[u8]) -> bool {
    const TRUSTED: &[u8] = b"BEGIN TRUSTED CERTIFICATE";
    text.windows(TRUSTED.len()).any(|window| window == TRUSTED)
}

pub(super) const TRUSTED_CERTIFICATE: &str = "'TRUSTED CERTIFICATE' of OpenSSL's own";

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

    use super::*;

    /// 1 January 2026.
    const NOW: i64 = 1_767_225_600;

    /// The certificate of an authority that is valid until the end of a year.
    fn authority(name: &str, until: i32, is_ca: IsCa) -> String {
        let mut params = CertificateParams::default();
        params.is_ca = is_ca;
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().expect("made");
        params.self_signed(&key).expect("made").pem()
    }

    fn named(name: &str) -> String {
        let any = BasicConstraints::Unconstrained;
        authority(name, 2040, IsCa::Ca(any))
    }

    fn read_text(text: &[u8]) -> Result<(Authorities, Vec<WarningKind>), CertificateError> {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("one").replace(':', "-");
        let name = format!("gannet-{name}-{}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("written");
        let mut warnings = Vec::new();
        let read = Authorities::read(std::slice::from_ref(&path), NOW, &mut warnings);
        fs::remove_file(&path).expect("ours");
        let kinds = warnings.into_iter().map(|it| it.kind).collect();
        Ok((read?, kinds))
    }

    fn refused(text: &[u8]) -> (String, String) {
        let error = read_text(text).err().expect("refused");
        (error.to_string(), error.help().unwrap_or_default())
    }

    #[test]
    fn those_valid_now_are_used_once() {
        let (one, two) = (named("one"), named("two"));
        let any = BasicConstraints::Unconstrained;
        let over = authority("over", 2025, IsCa::Ca(any));
        let (read, warnings) =
            read_text([&*one, &two, &one, &over].concat().as_bytes()).expect("read");
        assert_eq!(read.roots.len(), 2);
        let names: Vec<_> = read
            .known
            .iter()
            .map(|(_, facts)| facts.subject.as_str())
            .collect();
        assert!(
            names[0].contains("one") && names[1].contains("two"),
            "{names:?}"
        );
        let [WarningKind::AuthorityHasExpired { subject, .. }] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert!(subject.contains("over"), "{subject}");
        let (cause, _) = refused(over.as_bytes());
        assert!(cause.contains("the certificate expired on"), "{cause}");
    }

    #[test]
    fn few_may_have_one_name() {
        let same: Vec<_> = (0..=AUTHORITIES_OF_ONE_NAME_MAX)
            .map(|_| named("same"))
            .collect();
        let (read, _) = read_text(same[1..].concat().as_bytes()).expect("read");
        assert_eq!(read.roots.len(), AUTHORITIES_OF_ONE_NAME_MAX);
        let (cause, _) = refused(same.concat().as_bytes());
        assert!(
            cause.contains("more than 4 authorities are called 'CN=same'"),
            "{cause}"
        );
        let many: Vec<_> = (0..=AUTHORITIES_MAX)
            .map(|it| named(&it.to_string()))
            .collect();
        let (cause, _) = refused(many.concat().as_bytes());
        assert!(cause.contains("more than 64 authorities"), "{cause}");
    }

    #[test]
    fn what_is_no_authority_is_told() {
        for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
            let text = [named("one"), authority("site", 2040, is_ca)].concat();
            let (cause, help) = refused(text.as_bytes());
            assert!(
                cause.contains("certificate 2 of the file (CN=site) is not one of"),
                "{cause}"
            );
            assert!(help.contains("CA:TRUE"), "{help}");
        }
        let (cause, help) = refused(&[0x30, 0x05, 2, 1, 3, 0x30, 0]);
        assert!(cause.contains("found a PKCS #12 store"), "{cause}");
        assert!(help.contains("-nokeys -cacerts"), "{help}");
        let of_openssl = named("one").replace("CERTIFICATE", "TRUSTED CERTIFICATE");
        let (cause, help) = refused(of_openssl.as_bytes());
        assert!(cause.contains("found a 'TRUSTED CERTIFICATE'"), "{cause}");
        assert!(help.contains("openssl x509 -in"), "{help}");
        let key = KeyPair::generate().expect("made").serialize_pem();
        let (_, warnings) = read_text([named("one"), key].concat().as_bytes()).expect("read");
        assert_eq!(warnings, [WarningKind::KeyOfAuthority]);
    }
}
