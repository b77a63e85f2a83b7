//! Clients that ask for much do not hold up others.

use super::*;

impl Bench {
    /// Asks without waiting for the answer.
    fn say(&mut self, release: &Release, blob: u64, client: Option<u128>, is_ahead: bool) {
        let want = Want {
            client,
            is_ahead,
            ..want(release, blob as u32, 0..1)
        };
        self.demand.take(Message::Ask(want, Box::new(|_| {})));
    }

    /// Begins what can begin; returns the blobs that were requested for it, which all have one unit.
    async fn begun(&mut self, release: &Release) -> Vec<u64> {
        self.demand.advance();
        poll_fn(|context| {
            assert!(self.demand.poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        let cached = self.demand.cache.get(release.id).unwrap();
        let starts = |blob: &u64| cached.writer.unit(*blob).map(|it| it.offset).ok();
        let all: Vec<_> = (0..).map_while(|blob| starts(&blob)).collect();
        let asked = std::mem::take(&mut *self.liar.asked.lock().unwrap());
        let blob = |it: Range<u64>| all.iter().position(|start| *start == it.start);
        asked
            .into_iter()
            .map(|it| blob(it).unwrap() as u64)
            .collect()
    }
}

/// However much one client asks for: others do not wait for that, and all of it comes.
#[test]
fn clients_take_turns() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let count = 3 * FLIGHTS_MAX as u64;
        let blobs: Vec<_> = (0..=count).map(|seed| (seed, 5000)).collect();
        let release = bench.publish(&blobs).await;
        let of = |client, blob| Want {
            client: Some(client),
            ..want(&release, blob, 0..1)
        };
        let mut wants: Vec<_> = (0..count as u32).map(|blob| of(1, blob)).collect();
        wants.push(of(2, count as u32));
        let answers = bench.ask_all(wants).await;
        assert!(answers.iter().all(|it| fetched(*it) == 5000));
        let last = bench.demand.cache.unit(release.id, count).unwrap();
        let asked = bench.asked();
        let at = asked.iter().position(|it| it.start == last.offset).unwrap();
        assert!(at < FLIGHTS_MAX, "after {at} others");
        // Nor do they wait for what is on its way already.
        let release = bench.publish(&blobs[1..]).await;
        bench.restart(1 << 30);
        bench.lie(Lie::Silences);
        (1..count).for_each(|blob| bench.say(&release, blob, Some(1), false));
        assert_eq!(bench.begun(&release).await.len(), FLIGHTS_OF_CLIENT);
        bench.lie(Lie::None);
        let begun = Instant::now();
        let want = Want {
            client: Some(2),
            ..want(&release, 0, 0..1)
        };
        assert_eq!(fetched(bench.ask_all(vec![want]).await[0]), 5000);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    });
}

/// A page is completed before others begin, if it has no more files than a turn.
#[test]
fn a_turn_is_some_questions() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let (clients, each) = (FLIGHTS_MAX / TURN, TURN as u64 + 1);
        let count = clients as u64 * each;
        let blobs: Vec<_> = (0..=count).map(|seed| (seed, 5000)).collect();
        let release = bench.publish(&blobs).await;
        bench.lie(Lie::Silences);
        (0..count).for_each(|blob| {
            let client = u128::from(blob / each);
            bench.say(&release, blob, Some(client), false);
        });
        bench.say(&release, count, Some(clients as u128), false);
        let is_last_of_its_client = |blob: &u64| blob % each == each - 1;
        let expected: Vec<_> = (0..count).filter(|it| !is_last_of_its_client(it)).collect();
        assert_eq!(bench.begun(&release).await, expected);
        bench.demand.flights.clear();
        let mut expected: Vec<_> = (0..count).filter(is_last_of_its_client).collect();
        expected.insert(0, count);
        assert_eq!(bench.begun(&release).await, expected);
    });
}

/// What is asked ahead has a share, and takes no place of what is waited for.
#[test]
fn what_is_asked_ahead_leaves_room() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let count = QUESTIONS_MAX as u64;
        let blobs: Vec<_> = (0..count).map(|seed| (seed, 64)).collect();
        let release = bench.publish(&blobs).await;
        (0..2 * AHEAD_MAX as u64).for_each(|blob| bench.say(&release, blob, Some(1), true));
        assert_eq!(bench.demand.questions.len(), AHEAD_MAX);
        let used = |bench: &mut Bench| bench.demand.cache.get(release.id).unwrap().glimpse().1;
        // What is refused does not count as used.
        assert_eq!(used(&mut bench)[AHEAD_MAX - 1..=AHEAD_MAX], [1, 0]);
        // The same from others takes no place either.
        (0..AHEAD_MAX as u64).for_each(|blob| bench.say(&release, blob, Some(2), true));
        assert_eq!(bench.demand.waiting, AHEAD_MAX);
        (0..count).for_each(|blob| bench.say(&release, blob, Some(u128::from(blob)), true));
        assert_eq!(bench.demand.questions.len(), QUESTIONS_MAX / 2);
        (0..count).for_each(|blob| bench.say(&release, blob, Some(1), false));
        assert_eq!(bench.demand.questions.len(), QUESTIONS_MAX);
        bench.demand.advance();
        while bench.demand.waiting > 0 {
            poll_fn(|context| bench.demand.poll(context)).await;
            bench.demand.advance();
        }
        assert!((0..count).all(|blob| bench.read(&release, blob as u32, 0..64).is_some()));
    });
}

/// Who asks for what another client has asked for has a turn and a time of its own.
#[test]
fn an_equal_question_counts_for_all_that_ask_it() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let count = 3 * FLIGHTS_MAX as u64;
        let blobs: Vec<_> = (0..count).map(|seed| (seed, 5000)).collect();
        let release = bench.publish(&blobs).await;
        bench.lie(Lie::Silences);
        let last = count - 1;
        (0..count).for_each(|blob| bench.say(&release, blob, Some(1), false));
        bench.say(&release, last, Some(2), false);
        // Nobody comes nearer by asking twice.
        (0..=FLIGHTS_OF_CLIENT as u64).for_each(|_| bench.say(&release, last - 1, Some(1), false));
        let begun = bench.begun(&release).await;
        assert_eq!(begun.len(), FLIGHTS_OF_CLIENT + 1);
        assert!(begun.contains(&last) && !begun.contains(&(last - 1)));
        // All who have waited too long are answered, and not who came just now.
        let all = bench.demand.waiting;
        tokio::time::advance(BEGIN_TIMEOUT - Duration::from_secs(1)).await;
        bench.say(&release, last - 1, Some(2), true);
        assert_eq!(bench.demand.waiting, all, "it is asked for already");
        let held: Vec<_> = (0..FLIGHTS_MAX as u64)
            .map(|it| it + last - 1 - FLIGHTS_MAX as u64)
            .collect();
        held.iter()
            .for_each(|blob| bench.say(&release, *blob, Some(3), false));
        tokio::time::advance(Duration::from_secs(1)).await;
        bench.demand.advance();
        // Two wait for the last one.
        let of_begun = begun.len() + 1;
        assert_eq!(bench.demand.waiting, of_begun + held.len());
        tokio::time::advance(BEGIN_TIMEOUT).await;
        bench.demand.advance();
        let more = FLIGHTS_MAX - begun.len();
        assert_eq!(bench.demand.waiting, of_begun + more);
    });
}

/// Those whose clients are not known take turns with others as three clients do, and what they may need later comes
/// last.
#[test]
fn those_without_a_client_are_not_in_front() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let count = 4 * FLIGHTS_MAX as u64;
        let blobs: Vec<_> = (0..count).map(|seed| (seed, 5000)).collect();
        let release = bench.publish(&blobs).await;
        bench.lie(Lie::Silences);
        let many = FLIGHTS_MAX as u64;
        (0..many).for_each(|blob| bench.say(&release, blob, None, true));
        (many..2 * many).for_each(|blob| bench.say(&release, blob, None, false));
        bench.say(&release, 3 * many, Some(1), true);
        bench.say(&release, 3 * many + 1, Some(2), false);
        let begun = bench.begun(&release).await;
        let of_none = |range: Range<u64>| begun.iter().filter(|it| range.contains(it)).count();
        assert_eq!(begun.len(), FLIGHTS_MAX);
        assert_eq!(begun[..=FLIGHTS_OF_CLIENT].last(), Some(&(3 * many + 1)));
        assert_eq!(begun[FLIGHTS_OF_CLIENT + 1], 3 * many);
        assert_eq!(of_none(0..many), 0, "nobody waits for these");
        // Alone, these leave some flights to others, too.
        bench.demand.questions.clear();
        bench.demand.flights.clear();
        (2 * many..3 * many).for_each(|blob| bench.say(&release, blob, None, true));
        assert_eq!(bench.begun(&release).await.len(), FLIGHTS_OF_CLIENT);
    });
}

/// All flights are theirs, also while the disk is slow to take what has come.
#[test]
fn those_without_a_client_do_not_wait_for_a_sync() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let count = 4 * FLIGHTS_MAX as u64;
        let blobs: Vec<_> = (0..count).map(|seed| (seed, 5000)).collect();
        let release = bench.publish(&blobs).await;
        bench.demand.syncing = Some(tokio::spawn(pending()));
        (0..count).for_each(|blob| bench.say(&release, blob, None, false));
        loop {
            bench.demand.advance();
            if bench.demand.flights.is_empty() {
                break;
            }
            poll_fn(|context| bench.demand.poll(context)).await;
        }
        assert_eq!(bench.asked().len() as u64, count);
        assert_eq!(bench.demand.waiting as u64, count, "none is answered");
    });
}
