//! What is known of names when the release before is at hand.

use super::*;

/// `cache-control` of a path.
fn lifetime(file: &ArchiveFile, path: &str) -> String {
    let entry = file.archive().lookup(Key::content(path.as_bytes()));
    let variant = entry.expect("packed").variants().next().expect("one");
    let block = variant.h1().whole();
    let block = String::from_utf8_lossy(&block);
    let field = block
        .lines()
        .find_map(|line| line.strip_prefix("cache-control: "));
    field.expect("a lifetime").to_owned()
}

#[test]
fn names_that_change_with_their_content_are_kept_from_then_on() {
    const KEPT: &str = "public, max-age=31536000, immutable";
    let place = Place::new();
    let options = PackOptions {
        previous: Some(place.archive()),
        ..place.options()
    };
    let check = |step: &str, expect: &[(&str, &str)]| {
        let file = place.open();
        for (path, expect) in expect {
            assert_eq!(lifetime(&file, path), *expect, "{step}: {path}");
        }
    };
    place.file("app.k3x9z1q7.js", "first");
    place.file("theme.3f2a9c1b.css", "first");
    place.file("plain.js", "first");
    let refused = pack(&options, &mut NoProgress).expect_err("there is no release before");
    assert!(refused.help().expect("a way on").contains("--previous"));
    place.pack();
    let first = [
        ("/app.k3x9z1q7.js", "no-cache"),
        ("/theme.3f2a9c1b.css", KEPT),
    ];
    check("first", &first);

    let remove = |name: &str| fs::remove_file(place.site().join(name)).expect("there");
    remove("app.k3x9z1q7.js");
    place.file("app.m7n5b3v1.js", "second");
    place.file("theme.3f2a9c1b.css", "second");
    let second = [
        ("/app.m7n5b3v1.js", KEPT),
        ("/theme.3f2a9c1b.css", "no-cache"),
        ("/plain.js", "no-cache"),
    ];
    pack(&options, &mut NoProgress).expect("it packs");
    check("second", &second);
    // Nothing changed: what was found holds on, and the archive is the same.
    let before = fs::read(place.archive()).expect("written");
    pack(&options, &mut NoProgress).expect("it packs");
    check("third", &second);
    assert!(before == fs::read(place.archive()).expect("written"));
    place.pack();
    check(
        "without",
        &[
            ("/app.m7n5b3v1.js", "no-cache"),
            ("/theme.3f2a9c1b.css", KEPT),
        ],
    );
}
