//! Requests to the program as it is shipped: what all of it executes for one.
//!
//! The client has one connection and asks again soon after it has the answer: each request is a turn of
//! the worker. What the kernel executes is not counted.

use std::collections::BTreeMap;
use std::io::{Read, pipe};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gannet_testkit::Folder;
use gannet_testkit::client::Client;
use gannet_testkit::h2::{INITIAL_WINDOW_SIZE, Peer, WIDE, settings_frame, window_update};
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, connection};
use xtask::process;
use xtask::served::Served;

/// The site, and what is packed from it.
const DIRECTORY: &str = "site";
const ARCHIVE: &str = "site.gannet";

/// Requests of the shorter count. Starts differ by up to 100,000 instructions: 50 for each.
const COUNT: u64 = 2000;

/// What the client waits at least before each request. A turn in a new millisecond also looks at timers: without a
/// pause it depends on the speed of the machine how many do, and a count with it by a seventh.
const PAUSE: Duration = Duration::from_millis(2);

const LOOPBACK: &str = "127.0.0.1:0";

/// Name and length of a file.
type Sized = (&'static str, usize);

const SMALL: Sized = ("small.txt", 13);
const PAGE: Sized = ("page.html", 10_000);

#[derive(Clone, Copy)]
enum Version {
    Http1,
    Http2,
    Http3,
}

/// Requests of one kind.
#[derive(Clone, Copy)]
struct Requests {
    name: &'static str,
    site: &'static str,
    file: Sized,
    version: Version,
    is_tls: bool,
    flags: &'static [&'static str],
    /// The configuration, beside the flags.
    config: &'static str,
    /// What begins the connection.
    preface: &'static str,
    /// Further field lines of HTTP/1.1.
    fields: &'static [&'static str],
}

/// Nothing is turned on.
const fn plain(name: &'static str, site: &'static str, file: Sized) -> Requests {
    Requests {
        name,
        site,
        file,
        version: Version::Http1,
        is_tls: false,
        flags: &["--listen", LOOPBACK],
        config: "",
        preface: "",
        fields: &[],
    }
}

impl Requests {
    const fn by(self, version: Version) -> Self {
        Self { version, ..self }
    }

    const fn secure(self) -> Self {
        let is_tls = true;
        Self { is_tls, ..self }
    }
}

/// What each feature is compared with.
const BASE: Requests = plain("request-h1-archive-13", ARCHIVE, SMALL);

const ALL: [Requests; 19] = [
    BASE,
    plain("request-h1-archive-10k", ARCHIVE, PAGE),
    plain("request-h1-directory-13", DIRECTORY, SMALL),
    plain("request-h1-directory-10k", DIRECTORY, PAGE),
    plain("request-h2-archive-13", ARCHIVE, SMALL).by(Version::Http2),
    plain("request-h2-archive-10k", ARCHIVE, PAGE).by(Version::Http2),
    plain("request-h2-directory-13", DIRECTORY, SMALL).by(Version::Http2),
    plain("request-h2-directory-10k", DIRECTORY, PAGE).by(Version::Http2),
    plain("request-h1-tls-13", ARCHIVE, SMALL).secure(),
    plain("request-h1-tls-10k", ARCHIVE, PAGE).secure(),
    plain("request-h2-tls-13", ARCHIVE, SMALL)
        .by(Version::Http2)
        .secure(),
    plain("request-h2-tls-10k", ARCHIVE, PAGE)
        .by(Version::Http2)
        .secure(),
    plain("request-h3-13", ARCHIVE, SMALL)
        .by(Version::Http3)
        .secure(),
    Requests {
        name: "request-with-forwarded",
        flags: &["--listen", LOOPBACK, "--trust", "loopback"],
        fields: &["X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: http"],
        ..BASE
    },
    // So many that no request is refused.
    Requests {
        name: "request-with-limits",
        config: "client = { connections = 100000, requests = '100000000/s', rate = '100G' }",
        ..BASE
    },
    Requests {
        name: "request-with-lists",
        flags: &["--listen", LOOPBACK, "--deny", "198.51.100.0/24"],
        ..BASE
    },
    Requests {
        name: "request-with-measures",
        flags: &["--listen", LOOPBACK, "--metrics", LOOPBACK],
        ..BASE
    },
    Requests {
        name: "request-with-proxy-protocol",
        flags: &["--listen", "127.0.0.1:0,proxy", "--trust", "loopback"],
        preface: "PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n",
        ..BASE
    },
    Requests {
        name: "request-with-server-timing",
        config: "server-timing = true",
        ..BASE
    },
];

/// The name of the count of a start and one request over TLS.
const FIRST: &str = "request-tls-first";

/// The instructions of one request of each kind to this gannet.
pub(super) fn count_all(gannet: &Path) -> Result<BTreeMap<String, u64>> {
    let (folder, authority) = (Folder::new(), Authority::new());
    for (name, len) in [SMALL, PAGE] {
        folder.write(Path::new(DIRECTORY).join(name), vec![b'x'; len]);
    }
    let mut pack = Command::new(gannet);
    pack.args(["pack", "--quiet", "--fast"])
        .arg(folder.join(DIRECTORY));
    process::run(pack.arg("-o").arg(folder.join(ARCHIVE)))?;
    let setting = Setting {
        gannet,
        folder: &folder,
        certificate: authority.issue("site.pem", KeyKind::P256, &["localhost"]),
        authority: &authority,
    };
    let counts = ALL.iter().map(|requests| {
        let count = |count, time| setting.count(requests, count, time).context(requests.name);
        // Both take the same time: what a server does by the clock, such as looking at a file again, is in both.
        let (twice, time) = count(2 * COUNT, Duration::ZERO)?;
        let (once, _) = count(COUNT, time)?;
        Ok((requests.name.to_owned(), twice.saturating_sub(once) / COUNT))
    });
    let mut counts = counts.collect::<Result<BTreeMap<_, _>>>()?;
    // From the start of the process, whose random numbers must not cost more than all else.
    let first = BASE.secure();
    counts.insert(FIRST.into(), setting.count(&first, 1, Duration::ZERO)?.0);
    Ok(counts)
}

/// What is the same for all.
struct Setting<'s> {
    gannet: &'s Path,
    folder: &'s Folder,
    authority: &'s Authority,
    certificate: PathBuf,
}

impl Setting<'_> {
    /// Instructions of a server from its start to its end, with so many requests over at least this time, and the
    /// time that they took.
    fn count(&self, requests: &Requests, count: u64, time: Duration) -> Result<(u64, Duration)> {
        let config = self
            .folder
            .write(format!("{}.toml", requests.name), requests.config);
        let (mut report, end) = pipe()?;
        let mut command = super::callgrind(self.gannet);
        // With the engine that valgrind knows.
        command.args([
            "serve",
            "--workers",
            "1",
            "--log",
            "off",
            "--engine",
            "epoll",
        ]);
        command.args(["--sandbox", "off", "--config"]).arg(config);
        command.args(requests.flags).stderr(end);
        if requests.is_tls {
            command.arg("--tls-cert").arg(&self.certificate);
        }
        let server = Served::start(command.arg(self.folder.join(requests.site)))?;
        let server = server.context("the server does not start")?;
        // Else its end would not be seen.
        drop(command);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port.parse()?));
        let took = self.ask(requests, address, count, time)?;
        ensure!(server.end()?.success(), "the server failed");
        let mut text = String::new();
        report.read_to_string(&mut text)?;
        Ok((super::collected(&text)?, took))
    }

    /// Sends so many requests, one after the other, over at least this time; the time that they took.
    fn ask(
        &self,
        requests: &Requests,
        address: SocketAddr,
        count: u64,
        time: Duration,
    ) -> Result<Duration> {
        let path = format!("/{}", requests.file.0);
        let tls = |protocol: &[u8]| {
            let alpn = vec![protocol.to_vec()];
            let abilities = Abilities {
                alpn,
                ..Abilities::default()
            };
            connection(&self.authority.client(abilities), "localhost")
        };
        let is_right = |status, body: Vec<u8>| status == 200 && body == vec![b'x'; requests.file.1];
        let mut get: Box<dyn FnMut() -> bool> = match requests.version {
            Version::Http1 => {
                let mut client = match requests.is_tls {
                    true => Client::tls(address, tls(b"http/1.1")),
                    false => Client::connect(address),
                };
                client.send(requests.preface);
                Box::new(move || {
                    let answer = client.request("GET", &path, requests.fields);
                    is_right(answer.status, answer.body)
                })
            }
            Version::Http2 => {
                let mut peer = match requests.is_tls {
                    true => Peer::tls(address, tls(b"h2")),
                    false => Peer::connect(address),
                };
                // Updates of windows would come with a request or alone.
                peer.opens_windows = false;
                let settings = settings_frame(&[(INITIAL_WINDOW_SIZE, WIDE)]);
                peer.send(&[settings, window_update(0, WIDE)].concat());
                Box::new(move || {
                    let answer = peer.get(&path);
                    is_right(answer.status, answer.body)
                })
            }
            Version::Http3 => {
                let mut quic = Quic::begin(address, self.authority);
                Box::new(move || {
                    let answer = quic.get(&path);
                    is_right(answer.status, answer.body)
                })
            }
        };
        let start = Instant::now();
        for index in 0..count {
            let due = time.mul_f64(index as f64 / count as f64);
            std::thread::sleep(due.saturating_sub(start.elapsed()).max(PAUSE));
            ensure!(get(), "not what was requested");
        }
        Ok(start.elapsed())
    }
}
