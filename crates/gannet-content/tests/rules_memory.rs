//! The memory that rules may hold.

use gannet_content::rules::problem::{Problem, What};
use gannet_content::rules::table::RedirectTable;
use gannet_content::rules::{Compat, SourceFile, headers, redirects};

/// The line of the first error, and whether it is about memory.
fn first(problems: &[Problem]) -> Option<(u32, bool)> {
    let first = problems.first()?;
    let is_memory =
        matches!(&first.what, What::Unexpected { found, .. } if found.contains("memory"));
    Some((first.line, is_memory))
}

fn file(path: &'static str, text: &'static str) -> SourceFile<'static> {
    SourceFile {
        path,
        text: text.as_bytes(),
    }
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> &'static str {
    (0..count).map(line).collect::<String>().leak()
}

/// Rules of many segments are refused where they are too much, in both files.
#[test]
fn rules_that_hold_too_much_memory_are_refused() {
    let source = "/a".repeat(64);
    let text = lines(20_000, |_| format!("{source} /t\n"));
    let (rules, problems) = redirects::parse(&[file("_redirects", text)], Compat::Netlify);
    let count = rules.rules.len();
    assert!((10_000..20_000).contains(&count), "{count}");
    assert_eq!(first(&problems), Some((count as u32 + 1, true)));

    let text = lines(20_000, |_| format!("{source}\n  x-a: b\n"));
    let (rules, problems) = headers::parse(&file("_headers", text), Compat::Netlify);
    let count = rules.rules.len();
    assert!((10_000..20_000).contains(&count), "{count}");
    let (line, is_memory) = first(&problems).expect("too much");
    assert!(is_memory && line > 2 * (count as u32 - 1), "line {line}");
}

/// Short fields take many times the memory of their text.
#[test]
fn many_short_fields_are_counted() {
    let fields: String = (0..17).map(|at| format!(" a{at}:b\n")).collect();
    let text = lines(50_000, |at| format!("/{at}\n{fields}"));
    let (_, problems) = headers::parse(&file("_headers", text), Compat::Netlify);
    let (line, is_memory) = first(&problems).expect("too much");
    assert!(is_memory && line > 18 * 25_000, "line {line}");
}

/// As many rules as there may be, of the usual length, hold less.
#[test]
fn many_rules_of_the_usual_length_are_accepted() {
    let text = lines(100_000, |at| {
        format!(
            "/blog/{}/{}/{at}/old.html /{at}/\n",
            2000 + at % 25,
            at % 12
        )
    });
    let (rules, problems) = redirects::parse(&[file("_redirects", text)], Compat::Netlify);
    assert_eq!((rules.rules.len(), first(&problems)), (100_000, None));
}

/// What an archive has is counted as well.
#[test]
fn tables_of_archives_are_counted() {
    let text = lines(9_000, |_| format!("{} /t\n", "/a".repeat(64)));
    let (mut rules, problems) = redirects::parse(&[file("_redirects", text)], Compat::Netlify);
    assert_eq!(first(&problems), None);
    let half = rules.rules.clone();
    rules.rules.extend(half);
    let read = RedirectTable::parse(&RedirectTable::new(rules).compile());
    let error = read.expect_err("too much").to_string();
    assert_eq!(error, "a table of rules that hold too much memory");
}
