//! Forms of a log line: for people, by a template, and JSON.

use std::io::Write;

use gannet_content::rules::pattern::Scheme;

use crate::config::template::Field;
use crate::config::template::{Template, TemplatePart, Variable};
use crate::observe::record::{End, Logged, Record};
use crate::tls::certificates::Identity;
use crate::tls::negotiated::Negotiated;

/// The contents of a line.
pub(super) struct LogLine<'a> {
    pub(super) record: &'a Record,
    pub(super) logged: &'a Logged,
    pub(super) peer: &'a str,
    pub(super) identity: Option<&'a Identity>,
    pub(super) tls: Option<&'static Negotiated>,
    pub(super) end: End,
    /// From the end of the head to the last byte, microseconds.
    pub(super) took_us: u64,
    /// Time of the last byte, milliseconds of the real-time clock.
    pub(super) unix_ms: i64,
}

impl LogLine<'_> {
    /// The address and the port.
    fn peer_parts(&self) -> (&str, &str) {
        match self.peer.rsplit_once(':') {
            // An IPv6 address without a port.
            Some((before, _)) if !before.starts_with('[') && before.contains(':') => {
                (self.peer, "")
            }
            Some((address, port)) => {
                let address = address.trim_start_matches('[').trim_end_matches(']');
                (address, port)
            }
            None => (self.peer, ""),
        }
    }

    /// A line of this form.
    pub(super) fn by(&self, template: &Template, out: &mut Vec<u8>) {
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Value {
                    variable,
                    is_quoted,
                } => self.value(*variable, *is_quoted, out),
            }
        }
    }

    fn value(&self, variable: Variable, is_quoted: bool, out: &mut Vec<u8>) {
        let (r, l) = (self.record, self.logged);
        let t = || Civil::from_unix_ms(self.unix_ms);
        let of_identity = |value: &dyn Fn(&Identity) -> &str, out: &mut Vec<u8>| {
            let value = self.identity.map(|it| value(it).as_bytes());
            escape_value(value, is_quoted, out);
        };
        match variable {
            Variable::Of(field) => escape_value(l.field(field), is_quoted, out),
            Variable::Request => {
                escape_value(l.field(Field::Method), is_quoted, out);
                out.extend_from_slice(if is_quoted { b" " } else { b"\\x20" });
                escape_value(l.field(Field::Target), is_quoted, out);
                out.extend_from_slice(if is_quoted { b" " } else { b"\\x20" });
                out.extend_from_slice(l.version.as_bytes());
            }
            Variable::RemoteAddr => push_or_dash(self.peer_parts().0, out),
            Variable::RemotePort => push_or_dash(self.peer_parts().1, out),
            Variable::TimeLocal => t().local(out),
            Variable::TimeIso8601 => t().iso8601(out),
            Variable::Msec => {
                let (seconds, ms) = (
                    self.unix_ms.div_euclid(1_000),
                    self.unix_ms.rem_euclid(1_000),
                );
                push(out, format_args!("{seconds}.{ms:03}"));
            }
            Variable::ServerProtocol => out.extend_from_slice(l.version.as_bytes()),
            Variable::Status => push(out, format_args!("{}", r.status)),
            Variable::BodyBytesSent => push(out, format_args!("{}", r.body_len)),
            Variable::RequestLength => push(out, format_args!("{}", l.request_len)),
            Variable::RequestTime => {
                let (seconds, us) = (self.took_us / 1_000_000, self.took_us % 1_000_000);
                push(out, format_args!("{seconds}.{us:06}"));
            }
            Variable::Uri => escape_value(path_and_query(l.field(Field::Target)).0, is_quoted, out),
            Variable::Args => {
                escape_value(path_and_query(l.field(Field::Target)).1, is_quoted, out);
            }
            Variable::Host => self.host(is_quoted, out),
            Variable::HostAndPort => {
                self.host(is_quoted, out);
                let port = l.field(Field::Host).and_then(|host| host_and_port(host).1);
                out.push(b':');
                match (port, l.scheme) {
                    (Some(port), _) => out.extend_from_slice(port),
                    (None, Scheme::Https) => out.extend_from_slice(b"443"),
                    (None, Scheme::Http) => out.extend_from_slice(b"80"),
                }
            }
            Variable::Scheme => out.extend_from_slice(match l.scheme {
                Scheme::Https => b"https",
                Scheme::Http => b"http",
            }),
            Variable::Rejected => escape_value(l.rejected.map(str::as_bytes), is_quoted, out),
            Variable::RequestCompletion => {
                out.extend_from_slice(if self.end == End::Whole { b"OK" } else { b"-" });
            }
            Variable::TlsProtocol => push_or_dash(self.tls.map_or("", |it| it.protocol), out),
            Variable::TlsCipher => push_or_dash(self.tls.map_or("", |it| it.cipher), out),
            Variable::ClientVerify => {
                out.extend_from_slice(match self.identity {
                    Some(_) => b"SUCCESS",
                    None => b"NONE",
                });
            }
            Variable::ClientSubject => of_identity(&|it| &it.subject, out),
            Variable::ClientSerial => of_identity(&|it| &it.serial, out),
            Variable::ClientFingerprint => of_identity(&|it| &it.fingerprint, out),
        }
    }

    /// The host without its port, in lower case.
    fn host(&self, is_quoted: bool, out: &mut Vec<u8>) {
        let host = self.logged.field(Field::Host);
        let host = host.map(|host| host_and_port(host).0);
        let host = host.filter(|host| !host.is_empty()).unwrap_or(b"-");
        escape(host.iter().map(u8::to_ascii_lowercase), is_quoted, out);
    }

    /// One JSON object.
    pub(super) fn json(&self, out: &mut Vec<u8>) {
        let (r, l) = (self.record, self.logged);
        out.extend_from_slice(b"{\"time\":\"");
        Civil::from_unix_ms(self.unix_ms).iso8601(out);
        out.extend_from_slice(b"\",\"peer\":");
        json_string(self.peer.as_bytes(), out);
        for (key, field) in [
            ("method", Field::Method),
            ("target", Field::Target),
            ("host", Field::Host),
            ("user", Field::RemoteUser),
            ("referer", Field::Referer),
            ("user_agent", Field::UserAgent),
            ("traceparent", Field::Traceparent),
            ("request_id", Field::RequestId),
        ] {
            if let Some(value) = l.field(field) {
                push(out, format_args!(",\"{key}\":"));
                json_string(value, out);
            }
        }
        if let Some(identity) = self.identity {
            for (key, value) in [
                ("tls_client", &identity.subject),
                ("tls_client_serial", &identity.serial),
            ] {
                push(out, format_args!(",\"{key}\":"));
                json_string(value.as_bytes(), out);
            }
        }
        if let Some(why) = l.rejected {
            push(out, format_args!(",\"rejected\":\"{why}\""));
        }
        push(
            out,
            format_args!(
                ",\"protocol\":\"{}\",\"status\":{},\"body_bytes\":{},\"duration_us\":{},\"whole\":{}}}",
                l.version,
                r.status,
                r.body_len,
                self.took_us,
                self.end == End::Whole
            ),
        );
    }

    /// A short line for people.
    pub(super) fn pretty(&self, out: &mut Vec<u8>, colour: bool) {
        let (r, l) = (self.record, self.logged);
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
        escape_value(l.field(Field::Method), true, out);
        out.push(b' ');
        escape_value(l.field(Field::Target), true, out);
        push(
            out,
            format_args!("  {}  {}", Size(r.body_len), Duration(self.took_us)),
        );
        if let Some(why) = l.rejected {
            push(out, format_args!("  ({why})"));
        }
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

/// Path and query of a request target. That of a proxy has scheme and host in front.
fn path_and_query(target: Option<&[u8]>) -> (Option<&[u8]>, Option<&[u8]>) {
    let Some(target) = target else {
        return (None, None);
    };
    let (path, query) = match target.iter().position(|b| *b == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    let scheme = path.windows(3).position(|three| three == b"://");
    let path = match scheme.filter(|_| !path.starts_with(b"/")) {
        Some(at) => {
            let rest = &path[at + 3..];
            let slash = rest.iter().position(|b| *b == b'/');
            slash.map_or(b"/".as_slice(), |slash| &rest[slash..])
        }
        None => path,
    };
    (Some(path), query)
}

/// A host, and the port that may follow it.
fn host_and_port(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some(colon) = authority.iter().rposition(|b| *b == b':') else {
        return (authority, None);
    };
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    let is_port = port.iter().all(u8::is_ascii_digit);
    // The colons of an IPv6 address are in brackets.
    if !is_port || host.starts_with(b"[") && !host.ends_with(b"]") {
        return (authority, None);
    }
    (host, Some(port).filter(|port| !port.is_empty()))
}

fn push_or_dash(text: &str, out: &mut Vec<u8>) {
    let text = if text.is_empty() { "-" } else { text };
    out.extend_from_slice(text.as_bytes());
}

/// Writes a value, or `-` if there is none. Bytes that could break a line or a quoted string are
/// escaped as `\xHH`, so that a peer can neither forge lines nor send control sequences to a terminal;
/// outside of quotation marks so are spaces, so that what follows keeps its position.
fn escape_value(value: Option<&[u8]>, is_quoted: bool, out: &mut Vec<u8>) {
    let value = value.filter(|value| !value.is_empty());
    escape(value.unwrap_or(b"-").iter().copied(), is_quoted, out);
}

fn escape(bytes: impl Iterator<Item = u8>, is_quoted: bool, out: &mut Vec<u8>) {
    for b in bytes {
        match b {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => push(out, format_args!("\\x{b:02X}")),
            b' ' if !is_quoted => out.extend_from_slice(b"\\x20"),
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

    /// As in the combined log format: `29/Feb/2000:12:34:56 +0000`.
    fn local(&self, out: &mut Vec<u8>) {
        let month = MONTHS[usize::from(self.month - 1)];
        push(
            out,
            format_args!(
                "{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000",
                self.day, self.year, self.hour, self.minute, self.second
            ),
        );
    }

    /// As in RFC 3339: `2000-02-29T12:34:56.042Z`.
    fn iso8601(&self, out: &mut Vec<u8>) {
        push(
            out,
            format_args!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
                self.year,
                self.month,
                self.day,
                self.hour,
                self.minute,
                self.second,
                self.millisecond
            ),
        );
    }
}
