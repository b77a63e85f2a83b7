//! Encoding of field lines: static table and literals (RFC 9204 sections 4.5.2, 4.5.4 and 4.5.6).

use super::static_table;
use crate::binary::line::lines;
use crate::binary::{integer, string};
use crate::semantics::date::{DATE_LEN, DATE_LINE_LEN, DATE_START};
use crate::semantics::decimal::write_decimal;
use crate::semantics::status::Status;

/// Appends a field: indexed if the static table has it, else a literal, with strings Huffman-coded
/// where that is shorter. `name` must be in lower case.
pub fn write_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    let (by_name, by_both) = static_table::find(name, value);
    if let Some(index) = by_both {
        write_indexed(index, out);
        return;
    }
    match by_name {
        Some(index) => integer::encode(index, LITERAL_WITH_NAME, 4, out),
        None => string::write(name.as_bytes(), LITERAL, 3, out),
    }
    string::write(value, 0, 7, out);
}

/// Appends a whole entry of the static table.
pub(super) fn write_indexed(index: usize, out: &mut Vec<u8>) {
    integer::encode(index, INDEXED, 6, out);
}

/// Appends the fields of lines in HTTP/1's form; `None` if `block` has another form.
#[cold]
pub(super) fn write_lines(block: &[u8], out: &mut Vec<u8>) -> Option<()> {
    lines(block, |name, value| write_field(name, value, out))
}

/// Appends `:status`.
#[inline]
pub(super) fn write_status(status: Status, out: &mut Vec<u8>) {
    let index = match status.0 {
        103 => 24,
        200 => 25,
        304 => 26,
        404 => 27,
        503 => 28,
        100 => 63,
        204 => 64,
        206 => 65,
        302 => 66,
        400 => 67,
        403 => 68,
        421 => 69,
        425 => 70,
        500 => 71,
        code => {
            debug_assert!((100..1000).contains(&code), "a status has three digits");
            let digit = |place: u16| b'0' + (code / place % 10) as u8;
            // The name of 24 (which is 15 and 9 more).
            let head = [LITERAL_WITH_NAME | 15, 24 - 15, 3];
            out.extend_from_slice(&head);
            out.extend_from_slice(&[digit(100), digit(10), digit(1)]);
            return;
        }
    };
    write_indexed(index, out);
}

/// Appends `date`, from HTTP/1's line. Not Huffman-coded, because it changes every second.
#[inline]
pub(super) fn write_date(date_line: &[u8; DATE_LINE_LEN], out: &mut Vec<u8>) {
    let mut field = [0; 2 + DATE_LEN];
    field[..2].copy_from_slice(&[LITERAL_WITH_NAME | 6, DATE_LEN as u8]);
    field[2..].copy_from_slice(&date_line[DATE_START..DATE_START + DATE_LEN]);
    out.extend_from_slice(&field);
}

/// Appends `content-length`.
pub(super) fn write_content_length(len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[LITERAL_WITH_NAME | 4, 0]);
    let start = out.len();
    write_decimal(len, out);
    // At most 20 digits.
    out[start - 1] = (out.len() - start) as u8;
}

/// An indexed field line, static table.
const INDEXED: u8 = 0xc0;
/// A literal field line with a name from the static table.
pub(super) const LITERAL_WITH_NAME: u8 = 0x50;
/// A literal field line with a literal name.
pub(super) const LITERAL: u8 = 0x20;

#[cfg(test)]
mod tests {
    use super::super::decode_each;
    use super::*;
    use crate::semantics::date::DateLine;

    fn decoded(fields: &[u8]) -> String {
        let mut text = String::new();
        decode_each(&[&[0, 0], fields].concat(), |name, value| {
            text += &format!("{}={};", name.escape_ascii(), value.escape_ascii());
        })
        .expect("a section of ours");
        text
    }

    #[test]
    fn statuses() {
        for code in 100..600 {
            let mut out = Vec::new();
            write_status(Status(code), &mut out);
            assert_eq!(decoded(&out), format!(":status={code};"));
            let (_, by_both) = static_table::find(":status", code.to_string().as_bytes());
            assert_eq!(out.len() <= 2, by_both.is_some(), "{code}");
        }
    }

    #[test]
    fn fields() {
        let mut out = Vec::new();
        write_field("vary", b"accept-encoding", &mut out);
        assert_eq!(out, [0xc0 | 59]);
        write_field("x-frame-options", b"deny", &mut out);
        write_field("x-frame-options", b"other", &mut out);
        write_date(DateLine::new(0).as_bytes(), &mut out);
        write_content_length(u64::MAX, &mut out);
        write_content_length(0, &mut out);
        write_field("etag", b"\"a\"", &mut out);
        write_field("x-a-name-that-is-long", &[b'~'; 300], &mut out);
        let tildes = "~".repeat(300);
        let expect = format!(
            "vary=accept-encoding;x-frame-options=deny;x-frame-options=other;\
             date=Thu, 01 Jan 1970 00:00:00 GMT;\
             content-length=18446744073709551615;content-length=0;etag=\\\"a\\\";\
             x-a-name-that-is-long={tildes};"
        );
        assert_eq!(decoded(&out), expect);
    }
}
