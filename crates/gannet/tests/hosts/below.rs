//! Sites below a path of a host.

use std::fs;

use gannet_testkit::Folder;
use gannet_testkit::client::Client;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::gannet_in;
use gannet_testkit::process::until;

use super::{check, get, start};

/// Sites of parts of hosts: the longest prefix of the host, then its whole site, then those for more hosts.
const BELOW: &[(&str, &str, u16, &str)] = &[
    ("a.example", "/", 200, "whole"),
    ("a.example", "/docs2/", 404, "nothing"),
    ("a.example", "/docs/page", 200, "a page"),
    ("a.example", "/x/../docs/page", 200, "a page"),
    ("a.example", "/do%63s%2Fpage", 200, "a page"),
    ("a.example:80", "/docs/../docs/page", 200, "a page"),
    ("a.example", "/docs/../page", 404, "nothing"),
    ("a.example", "/docs/missing", 404, "no page"),
    ("a.example", "/docs/api/page", 200, "of the api"),
    ("b.example", "/docs/page", 200, "a page"),
    ("b.example", "/tools/page", 200, "of the api"),
    ("b.example", "/", 200, "any host"),
    ("c.example", "/tools/page", 200, "of the api"),
    ("c.example", "/docs/page", 404, "<!doctype"),
    ("x.w.example", "/docs/page", 200, "a page"),
    ("x.w.example", "/", 200, "any host"),
];

fn sites_below() -> Folder {
    let folder = Folder::new();
    for (path, text) in [
        ("whole/index.html", "whole"),
        ("whole/404.html", "nothing here"),
        // What is below the prefix of another site is not served.
        ("whole/docs/secret", "never"),
        ("any/index.html", "any host"),
        ("docs/page.html", "a page"),
        ("docs/img/a.png", "pixels"),
        ("docs/sub/index.html", "a folder"),
        ("docs/404.html", "no page of docs"),
        (
            "docs/_redirects",
            "/old /page\n/out https://b.example/\n/moved/* /img/:splat 302\n/as /page 200\n",
        ),
        ("docs/_headers", "/page\n  x-of: docs\n"),
        ("api/page", "of the api"),
    ] {
        folder.write(path, text);
    }
    folder
}

#[test]
fn a_site_is_below_a_prefix() {
    let folder = sites_below();
    gannet_in(
        &folder,
        ["pack", "docs", "--fast", "-q", "-o", "docs.gannet"],
    )
    .success();
    on_both_engines(|engine| {
        for docs in ["docs", "docs.gannet"] {
            let server = start(
                engine.name(),
                &folder,
                &[
                    "--site=a.example=whole",
                    &format!("--site=a.example/docs,b.example/docs/,*.w.example/docs={docs}"),
                    "--site=a.example/docs/api=api",
                    "--site=/tools=api",
                    "any",
                ],
            );
            check(&server, BELOW);
            let mut client = Client::new(&server);
            let mut location = |target: &str, status: u16| {
                let response = get(&mut client, "a.example", target).expect(status);
                response.field("location").unwrap_or_default().to_owned()
            };
            assert_eq!(location("/docs?q=1", 301), "/docs/?q=1", "{docs}");
            assert_eq!(location("/docs/sub?q", 301), "/docs/sub/?q", "{docs}");
            assert_eq!(location("/docs/page/", 301), "/docs/page", "{docs}");
            assert_eq!(location("/docs/old", 301), "/docs/page", "{docs}");
            assert_eq!(
                location("/docs/moved/a.png", 302),
                "/docs/img/a.png",
                "{docs}"
            );
            assert_eq!(location("/docs/out", 301), "https://b.example/", "{docs}");
            assert_eq!(location("/old", 404), "", "{docs}");
            let page = get(&mut client, "a.example", "/docs/page").expect(200);
            assert_eq!(page.field("x-of"), Some("docs"), "{docs}");
            get(&mut client, "a.example", "/docs/as").expect(200);
            get(&mut client, "a.example", "/docs/favicon.ico").expect(200);
        }
    });
}

/// A target with a host has the whole path: it is where the client is already, or it is not.
#[test]
fn a_redirect_to_the_requested_url_does_not_apply_below_a_prefix() {
    let folder = Folder::new();
    for (site, target) in [("in", "/docs/:splat"), ("out", "/:splat")] {
        folder.write(format!("{site}/page.html"), "a page");
        let rule = format!("/* http://a.example{target} 301!\n");
        folder.write(format!("{site}/_redirects"), rule);
        let archive = format!("{site}.gannet");
        gannet_in(&folder, ["pack", site, "--fast", "-q", "-o", &archive]).success();
    }
    for suffix in ["", ".gannet"] {
        let sites = [
            format!("--site=a.example/docs,b.example/docs=in{suffix}"),
            format!("--site=a.example/out=out{suffix}"),
        ];
        let server = start("auto", &folder, &sites.each_ref().map(String::as_str));
        let mut client = Client::new(&server);
        let page = get(&mut client, "a.example", "/docs/page").expect(200);
        assert_eq!(page.text(), "a page");
        get(&mut client, "a.example", "/docs/missing").expect(404);
        for (host, path, location) in [
            ("b.example", "/docs/page", "http://a.example/docs/page"),
            ("a.example", "/out/page", "http://a.example/page"),
        ] {
            let moved = get(&mut client, host, path).expect(301);
            assert_eq!(moved.field("location"), Some(location));
        }
    }
}

/// A listing shows the path that was asked for, and leads out of the site. Without a site for all paths, others
/// are not found: no other server has them.
#[test]
fn a_listing_below_a_prefix_has_its_whole_path() {
    let folder = sites_below();
    let server = start("auto", &folder, &["--site=a.example/d e/f=docs"]);
    let mut client = Client::new(&server);
    let listed = get(&mut client, "a.example", "/d%20e/f/img/").expect(200);
    let text = listed.text();
    assert!(text.contains("<title>/d e/f/img/</title>"), "{text}");
    assert!(text.contains("href=\"../../../\""), "{text}");
    let moved = get(&mut client, "a.example", "/d%20e/f").expect(301);
    assert_eq!(moved.field("location"), Some("/d%20e/f/"));
    get(&mut client, "a.example", "/").expect(404);
    get(&mut client, "b.example", "/d%20e/f/").expect(421);
}

/// The names in an archive take no host, and no part of one, that `--site` names, in whatever order.
#[test]
fn names_in_an_archive_take_no_host_of_another_site() {
    let folder = sites_below();
    folder.write("own/a.example/page.html", "taken");
    folder.write("own/c.example/page.html", "of the archive");
    let pack = ["pack", "--hosts", "own", "--fast", "-q", "-o", "own.gannet"];
    gannet_in(&folder, pack).success();
    for (of_archive, prefix) in [("b.example", ""), ("b.example/docs", "/docs")] {
        let archive = format!("--site={of_archive}=own.gannet");
        let server = start("auto", &folder, &[&archive, "--site=a.example=api"]);
        let page = format!("{prefix}/page");
        check(&server, &[("c.example", &page, 200, "of the archive")]);
        check(&server, &[("a.example", "/page", 200, "of the api")]);
        check(&server, &[("a.example", "/docs/page", 404, "")]);
    }
}

/// The operator's paths are those that clients ask for; the site's own are below its prefix.
#[test]
fn passwords_below_a_prefix() {
    let folder = sites_below();
    folder.write(
        "users",
        "anna:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n",
    );
    folder.write("docs/_headers", "/img/*\n  Basic-Auth: anna:secret\n");
    let server = start(
        "auto",
        &folder,
        &[
            "--site=/docs=docs",
            "--password-file=users",
            "--password-path=/docs/page",
            "any",
        ],
    );
    check(
        &server,
        &[
            ("a.example", "/docs/page", 401, "<!doctype"),
            ("a.example", "/docs/page.html", 401, ""),
            ("a.example", "/docs/img/a.png", 401, ""),
            ("a.example", "/img/a.png", 404, ""),
            ("a.example", "/page", 404, ""),
            ("a.example", "/docs/as", 200, "a page"),
            ("a.example", "/", 200, "any host"),
        ],
    );
}

/// A preview has the paths of its site: what the operator protects is protected there.
#[test]
fn previews_are_below_the_prefix_of_their_site() {
    let folder = sites_below();
    folder.write(
        "users",
        "anna:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n",
    );
    let pack = ["pack", "docs", "--fast", "-q", "-o", "docs.gannet"];
    gannet_in(&folder, pack).success();
    let bytes = fs::read(folder.join("docs.gannet")).expect("packed");
    let id = gannet_archive::Superblock::parse(&bytes[..4096], bytes.len() as u64);
    let id = *id.expect("an archive").build_id();
    let id: String = id[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let flags = [
        "--site=/docs=docs.gannet",
        "--password-file=users",
        "--password-path=/docs/page",
        "--previews=preview.example",
        // Each worker learns of the preview in its own time.
        "--workers=1",
        "any",
    ];
    let server = start("auto", &folder, &flags);
    let host = format!("{id}.preview.example");
    let answers = |path: &str| get(&mut Client::new(&server), &host, path);
    until("it has its preview", || answers("/docs/as").status == 200);
    for path in ["/docs/page", "/docs/page.html"] {
        answers(path).expect(401);
    }
    for path in ["/page", "/as", "/"] {
        answers(path).expect(404);
    }
}

/// Without a site for all paths, a path that no prefix has is answered with 404, whatever the host.
#[test]
fn no_site_below_a_prefix_has_other_paths() {
    let folder = sites_below();
    on_both_engines(|engine| {
        let flags = ["--site=/docs=docs", "--unknown-host=ignore"];
        let server = start(engine.name(), &folder, &flags);
        for _ in 0..2 {
            for path in ["/", "/x", "/abcd/page", "/docs2/page"] {
                check(&server, &[("a.example", path, 404, "")]);
            }
        }
        check(&server, &[("a.example", "/docs/page", 200, "a page")]);
    });
}

/// Further hosts of a folder, and a whole site of the same host in it, keep what no prefix has.
#[test]
fn a_prefix_of_a_host_leaves_the_rest_to_its_folder() {
    let folder = sites_below();
    folder.write("sites/a.example/index.html", "of the folder");
    folder.write("sites/_default/index.html", "default");
    for number in 0..70 {
        folder.write(format!("sites/{number}.example/index.html"), "one of many");
    }
    let server = start(
        "auto",
        &folder,
        &[
            "--site=a.example/docs,7.example/docs=docs",
            "--hosts",
            "sites",
        ],
    );
    check(
        &server,
        &[
            ("a.example", "/docs/page", 200, "a page"),
            ("a.example", "/", 200, "of the folder"),
            ("7.example", "/", 200, "one of many"),
            ("7.example", "/docs/page", 200, "a page"),
            ("x.example", "/docs/page", 404, ""),
            ("x.example", "/", 200, "default"),
        ],
    );
    let ignoring = start(
        "auto",
        &folder,
        &["--site=a.example/docs=docs", "--unknown-host=ignore", "any"],
    );
    check(
        &ignoring,
        &[
            ("x.example", "/docs/page", 200, "a page"),
            ("a.example", "/", 200, "any host"),
        ],
    );
}
