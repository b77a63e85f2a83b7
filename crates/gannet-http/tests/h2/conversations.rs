//! Golden conversations of HTTP/2: `tests/conversations/h2/*.txt`.

use gannet_http::h2::{ErrorCode, StreamId};

use super::golden::{self, Talk};
use super::h2_checks::peer::Peer;
use super::h2_checks::wire;

#[test]
fn conversations_go_as_written() {
    golden::go_as_written::<Conversation>("h2", 30);
}

struct Conversation {
    peer: Peer,
    /// How many bytes are taken from the server after each step.
    room: u32,
}

impl Talk for Conversation {
    fn begin() -> Self {
        Self {
            peer: Peer::new(),
            room: u32::MAX,
        }
    }

    /// `preface`, `text ...`, or a frame: its type by name or number, flags by name or `+0x..`,
    /// `@stream`, and the payload: `name=value` fields as literals, `hex:..`, `u32:..`, `u16:..`,
    /// `zeros:count`, `fields:count`, `text:..`.
    fn input(line: &str) -> Vec<u8> {
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

    fn feed(&mut self, piece: &[u8]) {
        self.peer.feed(piece);
    }

    fn act(&mut self, what: &str) {
        let peer = &mut self.peer;
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
            "room" => self.room = number,
            "wait" => {
                peer.wait_ms(number.into());
                // The output of the timeout may be followed by more.
                peer.feed(&[]);
            }
            other => panic!("not an action: {other}"),
        }
    }

    fn take_record(&mut self) -> String {
        self.peer.poll_up_to(self.room);
        std::mem::take(&mut self.peer.record)
    }
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
