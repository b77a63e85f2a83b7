//! Signed archives: what the signature covers, and the errors when something differs.

use std::os::unix::fs::FileExt as _;

use gannet_archive::signature::{PublicKey, SignatureError, check, check_bodies};
use gannet_archive::{SUPERBLOCK_LEN, put_signature, signed_text};
use minisign::KeyPair;

use super::*;
use crate::archive::verify_signature;

/// A signed archive, and its public key.
fn signed() -> (Place, String) {
    let place = Place::new();
    place.file("index.html", "front ".repeat(2000));
    place.file("tiny.txt", "tiny");
    let pair = KeyPair::generate_unencrypted_keypair().expect("random numbers");
    let key = place.0.join("release.key");
    let secret = pair.sk.to_box(None).expect("a key").into_string();
    fs::write(&key, secret).expect("writable");
    let options = PackOptions {
        sign: Some(key),
        ..place.options()
    };
    pack(&options, &mut NoProgress).expect("it packs");
    (place, pair.pk.to_base64())
}

/// As `minisign -G -W` of 2022 wrote it: the checksum is 32 zero bytes.
const WITHOUT_CHECKSUM: [&str; 2] = [
    "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAArmE3LP4gIIMM1AlaMB\
     IHNg+ekVliFPwq2ysabVGczh5RthWs96M3lCkbW8uOgJJusCIMYZvc0wXDS5rpCEd0REECVdInQbcpAAAAAAAAAAAA\
     AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "RWSuYTcs/iAggykbW8uOgJJusCIMYZvc0wXDS5rpCEd0REECVdInQbcp",
];

#[test]
fn a_key_of_minisign_without_password_signs() {
    let [secret, public] = WITHOUT_CHECKSUM;
    let place = Place::new();
    place.file("index.html", "front");
    let key = place.0.join("release.key");
    let options = PackOptions {
        sign: Some(key.clone()),
        ..place.options()
    };
    fs::write(&key, format!("untrusted comment: x\n{secret}\n")).expect("writable");
    pack(&options, &mut NoProgress).expect("it signs");
    assert_eq!(why(&place, public), None);

    // A checksum that is present must match.
    let wrong = &secret[..secret.len() - 4];
    let wrong = format!("untrusted comment: x\n{wrong}BBA=\n");
    fs::write(&key, wrong).expect("writable");
    let error = pack(&options, &mut NoProgress).expect_err("refused");
    assert!(error.to_string().contains("Corrupted key"), "{error}");
}

fn why(place: &Place, key: &str) -> Option<String> {
    let error = verify_signature(&place.archive(), key).err()?;
    Some(error.to_string())
}

/// Writes another signature into the archive.
fn put(place: &Place, signature: &[u8]) {
    let mut bytes = fs::read(place.archive()).expect("written");
    let first: &mut [u8; SUPERBLOCK_LEN] = bytes.first_chunk_mut().expect("an archive");
    assert!(put_signature(first, signature));
    fs::write(place.archive(), bytes).expect("writable");
}

#[test]
fn a_signed_archive_is_whole_and_has_the_build_id_of_an_unsigned_one() {
    let (place, key) = signed();
    assert_eq!(why(&place, &key), None);
    verify(&place.archive()).expect("sound");
    let file = place.open();
    let key = PublicKey::parse(&format!("untrusted comment: x\n{key}\n")).expect("a file's text");
    check(file.archive(), &key).expect("signed");
    let bytes = fs::File::open(place.archive()).expect("there");
    let read = |chunk: &mut [u8], at| bytes.read_exact_at(chunk, at);
    let checked = check_bodies(file.archive(), read).expect("readable");
    checked.expect("sound");
    let build_id = *file.archive().superblock().build_id();
    assert_eq!(place.pack().build_id, build_id);
    assert!(
        why(&place, "nonsense")
            .expect("no key")
            .contains("the public key is malformed")
    );
}

#[test]
fn what_is_not_as_signed_is_refused_with_the_reason() {
    let (place, key) = signed();
    let file = place.open();
    let signature = file
        .archive()
        .superblock()
        .signature()
        .expect("signed")
        .to_vec();
    let other = KeyPair::generate_unencrypted_keypair().expect("random numbers");
    let check = |expect: &str| {
        let message = why(&place, &key).expect("refused");
        assert!(message.ends_with(expect), "{message}");
    };
    assert!(
        why(&place, &other.pk.to_base64())
            .expect("refused")
            .ends_with("it was signed with another key")
    );
    // Every significant byte of the signature.
    let comment_end = signature
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("lines");
    for at in comment_end..signature.len() {
        let mut wrong = signature.clone();
        wrong[at] ^= 0x41;
        put(&place, &wrong);
        assert!(why(&place, &key).is_some(), "byte {at}");
    }
    put(&place, b"");
    check("it is not signed");
    put(&place, b"untrusted comment: no more");
    check("its signature is malformed");
    // The signature of another build.
    let text = signed_text(&[7; 32]);
    let pair = fs::read_to_string(place.0.join("release.key")).expect("written");
    let secret = minisign::SecretKeyBox::from_string(&pair)
        .and_then(|it| it.into_unencrypted_secret_key())
        .expect("a key");
    let elsewhere = minisign::sign(None, &secret, text.as_bytes(), None, None).expect("signed");
    put(&place, elsewhere.to_string().as_bytes());
    check("its signature is wrong");
    put(&place, &signature);
    assert_eq!(why(&place, &key), None);
}

#[test]
fn a_changed_body_is_found() {
    let (place, _) = signed();
    let mut bytes = fs::read(place.archive()).expect("written");
    bytes[SUPERBLOCK_LEN + 100] ^= 1;
    fs::write(place.archive(), bytes).expect("writable");
    let file = place.open();
    let bytes = fs::File::open(place.archive()).expect("there");
    let read = |chunk: &mut [u8], at| bytes.read_exact_at(chunk, at);
    let checked = check_bodies(file.archive(), read).expect("readable");
    let error = checked.expect_err("a byte is wrong");
    assert!(matches!(error, SignatureError::Body(4096)), "{error}");
}

#[test]
fn a_key_that_is_none_is_told_before_anything_is_read() {
    let place = Place::new();
    let options = PackOptions {
        sign: Some(place.file("index.html", "no key")),
        ..place.options()
    };
    let error = pack(&options, &mut NoProgress).expect_err("no key");
    let message = error.to_string();
    assert!(message.contains("cannot sign with '"), "{message}");
    assert!(!place.archive().exists());
}
