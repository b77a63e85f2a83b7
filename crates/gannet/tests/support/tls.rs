//! Certificates of a test, and clients that trust them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite};

use super::client::Client;
use super::engine::Engine;
use super::{Folder, Gannet};

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    P256,
    P384,
    Ed25519,
    Rsa,
}

/// An authority of a test, and the files of the certificates that it has issued.
pub struct Authority {
    folder: Folder,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test root");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self {
            folder: Folder::new(),
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Writes a certificate and its key into one file; gives its path.
    pub fn issue(&self, file: &str, kind: KeyKind, names: &[&str]) -> PathBuf {
        let path = self.folder.write(file, self.issued(kind, names));
        // A key that everybody can read is warned about.
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
        path
    }

    /// A certificate and its key as PEM.
    pub fn issued(&self, kind: KeyKind, names: &[&str]) -> String {
        let algorithm = match kind {
            KeyKind::P256 => &PKCS_ECDSA_P256_SHA256,
            KeyKind::P384 => &PKCS_ECDSA_P384_SHA384,
            KeyKind::Ed25519 => &PKCS_ED25519,
            KeyKind::Rsa => &PKCS_RSA_SHA256,
        };
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_after = rcgen::date_time_ymd(2099, 1, 1);
        params
            .distinguished_name
            .push(DnType::CommonName, "test leaf");
        let leaf = params.signed_by(&key, &self.issuer).expect("signed");
        format!("{}{}", leaf.pem(), key.serialize_pem())
    }

    /// Puts another content in the place of a file in one step, as certificate managers do.
    pub fn replace(&self, file: &str, text: &str) {
        let beside = self.folder.write(format!("{file}.new"), text);
        fs::set_permissions(&beside, Permissions::from_mode(0o600)).expect("ours");
        fs::rename(beside, self.folder.join(file)).expect("renamed");
    }

    /// The authority's own certificate, as a file.
    pub fn file(&self) -> PathBuf {
        self.folder.write("root.pem", &self.pem)
    }

    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM");
        roots.add(der).expect("a certificate");
        roots
    }

    /// A client that trusts this authority.
    pub fn client(&self, abilities: Abilities) -> Arc<ClientConfig> {
        let provider = CryptoProvider {
            cipher_suites: abilities.suites,
            kx_groups: abilities.groups,
            ..aws_lc_rs::default_provider()
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("suites of known versions")
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.alpn_protocols = abilities.alpn;
        config.enable_early_data = abilities.early_data;
        config.enable_sni = abilities.sni;
        Arc::new(config)
    }
}

/// What a client can do.
pub struct Abilities {
    pub suites: Vec<SupportedCipherSuite>,
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    pub alpn: Vec<Vec<u8>>,
    pub early_data: bool,
    pub sni: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        let provider = aws_lc_rs::default_provider();
        Self {
            suites: provider.cipher_suites,
            groups: provider.kx_groups,
            alpn: vec![b"http/1.1".to_vec()],
            early_data: false,
            sni: true,
        }
    }
}

/// The client's side of a connection to a host of this name.
pub fn connection(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a configuration")
}

/// A server with one certificate for `localhost`, and clients for it.
pub struct Secure {
    pub authority: Authority,
    pub config: Arc<ClientConfig>,
    pub server: Gannet,
}

impl Secure {
    /// Serves over TLS, with more flags.
    pub fn serve(engine: Engine, path: impl AsRef<std::path::Path>, flags: &[&str]) -> Self {
        let authority = Authority::new();
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let file = file.to_str().expect("UTF-8");
        let flags: Vec<&str> = ["--tls-cert", file]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        let server = engine.serve(path, &flags);
        Self {
            config: authority.client(Abilities::default()),
            authority,
            server,
        }
    }

    /// A connection.
    pub fn connect(&self) -> Client {
        self.connect_with(&self.config, "localhost")
    }

    pub fn connect_with(&self, config: &Arc<ClientConfig>, name: &str) -> Client {
        Client::tls(self.server.address(), connection(config, name))
    }
}
