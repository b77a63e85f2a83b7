//! Stopping, restarting, and files that change while they are being sent.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::Path;
use std::thread;

use gannet_testkit::client::{Client, End, get, head};
use gannet_testkit::content::{assert_pattern, pattern, unlike_pattern};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, Signal, command};
use rustix::fs::{Mode, OFlags};

const LARGE: usize = 8 << 20;

fn site_with_large_file() -> Folder {
    let site = Folder::site();
    site.write("large.bin", pattern(LARGE, 5));
    site
}

/// A slow client that has received only the beginning of the large file.
fn begin_download(server: &Gannet) -> Client {
    let mut client = Client::slow(server);
    client.send(head("GET", "/large.bin", &[]));
    let response = client.head().expect(200);
    assert_eq!(response.content_length(), Some(LARGE as u64));
    client
}

#[test]
fn a_stop_lets_downloads_finish_and_refuses_newcomers() {
    let site = site_with_large_file();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let address = server.address();
        let mut idle = Client::new(&server);
        idle.get("/about").expect(200);
        let mut client = begin_download(&server);
        server.signal(Signal::TERM);
        until("newcomers are refused", || {
            TcpStream::connect(address).is_err()
        });
        idle.closes();
        let body = client.take(LARGE as u64);
        assert_pattern(&body, 5);
        client.closes();
        let ended = server.wait();
        assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""));
    });
}

#[test]
fn a_stop_without_work_is_immediate() {
    let site = Folder::site();
    on_both_engines(|engine| {
        for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
            let server = engine.serve(site.path(), &[]);
            let mut idle = Client::new(&server);
            idle.get("/").expect(200);
            server.signal(signal);
            assert_eq!(server.wait().success().status, Some(0));
            idle.closes();
        }
    });
}

#[test]
fn the_second_signal_ends_at_once() {
    let site = site_with_large_file();
    on_both_engines(|engine| {
        let signals = [(Signal::TERM, 143), (Signal::INT, 130), (Signal::QUIT, 131)];
        for (signal, status) in signals {
            let server = engine.serve(site.path(), &["--grace", "1h"]);
            let address = server.address();
            let mut client = begin_download(&server);
            server.signal(signal);
            until("newcomers are refused", || {
                TcpStream::connect(address).is_err()
            });
            server.signal(signal);
            assert_eq!(server.wait().status, Some(status));
            let (got, _) = client.rest();
            assert!(got.len() < LARGE);
            assert_pattern(&got, 5);
        }
    });
}

#[test]
fn the_grace_is_limited() {
    let site = site_with_large_file();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--grace", "300ms"]);
        let mut client = begin_download(&server);
        // As asked: systemd's unit has not failed.
        server.stop().failure(
            0,
            "gannet: 1 connection cut off in the middle of an answer: --grace (0.3 s) is over\n\
             help: a longer --grace lets slower clients finish\n",
        );
        let (got, _) = client.rest();
        assert!(got.len() < LARGE);
        assert_pattern(&got, 5);
    });
}

#[test]
fn after_a_kill_the_same_port_serves_again() {
    let site = site_with_large_file();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let address = server.address();
        let _open = begin_download(&server);
        let mut kept = Client::new(&server);
        kept.get("/").expect(200);
        server.signal(Signal::KILL);
        assert_eq!(server.wait().status, None);
        let mut again = command();
        again
            .args(["--engine", engine.name(), "--listen", &address.to_string()])
            .arg(site.path());
        let server = Gannet::start(&mut again);
        assert_eq!(server.address(), address);
        get(&server, "/").expect(200);
    });
}

/// A slow download during which the file is changed. Every byte must be true.
fn download_during(engine: Engine, event: impl Fn(&Path)) -> (Vec<u8>, End) {
    let site = site_with_large_file();
    let path = site.join("large.bin");
    let server = engine.serve(site.path(), &["--workers", "1"]);
    let mut client = begin_download(&server);
    let mut got = client.take(20_000);
    event(&path);
    // Other clients are served meanwhile.
    get(&server, "/about").expect(200);
    while got.len() < LARGE {
        let ready = client.received().len().min(LARGE - got.len());
        got.extend(client.take(ready as u64));
        if got.len() < LARGE
            && let Some(end) = client.fill()
        {
            return (got, end);
        }
    }
    client.finish_sending();
    (got, client.ends())
}

#[test]
fn a_file_truncated_in_place_ends_the_answer_short() {
    type Truncate = fn(&Path);
    let truncations: [(&str, Truncate); 4] = [
        ("to nothing, by opening", |path| {
            drop(File::create(path).expect("truncated"))
        }),
        ("within the page", |path| {
            let file = File::options().write(true).open(path).expect("opened");
            file.set_len(1000).expect("truncated");
        }),
        ("to the middle", |path| {
            let file = File::options().write(true).open(path).expect("opened");
            file.set_len(LARGE as u64 / 2).expect("truncated");
        }),
        ("and rewritten", |path| {
            fs::write(path, "short").expect("written")
        }),
    ];
    on_both_engines(|engine| {
        thread::scope(|scope| {
            for (name, truncate) in truncations {
                scope.spawn(move || {
                    let (got, _) = download_during(engine, truncate);
                    assert!(got.len() < LARGE, "{name}: it pretends to be whole");
                    if let Some(wrong) = unlike_pattern(&got, 5) {
                        panic!("{name}: {wrong}");
                    }
                });
            }
        });
    });
}

#[test]
fn a_file_that_grows_is_sent_as_it_was() {
    on_both_engines(|engine| {
        let (got, end) = download_during(engine, |path| {
            use std::io::Write;
            let mut file = File::options().append(true).open(path).expect("opened");
            file.write_all(&[b'x'; 100_000]).expect("written");
        });
        assert_eq!((got.len(), end), (LARGE, End::Closed));
        assert_pattern(&got, 5);
    });
}

#[test]
fn a_file_replaced_or_deleted_is_sent_as_it_was() {
    on_both_engines(|engine| {
        for event in [
            |path: &Path| {
                let new = path.with_extension("new");
                fs::write(&new, pattern(LARGE / 2, 200)).expect("written");
                fs::rename(new, path).expect("renamed");
            },
            |path: &Path| fs::remove_file(path).expect("deleted"),
        ] {
            let (got, end) = download_during(engine, event);
            assert_eq!((got.len(), end), (LARGE, End::Closed));
            assert_pattern(&got, 5);
        }
    });
}

/// As `truncate(1)` opens it: a program that does not wait is not refused either.
#[test]
fn a_writer_is_neither_held_up_nor_refused() {
    let open = |path: &Path| {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).expect("opened");
    };
    on_both_engines(|engine| {
        let site = site_with_large_file();
        let path = site.join("large.bin");
        let server = engine.serve(site.path(), &[]);
        open(&path);
        let mut stuck = begin_download(&server);
        open(&path);
        stuck.take(1_000);
        get(&server, "/large.bin").expect(200);
        open(&path);
        File::options().write(true).open(&path).expect("opened");
    });
}
