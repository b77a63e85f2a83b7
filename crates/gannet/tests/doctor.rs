//! `gannet doctor`: what it finds, what it leaves alone, and its exit status.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;

use gannet_testkit::tls::{Authority, KeyKind};
use gannet_testkit::{Ended, Folder, command, gannet, run};

/// The report of these flags and path.
fn doctor(arguments: &[&str]) -> Ended {
    gannet(["doctor", "--port", "0"].iter().chain(arguments))
}

/// Whether a line of the report has this level and subject, and this part.
fn has(ended: &Ended, level: &str, subject: &str, part: &str) -> bool {
    ended
        .text()
        .lines()
        .any(|line| line.starts_with(&format!("{level:<4}  {subject}")) && line.contains(part))
}

#[test]
fn a_directory_that_can_be_served_has_no_bad_line() {
    let site = Folder::site();
    let path = site.path().to_str().expect("UTF-8");
    let ended = doctor(&[path]);
    assert_eq!(ended.status, Some(0), "{}", ended.text());
    assert!(ended.err.is_empty(), "{}", ended.err);
    for (subject, part) in [
        ("kernel", "Linux "),
        ("descriptors", "hard limit"),
        ("address", "TCP 127.0.0.1:0 is free"),
        ("content", path),
    ] {
        let is_there = ["ok", "note"]
            .iter()
            .any(|level| has(&ended, level, subject, part));
        assert!(is_there, "{subject}: {}", ended.text());
    }
    let last = ended.text().lines().last().expect("a summary");
    assert!(last.ends_with(" 0 bad"), "{last}");

    let json = doctor(&["--json", path]);
    assert_eq!(json.status, Some(0));
    assert!(
        json.text()
            .contains("\"level\": \"ok\", \"subject\": \"content\"")
    );
    assert!(json.text().ends_with("\"bad\": 0\n}\n"), "{}", json.text());
}

/// The caches get half of what a limit of the process leaves, however much memory there is.
#[test]
fn caches_stay_within_limited_memory() {
    let site = Folder::site();
    let path = site.path().to_str().expect("UTF-8");
    let caches = |ended: &Ended| -> f64 {
        let text = ended.text();
        let rest = text.split(" for a start, up to ").nth(1).expect("a line");
        let mib = rest.split(" MiB for caches").next().expect("a size");
        mib.parse().unwrap_or_else(|_| panic!("no MiB: {text}"))
    };
    let by_flag = caches(&doctor(&["--max-memory", "80MiB", "--workers", "2", path]));
    assert!((10.0..40.0).contains(&by_flag), "{by_flag} MiB of 80");
    for (limit, kib) in [("-d", 80 << 10), ("-v", 200 << 10)] {
        let script = format!("ulimit {limit} {kib} && exec \"$@\"");
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &script, "sh"])
            .arg(env!("CARGO_BIN_EXE_gannet"));
        limited.args(["doctor", "--port", "0", "--workers", "2", path]);
        let outside = caches(&run(&mut limited));
        let most = f64::from(kib >> 10) / 2.0;
        assert!((10.0..most).contains(&outside), "{limit}: {outside} MiB");
    }
    let said = caches(&doctor(&[
        "--max-memory",
        "80MiB",
        "--cache-memory",
        "70MiB",
        path,
    ]));
    assert!((69.9..70.1).contains(&said), "{said} MiB");
}

#[test]
fn nothing_is_made_and_nothing_bound() {
    let (site, out) = (Folder::site(), Folder::new());
    let socket = format!("unix:{}", out.join("socket").display());
    let mut doctor = command();
    doctor.env("XDG_DATA_HOME", out.path());
    doctor.args([
        "doctor",
        "--tls",
        "--port",
        "0",
        "--listen",
        &socket,
        "--log-file",
    ]);
    let ended = run(doctor.arg(out.join("log")).arg(site.path()));
    assert_eq!(ended.status, Some(0), "{} {}", ended.text(), ended.err);
    assert!(
        has(&ended, "ok", "certificate", "made at the first start"),
        "{}",
        ended.text()
    );
    assert!(out.files().is_empty(), "{:?}", out.files());
}

#[test]
fn what_no_server_starts_with_is_bad() {
    let site = Folder::site();
    let path = site.path().to_str().expect("UTF-8");
    let busy = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let busy = busy.local_addr().expect("bound").to_string();
    let bad = |arguments: &[&str], subject: &str, part: &str| {
        let ended = gannet(["doctor"].iter().chain(arguments));
        assert_eq!(
            ended.status,
            Some(1),
            "{arguments:?}: {} {}",
            ended.text(),
            ended.err
        );
        assert!(
            has(&ended, "bad", subject, part),
            "{part}: {}",
            ended.text()
        );
    };
    let owner = format!("process {})", std::process::id());
    bad(&["--listen", &busy, path], "address", &owner);
    bad(
        &["--port", "0", "/nothing-here"],
        "configuration",
        "'/nothing-here'",
    );
    bad(
        &["--max-memory", "1MiB", "--port", "0", path],
        "limits",
        "--max-memory",
    );
    bad(
        &["--spa", "--listen", ":0", "--port", "0", path],
        "configuration",
        "contradict",
    );
    bad(
        &["--tls-cert", "/nothing.pem", "--port", "0", path],
        "certificate",
        "/nothing.pem",
    );
    let authority = Authority::new();
    let expired = authority.issued_for(KeyKind::P256, &["example.test"], (2001, 2002));
    let file = site.write("expired.pem", expired.pem());
    let file = file.to_str().expect("UTF-8");
    bad(
        &["--tls-cert", file, "--port", "0", path],
        "certificate",
        "expired",
    );
}

#[test]
fn a_certificate_tells_how_long_it_lasts() {
    let site = Folder::site();
    let authority = Authority::new();
    let leaf = authority.issue("leaf.pem", KeyKind::P256, &["example.test"]);
    let leaf = leaf.to_str().expect("UTF-8");
    let path = site.path().to_str().expect("UTF-8");
    let ended = doctor(&["--tls-cert", leaf, path]);
    assert_eq!(ended.status, Some(0), "{}", ended.text());
    assert!(
        has(&ended, "ok", "certificate", "example.test: "),
        "{}",
        ended.text()
    );
    assert!(
        ended.text().contains(" days left, until "),
        "{}",
        ended.text()
    );
    assert!(
        has(&ended, "ok", "address", "UDP 127.0.0.1:0 is free"),
        "{}",
        ended.text()
    );
}

/// As a start does, which serves the other hosts; so is a link out of the folder.
#[test]
fn a_link_to_nothing_among_hosts_is_named() {
    let folder = Folder::new();
    folder.write("a.example/index.html", "a");
    symlink("gone", folder.join("b.example")).expect("linked");
    let path = folder.path().to_str().expect("UTF-8");
    let line = format!(
        "gannet: no site for 'b.example': cannot open directory '{path}/b.example': no such file or \
         directory (ENOENT)\n"
    );
    let checked = gannet(["--check-config", "--port", "0", "--hosts", path]);
    let found = doctor(&["--hosts", path]);
    for ended in [checked, found] {
        assert_eq!(ended.status, Some(0), "{}", ended.text());
        assert_eq!(ended.err, line);
    }
    let elsewhere = Folder::site();
    symlink(elsewhere.path(), folder.join("c.example")).expect("linked");
    let found = doctor(&["--hosts", path]);
    assert_eq!(found.status, Some(0), "{}", found.text());
    let out = format!("gannet: no site for 'c.example': cannot open directory '{path}/c.example'");
    let told: Vec<_> = found.err.lines().collect();
    assert_eq!(format!("{}\n", told[0]), line, "{told:#?}");
    assert!(told[1].starts_with(&out), "{told:#?}");
    assert!(told[2].starts_with("help: "), "{told:#?}");
    assert_eq!(told.len(), 3, "{told:#?}");
}

#[test]
fn a_configuration_that_cannot_be_read_has_status_two() {
    let folder = Folder::new();
    let config = folder.write("gannet.toml", "colour = 'red'\n");
    let config = config.to_str().expect("UTF-8");
    let ended = gannet(["doctor", "--config", config]);
    assert_eq!((ended.status, ended.text()), (Some(2), ""));
    assert!(ended.err.contains("colour"), "{}", ended.err);
    let ended = gannet(["doctor", "--check-config"]);
    assert_eq!(ended.status, Some(2));
    assert!(
        ended.err.contains("makes no sense with doctor"),
        "{}",
        ended.err
    );
}
