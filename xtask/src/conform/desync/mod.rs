//! Requests that programs may read differently, through other people's proxies: what gannet answers has
//! to be what each proxy passes on, to the client that asked.

mod proxies;
mod streams;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xtask::process;
use xtask::running::{free_port, until};
use xtask::served::Served;

use self::proxies::{PROXIES, Proxy};
use self::streams::{HIDDEN, stream};
use super::{Inputs, Outcome, Passed};

/// Clients at once.
const CLIENTS: usize = 192;
/// A client that has heard nothing for so long ends its half; after as long again it leaves.
const QUIET: Duration = Duration::from_secs(1);
/// Streams through each proxy, if the caller does not say.
const STREAMS: u32 = 2_000;
/// So many differences are shown of each proxy.
const SHOWN_MAX: usize = 5;

/// What a client has seen of its stream.
#[derive(Default)]
struct Seen {
    /// What gannet's answers name: stream and number of their request.
    answers: Vec<(u32, u32)>,
    /// All of its answers, by the field that they have.
    marks: usize,
}

pub(super) fn run(inputs: &Inputs) -> Result<Outcome> {
    let gannet = inputs.gannet()?;
    let count = inputs.streams.unwrap_or(STREAMS);
    let base = process::target().join("conform/desync");
    let (mut through, mut without, mut differing) = (Vec::new(), Vec::new(), 0);
    for proxy in &PROXIES {
        let folder = base.join(proxy.name.replace(' ', "-"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        // Some proxies change their user.
        process::run(Command::new("chmod").arg("777").arg(&folder))?;
        match through_one(proxy, &gannet, &folder, inputs.seed, count)
            .with_context(|| proxy.name)?
        {
            Some(differences) => {
                differing += differences;
                through.push(proxy.version());
            }
            None => without.push(proxy.name),
        }
    }
    ensure!(
        differing == 0,
        "{differing} streams differ; --seed {} makes the same ones again",
        inputs.seed
    );
    if through.is_empty() {
        return Ok(Outcome::Skipped("no proxy can be installed".to_owned()));
    }
    let without = match &without[..] {
        [] => String::new(),
        without => format!("; without {}", without.join(", ")),
    };
    Ok(Outcome::Passed(Passed {
        cases: through.len() * count as usize,
        version: format!("seed {}", inputs.seed),
        table: String::new(),
        differences: format!("through {}{without}", through.join(", ")),
    }))
}

/// Sends all streams through a proxy; returns how many differ, or `None` without that proxy.
fn through_one(
    proxy: &Proxy,
    gannet: &Path,
    folder: &Path,
    seed: u64,
    count: u32,
) -> Result<Option<usize>> {
    let (site, log) = (folder.join("site"), folder.join("log"));
    fs::create_dir_all(&site)?;
    fs::write(site.join("_redirects"), "/d/* /t/:splat 302\n")?;
    let mut serve = Command::new(gannet);
    serve
        .arg("serve")
        .arg(&site)
        .args(["-p", "0", "--workers", "1"]);
    serve
        .args(["--log", "$status $request_uri", "--log-file"])
        .arg(&log);
    serve.args(["--header", "X-Mark: gannet"]);
    let server = Served::start(&mut serve)?.context("the server needs a port")?;
    let upstream = server.port.parse()?;
    let port = free_port()?;
    let Some(running) = proxy.start(folder, port, upstream)? else {
        return Ok(None);
    };
    let seen = visit(port, seed, count);
    drop(running);
    let logged = logged(upstream, &log)?;
    let marks: usize = seen.iter().map(|it| it.marks).sum();
    let all_given = logged.len();
    let logged = by_stream(&logged);
    let mut differing = 0;
    let mut unread = 0;
    for (number, seen) in (0..).zip(&seen) {
        let given = logged.get(&number).map_or(&[][..], |it| &it[..]);
        let Err(why) = compare(number, given, &seen.answers) else {
            unread += usize::from(seen.answers.len() < given.len());
            continue;
        };
        differing += 1;
        if differing <= SHOWN_MAX {
            let bytes = stream(seed, number);
            let bytes = bytes[..bytes.len().min(600)].escape_ascii();
            println!(
                "desync: {}, stream {number}: {why}: given {given:?}, seen {:?}\n  {bytes}",
                proxy.name, seen.answers,
            );
        }
    }
    let hidden = seen.iter().flat_map(|it| &it.answers);
    let hidden = hidden.filter(|(_, number)| *number >= HIDDEN).count();
    println!(
        "desync: {}: {count} streams, {all_given} answers given, {marks} seen, {hidden} to requests that \
         others take as bodies; {unread} streams given up by the proxy; {differing} differ",
        proxy.name
    );
    Ok(Some(differing))
}

/// Compares what gannet has answered with what the client has seen.
fn compare(
    number: u32,
    given: &[u32],
    seen: &[(u32, u32)],
) -> std::result::Result<(), &'static str> {
    let mut left = given.to_vec();
    for (stream, request) in seen {
        if *stream != number {
            return Err("an answer for another client");
        }
        let Some(at) = left.iter().position(|it| it == request) else {
            return Err("an answer that was not given");
        };
        left.remove(at);
    }
    // A proxy may give a request up while it is answered, but only one that it has sent.
    match left.iter().any(|it| *it >= HIDDEN) {
        true => Err("an answer to no request"),
        false => Ok(()),
    }
}

/// Sends the streams, and returns what came of each.
fn visit(port: u16, seed: u64, count: u32) -> Vec<Seen> {
    let next = AtomicU32::new(0);
    let all = Mutex::new((0..count).map(|_| Seen::default()).collect::<Vec<_>>());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let seen = send(port, &stream(seed, number));
                    if let Ok(mut all) = all.lock() {
                        all[number as usize] = seen;
                    }
                }
            });
        }
    });
    all.into_inner().unwrap_or_default()
}

/// Sends one stream, and reads until the proxy closes or has nothing more to say.
fn send(port: u16, bytes: &[u8]) -> Seen {
    let mut answer = Vec::new();
    // Proxies may reset what they refuse; what they have sent before counts.
    let _ = exchange(port, bytes, &mut answer);
    let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let located = text
        .lines()
        .filter_map(|line| line.strip_prefix("location: "));
    Seen {
        answers: located
            .filter_map(|target| request(target, "/t/"))
            .collect(),
        marks: text
            .lines()
            .filter(|line| line.starts_with("x-mark:"))
            .count(),
    }
}

fn exchange(port: u16, bytes: &[u8], answer: &mut Vec<u8>) -> io::Result<()> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(QUIET))?;
    socket.set_write_timeout(Some(QUIET))?;
    // The proxy may have closed.
    let _ = socket.write_all(bytes);
    let mut has_ended = false;
    let mut buffer = [0; 16 << 10];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => answer.extend_from_slice(&buffer[..len]),
            Err(error) if has_ended => return Err(error),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                has_ended = true;
                socket.shutdown(Shutdown::Write)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A request: its stream, and its number there.
type Numbered = (u32, u32);

/// The request that a target names.
fn request(target: &str, folder: &str) -> Option<Numbered> {
    let mut parts = target
        .split_once(folder)?
        .1
        .split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What gannet has answered, from its log.
fn logged(port: u16, log: &Path) -> Result<Vec<(u16, Option<Numbered>)>> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.write_all(b"GET /end HTTP/1.0\r\n\r\n")?;
    socket.read_to_end(&mut Vec::new())?;
    let read = || String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    until("the log has all requests", || read().contains(" /end\n"))?;
    let text = read();
    // The last one is ours.
    let lines = text.lines().filter(|line| !line.ends_with(" /end"));
    let answer = |line: &str| {
        let (status, target) = line.split_once(' ').context("no status")?;
        Ok((status.parse()?, request(target, "/d/")))
    };
    lines.map(answer).collect()
}

/// What is to be compared: the requests of each stream that were answered by their names.
fn by_stream(logged: &[(u16, Option<Numbered>)]) -> HashMap<u32, Vec<u32>> {
    let mut all: HashMap<u32, Vec<u32>> = HashMap::new();
    for (stream, number) in logged
        .iter()
        .filter_map(|(status, it)| it.filter(|_| *status == 302))
    {
        all.entry(stream).or_default().push(number);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_for_others_and_for_nobody_differ() {
        for (given, seen, differs) in [
            (&[0, 99][..], &[(7, 0), (7, 99)][..], None),
            (&[0, 100, 99], &[(7, 0), (7, 100), (7, 99)], None),
            (&[0, 99], &[(7, 0)], None),
            (
                &[0],
                &[(7, 0), (8, 99)],
                Some("an answer for another client"),
            ),
            (
                &[0],
                &[(7, 0), (7, 0)],
                Some("an answer that was not given"),
            ),
            (&[0, 100], &[(7, 0)], Some("an answer to no request")),
        ] {
            assert_eq!(compare(7, given, seen).err(), differs, "{given:?} {seen:?}");
        }
    }

    #[test]
    fn requests_are_known_by_their_targets() {
        assert_eq!(request("/d/12/99", "/d/"), Some((12, 99)));
        assert_eq!(request("http://site/d/12/100?a=b", "/d/"), Some((12, 100)));
        assert_eq!(request("/t/12/3", "/d/"), None);
        assert_eq!(request("-", "/d/"), None);
    }
}
