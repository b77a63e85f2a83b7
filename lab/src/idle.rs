//! Measures the memory that an idle connection costs the server, for each kind of connection.
//!
//! A server with one worker; many clients that have requested one page each and stay connected. The
//! memory is private and anonymous (`RssAnon`), before and after; the kernel's memory for a socket
//! is not included.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use xtask::certificate::{Certificate, ECDSA_P256};
use xtask::process;
use xtask::served::Served;

use crate::load::{Content, Plan, Target, Tls, h3};
use crate::same_certificate::SameCertificate;

const HELP: &str = "\
cargo xtask idle [FLAGS]

  --connections N  of each kind; default: 1000
  --engine NAME    io_uring or epoll; default: the server's choice
  --gannet PATH    measure this binary instead of building a release
";

/// Maximum time for the memory of a server to settle.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// Memory unchanged for this long is considered settled: HTTP/2 frees what an idle connection does
/// not need after a second.
const QUIET: Duration = Duration::from_millis(2_500);

/// How long clients wait between checks of the memory.
const PAUSE: Duration = Duration::from_millis(50);

/// The requested page: a line, and the number of repetitions.
const PAGE: &str = "<p>hello\n";
const PAGE_LINES: usize = 100;

/// A kind of connection.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    is_tls: bool,
    is_h2: bool,
    is_h3: bool,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "HTTP/1.1",
        is_tls: false,
        is_h2: false,
        is_h3: false,
    },
    Kind {
        name: "HTTP/2",
        is_tls: false,
        is_h2: true,
        is_h3: false,
    },
    Kind {
        name: "HTTP/1.1 over TLS",
        is_tls: true,
        is_h2: false,
        is_h3: false,
    },
    Kind {
        name: "HTTP/2 over TLS",
        is_tls: true,
        is_h2: true,
        is_h3: false,
    },
    Kind {
        name: "HTTP/3",
        is_tls: true,
        is_h2: false,
        is_h3: true,
    },
];

/// `cargo xtask idle`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut count, mut engine, mut gannet) = (1_000usize, None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("connections") => count = parser.value()?.parse()?,
            Long("engine") => engine = Some(parser.value()?.string()?),
            Long("gannet") => gannet = Some(PathBuf::from(parser.value()?)),
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            _ => return Err(argument.unexpected().into()),
        }
    }
    ensure!(count > 0, "no connections make no average");
    allow_descriptors(count as u64 + 64)?;
    let gannet = match gannet {
        Some(path) => path,
        None => process::build(&["-p", "gannet"], "dist")?,
    };
    let folder = std::env::temp_dir().join(format!("gannet-idle-{}", std::process::id()));
    fs::create_dir_all(folder.join("site"))?;
    fs::write(folder.join("site/index.html"), PAGE.repeat(PAGE_LINES))?;
    let result = measure_all(&gannet, &folder, engine.as_deref(), count);
    fs::remove_dir_all(&folder)?;
    result
}

fn measure_all(gannet: &Path, folder: &Path, engine: Option<&str>, count: usize) -> Result<()> {
    let setting = Setting {
        gannet,
        folder,
        certificate: &Certificate::create(ECDSA_P256, folder)?,
        engine,
    };
    for kind in KINDS {
        let bytes = measure(&setting, kind, count).with_context(|| kind.name)?;
        println!(
            "{:18} {bytes:6} bytes for each of {count} idle connections",
            kind.name
        );
    }
    Ok(())
}

/// Raises the descriptor limit of this process, and of the server that it starts.
pub(crate) fn allow_descriptors(count: u64) -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    match limit.maximum {
        Some(most) if most < count => bail!("{count} descriptors are needed, {most} are allowed"),
        _ => Ok(()),
    }
}

/// The settings shared by servers of all kinds.
struct Setting<'s> {
    gannet: &'s Path,
    /// The folder of the site.
    folder: &'s Path,
    certificate: &'s Certificate,
    engine: Option<&'s str>,
}

/// Measures the bytes per connection.
fn measure(setting: &Setting<'_>, kind: Kind, count: usize) -> Result<u64> {
    let mut command = Command::new(setting.gannet);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "off"]);
    command.args(["--workers", "1", "--idle-timeout", "300s"]);
    if kind.is_tls {
        let certificate = setting.certificate;
        command.arg("--tls-cert").arg(&certificate.chain);
        command.arg("--tls-key").arg(&certificate.key);
    }
    if let Some(engine) = setting.engine {
        command.args(["--engine", engine]);
    }
    command.stderr(Stdio::inherit());
    let server = Served::start(command.arg(setting.folder.join("site")))?;
    let server = server.context("the server does not start")?;
    if kind.is_h3 {
        return measure_h3(&server, setting.certificate, count);
    }
    let clients = Clients::new(&server, kind, setting.certificate)?;
    // Triggers one-time allocations.
    let mut open = vec![clients.connect()?];
    let mut pause = || {
        std::thread::park_timeout(PAUSE);
        Ok(())
    };
    let before = settled(&server, &mut pause)?;
    for _ in 0..count {
        open.push(clients.connect()?);
    }
    let after = settled(&server, &mut pause)?;
    each(before, after, count)
}

/// The same over HTTP/3, with the load client, since these connections need a client that keeps
/// processing them.
fn measure_h3(server: &Served, certificate: &Certificate, count: usize) -> Result<u64> {
    let tls = Tls::new(&certificate.der, false, true)?;
    let page = PAGE.repeat(PAGE_LINES).into_bytes();
    let len = page.len() as u64;
    let targets = [Target {
        path: "/".into(),
        content: Content::new(page.as_slice().into(), 0, len),
    }];
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port.parse()?));
    let interrupt = AtomicBool::new(false);
    let plan = |connections| Plan {
        connections,
        tls: Some(&tls),
        ..Plan::one_pass(address, &targets, SETTLED_WITHIN, &interrupt)
    };
    // Triggers one-time allocations.
    let (one, all) = (plan(1), plan(count));
    let mut first = h3::Client::new(&one, h3::Shape::Once)?;
    first.ask_once()?;
    let before = settled(server, &mut || Ok(first.run_for(PAUSE)?))?;
    let mut others = h3::Client::new(&all, h3::Shape::Once)?;
    others.ask_once()?;
    let mut pause = || {
        first.run_for(PAUSE / 2)?;
        Ok(others.run_for(PAUSE / 2)?)
    };
    let after = settled(server, &mut pause)?;
    each(before, after, count)
}

/// The growth of the memory per connection.
fn each(before: u64, after: u64, count: usize) -> Result<u64> {
    ensure!(
        after > before,
        "the memory did not grow: too few connections"
    );
    Ok((after - before) / count as u64)
}

/// The server's memory once it has settled; `pause` runs the clients between checks.
fn settled(server: &Served, pause: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    let (mut last, mut since) = (anonymous(server)?, start);
    while since.elapsed() < QUIET {
        ensure!(
            start.elapsed() < SETTLED_WITHIN,
            "the memory does not settle"
        );
        pause()?;
        let now = anonymous(server)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

fn anonymous(server: &Served) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = number.context("no RssAnon in its status")?.parse()?;
    Ok(kib << 10)
}

/// Opens connections of one kind.
struct Clients {
    address: String,
    kind: Kind,
    config: Arc<ClientConfig>,
}

/// An open connection.
type Kept = Box<dyn Stream>;

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Clients {
    fn new(server: &Served, kind: Kind, certificate: &Certificate) -> Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = SameCertificate::new(&certificate.der, Arc::clone(&provider), true);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let alpn: &[u8] = if kind.is_h2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(Self {
            address: format!("127.0.0.1:{}", server.port),
            kind,
            config: Arc::new(config),
        })
    }

    /// Connects and fetches the page.
    fn connect(&self) -> Result<Kept> {
        let socket = TcpStream::connect(&self.address)?;
        socket.set_read_timeout(Some(SETTLED_WITHIN))?;
        let mut stream: Kept = if self.kind.is_tls {
            let name = ServerName::try_from("localhost")?;
            let connection = ClientConnection::new(Arc::clone(&self.config), name)?;
            Box::new(StreamOwned::new(connection, socket))
        } else {
            Box::new(socket)
        };
        if self.kind.is_h2 {
            fetch_h2(&mut stream)?;
        } else {
            fetch_h1(&mut stream)?;
        }
        Ok(stream)
    }
}

fn fetch_h1(stream: &mut Kept) -> Result<()> {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut len) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            len = value.trim().parse()?;
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; len])?;
    Ok(())
}

/// The frames of RFC 9113 that a minimal request needs.
fn fetch_h2(stream: &mut Kept) -> Result<()> {
    const SETTINGS: u8 = 4;
    const ACK: u8 = 1;
    const END_STREAM: u8 = 1;
    let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    first.extend([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]);
    // :method GET, :path / and :scheme https by index, :authority as a literal.
    let block = [0x82, 0x84, 0x87, 0x41, 1, b'x'];
    // HEADERS with END_HEADERS and END_STREAM, on stream 1.
    first.extend([0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1]);
    first.extend(block);
    stream.write_all(&first)?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        stream.read_exact(&mut vec![0; len])?;
        let (kind, flags, id) = (header[3], header[4], header[8]);
        if kind == SETTINGS && flags & ACK == 0 {
            stream.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0])?;
        }
        if kind <= 1 && id == 1 && flags & END_STREAM != 0 {
            return Ok(());
        }
    }
}
