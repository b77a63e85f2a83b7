//! Requests are resolved in one place: for generated sites, `explain` predicts for every path the
//! answer of a running server, from a directory and from its archive; both answer alike; and
//! `check` reports a link as broken exactly if the server does not serve it.
//!
//! `GANNET_RESOLVER_SEED=N` runs a single site, `GANNET_RESOLVER_SITES=N` sets the number of sites.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use gannet::commands::explain::{ExplainOptions, explain};
use gannet_content::directory::lookup::LookupOptions;
use gannet_content::routing::{Routing, TrailingSlash};
use gannet_content::rules::Compat;
use gannet_site::check::{CheckOptions, Finding, check};
use gannet_site::offline::SiteOptions;
use gannet_testkit::client::Client;
use gannet_testkit::content::Numbers;
use gannet_testkit::engine::{Engine, has_uring};
use gannet_testkit::{Folder, gannet_in};

/// Sites per run, each with two servers.
const SITES: u64 = 24;

const FOLDERS: [&str; 6] = ["", "docs/", "docs/deep/", "page/", "both/", ".git/"];
const FILES: [&str; 15] = [
    "index.html",
    "about.html",
    "both.html",
    "page.html",
    "404.html",
    "200.html",
    "_wildcard.html",
    "_404.html",
    "_200.txt",
    "_index.txt",
    "start.htm",
    "app.js",
    "plain",
    "v1.2.html",
    ".hidden",
];
const RULES: [&str; 16] = [
    "/about /docs/ 302",
    "/about/ /docs/ 302",
    "/page/ /about 301",
    "/page /none 302",
    "/none /about 301",
    "/none/ /docs/deep/ 307",
    "/docs/deep https://example.org/deep 308",
    "/loop1 /loop2 302",
    "/loop2 /loop1 302",
    "/docs/* /about 302",
    "/old/* /docs/:splat 301",
    "/x/:id /docs/:id 200",
    "/app /about 200",
    "/lost /nowhere 200",
    "/gone /about 410",
    "/* /index.html 200",
];
const KAWIPIKO_RULES: [&str; 4] = [
    "/about /docs/ 302",
    "/page/ /about 301",
    "/none /about 301",
    "/loop1 /loop1/ 302",
];

/// A generated site and how it is served.
struct Case {
    folder: Folder,
    files: BTreeSet<String>,
    compat: Compat,
    slash: TrailingSlash,
    index: Option<&'static str>,
    has_rules: bool,
    lookup: LookupOptions,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Skips the first numbers, which are similar for similar seeds.
        for _ in 0..8 {
            numbers.below(2);
        }
        let folder = Folder::new();
        let compats = [Compat::Netlify, Compat::Cloudflare, Compat::Kawipiko];
        let compat = compats[numbers.below(3) as usize];
        let slashes = [
            TrailingSlash::Auto,
            TrailingSlash::Auto,
            TrailingSlash::Always,
            TrailingSlash::Never,
            TrailingSlash::Off,
        ];
        let slash = slashes[numbers.below(5) as usize];
        let mut files = BTreeSet::new();
        for place in FOLDERS {
            let share = 2 + numbers.below(6);
            for name in FILES {
                if numbers.below(share) == 0 {
                    files.insert(format!("{place}{name}"));
                }
            }
        }
        if numbers.below(4) == 0 {
            // A root without an index page, whatever answers its path.
            files.remove("index.html");
            files.extend(["index.html/index.html", "index.html/about.html"].map(str::to_owned));
        }
        for name in &files {
            folder.write(name, format!("<!doctype html><title>{name}</title>\n"));
        }
        let mut case = Self {
            folder,
            files,
            compat,
            slash,
            index: (numbers.below(4) == 0).then_some("start.htm"),
            has_rules: numbers.below(6) != 0,
            lookup: LookupOptions {
                clean_urls: numbers.below(4) != 0,
                spa: numbers.below(3) == 0,
                listing: numbers.below(2) == 0,
                dotfiles: numbers.below(4) == 0,
            },
        };
        case.write_rules(&mut numbers);
        case.files.insert("links.html".into());
        let paths = case.paths();
        let links = paths.iter().map(|path| format!("<a href=\"{path}\">\n"));
        let page: String = links.collect();
        case.folder.write("links.html", &page);
        case
    }

    fn write_rules(&self, numbers: &mut Numbers) {
        let known: &[&str] = match self.compat {
            Compat::Kawipiko => &KAWIPIKO_RULES,
            _ => &RULES,
        };
        let mut text = String::new();
        for rule in known {
            let chosen = match *rule {
                "/* /index.html 200" => numbers.below(8) == 0,
                "/gone /about 410" => self.compat == Compat::Netlify,
                _ => numbers.below(3) == 0,
            };
            let force = self.compat == Compat::Netlify && numbers.below(4) == 0;
            if chosen {
                let _ = writeln!(text, "{rule}{}", if force { "!" } else { "" });
            }
        }
        if numbers.below(5) != 0 {
            self.folder.write("_redirects", text);
        }
        if numbers.below(2) == 0 {
            let rules = "/docs/*\n  X-Docs: 1\n/about\n  X-About: 1\n/*\n  X-All: 1\n";
            self.folder.write("_headers", rules);
        }
    }

    /// Paths of its files and folders in every spelling, and some that do not exist.
    fn paths(&self) -> Vec<String> {
        let mut paths: BTreeSet<String> = [
            "/",
            "/none",
            "/none/",
            "/none.js",
            "/favicon.ico",
            "/docs/none",
            "/docs/none.js",
            "/docs/deep/x/y",
            "/docs/v1.2",
            "/page/none/",
            "/@jane.doe",
            "/.git/none",
            "/.none",
            "/.well-known/none",
            "/_redirects",
            "/_headers",
            "/old/about",
            "/x/about",
            "/app",
            "/lost",
            "/gone",
            "/loop1",
            "/about?a=b",
            "/docs?a=b",
        ]
        .map(str::to_owned)
        .into();
        for file in &self.files {
            let path = format!("/{file}");
            let bare = path
                .rsplit_once('.')
                .map_or(path.as_str(), |(bare, _)| bare);
            for one in [path.as_str(), bare] {
                if !one.ends_with('/') {
                    paths.extend([one.to_owned(), format!("{one}/")]);
                }
            }
            let folder = &path[..=path.rfind('/').unwrap_or(0)];
            paths.insert(folder.to_owned());
            let folder = folder.trim_end_matches('/');
            if !folder.is_empty() {
                paths.insert(folder.to_owned());
            }
        }
        paths.into_iter().collect()
    }

    /// The flags for serving, or for packing.
    fn flags(&self, packs: bool) -> Vec<&'static str> {
        let compat = match self.compat {
            Compat::Netlify => "netlify",
            Compat::Cloudflare => "cloudflare",
            Compat::Kawipiko => "kawipiko",
        };
        let slash = match self.slash {
            TrailingSlash::Auto => "auto",
            TrailingSlash::Always => "always",
            TrailingSlash::Never => "never",
            TrailingSlash::Off => "off",
        };
        let mut flags = vec!["--trailing-slash", slash];
        // Without rules, two of the dialects are the same, and the flag is rejected.
        if self.has_rules || self.compat != Compat::Cloudflare {
            flags.extend(["--compat", compat]);
        }
        let listing = match (packs, self.lookup.listing) {
            (true, true) => Some("--listing"),
            (false, false) => Some("--no-listing"),
            _ => None,
        };
        flags.extend(listing);
        flags.extend((!self.lookup.clean_urls).then_some("--no-clean-urls"));
        flags.extend(self.lookup.spa.then_some("--spa"));
        flags.extend(self.lookup.dotfiles.then_some("--dotfiles"));
        flags.extend((!self.has_rules).then_some("--no-rules"));
        flags.extend(self.index.into_iter().flat_map(|index| ["--index", index]));
        flags
    }

    fn options(&self, path: &Path) -> SiteOptions {
        let mut routing = Routing::new(self.compat);
        routing.trailing_slash = self.slash;
        if let Some(index) = self.index {
            routing.index_names = vec![index.as_bytes().to_vec()];
        }
        if !self.has_rules {
            routing.rules = None;
        }
        let is_archive = path.is_file();
        SiteOptions {
            path: path.to_owned(),
            routing,
            lookup: match is_archive {
                // An archive records how it is served.
                true => LookupOptions::default(),
                false => self.lookup,
            },
            icon: true,
            outside: gannet_io::links::Outside::default(),
        }
    }

    /// Identifies a content by the name of its file.
    fn name_of(&self, content: &str) -> Option<&str> {
        if content.contains("<a href=\"/\">\n") {
            return Some("links.html");
        }
        let name = content.split_once("<title>")?.1.split_once("</title>")?.0;
        self.files.get(name).map(String::as_str)
    }
}

/// An answer: its status, its location, and the file whose content it has.
type Answer = (u16, Option<String>, Option<String>);

/// The field with which a browser navigates.
const NAVIGATES: &str = "sec-fetch-mode: navigate";

/// The field of browsers that navigate or load, or none.
const REQUESTS: [Option<&str>; 4] = [
    None,
    Some(NAVIGATES),
    Some("sec-fetch-mode: no-cors"),
    Some("accept: text/html,*/*;q=0.8"),
];

fn served(case: &Case, client: &mut Client, path: &str, line: Option<&str>) -> Answer {
    let lines: Vec<&str> = line.into_iter().collect();
    let answer = client.request("GET", path, &lines);
    let location = answer.field("location").map(str::to_owned);
    let file = match location {
        Some(_) => None,
        None => {
            // An icon is not text.
            let text = String::from_utf8_lossy(&answer.body);
            case.name_of(&text).map(str::to_owned)
        }
    };
    (answer.status, location, file)
}

fn foreseen(case: &Case, site: &SiteOptions, path: &str, field: Option<&str>) -> (Answer, String) {
    let options = ExplainOptions {
        url: path.to_owned(),
        site: site.clone(),
        has_hosts: false,
        fields: field.map(str::to_owned).into_iter().collect(),
        compression: Default::default(),
        server: None,
    };
    let mut out = Vec::new();
    explain(&options, &mut out).expect("it can be explained");
    let text = String::from_utf8(out).expect("UTF-8");
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let status = value("status ")
        .expect("a status")
        .parse()
        .expect("a number");
    let location = value("location: ").map(str::to_owned);
    // Listings and served rules files have no name in this test.
    let file = value("file ").map(|file| file.trim_start_matches('/'));
    let file = file.filter(|file| case.files.contains(*file));
    let file = file.map(str::to_owned);
    ((status, location, file), text)
}

/// Whether following a link fails in a browser; `None` if unknown.
fn is_broken(answers: &BTreeMap<String, Answer>, path: &str) -> Option<bool> {
    let mut path = path.to_owned();
    for _ in 0..20 {
        let (status, location, _) = answers.get(&path)?;
        match location {
            None => return Some(*status >= 400),
            Some(location) if !location.starts_with('/') => return Some(false),
            Some(location) => path = location.clone(),
        }
    }
    Some(true)
}

/// The links in `links.html` that `check` reports as broken.
fn found_broken(case: &Case, site: &Path) -> BTreeSet<String> {
    let options = CheckOptions {
        site: case.options(site),
        origins: Vec::new(),
        prefix: String::new(),
    };
    let report = check(&options).expect("it can be checked");
    let kinds = ["dead-link", "wrong-case", "bad-url"];
    let is_broken = |it: &&Finding| it.file.ends_with("links.html") && kinds.contains(&it.kind);
    let broken = report.findings.iter().filter(is_broken);
    let path = |it: &Finding| {
        let link = it.source.strip_prefix("a href '")?;
        Some(link.split_once('\'')?.0.to_owned())
    };
    broken.filter_map(path).collect()
}

/// Requests all paths of a site; returns the answers to navigations, and the differences.
fn compare(
    case: &Case,
    site: &Path,
    engine: Engine,
    flags: &[&str],
    differences: &mut String,
) -> BTreeMap<String, Answer> {
    let what = match site.is_file() {
        true => "archive",
        false => "directory",
    };
    let server = engine.serve(site, flags);
    let mut client = Client::new(&server);
    let mut answers = BTreeMap::new();
    let options = case.options(site);
    let mut paths = case.paths();
    while let Some(path) = paths.pop() {
        for mode in REQUESTS {
            let answer = served(case, &mut client, &path, mode);
            let (expect, text) = foreseen(case, &options, &path, mode);
            if answer != expect {
                let _ = writeln!(
                    differences,
                    "{what} {path} {mode:?}\n  served   {answer:?}\n  foreseen {expect:?}\n{}",
                    text.split("\n\n").next().unwrap_or_default()
                );
            }
            if mode == Some(NAVIGATES) {
                // Targets of redirects are requested, too.
                let next = answer.1.as_ref().filter(|next| next.starts_with('/'));
                if let Some(next) = next.filter(|next| !answers.contains_key(*next)) {
                    paths.push(next.clone());
                }
                answers.insert(path.clone(), answer);
            }
        }
    }
    let found = found_broken(case, site);
    for path in case.paths() {
        let is_broken = is_broken(&answers, &path).expect("all of the way is known");
        if is_broken != found.contains(&path) {
            let _ = writeln!(
                differences,
                "{what} {path}: check calls it broken: {}; served: {:?}",
                found.contains(&path),
                answers[&path]
            );
        }
    }
    answers
}

fn run(seed: u64) {
    let case = Case::new(seed);
    let engine = match seed % 2 == 1 && has_uring() {
        true => Engine::Uring,
        false => Engine::Epoll,
    };
    let mut differences = String::new();
    let live = compare(
        &case,
        case.folder.path(),
        engine,
        &case.flags(false),
        &mut differences,
    );
    let out = Folder::new();
    let archive = out.join("site.gannet");
    let name = archive.to_str().expect("UTF-8");
    let flags = case.flags(true);
    let pack = ["pack", ".", "--fast", "--quiet", "--output", name].into_iter();
    let packed = gannet_in(&case.folder, pack.chain(flags.iter().copied()));
    assert_eq!(packed.status, Some(0), "seed {seed}: {packed:?}");
    let packed = compare(&case, &archive, engine, &[], &mut differences);
    for (path, answer) in &live {
        if packed.get(path).is_some_and(|it| it != answer) {
            let other = &packed[path];
            let _ = writeln!(
                differences,
                "{path}\n  live   {answer:?}\n  packed {other:?}"
            );
        }
    }
    assert!(
        differences.is_empty(),
        "seed {seed}, {:?}, {flags:?}, rules\n{}\n{:?}\n{differences}",
        case.compat,
        std::fs::read_to_string(case.folder.join("_redirects")).unwrap_or_default(),
        case.files,
    );
}

#[test]
fn explain_and_check_say_what_the_server_answers() {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    if let Some(seed) = number("GANNET_RESOLVER_SEED") {
        return run(seed);
    }
    for seed in 0..number("GANNET_RESOLVER_SITES").unwrap_or(SITES) {
        run(seed);
    }
}
