//! The working group's cases of structured fields: through the parser, and through each field of requests that
//! gannet reads with it.

use std::fs;

use anyhow::{Context, Result, ensure};
use gannet_content::policy::dictionary::named;
use gannet_content::policy::digest::wants_sha256;
use gannet_http::binary::priority::Priority;
use gannet_http::semantics::structured::{self, Value};
use serde_json::Value as Json;

use super::vectors::{files, has_extension};
use super::{Inputs, Outcome, Passed, cloned, commit, without};

/// The cases.
pub(super) const STRUCTURED: &str = "https://github.com/httpwg/structured-field-tests";

/// A byte sequence of 32 bytes.
const HASH: &str = ":YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=:";

/// How many cases there were of each kind.
#[derive(Default)]
struct Counts {
    passed: usize,
    lists: usize,
    /// Those that ask for a text, which gannet writes none from values.
    written: usize,
    may_fail: usize,
    /// Values of the fields that were made from cases.
    of_fields: usize,
}

/// Parses the cases of dictionaries and items; gannet has no field that is a list.
pub(super) fn run(inputs: &Inputs) -> Result<Outcome> {
    let Some(source) = cloned(inputs, STRUCTURED, "structured-field-tests") else {
        return Ok(without(STRUCTURED));
    };
    let mut counts = Counts::default();
    for path in files(&source, |path| has_extension(path, "json"))? {
        let Json::Array(cases) = serde_json::from_slice(&fs::read(&path)?)? else {
            continue;
        };
        for case in &cases {
            let of = || format!("{}: {}", path.display(), case["name"]);
            count(case, &mut counts).with_context(of)?;
        }
    }
    ensure!(
        counts.passed > 0,
        "there are no cases in {}",
        source.display()
    );
    let Counts {
        passed,
        lists,
        written,
        may_fail,
        of_fields,
    } = counts;
    Ok(Outcome::Passed(Passed {
        version: commit(&source),
        cases: passed,
        table: String::new(),
        differences: format!(
            "made from these, {of_fields} values of Priority, Want-Repr-Digest and Available-Dictionary by the \
             parser of each; {lists} cases are lists, which gannet has none of, and {written} of values that are \
             to be written; {may_fail} may be refused"
        ),
    }))
}

fn count(case: &Json, counts: &mut Counts) -> Result<()> {
    let Json::Array(lines) = &case["raw"] else {
        counts.written += 1;
        return Ok(());
    };
    let lines: Vec<&str> = lines.iter().filter_map(Json::as_str).collect();
    let raw = lines.join(", ");
    let parsed = match case["header_type"].as_str() {
        Some("dictionary") => members(&raw),
        Some("item") => structured::item(raw.as_bytes())
            .ok()
            .map(|it| vec![(String::new(), shown(it))]),
        _ => {
            counts.lists += 1;
            return Ok(());
        }
    };
    let (must_fail, may_fail) = (case["must_fail"] == true, case["can_fail"] == true);
    counts.may_fail += usize::from(may_fail);
    let is_right = match &parsed {
        None => must_fail || may_fail,
        Some(found) => !must_fail && *found == expected(case),
    };
    ensure!(is_right, "{parsed:?}");
    counts.passed += 1;
    // What may be refused was taken or not: its fields are taken as well, or not.
    let is_valid = if may_fail {
        parsed.is_some()
    } else {
        !must_fail
    };
    counts.of_fields += match case["header_type"] == "item" {
        true => item_in_fields(&raw, case, is_valid)?,
        false => dictionary_in_fields(&raw, is_valid)?,
    };
    Ok(())
}

/// Members of the fields' own after those of a case count if it is valid. Returns how many values were parsed.
fn dictionary_in_fields(raw: &str, is_valid: bool) -> Result<usize> {
    // Without a member in front of it, a comma is a fault.
    if raw.trim_matches(' ').is_empty() {
        return Ok(0);
    }
    priority(
        &format!("{raw}, u=1, i"),
        if is_valid { (1, true) } else { (3, false) },
    )?;
    wants(&format!("{raw}, sha-256=2"), is_valid)?;
    Ok(2)
}

/// An item as the parameter of the fields' own values, which count if it is valid; and as such a value, which
/// counts if it is of the right kind.
fn item_in_fields(raw: &str, case: &Json, is_valid: bool) -> Result<usize> {
    let item = raw.trim_start_matches(' ');
    let bytes = case["expected"][0]["value"]
        .as_str()
        .map(|it| it.trim_end_matches('='));
    let is_hash = is_valid && bytes.is_some_and(|base32| base32.len() * 5 / 8 == 32);
    dictionary(raw, is_hash)?;
    dictionary(&format!("{HASH};a={item}"), is_valid)?;
    // What is an item too many is another member, and space at the end belongs to a dictionary.
    if !is_valid && item.contains([',', '\t']) {
        return Ok(2);
    }
    let value = &case["expected"][0];
    let number = value.as_i64().filter(|_| is_valid);
    let flag = value.as_bool().filter(|_| is_valid);
    let urgency = number.filter(|it| (0..=7).contains(it)).unwrap_or(3);
    let weighs = number.is_some_and(|it| (1..=10).contains(&it));
    priority(&format!("u={item}"), (urgency, false))?;
    priority(&format!("i={item}"), (3, flag == Some(true)))?;
    priority(
        &format!("u=1;a={item}"),
        (if is_valid { 1 } else { 3 }, false),
    )?;
    wants(&format!("sha-256={item}"), weighs)?;
    wants(&format!("sha-256=2;a={item}"), is_valid)?;
    Ok(7)
}

fn priority(field: &str, (urgency, is_incremental): (i64, bool)) -> Result<()> {
    let found = Priority::parse(field.as_bytes());
    let is_right = i64::from(found.urgency) == urgency && found.is_incremental == is_incremental;
    ensure!(is_right, "priority: {field}: {found:?}");
    Ok(())
}

fn wants(field: &str, expected: bool) -> Result<()> {
    let found = wants_sha256(field.as_bytes());
    ensure!(found == expected, "want-repr-digest: {field}: {found}");
    Ok(())
}

fn dictionary(field: &str, expected: bool) -> Result<()> {
    let found = named(field.as_bytes());
    ensure!(
        found.is_some() == expected,
        "available-dictionary: {field}: {found:?}"
    );
    Ok(())
}

/// The members of a dictionary; of a key that occurs twice, the last value at the place of the first.
fn members(raw: &str) -> Option<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = Vec::new();
    structured::dictionary(raw.as_bytes(), |key, value| {
        let key = String::from_utf8_lossy(key).into_owned();
        match found.iter_mut().find(|(of, _)| *of == key) {
            Some((_, old)) => *old = shown(value),
            None => found.push((key, shown(value))),
        }
    })
    .ok()?;
    Some(found)
}

/// A value as the cases are compared.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::Boolean(flag) => flag.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Binary(_) => "binary".into(),
        Value::Other => "other".into(),
    }
}

/// The values of a case, as far as they are kept.
fn expected(case: &Json) -> Vec<(String, String)> {
    let bare = |item: &Json| match &item[0] {
        Json::Bool(flag) => flag.to_string(),
        Json::Number(number) if number.is_i64() => number.to_string(),
        Json::Object(object) if object.get("__type") == Some(&"binary".into()) => "binary".into(),
        _ => "other".into(),
    };
    if case["header_type"] == "item" {
        return vec![(String::new(), bare(&case["expected"]))];
    }
    let members = case["expected"].as_array().into_iter().flatten();
    let named = members.map(|member| {
        let key = member[0].as_str().unwrap_or_default();
        (key.into(), bare(&member[1]))
    });
    named.collect()
}
