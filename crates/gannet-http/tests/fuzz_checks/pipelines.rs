//! A model of HTTP/1 that shares nothing with the product: it reads a whole byte stream at once and
//! determines which requests a server has to find in it, and where the connection ends.
//!
//! The generator writes pipelines whose content looks like requests. A server that loses its place
//! in the stream sends an answer that the model does not expect.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

/// The most content, with its chunk framing, after which a connection continues.
const DISCARD_MAX: usize = 64 * 1024;

/// A source of random numbers; equal seeds give equal numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// What a server has to find in a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Seen {
    /// A request with this method and target.
    Request { method: String, target: String },
    /// A message that has to be rejected; nothing follows it.
    Refused {
        /// It may be a `HEAD`, whose answer has no content.
        is_head: bool,
    },
}

/// What follows the last message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Then {
    /// The connection stays.
    Open,
    /// It ends.
    Closed,
}

/// Reads a stream from its beginning.
pub fn read(stream: &[u8]) -> (Vec<Seen>, Then) {
    let mut seen = Vec::new();
    let mut rest = stream;
    loop {
        let Some(message) = Message::read(&mut rest) else {
            return (seen, Then::Open);
        };
        let message = match message {
            Ok(message) => message,
            Err(is_head) => {
                seen.push(Seen::Refused { is_head });
                return (seen, Then::Closed);
            }
        };
        seen.push(Seen::Request {
            method: message.method,
            target: message.target,
        });
        let content = match message.framing {
            Framing::None => Content::Ended(0),
            Framing::Length(len) if len > DISCARD_MAX as u64 => Content::Unusable,
            Framing::Length(len) if len > rest.len() as u64 => Content::Open,
            Framing::Length(len) => Content::Ended(len as usize),
            Framing::Chunked => chunked_len(rest),
        };
        match content {
            _ if message.closes => return (seen, Then::Closed),
            Content::Ended(len) => rest = &rest[len..],
            Content::Open => return (seen, Then::Open),
            Content::Unusable => return (seen, Then::Closed),
        }
    }
}

enum Framing {
    None,
    Length(u64),
    Chunked,
}

enum Content {
    /// It has this many bytes.
    Ended(usize),
    /// Its end is missing.
    Open,
    /// It is malformed, or too long to be discarded.
    Unusable,
}

struct Message {
    method: String,
    target: String,
    framing: Framing,
    closes: bool,
}

impl Message {
    /// Takes a head off the input; `None` if its end is missing. A malformed one may be that of a
    /// `HEAD`.
    fn read(rest: &mut &[u8]) -> Option<Result<Self, bool>> {
        *rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        let text: String = rest.iter().map(|&byte| char::from(byte)).collect();
        let end = text.find("\r\n\r\n")?;
        *rest = &rest[end + 4..];
        let head = &text[..end];
        Some(Self::parse(head).map_err(|()| head.starts_with("HEAD ")))
    }

    fn parse(head: &str) -> Result<Self, ()> {
        let mut lines = head.split("\r\n");
        let parts: Vec<&str> = lines.next().ok_or(())?.split(' ').collect();
        let [method, target, version] = parts[..] else {
            return Err(());
        };
        let is_old = match version {
            "HTTP/1.1" => false,
            "HTTP/1.0" => true,
            _ => return Err(()),
        };
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(())?;
            if name.is_empty() || name.contains([' ', '\t']) || value.contains(['\r', '\n']) {
                return Err(());
            }
            fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])));
        }
        let all = |name: &str| -> Vec<&str> {
            let named = fields.iter().filter(|(n, _)| n == name);
            named.map(|(_, value)| *value).collect()
        };
        if all("host").len() != 1 && !is_old || all("host").len() > 1 {
            return Err(());
        }
        let expects = match all("expect")[..] {
            _ if is_old => false,
            [] => false,
            ["100-continue"] => true,
            _ => return Err(()),
        };
        let framing = match (&all("content-length")[..], &all("transfer-encoding")[..]) {
            ([], []) => Framing::None,
            ([len], []) if !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit()) => {
                match len.parse().map_err(|_| ())? {
                    0 => Framing::None,
                    len => Framing::Length(len),
                }
            }
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && !is_old => Framing::Chunked,
            _ => return Err(()),
        };
        let options: Vec<String> = all("connection")
            .iter()
            .flat_map(|line| line.split(','))
            .map(|option| option.trim().to_ascii_lowercase())
            .collect();
        let has = |option: &str| options.iter().any(|o| o == option);
        let waits = expects && !matches!(framing, Framing::None);
        Ok(Self {
            method: method.into(),
            target: target.into(),
            framing,
            closes: has("close") || is_old && !has("keep-alive") || waits,
        })
    }
}

/// The length of chunked content (RFC 9112 section 7.1).
fn chunked_len(input: &[u8]) -> Content {
    let mut at = 0;
    // Only this much is inspected: longer content is too long, whether well formed or not.
    let input_len = input.len();
    let input = &input[..input_len.min(DISCARD_MAX + 1)];
    let line = |at: usize| -> Option<&[u8]> {
        let end = input[at..].windows(2).position(|two| two == b"\r\n")?;
        Some(&input[at..at + end])
    };
    let incomplete = || match input_len > DISCARD_MAX {
        true => Content::Unusable,
        false => Content::Open,
    };
    loop {
        let Some(size) = line(at) else {
            return incomplete();
        };
        at += size.len() + 2;
        let digits = size.split(|&b| b == b';').next().unwrap_or_default();
        let digits = std::str::from_utf8(digits).unwrap_or("x");
        let is_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let Some(len) = usize::from_str_radix(digits, 16).ok().filter(|_| is_hex) else {
            return Content::Unusable;
        };
        if len == 0 {
            break;
        }
        let Some(end) = input.get(at.saturating_add(len)..at.saturating_add(len + 2)) else {
            return match len > DISCARD_MAX {
                true => Content::Unusable,
                false => incomplete(),
            };
        };
        if end != b"\r\n" {
            return Content::Unusable;
        }
        at += len + 2;
    }
    loop {
        let Some(trailer) = line(at) else {
            return incomplete();
        };
        at += trailer.len() + 2;
        let name_len = trailer.iter().position(|&b| b == b':').unwrap_or(0);
        let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
        if !trailer.is_empty() && (name_len == 0 || !trailer[..name_len].iter().all(is_name)) {
            return Content::Unusable;
        }
        if trailer.is_empty() {
            return match at > DISCARD_MAX {
                true => Content::Unusable,
                false => Content::Ended(at),
            };
        }
    }
}

/// Writes a pipeline. Targets are drawn from `targets`, and none is used again while others are
/// left: a server that answers from stale memory reveals that by another path.
pub fn write(dice: &mut Dice, targets: &mut Vec<String>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + dice.below(6) {
        let target = match targets.is_empty() {
            true => "/".into(),
            false => targets.swap_remove(dice.below(targets.len())),
        };
        write_request(dice, &target, targets, &mut out);
    }
    out
}

fn write_request(dice: &mut Dice, target: &str, targets: &[String], out: &mut Vec<u8>) {
    if dice.below(12) == 0 {
        out.extend(b"\r\n");
    }
    let method = dice.one(&[
        "GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "X-Y",
    ]);
    let version = dice.one(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"]);
    out.extend(format!("{method} {target} {version}\r\nhost: test\r\n").bytes());
    match dice.below(24) {
        0 => out.extend(b"connection: close\r\n"),
        1..4 => out.extend(b"Connection: x, Keep-Alive\r\n"),
        4 => out.extend(b"expect: 100-continue\r\n"),
        _ => {}
    }
    let content = content(dice, targets);
    match dice.below(20) {
        0..7 => out.extend(b"\r\n"),
        7..13 => {
            out.extend(format!("Content-Length: {}\r\n\r\n", content.len()).bytes());
            out.extend(content);
        }
        13..18 => {
            out.extend(b"transfer-encoding: chunked\r\n\r\n");
            write_chunks(dice, &content, out);
        }
        18 => {
            let both = "Content-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n";
            out.extend(both.bytes());
        }
        _ => out.extend(b"Content-Length: +3\r\n\r\nabc"),
    }
}

/// Content that looks like requests, or like chunks of them.
fn content(dice: &mut Dice, targets: &[String]) -> Vec<u8> {
    let mut content = Vec::new();
    for _ in 0..dice.below(3) {
        let target = match targets.is_empty() {
            true => "/",
            false => &targets[dice.below(targets.len())],
        };
        match dice.below(4) {
            0 => content.extend(b"0\r\n\r\n"),
            1 => content.extend(vec![b'x'; dice.below(2_000)]),
            _ => content.extend(format!("GET {target} HTTP/1.1\r\nhost: test\r\n\r\n").bytes()),
        }
    }
    if dice.below(40) == 0 {
        content.resize(DISCARD_MAX - 40 + dice.below(80), b'y');
    }
    content
}

fn write_chunks(dice: &mut Dice, content: &[u8], out: &mut Vec<u8>) {
    let mut rest = content;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(1 + dice.below(rest.len()));
        let extension = dice.one(&["", "", ";a=b", ";GET"]);
        out.extend(format!("{:x}{extension}\r\n", chunk.len()).bytes());
        out.extend(chunk);
        out.extend(match dice.below(40) {
            0 => b"xx",
            _ => b"\r\n",
        });
        rest = after;
    }
    out.extend(match dice.below(20) {
        0 => b"g\r\n\r\n".as_slice(),
        1 => b"0\r\nGET / HTTP/1.1: x\r\n\r\n",
        2..5 => b"0\r\nx-trailer: y\r\n\r\n",
        _ => b"0\r\n\r\n",
    });
}

/// Cuts a stream into pieces, none of them empty.
pub fn cut(dice: &mut Dice, stream: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = stream;
    let most = match dice.below(3) {
        0 => 7,
        1 => 120,
        _ => stream.len(),
    };
    // Few enough that a slow writer does not run into a deadline.
    let most = most.max(stream.len() / 50);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + dice.below(most)).min(rest.len()));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

/// An answer, without its variable parts.
#[derive(Debug, Eq, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub content: Vec<u8>,
}

/// Reads the answers to `seen` off a stream. `None` if there is anything else in it.
pub fn answers(stream: &[u8], seen: &[Seen]) -> Option<Vec<Answer>> {
    let mut answers = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let head_len = rest.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&rest[..head_len]).ok()?;
        let status: u16 = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let mut lines = head.split("\r\n");
        let len = lines.find_map(|line| line.strip_prefix("Content-Length: "));
        let is_head = match seen.get(answers.len()) {
            Some(Seen::Request { method, .. }) => method == "HEAD",
            Some(Seen::Refused { is_head }) => *is_head,
            None => false,
        };
        let len: usize = match len {
            Some(_) if is_head || status == 304 => 0,
            Some(len) => len.parse().ok()?,
            None => 0,
        };
        answers.push(Answer {
            status,
            content: rest.get(head_len..head_len + len)?.to_vec(),
        });
        rest = &rest[head_len + len..];
    }
    Some(answers)
}

/// How a server has left a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// It is still open.
    No,
    /// In order.
    Closed,
    /// With a reset, which may have destroyed answers.
    Reset,
    /// The client ended it first.
    ByClient,
}

/// What is wrong with a server's answers to a stream. `content` returns the content at a target.
pub fn judge(
    stream: &[u8],
    got: &[u8],
    ended: Ended,
    content: impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<(), String> {
    let (seen, then) = read(stream);
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let Some(answers) = answers(got, &seen) else {
        return Err(format!("no answers: {}", text(got)));
    };
    // A client that keeps sending after the last request may be reset before it reads the answers.
    let may_miss = ended == Ended::Reset && then == Then::Closed;
    for (number, what) in seen.iter().enumerate() {
        let answer = answers.get(number);
        if answer.is_none() && may_miss {
            break;
        }
        let is_right = match (what, answer) {
            (_, None) => false,
            (Seen::Refused { .. }, Some(answer)) => matches!(answer.status, 400 | 417 | 501 | 505),
            (Seen::Request { method, target }, Some(answer)) => {
                let is_get = method == "GET" || method == "HEAD";
                match (is_get, method.as_str(), content(target)) {
                    (true, _, Some(content)) => {
                        let is_body = method == "HEAD" || answer.content == content;
                        answer.status == 200 && is_body
                    }
                    (true, _, None) => answer.status == 404,
                    (false, "OPTIONS", _) => answer.status == 204,
                    (false, _, _) => answer.status == 405,
                }
            }
        };
        if !is_right {
            return Err(format!("{what:?} (number {number}) got {answer:?}"));
        }
    }
    if answers.len() > seen.len() {
        return Err(format!("unrequested: {:?}", &answers[seen.len()..]));
    }
    let is_right = match ended {
        Ended::No => then == Then::Open,
        Ended::Closed | Ended::Reset => then == Then::Closed,
        Ended::ByClient => true,
    };
    match is_right {
        true => Ok(()),
        false => Err(format!("the connection: {ended:?}, expected {then:?}")),
    }
}
