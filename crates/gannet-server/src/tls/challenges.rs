//! Answers to challenges of an ACME server by TLS-ALPN-01 (RFC 8737): who can answer a handshake for a
//! name with a certificate that has what the ACME server has asked for controls the name.
//!
//! `gannet acme`, another process, makes these certificates and puts them into a folder, one file for
//! each name. The thread that watches certificates reads them; a handshake only looks a name up.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;

use super::certificates::{Cause, CertificateError, challenge};
use super::config::{AlpnProtocol, Options, SingleKey};
use crate::bounds::tls::CHALLENGES_MAX;

/// The certificates for challenges, by name. The lock is taken by handshakes that offer `acme-tls/1`
/// and nothing else, for the time of one lookup.
#[derive(Debug, Default)]
pub(super) struct ChallengeCertificates(Mutex<HashMap<Box<str>, Arc<ServerConfig>>>);

impl ChallengeCertificates {
    /// The configuration for a handshake, if this name has a challenge.
    pub(super) fn of(&self, name: &str) -> Option<Arc<ServerConfig>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name).cloned()
    }

    /// Replaces all by those in the folder; returns why some are left out.
    pub(super) fn read(&self, folder: &Path) -> Vec<CertificateError> {
        let mut errors = Vec::new();
        let mut all = HashMap::new();
        for (name, path) in files(folder, &mut errors) {
            match challenge(&path).and_then(|key| config(&path, key)) {
                Ok(config) => {
                    all.insert(name, config);
                }
                // It was answered meanwhile.
                Err(error) if is_gone(&error) => {}
                Err(error) => errors.push(error),
            }
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
        errors
    }
}

/// The files of a folder that are named `NAME.pem`, with these names.
fn files(folder: &Path, errors: &mut Vec<CertificateError>) -> Vec<(Box<str>, PathBuf)> {
    let fail = |error| CertificateError::at(folder, Cause::Read(error));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                errors.push(fail(error));
            }
            return Vec::new();
        }
    };
    let named = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = path.file_name()?.to_str()?.strip_suffix(".pem")?;
        (!name.starts_with('.')).then(|| (name.to_ascii_lowercase().into(), path.clone()))
    });
    let mut named = named.fuse();
    let taken = named.by_ref().take(CHALLENGES_MAX).collect();
    if named.next().is_some() {
        errors.push(CertificateError::at(folder, Cause::TooManyChallenges));
    }
    taken
}

fn is_gone(error: &CertificateError) -> bool {
    matches!(&error.cause, Cause::Read(error) if error.kind() == io::ErrorKind::NotFound)
}

/// A configuration with this certificate only: no resumption, and no certificates of clients.
fn config(path: &Path, key: CertifiedKey) -> Result<Arc<ServerConfig>, CertificateError> {
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let builder = Options::default().builder(&versions);
    let builder = builder.map_err(|why| CertificateError::at(path, Cause::Library(why)))?;
    let mut config = builder.with_cert_resolver(Arc::new(SingleKey(Arc::new(key))));
    config.alpn_protocols = vec![AlpnProtocol::Challenge.alpn().to_vec()];
    config.enable_secret_extraction = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
