//! The lines of a rules file, split into tokens with their columns.

use super::SourceFile;
use super::limits::{LINE_MAX, PROBLEMS_MAX};
use super::problem::{Problem, Severity, What};

/// A word of a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// In characters, from 1.
    pub(crate) column: u32,
}

/// A line without its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) text: &'a str,
    /// From 1.
    pub(crate) number: u32,
}

impl<'a> Line<'a> {
    /// The words between spaces of any kind: texts copied from pages have some that do not break.
    pub(crate) fn tokens(&self) -> Vec<Token<'a>> {
        let mut tokens = Vec::new();
        let mut rest = self.text;
        let mut column = 1;
        loop {
            let start = rest.find(|character| !is_space(character));
            let Some(start) = start else { return tokens };
            column += rest[..start].chars().count() as u32;
            rest = &rest[start..];
            let end = rest.find(is_space).unwrap_or(rest.len());
            let text = &rest[..end];
            tokens.push(Token { text, column });
            column += text.chars().count() as u32;
            rest = &rest[end..];
        }
    }

    /// The column, from 1, of a byte offset.
    pub(crate) fn column(&self, offset: usize) -> u32 {
        let before = self.text.get(..offset).unwrap_or(self.text);
        before.chars().count() as u32 + 1
    }
}

/// Whether a character separates words. Text copied from web pages has no-break spaces.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace()
}

/// The problems of one file, up to a bound.
pub(crate) struct Report<'a> {
    file: &'a str,
    problems: &'a mut Vec<Problem>,
    start: usize,
}

impl<'a> Report<'a> {
    pub(crate) fn new(file: &'a str, problems: &'a mut Vec<Problem>) -> Self {
        let start = problems.len();
        Self {
            file,
            problems,
            start,
        }
    }

    /// Sorts the problems of the file by line.
    pub(crate) fn finish(self) {
        self.problems[self.start..].sort_by_key(|problem| (problem.line, problem.column));
    }

    /// Records an error.
    pub(crate) fn error(&mut self, line: u32, column: u32, wrong: Wrong) {
        if self.problems.len() - self.start < PROBLEMS_MAX {
            self.problems.push(Problem {
                severity: Severity::Error,
                file: self.file.to_owned(),
                line,
                column: column + wrong.offset,
                what: What::Unexpected {
                    found: wrong.found,
                    expected: wrong.expected,
                    help: wrong.help,
                },
            });
        }
    }
}

/// A problem within a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Wrong {
    /// Characters from the start of the token.
    pub(crate) offset: u32,
    pub(crate) found: String,
    pub(crate) expected: String,
    pub(crate) help: Option<&'static str>,
}

impl Wrong {
    /// `found` is quoted, and truncated if it is long.
    pub(crate) fn new(found: &str, expected: impl Into<String>) -> Self {
        let mut quoted = String::from("'");
        quoted.extend(found.chars().take(FOUND_MAX).flat_map(char::escape_debug));
        quoted.push_str(if found.chars().nth(FOUND_MAX).is_some() {
            "…'"
        } else {
            "'"
        });
        Self::words(quoted, expected)
    }

    /// `found` is a description, not a quotation.
    pub(crate) fn words(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            offset: 0,
            found: found.into(),
            expected: expected.into(),
            help: None,
        }
    }

    pub(crate) fn help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }

    /// At this byte of the token.
    pub(crate) fn at(mut self, token: &str, offset: usize) -> Self {
        let before = token.get(..offset).unwrap_or(token);
        self.offset = before.chars().count() as u32;
        self
    }
}

/// The lines of a file that contain more than spaces and a comment. Lines that are not text, or too
/// long (`max` characters), are reported and left out.
pub(crate) fn lines<'a>(
    file: &SourceFile<'a>,
    max: usize,
    report: &mut Report<'_>,
) -> Vec<Line<'a>> {
    let text = file
        .text
        .strip_prefix("\u{feff}".as_bytes())
        .unwrap_or(file.text);
    let mut lines = Vec::new();
    for (index, bytes) in text.split(|&byte| byte == b'\n').enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = error.valid_up_to();
                let column = String::from_utf8_lossy(&bytes[..valid]).chars().count() + 1;
                let found = format!("the byte {:#04x}", bytes[valid]);
                let wrong = Wrong::words(found, "text in UTF-8");
                report.error(number, column as u32, wrong);
                continue;
            }
        };
        let line = Line { text, number };
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let is_control = |character: char| character.is_control() && character != '\t';
        let len = text.chars().count();
        if let Some(offset) = text.find(is_control) {
            let found = &text[offset..].chars().take(1).collect::<String>();
            let wrong = Wrong::new(found, "no control characters");
            report.error(number, line.column(offset), wrong);
        } else if len > max || text.len() > LINE_MAX {
            let max = max.min(LINE_MAX);
            let found = format!("a line of {len} characters");
            report.error(number, 1, Wrong::words(found, format!("at most {max}")));
        } else {
            lines.push(line);
        }
    }
    lines
}

/// The most characters that a message quotes.
const FOUND_MAX: usize = 60;
