//! `gannet explain`: the reasons it gives, and that a running server answers as it foresees.

mod support;

use std::fs::File;
use std::path::Path;

use support::engine::{Engine, on_both_engines};
use support::tls::Secure;
use support::{Folder, gannet, gannet_in};

fn site() -> Folder {
    let folder = Folder::site();
    folder.write("_redirects", "/old /about 302\n");
    folder.write("_headers", "/*\n  X-All: 1\n/about\n  X-One: 2\n");
    let copy = File::create(folder.join("assets/app.css.gz")).expect("new");
    let mut encoder = flate2::write::GzEncoder::new(copy, flate2::Compression::best());
    let css = std::fs::read(folder.join("assets/app.css")).expect("it is there");
    std::io::Write::write_all(&mut encoder, &css).expect("room on the disk");
    encoder.finish().expect("room on the disk");
    folder
}

fn explain(site: &Path, more: &[&str]) -> support::Ended {
    let site = site.to_str().expect("UTF-8");
    gannet(["explain"].iter().chain(more).chain(&[site]))
}

#[test]
fn rules_files_variants_and_origins_are_told() {
    let folder = site();
    let check = |more: &[&str], lines: &[&str]| {
        let ended = explain(folder.path(), more).success();
        for line in lines {
            assert!(
                ended.text().lines().any(|it| it == *line),
                "{line}\n{}",
                ended.text()
            );
        }
    };
    check(
        &["/about"],
        &[
            "GET /about",
            "  no redirect rule applies",
            "  nothing at 'about'",
            "  a file at 'about.html'",
            "file about.html",
            "status 200",
            "x-all: 1",
            "    _headers:1",
            "x-one: 2",
            "    _headers:3",
        ],
    );
    check(
        &["/old?a=b"],
        &[
            "  _redirects:1: 302 to /about?a=b",
            "status 302",
            "location: /about?a=b",
            "    _redirects:1",
        ],
    );
    check(&["/docs"], &["status 308", "location: /docs/"]);
    check(&["/none"], &["file 404.html", "status 404"]);
    let gzip = ["/assets/app.css", "-H", "accept-encoding: gzip"];
    check(
        &gzip,
        &["content-encoding: gzip", "    there are several codings"],
    );
    let ended = explain(folder.path(), &gzip[..1]).success();
    assert!(
        ended.text().contains("not accepted by the request"),
        "{ended:?}"
    );
    assert!(!ended.text().contains("content-encoding"), "{ended:?}");
}

#[test]
fn a_server_answers_as_foreseen() {
    let (folder, out) = (site(), Folder::new());
    let archive = out.join("site.gannet");
    let name = archive.to_str().expect("UTF-8");
    gannet_in(&folder, ["pack", ".", "-q", "--fast", "-o", name]).success();
    on_both_engines(|engine| {
        for site in [folder.path(), &archive] {
            let server = engine.serve(site, &["--no-listing"]);
            let address = format!("http://{}", server.address());
            for url in [
                "/",
                "/about",
                "/assets/app.css",
                "/assets/empty.txt",
                "/docs",
                "/old",
                "/none",
            ] {
                for coding in ["identity", "gzip", "br, zstd"] {
                    let field = format!("accept-encoding: {coding}");
                    let ended = explain(site, &[url, "-H", &field, "--server", &address]);
                    assert_eq!(ended.status, Some(0), "{url} {coding}: {}", ended.text());
                    assert!(ended.text().ends_with("\nthe server answers so\n"));
                }
            }
        }
        // Another site is told.
        let other = Folder::new();
        other.write("about.html", "something else");
        let server = engine.serve(other.path(), &[]);
        let address = format!("http://{}", server.address());
        let ended = explain(folder.path(), &["/about", "--server", &address]);
        assert_eq!(ended.status, Some(1));
        assert!(
            ended
                .text()
                .contains("\nthe server answers otherwise:\n  content-length: 14 (")
        );
    });
}

#[test]
fn a_server_is_asked_over_tls() {
    let folder = site();
    folder.write("_redirects", "https://localhost/only-tls /about 302\n");
    let secure = Secure::serve(Engine::Epoll, folder.path(), &["--no-listing"]);
    let address = format!("https://localhost:{}", secure.server.address().port());
    let authority = secure.authority.file();
    let authority = authority.to_str().expect("UTF-8");
    for url in ["/about", "/none", "https://localhost/only-tls"] {
        for trust in [&["--cacert", authority][..], &["--insecure"]] {
            let arguments = [&[url, "--server", &address][..], trust].concat();
            let ended = explain(folder.path(), &arguments);
            assert_eq!(ended.status, Some(0), "{url}: {ended:?}");
            assert!(ended.text().ends_with("\nthe server answers so\n"));
        }
    }
    let ended = explain(folder.path(), &["/about", "--server", &address]);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    assert!(
        ended
            .err
            .contains("name the authority of its certificate with --cacert"),
        "{ended:?}"
    );
}

#[test]
fn what_cannot_be_explained_is_told() {
    let folder = Folder::new();
    gannet_in(&folder, ["explain", "/.."]).failure(
        2,
        "gannet: cannot explain '/..': no server would take this path\n",
    );
    gannet_in(&folder, ["explain", "/", "-H", "x"]).failure(
        2,
        "gannet: 'x' is no field\nhelp: write it as NAME: VALUE\n",
    );
    gannet_in(&folder, ["explain", "/", "-s", "ftp://localhost"]).failure(
        2,
        "gannet: cannot ask 'ftp://localhost': the scheme is 'ftp' (expected http or https)\n\
         help: name it as http://HOST:PORT or https://HOST:PORT\n",
    );
    gannet_in(
        &folder,
        [
            "explain",
            "/",
            "-s",
            "https://localhost",
            "--cacert",
            "none",
        ],
    )
    .failure(
        2,
        "gannet: cannot ask 'https://localhost': certificates: 'none': I/O error: No such file or \
         directory (os error 2)\n",
    );
}
