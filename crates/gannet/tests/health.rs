//! `gannet health` asks running servers, as a container's health check does.

use std::net::TcpListener;

use gannet_testkit::engine::on_both_engines;
use gannet_testkit::tls::{Authority, KeyKind};
use gannet_testkit::{Ended, Folder, FreePort, Gannet, command, gannet, run};

/// Status 1, and a message with this part.
fn fails(ended: &Ended, part: &str) {
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        ended.err.contains(part) && ended.out.is_empty(),
        "{ended:?}"
    );
}

#[test]
fn a_server_is_asked_at_the_address_that_the_environment_names() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let port = FreePort::new();
        let metrics = port.address().to_string();
        let ask = || run(command().env("GANNET_METRICS", &metrics).arg("health"));
        fails(&ask(), "cannot ask 'http://127.0.0.1:");
        let server = engine.serve(site.path(), &["--metrics", &metrics]);
        assert_eq!(ask().success().text(), "ok\n");
        server.stop().success();
        fails(&ask(), "cannot ask");
    });
}

#[test]
fn the_configuration_file_and_the_path_of_load_balancers_count() {
    let site = Folder::site();
    let port = FreePort::new();
    let address = port.address().to_string();
    let config = site.write(
        "gannet.toml",
        format!("listen = ['{address}']\nhealth = '/healthz'\n"),
    );
    let config = config.to_str().expect("UTF-8");
    let serve = ["serve", "--config", config];
    let server = Gannet::start(command().args(serve).arg(site.path()));
    let ok = gannet(["health", "--config", config]).success();
    assert_eq!(ok.text(), "ok\n");
    server.stop().success();
}

#[test]
fn over_https_its_own_certificate_needs_no_authority_and_a_url_does() {
    let site = Folder::site();
    let authority = Authority::new();
    let leaf = authority.issue("leaf.pem", KeyKind::P256, &["example.test"]);
    let leaf = leaf.to_str().expect("UTF-8");
    let port = FreePort::new();
    let address = port.address().to_string();
    let variables = [
        ("GANNET_LISTEN", address.as_str()),
        ("GANNET_TLS_CERT", leaf),
        ("GANNET_HEALTH", "/up"),
    ];
    let server = Gannet::start(command().envs(variables).arg(site.path()));
    run(command().envs(variables).arg("health")).success();
    let url = format!("https://{address}/up");
    fails(&gannet(["health", &url]), "cannot ask 'https://");
    gannet(["health", "--insecure", &url]).success();
    server.stop().success();
}

#[test]
fn what_is_not_well_has_status_one() {
    let site = Folder::site();
    let server = Gannet::serve(site.path(), &[]);
    let url = |path: &str| format!("http://{}{path}", server.address());
    gannet(["health", &url("/")]).success();
    fails(
        &gannet(["health", &url("/nothing")]),
        "the server answers 404",
    );
    fails(&gannet(["health"]), "nothing to request");
    fails(&gannet(["health", "http://"]), "it has no host");
    fails(
        &gannet(["health", "--config", "/nothing.toml"]),
        "cannot read configuration",
    );
}

/// A server that accepts and says nothing is not well.
#[test]
fn silence_is_no_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let url = format!("http://{}/health", silent.local_addr().expect("bound"));
    fails(&gannet(["health", &url]), "no answer within 3 s");
}
