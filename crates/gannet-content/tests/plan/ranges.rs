//! Ranges of the plan table.

use super::*;

/// RFC 9110 sections 14.1.2 and 14.2.
#[test]
fn ranges() {
    check(&[
        ("GET", Both, "range: bytes=0-4", "206 bytes 0-4/10"),
        ("GET", Both, "range: bytes=0-0", "206 bytes 0-0/10"),
        ("GET", Both, "range: bytes=9-9", "206 bytes 9-9/10"),
        ("GET", Both, "range: bytes=0-9", "206 bytes 0-9/10"),
        ("GET", Both, "range: bytes=3-", "206 bytes 3-9/10"),
        ("GET", Both, "range: bytes=0-", "206 bytes 0-9/10"),
        ("GET", Both, "Range: Bytes=0-4", "206 bytes 0-4/10"),
        // Ends beyond the end.
        ("GET", Both, "range: bytes=5-99", "206 bytes 5-9/10"),
        (
            "GET",
            Both,
            "range: bytes=5-18446744073709551616",
            "206 bytes 5-9/10",
        ),
        (
            "GET",
            Both,
            "range: bytes=5-99999999999999999999999999",
            "206 bytes 5-9/10",
        ),
        // Suffixes.
        ("GET", Both, "range: bytes=-1", "206 bytes 9-9/10"),
        ("GET", Both, "range: bytes=-10", "206 bytes 0-9/10"),
        ("GET", Both, "range: bytes=-11", "206 bytes 0-9/10"),
        (
            "GET",
            Both,
            "range: bytes=-99999999999999999999999999",
            "206 bytes 0-9/10",
        ),
        // None that is within the representation.
        ("GET", Both, "range: bytes=10-", "416 bytes */10"),
        ("GET", Both, "range: bytes=10-10", "416 bytes */10"),
        ("GET", Both, "range: bytes=-0", "416 bytes */10"),
        ("GET", Both, "range: bytes=10-11, 20-", "416 bytes */10"),
        (
            "GET",
            Both,
            "range: bytes=99999999999999999999999999-",
            "416 bytes */10",
        ),
        ("GET", Empty, "range: bytes=0-", "200"),
        ("GET", Empty, "range: bytes=0-0", "200"),
        ("GET", Empty, "range: bytes=5-9,7-", "200"),
        ("GET", Empty, r#"range: bytes=0-1 | if-range: "a""#, "200"),
        ("GET", Empty, "range: bytes=-1", "200"),
        // Malformed, or another unit: ignored.
        ("GET", Both, "range: bytes=", "200"),
        ("GET", Both, "range: bytes=-", "200"),
        ("GET", Both, "range: bytes=5-4", "200"),
        ("GET", Both, "range: bytes=a-b", "200"),
        ("GET", Both, "range: bytes=0-1x", "200"),
        ("GET", Both, "range: bytes=+0-1", "200"),
        ("GET", Both, "range: bytes 0-1", "200"),
        ("GET", Both, "range: 0-1", "200"),
        ("GET", Both, "range: lines=0-1", "200"),
        ("GET", Both, "range: bytes=0-1, x", "200"),
        ("GET", Both, "range:", "200"),
        // Two fields are not a list.
        ("GET", Both, "range: bytes=0-1 | range: bytes=2-3", "200"),
        // Only for GET.
        ("HEAD", Both, "range: bytes=0-4", "200"),
        ("HEAD", Both, "range: bytes=10-", "200"),
        // A range of a coding only for a client that names its tag.
        ("GET", Coded, "range: bytes=0-4", "200"),
        ("GET", Coded, r#"range: bytes=0-4 | if-match: "a""#, "200"),
        (
            "GET",
            Huge,
            "range: bytes=18446744073709551613-",
            "206 bytes 18446744073709551613-18446744073709551614/18446744073709551615",
        ),
        (
            "GET",
            Huge,
            "range: bytes=-1",
            "206 bytes 18446744073709551614-18446744073709551614/18446744073709551615",
        ),
    ]);
}

/// RFC 9110 sections 14.2 and 15.3.7.2: several ranges, and how many are too many.
#[test]
fn several_ranges() {
    let most = format!("range: bytes=0-0,2-2,4-4{}", ",99-".repeat(253));
    let more = format!("{most},99-");
    check(&[
        (
            "GET",
            Both,
            "range: bytes=0-1,4-5",
            "206 bytes 0-1/10, bytes 4-5/10",
        ),
        (
            "GET",
            Both,
            "range: bytes=0-1 , 4-5",
            "206 bytes 0-1/10, bytes 4-5/10",
        ),
        (
            "GET",
            Both,
            "range: bytes=0-1,,4-5,",
            "206 bytes 0-1/10, bytes 4-5/10",
        ),
        (
            "GET",
            Both,
            "range: bytes=4-5,0-1",
            "206 bytes 4-5/10, bytes 0-1/10",
        ),
        ("GET", Both, "range: bytes=0-1,2-3", "206 bytes 0-3/10"),
        (
            "GET",
            Both,
            "range: bytes=0-1,-2",
            "206 bytes 0-1/10, bytes 8-9/10",
        ),
        (
            "GET",
            Both,
            "range: bytes=0-0,-1",
            "206 bytes 0-0/10, bytes 9-9/10",
        ),
        // If only one remains, a plain 206.
        ("GET", Both, "range: bytes=0-1,10-20", "206 bytes 0-1/10"),
        ("GET", Both, "range: bytes=99-,-1", "206 bytes 9-9/10"),
        // Overlapping ones are joined, so that nothing is sent twice.
        ("GET", Both, "range: bytes=0-5,5-9", "206 bytes 0-9/10"),
        ("GET", Both, "range: bytes=0-,0-", "206 bytes 0-9/10"),
        ("GET", Both, "range: bytes=0-9,-1", "206 bytes 0-9/10"),
        ("GET", Both, "range: bytes=5-9,0-9", "206 bytes 0-9/10"),
        (
            "GET",
            Both,
            "range: bytes=8-8,0-1,1-2",
            "206 bytes 8-8/10, bytes 0-2/10",
        ),
        (
            "GET",
            Both,
            &most,
            "206 bytes 0-0/10, bytes 2-2/10, bytes 4-4/10",
        ),
        ("GET", Both, &more, "200"),
        // Delimiters are not coded, so content in a coding is sent whole.
        ("GET", Coded, "range: bytes=0-1,4-5", "200"),
        (
            "GET",
            Coded,
            r#"range: bytes=0-1,4-5 | if-range: "a""#,
            "200",
        ),
        (
            "GET",
            Coded,
            r#"range: bytes=0-1,99- | if-range: "a""#,
            "206 bytes 0-1/10",
        ),
        (
            "GET",
            Coded,
            r#"range: bytes=98-,99- | if-range: "a""#,
            "416 bytes */10",
        ),
        ("HEAD", Both, "range: bytes=0-1,4-5", "200"),
    ]);
}

/// Which codings may answer: each with its tag, of which the client accepts all but zstd.
#[test]
fn codings_for_ranges() {
    let variants = [
        (Coding::Brotli, &b"\"br\""[..]),
        (Coding::Zstd, b"\"zst\""),
        (Coding::Identity, b"\"id\""),
    ];
    let accepted = CodingSet::IDENTITY.with(Coding::Brotli).with(Coding::Gzip);
    let select = |method: Method, lines: &str| {
        let fields = Fields::parse(lines.as_bytes()).expect("fields of the table");
        let request = Request {
            fields,
            ..request(method)
        };
        select_for_range(&request, accepted, variants.into_iter())
    };
    let check = |lines: &str, expect: CodingSet| {
        assert_eq!(select(Method::Get, lines), expect, "{lines}");
        assert_eq!(select(Method::Head, lines), accepted, "{lines}");
    };
    let (plain, br) = (CodingSet::IDENTITY, Coding::Brotli.into());
    check("", accepted);
    check("if-range: \"br\"\r\n", accepted);
    let range = |lines: &str| format!("range: bytes=0-1\r\n{lines}");
    check(&range(""), plain);
    check(&range("if-range: \"br\"\r\n"), br);
    check(&range("if-range: \"id\"\r\n"), plain);
    check(&range("if-range: W/\"br\"\r\n"), plain);
    check(&range("if-range: \"other\"\r\n"), plain);
    check(&range("if-range: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), plain);
    // Not accepted.
    check(&range("if-range: \"zst\"\r\n"), plain);
    check(&range("if-range: \"br\"\r\nif-range: \"br\"\r\n"), plain);
    check(&range("if-match: \"x\", \"br\"\r\n"), br);
    check(&range("if-match: \"id\", \"br\"\r\n"), plain);
    check(&range("if-match: *\r\n"), plain);
}

/// RFC 9110 section 13.1.5.
#[test]
fn if_range() {
    check(&[
        (
            "GET",
            Both,
            r#"range: bytes=0-1 | if-range: "a""#,
            "206 bytes 0-1/10",
        ),
        (
            "GET",
            Both,
            r#"if-range: "a" | range: bytes=0-1"#,
            "206 bytes 0-1/10",
        ),
        (
            "GET",
            Coded,
            r#"range: bytes=0-1 | if-range: "a""#,
            "206 bytes 0-1/10",
        ),
        ("GET", Coded, r#"range: bytes=0-1 | if-range: "b""#, "200"),
        // All codings of a file have its date.
        (
            "GET",
            Coded,
            "range: bytes=0-1 | if-range: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        ("GET", Both, r#"range: bytes=0-1 | if-range: "b""#, "200"),
        // Strong comparison, and one tag, not a list.
        ("GET", Both, r#"range: bytes=0-1 | if-range: W/"a""#, "200"),
        (
            "GET",
            WeakTag,
            r#"range: bytes=0-1 | if-range: W/"a""#,
            "200",
        ),
        ("GET", WeakTag, r#"range: bytes=0-1 | if-range: "a""#, "200"),
        (
            "GET",
            Both,
            r#"range: bytes=0-1 | if-range: "b", "a""#,
            "200",
        ),
        ("GET", Both, "range: bytes=0-1 | if-range: *", "200"),
        (
            "GET",
            Both,
            r#"range: bytes=0-1 | if-range: "a" | if-range: "a""#,
            "200",
        ),
        (
            "GET",
            DateAlone,
            r#"range: bytes=0-1 | if-range: "a""#,
            "200",
        ),
        ("GET", Neither, r#"range: bytes=0-1 | if-range: "a""#, "200"),
        // A date that is exactly that of the representation, in any form.
        (
            "GET",
            Both,
            "range: bytes=0-1 | if-range: Sun, 06 Nov 1994 08:49:37 GMT",
            "206 bytes 0-1/10",
        ),
        (
            "GET",
            DateAlone,
            "range: bytes=0-1 | if-range: Sunday, 06-Nov-94 08:49:37 GMT",
            "206 bytes 0-1/10",
        ),
        (
            "GET",
            WeakTag,
            "range: bytes=0-1 | if-range: Sun Nov  6 08:49:37 1994",
            "206 bytes 0-1/10",
        ),
        (
            "GET",
            Both,
            "range: bytes=0-1 | if-range: Sun, 06 Nov 1994 08:49:38 GMT",
            "200",
        ),
        (
            "GET",
            Both,
            "range: bytes=0-1 | if-range: Sun, 06 Nov 1994 08:49:36 GMT",
            "200",
        ),
        (
            "GET",
            TagAlone,
            "range: bytes=0-1 | if-range: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        (
            "GET",
            Neither,
            "range: bytes=0-1 | if-range: Sun, 06 Nov 1994 08:49:37 GMT",
            "200",
        ),
        ("GET", Both, "range: bytes=0-1 | if-range: today", "200"),
        ("GET", Neither, "range: bytes=0-1 | if-range: today", "200"),
        ("GET", Both, "range: bytes=0-1 | if-range:", "200"),
        // A second that is not over yet is no strong validator (section 8.8.2.2).
        (
            "GET",
            JustNow,
            "range: bytes=0-1 | if-range: Mon, 21 Sep 2026 14:13:20 GMT",
            "200",
        ),
        (
            "GET",
            Future,
            "range: bytes=0-1 | if-range: Mon, 21 Sep 2026 15:13:20 GMT",
            "200",
        ),
        // Without a range, or with an unsatisfiable one.
        ("GET", Both, r#"if-range: "b""#, "200"),
        ("GET", Both, r#"if-range: "a""#, "200"),
        (
            "GET",
            Both,
            r#"range: bytes=99- | if-range: "a""#,
            "416 bytes */10",
        ),
        ("GET", Both, r#"range: bytes=99- | if-range: "b""#, "200"),
        ("GET", Both, r#"range: bytes=x | if-range: "a""#, "200"),
        ("HEAD", Both, r#"range: bytes=0-1 | if-range: "a""#, "200"),
    ]);
}
