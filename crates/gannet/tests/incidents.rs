//! What goes wrong for a peer and an operator has to know of is said on standard error, at a bounded
//! rate.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use gannet_testkit::client::Client;
use gannet_testkit::configuration::Configuration;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::{Folder, Gannet, command, command_of_nobody};

/// A site that everybody may read, but for what the tests forbid.
fn site() -> Folder {
    let folder = Folder::new();
    folder.write("index.html", "hello");
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), everybody).expect("ours");
    folder
}

/// The first lines of messages on standard error, and those that tell the next step.
fn messages(err: &str) -> (Vec<&str>, Vec<&str>) {
    err.lines().partition(|line| line.starts_with("gannet: "))
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_cause() {
    on_both_engines(|engine| {
        let folder = site();
        for name in ["unread.html", "closed/page.html"] {
            folder.write(name, "secret");
        }
        let nobody = fs::Permissions::from_mode(0o000);
        for name in ["unread.html", "closed"] {
            fs::set_permissions(folder.join(name), nobody.clone()).expect("ours");
        }
        symlink("/etc/hostname", folder.join("out.txt")).expect("ours");
        symlink("loop.txt", folder.join("loop.txt")).expect("ours");
        let mut command = command_of_nobody();
        command.args(["serve", "--engine", engine.name(), "--port", "0"]);
        let server = Gannet::start(command.arg(folder.path()));
        let mut client = Client::new(&server);
        client.get("/unread.html").expect(403);
        client.get("/closed/page.html").expect(403);
        client.get("/out.txt").expect(404);
        client.get("/loop.txt").expect(404);
        client.get("/missing.html").expect(404);
        let ended = server.stop();
        let (told, help) = messages(&ended.err);
        let denied = "permission denied (EACCES)";
        let expect = [
            format!("gannet: cannot read 'unread.html' (host 'test'): {denied}"),
            format!("gannet: cannot read 'closed/page.html' (host 'test'): {denied}"),
            "gannet: cannot serve 'out.txt' (host 'test'): a symbolic link leads out of the site"
                .into(),
            "gannet: cannot serve 'loop.txt' (host 'test'): its symbolic links form a loop".into(),
        ];
        assert_eq!(told, expect);
        let user = "help: user 65534, as which gannet runs, has to have the right to read it";
        if rustix::process::geteuid().is_root() {
            assert!(help[0].starts_with(user), "{}", help[0]);
        }
        // Once for both of a kind.
        assert_eq!(help.len(), 2);
        // Only the tests' own user can remove what is in it.
        fs::set_permissions(folder.join("closed"), fs::Permissions::from_mode(0o755))
            .expect("ours");
    });
}

/// What is beside a file and cannot be read leaves the file in service; without a word, nobody would know
/// why it is sent as it is.
#[test]
fn what_is_beside_a_file_and_cannot_be_read_is_named() {
    on_both_engines(|engine| {
        let folder = site();
        for name in ["page.html", "linked.html", "photo.jpg"] {
            folder.write(name, "as it is ".repeat(100));
        }
        let nobody = fs::Permissions::from_mode(0o000);
        for name in ["page.html.br", "photo.avif", "only.txt.gz"] {
            folder.write(name, "shorter");
            fs::set_permissions(folder.join(name), nobody.clone()).expect("ours");
        }
        symlink("/etc/hostname", folder.join("linked.html.gz")).expect("ours");
        let mut command = command_of_nobody();
        command.args([
            "serve",
            "--compressed-only",
            "--compress=stored",
            "--port",
            "0",
        ]);
        command.args(["--engine", engine.name()]);
        let server = Gannet::start(command.arg(folder.path()));
        let mut client = Client::new(&server);
        let accept = ["accept-encoding: br, gzip", "accept: image/avif"];
        for target in ["/page", "/linked", "/photo.jpg"] {
            let answer = client.request("GET", target, &accept);
            assert_eq!(answer.expect(200).body.len(), 900, "{target}");
        }
        client.request("GET", "/only.txt", &accept).expect(403);
        let err = server.stop().err;
        let (told, help) = messages(&err);
        let unread = |name| {
            format!("gannet: cannot read '{name}' (host 'test'): permission denied (EACCES)")
        };
        let expect = [
            unread("page.html.br"),
            "gannet: cannot serve 'linked.html.gz' (host 'test'): a symbolic link leads out of the site"
                .into(),
            unread("photo.avif"),
            unread("only.txt.gz"),
        ];
        assert_eq!(told, expect);
        assert_eq!(help.len(), 2, "once for both of a kind: {err}");
    });
}

/// A peer chooses the host, also where one site answers for all: that does not make another object of a path.
#[test]
fn a_file_is_named_once_by_whatever_host() {
    on_both_engines(|engine| {
        let folder = site();
        for name in ["a.txt", "b.txt"] {
            symlink("/etc/hostname", folder.join(name)).expect("ours");
        }
        let server = engine.serve(folder.path(), &["--workers", "2"]);
        for host in 0..20 {
            let mut client = Client::new(&server);
            client.send(format!("GET /a.txt HTTP/1.1\r\nHost: h{host}\r\n\r\n"));
            client.response().expect(404);
        }
        let mut client = Client::new(&server);
        client.get("/b.txt").expect(404);
        let err = server.stop().err;
        let (told, _) = messages(&err);
        assert_eq!(told.len(), 3, "{err}");
        let expect = "gannet: cannot serve 'a.txt' (host 'h0'): ";
        assert!(told[0].starts_with(expect), "{err}");
        assert!(
            told[1].starts_with("gannet: cannot serve 'b.txt' "),
            "{err}"
        );
        assert!(told[2].starts_with("gannet: and 19 more "), "{err}");
    });
}

/// The same path of two sites is two.
#[test]
fn sites_have_files_of_their_own() {
    on_both_engines(|engine| {
        let folder = site();
        for host in ["a.example", "b.example"] {
            folder.write(format!("{host}/index.html"), host);
            symlink("/etc/hostname", folder.join(host).join("a.txt")).expect("ours");
        }
        let server = engine.serve(folder.path(), &["--hosts", "--workers", "1"]);
        let mut client = Client::new(&server);
        for host in ["a.example", "b.example", "a.example"] {
            client.send(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.response().expect(404);
        }
        let err = server.stop().err;
        let (told, _) = messages(&err);
        assert_eq!(told.len(), 3, "{err}");
        for (line, host) in told.iter().zip(["a.example", "b.example"]) {
            let expect = format!("gannet: cannot serve 'a.txt' (host '{host}'): ");
            assert!(line.starts_with(&expect), "{err}");
        }
    });
}

/// However often a peer asks, and for whatever, there are a few short lines.
#[test]
fn a_flood_of_requests_is_a_few_lines_and_their_number() {
    const REQUESTS: usize = 500;
    on_both_engines(|engine| {
        let folder = site();
        symlink("/etc", folder.join("out")).expect("ours");
        let server = engine.serve(folder.path(), &["--workers", "1"]);
        let mut client = Client::new(&server);
        let long = format!("/{}", "x".repeat(200)).repeat(5);
        for number in 0..REQUESTS {
            client.get(&format!("/out/{number}{long}")).expect(404);
        }
        let err = server.stop().err;
        let (told, _) = messages(&err);
        assert_eq!(told.len(), 11, "{err}");
        assert!(told[0].starts_with("gannet: cannot serve 'out/"), "{err}");
        assert!(told.iter().all(|line| line.len() < 600), "{err}");
        let others = REQUESTS - 10;
        let expect = format!(
            "gannet: and {others} more in the last minute: requests for links that lead out of the \
             site"
        );
        assert_eq!(told[10], expect);
    });
}

/// A connection that is closed without an answer has its reason, with the address as the log has it.
#[test]
fn a_connection_that_is_turned_away_has_a_reason() {
    on_both_engines(|engine| {
        let check = |flags: &[&str], sent: &str, expect: &str| {
            let folder = site();
            let mut command = command();
            command.args(["serve", "--engine", engine.name()]);
            let server = Gannet::start(command.args(flags).arg(folder.path()));
            let address = server.address().to_string();
            let mut client = Client::new(&server);
            let _ = client.try_send(sent);
            client.ends();
            let err = server.stop().err;
            let (told, help) = messages(&err);
            let expect = expect.replace("ADDRESS", &address);
            assert_eq!(told, [format!("gannet: {expect}")], "{err}");
            assert!(help[0].starts_with("help: "), "{err}");
        };
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let proxied = ["--listen", "127.0.0.1:0,proxy", "--trust"];
        check(
            &[&proxied[..], &["192.0.2.1"]].concat(),
            "PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n",
            "127.0.0.1 is not in --trust: its connection to ADDRESS was closed",
        );
        check(
            &[&proxied[..], &["loopback"]].concat(),
            request,
            "127.0.0.1 sent no header of the PROXY protocol: its connection to ADDRESS was closed",
        );
        let denied = "is not allowed to connect: its connection was closed";
        let deny = ["--port", "0", "--deny", "127.0.0.0/8"];
        check(&deny, request, &format!("127.0.0.1 {denied}"));
        let json: &[&str] = &["--log", "json", "--log-file", "/dev/null"];
        let masked = Configuration::new("log.mask = true");
        for log in [json, &["--log", "off"]] {
            let flags = [&deny[..], &masked.flags(), log].concat();
            check(&flags, request, &format!("127.0.0.0 {denied}"));
            let flags = [&proxied[..], &["192.0.2.1"], &masked.flags(), log].concat();
            let expect = "127.0.0.0 is not in --trust: its connection to ADDRESS was closed";
            check(&flags, request, expect);
        }
    });
}

/// Whoever opens more connections than `client.connections` allows is told of once; clients behind one
/// address may be many.
#[test]
fn one_with_too_many_connections_is_one_line_and_their_number() {
    const FURTHER: usize = 30;
    on_both_engines(|engine| {
        let folder = site();
        let check = |more: &str, name: &str| {
            let config = Configuration::new(&format!("client.connections = 1\n{more}"));
            let flags = [&["--workers", "1"], &config.flags()[..]].concat();
            let server = engine.serve(folder.path(), &flags);
            let mut first = Client::new(&server);
            first.get("/").expect(200);
            for _ in 0..FURTHER {
                Client::new(&server).ends();
            }
            first.get("/").expect(200);
            let others = FURTHER - 1;
            let expect = format!(
                "gannet: {name} has as many connections as one client may: another one was closed\n\
                 help: client.connections is the limit; if it is a proxy of many clients, name it with \
                 --trust\n\
                 gannet: and {others} more in the last minute: connections by clients that have too \
                 many\n"
            );
            assert_eq!(server.stop().err, expect);
        };
        check("", "127.0.0.1");
        check("log.mask = true", "127.0.0.0");
    });
}

/// What `--deny` is for does not fill the journal, nor does what is asked for again and again.
#[test]
fn those_who_are_denied_are_one_line_and_their_number() {
    const CLIENTS: usize = 30;
    on_both_engines(|engine| {
        let folder = site();
        let server = engine.serve(folder.path(), &["--deny", "loopback", "--workers", "1"]);
        for _ in 0..CLIENTS {
            let mut client = Client::new(&server);
            let _ = client.try_send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            client.ends();
        }
        let others = CLIENTS - 1;
        let expect = format!(
            "gannet: 127.0.0.1 is not allowed to connect: its connection was closed\n\
             help: --allow and --deny say who may connect\n\
             gannet: and {others} more in the last minute: connections and packets of clients that are not allowed\n"
        );
        assert_eq!(server.stop().err, expect);
    });
}
