//! `gannet serve URL`: a follower beside the server copies the store, and ends with the server.

use std::collections::HashSet;
use std::fs;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread;

use gannet_testkit::client::get;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, FreePort, Gannet, Signal, command, gannet_in, left_out, run};
use rustix::fs::{FlockOperation, flock, inotify};

use crate::store::{current, line, publish, with_site};

/// A store behind a URL.
pub(crate) fn origin(folder: &Folder) -> (Gannet, String) {
    let origin = Gannet::serve(folder.path(), &[]);
    let url = format!("http://{}/store", origin.address());
    (origin, url)
}

/// The same at a port at which it can be started again.
fn origin_at(folder: &Folder, port: &FreePort) -> (Gannet, String) {
    let address = port.address().to_string();
    let mut origin = command();
    origin.args(["serve", ".", "--listen", &address]);
    let origin = Gannet::start(origin.current_dir(folder.path()));
    (origin, format!("http://{address}/store"))
}

pub(crate) fn serve(folder: &Folder, url: &str, flags: &[&str]) -> Command {
    let mut serve = command();
    serve.args(["serve", url, "--port", "0", "--copy", "copy"]);
    serve.args(flags).current_dir(folder.path());
    serve
}

/// Whether nobody follows into the copy: followers hold its lock.
fn is_free(folder: &Folder) -> bool {
    fs::File::open(folder.join("copy/.lock")).is_ok_and(|lock| {
        let is_ours = flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
        // Even if a process that another test starts has it open meanwhile.
        is_ours && flock(&lock, FlockOperation::Unlock).is_ok()
    })
}

/// The far ends of a process's connections over TCP.
pub(crate) fn peers(pid: u32) -> Vec<SocketAddr> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let names = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    let inodes: HashSet<String> = names
        .filter_map(|name| {
            let name = name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(name.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("it runs");
    let lines = table.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields[2].split_once(':').expect("an address");
        let ip = u32::from_str_radix(ip, 16)
            .expect("hexadecimal")
            .swap_bytes();
        let port = u16::from_str_radix(port, 16).expect("hexadecimal");
        (
            fields[9].to_owned(),
            SocketAddr::from((ip.to_be_bytes(), port)),
        )
    });
    lines
        .filter(|(inode, peer)| inodes.contains(inode) && peer.port() != 0)
        .map(|(_, peer)| peer)
        .collect()
}

#[test]
fn a_store_elsewhere_is_served_and_followed() {
    on_both_engines(|engine| {
        let folder = with_site();
        publish(&folder, &["-q"]).success();
        let (origin, url) = origin(&folder);
        let flags = ["--engine", engine.name(), "--sandbox", "require"];
        let mut server = Gannet::start(&mut serve(&folder, &url, &flags));
        let waiting = server.next_error_line().expect("it waits");
        let expect = format!("waiting for the first release of {url}, to be copied to 'copy'");
        assert_eq!(waiting, expect);
        assert!(get(&server, "/").text().contains("One"));
        folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
        publish(&folder, &["-q"]).success();
        until("the server has the second release", || {
            assert!(!peers(server.pid()).contains(&origin.address()));
            get(&server, "/").text().contains("Two")
        });
        assert!(!is_free(&folder), "somebody follows");
        let ended = server.stop();
        assert_eq!(ended.status, Some(0), "{}", ended.err);
        assert!(!ended.err.contains("has ended"), "{}", ended.err);
        assert!(is_free(&folder), "the follower ends with the server");
        // What was copied is served without the store, by a server that is killed then.
        origin.stop().success();
        let server = Gannet::start(&mut serve(&folder, &url, &flags));
        assert!(get(&server, "/").text().contains("Two"));
        until("somebody follows", || !is_free(&folder));
        server.signal(Signal::KILL);
        until("nobody follows", || is_free(&folder));
    });
}

#[test]
fn a_follower_that_is_killed_is_started_again() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    let mut server = Gannet::start(&mut serve(&folder, &url, &[]));
    let follower = || {
        let lock = fs::read_dir("/proc").expect("proc").flatten().find(|it| {
            let line = fs::read(it.path().join("cmdline")).unwrap_or_default();
            let has = |word: &str| {
                line.split(|byte| *byte == 0)
                    .any(|it| it == word.as_bytes())
            };
            has("follow") && has(&url)
        });
        let name = lock?.file_name().into_string().ok()?;
        name.parse::<i32>().ok()
    };
    until("it runs", || follower().is_some());
    let first = follower().expect("it runs");
    let pid = rustix::process::Pid::from_raw(first).expect("not zero");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    let said = format!("gannet: the follower of {url} has ended (signal: 9 (SIGKILL))");
    while !server
        .next_error_line()
        .expect("it runs")
        .starts_with(&said)
    {}
    until("another one runs", || {
        follower().is_some_and(|it| it != first)
    });
    assert_eq!(server.stop().status, Some(0));
}

/// As a service would be that is stopped before its store can be reached.
#[test]
fn a_server_without_a_release_can_be_stopped() {
    let folder = Folder::new();
    let url = "http://127.0.0.1:1/store";
    let mut child = serve(&folder, url, &[])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut errors = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("connection refused (ECONNREFUSED)") {
        line.clear();
        let len = std::io::BufRead::read_line(&mut errors, &mut line).expect("readable");
        assert_ne!(len, 0, "it waits for a release");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(143));
    until("nobody follows", || is_free(&folder));
}

#[test]
fn the_copy_is_the_users() {
    if !rustix::process::geteuid().is_root() {
        return left_out("root", "only root can become another user");
    }
    let folder = with_site();
    fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("ours");
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    let flags = ["--user", "65534:65534"];
    let server = Gannet::start(&mut serve(&folder, &url, &flags));
    assert!(get(&server, "/").text().contains("One"));
    for name in ["copy", "copy/current"] {
        assert_eq!(
            fs::metadata(folder.join(name)).expect("there").uid(),
            65_534
        );
    }
    assert_eq!(server.stop().status, Some(0));
    // Root's are of no use to it.
    std::os::unix::fs::chown(folder.join("copy"), Some(0), Some(0)).expect("root's");
    let refused = run(&mut serve(&folder, &url, &flags));
    assert_eq!(refused.status, Some(1));
    let expect = "it belongs to another user than that of --user";
    assert!(refused.err.contains(expect), "{}", refused.err);
}

/// A password in a configuration file does not become one of a command line.
#[test]
fn passwords_are_on_no_command_line() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (origin, _) = origin(&folder);
    let address = origin.address();
    let path = format!("path = 'http://ann:secret@{address}/store'\nport = 0\ncopy = 'copy'\n");
    folder.write("gannet.toml", path);
    let mut serve = command();
    serve
        .args(["serve", "-c", "gannet.toml"])
        .current_dir(folder.path());
    let server = Gannet::start(&mut serve);
    let shown = format!("http://{address}/store");
    let lines = fs::read_dir("/proc").expect("proc").flatten();
    let lines = lines.filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok());
    let of_follower = lines.filter(|line| line.contains(&format!("\0{shown}\0")));
    assert_eq!(of_follower.count(), 1);
    let ended = server.stop();
    assert!(!ended.err.contains("secret"), "{}", ended.err);
}

/// What starts the follower may be killed, as by a system without memory.
#[test]
fn a_lost_keeper_is_told() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    let mut server = Gannet::start(&mut serve(&folder, &url, &[]));
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let children = fs::read_to_string(children).expect("it runs");
    let keeper = children.split_whitespace().find(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "gannet-keeper\n")
    });
    let keeper = keeper.and_then(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?));
    rustix::process::kill_process(keeper.expect("it runs"), Signal::KILL).expect("it runs");
    let said = format!("gannet: the follower of {url} has ended, and what would start it");
    while !server
        .next_error_line()
        .expect("it runs")
        .starts_with(&said)
    {}
    assert!(get(&server, "/").text().contains("One"), "it serves on");
    assert_eq!(server.stop().status, Some(0));
}

#[test]
fn an_upgrade_leaves_one_follower() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    let mut server = Gannet::start(&mut serve(&folder, &url, &[]));
    server.signal(Signal::USR2);
    let address = server.address();
    let successor = loop {
        let line = server.next_line().expect("it runs");
        if let Some(rest) = line.strip_prefix("process ") {
            let pid = rest.split(' ').next().expect("a number");
            break pid.parse::<i32>().expect("a number");
        }
    };
    let old = server.pid();
    until("the old process ends", || {
        let stat = fs::read_to_string(format!("/proc/{old}/stat")).unwrap_or_default();
        stat.contains(") Z ")
    });
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    publish(&folder, &["-q"]).success();
    until("the new process has the second release", || {
        gannet_testkit::client::Client::connect(address)
            .get("/")
            .text()
            .contains("Two")
    });
    let pid = rustix::process::Pid::from_raw(successor).expect("not zero");
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    until("nobody follows", || is_free(&folder));
}

#[test]
fn the_copy_of_another_store_is_not_served() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    gannet_in(&folder, ["follow", &url, "copy", "--once"]).success();
    let elsewhere = "http://127.0.0.1:1/store";
    let expect =
        format!("cannot copy to 'copy': it has a copy of '{url}'\nhelp: name another folder");
    for flags in [&["--check-config"][..], &[]] {
        let ended = run(&mut serve(&folder, elsewhere, flags));
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.err.contains(&expect), "{}", ended.err);
    }
    fs::remove_file(folder.join("copy/.origin")).expect("it is there");
    let server = Gannet::start(&mut serve(&folder, elsewhere, &[]));
    assert!(get(&server, "/").text().contains("One"));
}

/// As after `rm -r copy/*`, which leaves what begins with a dot.
#[test]
fn a_copy_of_which_only_its_note_is_left_is_made_again() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    gannet_in(&folder, ["follow", &url, "copy", "--once"]).success();
    for name in ["log", "releases"] {
        fs::remove_dir_all(folder.join("copy").join(name)).expect("it is there");
    }
    fs::remove_file(folder.join("copy/current")).expect("it is there");
    assert!(folder.join("copy/.origin").exists());
    let server = Gannet::start(&mut serve(&folder, &url, &[]));
    assert!(get(&server, "/").text().contains("One"));
}

/// Removes the file of the release that the copy's pointer names, but not the pointer.
fn lose_file(folder: &Folder) -> String {
    let pointer = fs::read_to_string(folder.join("copy/current")).expect("it is there");
    let release = line(&pointer, "release").to_owned();
    for suffix in ["gannet", "partial", "present"] {
        let _ = fs::remove_file(folder.join(format!("copy/releases/{release}.{suffix}")));
    }
    release
}

#[test]
fn a_release_whose_file_is_gone_is_fetched_again() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    for flags in [&[][..], &["--on-demand", "64M"]] {
        for _ in 0..2 {
            let server = Gannet::start(&mut serve(&folder, &url, flags));
            assert!(get(&server, "/").text().contains("One"));
            assert_eq!(server.stop().status, Some(0));
            let release = lose_file(&folder);
            let checked = run(serve(&folder, &url, flags).arg("--check-config")).success();
            let awaited = format!("release {} of {url}", &release[..16]);
            let note = format!("note     {awaited} has not been copied to 'copy' yet\n");
            assert!(checked.text().contains(&note), "{}", checked.text());
        }
    }
}

/// It is said what that is, and why it does not come. The log is read once for it, and not each time that the server looks.
#[test]
fn a_release_whose_file_is_gone_is_waited_for() {
    let (folder, port) = (with_site(), FreePort::new());
    publish(&folder, &["-q"]).success();
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    publish(&folder, &["-q"]).success();
    let (origin, url) = origin_at(&folder, &port);
    gannet_in(&folder, ["follow", &url, "copy", "--once"]).success();
    origin.stop().success();
    for file in fs::read_dir(folder.join("copy/releases")).expect("there") {
        fs::remove_file(file.expect("readable").path()).expect("ours");
    }
    let opened = inotify::init(inotify::CreateFlags::NONBLOCK).expect("it can be watched");
    for watched in ["copy", "copy/log"] {
        let path = folder.join(watched);
        inotify::add_watch(&opened, path, inotify::WatchFlags::OPEN).expect("it can be watched");
    }
    let said = folder.write("said", "");
    let errors = fs::File::create(&said).expect("ours");
    let said = || fs::read_to_string(&said).expect("readable");
    let mut waiting = serve(&folder, &url, &[]);
    let (server, _origin) = thread::scope(|scope| {
        let server = scope.spawn(|| Gannet::start_with(&mut waiting, errors.into()));
        until("it says why it waits", || {
            said().contains("connection refused (ECONNREFUSED)")
        });
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut opened = inotify::Reader::new(&opened, &mut buffer);
        let (mut looks, mut reads) = (0, 0);
        until("it has looked many times", || {
            while let Ok(event) = opened.next() {
                looks += u32::from(event.file_name() == Some(c"current"));
                reads += u32::from(event.file_name() == Some(c"1"));
            }
            looks > 60
        });
        assert!((1..5).contains(&reads), "{reads} of {looks}");
        let (origin, _) = origin_at(&folder, &port);
        (server.join().expect("it serves"), origin)
    });
    let release = line(&current(&folder), "release")[..16].to_owned();
    let expect = format!("waiting for release {release} of {url}, to be copied to 'copy'\n");
    assert!(said().contains(&expect), "{}", said());
    assert!(get(&server, "/").text().contains("Two"));
}

/// As a power failure or a full disk leaves files, or another tool that copies them.
#[test]
fn a_release_that_is_cut_short_is_fetched_again() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let first = line(&current(&folder), "release").to_owned();
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    publish(&folder, &["-q"]).success();
    let second = line(&current(&folder), "release").to_owned();
    let (_origin, url) = origin(&folder);
    let once = ["follow", &url, "copy", "--once"];
    gannet_in(&folder, once).success();
    let put = |release: &str, bytes: Option<&[u8]>| {
        let name = |suffix: &str| format!("copy/releases/{release}.{suffix}");
        for suffix in ["gannet", "partial", "present"] {
            let _ = fs::remove_file(folder.join(name(suffix)));
        }
        bytes.map(|it| folder.write(name("gannet"), it));
    };
    let whole = fs::read(folder.join(format!("store/releases/{second}.gannet"))).expect("there");
    let short = Some(&whole[..1_000]);
    for flags in [&[][..], &["--on-demand", "64M"]] {
        for (of_first, of_second) in [(short, None), (None, short), (short, short)] {
            put(&first, of_first);
            put(&second, of_second);
            let mut server = Gannet::start(&mut serve(&folder, &url, flags));
            let expect = format!("waiting for release {} of {url}", &second[..16]);
            while !server
                .next_error_line()
                .expect("it runs")
                .starts_with(&expect)
            {}
            assert!(get(&server, "/").text().contains("Two"));
            assert_eq!(server.stop().status, Some(0));
        }
    }
    // What else is wrong is told when it is opened. A follower on its own fetches that again as well.
    put(&first, None);
    put(&second, Some(&vec![0; whole.len()]));
    let refused = run(&mut serve(&folder, &url, &[]));
    assert_eq!(refused.status, Some(1), "{refused:?}");
    gannet_in(&folder, once).success();
    let server = Gannet::start(&mut serve(&folder, &url, &[]));
    assert!(get(&server, "/").text().contains("Two"));
}

/// Nor is it waited for: an earlier one is served until it is there.
#[test]
fn an_earlier_release_is_served_while_a_file_is_gone() {
    let (folder, port) = (with_site(), FreePort::new());
    publish(&folder, &["-q"]).success();
    let (origin, url) = origin_at(&folder, &port);
    let once = ["follow", &url, "copy", "--once"];
    gannet_in(&folder, once).success();
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    publish(&folder, &["-q"]).success();
    gannet_in(&folder, once).success();
    lose_file(&folder);
    origin.stop().success();
    for flags in [&[][..], &["--on-demand", "64M"]] {
        let mut server = Gannet::start(&mut serve(&folder, &url, flags));
        assert!(get(&server, "/").text().contains("One"));
        let mut said = server.next_error_line().expect("it says why");
        while !said.contains("connection refused (ECONNREFUSED)") {
            assert!(!said.contains("waiting for"), "{said}");
            said = server.next_error_line().expect("it runs");
        }
        assert_eq!(server.stop().status, Some(0));
    }
    let server = Gannet::start(&mut serve(&folder, &url, &[]));
    let _origin = origin_at(&folder, &port);
    until("the newest one is there again", || {
        get(&server, "/").text().contains("Two")
    });
}

/// What would bring it is beside the running server.
#[test]
fn a_reload_does_not_wait_for_a_file_that_is_gone() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let (_origin, url) = origin(&folder);
    folder.write("gannet.toml", "");
    let mut server = Gannet::start(&mut serve(&folder, &url, &["--config", "gannet.toml"]));
    lose_file(&folder);
    folder.write("gannet.toml", "node = \"other\"\n");
    server.signal(Signal::HUP);
    let mut said = String::new();
    while !said.contains("the file of the release is missing or damaged") {
        said = server.next_error_line().expect("it runs");
    }
    assert!(get(&server, "/").text().contains("One"), "it serves on");
    assert_eq!(server.stop().status, Some(0));
}

/// A server that has the new key alone gets what it has signed, with what the old one has signed in its copy.
#[test]
fn a_copy_of_another_key_is_replaced() {
    let folder = with_site();
    for name in ["old", "new"] {
        gannet_in(&folder, ["keygen", name]).success();
    }
    publish(&folder, &["-q", "--sign", "old.key"]).success();
    let (_origin, url) = origin(&folder);
    let configure = |key| folder.write("gannet.toml", format!("require-signature = '{key}.pub'\n"));
    configure("old");
    let start = || Gannet::start(&mut serve(&folder, &url, &["--config", "gannet.toml"]));
    let mut server = start();
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    let published = publish(&folder, &["-q", "--sign", "new.key"]);
    assert_eq!(published.status, Some(0), "{published:?}");
    configure("new");
    server.signal(Signal::HUP);
    let mut said = String::new();
    while !said.contains("its pointer does not have the required signature") {
        said = server.next_error_line().expect("it runs");
    }
    assert!(get(&server, "/").text().contains("One"), "it serves on");
    assert_eq!(server.stop().status, Some(0));
    let mut server = start();
    let waiting = server.next_error_line().expect("it waits");
    let what = "a release with the required signature";
    let expect = format!("waiting for {what} of {url}, to be copied to 'copy'");
    assert_eq!(waiting, expect);
    assert!(get(&server, "/").text().contains("Two"));
    assert_eq!(server.stop().status, Some(0));
}

#[test]
fn what_cannot_be_served_is_said() {
    let folder = with_site();
    let check = |arguments: &[&str], status: i32, expect: &str| {
        let ended = gannet_in(&folder, arguments);
        assert_eq!(ended.status, Some(status), "{ended:?}");
        assert!(ended.err.contains(expect), "{ended:?}");
    };
    check(&["ftp://h/s"], 2, "not a URL of a store");
    check(&["site", "--copy", "x"], 2, "--copy has no effect");
    let closed = "http://127.0.0.1:1/store";
    check(
        &[closed, "--copy", "site"],
        1,
        "neither a store nor an empty folder",
    );
    check(
        &[closed, "--copy", "site/index.html"],
        1,
        "neither a store nor an empty folder",
    );
    check(
        &[closed, "--copy", "c", "--spa", "--no-rules"],
        1,
        "--no-rules has no effect",
    );
    let url = "a.example=http://127.0.0.1:1/store";
    check(&["--site", url], 1, "only the main path can be a URL");
    let mut check = serve(
        &folder,
        "http://ann:secret@127.0.0.1:1/store",
        &["--check-config"],
    );
    let checked = run(&mut check).success();
    let note = "the first release of http://127.0.0.1:1/store has not been copied to 'copy' yet";
    assert!(checked.text().contains(note), "{}", checked.text());
    assert!(!folder.join("copy").exists(), "a check changes nothing");
    // The rest is checked all the same.
    let flags = [
        "--check-config",
        "--tls-cert",
        "no.pem",
        "--tls-key",
        "no.key",
    ];
    let checked = run(&mut serve(&folder, closed, &flags));
    assert_eq!(checked.status, Some(1));
    assert!(checked.err.contains("no.pem"), "{}", checked.err);
}
