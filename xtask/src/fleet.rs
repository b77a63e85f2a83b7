//! A fleet on loopback: a bucket of versitygw, a publisher, three nodes that serve it, and visitors. Releases
//! are published while the way to the bucket is whole, cut and slow. Visitors compare every body with what
//! one of the published releases has. Then a host that receives one release after the other, a node on demand whose
//! bucket misbehaves, and a host that receives meanwhile.
//!
//! Before that, publishing to doubles of the other providers' storages, and following them, and a mirror of
//! packages with clients of apt.

mod clouds;
mod demand;
mod mirror;
mod often;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use xtask::answer::ask;
use xtask::process;
use xtask::running::{Running, free_port, until};
use xtask::served::Served;

use crate::program::Program;

const NODES: usize = 3;
const PAGES: usize = 500;
/// From publishing to the moment of activation, and what may pass after that on any node.
///
/// Followers look every 5 s, and need time to copy.
const AHEAD: Duration = Duration::from_secs(15);
const LATE: Duration = Duration::from_secs(2);
const KEY: &str = "fleet";
const SECRET: &str = "a secret of the fleet";
const GATEWAY: &str = "github.com/versity/versitygw/cmd/versitygw@latest";

const HELP: &str = "\
cargo xtask fleet [--program FILE]

  --program FILE   a gannet that is built already
";

/// Runs it; of what cannot be had here, prints why it is skipped, unless this is CI.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(program) = Program::parse(parser, HELP)? else {
        return Ok(());
    };
    let program = program.path()?;
    let folder = process::target().join("fleet");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("buckets/bucket"))?;
    mirror::main(&program, &folder)?;
    clouds::main(&program, &folder)?;
    let gateway = match gateway() {
        Ok(path) => path,
        Err(error) if !process::is_ci() => {
            println!("s3:// skipped: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let bucket = Bucket::start(&gateway, &folder)?;
    let mut fleet = Fleet::start(program, folder, bucket)?;
    fleet.first_release()?;
    fleet.rolling_release()?;
    fleet.staged_release()?;
    fleet.cut_and_slow()?;
    often::main(&fleet, 4)?;
    demand::main(&fleet)?;
    fleet.report()
}

/// The S3 service: found, or installed by go.
fn gateway() -> Result<PathBuf> {
    let tools = process::target().join("tools/bin");
    let places = [tools.join("versitygw")];
    if let Some(path) =
        process::find("versitygw").or_else(|| places.into_iter().find(|it| it.is_file()))
    {
        return Ok(path);
    }
    let go = go().context("versitygw is not installed")?;
    println!("installing versitygw by go into '{}'", tools.display());
    process::run(
        Command::new(go)
            .args(["install", GATEWAY])
            .env("GOBIN", &tools),
    )?;
    Ok(tools.join("versitygw"))
}

/// The tool that builds programs in Go.
fn go() -> Result<PathBuf> {
    let usual = Some(PathBuf::from("/usr/local/go/bin/go")).filter(|it| it.is_file());
    process::find("go").or(usual).context("go is not installed")
}

struct Bucket {
    _gateway: Running,
    port: u16,
}

impl Bucket {
    fn start(gateway: &Path, folder: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(gateway);
        command.args([
            "--port",
            &format!("127.0.0.1:{port}"),
            "--access",
            KEY,
            "--secret",
            SECRET,
            "posix",
        ]);
        command
            .arg(folder.join("buckets"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let gateway = Running::start(&mut command).context("cannot start versitygw")?;
        until("versitygw listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })?;
        Ok(Self {
            _gateway: gateway,
            port,
        })
    }
}

/// What becomes of what the bucket sends to a node.
const WHOLE: u8 = 0;
const CUT: u8 = 1;
const SLOW: u8 = 2;
const FLIPS: u8 = 3;
const SHORT: u8 = 4;
const HANGS: u8 = 5;
const NO_RANGES: u8 = 6;

/// The way from a node to the bucket, whose bytes are counted.
struct Way {
    port: u16,
    state: Arc<AtomicU8>,
    received: Arc<AtomicU64>,
}

impl Way {
    fn open(bucket: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (state, received) = (Arc::new(AtomicU8::new(WHOLE)), Arc::new(AtomicU64::new(0)));
        let (of_all, counted) = (Arc::clone(&state), Arc::clone(&received));
        thread::spawn(move || {
            for client in listener.incoming().map_while(std::result::Result::ok) {
                let (state, received) = (Arc::clone(&of_all), Arc::clone(&counted));
                thread::spawn(move || carry(&client, bucket, &state, &received));
            }
        });
        Ok(Self {
            port,
            state,
            received,
        })
    }

    fn becomes(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }
}

/// Carries a connection until either side, or a change of the way, ends it.
fn carry(client: &TcpStream, bucket: u16, state: &AtomicU8, received: &AtomicU64) -> Option<()> {
    let begun = state.load(Ordering::Relaxed);
    if begun == CUT {
        return None;
    }
    let server = TcpStream::connect(("127.0.0.1", bucket)).ok()?;
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    server
        .set_read_timeout(Some(Duration::from_millis(50)))
        .ok()?;
    let mut piece = vec![0; if begun == SLOW { 1 } else { 64 << 10 }];
    let (mut server, mut client) = (&server, client);
    while state.load(Ordering::Relaxed) == begun {
        let mut len = match server.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        };
        received.fetch_add(len as u64, Ordering::Relaxed);
        match begun {
            FLIPS => piece[len - 1] ^= 1,
            SHORT => len /= 2,
            HANGS => len = 0,
            NO_RANGES if piece.starts_with(b"HTTP/1.1 206") => piece[9..12].copy_from_slice(b"200"),
            _ => {}
        }
        client.write_all(&piece[..len]).ok()?;
        match begun {
            SHORT => break,
            SLOW => thread::sleep(Duration::from_secs(1)),
            _ => {}
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    None
}

struct Node {
    way: Way,
    /// It starts a follower beside itself.
    served: Served,
}

/// What visitors have seen.
#[derive(Default)]
struct Seen {
    answers: AtomicU64,
    ended: AtomicBool,
    wrong: Mutex<Option<String>>,
    /// When a release was first seen on a node.
    first: Mutex<BTreeMap<(usize, usize), Instant>>,
}

impl Seen {
    fn wrong(&self) -> MutexGuard<'_, Option<String>> {
        self.wrong.lock().expect("no visitor panics")
    }
}

struct Fleet {
    program: PathBuf,
    folder: PathBuf,
    bucket: Bucket,
    begun: Instant,
    nodes: Vec<Node>,
    seen: Arc<Seen>,
    visitors: Vec<thread::JoinHandle<()>>,
}

impl Fleet {
    fn start(program: PathBuf, folder: PathBuf, bucket: Bucket) -> Result<Self> {
        let fleet = Self {
            program,
            folder,
            bucket,
            begun: Instant::now(),
            nodes: Vec::new(),
            seen: Arc::default(),
            visitors: Vec::new(),
        };
        fleet.write_pages(1, PAGES)?;
        Ok(fleet)
    }

    fn told(&self, text: &str) {
        println!("{:7.2} s  {text}", self.begun.elapsed().as_secs_f64());
    }

    /// Pages that name their release and number; the first so many are changed.
    fn write_pages(&self, release: usize, count: usize) -> Result<()> {
        let site = self.folder.join("site");
        fs::create_dir_all(&site)?;
        for page in 0..count {
            fs::write(site.join(format!("{page}.html")), page_text(release, page))?;
        }
        Ok(())
    }

    fn gannet(&self, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .current_dir(&self.folder);
        command
    }

    /// Publishes the site; returns when that began, from which on moments count, and when it was done.
    fn publish(&self, more: &[&str]) -> Result<[Instant; 2]> {
        let begun = Instant::now();
        let mut command = self.gannet(self.bucket.port);
        command
            .args(["publish", "site", URL, "--fast", "-q"])
            .args(more);
        process::run(&mut command)?;
        self.told(&format!("published {}", more.join(" ")));
        Ok([begun, Instant::now()])
    }

    fn first_release(&mut self) -> Result<()> {
        let mut wrong = self.gannet(self.bucket.port);
        wrong
            .args(["releases", URL])
            .env("AWS_SECRET_ACCESS_KEY", "another secret");
        ensure!(
            !wrong.stderr(Stdio::null()).status()?.success(),
            "the bucket checks no credentials"
        );
        self.publish(&[])?;
        for number in 0..NODES {
            let way = Way::open(self.bucket.port)?;
            let name = format!("node-{number}");
            let mut serve = self.gannet(way.port);
            serve.args(["serve", URL, "--copy", &name, "--node", &name]);
            serve.args(["--port", "0", "--workers", "1"]);
            let served = Served::start(&mut serve)?.context("a node does not serve")?;
            self.nodes.push(Node { way, served });
        }
        self.told(&format!("{NODES} nodes serve release 1"));
        for (number, node) in self.nodes.iter().enumerate() {
            let (port, seen) = (node.served.port.clone(), Arc::clone(&self.seen));
            self.visitors
                .push(thread::spawn(move || visit(number, &port, &seen)));
        }
        self.until_all_serve(1).map(drop)
    }

    /// Three pages change. Every node shows them at most [`LATE`] after the moment of activation.
    fn rolling_release(&self) -> Result<()> {
        self.write_pages(2, 3)?;
        let before: Vec<_> = self.received();
        let [begun, published] =
            self.publish(&["--activate", &format!("+{}s", AHEAD.as_secs())])?;
        let last = self.until_all_serve(2)?;
        let moment = published.max(begun + AHEAD);
        let late = last.saturating_duration_since(moment);
        self.told(&format!(
            "all serve release 2, {:.2} s after its moment",
            late.as_secs_f64()
        ));
        ensure!(late <= LATE, "too late: {late:?}");
        let releases = fs::read_dir(self.folder.join("buckets/bucket/site/releases"))?;
        let size = releases
            .map(|it| Ok(it?.metadata()?.len()))
            .collect::<Result<Vec<_>>>()?;
        let size = size.into_iter().max().context("there are releases")?;
        for (number, (now, before)) in self.received().iter().zip(before).enumerate() {
            let moved = now - before;
            let percent = moved as f64 * 100.0 / size as f64;
            self.told(&format!(
                "node {number} has received {moved} of {size} bytes: {percent:.1} %"
            ));
            ensure!(percent <= 6.0, "too much for 3 pages of {PAGES}");
        }
        Ok(())
    }

    fn staged_release(&self) -> Result<()> {
        self.write_pages(3, 3)?;
        let activate = format!("+{}s", AHEAD.as_secs());
        self.publish(&["--activate", &activate, "--stages", "20% +0s, 100% +4s"])?;
        self.until_all_serve(3)?;
        let first = self.seen.first.lock().expect("no visitor panics");
        let mut at: Vec<_> = (0..NODES).map(|node| first[&(node, 3)]).collect();
        at.sort();
        let apart = at[NODES - 1].duration_since(at[0]).as_secs_f64();
        drop(first);
        self.told(&format!(
            "all serve release 3, the first and the last {apart:.2} s apart"
        ));
        Ok(())
    }

    /// Node 0 is cut off, node 1 gets a byte a second; node 2 goes ahead. Then all are whole again.
    fn cut_and_slow(&self) -> Result<()> {
        self.nodes[0].way.becomes(CUT);
        self.nodes[1].way.becomes(SLOW);
        self.told("node 0 is cut off, node 1 gets a byte a second");
        self.write_pages(4, 3)?;
        self.publish(&[])?;
        self.until(2, 4)?;
        let answers = self.seen.answers.load(Ordering::Relaxed);
        until("visitors are answered", || {
            self.seen.answers.load(Ordering::Relaxed) > answers + 1000
        })?;
        let first = self.seen.first.lock().expect("no visitor panics");
        ensure!(
            !first.contains_key(&(0, 4)) && !first.contains_key(&(1, 4)),
            "what way was that?"
        );
        drop(first);
        self.told("node 2 serves release 4, the others what they have");
        for node in &self.nodes {
            node.way.becomes(WHOLE);
        }
        self.told("the ways are whole again");
        self.until_all_serve(4)?;
        self.told("all serve release 4");
        self.ask_visitors_alone()
    }

    /// No server has a connection to the bucket: that is its follower's.
    fn ask_visitors_alone(&self) -> Result<()> {
        for node in &self.nodes {
            let folder = fs::read_dir(format!("/proc/{}/fd", node.served.pid()))?;
            let sockets = folder.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
            let sockets: Vec<_> = sockets
                .map(|it| it.to_string_lossy().into_owned())
                .collect();
            ensure!(
                sockets.iter().any(|it| it.starts_with("socket:")),
                "no sockets to look at"
            );
            let way = format!(":{:04X}", node.way.port);
            let connections = fs::read_to_string("/proc/net/tcp")?;
            for line in connections.lines().skip(1) {
                let fields: Vec<_> = line.split_whitespace().collect();
                let (remote, inode) = (fields[2], fields[9]);
                let is_its = sockets.contains(&format!("socket:[{inode}]"));
                ensure!(
                    !is_its || !remote.ends_with(&way),
                    "a server asks the bucket"
                );
            }
        }
        self.told("no server has a connection to the bucket");
        Ok(())
    }

    fn received(&self) -> Vec<u64> {
        let ways = self.nodes.iter().map(|node| &node.way.received);
        ways.map(|it| it.load(Ordering::Relaxed)).collect()
    }

    /// Waits until all nodes serve a release; returns when the last one did.
    fn until_all_serve(&self, release: usize) -> Result<Instant> {
        let at = (0..NODES).map(|node| self.until(node, release));
        let at = at.collect::<Result<Vec<_>>>()?;
        at.into_iter().max().context("there are nodes")
    }

    fn until(&self, node: usize, release: usize) -> Result<Instant> {
        let mut at = None;
        until(&format!("node {node} serves release {release}"), || {
            at = self
                .seen
                .first
                .lock()
                .expect("no visitor panics")
                .get(&(node, release))
                .copied();
            at.is_some() || self.seen.wrong().is_some()
        })?;
        match self.seen.wrong().take() {
            Some(wrong) => bail!("{wrong}"),
            None => at.context("it was seen"),
        }
    }

    fn report(self) -> Result<()> {
        self.seen.ended.store(true, Ordering::Relaxed);
        for visitor in self.visitors {
            ensure!(visitor.join().is_ok(), "a visitor panicked");
        }
        if let Some(wrong) = self.seen.wrong().take() {
            bail!("{wrong}");
        }
        let answers = self.seen.answers.load(Ordering::Relaxed);
        println!("{answers} answers to visitors, each of them a whole page of one release");
        Ok(())
    }
}

/// Asks a node for one page after the other, and compares each with what it may be. A page that changes with each
/// release is never of one before a release that was seen.
fn visit(node: usize, port: &str, seen: &Seen) {
    let (mut number, mut newest) = (0, 0);
    while !seen.ended.load(Ordering::Relaxed) {
        let page = number % PAGES;
        // The pages that change are looked at each time.
        for page in [number % 3, page] {
            let changes = page < 3;
            let release = release_of(port, page).and_then(|release| {
                ensure!(!changes || release >= newest, "{release} after {newest}");
                Ok(release)
            });
            match release {
                Ok(release) => {
                    seen.answers.fetch_add(1, Ordering::Relaxed);
                    if changes {
                        newest = release;
                        let mut first = seen.first.lock().expect("no visitor panics");
                        first.entry((node, release)).or_insert_with(Instant::now);
                    }
                }
                Err(error) => {
                    let wrong = format!("node {node}, page {page}: {error:#}");
                    *seen.wrong() = Some(wrong);
                    return;
                }
            }
        }
        number += 1;
    }
}

/// The release that a page is of.
fn release_of(port: &str, page: usize) -> Result<usize> {
    let answer = ask(port, "GET", &format!("/{page}.html"), &[])?;
    ensure!(answer.status == 200, "{}", answer.head);
    let body = str::from_utf8(&answer.body)?;
    let release = body.strip_prefix("<!DOCTYPE html><title>Release ");
    let release = release.and_then(|it| it.split_once('<'));
    let release = release.context("no release in it")?.0.parse()?;
    ensure!(
        body == page_text(release, page),
        "not what release {release} has"
    );
    Ok(release)
}

/// About 12 KiB that differ from page to page: bodies below 4 KiB lie among an archive's metadata, which
/// followers always fetch.
fn page_text(release: usize, page: usize) -> String {
    let mut text = format!("<!DOCTYPE html><title>Release {release}</title><p>Page {page}\n");
    let mut state = (page * 10 + release) as u64 + 1;
    while text.len() < 12_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text += &format!("<p>{:x}\n", state >> 8);
    }
    text
}

const URL: &str = "s3://bucket/site";
