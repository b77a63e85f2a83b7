//! `gannet compress`: copies beside files, which hold what the files hold, and never anything of
//! others.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use gannet_testkit::client::ask;
use gannet_testkit::process::until;
use gannet_testkit::{
    Ended, Folder, Gannet, clean, command, command_of_nobody, gannet, gannet_in, program, run,
};
use rustix::fs::{Mode, OFlags};

const PAGE: &str = "<!doctype html><title>page</title><p>once more, and once more\n";

/// A folder with a page, and what is not to be compressed.
fn site() -> Folder {
    let site = Folder::new();
    site.write("page.html", PAGE.repeat(100));
    site.write("docs/app.js", "let value = 1;\n".repeat(300));
    site.write("short.txt", "short");
    site.write("image.png", PAGE.repeat(100));
    site.write("_headers", "/*\n  x-one: 1\n".repeat(100));
    site.write(".hidden/page.html", PAGE.repeat(100));
    site.write("data.csv.gz", PAGE.repeat(100));
    site
}

fn names(site: &Folder) -> Vec<String> {
    let files = site.files().into_iter();
    let mut names: Vec<_> = files.map(|(path, _)| path.display().to_string()).collect();
    names.retain(|name| !name.starts_with('.'));
    names
}

fn compress(site: &Folder, flags: &[&str]) -> (String, String) {
    let path = site.path().to_str().expect("UTF-8");
    let arguments = ["compress", path].into_iter().chain(flags.iter().copied());
    let ended = gannet(arguments);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let text = ended.text().replace(path, "SITE");
    (text, ended.err.replace(path, "SITE"))
}

/// The decoded content of a copy.
fn decoded(path: &Path) -> Vec<u8> {
    let coded = fs::read(path).expect("a copy");
    let mut content = Vec::new();
    match path.extension().and_then(|it| it.to_str()) {
        Some("gz") => flate2::read::GzDecoder::new(&coded[..])
            .read_to_end(&mut content)
            .expect("gzip"),
        Some("br") => brotli::Decompressor::new(&coded[..], 4096)
            .read_to_end(&mut content)
            .expect("Brotli"),
        _ => zstd::stream::read::Decoder::new(&coded[..])
            .and_then(|mut decoder| decoder.read_to_end(&mut content))
            .expect("zstd"),
    };
    content
}

fn set_time(path: &Path, seconds: u64) {
    let file = File::options().append(true).open(path).expect("the file");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_modified(time).expect("a time");
}

#[test]
fn files_that_become_smaller_get_copies_with_their_time_and_permissions() {
    let site = site();
    let page = site.join("page.html");
    fs::set_permissions(&page, fs::Permissions::from_mode(0o640)).expect("permissions");
    set_time(&page, 1_000_000_000);
    let (text, err) = compress(&site, &[]);
    assert_eq!(err, "");
    assert!(text.starts_with("SITE: 5 files, "), "{text}");
    assert!(
        text.ends_with("copies: 6 made, 0 current, 0 removed\n"),
        "{text}"
    );
    let expected = [
        "_headers",
        "data.csv.gz",
        "docs/app.js",
        "docs/app.js.br",
        "docs/app.js.gz",
        "docs/app.js.zst",
        "image.png",
        "page.html",
        "page.html.br",
        "page.html.gz",
        "page.html.zst",
        "short.txt",
    ];
    assert_eq!(names(&site), expected);
    assert!(!site.join(".hidden/page.html.br").exists());
    for suffix in ["br", "gz", "zst"] {
        let copy = site.join(format!("page.html.{suffix}"));
        let metadata = fs::metadata(&copy).expect("a copy");
        assert_eq!(metadata.mode() & 0o777, 0o640, "{suffix}");
        assert_eq!(metadata.mtime(), 1_000_000_000, "{suffix}");
        assert_eq!(decoded(&copy), PAGE.repeat(100).into_bytes());
    }
    let server = Gannet::serve(site.path(), &[]);
    let answer = ask(&server, "GET", "/page.html", &["accept-encoding: br"]);
    assert_eq!(answer.field("content-encoding"), Some("br"));
    assert_eq!(
        answer.body,
        fs::read(site.join("page.html.br")).expect("a copy")
    );
}

#[test]
fn what_is_current_stays_and_what_is_out_of_date_is_made_again() {
    let site = site();
    compress(&site, &[]);
    let copy = site.join("page.html.br");
    let before = fs::metadata(&copy).expect("a copy").ino();
    let (text, _) = compress(&site, &[]);
    assert!(
        text.ends_with("copies: 0 made, 6 current, 0 removed\n"),
        "{text}"
    );
    assert_eq!(fs::metadata(&copy).expect("a copy").ino(), before);
    // A later time alone makes no copy out of date, but servers would ignore it.
    let later = fs::metadata(site.join("page.html")).expect("it").mtime() + 100;
    set_time(&site.join("page.html"), later as u64);
    let (text, _) = compress(&site, &[]);
    assert!(
        text.ends_with("copies: 0 made, 6 current, 0 removed\n"),
        "{text}"
    );
    let metadata = fs::metadata(&copy).expect("a copy");
    assert_eq!((metadata.ino(), metadata.mtime()), (before, later));
    // Other content at the same time, as builds with a fixed time have.
    site.write("page.html", PAGE.replace("once", "twice").repeat(100));
    set_time(&site.join("page.html"), later as u64);
    site.write("docs/app.js", "short");
    let (text, err) = compress(&site, &[]);
    if err.contains("not made by gannet") {
        // A file system without extended attributes.
        gannet_testkit::left_out("extended attributes", &err);
        return;
    }
    assert!(
        text.ends_with("copies: 3 made, 0 current, 3 removed\n"),
        "{text}"
    );
    let content = fs::read(site.join("page.html")).expect("the page");
    assert_eq!(decoded(&copy), content);
    assert!(
        !site.join("docs/app.js.gz").exists(),
        "an older script would be sent"
    );
}

#[test]
fn what_others_made_is_left_alone_unless_forced() {
    let site = site();
    let all = "id,value\n1,2\n".repeat(900);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(all.as_bytes()).expect("in memory");
    let all = gzip.finish().expect("in memory");
    site.write("data.csv", "id,value\n1,2\n".repeat(90));
    site.write("data.csv.gz", &all);
    symlink("data.csv.gz", site.join("data.csv.br")).expect("a link");
    // Made by gannet, and changed by someone else.
    compress(&site, &["--compress", "gzip"]);
    site.write("page.html.gz", "mine");
    let (_, err) = compress(&site, &["--compress", "gzip,br"]);
    let expect = "gannet: not made by gannet, and left alone: 3, such as 'SITE/data.csv.gz'; ";
    assert!(err.starts_with(expect), "{err}");
    assert_eq!(fs::read(site.join("data.csv.gz")).expect("it"), all);
    assert_eq!(fs::read(site.join("page.html.gz")).expect("it"), b"mine");
    let (text, err) = compress(&site, &["--force", "--compress", "gzip,br"]);
    assert!(text.contains("copies: 5 made, 0 current"), "{text}");
    assert!(
        err.contains("left alone: 1, such as 'SITE/data.csv.br'"),
        "{err}"
    );
    let content = fs::read(site.join("data.csv")).expect("it");
    assert_eq!(decoded(&site.join("data.csv.gz")), content);
    assert!(site.join("data.csv.br").is_symlink());
}

#[test]
fn nothing_is_written_behind_links_to_folders() {
    let (site, other) = (site(), Folder::site());
    symlink(other.path(), site.join("linked")).expect("a link");
    symlink("page.html", site.join("same.html")).expect("a link");
    // The server refuses to follow it; a copy would publish what it leads to.
    other.write("private.html", PAGE.repeat(100));
    symlink(other.join("private.html"), site.join("out.html")).expect("a link");
    let before = other.files();
    let (text, err) = compress(&site, &[]);
    assert!(
        text.ends_with("copies: 9 made, 0 current, 0 removed\n"),
        "{text}"
    );
    assert!(
        err.contains("behind links to folders or out of this one, without copies: 2, such as "),
        "{err}"
    );
    assert_eq!(other.files(), before);
    assert!(!site.join("out.html.gz").exists());
    assert_eq!(
        decoded(&site.join("same.html.gz")),
        PAGE.repeat(100).into_bytes()
    );
}

/// An error would quote a file that is none of the folder's.
#[test]
fn patterns_that_lead_out_of_the_folder_are_not_read() {
    let (site, other) = (site(), Folder::new());
    other.write("secret", "[foreign\n");
    symlink(other.join("secret"), site.join("docs/.gannetignore")).expect("a link");
    // Nor is what is in a folder elsewhere.
    other.write("in/.gannetignore", "[foreign\n");
    other.write("in/page.html", PAGE.repeat(100));
    symlink(other.join("in"), site.join("linked")).expect("a link");
    let ended = gannet_in(&site, ["compress", "."]);
    let expect = "gannet: behind links to folders or out of this one, without copies: 1, such as './linked'; \
                  name the folder that a link leads to\n\
                  gannet: cannot read './docs/.gannetignore': a symbolic link leads out of the site\n\
                  help: make it a file of the folder, or remove it\n";
    assert_eq!(ended.err, expect);
    assert_eq!(ended.status, Some(1));
    assert!(site.join("page.html.br").exists());
    // In the folder itself.
    symlink(other.join("secret"), site.join(".gannetignore")).expect("a link");
    gannet_in(&site, ["compress", "."]).failure(
        1,
        "gannet: cannot read './.gannetignore': a symbolic link leads out of the site\n\
         help: make it a file of the folder, or remove it\n",
    );
}

#[test]
fn what_cannot_be_read_keeps_no_others_from_being_compressed() {
    let site = site();
    site.write("secret.html", PAGE.repeat(100));
    site.write("closed/page.html", PAGE.repeat(100));
    let set = |path: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(site.join(path), permissions).expect("permissions");
    };
    for path in ["", "docs"] {
        set(path, 0o777);
    }
    set("secret.html", 0);
    set("closed", 0);
    let mut command = command_of_nobody();
    let ended = run(command.arg("compress").arg(site.path()));
    set("closed", 0o755);
    let path = site.path().to_str().expect("UTF-8");
    let help = "help: run it as a user who may read it, or leave it out by a line in .gannetignore";
    let lines = ["closed", "secret.html"].map(|name| {
        format!("gannet: cannot read '{path}/{name}': permission denied (EACCES)\n{help}\n")
    });
    assert_eq!(ended.err, lines.concat());
    assert_eq!(ended.status, Some(1));
    assert!(
        ended
            .text()
            .ends_with("copies: 6 made, 0 current, 0 removed\n"),
        "{ended:?}"
    );
    assert!(site.join("page.html.br").exists());
}

/// Killed while copies are made: whole ones are there, and nothing else.
#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    let site = Folder::new();
    for number in 0..200 {
        site.write(
            format!("{number}.html"),
            format!("{number} {}", PAGE.repeat(200)),
        );
    }
    let flags = OFlags::WRONLY | OFlags::TMPFILE;
    if let Err(error) = rustix::fs::open(site.path(), flags, Mode::RWXU) {
        gannet_testkit::left_out("files without a name", error);
        return;
    }
    let count = || fs::read_dir(site.path()).expect("there").count();
    let mut copies: Vec<PathBuf> = Vec::new();
    // On a busy machine all of them may be made before it is killed.
    until("it is killed while copies are made", || {
        for path in copies.drain(..) {
            fs::remove_file(site.join(path)).expect("there");
        }
        let mut command = command();
        command.arg("compress").arg(site.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        until("three copies", || count() > 202);
        child.kill().expect("it is not waited for");
        child.wait().expect("it ends");
        let paths = site.files().into_iter().map(|(path, _)| path);
        copies = paths
            .filter(|path| path.extension().is_none_or(|it| it != "html"))
            .collect();
        copies.len() < 600
    });
    assert!(copies.len() >= 3, "{}", copies.len());
    for path in copies {
        let original = fs::read(site.join(path.with_extension("").to_str().expect("UTF-8")));
        let whole = decoded(&site.join(path.to_str().expect("UTF-8")));
        assert_eq!(whole, original.expect("a file"), "{}", path.display());
    }
}

#[test]
fn a_copy_has_the_owner_and_the_group_of_its_file() {
    let site = site();
    let page = site.join("page.html");
    if let Err(error) = chown(&page, Some(1_234), Some(4_321)) {
        gannet_testkit::left_out("files of other users", error);
        return;
    }
    compress(&site, &["--compress", "gzip"]);
    let copy = fs::metadata(site.join("page.html.gz")).expect("a copy");
    assert_eq!((copy.uid(), copy.gid()), (1_234, 4_321));
}

/// As in a container without that right: what is made again would be no other.
#[test]
fn copies_stay_that_root_may_not_give_to_the_owner_of_their_file() {
    let site = site();
    let page = site.join("page.html");
    if let Err(error) = chown(&page, Some(1_234), Some(4_321)) {
        gannet_testkit::left_out("files of other users", error);
        return;
    }
    fs::set_permissions(&page, fs::Permissions::from_mode(0o640)).expect("permissions");
    let without = "--bounding-set=-chown";
    if !gannet_testkit::tool("setpriv", &[without, "true"]) {
        return;
    }
    let compress = |mut command: Command| {
        command.arg("compress").arg(site.path());
        run(command.args(["--compress", "gzip"])).success()
    };
    let compress_without = || {
        let mut command = clean(Command::new("setpriv"));
        command.arg(without).arg(program());
        compress(command)
    };
    let ended = compress_without();
    let end = |ended: &Ended, counts: &str| {
        let text = ended.text();
        assert!(text.ends_with(&format!("copies: {counts}\n")), "{text}");
    };
    end(&ended, "2 made, 0 current, 0 removed");
    let copy = site.join("page.html.gz");
    let of = fs::metadata(&copy).expect("a copy");
    assert_eq!((of.uid(), of.mode() & 0o777), (0, 0o600));
    let ended = compress_without();
    end(&ended, "0 made, 2 current, 0 removed");
    // What its file has by now, it gets.
    fs::set_permissions(&page, fs::Permissions::from_mode(0o644)).expect("permissions");
    let ended = compress_without();
    end(&ended, "1 made, 1 current, 0 removed");
    assert_eq!(fs::metadata(&copy).expect("a copy").mode() & 0o777, 0o644);
    let ended = compress(command());
    end(&ended, "1 made, 1 current, 0 removed");
    assert_eq!(fs::metadata(&copy).expect("a copy").uid(), 1_234);
}

#[test]
fn what_cannot_be_done_is_said() {
    let site = site();
    let path = site.path().to_str().expect("UTF-8");
    let file = site.join("page.html");
    let file = file.to_str().expect("UTF-8");
    gannet(["compress", file]).failure(
        1,
        &format!(
            "gannet: cannot compress '{file}': not a directory\n\
             help: name the folder that holds the files: 'gannet compress DIR'\n"
        ),
    );
    gannet(["compress", path, "--compress", "none"]).failure(
        2,
        "gannet: cannot use '--compress none': nothing is left to do\n\
         help: see 'gannet compress --help'\n",
    );
}

/// A folder whose owner is somebody else, and has put links where copies would be: what they lead to
/// is neither read nor written, nor gets another owner, whoever runs it.
#[test]
fn nothing_is_written_through_what_has_the_name_of_a_copy() {
    let (site, other) = (site(), Folder::new());
    let secret = other.write("secret", "of somebody else");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("permissions");
    let page = site.join("page.html");
    if let Err(error) = chown(&page, Some(1_234), Some(4_321)) {
        gannet_testkit::left_out("files of other users", error);
    }
    symlink(&secret, site.join("page.html.br")).expect("a link");
    symlink(other.join("new"), site.join("page.html.zst")).expect("a link");
    fs::hard_link(&secret, site.join("page.html.gz")).expect("another name");
    let before = fs::metadata(&secret).expect("it is there");
    for flags in [&[][..], &["--force"]] {
        let (_, err) = compress(&site, &[flags, &["--compress", "gzip,br,zstd"]].concat());
        let left = match flags.is_empty() {
            true => "left alone: 3, such as ",
            false => "left alone: 2, such as ",
        };
        assert!(err.contains(left), "{err}");
        let after = fs::metadata(&secret).expect("it is there");
        assert_eq!(
            (after.uid(), after.gid(), after.mode(), after.mtime()),
            (before.uid(), before.gid(), before.mode(), before.mtime())
        );
        assert_eq!(fs::read(&secret).expect("it"), b"of somebody else");
        assert!(!other.join("new").exists());
        assert!(site.join("page.html.br").is_symlink());
        assert!(site.join("page.html.zst").is_symlink());
    }
    // The name was taken from the other file, which has one less.
    assert_eq!(
        decoded(&site.join("page.html.gz")),
        PAGE.repeat(100).into_bytes()
    );
    assert_eq!(fs::metadata(&secret).expect("it").nlink(), 1);
}

/// A name that leaves no room for a suffix is an error of that file, and none of the others.
#[test]
fn a_name_that_is_too_long_for_a_copy_is_said() {
    let site = site();
    let long = format!("{}.html", "l".repeat(248));
    site.write(&long, PAGE.repeat(100));
    let path = site.path().to_str().expect("UTF-8");
    let ended = gannet(["compress", path, "--compress", "gzip"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        ended.err.contains(&format!("{long}.gz': ")) && ended.err.contains("(ENAMETOOLONG)"),
        "{ended:?}"
    );
    assert!(
        ended
            .text()
            .ends_with("copies: 2 made, 0 current, 0 removed\n"),
        "{ended:?}"
    );
    assert!(site.join("page.html.gz").exists() && site.join("docs/app.js.gz").exists());
}

/// The body of `/page.html` for a client that accepts Brotli, and its coding.
fn page_in_brotli(
    server: &Gannet,
    site_is_new: impl Fn(&[u8]) -> bool,
) -> (Option<String>, Vec<u8>) {
    let mut got = (None, Vec::new());
    until("the page as it is now", || {
        let answer = ask(server, "GET", "/page.html", &["accept-encoding: br"]);
        got = (
            answer.field("content-encoding").map(str::to_owned),
            answer.body,
        );
        site_is_new(&got.1)
    });
    got
}

/// Where `compress --into` puts the copy of a file.
fn copy_elsewhere(cache: &Folder, file: &Path) -> PathBuf {
    let real = fs::canonicalize(file.parent().expect("a folder")).expect("a folder");
    let name = format!("{}.br", file.file_name().expect("a name").display());
    cache.join(real.strip_prefix("/").expect("absolute").join(name))
}

#[test]
fn copies_in_a_folder_elsewhere_are_sent_while_they_have_the_time_of_their_file() {
    let (site, cache) = (site(), Folder::new());
    site.write(
        "_headers",
        "/docs/*\n  Basic-Auth: user:a-password-of-one\n",
    );
    fs::set_permissions(site.join("docs"), fs::Permissions::from_mode(0o550)).expect("permissions");
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o700)).expect("permissions");
    let page = site.join("page.html");
    set_time(&page, 1_000_000_000);
    let before = names(&site);
    let into = cache.path().to_str().expect("UTF-8");
    let (text, _) = compress(&site, &["--into", into]);
    assert!(
        text.ends_with("copies: 6 made, 0 current, 0 removed\n"),
        "{text}"
    );
    fs::set_permissions(site.join("docs"), fs::Permissions::from_mode(0o750)).expect("permissions");
    assert_eq!(names(&site), before);
    let copy = copy_elsewhere(&cache, &page);
    let script = copy_elsewhere(&cache, &site.join("docs/app.js"));
    let of = fs::metadata(script.parent().expect("a folder")).expect("a folder");
    assert_eq!(of.mode() & 0o777, 0o750, "with copies, whoever made them");
    let of = fs::metadata(copy.parent().expect("a folder")).expect("a folder");
    assert_eq!(of.mode() & 0o777, 0o700, "and the site's own");
    // Another program gave it a later time, which proves nothing.
    set_time(&copy, 1_000_000_001);
    // Nor does a current copy show what its file and its folder no longer do.
    let permit = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    };
    permit(&page, 0o640);
    permit(&site.join("docs"), 0o700);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
    assert_ne!(mode(&copy), 0o640);
    let (text, _) = compress(&site, &["-i", into]);
    assert_eq!(mode(&copy), 0o640);
    assert_eq!(mode(script.parent().expect("a folder")), 0o700);
    assert!(
        text.ends_with("copies: 0 made, 6 current, 0 removed\n"),
        "{text}"
    );

    site.write("other.html", PAGE.repeat(95));
    // One that a client may get beside the file, and does not.
    site.write("page.html.br", "no copy");
    let server = Gannet::serve(site.path(), &["--compress", into]);
    let (coding, body) = page_in_brotli(&server, |_| true);
    assert_eq!(coding.as_deref(), Some("br"));
    assert_eq!(body, fs::read(&copy).expect("a copy"));
    let get = |path: &str, fields: &[&str]| ask(&server, "GET", path, fields);
    assert_eq!(get("/docs/app.js", &["accept-encoding: br"]).status, 401);
    assert_eq!(get("/docs/app.js.br", &[]).status, 401);
    assert_eq!(get("/page.html.zst", &[]).status, 404);
    let below = copy.strip_prefix(cache.path()).expect("below");
    assert_eq!(get(&format!("/{}", below.display()), &[]).status, 404);

    // The owner of one site's copies shows no other's, whatever time and place they have.
    let page_copy = fs::read(&copy).expect("a copy");
    set_time(&site.join("other.html"), 1_000_000_000);
    let link = copy_elsewhere(&cache, &site.join("other.html"));
    symlink("page.html.br", &link).expect("a link");
    let changed = |path: &Path| {
        let of = fs::metadata(path).expect("it is there");
        (of.ctime(), of.ctime_nsec())
    };
    until("a copy that is later than the file", || {
        set_time(&copy, 1_000_000_000);
        changed(&copy) > changed(&site.join("other.html"))
    });
    let other = get("/other.html", &["accept-encoding: br"]);
    assert_ne!(other.body, page_copy);

    // As a build that gives all its files one time in the past may leave it.
    let other = PAGE.repeat(90).replace("once", "then");
    site.write("page.html", &other);
    set_time(&page, 1_000_000_000);
    let is_new = |body: &[u8]| body != fs::read(&copy).expect("a copy");
    let (coding, body) = page_in_brotli(&server, is_new);
    assert_eq!((coding, body), (None, other.into_bytes()));
}

#[test]
fn a_directory_that_replaces_another_one_has_copies_of_its_own() {
    let (sites, cache) = (Folder::new(), Folder::new());
    let text = |name: &str| PAGE.repeat(100).replace("once", name);
    for name in ["v1", "v2"] {
        sites.write(format!("{name}/page.html"), text(name));
        set_time(&sites.join(format!("{name}/page.html")), 1_000_000_000);
    }
    let link = |to: &str| {
        symlink(to, sites.join("next")).expect("a link");
        fs::rename(sites.join("next"), sites.join("current")).expect("a link");
    };
    link("v1");
    let [into, v1, v2, current] = [
        cache.path().to_path_buf(),
        sites.join("v1"),
        sites.join("v2"),
        sites.join("current"),
    ]
    .map(|path| path.to_str().expect("UTF-8").to_owned());
    assert_eq!(gannet(["compress", &current, "-i", &into]).status, Some(0));
    let server = Gannet::serve(Path::new(&current), &["--compress", &into]);
    let copy = |site: &str| {
        let copy = copy_elsewhere(&cache, &Path::new(site).join("page.html"));
        fs::read(copy).expect("a copy")
    };
    let (coding, body) = page_in_brotli(&server, |_| true);
    assert_eq!((coding.as_deref(), body), (Some("br"), copy(&v1)));
    // Copies may come later than the server, and before the directory.
    assert_eq!(gannet(["compress", &v2, "-i", &into]).status, Some(0));
    link("v2");
    let (coding, body) = page_in_brotli(&server, |body| body != copy(&v1));
    assert_eq!((coding.as_deref(), body), (Some("br"), copy(&v2)));
}

#[test]
fn a_folder_of_copies_in_the_site_is_refused() {
    let site = site();
    let inner = site.join("docs");
    let (path, into) = (site.path().to_str(), inner.to_str());
    let (path, into) = (path.expect("UTF-8"), into.expect("UTF-8"));
    let ended = gannet(["compress", path, "--into", into]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        ended
            .err
            .contains("it is in the folder that is compressed\nhelp: keep the copies outside"),
        "{ended:?}"
    );
    let ended = gannet(["serve", path, "--port", "0", "--compress", into]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        ended
            .err
            .contains("it is in the site, which would serve the copies\nhelp: keep the copies"),
        "{ended:?}"
    );
    let ended = gannet(["serve", path, "--port", "0", "--compress", "./none"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("cannot open folder of copies './none'")
            && ended.err.contains("help: 'gannet compress DIR --into"),
        "{ended:?}"
    );
}

#[test]
fn nothing_is_made_in_the_site_for_copies_elsewhere() {
    let site = Folder::new();
    site.write("page.html", PAGE.repeat(100));
    let inner = site.join("new");
    let path = site.path().to_str().expect("UTF-8");
    for into in [inner.to_str().expect("UTF-8"), "/"] {
        let ended = gannet(["compress", path, "--into", into]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.err.contains("it is in the folder"), "{ended:?}");
    }
    assert_eq!(names(&site), ["page.html"]);
}
