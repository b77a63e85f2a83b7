//! Workloads of response planning for counting instructions: `cargo xtask instructions`.
//!
//! `content_instructions NAME COUNT` runs it COUNT times; without arguments it prints the names.

use std::hint::black_box;

use gannet_content::plan::{Outcome, Representation, outcome};
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::fields::Fields;
use gannet_http::semantics::request::{
    Content, Method, Request, RequestTarget, TargetForm, Version,
};
use gannet_testkit::workload;

const NAMES: [&str; 3] = ["plan-plain", "plan-not-modified", "plan-range"];
/// Sun, 06 Nov 1994 08:49:37 GMT
const MODIFIED: i64 = 784_111_777;
/// 2026-09-21, when the requests arrive.
const NOW: i64 = 1_790_000_000;

fn main() {
    let Some((name, count)) = workload(&NAMES) else {
        return;
    };
    let special = match name {
        "plan-plain" => "",
        "plan-not-modified" => {
            "If-None-Match: \"fedcba9876543210\", W/\"0123456789abcdef\"\r\n\
             If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        }
        "plan-range" => {
            "Range: bytes=0-1023, 4096-8191, -512\r\nIf-Range: \"0123456789abcdef\"\r\n"
        }
        _ => unreachable!("it is one of them"),
    };
    let section = format!("Host: docs.example.org\r\nAccept: */*\r\n{special}");
    let request = Request {
        method: Method::Get,
        method_name: b"GET",
        target: RequestTarget {
            raw: b"/",
            form: TargetForm::Origin,
            path: b"/",
            query: None,
        },
        authority: Some(b"docs.example.org"),
        version: Version::Http11,
        fields: Fields::parse(section.as_bytes()).expect("fields of the benchmark"),
        content: Content::None,
    };
    let representation = Representation {
        len: 1 << 20,
        coding: Coding::Identity,
        entity_tag: Some(b"\"0123456789abcdef\""),
        last_modified: Some(MODIFIED),
    };
    for _ in 0..count {
        let found = outcome(black_box(&request), black_box(&representation), NOW);
        assert!(
            matches!(
                (name, &found),
                ("plan-plain", Outcome::Full)
                    | ("plan-not-modified", Outcome::NotModified)
                    | ("plan-range", Outcome::Partial(_))
            ),
            "{name} came to something else"
        );
        black_box(found);
    }
}
