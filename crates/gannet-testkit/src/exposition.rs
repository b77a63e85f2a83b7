//! A strict parser of Prometheus' text format, version 0.0.4.
//!
//! It panics at anything that the format does not define, and at what `promtool check metrics`
//! rejects in names and histograms.

use std::collections::{BTreeMap, BTreeSet};

/// The metrics of a text, by name.
#[derive(Debug)]
pub struct Exposition(pub BTreeMap<String, Metric>);

/// One metric.
#[derive(Debug, Default)]
pub struct Metric {
    /// What it tells.
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Its samples, in order.
    pub samples: Vec<Sample>,
}

/// One sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Empty, or `_bucket`, `_sum` or `_count` of a histogram.
    pub suffix: String,
    /// Names and values, decoded.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Exposition {
    /// Parses a whole text.
    ///
    /// # Panics
    ///
    /// If it is not well-formed: each metric has a help text, then a type, then its samples.
    pub fn parse(text: &str) -> Self {
        let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
        let mut current = String::new();
        assert!(text.ends_with('\n'), "the last line has no end");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a text");
                check_name(name);
                assert!(!metrics.contains_key(name), "{name} comes twice");
                assert!(!help.trim().is_empty(), "{name} has no help");
                current = name.to_owned();
                metrics.entry(current.clone()).or_default().help = help.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert_eq!(name, current, "its help is missing");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let metric = metrics.get_mut(name).expect("after its help");
                assert!(metric.kind.is_empty(), "{name} has two types");
                metric.kind = kind.to_owned();
            } else {
                let metric = metrics.get_mut(&current).expect("after help and type");
                metric.samples.push(sample(line, &current, &metric.kind));
            }
        }
        for (name, metric) in &metrics {
            metric.check(name);
        }
        Self(metrics)
    }

    /// A metric.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub fn metric(&self, name: &str) -> &Metric {
        let names = || self.0.keys().collect::<Vec<_>>();
        let metric = self.0.get(name);
        metric.unwrap_or_else(|| panic!("no {name} among {:?}", names()))
    }

    /// The sum of the samples of a metric with this suffix and these labels, among others.
    pub fn sum(&self, name: &str, suffix: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.metric(name).samples.iter();
        let samples = samples.filter(|it| it.suffix == suffix && it.has(labels));
        samples.map(|it| it.value).sum()
    }
}

impl Sample {
    /// Whether it has these labels, among others.
    pub fn has(&self, labels: &[(&str, &str)]) -> bool {
        let mut labels = labels.iter();
        labels.all(|(name, value)| self.labels.get(*name).is_some_and(|it| it == value))
    }
}

impl Metric {
    fn check(&self, name: &str) {
        assert!(!self.kind.is_empty(), "{name} has no type");
        let mut seen = BTreeSet::new();
        for sample in &self.samples {
            let series = (&sample.suffix, &sample.labels);
            assert!(seen.insert(series), "{name} has {series:?} twice");
        }
        if self.kind == "histogram" {
            self.check_histogram(name);
        }
    }

    /// Each label set has buckets with ascending bounds and counts, the last one without a bound, then
    /// the sum, then the count, which is that of the last bucket.
    fn check_histogram(&self, name: &str) {
        let mut samples = self.samples.iter().peekable();
        while let Some(first) = samples.next() {
            let own = |sample: &Sample| {
                let mut labels = sample.labels.clone();
                let bound = labels.remove("le");
                (labels, bound)
            };
            let (labels, mut bound) = own(first);
            let (mut to, mut count) = (f64::NEG_INFINITY, 0.0);
            let mut sample = first;
            loop {
                assert_eq!(sample.suffix, "_bucket", "{name} {:?}", sample.labels);
                let next = number(&bound.expect("a bucket has a bound"));
                assert!(next > to, "{name}: bound {next} after {to}");
                assert!(sample.value >= count, "{name}: fewer up to {next}");
                (to, count) = (next, sample.value);
                if to == f64::INFINITY {
                    break;
                }
                sample = samples.next().expect("a bucket without a bound");
                let (same, further) = own(sample);
                assert_eq!(same, labels, "{name}");
                bound = further;
            }
            for suffix in ["_sum", "_count"] {
                let sample = samples.next().expect("a sum and a count");
                assert_eq!((&sample.suffix[..], &sample.labels), (suffix, &labels));
                if suffix == "_count" {
                    assert_eq!(sample.value, count, "{name} {labels:?}");
                }
            }
        }
    }
}

fn sample(line: &str, metric: &str, kind: &str) -> Sample {
    let rest = line.strip_prefix(metric);
    let rest = rest.unwrap_or_else(|| panic!("not a sample of {metric}: {line}"));
    let end = rest.find(['{', ' ']).expect("a value");
    let (suffix, rest) = rest.split_at(end);
    let suffixes: &[&str] = match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    assert!(suffixes.contains(&suffix), "{kind}: {line}");
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest),
        None => (BTreeMap::new(), rest),
    };
    let value = value.strip_prefix(' ').expect("a space before the value");
    let has_bound = labels.contains_key("le");
    assert_eq!(has_bound, suffix == "_bucket", "{line}");
    assert!(!labels.contains_key("quantile"), "{line}");
    Sample {
        suffix: suffix.to_owned(),
        labels,
        value: number(value),
    }
}

/// `name="value",...}` and what follows.
fn labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, value) = rest.split_once("=\"").expect("a label");
        check_name(name);
        let (value, after) = unescaped(value);
        let before = labels.insert(name.to_owned(), value);
        assert!(before.is_none(), "{name} comes twice");
        rest = match after.strip_prefix(',') {
            Some(further) => further,
            None => return (labels, after.strip_prefix('}').expect("the end")),
        };
    }
}

/// A value up to its quotation mark, and what follows that.
fn unescaped(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        value.push(match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, letter @ ('"' | '\\'))) => letter,
                other => panic!("no escape: {other:?} in {text}"),
            },
            letter => letter,
        });
    }
    panic!("no end: {text}")
}

fn check_name(name: &str) {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    assert!(begins && name.bytes().all(is_letter), "{name:?}");
}

/// A number as the format has it.
fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        text => {
            let is_digit = |b: u8| b.is_ascii_digit() || b"+-.e".contains(&b);
            assert!(text.bytes().all(is_digit), "{text:?}");
            text.parse().expect("a number")
        }
    }
}
