//! Rules as the text of their files: one spelling for all equivalent ones.
//!
//! An archive holds rules in parsed form. `extract` writes them back, `ls` shows them, and `diff`
//! compares them. Parsed again, the text gives the same rules.

use super::Compat;
use super::headers::{FieldOperation, HeaderRule, Headers, ValuePart};
use super::pattern::{Pattern, Scheme, Segment};
use super::redirects::{QueryValue, Redirect, Redirects};
use super::target::TargetPart;
use super::users::User;
use super::{SourceFile, headers, percent, redirects};

impl Redirects {
    /// The text of a `_redirects` file at the root with these rules. `None` if no text can express
    /// them, which happens only to rules that were not read from files.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let lines = self.rules.iter().map(|rule| rule.text(self.compat) + "\n");
        let text: String = lines.collect();
        let file = SourceFile {
            path: "_redirects",
            text: text.as_bytes(),
        };
        let (read, problems) = redirects::parse(&[file], self.compat);
        let rules = self.rules.iter().zip(&read.rules);
        let is_same = problems.is_empty()
            && self.rules.len() == read.rules.len()
            && rules.into_iter().all(|(rule, read)| {
                let place = rule.place;
                *rule
                    == Redirect {
                        place,
                        ..read.clone()
                    }
            });
        is_same.then_some(text)
    }
}

impl Redirect {
    /// Its line: `/news/* /blog/:splat 302`.
    #[must_use]
    pub fn text(&self, compat: Compat) -> String {
        let (condition, outcome) = (self.condition_text(), self.outcome_text(compat));
        // Any host, which is compared before files are looked for.
        let is_of_any_host = compat == Compat::Kawipiko && self.is_forced;
        let host = match is_of_any_host && self.pattern.host.is_none() {
            true => "://*",
            false => "",
        };
        format!("{host}{} {outcome}{condition}", self.url_text())
    }

    /// The requests it applies to: path, query and languages, without its effect.
    #[must_use]
    pub fn source_text(&self) -> String {
        self.url_text() + &self.condition_text()
    }

    /// ` Language=de,en`, or nothing.
    fn condition_text(&self) -> String {
        let ranges = self.languages.iter();
        let ranges: Vec<_> = ranges.map(|it| String::from_utf8_lossy(it)).collect();
        match ranges.is_empty() {
            true => String::new(),
            false => format!(" Language={}", ranges.join(",")),
        }
    }

    fn url_text(&self) -> String {
        let mut out = source(&self.pattern);
        for parameter in &self.query {
            out.push(' ');
            encode_query(&parameter.name, &mut out);
            out.push('=');
            match &parameter.value {
                QueryValue::Literal(value) => encode_query(value, &mut out),
                QueryValue::Placeholder(name) => {
                    out.push(':');
                    out.push_str(name);
                }
            }
        }
        out
    }

    /// Its effect: target and status, and `!` if that makes it win over a file.
    #[must_use]
    pub fn outcome_text(&self, compat: Compat) -> String {
        let mark = match self.is_forced && compat == Compat::Netlify {
            true => "!",
            false => "",
        };
        format!("{} {}{mark}", self.target_text(), self.status)
    }

    /// Its target, with the names of its placeholders.
    #[must_use]
    pub fn target_text(&self) -> String {
        let names: Vec<&str> = self.names().collect();
        let mut out = self.target.origin.clone().unwrap_or_default();
        put_parts(&self.target.path, &names, &mut out);
        for (mark, parts) in [('?', &self.target.query), ('#', &self.target.fragment)] {
            if let Some(parts) = parts {
                out.push(mark);
                put_parts(parts, &names, &mut out);
            }
        }
        out
    }
}

impl Headers {
    /// The text of a `_headers` file with these rules. `None` if no text can express them, which
    /// happens only to rules that were not read from a file.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let text: String = self.rules.iter().map(HeaderRule::text).collect();
        let file = SourceFile {
            path: "_headers",
            text: text.as_bytes(),
        };
        let (read, problems) = headers::parse(&file, self.compat);
        let rules = self.rules.iter().zip(&read.rules);
        let is_same = problems.is_empty()
            && self.rules.len() == read.rules.len()
            && rules.into_iter().all(|(rule, read)| {
                rule.pattern == read.pattern
                    && rule.operations == read.operations
                    && rule.users == read.users
            });
        is_same.then_some(text)
    }
}

impl HeaderRule {
    /// Its lines, each with its line end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = self.source_text() + "\n";
        for line in self.operation_texts() {
            out.push_str(&format!("  {line}\n"));
        }
        out
    }

    /// The requests it applies to: a path, or a URL whose scheme makes no difference.
    #[must_use]
    pub fn source_text(&self) -> String {
        source(&self.pattern)
    }

    /// Its users on one line, then its operations: `name: value` or `! name` each.
    pub fn operation_texts(&self) -> impl Iterator<Item = String> {
        let names: Vec<&str> = self.pattern.names().collect();
        let users: Vec<String> = self.users.iter().map(User::text).collect();
        let users = (!users.is_empty()).then(|| format!("basic-auth: {}", users.join(" ")));
        let operations = self
            .operations
            .iter()
            .map(move |operation| match operation {
                FieldOperation::Remove { name } => format!("! {name}"),
                FieldOperation::Set { name, value } => {
                    let mut out = format!("{name}: ");
                    for part in value {
                        match part {
                            ValuePart::Literal(text) => {
                                out.push_str(&String::from_utf8_lossy(text))
                            }
                            ValuePart::Capture(index) => put_name(*index, &names, &mut out),
                        }
                    }
                    out
                }
            });
        users.into_iter().chain(operations)
    }
}

fn source(pattern: &Pattern) -> String {
    let mut out = String::new();
    if let Some(labels) = &pattern.host {
        out.push_str(match pattern.scheme {
            Some(Scheme::Http) => "http://",
            Some(Scheme::Https) | None => "https://",
        });
        for (number, label) in labels.iter().enumerate() {
            if number > 0 {
                out.push('.');
            }
            put_segment(label, &mut out);
        }
    }
    let mut segments: Vec<String> = pattern.head.iter().map(segment).collect();
    if let Some(splat) = &pattern.splat {
        let mut text = String::new();
        encode_segment(&splat.prefix, &mut text);
        text.push('*');
        encode_segment(&splat.suffix, &mut text);
        segments.push(text);
        segments.extend(splat.tail.iter().map(segment));
    }
    out.push('/');
    out.push_str(&segments.join("/"));
    out
}

fn segment(segment: &Segment) -> String {
    let mut out = String::new();
    put_segment(segment, &mut out);
    out
}

fn put_segment(segment: &Segment, out: &mut String) {
    match segment {
        Segment::Literal(literal) if matches!(literal.as_slice(), b"." | b"..") => {
            out.push_str(&"%2E".repeat(literal.len()));
        }
        Segment::Literal(literal) => encode_segment(literal, out),
        Segment::Placeholder {
            prefix,
            name,
            suffix,
        } => {
            encode_segment(prefix, out);
            out.push(':');
            out.push_str(name);
            // A suffix that continues like a name would become part of it.
            let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let count = usize::from(suffix.first().is_some_and(goes_on));
            let (first, rest) = suffix.split_at(count);
            for byte in first {
                out.push_str(&format!("%{byte:02X}"));
            }
            encode_segment(rest, out);
        }
    }
}

/// Text stays as people wrote it; only characters with a meaning in sources are encoded.
fn encode_segment(bytes: &[u8], out: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let has_meaning = matches!(character, ' ' | '%' | '*' | ':' | '?' | '#')
                || character.is_whitespace()
                || character.is_control();
            match has_meaning {
                true => encode_all(character.encode_utf8(&mut [0; 4]).as_bytes(), out),
                false => out.push(character),
            }
        }
        encode_all(chunk.invalid(), out);
    }
}

fn encode_all(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        out.push_str(&format!("%{byte:02X}"));
    }
}

fn encode_query(bytes: &[u8], out: &mut String) {
    let mut encoded = Vec::new();
    for &byte in bytes {
        let is_plain =
            |byte: u8| !matches!(byte, b':' | b'/') && percent::is_query_value_byte(byte);
        percent::encode(byte, is_plain, &mut encoded);
    }
    out.extend(encoded.into_iter().map(char::from));
}

fn put_parts(parts: &[TargetPart], names: &[&str], out: &mut String) {
    for part in parts {
        match part {
            TargetPart::Literal(text) => out.push_str(text),
            TargetPart::Capture(index) => put_name(*index, names, out),
        }
    }
}

fn put_name(index: u8, names: &[&str], out: &mut String) {
    out.push(':');
    out.push_str(names.get(usize::from(index)).copied().unwrap_or_default());
}
