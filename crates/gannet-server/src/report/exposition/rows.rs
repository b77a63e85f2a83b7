//! The counters and gauges that have one sample each.

use crate::observe::metrics::Counters;
use crate::release::rules::out_of_steps;

/// One row: name without prefix, kind, help, value.
pub(super) type Row = (&'static str, &'static str, &'static str, u64);

/// The rows of these counters.
pub(super) fn rows(c: &Counters) -> Vec<Row> {
    vec![
        (
            "connections_total",
            "counter",
            "Connections accepted.",
            c.connections_total,
        ),
        (
            "connections",
            "gauge",
            "Connections open now.",
            c.connections_now,
        ),
        (
            "sent_bytes_total",
            "counter",
            "Bytes handed to sockets.",
            c.bytes_sent,
        ),
        (
            "requests_rejected_total",
            "counter",
            "Request heads refused.",
            c.rejected,
        ),
        (
            "proxied_connections_total",
            "counter",
            "Connections whose proxy has named their client (PROXY protocol).",
            c.clients.introduced,
        ),
        (
            "proxied_untrusted_total",
            "counter",
            "Connections closed because only trusted proxies may connect there.",
            c.clients.untrusted,
        ),
        (
            "proxied_malformed_total",
            "counter",
            "Connections of proxies closed because they did not begin with a PROXY header.",
            c.clients.malformed_headers,
        ),
        (
            "forwarded_conflicts_total",
            "counter",
            "Requests whose Forwarded and X-Forwarded-For disagree.",
            c.clients.conflicting,
        ),
        (
            "clients_denied_connections_total",
            "counter",
            "Connections of clients that are not allowed.",
            c.clients.denied_connections,
        ),
        (
            "clients_denied_requests_total",
            "counter",
            "Requests of clients that are not allowed, by trusted proxies.",
            c.clients.denied_requests,
        ),
        (
            "clients_limited_connections_total",
            "counter",
            "Connections closed because their client had too many.",
            c.clients.limited_connections,
        ),
        (
            "clients_limited_requests_total",
            "counter",
            "Requests refused because their client had sent too many.",
            c.clients.limited_requests,
        ),
        (
            "clients_limited_bytes_total",
            "counter",
            "Requests refused because their client had been sent too many bytes.",
            c.clients.limited_bytes,
        ),
        (
            "clients_unenforced_total",
            "counter",
            "Connections and requests without limits, for lack of room in the table.",
            c.clients.unenforced,
        ),
        (
            "clients_forgotten_total",
            "counter",
            "Clients whose use of a limit was forgotten, for lack of room.",
            c.clients.forgotten,
        ),
        (
            "timeouts_total",
            "counter",
            "Connections ended by a deadline.",
            c.timeouts,
        ),
        (
            "socket_errors_total",
            "counter",
            "Connections ended by a socket error.",
            c.socket_errors,
        ),
        (
            "responses_cut_short_total",
            "counter",
            "Responses whose file ended early.",
            c.cut_short,
        ),
        (
            "connections_shed_total",
            "counter",
            "Connections closed for lack of room.",
            c.shed,
        ),
        (
            "cache_hits_total",
            "counter",
            "Requests answered from the file cache.",
            c.cache_hits,
        ),
        (
            "cache_misses_total",
            "counter",
            "Requests that looked at the disk.",
            c.cache_misses,
        ),
        (
            "rules_out_of_steps_total",
            "counter",
            "Evaluations of a site's rules that took too many steps.",
            out_of_steps(),
        ),
        (
            "bodies_decoded_total",
            "counter",
            "Bodies stored in a coding alone that were decoded.",
            c.decoded,
        ),
        (
            "first_reads_total",
            "counter",
            "Files whose content was read for a first answer.",
            c.first_reads,
        ),
        (
            "lookups_deferred_total",
            "counter",
            "Lookups that were deferred because descriptors, memory or room for questions were used up.",
            c.deferred_lookups,
        ),
        (
            "listings_made_total",
            "counter",
            "Directories that were read to be listed.",
            c.listings,
        ),
        (
            "archive_memory_bytes",
            "gauge",
            "Bytes of archives copied into memory.",
            c.archive_copied,
        ),
        (
            "h2_connections_total",
            "counter",
            "Connections that spoke HTTP/2.",
            c.h2_connections,
        ),
        (
            "h2_requests_total",
            "counter",
            "Requests that came as HTTP/2 streams.",
            c.h2_requests,
        ),
        (
            "h2_streams_reset_total",
            "counter",
            "HTTP/2 streams that ended before their response was complete.",
            c.h2_resets,
        ),
        (
            "h3_connections_total",
            "counter",
            "Connections that spoke HTTP/3.",
            c.quic.connections,
        ),
        (
            "h3_requests_total",
            "counter",
            "Requests that came as HTTP/3 streams.",
            c.quic.requests,
        ),
        (
            "h3_streams_reset_total",
            "counter",
            "HTTP/3 streams that ended before their response was complete.",
            c.quic.resets,
        ),
        (
            "quic_datagrams_received_total",
            "counter",
            "Datagrams received.",
            c.io.datagrams_received,
        ),
        (
            "quic_datagrams_sent_total",
            "counter",
            "Datagrams sent.",
            c.io.datagrams_sent,
        ),
        (
            "quic_datagrams_dropped_total",
            "counter",
            "Datagrams that the kernel dropped because a socket's buffer was full.",
            c.io.datagrams_dropped,
        ),
        (
            "quic_datagrams_too_long_total",
            "counter",
            "Datagrams that were longer than any that is announced to be taken.",
            c.io.datagrams_truncated,
        ),
        (
            "quic_segmentation_refused_total",
            "counter",
            "Sockets for which the kernel cuts no trains into datagrams.",
            c.io.segmentation_refused,
        ),
        (
            "quic_datagrams_forwarded_total",
            "counter",
            "Datagrams that another worker than their own has received.",
            c.quic.forwarded,
        ),
        (
            "quic_retries_total",
            "counter",
            "QUIC clients that were asked to validate their address.",
            c.quic.retries,
        ),
        (
            "quic_unsent_total",
            "counter",
            "Trains of datagrams that the kernel refused.",
            c.quic.unsent,
        ),
        (
            "log_lines_dropped_total",
            "counter",
            "Log lines that found no room or could not be written.",
            c.log_dropped,
        ),
        (
            "io_enters_total",
            "counter",
            "Calls that entered the kernel's queue.",
            c.io.enters,
        ),
        (
            "io_submissions_total",
            "counter",
            "Operations submitted.",
            c.io.submissions,
        ),
        (
            "io_completions_total",
            "counter",
            "Completions reaped.",
            c.io.completions,
        ),
        (
            "io_short_sends_total",
            "counter",
            "Sends continued.",
            c.io.short_sends,
        ),
        (
            "io_no_buffers_total",
            "counter",
            "Times no receive buffer was free.",
            c.io.no_buffers,
        ),
        (
            "io_queue_full_total",
            "counter",
            "Times the queue was flushed early.",
            c.io.queue_full,
        ),
        (
            "io_completion_overflows_total",
            "counter",
            "Times completions overflowed.",
            c.io.completion_overflows,
        ),
        (
            "io_stale_total",
            "counter",
            "Completions for sockets that were closed already.",
            c.io.stale,
        ),
        (
            "io_helped_total",
            "counter",
            "Operations given to helper threads.",
            c.io.helped,
        ),
    ]
}
