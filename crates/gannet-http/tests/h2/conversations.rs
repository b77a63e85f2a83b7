//! Golden conversations: `tests/conversations/h2/*.txt`.
//!
//! Lines of a file, in this order and repeated as often as needed:
//!
//! ```text
//! # what the conversation shows
//! > a frame in, or other input: see `parse`
//! = drain, answer, abort, pause, resume, room, wait: something the caller does
//! ! event
//! < a frame out
//! ```
//!
//! Lines `!` and `<` are the expected result; `UPDATE_EXPECT=1` rewrites them. Every conversation
//! is run three times: blocks of `>` lines whole, byte by byte, and in pieces of 7.

use std::fs;
use std::path::{Path, PathBuf};

use gannet_http::h2::{ErrorCode, StreamId};

use super::h2_checks::peer::Peer;
use super::h2_checks::wire;

#[test]
fn conversations_go_as_written() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut failures = Vec::new();
    let files = files();
    assert!(
        files.len() >= 30,
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
            fs::write(path, &found).expect("a writable conversation");
        } else {
            failures.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(
        failures.is_empty(),
        "conversations differ:\n{}",
        failures.join("\n")
    );
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations/h2");
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
    // How many bytes are taken from the server after each step.
    let mut room = u32::MAX;
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
                let mut bytes = parse(rest);
                while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
                    result.push_str(more);
                    result.push('\n');
                    bytes.extend(parse(&more[2..]));
                }
                for piece in bytes.chunks(piece_len.min(bytes.len().max(1))) {
                    peer.feed(piece);
                }
            }
            "= " => act(&mut peer, rest, &mut room),
            _ => panic!("not a line of a conversation: {line}"),
        }
        peer.poll_up_to(room);
        result.push_str(&std::mem::take(&mut peer.record));
    }
    result
}

/// Performs the action of a `=` line.
fn act(peer: &mut Peer, what: &str, room: &mut u32) {
    let (verb, argument) = what.split_once(' ').unwrap_or((what, "0"));
    let number: u32 = argument.parse().expect("a number");
    match verb {
        "drain" => peer.connection.drain(peer.now),
        "answer" => peer.answer_held(),
        "abort" => peer
            .connection
            .abort(StreamId(number), ErrorCode::INTERNAL_ERROR),
        "pause" => peer.connection.pause(StreamId(number)),
        "resume" => peer.connection.resume(StreamId(number)),
        "room" => *room = number,
        "wait" => {
            peer.wait_ms(number.into());
            // The output of the timeout may be followed by more.
            peer.feed(&[]);
        }
        other => panic!("not an action: {other}"),
    }
}

/// The bytes of a `>` line: `preface`, `text ...`, or a frame: its type by name or number, flags by
/// name or `+0x..`, `@stream`, and the payload: `name=value` fields as literals, `hex:..`,
/// `u32:..`, `u16:..`, `zeros:count`, `fields:count`, `text:..`.
fn parse(line: &str) -> Vec<u8> {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    match kind {
        "preface" => return wire::PREFACE.to_vec(),
        "text" => return rest.as_bytes().to_vec(),
        _ => {}
    }
    let known = wire::KINDS.iter().find(|(name, _)| *name == kind);
    let kind = known.map_or_else(|| kind.parse().expect("a type"), |(_, kind)| *kind);
    let (mut flags, mut stream, mut payload) = (0, 0, Vec::new());
    for word in rest.split(' ').filter(|word| !word.is_empty()) {
        match word {
            "END_STREAM" | "ACK" => flags |= 1,
            "END_HEADERS" => flags |= 4,
            "PADDED" => flags |= 8,
            "PRIORITY" => flags |= 0x20,
            "GET" => payload.extend(wire::block(&[(":method", "GET"), (":scheme", "http")])),
            _ if word.starts_with('@') => stream = word[1..].parse().expect("a stream"),
            _ => payload.extend(parse_payload(word)),
        }
    }
    wire::frame(kind, flags, stream, &payload)
}

fn parse_payload(word: &str) -> Vec<u8> {
    let number = |text: &str| -> u32 { text.parse().expect("a number") };
    match word.split_once(':') {
        Some(("hex", digits)) => (0..digits.len() / 2)
            .map(|at| u8::from_str_radix(&digits[2 * at..][..2], 16).expect("two digits"))
            .collect(),
        Some(("u32", text)) => number(text).to_be_bytes().to_vec(),
        Some(("u16", text)) => (number(text) as u16).to_be_bytes().to_vec(),
        Some(("zeros", text)) => vec![0; number(text) as usize],
        Some(("text", text)) => text.as_bytes().to_vec(),
        Some(("fields", text)) => wire::block(&[("x", "y")]).repeat(number(text) as usize),
        _ => {
            // Names of pseudo-fields begin with a colon; `~` stands for a space.
            let (name, value) = word.split_once('=').expect("a field");
            let value = value.replace('~', " ");
            match value.split_once('*') {
                Some((repeated, count)) if count.parse::<usize>().is_ok() => {
                    wire::block(&[(name, &repeated.repeat(number(count) as usize))])
                }
                _ => wire::block(&[(name, &value)]),
            }
        }
    }
}
