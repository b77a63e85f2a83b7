//! Files of version 0.1, which every later version reads: `frozen/0.1` is never written again.

use std::path::{Path, PathBuf};

use gannet_testkit::client::{ask, get};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::{Folder, command, gannet_in, run};

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/0.1")
}

/// Two signed releases of a site with rules, and the log of their pointers.
#[test]
fn a_store_of_0_1_is_served() {
    let store = frozen().join("store");
    let key = frozen().join("key.pub");
    let key = key.to_str().expect("UTF-8");
    on_both_engines(|engine| {
        let server = engine.serve(&store, &["--require-signature", key, "--workers", "1"]);
        let home = get(&server, "/");
        assert_eq!(home.status, 200);
        assert!(String::from_utf8_lossy(&home.body).contains("The second page."));
        assert_eq!(home.field("x-site"), Some("frozen"));
        let guide = get(&server, "/docs/guide");
        assert_eq!((guide.status, guide.field("x-part")), (200, Some("docs")));
        let moved = get(&server, "/old/guide");
        assert_eq!(
            (moved.status, moved.field("location")),
            (301, Some("/docs/guide"))
        );
        let style = ask(&server, "GET", "/app.css", &["accept-encoding: br"]);
        assert_eq!(style.field("content-encoding"), Some("br"));
    });
    let listed = run(command()
        .current_dir(frozen())
        .args(["releases", "store", "-p", "key.pub"]));
    let listed = listed.success();
    for note in ["first", "second"] {
        assert!(listed.text().contains(note), "{}", listed.text());
    }
}

/// Each body, digest and signature of both archives.
#[test]
fn archives_of_0_1_are_intact() {
    for id in [
        "757026d03975f448b842ab234af4100e",
        "915f86f742ae9995b743814e9e9ba00f",
    ] {
        let archive = format!("store/releases/{id}.gannet");
        let verified = run(command()
            .current_dir(frozen())
            .args(["verify", &archive, "-p", "key.pub"]))
        .success();
        assert!(
            verified.text().contains("intact, signed"),
            "{}",
            verified.text()
        );
    }
}

/// Hosts with rules of their own, pages for missing paths, a body that is stored as gzip alone.
#[test]
fn an_archive_of_hosts_of_0_1_is_served() {
    let archive = frozen().join("archives/hosts.gannet");
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &["--workers", "1"]);
        for (target, status, has) in [
            ("http://example.org/", 200, "<title>One"),
            ("http://example.org/guide", 200, "A line of the guide."),
            ("http://example.org/docs/a/b", 200, "<title>Docs"),
            ("http://example.org/app/a", 200, "<title>App"),
            ("http://example.org/missing", 404, "<title>Missing<"),
            ("http://example.org/plan", 401, ""),
            ("/", 200, "<title>Others"),
            ("/missing", 404, "<title>Missing of others"),
        ] {
            let answer = get(&server, target);
            assert_eq!(answer.status, status, "{target}");
            assert!(answer.text().contains(has), "{target}: {}", answer.text());
        }
        let guide = ask(
            &server,
            "GET",
            "http://example.org/guide",
            &["accept-encoding: gzip"],
        );
        assert_eq!(guide.field("content-encoding"), Some("gzip"));
        assert_eq!(guide.field("x-site"), Some("one"));
        for (target, location) in [
            ("http://example.org/secure", "/guide"),
            ("http://example.org/old/a", "/docs/a"),
        ] {
            let answer = get(&server, target);
            assert_eq!(answer.field("location"), Some(location), "{target}");
        }
        let german = ["accept-language: de-AT"];
        let answer = ask(&server, "GET", "http://example.org/de", &german);
        assert_eq!(
            (answer.status, answer.field("location")),
            (302, Some("/guide"))
        );
    });
}

/// A script that is stored as Brotli alone, and coded with its earlier version as a dictionary.
#[test]
fn an_archive_with_dictionaries_of_0_1_is_served() {
    let archive = frozen().join("archives/versions.gannet");
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &["--workers", "1"]);
        let script = "http://localhost/_astro/app-Cw8U3yUo.js";
        let plain = get(&server, script);
        assert_eq!((plain.status, plain.body.len()), (200, 7021));
        let coded = ask(&server, "GET", script, &["accept-encoding: br"]);
        assert_eq!(coded.field("content-encoding"), Some("br"));
        let fields = [
            "accept-encoding: br, dcb",
            "available-dictionary: :JQTQakmIAI5ledZu5WSWhPfyI3N3hiza7vg4ojnbFv4=:",
        ];
        let coded = ask(&server, "GET", script, &fields);
        assert_eq!(
            (coded.field("content-encoding"), coded.body.len()),
            (Some("dcb"), 66)
        );
    });
    for name in ["hosts", "versions"] {
        let archive = format!("archives/{name}.gannet");
        let verified = run(command().current_dir(frozen()).args(["verify", &archive]));
        assert!(verified.success().text().contains("intact"), "{name}");
    }
}

/// Values of every kind: a text, a number, a switch, a time, a size, a list and tables.
#[test]
fn a_configuration_of_0_1_is_valid() {
    let folder = Folder::new();
    folder.write("site/index.html", "front");
    let file = frozen().join("gannet.toml");
    let file = file.to_str().expect("UTF-8");
    gannet_in(&folder, ["serve", "-c", file, "--check-config"]).success();
}
