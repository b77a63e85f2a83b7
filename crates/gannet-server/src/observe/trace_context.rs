//! Identifiers of requests that clients and proxies send, for the log: `traceparent` (W3C Trace
//! Context) and `x-request-id`. Whatever is not exactly of their form is left out.

use gannet_http::semantics::fields::Fields;

use crate::bounds::limits::LOG_REQUEST_ID_MAX;

/// Length of a `traceparent` of version 00.
const TRACEPARENT_LEN: usize = 55;

/// The `traceparent` of a request, as far as it is defined in version 00, which later versions begin
/// with. Several are as good as none (section 3.2.1).
pub(super) fn traceparent<'a>(fields: &Fields<'a>) -> Option<&'a [u8]> {
    let mut lines = named(fields, b"traceparent");
    let value = lines.next()?;
    match lines.next() {
        Some(_) => None,
        None => parse_traceparent(value),
    }
}

/// The `x-request-id` of a request: the first one.
pub(super) fn request_id<'a>(fields: &Fields<'a>) -> Option<&'a [u8]> {
    let value = named(fields, b"x-request-id").next()?;
    let is_plain = |b: &u8| b.is_ascii_graphic() && !b"\"\\".contains(b);
    let is_id = (1..=LOG_REQUEST_ID_MAX).contains(&value.len()) && value.iter().all(is_plain);
    is_id.then_some(value)
}

fn named<'a>(fields: &Fields<'a>, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let lines = fields.iter();
    let own = lines.filter(move |(own, _)| own.eq_ignore_ascii_case(name));
    own.map(|(_, value)| value)
}

fn parse_traceparent(value: &[u8]) -> Option<&[u8]> {
    let (known, rest) = value.split_at_checked(TRACEPARENT_LEN)?;
    let mut parts = known.split(|b| *b == b'-');
    let mut hex = |len: usize| {
        let part = parts.next()?;
        let is_hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        (part.len() == len && part.iter().all(is_hex)).then_some(part)
    };
    let (version, trace, parent, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let is_set = |id: &[u8]| id.iter().any(|b| *b != b'0');
    let ends = match version {
        b"00" => rest.is_empty(),
        b"ff" => false,
        _ => rest.is_empty() || rest[0] == b'-',
    };
    (ends && is_set(trace) && is_set(parent)).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_a_valid_traceparent_counts() {
        let check = |value: &str, is_valid: bool| {
            let parsed = parse_traceparent(value.as_bytes());
            let expect = is_valid.then(|| &value.as_bytes()[..TRACEPARENT_LEN]);
            assert_eq!(parsed, expect, "{value}");
        };
        check(VALID, true);
        check(&format!("{VALID}-x"), false);
        let later = VALID.replacen("00", "cc", 1);
        check(&later, true);
        check(&format!("{later}-what follows"), true);
        check(&format!("{later}x"), false);
        check(&VALID.replacen("00", "ff", 1), false);
        check(&VALID.to_uppercase(), false);
        check(&VALID[..54], false);
        check("", false);
        check(
            &VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            false,
        );
        check(&VALID.replace("b7ad6b7169203331", &"0".repeat(16)), false);
        check(&VALID.replace("0af", "0 f"), false);
        check(&VALID.replace('-', "_"), false);
        for at in 0..VALID.len() {
            let mut bent = VALID.to_owned();
            bent.replace_range(at..=at, "\"");
            check(&bent, false);
        }
    }
}
