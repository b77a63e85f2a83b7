//! Statements of the documents of IPFS, Netlify and Cloudflare Pages and of kawipiko's manual about
//! `_redirects` and `_headers`, each tested over HTTP: from a directory and from an archive, in
//! each dialect. Where gannet differs on purpose, the row says so, and `migrating.md` or `redirects.md`
//! of the manual lists it.

#[path = "rules_conformance/fields.rs"]
mod fields;
use gannet_testkit::client::Client;
use gannet_testkit::{Folder, Gannet, gannet_in};

const COMPATS: [&str; 3] = ["netlify", "cloudflare", "kawipiko"];

/// Packing and serving reject the file.
const REFUSED: &str = "refused";

/// A statement about `_redirects`.
struct Row {
    /// The document and section.
    of: &'static str,
    /// The statement, in our words.
    says: &'static str,
    rules: &'static str,
    target: &'static str,
    /// The answers in the dialects of netlify, cloudflare and kawipiko.
    expect: [&'static str; 3],
}

/// Serves a site as a directory and as an archive in one dialect; the error if it is rejected.
fn both(site: &Folder, out: &Folder, compat: &str) -> Result<[Gannet; 2], String> {
    let archive = out.join("site.gannet");
    let text = archive.to_str().expect("UTF-8");
    let packed = gannet_in(
        site,
        ["pack", ".", "--fast", "-q", "--compat", compat, "-o", text],
    );
    if packed.status != Some(0) {
        let live = gannet_in(site, ["serve", ".", "--port", "0", "--compat", compat]);
        assert_eq!(live.status, Some(1), "serving takes what packing refuses");
        return Err(packed.err);
    }
    let live = Gannet::serve(site.path(), &["--no-listing", "--compat", compat]);
    Ok([live, Gannet::serve(&archive, &[])])
}

fn site(redirects: &str) -> Folder {
    let site = Folder::new();
    write_site(&site, "", redirects);
    site
}

fn write_site(folder: &Folder, prefix: &str, redirects: &str) {
    for (name, content) in [
        ("index.html", "front"),
        ("kept.html", "kept"),
        ("gone.html", "gone"),
        ("_redirects", redirects),
    ] {
        folder.write(format!("{prefix}{name}"), content);
    }
}

/// What `ask` gets in one dialect for each of several sites, from a directory and from an archive, or why it is
/// refused. Sites that are expected to be accepted are hosts of one server: `write` writes one at a prefix.
fn observe<T>(
    compat: &str,
    is_refused: &[bool],
    write: impl Fn(&Folder, &str, usize, &str),
    ask: impl Fn(&Gannet, usize, &str) -> T,
) -> Vec<Result<[T; 2], String>> {
    let (sites, out) = (Folder::new(), Folder::new());
    let host = |number| format!("h{number}.example");
    for number in (0..is_refused.len()).filter(|number| !is_refused[*number]) {
        let host = host(number);
        write(&sites, &format!("{host}/"), number, &host);
    }
    let archive = out.join("sites.gannet");
    let text = archive.to_str().expect("UTF-8");
    let flags = ["--fast", "-q", "--compat", compat, "-o", text];
    gannet_in(&sites, [&["pack", "--hosts", "."][..], &flags].concat()).success();
    let flags = ["--hosts", "--no-listing", "--compat", compat];
    let servers = [
        Gannet::serve(sites.path(), &flags),
        Gannet::serve(&archive, &[]),
    ];
    let observe = |(number, is_refused): (usize, bool)| {
        if !is_refused {
            return Ok([0, 1].map(|at: usize| ask(&servers[at], number, &host(number))));
        }
        let alone = Folder::new();
        write(&alone, "", number, "h.example");
        let servers = both(&alone, &out, compat)?;
        Ok(servers.map(|it| ask(&it, number, "h.example")))
    };
    let is_refused = is_refused.iter().copied();
    is_refused.enumerate().map(observe).collect()
}

/// A short form of the answer: status, then location or content.
fn answer(server: &Gannet, host: &str, target: &str) -> String {
    let mut client = Client::new(server);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = client.response();
    match (response.field("location"), response.status) {
        (Some(location), status) => format!("{status} {location}"),
        // One of the server's own pages.
        (None, 404) if response.text().starts_with("<!doctype") => "404".to_owned(),
        (None, status) => format!("{status} {}", response.text()),
    }
}

/// Tests the statement of each row, and collects differences.
fn check(rows: &[Row]) {
    let mut wrong = Vec::new();
    for (at, compat) in COMPATS.into_iter().enumerate() {
        let is_refused: Vec<_> = rows.iter().map(|row| row.expect[at] == REFUSED).collect();
        let write = |folder: &Folder, prefix: &str, number: usize, host: &str| {
            write_site(
                folder,
                prefix,
                &rows[number].rules.replace("h.example", host),
            );
        };
        let ask =
            |server: &Gannet, number: usize, host: &str| answer(server, host, rows[number].target);
        for (row, got) in rows.iter().zip(observe(compat, &is_refused, write, ask)) {
            let Row {
                of,
                says,
                rules,
                target,
                ..
            } = row;
            let expect = row.expect[at];
            let got = got.unwrap_or_else(|cause| {
                assert!(cause.contains("_redirects:"), "{rules}: {cause}");
                [REFUSED; 2].map(str::to_owned)
            });
            if got.iter().any(|got| got != expect) {
                wrong.push(format!(
                    "{of}: {says}\n  {compat}: {rules:?}: {target}: {got:?}, not {expect:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! rows {
    ($([$of:literal, $says:literal, $rules:expr, $target:expr, $expect:expr],)*) => {
        &[$(Row { of: $of, says: $says, rules: $rules, target: $target, expect: $expect }),*]
    };
}

#[test]
fn which_rule_is_followed() {
    check(rows![
        [
            "IPFS, Order",
            "the first rule that matches is followed",
            "/a /x 302\n/a /y 303",
            "/a",
            ["302 /x"; 3]
        ],
        [
            "Cloudflare",
            "of rules with the same source the topmost is followed",
            "/a /x 301\n/a /y 302",
            "/a",
            ["301 /x"; 3]
        ],
        [
            "IPFS, No Forced Redirects; Netlify, Shadowing",
            "a file at the path wins",
            "/kept /x 302",
            "/kept",
            ["200 kept", "302 /x", "200 kept"]
        ],
        [
            "Cloudflare, its checks",
            "a fallback to an index page is left out; gannet lets files win over it on purpose",
            "/* /index.html 200",
            "/kept",
            ["200 kept", "200 kept", REFUSED]
        ],
        [
            "Cloudflare, its checks",
            "a miss is answered by the start page, though that rule is left out",
            "/* /index.html 200",
            "/b/d",
            ["200 front", "200 front", REFUSED]
        ],
        [
            "Cloudflare, its checks",
            "a redirect of everything to an index page is left out",
            "/* /index.html 302",
            "/b/d",
            ["302 /index.html", REFUSED, "302 /index.html"]
        ],
        [
            "Cloudflare",
            "a redirect is followed whether or not there is a file",
            "/kept /x 302",
            "/kept",
            ["200 kept", "302 /x", "200 kept"]
        ],
        [
            "Netlify, Shadowing",
            "with '!' behind the status the rule wins",
            "/kept /x 302!",
            "/kept",
            ["302 /x", REFUSED, REFUSED]
        ],
        [
            "Netlify, Shadowing",
            "'!' forces other content, too",
            "/kept /gone 200!",
            "/kept",
            ["200 gone", REFUSED, REFUSED]
        ],
        [
            "IPFS, appendix",
            "a splat over a file's path does not take the file",
            "/* /x 302",
            "/kept",
            ["200 kept", "302 /x", "200 kept"]
        ],
        [
            "Netlify",
            "paths are compared with case",
            "/A /x 302",
            "/a",
            ["404"; 3]
        ],
        [
            "Netlify",
            "special characters are percent-encoded in the file",
            "/caf%C3%A9 /x 302",
            "/caf%c3%a9",
            ["302 /x"; 3]
        ],
        [
            "Netlify, Trailing slash",
            "with and without a slash at the end are one source",
            "/a /x 302",
            "/a/",
            ["302 /x", "404", "404"]
        ],
        [
            "Netlify, Trailing slash",
            "a rule that only adds a slash would loop: it is none",
            "/a /a/ 302",
            "/a",
            ["404", "302 /a/", "302 /a/"]
        ],
        [
            "Cloudflare",
            "a rule may add a slash",
            "/trailing /trailing/ 301",
            "/trailing",
            ["404", "301 /trailing/", "301 /trailing/"]
        ],
        [
            "Cloudflare",
            "a rule may take a slash away",
            "/bare/ /other 301",
            "/bare/",
            ["301 /other"; 3]
        ],
        [
            "all",
            "the file itself is not served",
            "/a /x 302",
            "/_redirects",
            ["404"; 3]
        ],
    ]);
}

#[test]
fn how_a_line_is_written() {
    check(rows![
        [
            "IPFS, Comments; Netlify; Cloudflare",
            "a line that begins with # is a comment",
            "# /a /y 302\n/a /x 302",
            "/a",
            ["302 /x"; 3]
        ],
        [
            "Netlify",
            "what follows a # in a line is a comment; kawipiko: a line has three columns",
            "/a /x 302 # why",
            "/a",
            ["302 /x", "302 /x", REFUSED]
        ],
        [
            "IPFS, Line Termination",
            "lines end with CR LF, too",
            "/b /y 302\r\n/a /x 302\r\n",
            "/a",
            ["302 /x"; 3]
        ],
        [
            "all",
            "columns are separated by spaces and tabs, and empty lines mean nothing",
            "\n\n  /a \t /x\t302  \n",
            "/a",
            ["302 /x"; 3]
        ],
        [
            "Cloudflare",
            "a malformed line is ignored; gannet refuses it on purpose",
            "/a\n/b /x 302",
            "/b",
            [REFUSED; 3]
        ],
        [
            "IPFS, Error Handling",
            "a file that cannot be parsed is an error",
            "/a /x 999",
            "/b",
            [REFUSED; 3]
        ],
        [
            "Cloudflare; kawipiko",
            "a source is a path; a bare word is none",
            "a /x 302",
            "/a",
            [REFUSED; 3]
        ],
    ]);
}

#[test]
fn statuses() {
    check(rows![
        [
            "IPFS, Status; Netlify",
            "301 if none is named; Cloudflare: 302; kawipiko: it is required",
            "/a /x",
            "/a",
            ["301 /x", "302 /x", REFUSED]
        ],
        ["IPFS, Status", "301", "/a /x 301", "/a", ["301 /x"; 3]],
        ["IPFS, Status", "303", "/a /x 303", "/a", ["303 /x"; 3]],
        ["IPFS, Status", "307", "/a /x 307", "/a", ["307 /x"; 3]],
        ["IPFS, Status", "308", "/a /x 308", "/a", ["308 /x"; 3]],
        [
            "IPFS, Status; Netlify; Cloudflare",
            "200 answers with other content of the site",
            "/a /kept 200",
            "/a",
            ["200 kept", "200 kept", REFUSED]
        ],
        [
            "IPFS, Status; Netlify",
            "404 answers with the content of a page",
            "/a /gone 404",
            "/a",
            ["404 gone", REFUSED, REFUSED]
        ],
        [
            "Cloudflare",
            "other statuses with content are not supported",
            "/a /gone.html 404",
            "/a",
            ["404 gone", REFUSED, REFUSED]
        ],
        [
            "IPFS, Status",
            "410",
            "/a /gone 410",
            "/a",
            ["410 gone", REFUSED, REFUSED]
        ],
        [
            "IPFS, Status",
            "451",
            "/a /gone 451",
            "/a",
            ["451 gone", REFUSED, REFUSED]
        ],
        [
            "all",
            "other statuses have no meaning",
            "/a /x 305",
            "/a",
            [REFUSED; 3]
        ],
        [
            "Netlify, Proxying",
            "200 with another server; gannet refuses it on purpose",
            "/a https://other.example/ 200",
            "/a",
            [REFUSED; 3]
        ],
    ]);
}

#[test]
fn splats_and_placeholders() {
    check(rows![
        [
            "IPFS, Splat",
            "what a * at the end matches goes into :splat",
            "/b/* /c/:splat 302",
            "/b/d/e",
            ["302 /c/d/e", "302 /c/d/e", "302 /c/:splat"]
        ],
        [
            "Netlify, Splats",
            "the * matches nothing, too; Cloudflare does not say, kawipiko wants a slash",
            "/b/* /c/ 302",
            "/b",
            ["302 /c/", "404", "404"]
        ],
        [
            "Cloudflare",
            "the * matches nothing behind a slash",
            "/b/* /c/:splat 302",
            "/b/",
            ["302 /c/", "302 /c/", "302 /c/:splat"]
        ],
        [
            "IPFS, Splat",
            "only one * at the end counts; gannet takes one anywhere on purpose",
            "/b/*/d /c/:splat 302",
            "/b/x/d",
            ["302 /c/x", "302 /c/x", "404"]
        ],
        [
            "Cloudflare",
            "one splat in a rule at most",
            "/b/*/d/* /c 302",
            "/b/x/d/e",
            [REFUSED, REFUSED, "404"]
        ],
        [
            "IPFS, Placeholders",
            "placeholders stand for segments",
            "/p/:m/:d/:y/:s /q/:y/:m/:d/:s 302",
            "/p/06/15/2022/hi",
            ["302 /q/2022/06/15/hi", "302 /q/2022/06/15/hi", "404"]
        ],
        [
            "IPFS, Placeholders",
            "a placeholder is one segment",
            "/b/:id /c/:id 302",
            "/b/d/e",
            ["404"; 3]
        ],
        [
            "GitLab; Netlify",
            "placeholders of the target may stand within a segment",
            "/n/:y/:m /blog-:y-:m.html 302",
            "/n/1/2",
            ["302 /blog-1-2.html", "302 /blog-1-2.html", "404"]
        ],
        [
            "Cloudflare",
            "placeholders go into the query of the target",
            "/p/:code/:name /p?code=:code&name=:name 302",
            "/p/1/n",
            ["302 /p?code=1&name=n", "302 /p?code=1&name=n", "404"]
        ],
        [
            "Cloudflare",
            "a placeholder may stand anywhere in a source",
            "/b/p-:id /c/:id 302",
            "/b/p-7",
            ["404", "302 /c/7", "404"]
        ],
        [
            "all",
            "two placeholders in a segment: gannet refuses them on purpose",
            "/:a-:b /c 302",
            "/x-y",
            [REFUSED, REFUSED, "404"]
        ],
        [
            "all",
            "a placeholder that the source does not have is text",
            "/b/:id /c/:other 302",
            "/b/d",
            ["302 /c/:other", "302 /c/:other", "404"]
        ],
        [
            "Cloudflare",
            "targets have fragments",
            "/a /x#part 302",
            "/a",
            ["302 /x#part"; 3]
        ],
        [
            "IPFS; Netlify; Cloudflare",
            "targets are URLs, too",
            "/a https://other.example/ 302",
            "/a",
            ["302 https://other.example/"; 3]
        ],
        [
            "Cloudflare",
            "a rule that leads to itself would loop: it is none",
            "/* /kept 302",
            "/kept",
            ["200 kept"; 3]
        ],
        [
            "all",
            "a splat cannot lead to another host: slashes are made one",
            "/b/* /:splat 302",
            "/b//evil.example",
            ["302 /evil.example", "302 /evil.example", "302 /:splat"]
        ],
    ]);
}

#[test]
fn queries_hosts_and_conditions() {
    check(rows![
        [
            "Netlify, Query parameters",
            "parameters are matched and go into the target",
            "/s id=:id /p/:id 302",
            "/s?id=7",
            ["302 /p/7", REFUSED, REFUSED]
        ],
        [
            "Netlify, Query parameters",
            "others beside them do not undo a rule",
            "/s id=:id /p/:id 302",
            "/s?id=7&x=1",
            ["302 /p/7", REFUSED, REFUSED]
        ],
        [
            "Netlify, Query parameters",
            "a value may be named",
            "/s id=7 /p 302",
            "/s?id=8",
            ["404", REFUSED, REFUSED]
        ],
        [
            "Netlify, Query parameters",
            "the query is passed on",
            "/a /x 302",
            "/a?q=1",
            ["302 /x?q=1"; 3]
        ],
        [
            "Cloudflare",
            "a target may have a query; gannet keeps that one alone",
            "/a /x?y=2 302",
            "/a?q=1",
            ["302 /x?y=2"; 3]
        ],
        [
            "Netlify, Domain-level",
            "a source may name scheme and host",
            "http://h.example/a /x 302",
            "/a",
            ["302 /x", REFUSED, "302 /x"]
        ],
        [
            "Netlify, Domain-level",
            "only that scheme is meant; kawipiko: any",
            "https://h.example/a /x 302",
            "/a",
            ["404", REFUSED, "302 /x"]
        ],
        [
            "Netlify, Domain-level",
            "only that host is meant",
            "http://i.example/a /x 302",
            "/a",
            ["404", REFUSED, "404"]
        ],
        [
            "kawipiko",
            "without a scheme: any scheme",
            "://h.example/a /x 302",
            "/a",
            [REFUSED, REFUSED, "302 /x"]
        ],
        [
            "Netlify",
            "by country; gannet refuses it on purpose",
            "/a /x 302 Country=us",
            "/a",
            [REFUSED; 3]
        ],
        [
            "Netlify",
            "by language: not for a client that names none",
            "/a /x 302 Language=en",
            "/a",
            ["404", REFUSED, REFUSED]
        ],
        [
            "Netlify",
            "by role; gannet refuses it on purpose",
            "/a /x 200! Role=admin",
            "/a",
            [REFUSED; 3]
        ],
        [
            "Cloudflare",
            "by cookie: not supported; gannet refuses it",
            "/a /x 302 Cookie=preview",
            "/a",
            [REFUSED; 3]
        ],
    ]);
}

#[test]
fn the_numbers_of_rules_and_characters() {
    let redirects = |count: usize| (0..count).map(|n| format!("/a{n} /x 302\n")).collect();
    let dynamic = |count: usize| (0..count).map(|n| format!("/a{n}/* /x 302\n")).collect();
    // Cloudflare: 2,000 static rules, 100 dynamic ones, 1,000 characters each. IPFS: at most 64
    // KiB, which gannet does not enforce.
    // Rows have a file, and whether netlify and cloudflare accept it.
    let rows: [(String, [bool; 2]); 7] = [
        (redirects(2_000), [true, true]),
        (redirects(2_001), [true, false]),
        (dynamic(100), [true, true]),
        (dynamic(101), [true, false]),
        (format!("/{} /x 302\n", "a".repeat(980)), [true, true]),
        (format!("/{} /x 302\n", "a".repeat(1_000)), [true, false]),
        (format!("# {}\n", "a".repeat(900)).repeat(80), [true, true]),
    ];
    let out = Folder::new();
    for (file, expect) in rows {
        for (compat, is_taken) in COMPATS.iter().zip(expect) {
            let got = both(&site(&file), &out, compat).is_ok();
            assert_eq!(got, is_taken, "{compat}: {} bytes", file.len());
        }
    }
}

/// A site like the one in the appendix of the IPFS document, with the same kinds of rules.
#[test]
fn a_site_with_all_that_the_ipfs_document_has() {
    let site = Folder::new();
    for name in ["index", "one", "two", "404", "410", "451"] {
        let name = format!("{name}.html");
        site.write(&name, &name);
    }
    let rules = "# a comment\r\n/one-by-default /one.html\r\n/other /two.html 302\r\n\
        /rewritten /index.html 200\r\n/posts/:y/:m/:d/:t /articles/:y/:m/:d/:t 301\r\n\
        /splat/* /elsewhere/:splat 301\r\n/missing/* /404.html 404\r\n/gone/* /410.html 410\r\n\
        /banned/* /451.html 451\r\n/* /index.html 200\r\n";
    site.write("_redirects", rules);
    let out = Folder::new();
    for server in both(&site, &out, "netlify").expect("sound") {
        for (target, expect) in [
            ("/one-by-default", "301 /one.html"),
            ("/other", "302 /two.html"),
            ("/two.html", "200 two.html"),
            ("/rewritten", "200 index.html"),
            ("/posts/2022/06/15/x", "301 /articles/2022/06/15/x"),
            ("/splat/one.html", "301 /elsewhere/one.html"),
            ("/missing/x", "404 404.html"),
            ("/gone/x", "410 410.html"),
            ("/banned/x", "451 451.html"),
            ("/any/thing", "200 index.html"),
        ] {
            assert_eq!(answer(&server, "h.example", target), expect, "{target}");
        }
    }
}
