//! The counters and gauges that have one sample each.

use crate::observe::metrics::Counters;
use crate::observe::stages::Stage;
use crate::release::rules::out_of_steps;

/// One row: name without prefix, kind, help, value.
pub(super) type Row = (&'static str, &'static str, &'static str, u64);

/// Rows, each as `kind name = value, help;`.
macro_rules! rows {
    ($($kind:ident $name:ident = $value:expr, $help:literal;)*) => {
        vec![$((stringify!($name), stringify!($kind), $help, $value)),*]
    };
}

/// The rows of these counters.
pub(super) fn rows(c: &Counters) -> Vec<Row> {
    [clients(c), content(c), binary(c), kernel(c)].concat()
}

/// Connections, and rules about clients.
fn clients(c: &Counters) -> Vec<Row> {
    rows![
        counter connections_total = c.connections_total, "Connections accepted.";
        gauge connections = c.connections_now, "Connections open now.";
        gauge connections_peak = c.connections_max,
            "The most connections open at once; the sum of each worker's.";
        counter sent_bytes_total = c.bytes_sent, "Bytes handed to sockets.";
        counter requests_rejected_total = c.rejected, "Request heads refused.";
        counter proxied_connections_total = c.clients.introduced,
            "Connections whose proxy has named their client (PROXY protocol).";
        counter proxied_untrusted_total = c.clients.untrusted,
            "Connections closed because only trusted proxies may connect there.";
        counter proxied_malformed_total = c.clients.malformed_headers,
            "Connections of proxies closed because they did not start with a PROXY header.";
        counter forwarded_conflicts_total = c.clients.conflicting,
            "Requests whose Forwarded and X-Forwarded-For disagree.";
        counter clients_denied_connections_total = c.clients.denied_connections,
            "Connections of clients that are not allowed.";
        counter clients_denied_requests_total = c.clients.denied_requests,
            "Requests of clients that are not allowed, by trusted proxies.";
        counter clients_limited_connections_total = c.clients.limited_connections,
            "Connections closed because their client had too many.";
        counter clients_limited_requests_total = c.clients.limited_requests,
            "Requests refused because their client had sent too many.";
        counter clients_limited_bytes_total = c.clients.limited_bytes,
            "Requests refused because their client had been sent too many bytes.";
        counter clients_unenforced_total = c.clients.unenforced,
            "Connections and requests without limits, for lack of room in the table.";
        counter clients_forgotten_total = c.clients.forgotten,
            "Clients whose use of a limit was forgotten, for lack of room.";
    ]
}

/// What becomes of connections and content.
fn content(c: &Counters) -> Vec<Row> {
    rows![
        counter timeouts_total = c.timeouts, "Connections ended by a deadline.";
        counter socket_errors_total = c.socket_errors, "Connections ended by a socket error.";
        counter responses_cut_short_total = c.cut_short, "Responses whose file ended early.";
        counter connections_shed_total = c.shed, "Connections closed for lack of room.";
        counter cache_hits_total = c.cache_hits, "Requests answered from the file cache.";
        counter cache_misses_total = c.cache_misses, "Requests that looked at the disk.";
        counter rules_out_of_steps_total = out_of_steps(),
            "Evaluations of a site's rules that took too many steps.";
        counter bodies_decoded_total = c.decoded,
            "Bodies stored in a coding alone that were decoded.";
        counter first_reads_total = c.first_reads,
            "Files whose content was read for a first answer.";
        counter rules_steps_total = c.rule_steps,
            "Steps that requests took through the rules of sites.";
        counter reread_bytes_total = c.reread,
            "Bytes of growing files that were read again before an answer was completed.";
        counter lookups_deferred_total = c.deferred_lookups,
            "Lookups that were deferred because descriptors, memory or room for questions \
             were used up.";
        counter listings_made_total = c.listings, "Directories that were read to be listed.";
        counter fetch_hits_total = c.supply.hits,
            "Parts of releases on demand that were here when they were needed.";
        counter fetched_bytes_total = c.supply.bytes,
            "Bytes that were fetched for parts of releases on demand.";
        counter fetches_unverified_total = c.supply.unverified,
            "Pieces of releases on demand that came and were not what their digests say.";
        gauge archive_memory_bytes = c.archive_copied, "Bytes of archives copied into memory.";
    ]
}

/// HTTP/2, HTTP/3 and datagrams.
fn binary(c: &Counters) -> Vec<Row> {
    rows![
        counter h2_connections_total = c.h2_connections(), "Connections that spoke HTTP/2.";
        counter h2_requests_total = c.h2_requests, "Requests that came as HTTP/2 streams.";
        counter h2_streams_reset_total = c.h2_resets,
            "HTTP/2 streams that ended before their response was complete.";
        counter h3_connections_total = c.stages[Stage::Http3].total, "Connections that spoke HTTP/3.";
        counter h3_requests_total = c.quic.requests, "Requests that came as HTTP/3 streams.";
        counter h3_streams_reset_total = c.quic.resets,
            "HTTP/3 streams that ended before their response was complete.";
        counter quic_datagrams_received_total = c.io.datagrams_received, "Datagrams received.";
        counter quic_datagrams_sent_total = c.io.datagrams_sent, "Datagrams sent.";
        counter quic_datagrams_dropped_total = c.io.datagrams_dropped,
            "Datagrams that the kernel dropped because a socket's buffer was full.";
        counter quic_datagrams_too_long_total = c.io.datagrams_truncated,
            "Datagrams that were longer than any that is announced to be taken.";
        counter quic_segmentation_refused_total = c.io.segmentation_refused,
            "Sockets for which the kernel cuts no trains into datagrams.";
        counter quic_datagrams_forwarded_total = c.quic.forwarded,
            "Datagrams that another worker than their own has received.";
        counter quic_retries_total = c.quic.retries,
            "QUIC clients that were asked to validate their address.";
        counter quic_unsent_total = c.quic.unsent, "Trains of datagrams that the kernel refused.";
    ]
}

/// The log, and calls of the kernel.
fn kernel(c: &Counters) -> Vec<Row> {
    rows![
        counter log_lines_dropped_total = c.log_dropped,
            "Log lines that found no room or could not be written.";
        counter io_enters_total = c.io.enters, "Calls that entered the kernel's queue.";
        counter io_submissions_total = c.io.submissions, "Operations submitted.";
        counter io_completions_total = c.io.completions, "Completions reaped.";
        counter io_short_sends_total = c.io.short_sends, "Sends continued.";
        counter io_no_buffers_total = c.io.no_buffers, "Times no receive buffer was free.";
        counter io_queue_full_total = c.io.queue_full, "Times the queue was flushed early.";
        counter io_completion_overflows_total = c.io.completion_overflows,
            "Times completions overflowed.";
        counter io_stale_total = c.io.stale, "Completions for sockets that were closed already.";
        counter io_helped_total = c.io.helped, "Operations given to helper threads.";
    ]
}
