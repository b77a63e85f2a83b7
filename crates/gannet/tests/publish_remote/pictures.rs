//! What a machine remembers of a bucket: of which one, in which state, and for whom.

use std::fs;

use gannet_store::limits::FOLLOWED_MAX;
use gannet_testkit::{Ended, Folder, gannet_in, run};
use rustix::fs::{FlockOperation, flock};

use super::bucket::{Before, Bucket};
use super::{URL, change, changes, on, picture, pictures, pointer, publish, refused};
use super::{releases, with_site};

#[test]
fn who_only_reads_waits_for_no_publisher_and_leaves_nothing() {
    let (bucket, folder) = (Bucket::new(), with_site());
    // The second one takes a picture of what the first one has written.
    publish(&bucket, &folder, "cache", &[]).success();
    publish(&bucket, &folder, "cache", &[]).success();
    let lock = fs::File::open(picture(&folder, "cache").join(".lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let busy = publish(&bucket, &folder, "cache", &[]);
    assert!(
        busy.err.contains("another publisher is at work"),
        "{busy:?}"
    );
    fs::create_dir(folder.join("temporary")).unwrap();
    // What the publisher's picture has of the log is not fetched again.
    bucket.before(|asked, _| match asked.object == "site/log/1" {
        true => Before::Refuse(503, "SlowDown"),
        false => Before::Answer,
    });
    let list = |machine: &str| {
        let mut command = bucket.command(&folder, machine);
        command.env("TMPDIR", folder.join("temporary"));
        run(command.args(["releases", URL])).success()
    };
    assert!(list("cache").text().contains("*      1"));
    bucket.be_honest();
    assert!(list("without a picture").text().contains("*      1"));
    let left = fs::read_dir(folder.join("temporary")).unwrap();
    assert_eq!(left.count(), 0);
    assert!(!folder.join("without a picture").exists());
}

/// A bucket's name says nothing about whose it is.
#[test]
fn two_services_share_no_picture() {
    let folder = with_site();
    for variable in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
        for _ in 0..2 {
            let bucket = Bucket::new();
            let mut command = bucket.command(&folder, variable);
            command
                .env_remove("AWS_ENDPOINT_URL")
                .env(variable, bucket.url());
            run(command.args(["publish", "site", URL, "--fast"])).success();
        }
        assert_eq!(pictures(&folder, variable).len(), 2, "{variable}");
    }
}

#[test]
fn a_bucket_that_was_put_back_is_not_published_to() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let first = pointer(&bucket);
    change(&folder, "Two");
    publish(&bucket, &folder, "cache", &[]).success();
    let set = |text: Option<&str>| {
        bucket.with(|it| match text {
            Some(text) => it.by_name.insert("site/current".into(), text.into()),
            None => it.by_name.remove("site/current"),
        });
    };
    let picture = picture(&folder, "cache");
    let help = format!(
        "'rm -r {}', and publish until the serial is above 2",
        picture.display()
    );
    for (text, found) in [
        (Some(&*first), "its pointer has serial 1"),
        (None, "it has no pointer"),
    ] {
        set(text);
        changes(&bucket);
        let ended = publish(&bucket, &folder, "cache", &[]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let expect = format!(
            "cannot change store 's3://bucket/site': {found}, and this machine has seen serial 2 there"
        );
        assert!(ended.err.contains(&expect), "{}", ended.err);
        assert!(ended.err.contains(&help), "{}", ended.err);
        assert_eq!(changes(&bucket), [""; 0]);
        // Reading shows what there is.
        on(&bucket, &folder, &["releases", URL]).success();
    }
    set(Some(&first));
    fs::remove_dir_all(picture).unwrap();
    publish(&bucket, &folder, "cache", &[]).success();
    assert!(pointer(&bucket).contains("serial 3"));
}

/// Whoever can write to the bucket and has no key could otherwise name a serial that no state of it
/// will ever have again.
#[test]
fn a_pointer_that_nobody_signed_does_not_count_as_seen() {
    let (bucket, folder) = (Bucket::new(), with_site());
    gannet_in(&folder, ["keygen", "release"]).success();
    let publish = |more: &[&str]| {
        let all = [&["--sign", "release.key"], more].concat();
        publish(&bucket, &folder, "cache", &all)
    };
    publish(&[]).success();
    let first = pointer(&bucket);
    let high = first.replace("serial 1\n", "serial 999\n");
    let high = high.split("untrusted").next().unwrap().to_owned();
    let set = |text: &str| {
        bucket.with(|it| it.by_name.insert("site/current".into(), text.into()));
    };
    // It is looked at, and nothing is published.
    set(&high);
    let refused = publish(&["--must", "/nothing"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    let expect = "'s3://bucket/site/current': it is not signed; it will be replaced, and serial 1 is \
                  what the new one follows";
    assert!(refused.err.contains(expect), "{}", refused.err);
    set(&first);
    publish(&["--note", "two"]).success();
    assert!(pointer(&bucket).contains("serial 2\n"));
    // Nor does it make the machine forget what it has seen.
    set(&high);
    assert_eq!(publish(&["--must", "/nothing"]).status, Some(1));
    set(&first);
    let ended = publish(&["--note", "three"]);
    let expect = "its pointer has serial 1, and this machine has seen serial 2 there";
    assert!(ended.err.contains(expect), "{}", ended.err);
    set(&high);
    let ended = publish(&["--note", "three"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.err.contains("serial 2 is what the new one follows"));
    assert!(pointer(&bucket).contains("serial 3\n"));
    let follow = ["follow", URL, "copy", "--once", "-p", "release.pub"];
    on(&bucket, &folder, &follow).success();
}

/// A bucket in which two releases were published and signed, and of which a copy was made; then the pointer in
/// force was damaged, and the log replaced by entries of these serials that nobody has signed.
fn with_unsigned(serials: std::ops::RangeInclusive<u64>) -> (Bucket, Folder) {
    let (bucket, folder) = (Bucket::new(), with_site());
    gannet_in(&folder, ["keygen", "release"]).success();
    for note in ["one", "two"] {
        publish_signed(&bucket, &folder, "cache", note).success();
    }
    on(&bucket, &folder, &FOLLOW).success();
    let text = pointer(&bucket);
    let unsigned = text.split("untrusted").next().unwrap();
    bucket.with(|it| {
        it.by_name.retain(|name, _| !name.contains("/log/"));
        it.by_name
            .insert("site/current".into(), "no pointer".into());
        for serial in serials {
            let text = unsigned.replace("serial 2\n", &format!("serial {serial}\n"));
            it.by_name
                .insert(format!("site/log/{serial}"), text.into_bytes());
        }
    });
    (bucket, folder)
}

const FOLLOW: [&str; 6] = ["follow", URL, "copy", "--once", "-p", "release.pub"];

fn publish_signed(bucket: &Bucket, folder: &Folder, machine: &str, note: &str) -> Ended {
    let more = ["--sign", "release.key", "--note", note];
    publish(bucket, folder, machine, &more)
}

#[test]
fn what_was_seen_counts_where_the_log_is_gone() {
    let (bucket, folder) = with_unsigned(7..=7);
    for (note, expect) in [("three", "serial 3\n"), ("four", "serial 4\n")] {
        let ended = publish_signed(&bucket, &folder, "cache", note);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        assert!(pointer(&bucket).contains(expect), "{}", pointer(&bucket));
        on(&bucket, &folder, &FOLLOW).success();
    }
}

/// More entries than are fetched, from the next serial on.
#[test]
fn entries_that_nobody_signed_take_no_serial_for_ever() {
    let last = 3 + FOLLOWED_MAX as u64 + 4;
    let (bucket, folder) = with_unsigned(3..=last);
    // A machine that has seen nothing does not begin anew.
    let before = pointer(&bucket);
    let ended = publish_signed(&bucket, &folder, "other", "three");
    let expect = "cannot read 's3://bucket/site/log': its newest 4096 entries are none that can be used, such \
                  as those with another signature than is required: they hide the others\n\
                  help: remove them, or publish from a machine that has published there with this key before";
    refused(&bucket, &ended, &before, expect);
    let ended = publish_signed(&bucket, &folder, "cache", "three");
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let expect = format!("serial {}\n", last + 1);
    assert!(pointer(&bucket).contains(&expect), "{}", pointer(&bucket));
    on(&bucket, &folder, &FOLLOW).success();
}

/// A log that was never trimmed, all of it signed with an earlier key: the new one goes on above it.
#[test]
fn a_new_key_goes_on_above_a_long_log() {
    let last = FOLLOWED_MAX as u64 + 4;
    let (bucket, folder) = with_unsigned(1..=last);
    let ended = publish_signed(&bucket, &folder, "other", "three");
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let expect = format!("serial {}\n", last + 1);
    assert!(pointer(&bucket).contains(&expect), "{}", pointer(&bucket));
}

/// As after `rm -r` of all that a listing shows.
#[test]
fn a_picture_of_which_only_hidden_files_are_left_is_made_again() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let picture = picture(&folder, "cache");
    for name in ["current", "log", "releases"] {
        let path = picture.join(name);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    for name in [".seen", ".upload", ".new-1-2"] {
        fs::write(picture.join(name), "").unwrap();
    }
    publish(&bucket, &folder, "cache", &["--note", "two"]).success();
    assert!(pointer(&bucket).contains("serial 2\n"));
}

/// Nor a copy.
#[test]
fn two_services_share_no_copy() {
    let folder = with_site();
    let [bucket, other] = [(); 2].map(|()| Bucket::new());
    for bucket in [&bucket, &other] {
        publish(bucket, &folder, "cache", &[]).success();
    }
    let follow = ["follow", URL, "copy", "--once"];
    on(&bucket, &folder, &follow).success();
    let note = folder.join("copy/.origin");
    let noted = fs::read_to_string(&note).unwrap();
    let serve = |bucket: &Bucket, flags: &[&str]| {
        let mut command = bucket.command(&folder, "cache");
        command.env("STATE_DIRECTORY", folder.join("state"));
        run(command.args(["serve", URL, "--check-config"]).args(flags))
    };
    let expect = format!(
        "cannot copy to 'copy': it has a copy of '{URL}' at another service, or of another account\n\
         help: name the service and the account as before"
    );
    for ended in [
        on(&other, &folder, &follow),
        serve(&other, &["--copy", "copy"]),
    ] {
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.err.contains(&expect), "{}", ended.err);
    }
    serve(&bucket, &["--copy", "copy"]).success();
    // A slash makes no other service of it.
    let mut same = bucket.command(&folder, "cache");
    same.env("AWS_ENDPOINT_URL", bucket.url() + "/");
    run(same.args(follow)).success();
    // A note of an earlier version, which has the URL alone, is made one of the first that comes.
    fs::write(&note, format!("{URL}\n")).unwrap();
    // If it cannot be, as on a full disk, releases come nevertheless, and it is made later.
    let former = format!("{URL}\n");
    let in_the_way = folder.join("copy/.new-origin");
    fs::create_dir(&in_the_way).unwrap();
    change(&folder, "Two");
    publish(&bucket, &folder, "cache", &[]).success();
    on(&bucket, &folder, &follow).success();
    let copied = fs::read_to_string(folder.join("copy/current")).unwrap();
    assert_eq!(copied, pointer(&bucket));
    assert_eq!(fs::read_to_string(&note).unwrap(), former);
    fs::remove_dir(&in_the_way).unwrap();
    on(&bucket, &folder, &follow).success();
    assert_eq!(fs::read_to_string(&note).unwrap(), noted);

    // Nor do they share the folder that nobody names.
    let place = |bucket: &Bucket| {
        let told = serve(bucket, &[]).success().text().to_owned();
        let place = told.split("state/copies/").nth(1).expect("it is named");
        place.split('\'').next().unwrap().to_owned()
    };
    let former = "s3%3A++bucket+site";
    let [first, second] = [&bucket, &other].map(place);
    assert_ne!(first, second);
    assert!(first.starts_with(&format!("{former}@")), "{first}");
    // What an earlier version has made there stays in use.
    let copies = folder.join("state/copies");
    fs::create_dir_all(&copies).unwrap();
    fs::rename(folder.join("copy"), copies.join(former)).unwrap();
    assert_eq!(
        serve(&bucket, &[]).success().text().matches("note").count(),
        0
    );
    assert_eq!(place(&other), second);
}

/// All objects of the bucket are of one second, and this one keeps its length.
#[test]
fn an_object_that_was_replaced_is_known_by_its_entity_tag() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = pointer(&bucket);
    let (name, _) = releases(&bucket).remove(0);
    bucket.with(|it| it.by_name.get_mut(&name).unwrap()[5000] ^= 1);
    let again = publish(&bucket, &folder, "cache", &[]);
    let expect = "it is not a whole archive of that release";
    refused(&bucket, &again, &before, expect);
}

#[test]
fn what_was_not_brought_to_its_end_goes() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let left = "releases/.part-0123456789abcdef0123456789abcdef.gannet";
    let left = picture(&folder, "cache").join(left);
    fs::write(&left, "half of it").unwrap();
    publish(&bucket, &folder, "cache", &[]).success();
    assert!(!left.exists());
}

#[test]
fn of_several_cache_folders_the_first_counts() {
    let (bucket, folder) = (Bucket::new(), with_site());
    let mut command = bucket.command(&folder, "unused");
    let folders = ["first", "second"].map(|it| folder.join(it).display().to_string());
    command.env("CACHE_DIRECTORY", folders.join(":"));
    run(command.args(["publish", "site", URL, "--fast"])).success();
    assert_eq!(pictures(&folder, "first").len(), 1);
    assert!(!folder.join("second").exists());
}
