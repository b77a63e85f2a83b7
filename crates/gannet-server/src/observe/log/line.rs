//! Formats of a log line: for people, combined, and JSON.

use std::io::Write;

use super::{End, Record};

/// The contents of a line.
pub(super) struct Line<'a> {
    pub(super) record: &'a Record,
    pub(super) peer: &'a str,
    pub(super) end: End,
    /// From the end of the head to the last byte, microseconds.
    pub(super) took_us: u64,
    /// Time of the last byte, milliseconds of the real-time clock.
    pub(super) unix_ms: i64,
}

impl Line<'_> {
    /// The address without the port, as the combined format requires.
    fn peer_address(&self) -> &str {
        match self.peer.rsplit_once(':') {
            // An IPv6 address without a port.
            Some((before, _)) if !before.starts_with('[') && before.contains(':') => self.peer,
            Some((address, _)) => address.trim_start_matches('[').trim_end_matches(']'),
            None => self.peer,
        }
    }

    /// The combined log format preceded by the host that the client named: spaces in it are
    /// escaped, so that the other fields keep their positions.
    pub(super) fn combined_host(&self, out: &mut Vec<u8>) {
        let host = self.record.host.as_deref().filter(|host| !host.is_empty());
        for &byte in host.unwrap_or(b"-") {
            match byte {
                b' ' => out.extend_from_slice(b"\\x20"),
                byte => escape_combined(&[byte], out),
            }
        }
        out.push(b' ');
        self.combined(out);
    }

    /// The combined log format.
    pub(super) fn combined(&self, out: &mut Vec<u8>) {
        let r = self.record;
        out.extend_from_slice(self.peer_address().as_bytes());
        out.extend_from_slice(b" - - [");
        let t = Civil::from_unix_ms(self.unix_ms);
        let month = MONTHS[usize::from(t.month - 1)];
        push(
            out,
            format_args!(
                "{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000] \"",
                t.day, t.year, t.hour, t.minute, t.second
            ),
        );
        escape_combined(&r.method, out);
        out.push(b' ');
        escape_combined(&r.target, out);
        push(
            out,
            format_args!(" {}\" {} {} \"", r.version, r.status, r.body_len),
        );
        escape_combined(r.referer.as_deref().unwrap_or(b"-"), out);
        out.extend_from_slice(b"\" \"");
        escape_combined(r.user_agent.as_deref().unwrap_or(b"-"), out);
        out.push(b'"');
    }

    /// One JSON object.
    pub(super) fn json(&self, out: &mut Vec<u8>) {
        let r = self.record;
        let t = Civil::from_unix_ms(self.unix_ms);
        push(
            out,
            format_args!(
                "{{\"time\":\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z\",\"peer\":",
                t.year, t.month, t.day, t.hour, t.minute, t.second, t.millisecond
            ),
        );
        json_string(self.peer.as_bytes(), out);
        for (key, value) in [
            ("method", Some(&r.method)),
            ("target", Some(&r.target)),
            ("host", r.host.as_ref()),
            ("referer", r.referer.as_ref()),
            ("user_agent", r.user_agent.as_ref()),
        ] {
            if let Some(value) = value {
                push(out, format_args!(",\"{key}\":"));
                json_string(value, out);
            }
        }
        push(
            out,
            format_args!(
                ",\"protocol\":\"{}\",\"status\":{},\"body_bytes\":{},\"duration_us\":{},\"whole\":{}}}",
                r.version,
                r.status,
                r.body_len,
                self.took_us,
                self.end == End::Whole
            ),
        );
    }

    /// A short line for people.
    pub(super) fn pretty(&self, out: &mut Vec<u8>, colour: bool) {
        let r = self.record;
        let t = Civil::from_unix_ms(self.unix_ms);
        let paint = match r.status {
            _ if !colour => ("", ""),
            200..=299 => ("\x1b[32m", "\x1b[0m"),
            300..=399 => ("\x1b[36m", "\x1b[0m"),
            400..=499 => ("\x1b[33m", "\x1b[0m"),
            _ => ("\x1b[31m", "\x1b[0m"),
        };
        push(
            out,
            format_args!("{:02}:{:02}:{:02}  ", t.hour, t.minute, t.second),
        );
        push(out, format_args!("{}{}{}  ", paint.0, r.status, paint.1));
        escape_combined(&r.method, out);
        out.push(b' ');
        escape_combined(&r.target, out);
        push(
            out,
            format_args!("  {}  {}", Size(r.body_len), Duration(self.took_us)),
        );
        if self.end == End::CutShort {
            out.extend_from_slice(b"  (cut short)");
        }
    }
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing into a vector cannot fail.
    let _ = out.write_fmt(text);
}

/// Bytes in a human-readable unit.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", n / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", n / 1e6),
            _ => write!(f, "{:.2} GB", n / 1e9),
        }
    }
}

/// Microseconds in a human-readable unit.
struct Duration(u64);

impl std::fmt::Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} µs", self.0),
            1_000..1_000_000 => write!(f, "{:.1} ms", self.0 as f64 / 1e3),
            _ => write!(f, "{:.1} s", self.0 as f64 / 1e6),
        }
    }
}

/// Escapes bytes that could break a line or a quoted string as `\xHH`, so that a peer can neither
/// forge lines nor send control sequences to a terminal.
fn escape_combined(bytes: &[u8], out: &mut Vec<u8>) {
    for &b in bytes {
        match b {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => push(out, format_args!("\\x{b:02X}")),
            _ => out.push(b),
        }
    }
}

/// The same for JSON: everything but printable ASCII is escaped; parsers decode it, and it cannot
/// control a terminal.
fn json_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            ' '..='~' => out.push(c as u8),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    push(out, format_args!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push(b'"');
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A UTC time in calendar fields.
struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    millisecond: u16,
}

impl Civil {
    /// Days are counted in eras of 400 years that begin on 1 March, so that the leap day is the
    /// last day of its year.
    fn from_unix_ms(unix_ms: i64) -> Self {
        let (unix, millisecond) = (unix_ms.div_euclid(1_000), unix_ms.rem_euclid(1_000));
        let (days, seconds) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12 + 1;
        Self {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            hour: (seconds / 3_600) as u8,
            minute: (seconds / 60 % 60) as u8,
            second: (seconds % 60) as u8,
            millisecond: millisecond as u16,
        }
    }
}
