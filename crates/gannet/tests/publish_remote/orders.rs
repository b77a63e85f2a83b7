//! What is said when answers are lost or come late, and what is tried again that fails for a moment.

use std::fs;
use std::process::Stdio;
use std::sync::mpsc::channel;

use gannet_testkit::run;

use super::bucket::{Asked, Before, Bucket, Objects};
use super::{URL, change, line, noise, on, pointer, publish, refused, releases, with_site};

/// A bucket with one release, and a site that is another one by now.
fn with_release() -> (Bucket, gannet_testkit::Folder) {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Two");
    (bucket, folder)
}

fn writes_pointer(asked: &Asked) -> bool {
    asked.method == "PUT" && asked.object == "site/current"
}

/// A write that is not answered may arrive after the last attempt.
#[test]
fn a_pointer_that_may_be_written_yet_is_not_said_to_be_refused() {
    let (bucket, folder) = with_release();
    bucket.before(|asked, _| match writes_pointer(asked) {
        true => Before::Close,
        false => Before::Answer,
    });
    let before = pointer(&bucket);
    let ended = publish(&bucket, &folder, "cache", &[]);
    let expect =
        "cannot write 's3://bucket/site/current': it is not known whether it was written: ";
    refused(&bucket, &ended, &before, expect);
    let help = "help: 'gannet releases' with the store's URL shows what is in force: look there";
    assert!(ended.err.contains(help), "{}", ended.err);
}

/// Nor is one replaced that is still there: the attempt without an answer may be what another one meets.
#[test]
fn a_pointer_that_is_still_there_is_not_said_to_be_replaced() {
    for (is_open, expect) in [
        (true, "it is not known whether it was written: "),
        (false, "cannot write 's3://bucket/site/current': "),
    ] {
        let (bucket, folder) = with_release();
        let mut is_first = is_open;
        bucket.before(move |asked, _| match writes_pointer(asked) {
            true if std::mem::take(&mut is_first) => Before::Close,
            true => Before::Refuse(412, "PreconditionFailed"),
            false => Before::Answer,
        });
        let before = pointer(&bucket);
        let ended = publish(&bucket, &folder, "cache", &[]);
        refused(&bucket, &ended, &before, expect);
        assert!(!ended.err.contains("replaced"), "{}", ended.err);
    }
}

/// One that is refused each time is not.
#[test]
fn a_pointer_that_was_not_written_is_said_to_be_refused() {
    let (bucket, folder) = with_release();
    bucket.before(|asked, _| match writes_pointer(asked) {
        true => Before::Refuse(503, "SlowDown"),
        false => Before::Answer,
    });
    let before = pointer(&bucket);
    let ended = publish(&bucket, &folder, "cache", &[]);
    let expect =
        "cannot write 's3://bucket/site/current': it has too many requests at present (SlowDown)";
    refused(&bucket, &ended, &before, expect);
}

#[test]
fn a_pointer_that_was_removed_is_not_said_to_be_replaced() {
    let (bucket, folder) = with_release();
    bucket.before(|asked, objects| {
        if writes_pointer(asked) {
            objects.by_name.remove("site/current");
        }
        Before::Answer
    });
    let ended = publish(&bucket, &folder, "cache", &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = "cannot change store 's3://bucket/site': its pointer was removed in the meantime";
    assert!(ended.err.contains(expect), "{}", ended.err);

    // The same of an entry of the log.
    let (bucket, folder) = with_release();
    bucket.before(|asked, objects| {
        objects.by_name.remove("site/log/2");
        let is_entry = asked.method == "PUT" && asked.object == "site/log/2";
        match is_entry {
            true => Before::Refuse(412, "PreconditionFailed"),
            false => Before::Answer,
        }
    });
    let before = pointer(&bucket);
    let ended = publish(&bucket, &folder, "cache", &[]);
    let expect = "serial 2 was taken in the meantime, and its entry removed";
    refused(&bucket, &ended, &before, expect);
}

/// After it came into force: the release is there, and the pointer is not.
#[test]
fn what_is_not_removed_for_want_of_a_pointer_is_there() {
    let (bucket, folder) = with_release();
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Three");
    bucket.before(|asked, objects| {
        let is_read = asked.method == "GET" && asked.object == "site/current";
        if is_read && objects.by_name.contains_key("site/log/3") {
            objects.by_name.remove("site/current");
        }
        Before::Answer
    });
    let ended = publish(&bucket, &folder, "cache", &["--keep", "1s 1..1"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = "': the store no longer has a pointer\nhelp: publish again: that writes one";
    assert!(
        ended
            .err
            .contains("cannot remove 's3://bucket/site/releases/")
    );
    assert!(ended.err.contains(expect), "{}", ended.err);
    assert_eq!(releases(&bucket).len(), 3);
}

/// Refuses each request for which this holds once.
fn refuse_first(bucket: &Bucket, mut is_it: impl FnMut(&Asked) -> bool + Send + 'static) {
    let mut seen = Vec::new();
    bucket.before(move |asked, _| {
        let name = (asked.method.clone(), asked.object.clone());
        match is_it(asked) && !seen.contains(&name) {
            true => {
                seen.push(name);
                Before::Refuse(503, "SlowDown")
            }
            false => Before::Answer,
        }
    });
}

#[test]
fn what_fails_for_a_moment_is_tried_again() {
    let (bucket, folder) = with_release();
    folder.write("site/noise.bin", noise(9 << 20));
    // The list, the pointer, the entries of the log, and the begin of an upload.
    let is_read = |asked: &Asked| asked.method == "GET" && !asked.object.contains("releases");
    refuse_first(&bucket, move |asked| {
        is_read(asked) || asked.method == "POST" && asked.query.contains("uploads")
    });
    publish(&bucket, &folder, "other", &[]).success();
    assert_eq!(line(&pointer(&bucket), "serial"), "2");
    refuse_first(&bucket, is_read);
    on(&bucket, &folder, &["releases", URL]).success();
    refuse_first(&bucket, is_read);
    on(&bucket, &folder, &["follow", URL, "copy", "--once"]).success();
}

/// What is refused for good is not.
#[test]
fn what_is_wrong_is_asked_once() {
    let (bucket, folder) = with_release();
    let (told, hear) = channel();
    bucket.before(move |asked: &Asked, _: &mut Objects| {
        told.send(asked.object.clone()).unwrap();
        Before::Refuse(403, "AccessDenied")
    });
    let ended = publish(&bucket, &folder, "cache", &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert_eq!(hear.try_iter().collect::<Vec<_>>(), ["site/current"]);
}

#[test]
fn a_list_of_releases_that_is_stopped_leaves_nothing() {
    let (bucket, folder) = with_release();
    fs::create_dir(folder.join("temporary")).unwrap();
    let (told, hear) = channel();
    let (go_on, wait) = channel::<()>();
    bucket.before(move |_, _| {
        let _ = told.send(());
        // Until the test ends.
        let _ = wait.recv();
        Before::Close
    });
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut command = bucket.command(&folder, "cache");
        command.env("TMPDIR", folder.join("temporary"));
        command.args(["releases", URL]).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        if signal == rustix::process::Signal::INT {
            // The other one waits for this one's answer.
            hear.recv().unwrap();
        }
        gannet_testkit::process::until("it has begun", || left(&folder) == 1);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        child.wait().unwrap();
        assert_eq!(left(&folder), 0);
    }
    drop(go_on);
}

fn left(folder: &gannet_testkit::Folder) -> usize {
    fs::read_dir(folder.join("temporary")).unwrap().count()
}

#[test]
fn who_lists_releases_is_told_of_the_store_that_was_named() {
    let (bucket, folder) = with_release();
    fs::create_dir(folder.join("temporary")).unwrap();
    bucket.with(|it| {
        for name in ["site/current", "site/log/1"] {
            it.by_name.insert(name.into(), b"no pointer".to_vec());
        }
    });
    let mut command = bucket.command(&folder, "without a picture");
    command.env("TMPDIR", folder.join("temporary"));
    let ended = run(command.args(["releases", URL]));
    assert_eq!(ended.status, Some(1), "{ended:?}");
    for name in ["current", "log/1"] {
        let expect = format!("cannot read pointer 's3://bucket/site/{name}': ");
        assert!(ended.err.contains(&expect), "{}", ended.err);
    }
    assert!(!ended.err.contains("temporary"), "{}", ended.err);
}
