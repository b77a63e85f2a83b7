//! What a publisher means and is told: what a second pointer to a release inherits, what is served
//! now, copies of stores, and attempts that fail.

mod store;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use gannet_testkit::{Folder, command_of_nobody, gannet_in, run, same};
use rustix::fs::{FlockOperation, flock};
use store::{current, file_of, line, publish, with_site};

/// The rows of `gannet releases store`: serial and state, with a star before what is served.
fn rows(folder: &Folder) -> Vec<String> {
    let listed = gannet_in(folder, ["releases", "store"]).success();
    let table = listed.text().split("\n\n").next().unwrap_or_default();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let star = usize::from(words[0] == "*");
        let (serial, state) = (words[star], words[star + 3]);
        format!("{}{serial} {state}", &"*"[..star])
    };
    table.lines().skip(1).map(row).collect()
}

#[test]
fn a_release_that_is_published_again_keeps_what_no_flag_names() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    folder.write("site/index.html", "two");
    let wishes = ["--activate", "+1h", "--stages", "5% +0s, 100% +10m"];
    let more = ["--note", "a remark", "--expires", "+30d", "-q"];
    publish(&folder, &[&wishes[..], &more].concat()).success();
    let before = current(&folder);
    let release = line(&before, "release").to_owned();
    let is_kept = |keys: &[&str], why: &str| {
        let now = current(&folder);
        for key in keys {
            assert_eq!(line(&now, key), line(&before, key), "{key} after {why}");
        }
        now
    };
    publish(&folder, &["-q", "--keep", "2d 1..5"]).success();
    let now = is_kept(
        &["release", "activate", "stages", "note", "expires"],
        "--keep",
    );
    assert_eq!((line(&now, "serial"), line(&now, "keep")), ("3", "2d 1..5"));
    publish(&folder, &["-q", "--expires", "+60d"]).success();
    let now = is_kept(&["activate", "stages", "note"], "--expires");
    assert_ne!(line(&now, "expires"), line(&before, "expires"));
    publish(&folder, &["-q", "--note", "other", "--activate", "+2h"]).success();
    let now = is_kept(&["stages"], "--activate");
    assert_ne!(line(&now, "activate"), line(&before, "activate"));
    assert_eq!(line(&now, "note"), "other");
    publish(
        &folder,
        &["-q", "--note", "", "--stages", "", "--expires", ""],
    )
    .success();
    let now = current(&folder);
    for key in ["note", "stages", "expires"] {
        assert_eq!(line(&now, key), "", "{key}");
    }
    assert!(line(&now, "activate").ends_with('Z'));
    assert_eq!(line(&now, "release"), release);
    // A remark alone is a wish, too.
    for (serial, note) in [("7", "a third"), ("7", "a third"), ("8", "")] {
        publish(&folder, &["-q", "--note", note]).success();
        let now = current(&folder);
        assert_eq!((line(&now, "serial"), line(&now, "note")), (serial, note));
    }
    // There is nothing to take back any more.
    let again = publish(&folder, &["--stages", "", "--expires", ""]).success();
    assert!(again.text().ends_with("nothing to publish\n"), "{again:?}");

    // Stages go on from where they began, and another release inherits none.
    folder.write("site/index.html", "three");
    publish(&folder, &["-q", "--stages", "5% +0s, 100% +10m"]).success();
    let staged = current(&folder);
    let published = line(&staged, "published").split(' ').next().unwrap();
    publish(&folder, &["-q", "--keep", "1d 1..5"]).success();
    assert_eq!(line(&current(&folder), "activate"), published);
    folder.write("site/index.html", "four");
    publish(&folder, &["-q"]).success();
    let now = current(&folder);
    assert_eq!((line(&now, "stages"), line(&now, "activate")), ("", ""));
    assert_eq!(line(&now, "keep"), "1d 1..5");
}

/// The line `back:` names a release that `rollback` goes to.
#[test]
fn the_way_back_is_one() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let one = line(&current(&folder), "release")[..8].to_owned();
    let again = publish(&folder, &["--keep", "2d 1..5"]).success();
    assert!(!again.text().contains("back:"), "{again:?}");
    folder.write("site/index.html", "two");
    publish(&folder, &["-q"]).success();
    let two = line(&current(&folder), "release")[..8].to_owned();
    let back = format!("\nback: gannet rollback store {one}\n");
    let again = publish(&folder, &["--keep", "3d 1..5"]).success();
    assert!(again.text().ends_with(&back), "{again:?}");
    folder.write("site/index.html", "three");
    // The one before is void from now on.
    let third = publish(&folder, &["--void", &two]).success();
    assert!(third.text().ends_with(&back), "{third:?}");
    gannet_in(&folder, ["rollback", "store", &one]).success();
}

#[test]
fn what_is_served_now_is_one_row() {
    let folder = with_site();
    // What is the first is not waited for.
    let first = publish(&folder, &["--activate", "+1h", "-q"]);
    same(
        &first.err,
        "gannet: a first release is active at once: servers have nothing else to serve\n",
    );
    assert_eq!(line(&current(&folder), "activate"), "");
    assert_eq!(rows(&folder), ["*1 current"]);
    publish(&folder, &["-q", "--keep", "2d 1..5"]).success();
    assert_eq!(rows(&folder), ["*2 current", "1 repeated"]);
    folder.write("site/index.html", "two");
    publish(&folder, &["-q", "--activate", "+1h"]).success();
    publish(&folder, &["-q", "--keep", "3d 1..5"]).success();
    assert_eq!(
        rows(&folder),
        ["4 staged", "3 repeated", "*2 current", "1 repeated"]
    );
    let listed = gannet_in(&folder, ["releases", "store"]).success();
    let pointer = current(&folder);
    let until = line(&pointer, "activate");
    let expect = format!("\n\nstaged: serial 4, until {until}; served: serial 2\n");
    assert!(listed.text().ends_with(&expect), "{listed:?}");
    let json = gannet_in(&folder, ["releases", "store", "--json"]).success();
    let expect = format!("\n], \"served\": 2, \"staged_until\": \"{until}\"}}\n");
    assert!(json.text().ends_with(&expect), "{json:?}");
    // Back, and the one that is left is bad: it is served until then.
    let rolled = [
        "rollback",
        "store",
        "--void",
        "--activate",
        "2099-01-01T00:00:00Z",
    ];
    publish(&folder, &["-q", "--activate", "2020-01-01T00:00:00Z"]).success();
    assert_eq!(rows(&folder)[0], "*5 current");
    let rolled = gannet_in(&folder, rolled).success();
    let release = line(&pointer, "release");
    let expect = format!("\n  void      {release}, served until 2099-01-01T00:00:00Z\n");
    assert!(rolled.text().contains(&expect), "{rolled:?}");
    assert_eq!(rows(&folder)[..2], ["6 staged", "*5 current"]);
    let listed = gannet_in(&folder, ["releases", "store"]).success();
    let expect = "\nstaged: serial 6, until 2099-01-01T00:00:00Z; served: serial 5, though void\n";
    assert!(listed.text().ends_with(expect), "{listed:?}");
    folder.write("site/index.html", "three");
    publish(&folder, &["-q", "--stages", "5% +1m, 100% +2m"]).success();
    let listed = gannet_in(&folder, ["releases", "store"]).success();
    let last = listed.text().lines().last().unwrap();
    assert!(
        last.starts_with("staged: serial 7, in stages from ") && last.contains("Z until "),
        "{last}"
    );
}

/// What was superseded before its moment was served by nobody: it is neither current nor a way back.
#[test]
fn what_was_superseded_before_its_moment_was_never_current() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let first = line(&current(&folder), "release").to_owned();
    let later = ["-q", "--activate", "2099-01-01T00:00:00Z"];
    for page in ["two", "three"] {
        folder.write("site/index.html", page);
        publish(&folder, &later).success();
    }
    // As if that had been long ago.
    let date = |serial: u64, published: &str, activate: &str| {
        let path = folder.join(format!("store/log/{serial}"));
        let entry = fs::read_to_string(&path).expect("published");
        let now = line(&entry, "published")[..20].to_owned();
        let entry = entry.replace(&now, published).replace(later[2], activate);
        fs::write(path, &entry).expect("written");
        entry
    };
    date(1, "2020-01-01T00:00:00Z", "");
    date(2, "2020-01-02T00:00:00Z", "2020-01-04T00:00:00Z");
    let pointer = date(3, "2020-01-03T00:00:00Z", later[2]);
    fs::write(folder.join("store/current"), pointer).expect("written");
    assert_eq!(rows(&folder)[2], "*1 current");
    gannet_in(&folder, ["rollback", "store"]).success();
    assert_eq!(line(&current(&folder), "release"), first);
}

/// From one store to another; and a copy without its log.
#[test]
fn a_store_is_a_site_too() {
    let folder = with_site();
    fs::create_dir_all(folder.join("empty/releases")).unwrap();
    fs::create_dir(folder.join("empty/log")).unwrap();
    gannet_in(&folder, ["publish", "empty", "store"]).failure(
        1,
        "gannet: cannot read store 'empty': nothing has been published yet, or its pointer is gone\n\
         help: publish to it: 'gannet publish SITE empty'; or 'gannet rollback empty ID', if its log has any\n",
    );
    publish(&folder, &["-q"]).success();
    gannet_in(&folder, ["publish", "store", "live"]).success();
    let release = line(&current(&folder), "release").to_owned();
    let pointer = fs::read_to_string(folder.join("live/current")).unwrap();
    assert_eq!(line(&pointer, "release"), release);
    let same_store = gannet_in(&folder, ["publish", "store", "store"]).success();
    assert!(
        same_store.text().ends_with("nothing to publish\n"),
        "{same_store:?}"
    );

    fs::create_dir_all(folder.join("copy/releases")).unwrap();
    for name in [format!("releases/{release}.gannet"), "current".into()] {
        fs::copy(
            folder.join("store").join(&name),
            folder.join("copy").join(name),
        )
        .unwrap();
    }
    let listed = gannet_in(&folder, ["releases", "copy"]).success();
    let row = listed.text().lines().nth(1).unwrap();
    assert!(
        row.starts_with("*      1  ") && row.contains("  current  "),
        "{row}"
    );
    gannet_in(&folder, ["verify", "copy"]).success();
    folder.write("site/index.html", "two");
    gannet_in(&folder, ["publish", "site", "copy", "-q"]).success();
    let pointer = fs::read_to_string(folder.join("copy/current")).unwrap();
    assert_eq!(
        (line(&pointer, "serial"), line(&pointer, "replaces")),
        ("2", "1")
    );
}

#[test]
fn a_first_attempt_that_fails_leaves_nothing_behind() {
    let folder = with_site();
    folder.write("site/_redirects", "nonsense\n");
    assert_eq!(publish(&folder, &[]).status, Some(1));
    assert!(!folder.join("store").exists());
    fs::remove_file(folder.join("site/_redirects")).unwrap();
    assert_eq!(publish(&folder, &["--must", "/none"]).status, Some(1));
    assert!(!folder.join("store").exists());
    fs::create_dir(folder.join("store")).unwrap();
    assert_eq!(publish(&folder, &["--must", "/none"]).status, Some(1));
    assert_eq!(fs::read_dir(folder.join("store")).unwrap().count(), 0);
    publish(&folder, &["--must", "/0"]).success();
}

#[test]
fn messages_name_what_is_wrong() {
    let folder = with_site();
    let refused = |arguments: &[&str], status: i32, expect: &str| {
        gannet_in(&folder, arguments).failure(status, &format!("gannet: {expect}\n"));
    };
    publish(&folder, &["-q"]).success();
    let release = line(&current(&folder), "release").to_owned();
    refused(
        &["releases", "https://127.0.0.1:9090"],
        2,
        "cannot ask 'https://127.0.0.1:9090': a server has its metrics at http://\nhelp: name the \
         address of --metrics, such as http://127.0.0.1:9090, on its machine or through a tunnel",
    );
    refused(
        &["releases", "127.0.0.1:9090"],
        1,
        "cannot open store '127.0.0.1:9090': no such file or directory (ENOENT)\nhelp: to query a \
         server: 'gannet releases http://127.0.0.1:9090', its address of --metrics",
    );
    let help = gannet_in(&folder, ["publish", "--help-all"]).success();
    assert!(
        help.text().contains("--best") && !help.text().contains("-o, --output"),
        "{help:?}"
    );
    // Of a release that is served already, the file is what publishing restores.
    fs::remove_file(file_of(&folder, &release)).unwrap();
    let restored = publish(&folder, &[]).success();
    assert!(
        restored.text().ends_with(
            "is in force already, as serial 1: its file, which was missing or damaged, is there \
             again\n"
        ),
        "{restored:?}"
    );
    // Another publisher.
    let lock = fs::File::open(folder.join("store/.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let busy = gannet_in(&folder, ["rollback", "store"]);
    assert!(
        busy.err
            .starts_with("gannet: cannot change store 'store': another publisher is at work ("),
        "{busy:?}"
    );
    // To close it may not be enough: a process that another test starts has it, too, until it runs its own
    // program.
    flock(&lock, FlockOperation::Unlock).unwrap();
    // A pointer that is not signed as required, and one that has expired.
    gannet_in(&folder, ["keygen", "key"]).success();
    let unsigned = gannet_in(&folder, ["releases", "store", "-p", "key.pub"]);
    assert_eq!((unsigned.status, unsigned.text()), (Some(1), ""));
    assert!(
        unsigned
            .err
            .starts_with("gannet: cannot use pointer 'store/current': it is not signed\n"),
        "{unsigned:?}"
    );
    let expired = format!("{}expires 2020-01-01T00:00:00Z\n", current(&folder));
    fs::write(folder.join("store/current"), expired).unwrap();
    let told = "gannet: cannot use pointer 'store/current': serial 1 has expired\n\
                help: is this store still published to? 'gannet publish' writes a new one\n";
    for arguments in [&["releases", "store"][..], &["explain", "/", "store"]] {
        let ended = gannet_in(&folder, arguments);
        same(&ended.err, told);
        assert_eq!(ended.status, Some(0), "{ended:?}");
    }
}

/// Whatever is in its place.
#[test]
fn a_pointer_that_cannot_be_one_is_replaced() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let pointer = folder.join("store/current");
    let replaced = |why: &str| {
        let told = publish(&folder, &["-q"]);
        let expect =
            format!("gannet: cannot read pointer 'store/current': {why}; it will be replaced\n");
        same(&told.err, &expect);
        assert_eq!(told.status, Some(0), "{told:?}");
    };
    fs::write(&pointer, current(&folder).repeat(9)).unwrap();
    replaced("longer than 1024 bytes");
    fs::write(&pointer, "").unwrap();
    replaced("its last line has no end");
    fs::remove_file(&pointer).unwrap();
    UnixListener::bind(&pointer).unwrap();
    replaced("not a regular file");
    assert_eq!(rows(&folder)[0], "*4 current");
    // The clock of its publisher was ahead.
    let ahead = current(&folder).replace("published 2", "published 8");
    fs::write(&pointer, &ahead).unwrap();
    fs::write(folder.join("store/log/4"), ahead).unwrap();
    assert_eq!(rows(&folder)[0], "*4 current");
}

/// What is kept and what is void does not depend on a pointer that is whole.
#[test]
fn the_log_tells_what_a_damaged_pointer_said() {
    let folder = with_site();
    publish(&folder, &["-q", "--keep", "30d 10..50"]).success();
    let one = file_of(&folder, line(&current(&folder), "release"));
    let rollback =
        |arguments: &[&str]| gannet_in(&folder, [&["rollback", "store"], arguments].concat());
    folder.write("site/index.html", "two");
    publish(&folder, &["-q"]).success();
    let two = line(&current(&folder), "release").to_owned();
    let bad = fs::copy(file_of(&folder, &two), folder.join("two.gannet"));
    bad.expect("it was published");
    rollback(&["--void"]).success();
    let damage = || fs::write(folder.join("store/current"), "damaged\n").expect("written");
    damage();
    let again = gannet_in(&folder, ["publish", "two.gannet", "store"]);
    assert!(
        again.err.contains(&format!("its release {two} is void\n")),
        "{again:?}"
    );
    assert!(rollback(&[&two]).err.contains(": it is void\n"));
    // As much may vanish as from the one before.
    folder.write("other/about.html", "another site");
    let other = gannet_in(&folder, ["publish", "other", "store", "-q"]);
    assert!(
        other.err.contains("the front page '/' would vanish"),
        "{other:?}"
    );
    folder.write("site/index.html", "three");
    assert_eq!(publish(&folder, &["-q"]).status, Some(0));
    let is_inherited = || {
        let now = current(&folder);
        assert_eq!(
            (line(&now, "keep"), line(&now, "void")),
            ("30d 10..50", &*two)
        );
    };
    is_inherited();
    damage();
    let name = one.file_stem().and_then(|it| it.to_str()).expect("an id");
    assert_eq!(rollback(&[name]).status, Some(0));
    is_inherited();
}

/// Names with a hash in them come and go: neither do they count as vanishing, nor in the tenth.
#[test]
fn the_gate_is_of_pages() {
    let folder = with_site();
    for number in 0..200 {
        folder.write(format!("site/_next/static/{number}.js"), "1");
    }
    publish(&folder, &["-q"]).success();
    for page in 0..6 {
        fs::remove_file(folder.join(format!("site/{page}.html"))).expect("it was there");
    }
    let refused = publish(&folder, &["-q"]);
    let expect = "12 URLs would vanish without a redirect, at most 10 may: ";
    assert!(refused.err.contains(expect), "{refused:?}");
    // What cannot be compared is said, and does not hold up the next one.
    let before = file_of(&folder, line(&current(&folder), "release"));
    fs::remove_file(&before).expect("it was there");
    let told = publish(&folder, &["-q"]);
    let expect = "gannet: not checked for URLs that vanish: cannot read 'store/releases/";
    assert!(told.err.starts_with(expect), "{told:?}");
    assert_eq!(told.status, Some(0));
}

/// Each host has a front page.
#[test]
fn no_host_loses_its_front_page() {
    let folder = Folder::new();
    for host in ["a.example", "b.example"] {
        folder.write(format!("site/{host}/index.html"), host);
        folder.write(format!("site/{host}/other.html"), "other");
    }
    publish(&folder, &["-q", "--hosts"]).success();
    fs::remove_file(folder.join("site/a.example/index.html")).expect("it was there");
    publish(&folder, &["-q", "--hosts"]).failure(
        1,
        "gannet: cannot publish 'site': the front page '//a.example/' would vanish, of 3 URLs: \
         //a.example/, //a.example/index, //a.example/index.html\n\
         help: redirect them in _redirects; if they are to vanish: --allow-removal 3\n",
    );
    publish(&folder, &["-q", "--hosts", "--allow-removal", "3"]).success();
}

/// Nothing that a link in the store leads to is written to or removed.
#[test]
fn links_lead_no_publisher_away() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let victim = folder.write("victim", "text");
    let link = format!("store/releases/{}.gannet", "0".repeat(32));
    symlink(&victim, folder.join(link)).unwrap();
    folder.write("site/index.html", "two");
    publish(&folder, &["-q", "--keep", "0s 0..0"]).success();
    fs::remove_file(folder.join("store/.lock")).unwrap();
    symlink(&victim, folder.join("store/.lock")).unwrap();
    publish(&folder, &["-q", "--keep", "1d 0..1"]).failure(
        1,
        "gannet: cannot lock 'store/.lock': too many levels of symbolic links (ELOOP)\nhelp: it is a \
         symbolic link, which is not followed: remove it\n",
    );
    assert_eq!(fs::read(victim).unwrap(), b"text");
}

#[test]
fn a_store_that_may_not_be_read_is_said_to_be_so() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    let store = folder.join("store");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for arguments in [
        &["releases", "store"][..],
        &["rollback", "store"],
        &["publish", "site", "store"],
    ] {
        let mut nobody = command_of_nobody();
        let ended = run(nobody.current_dir(folder.path()).args(arguments));
        let expect = "gannet: cannot open store 'store': permission denied (EACCES)\n";
        assert!(ended.err.starts_with(expect), "{ended:?}");
        assert_eq!(ended.status, Some(1));
    }
    for arguments in [&["ls", "store"][..], &["diff", "store", "store"]] {
        let mut nobody = command_of_nobody();
        let ended = run(nobody.current_dir(folder.path()).args(arguments));
        let expect = "gannet: cannot open store 'store': permission denied (EACCES)\n";
        assert!(ended.err.starts_with(expect), "{ended:?}");
        // 1 of `diff` means differences.
        let is_judge = arguments[0] == "diff";
        assert_eq!(ended.status, Some(1 + i32::from(is_judge)));
    }
    // A link to a store is one.
    symlink("store", folder.join("link")).unwrap();
    gannet_in(&folder, ["releases", "link"]).success();
}
