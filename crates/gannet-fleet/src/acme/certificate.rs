//! What is in a file of a certificate, and the certificates for challenges.

use std::net::IpAddr;

use instant_acme::CertificateIdentifier;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

/// The first line of a file names the server that it is from: text before certificates is allowed (RFC
/// 7468 section 2).
const FROM: &str = "Ordered from ";

/// A certificate as far as an orderer needs to know it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Held {
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

impl Held {
    /// Reads the first certificate of a PEM text.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let pem = Pem::iter_from_buffer(text).next();
        let pem = pem
            .ok_or("there is no certificate")?
            .map_err(|error| error.to_string())?;
        let certificate = pem.parse_x509().map_err(|error| error.to_string())?;
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
        let der = pem.contents.as_slice().into();
        Ok(Self {
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            id: CertificateIdentifier::try_from(&der).ok(),
            public_key: certificate.public_key().raw.to_vec(),
            names,
            addresses,
        })
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

/// The content of a file with both: a server never finds a certificate with the key of another one.
pub(super) fn file(server: &str, chain: &str, key: &str) -> String {
    format!("{FROM}{server}\n{}\n{}\n", chain.trim(), key.trim())
}

/// Whether such a file is from this server.
pub(super) fn is_from(server: &str, file: &[u8]) -> bool {
    let line = file.split(|byte| *byte == b'\n').next();
    line.and_then(|line| line.strip_prefix(FROM.as_bytes())) == Some(server.as_bytes())
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
        let held = Held::parse(text.as_bytes()).expect("a certificate");
        assert_eq!(
            held.public_key,
            rcgen::PublicKeyData::subject_public_key_info(&key)
        );
        assert!(held.is_for("a.test") && held.is_for("::1"));
        assert!(!held.is_for("b.test") && !held.is_for("127.0.0.1"));
        assert!(is_from("https://ca.test/dir", text.as_bytes()));
        assert!(!is_from("https://ca.test/di", text.as_bytes()));
        assert!(!is_from("https://ca.test/dir", chain.as_bytes()));
        assert!(Held::parse(b"").is_err());
        assert!(Held::parse(text.replace('M', "N").as_bytes()).is_err());
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
