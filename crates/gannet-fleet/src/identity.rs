//! The certificates of a receiver. They are read when a publisher comes, so that renewed ones count without
//! anything that watches them.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gannet_io::named_file;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{Acceptor, ParsedCertificate};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::error::FleetError;
use crate::limits::CERTIFICATE_LEN_MAX;

/// Where certificates and their keys are.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The files of chains and their keys, in PEM form; the first one is for names that no other has.
    pub pairs: Vec<(PathBuf, PathBuf)>,
    /// A folder with a file `NAME.pem` for each name, which has both, as `gannet acme` makes it.
    pub folder: Option<PathBuf>,
}

impl Identity {
    /// Whether there is none: then nothing is encrypted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.folder.is_none()
    }

    /// The files and folders that are read.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let pairs = self.pairs.iter().flat_map(|(chain, key)| [chain, key]);
        pairs.chain(&self.folder).map(PathBuf::as_path)
    }

    /// Reads each of the pairs.
    ///
    /// # Errors
    /// The file that cannot be read or used, and why.
    pub fn check(&self) -> Result<(), FleetError> {
        let mut pairs = self.pairs.iter();
        pairs.try_for_each(|(chain, key)| read_pair(chain, key).map(drop))
    }

    /// Makes a handshake, up to the point where the client's name is known; `local` is the address to
    /// which it has connected.
    ///
    /// # Errors
    /// What is wrong with our files; nothing if the client is at fault.
    pub(crate) fn accept<S: Read + Write>(
        &self,
        mut stream: S,
        local: IpAddr,
    ) -> Result<StreamOwned<ServerConnection, S>, Option<FleetError>> {
        let mut acceptor = Acceptor::default();
        let accepted = loop {
            match acceptor.read_tls(&mut stream) {
                Ok(0) | Err(_) => return Err(None),
                Ok(_) => {}
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((_, mut alert)) => {
                    // It may be gone.
                    let _ = alert.write_all(&mut stream);
                    return Err(None);
                }
            }
        };
        let name = accepted.client_hello().server_name().map(str::to_owned);
        let name = name.unwrap_or_else(|| local.to_canonical().to_string());
        let key = self.key(&name).map_err(Some)?;
        match config(key).map(|config| accepted.into_connection(config)) {
            Ok(Ok(connection)) => Ok(StreamOwned::new(connection, stream)),
            Ok(Err((_, mut alert))) => {
                let _ = alert.write_all(&mut stream);
                Err(None)
            }
            Err(_) => Err(None),
        }
    }

    /// The certificate for a name, which the library has found to be one, or an address.
    fn key(&self, name: &str) -> Result<CertifiedKey, FleetError> {
        let in_folder = self
            .folder
            .as_ref()
            .map(|it| it.join(format!("{name}.pem")));
        if let Some(file) = in_folder.filter(|it| it.is_file() || self.pairs.is_empty()) {
            return read_pair(&file, &file);
        }
        // Of the others no key is read: a client that sends a name could have all of them parsed.
        let of_name = self
            .pairs
            .iter()
            .find(|(chain, _)| is_valid_for(chain, name));
        let (chain, key) = of_name
            .or(self.pairs.first())
            .expect("there are pairs where there is no folder");
        read_pair(chain, key)
    }
}

fn is_valid_for(chain: &Path, name: &str) -> bool {
    let pem = named_file::read(chain, CERTIFICATE_LEN_MAX).unwrap_or_default();
    let (Ok(leaf), Ok(name)) = (
        CertificateDer::from_pem_slice(&pem),
        ServerName::try_from(name),
    ) else {
        return false;
    };
    ParsedCertificate::try_from(&leaf).is_ok_and(|leaf| verify_server_name(&leaf, &name).is_ok())
}

/// Reads a chain, the server's certificate first, with its key.
fn read_pair(chain: &Path, key: &Path) -> Result<CertifiedKey, FleetError> {
    let read = |path: &Path| {
        let read = named_file::read(path, CERTIFICATE_LEN_MAX);
        read.map_err(FleetError::io("read", path))
    };
    let unusable = |path| move |error| FleetError::io("use", path)(error);
    let pem = read(chain)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(invalid).map_err(unusable(chain))?;
    let private = PrivateKeyDer::from_pem_slice(&read(key)?);
    let private = private.map_err(invalid).map_err(unusable(key))?;
    let pair = CertifiedKey::from_der(certificates, private, &provider());
    pair.map_err(invalid).map_err(unusable(chain))
}

fn config(key: CertifiedKey) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
