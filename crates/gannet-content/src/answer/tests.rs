use sha2::{Digest, Sha256};

use gannet_http::semantics::ready_fields::check_field;

use super::*;

const PAGE: Resource<'_> = Resource {
    content_type: "text/html; charset=utf-8",
    coding: Coding::Brotli,
    len: 7,
    entity_tag: "\"abc-b\"",
    last_modified: Some(784_111_777),
    vary: Some(VARY_BY_CODING),
    cache_control: Some(CACHE_REVALIDATE),
    fields: &[("link", b"</a.css>; rel=preload")],
    common: None,
};

fn check(resource: &Resource<'_>, [length, own, shared]: [&str; 3]) {
    let ready = ready_fields(resource).expect("fields that can be sent");
    let block = ready.as_block();
    let text = String::from_utf8(block.bytes.to_vec()).expect("text");
    let (first, rest) = text.split_at(block.length_end.into());
    let (second, third) = rest.split_at(block.shared_start as usize - first.len());
    assert_eq!((first, second, third), (length, own, shared));
}

#[test]
fn a_block_is_cut_into_what_206_leaves_out_and_what_304_keeps() {
    check(
        &PAGE,
        [
            "Content-Length: 7\r\n",
            "Content-Type: text/html; charset=utf-8\r\nContent-Encoding: br\r\n",
            "ETag: \"abc-b\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Cache-Control: max-age=1\r\n\
             Vary: accept-encoding\r\nAccept-Ranges: bytes\r\n\
             X-Content-Type-Options: nosniff\r\nLink: </a.css>; rel=preload\r\n",
        ],
    );
}

#[test]
fn what_is_not_known_is_not_sent() {
    let resource = Resource {
        coding: Coding::Identity,
        last_modified: None,
        vary: None,
        cache_control: None,
        fields: &[],
        ..PAGE
    };
    check(
        &resource,
        [
            "Content-Length: 7\r\n",
            "Content-Type: text/html; charset=utf-8\r\n",
            "ETag: \"abc-b\"\r\nAccept-Ranges: bytes\r\nX-Content-Type-Options: nosniff\r\n",
        ],
    );
}

#[test]
fn values_that_would_split_a_response_are_refused() {
    let resource = Resource {
        content_type: "text/html\r\nx: y",
        ..PAGE
    };
    assert_eq!(ready_fields(&resource), Err(ReadyFieldsError::Value));
    let resource = Resource {
        fields: &[("Link", b"x")],
        ..PAGE
    };
    assert_eq!(ready_fields(&resource), Err(ReadyFieldsError::Name));
}

#[test]
fn a_redirect_keeps_the_query_and_nothing_in_it_ends_the_field() {
    let check = |query: Option<&[u8]>, expect: &str| {
        let value = location(b"/docs/", query);
        assert_eq!(String::from_utf8_lossy(&value), expect);
        check_field("location", &value).expect("a value that can be sent");
    };
    check(None, "/docs/");
    check(Some(b""), "/docs/?");
    check(Some(b"a=1&b=%20/?:@'"), "/docs/?a=1&b=%20/?:@'");
    check(
        Some(b"a\r\nx: \"<y>\\#\xff"),
        "/docs/?a%0D%0Ax:%20%22%3Cy%3E%5C%23%FF",
    );
}

#[test]
fn the_policies_of_pages_can_be_sent_and_have_the_hashes_of_style_sheets_and_of_the_script() {
    let style = include_str!("../directory/listing/style.css");
    let script = include_str!("../directory/listing/script.js");
    for (policy, directive, text) in [
        (
            PAGE_POLICY,
            "style-src",
            include_str!("../error_page/style.css"),
        ),
        (LISTING_POLICY, "style-src", style),
        (LISTING_POLICY, "script-src", script),
    ] {
        check_field("content-security-policy", policy.as_bytes())
            .expect("a field that can be sent");
        let source = format!("{directive} 'sha256-{}';", base64(&Sha256::digest(text)));
        assert!(policy.contains(&source), "{source}");
    }
    assert!(!PAGE_POLICY.contains("script-src"));
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}
