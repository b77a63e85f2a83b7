//! `gannet serve URL --on-demand`: what is requested is fetched, and nothing else is sent than was published.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;

use gannet_testkit::client::{Client, ask, get};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, Signal, command, gannet_in, run};

use crate::serving::{origin, peers, serve};
use crate::store::{current, file_of, line, publish, with_site};

/// Bytes that no encoder shortens.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed + 1;
    let next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// A published site: with files that are a unit, many units, and never requested.
fn with_store() -> Folder {
    let folder = with_site();
    for (seed, (name, len)) in FILES.iter().enumerate() {
        folder.write(format!("site/{name}"), noise(seed as u64, *len));
    }
    // Longer than what is in the index.
    let page = format!(
        "<!DOCTYPE html><title>Ours</title>{}",
        "page ".repeat(2_000)
    );
    folder.write("site/503.html", page);
    // Equal times, so that the archive always has the same bytes.
    let mut publish = command();
    publish.args(["publish", "site", "store", "--fast", "-q"]);
    publish.env("SOURCE_DATE_EPOCH", "1700000000");
    run(publish.current_dir(folder.path())).success();
    folder
}

const FILES: [(&str, usize); 3] = [
    ("one.bin", 300_000),
    ("long.bin", 5_000_000),
    ("other.bin", 3_000_000),
];

fn partial(folder: &Folder) -> PathBuf {
    let release = line(&current(folder), "release").to_owned();
    folder.join(format!("copy/releases/{release}.partial"))
}

fn check(server: &Gannet, folder: &Folder, name: &str) {
    let expected = fs::read(folder.join(format!("site/{name}"))).expect("it was published");
    let answer = get(server, &format!("/{name}"));
    assert!(answer.status == 200 && answer.body == expected, "{name}");
}

#[test]
fn what_is_requested_is_fetched_and_stays() {
    on_both_engines(|engine| {
        let folder = with_store();
        let (origin, url) = origin(&folder);
        let flags = ["--on-demand", "64M", "--engine", engine.name()];
        let more = ["--sandbox", "require", "--metrics", "127.0.0.1:0"];
        let flags = [&flags[..], &more].concat();
        let server = Gannet::start(&mut serve(&folder, &url, &flags));
        assert!(get(&server, "/").text().contains("One"));
        for name in ["one.bin", "long.bin", "one.bin"] {
            check(&server, &folder, name);
            assert!(!peers(server.pid()).contains(&origin.address()));
        }
        for (path, place) in [
            ("/one.bin", "here"),
            ("/other.bin", "fetched when it is requested"),
        ] {
            let explained = gannet_in(&folder, ["explain", path, "copy"]).success();
            let said = format!("the smallest accepted, {place}\n");
            assert!(explained.text().contains(&said), "{}", explained.text());
        }
        let metrics = server.metrics().expect("it has them");
        let health = Client::connect(metrics).get("/health").expect(200);
        let text = health.text();
        let metadata = fs::metadata(partial(&folder)).expect("it is there");
        let said = text.strip_prefix("ok\nrelease ").expect(text);
        let (_, said) = said.split_once(", current: ").expect(text);
        let said = said.strip_suffix(" bytes are here\n").expect(text);
        let (here, all) = said.split_once(" of ").expect(text);
        let [here, all] = [here, all].map(|it| it.parse::<u64>().expect(text));
        assert!(
            here >= 5_300_000 && all <= metadata.len() && all - here >= 2_500_000,
            "{text}"
        );
        let lacking = metadata.len().saturating_sub(metadata.blocks() * 512);
        assert!(
            lacking > 2_500_000,
            "{lacking} of 3,000,000 bytes are lacking"
        );
        let listed = gannet_in(&folder, ["ls", "copy"]).success();
        let listed = listed.text();
        assert!(listed.contains("/other.bin\n"), "{listed}");
        for refused_command in [
            "cat copy /one.bin",
            "publish copy elsewhere -q",
            "pack site -q -o next.gannet --previous copy",
        ] {
            // Nor is a file written that is as long as all of it.
            let mut limited = Command::new("sh");
            limited.args([
                "-c",
                &format!("ulimit -f 1024; exec \"$0\" {refused_command}"),
            ]);
            limited.arg(command().get_program());
            let refused = run(limited.current_dir(folder.path()));
            assert_eq!(refused.status, Some(1), "{refused_command:?}");
            let said = "this is part of a release";
            assert!(refused.err.contains(said), "{}", refused.err);
        }
        let sound = gannet_in(&folder, ["verify", "copy"]).success();
        let sound = sound.text();
        assert!(sound.contains(": what is here is intact, 5."), "{sound}");
        check(&server, &folder, "other.bin");
        until("the page for errors has come, too", || {
            let sound = gannet_in(&folder, ["verify", "copy"]).success();
            sound
                .text()
                .contains(": all of it is here and intact, 7.9 MiB")
        });
        // What is here is served without the store, now and after a restart.
        origin.stop().success();
        check(&server, &folder, "long.bin");
        assert_eq!(server.stop().status, Some(0));
        let server = Gannet::start(&mut serve(&folder, &url, &flags));
        check(&server, &folder, "one.bin");
        check(&server, &folder, "long.bin");
        let known = &fs::read(folder.join("site/one.bin")).expect("it was published")[..32];
        let file = fs::read(partial(&folder)).expect("it is there");
        let at = file
            .windows(32)
            .position(|it| it == known)
            .expect("it is here");
        let file = fs::OpenOptions::new().write(true).open(partial(&folder));
        let file = file.expect("it is there");
        file.write_all_at(b"damage", at as u64).expect("it is ours");
        let damaged = gannet_in(&folder, ["verify", "copy"]);
        assert_eq!(damaged.status, Some(1));
        for said in [
            "wrong digest at offset ",
            "help: stop the server, remove the copy",
        ] {
            assert!(damaged.err.contains(said), "{}", damaged.err);
        }
    });
}

/// Another tool has copied the folder, perhaps while files came, or the disk has damaged the index: nothing of that
/// counts, and the server begins with what the follower makes of it.
#[test]
fn what_is_copied_or_damaged_is_fetched_again() {
    let folder = with_store();
    let (origin, url) = origin(&folder);
    let mut command = serve(&folder, &url, &["--on-demand", "64M"]);
    let server = Gannet::start(&mut command);
    check(&server, &folder, "one.bin");
    assert_eq!(server.stop().status, Some(0));
    let file = partial(&folder);
    let copy = || {
        let copied = folder.join("copied");
        fs::copy(&file, &copied).expect("it can be copied");
        fs::rename(&copied, &file).expect("it can be renamed");
    };
    let damage = || {
        let mut bytes = fs::read(&file).expect("it is there");
        *bytes.last_mut().expect("it has an index") ^= 1;
        fs::write(&file, bytes).expect("it is ours");
    };
    for change in [&copy as &dyn Fn(), &damage] {
        change();
        let server = Gannet::start(&mut command);
        check(&server, &folder, "one.bin");
        check(&server, &folder, "long.bin");
        assert_eq!(server.stop().status, Some(0));
    }
    origin.stop().success();
}

#[test]
fn what_is_not_as_published_is_not_sent() {
    let folder = with_store();
    let (origin, url) = origin(&folder);
    let mut server = Gannet::start(&mut serve(&folder, &url, &["--on-demand", "64M"]));
    assert!(get(&server, "/").text().contains("One"));
    // One bit of the file in the store.
    let release = line(&current(&folder), "release").to_owned();
    let path = file_of(&folder, &release);
    let archive = fs::read(&path).expect("it was published");
    let content = noise(0, FILES[0].1);
    let at = archive.windows(64).position(|it| it == &content[..64]);
    let at = at.expect("it is stored as it is") + 150_000;
    let file = fs::OpenOptions::new().write(true).open(&path);
    let file = file.expect("it is ours");
    file.write_all_at(&[archive[at] ^ 1], at as u64)
        .expect("it is writable");
    assert_eq!(get(&server, "/one.bin").status, 502);
    until("it is said", || {
        let line = server.next_error_line().unwrap_or_default();
        line.contains("are not those of the release")
    });
    check(&server, &folder, "long.bin");
    assert!(get(&server, "/").text().contains("One"));
    origin.stop().success();
    let answer = get(&server, "/other.bin");
    assert_eq!(
        (answer.status, answer.field("retry-after")),
        (503, Some("1"))
    );
    assert!(answer.text().contains("Ours"), "it came with the index");
}

/// It is served once all of it is there, and by no other server before.
#[test]
fn a_copy_on_demand_becomes_a_whole_one() {
    let folder = with_store();
    let (_origin, url) = origin(&folder);
    let server = Gannet::start(&mut serve(&folder, &url, &["--on-demand", "64M"]));
    check(&server, &folder, "one.bin");
    assert_eq!(server.stop().status, Some(0));
    let refused = gannet_in(&folder, ["serve", "copy", "--port", "0"]);
    assert_eq!(refused.status, Some(1));
    let why = "only a part of the release is here\nhelp: serve the URL of the store";
    assert!(refused.err.contains(why), "{}", refused.err);
    let server = Gannet::start(&mut serve(&folder, &url, &[]));
    assert!(partial(&folder).with_extension("gannet").exists());
    for (name, _) in FILES {
        check(&server, &folder, name);
    }
}

#[test]
fn without_a_server_or_a_store_on_demand_has_no_meaning() {
    let folder = with_store();
    let receive = ["--receive", "127.0.0.1:0"];
    for flags in [&[][..], &receive[..]] {
        let command = [&["serve", "store", "--on-demand", "64M"], flags].concat();
        gannet_in(&folder, command).failure(
            2,
            "gannet: --on-demand has no effect: what is served is not a URL\n\
             help: leave it out, or name a store such as s3://BUCKET/PATH\n",
        );
    }
    let url = "http://127.0.0.1:1/store";
    let mut less = serve(&folder, url, &["--on-demand", "1M"]);
    let refused = run(&mut less);
    assert_eq!(refused.status, Some(2));
    assert!(refused.err.contains("less than 64M"), "{}", refused.err);
    let refused = gannet_in(&folder, ["follow", url, "copy", "--on-demand", "64M"]);
    refused.failure(
        2,
        "gannet: cannot use '--on-demand': no server sends requests on standard input\n\
         help: 'gannet serve URL --on-demand SIZE' starts the server and this beside it\n",
    );
}

/// A reload that could not serve what is here says so at once, and the server goes on; another one has the pages for
/// errors, too.
#[test]
fn a_reload_goes_on_with_what_is_here_or_is_refused() {
    let folder = with_store();
    let (origin, url) = origin(&folder);
    let on_demand = "on-demand = \"64M\"\n";
    folder.write("gannet.toml", on_demand);
    let mut server = Gannet::start(&mut serve(&folder, &url, &["--config", "gannet.toml"]));
    check(&server, &folder, "one.bin");
    folder.write("gannet.toml", "");
    server.signal(Signal::HUP);
    let mut said = String::new();
    while !said.contains("gannet: cannot reload 'gannet.toml', nothing has changed") {
        said += &server.next_error_line().expect("it runs");
    }
    assert!(
        said.contains("only a part of the release is here"),
        "{said}"
    );
    check(&server, &folder, "one.bin");
    folder.write("gannet.toml", format!("{on_demand}node = \"other\"\n"));
    server.signal(Signal::HUP);
    let next = loop {
        let line = server.next_line().expect("it runs");
        if let Some(rest) = line.strip_prefix("process ") {
            let number = rest.split(' ').next().and_then(|it| it.parse().ok());
            break rustix::process::Pid::from_raw(number.expect("a number")).expect("not zero");
        }
    };
    origin.stop().success();
    check(&server, &folder, "one.bin");
    let answer = get(&server, "/other.bin");
    assert!(answer.status == 503 && answer.text().contains("Ours"));
    rustix::process::kill_process(next, Signal::TERM).expect("it runs");
}

/// A file that the archive has only as gzip: what is read of it is that.
#[test]
fn a_form_that_is_decompressed_is_here_with_the_stored_one() {
    let folder = with_store();
    let text: String = (0..20_000).map(|number| format!("{number} ")).collect();
    folder.write("site/text.txt", text);
    publish(&folder, &["-q", "--drop-identity"]).success();
    let (_origin, url) = origin(&folder);
    let server = Gannet::start(&mut serve(&folder, &url, &["--on-demand", "64M"]));
    for place in ["fetched when it is requested", "here"] {
        let explained = gannet_in(&folder, ["explain", "/text.txt", "copy"]).success();
        let text = explained.text();
        let form = |name: &str| text.lines().find(|it| it.contains(name)).unwrap_or(text);
        let stored = form("decompressed from the gzip");
        assert!(stored.ends_with(place), "{text}");
        assert!(!text.contains(", here") || place == "here", "{text}");
        check(&server, &folder, "text.txt");
    }
}

/// It is served from then on, and no release is said to be a new one for it.
#[test]
fn a_page_for_errors_may_come_late() {
    let folder = with_store();
    let page = noise(9, 9_000);
    folder.write("site/405.html", &page);
    publish(&folder, &["-q"]).success();
    let release = line(&current(&folder), "release").to_owned();
    let path = file_of(&folder, &release);
    let archive = fs::read(&path).expect("it was published");
    let at = archive.windows(64).position(|it| it == &page[..64]);
    let at = at.expect("it is stored as it is") as u64;
    let file = fs::OpenOptions::new().write(true).open(&path);
    let file = file.expect("it is ours");
    file.write_all_at(&[page[0] ^ 1], at).expect("writable");
    let (_origin, url) = origin(&folder);
    let mut server = Gannet::start(&mut serve(&folder, &url, &["--on-demand", "64M"]));
    let refused = || ask(&server, "POST", "/", &[]).expect(405).body;
    assert!(refused() != page);
    file.write_all_at(&page[..1], at).expect("writable");
    until("the page has come", || refused() == page);
    server.signal(Signal::TERM);
    while let Some(line) = server.next_error_line() {
        assert!(!line.contains("serving release"), "{line}");
    }
}
