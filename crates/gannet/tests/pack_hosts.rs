//! An archive with a site for each host: it answers like the folders, and the tools distinguish
//! hosts.

use std::collections::BTreeMap;
use std::fs;

use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::{Folder, Gannet, command, gannet, gannet_in, run};

fn sites() -> Folder {
    let folder = Folder::new();
    for (path, text) in [
        ("a.example/index.html", "site a"),
        ("a.example/only-a.txt", "only a"),
        ("a.example/404.html", "nothing on a"),
        (
            "a.example/_redirects",
            "/old /only-a.txt\n/app/* /only-a.txt 200\n",
        ),
        ("a.example/_headers", "/*\n  x-site: a\n"),
        ("a.example/docs/index.html", "documents of a"),
        ("b.example/index.html", "site b"),
        ("b.example/large.txt", &"b ".repeat(50_000)),
        (
            "b.example/_headers",
            "https://b.example/*\n  x-site: b\n/*\n  x-all: b\n",
        ),
        ("b.example/same.txt", "the same everywhere"),
        ("_default/index.html", "any host"),
        ("_default/same.txt", "the same everywhere"),
        ("_default/_redirects", "/old /elsewhere 302\n"),
        ("_default/404.html", "nothing anywhere"),
        ("not_a_host!/index.html", "never"),
        ("notes.txt", "never"),
    ] {
        folder.write(path, text);
    }
    std::os::unix::fs::symlink("a.example", folder.join("www.a.example")).expect("a new name");
    folder
}

fn pack(folder: &Folder, out: &Folder, more: &[&str]) -> String {
    let archive = out.join("sites.gannet").to_str().expect("UTF-8").to_owned();
    let mut arguments = vec!["pack", ".", "--hosts", "--fast", "--fresh", "-o", &archive];
    arguments.extend(more);
    gannet_in(folder, arguments).success();
    archive
}

fn start(engine: &str, folder: &Folder, flags: &[&str]) -> Gannet {
    let mut command = command();
    command.args(["serve", "--port", "0", "--engine", engine]);
    command.args(flags).current_dir(folder.path());
    Gannet::start(&mut command)
}

const HOSTS: [&str; 5] = [
    "a.example",
    "www.a.example",
    "b.example:8080",
    "B.EXAMPLE.",
    "unknown.example",
];

const PATHS: [&str; 12] = [
    "/",
    "/index.html",
    "/only-a.txt",
    "/old",
    "/app/x",
    "/docs",
    "/docs/",
    "/large.txt",
    "/same.txt",
    "/no/such",
    "/_redirects",
    "/same.txt/",
];

/// Status, fields, content.
type Answer = (u16, Vec<String>, Vec<u8>);

/// The parts of answers that must be the same in both modes: status, site fields, content.
fn answers(server: &Gannet) -> BTreeMap<(&'static str, &'static str), Answer> {
    let mut client = Client::new(server);
    let mut answers = BTreeMap::new();
    for host in HOSTS {
        for path in PATHS {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let Response {
                status,
                fields,
                body,
                ..
            } = client.response();
            let kept = ["location", "content-type", "x-site", "x-all"];
            let fields = fields.into_iter();
            let fields = fields.filter(|(name, _)| kept.contains(&name.as_str()));
            let mut fields: Vec<_> = fields
                .map(|(name, value)| format!("{name}: {value}"))
                .collect();
            fields.sort();
            answers.insert((host, path), (status, fields, body));
        }
    }
    answers
}

#[test]
fn an_archive_of_all_hosts_answers_as_their_folders_do() {
    let folder = sites();
    let out = Folder::new();
    let stored = pack(&folder, &out, &[]);
    let stored = fs::read(stored).expect("packed");
    let packed = pack(&folder, &out, &["--drop-identity"]);
    assert!(fs::read(&packed).expect("packed").len() < stored.len());
    on_both_engines(|engine| {
        let expect = answers(&start(engine.name(), &folder, &["--hosts", "."]));
        let (status, fields, body) = &expect[&("a.example", "/app/x")];
        assert_eq!((*status, body.as_slice()), (200, b"only a".as_slice()));
        assert!(fields.contains(&"x-site: a".to_owned()), "{fields:?}");
        assert_eq!(expect[&("unknown.example", "/old")].0, 302);
        assert_eq!(expect[&("B.EXAMPLE.", "/old")].0, 404);
        let got = answers(&start(engine.name(), &folder, &[&packed]));
        for (asked, expect) in &expect {
            assert_eq!(&got[asked], expect, "{asked:?}");
        }
        // Without a default folder, other hosts are refused as with folders.
        let server = start(engine.name(), &folder, &["--unknown-host", "404", &packed]);
        let unknown = &answers(&server)[&("unknown.example", "/")];
        assert_eq!(unknown.0, 404);
    });
}

#[test]
fn the_tools_tell_hosts_apart() {
    let folder = sites();
    let out = Folder::new();
    let packed = pack(&folder, &out, &[]);
    gannet(["verify", &packed]).success();
    let listed = gannet(["ls", &packed]).success().text().to_owned();
    for line in [
        "/index.html\n",
        "//a.example/only-a.txt\n",
        "//www.a.example/only-a.txt\n",
    ] {
        assert!(listed.contains(line), "{line} in {listed}");
    }
    let cat = |url: &str| gannet(["cat", &packed, url]).success().text().to_owned();
    assert_eq!(cat("/"), "any host");
    assert_eq!(cat("//a.example/"), "site a");
    assert_eq!(cat("http://B.example:8080/"), "site b");
    assert_eq!(cat("//other.example/"), "any host");
    assert_eq!(gannet(["cat", &packed, "/only-a.txt"]).status, Some(1));

    let explained = |url: &str| {
        gannet(["explain", url, &packed])
            .success()
            .text()
            .to_owned()
    };
    let of_a = explained("http://a.example/old");
    assert!(of_a.contains("_redirects:1"), "{of_a}");
    let of_b = explained("http://b.example/");
    assert!(of_b.contains("file //b.example/index.html"), "{of_b}");
    assert!(explained("http://other.example/old").contains("status 302"));
    let checked = gannet(["check", &packed]);
    assert_eq!(checked.status, Some(0), "{checked:?}");

    // Extracted files pack to the same site.
    let extracted = out.join("extracted");
    let to = extracted.to_str().expect("UTF-8");
    gannet(["extract", &packed, "-o", to]).success();
    for (path, text) in [
        ("a.example/only-a.txt", "only a"),
        ("www.a.example/index.html", "site a"),
        ("_default/index.html", "any host"),
    ] {
        assert_eq!(fs::read_to_string(extracted.join(path)).expect(path), text);
    }
    folder.write("a.example/only-a.txt", "another a");
    fs::remove_file(folder.join("b.example/same.txt")).expect("written");
    let after = out.join("after.gannet").to_str().expect("UTF-8").to_owned();
    let arguments = ["pack", ".", "--hosts", "--fast", "-q", "-o", &after];
    gannet_in(&folder, arguments).success();
    let differences = gannet(["diff", &packed, &after]);
    let text = differences.text();
    for line in ["//a.example/only-a.txt", "//b.example/same.txt"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains(" /same.txt"), "{text}");
}

#[test]
fn what_is_wrong_is_told_with_the_host() {
    let folder = Folder::new();
    folder.write("not a host/index.html", "no");
    let refused = gannet_in(&folder, ["pack", ".", "--hosts", "-o", "x.gannet"]);
    assert_eq!(refused.status, Some(1));
    assert!(
        refused.err.contains("no folder has the name of a host"),
        "{}",
        refused.err
    );

    let folder = sites();
    folder.write("b.example/_redirects", "/x /y 999\n");
    let refused = gannet_in(&folder, ["pack", ".", "--hosts", "-o", "x.gannet"]);
    assert_eq!(refused.status, Some(1));
    assert!(
        refused.err.contains("b.example/_redirects:1"),
        "{}",
        refused.err
    );
    fs::remove_file(folder.join("b.example/_redirects")).expect("written");

    let out = Folder::new();
    let archive = out.join("sites.gannet").to_str().expect("UTF-8").to_owned();
    let table = gannet_in(&folder, ["pack", ".", "--hosts", "--fast", "-o", &archive]).success();
    let table = table.text();
    assert!(table.contains("//b.example/large.txt"), "{table}");
    assert!(
        table.contains("notes.txt  (no folder with the name of a host)"),
        "{table}"
    );
    // Threads and earlier builds make no difference.
    let first = fs::read(&archive).expect("packed");
    for more in [["--threads", "1"], ["--threads", "3"]] {
        let arguments = ["pack", ".", "--hosts", "--fast", "-q", "-o", &archive];
        gannet_in(&folder, arguments.iter().chain(&more)).success();
        assert!(fs::read(&archive).expect("packed") == first);
    }
}

/// Who may write entries does not choose what of this machine is published.
#[test]
fn the_folder_of_a_host_that_is_elsewhere_is_packed_on_request_alone() {
    let (folder, out) = (Folder::new(), Folder::new());
    folder.write("sites/a.example/page.txt", "a");
    folder.write("elsewhere/page.txt", "b");
    std::os::unix::fs::symlink("../elsewhere", folder.join("sites/b.example")).expect("linked");
    let archive = out.join("sites.gannet");
    let pack = |more: &[&str]| {
        let mut command = command();
        command
            .args(["pack", "sites", "--hosts", "--fast"])
            .args(more);
        run(command.arg("-o").arg(&archive).current_dir(folder.path()))
    };
    let refused = pack(&[]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    let cause = "cannot pack 'sites/b.example': the folder of a host is a symbolic link out of the directory\n\
                 help: make it a folder, remove it, or ";
    assert!(refused.err.contains(cause), "{refused:?}");
    // Patterns are those of the sites' files: the help offers none.
    assert!(!refused.err.contains("--exclude"), "{refused:?}");
    assert!(!archive.exists());
    let ended = pack(&["--follow-links"]).success();
    let warning = "the folder of a host is a symbolic link out of 'sites': 'sites/b.example'";
    assert!(ended.text().contains(warning), "{}", ended.text());
}
