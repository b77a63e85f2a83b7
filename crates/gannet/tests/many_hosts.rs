//! Many sites in one folder: each is opened at the first request for it.

#[path = "many_hosts/sites.rs"]
mod sites;

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::{descriptors, threads, until};
use gannet_testkit::{Folder, Gannet, gannet_in};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::sites::{name, sites, told};

/// More than are opened at the start, and more than may be open.
const HOSTS: usize = 400;

fn request(host: &str) -> String {
    request_of(host, "/")
}

fn request_of(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn get(server: &Gannet, host: &str) -> Response {
    get_of(server, host, "/")
}

fn get_of(server: &Gannet, host: &str, path: &str) -> Response {
    let mut client = Client::new(server);
    client.send(request_of(host, path));
    client.response()
}

fn pack(folder: &Folder, text: &str, host: &str) {
    folder.write("page/index.html", text);
    let archive = format!("{host}.gannet");
    gannet_in(folder, ["pack", "page", "-o", &archive]).success();
    fs::rename(folder.join(&archive), folder.join("sites").join(&archive)).expect("packed");
}

/// Packs one archive for these hosts, to be served as the entry of `host`.
fn pack_hosts(folder: &Folder, host: &str, hosts: &[&str], text: &str) {
    for name in hosts {
        folder.write(
            format!("packed/{name}/index.html"),
            format!("{text} {name}"),
        );
        let asset = format!("packed/{name}/_astro/{text}.4f2a91bc.js");
        folder.write(asset, format!("{text} of {name}"));
    }
    let archive = format!("{host}.gannet");
    gannet_in(folder, ["pack", "--hosts", "packed", "-o", &archive]).success();
    fs::rename(folder.join(&archive), folder.join("sites").join(&archive)).expect("packed");
    fs::remove_dir_all(folder.join("packed")).expect("there");
}

#[test]
fn all_hosts_may_be_asked_for_at_once() {
    let folder = sites(HOSTS);
    on_both_engines(|engine| {
        let server = engine.serve(folder.join("sites"), &["--hosts", "--workers", "2"]);
        let before = descriptors(&server);
        let ask = |number| {
            let mut client = Client::new(&server);
            client.send(request(&name(number)));
            client
        };
        let clients: Vec<Client> = (0..HOSTS).map(ask).collect();
        for (number, mut client) in clients.into_iter().enumerate() {
            let response = client.response();
            assert_eq!(response.text(), format!("site {number}"));
        }
        // Both engines close connections a moment later.
        let most = before + 5 * 256;
        until("descriptors are bounded", || descriptors(&server) <= most);
        assert_eq!(get(&server, "other.example").status, 421);
        assert_eq!(get(&server, &name(0)).text(), "site 0", "opened again");
    });
}

/// However fast sites are opened, those that were closed for them hold nothing.
#[test]
fn open_sites_have_their_part_of_the_descriptors() {
    const CLIENTS: usize = 8;
    const LIMIT: usize = 512;
    let folder = sites(HOSTS);
    on_both_engines(|engine| {
        let flags = ["--hosts", "--workers", "2", "--max-descriptors", "512"];
        let server = engine.serve(folder.join("sites"), &flags);
        let before = descriptors(&server);
        let ask_for_all = |client: usize| {
            let mut connection = Client::new(&server);
            for number in 0..HOSTS {
                let number = (number + client * HOSTS / CLIENTS) % HOSTS;
                connection.send(request(&name(number)));
                assert_eq!(connection.response().text(), format!("site {number}"));
            }
        };
        let most = std::thread::scope(|scope| {
            let clients = (0..CLIENTS).map(|client| scope.spawn(move || ask_for_all(client)));
            let clients: Vec<_> = clients.collect();
            let mut most = before;
            while clients.iter().any(|client| !client.is_finished()) {
                most = most.max(descriptors(&server));
                std::thread::park_timeout(Duration::from_millis(2));
            }
            most
        });
        let bound = before + CLIENTS + LIMIT / 4;
        assert!(most <= bound, "{most}, {before} before");
    });
}

/// However many sites are open, one of them may use nearly half of the caches for a single text.
#[test]
fn long_text_of_one_of_many_sites_is_compressed() {
    const OPEN: usize = 64;
    let folder = sites(OPEN);
    let line = |number: usize| format!("<p>number {number}, {}</p>\n", number * 7_919 % 10_007);
    let text: String = (0..50_000).map(line).collect();
    assert!(text.len() > 1 << 20, "{}", text.len());
    folder.write("sites/h7.example/long.txt", &text);
    on_both_engines(|engine| {
        let flags = ["--hosts", "--workers", "2", "--cache-memory", "16M"];
        let server = engine.serve(folder.join("sites"), &flags);
        for number in 0..OPEN {
            assert_eq!(get(&server, &name(number)).text(), format!("site {number}"));
        }
        let mut client = Client::new(&server);
        let fields = "Host: h7.example\r\nAccept-Encoding: gzip\r\n";
        until("it is compressed", || {
            client.send(format!("GET /long.txt HTTP/1.1\r\n{fields}\r\n"));
            let answer = client.response().expect(200);
            if answer.field("content-encoding").is_none() {
                return false;
            }
            let mut decoder = flate2::read::GzDecoder::new(&answer.body[..]);
            let mut content = String::new();
            decoder.read_to_string(&mut content).expect("sound");
            assert!(content == text);
            true
        });
    });
}

#[test]
fn used_up_descriptors_are_no_fault_of_a_site() {
    let folder = sites(HOSTS);
    for number in 0..HOSTS {
        folder.write(format!("sites/{}/_headers", name(number)), "/*\n  X-A: b\n");
    }
    on_both_engines(|engine| {
        let flags = ["--hosts", "--workers", "2"];
        let mut server = engine.serve(folder.join("sites"), &flags);
        let mut client = Client::new(&server);
        let mut status = |number: usize| {
            client.send(request(&name(number)));
            client.response().status
        };
        assert_eq!(status(0), 200);
        let limits = getrlimit(Resource::Nofile);
        let pid = Pid::from_raw(server.pid().try_into().expect("a pid"));
        let limit = |current| {
            let limits = Rlimit { current, ..limits };
            prlimit(pid, Resource::Nofile, limits).expect("it is our child");
        };
        // Wherever they end: for the folder, for a worker, or for its rules.
        for free in 0..12 {
            limit(Some((descriptors(&server) + free) as u64));
            let status = status(1 + free);
            assert!([200, 503].contains(&status), "{free} are free: {status}");
        }
        limit(Some(descriptors(&server) as u64));
        assert_eq!(status(50), 503);
        limit(limits.current);
        assert_eq!(status(50), 200, "it is tried again at once");
        // Both engines run at once, in one folder.
        let bad = 51 + usize::from(engine.name() == "epoll");
        let rules = format!("sites/{}/_redirects", name(bad));
        folder.write(&rules, "nonsense\n");
        assert_eq!(status(bad), 500);
        let line = told(&mut server, "no site for");
        assert!(line.contains("EMFILE"), "{line}");
        let help = server.next_error_line().expect("there is help");
        assert!(help.starts_with("help: raise 'ulimit -n'"), "{help}");
        let line = told(&mut server, "no site for");
        let told = format!("'{}'", name(bad));
        assert!(line.contains(&told), "told once: {line}");
        fs::remove_file(folder.join(&rules)).expect("there");
    });
}

/// Tenants whose rules would hold more than there is are refused where these would take the memory of others,
/// at the first request and when they come later.
#[test]
fn rules_of_tenants_leave_memory_to_others() {
    let source = "/a".repeat(64);
    let rules = format!("{source} /t\n").repeat(9_000);
    on_both_engines(|engine| {
        let folder = sites(HOSTS);
        let of_host = |number| format!("sites/{}/_redirects", name(number));
        for number in 0..2 {
            folder.write(of_host(number), &rules);
        }
        folder.write(of_host(2), "/old /new 301\n");
        let flags = ["--hosts", "--workers", "2", "--max-memory", "256M"];
        let mut server = engine.serve(folder.join("sites"), &flags);
        for number in 0..2 {
            // While its rules are read, the answer may be 503.
            until("it is refused", || {
                get(&server, &name(number)).status == 500
            });
            let line = told(&mut server, "KiB, by what other sites leave");
            assert!(line.contains("_redirects:"), "{line}");
        }
        let old = |server: &Gannet| get_of(server, &name(2), "/old").status;
        assert_eq!(old(&server), 301);
        assert_eq!(get(&server, &name(3)).text(), "site 3");
        folder.write("rules", &rules);
        fs::rename(folder.join("rules"), folder.join(of_host(2))).expect("written");
        told(&mut server, "keeping the old ones");
        assert_eq!(old(&server), 301);
    });
}

#[test]
fn archives_and_stores_come_change_and_go() {
    on_both_engines(|engine| {
        let folder = sites(HOSTS);
        pack(&folder, "packed", "packed.example");
        folder.write("page/index.html", "published");
        gannet_in(&folder, ["publish", "page", "sites/store.example"]).success();
        symlink(
            "packed.example.gannet",
            folder.join("sites/www.example.gannet"),
        )
        .expect("linked");
        let server = engine.serve(folder.join("sites"), &["--hosts"]);
        let is = |host: &str, text: &str| get(&server, host).text() == text;
        assert!(is("packed.example", "packed"));
        assert!(is("www.example", "packed"));
        assert!(is("store.example", "published"));
        assert_eq!(get(&server, "new.example").status, 421);

        pack(&folder, "packed again", "packed.example");
        until("the archive is replaced", || {
            is("packed.example", "packed again")
        });
        folder.write("sites/new.example/index.html", "new");
        until("a folder comes", || is("new.example", "new"));
        fs::remove_dir_all(folder.join("sites/new.example")).expect("there");
        until("it goes", || get(&server, "new.example").status == 421);
        pack(&folder, "an archive", "new.example");
        until("an archive comes instead", || {
            is("new.example", "an archive")
        });
    });
}

#[test]
fn what_cannot_be_opened_is_told_once_and_harms_no_other() {
    on_both_engines(|engine| {
        let folder = sites(HOSTS);
        let bad = folder.write("sites/bad.example/_redirects", "nonsense\n");
        folder.write("sites/broken.example.gannet", "no archive");
        pack(&folder, "secret", "hidden.example");
        let archive = folder.join("sites/hidden.example.gannet");
        fs::rename(&archive, folder.join("secret.gannet")).expect("moved");
        symlink(Path::new("../secret.gannet"), &archive).expect("linked");
        let mut server = engine.serve(folder.join("sites"), &["--hosts"]);
        for _ in 0..50 {
            assert_eq!(get(&server, "bad.example").status, 500);
        }
        let line = server.next_error_line().expect("it is told");
        assert!(
            line.starts_with("gannet: no site for 'bad.example': "),
            "{line}"
        );
        assert_eq!(get(&server, "broken.example").status, 500);
        let is_of_broken = |line: &String| line.contains("no site for 'broken.example'");
        while !server.next_error_line().is_some_and(|line| {
            assert!(!line.contains("no site for 'bad.example'"), "told once");
            is_of_broken(&line)
        }) {}
        assert_eq!(get(&server, "hidden.example").status, 503);
        assert_eq!(get(&server, &name(7)).text(), "site 7");
        fs::remove_file(bad).expect("there");
        folder.write("sites/bad.example/index.html", "mended");
        until("it is tried again", || {
            get(&server, "bad.example").text() == "mended"
        });
    });
}

/// A few sites are opened at the start, so that mistakes are told then; others come later.
#[test]
fn hosts_come_to_a_small_folder() {
    let folder = Folder::new();
    folder.write("sites/a.example/index.html", "site a");
    pack(&folder, "packed", "b.example");
    // An archive that names the host of another entry.
    pack_hosts(
        &folder,
        "aa.example",
        &["aa.example", "d.example"],
        "claimed",
    );
    folder.write("sites/d.example/index.html", "site d");
    let server = Gannet::serve(folder.join("sites"), &["--hosts"]);
    assert_eq!(get(&server, "a.example").text(), "site a");
    assert_eq!(get(&server, "b.example").text(), "packed");
    assert_eq!(get(&server, "aa.example").text(), "claimed aa.example");
    assert_eq!(get(&server, "d.example").text(), "site d");
    assert_eq!(get(&server, "c.example").status, 421);
    folder.write("sites/c.example/index.html", "site c");
    until("it comes", || get(&server, "c.example").text() == "site c");
}

/// An entry has its own host's site of an archive, or the one for all hosts, also in later releases.
#[test]
fn an_archive_of_several_hosts_answers_for_its_entry_alone() {
    let few = Folder::new();
    few.write("sites/a.example/index.html", "site a");
    for folder in [few, sites(HOSTS)] {
        pack_hosts(&folder, "m.example", &["c.example", "m.example"], "one");
        pack_hosts(&folder, "all.example", &["_default", "c.example"], "one");
        let mut server = Gannet::serve(folder.join("sites"), &["--hosts"]);
        let is = |host: &str, path: &str, text: &str| get_of(&server, host, path).text() == text;
        assert!(is("m.example", "/", "one m.example"));
        assert!(is("all.example", "/", "one _default"));
        assert_eq!(get(&server, "c.example").status, 421);

        // The next release has the site elsewhere among its hosts; another one does not name it.
        let next = ["m.example", "x.example", "z.example"];
        pack_hosts(&folder, "m.example", &next, "two");
        until("it is replaced", || is("m.example", "/", "two m.example"));
        assert!(is(
            "m.example",
            "/_astro/one.4f2a91bc.js",
            "one of m.example"
        ));
        pack_hosts(&folder, "m.example", &["_default", "c.example"], "three");
        until("it is replaced again", || {
            is("m.example", "/", "three _default")
        });
        assert!(is(
            "m.example",
            "/_astro/two.4f2a91bc.js",
            "two of m.example"
        ));

        pack_hosts(&folder, "m.example", &["c.example", "d.example"], "four");
        let cause = "it has no site for that host, only for c.example, d.example";
        told(&mut server, cause);
        assert_eq!(get(&server, "m.example").text(), "three _default");

        // One that comes later, and is refused from the beginning.
        pack_hosts(&folder, "n.example", &["c.example", "d.example"], "four");
        until("it is found", || get(&server, "n.example").status != 421);
        assert_eq!(get(&server, "n.example").status, 500);
        let line = told(
            &mut server,
            "gannet: no site for 'n.example': cannot serve '",
        );
        assert!(line.contains(cause), "{line}");
    }
}

#[test]
fn an_entry_without_a_site_for_its_host_is_told_at_the_start() {
    let folder = Folder::new();
    folder.write("sites/b.example/index.html", "site b");
    pack_hosts(&folder, "a.example", &["c.example", "d.example"], "one");
    let ended = gannet_in(&folder, ["serve", "--port", "0", "--hosts", "sites"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("for 'a.example': it has no site for"),
        "{ended:?}"
    );
}

/// The operator's word counts for more than an entry's name, and that for more than what an archive names.
#[test]
fn sites_beside_a_folder_of_hosts_have_the_hosts_that_are_named_for_them() {
    for count in [3, HOSTS] {
        let folder = sites(count);
        folder.write("other/index.html", "other");
        pack_hosts(
            &folder,
            "all",
            &["h2.example", "y.example", "z.example"],
            "all",
        );
        let archive = folder.join("all.gannet");
        fs::rename(folder.join("sites/all.gannet"), &archive).expect("packed");
        let flags = [
            "--hosts",
            "--site",
            &format!("h1.example={}", folder.join("other").display()),
            "--site",
            &format!("z.example={}", archive.display()),
        ];
        let mut server = Gannet::serve(folder.join("sites"), &flags);
        for (host, text) in [
            ("h0.example", "site 0"),
            ("h1.example", "other"),
            ("h2.example", "site 2"),
            ("y.example", "all y.example"),
            ("z.example", "all z.example"),
        ] {
            assert_eq!(get(&server, host).text(), text);
        }
        let line = told(
            &mut server,
            "h1.example' is not served: '--site h1.example=",
        );
        assert!(line.ends_with("other' has its host"), "{line}");
    }
}

/// An archive for all other hosts may name hosts of its own. The entry of one of these has it.
#[test]
fn an_entry_has_its_host_before_the_archive_for_all_others() {
    let few = Folder::new();
    few.write("sites/h1.example/index.html", "site 1");
    for (folder, are_many) in [(few, false), (sites(HOSTS), true)] {
        let hosts = ["_default", "h1.example", "z.example"];
        pack_hosts(&folder, "_default", &hosts, "all");
        let server = Gannet::serve(folder.join("sites"), &["--hosts"]);
        for _ in 0..2 {
            assert_eq!(get(&server, "h1.example").text(), "site 1");
            assert_eq!(get(&server, "z.example").text(), "all z.example");
            assert_eq!(get(&server, "other.example").text(), "all _default");
        }
        if are_many {
            fs::remove_dir_all(folder.join("sites/h1.example")).expect("there");
            until("the archive has it", || {
                get(&server, "h1.example").text() == "all h1.example"
            });
        }
        folder.write("sites/z.example/index.html", "site z");
        until("an entry comes", || {
            get(&server, "z.example").text() == "site z"
        });
    }
}

/// Where one entry is served for all hosts, no other site of its archive is.
#[test]
fn an_archive_of_several_hosts_may_be_served_for_all() {
    let flags = ["--hosts", "--unknown-host=ignore"];
    let folder = Folder::new();
    fs::create_dir(folder.join("sites")).expect("made");
    pack_hosts(&folder, "b.example", &["a.example", "b.example"], "one");
    let server = Gannet::serve(folder.join("sites"), &flags);
    assert_eq!(get(&server, "a.example").text(), "one b.example");
    let all = ["_default", "a.example", "b.example"];
    pack_hosts(&folder, "_default", &all, "all");
    let server = Gannet::serve(folder.join("sites"), &flags);
    assert_eq!(get(&server, "a.example").text(), "all _default");
    pack_hosts(&folder, "_default", &["a.example", "b.example"], "none");
    let start = [
        "serve",
        "--port",
        "0",
        "--hosts",
        "--unknown-host=ignore",
        "sites",
    ];
    let ended = gannet_in(&folder, start);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let cause = "for '_default': it has no site for that host, only for a.example, b.example";
    assert!(ended.err.contains(cause), "{ended:?}");
}

/// Names cost neither descriptors nor threads, however many there are.
#[test]
fn ten_thousand_hosts_cost_their_names_only() {
    const MANY: usize = 10_000;
    let few = sites(HOSTS);
    let many = Folder::new();
    let first = many.write("sites/a.example.gannet", "nobody asks for it");
    for number in 0..MANY {
        let entry = format!("sites/{}.gannet", name(number));
        fs::hard_link(&first, many.join(entry)).expect("linked");
    }
    on_both_engines(|engine| {
        let start = |folder: &Folder| {
            let flags = ["--hosts", "--workers", "2"];
            engine.serve(folder.join("sites"), &flags)
        };
        let host = format!("{}.example", engine.name());
        let page = format!("sites/{host}/index.html");
        many.write(&page, "a site");
        let servers = [start(&few), start(&many)];
        let both = |of: fn(&Gannet) -> usize| [of(&servers[0]), of(&servers[1])];
        let are_equal = |of| {
            let [few, many] = both(of);
            few == many
        };
        until("they have as many threads", || {
            are_equal(|it| threads(it).len())
        });
        until("they have as many descriptors", || are_equal(descriptors));
        assert_eq!(get(&servers[1], &host).text(), "a site");
        let [few, many_more] = both(descriptors);
        assert!(many_more <= few + SITE, "{few}, {many_more}");
        fs::remove_dir_all(many.join("sites").join(&host)).expect("there");
        until("it is closed", || are_equal(descriptors));
    });
}

/// Descriptors of an open folder with two workers: each has it, as have its follower and the connection.
const SITE: usize = 8;

/// A folder of hosts has hosts, also where its `_default` alone is served.
#[test]
fn hosts_may_be_ignored_however_many_there_are() {
    let folder = sites(HOSTS);
    folder.write("sites/_default/index.html", "any host");
    let server = Gannet::serve(folder.join("sites"), &["--hosts", "--unknown-host=ignore"]);
    assert_eq!(get(&server, &name(1)).text(), "any host");
}

#[test]
fn what_only_has_the_name_of_an_archive_is_told() {
    let folder = Folder::new();
    folder.write("sites/a.example/index.html", "site a");
    folder.write("sites/b.example.gannet/index.html", "site b");
    let path = folder.join("sites/x.example.gannet");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
    let mut server = Gannet::serve(folder.join("sites"), &["--hosts"]);
    for (path, cause) in [
        ("folder 'sites/b.example.gannet'", "it is a directory"),
        ("archive 'sites/x.example.gannet'", "it is a FIFO"),
    ] {
        let line = told(&mut server, "no site for the ");
        let path = path.replace("sites", &folder.join("sites").to_string_lossy());
        assert!(line.contains(&format!("{path}: {cause}")), "{line}");
    }
    assert_eq!(get(&server, "a.example").text(), "site a");
}

/// A link that leads nowhere is told of, and prevents no start. Where it leads later is served.
#[test]
fn a_link_may_lead_nowhere() {
    let folder = sites(2);
    let link = |name: &str, target: &str| {
        symlink(target, folder.join("sites").join(name)).expect("linked")
    };
    link("later.example", "_later");
    link("x.example.gannet", "_none.gannet");
    folder.write("sites/notes", "no site");
    link("notes.txt", "notes");
    link("readme.md", "../../no-such-file");
    let mut server = Gannet::serve(folder.join("sites"), &["--hosts"]);
    for host in ["later.example", "notes.txt", "readme.md", "x.example"] {
        told(
            &mut server,
            &format!("gannet: no site for '{host}': cannot open "),
        );
        assert_eq!(get(&server, host).status, 503);
    }
    assert_eq!(get(&server, &name(1)).text(), "site 1");
    folder.write("sites/_later/index.html", "later");
    until("it is there", || {
        get(&server, "later.example").body == b"later"
    });
}
