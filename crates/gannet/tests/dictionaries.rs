//! Dictionaries (RFC 9842): who gets content that is coded with one, over every version of HTTP.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use aws_lc_rs::digest::{SHA256, digest};
use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::h3;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, gannet_in};

const OLD: &str = "/assets/app-BxY3k9Zq.js";
const NEW: &str = "/assets/app-CsGmk6Qp.js";
const OTHER: &str = "/assets/main-DkXz1a2B.js";

/// A script of some kilobytes, of which versions share nearly all.
fn script(version: &str) -> String {
    let mut state = 7_u32;
    let mut text = format!("// {version}\n");
    for _ in 0..600 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(&format!("f{:x}({});\n", state >> 12, state >> 22));
    }
    text
}

/// Packs a script under one name and another under a second, after an earlier release.
fn release(out: &Folder, name: &str, version: &str, flags: &[&str]) -> PathBuf {
    let site = Folder::new();
    site.write(&name[1..], script(version));
    site.write(&OTHER[1..], script("another").repeat(2));
    site.write("index.html", format!("<script src={name}></script>{OTHER}"));
    site.write("_headers", "/cors/*\n  X-A: b\n");
    let path = out.join(format!("{version}.gannet"));
    let text = path.to_str().expect("UTF-8");
    let arguments = [
        &["pack", ".", "--fast", "--quiet", "--fresh", "-o", text],
        flags,
    ]
    .concat();
    gannet_in(&site, arguments).success();
    path
}

fn releases(out: &Folder, flags: &[&str]) -> PathBuf {
    let old = release(out, OLD, "old", flags);
    let old = old.to_str().expect("UTF-8");
    let flags = [&["--previous", old, "--carry", "7d"], flags].concat();
    release(out, NEW, "new", &flags)
}

/// What a browser sends that has the old script.
fn available() -> String {
    format!(
        ":{}:",
        base64(digest(&SHA256, script("old").as_bytes()).as_ref())
    )
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() {
                '='
            } else {
                char::from(digit)
            });
        }
    }
    text
}

/// The new script from the coded one.
fn decoded(body: &[u8]) -> String {
    let old = script("old");
    let head = [
        b"\xff\x44\x43\x42",
        digest(&SHA256, old.as_bytes()).as_ref(),
    ]
    .concat();
    let stream = body.strip_prefix(&head[..]).expect("the head of dcb");
    let dictionary = old.into_bytes().into();
    let mut decoder = brotli::Decompressor::new_with_custom_dict(stream, 4096, dictionary);
    let mut text = String::new();
    decoder.read_to_string(&mut text).expect("sound");
    text
}

const CODINGS: &str = "gzip, deflate, br, dcb, dcz";
const VARY: &str = "accept-encoding, available-dictionary";

fn ask(client: &mut Client, method: &str, host: &str, lines: &[String]) -> Response {
    let lines = lines.iter().map(|line| format!("{line}\r\n"));
    let lines: String = lines.collect();
    client.send(format!(
        "{method} {NEW} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"
    ));
    client.response_to(method)
}

fn lines(codings: &str, more: &[&str]) -> Vec<String> {
    let mut lines = vec![
        format!("Accept-Encoding: {codings}"),
        format!("Available-Dictionary: {}", available()),
    ];
    lines.extend(more.iter().map(|line| (*line).to_owned()));
    lines
}

#[test]
fn who_has_the_dictionary_gets_what_is_coded_with_it() {
    let out = Folder::new();
    let archive = releases(&out, &[]);
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &[]);
        let mut client = Client::new(&server);
        let mut check = |host: &str, lines: Vec<String>, expect: &str| {
            let answer = ask(&mut client, "GET", host, &lines);
            assert_eq!(answer.status, 200);
            let coding = answer.field("content-encoding");
            assert_eq!(coding, Some(expect), "{host} {lines:?}");
            assert_eq!(answer.field("vary"), Some(VARY));
            let pattern = "match=\"/assets/app-*.js\"";
            assert_eq!(answer.field("use-as-dictionary"), Some(pattern));
            if expect == "dcb" {
                assert_eq!(decoded(&answer.body), script("new"));
                assert!(answer.body.len() < 500, "{} bytes", answer.body.len());
            }
        };
        check("localhost", lines(CODINGS, &[]), "dcb");
        check("127.0.0.1:80", lines("DCB;q=0.1", &[]), "dcb");
        // Without TLS, only on this machine.
        check("example.org", lines(CODINGS, &[]), "br");
        // The coding must be named, the dictionary be the right one, and sent once.
        check("localhost", lines("br, *, zstd;q=0", &[]), "br");
        check("localhost", lines("br, dcb;q=0", &[]), "br");
        check("localhost", lines("br, dcz", &[]), "br");
        check("localhost", vec!["Accept-Encoding: br, dcb".into()], "br");
        let named = |dictionary: String| {
            let dictionary = format!("Available-Dictionary: {dictionary}");
            vec!["Accept-Encoding: br, dcb".into(), dictionary]
        };
        check("localhost", named(format!(":{}:", base64(&[1; 32]))), "br");
        check("localhost", named(available().replace(':', "")), "br");
        check("localhost", named(":AAAA:".into()), "br");
        let twice = format!("Available-Dictionary: {}", available());
        check("localhost", lines(CODINGS, &[&twice]), "br");
        // Another origin learns no length, unless it may read the answer.
        let (same, cross) = ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site");
        check(
            "localhost",
            lines(CODINGS, &[same, "Sec-Fetch-Mode: no-cors"]),
            "dcb",
        );
        check(
            "localhost",
            lines(CODINGS, &[cross, "Sec-Fetch-Mode: no-cors"]),
            "br",
        );
        let origin = "Origin: https://other.example";
        check(
            "localhost",
            lines(CODINGS, &[cross, "Sec-Fetch-Mode: cors", origin]),
            "br",
        );
        // Others have the same entry, and no dictionary.
        client.send(format!("GET {OTHER} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.response().field("vary"), Some("accept-encoding"));
        // The dictionary is carried on, and says what it is.
        client.send(format!("GET {OLD} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let old = client.response();
        assert_eq!(old.text(), script("old"));
        assert!(old.field("use-as-dictionary").is_some());
    });
}

#[test]
fn every_answer_for_the_path_says_what_it_depends_on() {
    let out = Folder::new();
    let archive = releases(&out, &[]);
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &[]);
        let mut client = Client::new(&server);
        let mut check = |method: &str, more: &[&str], status| {
            let answer = ask(&mut client, method, "localhost", &lines(CODINGS, more));
            let found = (answer.status, answer.field("vary"));
            assert_eq!(found, (status, Some(VARY)), "{method} {more:?}");
            answer
        };
        let whole = check("GET", &[], 200);
        let head = check("HEAD", &[], 200);
        assert_eq!(head.content_length(), Some(whole.body.len() as u64));
        assert_eq!(head.field("content-encoding"), Some("dcb"));
        // Its own strong validator, for conditions and ranges.
        let tag = whole.field("etag").expect("a tag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with("-db\""), "{tag}");
        check("GET", &[&format!("If-None-Match: {tag}")], 304);
        check("HEAD", &[&format!("If-None-Match: {tag}")], 304);
        let part = check(
            "GET",
            &["Range: bytes=10-19", &format!("If-Range: {tag}")],
            206,
        );
        assert_eq!(part.body, whole.body[10..20]);
        assert_eq!(part.field("content-encoding"), Some("dcb"));
        let plain = ask(&mut client, "GET", "localhost", &[]);
        assert_eq!(plain.text(), script("new"));
        assert_ne!(plain.field("etag"), Some(tag.as_str()));
        assert_eq!(plain.field("vary"), Some(VARY));
        let tag = plain.field("etag").expect("a tag");
        let line = format!("If-None-Match: {tag}");
        let same = ask(&mut client, "GET", "localhost", &[line]);
        assert_eq!((same.status, same.field("vary")), (304, Some(VARY)));
        // What is carried on has no dictionary, and says nothing of one.
        let mut old = |line: &str| {
            client.send(format!(
                "GET {OLD} HTTP/1.1\r\nHost: localhost\r\n{line}\r\n"
            ));
            let answer = client.response();
            assert_eq!(answer.field("vary"), Some("accept-encoding"), "{line}");
            answer
        };
        let tag = old("").field("etag").expect("a tag").to_owned();
        assert_eq!(old(&format!("If-None-Match: {tag}\r\n")).status, 304);
    });
}

#[test]
fn fields_of_the_operator_say_who_may_read_it() {
    let out = Folder::new();
    let archive = releases(&out, &[]);
    on_both_engines(|engine| {
        let check = |flags: &[&str], origin: &str, expect: &str| {
            let server = engine.serve(&archive, flags);
            let mut client = Client::new(&server);
            let origin = format!("Origin: {origin}");
            let more = [
                "Sec-Fetch-Site: cross-site",
                "Sec-Fetch-Mode: cors",
                &origin,
            ];
            let answer = ask(&mut client, "GET", "localhost", &lines(CODINGS, &more));
            assert_eq!(
                answer.field("content-encoding"),
                Some(expect),
                "{flags:?} {origin}"
            );
        };
        let header = |value| ["--header", value];
        check(&[], "https://a.example", "br");
        check(
            &header("Access-Control-Allow-Origin: *"),
            "https://a.example",
            "dcb",
        );
        let one = header("Access-Control-Allow-Origin: https://a.example");
        check(&one, "https://a.example", "dcb");
        check(&one, "https://b.example", "br");
        // What caches must know joins what the operator says.
        let server = engine.serve(&archive, &header("Vary: Origin"));
        let mut client = Client::new(&server);
        client.send(format!(
            "GET {NEW} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ));
        let answer = client.rest().0;
        let answer = String::from_utf8_lossy(&answer);
        let varies = [
            format!("\r\nVary: {VARY}\r\n"),
            "\r\nVary: Origin\r\n".into(),
        ];
        assert!(varies.iter().all(|line| answer.contains(line)), "{answer}");
    });
}

/// All versions of HTTP, from an archive in memory, and from one that is read.
#[test]
fn over_tls_every_version_of_http_sends_it() {
    let out = Folder::new();
    let archive = releases(&out, &[]);
    let dictionary = available();
    let fields = [
        ("accept-encoding", CODINGS),
        ("available-dictionary", dictionary.as_str()),
    ];
    on_both_engines(|engine| {
        for flags in [&[][..], &["--cache-memory", "0"]] {
            let secure = Secure::serve(engine, &archive, flags);
            let check = |version: &str, coding: Option<&str>, vary: Option<&str>, body: &[u8]| {
                assert_eq!(
                    (coding, vary),
                    (Some("dcb"), Some(VARY)),
                    "{version} {flags:?}"
                );
                assert_eq!(decoded(body), script("new"), "{version}");
            };
            let mut client = secure.connect();
            let h1 = ask(&mut client, "GET", "localhost", &lines(CODINGS, &[]));
            check(
                "1",
                h1.field("content-encoding"),
                h1.field("vary"),
                &h1.body,
            );
            let h2 = Peer::secure(&secure, &[]).request("GET", NEW, &fields);
            check(
                "2",
                h2.field("content-encoding"),
                h2.field("vary"),
                &h2.body,
            );
            let mut quic = Quic::begin(secure.server.address(), &secure.authority);
            let id = quic.ask(&h3::request("GET", NEW, &fields));
            let h3 = quic.answer(id);
            check(
                "3",
                h3.field("content-encoding"),
                h3.field("vary"),
                &h3.body,
            );
        }
    });
}

/// The rules hold in the versions that compress fields, too.
#[test]
fn over_http_2_and_3_the_same_requests_get_it() {
    let out = Folder::new();
    let archive = releases(&out, &[]);
    let right = available();
    let wrong = format!(":{}:", base64(&[1; 32]));
    let long = format!(":{}:", "A".repeat(10_000));
    let (cross, cors) = (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors"));
    let dictionary = ("available-dictionary", right.as_str());
    let dcb = ("accept-encoding", "br, dcb");
    let cases: [(&[(&str, &str)], &str); 12] = [
        (&[dcb, dictionary], "dcb"),
        (&[dcb, dictionary, ("sec-fetch-site", "same-origin")], "dcb"),
        (&[dcb, ("available-dictionary", &wrong)], "br"),
        (&[dcb, ("available-dictionary", &long)], "br"),
        (&[dcb, ("available-dictionary", &right[..20])], "br"),
        (&[dcb, dictionary, dictionary], "br"),
        (&[dcb], "br"),
        (&[("accept-encoding", "br, dcb;q=0"), dictionary], "br"),
        (&[("accept-encoding", "br, *, zstd;q=0"), dictionary], "br"),
        (&[("accept-encoding", "br, dcz"), dictionary], "br"),
        (
            &[dcb, dictionary, cross, ("sec-fetch-mode", "no-cors")],
            "br",
        ),
        (
            &[
                dcb,
                dictionary,
                cross,
                cors,
                ("origin", "https://b.example"),
            ],
            "br",
        ),
    ];
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, &archive, &[]);
        let mut h2 = Peer::secure(&secure, &[]);
        let mut quic = Quic::begin(secure.server.address(), &secure.authority);
        let mut ask = |method: &str, path: &str, fields: &[(&str, &str)]| {
            let answer = h2.request(method, path, fields);
            let id = quic.ask(&h3::request(method, path, fields));
            let by_h3 = quic.answer(id);
            let of = |status: u16, fields: &[(String, String)], body: &[u8]| {
                let is_kept = |field: &&(String, String)| field.0 != "date" && field.0 != "alt-svc";
                let fields: Vec<_> = fields.iter().filter(is_kept).cloned().collect();
                (status, fields, body.to_vec())
            };
            let found = of(answer.status, &answer.fields, &answer.body);
            assert_eq!(found, of(by_h3.status, &by_h3.fields, &by_h3.body));
            answer
        };
        for (fields, expect) in cases {
            let answer = ask("GET", NEW, fields);
            let found = (answer.status, answer.field("content-encoding"));
            assert_eq!(found, (200, Some(expect)), "{fields:?}");
            assert_eq!(answer.field("vary"), Some(VARY), "{fields:?}");
        }
        let whole = ask("GET", NEW, &[dcb, dictionary]);
        let tag = whole.field("etag").expect("a tag").to_owned();
        let head = ask("HEAD", NEW, &[dcb, dictionary]);
        assert_eq!(head.field("content-encoding"), Some("dcb"));
        let same = ask("GET", NEW, &[dcb, dictionary, ("if-none-match", &tag)]);
        let range = ("range", "bytes=10-19");
        let part = ask("GET", NEW, &[dcb, dictionary, range, ("if-range", &tag)]);
        assert_eq!(part.body, whole.body[10..20]);
        // Of the whole file, not of what it is coded to.
        let plain = ask("GET", NEW, &[range, ("if-range", &tag)]);
        assert_eq!(plain.body, script("new").as_bytes());
        let beyond = ask("GET", NEW, &[dcb, dictionary, ("range", "bytes=9000000-")]);
        let answers = [head, same, part, plain];
        let statuses = answers.each_ref().map(|answer| answer.status);
        assert_eq!((statuses, beyond.status), ([200, 304, 206, 200], 416));
        for answer in answers {
            assert_eq!(answer.field("vary"), Some(VARY), "{}", answer.status);
        }
        // What is not there depends on no dictionary.
        for (path, status) in [("/assets/app-EkX2z1aC.js", 404), (&format!("{NEW}/"), 301)] {
            let answer = ask("GET", path, &[dcb, dictionary]);
            assert_eq!(answer.status, status);
            let vary = answer.field("vary").unwrap_or_default();
            assert!(!vary.contains("dictionary"), "{vary}");
        }
    });
}

#[test]
fn clients_that_send_nonsense_get_the_file() {
    let out = Folder::new();
    let archive = releases(&out, &[]);
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &[]);
        let check = |lines: &[String], status: u16, expect: Option<&str>| {
            let mut client = Client::new(&server);
            let answer = ask(&mut client, "GET", "localhost", lines);
            let coding = answer.field("content-encoding");
            assert_eq!((answer.status, coding), (status, expect), "{lines:?}");
            if status == 200 {
                assert_eq!(answer.field("vary"), Some(VARY));
            }
        };
        let with = |value: &str| {
            let line = format!("Available-Dictionary: {value}");
            vec!["Accept-Encoding: br, dcb".into(), line]
        };
        let right = available();
        check(&with(&right), 200, Some("dcb"));
        let text = right.trim_matches(':').trim_end_matches('=');
        // Padding may be missing (RFC 9651 section 4.2.7).
        check(&with(&format!(":{text}:")), 200, Some("dcb"));
        let wrong = [
            format!(":{}:", "A".repeat(10_000)),
            "A".repeat(10_000),
            format!(":{text}==:"),
            format!(":{text}::"),
            format!("{right}, {right}"),
            format!(": {text}=:"),
            format!(":{}:", text.replace(char::is_uppercase, "-")),
            format!("\"{text}=\""),
            format!("?{right}"),
            String::new(),
            ":".into(),
            "::".into(),
        ];
        for value in wrong {
            check(&with(&value), 200, Some("br"));
        }
        // Over several lines, the head is malformed (RFC 9112 section 5.2).
        check(&with(&format!("\r\n {right}")), 400, None);
    });
}

/// What another release answers is its own: its fields, and its dictionaries.
#[test]
fn a_kept_release_answers_with_its_own_dictionaries() {
    const NEWEST: &str = "/assets/app-DkXz1a2C.js";
    let out = Folder::new();
    let second = releases(&out, &[]);
    let text = second.to_str().expect("UTF-8");
    let third = release(&out, NEWEST, "newest", &["--previous", text]);
    on_both_engines(|engine| {
        let served = out.join(format!("{}.gannet", engine.name()));
        fs::copy(&second, &served).expect("copied");
        let server = engine.serve(&served, &[]);
        let mut client = Client::new(&server);
        let mut get = |path: &str, version: &str| {
            let hash = base64(digest(&SHA256, script(version).as_bytes()).as_ref());
            let dictionary = format!("Available-Dictionary: :{hash}:");
            let lines = ["Accept-Encoding: br, dcb", &dictionary];
            client.send(format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n",
                lines.join("\r\n")
            ));
            let answer = client.response();
            let coding = answer.field("content-encoding").unwrap_or_default();
            let vary = answer.field("vary").unwrap_or_default();
            (answer.status, coding.to_owned(), vary.to_owned())
        };
        let (dcb, br) = (
            (200, "dcb".into(), VARY.into()),
            (200, "br".into(), VARY.into()),
        );
        assert_eq!(get(NEW, "old"), dcb);
        let new = served.with_extension("new");
        fs::copy(&third, &new).expect("copied");
        fs::rename(&new, &served).expect("renamed");
        until("the new release is served", || get(NEWEST, "none").0 == 200);
        assert_eq!(get(NEWEST, "new"), dcb);
        // The third release does not carry on; the second, which is kept, does.
        assert_eq!(get(NEW, "old"), dcb);
        assert_eq!(get(NEW, "new"), br);
        assert_eq!(get(NEW, "newest"), br);
        let carried = (200, "br".into(), "accept-encoding".into());
        assert_eq!(get(OLD, "old"), carried);
        // The third was made of the second, and of what that carries on.
        assert_eq!(get(NEWEST, "old"), dcb);
        assert_eq!(get(NEWEST, "newest"), br);
    });
}

/// What `explain` says is what the server does, for the same requests.
#[test]
fn explain_foresees_who_gets_what_is_coded() {
    let out = Folder::new();
    let archive = releases(&out, &[]);
    let site = archive.to_str().expect("UTF-8");
    let available = format!("available-dictionary: {}", available());
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &[]);
        let address = server.address().to_string();
        let check = |url: &str, more: &[&str], expect: &str| {
            let fixed = ["-H", "accept-encoding: br, dcb", "-H", &available];
            let more = more.iter().flat_map(|field| ["-H", field]);
            let fields: Vec<&str> = fixed.into_iter().chain(more).collect();
            let asked = ["explain", url, site];
            let alone = gannet_in(&out, [&asked, &fields[..]].concat()).success();
            let coding = format!("\ncontent-encoding: {expect}\n");
            assert!(alone.text().contains(&coding), "{url} {fields:?} {alone:?}");
            if !url.starts_with("https:") {
                let compared = ["--server", &address];
                let arguments = [&asked, &fields[..], &compared].concat();
                let same = gannet_in(&out, arguments).success();
                assert!(
                    same.text().contains("the server answers the same"),
                    "{same:?}"
                );
            }
        };
        let at = |host: &str| format!("{host}{NEW}");
        check(NEW, &[], "dcb");
        check(&at("http://localhost"), &[], "dcb");
        check(&at("https://example.org"), &[], "dcb");
        check(&at("http://example.org"), &[], "br");
        check(NEW, &["host: example.org"], "br");
        let cross = ["sec-fetch-site: cross-site", "sec-fetch-mode: no-cors"];
        check(NEW, &cross, "br");
        check(&at("https://example.org"), &cross, "br");
    });
}

/// As operators do it, with stores: nothing needs to be said.
#[test]
fn publish_codes_with_the_release_in_force_and_carries_on_what_is_wanted() {
    let folder = Folder::new();
    let write = |name: &str, version: &str| {
        let _ = fs::remove_dir_all(folder.join("site"));
        folder.write(format!("site{name}"), script(version));
        folder.write("site/index.html", format!("<script src={name}></script>"));
    };
    let run = |arguments: &[&str]| gannet_in(&folder, arguments).success().text().to_owned();
    let publish = |more: &[&str]| {
        let fixed = [
            "publish",
            "site",
            "store",
            "--fast",
            "-q",
            "--allow-removal",
            "9",
        ];
        run(&[&fixed, more].concat());
        run(&["ls", "--json", "store"])
    };
    let coded = |path: &str| format!("\"coding\": \"dcb\", \"dictionary\": \"{path}\"");
    let carried = format!("\"url\": \"{OLD}\", \"kind\": \"carried\"");
    write(OLD, "old");
    // Of nothing, nothing is carried on.
    let first = publish(&["--carry", "7d"]);
    assert!(
        !first.contains("dictionary") && !first.contains("carried"),
        "{first}"
    );
    write(NEW, "new");
    let second = publish(&[]);
    assert!(
        second.contains(&coded(OLD)) && !second.contains(OLD_KIND),
        "{second}"
    );
    // The same site again is the same release.
    let again = gannet_in(&folder, ["publish", "site", "store", "--fast"]).success();
    assert!(again.text().contains("nothing to publish"), "{again:?}");
    run(&["rollback", "store"]);
    let third = publish(&["--carry", "7d"]);
    assert!(
        third.contains(&coded(OLD)) && third.contains(&carried),
        "{third}"
    );
    run(&["verify", "store"]);
    // As of other commands, a store is the release in force.
    let packed = [
        "pack",
        "site",
        "--fast",
        "-q",
        "--fresh",
        "-o",
        "new.gannet",
    ];
    run(&[&packed[..], &["--previous", "store", "--carry", "7d"]].concat());
    let listed = run(&["ls", "--json", "new.gannet"]);
    assert!(listed.contains(&carried), "{listed}");
    // What must not be answered any more is not carried on, either.
    run(&["rollback", "store"]);
    let listed = run(&["releases", "store", "--json"]);
    let in_force = listed.split("\"release\": \"").nth(1).expect("one");
    let in_force = &in_force[..8];
    let fourth = publish(&["--carry", "7d", "--void", in_force]);
    assert!(!fourth.contains(&carried), "{fourth}");
}

const OLD_KIND: &str = "\"kind\": \"carried\"";

#[test]
fn commands_show_what_is_coded_with_what() {
    let out = Folder::new();
    let archive = releases(&out, &["--digest", "sha-256"]);
    let archive = archive.to_str().expect("UTF-8");
    let run = |arguments: &[&str]| gannet_in(&out, arguments).success().text().to_owned();
    let before = out.join("old.gannet");
    let before = before.to_str().expect("UTF-8");
    assert!(!run(&["verify", archive]).contains("not decoded"));
    let alone = release(&out, NEW, "alone", &["--previous", before]);
    let verified = run(&["verify", alone.to_str().expect("UTF-8")]);
    let undecoded = "\nnot decoded: 1 coding with dictionaries that the archive does not have\n";
    assert!(verified.ends_with(undecoded), "{verified}");
    let json = run(&["ls", "--json", archive]);
    let path = format!("\"coding\": \"dcb\", \"dictionary\": \"{OLD}\"");
    assert!(json.contains(&path), "{json}");
    assert!(
        json.contains(&format!("\"url\": \"{OLD}\", \"kind\": \"carried\"")),
        "{json}"
    );
    let long = run(&["ls", "--long", archive]);
    assert!(
        long.contains("  carried\n") && long.contains("dcb "),
        "{long}"
    );
    let changes = gannet_in(&out, ["diff", before, archive]);
    assert!(changes.text().contains("\ndcb "), "{changes:?}");
    let counts = run(&["inspect", archive]);
    assert!(counts.contains("\ndictionaries     1\n"), "{counts}");
    assert!(counts.contains("\ncarried          1\n"), "{counts}");
    let plain = run(&["explain", NEW, archive]);
    let needs = format!("not for this request, needs the dictionary '{OLD}'");
    assert!(plain.contains(&needs), "{plain}");
    let header = format!("available-dictionary: {}", available());
    let fields = ["-H", "accept-encoding: br, dcb", "-H", &header];
    let coded = run(&[&["explain", NEW, archive], &fields[..]].concat());
    assert!(
        coded.contains("sent: the smallest accepted, needs the dictionary"),
        "{coded}"
    );
    assert!(coded.contains("content-encoding: dcb\n"), "{coded}");
    let refused = gannet_in(&out, ["pack", ".", "--carry", "1d"]);
    refused.failure(2, "gannet: --carry has no effect without an earlier release\nhelp: name its archive with --previous\n");
}
