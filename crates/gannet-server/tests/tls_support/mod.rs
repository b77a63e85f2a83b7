//! In-memory certificates, clients and a server for the TLS tests.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses its own part"
)]

pub mod server;

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use gannet_io::companion;
use gannet_server::tls::certificates::{
    CertificateSet, CertificateStore, LoadOptions, Pair, PairPaths, Warning,
};
use gannet_server::tls::clients::Demand;
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::{Established, Failure, Handshake, Step};
use gannet_server::tls::on_demand::OnDemand;
use gannet_server::tls::session::{Received, Session};
use gannet_server::tls::watch::{CertificateSource, Ordered};
use gannet_testkit::Folder;
pub use gannet_testkit::tls::{Abilities, Authority, Issued, KeyKind, connection};
use rustls::{ClientConfig, ClientConnection};

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

/// A server's certificate for `localhost`.
pub fn for_localhost(authority: &Authority, options: &Options) -> CertificateSet {
    set(&[&authority.issued(KeyKind::P256, &["localhost"])], options)
}

pub fn store(issued: &Issued, options: &Options) -> Arc<CertificateStore> {
    CertificateStore::new(set(&[issued], options))
}

/// Certificates in a folder, which are ordered there for the names of sites when they are asked for; and what
/// the process reads that orders them.
pub fn on_demand(folder: &Folder, is_site: fn(&str) -> bool) -> (CertificateSource, File) {
    let (read, write) = companion::input().unwrap();
    let on_demand = OnDemand::new(write, |_| true);
    on_demand.know(Arc::new(is_site));
    (ordered(folder, Some(on_demand)), File::from(read))
}

/// Certificates in a folder that `gannet acme` fills.
pub fn ordered(folder: &Folder, on_demand: Option<OnDemand>) -> CertificateSource {
    CertificateSource {
        pairs: Vec::new(),
        awaits_pairs: false,
        ordered: Some(Ordered {
            folder: folder.path().to_owned(),
            on_demand,
            ..Ordered::default()
        }),
        options: Options::default(),
        client_authorities: Vec::new(),
        client_demand: Demand::default(),
    }
}

pub fn connect(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let mut client = connection(config, name);
    client.set_buffer_limit(None);
    client
}

/// Ciphertext that a client wants to send.
pub fn from_client(client: &mut ClientConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut out).unwrap();
    }
    out
}

/// Passes ciphertext to a client; returns the plaintext.
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
    // "Would block" and "closed" both mean that no more is available.
    let _ = client.reader().read_to_end(plain);
}

/// Performs a whole handshake in memory.
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
            Step::NeedInput | Step::Held => assert!(verdict.is_ok(), "{verdict:?}"),
        }
    }
    panic!("no end of the handshake");
}

/// A server that has had the client's hello, and whose answer the client has had: what the client sends
/// next is its last flight.
pub fn greeted(set: &CertificateSet, client: &mut ClientConnection) -> Handshake {
    let (mut server, mut out) = (Handshake::new(), Vec::new());
    let step = server.receive(set, &from_client(client), &mut out);
    assert!(matches!(step, Ok(Step::NeedInput)), "{step:?}");
    to_client(client, &out).unwrap();
    server
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
            &[&authority.issued(kind, &["localhost"])],
            &Options::default(),
        );
        let mut client = connect(&authority.client(abilities), "localhost");
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

    /// The server sends; returns the client's plaintext.
    pub fn down(&mut self, pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        self.server.encrypt(pieces, &mut out).unwrap();
        to_client(&mut self.client, &out).unwrap()
    }

    /// The client's ciphertext for some bytes.
    pub fn encrypt_up(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(bytes).unwrap();
        from_client(&mut self.client)
    }

    /// The client sends; returns the server's plaintext.
    pub fn up(&mut self, bytes: &[u8]) -> Vec<u8> {
        let encrypted = self.encrypt_up(bytes);
        let mut plain = Vec::new();
        assert_eq!(
            self.server.receive(&encrypted, &mut plain),
            Ok(Received::Open)
        );
        plain
    }
}

/// Pseudorandom numbers from a seed.
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
