//! Checks rules that neither the compiler nor clippy covers, with file and line.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::shape;
use xtask::process;

mod dependencies;
mod links;
pub(crate) mod source;

/// Maximum number of lines in a Rust file, including its tests.
const FILE_LINES_MAX: usize = 800;

/// Files that the project must have.
const REQUIRED: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"];

/// A violated rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the root.
    pub(crate) file: PathBuf,
    /// Line, from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// What is wrong, and what to do.
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.line {
            0 => write!(f, "{file}: {}", self.what),
            line => write!(f, "{file}:{line}: {}", self.what),
        }
    }
}

/// `cargo xtask tidy`.
pub(crate) fn main() -> Result<()> {
    let root = process::root();
    let mut findings = Vec::new();
    for name in REQUIRED.iter().filter(|name| !root.join(name).is_file()) {
        findings.push(Finding {
            file: name.into(),
            line: 0,
            what: "is missing".into(),
        });
    }
    let files = files(&root)?;
    for file in &files {
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            continue;
        };
        if file.extension().is_some_and(|e| e == "rs") {
            check_rust(file, &text, &mut findings);
        } else if file.extension().is_some_and(|e| e == "md") {
            links::check(&root, file, &text, &mut findings);
        }
    }
    dependencies::check(&root, &mut findings)?;
    shape::check(&root, &mut findings)?;
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    println!("tidy: {} files, nothing found", files.len());
    Ok(())
}

/// The Rust and Markdown files below `root`, except for built, downloaded and hidden ones.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let left_out = ["target", "node_modules", "corpus", "artifacts", "work"];
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = directory.join(&name);
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && !left_out.contains(&name.as_str()) {
                    directories.push(path);
                }
            } else if name.ends_with(".rs") || name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn check_rust(file: &Path, text: &str, findings: &mut Vec<Finding>) {
    let mut find = |line: usize, what: &str| {
        findings.push(Finding {
            file: file.to_owned(),
            line,
            what: what.to_owned(),
        });
    };
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        find(
            0,
            &format!("{lines} lines (limit: {FILE_LINES_MAX}); split it by concern"),
        );
    }
    // Comments are searched for markers, code without comments and strings for everything else.
    let split = source::split(text);
    let engine = file.starts_with("crates/gannet-io");
    let is_product = is_product(file);
    let in_tests = source::test_lines(file, &split);
    for (index, line) in split.iter().enumerate() {
        let number = index + 1;
        for mark in [
            concat!("TO", "DO"),
            concat!("FIX", "ME"),
            concat!("XX", "X"),
        ] {
            if source::has_word(&line.comment, mark) {
                find(
                    number,
                    &format!("{mark}: do it, or open an issue and say what holds now"),
                );
            }
        }
        for name in ["dbg", "todo", "unimplemented"] {
            if source::has_word(&line.code, name) && line.code.contains(&format!("{name}!")) {
                find(
                    number,
                    &format!("{name}! is for the desk, not for the repository"),
                );
            }
        }
        for name in ["print", "println", "eprint", "eprintln"] {
            let is_it = line.code.contains(&format!("{name}!"));
            if is_product && !in_tests[index] && is_it && source::has_word(&line.code, name) {
                find(
                    number,
                    &format!("{name}! panics and waits; gannet_server::notices does neither"),
                );
            }
        }
        if source::has_word(&line.code, "unsafe") {
            if !engine {
                find(number, "unsafe is for gannet-io alone");
            } else if source::is_unsafe_block(&line.code) && !has_safety(&split, index) {
                find(number, "unsafe without a comment that starts with SAFETY:");
            }
        }
        let code: String = line.code.chars().filter(|c| !c.is_whitespace()).collect();
        if code.starts_with("#[ignore") {
            find(
                number,
                "an ignored test proves nothing; say at run time why it cannot run",
            );
        }
        if in_tests[index] && code.contains("thread::sleep(") {
            find(number, "a test waits for a condition, not for a time");
        }
    }
}

/// Whether the file is part of the installed program: not a test, an example, a chore or test
/// support.
pub(crate) fn is_product(file: &Path) -> bool {
    let mut parts = file.iter();
    parts.next().is_some_and(|part| part == "crates")
        && parts.next().is_some_and(|part| part != "gannet-testkit")
        && parts.next().is_some_and(|part| part == "src")
}

/// Whether the block on line `index` has its reason on that line or in the comment above.
fn has_safety(split: &[source::Line], index: usize) -> bool {
    let says = |line: &source::Line| line.comment.contains("SAFETY:");
    if says(&split[index]) {
        return true;
    }
    // The statement may begin on earlier lines; its comment is directly above it.
    let mut code_lines = 0;
    for line in split[..index].iter().rev() {
        if says(line) {
            return true;
        }
        if line.code.trim().is_empty() {
            if line.comment.is_empty() {
                return false;
            }
            continue;
        }
        code_lines += 1;
        let ends = line.code.trim_end().ends_with([';', '}']);
        if ends || code_lines > 6 {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, text: &str, expect: &[usize]) {
        let mut findings = Vec::new();
        check_rust(Path::new(file), text, &mut findings);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expect, "{findings:?}");
    }

    #[test]
    fn marks_are_found_in_comments_only() {
        let mark = concat!("TO", "DO");
        check(
            "src/a.rs",
            &format!("// {mark}: later\nlet a = \"{mark}\";\n/* {mark} */\n"),
            &[1, 3],
        );
        check("src/a.rs", &format!("// {mark}S and MEXICO\n"), &[]);
        check("src/a.rs", "fn a() { dbg!(1); }\nlet dbg = 1;\n", &[1]);
    }

    #[test]
    fn unsafe_needs_its_place_and_its_reason() {
        check(
            "crates/gannet-http/src/a.rs",
            "let a = unsafe { f() };\n",
            &[1],
        );
        check(
            "crates/gannet-io/src/a.rs",
            "let a = unsafe { f() };\n",
            &[1],
        );
        check(
            "crates/gannet-io/src/a.rs",
            "// SAFETY: f is good\nlet a = unsafe { f() };\n",
            &[],
        );
        let split = "// SAFETY: good,\n// really\nlet a = g(\n    unsafe { f() },\n);\n";
        check("crates/gannet-io/src/a.rs", split, &[]);
        let other = "// SAFETY: of b\nlet b = unsafe { g() };\nlet a = unsafe { f() };\n";
        check("crates/gannet-io/src/a.rs", other, &[3]);
        check(
            "crates/gannet-io/src/a.rs",
            "unsafe fn f() {}\nunsafe impl Send for A {}\n",
            &[2],
        );
        check(
            "crates/gannet-http/src/a.rs",
            "#![forbid(unsafe_code)]\n// unsafe\n",
            &[],
        );
    }

    #[test]
    fn tests_do_not_sleep_and_are_not_ignored() {
        let text = "fn a() { thread::sleep(t); }\n#[cfg(test)]\nmod tests {\n    #[test]\n    \
                    #[ignore]\n    fn b() { std::thread::sleep(t); }\n}\n";
        check("src/a.rs", text, &[5, 6]);
        check("tests/a.rs", "fn a() { thread::sleep(t); }\n", &[1]);
    }

    #[test]
    fn the_product_does_not_print() {
        let text = "fn a() { eprintln!(); }\n#[cfg(test)]\nmod tests {\n    fn b() { print!(); }\n}\n\
                    fn c() { writeln!(out, \"println!\")}\n";
        check("crates/gannet/src/a.rs", text, &[1]);
        for file in [
            "crates/gannet/examples/a.rs",
            "xtask/src/a.rs",
            "lab/src/a.rs",
        ] {
            check(file, text, &[]);
        }
        check("crates/gannet-testkit/src/a.rs", text, &[]);
    }

    #[test]
    fn long_files_are_found() {
        check("src/a.rs", &"\n".repeat(FILE_LINES_MAX), &[]);
        check("src/a.rs", &"\n".repeat(FILE_LINES_MAX + 1), &[0]);
    }
}
