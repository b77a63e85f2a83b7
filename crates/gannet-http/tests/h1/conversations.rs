//! Golden conversations of HTTP/1: `tests/conversations/h1/*.txt`.

use super::fuzz_checks::peer::Peer;
use super::golden::{self, Talk};

#[test]
fn conversations_go_as_written() {
    golden::go_as_written::<Peer>("h1", 40);
}

impl Talk for Peer {
    fn begin() -> Self {
        Self::new()
    }

    /// Bytes: escapes as in Rust, `{text*count}` repeats.
    fn input(line: &str) -> Vec<u8> {
        unescape(line)
    }

    fn feed(&mut self, piece: &[u8]) {
        self.feed(piece);
    }

    fn act(&mut self, what: &str) {
        match what {
            "drain" => self.connection.drain(),
            "timeout" => self.time_out(),
            other => panic!("not an action: {other}"),
        }
    }

    fn take_record(&mut self) -> String {
        std::mem::take(&mut self.record)
    }
}

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
