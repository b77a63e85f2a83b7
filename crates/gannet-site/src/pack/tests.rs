//! Packs real directories, and reads the archives back.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use gannet_archive::{Coding, EntryKind, Key};

use super::{
    Effort, Encoder, NoProgress, PackError, PackOptions, PackReport, Remedy, Warning, pack,
};
use crate::archive::{ArchiveFile, CatOptions, ExtractOptions, SiteError, cat, extract, verify};

mod choosing;
mod dictionaries;
mod lifetimes;
mod rebuilding;
mod signing;
mod whole;

/// A private directory for one test, removed at its end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gannet-pack-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("site")).expect("a writable directory for temporary files");
        Self(path)
    }

    /// Writes a file of the site.
    fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.site().join(path);
        fs::create_dir_all(path.parent().expect("it is in the site")).expect("writable");
        fs::write(&path, content).expect("writable");
        path
    }

    fn site(&self) -> PathBuf {
        self.0.join("site")
    }

    fn archive(&self) -> PathBuf {
        self.0.join("site.gannet")
    }

    fn options(&self) -> PackOptions {
        PackOptions {
            encoders: Encoder::all(Effort::Fast),
            ..PackOptions::new(self.site(), self.archive())
        }
    }

    fn pack(&self) -> PackReport {
        pack(&self.options(), &mut NoProgress).expect("it packs")
    }

    fn open(&self) -> ArchiveFile {
        ArchiveFile::open(&self.archive()).expect("it opens")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The answer for a path: the uncoded content, or the target of a redirect.
fn answer(file: &ArchiveFile, key: Key<'_>) -> Option<String> {
    let entry = file.archive().lookup(key)?;
    if let EntryKind::Redirect { status, location } = entry.kind() {
        return Some(format!("{status} {}", String::from_utf8_lossy(location)));
    }
    let mut text = String::new();
    let mut content = file
        .content(&entry)
        .expect("readable")
        .expect("it has content");
    content.read_to_string(&mut text).expect("text");
    Some(text)
}

fn get(file: &ArchiveFile, path: &str) -> Option<String> {
    answer(file, Key::content(path.as_bytes()))
}

fn warnings(report: &PackReport) -> Vec<&str> {
    report.warnings.iter().map(|it| it.text.as_str()).collect()
}

fn rules(report: &PackReport) -> Vec<(String, String)> {
    let name =
        |path: &Path| String::from_utf8_lossy(path.file_name().expect("named").as_bytes()).into();
    report
        .skipped
        .iter()
        .map(|one| (name(&one.path), one.rule.clone()))
        .collect()
}

#[test]
fn paths_answer_what_a_live_directory_answers() {
    let place = Place::new();
    for path in [
        "index.html",
        "about.html",
        "both",
        "both.html",
        "pair.html",
        "pair/x.txt",
        "docs/index.html",
        "docs/404.html",
        "404.html",
        "a b/\u{e9}.txt",
        "plain/x.css",
    ] {
        place.file(path, path);
    }
    place.pack();
    let file = place.open();
    let check = |path: &str, expect: Option<&str>| {
        assert_eq!(get(&file, path).as_deref(), expect, "{path}");
    };
    check("/", Some("index.html"));
    check("/index.html", Some("index.html"));
    check("/about", Some("about.html"));
    check("/about.html", Some("about.html"));
    check("/about/", None);
    check("/both", Some("both"));
    check("/pair", Some("pair.html"));
    check("/pair/", None);
    check("/docs", Some("301 /docs/"));
    check("/docs/", Some("docs/index.html"));
    // A folder without anything to list.
    check("/plain", None);
    check("/plain/", None);
    check("/a b", None);
    check("/a b/\u{e9}.txt", Some("a b/\u{e9}.txt"));
    check("/docs/index.html/", None);
    let missing = |folder: &str| answer(&file, Key::not_found_page(folder.as_bytes()));
    assert_eq!(missing("/").as_deref(), Some("404.html"));
    assert_eq!(missing("/docs/").as_deref(), Some("docs/404.html"));
    assert_eq!(missing("/plain/"), None);
}

#[test]
fn clean_urls_can_be_left_out() {
    let place = Place::new();
    place.file("about.html", "about");
    let options = PackOptions {
        clean_urls: false,
        spa: true,
        ..place.options()
    };
    pack(&options, &mut NoProgress).expect("it packs");
    let file = place.open();
    assert_eq!(get(&file, "/about"), None);
    assert_eq!(get(&file, "/about.html").as_deref(), Some("about"));
    assert!(file.archive().options().spa);
    assert!(!file.archive().options().clean_urls);
}

#[test]
fn variants_are_kept_when_they_pay_and_never_for_media() {
    let place = Place::new();
    let text = "the same words again and again, ".repeat(400);
    place.file("a.txt", &text);
    place.file("b.png", &text);
    place.file("small.txt", "aaaaaaaaaaaaaaaaaaaa");
    let report = place.pack();
    assert_eq!((report.file_count, report.unique_count), (3, 2));
    let file = place.open();
    let entry = file
        .archive()
        .lookup(Key::content(b"/a.txt"))
        .expect("packed");
    let codings: Vec<_> = entry.variants().map(|variant| variant.coding()).collect();
    assert_eq!(codings.len(), 4, "{codings:?}");
    assert_eq!(codings[3], Coding::Identity);
    for variant in entry.variants() {
        let block = String::from_utf8_lossy(&variant.h1().whole()).into_owned();
        let has_line = |line: &str| block.lines().any(|one| one == line);
        assert!(
            has_line(&format!("Content-Length: {}", variant.blob_len())),
            "{block}"
        );
        assert!(
            has_line("Content-Type: text/plain; charset=utf-8"),
            "{block}"
        );
        assert!(has_line("Vary: accept-encoding"), "{block}");
        let tag = String::from_utf8_lossy(variant.entity_tag()).into_owned();
        assert!(has_line(&format!("ETag: {tag}")), "{block}");
        let coding = format!("Content-Encoding: {}", variant.coding().name());
        assert_eq!(
            has_line(&coding),
            variant.coding() != Coding::Identity,
            "{block}"
        );
    }
    for path in ["/b.png", "/small.txt"] {
        let entry = file
            .archive()
            .lookup(Key::content(path.as_bytes()))
            .expect("packed");
        let codings: Vec<_> = entry.variants().map(|variant| variant.coding()).collect();
        assert_eq!(codings, [Coding::Identity], "{path}");
        let block = entry.variants().next().expect("one").h1().whole();
        assert!(!String::from_utf8_lossy(&block).contains("Vary"), "{path}");
    }
}

#[test]
fn leftovers_and_links_are_skipped_with_their_rule() {
    let place = Place::new();
    place.file("x.css", "body { color: red }".repeat(20));
    place.file(".htaccess", "deny");
    place.file(".well-known/security.txt", "contact");
    place.file("x.css~", "old");
    place.file("real/y.txt", "y");
    let link = |to: &Path, name: &str| symlink(to, place.site().join(name)).expect("a link");
    link(Path::new("nowhere"), "dangling");
    link(Path::new("self"), "self");
    link(Path::new(".."), "real/up");
    link(Path::new("real"), "alias");
    link(Path::new("y.txt"), "real/z.txt");
    place.file("bad\\name", "x");
    place.file("old.gannet", "an archive");

    let report = place.pack();
    assert_eq!(
        rules(&report)
            .iter()
            .map(|(name, rule)| (name.as_str(), rule.as_str()))
            .collect::<Vec<_>>(),
        [
            (".htaccess", "dotfile"),
            ("up", "symbolic link loop"),
            ("bad\\name", "no request can name it"),
            ("dangling", "dangling symbolic link"),
            ("old.gannet", "*.gannet"),
            ("up", "symbolic link loop"),
            ("self", "symbolic link loop"),
            ("x.css~", "*~"),
        ]
    );
    let file = place.open();
    assert_eq!(
        get(&file, "/.well-known/security.txt").as_deref(),
        Some("contact")
    );
    assert_eq!(get(&file, "/alias/z.txt").as_deref(), Some("y"));
    assert_eq!(get(&file, "/real/z.txt").as_deref(), Some("y"));
}

#[test]
fn compressed_copies_of_packed_files_are_left_out() {
    let place = Place::new();
    place.file("index.html", "front");
    for copy in ["index.html.gz", "index.html.br", "index.html.zst"] {
        place.file(copy, "coded");
    }
    place.file("font.woff2", "letters");
    place.file("font.woff2.gz", "a download");
    place.file("alone.csv.gz", "a download");
    let report = place.pack();
    let copy = |suffix| {
        (
            format!("index.html.{suffix}"),
            "a compressed copy of /index.html".into(),
        )
    };
    assert_eq!(rules(&report), ["br", "gz", "zst"].map(copy));
    assert_eq!(report.warnings, []);
    let file = place.open();
    for (path, expect) in [
        ("/index.html", Some("front")),
        ("/index.html.br", None),
        ("/font.woff2.gz", Some("a download")),
        ("/alone.csv.gz", Some("a download")),
    ] {
        assert_eq!(get(&file, path).as_deref(), expect, "{path}");
    }
}

#[test]
fn text_in_another_encoding_is_told() {
    let place = Place::new();
    place.file("index.html", "café");
    place.file("data.json", b"caf\xe9");
    place.file("old/ruled.html", b"r\xe9gl\xe9");
    place.file("wide.txt", b"\xff\xfec\0");
    place.file("Build/g.framework.js.br", b"\x8b\xff");
    place.file("_headers", "/old/ruled.html\n  Content-Type: text/html\n");
    assert_eq!(place.pack().warnings, []);
    // The same bytes as data and as text.
    place.file("new.json", b"na\xefve");
    place.file("old/a.html", b"na\xefve");
    place.file("old/b.html", b"na\xefve");
    place.file("old/c.js", b"'\xe9'");
    let text = "text that is sent as UTF-8, but is not UTF-8: 3, such as '/old/a.html'";
    let warning = Warning::with(text.into(), Remedy::Types);
    assert_eq!(place.pack().warnings, [warning]);
}

#[test]
fn what_looks_like_a_secret_is_told() {
    let place = Place::new();
    let key = "-----BEGIN EC PRIVATE KEY-----\nMHc\n";
    let certificate = "-----BEGIN CERTIFICATE-----\nMII\n";
    place.file("index.html", "front");
    // Not secrets: by content, by a partial name, or excluded.
    place.file("ca.pem", certificate);
    place.file("talk.key", "slides");
    place.file("id_rsa.pub", "ssh-rsa AAAA");
    place.file(".env", "PASSWORD=1");
    assert_eq!(place.pack().warnings, []);

    place.file("tls/Server.KEY", key);
    let one = "'/tls/Server.KEY' looks like a secret, and would be public; leave it out";
    let remedy = vec!["/tls/Server.KEY".to_owned()];
    let one = Warning::with(one.into(), Remedy::Exclude(remedy.clone()));
    assert_eq!(place.pack().warnings, [one]);
    // The remedy is effective.
    let mut options = place.options();
    options.exclude = remedy;
    let report = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!(report.warnings, []);

    place.file("both.pem", format!("{certificate}{key}"));
    place.file("backup/id_ed25519", "a key");
    place.file("a.p12", "keys");
    let mut options = place.options();
    options.dotfiles = true;
    place.file(".env.example", "PASSWORD=");
    place.file(".env.local", "PASSWORD=1");
    place.file(".htpasswd", "a:b");
    let report = pack(&options, &mut NoProgress).expect("it packs");
    let all = "7 files look like secrets, and would be public, such as '/.env', '/.env.local', \
               '/.htpasswd'; leave them out";
    let remedy = ["/.env", "/.env.local", "/.htpasswd"].map(str::to_owned);
    let all = Warning::with(all.into(), Remedy::Exclude(remedy.into()));
    assert_eq!(report.warnings, [all]);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let place = Place::new();
    let moment = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for number in 0..60 {
        let path = place.file(
            &format!("{}/{number}.txt", number % 7),
            "text ".repeat(number * 9),
        );
        fs::File::open(&path)
            .expect("readable")
            .set_modified(moment)
            .expect("a date");
    }
    let mut archives = Vec::new();
    for (threads, output) in [(1, "one"), (2, "two"), (7, "seven")] {
        let output = place.0.join(output);
        let options = PackOptions {
            threads,
            listing: true,
            output: output.clone(),
            ..place.options()
        };
        pack(&options, &mut NoProgress).expect("it packs");
        archives.push(fs::read(output).expect("written"));
    }
    assert!(archives.windows(2).all(|two| two[0] == two[1]));

    // A checkout at another time packs the same with a source date.
    let options = PackOptions {
        source_date_epoch: Some(1_600_000_000),
        ..place.options()
    };
    pack(&options, &mut NoProgress).expect("it packs");
    let before = fs::read(place.archive()).expect("written");
    let later = moment + Duration::from_secs(5);
    fs::File::open(place.site().join("0/0.txt"))
        .expect("there")
        .set_modified(later)
        .expect("a date");
    pack(&options, &mut NoProgress).expect("it packs");
    assert!(before == fs::read(place.archive()).expect("written"));
    let file = place.open();
    let entry = file
        .archive()
        .lookup(Key::content(b"/0/0.txt"))
        .expect("packed");
    assert_eq!(entry.last_modified(), Some(1_600_000_000));
}

#[test]
fn a_failure_leaves_the_archive_that_was_there() {
    let place = Place::new();
    place.file("a.txt", "first");
    place.pack();
    let before = fs::read(place.archive()).expect("written");
    let options = PackOptions {
        types: vec![("txt".into(), "nonsense".into())],
        ..place.options()
    };
    let error = pack(&options, &mut NoProgress).expect_err("a type that is none");
    assert_eq!(error.to_string(), "cannot use content type 'txt=nonsense'");

    let empty = place.0.join("empty");
    fs::create_dir(&empty).expect("writable");
    let error = pack(&PackOptions::new(&empty, place.archive()), &mut NoProgress);
    assert!(matches!(error, Err(PackError::Empty(_))), "{error:?}");
    let error = pack(
        &PackOptions::new(place.0.join("gone"), place.archive()),
        &mut NoProgress,
    );
    let message = error.expect_err("there is nothing").to_string();
    assert!(
        message.ends_with("gone': no such file or directory (ENOENT)"),
        "{message}"
    );
    let file = PackOptions::new(place.site().join("a.txt"), place.archive());
    let error = pack(&file, &mut NoProgress).expect_err("a file");
    assert!(matches!(error, PackError::NotADirectory(_)), "{error}");
    let folder = PackOptions::new(place.site(), &place.0);
    let error = pack(&folder, &mut NoProgress).expect_err("a folder cannot be written");
    assert!(
        error.to_string().ends_with("is a directory (EISDIR)"),
        "{error}"
    );

    assert!(before == fs::read(place.archive()).expect("it is still there"));
    let mut left: Vec<_> = fs::read_dir(&place.0)
        .expect("readable")
        .map(|item| item.expect("readable").file_name())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["empty", "site", "site.gannet"],
        "no temporary file is left"
    );
}

#[test]
fn an_archive_that_cannot_be_written_is_named() {
    let place = Place::new();
    place.file("a.txt", "x".repeat(10_000));
    let target = place.0.join("no/such/folder/site.gannet");
    let error = pack(&PackOptions::new(place.site(), &target), &mut NoProgress);
    let message = error.expect_err("the folder is not there").to_string();
    let expect = format!(
        "cannot write '{}': no such file or directory (ENOENT)",
        target.display()
    );
    assert_eq!(message, expect);
}

#[test]
fn the_archive_may_lie_in_the_site() {
    let place = Place::new();
    place.file("a.txt", "a");
    let output = place.site().join("out.gannet");
    for _ in 0..2 {
        let options = PackOptions {
            output: output.clone(),
            ..place.options()
        };
        let report = pack(&options, &mut NoProgress).expect("it packs");
        assert_eq!(report.file_count, 1);
    }
    assert_eq!(
        ArchiveFile::open(&output)
            .expect("it opens")
            .archive()
            .stats()
            .file_count,
        1
    );
}

#[test]
fn listings_are_packed_on_request() {
    let place = Place::new();
    place.file("folder/a & b.txt", "a");
    place.file("with/index.html", "page");
    let options = PackOptions {
        listing: true,
        ..place.options()
    };
    let report = pack(&options, &mut NoProgress).expect("it packs");
    assert_eq!(
        report.listing_count, 2,
        "the root and the folder without a page"
    );
    let file = place.open();
    let entry = file
        .archive()
        .lookup(Key::content(b"/folder/"))
        .expect("listed");
    assert!(entry.is_generated());
    let block = entry.variants().next().expect("one").h1().whole();
    assert!(String::from_utf8_lossy(&block).contains("Content-Security-Policy: "));
    let page = get(&file, "/folder/").expect("listed");
    assert!(page.contains("a &amp; b.txt"), "{page}");
    assert_eq!(get(&file, "/with/").as_deref(), Some("page"));
}

#[test]
fn what_is_packed_comes_out_again() {
    let place = Place::new();
    let noise: Vec<u8> = (0..100_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let files: [(&str, &[u8]); 6] = [
        ("index.html", b"<p>hello"),
        ("empty", b""),
        ("d/e/f.bin", &noise),
        ("d/copy.bin", &noise),
        ("404.html", b"missing"),
        ("\u{1f426}.txt", b"a bird"),
    ];
    for (path, content) in files {
        place.file(path, content);
    }
    let strange = place
        .site()
        .join(std::ffi::OsStr::from_bytes(b"\xff\xfe.txt"));
    fs::write(&strange, "not UTF-8").expect("writable");
    place.pack();
    let output = place.0.join("out");
    let options = ExtractOptions {
        archive: place.archive(),
        output: output.clone(),
    };
    let report = extract(&options).expect("it extracts");
    assert_eq!(report.file_count, 7);
    for (path, content) in files {
        assert_eq!(
            fs::read(output.join(path)).expect("extracted"),
            content,
            "{path}"
        );
        let mut out = Vec::new();
        let mut url = Vec::new();
        gannet_http::semantics::target_path::encode_path(path.as_bytes(), &mut url);
        let paths = vec![String::from_utf8(url).expect("ASCII")];
        cat(
            &CatOptions {
                archive: place.archive(),
                paths,
                coding: None,
            },
            &mut out,
        )
        .expect("exists");
        assert_eq!(out, content, "{path}");
    }
    let strange = output.join(strange.file_name().expect("named"));
    assert_eq!(fs::read(strange).expect("extracted"), b"not UTF-8");
    let error = extract(&options).expect_err("the directory is not empty now");
    assert!(matches!(error, SiteError::NotEmpty(_)), "{error}");
}

#[test]
fn damage_is_found_and_named() {
    let place = Place::new();
    place.file("deep/large.bin", vec![7; 70_000]);
    place.file("tiny.txt", "tiny");
    place.pack();
    let report = verify(&place.archive()).expect("sound");
    assert_eq!(
        report.blob_count,
        place.open().archive().blobs().len() as u64
    );

    let sound = fs::read(place.archive()).expect("readable");
    let damage = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(place.archive(), bytes).expect("writable");
        verify(&place.archive())
            .expect_err("a byte is wrong")
            .to_string()
    };
    let message = damage(4096 + 1000);
    assert!(
        message.contains("wrong digest of '/deep/large.bin' (identity)"),
        "{message}"
    );
    let message = damage(sound.len() - 1);
    assert!(
        message.contains("wrong checksum of section recipe"),
        "{message}"
    );
    let message = damage(0);
    assert!(
        message.contains("wrong magic at offset 0 (found 8867616e)"),
        "{message}"
    );

    let mut bytes = sound.clone();
    bytes[5000] ^= 1;
    fs::write(place.archive(), bytes).expect("writable");
    let output = place.0.join("out");
    let error = extract(&ExtractOptions {
        archive: place.archive(),
        output,
    });
    let message = error.expect_err("a byte is wrong").to_string();
    assert!(
        message.contains("wrong digest of '/deep/large.bin'"),
        "{message}"
    );
}

#[test]
fn what_is_not_there_is_told_with_a_way_on() {
    let place = Place::new();
    place.file("docs/index.html", "x");
    place.pack();
    let fail = |path: &str| {
        let options = CatOptions {
            archive: place.archive(),
            paths: vec![path.into()],
            coding: None,
        };
        cat(&options, &mut Vec::new()).expect_err("it is not there")
    };
    assert_eq!(
        fail("/docs").help().as_deref(),
        Some("it redirects to '/docs/'; use that path")
    );
    for path in ["/nothing", "/../x"] {
        let error = fail(path);
        let is_bare = matches!(error, SiteError::NotFound { redirect: None, .. });
        assert!(is_bare, "{error}");
    }
    let error = ArchiveFile::open(&place.site()).expect_err("a folder");
    assert!(
        error.to_string().ends_with("is a directory (EISDIR)"),
        "{error}"
    );
}
