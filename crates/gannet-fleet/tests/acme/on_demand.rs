//! Hosts that are named while an orderer runs: somebody waits for each.

use std::fs;

use gannet_fleet::limits::{LOOKS_PAUSE_S, ON_DEMAND_HOSTS_ORDERS_PER_HOUR, RENEWAL_LOOK_LEAST};

use crate::stage::{HOUR, Stage, says};

/// Whoever waits for a certificate does not wait until a server has told when to renew others.
#[test]
fn orders_do_not_wait_for_looks_that_hang() {
    let stage = Stage::new();
    stage.ca.state().do_looks_hang = true;
    let mut orderer = stage.open();
    for name in ["one.test", "two.test"] {
        orderer.add(name, stage.now.get());
    }
    let (_, told) = stage.round(&mut orderer);
    says(
        &told,
        &["ordered one.test", "ordered two.test", "ordered a.test"],
    );
    stage.pass(RENEWAL_LOOK_LEAST.as_secs().cast_signed());
    let (renewals, told) = stage.round(&mut orderer);
    says(&told, &[]);
    assert_eq!(stage.ca.count("look"), 1, "one is enough for a round");
    assert_eq!((renewals.waiting, renewals.next.as_secs()), (2, 1));
    orderer.add("new.test", stage.now.get());
    stage.pass(1);
    let (renewals, told) = stage.round(&mut orderer);
    says(&told, &["ordered new.test"]);
    assert_eq!(renewals.waiting, 0);
    // The others come to their turn when the pause is over, as does this one, which was ordered first.
    stage.pass(RENEWAL_LOOK_LEAST.as_secs().cast_signed());
    let (renewals, told) = stage.round(&mut orderer);
    says(&told, &[]);
    assert_eq!(stage.ca.count("look"), 1, "and for a while");
    assert!(renewals.next.as_secs().cast_signed() < LOOKS_PAUSE_S);
}

/// A server that is started again and again names its hosts anew each time.
#[test]
fn orders_of_an_hour_are_counted_over_restarts() {
    let stage = Stage::new();
    let name_and_round = |name: &str| {
        let mut orderer = stage.open();
        orderer.add(name, stage.now.get());
        stage.round(&mut orderer)
    };
    let (_, told) = name_and_round("first.test");
    says(&told, &["ordered first.test", "ordered a.test"]);
    // It is as if all of the hour's orders had been made then.
    let history = stage.files("history-").pop().expect("kept");
    let text = fs::read_to_string(&history).expect("readable");
    let now = stage.now.get().to_string();
    let times = vec![now.as_str(); ON_DEMAND_HOSTS_ORDERS_PER_HOUR].join(",");
    let full = text.replace(&format!("\n+ {now}\n"), &format!("\n+ {times}\n"));
    assert_ne!(full, text, "{text}");
    fs::write(&history, full).expect("written");
    stage.pass(HOUR - 1);
    for _ in 0..2 {
        let (renewals, told) = name_and_round("second.test");
        says(&told, &[]);
        assert_eq!((renewals.waiting, renewals.next.as_secs()), (1, 1));
    }
    stage.pass(1);
    let (_, told) = name_and_round("second.test");
    says(&told, &["ordered second.test"]);
}
