//! A site's own pages for errors other than 404.

use std::fs;

use gannet_testkit::client::{Client, Response, ask};
use gannet_testkit::configuration::Configuration;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, gannet_in};

fn site() -> Folder {
    let site = Folder::new();
    site.write("index.html", "front");
    site.write("403.html", "<title>closed</title>");
    site.write("405.html", "<title>no</title>");
    site.write("416.html", "<title>beyond</title>");
    site.write("429.html", "<title>slowly</title>");
    site.write("50x.html", "<title>broken</title>");
    site.write(
        "_headers",
        "/*\n  X-Rule: applies\n  Cache-Control: max-age=9\n",
    );
    site
}

fn pack(site: &Folder, out: &Folder, engine: Engine, flags: &[&str]) -> std::path::PathBuf {
    let path = out.join(format!("{}.gannet", engine.name()));
    let path_text = path.to_str().expect("UTF-8");
    let ended = gannet_in(
        site,
        [&["pack", ".", "-q", "-o", path_text], flags].concat(),
    );
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    path
}

/// It is the site's page, and no cache stores it.
fn check(response: &Response, title: &str) {
    let text = format!("<title>{title}</title>");
    assert_eq!(response.text(), text, "{response:?}");
    let type_ = response.field("content-type");
    assert_eq!(type_, Some("text/html; charset=utf-8"));
    assert_eq!(response.field("cache-control"), Some("no-store"));
    assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.content_length(), Some(text.len() as u64));
}

#[test]
fn directories_and_archives_send_the_sites_pages() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        let stored = pack(&site, &out, engine, &["--compress", "gzip"]);
        for path in [site.path(), &stored] {
            let server = engine.serve(path, &[]);
            let mut client = Client::new(&server);
            let posted = client
                .request("POST", "/", &["content-length: 0"])
                .expect(405);
            check(&posted, "no");
            assert_eq!(posted.field("allow"), Some("GET, HEAD, OPTIONS"));
            assert_eq!(posted.field("x-rule"), Some("applies"));
            let beyond = client
                .request("GET", "/", &["range: bytes=50-"])
                .expect(416);
            check(&beyond, "beyond");
            assert_eq!(beyond.field("content-range"), Some("bytes */5"));
            assert_eq!(beyond.field("x-rule"), Some("applies"));
            let mut peer = Peer::new(&server);
            let beyond = peer.request("GET", "/", &[("range", "bytes=50-")]);
            assert_eq!(beyond.expect(416).body, b"<title>beyond</title>");
            // By itself it is a page like any other.
            assert_eq!(
                client.get("/403").expect(200).text(),
                "<title>closed</title>"
            );
            let missing = client.get("/none").expect(404);
            assert!(missing.text().contains("There is nothing at this address."));
        }
    });
}

/// The policy that the packer makes for a page goes with it.
#[test]
fn the_policy_of_a_packed_page_is_sent() {
    on_both_engines(|engine| {
        let (site, out) = (Folder::new(), Folder::new());
        site.write("index.html", "front");
        site.write("405.html", "<style>p{color:red}</style><p>no");
        let stored = pack(&site, &out, engine, &["--csp", "enforce"]);
        let server = engine.serve(stored, &[]);
        let own = ask(&server, "GET", "/405", &[]).expect(200);
        let policy = own.field("content-security-policy").expect("a policy");
        let posted = ask(&server, "POST", "/", &["content-length: 0"]).expect(405);
        assert_eq!(posted.field("content-security-policy"), Some(policy));
    });
}

#[test]
fn refused_clients_get_the_sites_pages() {
    on_both_engines(|engine| {
        let site = site();
        let flags = ["--trust", "loopback", "--deny", "198.51.100.0/24"];
        let limit = Configuration::new("client.requests = '1/h,burst=1'");
        let server = engine.serve(site.path(), &[&flags[..], &limit.flags()].concat());
        let by = |server: &Gannet, address: &str| {
            let line = format!("X-Forwarded-For: {address}");
            ask(server, "GET", "/", &[&line])
        };
        check(&by(&server, "198.51.100.7").expect(403), "closed");
        by(&server, "203.0.113.1").expect(200);
        let limited = by(&server, "203.0.113.1").expect(429);
        check(&limited, "slowly");
        assert!(limited.field("retry-after").is_some());
    });
}

/// A page is in memory: it is sent when the directory is gone. A new text is read.
#[test]
fn a_page_outlives_its_directory_and_follows_its_file() {
    on_both_engines(|engine| {
        let site = site();
        let dist = site.join("dist");
        fs::create_dir(&dist).expect("made");
        fs::write(dist.join("503.html"), "<title>back soon</title>").expect("written");
        fs::write(dist.join("405.html"), "one").expect("written");
        let server = engine.serve(&dist, &["--workers", "1"]);
        let mut client = Client::new(&server);
        let mut posted = || {
            let posted = client.request("POST", "/", &["content-length: 0"]);
            posted.expect(405).text().to_owned()
        };
        assert_eq!(posted(), "one");
        fs::write(dist.join("405.html"), "two").expect("written");
        until("the new page is sent", || posted() == "two");
        fs::remove_file(dist.join("405.html")).expect("removed");
        until("the built-in page is sent", || {
            posted().contains("can be read")
        });
        fs::rename(&dist, site.join("elsewhere")).expect("moved");
        let mut last = None;
        until("the directory is missed", || {
            let answer = ask(&server, "GET", "/x", &[]);
            let is_missed = answer.status == 503;
            last = Some(answer);
            is_missed
        });
        let last = last.expect("an answer");
        check(&last, "back soon");
        assert!(last.field("retry-after").is_some());
    });
}

/// A page that is too long or leads out of the site is reported, and the built-in one is sent.
#[test]
fn pages_that_cannot_be_used_are_reported() {
    on_both_engines(|engine| {
        let (site, other) = (Folder::new(), Folder::new());
        site.write("index.html", "front");
        site.write("405.html", vec![b'x'; 65_537]);
        other.write("secret", "secret");
        std::os::unix::fs::symlink(other.join("secret"), site.join("416.html")).expect("linked");
        let server = engine.serve(site.path(), &[]);
        let posted = ask(&server, "POST", "/", &["content-length: 0"]).expect(405);
        assert!(posted.text().contains("can be read"));
        let beyond = ask(&server, "GET", "/", &["range: bytes=50-"]).expect(416);
        assert!(!beyond.text().contains("secret"));
        let ended = server.stop();
        for name in ["405.html", "416.html"] {
            let told = format!("cannot use the error page '{}'", site.join(name).display());
            assert!(ended.err.contains(&told), "{}", ended.err);
        }
    });
}
