//! Golden conversations: `tests/conversations/VERSION/*.txt`.
//!
//! Lines of a file, in this order and repeated as often as needed:
//!
//! ```text
//! # what the conversation shows
//! > input: see `Talk::input` of the version
//! = something the caller does: see `Talk::act`
//! ! event
//! < output
//! ```
//!
//! Lines `!` and `<` are the expected result; `UPDATE_EXPECT=1` rewrites them. Every conversation
//! is run three times: blocks of `>` lines whole, byte by byte, and in pieces of 7.

use std::fs;
use std::path::{Path, PathBuf};

/// A connection of one version under test, and what drives it.
pub(crate) trait Talk {
    /// A new connection.
    fn begin() -> Self;

    /// The bytes of a `>` line.
    fn input(line: &str) -> Vec<u8>;

    /// A piece of input arrives.
    fn feed(&mut self, piece: &[u8]);

    /// Does what a `=` line says.
    fn act(&mut self, what: &str);

    /// The `!` and `<` lines since the last call.
    fn take_record(&mut self) -> String;
}

/// Holds all conversations of a version, at least so many.
pub(crate) fn go_as_written<T: Talk>(version: &str, least: usize) {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut failures = Vec::new();
    let files = files(version);
    assert!(
        files.len() >= least,
        "conversations are in place, found {}",
        files.len()
    );
    for path in &files {
        let text = fs::read_to_string(path).expect("a readable conversation");
        let found = hold::<T>(&text, usize::MAX);
        for piece_len in [1, 7] {
            assert_eq!(
                hold::<T>(&text, piece_len),
                found,
                "{} in pieces",
                path.display()
            );
        }
        if found == text {
            continue;
        }
        if update {
            fs::write(path, found).expect("a writable conversation");
        } else {
            failures.push(format!(
                "{}\nexpected:\n{text}\nfound:\n{found}",
                path.display()
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn files(version: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
    let entries = fs::read_dir(folder.join(version)).expect("the folder of conversations");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// Runs a conversation; returns the file as it should be.
fn hold<T: Talk>(text: &str, piece_len: usize) -> String {
    let mut talk = T::begin();
    let mut result = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (kind, rest) = line.split_at_checked(2).unwrap_or((line, ""));
        if matches!(kind, "! " | "< ") {
            continue;
        }
        result.push_str(line);
        result.push('\n');
        match kind {
            "# " => continue,
            "> " => {
                let mut bytes = T::input(rest);
                while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
                    result.push_str(more);
                    result.push('\n');
                    bytes.extend(T::input(&more[2..]));
                }
                for piece in bytes.chunks(piece_len.min(bytes.len().max(1))) {
                    talk.feed(piece);
                }
            }
            "= " => talk.act(rest),
            _ => panic!("not a line of a conversation: {line}"),
        }
        result.push_str(&talk.take_record());
    }
    result
}
