//! Records: every length and every cut, key updates from both sides, closing, and peers that send
//! invalid data.

mod tls_support;

use std::io::Write;

use gannet_server::tls::alert::{Alert, TlsFault};
use gannet_server::tls::limits::{
    CIPHERTEXT_MAX_TLS13, EMPTY_RECORDS_MAX, KEY_UPDATES_MAX, RECORD_OVERHEAD_MAX,
};
use gannet_server::tls::record::ContentType;
use gannet_server::tls::record::aead::{Cipher, Secrets, TlsVersion};
use gannet_server::tls::record::decrypt::Decryptor;
use gannet_server::tls::record::encrypt::Encryptor;
use gannet_server::tls::session::{KernelNeeds, Received, StaysOurs};
use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use tls_support::*;

const SUITES: [SupportedCipherSuite; 6] = [
    suites::TLS13_AES_128_GCM_SHA256,
    suites::TLS13_AES_256_GCM_SHA384,
    suites::TLS13_CHACHA20_POLY1305_SHA256,
    suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

fn duo_of(suite: SupportedCipherSuite) -> Duo {
    Duo::new(Abilities::only(suite), KeyKind::P256)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8).collect()
}

/// An encryptor and a decryptor with the same secrets, without a handshake.
fn layers(version: TlsVersion, cipher: Cipher) -> (Encryptor, Decryptor) {
    let secrets = || Secrets {
        cipher,
        key: [5; 32],
        iv: [9; 12],
        sequence: 3,
    };
    (
        Encryptor::new(version, secrets()),
        Decryptor::new(version, secrets()),
    )
}

#[test]
fn bodies_of_every_kind_of_length_arrive() {
    for suite in SUITES {
        let mut duo = duo_of(suite);
        for len in [
            0, 1, 13, 1023, 1024, 16_383, 16_384, 16_385, 32_768, 100_000,
        ] {
            let body = pattern(len);
            assert_eq!(duo.down(&[&body]), body, "{suite:?} {len}");
            assert_eq!(duo.up(&body), body, "{suite:?} {len}");
        }
    }
}

#[test]
fn pieces_become_one_stream() {
    for suite in [SUITES[0], SUITES[3], SUITES[5]] {
        let mut duo = duo_of(suite);
        let body = pattern(50_000);
        let pieces: [&[u8]; 5] = [
            b"head",
            b"",
            &body[..20_000],
            &body[20_000..20_001],
            &body[20_001..],
        ];
        let mut expected = b"head".to_vec();
        expected.extend_from_slice(&body);
        assert_eq!(duo.down(&pieces), expected, "{suite:?}");
    }
}

#[test]
fn a_small_answer_is_one_record() {
    let mut duo = Duo::plain();
    let mut out = Vec::new();
    let (head, body) = (pattern(250), pattern(4000));
    duo.server.encrypt(&[&head, &body], &mut out).unwrap();
    assert_eq!(out.len(), 250 + 4000 + 22);
    let len = u16::from_be_bytes([out[3], out[4]]);
    assert_eq!(usize::from(len), out.len() - 5);
    assert_eq!(duo.server.encryptor().encrypted_len(4250), out.len());
}

#[test]
fn the_first_records_can_be_small() {
    let mut duo = Duo::plain();
    for (sends, lens) in [
        // Across sends, a record of any length counts as one.
        (&[10, 1369, 1370][..], &[10, 1369, 1369, 1][..]),
        (&[13_690, 1], &[&[1369; 10][..], &[1]].concat()),
        (&[13_689], &[&[1369; 9][..], &[1368]].concat()),
        (&[50_000, 20_000], &{
            let first = [&[1369; 10][..], &[16_384, 16_384, 3542]].concat();
            [first, vec![16_384, 3616]].concat()
        }),
    ] {
        duo.server.encryptor().begin_small();
        let mut found = Vec::new();
        for &len in sends {
            let (body, mut out) = (pattern(len), Vec::new());
            let announced = duo.server.encryptor().encrypted_len(len);
            duo.server.encrypt(&[b"", &body], &mut out).unwrap();
            assert_eq!(out.len(), announced, "{sends:?}");
            found.extend(record_lens(&out));
            assert!(
                to_client(&mut duo.client, &out).unwrap() == body,
                "{sends:?}"
            );
        }
        assert_eq!(found, lens, "{sends:?}");
    }
}

/// Plaintext lengths of consecutive records.
fn record_lens(mut encrypted: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while !encrypted.is_empty() {
        let len = usize::from(u16::from_be_bytes([encrypted[3], encrypted[4]]));
        lens.push(len - 17);
        encrypted = &encrypted[5 + len..];
    }
    lens
}

#[test]
fn encrypting_into_old_memory_is_the_same() {
    let (mut one, _) = layers(TlsVersion::Tls13, Cipher::Aes128Gcm);
    let (mut two, _) = layers(TlsVersion::Tls13, Cipher::Aes128Gcm);
    let body = pattern(40_000);
    let (mut fresh, mut old) = (Vec::new(), vec![0xee; 50_000]);
    one.encrypt(&[b"head", &body], &mut fresh).unwrap();
    let used = two.encrypt_into(&[b"head", &body], &mut old).unwrap();
    assert!(fresh == old[..used], "the same records");
    assert!(
        old[used..].iter().all(|byte| *byte == 0xee),
        "the rest is untouched"
    );
    assert!(fresh.len() <= 40_004 + 3 * RECORD_OVERHEAD_MAX);
}

#[test]
fn any_cut_gives_the_same_plaintext() {
    for suite in SUITES {
        let mut random = Random(0x1234_5678_9abc_def1);
        for round in 0..20 {
            let mut duo = duo_of(suite);
            let mut expected = Vec::new();
            let mut encrypted = Vec::new();
            for _ in 0..random.below(6) + 1 {
                let body = pattern(random.below(3000));
                encrypted.extend(duo.encrypt_up(&body));
                expected.extend(body);
            }
            let (mut rest, mut plain) = (&encrypted[..], Vec::new());
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(random.below(700) + 1));
                assert_eq!(duo.server.receive(now, &mut plain), Ok(Received::Open));
                rest = later;
            }
            assert!(plain == expected, "round {round} {suite:?}");
        }
    }
}

#[test]
fn keys_are_updated_by_either_side_in_the_middle() {
    let body = pattern(40_000);
    let mut duo = Duo::plain();
    // The client updates its key and requests an update of ours.
    for round in 0..5 {
        let mut encrypted = duo.encrypt_up(&body[..20_000]);
        duo.client.refresh_traffic_keys().unwrap();
        encrypted.extend(duo.encrypt_up(&body[20_000..]));
        let mut plain = Vec::new();
        assert_eq!(
            duo.server.receive(&encrypted, &mut plain),
            Ok(Received::Open),
            "{round}"
        );
        assert!(plain == body, "{round}");
        // Ours precedes our next output, and only once.
        let mut out = Vec::new();
        duo.server.encrypt(&[b"next"], &mut out).unwrap();
        assert_eq!(out.len(), (5 + 22) + (4 + 22));
        assert_eq!(to_client(&mut duo.client, &out).unwrap(), b"next");
        let mut out = Vec::new();
        duo.server.encrypt(&[b"next"], &mut out).unwrap();
        assert_eq!(out.len(), 4 + 22);
        assert_eq!(to_client(&mut duo.client, &out).unwrap(), b"next");
    }
    // We update, without and with a request.
    for request in [false, true] {
        let mut out = Vec::new();
        duo.server.encrypt(&[&body[..30_000]], &mut out).unwrap();
        duo.server.update_keys(request, &mut out).unwrap();
        duo.server.encrypt(&[&body[30_000..]], &mut out).unwrap();
        assert!(
            to_client(&mut duo.client, &out).unwrap() == body,
            "{request}"
        );
        assert_eq!(duo.up(b"still here"), b"still here");
    }
}

#[test]
fn tls12_has_no_key_updates() {
    let mut duo = duo_of(SUITES[3]);
    let mut out = Vec::new();
    duo.server.update_keys(true, &mut out).unwrap();
    assert_eq!(out, b"");
    assert_eq!(duo.down(&[b"as before"]), b"as before");
    assert_eq!(duo.server.into_kernel().err(), Some(StaysOurs::Tls12));
}

#[test]
fn orderly_ends() {
    for suite in [SUITES[0], SUITES[4]] {
        let mut duo = duo_of(suite);
        let mut encrypted = duo.encrypt_up(b"last");
        duo.client.send_close_notify();
        encrypted.extend(from_client(&mut duo.client));
        let mut plain = Vec::new();
        assert_eq!(
            duo.server.receive(&encrypted, &mut plain),
            Ok(Received::Closed)
        );
        assert_eq!(plain, b"last");
        // Further input is ignored (RFC 8446 section 6.1), and our output can still be sent.
        assert_eq!(
            duo.server.receive(&[0; 40], &mut plain),
            Ok(Received::Closed)
        );
        assert_eq!(
            (plain.len(), duo.down(&[b"answer"])),
            (4, b"answer".to_vec())
        );
        let mut out = Vec::new();
        duo.server.end(Alert::CLOSE_NOTIFY, &mut out);
        let len = out.len();
        duo.server.end(Alert::INTERNAL_ERROR, &mut out);
        assert_eq!(out.len(), len, "nothing follows the last record");
        assert!(duo.server.encrypt(&[b"more"], &mut out).is_err());
        let mut rest = &out[..];
        duo.client.read_tls(&mut rest).unwrap();
        assert!(duo.client.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn a_fault_is_told() {
    for suite in SUITES {
        let mut duo = duo_of(suite);
        let mut encrypted = duo.encrypt_up(b"request");
        let last = encrypted.len() - 1;
        encrypted[last] ^= 1;
        let mut plain = Vec::new();
        let fault = duo.server.receive(&encrypted, &mut plain).unwrap_err();
        assert_eq!(
            (fault, plain.len()),
            (TlsFault::Ours(Alert::BAD_RECORD_MAC), 0)
        );
        let mut out = Vec::new();
        duo.server.end(Alert::BAD_RECORD_MAC, &mut out);
        let error = to_client(&mut duo.client, &out).unwrap_err();
        let told = rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac);
        assert_eq!(error, told);
    }
}

#[test]
fn alerts_of_the_peer() {
    let (cipher, version) = (Cipher::Aes128Gcm, TlsVersion::Tls13);
    let check = |content: &[u8]| {
        let mut records = Records::new(version, cipher);
        let encrypted = records.encrypt(21, content, 0);
        records.open(&encrypted)
    };
    assert_eq!(check(&[2, 48]), Err(TlsFault::Peers(Alert(48))));
    // In TLS 1.3 the level is ignored (RFC 8446 section 6).
    assert_eq!(check(&[1, 48]), Err(TlsFault::Peers(Alert(48))));
    assert_eq!(check(&[1, 90]), Ok(Vec::new()));
    assert_eq!(check(&[1, 0, 0]), Err(TlsFault::Ours(Alert::DECODE_ERROR)));
    assert_eq!(check(&[]), Err(TlsFault::Ours(Alert::DECODE_ERROR)));
}

/// Makes records that our own encryptor would not produce.
struct Records {
    sequence: u64,
    version: TlsVersion,
    key: aws_lc_rs::aead::LessSafeKey,
    decryptor: Decryptor,
}

impl Records {
    fn new(version: TlsVersion, cipher: Cipher) -> Self {
        assert_eq!(cipher, Cipher::Aes128Gcm);
        let unbound =
            aws_lc_rs::aead::UnboundKey::new(&aws_lc_rs::aead::AES_128_GCM, &[5; 16]).unwrap();
        let (_, decryptor) = layers(version, cipher);
        Self {
            sequence: 3,
            version,
            key: aws_lc_rs::aead::LessSafeKey::new(unbound),
            decryptor,
        }
    }

    /// A TLS 1.3 record of any type, content and padding.
    fn encrypt(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        assert_eq!(self.version, TlsVersion::Tls13);
        let mut body = content.to_vec();
        body.push(kind);
        body.resize(body.len() + padding, 0);
        let len = u16::try_from(body.len() + 16).unwrap().to_be_bytes();
        let header = [23, 3, 3, len[0], len[1]];
        let mut nonce = [9; 12];
        for (byte, over) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= over;
        }
        self.sequence += 1;
        let nonce = aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce);
        let aad = aws_lc_rs::aead::Aad::from(header);
        self.key
            .seal_in_place_append_tag(nonce, aad, &mut body)
            .unwrap();
        [&header[..], &body].concat()
    }

    fn open(&mut self, encrypted: &[u8]) -> Result<Vec<u8>, TlsFault> {
        let mut plain = Vec::new();
        self.decryptor.decrypt(encrypted, &mut plain)?;
        Ok(plain)
    }
}

#[test]
fn padding_and_lengths() {
    let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
    for (len, padding) in [(0, 0), (0, 300), (5, 0), (5, 1), (5, 16_000), (16_384, 0)] {
        let body = pattern(len);
        let encrypted = records.encrypt(23, &body, padding);
        assert_eq!(records.open(&encrypted), Ok(body), "{len} {padding}");
    }
    // The longest record: content, type and padding of 2^14 + 1 bytes (RFC 8446 section 5.4).
    for (content, padding) in [(16_384, 0), (16_000, 384), (0, 16_384)] {
        let encrypted = records.encrypt(23, &pattern(content), padding);
        assert_eq!(encrypted.len(), 5 + CIPHERTEXT_MAX_TLS13);
        assert_eq!(
            records.open(&encrypted).map(|plain| plain.len()),
            Ok(content)
        );
    }
    let check = |content: usize, padding: usize| {
        let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
        let encrypted = records.encrypt(23, &pattern(content), padding);
        records.open(&encrypted)
    };
    let overflow = Err(TlsFault::Ours(Alert::RECORD_OVERFLOW));
    assert_eq!(check(16_385, 0), overflow, "content over 2^14");
    for (content, padding) in [(16_384, 1), (16_384, 239), (5, 16_380), (0, 16_600)] {
        assert_eq!(
            check(content, padding),
            overflow,
            "by padding: {content} {padding}"
        );
    }
    assert_eq!(check(16_384, 240), overflow, "a record over 2^14 + 256");
    // A record of zeros only has no type (RFC 8446 section 5.4).
    let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
    let encrypted = records.encrypt(0, b"", 10);
    assert_eq!(
        records.open(&encrypted),
        Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE))
    );
}

#[test]
fn an_impossible_record_is_not_waited_for() {
    let check = |header: &[u8]| {
        let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
        records.open(header)
    };
    assert_eq!(
        check(&[23, 3, 3, 0x40, 18]),
        Err(TlsFault::Ours(Alert::RECORD_OVERFLOW))
    );
    assert_eq!(
        check(&[23, 3, 3, 0x40, 17]),
        Ok(Vec::new()),
        "the longest one is valid"
    );
    // Shorter than a tag; a tag alone, without a type.
    for len in [0, 15, 16] {
        let mut record = vec![23, 3, 3, 0, len];
        record.resize(5 + usize::from(len), 7);
        assert_eq!(
            check(&record),
            Err(TlsFault::Ours(Alert::BAD_RECORD_MAC)),
            "{len}"
        );
    }
    // Clear-text records are not allowed after the handshake (RFC 8446 section 5).
    for kind in [20, 21, 22, 24, 0, b'G'] {
        let result = check(&[kind, 3, 3, 0, 2, 1, 0]);
        assert_eq!(
            result,
            Err(TlsFault::Ours(Alert::UNEXPECTED_MESSAGE)),
            "{kind}"
        );
    }
}

#[test]
fn messages_after_the_handshake() {
    let unexpected = TlsFault::Ours(Alert::UNEXPECTED_MESSAGE);
    let check = |parts: &[&[u8]]| -> Result<bool, TlsFault> {
        let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
        let mut updated = false;
        for part in parts {
            let encrypted = records.encrypt(22, part, 0);
            updated |= records.decryptor.decrypt(&encrypted, &mut Vec::new())?;
        }
        Ok(updated)
    };
    assert_eq!(check(&[&[24, 0, 0, 1, 0]]), Ok(true));
    assert_eq!(check(&[&[24, 0, 0, 1, 1]]), Ok(true));
    assert_eq!(
        check(&[&[24], &[0, 0], &[1, 0]]),
        Ok(true),
        "in three records"
    );
    assert_eq!(check(&[&[24, 0, 0, 1]]), Ok(false), "the rest is missing");
    assert_eq!(
        check(&[&[24, 0, 0, 1, 2]]),
        Err(TlsFault::Ours(Alert::ILLEGAL_PARAMETER))
    );
    assert_eq!(check(&[&[24, 0, 0, 2, 0, 0]]), Err(unexpected));
    assert_eq!(
        check(&[&[24, 0, 1, 0, 0]]),
        Err(TlsFault::Ours(Alert::DECODE_ERROR))
    );
    assert_eq!(
        check(&[&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0]]),
        Err(unexpected),
        "not aligned"
    );
    assert_eq!(check(&[&[]]), Err(unexpected), "empty");
    assert_eq!(check(&[&[1, 0, 0, 1, 0]]), Err(unexpected), "a ClientHello");
    assert_eq!(
        check(&[&[4, 0, 0, 1, 0]]),
        Err(unexpected),
        "a ticket, from a client"
    );
    // Application data between the parts of a handshake message (RFC 8446 section 5.1).
    let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
    let mut encrypted = records.encrypt(22, &[24, 0, 0], 0);
    encrypted.extend(records.encrypt(23, b"data", 0));
    assert_eq!(records.open(&encrypted), Err(unexpected));
    // An unknown record type.
    let encrypted = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm).encrypt(99, b"x", 0);
    let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
    assert_eq!(records.open(&encrypted), Err(unexpected));
}

#[test]
fn fruitless_records_are_bounded() {
    let mut records = Records::new(TlsVersion::Tls13, Cipher::Aes128Gcm);
    for count in 0..=EMPTY_RECORDS_MAX {
        let encrypted = records.encrypt(23, b"", 5);
        let is_over = count == EMPTY_RECORDS_MAX;
        assert_eq!(records.open(&encrypted).is_err(), is_over, "{count}");
    }
    let mut duo = Duo::plain();
    let mut updates = 0;
    let fault = loop {
        duo.client.refresh_traffic_keys().unwrap();
        let encrypted = from_client(&mut duo.client);
        match duo.server.receive(&encrypted, &mut Vec::new()) {
            Ok(_) => updates += 1,
            Err(fault) => break fault,
        }
        assert!(updates <= KEY_UPDATES_MAX);
    };
    assert_eq!(
        (fault, updates),
        (TlsFault::Ours(Alert::UNEXPECTED_MESSAGE), KEY_UPDATES_MAX)
    );
}

/// Key updates are allowed for records sent as well as for records received: a long download may
/// have any number of them. Records sent long ago do not permit a flood.
#[test]
fn key_updates_are_bounded_by_the_records_between_them() {
    let update = |duo: &mut Duo| {
        duo.client.refresh_traffic_keys().unwrap();
        let encrypted = from_client(&mut duo.client);
        duo.server.receive(&encrypted, &mut Vec::new())
    };
    let content = pattern(20_000);
    for is_kernel in [false, true] {
        let mut duo = Duo::plain();
        if is_kernel {
            duo.server.into_kernel().unwrap();
        }
        for round in 0..10 * KEY_UPDATES_MAX {
            if is_kernel {
                // The kernel encrypts; our own key is updated occasionally.
                let _ = duo.server.kernel_sends(20_000);
                assert!(duo.server.kernel_update().is_some());
            } else {
                assert!(duo.down(&[&content]) == content);
            }
            assert_eq!(update(&mut duo), Ok(Received::Open), "{round}");
        }
        let followed = (0..).take_while(|_| update(&mut duo).is_ok()).count();
        assert!(followed <= KEY_UPDATES_MAX as usize, "{followed}");
    }
    // Requests count as well.
    let mut duo = Duo::plain();
    for _ in 0..3 * KEY_UPDATES_MAX {
        assert_eq!(duo.up(b"GET"), b"GET");
        assert_eq!(update(&mut duo), Ok(Received::Open));
    }
}

#[test]
fn renegotiation_is_refused() {
    let mut duo = duo_of(SUITES[3]);
    let secrets = Secrets {
        cipher: Cipher::Aes128Gcm,
        key: [5; 32],
        iv: [9; 12],
        sequence: 0,
    };
    let mut decryptor = Decryptor::new(TlsVersion::Tls12, secrets);
    // A TLS 1.2 record with handshake content, encrypted as the peer would.
    let key = aws_lc_rs::aead::UnboundKey::new(&aws_lc_rs::aead::AES_128_GCM, &[5; 16]).unwrap();
    let key = aws_lc_rs::aead::LessSafeKey::new(key);
    let mut body = vec![1, 0, 0, 0];
    let mut aad = [0; 13];
    aad[8..].copy_from_slice(&[22, 3, 3, 0, 4]);
    let nonce = [9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 1];
    let nonce = aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce);
    let aad = aws_lc_rs::aead::Aad::from(aad);
    key.seal_in_place_append_tag(nonce, aad, &mut body).unwrap();
    let record = [&[22, 3, 3, 0, 28][..], &[0, 0, 0, 0, 0, 0, 0, 1], &body].concat();
    let fault = decryptor.decrypt(&record, &mut Vec::new()).unwrap_err();
    assert_eq!(fault, TlsFault::Ours(Alert::UNEXPECTED_MESSAGE));
    assert_eq!(duo.up(b"untouched"), b"untouched");
}

#[test]
fn changed_records_never_panic_and_never_pass() {
    let mut random = Random(0xdead_beef_1234_5678);
    for round in 0..2000 {
        let version = if random.below(2) == 0 {
            TlsVersion::Tls12
        } else {
            TlsVersion::Tls13
        };
        let cipher = [
            Cipher::Aes128Gcm,
            Cipher::Aes256Gcm,
            Cipher::ChaCha20Poly1305,
        ][random.below(3)];
        let (mut encryptor, mut decryptor) = layers(version, cipher);
        let mut encrypted = Vec::new();
        let body = pattern(random.below(300));
        encryptor.encrypt(&[&body], &mut encrypted).unwrap();
        encryptor.encrypt(&[b"second"], &mut encrypted).unwrap();
        let len = encrypted.len();
        for _ in 0..random.below(3) + 1 {
            let at = random.below(len);
            encrypted[at] = encrypted[at].wrapping_add(1 + random.below(255) as u8);
        }
        encrypted.truncate(len - random.below(10));
        let mut plain = Vec::new();
        let result = decryptor.decrypt(&encrypted, &mut plain);
        let mut whole = body.clone();
        whole.extend_from_slice(b"second");
        assert!(
            whole.starts_with(&plain),
            "round {round}: only encrypted content is output"
        );
        assert!(
            result.is_err() || plain.len() < whole.len(),
            "round {round}: the change is detected"
        );
    }
}

#[test]
fn the_key_is_handed_to_the_kernel_and_back() {
    let mut duo = Duo::plain();
    assert_eq!(duo.down(&[b"ours"]), b"ours");
    let secrets = duo.server.into_kernel().unwrap();
    assert!(duo.server.is_kernel());
    assert_eq!(duo.server.into_kernel().err(), Some(StaysOurs::Over));
    // The "kernel" encrypts with the key and continues our sequence numbers.
    let mut kernel = Encryptor::new(TlsVersion::Tls13, secrets);
    let body = pattern(100_000);
    assert_eq!(duo.server.kernel_sends(100_000), KernelNeeds::Nothing);
    let mut out = Vec::new();
    kernel.encrypt(&[&body], &mut out).unwrap();
    assert!(to_client(&mut duo.client, &out).unwrap() == body);
    // The client requests an update: it is due before the next send.
    duo.client.refresh_traffic_keys().unwrap();
    assert_eq!(duo.up(b"more"), b"more");
    assert_eq!(duo.server.kernel_sends(10), KernelNeeds::KeyUpdate);
    let (content, secrets) = duo.server.kernel_update().unwrap();
    assert_eq!(content, [24, 0, 0, 1, 0]);
    let mut out = Vec::new();
    out.extend(control(&mut kernel, &content));
    let mut kernel = Encryptor::new(TlsVersion::Tls13, secrets);
    kernel.encrypt(&[b"with the next key"], &mut out).unwrap();
    assert_eq!(
        to_client(&mut duo.client, &out).unwrap(),
        b"with the next key"
    );
    assert_eq!(duo.server.kernel_sends(10), KernelNeeds::Nothing);
}

/// A handshake record, encrypted as the kernel would.
fn control(kernel: &mut Encryptor, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    kernel
        .encrypt_control(ContentType::Handshake, content, &mut out)
        .unwrap();
    out
}

#[test]
fn a_kernel_that_refuses_gives_the_key_back() {
    let mut duo = Duo::plain();
    assert_eq!(duo.down(&[b"one"]), b"one");
    let secrets = duo.server.into_kernel().unwrap();
    duo.server.take_back(secrets);
    assert_eq!(duo.down(&[b"two"]), b"two");
}

#[test]
fn records_of_the_kernel_are_counted() {
    let mut duo = Duo::plain();
    let _secrets = duo.server.into_kernel().unwrap();
    let slice = 1 << 30;
    let mut sends = 0u64;
    let mut updated = false;
    loop {
        match duo.server.kernel_sends(slice) {
            KernelNeeds::Nothing => assert!(!updated),
            KernelNeeds::KeyUpdate => updated = true,
            KernelNeeds::End => break,
        }
        sends += 1;
    }
    // 2^24 records of 2^14 bytes (RFC 8446 section 5.5), plus one counted for each send.
    assert!(
        updated && (255..=256).contains(&((sends * slice) >> 30)),
        "{sends}"
    );
    assert!(duo.server.kernel_update().is_some());
    assert_eq!(duo.server.kernel_sends(slice), KernelNeeds::Nothing);
}

#[test]
fn our_own_records_are_counted() {
    let secrets = |sequence| Secrets {
        cipher: Cipher::Aes128Gcm,
        key: [1; 32],
        iv: [1; 12],
        sequence,
    };
    let encryptor = Encryptor::new(TlsVersion::Tls13, secrets(1 << 23));
    assert!(encryptor.wants_key_update());
    let mut encryptor = Encryptor::new(TlsVersion::Tls12, secrets((1 << 24) - 1025));
    let mut out = Vec::new();
    assert!(encryptor.encrypt(&[b"x"], &mut out).is_ok());
    let len = out.len();
    assert!(encryptor.encrypt(&[b"x"], &mut out).is_err());
    assert_eq!(out.len(), len);
}

/// An operator may configure fewer records, whether we or the kernel encrypt.
#[test]
fn fewer_records_may_be_asked_for() {
    let mut duo = Duo::plain();
    duo.server.limit_records(256);
    for _ in 0..300 {
        assert_eq!(duo.down(&[b"one record"]), b"one record");
    }
    assert_eq!(duo.server.take_key_updates().ours, 1);
    let encrypted = duo.server.encryptor().sequence();
    let secrets = duo.server.into_kernel().unwrap();
    // Each send counts as two records: the last is rarely full.
    for _ in 0..(256 - encrypted) / 2 {
        assert_eq!(duo.server.kernel_sends(1), KernelNeeds::Nothing);
    }
    for _ in 0..128 {
        assert_eq!(duo.server.kernel_sends(1), KernelNeeds::KeyUpdate);
    }
    assert_eq!(duo.server.kernel_sends(1), KernelNeeds::End);
    duo.server.take_back(secrets);
    let mut out = Vec::new();
    for _ in 0..300 {
        duo.server.encrypt(&[b"x"], &mut out).unwrap();
    }
    assert_eq!(duo.server.take_key_updates().ours, 1);

    let mut old = duo_of(SUITES[3]);
    old.server.limit_records(256);
    while old.server.encryptor().sequence() < 512 {
        let is_used = old.server.encryptor().sequence() >= 256;
        assert_eq!(old.server.wants_end(), is_used);
        old.server.encrypt(&[b"x"], &mut out).unwrap();
    }
    assert!(
        old.server.encrypt(&[b"x"], &mut out).is_err(),
        "the key is used up"
    );
}

#[test]
fn tickets_leave_with_the_first_answer() {
    let authority = Authority::new();
    let options = gannet_server::tls::config::Options::default();
    let set = for_localhost(&authority, &options);
    let mut client = connect(&authority.client(Abilities::default()), "localhost");
    let mut server = shake(&set, &mut client).unwrap().session;
    assert_eq!(server.into_kernel().err(), Some(StaysOurs::Waiting));
    assert!(server.has_waiting());
    client.writer().write_all(b"request").unwrap();
    let encrypted = from_client(&mut client);
    assert_eq!(
        server.receive(&encrypted, &mut Vec::new()),
        Ok(Received::Open)
    );
    let mut out = Vec::new();
    server.encrypt(&[b"answer"], &mut out).unwrap();
    assert!(out.len() > 200, "{}: two tickets and an answer", out.len());
    assert_eq!(to_client(&mut client, &out).unwrap(), b"answer");
    assert_eq!(client.tls13_tickets_received(), 2);
}
