//! What a storage refuses, what is said then, and how an upload goes on that it no longer knows.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;

use gannet_testkit::{Ended, Folder, run};

use super::bucket::{Before, Bucket};
use super::{URL, change, changes, noise, on, picture, pointer, publish, releases, with_site};

#[test]
fn what_a_storage_refuses_is_said_with_the_next_step() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let check = |status: u16, code: &'static str, expect: &str| {
        bucket.before(move |_, _| Before::Refuse(status, code));
        let ended = publish(&bucket, &folder, "cache", &[]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.err.contains(expect), "{code}: {}", ended.err);
        assert!(!ended.err.contains('<'), "{}", ended.err);
    };
    let name = "gannet: cannot read 's3://bucket/site/current': ";
    let denied = format!("{name}these credentials do not allow it (AccessDenied)\nhelp: following");
    check(403, "AccessDenied", &denied);
    let none = "there is no such bucket (NoSuchBucket)\nhelp: make it first";
    check(404, "NoSuchBucket", none);
    check(
        403,
        "SignatureDoesNotMatch",
        "help: compare AWS_SECRET_ACCESS_KEY",
    );
    check(
        403,
        "InvalidAccessKeyId",
        "it does not know these credentials",
    );
    check(403, "RequestTimeTooSkewed", "help: set the clock");
    check(400, "ExpiredToken", "for a session that has ended");
    check(503, "SlowDown", "help: try again later");
    check(301, "PermanentRedirect", "incorrectly configured region");
    check(
        400,
        "AuthorizationHeaderMalformed",
        "name that in AWS_REGION",
    );
    check(400, "SomethingElse", "no (SomethingElse)");
}

/// The journal of an upload in two parts, of which the first is there, and the second refused.
fn interrupted(bucket: &Bucket, folder: &Folder) -> PathBuf {
    folder.write("site/noise.bin", noise(9 << 20));
    let mut tries = 0;
    bucket.before(move |asked, objects| {
        let there: usize = objects.uploads.values().map(|parts| parts.len()).sum();
        match asked.query.contains("partNumber=2") {
            false => Before::Answer,
            // By the next attempt, the first part is noted.
            true if there == 0 || tries == 0 => {
                tries += usize::from(there > 0);
                Before::Close
            }
            true => Before::Refuse(403, "AccessDenied"),
        }
    });
    let ended = publish(bucket, folder, "cache", &[]);
    assert!(ended.err.contains("AccessDenied"), "{ended:?}");
    bucket.be_honest();
    changes(bucket);
    let journal = picture(folder, "cache").join(".upload");
    assert_eq!(fs::read_to_string(&journal).unwrap().lines().count(), 3);
    journal
}

/// What is in force is what a follower gets.
fn is_whole(bucket: &Bucket, folder: &Folder) {
    assert!(bucket.with(|it| it.uploads.is_empty()));
    let copied: Ended = on(bucket, folder, &["follow", URL, "copy", "--once"]);
    assert_eq!(copied.status, Some(0), "{copied:?}");
}

fn count(changes: &[String], what: &str) -> usize {
    changes.iter().filter(|it| *it == what).count()
}

#[test]
fn a_journal_whose_last_line_is_torn_loses_that_line() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let journal = interrupted(&bucket, &folder);
    let mut file = OpenOptions::new().append(true).open(&journal).unwrap();
    file.write_all(b"part 1 \"torn").unwrap();
    // It is resumed, and is interrupted again when both parts are there.
    bucket.before(|asked, _| match asked.method == "POST" {
        true => Before::Refuse(403, "AccessDenied"),
        false => Before::Answer,
    });
    let ended = publish(&bucket, &folder, "cache", &[]);
    assert!(ended.err.contains("AccessDenied"), "{ended:?}");
    let noted = fs::read_to_string(&journal).unwrap();
    assert_eq!(noted.lines().count(), 4, "{noted}");
    assert!(!noted.contains("torn"), "{noted}");
    assert_eq!(count(&changes(&bucket), "PUT releases"), 1);
    bucket.be_honest();
    publish(&bucket, &folder, "cache", &[]).success();
    assert_eq!(count(&changes(&bucket), "PUT releases"), 0);
    is_whole(&bucket, &folder);
}

/// As after an upgrade to a version that cuts other parts.
#[test]
fn an_upload_in_parts_of_another_length_is_begun_anew() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let journal = interrupted(&bucket, &folder);
    let noted = fs::read_to_string(&journal).unwrap();
    assert!(noted.contains(" 8388608\n"), "{noted}");
    fs::write(&journal, noted.replace(" 8388608\n", " 5242880\n")).unwrap();
    publish(&bucket, &folder, "cache", &[]).success();
    let changes = changes(&bucket);
    assert_eq!(count(&changes, "PUT releases"), 2, "{changes:?}");
    assert_eq!(count(&changes, "DELETE releases"), 1, "{changes:?}");
    is_whole(&bucket, &folder);
}

#[test]
fn an_upload_that_the_storage_no_longer_takes_is_begun_anew() {
    // Parts that it has thrown away, and those that it has never had.
    for (status, code) in [(404, "NoSuchUpload"), (400, "InvalidPart")] {
        let (bucket, folder) = (Bucket::new(), with_site());
        interrupted(&bucket, &folder);
        bucket.before(move |asked, objects| {
            let is_old = asked.query.contains("uploadId=upload-1");
            objects.uploads.remove("upload-1");
            match is_old {
                true => Before::Refuse(status, code),
                false => Before::Answer,
            }
        });
        let ended = publish(&bucket, &folder, "cache", &[]);
        assert_eq!(ended.status, Some(0), "{code}: {ended:?}");
        assert!(!picture(&folder, "cache").join(".upload").exists());
        bucket.be_honest();
        is_whole(&bucket, &folder);
    }
    // A second refusal is one.
    let (bucket, folder) = (Bucket::new(), with_site());
    interrupted(&bucket, &folder);
    bucket.before(|asked, _| match asked.query.contains("uploadId") {
        true => Before::Refuse(400, "InvalidPart"),
        false => Before::Answer,
    });
    let ended = publish(&bucket, &folder, "cache", &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.err.contains("no (InvalidPart)"), "{}", ended.err);
}

#[test]
fn a_release_that_is_gone_and_cannot_be_written_again_is_said() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = pointer(&bucket);
    change(&folder, "Two");
    bucket.before(|asked, objects| {
        let is_release = asked.object.starts_with("site/releases/");
        if asked.method == "PUT" && asked.object == "site/current" {
            objects.by_name.retain(|name, _| !name.contains("releases"));
        }
        let is_gone = objects.by_name.contains_key("site/log/2")
            && !objects.by_name.keys().any(|name| name.contains("releases"));
        match is_gone && is_release && asked.method == "PUT" {
            true => Before::Refuse(403, "AccessDenied"),
            false => Before::Answer,
        }
    });
    let ended = publish(&bucket, &folder, "cache", &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect =
        "another publisher has removed it in the meantime: cannot write 's3://bucket/site/";
    assert!(ended.err.contains(expect), "{}", ended.err);
    let help = "help: its pointer is in force: publish its site again\n";
    assert!(ended.err.ends_with(help), "{}", ended.err);
    assert_ne!(pointer(&bucket), before);
    bucket.be_honest();
    publish(&bucket, &folder, "cache", &[]).success();
    is_whole(&bucket, &folder);
}

/// A machine's metadata service is somebody else's as well.
#[test]
fn credentials_without_an_end_are_refused() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            if head[0].starts_with("PUT") {
                let token =
                    b"HTTP/1.1 200 -\r\ncontent-length: 5\r\nconnection: close\r\n\r\ntoken";
                stream.write_all(token).unwrap();
                continue;
            }
            let mut sent = stream.write_all(b"HTTP/1.1 200 -\r\n\r\n");
            while sent.is_ok() {
                sent = stream.write_all(&[b' '; 1 << 16]);
            }
        }
    });
    let mut command = bucket.command(&folder, "cache");
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        command.env_remove(name);
    }
    command.env("AWS_METADATA_ENDPOINT", format!("http://{address}"));
    let ended = run(command.args(["publish", "site", URL]));
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = "its answer has more than 16777216 bytes";
    assert!(ended.err.contains(expect), "{}", ended.err);
}

/// A storage that is busy for a moment holds nothing up, whichever write it is.
#[test]
fn a_write_that_meets_another_one_is_made_again() {
    for (object, code, status) in [
        // The trial of conditions, too, is a write.
        ("site/log/2", "SlowDown", 503),
        ("site/current", "ConditionalRequestConflict", 409),
    ] {
        let (bucket, folder) = (Bucket::new(), with_site());
        publish(&bucket, &folder, "cache", &[]).success();
        change(&folder, "Two");
        let mut writes = 0;
        bucket.before(move |asked, _| {
            let is_it = asked.method == "PUT" && asked.object == object;
            writes += usize::from(is_it);
            // The first attempt at the pointer, and the second write of the entry.
            let refused = if status == 503 { 2 } else { 1 };
            match is_it && writes == refused {
                true => Before::Refuse(status, code),
                false => Before::Answer,
            }
        });
        publish(&bucket, &folder, "cache", &[]).success();
        assert!(pointer(&bucket).contains("serial 2"));
    }
}

#[test]
fn what_became_of_a_pointer_is_said_only_if_it_is_known() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Two");
    let mut is_written = false;
    bucket.before(move |asked, _| {
        let is_pointer = asked.object == "site/current";
        is_written |= is_pointer && asked.method == "PUT";
        match is_pointer && is_written {
            true if asked.method == "PUT" => Before::Refuse(412, "PreconditionFailed"),
            true => Before::Refuse(403, "AccessDenied"),
            false => Before::Answer,
        }
    });
    let ended = publish(&bucket, &folder, "cache", &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = "gannet: cannot write 's3://bucket/site/current': it is not known whether it was \
        written: these credentials do not allow it (AccessDenied)\nhelp: 'gannet releases' with";
    assert!(ended.err.contains(expect), "{}", ended.err);
}

/// What is kept depends on it.
#[test]
fn an_entry_of_the_log_that_is_denied_is_not_taken_for_none() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    bucket.before(|asked, _| match asked.object == "site/log/1" {
        true => Before::Refuse(403, "AccessDenied"),
        false => Before::Answer,
    });
    let ended = publish(&bucket, &folder, "other", &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = "cannot read 's3://bucket/site/log/1': these credentials do not allow it";
    assert!(ended.err.contains(expect), "{}", ended.err);
}

#[test]
fn a_release_that_goes_while_it_is_looked_at_is_written() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = releases(&bucket);
    let name = before[0].0.clone();
    bucket.with(|it| it.by_name.get_mut(&name).unwrap()[5000] ^= 1);
    let mut is_there = true;
    bucket.before(move |asked, objects| {
        if asked.method == "HEAD" && std::mem::take(&mut is_there) {
            objects.by_name.remove(&name);
        }
        Before::Answer
    });
    // What is damaged is said as well.
    let ended = publish(&bucket, &folder, "other", &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(releases(&bucket) == before);
    is_whole(&bucket, &folder);
}
