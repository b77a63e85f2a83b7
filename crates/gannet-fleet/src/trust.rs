//! Whose certificates stores may have.

use std::{env, io};

use object_store::{Certificate, ClientOptions};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
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

/// The authorities to trust, for connections of our own.
///
/// # Errors
/// What the variables name has no certificate.
pub(crate) fn roots() -> Result<RootCertStore, FleetError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities().map_err(FleetError::Trust)?);
    Ok(roots)
}

/// The authorities of the system, or those that [`VARIABLES`] name in their place; where there is neither, as in an
/// image without a system, Mozilla's.
///
/// # Errors
/// Such a variable, if no certificate is where it says.
pub(crate) fn authorities() -> Result<Vec<CertificateDer<'static>>, &'static str> {
    Ok(of_system()?.unwrap_or_else(|| TLS_SERVER_ROOT_CERTS.to_vec()))
}

/// Whether the system has authorities, or those are there that [`VARIABLES`] name in their place.
///
/// # Errors
/// As for [`authorities`].
pub(crate) fn has_authorities() -> Result<bool, &'static str> {
    of_system().map(|it| it.is_some())
}

fn of_system() -> Result<Option<Vec<CertificateDer<'static>>>, &'static str> {
    let mut found = rustls_native_certs::load_native_certs().certs;
    // What is no certificate is an authority for nothing.
    found.retain(|it| RootCertStore::empty().add(it.clone()).is_ok());
    let is_set = |name: &&&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    match (found.is_empty(), VARIABLES.iter().find(is_set)) {
        (false, _) => Ok(Some(found)),
        (true, Some(name)) => Err(name),
        (true, None) => Ok(None),
    }
}

/// Whether a connection failed since the server's certificate is not trusted; libraries wrap the reason several times.
pub(crate) fn is_distrusted(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(|inner| match inner.downcast_ref::<io::Error>() {
        Some(inner) => is_distrusted(inner),
        None => matches!(
            inner.downcast_ref(),
            Some(rustls::Error::InvalidCertificate(_))
        ),
    })
}

/// What to do then.
pub(crate) const DISTRUSTED_HELP: &str = "use a name that its certificate has; an authority that this machine does not \
    trust is named by its file, in the environment: SSL_CERT_FILE=FILE";

/// A file and a folder of certificates in PEM form.
const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
