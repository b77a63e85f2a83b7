//! The requests of the clients in a run.

use gannet_io::sim::Random;

use crate::client::{Ask, Asked, Kind};
use crate::files::Files;
use crate::run::Scenario;

/// The HTTP/1 requests of a client, in order.
pub(crate) fn asks(
    files: &Files,
    scenario: Scenario,
    is_rude: bool,
    random: &mut Random,
) -> Vec<Ask> {
    let paths = files.paths();
    let most = if random.chance(100) { 30 } else { 5 };
    let count = 1 + random.below(most);
    let mut asks = Vec::new();
    for number in 0..count {
        let path = paths[random.below(paths.len() as u64) as usize].clone();
        let mut ask = ask(path, files, scenario, random);
        let is_last = number + 1 == count;
        if is_rude && random.chance(150) {
            ask = nonsense(random);
        }
        // After the last response a polite client sends nothing more.
        if ask.closes && !is_rude && !is_last {
            continue;
        }
        asks.push(ask);
    }
    if asks.is_empty() {
        asks.push(Ask {
            kind: Kind::Options,
            raw: b"OPTIONS / HTTP/1.1\r\nhost: sim\r\n\r\n".to_vec(),
            parts: ("OPTIONS".into(), "/".into(), String::new()),
            is_head: false,
            closes: false,
            sent_at: None,
        });
    }
    asks
}

/// One request for a path, or for something else.
pub(crate) fn ask(path: String, files: &Files, scenario: Scenario, random: &mut Random) -> Ask {
    let is_head = random.chance(150);
    let method = if is_head { "HEAD" } else { "GET" };
    let mut closes = random.chance(100);
    let is_old = random.chance(150);
    let mut fields = String::new();
    if is_old {
        // RFC 9112 section 9.3: an HTTP/1.0 client has to request a persistent connection.
        closes = random.chance(500);
        if !closes {
            fields.push_str("connection: keep-alive\r\n");
        }
    } else if closes {
        fields.push_str("connection: close\r\n");
    }
    let mut lines = String::new();
    let (kind, target) = match random.below(20) {
        0 => (Kind::Missing, "/no/such/thing.png".to_owned()),
        1 => (Kind::Options, "/".to_owned()),
        2 if scenario.is_live => (Kind::Folder, "/img?q=1".to_owned()),
        3 if scenario.is_live => (Kind::Listing, "/img/".to_owned()),
        4 => {
            let content = 1 + random.below(300);
            fields.push_str(&format!("content-length: {content}\r\n"));
            let target = format!("/{path}");
            let body = "x".repeat(content as usize);
            let version = if is_old { "1.0" } else { "1.1" };
            let raw = format!("POST {target} HTTP/{version}\r\nhost: sim\r\n{fields}\r\n{body}");
            return Ask {
                kind: Kind::OtherMethod,
                raw: raw.into_bytes(),
                parts: ("POST".into(), target, String::new()),
                is_head: false,
                closes,
                sent_at: None,
            };
        }
        _ => {
            let asked;
            (asked, lines) = self::asked(&path, is_head, files, random);
            fields.push_str(&lines);
            let target = match path.strip_suffix("index.html") {
                Some(folder) if random.chance(500) => format!("/{folder}"),
                _ => format!("/{path}"),
            };
            (Kind::File(path, asked), target)
        }
    };
    let method = if matches!(kind, Kind::Options) {
        "OPTIONS"
    } else {
        method
    };
    let version = if is_old { "1.0" } else { "1.1" };
    let raw = format!("{method} {target} HTTP/{version}\r\nhost: sim\r\n{fields}\r\n");
    Ask {
        is_head: method == "HEAD",
        kind,
        raw: raw.into_bytes(),
        parts: (method.to_owned(), target, lines),
        closes,
        sent_at: None,
    }
}

fn asked(path: &str, is_head: bool, files: &Files, random: &mut Random) -> (Asked, String) {
    let mut asked = Asked {
        is_head,
        ..Asked::default()
    };
    let mut fields = String::new();
    if random.chance(200) {
        let first = random.below(40_000);
        let last = first + random.below(40_000);
        fields.push_str(&format!("range: bytes={first}-{last}\r\n"));
        asked.range = Some((first, last));
    } else if random.chance(80) {
        let at = random.below(3_000);
        fields.push_str(&format!(
            "range: bytes={at}-{},{}-\r\n",
            at + 10,
            at + 3_000
        ));
        asked.has_many_ranges = true;
    }
    if random.chance(500) {
        asked.accepts = CODINGS[random.below(CODINGS.len() as u64) as usize];
        fields.push_str(&format!("accept-encoding: {}\r\n", asked.accepts));
    }
    let tag = files.some_tag(path, random);
    if let Some(tag) = tag.filter(|_| random.chance(300)) {
        let (name, slot) = match random.below(3) {
            0 => ("if-none-match", &mut asked.if_none_match),
            1 => ("if-match", &mut asked.if_match),
            _ => ("if-range", &mut asked.if_range),
        };
        fields.push_str(&format!("{name}: {tag}\r\n"));
        *slot = Some(tag);
    }
    (asked, fields)
}

/// What clients accept.
const CODINGS: [&str; 4] = ["gzip", "br", "zstd;q=0.5", "gzip, deflate, br, zstd"];

/// An invalid request.
pub(crate) fn nonsense(random: &mut Random) -> Ask {
    let raws: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\nhost: a\n\n",
        b"GET /%00 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
    ];
    Ask {
        kind: Kind::Malformed,
        raw: raws[random.below(raws.len() as u64) as usize].to_vec(),
        parts: ("GET".into(), "/%00".into(), String::new()),
        is_head: false,
        closes: true,
        sent_at: None,
    }
}
