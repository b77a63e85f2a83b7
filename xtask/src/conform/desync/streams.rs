//! Streams of requests that programs may read differently, made from a number.
//!
//! Each request asks for `/d/STREAM/NUMBER`. Bodies hold requests with numbers from [`HIDDEN`] on, which
//! only a program that misreads the framing answers.

use std::ops::Range;

use xtask::random::SplitMix;

/// Requests within bodies have numbers from here on.
pub(super) const HIDDEN: u32 = 100;
/// The number of the request at the end of a stream, after which the connection is to be closed.
const LAST: u32 = 99;

/// Choices that depend on a seed alone.
struct Random(SplitMix);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        (self.0.next() % end as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Whether something happens that does in one of so many cases.
    fn in_one_of(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }
}

/// The bytes of a stream.
pub(super) fn stream(seed: u64, number: u32) -> Vec<u8> {
    let mut random = Random(SplitMix(seed ^ (u64::from(number) << 20)));
    let mut bytes = Vec::new();
    for index in 0..=random.below(2) as u32 {
        bytes.extend(request(&mut random, number, index));
    }
    bytes.extend(plain(number, LAST, "Connection: close\r\n").bytes());
    bytes
}

/// A request as everybody writes it.
fn plain(stream: u32, number: u32, more: &str) -> String {
    format!("GET /d/{stream}/{number} HTTP/1.1\r\nHost: site\r\n{more}\r\n")
}

const METHODS: [&str; 8] = ["GET", "GET", "GET", "GET", "GET", "POST", "PUT", "HEAD"];
const ODD_METHODS: [&str; 4] = ["OPTIONS", "DELETE", "get", "FOO"];
const ODD_VERSIONS: [&str; 6] = [
    "HTTP/1.0",
    "HTTP/1.2",
    "HTTP/2.0",
    "HTTP/0.9",
    "http/1.1",
    "HTTP/1.01",
];
/// What may stand where a line, a name or a value ends.
const ODDITIES: [&[u8]; 18] = [
    b"\r", b"\n", b"\0", b"\x0b", b"\x0c", b" ", b"\t", b"\x85", b"\xa0", b"\xff", b":", b";",
    b",", b"\"", b"\r\n", b"\n\n", b"\r\r\n", b"\x7f",
];

/// A request whose framing may be read in more than one way.
fn request(random: &mut Random, stream: u32, number: u32) -> Vec<u8> {
    let method = match random.in_one_of(12) {
        true => random.one_of(&ODD_METHODS),
        false => random.one_of(&METHODS),
    };
    let path = format!("/d/{stream}/{number}");
    let target = match random.below(32) {
        0 => format!("http://site{path}"),
        1 => format!("http://other:80{path}?a"),
        2 => format!("{path}?a=b#c"),
        3 => format!("{path} "),
        _ => path,
    };
    let version = match random.in_one_of(16) {
        true => random.one_of(&ODD_VERSIONS),
        false => "HTTP/1.1",
    };
    let (framing, body) = framing(random, stream, number);
    let mut fields = vec![b"Host: site".to_vec()];
    fields.extend(framing);
    match random.below(40) {
        0 => fields.push(b"Host: other".to_vec()),
        1 => fields.push(b"Connection: content-length".to_vec()),
        2 => fields.push(b"Connection: transfer-encoding, host".to_vec()),
        3 => fields.push(b"Expect: 100-continue".to_vec()),
        4 => {
            fields.push(b"Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk".to_vec())
        }
        5 => fields.push(b"Connection: keep-alive\r\nKeep-Alive: timeout=5".to_vec()),
        6 => fields.insert(0, b" X-Folded: at once".to_vec()),
        7 => fields.push(b"X-Folded: a\r\n Transfer-Encoding: chunked".to_vec()),
        8 => fields.push(b"Content-Type: a\r\n\tb".to_vec()),
        9 => fields.push(b"X-Http-Method-Override: POST".to_vec()),
        10 => fields.push(b"Trailer: Content-Length\r\nTE: trailers".to_vec()),
        11 => fields.push(vec![b'X'; 9_000]),
        _ => {}
    }
    if random.in_one_of(6) {
        let (one, other) = (random.below(fields.len()), random.below(fields.len()));
        fields.swap(one, other);
    }
    let end: &[u8] = match random.in_one_of(16) {
        true => random.one_of(&[b"\n", b"\r"]),
        false => b"\r\n",
    };
    let mut head = format!("{method} {target} {version}").into_bytes();
    for field in fields {
        head.extend_from_slice(end);
        head.extend(field);
    }
    head.extend_from_slice(end);
    head.extend_from_slice(end);
    if random.in_one_of(6) {
        // But for the target, which names the stream.
        let before = method.len() + 1;
        damage(random, &mut head, before..before + target.len());
    }
    head.extend(body);
    head
}

/// Replaces, inserts or removes a byte of a head outside a part of it.
fn damage(random: &mut Random, head: &mut Vec<u8>, whole: Range<usize>) {
    let mut at = random.below(head.len() - whole.len());
    if at >= whole.start {
        at += whole.len();
    }
    let (until, with): (usize, &[u8]) = match random.below(3) {
        0 => (at, random.one_of(&ODDITIES)),
        1 => (at + 1, random.one_of(&ODDITIES)),
        _ => (at + 1, b""),
    };
    head.splice(at..until, with.iter().copied());
}

/// The fields that frame a body, and the body.
fn framing(random: &mut Random, stream: u32, number: u32) -> (Vec<Vec<u8>>, Vec<u8>) {
    let inner = HIDDEN + number;
    let hidden = match random.below(4) {
        // The request after it becomes the value of a field.
        0 => format!("GET /d/{stream}/{inner} HTTP/1.1\r\nHost: site\r\nX: "),
        1 => "x=1".to_owned(),
        _ => plain(stream, inner, ""),
    };
    let chunked = chunks(random, hidden.as_bytes());
    let in_chunks = random.in_one_of(2);
    let body = match in_chunks {
        true => chunked,
        false => hidden.into_bytes(),
    };
    let length = content_length(random, body.len());
    let coding = transfer_encoding(random);
    let fields = match random.below(20) {
        0 => vec![length, coding],
        1 => vec![coding, length],
        2 => vec![length, content_length(random, 0)],
        3 => vec![coding, transfer_encoding(random)],
        4 => vec![],
        _ if in_chunks => vec![coding],
        _ => vec![length],
    };
    // What has no field is no body but further requests.
    (fields, body)
}

/// Mostly the true length, written in some way.
fn content_length(random: &mut Random, len: usize) -> Vec<u8> {
    let name = match random.below(24) {
        0 => "content-length:",
        1 => "Content-Length :",
        2 => "Content-Length\t:",
        3 => " Content-Length:",
        4 => "Content_Length:",
        5 => "Content-Length",
        _ => "Content-Length:",
    };
    let value = match random.below(48) {
        0 => format!("+{len}"),
        1 => format!("{len}, {len}"),
        2 => format!("{len},0"),
        3 => format!("0x{len:x}"),
        4 => format!("0{len}"),
        5 => format!("{len} 0"),
        6 => format!("\t{len}\t"),
        7 => format!("-{len}"),
        8 => format!("{len}.0"),
        9 => format!("{}{len}", "0".repeat(40)),
        10 => format!("18446744073709551616{len}"),
        11 => format!("{}", 1_u128 << 64 | len as u128),
        12 => format!("{len}\u{b}"),
        13 => "0".to_owned(),
        14 => format!("\"{len}\""),
        15 => String::new(),
        16 => format!("{len}e0"),
        _ => len.to_string(),
    };
    format!("{name} {value}").into_bytes()
}

fn transfer_encoding(random: &mut Random) -> Vec<u8> {
    if !random.in_one_of(3) {
        return b"Transfer-Encoding: chunked".to_vec();
    }
    let fields: [&[u8]; 26] = [
        b"transfer-encoding:chunked",
        b"Transfer-Encoding: Chunked",
        b"Transfer-Encoding:  chunked ",
        b"Transfer-Encoding: chunked,",
        b"Transfer-Encoding: ,chunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunkedx",
        b"Transfer-Encoding: \"chunked\"",
        b"Transfer-Encoding: 'chunked'",
        b"Transfer-Encoding: chunked;q=1",
        b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding: chunked\x0b",
        b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding: \xffchunked",
        b"Transfer-Encoding\t: chunked",
        b"Transfer-Encoding : chunked",
        b" Transfer-Encoding: chunked",
        b"X: y\rTransfer-Encoding: chunked",
        b"X: y\nTransfer-Encoding: chunked",
        b"Transfer_Encoding: chunked",
        b"Transfer-Encoding:",
    ];
    random.one_of(&fields).to_vec()
}

/// A body in one or two chunks, written in some way.
fn chunks(random: &mut Random, body: &[u8]) -> Vec<u8> {
    let cut = match random.in_one_of(3) {
        true => random.below(body.len()),
        false => body.len(),
    };
    let mut coded = Vec::new();
    for part in [&body[..cut], &body[cut..]] {
        if !part.is_empty() {
            coded.extend(size(random, part.len()));
            coded.extend_from_slice(part);
            coded.extend_from_slice(match random.below(24) {
                0 => {
                    b"
"
                }
                1 => b"",
                2 => b"xx",
                _ => {
                    b"
"
                }
            });
        }
    }
    coded.extend_from_slice(match random.below(24) {
        0 => b"00000\r\n\r\n",
        1 => b"0;a=b\r\n\r\n",
        2 => b"0\r\nX-Trailer: a\r\n\r\n",
        3 => b"0\r\nContent-Length: 5\r\n\r\n",
        4 => b"0\n\n",
        5 => b"0\r\n",
        _ => b"0\r\n\r\n",
    });
    coded
}

/// The line before a chunk.
fn size(random: &mut Random, len: usize) -> Vec<u8> {
    let line = match random.below(60) {
        0 => format!("{len:X};a=b\r\n"),
        1 => format!("{len:x} \r\n"),
        2 => format!(" {len:x}\r\n"),
        3 => format!("0x{len:x}\r\n"),
        4 => format!("0000{len:x}\r\n"),
        5 => format!("+{len:x}\r\n"),
        6 => format!("{len:x}\n"),
        7 => format!("{len:x};\n\r\n"),
        8 => format!("{len:x};a=\"\r\n\"\r\n"),
        9 => format!("1000000000000000{len:02x}\r\n"),
        10 => format!("{len:x}\r\r\n"),
        11 => format!("{len:x};{}\r\n", "a".repeat(3_000)),
        12 => format!("{len:x}_\r\n"),
        13 => format!("{len:x}\t;a\r\n"),
        14 => format!("-{len:x}\r\n"),
        _ => format!("{len:x}\r\n"),
    };
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_its_number_alone() {
        assert_eq!(stream(1, 7), stream(1, 7));
        assert_ne!(stream(1, 7), stream(1, 8));
        assert_ne!(stream(1, 7), stream(2, 7));
        assert!(stream(1, 7).ends_with(plain(7, LAST, "Connection: close\r\n").as_bytes()));
    }
}
