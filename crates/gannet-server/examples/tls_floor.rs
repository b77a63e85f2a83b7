//! Measures the cost of TLS without sockets: handshakes, encryption, decryption, and the memory of
//! a session.
//!
//! `cargo run --release --example tls_floor -p gannet-server`. Server and client run in one thread;
//! only the server's calls are timed. Not a benchmark of the server: see `lab/`.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_server::tls::certificates::{CertificateSet, LoadOptions, Pair, PairPaths};
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::{Handshake, HandshakeKind, Step};
use gannet_server::tls::record::aead::{Cipher, Secrets, TlsVersion};
use gannet_server::tls::record::decrypt::Decryptor;
use gannet_server::tls::record::encrypt::Encryptor;
use gannet_server::tls::session::Session;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::crypto::aws_lc_rs;
use rustls::crypto::aws_lc_rs::kx_group as groups;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

fn main() {
    // First, before any freed memory can be reused.
    memory();
    encrypting();
    opening();
    for (name, algorithm) in [
        ("ECDSA P-256", &PKCS_ECDSA_P256_SHA256),
        ("RSA-2048", &PKCS_RSA_SHA256),
    ] {
        let host = Host::new(algorithm);
        for (group_name, group) in [
            ("X25519", groups::X25519),
            ("X25519MLKEM768", groups::X25519MLKEM768),
        ] {
            for tickets in [1, 2] {
                let set = host.set(tickets);
                let config = host.client(group);
                handshakes(name, group_name, tickets, &set, &config);
            }
        }
    }
}

fn secrets(cipher: Cipher) -> Secrets {
    Secrets {
        cipher,
        key: [7; 32],
        iv: [7; 12],
        sequence: 0,
    }
}

const CIPHERS: [Cipher; 3] = [
    Cipher::Aes128Gcm,
    Cipher::Aes256Gcm,
    Cipher::ChaCha20Poly1305,
];

/// Times `work` and prints bytes per second and nanoseconds per call.
fn rate(name: &str, bytes: usize, mut work: impl FnMut(usize)) {
    // Short runs, the best of many: other processes may use the machine at the same time.
    let rounds = (4 << 20) / bytes.max(256);
    let mut best = Duration::MAX;
    for _ in 0..60 {
        let start = Instant::now();
        (0..rounds).for_each(&mut work);
        best = best.min(start.elapsed());
    }
    let each = best.as_secs_f64() / rounds as f64;
    println!(
        "{name}: {:.2} GB/s, {:.0} ns",
        bytes as f64 / each / 1e9,
        each * 1e9
    );
}

fn encrypting() {
    for cipher in CIPHERS {
        // More than the second-level cache, so that plaintext is not cached.
        let source = vec![1; 8 << 20];
        let at = |round: usize, len: usize| &source[round * len % (source.len() - len)..][..len];
        let mut encryptor = Encryptor::new(TlsVersion::Tls13, secrets(cipher));
        let mut out = Vec::with_capacity(1 << 20);
        rate(
            &format!("encrypt {cipher}, head 250 + body 13"),
            263,
            |_| {
                out.clear();
                encryptor
                    .encrypt(&[&source[..250], &source[..13]], &mut out)
                    .expect("room");
            },
        );
        for len in [4 << 10, 16 << 10, 125_000] {
            let mut encryptor = Encryptor::new(TlsVersion::Tls13, secrets(cipher));
            rate(&format!("encrypt {cipher}, body {len}"), len, |round| {
                out.clear();
                encryptor
                    .encrypt(&[at(round, len)], &mut out)
                    .expect("room");
            });
            let mut old = vec![0; len + 1024];
            let mut encryptor = Encryptor::new(TlsVersion::Tls13, secrets(cipher));
            rate(
                &format!("encrypt {cipher}, body {len}, into old memory"),
                len,
                |round| {
                    encryptor
                        .encrypt_into(&[at(round, len)], &mut old)
                        .expect("room");
                },
            );
        }
    }
}

fn opening() {
    for cipher in CIPHERS {
        for len in [100, 500, 16 << 10] {
            let mut encrypted = Vec::new();
            let body = vec![1; len];
            let mut encryptor = Encryptor::new(TlsVersion::Tls13, secrets(cipher));
            encryptor.encrypt(&[&body], &mut encrypted).expect("room");
            let mut plain = Vec::with_capacity(len + 100);
            let mut decryptor = Decryptor::new(TlsVersion::Tls13, secrets(cipher));
            decryptor
                .decrypt(&encrypted, &mut plain)
                .expect("it was encrypted for it");
            // The sequence numbers would differ from now on: a new record for each round would time
            // the encryptor as well, so all rounds use one record and fail at the tag, after all of
            // the work.
            rate(&format!("open {cipher}, {len}"), len, |_| {
                plain.clear();
                let _ = decryptor.decrypt(&encrypted, &mut plain);
            });
        }
    }
}

struct Host {
    chain: String,
    key: String,
}

impl Host {
    fn new(algorithm: &'static rcgen::SignatureAlgorithm) -> Self {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let params = CertificateParams::new(vec!["localhost".into()]).expect("a name");
        let chain = params.self_signed(&key).expect("a certificate").pem();
        Self {
            chain,
            key: key.serialize_pem(),
        }
    }

    fn set(&self, tickets: usize) -> CertificateSet {
        let paths = PairPaths {
            certificate: PathBuf::from("c"),
            key: PathBuf::from("k"),
        };
        let (chain, key) = (self.chain.as_bytes(), self.key.as_bytes());
        let pair = Pair::from_pem(&paths, chain, key, &LoadOptions::now(), &mut Vec::new());
        let options = Options {
            tickets,
            ..Options::default()
        };
        CertificateSet::new(vec![pair.expect("a pair")], &options, None).expect("a set")
    }

    fn client(&self, group: &'static dyn rustls::crypto::SupportedKxGroup) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(self.chain.as_bytes());
        roots.add(certificate.expect("PEM")).expect("a root");
        let provider = rustls::crypto::CryptoProvider {
            kx_groups: vec![group],
            ..aws_lc_rs::default_provider()
        };
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }
}

/// A handshake and a small response; returns the server's time.
fn visit(set: &CertificateSet, config: &Arc<ClientConfig>) -> (Duration, HandshakeKind, Session) {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut time = Duration::ZERO;
    let mut server = Handshake::new();
    loop {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).expect("memory");
        }
        if !client.is_handshaking() {
            client
                .writer()
                .write_all(b"GET / HTTP/1.1\r\n\r\n")
                .expect("memory");
            client.write_tls(&mut flight).expect("memory");
        }
        let start = Instant::now();
        let mut out = Vec::new();
        let step = server.receive(set, &flight, &mut out).expect("a handshake");
        let done = if let Step::Done(mut done) = step {
            let mut plain = Vec::new();
            let received = done.session.receive(&done.rest, &mut plain);
            assert!(received.is_ok() && !(done.plain.is_empty() && plain.is_empty()));
            done.session
                .encrypt(&[&[b'x'; 250], b"Hello, world!"], &mut out)
                .expect("room");
            Some(done)
        } else {
            None
        };
        time += start.elapsed();
        let mut rest = &out[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            client.process_new_packets().expect("a handshake");
        }
        let mut answer = Vec::new();
        let _ = client.reader().read_to_end(&mut answer);
        if let Some(done) = done {
            assert_eq!(answer.len(), 263);
            return (time, done.kind, done.session);
        }
    }
}

fn handshakes(
    name: &str,
    group: &str,
    tickets: usize,
    set: &CertificateSet,
    config: &Arc<ClientConfig>,
) {
    const COUNT: u32 = 1000;
    let mut fresh = (**config).clone();
    fresh.resumption = rustls::client::Resumption::disabled();
    let fresh = Arc::new(fresh);
    let run = |config: &Arc<ClientConfig>, kind: HandshakeKind| {
        let mut times: Vec<_> = (0..COUNT)
            .map(|_| {
                let (time, got, _) = visit(set, config);
                assert_eq!(got, kind);
                time
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    let full = run(&fresh, HandshakeKind::Full);
    visit(set, config);
    let resumed = run(config, HandshakeKind::Resumed);
    println!(
        "handshake {name}, {group}, {tickets} tickets: full {full:.0}, resumed {resumed:.0} us"
    );
}

/// Memory of idle sessions, measured as the kernel's count of resident pages.
fn memory() {
    const COUNT: usize = 5000;
    let host = Host::new(&PKCS_ECDSA_P256_SHA256);
    let (set, config) = (host.set(2), host.client(groups::X25519));
    let warm: Vec<_> = (0..100).map(|_| visit(&set, &config).2).collect();
    let before = resident();
    let sessions: Vec<_> = (0..COUNT).map(|_| visit(&set, &config).2).collect();
    let each = (resident() - before) / sessions.len() as i64;
    println!(
        "a session: {each} bytes resident, {} of them the struct itself",
        size_of::<Session>()
    );
    drop(warm);
}

fn resident() -> i64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: i64 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * 4096
}
