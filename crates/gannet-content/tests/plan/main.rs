//! The plan table: request fields and a representation, and their outcome.
//!
//! Each row is one request. `expect` is the status, for a 206 with the content ranges, for a 416
//! with its content range.

mod ranges;

use gannet_content::plan::{Outcome, Representation, outcome, select_for_range};
use gannet_http::semantics::coding::{Coding, CodingSet};
use gannet_http::semantics::fields::Fields;
use gannet_http::semantics::range::write_unsatisfied_range;
use gannet_http::semantics::request::{
    Content, Method, Request, RequestTarget, TargetForm, Version,
};

/// Sun, 06 Nov 1994 08:49:37 GMT
const DATE: i64 = 784_111_777;
/// 2026-09-21, when the requests arrive.
const NOW: i64 = 1_790_000_000;

/// The requested representation.
#[derive(Clone, Copy, Debug)]
enum Has {
    /// Ten bytes, `"a"`, [`DATE`].
    Both,
    /// Ten bytes, `W/"a"`, [`DATE`].
    WeakTag,
    /// Ten bytes, `"a"`, no date.
    TagAlone,
    /// Ten bytes, no tag, [`DATE`].
    DateAlone,
    /// Ten bytes, neither tag nor date.
    Neither,
    /// Empty, `"a"`, [`DATE`].
    Empty,
    /// Ten bytes in Brotli, `"a"`, [`DATE`].
    Coded,
    /// Ten bytes, `"a"`, modified within the current second.
    JustNow,
    /// Ten bytes, `"a"`, modified an hour from now.
    Future,
    /// The largest possible length, `"a"`, [`DATE`].
    Huge,
}

impl Has {
    fn representation(self) -> Representation<'static> {
        let strong = Some(&b"\"a\""[..]);
        let both = Representation {
            len: 10,
            coding: Coding::Identity,
            entity_tag: strong,
            last_modified: Some(DATE),
        };
        match self {
            Self::Both => both,
            Self::WeakTag => Representation {
                entity_tag: Some(b"W/\"a\""),
                ..both
            },
            Self::TagAlone => Representation {
                last_modified: None,
                ..both
            },
            Self::DateAlone => Representation {
                entity_tag: None,
                ..both
            },
            Self::Neither => Representation {
                entity_tag: None,
                last_modified: None,
                ..both
            },
            Self::Empty => Representation { len: 0, ..both },
            Self::Coded => Representation {
                coding: Coding::Brotli,
                ..both
            },
            Self::JustNow => Representation {
                last_modified: Some(NOW),
                ..both
            },
            Self::Future => Representation {
                last_modified: Some(NOW + 3600),
                ..both
            },
            Self::Huge => Representation {
                len: u64::MAX,
                ..both
            },
        }
    }
}

use Has::*;

/// Method, representation, field lines separated by ` | `, outcome.
type Row<'a> = (&'a str, Has, &'a str, &'a str);

fn check(rows: &[Row<'_>]) {
    for &(method, has, lines, expect) in rows {
        let section: String = lines
            .split(" | ")
            .filter(|line| !line.is_empty())
            .flat_map(|line| [line, "\r\n"])
            .collect();
        let method_kind = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        };
        let request = Request {
            method_name: method.as_bytes(),
            fields: Fields::parse(section.as_bytes()).expect("fields of the table"),
            ..request(method_kind)
        };
        let representation = has.representation();
        let found = outcome(&request, &representation, NOW);
        assert_eq!(
            words(&found, representation.len),
            expect,
            "{method} {has:?} {lines}"
        );
    }
}

/// A request without fields.
fn request(method: Method) -> Request<'static> {
    Request {
        method,
        method_name: b"GET",
        target: RequestTarget {
            raw: b"/",
            form: TargetForm::Origin,
            path: b"/",
            query: None,
        },
        authority: Some(b"example.org"),
        version: Version::Http11,
        fields: Fields::EMPTY,
        content: Content::None,
    }
}

/// An outcome as the table writes it.
fn words(outcome: &Outcome, len: u64) -> String {
    let mut value = Vec::new();
    let status = match outcome {
        Outcome::Full => return "200".to_string(),
        Outcome::NotModified => return "304".to_string(),
        Outcome::PreconditionFailed => return "412".to_string(),
        Outcome::Unsatisfiable => {
            write_unsatisfied_range(len, &mut value);
            416
        }
        Outcome::Partial(set) => {
            for range in set.as_slice() {
                value.extend_from_slice(if value.is_empty() { b"" } else { b", " });
                range.write_content_range(len, &mut value);
            }
            206
        }
    };
    format!("{status} {}", String::from_utf8_lossy(&value))
}

/// RFC 9110 section 13: without a condition or a range, the whole.
#[test]
fn without_conditions() {
    check(&[
        ("GET", Both, "", "200"),
        ("HEAD", Both, "", "200"),
        ("GET", Neither, "", "200"),
        ("GET", Empty, "", "200"),
        ("GET", Both, "host: a | accept: */*", "200"),
        ("GET", Both, "if-something: x | x-range: bytes=0-1", "200"),
    ]);
}

/// RFC 9110 section 13.1.1.
#[test]
fn if_match() {
    check(&[
        ("GET", Both, r#"if-match: "a""#, "200"),
        ("GET", Both, r#"If-Match: "a""#, "200"),
        ("HEAD", Both, r#"if-match: "a""#, "200"),
        ("GET", Both, r#"if-match: "b""#, "412"),
        ("HEAD", Both, r#"if-match: "b""#, "412"),
        ("GET", Both, r#"if-match: "b", "a""#, "200"),
        ("GET", Both, r#"if-match: "b","c""#, "412"),
        ("GET", Both, r#"if-match: "b" | if-match: "a""#, "200"),
        ("GET", Both, r#"if-match: ,, "b" , "a","#, "200"),
        ("GET", Both, "if-match: *", "200"),
        ("GET", Neither, "if-match: *", "200"),
        ("GET", Neither, r#"if-match: "a""#, "412"),
        // Strong comparison.
        ("GET", Both, r#"if-match: W/"a""#, "412"),
        ("GET", WeakTag, r#"if-match: "a""#, "412"),
        ("GET", WeakTag, r#"if-match: W/"a""#, "412"),
        ("GET", WeakTag, "if-match: *", "200"),
        // A value that is not a list of tags matches nothing.
        ("GET", Both, "if-match: a", "412"),
        ("GET", Both, "if-match:", "412"),
        ("GET", Both, r#"if-match: "A""#, "412"),
        ("GET", Both, r#"if-match: 'a'"#, "412"),
    ]);
}

/// RFC 9110 section 13.1.4, with dates in all three forms.
#[test]
fn if_unmodified_since() {
    check(&[
        (
            "GET",
            Both,
            "if-unmodified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Sunday, 06-Nov-94 08:49:37 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Sun Nov  6 08:49:37 1994",
            "200",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Sun, 06 Nov 1994 08:49:38 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Sun, 06 Nov 1994 08:49:36 GMT",
            "412",
        ),
        (
            "HEAD",
            Both,
            "if-unmodified-since: Sun, 06 Nov 1994 08:49:36 GMT",
            "412",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Sunday, 06-Nov-94 08:49:36 GMT",
            "412",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Sun Nov  6 08:49:36 1994",
            "412",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Fri, 01 Jan 2100 00:00:00 GMT",
            "200",
        ),
        // No valid date in the request, or none here: ignored.
        ("GET", Both, "if-unmodified-since: yesterday", "200"),
        ("GET", Both, "if-unmodified-since: 0", "200"),
        ("GET", Both, "if-unmodified-since:", "200"),
        (
            "GET",
            Both,
            "if-unmodified-since: Mon, 06 Nov 1994 08:49:36 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "if-unmodified-since: Sun, 06 Nov 1994 08:49:36 GMT \
             | if-unmodified-since: Sun, 06 Nov 1994 08:49:36 GMT",
            "200",
        ),
        (
            "GET",
            TagAlone,
            "if-unmodified-since: Thu, 01 Jan 1970 00:00:00 GMT",
            "200",
        ),
        (
            "GET",
            Future,
            "if-unmodified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        (
            "GET",
            JustNow,
            "if-unmodified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "412",
        ),
    ]);
}

/// RFC 9110 section 13.1.2.
#[test]
fn if_none_match() {
    check(&[
        ("GET", Both, r#"if-none-match: "a""#, "304"),
        ("HEAD", Both, r#"if-none-match: "a""#, "304"),
        ("GET", Both, r#"if-none-match: "b""#, "200"),
        ("GET", Both, r#"if-none-match: "b", "a""#, "304"),
        (
            "GET",
            Both,
            r#"if-none-match: "b" | if-none-match: "a""#,
            "304",
        ),
        (
            "GET",
            Both,
            r#"if-none-match: "b" | if-none-match: "c""#,
            "200",
        ),
        ("GET", Both, "if-none-match: *", "304"),
        ("GET", Neither, "if-none-match: *", "304"),
        ("GET", Neither, r#"if-none-match: "a""#, "200"),
        // Weak comparison.
        ("GET", Both, r#"if-none-match: W/"a""#, "304"),
        ("GET", Both, r#"if-none-match: "b", W/"a""#, "304"),
        ("GET", WeakTag, r#"if-none-match: "a""#, "304"),
        ("GET", WeakTag, r#"if-none-match: W/"a""#, "304"),
        ("GET", WeakTag, r#"if-none-match: W/"b""#, "200"),
        // A value that is not a list of tags matches nothing: sending the whole content is always
        // correct.
        ("GET", Both, "if-none-match: a", "200"),
        ("GET", Both, "if-none-match:", "200"),
        ("GET", Both, r#"if-none-match: w/"a""#, "200"),
        ("GET", Both, r#"if-none-match: "a"#, "200"),
        ("GET", Coded, r#"if-none-match: "a""#, "304"),
    ]);
}

/// RFC 9110 section 13.1.3.
#[test]
fn if_modified_since() {
    check(&[
        (
            "GET",
            Both,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "304",
        ),
        (
            "HEAD",
            Both,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "304",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Sunday, 06-Nov-94 08:49:37 GMT",
            "304",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Sun Nov  6 08:49:37 1994",
            "304",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Sun, 06 Nov 1994 08:49:36 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Sunday, 06-Nov-94 08:49:36 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Sun Nov  6 08:49:36 1994",
            "200",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Sat, 29 Oct 1994 19:43:31 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Fri, 01 Jan 2100 00:00:00 GMT",
            "200",
        ),
        // The file is older than what the client has: a release was rolled back.
        (
            "GET",
            Both,
            "if-modified-since: Sun, 06 Nov 1994 08:49:38 GMT",
            "200",
        ),
        (
            "GET",
            DateAlone,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "304",
        ),
        // Ignored.
        (
            "GET",
            Both,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37",
            "200",
        ),
        (
            "GET",
            Both,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 CET",
            "200",
        ),
        ("GET", Both, "if-modified-since: never", "200"),
        (
            "GET",
            Both,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT \
             | if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        (
            "GET",
            TagAlone,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        (
            "GET",
            Neither,
            "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        (
            "GET",
            Future,
            "if-modified-since: Fri, 01 Jan 2100 00:00:00 GMT",
            "200",
        ),
        (
            "GET",
            JustNow,
            "if-modified-since: Mon, 21 Sep 2026 14:13:20 GMT",
            "304",
        ),
    ]);
}

/// RFC 9110 section 13.2.2: which condition wins.
#[test]
fn several_conditions() {
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let rows: &[(&str, &str)] = &[
        // If-None-Match over If-Modified-Since, either way.
        (r#"if-none-match: "b" | if-modified-since: AT"#, "200"),
        (r#"if-modified-since: AT | if-none-match: "b""#, "200"),
        (r#"if-none-match: "a" | if-modified-since: BEFORE"#, "304"),
        (r#"if-none-match: "a" | if-modified-since: AT"#, "304"),
        ("if-none-match: x | if-modified-since: AT", "200"),
        // If-Match over If-Unmodified-Since, either way.
        (r#"if-match: "a" | if-unmodified-since: BEFORE"#, "200"),
        (r#"if-match: "b" | if-unmodified-since: AT"#, "412"),
        // The first two before the other two.
        (r#"if-match: "b" | if-none-match: "a""#, "412"),
        (r#"if-match: "a" | if-none-match: "a""#, "304"),
        (r#"if-match: "a" | if-none-match: "b""#, "200"),
        (r#"if-unmodified-since: BEFORE | if-none-match: "a""#, "412"),
        (r#"if-unmodified-since: AT | if-none-match: "a""#, "304"),
        ("if-unmodified-since: AT | if-modified-since: AT", "304"),
        ("if-unmodified-since: BEFORE | if-modified-since: AT", "412"),
        (r#"if-match: "a" | if-modified-since: AT"#, "304"),
        // All of them before a range.
        (r#"if-none-match: "a" | range: bytes=0-1"#, "304"),
        (
            r#"if-none-match: "b" | range: bytes=0-1"#,
            "206 bytes 0-1/10",
        ),
        ("if-modified-since: AT | range: bytes=0-1", "304"),
        (
            "if-modified-since: BEFORE | range: bytes=0-1",
            "206 bytes 0-1/10",
        ),
        (r#"if-match: "b" | range: bytes=0-1"#, "412"),
        (r#"if-match: "a" | range: bytes=0-1"#, "206 bytes 0-1/10"),
        (r#"if-match: "b" | range: bytes=99-"#, "412"),
        (r#"if-none-match: "a" | range: bytes=99-"#, "304"),
        (
            r#"if-none-match: "a" | range: bytes=0-1 | if-range: "b""#,
            "304",
        ),
        (r#"if-unmodified-since: BEFORE | range: bytes=0-1"#, "412"),
    ];
    for (lines, expect) in rows {
        let lines = lines.replace("BEFORE", BEFORE).replace("AT", AT);
        check(&[("GET", Both, &lines, expect)]);
    }
}

/// RFC 9110 section 13.2.1: methods that do not select a representation ignore conditions.
#[test]
fn other_methods() {
    check(&[
        ("OPTIONS", Both, r#"if-match: "b""#, "200"),
        ("OPTIONS", Both, "if-none-match: *", "200"),
        ("OPTIONS", Both, "range: bytes=0-1", "200"),
        ("PURGE", Both, "if-none-match: *", "200"),
    ]);
}
