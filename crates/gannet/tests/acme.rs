//! Certificates that are ordered: answers to the challenges of an ACME server, and files that come later.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use gannet_testkit::client::{Client, End, head};
use gannet_testkit::configuration::Configuration;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::stand_in::Request;
use gannet_testkit::tls::{Abilities, Authority, Issued, KeyKind, Secure, connection};
use gannet_testkit::{DEADLINE, Folder, Gannet, Signal, command, gannet, gannet_in, left_out, run};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{ClientConfig, ClientConnection};

/// As in the server's limits.
const CHALLENGES_MAX: usize = 64;

const THUMBPRINT: &str = "LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ";
const TOKEN: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";

fn path_of(token: &str) -> String {
    format!("/.well-known/acme-challenge/{token}")
}

fn clear_address(urls: &[String]) -> SocketAddr {
    let url = urls.iter().find_map(|url| url.strip_prefix("http://"));
    let address = url.expect("printed at start").trim_end_matches('/');
    address.parse().expect("an address")
}

fn with_thumbprint(thumbprint: &str) -> Configuration {
    Configuration::new(&format!("acme.thumbprint = '{thumbprint}'"))
}

#[test]
fn challenges_by_http_are_answered_without_state_before_anything_else() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let config = with_thumbprint(THUMBPRINT);
        let flags = [config.flags(), ["--http-redirect", "127.0.0.1:0"]].concat();
        let secure = Secure::serve(engine, site.path(), &flags);
        let expect = format!("{TOKEN}.{THUMBPRINT}");
        let path = path_of(TOKEN);
        // Before the redirect to HTTPS, whatever the host.
        let mut clear = Client::connect(clear_address(secure.server.urls()));
        clear.get("/").expect(301);
        let answer = clear.get(&path).expect(200);
        assert_eq!(answer.text(), expect);
        assert_eq!(
            answer.field("content-type"),
            Some("application/octet-stream")
        );
        let answer = clear.request("HEAD", &path, &[]).expect(200);
        let len = expect.len() as u64;
        assert_eq!((answer.content_length(), answer.body.len()), (Some(len), 0));
        clear
            .request("POST", &path, &["content-length: 0"])
            .expect(301);
        // By every version.
        let mut one = secure.connect();
        assert_eq!(one.get(&path).expect(200).text(), expect);
        one.get(&path_of("short")).expect(404);
        one.get(&path_of(&"a".repeat(4000))).expect(404);
        one.get(&path_of(&format!("{TOKEN}%2e"))).expect(404);
        let mut two = Peer::secure(&secure, &[]);
        assert_eq!(two.get(&path).expect(200).body, expect.as_bytes());
        let mut three = Quic::begin(secure.server.address(), &secure.authority);
        assert_eq!(three.get(&path).body, expect.as_bytes());
    });
}

#[test]
fn without_a_thumbprint_the_path_is_the_sites() {
    let site = Folder::site();
    site.write(&path_of(TOKEN)[1..], "of the site");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let answer = Client::new(&server).get(&path_of(TOKEN)).expect(200);
        assert_eq!(answer.text(), "of the site");
        let config = with_thumbprint(THUMBPRINT);
        let server = engine.serve(site.path(), &config.flags());
        let answer = Client::new(&server).get(&path_of(TOKEN)).expect(200);
        assert_eq!(answer.text(), format!("{TOKEN}.{THUMBPRINT}"));
    });
    let short = with_thumbprint("short");
    let [config, file] = short.flags();
    gannet([config, file, "."]).failure_with(2, "line 1: acme.thumbprint: not a thumbprint");
}

/// A connection of an ACME server that wants to see a certificate.
fn looks(authority: &Authority, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    authority.client(Abilities {
        alpn: protocols.iter().map(|it| it.to_vec()).collect(),
        ..Abilities::default()
    })
}

fn certificate(connection: &ClientConnection) -> Vec<u8> {
    connection.peer_certificates().expect("sent")[0].to_vec()
}

fn put(folder: &Folder, path: &str, issued: &Issued) {
    folder.write(format!("{path}.new"), issued.pem());
    fs::rename(folder.join(format!("{path}.new")), folder.join(path)).expect("renamed");
}

#[test]
fn challenges_by_tls_are_answered_with_the_certificate_of_their_name() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let state = Folder::new();
        fs::create_dir(state.join("challenges")).expect("made");
        let folder = state.path().to_str().expect("UTF-8").to_owned();
        let mut secure = Secure::serve(engine, site.path(), &["--acme-dir", &folder]);
        let (address, authority) = (secure.server.address(), &secure.authority);
        let only = looks(authority, &[b"acme-tls/1"]);
        let refused = |config: &Arc<ClientConfig>, name: &str| {
            let mut client = Client::tls(address, connection(config, name));
            client
                .try_send(head("GET", "/", &[]))
                .expect_err("refused")
                .to_string()
        };
        // Nothing has been ordered.
        let why = refused(&only, "asked.test");
        assert!(why.contains("NoApplicationProtocol"), "{why}");
        let proof = authority.issued(KeyKind::P256, &["asked.test"]);
        put(&state, "challenges/Asked.test.pem", &proof);
        let look = |config: &Arc<ClientConfig>| {
            let mut client = Client::tls(address, connection(config, "asked.test"));
            let is_sent = client.try_send(b"").is_ok();
            is_sent.then_some(client)
        };
        until("the challenge is answered", || look(&only).is_some());
        let mut client = look(&only).expect("answered");
        let shown = client.secure();
        assert_eq!(shown.conn.alpn_protocol(), Some(&b"acme-tls/1"[..]));
        let first = certificate(&shown.conn);
        assert_eq!(client.ends(), End::Closed, "nothing is spoken");
        // Who offers something else as well speaks that, with the site's certificate.
        let both = looks(authority, &[b"acme-tls/1", b"http/1.1"]);
        let mut client = Client::tls(address, connection(&both, "localhost"));
        client.get("/").expect(200);
        assert_ne!(certificate(&client.secure().conn), first);
        // Other names have no challenge.
        let why = refused(&only, "localhost");
        assert!(why.contains("NoApplicationProtocol"), "{why}");
        // A real one has a critical extension, at which only ACME servers look.
        let mut params = CertificateParams::new(["real.test".to_owned()]).expect("a name");
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(&[7; 32])];
        let key = KeyPair::generate().expect("a key");
        let real = Issued {
            chain: params.self_signed(&key).expect("signed").pem(),
            key: key.serialize_pem(),
        };
        put(&state, "challenges/real.test.pem", &real);
        until("a real challenge is answered", || {
            refused(&only, "real.test").contains("invalid peer certificate")
        });
        // What is unusable is said, and changes nothing else.
        state.write("challenges/broken.test.pem", "no certificate");
        let line = secure.server.next_error_line().expect("a line");
        assert!(line.contains("this challenge is not answered"), "{line}");
        assert!(look(&only).is_some());
        fs::remove_file(state.join("challenges/Asked.test.pem")).expect("removed");
        until("the challenge is over", || look(&only).is_none());
        secure.connect().get("/").expect(200);
    });
}

#[test]
fn challenges_by_tls_are_bounded() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let state = Folder::new();
        let authority = Authority::new();
        let proof = authority.issued(KeyKind::P256, &["*.asked.test"]).pem();
        let name = |number: usize| format!("c{number}.asked.test");
        for number in 0..CHALLENGES_MAX + 6 {
            state.write(format!("challenges/{}.pem", name(number)), &proof);
        }
        // One is longer than a file of certificates may be.
        state.write("challenges/long.test.pem", vec![b'-'; 2 << 20]);
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let (file, folder) = (file.to_str(), state.path().to_str());
        let flags = [
            "--tls-cert",
            file.expect("UTF-8"),
            "--acme-dir",
            folder.expect("UTF-8"),
        ];
        let mut server = engine.serve(site.path(), &flags);
        let only = looks(&authority, &[b"acme-tls/1"]);
        let is_answered = |name: &str| {
            let mut client = Client::tls(server.address(), connection(&only, name));
            client.try_send(b"").is_ok()
        };
        let count = (0..CHALLENGES_MAX + 6).filter(|number| is_answered(&name(*number)));
        // Which ones depends on the order of the folder, the long one included.
        let count = count.count();
        assert!(
            [CHALLENGES_MAX - 1, CHALLENGES_MAX].contains(&count),
            "{count}"
        );
        assert!(!is_answered("long.test"));
        // Which is said, once.
        let mut lines = Vec::new();
        while !lines.iter().any(|it: &String| it.contains("challenges':")) {
            lines.push(server.next_error_line().expect("a line"));
        }
        let line = lines.pop().expect("one");
        let expect =
            format!("/challenges': it has more than {CHALLENGES_MAX} challenges; the others");
        assert!(line.contains(&expect), "{line}");
        // One more is not said again: the folder is looked at before the certificates, each time.
        state.write("challenges/more.asked.test.pem", &proof);
        for name in ["first", "second"] {
            state.write(format!("certificates/{name}.pem"), "no certificate");
            let of_this = format!("certificates/{name}.pem'");
            loop {
                let line = server.next_error_line().expect("a line");
                assert!(!line.contains("challenges':"), "{line}");
                if line.contains(&of_this) {
                    break;
                }
            }
        }
    });
}

#[test]
fn certificates_that_are_ordered_may_come_later() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let state = Folder::new();
        let file = state.join("site.pem");
        let config = with_thumbprint(THUMBPRINT);
        let certificate = ["--tls-cert", file.to_str().expect("UTF-8")];
        let flags = [config.flags(), certificate].concat();
        let mut server = engine.serve(site.path(), &flags);
        let lines = server.start_lines().join("\n");
        assert!(lines.contains("there is no certificate yet"), "{lines}");
        let authority = Authority::new();
        let config = authority.client(Abilities::default());
        let mut client = Client::tls(server.address(), connection(&config, "site.test"));
        let why = client.try_send(head("GET", "/", &[])).expect_err("refused");
        assert!(why.to_string().contains("UnrecognisedName"), "{why}");
        let mut quic = Quic::start(server.address(), &config, "site.test");
        assert_ne!(quic.failed_with(), 0);
        let issued = authority.issued(KeyKind::P256, &["site.test"]);
        put(&state, "site.pem", &issued);
        let line = server.next_line();
        assert_eq!(line.as_deref(), Some("certificates reloaded"));
        let mut client = Client::tls(server.address(), connection(&config, "site.test"));
        client.get("/").expect(200);
        // What was not ordered has to be there.
        drop(server);
        fs::remove_file(&file).expect("removed");
        let site = site.path().to_str().expect("UTF-8");
        gannet(["--tls-cert", certificate[1], site]).failure_with(1, "cannot read");
    });
}

/// An ACME server that knows no account and makes none: it answers as it is told to.
struct StandIn {
    url: String,
    asked: Receiver<String>,
}

impl StandIn {
    fn start(account: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("bound"));
        let directory = format!(
            "{{\"newNonce\":\"{base}/nonce\",\"newAccount\":\"{base}/account\",\
             \"newOrder\":\"{base}/order\"}}"
        );
        let (asks, asked) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client");
                let Some(request) = Request::read(&stream) else {
                    continue;
                };
                let answer = match request.target.as_str() {
                    "/dir" => format!(
                        "200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n\
                         {directory}",
                        directory.len()
                    ),
                    "/nonce" => "200 OK\r\nreplay-nonce: abc\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".into(),
                    _ => account.to_owned(),
                };
                // Nobody may be there any more.
                let _ = stream.write_all(format!("HTTP/1.1 {answer}").as_bytes());
                let _ = asks.send(request.target);
            }
        });
        Self {
            url: format!("{base}/dir"),
            asked,
        }
    }

    /// Waits until it is asked for this path.
    fn is_asked(&self, path: &str) {
        until_asked(&self.asked, path);
    }
}

fn until_asked(asked: &Receiver<String>, path: &str) {
    while asked.recv_timeout(DEADLINE).expect("it is asked") != path {}
}

const LIMITED: &str = "429 Too Many Requests\r\nretry-after: 7200\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 82\r\n\r\n\
    {\"type\":\"urn:ietf:params:acme:error:rateLimited\",\"detail\":\"too many accounts now\"}";

#[test]
fn what_an_acme_server_refuses_is_said_with_the_next_step() {
    let server = StandIn::start(LIMITED);
    let folder = Folder::new();
    let ended = gannet_in(&folder, once(&server));
    let ended = ended.failure_with(1, "too many accounts now (rateLimited)");
    // Two hours, less what it took until it was said.
    let is_said = |said: &str| {
        let rest = said.split_once("; try again in ").map(|it| it.1);
        rest.is_some_and(|rest| match rest.split_once(" minutes") {
            Some((minutes, _)) => minutes.parse().is_ok_and(|it: u32| (61..120).contains(&it)),
            None => rest.starts_with("2 hours\n"),
        })
    };
    assert!(is_said(&ended.err), "{}", ended.err);
    assert!(
        ended.err.contains("help: try a new setup with --staging"),
        "{}",
        ended.err
    );
    let mode = |path: &str| {
        let metadata = fs::metadata(folder.join(path)).expect("made");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!((mode("state"), mode("state/lock")), (0o700, 0o600));
    let server = StandIn::start(
        "502 Bad\r\nconnection: close\r\ncontent-type: text/html\r\ncontent-length: 3\r\n\r\nbad",
    );
    let ended = gannet_in(&folder, once(&server));
    ended.failure_with(1, "the server answers with status 502");
    let server = StandIn::start(
        "429 Too Many Requests\r\nconnection: close\r\nretry-after: 7200\r\ncontent-length: 0\r\n\r\n",
    );
    let ended = gannet_in(&folder, once(&server));
    let ended = ended.failure_with(1, "the server answers with status 429");
    assert!(is_said(&ended.err), "{}", ended.err);
    assert!(!ended.err.contains("help: name"), "{}", ended.err);
    // Nothing else is at that address.
    for answer in [
        "404 Not Found\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\nnone",
        "200 OK\r\nconnection: close\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p>a",
        "301 Moved\r\nconnection: close\r\nlocation: /dir\r\ncontent-length: 0\r\n\r\n",
    ] {
        let mut server = StandIn::start(answer);
        server.url = server.url.replace("/dir", "/acme");
        let ended = gannet_in(&folder, once(&server));
        let status = format!(
            "there is no directory of an ACME server (status {}",
            &answer[..3]
        );
        let ended = ended.failure_with(1, &status);
        let help = "help: name the directory of an ACME server: https://HOST/PATH\n";
        assert!(ended.err.ends_with(help), "{}", ended.err);
    }
    for (arguments, why) in [
        (&["*.a.test"][..], "a wildcard needs a challenge by DNS"),
        (&["a.test", "--server", "nowhere"], "cannot use 'nowhere'"),
        (
            &["a.test", "--server", "http://ca.test/dir"],
            "cannot use 'http://ca.test/dir': in clear text",
        ),
        (&["a.test"], "no public authority issues for 'a.test'"),
        (&["web", "--staging"], "issues for 'web': it has no dot"),
        (&["[::1]"], "issues for '::1': it is not an address"),
        (
            &["a.test", "--staging", "--server", "https://a"],
            "contradict each other",
        ),
        (&["a.test", "--eab-kid", "a"], "belong together"),
        (
            &["a.test", "--challenge", "dns-01"],
            "cannot use '--challenge dns-01'",
        ),
    ] {
        let all = ["acme", "--dir", "state", "--once"].iter().chain(arguments);
        gannet_in(&folder, all).failure_with(2, why);
    }
}

/// As test servers have it, and authorities within a company.
#[test]
fn an_acme_server_that_this_machine_does_not_trust_is_said_with_the_next_step() {
    let site = Folder::site();
    let secure = Secure::serve(Engine::Epoll, site.path(), &[]);
    let url = format!("https://localhost:{}/dir", secure.server.address().port());
    let all = [
        "acme", "a.test", "--server", &url, "--dir", "state", "--once",
    ];
    let ended = gannet_in(&Folder::new(), all).failure_with(1, "UnknownIssuer; try again in ");
    assert!(ended.err.contains("SSL_CERT_FILE=FILE"), "{}", ended.err);
}

#[test]
fn what_nobody_would_issue_is_found_by_a_check_of_the_command_line() {
    let site = Folder::site();
    let site = site.path().to_str().expect("UTF-8");
    let folder = Folder::new();
    let state = folder.join("state");
    let state = state.to_str().expect("UTF-8");
    folder.write("wrong.key", "no key");
    let wrong = folder.join("wrong.key");
    let wrong = wrong.to_str().expect("UTF-8");
    fn of_tls(config: &Configuration) -> [&str; 3] {
        let [flag, file] = config.flags();
        ["--tls", flag, file]
    }
    let email = Configuration::new("acme.email = 'a@a.test'");
    let profile = Configuration::new("acme.profile = 'short'");
    let kid = Configuration::new("acme.eab-kid = 'kid-1'");
    let hosts = "[acme]\nhosts = 'example.org'\n";
    let key = Configuration::new(&format!("{hosts}eab-key = 'eab.key'"));
    let both = format!("{hosts}eab-kid = 'kid-1'\neab-key = '{wrong}'");
    let both = Configuration::new(&both);
    for (flags, why) in [
        (
            &["--acme", "localhost"][..],
            "no public authority issues for 'localhost'",
        ),
        (
            &["--acme", "10.0.0.1", "--acme-server", "staging"],
            "not an address of the internet",
        ),
        (
            &["--acme", "example.org", "--acme-server", "stagin"],
            "relative URL without a base; give https://HOST/PATH",
        ),
        (
            &["--acme", "example.org", "--acme-server", "http://ca.test/"],
            "in clear text",
        ),
        (&of_tls(&email), "'acme.email' is given without --acme"),
        (&of_tls(&profile), "'acme.profile' is given without --acme"),
        (&of_tls(&kid), "'acme.eab-kid' is given without --acme"),
        (
            &key.flags(),
            "'acme.eab-kid' and 'acme.eab-key' belong together",
        ),
        (&both.flags(), "wrong.key': not a key in Base64"),
    ] {
        for check in [&["--check-config"][..], &[]] {
            let fixed = ["serve", "--acme-dir", state, "--port", "0", site];
            let all = fixed.iter().chain(flags).chain(check);
            gannet(all).failure_with(2, why);
        }
    }
    assert!(!folder.join("state").exists());
    let own = "https://ca.test/dir";
    gannet([
        "serve",
        "--acme",
        "localhost",
        "--acme-server",
        own,
        "--acme-dir",
        state,
        "--port",
        "0",
        "--check-config",
        site,
    ])
    .success();
}

/// `gannet acme` for one host into `state`, once.
fn once(server: &StandIn) -> [&str; 7] {
    let url = server.url.as_str();
    [
        "acme", "a.test", "--server", url, "--dir", "state", "--once",
    ]
}

/// No authority sends so much: somebody else has written that.
#[test]
fn a_file_that_is_too_long_for_a_certificate_is_said_with_the_next_step() {
    let server = StandIn::start(LIMITED);
    let folder = Folder::new();
    let len = (272 << 10) + 1;
    for host in ["a.test", "b.test"] {
        let path = format!("state/certificates/{host}.pem");
        folder.write(path, vec![b'-'; len]);
    }
    let arguments = once(&server);
    let more = ["b.test", "--challenge", "tls-alpn-01"];
    let ended = gannet_in(&folder, [&arguments[..], &more].concat());
    for host in ["a.test", "b.test"] {
        let path = format!("state/certificates/{host}.pem");
        let said = format!("gannet: cannot use '{path}': longer than 278528 bytes; try again in ");
        let help = format!("\nhelp: remove '{path}', and a new one is made\n");
        assert!(
            ended.err.contains(&said) && ended.err.contains(&help),
            "{}",
            ended.err
        );
    }
    assert_eq!(ended.status, Some(1));
    assert_eq!(server.asked.try_iter().count(), 0, "it is not replaced");
}

#[test]
fn what_a_server_has_refused_is_not_asked_for_at_the_next_start() {
    let server = StandIn::start(LIMITED);
    let folder = Folder::new();
    gannet_in(&folder, once(&server)).failure_with(1, "too many accounts now");
    server.is_asked("/account");
    let ended = gannet_in(&folder, once(&server));
    let ended = ended.failure_with(1, "yet: it has failed before; try again in ");
    let help = "help: to try at once, remove 'state/history-127.0.0.1-";
    assert!(ended.err.contains(help), "{}", ended.err);
    assert_eq!(server.asked.try_iter().count(), 0, "it is left alone");
}

#[test]
fn on_a_full_disk_nothing_is_asked_of_a_server() {
    let server = StandIn::start(LIMITED);
    let folder = Folder::new();
    // No file may have content: to a program, this is like a full disk.
    let gannet = command();
    let script = "ulimit -f 0; exec \"$0\" \"$@\"";
    let mut limited = Command::new("sh");
    limited.args(["-c", script]).arg(gannet.get_program());
    let ended = run(limited.args(once(&server)).current_dir(folder.path()));
    ended.failure_with(1, "file too large (EFBIG)");
    assert_eq!(server.asked.try_iter().count(), 0);
}

#[test]
fn who_uses_the_folder_is_named() {
    let server = StandIn::start(LIMITED);
    let folder = Folder::new();
    let start = || {
        let mut command = command();
        command.args(once(&server).into_iter().filter(|it| *it != "--once"));
        let command = command.current_dir(folder.path());
        command.stderr(Stdio::piped()).spawn().expect("started")
    };
    let mut first = start();
    server.is_asked("/account");
    let mut second = start();
    let lines = BufReader::new(second.stderr.take().expect("piped")).lines();
    let lines: Vec<_> = lines.take(2).map(|line| line.expect("text")).collect();
    let expect = format!("'gannet acme', process {}, uses 'state'", first.id());
    assert!(lines[0].contains(&expect), "{lines:?}");
    assert!(lines[1].starts_with("help: "), "{lines:?}");
    for child in [&mut first, &mut second] {
        child.kill().expect("it runs");
        child.wait().expect("ended");
    }
}

/// The processes that order into a folder, keepers not included, with their command lines.
fn orderers_with_lines(folder: &str) -> Vec<(String, String)> {
    let all = fs::read_dir("/proc").expect("readable").flatten();
    let all = all.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let is_it = line.contains("\0acme\0") && line.contains(&format!("\0{folder}\0"));
        is_it.then(|| (entry.file_name().to_string_lossy().into_owned(), line))
    });
    all.collect()
}

fn orderers(folder: &str) -> Vec<String> {
    let all = orderers_with_lines(folder).into_iter();
    all.map(|(process, _)| process).collect()
}

#[test]
fn what_an_acme_server_asks_for_is_handed_on_and_no_secret_is_on_a_command_line() {
    let ca = StandIn::start(LIMITED);
    let site = Folder::site();
    let state = Folder::new();
    let secret = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    state.write("eab.key", format!("{secret}\n"));
    let [folder, key] = ["acme", "eab.key"].map(|name| {
        let path = state.join(name);
        path.to_str().expect("UTF-8").to_owned()
    });
    let config = Configuration::new(&format!(
        "[acme]\nhosts = 'a.test'\nprofile = 'shortlived'\neab-kid = '-kid-1'\neab-key = '{key}'"
    ));
    let flags = [
        &config.flags()[..],
        &["--acme-dir", &folder, "--acme-server", &ca.url],
    ];
    let _server = Gannet::serve(site.path(), &flags.concat());
    ca.is_asked("/account");
    let [(_, line)] = &orderers_with_lines(&folder)[..] else {
        panic!("one orders");
    };
    for part in [
        "\0--profile\0shortlived\0",
        "\0--eab-kid=-kid-1\0",
        &format!("\0--eab-key\0{key}\0"),
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains(secret), "{line}");
}

/// The process that orders has the rights of `--user`, and would fail again and again.
#[test]
fn a_key_that_the_user_cannot_read_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    let folder = Folder::new();
    folder.write("site/page", "page");
    folder.write(
        "eab.key",
        "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n",
    );
    let mode = |name: &str, mode| {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).expect("ours");
    };
    folder.write(
        "eab.toml",
        "[acme]\nhosts = 'a.test'\neab-kid = 'kid-1'\neab-key = 'eab.key'",
    );
    mode("", 0o755);
    mode("eab.key", 0o400);
    let serve = |flags: &[&str]| {
        let mut serve = command();
        serve
            .args(["serve", "site", "--port", "0"])
            .args([
                "--acme-dir",
                "state",
                "--acme-server",
                "https://ca.test/dir",
            ])
            .args(["--config", "eab.toml"])
            .args(["--user", "65534:65534"])
            .args(flags)
            .current_dir(folder.path());
        run(&mut serve)
    };
    for flags in [&["--check-config"][..], &[]] {
        serve(flags).failure_with(1, "cannot read 'eab.key': permission denied");
    }
    chown(folder.join("eab.key"), Some(65_534), None).expect("root may");
    serve(&["--check-config"]).success();
}

#[test]
fn a_server_orders_by_a_process_beside_it_that_ends_with_it() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let ca = StandIn::start(LIMITED);
        let state = Folder::new();
        let folder = state.join("acme");
        let shown = folder.to_str().expect("UTF-8");
        let flags = [
            "--acme",
            "a.test",
            "--acme-dir",
            shown,
            "--acme-server",
            &ca.url,
        ];
        let mut server = engine.serve(site.path(), &flags);
        let lines = server.start_lines().join("\n");
        assert!(lines.contains("there is no certificate yet"), "{lines}");
        ca.is_asked("/account");
        let line = server.next_error_line().expect("a line");
        assert!(line.contains("too many accounts now"), "{line}");
        assert_eq!(orderers(shown).len(), 1);
        // What the other process gets is served without a word from it.
        let authority = Authority::new();
        let issued = authority.issued(KeyKind::P256, &["a.test"]);
        put(&state, "acme/certificates/a.test.pem", &issued);
        let line = server.next_line();
        assert_eq!(line.as_deref(), Some("certificates reloaded"));
        let config = authority.client(Abilities::default());
        let mut client = Client::tls(server.address(), connection(&config, "a.test"));
        client.get("/").expect(200);
        // The next server takes over, and so does its process.
        let first = orderers(shown);
        server.signal(Signal::USR2);
        // Both write there.
        let line = loop {
            let line = server.next_line().expect("it is upgraded");
            if let Some(line) = line.strip_prefix("process ") {
                break line.to_owned();
            }
        };
        let successor = line.split(' ').next().expect("a number");
        let successor = rustix::process::Pid::from_raw(successor.parse().expect("a number"));
        let successor = successor.expect("not zero");
        until("one orders", || {
            let now = orderers(shown);
            now.len() == 1 && now != first
        });
        rustix::process::kill_process(successor, Signal::TERM).expect("it runs");
        until("nobody orders", || orderers(shown).is_empty());
    });
}
