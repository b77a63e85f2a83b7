//! What the rules that match a request do to the fields of its response, within bounds.
//!
//! The author of the rules need not be the operator of the server, and heads are held for clients that
//! read nothing. So the lines that apply to one request are bounded in number, and the fields that
//! they set in bytes. Rules that are too much for any request that they match are refused when they
//! are read ([`HeaderTable::excess`](super::table::HeaderTable::excess)); what is too much for some
//! requests is an error for these.

use super::Compat;
use super::headers::{CODING, FieldChanges, FieldOperation, Headers, SET_COOKIE, ValuePart, join};
use super::limits::{EVALUATION_STEPS_MAX, RULED_FIELDS_LEN_MAX, RULED_LINES_MAX};
use super::problem::{Problem, Severity, What};

/// The rules for fields are too much for a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Excess {
    /// The position of the rule with which they are.
    pub rule: u32,
    /// Its line in its file, from 1.
    pub line: u32,
    /// What is too much.
    pub what: TooMuch,
}

/// What rules for fields have too much of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TooMuch {
    /// The fields of a response are longer than [`RULED_FIELDS_LEN_MAX`] bytes.
    Bytes,
    /// More than [`RULED_LINES_MAX`] lines apply to a request.
    Lines,
    /// Finding out which do takes more steps than an evaluation may.
    Steps,
}

/// What to do about many rules.
const SHARE: &str = "give the paths that these rules share one rule";

impl Excess {
    /// It as an error of this file.
    #[must_use]
    pub fn problem(&self, file: &str) -> Problem {
        let (found, expected, help) = match self.what {
            TooMuch::Bytes => (
                "too long fields in one answer, with those of other rules that match",
                format!("at most {RULED_FIELDS_LEN_MAX} bytes together"),
                "clients refuse such heads: shorten values, or limit rules to the paths that need them",
            ),
            TooMuch::Lines => (
                "too many lines for one answer, with those of other rules that match",
                format!("at most {RULED_LINES_MAX} together"),
                SHARE,
            ),
            TooMuch::Steps => (
                "too many rules that may match one request, with those before",
                format!("at most {EVALUATION_STEPS_MAX} steps to find those that do"),
                SHARE,
            ),
        };
        Problem {
            severity: Severity::Error,
            file: file.to_owned(),
            line: self.line,
            column: 1,
            what: What::Unexpected {
                found: found.to_owned(),
                expected,
                help: Some(help),
            },
        }
    }
}

/// A line of a rule that matches.
struct Applied<'a> {
    rule: u32,
    /// The position of the line in its rule.
    at: usize,
    operation: &'a FieldOperation,
}

/// The changes of these rules, in their order. `expand` appends to bytes the value in a rule, and may
/// stop once they are longer than any response may have.
///
/// # Errors
/// They are too much for a response.
pub(super) fn evaluate(
    headers: &Headers,
    rules: &[u32],
    expand: impl Fn(u32, &[ValuePart], &mut Vec<u8>),
) -> Result<FieldChanges, Excess> {
    let mut lines = applied(headers, rules)?;
    // The order of lines with the same name stays.
    lines.sort_by_key(|line| line.operation.name());
    let mut changes = FieldChanges::default();
    let mut len = 0;
    for same in lines.chunk_by(|a, b| a.operation.name() == b.operation.name()) {
        let in_force = in_force(same, headers.compat);
        let Some(first) = in_force.first() else {
            let removed = same.first().map(|line| line.operation.name().to_owned());
            changes.remove.extend(removed);
            continue;
        };
        let name = first.operation.name();
        let mut joined: Option<Vec<u8>> = None;
        for line in in_force {
            let FieldOperation::Set { value, .. } = line.operation else {
                continue;
            };
            let mut bytes = match joined.take() {
                Some(mut known) if name != SET_COOKIE => {
                    join(&mut known, b"");
                    known
                }
                Some(cookie) => {
                    len += line_len(name, cookie.len());
                    changes.set.push((name.to_owned(), cookie));
                    Vec::new()
                }
                None => Vec::new(),
            };
            expand(line.rule, value, &mut bytes);
            if len + line_len(name, bytes.len()) > RULED_FIELDS_LEN_MAX {
                return Err(excess(headers, (line.rule, line.at), TooMuch::Bytes));
            }
            joined = Some(bytes);
        }
        if let Some(value) = joined {
            len += line_len(name, value.len());
            changes.set.push((name.to_owned(), value));
        }
    }
    Ok(changes)
}

/// Warnings about fields that have one value and get several from these rules, in this file.
pub(super) fn joined_singles(headers: &Headers, rules: &[u32], file: &str) -> Vec<Problem> {
    let mut lines = applied(headers, rules).unwrap_or_default();
    lines.sort_by_key(|line| line.operation.name());
    let same = lines.chunk_by(|a, b| a.operation.name() == b.operation.name());
    let in_force = same.map(|same| in_force(same, headers.compat));
    let joined = in_force.filter_map(|lines| match lines {
        [.., before, last] if is_single(last.operation.name()) => Some((before, last)),
        _ => None,
    });
    let line_of = |line: &Applied<'_>| line_of(headers, (line.rule, line.at));
    let problems = joined.map(|(before, last)| Problem {
        severity: Severity::Warning,
        file: file.to_owned(),
        line: line_of(last),
        column: 1,
        what: What::Joined {
            field: last.operation.name().to_owned(),
            with_line: line_of(before),
        },
    });
    problems.collect()
}

/// The lines from which a field has its value.
pub(super) fn lines_of(headers: &Headers, rules: &[u32], name: &str) -> Vec<u32> {
    let mut lines = applied(headers, rules).unwrap_or_default();
    lines.retain(|line| line.operation.name() == name);
    let lines = in_force(&lines, headers.compat).iter();
    lines
        .map(|line| line_of(headers, (line.rule, line.at)))
        .collect()
}

/// Whether a field has one value, so that a list of several means nothing to browsers. Its name is in
/// lower case.
fn is_single(name: &str) -> bool {
    matches!(
        name,
        "access-control-allow-credentials"
            | "access-control-allow-origin"
            | "access-control-max-age"
            | "content-disposition"
            | "content-location"
            | "content-type"
            | "cross-origin-embedder-policy"
            | "cross-origin-opener-policy"
            | "cross-origin-resource-policy"
            | "expires"
            | "origin-agent-cluster"
            | "refresh"
            | "retry-after"
            | "service-worker-allowed"
            | "sourcemap"
            | "strict-transport-security"
            | "x-content-type-options"
            | "x-dns-prefetch-control"
            | "x-frame-options"
            | "x-xss-protection"
    )
}

/// The lines of these rules.
fn applied<'a>(headers: &'a Headers, rules: &[u32]) -> Result<Vec<Applied<'a>>, Excess> {
    let mut lines = Vec::new();
    for (before, &number) in rules.iter().enumerate() {
        let Some(rule) = headers.rules.get(number as usize) else {
            continue;
        };
        // A rule takes time even if it has no line.
        if before + lines.len() + rule.operations.len() >= RULED_LINES_MAX {
            return Err(excess(headers, (number, 0), TooMuch::Lines));
        }
        let operations = rule.operations.iter().enumerate();
        lines.extend(operations.map(|(at, operation)| Applied {
            rule: number,
            at,
            operation,
        }));
    }
    Ok(lines)
}

/// Of the lines with one name, those whose values are sent; none if the field is removed.
///
/// On Cloudflare the lines after the last removal join. On Netlify the last rule that has the name
/// decides, and only its own lines join.
fn in_force<'a, 'b>(same: &'b [Applied<'a>], compat: Compat) -> &'b [Applied<'a>] {
    let is_removal = |line: &Applied<'_>| matches!(line.operation, FieldOperation::Remove { .. });
    let removed = same.iter().rposition(is_removal).map_or(0, |at| at + 1);
    let mut start = removed;
    if let (Some(last), Compat::Netlify | Compat::Kawipiko) = (same.last(), compat) {
        let own = same.iter().rposition(|line| line.rule != last.rule);
        start = start.max(own.map_or(0, |at| at + 1));
    }
    let lines = &same[start..];
    match lines.last() {
        // A list of codings would mean that all were applied.
        Some(last) if last.operation.name() == CODING => &lines[lines.len() - 1..],
        _ => lines,
    }
}

/// Bytes that a field takes in a head, at most, in any version of HTTP: in HPACK and QPACK its two
/// lengths take up to seven bytes with the first byte of the line.
pub(super) fn line_len(name: &str, value_len: usize) -> usize {
    const FRAMING_LEN: usize = 8;
    name.len() + value_len + FRAMING_LEN
}

/// What is too much with this line of a rule.
pub(super) fn excess(headers: &Headers, (number, at): (u32, usize), what: TooMuch) -> Excess {
    Excess {
        rule: number,
        line: line_of(headers, (number, at)),
        what,
    }
}

/// The line of an operation of a rule.
fn line_of(headers: &Headers, (rule, at): (u32, usize)) -> u32 {
    let rule = headers.rules.get(rule as usize);
    rule.map_or(1, |rule| rule.line_of(at))
}
