//! The sandbox: each thread of a server is in it, what it has to do still works, and what is missing
//! is named.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use gannet_testkit::client::{Client, get};
use gannet_testkit::engine::{has_uring, on_both_engines};
use gannet_testkit::process::{of_threads, until};
use gannet_testkit::tls::{Authority, KeyKind};
use gannet_testkit::{
    Folder, Gannet, Signal, command, command_of_nobody, gannet_in, left_out, run, seccomp,
};

/// The number of `landlock_create_ruleset`, everywhere.
const LANDLOCK_CREATE_RULESET: u32 = 444;
const EOPNOTSUPP: i32 = 95;
const EINVAL: i32 = 22;

/// What the first lines say of the sandbox.
fn sandbox(server: &Gannet) -> Option<&str> {
    let mut lines = server.start_lines().iter();
    lines.find_map(|line| line.strip_prefix("sandbox  "))
}

#[test]
fn every_thread_is_in_the_sandbox() {
    on_both_engines(|engine| {
        // With a memory limit, threads start earlier.
        for limit in [&[][..], &["--max-memory", "64M", "--workers", "2"]] {
            let folder = Folder::site();
            let log = folder.join("access.log");
            let flags = ["--metrics", "127.0.0.1:0", "--log-file"];
            let flags = [&flags[..], &[log.to_str().unwrap()], limit].concat();
            let server = engine.serve(folder.path(), &flags);
            let named = sandbox(&server).expect("it is on by default").to_owned();
            if named.contains("without") {
                return left_out("a whole sandbox", named);
            }
            assert!(named.starts_with("landlock "), "{named}");
            assert!(named.contains(", seccomp"), "{named}");
            let has_ring = engine.name() == "io_uring";
            assert_eq!(named.contains("ring restrictions"), has_ring, "{named}");
            assert_eq!(get(&server, "/").status, 200);
            assert_eq!(get(&server, "/missing").status, 404);
            assert_eq!(of_threads(server.pid(), "Seccomp"), ["2"], "{limit:?}");
            assert_eq!(of_threads(server.pid(), "NoNewPrivs"), ["1"]);
            server.stop().success();
            assert!(fs::read_to_string(&log).unwrap().contains("GET /missing"));
        }
    });
}

#[test]
fn it_can_be_turned_off() {
    let folder = Folder::site();
    let server = Gannet::serve(folder.path(), &["--sandbox", "off"]);
    assert_eq!(sandbox(&server), None);
    assert_eq!(of_threads(server.pid(), "Seccomp"), ["0"]);
    assert_eq!(of_threads(server.pid(), "NoNewPrivs"), ["0"]);
    server.stop().success();
}

#[test]
fn a_missing_part_is_named_or_an_error() {
    let folder = Folder::site();
    let without = || seccomp::without(&[LANDLOCK_CREATE_RULESET], EOPNOTSUPP);
    let Some(mut auto) = without() else {
        return;
    };
    let arguments = ["--listen", "127.0.0.1:0"];
    let server = Gannet::start(auto.arg(folder.path()).args(arguments));
    let named = sandbox(&server).unwrap();
    let why = "without landlock: it is off: it has to be in the kernel's parameter lsm=";
    assert!(named.contains(why), "{named}");
    assert!(!named.contains("landlock 1"), "{named}");
    assert_eq!(get(&server, "/").status, 200);
    server.stop().success();
    let mut require = without().unwrap();
    require.arg(folder.path()).args(arguments);
    run(require.args(["--sandbox", "require"])).failure(
        1,
        "gannet: cannot sandbox the server: landlock: it is off: it has to be in the kernel's \
         parameter lsm=\nhelp: use --sandbox auto, which continues without it\n",
    );
}

/// Service managers' filters may kill whoever asks for a sandbox.
#[test]
fn without_a_sandbox_the_kernel_is_not_asked_for_one() {
    let Some(mut off) = seccomp::killed_by(&[LANDLOCK_CREATE_RULESET, seccomp::SECCOMP]) else {
        return;
    };
    let folder = Folder::site();
    let arguments = ["--listen", "127.0.0.1:0", "--sandbox", "off"];
    let server = Gannet::start(off.arg(folder.path()).args(arguments));
    assert_eq!(get(&server, "/").status, 200);
    server.stop().success();
}

/// A kernel, or a sandbox around the process, may have a call and refuse its use.
#[test]
fn a_part_that_is_refused_is_named_and_the_others_hold() {
    let folder = Folder::site();
    // SECCOMP_FILTER_FLAG_LOG and SECCOMP_FILTER_FLAG_SPEC_ALLOW.
    let Some(mut auto) = seccomp::without_filters(6, EINVAL) else {
        return;
    };
    let server = Gannet::start(auto.arg(folder.path()).args(["--listen", "127.0.0.1:0"]));
    let named = sandbox(&server).unwrap();
    assert!(
        named.contains("without seccomp: invalid argument"),
        "{named}"
    );
    if named.contains("without landlock") {
        return left_out("Landlock", named);
    }
    assert!(named.starts_with("landlock "), "{named}");
    assert_eq!(get(&server, "/").status, 200);
    server.stop().success();
}

/// No filter sees what a ring opens.
#[test]
fn rings_that_cannot_be_restricted_are_named() {
    const RESTRICTIONS: u32 = 11;
    if !has_uring() {
        return;
    }
    let folder = Folder::site();
    let Some(mut auto) = seccomp::without_registration(RESTRICTIONS, EINVAL) else {
        return;
    };
    let arguments = ["--listen", "127.0.0.1:0", "--engine", "io_uring"];
    let server = Gannet::start(auto.arg(folder.path()).args(arguments));
    let named = sandbox(&server).unwrap();
    assert!(
        named.contains("without ring restrictions: the kernel refused them"),
        "{named}"
    );
    assert_eq!(get(&server, "/").status, 200);
    server.stop().success();
}

/// What is built or deployed is often the folder above the served one.
#[test]
fn the_folder_above_the_site_may_be_replaced() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("app/public/page", "one");
        let mut server = engine.serve(folder.join("app/public"), &[]);
        let body = |server: &Gannet| get(server, "/page").body;
        assert_eq!(body(&server), b"one");
        folder.write("new/public/page", "two");
        fs::rename(folder.join("app"), folder.join("old")).unwrap();
        fs::rename(folder.join("new"), folder.join("app")).unwrap();
        until("the new one", || body(&server) == b"two");
        fs::remove_dir_all(folder.join("app")).unwrap();
        until("none", || get(&server, "/page").status == 503);
        folder.write("app/public/page", "three");
        until("one that is made again", || body(&server) == b"three");
        assert!(server.next_error_line().unwrap().contains("was replaced"));
    });
}

/// The kernel knows folders, not paths: one that is made again may be out of reach. Then no file of
/// it can be opened, and the server says so.
#[test]
fn a_folder_out_of_reach_is_refused_and_named() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("a/b/c/site/page", "one");
        let mut server = engine.serve(folder.join("a/b/c/site"), &[]);
        if sandbox(&server).unwrap().contains("without landlock") {
            return left_out("Landlock", sandbox(&server).unwrap());
        }
        folder.write("new/b/c/site/page", "two");
        fs::rename(folder.join("a"), folder.join("old")).unwrap();
        fs::rename(folder.join("new"), folder.join("a")).unwrap();
        let mut told = || server.next_error_line().unwrap();
        let first = told();
        assert!(
            first.contains("the sandbox has not left it readable"),
            "{first}"
        );
        assert!(first.ends_with("keeping the old directory"), "{first}");
        assert!(told().starts_with("help: start gannet again"));
        assert_eq!(get(&server, "/page").body, b"one");
        // The old one comes back, and is removed.
        fs::rename(folder.join("a"), folder.join("new")).unwrap();
        fs::rename(folder.join("old"), folder.join("a")).unwrap();
        let mut told = || server.next_error_line().unwrap();
        assert!(told().contains("is back, and served again"));
        fs::remove_dir_all(folder.join("a")).unwrap();
        let mut told = || server.next_error_line().unwrap();
        assert!(told().contains("answering 503 until it is back"));
        fs::rename(folder.join("new"), folder.join("a")).unwrap();
        let mut told = || server.next_error_line().unwrap();
        let last = told();
        assert!(last.ends_with("answering 503"), "{last}");
        assert_eq!(get(&server, "/page").status, 503);
    });
}

/// The rights are there, so that only the sandbox can be the cause.
#[test]
fn messages_name_the_sandbox_where_it_is_the_cause() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let pack = |site: &str, archive: &str| {
            let archive = folder.join(archive);
            let arguments = ["pack", site, "--fast", "--quiet", "-o"];
            let arguments = [&arguments[..], &[archive.to_str().unwrap()]].concat();
            gannet_in(&folder, arguments.iter().copied()).success();
        };
        folder.write("site/page", "one");
        let pem = Authority::new().issued(KeyKind::P256, &["localhost"]).pem();
        for top in ["a", "new"] {
            folder.write(format!("{top}/b/c/site.pem"), &pem);
            pack("site", &format!("{top}/b/c/site.gannet"));
            folder.write("site/page", "two");
        }
        fs::create_dir(folder.join("logs")).unwrap();
        let (pem, log) = (folder.join("a/b/c/site.pem"), folder.join("logs/access"));
        let flags = ["--tls-cert", pem.to_str().unwrap(), "--log-file"];
        let flags = [&flags[..], &[log.to_str().unwrap()]].concat();
        let mut server = engine.serve(folder.join("a/b/c/site.gannet"), &flags);
        if sandbox(&server).unwrap().contains("without landlock") {
            return left_out("Landlock", sandbox(&server).unwrap());
        }
        fs::rename(folder.join("logs"), folder.join("old-logs")).unwrap();
        fs::create_dir(folder.join("logs")).unwrap();
        fs::rename(folder.join("a"), folder.join("old")).unwrap();
        fs::rename(folder.join("new"), folder.join("a")).unwrap();
        server.signal(Signal::HUP);
        let mut text = String::new();
        let parts = ["access log", "site.pem", "refused the new release"];
        while parts.iter().any(|part| !text.contains(part))
            || text.matches("the sandbox does not reach it").count() < parts.len()
        {
            let line = server.next_error_line().expect(&text);
            text.push_str(&line);
            text.push('\n');
        }
        server.stop();
    });
}

/// Rights that are lost with root's are no surprise of a later day.
#[test]
fn what_the_user_cannot_read_again_is_told_at_the_start() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("site/page", "page");
        folder.write("closed/site/page", "page");
        let issued = Authority::new().issued(KeyKind::P256, &["localhost"]);
        folder.write("closed/site.pem", issued.pem());
        let mode = |path, mode| {
            fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("", 0o755);
        mode("closed", 0o700);
        let pem = folder.join("closed/site.pem");
        let flags = ["--user", "65534:65534", "--tls-cert", pem.to_str().unwrap()];
        let mut server = engine.serve(folder.join("site"), &flags);
        let told = server.next_error_line().unwrap();
        let expect = format!(
            "gannet: '65534:65534' cannot read '{}' again: permission denied (EACCES); what replaces \
             it is not used unless that user can read it",
            pem.display()
        );
        assert_eq!(told, expect);
        server.stop();
        // A directory of which no file could be opened.
        let site = folder.join("closed/site");
        let closed = folder.join("closed");
        let expect = format!(
            "gannet: cannot open directory '{}': permission denied (EACCES)\nhelp: user 65534, as \
             which gannet runs, cannot enter '{}': it needs execute permission on it\n",
            site.display(),
            closed.display()
        );
        let arguments = ["--engine", engine.name(), "--listen", "127.0.0.1:0"];
        let mut refused = command();
        refused.arg(site).args(arguments).args(&flags[..2]);
        run(&mut refused).failure(1, &expect);
        // Few hosts are opened while the rights of root are there.
        let hosts = folder.join("closed/hosts");
        fs::create_dir(&hosts).unwrap();
        let mut pack = command();
        pack.arg("pack").arg(folder.join("site")).arg("-o");
        run(pack.arg(hosts.join("a.test.gannet"))).success();
        let mut server = engine.serve(&hosts, &["--hosts", "--user", "65534:65534"]);
        // The archive with its help, and the folder.
        let told = [(); 3].map(|()| server.next_error_line().unwrap());
        let expect = format!(
            "gannet: '65534:65534' cannot read '{}' again",
            hosts.display()
        );
        assert!(told[2].starts_with(&expect), "{told:#?}");
    });
}

/// What a start tells of the user's rights, `--check-config` and `doctor` tell as well.
#[test]
fn checks_tell_of_the_users_rights_what_a_start_tells() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    let folder = Folder::new();
    folder.write("site/page", "page");
    folder.write("site/_headers", "/*\n  x-y: z\n");
    folder.write("closed/page", "page");
    let issued = Authority::new().issued(KeyKind::P256, &["localhost"]);
    folder.write("site.pem", issued.pem());
    fs::create_dir(folder.join("logs")).unwrap();
    fs::create_dir(folder.join("copies")).unwrap();
    for (path, mode) in [
        ("", 0o755),
        ("site/_headers", 0o600),
        ("site.pem", 0o600),
        ("closed", 0o700),
        ("copies", 0o700),
    ] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.join(path), mode).unwrap();
    }
    let (pem, log) = (folder.join("site.pem"), folder.join("logs/access"));
    let common = ["--listen", "127.0.0.1:0", "--user", "65534:65534"];
    let flags = ["--tls-cert", pem.to_str().unwrap(), "--log-file"];
    let flags = [&common[..], &flags, &[log.to_str().unwrap()]].concat();
    let copies = folder.join("copies");
    let flags = [&["--compress", copies.to_str().unwrap()], &flags[..]].concat();
    let site = folder.join("site");
    let start = |before: &[&str], flags: &[&str], site: &Path| {
        let mut command = command();
        command.args(before).args(flags).arg(site);
        command
    };
    let mut server = Gannet::start(&mut start(&[], &flags, &site));
    let told: Vec<String> = (0..8).map(|_| server.next_error_line().unwrap()).collect();
    let parts = [
        "_headers' again",
        "site.pem' again",
        "enter '",
        "access' again",
    ];
    for (at, part) in parts.iter().enumerate() {
        assert!(told[2 * at].contains(part), "{told:#?}");
        assert!(told[2 * at].contains("(EACCES)"), "{told:#?}");
        assert!(
            told[2 * at + 1].starts_with("help: give that user"),
            "{told:#?}"
        );
    }
    let checked = run(&mut start(&["--check-config"], &flags, &site));
    assert_eq!(checked.status, Some(0), "{}", checked.err);
    assert_eq!(checked.err.lines().collect::<Vec<_>>(), told);
    let found = run(&mut start(&["doctor"], &flags, &site));
    assert_eq!(found.status, Some(0), "{}{}", found.text(), found.err);
    for line in told.iter().filter_map(|line| line.strip_prefix("gannet: ")) {
        let note = |it: &str| it.starts_with("note  user") && it.ends_with(line);
        assert!(found.text().lines().any(note), "{line}: {}", found.text());
    }
    // As told: nothing follows the log.
    fs::rename(&log, folder.join("logs/renamed")).unwrap();
    server.signal(Signal::HUP);
    while server.next_error_line().unwrap()
        != "gannet: cannot reopen the access log: permission denied (EACCES)"
    {}
    let help = server.next_error_line().unwrap();
    assert!(
        help.starts_with("help: requests are logged to the file that was open before"),
        "{help}"
    );
    server.stop();
    let closed = folder.join("closed");
    let refused = run(&mut start(&[], &common, &closed));
    let expect = format!(
        "gannet: cannot open directory '{0}': permission denied (EACCES)\nhelp: user 65534, as which \
         gannet runs, cannot enter '{0}': it needs execute permission on it\n",
        closed.display()
    );
    refused.failure(1, &expect);
    run(&mut start(&["--check-config"], &common, &closed)).failure(1, &expect);
    let found = run(&mut start(&["doctor"], &common, &closed));
    assert_eq!(found.status, Some(1), "{}", found.text());
    let bad =
        |it: &str| it.starts_with("bad   configuration") && it.contains("cannot open directory");
    assert!(found.text().lines().any(bad), "{}", found.text());
    // The only file of a server.
    let only = folder.write("only.html", "page");
    let common = [&common[..], &["--engine", "epoll"]].concat();
    let mode = |mode| fs::set_permissions(&only, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    let expect = format!(
        "gannet: cannot open file '{0}': permission denied (EACCES)\nhelp: user 65534, as which \
         gannet runs, cannot read '{0}': it needs read permission\n",
        only.display()
    );
    run(&mut start(&[], &common, &only)).failure(1, &expect);
    run(&mut start(&["--check-config"], &common, &only)).failure(1, &expect);
    mode(0o644);
    let server = Gannet::start(&mut start(&[], &common, &only));
    assert_eq!(get(&server, "/only.html").status, 200);
    server.stop().success();
}

/// An entry of a folder of hosts is what it is with root's rights: the user's do not make an error of a
/// link to nothing, or of a store that is open already.
#[test]
fn entries_of_hosts_are_told_by_checks_as_by_a_start() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    let folder = Folder::new();
    folder.write("site/page", "page");
    folder.write("hosts/a.example/page", "page");
    folder.write("hosts/.closed/page", "page");
    symlink(".closed/gone", folder.join("hosts/b.example")).unwrap();
    gannet_in(&folder, ["publish", "site", "hosts/c.example", "--fast"]).success();
    let hosts = folder.join("hosts");
    for (path, mode) in [
        ("", 0o755),
        ("hosts/.closed", 0o700),
        ("hosts/c.example", 0o700),
    ] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.join(path), mode).unwrap();
    }
    let start = |before: &[&str]| {
        let mut command = command();
        command.args(before).args(["--listen", "127.0.0.1:0"]);
        command.args(["--user", "65534:65534", "--hosts"]);
        command.arg(&hosts);
        command
    };
    let mut server = Gannet::start(&mut start(&[]));
    let told = [(); 3].map(|()| server.next_error_line().unwrap());
    server.stop();
    let nothing = format!(
        "gannet: no site for 'b.example': cannot open directory '{}/b.example': no such file or directory \
         (ENOENT)",
        hosts.display()
    );
    assert_eq!(told[0], nothing);
    let store = format!("cannot read '{}/c.example' again", hosts.display());
    assert!(told[1].contains(&store), "{told:#?}");
    let checked = run(&mut start(&["--check-config"]));
    assert_eq!(checked.status, Some(0), "{}", checked.err);
    assert_eq!(checked.err.lines().collect::<Vec<_>>(), told);
    let found = run(&mut start(&["doctor"]));
    assert_eq!(found.status, Some(0), "{}{}", found.text(), found.err);
    assert_eq!(found.err, format!("{nothing}\n"));
    let note = |it: &str| it.starts_with("note  user") && it.contains(&store);
    assert!(found.text().lines().any(note), "{}", found.text());
}

/// Root keeps what files of others need, and nothing else.
#[test]
fn root_keeps_no_capabilities_but_those_to_files() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root has capabilities");
    }
    on_both_engines(|engine| {
        let folder = Folder::site();
        let log = folder.join("access.log");
        let flags = ["--metrics", "127.0.0.1:0", "--log-file"];
        let flags = [&flags[..], &[log.to_str().unwrap()]].concat();
        let server = engine.serve(folder.path(), &flags);
        for set in ["CapPrm", "CapEff", "CapInh"] {
            let of_threads = of_threads(server.pid(), set);
            let rest = |it: &String| u64::from_str_radix(it, 16).unwrap() & !0b110;
            assert!(
                of_threads.iter().all(|it| rest(it) == 0),
                "{set} {of_threads:?}"
            );
        }
        server.stop().success();
    });
}

/// A link that is switched to the next release is followed; one that leads elsewhere is refused.
#[test]
fn links_are_followed_where_the_sandbox_lets_files_be_read() {
    on_both_engines(|engine| {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        folder.write("releases/1/public/page", "one");
        folder.write("releases/2/public/page", "two");
        elsewhere.write("public/page", "elsewhere");
        let switch = |target: &Path| {
            let _ = fs::remove_file(folder.join("next"));
            symlink(target, folder.join("next")).unwrap();
            fs::rename(folder.join("next"), folder.join("current")).unwrap();
        };
        switch("releases/1".as_ref());
        let mut server = engine.serve(folder.join("current/public"), &[]);
        let named = sandbox(&server).unwrap().to_owned();
        let body = |server: &Gannet| get(server, "/page").body;
        assert_eq!(body(&server), b"one");
        switch("releases/2".as_ref());
        until("the next release", || body(&server) == b"two");
        assert!(server.next_error_line().unwrap().contains("was replaced"));
        if named.contains("without landlock") {
            return left_out("Landlock", named);
        }
        switch(elsewhere.path());
        let told = server.next_error_line().unwrap();
        assert!(
            told.contains("the sandbox has not left it readable"),
            "{told}"
        );
        assert!(
            server
                .next_error_line()
                .unwrap()
                .starts_with("help: start gannet again")
        );
        assert_eq!(body(&server), b"two");
        switch("releases/1".as_ref());
        until("the release before", || body(&server) == b"one");
    });
}

#[test]
fn root_becomes_another_user_for_good() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("site/page", "page");
        folder.write("site/secret", "secret");
        fs::create_dir(folder.join("logs")).unwrap();
        let mode = |path, mode| {
            fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        mode("", 0o755);
        mode("site/secret", 0o600);
        chown(folder.join("logs"), Some(65_534), Some(65_534)).unwrap();
        let log = folder.join("logs/access");
        let flags = ["--user", "65534:65534", "--log-file", log.to_str().unwrap()];
        let server = engine.serve(folder.join("site"), &flags);
        let named = sandbox(&server).unwrap();
        assert!(named.starts_with("user 65534:65534"), "{named}");
        assert_eq!(of_threads(server.pid(), "Uid"), ["65534 65534 65534 65534"]);
        assert_eq!(of_threads(server.pid(), "Gid"), ["65534 65534 65534 65534"]);
        assert_eq!(of_threads(server.pid(), "Groups"), ["65534"]);
        for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
            assert_eq!(of_threads(server.pid(), set), ["0000000000000000"], "{set}");
        }
        let mut client = Client::new(&server);
        assert_eq!(client.get("/page").body, b"page");
        assert_eq!(client.get("/secret").status, 403);
        assert_eq!(fs::metadata(&log).unwrap().uid(), 65_534);
        // The log that root made is renamed, and the user makes the next one.
        fs::rename(&log, folder.join("logs/old")).unwrap();
        server.signal(Signal::HUP);
        until("the next log", || {
            client.get("/page");
            fs::metadata(&log).is_ok_and(|meta| meta.len() > 0)
        });
        let ended = server.stop();
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let denied = "gannet: cannot read 'secret' (host 'test'): permission denied (EACCES)\n";
        assert!(ended.err.starts_with(denied), "{}", ended.err);
    });
}

/// Where the kernel would have a process dumped and traced whose user changes, neither is.
#[test]
fn nothing_else_of_the_user_can_trace_the_server() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    let setting = fs::read_to_string("/proc/sys/fs/suid_dumpable").unwrap();
    if setting.trim() != "1" {
        return left_out("fs.suid_dumpable=1", format!("it is {}", setting.trim()));
    }
    on_both_engines(|engine| {
        let folder = Folder::site();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let server = engine.serve(folder.path(), &["--user", "65534:65534"]);
        // proc(5): root's, unless the user may dump it.
        let maps = format!("/proc/{}/maps", server.pid());
        assert_eq!(fs::metadata(maps).unwrap().uid(), 0);
        server.stop().success();
    });
}

#[test]
fn a_user_that_cannot_be_had_is_an_error() {
    let folder = Folder::site();
    run(command_of_nobody()
        .arg(folder.path())
        .args(["--user", "nobody"]))
    .failure(
        2,
        "gannet: --user nobody: only root can become another user\n\
         help: leave --user out, or start gannet as root\n",
    );
    run(command().arg(folder.path()).args(["--user", "www:"])).failure(
        2,
        "gannet: cannot use '--user www:': not NAME or NAME:GROUP\nhelp: see 'gannet --help-all'\n",
    );
    if rustix::process::geteuid().is_root() {
        run(command().arg(folder.path()).args(["--user", "no-such-user"])).failure(
            2,
            "gannet: --user no-such-user: there is no user 'no-such-user'\nhelp: name an account and \
             a group of this machine, such as www-data:www-data\n",
        );
    }
}
