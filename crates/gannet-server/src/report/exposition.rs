//! The counters in the Prometheus text format, version 0.0.4.
//!
//! Names follow Prometheus' own rules, as checked by `promtool check metrics`: base units, counters
//! that end in `_total`, a help text for each. `process_*` are the names that all its client
//! libraries use.

mod measured;
mod rows;

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use gannet_io::process::ProcessFacts;

use crate::coder::{Coder, CoderCounts};

use self::rows::rows;
use crate::bounds::ledger::{AccountBound, Holding};
use crate::bounds::waiting::Awaited;
use crate::config::receipts::{Receipts, ReceiverCounts, ReceiverRefusal};
use crate::config::supply::Supplied;
use crate::observe::board::unix_now;
use crate::observe::board::{self, Board};
use crate::observe::metrics::WorkerCounts;
use crate::observe::metrics::{Counters, TlsCounters};
use crate::observe::stages::{InStage, Stage};
use crate::release::rules::answers_without_fields;
use crate::tls::certificates::{CertificateStore, Facts};

/// Facts reported besides the counters.
#[derive(Clone)]
pub(crate) struct About {
    /// Name of the workers' I/O engine.
    pub(crate) engine: &'static str,
    /// The certificates in use, if any address speaks TLS.
    pub(crate) certificates: Option<Arc<CertificateStore>>,
    /// The releases of followed archives.
    pub(crate) board: Arc<Board>,
    /// What codes text of live directories.
    pub(crate) coder: Arc<Coder>,
    /// What a process beside the server has received.
    pub(crate) receipts: Option<Receipts>,
}

/// The whole exposition: the workers' counters, build and certificate facts, and process metrics.
pub(crate) fn prometheus(workers: &[WorkerCounts], about: &About) -> String {
    let mut text = Text(String::with_capacity(8192));
    text.build(about);
    let sum = Counters::sum(workers);
    text.counts(&sum);
    text.workers(workers);
    if let Some(measures) = &sum.measures {
        text.measures(measures);
    }
    if let Some(store) = &about.certificates {
        let set = store.current();
        let all = set.facts().chain(set.facts_of_authorities());
        text.certificates(&all.collect::<Vec<_>>());
    }
    text.codings(&about.coder.counts());
    text.releases(&about.board.all(), unix_now());
    text.partials(&about.board.all());
    if let Some(receipts) = &about.receipts {
        text.received(&receipts.read());
    }
    text.process(&ProcessFacts::read());
    text.0
}

struct Text(String);

impl Text {
    /// Begins a metric; its samples follow.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a string cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(&text.to_string()));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }

    /// A metric with one sample.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A counter with one sample for each value of a label.
    fn counters<L: Display>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.metric(name, "counter", help);
        for (text, value) in samples {
            self.sample(name, &[(label, &text)], value);
        }
    }

    fn build(&mut self, about: &About) {
        let name = "gannet_build_info";
        self.metric(
            name,
            "gauge",
            "The version and the engine that is in use; always 1.",
        );
        let version = env!("CARGO_PKG_VERSION");
        self.sample(name, &[("version", &version), ("engine", &about.engine)], 1);
    }

    fn counts(&mut self, sum: &Counters) {
        for (name, kind, help, value) in rows(sum) {
            self.single(&format!("gannet_{name}"), kind, help, value);
        }
        let name = "gannet_responses_total";
        self.counters(name, "Responses by status.", "status", sum.statuses());
        self.counters(
            "gannet_requests_turned_away_total",
            "Requests answered with 503 because too many others waited, by what they would have waited for.",
            "reason",
            Awaited::ALL.map(|it| (it.name(), sum.turned_away[it as usize])),
        );
        self.single(
            "gannet_answers_without_site_fields_total",
            "counter",
            "Built-in answers instead of content whose fields, by the rules of its site, were too much.",
            answers_without_fields(),
        );
        self.counters(
            "gannet_fetches_total",
            "Parts of releases on demand that were not here when they were needed, by what became of them.",
            "result",
            Supplied::ALL.map(|(it, name)| (name, sum.supply.results[it as usize])),
        );
        for (name, help, errors) in [
            (
                "gannet_h2_errors_total",
                "HTTP/2 connections ended by an error.",
                &sum.h2_errors,
            ),
            (
                "gannet_h3_errors_total",
                "HTTP/3 connections ended by an error.",
                &sum.quic.errors,
            ),
        ] {
            self.metric(name, "counter", help);
            for ((code, cause), count) in errors {
                self.sample(name, &[("code", code), ("cause", cause)], count);
            }
        }
        self.stages(sum);
        self.tls(&sum.tls);
        self.held(&sum.held);
    }

    /// Connections by what they speak.
    fn stages(&mut self, sum: &Counters) {
        type Value = fn(&InStage) -> u64;
        let families: [(&str, &str, &str, Value); 3] = [
            ("", "gauge", "Connections by what they speak now.", |it| {
                it.now
            }),
            (
                "_peak",
                "gauge",
                "The most of them at once; the sum of each worker's.",
                |it| it.peak,
            ),
            (
                "_total",
                "counter",
                "Connections by what they have ever spoken.",
                |it| it.total,
            ),
        ];
        for (end, kind, help, value) in families {
            let name = format!("gannet_stage_connections{end}");
            self.metric(&name, kind, help);
            for stage in Stage::ALL {
                self.sample(
                    &name,
                    &[("stage", &stage.name())],
                    value(&sum.stages[stage]),
                );
            }
        }
        self.single(
            "gannet_tls_connections",
            "gauge",
            "Connections over TLS or QUIC open now.",
            sum.secure_connections_now(),
        );
    }

    /// Text of live directories that is coded while it is served.
    fn codings(&mut self, counts: &CoderCounts) {
        self.counters(
            "gannet_codings_total",
            "Live files to be coded, by what became of them.",
            "result",
            [
                ("made", counts.made),
                ("useless", counts.useless),
                ("dropped", counts.dropped),
                ("refused", counts.refused),
            ],
        );
        self.counters(
            "gannet_codings_bytes_total",
            "Bytes of the files that were coded, before and after.",
            "of",
            [
                ("source", counts.source_bytes),
                ("coded", counts.made_bytes),
            ],
        );
        self.single(
            "gannet_codings_queued",
            "gauge",
            "Live files that wait to be coded.",
            counts.queued,
        );
    }

    /// The releases of each followed archive or store.
    fn releases(&mut self, contents: &[board::ContentFacts], now: u64) {
        if contents.is_empty() {
            return;
        }
        let name = "gannet_release_info";
        let help = "The releases of each content and their states; always 1.";
        self.metric(name, "gauge", help);
        for content in contents {
            for one in &content.releases {
                let labels: [(_, &dyn Display); 3] = [
                    ("content", &content.name),
                    ("release", &one.id),
                    ("state", &one.state.name()),
                ];
                self.sample(name, &labels, 1);
            }
        }
        let name = "gannet_release_kept_answers_total";
        let help = "Answers for immutable assets by a release that was staged or kept.";
        self.metric(name, "counter", help);
        for content in contents {
            for one in &content.releases {
                let labels: [(_, &dyn Display); 2] =
                    [("content", &content.name), ("release", &one.id)];
                self.sample(name, &labels, one.kept_answers());
            }
        }
        let name = "gannet_release_refused_total";
        self.metric(
            name,
            "counter",
            "New releases that were refused, by reason.",
        );
        for content in contents {
            for (reason, count) in &content.refused {
                let labels: [(_, &dyn Display); 2] =
                    [("content", &content.name), ("reason", reason)];
                self.sample(name, &labels, count);
            }
        }
        type Value = fn(&board::ContentFacts, u64) -> Option<u64>;
        let gauges: [(&str, &str, Value); 4] = [
            (
                "gannet_release_serial",
                "The serial of the store's pointer that is in force.",
                |it, _| it.serial,
            ),
            (
                "gannet_release_activated_seconds",
                "When the current release was activated, Unix time.",
                |it, _| Some(it.activated),
            ),
            (
                "gannet_release_checked_seconds",
                "When the path or store was last looked at, Unix time.",
                |it, _| Some(it.checked),
            ),
            (
                "gannet_release_late",
                "1 if a release should be current and could not be staged.",
                |it, now| Some(it.late_from.is_some_and(|late| late <= now).into()),
            ),
        ];
        for (name, help, value) in gauges {
            self.metric(name, "gauge", help);
            for content in contents {
                if let Some(value) = value(content, now) {
                    self.sample(name, &[("content", &content.name)], value);
                }
            }
        }
    }

    /// How much of releases on demand is on this machine.
    fn partials(&mut self, contents: &[board::ContentFacts]) {
        let families = [
            (
                "gannet_release_here_bytes",
                "Bytes of a release on demand on this machine.",
            ),
            ("gannet_release_bytes", "All bytes of a release on demand."),
        ];
        for (number, (name, help)) in families.into_iter().enumerate() {
            self.metric(name, "gauge", help);
            let all = contents
                .iter()
                .flat_map(|it| it.releases.iter().map(move |one| (it, one)));
            for (content, one) in all {
                let labels: [(_, &dyn Display); 2] =
                    [("content", &content.name), ("release", &one.id)];
                if let Some(bytes) = one.here() {
                    self.sample(name, &labels, bytes[number]);
                }
            }
        }
    }

    /// What publishers have brought.
    fn received(&mut self, counts: &ReceiverCounts) {
        let singles = [
            (
                "gannet_receiver_connections_total",
                "counter",
                "Connections to the receiver of releases.",
                counts.connections,
            ),
            (
                "gannet_receiver_bytes_total",
                "counter",
                "Bytes that came from publishers whose pointers were good.",
                counts.bytes,
            ),
            (
                "gannet_receiver_releases_total",
                "counter",
                "Releases that were received and came into force.",
                counts.releases,
            ),
            (
                "gannet_receiver_serial",
                "gauge",
                "The serial of the last release that was received.",
                counts.serial,
            ),
            (
                "gannet_receiver_activated_seconds",
                "gauge",
                "When the last release that was received came into force, Unix time.",
                counts.activated,
            ),
        ];
        for (name, kind, help, value) in singles {
            self.single(name, kind, help, value);
        }
        self.counters(
            "gannet_receiver_refused_total",
            "Connections to the receiver that brought nothing, by reason.",
            "reason",
            ReceiverRefusal::ALL.map(|(it, name)| (name, counts.refused[it as usize])),
        );
    }

    /// Memory held for peers, by account.
    fn held(&mut self, held: &[Holding]) {
        let mut family = |name: &str, help: &str, value: fn(&Holding) -> u64| {
            self.metric(name, "gauge", help);
            for holding in held {
                let account = holding.account.name();
                let mut labels: Vec<(&str, &dyn Display)> = vec![("account", &account)];
                if matches!(holding.bound, AccountBound::Connection(_))
                    && name != "gannet_held_bytes"
                {
                    labels.push(("per", &"connection"));
                }
                self.sample(name, &labels, value(holding));
            }
        };
        family("gannet_held_bytes", "Memory held for clients.", |it| {
            it.held
        });
        family(
            "gannet_held_bytes_peak",
            "The most of it, of one connection or of all.",
            |it| it.peak,
        );
        family(
            "gannet_held_bytes_bound",
            "The most that it may be.",
            |it| match it.bound {
                AccountBound::Connection(most) | AccountBound::Worker(most) => most,
            },
        );
    }

    fn tls(&mut self, tls: &TlsCounters) {
        self.counters(
            "gannet_tls_handshakes_total",
            "TLS handshakes by kind.",
            "kind",
            [
                ("full", tls.full),
                ("retried", tls.retried),
                ("resumed", tls.resumed),
                ("quic", tls.quic),
            ],
        );
        self.counters(
            "gannet_tls_handshakes_failed_total",
            "TLS handshakes that failed.",
            "reason",
            tls.failed.iter().map(|(reason, n)| (reason, *n)),
        );
        self.counters(
            "gannet_tls_client_certificates_total",
            "Certificates requested of clients, by result.",
            "result",
            [
                ("accepted", tls.clients_accepted),
                ("refused", tls.clients_refused),
                ("missing", tls.clients_missing),
            ],
        );
        self.single(
            "gannet_tls_early_data_total",
            "counter",
            "Connections with early data taken.",
            tls.early,
        );
        self.single(
            "gannet_tls_faults_total",
            "counter",
            "Connections ended by a fatal alert.",
            tls.faults,
        );
        self.single(
            "gannet_tls_kernel_connections_total",
            "counter",
            "Connections the kernel encrypted.",
            tls.kernel,
        );
        self.counters(
            "gannet_tls_not_kernel_total",
            "Large bodies the kernel did not encrypt.",
            "reason",
            tls.not_kernel.iter().map(|(reason, n)| (reason, *n)),
        );
        self.counters(
            "gannet_tls_key_updates_total",
            "Keys replaced, by side.",
            "by",
            [("server", tls.key_updates), ("peer", tls.peer_key_updates)],
        );
        self.single(
            "gannet_tls_kernel_key_updates_total",
            "counter",
            "Keys replaced in the kernel.",
            tls.kernel_key_updates,
        );
    }

    /// A worker that did not answer in time keeps its last values, here and in the sums: a counter
    /// that decreases would look like a restart, and a missing one would make the sums decrease.
    fn workers(&mut self, workers: &[WorkerCounts]) {
        let name = "gannet_worker_up";
        let help = "Whether the worker has just answered; if not, its numbers are its last ones.";
        self.metric(name, "gauge", help);
        for (number, worker) in workers.iter().enumerate() {
            self.sample(name, &[("worker", &number)], u8::from(worker.is_up));
        }
        let responses = |(number, worker): (usize, &WorkerCounts)| {
            Some((number, worker.counters.as_ref()?.responses_total()))
        };
        self.counters(
            "gannet_worker_responses_total",
            "Responses by worker.",
            "worker",
            workers.iter().enumerate().filter_map(responses),
        );
    }

    fn certificates(&mut self, all: &[&Facts]) {
        // Several certificates may have the same names; the fingerprint distinguishes them.
        let labelled = |name: &str, text: &mut Self, value: fn(&Facts) -> i64| {
            for facts in all {
                let first = facts.names.first().map_or(&*facts.subject, |name| &**name);
                let fingerprint = facts.fingerprint.iter().take(8);
                let fingerprint: String = fingerprint.map(|byte| format!("{byte:02x}")).collect();
                let labels: [(&str, &dyn Display); 2] =
                    [("name", &first), ("fingerprint", &fingerprint)];
                text.sample(name, &labels, value(facts));
            }
        };
        let name = "gannet_certificate_not_after_timestamp_seconds";
        self.metric(
            name,
            "gauge",
            "The last second of a certificate in use, Unix time.",
        );
        labelled(name, self, |facts| facts.not_after);
        let name = "gannet_certificate_not_before_timestamp_seconds";
        self.metric(
            name,
            "gauge",
            "The first second of a certificate in use, Unix time.",
        );
        labelled(name, self, |facts| facts.not_before);
    }

    fn process(&mut self, facts: &ProcessFacts) {
        self.single(
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            format_args!("{:.3}", facts.cpu_seconds),
        );
        let gauges = [
            (
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
                facts.virtual_bytes,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                facts.resident_bytes,
            ),
            (
                "process_open_fds",
                "Number of open file descriptors.",
                facts.descriptors,
            ),
            (
                "process_max_fds",
                "Maximum number of open file descriptors.",
                facts.descriptors_max,
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                self.single(name, "gauge", help, value);
            }
        }
        if let Some(at) = facts.started_at {
            self.single(
                "process_start_time_seconds",
                "gauge",
                "Start time of the process since unix epoch in seconds.",
                format_args!("{at:.2}"),
            );
        }
    }
}

/// Escapes a label value as the format requires.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests;
