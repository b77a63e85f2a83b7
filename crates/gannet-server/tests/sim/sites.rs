//! Many sites: they open slowly or hang, cannot be opened, are replaced, removed, and closed when idle,
//! under requests of all versions of HTTP.

use std::collections::{BTreeMap, VecDeque};

use gannet_io::driver::{Listener, Nanos};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, Random, Sim};
use gannet_server::config::{ContentOptions, Limits};
use gannet_server::driven::{DrivenOpening, DrivenSite, DrivenSites};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h1::Response;
use gannet_testkit::h2::hpack::Decoder;
use gannet_testkit::h2::{self, DATA, END_STREAM, Frame, HEADERS, RST_STREAM};
use gannet_testkit::h3::{self, Answer};
use quinn_proto::{Dir, StreamId};

use crate::link::{BOUND, Link, Opening};
use crate::quic_deadlines::connected;
use crate::run::{Tls, check_holdings, secure};
use crate::server::Server;

const MS: u64 = 1_000_000;

/// Number of seeds in a normal test run.
const SEEDS: u64 = 60;

const HOSTS: usize = 12;

/// Sites that may be open.
const OPEN_MAX: usize = 5;

/// A request waits for its site for so long.
const WAIT_MS: u64 = 10_000;

/// A site that was not asked for is closed after this time.
const IDLE_MS: u64 = 600_000;

/// Sites that can be opened at the same time, if all of them hang.
const OPENERS_MAX: usize = 64;

/// The folder is looked at this often.
const LOOK_MS: u64 = 500;

/// Until a change is noticed by all, and what was asked before is answered.
const NOTICED_MS: u64 = 2 * LOOK_MS;

/// What has failed is not tried again for so long.
const FAILED_MS: u64 = 5_000;

/// The server ends no connection.
const LIMITS: Limits = Limits {
    head_timeout_ms: 3_600_000,
    idle_timeout_ms: 3_600_000,
    progress_timeout_ms: 60_000,
    ..crate::run::LIMITS
};

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Version {
    Http1,
    Http2,
    Http3,
}

const VERSIONS: [Version; 3] = [Version::Http1, Version::Http2, Version::Http3];

/// A request without an answer yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    stream: u64,
    host: usize,
    at: u64,
}

#[derive(Debug, Default)]
struct Got {
    status: u16,
    may_try_again: bool,
    body: Vec<u8>,
}

enum Wire {
    Http1(Client),
    Http2(Client, Decoder<'static>),
    Http3(Box<Link>),
}

/// A connection.
struct Peer {
    wire: Wire,
    asked: VecDeque<Asked>,
    next_stream: u64,
    got: Vec<u8>,
    parts: BTreeMap<u64, Got>,
}

impl Peer {
    fn ask(&mut self, host: usize, at: u64) {
        let authority = name(host);
        let fields = |scheme| {
            [
                (":method", "GET"),
                (":scheme", scheme),
                (":authority", authority.as_str()),
                (":path", "/page"),
            ]
        };
        let stream = match &mut self.wire {
            Wire::Http1(client) => {
                let head = format!("GET /page HTTP/1.1\r\nhost: {authority}\r\n\r\n");
                client.write(head.as_bytes());
                0
            }
            Wire::Http2(client, _) => {
                let stream = u32::try_from(self.next_stream).expect("few requests");
                self.next_stream += 2;
                client.write(&h2::headers(stream, &h2::block(&fields("http"))));
                u64::from(stream)
            }
            Wire::Http3(link) => {
                let request = h3::headers(&fields("https"));
                let id = link.open(Dir::Bi, &request, true);
                link.send();
                u64::from(id.expect("the server grants more streams"))
            }
        };
        self.asked.push_back(Asked { stream, host, at });
    }

    /// Complete answers.
    fn read(&mut self) -> Vec<(Asked, Got)> {
        match &mut self.wire {
            Wire::Http1(client) => {
                self.got.extend(client.read());
                assert_eq!(client.end(), End::Open, "{:?}", self.asked);
                std::iter::from_fn(|| self.read_http1()).collect()
            }
            Wire::Http2(client, _) => {
                self.got.extend(client.read());
                assert_eq!(client.end(), End::Open, "{:?}", self.asked);
                let mut answers = Vec::new();
                while let Some(frame) = Frame::take(&mut self.got) {
                    answers.extend(self.read_http2(&frame));
                }
                answers
            }
            Wire::Http3(_) => self.read_http3(),
        }
    }

    fn read_http1(&mut self) -> Option<(Asked, Got)> {
        let (head, len) = Response::head(&self.got).expect("a response")?;
        let body_len: usize = head.field("content-length")?.parse().expect("a length");
        if self.got.len() < len + body_len {
            return None;
        }
        let got = Got {
            status: head.status,
            may_try_again: head.field("retry-after").is_some(),
            body: self.got[len..len + body_len].to_vec(),
        };
        self.got.drain(..len + body_len);
        Some((self.asked.pop_front().expect("it was asked for"), got))
    }

    fn read_http2(&mut self, frame: &Frame) -> Option<(Asked, Got)> {
        let Wire::Http2(_, decoder) = &mut self.wire else {
            unreachable!("it speaks HTTP/2");
        };
        assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
        let stream = u64::from(frame.stream);
        let got = self.parts.entry(stream).or_default();
        match frame.kind {
            HEADERS => {
                let fields = decoder.decode(&frame.payload).expect("a section");
                let value = |name: &str| {
                    let mut fields = fields.iter();
                    let value = fields.find(|(n, _)| n == name.as_bytes()).map(|it| &it.1);
                    value.map(|value| String::from_utf8_lossy(value).into_owned())
                };
                let status = value(":status").expect("a status");
                got.status = status.parse().expect("a number");
                got.may_try_again = value("retry-after").is_some();
            }
            DATA => got.body.extend(&frame.payload),
            _ => {
                self.parts.remove(&stream);
                return None;
            }
        }
        if !frame.has(END_STREAM) {
            return None;
        }
        let got = self.parts.remove(&stream)?;
        let at = self.asked.iter().position(|it| it.stream == stream);
        Some((self.asked.remove(at.expect("it was asked for"))?, got))
    }

    fn read_http3(&mut self) -> Vec<(Asked, Got)> {
        let Wire::Http3(link) = &mut self.wire else {
            unreachable!("it speaks HTTP/3");
        };
        link.step();
        link.core.read(usize::MAX);
        assert_eq!(link.core.lost, None, "{:?}", self.asked);
        let mut answers = Vec::new();
        self.asked.retain(|asked| {
            let id = StreamId::from(quinn_proto::VarInt::from_u64(asked.stream).expect("an id"));
            let Some(received) = link.core.received(id).filter(|it| it.is_over()) else {
                return true;
            };
            assert!(received.is_finished, "{received:?}");
            let answer = Answer::parse(&received.bytes);
            let got = Got {
                status: answer.status,
                may_try_again: answer.field("retry-after").is_some(),
                body: answer.body,
            };
            link.core.forget(id);
            answers.push((*asked, got));
            false
        });
        link.send();
        answers
    }
}

fn name(host: usize) -> String {
    format!("h{host}.example")
}

/// What a host had from a time on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Entry {
    None,
    Good(u64),
    Invalid,
}

/// A server of many sites, with the threads that open them.
struct Run {
    server: Server,
    sites: DrivenSites,
    config: Option<std::sync::Arc<rustls::ClientConfig>>,
    random: Random,
    peers: Vec<Peer>,
    next_client: u16,
    /// Sites being opened, with the times when they are open.
    openings: Vec<(u64, DrivenOpening)>,
    /// How long the next ones take.
    takes: fn(&mut Random) -> u64,
    /// They are closed for others at once.
    are_closed: bool,
    entries: Vec<Vec<(u64, Entry)>>,
    changes: u64,
    looked: u64,
    /// Answers by their status; 0 for those that have waited in vain.
    counts: BTreeMap<u16, usize>,
}

impl Run {
    fn start(seed: u64, is_quic: bool, open_max: usize, hosts: usize) -> Self {
        let bound = [BOUND.parse().expect("an address")];
        let sockets = if is_quic { &bound[..] } else { &[] };
        let faults = Faults {
            datagram_latency_ns: MS,
            ..Faults::none()
        };
        let driver = Sim::new(seed, 1, &EngineOptions::default(), faults);
        let driver = driver.with_datagrams(sockets);
        let disk = driver.handle();
        let tls = if is_quic { Tls::Own } else { Tls::None };
        let (mut tls, config) = secure(tls, ENCRYPTED_RECORDS_MAX, &disk).unzip();
        if let Some(tls) = &mut tls {
            tls.datagram_sockets = 1;
        }
        let options = ContentOptions::default();
        let (sites, driven) = DrivenSites::start(driver, tls, (&options, LIMITS), open_max);
        Self {
            server: Server { driven, disk },
            sites,
            config,
            random: Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 11),
            peers: Vec::new(),
            next_client: 0,
            openings: Vec::new(),
            takes: |random| random.below(5 * MS),
            are_closed: false,
            entries: vec![vec![(0, Entry::None)]; hosts],
            changes: 0,
            looked: 0,
            counts: BTreeMap::new(),
        }
    }

    /// A run with a connection of this version.
    fn of(version: Version, open_max: usize, hosts: usize) -> Self {
        let mut run = Self::start(1, version == Version::Http3, open_max, hosts);
        for host in 0..hosts {
            run.put(host);
        }
        run.connect(version);
        run.pass(2 * LOOK_MS);
        run
    }

    fn now(&self) -> u64 {
        self.server.disk.now().0
    }

    fn connect(&mut self, version: Version) {
        let tcp = |server: &Server| server.disk.connect(Listener(0)).expect("it listens");
        let wire = match version {
            Version::Http1 => Wire::Http1(tcp(&self.server)),
            Version::Http2 => {
                let client = tcp(&self.server);
                client.write(&h2::wide_opening());
                Wire::Http2(client, Decoder::new())
            }
            Version::Http3 => {
                let config = self.config.as_ref().expect("it speaks TLS");
                let opening = Opening::new(self.next_client);
                Wire::Http3(Box::new(connected(&mut self.server, config, &opening)))
            }
        };
        self.next_client += 1;
        self.peers.push(Peer {
            wire,
            asked: VecDeque::new(),
            next_stream: 1,
            got: Vec::new(),
            parts: BTreeMap::new(),
        });
    }

    fn ask(&mut self, peer: usize, host: usize) {
        let now = self.now();
        self.peers[peer].ask(host, now);
    }

    fn is(&self, host: usize) -> Entry {
        self.entries[host].last().expect("from the start").1
    }

    fn put(&mut self, host: usize) {
        self.changes += 1;
        let folder = format!("{host}-{}", self.changes);
        let disk = &self.server.disk;
        disk.put_file(&format!("{folder}/page"), folder.as_str());
        disk.age_files(10_000);
        let site = DrivenSite::Directory(disk.root_at(&folder));
        self.sites.put(&name(host), &folder, site);
        self.note(host, Entry::Good(self.changes));
    }

    fn note(&mut self, host: usize, entry: Entry) {
        let now = self.now();
        self.entries[host].push((now, entry));
    }

    /// Something happens to the folder.
    fn change(&mut self) {
        let host = self.random.below(self.entries.len() as u64) as usize;
        match self.random.below(4) {
            0 => {
                self.sites.remove(&name(host));
                self.note(host, Entry::None);
            }
            1 => {
                self.changes += 1;
                let entry = format!("invalid-{}", self.changes);
                self.sites.put(&name(host), &entry, DrivenSite::Invalid);
                self.note(host, Entry::Invalid);
            }
            _ => self.put(host),
        }
    }

    /// What the threads do, and one turn of the worker.
    fn step(&mut self, most_ns: u64) -> Vec<(Asked, Got)> {
        let now = self.now();
        self.sites.answer(Nanos(now));
        while let Some(opening) = self.sites.begin(Nanos(now)) {
            let takes = (self.takes)(&mut self.random);
            self.openings.push((now + takes, opening));
        }
        let ended = self.openings.extract_if(.., |(at, _)| *at <= now);
        for (_, opening) in ended.collect::<Vec<_>>() {
            match self.are_closed {
                true => self.sites.end_closed(&opening),
                false => self.sites.end(opening, Nanos(now)),
            }
        }
        if now >= self.looked + LOOK_MS * MS {
            self.looked = now;
            self.sites.look(Nanos(now));
        }
        let until = now + 1 + self.random.below(most_ns);
        self.server.disk.wake_at(Some(Nanos(until)));
        self.server.driven.turn(None).expect("the engine works");
        check_holdings(&self.server.driven, &self.server.disk).expect("within bounds");
        let mut answers = Vec::new();
        for peer in &mut self.peers {
            answers.extend(peer.read());
        }
        for (asked, got) in &answers {
            self.judge(*asked, got);
        }
        answers
    }

    /// Whether an answer is that of an entry that the host had, and came in time.
    fn judge(&mut self, asked: Asked, got: &Got) {
        let now = self.now();
        let took_ms = (now - asked.at) / MS;
        assert!(took_ms <= WAIT_MS + 400, "{asked:?}: {took_ms} ms");
        let entries = &self.entries[asked.host];
        let was = |is_so: &dyn Fn(Entry) -> bool, noticed_ms: u64| {
            let from = asked.at.saturating_sub(noticed_ms * MS);
            let ends = entries.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]);
            let mut spans = entries.iter().zip(ends);
            spans.any(|((_, entry), end)| end >= from && is_so(*entry))
        };
        let is_right = match got.status {
            200 => was(
                &|entry| match entry {
                    Entry::Good(number) => {
                        got.body == format!("{}-{number}", asked.host).as_bytes()
                    }
                    _ => false,
                },
                NOTICED_MS,
            ),
            421 => was(&|entry| entry == Entry::None, NOTICED_MS),
            500 => was(&|entry| entry == Entry::Invalid, NOTICED_MS + FAILED_MS),
            503 => got.may_try_again,
            _ => false,
        };
        let entries = &self.entries[asked.host];
        assert!(is_right, "{asked:?} at {now}: {got:?}, {entries:?}");
        let is_late = got.status == 503 && took_ms >= WAIT_MS - 100;
        let kind = if is_late { 0 } else { got.status };
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Lets time pass.
    fn pass(&mut self, ms: u64) {
        let end = self.now() + ms * MS;
        while self.now() < end {
            self.step(10 * MS);
        }
    }

    /// The next answer, and how long it took.
    fn answer(&mut self) -> (Got, u64) {
        loop {
            if let Some((asked, got)) = self.step(10 * MS).pop() {
                return (got, (self.now() - asked.at) / MS);
            }
        }
    }

    /// Asks for a host; the status, and how long that took.
    fn status(&mut self, host: usize) -> (u16, u64) {
        self.ask(0, host);
        let (got, took) = self.answer();
        (got.status, took)
    }
}

/// Forever.
fn hang(_: &mut Random) -> u64 {
    u64::MAX / 4
}

/// A request for a site that hangs gets its answer in time; the connection is of use afterwards, and
/// who asks again is not kept waiting.
#[test]
fn a_request_waits_for_its_site_for_some_time_only() {
    for version in VERSIONS {
        let mut run = Run::of(version, OPEN_MAX, 2);
        run.takes = hang;
        let (status, took) = run.status(0);
        assert_eq!(status, 503, "{version:?}");
        assert!((WAIT_MS - 10..=WAIT_MS + 400).contains(&took), "{took} ms");
        for _ in 0..3 {
            let (status, took) = run.status(0);
            assert!(status == 503 && took <= 100, "{status} after {took} ms");
        }
        assert_eq!(run.openings.len(), 1, "it is not asked again");
        run.takes = |_| MS;
        let (status, took) = run.status(1);
        assert!(status == 200 && took <= 100, "{status} after {took} ms");
        // It answers after all, to nobody.
        run.openings[0].0 = 0;
        run.pass(100);
        let (status, took) = run.status(0);
        assert!(status == 200 && took <= 100, "{status} after {took} ms");
    }
}

/// A site may be closed for others before the request is answered. It is asked for again, and all of that
/// has the time of one request.
#[test]
fn a_request_waits_no_longer_for_a_site_that_is_closed_meanwhile() {
    for version in VERSIONS {
        let mut run = Run::of(version, OPEN_MAX, 1);
        run.takes = |_| 3_000 * MS;
        run.are_closed = true;
        run.ask(0, 0);
        run.pass(WAIT_MS - 500);
        assert_eq!(run.counts, BTreeMap::new(), "{version:?}");
        run.pass(1_000);
        assert_eq!(run.counts, BTreeMap::from([(0, 1)]), "{version:?}");
        run.are_closed = false;
        run.takes = |_| MS;
        run.pass(3_000);
        assert_eq!(run.status(0).0, 200);
    }
}

/// Many requests wait for one site, some of whose clients leave.
#[test]
fn all_who_wait_get_the_site() {
    for version in VERSIONS {
        let mut run = Run::of(version, OPEN_MAX, 1);
        run.takes = |_| 5_000 * MS;
        (0..5).for_each(|_| run.connect(version));
        let count = run.peers.len();
        for peer in (0..count).chain(0..count) {
            run.ask(peer, 0);
        }
        run.pass(1_000);
        assert_eq!(run.openings.len(), 1);
        match run.peers.pop().expect("there are some").wire {
            Wire::Http1(client) | Wire::Http2(client, _) => client.reset(),
            Wire::Http3(mut link) => link.close(),
        }
        run.pass(5_000);
        assert_eq!(run.counts, BTreeMap::from([(200, 2 * (count - 1))]));
    }
}

/// Sites that hang stop no other one from being opened, unless there are more than threads may be.
#[test]
fn sites_that_hang_have_a_thread_each() {
    for version in [Version::Http2, Version::Http3] {
        let mut run = Run::of(version, OPEN_MAX, OPENERS_MAX + 2);
        (0..4).for_each(|_| run.connect(version));
        let (status, _) = run.status(OPENERS_MAX + 1);
        assert_eq!(status, 200);
        run.takes = hang;
        (0..OPENERS_MAX - 1).for_each(|host| run.ask(1 + host / 20, host));
        // All of them were begun before anybody has waited for too long.
        run.pass(WAIT_MS / 2);
        assert_eq!(run.openings.len(), OPENERS_MAX - 1);
        run.takes = |_| MS;
        let (status, took) = run.status(OPENERS_MAX);
        assert!(status == 200 && took <= 100, "{status} after {took} ms");
        run.takes = hang;
        run.ask(0, OPENERS_MAX - 1);
        run.pass(WAIT_MS + 400);
        assert_eq!(run.counts[&0], OPENERS_MAX);
        // Now each of them hangs. Only what is open is served.
        run.put(OPENERS_MAX);
        run.pass(2 * LOOK_MS);
        let (status, took) = run.status(OPENERS_MAX);
        assert!(status == 503 && took <= 100, "{status} after {took} ms");
        assert_eq!(run.status(OPENERS_MAX + 1).0, 200);
        run.takes = |_| MS;
        run.openings[0].0 = 0;
        run.pass(100);
        assert_eq!(run.status(OPENERS_MAX).0, 200, "one is back");
    }
}

/// Times in which sites open: usually at once.
fn some_time(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => random.below(30_000 * MS),
        1..5 => random.below(3_000 * MS),
        _ => random.below(5 * MS),
    }
}

fn run(seed: u64) -> BTreeMap<u16, usize> {
    println!("seed {seed}");
    let is_quic = seed % 2 == 1;
    let mut run = Run::start(seed, is_quic, OPEN_MAX, HOSTS);
    let versions: &[Version] = match is_quic {
        true => &[Version::Http3; 4],
        false => &[
            Version::Http1,
            Version::Http1,
            Version::Http2,
            Version::Http2,
        ],
    };
    versions.iter().for_each(|version| run.connect(*version));
    run.takes = some_time;
    for host in 0..HOSTS {
        run.put(host);
    }
    for _ in 0..1_500 {
        let peer = run.random.below(run.peers.len() as u64) as usize;
        let host = run.random.below(HOSTS as u64) as usize;
        let may_have = match run.peers[peer].wire {
            // Others would have to wait for it.
            Wire::Http1(_) => 1,
            // Fewer than the streams that a connection may have at once.
            Wire::Http2(..) | Wire::Http3(_) => 50,
        };
        if run.random.chance(300) && run.peers[peer].asked.len() < may_have {
            run.ask(peer, host);
        }
        if run.random.chance(20) {
            run.change();
        }
        run.step(50 * MS);
        assert!(run.server.driven.site_count() <= OPEN_MAX);
    }
    // Whatever has happened: once it is over, each host has its site.
    run.pass(WAIT_MS + 400);
    assert!(run.peers.iter().all(|peer| peer.asked.is_empty()));
    run.takes = |random| random.below(5 * MS);
    run.openings.iter_mut().for_each(|(at, _)| *at = 0);
    for host in 0..HOSTS {
        run.put(host);
    }
    run.pass(FAILED_MS + 2 * LOOK_MS);
    for host in 0..HOSTS {
        let Entry::Good(number) = run.is(host) else {
            unreachable!("it was just put there");
        };
        run.ask(host % versions.len(), host);
        let (got, _) = run.answer();
        assert_eq!(got.body, format!("{host}-{number}").as_bytes(), "{got:?}");
    }
    let counts = run.counts.clone();
    close_idle(&mut run, versions[0]);
    counts
}

/// Sites that nobody asks for are closed, and one that is asked for now and then is not.
fn close_idle(run: &mut Run, version: Version) {
    assert_eq!(run.server.driven.site_count(), OPEN_MAX);
    run.peers.clear();
    let asks = 10;
    for ask in 0..=asks {
        run.connect(version);
        assert_eq!(run.status(0).0, 200);
        run.peers.clear();
        let end = run.now() + IDLE_MS / asks * MS;
        while ask < asks && run.now() < end {
            run.step(500 * MS);
        }
    }
    run.pass(2 * LOOK_MS);
    assert_eq!(run.server.driven.site_count(), 1, "one was asked for");
    let end = run.now() + (IDLE_MS + 2 * LOOK_MS) * MS;
    while run.now() < end {
        run.step(500 * MS);
    }
    assert_eq!(run.server.driven.site_count(), 0);
    run.connect(version);
    assert_eq!(run.status(0).0, 200, "it is opened again");
}

#[test]
fn many_sites_come_change_hang_and_go() {
    let mut counts = BTreeMap::new();
    for seed in 0..SEEDS {
        for (kind, count) in run(seed) {
            *counts.entry(kind).or_default() += count;
        }
    }
    for kind in [0, 200, 421, 500, 503] {
        let count: usize = counts.get(&kind).copied().unwrap_or(0);
        // What hangs is often replaced, and then nobody waits in vain.
        let least = if kind == 0 { SEEDS / 4 } else { SEEDS };
        assert!(count >= least as usize, "too few: {counts:?}");
    }
}
