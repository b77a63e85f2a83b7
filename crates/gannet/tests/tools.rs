//! Tools on archives: what they say, and what their exit status is.

mod support;

use std::path::{Path, PathBuf};

use support::{Folder, gannet, gannet_in, same};

fn pack(folder: &Folder, out: &Folder, name: &str) -> String {
    let path: PathBuf = out.join(name);
    let path = path.to_str().expect("UTF-8").to_owned();
    gannet_in(folder, ["pack", ".", "--fast", "--quiet", "-o", &path]).success();
    path
}

/// The `"change": "...", "url": "..."` pairs of the JSON.
fn changes(json: &str) -> Vec<(String, String)> {
    let value = |line: &str, key: &str| {
        let start = line.find(&format!("\"{key}\": \""))? + key.len() + 5;
        Some(line[start..].split('"').next()?.to_owned())
    };
    let pairs = json
        .lines()
        .filter_map(|line| Some((value(line, "change")?, value(line, "url")?)));
    pairs.collect()
}

#[test]
fn diff_names_added_changed_redirected_and_removed_urls() {
    let (folder, out) = (Folder::site(), Folder::new());
    folder.write("gone.txt", "gone");
    folder.write("moved", "it becomes a folder");
    let before = pack(&folder, &out, "before.gannet");
    std::fs::remove_file(folder.join("gone.txt")).expect("it is there");
    std::fs::remove_file(folder.join("moved")).expect("it is there");
    folder.write("moved/index.html", "now a page");
    folder.write("new.txt", "new");
    folder.write("about.html", "changed");
    let after = pack(&folder, &out, "after.gannet");

    let same_ones = gannet(["diff", &before, &before]);
    assert_eq!(same_ones.status, Some(0));
    same(same_ones.text(), "no differences\n");

    let text = gannet(["diff", &before, &after]);
    assert_eq!(text.status, Some(1));
    for line in [
        "~ /about  (content)",
        "~ /about.html  (content)",
        "- /gone.txt",
        "> /moved  (to /moved/)",
        "+ /moved/",
        "+ /new.txt",
        "4 added, 2 changed, 1 redirected, 1 removed without redirect",
    ] {
        assert!(text.text().lines().any(|it| it == line), "{line}: {text:?}");
    }
    assert!(text.text().contains("coding          before"), "{text:?}");

    let json = gannet(["diff", "--json", &before, &after]);
    assert_eq!(json.status, Some(1));
    let found = changes(json.text());
    assert_eq!(found.len(), 8, "{json:?}");
    assert!(found.contains(&("redirected".into(), "/moved".into())));
    assert!(json.text().contains("\"removed_without_redirect\": 1"));
}

#[test]
fn diff_of_what_cannot_be_read_ends_with_2() {
    let out = Folder::new();
    let archive = pack(&Folder::site(), &out, "a.gannet");
    let none = out.join("none");
    let ended = gannet(["diff", &archive, none.to_str().expect("UTF-8")]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.err.contains("no such file or directory (ENOENT)"));
}

#[test]
fn cat_takes_urls_and_writes_what_is_stored_in_a_coding() {
    let out = Folder::new();
    let archive = pack(&Folder::site(), &out, "a.gannet");
    let plain = gannet(["cat", &archive, "http://example.org/assets/app.css?v=1#x"]).success();
    assert_eq!(plain.out, "body { margin: 0 }\n".repeat(200).into_bytes());
    let gzip = gannet(["cat", "--coding", "gzip", &archive, "assets/app.css"]).success();
    assert_eq!(gzip.out[..2], [0x1f, 0x8b]);
    gannet(["cat", "-c", "gzip", &archive, "/assets/empty.txt"]).failure(
        1,
        "gannet: cannot write '/assets/empty.txt' as gzip: not stored so\n\
         help: it is stored as identity\n",
    );
    gannet(["cat", "-c", "gzp", &archive, "/"]).failure(
        2,
        "gannet: unknown coding 'gzp'\nhelp: the codings are identity, gzip, br and zstd\n",
    );
    assert!(Path::new(&archive).is_file());
}
