//! Checks the text against the format and against the rules of `promtool check metrics`.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

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
    counters.h2_errors.insert(("ENHANCE_YOUR_CALM", "pings"), 1);
    counters.tls.failed_by("close\"d\\");
    counters.tls.stays_ours("tls12");
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
    };
    let mut text = Text(prometheus(&workers, &about));
    text.certificates(&[&facts("example.org"), &facts("*.example.org")]);
    text.0
}

/// A store with a current and a kept release, and a refusal.
fn board() -> Board {
    let release = |id: &str, state| board::ReleaseFacts {
        id: id.into(),
        state,
        kept_answers: Arc::new(7.into()),
    };
    let board = Board::default();
    board.add(board::Facts {
        name: "site \"a\"".into(),
        serial: Some(4),
        releases: vec![
            release("00aa", board::State::Current),
            release("00bb", board::State::Kept),
        ],
        activated: 10,
        checked: 20,
        refused: [("older", 2)].into(),
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
        "gannet_tls_handshakes_failed_total{reason=\"close\\\"d\\\\\"} 2\n",
        "gannet_certificate_not_after_timestamp_seconds{name=\"*.example.org\",\
         fingerprint=\"abababababababab\"} 1800000000\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("gannet_worker_responses_total{worker=\"2\"}"));
}

/// A parsed metric.
#[derive(Debug, Default)]
struct Metric {
    help: String,
    kind: String,
    samples: BTreeSet<String>,
}

/// Parses the text as strictly as the format is defined: help, type, then the samples, contiguous.
fn parse(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(!metrics.contains_key(name), "{name} comes twice");
            current = name.to_owned();
            metrics.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(name, current);
            let metric = metrics.get_mut(name).expect("after its help");
            assert!(
                metric.kind.is_empty() && metric.samples.is_empty(),
                "{name}"
            );
            metric.kind = kind.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            value.parse::<f64>().expect(line);
            let name = series.split('{').next().unwrap_or_default();
            assert_eq!(name, current, "{line}");
            check_labels(&series[name.len()..]);
            let metric = metrics.get_mut(name).expect("after its help");
            assert!(metric.samples.insert(series.to_owned()), "twice: {series}");
        }
    }
    metrics
}

/// `{name="value",...}` or nothing.
fn check_labels(labels: &str) {
    let Some(mut rest) = labels.strip_prefix('{').and_then(|it| it.strip_suffix('}')) else {
        assert_eq!(labels, "");
        return;
    };
    loop {
        let (name, value) = rest.split_once("=\"").expect(labels);
        let is_name = |it: &str| it.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(
            is_name(name) && !["le", "quantile"].contains(&name),
            "{labels}"
        );
        let mut is_escaped = false;
        let end = value.find(|letter| match letter {
            _ if is_escaped => {
                assert!("\\\"n".contains(letter), "{labels}");
                is_escaped = false;
                false
            }
            '\\' => {
                is_escaped = true;
                false
            }
            letter => letter == '"',
        });
        rest = &value[end.expect(labels) + 1..];
        match rest.strip_prefix(',') {
            Some(further) => rest = further,
            None => break,
        }
    }
    assert_eq!(rest, "", "{labels}");
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
    let metrics = parse(&whole());
    assert!(metrics.len() > 40);
    for (name, metric) in &metrics {
        assert!(!metric.help.trim().is_empty(), "{name} has no help");
        let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        assert!(name.bytes().all(is_letter), "{name}");
        assert!(
            name.starts_with("gannet_") || name.starts_with("process_"),
            "{name}"
        );
        assert!(
            KINDS[..2].contains(&metric.kind.as_str()),
            "{name}: {}",
            metric.kind
        );
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
