//! The `alt-svc` field (RFC 7838 section 3): its grammar, and the port that it names for HTTP/3.
//!
//! ```text
//! clear  |  protocol="[host]:port" [; parameter=value]... [, ...]
//! ```

use crate::command_line::values::is_token;

/// An alternative: a protocol, and where it is spoken.
#[derive(Debug)]
struct Alternative<'a> {
    protocol: &'a str,
    host: &'a str,
    port: u16,
}

/// Checks a value of the field.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn check(value: &str) -> Result<(), String> {
    match value {
        "clear" => Ok(()),
        _ if value.eq_ignore_ascii_case("clear") => Err("write 'clear' in lower case".into()),
        _ => parse(value).map(|_| ()),
    }
}

/// The port that a value names for HTTP/3 on the same host.
#[must_use]
pub(crate) fn announced_port(value: &str) -> Option<u16> {
    let mut all = parse(value).ok()?.into_iter();
    let found = all.find(|it| it.protocol == "h3" && it.host.is_empty())?;
    Some(found.port)
}

fn parse(value: &str) -> Result<Vec<Alternative<'_>>, String> {
    split(value, ',').into_iter().map(alternative).collect()
}

/// The parts of a list. Separators within quotation marks separate nothing.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    let parts = text.split(|letter| {
        let is_end = letter == separator && !is_quoted;
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        is_end
    });
    parts.map(|part| part.trim_matches([' ', '\t'])).collect()
}

fn alternative(text: &str) -> Result<Alternative<'_>, String> {
    let mut parts = split(text, ';').into_iter();
    let first = parts.next().unwrap_or_default();
    let Some((protocol, authority)) = first.split_once('=') else {
        return Err(format!(
            "'{first}' is not an alternative, such as h3=\":443\""
        ));
    };
    if !is_token(protocol) {
        return Err(format!(
            "'{protocol}' is not the name of a protocol, such as h3"
        ));
    }
    let Some(inner) = quoted(authority) else {
        return Err(format!(
            "{authority} must be in quotation marks: {protocol}=\":443\""
        ));
    };
    let place = inner
        .rsplit_once(':')
        .filter(|(host, _)| is_host(host))
        .and_then(|(host, port)| Some((host, port_of(port)?)));
    let Some((host, port)) = place else {
        return Err(format!(
            "\"{inner}\" is not \":PORT\" or \"HOST:PORT\", such as \":443\""
        ));
    };
    for parameter in parts {
        check_parameter(parameter)?;
    }
    Ok(Alternative {
        protocol,
        host,
        port,
    })
}

fn check_parameter(text: &str) -> Result<(), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let is_value = is_token(value) || quoted(value).is_some();
    // Sections 3.1 and 3.2.
    let is_seconds = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match name.to_ascii_lowercase().as_str() {
        "ma" if !is_seconds => Err(format!(
            "'{text}' is not a number of seconds, such as ma=86400"
        )),
        "persist" if value != "1" => Err(format!("'{text}': the only value is persist=1")),
        _ if is_token(name) && is_value => Ok(()),
        _ => Err(format!("'{text}' is not a parameter, such as ma=86400")),
    }
}

/// What is within quotation marks (RFC 9110 section 5.6.4).
fn quoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return None,
            '\\' => _ = letters.next()?,
            _ => {}
        }
    }
    Some(inner)
}

/// A port, which is not 0.
fn port_of(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

/// Nothing, a name or an address (RFC 3986 section 3.2.2).
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']');
        return address.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
    text.bytes().all(is_of_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_grammar() {
        for right in [
            "clear",
            "h3=\":443\"",
            "h3=\":443\"; ma=86400",
            "h3=\":443\";ma=60;persist=1, h2=\"alt.example:8443\"",
            "h3=\"[2001:db8::1]:443\" ; x=\"a, b; c\\\"\"",
            "w%3Dx%3Ay#z=\":9\"",
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for (wrong, why) in [
            ("Clear", "write 'clear' in lower case"),
            ("h3", "'h3' is not an alternative, such as h3=\":443\""),
            (
                "h3=:443; ma=60",
                ":443 must be in quotation marks: h3=\":443\"",
            ),
            (
                "h3=\"443\"",
                "\"443\" is not \":PORT\" or \"HOST:PORT\", such as \":443\"",
            ),
            (
                "h3=\":0\"",
                "\":0\" is not \":PORT\" or \"HOST:PORT\", such as \":443\"",
            ),
            (
                "h3=\"a b:443\"",
                "\"a b:443\" is not \":PORT\" or \"HOST:PORT\", such as \":443\"",
            ),
            (
                "h 3=\":443\"",
                "'h 3' is not the name of a protocol, such as h3",
            ),
            (
                "h3=\":443\"; ma=1d",
                "'ma=1d' is not a number of seconds, such as ma=86400",
            ),
            (
                "h3=\":443\"; persist=yes",
                "'persist=yes': the only value is persist=1",
            ),
            (
                "h3=\":443\"; ma",
                "'ma' is not a number of seconds, such as ma=86400",
            ),
            ("h3=\":443\"; x", "'x' is not a parameter, such as ma=86400"),
            (
                "h3=\":443\",",
                "'' is not an alternative, such as h3=\":443\"",
            ),
        ] {
            assert_eq!(check(wrong), Err(why.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn ports_are_read() {
        assert_eq!(announced_port("h3=\":443\"; ma=86400"), Some(443));
        assert_eq!(announced_port("h2=\":1\", h3=\":8443\""), Some(8443));
        for none in ["clear", "h3=\"other.example:443\"", "h3=\":x\"", ""] {
            assert_eq!(announced_port(none), None, "{none}");
        }
    }
}
