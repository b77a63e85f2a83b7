//! The operator's own log format, masks, samples and identifiers of requests, over every version of
//! HTTP.

use std::fs;
use std::path::PathBuf;

use gannet_testkit::client::Client;
use gannet_testkit::configuration::Configuration;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::h3::request;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, Signal, gannet_in};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A site with a folder beside it for the log.
fn site() -> (Folder, PathBuf) {
    let folder = Folder::new();
    folder.write("site/index.html", "<h1>hello</h1>");
    let log = folder.join("log");
    (folder, log)
}

fn lines(log: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(log).expect("written");
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(str::to_owned).collect()
}

const VERSIONS: [&str; 3] = ["HTTP/1.1", "HTTP/2.0", "HTTP/3.0"];

/// Asks over HTTP/2 and HTTP/3 for what was asked for over HTTP/1.1; the lines of all, which begin with the
/// versions or with the same text before these, in their order. (Workers write for themselves.)
fn over_all_versions(
    secure: &Secure,
    target: &str,
    fields: &[(&str, &str)],
    log: &PathBuf,
) -> Vec<String> {
    let mut peer = Peer::secure(secure, &[]);
    let stream = peer.ask("GET", target, fields);
    assert!(peer.answer(stream).is_ended);
    let mut quic = Quic::begin(secure.server.address(), &secure.authority);
    let id = quic.ask(&request("GET", target, fields));
    assert_eq!(quic.answer(id).status, 200);
    until("all lines are written", || {
        lines(log).len() == VERSIONS.len()
    });
    let mut lines = lines(log);
    lines.sort_unstable();
    lines
}

/// Whatever a client sends, each request has one line with the same number of fields.
#[test]
fn own_formats_have_the_same_fields_over_every_version() {
    on_both_engines(|engine| {
        let (folder, log) = site();
        let format = "$remote_addr $request_method $server_protocol $status $body_bytes_sent \
                      \"$http_user_agent\" $http_user_agent $http_traceparent $http_x_request_id \
                      $request_time $request_completion";
        let flags = ["--log", format, "--log-file", log.to_str().expect("UTF-8")];
        let secure = Secure::serve(engine, folder.join("site"), &flags);
        let agent = "a \"b\" \\ é $status 200 c";
        let fields = [
            ("user-agent", agent),
            ("traceparent", TRACEPARENT),
            ("x-request-id", "id-1"),
        ];
        let mut client = secure.connect();
        let of_fields = fields.map(|(name, value)| format!("{name}: {value}"));
        let of_fields = of_fields.each_ref().map(String::as_str);
        client.request("GET", "/", &of_fields).expect(200);
        let lines = over_all_versions(&secure, "/", &fields, &log);
        for (line, version) in lines.iter().zip(VERSIONS) {
            let quoted = "a \\x22b\\x22 \\x5C \\xC3\\xA9 $status 200 c";
            let plain = quoted.replace(' ', "\\x20");
            let start = format!(
                "127.0.0.1 GET {version} 200 14 \"{quoted}\" {plain} {TRACEPARENT} id-1 0."
            );
            assert!(line.starts_with(&start) && line.ends_with(" OK"), "{line}");
            let time = line[start.len()..].trim_end_matches(" OK");
            let is_time = time.len() == 6 && time.bytes().all(|b| b.is_ascii_digit());
            assert!(is_time, "microseconds: {line}");
        }
    });
}

/// A head is as long in every version; version and suite of TLS are those of the connection, also for
/// early data.
#[test]
fn own_formats_have_length_and_tls() {
    on_both_engines(|engine| {
        let (folder, log) = site();
        let format = "$server_protocol $request_length $ssl_protocol $ssl_cipher";
        let flags = ["--log", format, "--log-file", log.to_str().expect("UTF-8")];
        let secure = Secure::serve(engine, folder.join("site"), &flags);
        let fields = [("user-agent", "one"), ("accept-language", "de, en;q=0.5")];
        let head = "GET /?a=b HTTP/1.1\r\nhost: test\r\nuser-agent: one\r\n\
             accept-language: de, en;q=0.5\r\n\r\n";
        let mut client = secure.connect();
        client.send(head.as_bytes());
        client.response().expect(200);
        let lines = over_all_versions(&secure, "/?a=b", &fields, &log);
        let len = head.len();
        for (line, version) in lines.iter().zip(VERSIONS) {
            let suite = match version {
                "HTTP/3.0" => "-",
                _ => "TLS_AES_128_GCM_SHA256",
            };
            assert_eq!(line, &format!("{version} {len} TLSv1.3 {suite}"));
        }
    });
}

/// JSON has the identifiers that are valid, and no others.
#[test]
fn json_has_valid_identifiers() {
    on_both_engines(|engine| {
        let (folder, log) = site();
        let flags = ["--log", "json", "--log-file", log.to_str().expect("UTF-8")];
        let server = engine.serve(folder.join("site"), &flags);
        let mut client = Client::new(&server);
        let trace = format!("traceparent: {TRACEPARENT}");
        client.request("GET", "/", &[&trace, "x-request-id: id-1"]);
        client.request("GET", "/", &["traceparent: 00-1-2-3", "x-request-id: a b"]);
        server.stop().success();
        let lines = lines(&log);
        let ids = format!("\"traceparent\":\"{TRACEPARENT}\",\"request_id\":\"id-1\"");
        assert!(lines[0].contains(&ids), "{}", lines[0]);
        for key in ["traceparent", "request_id"] {
            assert!(!lines[1].contains(key), "{}", lines[1]);
        }
    });
}

/// Heads that are no requests all look alike, but for the reason.
#[test]
fn a_rejected_head_has_its_reason() {
    on_both_engines(|engine| {
        let (folder, log) = site();
        let flags = ["--log", "json", "--log-file", log.to_str().expect("UTF-8")];
        let server = engine.serve(folder.join("site"), &flags);
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000));
        let many = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n", "x".repeat(70_000));
        let heads = [
            ("GET / HTTP/1.1\r\nhost: a b\r\n\r\n", 400, "invalid host"),
            ("GET / HTTP/1.1\r\n\r\n", 400, "no host"),
            (&*long, 414, "request line too long"),
            (&*many, 431, "field section too large"),
            (
                "GET / HTTP/1.1\r\nhost: a\r\nexpect: x\r\n\r\n",
                417,
                "unknown expectation",
            ),
            (
                "GET / HTTP/2.0\r\nhost: a\r\n\r\n",
                505,
                "unsupported version",
            ),
        ];
        for (head, status, _) in heads {
            let mut client = Client::new(&server);
            let _ = client.try_send(head);
            client.response().expect(status);
        }
        server.stop().success();
        let mut expect = heads.map(|(_, status, why)| {
            format!("\"rejected\":\"{why}\",\"protocol\":\"-\",\"status\":{status},")
        });
        for line in lines(&log) {
            let found = expect
                .iter_mut()
                .find(|it| !it.is_empty() && line.contains(it.as_str()));
            found.unwrap_or_else(|| panic!("{line}")).clear();
        }
        assert!(expect.iter().all(String::is_empty), "{expect:?}");
    });
}

/// Neither the connection's address nor the one that a proxy tells is logged whole.
#[test]
fn masked_logs_have_networks() {
    on_both_engines(|engine| {
        let (folder, log) = site();
        let log_name = log.to_str().expect("UTF-8");
        let config = Configuration::new("[log]\nformat = 'json'\nmask = true");
        let flags = ["--log-file", log_name, "--trust", "127.0.0.1"];
        let flags = [&config.flags(), &flags[..]].concat();
        let server = engine.serve(folder.join("site"), &flags);
        let mut client = Client::new(&server);
        client.get("/").expect(200);
        for named in ["192.0.2.77", "2001:db8:1:2:3:4:5:6"] {
            let line = format!("x-forwarded-for: {named}");
            client.request("GET", "/", &[&line]).expect(200);
        }
        server.stop().success();
        let lines = lines(&log);
        let peers = ["127.0.0.0", "192.0.2.0", "2001:db8:1::"];
        assert_eq!(lines.len(), peers.len());
        for (line, peer) in lines.iter().zip(peers) {
            assert!(line.contains(&format!("\"peer\":\"{peer}\"")), "{line}");
        }
    });
}

/// A sample is a part of the lines; the file is opened anew at SIGHUP, and at SIGUSR1.
#[test]
fn a_sample_is_written_and_rotated() {
    const REQUESTS: usize = 200;
    on_both_engines(|engine| {
        let (folder, log) = site();
        let log_name = log.to_str().expect("UTF-8");
        let config = Configuration::new("log.format = '$status'\nlog.sample = '1/10'");
        let file = ["--log-file", log_name, "--workers", "1"];
        let flags = [&config.flags(), &file[..]].concat();
        let server = engine.serve(folder.join("site"), &flags);
        let mut client = Client::new(&server);
        let mut ask = || (0..REQUESTS).for_each(|_| drop(client.get("/").expect(200)));
        ask();
        until("lines are written", || !lines(&log).is_empty());
        fs::rename(&log, folder.join("log.1")).expect("ours");
        server.signal(Signal::HUP);
        until("it is opened anew", || log.exists());
        ask();
        until("lines are written", || !lines(&log).is_empty());
        fs::rename(&log, folder.join("log.2")).expect("ours");
        server.signal(Signal::USR1);
        until("it is opened anew", || log.exists());
        ask();
        assert_eq!(server.stop().status, Some(0));
        let old = ["log.1", "log.2"].map(|name| lines(&folder.join(name)).len());
        let count = lines(&log).len() + old[0] + old[1];
        assert!((59..=61).contains(&count), "{count} lines");
        assert!(lines(&log).iter().all(|line| line == "200"));
    });
}

#[test]
fn a_bad_format_is_refused_with_the_next_step() {
    let (folder, _) = site();
    let check = |flags: &[&str], cause: &str| {
        let ended = gannet_in(&folder, [&["-p", "0"], flags, &["site"]].concat());
        ended.failure(2, &format!("gannet: {cause}\n"));
    };
    let see = "help: see 'gannet --help-all'";
    check(
        &["--log", "$status $statsu"],
        &format!(
            "cannot use '--log $status $statsu': unknown variable '$statsu' at character 9 \
             (did you mean '$status'?)\n{see}"
        ),
    );
    check(
        &["--log", "a$"],
        &format!("cannot use '--log a$': no name after the '$' at character 2\n{see}"),
    );
    let see = "help: 'gannet --help-all' lists the values of each key";
    for sample in ["0", "1/0", "2/3", "1/1000001", "1/x", "50%"] {
        folder.write("log.toml", format!("log.sample = '{sample}'"));
        let why = "line 1: log.sample: not 1/N with N from 1 to 1000000";
        check(
            &["-c", "log.toml"],
            &format!("cannot use 'log.toml': {why}\n{see}"),
        );
    }
    folder.write("log.toml", "[log]\nformat = 'off'\nsample = '1/2'");
    check(
        &["-c", "log.toml"],
        "'log.sample' in the configuration has no effect without a log\n\
         help: choose a format with --log, or leave it out",
    );
}

/// The first lines name the log, and leave standard output to it.
#[test]
fn an_own_format_has_standard_output_for_itself() {
    let (folder, _) = site();
    let ended = gannet_in(
        &folder,
        ["--log", "$status", "-p", "0", "--check-config", "site"],
    );
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let log = folder.join("log");
    let flags = ["--log", "$status", "--log-file"];
    let flags = flags.into_iter().chain([log.to_str().expect("UTF-8")]);
    let server = Gannet::serve(folder.join("site"), &flags.collect::<Vec<_>>());
    let expect = format!("log      {} (own format)", log.display());
    assert!(server.start_lines().contains(&expect));
}
