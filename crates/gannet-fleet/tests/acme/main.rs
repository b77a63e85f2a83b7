//! Orderers and an ACME server: what fails, what is lost, and what is kept over a restart.

mod accounts;
mod ca;
mod on_demand;
mod stage;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use gannet_fleet::acme::OrderSettings;
use gannet_fleet::limits::{STARTS_PER_HOUR, WRITE_BACK_OFF_MOST};
use stage::{HOUR, Stage, says};

#[test]
fn a_certificate_is_ordered_once_and_in_its_file() {
    let stage = Stage::new();
    let mut orderer = stage.open();
    let (renewals, told) = stage.round(&mut orderer);
    says(&told, &["ordered a.test"]);
    assert_eq!((renewals.failing, renewals.waiting), (0, 0));
    drop(orderer);
    let (renewals, told) = stage.round(&mut stage.open());
    says(&told, &[]);
    assert!(renewals.next > Duration::from_secs(60), "{renewals:?}");
    assert_eq!(stage.ca.count("newOrder"), 1);
    let left = fs::read_dir(stage.folder.join("certificates")).expect("readable");
    assert_eq!(left.count(), 1, "no draft");
}

/// Whoever asks a server for names does not have its operator's own certificates replaced.
#[test]
fn certificates_that_were_not_ordered_are_left_alone() {
    let stage = Stage::new();
    let mut orderer = stage.open();
    stage.round(&mut orderer);
    let ordered = fs::read_to_string(stage.certificate()).expect("readable");
    let (_, own) = ordered.split_once('\n').expect("a first line");
    let file = stage.folder.join("certificates/own.test.pem");
    fs::write(&file, own).expect("written");
    for name in ["own.test", "new.test"] {
        orderer.add(name, stage.now.get());
    }
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["ordered new.test"]);
    assert_eq!(fs::read_to_string(&file).expect("readable"), own);
}

#[test]
fn whoever_is_started_again_and_again_does_not_order_again_and_again() {
    let stage = Stage::new();
    stage.refuse(9, "newOrder", "rejectedIdentifier");
    for number in 0..5 {
        let (renewals, told) = stage.round(&mut stage.open());
        assert_eq!(renewals.failing, 1);
        match number < STARTS_PER_HOUR {
            true => says(&told, &["as it was told (rejectedIdentifier)"]),
            false => says(
                &told,
                &["cannot get a certificate for 'a.test' yet: it has failed 3 times"],
            ),
        }
        stage.pass(60);
    }
    assert_eq!(stage.ca.count("newOrder"), STARTS_PER_HOUR);
    // It waits no longer than this process would have, and says how not to wait at all.
    let mut orderer = stage.open();
    let (renewals, told) = stage.round(&mut orderer);
    assert!(told[0].contains("to try at once, remove '"), "{told:?}");
    stage.pass(renewals.next.as_secs().cast_signed());
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["rejectedIdentifier"]);
    drop(orderer);
    let history = stage.files("history-").pop().expect("kept");
    fs::remove_file(&history).expect("removed");
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["rejectedIdentifier"]);
    // Another server has nothing to do with that.
    let other = Stage {
        settings: OrderSettings {
            server: stage.ca.url("other"),
            ..OrderSettings::default()
        },
        ..stage
    };
    other.ca.state().refused.clear();
    let (_, told) = other.round(&mut other.open());
    says(&told, &["ordered a.test"]);
    assert_eq!(other.files("history-").len(), 2);
}

#[test]
fn a_damaged_history_is_said_and_ignored() {
    let stage = Stage::new();
    stage.round(&mut stage.open());
    let history = stage.files("history-").pop().expect("kept");
    fs::write(&history, "damaged").expect("written");
    fs::remove_file(stage.certificate()).expect("removed");
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["ordered a.test", "warning: cannot use '"]);
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &[]);
}

#[test]
fn certificates_of_a_week_are_counted_over_restarts() {
    let stage = Stage::new();
    for number in 0..6 {
        let (_, told) = stage.round(&mut stage.open());
        match number < 4 {
            true => says(&told, &["ordered a.test"]),
            false => says(&told, &["is the clock of this machine right?"]),
        }
        let _ = fs::remove_file(stage.certificate());
        stage.pass(60);
    }
    assert_eq!(stage.ca.count("newOrder"), 4);
    stage.pass(7 * 24 * HOUR);
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["ordered a.test"]);
}

#[test]
fn certificates_of_a_day_are_renewed_in_their_time_for_a_month() {
    let stage = Stage::new();
    let mut orderer = stage.open();
    stage.ca.state().authorizations.extend(["valid"; 60]);
    let end = stage.now.get() + 30 * 24 * HOUR;
    let (mut until, mut count) = (stage.now.get(), 0);
    while stage.now.get() < end {
        stage.ca.state().validity = Some((stage.now.get(), 24 * HOUR));
        let (renewals, told) = stage.round(&mut orderer);
        if !told.is_empty() {
            says(&told, &["ordered a.test"]);
            assert!(stage.now.get() <= until, "there always is one");
            until = stage.now.get() + 24 * HOUR - 60;
            count += 1;
        }
        stage.pass(renewals.next.as_secs().cast_signed());
    }
    assert!((40..50).contains(&count), "{count}");
}

#[test]
fn nothing_is_ordered_that_could_not_be_written() {
    let stage = Stage::new();
    let mut orderer = stage.open();
    let folder = stage.folder.join("certificates");
    fs::remove_dir(&folder).expect("empty");
    let (renewals, told) = stage.round(&mut orderer);
    says(&told, &["cannot write '"]);
    assert!(renewals.next <= WRITE_BACK_OFF_MOST);
    assert_eq!(stage.ca.state().asked, [""; 0]);
    fs::create_dir(&folder).expect("made");
    stage.pass(HOUR);
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["ordered a.test"]);
}

/// Makes the file of the certificate impossible, until the folder is removed that is returned.
fn in_the_way(stage: &Stage) -> PathBuf {
    let folder = stage.folder.join("certificates/.a.test.pem.new");
    let made = folder.join("x");
    let meanwhile = move || fs::create_dir_all(made).expect("made");
    stage.ca.state().meanwhile = Some(Box::new(meanwhile));
    folder
}

#[test]
fn a_certificate_that_cannot_be_written_is_kept_and_none_is_ordered_meanwhile() {
    let stage = Stage::new();
    stage.thumbprint(&mut stage.open());
    let folder = in_the_way(&stage);
    let mut orderer = stage.open();
    for _ in 0..8 {
        let (renewals, told) = stage.round(&mut orderer);
        says(&told, &["a.test.pem': file exists (EEXIST)"]);
        // It is tried again every ten minutes at least: nobody but this machine has work with that.
        assert!(renewals.next <= WRITE_BACK_OFF_MOST);
        stage.pass(renewals.next.as_secs().cast_signed());
    }
    fs::remove_dir_all(&folder).expect("there");
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["ordered a.test"]);
    assert_eq!(stage.ca.count("newOrder"), 1);
}

#[test]
fn after_a_restart_the_same_order_is_gone_on_with() {
    let stage = Stage::new();
    stage.thumbprint(&mut stage.open());
    let folder = in_the_way(&stage);
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["cannot write '"]);
    fs::remove_dir_all(&folder).expect("there");
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["ordered a.test"]);
    assert_eq!(
        (stage.ca.count("newOrder"), stage.ca.count("finalize")),
        (1, 1)
    );
}

#[test]
fn an_order_whose_answer_is_lost_is_gone_on_with() {
    for kind in ["finalize", "challenge", "certificate"] {
        let stage = Stage::new();
        let mut orderer = stage.open();
        stage.ca.state().unanswered.push_back(kind);
        let (renewals, told) = stage.round(&mut orderer);
        says(&told, &["cannot get a certificate for 'a.test'"]);
        stage.pass(renewals.next.as_secs().cast_signed());
        let (_, told) = stage.round(&mut orderer);
        says(&told, &["ordered a.test"]);
        let counts = (stage.ca.count("newOrder"), stage.ca.count("finalize"));
        assert_eq!(counts, (1, 1), "{kind}");
    }
}

/// The library sends each request three times.
#[test]
fn a_nonce_that_is_refused_is_no_failure() {
    for kind in [
        "newAccount",
        "newOrder",
        "challenge",
        "finalize",
        "certificate",
    ] {
        let stage = Stage::new();
        stage.refuse(8, kind, "badNonce");
        let (_, told) = stage.round(&mut stage.open());
        says(&told, &["ordered a.test"]);
        assert!(stage.ca.state().refused.is_empty(), "{kind}");
        let stage = Stage::new();
        stage.refuse(9, kind, "badNonce");
        let (_, told) = stage.round(&mut stage.open());
        says(&told, &["(badNonce)"]);
        assert!(stage.ca.state().refused.is_empty(), "{kind}");
    }
}

/// Other hosts have their certificates meanwhile, and the order is gone on with.
#[test]
fn an_order_that_hangs_lets_others_go_on() {
    let mut stage = Stage::new();
    stage.settings.patience = Duration::from_secs(5);
    let mut orderer = stage.open_for(&["a.test", "b.test"]);
    stage.ca.state().never_proved = Some("a.test");
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["the order does not complete", "ordered b.test"]);
    stage.ca.state().never_proved = None;
    stage.ca.state().prove_all();
    stage.pass(HOUR);
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["ordered a.test"]);
    assert_eq!(stage.ca.count("newOrder"), 2);
}

#[test]
fn an_authorization_that_is_revoked_or_deactivated_leads_to_a_new_order() {
    for status in ["revoked", "deactivated", "expired"] {
        let stage = Stage::new();
        stage.ca.state().authorizations.push_back(status);
        let (_, told) = stage.round(&mut stage.open());
        says(&told, &["ordered a.test"]);
        assert_eq!(stage.ca.count("newOrder"), 2, "{status}");
    }
    // It was still valid when the order was made, and is not when it comes to its end.
    for problem in ["unauthorized", "orderNotReady"] {
        let stage = Stage::new();
        stage.ca.state().authorizations.push_back("valid");
        stage.refuse(1, "finalize", problem);
        let (_, told) = stage.round(&mut stage.open());
        says(&told, &["ordered a.test"]);
        assert_eq!(stage.ca.count("newOrder"), 2, "{problem}");
    }
    // One new order, and no more.
    let stage = Stage::new();
    stage.ca.state().authorizations.extend(["revoked"; 9]);
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["the authorization is revoked"]);
    assert_eq!(stage.ca.count("newOrder"), 2);
    let stage = Stage::new();
    stage.ca.state().authorizations.push_back("invalid");
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["the authorization is invalid"]);
    assert_eq!(stage.ca.count("newOrder"), 1);
}

#[test]
fn a_file_is_not_replaced_by_what_is_no_chain() {
    let stage = Stage::new();
    stage.round(&mut stage.open());
    let before = fs::read(stage.certificate()).expect("there");
    for (rest, why) in [
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "'PRIVATE KEY' beside",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "the server's certificate: ",
        ),
    ] {
        stage.ca.state().rest = Some(rest.to_owned());
        stage.pass(80 * 24 * HOUR);
        let (_, told) = stage.round(&mut stage.open());
        says(&told, &[why]);
        assert_eq!(fs::read(stage.certificate()).expect("there"), before);
        stage.pass(-80 * 24 * HOUR);
    }
    // Words between certificates do not come into the file.
    stage.ca.state().rest = Some("<script>\n".into());
    stage.pass(81 * 24 * HOUR);
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["ordered a.test"]);
    let after = fs::read_to_string(stage.certificate()).expect("there");
    assert!(!after.contains("<script>") && after.as_bytes() != before);
}
