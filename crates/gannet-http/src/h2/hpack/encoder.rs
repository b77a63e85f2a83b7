//! Stateless encoding: nothing is ever entered into a dynamic table (RFC 7541 sections 6.1, 6.2.2).

use super::static_table;
use crate::binary::{integer, string};
use crate::semantics::date::{DATE_LEN, DATE_LINE_LEN, DATE_START};
use crate::semantics::decimal::write_decimal;
use crate::semantics::status::Status;

/// The update to table size 0, owed once after the peer lowers its limit (RFC 7541 section 4.2). No
/// further update is ever owed.
pub(crate) const SIZE_UPDATE_ZERO: u8 = 0x20;

/// Appends a field: indexed if the static table has it, otherwise a literal without indexing, with
/// strings Huffman-coded where that is shorter. Names are in lower case.
pub fn write_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    let (by_name, by_both) = static_table::find(name, value);
    if let Some(index) = by_both {
        integer::encode(index, 0x80, 7, out);
        return;
    }
    integer::encode(by_name.unwrap_or(0), 0, 4, out);
    if by_name.is_none() {
        string::write(name.as_bytes(), 0, 7, out);
    }
    string::write(value, 0, 7, out);
}

/// Appends `:status`.
#[inline]
pub(crate) fn write_status(status: Status, out: &mut Vec<u8>) {
    let indexed = match status.0 {
        200 => 0x88,
        204 => 0x89,
        206 => 0x8a,
        304 => 0x8b,
        400 => 0x8c,
        404 => 0x8d,
        500 => 0x8e,
        code => {
            debug_assert!((100..1000).contains(&code), "a status has three digits");
            let digit = |place: u16| b'0' + (code / place % 10) as u8;
            out.extend_from_slice(&[0x08, 3, digit(100), digit(10), digit(1)]);
            return;
        }
    };
    out.push(indexed);
}

/// Appends `date`, from HTTP/1's line. Not Huffman-coded: it changes every second.
#[inline]
pub(crate) fn write_date(date_line: &[u8; DATE_LINE_LEN], out: &mut Vec<u8>) {
    // Literal without indexing, static name 33.
    let mut field = [0; 3 + DATE_LEN];
    field[..3].copy_from_slice(&[0x0f, 0x12, DATE_LEN as u8]);
    field[3..].copy_from_slice(&date_line[DATE_START..DATE_START + DATE_LEN]);
    out.extend_from_slice(&field);
}

/// Appends `content-length`.
pub(crate) fn write_content_length(len: u64, out: &mut Vec<u8>) {
    // Literal without indexing, static name 28.
    out.extend_from_slice(&[0x0f, 0x0d, 0]);
    let start = out.len();
    write_decimal(len, out);
    // At most 20 digits.
    out[start - 1] = (out.len() - start) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::hpack::Decoder;
    use crate::semantics::date::DateLine;

    /// The fields that the block decodes to; asserts that it added no table entry.
    fn decoded(block: &[u8]) -> String {
        let mut decoder = Decoder::new();
        let mut text = String::new();
        decoder
            .decode_each(block, |name, value| {
                text += &format!("{}={};", name.escape_ascii(), value.escape_ascii());
            })
            .expect("a block of ours");
        assert_eq!(decoder.table_size(), 0);
        text
    }

    #[test]
    fn statuses() {
        for code in 100..600 {
            let mut out = Vec::new();
            write_status(Status(code), &mut out);
            assert_eq!(decoded(&out), format!(":status={code};"));
            let is_indexed = [200, 204, 206, 304, 400, 404, 500].contains(&code);
            assert_eq!(out.len(), if is_indexed { 1 } else { 5 });
        }
    }

    #[test]
    fn fields() {
        let mut out = Vec::new();
        write_field("accept-encoding", b"gzip, deflate", &mut out);
        assert_eq!(out, [0x90]);
        write_date(DateLine::new(0).as_bytes(), &mut out);
        write_content_length(u64::MAX, &mut out);
        write_content_length(0, &mut out);
        write_field("etag", b"\"a\"", &mut out);
        write_field("x-new", &[b'~'; 300], &mut out);
        let tildes = "~".repeat(300);
        let expect = format!(
            "accept-encoding=gzip, deflate;date=Thu, 01 Jan 1970 00:00:00 GMT;\
             content-length=18446744073709551615;content-length=0;etag=\\\"a\\\";x-new={tildes};"
        );
        assert_eq!(decoded(&out), expect);
    }
}
