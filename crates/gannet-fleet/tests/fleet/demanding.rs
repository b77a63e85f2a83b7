//! Copies of which parts are fetched when servers ask for them.

use std::fs;
use std::io::Write;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gannet_archive::limits::UNIT_LEN_MAX;
use gannet_archive::{SUPERBLOCK_LEN, Superblock};
use gannet_fleet::limits::TIDY_S;
use gannet_fleet::{Answer, Fetcher, Follower, Patience, Reason, Remote, Settings, Want};
use gannet_store::{PartialRelease, Pointer, ReleaseId, Store};
use gannet_testkit::DEADLINE;

use crate::stand_in::{self, StandIn};
use crate::stores::{Fleet, archive, bytes, now};

/// A node with a copy in part, and its store.
struct Node {
    fleet: Fleet,
    server: StandIn,
    follower: Follower,
    fetcher: Option<Fetcher>,
    reports: Arc<Mutex<Vec<String>>>,
}

/// Lengths of the files of a release.
const LENS: [usize; 4] = [150_000, 200_000, UNIT_LEN_MAX as usize + 100_000, 5000];

/// A release whose first file is that of a letter.
fn release(letter: u8) -> Vec<u8> {
    let seeds = [letter, 201, 202, 203];
    let files: Vec<_> = seeds
        .iter()
        .zip(LENS)
        .map(|(seed, len)| bytes(*seed, len))
        .collect();
    archive(&files)
}

impl Node {
    /// A node whose store has a release.
    fn new() -> (Self, Pointer) {
        let mut fleet = Fleet::new();
        fleet.settings = Settings {
            on_demand: true,
            ..Settings::default()
        };
        let pointer = fleet.publish_with(&release(1), now(), |_| {});
        let server = StandIn::new(fleet.store());
        let mut follower = fleet.follower(&server.url());
        assert!(follower.round(now()).unwrap().is_new);
        let mut node = Self {
            fleet,
            server,
            follower,
            fetcher: None,
            reports: Arc::default(),
        };
        node.start();
        (node, pointer)
    }

    /// Begins to fetch, or begins again.
    fn start(&mut self) {
        self.fetcher = None;
        let remote = Remote::open(&self.server.url(), self.fleet.patience).unwrap();
        let room = self.fleet.settings.disk_max;
        let reports = Arc::clone(&self.reports);
        let report = move |error: gannet_fleet::FleetError| {
            reports.lock().unwrap().push(error.to_string());
        };
        let fetcher = Fetcher::start(remote, &self.fleet.copy(), room, report).unwrap();
        self.fetcher = Some(fetcher);
    }

    fn ask(&self, release: ReleaseId, blob: u32) -> Answer {
        let (answered, answer) = channel();
        let range = 0..u64::MAX;
        let want = Want {
            release,
            blob,
            range,
            client: None,
            is_ahead: false,
        };
        let answered = Box::new(move |answer| answered.send(answer).unwrap());
        self.fetcher.as_ref().unwrap().ask(want, answered);
        answer.recv_timeout(DEADLINE).unwrap()
    }

    /// The file of a release in the copy, and how many of its units are there.
    fn partial(&self, id: ReleaseId) -> (Vec<u8>, u64) {
        let store = Store::open(&self.fleet.copy(), None).unwrap();
        let path = store.partial_path(id);
        let presence = PartialRelease::open(&path).unwrap().presence;
        let there = |unit: &u64| presence.look(*unit..unit + 1).unwrap().present() == 1;
        let count = (0..presence.count()).filter(there).count();
        (fs::read(path).unwrap(), count as u64)
    }
}

/// Makes answers.
type Lie = Box<dyn Fn() -> stand_in::Answer + Send>;

fn is_present(answer: Answer) -> bool {
    matches!(answer, Answer::Present(_))
}

#[test]
fn a_copy_on_demand_begins_with_the_metadata() {
    let (mut node, pointer) = Node::new();
    let id = pointer.release;
    let asked = node.server.asked();
    let ranges: usize = asked
        .iter()
        .filter_map(|it| it.range.clone())
        .map(|it| it.len())
        .sum();
    assert!(ranges < 10_000, "{ranges} bytes");
    let (file, count) = node.partial(id);
    assert_eq!((file.len() as u64, count), (pointer.size, 0));
    let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], pointer.size);
    assert!(superblock.is_err(), "nothing takes it for an archive");
    // Not again, also after a restart.
    assert!(!node.follower.round(now()).unwrap().is_new);
    drop(node.follower);
    node.follower = node.fleet.follower(&node.server.url());
    let round = node.follower.round(now()).unwrap();
    assert_eq!((round.is_new, round.fetched), (false, 0));
    // Blobs come when they are asked for, and are still there after a restart.
    assert!(is_present(node.ask(id, 1)));
    node.start();
    node.server.asked();
    assert!(is_present(node.ask(id, 1)));
    assert!(node.server.asked().is_empty());
    let (_, count) = node.partial(id);
    assert_eq!(count, 1);
}

/// However long the log is: a node serves after three round trips.
#[test]
fn a_new_copy_has_its_release_after_three_answers() {
    let mut fleet = Fleet::new();
    fleet.settings.on_demand = true;
    for letter in 1..5 {
        fleet.publish_with(&release(letter), now(), |_| {});
    }
    let server = StandIn::new(fleet.store());
    let mut follower = fleet.follower(&server.url());
    follower.round(now()).unwrap();
    let asked = server.asked();
    let paths: Vec<_> = asked.iter().map(|it| &it.path[..4]).collect();
    assert_eq!(paths[..6], ["curr", "rele", "rele", "log/", "log/", "log/"]);
    let store = Store::open(&fleet.copy(), None).unwrap();
    assert_eq!(store.history().unwrap().pointers.len(), 4);
    assert_eq!(store.releases().unwrap().len(), 4);
}

#[test]
fn what_the_next_release_has_in_common_is_not_fetched_again() {
    let (mut node, first) = Node::new();
    let fetcher = node.fetcher.as_ref().unwrap();
    fetcher.in_force(first.release);
    assert!(is_present(node.ask(first.release, 1)));
    let second = node.fleet.publish_with(&release(2), now(), |_| {});
    node.server.asked();
    let round = node.follower.round(now()).unwrap();
    assert!(round.is_new && round.fetched < 10_000, "{}", round.fetched);
    node.fetcher.as_ref().unwrap().in_force(second.release);
    node.server.asked();
    assert!(is_present(node.ask(second.release, 1)));
    assert!(node.server.asked().is_empty());
    assert!(is_present(node.ask(second.release, 0)));
    assert_eq!(node.server.asked().len(), 1);
    // The earlier one is kept, in part.
    let store = Store::open(&node.fleet.copy(), None).unwrap();
    assert_eq!(store.releases().unwrap().len(), 2);
}

/// Whatever the store does: no wrong byte, a bounded answer, and what is here is here.
#[test]
fn a_store_that_lies_is_found_out() {
    let (mut node, pointer) = Node::new();
    let id = pointer.release;
    assert!(is_present(node.ask(id, 3)));
    let sound = release(1);
    let mut flipped = sound.clone();
    flipped[SUPERBLOCK_LEN + 20] ^= 1;
    let other = release(9);
    assert_eq!(other.len(), sound.len());
    let longer = [sound.as_slice(), b"more"].concat();
    let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", sound.len());
    let whole = [whole.as_bytes(), &sound].concat();
    let slow = format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 4096-154095/{}\r\ncontent-length: 150000\r\n\r\n",
        sound.len()
    );
    let lies: [(&str, Reason, Lie); 7] = [
        (
            "flipped",
            Reason::Damaged,
            Box::new(move || stand_in::Answer::Instead(flipped.clone())),
        ),
        (
            "other",
            Reason::Damaged,
            Box::new(move || stand_in::Answer::Instead(other.clone())),
        ),
        (
            "longer",
            Reason::Damaged,
            Box::new(move || stand_in::Answer::Instead(longer.clone())),
        ),
        (
            "whole",
            Reason::Unreachable,
            Box::new(move || stand_in::Answer::Raw(whole.clone())),
        ),
        (
            "cut",
            Reason::Unreachable,
            Box::new(|| stand_in::Answer::Cut(1000)),
        ),
        (
            "slow",
            Reason::Unreachable,
            Box::new(move || stand_in::Answer::Drip(slow.clone())),
        ),
        (
            "closed",
            Reason::Unreachable,
            Box::new(|| stand_in::Answer::Raw(Vec::new())),
        ),
    ];
    for (name, expect, lie) in lies {
        // Of no other answer does it matter how long it takes.
        node.fleet.patience.window = match name {
            "slow" => Duration::from_millis(100),
            _ => Patience::default().window,
        };
        // What failed before is forgotten.
        node.start();
        node.server.lie(move |_| lie());
        match node.ask(id, 0) {
            Answer::Failed(reason, _) => assert_eq!(reason, expect, "{name}"),
            answer => panic!("{name}: {answer:?}"),
        }
        let (file, count) = node.partial(id);
        assert_eq!(count, 1, "{name}");
        let metadata = SUPERBLOCK_LEN..SUPERBLOCK_LEN + LENS[0];
        assert!(
            file[metadata].iter().all(|byte| *byte == 0),
            "{name}: unverified bytes"
        );
        assert!(is_present(node.ask(id, 3)), "{name}");
        assert!(!node.reports.lock().unwrap().is_empty(), "{name}");
        node.reports.lock().unwrap().clear();
    }
    node.start();
    node.server.be_honest();
    for blob in 0..4 {
        assert!(is_present(node.ask(id, blob)));
    }
}

#[test]
fn metadata_that_leaves_no_room_is_refused() {
    let (mut node, _) = Node::new();
    node.fetcher = None;
    drop(node.follower);
    fs::remove_dir_all(node.fleet.copy()).unwrap();
    node.fleet.settings.disk_max = 2000;
    node.follower = node.fleet.follower(&node.server.url());
    let error = node.follower.round(now()).unwrap_err();
    assert!(
        error.to_string().contains("its releases would have"),
        "{error}"
    );
    let store = Store::open(&node.fleet.copy(), None).unwrap();
    assert!(store.releases().unwrap().is_empty());
}

/// The metadata of kept releases has half of the room together, and the oldest go for the sake of the newest.
#[test]
fn kept_metadata_leaves_room() {
    let (mut node, pointer) = Node::new();
    let metadata = Superblock::parse(&release(1)[..SUPERBLOCK_LEN], pointer.size).unwrap();
    let head = pointer.size - metadata.metadata_range().start;
    node.fetcher = None;
    drop(node.follower);
    node.fleet.settings.disk_max = 5 * head;
    node.follower = node.fleet.follower(&node.server.url());
    let store = Store::open(&node.fleet.copy(), None).unwrap();
    let mut newest = Vec::from([pointer.release]);
    for letter in 2..5 {
        let next = node.fleet.publish_with(&release(letter), now(), |_| {});
        newest.push(next.release);
        node.follower.round(now()).unwrap();
        // Nor do they come back when it is time to tidy up: how long they are is asked.
        let round = node.follower.round(now() + TIDY_S).unwrap();
        assert!(round.fetched <= SUPERBLOCK_LEN as u64 && round.removed == 0);
        let mut kept = store.releases().unwrap();
        kept.sort_by_key(|id| newest.iter().position(|it| it == id));
        assert_eq!(kept, newest[newest.len() - 2..]);
    }
}

/// What was whole before, and takes more than the room, goes once it is only kept.
#[test]
fn a_whole_copy_can_become_one_on_demand() {
    let (mut node, _) = Node::new();
    node.fetcher = None;
    let with = |mut node: Node, on_demand, disk_max| {
        drop(node.follower);
        node.fleet.settings.on_demand = on_demand;
        node.fleet.settings.disk_max = disk_max;
        node.follower = node.fleet.follower(&node.server.url());
        node.follower.round(now()).unwrap();
        node
    };
    node = with(node, false, 1 << 30);
    node.fleet.is_copied();
    node = with(node, true, 1_000_000);
    let next = node.fleet.publish_with(&release(2), now(), |_| {});
    node.follower.round(now()).unwrap();
    node.start();
    for blob in [0, 1, 3] {
        assert!(is_present(node.ask(next.release, blob)), "{blob}");
    }
    let round = node.follower.round(now() + TIDY_S).unwrap();
    assert!(round.fetched < 10_000 && round.left_out.is_empty());
    let store = Store::open(&node.fleet.copy(), None).unwrap();
    for id in store.releases().unwrap() {
        assert!(!store.release_path(id).exists());
    }
}

/// What is damaged on its way is fetched once more, and so is what the disk has damaged.
#[test]
fn damaged_metadata_is_fetched_again() {
    let (mut node, pointer) = Node::new();
    node.fetcher = None;
    let sound = release(1);
    let superblock = Superblock::parse(&sound[..SUPERBLOCK_LEN], pointer.size).unwrap();
    let at = superblock.metadata_range().start as usize;
    let mut flipped = sound.clone();
    flipped[at + 100] ^= 1;
    let path = Store::open(&node.fleet.copy(), None).unwrap();
    let path = path.partial_path(pointer.release);
    let mut file = fs::read(&path).unwrap();
    file[at + 100] ^= 1;
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(&file)
        .unwrap();
    drop(node.follower);
    node.follower = node.fleet.follower(&node.server.url());
    let mut is_first = true;
    node.server.lie(move |asked| {
        let is_metadata = asked.range.as_ref().is_some_and(|it| it.start >= at);
        match is_metadata && std::mem::take(&mut is_first) {
            true => stand_in::Answer::Instead(flipped.clone()),
            false => stand_in::Answer::Truth,
        }
    });
    node.server.asked();
    node.follower.round(now()).unwrap();
    let asked = node.server.asked();
    let ranges = asked.iter().filter_map(|it| it.range.as_ref());
    assert_eq!(ranges.filter(|it| it.start >= at).count(), 2);
    let (file, _) = node.partial(pointer.release);
    assert!(file[at..] == sound[at..]);
}

/// Without the flag the copy becomes whole again.
#[test]
fn a_copy_on_demand_can_become_a_whole_one() {
    let (mut node, pointer) = Node::new();
    assert!(is_present(node.ask(pointer.release, 1)));
    node.fetcher = None;
    node.fleet.settings.on_demand = false;
    drop(node.follower);
    node.follower = node.fleet.follower(&node.server.url());
    node.follower.round(now()).unwrap();
    node.fleet.is_copied();
}
