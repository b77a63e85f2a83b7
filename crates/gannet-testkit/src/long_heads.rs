//! The `_headers` file that makes the longest and dearest heads that a site may have.

use std::fmt::Write as _;

/// Bytes of the fields that rules may give one answer; each counts as its name, its value and
/// `FRAMING_LEN`.
pub const FIELDS_LEN_MAX: usize = 24 << 10;
const FRAMING_LEN: usize = 8;

/// Lines that may apply to one request, together with the number of their rules but one, besides those
/// for a host.
const LINES_MAX: usize = 1_997;

/// Lines that a rule may have.
const LINES_OF_RULE_MAX: usize = 64;

/// Bytes of a name.
const NAME_MAX: usize = 128;

/// Rules for all paths: as many lines as may apply to a request, with as long fields as they may give
/// its answer. One for a host has them evaluated anew for each.
#[must_use]
pub fn headers() -> String {
    let mut text = String::from("https://other.example/*\n  ! x-host\n/*\n");
    let mut len = FIELDS_LEN_MAX;
    let mut set_count = 0;
    while len > 0 {
        let name = format!("x-{set_count}");
        let value_len = (len - name.len() - FRAMING_LEN).min(8_100);
        let _ = writeln!(text, "  {name}: {}", "v".repeat(value_len));
        len -= name.len() + value_len + FRAMING_LEN;
        set_count += 1;
    }
    let mut left = LINES_MAX - set_count;
    while left > 1 {
        // The rule counts as one.
        let line_count = (left - 1).min(LINES_OF_RULE_MAX);
        text.push_str("/*\n");
        for number in 0..line_count {
            let name = format!("{}{left:05}{number:03}", "n".repeat(NAME_MAX - 8));
            let _ = writeln!(text, "  ! {name}");
        }
        left -= line_count + 1;
    }
    text
}
