//! A disk that fails or hangs affects only the clients that read from it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use gannet_archive::Superblock;

use gannet_testkit::client::{Client, End, get, head, metric};
use gannet_testkit::content::{Numbers, assert_pattern, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::fuse::{Disk, Mounted};
use gannet_testkit::h2::{CANCEL, INTERNAL_ERROR, Peer, rst_stream};
use gannet_testkit::process::until;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, gannet_in};

/// Longer than the cache and the copies allow.
const LARGE: usize = 12 << 20;
/// Requests that were answered from memory.
const HITS: &str = "gannet_cache_hits_total";
/// Up to this offset its disk works.
const GOOD: u64 = 2 << 20;

#[test]
fn a_read_error_in_the_middle_ends_the_response_short() {
    let large = pattern(LARGE, 3);
    on_both_engines(|engine| {
        let Some(disk) = Mounted::new(&[
            ("fine.txt", b"fine", Disk::Good),
            ("large.bin", &large, Disk::BrokenFrom(GOOD)),
        ]) else {
            return;
        };
        let flags = ["--workers", "1", "--metrics", "127.0.0.1:0"];
        let server = engine.serve(disk.path(), &flags);
        let mut other = Client::new(&server);
        other.get("/fine.txt").expect(200);
        let mut client = Client::new(&server);
        client.send(head("GET", "/large.bin", &[]));
        let announced = client.head().expect(200).content_length();
        assert_eq!(announced, Some(LARGE as u64));
        let (got, end) = client.rest();
        assert!(got.len() as u64 <= GOOD, "nothing was read beyond {GOOD}");
        assert_pattern(&got, 3);
        assert_eq!(end, End::Reset);
        assert_eq!(metric(&server, "gannet_responses_cut_short_total"), 1);
        assert_eq!(other.get("/fine.txt").expect(200).body, b"fine");
        // The readable part is served.
        let range = format!("range: bytes=0-{}", GOOD / 2 - 1);
        let part = gannet_testkit::client::ask(&server, "GET", "/large.bin", &[&range]).expect(206);
        assert_pattern(&part.body, 3);
    });
}

/// The client is cut off, and the operator learns which file that was.
#[test]
fn a_read_error_in_the_middle_is_reported() {
    let large = pattern(LARGE, 3);
    on_both_engines(|engine| {
        let Some(disk) = Mounted::new(&[("large.bin", &large, Disk::BrokenFrom(GOOD))]) else {
            return;
        };
        let found = fs::metadata(disk.path().join("large.bin")).expect("it is there");
        let expect = format!(
            "gannet: cannot read the rest of a file (inode {}): input/output error (EIO): an answer was cut \
             short\nhelp: the disk or its cable is failing: see 'dmesg'; 'find FOLDER -inum INODE' finds \
             the file in the folder of its site\ngannet: and 1 more in the last minute: requests for what \
             cannot be read\n",
            found.ino()
        );
        for is_h2 in [false, true] {
            let server = engine.serve(disk.path(), &["--workers", "1"]);
            for _ in 0..2 {
                if is_h2 {
                    let broken = Peer::new(&server).get("/large.bin");
                    assert_eq!(broken.reset, Some(INTERNAL_ERROR));
                    continue;
                }
                let mut client = Client::new(&server);
                client.send(head("GET", "/large.bin", &[]));
                client.head().expect(200);
                assert_eq!(client.rest().1, End::Reset);
            }
            assert_eq!(server.stop().err, expect, "HTTP/2: {is_h2}");
        }
    });
}

#[test]
fn a_small_file_that_cannot_be_read_is_an_error_of_the_server() {
    on_both_engines(|engine| {
        let Some(disk) = Mounted::new(&[
            ("fine.txt", b"fine", Disk::Good),
            ("small.txt", b"never seen", Disk::BrokenFrom(0)),
        ]) else {
            return;
        };
        let server = engine.serve(disk.path(), &["--workers", "1"]);
        get(&server, "/small.txt").expect(500);
        assert_eq!(get(&server, "/fine.txt").expect(200).body, b"fine");
    });
}

#[test]
fn a_slow_disk_delays_only_its_own_readers() {
    let large = pattern(LARGE, 5);
    on_both_engines(|engine| {
        let Some(disk) = Mounted::new(&[
            ("fine.txt", b"fine", Disk::Good),
            ("large.bin", &large, Disk::SlowFrom(64 << 10)),
            ("small.txt", b"late", Disk::SlowFrom(0)),
            ("name.txt", b"found", Disk::SlowName),
        ]) else {
            return;
        };
        let server = engine.serve(disk.path(), &["--workers", "1"]);
        let _release = disk.release_at_end();
        let mut waiting: Vec<Client> = ["/large.bin", "/small.txt", "/name.txt"]
            .iter()
            .map(|target| {
                let mut client = Client::new(&server);
                client.send(head("GET", target, &[]));
                client
            })
            .collect();
        until("all three hang", || disk.hanging() >= 3);
        // There is one worker: if it waited for the disk, no client would be answered.
        let mut other = Client::new(&server);
        for _ in 0..100 {
            assert_eq!(other.get("/fine.txt").expect(200).body, b"fine");
            get(&server, "/nothing").expect(404);
        }
        disk.release();
        let large = waiting[0].response().expect(200);
        assert_eq!(large.body.len(), LARGE);
        assert_pattern(&large.body, 5);
        assert_eq!(waiting[1].response().expect(200).body, b"late");
        assert_eq!(waiting[2].response().expect(200).body, b"found");
    });
}

/// A slow file system mounted below a local root delays only requests that need it, however many
/// these are, and even if it was fast before.
#[test]
fn a_slow_disk_below_a_fast_one_delays_only_its_own_readers() {
    on_both_engines(|engine| {
        let site = Folder::new();
        site.write("fine.txt", "fine");
        site.write("folder/page.txt", "page");
        fs::create_dir(site.join("slow")).expect("made");
        let names: Vec<String> = (0..24).map(|number| format!("{number}.txt")).collect();
        let mut files: Vec<(&str, &[u8], Disk)> = names
            .iter()
            .map(|name| (name.as_str(), &b"late"[..], Disk::SlowName))
            .collect();
        files.push(("small.txt", b"late", Disk::SlowFrom(0)));
        let Some(disk) = Mounted::at(&site.join("slow"), &files) else {
            return;
        };
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let _release = disk.release_at_end();
        disk.release();
        assert_eq!(get(&server, "/slow/0.txt").expect(200).body, b"late");
        disk.hold();
        // The lookup is cached, and revalidated on disk from time to time.
        let mut waiting = Vec::new();
        until("the disk is asked again", || {
            let mut client = Client::new(&server);
            client.send(head("GET", "/slow/0.txt", &[]));
            waiting.push(client);
            disk.hanging() >= 1
        });
        for name in names[1..].iter().map(String::as_str).chain(["small.txt"]) {
            let mut client = Client::new(&server);
            client.send(head("GET", &format!("/slow/{name}"), &[]));
            waiting.push(client);
        }
        until("many hang", || disk.hanging() >= 8);
        let mut other = Client::new(&server);
        for round in 0..100 {
            assert_eq!(other.get("/fine.txt").expect(200).body, b"fine");
            get(&server, "/nothing").expect(404);
            let new = format!("new-{round}.txt");
            site.write(&new, "new");
            assert_eq!(other.get(&format!("/{new}")).expect(200).body, b"new");
            // Listings are made by the threads that hang on the slow disk.
            let list = other.get("/folder/").expect(200);
            assert!(list.text().contains("page.txt"));
            let list = other.get("/").expect(200);
            assert!(list.text().contains("slow/"), "{}", list.text());
        }
        disk.release();
        for mut client in waiting {
            assert_eq!(client.response().expect(200).body, b"late");
        }
    });
}

/// After a file was read, a link or a mount puts a slow file system in its path: a worker must not
/// block while checking whether the file is unchanged.
#[test]
fn a_slow_disk_in_the_way_of_a_known_file_delays_only_its_own_readers() {
    on_both_engines(|engine| {
        let site = Folder::new();
        for name in ["fine.txt", "linked/page.txt", "mounted/page.txt"] {
            site.write(name, name);
        }
        let page: &[(&str, &[u8], Disk)] = &[("page.txt", b"late", Disk::SlowName)];
        let Some(outside) = Mounted::new(page) else {
            return;
        };
        let flags = ["--workers", "1", "--metrics", "127.0.0.1:0"];
        // Unmounted only after the server, which may have one of its files open.
        let inside;
        let server = engine.serve(site.path(), &flags);
        // Recent changes are looked up for every request, and not cached.
        for name in ["linked/page.txt", "mounted/page.txt"] {
            until("it is remembered", || {
                let before = metric(&server, HITS);
                let known = get(&server, &format!("/{name}")).expect(200);
                assert_eq!(known.body, name.as_bytes());
                metric(&server, HITS) > before
            });
        }
        fs::rename(site.join("linked"), site.join("before")).expect("moved");
        std::os::unix::fs::symlink(outside.path(), site.join("linked")).expect("made");
        inside = Mounted::at(&site.join("mounted"), page).expect("as the other one");
        let _release = [outside.release_at_end(), inside.release_at_end()];
        let mut other = Client::new(&server);
        until("the link is noticed", || {
            assert_eq!(other.get("/fine.txt").expect(200).body, b"fine.txt");
            get(&server, "/linked/page.txt").status == 404
        });
        assert_eq!(outside.hanging(), 0, "it is not below the root");
        let mut waiting = Vec::new();
        until("the mount is noticed", || {
            assert_eq!(other.get("/fine.txt").expect(200).body, b"fine.txt");
            let mut client = Client::new(&server);
            client.send(head("GET", "/mounted/page.txt", &[]));
            waiting.push(client);
            inside.hanging() >= 1
        });
        assert_eq!(other.get("/fine.txt").expect(200).body, b"fine.txt");
        inside.release();
        let last = waiting.last_mut().expect("it was asked");
        assert_eq!(last.response().expect(200).body, b"late");
    });
}

/// Bodies stored only as gzip are read before they are inflated: a slow read delays only the
/// clients that request them, and concurrent requests share one read.
#[test]
fn a_slow_disk_below_gzip_delays_only_those_who_want_it() {
    let site = Folder::site();
    // Read-ahead from the beginning of the archive ends in this file.
    let noise = pattern(1 << 20, 7);
    site.write("a-noise.bin", &noise);
    let text = |seed: u64| {
        let mut numbers = Numbers(seed);
        let words = (0..60_000).map(|_| format!("{} ", numbers.below(5_000)));
        words.collect::<String>()
    };
    let texts = [text(1), text(2)];
    for (number, text) in texts.iter().enumerate() {
        site.write(format!("text-{number}.txt"), text);
    }
    site.write("fine.txt", "fine");
    let archive = Folder::new();
    let path = archive.join("site.gannet");
    let path = path.to_str().expect("UTF-8");
    let flags = ["--drop-identity", "--fast", "--fresh", "--quiet"];
    let pack = ["pack", ".", "-o", path].into_iter().chain(flags);
    gannet_in(&site, pack.collect::<Vec<_>>()).success();
    let bytes = fs::read(path).expect("it was made");
    let superblock = Superblock::parse(&bytes, bytes.len() as u64).expect("sound");
    let metadata = superblock.metadata_range().start;
    on_both_engines(|engine| {
        let slow = Disk::SlowWithin(noise.len() as u64, metadata);
        let Some(disk) = Mounted::new(&[("site.gannet", &bytes, slow)]) else {
            return;
        };
        let flags = ["--workers", "1", "--cache-memory", "0"];
        let server = engine.serve(disk.path().join("site.gannet"), &flags);
        let _release = disk.release_at_end();
        let mut waiting = [Client::new(&server), Client::new(&server)];
        waiting[0].send(head("GET", "/text-0.txt", &[]));
        until("the first hangs", || disk.hanging() >= 1);
        waiting[1].send(head("GET", "/text-1.txt", &["range: bytes=7-9999"]));
        let mut peer = Peer::new(&server);
        let streams = ["/text-0.txt", "/text-1.txt"].map(|path| peer.ask("GET", path, &[]));
        let mut other = Client::new(&server);
        for _ in 0..100 {
            assert_eq!(other.get("/fine.txt").expect(200).body, b"fine");
            assert_eq!(peer.get("/fine.txt").expect(200).body, b"fine");
        }
        disk.release();
        assert_eq!(waiting[0].response().expect(200).body, texts[0].as_bytes());
        let part = waiting[1].response().expect(206).body;
        assert_eq!(part, &texts[1].as_bytes()[7..10_000]);
        for (stream, text) in streams.into_iter().zip(&texts) {
            assert_eq!(peer.answer(stream).expect(200).body, text.as_bytes());
        }
    });
}

/// HTTP/2 streams of one connection: a hanging or failing read affects only its own stream.
#[test]
fn a_bad_disk_harms_no_other_stream() {
    let large = pattern(LARGE, 5);
    on_both_engines(|engine| {
        for is_secure in [false, true] {
            let Some(disk) = Mounted::new(&[
                ("fine.txt", b"fine", Disk::Good),
                ("fine.bin", &large, Disk::Good),
                ("slow.bin", &large, Disk::SlowFrom(64 << 10)),
                ("slow.txt", b"late", Disk::SlowFrom(0)),
                ("name.txt", b"found", Disk::SlowName),
                ("broken.bin", &large, Disk::BrokenFrom(GOOD)),
                ("broken.txt", b"never seen", Disk::BrokenFrom(0)),
            ]) else {
                return;
            };
            let flags = ["--workers", "1"];
            let (clear, secure);
            let mut peer = if is_secure {
                secure = Secure::serve(engine, disk.path(), &flags);
                Peer::secure(&secure, &[])
            } else {
                clear = engine.serve(disk.path(), &flags);
                Peer::new(&clear)
            };
            let _release = disk.release_at_end();
            let slow = ["/slow.bin", "/slow.txt", "/name.txt"];
            let slow = slow.map(|path| peer.ask("GET", path, &[]));
            until("all three hang", || disk.hanging() >= 3);
            for _ in 0..20 {
                assert_eq!(peer.get("/fine.txt").expect(200).body, b"fine");
                peer.get("/nothing").expect(404);
            }
            assert_eq!(peer.get("/fine.bin").expect(200).body.len(), LARGE);
            peer.get("/broken.txt").expect(500);
            let broken = peer.get("/broken.bin");
            assert_eq!((broken.status, broken.is_ended), (200, false));
            assert_eq!(broken.reset, Some(INTERNAL_ERROR));
            assert!(broken.body.len() as u64 <= GOOD, "nothing beyond {GOOD}");
            assert_pattern(&broken.body, 5);
            // One hanging stream is cancelled; its result is discarded.
            let given_up = peer.ask("GET", "/slow.bin", &[("range", "bytes=3000000-")]);
            peer.send(&rst_stream(given_up, CANCEL));
            peer.sync();
            disk.release();
            let [large, late, found] = slow.map(|stream| peer.answer(stream).expect(200).body);
            assert_eq!(large.len(), LARGE);
            assert_pattern(&large, 5);
            assert_eq!((&late[..], &found[..]), (&b"late"[..], &b"found"[..]));
        }
    });
}
