//! `gannet check`: each kind of mistake is found once, and correct references are not reported.

use std::collections::BTreeSet;
use std::path::Path;

use gannet_testkit::client::get;
use gannet_testkit::{Folder, Gannet, gannet, gannet_in, same};

/// `kind file:line` of all findings of a JSON report.
fn findings(json: &str) -> BTreeSet<String> {
    let value = |line: &str, key: &str| {
        let start = line.find(&format!("\"{key}\": "))? + key.len() + 4;
        let rest = line[start..].trim_start_matches('"');
        Some(rest.split(['"', ',']).next()?.to_owned())
    };
    let lines = json.lines().filter_map(|line| {
        let (kind, file) = (value(line, "kind")?, value(line, "file")?);
        Some(format!("{kind} {file}:{}", value(line, "line")?))
    });
    lines.collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn broken_site() -> Folder {
    let folder = Folder::new();
    folder.write(
        "index.html",
        "<!doctype html><title>home</title>\n\
         <a href=none.html>dead</a>\n\
         <a href=docs/#nothing>no anchor</a>\n\
         <img src=img/Logo.PNG>\n\
         <img srcset='img/logo.png 1x, img/logo2.png 2x'>\n\
         <script src=http://cdn.example.net/x.js></script>\n\
         <a href=a%zz>bad</a>\n\
         <link rel=stylesheet href=style.css>\n\
         <a href=/old>a redirect</a> <a href=/loop1>a loop</a>\n\
         <a href=https://example.org/gone>our own</a>\n",
    );
    folder.write(
        "docs/index.html",
        "<p id=here>\n<a href='../about#top'>about</a> <a href='#here'>here</a>\n\
         <a href=/docs>folder</a> <a href=mailto:a@b>mail</a>\n\
         <a href=../lines#3-4>rustdoc</a> <a href=../lines#L1-L2>others</a> <a href=../lines#L1-2>and</a>\n",
    );
    folder.write("lines.html", "<p id=L1><p id=L2><p id=3><p id=4>");
    folder.write(
        "about.html",
        "<a href='docs/#here'>up</a><a href=''>self</a>",
    );
    folder.write("img/logo.png", "png");
    folder.write(
        "style.css",
        "p { background: url(img/logo.png) }\n@import 'none.css';\n",
    );
    folder.write(
        "_redirects",
        "/old /about 301\n/loop1 /loop2 301\n/loop2 /loop1 301\n/old /docs/ 302\nwrong\n",
    );
    folder
}

const EXPECTED: [&str; 12] = [
    "bad-url index.html:7",
    "dead-anchor index.html:3",
    "dead-link index.html:10",
    "dead-link index.html:2",
    "dead-link index.html:9",
    "duplicate-rule _redirects:4",
    "missing-asset index.html:5",
    "missing-asset style.css:2",
    "mixed-content index.html:6",
    "redirect-loop _redirects:2",
    "syntax _redirects:5",
    "wrong-case index.html:4",
];

#[test]
fn every_kind_of_mistake_is_found() {
    let folder = broken_site();
    let json = ["check", ".", "--json", "--origin", "https://example.org"];
    let ended = gannet_in(&folder, json);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expected: BTreeSet<String> = EXPECTED.iter().map(|it| (*it).to_owned()).collect();
    assert_eq!(findings(ended.text()), expected, "{}", ended.text());
    assert!(
        ended
            .text()
            .contains("\"help\": \"there is '/img/logo.png'\"")
    );
    assert!(ended.text().contains("\"errors\": 10, \"warnings\": 2}"));
}

/// The server answers as check and explain say: where a link leads counts, not whether it is absolute or climbs
/// above the root on its way back.
#[test]
fn symbolic_links_that_are_not_served_are_found() {
    let folder = Folder::new();
    folder.write("site/about.html", "about");
    folder.write("site/docs/index.html", "docs");
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, folder.join("site").join(name)).expect("new");
    };
    link(&folder.join("site/about.html"), "absolute.html");
    link(Path::new("../site/about.html"), "back.html");
    link(Path::new("/etc"), "docs/out");
    link(Path::new("none"), "dangling");
    link(Path::new("loop"), "loop");
    link(Path::new("none"), ".#hidden");
    link(Path::new("../about.html"), "docs/within.html");
    link(Path::new("docs"), "folder");
    link(Path::new("."), "docs/around");
    link(Path::new(".."), "docs/site");
    let ended = gannet_in(&folder, ["check", "site", "--json"]).success();
    let expected = [
        "link-not-served dangling:0",
        "link-not-served docs/out:0",
        "link-not-served folder/out:0",
        "link-not-served loop:0",
    ];
    let expected: BTreeSet<String> = expected.map(Into::into).into();
    assert_eq!(findings(ended.text()), expected, "{}", ended.text());
    assert!(ended.text().contains("--follow-links DIR"));
    let looping = "not served: a symbolic link leads back to itself";
    assert!(ended.text().contains(looping), "{ended:?}");
    let strict = gannet_in(&folder, ["check", "site", "--strict"]);
    assert_eq!(strict.status, Some(1), "{strict:?}");
    let server = Gannet::serve(folder.join("site"), &[]);
    for (path, status) in [
        ("/absolute.html", 200),
        ("/back.html", 200),
        ("/dangling", 404),
        ("/loop", 404),
        ("/docs/out/hostname", 404),
        ("/docs/within.html", 200),
        ("/folder/within", 200),
        ("/docs/around/", 200),
        ("/docs/around/around/within", 200),
        ("/docs/around/none", 404),
        ("/docs/site/docs/site/about", 200),
    ] {
        let told = gannet_in(&folder, ["explain", path, "site"]).success();
        let line = format!("status {status}");
        assert!(told.text().lines().any(|it| it == line), "{told:?}");
        get(&server, path).expect(status);
    }
}

#[test]
fn text_groups_places_and_annotations_are_escaped() {
    let folder = Folder::new();
    for page in ["a", "b", "c", "d", "e"] {
        folder.write(format!("{page}.html"), "<img src=logo.png>");
    }
    let ended = gannet_in(&folder, ["check", "."]);
    assert_eq!(ended.status, Some(1));
    same(
        ended.text(),
        "error: '/logo.png' is not found: no file has this path [missing-asset]\n  \
         a.html:1  img src 'logo.png'\n  \
         b.html:1  img src 'logo.png'\n  \
         c.html:1  img src 'logo.png'\n  \
         and at 2 more places\n\n\
         5 pages, 0 style sheets, 5 references: 5 errors, 0 warnings\n",
    );
    folder.write("a,b%.html", "<a href=x>");
    let ended = gannet_in(&folder, ["check", ".", "--format", "github"]);
    let first = ended.text().lines().next().expect("a finding");
    assert_eq!(
        first,
        "::error file=a%2Cb%25.html,line=1,title=dead-link::'/x' is not found: no file has this path (a \
         href 'x')"
    );
}

#[test]
fn pictures_without_url_and_for_previews_are_looked_for() {
    let folder = Folder::new();
    folder.write(
        "index.html",
        "<meta property='og:image' content='https://example.org/none.png'>\n\
         <meta property='og:image' content='https://example.org/there.png'>\n\
         <meta name='twitter:image' content=none.png>\n\
         <meta property='og:image' content='http://elsewhere.example/x.png'>\n\
         <meta property='og:image:alt' content='a picture'>\n\
         <p style='background: image-set(\"there.png\" 1x, \"twice.png\" 2x)'>\n",
    );
    folder.write("there.png", "png");
    folder.write(
        "style.css",
        "p { background: image-set('there.png' type('image/png'),\n 'none.avif' 2x) }\n",
    );
    let origin = ["check", ".", "--json", "--origin", "https://example.org"];
    let ended = gannet_in(&folder, origin);
    let expected = [
        "missing-asset index.html:1",
        "missing-asset index.html:3",
        "missing-asset index.html:6",
        "missing-asset style.css:2",
    ];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(findings(ended.text()), expected, "{}", ended.text());
}

/// Browsers block these because of their types, whatever they contain.
#[test]
fn scripts_and_styles_of_other_types_are_blocked() {
    let (folder, out) = (Folder::new(), Folder::new());
    folder.write(
        "index.html",
        "<script src=script></script>\n\
         <link rel=stylesheet href=style.php>\n\
         <script type=module src=app.mjs></script><link rel=stylesheet href=style.css>\n\
         <script src=ruled></script><img src=script><script type=text/x src=script></script>\n",
    );
    folder.write("_headers", "/ruled\n  Content-Type: text/javascript\n");
    for name in ["script", "style.php", "app.mjs", "style.css", "ruled"] {
        folder.write(name, "x");
    }
    let archive = out.join("site.gannet");
    gannet_in(&folder, ["pack", ".", "-q", "--fast", "-o", text(&archive)]).success();
    for (site, page) in [(".", "index.html"), (text(&archive), "/index.html")] {
        let ended = gannet_in(&folder, ["check", "--json", site]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let expected = [1, 2].map(|line| format!("blocked-by-nosniff {page}:{line}"));
        assert_eq!(findings(ended.text()), expected.into(), "{}", ended.text());
    }
}

/// Browsers would misread this text.
#[test]
fn text_that_is_not_utf_8_is_found() {
    let (folder, out) = (Folder::new(), Folder::new());
    folder.write("index.html", "<meta charset=utf-8><p>caf\u{e9}");
    folder.write("old.html", b"<p>\n<meta charset=windows-1252>caf\xe9");
    folder.write("plain.html", "<meta charset=windows-1252>cafe");
    folder.write("bare.txt", b"one\ntwo\ncaf\xe9");
    folder.write(
        "style.css",
        b"@charset \"latin1\"; p::after { content: '\xe9' }",
    );
    folder.write("ruled.html", b"caf\xe9");
    folder.write("data.bin", b"\xe9");
    folder.write("_headers", "/ruled.html\n  Content-Type: text/html\n");
    let archive = out.join("site.gannet");
    gannet_in(&folder, ["pack", ".", "-q", "--fast", "-o", text(&archive)]).success();
    for (site, slash) in [(".", ""), (text(&archive), "/")] {
        let ended = gannet_in(&folder, ["check", "--json", site]).success();
        let expected = ["bare.txt:3", "old.html:2", "style.css:1"];
        let expected = expected.map(|it| format!("not-utf-8 {slash}{it}"));
        assert_eq!(findings(ended.text()), expected.into(), "{}", ended.text());
    }
    // Follows the suggested next step.
    let types = ["--type", "html=text/html", "--type", "txt=text/plain"];
    let pack = ["pack", ".", "-q", "--fast", "-o", text(&archive)];
    gannet_in(&folder, [&pack[..], &types].concat()).success();
    let ended = gannet(["check", "--json", text(&archive)]).success();
    let expected = ["not-utf-8 /style.css:1".to_owned()];
    assert_eq!(findings(ended.text()), expected.into(), "{}", ended.text());
}

/// Mistakes in rules files are reported with their columns, as when packing.
#[test]
fn rules_files_have_columns() {
    let folder = Folder::new();
    folder.write("_redirects", "/a /b 399\n");
    let ended = gannet_in(&folder, ["check", "."]);
    let text = ended.text();
    assert!(text.contains("\n  _redirects:1:7\n"), "{text:?}");
    let ended = gannet_in(&folder, ["check", ".", "--format", "github"]);
    let start = "::error file=_redirects,line=1,col=7,title=syntax::found '399'";
    assert!(ended.text().starts_with(start), "{ended:?}");
    // In a subfolder, the path is relative to the repository.
    folder.write("out/_redirects", "/a /b 399\n");
    let ended = gannet_in(&folder, ["check", "out", "--format", "github"]);
    let start = "::error file=out/_redirects,line=1,col=7,";
    assert!(ended.text().starts_with(start), "{ended:?}");
    let ended = gannet_in(&folder, ["check", ".", "--json"]);
    assert!(
        ended.text().contains("\"line\": 1, \"column\": 7, "),
        "{ended:?}"
    );
}

#[test]
fn a_sound_site_has_no_findings_as_directory_and_as_archive() {
    let (folder, out) = (Folder::site(), Folder::new());
    folder.write("_headers", "/*\n  X-Test: 1\n");
    folder.write(
        "page.html",
        "<a href=/>home</a><a href=about>about</a><a href=about.html>about</a>\
         <link rel=stylesheet href=assets/app.css><a href=docs>docs</a>\
         <a href='http://example.org/'>elsewhere</a><a href='#top'>top</a>\
         <a href='docs/#:~:text=docs'>text</a>",
    );
    let ended = gannet_in(&folder, ["check", "."]).success();
    assert!(ended.text().ends_with(": no problems\n"), "{ended:?}");
    assert!(
        ended.text().contains("5 pages, 2 style sheets, "),
        "{ended:?}"
    );

    let archive = out.join("site.gannet");
    gannet_in(&folder, ["pack", ".", "-q", "--fast", "-o", text(&archive)]).success();
    let ended = gannet(["check", "--strict", text(&archive)]).success();
    assert!(ended.text().ends_with(": no problems\n"), "{ended:?}");
}

#[test]
fn an_archive_has_the_findings_of_its_directory() {
    let (folder, out) = (Folder::new(), Folder::new());
    folder.write(
        "index.html",
        "<a href=x.html#a><img src=y.png><a href=z/#b>",
    );
    folder.write("z/index.html", "<a href=../Index.html>");
    let archive = out.join("site.gannet");
    gannet_in(&folder, ["pack", ".", "-q", "--fast", "-o", text(&archive)]).success();
    let ended = gannet(["check", "--json", text(&archive)]);
    assert_eq!(ended.status, Some(1));
    let expected = [
        "dead-anchor /index.html:1",
        "dead-link /index.html:1",
        "missing-asset /index.html:1",
        "wrong-case /z/index.html:1",
    ];
    assert_eq!(findings(ended.text()), expected.map(str::to_owned).into());
}

#[test]
fn what_cannot_be_read_ends_with_2_and_wrong_words_are_named() {
    let folder = Folder::new();
    gannet_in(&folder, ["check", "none"]).failure(
        2,
        "gannet: cannot open 'none': no such file or directory (ENOENT)\nhelp: check the path\n",
    );
    gannet_in(&folder, ["check", ".", "--format", "xml"]).failure(
        2,
        "gannet: cannot use '--format xml': not one of text, json, github\n\
         help: see 'gannet check --help'\n",
    );
}

/// It answers today, and not for long.
#[test]
fn a_link_to_what_is_only_carried_on_is_told_as_that() {
    const OLD: &str = "assets/app-BxY3k9Zq.js";
    let folder = Folder::new();
    folder.write(format!("old/{OLD}"), "old();");
    folder.write("old/index.html", format!("<script src={OLD}></script>"));
    folder.write("new/assets/app-CsGmk6Qp.js", "new();");
    folder.write("new/_redirects", format!("/latest /{OLD} 302\n"));
    folder.write(
        "new/index.html",
        format!("<script src={OLD}></script>\n<a href=/latest>it</a>"),
    );
    let pack = ["pack", "--fast", "-q", "--fresh"];
    let old = ["old", "-o", "old.gannet"];
    gannet_in(&folder, [&pack[..], &old].concat()).success();
    let new = ["new", "-o", "new.gannet", "--previous", "old.gannet"];
    gannet_in(&folder, [&pack[..], &new, &["--carry", "7d"]].concat()).success();
    let ended = gannet_in(&folder, ["check", "new.gannet"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let why = "is of an earlier release, and only carried on for a while";
    let asset = format!("error: '/{OLD}' {why} [missing-asset]\n");
    let link = format!("error: '/latest' redirects to '/{OLD}', which {why} [dead-link]\n");
    let help = "help: name what replaces it, or add it to the site again\n";
    for line in [asset.as_str(), &link, help] {
        assert!(ended.text().contains(line), "{line}{}", ended.text());
    }
    assert!(!ended.text().contains("there is '"), "{}", ended.text());
}

/// The links of which `gannet serve --hosts` tells.
#[test]
fn entries_that_the_server_does_not_follow_are_found() {
    let folder = Folder::new();
    folder.write("sites/a.example/index.html", "a");
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, folder.join("sites").join(name)).expect("new");
    };
    link(Path::new("/etc"), "evil.example");
    link(Path::new("nowhere"), "dead.example");
    link(Path::new("nowhere"), "gone.example.gannet");
    link(&folder.join("sites/a.example"), "absolute.example");
    link(Path::new("a.example"), "www.a.example");
    let ended = gannet_in(&folder, ["check", "--json", "--hosts", "sites"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expected = ["dead.example", "evil.example"];
    let mut expected: BTreeSet<_> = expected.map(|it| format!("no-site {it}:0")).into();
    expected.insert("no-site gone.example.gannet:0".into());
    assert_eq!(findings(ended.text()), expected, "{}", ended.text());
    let ended = gannet_in(&folder, ["explain", "--hosts", "//evil.example/x", "sites"]);
    ended.failure(
        2,
        "gannet: cannot open 'sites/evil.example': a symbolic link leads out of the directory\n\
         help: a link has to stay in the folder; 'gannet serve --site HOST=PATH' serves a path elsewhere, \
         and --follow-links DIR lets links lead into DIR\n",
    );
}

/// Each entry of a directory for many hosts is a site of its own.
#[test]
fn all_hosts_of_a_directory_are_checked() {
    let folder = Folder::new();
    folder.write(
        "sites/a.example/index.html",
        "<a href=/none.html>dead</a><a href=https://www.a.example/gone>our own</a>",
    );
    folder.write(
        "sites/b.example/index.html",
        "<a href=/page>there</a><a href=https://a.example/gone>another's</a>",
    );
    folder.write("sites/b.example/page.html", "page");
    folder.write("sites/c.example.gannet", "no archive");
    folder.write("sites/a b/index.html", "no host");
    folder.write("sites/README", "no site");
    let link = folder.join("sites/www.a.example");
    std::os::unix::fs::symlink("a.example", link).expect("linked");
    let ended = gannet_in(&folder, ["check", "--json", "--hosts", "sites"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = [
        "dead-link a.example/index.html:1",
        "no-site a b:0",
        "no-site c.example.gannet:0",
    ];
    assert_eq!(findings(ended.text()), expect.map(str::to_owned).into());
    assert_eq!(ended.text().matches("dead-link").count(), 2, "{ended:?}");
    let ended = gannet_in(&folder, ["check", "--hosts", "sites"]);
    let place = "  sites/a.example/index.html:1  a href '/none.html'";
    assert!(ended.text().contains(place), "{}", ended.text());
    // An entry has no lines.
    assert!(
        ended.text().lines().any(|it| it == "  sites/a b"),
        "{}",
        ended.text()
    );
    for (path, cause) in [
        ("sites/README", "is not a directory, which --hosts needs"),
        ("sites/b.example", "no entry has the name of a host"),
    ] {
        let ended = gannet_in(&folder, ["check", "--hosts", path]);
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.err.contains(cause), "{ended:?}");
    }
}

#[test]
fn a_folder_without_files_is_no_sound_site() {
    let folder = Folder::new();
    folder.write(".nojekyll", "");
    let ended = gannet_in(&folder, ["check", "."]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let expect = "error: nothing in it is served [empty-site]\n  .\n  help: is this the folder ";
    assert!(ended.text().starts_with(expect), "{}", ended.text());
    // In each format it has a file.
    std::fs::create_dir(folder.join("empty")).expect("made");
    for (arguments, expect) in [
        (["--format", "text", "empty"], "[empty-site]\n  empty\n"),
        (
            ["--format", "json", "empty"],
            "\"file\": \".\", \"line\": 0,",
        ),
        (
            ["--format", "github", "empty"],
            "::error file=empty,line=1,",
        ),
    ] {
        let ended = gannet_in(&folder, [&["check"][..], &arguments].concat());
        assert!(ended.text().contains(expect), "{}", ended.text());
    }
    folder.write("_redirects", "/* https://example.org/:splat 301\n");
    gannet_in(&folder, ["check", "."]).success();
}

/// What they protect is open.
#[test]
fn rules_for_other_servers_are_named_with_the_next_step() {
    let folder = Folder::new();
    folder.write("index.html", "home");
    let files = [
        ".htaccess",
        "docs/.htaccess",
        "docs/web.config",
        "firebase.json",
        "netlify.toml",
        "vercel.json",
    ];
    for name in files {
        folder.write(name, "");
    }
    for other in ["docs/netlify.toml", "docs/vercel.json", "my.htaccess"] {
        folder.write(other, "");
    }
    let ended = gannet_in(&folder, ["check", ".", "--json"]).success();
    let expect = files.map(|name| format!("not-obeyed {name}:0"));
    assert_eq!(findings(ended.text()), expect.into(), "{}", ended.text());
    assert!(ended.text().contains("_redirects and _headers"));
}

#[test]
fn a_site_for_a_place_below_a_host_is_recognised() {
    let folder = Folder::new();
    let links = "<link rel=stylesheet href=/a/project/style.css><a href=/a/project/>home</a>\
                 <a href=/a/project/none>dead</a>";
    folder.write("index.html", links);
    folder.write("style.css", "");
    let ended = gannet_in(&folder, ["check", "."]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    for path in ["/", "/style.css"] {
        let place = "https://HOST/a/project";
        let help = format!(
            "  help: there is '{path}': if the site is for {place}, check it with '--origin {place}'\n"
        );
        assert!(ended.text().contains(&help), "{}", ended.text());
    }
    assert_eq!(ended.text().matches("--origin").count(), 2);
    let origin = ["check", ".", "--origin", "https://example.org/a/project"];
    let ended = gannet_in(&folder, origin);
    assert!(
        ended.text().ends_with(": 1 error, 0 warnings\n"),
        "{}",
        ended.text()
    );
    assert!(!ended.text().contains("--origin"), "{}", ended.text());
}
