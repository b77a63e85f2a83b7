//! Rules that work, but probably not as intended.
//!
//! Warnings are given only if certain: a rule is shadowed if an earlier one matches *all* its
//! requests, and loops and chains are found by following the actual responses of the rules.

use std::collections::{HashMap, HashSet};

use super::limits::{BROAD_MAX, CHAIN_MAX};
use super::matcher::RuleInput;
use super::pattern::{Captures, Pattern, Scheme, Segment, Subject};
use super::problem::{Problem, Severity, What};
use super::redirects::{QueryParameter, QueryValue, Redirect};
use super::steps::Steps;
use super::table::{Decision, RedirectTable};
use super::target::decoded;
use super::{Compat, Place, language};

/// Checks the redirects of a site.
///
/// `files` are the paths of the rules files, in the order in which they were parsed; `has_content`
/// returns whether the site has content at a decoded path, without rules.
#[must_use]
pub fn lint(
    table: &RedirectTable,
    files: &[&str],
    has_content: &dyn Fn(&[u8]) -> bool,
) -> Vec<Problem> {
    let mut lint = Lint {
        table,
        files,
        has_content,
        problems: Vec::new(),
        in_loops: HashSet::new(),
    };
    lint.sources();
    for (index, rule) in table.redirects().rules.iter().enumerate() {
        lint.follow(index, rule);
        lint.files(rule);
    }
    let mut problems = lint.problems;
    problems.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    problems
}

struct Lint<'a> {
    table: &'a RedirectTable,
    files: &'a [&'a str],
    has_content: &'a dyn Fn(&[u8]) -> bool,
    problems: Vec<Problem>,
    in_loops: HashSet<usize>,
}

impl Lint<'_> {
    fn warn(&mut self, place: Place, what: What) {
        self.problems.push(Problem {
            severity: Severity::Warning,
            file: self.file(place),
            line: place.line,
            column: 1,
            what,
        });
    }

    fn file(&self, place: Place) -> String {
        let file = self.files.get(usize::from(place.file));
        file.copied().unwrap_or_default().to_owned()
    }

    /// Duplicate and shadowed sources.
    fn sources(&mut self) {
        let rules = &self.table.redirects().rules;
        let ignores_slash = self.table.redirects().compat.ignores_trailing_slash();
        let mut seen: HashMap<_, &Redirect> = HashMap::new();
        // Rules that can match more than their own path, and the others by that path.
        let mut broad: Vec<&Redirect> = Vec::new();
        let mut narrow: HashMap<Vec<u8>, Vec<&Redirect>> = HashMap::new();
        for (index, rule) in rules.iter().enumerate() {
            let shape = (query_shape(&rule.query), rule.languages.clone());
            let key = (without_names(&rule.pattern), shape);
            if let Some(first) = seen.get(&key) {
                let (of_line, of_file) = (first.place.line, self.file(first.place));
                self.warn(rule.place, What::Duplicate { of_line, of_file });
                continue;
            }
            let path = rule.pattern.static_path();
            let same_path = path.as_ref().and_then(|path| narrow.get(path));
            let mut others = broad.iter().chain(same_path.into_iter().flatten());
            let by = others.find(|other| covers_rule(other, rule, ignores_slash));
            if let Some(by) = by.filter(|by| !self.is_reached(index, rule, by)) {
                let (by_line, by_file) = (by.place.line, self.file(by.place));
                self.warn(rule.place, What::Shadowed { by_line, by_file });
            }
            seen.insert(key, rule);
            match path {
                Some(path) => narrow.entry(path).or_default().push(rule),
                None if broad.len() < BROAD_MAX => broad.push(rule),
                None => {}
            }
        }
    }

    /// Whether a request made for the rule reaches it, although `by` matches it too: on the host
    /// that `by` leads to, `by` may not apply.
    fn is_reached(&self, index: usize, rule: &Redirect, by: &Redirect) -> bool {
        let mut sample = Sample::of(rule);
        let mut out = Vec::new();
        let found = self
            .table
            .decide(&sample.request(), false, &Steps::default(), &mut out);
        if rule_of(found) == Some(index) {
            return true;
        }
        let Some((scheme, host)) = by
            .target
            .origin
            .as_ref()
            .and_then(|it| it.split_once("://"))
        else {
            return false;
        };
        if rule.pattern.host.is_some() {
            return false;
        }
        sample.host = host.as_bytes().to_vec();
        sample.scheme = match scheme {
            "http" => Scheme::Http,
            _ => Scheme::Https,
        };
        let found = self
            .table
            .decide(&sample.request(), false, &Steps::default(), &mut out);
        rule_of(found) == Some(index)
    }

    /// Loops and chains, followed from a request made for the rule.
    fn follow(&mut self, start: usize, rule: &Redirect) {
        if !rule.is_redirect() || self.in_loops.contains(&start) {
            return;
        }
        let mut sample = Sample::of(rule);
        let mut through = vec![text(&sample.path)];
        let mut passed = Vec::new();
        let mut out = Vec::new();
        while through.len() <= CHAIN_MAX {
            let has_file = (self.has_content)(&sample.path);
            let found = self
                .table
                .decide(&sample.request(), has_file, &Steps::default(), &mut out);
            let Decision::Redirect { rule: found, .. } = found else {
                break;
            };
            let found = found as usize;
            if passed.is_empty() && found != start {
                return;
            }
            if !sample.move_to(&out) {
                break;
            }
            through.push(text(&sample.path));
            if let Some(first) = passed.iter().position(|rule| *rule == found) {
                // A loop is reported once, at the first of its rules, not at those that lead to it.
                if first == 0 {
                    self.in_loops.extend(&passed);
                    self.warn(rule.place, What::Loop { through });
                }
                return;
            }
            passed.push(found);
        }
        if passed.len() > 1 {
            self.warn(rule.place, What::Chain { through });
        }
    }

    /// Rules whose file wins, or hide a file, or whose target is missing or not what it looks like.
    fn files(&mut self, rule: &Redirect) {
        if self.table.redirects().compat != Compat::Kawipiko
            && let Some(text) = rule.target.lookalike()
        {
            let text = text.to_owned();
            self.warn(rule.place, What::Lookalike { text });
        }
        let is_cloudflare = self.table.redirects().compat == Compat::Cloudflare;
        if is_cloudflare && !rule.is_forced {
            self.warn(rule.place, What::Fallback);
        } else if let Some(path) = rule.pattern.static_path()
            && rule.pattern.host.is_none()
            && rule.query.is_empty()
            && (self.has_content)(&path)
        {
            let path = text(&path);
            if is_cloudflare {
                self.warn(rule.place, What::FileHidden { path });
            } else if !rule.is_forced {
                self.warn(rule.place, What::FileWins { path });
            }
        }
        if !rule.is_redirect()
            && let Some(path) = rule.target.static_path()
            && !(self.has_content)(&path)
            && !(self.has_content)(&other_form(&path))
        {
            let path = text(&path);
            self.warn(rule.place, What::TargetMissing { path });
        }
    }
}

/// The path with a trailing slash, or without it if it has one: content that a rule names is found in
/// both forms.
fn other_form(path: &[u8]) -> Vec<u8> {
    match path.strip_suffix(b"/") {
        Some(bare) => bare.to_vec(),
        None => [path, b"/"].concat(),
    }
}

fn rule_of(decision: Decision) -> Option<usize> {
    match decision {
        Decision::Pass | Decision::Unknown => None,
        Decision::Redirect { rule, .. } | Decision::Content { rule, .. } => Some(rule as usize),
    }
}

/// A request made for a rule.
struct Sample {
    scheme: Scheme,
    host: Vec<u8>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    language: Vec<u8>,
}

impl Sample {
    fn of(rule: &Redirect) -> Self {
        let pattern = &rule.pattern;
        let join = |segments: &[Segment], separator: u8| {
            let texts: Vec<Vec<u8>> = segments.iter().map(sample_segment).collect();
            texts.join(&separator)
        };
        let mut path = Vec::from(b"/");
        path.extend_from_slice(&join(&pattern.head, b'/'));
        if let Some(splat) = &pattern.splat {
            if !pattern.head.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&splat.prefix);
            path.extend_from_slice(SAMPLE);
            path.extend_from_slice(&splat.suffix);
            if !splat.tail.is_empty() {
                path.push(b'/');
                path.extend_from_slice(&join(&splat.tail, b'/'));
            }
        }
        let host = pattern.host.as_ref().map(|labels| join(labels, b'.'));
        let parameters = rule.query.iter().map(|parameter| {
            let value = match &parameter.value {
                QueryValue::Literal(value) => value.as_slice(),
                QueryValue::Placeholder(_) => SAMPLE,
            };
            let pair = [parameter.name.as_slice(), value].map(escape);
            pair.join(&b'=')
        });
        let query: Vec<Vec<u8>> = parameters.collect();
        Self {
            scheme: pattern.scheme.unwrap_or(Scheme::Https),
            host: host.unwrap_or_else(|| SAMPLE_HOST.to_vec()),
            path,
            query: (!query.is_empty()).then(|| query.join(&b'&')),
            language: rule.languages.first().cloned().unwrap_or_default(),
        }
    }

    fn request(&self) -> RuleInput<'_> {
        RuleInput {
            prefix: b"",
            scheme: self.scheme,
            host: &self.host,
            path: &self.path,
            query: self.query.as_deref(),
            language: &self.language,
        }
    }

    /// Follows a location, if it stays on the host.
    fn move_to(&mut self, location: &[u8]) -> bool {
        let mut rest = location;
        for (prefix, scheme) in [
            (b"http://".as_slice(), Scheme::Http),
            (b"https://", Scheme::Https),
        ] {
            if let Some(after) = location.strip_prefix(prefix) {
                let Some(after) = after.strip_prefix(self.host.as_slice()) else {
                    return false;
                };
                self.scheme = scheme;
                rest = after;
            }
        }
        let rest = rest.split(|&byte| byte == b'#').next().unwrap_or_default();
        let mut parts = rest.splitn(2, |&byte| byte == b'?');
        let Some(path) = parts.next().and_then(decoded) else {
            return false;
        };
        self.path = path;
        self.query = parts.next().map(<[u8]>::to_vec);
        true
    }
}

fn sample_segment(segment: &Segment) -> Vec<u8> {
    match segment {
        Segment::Literal(literal) => literal.clone(),
        Segment::Placeholder { prefix, suffix, .. } => {
            [prefix.as_slice(), SAMPLE, suffix.as_slice()].concat()
        }
    }
}

fn escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in text {
        super::percent::encode(byte, super::percent::is_query_value_byte, &mut out);
    }
    out
}

/// The source without the names of its placeholders, which do not affect what it matches.
fn without_names(pattern: &Pattern) -> Pattern {
    let strip = |segments: &Vec<Segment>| -> Vec<Segment> {
        let mut segments = segments.clone();
        for segment in &mut segments {
            if let Segment::Placeholder { name, .. } = segment {
                name.clear();
            }
        }
        segments
    };
    let mut pattern = pattern.clone();
    pattern.host = pattern.host.as_ref().map(strip);
    pattern.head = strip(&pattern.head);
    if let Some(splat) = &mut pattern.splat {
        splat.tail = strip(&splat.tail);
    }
    pattern
}

fn query_shape(query: &[QueryParameter]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let shape = |parameter: &QueryParameter| {
        let literal = match &parameter.value {
            QueryValue::Literal(value) => Some(value.clone()),
            QueryValue::Placeholder(_) => None,
        };
        (parameter.name.clone(), literal)
    };
    query.iter().map(shape).collect()
}

/// Whether every request of `rule` also matches `other`.
fn covers_rule(other: &Redirect, rule: &Redirect, ignores_slash: bool) -> bool {
    let has_scheme = other.pattern.scheme.is_none() || other.pattern.scheme == rule.pattern.scheme;
    let has_host = match (&other.pattern.host, &rule.pattern.host) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(other), Some(rule)) => covers_all(other, rule),
    };
    let has_query = other.query.iter().all(|other| {
        rule.query.iter().any(|rule| {
            let is_free = matches!(other.value, QueryValue::Placeholder(_))
                && rule.value != QueryValue::Literal(Vec::new());
            other.name == rule.name && (is_free || other.value == rule.value)
        })
    });
    let is_in = |range: &Vec<u8>| language::is_in(range, &other.languages);
    let has_language = other.languages.is_empty()
        || (!rule.languages.is_empty() && rule.languages.iter().all(is_in));
    has_scheme
        && has_host
        && has_query
        && has_language
        && covers_path(&other.pattern, &rule.pattern, ignores_slash)
}

/// Whether every path of `rule` also matches `other`; false if in doubt.
fn covers_path(other: &Pattern, rule: &Pattern, ignores_slash: bool) -> bool {
    if let Some(path) = rule.static_path() {
        let subject = Subject::path(&path, ignores_slash);
        return other.capture_path(&subject, &mut Captures::NONE.clone()).0;
    }
    let Some(splat) = &other.splat else {
        return rule.splat.is_none() && covers_all(&other.head, &rule.head);
    };
    if !splat.prefix.is_empty() || !splat.suffix.is_empty() {
        return without_names(other) == without_names(rule);
    }
    let (head, tail) = (other.head.len(), splat.tail.len());
    let (rule_head, rule_tail) = match &rule.splat {
        Some(rule_splat) => {
            let Some(cut) = rule_splat.tail.len().checked_sub(tail) else {
                return false;
            };
            (rule.head.as_slice(), &rule_splat.tail[cut..])
        }
        None => {
            let is_long_enough = rule.head.len() > head + tail;
            if !is_long_enough {
                return false;
            }
            rule.head.split_at(rule.head.len() - tail)
        }
    };
    rule_head.len() >= head
        && covers_all(&other.head, &rule_head[..head])
        && covers_all(&splat.tail, rule_tail)
}

fn covers_all(other: &[Segment], rule: &[Segment]) -> bool {
    other.len() == rule.len()
        && other
            .iter()
            .zip(rule)
            .all(|(other, rule)| covers_segment(other, rule))
}

fn covers_segment(other: &Segment, rule: &Segment) -> bool {
    match (other, rule) {
        (Segment::Literal(other), Segment::Literal(rule)) => other == rule,
        (Segment::Literal(_), Segment::Placeholder { .. }) => false,
        (Segment::Placeholder { prefix, suffix, .. }, Segment::Literal(rule)) => {
            rule.len() > prefix.len() + suffix.len()
                && rule.starts_with(prefix)
                && rule.ends_with(suffix)
        }
        (
            Segment::Placeholder { prefix, suffix, .. },
            Segment::Placeholder {
                prefix: rule_prefix,
                suffix: rule_suffix,
                ..
            },
        ) => rule_prefix.starts_with(prefix) && rule_suffix.ends_with(suffix),
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Substitutes a placeholder. No site has a page of that name.
const SAMPLE: &[u8] = b"gannet-sample";
const SAMPLE_HOST: &[u8] = b"gannet-sample.invalid";
