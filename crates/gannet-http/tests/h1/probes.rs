//! Probes for request smuggling: anything that two readers could frame differently is refused.
//!
//! Each probe is followed by a second request, which must not be answered.

use super::fuzz_checks::record_in_pieces;

/// `head` gets a request line and Host unless it has its own; `why` is the cause of refusal.
fn check(head: &str, why: &str) {
    let request = if head.contains("HTTP/") {
        head.to_owned()
    } else {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n")
    };
    let probe = format!("{request}0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    for piece_len in [usize::MAX, 1, 5] {
        let record = record_in_pieces(probe.as_bytes(), piece_len);
        let expect = format!("! reject {why}\n");
        assert!(
            record.starts_with(&expect),
            "{head:?}: expected {why}, found:\n{record}"
        );
        assert!(!record.contains("smuggled"), "{head:?}: {record}");
        assert!(record.contains("Connection: close"), "{head:?}: {record}");
        assert!(
            record.ends_with("! close after lingering\n"),
            "{head:?}: {record}"
        );
    }
}

#[test]
fn lengths_in_doubt_are_refused() {
    check("Content-Length: 5\r\nContent-Length: 6", "ContentLength");
    check("Content-Length: 5\r\nContent-Length: 5", "ContentLength");
    check("Content-Length: 5, 6", "ContentLength");
    check("Content-Length: 5,5", "ContentLength");
    check("Content-Length: +5", "ContentLength");
    check("Content-Length: -5", "ContentLength");
    check("Content-Length: 0x5", "ContentLength");
    check("Content-Length: 5 5", "ContentLength");
    check("Content-Length: 5;", "ContentLength");
    check("Content-Length: \"5\"", "ContentLength");
    check("Content-Length:", "ContentLength");
    check("Content-Length: 99999999999999999999", "ContentLength");
    check("Content-Length: ٥", "ContentLength");
}

#[test]
fn length_and_coding_together_are_refused() {
    check(
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "LengthAndCoding",
    );
    check(
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "LengthAndCoding",
    );
    check(
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "LengthAndCoding",
    );
    check(
        "Transfer-Encoding: gzip\r\nContent-Length: 5",
        "LengthAndCoding",
    );
    check(
        "Content-Length: x\r\ntransfer-encoding: chunked",
        "LengthAndCoding",
    );
}

#[test]
fn transfer_codings_in_doubt_are_refused() {
    check("Transfer-Encoding: xchunked", "TransferEncoding");
    check("Transfer-Encoding: identity", "TransferEncoding");
    check("Transfer-Encoding: gzip", "TransferEncoding");
    check("Transfer-Encoding: gzip, chunked", "CodingUnsupported");
    check("Transfer-Encoding: chunked, identity", "TransferEncoding");
    check("Transfer-Encoding: chunked, chunked", "TransferEncoding");
    check(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "TransferEncoding",
    );
    check(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "TransferEncoding",
    );
    check("Transfer-Encoding: ,chunked", "TransferEncoding");
    check("Transfer-Encoding: \"chunked\"", "TransferEncoding");
    check("Transfer-Encoding: chunked;q=1", "TransferEncoding");
    check("Transfer-Encoding:", "TransferEncoding");
    check("Transfer-Encoding: \x0bchunked", "FieldValue");
    check("Transfer-Encoding: chunked\0", "FieldValue");
    check("Transfer-Encoding: chunk\u{212a}ed", "TransferEncoding");
    check(
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "TransferEncoding",
    );
}

#[test]
fn names_and_line_ends_in_doubt_are_refused() {
    check("Transfer-Encoding : chunked", "FieldName");
    check("Content-Length : 5", "FieldName");
    check("Content-Length\t: 5", "FieldName");
    check(" Content-Length: 5", "FieldName");
    check("X: y\r\n Content-Length: 5", "FieldName");
    check("X: y\r\n\tchunked", "FieldName");
    check("Transfer-Encoding:\r\n chunked", "FieldName");
    check("Transfer-Encoding\r\n: chunked", "FieldName");
    check("Transfer\0Encoding: chunked", "FieldName");
    check(": 5", "FieldName");
    check("no colon", "FieldName");
    check("(x): 5", "FieldName");
    check("X@: 5", "FieldName");
    check("\tX: 5", "FieldName");
    check("X: a\0b", "FieldValue");
    check("X: a\x01b", "FieldValue");
    check("X: y\nContent-Length: 5", "FieldValue");
    check("X: y\rContent-Length: 5", "FieldValue");
    check("X: y\r\r\nContent-Length: 5", "FieldValue");
    check("\nContent-Length: 5", "FieldName");
    check("X: y\n", "FieldValue");
    check("POST / HTTP/1.1\nHost: a\n\n", "VersionMalformed");
    check("POST / HTTP/1.1\rHost: a\r\n\r\n", "VersionMalformed");
}

#[test]
fn many_lines_are_too_long_together() {
    let line = format!("X: {}\r\n", "y".repeat(900));
    check(line.repeat(20).trim_end(), "FieldSectionTooLarge");
}

#[test]
fn hosts_in_doubt_are_refused() {
    check("Host: a", "HostRepeated");
    check("Host: b", "HostRepeated");
    check("GET / HTTP/1.1\r\n\r\n", "HostMissing");
    check("GET / HTTP/1.1\r\nHost:\r\n\r\n", "HostInvalid");
    check("GET / HTTP/1.0\r\nHost:\r\n\r\n", "HostInvalid");
    check("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "HostInvalid");
    check("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", "HostInvalid");
    check("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "HostInvalid");
    check("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "HostInvalid");
    check("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", "HostInvalid");
    check("GET http://b/ HTTP/1.1\r\n\r\n", "HostMissing");
    check("GET http://b/ HTTP/1.1\r\nHost: a b\r\n\r\n", "HostInvalid");
}

#[test]
fn request_lines_in_doubt_are_refused() {
    check("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine");
    check("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "VersionMalformed");
    check("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "VersionMalformed");
    check(" GET / HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine");
    check("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine");
    check("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", "Target");
    check("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "VersionMalformed");
    check("GET /a\0 HTTP/1.1\r\nHost: a\r\n\r\n", "Target");
    check("GET /a\x7f HTTP/1.1\r\nHost: a\r\n\r\n", "Target");
    check("GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", "Target");
    check("GET a HTTP/1.1\r\nHost: a\r\n\r\n", "Target");
    check("GET * HTTP/1.1\r\nHost: a\r\n\r\n", "Target");
    check("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine");
    check(
        "GET / http/1.1\r\nHost: a\r\nX: HTTP/\r\n\r\n",
        "VersionMalformed",
    );
    check("GET / HTTP/1.10\r\nHost: a\r\n\r\n", "VersionMalformed");
    check("GET / HTTP/11\r\nHost: a\r\n\r\n", "VersionMalformed");
    check("GET / HTTP/1,1\r\nHost: a\r\n\r\n", "VersionMalformed");
    check("GET / HTTP/1.x\r\nHost: a\r\n\r\n", "VersionMalformed");
    check("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "VersionUnsupported");
    check("GET / HTTP/0.9\r\nHost: a\r\n\r\n", "VersionUnsupported");
    check("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine");
    check("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "RequestLine");
}
