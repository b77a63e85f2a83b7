//! The access log: one line per response, formatted by the worker, written by a thread of its own.
//!
//! A worker never waits for the log: lines travel in batches over a bounded queue. Lines that do
//! not fit, or cannot be written, are dropped and counted.

mod line;
mod mask;
mod writer;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use gannet_http::semantics::status::Status;
use gannet_io::driver::Nanos;
use gannet_io::reserve;

use self::line::LogLine;
pub(crate) use self::writer::{LogFactory, LogWriter};
use crate::bounds::limits::LOG_BATCH_BYTES;
use crate::config::template::Field;
use crate::config::template::{OfCertificate, Template};
use crate::config::{LogFormat, LogLines};
use crate::observe::record::{End, LogFields, Record};
use crate::tls::certificates::Identity;
use crate::tls::negotiated::Negotiated;

/// A worker's end of the log.
pub(crate) struct LogSink {
    format: Format,
    needed: LogFields,
    of_certificate: OfCertificate,
    lines_of: LogLines,
    /// Advances by an irrational part of its range: see [`Self::takes`].
    sample: u64,
    batch: Vec<u8>,
    queue: Option<SyncSender<Vec<u8>>>,
    /// Lines dropped for lack of room, and lines of failed writes that this sink has claimed.
    dropped: u64,
    /// Lines of failed writes, by any worker, that no sink has claimed yet.
    failed: Arc<AtomicU64>,
    lines: u64,
}

/// How lines call the client of a connection.
#[derive(Clone, Copy)]
pub(crate) struct ClientName<'a> {
    /// Its address and port, `unix`, or `-`.
    pub(crate) address: &'a str,
    /// Who it is by its certificate.
    pub(crate) identity: Option<&'a Identity>,
    /// What its connection has agreed on by TLS.
    pub(crate) tls: Option<&'static Negotiated>,
}

/// The form of lines.
enum Format {
    Pretty { colour: bool },
    Json,
    Of(Arc<Template>),
}

impl Format {
    fn new(format: &LogFormat) -> Self {
        match format {
            // Nothing is written in it.
            LogFormat::Off => Self::Json,
            LogFormat::Pretty { colour } => Self::Pretty { colour: *colour },
            LogFormat::Json => Self::Json,
            LogFormat::Combined => Self::Of(Arc::new(Template::combined())),
            LogFormat::Vcombined => Self::Of(Arc::new(Template::vcombined())),
            LogFormat::Own(template) => Self::Of(Arc::clone(template)),
        }
    }

    fn needed(&self) -> LogFields {
        match self {
            Self::Pretty { .. } => [Field::Method, Field::Target].into_iter().collect(),
            Self::Json => LogFields::ALL.without(Field::ForwardedFor),
            Self::Of(template) => template.fields().collect(),
        }
    }

    /// A mask hides clients, unless the operator's own format names them.
    fn of_certificate(&self, is_masked: bool) -> OfCertificate {
        match self {
            Self::Json if !is_masked => OfCertificate::Name,
            Self::Json | Self::Pretty { .. } => OfCertificate::Nothing,
            Self::Of(template) => template.of_certificate(),
        }
    }
}

impl LogSink {
    fn new(
        format: &LogFormat,
        lines_of: LogLines,
        queue: Option<SyncSender<Vec<u8>>>,
        failed: Arc<AtomicU64>,
    ) -> Self {
        let format = Format::new(format);
        let needed = format.needed();
        Self {
            needed: match lines_of.is_masked {
                true => needed
                    .without(Field::RemoteUser)
                    .without(Field::ForwardedFor),
                false => needed,
            },
            of_certificate: format.of_certificate(lines_of.is_masked),
            format,
            lines_of,
            sample: 0,
            batch: Vec::new(),
            queue,
            dropped: 0,
            failed,
            lines: 0,
        }
    }

    /// Whether responses are logged: the only test on the hot path.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Whether a response with this status gets a line; to be asked once for each response.
    pub(crate) fn takes(&mut self, status: Status) -> bool {
        if !self.is_on() {
            return false;
        }
        if self.lines_of.one_in <= 1 || status.0 >= 500 {
            return true;
        }
        // The golden section: evenly distributed, and in step with no pattern of requests.
        self.sample = self.sample.wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.sample < u64::MAX / u64::from(self.lines_of.one_in)
    }

    /// The client's name as lines have it: see [`LogLines::is_masked`].
    pub(crate) fn shown<'p>(&self, peer: &'p str) -> Cow<'p, str> {
        match self.lines_of.is_masked {
            true => mask::masked(peer),
            false => peer.into(),
        }
    }

    /// The fields of requests that lines need.
    pub(crate) fn needed(&self) -> LogFields {
        self.needed
    }

    /// Who a client is by this certificate (DER), which was verified, if lines say it.
    pub(crate) fn identity(&self, certificate: &[u8]) -> Option<Identity> {
        if !self.is_on() || self.of_certificate == OfCertificate::Nothing {
            return None;
        }
        let has_fingerprint = self.of_certificate == OfCertificate::NameAndFingerprint;
        Some(Identity::new(certificate, has_fingerprint))
    }

    /// Adds the line of one response, if it gets one.
    pub(crate) fn add(
        &mut self,
        record: &Record,
        client: ClientName<'_>,
        end: End,
        now: Nanos,
        unix_ms: i64,
    ) {
        let Some(logged) = &record.logged else { return };
        let took_us = now.0.saturating_sub(record.began.0) / 1_000;
        let peer = logged.client.as_deref().unwrap_or(client.address);
        let peer = self.shown(peer);
        let line = LogLine {
            record,
            logged,
            peer: &peer,
            identity: client.identity,
            tls: client.tls,
            end,
            took_us,
            unix_ms,
        };
        match &self.format {
            Format::Pretty { colour } => line.pretty(&mut self.batch, *colour),
            Format::Json => line.json(&mut self.batch),
            Format::Of(template) => line.by(template, &mut self.batch),
        }
        self.batch.push(b'\n');
        self.lines += 1;
        if self.batch.len() >= LOG_BATCH_BYTES {
            self.flush();
        }
    }

    /// Lines dropped: queue full or write failed. The first sink to call this claims all failed
    /// writes, so that the sum over workers is right.
    pub(crate) fn dropped(&mut self) -> u64 {
        self.dropped += self.failed.swap(0, Ordering::Relaxed);
        self.dropped
    }

    /// Passes the gathered lines to the writer; called once per turn of the loop.
    pub(crate) fn flush(&mut self) {
        let Some(queue) = &self.queue else { return };
        if self.batch.is_empty() {
            return;
        }
        if reserve::is_spent() {
            // Queued batches behind a slow writer would take memory that connections need.
            self.batch.clear();
            self.dropped += self.lines;
            self.lines = 0;
            return;
        }
        match queue.try_send(std::mem::take(&mut self.batch)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped += self.lines
            }
        }
        self.lines = 0;
    }
}

#[cfg(test)]
mod tests;
