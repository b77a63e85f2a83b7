//! Reloads: SIGHUP has a new process with the configuration as it is now take a server's place.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use gannet_testkit::client::{Client, head};
use gannet_testkit::content::assert_pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Authority, KeyKind};
use gannet_testkit::{
    DEADLINE, Folder, FreePort, Gannet, Signal, command, left_out, passed, program, tool,
};

mod successors;

use successors::{
    LONG, Load, MIDDLE, Server, has_ended, kill, newcomers, regulars, site, text, until_ended,
};

/// A configuration in a folder of its own: what is beside the site, a server may open.
struct Configuration(Folder, PathBuf);

impl Configuration {
    fn new(more: &str) -> Self {
        let folder = Folder::new();
        let file = folder.join("gannet.toml");
        let configuration = Self(folder, file);
        configuration.is(more);
        configuration
    }

    /// As editors do: by another file in its place.
    fn is(&self, more: &str) {
        let new = self
            .0
            .write("new", format!("port = 0\nworkers = 2\n{more}\n"));
        fs::rename(new, &self.1).expect("ours");
    }

    fn serve(&self, engine: Engine, site: &Folder, flags: &[&str]) -> Server {
        let mut command = command();
        command
            .args(["--engine", engine.name(), "--config"])
            .arg(&self.1);
        Server::new(Gannet::start(command.args(flags).arg(site.path())))
    }

    /// Asks for a reload, and waits until it is refused; returns what is said before.
    fn refuses(&self, server: &mut Server) -> String {
        kill(server.pid, Signal::HUP);
        let refused = format!(
            "gannet: cannot reload '{}', nothing has changed: ",
            self.1.display()
        );
        let mut said = String::new();
        loop {
            let line = server.first.next_error_line().expect("it runs");
            if line.starts_with(&refused) {
                return said;
            }
            said += &line;
        }
    }
}

/// Clients and a download see nothing of it, again and again, and the next request has the new
/// configuration.
#[test]
fn a_changed_configuration_takes_effect_and_no_client_notices() {
    let site = site();
    on_both_engines(|engine| {
        let configuration = Configuration::new("");
        let mut server = configuration.serve(engine, &site, &[]);
        let address = server.first.address();
        let mut load = Load::new();
        newcomers(&mut load, address);
        newcomers(&mut load, address);
        regulars(&mut load, address);
        for _ in 0..3 {
            let old = server.pid;
            let port = FreePort::new();
            let metrics = port.address();
            configuration.is(&format!("metrics = \"{metrics}\""));
            let mut slow = Client::connect(address);
            slow.send(head("GET", "/long.bin", &[]));
            slow.head().expect(200);
            load.goes_on();
            server.renew(Signal::HUP);
            Client::connect(metrics).get("/health").expect(200);
            load.goes_on();
            assert!(!has_ended(old), "it still has a download");
            assert_pattern(&slow.take(LONG as u64), 5);
            until_ended(old);
        }
        load.end();
        let got = Client::connect(address).get("/middle.bin").expect(200);
        assert_eq!(got.body.len(), MIDDLE);
        server.stop();
    });
}

/// What a server reports on standard error after SIGHUP, until the summary that is asked for after it.
fn said(server: &mut Server) -> Vec<String> {
    kill(server.pid, Signal::HUP);
    kill(server.pid, Signal::USR1);
    let mut said = Vec::new();
    loop {
        let line = server.first.next_error_line().expect("it runs");
        if line.starts_with("engine: ") {
            return said;
        }
        // The rest of a summary before is no report.
        said.extend(Some(line).filter(|line| line.starts_with("gannet: ")));
    }
}

/// A file that was only touched, or that has its old content again, needs no new process.
#[test]
fn the_same_configuration_starts_no_process() {
    let site = site();
    on_both_engines(|engine| {
        for sandbox in ["auto", "off"] {
            let configuration = Configuration::new("");
            let mut server = configuration.serve(engine, &site, &["--sandbox", sandbox]);
            let file = fs::File::options().write(true).open(&configuration.1);
            let file = file.expect("ours");
            file.set_modified(SystemTime::UNIX_EPOCH).expect("ours");
            assert_eq!(said(&mut server), Vec::<String>::new());
            if sandbox == "off" {
                configuration.is("grace = \"1s\"");
                configuration.is("");
                assert_eq!(said(&mut server), Vec::<String>::new());
            }
            // It would say so if it was replaced.
            kill(server.pid, Signal::TERM);
            assert_eq!(server.first.next_line(), None);
        }
    });
}

/// A wrong configuration, and one that cannot be served, are refused as a whole with the reason, and
/// the log is reopened all the same. The next one that is right takes effect.
#[test]
fn a_bad_configuration_changes_nothing() {
    let site = site();
    on_both_engines(|engine| {
        let configuration = Configuration::new("");
        let log = configuration.0.join("log");
        let mut server = configuration.serve(engine, &site, &["--log-file", text(&log)]);
        let address = server.first.address();
        let port = FreePort::new();
        let metrics = port.address();
        for (bad, reason) in [
            (
                format!("metrics = \"{metrics}\"\nworkers = 3"),
                "duplicate key",
            ),
            (
                format!("metrics = \"{metrics}\"\ngrace = \"soon\""),
                "grace: not a duration",
            ),
            // An address of documentation, which no machine has.
            ("metrics = \"192.0.2.1:9\"".to_owned(), "192.0.2.1:9"),
        ] {
            configuration.is(&bad);
            let old = configuration.0.join("log.1");
            fs::rename(&log, &old).expect("it is there");
            let said = configuration.refuses(&mut server);
            assert!(said.contains(reason), "{said}");
            // The new process has said why, so nothing else is suspected.
            assert!(!said.contains("if there is no message"), "{said}");
            Client::connect(address).get("/about").expect(200);
            assert!(Client::try_connect(metrics).is_err());
            // Its writer reopens it, when it gets to it.
            until("the log is reopened", || log.exists());
        }
        configuration.is(&format!("metrics = \"{metrics}\""));
        server.renew(Signal::HUP);
        Client::connect(metrics).get("/health").expect(200);
        server.stop();
    });
}

/// A configuration that changes while a new process reads it takes effect as well: the process that was
/// begun is ended, and there is one more.
#[test]
fn a_change_during_a_reload_takes_effect() {
    let site = site();
    on_both_engines(|engine| {
        let configuration = Configuration::new("");
        let folder = Folder::new();
        let path = folder.join("gannet");
        symlink(program(), &path).expect("a link");
        let mut started = Command::new(&path);
        started.current_dir("/").stdin(Stdio::null());
        started.args(["--engine", engine.name(), "--config"]);
        let started = started.arg(&configuration.1).arg(site.path());
        let mut server = Server::new(Gannet::start(started));
        // A program that never gets ready.
        let pid = folder.join("pid");
        let script = format!(
            "#!/bin/sh\necho $$ > {0}.part; mv {0}.part {0}\nexec sleep 1000\n",
            pid.display()
        );
        let stuck = folder.write("stuck", script);
        fs::set_permissions(&stuck, fs::Permissions::from_mode(0o755)).expect("ours");
        let switch = |target: PathBuf| {
            symlink(target, folder.join("next")).expect("a link");
            fs::rename(folder.join("next"), &path).expect("ours");
        };
        switch(stuck);
        configuration.is("grace = \"5s\"");
        kill(server.pid, Signal::HUP);
        until("the new process runs", || pid.exists());
        let first = fs::read_to_string(&pid).expect("written");
        let first = first.trim().parse().expect("a number");
        switch(program());
        let port = FreePort::new();
        let metrics = port.address();
        configuration.is(&format!("metrics = \"{metrics}\""));
        server.renew(Signal::HUP);
        Client::connect(metrics).get("/health").expect(200);
        until_ended(first);
        server.stop();
    });
}

/// With `--user` the file may be hidden from the server; the new process begins as root.
#[test]
fn a_configuration_that_the_user_cannot_see_takes_effect() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root changes its user");
    }
    let site = site();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    on_both_engines(|engine| {
        let configuration = Configuration::new("");
        let closed = fs::Permissions::from_mode(0o700);
        fs::set_permissions(configuration.0.path(), closed).expect("ours");
        let mut server = configuration.serve(engine, &site, &["--user", "65534:65534"]);
        let port = FreePort::new();
        let metrics = port.address();
        configuration.is(&format!("metrics = \"{metrics}\""));
        server.renew(Signal::HUP);
        Client::connect(metrics).get("/health").expect(200);
        server.stop();
    });
}

/// The service manager learns that a reload has begun, which process serves after it, and whether the
/// configuration was refused.
#[test]
fn the_service_manager_is_told_of_a_reload() {
    let site = site();
    on_both_engines(|engine| {
        let configuration = Configuration::new("");
        let path = configuration.0.join("notify");
        let socket = UnixDatagram::bind(&path).expect("free");
        socket.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let told = |expect: &str| {
            let mut room = [0; 4096];
            let len = socket.recv(&mut room).expect("it tells in time");
            let text = String::from_utf8_lossy(&room[..len]).into_owned();
            assert!(text.starts_with(expect), "not {expect}: {text}");
            text
        };
        let mut all = command();
        all.args(["--engine", engine.name(), "--config"])
            .arg(&configuration.1);
        all.arg(site.path()).env("NOTIFY_SOCKET", &path);
        let mut server = Server::new(Gannet::start(&mut all));
        told("READY=1\nSTATUS=serving\n");
        configuration.is("grace = \"soon\"");
        kill(server.pid, Signal::HUP);
        told("RELOADING=1\nMONOTONIC_USEC=");
        told("READY=1\nSTATUS=serving, without the new configuration: see the log\n");
        configuration.is("grace = \"5s\"");
        server.renew(Signal::HUP);
        told("RELOADING=1\nMONOTONIC_USEC=");
        told(&format!("MAINPID={}\n", server.pid));
        told("READY=1\nSTATUS=serving\n");
        server.stop();
    });
}

/// Sockets of a service manager are passed on, and keep their names; a configuration that leaves one of
/// them alone is refused.
#[test]
fn sockets_of_the_service_manager_are_passed_on() {
    if !tool("bash", &["--version"]) {
        return;
    }
    let site = site();
    let authority = Authority::new();
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        let configuration = Configuration::new("");
        let set = |more: &str| {
            let text = format!("tls-cert = [{:?}]\n{more}\n", text(&certificate));
            let new = configuration.0.write("new", text);
            fs::rename(new, &configuration.1).expect("ours");
        };
        set("");
        let tcp = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("free");
            let address = listener.local_addr().expect("bound");
            (OwnedFd::from(listener), address)
        };
        let (https, udp, secure) = loop {
            let (listener, address) = tcp();
            if let Ok(udp) = UdpSocket::bind(address) {
                break (listener, udp.into(), address);
            }
        };
        let (http, clear) = tcp();
        let (metrics, measured) = tcp();
        let path = configuration.0.join("socket");
        let unix = UnixListener::bind(&path).expect("free").into();
        let sockets = vec![
            (http, "http"),
            (https, "https"),
            (udp, "quic"),
            (metrics, "metrics"),
            (unix, "http"),
        ];
        let flags = [
            "--engine",
            engine.name(),
            "--config",
            text(&configuration.1),
        ];
        let flags = [&flags[..], &[text(site.path())]].concat();
        let (mut command, kept) = passed(sockets, &flags);
        let mut server = Server::new(Gannet::start(&mut command));
        drop(kept);
        let mut load = Load::new();
        newcomers(&mut load, clear);
        for workers in [2, 1, 3] {
            set(&format!("workers = {workers}"));
            load.goes_on();
            server.renew(Signal::HUP);
            load.goes_on();
            Client::unix(&path).get("/about").expect(200);
            Client::connect(measured).get("/health").expect(200);
            assert_eq!(Quic::begin(secure, &authority).get("/about").status, 200);
        }
        load.end();
        set(&format!("listen = [\"{clear}\"]"));
        let said = configuration.refuses(&mut server);
        let unused = format!("nothing uses the service manager's socket '{secure}'");
        assert!(said.contains(&unused), "{said}");
        Client::connect(clear).get("/about").expect(200);
        server.stop();
    });
}
