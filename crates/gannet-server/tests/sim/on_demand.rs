//! Releases of which only a part is here. Requests for the rest wait for it, as for a slow disk, and no others
//! do; whatever is dropped meanwhile, no client gets other bytes than those of the release.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gannet_archive::{SUPERBLOCK_LEN, Superblock};
use gannet_io::companion;
use gannet_io::driver::{Listener, Peer};
use gannet_io::options::EngineOptions;
use gannet_io::readiness::{Interest, wait};
use gannet_io::sim::{Client, End, Faults, Random, Sim};
use gannet_server::config::supply::{AHEAD, ReleasePart, Supplied, Supply, SupplyReply, USED};
use gannet_server::config::{ContentOptions, Limits};
use gannet_server::driven::{Driven, DrivenClients, DrivenContent};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h2::{self, Frame, headers, wide_opening};
use gannet_testkit::quic::Received;
use rustls::ClientConfig;

use crate::floods::others_are_served;
use crate::growing::content as of_frames;
use crate::link::{BOUND, Link, Opening};
use crate::quic_deadlines::connected;
use crate::run::{LIMITS, Packing, Tls, open, secure};
use crate::server::{Server, check_about, finish, get};

#[path = "on_demand_shares.rs"]
pub(crate) mod shares;

const MS: u64 = 1_000_000;
const GROUP: u64 = 64 << 10;

/// Short enough for memory, for a copy in memory, and for neither.
const LENS: [usize; 3] = [20_000, 200_000, 4_300_000];

/// Odd, if a group of a blob is here.
type Words = Arc<Mutex<BTreeMap<(u32, u64), u64>>>;

/// A server of an archive of which nothing is here, and what a process beside it would have.
struct OnDemand {
    server: Server,
    archive: Vec<u8>,
    /// What the server's file has.
    here: RefCell<Vec<u8>>,
    words: Words,
    /// Where blobs are.
    places: Vec<Range<u64>>,
    questions: RefCell<File>,
    /// Those that were read so far.
    seen: RefCell<Vec<(ReleasePart, u64)>>,
    /// For which client each of these is.
    clients: RefCell<Vec<u128>>,
}

fn content(number: usize) -> Vec<u8> {
    let len = LENS[number % LENS.len()] + number;
    (0..len).map(|at| (at / 7 + 31 * number) as u8).collect()
}

/// Whether a request waits for the answer to a question.
fn is_wanted(number: u64) -> bool {
    ![AHEAD, USED].contains(&number)
}

fn groups(range: &Range<u64>) -> Range<u64> {
    range.start / GROUP..range.end.div_ceil(GROUP)
}

impl OnDemand {
    fn new(count: usize, cache_memory: u64) -> Self {
        Self::with_sockets(count, cache_memory, &[], false).0
    }

    /// The same with sockets for HTTP/3, and the configuration for a client of it, or with clients that a PROXY
    /// header names.
    fn with_sockets(
        count: usize,
        cache_memory: u64,
        sockets: &[SocketAddr],
        is_proxied: bool,
    ) -> (Self, Option<Arc<ClientConfig>>) {
        let mut packing = Packing::new();
        packing.add("small", b"small", None);
        (0..count).for_each(|number| packing.add(&number.to_string(), &content(number), None));
        let archive = finish(packing);
        let superblock = Superblock::parse(&archive[..SUPERBLOCK_LEN], archive.len() as u64);
        let metadata = superblock.expect("it is sound").metadata_range();
        let parsed = gannet_archive::Archive::new(
            Superblock::parse(&archive[..SUPERBLOCK_LEN], archive.len() as u64).expect("sound"),
            archive[metadata.start as usize..metadata.end as usize].to_vec(),
        );
        let parsed = parsed.expect("it is sound");
        let places = parsed.blobs().filter(|blob| !blob.is_tiny);
        let places = places.map(|blob| blob.offset..blob.offset + blob.len);
        let places: Vec<_> = places.collect();
        let mut here = archive.clone();
        here[SUPERBLOCK_LEN..metadata.start as usize].fill(0);
        let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
        let mut driver = driver.with_datagrams(sockets);
        let disk = driver.handle();
        let tls = match sockets {
            [] => Tls::None,
            _ => Tls::Early,
        };
        let (mut tls, config) = secure(tls, ENCRYPTED_RECORDS_MAX, &disk).unzip();
        if let Some(tls) = &mut tls {
            tls.datagram_sockets = 1;
        }
        disk.put_file("partial", here.clone());
        let file = open(&mut driver, "partial");
        let words = Words::default();
        let seen_by_server = Arc::clone(&words);
        let presence = move |blob: u32, range: Range<u64>| {
            let words = seen_by_server.lock().expect("no test has failed");
            let word = |group| words.get(&(blob, group)).copied().unwrap_or(0);
            let all: Vec<u64> = groups(&range).map(word).collect();
            all.iter().all(|it| it % 2 == 1).then(|| all.iter().sum())
        };
        let content = DrivenContent::Partial(archive.clone(), file, Box::new(presence));
        let (questions, written) = companion::wide_input().expect("descriptors");
        let nothing = File::open("/dev/null").expect("it is there");
        let clients = DrivenClients {
            supply: Some(Supply::new(written, nothing)),
            is_proxied,
            ..DrivenClients::default()
        };
        let options = ContentOptions {
            cache_memory: Some(cache_memory),
            ..ContentOptions::default()
        };
        let limits = Limits {
            // Longer than what is not here is waited for.
            progress_timeout_ms: 20_000,
            ..LIMITS
        };
        let driven = Driven::with_clients(driver, content, &options, limits, (tls, clients));
        let driven = driven.expect("a sound archive");
        let on_demand = Self {
            server: Server { driven, disk },
            archive,
            here: RefCell::new(here),
            words,
            places,
            questions: RefCell::new(File::from(questions)),
            seen: RefCell::default(),
            clients: RefCell::default(),
        };
        (on_demand, config)
    }

    /// Reads what the server has asked meanwhile.
    fn read_questions(&self) -> Vec<(ReleasePart, u64)> {
        let mut questions = self.questions.borrow_mut();
        let mut all = Vec::new();
        loop {
            let watched = [(questions.as_fd(), Interest::Input)];
            if wait(&watched, Some(Duration::ZERO)).expect("a pipe") == [false] {
                self.seen.borrow_mut().extend(all.iter().cloned());
                return all;
            }
            let mut record = [0; ReleasePart::LEN];
            questions.read_exact(&mut record).expect("whole records");
            let (part, number, client) = ReleasePart::read(&record).expect("a question");
            self.clients.borrow_mut().push(client);
            all.push((part, number));
        }
    }

    /// Changes whether the groups of a part are here, and their bytes.
    fn put(&self, part: &ReleasePart, is_here: bool) {
        let place = &self.places[part.blob as usize];
        let mut is_changed = false;
        let groups = groups(&(part.range.start..part.range.end.min(place.end - place.start)));
        let mut words = self.words.lock().expect("no test has failed");
        let mut here = self.here.borrow_mut();
        for group in groups {
            let word = words.entry((part.blob, group)).or_default();
            if (*word % 2 == 1) == is_here {
                continue;
            }
            *word += 1;
            is_changed = true;
            let start = (place.start + group * GROUP) as usize;
            let end = (start + GROUP as usize).min(place.end as usize);
            match is_here {
                true => here[start..end].copy_from_slice(&self.archive[start..end]),
                false => here[start..end].fill(0),
            }
        }
        if is_changed {
            self.server.disk.overwrite_file("partial", here.clone());
        }
    }

    fn reply(&self, number: u64, supplied: Supplied) {
        if is_wanted(number) {
            self.server.driven.supply(SupplyReply {
                number,
                supplied,
                fetched: 1,
                unverified: 1,
            });
        }
    }

    /// Does what was asked.
    fn supply(&self) {
        for (part, number) in self.read_questions() {
            if number != USED {
                self.put(&part, true);
                self.reply(number, Supplied::Present);
            }
        }
    }

    /// Those for which requests wait.
    fn wanted(&self) -> usize {
        self.read_questions();
        let seen = self.seen.borrow();
        let wanted = |(_, number): &&(ReleasePart, u64)| is_wanted(*number);
        seen.iter().filter(wanted).count()
    }

    fn ask(&self, path: &str) -> Client {
        let client = self.server.connect();
        client.write(&get(path));
        client
    }

    /// Waits for the whole answer, while what is asked is done.
    fn await_body(&mut self, client: &Client, number: usize) {
        self.await_bytes(client, &content(number));
    }

    fn await_bytes(&mut self, client: &Client, expected: &[u8]) {
        let mut got = Vec::new();
        let disk = self.server.disk.clone();
        let end = disk.now().plus_ms(60_000);
        while !got.ends_with(expected) {
            assert!(disk.now() < end, "{} bytes", got.len());
            self.supply();
            disk.wake_at(Some(disk.now().plus_ms(1)));
            self.server.driven.turn(None).expect("the engine works");
            got.extend(client.read());
        }
        assert!(got.starts_with(b"HTTP/1.1 20"));
    }

    /// The head of an answer without content of the site.
    fn await_head(&mut self, client: &Client) -> String {
        let mut got = Vec::new();
        self.server.until("an answer", || {
            got.extend(client.read());
            got.windows(4).any(|four| four == b"\r\n\r\n")
        });
        String::from_utf8_lossy(&got).into_owned()
    }
}

#[test]
fn what_is_not_here_is_fetched_once_and_then_found() {
    for room in [0, 64 << 20] {
        let mut on_demand = OnDemand::new(LENS.len(), room);
        for number in 0..LENS.len() {
            let client = on_demand.ask(&number.to_string());
            on_demand.await_body(&client, number);
            on_demand.read_questions();
            let before = on_demand.wanted();
            for _ in 0..3 {
                let client = on_demand.ask(&number.to_string());
                on_demand.await_body(&client, number);
            }
            assert_eq!(on_demand.wanted(), before, "{number}");
        }
        let counters = on_demand.server.driven.counters();
        assert_eq!(counters.cut_short, 0);
        assert!(counters.supply.hits > 0 && counters.supply.bytes > 0);
        assert_eq!(counters.supply.unverified, counters.supply.bytes);
    }
}

/// A long body is asked for ahead, in large parts: it waits a few times at its begin, and no more.
#[test]
fn a_long_body_is_asked_for_ahead() {
    let mut on_demand = OnDemand::new(LENS.len(), 0);
    let client = on_demand.ask("2");
    on_demand.await_body(&client, 2);
    let wanted = on_demand.wanted();
    let seen = on_demand.seen.borrow();
    let ahead = seen.iter().filter(|(_, number)| *number == AHEAD);
    let ahead: Vec<_> = ahead.map(|(part, _)| part.range.clone()).collect();
    assert!(wanted <= 2, "{wanted}");
    assert!((3..=10).contains(&ahead.len()), "{ahead:?}");
    assert!(ahead.windows(2).all(|two| two[0].end <= two[1].start));
}

/// A range of a body needs only that.
#[test]
fn a_range_is_fetched_alone() {
    let mut on_demand = OnDemand::new(LENS.len(), 0);
    let client = on_demand.server.connect();
    let range = 4_000_000..4_000_100;
    client.write(
        format!(
            "GET /2 HTTP/1.1\r\nhost: sim\r\nrange: bytes={}-{}\r\n\r\n",
            range.start,
            range.end - 1
        )
        .as_bytes(),
    );
    on_demand.await_bytes(&client, &content(2)[range.clone()]);
    let seen = on_demand.seen.borrow();
    let wanted: Vec<_> = (seen.iter())
        .filter(|(_, number)| is_wanted(*number))
        .collect();
    let [(part, _)] = wanted.as_slice() else {
        panic!("{wanted:?}");
    };
    let range = range.start as u64..range.end as u64;
    assert_eq!((part.blob, &part.range), (2, &range));
    assert!(seen.iter().all(|(_, number)| *number != AHEAD), "{seen:?}");
}

#[test]
fn many_who_wait_for_one_body_are_one_question_and_no_others_wait() {
    let mut on_demand = OnDemand::new(2, 0);
    let clients: Vec<_> = (0..1000).map(|_| on_demand.ask("1")).collect();
    on_demand.server.pass(500);
    others_are_served(&mut on_demand.server, None);
    assert!(clients.iter().all(|client| client.readable() == 0));
    assert_eq!(on_demand.wanted(), 1);
    for (part, number) in on_demand.seen.take() {
        on_demand.put(&part, true);
        on_demand.reply(number, Supplied::Present);
    }
    for client in &clients {
        on_demand.await_body(client, 1);
    }
}

#[test]
fn without_an_answer_a_request_has_to_come_again() {
    let mut on_demand = OnDemand::new(LENS.len(), 0);
    for number in 0..LENS.len() {
        let client = on_demand.ask(&number.to_string());
        let began = on_demand.server.disk.now();
        let head = on_demand.await_head(&client);
        let took = (on_demand.server.disk.now().0 - began.0) / MS;
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert!(head.contains("\r\nRetry-After: 1\r\n"), "{head}");
        check_about(took, 10_000);
        // The answers that come now are waited for no more.
        on_demand.supply();
        client.write(&get(&number.to_string()));
        on_demand.await_body(&client, number);
    }
}

#[test]
fn what_cannot_be_had_is_answered_with_its_status() {
    for (outcome, status) in [(Supplied::Unavailable, "503"), (Supplied::Damaged, "502")] {
        let mut on_demand = OnDemand::new(LENS.len(), 0);
        for number in 0..LENS.len() {
            let client = on_demand.ask(&number.to_string());
            on_demand.server.pass(10);
            for (_, number) in on_demand.read_questions() {
                on_demand.reply(number, outcome);
            }
            let head = on_demand.await_head(&client);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            // The connection is as good as before.
            client.read();
            client.write(&get("small"));
            on_demand.await_bytes(&client, b"small");
        }
    }
}

/// In the middle of a response the connection ends: what was announced cannot be completed.
#[test]
fn a_response_that_has_begun_is_cut_short() {
    let mut on_demand = OnDemand::new(LENS.len(), 0);
    let client = on_demand.ask("2");
    on_demand.server.pass(10);
    for (part, number) in on_demand.read_questions() {
        on_demand.put(&part, true);
        on_demand.reply(number, Supplied::Present);
    }
    let mut got = Vec::new();
    on_demand.server.until("an end", || {
        got.extend(client.read());
        client.end() != End::Open
    });
    let body = got.windows(4).position(|four| four == b"\r\n\r\n");
    let body = &got[body.expect("a head") + 4..];
    assert!(!body.is_empty() && content(2).starts_with(body));
    assert_eq!(on_demand.server.driven.counters().cut_short, 1);
}

/// Streams of one connection wait each for its own.
#[test]
fn streams_wait_beside_each_other() {
    let mut on_demand = OnDemand::new(LENS.len(), 0);
    let client = on_demand.server.connect();
    client.write(&wide_opening());
    for (stream, path) in (0..).zip(["/0", "/1", "/2", "/small"]) {
        let fields = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "sim"),
            (":path", path),
        ];
        client.write(&headers(2 * stream + 1, &h2::block(&fields)));
    }
    on_demand.server.pass(1_000);
    let mut bytes = client.read();
    assert!(
        bytes.windows(5).any(|it| it == b"small"),
        "it waits for no other"
    );
    let disk = on_demand.server.disk.clone();
    let mut bodies: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let longest = content(2).len();
    while bodies.get(&5).map_or(0, Vec::len) < longest {
        on_demand.supply();
        disk.wake_at(Some(disk.now().plus_ms(1)));
        on_demand
            .server
            .driven
            .turn(None)
            .expect("the engine works");
        bytes.extend(client.read());
        while let Some(frame) = Frame::take(&mut bytes) {
            if frame.kind == h2::DATA {
                bodies
                    .entry(frame.stream)
                    .or_default()
                    .extend(frame.payload);
            }
        }
    }
    for (stream, number) in [(1, 0), (3, 1), (5, 2)] {
        assert!(bodies[&stream] == content(number), "stream {stream}");
    }
}

#[test]
fn streams_of_http3_wait_as_well() {
    let bound = [BOUND.parse().expect("an address")];
    let (mut on_demand, config) = OnDemand::with_sockets(LENS.len(), 0, &bound, false);
    let config = config.expect("it speaks TLS");
    let mut link = connected(&mut on_demand.server, &config, &Opening::new(0));
    let ids = [0, 1, 2].map(|number| (number, link.get(&format!("/{number}"))));
    let disk = on_demand.server.disk.clone();
    let end = disk.now().plus_ms(60_000);
    let is_over = |link: &Link, id| link.core.received(id).is_some_and(Received::is_over);
    while !ids.iter().all(|(_, id)| is_over(&link, *id)) {
        assert!(disk.now() < end, "it takes too long");
        on_demand.supply();
        disk.wake_at(Some(disk.now().plus_ms(1)));
        let turned = on_demand.server.driven.turn(None);
        turned.expect("the engine works");
        link.step();
        link.core.read(usize::MAX);
    }
    for (number, id) in ids {
        let received = link.core.received(id).expect("just seen");
        assert!(received.is_finished && of_frames(&received.bytes) == content(number));
    }
    assert!(on_demand.wanted() >= 3);
}

/// Parts come and go all the time, also while they are read: whoever gets an answer gets the right bytes.
#[test]
fn whatever_is_dropped_no_other_bytes_are_sent() {
    let contents: Vec<Vec<u8>> = (0..3).map(content).collect();
    for seed in 0..4 {
        let mut on_demand = OnDemand::new(3, if seed % 2 == 0 { 0 } else { 4 << 20 });
        on_demand.server.disk.slow_file("partial", 2 * MS);
        let mut random = Random::new(seed);
        let disk = on_demand.server.disk.clone();
        let mut clients = Vec::new();
        let mut whole = 0;
        for step in 0..1_500 {
            if step % 60 == 0 {
                let number = random.below(3) as usize;
                clients.push((
                    on_demand.ask(&number.to_string()),
                    number,
                    Vec::new(),
                    false,
                ));
            }
            on_demand.supply();
            if random.chance(200) {
                let blob = random.below(3) as u32;
                let start = random.below(4_300_000);
                let part = ReleasePart {
                    release: [7; 16],
                    blob,
                    range: start..start + random.below(1 << 20),
                };
                if part.range.start < contents[blob as usize].len() as u64 {
                    on_demand.put(&part, false);
                }
            }
            disk.wake_at(Some(disk.now().plus_ms(1)));
            on_demand
                .server
                .driven
                .turn(None)
                .expect("the engine works");
            for (client, number, got, is_whole) in &mut clients {
                let more = client.read();
                if more.is_empty() {
                    continue;
                }
                got.extend(more);
                let Some(head) = got.windows(4).position(|four| four == b"\r\n\r\n") else {
                    continue;
                };
                if got.starts_with(b"HTTP/1.1 200") {
                    let expected = &contents[*number];
                    assert!(expected.starts_with(&got[head + 4..]), "seed {seed}");
                    if got.len() == head + 4 + expected.len() {
                        (whole, *is_whole) = (whole + 1, true);
                    }
                }
            }
            clients.retain(|(.., is_whole)| !is_whole);
        }
        assert!(whole > 5, "seed {seed}: {whole} of 25");
    }
}

/// A part that is said to be here, and is not: that is asked a few times, and not all the time.
#[test]
fn what_stays_unseen_is_not_asked_for_ever() {
    let mut on_demand = OnDemand::new(LENS.len(), 0);
    for number in 0..LENS.len() {
        let client = on_demand.ask(&number.to_string());
        let began = on_demand.server.disk.now();
        let mut asked = 0;
        while client.readable() == 0 {
            on_demand.server.pass(1);
            let questions = on_demand.read_questions();
            for (_, number) in questions.iter().filter(|(_, it)| is_wanted(*it)) {
                on_demand.reply(*number, Supplied::Present);
                asked += 1;
            }
        }
        let took = (on_demand.server.disk.now().0 - began.0) / MS;
        assert!(on_demand.await_head(&client).starts_with("HTTP/1.1 503 "));
        assert!(asked == 8 && took < 1_000, "{asked} in {took} ms");
    }
}

/// Each use of what was here is one, also of a short file, and what has come for it is none.
#[test]
fn uses_are_counted_and_reported() {
    let mut on_demand = OnDemand::new(LENS.len() + 1, 0);
    let hits = |on_demand: &mut OnDemand| on_demand.server.driven.counters().supply.hits;
    let whole = |blob| ReleasePart {
        release: [7; 16],
        blob,
        range: 0..u64::MAX,
    };
    on_demand.put(&whole(2), true);
    on_demand.put(&whole(3), true);
    for (number, expected) in [(0, 0), (3, 1)] {
        let client = on_demand.ask(&number.to_string());
        on_demand.await_body(&client, number);
        assert_eq!(hits(&mut on_demand), expected);
    }
    // Enough slices for a report.
    let client = on_demand.ask("2");
    on_demand.await_body(&client, 2);
    on_demand.read_questions();
    let seen = on_demand.seen.borrow();
    let used = seen.iter().filter(|(_, it)| *it == USED);
    let used: Vec<_> = used.map(|(part, _)| part.blob).collect();
    assert!(used.len() == 64 && used[0] == 3, "{used:?}");
    assert!(used[1..].iter().all(|blob| *blob == 2), "{used:?}");
}

/// What memory serves is used as well: some of that is reported.
#[test]
fn uses_that_need_no_disk_are_sampled() {
    let mut on_demand = OnDemand::new(LENS.len(), 64 << 20);
    let client = on_demand.ask("0");
    on_demand.await_body(&client, 0);
    let hits = on_demand.server.driven.counters().supply.hits;
    // HEAD uses no bytes.
    for _ in 0..17 * 64 {
        client.write(b"HEAD /0 HTTP/1.1\r\nhost: sim\r\n\r\n");
        assert!(on_demand.await_head(&client).starts_with("HTTP/1.1 200 "));
    }
    let is_said = |on_demand: &OnDemand| on_demand.seen.borrow().iter().any(|it| it.1 == USED);
    on_demand.read_questions();
    assert!(!is_said(&on_demand));
    for _ in 0..17 * 64 {
        client.write(&get("0"));
        on_demand.await_body(&client, 0);
    }
    assert_eq!(
        on_demand.server.driven.counters().supply.hits,
        hits,
        "it is in memory"
    );
    let seen = on_demand.seen.borrow();
    let used = seen.iter().filter(|(_, number)| *number == USED);
    let used: Vec<_> = used.map(|(part, _)| part).collect();
    assert_eq!(used.len(), 64);
    let is_first = |part: &&ReleasePart| part.blob == 0 && part.range == (0..LENS[0] as u64);
    assert!(used.iter().all(is_first), "{used:?}");
}
