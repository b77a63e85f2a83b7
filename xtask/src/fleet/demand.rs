//! A node that serves the bucket on demand, with less room than the site takes, and a host to which releases are
//! published by signature. Visitors compare every byte, while what the bucket sends to the node is damaged, cut
//! short, withheld, without ranges, and nothing at all.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use xtask::answer::ask;
use xtask::process;
use xtask::random::SplitMix;
use xtask::running::{Running, free_port, until};
use xtask::served::Served;

use super::{CUT, FLIPS, Fleet, HANGS, NO_RANGES, SHORT, WHOLE, Way, page_text};

const URL: &str = "s3://bucket/large";
const PAGES: usize = 200;
/// Those that are always requested: they stay on the node, whatever becomes of the bucket.
const LOCAL: usize = 4;
/// Twice what the node has room for.
const LONG: usize = 64;
const LONG_LEN: usize = 2 << 20;
const ROOM: &str = "64M";
const VISITORS: u64 = 8;

/// What visitors of a server have seen.
#[derive(Default)]
struct Seen {
    ended: AtomicBool,
    whole: AtomicU64,
    /// Answers that a node may give while its store does not: 502, 503, and those that broke off.
    failed: AtomicU64,
    release: AtomicU64,
    wrong: Mutex<Option<String>>,
}

/// Runs it.
pub(super) fn main(fleet: &Fleet) -> Result<()> {
    write_site(fleet, 1)?;
    process::run(fleet.gannet(0).args(["keygen", "large"]))?;
    publish(fleet, None)?;
    let way = Way::open(fleet.bucket.port)?;
    let key = ["--require-signature", "large.pub", "--cache-memory", "0"];
    let mut serve = fleet.gannet(way.port);
    serve.args(["serve", URL, "--on-demand", ROOM, "--copy", "on-demand"]);
    serve.args(["--port", "0", "--workers", "1"]).args(key);
    let node = Served::start(&mut serve)?.context("the node on demand does not serve")?;
    fleet.told("a node serves on demand");
    let (port, of_visitors) = (free_port()?, free_port()?);
    let mut serve = fleet.gannet(0);
    serve.args(["serve", "host", "--receive", &format!("127.0.0.1:{port}")]);
    serve
        .args(["--port", &of_visitors.to_string(), "--workers", "1"])
        .args(key);
    // It listens once it has a release.
    let host = Running::start(serve.stdout(Stdio::null()))?;
    until("the host takes a release", || {
        publish(fleet, Some(port)).is_ok()
    })?;
    until("the host serves", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, of_visitors)).is_ok()
    })?;
    fleet.told("a host has received release 1");
    let (of_node, of_host) = (Arc::<Seen>::default(), Arc::<Seen>::default());
    for page in 0..LOCAL {
        look_at(&node.port, page, &of_node, false)?;
    }
    let host_port = of_visitors.to_string();
    let visitors: Vec<_> = [(&node.port, &of_node, true), (&host_port, &of_host, false)]
        .into_iter()
        .flat_map(|(port, seen, may_fail)| {
            (0..VISITORS).map(move |seed| {
                let (port, seen) = (port.clone(), Arc::clone(seen));
                thread::spawn(move || visit(&port, (seed, may_fail), &seen))
            })
        })
        .collect();
    let tried = misbehave(fleet, &way, &of_node).and_then(|()| {
        write_site(fleet, 2)?;
        publish(fleet, Some(port))?;
        for (name, seen) in [("the node on demand", &of_node), ("the host", &of_host)] {
            await_seen(&format!("{name} serves release 2"), seen, || {
                seen.release.load(Ordering::Relaxed) == 2
            })?;
            fleet.told(&format!("{name} serves release 2"));
        }
        Ok(())
    });
    for seen in [&of_node, &of_host] {
        seen.ended.store(true, Ordering::Relaxed);
    }
    for visitor in visitors {
        ensure!(visitor.join().is_ok(), "a visitor panicked");
    }
    tried?;
    drop(host);
    report(fleet, &of_node, &of_host)
}

/// Whatever the bucket sends, the node answers with the bytes of the release, or none; and with what it has.
fn misbehave(fleet: &Fleet, way: &Way, seen: &Seen) -> Result<()> {
    let goes_on = |what: &str, count: &AtomicU64| {
        let enough = count.load(Ordering::Relaxed) + 8;
        await_seen(what, seen, || count.load(Ordering::Relaxed) >= enough)
    };
    goes_on("requests are answered", &seen.whole)?;
    for (state, what) in [
        (FLIPS, "flips bits"),
        (SHORT, "cuts answers short"),
        (HANGS, "hangs"),
        (NO_RANGES, "answers 200 to ranges"),
        (CUT, "is gone"),
    ] {
        way.becomes(state);
        fleet.told(&format!("the bucket {what}, for the node on demand"));
        goes_on("requests for the rest fail", &seen.failed)?;
        goes_on("what is local is served", &seen.whole)?;
        way.becomes(WHOLE);
        // What has failed is not fetched again at once.
        goes_on("it is whole again", &seen.whole)?;
    }
    fleet.told("the bucket is whole again");
    Ok(())
}

fn await_seen(what: &str, seen: &Seen, is_so: impl Fn() -> bool) -> Result<()> {
    until(what, || is_so() || wrong(seen).is_some())?;
    match wrong(seen).take() {
        Some(wrong) => bail!("{wrong}"),
        None => Ok(()),
    }
}

fn wrong(seen: &Seen) -> MutexGuard<'_, Option<String>> {
    seen.wrong.lock().expect("no visitor panics")
}

fn report(fleet: &Fleet, of_node: &Seen, of_host: &Seen) -> Result<()> {
    for (name, seen) in [("the node on demand", of_node), ("the host", of_host)] {
        if let Some(wrong) = wrong(seen).take() {
            bail!("{wrong}");
        }
        let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let (whole, failed) = (count(&seen.whole), count(&seen.failed));
        fleet.told(&format!(
            "{name}: {whole} answers, every byte of them that of a release; {failed} failed"
        ));
    }
    Ok(())
}

fn write_site(fleet: &Fleet, release: usize) -> Result<()> {
    let site = fleet.folder.join("large");
    fs::create_dir_all(&site)?;
    for page in 0..PAGES {
        fs::write(site.join(format!("{page}.html")), page_text(release, page))?;
    }
    for number in 0..LONG {
        fs::write(site.join(format!("{number}.bin")), long_file(number))?;
    }
    Ok(())
}

/// The same in each release.
fn long_file(number: usize) -> Vec<u8> {
    let mut random = SplitMix(number as u64);
    (0..LONG_LEN / 8)
        .flat_map(|_| random.next().to_le_bytes())
        .collect()
}

/// Publishes to the bucket, and to the host that receives at this port.
fn publish(fleet: &Fleet, host: Option<u16>) -> Result<()> {
    let mut command = fleet.gannet(fleet.bucket.port);
    command.args([
        "publish",
        "large",
        URL,
        "--fast",
        "-q",
        "--sign",
        "large.key",
    ]);
    command.args(host.map(|port| format!("http://127.0.0.1:{port}")));
    process::run(command.stderr(Stdio::null()))
}

/// Asks one server for one thing after the other, and compares what comes. What is local, and what a host has, must
/// come; the rest may fail.
fn visit(port: &str, (seed, may_fail): (u64, bool), seen: &Seen) {
    let mut random = SplitMix(seed);
    while !seen.ended.load(Ordering::Relaxed) {
        let (local, page) = (
            random.next() as usize % LOCAL,
            random.next() as usize % PAGES,
        );
        let long = random.next() as usize % LONG;
        let tried = look_at(port, local, seen, false)
            .and_then(|()| look_at(port, page, seen, may_fail))
            .and_then(|()| look_at_long(port, long, seen, may_fail));
        if let Err(error) = tried {
            *wrong(seen) = Some(format!("{error:#}"));
            return;
        }
    }
}

fn look_at(port: &str, page: usize, seen: &Seen, may_fail: bool) -> Result<()> {
    let path = format!("/{page}.html");
    let Some(body) = body(port, &path, seen, may_fail)? else {
        return Ok(());
    };
    let release = [1, 2]
        .into_iter()
        .find(|it| body == page_text(*it, page).as_bytes());
    let release = release.with_context(|| format!("{path} is that of no release"))?;
    seen.release.fetch_max(release as u64, Ordering::Relaxed);
    Ok(())
}

fn look_at_long(port: &str, number: usize, seen: &Seen, may_fail: bool) -> Result<()> {
    let path = format!("/{number}.bin");
    let got = body(port, &path, seen, may_fail)?;
    ensure!(
        got.is_none_or(|it| it == long_file(number)),
        "{path} has other bytes"
    );
    Ok(())
}

/// The whole content of an answer; `None` if it failed, and may.
fn body(port: &str, path: &str, seen: &Seen, may_fail: bool) -> Result<Option<Vec<u8>>> {
    let answer = ask(port, "GET", path, &[]);
    let is_whole = answer.as_ref().is_ok_and(|it| {
        let len = it.field("content-length").and_then(|it| it.parse().ok());
        it.status == 200 && len == Some(it.body.len())
    });
    if is_whole {
        seen.whole.fetch_add(1, Ordering::Relaxed);
        return answer.map(|it| Some(it.body));
    }
    if let Ok(answer) = &answer {
        let is_known = [200, 502, 503].contains(&answer.status);
        ensure!(may_fail && is_known, "{path}: {}", answer.head);
        if answer.status == 200
            && let Some(number) = path.strip_suffix(".bin")
        {
            let number: usize = number[1..].parse()?;
            ensure!(
                long_file(number).starts_with(&answer.body),
                "{path} begins with other bytes"
            );
        }
    }
    ensure!(may_fail, "{path} does not come");
    seen.failed.fetch_add(1, Ordering::Relaxed);
    Ok(None)
}
