//! Downloads over HTTP/1.1, HTTP/2 and HTTP/3, optionally in parts over several connections, with
//! resumption of interrupted downloads.
//!
//! ```no_run
//! use gannet_get::{Client, Options, Url, Version};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url = Url::parse("https://example.org/site.gannet")?;
//! let client = Client::new(Options { version: Version::Http2, ..Options::default() });
//! client.download(&url, "site.gannet".as_ref(), true, &mut ())?;
//! # Ok(())
//! # }
//! ```
//!
//! Each connection is a thread that blocks: with few connections and large contents an engine with
//! readiness or completions has nothing to gain, and the server's engines need no operation for
//! connecting. Contents that are not wanted are thrown away by the kernel where there is no TLS.

#![forbid(unsafe_code)]

mod binary;
mod error;
mod existing;
mod h1;
mod h2;
mod h3;
mod in_order;
pub mod limits;
mod output;
mod partial;
mod quic;
mod response;
pub mod transport;
mod url;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

pub use self::error::{GetError, Remedy, failed};
pub use self::url::Url;
use gannet_io::cause::printable;

use self::error::{failure, redirected, unexpected};
use self::existing::Existing;
use self::limits::REDIRECTS_MAX;
use self::output::{Output, Part};
use self::response::Head;
use self::transport::{Tls, Transport};

/// How often progress is reported.
const TICK: Duration = Duration::from_millis(100);
/// After how many times it is written down how much of a file is there: what is killed
/// loses what came since.
const TICKS_TO_KEEP: u32 = 5;

/// How to download.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at a time, 1 to [`limits::CONNECTIONS_MAX`].
    pub connections: usize,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// Certificates to trust instead of the system's.
    pub cacert: Option<PathBuf>,
    /// The version to use.
    pub version: Version,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Version {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; in cleartext with prior knowledge.
    Http2,
    /// HTTP/3 over UDP; only for https.
    Http3,
}

impl Version {
    /// Its name in the ALPN registry.
    fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
            Self::Http3 => b"h3",
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 1,
            is_insecure: false,
            cacert: None,
            version: Version::default(),
        }
    }
}

/// Receives the progress of a download.
pub trait Progress {
    /// Bytes received up to now, and how many are expected, or 0 while that is not known. Called
    /// ten times a second.
    fn moved(&mut self, received: u64, expected: u64);
    /// Something that the user should know.
    fn note(&mut self, text: &str);
}

/// Ignores it.
impl Progress for () {
    fn moved(&mut self, _: u64, _: u64) {}
    fn note(&mut self, _: &str) {}
}

/// One URL over one connection, or a part of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transfer {
    /// The URL as it was typed.
    pub url: String,
    /// The version of HTTP.
    pub protocol: &'static str,
    /// Content bytes.
    pub bytes: u64,
    /// From connecting to the last byte.
    pub elapsed: Duration,
}

/// What a download was.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Download {
    /// In no order of time; none if all of the content was there already.
    pub transfers: Vec<Transfer>,
    /// The algorithm of the digest that was checked.
    pub digest: Option<&'static str>,
}

/// Makes one download, or one measurement.
#[derive(Debug)]
pub struct Client {
    tls: OnceLock<Tls>,
    options: Options,
    stop: AtomicBool,
    received: AtomicU64,
    expected: AtomicU64,
}

/// A response whose content is still to be read, over any version.
enum AnyExchange {
    H1(h1::Exchange),
    H2(Box<h2::Exchange>),
    H3(Box<h3::Exchange>),
}

impl AnyExchange {
    fn protocol(&self) -> &'static str {
        match self {
            Self::H1(_) => "HTTP/1.1",
            Self::H2(_) => "HTTP/2",
            Self::H3(_) => "HTTP/3",
        }
    }

    fn next(
        &mut self,
        unwanted: bool,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Option<u64>> {
        match self {
            Self::H1(exchange) => exchange.next(unwanted, take),
            Self::H2(exchange) => exchange.next(take),
            Self::H3(exchange) => exchange.next(take),
        }
    }
}

impl Client {
    /// A client with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            tls: OnceLock::new(),
            options,
            stop: AtomicBool::new(false),
            received: AtomicU64::new(0),
            expected: AtomicU64::new(0),
        }
    }

    /// The TLS settings, made when they are first needed.
    fn tls(&self) -> Result<&Tls, String> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls);
        }
        let Options {
            is_insecure,
            cacert,
            version,
            ..
        } = &self.options;
        let tls = Tls::new(*is_insecure, cacert.as_deref(), *version)?;
        Ok(self.tls.get_or_init(|| tls))
    }

    /// Refuses certificates that cannot be read before anything is requested.
    fn check_trust(&self, urls: &[Url]) -> Result<(), GetError> {
        if self.options.cacert.is_some() || urls.iter().any(|url| url.is_https) {
            self.tls().map_err(GetError::Certificates)?;
        }
        Ok(())
    }

    /// Every connection fetches every URL and throws it away.
    ///
    /// # Errors
    /// A server cannot be reached, or answers something else than the content.
    pub fn measure(
        &self,
        urls: &[Url],
        progress: &mut dyn Progress,
    ) -> Result<Vec<Transfer>, GetError> {
        self.check_trust(urls)?;
        let one = || {
            let mut all = Vec::new();
            for url in urls {
                let fail = |error| failure(url, &error);
                let started = Instant::now();
                let (head, exchange, found) = self.open(url, &[]).map_err(fail)?;
                if head.status != 200 {
                    return Err(fail(redirected(unexpected(&head), url, &found)));
                }
                let length = head.content_length;
                self.expected
                    .fetch_add(length.unwrap_or(0), Ordering::Relaxed);
                let done = self.drain(url, exchange, started, None).map_err(fail)?;
                if let Some(length) = length.filter(|length| *length != done.bytes) {
                    let bytes = done.bytes;
                    let what = format!("received {bytes} bytes (expected {length})");
                    return Err(fail(io::Error::other(what)));
                }
                all.push(done);
            }
            Ok(all)
        };
        let tasks: Vec<_> = (0..self.options.connections).map(|_| one).collect();
        let transfers = self.in_parallel(tasks, None, progress)?;
        Ok(transfers.into_iter().flatten().collect())
    }

    /// Fetches `url` into the file `path`, in parts where there are several connections. The file
    /// has another name until it is complete and checked. With `resumes` an interrupted download
    /// continues, and a file that is complete already stays as it is.
    ///
    /// # Errors
    /// The server cannot be reached or answers something else than the content, or the content
    /// cannot be written or is not what its digest says.
    pub fn download(
        &self,
        url: &Url,
        path: &Path,
        resumes: bool,
        progress: &mut dyn Progress,
    ) -> Result<Download, GetError> {
        self.check_trust(std::slice::from_ref(url))?;
        if resumes && let Existing::Whole(digest) = self.examine(url, path)? {
            return Ok(Download {
                transfers: Vec::new(),
                digest,
            });
        }
        let write = |error: io::Error| GetError::of_system("write", path, &error);
        let mut output = Output::open(path, resumes).map_err(write)?;
        if let Some(note) = &output.note {
            progress.note(note);
        }
        let result = self.download_into(url, &mut output, &write, progress);
        result.map_err(|error| match output.abandon() {
            true => error.with(Remedy::Resume),
            false => error,
        })
    }

    fn download_into(
        &self,
        asked: &Url,
        output: &mut Output,
        write: &dyn Fn(io::Error) -> GetError,
        progress: &mut dyn Progress,
    ) -> Result<Download, GetError> {
        let fail = |error| failure(asked, &error);
        let started = Instant::now();
        let first = self.open(asked, &output.fields()).map_err(fail)?;
        let (mut head, mut exchange, mut url) = first;
        // Nothing to resume, or something else by now: from the start.
        if head.status == 416 || head.status == 206 && !output.fits(&head) {
            output.forget();
            (head, exchange, url) = self.open(&url, &output.fields()).map_err(fail)?;
        }
        if !matches!(head.status, 200 | 206) || head.status == 206 && !output.fits(&head) {
            return Err(fail(redirected(unexpected(&head), asked, &url)));
        }
        if head.is_coded {
            return Err(fail(io::Error::other(
                "the content is coded, which was not requested",
            )));
        }
        let shares = output
            .begin(&head, self.options.connections)
            .map_err(write)?;
        let all_parts = shares.iter().flatten();
        let total: u64 = all_parts.map(|(_, part)| part.len.unwrap_or(0)).sum();
        self.expected.store(total, Ordering::Relaxed);
        let (output_ref, url, head_ref) = (&*output, &url, &head);
        let mut first = Some(exchange);
        let tasks: Vec<_> = shares
            .into_iter()
            .map(|parts| {
                // The first connection is open; it is cut off where the next part begins.
                let mut open = first.take();
                move || {
                    let mut all = Vec::new();
                    for (index, part) in parts {
                        let (started, exchange) = match open.take() {
                            Some(exchange) => (started, exchange),
                            None => {
                                let now = Instant::now();
                                (now, self.open_part(url, &part, head_ref).map_err(fail)?)
                            }
                        };
                        let into = Some((output_ref, index, part));
                        all.push(self.drain(asked, exchange, started, into).map_err(fail)?);
                    }
                    Ok(all)
                }
            })
            .collect();
        let transfers = self.in_parallel(tasks, Some(output_ref), progress)?;
        let digest = output.finish(&head).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => fail(error),
            _ => write(error),
        })?;
        Ok(Download {
            transfers: transfers.into_iter().flatten().collect(),
            digest,
        })
    }

    /// Asks for one part of what `whole` is the response of, or of which it is another part.
    fn open_part(&self, url: &Url, part: &Part, whole: &Head) -> io::Result<AnyExchange> {
        let last = part.start + part.len.unwrap_or(1) - 1;
        let mut fields = vec![
            ("range", format!("bytes={}-{last}", part.start)),
            ("accept-encoding", "identity".to_owned()),
        ];
        fields.extend(whole.tag.clone().map(|tag| ("if-range", tag)));
        let (head, exchange, _) = self.open(url, &fields)?;
        match head.content_range {
            Some((first, end, len))
                if head.status == 206
                    && (first, end) == (part.start, last)
                    && Some(len) == whole.whole_len() =>
            {
                Ok(exchange)
            }
            // With if-range it may have changed; without, ranges are not what was announced.
            _ if head.status == 200 => Err(io::Error::other(
                "the server sends the whole content instead of a part: it has changed, or it has \
                 no parts (-c 1)",
            )),
            _ => Err(unexpected(&head)),
        }
    }

    /// Connects and asks, following redirections; the URL is that of the answer.
    fn open(&self, asked: &Url, fields: &[(&str, String)]) -> io::Result<(Head, AnyExchange, Url)> {
        let mut url = asked.clone();
        for _ in 0..=REDIRECTS_MAX {
            let at = |error| redirected(error, asked, &url);
            let (head, exchange) = self.ask(&url, fields).map_err(at)?;
            match (head.status, &head.location) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let next = url.join(location);
                    let next = next.map_err(|what| {
                        let to = printable(location);
                        io::Error::other(format!("redirected to '{to}': {what}"))
                    })?;
                    if url.is_https && !next.is_https {
                        // Who chose TLS did not choose to do without it.
                        return Err(io::Error::other(format!(
                            "redirected from https to {next}, which is not followed"
                        )));
                    }
                    url = next;
                }
                _ => return Ok((head, exchange, url)),
            }
        }
        Err(io::Error::other(format!(
            "more than {REDIRECTS_MAX} redirections"
        )))
    }

    /// Connects and makes a request.
    fn ask(&self, url: &Url, fields: &[(&str, String)]) -> io::Result<(Head, AnyExchange)> {
        let version = self.options.version;
        if version == Version::Http3 {
            if !url.is_https {
                return Err(io::Error::other("HTTP/3 is for https alone"));
            }
            let tls = self.tls().map_err(io::Error::other)?;
            let (head, exchange) = h3::get(tls, url, fields)?;
            return Ok((head, AnyExchange::H3(Box::new(exchange))));
        }
        let tls = match url.is_https {
            false => None,
            true => Some(self.tls().map_err(io::Error::other)?),
        };
        let transport = Transport::connect(url, tls)?;
        let is_h2 = match transport.alpn() {
            Some(alpn) => alpn == b"h2",
            None if url.is_https && version == Version::Http2 => {
                return Err(io::Error::other("the server does not speak HTTP/2"));
            }
            None => version == Version::Http2,
        };
        if is_h2 {
            let (head, exchange) = h2::get(transport, url, fields)?;
            Ok((head, AnyExchange::H2(Box::new(exchange))))
        } else {
            let (head, exchange) = h1::get(transport, url, fields)?;
            Ok((head, AnyExchange::H1(exchange)))
        }
    }

    /// Takes the content to its end, or to that of the part.
    fn drain(
        &self,
        asked: &Url,
        mut exchange: AnyExchange,
        started: Instant,
        into: Option<(&Output, usize, Part)>,
    ) -> io::Result<Transfer> {
        let mut bytes = 0;
        let wanted = into.as_ref().and_then(|(_, _, part)| part.len);
        while wanted.is_none_or(|wanted| bytes < wanted) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other(
                    "stopped because another connection failed",
                ));
            }
            let mut at = bytes;
            let mut take = |content: &[u8]| {
                let Some((output, index, part)) = &into else {
                    return Ok(());
                };
                let left = part.len.map_or(u64::MAX, |len| len - at.min(len));
                let len = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(content.len());
                output.write(*index, part.start + at, &content[..len])?;
                at += len as u64;
                Ok(())
            };
            let Some(count) = exchange.next(into.is_none(), &mut take)? else {
                break;
            };
            let count = wanted.map_or(count, |wanted| count.min(wanted - bytes));
            bytes += count;
            self.received.fetch_add(count, Ordering::Relaxed);
        }
        if wanted.is_some_and(|wanted| bytes < wanted) {
            return Err(io::Error::other("the content ended too early"));
        }
        Ok(Transfer {
            url: asked.typed().to_owned(),
            protocol: exchange.protocol(),
            bytes,
            elapsed: started.elapsed(),
        })
    }

    /// Runs `tasks` in threads; the first failure stops all. How far `output` is is written down
    /// meanwhile.
    fn in_parallel<T: Send>(
        &self,
        tasks: Vec<impl FnOnce() -> Result<T, GetError> + Send>,
        output: Option<&Output>,
        progress: &mut dyn Progress,
    ) -> Result<Vec<T>, GetError> {
        let count = tasks.len();
        thread::scope(|scope| {
            let (sender, results) = channel();
            for (index, task) in tasks.into_iter().enumerate() {
                let sender = sender.clone();
                scope.spawn(move || {
                    let result = task();
                    // The receiver is gone when another one has failed.
                    let _ = sender.send((index, result));
                });
            }
            drop(sender);
            let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
            let mut ticks = 0;
            let mut done: Vec<Option<T>> = (0..count).map(|_| None).collect();
            let mut failed = None;
            loop {
                match results.recv_timeout(TICK) {
                    Ok((index, Ok(value))) => done[index] = Some(value),
                    Ok((_, Err(failure))) => {
                        self.stop.store(true, Ordering::Relaxed);
                        failed.get_or_insert(failure);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                ticks += 1;
                if let Some(output) = output.filter(|_| ticks % TICKS_TO_KEEP == 0) {
                    // It only records how to resume: writing the content reports a full disk.
                    let _ = output.keep();
                }
                progress.moved(load(&self.received), load(&self.expected));
            }
            match failed {
                Some(failure) => Err(failure),
                None => Ok(done.into_iter().flatten().collect()),
            }
        })
    }
}
