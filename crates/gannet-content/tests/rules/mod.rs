//! Shared by the tests of rules: a request in one line, a response in one line.

#![allow(dead_code, reason = "each test program uses a part")]

use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::{Decision, RedirectTable};
use gannet_content::rules::{Compat, SourceFile, redirects};
use gannet_http::semantics::target_path::decode_path;

/// The host of requests that name none.
pub(crate) const HOST: &str = "example.org";

/// A request by its URL or path. The prefix `FILE` says that there is a file, `[de]` before it which
/// language the client prefers.
pub(crate) struct Asked {
    pub(crate) scheme: Scheme,
    pub(crate) host: String,
    pub(crate) path: Vec<u8>,
    pub(crate) query: Option<String>,
    pub(crate) has_file: bool,
    pub(crate) language: String,
}

impl Asked {
    pub(crate) fn parse(text: &str) -> Self {
        let (language, text) = match text.strip_prefix('[').and_then(|it| it.split_once("] ")) {
            Some((language, text)) => (language, text),
            None => ("", text),
        };
        let (text, has_file) = match text.strip_prefix("FILE ") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (scheme, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (Scheme::Http, rest),
            (None, Some(rest)) => (Scheme::Https, rest),
            (None, None) => (Scheme::Https, text),
        };
        let (host, target) = rest.split_at(rest.find('/').expect("a path"));
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let mut scratch = Vec::new();
        let path = decode_path(path.as_bytes(), &mut scratch).expect("a path");
        Self {
            scheme,
            host: if host.is_empty() { HOST } else { host }.to_owned(),
            path: path.as_bytes().to_vec(),
            query,
            has_file,
            language: language.to_owned(),
        }
    }

    pub(crate) fn request(&self) -> RuleInput<'_> {
        RuleInput {
            prefix: b"",
            scheme: self.scheme,
            host: self.host.as_bytes(),
            path: &self.path,
            query: self.query.as_deref().map(str::as_bytes),
            language: self.language.as_bytes(),
        }
    }
}

/// A table of valid rules, serialised and parsed again.
pub(crate) fn table(compat: Compat, rules: &str) -> RedirectTable {
    let file = SourceFile {
        path: "_redirects",
        text: rules.as_bytes(),
    };
    let (redirects, problems) = redirects::parse(&[file], compat);
    assert!(problems.is_empty(), "{rules}: {}", problems[0]);
    through_bytes(RedirectTable::new(redirects))
}

pub(crate) fn through_bytes(table: RedirectTable) -> RedirectTable {
    let bytes = table.compile();
    let read = RedirectTable::parse(&bytes).expect("what was compiled is read");
    assert_eq!(read.redirects(), table.redirects());
    assert_eq!(read.compile(), bytes);
    read
}

/// `301 /location`, `200 /path`, or `-`.
pub(crate) fn answer(table: &RedirectTable, asked: &str) -> String {
    let asked = Asked::parse(asked);
    let mut out = b"left over".to_vec();
    let decision = table.decide(
        &asked.request(),
        asked.has_file,
        &Steps::default(),
        &mut out,
    );
    let out = String::from_utf8_lossy(&out);
    match decision {
        Decision::Pass => "-".to_owned(),
        Decision::Unknown => "?".to_owned(),
        Decision::Redirect { status, .. } | Decision::Content { status, .. } => {
            format!("{status} {out}")
        }
    }
}

/// Each row is a request and its answer.
pub(crate) fn check(compat: Compat, rules: &str, rows: &[(&str, &str)]) {
    let table = table(compat, rules);
    for (asked, expect) in rows {
        assert_eq!(answer(&table, asked), *expect, "{asked} with {rules}");
    }
}
