//! Upgrades: a new process takes the place of a running server, and no client notices.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gannet_testkit::client::{Client, head};
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::h3::{control, request};
use gannet_testkit::process::{of_threads, until};
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, connection};
use gannet_testkit::{DEADLINE, Folder, FreePort, Gannet, Signal, command, left_out, program};

mod successors;

use successors::{
    LONG, Load, MIDDLE, Server, has_ended, kill, newcomers, regulars, site, text, until_ended,
};

/// How many upgrades in a row: `cargo xtask upgrade` asks for more.
fn rounds(usual: u32) -> u32 {
    let asked = std::env::var("GANNET_UPGRADES").ok();
    asked.map_or(usual, |count| count.parse().expect("a number"))
}

fn serve(engine: Engine, site: &Path, flags: &[&str]) -> Server {
    Server::new(engine.serve(site, &[&["--workers", "2"], flags].concat()))
}

/// HTTP/1 in clear text: newcomers, persistent connections and a download see nothing of it, again and
/// again; a process that is replaced ends by itself.
#[test]
fn no_client_notices_an_upgrade() {
    let site = site();
    on_both_engines(|engine| {
        let mut server = serve(engine, site.path(), &["--metrics", "127.0.0.1:0"]);
        let address = server.first.address();
        let metrics = server.first.metrics().expect("served");
        let mut load = Load::new();
        newcomers(&mut load, address);
        newcomers(&mut load, address);
        regulars(&mut load, address);
        for _ in 0..rounds(3) {
            let old = server.pid;
            let mut slow = Client::connect(address);
            slow.send(head("GET", "/long.bin", &[]));
            slow.head().expect(200);
            load.goes_on();
            server.renew(Signal::USR2);
            load.goes_on();
            Client::connect(metrics).get("/health").expect(200);
            assert!(!has_ended(old), "it still has a download");
            assert_pattern(&slow.take(LONG as u64), 5);
            until_ended(old);
        }
        load.end();
        server.stop();
    });
}

/// The same over TLS: HTTP/1.1, HTTP/2 and HTTP/3. Old processes wait for clients that have gone without a
/// word, so that several are there at a time.
#[test]
fn no_client_notices_an_upgrade_over_tls() {
    let site = site();
    let authority = Authority::new();
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        let flags = ["--tls-cert", text(&certificate)];
        let mut server = serve(engine, site.path(), &flags);
        let address = server.first.address();
        let mut load = Load::new();
        let h1 = authority.client(Abilities::default());
        let h2 = authority.client(Abilities {
            alpn: vec![b"h2".to_vec()],
            ..Abilities::default()
        });
        let config = Arc::clone(&h1);
        load.add(move || {
            let mut client = Client::tls(address, connection(&config, "localhost"));
            let got = client.get("/middle.bin").expect(200);
            assert_pattern(&got.body, 6);
        });
        let config = Arc::clone(&h2);
        load.add(move || {
            let mut peer = Peer::tls(address, connection(&config, "localhost"));
            let got = peer.get("/middle.bin").expect(200);
            assert_eq!(got.body.len(), MIDDLE);
        });
        let trusted = authority.client(Abilities {
            alpn: vec![b"h3".to_vec()],
            ..Abilities::default()
        });
        load.add(move || {
            let mut quic = Quic::start(address, &trusted, "localhost");
            quic.shake();
            quic.open_uni(&control(&[]));
            let got = quic.get("/middle.bin");
            assert_eq!((got.status, got.body.len()), (200, MIDDLE));
        });
        for _ in 0..rounds(2) {
            let mut quic = Quic::begin(address, &authority);
            let long = quic.ask(&request("GET", "/long.bin", &[]));
            quic.until("the download has begun", |quic| {
                !quic.received(long).bytes.is_empty()
            });
            let mut peer = Peer::tls(address, connection(&h2, "localhost"));
            let stream = peer.ask("GET", "/long.bin", &[]);
            load.goes_on();
            server.renew(Signal::USR2);
            load.goes_on();
            // Datagrams of this connection now arrive at the new process.
            assert!(quic.answer(long).body == pattern(LONG, 5));
            assert!(peer.answer(stream).expect(200).body == pattern(LONG, 5));
        }
        load.end();
        server.stop();
    });
}

/// A link to the program, so that the program at its path can be replaced.
fn installed(folder: &Folder) -> PathBuf {
    let path = folder.join("gannet");
    symlink(program(), &path).expect("a link");
    path
}

/// A server whose program can be replaced: that is at the path, in the folder.
fn serve_installed(engine: Engine, site: &Path) -> (Folder, PathBuf, Server) {
    let folder = Folder::new();
    let path = installed(&folder);
    let arguments = ["--engine", engine.name(), "--port", "0", text(site)];
    let server = start_installed(&path, &arguments);
    (folder, path, server)
}

/// The program at this path, with these arguments.
fn start_installed(program: &Path, arguments: &[&str]) -> Server {
    let mut clean = Command::new(program);
    clean.current_dir("/").stdin(Stdio::null());
    for (name, value) in command().get_envs() {
        if value.is_none() {
            clean.env_remove(name);
        }
    }
    Server::new(Gannet::start(clean.args(arguments)))
}

/// Puts a script in the place of the program.
fn replace(path: &Path, script: &str, mode: u32) {
    let (text, new) = (path.with_extension("text"), path.with_extension("new"));
    fs::write(&text, script).expect("written");
    // By another process: a descriptor that could write to it would get into those that other tests start,
    // and the kernel would not execute it.
    let copied = Command::new("cp").arg(&text).arg(&new).status();
    assert!(copied.expect("started").success());
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).expect("ours");
    fs::rename(&new, path).expect("same folder");
}

/// A new program that is not there, does not start, or fails, leaves the old process serving; the next
/// attempt works.
#[test]
fn a_broken_program_changes_nothing() {
    let site = site();
    on_both_engines(|engine| {
        let (folder, path, mut server) = serve_installed(engine, site.path());
        let address = server.first.address();
        let told = |server: &mut Server, expect: &str| {
            server.first.signal(Signal::USR2);
            let line = server.first.next_error_line().expect("it runs");
            assert!(line.contains(expect), "{line}");
            assert!(line.starts_with("gannet: not upgraded, this process continues: "));
            Client::connect(address).get("/about").expect(200);
        };
        fs::remove_file(&path).expect("made");
        told(&mut server, "no such file");
        replace(&path, "not a program\n", 0o644);
        told(&mut server, "permission denied");
        for (end, how) in [
            ("exit 3", "exit status: 3"),
            ("kill -9 $$", "signal: 9 (SIGKILL)"),
            // It takes a while after the link has ended.
            (
                "eval \"exec $GANNET_PREDECESSOR>&-\"; seq 100000 | tail -n 1 >/dev/null; exit 4",
                "exit status: 4",
            ),
        ] {
            replace(&path, &format!("#!/bin/sh\n{end}\n"), 0o755);
            told(&mut server, &format!("the new process has ended ({how})"));
            let help = server.first.next_error_line().expect("it runs");
            assert!(
                help.starts_with("help: if there is no message from it"),
                "{help}"
            );
        }
        fs::remove_file(&path).expect("made");
        installed(&folder);
        server.renew(Signal::USR2);
        Client::connect(address).get("/about").expect(200);
        server.stop();
    });
}

/// Why a start fails is said by the new process, and that it has failed by the old one, each time.
#[test]
fn a_configuration_that_fails_is_told_with_the_reason() {
    let site = site();
    let folder = Folder::new();
    on_both_engines(|engine| {
        let file = folder.write(format!("{}.toml", engine.name()), "");
        let arguments = ["--engine", engine.name(), "--port", "0", "--config"];
        let arguments = [&arguments[..], &[text(&file), text(site.path())]].concat();
        let mut server = start_installed(&program(), &arguments);
        let address = server.first.address();
        // An address of documentation, which no machine has.
        fs::write(&file, "metrics = \"192.0.2.1:9\"\n").expect("written");
        for _ in 0..20 {
            server.first.signal(Signal::USR2);
            let mut reason = String::new();
            let line = loop {
                let line = server.first.next_error_line().expect("it runs");
                if line.starts_with("gannet: not upgraded") {
                    break line;
                }
                reason += &line;
            };
            assert!(reason.contains("192.0.2.1:9"), "{reason} {line}");
            assert!(line.ends_with("has ended (exit status: 1)"), "{line}");
            // The new process has said why, so nothing else is suspected.
            assert!(!reason.contains("if there is no message"), "{reason}");
        }
        Client::connect(address).get("/about").expect(200);
        server.stop();
    });
}

/// Replaces a server's program by one that never gets ready, and begins an upgrade to it; returns the new
/// process.
fn begin_stuck(server: &Server, folder: &Folder, path: &Path) -> u32 {
    let pid = folder.join("pid");
    let script = format!(
        "#!/bin/sh\necho $$ > {0}.part; mv {0}.part {0}\nexec sleep 1000\n",
        pid.display()
    );
    replace(path, &script, 0o755);
    kill(server.pid, Signal::USR2);
    until("the new process runs", || pid.exists());
    let text = fs::read_to_string(&pid).expect("written");
    text.trim().parse().expect("a number")
}

/// A second request during an upgrade is refused, and a stop during one ends both processes.
#[test]
fn one_upgrade_at_a_time_and_a_stop_ends_it() {
    let site = site();
    on_both_engines(|engine| {
        let (folder, path, mut server) = serve_installed(engine, site.path());
        let address = server.first.address();
        let new = begin_stuck(&server, &folder, &path);
        server.first.signal(Signal::USR2);
        let line = server.first.next_error_line().expect("it runs");
        assert!(line.ends_with("another upgrade is under way"), "{line}");
        Client::connect(address).get("/about").expect(200);
        kill(server.pid, Signal::TERM);
        until_ended(new);
        until_ended(server.pid);
    });
}

/// A server that is killed during an upgrade leaves nothing behind; one that is killed after it does not
/// take its successor with it.
#[test]
fn a_killed_server_takes_only_what_does_not_serve_with_it() {
    let site = site();
    on_both_engines(|engine| {
        let (folder, path, mut server) = serve_installed(engine, site.path());
        let address = server.first.address();
        let mut slow = Client::connect(address);
        slow.send(head("GET", "/long.bin", &[]));
        slow.head().expect(200);
        let old = server.pid;
        server.renew(Signal::USR2);
        let starter = starter(old);
        kill(old, Signal::KILL);
        until_ended(starter);
        // The wake-up for a connection may go to the listener of the server that is being taken down, and get
        // lost with it: the next connection wakes the other one.
        until("the new server answers", || is_answered(address));
        let new = begin_stuck(&server, &folder, &path);
        kill(server.pid, Signal::KILL);
        until_ended(new);
    });
}

/// Whether a server answers a new connection within a second.
fn is_answered(address: SocketAddr) -> bool {
    let mut socket = TcpStream::connect(address).expect("it listens");
    let patience = Some(Duration::from_secs(1));
    socket.set_read_timeout(patience).expect("a time");
    let request = b"GET /about HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    socket.write_all(request).expect("it is sent");
    let mut start = [0; 12];
    socket.read_exact(&mut start).is_ok() && start == *b"HTTP/1.1 200"
}

/// Whoever asks a server that was replaced learns which process to ask.
#[test]
fn a_server_that_was_replaced_names_its_successor() {
    let site = site();
    on_both_engines(|engine| {
        let mut server = serve(engine, site.path(), &[]);
        let mut slow = Client::connect(server.first.address());
        slow.send(head("GET", "/long.bin", &[]));
        slow.head().expect(200);
        server.renew(Signal::USR2);
        server.first.signal(Signal::USR2);
        let new = server.pid;
        let told = server.first.next_error_line().expect("it runs");
        let expect = format!("gannet: not upgraded: process {new} has taken the place of this one");
        assert!(told.starts_with(&expect), "{told}");
        let help = server.first.next_error_line().expect("it runs");
        assert_eq!(help, format!("help: send SIGUSR2 to process {new}"));
        assert_pattern(&slow.take(LONG as u64), 5);
        server.stop();
    });
}

/// A server that says nothing else says which process has taken its place.
#[test]
fn a_quiet_server_names_its_successor() {
    let site = site();
    on_both_engines(|engine| {
        let folder = Folder::new();
        let quiet = |is_quiet: bool| folder.write("gannet.toml", format!("quiet = {is_quiet}\n"));
        let config = quiet(false);
        let flags = ["--config", text(&config)];
        let mut server = serve(engine, site.path(), &flags);
        quiet(true);
        kill(server.pid, Signal::USR2);
        let line = server.first.next_line().expect("it runs");
        let pid = |line: &str| -> u32 {
            let rest = line.strip_prefix("process ").expect(line);
            let (pid, rest) = rest.split_once(' ').expect("words");
            assert!(rest.starts_with("serves now"), "{line}");
            pid.parse().expect("a process ID")
        };
        server.pid = pid(&line);
        kill(server.pid, Signal::USR2);
        server.pid = pid(&server.first.next_error_line().expect("it runs"));
        Client::connect(server.first.address())
            .get("/about")
            .expect(200);
        server.stop();
    });
}

/// The first child of a server.
fn starter(server: u32) -> u32 {
    let children = format!("/proc/{server}/task/{server}/children");
    let children = fs::read_to_string(children).expect("it runs");
    children.trim().parse().expect("one child")
}

/// Without its starter, a server tells what to do.
#[test]
fn a_server_whose_starter_was_killed_has_to_be_restarted() {
    let site = site();
    let mut server = Gannet::serve(site.path(), &[]);
    let starter = starter(server.pid());
    kill(starter, Signal::KILL);
    until_ended(starter);
    server.signal(Signal::USR2);
    let told = server.next_error_line().expect("it runs");
    assert!(told.contains("'gannet-starter'"), "{told}");
    assert!(told.ends_with("was killed: restart this server"), "{told}");
    Client::new(&server).get("/about").expect(200);
}

/// The new process reads the configuration: addresses are added and given up.
#[test]
fn the_new_process_listens_as_configured() {
    let site = site();
    on_both_engines(|engine| {
        let folder = Folder::new();
        let ports = [(); 3].map(|()| FreePort::new());
        let [kept, given_up, added] = ports.each_ref().map(FreePort::address);
        let socket = folder.join("socket");
        let unix = format!("unix:{},mode=0600", socket.display());
        let listen = |addresses: &[&str]| {
            let list: Vec<_> = addresses.iter().map(|it| format!("{it:?}")).collect();
            let text = format!("listen = [{}]\n", list.join(", "));
            folder.write("gannet.toml", text)
        };
        let (kept_text, given_up_text, added_text) =
            (kept.to_string(), given_up.to_string(), added.to_string());
        let config = listen(&[&kept_text, &given_up_text, &unix]);
        let mut server = Server::new(Gannet::start(command().args([
            "--engine",
            engine.name(),
            "--config",
            text(&config),
            text(site.path()),
        ])));
        Client::connect(given_up).get("/about").expect(200);
        listen(&[&kept_text, &added_text, &unix]);
        let old = server.pid;
        server.renew(Signal::USR2);
        for address in [kept, added] {
            Client::connect(address).get("/about").expect(200);
        }
        until_ended(old);
        assert!(Client::try_connect(given_up).is_err());
        Client::unix(&socket).get("/about").expect(200);
        assert!(socket.exists(), "the old process has left it");
        let pid = server.pid;
        server.stop();
        assert!(has_ended(pid) && !socket.exists());
    });
}

/// The number of workers may change: all sockets of the old process are served.
#[test]
fn the_number_of_workers_may_change() {
    let site = site();
    let authority = Authority::new();
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        let folder = Folder::new();
        let workers = |count: u32| folder.write("gannet.toml", format!("workers = {count}\n"));
        let config = workers(1);
        let mut server = Server::new(Gannet::start(command().args([
            "--engine",
            engine.name(),
            "--port",
            "0",
            "--config",
            text(&config),
            "--tls-cert",
            text(&certificate),
            text(site.path()),
        ])));
        let address = server.first.address();
        let config = authority.client(Abilities::default());
        for count in [4, 2, 3] {
            workers(count);
            server.renew(Signal::USR2);
            for _ in 0..12 {
                let mut client = Client::tls(address, connection(&config, "localhost"));
                client.get("/about").expect(200);
                assert_eq!(Quic::begin(address, &authority).get("/about").status, 200);
            }
        }
        server.stop();
    });
}

/// The service manager learns which process is the server.
#[test]
fn the_service_manager_is_told_of_the_new_process() {
    let site = site();
    let path = site.join("notify");
    let socket = UnixDatagram::bind(&path).expect("free");
    socket.set_read_timeout(Some(DEADLINE)).expect("a socket");
    let told = |word: &str| {
        let mut room = [0; 4096];
        let len = socket.recv(&mut room).expect("it tells in time");
        let text = String::from_utf8_lossy(&room[..len]).into_owned();
        assert!(text.contains(word), "{text}");
        text
    };
    let mut all = command();
    all.args(["--port", "0"]).arg(site.path());
    let mut server = Server::new(Gannet::start(all.env("NOTIFY_SOCKET", &path)));
    told("READY=1");
    server.renew(Signal::USR2);
    // In this order: what any other process tells is not heard.
    let named = told("MAINPID=");
    assert_eq!(named, format!("MAINPID={}\n", server.pid));
    told("READY=1");
    kill(server.pid, Signal::TERM);
    told("STOPPING=1");
    until_ended(server.pid);
}

/// The starter ends with its server, however that ends, and outlives signals for the whole group.
#[test]
fn the_starter_ends_with_its_server() {
    let site = site();
    let server = Gannet::serve(site.path(), &[]);
    let starter = starter(server.pid());
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR2] {
        kill(starter, signal);
    }
    let name = fs::read_to_string(format!("/proc/{starter}/comm")).expect("it runs");
    assert_eq!(name, "gannet-starter\n");
    server.signal(Signal::KILL);
    server.wait();
    until_ended(starter);
}

/// The process that started a server's upgrades is not in its sandbox, so that the next server is not,
/// either: it serves what the one before could not open, and then gives up the same rights.
#[test]
fn a_new_process_has_the_rights_of_a_start_and_gives_them_up() {
    on_both_engines(|engine| {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        folder.write("first/page", "first");
        elsewhere.write("page", "elsewhere");
        let switch = |target: &Path| {
            let _ = fs::remove_file(folder.join("next"));
            symlink(target, folder.join("next")).expect("a link");
            fs::rename(folder.join("next"), folder.join("current")).expect("ours");
        };
        switch("first".as_ref());
        let mut server = serve(engine, &folder.join("current"), &[]);
        let named = |line: &String| line.starts_with("sandbox") && line.contains("without");
        if let Some(line) = server.first.start_lines().iter().find(|line| named(line)) {
            return left_out("a whole sandbox", line);
        }
        let address = server.first.address();
        let page = || Client::connect(address).get("/page").expect(200).body;
        assert_eq!(page(), b"first");
        switch(elsewhere.path());
        let told = server.first.next_error_line().expect("it runs");
        assert!(
            told.contains("the sandbox has not left it readable"),
            "{told}"
        );
        assert_eq!(page(), b"first");
        let rights = |pid| {
            let lines = ["NoNewPrivs", "Seccomp", "Seccomp_filters"];
            lines.map(|name| of_threads(pid, name))
        };
        let before = rights(server.pid);
        assert_eq!(before[..2], [["1"], ["2"]]);
        server.renew(Signal::USR2);
        until("the folder elsewhere", || page() == b"elsewhere");
        assert_eq!(rights(server.pid), before);
        server.stop();
    });
}

/// With `--user` the new process begins as root, so that it can read keys as the first one did, and
/// becomes that user as well.
#[test]
fn root_begins_again_and_becomes_the_user_again() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    let authority = Authority::new();
    // Only root can read it.
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    let site = site();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let config = authority.client(Abilities::default());
    on_both_engines(|engine| {
        let flags = ["--user", "65534:65534", "--tls-cert", text(&certificate)];
        let mut server = serve(engine, site.path(), &flags);
        let address = server.first.address();
        for _ in 0..2 {
            let old = server.pid;
            let connect = || Client::tls(address, connection(&config, "localhost"));
            let mut slow = connect();
            slow.send(head("GET", "/long.bin", &[]));
            slow.head().expect(200);
            server.renew(Signal::USR2);
            assert_pattern(&slow.take(LONG as u64), 5);
            drop(slow);
            until_ended(old);
            connect().get("/about").expect(200);
            let user = ["65534 65534 65534 65534"];
            assert_eq!(of_threads(server.pid, "Uid"), user);
            assert_eq!(of_threads(server.pid, "Gid"), user);
            assert_eq!(of_threads(server.pid, "CapPrm"), ["0000000000000000"]);
        }
        server.stop();
    });
}

/// Who may connect, and that proxies name the clients, holds for the sockets that are taken over.
#[test]
fn what_is_configured_for_addresses_and_clients_stays() {
    let site = site();
    on_both_engines(|engine| {
        let listen = ["--listen", "127.0.0.1:0,proxy", "--trust", "loopback"];
        let all = [&["--engine", engine.name()], &listen[..]].concat();
        let mut command = command();
        command.args(all).args(["--deny", "203.0.113.8"]);
        let mut server = Server::new(Gannet::start(command.arg(site.path())));
        let address = server.first.address();
        for round in 0..2 {
            let header = |last| format!("PROXY TCP4 203.0.113.{last} 198.51.100.1 56324 443\r\n");
            let mut client = Client::connect(address);
            client.send(header(7));
            client.get("/about").expect(200);
            let mut denied = Client::connect(address);
            denied.send(header(8));
            denied.ends();
            let mut without = Client::connect(address);
            without.send("GET / HTTP/1.1\r\n");
            without.closes();
            if round == 0 {
                server.renew(Signal::USR2);
            }
        }
        server.stop();
    });
}

/// The first process of a container ends it.
#[test]
fn the_first_process_of_a_container_is_not_replaced() {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    let made = command.arg("true").output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        return left_out("process namespaces", format!("{made:?}"));
    }
    let site = site();
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child"])
        .arg(program());
    command.args(["--port", "0"]).arg(site.path());
    let mut server = Gannet::start(&mut command);
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let first = fs::read_to_string(children).expect("it runs");
    kill(first.trim().parse().expect("one child"), Signal::USR2);
    let line = server.next_error_line().expect("it runs");
    assert!(line.contains("the first process of a container"), "{line}");
    Client::new(&server).get("/about").expect(200);
}
