//! What goes for want of room, and what comes before it is requested.

use super::*;
use crate::limits::ROOM_SHARE;

/// The room is never exceeded, what is used stays, and no wrong byte is taken for right.
#[test]
fn what_is_used_least_gives_way() {
    run(async || {
        let len = 100_000;
        let blobs: Vec<_> = (0..40).map(|seed| (seed, len)).collect();
        let mut bench = Bench::new(ROOM);
        let release = bench.publish(&blobs).await;
        let head = bench.demand.cache.allocated().unwrap();
        let room = head + 20 * len;
        bench.restart(room);
        let hot = 0..8;
        for round in 0..4 {
            for blob in 0..40 {
                bench.ask(&release, blob, 0..1).await;
                assert!(bench.read(&release, blob, 0..len).is_some());
                assert!(bench.demand.cache.allocated().unwrap() <= room);
                for blob in hot.clone() {
                    bench.demand.take(Message::Used(want(&release, blob, 0..1)));
                }
            }
            bench.asked();
            for blob in hot.clone() {
                assert_eq!(fetched(bench.ask(&release, blob, 0..1).await), 0, "{round}");
            }
        }
        // Less than one blob fits.
        bench.restart(head + len / 2);
        let answer = bench.ask(&release, 39, 0..1).await;
        if let Answer::Failed(reason, _) = answer {
            assert_eq!(reason, Reason::NoRoom);
        }
        let lacking = (0..40).find(|blob| bench.read(&release, *blob, 0..len).is_none());
        let answer = bench.ask(&release, lacking.unwrap(), 0..1).await;
        assert_eq!(failed(answer).0, Reason::NoRoom);
        assert!(bench.demand.cache.allocated().unwrap() <= room);
    });
}

/// Units that are hot go when there are too few others.
#[test]
fn as_much_is_removed_as_was_asked_for() {
    run(async || {
        let len = 25 * 4096;
        let mut bench = Bench::new(ROOM_SHARE * 6 * len);
        let blobs: Vec<_> = (0..20).map(|seed| (seed, len)).collect();
        let release = bench.publish(&blobs).await;
        for _ in 0..9 {
            for blob in 0..20 {
                if ![3, 9, 15].contains(&blob) {
                    bench.ask(&release, blob, 0..1).await;
                }
            }
        }
        for blob in [3, 9, 15] {
            bench.ask(&release, blob, 0..1).await;
        }
        let before = bench.demand.cache.allocated().unwrap();
        assert!(bench.demand.cache.give_way().unwrap());
        let freed = before - bench.demand.cache.allocated().unwrap();
        assert_eq!(freed, 6 * len);
        for blob in [3, 9, 15] {
            assert_eq!(bench.read(&release, blob, 0..len), None);
        }
    });
}

/// What cannot give way leaves no room: then nothing else goes in vain.
#[test]
fn nothing_is_removed_in_vain() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let release = bench.publish(&[(1, 5000), (2, 6000)]).await;
        bench.ask(&release, 0, 0..1).await;
        let [_, releases] = bench.demand.cache.folders();
        std::fs::write(releases.join("whole"), vec![1; 1 << 20]).unwrap();
        bench.restart(1 << 20);
        let answer = bench.ask(&release, 1, 0..1).await;
        assert_eq!(failed(answer).0, Reason::NoRoom);
        assert!(bench.read(&release, 0, 0..5000).is_some());
    });
}

/// After a restart, too, what earlier releases have gives way.
#[test]
fn what_is_not_open_gives_way() {
    run(async || {
        let len = 100_000;
        let mut bench = Bench::new(ROOM);
        let blobs = |seed: u64| {
            (seed..seed + 10)
                .map(|seed| (seed, len))
                .collect::<Vec<_>>()
        };
        let first = bench.publish(&blobs(100)).await;
        let second = bench.publish(&blobs(200)).await;
        for blob in 0..10 {
            bench.ask(&first, blob, 0..1).await;
        }
        let room = bench.demand.cache.allocated().unwrap() + 2 * len;
        bench.restart(room);
        for blob in 0..10 {
            assert_eq!(fetched(bench.ask(&second, blob, 0..1).await), len);
        }
        assert!(bench.demand.cache.allocated().unwrap() <= room);
        for blob in 0..10 {
            assert!(bench.read(&second, blob, 0..len).is_some(), "{blob}");
        }
    });
}

/// Of too many blobs there is no table.
#[test]
fn of_a_release_with_too_many_blobs_nothing_is_copied() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let first = bench.publish(&[(1, 5000), (2, 6000)]).await;
        let second = bench.publish(&[(1, 5000), (3, 7000)]).await;
        bench.ask(&first, 0, 0..1).await;
        let unit = bench.demand.cache.unit(second.id, 0).unwrap();
        for (most, is_copied) in [(1, false), (2, true), (1, false)] {
            let cached = bench.demand.cache.get(first.id).unwrap();
            cached.list_digests(most);
            let copy = bench.demand.cache.copy_of(second.id, &unit);
            assert_eq!(copy.is_some(), is_copied, "{most}");
        }
    });
}

/// What has the path of what was used most comes first; what was not used does not come.
#[test]
fn a_release_is_warmed_by_the_use_of_the_one_before() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let blobs = |seed: u64| [0, 1, 2, 3, 4].map(|number| (seed + number, 5000 + 1000 * number));
        let first = bench.publish(&blobs(10)).await;
        let [mut changed, others] = [blobs(20), blobs(10)];
        // The first of the new release is as before, and its second one is new.
        changed[0] = others[0];
        let second = bench.publish(&changed).await;
        bench.demand.take(Message::InForce(first.id));
        for (blob, uses) in [(0, 9), (3, 5), (1, 3), (4, 1)] {
            for _ in 0..uses {
                bench.ask(&first, blob, 0..1).await;
            }
        }
        bench.asked();
        bench.demand.take(Message::InForce(second.id));
        bench.until_idle().await;
        let lens: Vec<_> = bench
            .asked()
            .into_iter()
            .map(|it| it.end - it.start)
            .collect();
        assert_eq!(lens, [8000, 6000, 9000]);
        for (blob, len) in [(0, 5000), (1, 6000), (3, 8000), (4, 9000)] {
            assert!(bench.read(&second, blob, 0..len).is_some(), "{blob}");
        }
        assert_eq!(bench.read(&second, 2, 0..7000), None);
        // A store that fails is not asked for what no server waits for.
        let third = bench.publish(&blobs(30)).await;
        for blob in [0, 1, 3, 4] {
            bench.ask(&second, blob, 0..1).await;
        }
        bench.lie(Lie::Nothing);
        bench.asked();
        bench.demand.take(Message::InForce(third.id));
        bench.until_idle().await;
        assert!(bench.asked().len() <= WARMING_FLIGHTS);
    });
}

/// The follower names the release in force after each round.
#[test]
fn a_release_is_warmed_once() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let first = bench.publish(&[(1, 5000)]).await;
        let second = bench.publish(&[(2, 6000)]).await;
        bench.demand.take(Message::InForce(first.id));
        bench.ask(&first, 0, 0..1).await;
        bench.demand.take(Message::InForce(second.id));
        bench.until_idle().await;
        assert!(bench.read(&second, 0, 0..6000).is_some());
        bench.asked();
        let cached = bench.demand.cache.get(second.id).unwrap();
        cached.writer.remove(&[0]).unwrap();
        bench.demand.take(Message::InForce(second.id));
        bench.until_idle().await;
        assert!(bench.asked().is_empty());
    });
}

#[test]
fn warming_leaves_room_for_what_is_asked_for() {
    run(async || {
        let mut bench = Bench::new(ROOM);
        let blobs = |seed: u64| (0..10).map(|it| (seed + it, 30_000)).collect::<Vec<_>>();
        let first = bench.publish(&blobs(10)).await;
        let second = bench.publish(&blobs(20)).await;
        bench.restart(WARMED_SHARE * 100_000);
        bench.demand.take(Message::InForce(first.id));
        for blob in 0..10 {
            bench.ask(&first, blob, 0..1).await;
        }
        bench.asked();
        bench.demand.take(Message::InForce(second.id));
        bench.until_idle().await;
        assert_eq!(bench.asked().len(), 3);
    });
}
