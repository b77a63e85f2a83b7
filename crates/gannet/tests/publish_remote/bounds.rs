//! What a bucket can make a publisher fetch: the disk here has an end.

use std::sync::mpsc::{Receiver, channel};

use super::bucket::{Before, Bucket};
use super::{URL, change, line, on, pointer, publish, refused, releases, with_site};

/// Hears of each request for the content of an object.
fn fetches(bucket: &Bucket, name: &str) -> Receiver<()> {
    let (told, hear) = channel();
    let name = name.to_owned();
    bucket.before(move |asked, _| {
        if asked.method == "GET" && asked.object == name {
            told.send(()).unwrap();
        }
        Before::Answer
    });
    hear
}

/// Whoever can write there can name any length.
#[test]
fn a_release_that_would_fill_the_disk_is_not_fetched() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let (name, content) = releases(&bucket).remove(0);
    let huge = "1099511627776";
    let text = pointer(&bucket);
    let text = text.replace(
        &format!("size {}\n", content.len()),
        &format!("size {huge}\n"),
    );
    assert_eq!(line(&text, "size"), huge);
    bucket.with(|it| {
        for object in ["site/current", "site/log/1"] {
            it.by_name.insert(object.into(), text.clone().into_bytes());
        }
        it.lengths.insert(name.clone(), huge.parse().unwrap());
    });
    let fetched = fetches(&bucket, &name);
    change(&folder, "Two");
    // It must not hold up the next one.
    let ended = publish(&bucket, &folder, "other", &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let expect =
        format!("gannet: cannot fetch 's3://bucket/{name}': it has {huge} bytes, and at most ");
    assert!(ended.err.contains(&expect), "{}", ended.err);
    let help = match ended
        .err
        .contains(" are fetched: half of what is free here\n")
    {
        true => "\nhelp: make room",
        false => "\nhelp: to go back to it, publish its site again",
    };
    assert!(ended.err.contains(help), "{}", ended.err);
    let is_most = ended
        .err
        .contains(&format!("at most {} are fetched", 64_u64 << 30));
    assert_eq!(is_most, help.contains("go back"), "{}", ended.err);
    let expect_next =
        format!("not checked for URLs that vanish: 's3://bucket/{name}' could not be fetched\n");
    assert!(ended.err.contains(&expect_next), "{}", ended.err);
    let back = on(&bucket, &folder, &["rollback", URL]);
    assert_eq!(back.status, Some(1), "{back:?}");
    assert!(back.err.contains(&expect), "{}", back.err);
    assert_eq!(fetched.try_iter().count(), 0, "nothing of it was asked for");
}

/// A release is the same but for its signature, whoever has packed it: so is its length.
#[test]
fn what_is_there_in_place_of_a_release_is_not_fetched_if_it_is_longer() {
    let (bucket, folder) = (Bucket::new(), with_site());
    publish(&bucket, &folder, "cache", &[]).success();
    let before = pointer(&bucket);
    let (name, _) = releases(&bucket).remove(0);
    bucket.with(|it| {
        let content = it.by_name.get_mut(&name).unwrap();
        content.resize(content.len() + (1 << 20), 0);
    });
    let fetched = fetches(&bucket, &name);
    let ended = publish(&bucket, &folder, "other", &[]);
    let expect =
        format!("cannot take over 's3://bucket/{name}': it is not a whole archive of that release");
    refused(&bucket, &ended, &before, &expect);
    assert_eq!(fetched.try_iter().count(), 0, "nothing of it was asked for");
}
