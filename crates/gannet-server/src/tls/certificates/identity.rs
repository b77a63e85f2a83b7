//! Who a client is by its certificate, in the words of the log.

use std::fmt::Write;

use aws_lc_rs::digest;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::distinguished::{self, CUT};
use crate::bounds::limits::{LOG_SERIAL_OCTETS_MAX, LOG_SUBJECT_MAX};

/// A client whose certificate was verified. All texts are ASCII; none is longer than its limit in
/// `limits.rs` with the mark of what was cut.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The subject by RFC 2253; empty if there is none.
    pub(crate) subject: Box<str>,
    /// The serial number in hex.
    pub(crate) serial: Box<str>,
    /// SHA-1 of the certificate in hex, if it is wanted: the fingerprint of nginx, which no one relies
    /// on to tell certificates apart that others could make.
    pub(crate) fingerprint: Box<str>,
}

impl Identity {
    /// Reads a certificate (DER) that was verified.
    pub(crate) fn new(certificate: &[u8], has_fingerprint: bool) -> Self {
        let fingerprint = match has_fingerprint {
            true => {
                let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, certificate);
                hex(digest.as_ref()).to_ascii_lowercase()
            }
            false => String::new(),
        };
        // One that verified and cannot be read here has no name, as one whose subject is empty.
        let (subject, serial) = match X509Certificate::from_der(certificate) {
            Ok((_, certificate)) => (
                distinguished::text(certificate.subject(), LOG_SUBJECT_MAX),
                serial(certificate.raw_serial()),
            ),
            Err(_) => Default::default(),
        };
        Self {
            subject: subject.into(),
            serial: serial.into(),
            fingerprint: fingerprint.into(),
        }
    }

    /// Bytes of memory it occupies.
    pub(crate) fn memory(&self) -> u64 {
        let texts = self.subject.len() + self.serial.len() + self.fingerprint.len();
        (size_of::<Self>() + texts) as u64
    }
}

/// The digits of a serial number.
fn serial(octets: &[u8]) -> String {
    let octets = match octets {
        // The sign.
        [0, rest @ ..] if !rest.is_empty() => rest,
        octets => octets,
    };
    match octets.get(..LOG_SERIAL_OCTETS_MAX) {
        Some(most) if most.len() < octets.len() => hex(most) + CUT,
        _ => hex(octets),
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{octet:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use gannet_testkit::{Folder, tool};
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SerialNumber};

    use super::*;

    /// A certificate (DER) with these attributes and this serial number.
    fn certificate(subject: Vec<(DnType, DnValue)>, serial: &[u8]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind, value);
        }
        params.serial_number = Some(SerialNumber::from_slice(serial));
        let key = KeyPair::generate().expect("made");
        params.self_signed(&key).expect("made").der().to_vec()
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.into())
    }

    fn subject(attributes: Vec<(DnType, DnValue)>) -> String {
        Identity::new(&certificate(attributes, &[1]), false)
            .subject
            .into()
    }

    #[test]
    fn names_are_written_by_rfc_2253() {
        let check = |attributes, expect: &str| assert_eq!(subject(attributes), expect);
        check(Vec::new(), "");
        let alice = vec![
            (DnType::CountryName, "DE".into()),
            (DnType::OrganizationName, utf8("Sue, Grabbit <and> Runn")),
            (DnType::CommonName, utf8("alice")),
        ];
        check(alice, r"CN=alice,O=Sue\, Grabbit \<and\> Runn,C=DE");
        let check = |value: &str, expect: &str| {
            let attributes = vec![(DnType::CommonName, utf8(value))];
            assert_eq!(subject(attributes), format!("CN={expect}"));
        };
        check("", "");
        check(" #a b# ", r"\ #a b#\ ");
        check("#a", r"\#a");
        check(" ", r"\ ");
        check("a=b+c;d\"e\\", r#"a=b\+c\;d\"e\\"#);
        check("é\n\u{7f}\0", r"\C3\A9\0A\7F\00");
        let unknown = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99, 1]);
        let attributes = vec![(unknown, utf8("x"))];
        assert_eq!(subject(attributes), "1.3.6.1.4.1.99.1=#0C0178");
    }

    #[test]
    fn what_is_kept_of_a_certificate_has_a_bound() {
        let long: String = "é,x".repeat(4_000);
        let subject = vec![(DnType::CommonName, utf8(&long))];
        let identity = Identity::new(&certificate(subject, &[0x7f; 900]), true);
        let name = identity.subject.strip_suffix(CUT).expect("cut");
        assert!(
            (LOG_SUBJECT_MAX - 3..=LOG_SUBJECT_MAX).contains(&name.len()),
            "{}",
            name.len()
        );
        // No part of an escape is left.
        let units = name.strip_prefix("CN=").expect("its beginning");
        let whole = r"\C3\A9\,x".repeat(4_000);
        assert!(whole.starts_with(units));
        assert!(
            [r"\C3", r"\A9", r"\,", "x"]
                .iter()
                .any(|it| units.ends_with(it))
        );
        let digits = "7F".repeat(LOG_SERIAL_OCTETS_MAX) + CUT;
        assert_eq!(&*identity.serial, digits);
        assert_eq!(identity.fingerprint.len(), 40);
        assert!(identity.memory() <= (LOG_SUBJECT_MAX + 2 * LOG_SERIAL_OCTETS_MAX + 512) as u64);
        // One that just fits is whole.
        let most = "x".repeat(LOG_SUBJECT_MAX - 3);
        let subject = vec![(DnType::CommonName, utf8(&most))];
        let identity = Identity::new(&certificate(subject, &[0x80; 20]), false);
        assert_eq!(&*identity.subject, format!("CN={most}"));
        assert_eq!(&*identity.serial, "80".repeat(20));
        assert_eq!(&*identity.fingerprint, "");
    }

    #[test]
    fn what_cannot_be_read_has_no_name() {
        let identity = Identity::new(b"\x30\x03\x02\x01\x01", true);
        assert_eq!((&*identity.subject, &*identity.serial), ("", ""));
        assert_eq!(identity.fingerprint.len(), 40);
    }

    /// Names with every kind of string, with attributes of one set, and of unknown types.
    #[test]
    fn openssl_writes_the_same() {
        if !tool("openssl", &["version"]) {
            return;
        }
        let folder = Folder::new();
        let run = |arguments: &[&str]| {
            let output = Command::new("openssl").args(arguments).output();
            let output = output.expect("it was found");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {error}");
            String::from_utf8(output.stdout).expect("ASCII")
        };
        let compare = |path: &Path| {
            let file = path.to_str().expect("UTF-8");
            let of = |field: &str| {
                let common = ["x509", "-inform", "DER", "-noout", "-in", file];
                let wanted = ["-nameopt", "RFC2253", field];
                let said = run(&[&common[..], &wanted].concat());
                let (_, value) = said
                    .trim_end_matches('\n')
                    .split_once('=')
                    .expect("a value");
                value.to_owned()
            };
            let identity = Identity::new(&std::fs::read(path).expect("made"), true);
            assert_eq!(&*identity.subject, of("-subject"));
            assert_eq!(&*identity.serial, of("-serial"));
            let fingerprint = of("-fingerprint").replace(':', "").to_lowercase();
            assert_eq!(&*identity.fingerprint, fingerprint);
        };
        let printable = DnValue::PrintableString("a b'c".try_into().expect("allowed"));
        let teletex = DnValue::TeletexString("a b".try_into().expect("allowed"));
        let bmp = DnValue::BmpString("é, ü".try_into().expect("allowed"));
        let universal = DnValue::UniversalString("\u{1f600};".try_into().expect("allowed"));
        let ia5 = DnValue::Ia5String("a@b.example".try_into().expect("allowed"));
        let subject = vec![
            (DnType::CountryName, printable),
            (DnType::OrganizationName, teletex),
            (DnType::OrganizationalUnitName, bmp),
            (DnType::CommonName, universal),
            (DnType::CustomDnType(vec![1, 2, 840, 113549, 1, 9, 1]), ia5),
            (DnType::CustomDnType(vec![1, 2, 3, 4, 5]), utf8("x y")),
            (DnType::LocalityName, utf8(" #\u{1}é\u{7f},+\"\\<>;= ")),
        ];
        let file = folder.write("own.der", certificate(subject, &[0x8f, 1, 2]));
        compare(&file);
        let path = folder.join("theirs.der");
        let name = "/DC=org/DC=example/UID=7+CN=J\u{fc}rgen \\+ Co/SN=x+GN=y+title=z/street=a\\/b\
            /serialNumber=9/pseudonym=p/organizationIdentifier=o/jurisdictionC=DE/mail=m@a.example";
        let key = folder.join("key.pem");
        let arguments = [
            ["req", "-x509"],
            ["-newkey", "ec"],
            ["-pkeyopt", "ec_paramgen_curve:P-256"],
            ["-nodes", "-utf8"],
            ["-multivalue-rdn", "-batch"],
            ["-outform", "DER"],
            ["-subj", name],
            ["-keyout", key.to_str().expect("UTF-8")],
            ["-out", path.to_str().expect("UTF-8")],
        ];
        run(arguments.as_flattened());
        compare(&path);
    }
}
