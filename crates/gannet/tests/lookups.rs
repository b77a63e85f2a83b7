//! Paths where a sandbox around the program forbids `openat2`: the same answers, and what it costs is named.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use gannet_testkit::client::{Client, get};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::seccomp::{OPENAT2, without};
use gannet_testkit::{Folder, Gannet, gannet_in, run};

const ENOSYS: i32 = 38;
const EPERM: i32 = 1;
const SLOWER: &str = "paths are resolved name by name, which is slower: openat2: ";

/// A site beside a secret, with links of all kinds.
fn site() -> Folder {
    let folder = Folder::new();
    folder.write("secret/file", "secret");
    folder.write("site/index.html", "front");
    folder.write("site/page.html", "page");
    folder.write("site/a/b/deep.txt", "deep");
    folder.write("site/_redirects", "/old /page 301\n");
    let link = |target: &Path, name: &str| symlink(target, folder.join("site").join(name)).unwrap();
    for (target, name) in [
        ("page.html", "near.html"),
        ("../../page.html", "a/b/up.html"),
        ("a/b", "folder"),
        ("folder/../b/deep.txt", "winding.txt"),
        ("near.html", "chain.html"),
        ("../secret/file", "out"),
        ("../secret", "out-folder"),
        ("../site/page.html", "round.html"),
        ("loop", "loop"),
        ("nothing", "dangling"),
        ("/proc/self/root", "magic"),
    ] {
        link(Path::new(target), name);
    }
    link(&folder.join("secret/file"), "absolute");
    folder
}

const TARGETS: [&str; 22] = [
    "/",
    "/page",
    "/page.html",
    "/a/b/deep.txt",
    "/a/b/",
    "/a/b",
    "/old",
    "/near.html",
    "/near",
    "/a/b/up.html",
    "/folder/deep.txt",
    "/folder/",
    "/winding.txt",
    "/chain.html",
    "/out",
    "/out-folder/file",
    "/loop",
    "/loop/file",
    "/dangling",
    "/magic/etc/passwd",
    "/absolute",
    "/page.html/more",
];

fn forbidden(errno: i32) -> Option<Command> {
    without(&[OPENAT2], errno)
}

#[test]
fn a_site_is_served_without_openat2_with_the_same_answers() {
    let folder = site();
    on_both_engines(|engine| {
        let usual = engine.serve(folder.join("site"), &[]);
        for (errno, code) in [(ENOSYS, "ENOSYS"), (EPERM, "EPERM")] {
            let Some(mut command) = forbidden(errno) else {
                return;
            };
            command.args(["serve", "--port", "0", "--engine", engine.name()]);
            let server = Gannet::start(command.arg(folder.join("site")));
            let lines = server.start_lines().join("\n");
            assert!(lines.contains(&format!("lookups  {SLOWER}")), "{lines}");
            assert!(lines.contains(code), "{lines}");
            assert!(lines.contains("RestrictSUIDSGID="), "{lines}");
            for target in TARGETS {
                let (got, expected) = (get(&server, target), get(&usual, target));
                assert_eq!(got.status, expected.status, "{target}");
                assert_eq!(got.body, expected.body, "{target}");
                let of = |name| (got.field(name), expected.field(name));
                for name in ["location", "content-type", "etag", "last-modified"] {
                    let (got, expected) = of(name);
                    assert_eq!(got, expected, "{target}: {name}");
                }
            }
            assert_eq!(get(&server, "/winding.txt").body, b"deep");
            assert_eq!(server.stop().status, Some(0));
        }
    });
}

/// A folder is swapped all the time with a link out of the site.
#[test]
fn swapped_links_lead_nowhere_without_openat2() {
    on_both_engines(|engine| {
        let folder = site();
        for number in 0..500 {
            folder.write(format!("site/real/{number}"), "public");
            folder.write(format!("secret/{number}"), "secret");
        }
        let inside = |name: &str| folder.join("site").join(name);
        symlink("../secret", inside("evil")).unwrap();
        let Some(mut command) = forbidden(ENOSYS) else {
            return;
        };
        command.args(["serve", "--port", "0", "--engine", engine.name()]);
        let server = Gannet::start(command.arg(folder.join("site")));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for other in ["real", "evil"] {
                        fs::rename(inside(other), inside("d")).unwrap();
                        fs::rename(inside("d"), inside(other)).unwrap();
                    }
                }
            });
            let mut client = Client::new(&server);
            let mut statuses = Vec::new();
            for number in 0..500 {
                let response = client.get(&format!("/d/{number}"));
                if response.status == 200 {
                    assert_eq!(response.body, b"public");
                }
                statuses.push(response.status);
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(statuses.contains(&404), "{statuses:?}");
        });
        assert_eq!(server.stop().status, Some(0));
    });
}

#[test]
fn checks_name_the_forbidden_call() {
    let folder = site();
    let Some(mut check) = forbidden(ENOSYS) else {
        return;
    };
    let arguments = ["--port", "0", "--check-config"];
    let checked = run(check.args(arguments).arg(folder.join("site"))).success();
    let note = format!("note     {SLOWER}");
    assert!(checked.text().contains(&note), "{}", checked.text());
    let mut doctor = forbidden(ENOSYS).unwrap();
    let found = run(doctor
        .args(["doctor", "--port", "0"])
        .arg(folder.join("site")));
    let mut lines = found.text().lines();
    let is_named = |line: &str| line.starts_with("note  lookups") && line.contains(SLOWER);
    assert!(lines.any(is_named), "{}", found.text());
    assert_eq!(found.status, Some(0));
}

/// Where a link leads counts, not how it is written; links into a named folder are followed, others are not.
#[test]
fn links_are_followed_within_the_site_and_into_named_folders() {
    on_both_engines(|engine| {
        // What is beside the site could be read without a rule of the sandbox's own.
        let (folder, elsewhere) = (site(), Folder::new());
        elsewhere.write("shared/data/report.txt", "shared");
        let link = |target: &Path, name: &str| {
            symlink(target, folder.join("site").join(name)).unwrap();
        };
        symlink("site", folder.join("current")).unwrap();
        symlink(folder.join("secret"), elsewhere.join("shared/data/evil")).unwrap();
        link(&folder.join("site/page.html"), "own.html");
        link(&folder.join("current/page.html"), "named.html");
        link(&folder.join("site/a/b"), "own-folder");
        link(&folder.join("current/own.html"), "chained.html");
        link(&elsewhere.join("shared/data"), "data");
        let up = Path::new("../..").join(elsewhere.path().file_name().unwrap());
        link(&up.join("shared/data/report.txt"), "near.txt");
        let shared = elsewhere.join("shared");
        for is_forbidden in [false, true] {
            for named in [None, Some(&shared)] {
                let command = match is_forbidden {
                    true => forbidden(ENOSYS),
                    false => Some(gannet_testkit::command()),
                };
                let Some(mut command) = command else {
                    return;
                };
                command.args(["serve", "--port", "0", "--engine", engine.name()]);
                command.args(named.map(|it| format!("--follow-links={}", it.display())));
                let server = Gannet::start(command.arg(folder.join("current")));
                let of_named = |body| if named.is_some() { Some(body) } else { None };
                for (target, expect) in [
                    ("/own.html", Some("page")),
                    ("/named.html", Some("page")),
                    ("/chained.html", Some("page")),
                    ("/round.html", Some("page")),
                    ("/own-folder/deep.txt", Some("deep")),
                    ("/data/report.txt", of_named("shared")),
                    ("/near.txt", of_named("shared")),
                    ("/data/evil/file", None),
                    ("/absolute", None),
                    ("/out", None),
                    ("/magic/etc/passwd", None),
                ] {
                    let response = get(&server, target);
                    let body = (response.status == 200).then(|| response.text().to_owned());
                    assert_eq!(
                        body.as_deref(),
                        expect,
                        "{target}, {named:?}, {is_forbidden}"
                    );
                    if expect.is_none() {
                        assert_eq!(response.status, 404, "{target}");
                    }
                }
                assert_eq!(server.stop().status, Some(0));
            }
        }
    });
}

#[test]
fn links_into_named_folders_are_explained_and_their_folders_have_to_be_there() {
    let folder = site();
    folder.write("shared/report.txt", "shared");
    symlink(folder.join("shared"), folder.join("site/data")).unwrap();
    let explain = |more: &[&str]| {
        let arguments = ["explain", "/data/report.txt", "site"];
        let explained = gannet_in(&folder, arguments.iter().chain(more)).success();
        let mut lines = explained.text().lines();
        lines
            .find(|line| line.starts_with("status "))
            .map(str::to_owned)
    };
    assert_eq!(explain(&[]).as_deref(), Some("status 404"));
    assert_eq!(
        explain(&["--follow-links", "shared"]).as_deref(),
        Some("status 200")
    );
    for arguments in [
        &["serve", "--port", "0", "--follow-links", "none", "site"][..],
        &["serve", "--follow-links", "none", "--check-config", "site"],
        &["explain", "/", "site", "--follow-links", "none"],
    ] {
        let refused = gannet_in(&folder, arguments);
        assert_ne!(refused.status, Some(0));
        assert!(refused.err.contains("none': no such file"), "{refused:?}");
    }
    let doctor = gannet_in(
        &folder,
        ["doctor", "--port", "0", "--follow-links", "none", "site"],
    );
    assert!(doctor.text().contains("none': no such file"), "{doctor:?}");
}

/// The entries of a folder of hosts, and the links in them.
#[test]
fn hosts_are_links_into_named_folders_as_well() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("hosts/a.test/index.html", "a");
        folder.write("shared/b/index.html", "b");
        folder.write("secret/index.html", "secret");
        let link = |target: &Path, name: &str| {
            symlink(target, folder.join("hosts").join(name)).unwrap();
        };
        link(&folder.join("hosts/a.test"), "www.a.test");
        link(&folder.join("shared/b"), "b.test");
        link(&folder.join("secret"), "c.test");
        link(&folder.join("shared/b/index.html"), "a.test/shared.html");
        link(
            &folder.join("hosts/b.test/index.html"),
            "a.test/neighbour.html",
        );
        let shared = folder.join("shared");
        let flags = ["--hosts", "--follow-links", shared.to_str().unwrap()];
        let server = engine.serve(folder.join("hosts"), &flags);
        let page = |host: &str, target: &str| {
            let mut client = Client::new(&server);
            client.send(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
            let response = client.response();
            (response.status == 200).then(|| response.text().to_owned())
        };
        assert_eq!(page("a.test", "/").as_deref(), Some("a"));
        assert_eq!(page("www.a.test", "/").as_deref(), Some("a"));
        assert_eq!(page("b.test", "/").as_deref(), Some("b"));
        assert_eq!(page("c.test", "/"), None);
        assert_eq!(page("a.test", "/shared.html").as_deref(), Some("b"));
        assert_eq!(page("a.test", "/neighbour.html"), None, "of another host");
    });
}
