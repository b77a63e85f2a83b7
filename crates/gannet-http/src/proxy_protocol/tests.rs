use super::*;

/// Parses the header with more behind it, and every prefix of it.
fn check(header: &[u8], expect: Result<&str, Malformed>) {
    let text = header.escape_ascii().to_string();
    let mut input = header.to_vec();
    input.extend_from_slice(b"GET / HTTP/1.1\r\n");
    let found = parse(&input);
    let expect = expect.map(|origin| {
        let origin = match origin {
            "" => Origin::Proxy,
            "?" => Origin::Unknown,
            client => Origin::Client(client.parse().expect("an address")),
        };
        Some((origin, header.len()))
    });
    assert_eq!(found, expect, "{text}");
    for len in 0..header.len() {
        match parse(&header[..len]) {
            Ok(None) => {}
            Err(Malformed) if expect.is_err() => {}
            other => panic!("{other:?} after {len} bytes of {text}"),
        }
    }
}

#[test]
fn version_1_names_the_client() {
    let good = |line: &str, origin: &str| check(format!("{line}\r\n").as_bytes(), Ok(origin));
    good(
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443",
        "192.0.2.7:56324",
    );
    good("PROXY TCP4 0.0.0.0 255.255.255.255 0 65535", "0.0.0.0:0");
    good("PROXY TCP6 2001:db8::7 ::1 1 2", "[2001:db8::7]:1");
    good("PROXY UNKNOWN", "?");
    good("PROXY UNKNOWN ffff:f...f:ffff \u{e4}nything 65535", "?");
    let longest = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1 \
                   ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535";
    good(longest, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff1]:65535");
}

#[test]
fn version_1_is_read_to_the_letter() {
    let bad = |line: &str| check(line.as_bytes(), Err(Malformed));
    bad("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\n");
    bad("PROXY  TCP4 192.0.2.7 198.51.100.1 56324 443\r\n");
    bad("PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n");
    bad("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 \r\n");
    bad("PROXY TCP4 192.0.2.7 198.51.100.1 +56324 443\r\n");
    bad("PROXY TCP4 192.0.2.7 198.51.100.1 056324 443\r\n");
    bad("PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n");
    bad("PROXY TCP4 192.0.2.7 198.51.100.1 56324 \r\n");
    bad("PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n");
    bad("PROXY TCP4 2001:db8::7 ::1 56324 443\r\n");
    bad("PROXY TCP6 192.0.2.7 198.51.100.1 56324 443\r\n");
    bad("PROXY UDP4 192.0.2.7 198.51.100.1 56324 443\r\n");
    bad("PROXY\r\n");
    bad("proxy UNKNOWN\r\n");
    bad("GET / HTTP/1.1\r\n");
    bad("\u{16}\u{3}\u{1}");
}

#[test]
fn version_1_has_a_bound() {
    let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; V1_LEN_MAX]].concat();
    assert_eq!(parse(&endless[..V1_LEN_MAX - 1]), Ok(None));
    assert_eq!(parse(&endless[..V1_LEN_MAX]), Err(Malformed));
}

/// A header of version 2.
fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let len = u16::try_from(block.len()).expect("short").to_be_bytes();
    [V2_SIGNATURE, &[command, family], &len, block].concat()
}

const IPV4: &[u8] = &[192, 0, 2, 7, 198, 51, 100, 1, 220, 4, 1, 187];

fn ipv6() -> Vec<u8> {
    let source: Ipv6Addr = "2001:db8::7".parse().expect("an address");
    let mut block = source.octets().to_vec();
    block.extend([0xff; 16]);
    block.extend([0, 80, 1, 187]);
    block
}

#[test]
fn version_2_names_the_client() {
    check(&v2(0x21, 0x11, IPV4), Ok("192.0.2.7:56324"));
    check(&v2(0x21, 0x21, &ipv6()), Ok("[2001:db8::7]:80"));
    // Values after the addresses, well formed or not.
    let further = [IPV4, &[0x03, 0, 4, 1, 2, 3, 4], &[0xea, 0xff]].concat();
    check(&v2(0x21, 0x11, &further), Ok("192.0.2.7:56324"));
    let longest = [IPV4, &[0; HEADER_LEN_MAX - V2_FIXED_LEN - IPV4_LEN]].concat();
    check(&v2(0x21, 0x11, &longest), Ok("192.0.2.7:56324"));
}

#[test]
fn version_2_may_name_nobody() {
    check(&v2(0x20, 0x00, &[]), Ok(""));
    check(&v2(0x20, 0x11, IPV4), Ok(""));
    check(&v2(0x20, 0xff, &[]), Ok(""));
    check(&v2(0x21, 0x00, &[]), Ok("?"));
    check(&v2(0x21, 0x00, &[1, 2, 3]), Ok("?"));
    check(&v2(0x21, 0x31, &[b'/'; UNIX_LEN]), Ok("?"));
    // Datagrams do not arrive over a stream.
    check(&v2(0x21, 0x12, IPV4), Ok("?"));
}

#[test]
fn version_2_is_read_to_the_bit() {
    check(&v2(0x11, 0x11, IPV4), Err(Malformed));
    check(&v2(0x22, 0x11, IPV4), Err(Malformed));
    check(&v2(0x21, 0x41, IPV4), Err(Malformed));
    check(&v2(0x21, 0x13, IPV4), Err(Malformed));
    check(&v2(0x21, 0x11, &IPV4[1..]), Err(Malformed));
    check(&v2(0x21, 0x21, &ipv6()[1..]), Err(Malformed));
    check(&v2(0x21, 0x31, &[0; UNIX_LEN - 1]), Err(Malformed));
    check(
        &v2(0x21, 0x00, &[0; HEADER_LEN_MAX - V2_FIXED_LEN + 1]),
        Err(Malformed),
    );
}
