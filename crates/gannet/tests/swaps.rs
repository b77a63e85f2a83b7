//! Releases of archives: a new one is served without a restart, and the assets of the one before
//! still answer, with their own fields.

#[path = "swaps/store.rs"]
mod store;

use std::fs;
use std::path::{Path, PathBuf};

use gannet_testkit::client::{Client, Response, ask, get};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, gannet_in};

/// Assets with their lengths: in the metadata, small enough for memory, long.
const ASSETS: [(&str, usize); 3] = [("tiny", 13), ("small", 20_000), ("long", 1_500_000)];

/// A file of a release: the number of the release fills it.
fn body(release: u32, len: usize) -> Vec<u8> {
    release.to_string().into_bytes().repeat(len)
}

/// The path of an asset of a release.
fn asset(release: u32, name: &str) -> String {
    format!("/_astro/{name}-{release}.js")
}

/// A folder with a site for each release, and archives of them.
struct Site {
    folder: Folder,
}

impl Site {
    fn new() -> Self {
        Self {
            folder: Folder::new(),
        }
    }

    /// One with the usual files in these releases, and an archive of each.
    fn packed(releases: &[u32]) -> Self {
        let site = Self::new();
        for release in releases {
            site.write_site(*release, "");
            site.pack(*release, &[]);
        }
        site
    }

    /// Writes a file of a release.
    fn write(&self, release: u32, name: &str, content: impl AsRef<[u8]>) {
        self.folder.write(format!("{release}/{name}"), content);
    }

    /// Writes the files that each release has, in a folder of it.
    fn write_site(&self, release: u32, folder: &str) {
        let page = format!("page of release {release}");
        self.write(release, &format!("{folder}index.html"), page);
        for (name, len) in ASSETS {
            let name = format!("{folder}{}", &asset(release, name)[1..]);
            self.write(release, &name, body(release, len));
        }
        self.write(
            release,
            &format!("{folder}_astro/both.js"),
            body(release, 5_000),
        );
        self.write(release, &format!("{folder}plain-{release}.txt"), "no asset");
        let fields = format!("/_astro/*\n  x-release: {release}\n");
        self.write(release, &format!("{folder}_headers"), fields);
    }

    /// Packs a release; returns the archive.
    fn pack(&self, release: u32, flags: &[&str]) -> PathBuf {
        let name = format!("{release}.gannet");
        let source = release.to_string();
        let fixed = ["pack", &source, "--fast", "--fresh", "-q", "-o", &name];
        gannet_in(&self.folder, fixed.iter().chain(flags)).success();
        self.folder.join(name)
    }

    /// A path of its own for the archive that a server serves.
    fn served(&self, engine: Engine, release: u32) -> PathBuf {
        let path = self.folder.join(format!("{}.gannet", engine.name()));
        self.put(release, &path);
        path
    }

    /// Renames a copy of an archive to the path of a server.
    fn put(&self, release: u32, path: &Path) {
        let new = path.with_extension("new");
        let archive = self.folder.join(format!("{release}.gannet"));
        fs::copy(archive, &new).expect("copied");
        fs::rename(new, path).expect("renamed");
    }
}

/// Waits until every worker serves a release: connections go to any of them.
fn becomes(server: &Gannet, release: u32) {
    becomes_on(server, "any.example", release);
}

fn becomes_on(server: &Gannet, host: &str, release: u32) {
    until("the new release is served", || {
        (0..24).all(|_| {
            let mut client = Client::new(server);
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.response().expect(200).text() == format!("page of release {release}")
        })
    });
}

fn assert_asset(response: Response, release: u32, name: &str) {
    let response = response.expect(200);
    let (_, len) = ASSETS.into_iter().find(|it| it.0 == name).expect("known");
    assert!(response.body == body(release, len), "other bytes: {name}");
    assert_eq!(response.field("x-release"), Some(&*release.to_string()));
    let kept = response.field("cache-control").expect("it may be kept");
    assert!(kept.contains("immutable"), "{kept}");
}

#[test]
fn assets_of_the_release_before_answer_as_they_did() {
    let site = Site::packed(&[1, 2]);
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        for flags in [&["--workers", "2"][..], &["--cache-memory", "0"]] {
            site.put(1, &served);
            let server = engine.serve(&served, flags);
            let before: Vec<_> = ASSETS.map(|(name, _)| get(&server, &asset(1, name))).into();
            site.put(2, &served);
            becomes(&server, 2);
            for ((name, _), before) in ASSETS.into_iter().zip(before) {
                let path = asset(1, name);
                for _ in 0..3 {
                    assert_asset(get(&server, &path), 1, name);
                    assert_asset(get(&server, &asset(2, name)), 2, name);
                }
                check_kept(&server, &path, &before);
            }
            let mut peer = Peer::new(&server);
            for (name, len) in ASSETS {
                let answer = peer.get(&asset(1, name)).expect(200);
                assert!(answer.body == body(1, len), "other bytes: {name}");
                assert_eq!(answer.field("x-release"), Some("1"));
            }
            // What the current release has comes from it, and nothing but assets is kept.
            let both = get(&server, "/_astro/both.js").expect(200);
            assert_eq!(both.body, body(2, 5_000));
            get(&server, "/plain-2.txt").expect(200);
            get(&server, "/plain-1.txt").expect(404);
            get(&server, "/_astro/tiny-3.js").expect(404);
            // Back again.
            site.put(1, &served);
            becomes(&server, 1);
            assert_asset(get(&server, &asset(1, "long")), 1, "long");
            assert_asset(get(&server, &asset(2, "long")), 2, "long");
            assert_eq!(server.stop().status, Some(0));
        }
    });
}

/// Methods, conditions and ranges of an asset that answered like `before`.
fn check_kept(server: &Gannet, path: &str, before: &Response) {
    let tag = before.tag();
    let same = |response: &Response| {
        for name in ["etag", "content-type", "cache-control", "last-modified"] {
            assert_eq!(response.field(name), before.field(name), "{path}: {name}");
        }
        assert_eq!(response.field("x-release"), Some("1"), "{path}");
    };
    let head = ask(server, "HEAD", path, &[]).expect(200);
    same(&head);
    assert_eq!(head.content_length(), Some(before.body.len() as u64));
    let fresh = ask(server, "GET", path, &[&format!("if-none-match: {tag}")]);
    assert_eq!(fresh.expect(304).tag(), tag);
    let failed = ask(server, "GET", path, &["if-match: \"other\""]);
    failed.expect(412);
    let part = ask(server, "GET", path, &["range: bytes=3-9"]).expect(206);
    same(&part);
    assert_eq!(part.body, before.body[3..10]);
    let range = ["range: bytes=-4", &format!("if-range: {tag}")];
    assert_eq!(ask(server, "GET", path, &range).expect(206).body, b"1111");
    let wrong = ["range: bytes=99999999-"];
    ask(server, "GET", path, &wrong).expect(416);
    ask(server, "POST", path, &[]).expect(405);
    let options = ask(server, "OPTIONS", path, &[]).expect(204);
    assert_eq!(options.field("allow"), Some("GET, HEAD, OPTIONS"));
}

#[test]
fn assets_answer_over_tls() {
    let site = Site::packed(&[1, 2]);
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        let secure = Secure::serve(engine, &served, &["--cache-memory", "0"]);
        let mut client = secure.connect();
        client.get("/").expect(200);
        site.put(2, &served);
        until("the new release is served", || {
            client.get("/").expect(200).text() == "page of release 2"
        });
        for (name, _) in ASSETS {
            for _ in 0..2 {
                assert_asset(client.get(&asset(1, name)), 1, name);
            }
        }
        let mut peer = Peer::secure(&secure, &[]);
        for (name, len) in ASSETS {
            assert!(peer.get(&asset(1, name)).expect(200).body == body(1, len));
        }
        let mut quic = Quic::begin(secure.server.address(), &secure.authority);
        for (name, len) in ASSETS {
            let answer = quic.get(&asset(1, name));
            assert_eq!((answer.status, answer.field("x-release")), (200, Some("1")));
            assert!(answer.body == body(1, len), "other bytes: {name}");
        }
    });
}

/// A preflight request of a cross-origin page is answered by the rules of the asset's release.
#[test]
fn rules_are_those_of_the_release_that_has_the_asset() {
    let site = Site::new();
    for release in [1, 2] {
        site.write_site(release, "");
        let fields = format!(
            "/_astro/*\n  x-release: {release}\n  access-control-allow-origin: https://{release}.example\n"
        );
        site.write(release, "_headers", fields);
    }
    site.write(
        2,
        "_redirects",
        "/_astro/* /index.html 200\n/* /index.html 200\n",
    );
    site.pack(1, &[]);
    site.pack(2, &[]);
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        let server = engine.serve(&served, &[]);
        let origin = |release: u32| {
            let path = asset(release, "tiny");
            let lines = [
                "origin: https://any.example",
                "access-control-request-method: GET",
            ];
            let preflight = ask(&server, "OPTIONS", &path, &lines).expect(204);
            let response = get(&server, &path).expect(200);
            let field = "access-control-allow-origin";
            assert_eq!(preflight.field(field), response.field(field));
            response.field(field).map(str::to_owned)
        };
        assert_eq!(origin(1).as_deref(), Some("https://1.example"));
        site.put(2, &served);
        becomes(&server, 2);
        assert_eq!(origin(1).as_deref(), Some("https://1.example"));
        assert_eq!(origin(2).as_deref(), Some("https://2.example"));
        // The rule for everything else does not hide it.
        assert_asset(get(&server, &asset(1, "small")), 1, "small");
        let other = get(&server, "/_astro/other.js").expect(200);
        assert_eq!(other.text(), "page of release 2");
    });
}

#[test]
fn neither_pages_for_everything_nor_for_nothing_hide_an_asset() {
    let site = Site::new();
    site.write_site(1, "");
    site.pack(1, &[]);
    site.write_site(2, "");
    site.pack(2, &["--spa"]);
    site.write_site(3, "");
    site.write(3, "404.html", "nothing of release 3");
    site.write(3, "_redirects", "/* /404.html 404\n");
    site.pack(3, &[]);
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        let server = engine.serve(&served, &[]);
        for release in [2, 3] {
            site.put(release, &served);
            becomes(&server, release);
            let navigation = ["accept: text/html", "sec-fetch-mode: navigate"];
            let response = ask(&server, "GET", &asset(1, "tiny"), &navigation);
            assert_asset(response, 1, "tiny");
            let missing = ask(&server, "GET", "/some/where", &navigation);
            match release {
                2 => assert_eq!(missing.expect(200).text(), "page of release 2"),
                _ => assert_eq!(missing.expect(404).text(), "nothing of release 3"),
            }
            let query = format!("{}?v=1", asset(1, "small"));
            assert_asset(get(&server, &query), 1, "small");
        }
    });
}

#[test]
fn an_asset_answers_for_its_host_alone() {
    let site = Site::new();
    for release in [1, 2] {
        site.write_site(release, "a.example/");
        site.write_site(release, "b.example/");
        let name = format!("a.example/_astro/only-{release}.js");
        site.write(release, &name, "a");
    }
    // The hosts of the next one come in another order, one is gone.
    site.write_site(3, "aa.example/");
    site.write_site(3, "b.example/");
    for release in [1, 2, 3] {
        site.pack(release, &["--hosts"]);
    }
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        let server = engine.serve(&served, &[]);
        let ask = |host: &str, path: &str| {
            let mut client = Client::new(&server);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.response()
        };
        let becomes = |release: u32| becomes_on(&server, "b.example", release);
        site.put(2, &served);
        becomes(2);
        for host in ["a.example", "b.example"] {
            assert_asset(ask(host, &asset(1, "tiny")), 1, "tiny");
        }
        assert_eq!(
            ask("a.example", "/_astro/only-1.js").expect(200).text(),
            "a"
        );
        ask("b.example", "/_astro/only-1.js").expect(404);
        site.put(3, &served);
        becomes(3);
        assert_asset(ask("b.example", &asset(1, "small")), 1, "small");
        assert_asset(ask("b.example", &asset(2, "small")), 2, "small");
        ask("a.example", &asset(2, "small")).expect(421);
        ask("aa.example", &asset(1, "small")).expect(404);
        ask("aa.example", "/_astro/only-1.js").expect(404);
    });
}

/// The names under which releases answer by themselves.
#[test]
fn previews_answer_from_one_release_alone() {
    let site = Site::packed(&[1, 2]);
    let id = |release: u32| {
        let archive = site.folder.join(format!("{release}.gannet"));
        let bytes = fs::read(archive).expect("packed");
        let id = gannet_archive::Superblock::parse(&bytes[..4096], bytes.len() as u64);
        let id = *id.expect("an archive").build_id();
        id.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        let server = engine.serve(&served, &["--previews", "preview.example"]);
        let ask = |host: &str, path: &str| {
            let mut client = Client::new(&server);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.response()
        };
        until("it has its preview", || {
            let page = ask(&format!("{}.preview.example", &id(1)[..16]), "/");
            page.status == 200
        });
        site.put(2, &served);
        becomes(&server, 2);
        for (release, other) in [(1, 2), (2, 1)] {
            let long = format!("{}.preview.example", &id(release)[..16]);
            let short = format!("{}.preview.example", &id(release)[..8]);
            let between = format!("{}.PREVIEW.example.:80", &id(release)[..11]);
            for host in [long, short, between] {
                let page = ask(&host, "/").expect(200);
                assert_eq!(page.text(), format!("page of release {release}"));
                assert_eq!(page.field("x-robots-tag"), Some("noindex"));
                assert_asset(ask(&host, &asset(release, "small")), release, "small");
                ask(&host, &format!("/plain-{release}.txt")).expect(200);
                ask(&host, &asset(other, "small")).expect(404);
            }
        }
        // Whoever looks at a preview must not take the site for it.
        let too_short = &id(1)[..7];
        let whole = id(1);
        let wrong = match whole.as_bytes()[16] {
            b'0' => '1',
            _ => '0',
        };
        let further = format!("{}{wrong}", &whole[..16]);
        for name in [too_short, "00000000", "www", "", &further] {
            ask(&format!("{name}.preview.example"), "/").expect(404);
        }
        for host in ["any.example", "preview.example", "apreview.example"] {
            let page = ask(host, "/").expect(200);
            assert_eq!(page.text(), "page of release 2");
            assert_eq!(page.field("x-robots-tag"), None);
        }
    });
}

/// Answers in progress finish on their own release; nothing is ever mixed, even if the file of a
/// kept release is overwritten.
#[test]
fn a_kept_release_whose_file_is_overwritten_answers_no_wrong_byte() {
    let site = Site::packed(&[1, 2]);
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        let server = engine.serve(&served, &["--cache-memory", "0"]);
        get(&server, "/").expect(200);
        let first = served.with_extension("first");
        fs::hard_link(&served, &first).expect("another name");
        site.put(2, &served);
        becomes(&server, 2);
        let mut download = Client::slow(&server);
        // All of it may be on its way before the file is overwritten.
        let close = ["connection: close"];
        download.send(gannet_testkit::client::head(
            "GET",
            &asset(1, "long"),
            &close,
        ));
        let begun = download.head().expect(200);
        let len = fs::metadata(&first).expect("it is there").len();
        fs::write(&first, vec![b'x'; len as usize]).expect("overwritten");
        let (rest, _) = download.rest();
        assert!(rest.len() as u64 <= begun.content_length().expect("a length"));
        assert!(
            rest.iter().all(|byte| *byte == b'1'),
            "bytes of another file"
        );
        until("it is refused", || {
            let mut client = Client::new(&server);
            client.send(gannet_testkit::client::head("GET", &asset(1, "small"), &[]));
            let Ok(head) = client.head_or_end() else {
                return false;
            };
            head.status == 404
        });
        assert_asset(get(&server, &asset(2, "long")), 2, "long");
        let mut server = server;
        let line = server.next_error_line().expect("it says so");
        assert!(line.contains("serving release"), "{line}");
        let line = server.next_error_line().expect("it says so");
        assert!(line.contains("archive"), "{line}");
    });
}

/// With a required signature, kept releases are sent from copies that nobody can change.
#[test]
fn signed_releases_are_kept_as_copies() {
    let site = Site::new();
    gannet_in(&site.folder, ["keygen", "release"]).success();
    for release in [1, 2, 3] {
        site.write_site(release, "");
        let key = ["--sign", "release.key"];
        site.pack(release, if release == 3 { &[] } else { &key });
    }
    let public = site.folder.join("release.pub");
    let public = public.to_str().expect("UTF-8");
    on_both_engines(|engine| {
        let served = site.served(engine, 1);
        let mut server = engine.serve(&served, &["--require-signature", public]);
        let first = served.with_extension("first");
        fs::hard_link(&served, &first).expect("another name");
        site.put(2, &served);
        becomes(&server, 2);
        let len = fs::metadata(&first).expect("it is there").len();
        fs::write(&first, vec![b'x'; len as usize]).expect("overwritten");
        for (name, _) in ASSETS {
            assert_asset(get(&server, &asset(1, name)), 1, name);
        }
        let line = server.next_error_line().expect("it says so");
        assert!(line.contains("serving release"), "{line}");
        site.put(3, &served);
        let line = server.next_error_line().expect("it says so");
        assert!(
            line.contains("refused the new release") && line.contains("not signed"),
            "{line}"
        );
        assert_eq!(get(&server, "/").expect(200).text(), "page of release 2");
    });
}
