//! A live directory that is recreated, moved, switched or temporarily missing; special files in
//! place of the operator's files; and signals.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gannet_testkit::client::{Client, Response, get, head};
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, Signal, command, gannet_in, run};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const LARGE: usize = 8 << 20;

/// Creates a site whose page names its version. A directory appears whole: on a busy machine a part of
/// it would be served for a while.
fn make(path: &Path, version: &str) {
    let is_there = path.exists();
    let place = match is_there {
        true => path.to_owned(),
        false => path.with_file_name(".made"),
    };
    fs::create_dir_all(&place).expect("made");
    fs::write(place.join("page.txt"), version).expect("written");
    fs::write(place.join("_redirects"), format!("/which /{version} 302\n")).expect("written");
    if !is_there {
        fs::rename(place, path).expect("moved");
    }
}

/// Makes a directory again. Nothing is there for a moment, which is over before the server looks twice.
fn make_again(path: &Path, version: &str) {
    let (new, old) = (path.with_extension("new"), path.with_extension("old"));
    make(&new, version);
    fs::rename(path, &old).expect("moved");
    fs::rename(&new, path).expect("moved");
    fs::remove_dir_all(old).expect("removed");
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).expect("made");
}

/// Polls until the new version is served. Until then, only the old version and errors are answered.
fn becomes(server: &Gannet, old: &str, new: &str) {
    let mut client = Client::new(server);
    until("the new site is served", || {
        let page = client.get("/page.txt");
        let is_new = page.status == 200 && page.text() == new;
        let is_old = page.status == 200 && page.text() == old;
        assert!(
            is_new || is_old || matches!(page.status, 404 | 503),
            "{page:?}"
        );
        assert_no_list(&client.get("/"));
        is_new
    });
    let redirect = client.get("/which").expect(302);
    assert_eq!(redirect.field("location"), Some(&*format!("/{new}")));
}

/// A listing is never empty: the site has a page.
fn assert_no_list(response: &Response) {
    let is_list = response.status == 200 && !response.text().contains("page.txt");
    assert!(!is_list, "an empty list: {response:?}");
}

const TAKEN: &str = "' was replaced; serving the new directory";

#[test]
fn a_directory_that_is_made_again_is_served() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let (dist, old, new) = (folder.join("dist"), folder.join("old"), folder.join("new"));
        make(&dist, "one");
        let mut server = engine.serve(&dist, &["--workers", "2"]);
        assert_eq!(get(&server, "/page.txt").expect(200).text(), "one");

        make_again(&dist, "two");
        becomes(&server, "one", "two");
        server.says_next(TAKEN);

        make(&new, "three");
        fs::rename(&dist, &old).expect("moved");
        fs::rename(&new, &dist).expect("moved");
        becomes(&server, "two", "three");
        server.says_next(TAKEN);

        // It was only away.
        fs::rename(&dist, &new).expect("moved");
        server.says_next("no such directory (ENOENT); answering 503 until it is back");
        fs::rename(&new, &dist).expect("moved");
        server.says_next("' is back, and served again");
        assert_eq!(get(&server, "/page.txt").expect(200).text(), "three");

        // Back to a directory that was served before.
        fs::rename(&dist, &new).expect("moved");
        fs::rename(&old, &dist).expect("moved");
        becomes(&server, "three", "two");
        server.says_next(TAKEN);
        assert_eq!(server.stop().success().status, Some(0));
    });
}

#[test]
fn a_link_that_is_switched_is_followed_and_running_answers_finish() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        for version in ["one", "two"] {
            make(&folder.join(version), version);
        }
        folder.write("one/large.bin", pattern(LARGE, 5));
        folder.write("two/large.bin", pattern(LARGE, 9));
        let current = folder.join("current");
        symlink("one", &current).expect("linked");
        let mut server = engine.serve(&current, &["--workers", "1"]);
        assert_eq!(get(&server, "/page.txt").expect(200).text(), "one");
        let mut download = Client::slow(&server);
        download.send(head("GET", "/large.bin", &[]));
        download.head().expect(200);
        symlink("two", folder.join("next")).expect("linked");
        fs::rename(folder.join("next"), &current).expect("switched");
        becomes(&server, "one", "two");
        server.says_next(TAKEN);
        assert_pattern(&get(&server, "/large.bin").expect(200).body, 9);
        assert_pattern(&download.take(LARGE as u64), 5);
    });
}

/// Pages that are open refer to the assets of their own directory. Only names in frameworks' folders
/// are found in a directory that was replaced, and only while they are there.
#[test]
fn assets_of_directories_that_were_replaced_still_answer() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let asset = |version: &str| format!("_next/static/chunk-{version}.js");
        for version in ["one", "two", "three"] {
            make(&folder.join(version), version);
            folder.write(format!("{version}/{}", asset(version)), version.repeat(100));
            let coded = format!("{version}/{}.gz", asset(version));
            folder.write(coded, format!("coded {version}"));
            folder.write(format!("{version}/only-{version}.txt"), "text");
            folder.write(format!("{version}/_next/static/same.js"), version);
            // What would answer for any missing path.
            folder.write(format!("{version}/index.html"), version);
        }
        let current = folder.join("current");
        symlink("one", &current).expect("linked");
        let mut server = engine.serve(&current, &["--workers", "2", "--spa"]);
        let becomes = |server: &mut Gannet, version: &str| {
            symlink(version, folder.join("next")).expect("linked");
            fs::rename(folder.join("next"), &current).expect("switched");
            server.says_next(TAKEN);
            until("every worker serves it", || {
                (0..8).all(|_| get(server, "/page.txt").expect(200).text() == version)
            });
        };
        let has = |server: &Gannet, version: &str| {
            let path = format!("/{}", asset(version));
            let found = get(server, &path).expect(200);
            assert_eq!(found.text(), version.repeat(100));
            let cached = found.field("cache-control").expect("it is sent");
            assert!(cached.contains("immutable"), "{cached}");
            let mut client = Client::new(server);
            client.send(head("GET", &path, &["accept-encoding: gzip"]));
            let coded = client.response().expect(200);
            assert_eq!(coded.body, format!("coded {version}").into_bytes());
        };
        has(&server, "one");
        becomes(&mut server, "two");
        becomes(&mut server, "three");
        for version in ["one", "two", "three"] {
            has(&server, version);
        }
        assert_eq!(
            get(&server, "/_next/static/same.js").expect(200).text(),
            "three"
        );
        get(&server, "/_next/static/never.js").expect(404);
        get(&server, "/only-one.txt").expect(404);
        fs::remove_file(folder.join("one").join(asset("one"))).expect("exists");
        until("it is noticed", || {
            get(&server, &format!("/{}", asset("one"))).status == 404
        });
        has(&server, "two");
        assert_eq!(server.stop().success().status, Some(0));
    });
}

/// Rules files may be links within the directory. Files outside are neither used nor quoted.
#[test]
fn rules_outside_the_directory_are_not_read() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let site = folder.join("site");
        let rules = site.join("_redirects");
        folder.write("outside/map", "/a https://example.org/secret\n");
        folder.write("outside/shadow", "root:x:secret\n");
        folder.write("site/rules/redirects", "/which /one 302\n");
        symlink("rules/redirects", &rules).expect("linked");
        let mut server = engine.serve(&site, &[]);
        let check = |server: &Gannet| {
            let redirect = get(server, "/which").expect(302);
            assert_eq!(redirect.field("location"), Some("/one"));
            get(server, "/a").expect(404);
        };
        check(&server);
        let expect = format!(
            "  {}: a symbolic link leads out of the directory",
            rules.display()
        );
        for target in [folder.join("outside/map"), "../outside/shadow".into()] {
            fs::remove_file(&rules).expect("exists");
            symlink(target, &rules).expect("linked");
            server.says_next("; keeping the old ones:");
            let line = server.next_error_line();
            assert_eq!(line.as_deref(), Some(&*expect));
            check(&server);
            fs::remove_file(&rules).expect("exists");
            symlink("rules/redirects", &rules).expect("linked");
            server.says_next("gannet: reloaded the rules");
        }
        assert_eq!(server.stop().status, Some(0));
        fs::remove_file(&rules).expect("exists");
        symlink("../outside/shadow", &rules).expect("linked");
        for arguments in [["serve", "--check-config"], ["explain", "/a"]] {
            let ended = run(command().args(arguments).arg(&site));
            let is_refused = ended.status != Some(0) && ended.err.contains("leads out");
            assert!(is_refused && !ended.err.contains("secret"), "{ended:?}");
        }
    });
}

#[test]
fn a_directory_that_is_gone_for_a_while_is_an_error() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let dist = folder.join("dist");
        make(&dist, "one");
        let mut server = engine.serve(&dist, &[]);
        get(&server, "/page.txt").expect(200);
        fs::remove_dir_all(&dist).expect("removed");
        until("it is noticed", || {
            let list = get(&server, "/");
            assert_no_list(&list);
            list.status == 503
        });
        server.says_next("no such directory (ENOENT); answering 503");
        for target in ["/page.txt", "/none", "/which", "/folder/"] {
            let response = get(&server, target).expect(503);
            assert_eq!(response.field("retry-after"), Some("1"), "{target}");
            assert_eq!(response.field("etag"), None);
        }
        fs::write(&dist, "a file").expect("written");
        server.says_next("not a directory (ENOTDIR)");
        get(&server, "/page.txt").expect(503);
        fs::remove_file(&dist).expect("removed");
        server.says_next("no such directory");
        make(&dist, "two");
        becomes(&server, "one", "two");
        server.says_next(TAKEN);
    });
}

#[test]
fn folders_of_hosts_and_the_working_directory_are_followed() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let (a, b) = (folder.join("a.example"), folder.join("b.example"));
        make(&a, "one");
        make(&b, "other");
        let mut server = engine.serve(folder.path(), &["--hosts"]);
        let page = |host: &str| {
            let mut client = Client::new(&server);
            client.send(format!("GET /page.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            client.response()
        };
        assert_eq!(page("a.example").expect(200).text(), "one");
        fs::remove_dir_all(&a).expect("removed");
        until("it is noticed", || page("a.example").status == 503);
        make(&a, "two");
        until("it is back", || page("a.example").status == 200);
        assert_eq!(page("a.example").text(), "two");
        assert_eq!(page("b.example").expect(200).text(), "other");
        server.says_next("a.example': no such directory");
        server.says_next(TAKEN);

        let mut here = command();
        here.current_dir(&b)
            .args(["--port", "0", "--engine", engine.name(), "."]);
        let server = Gannet::start(&mut here);
        assert_eq!(get(&server, "/page.txt").expect(200).text(), "other");
        fs::rename(&b, folder.join("away")).expect("moved");
        make(&b, "again");
        becomes(&server, "other", "again");
    });
}

/// A single file: its folder is followed.
#[test]
fn a_single_file_is_followed_into_a_new_folder() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let dist = folder.join("dist");
        make(&dist, "one");
        let server = engine.serve(dist.join("page.txt"), &[]);
        assert_eq!(get(&server, "/").expect(200).text(), "one");
        fs::remove_dir_all(&dist).expect("removed");
        make(&dist, "two");
        until("the new one is served", || {
            let page = get(&server, "/");
            page.status == 200 && page.text() == "two"
        });
    });
}

#[test]
fn a_fifo_keeps_no_start_waiting() {
    let folder = Folder::site();
    let flags = ["serve", "--port", "0"];
    let refused = |flags: &[&str], part: &str| {
        let ended = gannet_in(&folder, flags);
        assert!(matches!(ended.status, Some(1 | 2)), "{ended:?}");
        assert!(ended.err.contains(part), "{ended:?}");
        assert!(ended.err.contains("not a regular file"), "{ended:?}");
    };
    for name in ["_redirects", "_headers"] {
        fifo(&folder.join(name));
        refused(&[&flags[..], &["."]].concat(), name);
        fs::remove_file(folder.join(name)).expect("removed");
    }
    fifo(&folder.join("pipe"));
    folder.write("key.toml", "acme.eab-kid = 'kid-1'\nacme.eab-key = 'pipe'");
    for of_file in [
        &["--tls-cert", "pipe"][..],
        &["--tls-cert", "index.html", "--tls-key", "pipe"],
        &["--config", "pipe"],
        &["--require-signature", "pipe"],
        &[
            "--acme=example.org",
            "--acme-dir=state",
            "--config=key.toml",
        ],
    ] {
        let all = [&flags[..], of_file, &["."]].concat();
        if of_file.contains(&"index.html") {
            // Rejected for the certificate before the key is opened: it does not wait.
            assert_ne!(gannet_in(&folder, &all).status, Some(0));
        } else {
            refused(&all, "pipe");
        }
    }
    refused(&[&flags[..], &["pipe"]].concat(), "pipe");
    for archive_command in [
        &["ls", "pipe"][..],
        &["verify", "pipe"],
        &["inspect", "pipe"],
    ] {
        refused(archive_command, "pipe");
    }
}

#[test]
fn a_fifo_that_comes_later_ends_neither_rules_nor_stops() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        make(folder.path(), "one");
        let mut server = engine.serve(folder.path(), &[]);
        let rules = folder.join("_redirects");
        fs::remove_file(&rules).expect("removed");
        fifo(&rules);
        server.says_next("keeping the old ones");
        server.says_next("not a regular file");
        get(&server, "/which").expect(302);
        fs::remove_file(&rules).expect("removed");
        fs::write(&rules, "/which /two 302\n").expect("written");
        server.says_next("reloaded the rules");
        let location = get(&server, "/which").expect(302);
        assert_eq!(location.field("location"), Some("/two"));
        fs::remove_file(&rules).expect("removed");
        fifo(&rules);
        assert_eq!(server.stop().status, Some(0));
    });
}

/// In a sandbox without a system call that every answer needs, the start fails with a message.
#[test]
fn a_start_without_a_needed_system_call_is_refused_with_the_reason() {
    use gannet_testkit::seccomp::{PREADV2, without};
    use rustix::io::Errno;
    let site = Folder::site();
    on_both_engines(|engine| {
        for (errno, code) in [(Errno::NOSYS, "ENOSYS"), (Errno::PERM, "EPERM")] {
            let Some(mut command) = without(&[PREADV2], errno.raw_os_error()) else {
                return;
            };
            command.args(["serve", "--port", "0", "--engine", engine.name()]);
            let ended = run(command.arg(site.path()));
            assert_eq!(ended.status, Some(1), "{ended:?}");
            let start = "gannet: cannot serve files: preadv2: not ";
            assert!(ended.err.starts_with(start), "{ended:?}");
            assert!(ended.err.contains(code), "{ended:?}");
            let help = "\nhelp: allow preadv2 in the seccomp profile";
            assert!(ended.err.contains(help), "{ended:?}");
        }
        // The filter by itself does not prevent a start.
        let Some(mut command) = without(&[1_000_000], 1) else {
            return;
        };
        command.args(["serve", "--port", "0", "--engine", engine.name()]);
        let server = Gannet::start(command.arg(site.path()));
        get(&server, "/about").expect(200);
    });
}

#[test]
fn hup_reads_rules_and_certificates_at_once() {
    let site = Folder::new();
    make(site.path(), "one");
    on_both_engines(|engine| {
        let mut server = Secure::serve(engine, site.path(), &[]);
        for _ in 0..5 {
            server.server.signal(Signal::HUP);
            let line = server.server.next_line();
            assert_eq!(line.as_deref(), Some("certificates reloaded"));
            server.server.says_next("the rules of");
        }
    });
}
