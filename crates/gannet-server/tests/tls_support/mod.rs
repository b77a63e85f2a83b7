//! Certificates, clients and a server in memory, for the tests of TLS.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses its own part"
)]

pub mod server;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use gannet_server::tls::certificates::{
    CertificateSet, CertificateStore, LoadOptions, Pair, PairPaths, Warning,
};
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::{Established, Failure, Handshake, Step};
use gannet_server::tls::session::{Received, Session};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite};

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    P256,
    P384,
    Ed25519,
    Rsa,
}

pub const KEY_KINDS: [KeyKind; 4] = [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa];

/// A PEM chain and its key.
pub struct Issued {
    pub chain: String,
    pub key: String,
}

/// A certificate authority of the test.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
    intermediate: Option<String>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = ca_params("test root");
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
            intermediate: None,
        }
    }

    /// An authority below this one; its chains include its own certificate.
    pub fn intermediate(&self) -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = ca_params("test intermediate");
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self {
            pem: self.pem.clone(),
            issuer: Issuer::new(params, key),
            intermediate: Some(pem),
        }
    }

    pub fn issue(&self, kind: KeyKind, names: &[&str]) -> Issued {
        self.issue_valid(kind, names, (2020, 2099))
    }

    /// Valid from the start of one year to the start of another.
    pub fn issue_valid(&self, kind: KeyKind, names: &[&str], years: (i32, i32)) -> Issued {
        let algorithm = match kind {
            KeyKind::P256 => &PKCS_ECDSA_P256_SHA256,
            KeyKind::P384 => &PKCS_ECDSA_P384_SHA384,
            KeyKind::Ed25519 => &PKCS_ED25519,
            KeyKind::Rsa => &PKCS_RSA_SHA256,
        };
        let key = KeyPair::generate_for(algorithm).unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        params
            .distinguished_name
            .push(DnType::CommonName, "test leaf");
        let mut chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        chain.extend(self.intermediate.as_deref());
        Issued {
            chain,
            key: key.serialize_pem(),
        }
    }

    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
            .unwrap();
        roots
    }
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// 1 January 2026.
pub const NOW: i64 = 1_767_225_600;

pub fn pair(issued: &Issued) -> Pair {
    let paths = PairPaths {
        certificate: PathBuf::from("cert"),
        key: PathBuf::from("key"),
    };
    let options = LoadOptions {
        allow_expired: false,
        now: NOW,
    };
    let mut warnings = Vec::<Warning>::new();
    let (chain, key) = (issued.chain.as_bytes(), issued.key.as_bytes());
    let pair = Pair::from_pem(&paths, chain, key, &options, &mut warnings).unwrap();
    assert_eq!(warnings, []);
    pair
}

pub fn set(issued: &[&Issued], options: &Options) -> CertificateSet {
    CertificateSet::new(issued.iter().map(|one| pair(one)).collect(), options, None).unwrap()
}

pub fn store(issued: &Issued, options: &Options) -> Arc<CertificateStore> {
    CertificateStore::new(set(&[issued], options))
}

/// What a client of the test can do.
pub struct Abilities {
    pub suites: Vec<SupportedCipherSuite>,
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    pub alpn: Vec<Vec<u8>>,
    pub early_data: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        let provider = aws_lc_rs::default_provider();
        Self {
            suites: provider.cipher_suites,
            groups: provider.kx_groups,
            alpn: vec![b"http/1.1".to_vec()],
            early_data: false,
        }
    }
}

pub fn client_config(authority: &Authority, abilities: Abilities) -> Arc<ClientConfig> {
    let provider = CryptoProvider {
        cipher_suites: abilities.suites,
        kx_groups: abilities.groups,
        ..aws_lc_rs::default_provider()
    };
    let has = |version| {
        provider
            .cipher_suites
            .iter()
            .any(|s| s.version().version == version)
    };
    let mut versions = Vec::new();
    if has(rustls::ProtocolVersion::TLSv1_3) {
        versions.push(&rustls::version::TLS13);
    }
    if has(rustls::ProtocolVersion::TLSv1_2) {
        versions.push(&rustls::version::TLS12);
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions)
        .unwrap()
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    config.alpn_protocols = abilities.alpn;
    config.enable_early_data = abilities.early_data;
    Arc::new(config)
}

pub fn connect(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    client.set_buffer_limit(None);
    client
}

/// Ciphertext that a client has to send.
pub fn from_client(client: &mut ClientConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut out).unwrap();
    }
    out
}

/// Gives a client ciphertext; plaintext that comes out is returned.
pub fn to_client(
    client: &mut ClientConnection,
    mut input: &[u8],
) -> Result<Vec<u8>, rustls::Error> {
    let mut plain = Vec::new();
    while !input.is_empty() {
        client.read_tls(&mut input).unwrap();
        client.process_new_packets()?;
        drain(client, &mut plain);
    }
    Ok(plain)
}

fn drain(client: &mut ClientConnection, plain: &mut Vec<u8>) {
    // "Would block" and "closed" both mean that this was all.
    let _ = client.reader().read_to_end(plain);
}

/// Does a whole handshake in memory.
pub fn shake(
    set: &CertificateSet,
    client: &mut ClientConnection,
) -> Result<Box<Established>, Failure> {
    let mut server = Handshake::new();
    for _ in 0..10 {
        let flight = from_client(client);
        let mut out = Vec::new();
        let step = server.receive(set, &flight, &mut out);
        let verdict = to_client(client, &out);
        match step? {
            Step::Done(established) => {
                assert!(verdict.is_ok(), "{verdict:?}");
                return Ok(established);
            }
            Step::NeedInput => assert!(verdict.is_ok(), "{verdict:?}"),
        }
    }
    panic!("no end of the handshake");
}

/// A client and an established server.
pub struct Duo {
    pub client: ClientConnection,
    pub server: Session,
}

impl Duo {
    pub fn new(abilities: Abilities, kind: KeyKind) -> Self {
        let authority = Authority::new();
        let set = set(
            &[&authority.issue(kind, &["localhost"])],
            &Options::default(),
        );
        let mut client = connect(&client_config(&authority, abilities), "localhost");
        let established = shake(&set, &mut client).unwrap();
        let mut duo = Self {
            client,
            server: established.session,
        };
        let mut out = Vec::new();
        duo.server.take_waiting(&mut out);
        assert_eq!(to_client(&mut duo.client, &out).unwrap(), b"");
        duo
    }

    pub fn plain() -> Self {
        Self::new(Abilities::default(), KeyKind::P256)
    }

    /// The server sends; the client's plaintext.
    pub fn down(&mut self, pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        self.server.seal(pieces, &mut out).unwrap();
        to_client(&mut self.client, &out).unwrap()
    }

    /// The client's ciphertext of some bytes.
    pub fn seal_up(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(bytes).unwrap();
        from_client(&mut self.client)
    }

    /// The client sends; the server's plaintext.
    pub fn up(&mut self, bytes: &[u8]) -> Vec<u8> {
        let sealed = self.seal_up(bytes);
        let mut plain = Vec::new();
        assert_eq!(self.server.receive(&sealed, &mut plain), Ok(Received::Open));
        plain
    }
}

/// Numbers that look random, from a seed that a failing test prints.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }
}
