//! The release is replaced as a whole while requests of all kinds are in progress: each response is
//! of one release, later requests get the new one, and nothing of the old one remains.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, Random, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};
use gannet_server::ledger::Account;
use gannet_testkit::h2::{DATA, END_STREAM, Frame, RST_STREAM, headers, request, wide_opening};

use crate::response::{Head, parts};
use crate::run::{LIMITS, Packing, open};
use crate::server::{Server, get};

const MS: u64 = 1_000_000;

/// Number of seeds in a normal test run.
const SEEDS: u64 = 150;

/// Files with their lengths in the first release; each later release makes them a byte longer. They
/// are read whole, copied, sent slice by slice, and in an archive decoded.
const FILES: [(&str, usize); 4] = [
    ("short", 900),
    ("medium", 20_000),
    ("inflated", 30_000),
    ("long", 150_000),
];

/// The form of a release.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A folder, and a rule that names the release.
    Folder,
    Archive,
}

/// The byte that fills the files of a release.
fn letter(release: usize) -> u8 {
    b'a' + release as u8
}

fn rules(release: usize) -> &'static [u8] {
    const RULES: [&[u8]; 4] = [
        b"/*\n  X-Release: a\n",
        b"/*\n  X-Release: b\n",
        b"/*\n  X-Release: c\n",
        b"/*\n  X-Release: d\n",
    ];
    RULES[release]
}

/// Puts a release on the disk. The listing of its folder has only the entry `<letter>`.
fn publish(driver: &mut Sim, kind: Kind, release: usize) -> DrivenContent {
    let disk = driver.handle();
    let byte = letter(release);
    let mut packing = Packing::new();
    for (name, len) in FILES {
        let content = vec![byte; len + release];
        match (kind, name) {
            (Kind::Folder, _) => disk.put_file(&format!("r{release}/{name}"), content),
            (Kind::Archive, "inflated") => packing.add_decoded(name, &content),
            (Kind::Archive, _) => packing.add(name, &content, None),
        }
    }
    match kind {
        Kind::Folder => {
            let listed = format!("r{release}/folder/{}", char::from(byte));
            disk.put_file(&listed, "");
            DrivenContent::Ruled(disk.root_at(&format!("r{release}")), rules(release))
        }
        Kind::Archive => {
            let name = format!("site{release}.gannet");
            let bytes = packing.finish();
            disk.put_file(&name, bytes.clone());
            DrivenContent::Archive(bytes, open(driver, &name))
        }
    }
}

/// A server of the first release, and the later ones. All are on the disk, and settled.
fn start(seed: u64, kinds: &[Kind], snapshot_max: u64) -> (Server, VecDeque<DrivenContent>) {
    let mut driver = Sim::new(seed, 1, &EngineOptions::default(), Faults::none());
    let releases = kinds.iter().enumerate();
    let releases = releases.map(|(release, kind)| publish(&mut driver, *kind, release));
    let mut releases: VecDeque<_> = releases.collect();
    let disk = driver.handle();
    // The bodies of an archive are not charged, because it contains them anyway.
    disk.put_file("site.gannet", "");
    disk.age_files(10_000);
    let options = ContentOptions {
        snapshot_max,
        cache_memory: Some(100_000),
        ..ContentOptions::default()
    };
    let first = releases.pop_front().expect("there is one");
    let driven = Driven::new(driver, first, &options, LIMITS, None).expect("a sound archive");
    (Server { driven, disk }, releases)
}

impl Server {
    fn release(&mut self, content: Option<DrivenContent>) {
        let content = content.expect("there is another release");
        self.driven.replace(content).expect("a sound archive");
    }

    /// Serves an empty folder: no resources of earlier releases remain once they are unused.
    fn end(&mut self) {
        let nothing = self.disk.root_at("nothing");
        let nothing = DrivenContent::Directory(nothing);
        self.driven.replace(nothing).expect("no archive");
        self.pass(200);
        let leaks = self.disk.leaks();
        assert_eq!(leaks.files_open, 0, "{leaks:?}");
        let holdings = self.driven.holdings();
        let of = |account| {
            let mut found = holdings.iter().filter(|it| it.account == account);
            found.next().expect("each is there").held
        };
        let held = [Account::Copies, Account::Listings, Account::Waiting].map(of);
        assert_eq!(held, [0; 3]);
        assert_eq!(
            (self.driven.pinned_bytes(), self.disk.copied_bytes()),
            (0, 0)
        );
    }
}

/// The subject of a request.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Whole(usize),
    Head(usize),
    Range(usize),
    Ranges(usize),
    Listing,
}

impl Ask {
    fn random(random: &mut Random) -> Self {
        let file = random.below(FILES.len() as u64) as usize;
        match random.below(8) {
            0..=3 => Self::Whole(file),
            4 => Self::Head(file),
            5 => Self::Range(file),
            6 => Self::Ranges(file),
            _ => Self::Listing,
        }
    }

    /// Method, path and range.
    fn parts(self) -> (&'static str, String, Option<&'static str>) {
        let path = |file: usize| format!("/{}", FILES[file].0);
        match self {
            Self::Whole(file) => ("GET", path(file), None),
            Self::Head(file) => ("HEAD", path(file), None),
            Self::Range(file) => ("GET", path(file), Some("bytes=100-799")),
            Self::Ranges(file) => ("GET", path(file), Some("bytes=0-99,300-399,-50")),
            Self::Listing => ("GET", "/folder/".to_owned(), None),
        }
    }

    /// The release of a response. `body` is its content.
    fn judge(self, head: Option<&Head>, body: &[u8], kinds: &[Kind]) -> usize {
        let of_letter = |byte: u8| {
            let release = usize::from(byte - b'a');
            assert!(release < kinds.len(), "{self:?}: no byte of a file: {byte}");
            release
        };
        let named = head.and_then(|head| head.field("x-release"));
        let named = named.map(|value| of_letter(value.as_bytes()[0]));
        let found = match self {
            Self::Whole(file) => {
                let release = of_letter(body[0]);
                assert_eq!(body.len(), FILES[file].1 + release, "{self:?}");
                assert!(body.iter().all(|byte| *byte == body[0]), "{self:?}: mixed");
                release
            }
            Self::Head(file) => {
                let len = head.and_then(Head::content_length).expect("a length");
                len as usize - FILES[file].1
            }
            Self::Range(_) => {
                assert_eq!(body.len(), 700);
                assert!(body.iter().all(|byte| *byte == body[0]), "{self:?}: mixed");
                of_letter(body[0])
            }
            Self::Ranges(file) => {
                let boundary = head.and_then(Head::boundary).expect("several parts");
                let parts = parts(body, boundary).expect("as announced");
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.2.to_vec()).collect();
                assert_eq!(bytes.len(), 250);
                let len = FILES[file].1 + of_letter(bytes[0]);
                assert!(parts.iter().all(|part| part.1 == len as u64), "{self:?}");
                assert!(
                    bytes.iter().all(|byte| *byte == bytes[0]),
                    "{self:?}: mixed"
                );
                of_letter(bytes[0])
            }
            Self::Listing => {
                let text = String::from_utf8_lossy(body);
                let listed = |release: &usize| {
                    let name = char::from(letter(*release));
                    text.contains(&format!("href=\"./{name}\""))
                };
                let found: Vec<_> = (0..kinds.len()).filter(listed).collect();
                match (found.as_slice(), named) {
                    ([one], _) => *one,
                    // An archive has no such folder.
                    ([], None) => {
                        let archive = |kind: &Kind| matches!(kind, Kind::Archive);
                        kinds.iter().position(archive).expect("an archive")
                    }
                    _ => panic!("{found:?} {text}"),
                }
            }
        };
        assert!(named.is_none_or(|named| named == found), "{self:?}: mixed");
        found
    }
}

/// A client and its requests.
struct Asker {
    client: Client,
    asks: Vec<Ask>,
    /// The release served at the time of its requests.
    since: usize,
    /// Unanswered HTTP/2 requests, by stream.
    streams: Option<Vec<(u32, Ask, Vec<u8>)>>,
    got: Vec<u8>,
    read_max: usize,
}

impl Asker {
    fn new(client: Client, since: usize, random: &mut Random) -> Self {
        let count = 1 + random.below(6);
        let mut asks: Vec<_> = (0..count).map(|_| Ask::random(random)).collect();
        let mut streams = None;
        if random.chance(500) {
            // HTTP/2 response fields are not read here.
            asks.retain(|ask| matches!(ask, Ask::Whole(_) | Ask::Range(_)));
            client.write(&wide_opening());
            let with_ids = (0..).map(|number| 1 + 2 * number).zip(asks.drain(..));
            let with_ids = with_ids.map(|(id, ask)| (id, ask, Vec::new()));
            streams = Some(with_ids.collect::<Vec<_>>());
        }
        for ask in &asks {
            let (method, path, range) = ask.parts();
            let range = range.map_or(String::new(), |it| format!("range: {it}\r\n"));
            let request = format!("{method} {path} HTTP/1.1\r\nhost: sim\r\n{range}\r\n");
            client.write(request.as_bytes());
        }
        for (id, ask, _) in streams.iter().flatten() {
            let (method, path, range) = ask.parts();
            let fields = range.map(|range| ("range", range));
            let block = request(method, &path, fields.as_slice());
            client.write(&headers(*id, &block));
        }
        asks.reverse();
        Self {
            client,
            asks,
            since,
            streams,
            got: Vec::new(),
            read_max: 500 << random.below(8),
        }
    }

    fn is_done(&self) -> bool {
        self.asks.is_empty() && self.streams.iter().flatten().next().is_none()
    }

    /// Reads on, and checks complete responses; returns their number.
    fn go_on(&mut self, kinds: &[Kind]) -> usize {
        let more = self.client.read_at_most(self.read_max);
        assert!(self.is_done() || self.client.end() == End::Open);
        let mut count = 0;
        if more.is_empty() {
            return count;
        }
        self.got.extend(more);
        let allowed = self.since..=kinds.len() - 1;
        while match self.streams {
            Some(_) => self.frame(kinds, &allowed, &mut count),
            None => self.answer(kinds, &allowed, &mut count),
        } {}
        count
    }

    /// The next HTTP/1 response, if it is complete.
    fn answer(
        &mut self,
        kinds: &[Kind],
        allowed: &RangeInclusive<usize>,
        count: &mut usize,
    ) -> bool {
        let Some(ask) = self.asks.last().copied() else {
            return false;
        };
        let head = Head::parse(&self.got).expect("a response");
        let Some(head) = head else {
            return false;
        };
        let is_head = matches!(ask, Ask::Head(_));
        let end = head.len + head.body_len(is_head).expect("a length") as usize;
        if self.got.len() < end {
            return false;
        }
        let release = ask.judge(Some(&head), &self.got[head.len..end], kinds);
        let is_missing = matches!(ask, Ask::Listing) && matches!(kinds[release], Kind::Archive);
        assert!(
            is_missing && head.status == 404 || [200, 206].contains(&head.status),
            "{ask:?}: {head:?}"
        );
        assert!(
            is_missing || allowed.contains(&release),
            "{ask:?}: {release} of {allowed:?}"
        );
        self.got.drain(..end);
        self.asks.pop();
        *count += 1;
        true
    }

    /// The next HTTP/2 frame, if it is complete.
    fn frame(
        &mut self,
        kinds: &[Kind],
        allowed: &RangeInclusive<usize>,
        count: &mut usize,
    ) -> bool {
        let Some(frame) = Frame::take(&mut self.got) else {
            return false;
        };
        assert_ne!(frame.kind, RST_STREAM, "no stream is reset");
        let streams = self.streams.as_mut().expect("it speaks HTTP/2");
        let at = streams
            .iter()
            .position(|(stream, ..)| *stream == frame.stream);
        if let (Some(at), DATA) = (at, frame.kind) {
            streams[at].2.extend(&frame.payload);
            if frame.has(END_STREAM) {
                let (_, ask, body) = streams.swap_remove(at);
                let release = ask.judge(None, &body, kinds);
                assert!(
                    allowed.contains(&release),
                    "{ask:?}: {release} of {allowed:?}"
                );
                *count += 1;
            }
        }
        true
    }
}

fn run(seed: u64) -> usize {
    println!("seed {seed}");
    let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 7);
    let kind = |random: &mut Random| match random.chance(500) {
        true => Kind::Folder,
        false => Kind::Archive,
    };
    let mut all: Vec<_> = (0..4).map(|_| kind(&mut random)).collect();
    // Long files are sent from copies, or slice by slice.
    let snapshot_max = if random.chance(500) { 0 } else { 4 << 20 };
    let (mut server, mut releases) = start(seed, &all, snapshot_max);
    let mut kinds: Vec<_> = all.drain(..1).collect();
    let faults = Faults {
        cold: [0, 500, 1_000][random.below(3) as usize],
        delay: 200,
        delay_max_ns: 30 * MS,
        short_send: 300,
        reorder: 500,
        ..Faults::none()
    };
    server.disk.set_faults(faults);
    let mut askers: Vec<Asker> = Vec::new();
    let mut answered = 0;
    for step in 0..200 {
        if random.chance(150) {
            let since = kinds.len() - 1;
            let client = server.connect();
            askers.push(Asker::new(client, since, &mut random));
        }
        if step % 50 == 20 && kinds.len() < 4 {
            kinds.push(all.remove(0));
            server.release(releases.pop_front());
        }
        server.pass(1 + random.below(8));
        for asker in &mut askers {
            answered += asker.go_on(&kinds);
        }
        if random.chance(30) && !askers.is_empty() {
            // Possibly in the middle of a response.
            askers.swap_remove(0).client.reset();
        }
    }
    let mut is_done = || {
        for asker in &mut askers {
            answered += asker.go_on(&kinds);
        }
        askers.iter().all(Asker::is_done)
    };
    server.until("all answers", &mut is_done);
    server.disk.set_faults(Faults::none());
    askers.iter().for_each(|asker| asker.client.reset());
    // At the latest, the resets are noticed at the progress deadline.
    server.pass(2 * LIMITS.progress_timeout_ms + 1_000);
    server.end();
    answered
}

#[test]
fn answers_are_of_one_release_each() {
    let answered: usize = (0..SEEDS).map(run).sum();
    assert!(answered > 50 * SEEDS as usize, "too few: {answered}");
}

/// A request that waits for the disk is answered from the release that it began with; others do not
/// wait for it, and get the new one. The result of its lookup is not cached for them.
#[test]
fn who_waits_keeps_the_release() {
    for (slow, kind, file) in [
        ("r0/short", Kind::Folder, 0),
        ("r0/long", Kind::Folder, 3),
        ("site0.gannet", Kind::Archive, 1),
    ] {
        let (mut server, mut next) = start(1, &[kind, Kind::Folder], 4 << 20);
        server.disk.slow_file(slow, 500 * MS);
        let (path, len) = FILES[file];
        let first = server.connect();
        first.write(&get(path));
        server.pass(100);
        assert_eq!(first.readable(), 0);
        server.release(next.pop_front());
        let body = |server: &mut Server, client: &Client, len: usize| {
            let mut got = Vec::new();
            server.until("an answer", || {
                got.extend(client.read());
                got.len() > len
            });
            let head = Head::parse(&got).expect("a response").expect("whole");
            let named = head.field("x-release").map(str::to_owned);
            (got[head.len..].to_vec(), named)
        };
        let second = server.connect();
        second.write(&get(path));
        let new = (vec![b'b'; len + 1], Some("b".to_owned()));
        assert_eq!(body(&mut server, &second, len + 1), new, "{path}");
        assert_eq!(first.readable(), 0, "it is pending");
        let named = matches!(kind, Kind::Folder).then(|| "a".to_owned());
        let old = (vec![b'a'; len], named);
        assert_eq!(body(&mut server, &first, len), old, "{path}");
        // The next request on the same connection gets the new release.
        first.write(&get(path));
        assert_eq!(body(&mut server, &first, len + 1), new, "{path}");
        drop((first, second));
        server.end();
    }
}

/// The caches of the old release are freed at once, even while a request still waits for a response
/// from it.
#[test]
fn what_was_remembered_goes_at_once() {
    let (mut server, mut next) = start(1, &[Kind::Folder; 2], 0);
    server.disk.slow_file("r0/short", 500 * MS);
    let reader = server.connect();
    reader.write(&get("long"));
    let mut got = 0;
    server.until("all of it", || {
        got += reader.read().len();
        got > FILES[3].1
    });
    server.pass(50);
    assert_eq!(server.disk.leaks().files_open, 1, "kept for later requests");
    let first = server.connect();
    first.write(&get("short"));
    server.pass(50);
    server.release(next.pop_front());
    server.pass(50);
    assert_eq!(server.disk.leaks().files_open, 0);
    assert_eq!(first.readable(), 0, "it is pending");
    server.until("an answer", || first.readable() > 0);
    drop((reader, first));
    server.end();
}

/// Changed rules leave the folder as it is: responses in progress keep the old ones, and the next
/// response has the new ones.
#[test]
fn rules_are_replaced_with_the_release() {
    let (mut server, _) = start(1, &[Kind::Folder], 0);
    let reader = server.connect();
    reader.write(&get("long"));
    server.until("it has begun", || reader.readable() > 10_000);
    let content = DrivenContent::Ruled(server.disk.root_at("r0"), rules(3));
    server.driven.replace(content).expect("no archive");
    let other = server.connect();
    other.write(&get("short"));
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(other.read());
        got.ends_with(b"aaaa")
    });
    assert!(String::from_utf8_lossy(&got).contains("X-Release: d\r\n"));
    let mut got = Vec::new();
    server.until("all of it", || {
        got.extend(reader.read_at_most(7_000));
        got.len() > FILES[3].1
    });
    let head = Head::parse(&got).expect("a response").expect("whole");
    assert_eq!(head.field("x-release"), Some("a"));
    assert!(got[head.len..].iter().all(|byte| *byte == b'a'));
    drop((reader, other));
    server.end();
}

/// A listing for a waiting request is sent only to requests of its release.
#[test]
fn listings_are_of_their_release() {
    let (mut server, mut next) = start(1, &[Kind::Folder; 2], 0);
    server.disk.mount_foreign("r0/folder", 300 * MS);
    let first = server.connect();
    first.write(&get("folder/"));
    server.pass(50);
    server.release(next.pop_front());
    let listing = |server: &mut Server, client: &Client| {
        let mut got = Vec::new();
        server.until("a listing", || {
            got.extend(client.read());
            got.ends_with(b"</script>\n")
        });
        let text = String::from_utf8_lossy(&got).into_owned();
        ["href=\"./a\"", "href=\"./b\""].map(|link| text.contains(link))
    };
    let second = server.connect();
    second.write(&get("folder/"));
    assert_eq!(listing(&mut server, &second), [false, true]);
    assert_eq!(first.readable(), 0, "it is pending");
    assert_eq!(listing(&mut server, &first), [true, false]);
    second.write(&get("folder/"));
    assert_eq!(listing(&mut server, &second), [false, true]);
    drop((first, second));
    server.end();
}
