//! Certificates are replaced when their files change, and only by valid ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use gannet_testkit::tls::{Authority, KeyKind};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

use super::*;
use crate::watch::lookout::Lookout;

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-watch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn source(&self) -> CertificateSource {
        let pair = PairPaths {
            certificate: self.0.join("c.pem"),
            key: self.0.join("k.pem"),
        };
        CertificateSource {
            pairs: vec![pair],
            awaits_pairs: false,
            ordered: None,
            options: Options::default(),
            client_authorities: Vec::new(),
            client_demand: Demand::default(),
        }
    }

    /// Replaces the certificate by renaming, as certificate managers do.
    fn issue(&self, name: &str) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.put("k.pem", &key.serialize_pem());
        self.put("c.pem", &certificate.pem());
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.0.join("new"), text).unwrap();
        let is_owners = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.0.join("new"), is_owners).unwrap();
        fs::rename(self.0.join("new"), self.0.join(name)).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Watches at a short interval.
fn watched(files: &Files) -> (Arc<CertificateStore>, Lookout, Receiver<Reload>) {
    let source = files.source();
    let opened = source.open().unwrap();
    let store = Arc::clone(&opened.store);
    let (sender, receiver) = channel();
    let report = move |reload| sender.send(reload).unwrap_or(());
    let look = source.watch(opened.store, opened.held, report);
    let lookout = Lookout::start("test", Duration::from_millis(2), 0, look).unwrap();
    (store, lookout, receiver)
}

#[test]
fn a_change_is_noticed() {
    let files = Files::new("change");
    files.issue("one.test");
    let (store, _watch, reports) = watched(&files);
    assert!(store.current().has("one.test"));
    files.issue("two.test");
    // Between the two renames, key and certificate do not match: a check may have seen that.
    while let Reload::Failed(error) = reports.recv().unwrap() {
        assert!(error.to_string().contains("does not belong"), "{error}");
    }
    assert!(store.current().has("two.test") && !store.current().has("one.test"));
}

#[test]
fn a_broken_pair_leaves_the_old_one() {
    let files = Files::new("broken");
    files.issue("one.test");
    let (store, watch, reports) = watched(&files);
    files.put("c.pem", "nonsense");
    let Reload::Failed(error) = reports.recv().unwrap() else {
        panic!("it is broken")
    };
    assert!(
        error.to_string().contains("c.pem': not a PEM file"),
        "{error}"
    );
    assert!(store.current().has("one.test"));
    // On request it is read and reported again; otherwise it is reported once per change.
    watch.ask(std::sync::mpsc::channel().0);
    assert!(matches!(reports.recv().unwrap(), Reload::Failed(_)));
    fs::remove_file(files.0.join("c.pem")).unwrap();
    let Reload::Failed(error) = reports.recv().unwrap() else {
        panic!("it is gone")
    };
    assert!(error.to_string().contains("cannot read"), "{error}");
    files.issue("two.test");
    while !matches!(reports.recv().unwrap(), Reload::Replaced(_)) {}
    assert!(store.current().has("two.test"));
}

#[test]
fn reading_on_demand() {
    let files = Files::new("demand");
    files.issue("one.test");
    let (store, watch, reports) = watched(&files);
    watch.ask(std::sync::mpsc::channel().0);
    assert!(matches!(reports.recv().unwrap(), Reload::Replaced(_)));
    assert!(store.generation() >= 1);
    drop(watch);
    assert!(reports.recv().is_err(), "the thread has ended");
}

/// The folder of an orderer, and what is read of it.
fn ordered(files: &Files, hosts: &[&str]) -> CertificateSource {
    let folder = files.0.join("acme");
    fs::create_dir_all(folder.join("certificates")).unwrap();
    CertificateSource {
        pairs: Vec::new(),
        ordered: Some(Ordered {
            folder,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..Ordered::default()
        }),
        ..files.source()
    }
}

impl Files {
    /// Puts a certificate with its key where an orderer does.
    fn order(&self, host: &str) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.put(
            &ordered_file(host),
            &(certificate.pem() + &key.serialize_pem()),
        );
    }
}

fn ordered_file(host: &str) -> String {
    format!("acme/certificates/{host}.pem")
}

/// Looks once; returns what was said.
fn look(look: &mut impl FnMut(bool), reports: &Receiver<Reload>) -> Vec<String> {
    look(false);
    let said = |reload| match reload {
        Reload::Replaced(warnings) => format!("replaced {}", warnings.len()),
        Reload::Failed(error) | Reload::NoChallenge(error) => error.to_string(),
        Reload::Kept(warnings) => warnings[0].to_string(),
    };
    reports.try_iter().map(said).collect()
}

#[test]
fn hosts_come_go_and_break_one_by_one() {
    let files = Files::new("folder");
    let source = ordered(&files, &["a.test"]);
    files.order("b.test");
    files.put(&ordered_file("broken.test"), "nonsense");
    let opened = source.open().unwrap();
    let texts: Vec<_> = opened.warnings.iter().map(Warning::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts[0].ends_with(
            "broken.test.pem': cannot be used: not a PEM file: no line starts with '-----BEGIN'"
        ),
        "{texts:?}"
    );
    assert!(
        texts[1].ends_with("a.test.pem': there is no certificate yet"),
        "{texts:?}"
    );
    let store = opened.store;
    let (sender, reports) = channel();
    let report = move |reload| sender.send(reload).unwrap_or(());
    let mut check = source.watch(Arc::clone(&store), opened.held, report);
    let nothing: [String; 0] = [];
    assert_eq!(look(&mut check, &reports), nothing);
    let has = |name: &str| store.current().has(name);
    assert!(has("b.test") && !has("a.test"));
    for host in ["a.test", "broken.test", "new.test"] {
        files.order(host);
        assert_eq!(look(&mut check, &reports), ["replaced 0"], "{host}");
        assert!(has(host) && has("b.test"), "{host}");
    }
    let shown = |text: &[String], end: &str| text.len() == 1 && text[0].ends_with(end);
    files.put(&ordered_file("a.test"), "nonsense");
    let said = look(&mut check, &reports);
    assert!(shown(&said, "no line starts with '-----BEGIN'"), "{said:?}");
    for host in ["a.test", "b.test"] {
        fs::remove_file(files.0.join(ordered_file(host))).unwrap();
        let said = look(&mut check, &reports);
        assert!(
            shown(&said, "the file of a certificate in use is gone"),
            "{said:?}"
        );
        assert!(has("a.test") && has("b.test"));
    }
    assert_eq!(look(&mut check, &reports), nothing);
    files.order("a.test");
    assert_eq!(look(&mut check, &reports), ["replaced 0"]);
}

#[test]
fn a_pair_that_nobody_orders_has_to_be_there() {
    let files = Files::new("foreign");
    let foreign = CertificateSource {
        ordered: ordered(&files, &["a.test"]).ordered,
        ..files.source()
    };
    let error = foreign.open().err().unwrap();
    assert!(error.to_string().contains("cannot read"), "{error}");
    files.issue("foreign.test");
    let opened = foreign.open().unwrap();
    assert_eq!(opened.warnings.len(), 1, "{:?}", opened.warnings);
    let set = opened.store.current();
    let chosen = |name: &str| set.choose(Some(name)).is_ok();
    // The last one was not ordered.
    assert_eq!(
        ["foreign.test", "a.test", "other.test"].map(chosen),
        [true, false, true]
    );
    assert!(set.choose(None).is_ok());
    assert_eq!(set.awaited().collect::<Vec<_>>(), ["a.test"]);
    // With those of a fleet, each is waited for by itself.
    let fleet = CertificateSource {
        awaits_pairs: true,
        ..files.source()
    };
    fs::remove_file(files.0.join("c.pem")).unwrap();
    let opened = fleet.open().unwrap();
    assert_eq!(opened.warnings[0].kind, WarningKind::Awaited);
    files.put("c.pem", "nonsense");
    assert!(fleet.open().is_err());
}

#[test]
fn an_expired_one_is_used_and_takes_no_valid_ones_place() {
    let files = Files::new("expired");
    let authority = Authority::new();
    let issue = |host: &str, until: i32| {
        let issued = authority.issued_for(KeyKind::P256, &[host], (2020, until));
        files.put(host, &issued.pem());
    };
    issue("a.test", 2021);
    issue("b.test", 2021);
    let pair = |host| PairPaths::of_one(files.0.join(host));
    let source = CertificateSource {
        pairs: vec![pair("a.test"), pair("b.test")],
        ..files.source()
    };
    let opened = source.open().unwrap();
    let kinds = opened.warnings.iter().map(|warning| &warning.kind);
    let have_expired = kinds.filter(|kind| matches!(kind, WarningKind::HasExpired { .. }));
    assert_eq!(have_expired.count(), 2, "{:?}", opened.warnings);
    assert!(opened.store.current().has("a.test"));
    let store = opened.store;
    let (sender, reports) = channel();
    let report = move |reload| sender.send(reload).unwrap_or(());
    let mut watch = source.watch(Arc::clone(&store), opened.held, report);
    let mut check = |_| watch(true);
    // One that is renewed does not wait for the other, and keeps its place from an expired one, too.
    issue("b.test", 2090);
    assert_eq!(look(&mut check, &reports), ["replaced 1"]);
    let renewed = store.generation();
    issue("b.test", 2021);
    let refused = |said: Vec<String>| {
        let why = "the certificate expired on Fri, 01 Jan 2021";
        assert!(said.len() == 1 && said[0].contains(why), "{said:?}");
    };
    refused(look(&mut check, &reports));
    assert_eq!(store.generation(), renewed);
    issue("b.test", 2090);
    issue("a.test", 2090);
    assert_eq!(look(&mut check, &reports), ["replaced 0"]);
    issue("a.test", 2021);
    refused(look(&mut check, &reports));
}
