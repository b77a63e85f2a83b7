//! Strict parsing of responses.

use gannet_testkit::h1::Response;

/// The head of a response.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    /// Length of the head with its empty line.
    pub(crate) len: usize,
}

impl Head {
    /// Parses a head; `None` if it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        let Some((response, len)) = Response::head(bytes)? else {
            return Ok(None);
        };
        let head = Self::of_fields(response.status, response.fields)?;
        Ok(Some(Self { len, ..head }))
    }

    /// A head received as a field block.
    pub(crate) fn of_fields(status: u16, fields: Vec<(String, String)>) -> Result<Self, String> {
        let head = Self {
            status,
            fields,
            len: 0,
        };
        let names = head.fields.iter().map(|(name, _)| name);
        let distinct: std::collections::BTreeSet<_> = names.collect();
        if distinct.len() < head.fields.len() || head.field("date").is_none() {
            return Err(format!("a field twice, or no date: {head:?}"));
        }
        Ok(head)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }

    /// Length of the body (RFC 9112 section 6.3).
    pub(crate) fn body_len(&self, is_head: bool) -> Result<u64, String> {
        if is_head || self.status == 204 || self.status == 304 {
            return Ok(0);
        }
        self.content_length()
            .ok_or_else(|| format!("no length: {self:?}"))
    }

    pub(crate) fn content_length(&self) -> Option<u64> {
        self.field("content-length")?.parse().ok()
    }

    /// First position, end and total length of a `content-range`.
    pub(crate) fn content_range(&self) -> Option<(u64, u64, u64)> {
        content_range(self.field("content-range")?)
    }

    /// The delimiter of a multipart response.
    pub(crate) fn boundary(&self) -> Option<&str> {
        self.field("content-type")?
            .strip_prefix("multipart/byteranges; boundary=")
    }
}

fn content_range(value: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((
        first.parse().ok()?,
        last.parse::<u64>().ok()? + 1,
        total.parse().ok()?,
    ))
}

/// A part of a multipart response: first position, total length of the representation, and bytes.
pub(crate) type Part<'a> = (u64, u64, &'a [u8]);

/// The parts of a complete multipart body.
pub(crate) fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, String> {
    let delimiter = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    let mut rest = body;
    loop {
        rest = rest
            .strip_prefix(delimiter.as_bytes())
            .ok_or("no delimiter")?;
        if rest == b"--\r\n" {
            return Ok(parts);
        }
        let end = rest
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .ok_or("no part")?;
        let text = std::str::from_utf8(&rest[..end]).map_err(|e| e.to_string())?;
        let (first, end_of_range, total) = text
            .split("\r\n")
            .find_map(|line| line.strip_prefix("Content-Range: "))
            .and_then(content_range)
            .ok_or_else(|| format!("part without range: {text}"))?;
        let len = (end_of_range - first) as usize;
        let bytes = rest.get(end + 4..end + 4 + len).ok_or("a part is short")?;
        parts.push((first, total, bytes));
        rest = &rest[end + 4 + len..];
    }
}
