//! What a cache has to forget: `diff --urls`, `publish --changed` and `--wait`.

mod store;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;

use gannet_testkit::client::Client;
use gannet_testkit::{Folder, Gannet, command, gannet_in};
use rustix::process::{Pid, Signal, kill_process};
use store::{file_of, line, publish, with_site};

/// The URLs that differ between the site and what `change` makes of it, and the status.
fn changed(before: &[(&str, &str)], after: &[(&str, &str)], flags: &[&str]) -> Vec<String> {
    let folder = Folder::new();
    for (name, files) in [("1", before), ("2", after)] {
        folder.write(format!("{name}/same.html"), "same");
        for (path, content) in files {
            folder.write(format!("{name}/{path}"), content);
        }
        let archive = format!("{name}.gannet");
        let arguments = ["pack", name, "-o", &archive, "-q", "--fast"];
        gannet_in(&folder, arguments.iter().chain(flags)).success();
    }
    let found = gannet_in(&folder, ["diff", "--urls", "1.gannet", "2.gannet"]);
    let urls: Vec<_> = found.text().lines().map(str::to_owned).collect();
    assert_eq!(found.status, Some(i32::from(!urls.is_empty())), "{found:?}");
    urls
}

/// What only some may have from now on is forgotten, hashed names included. No shared cache has kept what only
/// some could have before.
#[test]
fn what_becomes_protected_is_listed_with_its_hashed_names() {
    let page = ("s/a.html", "1");
    let asset = ("s/app-0a1b2c3d4e5f.js", "2");
    let users =
        "/s/*\n  Basic-Auth: anna:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
    let headers = ("_headers", users);
    let urls = changed(&[page, asset], &[page, asset, headers], &[]);
    for url in ["/s/a", "/s/a.html", "/s/app-0a1b2c3d4e5f.js"] {
        assert!(urls.iter().any(|it| it == url), "{url}: {urls:?}");
    }
    assert!(urls.iter().all(|it| it.starts_with("/s/")), "{urls:?}");
    let other = [("s/a.html", "3"), asset, headers];
    let none: [&str; 0] = [];
    assert_eq!(changed(&[page, asset, headers], &other, &[]), none);
}

/// A page answers under its own name, without its suffix, and with a slash; a folder's page for the
/// folder. What is the same is not listed, whatever its time.
#[test]
fn each_name_of_what_changed_is_listed() {
    let none: [&str; 0] = [];
    let page = [("a.html", "1"), ("b/index.html", "1"), ("x", "1")];
    assert_eq!(changed(&page, &page, &[]), none);
    let other = [("a.html", "2"), ("b/index.html", "2"), ("x", "1")];
    let expect = ["/a", "/a.html", "/b/", "/b/index", "/b/index.html"];
    assert_eq!(changed(&page, &other, &[]), expect);
    // What comes or goes changes its redirects as well.
    assert_eq!(changed(&[("a.txt", "1")], &[], &[]), ["/a.txt", "/a.txt/"]);
    let folder = ["/b", "/b/", "/b/index", "/b/index.html"];
    let gone = changed(&[], &[("b/index.html", "1")], &[]);
    let gone: Vec<_> = gone
        .iter()
        .filter(|it| !it.contains("index") || !it.ends_with('/'))
        .collect();
    assert_eq!(gone, folder);
    // A star of a name is not one that stands for more.
    assert_eq!(changed(&[("*", "1")], &[("*", "2")], &[]), ["/%2A"]);
}

/// A picture in another format is sent under the name of the first.
#[test]
fn other_forms_are_listed_under_the_name_that_they_answer() {
    let before = [("p.jpg", "a picture"), ("p.avif", "one"), ("q.jpg", "one")];
    let after = [("p.jpg", "a picture"), ("p.avif", "two"), ("q.jpg", "one")];
    assert_eq!(changed(&before, &after, &[]), ["/p.avif", "/p.jpg"]);
}

/// Names that change with their content come and go: no cache has anything else under them, and no
/// error is kept. Content that changed nevertheless is listed.
#[test]
fn assets_are_listed_only_if_their_content_changed() {
    let before = [("_astro/a.js", "1"), ("_astro/b.js", "1")];
    let after = [("_astro/c.js", "1"), ("_astro/b.js", "2")];
    assert_eq!(changed(&before, &after, &[]), ["/_astro/b.js"]);
}

/// Errors have no lifetime: only the page's own names are listed. Neither has an application's page.
#[test]
fn pages_for_what_is_missing_are_listed_under_their_own_names() {
    let (before, after) = ([("404.html", "1")], [("404.html", "2")]);
    assert_eq!(changed(&before, &after, &[]), ["/404", "/404.html"]);
    let (before, after) = ([("index.html", "1")], [("index.html", "2")]);
    let expect = ["/", "/index", "/index.html"];
    assert_eq!(changed(&before, &after, &["--spa"]), expect);
}

/// Rules of single paths are compared as they answer; one for many paths is listed by its beginning,
/// where what it redirected may be kept.
#[test]
fn redirects_are_listed_where_they_may_be_kept() {
    let check = |before: &str, after: &str, expect: &[&str]| {
        let (before, after) = ([("_redirects", before)], [("_redirects", after)]);
        assert_eq!(
            changed(&before, &after, &[]),
            expect,
            "{before:?} {after:?}"
        );
    };
    check("/a /same 301\n", "# why\n\n/a /same 301\n", &[]);
    check("/a /same 301\n", "/a / 301\n", &["/a", "/a/"]);
    check("/a /same 301\n", "", &["/a", "/a/"]);
    check(
        "/o/* /n/:splat 301\n",
        "/o/* /m/:splat 301\n",
        &["/o", "/o/*"],
    );
    check(
        "/o/* /n/:splat 301\n",
        "/o/* /n/:splat 301\n/z /same 301\n",
        &["/z", "/z/"],
    );
    check("/o/:p /n 301\n", "", &["/o", "/o/*"]);
    // Not kept before: temporary, or nothing.
    check("/o/* /n/:splat 302\n", "/o/* /m/:splat 302\n", &[]);
    check("", "/o/* /n/:splat 301\n", &[]);
    // A new rule before one that stays takes some of its paths.
    let both = "/o/x/* /q/:splat 301\n/o/* /n/:splat 301\n";
    check("/o/* /n/:splat 301\n", both, &["/o/x", "/o/x/*"]);
    // One that looks at more than the path.
    check("/ /same 302 Language=de\n", "", &["/"]);
    check("/s id=:id /n/:id 301\n", "", &["/s/?*", "/s?*"]);
}

/// Fields are part of an answer.
#[test]
fn fields_are_compared_with_their_rules() {
    let check = |before: &str, after: &str, expect: &[&str]| {
        let (before, after) = ([("_headers", before)], [("_headers", after)]);
        assert_eq!(
            changed(&before, &after, &[]),
            expect,
            "{before:?} {after:?}"
        );
    };
    // Redirects have the fields of rules, too.
    let same = ["/same", "/same.html", "/same.html/", "/same/"];
    check("/same*\n  X-A: 1\n", "/same*\n  X-A: 2\n", &same);
    check("/other\n  X-A: 1\n", "/other\n  X-A: 2\n", &[]);
    // Which names a server has is not in an archive.
    let host = "https://a.test/*\n  X-A: 1\n";
    check(host, "https://a.test/*\n  X-A: 2\n", &["/*"]);
    check(host, host, &[]);
}

/// A cache has to forget what is for users alone from now on.
#[test]
fn what_becomes_protected_is_listed() {
    let hash = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
    let rule = format!("/same*\n  Basic-Auth: anna:{hash}\n");
    let rules = ("_headers", rule.as_str());
    let same = ["/same", "/same.html", "/same.html/", "/same/"];
    assert_eq!(changed(&[], &[rules], &[]), same);
    let old = ("_redirects", "/o/* /n/:splat 301\n");
    let fields = ("_headers", "/o/*\n  X-A: 1\n");
    assert_eq!(changed(&[old], &[old, fields], &[]), ["/o", "/o/*"]);
}

/// `--changed` is written before the release is in force, also against a release that waits for its
/// moment and the one before that; where nothing can be compared, it has every URL.
#[test]
fn a_publisher_lists_what_changes() {
    let folder = with_site();
    let list = || fs::read_to_string(folder.join("list")).expect("it was written");
    let publish = |more: &[&str]| {
        publish(&folder, &[&["-q", "--changed", "list"], more].concat()).success();
    };
    publish(&[]);
    assert_eq!(list(), "/*\n");
    publish(&[]);
    assert_eq!(list(), "");
    folder.write("site/1.html", "other");
    publish(&["--activate", "+1h"]);
    assert_eq!(list(), "/1\n/1.html\n");
    // Servers still have the first release.
    folder.write("site/2.html", "other");
    publish(&[]);
    assert_eq!(list(), "/1\n/1.html\n/2\n/2.html\n");
    folder.write("site/3.html", "other");
    publish(&[]);
    assert_eq!(list(), "/3\n/3.html\n");
    // What cannot be read cannot be compared.
    let release = line(&store::current(&folder), "release").to_owned();
    fs::remove_file(file_of(&folder, &release)).expect("it was there");
    folder.write("site/4.html", "other");
    let has_all = |more: &[&str]| {
        let said = store::publish(&folder, &[&["-q", "--changed", "list"], more].concat());
        let expect = "gannet: any URL may have changed, which '--changed' lists as '/*': ";
        assert!(
            said.err.contains(expect) && said.status == Some(0),
            "{said:?}"
        );
        assert_eq!(list(), "/*\n");
    };
    has_all(&[]);
    let refused = store::publish(&folder, &["--changed", "nowhere/list", "--note", "x"]);
    assert_eq!(refused.status, Some(1));
    let expect = "gannet: cannot write 'nowhere/list': no such file or directory (ENOENT)\n";
    assert!(refused.err.starts_with(expect), "{refused:?}");
    assert_eq!(line(&store::current(&folder), "serial"), "5");
    // Nothing answers for the assets of a void release, which caches may have for a year.
    let release = line(&store::current(&folder), "release").to_owned();
    folder.write("site/5.html", "other");
    has_all(&["--void", &release]);
    folder.write("site/6.html", "other");
    publish(&[]);
    assert_eq!(list(), "/6\n/6.html\n");
}

/// `--wait` ends when the server serves the release, published just now or before.
#[test]
fn a_publisher_waits_for_servers() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let flags = ["--port", "0", "--metrics", "127.0.0.1:0"];
    let server = Gannet::serve(folder.join("store"), &flags);
    let address = format!("http://{}", server.metrics().expect("it has metrics"));
    for content in ["two", "three", "three"] {
        folder.write("site/index.html", content);
        publish(&folder, &["-q", "--wait", &address]).success();
        let body = Client::connect(server.address())
            .request("GET", "/", &[])
            .body;
        assert_eq!(body, content.as_bytes());
    }
    // Nothing is published if there is nobody to wait for.
    let before = store::current(&folder);
    for bad in ["127.0.0.1:9090", "https://127.0.0.1:9090", "http://"] {
        folder.write("site/index.html", bad);
        let refused = publish(&folder, &["--wait", bad]);
        assert_eq!(refused.status, Some(2), "{refused:?}");
        assert!(refused.err.contains(&format!("cannot use '--wait {bad}'")));
    }
    assert_eq!(store::current(&folder), before);
    server.stop();
}

/// It says once what keeps it, also where no terminal is.
#[test]
fn a_wait_for_servers_is_told_and_ends_by_a_signal() {
    let folder = with_site();
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", server.local_addr().expect("bound"));
    // It answers nothing.
    thread::spawn(move || server.incoming().for_each(drop));
    let mut waiting = command()
        .current_dir(folder.path())
        .args(["publish", "site", "store", "--wait", &address])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let told = BufReader::new(waiting.stderr.take().expect("piped"));
    let line = told.lines().find_map(|line| {
        let line = line.expect("UTF-8");
        Some(
            line.strip_prefix(&format!("waiting for '{address}' until "))?
                .to_owned(),
        )
    });
    let line = line.expect("it is told");
    assert!(line.contains("Z: cannot download "), "{line}");
    kill_process(Pid::from_child(&waiting), Signal::TERM).expect("it runs");
    assert_eq!(waiting.wait().expect("it ends").signal(), Some(15));
}
