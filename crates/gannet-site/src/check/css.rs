//! The URLs in a style sheet: `url(...)`, `@import "..."` (CSS Syntax, sections 4.3.5, 4.3.6) and
//! the strings of `image-set("..." 1x)` (CSS Images 4, section 2.4).

/// The URLs with their lines, from 1.
pub(super) fn urls(text: &str) -> Vec<(String, u64)> {
    let mut scanner = Scanner {
        rest: text,
        line: 1,
    };
    let mut found = Vec::new();
    // The depth of open parentheses in `image-set(`; 0 outside. Strings in inner functions, such as
    // `type("image/png")`, are not URLs.
    let mut set_depth = 0_u32;
    // The URL of a namespace is a name: nothing is loaded (CSS Namespaces 3, section 2).
    let mut is_namespace = false;
    while let Some(letter) = scanner.peek() {
        match letter {
            '/' if scanner.rest.starts_with("/*") => scanner.skip_comment(),
            '"' | '\'' => {
                let line = scanner.line;
                let string = scanner.string().filter(|_| set_depth == 1);
                found.extend(string.map(|url| (url, line)));
            }
            '(' | ')' if set_depth > 0 => {
                set_depth = if letter == '(' {
                    set_depth + 1
                } else {
                    set_depth - 1
                };
                scanner.take(1);
            }
            // The end of a declaration or block closes all functions.
            ';' | '{' | '}' => {
                (set_depth, is_namespace) = (0, false);
                scanner.take(1);
            }
            _ if set_depth == 0 && scanner.begins_image_set() => set_depth = 1,
            '@' if scanner.starts_with_word("@import") => {
                scanner.take("@import".len());
                scanner.skip_space();
                let line = scanner.line;
                if matches!(scanner.peek(), Some('"' | '\'')) {
                    found.extend(scanner.string().map(|url| (url, line)));
                }
            }
            '@' if scanner.starts_with_word("@namespace") => {
                scanner.take("@namespace".len());
                is_namespace = true;
            }
            'u' | 'U' if scanner.starts_with_word("url(") => {
                let line = scanner.line;
                scanner.take("url(".len());
                let url = scanner.url().filter(|_| !is_namespace);
                found.extend(url.map(|url| (url, line)));
            }
            _ if is_name(letter) => scanner.skip_name(),
            _ => scanner.take(letter.len_utf8()),
        }
    }
    found
}

struct Scanner<'t> {
    rest: &'t str,
    line: u64,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self, len: usize) {
        let (taken, rest) = self.rest.split_at(len);
        self.line += taken.bytes().filter(|byte| *byte == b'\n').count() as u64;
        self.rest = rest;
    }

    fn starts_with_word(&self, word: &str) -> bool {
        let start = self.rest.as_bytes().get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Consumes the name of an `image-set` and its parenthesis, if they are next.
    fn begins_image_set(&mut self) -> bool {
        let mut names = ["image-set(", "-webkit-image-set("].into_iter();
        let name = names.find(|name| self.starts_with_word(name));
        if let Some(name) = name {
            self.take(name.len());
        }
        name.is_some()
    }

    fn skip_comment(&mut self) {
        let end = self.rest.get(2..).and_then(|rest| rest.find("*/"));
        self.take(end.map_or(self.rest.len(), |end| end + 4));
    }

    fn skip_space(&mut self) {
        let end = self.rest.find(|c: char| !c.is_ascii_whitespace());
        self.take(end.unwrap_or(self.rest.len()));
    }

    /// Skips a whole name: `my-url(` is not `url(`.
    fn skip_name(&mut self) {
        let end = self.rest.find(|c: char| !is_name(c));
        self.take(end.unwrap_or(self.rest.len()));
    }

    /// The content of a string; `None` if a line ends in it.
    fn string(&mut self) -> Option<String> {
        let quote = self.peek()?;
        self.take(1);
        let mut content = String::new();
        while let Some(letter) = self.peek() {
            match letter {
                _ if letter == quote => {
                    self.take(1);
                    return Some(content);
                }
                '\n' => return None,
                '\\' => content.extend(self.escape()),
                _ => {
                    content.push(letter);
                    self.take(letter.len_utf8());
                }
            }
        }
        Some(content)
    }

    fn url(&mut self) -> Option<String> {
        self.skip_space();
        if matches!(self.peek(), Some('"' | '\'')) {
            return self.string();
        }
        let mut content = String::new();
        while let Some(letter) = self.peek() {
            match letter {
                ')' => {
                    self.take(1);
                    break;
                }
                '\\' => content.extend(self.escape()),
                _ if letter.is_ascii_whitespace() => {
                    self.skip_space();
                    if self.peek().is_some_and(|next| next != ')') {
                        return None;
                    }
                }
                // A bad URL (section 4.3.6).
                '"' | '\'' | '(' => return None,
                _ => {
                    content.push(letter);
                    self.take(letter.len_utf8());
                }
            }
        }
        Some(content)
    }

    /// A backslash and the character it escapes (section 4.3.7).
    fn escape(&mut self) -> Option<char> {
        self.take(1);
        let letter = self.peek()?;
        let hex: String = self
            .rest
            .chars()
            .take(6)
            .take_while(char::is_ascii_hexdigit)
            .collect();
        if hex.is_empty() {
            self.take(letter.len_utf8());
            return (letter != '\n').then_some(letter);
        }
        self.take(hex.len());
        if self.peek().is_some_and(|next| next.is_ascii_whitespace()) {
            self.take(1);
        }
        u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32)
    }
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_') || !letter.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_found_and_other_text_is_not() {
        let check = |text: &str, expect: &[&str]| {
            let found: Vec<_> = urls(text).into_iter().map(|(url, _)| url).collect();
            assert_eq!(found, expect, "{text}");
        };
        check("a { b: url(x.png) }", &["x.png"]);
        check("a { b: URL( 'x y.png' ) c }", &["x y.png"]);
        check(
            "@import \"a.css\"; @import url(b.css) print;",
            &["a.css", "b.css"],
        );
        check(
            "@namespace url(x); @namespace svg url('y'); a{b:url(z)}",
            &["z"],
        );
        check("/* url(x) */ url(y)", &["y"]);
        check("content: 'url(x)'", &[]);
        check("my-url(x) url (y)", &[]);
        check(r"url(a\)b) url(\41 b) url('a\'b')", &["a)b", "Ab", "a'b"]);
        check("url(a b) url(c)", &["c"]);
        check(
            "url(data:image/png;base64,AA==)",
            &["data:image/png;base64,AA=="],
        );
        check(
            "a { b: image-set('x.png' 1x, \"y.png\" 2x) }",
            &["x.png", "y.png"],
        );
        check(
            "-webkit-image-set(url(a) 1x, 'b' type('image/png') 2x) 'c'",
            &["a", "b"],
        );
        check("my-image-set('x') image-set ('y')", &[]);
        check("image-set('x' 1x; content: 'y'", &["x"]);
        check("url(", &[""]);
        check("'\\", &[]);
        check("/*", &[]);
        check("url(x", &["x"]);
        assert_eq!(urls("a\nb\nurl(c)"), [("c".to_owned(), 3)]);
    }
}
