//! Publishing to a store, going back, and what is told, as operators do it; and publishers that are
//! killed, or that compete.

mod store;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use gannet_testkit::{Folder, Gannet, command, command_of_nobody, gannet_in, run, same};
use store::{current, file_of, line, publish, with_site};

#[test]
fn a_site_is_published_twice_and_rolled_back() {
    let folder = with_site();
    let first = publish(&folder, &["--note", "the first"]).success();
    let one = line(&current(&folder), "release").to_owned();
    same(
        first.text(),
        &format!(
            "store: serial 1, release {one}\n  size      {}\n  active    at once\n  kept      0 \
             earlier releases, 0 B\nnext: gannet serve store\n",
            first
                .text()
                .lines()
                .nth(1)
                .and_then(|it| it.split_once("size      "))
                .unwrap()
                .1
        ),
    );
    let again = publish(&folder, &["--activate", "+30s"]).success();
    same(
        again.text(),
        &format!("{one} is in force already, as serial 1: nothing to publish\n"),
    );
    folder.write("site/index.html", "<!DOCTYPE html><title>Two</title>");
    // An archive, this time.
    gannet_in(
        &folder,
        ["pack", "site", "--fast", "-q", "-o", "two.gannet"],
    )
    .success();
    let stages = "5% +0s,100% +10m";
    let arguments = [
        "publish",
        "two.gannet",
        "store",
        "--activate",
        "+30s",
        "--stages",
        stages,
    ];
    let keep = [
        "--keep",
        "2d 1..5",
        "--must",
        "/",
        "--must",
        "https://example.org/3?q",
    ];
    let second = gannet_in(&folder, arguments.iter().chain(&keep)).success();
    let pointer = current(&folder);
    let two = line(&pointer, "release").to_owned();
    assert_eq!(
        (line(&pointer, "serial"), line(&pointer, "replaces")),
        ("2", "1")
    );
    assert_eq!(line(&pointer, "stages"), "5% +0s, 100% +10m");
    assert_eq!(line(&pointer, "keep"), "2d 1..5");
    assert!(line(&pointer, "activate").ends_with('Z'));
    assert_eq!(
        fs::read(file_of(&folder, &two)).unwrap(),
        fs::read(folder.join("two.gannet")).unwrap()
    );
    let back = format!("back: gannet rollback store {}\n", &one[..8]);
    assert!(second.text().ends_with(&back), "{second:?}");

    let table = gannet_in(&folder, ["releases", "store"]).success();
    let rows: Vec<_> = table
        .text()
        .lines()
        .skip(1)
        .map(|it| it.split_whitespace())
        .collect();
    let rows: Vec<Vec<_>> = rows.into_iter().map(Iterator::collect).collect();
    assert_eq!((rows[0][0], rows[0][1], rows[0][3]), ("2", &*two, "staged"));
    assert_eq!(
        (rows[1][0], rows[1][1], rows[1][2], rows[1][4]),
        ("*", "1", &*one, "current")
    );

    let rolled = gannet_in(
        &folder,
        ["rollback", "store", "--void", "--note", "wrong title"],
    );
    assert!(
        rolled
            .success()
            .text()
            .contains(&format!("  void      {two}\n"))
    );
    let pointer = current(&folder);
    assert_eq!(
        (line(&pointer, "release"), line(&pointer, "void")),
        (&*one, &*two)
    );
    assert_eq!(
        (line(&pointer, "keep"), line(&pointer, "serial")),
        ("2d 1..5", "3")
    );
    assert_eq!(
        fs::read_to_string(folder.join("store/log/3")).unwrap(),
        pointer
    );
    let json = gannet_in(&folder, ["releases", "store", "--json"]).success();
    for part in [
        &*format!(
            "\"serial\": 3, \"release\": \"{one}\", \"in_force\": true, \"state\": \"current\""
        ),
        &format!("\"serial\": 2, \"release\": \"{two}\", \"in_force\": false, \"state\": \"void\""),
        "\"stages\": [{\"percent\": 5, \"after_s\": 0}, {\"percent\": 100, \"after_s\": 600}]",
        "\"note\": \"wrong title\"",
    ] {
        assert!(json.text().contains(part), "{part} in {json:?}");
    }
    // A bad release does not come back by itself.
    publish(&folder, &[]).failure(
        1,
        &format!(
            "gannet: cannot publish 'site': its release {two} is void\nhelp: pack what was \
             corrected; if it is good after all: --void none\n"
        ),
    );
    assert!(
        publish(&folder, &["--void", "none"])
            .success()
            .text()
            .contains("serial 4")
    );
    assert!(!current(&folder).contains("void"));
    // Something else than the release changed.
    for (serial, more) in [
        ("5", &["--keep", "1d 1..5"][..]),
        ("6", &["--stages", "100% +1s"]),
        ("7", &["--void", &one[..9]]),
        ("8", &["--expires", "+30d"]),
    ] {
        publish(&folder, more).success();
        assert_eq!(line(&current(&folder), "serial"), serial, "{more:?}");
    }
    gannet_in(&folder, ["rollback", "store", &one[..9]]).failure(
        1,
        &format!(
            "gannet: cannot go back to '{one}': it is void\nhelp: if it is good after all, publish \
             its site again with '--void none', which takes all such marks back\n"
        ),
    );
}

#[test]
fn gates_hold_up_what_would_break_a_site() {
    let folder = with_site();
    for page in 8..30 {
        folder.write(format!("site/{page}.html"), format!("page {page}"));
    }
    folder.write("site/assets/app.4f2a91bc.js", "1");
    publish(&folder, &[]).success();
    let before = current(&folder);
    assert_eq!(publish(&folder, &["-q"]).success().text(), "");
    publish(&folder, &["-m", "/0", "-m", "/none"]).failure(
        1,
        "gannet: cannot publish 'site' with '--must /none': it is not there (404)\n\
         help: nothing was published: the release before stays in force\n",
    );
    folder.write("site/_redirects", "/old /0 301\n");
    publish(&folder, &["-m", "/old"]).failure(
        1,
        "gannet: cannot publish 'site' with '--must /old': it is redirected to '/0' (301)\n\
         help: nothing was published: the release before stays in force\n",
    );
    // Each page has two names.
    for page in 20..26 {
        fs::remove_file(folder.join(format!("site/{page}.html"))).unwrap();
    }
    publish(&folder, &[]).failure(
        1,
        "gannet: cannot publish 'site': 12 URLs would vanish without a redirect, at most 10 may: \
         /20, /20.html, /21, /21.html, /22, /22.html, /23, /23.html, /24, /24.html and 2 more\n\
         help: redirect them in _redirects; if they are to vanish: --allow-removal 12\n",
    );
    assert_eq!(current(&folder), before);
    assert_eq!(
        fs::read_dir(folder.join("store/releases")).unwrap().count(),
        1,
        "no draft"
    );
    folder.write("site/_redirects", "/20* /0 301\n");
    publish(&folder, &[]).success();
    fs::rename(
        folder.join("site/index.html"),
        folder.join("site/home.html"),
    )
    .unwrap();
    publish(&folder, &["-q"]).failure(
        1,
        "gannet: cannot publish 'site': the front page '/' would vanish, of 3 URLs: /, /index, \
         /index.html\n\
         help: redirect them in _redirects; if they are to vanish: --allow-removal 3\n",
    );
    publish(&folder, &["-q", "--allow-removal", "3"]).success();
    fs::rename(
        folder.join("site/home.html"),
        folder.join("site/index.html"),
    )
    .unwrap();

    // The name promised that its content never changes.
    folder.write(
        "site/_headers",
        "/assets/*\n  Cache-Control: max-age=31536000, immutable\n",
    );
    publish(&folder, &["--allow-removal", "9"]).success();
    folder.write("site/assets/app.4f2a91bc.js", "2");
    let before = file_of(&folder, line(&current(&folder), "release"));
    let told = publish(&folder, &[]);
    same(
        &told.err,
        "gannet: sent as immutable and changed: browsers keep the old one: \
         /assets/app.4f2a91bc.js\n",
    );
    assert_eq!(told.status, Some(0));
    let after = file_of(&folder, line(&current(&folder), "release"));
    let archives = [before.to_str().unwrap(), after.to_str().unwrap()];
    let text = gannet_in(&folder, ["diff", archives[0], archives[1]]);
    assert!(
        text.text().contains(
            "~ /assets/app.4f2a91bc.js  (content; it was immutable: browsers keep the old one)\n"
        ),
        "{text:?}"
    );
    assert!(
        text.text().contains("; 1 changed that was immutable"),
        "{text:?}"
    );
    let json = gannet_in(&folder, ["diff", "--json", archives[0], archives[1]]);
    assert!(
        json.text()
            .contains("\"what\": [\"content\"], \"was_immutable\": true"),
        "{json:?}"
    );
    assert!(json.text().contains("\"immutable_changed\": 1"), "{json:?}");
    // Hashed names come and go with every build.
    fs::remove_file(folder.join("site/assets/app.4f2a91bc.js")).unwrap();
    publish(&folder, &["--allow-removal", "0"]).success();
}

#[test]
fn a_signed_store_stays_signed() {
    let folder = with_site();
    for name in ["key", "other"] {
        gannet_in(&folder, ["keygen", name]).success();
    }
    publish(&folder, &[]).success();
    // The same release, now signed, is another pointer.
    let signed = publish(&folder, &["--sign", "key.key"]);
    assert!(signed.text().contains("serial 2"), "{signed:?}");
    assert!(
        publish(&folder, &["--sign", "key.key"])
            .success()
            .text()
            .contains("nothing to publish")
    );
    folder.write("site/index.html", "changed");
    publish(&folder, &[]).failure(
        1,
        "gannet: cannot change store 'store': the pointer in force is signed, and this one would \
         not be\nhelp: sign it, too: --sign KEY\n",
    );
    publish(&folder, &["--sign", "key.key"]).success();
    let pointer = current(&folder);
    assert!(
        pointer.contains("\nuntrusted comment: gannet pointer\n"),
        "{pointer}"
    );
    assert!(
        pointer.contains("\ntrusted comment: serial 3\n"),
        "{pointer}"
    );
    // The archive is signed as well.
    let archive = file_of(&folder, line(&pointer, "release"));
    let archive = archive.to_str().unwrap();
    gannet_in(&folder, ["verify", archive, "-p", "key.pub"]).success();
    gannet_in(&folder, ["rollback", "store"]).failure(
        1,
        "gannet: cannot change store 'store': the pointer in force is signed, and this one would \
         not be\nhelp: sign it, too: --sign KEY\n",
    );
    gannet_in(&folder, ["rollback", "store", "--sign", "key.key"]).success();
    let listed = gannet_in(&folder, ["releases", "store", "-p", "key.pub"]);
    same(
        &listed.err,
        "gannet: cannot use pointer 'store/log/1': it is not signed\n",
    );
    assert_eq!(listed.text().lines().count(), 4, "{listed:?}");
    let other = gannet_in(&folder, ["releases", "store", "-p", "other.pub"]);
    assert!(
        other.err.starts_with(
            "gannet: cannot use pointer 'store/current': it was signed with another key\n\
         help: is this the right store, and the right public key?\n"
        ),
        "{other:?}"
    );
    let replaced = publish(&folder, &["--sign", "other.key"]);
    let expect = "\ngannet: the pointer in force is signed with another key";
    assert!(replaced.err.contains(expect), "{replaced:?}");
    assert_eq!(replaced.status, Some(0));
    publish(&folder, &["--sign", "none.key"]).failure(
        1,
        "gannet: cannot read the key 'none.key': no such file or directory (ENOENT)\n\
         help: check the path; 'gannet keygen NAME' makes a key pair, and NAME.key signs\n",
    );
}

#[test]
fn mistakes_are_explained() {
    let folder = with_site();
    folder.write("full/index.html", "somebody's site");
    let refused = |arguments: &[&str], status: i32, expect: &str| {
        let ended = gannet_in(&folder, arguments);
        ended.failure(status, &format!("gannet: {expect}\n"));
    };
    let not_a_store = "cannot open store 'full': it is not a store\nhelp: a store has 'releases', \
        'log' and 'current'; 'gannet publish SITE STORE' makes one of a new or an empty folder";
    let no_folder = "cannot make store 'none/store': no such file or directory (ENOENT)\nhelp: make \
        the folder above it first, with 'mkdir -p'";
    refused(&["publish", "site", "full"], 1, not_a_store);
    refused(&["rollback", "full"], 1, not_a_store);
    refused(&["releases", "full"], 1, not_a_store);
    refused(&["publish", "site", "none/store"], 1, no_folder);
    let check = |site, store| ["publish", site, store, "--check-config"];
    refused(&check("site", "none/store"), 1, no_folder);
    refused(&check("site", "full"), 1, not_a_store);
    gannet_in(&folder, check("site", "store")).success();
    folder.write("full/_redirects", "nonsense\n");
    let rules = gannet_in(&folder, check("full", "store"));
    let packed = gannet_in(&folder, ["pack", "full", "--check-config"]);
    assert_eq!((rules.status, rules.err), (Some(1), packed.err));
    assert!(!folder.join("store").exists());
    for store in ["site/store", "site", "./site/../site/a/b"] {
        let expect = format!(
            "cannot publish to '{store}': the store is inside the site, whose next release \
             would contain it\nhelp: choose a folder beside the site"
        );
        refused(&["publish", "site", store], 1, &expect);
    }
    refused(
        &["publish", "none", "store"],
        1,
        "cannot publish 'none': no such file or directory (ENOENT)\nhelp: check the path",
    );
    refused(
        &["publish", "site", "store", "-o", "x"],
        2,
        "unknown flag '-o'\nhelp: see 'gannet publish --help'",
    );
    let see = "help: see 'gannet publish --help'";
    for (flag, value, why) in [
        (
            "keep",
            "7",
            "not of the form '7d 3..20' or '7d 3..20 10GiB'",
        ),
        ("stages", "5% +0s", "the last stage must be 100%"),
        ("allow-removal", "few", "not a number"),
        ("expires", "2020-01-01T00:00:00Z", "it has passed already"),
    ] {
        let flag = format!("--{flag}");
        let expect = format!("cannot use '{flag} {value}': {why}\n{see}");
        refused(&["publish", "site", "store", &flag, value], 2, &expect);
    }
    refused(
        &["publish", "site", "store", "--activate", "soon"],
        2,
        "cannot use '--activate soon': not a time\nhelp: write it as +30s, +10m, +30d, or \
         2026-11-23T08:30:00Z",
    );
    assert!(!folder.join("store").exists());
    publish(&folder, &[]).success();
    refused(
        &["rollback", "store"],
        1,
        "cannot roll back 'store': no earlier release has been kept\nhelp: 'gannet releases store' \
         lists what there is",
    );
    refused(
        &["rollback", "store", "12345678"],
        1,
        "cannot find release '12345678': the store has no such release\nhelp: 'gannet releases \
         store' lists them",
    );
    refused(
        &["rollback", "store", "1234"],
        2,
        "cannot find release '1234': not 8 to 32 digits, 0 to 9 and a to f\nhelp: 'gannet releases \
         store' lists them",
    );
    // A damaged archive is named as the user named it, and nothing of it remains.
    gannet_in(
        &folder,
        ["pack", "site", "-q", "--best", "-o", "bad.gannet"],
    )
    .success();
    let mut bytes = fs::read(folder.join("bad.gannet")).unwrap();
    let page = bytes
        .windows(6)
        .position(|it| it == b"page 3")
        .expect("it is stored uncoded");
    bytes[page] ^= 1;
    fs::write(folder.join("bad.gannet"), bytes).unwrap();
    let damaged = gannet_in(&folder, ["publish", "bad.gannet", "store"]);
    assert_eq!(damaged.status, Some(1));
    assert!(
        damaged.err.contains("'bad.gannet'") && !damaged.err.contains(".new"),
        "{damaged:?}"
    );
    assert_eq!(
        fs::read_dir(folder.join("store/releases")).unwrap().count(),
        1
    );
    // A damaged file of the release in force does not hold up the next one.
    let release = line(&current(&folder), "release").to_owned();
    fs::write(file_of(&folder, &release), "damaged").unwrap();
    publish(&folder, &[]).success();
    gannet_in(
        &folder,
        ["verify", file_of(&folder, &release).to_str().unwrap()],
    )
    .success();
    // As is one that holds another release, which nobody goes back to.
    folder.write("other/index.html", "another site");
    let other = ["publish", "other", "store", "-q", "-r", "99"];
    gannet_in(&folder, other).success();
    let kept = file_of(&folder, &release);
    let in_force = file_of(&folder, line(&current(&folder), "release"));
    fs::copy(in_force, &kept).unwrap();
    let expect = format!(
        "cannot go back to '{release}': no pointer names its file as it is\nhelp: if the file is \
         good, 'gannet publish store/releases/{release}.gannet store' puts it into force"
    );
    refused(&["rollback", "store"], 1, &expect);
    publish(&folder, &["-q"]).success();
    gannet_in(&folder, ["verify", kept.to_str().unwrap()]).success();
    gannet_in(&folder, ["rollback", "store"]).success();
    gannet_in(&folder, ["rollback", "store"]).success();
    assert_eq!(line(&current(&folder), "serial"), "5");
    fs::write(folder.join("store/current"), "damaged\n").unwrap();
    let told = publish(&folder, &[]);
    same(
        &told.err,
        "gannet: cannot read pointer 'store/current': line 1: not 'gannet pointer 1': not a \
         pointer, or a newer format; it will be replaced\n",
    );
    assert_eq!(line(&current(&folder), "serial"), "6");
    // Somebody without rights.
    let mut nobody = command_of_nobody();
    let ended = run(nobody
        .current_dir(folder.path())
        .args(["publish", "site", "store"]));
    if rustix::process::geteuid().is_root() {
        ended.failure(
            1,
            "gannet: cannot lock 'store/.lock': permission denied (EACCES)\n\
             help: check its permissions and those of its folder ('namei -l PATH'), and the user \
             that gannet runs as\n",
        );
    }
}

/// A publisher that is killed, at many moments: the release in force is whole, and the next
/// publisher succeeds.
#[test]
fn a_publisher_can_be_killed_at_any_moment() {
    let folder = with_site();
    let noise = (0..2_000_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 13) as u8);
    folder.write("site/noise.bin", noise.collect::<Vec<_>>());
    publish(&folder, &["-q"]).success();
    let store = folder.join("store");
    let names = |name: &str| -> Vec<String> {
        let names = fs::read_dir(store.join(name)).unwrap();
        names
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    let (mut killed, mut finished) = (0, 0);
    for round in 0..24_usize {
        folder.write("site/index.html", format!("round {round}"));
        let before = current(&folder);
        let (releases, entries) = (names("releases").len(), names("log").len());
        let has = |folder: &str, start: &str| names(folder).iter().any(|it| it.starts_with(start));
        let mut polls = 0;
        let mut is_time = || {
            polls += 1;
            match round % 8 {
                0 => polls > round * 40,
                1 => has("releases", "."),
                2 => has("releases", ".new"),
                3 => names("releases").len() > releases && !has("releases", "."),
                4 => has("log", ".new"),
                5 => names("log").len() > entries,
                6 => has("", ".new"),
                _ => current(&folder) != before,
            }
        };
        let mut child = spawn(&folder, &["publish", "site", "store", "-q", "--fast"]);
        while child.try_wait().unwrap().is_none() && !is_time() {
            thread::yield_now();
        }
        let _ = child.kill();
        match child.wait().unwrap().success() {
            true => finished += 1,
            false => killed += 1,
        }
        let release = line(&current(&folder), "release").to_owned();
        gannet_in(
            &folder,
            ["verify", file_of(&folder, &release).to_str().unwrap()],
        )
        .success();
        if round % 3 == 0 {
            publish(&folder, &["-q"]).success();
            let shown = gannet_in(&folder, ["releases", "store"]).success();
            assert!(
                shown.text().lines().nth(1).unwrap().contains("  current  "),
                "{shown:?}"
            );
            assert!(!has("releases", ".") && !has("log", ".") && !has("", ".new"));
        }
    }
    assert!(killed > 8, "{killed} killed, {finished} finished");
}

fn spawn(folder: &Folder, arguments: &[&str]) -> Child {
    let mut command = command();
    command.current_dir(folder.path()).args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary starts")
}

/// Two publishers at the same time: one of them publishes, the other one too or is told why not.
#[test]
fn two_publishers_do_not_overwrite_each_other() {
    let folder = with_site();
    folder.write("other/index.html", "the other site");
    publish(&folder, &["-q"]).success();
    let mut published = 1;
    for round in 0..6 {
        folder.write("site/index.html", format!("round {round}"));
        folder.write("other/index.html", format!("other round {round}"));
        let ended: Vec<_> = thread::scope(|scope| {
            let both = ["site", "other"].map(|site| {
                let folder: &Path = folder.path();
                scope.spawn(move || {
                    let arguments = ["publish", site, "store", "-q", "--fast", "-r", "99"];
                    run(command().current_dir(folder).args(arguments))
                })
            });
            both.map(|it| it.join().unwrap()).into()
        });
        for ended in ended {
            match ended.status {
                Some(0) => published += 1,
                _ => assert!(
                    ended.err.starts_with(
                        "gannet: cannot change store 'store': another publisher is \
                        at work ("
                    ),
                    "{ended:?}"
                ),
            }
        }
        let mut serials: Vec<u64> = fs::read_dir(folder.join("store/log"))
            .unwrap()
            .map(|it| it.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        serials.sort_unstable();
        assert_eq!(serials, (1..=published).collect::<Vec<_>>());
        assert_eq!(line(&current(&folder), "serial"), published.to_string());
    }
    assert!(published > 6);
}

/// A server of a store tells what it serves, through its metrics.
#[test]
fn a_server_is_asked_what_it_serves() {
    let folder = with_site();
    publish(&folder, &["-q"]).success();
    // Metrics have the first half of an id.
    let one = line(&current(&folder), "release")[..16].to_owned();
    let flags = ["--port", "0", "--metrics", "127.0.0.1:0"];
    let store = folder.join("store");
    let server = Gannet::serve(&store, &flags);
    let address = format!("http://{}", server.metrics().expect("it has metrics"));
    let asked = gannet_in(&folder, ["releases", &address]).success();
    let start = format!("{}: serial 1, active since ", store.display());
    assert!(asked.text().starts_with(&start), "{asked:?}");
    assert!(
        asked.text().ends_with(&format!("\n  current  {one}\n")),
        "{asked:?}"
    );
    let json = gannet_in(&folder, ["releases", "--json", &address]).success();
    let part = format!("\"releases\": [{{\"release\": \"{one}\", \"state\": \"current\"");
    assert!(json.text().contains(&part), "{json:?}");
    let not_metrics = format!("http://{}", server.address());
    gannet_in(&folder, ["releases", &not_metrics]).failure(
        1,
        &format!(
            "gannet: cannot download '{not_metrics}/metrics': the server answers 404 (expected the \
             content)\nhelp: name the address of --metrics, such as http://127.0.0.1:9090\n"
        ),
    );
    gannet_in(&folder, ["releases", &address, "-p", "key"]).failure(
        2,
        "gannet: --public-key has no effect: a server checks its own\nhelp: leave it out\n",
    );
    server.stop();
}
