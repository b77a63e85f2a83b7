//! Checks for the fuzzer on input from TLS peers; ordinary tests replay its seeds.

use std::path::PathBuf;
use std::sync::OnceLock;

use gannet_server::tls::certificates::{CertificateSet, LoadOptions, Pair, PairPaths};
use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::{Handshake, Step};
use gannet_server::tls::record::aead::{Cipher, Secrets, TlsVersion};
use gannet_server::tls::record::decrypt::Decryptor;
use gannet_server::tls::record::encrypt::Encryptor;

/// The first byte selects the version, the cipher and the check:
///
/// * the rest as ciphertext: no panic, and no output that was not encrypted;
/// * the rest as lengths of pieces: encrypted content is output completely, however it is cut;
/// * the same with one byte changed: only a prefix is output.
pub(crate) fn record(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let version = if choice & 1 == 0 {
        TlsVersion::Tls13
    } else {
        TlsVersion::Tls12
    };
    let cipher = match choice >> 1 & 3 {
        0 => Cipher::Aes128Gcm,
        1 => Cipher::Aes256Gcm,
        _ => Cipher::ChaCha20Poly1305,
    };
    let secrets = || Secrets {
        cipher,
        key: [5; 32],
        iv: [9; 12],
        sequence: 3,
    };
    let mut decryptor = Decryptor::new(version, secrets());
    match choice >> 3 & 3 {
        0 => {
            let mut plain = Vec::new();
            for piece in rest.chunks(usize::from(choice >> 5) * 7 + 1) {
                if decryptor.decrypt(piece, &mut plain).is_err() {
                    break;
                }
            }
            assert_eq!(plain, b"", "the input was not encrypted");
        }
        kind => {
            let (expected, mut encrypted) = encrypt(Encryptor::new(version, secrets()), rest);
            let flipped = kind == 2 && !encrypted.is_empty();
            if flipped {
                let at = rest.iter().map(|byte| usize::from(*byte)).sum::<usize>() * 31;
                let at = at % encrypted.len();
                encrypted[at] ^= 1 | choice >> 5;
            }
            let mut plain = Vec::new();
            let cut = usize::from(choice >> 5) * 1001 + 3;
            let result = encrypted
                .chunks(cut)
                .try_for_each(|piece| decryptor.decrypt(piece, &mut plain).map(|_| ()));
            assert!(
                expected.starts_with(&plain),
                "only encrypted content is output"
            );
            assert!(
                flipped || (result.is_ok() && plain == expected),
                "all of it is output"
            );
        }
    }
}

/// Encrypts pieces with these bytes as lengths; returns plaintext and ciphertext.
fn encrypt(mut encryptor: Encryptor, lengths: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut expected, mut encrypted) = (Vec::new(), Vec::new());
    for lengths in lengths.chunks(3).take(20) {
        let pieces: Vec<Vec<u8>> = lengths
            .iter()
            .map(|len| vec![*len; usize::from(*len) * usize::from(*len) / 2])
            .collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        if lengths[0] % 2 == 1 {
            encryptor.begin_small();
        }
        encryptor
            .encrypt(&pieces, &mut encrypted)
            .expect("few records");
        pieces
            .iter()
            .for_each(|piece| expected.extend_from_slice(piece));
    }
    (expected, encrypted)
}

/// The bytes as a client's first flight, in pieces whose length the first byte gives: neither
/// panics nor completes a handshake.
pub(crate) fn handshake(bytes: &[u8]) {
    let Some((cut, rest)) = bytes.split_first() else {
        return;
    };
    let mut handshake = Handshake::new();
    let mut out = Vec::new();
    for piece in rest.chunks(usize::from(*cut) + 1) {
        match handshake.receive(set(), piece, &mut out) {
            Ok(Step::NeedInput | Step::Held) => {}
            Ok(Step::Done(_)) => panic!("no client can finish without our key share"),
            Err(_) => return,
        }
    }
}

fn set() -> &'static CertificateSet {
    static SET: OnceLock<CertificateSet> = OnceLock::new();
    SET.get_or_init(|| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
        let chain = params.self_signed(&key).expect("a certificate").pem();
        let paths = PairPaths {
            certificate: PathBuf::from("c"),
            key: PathBuf::from("k"),
        };
        let options = LoadOptions {
            allow_expired: true,
            now: 0,
        };
        let (chain, key) = (chain.as_bytes(), key.serialize_pem());
        let pair = Pair::from_pem(&paths, chain, key.as_bytes(), &options, &mut Vec::new());
        CertificateSet::new(vec![pair.expect("a pair")], &Options::default(), None).expect("a set")
    })
}
