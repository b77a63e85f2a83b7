//! Invalid requests of users are rejected with a message, at once: special files, flags without
//! effect, limits that are too low. Checking a configuration gives the same messages as using it.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use gannet_testkit::client::get;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::{Folder, Gannet, command, gannet_in, run};
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("it can be made");
}

/// Runs in a folder; asserts the status, and that the error contains all these parts.
fn refused(folder: &Folder, arguments: &[&str], status: i32, parts: &[&str]) {
    let ended = gannet_in(folder, arguments);
    assert_eq!(ended.status, Some(status), "{arguments:?}: {ended:?}");
    for part in parts {
        assert!(
            ended.err.contains(part),
            "{arguments:?}: {part:?}: {ended:?}"
        );
    }
    assert!(ended.err.contains("\nhelp: "), "{arguments:?}: {ended:?}");
}

/// What a copy has of a release that is fetched on demand is taken for no archive, and for no file of a site.
#[test]
fn a_part_of_a_release_is_no_archive() {
    let folder = Folder::site();
    folder.write(
        "part",
        [b"\x89gnpart\r\n\x1a\n\0".as_slice(), &[0; 5000]].concat(),
    );
    let why = ["'part'", "wrong magic at offset 0", "part of a release"];
    for command in [
        &["ls", "part"] as &[&str],
        &["verify", "part"],
        &["serve", "part", "--port", "0"],
        &["publish", "part", "store"],
    ] {
        refused(&folder, command, 1, &why);
    }
}

/// A FIFO without a writer is rejected wherever a file is named, without blocking.
#[test]
fn a_fifo_is_never_waited_for() {
    let folder = Folder::site();
    let name = "fifo";
    fifo(&folder.join(name));
    let no_file = ["'fifo'", "not a regular file"];
    refused(&folder, &["pack", name], 1, &no_file);
    refused(&folder, &["extract", name, "-o", "out"], 1, &no_file);
    refused(&folder, &["ls", name], 1, &no_file);
    refused(&folder, &["diff", name, name], 2, &no_file);
    refused(&folder, &["check", name], 2, &no_file);
    refused(&folder, &["explain", "/", name], 2, &no_file);
    refused(&folder, &["-c", name, "."], 2, &no_file);
    let https = ["get", "https://localhost/", "-A", name];
    refused(&folder, &https, 2, &no_file);
    let pack = ["pack", ".", "-q", "-o", "/dev/null"];
    refused(
        &folder,
        &pack,
        1,
        &["cannot write '/dev/null': it is not a file"],
    );
    let pack = ["pack", ".", "-q", "-o", name];
    refused(
        &folder,
        &pack,
        1,
        &["cannot write 'fifo': it is not a file"],
    );
    let sign = ["pack", ".", "-q", "-o", "x.gannet", "--sign", name];
    refused(
        &folder,
        &sign,
        1,
        &["cannot read the key 'fifo'", "not a regular file"],
    );
    assert!(!folder.join("x.gannet").exists());
    fifo(&folder.join("copy.part"));
    let get = ["get", "http://127.0.0.1:9/", "-o", "copy"];
    refused(&folder, &get, 1, &["copy.part' exists and is not a file"]);
}

/// An error would quote it, in a log that more people read than may read the file.
#[test]
fn patterns_that_lead_out_of_the_site_are_not_read() {
    let folder = Folder::new();
    folder.write("secret", "[foreign\n");
    folder.write("site/index.html", "x");
    folder.write("site/in/patterns", "gone.html\n");
    folder.write("site/in/gone.html", "x");
    let link = |to: &Path| std::os::unix::fs::symlink(to, folder.join("site/in/.gannetignore"));
    link(Path::new("../../secret")).expect("new");
    let expect = "cannot read 'site/in/.gannetignore': a symbolic link leads out of the site\n\
                  help: make it a file of the site, or remove it; --follow-links reads it";
    refused(&folder, &["pack", "site", "-q"], 1, &[expect]);
    let quoted = "'[foreign' (site/in/.gannetignore:1)";
    refused(
        &folder,
        &["pack", "site", "-q", "--follow-links"],
        1,
        &[quoted],
    );
    fs::remove_file(folder.join("site/in/.gannetignore")).expect("there");
    link(&folder.join("site/in/patterns")).expect("new");
    let packed = gannet_in(&folder, ["pack", "site", "--list-skipped"]);
    assert_eq!(packed.status, Some(0), "{packed:?}");
    let report = format!("{}{}", packed.text(), packed.err);
    assert!(report.contains(".gannetignore: gone.html"), "{report}");
}

/// Rules and patterns that are not files would otherwise be ignored silently.
#[test]
fn rules_and_patterns_that_are_no_files_are_named() {
    for name in ["_redirects", "_headers", ".gannetignore"] {
        type Make = fn(&Path);
        let make: [(&str, Make); 4] = [
            ("a FIFO", fifo),
            ("a folder", |path| fs::create_dir(path).expect("new")),
            ("a socket", |path| {
                drop(UnixListener::bind(path).expect("new"))
            }),
            ("a dangling link", |path| {
                std::os::unix::fs::symlink("none", path).expect("new");
            }),
        ];
        for (what, make) in make {
            let folder = Folder::new();
            folder.write("site/index.html", "x");
            make(&folder.join("site").join(name));
            // Patterns are needed to know what is excluded.
            let help = match name {
                ".gannetignore" => "make it a file, or remove it\n",
                _ => "make it a file, remove it, or leave it out with --exclude; ",
            };
            let cause = format!("cannot read 'site/{name}': it is {what} (expected a file)");
            let expect = format!("{cause}\nhelp: {help}");
            for more in [&[][..], &["--check-config"]] {
                let pack = [&["pack", "site", "-q"][..], more].concat();
                refused(&folder, &pack, 1, &[&expect]);
                assert!(!folder.join("site.gannet").exists());
            }
        }
    }
    // Excluded, or without rules: not an error.
    let folder = Folder::new();
    folder.write("site/index.html", "x");
    folder.write("site/_redirects/page.html", "x");
    gannet_in(&folder, ["pack", "site", "-q", "--exclude", "/_redirects"]).success();
    gannet_in(&folder, ["pack", "site", "-q", "--no-rules"]).success();
}

/// The check gives the same message and status as packing, and writes nothing.
#[test]
fn the_check_of_a_pack_does_what_a_pack_does_before_it_writes() {
    let folder = Folder::site();
    gannet_in(&folder, ["keygen", "k"]).success();
    folder.write("bad/_redirects", "/a /b 999\n");
    folder.write("bad/index.html", "x");
    folder.write("patterns/index.html", "x");
    folder.write("patterns/.gannetignore", "ok\n[bad\n");
    folder.write("f", "");
    fs::create_dir(folder.join("empty")).expect("new");
    let mut tar = Command::new("tar");
    tar.args(["cf", "bad.tar", "-C", "bad", "_redirects", "index.html"]);
    run(tar.current_dir(folder.path())).success();
    let same = |arguments: &[&str], part: &str| {
        let before = folder.files();
        let check = [&["pack", "-q", "--check-config"], arguments].concat();
        let checked = gannet_in(&folder, check);
        assert_eq!(folder.files(), before, "{arguments:?}");
        let packed = gannet_in(&folder, [&["pack", "-q"], arguments].concat());
        assert_eq!(
            (checked.status, &checked.err),
            (packed.status, &packed.err),
            "{arguments:?}"
        );
        assert!(checked.err.contains(part), "{checked:?}");
        assert!(
            part.is_empty() || checked.err.contains("\nhelp: "),
            "{checked:?}"
        );
    };
    same(&["docs", "-o", "out.gannet", "--sign", "k.key"], "");
    same(
        &["docs", "--sign", "none.key"],
        "'gannet keygen NAME' makes",
    );
    same(&["docs", "--sign", "k.pub"], "it is a public key");
    same(&["bad"], "bad/_redirects:1");
    same(&["bad.tar"], "bad.tar/_redirects:1");
    same(&["patterns"], "'[bad' (patterns/.gannetignore:2)");
    same(&["docs", "--exclude", "["], "cannot use pattern '['");
    same(&["docs", "--exclude", ""], "an empty pattern");
    same(&["docs", "--include", "#x"], "is a comment");
    same(&["empty"], "no files in it");
    same(&["none"], "no such file or directory");
    same(&["docs", "--cache", "f"], "cannot keep build state in 'f'");
    same(&["docs", "-o", "docs"], "name a file in it");
    same(
        &["docs", "-o", "none/x.gannet"],
        "there is no folder 'none'",
    );
    same(&["docs", "-o", "f/x.gannet"], "cannot write");
    same(
        &["docs", "--previous", "f"],
        "cannot open archive 'f': file is empty",
    );
    same(
        &["docs", "--fast", "--best"],
        "--fast and --best contradict each other",
    );
    same(&["docs", "--index", ""], "an empty name in the list");
    same(&["docs", "--type", "x=y"], "not of the form SUFFIX=TYPE");
}

/// A user who gives a flag expects an effect.
#[test]
fn flags_that_would_do_nothing_are_refused() {
    let folder = Folder::site();
    gannet_in(&folder, ["pack", ".", "-q", "-o", "a.gannet"]).success();
    let check = |arguments: &[&str], part: &str| refused(&folder, arguments, 2, &[part]);
    let serve = |flags: &[&str], part: &str| {
        check(&[&["--check-config", "."], flags].concat(), part);
    };
    serve(
        &["--tls", "-l", "unix:s.sock"],
        "--tls has no effect where no address speaks HTTPS",
    );
    serve(
        &["--tls", "-l", "http://127.0.0.1:0"],
        "--tls has no effect where no address speaks HTTPS",
    );
    serve(
        &["--unknown-host", "404"],
        "--unknown-host would refuse every request, since no host is named",
    );
    serve(
        &["--unknown-host", "ignore"],
        "--unknown-host has no effect with a single site",
    );
    serve(&["--index", ""], "an empty name in the list");
    serve(
        &["--no-rules", "--compat", "cloudflare"],
        "--compat has no effect with --no-rules",
    );
    serve(&["--dummy"], "PATH has no effect with --dummy");
    serve(
        &["-l", "127.0.0.1:1", "-l", "127.0.0.1:1"],
        "--listen names '127.0.0.1:1' twice",
    );
    serve(
        &["-l", "127.0.0.1:1", "--metrics", "127.0.0.1:1"],
        "--listen and --metrics name the same address '127.0.0.1:1'",
    );
    serve(
        &["--metrics", "unix:m.sock"],
        "'--metrics unix:m.sock': TCP only",
    );
    serve(&["--metrics", "x"], "not an address: write ADDR:PORT");
    serve(
        &["--health", "/"],
        "no visitor would see the site's front page",
    );
    serve(
        &["--type", "tar.gz=x/y"],
        "cannot use '--type tar.gz=x/y': 'tar.gz' is not a suffix; give 'gz' alone",
    );
    serve(
        &["--metrics", "127.0.0.1:99999"],
        "'99999' is not a port from 0 to 65535",
    );
    let hosts = ["--check-config", "--hosts", "--site", "a.example=docs"];
    check(&hosts, "--hosts has no effect without PATH");
    let explain = |flags: &[&str], part: &str| {
        check(&[&["explain", "/", "a.gannet"], flags].concat(), part);
    };
    for flag in [
        "--no-rules",
        "--no-clean-urls",
        "--no-listing",
        "--dotfiles",
    ] {
        explain(&[flag], &format!("{flag} has no effect on an archive"));
    }
    explain(&["--insecure"], "--insecure has no effect without --server");
    explain(&["-A", "x"], "--cacert has no effect without --server");
    check(
        &["check", "a.gannet", "--listing"],
        "--listing has no effect on an archive",
    );
    check(
        &["check", ".", "--json", "-f", "text"],
        "contradict each other",
    );
    check(&["check", ".", "-o", "https://"], "names no host");
    check(
        &["ls", "-l", "-j", "a.gannet"],
        "--long has no effect with --json",
    );
    let get = ["get", "-k", "-A", "x", "https://localhost/"];
    check(&get, "--cacert has no effect with --insecure");
    check(
        &["verify", "a.gannet", "-p", "none"],
        "neither a minisign public key nor a file",
    );
    gannet_in(&folder, ["keygen", "k"]).success();
    check(&["verify", "a.gannet", "-p", "k.key"], "it is a secret key");
}

/// A live directory may get its front page later, so this is a warning, not an error.
#[test]
fn an_application_without_a_front_page_is_told() {
    let folder = Folder::new();
    folder.write("page.html", "x");
    let ended = gannet_in(&folder, ["--check-config", "--spa", "."]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let expect = "--spa has no effect yet on '.': there is no index.html to serve";
    assert!(ended.err.contains(expect), "{ended:?}");
    let ended = gannet_in(&folder, ["pack", ".", "--spa", "-o", "x.gannet"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let expect = "--spa has no effect: '.' has no index.html to serve";
    let told = format!("{}{}", ended.text(), ended.err);
    assert!(told.contains(expect), "{ended:?}");
    // Packed with the flag, or served with it; a folder of that name is not a page.
    let expect = "--spa has no effect on 'x.gannet': there is no index.html to serve";
    let ended = gannet_in(&folder, ["--check-config", "x.gannet"]);
    assert!(ended.err.contains(expect), "{ended:?}");
    folder.write("index.html/index.html", "x");
    let folders = ["pack", ".", "--trailing-slash", "never", "-o", "x.gannet"];
    gannet_in(&folder, folders).success();
    let ended = gannet_in(&folder, ["--check-config", "--spa", "x.gannet"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.err.contains(expect), "{ended:?}");
    std::fs::remove_dir_all(folder.join("index.html")).expect("exists");
    folder.write("index.html", "x");
    gannet_in(&folder, ["pack", ".", "-o", "x.gannet"]).success();
    for site in [".", "x.gannet"] {
        let ended = gannet_in(&folder, ["--check-config", "--spa", site]);
        assert!(!ended.err.contains("--spa"), "{ended:?}");
    }
}

#[test]
fn an_empty_archive_is_called_empty() {
    let folder = Folder::new();
    folder.write("e.gannet", "");
    let expect = "cannot open archive 'e.gannet': file is empty";
    for arguments in [
        &["e.gannet"][..],
        &["ls", "e.gannet"],
        &["verify", "e.gannet"],
    ] {
        refused(&folder, arguments, 1, &[expect]);
    }
}

/// At every limit around the reported minimum, the check and a start agree, and a server that
/// starts also serves.
#[test]
fn limits_are_judged_alike_by_the_check_and_a_start() {
    let site = Folder::site();
    let with_limit = |limit: &str, checks: bool| {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_gannet"))
            .args(["--port", "0", "--workers", "2", "."])
            .current_dir(site.path())
            .stdin(Stdio::null());
        if checks {
            command.arg("--check-config");
        }
        command
    };
    for (limit, from, unit) in [
        ("-n", 8, 4),
        // Not -v: the address space in use before the check varies between starts.
        ("-d", 1 << 10, 3 << 10),
    ] {
        let mut refused = 0;
        for step in 0..12 {
            let limit = format!("{limit} {}", from + step * unit);
            let checked = run(&mut with_limit(&limit, true));
            if checked.status == Some(0) {
                let server = Gannet::start(&mut with_limit(&limit, false));
                get(&server, "/").expect(200);
                assert_eq!(server.stop().status, Some(0), "{limit}");
                continue;
            }
            // Too little even to map the program.
            if checked.err.is_empty() || !checked.err.starts_with("gannet: ") {
                continue;
            }
            refused += 1;
            let name = format!("gannet: ulimit {}: too ", limit);
            assert!(checked.err.starts_with(&name), "{limit}: {checked:?}");
            let started = run(&mut with_limit(&limit, false));
            assert_eq!(
                (started.status, &started.err),
                (checked.status, &checked.err)
            );
        }
        assert!(refused > 0, "{limit} is never too low");
    }
    on_both_engines(|engine| {
        for mib in 14..26 {
            let flags = ["--max-memory", &format!("{mib}M"), "--workers", "2"];
            let flags = [&flags[..], &["--engine", engine.name(), "--port", "0", "."]].concat();
            let mut check = command();
            check.args(&flags).arg("--check-config");
            let checked = run(check.current_dir(site.path()));
            let mut start = command();
            start.args(&flags).current_dir(site.path());
            if checked.status == Some(0) {
                get(&Gannet::start(&mut start), "/").expect(200);
            } else {
                assert_eq!(run(&mut start).err, checked.err, "{mib} MiB");
            }
        }
    });
}

/// With less address space than the program itself takes, it says so, whatever it is asked for; it was ended by
/// a signal when its first allocation failed.
#[test]
fn too_little_address_space_for_the_program_is_an_error() {
    let site = Folder::site();
    let with_limit = |kib: u32, arguments: &[&str]| {
        let mut command = Command::new("sh");
        let script = format!("ulimit -v {kib} && exec \"$@\"");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_gannet")]);
        command.args(arguments).current_dir(site.path());
        run(command.stdin(Stdio::null()))
    };
    let mut told = 0;
    for kib in (8 << 10..).step_by(512) {
        let ended = with_limit(kib, &["version"]);
        if ended.status == Some(0) {
            break;
        }
        // The system cannot load it, or the message.
        let is_ours = ended.err.starts_with("gannet: ");
        assert!(
            is_ours || !ended.err.contains("allocation"),
            "{kib}: {ended:?}"
        );
        if is_ours {
            told += 1;
            let start =
                format!("gannet: ulimit -v {kib}: too little for the program itself: at least ");
            assert!(ended.err.starts_with(&start), "{kib}: {ended:?}");
            assert_eq!(ended.status, Some(2), "{kib}: {ended:?}");
            let served = with_limit(kib, &["--port", "0", "."]);
            assert!(served.err.starts_with(&start), "{kib}: {served:?}");
        }
    }
    assert!(told > 0, "no limit was low enough");
}

/// A start fits into any address space above the minimum: nothing allocates in proportion to what
/// is available.
#[test]
fn more_address_space_than_the_least_is_enough() {
    let site = Folder::site();
    let with_limit = |mib: u32| {
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("ulimit -v {} && exec \"$@\"", mib << 10),
                "sh",
            ])
            .arg(env!("CARGO_BIN_EXE_gannet"))
            .args(["--port", "0", "--workers", "8", "."])
            .current_dir(site.path())
            .stdin(Stdio::null());
        command
    };
    on_both_engines(|engine| {
        let start = |mib| {
            let mut command = with_limit(mib);
            command.args(["--engine", engine.name(), "--metrics", "0"]);
            command
        };
        // Enough to map the program, but less than it needs.
        let refused = (20..).step_by(4).map(|mib| run(&mut start(mib)).err);
        let told = refused
            .into_iter()
            .find(|err| err.contains("too little to start"));
        let told = told.expect("a limit is too low");
        let least = told
            .split_once("at least ")
            .and_then(|(_, it)| it.split_once("MiB"));
        let least: u32 = least
            .expect("the least is named")
            .0
            .parse()
            .expect("a number");
        for mib in [1, 4, 16].into_iter().chain((20..400).step_by(20)) {
            let checked = run(start(least + mib).arg("--check-config"));
            assert_eq!(checked.status, Some(0), "{mib} MiB more: {checked:?}");
            get(&Gannet::start(&mut start(least + mib)), "/").expect(200);
        }
    });
}

/// Standard output under another name is recognised: log lines are not mixed with messages.
#[test]
fn a_log_may_go_to_a_device() {
    let site = Folder::site();
    for device in ["/dev/null", "/dev/stderr"] {
        let server = Gannet::serve(site.path(), &["--log-file", device]);
        get(&server, "/").expect(200);
        assert_eq!(server.stop().status, Some(0), "{device}");
    }
    for device in ["/dev/stdout", "/proc/self/fd/1"] {
        // Messages go where the test reads them, output to a file.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 2>&1 >out", "sh"])
            .arg(env!("CARGO_BIN_EXE_gannet"))
            .args(["--port", "0", "--log-file", device, "."])
            .current_dir(site.path())
            .stdin(Stdio::null());
        let server = Gannet::start(&mut command);
        get(&server, "/about").expect(200);
        server.stop();
        let log = fs::read_to_string(site.join("out")).expect("text");
        assert!(log.starts_with("127.0.0.1 - - ["), "{device}: {log:?}");
        assert_eq!(log.lines().count(), 1, "{log:?}");
    }
}
