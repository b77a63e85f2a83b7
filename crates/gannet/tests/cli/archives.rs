//! Commands that make archives, and those that read them.

use std::fs;
use std::path::{Path, PathBuf};

use gannet_testkit::{Folder, command, gannet, gannet_in, run, same};

/// Packs the site of [`Folder::site`] into a subfolder.
pub(super) fn packed(folder: &Folder) -> PathBuf {
    let archive = folder.join("out/site.gannet");
    fs::create_dir(folder.join("out")).expect("new");
    let site = Folder::site();
    gannet(["pack".as_ref(), site.path(), "-o".as_ref(), &archive]).success();
    archive
}

#[test]
fn packing_ends_with_a_table_and_the_next_command() {
    let site = Folder::site();
    let folder = Folder::new();
    let archive = folder.join("site.gannet");
    let ended = gannet(["pack".as_ref(), site.path(), "-o".as_ref(), &archive]).success();
    let table = ended.text();
    let row = |name: &str, count: &str| {
        let is_row = |line: &str| line.split_whitespace().take(2).eq([name, count]);
        assert!(
            table.lines().any(is_row),
            "no row '{name} {count}' in\n{table}"
        );
    };
    row("files", "7");
    row("unique", "6");
    let next = format!("next: gannet {}\n", archive.display());
    assert!(table.ends_with(&next), "{table}");
    assert!(!table.contains('\x1b'), "colours without a terminal");
    let quiet = ["pack".as_ref(), site.path(), "-qo".as_ref(), &archive];
    same(gannet(quiet).success().text(), "");
}

#[test]
fn an_archive_without_a_name_takes_that_of_the_directory() {
    let folder = Folder::new();
    folder.write("www/index.html", "x");
    gannet_in(&folder, ["pack", "./www/"]).success();
    assert!(folder.join("www.gannet").is_file());
}

#[test]
fn the_same_files_make_the_same_archive() {
    let site = Folder::site();
    let folder = Folder::new();
    let pack = |name: &str, flags: &[&str]| {
        let archive = folder.join(name);
        let start = [
            "pack".as_ref(),
            site.path(),
            "-o".as_ref(),
            archive.as_path(),
        ];
        run(command().args(start).args(flags)).success();
        fs::read(archive).expect("written")
    };
    let first = pack("a.gannet", &[]);
    assert!(
        first == pack("b.gannet", &[]),
        "packing twice gives other bytes"
    );
    assert!(
        first == pack("c.gannet", &["--threads", "1"]),
        "threads change the bytes"
    );
    assert!(
        first != pack("d.gannet", &["--compress", "none"]),
        "codings change nothing"
    );
}

#[test]
fn packing_takes_its_flags_from_every_layer() {
    let folder = Folder::new();
    folder.write("www/index.html", "x");
    folder.write("pack.toml", "[pack]\noutput = 'of-file.gannet'\n");
    gannet_in(&folder, ["pack", "www", "-c", "pack.toml"]).success();
    assert!(folder.join("of-file.gannet").is_file());
    let mut with_variable = command();
    with_variable
        .env("GANNET_PACK_OUTPUT", "of-variable.gannet")
        .current_dir(folder.path());
    run(with_variable.args(["pack", "www", "-c", "pack.toml"])).success();
    assert!(folder.join("of-variable.gannet").is_file());
    run(command()
        .env("SOURCE_DATE_EPOCH", "today")
        .args(["pack", "www"])
        .current_dir(folder.path()))
    .failure(
        2,
        "gannet: cannot use 'SOURCE_DATE_EPOCH=today': not a number of seconds\n\
         help: give seconds since 1970, such as $(git log -1 --format=%ct)\n",
    );
}

#[test]
fn what_cannot_be_packed_is_named_and_leaves_nothing_behind() {
    let folder = Folder::new();
    folder.write("file", "x");
    fs::create_dir(folder.join("empty")).expect("new");
    let check = |source: &str, err: &str| {
        gannet_in(&folder, ["pack", source, "-o", "x.gannet"]).failure(1, err);
        let left: Vec<_> = folder.files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(left, [Path::new("file")]);
    };
    check(
        "none",
        "gannet: cannot pack 'none': no such file or directory (ENOENT)\n\
         help: name the folder that holds the site: 'gannet pack DIR -o site.gannet'; many \
         generators write it to 'public', 'dist', '_site' or 'build'\n",
    );
    check(
        "file",
        "gannet: cannot pack 'file': neither a directory nor a zip, tar or kawipiko archive\n\
         help: name the folder that holds the site: 'gannet pack DIR -o site.gannet'; many \
         generators write it to 'public', 'dist', '_site' or 'build'\n",
    );
    check(
        "empty",
        "gannet: cannot pack 'empty': no files in it\n\
         help: is this the folder that the site's generator writes to?\n",
    );
    gannet_in(&folder, ["pack"]).failure(
        2,
        "gannet: missing <SITE>\nhelp: see 'gannet pack --help'\n",
    );
    gannet_in(&folder, ["pack", ".", "-o", "none/x.gannet"]).failure(
        1,
        "gannet: cannot write 'none/x.gannet': there is no folder 'none'\n\
         help: make it first: 'mkdir -p none'\n",
    );
    let keys = Folder::new();
    let ssh = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n";
    let public = "untrusted comment: minisign public key 0\nRWSuYTcs/iAggykbW8uO\n";
    for (text, what) in [
        (ssh, "it is an OpenSSH key, not a minisign key"),
        (public, "it is a public key; signing needs the secret one"),
        ("\u{0}", "it is not a minisign secret key"),
    ] {
        let key = keys.write("key", text);
        let key = key.to_str().expect("UTF-8");
        let ended = gannet_in(&folder, ["pack", ".", "-o", "x.gannet", "--sign", key]);
        let expect = format!("gannet: cannot sign with '{key}': {what}\nhelp: ");
        assert!(ended.err.starts_with(&expect), "{}", ended.err);
    }
}

/// A site without a front page usually means the wrong folder.
#[test]
fn a_site_without_a_front_page_is_packed_with_a_warning() {
    let warning = "has no index.html: '/' is answered with 404";
    let told = |folder: &Folder, more: &[&str]| {
        let arguments = ["pack", ".", "--fast"].iter().chain(more);
        let ended = gannet_in(folder, arguments).success();
        ended.text().contains(warning)
    };
    let outer = Folder::new();
    let folder = Folder::new();
    folder.write("about.html", "about");
    let out = outer.join("x.gannet");
    let out = ["-o", out.to_str().expect("UTF-8")];
    assert!(told(&folder, &out));
    assert!(
        !told(&folder, &[&out[..], &["--listing"]].concat()),
        "it is listed"
    );
    folder.write("_redirects", "/ /about 302\n");
    assert!(!told(&folder, &out), "a rule answers");
    let site = Folder::site();
    assert!(!told(&site, &out));
    // Its page for everything answers `/`, too.
    let application = Folder::new();
    application.write("404.html", "nothing");
    assert!(told(&application, &out));
    application.write("200.html", "anything");
    assert!(!told(&application, &out));
}

#[test]
fn ls_lists_urls_and_cat_writes_their_bytes() {
    let folder = Folder::new();
    let archive = packed(&folder);
    let archive = archive.to_str().expect("UTF-8");
    let urls = gannet(["ls", archive]).success();
    for url in [
        "/",
        "/about",
        "/about.html",
        "/assets/app.css",
        "/docs/index.html",
    ] {
        assert!(
            urls.text().lines().any(|line| line == url),
            "{url} is not in\n{}",
            urls.text()
        );
    }
    let long = gannet(["ls", "-l", archive]).success();
    let css = long
        .text()
        .lines()
        .find(|line| line.contains("/assets/app.css"));
    let css = css.expect("it is listed");
    assert!(
        css.contains("3800") && css.contains("br ") && css.contains("text/css"),
        "{css}"
    );
    assert!(
        gannet(["ls", "--json", archive])
            .success()
            .text()
            .starts_with('[')
    );

    let style = "body { margin: 0 }\n".repeat(200);
    let about = "<!doctype html><title>about</title>\n";
    same(
        gannet(["cat", archive, "/assets/copy.css"])
            .success()
            .text(),
        &style,
    );
    let both = gannet(["cat", archive, "/about", "assets/empty.txt", "/about.html"]).success();
    same(both.text(), &about.repeat(2));
    gannet(["cat", archive, "/none"]).failure(
        1,
        &format!(
            "gannet: cannot find '/none' in '{archive}': no file has this path\n\
             help: 'gannet ls {archive}' lists its contents\n"
        ),
    );
}

#[test]
fn extracting_gives_back_the_files() {
    let folder = Folder::new();
    let archive = packed(&folder);
    let copy = Folder::new();
    gannet([
        "extract".as_ref(),
        archive.as_path(),
        "-o".as_ref(),
        copy.path(),
    ])
    .success();
    assert_eq!(copy.files(), Folder::site().files());
    let into = copy.path().display();
    gannet([
        "extract".as_ref(),
        archive.as_path(),
        "-o".as_ref(),
        copy.path(),
    ])
    .failure(
        1,
        &format!(
            "gannet: cannot extract to '{into}': it is not empty\n\
             help: name a directory that is empty or does not exist yet\n"
        ),
    );
}

#[test]
fn inspect_and_verify_tell_about_an_archive_and_find_a_wrong_byte() {
    let folder = Folder::new();
    let archive = packed(&folder);
    let path = archive.to_str().expect("UTF-8");
    let told = gannet(["inspect", path]).success();
    let build = told
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("build id"))
        .expect("told");
    let json = gannet(["inspect", "--json", path]).success();
    assert!(json.text().contains(build.trim()), "{}", json.text());
    let verified = gannet(["verify", path]).success();
    assert!(
        verified.text().contains(&build.trim()[..16]),
        "{}",
        verified.text()
    );

    let mut bytes = fs::read(&archive).expect("readable");
    let middle = bytes.len() - 10;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).expect("writable");
    let damaged = gannet(["verify", path]);
    assert_eq!((damaged.status, damaged.text()), (Some(1), ""));
    assert!(
        damaged.err.starts_with("gannet: cannot "),
        "{}",
        damaged.err
    );
    assert!(
        damaged.err.contains(path) && damaged.err.contains("\nhelp: "),
        "{}",
        damaged.err
    );
}

/// The file is longer than the archive by that index.
#[test]
fn inspect_and_verify_name_the_packed_index() {
    let folder = Folder::new();
    // So many small files have an index of more than 4 MiB.
    for number in 0..1100 {
        folder.write(format!("site/{number}.bin"), format!("{number:>4096}"));
    }
    gannet_in(&folder, ["pack", "site", "--fast", "-qo", "a.gannet"]).success();
    let told = gannet_in(&folder, ["inspect", "a.gannet"]).success();
    let bytes_of = |name: &str| -> u64 {
        let mut lines = told.text().lines();
        let value = lines.find_map(|line| line.strip_prefix(name)).expect(name);
        let number = value.split_whitespace().next().expect("it is there");
        number.parse().expect("a number")
    };
    let (archive, packed) = (bytes_of("length"), bytes_of("packed index"));
    let file = fs::metadata(folder.join("a.gannet")).expect("it is there");
    assert_eq!((packed > 0, archive + packed), (true, file.len()));
    let json = gannet_in(&folder, ["inspect", "--json", "a.gannet"]).success();
    let expect = format!("\"packed_index\": {packed},");
    assert!(json.text().contains(&expect), "{}", json.text());
    let verified = gannet_in(&folder, ["verify", "a.gannet"]).success();
    let text = verified.text();
    assert!(text.contains("\nnot verified: packed index of "), "{text}");
}

#[test]
fn what_is_no_archive_is_told_what_it_is() {
    let folder = Folder::new();
    let commands: [&[&str]; 4] = [&["ls"], &["cat"], &["inspect"], &["verify"]];
    for start in commands {
        let name = start[0];
        folder.write("page.html", "<!doctype html>".repeat(1000));
        let more: &[&str] = if name == "cat" { &["/"] } else { &[] };
        let ended = run(command()
            .current_dir(folder.path())
            .args(start)
            .arg("page.html")
            .args(more));
        let err = "gannet: cannot open archive 'page.html': wrong magic at offset 0";
        assert!(ended.err.starts_with(err), "{name}: {}", ended.err);
        assert_eq!(ended.status, Some(1), "{name}");
        let ended = run(command()
            .current_dir(folder.path())
            .args(start)
            .arg("none")
            .args(more));
        let err = "gannet: cannot open archive 'none': no such file or directory (ENOENT)\n";
        assert!(ended.err.starts_with(err), "{name}: {}", ended.err);
        let of_folder = run(command().args(start).arg(folder.path()).args(more));
        let path = folder.path().display();
        let help = format!(
            "help: a folder is no archive: 'gannet pack {path} -o site.gannet' makes one of it\n"
        );
        assert!(of_folder.err.ends_with(&help), "{name}: {}", of_folder.err);
    }
}
