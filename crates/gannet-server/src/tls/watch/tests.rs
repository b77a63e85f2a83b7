//! Certificates are replaced when their files change, and only by valid ones.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};

use super::*;
use crate::start::lookout::Lookout;

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-watch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn source(&self) -> Source {
        let pair = PairPaths {
            certificate: self.0.join("c.pem"),
            key: self.0.join("k.pem"),
        };
        Source {
            pairs: vec![pair],
            allow_expired: false,
            ordered: None,
            options: Options::default(),
            client_authorities: Vec::new(),
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
    let (store, _) = source.open().unwrap();
    let (sender, receiver) = channel();
    let report = move |reload| sender.send(reload).unwrap_or(());
    let look = source.watch(Arc::clone(&store), report);
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
