//! The index over all sources finds the same rules as trying them one after the other; serialised
//! rules are parsed unchanged; no request makes a rule produce what it cannot express.

mod rules;

use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::{Scheme, Source};
use gannet_content::rules::redirects::Redirect;
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::{Decision, HeaderTable, RedirectTable};
use gannet_content::rules::{Compat, SourceFile, headers, redirects};
use proptest::prelude::*;
use regex::bytes::Regex;

/// A source as the regular expression that hosts document: `*` is anything, a placeholder anything
/// without a slash, but not empty.
fn expression(source: &str, compat: Compat) -> Regex {
    let (host, path) = match source.strip_prefix("https://") {
        Some(rest) => rest.split_at(rest.find('/').expect("a path")),
        None => ("", source),
    };
    let mut text = String::from("(?s-u)^");
    match host {
        "" => text.push_str("[^/]*"),
        host => text.push_str(&regex::escape(host)),
    }
    let path = match compat {
        Compat::Netlify => path.trim_end_matches('/'),
        _ => path,
    };
    let mut rest = path;
    let mut is_start = false;
    while let Some(first) = rest.chars().next() {
        let after = &rest[1..];
        let len = after
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(after.len());
        let is_placeholder = first == ':'
            && after.starts_with(|c: char| c.is_ascii_alphabetic())
            && (is_start || compat == Compat::Cloudflare);
        if first == '*' && compat == Compat::Netlify && is_start && after.is_empty() {
            text.truncate(text.len() - 1);
            text.push_str("(?:/(?<splat>.*))?");
        } else if first == '*' {
            text.push_str("(?<splat>.*)");
        } else if is_placeholder {
            text.push_str(&format!("(?<{}>[^/]+)", &after[..len]));
            rest = &after[len..];
            continue;
        } else {
            text.push_str(&regex::escape(&first.to_string()));
        }
        is_start = first == '/';
        rest = after;
    }
    text.push_str(if compat == Compat::Netlify {
        "/?$"
    } else {
        "$"
    });
    Regex::new(&text).expect("an expression")
}

/// Few letters, so that sources overlap.
fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab]{1,2}",
        1 => "[ab]?:x[.]a".prop_map(|text: String| text),
        1 => Just("a.b".to_owned()),
    ]
}

fn source() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        5 => segment(),
        2 => Just(":PLACE".to_owned()),
        1 => Just("*".to_owned()),
        1 => "[ab]?\\*[ab]?",
    ];
    (
        prop_oneof![4 => Just(""), 1 => Just("https://a.b"), 1 => Just("https://a")],
        prop::collection::vec(piece, 0..5),
        any::<bool>(),
    )
        .prop_map(|(host, pieces, has_slash)| {
            let mut path = String::new();
            let mut has_splat = false;
            for (index, piece) in pieces.into_iter().enumerate() {
                path.push('/');
                let piece = piece.replace("PLACE", &format!("p{index}"));
                let piece = piece.replace(":x", &format!(":x{index}"));
                let is_splat = piece.contains('*');
                path.push_str(if is_splat && has_splat { "b" } else { &piece });
                has_splat |= is_splat;
            }
            if path.is_empty() || (has_slash && !path.ends_with('*')) {
                path.push('/');
            }
            format!("{host}{path}")
        })
}

fn path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![3 => "[ab]{1,2}", 1 => "[ab]?[ab][.][ab]"];
    (prop::collection::vec(piece, 0..5), any::<bool>()).prop_map(|(pieces, has_slash)| {
        let mut path: String = pieces.iter().map(|piece| format!("/{piece}")).collect();
        if path.is_empty() || has_slash {
            path.push('/');
        }
        path
    })
}

fn compat() -> impl Strategy<Value = Compat> {
    prop_oneof![Just(Compat::Netlify), Just(Compat::Cloudflare)]
}

/// The rules of the valid sources, and those sources.
fn parse_each(sources: &[String], compat: Compat) -> (RedirectTable, Vec<String>) {
    let is_source = |source: &&String| {
        let line = format!("{source} /t");
        let file = SourceFile {
            path: "_redirects",
            text: line.as_bytes(),
        };
        redirects::parse(&[file], compat).1.is_empty()
    };
    let sources: Vec<String> = sources.iter().filter(is_source).cloned().collect();
    let lines: String = sources
        .iter()
        .enumerate()
        .map(|(index, source)| format!("{source} /target-{index} 302\n"))
        .collect();
    (rules::table(compat, &lines), sources)
}

fn request<'a>(host: &'a str, path: &'a str) -> RuleInput<'a> {
    RuleInput {
        prefix: b"",
        scheme: Scheme::Https,
        host: host.as_bytes(),
        path: path.as_bytes(),
        query: None,
        language: b"",
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_index_finds_what_the_rules_say(
        sources in prop::collection::vec(source(), 1..12),
        paths in prop::collection::vec(path(), 1..12),
        host in prop_oneof![Just("a"), Just("a.b"), Just("c")],
        compat in compat(),
    ) {
        let (table, sources) = parse_each(&sources, compat);
        let expressions: Vec<Regex> =
            sources.iter().map(|source| expression(source, compat)).collect();
        for path in &paths {
            let subject = format!("{host}{path}");
            let naive = expressions.iter().position(|it| it.is_match(subject.as_bytes()));
            let found = table.find(&request(host, path));
            let index = found.as_ref().map(|(rule, _)| *rule as usize);
            prop_assert_eq!(index, naive, "{} with {:?}", subject, sources);
            let (Some((rule, captures)), Some(naive)) = (found, naive) else { continue };
            let groups = expressions[naive].captures(subject.as_bytes()).expect("a match");
            let names = table.redirects().rules[rule as usize].names();
            for (name, capture) in names.zip(captures.as_slice()) {
                let ours = &path.as_bytes()[capture.start as usize..capture.end as usize];
                let theirs = groups.name(name).map_or(b"".as_slice(), |it| it.as_bytes());
                prop_assert_eq!(capture.source, Source::Path);
                prop_assert_eq!(ours, theirs, "{} of {} in {}", name, sources[naive], path);
            }
        }
    }

    #[test]
    fn all_header_rules_are_found_in_their_order(
        sources in prop::collection::vec(source(), 1..12),
        path in path(),
        compat in compat(),
    ) {
        let (_, sources) = parse_each(&sources, compat);
        // Cloudflare allows hosts only in this file; sources were already filtered by the other
        // one.
        let text: String = sources.iter().map(|it| format!("{it}\n  X-A: b\n")).collect();
        let file = SourceFile { path: "_headers", text: text.as_bytes() };
        let (headers, problems) = headers::parse(&file, compat);
        prop_assert_eq!(problems, []);
        let found = HeaderTable::new(headers).find(&request("a.b", &path));
        let subject = format!("a.b{path}");
        let naive: Vec<u32> = (0..)
            .zip(&sources)
            .filter(|(_, source)| expression(source, compat).is_match(subject.as_bytes()))
            .map(|(index, _)| index)
            .collect();
        prop_assert_eq!(found, naive, "{} with {:?}", subject, sources);
    }

    #[test]
    fn languages_select_as_if_tried_in_a_row(
        rules in prop::collection::vec(
            (
                prop_oneof![Just("/a"), Just("/*"), Just("/:p"), Just("/a q=1")],
                prop::collection::vec("(d|e)(-(x|y))?", 0..3),
            ),
            1..10,
        ),
        language in "((d|e)(-(x|y|xy))?)?",
        query in prop_oneof![Just(None), Just(Some("q=1"))],
    ) {
        let condition = |list: &Vec<String>| match list.is_empty() {
            true => String::new(),
            false => format!(" Language={}", list.join(",")),
        };
        let lines = rules.iter().enumerate().map(|(index, (source, list))| {
            format!("{source} /t{index} 302{}\n", condition(list))
        });
        let table = rules::table(Compat::Netlify, &lines.collect::<String>());
        let speaks = |range: &String| language == *range || language.starts_with(&format!("{range}-"));
        let naive = rules.iter().position(|(source, list)| {
            let has_query = !source.contains("q=1") || query.is_some();
            has_query && (list.is_empty() || list.iter().any(speaks))
        });
        let input = RuleInput {
            query: query.map(str::as_bytes),
            language: language.as_bytes(),
            ..request("a", "/a")
        };
        let found = table.find(&input).map(|(rule, _)| rule as usize);
        prop_assert_eq!(found, naive, "{:?} with {:?}", language, rules);
    }

    #[test]
    fn queries_select_as_if_tried_in_a_row(
        rules in prop::collection::vec(
            prop::collection::btree_map("[abc]", prop_oneof!["[12]", Just(":v".to_owned())], 0..3),
            1..10,
        ),
        query in prop::collection::vec(("[abc]", "[12]?"), 0..4),
    ) {
        let parameter = |(name, value): (&String, &String)| match value.as_str() {
            ":v" => format!(" {name}=:{name}"),
            value => format!(" {name}={value}"),
        };
        let lines: Vec<String> = rules
            .iter()
            .map(|rule| format!("/a{} /t\n", rule.iter().map(parameter).collect::<String>()))
            .collect();
        let table = rules::table(Compat::Netlify, &lines.concat());
        let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let raw = pairs.join("&");
        let naive = rules.iter().position(|rule| {
            let has = |name: &String, value: &String| match query.iter().find(|pair| pair.0 == *name) {
                Some((_, found)) if value == ":v" => !found.is_empty(),
                Some((_, found)) => found == value,
                None => false,
            };
            rule.iter().all(|(name, value)| has(name, value))
        });
        let request = RuleInput { query: Some(raw.as_bytes()), ..request("a", "/a") };
        let found = table.find(&request).map(|(rule, _)| rule as usize);
        prop_assert_eq!(found, naive, "{} with {:?}", raw, lines);
    }

    #[test]
    fn a_location_stays_what_its_rule_says(
        path in prop::collection::vec(any::<u8>(), 0..30),
        query in prop::option::of(prop::collection::vec(any::<u8>(), 0..30)),
        host in "[ -~]{0,20}",
    ) {
        let table = rules::table(
            Compat::Netlify,
            "/u/* https://u.example/:splat\n/q q=:q /find?for=:q#:q\n/c/* /:splat 200\n/:a/* /:splat/:a\n/* /:splat",
        );
        let path = [b"/".as_slice(), &path].concat();
        for path in [path.clone(), [b"/u".as_slice(), &path].concat(), b"/q".to_vec(), [b"/c".as_slice(), &path].concat()] {
            let request = RuleInput {
                prefix: b"",
                scheme: Scheme::Https,
                host: host.as_bytes(),
                path: &path,
                query: query.as_deref(),
                language: b"",
            };
            let mut out = Vec::new();
            match table.decide(&request, false, &Steps::default(), &mut out) {
                Decision::Pass | Decision::Unknown => {}
                Decision::Content { .. } => {
                    prop_assert!(out.starts_with(b"/"));
                    prop_assert!(!out.windows(2).any(|pair| pair == b"//"));
                    prop_assert!(out.iter().all(|byte| *byte >= 0x20));
                }
                Decision::Redirect { rule, .. } => check_location(&table.redirects().rules[rule as usize], &out),
            }
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_as_sound_rules(
        position in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let table = rules::table(
            Compat::Netlify,
            "https://h.example/a/:b/* https://x.example/:splat?b=:b#:b 301!\n/a x=1 y=:y /b/:y\n/c /d 404",
        );
        let bytes = table.compile();
        let mut changed = bytes.clone();
        changed[position.index(bytes.len())] = value;
        for bytes in [changed.as_slice(), &bytes[..cut.index(bytes.len())]] {
            let Ok(read) = RedirectTable::parse(bytes) else { continue };
            let mut out = Vec::new();
            for path in ["/a/b/c", "/a", "/c", "/"] {
                let request = RuleInput { query: Some(b"x=1&y=2"), ..request("h.example", path) };
                if let Decision::Redirect { rule, .. } = read.decide(&request, false, &Steps::default(), &mut out) {
                    check_location(&read.redirects().rules[rule as usize], &out);
                }
            }
        }
        prop_assert!(RedirectTable::parse(&bytes[..cut.index(bytes.len())]).is_err());
    }
}

/// A URI of visible ASCII characters, with the origin of its rule.
fn check_location(rule: &Redirect, location: &[u8]) {
    let shown = String::from_utf8_lossy(location);
    assert!(location.iter().all(u8::is_ascii_graphic), "{shown}");
    assert!(!location.contains(&b'\\'), "{shown}");
    match &rule.target.origin {
        Some(origin) => {
            let rest = location
                .strip_prefix(origin.as_bytes())
                .expect("the origin");
            assert!(rest.starts_with(b"/"), "{shown}");
        }
        None => {
            assert!(location.starts_with(b"/"), "{shown}");
            assert!(!location.starts_with(b"//"), "{shown}");
        }
    }
}

proptest! {
    /// Rules written as a file parse to the same rules; written again, they give the same text.
    #[test]
    fn the_text_of_rules_gives_the_same_rules(
        sources in prop::collection::vec(source(), 1..8),
        names in prop::collection::vec("[a%:*?# +&=.é/]{1,4}", 0..3),
        compat in compat(),
        status in prop_oneof![Just("301"), Just("302"), Just("200"), Just("301!")],
    ) {
        let (table, _) = parse_each(&sources, compat);
        let fields: String = sources
            .iter()
            .map(|source| format!("{source}\n  X-A: :p0 :splat b\n  ! X-B\n"))
            .collect();
        let file = SourceFile { path: "_headers", text: fields.as_bytes() };
        let (fields, _) = headers::parse(&file, compat);
        let text = fields.text().expect("it was read from a file");
        let file = SourceFile { path: "_headers", text: text.as_bytes() };
        let (again, problems) = headers::parse(&file, compat);
        prop_assert!(problems.is_empty(), "{:?} of {}", problems, text);
        prop_assert_eq!(again.text(), Some(text));

        let text = table.redirects().text().expect("it was read from a file");
        prop_assert_eq!(rules::table(compat, &text).redirects().text(), Some(text));

        let query: String = names.iter().map(|name| {
            let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
            format!(" {encoded}={encoded}")
        }).collect();
        let line = format!("/a%2Ab/:x q=:q{query} /to/:x?q=:q#:q {status}\n");
        let file = SourceFile { path: "_redirects", text: line.as_bytes() };
        let (read, problems) = redirects::parse(&[file], Compat::Netlify);
        prop_assert_eq!(read.text().is_some(), true, "{} {:?}", line, problems);
    }
}

#[test]
fn the_text_of_rules_has_one_spelling() {
    for (compat, line, expect) in [
        (Compat::Netlify, "/old/ /new", "/old /new 301"),
        (Compat::Netlify, "/a%2Ab%20c /x 302!", "/a%2Ab%20c /x 302!"),
        (
            Compat::Netlify,
            "/%2E/caf%C3%A9 /é",
            "/%2E/café /%C3%A9 301",
        ),
        (Compat::Netlify, "/:id%41 /x/:id", "/:id%41 /x/:id 301"),
        (
            Compat::Netlify,
            "http://B.example/*/x b=:v a=1+2 https://c.example/:splat?q=:v",
            "http://b.example/*/x a=1%202 b=:v https://c.example/:splat?q=:v 301",
        ),
        (Compat::Cloudflare, "/old /new", "/old /new 302"),
        (
            Compat::Cloudflare,
            "/* /index.html 200",
            "/* /index.html 200",
        ),
        (
            Compat::Cloudflare,
            "/a/:b.html /c/:b#x",
            "/a/:b.html /c/:b#x 302",
        ),
        (Compat::Kawipiko, "./a* ../x 301", "/a%2A /x 301"),
        (
            Compat::Kawipiko,
            "://a.example/b/* /x:y 308",
            "https://a.example/b/* /x:y 308",
        ),
    ] {
        let file = SourceFile {
            path: "_redirects",
            text: line.as_bytes(),
        };
        let (read, problems) = redirects::parse(&[file], compat);
        assert!(problems.is_empty(), "{line}: {problems:?}");
        assert_eq!(read.text(), Some(format!("{expect}\n")), "{line}");
    }
}
