//! Whose certificates stores may have.

use std::env;

use object_store::{Certificate, ClientOptions};
use rustls::RootCertStore;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use crate::error::FleetError;

/// What is trusted where a system has no authorities: Mozilla's, as of the build.
pub(crate) fn trusting_mozillas() -> ClientOptions {
    let options = ClientOptions::new().with_no_system_certificates(true);
    TLS_SERVER_ROOT_CERTS.iter().fold(options, |options, der| {
        match Certificate::from_der(der) {
            Ok(certificate) => options.with_root_certificate(certificate),
            // The others are still there.
            Err(_) => options,
        }
    })
}

/// The authorities of the system, or those that [`VARIABLES`] name in their place, for connections of our own;
/// where there is neither, as in an image without a system, Mozilla's.
///
/// # Errors
/// What the variables name has no certificate.
pub(crate) fn roots() -> Result<RootCertStore, FleetError> {
    let mut roots = RootCertStore::empty();
    match has_authorities().map_err(FleetError::Trust)? {
        true => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        false => {
            roots.add_parsable_certificates(TLS_SERVER_ROOT_CERTS.iter().cloned());
        }
    }
    Ok(roots)
}

/// Whether the system has authorities, or those are there that [`VARIABLES`] name in their place.
///
/// # Errors
/// Such a variable, if nothing is where it says.
pub(crate) fn has_authorities() -> Result<bool, &'static str> {
    if !rustls_native_certs::load_native_certs().certs.is_empty() {
        return Ok(true);
    }
    let is_set = |name: &&&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    match VARIABLES.iter().find(is_set) {
        Some(name) => Err(name),
        None => Ok(false),
    }
}

/// A file and a folder of certificates in PEM form.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
