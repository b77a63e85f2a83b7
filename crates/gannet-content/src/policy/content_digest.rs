//! Whether part of a file's name is a digest of the file's content: the proof that the name changes
//! whenever the content does.
//!
//! Site generators write digests in many ways (MD5 in hexadecimal, SHA-256 in base 64, ...) and
//! truncate them. None of these ways has to be known: the common digests of the bytes are computed,
//! and a token of the name that is the beginning of one of them, in one of the common encodings, is
//! not a coincidence.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};
use xxhash_rust::xxh64::Xxh64;

use super::hashed_name::digest_tokens;

/// The algorithm of a digest in a name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Algorithm {
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
    /// BLAKE3.
    Blake3,
    /// XXH64.
    Xxh64,
}

impl Algorithm {
    const ALL: [Self; 7] = [
        Self::Md5,
        Self::Sha1,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
        Self::Blake3,
        Self::Xxh64,
    ];

    /// Its usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
            Self::Blake3 => "BLAKE3",
            Self::Xxh64 => "XXH64",
        }
    }

    /// The algorithm of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// Computes the common digests of a content, piece by piece.
#[derive(Clone)]
pub struct ContentDigests {
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
    sha384: Sha384,
    sha512: Sha512,
    blake3: blake3::Hasher,
    xxh64: Xxh64,
}

impl Default for ContentDigests {
    fn default() -> Self {
        Self {
            md5: Md5::new(),
            sha1: Sha1::new(),
            sha256: Sha256::new(),
            sha384: Sha384::new(),
            sha512: Sha512::new(),
            blake3: blake3::Hasher::new(),
            xxh64: Xxh64::new(0),
        }
    }
}

impl ContentDigests {
    /// Adds the next bytes of the content.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.sha1.update(bytes);
        self.sha256.update(bytes);
        self.sha384.update(bytes);
        self.sha512.update(bytes);
        self.blake3.update(bytes);
        self.xxh64.update(bytes);
    }

    /// The digest of the content that the name of `path` contains, if any.
    #[must_use]
    pub fn in_name_of(self, path: &str) -> Option<Algorithm> {
        let tokens = digest_tokens(path);
        let blake3 = self.blake3.finalize();
        let digests: [(Algorithm, &[u8]); 7] = [
            (Algorithm::Md5, &self.md5.finalize()),
            (Algorithm::Sha1, &self.sha1.finalize()),
            (Algorithm::Sha256, &self.sha256.finalize()),
            (Algorithm::Sha384, &self.sha384.finalize()),
            (Algorithm::Sha512, &self.sha512.finalize()),
            (Algorithm::Blake3, blake3.as_bytes()),
            (Algorithm::Xxh64, &self.xxh64.digest().to_be_bytes()),
        ];
        let begins = |(_, digest): &&(Algorithm, &[u8])| {
            let encoded = Encoded::of(digest);
            tokens.iter().any(|token| encoded.begins_with(token))
        };
        digests.iter().find(begins).map(|(algorithm, _)| *algorithm)
    }
}

/// A digest in the encodings used in names.
struct Encoded {
    hex: String,
    base32: String,
    base36: [String; 2],
    base64: String,
}

impl Encoded {
    fn of(digest: &[u8]) -> Self {
        let reversed: Vec<u8> = digest.iter().rev().copied().collect();
        Self {
            hex: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            base32: base32(digest),
            // webpack's loaders read the bytes as a number, least significant byte first.
            base36: [base36(digest), base36(&reversed)],
            base64: URL_SAFE_NO_PAD.encode(digest),
        }
    }

    fn begins_with(&self, token: &str) -> bool {
        let begins = |text: &String| {
            let start = text.get(..token.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(token))
        };
        begins(&self.hex)
            || begins(&self.base32)
            || self.base36.iter().any(begins)
            || self.base64.starts_with(token)
    }
}

/// RFC 4648 section 6, without padding.
fn base32(bytes: &[u8]) -> String {
    let mut out = String::new();
    let (mut bits, mut count) = (0u32, 0);
    let digit = |value: u32| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[value as usize & 31]);
    for &byte in bytes {
        bits = bits << 8 | u32::from(byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            out.push(digit(bits >> count));
        }
    }
    if count > 0 {
        out.push(digit(bits << (5 - count)));
    }
    out
}

/// The bytes as one number, most significant first, in base 36.
fn base36(bytes: &[u8]) -> String {
    let mut number: Vec<u8> = bytes.to_vec();
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte > 0) {
        let mut rest = 0u32;
        for byte in &mut number {
            let value = rest << 8 | u32::from(*byte);
            // Below 256, because the remainder was below 36.
            *byte = (value / 36) as u8;
            rest = value % 36;
        }
        digits.push(char::from(
            b"0123456789abcdefghijklmnopqrstuvwxyz"[rest as usize],
        ));
    }
    digits.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, content: &[u8], expect: Option<Algorithm>) {
        let mut digests = ContentDigests::default();
        digests.update(content);
        assert_eq!(digests.in_name_of(path), expect, "{path}");
    }

    /// The digests are those printed by `md5sum`, `sha1sum` and so on.
    #[test]
    fn a_digest_of_the_content_is_found_in_every_encoding() {
        let content = b"body { color: red }\n";
        check(
            "css/app.a04b5b6a0db31d0b.css",
            content,
            None, // of another content
        );
        for algorithm in Algorithm::ALL {
            let digest = digest_of(algorithm, content);
            let encoded = Encoded::of(&digest);
            let all = [&encoded.hex, &encoded.base64, &encoded.base32];
            for text in all.into_iter().chain(&encoded.base36) {
                for len in [12, text.len()] {
                    let len = len.min(text.len());
                    let path = format!("css/app.{}.min.css", &text[..len]);
                    check(&path, content, Some(algorithm));
                    check(&path, b"body { color: blue }\n", None);
                }
            }
            let path = format!("{}.css", encoded.hex.to_uppercase());
            check(&path, content, Some(algorithm));
        }
    }

    #[test]
    fn encodings_are_those_of_their_standards() {
        // RFC 1321, RFC 4648 section 10.
        check(
            "x.900150983cd24fb0d6963f7d28e17f72.js",
            b"abc",
            Some(Algorithm::Md5),
        );
        check("x.ba7816bf8f01cfea.js", b"abc", Some(Algorithm::Sha256));
        check("x.a9993e36.js", b"abc", Some(Algorithm::Sha1));
        check("x.a9993e36.png", b"abc", None); // images need more digits
        check("x.44bc2cf5ad770999.js", b"abc", Some(Algorithm::Xxh64));
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        assert_eq!(base32(b"fooba"), "mzxw6ytb");
        assert_eq!(base32(b"foob"), "mzxw6yq");
        assert_eq!(base36(&[1, 0]), "74");
        assert_eq!(base36(&[0, 35]), "z");
    }

    fn digest_of(algorithm: Algorithm, content: &[u8]) -> Vec<u8> {
        match algorithm {
            Algorithm::Md5 => Md5::digest(content).to_vec(),
            Algorithm::Sha1 => Sha1::digest(content).to_vec(),
            Algorithm::Sha256 => Sha256::digest(content).to_vec(),
            Algorithm::Sha384 => Sha384::digest(content).to_vec(),
            Algorithm::Sha512 => Sha512::digest(content).to_vec(),
            Algorithm::Blake3 => blake3::hash(content).as_bytes().to_vec(),
            Algorithm::Xxh64 => xxhash_rust::xxh64::xxh64(content, 0).to_be_bytes().to_vec(),
        }
    }
}
