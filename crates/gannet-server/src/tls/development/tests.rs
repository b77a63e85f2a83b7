//! Development certificates: created once, kept, renewed, and useless for other sites.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::*;

/// 1 January 2026.
const NOW: i64 = 1_767_225_600;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-dev-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path.join("gannet/tls"))
    }

    fn prepare(&self, now: i64) -> Development {
        prepare(&self.0, &["localhost".into(), "workstation".into()], now).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.ancestors().nth(2).unwrap());
    }
}

/// Whether a client that trusts the authority accepts the leaf for a name.
fn accepts(development: &Development, leaf: &Path, name: &str, now: i64) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(&development.authority).unwrap())
        .unwrap();
    let provider = crate::tls::config::provider();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let leaf = CertificateDer::from_pem_file(leaf).unwrap();
    let name = ServerName::try_from(name).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.unsigned_abs()));
    verifier
        .verify_server_cert(&leaf, &[], &name, &[], now)
        .is_ok()
}

#[test]
fn made_once_and_kept() {
    let directory = Directory::new("kept");
    let first = directory.prepare(NOW);
    assert!(first.is_new && first.left_out.is_empty());
    assert_eq!(
        first.names,
        ["localhost", "workstation", "127.0.0.1", "::1"]
    );
    assert_eq!(first.fingerprint.len(), 32 * 3 - 1);
    let second = directory.prepare(NOW + DAY);
    assert_eq!(
        second,
        Development {
            is_new: false,
            ..first.clone()
        }
    );
    for name in ["localhost", "workstation", "127.0.0.1", "::1"] {
        assert!(
            accepts(&first, &first.pair.certificate, name, NOW),
            "{name}"
        );
    }
    assert!(!accepts(
        &first,
        &first.pair.certificate,
        "example.test",
        NOW
    ));
}

#[test]
fn keys_are_private() {
    let directory = Directory::new("private");
    let development = directory.prepare(NOW);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory.0), 0o700);
    assert_eq!(mode(&directory.0.join("authority-key.pem")), 0o600);
    assert_eq!(mode(&development.pair.key), 0o600);
    let exported = fs::read_to_string(&development.authority).unwrap();
    assert!(!exported.contains("PRIVATE KEY") && exported.contains("BEGIN CERTIFICATE"));
    let names: Vec<_> = fs::read_dir(&directory.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "no temporary file is left: {names:?}");
}

#[test]
fn the_leaf_is_renewed_and_the_authority_stays() {
    let directory = Directory::new("renewed");
    let first = directory.prepare(NOW);
    let later = NOW + (LEAF_DAYS - LEAF_RENEW_DAYS + 1) * DAY;
    let second = directory.prepare(later);
    assert_ne!(first.fingerprint, second.fingerprint);
    assert_eq!(first.authority_fingerprint, second.authority_fingerprint);
    assert!(accepts(
        &first,
        &second.pair.certificate,
        "localhost",
        later + 30 * DAY
    ));
    // Also long after it has expired.
    let third = directory.prepare(NOW + 400 * DAY);
    assert_eq!(first.authority_fingerprint, third.authority_fingerprint);
    // Finally, the authority itself.
    let last = directory.prepare(NOW + AUTHORITY_DAYS * DAY);
    assert!(last.is_new);
    assert_ne!(first.authority_fingerprint, last.authority_fingerprint);
}

#[test]
fn the_authority_vouches_for_nobody_else() {
    let directory = Directory::new("nobody");
    let first = directory.prepare(NOW);
    // An attacker steals the key and signs another name.
    let text = fs::read_to_string(directory.0.join("authority-key.pem")).unwrap();
    let authority = Authority::parse(&directory.0, &text, NOW).unwrap();
    let stolen = directory.0.join("stolen.pem");
    let issue = |name: &str| {
        fs::write(&stolen, authority.issue(&[name.to_owned()], NOW).unwrap()).unwrap();
        accepts(&first, &stolen, name, NOW)
    };
    assert!(issue("localhost") && issue("sub.localhost"));
    assert!(!issue("example.com"));
    // A name outside the authority's constraints is omitted and reported.
    let names = ["localhost".to_owned(), "renamed".to_owned()];
    let second = prepare(&directory.0, &names, NOW).unwrap();
    assert_eq!(second.left_out, ["renamed"]);
    assert_eq!(second.names, ["localhost", "127.0.0.1", "::1"]);
}

#[test]
fn damage_is_named_and_a_broken_leaf_is_made_again() {
    let directory = Directory::new("damage");
    let first = directory.prepare(NOW);
    fs::write(&first.pair.certificate, "nonsense").unwrap();
    let second = directory.prepare(NOW);
    assert!(accepts(&first, &second.pair.certificate, "localhost", NOW));
    fs::write(&first.authority, "nonsense").unwrap();
    assert!(accepts(
        &directory.prepare(NOW),
        &second.pair.certificate,
        "localhost",
        NOW
    ));
    fs::write(directory.0.join("authority-key.pem"), "nonsense").unwrap();
    let error = prepare(&directory.0, &["localhost".into()], NOW).unwrap_err();
    assert!(
        error.to_string().contains("authority-key.pem' is damaged"),
        "{error}"
    );
    assert!(error.help().is_some_and(|help| help.contains("remove '")));
}

#[test]
fn two_servers_that_start_together_share_one_authority() {
    let directory = Directory::new("together");
    let prints: Vec<_> = std::thread::scope(|scope| {
        let one = scope.spawn(|| directory_authority(&directory));
        let two = scope.spawn(|| directory_authority(&directory));
        vec![one.join().unwrap(), two.join().unwrap()]
    });
    assert_eq!(prints[0], prints[1]);
}

fn directory_authority(directory: &Directory) -> String {
    fs::create_dir_all(&directory.0).unwrap();
    let (authority, _) = Authority::find(&directory.0, &["localhost".into()], NOW).unwrap();
    authority.facts.fingerprint_text()
}

#[test]
fn where_it_is_kept() {
    let directory = default_directory();
    assert!(directory.is_none_or(|path| path.is_absolute() && path.ends_with("gannet/tls")));
    let names = machine_names();
    assert_eq!(names[0], "localhost");
    assert!(
        names
            .iter()
            .all(|name| !name.is_empty() && !name.contains('\n'))
    );
}
