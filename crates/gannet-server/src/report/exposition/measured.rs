//! The measures: histograms of OpenTelemetry's conventions for HTTP servers, by the names that
//! Prometheus gives them, and those that have none there.
//!
//! Of the attributes of the conventions, the class of the status code stands for the code, so that
//! clients cannot make more than 64 label sets; `gannet_responses_total` has the codes.

use std::fmt::{self, Display};

use super::Text;
use crate::observe::measures::{Histogram, Measures, Series};

const METHOD: &str = "http_request_method";
const CLASS: &str = "http_response_status_class";
const VERSION: &str = "network_protocol_version";

/// Nanoseconds, as seconds.
struct Seconds(u64);

impl Display for Seconds {
    /// Exact, without zeros at the end: `0.00025`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        match rest {
            0 => write!(f, "{seconds}"),
            rest => {
                let digits = format!("{rest:09}");
                write!(f, "{seconds}.{}", digits.trim_end_matches('0'))
            }
        }
    }
}

impl Text {
    /// The samples of a histogram, whose values `unit` converts.
    fn histogram<U: Display>(
        &mut self,
        name: &str,
        labels: &[(&str, &dyn Display)],
        histogram: &Histogram,
        unit: fn(u64) -> U,
    ) {
        let bucket = format!("{name}_bucket");
        let mut up_to = |to: &dyn Display, count: u64| {
            let mut labels = labels.to_vec();
            labels.push(("le", to));
            self.sample(&bucket, &labels, count);
        };
        for (to, count) in histogram.cumulated() {
            up_to(&unit(to), count);
        }
        let count = histogram.count();
        up_to(&"+Inf", count);
        self.sample(&format!("{name}_sum"), labels, unit(histogram.sum()));
        self.sample(&format!("{name}_count"), labels, count);
    }

    pub(super) fn measures(&mut self, measures: &Measures) {
        self.series(
            measures,
            "http_server_request_duration_seconds",
            "From the complete head of a request until the kernel has the last byte of the response.",
            |it| &it.duration,
            Seconds,
        );
        self.series(
            measures,
            "http_server_response_body_size_bytes",
            "Content of responses, as it was sent.",
            |it| &it.size,
            |bytes| bytes,
        );
        let name = "gannet_time_to_first_byte_seconds";
        let help =
            "From the complete head of a request until the first bytes of the response are sent.";
        self.metric(name, "histogram", help);
        for (version, histogram) in measures.first_byte() {
            self.histogram(name, &[(VERSION, &version)], histogram, Seconds);
        }
        let name = "gannet_request_duration_max_seconds";
        let help = "The longest duration of a request that ended in this minute or the last.";
        self.metric(name, "gauge", help);
        for (version, ns) in measures.longest() {
            self.sample(name, &[(VERSION, &version)], Seconds(ns));
        }
        let name = "gannet_tls_handshake_duration_seconds";
        let help = "TLS handshakes that succeeded, from the connection on.";
        self.metric(name, "histogram", help);
        for (kind, histogram) in measures.handshakes() {
            self.histogram(name, &[("kind", &kind)], histogram, Seconds);
        }
        let name = "gannet_fetch_duration_seconds";
        let help = "Until a part of a release on demand had come, or an answer that it cannot.";
        self.metric(name, "histogram", help);
        if measures.fetches().count() > 0 {
            self.histogram(name, &[], measures.fetches(), Seconds);
        }
        let sites = || measures.sites().iter();
        self.counters(
            "gannet_site_responses_total",
            "Responses by site; the first ones have a name, the others are added up.",
            "site",
            sites().map(|it| (&it.name, it.responses)),
        );
        self.counters(
            "gannet_site_body_bytes_total",
            "Content of responses by site.",
            "site",
            sites().map(|it| (&it.name, it.body_bytes)),
        );
    }

    /// One of the histograms that each kind of responses has.
    fn series<U: Display>(
        &mut self,
        measures: &Measures,
        name: &str,
        help: &str,
        histogram: fn(&Series) -> &Histogram,
        unit: fn(u64) -> U,
    ) {
        self.metric(name, "histogram", help);
        for ([method, version, class], series) in measures.series() {
            let labels: [(&str, &dyn Display); 3] =
                [(METHOD, &method), (CLASS, &class), (VERSION, &version)];
            self.histogram(name, &labels, histogram(series), unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (ns, expect) in [
            (0, "0"),
            (1, "0.000000001"),
            (250_000, "0.00025"),
            (10_000_000_000, "10"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(Seconds(ns).to_string(), expect);
        }
    }
}
