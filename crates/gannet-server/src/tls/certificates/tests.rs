//! Loading, checking and choosing certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
    SignatureAlgorithm,
};

use super::*;

/// 1 January 2026.
const NOW: i64 = 1_767_225_600;
const DAY: i64 = 86_400;

/// A directory removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn pair(&self, chain: &str, key: &str) -> PairPaths {
        PairPaths {
            certificate: self.write("c.pem", chain),
            key: self.write("k.pem", key),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Root, intermediate and leaf.
struct Chain {
    root: String,
    intermediate: String,
    leaf: String,
    key: KeyPair,
}

fn chain(algorithm: &'static SignatureAlgorithm, change: impl Fn(&mut CertificateParams)) -> Chain {
    let ca = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        (
            params,
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(),
        )
    };
    let (root_params, root_key) = ca("the root");
    let (middle_params, middle_key) = ca("the intermediate");
    let root = root_params.self_signed(&root_key).unwrap().pem();
    let root_issuer = Issuer::new(root_params, root_key);
    let intermediate = middle_params
        .signed_by(&middle_key, &root_issuer)
        .unwrap()
        .pem();
    let issuer = Issuer::new(middle_params, middle_key);
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::new(vec!["example.test".to_owned()]).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, "the leaf");
    params.not_before = rcgen::date_time_ymd(2025, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 1, 1);
    change(&mut params);
    let leaf = params.signed_by(&key, &issuer).unwrap().pem();
    Chain {
        root,
        intermediate,
        leaf,
        key,
    }
}

fn plain_chain() -> Chain {
    chain(&PKCS_ECDSA_P256_SHA256, |_| {})
}

fn load_at(paths: &PairPaths, now: i64) -> Result<(Pair, Vec<WarningKind>), CertificateError> {
    let options = LoadOptions {
        allow_expired: false,
        now,
    };
    let mut warnings = Vec::new();
    let pair = load_one(paths, &options, &mut warnings)?;
    Ok((
        pair,
        warnings.into_iter().map(|warning| warning.kind).collect(),
    ))
}

/// The error's text and help.
fn refused(paths: &PairPaths) -> (String, Option<String>) {
    let error = load_at(paths, NOW).err().expect("refused");
    (error.to_string(), error.help())
}

#[test]
fn every_kind_of_key_is_read() {
    let directory = Directory::new("kinds");
    let algorithms = [
        &PKCS_ECDSA_P256_SHA256,
        &PKCS_ECDSA_P384_SHA384,
        &PKCS_ED25519,
        &PKCS_RSA_SHA256,
    ];
    for algorithm in algorithms {
        let chain = chain(algorithm, |_| {});
        let text = format!("{}{}", chain.leaf, chain.intermediate);
        let (pair, warnings) =
            load_at(&directory.pair(&text, &chain.key.serialize_pem()), NOW).unwrap();
        assert_eq!(
            (pair.facts.names, warnings),
            (vec!["example.test".into()], vec![])
        );
    }
}

/// Traditional key formats, as `openssl` writes them.
#[test]
fn older_forms_of_keys_are_read() {
    let directory = Directory::new("forms");
    let Some(openssl) = Openssl::find() else {
        return;
    };
    let ec = openssl.run(&["ecparam", "-name", "prime256v1", "-genkey", "-noout"]);
    assert!(ec.contains("BEGIN EC PRIVATE KEY"));
    let rsa = openssl.run(&["genrsa", "-traditional", "2048"]);
    assert!(rsa.contains("BEGIN RSA PRIVATE KEY"));
    for key in [ec, rsa] {
        let path = directory.write("k.pem", &key);
        let subject = [
            "-subj",
            "/CN=x",
            "-addext",
            "subjectAltName=DNS:old.test",
            "-days",
            "3650",
        ];
        let mut arguments = vec!["req", "-x509", "-key", path.to_str().unwrap()];
        arguments.extend(subject);
        let certificate = openssl.run(&arguments);
        let paths = PairPaths {
            certificate: directory.write("c.pem", &certificate),
            key: path,
        };
        let (pair, warnings) = load_at(&paths, now_unix()).unwrap();
        assert_eq!(
            (pair.facts.names, warnings),
            (vec!["old.test".into()], vec![])
        );
    }
    // A key with a passphrase, in both formats.
    for form in [&["-traditional"][..], &[]] {
        let mut arguments = vec!["genrsa", "-aes128", "-passout", "pass:secret"];
        arguments.extend(form);
        let key = openssl.run(&arguments);
        let paths = directory.pair(&plain_chain().leaf, &key);
        let (text, help) = refused(&paths);
        assert!(
            text.ends_with("the private key is protected by a passphrase"),
            "{text}"
        );
        assert!(help.is_some_and(|help| help.contains("openssl pkey")));
    }
}

struct Openssl;

impl Openssl {
    fn find() -> Option<Self> {
        gannet_testkit::tool("openssl", &["version"]).then_some(Self)
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = std::process::Command::new("openssl")
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn the_chain_is_put_in_order() {
    let directory = Directory::new("order");
    let Chain {
        root,
        intermediate,
        leaf,
        key,
    } = plain_chain();
    let key = key.serialize_pem();
    let other = plain_chain();
    let check = |parts: &[&String]| {
        let text: String = parts.iter().map(|part| part.as_str()).collect();
        let (pair, warnings) = load_at(&directory.pair(&text, &key), NOW).unwrap();
        (pair.key.cert.len(), warnings)
    };
    assert_eq!(check(&[&leaf, &intermediate, &root]), (3, vec![]));
    assert_eq!(check(&[&leaf, &intermediate]), (2, vec![]));
    assert_eq!(
        check(&[&intermediate, &leaf]),
        (2, vec![WarningKind::WrongOrder])
    );
    assert_eq!(
        check(&[&root, &intermediate, &leaf]),
        (3, vec![WarningKind::WrongOrder])
    );
    assert_eq!(
        check(&[&leaf, &root, &intermediate]),
        (3, vec![WarningKind::WrongOrder])
    );
    let (len, warnings) = check(&[&leaf, &intermediate, &other.leaf]);
    let [WarningKind::Unrelated(subjects)] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!(
        (len, subjects.as_slice()),
        (2, &["CN=the leaf".to_owned()][..])
    );
}

#[test]
fn a_missing_intermediate_of_a_public_authority_is_noticed() {
    let directory = Directory::new("missing");
    // Authority information access: the issuer's certificate is at http://a/.
    let access = [
        &[0x30, 21, 0x30, 19, 6, 8][..],
        &CA_ISSUERS,
        &[0x86, 7],
        b"http://",
    ]
    .concat();
    let issued = chain(&PKCS_ECDSA_P256_SHA256, |params| {
        let oid = [1, 3, 6, 1, 5, 5, 7, 1, 1];
        let extension = CustomExtension::from_oid_content(&oid, access.clone());
        params.custom_extensions.push(extension);
    });
    let key = issued.key.serialize_pem();
    let (_, warnings) = load_at(&directory.pair(&issued.leaf, &key), NOW).unwrap();
    let issuer = "CN=the intermediate".to_owned();
    assert_eq!(warnings, [WarningKind::NoIntermediate { issuer }]);
    let whole = format!("{}{}", issued.leaf, issued.intermediate);
    let (_, warnings) = load_at(&directory.pair(&whole, &key), NOW).unwrap();
    assert_eq!(warnings, []);
}

const CA_ISSUERS: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 0x30, 2];

#[test]
fn validity_is_checked() {
    let directory = Directory::new("validity");
    let issued = plain_chain();
    let paths = directory.pair(&issued.leaf, &issued.key.serialize_pem());
    let end = 1_798_761_600; // 1 January 2027
    let kinds = |now| load_at(&paths, now).map(|(_, kinds)| kinds);
    assert_eq!(kinds(end - 15 * DAY).unwrap(), []);
    let soon = |left_s| {
        let mut warnings = Vec::new();
        let options = LoadOptions {
            allow_expired: false,
            now: end - left_s,
        };
        load_one(&paths, &options, &mut warnings).unwrap();
        warnings[0].to_string()
    };
    for (left_s, expect) in [
        (13 * DAY + 1, "13 days"),
        (DAY, "24 hours"),
        (60, "60 seconds"),
    ] {
        let text = soon(left_s);
        let expect = format!("the certificate expires in {expect}, on Fri, 01 Jan 2027");
        assert!(text.contains(&expect), "{text}");
    }
    let error = kinds(end + 3 * DAY).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("expired on Fri, 01 Jan 2027"), "{text}");
    assert!(text.ends_with("3 days ago"), "{text}");
    assert_eq!(error.help().as_deref(), Some("renew the certificate"));
    let early = kinds(1_735_689_600 - DAY).unwrap();
    assert!(
        matches!(&early[..], [WarningKind::NotYetValid { .. }]),
        "{early:?}"
    );
    let lenient = LoadOptions {
        allow_expired: true,
        now: end + DAY,
    };
    let mut warnings = Vec::new();
    load_one(&paths, &lenient, &mut warnings).unwrap();
    assert!(
        matches!(warnings[0].kind, WarningKind::HasExpired { .. }),
        "{warnings:?}"
    );
}

#[test]
fn what_is_wrong_is_named() {
    let directory = Directory::new("wrong");
    let (one, two) = (plain_chain(), plain_chain());
    let (leaf, key) = (&one.leaf, one.key.serialize_pem());
    let check = |chain: &str, key: &str, words: &str, hint: &str| {
        let (text, help) = refused(&directory.pair(chain, key));
        assert!(text.contains(words), "{text:?} has {words:?}");
        let help = help.unwrap_or_default();
        assert!(help.contains(hint), "{help:?} has {hint:?}");
    };
    check(
        leaf,
        &two.key.serialize_pem(),
        "the key does not belong to",
        "requested with",
    );
    let found = "no certificate in the file (found a private key)";
    check(&key, leaf, found, "exchange");
    check(&key, &key, found, "the certificate chain");
    let found = "no private key in the file (found a certificate)";
    check(leaf, leaf, found, "the private key");
    check(
        &leaf.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        &key,
        "(found a 'TRUSTED CERTIFICATE' of OpenSSL's own)",
        "openssl x509 -in",
    );
    let mark = "it starts with a byte order mark";
    check(&format!("\u{feff}{leaf}"), &key, mark, "as plain text");
    check(leaf, &format!("\u{feff}{key}"), mark, "as plain text");
    let curve = "by explicit parameters, not by its name";
    check(leaf, EXPLICIT_CURVE, curve, "-param_enc named_curve");
    let collection = "-----BEGIN PKCS7-----\nAAAA\n-----END PKCS7-----\n";
    check(collection, &key, "a PKCS #7 collection", "openssl pkcs7");
    check(
        leaf,
        "\x30\x03\x02\x01\x01",
        "not a PEM file",
        "openssl pkey -inform DER",
    );
    check("", &key, ": it is empty", "disk full");
    check(leaf, "\n", ": it is empty", "disk full");
    check(
        leaf.split("-----END").next().expect("its beginning"),
        &key,
        "not a PEM file: the line '-----END CERTIFICATE-----' is missing",
        "openssl x509",
    );
    check(
        "\x30\x03\x02\x01\x01",
        &key,
        "not a PEM file",
        "openssl x509",
    );
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check(
        broken,
        &key,
        "certificate 1 of the file cannot be parsed",
        "authority",
    );
    let open = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    check(open, &key, "not a PEM file", "PEM");
    let bad = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    check(
        leaf,
        bad,
        "of a kind or a length that is not supported",
        "ECDSA",
    );
    check(&leaf.repeat(17), &key, "17 certificates in one file", "");
    let missing = PairPaths {
        certificate: directory.0.join("none"),
        key: directory.0.join("k.pem"),
    };
    let (text, help) = refused(&missing);
    assert!(
        text.starts_with("cannot read '") && text.contains("none': no such file"),
        "{text}"
    );
    assert_eq!(help.as_deref(), Some("check the path"));
    let folder = PairPaths {
        certificate: directory.0.clone(),
        key: directory.0.join("k.pem"),
    };
    let (text, help) = refused(&folder);
    assert!(text.to_lowercase().contains("is a directory"), "{text}");
    assert_eq!(help.as_deref(), Some("name the file itself, in PEM form"));
}

#[test]
fn a_readable_key_is_warned_about() {
    let directory = Directory::new("readable");
    let issued = plain_chain();
    let paths = directory.pair(&issued.leaf, &issued.key.serialize_pem());
    for (mode, is_warned) in [(0o600, false), (0o640, false), (0o644, true)] {
        fs::set_permissions(&paths.key, fs::Permissions::from_mode(mode)).unwrap();
        let (_, warnings) = load_at(&paths, NOW).unwrap();
        assert_eq!(
            warnings.contains(&WarningKind::WorldReadable { mode }),
            is_warned,
            "{mode:o}"
        );
    }
    let warning = Warning {
        path: paths.key.clone(),
        kind: WarningKind::WorldReadable { mode: 0o644 },
    };
    assert!(warning.to_string().ends_with("(mode 644)"), "{warning}");
    assert_eq!(
        warning.help(),
        format!("chmod 600 '{}'", paths.key.display())
    );
}

#[test]
fn a_certificate_without_names_is_warned_about() {
    let directory = Directory::new("names");
    let issued = chain(&PKCS_ECDSA_P256_SHA256, |params| {
        params.subject_alt_names.clear()
    });
    let paths = directory.pair(&issued.leaf, &issued.key.serialize_pem());
    assert_eq!(load_at(&paths, NOW).unwrap().1, [WarningKind::NoNames]);
}

#[test]
fn certificate_and_key_may_share_a_file() {
    let directory = Directory::new("shared");
    let issued = plain_chain();
    let both = format!("{}{}", issued.key.serialize_pem(), issued.leaf);
    let path = directory.write("both.pem", &both);
    let paths = PairPaths {
        certificate: path.clone(),
        key: path,
    };
    assert_eq!(load_at(&paths, NOW).unwrap().1, []);
}

#[test]
fn workers_adopt_a_new_set() {
    let directory = Directory::new("adopt");
    let set = |name: &str| {
        let issued = chain(&PKCS_ECDSA_P256_SHA256, |params| {
            *params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        });
        let paths = directory.pair(&issued.leaf, &issued.key.serialize_pem());
        let (pair, _) = load_at(&paths, NOW).unwrap();
        CertificateSet::new(vec![pair], &Options::default(), None).unwrap()
    };
    let store = CertificateStore::new(set("old.test"));
    let mut adopted = Adopted::new(&store);
    assert!(adopted.current().has("old.test"));
    store.replace(set("new.test"));
    assert!(adopted.current().has("new.test") && !adopted.current().has("old.test"));
    assert!(store.current().has("new.test"));
}

#[test]
fn no_certificates_are_an_error() {
    let error = CertificateSet::new(Vec::new(), &Options::default(), None)
        .err()
        .unwrap();
    assert_eq!(error.to_string(), "no certificate was given");
    let error = check_count(1025).err().unwrap();
    assert_eq!(
        error.to_string(),
        "1025 certificates, at most 1024 can be used"
    );
    assert!(
        error
            .path
            .as_deref()
            .is_none_or(|path: &Path| path.as_os_str().is_empty())
    );
}

/// A certificate without extensions and without a version number, as `openssl x509 -req` makes of a
/// request.
#[test]
fn a_certificate_of_an_old_form_is_named() {
    let directory = Directory::new("v1");
    let paths = directory.pair(V1_CERTIFICATE, V1_KEY);
    let (text, help) = refused(&paths);
    let certificate = paths.certificate.display();
    assert_eq!(
        text,
        format!(
            "cannot use '{certificate}': certificate 1 of the file is of X.509 version 1, which has \
             no host names; clients want version 3"
        )
    );
    let help = help.expect("a line to type");
    let key = paths.key.display();
    let line = format!(
        "'openssl req -x509 -new -key {key} -days 365 -subj /CN=old.example -addext \
         subjectAltName=DNS:old.example -out new.pem'"
    );
    assert!(help.contains(&line), "{help}");
    // Another key does not match it, whatever its version.
    let other = plain_chain();
    let (text, _) = refused(&directory.pair(V1_CERTIFICATE, &other.key.serialize_pem()));
    assert!(text.contains("the key does not belong to"), "{text}");
}

/// Output of `openssl req -new -newkey ec ... | openssl x509 -req -signkey ...`.
const V1_CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBKDCBzwIUMbYi618s+wEML0kWyLYMxPaKc48wCgYIKoZIzj0EAwIwFjEUMBIG
A1UEAwwLb2xkLmV4YW1wbGUwIBcNMjYxMTIyMDcyNTAwWhgPMjEwOTAxMTEwNzI1
MDBaMBYxFDASBgNVBAMMC29sZC5leGFtcGxlMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEWCUJbzG+ugDxqMGME2IcxjB6mRltG5AgD7Xr/uHm327dn0IZnh/oyVyQ
WkLnhMdQOfi8L0gN3ir9hhl3bNyJ/zAKBggqhkjOPQQDAgNIADBFAiEA3NKJlzXL
Xi6uufOge29dATxr1HmY7GoA1K9N5dp9AmkCIF9ebaQHKjhv1Qki8nf9OuOYN5UC
sXJtyVq4YU7MzGOZ
-----END CERTIFICATE-----
";
const V1_KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRwDR7Gpsk5/SNimS
E9niKVRqGFJd4gozcmfjsnfGK0+hRANCAARYJQlvMb66APGowYwTYhzGMHqZGW0b
kCAPtev+4ebfbt2fQhmeH+jJXJBaQueEx1A5+LwvSA3eKv2GGXds3In/
-----END PRIVATE KEY-----
";

#[test]
fn a_store_of_another_kind_is_told_how_to_convert() {
    let directory = Directory::new("p12");
    let chain = plain_chain();
    // The length in long and in indefinite form.
    for start in [
        &[0x30, 0x82, 9, 9, 2, 1, 3, 0x30][..],
        &[0x30, 0x80, 2, 1, 3, 0x30],
    ] {
        let paths = directory.pair("", &chain.key.serialize_pem());
        fs::write(&paths.certificate, [start, &[0; 100]].concat()).unwrap();
        let (text, help) = refused(&paths);
        assert!(text.ends_with("a PKCS #12 store, not a PEM file"), "{text}");
        let line = format!(
            "'openssl pkcs12 -in {} -nodes -out site.pem'",
            paths.certificate.display()
        );
        assert!(help.is_some_and(|help| help.contains(&line)));
    }
}

#[test]
fn half_a_pair_is_told_what_is_missing() {
    let directory = Directory::new("half");
    let chain = plain_chain();
    let one = |text: &str| {
        let path = directory.write("one.pem", text);
        PairPaths {
            certificate: path.clone(),
            key: path,
        }
    };
    let (text, help) = refused(&one(&chain.leaf));
    assert!(
        text.ends_with("it has a certificate and no private key"),
        "{text}"
    );
    assert!(help.is_some_and(|help| help.contains("--tls-key FILE")));
    let (text, help) = refused(&one(&chain.key.serialize_pem()));
    assert!(
        text.ends_with("it has a private key and no certificate"),
        "{text}"
    );
    assert!(help.is_some_and(|help| help.contains("--tls-cert FILE")));
}

/// A key of P-256 whose curve is written as its parameters, made by `openssl ecparam -param_enc explicit`.
const EXPLICIT_CURVE: &str = "-----BEGIN EC PRIVATE KEY-----\n\
MIIBaAIBAQQgrxcK239TN0/LkFrNH0a3DTDxsxQKu5276+JMrBH/U1CggfowgfcC\n\
AQEwLAYHKoZIzj0BAQIhAP////8AAAABAAAAAAAAAAAAAAAA////////////////\n\
MFsEIP////8AAAABAAAAAAAAAAAAAAAA///////////////8BCBaxjXYqjqT57Pr\n\
vVV2mIa8ZR0GsMxTsPY7zjw+J9JgSwMVAMSdNgiG5wSTamZ44ROdJreBn36QBEEE\n\
axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54W\n\
K84zV2sxXs7LtkBoN79R9QIhAP////8AAAAA//////////+85vqtpxeehPO5ysL8\n\
YyVRAgEBoUQDQgAE0dNv0dKbqV0DSIBqt9MvVKTTI/ZNWb35sGMX+QShIVVKYaKP\n\
wvgOJO+XcYpUArowZzRYeDplnrdweUCqYNobfw==\n\
-----END EC PRIVATE KEY-----\n";
