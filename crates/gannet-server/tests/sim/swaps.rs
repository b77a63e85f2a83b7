//! Releases of an archive are swapped while two workers, each with its clients, take their turns in
//! any order: from the moment when a page arrives anywhere, every worker answers for all of its
//! assets, until its release is void.

use std::collections::VecDeque;

use gannet_archive::{SUPERBLOCK_LEN, Superblock};
use gannet_io::driver::{Listener, Nanos};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, Random, Sim, SimHandle};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenRelease, DrivenReleases};
use gannet_testkit::h2::{DATA, END_STREAM, Frame, RST_STREAM, headers, request, wide_opening};

use crate::response::Head;
use crate::run::{LIMITS, Packing, open};

const MS: u64 = 1_000_000;

/// Number of seeds in a normal test run.
const SEEDS: u64 = 100;

/// Turns of both workers in a run.
const TURNS: usize = 400;

const WORKERS: usize = 2;

const RELEASES: usize = 5;

/// Assets of each release with their lengths: in the metadata, read at once, decoded, and sent slice
/// by slice.
const ASSETS: [(&str, usize); 4] = [
    ("tiny", 900),
    ("short", 20_000),
    ("inflated", 30_000),
    ("long", 150_000),
];

/// The subject of a request: the page of whichever release is current, or an asset of a release.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ask {
    Page,
    Asset(usize, usize),
}

impl Ask {
    fn path(self) -> String {
        match self {
            Self::Page => "/page".into(),
            Self::Asset(release, asset) => format!("/{}-{release}", ASSETS[asset].0),
        }
    }
}

/// The byte that fills the files of a release.
fn letter(release: usize) -> u8 {
    b'a' + release as u8
}

fn archive(release: usize) -> Vec<u8> {
    let mut packing = Packing::new();
    // Too long for the metadata, like most pages.
    packing.add("page", &vec![letter(release); 9_000], None);
    packing.cache_control = Some("max-age=31536000, immutable");
    for (asset, (name, len)) in ASSETS.into_iter().enumerate() {
        let body = vec![letter(release); len];
        let path = Ask::Asset(release, asset).path();
        match name {
            "inflated" => packing.add_decoded(&path[1..], &body),
            _ => packing.add(&path[1..], &body, None),
        }
    }
    packing.finish()
}

fn build_id(bytes: &[u8]) -> [u8; 32] {
    let superblock = Superblock::parse(&bytes[..SUPERBLOCK_LEN], bytes.len() as u64);
    *superblock.expect("a sound archive").build_id()
}

/// A connection whose requests are answered in order (HTTP/1), or in any (HTTP/2).
struct Asker {
    client: Client,
    is_h2: bool,
    next_stream: u32,
    /// Requests that are not answered yet, with their streams and what arrived of their bodies.
    asks: VecDeque<(u32, Ask, Vec<u8>)>,
    got: Vec<u8>,
    read_max: usize,
}

impl Asker {
    fn new(client: Client, random: &mut Random) -> Self {
        let is_h2 = random.chance(500);
        if is_h2 {
            client.write(&wide_opening());
        }
        Self {
            client,
            is_h2,
            next_stream: 1,
            asks: VecDeque::new(),
            got: Vec::new(),
            read_max: 2_000 << random.below(8),
        }
    }

    fn ask(&mut self, ask: Ask) {
        let path = ask.path();
        if self.is_h2 {
            let block = request("GET", &path, &[]);
            self.client.write(&headers(self.next_stream, &block));
        } else {
            let request = format!("GET {path} HTTP/1.1\r\nhost: sim\r\n\r\n");
            self.client.write(request.as_bytes());
        }
        self.asks.push_back((self.next_stream, ask, Vec::new()));
        self.next_stream += 2;
    }

    /// Reads on; returns complete answers: 404, or the release that their bodies are of.
    fn go_on(&mut self) -> Vec<(Ask, Option<usize>)> {
        let more = self.client.read_at_most(self.read_max);
        assert_eq!(self.client.end(), End::Open, "{:?}", self.asks);
        let mut answers = Vec::new();
        if more.is_empty() {
            return answers;
        }
        self.got.extend(more);
        while let Some(answer) = match self.is_h2 {
            true => self.frame(),
            false => self.answer(),
        } {
            answers.extend(answer);
        }
        answers
    }

    /// The next answer over HTTP/1, if it is complete.
    fn answer(&mut self) -> Option<Option<(Ask, Option<usize>)>> {
        let ask = self.asks.front()?.1;
        let head = Head::parse(&self.got).expect("a response")?;
        let end = head.len + head.body_len(false).expect("a length") as usize;
        if self.got.len() < end {
            return None;
        }
        let found = (head.status == 200).then(|| judge(ask, &self.got[head.len..end]));
        assert!([200, 404].contains(&head.status), "{ask:?}: {head:?}");
        self.got.drain(..end);
        self.asks.pop_front();
        Some(Some((ask, found)))
    }

    /// The next frame over HTTP/2, if it is complete, and the answer that it ends.
    fn frame(&mut self) -> Option<Option<(Ask, Option<usize>)>> {
        let frame = Frame::take(&mut self.got)?;
        assert_ne!(frame.kind, RST_STREAM, "{:?}", frame.payload);
        let mut asks = self.asks.iter();
        let at = asks.position(|(stream, ..)| *stream == frame.stream);
        let (Some(at), DATA) = (at, frame.kind) else {
            return Some(None);
        };
        self.asks[at].2.extend(&frame.payload);
        if !frame.has(END_STREAM) {
            return Some(None);
        }
        let (_, ask, body) = self.asks.remove(at).expect("it was found");
        // Fields are not read here: an error page has other bytes.
        let is_error = body.contains(&b'4');
        Some(Some((ask, (!is_error).then(|| judge(ask, &body)))))
    }
}

/// The release of a body, all of which must be of it.
fn judge(ask: Ask, body: &[u8]) -> usize {
    let release = usize::from(body[0] - b'a');
    assert!(body.iter().all(|byte| *byte == body[0]), "{ask:?}: mixed");
    match ask {
        Ask::Page => assert_eq!(body.len(), 9_000),
        Ask::Asset(wanted, asset) => {
            assert_eq!((body.len(), release), (ASSETS[asset].1, wanted), "{ask:?}");
        }
    }
    release
}

/// A worker, and the connections to it: one that asks for pages, others for assets.
struct Side {
    driven: Driven<Sim>,
    disk: SimHandle,
    pages: Asker,
    assets: Vec<Asker>,
}

struct Swaps {
    releases: DrivenReleases,
    sides: Vec<Side>,
    archives: Vec<DrivenRelease>,
    random: Random,
    /// Releases that answer nothing any more.
    void: Vec<usize>,
    /// Answers for assets, by whether another release was current then.
    answered: [usize; 2],
    /// The release of the last page.
    current: usize,
}

impl Swaps {
    fn start(seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 9);
        let engine = EngineOptions::default();
        let start = |number| Sim::new(2 * seed + number, 1, &engine, Faults::none());
        let mut drivers: Vec<_> = (0..WORKERS as u64).map(start).collect();
        let disks: Vec<_> = drivers.iter().map(Sim::handle).collect();
        let mut archives = Vec::new();
        for release in 0..RELEASES {
            let name = format!("{release}.gannet");
            let bytes = archive(release);
            let files = drivers.iter_mut().map(|driver| {
                let disk = driver.handle();
                disk.put_file(&name, bytes.clone());
                disk.put_file("site.gannet", "");
                disk.age_files(10_000);
                open(driver, &name)
            });
            let files = files.collect();
            archives.push((bytes, files));
        }
        let options = ContentOptions {
            cache_memory: Some([0, 100_000][random.below(2) as usize]),
            ..ContentOptions::default()
        };
        let first = archives[0].clone();
        let started = DrivenReleases::start(drivers, first, &options, LIMITS);
        let (releases, driven) = started.expect("a sound archive");
        let mut asker = |disk: &SimHandle| {
            let client = disk.connect(Listener(0)).expect("it listens");
            Asker::new(client, &mut random)
        };
        let sides = driven.into_iter().zip(disks).map(|(driven, disk)| Side {
            pages: asker(&disk),
            assets: vec![asker(&disk), asker(&disk)],
            driven,
            disk,
        });
        let sides = sides.collect();
        Self {
            releases,
            sides,
            archives,
            random,
            void: Vec::new(),
            answered: [0; 2],
            current: 0,
        }
    }

    /// One turn of one worker, after which its clients read. The assets of each page that arrives
    /// are asked for at once, of all workers.
    fn turn(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let now = side.disk.now().0;
        let until = Nanos(now + 1 + self.random.below(4 * MS));
        side.disk.wake_at(Some(until));
        side.driven.turn(None).expect("the engine works");
        let pages = side.pages.go_on();
        let assets: Vec<_> = side.assets.iter_mut().flat_map(Asker::go_on).collect();
        for (ask, release) in assets {
            let Ask::Asset(wanted, _) = ask else {
                unreachable!("pages are asked for elsewhere");
            };
            let is_void = self.void.contains(&wanted);
            assert_eq!(release.is_none(), is_void, "worker {at}: {ask:?}");
            let is_kept = release.is_some_and(|it| it != self.current);
            self.answered[usize::from(is_kept)] += 1;
        }
        for (_, release) in pages {
            self.current = release.expect("there is always a page");
            let release = self.current;
            self.ask_for_assets(release);
        }
    }

    fn ask_for_assets(&mut self, release: usize) {
        for side in &mut self.sides {
            let all = side.assets.len() as u64;
            let asker = &mut side.assets[self.random.below(all) as usize];
            for (asset, (name, _)) in ASSETS.into_iter().enumerate() {
                // Others than the long one are cheap to ask for again and again.
                if name != "long" || self.random.chance(200) {
                    asker.ask(Ask::Asset(release, asset));
                }
            }
        }
    }

    /// Something happens to the releases, at random.
    fn change(&mut self) {
        self.releases.go_on();
        let release = self.random.below(RELEASES as u64) as usize;
        if self.random.chance(60) && !self.void.contains(&release) {
            let driver = self.sides[0].driven.driver();
            let staged = self.releases.stage(self.archives[release].clone(), driver);
            staged.expect("a sound archive");
        }
        // Fewer than the streams that a connection may have at once.
        let has_room = |side: &Side| side.assets.iter().all(|it| it.asks.len() < 50);
        if self.sides.iter().all(has_room) {
            let idle = |side: &&mut Side| side.pages.asks.is_empty();
            let idle = self.sides.iter_mut().filter(idle);
            idle.for_each(|side| side.pages.ask(Ask::Page));
        }
        // Open pages are loaded again, or import what they had not yet.
        if self.random.chance(100) && !self.void.contains(&self.current) {
            self.ask_for_assets(self.current);
        }
    }

    /// Runs both workers until all requests are answered.
    fn settle(&mut self) {
        let is_busy = |side: &Side| {
            let mut askers = side.assets.iter().chain([&side.pages]);
            askers.any(|it| !it.asks.is_empty())
        };
        for round in 0..20_000 {
            // Messages are taken within a few turns.
            if round > 10 && !self.sides.iter().any(is_busy) {
                return;
            }
            for at in 0..WORKERS {
                self.turn(at);
            }
        }
        panic!("requests without an answer");
    }

    fn ask_for_pages(&mut self) {
        for side in &mut self.sides {
            side.pages.ask(Ask::Page);
        }
    }

    fn set_faults(&self, faults: &Faults) {
        for side in &self.sides {
            side.disk.set_faults(faults.clone());
        }
    }

    /// Makes a release void, from the next turn of each worker on.
    fn make_void(&mut self, release: usize) {
        self.releases.void(&build_id(&self.archives[release].0));
        self.void.push(release);
    }
}

fn run(seed: u64) -> [usize; 2] {
    println!("seed {seed}");
    let mut swaps = Swaps::start(seed);
    let faults = Faults {
        cold: [0, 500, 1_000][swaps.random.below(3) as usize],
        delay: 200,
        delay_max_ns: 30 * MS,
        short_send: 300,
        reorder: 500,
        // Workers get to know a release one after the other.
        late_wake: 700,
        ..Faults::none()
    };
    swaps.set_faults(&faults);
    for _ in 0..TURNS {
        let at = swaps.random.below(WORKERS as u64) as usize;
        swaps.turn(at);
        swaps.change();
    }
    swaps.settle();
    // The last of them becomes current on all workers, which now notice each release at once; then all
    // others are void.
    swaps.set_faults(&Faults::none());
    swaps.settle();
    swaps.releases.go_on();
    swaps.settle();
    swaps.ask_for_pages();
    swaps.settle();
    let current = swaps.current;
    for release in (0..RELEASES).filter(|it| *it != current) {
        swaps.make_void(release);
    }
    swaps.settle();
    for release in 0..RELEASES {
        swaps.ask_for_assets(release);
    }
    swaps.settle();
    swaps.archives.clear();
    swaps.releases.go_on();
    for side in &swaps.sides {
        let leaks = side.disk.leaks();
        assert_eq!(
            leaks.files_open, 1,
            "that of the current release: {leaks:?}"
        );
    }
    swaps.answered
}

#[test]
fn every_worker_has_the_assets_of_every_page() {
    let answered = (0..SEEDS).map(run);
    let [of_current, of_others] = answered.fold([0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
    let least = 50 * SEEDS as usize;
    assert!(
        of_current > least && of_others > least,
        "too few: {of_current}, {of_others}"
    );
}
