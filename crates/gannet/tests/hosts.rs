//! Several sites in one server: configured by flags or folders, and the answer for other hosts.

#[path = "hosts/below.rs"]
mod below;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, command, gannet_in, run};

/// Serves with these flags only, which include the path.
fn start(engine: &str, folder: &Folder, flags: &[&str]) -> Gannet {
    let mut command = command();
    command.args(["serve", "--port", "0", "--engine", engine]);
    command.args(flags).current_dir(folder.path());
    Gannet::start(&mut command)
}

fn get(client: &mut Client, host: &str, target: &str) -> Response {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

/// Rows have host, target, status and the beginning of the content.
fn check(server: &Gannet, rows: &[(&str, &str, u16, &str)]) {
    let mut client = Client::new(server);
    for (host, target, status, text) in rows {
        let response = get(&mut client, host, target);
        assert_eq!(response.status, *status, "{host} {target}");
        assert!(
            response.text().starts_with(text),
            "{host} {target}: {}",
            response.text()
        );
    }
}

fn sites() -> Folder {
    let folder = Folder::new();
    for (path, text) in [
        ("a.example/index.html", "site a"),
        ("a.example/only-a.txt", "only a"),
        ("a.example/404.html", "nothing on a"),
        ("a.example/_redirects", "/old /only-a.txt\n"),
        ("b.example/index.html", "site b"),
        ("b.example/large.bin", &"b".repeat(100_000)),
        ("_default/index.html", "any host"),
        ("not_a_host!/index.html", "never"),
    ] {
        folder.write(path, text);
    }
    std::os::unix::fs::symlink("a.example", folder.join("www.a.example")).expect("a new name");
    folder
}

/// Exact names come first, then the longest wildcard.
const OF_WILDCARDS: &[(&str, &str, u16, &str)] = &[
    ("a.example", "/", 200, "site a"),
    ("b.example", "/", 200, "any host"),
    ("sub.a.example", "/", 200, "below a"),
    ("deep.sub.A.example:80", "/", 200, "below a"),
    ("x.y.a.example", "/", 200, "below y"),
    ("y.a.example", "/", 200, "below a"),
    ("named.y.a.example", "/", 200, "named"),
    ("xa.example", "/", 200, "any host"),
    ("example", "/", 200, "any host"),
    ("*.a.example", "/", 200, "below a"),
];

#[test]
fn a_site_is_for_all_hosts_below_one() {
    let folder = Folder::new();
    let page = |site: &str, text: &str| folder.write(format!("{site}/index.html"), text);
    page("sites/a.example", "site a");
    page("sites/_wildcard.a.example", "below a");
    page("sites/*.y.a.example", "below y");
    page("sites/named.y.a.example", "named");
    page("sites/_default", "any host");
    let pack = [
        "pack",
        "sites/_wildcard.a.example",
        "--fast",
        "-q",
        "-o",
        "below.gannet",
    ];
    gannet_in(&folder, pack).success();
    let by_flags = [
        "--site=a.example=sites/a.example",
        "--site=*.A.example=below.gannet",
        "--site=*.y.a.example,*.z.example=sites/*.y.a.example",
        "--site=named.y.a.example=sites/named.y.a.example",
        "sites/_default",
    ];
    on_both_engines(|engine| {
        let server = start(engine.name(), &folder, &["--hosts", "sites"]);
        check(&server, OF_WILDCARDS);
        let server = start(engine.name(), &folder, &by_flags);
        check(&server, OF_WILDCARDS);
        check(&server, &[("n.z.example", "/", 200, "below y")]);
    });
    // Many sites are opened when they are requested.
    for number in 0..70 {
        page(&format!("sites/{number}.example"), "one of many");
    }
    fs::remove_dir_all(folder.join("sites/_wildcard.a.example")).expect("it is there");
    let archive = folder.join("sites/_wildcard.a.example.gannet");
    fs::copy(folder.join("below.gannet"), archive).expect("copied");
    let server = start("epoll", &folder, &["--hosts", "sites"]);
    check(&server, OF_WILDCARDS);
    check(&server, &[("7.example", "/", 200, "one of many")]);
    let explain = ["explain", "--hosts", "//x.y.a.example/", "sites"];
    let shown = gannet_in(&folder, explain).success();
    assert!(shown.text().contains("*.y.a.example"), "{}", shown.text());
}

#[test]
fn each_host_has_its_folder() {
    let folder = sites();
    on_both_engines(|engine| {
        let server = start(engine.name(), &folder, &["--hosts", "."]);
        check(
            &server,
            &[
                ("a.example", "/", 200, "site a"),
                ("A.Example:8080", "/", 200, "site a"),
                ("a.example.", "/", 200, "site a"),
                ("www.a.example", "/", 200, "site a"),
                ("b.example", "/", 200, "site b"),
                ("b.example", "/large.bin", 200, "bbb"),
                ("b.example", "/only-a.txt", 404, "<!doctype"),
                ("a.example", "/no", 404, "nothing on a"),
                ("c.example", "/", 200, "any host"),
                ("c.example", "/a.example/", 404, "<!doctype"),
            ],
        );
        let mut client = Client::new(&server);
        let response = get(&mut client, "a.example", "/old").expect(301);
        assert_eq!(response.field("location"), Some("/only-a.txt"));
        get(&mut client, "b.example", "/old").expect(404);
        // The target's host takes precedence over the field (RFC 9112 section 3.2.2).
        check(
            &server,
            &[("b.example", "http://a.example/", 200, "site a")],
        );
    });
}

/// Folders are named as people write hosts; invalid names are reported with the reason.
#[test]
fn names_are_taken_as_they_are_meant() {
    let folder = Folder::new();
    for (name, text) in [
        ("Capital.Example", "capital"),
        ("b\u{fc}cher.example", "books"),
        ("::1", "address"),
        ("twice.example", "once"),
        ("Twice.example", "never"),
        ("no host", "never"),
        ("bu\u{308}cher.example", "never"),
        (".hidden", "never"),
    ] {
        folder.write(format!("{name}/index.html"), text);
    }
    folder.write("notes.txt", "a file is no mistake");
    on_both_engines(|engine| {
        let mut server = start(engine.name(), &folder, &["--hosts", "."]);
        check(
            &server,
            &[
                ("capital.example", "/", 200, "capital"),
                ("CAPITAL.example", "/", 200, "capital"),
                ("xn--bcher-kva.example", "/", 200, "books"),
                ("[::1]", "/", 200, "address"),
                ("[0:0::0:1]:8080", "/", 200, "address"),
                ("[::2]", "/", 421, "<!doctype"),
                ("twice.example", "/", 200, "once"),
            ],
        );
        let mut lines: Vec<String> = (0..3)
            .map(|_| server.next_error_line().expect("a line for each"))
            .collect();
        lines.sort();
        for (line, parts) in lines.iter().zip([
            ["Twice.example': ", "is for the same host"],
            ["u\u{308}cher.example': ", "U+0308"],
            ["no host': ", "not the name of a host"],
        ]) {
            assert!(parts.iter().all(|part| line.contains(part)), "{lines:?}");
        }
        assert_eq!(server.stop().status, Some(0));
        let server = start(engine.name(), &folder, &["--site", "[::1],X.example=::1"]);
        check(
            &server,
            &[
                ("[::1]", "/", 200, "address"),
                ("x.example", "/", 200, "address"),
            ],
        );
    });
}

#[test]
fn archives_and_directories_side_by_side() {
    let folder = sites();
    let out = Folder::new();
    let archive = out.join("a.gannet");
    let archive = archive.to_str().expect("UTF-8");
    gannet_in(
        &folder,
        ["pack", "a.example", "--fast", "--quiet", "-o", archive],
    )
    .success();
    let a = format!("a.example,www.a.example={archive}");
    on_both_engines(|engine| {
        let b = "b.example=b.example";
        let rows = [
            ("a.example", "/", 200, "site a"),
            ("www.a.example", "/only-a.txt", 200, "only a"),
            ("b.example", "/", 200, "site b"),
        ];
        let server = start(
            engine.name(),
            &folder,
            &["--site", &a, "--site", b, "_default"],
        );
        check(&server, &rows);
        check(&server, &[("c.example", "/", 200, "any host")]);

        let server = start(engine.name(), &folder, &["--site", &a, "--site", b]);
        check(&server, &rows);
        check(&server, &[("c.example", "/", 421, "<!doctype")]);

        let flags = [
            "--site",
            &a,
            "--site",
            b,
            "--unknown-host",
            "404",
            "_default",
        ];
        let server = start(engine.name(), &folder, &flags);
        check(&server, &rows);
        check(&server, &[("c.example", "/", 404, "<!doctype")]);

        let flags = ["--site", &a, "--site", b, "--unknown-host=ignore"];
        let server = start(engine.name(), &folder, &flags);
        check(
            &server,
            &[
                ("b.example", "/", 200, "site a"),
                ("c.example", "/", 200, "site a"),
            ],
        );
    });
}

#[test]
fn sites_come_from_the_configuration_too() {
    let folder = sites();
    folder.write(
        "gannet.toml",
        "[site]\n\"a.example\" = \"a.example\"\n\"b.example\" = \"b.example\"\n",
    );
    let server = start("auto", &folder, &["--config", "gannet.toml"]);
    check(
        &server,
        &[
            ("a.example", "/", 200, "site a"),
            ("b.example", "/", 200, "site b"),
        ],
    );
}

#[test]
fn mistakes_about_hosts_are_told() {
    let folder = sites();
    folder.write("file.txt", "text");
    for (flags, part) in [
        (vec!["--site", "a.example"], "HOST[/PREFIX][,...]=PATH"),
        (
            vec!["--site", "a.example:80=b.example"],
            "not the name of a host",
        ),
        (vec!["--site", "a.example=missing"], "missing"),
        (
            vec!["--hosts", "a.example"],
            "no folder has the name of a host",
        ),
        (vec!["--hosts", "file.txt"], "not a directory"),
    ] {
        let ended = gannet_in(
            &folder,
            [&["serve", "--port", "0"], flags.as_slice()].concat(),
        );
        assert_ne!(ended.status, Some(0), "{flags:?}");
        assert!(ended.err.contains(part), "{flags:?}: {}", ended.err);
    }
}

#[test]
fn health_and_constant_answers() {
    let folder = sites();
    on_both_engines(|engine| {
        let flags = ["--health", "/-/healthy", "a.example"];
        let server = start(engine.name(), &folder, &flags);
        check(
            &server,
            &[
                ("any", "/-/healthy", 200, "ok\n"),
                ("any", "/healthz", 404, "nothing on a"),
            ],
        );
        let server = start(engine.name(), &folder, &["--dummy"]);
        check(
            &server,
            &[
                ("any", "/", 200, "hello world!\n"),
                ("any", "/x", 200, "hello world!\n"),
            ],
        );
        let server = start(engine.name(), &folder, &["--dummy-empty"]);
        let mut client = Client::new(&server);
        assert_eq!(
            get(&mut client, "any", "/").expect(200).content_length(),
            Some(0)
        );
    });
}

#[test]
fn limits_of_the_process_are_set() {
    let folder = sites();
    let flags = [
        "--max-descriptors",
        "200",
        "--max-memory",
        "1GiB",
        "a.example",
    ];
    let server = start("auto", &folder, &flags);
    check(&server, &[("any", "/", 200, "site a")]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("Linux");
    let soft = |name: &str| {
        let line = limits
            .lines()
            .find(|line| line.starts_with(name))
            .expect(name);
        line[name.len()..]
            .split_whitespace()
            .next()
            .map(str::to_owned)
    };
    assert_eq!(soft("Max open files").as_deref(), Some("200"));
    assert_eq!(soft("Max data size").as_deref(), Some("1073741824"));
}

/// Starts with a limit of 9, which is too low, and returns the minimum named by the error.
fn least(folder: &Folder, flag: &str, workers: &str, content: &str) -> String {
    let given = [
        "serve",
        "--port",
        "0",
        "--workers",
        workers,
        flag,
        "9",
        content,
    ];
    let ended = gannet_in(folder, given);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    let start = format!("gannet: {flag} 9: too ");
    assert!(ended.err.starts_with(&start), "{ended:?}");
    let (message, help) = ended.err.split_once("\nhelp: give ").expect(&ended.err);
    let (_, rest) = message.split_once(": at least ").expect(message);
    let (least, _) = rest.split_once(" are needed (").expect(message);
    assert!(help.starts_with(least), "{ended:?}");
    least.to_owned()
}

#[test]
fn limits_too_low_to_start_are_told_with_a_least_that_is_enough() {
    let folder = sites();
    gannet_in(&folder, ["pack", "a.example", "-o", "a.gannet", "--quiet"]).success();
    on_both_engines(|engine| {
        for content in ["a.example", "a.gannet"] {
            for (flag, workers) in [
                ("--max-descriptors", "1"),
                ("--max-descriptors", "3"),
                ("--max-memory", "1"),
                ("--max-memory", "3"),
            ] {
                let least = least(&folder, flag, workers, content);
                let flags = [flag, &least, "--workers", workers, content];
                let server = start(engine.name(), &folder, &flags);
                check(&server, &[("any", "/", 200, "site a")]);
            }
        }
    });
}

/// The author of a host's folder cannot select a folder outside of it.
#[test]
fn the_folder_of_a_host_does_not_lead_out() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let sites = folder.join("sites");
        folder.write("outside/page.txt", "secret");
        folder.write("sites/a.org/page.txt", "a");
        folder.write("sites/b.org/page.txt", "b");
        symlink("a.org", sites.join("www.a.org")).expect("linked");
        let mut server = engine.serve(&sites, &["--hosts"]);
        let page = |server: &Gannet, host: &str| {
            let head = format!("GET /page.txt HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let mut client = Client::new(server);
            client.send(head);
            let response = client.response();
            assert!(!response.text().contains("secret"), "{response:?}");
            (response.status, response.text().to_owned())
        };
        let b = sites.join("b.org");
        for target in [Path::new("../outside"), &folder.join("outside")] {
            assert_eq!(page(&server, "b.org"), (200, "b".into()));
            fs::rename(&b, folder.join("b")).expect("moved");
            symlink(target, &b).expect("linked");
            let line = server.next_error_line().expect("it says so");
            let expect = format!(
                "gannet: cannot serve '{}': a symbolic link leads out of the directory; answering 503 \
                 until it is back",
                b.display()
            );
            assert_eq!(line, expect);
            until("it is missing", || page(&server, "b.org").0 == 503);
            assert_eq!(page(&server, "www.a.org"), (200, "a".into()));
            fs::remove_file(&b).expect("exists");
            fs::rename(folder.join("b"), &b).expect("moved");
            let line = server.next_error_line().expect("it says so");
            assert!(line.contains("is back, and served again"), "{line}");
            until("it is back", || page(&server, "b.org").0 == 200);
        }
        assert_eq!(server.stop().status, Some(0));
        fs::rename(&b, folder.join("b")).expect("moved");
        symlink("../outside", &b).expect("linked");
        let mut server = engine.serve(&sites, &["--hosts"]);
        let line = server.next_error_line().expect("it says so");
        let cause = format!(
            "cannot open directory '{}': a symbolic link leads out of the directory",
            b.display()
        );
        let help = format!(
            "'--site b.org={}' serves a path elsewhere; --follow-links DIR lets links lead into DIR",
            folder.join("outside").display()
        );
        assert_eq!(line, format!("gannet: no site for 'b.org': {cause}"));
        assert_eq!(server.next_error_line(), Some(format!("help: {help}")));
        assert_eq!(page(&server, "b.org").0, 503);
        assert_eq!(page(&server, "www.a.org"), (200, "a".into()));
        let checked = run(command().args(["check", "--hosts"]).arg(&sites));
        assert_eq!(checked.status, Some(1), "{checked:?}");
        assert!(
            checked
                .text()
                .contains("a symbolic link leads out of the directory")
        );
    });
}

/// Case and a dot at the end do not distinguish hosts, on the command line as in a file.
#[test]
fn a_host_with_two_sites_is_refused() {
    let folder = sites();
    folder.write(
        "two.toml",
        "[site]\n\"a.test\" = \"a.example\"\n\"A.TEST\" = \"b.example\"\n",
    );
    let flags = ["--site", "a.test=a.example", "--site", "A.TEST.=b.example"];
    for given in [&flags[..], &["--config", "two.toml"]] {
        let check = ["serve", "--check-config", "--port", "0"];
        let ended = gannet_in(&folder, check.iter().chain(given));
        assert_eq!(ended.status, Some(2), "{ended:?}");
        let message = "gannet: the host 'a.test' is named twice: for '";
        assert!(ended.err.starts_with(message), "{ended:?}");
    }
}

/// An archive of one site answers every host: flags about hosts would have no effect, or refuse
/// everything.
#[test]
fn flags_about_hosts_need_an_archive_with_hosts() {
    let folder = sites();
    let pack = |from: &str, to: &str, more: &[&str]| {
        let arguments = ["pack", from, "--fast", "-q", "-o", to];
        gannet_in(&folder, arguments.iter().chain(more)).success();
    };
    pack("a.example", "one.gannet", &[]);
    pack(".", "all.gannet", &["--hosts"]);
    for flags in [&["--unknown-host", "404"][..], &["--unknown-host=ignore"]] {
        let status = |archive: &str| {
            let check = ["serve", "--check-config", "--port", "0", archive];
            gannet_in(&folder, check.iter().chain(flags)).status
        };
        assert_eq!(status("one.gannet"), Some(2), "{flags:?}");
        assert_eq!(status("all.gannet"), Some(0), "{flags:?}");
    }
}

/// A store that is the folder of a host is served, not shown: its files are not for the public.
#[test]
fn the_folder_of_a_host_may_be_a_store() {
    let folder = Folder::new();
    folder.write("site/index.html", "published");
    folder.write("hosts/b.example/index.html", "site b");
    gannet_in(&folder, ["publish", "site", "hosts/a.example"]).success();
    let server = start("epoll", &folder, &["hosts", "--hosts"]);
    check(
        &server,
        &[
            ("a.example", "/", 200, "published"),
            ("a.example", "/current", 404, ""),
            ("a.example", "/log/1", 404, ""),
            ("b.example", "/", 200, "site b"),
        ],
    );
}
