//! The checks of the fuzz targets for rules files, replayed over their seeds by the tests.

use gannet_content::rules::limits::{RULED_FIELDS_LEN_MAX, RULED_LINES_MAX};
use gannet_content::rules::lint::lint;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::problem::{Problem, has_errors};
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::{Decision, HeaderTable, RedirectTable};
use gannet_content::rules::{Compat, SourceFile, headers, redirects};
use gannet_testkit::hostile::{Shape, shapes};

/// Any text is parsed, its problems are within it, and the resulting rules answer without harm.
#[allow(dead_code, reason = "each target uses its own")]
pub(crate) fn redirects_file(bytes: &[u8]) {
    // As bytes of a table they are refused, or are valid rules too.
    if let Ok(table) = RedirectTable::parse(bytes) {
        assert_eq!(table.compile(), bytes, "one form for each table");
        ask(&table, bytes);
    }
    let shape = any_shape(bytes);
    let file = SourceFile {
        path: "_redirects",
        text: shape.redirects.as_bytes(),
    };
    ask(
        &RedirectTable::new(redirects::parse(&[file], Compat::Netlify).0),
        bytes,
    );
    for compat in [Compat::Netlify, Compat::Cloudflare, Compat::Kawipiko] {
        for path in ["_redirects", "a/_redirects"] {
            let file = SourceFile { path, text: bytes };
            let (redirects, problems) = redirects::parse(&[file], compat);
            check_problems(&problems, bytes);
            let table = RedirectTable::new(redirects);
            let compiled = table.compile();
            let read = RedirectTable::parse(&compiled).expect("what was compiled is read");
            assert_eq!(read.redirects(), table.redirects());
            ask(&read, bytes);
            if bytes.len() < 2000 {
                let warnings = lint(&table, &[path], &|path| path.len() % 2 == 0);
                assert!(!has_errors(&warnings));
                check_problems(&warnings, bytes);
            }
        }
    }
}

/// As [`redirects_file`], for fields.
#[allow(dead_code, reason = "each target uses its own")]
pub(crate) fn headers_file(bytes: &[u8]) {
    if let Ok(table) = HeaderTable::parse(bytes) {
        assert_eq!(table.compile(), bytes, "one form for each table");
        ask_headers(&table, bytes);
    }
    let shape = any_shape(bytes);
    let file = SourceFile {
        path: "_headers",
        text: shape.headers.as_bytes(),
    };
    ask_headers(
        &HeaderTable::new(headers::parse(&file, Compat::Netlify).0),
        bytes,
    );
    for compat in [Compat::Netlify, Compat::Cloudflare] {
        headers_text(bytes, compat);
        // So many rules for the same paths are more than a seed has.
        if bytes.len() < 400 {
            headers_text(&[bytes, b"\n"].concat().repeat(90), compat);
        }
    }
}

/// One of the most expensive sites, by the first byte.
fn any_shape(bytes: &[u8]) -> Shape {
    let mut shapes = shapes(20);
    let first = bytes.first().copied().unwrap_or_default();
    let number = usize::from(first) % shapes.len();
    shapes.swap_remove(number)
}

fn headers_text(bytes: &[u8], compat: Compat) {
    let file = SourceFile {
        path: "_headers",
        text: bytes,
    };
    let (headers, problems) = headers::parse(&file, compat);
    check_problems(&problems, bytes);
    // Passwords in the clear are in no archive.
    let may_be_packed = headers.clear_password("_headers").is_none();
    let table = HeaderTable::new(headers);
    assert!(!has_errors(&table.lint("_headers")));
    check_problems(&table.lint("_headers"), bytes);
    check_problems(table.problem("_headers").as_slice(), bytes);
    if !may_be_packed || table.excess().is_some() {
        assert!(HeaderTable::parse(&table.compile()).is_err());
        ask_headers(&table, bytes);
        return;
    }
    let read = HeaderTable::parse(&table.compile()).expect("what was compiled is read");
    assert_eq!(read.headers(), table.headers());
    ask_headers(&read, bytes);
}

fn check_problems(problems: &[Problem], text: &[u8]) {
    let line_count = text.split(|&byte| byte == b'\n').count();
    for problem in problems {
        assert!((1..=line_count).contains(&(problem.line as usize)));
        assert!(problem.column >= 1);
        assert!(!problem.to_string().contains(['\n', '\r', '\0']));
    }
}

/// Requests paths that occur in the text itself, so that rules match.
fn ask(table: &RedirectTable, text: &[u8]) {
    let mut out = Vec::new();
    let words = text
        .split(|byte| byte.is_ascii_whitespace())
        .chain([text])
        .take(50);
    for word in words {
        let query = word.iter().position(|&byte| byte == b'?');
        let request = RuleInput {
            prefix: b"",
            scheme: Scheme::Https,
            host: word.get(..5).unwrap_or(b"h.example"),
            path: word,
            query: query.map(|query| &word[query + 1..]),
            language: word.get(1..3).unwrap_or(b"de"),
        };
        let decision = table.decide(&request, false, &Steps::default(), &mut out);
        assert_eq!(
            decision,
            table.decide(&request, false, &Steps::default(), &mut out)
        );
        if let Decision::Redirect { rule, .. } = decision {
            let target = &table.redirects().rules[rule as usize].target;
            assert!(out.iter().all(u8::is_ascii_graphic));
            let origin = target.origin.as_deref().unwrap_or_default();
            let path = out.strip_prefix(origin.as_bytes()).expect("the origin");
            assert!(path.starts_with(b"/") && !path.starts_with(b"//"));
        }
    }
}

fn ask_headers(table: &HeaderTable, text: &[u8]) {
    for word in text.split(|byte| byte.is_ascii_whitespace()).take(50) {
        let request = RuleInput {
            prefix: b"",
            scheme: Scheme::Http,
            host: b"h.example",
            path: word,
            query: None,
            language: b"",
        };
        let mut fields = vec![("vary".to_owned(), b"accept-encoding".to_vec())];
        let Ok(changes) = table.changes(&request, &Steps::default()) else {
            continue;
        };
        assert!(changes.set.len() + changes.remove.len() <= RULED_LINES_MAX);
        let lens = changes
            .set
            .iter()
            .map(|(name, value)| name.len() + value.len());
        assert!(
            lens.sum::<usize>() <= RULED_FIELDS_LEN_MAX,
            "a bound on each answer"
        );
        changes.apply_to(&mut fields);
        for (name, value) in fields {
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(value.iter().all(|&byte| byte == b'\t' || byte >= b' '));
        }
    }
}
