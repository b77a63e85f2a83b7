//! Golden conversations: `tests/conversations/h1/*.txt`.
//!
//! Lines of a file, in this order and repeated as often as needed:
//!
//! ```text
//! # what the conversation shows
//! > bytes in: escapes as in Rust, `{text*count}` repeats
//! = drain, or timeout: something the caller does
//! ! event
//! < bytes out
//! ```
//!
//! Lines `!` and `<` are the expected result; `UPDATE_EXPECT=1` rewrites them. Every conversation
//! is run three times: blocks of `>` lines whole, byte by byte, and in pieces of 7.

use std::fs;
use std::path::{Path, PathBuf};

use super::fuzz_checks::peer::Peer;

#[test]
fn conversations_go_as_written() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut failures = Vec::new();
    let files = files();
    assert!(
        files.len() >= 40,
        "conversations are in place, found {}",
        files.len()
    );
    for path in &files {
        let text = fs::read_to_string(path).expect("a readable conversation");
        let found = hold(&text, usize::MAX);
        for piece_len in [1, 7] {
            assert_eq!(
                hold(&text, piece_len),
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

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations/h1");
    let entries = fs::read_dir(folder).expect("the folder of conversations");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

/// Runs a conversation; returns the file as it should be.
fn hold(text: &str, piece_len: usize) -> String {
    let mut peer = Peer::new();
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
                let mut bytes = unescape(rest);
                while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
                    result.push_str(more);
                    result.push('\n');
                    bytes.extend(unescape(&more[2..]));
                }
                for piece in bytes.chunks(piece_len.min(bytes.len().max(1))) {
                    peer.feed(piece);
                }
            }
            "= " if rest == "drain" => peer.connection.drain(),
            "= " if rest == "timeout" => peer.time_out(),
            _ => panic!("not a line of a conversation: {line}"),
        }
        result.push_str(&std::mem::take(&mut peer.record));
    }
    result
}

/// Bytes of a `>` line.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '{' => {
                let end = rest.find('}').expect("a closed repetition");
                let (repeated, count) = rest[1..end].rsplit_once('*').expect("a count");
                let count = count.parse().expect("a number");
                bytes.extend(unescape(repeated).repeat(count));
                end + 1
            }
            '\\' => {
                let (byte, len) = match rest.as_bytes()[1] {
                    b'r' => (b'\r', 2),
                    b'n' => (b'\n', 2),
                    b't' => (b'\t', 2),
                    b'x' => (u8::from_str_radix(&rest[2..4], 16).expect("two digits"), 4),
                    other => panic!("no such escape: {other}"),
                };
                bytes.push(byte);
                len
            }
            other => {
                bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                other.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    bytes
}
