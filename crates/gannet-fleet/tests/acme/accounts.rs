//! Accounts: made once, kept, and replaced where a server has lost them.

use std::fs;

use gannet_fleet::acme::{Binding, Orderer};
use gannet_fleet::limits::STARTS_PER_HOUR;
use serde_json::json;

use crate::stage::{HOUR, Stage, says};

#[test]
fn an_account_is_not_asked_for_again_and_again_either() {
    let stage = Stage::new();
    stage.refuse(9, "newAccount", "rateLimited");
    for number in 0..5 {
        let mut orderer = stage.open();
        let refused = orderer.thumbprint(stage.now.get()).expect_err("refused");
        let expect = match number < STARTS_PER_HOUR {
            true => "(rateLimited)",
            false => "yet: it has failed 3 times in a row",
        };
        assert!(refused.to_string().contains(expect), "{refused}");
        // Nor by the host that needs it.
        let (_, told) = stage.round(&mut orderer);
        says(&told, &["cannot get an account at"]);
        stage.pass(60);
    }
    assert_eq!(stage.ca.count("newAccount"), STARTS_PER_HOUR);
    stage.ca.state().refused.clear();
    stage.pass(HOUR);
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["ordered a.test"]);
}

/// A stage whose server has lost an account, or closed it; with an orderer that has it, and its thumbprint.
fn without_account(is_closed: bool) -> (Stage, Orderer, String) {
    let stage = Stage::new();
    let mut orderer = stage.open();
    let thumbprint = stage.thumbprint(&mut orderer);
    stage.ca.state().forget_accounts(is_closed);
    (stage, orderer, thumbprint)
}

#[test]
fn an_account_that_the_server_has_lost_is_made_anew_with_the_same_key_once_a_day() {
    let (stage, mut orderer, thumbprint) = without_account(false);
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["replaced", "ordered a.test"]);
    assert_eq!(stage.thumbprint(&mut orderer), thumbprint);
    assert_eq!(*stage.thumbprints.borrow(), [""; 0], "it is the same");
    assert_eq!(stage.files("account-").len(), 2, "the earlier one is kept");
    let made = stage.ca.count("newAccount");
    drop(orderer);
    // Again, and again: not within a day.
    stage.ca.state().forget_accounts(false);
    for _ in 0..2 {
        fs::remove_file(stage.certificate()).ok();
        let (_, told) = stage.round(&mut stage.open());
        says(&told, &["is gone again, less than a day after"]);
    }
    assert_eq!(stage.ca.count("newAccount"), made);
    stage.pass(25 * HOUR);
    let (_, told) = stage.round(&mut stage.open());
    says(&told, &["replaced", "ordered a.test"]);
}

/// Servers answer challenges for the thumbprint that they were given.
#[test]
fn a_key_stays_however_often_making_its_account_anew_fails() {
    for is_restarted in [false, true] {
        for is_refused in [true, false] {
            let (stage, mut orderer, thumbprint) = without_account(false);
            match is_refused {
                true => stage.refuse(2, "newAccount", "rateLimited"),
                false => stage.ca.state().unanswered.extend(["newAccount"; 2]),
            }
            for _ in 0..2 {
                let (renewals, told) = stage.round(&mut orderer);
                says(&told, &["cannot get an account at"]);
                stage.pass(renewals.next.as_secs().cast_signed());
                if is_restarted {
                    drop(orderer);
                    orderer = stage.open();
                }
            }
            let (_, told) = stage.round(&mut orderer);
            says(&told, &["replaced", "ordered a.test"]);
            assert_eq!(stage.thumbprint(&mut orderer), thumbprint);
            drop(orderer);
            let again = stage.thumbprint(&mut stage.open());
            assert_eq!(again, thumbprint, "{is_restarted}, {is_refused}");
            assert_eq!(stage.files("account-").len(), 2, "no draft is left");
        }
    }
}

#[test]
fn a_key_that_a_server_refuses_may_be_removed() {
    let (stage, mut orderer, thumbprint) = without_account(false);
    let refused = [("newAccount", "unauthorized"), ("newAccount", "connection")];
    stage.ca.state().refused.extend(refused);
    let draft = || {
        stage
            .files("account-")
            .into_iter()
            .find(|path| path.extension().is_some_and(|it| it == "draft"))
    };
    let (renewals, told) = stage.round(&mut orderer);
    let file = draft().expect("kept");
    let help = format!("remove '{}', and the account is made", file.display());
    says(&told, &[&help]);
    // Names and ports have nothing to do with an account.
    stage.pass(renewals.next.as_secs().cast_signed());
    let (renewals, told) = stage.round(&mut orderer);
    says(&told, &["(connection); None"]);
    fs::remove_file(&file).expect("there");
    stage.pass(renewals.next.as_secs().cast_signed());
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["replaced", "ordered a.test"]);
    assert_ne!(stage.thumbprint(&mut orderer), thumbprint);
}

#[test]
fn an_account_that_was_deactivated_is_replaced_by_one_with_another_key_which_is_told() {
    for failures in [0, 2] {
        let (stage, mut orderer, thumbprint) = without_account(true);
        stage.refuse(failures, "newAccount", "rateLimited");
        for _ in 0..failures {
            let (renewals, told) = stage.round(&mut orderer);
            says(&told, &["cannot get an account at"]);
            stage.pass(renewals.next.as_secs().cast_signed());
        }
        let (_, told) = stage.round(&mut orderer);
        says(&told, &["replaced", "ordered a.test"]);
        let other = stage.thumbprint(&mut orderer);
        assert_ne!(other, thumbprint);
        assert_eq!(*stage.thumbprints.borrow(), [other], "{failures}");
    }
}

#[test]
fn a_thumbprint_is_told_as_soon_as_there_is_an_account() {
    let stage = Stage::new();
    stage.refuse(1, "newAccount", "rateLimited");
    let mut orderer = stage.open();
    let why = orderer.thumbprint(stage.now.get()).expect_err("refused");
    assert!(why.to_string().contains("rateLimited"), "{why}");
    stage.pass(HOUR);
    for _ in 0..2 {
        stage.round(&mut orderer);
    }
    let thumbprint = stage.thumbprint(&mut orderer);
    assert_eq!(*stage.thumbprints.borrow(), [thumbprint], "once");
}

#[test]
fn an_account_that_is_refused_an_order_and_is_there_is_kept() {
    let stage = Stage::new();
    // With the word for an account that was closed.
    stage.refuse(1, "newOrder", "unauthorized");
    let (_, told) = stage.round(&mut stage.open());
    says(
        &told,
        &["cannot get a certificate for 'a.test': as it was told (unauthorized)"],
    );
    assert_eq!(stage.files("account-").len(), 1);
}

#[test]
fn an_account_that_cannot_be_written_is_not_made_again() {
    let stage = Stage::new();
    let mut orderer = stage.open();
    stage.thumbprint(&mut orderer);
    let (path, _) = stage.account();
    fs::remove_file(&path).expect("there");
    drop(orderer);
    let mut orderer = stage.open();
    let made = path.clone();
    let meanwhile = move || fs::create_dir_all(made.join("x")).expect("made");
    stage.ca.state().meanwhile = Some(Box::new(meanwhile));
    let (_, told) = stage.round(&mut orderer);
    says(&told, &["ordered a.test", "warning: cannot write '"]);
    let made = stage.ca.count("newAccount");
    for _ in 0..3 {
        fs::remove_file(stage.certificate()).expect("there");
        stage.pass(HOUR);
        let (_, told) = stage.round(&mut orderer);
        says(&told, &["ordered a.test", "warning: cannot write '"]);
    }
    assert_eq!(stage.ca.count("newAccount"), made);
    fs::remove_dir_all(&path).expect("there");
    let thumbprint = stage.thumbprint(&mut orderer);
    drop(orderer);
    let again = stage.thumbprint(&mut stage.open());
    assert_eq!((again, stage.ca.count("newAccount")), (thumbprint, made));
    // Where nothing can be written, none is made.
    let stage = Stage::new();
    let mut orderer = stage.open();
    fs::remove_dir_all(stage.folder.path()).expect("there");
    let why = orderer.thumbprint(stage.now.get()).expect_err("refused");
    assert!(why.to_string().starts_with("cannot write '"), "{why}");
    assert_eq!(stage.ca.count("newAccount"), 0);
}

#[test]
fn accounts_belong_to_a_directory_and_former_names_are_found() {
    let mut stage = Stage::new();
    let one = stage.thumbprint(&mut stage.open());
    let (path, _) = stage.account();
    let port = stage
        .settings
        .server
        .split([':', '/'])
        .nth(4)
        .expect("a port");
    let former = stage.folder.join(format!("account-127.0.0.1_{port}.json"));
    fs::rename(&path, &former).expect("there");
    // Another directory of the host leaves it alone.
    stage.settings.server = stage.ca.url("two");
    let two = stage.thumbprint(&mut stage.open());
    assert!(one != two && former.exists());
    stage.settings.server = stage.ca.url("one");
    let again = stage.thumbprint(&mut stage.open());
    assert_eq!(again, one);
    assert!(path.exists() && !former.exists());
    assert_eq!(stage.ca.count("newAccount"), 2);
}

#[test]
fn another_address_is_told_and_another_binding_is_said_to_have_no_effect() {
    let mut stage = Stage::new();
    let thumbprint = |stage: &Stage| {
        let mut orderer = stage.open();
        stage.thumbprint(&mut orderer);
        let warnings = orderer.warnings();
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    stage.settings.email = Some("a@a.test".into());
    says(&thumbprint(&stage), &[]);
    says(&thumbprint(&stage), &[]);
    assert_eq!(
        (stage.ca.count("newAccount"), stage.ca.count("account")),
        (1, 0)
    );
    stage.settings.email = Some("b@a.test".into());
    stage.refuse(1, "account", "invalidContact");
    says(
        &thumbprint(&stage),
        &["cannot change the address of the account"],
    );
    says(&thumbprint(&stage), &[]);
    assert_eq!(stage.ca.state().contact(), json!(["mailto:b@a.test"]));
    assert_eq!(stage.account().1["contact"], json!(["mailto:b@a.test"]));
    says(&thumbprint(&stage), &[]);
    // None at all leaves it as it is.
    stage.settings.email = None;
    says(&thumbprint(&stage), &[]);
    assert_eq!(stage.ca.count("account"), 2);
    stage.settings.binding = Binding::new("kid-1".into(), "AAAA");
    says(
        &thumbprint(&stage),
        &["was not made with --eab-kid 'kid-1'"],
    );
    fs::remove_file(stage.account().0).expect("there");
    says(&thumbprint(&stage), &[]);
    says(&thumbprint(&stage), &[]);
    stage.settings.binding = Binding::new("kid-2".into(), "AAAA");
    says(
        &thumbprint(&stage),
        &["was not made with --eab-kid 'kid-2'"],
    );
    assert_eq!(stage.ca.count("newAccount"), 2);
}
