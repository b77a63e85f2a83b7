//! What is in a file of a certificate, and the certificates for challenges.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use instant_acme::CertificateIdentifier;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use crate::limits::{CHAIN_LEN_MAX, CHAIN_MAX};

/// The first line of a file names the server that it is from: text before certificates is allowed (RFC
/// 7468 section 2).
pub(super) const FROM: &str = "Ordered from ";

/// A certificate as far as an orderer needs to know it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct CertificateFacts {
    /// The first second of its validity, Unix time.
    pub(super) not_before: i64,
    /// The last one.
    pub(super) not_after: i64,
    /// What the server calls it (RFC 9773 section 4.1); `None` if it lacks what that takes.
    pub(super) id: Option<CertificateIdentifier<'static>>,
    /// Its public key.
    pub(super) public_key: Vec<u8>,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl CertificateFacts {
    /// Reads the first certificate of a PEM text.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let pem = Pem::iter_from_buffer(text).next();
        let pem = pem
            .ok_or("there is no certificate")?
            .map_err(|error| error.to_string())?;
        let certificate = pem.parse_x509().map_err(|error| error.to_string())?;
        Ok(Self::of(&certificate, &pem.contents))
    }

    fn of(certificate: &X509Certificate<'_>, der: &[u8]) -> Self {
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            for name in &extension.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                    GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        Self {
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            id: CertificateIdentifier::try_from(&der.into()).ok(),
            public_key: certificate.public_key().raw.to_vec(),
            names,
            addresses,
        }
    }

    /// Whether it is valid, for a clock that may be a little behind.
    pub(super) fn is_valid(&self, now: i64) -> bool {
        (self.not_before - CLOCK_TOLERANCE..self.not_after).contains(&now)
    }

    /// Whether it is for this host.
    pub(super) fn is_for(&self, host: &str) -> bool {
        match host.parse::<IpAddr>() {
            Ok(address) => self.addresses.contains(&address),
            Err(_) => self.names.iter().any(|name| name == host),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Seconds by which a clock may be behind: servers let certificates begin an hour early.
const CLOCK_TOLERANCE: i64 = 3600;

/// Reads what a server has sent as a chain (RFC 8555 section 9.1): certificates and nothing else, each
/// signed by the next. Returns them as they go into a file, written anew, and what the first one says.
pub(super) fn chain(text: &str) -> Result<(String, CertificateFacts), String> {
    let (mut all, mut len) = (Vec::new(), 0);
    for pem in Pem::iter_from_buffer(text.as_bytes()) {
        let pem = pem.map_err(|error| error.to_string())?;
        if pem.label != "CERTIFICATE" {
            return Err(format!("there is a '{}' beside certificates", pem.label));
        }
        len += pem.contents.len();
        if all.len() == CHAIN_MAX || len > CHAIN_LEN_MAX {
            return Err(format!(
                "more than {CHAIN_MAX} certificates, or {CHAIN_LEN_MAX} bytes"
            ));
        }
        all.push(pem.contents);
    }
    let mut read = Vec::with_capacity(all.len());
    for der in &all {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("there are bytes after a certificate".into());
        }
        read.push(certificate);
    }
    for pair in read.windows(2) {
        is_signed(&pair[0], &pair[1])?;
    }
    let first = read.first().zip(all.first());
    let (first, der) = first.ok_or("there is no certificate")?;
    Ok((
        all.iter().map(|der| pem(der)).collect(),
        CertificateFacts::of(first, der),
    ))
}

/// Whether a certificate is the next one's work, as far as its algorithm is known here.
fn is_signed(certificate: &X509Certificate<'_>, by: &X509Certificate<'_>) -> Result<(), String> {
    let is_named = certificate.issuer().as_raw() == by.subject().as_raw();
    let signed = certificate.verify_signature(Some(by.public_key()));
    let is_unknown = |error: &X509Error| matches!(error, X509Error::SignatureUnsupportedAlgorithm);
    if !is_named || !by.is_ca() || signed.is_err_and(|error| !is_unknown(&error)) {
        return Err("a certificate of its chain is not signed by the next one".into());
    }
    Ok(())
}

/// RFC 7468 section 5.1.
fn pem(der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while let Some((line, further)) = rest.split_at_checked(64) {
        pem.push_str(line);
        pem.push('\n');
        rest = further;
    }
    if !rest.is_empty() {
        pem.push_str(rest);
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// The content of a file with both: a server never finds a certificate with the key of another one.
pub(super) fn file(server: &str, chain: &str, key: &str) -> String {
    format!("{FROM}{server}\n{}\n{}\n", chain.trim(), key.trim())
}

/// Whether such a file is from this server.
pub(super) fn is_from(server: &str, file: &[u8]) -> bool {
    let line = file.split(|byte| *byte == b'\n').next();
    line.and_then(|line| line.strip_prefix(FROM.as_bytes())) == Some(server.as_bytes())
}

/// Whether such a file is from any server.
pub(super) fn is_ordered(file: &[u8]) -> bool {
    file.starts_with(FROM.as_bytes())
}

/// The name that a TLS client sends for a host: an address has its name in reverse (RFC 8738 section 6).
pub(super) fn server_name(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Err(_) => host.to_owned(),
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let bytes = address.octets();
            let digits = bytes.iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let labels: Vec<String> = digits.map(|digit| format!("{digit:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}

/// The certificate that proves control of a host by TLS-ALPN-01 (RFC 8737 section 3), with its key.
pub(super) fn proof(host: &str, digest: &[u8]) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(certificate.pem() + &key.serialize_pem())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_server_and_is_read_again() {
        let params = CertificateParams::new(["a.test".to_owned(), "::1".to_owned()]);
        let key = KeyPair::generate().expect("a key");
        let chain = params
            .expect("names")
            .self_signed(&key)
            .expect("signed")
            .pem();
        let text = file("https://ca.test/dir", &chain, &key.serialize_pem());
        let facts = CertificateFacts::parse(text.as_bytes()).expect("a certificate");
        assert_eq!(
            facts.public_key,
            rcgen::PublicKeyData::subject_public_key_info(&key)
        );
        assert!(facts.is_for("a.test") && facts.is_for("::1"));
        assert!(!facts.is_for("b.test") && !facts.is_for("127.0.0.1"));
        assert!(is_from("https://ca.test/dir", text.as_bytes()));
        assert!(!is_from("https://ca.test/di", text.as_bytes()));
        assert!(!is_from("https://ca.test/dir", chain.as_bytes()));
        assert!(CertificateFacts::parse(b"").is_err());
        assert!(CertificateFacts::parse(text.replace('M', "N").as_bytes()).is_err());
    }

    /// A certificate with this name, whose maker has this key.
    fn issued(
        name: &str,
        by: Option<&rcgen::Issuer<'_, KeyPair>>,
        is_ca: bool,
        key: &KeyPair,
    ) -> String {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        if is_ca {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let made = match by {
            Some(by) => params.signed_by(key, by),
            None => params.self_signed(key),
        };
        made.expect("signed").pem()
    }

    fn issuer(name: &str, key: KeyPair) -> rcgen::Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        rcgen::Issuer::new(params, key)
    }

    #[test]
    fn of_a_servers_answer_only_a_chain_is_taken() {
        let key = || KeyPair::generate().expect("a key");
        let (root, other) = (key(), key());
        let top = issued("ca.test", None, true, &root);
        let lookalike = issued("ca.test", None, true, &other);
        let (root, other) = (issuer("ca.test", root), issuer("ca.test", other));
        let plain = issued("ca.test", None, false, &key());
        let leaf_key = key();
        let leaf = issued("a.test", Some(&root), false, &leaf_key);
        let check = |text: String, expect: Result<(), &str>| match (chain(&text), expect) {
            (Ok((text, facts)), Ok(())) => {
                assert!(facts.is_for("a.test"));
                assert_eq!(chain(&text).expect("the same again").0, text);
            }
            (Err(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
            (got, _) => panic!("{got:?}, and not {expect:?}"),
        };
        check(leaf.clone(), Ok(()));
        check(format!("{leaf}{top}"), Ok(()));
        // What is between certificates does not come into the file.
        let noisy = format!(
            "Set-Cookie: a\r\n{}and\n{top}<html>",
            leaf.replace('\n', "\r\n")
        );
        assert_eq!(chain(&noisy), chain(&format!("{leaf}{top}")));
        let unsigned = Err("not signed by the next one");
        check(format!("{leaf}{lookalike}"), unsigned);
        check(format!("{leaf}{plain}"), unsigned);
        check(format!("{leaf}{leaf}"), unsigned);
        check(format!("{top}{leaf}"), unsigned);
        let foreign = issued("a.test", Some(&other), false, &leaf_key);
        check(format!("{foreign}{top}"), unsigned);
        let own = leaf_key.serialize_pem();
        check(format!("{leaf}{own}"), Err("'PRIVATE KEY' beside"));
        check(leaf.clone() + &top.repeat(CHAIN_MAX), Err("more than 10"));
        let long = BASE64.encode(vec![0; CHAIN_LEN_MAX + 1]);
        let long = format!("-----BEGIN CERTIFICATE-----\n{long}\n-----END CERTIFICATE-----\n");
        check(format!("{leaf}{long}"), Err("or 65536 bytes"));
        let pem = Pem::iter_from_buffer(leaf.as_bytes()).next();
        let mut der = pem.expect("one").expect("readable").contents;
        der.push(0);
        check(super::pem(&der), Err("bytes after a certificate"));
        check(String::new(), Err("there is no certificate"));
    }

    #[test]
    fn addresses_are_asked_for_in_reverse() {
        assert_eq!(server_name("a.test"), "a.test");
        assert_eq!(server_name("192.0.2.10"), "10.2.0.192.in-addr.arpa");
        let name = server_name("2001:db8::1");
        let zeros = "0.".repeat(23);
        assert_eq!(name, format!("1.{zeros}8.b.d.0.1.0.0.2.ip6.arpa"));
    }
}
