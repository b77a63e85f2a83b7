//! Kernel TLS from the client's side. Without support in the running kernel, each test is left out;
//! `cargo xtask vm` runs them on kernels that have it.

use std::fs;
use std::path::Path;

use gannet_testkit::client::{Client, End, head, metric};
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::until;
use gannet_testkit::tls::{Secure, connection};
use gannet_testkit::{Folder, gannet_in, left_out};

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];
const ENCRYPTED: &str = "gannet_tls_kernel_connections_total";
const UPDATED: &str = "gannet_tls_kernel_key_updates_total";

/// Serves with kernel TLS; `None` if it is unavailable: the test is left out.
fn serve(engine: Engine, path: &Path) -> Option<Secure> {
    serve_with(engine, path, &[])
}

/// The same with more flags.
fn serve_with(engine: Engine, path: &Path, flags: &[&str]) -> Option<Secure> {
    let secure = Secure::serve(engine, path, &[flags, &METRICS].concat());
    let lines = secure.server.start_lines();
    if lines
        .iter()
        .any(|line| line.contains("the kernel encrypts large bodies"))
    {
        return Some(secure);
    }
    let mut lines = lines.iter();
    let why = lines.find_map(|line| Some(line.split_once("without kernel TLS: ")?.1));
    left_out("kernel TLS", why.expect("a reason is given"));
    None
}

/// Waits until so many connections are encrypted by the kernel: a busy worker reports late.
fn await_encrypted(secure: &Secure, connections: u64) {
    let what = format!("the kernel encrypts for {connections}");
    until(&what, || metric(&secure.server, ENCRYPTED) == connections);
}

/// The kernel's count of sockets it has encrypted for.
fn encrypted_by_kernel() -> u64 {
    let text = fs::read_to_string("/proc/net/tls_stat").expect("the module is loaded");
    text.lines()
        .find_map(|line| line.strip_prefix("TlsTxSw")?.trim().parse().ok())
        .expect("the count exists")
}

/// Packs everything in the folder into an archive in it.
fn pack(site: &Folder) -> std::path::PathBuf {
    let archive = site.join("site.gannet");
    let path = archive.to_str().expect("UTF-8");
    let ended = gannet_in(site, ["pack", ".", "-o", path, "--compress", "none"]);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    archive
}

/// A client with the smallest receive buffer: the server's sends are short.
fn narrow(secure: &Secure) -> Client {
    Client::slow(&secure.server).over_tls(connection(&secure.config, "localhost"))
}

#[test]
fn bodies_of_all_sizes_from_archive_and_directory() {
    let site = Folder::site();
    let sizes = [
        1, 1000, 16_385, 65_535, 65_536, 125_000, 1_000_000, 2_000_000,
    ];
    for size in sizes {
        site.write(format!("f/{size}.bin"), pattern(size, size as u8));
    }
    let archive = pack(&site);
    on_both_engines(|engine| {
        for path in [site.path(), &archive] {
            let Some(secure) = serve(engine, path) else {
                return;
            };
            let before = encrypted_by_kernel();
            let mut client = secure.connect();
            for size in sizes {
                let target = format!("/f/{size}.bin");
                let got = client.get(&target).expect(200);
                assert_eq!(got.body.len(), size);
                assert_pattern(&got.body, size as u8);
                // Small bodies do not trigger the handover.
                await_encrypted(&secure, u64::from(size >= 65_536));
            }
            assert!(encrypted_by_kernel() > before, "the kernel counts it too");
            // Small bodies, ranges and heads still work, also pipelined.
            let range = client.request("GET", "/f/2000000.bin", &["range: bytes=1300000-1499999"]);
            let expect = &pattern(2_000_000, 2_000_000u32 as u8)[1_300_000..1_500_000];
            assert!(range.expect(206).body == expect, "another range");
            client.request("HEAD", "/f/2000000.bin", &[]).expect(200);
            client.send(
                sizes
                    .map(|size| head("GET", &format!("/f/{size}.bin"), &[]))
                    .concat(),
            );
            for size in sizes {
                assert_pattern(&client.response().expect(200).body, size as u8);
            }
            await_encrypted(&secure, 1);
            let last = client.request("GET", "/f/125000.bin", &["connection: close"]);
            assert_pattern(&last.body, 125_000u32 as u8);
            // With the close_notify encrypted by the kernel.
            client.closes();
        }
    });
}

#[test]
fn a_narrow_client_gets_every_byte() {
    let site = Folder::site();
    let len = 400_000;
    site.write("big.bin", pattern(len, 5));
    let archive = pack(&site);
    on_both_engines(|engine| {
        for path in [site.path(), &archive] {
            let Some(secure) = serve(engine, path) else {
                return;
            };
            let mut client = narrow(&secure);
            for _ in 0..2 {
                let got = client.get("/big.bin").expect(200);
                assert_eq!(got.body.len(), len);
                assert_pattern(&got.body, 5);
            }
            await_encrypted(&secure, 1);
        }
    });
}

/// The last records of a connection, and those that announce new keys, find the socket of a narrow
/// client full: they are still delivered, in order, followed by the end.
#[test]
fn a_narrow_client_gets_new_keys_and_a_goodbye() {
    let site = Folder::site();
    let len = 3_000_000;
    site.write("big.bin", pattern(len, 5));
    let can_update = gannet_io::ktls::probe().is_ok_and(|support| support.can_update_keys);
    on_both_engines(|engine| {
        let Some(secure) = serve_with(engine, site.path(), &["--tls-key-records", "256"]) else {
            return;
        };
        for _ in 0..6 {
            let mut client = narrow(&secure);
            if can_update {
                // Each has 184 records, plus one per send: keys change in the middle.
                assert_pattern(&client.get("/big.bin").expect(200).body, 5);
            }
            let last = client.request("GET", "/big.bin", &["connection: close"]);
            assert_eq!(last.body.len(), len);
            assert_pattern(&last.body, 5);
            client.closes();
        }
        await_encrypted(&secure, 6);
        assert_eq!(metric(&secure.server, UPDATED) >= 6, can_update);
    });
}

/// The client requests a new key in the middle of a body, and then a page. A capable kernel updates its
/// key; an older one ends the connection gracefully after the answer that is being sent, or, if all of
/// it was sent before the server read the request for a key, after the next.
#[test]
fn a_key_update_that_the_client_asks_for() {
    let site = Folder::site();
    let len = 16_000_000;
    let big = pattern(len, 7);
    site.write("big.bin", &big);
    site.write("next.bin", pattern(300_000, 8));
    let can_update = gannet_io::ktls::probe().is_ok_and(|support| support.can_update_keys);
    on_both_engines(|engine| {
        let Some(secure) = serve(engine, site.path()) else {
            return;
        };
        let mut client = secure.connect();
        client.send(head("GET", "/big.bin", &[]));
        client.head();
        assert_pattern(&client.take(100_000), 7);
        let tls = &mut client.secure().conn;
        tls.refresh_traffic_keys().expect("TLS 1.3");
        client.send(head("GET", "/about", &[]));
        let rest = client.take(len as u64 - 100_000);
        assert!(rest[..] == big[100_000..], "other bytes");
        await_encrypted(&secure, 1);
        if can_update {
            client.response().expect(200);
            assert_pattern(&client.get("/next.bin").expect(200).body, 8);
            until("new keys", || metric(&secure.server, UPDATED) >= 1);
            return;
        }
        match client.head_or_end() {
            Ok(last) => {
                client.take(last.content_length().expect("a length"));
                client.closes();
            }
            Err(end) => assert_eq!(end, End::Closed),
        }
        assert_eq!(metric(&secure.server, UPDATED), 0);
    });
}

/// Few records per key: a capable kernel updates its key as often as necessary. With an older one,
/// the connection ends after an answer, or in the middle of one that is too long.
#[test]
fn a_used_key_is_replaced_or_the_connection_ends() {
    let site = Folder::site();
    let (len, huge) = (3_000_000, 10_000_000);
    site.write("big.bin", pattern(len, 7));
    site.write("huge.bin", pattern(huge, 9));
    let can_update = gannet_io::ktls::probe().is_ok_and(|support| support.can_update_keys);
    on_both_engines(|engine| {
        let Some(secure) = serve_with(engine, site.path(), &["--tls-key-records", "256"]) else {
            return;
        };
        let mut client = secure.connect();
        assert_pattern(&client.get("/big.bin").expect(200).body, 7);
        assert_pattern(&client.get("/big.bin").expect(200).body, 7);
        if can_update {
            let got = client.get("/huge.bin").expect(200);
            assert_eq!(got.body.len(), huge);
            assert_pattern(&got.body, 9);
            client.get("/about").expect(200);
            until("new keys", || metric(&secure.server, UPDATED) >= 3);
            return;
        }
        // Gracefully, with close_notify.
        client.closes();
        let mut client = secure.connect();
        client.send(head("GET", "/huge.bin", &[]));
        client.head();
        let (got, end) = client.rest();
        assert_ne!(end, End::Closed, "this must not look like an end");
        assert!(got.len() > 4_000_000 && got.len() < huge);
        assert!(got[..] == pattern(huge, 9)[..got.len()], "other bytes");
        assert_eq!(metric(&secure.server, UPDATED), 0);
    });
}

/// A file truncated while it is sent: only true bytes arrive, and the end is recognisable as a
/// truncation.
#[test]
fn a_file_or_an_archive_that_shrinks_ends_short() {
    let site = Folder::new();
    let len = 20_000_000;
    site.write("big.bin", pattern(len, 3));
    let archive = pack(&site);
    on_both_engines(|engine| {
        for (source, name) in [
            (site.join("big.bin"), "big.bin"),
            (archive.clone(), "a.gannet"),
        ] {
            let own = Folder::new();
            let copy = own.join(name);
            fs::copy(&source, &copy).expect("copied");
            let path = if name == "big.bin" { own.path() } else { &copy };
            // An archive is then mapped, not copied.
            let flags = ["--cache-memory", "0"];
            let Some(secure) = serve_with(engine, path, &flags) else {
                return;
            };
            let mut client = secure.connect();
            client.send(head("GET", "/big.bin", &[]));
            client.head();
            assert_pattern(&client.take(100_000), 3);
            await_encrypted(&secure, 1);
            let file = fs::OpenOptions::new()
                .write(true)
                .open(&copy)
                .expect("opened");
            file.set_len(2_000_000).expect("truncated");
            let (rest, end) = client.rest();
            assert_ne!(end, End::Closed, "truncation must not look like an end");
            assert!(rest.len() < len - 100_000);
            assert!(
                rest[..] == pattern(len, 3)[100_000..100_000 + rest.len()],
                "{name}: other bytes"
            );
        }
    });
}

/// Without kernel TLS, the answers are the same.
#[test]
fn switched_off_nothing_is_handed_over() {
    let site = Folder::site();
    site.write("big.bin", pattern(300_000, 9));
    on_both_engines(|engine| {
        let flags = ["--ktls", "off", METRICS[0], METRICS[1]];
        let secure = Secure::serve(engine, site.path(), &flags);
        let lines = secure.server.start_lines();
        assert!(
            lines.iter().any(|line| line.contains("switched off")),
            "{lines:#?}"
        );
        let mut client = secure.connect();
        assert_pattern(&client.get("/big.bin").expect(200).body, 9);
        assert_eq!(metric(&secure.server, ENCRYPTED), 0);
    });
}
