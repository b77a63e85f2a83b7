//! Many sites in one folder, some of them on file systems that hang.

#[path = "many_hosts/sites.rs"]
mod sites;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::fuse::{Disk, Mounted};
use gannet_testkit::h2::{Peer, block, headers};
use gannet_testkit::h3;
use gannet_testkit::process::{threads, until};
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Authority, KeyKind, Secure};
use gannet_testkit::{Folder, Gannet, command, left_out, run};

use crate::sites::{name, sites, told};

/// More than are opened at the start.
const HOSTS: usize = 70;

/// Threads that open sites while nothing hangs.
const OPENERS: usize = 4;

/// More than those.
const HUNG: usize = 6;

/// `bob:U*U` by bcrypt.
const USER: &str = "bob:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

fn hung(number: usize) -> String {
    format!("hung{number}.example")
}

/// Mounts a site whose rules are on a disk that hangs.
fn mount(folder: &Folder, host: &str) -> Option<Mounted> {
    let path = folder.join("sites").join(host);
    fs::create_dir(&path).expect("made");
    let files: [(&str, &[u8], Disk); 2] = [
        ("_headers", b"/*\n  X-From: afar\n", Disk::SlowName),
        ("index.html", b"afar", Disk::Good),
    ];
    Mounted::at(&path, &files)
}

/// A `GET` of `/` over HTTP/1.1.
fn get(server: &Secure, host: &str) -> Response {
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

fn fields(host: &str) -> [(&str, &str); 4] {
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", host),
        (":path", "/"),
    ]
}

fn ask_by_http2(peer: &mut Peer, host: &str) -> u32 {
    let stream = peer.open();
    peer.send(&headers(stream, &block(&fields(host))));
    stream
}

fn openers(server: &Gannet) -> usize {
    let threads = threads(server);
    threads.iter().filter(|it| *it == "gannet-opener").count()
}

#[test]
fn file_systems_that_hang_harm_their_own_sites_only() {
    on_both_engines(|engine| {
        let folder = sites(HOSTS);
        let mounted: Option<Vec<_>> = (0..HUNG).map(|it| mount(&folder, &hung(it))).collect();
        let Some(mounted) = mounted else {
            return;
        };
        let flags = ["--hosts", "--workers", "1"];
        let mut server = Secure::serve(engine, folder.join("sites"), &flags);
        let _release: Vec<_> = mounted.iter().map(Mounted::release_at_end).collect();
        let mut one = server.connect();
        one.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", hung(0)));
        let mut two = Peer::secure(&server, &[]);
        let waiting: Vec<_> = (1..HUNG)
            .map(|it| ask_by_http2(&mut two, &hung(it)))
            .collect();
        let mut three = Quic::begin(server.server.address(), &server.authority);
        let asked = three.ask(&h3::headers(&fields(&hung(0))));
        until("all of them hang", || {
            mounted.iter().all(|it| it.hanging() > 0)
        });
        assert_eq!(
            get(&server, &name(1)).text(),
            "site 1",
            "none is in its way"
        );
        let in_http2 = ask_by_http2(&mut two, &name(2));
        assert_eq!(two.answer(in_http2).body, b"site 2");

        let answer = one.response().expect(503);
        assert_eq!(answer.field("retry-after"), Some("1"));
        one.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", name(3)));
        assert_eq!(one.response().text(), "site 3");
        for stream in waiting {
            let answer = two.answer(stream).expect(503);
            assert_eq!(answer.field("retry-after"), Some("1"));
        }
        let in_http2 = ask_by_http2(&mut two, &name(4));
        assert_eq!(two.answer(in_http2).body, b"site 4");
        let answer = three.answer(asked);
        assert_eq!(
            (answer.status, answer.field("retry-after")),
            (503, Some("1"))
        );
        let in_http3 = three.ask(&h3::headers(&fields(&name(5))));
        assert_eq!(three.answer(in_http3).body, b"site 5");

        // Nobody asks those again, or waits for them.
        let hanging = |mounted: &[Mounted]| mounted.iter().map(Mounted::hanging).sum::<usize>();
        let before = hanging(&mounted);
        for number in 0..20 {
            get(&server, &hung(number % HUNG)).expect(503);
        }
        assert_eq!(hanging(&mounted), before);
        let line = told(&mut server.server, "no site for");
        let cause = "not open after 10 s, since its file system does not answer or its rules take long; answering 503 until it is";
        assert!(line.ends_with(cause), "{line}");
        assert!(openers(&server.server) <= OPENERS + HUNG);

        mounted.iter().for_each(Mounted::release);
        for number in 0..HUNG {
            until("it is back", || {
                let answer = get(&server, &hung(number));
                answer.field("x-from") == Some("afar") && answer.text() == "afar"
            });
        }
        until("threads end", || openers(&server.server) <= OPENERS);
    });
}

/// Requests of all versions wait for a site that takes its time, and get it.
#[test]
fn a_slow_site_is_worth_waiting_for() {
    on_both_engines(|engine| {
        let folder = sites(HOSTS);
        let Some(mounted) = mount(&folder, "slow.example") else {
            return;
        };
        let flags = ["--hosts", "--workers", "2"];
        let server = Secure::serve(engine, folder.join("sites"), &flags);
        let _release = mounted.release_at_end();
        let mut one = server.connect();
        // The second one is held until the first is answered.
        let asks = ["slow.example", "h1.example"]
            .map(|host| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        one.send(asks.concat());
        let mut two = Peer::secure(&server, &[]);
        let streams = [(); 10].map(|()| ask_by_http2(&mut two, "slow.example"));
        let mut three = Quic::begin(server.server.address(), &server.authority);
        let ids = [(); 10].map(|()| three.ask(&h3::headers(&fields("slow.example"))));
        until("it hangs", || mounted.hanging() > 0);
        let in_http2 = ask_by_http2(&mut two, "h2.example");
        assert_eq!(two.answer(in_http2).body, b"site 2", "others do not wait");
        let in_http3 = three.ask(&h3::headers(&fields("h3.example")));
        assert_eq!(three.answer(in_http3).body, b"site 3", "others do not wait");
        mounted.release();
        assert_eq!(one.response().expect(200).text(), "afar");
        assert_eq!(one.response().expect(200).text(), "site 1");
        for stream in streams {
            assert_eq!(two.answer(stream).expect(200).body, b"afar");
        }
        for id in ids {
            let answer = three.answer(id);
            assert_eq!((answer.status, &*answer.body), (200, &b"afar"[..]));
        }
    });
}

/// Each open site is looked at for changes. One that hangs then delays that for no other.
#[test]
fn looks_that_hang_delay_no_other_site() {
    on_both_engines(|engine| {
        let folder = sites(HOSTS);
        let mounted: Option<Vec<_>> = (0..3).map(|it| mount(&folder, &hung(it))).collect();
        let Some(mounted) = mounted else {
            return;
        };
        mounted.iter().for_each(Mounted::release);
        let server = Secure::serve(engine, folder.join("sites"), &["--hosts"]);
        let _release: Vec<_> = mounted.iter().map(Mounted::release_at_end).collect();
        for number in 0..3 {
            assert_eq!(get(&server, &hung(number)).text(), "afar");
        }
        assert_eq!(get(&server, &name(0)).field("x-from"), None);
        mounted.iter().for_each(Mounted::hold);
        until("looks hang", || mounted.iter().all(|it| it.hanging() > 0));
        folder.write("sites/new.example/index.html", "new");
        until("a host comes", || {
            get(&server, "new.example").body == b"new"
        });
        folder.write("sites/h0.example/_headers", "/*\n  X-From: here\n");
        until("rules come", || {
            get(&server, &name(0)).field("x-from") == Some("here")
        });
        fs::remove_dir_all(folder.join("sites/new.example")).expect("there");
        until("it goes", || get(&server, "new.example").status == 421);
        mounted.iter().for_each(Mounted::release);
        for number in 0..3 {
            until("it is back", || get(&server, &hung(number)).body == b"afar");
        }
    });
}

/// A few sites are opened at the start, which waits for those that hang as long as a request does.
#[test]
fn a_start_does_not_wait_for_what_hangs() {
    on_both_engines(|engine| {
        let folder = sites(2);
        let mounted: Option<Vec<_>> = (0..3).map(|it| mount(&folder, &hung(it))).collect();
        let Some(mounted) = mounted else {
            return;
        };
        let mut server = Secure::serve(engine, folder.join("sites"), &["--hosts"]);
        let _release: Vec<_> = mounted.iter().map(Mounted::release_at_end).collect();
        for number in 0..3 {
            let line = told(&mut server.server, &hung(number));
            assert!(line.ends_with("answering 503 until it is"), "{line}");
        }
        assert_eq!(get(&server, &name(1)).text(), "site 1");
        get(&server, &hung(0)).expect(503);
        mounted.iter().for_each(Mounted::release);
        for number in 0..3 {
            until("it is back", || get(&server, &hung(number)).body == b"afar");
        }
        assert_eq!(get(&server, &name(0)).text(), "site 0");
    });
}

/// A start with these flags is refused, because of the site of an entry that hangs.
fn is_refused(entry: &str, flags: &[&str]) {
    let folder = sites(2);
    let Some(mounted) = mount(&folder, entry) else {
        return;
    };
    let mut start = command();
    start.args(["--port", "0", "--hosts"]).args(flags);
    start.arg(folder.join("sites")).stderr(Stdio::piped());
    let mut child = start.spawn().expect("the binary starts");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let lines: Vec<_> = lines.map_while(Result::ok).take(2).collect();
    // The kernel ends no process of which a thread hangs.
    mounted.release();
    let expect = format!(
        "gannet: cannot open '{}': not open after 10 s, since its file system does not answer or its rules take long",
        mounted.path().display()
    );
    let help = "help: see which disk or network file system hangs; without --user the other hosts of a \
                folder are served meanwhile";
    assert_eq!(lines, [expect.as_str(), help]);
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

/// Requests for unknown hosts would have no site if the one for them were left out.
#[test]
fn a_start_needs_the_site_of_all_other_hosts() {
    is_refused("_default", &[]);
}

/// To change the user of a process takes all of its threads.
#[test]
fn a_start_that_changes_its_user_needs_all_sites() {
    match rustix::process::geteuid().is_root() {
        true => is_refused(&hung(0), &["--user", "65534:65534"]),
        false => left_out("root", "only root can become another user"),
    }
}

/// Whatever looks at content says what it waits for, and goes on when that answers.
fn is_waited_for(command: &mut Command, mounted: &Mounted) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let told: Vec<_> = lines.by_ref().map_while(Result::ok).take(2).collect();
    mounted.release();
    let expect = format!(
        "gannet: waiting for '{}' for 5 s now: its file system does not answer, or is slow, or much is \
         read",
        mounted.path().display()
    );
    let help = "help: if no disk is busy, see which disk or network file system hangs; the start \
                continues when it answers";
    assert_eq!(told, [expect.as_str(), help]);
    let rest: Vec<_> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("it ends");
    assert!(status.success() && rest.is_empty(), "{status} {rest:?}");
}

#[test]
fn a_folder_of_hosts_that_hangs_is_named_and_waited_for() {
    let folder = sites(1);
    let archive = folder.join("one.gannet");
    let mut pack = command();
    pack.arg("pack").arg(folder.join("sites").join(name(0)));
    run(pack.arg("--output").arg(&archive)).success();
    let archive = fs::read(archive).expect("packed");
    let files = [("one.example.gannet", &*archive, Disk::SlowList)];
    for word in ["serve", "doctor"] {
        let Some(mounted) = Mounted::new(&files) else {
            return;
        };
        let mut command = command();
        command.args([word, "--port", "0", "--hosts"]);
        command.args((word == "serve").then_some("--check-config"));
        command.stdout(Stdio::null());
        is_waited_for(command.arg(mounted.path()), &mounted);
    }
}

#[test]
fn a_site_that_hangs_is_named_and_waited_for() {
    let files: [(&str, &[u8], Disk); 1] = [("_headers", b"/*\n  X-From: afar\n", Disk::SlowName)];
    let Some(mounted) = Mounted::new(&files) else {
        return;
    };
    let mut command = command();
    command.args(["--port", "0", "--check-config", "--site"]);
    command.stdout(Stdio::null());
    is_waited_for(
        command.arg(format!("one.example={}", mounted.path().display())),
        &mounted,
    );
}

/// So does a start of certificates, passwords and its log.
#[test]
fn files_beside_the_content_that_hang_are_named_and_waited_for() {
    let site = Folder::site();
    let authority = Authority::new();
    let pair = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    let pem = fs::read(&pair).expect("issued");
    let tls = ["--tls-cert", pair.to_str().expect("UTF-8")];
    for (flag, content, more) in [
        ("--tls-cert", &*pem, &[][..]),
        ("--tls-client-ca", &*pem, &tls),
        ("--password-file", USER.as_bytes(), &[]),
        ("--log-file", b"a line\n", &[]),
    ] {
        for disk in [Disk::SlowName, Disk::SlowFrom(0)] {
            // Nobody can write there, so that a log is found and not opened.
            if flag == "--log-file" && matches!(disk, Disk::SlowFrom(_)) {
                continue;
            }
            let Some(mounted) = Mounted::new(&[("file", content, disk)]) else {
                return;
            };
            let file = mounted.path().join("file");
            let mut command = command();
            command.args(["--port", "0", "--check-config"]).args(more);
            command.arg(flag).arg(&file).arg(site.path());
            command.stdout(Stdio::null());
            let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
            let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
            let told = lines.next().expect("a line").expect("readable");
            mounted.release();
            let expect = format!("gannet: waiting for '{}' for 5 s now: ", file.display());
            assert!(told.starts_with(&expect), "{flag}: {told}");
            lines.for_each(drop);
            child.wait().expect("it ends");
        }
    }
}

/// A link out of the folder is refused without a look at what it leads to, at the start as later.
#[test]
fn a_link_to_what_hangs_is_not_followed() {
    let Some(mounted) = Mounted::new(&[("site", b"", Disk::SlowName)]) else {
        return;
    };
    on_both_engines(|engine| {
        let folder = sites(HOSTS);
        let link = |name: &str| {
            let link = folder.join("sites").join(name);
            symlink(mounted.path().join("site"), link).expect("linked");
        };
        link("before.example");
        link("not_a_host!");
        let mut server = engine.serve(folder.join("sites"), &["--hosts"]);
        told(&mut server, "no site for the link ");
        link("after.example");
        link("after.example.gannet");
        folder.write("sites/new.example/index.html", "new");
        let status = |host: &str| {
            let mut client = Client::new(&server);
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.response().status
        };
        until("a host comes", || status("new.example") == 200);
        for host in ["before.example", "after.example"] {
            assert_eq!(status(host), 503, "{host}");
        }
        assert_eq!(mounted.hanging(), 0);
    });
}
