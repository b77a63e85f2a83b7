//! Features for operators: metrics and health, checking a configuration, Unix sockets, hosts.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

use gannet_testkit::client::{Client, ask, get, metric, metrics};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::tls::{Authority, KeyKind};
use gannet_testkit::{
    DEADLINE, Folder, FreePort, Gannet, Signal, command, command_of_nobody, gannet_in, run, same,
};

/// More clients than are answered at once.
const SLOW_CLIENTS: usize = 100;

/// A client that never ends its request.
fn slow_client(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /metrics HT").expect("sent");
    stream
}

/// Clients that never complete their requests delay neither health checks nor the end of the
/// process.
#[test]
fn slow_metrics_clients_hold_up_nobody() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--metrics", "127.0.0.1:0"]);
        let address = server.metrics().expect("metrics are enabled");
        metrics(&server);
        let _slow: Vec<_> = (0..SLOW_CLIENTS).map(|_| slow_client(address)).collect();
        for target in ["/health", "/metrics", "/health"] {
            let begun = Instant::now();
            let answer = Client::connect(address).request("GET", target, &[]);
            answer.expect(200);
            // One after the other, the slow ones would take minutes; a busy machine takes seconds.
            assert!(begun.elapsed() < DEADLINE / 2, "{target}");
        }
        let _more: Vec<_> = (0..SLOW_CLIENTS).map(|_| slow_client(address)).collect();
        let begun = Instant::now();
        server.stop().success();
        assert!(begun.elapsed() < DEADLINE / 2);
    });
}

/// A silent client is disconnected even if no other client needs its place.
#[test]
fn a_metrics_request_has_a_deadline() {
    let site = Folder::site();
    let server = Gannet::serve(site.path(), &["--metrics", "127.0.0.1:0"]);
    let mut client = Client::connect(server.metrics().expect("metrics are enabled"));
    client.send("GET /metrics HT");
    client.closes();
}

#[test]
fn metrics_tell_of_version_workers_and_process() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let flags = ["--metrics", "127.0.0.1:0", "--workers", "2"];
        let server = engine.serve(site.path(), &flags);
        get(&server, "/").expect(200);
        let text = metrics(&server);
        let name = server
            .start_lines()
            .iter()
            .find(|line| line.starts_with("engine "));
        let name = name.and_then(|line| {
            line.split([' ', ','])
                .find(|it| it.contains("poll") || it.contains("uring"))
        });
        for line in [
            format!(
                "gannet_build_info{{version=\"{}\",engine=\"{}\"}} 1\n",
                env!("CARGO_PKG_VERSION"),
                name.expect("it is named")
            ),
            "gannet_worker_up{worker=\"0\"} 1\ngannet_worker_up{worker=\"1\"} 1\n".into(),
            "\nprocess_cpu_seconds_total ".into(),
            "\nprocess_start_time_seconds ".into(),
        ] {
            assert!(
                text.text().contains(&line),
                "no {line:?} in {}",
                text.text()
            );
        }
        assert!(metric(&server, "process_resident_memory_bytes") > 1 << 20);
        assert!(metric(&server, "process_open_fds") < metric(&server, "process_max_fds"));
    });
}

#[test]
fn metrics_tell_when_certificates_end() {
    let site = Folder::site();
    let authority = Authority::new();
    let certificate = authority.issue("leaf.pem", KeyKind::P256, &["example.test"]);
    let certificate = certificate.to_str().expect("UTF-8");
    let flags = ["--metrics", "127.0.0.1:0", "--tls-cert", certificate];
    let server = Gannet::serve(site.path(), &flags);
    let text = metrics(&server);
    let start = "gannet_certificate_not_after_timestamp_seconds{name=\"example.test\",fingerprint=";
    let line = text.text().lines().find(|line| line.starts_with(start));
    // The first second of 2099.
    assert!(
        line.is_some_and(|line| line.ends_with(" 4070908800")),
        "{line:?}"
    );
}

/// Checking a configuration ends like a start: with the same message and status.
#[test]
fn a_check_finds_what_a_start_finds() {
    let folder = Folder::site();
    let authority = Authority::new();
    let leaf = authority.issue("leaf.pem", KeyKind::P256, &["example.test"]);
    let leaf = leaf.to_str().expect("UTF-8");
    folder.write("key.pem", "no key");
    folder.write("bad/_redirects", "/a /b 999\n");
    folder.write("bad.gannet", "no archive");
    folder.write("hosts/no_host!/x", "");
    let busy = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let busy = busy.local_addr().expect("bound").to_string();
    let grouped = format!("unix:{},group=no-such-group", folder.join("s").display());
    let cases: &[&[&str]] = &[
        &["nothing"],
        &["bad"],
        &["bad.gannet"],
        &["--hosts", "hosts"],
        &["--site", "a.example=nothing", "."],
        &["-l", &busy, "."],
        &["-l", &grouped, "."],
        &["-l", "unix:nowhere/s", "."],
        &["--metrics", &busy, "."],
        &["--log-file", "nowhere/log", "."],
        &["--tls-cert", "nothing.pem", "."],
        &["--tls-cert", leaf, "--tls-key", "key.pem", "."],
        &["--tls-cert", leaf, "--http-redirect", &busy, "."],
        &["--require-signature", "nothing.pub", "."],
        &["--hsts", "."],
    ];
    for case in cases {
        let has_address = case.contains(&"-l");
        let port: &[&str] = if has_address { &[] } else { &["-p", "0"] };
        let arguments = || port.iter().chain(*case);
        let start = gannet_in(&folder, arguments());
        assert!(matches!(start.status, Some(1 | 2)), "{case:?}: {start:?}");
        assert!(start.err.starts_with("gannet: "), "{case:?}: {}", start.err);
        assert!(!start.err.contains("os error"), "{case:?}: {}", start.err);
        let check = gannet_in(&folder, arguments().chain(&["--check-config"]));
        same(&check.err, &start.err);
        assert_eq!((check.status, check.text()), (start.status, ""), "{case:?}");
    }
}

/// Makes a socket that nobody listens on.
fn make_stale(path: &Path) {
    drop(UnixListener::bind(path).expect("a new name"));
    // A process that another test starts has it, too, until it runs its own program.
    until("nobody listens", || UnixStream::connect(path).is_err());
}

/// A check leaves nothing behind: no log file, no socket.
#[test]
fn a_check_leaves_nothing_behind() {
    let folder = Folder::site();
    let before: Vec<_> = folder.files();
    let socket = folder.join("socket");
    make_stale(&socket);
    let listen = format!("unix:{}", socket.display());
    let flags = [
        "--log-file",
        "log",
        "-l",
        &listen,
        "-p",
        "0",
        "--check-config",
        ".",
    ];
    let ended = gannet_in(&folder, flags).success();
    let log = "note     confined workers could open 'log', as anything below";
    assert!(ended.text().starts_with(log), "{}", ended.text());
    assert!(ended.text().ends_with("\nthe configuration is valid\n"));
    let kind = fs::symlink_metadata(&socket)
        .expect("the stale one")
        .file_type();
    assert!(kind.is_socket());
    fs::remove_file(&socket).expect("the stale one");
    assert_eq!(folder.files(), before);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("exists").permissions().mode() & 0o7777
}

/// A socket has the requested mode, and a port can be served beside it.
#[test]
fn unix_sockets_have_a_mode_and_stand_beside_a_port() {
    let folder = Folder::site();
    on_both_engines(|engine| {
        let socket = folder.join(engine.name());
        let listen = format!("unix:{},mode=0620", socket.display());
        let mut command = command();
        command
            .args(["--engine", engine.name(), "-p", "0", "-l", &listen])
            .arg(folder.path());
        let server = Gannet::start(&mut command);
        assert_eq!(server.urls().len(), 2, "{:?}", server.urls());
        assert_eq!(mode(&socket), 0o620);
        Client::unix(&socket).get("/").expect(200);
        get(&server, "/").expect(200);
        server.stop().success();
        assert!(!socket.exists());
    });
}

/// A socket has the requested group, also by number.
#[test]
fn unix_sockets_have_a_group() {
    let folder = Folder::site();
    let own = fs::metadata(folder.path()).expect("exists");
    // Root may assign any group.
    let group = match own.uid() {
        0 => 54_321,
        _ => own.gid(),
    };
    on_both_engines(|engine| {
        let socket = folder.join(engine.name());
        let listen = format!("unix:{},mode=0660,group={group}", socket.display());
        let mut command = command();
        command.args(["--engine", engine.name(), "-p", "0", "-l", &listen]);
        let _server = Gannet::start(command.arg(folder.path()));
        let made = fs::metadata(&socket).expect("exists");
        assert_eq!((made.gid(), mode(&socket)), (group, 0o660));
    });
}

/// What a running server has is no mistake of its own configuration: it hands that over.
#[test]
fn a_configuration_can_be_checked_while_it_is_served() {
    let folder = Folder::site();
    let socket = folder.join("socket");
    let free = [(); 2].map(|()| FreePort::new());
    let ports = free.each_ref().map(FreePort::address);
    let text = format!(
        "listen = [\"{}\", \"unix:{},mode=0620\"]\nmetrics = \"{}\"\n",
        ports[0],
        socket.display(),
        ports[1]
    );
    let file = folder.write("gannet.toml", text);
    let file = file.to_str().expect("UTF-8");
    let check = || gannet_in(&folder, ["--config", file, "--check-config", "."]);
    let valid = "the configuration is valid\n";
    assert_eq!(check().success().text(), valid);
    let server = Gannet::start(command().args(["--config", file]).arg(folder.path()));
    let by = format!(" (by gannet, process {})", server.pid());
    let note = |address: &str, by: &str| {
        format!(
            "note     '{address}' is in use{by}: a reload takes it over, a start needs it free\n"
        )
    };
    let unix = note(&format!("unix:{}", socket.display()), "");
    let tcp = ports.map(|port| note(&port.to_string(), &by));
    let checked = check().success();
    assert_eq!(checked.text(), format!("{}{unix}{}{valid}", tcp[0], tcp[1]));
    assert_eq!(mode(&socket), 0o620);
    Client::unix(&socket).get("/about").expect(200);
    server.stop().success();
    // What another program has is one.
    let _other = TcpListener::bind(ports[1]).expect("free");
    let refused = check();
    assert!(
        refused.err.contains("address already in use"),
        "{}",
        refused.err
    );
    assert_eq!(refused.status, Some(1));
}

/// In the environment, commas separate addresses, except before options of a socket.
#[test]
fn options_of_a_unix_socket_may_come_from_the_environment() {
    let folder = Folder::site();
    let socket = folder.join("socket");
    let listen = format!("127.0.0.1:0,unix:{},mode=0600", socket.display());
    let server = Gannet::start(command().env("GANNET_LISTEN", listen).arg(folder.path()));
    assert_eq!((server.urls().len(), mode(&socket)), (2, 0o600));
}

/// The socket of a killed server is replaced while clients connect: they are refused or served, but
/// the file always exists.
#[test]
fn a_stale_socket_is_replaced_in_one_step() {
    let folder = Folder::site();
    let socket = folder.join("socket");
    let listen = format!("unix:{}", socket.display());
    make_stale(&socket);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look = || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(socket.symlink_metadata().is_ok(), "nothing was there");
            }
        };
        let looking = scope.spawn(look);
        let mut command = command();
        let server = Gannet::start(command.args(["-l", &listen]).arg(folder.path()));
        Client::unix(&socket).get("/").expect(200);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        looking.join().expect("it was always there");
        server.stop().success();
    });
}

/// With a redirect from HTTP to HTTPS, an unknown host is refused as elsewhere.
#[test]
fn a_redirect_is_for_known_hosts() {
    let folder = Folder::site();
    let authority = Authority::new();
    let leaf = authority.issue("leaf.pem", KeyKind::P256, &["a.example"]);
    let leaf = leaf.to_str().expect("UTF-8");
    on_both_engines(|engine| {
        let check = |unknown: &str, status: u16| {
            let site = format!("a.example={}", folder.path().display());
            let mut command = command();
            command
                .args(["--engine", engine.name(), "-p", "0", "--tls-cert", leaf])
                .args(["--http-redirect", "127.0.0.1:0", "--unknown-host", unknown])
                .args(["--site", &site]);
            let server = Gannet::start(&mut command);
            let clear = server
                .urls()
                .iter()
                .find_map(|url| url.strip_prefix("http://"));
            let clear = clear.expect("printed at start").trim_end_matches('/');
            let ask = |host: &str| {
                let mut client = Client::connect(clear.parse().expect("an address"));
                client.send(format!("GET /x HTTP/1.1\r\nhost: {host}\r\n\r\n"));
                client.response()
            };
            let known = ask("a.example").expect(301);
            assert_eq!(known.field("location"), Some("https://a.example/x"));
            assert_eq!(ask("evil.example").expect(status).field("location"), None);
        };
        check("404", 404);
        check("421", 421);
        // There is no site for other hosts.
        check("default", 421);
    });
}

/// A rotated log file, and a format with the host.
#[test]
fn the_host_is_in_the_log() {
    let site = Folder::site();
    let log = site.join("log");
    let flags = [
        "--log",
        "vcombined",
        "--log-file",
        log.to_str().expect("UTF-8"),
    ];
    let server = Gannet::serve(site.path(), &flags);
    let line = server
        .start_lines()
        .iter()
        .find(|line| line.starts_with("log "));
    let expect = format!("log      {} (vcombined)", log.display());
    assert_eq!(line.map(String::as_str), Some(expect.as_str()));
    ask(&server, "GET", "/about", &[]).expect(200);
    server.stop().success();
    let text = fs::read_to_string(&log).expect("written");
    assert!(text.starts_with("test:80 127.0.0.1 - - ["), "{text}");
    assert!(
        text.ends_with("\"\n") && text.contains("\"GET /about HTTP/1.1\" 200 "),
        "{text}"
    );
}

/// For a download that its client aborts, the log has the bytes sent, not those requested.
#[test]
fn the_log_has_the_bytes_of_a_download_that_was_left() {
    const LEN: usize = 60 << 20;
    on_both_engines(|engine| {
        let site = Folder::site();
        site.write("long.bin", vec![7; LEN]);
        let log = site.join("log");
        let flags = ["--log", "json", "--log-file", log.to_str().expect("UTF-8")];
        let server = engine.serve(site.path(), &flags);
        let mut client = Client::slow(&server);
        client.send("GET /long.bin HTTP/1.1\r\nhost: a\r\n\r\n");
        client.head();
        client.reset();
        let mut streams = Peer::slow(&server, &[]);
        let stream = streams.ask("GET", "/long.bin", &[]);
        while streams.so_far_len(stream) == 0 {
            streams.step();
        }
        drop(streams);
        server.stop().success();
        let text = fs::read_to_string(&log).expect("written");
        assert_eq!(text.matches("\"whole\":false").count(), 2, "{text}");
        for line in text.lines() {
            let (_, rest) = line.split_once("\"body_bytes\":").expect("a key");
            let bytes = rest.split(',').next().expect("a value");
            let bytes: usize = bytes.parse().expect("a number");
            assert!(0 < bytes && bytes < LEN / 2, "{line}");
        }
    });
}

/// The summary has the engine's details.
#[test]
fn the_summary_names_what_the_engine_uses() {
    let site = Folder::site();
    let mut server = Gannet::serve(site.path(), &["--engine", "epoll"]);
    let engine: Vec<_> = server
        .start_lines()
        .iter()
        .filter(|line| line.starts_with("engine"))
        .cloned()
        .collect();
    assert!(
        engine.len() == 1 && engine[0].starts_with("engine   epoll, "),
        "{engine:?}"
    );
    assert!(engine[0].len() < 40, "{engine:?}");
    server.signal(Signal::USR1);
    let line = server.next_error_line().expect("a summary");
    assert!(line.starts_with("engine: epoll: edge-triggered"), "{line}");
}

/// A folder that gannet's user may not search is named, with the missing permission.
#[test]
fn a_closed_folder_is_named_with_what_it_lacks() {
    let folder = Folder::new();
    folder.write("outer/site/index.html", "x");
    let (outer, site) = (folder.join("outer"), folder.join("outer/site"));
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    };
    let ask = || run(command_of_nobody().args(["-p", "0"]).arg(&site));
    let user = match rustix::process::geteuid() {
        user if user.is_root() => 65_534,
        user => user.as_raw(),
    };
    for (closed, doing) in [(&site, "open directory"), (&outer, "serve")] {
        set(closed, 0o600);
        let ended = ask();
        set(closed, 0o755);
        let expect = format!(
            "gannet: cannot {doing} '{}': permission denied (EACCES)\n\
             help: user {}, as which gannet runs, cannot enter '{}': it needs execute permission on it\n",
            site.display(),
            user,
            closed.display()
        );
        ended.failure(1, &expect);
    }
}

/// Flags that an archive would ignore are rejected, in whichever layer they are given.
#[test]
fn a_flag_without_effect_is_refused() {
    let folder = Folder::site();
    let archive = folder.join("site.gannet");
    gannet_in(&folder, ["pack", "docs", "-q", "-o", "site.gannet"]).success();
    let flags: [&[&str]; 5] = [
        &["--cors", "any"],
        &["--no-clean-urls"],
        &["--index", "a.html"],
        &["--type", "md=text/plain"],
        &["--trailing-slash", "never"],
    ];
    for flag in flags {
        let ended = gannet_in(&folder, ["-p", "0", "site.gannet"].iter().chain(flag));
        let expect = format!(
            "gannet: {} has no effect on an archive: it is decided when packing\n\
             help: give it to 'gannet pack', or leave it out\n",
            flag[0]
        );
        // Not a mistake for good: another content may be there soon.
        ended.failure(1, &expect);
    }
    let mut command = command();
    command
        .env("GANNET_NO_LISTING", "true")
        .args(["-p", "0"])
        .arg(&archive);
    run(&mut command).failure(
        1,
        "gannet: GANNET_NO_LISTING has no effect on an archive: it is decided when packing\nhelp: \
         leave it out\n",
    );
    // With a directory as well, the flag has an effect; the default is always accepted.
    let both = [
        "-p",
        "0",
        "--no-listing",
        "--site",
        "a.example=site.gannet",
        ".",
    ];
    let check = both.iter().chain(&["--check-config"]);
    gannet_in(&folder, check).success();
    gannet_in(
        &folder,
        ["-p", "0", "--cors", "off", "--check-config", "site.gannet"],
    )
    .success();
}
