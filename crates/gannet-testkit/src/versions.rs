//! One request over every version of HTTP.

use crate::client::{Client, Response};
use crate::h2::Peer;
use crate::h3;
use crate::quic::Quic;
use crate::tls::Secure;

/// A connection of each version to a server.
pub struct Versions {
    one: Client,
    two: Peer,
    three: Quic,
}

impl Versions {
    /// Connects.
    pub fn new(secure: &Secure) -> Self {
        Self {
            one: secure.connect(),
            two: Peer::secure(secure, &[]),
            three: Quic::begin(secure.server.address(), &secure.authority),
        }
    }

    /// The answers to a request, each with its version, in their order.
    pub fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> [Response; 3] {
        let lines: Vec<_> = (fields.iter())
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let one = self.one.request(method, path, &lines);
        let two = self.two.request(method, path, fields);
        let id = self.three.ask(&h3::request(method, path, fields));
        let three = self.three.answer(id);
        let of = |version: &str, status, fields, body| Response {
            version: version.to_owned(),
            status,
            fields,
            body,
        };
        [
            one,
            of("HTTP/2", two.status, two.fields, two.body),
            of("HTTP/3", three.status, three.fields, three.body),
        ]
    }
}
