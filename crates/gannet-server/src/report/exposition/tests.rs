//! Checks the text against the format and against the rules of `promtool check metrics`.

use gannet_http::semantics::request::{Method, Version};
use gannet_http::semantics::status::Status;
use gannet_io::driver::Nanos;
use gannet_testkit::exposition::Exposition;

use super::*;
use crate::observe::measures::{Measured, Measures, ResponseKind};
use crate::tls::handshake::HandshakeKind;

fn facts(name: &str) -> Facts {
    Facts {
        names: vec![name.into()],
        has_addresses: false,
        subject: String::new(),
        issuer: String::new(),
        not_before: 1_700_000_000,
        not_after: 1_800_000_000,
        validity: (String::new(), String::new()),
        fingerprint: [0xab; 32],
    }
}

/// An exposition with every possible metric, and with labels that need escapes.
fn whole() -> String {
    let mut counters = Counters::default();
    for status in [200, 206, 404] {
        counters.response(status);
    }
    counters.turned_away(Awaited::Password);
    counters.h2_errors.insert(("ENHANCE_YOUR_CALM", "pings"), 1);
    counters.tls.failed_by("close\"d\\");
    counters.tls.stays_ours("tls12");
    counters.measures = Some(Box::new(measures()));
    let workers = [
        WorkerCounts {
            is_up: true,
            counters: Some(counters.clone()),
        },
        WorkerCounts {
            is_up: false,
            counters: Some(counters),
        },
        WorkerCounts::default(),
    ];
    let about = About {
        engine: "epoll",
        certificates: None,
        board: Arc::new(board()),
        coder: Arc::default(),
        receipts: None,
    };
    let mut text = Text(prometheus(&workers, &about));
    text.certificates(&[&facts("example.org"), &facts("*.example.org")]);
    let mut counts = ReceiverCounts {
        bytes: 7,
        ..ReceiverCounts::default()
    };
    counts.refused[ReceiverRefusal::Older as usize] = 2;
    text.received(&counts);
    text.0
}

/// One response in 3 ms, one handshake.
fn measures() -> Measures {
    let mut measures = Measures::default();
    let measured = Measured {
        kind: ResponseKind::new(Method::Get, Version::Http2, Status::PARTIAL_CONTENT),
        site: measures.label("a.example\n\"b\\"),
        body_len: 5_000,
        began: Nanos(1_000_000_000),
        first_byte: Some(Nanos(1_000_200_000)),
    };
    measures.response(&measured, Nanos(1_003_000_000));
    measures.handshake(HandshakeKind::Resumed, 700_000);
    measures.quic_handshake(2_000_000_000);
    measures
}

#[test]
fn what_was_measured_is_in_the_buckets() {
    let text = whole();
    let labels = "{http_request_method=\"GET\",http_response_status_class=\"2xx\",\
                  network_protocol_version=\"2\"";
    // Two workers.
    for line in [
        &format!("http_server_request_duration_seconds_bucket{labels},le=\"0.0025\"}} 0\n"),
        &format!("http_server_request_duration_seconds_bucket{labels},le=\"0.005\"}} 2\n"),
        &format!("http_server_request_duration_seconds_sum{labels}}} 0.006\n"),
        &format!("http_server_response_body_size_bytes_bucket{labels},le=\"4096\"}} 0\n"),
        &format!("http_server_response_body_size_bytes_bucket{labels},le=\"16384\"}} 2\n"),
        "gannet_time_to_first_byte_seconds_bucket{network_protocol_version=\"2\",le=\"0.0001\"} 0\n",
        "gannet_time_to_first_byte_seconds_bucket{network_protocol_version=\"2\",le=\"0.00025\"} 2\n",
        "gannet_request_duration_max_seconds{network_protocol_version=\"2\"} 0.003\n",
        "gannet_request_duration_max_seconds{network_protocol_version=\"3\"} 0\n",
        "gannet_tls_handshake_duration_seconds_count{kind=\"resumed\"} 2\n",
        "gannet_tls_handshake_duration_seconds_sum{kind=\"quic\"} 4\n",
        "gannet_site_body_bytes_total{site=\"a.example\\n\\\"b\\\\\"} 10000\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

/// A store with a current and a kept release, and a refusal.
fn board() -> Board {
    let release = |id: &str, state| board::ReleaseFacts {
        id: id.into(),
        state,
        kept_answers: Arc::new(7.into()),
        partial: None,
    };
    let board = Board::default();
    board.add(board::ContentFacts {
        name: "site \"a\"".into(),
        serial: Some(4),
        releases: vec![
            release("00aa", board::ReleaseState::Current),
            release("00bb", board::ReleaseState::Kept),
        ],
        activated: 10,
        checked: 20,
        refused: [("older", 2)].into(),
        refusal: None,
        late_from: None,
    });
    board
}

#[test]
fn releases_are_reported_by_content_and_state() {
    let text = whole();
    for line in [
        "gannet_release_info{content=\"site \\\"a\\\"\",release=\"00aa\",state=\"current\"} 1\n",
        "gannet_release_kept_answers_total{content=\"site \\\"a\\\"\",release=\"00bb\"} 7\n",
        "gannet_release_refused_total{content=\"site \\\"a\\\"\",reason=\"older\"} 2\n",
        "gannet_release_serial{content=\"site \\\"a\\\"\"} 4\n",
        "gannet_release_activated_seconds{content=\"site \\\"a\\\"\"} 10\n",
        "gannet_release_late{content=\"site \\\"a\\\"\"} 0\n",
        "gannet_receiver_bytes_total 7\n",
        "gannet_receiver_refused_total{reason=\"older\"} 2\n",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

#[test]
fn a_busy_worker_is_marked_and_keeps_its_numbers() {
    let text = whole();
    for line in [
        "gannet_worker_up{worker=\"0\"} 1\n",
        "gannet_worker_up{worker=\"1\"} 0\n",
        "gannet_worker_up{worker=\"2\"} 0\n",
        "gannet_worker_responses_total{worker=\"1\"} 3\n",
        "gannet_responses_total{status=\"200\"} 2\n",
        "gannet_requests_turned_away_total{reason=\"disk\"} 0\n",
        "gannet_requests_turned_away_total{reason=\"password\"} 2\n",
        "gannet_tls_handshakes_failed_total{reason=\"close\\\"d\\\\\"} 2\n",
        "gannet_certificate_not_after_timestamp_seconds{name=\"*.example.org\",\
         fingerprint=\"abababababababab\"} 1800000000\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("gannet_worker_responses_total{worker=\"2\"}"));
}

#[test]
fn the_text_passes_the_rules_of_promtool() {
    /// Units that are not base units, and abbreviations.
    const UNITS: [&str; 28] = [
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "minutes",
        "hours",
        "days",
        "weeks",
        "bits",
        "kilobytes",
        "megabytes",
        "gigabytes",
        "kibibytes",
        "mebibytes",
        "percent",
        "s",
        "ms",
        "us",
        "ns",
        "sec",
        "b",
        "kb",
        "mb",
        "gb",
        "tb",
        "pb",
        "m",
        "h",
        "d",
    ];
    const KINDS: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];
    let metrics = Exposition::parse(&whole()).0;
    assert!(metrics.len() > 40);
    for (name, metric) in &metrics {
        let prefixes = ["gannet_", "process_", "http_server_"];
        assert!(prefixes.iter().any(|it| name.starts_with(it)), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == "counter", "{name}");
        for suffix in ["_count", "_sum", "_bucket"] {
            assert!(!name.ends_with(suffix), "{name}");
        }
        for word in name.split('_') {
            assert!(!UNITS.contains(&word), "{name}");
            assert!(!KINDS.contains(&word), "{name}");
        }
    }
    let names = [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "gannet_build_info",
        "gannet_certificate_not_after_timestamp_seconds",
    ];
    for name in names {
        let samples = metrics.get(name).map(|metric| metric.samples.len());
        assert!(samples > Some(0), "{name} is missing");
    }
}
