//! A worker's counters, and their text forms: for people here, for Prometheus in `exposition`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::AddAssign;

use gannet_io::driver::IoCounters;

use crate::bounds::ledger::Holding;
use crate::bounds::waiting::{AWAITED, Awaited};
use crate::config::supply::Supplied;
use crate::observe::measures::Measures;
use crate::observe::stages::{InStage, Stage, Stages};
use crate::tls::handshake::Failure;
use crate::tls::session::KeyUpdates;

/// The last known state of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerCounts {
    /// The worker answered the last poll.
    pub(crate) is_up: bool,
    /// Its counters as of its last answer; `None` before the first.
    pub(crate) counters: Option<Counters>,
}

/// Counters of one worker since its start. Plain integers: no other thread reads them; a worker
/// sends a copy on request.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections_total: u64,
    /// Connections open now.
    pub connections_now: u64,
    /// The most connections open at once; over several workers, the sum of their separate maxima.
    pub connections_max: u64,
    /// Requests answered, by status class 1xx to 5xx. Rejected heads are no failures of the server: those
    /// answered with 501 or 505 are in 4xx.
    pub responses: [u64; 5],
    /// Responses by exact status, for the codes that gannet sends.
    pub by_status: BTreeMap<u16, u64>,
    /// Bytes passed to sockets, heads and bodies.
    pub bytes_sent: u64,
    /// Request heads rejected (400, 414, 431, ...).
    pub rejected: u64,
    /// Requests answered with 503 because too many others waited, by what they would have waited for:
    /// the disk, a password's hash, or a site.
    pub turned_away: [u64; AWAITED],
    /// Connections ended because a deadline expired.
    pub timeouts: u64,
    /// Connections that ended with a socket error.
    pub socket_errors: u64,
    /// Responses cut short: the file ended or failed, or changed while its bytes were queued.
    pub cut_short: u64,
    /// Connections closed or refused because descriptors or the limit ran out.
    pub shed: u64,
    /// Requests answered from the cache of a live directory.
    pub cache_hits: u64,
    /// Requests that required disk access.
    pub cache_misses: u64,
    /// Bodies decoded because they are stored only in a coding.
    pub decoded: u64,
    /// Live files whose content was read or copied for a first response.
    pub first_reads: u64,
    /// Bytes of growing files that were read again before a response was completed.
    pub reread: u64,
    /// Steps that requests took through the rules of sites, of those that have been answered.
    pub rule_steps: u64,
    /// Lookups deferred for lack of descriptors, memory or room in the disk queue.
    pub deferred_lookups: u64,
    /// Directories read for a listing.
    pub listings: u64,
    /// Bytes of archives copied into memory, reported by one worker only, because workers share the
    /// copy.
    pub archive_copied: u64,
    /// Connections by what they speak.
    pub stages: Stages,
    /// Requests received on HTTP/2 streams.
    pub h2_requests: u64,
    /// HTTP/2 streams that ended before their response was complete.
    pub h2_resets: u64,
    /// HTTP/2 connections that ended with an error, by error code and cause.
    pub h2_errors: BTreeMap<(&'static str, &'static str), u64>,
    /// Counters of HTTP/3 and QUIC.
    pub quic: QuicCounters,
    /// Counters of releases on demand.
    pub supply: SupplyCounters,
    /// Counters of proxies and their clients.
    pub clients: ClientCounters,
    /// Log lines dropped because the writer could not keep up or could not write.
    pub log_dropped: u64,
    /// Counters of TLS.
    pub tls: TlsCounters,
    /// The I/O engine's counters.
    pub io: IoCounters,
    /// Memory held for peers, by account; for an account with a bound per connection, the highest
    /// of any.
    pub held: Vec<Holding>,
    /// Durations and sizes; `None` unless they are exported.
    pub measures: Option<Box<Measures>>,
}

/// Counters of releases on demand.
#[derive(Clone, Copy, Debug, Default)]
pub struct SupplyCounters {
    /// Parts that were here when they were needed.
    pub hits: u64,
    /// Those that were not, by what became of them.
    pub(crate) results: [u64; Supplied::ALL.len()],
    /// Bytes that were fetched for them.
    pub bytes: u64,
    /// Pieces of them that came and were not what their digests say.
    pub unverified: u64,
}

impl SupplyCounters {
    /// Counts a part that was not here.
    pub(crate) fn count(&mut self, result: Supplied) {
        self.results[result as usize] += 1;
    }
}

impl AddAssign<&Self> for SupplyCounters {
    fn add_assign(&mut self, other: &Self) {
        self.hits += other.hits;
        self.bytes += other.bytes;
        self.unverified += other.unverified;
        for (sum, count) in self.results.iter_mut().zip(other.results) {
            *sum += count;
        }
    }
}

/// Counters of proxies and their clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCounters {
    /// Connections whose proxy has sent a header of the PROXY protocol.
    pub introduced: u64,
    /// Connections closed because only trusted proxies may connect there.
    pub untrusted: u64,
    /// Connections of trusted proxies that began with something else than a header.
    pub malformed_headers: u64,
    /// Requests whose `Forwarded` and `X-Forwarded-For` name different clients.
    pub conflicting: u64,
    /// Connections of clients that are not allowed.
    pub denied_connections: u64,
    /// Requests of clients that are not allowed, by trusted proxies.
    pub denied_requests: u64,
    /// Connections closed because their client had as many as it may.
    pub limited_connections: u64,
    /// Requests answered with 429 because their client had sent too many.
    pub limited_requests: u64,
    /// Requests answered with 429 because their client had been sent too many bytes.
    pub limited_bytes: u64,
    /// Connections and requests without limits, since too many others were connected.
    pub unenforced: u64,
    /// Clients whose use of a limit was forgotten, since too many others came.
    pub forgotten: u64,
}

/// Counters of HTTP/3 and QUIC.
#[derive(Clone, Debug, Default)]
pub struct QuicCounters {
    /// Requests.
    pub requests: u64,
    /// Streams that ended before their response was complete.
    pub resets: u64,
    /// Streams reset because of a stream error by the peer.
    pub stream_errors: u64,
    /// Connections closed for an error that this server found, by error code and cause: an HTTP/3
    /// error, or `transport` for one of QUIC, with the cause `handshake` until the handshake has
    /// completed and `protocol` after it. Timeouts, resets and closes by the peer are not included.
    pub errors: BTreeMap<(&'static str, &'static str), u64>,
    /// Datagrams that were passed on to another worker.
    pub forwarded: u64,
    /// Retry packets: clients asked to validate their address.
    pub retries: u64,
    /// Datagram trains that the kernel did not accept.
    pub unsent: u64,
}

/// Counters of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsCounters {
    /// Handshakes with a certificate.
    pub full: u64,
    /// Handshakes with a certificate after a HelloRetryRequest.
    pub retried: u64,
    /// Handshakes resumed from a ticket or a cached session.
    pub resumed: u64,
    /// Handshakes of HTTP/3 of either kind: QUIC's library does not say which.
    pub quic: u64,
    /// Certificates of clients that were accepted.
    pub clients_accepted: u64,
    /// Certificates of clients that were refused.
    pub clients_refused: u64,
    /// Clients that needed a certificate and sent none.
    pub clients_missing: u64,
    /// Failed handshakes, by the alert sent or received, or by another reason: `closed`, `reset`,
    /// `timeout`, `clear_http`.
    pub failed: BTreeMap<&'static str, u64>,
    /// Connections on which early data was accepted.
    pub early: u64,
    /// Connections ended by a fatal alert after their handshake.
    pub faults: u64,
    /// Connections handed over to kernel TLS.
    pub kernel: u64,
    /// Connections with a large body that the kernel did not encrypt although it supports kernel
    /// TLS, by reason: `tls12`, `refused`.
    pub not_kernel: BTreeMap<&'static str, u64>,
    /// Key updates by peers.
    pub peer_key_updates: u64,
    /// Key updates by our own record layer.
    pub key_updates: u64,
    /// Key updates passed to the kernel.
    pub kernel_key_updates: u64,
}

impl TlsCounters {
    /// Counts a handshake that failed.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        self.failed_by(match failure {
            Failure::ClearHttp(_) => "clear_http",
            Failure::Ours { alert, .. } | Failure::Peers(alert) => alert.name(),
        });
    }

    /// Counts a connection that our own record layer encrypts although the kernel could.
    pub(crate) fn stays_ours(&mut self, reason: &'static str) {
        *self.not_kernel.entry(reason).or_default() += 1;
    }

    /// Counts key updates.
    pub(crate) fn updated(&mut self, updates: KeyUpdates) {
        self.peer_key_updates += u64::from(updates.peers);
        self.key_updates += u64::from(updates.ours);
    }

    /// Counts a failed handshake by reason.
    pub(crate) fn failed_by(&mut self, reason: &'static str) {
        *self.failed.entry(reason).or_default() += 1;
    }

    /// All successful handshakes.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.full + self.retried + self.resumed + self.quic
    }
}

/// Adds counters to those of the same type. Each field is named, so that a new one cannot be left
/// out of the sums; the second list names those that are added in another way.
macro_rules! add {
    ($sum:expr, $other:expr, $type:ident { $($count:ident)* } $($rest:ident)*) => {
        let $type { $($count,)* $($rest),* } = $other;
        $($sum.$count += $count;)*
    };
}

impl AddAssign<&TlsCounters> for TlsCounters {
    fn add_assign(&mut self, other: &TlsCounters) {
        add!(self, other, TlsCounters {
            full retried resumed quic clients_accepted clients_refused
            clients_missing early faults kernel peer_key_updates key_updates kernel_key_updates
        } failed not_kernel);
        add_each(&mut self.failed, failed);
        add_each(&mut self.not_kernel, not_kernel);
    }
}

fn add_each<K: Copy + Ord>(sums: &mut BTreeMap<K, u64>, counts: &BTreeMap<K, u64>) {
    for (key, count) in counts {
        *sums.entry(*key).or_default() += count;
    }
}

/// The class 4xx in [`Counters::responses`].
const CLIENT_ERROR: usize = 3;

impl Counters {
    /// Counts a new connection, with which `now` are open.
    pub(crate) fn connected(&mut self, now: u64) {
        self.connections_total += 1;
        self.connections_max = self.connections_max.max(now);
    }

    /// Counts the response to a rejected head.
    pub(crate) fn rejection(&mut self, status: u16) {
        self.rejected += 1;
        self.counted(CLIENT_ERROR, status);
    }

    /// Counts a response.
    pub(crate) fn response(&mut self, status: u16) {
        self.counted(usize::from(status / 100).clamp(1, 5) - 1, status);
    }

    /// Counts a request that would have to wait, while too many others do.
    pub(crate) fn turned_away(&mut self, awaited: Awaited) {
        self.turned_away[awaited as usize] += 1;
    }

    fn counted(&mut self, class: usize, status: u16) {
        self.responses[class] += 1;
        if status != 200 {
            *self.by_status.entry(status).or_default() += 1;
        }
    }

    /// All requests answered.
    #[must_use]
    pub fn responses_total(&self) -> u64 {
        self.responses.iter().sum()
    }

    /// Open connections over TLS or QUIC, including those in their handshake.
    #[must_use]
    pub fn secure_connections_now(&self) -> u64 {
        let clear = [Stage::Http1, Stage::Http2];
        let secure = Stage::ALL.into_iter().filter(|it| !clear.contains(it));
        secure.map(|it| self.stages[it].now).sum()
    }

    /// Connections that spoke HTTP/2.
    #[must_use]
    pub fn h2_connections(&self) -> u64 {
        self.stages[Stage::Http2].total + self.stages[Stage::Http2Tls].total
    }

    /// The sum of all workers' known counters.
    pub(crate) fn sum(workers: &[WorkerCounts]) -> Self {
        let mut sum = Self::default();
        for counters in workers.iter().filter_map(|worker| worker.counters.as_ref()) {
            sum += counters;
        }
        sum
    }

    /// Exact counts by status, 200 included.
    pub(crate) fn statuses(&self) -> Vec<(u16, u64)> {
        let other_2xx: u64 = self
            .by_status
            .iter()
            .filter(|(s, _)| **s / 100 == 2)
            .map(|(_, n)| n)
            .sum();
        let mut all: Vec<_> = self.by_status.iter().map(|(s, n)| (*s, *n)).collect();
        all.push((200, self.responses[1] - other_2xx));
        all.sort_unstable();
        all
    }
}

impl AddAssign<&Counters> for Counters {
    fn add_assign(&mut self, other: &Counters) {
        add!(self, other, Counters {
            connections_total connections_now connections_max bytes_sent rejected
            timeouts socket_errors cut_short shed cache_hits cache_misses decoded
            first_reads reread rule_steps deferred_lookups listings archive_copied stages
            h2_requests h2_resets quic supply clients log_dropped tls
        } responses turned_away by_status h2_errors io held measures);
        for (sum, count) in self.responses.iter_mut().zip(responses) {
            *sum += count;
        }
        for (sum, count) in self.turned_away.iter_mut().zip(turned_away) {
            *sum += count;
        }
        add_each(&mut self.by_status, by_status);
        add_each(&mut self.h2_errors, h2_errors);
        add_io(&mut self.io, io);
        match (&mut self.measures, measures) {
            (Some(sum), Some(one)) => **sum += one,
            (None, one) => self.measures.clone_from(one),
            (Some(_), None) => {}
        }
        if self.held.is_empty() {
            self.held.clone_from(held);
        } else {
            for (sum, one) in self.held.iter_mut().zip(held) {
                sum.add(one);
            }
        }
    }
}

impl AddAssign<&ClientCounters> for ClientCounters {
    fn add_assign(&mut self, other: &ClientCounters) {
        add!(self, other, ClientCounters {
            introduced untrusted malformed_headers conflicting denied_connections
            denied_requests limited_connections limited_requests limited_bytes
            unenforced forgotten
        });
    }
}

impl AddAssign<&QuicCounters> for QuicCounters {
    fn add_assign(&mut self, other: &QuicCounters) {
        add!(self, other, QuicCounters {
            requests resets stream_errors forwarded retries unsent
        } errors);
        add_each(&mut self.errors, errors);
    }
}

fn add_io(sum: &mut IoCounters, io: &IoCounters) {
    add!(sum, io, IoCounters {
        enters submissions completions short_sends no_buffers queue_full
        completion_overflows stale helped datagrams_received datagrams_sent
        datagrams_dropped datagrams_truncated segmentation_refused
    });
}

/// The counters as text for people: printed on SIGUSR1.
pub(crate) fn summary(workers: &[WorkerCounts]) -> String {
    let c = Counters::sum(workers);
    let requests = c.responses_total();
    let per = |n: u64| n as f64 / requests.max(1) as f64;
    let mut text = String::new();
    for (number, _) in workers.iter().enumerate().filter(|(_, it)| !it.is_up) {
        let _ = writeln!(text, "worker {number} is busy: its last counts are used");
    }
    let _ = writeln!(
        text,
        "connections: now {}, total {}, most at once {}, shed {}, timed out {}, errors {}",
        c.connections_now,
        c.connections_total,
        c.connections_max,
        c.shed,
        c.timeouts,
        c.socket_errors,
    );
    for stage in Stage::ALL.into_iter().filter(|it| c.stages[*it].total > 0) {
        let InStage { now, total, peak } = c.stages[stage];
        let name = stage.name();
        let _ = writeln!(
            text,
            "{name}: now {now}, total {total}, most at once {peak}"
        );
    }
    let _ = write!(text, "requests: {requests}");
    for (status, count) in c.statuses() {
        let _ = write!(text, ", {status}: {count}");
    }
    let away: u64 = c.turned_away.iter().sum();
    let _ = writeln!(
        text,
        "; rejected {}, turned away {away}, cut short {}",
        c.rejected, c.cut_short
    );
    let _ = writeln!(text, "bytes sent: {}", c.bytes_sent);
    summarize_protocols(&c, &mut text);
    let _ = writeln!(
        text,
        "kernel: enters {}, submissions {}, completions {}; per request {:.2}, {:.2}, {:.2}",
        c.io.enters,
        c.io.submissions,
        c.io.completions,
        per(c.io.enters),
        per(c.io.submissions),
        per(c.io.completions),
    );
    let _ = writeln!(
        text,
        "short sends {}, no buffers {}, queue full {}, overflows {}, helped {}",
        c.io.short_sends, c.io.no_buffers, c.io.queue_full, c.io.completion_overflows, c.io.helped,
    );
    let _ = writeln!(
        text,
        "file cache: hits {}, misses {}; bodies decoded {}; log lines dropped {}",
        c.cache_hits, c.cache_misses, c.decoded, c.log_dropped
    );
    text
}

/// The lines of [`summary`] about TLS, HTTP/2 and HTTP/3.
fn summarize_protocols(c: &Counters, text: &mut String) {
    if c.tls.handshakes() + c.tls.failed.values().sum::<u64>() > 0 {
        let failed: u64 = c.tls.failed.values().sum();
        let _ = write!(
            text,
            "tls: handshakes {}, resumed {}, failed {failed}",
            c.tls.handshakes(),
            c.tls.resumed,
        );
        for (reason, count) in &c.tls.failed {
            let _ = write!(text, ", {reason}: {count}");
        }
        let _ = write!(text, "; encrypted by the kernel {}", c.tls.kernel);
        for (reason, count) in &c.tls.not_kernel {
            let _ = write!(text, ", not for {reason}: {count}");
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "HTTP/2: requests {}, streams reset {}, errors {}",
        c.h2_requests,
        c.h2_resets,
        c.h2_errors.values().sum::<u64>(),
    );
    if c.io.datagrams_received > 0 {
        let _ = writeln!(
            text,
            "HTTP/3: requests {}, streams reset {}, errors {}; datagrams received {}, \
             sent {}, dropped {}, unsent {}",
            c.quic.requests,
            c.quic.resets,
            c.quic.errors.values().sum::<u64>(),
            c.io.datagrams_received,
            c.io.datagrams_sent,
            c.io.datagrams_dropped,
            c.quic.unsent,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_add_up_to_the_responses() {
        let mut c = Counters::default();
        for status in [200, 200, 206, 304, 404, 200] {
            c.response(status);
        }
        assert_eq!(c.responses_total(), 6);
        assert_eq!(c.statuses(), [(200, 3), (206, 1), (304, 1), (404, 1)]);
    }
}
