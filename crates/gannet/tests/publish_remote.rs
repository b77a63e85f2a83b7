//! `gannet publish`, `rollback` and `releases` on a bucket: what is written in which order, who else
//! publishes, and what a publisher leaves behind that was killed.

#![cfg(feature = "fleet")]

#[path = "publish_remote/bounds.rs"]
mod bounds;
mod bucket;
#[path = "publish_remote/orders.rs"]
mod orders;
#[path = "publish_remote/pictures.rs"]
mod pictures;
#[path = "publish_remote/refusals.rs"]
mod refusals;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::mpsc::channel;

use bucket::{Before, Bucket};
use gannet_testkit::content::Numbers;
use gannet_testkit::{Ended, Folder, gannet_in, run};

const URL: &str = "s3://bucket/site";

/// A folder with a site of one page.
fn with_site() -> Folder {
    let folder = Folder::new();
    change(&folder, "One");
    folder
}

/// The value of a line of a pointer.
fn line<'t>(pointer: &'t str, key: &str) -> &'t str {
    let mut lines = pointer.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(found, _)| *found == key);
    found.map_or("", |(_, value)| value)
}

/// A machine that publishes to the bucket.
fn publish(bucket: &Bucket, folder: &Folder, machine: &str, more: &[&str]) -> Ended {
    let mut command = bucket.command(folder, machine);
    run(command.args(["publish", "site", URL, "--fast"]).args(more))
}

fn on(bucket: &Bucket, folder: &Folder, arguments: &[&str]) -> Ended {
    run(bucket.command(folder, "cache").args(arguments))
}

fn change(folder: &Folder, title: &str) {
    folder.write(
        "site/index.html",
        format!("<!DOCTYPE html><title>{title}</title>"),
    );
}

/// Bytes that cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut numbers = Numbers(1);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&numbers.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The changes since the last call, releases without their ids.
fn changes(bucket: &Bucket) -> Vec<String> {
    let changes = bucket.with(|it| std::mem::take(&mut it.changes));
    let short = changes.into_iter().map(|it| match it.find("releases/") {
        Some(at) => it[..at + 8].to_owned(),
        None => it,
    });
    short.map(|it| it.replace("site/", "")).collect()
}

fn pointer(bucket: &Bucket) -> String {
    bucket.text("site/current")
}

/// Asserts an error that names the store as the user did, and that the same pointer is in force.
fn refused(bucket: &Bucket, ended: &Ended, before: &str, expect: &str) {
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.err.contains(expect), "{}", ended.err);
    assert!(!ended.err.contains("cache"), "{}", ended.err);
    assert_eq!(pointer(bucket), before);
}

#[test]
fn a_bucket_is_published_to_as_a_folder_is() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let first = publish(&bucket, &folder, "cache", &[]).success();
    assert!(
        first.text().starts_with("s3://bucket/site: serial 1,"),
        "{}",
        first.text()
    );
    assert!(
        first
            .text()
            .ends_with("next: gannet serve s3://bucket/site\n")
    );
    // Two more attempts at the entry try the conditions out.
    let log = ["PUT log/1"; 3];
    let order = [&["PUT releases"][..], &log, &["PUT current"]].concat();
    assert_eq!(changes(&bucket), order);
    let same = publish(&bucket, &folder, "cache", &[]).success();
    assert!(
        same.text().contains("nothing to publish"),
        "{}",
        same.text()
    );
    assert_eq!(changes(&bucket), [""; 0]);

    // Another machine has no picture of it yet.
    change(&folder, "Two");
    publish(&bucket, &folder, "other", &["--note", "two"]).success();
    let listed = on(&bucket, &folder, &["releases", URL]).success();
    let states: Vec<_> = listed.text().lines().skip(1).map(str::trim).collect();
    assert!(
        states[0].starts_with("*      2") && states[0].ends_with("two"),
        "{states:?}"
    );
    assert!(states[1].contains(" kept "), "{states:?}");
    changes(&bucket);

    let release = line(&bucket.text("site/log/1"), "release").to_owned();
    let back = on(&bucket, &folder, &["rollback", URL]).success();
    assert!(
        back.text().starts_with("s3://bucket/site: serial 3,"),
        "{}",
        back.text()
    );
    assert_eq!(line(&pointer(&bucket), "release"), release);
    assert_eq!(
        changes(&bucket),
        ["PUT log/3", "PUT log/3", "PUT log/3", "PUT current"]
    );
    assert_eq!(bucket.text("site/log/3"), pointer(&bucket));

    on(&bucket, &folder, &["follow", URL, "copy", "--once"]).success();
    let copied = fs::read_to_string(folder.join("copy/current")).unwrap();
    assert_eq!(copied, pointer(&bucket));
    // What is no longer kept is removed there.
    change(&folder, "Four");
    publish(&bucket, &folder, "cache", &["--keep", "1s 1..1"]).success();
    let left = bucket.with(|it| {
        it.by_name
            .keys()
            .filter(|it| it.contains("releases"))
            .count()
    });
    assert_eq!(left, 2);
}

/// Google's storage counts states instead of naming them, and escapes more.
#[test]
fn a_bucket_of_google_s_takes_the_same() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let url = "gs://bucket/site";
    let publish = |more: &[&str]| {
        let all = [&["publish", "site", url, "--fast"][..], more].concat();
        on(&bucket, &folder, &all)
    };
    folder.write("site/noise.bin", noise(9 << 20));
    publish(&[]).success();
    change(&folder, "Two");
    fs::remove_file(folder.join("site/noise.bin")).unwrap();
    publish(&[]).success();
    let back = on(&bucket, &folder, &["rollback", url]).success();
    assert!(back.text().contains("serial 3"), "{}", back.text());
    let listed = on(&bucket, &folder, &["releases", url]).success();
    assert!(listed.text().contains("*      3"), "{}", listed.text());
    on(&bucket, &folder, &["follow", url, "copy", "--once"]).success();
    let copied = fs::read_to_string(folder.join("copy/current")).unwrap();
    assert_eq!(copied, pointer(&bucket));

    // The second of two publishers is told, and so is whoever has a service without conditions.
    change(&folder, "Three");
    let before = pointer(&bucket);
    bucket.before(|asked, objects| {
        if asked.method == "PUT" && asked.object == "site/log/4" {
            let other = objects.by_name["site/log/1"].clone();
            objects.by_name.entry("site/log/4".into()).or_insert(other);
        }
        Before::Answer
    });
    refused(
        &bucket,
        &publish(&[]),
        &before,
        "another publisher has taken serial 4",
    );
    bucket.before(|_, _| Before::Forget);
    refused(
        &bucket,
        &publish(&[]),
        &before,
        "the store ignores conditions",
    );
    bucket.be_honest();
    publish(&["--keep", "1s 1..1"]).success();
    assert_eq!(releases(&bucket).len(), 2);
}

#[test]
fn the_second_of_two_publishers_is_told() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = pointer(&bucket);
    // The other one has written its entry of the log just before ours.
    change(&folder, "Two");
    bucket.before(|asked, objects| {
        if asked.method == "PUT" && asked.object == "site/log/2" {
            let other = objects.by_name["site/log/1"].clone();
            objects.by_name.entry("site/log/2".into()).or_insert(other);
        }
        Before::Answer
    });
    let second = publish(&bucket, &folder, "cache", &[]);
    let expect = "cannot change store 's3://bucket/site': another publisher has taken serial 2\n\
        help: see 'gannet releases s3://bucket/site', and publish again";
    refused(&bucket, &second, &before, expect);

    // It has put its pointer into force just before ours.
    let other = before.replace("serial 1", "serial 9");
    let theirs = other.clone();
    bucket.before(move |asked, objects| {
        if asked.method == "PUT" && asked.object == "site/current" {
            objects
                .by_name
                .insert("site/current".into(), theirs.clone().into_bytes());
        }
        Before::Answer
    });
    let second = publish(&bucket, &folder, "cache", &[]);
    refused(
        &bucket,
        &second,
        &other,
        "its pointer was replaced in the meantime",
    );
    bucket.be_honest();
    publish(&bucket, &folder, "cache", &[]).success();
    assert_eq!(line(&pointer(&bucket), "serial"), "10");
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = pointer(&bucket);
    change(&folder, "Two");
    for forget in [Before::Forget, Before::ForgetMatch] {
        bucket.before(move |_, _| forget);
        let ended = publish(&bucket, &folder, "cache", &[]);
        refused(&bucket, &ended, &before, "the store ignores conditions");
    }
}

/// An answer that is lost says nothing about what was written.
#[test]
fn what_was_written_without_an_answer_counts() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Two");
    bucket.before(|asked, objects| {
        // The text of the pointer is that of the entry.
        let entry = objects.by_name.get("site/log/2").cloned();
        match (asked.object.as_str(), asked.method.as_str(), entry) {
            ("site/current", "PUT", Some(entry)) => {
                objects.by_name.insert("site/current".into(), entry);
                Before::Close
            }
            _ => Before::Answer,
        }
    });
    publish(&bucket, &folder, "cache", &[]).success();
    assert_eq!(line(&pointer(&bucket), "serial"), "2");
}

#[test]
fn an_upload_is_completed_once() {
    for is_done in [true, false] {
        let (bucket, folder) = (Bucket::new(), with_site());
        folder.write("site/noise.bin", noise(9 << 20));
        let mut is_first = true;
        bucket.before(move |asked, objects| {
            let completes = asked.method == "POST" && asked.query.contains("uploadId");
            if !completes || !std::mem::take(&mut is_first) {
                return Before::Answer;
            }
            if is_done {
                let (_, parts) = objects.uploads.pop_first().unwrap();
                let content: Vec<_> = parts.into_values().collect();
                objects
                    .by_name
                    .insert(asked.object.clone(), content.concat());
            }
            Before::Close
        });
        publish(&bucket, &folder, "cache", &[]).success();
        assert!(bucket.with(|it| it.uploads.is_empty()));
        let written = changes(&bucket);
        let completions = written.iter().filter(|it| *it == "POST releases").count();
        // One of them begins the upload.
        assert_eq!(completions, if is_done { 1 } else { 2 }, "{written:?}");
        let copied = on(&bucket, &folder, &["follow", URL, "copy", "--once"]);
        assert_eq!(copied.status, Some(0), "{copied:?}");
    }
}

#[test]
fn a_killed_upload_is_gone_on_with() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = pointer(&bucket);
    // Six parts, of which four go at once, and nothing that can be compressed.
    folder.write("site/large.bin", noise(44 << 20));
    let (told, hear) = channel();
    bucket.before(move |asked, objects| {
        let there: usize = objects.uploads.values().map(|parts| parts.len()).sum();
        let is_part = asked.query.contains("partNumber");
        if is_part && there == 3 {
            let _ = told.send(());
            return Before::Close;
        }
        Before::Answer
    });
    let mut command = bucket.command(&folder, "cache");
    let mut publisher = command
        .args(["publish", "site", URL, "--fast", "-q"])
        .spawn()
        .unwrap();
    // The fourth request for three lacking parts is a second attempt: the others are noted by then.
    for _ in 0..4 {
        hear.recv().unwrap();
    }
    publisher.kill().unwrap();
    publisher.wait().unwrap();
    assert_eq!(pointer(&bucket), before);
    assert_eq!(
        bucket.with(|it| it.by_name.len()),
        3,
        "nothing of it is an object"
    );
    bucket.be_honest();
    changes(&bucket);
    publish(&bucket, &folder, "cache", &[]).success();
    let parts = changes(&bucket)
        .iter()
        .filter(|it| *it == "PUT releases")
        .count();
    assert!(
        (3..=5).contains(&parts),
        "{parts} of six parts were lacking"
    );
    assert!(bucket.with(|it| it.uploads.is_empty()));
    let copied = on(&bucket, &folder, &["follow", URL, "copy", "--once"]);
    assert_eq!(copied.status, Some(0), "{copied:?}");
}

/// The releases of the bucket, by their names.
fn releases(bucket: &Bucket) -> Vec<(String, Vec<u8>)> {
    bucket.with(|it| {
        let objects = it.by_name.clone().into_iter();
        objects
            .filter(|(name, _)| name.contains("releases"))
            .collect()
    })
}

#[test]
fn a_release_that_was_damaged_there_is_refused() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = pointer(&bucket);
    let (name, good) = releases(&bucket).remove(0);
    bucket.with(|it| it.by_name.get_mut(&name).unwrap()[5000] ^= 1);
    let damaged = releases(&bucket);
    // A machine that has it undamaged would not look.
    let again = publish(&bucket, &folder, "other", &[]);
    let expect = format!(
        "cannot take over 's3://bucket/{name}': it is not a whole archive of that release\n\
         help: remove this object, and publish again"
    );
    refused(&bucket, &again, &before, &expect);
    assert_eq!(releases(&bucket), damaged);
    bucket.with(|it| it.by_name.remove(&name));
    let again = publish(&bucket, &folder, "other", &[]).success();
    assert!(again.text().contains("is there again"), "{again:?}");
    assert_eq!(releases(&bucket), [(name, good)]);
}

/// The same release has other bytes when it is signed.
#[test]
fn what_a_new_machine_signs_keeps_its_file() {
    let (bucket, folder) = (Bucket::new(), with_site());
    gannet_in(&folder, ["keygen", "release"]).success();
    publish(&bucket, &folder, "cache", &[]).success();
    let before = releases(&bucket);
    let signed = publish(&bucket, &folder, "other", &["--sign", "release.key"]);
    assert_eq!(signed.status, Some(0), "{signed:?}");
    assert!(signed.text().contains("which was there"), "{signed:?}");
    assert_eq!(releases(&bucket), before);
    let size = before[0].1.len().to_string();
    assert_eq!(line(&pointer(&bucket), "size"), size);
    let follow = [
        "follow",
        URL,
        "copy",
        "--once",
        "--public-key",
        "release.pub",
    ];
    let copied = on(&bucket, &folder, &follow);
    assert_eq!(copied.status, Some(0), "{copied:?}");
}

#[test]
fn a_release_that_another_publisher_was_faster_with_is_taken_over() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "release"]).success();
    // The second one is written in parts.
    for len in [0, 9 << 20] {
        folder.write("site/noise.bin", noise(len));
        let (theirs, bucket) = (Bucket::new(), Bucket::new());
        publish(&theirs, &folder, "theirs", &[]).success();
        let (name, content) = releases(&theirs).remove(0);
        let expect = vec![(name.clone(), content.clone())];
        bucket.before(move |asked, objects| {
            let completes = asked.method == "POST" && asked.query.contains("uploadId");
            if completes || asked.method == "PUT" && asked.object == name && asked.query.is_empty()
            {
                objects.by_name.insert(name.clone(), content.clone());
            }
            Before::Answer
        });
        publish(&bucket, &folder, "ours", &["--sign", "release.key"]).success();
        assert_eq!(releases(&bucket), expect);
        assert!(bucket.with(|it| it.uploads.is_empty()));
        bucket.be_honest();
        let copy = format!("copy-{len}");
        let copied = on(&bucket, &folder, &["follow", URL, &copy, "--once"]);
        assert_eq!(copied.status, Some(0), "{copied:?}");
    }
}

#[test]
fn what_another_pointer_may_need_is_not_removed() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Two");
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Three");
    bucket.before(|asked, objects| {
        let current = objects.by_name.get_mut("site/current").unwrap();
        let text = String::from_utf8_lossy(current).into_owned();
        if asked.method == "GET" && asked.object == "site/current" {
            *current = text.replace("serial 3", "serial 4").into_bytes();
        }
        Before::Answer
    });
    let ended = publish(&bucket, &folder, "cache", &["--keep", "1s 1..1"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let expect = "another pointer is in force now";
    assert!(ended.err.contains(expect), "{ended:?}");
    assert_eq!(line(&pointer(&bucket), "serial"), "4");
    assert_eq!(releases(&bucket).len(), 3);
}

/// The other pointer comes into force after the look, and before the removal.
#[test]
fn what_another_pointer_needs_when_it_was_removed_is_said() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let (first, _) = releases(&bucket).remove(0);
    let other = pointer(&bucket).replace("serial 1", "serial 9");
    change(&folder, "Two");
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Three");
    bucket.before(move |asked, objects| {
        if asked.method == "DELETE" {
            let other = other.clone().into_bytes();
            objects.by_name.insert("site/current".into(), other);
        }
        Before::Answer
    });
    let ended = publish(&bucket, &folder, "cache", &["--keep", "1s 1..1"]);
    // The site of the pointer that is in force cannot be copied: a script has to see that.
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = format!(
        "gannet: cannot keep 's3://bucket/{first}': it was removed when a pointer of another publisher \
         came into force that names it\nhelp: its pointer is in force: publish its site again"
    );
    assert!(ended.err.contains(&expect), "{}", ended.err);
}

#[test]
fn a_release_that_another_publisher_removed_is_written_again() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let (first, _) = releases(&bucket).remove(0);
    change(&folder, "Two");
    publish(&bucket, &folder, "cache", &[]).success();
    let before = releases(&bucket);
    bucket.before(move |asked, objects| {
        if asked.method == "PUT" && asked.object == "site/current" {
            objects.by_name.remove(&first);
        }
        Before::Answer
    });
    on(&bucket, &folder, &["rollback", URL]).success();
    assert_eq!(releases(&bucket), before);
    let copied = on(&bucket, &folder, &["follow", URL, "copy", "--once"]);
    assert_eq!(copied.status, Some(0), "{copied:?}");
}

#[test]
fn answers_without_an_end_are_refused() {
    let (bucket, folder) = (Bucket::new(), with_site());
    folder.write("site/noise.bin", noise(9 << 20));
    for (method, query) in [
        ("GET", "list-type"),
        ("POST", "uploads"),
        ("POST", "uploadId"),
    ] {
        bucket.before(move |asked, _| {
            match asked.method == method && asked.query.contains(query) {
                true => Before::Endless,
                false => Before::Answer,
            }
        });
        let ended = publish(&bucket, &folder, "cache", &[]);
        assert_eq!(ended.status, Some(1), "{query}: {ended:?}");
        let expect = "its answer has more than 16777216 bytes";
        assert!(ended.err.contains(expect), "{query}: {ended:?}");
    }
}

/// The pictures of buckets on a machine.
fn pictures(folder: &Folder, machine: &str) -> Vec<PathBuf> {
    let pictures = folder.join(machine).join("gannet/publish");
    let found = fs::read_dir(pictures).unwrap();
    found.map(|it| it.unwrap().path()).collect()
}

/// The picture of the only bucket.
fn picture(folder: &Folder, machine: &str) -> PathBuf {
    pictures(folder, machine).remove(0)
}

#[test]
fn the_picture_is_the_user_s_own_and_leads_nowhere_else() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let picture = picture(&folder, "cache");
    let mode = fs::metadata(&picture).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    folder.write("victim", "mine");
    for name in ["current", "log/1", ".upload"] {
        let _ = fs::remove_file(picture.join(name));
        symlink(folder.join("victim"), picture.join(name)).unwrap();
    }
    folder.write("site/noise.bin", noise(9 << 20));
    publish(&bucket, &folder, "cache", &[]).success();
    let victim = fs::read_to_string(folder.join("victim")).unwrap();
    assert_eq!(victim, "mine");
}

#[test]
fn what_is_in_force_was_published_whatever_happens_here() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    change(&folder, "Two");
    let current = picture(&folder, "cache").join("current");
    bucket.before(move |asked, _| {
        if asked.method == "PUT" && asked.object == "site/current" {
            fs::remove_file(&current).unwrap();
            fs::create_dir(&current).unwrap();
        }
        Before::Answer
    });
    let ended = publish(&bucket, &folder, "cache", &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.err.contains("cannot write"), "{ended:?}");
    assert_eq!(line(&pointer(&bucket), "serial"), "2");
}

#[test]
fn a_signed_bucket_takes_signed_pointers() {
    let (bucket, folder) = (Bucket::new(), with_site());
    gannet_in(&folder, ["keygen", "release"]).success();
    publish(&bucket, &folder, "cache", &["--sign", "release.key"]).success();
    let before = pointer(&bucket);
    assert!(before.contains("untrusted comment"), "{before}");
    change(&folder, "Two");
    let ended = publish(&bucket, &folder, "cache", &[]);
    let expect = "cannot change store 's3://bucket/site': the pointer in force is signed";
    assert_eq!(ended.status, Some(1));
    assert!(ended.err.contains(expect), "{ended:?}");
    publish(&bucket, &folder, "cache", &["--sign", "release.key"]).success();
    let listed = on(&bucket, &folder, &["releases", URL, "-p", "release.pub"]).success();
    assert!(listed.text().contains("*      2"), "{}", listed.text());
}

#[test]
fn what_cannot_be_published_to_is_said() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let check = |url: &str, expect: &str| {
        let ended = on(&bucket, &folder, &["publish", "site", url]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.err.contains(expect), "{}", ended.err);
    };
    check(
        "https://example.org/site",
        "cannot change store 'https://example.org/site'",
    );
    check(
        "https://example.org/site",
        "publish to a folder, or to a bucket",
    );
    check("file:///tmp/store", "name the folder itself");
    let empty = on(&bucket, &folder, &["rollback", URL]);
    let expect = "cannot read store 's3://bucket/site': nothing has been published yet";
    assert!(empty.err.contains(expect), "{empty:?}");
    let checked = on(
        &bucket,
        &folder,
        &["publish", "site", URL, "--check-config"],
    )
    .success();
    assert_eq!(checked.text(), "the configuration is valid\n");
    assert!(bucket.with(|it| it.by_name.is_empty()));
}
