//! Logs, metrics and addresses; and a test for each bug that was found.

use std::fs;
use std::net::TcpStream;
use std::path::Path;

use gannet_testkit::client::{Client, ask, get, head, metrics};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::{threads, until};
use gannet_testkit::{Folder, Gannet, Signal, command, left_out};

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Serves with a log file.
fn serve_logged(engine: Engine, site: &Folder, format: &str, log: &Path) -> Gannet {
    let log = log.to_str().expect("UTF-8");
    // One worker, since the lines of several are unordered.
    engine.serve(
        site.path(),
        &["--log", format, "--log-file", log, "--workers", "1"],
    )
}

#[test]
fn the_combined_log() {
    let site = Folder::site();
    let logs = Folder::new();
    on_both_engines(|engine| {
        let path = logs.join(engine.name());
        let server = serve_logged(engine, &site, "combined", &path);
        let about = "<!doctype html><title>about</title>\n".len();
        let fields = ["referer: http://a/", "user-agent: x\"y\\z\t\u{e9}"];
        ask(&server, "GET", "/about?q=%22", &fields).expect(200);
        ask(&server, "HEAD", "/missing", &[]).expect(404);
        let mut client = Client::new(&server);
        client.send("BAD\r\n\r\n");
        client.response().expect(400);
        drop(client);
        until("three lines", || lines(&path).len() == 3);
        let lines = lines(&path);
        let date_end = lines[0].find("] ").expect("a date");
        assert!(lines[0].starts_with("127.0.0.1 - - ["), "{}", lines[0]);
        assert!(lines[0][..date_end].ends_with(" +0000"), "{}", lines[0]);
        let rest = format!(
            "\"GET /about?q=%22 HTTP/1.1\" 200 {about} \"http://a/\" \
             \"x\\x22y\\x5Cz\\x09\\xC3\\xA9\""
        );
        assert_eq!(&lines[0][date_end + 2..], rest);
        assert!(
            lines[1].contains("\"HEAD /missing HTTP/1.1\" 404 0 \"-\" \"-\""),
            "{}",
            lines[1]
        );
        assert!(lines[2].contains(" 400 "), "{}", lines[2]);
    });
}

#[test]
fn the_json_log() {
    let site = Folder::site();
    let logs = Folder::new();
    on_both_engines(|engine| {
        let path = logs.join(engine.name());
        let server = serve_logged(engine, &site, "json", &path);
        let mut client = Client::new(&server);
        client
            .request("GET", "/about", &["user-agent: \"q\"\\"])
            .expect(200);
        client.get("/about").expect(200);
        until("two lines", || lines(&path).len() == 2);
        let peer = client.local_address();
        for line in lines(&path) {
            assert!(line.starts_with("{\"time\":\"2"), "{line}");
            for part in [
                format!("\"peer\":\"{peer}\"").as_str(),
                "\"method\":\"GET\",\"target\":\"/about\",\"host\":\"test\"",
                "\"status\":200,",
                "\"whole\":true}",
            ] {
                assert!(line.contains(part), "{line} has no {part}");
            }
        }
        assert!(lines(&path)[0].contains("\"user_agent\":\"\\\"q\\\"\\\\\""));
    });
}

#[test]
fn a_log_file_is_opened_anew_on_sighup() {
    let site = Folder::site();
    let logs = Folder::new();
    on_both_engines(|engine| {
        let path = logs.join(engine.name());
        let rotated = logs.join(format!("{}.1", engine.name()));
        let server = serve_logged(engine, &site, "combined", &path);
        get(&server, "/about").expect(200);
        until("the first line", || lines(&path).len() == 1);
        fs::rename(&path, &rotated).expect("renamed");
        get(&server, "/").expect(200);
        until("the old file is still written", || {
            lines(&rotated).len() == 2
        });
        server.signal(Signal::HUP);
        until("the new file exists", || path.exists());
        get(&server, "/docs/").expect(200);
        until("the new file is written", || lines(&path).len() == 1);
        assert_eq!(lines(&rotated).len(), 2);
        assert!(lines(&path)[0].contains("GET /docs/ "));
        server.stop().success();
    });
}

#[test]
fn a_full_log_does_not_hurt() {
    if !Path::new("/dev/full").exists() {
        left_out("/dev/full", "it is not there");
        return;
    }
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = serve_logged(engine, &site, "combined", Path::new("/dev/full"));
        let mut client = Client::new(&server);
        for _ in 0..50 {
            client.send(head("GET", "/about", &[]).repeat(100));
            for _ in 0..100 {
                client.response().expect(200);
            }
        }
        let ended = server.stop();
        assert_eq!(ended.status, Some(0), "{}", ended.err);
        // One message, not one per line.
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        assert!(
            ended.err.contains("no space") || ended.err.contains("No space"),
            "{}",
            ended.err
        );
    });
}

#[test]
fn a_blocked_log_does_not_hurt() {
    let site = Folder::site();
    let logs = Folder::new();
    on_both_engines(|engine| {
        // A FIFO that is open for reading but never read.
        let path = logs.join(format!("fifo-{}", engine.name()));
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a FIFO");
        let _reader = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("opened");
        let server = serve_logged(engine, &site, "combined", &path);
        let mut client = Client::new(&server);
        // Several times the capacity of the pipe and the queue.
        for _ in 0..60 {
            client.send(head("GET", "/about", &[]).repeat(100));
            for _ in 0..100 {
                client.response().expect(200);
            }
        }
        server.signal(Signal::TERM);
        client.closes();
        assert_eq!(server.wait().status, Some(0));
    });
}

#[test]
fn metrics_and_health() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--metrics", "127.0.0.1:0"]);
        get(&server, "/").expect(200);
        get(&server, "/about").expect(200);
        get(&server, "/missing").expect(404);
        let address = server.metrics().expect("metrics are enabled");
        let ask = |target: &str| {
            let mut client = Client::connect(address);
            client.get(target)
        };
        assert_eq!(ask("/health").expect(200).text(), "ok\n");
        let metrics = metrics(&server);
        let content_type = metrics.field("content-type").expect("it has one");
        assert!(
            content_type.starts_with("text/plain; version=0.0.4"),
            "{content_type}"
        );
        for line in [
            "gannet_connections_total 3",
            "# TYPE gannet_connections_peak gauge",
            "gannet_responses_total{status=\"200\"} 2",
            "gannet_responses_total{status=\"404\"} 1",
            "# TYPE gannet_connections gauge",
        ] {
            assert!(
                metrics.text().lines().any(|l| l == line),
                "{line} in {}",
                metrics.text()
            );
        }
        ask("/").expect(404);
        // A silent client does not delay others.
        let _silent = TcpStream::connect(address).expect("it listens");
        assert_eq!(ask("/health").expect(200).text(), "ok\n");
        // Metrics are not on the served address.
        get(&server, "/metrics").expect(404);
        server.stop().success();
    });
}

#[test]
fn a_summary_on_sigusr1() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let mut server = engine.serve(site.path(), &[]);
        get(&server, "/").expect(200);
        get(&server, "/missing").expect(404);
        server.signal(Signal::USR1);
        // Before the next signal, which might be handled first.
        let requests = loop {
            let line = server.next_error_line().expect("a summary");
            if line.starts_with("requests: ") {
                break line;
            }
        };
        let expect = "requests: 2, 200: 1, 404: 1";
        assert!(requests.starts_with(expect), "{requests}");
        assert_eq!(server.stop().status, Some(0));
    });
}

#[test]
fn a_unix_socket() {
    let site = Folder::site();
    let sockets = Folder::new();
    on_both_engines(|engine| {
        let path = sockets.join(engine.name());
        let listen = format!("unix:{}", path.display());
        let serve = || {
            let mut command = command();
            command
                .args(["--engine", engine.name(), "--listen", &listen])
                .arg(site.path());
            Gannet::start(&mut command)
        };
        let server = serve();
        assert_eq!(server.urls(), [listen.as_str()]);
        let mut client = Client::unix(&path);
        client.get("/about").expect(200);
        client.get("/").expect(200);
        drop(client);
        server.stop().success();
        assert!(!path.exists(), "the socket's file stays behind");

        // The socket file of a killed server is replaced.
        let server = serve();
        server.signal(Signal::KILL);
        server.wait();
        assert!(path.exists());
        let _server = serve();
        Client::unix(&path).get("/").expect(200);
    });
}

#[test]
fn ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        left_out("IPv6", "[::1] cannot be bound");
        return;
    }
    let site = Folder::site();
    on_both_engines(|engine| {
        let mut command = command();
        command
            .args(["--engine", engine.name(), "--listen", "[::1]:0"])
            .arg(site.path());
        let server = Gannet::start(&mut command);
        assert!(
            server.urls()[0].starts_with("http://[::1]:"),
            "{:?}",
            server.urls()
        );
        get(&server, "/").expect(200);
    });
}

#[test]
fn several_addresses() {
    let site = Folder::site();
    let sockets = Folder::new();
    on_both_engines(|engine| {
        let path = sockets.join(engine.name());
        let unix = format!("unix:{}", path.display());
        let mut command = command();
        command
            .args(["--engine", engine.name(), "--listen", "127.0.0.1:0"])
            .args(["--listen", "127.0.0.1:0", "--listen", &unix])
            .arg(site.path());
        let server = Gannet::start(&mut command);
        assert_eq!(server.urls().len(), 3);
        for url in &server.urls()[..2] {
            let address = url
                .strip_prefix("http://")
                .and_then(|url| url.strip_suffix('/'));
            let address = address.and_then(|address| address.parse().ok());
            let mut client = Client::connect(address.expect("a TCP address"));
            client.get("/about").expect(200);
        }
        Client::unix(&path).get("/").expect(200);
        server.stop().success();
    });
}

#[test]
fn no_kernel_threads_work_for_hot_requests() {
    let site = Folder::site();
    site.write("large.bin", vec![b'x'; 4 << 20]);
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        for _ in 0..20 {
            client.get("/about").expect(200);
            client.get("/large.bin").expect(200);
        }
        let names = threads(&server);
        assert!(
            !names.iter().any(|name| name.starts_with("iou-wrk")),
            "{names:?}"
        );
    });
}
