//! Clients that ask for much do not hold up others.

use super::*;

impl Bench {
    /// Asks without waiting for the answer.
    fn say(&mut self, release: &Release, blob: u64, client: u128, is_ahead: bool) {
        let want = Want {
            client: Some(client),
            is_ahead,
            ..want(release, blob as u32, 0..1)
        };
        self.demand.take(Message::Ask(want, Box::new(|_| {})));
    }
}

/// However much one client asks for: others do not wait for that, and all of it comes.
#[test]
fn clients_take_turns() {
    run(async || {
        let mut bench = Bench::new(SETTINGS);
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
        (1..count).for_each(|blob| bench.say(&release, blob, 1, false));
        bench.demand.advance();
        poll_fn(|context| {
            assert!(bench.demand.poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(bench.asked().len(), FLIGHTS_OF_CLIENT);
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

/// What is asked ahead has a share, and takes no place of what is waited for.
#[test]
fn what_is_asked_ahead_leaves_room() {
    run(async || {
        let mut bench = Bench::new(SETTINGS);
        let count = QUESTIONS_MAX as u64;
        let blobs: Vec<_> = (0..count).map(|seed| (seed, 64)).collect();
        let release = bench.publish(&blobs).await;
        (0..2 * AHEAD_MAX as u64).for_each(|blob| bench.say(&release, blob, 1, true));
        assert_eq!(bench.demand.questions.len(), AHEAD_MAX);
        // The same from others takes no place either.
        (0..AHEAD_MAX as u64).for_each(|blob| bench.say(&release, blob, 2, true));
        assert_eq!(bench.demand.waiting, AHEAD_MAX);
        (0..count).for_each(|blob| bench.say(&release, blob, u128::from(blob), true));
        assert_eq!(bench.demand.questions.len(), QUESTIONS_MAX / 2);
        (0..count).for_each(|blob| bench.say(&release, blob, 1, false));
        assert_eq!(bench.demand.questions.len(), QUESTIONS_MAX);
        bench.demand.advance();
        while bench.demand.waiting > 0 {
            poll_fn(|context| bench.demand.poll(context)).await;
            bench.demand.advance();
        }
        assert!((0..count).all(|blob| bench.read(&release, blob as u32, 0..64).is_some()));
    });
}
