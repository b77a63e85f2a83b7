//! Splits Rust source into code and comments, so that each rule applies to the right one.

use std::path::Path;

/// One line, split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code, without the contents of strings and characters.
    pub(crate) code: String,
    /// The comments.
    pub(crate) comment: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Code,
    LineComment,
    /// Inside nested block comments, with the depth.
    BlockComment(u32),
    Text,
    /// A raw string, with its number of hashes.
    RawText(usize),
}

/// Splits `text`; there is one [`Line`] for each of its lines.
pub(crate) fn split(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut state = In::Code;
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        if rest[0] == '\n' {
            if state == In::LineComment {
                state = In::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let last = lines.len() - 1;
        let line = &mut lines[last];
        let (next, taken) = step(state, rest, line);
        state = next;
        at += taken;
    }
    lines
}

/// Processes the start of `rest`; returns the next state and the number of characters consumed.
fn step(state: In, rest: &[char], line: &mut Line) -> (In, usize) {
    let starts = |text: &str| {
        text.chars()
            .enumerate()
            .all(|(i, c)| rest.get(i) == Some(&c))
    };
    match state {
        In::LineComment => {
            line.comment.push(rest[0]);
            (state, 1)
        }
        In::BlockComment(depth) => {
            if starts("*/") {
                return (
                    if depth == 1 {
                        In::Code
                    } else {
                        In::BlockComment(depth - 1)
                    },
                    2,
                );
            }
            if starts("/*") {
                return (In::BlockComment(depth + 1), 2);
            }
            line.comment.push(rest[0]);
            (state, 1)
        }
        In::Text => match rest[0] {
            '\\' if rest.get(1) != Some(&'\n') => (state, rest.len().min(2)),
            '"' => {
                line.code.push('"');
                (In::Code, 1)
            }
            _ => (state, 1),
        },
        In::RawText(hashes) => {
            let ends = rest[0] == '"' && rest.len() > hashes;
            if ends && rest[1..=hashes].iter().all(|&c| c == '#') {
                line.code.push('"');
                return (In::Code, 1 + hashes);
            }
            (state, 1)
        }
        In::Code if starts("//") => (In::LineComment, 2),
        In::Code if starts("/*") => (In::BlockComment(1), 2),
        In::Code => step_code(rest, line),
    }
}

fn step_code(rest: &[char], line: &mut Line) -> (In, usize) {
    let after_name = line
        .code
        .chars()
        .last()
        .is_some_and(|c| c.is_alphanumeric() || c == '_');
    match rest[0] {
        '"' => {
            line.code.push('"');
            (In::Text, 1)
        }
        'r' if !after_name || line.code.ends_with('b') => {
            let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
            if rest.get(1 + hashes) == Some(&'"') {
                line.code.push('"');
                return (In::RawText(hashes), 2 + hashes);
            }
            line.code.push('r');
            (In::Code, 1)
        }
        // A character or a lifetime: a character has its closing quote nearby.
        '\'' => {
            let len = match (rest.get(1), rest.get(2)) {
                (Some('\\'), _) => rest[3.min(rest.len())..].iter().position(|&c| c == '\''),
                (Some(_), Some('\'')) => return (In::Code, 3),
                _ => None,
            };
            match len {
                Some(len) => (In::Code, len + 4),
                None => {
                    line.code.push('\'');
                    (In::Code, 1)
                }
            }
        }
        other => {
            line.code.push(other);
            (In::Code, 1)
        }
    }
}

/// Whether `text` contains `word` with no letter, digit or underscore beside it.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

/// Whether the `unsafe` in `code` opens a block or an impl, not a function or a trait.
pub(crate) fn is_unsafe_block(code: &str) -> bool {
    code.match_indices("unsafe").any(|(at, word)| {
        let rest = code[at + word.len()..].trim_start();
        rest.is_empty() || rest.starts_with('{') || rest.starts_with("impl")
    })
}

/// Whether each line belongs to tests: a test file, or a module under `#[cfg(test)]`.
pub(crate) fn test_lines(file: &Path, lines: &[Line]) -> Vec<bool> {
    let is_test_file = file.components().any(|c| c.as_os_str() == "tests")
        || file
            .file_stem()
            .is_some_and(|s| s == "tests" || s == "properties");
    let mut result = vec![is_test_file; lines.len()];
    let mut index = 0;
    while index < lines.len() {
        if lines[index].code.replace(' ', "").contains("#[cfg(test)]") {
            let end = end_of_item(lines, index);
            result[index..=end].fill(true);
            index = end;
        }
        index += 1;
    }
    result
}

/// The last line of the item whose attribute is on line `start`.
fn end_of_item(lines: &[Line], start: usize) -> usize {
    let mut depth = 0i32;
    for (index, line) in lines.iter().enumerate().skip(start) {
        let code = line.code.replace("#[cfg(test)]", "");
        for c in code.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ';' if depth == 0 => return index,
                _ => continue,
            }
            if depth == 0 {
                return index;
            }
        }
    }
    lines.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: &str, comment: &str) {
        let line = split(text).remove(0);
        assert_eq!(
            (line.code.as_str(), line.comment.as_str()),
            (code, comment),
            "{text:?}"
        );
    }

    #[test]
    fn code_and_comments_are_told_apart() {
        check("a(); // b", "a(); ", " b");
        check("a(\"// no\"); // b", "a(\"\"); ", " b");
        check("a(r#\"x\" // no\"#); // b", "a(\"\"); ", " b");
        check("a('\"', b'\\'', '\\u{1}'); // b", "a(, b, ); ", " b");
        check(
            "a::<'x>(\"\\\"\"); /* b /* c */ d */ e",
            "a::<'x>(\"\");  e",
            " b  c  d ",
        );
    }

    #[test]
    fn test_modules_end_where_they_end() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n";
        let lines = test_lines(Path::new("src/a.rs"), &split(text));
        assert_eq!(lines[..6], [false, true, true, true, true, false]);
        let text = "#[cfg(test)]\nmod tests;\nfn c() {}";
        assert_eq!(
            test_lines(Path::new("src/a.rs"), &split(text)),
            [true, true, false]
        );
    }
}
