//! Detects text that is sent with `charset=utf-8` but has another encoding: the field takes
//! precedence over the encoding that a page or style sheet declares, so browsers would misread it.

/// What is wrong with a text's encoding, and in which line. `declared` is the encoding that the
/// text declares, with its line.
pub(super) fn mistake(bytes: &[u8], declared: Option<(&str, u64)>) -> Option<(u64, String)> {
    // A byte order mark takes precedence over the field.
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return None;
    }
    let invalid = str::from_utf8(bytes).err().map(|it| it.valid_up_to());
    // ISO-2022-JP uses ASCII bytes only, but with escapes. Plain ASCII is the same in all
    // encodings.
    let is_plain = bytes.is_ascii() && !bytes.contains(&0x1b);
    let other = declared.filter(|(label, _)| !is_utf8_label(label));
    match (other, invalid) {
        (Some((label, line)), _) if !is_plain => Some((
            line,
            format!("the text is sent as UTF-8, but declares '{label}'"),
        )),
        (_, Some(at)) => {
            let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
            Some((
                line,
                "the text is sent as UTF-8, but is not UTF-8".to_owned(),
            ))
        }
        _ => None,
    }
}

/// The encoding that a style sheet declares: only at its very beginning, in exactly this form (CSS
/// Syntax, section 3.2).
pub(super) fn of_style(text: &str) -> Option<(&str, u64)> {
    let label = text.strip_prefix("@charset \"")?.split_once("\";")?.0;
    Some((label, 1))
}

/// The encoding in `text/html; charset=...`.
pub(super) fn of_type(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim_ascii().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim_ascii().trim_matches(['"', '\'']))
    })
}

/// The labels of UTF-8 (Encoding, section 4.2).
pub(super) fn is_utf8_label(label: &str) -> bool {
    const LABELS: [&str; 6] = [
        "unicode-1-1-utf-8",
        "unicode11utf8",
        "unicode20utf8",
        "utf-8",
        "utf8",
        "x-unicode20utf8",
    ];
    let label = label.trim_ascii();
    LABELS.iter().any(|it| it.eq_ignore_ascii_case(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let check = |bytes: &[u8], declared: Option<&str>, expect: Option<u64>| {
            let found = mistake(bytes, declared.map(|label| (label, 9)));
            assert_eq!(
                found.map(|(line, _)| line),
                expect,
                "{bytes:?} {declared:?}"
            );
        };
        check(b"caf\xe9", None, Some(1));
        check(b"a\nb\ncaf\xe9", Some("utf-8"), Some(3));
        check(b"caf\xe9", Some("windows-1252"), Some(9));
        check("café".as_bytes(), Some("windows-1252"), Some(9));
        check("café".as_bytes(), Some("UTF8"), None);
        check("café".as_bytes(), None, None);
        check(b"cafe", Some("windows-1252"), None);
        check(b"\x1b$B$3", Some("iso-2022-jp"), Some(9));
        check(b"\xff\xfea\0", None, None);
        check(b"", None, None);
    }

    #[test]
    fn encodings_are_read_where_browsers_read_them() {
        assert_eq!(of_style("@charset \"latin1\";p{}"), Some(("latin1", 1)));
        assert_eq!(of_style(" @charset \"latin1\";"), None);
        assert_eq!(of_style("@charset 'latin1';"), None);
        let check = |value: &str, expect| assert_eq!(of_type(value), expect, "{value}");
        check("text/html; Charset = \"latin1\"", Some("latin1"));
        check("text/html; a=b; charset=utf-8", Some("utf-8"));
        check("text/html", None);
    }
}
