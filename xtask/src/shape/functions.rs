//! Functions that are longer than the project's rule allows.

use super::Source;

/// Lines of code in a function's body: without blanks and comments, as `clippy::too_many_lines` counts.
const LINES_MAX: usize = 70;

/// The long functions of these files, with their lengths.
pub(super) fn long(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (line, name, len) in functions(&source.lines) {
            if len > LINES_MAX {
                found.push(format!("{}:{line}: {name}: {len}", source.path.display()));
            }
        }
    }
    found
}

/// Line from 1, name, and lines of code in the body of each function.
fn functions(lines: &[String]) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else {
            continue;
        };
        if let Some((start, end)) = body(lines, index, line.find("fn ").unwrap_or(0)) {
            let inner = lines.get(start + 1..end).unwrap_or_default();
            let len = inner.iter().filter(|line| !line.trim().is_empty()).count();
            found.push((index + 1, name, len));
        }
    }
    found
}

/// The name of the function that a line declares.
fn name(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("fn ")?;
    let is_declared = before.is_empty() || before.ends_with(' ');
    let name: String = rest
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (is_declared && !name.is_empty()).then_some(name)
}

/// The lines where the body begins and ends; `None` if there is none.
fn body(lines: &[String], first: usize, from: usize) -> Option<(usize, usize)> {
    let (mut depth, mut round) = (0, 0);
    let mut start = None;
    for (index, line) in lines.iter().enumerate().skip(first) {
        let from = if index == first { from } else { 0 };
        for c in line[from..].chars() {
            match c {
                '(' | '[' => round += 1,
                ')' | ']' => round -= 1,
                ';' if start.is_none() && round == 0 => return None,
                '{' => {
                    start.get_or_insert(index);
                    depth += 1;
                }
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some((start?, index));
                    }
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn lines_of_code_are_counted() {
        let short = format!(
            "fn short() {{\n{}}}\n",
            "    one();\n    // why\n\n".repeat(70)
        );
        let long = format!(
            "impl A {{\n    fn long(a: [u8; 3])\n    where\n        B: C,\n    {{\n{}    }}\n}}\n",
            "one();\n".repeat(71)
        );
        let text = format!("trait T {{\n    fn none(&self);\n}}\n{short}{long}");
        let source = Source::new(Path::new("crates/a/src/b.rs"), &text);
        let line = text
            .lines()
            .position(|line| line.contains("fn long"))
            .expect("it is there")
            + 1;
        assert_eq!(
            long_names(&source),
            [format!("crates/a/src/b.rs:{line}: long: 71")]
        );
    }

    fn long_names(source: &Source) -> Vec<String> {
        let lines = source.lines.clone();
        let path = source.path.clone();
        long(&[Source { path, lines }])
    }
}
