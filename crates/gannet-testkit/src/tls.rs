//! Certificates for tests, and clients that trust them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::Folder;
#[cfg(feature = "program")]
pub use crate::secure::Secure;

/// The type of a certificate's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    /// ECDSA with P-256.
    P256,
    /// ECDSA with P-384.
    P384,
    /// Ed25519.
    Ed25519,
    /// RSA.
    Rsa,
}

/// All key types.
pub const KEY_KINDS: [KeyKind; 4] = [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa];

/// A certificate with its chain except the root, and its private key: both PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificates, beginning with the server's own.
    pub chain: String,
    /// The private key.
    pub key: String,
}

impl Issued {
    /// Both in one file.
    pub fn pem(&self) -> String {
        [&*self.chain, &*self.key].concat()
    }

    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let all = CertificateDer::pem_slice_iter(self.chain.as_bytes());
        all.map(|one| one.expect("PEM")).collect()
    }
}

/// A certificate authority, and the files of the certificates it has issued.
pub struct Authority {
    folder: Folder,
    /// The root's certificate.
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// The intermediate certificate that issues, if any.
    intermediate: Option<String>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Creates a root.
    pub fn new() -> Self {
        Self::named("test root")
    }

    /// Creates a root of this name.
    pub fn named(name: &str) -> Self {
        let (key, params) = (new_key(KeyKind::P256), authority_params(name));
        Self {
            folder: Folder::new(),
            pem: params.self_signed(&key).expect("signed").pem(),
            issuer: Issuer::new(params, key),
            intermediate: None,
        }
    }

    /// An intermediate authority below this one; its chains include its own certificate.
    pub fn intermediate(&self) -> Self {
        let (key, params) = (
            new_key(KeyKind::P256),
            authority_params("test intermediate"),
        );
        let pem = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Self {
            folder: Folder::new(),
            pem: self.pem.clone(),
            issuer: Issuer::new(params, key),
            intermediate: Some(pem),
        }
    }

    /// Writes a certificate and its key to one file; returns its path.
    pub fn issue(&self, file: &str, kind: KeyKind, names: &[&str]) -> PathBuf {
        let path = self.folder.write(file, self.issued(kind, names).pem());
        // gannet warns about keys that others can read.
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
        path
    }

    /// A certificate with a long validity, and its key.
    pub fn issued(&self, kind: KeyKind, names: &[&str]) -> Issued {
        self.issued_with(kind, names, |_| {})
    }

    /// A certificate that is valid from the start of one year to the start of another.
    pub fn issued_for(&self, kind: KeyKind, names: &[&str], years: (i32, i32)) -> Issued {
        self.issued_with(kind, names, |params| {
            params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
            params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        })
    }

    /// A certificate of a client, with a long validity.
    pub fn issued_to_client(&self, kind: KeyKind) -> Issued {
        self.issued_with(kind, &[], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    /// A certificate with a long validity, after these changes.
    pub fn issued_with(
        &self,
        kind: KeyKind,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let key = new_key(kind);
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2099, 1, 1);
        params
            .distinguished_name
            .push(DnType::CommonName, "test leaf");
        change(&mut params);
        let leaf = params.signed_by(&key, &self.issuer).expect("signed");
        Issued {
            chain: leaf.pem() + self.intermediate.as_deref().unwrap_or_default(),
            key: key.serialize_pem(),
        }
    }

    /// Replaces a file atomically, as certificate managers do.
    pub fn replace(&self, file: &str, text: &str) {
        let beside = self.folder.write(format!("{file}.new"), text);
        fs::set_permissions(&beside, Permissions::from_mode(0o600)).expect("ours");
        fs::rename(beside, self.folder.join(file)).expect("renamed");
    }

    /// The root's certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A file with the root's certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.write("root.pem", &self.pem)
    }

    /// The trust store of a client.
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
        // Only the versions of these suites.
        let suites = &provider.cipher_suites;
        let is_able = |version: &&SupportedProtocolVersion| {
            suites.iter().any(|suite| suite.version() == *version)
        };
        let versions: Vec<_> = [&TLS13, &TLS12].into_iter().filter(is_able).collect();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .expect("suites of these versions")
            .with_root_certificates(self.roots());
        let mut config = match abilities.identity {
            Some(own) => {
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("PEM");
                let config = builder.with_client_auth_cert(own.certificates(), key);
                config.expect("they belong together")
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = abilities.alpn;
        config.enable_early_data = abilities.early_data;
        config.enable_sni = abilities.sni;
        Arc::new(config)
    }
}

/// The abilities of a client.
pub struct Abilities {
    /// Cipher suites; the versions of TLS follow from them.
    pub suites: Vec<SupportedCipherSuite>,
    /// Groups of the key exchange.
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    /// Application protocols in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Sends early data if the session allows it.
    pub early_data: bool,
    /// Sends the server name.
    pub sni: bool,
    /// The client's own certificate.
    pub identity: Option<Issued>,
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
            identity: None,
        }
    }
}

impl Abilities {
    /// Those of a client that has this suite alone, and thereby one version of TLS.
    pub fn only(suite: SupportedCipherSuite) -> Self {
        Self {
            suites: vec![suite],
            ..Self::default()
        }
    }
}

/// A client connection to this host name.
pub fn connection(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a configuration")
}

fn new_key(kind: KeyKind) -> KeyPair {
    let algorithm = match kind {
        KeyKind::P256 => &PKCS_ECDSA_P256_SHA256,
        KeyKind::P384 => &PKCS_ECDSA_P384_SHA384,
        KeyKind::Ed25519 => &PKCS_ED25519,
        KeyKind::Rsa => &PKCS_RSA_SHA256,
    };
    KeyPair::generate_for(algorithm).expect("a key")
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
