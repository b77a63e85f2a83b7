//! From a request to the rules that match it, by intersecting the sets that its parts suit.

use std::ops::{ControlFlow, Range};

use super::index::{Counts, IndexedPair, Level, Levels, Set, Sets, Suiting, Table, each_bit};
use super::limits::{HOST_MAX, QUERY_STEPS_MAX};
use super::pattern::{Captures, Pattern, Scheme, Source, Subject};
use super::percent;
use super::redirects::{QueryParameter, QueryValue};
use super::steps::{OutOfSteps, Steps};

/// The parts of a request that rules depend on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RuleInput<'a> {
    /// The scheme of the target URI.
    pub scheme: Scheme,
    /// The host of the target URI; case and port make no difference.
    pub host: &'a [u8],
    /// What the site's paths start with at this host, decoded; only targets with a host have it.
    pub prefix: &'a [u8],
    /// The path of the site in canonical form, decoded, as returned by `target_path::decode_path`.
    pub path: &'a [u8],
    /// The query as sent, without question mark.
    pub query: Option<&'a [u8]>,
    /// The first of the client's languages, as [`first_language`](super::language::first_language)
    /// finds it; empty if there is none.
    pub language: &'a [u8],
}

/// An index over the sources of rules, which are identified by their positions.
#[derive(Clone, Debug)]
pub struct Matcher {
    ignores_trailing_slash: bool,
    sets: Sets,
    /// By number of segments.
    counts: Vec<Set>,
    /// By position of a segment.
    head: Vec<Level>,
    /// By position of a segment, counted from the end.
    tail: Vec<Level>,
    hosts: Option<Hosts>,
    /// For `http` and `https`, if rules differ.
    schemes: Option<[Set; 2]>,
    queries: Option<Queries>,
    read_steps: u32,
}

#[derive(Clone, Debug)]
struct Hosts {
    /// By number of labels.
    counts: Vec<Set>,
    /// By position of a label.
    labels: Vec<Level>,
}

/// The parameters that queries must have; of those of one rule, the one that the fewest rules have.
#[derive(Clone, Debug)]
struct Queries {
    /// Rules that require none.
    free: Set,
    /// By name and value.
    literals: Table,
    /// By name.
    any: Table,
}

/// The source of a rule.
pub type Sourced<'a> = (&'a Pattern, &'a [QueryParameter]);

impl Matcher {
    /// Builds an index. The order of the sources is that of the rules.
    pub fn new<'a>(
        sources: impl Iterator<Item = Sourced<'a>>,
        ignores_trailing_slash: bool,
    ) -> Self {
        let sources: Vec<Sourced<'_>> = sources.collect();
        let steps = Steps::new(u32::MAX);
        let mut sets = Sets::new(sources.len());
        let mut counts = Counts::default();
        let (mut head, mut tail) = (Levels::default(), Levels::default());
        for (rule, (pattern, _)) in (0..).zip(&sources) {
            let _ = steps.take(1 + pattern.head.len());
            add_path(
                (pattern, rule),
                ignores_trailing_slash,
                &mut counts,
                [&mut head, &mut tail],
            );
        }
        Self {
            ignores_trailing_slash,
            counts: counts.build(&mut sets, &steps),
            head: head.build(&mut sets, &steps),
            tail: tail.build(&mut sets, &steps),
            hosts: Hosts::new(&sources, &mut sets, &steps),
            schemes: schemes(&sources, &mut sets),
            queries: Queries::new(&sources, &mut sets, &steps),
            sets,
            read_steps: steps.taken(),
        }
    }

    /// The steps that it took to build it.
    #[must_use]
    pub fn read_steps(&self) -> u32 {
        self.read_steps
    }

    /// Whether any rule is restricted to a host.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        self.hosts.is_some()
    }

    /// Visits the rules that may match a request, in their order, until `visit` breaks. All that
    /// match are among them, and few others: with `captures` the caller finds out which do.
    ///
    /// # Errors
    /// It would take more steps, or `visit` has failed.
    pub fn candidates<B>(
        &self,
        request: &RuleInput<'_>,
        steps: &Steps,
        mut visit: impl FnMut(u32) -> Result<ControlFlow<B>, OutOfSteps>,
    ) -> Result<Option<B>, OutOfSteps> {
        let visit = |rule| match visit(rule) {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(found)) => ControlFlow::Break(Ok(found)),
            Err(error) => ControlFlow::Break(Err(error)),
        };
        let word_count = self.sets.word_count();
        if word_count > 1 {
            let mut few = Few::default();
            if !self.properties(request, steps, |it| few.consider(it))? {
                return Ok(None);
            }
            if few.count <= Few::MAX {
                let mut rules = Vec::with_capacity(few.count);
                few.suiting
                    .sets()
                    .for_each(|set| self.sets.list(set, &mut rules));
                rules.sort_unstable();
                return ended(rules.into_iter().try_for_each(visit));
            }
        }
        let mut inline = [0; 2 * Self::INLINE];
        let mut long = Vec::new();
        let bits = match inline.get_mut(..2 * word_count) {
            Some(bits) => bits,
            None => {
                long.resize(2 * word_count, 0);
                &mut long
            }
        };
        let (left, suiting) = bits.split_at_mut(word_count);
        left.fill(u64::MAX);
        let is_none = !self.properties(request, steps, |property| {
            suiting.fill(0);
            for set in property.sets() {
                self.sets.put(set, suiting, steps)?;
            }
            steps.through(left.len())?;
            let mut any = 0;
            for (left, suiting) in left.iter_mut().zip(&*suiting) {
                *left &= suiting;
                any |= *left;
            }
            Ok(any != 0)
        })?;
        match is_none {
            true => Ok(None),
            false => ended(each_bit(left, visit)),
        }
    }

    /// The words of bits that are on the stack.
    const INLINE: usize = 32;

    /// Passes on the sets that each property of a request suits, until `consider` returns false:
    /// then no rule matches. The first property has a bit for each rule that there is.
    fn properties(
        &self,
        request: &RuleInput<'_>,
        steps: &Steps,
        mut consider: impl FnMut(&Suiting) -> Result<bool, OutOfSteps>,
    ) -> Result<bool, OutOfSteps> {
        let mut suiting = Suiting::default();
        let subject = Subject::path(request.path, self.ignores_trailing_slash);
        let count = subject.count();
        steps.through(subject.bytes.len())?;
        suiting.add(of_count(&self.counts, count));
        if !consider(&suiting)? {
            return Ok(false);
        }
        let from_start = subject.segments().take(count).zip(&self.head);
        let from_end = subject.segments().rev().take(count).zip(&self.tail);
        for (segment, level) in from_start.chain(from_end) {
            suiting.clear();
            level.suit(segment, steps, &mut suiting)?;
            if !consider(&suiting)? {
                return Ok(false);
            }
        }
        let mut buffer = [0; HOST_MAX];
        if let Some(hosts) = &self.hosts {
            let host = normal_host(request.host, &mut buffer);
            if !hosts.properties(host, steps, &mut consider)? {
                return Ok(false);
            }
        }
        suiting.clear();
        if let Some([http, https]) = self.schemes {
            suiting.add(match request.scheme {
                Scheme::Http => http,
                Scheme::Https => https,
            });
            if !consider(&suiting)? {
                return Ok(false);
            }
            suiting.clear();
        }
        if let Some(queries) = &self.queries {
            queries.suit(request.query.unwrap_or_default(), steps, &mut suiting)?;
            return consider(&suiting);
        }
        Ok(true)
    }
}

fn ended<B>(flow: ControlFlow<Result<B, OutOfSteps>>) -> Result<Option<B>, OutOfSteps> {
    match flow {
        ControlFlow::Continue(()) => Ok(None),
        ControlFlow::Break(result) => result.map(Some),
    }
}

/// The property that the fewest rules suit.
struct Few {
    suiting: Suiting,
    count: usize,
}

impl Default for Few {
    fn default() -> Self {
        Self {
            suiting: Suiting::default(),
            count: usize::MAX,
        }
    }
}

impl Few {
    /// So many rules are looked at one after the other, rather than all by their bits.
    const MAX: usize = 64;

    fn consider(&mut self, suiting: &Suiting) -> Result<bool, OutOfSteps> {
        let count = suiting.sets().map(|set| set.count as usize).sum();
        if count < self.count && count <= Self::MAX {
            self.count = count;
            self.suiting.clear();
            suiting.sets().for_each(|set| self.suiting.add(set));
        }
        Ok(count > 0)
    }
}

fn of_count(counts: &[Set], count: usize) -> Set {
    let last = counts.len().saturating_sub(1);
    counts.get(count.min(last)).copied().unwrap_or_default()
}

fn add_path<'a>(
    (pattern, rule): (&'a Pattern, u32),
    ignores_trailing_slash: bool,
    counts: &mut Counts,
    [head, tail]: [&mut Levels<'a>; 2],
) {
    for (at, segment) in pattern.head.iter().enumerate() {
        head.segment(at, segment, rule);
    }
    let head_len = pattern.head.len();
    let Some(splat) = &pattern.splat else {
        counts.exactly(head_len, rule);
        tail.free(0, rule);
        return;
    };
    head.splat(head_len, &splat.prefix, b"", rule);
    for (at, segment) in splat.tail.iter().rev().enumerate() {
        tail.segment(at, segment, rule);
    }
    tail.splat(splat.tail.len(), b"", &splat.suffix, rule);
    // See `Splat::capture`.
    let may_be_missing = ignores_trailing_slash
        && splat.tail.is_empty()
        && splat.prefix.is_empty()
        && splat.suffix.is_empty();
    let own = usize::from(!may_be_missing);
    counts.at_least(head_len + own + splat.tail.len(), rule);
}

impl Hosts {
    /// `None` if no rule is restricted to one.
    fn new(sources: &[Sourced<'_>], sets: &mut Sets, steps: &Steps) -> Option<Self> {
        if !sources.iter().any(|(pattern, _)| pattern.host.is_some()) {
            return None;
        }
        let mut counts = Counts::default();
        let mut levels = Levels::default();
        for (rule, (pattern, _)) in (0..).zip(sources) {
            match &pattern.host {
                Some(labels) => {
                    counts.exactly(labels.len(), rule);
                    for (at, label) in labels.iter().enumerate() {
                        levels.segment(at, label, rule);
                    }
                }
                None => {
                    counts.at_least(0, rule);
                    levels.free(0, rule);
                }
            }
        }
        Some(Self {
            counts: counts.build(sets, steps),
            labels: levels.build(sets, steps),
        })
    }

    fn properties(
        &self,
        host: &[u8],
        steps: &Steps,
        consider: &mut impl FnMut(&Suiting) -> Result<bool, OutOfSteps>,
    ) -> Result<bool, OutOfSteps> {
        let mut suiting = Suiting::default();
        let subject = Subject::host(host);
        suiting.add(of_count(&self.counts, subject.count()));
        if !consider(&suiting)? {
            return Ok(false);
        }
        for (label, level) in subject.segments().zip(&self.labels) {
            suiting.clear();
            level.suit(label, steps, &mut suiting)?;
            if !consider(&suiting)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// `None` if no rule is restricted to one.
fn schemes(sources: &[Sourced<'_>], sets: &mut Sets) -> Option<[Set; 2]> {
    if !sources.iter().any(|(pattern, _)| pattern.scheme.is_some()) {
        return None;
    }
    Some([Scheme::Http, Scheme::Https].map(|scheme| {
        let rules = (0..).zip(sources);
        let suited = rules.filter(|(_, (pattern, _))| pattern.scheme.is_none_or(|it| it == scheme));
        sets.add(&suited.map(|(rule, _)| rule).collect::<Vec<_>>())
    }))
}

impl Queries {
    /// `None` if no rule requires a parameter.
    fn new(sources: &[Sourced<'_>], sets: &mut Sets, steps: &Steps) -> Option<Self> {
        if sources.iter().all(|(_, query)| query.is_empty()) {
            return None;
        }
        // How many rules have each parameter: a sorted list is searched for one and the next.
        let all = sources.iter().flat_map(|(_, query)| *query);
        let mut sorted: Vec<_> = all.map(parameter_key).collect();
        let _ = steps.take(sorted.len());
        sorted.sort_unstable();
        let how_many = |parameter: &&QueryParameter| {
            let key = parameter_key(parameter);
            let _ = steps.one();
            let start = sorted.partition_point(|it| *it < key);
            sorted[start..].partition_point(|it| *it <= key)
        };
        let (mut literals, mut any): (Vec<IndexedPair<'_>>, Vec<IndexedPair<'_>>) =
            Default::default();
        let mut free = Vec::new();
        for (rule, (_, query)) in (0..).zip(sources) {
            match query.iter().min_by_key(how_many) {
                None => free.push(rule),
                Some(QueryParameter { name, value }) => match value {
                    QueryValue::Literal(value) => literals.push((name, value, rule)),
                    QueryValue::Placeholder(_) => any.push((name, b"", rule)),
                },
            }
        }
        Some(Self {
            free: sets.add(&free),
            literals: Table::new(literals, sets, steps),
            any: Table::new(any, sets, steps),
        })
    }

    fn suit(&self, query: &[u8], steps: &Steps, out: &mut Suiting) -> Result<(), OutOfSteps> {
        out.add(self.free);
        // Clients write queries: what is too much of one must not keep rules without parameters from
        // matching. So these steps are counted apart, and further parameters are not looked at.
        let own = Steps::new(QUERY_STEPS_MAX);
        let _ = self.suit_parameters(query, &own, out);
        steps.take(own.taken() as usize)
    }

    fn suit_parameters(
        &self,
        query: &[u8],
        steps: &Steps,
        out: &mut Suiting,
    ) -> Result<(), OutOfSteps> {
        // Only the first parameter of a name counts: one that suits rules is not looked up again.
        let mut found = Vec::new();
        for (name, value) in parameters(query) {
            let [name, value] = [name, value].map(|range| percent::decode_query(&query[range]));
            steps.through(name.len() + value.len() + found.len())?;
            if found.contains(&name) {
                continue;
            }
            let literal = self.literals.find(&name, &value, steps)?;
            let any = self.any.find(&name, b"", steps)?;
            out.add(literal);
            out.add(any);
            if literal.count + any.count > 0 {
                found.push(name);
            }
        }
        Ok(())
    }
}

/// A parameter as a whole; placeholders differ from any literal value.
fn parameter_key(parameter: &QueryParameter) -> (&[u8], Option<&[u8]>) {
    match &parameter.value {
        QueryValue::Literal(value) => (&parameter.name, Some(value)),
        QueryValue::Placeholder(_) => (&parameter.name, None),
    }
}

/// What a rule captures of a request, if it matches.
///
/// # Errors
/// It would take more steps.
pub(crate) fn captures(
    pattern: &Pattern,
    parameters: &[QueryParameter],
    (request, host): (&RuleInput<'_>, &[u8]),
    ignores_trailing_slash: bool,
    steps: &Steps,
) -> Result<Option<Captures>, OutOfSteps> {
    let query = request.query.unwrap_or_default();
    let mut captures = Captures::NONE;
    if pattern
        .scheme
        .is_some_and(|scheme| scheme != request.scheme)
    {
        return steps.one().map(|()| None);
    }
    let hosts_len = pattern.host.as_ref().map_or(0, |_| host.len());
    if !pattern.capture_host(host, &mut captures) {
        return steps.through(hosts_len).map(|()| None);
    }
    let subject = Subject::path(request.path, ignores_trailing_slash);
    let (fits, gone) = pattern.capture_path(&subject, &mut captures);
    steps.through(hosts_len + gone + parameters.len() * query.len())?;
    let fits = fits
        && parameters
            .iter()
            .all(|parameter| capture_parameter(parameter, query, &mut captures));
    Ok(fits.then_some(captures))
}

fn capture_parameter(parameter: &QueryParameter, query: &[u8], captures: &mut Captures) -> bool {
    let mut all = self::parameters(query);
    let found = all.find(|(name, _)| percent::query_equals(&query[name.clone()], &parameter.name));
    let Some((_, range)) = found else {
        return false;
    };
    let value = &query[range.clone()];
    match &parameter.value {
        QueryValue::Literal(expect) => percent::query_equals(value, expect),
        QueryValue::Placeholder(_) => !value.is_empty() && captures.push(Source::Query, range),
    }
}

/// The ranges of the names and values of a query's parameters, as they were sent.
fn parameters(query: &[u8]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let mut next = 0;
    let pairs = query.split(|&byte| byte == b'&').map(move |pair| {
        let start = next;
        let end = start + pair.len();
        next = end + 1;
        let equals = pair.iter().position(|&byte| byte == b'=');
        let middle = start + equals.unwrap_or(pair.len());
        (start..middle, end.min(middle + 1)..end)
    });
    pairs.filter(|(name, value)| name.start < value.end)
}

/// The host in lower case and without port; empty if it is longer than any host name.
#[must_use]
pub fn normal_host<'a>(host: &[u8], buffer: &'a mut [u8; HOST_MAX]) -> &'a [u8] {
    let colon = host.iter().rposition(|&byte| byte == b':');
    let name = match colon {
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) => &host[..colon],
        _ => host,
    };
    // A name may end with the dot of the root (RFC 3986 section 3.2.2).
    let name = name.strip_suffix(b".").unwrap_or(name);
    let Some(buffer) = buffer.get_mut(..name.len()) else {
        return b"";
    };
    buffer.copy_from_slice(name);
    buffer.make_ascii_lowercase();
    buffer
}
