//! Compressed certificates (RFC 8879), in memory: clients that can read them get them.

mod tls_support;

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gannet_server::tls::certificates::CertificateSet;
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::Handshake;
use gannet_testkit::tls::KEY_KINDS;
use rustls::compress::{CertDecompressor, DecompressionFailed};
use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::{CertificateCompressionAlgorithm as Algorithm, ClientConfig};
use tls_support::*;

/// Decompresses as a client does, and counts how often.
#[derive(Debug)]
struct Decoder {
    algorithm: Algorithm,
    used: AtomicUsize,
}

impl CertDecompressor for Decoder {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.used.fetch_add(1, Ordering::Relaxed);
        match self.algorithm {
            Algorithm::Brotli => {
                let mut decoder = brotli::Decompressor::new(input, 4_096);
                decoder.read_exact(output).expect("sound");
                assert_eq!(decoder.read(&mut [0]).expect("sound"), 0, "more");
            }
            Algorithm::Zlib => {
                let mut decoder = libdeflater::Decompressor::new();
                let len = decoder.zlib_decompress(input, output).expect("sound");
                assert_eq!(len, output.len());
            }
            other => panic!("{other:?} was not offered"),
        }
        Ok(())
    }

    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// Decoders that the library wants for ever: kept where a search for leaks finds them.
static LENT: Mutex<Vec<&Decoder>> = Mutex::new(Vec::new());

/// A client that decompresses by these algorithms, and its decoders.
fn client(
    authority: &Authority,
    abilities: Abilities,
    algorithms: &[Algorithm],
) -> (Arc<ClientConfig>, Vec<&'static Decoder>) {
    let decoders = algorithms.iter().map(|algorithm| {
        let decoder = Decoder {
            algorithm: *algorithm,
            used: AtomicUsize::new(0),
        };
        &*Box::leak(Box::new(decoder))
    });
    let decoders: Vec<_> = decoders.collect();
    LENT.lock()
        .expect("nothing panics with it")
        .extend(&decoders);
    let mut config = (*authority.client(abilities)).clone();
    config.cert_decompressors = decoders.iter().map(|one| *one as _).collect();
    (Arc::new(config), decoders)
}

/// How often each algorithm was used in a handshake.
fn used(set: &CertificateSet, authority: &Authority, algorithms: &[Algorithm]) -> Vec<usize> {
    let (config, decoders) = client(authority, Abilities::default(), algorithms);
    shake(set, &mut connect(&config, "localhost")).unwrap();
    let counts = decoders.iter().map(|it| it.used.load(Ordering::Relaxed));
    counts.collect()
}

/// The length of the server's first flight.
fn flight_len(set: &CertificateSet, config: &Arc<ClientConfig>) -> usize {
    let mut out = Vec::new();
    let hello = from_client(&mut connect(config, "localhost"));
    let step = Handshake::new().receive(set, &hello, &mut out);
    assert!(step.is_ok(), "{step:?}");
    out.len()
}

#[test]
fn clients_get_what_they_can_read() {
    let authority = Authority::new().intermediate();
    for kind in KEY_KINDS {
        let issued = authority.issued(kind, &["localhost"]);
        let set = set(&[&issued], &Options::default());
        let used = |algorithms: &[Algorithm]| used(&set, &authority, algorithms);
        assert_eq!(used(&[Algorithm::Brotli]), [1], "{kind:?}");
        assert_eq!(used(&[Algorithm::Zlib]), [1]);
        // Ours is the order that counts.
        assert_eq!(used(&[Algorithm::Zlib, Algorithm::Brotli]), [0, 1]);
        assert_eq!(used(&[Algorithm::Zstd]), [0]);
        assert_eq!(used(&[]), []);
    }
}

#[test]
fn tls12_knows_no_compression() {
    let authority = Authority::new();
    let issued = authority.issued(KeyKind::P256, &["localhost"]);
    let set = set(&[&issued], &Options::default());
    let abilities = Abilities::only(suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    let (config, decoders) = client(&authority, abilities, &[Algorithm::Brotli]);
    shake(&set, &mut connect(&config, "localhost")).unwrap();
    assert_eq!(decoders[0].used.load(Ordering::Relaxed), 0);
}

#[test]
fn compressed_forms_live_as_long_as_a_set_with_the_certificate() {
    let authority = Authority::new();
    let one = authority.issued(KeyKind::P256, &["localhost"]);
    let two = authority.issued(KeyKind::Rsa, &["localhost"]);
    let options = Options::default();
    let old = set(&[&one], &options);
    // A reload that keeps one certificate and adds another, and a server of its own.
    let pairs = vec![pair(&one), pair(&two)];
    let new = CertificateSet::new(pairs, &options, Some(&old)).unwrap();
    let other = set(&[&one], &options);
    drop(old);
    assert_eq!(used(&new, &authority, &[Algorithm::Brotli]), [1]);
    drop(new);
    assert_eq!(used(&other, &authority, &[Algorithm::Zlib]), [1]);
}

#[test]
fn the_first_flight_becomes_shorter() {
    let authority = Authority::new().intermediate();
    let issued = authority.issued(KeyKind::P256, &["localhost", "www.example.org"]);
    let set = set(&[&issued], &Options::default());
    let plain = flight_len(&set, &authority.client(Abilities::default()));
    for algorithm in [Algorithm::Brotli, Algorithm::Zlib] {
        let (config, _) = client(&authority, Abilities::default(), &[algorithm]);
        let compressed = flight_len(&set, &config);
        assert!(compressed + 100 < plain, "{compressed} of {plain}");
    }
}
