//! Short copies that share huge pages are sent to their ends, and no further, over every transport.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_testkit::client::Client;
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::tls::Secure;
use gannet_testkit::versions::Versions;
use gannet_testkit::{Folder, Gannet, left_out};

/// Enough for some pages, beyond the 4 MiB that have memory of their own.
const FILES: usize = 150;

/// Longer than what is kept without a copy. Each has a length of its own, and few end where the next part begins.
fn content(file: usize) -> Vec<u8> {
    pattern(60_000 + file * 7, file as u8)
}

/// The files, and a longer one whose copy has huge pages alone. They have not changed for as long as it takes to be
/// copied.
fn site() -> Folder {
    let site = Folder::new();
    for file in 0..FILES {
        site.write(format!("{file}.bin"), content(file));
    }
    let last = site.write("long.bin", pattern(4 << 20, 5));
    let changed = fs::metadata(last).expect("ours").ctime();
    until("the files are settled", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("after 1970").as_secs() as i64 > changed + 2
    });
    site
}

/// Pages that copies of this server share.
fn shared_pages(server: &Gannet) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let names = open.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    names
        .filter(|name| name.as_os_str() == "/memfd:gannet-files (deleted)")
        .count()
}

/// Whether the kernel has made a huge page of any memory that is a file.
fn has_huge_pages() -> bool {
    let all = fs::read_to_string("/proc/meminfo").expect("Linux has it");
    let line = all
        .lines()
        .find_map(|it| it.strip_prefix("ShmemHugePages:"));
    line.is_some_and(|line| !line.trim_start().starts_with("0 "))
}

/// Answers of one connection for each version: to a path, and a range.
type Ask<'a> = &'a mut dyn FnMut(&str, Option<&str>) -> Vec<(u16, Vec<u8>)>;

fn check(server: &Gannet, ask: Ask<'_>) {
    let mut expect = |path: &str, range: Option<&str>, body: &[u8]| {
        let status = if range.is_some() { 206 } else { 200 };
        for (version, got) in ask(path, range).into_iter().enumerate() {
            assert_eq!(got.0, status, "{path} {range:?}, {version}");
            assert!(got.1 == body, "{path} {range:?}, {version}: wrong bytes");
        }
    };
    for _ in 0..2 {
        expect("/long.bin", None, &pattern(4 << 20, 5));
    }
    if !has_huge_pages() {
        return left_out("huge pages", "the kernel has none for a memfd");
    }
    for file in [0..FILES, 0..FILES].into_iter().flatten() {
        expect(&format!("/{file}.bin"), None, &content(file));
    }
    let pages = shared_pages(server);
    assert!(pages >= 2, "{pages} are shared");
    for file in 0..FILES {
        let content = content(file);
        let len = content.len();
        let mut part = |range: String, body: &[u8]| {
            expect(
                &format!("/{file}.bin"),
                Some(&format!("bytes={range}")),
                body,
            );
        };
        part("0-0".to_owned(), &content[..1]);
        part("-1".to_owned(), &content[len - 1..]);
        part(
            format!("{}-{}", len - 100, len + 100),
            &content[len - 100..],
        );
        part(
            format!("{}-{}", len - 100, len - 2),
            &content[len - 100..len - 1],
        );
        part(format!("1-{}", len - 1), &content[1..]);
    }
    assert!(shared_pages(server) >= pages, "they are still in use");
}

fn clear(server: &Gannet) {
    let (mut one, mut two) = (Client::new(server), Peer::new(server));
    check(server, &mut |path, range| {
        let line = range.map(|range| format!("range: {range}"));
        let lines: Vec<_> = line.iter().map(String::as_str).collect();
        let fields: Vec<_> = range.iter().map(|range| ("range", *range)).collect();
        let one = one.request("GET", path, &lines);
        let two = two.request("GET", path, &fields);
        vec![(one.status, one.body), (two.status, two.body)]
    });
}

fn secure(secure: &Secure) {
    let mut all = Versions::new(secure);
    check(&secure.server, &mut |path, range| {
        let fields: Vec<_> = range.iter().map(|range| ("range", *range)).collect();
        let answers = all.request("GET", path, &fields);
        answers.map(|it| (it.status, it.body)).into()
    });
}

#[test]
fn copies_that_share_pages_are_sent_to_their_ends() {
    let site = site();
    let site: &Path = site.path();
    // A quarter of a worker's room is for such pages.
    let flags = ["--workers", "1", "--cache-memory", "128M"];
    on_both_engines(|engine| {
        clear(&engine.serve(site, &flags));
        secure(&Secure::serve(engine, site, &flags));
    });
}
