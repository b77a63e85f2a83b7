//! Sends one request to a running server over HTTP/1.1, with TLS if the URL is https.

use std::io;
use std::path::PathBuf;

use gannet_get::transport::{Tls, Transport};
use gannet_get::{Url, Version, failed};
use gannet_site::target::Target;

use super::{Answer, Field, line};
use crate::alt_svc::announced_port;
use crate::https_record::https_record;
use crate::messages::Failure;

/// Maximum length in bytes of a response head.
const HEAD_LEN_MAX: usize = 64 << 10;

/// A running server.
#[derive(Clone, Debug)]
pub struct Server {
    /// `http://host:port`, `https://host:port`, or `host:port` with the scheme of the URL explained.
    pub address: String,
    /// Any certificate is accepted.
    pub is_insecure: bool,
    /// Certificates to trust instead of the system's.
    pub cacert: Option<PathBuf>,
}

impl Server {
    /// The same server, at an address with a scheme: its own, else that of `target`.
    pub(super) fn or_scheme_of(&self, target: &Target) -> Self {
        let mut server = self.clone();
        if target.is_https && !server.address.contains("://") {
            server.address.insert_str(0, "https://");
        }
        server
    }

    /// Its host, with the port if a request names it; `None` if the address is not one.
    pub(super) fn authority(&self) -> Option<String> {
        Url::parse(&self.address).ok().map(|url| url.authority())
    }

    /// Whether the address is https.
    pub(super) fn is_secure(&self) -> bool {
        let scheme = self.address.get(..8);
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
    }
}

/// A server's response, without its content.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
}

impl Got {
    /// Lists the differences between the response and the expected answer, except for volatile
    /// fields.
    pub(super) fn compare(&self, answer: &Answer, text: &mut String) -> bool {
        const OF_THE_MOMENT: [&str; 6] = [
            "date",
            "connection",
            "keep-alive",
            "age",
            "server",
            "alt-svc",
        ];
        const OF_THE_CODING: [&str; 3] = ["content-encoding", "content-length", "etag"];
        let mut differences = Vec::new();
        let is_made = answer.is_made_on_the_fly && self.is_made_of(answer);
        let is_of_coding = |name: &str| is_made && OF_THE_CODING.contains(&name);
        if answer.status != self.status {
            differences.push(format!(
                "status {} (expected {})",
                self.status, answer.status
            ));
        }
        // The content of pages that the server generates is not predicted.
        let has_content = answer
            .fields
            .iter()
            .any(|field| field.name == "content-type");
        let fields = answer.fields.iter();
        for Field { name, value, .. } in fields.filter(|field| !is_of_coding(&field.name)) {
            // A field may have several lines, as cookies do.
            let mut sent = self.fields.iter().filter(|(known, _)| known == name);
            if sent.clone().any(|(_, sent)| sent == value) {
                continue;
            }
            match sent.next() {
                Some((_, sent)) => differences.push(format!("{name}: {sent} (expected {value})")),
                // A server with --compress stored, or at its memory limit.
                None if name == "vary" && answer.is_vary_of_made_ones => {}
                None => differences.push(format!("{name} is not sent (expected {value})")),
            }
        }
        for (name, value) in self.fields.iter().filter(|_| has_content) {
            let is_foreseen = answer.fields.iter().any(|field| field.name == *name);
            if !is_foreseen && !is_of_coding(name) && !OF_THE_MOMENT.contains(&name.as_str()) {
                differences.push(format!("{name}: {value} (not expected)"));
            }
        }
        line(text, "");
        if differences.is_empty() {
            line(text, "the server answers the same");
        } else {
            line(text, "the server answers differently:");
        }
        for difference in &differences {
            line(text, format!("  {difference}"));
        }
        !differences.is_empty()
    }

    /// Whether the response is a coding of the expected content: its tag is derived from that one's.
    fn is_made_of(&self, answer: &Answer) -> bool {
        let field = |name: &str| self.fields.iter().find(|(known, _)| known == name);
        let expected = answer.fields.iter().find(|field| field.name == "etag");
        let (Some((_, coding)), Some((_, tag)), Some(expected)) =
            (field("content-encoding"), field("etag"), expected)
        else {
            return false;
        };
        let original = expected.value.trim_end_matches('"');
        tag.strip_prefix(original)
            .is_some_and(|rest| rest.starts_with(&format!("-{coding}")))
    }

    /// Writes where the server speaks HTTP/3, if it does, and the DNS record that announces it.
    pub(super) fn write_http3(&self, authority: &str, text: &mut String) {
        let mut fields = self.fields.iter();
        let alt_svc = fields.find(|(name, _)| name == "alt-svc");
        let Some(announced) = alt_svc.and_then(|(_, value)| announced_port(value)) else {
            return;
        };
        line(text, format!("HTTP/3 at UDP port {announced}"));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().unwrap_or(443)),
            None => (authority, 443),
        };
        if let Some(record) = https_record(host, port, announced) {
            line(text, format!("  for the DNS: {record}"));
        }
    }
}

/// Sends a HEAD request, so that no content is transferred.
pub(super) fn ask(
    server: &Server,
    target: &Target,
    fields: &[(String, String)],
) -> Result<Got, Failure> {
    let refuse = |why: &str| Failure::new("ask", &server.address, why);
    let url = Url::parse(&server.address).map_err(|why| {
        refuse(&why)
            .as_usage()
            .help("name it as http://HOST:PORT or https://HOST:PORT")
    })?;
    let config = match url.is_https {
        false => None,
        true => {
            let config = Tls::new(server.is_insecure, server.cacert.as_deref(), Version::Http1);
            Some(config.map_err(|why| {
                refuse(&format!("certificates: {why}"))
                    .as_usage()
                    .help("name a file of certificates (PEM) with --cacert FILE")
            })?)
        }
    };
    let request = request(&url, target, fields)?;
    let failed = |error: io::Error| failed("ask", &server.address, &error);
    let mut transport = Transport::connect(&url, config.as_ref()).map_err(failed)?;
    transport.send(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") && answer.len() < HEAD_LEN_MAX {
        let more = transport.receive(&mut |bytes| {
            answer.extend_from_slice(bytes);
            Ok(())
        });
        if !more.map_err(failed)? {
            break;
        }
    }
    parse(&answer).ok_or_else(|| {
        refuse("its answer is not HTTP/1.1").help("is it an HTTP server that listens there?")
    })
}

fn request(url: &Url, target: &Target, fields: &[(String, String)]) -> Result<String, Failure> {
    let mut head = format!("HEAD {} HTTP/1.1\r\n", target.path_and_query());
    if !fields.iter().any(|(known, _)| known == "host") {
        let host = target.host.clone().unwrap_or_else(|| url.authority());
        head.push_str(&format!("host: {host}\r\n"));
    }
    for (name, value) in fields {
        if name.contains(['\r', '\n']) || value.contains(['\r', '\n']) {
            return Err(
                Failure::usage("a field with a line end in it").help("give each field its own -H")
            );
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("connection: close\r\n\r\n");
    Ok(head)
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
