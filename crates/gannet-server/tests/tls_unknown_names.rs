//! What clients are shown that ask for a name without a certificate, or for none, where certificates are ordered
//! on demand.

mod tls_support;

use std::sync::Arc;

use gannet_server::tls::alert::Alert;
use gannet_server::tls::certificates::PairPaths;
use gannet_server::tls::handshake::{Failure, Handshake, Step};
use gannet_server::tls::watch::CertificateSource;
use rustls::{CertificateError, Error};
use tls_support::*;

/// With certificates on demand, which host is the first one says nothing: its certificate is shown to who asks
/// for it, and no other, unless the operator has named one.
#[test]
fn on_demand_nobody_gets_another_hosts_certificate_by_chance() {
    let folder = gannet_testkit::Folder::new();
    let authority = Authority::new();
    let names = ["a.test", "named.test", "z.site.test"];
    for name in names {
        let issued = authority.issued(KeyKind::P256, &[name]);
        folder.write(format!("certificates/{name}.pem"), issued.pem());
    }
    let default = authority.issue("default.pem", KeyKind::P256, &["default.test"]);
    let (source, _told) = on_demand(&folder, |name| name.ends_with(".test"));
    let config = authority.client(Abilities::default());
    let mut nameless = authority.client(Abilities::default());
    Arc::make_mut(&mut nameless).enable_sni = false;
    // What a client is shown that asks for a name, or for none.
    let shown = |source: &CertificateSource, name: Option<&str>| {
        let set = source.open().unwrap().store.current();
        let mut client = match name {
            Some(name) => connect(&config, name),
            None => connect(&nameless, "a.test"),
        };
        let (mut server, mut out) = (Handshake::new(), Vec::new());
        match server.receive(&set, &from_client(&mut client), &mut out) {
            Ok(Step::NeedInput) => {
                let names = match to_client(&mut client, &out) {
                    Ok(_) => vec![format!("DnsName(\"{}\")", name.unwrap_or("a.test"))],
                    Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                        presented,
                        ..
                    })) => presented,
                    Err(error) => panic!("{error}"),
                };
                Ok(names.concat())
            }
            Ok(step) => panic!("{step:?}"),
            Err(Failure::Ours { alert, .. }) => {
                assert_eq!(out, [21, 3, 3, 0, 2, 2, alert.0]);
                Err(alert)
            }
            Err(failure) => panic!("{failure}"),
        }
    };
    // Names of no site, and one that nobody issues for.
    let unknown = ["elsewhere.example", "a_b.test", "localhost"].map(Some);
    let name_of = |it: Result<&str, Alert>| it.map(|it| format!("DnsName(\"{it}\")"));
    let check = |source: &CertificateSource,
                 of_unknown: Result<&str, Alert>,
                 of_none: Result<&str, Alert>| {
        for name in names {
            assert_eq!(shown(source, Some(name)), name_of(Ok(name)));
        }
        for name in unknown {
            assert_eq!(shown(source, name), name_of(of_unknown), "{name:?}");
        }
        assert_eq!(shown(source, None), name_of(of_none));
    };
    let refused = Err(Alert::UNRECOGNIZED_NAME);
    check(&source, refused, Err(Alert::MISSING_EXTENSION));
    let with_hosts = |hosts: &[&str]| {
        let mut source = source.clone();
        let ordered = source.ordered.as_mut().unwrap();
        ordered.hosts = hosts.iter().map(|it| (*it).to_owned()).collect();
        source
    };
    check(&with_hosts(&["named.test"]), refused, Ok("named.test"));
    let awaited = with_hosts(&["awaited.test"]);
    check(&awaited, refused, Err(Alert::MISSING_EXTENSION));
    let mut given = with_hosts(&["named.test"]);
    given.pairs.push(PairPaths::of_one(default));
    check(&given, Ok("default.test"), Ok("default.test"));
    // Where all are named, the first one is what others get, as with other servers.
    let mut named = with_hosts(&["named.test"]);
    named.ordered.as_mut().unwrap().on_demand = None;
    check(&named, Ok("named.test"), Ok("named.test"));
}
