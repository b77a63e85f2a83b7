//! One request to a running server, over plain HTTP/1.1.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::messages::{Failure, cause};
use crate::target::Target;

/// Bytes of an answer's head that are read at most.
const HEAD_LEN_MAX: u64 = 64 << 10;
/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server answered, without its content.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
}

/// Asks by HEAD, so that no content is sent.
pub(super) fn ask(
    address: &str,
    target: &Target,
    fields: &[(String, String)],
) -> Result<Got, Failure> {
    let refuse = |why: &str| Failure::new("ask", address, why);
    let Some(rest) = address.strip_prefix("http://") else {
        return Err(
            refuse("only http:// is spoken here").help("name an address of the server without TLS")
        );
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let has_port = authority
        .rsplit(':')
        .next()
        .is_some_and(|it| it.parse::<u16>().is_ok());
    let to = if has_port {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let failed = |error: std::io::Error| refuse(&cause(&error));
    let mut stream = TcpStream::connect(&to)
        .map_err(failed)
        .map_err(|failure| failure.help("is the server running there?"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let has = |name: &str| fields.iter().any(|(known, _)| known == name);
    let mut head = format!("HEAD {} HTTP/1.1\r\n", target.path_and_query());
    if !has("host") {
        let host = target.host.as_deref().unwrap_or(authority);
        head.push_str(&format!("host: {host}\r\n"));
    }
    for (name, value) in fields {
        if name.contains(['\r', '\n']) || value.contains(['\r', '\n']) {
            return Err(Failure::usage("a field with a line end in it"));
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream
        .take(HEAD_LEN_MAX)
        .read_to_end(&mut answer)
        .map_err(failed)?;
    parse(&answer).ok_or_else(|| refuse("its answer is not HTTP/1.1"))
}

fn parse(answer: &[u8]) -> Option<Got> {
    let text = String::from_utf8_lossy(answer);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let fields = lines.filter_map(|line| line.split_once(':'));
    Some(Got {
        status: status.parse().ok()?,
        fields: fields
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_others_refused() {
        let got = parse(b"HTTP/1.1 404 Not Found\r\nA: b: c \r\nd:e\r\n\r\nx").expect("sound");
        assert_eq!(got.status, 404);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(got.fields, [pair("a", "b: c"), pair("d", "e")]);
        for bad in [
            "",
            "HTTP/1.1 200",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 x\r\n\r\n",
        ] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
