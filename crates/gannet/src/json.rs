//! Writes text as JSON (RFC 8259), for commands whose output other programs read.

/// A JSON string with its quotes.
#[must_use]
pub fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // RFC 8259 section 7 requires escapes up to U+001F; escaping the other control
            // characters prevents terminal escape injection.
            _ if letter.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A JSON array of strings.
pub fn strings<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let quoted: Vec<_> = texts.into_iter().map(|it| string(it.as_ref())).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_backslashes_and_control_characters_are_escaped() {
        let check = |text: &str, expect: &str| assert_eq!(string(text), expect);
        check("a", "\"a\"");
        check("\"\\", "\"\\\"\\\\\"");
        check("\n\u{7f}ü", "\"\\u000a\\u007fü\"");
        assert_eq!(strings(["a", "b"]), "[\"a\", \"b\"]");
    }
}
