//! What a site and its operator have configured holds over every version of HTTP alike.

use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::{self, CANCEL, Peer, rst_stream};
use gannet_testkit::h3;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::versions::Versions;
use gannet_testkit::{Folder, gannet_in};

const DIGEST: &str = "sha-256=:GF+NsyJx/iX1Yab8k4suJkMG7DBO2lGAB9F2SCY4GWk=:";

/// A path and a field of the request; status, a field and content of the answer.
type Row = (
    &'static str,
    (&'static str, &'static str),
    u16,
    (&'static str, &'static str),
    &'static str,
);

const ROWS: [Row; 14] = [
    (
        "/photo.jpg",
        ("accept", "image/avif"),
        200,
        ("content-type", "image/avif"),
        "short",
    ),
    (
        "/photo.jpg",
        ("accept", "image/jpeg"),
        200,
        ("vary", "accept"),
        "a long picture",
    ),
    (
        "/page",
        ("accept", "text/markdown"),
        200,
        ("content-type", "text/markdown; charset=utf-8"),
        "# page",
    ),
    (
        "/page",
        ("range", "bytes=900-"),
        416,
        ("content-range", "bytes */14"),
        "<p>beyond",
    ),
    (
        "/",
        ("accept-language", "de"),
        302,
        ("location", "/de/"),
        "",
    ),
    (
        "/",
        ("accept-language", "en"),
        200,
        ("vary", "accept-language"),
        "home",
    ),
    (
        "/docs/page",
        ("accept-language", "de"),
        200,
        ("vary", "accept-language"),
        "Seite",
    ),
    (
        "/hello.txt",
        ("want-content-digest", "sha-256=10"),
        200,
        ("content-digest", DIGEST),
        "Hello",
    ),
    (
        "/@scope%2Fname.txt",
        ("accept", "*/*"),
        200,
        ("content-length", "7"),
        "a scope",
    ),
    (
        "/empty.txt",
        ("range", "bytes=0-"),
        200,
        ("content-length", "0"),
        "",
    ),
    ("/list/", ("accept", "*/*"), 301, ("location", "/new/"), ""),
    ("/gone", ("accept", "*/*"), 410, ("content-type", HTML), ""),
    (
        "/q?id=1&more=2",
        ("accept", "*/*"),
        301,
        ("location", "/found/"),
        "",
    ),
    (
        "/text",
        ("accept", "*/*"),
        301,
        ("location", "/page#:~:text=a"),
        "",
    ),
];

/// The type of the server's own pages.
const HTML: &str = "text/html; charset=utf-8";

/// Forms by `accept`, rules by language, a page for an error, digests, and `--hsts`; twice, so that what
/// is kept in memory is asked for as well.
#[test]
fn what_a_site_says_holds_over_every_version() {
    let (site, out) = (Folder::new(), Folder::new());
    site.write("photo.jpg", "a long picture");
    site.write("photo.avif", "short");
    site.write("page.html", "<p>a long page");
    site.write("page.md", "# page");
    site.write("416.html", "<p>beyond");
    site.write("index.html", "home");
    site.write("de/index.html", "daheim");
    site.write("de/docs/page.html", "Seite");
    site.write("hello.txt", "Hello");
    site.write("@scope/name.txt", "a scope");
    site.write("list/file.txt", "listed unless a rule answers");
    site.write("empty.txt", "");
    site.write(
        "_redirects",
        "/ /de/ 302! Language=de\n/docs/* /de/docs/:splat 200 Language=de\n\
         /list/* /new/:splat 301\n/gone /nowhere 410\n/q id=1 /found/ 301\n\
         /text /page#:~:text=a 301\n",
    );
    let archive = out.join("site.gannet");
    let path = archive.to_str().expect("UTF-8");
    let pack = ["pack", ".", "-q", "--digest", "sha-256", "-o", path];
    let packed = gannet_in(&site, pack);
    assert_eq!(packed.status, Some(0), "{packed:?}");
    on_both_engines(|engine| {
        for path in [site.path(), &archive] {
            let secure = Secure::serve(engine, path, &["--hsts"]);
            let mut versions = Versions::new(&secure);
            for (path, field, status, (name, value), content) in ROWS.iter().chain(&ROWS) {
                for answer in versions.request("GET", path, &[*field]) {
                    let told = format!("{path} {field:?}: {answer:?}");
                    assert_eq!(answer.status, *status, "{told}");
                    let mut fields = answer.fields.iter().filter(|(it, _)| it == name);
                    let is_said = fields.any(|(_, got)| got.split(", ").any(|it| it == *value));
                    assert!(is_said, "{told}");
                    assert!(
                        answer.field("strict-transport-security").is_some(),
                        "{told}"
                    );
                    if !content.is_empty() {
                        assert_eq!(answer.body, content.as_bytes(), "{told}");
                    }
                }
            }
        }
    });
}

/// More than are opened at the start, and no more than a connection may ask for at once.
const HOSTS: usize = 90;

/// The pseudo-fields of a request to a host.
fn pseudo(host: &str) -> [(&str, &str); 4] {
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", host),
        (":path", "/"),
    ]
}

/// Streams of one connection wait for the sites of many hosts, each of which is opened for the first
/// of them; a stream that is gone by then holds up nobody.
#[test]
fn sites_are_opened_for_streams() {
    let folder = Folder::new();
    let hosts: Vec<_> = (0..HOSTS).map(|n| format!("h{n}.example")).collect();
    for host in &hosts {
        folder.write(format!("sites/{host}/index.html"), format!("at {host}"));
    }
    on_both_engines(|engine| {
        let serve = || Secure::serve(engine, folder.join("sites"), &["--hosts"]);
        let secure = serve();
        let mut peer = Peer::secure(&secure, &[]);
        let ask = |peer: &mut Peer, host: &str| {
            let stream = peer.open();
            peer.send(&h2::headers(stream, &h2::block(&pseudo(host))));
            stream
        };
        let gone = ask(&mut peer, &hosts[0]);
        peer.send(&rst_stream(gone, CANCEL));
        let streams: Vec<_> = hosts.iter().map(|host| ask(&mut peer, host)).collect();
        for (host, stream) in hosts.iter().zip(streams) {
            let answer = peer.answer(stream).expect(200);
            assert_eq!(answer.body, format!("at {host}").into_bytes());
        }
        let other = ask(&mut peer, "other.example");
        peer.answer(other).expect(421);

        let secure = serve();
        let mut quic = Quic::begin(secure.server.address(), &secure.authority);
        let gone = quic.open_bi(&h3::headers(&pseudo(&hosts[0])));
        quic.reset(gone, h3::REQUEST_CANCELLED);
        let ids: Vec<_> = hosts
            .iter()
            .map(|host| quic.ask(&h3::headers(&pseudo(host))))
            .collect();
        for (host, id) in hosts.iter().zip(ids) {
            let answer = quic.answer(id);
            assert_eq!(answer.status, 200, "{host}");
            assert_eq!(answer.body, format!("at {host}").into_bytes());
        }
        let other = quic.ask(&h3::headers(&pseudo("other.example")));
        assert_eq!(quic.answer(other).status, 421);
    });
}
