//! Converts host names as operators write them to the form that browsers send.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use gannet_archive::is_host_name;

/// The form that browsers send: lower case, international labels in ASCII (`xn--...`), IPv6
/// addresses in brackets and in their shortest form.
///
/// # Errors
/// The text is not a host name; the message says why.
pub fn host_name(written: &str) -> Result<String, String> {
    let inner = written
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'));
    if let Ok(address) = inner.unwrap_or(written).parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    // A name may end with the root's dot.
    let name = written.strip_suffix('.').unwrap_or(written).to_lowercase();
    let labels: Result<Vec<String>, String> = name.split('.').map(label).collect();
    let name = labels?.join(".");
    match is_host_name(name.as_bytes()) {
        true => Ok(name),
        false if name.contains(':') => Err("not the name of a host, without port".into()),
        false if name.contains(',') => Err("more than one name: give each on its own".into()),
        false => Err("not the name of a host: letters, digits, '-', '_' and dots between".into()),
    }
}

/// The same for a site, which may also be that of all names below one: `*.example.org`.
///
/// # Errors
/// The text is neither a host name nor a wildcard; the message says why.
pub fn site_name(written: &str) -> Result<String, String> {
    let Some(parent) = written.strip_prefix(WILDCARD) else {
        return host_name(written);
    };
    let name = host_name(parent)?;
    match name.starts_with('[') || parent.parse::<Ipv4Addr>().is_ok() {
        true => Err("no names are below an address".into()),
        false => Ok(format!("{WILDCARD}{name}")),
    }
}

/// How the name of a site for all names below another one begins.
pub const WILDCARD: &str = "*.";

/// Converts a label to ASCII (RFC 5890 section 2.3.2.1). Labels that would have to be composed or
/// mapped first are rejected, not guessed: the tables for that are large.
pub(crate) fn label(text: &str) -> Result<String, String> {
    if text.is_ascii() {
        return Ok(text.to_owned());
    }
    let is_plain = |letter: char| {
        let is_jamo = ('\u{1100}'..='\u{11ff}').contains(&letter);
        let is_compatible = ('\u{f900}'..='\u{ffef}').contains(&letter);
        letter == '-' || letter.is_alphanumeric() && !is_jamo && !is_compatible
    };
    match text.chars().find(|letter| !is_plain(*letter)) {
        None => punycode(text).ok_or_else(|| "a label that is too long".into()),
        Some(letter) => {
            let mut cause = String::new();
            let code = u32::from(letter);
            let _ = write!(cause, "U+{code:04X} may not be in a name");
            Err(cause + ": write the form that browsers send, 'xn--...'")
        }
    }
}

/// The longest label (RFC 1035 section 2.3.4).
const LABEL_LEN_MAX: usize = 63;

/// Encodes a label (RFC 3492 section 6.3); `None` if it is too long.
fn punycode(text: &str) -> Option<String> {
    const BASE: u32 = 36;
    let letters: Vec<u32> = text.chars().map(u32::from).collect();
    let mut out: String = text.chars().filter(char::is_ascii).collect();
    let basic = out.len() as u32;
    let mut done = basic;
    if basic > 0 {
        out.push('-');
    }
    let (mut code, mut delta, mut bias) = (0x80u32, 0u32, 72u32);
    while (done as usize) < letters.len() {
        let next = letters.iter().copied().filter(|it| *it >= code).min()?;
        delta = delta.checked_add((next - code).checked_mul(done + 1)?)?;
        code = next;
        for &letter in &letters {
            delta += u32::from(letter < code);
            if letter != code {
                continue;
            }
            let mut rest = delta;
            for position in (1..).map(|it| it * BASE) {
                let threshold = position.saturating_sub(bias).clamp(1, 26);
                if rest < threshold {
                    break;
                }
                out.push(digit(threshold + (rest - threshold) % (BASE - threshold)));
                rest = (rest - threshold) / (BASE - threshold);
            }
            out.push(digit(rest));
            bias = adapt(delta, done + 1, done == basic);
            delta = 0;
            done += 1;
        }
        delta += 1;
        code += 1;
    }
    let label = format!("xn--{out}");
    (label.len() <= LABEL_LEN_MAX).then_some(label)
}

/// RFC 3492 section 6.1.
fn adapt(delta: u32, count: u32, is_first: bool) -> u32 {
    let mut delta = delta / if is_first { 700 } else { 2 };
    delta += delta / count;
    let mut steps = 0;
    while delta > 455 {
        delta /= 35;
        steps += 36;
    }
    steps + 36 * delta / (delta + 38)
}

fn digit(value: u32) -> char {
    char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[value as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_browsers_send() {
        for (written, sent) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("Bücher.example", "xn--bcher-kva.example"),
            ("münchen", "xn--mnchen-3ya"),
            ("straße.de", "xn--strae-oqa.de"),
            ("пример.испытание", "xn--e1afmkfd.xn--80akhbyknj4f"),
            ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("::1", "[::1]"),
            ("[2001:DB8:0:0::1]", "[2001:db8::1]"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(host_name(written).as_deref(), Ok(sent), "{written}");
        }
        for (written, part) in [
            ("a.example:80", "without port"),
            ("a.example,b.example", "each on its own"),
            ("not a host", "not the name of a host"),
            ("a..b", "not the name of a host"),
            ("", "not the name of a host"),
            ("[a]", "not the name of a host"),
            ("..", "not the name of a host"),
            ("../a", "not the name of a host"),
            ("a/b.example", "not the name of a host"),
            ("a\0.example", "not the name of a host"),
            // Decomposed, as some file systems store names.
            ("bu\u{308}cher", "U+0308"),
            ("☃.example", "U+2603"),
            ("ａ.example", "U+FF41"),
        ] {
            let cause = host_name(written).expect_err(written);
            assert!(cause.contains(part), "{written}: {cause}");
        }
        assert!(host_name(&"é".repeat(70)).is_err());
    }

    #[test]
    fn a_site_may_be_for_all_names_below_one() {
        assert_eq!(site_name("*.Example.ORG."), Ok("*.example.org".into()));
        assert_eq!(
            site_name("*.bücher.example"),
            Ok("*.xn--bcher-kva.example".into())
        );
        assert_eq!(site_name("example.org"), Ok("example.org".into()));
        for written in [
            "*",
            "*.",
            "a.*.example",
            "*.*.example",
            "*a.example",
            "*.::1",
            "*.127.0.0.1",
        ] {
            assert!(site_name(written).is_err(), "{written}");
        }
    }
}
