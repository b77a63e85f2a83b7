//! A web server for a store, over HTTP/1.1, that can be told to lie.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gannet_archive::digest;
use gannet_fleet::Follower;
use gannet_testkit::DEADLINE;
use gannet_testkit::stand_in::{self, Request};

/// A request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Asked {
    /// Without the slash at its start.
    pub(crate) path: String,
    pub(crate) range: Option<Range<usize>>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) authorization: Option<String>,
}

/// An answer to a request.
pub(crate) enum Answer {
    /// The file, or the range of it.
    Truth,
    /// The file, or the range of it, as if its content were this.
    Instead(Vec<u8>),
    /// The head for the file or the range, and only so many bytes of it.
    Cut(usize),
    /// These bytes, head and all.
    Raw(Vec<u8>),
    /// A head, and zeros until the client has had enough.
    Endless(String),
    /// A head, and then a byte each few milliseconds until the client has had enough.
    Drip(String),
}

type Trick = Box<dyn FnMut(&Asked) -> Answer + Send>;

/// See the module.
pub(crate) struct StandIn {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    folder: PathBuf,
    trick: Mutex<Option<Trick>>,
    asked: Mutex<Vec<Asked>>,
    /// Clients that had enough of an endless answer.
    left: AtomicUsize,
}

impl StandIn {
    /// Serves a folder.
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        let shared = Arc::new(Shared {
            folder: folder.into(),
            trick: Mutex::new(None),
            asked: Mutex::new(Vec::new()),
            left: AtomicUsize::new(0),
        });
        let of_all = Arc::clone(&shared);
        let port = stand_in::listen(move |stream| of_all.answer(stream));
        Self { port, shared }
    }

    /// Its URL, with a path below it.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From here on, answers as this says.
    pub(crate) fn lie(&self, trick: impl FnMut(&Asked) -> Answer + Send + 'static) {
        *self.shared.trick.lock().unwrap() = Some(Box::new(trick));
    }

    /// From here on, tells the truth.
    pub(crate) fn be_honest(&self) {
        *self.shared.trick.lock().unwrap() = None;
    }

    /// What it was asked since the last call.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.shared.asked.lock().unwrap())
    }

    /// Waits until so many clients had enough of an answer without an end; `follower` may go on
    /// closing its connections meanwhile.
    pub(crate) fn until_left(&self, count: usize, follower: &Follower) {
        let begun = Instant::now();
        while self.shared.left.load(Ordering::Relaxed) < count {
            assert!(begun.elapsed() < DEADLINE, "it reads on");
            follower.sleep(Duration::from_millis(5));
        }
    }
}

impl Shared {
    fn answer(&self, mut stream: &TcpStream) -> Option<()> {
        let asked = asked(&Request::read(stream)?);
        self.asked.lock().unwrap().push(asked.clone());
        let answer = match self.trick.lock().unwrap().as_mut() {
            Some(trick) => trick(&asked),
            None => Answer::Truth,
        };
        let content = || fs::read(self.folder.join(&asked.path)).ok();
        match answer {
            Answer::Truth => stream.write_all(&truth(&asked, content(), usize::MAX)).ok(),
            Answer::Instead(content) => {
                let answer = truth(&asked, Some(content), usize::MAX);
                stream.write_all(&answer).ok()
            }
            Answer::Cut(len) => stream.write_all(&truth(&asked, content(), len)).ok(),
            Answer::Raw(bytes) => stream.write_all(&bytes).ok(),
            Answer::Endless(head) => {
                let mut sent = stream.write_all(head.as_bytes());
                while sent.is_ok() {
                    sent = stream.write_all(&[b'0'; 4096]);
                }
                self.one_left()
            }
            Answer::Drip(head) => {
                let mut sent = stream.write_all(head.as_bytes());
                let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
                while sent.is_ok() {
                    sent = stream.write_all(b"0");
                    if let Ok(0) = stream.read(&mut [0; 64]) {
                        break;
                    }
                }
                self.one_left()
            }
        }
    }

    fn one_left(&self) -> Option<()> {
        self.left.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn asked(request: &Request) -> Asked {
    let field = |name: &str| request.field(name).map(str::to_owned);
    Asked {
        path: request.target.trim_start_matches('/').to_owned(),
        range: request.range(),
        if_none_match: field("if-none-match"),
        authorization: field("authorization"),
    }
}

/// An honest answer, of whose content only so many bytes are sent.
fn truth(asked: &Asked, content: Option<Vec<u8>>, len_max: usize) -> Vec<u8> {
    let Some(content) = content else {
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            .to_vec();
    };
    let tag = format!("\"{:x?}\"", &digest(&content)[..4]).replace([' ', ',', '[', ']'], "");
    if asked.if_none_match.as_ref() == Some(&tag) {
        let head = format!("HTTP/1.1 304 Not Modified\r\netag: {tag}\r\nconnection: close\r\n\r\n");
        return head.into_bytes();
    }
    let (status, range) = match &asked.range {
        Some(range) if range.end > content.len() => {
            return b"HTTP/1.1 416 Range Not Satisfiable\r\ncontent-length: 0\r\n\
                connection: close\r\n\r\n"
                .to_vec();
        }
        Some(range) => ("206 Partial Content", range.clone()),
        None => ("200 OK", 0..content.len()),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\netag: {tag}\r\ncontent-length: {}\r\nconnection: close\r\n",
        range.len()
    );
    if asked.range.is_some() {
        let (start, last) = (range.start, range.end - 1);
        answer += &format!("content-range: bytes {start}-{last}/{}\r\n", content.len());
    }
    let mut answer = (answer + "\r\n").into_bytes();
    answer.extend(content[range].iter().take(len_max));
    answer
}
