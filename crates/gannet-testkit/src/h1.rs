//! A strict parser of HTTP/1.1 answers, which rejects protocol violations.

/// Maximum length of an answer's head; gannet's are far shorter.
const HEAD_MAX: usize = 16 << 10;

/// Fields that may occur at most once.
const SINGLETONS: [&str; 12] = [
    "allow",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "last-modified",
    "location",
    "vary",
];

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Response {
    /// `HTTP/1.1`.
    pub version: String,
    /// The status code.
    pub status: u16,
    /// Names (in lower case) and values, in order.
    pub fields: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

impl Response {
    /// Parses a head at the beginning of some bytes; returns it with its length. `None` if it is
    /// incomplete.
    ///
    /// # Errors
    ///
    /// A description of the violation.
    pub fn head(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let start = &bytes[..bytes.len().min(9)];
        if !b"HTTP/1.1 ".starts_with(start) {
            return Err(format!("no answer: {}", start.escape_ascii()));
        }
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            let is_endless = bytes.len() >= HEAD_MAX;
            return if is_endless {
                Err("an endless head".into())
            } else {
                Ok(None)
            };
        };
        Ok(Some((Self::parse(&bytes[..end])?, end + 4)))
    }

    /// Parses a complete head, without the empty line after it.
    fn parse(head: &[u8]) -> Result<Self, String> {
        let shown = || head.escape_ascii().to_string();
        let text = std::str::from_utf8(head).map_err(|_| format!("not text: {}", shown()))?;
        let bare = text.replace("\r\n", "");
        if bare.contains(['\r', '\n', '\0']) {
            return Err(format!("bare CR or LF: {}", shown()));
        }
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(status_of);
        let status = status.ok_or_else(|| format!("no status line: {}", shown()))?;
        let fields: Result<Vec<_>, _> = lines.map(field_of).collect();
        let response = Self {
            version: "HTTP/1.1".into(),
            status,
            fields: fields?,
            body: Vec::new(),
        };
        for name in SINGLETONS {
            response.only(name)?;
        }
        if status >= 200 && !response.only("date")?.is_some_and(is_date) {
            return Err(format!("no date: {}", shown()));
        }
        Ok(response)
    }

    /// The value of a field, or an error if it occurs twice.
    fn only(&self, name: &str) -> Result<Option<&str>, String> {
        let mut values = self.fields.iter().filter(|(n, _)| n == name);
        let value = values.next().map(|(_, value)| value.as_str());
        match values.next() {
            None => Ok(value),
            Some(_) => Err(format!("{name} occurs twice: {:?}", self.fields)),
        }
    }

    /// The value of a field that occurs at most once.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.only(name).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The entity tag.
    pub fn tag(&self) -> &str {
        self.field("etag").expect("it has an entity tag")
    }

    /// The content as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the content is UTF-8")
    }

    /// The head's `content-length`.
    pub fn content_length(&self) -> Option<u64> {
        let value = self.field("content-length")?;
        assert!(value.bytes().all(|b| b.is_ascii_digit()), "{value}");
        Some(value.parse().expect("a number"))
    }

    /// Asserts the status and returns the answer.
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{:?}", self.brief());
        self
    }

    /// A copy without a long body.
    fn brief(&self) -> Self {
        let mut brief = self.clone();
        brief.body.truncate(200);
        brief
    }
}

/// The status of `HTTP/1.1 200 OK`.
fn status_of(line: &str) -> Option<u16> {
    let (status, reason) = line.strip_prefix("HTTP/1.1 ")?.split_at_checked(3)?;
    let is_status = status.bytes().all(|byte| byte.is_ascii_digit()) && reason.starts_with(' ');
    status.parse().ok().filter(|_| is_status)
}

fn field_of(line: &str) -> Result<(String, String), String> {
    let wrong = || format!("a field line: {line:?}");
    let (name, value) = line.split_once(": ").ok_or_else(wrong)?;
    let is_byte = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    // `Content-Length`, as programs expect it that compare bytes.
    let is_title = !name
        .split('-')
        .any(|it| it.starts_with(|c: char| c.is_ascii_lowercase()));
    if name.is_empty() || !is_title || !name.bytes().all(is_byte) || value != value.trim() {
        return Err(wrong());
    }
    Ok((name.to_ascii_lowercase(), value.to_owned()))
}

/// The head of a request to `test`.
pub fn head(method: &str, target: &str, lines: &[&str]) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\nhost: test\r\n");
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text
}

/// Whether a text has the form `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn is_date(text: &str) -> bool {
    let form = b"Aaa, 00 Aaa 0000 00:00:00 ";
    let Some(text) = text.strip_suffix("GMT") else {
        return false;
    };
    text.len() == form.len()
        && text.bytes().zip(form).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            b'A' => byte.is_ascii_uppercase(),
            b'a' => byte.is_ascii_lowercase(),
            form => byte == *form,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let text = format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: 2\r\n\r\nok");
        let head = Response::head(text.as_bytes()).expect("well-formed");
        let (response, len) = head.expect("whole");
        assert_eq!((response.status, response.content_length()), (200, Some(2)));
        assert_eq!(&text[len..], "ok");
        for end in 0..len {
            assert_eq!(Response::head(&text.as_bytes()[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn what_bends_the_protocol_is_refused() {
        let check = |text: &str, expect: &str| {
            let why = Response::head(text.as_bytes()).expect_err(text);
            assert!(why.starts_with(expect), "{why}");
        };
        let with = |lines: &str| format!("HTTP/1.1 200 OK\r\n{DATE}{lines}\r\n");
        check("HTTP/1.0 200 OK\r\n\r\n", "no answer");
        check("HTTP/1.1 2000 OK\r\n\r\n", "no status line");
        check("HTTP/1.1 200 OK\r\n\r\n", "no date");
        check(&with("ETag: \"a\"\r\nETag: \"a\"\r\n"), "etag occurs twice");
        check(&with("vary: accept\r\n"), "a field line");
        check(&with("Vary:accept\r\n"), "a field line");
        check(&with("Vary: accept \r\n"), "a field line");
        check(&with("Vary: a\nb: c\r\n"), "bare CR or LF");
        check(
            &format!("HTTP/1.1 200 {}", "x".repeat(HEAD_MAX)),
            "an endless head",
        );
    }
}
