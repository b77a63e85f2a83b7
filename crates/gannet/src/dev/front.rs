//! What browsers connect to: passes requests on to the server behind, puts the script into pages,
//! and answers for the script and the stream of events itself.
//!
//! A thread for each connection, with blocking reads and writes: this is for the browsers of one
//! author. Requests are parsed by the same code as everywhere in gannet.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gannet_http::h1::{Connection, Event};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::field_names::write_title;
use gannet_http::semantics::request::{Method, Request, Version};
use gannet_http::semantics::response::{ResponseHead, Status};
use gannet_server::notices::OUTPUT;

use super::hosts::{is_own, is_same_origin};
use super::limits::{BEAT, CONNECTIONS_MAX, HEAD_TIMEOUT, IDLE_TIMEOUT, PAGE_MAX};
use super::served::CurrentServer;
use super::state::State;
use super::upstream::{self, UpstreamAnswer};
use super::{page, policy};
use crate::messages::printable;

/// The answer to requests that name a foreign host.
const MISDIRECTED: &str = "gannet dev answers under addresses, localhost and names below it, so that no \
    other site can read the directory.\nTo serve it under other names: gannet DIR\n";

/// The script of pages.
const SCRIPT: &[u8] = include_bytes!("dev.js");

/// Fields of answers that are not passed on: those of the connection, those that would keep something
/// in a browser, and what holds for other bytes than those that are sent.
const LEFT_OUT: [&str; 8] = [
    "age",
    "alt-svc",
    "cache-control",
    "clear-site-data",
    "connection",
    "expires",
    "keep-alive",
    "strict-transport-security",
];

/// Fields that describe the bytes of a page before the script was put in.
const OF_BYTES: [&str; 6] = [
    "accept-ranges",
    "content-digest",
    "content-length",
    "etag",
    "last-modified",
    "repr-digest",
];

/// What all connections share.
pub(super) struct Front {
    pub(super) server: CurrentServer,
    pub(super) state: Arc<State>,
    /// The name of the machine, where others can connect.
    pub(super) own_name: Option<String>,
    /// Open connections.
    pub(super) count: AtomicUsize,
}

/// Accepts connections for good.
pub(super) fn accept(listener: &TcpListener, front: &Arc<Front>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptor is free, or the client has gone: both pass.
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        if front.count.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            front.count.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let shared = Arc::clone(front);
        let begun = thread::Builder::new()
            .name("gannet-dev-http".into())
            .spawn(move || {
                // The client has gone, or an answer was cut off: it notices.
                let _ = converse(&stream, &shared);
                shared.count.fetch_sub(1, Ordering::Relaxed);
            });
        if begun.is_err() {
            front.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The request of a step, without what it borrows.
struct FrontRequest {
    head: Vec<u8>,
    method: Method,
    own: Option<Own>,
    /// Whether pages get the script.
    gets_script: bool,
    /// For messages.
    line: String,
}

/// What the front answers itself.
enum Own {
    /// To a request that names a foreign host.
    Refusal,
    Script,
    /// With the mark of the page.
    Events(String),
}

/// Answers the requests of a connection until it ends.
fn converse(stream: &TcpStream, front: &Front) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
    let mut machine = Connection::new();
    let mut input = Vec::new();
    let mut begun = None;
    loop {
        let step = machine.receive(&input);
        let consumed = step.consumed;
        match step.event {
            Event::NeedMore => {
                if !input.is_empty() {
                    begun.get_or_insert_with(Instant::now);
                }
                let patience = match begun {
                    None => IDLE_TIMEOUT,
                    Some(begun) => HEAD_TIMEOUT.saturating_sub(begun.elapsed()),
                };
                if patience.is_zero() || !read_more(stream, &mut input, patience)? {
                    return Ok(());
                }
            }
            Event::Dropped => drop(input.drain(..consumed)),
            Event::Closing => return linger(stream, &machine),
            Event::Reject(rejection) => {
                let Status(code) = rejection.status;
                (&mut &*stream).write_all(&advance(&mut machine, code))?;
                return linger(stream, &machine);
            }
            Event::Request(request) => {
                let asked = FrontRequest::of(&request, front);
                if request.version == Version::Http10 {
                    machine.drain();
                }
                input.drain(..consumed);
                begun = None;
                let goes_on = answer(stream, front, &mut machine, asked)?;
                if !goes_on || machine.is_closing() {
                    return linger(stream, &machine);
                }
            }
        }
    }
}

fn read_more(mut stream: &TcpStream, input: &mut Vec<u8>, patience: Duration) -> io::Result<bool> {
    stream.set_read_timeout(Some(patience))?;
    let mut chunk = [0; 8 << 10];
    let count = stream.read(&mut chunk)?;
    input.extend(&chunk[..count]);
    Ok(count > 0)
}

/// Ends a connection without losing the answer to a client that is still sending.
fn linger(mut stream: &TcpStream, machine: &Connection) -> io::Result<()> {
    if machine.is_lingering() {
        stream.shutdown(Shutdown::Write)?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut chunk = [0; 8 << 10];
        for _ in 0..64 {
            if stream.read(&mut chunk)? == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// Tells the machine that the request is answered: it decides whether the connection persists. Returns
/// an answer without content.
fn advance(machine: &mut Connection, code: u16) -> Vec<u8> {
    let head = ResponseHead {
        status: Status(code),
        ready: None,
        content_length: Some(0),
        fields: &[],
    };
    let mut out = Vec::new();
    machine.respond(&head, date_line().as_bytes(), &mut out);
    out
}

fn date_line() -> DateLine {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    DateLine::new(now.map_or(0, |it| it.as_secs() as i64))
}

impl FrontRequest {
    fn of(request: &Request<'_>, front: &Front) -> Self {
        let field = |name: &str| {
            let mut fields = request.fields.iter();
            let found = fields.find(|(it, _)| it.eq_ignore_ascii_case(name.as_bytes()));
            found.map(|(_, value)| value)
        };
        let accept = field("accept").unwrap_or_default();
        let is_page = accept
            .windows(9)
            .any(|it| it.eq_ignore_ascii_case(b"text/html"));
        let is_own_host = request
            .authority
            .is_some_and(|it| is_own(it, front.own_name.as_deref()));
        // Browsers say which site asks; other programs do not, and may.
        let site = field("sec-fetch-site").unwrap_or(b"none");
        let is_own_page = field("origin")
            .is_none_or(|it| is_same_origin(it, request.authority.unwrap_or_default()));
        let may = is_own_host && is_own_page && matches!(site, b"same-origin" | b"none");
        let own = match request.target.path {
            // The owner of the name could lead it here, and read an unpublished site as their own.
            _ if request.authority.is_some() && !is_own_host => Some(Own::Refusal),
            _ if !may || request.method != Method::Get => None,
            b"/.gannet/dev.js" => Some(Own::Script),
            b"/.gannet/events" => {
                let query = String::from_utf8_lossy(request.target.query.unwrap_or_default());
                let mark = query.split('&').find_map(|it| it.strip_prefix("at="));
                Some(Own::Events(mark.unwrap_or_default().to_owned()))
            }
            _ => None,
        };
        // The length of a page with the script is known once it is there.
        let method = match request.method {
            Method::Head => b"GET",
            _ => request.method_name,
        };
        let target = request.target.raw;
        let shown = String::from_utf8_lossy(target);
        // A browser that shows a page wants all of it; HEAD knows no ranges.
        let takes_ranges = !is_page && request.method == Method::Get;
        Self {
            head: upstream::head(method, target, &request.fields, takes_ranges),
            method: request.method,
            own,
            gets_script: is_own_host && is_shown(field("sec-fetch-mode")),
            line: format!("{} {shown}", String::from_utf8_lossy(request.method_name)),
        }
    }
}

/// Answers a request for what is not of the site.
fn answer_own(
    stream: &TcpStream,
    front: &Front,
    machine: &mut Connection,
    (own, method): (&Own, Method),
) -> io::Result<bool> {
    match own {
        Own::Refusal => {
            advance(machine, 421);
            let fields = [(
                "content-type".to_owned(),
                "text/plain; charset=utf-8".to_owned(),
            )];
            let len = Some(MISDIRECTED.len() as u64);
            let head = head(
                "421 Misdirected Request",
                &fields,
                len,
                machine.is_closing(),
            );
            let content = match method {
                Method::Head => "",
                _ => MISDIRECTED,
            };
            (&mut &*stream).write_all(&[&head, content.as_bytes()].concat())?;
            Ok(true)
        }
        Own::Script => {
            advance(machine, 200);
            let fields = [
                ("content-type", "text/javascript; charset=utf-8"),
                ("cross-origin-resource-policy", "same-origin"),
                ("x-content-type-options", "nosniff"),
            ];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let head = head(
                "200 OK",
                &fields,
                Some(SCRIPT.len() as u64),
                machine.is_closing(),
            );
            (&mut &*stream).write_all(&[&head, SCRIPT].concat())?;
            Ok(true)
        }
        Own::Events(mark) => send_events(stream, &front.state, mark).map(|()| false),
    }
}

/// Answers one request. Returns whether the connection can persist.
fn answer(
    stream: &TcpStream,
    front: &Front,
    machine: &mut Connection,
    asked: FrontRequest,
) -> io::Result<bool> {
    if let Some(own) = &asked.own {
        return answer_own(stream, front, machine, (own, asked.method));
    }
    // Before the content is read, so that the window hears of a change in between.
    let mark = front.state.mark();
    let mut answer = match upstream::ask(&front.server, &asked.head) {
        Ok(answer) => answer,
        Err(_) => {
            (&mut &*stream).write_all(&advance(machine, 502))?;
            return Ok(true);
        }
    };
    if answer.code() >= 400 {
        let line = printable(&asked.line);
        OUTPUT.write(format!("{}  {line}\n", answer.code()));
    }
    advance(machine, answer.code());
    let (mut fields, len) = (answer.fields.clone(), answer.len());
    fields.retain(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
    let is_without = asked.method == Method::Head || matches!(answer.code(), 204 | 304);
    if asked.gets_script && is_page(&answer) {
        fields.retain(|(name, _)| !OF_BYTES.contains(&name.as_str()));
        let nonce = allow_script(&mut fields);
        let mut content = Vec::with_capacity(len.unwrap_or_default() as usize);
        answer.content().take(PAGE_MAX).read_to_end(&mut content)?;
        if len.is_some_and(|len| len != content.len() as u64) {
            return Ok(false);
        }
        let (place, script) = match page::place(&content) {
            None => (0, String::new()),
            Some(place) => (
                place,
                format!(
                    "<script src=\"/.gannet/dev.js?at={mark}\" nonce=\"{nonce}\" async></script>"
                ),
            ),
        };
        let len = content.len() + script.len();
        let is_last = machine.is_closing();
        let head = head(&answer.status, &fields, Some(len as u64), is_last);
        let mut stream = stream;
        if is_without {
            return stream.write_all(&head).map(|()| true);
        }
        // The long rest is not copied.
        let (start, rest) = content.split_at(place);
        stream.write_all(&[&head, start, script.as_bytes()].concat())?;
        stream.write_all(rest)?;
        return Ok(true);
    }
    fields.retain(|(name, _)| name != "content-length");
    let shown_len = len.filter(|_| !matches!(answer.code(), 204 | 304));
    // Without a length, the end of the connection is the end of the content.
    let is_last = machine.is_closing() || (len.is_none() && !is_without);
    let head = head(&answer.status, &fields, shown_len, is_last);
    (&mut &*stream).write_all(&head)?;
    if is_without {
        return Ok(true);
    }
    let sent = io::copy(&mut answer.content(), &mut &*stream)?;
    Ok(len == Some(sent))
}

/// Whether a browser asks for something to show (`sec-fetch-mode`), itself or by a service worker: what
/// the scripts of a page fetch is for them. Programs that do not say get what is shown.
fn is_shown(mode: Option<&[u8]>) -> bool {
    mode.is_none_or(|it| it == b"navigate")
}

/// Whether an answer is a page that can get the script.
fn is_page(answer: &UpstreamAnswer) -> bool {
    let kind = answer.field("content-type").unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/html")
        && answer.field("content-encoding").is_none()
        && answer.code() != 206
        && answer.len().is_some_and(|len| len <= PAGE_MAX)
}

/// Lets the policies of a page allow the script; returns the nonce.
fn allow_script(fields: &mut [(String, String)]) -> String {
    // The standard library's keys are random.
    let nonce = format!("{:016x}", RandomState::new().build_hasher().finish());
    for (name, value) in fields {
        if name == "content-security-policy" {
            *value = policy::allow(value, &nonce);
        }
    }
    nonce
}

/// The head of an answer.
fn head(status: &str, fields: &[(String, String)], len: Option<u64>, is_last: bool) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for (name, value) in fields {
        write_title(name, &mut text);
        text.extend_from_slice(format!(": {value}\r\n").as_bytes());
    }
    if !fields.iter().any(|(name, _)| name == "date") {
        text.extend_from_slice(date_line().as_bytes());
    }
    text.extend_from_slice(b"Cache-Control: no-store\r\n");
    if let Some(len) = len {
        text.extend_from_slice(format!("Content-Length: {len}\r\n").as_bytes());
    }
    if is_last {
        text.extend_from_slice(b"Connection: close\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Tells a window about changes until it has gone.
fn send_events(mut stream: &TcpStream, state: &State, mark: &str) -> io::Result<()> {
    let Some(_place) = state.stream(stream)? else {
        return stream.write_all(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
          X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
    )?;
    let mut seen = state.seen_by(mark);
    while let Some(text) = state.next(&mut seen, BEAT) {
        match text.as_str() {
            "" => stream.write_all(b":\n\n")?,
            text => stream.write_all(format!("data: {text}\n\n").as_bytes())?,
        }
    }
    Ok(())
}
