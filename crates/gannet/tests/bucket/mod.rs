//! A bucket in memory, over HTTP/1.1, of S3 and of Google's storage, whose XML is the same: objects under
//! conditions, uploads in parts, lists. It can be told to do something else first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::net::TcpStream;
use std::ops::Range;
use std::process::Command;
use std::sync::{Arc, Mutex};

use gannet_archive::digest;
use gannet_testkit::stand_in::{self, Request};
use gannet_testkit::{Folder, command};

/// A request that changes or reads something.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Below the bucket.
    pub(crate) object: String,
    pub(crate) query: String,
    range: Option<Range<usize>>,
    if_match: Option<String>,
    if_none_match: Option<String>,
    /// Google's condition.
    if_generation: Option<String>,
}

/// What is done before a request is answered.
type Trick = Box<dyn FnMut(&Asked, &mut Objects) -> Before + Send>;

/// See [`Trick`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Before {
    /// Nothing: it is answered.
    Answer,
    /// Conditions are left out of it.
    Forget,
    /// Its `If-Match` is left out of it.
    ForgetMatch,
    /// The connection ends.
    Close,
    /// An answer begins, and does not end.
    Endless,
    /// It is refused with this status and this code.
    Refuse(u16, &'static str),
}

/// What is in the bucket.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) by_name: BTreeMap<String, Vec<u8>>,
    /// Parts of uploads that are not complete.
    pub(crate) uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
    begun: usize,
    /// What lists say of an object's length, if not the truth.
    pub(crate) lengths: BTreeMap<String, u64>,
    /// What was changed: `PUT log/1`.
    pub(crate) changes: Vec<String>,
}

/// See the module.
pub(crate) struct Bucket {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    objects: Mutex<Objects>,
    trick: Mutex<Option<Trick>>,
}

impl Bucket {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared {
            objects: Mutex::default(),
            trick: Mutex::default(),
        });
        let of_all = Arc::clone(&shared);
        let port = stand_in::listen(move |stream| of_all.answer(stream));
        Self { port, shared }
    }

    /// A command of the user of a machine, named by its cache, in a folder.
    pub(crate) fn command(&self, folder: &Folder, machine: &str) -> Command {
        let mut command = command();
        command
            .current_dir(folder.path())
            .env("AWS_ENDPOINT_URL", self.url())
            .env("AWS_REGION", "eu-central-1")
            .env("AWS_ACCESS_KEY_ID", "ann")
            .env("AWS_SECRET_ACCESS_KEY", "a secret")
            .env("GOOGLE_BASE_URL", self.url())
            .env("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY)
            .env_remove("CACHE_DIRECTORY")
            .env("XDG_CACHE_HOME", folder.join(machine));
        command
    }

    /// The service's URL.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Does something to what is in it.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        change(&mut self.shared.objects.lock().unwrap())
    }

    /// From here on, does this before each request.
    pub(crate) fn before(
        &self,
        trick: impl FnMut(&Asked, &mut Objects) -> Before + Send + 'static,
    ) {
        *self.shared.trick.lock().unwrap() = Some(Box::new(trick));
    }

    /// From here on, answers.
    pub(crate) fn be_honest(&self) {
        *self.shared.trick.lock().unwrap() = None;
    }

    /// The text of an object.
    pub(crate) fn text(&self, object: &str) -> String {
        self.with(|it| String::from_utf8(it.by_name[object].clone()).unwrap())
    }
}

impl Shared {
    fn answer(&self, mut stream: &TcpStream) -> Option<()> {
        let request = Request::read(stream)?;
        let mut asked = asked(&request)?;
        let mut objects = self.objects.lock().unwrap();
        let before = match self.trick.lock().unwrap().as_mut() {
            Some(trick) => trick(&asked, &mut objects),
            None => Before::Answer,
        };
        match before {
            Before::Answer | Before::Refuse(..) => {}
            Before::Forget => {
                (asked.if_match, asked.if_none_match, asked.if_generation) = (None, None, None);
            }
            Before::ForgetMatch => asked.if_match = None,
            Before::Close => return None,
            Before::Endless => {
                drop(objects);
                stream.write_all(b"HTTP/1.1 200 -\r\n\r\n").ok()?;
                loop {
                    stream.write_all(&[b' '; 1 << 16]).ok()?;
                }
            }
        }
        let (status, fields, body) = match before {
            Before::Refuse(status, code) => {
                let text = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
                (status, String::new(), text.into_bytes())
            }
            _ => objects.answer(&asked, request.content),
        };
        drop(objects);
        let len = body.len();
        let head = format!(
            "HTTP/1.1 {status} -\r\n{fields}content-length: {len}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).ok()?;
        let is_head = asked.method == "HEAD";
        stream.write_all(if is_head { b"" } else { &body }).ok()
    }
}

type Answer = (u16, String, Vec<u8>);

impl Objects {
    fn answer(&mut self, asked: &Asked, body: Vec<u8>) -> Answer {
        let none = |status| (status, String::new(), Vec::new());
        let name = &asked.object;
        let parameter = |name: &str| {
            let pairs = asked.query.split('&').filter_map(|it| it.split_once('='));
            pairs.into_iter().find(|(found, _)| *found == name)
        };
        let upload = parameter("uploadId").map(|(_, id)| id.to_owned());
        let reads = ["GET", "HEAD"].contains(&&*asked.method);
        if !reads {
            self.changes.push(format!("{} {name}", asked.method));
        }
        match (&*asked.method, upload) {
            ("GET", _) if name.is_empty() => (200, String::new(), self.list(asked)),
            ("GET" | "HEAD", _) => match self.by_name.get(name) {
                Some(content) => read(asked, content),
                None => none(404),
            },
            ("POST", None) => {
                self.begun += 1;
                let id = format!("upload-{}", self.begun);
                self.uploads.insert(id.clone(), BTreeMap::new());
                let text = format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId>\
                     </InitiateMultipartUploadResult>"
                );
                (200, String::new(), text.into_bytes())
            }
            ("PUT", Some(id)) => {
                let (_, number) = parameter("partNumber").unwrap();
                let Some(parts) = self.uploads.get_mut(&id) else {
                    return none(404);
                };
                let tag = tag(&body);
                parts.insert(number.parse().unwrap(), body);
                (200, format!("etag: {tag}\r\n"), Vec::new())
            }
            ("POST", Some(_))
                if asked.if_none_match.is_some() && self.by_name.contains_key(name) =>
            {
                none(412)
            }
            ("POST", Some(id)) => {
                let Some(parts) = self.uploads.remove(&id) else {
                    return none(404);
                };
                let content = parts.into_values().collect::<Vec<_>>().concat();
                let text = format!(
                    "<CompleteMultipartUploadResult><ETag>{}</ETag>\
                     </CompleteMultipartUploadResult>",
                    tag(&content)
                );
                self.by_name.insert(name.clone(), content);
                (200, String::new(), text.into_bytes())
            }
            ("DELETE", Some(id)) => {
                self.uploads.remove(&id);
                none(204)
            }
            ("DELETE", None) => {
                self.by_name.remove(name);
                none(204)
            }
            ("PUT", None) => {
                let known = self.by_name.get(name);
                let (tag_now, now) = (known.map(|it| tag(it)), known.map(|it| generation(it)));
                let is_refused = asked.if_none_match.is_some() && known.is_some()
                    || asked.if_match.is_some() && asked.if_match != tag_now
                    || asked
                        .if_generation
                        .as_ref()
                        .is_some_and(|it| *it != now.unwrap_or("0".into()));
                if is_refused {
                    return none(412);
                }
                let fields = state_of(&body);
                self.by_name.insert(name.clone(), body);
                (200, fields, Vec::new())
            }
            _ => none(400),
        }
    }

    fn list(&self, asked: &Asked) -> Vec<u8> {
        let prefix = asked
            .query
            .split('&')
            .find_map(|it| it.strip_prefix("prefix="));
        let prefix = decoded(prefix.unwrap_or_default());
        let mut text = String::from("<ListBucketResult>");
        let listed = self
            .by_name
            .iter()
            .filter(|(name, _)| name.starts_with(&prefix));
        for (name, content) in listed {
            let len = self.lengths.get(name).copied();
            let (len, tag) = (len.unwrap_or(content.len() as u64), tag(content));
            let _ = write!(
                text,
                "<Contents><Key>{name}</Key><LastModified>{MODIFIED}</LastModified>\
                 <ETag>{tag}</ETag><Size>{len}</Size></Contents>"
            );
        }
        (text + "</ListBucketResult>").into_bytes()
    }
}

fn read(asked: &Asked, content: &[u8]) -> Answer {
    let mut fields = state_of(content);
    fields += "last-modified: Mon, 23 Nov 2026 08:30:00 GMT\r\n";
    match asked.range.clone() {
        Some(range) => {
            let end = range.end.min(content.len());
            let (start, last, len) = (range.start, end - 1, content.len());
            let _ = write!(fields, "content-range: bytes {start}-{last}/{len}\r\n");
            (206, fields, content[start..end].to_vec())
        }
        None => (200, fields, content.to_vec()),
    }
}

fn asked(request: &Request) -> Option<Asked> {
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let field = |name: &str| request.field(name).map(str::to_owned);
    Some(Asked {
        method: request.method.clone(),
        object: decoded(path.strip_prefix("/bucket")?.trim_start_matches('/')),
        query: query.to_owned(),
        range: request.range(),
        if_match: field("if-match"),
        if_none_match: field("if-none-match"),
        if_generation: field("x-goog-if-generation-match"),
    })
}

/// A name without what Google's clients escape in it.
fn decoded(name: &str) -> String {
    let name = name.replace("%2F", "/").replace("%2E", ".");
    name.replace("%2D", "-")
}

/// What tells a state of an object from others.
fn state_of(content: &[u8]) -> String {
    let (tag, generation) = (tag(content), generation(content));
    format!("etag: {tag}\r\nx-goog-generation: {generation}\r\n")
}

fn generation(content: &[u8]) -> String {
    let digits = digest(content);
    u32::from_be_bytes([digits[0] | 1, digits[1], digits[2], digits[3]]).to_string()
}

fn tag(content: &[u8]) -> String {
    let digits: Vec<_> = digest(content)[..8]
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    format!("\"{}\"", digits.concat())
}

/// When all objects were written: a cache has to tell them apart by more.
const MODIFIED: &str = "2026-11-23T08:30:00.000Z";

/// An account of Google's which asks nobody for tokens.
const GOOGLE_KEY: &str =
    r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}"#;
