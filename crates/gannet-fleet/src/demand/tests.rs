//! Questions and their answers, on a clock that goes by itself while nothing else does.

use std::future::{pending, poll_fn};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use gannet_archive::limits::{GROUP_LEN, UNIT_LEN_MAX};
use gannet_archive::{
    Coding, Content, FieldBlock, Key, Options, SUPERBLOCK_LEN, Superblock, TreeHasher,
    VariantDraft, Writer,
};
use gannet_store::{PartialRelease, Publisher};
use gannet_testkit::Folder;
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::runtime::Builder;

use super::*;
use crate::limits::ATTEMPTS_MAX;
use crate::pace::Patience;
use crate::remote::release_name;
use crate::samples::pointer_to;

mod room;
mod turns;

/// What a store does instead of answering.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
enum Lie {
    #[default]
    None,
    /// It has this object in the place of all others: for so many answers.
    Other(Location, usize),
    /// It never answers for ranges that have this byte of the object.
    Silence(u64),
    /// It never answers.
    Silences,
    /// It has nothing.
    Nothing,
}

#[derive(Debug, Default)]
struct Liar {
    objects: InMemory,
    lie: Mutex<Lie>,
    asked: Mutex<Vec<Range<u64>>>,
}

impl std::fmt::Display for Liar {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("liar")
    }
}

#[async_trait]
impl ObjectStore for Liar {
    async fn get_opts(&self, location: &Location, options: GetOptions) -> Result<GetResult> {
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => range.clone(),
            other => panic!("{other:?}"),
        };
        self.asked.lock().unwrap().push(range.clone());
        let lie = {
            let mut lie = self.lie.lock().unwrap();
            let now = lie.clone();
            if let Lie::Other(_, left) = &mut *lie {
                *left -= 1;
                if *left == 0 {
                    *lie = Lie::None;
                }
            }
            now
        };
        match lie {
            Lie::Silence(at) if range.contains(&at) => pending().await,
            Lie::Silences => pending().await,
            Lie::Other(other, _) => self.objects.get_opts(&other, options).await,
            Lie::Nothing => {
                self.objects
                    .get_opts(&Location::from("none"), options)
                    .await
            }
            Lie::None | Lie::Silence(_) => self.objects.get_opts(location, options).await,
        }
    }

    async fn put_opts(&self, at: &Location, it: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.objects.put_opts(at, it, how).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Location,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(at, how).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Location>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Location>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Location, to: &Location, how: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, how).await
    }
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// An archive of blobs with these seeds and lengths, none of which is tiny, at paths by their numbers.
pub(crate) fn archive(blobs: &[(u64, u64)]) -> Vec<u8> {
    let mut writer = Writer::new(Options::default());
    let mut file = vec![0; SUPERBLOCK_LEN];
    for (number, (seed, len)) in blobs.iter().enumerate() {
        let body = bytes(*seed, *len);
        let mut hasher = TreeHasher::default();
        hasher.update(&body);
        let (_, digest, tree) = hasher.finish();
        let placed = writer.add_hashed(digest, *len);
        writer.set_tree(placed.id, tree);
        file.resize(placed.write_at.unwrap() as usize, 0);
        file.extend_from_slice(&body);
        let length = format!("Content-Length: {len}\r\n");
        let end = u16::try_from(length.len()).unwrap();
        let variants = writer.add_variants(&[VariantDraft {
            coding: Coding::Identity,
            blob: placed.id,
            entity_tag: b"",
            h1: FieldBlock {
                bytes: length.as_bytes(),
                length_end: end,
                shared_start: end,
                ..FieldBlock::default()
            },
            hpack: None,
        }]);
        let content = Content {
            variants,
            ..Content::default()
        };
        writer.add_content(Key::content(format!("/{number}").as_bytes()), &content);
    }
    let parts = writer.finish().unwrap();
    file.resize(parts.metadata_offset as usize, 0);
    file.extend_from_slice(&parts.metadata);
    file[..SUPERBLOCK_LEN].copy_from_slice(&parts.superblock);
    file
}

/// A fetcher's work, its store, and a copy.
struct Bench {
    demand: Demand,
    liar: Arc<Liar>,
    publisher: Publisher,
    reports: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

/// A release in the store and in the copy.
struct Release {
    id: ReleaseId,
    archive: Vec<u8>,
}

impl Bench {
    fn new(room: u64) -> Self {
        let folder = Folder::new();
        let publisher = Publisher::open(&folder.join("copy"), "node", 0).unwrap();
        let liar = Arc::new(Liar::default());
        let patience = Patience::default();
        let remote = Remote::of(Arc::clone(&liar) as Arc<dyn ObjectStore>, patience);
        let store = Store::open(&folder.join("copy"), None).unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::clone(&reports);
        let report = move |error: FleetError| reported.lock().unwrap().push(error.to_string());
        Self {
            demand: Demand::new(Arc::new(remote), store, room, Box::new(report)),
            liar,
            publisher,
            reports,
            _folder: folder,
        }
    }

    /// Publishes a release, and copies everything but its blobs.
    async fn publish(&self, blobs: &[(u64, u64)]) -> Release {
        let archive = archive(blobs);
        let first = &archive[..SUPERBLOCK_LEN];
        let superblock = Superblock::parse(first, archive.len() as u64).unwrap();
        let pointer = pointer_to(&superblock, archive.len() as u64);
        let id = pointer.release;
        std::fs::write(self.publisher.part_path(id), &archive).unwrap();
        self.publisher.adopt_partial(&pointer).unwrap();
        self.put(&release_name(id), &archive).await;
        Release { id, archive }
    }

    async fn put(&self, name: &str, content: &[u8]) {
        let at = self.demand.remote.at(name);
        let content = PutPayload::from(content.to_vec());
        self.liar.objects.put(&at, content).await.unwrap();
    }

    fn lie(&self, lie: Lie) {
        *self.liar.lie.lock().unwrap() = lie;
    }

    fn asked(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.liar.asked.lock().unwrap())
    }

    /// A copy that has been started again, with so much room.
    fn restart(&mut self, room: u64) {
        let store = Store::open(self.publisher.store().folder(), None).unwrap();
        self.demand.cache = Cache::new(store, room);
    }

    /// Asks many times at once; returns all answers.
    async fn ask_all(&mut self, wants: Vec<Want>) -> Vec<Answer> {
        let answers = Arc::new(Mutex::new(vec![None; wants.len()]));
        let left = Arc::new(AtomicUsize::new(wants.len()));
        for (at, want) in wants.into_iter().enumerate() {
            let (answers, left) = (Arc::clone(&answers), Arc::clone(&left));
            let answered = move |answer| {
                answers.lock().unwrap()[at] = Some(answer);
                left.fetch_sub(1, Ordering::Relaxed);
            };
            self.demand.take(Message::Ask(want, Box::new(answered)));
        }
        loop {
            self.demand.advance();
            if left.load(Ordering::Relaxed) == 0 {
                break;
            }
            poll_fn(|context| self.demand.poll(context)).await;
        }
        let answers = answers.lock().unwrap();
        answers.iter().map(|answer| answer.unwrap()).collect()
    }

    async fn ask(&mut self, release: &Release, blob: u32, range: Range<u64>) -> Answer {
        let want = want(release, blob, range);
        self.ask_all(vec![want]).await[0]
    }

    /// Works until there is nothing to do.
    async fn until_idle(&mut self) {
        loop {
            self.demand.advance();
            let demand = &self.demand;
            let is_idle = demand.flights.is_empty() && demand.syncing.is_none();
            if is_idle && demand.finding.is_none() && demand.written.is_empty() {
                break;
            }
            poll_fn(|context| self.demand.poll(context)).await;
        }
    }

    /// The bytes of a range of a blob, as a server reads them; `None` if some are lacking.
    fn read(&mut self, release: &Release, blob: u32, range: Range<u64>) -> Option<Vec<u8>> {
        let path = self.publisher.store().partial_path(release.id);
        let partial = PartialRelease::open(&path).unwrap();
        let writer = &self.demand.cache.get(release.id).unwrap().writer;
        let units = writer.units().in_blob(blob, range.clone());
        let look = partial.presence.look(units.clone()).unwrap();
        let start = writer.unit(units.start).unwrap();
        let start = start.offset - start.group.unwrap_or(0) * GROUP_LEN;
        let mut found = vec![0; (range.end - range.start) as usize];
        partial
            .file
            .read_at(&mut found, start + range.start)
            .unwrap();
        let expect = &release.archive[(start + range.start) as usize..];
        let is_there = look.present() == units.end - units.start;
        let is_right = partial.presence.is_still(&look).unwrap() && found == expect[..found.len()];
        assert!(!is_there || is_right, "wrong bytes are taken for right");
        is_there.then_some(found)
    }
}

fn want(release: &Release, blob: u32, range: Range<u64>) -> Want {
    let release = release.id;
    Want {
        release,
        blob,
        range,
        client: None,
        is_ahead: false,
    }
}

const ROOM: u64 = 1 << 30;

fn run(test: impl AsyncFnOnce()) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test());
}

fn fetched(answer: Answer) -> u64 {
    match answer {
        Answer::Present(effort) => effort.fetched,
        Answer::Failed(reason, _) => panic!("{reason:?}"),
    }
}

fn failed(answer: Answer) -> (Reason, u32) {
    match answer {
        Answer::Present(_) => panic!("it is there"),
        Answer::Failed(reason, effort) => (reason, effort.unverified),
    }
}

#[test]
fn what_is_asked_for_is_fetched_once_and_nothing_else() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let release = bench.publish(&[(1, 5000), (2, 300_000), (3, 7000)]).await;
        assert_eq!(bench.read(&release, 1, 0..300_000), None);
        let all = vec![want(&release, 1, 0..u64::MAX); 1000];
        let answers = bench.ask_all(all).await;
        assert_eq!(bench.asked().len(), 1);
        assert_eq!(fetched(answers[0]), 300_000);
        assert!(answers[1..].iter().all(|it| fetched(*it) == 0));
        assert!(bench.read(&release, 1, 0..300_000).is_some());
        assert_eq!(bench.read(&release, 0, 0..5000), None);
        assert_eq!(bench.read(&release, 2, 0..7000), None);
        // A part of a short blob is all of it.
        bench.ask(&release, 0, 4999..5000).await;
        assert!(bench.read(&release, 0, 0..5000).is_some());
        bench.asked();
        assert_eq!(fetched(bench.ask(&release, 1, 5..6).await), 0);
        assert!(bench.asked().is_empty());
    });
}

/// What was written counts once it is on the disk, and not before.
#[test]
fn a_unit_is_there_once_it_is_synced() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let release = bench.publish(&[(1, 5000)]).await;
        let ask = Message::Ask(want(&release, 0, 0..1), Box::new(|_| {}));
        bench.demand.take(ask);
        bench.demand.advance();
        while bench.demand.written.is_empty() {
            poll_fn(|context| bench.demand.poll(context)).await;
        }
        assert_eq!(bench.read(&release, 0, 0..5000), None);
        bench.demand.advance();
        assert!(bench.demand.syncing.is_some());
        assert_eq!(bench.read(&release, 0, 0..5000), None);
        // Unless that fails.
        let units = bench.demand.syncing.take().unwrap().await.unwrap().units;
        let result = Err(io::ErrorKind::StorageFull.into());
        bench.demand.synced(Synced { units, result });
        assert_eq!(bench.read(&release, 0, 0..5000), None);
        bench.demand.advance();
        assert_eq!(bench.demand.waiting, 0, "it was answered");
        tokio::time::advance(UNREACHABLE_FOR).await;
        assert_eq!(fetched(bench.ask(&release, 0, 0..1).await), 5000);
        assert!(bench.read(&release, 0, 0..5000).is_some());
    });
}

#[test]
fn nothing_is_asked_of_the_store_for_what_no_release_has() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let release = bench.publish(&[(1, 5000)]).await;
        let other = Release {
            id: ReleaseId::of_build_id(&[7; 32]),
            archive: Vec::new(),
        };
        for answer in [
            bench.ask(&other, 0, 0..1).await,
            bench.ask(&release, 1, 0..1).await,
            bench.ask(&release, u32::MAX, 0..1).await,
            bench.ask(&release, 0, 5..5).await,
        ] {
            assert_eq!(failed(answer), (Reason::Unknown, 0));
        }
        assert!(bench.asked().is_empty());
    });
}

/// Groups of a long blob, from where it is requested, up to 1 MiB; what is there already is not fetched again,
/// unless it is shorter than another request.
#[test]
fn of_long_blobs_groups_are_fetched() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let len = 3 * UNIT_LEN_MAX + 5;
        let release = bench.publish(&[(1, 5000), (2, len), (3, 7000)]).await;
        let groups = |count: u64| count * GROUP_LEN;
        // Sixteen groups from the third on.
        let at = groups(2);
        assert_eq!(
            fetched(bench.ask(&release, 1, at..at + 1).await),
            groups(16)
        );
        assert!(bench.read(&release, 1, at..groups(18)).is_some());
        assert_eq!(bench.read(&release, 1, groups(18)..groups(18) + 1), None);
        assert_eq!(bench.read(&release, 1, groups(2) - 1..groups(2)), None);
        // The first two, without what follows them.
        assert_eq!(fetched(bench.ask(&release, 1, 0..1).await), groups(2));
        // The last one is short.
        assert_eq!(fetched(bench.ask(&release, 1, len - 1..u64::MAX).await), 5);
        // Over one group that is there: one request. Over two: two.
        assert_eq!(
            fetched(bench.ask(&release, 1, groups(20)..groups(20) + 1).await),
            groups(16)
        );
        bench.asked();
        let across = bench.ask(&release, 1, groups(19)..groups(19) + 1).await;
        assert_eq!(fetched(across), groups(1));
        let across = bench.ask(&release, 1, groups(18)..groups(40)).await;
        assert_eq!(fetched(across), groups(1));
        assert_eq!(bench.asked().len(), 2);
        for start in (0..len).step_by(GROUP_LEN as usize) {
            let end = len.min(start + 1);
            bench.ask(&release, 1, start..end).await;
            assert!(bench.read(&release, 1, start..end).is_some());
        }
        assert!(bench.read(&release, 1, 0..len).is_some() || len / GROUP_LEN > 448);
    });
}

#[test]
fn bytes_that_do_not_verify_are_fetched_once_more_and_never_written() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let blobs = [(1, 5000), (2, UNIT_LEN_MAX + 1), (3, 6000)];
        let release = bench.publish(&blobs).await;
        let mut damaged = release.archive.clone();
        damaged[SUPERBLOCK_LEN..]
            .iter_mut()
            .step_by(4096)
            .for_each(|byte| *byte ^= 1);
        bench.put("damaged", &damaged).await;
        let lie = Lie::Other(bench.demand.remote.at("damaged"), usize::MAX);
        bench.lie(lie.clone());
        for (blob, unverified) in [(0, 1), (1, 17)] {
            let answer = bench.ask(&release, blob, 0..1).await;
            // Of both times, each unit.
            assert_eq!(failed(answer), (Reason::Damaged, 2 * unverified.min(16)));
            assert_eq!(bench.asked().len(), 2);
            // Clients cost the store nothing for a while.
            let answer = bench.ask(&release, blob, 0..1).await;
            assert_eq!(failed(answer), (Reason::Damaged, 0));
            assert!(bench.asked().is_empty());
            assert_eq!(bench.read(&release, blob, 0..1), None);
        }
        assert_eq!(bench.reports.lock().unwrap().len(), 2, "of each blob, once");
        tokio::time::advance(DAMAGED_FOR).await;
        bench.lie(Lie::None);
        assert_eq!(fetched(bench.ask(&release, 0, 0..1).await), 5000);
        // Damaged once: the second time is right.
        bench.lie(Lie::Other(bench.demand.remote.at("damaged"), 1));
        match bench.ask(&release, 2, 0..1).await {
            Answer::Present(effort) => assert_eq!((effort.fetched, effort.unverified), (12_000, 1)),
            answer => panic!("{answer:?}"),
        }
        assert!(bench.read(&release, 2, 0..6000).is_some());
    });
}

#[test]
fn a_store_that_is_silent_holds_up_nothing_else_and_ends() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let release = bench.publish(&[(1, 5000), (2, 6000)]).await;
        bench.lie(Lie::Silence(SUPERBLOCK_LEN as u64));
        let begun = Instant::now();
        let wants = vec![want(&release, 0, 0..1), want(&release, 1, 0..1)];
        let left = Arc::new(Mutex::new(Vec::new()));
        for want in wants {
            let (blob, left) = (want.blob, Arc::clone(&left));
            let answered = move |answer| left.lock().unwrap().push((blob, answer, begun.elapsed()));
            bench.demand.take(Message::Ask(want, Box::new(answered)));
        }
        while left.lock().unwrap().len() < 2 {
            bench.demand.advance();
            poll_fn(|context| bench.demand.poll(context)).await;
            bench.demand.advance();
        }
        let left = std::mem::take(&mut *left.lock().unwrap());
        assert_eq!(
            (left[0].0, fetched(left[0].1), left[0].2),
            (1, 6000, Duration::ZERO)
        );
        assert_eq!(
            (left[1].0, failed(left[1].1)),
            (0, (Reason::Unreachable, 0))
        );
        assert!(left[1].2 <= FETCH_TIMEOUT, "{:?}", left[1].2);
        // What is there is there.
        bench.lie(Lie::Nothing);
        assert!(bench.read(&release, 1, 0..6000).is_some());
        assert_eq!(fetched(bench.ask(&release, 1, 0..1).await), 0);
        tokio::time::advance(UNREACHABLE_FOR).await;
        let answer = bench.ask(&release, 0, 0..1).await;
        assert_eq!(failed(answer), (Reason::Unreachable, 0));
        assert!(bench.asked().len() <= ATTEMPTS_MAX as usize + 2);
    });
}

/// However many wait for a store that is silent: those that are fetched have an answer in the time of one fetch, and
/// the others as soon as no client waits any more.
#[test]
fn questions_behind_others_end_with_them() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let count = 3 * FLIGHTS_MAX as u64;
        let blobs: Vec<_> = (0..count).map(|seed| (seed, 64)).collect();
        let release = bench.publish(&blobs).await;
        bench.lie(Lie::Silences);
        let begun = Instant::now();
        let answers = Arc::new(Mutex::new(Vec::new()));
        for blob in 0..count as u32 {
            let answers = Arc::clone(&answers);
            let answered = move |answer| answers.lock().unwrap().push((answer, begun.elapsed()));
            let want = want(&release, blob, 0..64);
            bench.demand.take(Message::Ask(want, Box::new(answered)));
        }
        bench.demand.advance();
        while bench.demand.waiting > 0 {
            poll_fn(|context| bench.demand.poll(context)).await;
            bench.demand.advance();
        }
        let answers = answers.lock().unwrap();
        let unreachable = (Reason::Unreachable, 0);
        assert!(answers.iter().all(|it| failed(it.0) == unreachable));
        assert!(answers.iter().all(|it| it.1 <= FETCH_TIMEOUT));
        let early = |it: &&(Answer, Duration)| it.1 <= BEGIN_TIMEOUT + Duration::from_secs(1);
        let early = answers.iter().filter(early).count();
        assert!(early >= 2 * FLIGHTS_MAX, "{early}");
    });
}

/// The system reports a lost write once: to the sync that is under way.
#[test]
fn what_is_written_during_a_sync_that_fails_is_not_there() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let release = bench.publish(&[(1, 5000), (2, 6000)]).await;
        let id = release.id;
        for number in 0..2 {
            let unit = bench.demand.cache.unit(id, number).unwrap();
            let bytes = &release.archive[unit.offset as usize..][..unit.len as usize];
            let added = bench.demand.add(id, (number, &unit), bytes);
            assert_eq!(added, Added::Written);
        }
        let second = bench.demand.written.split_off(1);
        let units = std::mem::replace(&mut bench.demand.written, second);
        let result = Err(io::ErrorKind::Other.into());
        bench.demand.synced(Synced { units, result });
        bench.until_idle().await;
        assert_eq!(bench.read(&release, 0, 0..5000), None);
        assert_eq!(bench.read(&release, 1, 0..6000), None);
        assert_eq!(bench.reports.lock().unwrap().len(), 1);
        // They are written again.
        tokio::time::advance(UNREACHABLE_FOR).await;
        bench.ask(&release, 1, 0..1).await;
        assert!(bench.read(&release, 1, 0..6000).is_some());
    });
}

/// Too many questions and clients are refused at once, and all others are answered.
#[test]
fn a_flood_of_questions_is_bounded() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        // Different ranges of few units: what comes answers many, and each time all are looked at.
        let lens = FETCH_LEN_MAX / GROUP_LEN;
        let starts = (QUESTIONS_MAX as u64 + 10).div_ceil(lens);
        let len = (starts + lens) * GROUP_LEN;
        let release = bench.publish(&[(1, len), (2, 64)]).await;
        let range = |number| {
            let start = number / lens * GROUP_LEN;
            start..start + (1 + number % lens) * GROUP_LEN
        };
        let wants = (0..QUESTIONS_MAX as u64 + 10).map(|number| want(&release, 0, range(number)));
        let answers = bench.ask_all(wants.collect()).await;
        let (first, rest) = answers.split_at(QUESTIONS_MAX);
        assert!(first.iter().all(|it| matches!(it, Answer::Present(_))));
        assert!(rest.iter().all(|it| failed(*it) == (Reason::Busy, 0)));
        let wants = vec![want(&release, 1, 0..1); ANSWERS_MAX + 5];
        let answers = bench.ask_all(wants).await;
        let (first, rest) = answers.split_at(ANSWERS_MAX);
        assert!(first.iter().all(|it| matches!(it, Answer::Present(_))));
        assert!(rest.iter().all(|it| failed(*it) == (Reason::Busy, 0)));
        assert_eq!(bench.demand.waiting, 0);
    });
}

#[test]
fn what_the_release_before_has_is_copied() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let long = UNIT_LEN_MAX + 2 * GROUP_LEN;
        let first = bench.publish(&[(1, 5000), (2, long), (3, 6000)]).await;
        let second = bench
            .publish(&[(9, 7000), (2, long), (1, 5000), (3, 6000)])
            .await;
        bench.demand.cache.in_force(first.id);
        bench.ask(&first, 0, 0..1).await;
        bench.ask(&first, 1, long - 1..long).await;
        bench.demand.cache.in_force(second.id);
        bench.asked();
        assert_eq!(fetched(bench.ask(&second, 2, 0..1).await), 0);
        assert_eq!(fetched(bench.ask(&second, 1, long - 1..long).await), 0);
        assert!(bench.asked().is_empty());
        assert!(bench.read(&second, 2, 0..5000).is_some());
        assert!(bench.read(&second, 1, long - 1..long).is_some());
        // What that lacks is fetched.
        assert_eq!(fetched(bench.ask(&second, 3, 0..1).await), 6000);
        assert_eq!(fetched(bench.ask(&second, 0, 0..1).await), 7000);
        // What is damaged there, too.
        let path = bench.publisher.store().partial_path(first.id);
        let third = bench.publish(&[(4, 8000), (1, 5000)]).await;
        std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .write_at(b"damaged", SUPERBLOCK_LEN as u64)
            .unwrap();
        bench.demand.cache.in_force(first.id);
        bench.demand.cache.in_force(third.id);
        assert_eq!(fetched(bench.ask(&third, 1, 0..1).await), 5000);
    });
}

/// A load as of a site: files of all lengths, of which few are asked for most.
#[test]
fn little_more_is_fetched_than_is_needed() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let len = |number: u64| match number % 50 {
            0 => UNIT_LEN_MAX + number * 10_000,
            1..=9 => 100_000 + number * 100,
            _ => 5000 + number * 40,
        };
        let blobs: Vec<_> = (0..200).map(|number| (number + 1, len(number))).collect();
        let release = bench.publish(&blobs).await;
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        // By rank to the power of -1: the inverse of the logarithm.
        let mut needed = std::collections::HashSet::new();
        let mut total = 0;
        for _ in 0..2000 {
            let rank = (200_f64.powf(random()) as u64).min(199);
            // Ranks are spread over the file.
            let blob = rank * 77 % 200;
            let len = len(blob);
            let mut at = 0;
            while at < len {
                total += fetched(bench.ask(&release, blob as u32, at..len).await);
                at += FETCH_LEN_MAX;
            }
            needed.insert(blob);
        }
        let needed: u64 = needed.into_iter().map(len).sum();
        let ratio = total as f64 / needed as f64;
        assert!((1.0..=1.01).contains(&ratio), "{ratio}");
    });
}
