//! Requirements of RFC 9114 and 9204 on requests, rule by rule, and unusual valid input.

use gannet_testkit::h3::*;

use super::h3_checks::peer::Given;
use super::rules::*;

#[test]
fn field_sections() {
    let failed = ["close QPACK_DECOMPRESSION_FAILED field_section"];
    let check = |name: &str, section: &[u8]| {
        check_request(name, &frame(HEADERS, section), &failed);
        let behind = frame(HEADERS, section);
        check_behind(&format!("trailers: {name}"), &behind, failed[0]);
    };
    // RFC 9204 2.2, 3.1, 3.2, 4.5
    check("empty", &[]);
    check("half of the prefix", &[0]);
    check("an insert count", &[1, 0, 0xc1]);
    check("a large insert count", &[0xff, 1, 0, 0xc1]);
    check("a base below 0", &[0, 0x80, 0xc1]);
    check("indexed, dynamic", &[0, 0, 0x80]);
    check("indexed behind the base", &[0, 0, 0x10]);
    check("a dynamic name", &[0, 0, 0x40, 1, b'a']);
    check("a dynamic name behind the base", &[0, 0, 0, 1, b'a']);
    check("beyond the static table", &[0, 0, 0xff, 99 - 63]);
    check(
        "a name beyond the static table",
        &[0, 0, 0x5f, 99 - 15, 1, b'a'],
    );
    check(
        "an endless integer",
        &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    );
    check("a string that is cut off", &[0, 0, 0x51, 5, b'/']);
    check("a name that is cut off", &[0, 0, 0x27, 5, b'a']);
    check("padding of Huffman coding", &[0, 0, 0x51, 0x81, 0xff]);
    check(
        "the end of a string in Huffman coding",
        &[0, 0, 0x51, 0x84, 0xff, 0xff, 0xff, 0xff],
    );
}

#[test]
fn messages_that_are_malformed() {
    let reset = "reset 0 H3_MESSAGE_ERROR malformed";
    let good = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "test"),
        (":path", "/"),
    ];
    let check = |name: &str, fields: &[(&str, &str)]| {
        check_request(name, &headers(fields), &[reset]);
    };
    // RFC 9114 4.3.1
    for missing in 0..good.len() {
        let mut fields = good.to_vec();
        let (name, _) = fields.remove(missing);
        check(&format!("no {name}"), &fields);
    }
    for pseudo in good {
        check(
            &format!("{pseudo:?} twice"),
            &[&good[..], &[pseudo]].concat(),
        );
    }
    let with = |field| [&good[..], &[field]].concat();
    let instead = |index: usize, value| {
        let mut fields = good;
        fields[index].1 = value;
        fields
    };
    check("a method that is none", &instead(0, "G T"));
    check("no method in it", &instead(0, ""));
    check("no scheme in it", &instead(1, ""));
    check("no authority in it", &instead(2, ""));
    check("an authority with a user", &instead(2, "me@test"));
    check("no path in it", &instead(3, ""));
    check("a path without a slash", &instead(3, "a"));
    check("a path with a fragment", &instead(3, "/#a"));
    check("a path with a space", &instead(3, "/a b"));
    check("an asterisk for GET", &instead(3, "*"));
    // RFC 9114 4.3
    check("a pseudo-field of responses", &with((":status", "200")));
    check("an unknown pseudo-field", &with((":other", "x")));
    check("extended CONNECT", &with((":protocol", "websocket")));
    let late = [&good[..3], &[("x", "y")], &good[3..]].concat();
    check("a pseudo-field behind others", &late);
    check("another host", &with(("host", "other")));
    check(
        "host twice",
        &[&with(("host", "test"))[..], &[("host", "test")]].concat(),
    );
    // RFC 9114 4.2
    check("a name in upper case", &with(("X-Upper", "y")));
    check("a name with a space", &with(("x y", "z")));
    check("no name", &with(("", "z")));
    check("a value with a line break", &with(("x", "a\r\nb: c")));
    check("a value with a zero", &with(("x", "a\0b")));
    check("a value with space around it", &with(("x", " a")));
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        check(name, &with((name, "x")));
    }
    check("te", &with(("te", "gzip")));
    // RFC 9114 4.4
    let connect = [(":method", "CONNECT"), (":authority", "test:443")];
    check(
        "CONNECT with a path",
        &[&connect[..], &[(":path", "/")]].concat(),
    );
    check(
        "CONNECT with a scheme",
        &[&connect[..], &[(":scheme", "https")]].concat(),
    );
    check("CONNECT without an authority", &connect[..1]);
    check(
        "CONNECT without a port",
        &[connect[0], (":authority", "test")],
    );
    check("a length that is none", &with(("content-length", "1x")));
    check(
        "lengths",
        &[
            &with(("content-length", "1"))[..],
            &[("content-length", "1")],
        ]
        .concat(),
    );
    // RFC 9114 4.1
    check_behind(
        "trailers with a pseudo-field",
        &headers(&[(":path", "/")]),
        reset,
    );
    check_behind(
        "trailers with a name in upper case",
        &headers(&[("X", "/")]),
        reset,
    );
}

#[test]
fn content_has_the_length_that_it_announces() {
    // RFC 9114 4.1.2
    let announced = |len: &str| request("POST", "/", &[("content-length", len)]);
    let check = |name: &str, len: &str, content: &[&[u8]], expect: &str| {
        let content = content.iter().map(|bytes| frame(DATA, bytes));
        let bytes = [announced(len), content.collect::<Vec<_>>().concat()].concat();
        let content = if len == "0" {
            String::new()
        } else {
            format!(" content={len}")
        };
        let head = format!("request 0 POST / test fields=1{content}");
        check_request(name, &bytes, &[&head, "answer 0 405 2", expect]);
    };
    let malformed = "reset 0 H3_MESSAGE_ERROR malformed";
    check("as announced", "5", &[b"abcde"], "end 0 after 5");
    check("in parts", "5", &[b"ab", b"", b"cde"], "end 0 after 5");
    check("none", "0", &[], "end 0 after 0");
    check("an empty frame", "0", &[b""], "end 0 after 0");
    check("less", "5", &[b"abcd"], malformed);
    check("nothing", "5", &[], malformed);
    check("more", "5", &[b"abcdef"], malformed);
    check("more in the end", "5", &[b"abcde", b"f"], malformed);
    check("more than none", "0", &[b"f"], malformed);
    let trailers = headers(&[("x", "y")]);
    let bytes = [announced("1"), trailers].concat();
    let head = "request 0 POST / test fields=1 content=1";
    check_request(
        "trailers instead",
        &bytes,
        &[head, "answer 0 405 2", malformed],
    );
}

#[test]
fn what_clients_do_in_practice() {
    let ended = [GET[0], GET[1], "end 0 after 0"];
    check_request("a request", &get(), &ended);
    check(
        "before the settings",
        &[end(0, get()), on(CONTROL, control(&[]))],
        &ended,
    );
    let grease = frame(GREASE, b"whatever");
    // RFC 9114 9: unknown frames, anywhere.
    let trailers = headers(&[("x", "y")]);
    let all = [get(), frame(DATA, b"abc"), trailers, bare(0x40)];
    let all = all.map(|known| [&grease[..], &known].concat()).concat();
    check_request("grease", &all, &[GET[0], GET[1], "end 0 after 3"]);
    check_control(
        "grease",
        &[&grease[..], &bare(0x1f), &frame(GREASE, &[])].concat(),
        &[],
    );
    // RFC 9114 6.2.3: unknown streams, whose bytes are ignored.
    check(
        "a stream of grease",
        &[
            on(CONTROL, varint(GREASE)),
            on(SECOND, control(&[])),
            on(CONTROL, b"more"),
            end(0, get()),
        ],
        &[&["unwanted 2"], &ended[..]].concat(),
    );
    // RFC 9114 6.2: streams that end before their type is complete.
    check(
        "nothing on a stream",
        &[end(CONTROL, b""), Given::Reset(SECOND), end(0, get())],
        &ended,
    );
    check(
        "half of a type",
        &[end(CONTROL, [0x40]), end(0, get())],
        &ended,
    );
    // Integers in longer than the shortest form.
    let section = &get()[2..];
    let long = [
        varint_of(HEADERS, 8),
        varint_of(section.len() as u64, 8),
        section.to_vec(),
    ];
    check_request("long integers", &long.concat(), &ended);
    let long = [
        varint_of(CONTROL_STREAM, 4),
        varint_of(SETTINGS, 2),
        varint_of(0, 8),
    ];
    check("long integers", &[on(CONTROL, long.concat())], &[]);
    // All streams of a client that opens QPACK's streams.
    let qpack = [
        on(
            CONTROL,
            control(&[
                (QPACK_MAX_TABLE_CAPACITY, 4096),
                (QPACK_BLOCKED_STREAMS, 16),
            ]),
        ),
        on(SECOND, varint(ENCODER_STREAM)),
        on(THIRD, varint(DECODER_STREAM)),
        end(0, get()),
    ];
    check("QPACK's streams", &qpack, &ended);
    // Streams in any order.
    check(
        "a later stream first",
        &[end(4, request("HEAD", "/9", &[])), end(0, get())],
        &[
            &["request 4 HEAD /9 test", "answer 4 200 0", "end 4 after 0"],
            &ended[..],
        ]
        .concat(),
    );
}

#[test]
fn requests_of_every_kind() {
    let check = |name: &str, fields: &[(&str, &str)], expect: &[&str]| {
        check_request(name, &headers(fields), expect);
    };
    let https = (":scheme", "https");
    check(
        "host instead of an authority",
        &[(":method", "GET"), https, (":path", "/?q"), ("host", "a:1")],
        &[
            "request 0 GET /?q a:1 fields=1",
            "answer 0 200 2",
            "end 0 after 0",
        ],
    );
    check(
        "both, in different cases",
        &[
            (":path", "/"),
            https,
            (":authority", "A"),
            (":method", "GET"),
            ("host", "a"),
        ],
        &[
            "request 0 GET / A fields=1",
            "answer 0 200 2",
            "end 0 after 0",
        ],
    );
    check(
        "the server as such",
        &[
            (":method", "OPTIONS"),
            https,
            (":authority", "a"),
            (":path", "*"),
        ],
        &["request 0 OPTIONS * a", "answer 0 204 0", "end 0 after 0"],
    );
    check(
        "a tunnel",
        &[(":method", "CONNECT"), (":authority", "a:1")],
        &[
            "request 0 CONNECT a:1 a:1",
            "answer 0 405 2",
            "end 0 after 0",
        ],
    );
    let with = |fields: &[(&str, &str)], expect: &[&str]| {
        check_request("fields", &request("GET", "/", fields), expect);
    };
    let crumbs = [
        ("cookie", "a=b"),
        ("cookie", "c=d"),
        ("te", "trailers"),
        ("x", ""),
    ];
    with(
        &crumbs,
        &["request 0 GET / test fields=4", GET[1], "end 0 after 0"],
    );
    let expects = [("expect", "100-continue")];
    with(
        &expects,
        &["request 0 GET / test fields=1", GET[1], "end 0 after 0"],
    );
    let odd = [("expect", "other")];
    with(
        &odd,
        &[
            "reject 0 ExpectationUnknown",
            "answer 0 417 2",
            "end 0 after 0",
        ],
    );
}

#[test]
fn field_sections_that_are_too_large_are_answered() {
    let too_large = "reject 0 FieldSectionTooLarge";
    let ended = "end 0 after 0";
    // RFC 9114 4.2.2
    let value = "v".repeat(24 * 1024);
    let large = request("GET", "/", &[("x", &value)]);
    check_request("decoded", &large, &[too_large, "answer 0 431 2", ended]);
    // The method is known: HEAD, without content.
    let large = request("HEAD", "/", &[("x", &value)]);
    check_request("decoded", &large, &[too_large, "answer 0 431 0", ended]);
    let many: Vec<_> = (0..257).map(|_| ("x", "y")).collect();
    let many = request("GET", "/", &many);
    let rejected = ["reject 0 TooManyFieldLines", "answer 0 431 2", ended];
    check_request("many lines", &many, &rejected);
    // The crumbs of a cookie are one field (RFC 9114 4.2.1).
    let crumbs: Vec<_> = (0..300).map(|_| ("cookie", "a=b")).collect();
    let crumbs = [&crumbs[..], &[("x", "y"); 255]].concat();
    let crumbs = request("GET", "/", &crumbs);
    let answered = ["request 0 GET / test fields=555", GET[1], ended];
    check_request("a cookie in crumbs", &crumbs, &answered);
    // Neither buffered nor decoded.
    let value = "v".repeat(32 * 1024);
    let huge = request("GET", "/", &[("x", &value)]);
    check_request("encoded", &huge, &[too_large, "answer 0 431 0", ended]);
    let bomb = [&[0, 0][..], &[0xff, 85 - 63].repeat(2_000)].concat();
    check_request(
        "a bomb",
        &frame(HEADERS, &bomb),
        &[too_large, "answer 0 431 0", ended],
    );
    // For trailers, the response has been sent.
    let reset = "reset 0 H3_EXCESSIVE_LOAD trailers_too_long";
    check_behind("trailers", &headers(&[("x", &value)]), reset);
    check_behind("trailers", &frame(HEADERS, &bomb), reset);
    // The maximum.
    let value = "v".repeat(24_000);
    let most = request("GET", "/", &[("x", &value)]);
    check_request(
        "the largest",
        &most,
        &["request 0 GET / test fields=1", GET[1], ended],
    );
}
