//! What a few bytes of requests can cost the server, and whether other clients are delayed.
//!
//! A delay is what a worker computes between a request and its answer: how busy the machine is does not matter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gannet_testkit::client::{Client, head, metric};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, command, gannet_in, run};

/// Memory of a process in bytes; shared memory counts proportionally.
fn memory(server: &Gannet) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", server.pid());
    let text = fs::read_to_string(path).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.expect("a size")
        .trim()
        .parse::<u64>()
        .expect("a number")
        << 10
}

/// Where the kernel counts what each of two workers computes.
fn workers(server: &Gannet) -> Vec<PathBuf> {
    let tasks = format!("/proc/{}/task", server.pid());
    let mut workers = Vec::new();
    // A listing may miss a thread if another one ends meanwhile.
    until("both workers are found", || {
        let tasks = fs::read_dir(&tasks).expect("it runs").flatten();
        let is_worker = |task: &PathBuf| {
            let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
            matches!(name.trim(), "gannet-0" | "gannet-1")
        };
        workers = tasks.map(|task| task.path()).filter(is_worker).collect();
        workers.len() == 2
    });
    workers
}

/// What a worker has computed.
fn processor_time(worker: &Path) -> Duration {
    let text = fs::read_to_string(worker.join("schedstat")).expect("a worker stays");
    let computed = text.split(' ').next().expect("a field");
    Duration::from_nanos(computed.parse().expect("nanoseconds"))
}

/// The most that a worker computed while a client waited for a cached file, until `is_over`.
fn longest_wait(server: &Gannet, mut is_over: impl FnMut() -> bool) -> Duration {
    let workers = workers(server);
    let times = || workers.iter().map(|it| processor_time(it));
    let mut other = Client::new(server);
    let mut longest = Duration::ZERO;
    while !is_over() {
        let before: Vec<Duration> = times().collect();
        other.get("/hot").expect(200);
        for (now, before) in times().zip(before) {
            longest = longest.max(now - before);
        }
    }
    longest
}

fn check_wait(what: &str, longest: Duration, bound_ms: u64) {
    let most = Duration::from_millis(bound_ms);
    assert!(
        longest <= most,
        "{what}: {longest:?} were computed while another client waited"
    );
}

#[test]
fn a_flood_of_listings_costs_one_page() {
    let site = Folder::new();
    site.write("hot", "hot");
    for number in 0..20_000 {
        site.write(format!("many/a-name-of-usual-length-{number}.txt"), "");
    }
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "2", "--metrics", "127.0.0.1:0"]);
        gannet_testkit::client::get(&server, "/hot").expect(200);
        let before = memory(&server);
        // Clients that read no answers.
        let plain: Vec<Client> = (0..200)
            .map(|number| {
                let method = if number % 2 == 0 { "GET" } else { "HEAD" };
                let mut client = Client::new(&server);
                client.send(head(method, "/many/", &[]));
                client
            })
            .collect();
        let streams: Vec<Peer> = (0..2)
            .map(|_| {
                let mut peer = Peer::new(&server);
                for _ in 0..128 {
                    peer.ask("GET", "/many/", &[]);
                }
                peer
            })
            .collect();
        let answered = || metric(&server, "gannet_responses_total{status=\"200\"}") >= 200 + 256;
        check_wait("listings", longest_wait(&server, answered), 250);
        let more = memory(&server).saturating_sub(before);
        assert!(more <= 64 << 20, "{more} bytes more");
        let made = metric(&server, "gannet_listings_made_total");
        assert!(made <= 20, "{made} pages were made");
        drop((plain, streams));
    });
}

#[test]
fn a_flood_of_cold_files_holds_nobody_up() {
    const COUNT: usize = 100;
    let site = Folder::new();
    site.write("hot", "hot");
    for number in 0..COUNT {
        // A sparse file: nothing is read from disk.
        let file = fs::File::create(site.join(format!("cold-{number}"))).expect("a new file");
        file.set_len(4 << 20).expect("a length");
    }
    on_both_engines(|engine| {
        let flags = [
            "--workers",
            "2",
            "--metrics",
            "127.0.0.1:0",
            "--cache-memory",
            "32M",
        ];
        let server = engine.serve(site.path(), &flags);
        gannet_testkit::client::get(&server, "/hot").expect(200);
        let reads = || metric(&server, "gannet_first_reads_total");
        let before = reads();
        let ask = |method: &str, fields: &[&str]| -> Vec<Client> {
            let each = (0..COUNT).map(|number| {
                let mut client = Client::new(&server);
                client.send(head(method, &format!("/cold-{number}"), fields));
                client
            });
            each.collect()
        };
        for mut client in ask("HEAD", &[]) {
            client.head().expect(200);
        }
        for mut client in ask("GET", &["range: bytes=0-0"]) {
            client.response().expect(206);
        }
        assert_eq!(reads(), before, "nothing is copied for metadata or a byte");
        let held = memory(&server);
        let mut clients = ask("GET", &["range: bytes=0-0"]);
        let mut read = 0;
        let longest = longest_wait(&server, || {
            clients[read].response().expect(206);
            read += 1;
            read == COUNT
        });
        check_wait("cold files", longest, 100);
        for client in &mut ask("GET", &[]) {
            client.head().expect(200);
        }
        assert!(reads() > before);
        let more = memory(&server).saturating_sub(held);
        assert!(more <= 128 << 20, "{more} bytes more");
    });
}

#[test]
fn accounts_are_among_the_metrics() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "2", "--metrics", "127.0.0.1:0"]);
        let mut client = Client::new(&server);
        client.send("GET /about HTTP/1.1\r\nhost: te");
        until("a part of a request is held", || {
            metric(&server, "gannet_held_bytes{account=\"input\"}") > 0
        });
        let bound = "gannet_held_bytes_bound{account=\"input\",per=\"connection\"}";
        let peak = "gannet_held_bytes_peak{account=\"input\",per=\"connection\"}";
        assert!((1..metric(&server, bound)).contains(&metric(&server, peak)));
        client.send("st\r\n\r\n");
        client.response().expect(200);
        until("it is let go", || {
            metric(&server, "gannet_held_bytes{account=\"input\"}") == 0
        });
    });
}

/// The caches and what may be copied of archives, now or later, are within `--cache-memory` together;
/// caches have the rest, and the parts of sites that nobody asks for are not set aside.
#[test]
fn caches_and_copies_of_archives_share_the_memory() {
    const MIB: u64 = 1 << 20;
    let site = Folder::site();
    let archives = Folder::new();
    let archive = archives.join("site.gannet");
    let mut pack = command();
    pack.args(["pack", "--fast", "-q", "-o"]);
    run(pack.arg(&archive).arg(site.path())).success();
    let hosts = Folder::new();
    for host in ["a.test", "b.test"] {
        hosts.write(format!("{host}/index.html"), host);
    }
    on_both_engines(|engine| {
        let caches = |path: &Path, flags: &[&str]| {
            let usual = ["--metrics", "127.0.0.1:0", "--cache-memory", "64M"];
            let server = engine.serve(path, &[&usual[..], flags].concat());
            let bound = "gannet_held_bytes_bound{account=\"copies\"}";
            // Half as much besides is for what has left the caches and is still being sent.
            metric(&server, bound) / 3 * 2
        };
        let two = caches(site.path(), &["--workers", "2"]);
        assert_eq!(two, 64 * MIB, "of both workers");
        assert_eq!(caches(site.path(), &["--workers", "1"]), 64 * MIB);
        assert_eq!(caches(&archive, &["--workers", "1"]), 32 * MIB);
        let hosted = ["--workers", "1", "--hosts"];
        assert_eq!(caches(hosts.path(), &hosted), 64 * MIB, "no archive yet");
    });
}

/// Sites that are open have the share of archives as well, until one is copied.
#[test]
fn caches_make_room_for_the_first_archive_of_a_folder_of_hosts() {
    const MIB: u64 = 1 << 20;
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("hosts/a.test/index.html", "site a");
        folder.write("page/index.html", "packed");
        let flags = [
            "--hosts",
            "--workers",
            "2",
            "--metrics",
            "127.0.0.1:0",
            "--cache-memory",
            "64M",
        ];
        let server = engine.serve(folder.join("hosts"), &flags);
        let bound = || metric(&server, "gannet_held_bytes_bound{account=\"copies\"}");
        let text = |host: &str| {
            let mut client = Client::new(&server);
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.response().text().to_owned()
        };
        assert_eq!(text("a.test"), "site a");
        assert_eq!(bound(), 64 * MIB * 3 / 2);
        gannet_in(
            &folder,
            ["pack", "--fast", "-q", "page", "-o", "hosts/b.test.gannet"],
        )
        .success();
        until("it comes", || text("b.test") == "packed");
        assert_eq!(bound(), 32 * MIB * 3 / 2);
        assert_eq!(text("a.test"), "site a");
    });
}

/// A value in KiB from the process status, in bytes.
fn status_bytes(server: &Gannet, name: &str) -> u64 {
    let path = format!("/proc/{}/status", server.pid());
    let text = fs::read_to_string(path).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.expect("a size")
        .trim()
        .parse::<u64>()
        .expect("a number")
        << 10
}

#[test]
fn without_memory_clients_are_refused_and_the_server_goes_on() {
    let site = Folder::new();
    site.write("hot", "hot");
    site.write("large", vec![b'x'; 8 << 20]);
    on_both_engines(|engine| {
        let free = engine.serve(site.path(), &["--workers", "2"]);
        gannet_testkit::client::get(&free, "/hot").expect(200);
        for (limit, measure) in [("-v", "VmSize:"), ("-d", "VmData:")] {
            let kib = (status_bytes(&free, measure) + (24 << 20)) >> 10;
            let script = format!("ulimit {limit} {kib} && exec \"$@\"");
            let mut command = Command::new("sh");
            command
                .args(["-c", &script, "sh"])
                .arg(env!("CARGO_BIN_EXE_gannet"))
                .args(["--port", "0", "--workers", "2", "--engine", engine.name()])
                .arg(site.path());
            let server = Gannet::start(&mut command);
            let pipelined = head("GET", "/hot", &[]).repeat(2_000);
            // Each client leaves an answer unread, with requests queued behind it.
            let clients: Vec<Client> = (0..600)
                .filter_map(|_| {
                    let mut client = Client::try_connect(server.address()).ok()?;
                    // The server may refuse it.
                    let _ = client.try_send(head("GET", "/large", &[]) + &pipelined[..50_000]);
                    Some(client)
                })
                .collect();
            assert!(clients.len() > 100, "{} connected", clients.len());
            drop(clients);
            until("the next one is served", || {
                let Ok(mut client) = Client::try_connect(server.address()) else {
                    return false;
                };
                let is_sent = client.try_send(head("GET", "/hot", &["connection: close"]));
                is_sent.is_ok() && client.rest().0.ends_with(b"\r\n\r\nhot")
            });
            server.stop();
        }
    });
}
