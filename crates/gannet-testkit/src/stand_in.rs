//! What stand-ins for servers of others have in common: they listen, and read a request of HTTP/1.1 from each
//! connection.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::thread;

/// Listens on a port of loopback, which is returned, until the test ends. Each connection has a thread, in which
/// `answer` handles it: `None` if the client has left, which it may at any time.
pub fn listen(answer: impl Fn(&TcpStream) -> Option<()> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || answer(&stream));
        }
    });
    port
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its target, as it was sent.
    pub target: String,
    /// Names in lower case, and values.
    fields: Vec<(String, String)>,
    /// Its content.
    pub content: Vec<u8>,
}

impl Request {
    /// Reads one; `None` if the client leaves before its end.
    pub fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut next = || {
            let mut line = String::new();
            let len = reader.read_line(&mut line).ok()?;
            (len > 0).then(|| line.trim_end().to_owned())
        };
        let first = next()?;
        let (method, rest) = first.split_once(' ')?;
        let (target, _) = rest.split_once(' ')?;
        let mut request = Self {
            method: method.to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
            content: Vec::new(),
        };
        // A line without a colon is the empty one at the end.
        while let Some((name, value)) = next()?.split_once(':') {
            let value = value.trim().to_owned();
            request.fields.push((name.to_ascii_lowercase(), value));
        }
        if let Some(len) = request.field("content-length") {
            request.content = vec![0; len.parse().ok()?];
            reader.read_exact(&mut request.content).ok()?;
        }
        Some(request)
    }

    /// The value of a field; its name in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// The bytes that a `range` with both ends asks for.
    pub fn range(&self) -> Option<Range<usize>> {
        let (start, last) = self
            .field("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        Some(start.parse().ok()?..last.parse::<usize>().ok()? + 1)
    }
}
