//! Tools for archives: their output and exit status.

use std::path::{Path, PathBuf};
use std::{fs, io};

use gannet_testkit::{Folder, gannet, gannet_in, same};

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
    std::fs::remove_file(folder.join("gone.txt")).expect("exists");
    std::fs::remove_file(folder.join("moved")).expect("exists");
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

/// A path matched by a rule with a splat or a placeholder is not removed; the content of another
/// page, as an application has it for every path, is not a redirect.
#[test]
fn diff_follows_rules_with_patterns() {
    let (folder, out) = (Folder::new(), Folder::new());
    for path in [
        "index.html",
        "blog/a.html",
        "u/7.html",
        "app/x.html",
        "gone.html",
    ] {
        folder.write(path, path);
    }
    let before = pack(&folder, &out, "before.gannet");
    for path in ["blog/a.html", "u/7.html", "app/x.html", "gone.html"] {
        std::fs::remove_file(folder.join(path)).expect("exists");
    }
    let rules = "/blog/* /news/:splat 301\n/u/:id https://x.example/:id 302\n/app/* / 200\n";
    folder.write("_redirects", rules);
    let after = pack(&folder, &out, "after.gannet");
    let text = gannet(["diff", &before, &after]);
    for line in [
        "> /blog/a  (to /news/a)",
        "> /blog/a.html  (to /news/a.html)",
        "> /u/7  (to https://x.example/7)",
        "- /app/x",
        "- /gone",
    ] {
        assert!(text.text().lines().any(|it| it == line), "{line}: {text:?}");
    }
    let counts = "0 added, 0 changed, 4 redirected, 4 removed without redirect";
    assert!(text.text().contains(counts), "{text:?}");
}

/// Packs a folder with rules and flags.
fn packed(out: &Folder, name: &str, files: &[(&str, &str)], flags: &[&str]) -> String {
    let folder = Folder::new();
    for (path, text) in files {
        folder.write(path, text);
    }
    let path = out.join(name).to_str().expect("UTF-8").to_owned();
    let arguments = ["pack", ".", "--fast", "--quiet", "-o", &path];
    gannet_in(&folder, arguments.iter().chain(flags)).success();
    path
}

/// What affects answers without being a path: rules and options.
#[test]
fn diff_tells_rules_and_options() {
    let out = Folder::new();
    let page = ("index.html", "a page");
    let rules = |text| ("_redirects", text);
    let old_rules = "/old /new 301\n/shop/* /:splat 302!\n";
    let old_fields = "https://a.example/*\n  X-A: 1\n  X-B: 2\n/none/*\n  X-C: 3\n";
    let files = [page, rules(old_rules), ("_headers", old_fields)];
    let before = packed(&out, "before.gannet", &files, &[]);

    let new_rules = "/old https://other.example/ 301\n/more /new 301\n";
    let new_fields = "https://a.example/*\n  X-A: 4\n  X-B: 2\n";
    let files = [page, rules(new_rules), ("_headers", new_fields)];
    let after = packed(&out, "after.gannet", &files, &["--spa"]);
    let ended = gannet(["diff", &before, &after]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let start = "\
        + _redirects: /more /new 301\n\
        ~ _redirects: /old https://other.example/ 301  (before: /new 301)\n\
        - _redirects: /shop/* /:splat 302!\n\
        - _headers: /none/*  (x-c)\n\
        ~ _headers: https://a.example/*  (x-a)\n\
        ~ spa: yes  (before: no)\n\
        \n\
        0 added, 0 changed, 0 redirected, 0 removed without redirect; 5 rules differ; 1 option \
        differs\n";
    assert!(ended.text().starts_with(start), "{ended:?}");
    let json = gannet(["diff", "--json", &before, &after]);
    assert_eq!(json.status, Some(1), "{json:?}");
    for part in [
        "{\"changes\": [], \"added\": 0",
        "{\"change\": \"changed\", \"file\": \"_redirects\", \"source\": \"/old\", \
         \"before\": [\"/new 301\"], \"after\": [\"https://other.example/ 301\"]}",
        "\"source\": \"/none/*\", \"before\": [\"x-c: 3\"], \"after\": []}",
        "\"options\": [{\"option\": \"spa\", \"before\": false, \"after\": true}]",
    ] {
        assert!(json.text().contains(part), "{part} in {json:?}");
    }

    for (files, flags, line) in [
        (
            [page, rules("/shop/* /:splat 302!\n/old /new 301\n")],
            &[][..],
            "~ _redirects  (order)",
        ),
        (
            [page, rules("/old /new 301\n/shop/* /:splat 302\n")],
            &["--compat", "cloudflare"],
            "~ _redirects  (read as cloudflare, before: netlify)",
        ),
        (
            [page, rules(old_rules)],
            &["--trailing-slash", "off"],
            "~ slash redirects: no  (before: yes)",
        ),
        (
            [page, rules(old_rules)],
            &["--digest", "sha-256"],
            "~ /  (repr-digest)",
        ),
    ] {
        let before = packed(&out, "one.gannet", &[page, rules(old_rules)], &[]);
        let after = packed(&out, "two.gannet", &files, flags);
        let ended = gannet(["diff", &before, &after]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let is_told = ended.text().lines().any(|it| it == line);
        assert!(is_told, "{line} in {ended:?}");
    }
}

#[test]
fn diff_tells_rules_of_hosts() {
    let out = Folder::new();
    let pages = [
        ("a.example/index.html", "a"),
        ("_default/index.html", "any"),
        ("_default/_redirects", "/x /y 301"),
    ];
    let with = |rules| {
        [
            pages[0],
            pages[1],
            pages[2],
            ("a.example/_redirects", rules),
        ]
    };
    let before = packed(&out, "one.gannet", &with("/old /new"), &["--hosts"]);
    let after = packed(&out, "two.gannet", &with("/old /newer"), &["--hosts"]);
    let ended = gannet(["diff", &before, &after]);
    let line = "~ //a.example/_redirects: /old /newer 301  (before: /new 301)\n\n";
    assert!(ended.text().starts_with(line), "{ended:?}");
    let after = packed(&out, "two.gannet", &pages, &["--hosts"]);
    let ended = gannet(["diff", &before, &after]);
    let line = "- //a.example/_redirects: /old /new 301\n\n";
    assert!(ended.text().starts_with(line), "{ended:?}");
}

/// Rules become files again, and options that no file records become flags: packing gives a site
/// with the same answers.
#[test]
fn what_is_extracted_packs_to_the_same_site() {
    let page = ("index.html", "<p>a page");
    let about = ("about.html", "<p>about");
    let docs = ("docs/index.html", "<p>docs");
    let redirects = "/old /new 301\n/shop/* id=:id https://b.example/:splat?i=:id 302!\n\
                     http://a.example/x /caf%C3%A9%20%2A 301\n/app/* /index.html 200\n";
    let fields = "/*\n  Content-Security-Policy: default-src 'self'\n  ! X-Frame-Options\n\
                  https://a.example/*\n  X-A: b, \"c: d\"\n";
    let rules = ("_redirects", redirects);
    let headers = ("_headers", fields);
    for (number, (files, flags)) in [
        (&[page, about, rules, headers][..], &[][..]),
        (
            &[page, rules, ("_headers", "/*\n X-A: b")],
            &["--spa", "--digest", "sha-256"],
        ),
        (&[page, about, docs], &["--trailing-slash", "always"]),
        (&[page, about, docs], &["--trailing-slash", "never"]),
        (
            &[page, about, docs],
            &["--trailing-slash", "off", "--no-clean-urls"],
        ),
        (
            &[page, rules, headers, (".x", "dot")],
            &["--no-rules", "--dotfiles"],
        ),
        (
            &[
                page,
                ("docs/x", "x"),
                ("_redirects", "/a/:b.html /c/:b\n/* /index.html 200"),
            ],
            &["--compat", "cloudflare", "--listing"],
        ),
        (
            &[
                page,
                ("docs/_redirects", "./old ./new 301\n./x/* /y 308"),
                ("docs/z", "z"),
            ],
            &["--compat", "kawipiko"],
        ),
        (
            &[
                ("_default/index.html", "any"),
                ("_default/_headers", fields),
                ("a.example/index.html", "a"),
                ("a.example/_redirects", redirects),
            ],
            &["--hosts"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let out = Folder::new();
        let before = packed(&out, "before.gannet", files, flags);
        let to = out.join("out").to_str().expect("UTF-8").to_owned();
        let ended = gannet(["extract", &before, "-o", &to]).success();
        let hint = ended.text().trim_end().strip_suffix('\'');
        let told = hint.map_or("", |it| {
            it.split("pack it with '").nth(1).unwrap_or_default()
        });
        assert_eq!(told.is_empty(), flags.is_empty(), "{ended:?}");
        let after = out.join("after.gannet").to_str().expect("UTF-8").to_owned();
        let again = ["pack", &to, "--fast", "--quiet", "-o", &after];
        gannet(again.into_iter().chain(told.split_whitespace())).success();
        let ended = gannet(["diff", &before, &after]);
        same(ended.text(), "no differences\n");
        assert_eq!(ended.status, Some(0), "{number} {told}");
    }
}

/// A mistyped name must not cost a document or a key.
#[test]
fn what_is_no_archive_is_not_replaced() {
    let (folder, out) = (Folder::site(), Folder::new());
    let path = out.join("thesis.odt").to_str().expect("UTF-8").to_owned();
    let pack = || gannet_in(&folder, ["pack", ".", "--fast", "-q", "-o", &path]);
    fs::write(&path, "years of work").expect("writable");
    pack().failure(
        1,
        &format!(
            "gannet: cannot replace '{path}': the existing file is not a gannet archive\n\
             help: name another file with -o, or remove this one first\n"
        ),
    );
    assert_eq!(fs::read(&path).expect("exists"), b"years of work");
    fs::write(&path, "").expect("writable");
    pack().success();
    pack().success();
}

#[test]
fn files_of_the_wrong_kind_are_told_which_command_takes_them() {
    let (folder, out) = (Folder::site(), Folder::new());
    let archive = pack(&folder, &out, "site.gannet");
    let other = out.join("other.gannet").to_str().expect("UTF-8").to_owned();
    let to = out.join("to").to_str().expect("UTF-8").to_owned();
    let gzip = out.join("page.gz").to_str().expect("UTF-8").to_owned();
    let plain = gannet(["cat", "-c", "gzip", &archive, "/assets/app.css"]).success();
    fs::write(&gzip, plain.out).expect("writable");
    let place = folder.path().to_str().expect("UTF-8");
    for (arguments, cause, help) in [
        (
            ["pack", &archive, "-o", &other],
            "it is packed already: a gannet archive",
            format!("'gannet extract {archive} -o DIR'"),
        ),
        (
            ["extract", &gzip, "-o", &to],
            "it is compressed, but is not a compressed tar",
            "unpack it yourself".into(),
        ),
        (
            ["diff", "--json", &archive, place],
            "it is a directory, not an archive",
            format!("'gannet pack {place} -o new.gannet'"),
        ),
    ] {
        let ended = gannet(arguments);
        let (first, second) = ended.err.split_once('\n').unwrap_or_default();
        assert!(first.ends_with(cause), "{ended:?}");
        assert!(second.contains(&help), "{ended:?}");
    }
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
        "gannet: cannot write '/assets/empty.txt' as gzip: not stored in this coding\n\
         help: it is stored as identity\n",
    );
    gannet(["cat", "-c", "gzp", &archive, "/"]).failure(
        2,
        "gannet: unknown coding 'gzp'\nhelp: the codings are identity, gzip, br and zstd\n",
    );
    assert!(Path::new(&archive).is_file());
}

/// A site as a foreign archive, made by common programs.
fn archive_of(folder: &Folder, out: &Folder, name: &str, flags: &str) -> PathBuf {
    let path = out.join(name);
    let mut tar = std::process::Command::new("tar");
    let tar = tar.arg(flags).arg(&path).arg("-C").arg(folder.path());
    let ended = gannet_testkit::run(tar.arg("."));
    assert_eq!(ended.status, Some(0), "{ended:?}");
    path
}

#[test]
fn a_tar_becomes_the_archive_of_its_directory() {
    let (folder, out) = (Folder::site(), Folder::new());
    let direct = pack(&folder, &out, "direct.gannet");
    for (name, flags) in [("site.tar", "-cf"), ("site.tar.gz", "-czf")] {
        let tar = archive_of(&folder, &out, name, flags);
        let output = out.join("imported.gannet");
        let output = output.to_str().expect("UTF-8");
        let tar = tar.to_str().expect("UTF-8");
        gannet(["pack", tar, "--fast", "--quiet", "-o", output]).success();
        let ended = gannet(["diff", &direct, output]);
        same(ended.text(), "no differences\n");
        // The directory it was unpacked to is removed.
        let left = fs::read_dir(out.path()).expect("exists");
        let hidden = left.filter_map(Result::ok);
        let mut hidden = hidden.filter(|it| it.file_name().as_encoded_bytes()[0] == b'.');
        assert!(hidden.next().is_none());
    }
}

#[test]
fn import_writes_files_and_names_what_it_cannot_take() {
    let (folder, out) = (Folder::site(), Folder::new());
    let tar = archive_of(&folder, &out, "site.tar", "-cf");
    let tar = tar.to_str().expect("UTF-8");
    let output = out.join("site");
    let output = output.to_str().expect("UTF-8");
    let ended = gannet(["extract", tar, "-o", output]).success();
    assert!(ended.text().ends_with(", from tar\n"), "{ended:?}");
    for (path, content) in folder.files() {
        assert_eq!(
            fs::read(Path::new(output).join(path)).expect("exists"),
            content
        );
    }
    gannet(["extract", tar, "-o", output]).failure(
        1,
        &format!(
            "gannet: cannot extract to '{output}': it is not empty\n\
             help: name a directory that is empty or does not exist yet\n"
        ),
    );
    let page = folder.join("index.html");
    let page = page.to_str().expect("UTF-8");
    gannet(["extract", page, "-o", "x"]).failure(
        1,
        &format!(
            "gannet: cannot extract '{page}': unknown kind of archive\n\
             help: gannet extracts its own archives, zip, tar, tar.gz, tar.zst and those of kawipiko\n"
        ),
    );
}

/// A site with valid entries, then one that leads out of it.
#[test]
fn a_failed_import_leaves_what_was_there_before() {
    let out = Folder::new();
    let mut builder = tar_of_one_folder();
    let mut header = header(3);
    header.as_mut_bytes()[..7].copy_from_slice(b"../evil");
    header.set_cksum();
    builder.append(&header, &b"bad"[..]).expect("in memory");
    out.write("site.tar", builder.into_inner().expect("in memory"));
    fs::create_dir_all(out.join("there/empty")).expect("writable");
    let names = |path: &str| {
        let items = fs::read_dir(out.join(path)).expect("exists");
        let name = |item: io::Result<fs::DirEntry>| item.expect("readable").file_name();
        let mut names: Vec<_> = items.map(name).collect();
        names.sort();
        names
    };
    for output in ["new", "there/new/deep", "there/empty"] {
        let ended = gannet_in(&out, ["extract", "site.tar", "-o", output]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.err.contains("leads out of the archive"), "{ended:?}");
        assert_eq!(names(""), ["site.tar", "there"], "{output}");
        assert_eq!(names("there"), ["empty"], "{output}");
        assert_eq!(names("there/empty").len(), 0, "{output}");
    }
}

#[test]
fn an_archive_of_one_folder_is_told_and_its_files_are_named_within_it() {
    let out = Folder::new();
    let mut builder = tar_of_one_folder();
    out.write("site.tar", builder.get_mut());
    let pack = |archive: &str| gannet_in(&out, ["pack", archive, "--fast", "-o", "a.gannet"]);
    let told = "warning: all files of 'site.tar' are in its folder 'dist', so their paths begin \
                with '/dist/'; to serve them at '/': 'gannet extract site.tar -o DIR', then 'gannet \
                pack DIR/dist'\n";
    let packed = pack("site.tar").success();
    assert!(packed.text().contains(told), "{packed:?}");
    let imported = gannet_in(&out, ["extract", "site.tar", "-o", "site"]).success();
    let hint = "from tar; all in one folder: the site may be 'site/dist'\n";
    assert!(imported.text().ends_with(hint), "{imported:?}");

    // Rules at the top: the site is no longer in one folder, and mistakes are located in the
    // archive.
    for (rules, status) in [("/a /b\n/a /c\n", 0), ("/a /b 399\n", 1)] {
        let mut header = header(rules.len() as u64);
        let added = builder.append_data(&mut header, "_redirects", rules.as_bytes());
        added.expect("in memory");
        out.write("rules.tar", builder.get_mut());
        let packed = pack("./rules.tar");
        assert_eq!(packed.status, Some(status), "{packed:?}");
        let told = format!("{}{}", packed.text(), packed.err);
        assert!(told.contains(" ./rules.tar/_redirects:"), "{told}");
        assert!(!told.contains("its folder"), "{told}");
        assert!(!told.contains(".import-"), "{told}");
    }
}

fn header(len: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(len);
    header.set_mode(0o644);
    header
}

/// Without its end.
fn tar_of_one_folder() -> tar::Builder<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for path in ["dist/index.html", "dist/about/index.html"] {
        let added = builder.append_data(&mut header(5), path, &b"<p>it"[..]);
        added.expect("in memory");
    }
    builder
}

/// A kawipiko archive with empty hash tables, which importing does not need.
fn kawipiko_archive(records: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in records {
        body.extend((key.len() as u32).to_le_bytes());
        body.extend((value.len() as u32).to_le_bytes());
        body.extend(key.bytes().chain(value.bytes()));
    }
    let end = (2048 + body.len()) as u32;
    let table = [end.to_le_bytes(), 0u32.to_le_bytes()].concat();
    [table.repeat(256), body].concat()
}

#[test]
fn an_archive_of_kawipiko_answers_as_its_server_did() {
    // Metadata is pairs of numbers: status 200 or 404, no coding, plain text.
    let (plain, missing) = (
        "h0000001H000000dh000001dH0000003h0000026H000000f",
        "h0000001H000000eh000001dH0000003h0000026H000000f",
    );
    let moved = "h0000001Zaad301h000003fZaaf./new";
    let archive = kawipiko_archive(&[
        ("schema", "kawipiko-2021d"),
        ("f:/docs/", "m0000001d0000004"),
        ("f:/docs/index", "m0000001d0000004"),
        ("f:/docs/index.txt", "m0000001d0000004"),
        ("f:/README first", "m0000001d0000004"),
        ("f:/docs/*", "m0000002d0000004"),
        ("r:/docs/old/*", "m0000003d0000005"),
        ("r:/docs/old/this", "m0000006d0000005"),
        ("m0000001", plain),
        ("m0000002", missing),
        ("m0000003", "h0000001Zaad302h000003fZaae/all"),
        ("m0000006", moved),
        ("d0000004", "some text"),
        ("d0000005", ""),
    ]);
    let (folder, out) = (Folder::new(), Folder::new());
    let cdb = folder.write("site.cdb", &archive);
    let cdb = cdb.to_str().expect("UTF-8");
    let packed = out.join("site.gannet");
    let packed = packed.to_str().expect("UTF-8");
    gannet(["pack", cdb, "--fast", "--quiet", "-o", packed]).success();
    for (path, lines) in [
        (
            "/docs/",
            ["status 200", "content-type: text/plain; charset=utf-8"],
        ),
        (
            "/docs/index",
            ["status 200", "content-type: text/plain; charset=utf-8"],
        ),
        (
            "/README%20first",
            ["status 200", "content-type: text/plain; charset=utf-8"],
        ),
        (
            "/docs/none",
            ["status 404", "content-type: text/plain; charset=utf-8"],
        ),
        ("/docs/old/x/y", ["status 302", "location: /all"]),
        ("/docs/old/this", ["status 301", "location: /docs/old/new"]),
    ] {
        let explained = gannet(["explain", path, packed]).success();
        for line in lines {
            let has = explained.text().lines().any(|it| it == line);
            assert!(has, "{path} {line}: {explained:?}");
        }
    }

    let output = out.join("files");
    let output = output.to_str().expect("UTF-8");
    let imported = gannet(["extract", cdb, "-o", output]).success();
    let hint = ", from kawipiko; pack it with '--compat kawipiko'\n";
    assert!(imported.text().ends_with(hint), "{imported:?}");
    let redirects = fs::read_to_string(Path::new(output).join("_redirects"));
    assert_eq!(
        redirects.expect("exists"),
        "/docs/old/* /all 302\n/docs/old/this ./new 301\n"
    );
}

#[test]
fn the_bill_of_materials_and_the_licences_are_in_the_program() {
    let sbom = gannet(["version", "--sbom"]).success();
    assert!(
        sbom.text()
            .starts_with("{\n  \"bomFormat\": \"CycloneDX\",\n")
    );
    assert!(sbom.text().contains("\"bom-ref\": \"pkg:cargo/rustix@"));
    assert_eq!(sbom.text(), gannet(["version", "--sbom"]).success().text());
    let brief = gannet(["version", "--license-names"]).success();
    let named = brief
        .text()
        .lines()
        .any(|line| line.starts_with("gannet 0.1.0"));
    assert!(named, "{brief:?}");
    let all = gannet(["version", "--licenses"]).success();
    assert!(
        all.text()
            .contains("Permission is hereby granted, free of charge")
    );
}
