//! How long responses and handshakes take, and how long responses are: histograms, for metrics and
//! reports.
//!
//! A worker has them only if they are exported. They are its own, so that measuring is a search in
//! a short table and a few additions. Times are those of its turns: work done in one turn takes no
//! time, and a response ends in the turn in which the kernel reports that it has its last byte.

use std::ops::AddAssign;
use std::sync::Arc;

use gannet_http::semantics::request::{Method, Version};
use gannet_http::semantics::status::Status;
use gannet_io::driver::Nanos;

use crate::bounds::limits::SITES_COUNTED_MAX;
use crate::tls::handshake::HandshakeKind;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

/// Upper bounds of the buckets of durations, nanoseconds: those that OpenTelemetry's conventions
/// advise for HTTP, and finer ones below, where a server of files answers.
pub static DURATIONS: [u64; 19] = [
    100 * MICROSECOND,
    250 * MICROSECOND,
    500 * MICROSECOND,
    MILLISECOND,
    2_500 * MICROSECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    75 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    750 * MILLISECOND,
    1_000 * MILLISECOND,
    2_500 * MILLISECOND,
    5_000 * MILLISECOND,
    7_500 * MILLISECOND,
    10_000 * MILLISECOND,
];

/// Upper bounds of the buckets of sizes, bytes.
pub static SIZES: [u64; 12] = [
    0,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];

/// Buckets of the histogram that has the most, with the one above all bounds.
const BUCKETS_MAX: usize = DURATIONS.len() + 1;

/// Counts of values by bucket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Histogram {
    bounds: &'static [u64],
    /// By bucket, not cumulated; the one after those of `bounds` has what exceeds all of them.
    counts: [u64; BUCKETS_MAX],
    sum: u64,
}

impl Histogram {
    /// An empty one with these upper bounds, in ascending order.
    fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.len() < BUCKETS_MAX);
        Self {
            bounds,
            counts: [0; BUCKETS_MAX],
            sum: 0,
        }
    }

    /// An empty one of durations.
    #[must_use]
    pub fn of_durations() -> Self {
        Self::new(&DURATIONS)
    }

    /// An empty one of sizes.
    #[must_use]
    fn of_sizes() -> Self {
        Self::new(&SIZES)
    }

    /// Counts a value: nanoseconds or bytes.
    #[inline]
    pub(crate) fn add(&mut self, value: u64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Each bound with the number of values up to it.
    pub fn cumulated(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut sum = 0;
        self.bounds
            .iter()
            .zip(&self.counts)
            .map(move |(to, count)| {
                sum += count;
                (*to, sum)
            })
    }

    /// The bound up to which at least this part of the values is, 0 to 1; `None` if only a value
    /// beyond all bounds is, or if there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let rank = (part * count as f64).ceil().max(1.0) as u64;
        let mut cumulated = self.cumulated();
        let found = cumulated.find(|(_, count)| *count >= rank);
        found.map(|(to, _)| to)
    }

    /// The values counted since `before`, an earlier state of this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut new = self.clone();
        for (count, old) in new.counts.iter_mut().zip(before.counts) {
            *count = count.saturating_sub(old);
        }
        new.sum = new.sum.saturating_sub(before.sum);
        new
    }
}

impl AddAssign<&Self> for Histogram {
    fn add_assign(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds);
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

/// The longest of the durations that ended in this minute or in the one before.
///
/// A maximum since the last scrape would lose what one of several readers has seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Longest {
    /// Of the monotonic clock.
    minute: u64,
    here: u64,
    before: u64,
}

impl Longest {
    fn roll(&mut self, now: Nanos) {
        let minute = now.0 / 60_000_000_000;
        if minute != self.minute {
            let follows = self.minute + 1 == minute;
            self.before = if follows { self.here } else { 0 };
            (self.here, self.minute) = (0, minute);
        }
    }

    fn add(&mut self, ns: u64, now: Nanos) {
        self.roll(now);
        self.here = self.here.max(ns);
    }

    /// Nanoseconds; 0 if nothing has ended.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.here.max(self.before)
    }
}

/// The versions of HTTP by the names of OpenTelemetry's conventions.
pub const VERSIONS: [&str; 4] = ["1.0", "1.1", "2", "3"];

/// The methods by the names of OpenTelemetry's conventions.
pub const METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "_OTHER"];

/// The classes of final status codes.
pub const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// What distinguishes responses: the index of the method, of the version and of the class.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ResponseKind {
    method: u8,
    version: u8,
    class: u8,
}

impl ResponseKind {
    /// Number of kinds.
    const COUNT: usize = METHODS.len() * VERSIONS.len() * CLASSES.len();

    /// The kind of a response.
    pub(crate) fn new(method: Method, version: Version, status: Status) -> Self {
        Self {
            method: match method {
                Method::Get => 0,
                Method::Head => 1,
                Method::Options => 2,
                Method::Other => 3,
            },
            version: match version {
                Version::Http10 => 0,
                Version::Http11 => 1,
                Version::Http2 => 2,
                // No other exists; the type lets callers expect one.
                _ => 3,
            },
            class: (status.0 / 100).clamp(2, 5) as u8 - 2,
        }
    }

    /// That of a response by `version` to a rejected head. Whatever its status, the client is at fault: a
    /// scanner must not look like a failure of the server.
    pub(crate) fn rejected(version: Version) -> Self {
        Self::new(Method::Other, version, Status::BAD_REQUEST)
    }

    fn index(self) -> usize {
        let (method, version) = (usize::from(self.method), usize::from(self.version));
        (method * VERSIONS.len() + version) * CLASSES.len() + usize::from(self.class)
    }

    /// The names of the method, of the version and of the class with this index.
    fn names(index: usize) -> [&'static str; 3] {
        let (rest, class) = (index / CLASSES.len(), index % CLASSES.len());
        let (method, version) = (rest / VERSIONS.len(), rest % VERSIONS.len());
        [METHODS[method], VERSIONS[version], CLASSES[class]]
    }
}

/// The responses of one kind.
#[derive(Clone, Debug)]
pub struct Series {
    /// From the complete head of the request to the last byte, nanoseconds.
    pub duration: Histogram,
    /// Bytes of content sent.
    pub size: Histogram,
}

/// The responses of one site.
#[derive(Clone, Debug)]
pub struct SiteCounts {
    /// Its first host name; `default` for one without names, `other` for those beyond the bound.
    pub name: Arc<str>,
    /// Responses.
    pub responses: u64,
    /// Bytes of their content sent.
    pub body_bytes: u64,
}

/// The label of responses of no site, and of sites beyond the bound.
pub(crate) const OTHER: u16 = 0;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Measures {
    /// By [`ResponseKind::index`].
    series: Vec<Series>,
    /// Until the send with the first bytes of a response was begun, by version.
    first_byte: [Histogram; VERSIONS.len()],
    /// The longest responses, by version.
    longest: [Longest; VERSIONS.len()],
    /// TLS handshakes by kind: full, retried, resumed, QUIC.
    handshakes: [Histogram; HANDSHAKES.len()],
    /// Until a part of a release on demand had come, or could not.
    fetches: Histogram,
    /// By label; the first one is [`OTHER`].
    sites: Vec<SiteCounts>,
}

/// The kinds of handshakes.
const HANDSHAKES: [&str; 4] = ["full", "retried", "resumed", "quic"];

impl Default for Measures {
    fn default() -> Self {
        let durations = || Histogram::of_durations();
        let empty = || Series {
            duration: durations(),
            size: Histogram::of_sizes(),
        };
        Self {
            series: (0..ResponseKind::COUNT).map(|_| empty()).collect(),
            first_byte: std::array::from_fn(|_| durations()),
            longest: Default::default(),
            handshakes: std::array::from_fn(|_| durations()),
            fetches: durations(),
            sites: vec![SiteCounts::new("other".into())],
        }
    }
}

impl SiteCounts {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            responses: 0,
            body_bytes: 0,
        }
    }
}

/// A response that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) kind: ResponseKind,
    /// The label of its site.
    pub(crate) site: u16,
    /// Bytes of content sent.
    pub(crate) body_len: u64,
    /// When the head of its request was complete.
    pub(crate) began: Nanos,
    /// When the send with its first bytes was begun; `None` if it was not.
    pub(crate) first_byte: Option<Nanos>,
}

impl Measures {
    /// Counts a response that ends now.
    pub(crate) fn response(&mut self, measured: &Measured, now: Nanos) {
        let kind = measured.kind;
        let took = now.0.saturating_sub(measured.began.0);
        let series = &mut self.series[kind.index()];
        series.duration.add(took);
        series.size.add(measured.body_len);
        let version = usize::from(kind.version);
        self.longest[version].add(took, now);
        if let Some(first) = measured.first_byte {
            self.first_byte[version].add(first.0.saturating_sub(measured.began.0));
        }
        let site = usize::from(measured.site);
        if let Some(site) = self.sites.get_mut(site) {
            site.responses += 1;
            site.body_bytes += measured.body_len;
        }
    }

    /// Counts a handshake over TCP that began `ns` ago.
    pub(crate) fn handshake(&mut self, kind: HandshakeKind, ns: u64) {
        let index = match kind {
            HandshakeKind::Full => 0,
            HandshakeKind::FullWithRetry => 1,
            HandshakeKind::Resumed => 2,
        };
        self.handshakes[index].add(ns);
    }

    /// Counts a part of a release on demand that was asked for `ns` ago.
    pub(crate) fn fetched(&mut self, ns: u64) {
        self.fetches.add(ns);
    }

    /// How long parts of releases on demand took to come.
    #[must_use]
    pub fn fetches(&self) -> &Histogram {
        &self.fetches
    }

    /// Counts a handshake over QUIC that began `ns` ago.
    pub(crate) fn quic_handshake(&mut self, ns: u64) {
        self.handshakes[3].add(ns);
    }

    /// The label for a site of this name: the same for each release, and [`OTHER`] once there are
    /// [`SITES_COUNTED_MAX`].
    pub(crate) fn label(&mut self, name: &str) -> u16 {
        let known = self.sites.iter().position(|site| &*site.name == name);
        let index = match known {
            Some(index) => index,
            None if self.sites.len() > SITES_COUNTED_MAX => usize::from(OTHER),
            None => {
                self.sites.push(SiteCounts::new(name.into()));
                self.sites.len() - 1
            }
        };
        u16::try_from(index).unwrap_or(OTHER)
    }

    /// Forgets maxima of minutes that are over.
    pub(crate) fn roll(&mut self, now: Nanos) {
        self.longest.iter_mut().for_each(|it| it.roll(now));
    }

    /// The kinds of responses that there were, with the names of method, version and class.
    pub fn series(&self) -> impl Iterator<Item = ([&'static str; 3], &Series)> {
        let series = self.series.iter().enumerate();
        let seen = series.filter(|(_, it)| it.duration.count() > 0);
        seen.map(|(index, it)| (ResponseKind::names(index), it))
    }

    /// Times to the first byte, by version, of those that were used.
    pub fn first_byte(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let all = VERSIONS.into_iter().zip(&self.first_byte);
        all.filter(|(_, it)| it.count() > 0)
    }

    /// The longest responses by version.
    pub fn longest(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = VERSIONS.into_iter().zip(&self.longest);
        all.map(|(version, it)| (version, it.ns()))
    }

    /// Handshakes by kind, of those that there were.
    pub fn handshakes(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let all = HANDSHAKES.into_iter().zip(&self.handshakes);
        all.filter(|(_, it)| it.count() > 0)
    }

    /// The sites that were served, and `other`.
    #[must_use]
    pub fn sites(&self) -> &[SiteCounts] {
        &self.sites
    }

    /// The durations of all responses.
    #[must_use]
    pub fn durations(&self) -> Histogram {
        let mut sum = Histogram::of_durations();
        self.series.iter().for_each(|it| sum += &it.duration);
        sum
    }
}

impl AddAssign<&Self> for Measures {
    fn add_assign(&mut self, other: &Self) {
        for (sum, series) in self.series.iter_mut().zip(&other.series) {
            sum.duration += &series.duration;
            sum.size += &series.size;
        }
        let histograms = self.first_byte.iter_mut().zip(&other.first_byte);
        histograms.for_each(|(sum, it)| *sum += it);
        let histograms = self.handshakes.iter_mut().zip(&other.handshakes);
        histograms.for_each(|(sum, it)| *sum += it);
        self.fetches += &other.fetches;
        for (sum, longest) in self.longest.iter_mut().zip(&other.longest) {
            sum.here = sum.ns().max(longest.ns());
        }
        for site in &other.sites {
            // All workers serve the same sites, but may have learned their names in another order.
            let label = usize::from(self.label(&site.name));
            self.sites[label].responses += site.responses;
            self.sites[label].body_bytes += site.body_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    #[test]
    fn a_value_at_a_bound_is_within_it() {
        let mut sizes = Histogram::of_sizes();
        for value in [0, 1, 1 << 10, (1 << 10) + 1, 1 << 30, (1 << 30) + 1] {
            sizes.add(value);
        }
        let cumulated: Vec<_> = sizes.cumulated().collect();
        assert_eq!(cumulated[..3], [(0, 1), (1 << 10, 3), (4 << 10, 4)]);
        assert_eq!(cumulated.last(), Some(&(1 << 30, 5)));
        assert_eq!(sizes.count(), 6);
        assert_eq!(
            sizes.sum(),
            1 + (1 << 10) + (1 << 10) + 1 + (1 << 30) + (1 << 30) + 1
        );
    }

    #[test]
    fn a_quantile_is_the_bound_that_so_many_values_are_within() {
        let mut durations = Histogram::of_durations();
        assert_eq!(durations.quantile(0.5), None);
        (0..98).for_each(|_| durations.add(1));
        (0..2).for_each(|_| durations.add(3 * MILLISECOND));
        assert_eq!(durations.quantile(0.5), Some(DURATIONS[0]));
        assert_eq!(durations.quantile(0.98), Some(DURATIONS[0]));
        assert_eq!(durations.quantile(0.99), Some(5 * MILLISECOND));
        let before = durations.clone();
        durations.add(u64::MAX);
        assert_eq!(durations.quantile(1.0), None, "beyond all bounds");
        assert_eq!(durations.since(&before).count(), 1);
    }

    #[test]
    fn each_kind_has_a_series_of_its_own() {
        let methods = [Method::Get, Method::Head, Method::Options, Method::Other];
        let versions = [
            Version::Http10,
            Version::Http11,
            Version::Http2,
            Version::Http3,
        ];
        let mut seen = Vec::new();
        for (method, name) in methods.into_iter().zip(METHODS) {
            for (version, version_name) in versions.into_iter().zip(VERSIONS) {
                for (status, class) in [206, 304, 404, 503].into_iter().zip(CLASSES) {
                    let index = ResponseKind::new(method, version, Status(status)).index();
                    assert_eq!(ResponseKind::names(index), [name, version_name, class]);
                    seen.push(index);
                }
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..ResponseKind::COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn the_longest_is_kept_for_one_minute_more() {
        let mut longest = Longest::default();
        let at = |minute: u64| Nanos(minute * MINUTE + 5);
        longest.add(7, at(3));
        longest.add(5, at(3));
        assert_eq!(longest.ns(), 7);
        longest.add(6, at(4));
        assert_eq!(longest.ns(), 7);
        longest.roll(at(5));
        assert_eq!(longest.ns(), 6);
        longest.roll(at(9));
        assert_eq!(longest.ns(), 0);
    }

    #[test]
    fn sites_are_counted_by_name_up_to_a_bound() {
        let mut measures = Measures::default();
        let mut labels = Vec::new();
        for number in 0..SITES_COUNTED_MAX + 5 {
            labels.push(measures.label(&format!("site{number}")));
        }
        assert_eq!(labels[0], 1);
        assert!(labels[SITES_COUNTED_MAX..].iter().all(|it| *it == OTHER));
        assert_eq!(measures.label("site0"), 1, "in the next release, too");
        assert_eq!(measures.sites().len(), SITES_COUNTED_MAX + 1);
        let mut other = Measures::default();
        assert_eq!(other.label("site7"), 1);
        let measured = Measured {
            kind: ResponseKind::new(Method::Get, Version::Http2, Status::OK),
            site: 1,
            body_len: 10,
            began: Nanos(1),
            first_byte: None,
        };
        other.response(&measured, Nanos(2));
        measures += &other;
        let counted = |it: &&SiteCounts| it.responses > 0;
        let sites: Vec<_> = measures.sites().iter().filter(counted).collect();
        assert_eq!((sites.len(), &*sites[0].name), (1, "site7"));
        assert_eq!(sites[0].body_bytes, 10);
    }
}
