//! The fields of a response that a download uses, in any version of HTTP.

/// A response head.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Head {
    /// Status code.
    pub(super) status: u16,
    /// `content-length`, bytes.
    pub(super) content_length: Option<u64>,
    /// First and last byte, and the whole length, of `content-range`.
    pub(super) content_range: Option<(u64, u64, u64)>,
    /// Whether ranges are accepted.
    pub(super) accepts_ranges: bool,
    /// The entity tag, if strong.
    pub(super) tag: Option<String>,
    /// `last-modified`, as sent.
    pub(super) last_modified: Option<String>,
    /// `repr-digest` (RFC 9530).
    pub(super) repr_digest: Option<String>,
    /// `location`.
    pub(super) location: Option<String>,
    /// Whether the content has a coding, although none was requested.
    pub(super) is_coded: bool,
    /// Whether the content is chunked (HTTP/1 only).
    pub(super) is_chunked: bool,
}

impl Head {
    /// The length of the whole representation, if known.
    pub(super) fn whole_len(&self) -> Option<u64> {
        match self.content_range {
            Some((_, _, whole)) => Some(whole),
            None => self.content_length,
        }
    }

    /// Adds one field.
    ///
    /// # Errors
    /// A field that frames the content is malformed.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value).trim().to_owned();
        match name.to_ascii_lowercase().as_slice() {
            b"content-length" => {
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let length = text.parse().ok().filter(|_| digits);
                if length.is_none() || self.content_length.is_some_and(|l| Some(l) != length) {
                    return Err(format!("content-length is '{text}'"));
                }
                self.content_length = length;
            }
            b"content-range" => {
                let range = parse_range(&text);
                self.content_range = range.map_err(|()| format!("content-range is '{text}'"))?;
            }
            b"accept-ranges" => self.accepts_ranges = text.eq_ignore_ascii_case("bytes"),
            b"etag" if text.starts_with('"') => self.tag = Some(text),
            b"last-modified" => self.last_modified = Some(text),
            // Field lines of the same name form one list (RFC 9110 section 5.3).
            b"repr-digest" => match &mut self.repr_digest {
                Some(before) => *before = format!("{before}, {text}"),
                None => self.repr_digest = Some(text),
            },
            b"location" => self.location = Some(text),
            b"content-encoding" => self.is_coded = !text.eq_ignore_ascii_case("identity"),
            b"transfer-encoding" => {
                if !text.eq_ignore_ascii_case("chunked") {
                    return Err(format!(
                        "the transfer coding is '{text}' (expected chunked)"
                    ));
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Parses `bytes 0-99/1000` (RFC 9110 section 14.4). `None` if the range or the whole length is
/// missing, as with 416.
fn parse_range(text: &str) -> Result<Option<(u64, u64, u64)>, ()> {
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| ());
    let (range, whole) = text
        .strip_prefix("bytes ")
        .and_then(|rest| rest.split_once('/'))
        .ok_or(())?;
    if range == "*" {
        return number(whole).map(|_| None);
    }
    let (first, last) = range.split_once('-').ok_or(())?;
    let (first, last) = (number(first)?, number(last)?);
    if whole == "*" {
        return if first <= last { Ok(None) } else { Err(()) };
    }
    let whole = number(whole)?;
    if first <= last && last < whole {
        Ok(Some((first, last, whole)))
    } else {
        Err(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_decide_the_length_must_make_sense() {
        for (name, value, good) in [
            ("Content-Length", "12", true),
            ("content-length", "+12", false),
            ("content-length", "", false),
            ("content-range", "bytes 0-9/10", true),
            ("content-range", "bytes 9-0/10", false),
            ("content-range", "bytes 0-10/10", false),
            ("content-range", "bytes */10", true),
            ("content-range", "bytes 0-9/*", true),
            ("content-range", "bytes */*", false),
            ("content-range", "lines 0-9/10", false),
            ("transfer-encoding", "chunked", true),
            ("transfer-encoding", "gzip, chunked", false),
        ] {
            let found = Head::default().add(name.as_bytes(), value.as_bytes());
            assert_eq!(found.is_ok(), good, "{name}: {value}");
        }
        let mut head = Head::default();
        assert!(head.add(b"content-length", b"1").is_ok());
        assert!(head.add(b"content-length", b"2").is_err());
    }
}
