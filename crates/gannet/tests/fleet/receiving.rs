//! `gannet serve --receive`, and `gannet publish` to such servers.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use gannet_io::net::{bind, local_addr};
use gannet_testkit::client::{Client, get, metric};
use gannet_testkit::process::until;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, connection};
use gannet_testkit::{Ended, Folder, FreePort, Gannet, Signal, command, gannet_in, left_out, run};

use crate::store::{current, file_of, line, with_site};

/// A server that receives at a port, with its first release, or one whose file is gone, which is published meanwhile.
fn serve(folder: &Folder, copy: &str, port: &FreePort, flags: &[&str]) -> Gannet {
    let known = fs::read_to_string(folder.join(copy).join("current"));
    let what = known.map_or("the first release".into(), |pointer| {
        format!("release {}", &line(&pointer, "release")[..16])
    });
    serve_after(folder, copy, port, &what, flags)
}

/// The same, with what it says that it waits for.
fn serve_after(folder: &Folder, copy: &str, port: &FreePort, what: &str, flags: &[&str]) -> Gannet {
    let (mut serve, receive) = (command(), port.address().to_string());
    serve.args(["serve", copy, "--receive", &receive, "--port", "0"]);
    serve.args(["--require-signature", "release.pub", "--sandbox", "require"]);
    let mut server = Gannet::start(serve.args(flags).current_dir(folder.path()));
    let waiting = server.next_error_line().expect("it waits");
    let expect = format!("waiting for {what}, to be published to '{copy}'");
    assert_eq!(waiting, expect);
    let receiving = server.next_error_line().expect("it receives");
    let begin = format!("gannet: receiving releases for '{copy}' at ");
    let rest = receiving.strip_prefix(&begin).expect("it says where");
    let (url, confined) = rest
        .split_once(' ')
        .expect("it says by what it is confined");
    assert!(url.ends_with(&format!("://{receive}")), "{url}");
    assert!(
        confined.contains("landlock") && confined.contains("seccomp"),
        "{confined}"
    );
    server
}

fn publish(folder: &Folder, targets: &[&str], environment: &[(&str, &str)]) -> Ended {
    let mut publish = command();
    publish.args([
        "publish",
        "site",
        "store",
        "--fast",
        "--sign",
        "release.key",
    ]);
    publish.args(targets).current_dir(folder.path());
    run(publish.envs(environment.iter().copied()))
}

/// The process that receives for a store.
fn receiver(folder: &Folder, copy: &str) -> Option<i32> {
    let own = fs::canonicalize(folder.path()).expect("it is there");
    let found = fs::read_dir("/proc").expect("proc").flatten().find(|it| {
        let words = fs::read(it.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0).skip(1);
        let is_receiver = words.next() == Some(b"receive") && words.nth(1) == Some(copy.as_bytes());
        // It cannot be looked into, but by root.
        is_receiver && fs::read_link(it.path().join("cwd")).map_or(true, |it| it == own)
    });
    found?.file_name().into_string().ok()?.parse().ok()
}

#[test]
fn what_is_published_comes_into_force_at_all_servers() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "release"]).success();
    let authority = Authority::new();
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    let certificate = certificate.to_str().expect("UTF-8");
    let (first_port, second_port) = (FreePort::new(), FreePort::new());
    let url = format!("https://localhost:{}", first_port.address().port());
    let clear_url = format!("http://{}", second_port.address());
    let trust = authority.file();
    let trust = [("SSL_CERT_FILE", trust.to_str().expect("UTF-8"))];
    let (secure, clear) = thread::scope(|scope| {
        let secure =
            scope.spawn(|| serve(&folder, "one", &first_port, &["--tls-cert", certificate]));
        let clear = scope.spawn(|| serve(&folder, "two", &second_port, &[]));
        until("both have the first release", || {
            publish(&folder, &[&url, &clear_url], &trust).status == Some(0)
        });
        let joined = [secure, clear].map(|it| it.join().expect("it serves"));
        joined.into()
    });
    let page = || {
        let config = authority.client(Abilities::default());
        let mut client = Client::tls(secure.address(), connection(&config, "localhost"));
        client.get("/").text().to_owned()
    };
    assert!(page().contains("One") && get(&clear, "/").text().contains("One"));
    let unsigned = gannet_in(&folder, ["publish", "site", "store", &url]);
    assert_eq!(unsigned.status, Some(2), "{unsigned:?}");

    // A server whose certificate is not trusted, and one that does not answer, get nothing.
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    let dead = "http://127.0.0.1:1";
    let published = publish(&folder, &[&url, &clear_url, dead], &[]);
    assert_eq!(published.status, Some(1), "{published:?}");
    for refused in [&*url, dead] {
        let expect = format!("gannet: cannot publish to '{refused}': ");
        assert!(published.err.contains(&expect), "{published:?}");
    }
    let expect = format!("  brought   {clear_url}, ");
    assert!(published.text().contains(&expect), "{}", published.text());
    until("one has the second release", || {
        get(&clear, "/").text().contains("Two")
    });
    assert!(page().contains("One"));
    publish(&folder, &[&url, &clear_url], &trust).success();
    until("the other one has, too", || page().contains("Two"));
    for copy in ["one", "two"] {
        let copied = fs::read_to_string(folder.join(copy).join("current")).unwrap();
        assert_eq!(copied, current(&folder));
    }
    // After a rollback, what is in force is published as it is.
    gannet_in(&folder, ["rollback", "store", "--sign", "release.key"]).success();
    let back = [
        "publish",
        "store",
        "store",
        "--sign",
        "release.key",
        &clear_url,
    ];
    gannet_in(&folder, back).success();
    until("it has the first release again", || {
        get(&clear, "/").text().contains("One")
    });
    assert_eq!(secure.stop().status, Some(0));
    assert_eq!(clear.stop().status, Some(0));
    until("the receivers end with their servers", || {
        receiver(&folder, "one").is_none() && receiver(&folder, "two").is_none()
    });
}

#[test]
fn a_receiver_that_is_killed_leaves_the_old_release_and_is_resumed() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "release"]).success();
    let port = FreePort::new();
    let url = format!("http://{}", port.address());
    let server = thread::scope(|scope| {
        let server = scope.spawn(|| serve(&folder, "copy", &port, &["--metrics", "127.0.0.1:0"]));
        until("it has the first release", || {
            publish(&folder, &[&url], &[]).status == Some(0)
        });
        server.join().expect("it serves")
    });
    assert!(get(&server, "/").text().contains("One"));
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    folder.write("site/large.bin", vec![b'x'; 100_000]);
    publish(&folder, &[], &[]).success();
    // A publisher brings superblock and metadata.
    let pointer = current(&folder);
    let mut stream = TcpStream::connect(port.address()).unwrap();
    let request = "GET / HTTP/1.1\r\nupgrade: gannet-publish\r\n\r\n";
    let hello = format!("{request}gannet publish 1 {}\n{pointer}", pointer.len());
    stream.write_all(hello.as_bytes()).unwrap();
    let mut archive = Vec::new();
    let release = line(&pointer, "release");
    let mut file = File::open(file_of(&folder, release)).unwrap();
    file.read_to_end(&mut archive).unwrap();
    let mut next = || {
        let mut text = Vec::new();
        while !text.ends_with(b"\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            text.extend(byte);
        }
        let text = String::from_utf8(text).unwrap();
        let range = text.strip_prefix("send ").map(|range| {
            let (start, end) = range.trim().split_once(' ').unwrap();
            start.parse().unwrap()..end.parse().unwrap()
        });
        if let Some(range) = &range {
            let range: std::ops::Range<usize> = range.clone();
            stream.write_all(&archive[range]).unwrap();
        }
        range
    };
    let mut ranges = Vec::new();
    while ranges.len() < 2 {
        ranges.extend(next());
    }
    let part = folder.join(format!("copy/releases/.part-{release}.gannet"));
    until("both are there", || {
        fs::read(&part).is_ok_and(|it| it.starts_with(&archive[..4096]))
    });
    let pid = receiver(&folder, "copy").expect("it runs");
    let pid = rustix::process::Pid::from_raw(pid).expect("not zero");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    assert!(get(&server, "/").text().contains("One"));
    // It is started again, at the same address, and is not sent again what it has.
    until("it receives again", || {
        publish(&folder, &[&url], &[]).status == Some(0)
    });
    until("the second release is served", || {
        get(&server, "/").text().contains("Two")
    });
    let copied = fs::read(folder.join(format!("copy/releases/{release}.gannet"))).unwrap();
    assert!(copied == archive);
    // It goes on counting where the other one ended.
    gannet_in(&folder, ["keygen", "other"]).success();
    let foreign = ["publish", "site", "elsewhere", "--sign", "other.key", &url];
    assert_eq!(gannet_in(&folder, foreign).status, Some(1));
    drop(stream);
    for (name, count) in [
        ("releases_total", 2),
        ("serial", 2),
        ("refused_total{reason=\"signature\"}", 1),
    ] {
        until(name, || {
            metric(&server, &format!("gannet_receiver_{name}")) == count
        });
    }
    assert!(metric(&server, "gannet_receiver_bytes_total") > 100_000);
    assert!(metric(&server, "gannet_receiver_connections_total") > 4);
}

/// It is brought again by who has it, to a server that runs, and to one that waits for it.
#[test]
fn a_release_whose_file_is_gone_is_published_again() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "release"]).success();
    let port = FreePort::new();
    let url = format!("http://{}", port.address());
    folder.write("gannet.toml", "");
    let (folder, port) = (&folder, &port);
    let begin = || {
        thread::scope(|scope| {
            let flags = ["--config", "gannet.toml"];
            let server = scope.spawn(move || serve(folder, "copy", port, &flags));
            until("it has the release", || {
                publish(folder, &[&url], &[]).status == Some(0)
            });
            server.join().expect("it serves")
        })
    };
    let mut server = begin();
    let release = line(&current(folder), "release").to_owned();
    let file = folder.join(format!("copy/releases/{release}.gannet"));
    fs::remove_file(&file).expect("it is there");
    folder.write("gannet.toml", "node = \"other\"\n");
    server.signal(Signal::HUP);
    let next = |server: &mut Gannet| server.next_error_line().expect("it runs");
    while !next(&mut server).contains("the file of the release is missing or damaged") {}
    publish(folder, &[&url], &[]).success();
    assert!(file.exists());
    let received = loop {
        let said = next(&mut server);
        if said.contains(", received from ") {
            break said;
        }
    };
    assert!(received.contains(" and in force ("), "{received}");
    assert_eq!(server.stop().status, Some(0));
    // One that is cut short counts as gone.
    for left in [None, Some([0_u8; 1_000])] {
        fs::remove_file(&file).expect("it is there");
        left.map(|it| folder.write(&file, it));
        let server = begin();
        assert!(get(&server, "/").text().contains("One"));
        assert_eq!(server.stop().status, Some(0));
    }
}

/// A server that has the new key alone takes what it has signed, with what the old one has signed in its store.
#[test]
fn a_release_of_another_key_is_replaced() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "release"]).success();
    let port = FreePort::new();
    let url = format!("http://{}", port.address());
    let (folder, port) = (&folder, &port);
    let begin = |what: &'static str| {
        thread::scope(|scope| {
            let server = scope.spawn(move || serve_after(folder, "copy", port, what, &[]));
            until("it has the release", || {
                publish(folder, &[&url], &[]).status == Some(0)
            });
            server.join().expect("it serves")
        })
    };
    assert_eq!(begin("the first release").stop().status, Some(0));
    for name in ["release.key", "release.pub"] {
        fs::remove_file(folder.join(name)).expect("it is there");
    }
    gannet_in(folder, ["keygen", "release"]).success();
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    let server = begin("a release with the required signature");
    assert!(get(&server, "/").text().contains("Two"));
    assert_eq!(server.stop().status, Some(0));
}

/// One that other receivers of the same user could silently share, of either family.
#[test]
fn a_receiver_shares_no_address() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "release"]).success();
    let authority = Authority::new();
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    let certificate = certificate.to_str().expect("UTF-8");
    let taken = bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let port = local_addr(&taken).expect("bound").expect("of IP").port();
    let mut addresses = vec![format!("127.0.0.1:{port}")];
    match TcpListener::bind("[::1]:0") {
        Ok(_) => addresses.push(format!("[::]:{port}")),
        Err(_) => left_out("IPv6", "[::1] cannot be bound"),
    }
    let flags = [
        "--require-signature",
        "release.pub",
        "--tls-cert",
        certificate,
    ];
    for address in addresses {
        let serve = ["serve", "copy", "--receive", &address, "--port", "0"];
        let refused = gannet_in(&folder, serve.iter().chain(&flags));
        assert!(refused.err.contains("EADDRINUSE"), "{refused:?}");
        assert!(!folder.join("copy").exists());
    }
}

#[test]
fn what_cannot_be_received_is_said() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "release"]).success();
    let key = ["--require-signature", "release.pub"];
    let check = |address: &str, more: &[&str], expect: &str| {
        let mut serve = command();
        serve.args(["serve", "--check-config", "--receive", address]);
        let ended = run(serve.args(more).current_dir(folder.path()));
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.err.contains(expect), "{ended:?}");
    };
    check("8444", &["copy"], "nothing says whose releases to take");
    let with = |path: &[&'static str]| [&key[..], path].concat();
    check("0.0.0.0:8444", &with(&["copy"]), "clear text");
    check("8444", &with(&[]), "not the folder of a store");
    check(
        "8444",
        &with(&["s3://bucket/site"]),
        "not the folder of a store",
    );
    check("x", &with(&["copy"]), "--receive x");
    let valid_args = [
        "serve",
        "--check-config",
        "copy",
        "--receive",
        "127.0.0.1:0",
    ];
    let valid = gannet_in(&folder, valid_args.iter().chain(&key));
    let expect = "note     the first release has not been published to 'copy' yet\nthe configuration is valid\n";
    assert_eq!(valid.success().text(), expect);
    assert!(!folder.join("copy").exists());
    let unusable = valid_args
        .iter()
        .chain(&key)
        .chain(&["--tls-cert", "release.pub"]);
    let unusable = gannet_in(&folder, unusable);
    assert!(unusable.err.contains("'release.pub'"), "{unusable:?}");
    let direct = gannet_in(&folder, ["receive", "copy"]);
    assert!(
        direct
            .err
            .contains("is started by 'gannet serve --receive'"),
        "{direct:?}"
    );
}
