//! Many, slow, rude and broken clients: the others never notice.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use gannet_testkit::client::{Client, get, head, metric};
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::{descriptors, raise_descriptor_limit, until};
use gannet_testkit::quic::Quic;
use gannet_testkit::seccomp::{IO_URING_SETUP, MEMFD_CREATE, without};
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, program, run};

const LARGE: usize = 8 << 20;

fn site_with_large_file() -> Folder {
    let site = Folder::site();
    site.write("large.bin", pattern(LARGE, 7));
    site
}

#[test]
fn a_half_closed_client_gets_everything() {
    let site = site_with_large_file();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        client.send(head("GET", "/about", &[]) + &head("GET", "/large.bin", &[]));
        client.finish_sending();
        client.response().expect(200);
        let large = client.response().expect(200);
        assert_eq!(large.body.len(), LARGE);
        assert_pattern(&large.body, 7);
        client.closes();
        // Nothing, or half a request, gets no answer.
        for text in ["", "GET / HTTP/1.1\r\nhost"] {
            let mut client = Client::new(&server);
            client.send(text);
            client.finish_sending();
            client.ends();
        }
    });
}

#[test]
fn resets_at_all_stages_leave_nothing_behind() {
    let site = site_with_large_file();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "2"]);
        // Open files are cached, and count from the start.
        let mut polite: Vec<Client> = (0..8).map(|_| Client::new(&server)).collect();
        for client in &mut polite {
            client.get("/large.bin").expect(200);
        }
        let before = descriptors(&server);
        let request = head("GET", "/large.bin", &[]);
        for round in 0..1500_usize {
            let mut client = Client::new(&server);
            match round % 6 {
                0 => {}
                1 => client.send(&request[..20]),
                2 => client.send(&request),
                3 => {
                    client.send(&request);
                    client.head().expect(200);
                }
                4 => {
                    client.send(request.repeat(3));
                    client.head().expect(200);
                    client.take(100_000);
                }
                _ => {
                    client.get("/about").expect(200);
                }
            }
            client.reset();
            if round % 50 == 0 {
                let turn = round / 50 % polite.len();
                polite[turn].get("/about").expect(200);
            }
        }
        until("the descriptors are back", || {
            descriptors(&server) <= before
        });
        for client in &mut polite {
            assert_eq!(client.get("/large.bin").expect(200).body.len(), LARGE);
        }
    });
}

#[test]
fn eight_hundred_connections_at_once() {
    raise_descriptor_limit();
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut clients: Vec<Client> = (0..800).map(|_| Client::new(&server)).collect();
        for client in &mut clients {
            client.send(head("GET", "/about", &[]));
        }
        for client in &mut clients {
            client.response().expect(200);
        }
        for client in &mut clients {
            client.get("/").expect(200);
        }
    });
}

/// Serves with at most `count` descriptors.
fn serve_with_descriptors(engine: Engine, site: &Folder, count: u32, flags: &[&str]) -> Gannet {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {count} && exec \"$@\""), "sh"])
        .arg(program())
        .args(["--port", "0", "--workers", "2", "--engine", engine.name()])
        .args(flags)
        .arg(site.path());
    Gannet::start(&mut command)
}

/// Files are kept open for later requests, but never so many that others cannot be opened.
#[test]
fn more_files_than_descriptors_are_all_served() {
    let site = Folder::new();
    let seed = |number: usize| (number % 251) as u8;
    for number in 0..600 {
        site.write(format!("{number}.bin"), pattern(40_000, seed(number)));
        site.write(format!("folder-{number}/page.txt"), "text");
    }
    on_both_engines(|engine| {
        let server = serve_with_descriptors(engine, &site, 200, &[]);
        let mut clients: Vec<Client> = (0..8).map(|_| Client::new(&server)).collect();
        for round in 0..2 {
            for number in 0..600 {
                let client = &mut clients[number % 8];
                let body = client.get(&format!("/{number}.bin")).expect(200).body;
                assert_eq!(body.len(), 40_000, "{number} in round {round}");
                assert_pattern(&body, seed(number));
            }
            client_lists(&mut clients[0]);
        }
        assert!(descriptors(&server) < 200, "some are left");
    });
}

/// Lists need a descriptor, too.
fn client_lists(client: &mut Client) {
    for number in (0..600).step_by(50) {
        client.get(&format!("/folder-{number}/")).expect(200);
    }
}

#[test]
fn service_goes_on_when_descriptors_were_short() {
    raise_descriptor_limit();
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = serve_with_descriptors(engine, &site, 100, &[]);
        get(&server, "/about").expect(200);
        let before = descriptors(&server);
        // Each begins a request, so that few connections are idle and can be shed.
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..300 {
            let mut client = Client::new(&server);
            // The server may refuse it.
            let _ = client.try_send("GET /about HTTP/1.1\r\n");
            clients.push(client);
        }
        // Some are served, one after another as descriptors become free; the others are refused.
        let mut served = 0;
        for client in &mut clients {
            let _ = client.try_send("host: a\r\nconnection: close\r\n\r\n");
            served += u32::from(client.rest().0.starts_with(b"HTTP/1.1 200 "));
        }
        assert!(served > 50, "only {served} of 300 were served");
        drop(clients);
        for _ in 0..20 {
            get(&server, "/about").expect(200);
        }
        until("the descriptors are back", || {
            descriptors(&server) <= before
        });
    });
}

#[test]
fn idle_connections_make_room_for_new_ones() {
    raise_descriptor_limit();
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = serve_with_descriptors(engine, &site, 100, &[]);
        // Each new client is served although all earlier ones stay: idle connections are closed for
        // it.
        let mut idle = Vec::new();
        for _ in 0..300 {
            let mut client = Client::new(&server);
            client.get("/about").expect(200);
            idle.push(client);
        }
        let closed = idle.iter_mut().take(100);
        assert!(closed.map(Client::rest).all(|(rest, _)| rest.is_empty()));
    });
}

/// Peers that request much and read nothing exceed the memory: some of them are closed, the process
/// survives, and others are served while the rest stay.
#[test]
fn peers_that_take_nothing_do_not_use_up_memory() {
    raise_descriptor_limit();
    let site = Folder::site();
    let target = |number: usize| format!("/{}.bin", number % 200);
    for number in 0..200 {
        site.write(&target(number)[1..], pattern(30_000, 5));
    }
    on_both_engines(|engine| {
        let flags = ["--max-memory", "32M", "--workers", "2"];
        let flags = [&flags[..], &["--metrics", "127.0.0.1:0"]].concat();
        let server = engine.serve(site.path(), &flags);
        let mut greedy = Vec::new();
        for first in 0..500 {
            let mut client = Client::slow(&server);
            let heads = (first..first + 30).map(|number| head("GET", &target(number), &[]));
            // The server may already have closed it.
            let _ = client.try_send(heads.collect::<Vec<_>>().concat());
            greedy.push(client);
        }
        until("another one is served", || {
            let Ok(mut client) = Client::try_connect(server.address()) else {
                return false;
            };
            let sent = client.try_send(head("GET", "/about", &[]));
            sent.is_ok() && client.head_or_end().is_ok_and(|head| head.status == 200)
        });
        assert!(metric(&server, "gannet_connections_shed_total") > 0);
        drop(greedy);
        until("all is as before", || {
            metric(&server, "gannet_connections") == 0
        });
        get(&server, "/about").expect(200);
    });
}

/// By default caches stay within half of what a limit leaves: no connection makes room for them.
#[test]
fn caches_do_not_use_up_limited_memory() {
    let site = Folder::site();
    let target = |number: usize| format!("/{number}.bin");
    // More than half as much again as the limit.
    let content = pattern(30_000, 5);
    for number in 0..3_400 {
        site.write(&target(number)[1..], &content);
    }
    on_both_engines(|engine| {
        let flags = ["--max-memory", "64M", "--workers", "1"];
        let flags = [&flags[..], &["--metrics", "127.0.0.1:0"]].concat();
        let server = engine.serve(site.path(), &flags);
        let mut idle: Vec<Client> = (0..50).map(|_| Client::new(&server)).collect();
        for client in &mut idle {
            client.get("/about").expect(200);
        }
        let mut busy = Client::new(&server);
        for number in 0..3_400 {
            // Most are cached at the second request.
            busy.get(&target(number)).expect(200);
            busy.get(&target(number)).expect(200);
        }
        assert_eq!(metric(&server, "gannet_connections_shed_total"), 0);
        for client in &mut idle {
            client.get("/about").expect(200);
        }
    });
}

#[test]
fn connections_beyond_the_limit_wait_or_replace_idle_ones() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let flags = ["--max-connections", "4", "--workers", "1"];
        let server = engine.serve(site.path(), &flags);
        let mut clients: Vec<Client> = (0..20).map(|_| Client::new(&server)).collect();
        // The last clients are served, in place of idle ones.
        for client in &mut clients[16..] {
            client.get("/about").expect(200);
        }
    });
}

/// Sends requests on one connection until `is_over`: a client that must not notice anything.
fn be_polite(server: &Gannet, is_over: impl Fn() -> bool) {
    let mut client = Client::new(server);
    let mut count = 0;
    while !is_over() || count == 0 {
        client.get("/about").expect(200);
        count += 1;
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Runs `check` while a polite client is served.
fn beside_a_polite_client(server: &Gannet, check: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let checking = scope.spawn(check);
        be_polite(server, || checking.is_finished());
        assert!(checking.join().is_ok());
    });
}

/// What is late the simulator shows (`gannet-server/tests/sim/directed.rs`); here each flag has its effect,
/// and no other.
#[test]
fn who_is_late_has_the_time_of_the_flags() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let heads = engine.serve(site.path(), &["--head-timeout", "2s"]);
        let idle = engine.serve(site.path(), &["--idle-timeout", "1s"]);
        let mut patient = Client::new(&idle);
        patient.send("GET /about HTTP/1.1\r\n");
        let mut slow = Client::new(&heads);
        slow.send("GET /about HTTP/1.1\r\n");
        let told = slow.response().expect(408);
        assert_eq!(told.field("connection"), Some("close"));
        slow.ends();
        patient.send("host: a\r\n\r\n");
        patient.response().expect(200);
        patient.closes();
    });
}

#[test]
fn who_takes_nothing_or_too_little_is_given_up() {
    let site = site_with_large_file();
    on_both_engines(|engine| {
        let serve = |rate: &str| {
            let flags = ["--progress-timeout", "500ms", "--send-rate-min", rate];
            let flags = [&flags[..], &["--metrics", "127.0.0.1:0"]].concat();
            engine.serve(site.path(), &flags)
        };
        let server = serve("0");
        beside_a_polite_client(&server, || {
            let mut stuck = Client::slow(&server);
            stuck.send(head("GET", "/large.bin", &[]));
            until("it is given up", || {
                metric(&server, "gannet_timeouts_total") == 1
            });
            // The received part is correct, and recognisably incomplete.
            let response = stuck.head().expect(200);
            assert_eq!(response.content_length(), Some(LARGE as u64));
            let (got, _) = stuck.rest();
            assert!(got.len() < LARGE);
            assert_pattern(&got, 7);
        });
        let server = serve("1M");
        let mut client = Client::slow(&server);
        client.send(head("GET", "/large.bin", &[]));
        client.head().expect(200);
        let mut got = 0;
        let ended = loop {
            got += client.received().len();
            client.take(client.received().len() as u64);
            thread::park_timeout(Duration::from_millis(100));
            if client.fill().is_some() {
                break got;
            }
        };
        assert!(ended < LARGE, "it got all of it");
    });
}

#[test]
fn a_slow_but_steady_client_gets_everything() {
    let site = Folder::site();
    site.write("medium.bin", pattern(1 << 20, 9));
    on_both_engines(|engine| {
        let flags = ["--progress-timeout", "2s", "--send-rate-min", "500"];
        let server = engine.serve(site.path(), &flags);
        let mut client = Client::slow(&server);
        client.send(head("GET", "/medium.bin", &[]));
        client.head().expect(200);
        let mut got = Vec::new();
        while got.len() < 1 << 20 {
            let len = (16 << 10).min((1 << 20) - got.len());
            got.extend(client.take(len as u64));
            thread::park_timeout(std::time::Duration::from_millis(40));
        }
        assert_pattern(&got, 9);
        // The connection is unaffected.
        client.get("/about").expect(200);
    });
}

#[test]
fn with_a_small_memlock_limit_it_starts() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -l 64 && exec \"$@\"", "sh"])
            .arg(program())
            .args(["--port", "0", "--engine", engine.name()])
            .arg(site.path());
        let server = Gannet::start(&mut command);
        get(&server, "/").expect(200);
    });
}

#[test]
fn without_io_uring_it_falls_back_and_says_why() {
    let site = Folder::site();
    for (errno, name) in [(1, "EPERM"), (38, "ENOSYS")] {
        let Some(mut auto) = without(&[IO_URING_SETUP], errno) else {
            return;
        };
        let serve = |command: &mut Command, engine: &str| {
            command
                .args(["--port", "0", "--engine", engine])
                .arg(site.path());
        };
        serve(&mut auto, "auto");
        let server = Gannet::start(&mut auto);
        let lines = server.start_lines();
        assert!(
            lines.iter().any(|line| line.starts_with("engine   epoll")),
            "{lines:?}"
        );
        let why: Vec<_> = lines
            .iter()
            .filter(|line| line.contains("not io_uring: "))
            .collect();
        assert!(why.len() == 1 && why[0].contains(name), "{lines:?}");
        get(&server, "/").expect(200);
        // An explicit engine is an error at once.
        let mut uring = without(&[IO_URING_SETUP], errno).expect("as before");
        serve(&mut uring, "io_uring");
        let ended = run(&mut uring);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(
            ended.err.starts_with("gannet: ") && ended.err.contains(name),
            "{}",
            ended.err
        );
    }
}

/// A sandbox may deny copies in memory: files are then sent from the disk.
#[test]
fn without_copies_files_are_sent_from_the_disk() {
    let site = Folder::site();
    site.write("medium.bin", pattern(100_000, 3));
    for errno in [1, 13, 38] {
        on_both_engines(|engine| {
            let Some(mut command) = without(&[MEMFD_CREATE], errno) else {
                return;
            };
            command.args(["--port", "0", "--engine", engine.name()]);
            let server = Gannet::start(command.arg(site.path()));
            assert_pattern(&get(&server, "/medium.bin").expect(200).body, 3);
        });
    }
}

/// `--delay`: no response arrives sooner, over TCP, where the simulator shows the rest, and over HTTP/3. The
/// handshakes of TLS and QUIC take a round trip more.
#[test]
fn a_delay_is_the_least_time_of_each_round_trip() {
    const DELAY: Duration = Duration::from_millis(60);
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = Secure::serve(engine, site.path(), &["--delay", "60ms"]);
        let began = Instant::now();
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        client.response().expect(200);
        assert!(began.elapsed() >= 2 * DELAY, "{:?}", began.elapsed());
        let began = Instant::now();
        let mut quic = Quic::begin(server.server.address(), &server.authority);
        assert_eq!(quic.get("/").status, 200);
        assert!(began.elapsed() >= 2 * DELAY, "{:?}", began.elapsed());
    });
}
