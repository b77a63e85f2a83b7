//! What a lookup among many rules costs:
//! `cargo run --release -p gannet-content --example rules_cost`.

use std::hint::black_box;
use std::time::Instant;

use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::RedirectTable;
use gannet_content::rules::{Compat, SourceFile, redirects};

fn main() {
    println!("rules  bytes  read µs  miss ns  static ns  placeholder ns  splat ns  decide ns");
    for count in [1, 20, 200, 2_000, 20_000] {
        measure(count);
    }
}

fn measure(count: usize) {
    let mut text = String::new();
    for n in 0..count {
        text.push_str(&match n % 20 {
            18 => format!("/archive/{n}/:year/:slug  /posts/:year/{n}/:slug\n"),
            19 => format!("/files/{n}/*  https://files.example/{n}/:splat 302\n"),
            _ => format!("/old/section-{}/page-{n}.html  /new/page-{n}\n", n % 50),
        });
    }
    let file = SourceFile {
        path: "_redirects",
        text: text.as_bytes(),
    };
    let (redirects, problems) = redirects::parse(&[file], Compat::Netlify);
    assert!(problems.is_empty());
    let bytes = RedirectTable::new(redirects).compile();
    let rounds = (200_000 / count).clamp(10, 10_000) as u32;
    let start = Instant::now();
    for _ in 0..rounds {
        black_box(RedirectTable::parse(black_box(&bytes)).is_ok());
    }
    let read = start.elapsed() / rounds;
    let table = RedirectTable::parse(&bytes).expect("what was compiled");
    // The last of each kind.
    let last = |kind: usize| (0..count).rev().find(|n| n % 20 == kind).unwrap_or(0);
    let plain = last(17.min(count - 1));
    let paths = [
        "/assets/scripts/application/main.js".to_owned(),
        format!("/old/section-{}/page-{plain}.html", plain % 50),
        format!("/archive/{}/2024/a-story", last(18)),
        format!("/files/{}/a/b/c.zip", last(19)),
    ];
    let mut row = format!(
        "{count:>5}  {:>5}  {:>7.1}",
        bytes.len(),
        read.as_nanos() as f64 / 1000.0
    );
    for path in &paths {
        let request = request(path);
        row.push_str(&format!(
            "  {:>8.0}",
            time(|| table.find(&request).is_some())
        ));
    }
    let mut out = Vec::new();
    let request = request(&paths[3]);
    row.push_str(&format!(
        "  {:>8.0}",
        time(|| {
            table.decide(&request, false, &Steps::default(), &mut out);
            out.len() > 1
        })
    ));
    println!("{row}");
}

fn request(path: &str) -> RuleInput<'_> {
    RuleInput {
        prefix: b"",
        scheme: Scheme::Https,
        host: b"www.example.org",
        path: path.as_bytes(),
        query: None,
        language: b"",
    }
}

/// Nanoseconds per call.
fn time(mut call: impl FnMut() -> bool) -> f64 {
    const CALLS: u32 = 1_000_000;
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}
