//! `gannet get`: downloads URLs over one or more connections and measures it.
//!
//! Each connection is a thread that blocks: with few connections and large contents an engine with
//! readiness or completions has nothing to gain, and the server's engines need no operation for
//! connecting. Contents that are not wanted are thrown away by the kernel where there is no TLS.

mod bar;
pub(crate) mod error;
mod h1;
mod h2;
mod kept;
mod limits;
mod output;
mod report;
mod response;
mod standard_output;
mod there;
pub(crate) mod transport;
pub(crate) mod url;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use rustls::ClientConfig;

use self::bar::Bar;
use self::error::{failure, redirected, unexpected};
use self::limits::{CONNECTIONS_MAX, REDIRECTS_MAX};
use self::output::{Output, Part};
use self::report::{Connection, Report};
use self::response::Head;
use self::there::There;
use self::transport::Transport;
use self::url::Url;
use crate::messages::Failure;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);
/// After how many of these moves it is written down how much of a file is there: what is killed
/// loses what came since.
const TICKS_TO_KEEP: u32 = 5;

/// What is to be downloaded, and how.
#[derive(Clone, Debug)]
pub struct GetOptions {
    /// The URLs; at least one.
    pub urls: Vec<String>,
    /// Connections at a time, 1 to 1024.
    pub connections: usize,
    /// Where the content goes; `-` is standard output, `None` throws it away.
    pub output: Option<PathBuf>,
    /// Whether an earlier download goes on.
    pub resumes: bool,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// Certificates to trust instead of the system's.
    pub cacert: Option<PathBuf>,
    /// HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
    /// The report as JSON.
    pub json: bool,
    /// No bar.
    pub quiet: bool,
}

/// Reads a number of connections.
///
/// # Errors
/// It is none, or too many.
pub fn connections(typed: &str) -> Result<usize, Failure> {
    let count = typed
        .parse()
        .ok()
        .filter(|count| (1..=CONNECTIONS_MAX).contains(count));
    count.ok_or_else(|| {
        Failure::usage(format!(
            "--connections {}: not a number from 1 to {CONNECTIONS_MAX}",
            crate::messages::printable(typed)
        ))
        .help("the default is one; a few saturate a fast link")
    })
}

/// Downloads and returns the report; nothing where the content goes to standard output.
///
/// # Errors
/// A URL makes no sense, a server cannot be reached or answers something else than the content,
/// or the content cannot be written or is not what its digest says.
pub fn run(options: &GetOptions) -> Result<String, Failure> {
    let mut urls = Vec::new();
    for typed in &options.urls {
        let url = Url::parse(typed).map_err(|cause| {
            let typed = crate::messages::printable(typed);
            Failure::usage(format!("the URL '{typed}' cannot be used: {cause}"))
                .help("write it as http://HOST/PATH or https://HOST:PORT/PATH")
        })?;
        urls.push((typed.clone(), url));
    }
    if options.output.is_some() && urls.len() > 1 {
        return Err(Failure::usage("--output takes one URL")
            .help("download the others one by one, or omit --output to measure"));
    }
    let to_standard_output = options
        .output
        .as_ref()
        .is_some_and(|path| path.as_os_str() == "-");
    if to_standard_output {
        standard_output::check(options)?;
    }
    if options.resumes && options.output.is_none() {
        return Err(Failure::usage("--continue needs --output FILE")
            .help("name the file that an earlier download began"));
    }
    let config = match urls.iter().any(|(_, url)| url.is_https) || options.cacert.is_some() {
        false => None,
        true => {
            let cacert = options.cacert.as_deref();
            let config = transport::tls_config(options.is_insecure, cacert, options.http2);
            Some(config.map_err(|cause| {
                Failure::usage(format!("certificates: {cause}"))
                    .help("name a file of certificates (PEM) with --cacert FILE")
            })?)
        }
    };
    let client = Client {
        config,
        options,
        stop: AtomicBool::new(false),
        received: AtomicU64::new(0),
        expected: AtomicU64::new(0),
    };
    if to_standard_output {
        client.print(&urls[0].0, &urls[0].1)?;
        return Ok(String::new());
    }
    let (started, cpu) = (Instant::now(), cpu_time());
    if let Some(path) = options.output.as_ref().filter(|_| options.resumes)
        && let There::Whole(digest) = client.look_at(&urls[0].0, &urls[0].1, path)?
    {
        let report = Report {
            connections: Vec::new(),
            digest,
            elapsed: started.elapsed(),
            cpu: cpu_time().saturating_sub(cpu),
            output: options.output.clone(),
        };
        let shown = crate::messages::printable(&path.to_string_lossy());
        return Ok(match options.json {
            true => report.json(),
            false => format!("{shown}: already complete, nothing was downloaded\n"),
        });
    }
    let result = match &options.output {
        None => client.measure(&urls),
        Some(path) => client.download(&urls[0].0, &urls[0].1, path),
    };
    let (connections, digest) = result?;
    let report = Report {
        connections,
        digest,
        elapsed: started.elapsed(),
        cpu: cpu_time().saturating_sub(cpu),
        output: options.output.clone(),
    };
    Ok(match options.json {
        true => report.json(),
        false => report.text(),
    })
}

struct Client<'a> {
    config: Option<Arc<ClientConfig>>,
    options: &'a GetOptions,
    stop: AtomicBool,
    received: AtomicU64,
    expected: AtomicU64,
}

/// A response whose content is still to come, by either version.
enum Exchange {
    H1(h1::Exchange),
    H2(Box<h2::Exchange>),
}

impl Exchange {
    fn protocol(&self) -> &'static str {
        match self {
            Self::H1(_) => "HTTP/1.1",
            Self::H2(_) => "HTTP/2",
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
        }
    }
}

impl Client<'_> {
    /// Every connection fetches every URL and throws it away.
    fn measure(
        &self,
        urls: &[(String, Url)],
    ) -> Result<(Vec<Connection>, Option<&'static str>), Failure> {
        let one = || {
            let mut all = Vec::new();
            for (typed, url) in urls {
                let fail = |error| failure(typed, &error);
                let started = Instant::now();
                let (head, exchange, found) = self.open(url, &[]).map_err(fail)?;
                if head.status != 200 {
                    return Err(fail(redirected(unexpected(&head), url, &found)));
                }
                let length = head.content_length;
                self.expected
                    .fetch_add(length.unwrap_or(0), Ordering::Relaxed);
                let done = self.drain(typed, exchange, started, None).map_err(fail)?;
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
        let connections = self.in_parallel(tasks, None)?;
        Ok((connections.into_iter().flatten().collect(), None))
    }

    /// Fetches `url` into a file, in parts where there are several connections.
    fn download(
        &self,
        typed: &str,
        url: &Url,
        path: &std::path::Path,
    ) -> Result<(Vec<Connection>, Option<&'static str>), Failure> {
        let write = |error: io::Error| Failure::of_system("write", path.display(), &error);
        let mut output = Output::open(path, self.options.resumes).map_err(write)?;
        if let Some(note) = &output.note {
            eprintln!("gannet: {note}");
        }
        let result = self.download_into(typed, url, &mut output, &write);
        result.map_err(|failure| match output.abandon() {
            true if failure.help.is_none() => failure.help("--continue resumes from there"),
            _ => failure,
        })
    }

    fn download_into(
        &self,
        typed: &str,
        asked: &Url,
        output: &mut Output,
        write: &dyn Fn(io::Error) -> Failure,
    ) -> Result<(Vec<Connection>, Option<&'static str>), Failure> {
        let fail = |error| failure(typed, &error);
        let started = Instant::now();
        let first = self.open(asked, &output.fields()).map_err(fail)?;
        let (mut head, mut exchange, mut url) = first;
        // Nothing to go on with, or something else by now: from the beginning.
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
                        all.push(self.drain(typed, exchange, started, into).map_err(fail)?);
                    }
                    Ok(all)
                }
            })
            .collect();
        let connections = self.in_parallel(tasks, Some(output_ref))?;
        let digest = output.finish(&head).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => fail(error),
            _ => write(error),
        })?;
        Ok((connections.into_iter().flatten().collect(), digest))
    }

    /// Asks for one part of what `whole` is the response of, or of which it is another part.
    fn open_part(&self, url: &Url, part: &Part, whole: &Head) -> io::Result<Exchange> {
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
    fn open(&self, asked: &Url, fields: &[(&str, String)]) -> io::Result<(Head, Exchange, Url)> {
        let mut url = asked.clone();
        for _ in 0..=REDIRECTS_MAX {
            let config = match (url.is_https, &self.config) {
                (false, _) => None,
                (true, Some(config)) => Some(config.clone()),
                // A redirection from http to https is the first that needs it.
                (true, None) => {
                    let (insecure, http2) = (self.options.is_insecure, self.options.http2);
                    let config = transport::tls_config(insecure, None, http2);
                    Some(config.map_err(io::Error::other)?)
                }
            };
            let at = |error| redirected(error, asked, &url);
            let transport = Transport::connect(&url, config.as_ref()).map_err(at)?;
            let is_h2 = match transport.alpn() {
                Some(alpn) => alpn == b"h2",
                None if url.is_https && self.options.http2 => {
                    return Err(at(io::Error::other("the server does not speak HTTP/2")));
                }
                None => self.options.http2,
            };
            let (head, exchange) = if is_h2 {
                let (head, exchange) = h2::get(transport, &url, fields).map_err(at)?;
                (head, Exchange::H2(Box::new(exchange)))
            } else {
                let (head, exchange) = h1::get(transport, &url, fields).map_err(at)?;
                (head, Exchange::H1(exchange))
            };
            match (head.status, &head.location) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let next = url.join(location);
                    let next = next.map_err(|what| {
                        let to = crate::messages::printable(location);
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

    /// Takes the content to its end, or to that of the part.
    fn drain(
        &self,
        typed: &str,
        mut exchange: Exchange,
        started: Instant,
        into: Option<(&Output, usize, Part)>,
    ) -> io::Result<Connection> {
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
        Ok(Connection {
            url: typed.to_owned(),
            protocol: exchange.protocol(),
            bytes,
            elapsed: started.elapsed(),
        })
    }

    /// Runs `tasks` in threads, with a bar; the first failure stops all. How far `output` is is
    /// written down meanwhile.
    fn in_parallel<T: Send>(
        &self,
        tasks: Vec<impl FnOnce() -> Result<T, Failure> + Send>,
        output: Option<&Output>,
    ) -> Result<Vec<T>, Failure> {
        let watched = !self.options.quiet && !self.options.json && io::stderr().is_terminal();
        let count = tasks.len();
        thread::scope(|scope| {
            let (sender, results) = channel();
            for (index, task) in tasks.into_iter().enumerate() {
                let sender = sender.clone();
                scope.spawn(move || {
                    let result = task();
                    // Nobody listens any more when another one has failed.
                    let _ = sender.send((index, result));
                });
            }
            drop(sender);
            let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
            let mut bar = watched.then(|| Bar::new(load(&self.expected)));
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
                if let Some(bar) = &mut bar {
                    bar.show(load(&self.received), load(&self.expected));
                }
            }
            if let Some(bar) = bar {
                bar.clear();
            }
            match failed {
                Some(failure) => Err(failure),
                None => Ok(done.into_iter().flatten().collect()),
            }
        })
    }
}

/// CPU time of the process up to now.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
