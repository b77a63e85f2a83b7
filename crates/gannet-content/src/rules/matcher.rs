//! From a request to the rules that match it, by one walk over its path.

use std::ops::Range;

use super::limits::{HOST_MAX, QUERY_KEY_MAX, QUERY_PARAMETERS_MAX};
use super::pattern::{Captures, Pattern, Scheme, Source, Subject};
use super::redirects::{QueryParameter, QueryValue};
use super::trie::{Edges, Kind, Trie, TrieBuilder, Visit};
use super::{language, percent};

/// The parts of a request that rules depend on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RuleInput<'a> {
    /// The scheme of the target URI.
    pub scheme: Scheme,
    /// The host of the target URI; case and port make no difference.
    pub host: &'a [u8],
    /// The path in canonical form, decoded, as returned by `target_path::decode_path`.
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
    paths: Trie,
    hosts: Option<Hosts>,
    /// By the end of a pattern: the range of its groups.
    ends: Vec<(u32, u32)>,
    groups: Vec<Group>,
    query_values: Edges,
}

#[derive(Clone, Debug)]
struct Hosts {
    labels: Trie,
    /// By the end of a host: the roots of its paths for any scheme, `http`, and `https`.
    roots: Vec<[Option<u32>; 3]>,
}

/// Rules with the same pattern, the same query parameters, and the same languages.
#[derive(Clone, Debug)]
struct Group {
    /// The first of its rules.
    first: u32,
    languages: Vec<Vec<u8>>,
    /// Without parameters, the group is that one rule.
    parameters: Vec<ParameterShape>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct ParameterShape {
    name: Vec<u8>,
    is_literal: bool,
}

impl Matcher {
    /// Builds an index. The order of the sources is that of the rules.
    pub fn new<'a>(
        sources: impl Iterator<Item = (&'a Pattern, &'a [QueryParameter], &'a [Vec<u8>])>,
        ignores_trailing_slash: bool,
    ) -> Self {
        let mut builder = Builder::new();
        for (rule, source) in sources.enumerate() {
            builder.insert(rule as u32, source);
        }
        builder.build(ignores_trailing_slash)
    }

    /// The first rule that matches, from the rule `from` on.
    #[must_use]
    pub fn first(&self, request: &RuleInput<'_>, from: u32) -> Option<u32> {
        let mut first = First {
            matcher: self,
            from,
            best: u32::MAX,
            query: request.query.unwrap_or_default(),
            language: request.language,
        };
        self.walk(request, &mut first);
        (first.best != u32::MAX).then_some(first.best)
    }

    /// Appends all rules that match, in their order. Rules that require a query are left out.
    pub fn all(&self, request: &RuleInput<'_>, rules: &mut Vec<u32>) {
        let start = rules.len();
        self.walk(
            request,
            &mut All {
                matcher: self,
                rules,
            },
        );
        rules[start..].sort_unstable();
    }

    /// Whether some rule with a source for the request is for languages, of those that `count`. Where
    /// queries choose among rules, any counts.
    #[must_use]
    pub fn has_languages(&self, request: &RuleInput<'_>, count: impl Fn(u32) -> bool) -> bool {
        let mut found = ForLanguages {
            matcher: self,
            count,
            is_found: false,
        };
        self.walk(request, &mut found);
        found.is_found
    }

    /// Whether any rule is restricted to a host.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        self.hosts.is_some()
    }

    fn walk(&self, request: &RuleInput<'_>, visit: &mut impl Visit) {
        let subject = Subject::path(request.path, self.ignores_trailing_slash);
        self.paths.walk(ANY_HOST, &subject, visit);
        let Some(hosts) = &self.hosts else { return };
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(request.host, &mut buffer);
        let mut roots = Roots {
            matcher: self,
            hosts,
            scheme: request.scheme,
            subject,
            visit,
        };
        hosts.labels.walk(0, &Subject::host(host), &mut roots);
    }

    fn groups(&self, end: u32) -> &[Group] {
        let (from, to) = self.ends[end as usize];
        &self.groups[from as usize..to as usize]
    }

    /// The first rule of a group that matches these query parameters.
    fn find_query(&self, group: u32, query: &Query<'_>) -> Option<u32> {
        let parameters = &self.groups[group as usize].parameters;
        if parameters.len() != query.count {
            return None;
        }
        let mut key = [0; QUERY_KEY_MAX];
        let mut len = 0;
        for parameter in parameters {
            let value = query.value(&parameter.name)?;
            if parameter.is_literal {
                let start = len + 2;
                len = start;
                let fits = percent::decode_query_into(value, |byte| {
                    let slot = key.get_mut(len);
                    slot.map(|slot| *slot = byte).is_some_and(|()| {
                        len += 1;
                        true
                    })
                });
                if !fits || start > key.len() {
                    return None;
                }
                key[start - 2..start].copy_from_slice(&((len - start) as u16).to_le_bytes());
            } else if value.is_empty() {
                return None;
            }
        }
        self.query_values.find(group, Kind::Query, &key[..len], b"")
    }
}

/// What a rule captures of a request, if it matches.
#[must_use]
pub(crate) fn captures(
    pattern: &Pattern,
    parameters: &[QueryParameter],
    request: &RuleInput<'_>,
    host: &[u8],
    ignores_trailing_slash: bool,
) -> Option<Captures> {
    let mut captures = Captures::NONE;
    let subject = Subject::path(request.path, ignores_trailing_slash);
    let fits = pattern.scheme.is_none_or(|scheme| scheme == request.scheme)
        && pattern.capture_host(host, &mut captures)
        && pattern.capture_path(&subject, &mut captures);
    if !fits || parameters.is_empty() {
        return fits.then_some(captures);
    }
    let raw = request.query.unwrap_or_default();
    let query = Query::read(raw)?;
    if query.count != parameters.len() {
        return None;
    }
    for parameter in parameters {
        let range = query.range(&parameter.name)?;
        let value = &raw[range.clone()];
        match &parameter.value {
            QueryValue::Literal(expect) if percent::query_equals(value, expect) => {}
            QueryValue::Placeholder(_) if !value.is_empty() => {
                if !captures.push(Source::Query, range) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(captures)
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

/// The root of paths of any host.
const ANY_HOST: u32 = 0;

/// Walks the paths of each host that matches.
struct Roots<'a, V> {
    matcher: &'a Matcher,
    hosts: &'a Hosts,
    scheme: Scheme,
    subject: Subject<'a>,
    visit: &'a mut V,
}

impl<V: Visit> Visit for Roots<'_, V> {
    fn wants(&self, first: u32) -> bool {
        self.visit.wants(first)
    }

    fn end(&mut self, end: u32) {
        let [any, http, https] = self.hosts.roots[end as usize];
        let of_scheme = match self.scheme {
            Scheme::Http => http,
            Scheme::Https => https,
        };
        for root in [any, of_scheme].into_iter().flatten() {
            self.matcher.paths.walk(root, &self.subject, self.visit);
        }
    }
}

struct First<'a> {
    matcher: &'a Matcher,
    from: u32,
    best: u32,
    query: &'a [u8],
    language: &'a [u8],
}

impl Visit for First<'_> {
    fn wants(&self, first: u32) -> bool {
        first < self.best
    }

    fn end(&mut self, end: u32) {
        let (from, _) = self.matcher.ends[end as usize];
        // Parsed when the first rule needs it.
        let mut query = None;
        for (index, group) in self.matcher.groups(end).iter().enumerate() {
            if group.first >= self.best {
                return;
            }
            if !group.languages.is_empty() && !language::is_in(self.language, &group.languages) {
                continue;
            }
            if group.parameters.is_empty() {
                if group.first < self.from {
                    continue;
                }
                self.best = group.first;
                return;
            }
            if let Some(query) = query.get_or_insert_with(|| Query::read(self.query)) {
                let found = self.matcher.find_query(from + index as u32, query);
                let found = found.filter(|rule| *rule >= self.from);
                self.best = self.best.min(found.unwrap_or(u32::MAX));
            }
        }
    }
}

struct ForLanguages<'a, C> {
    matcher: &'a Matcher,
    count: C,
    is_found: bool,
}

impl<C: Fn(u32) -> bool> Visit for ForLanguages<'_, C> {
    fn wants(&self, _first: u32) -> bool {
        !self.is_found
    }

    fn end(&mut self, end: u32) {
        let mut groups = self.matcher.groups(end).iter();
        let counts = |group: &Group| !group.parameters.is_empty() || (self.count)(group.first);
        self.is_found |= groups.any(|group| !group.languages.is_empty() && counts(group));
    }
}

struct All<'a> {
    matcher: &'a Matcher,
    rules: &'a mut Vec<u32>,
}

impl Visit for All<'_> {
    fn wants(&self, _first: u32) -> bool {
        true
    }

    fn end(&mut self, end: u32) {
        let groups = self.matcher.groups(end).iter();
        let plain = groups.filter(|group| group.parameters.is_empty());
        self.rules.extend(plain.map(|group| group.first));
    }
}

/// The parameters of a query.
struct Query<'a> {
    raw: &'a [u8],
    /// For each: where it begins, where its name ends, and where it ends.
    parameters: [(usize, usize, usize); QUERY_PARAMETERS_MAX],
    count: usize,
}

impl<'a> Query<'a> {
    /// `None` if it has more parameters than any rule requires.
    fn read(raw: &'a [u8]) -> Option<Self> {
        let mut query = Self {
            raw,
            parameters: [(0, 0, 0); QUERY_PARAMETERS_MAX],
            count: 0,
        };
        let mut start = 0;
        for pair in raw.split(|&byte| byte == b'&') {
            let end = start + pair.len();
            if !pair.is_empty() {
                let equals = pair.iter().position(|&byte| byte == b'=');
                let slot = query.parameters.get_mut(query.count)?;
                *slot = (start, start + equals.unwrap_or(pair.len()), end);
                query.count += 1;
            }
            start = end + 1;
        }
        Some(query)
    }

    /// The range of the raw value of the first parameter of this name.
    fn range(&self, name: &[u8]) -> Option<Range<usize>> {
        let mut parameters = self.parameters[..self.count].iter();
        let found = parameters
            .find(|(start, middle, _)| percent::query_equals(&self.raw[*start..*middle], name));
        found.map(|&(_, middle, end)| end.min(middle + 1)..end)
    }

    fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.range(name).map(|range| &self.raw[range])
    }
}

struct Builder {
    paths: TrieBuilder,
    labels: TrieBuilder,
    roots: Vec<[Option<u32>; 3]>,
    /// By end: groups, and the rules of each with their values.
    ends: Vec<Vec<GrowingGroup>>,
}

struct GrowingGroup {
    first: u32,
    languages: Vec<Vec<u8>>,
    parameters: Vec<ParameterShape>,
    values: Vec<(Vec<u8>, u32)>,
}

impl Builder {
    fn new() -> Self {
        let mut paths = TrieBuilder::default();
        let mut labels = TrieBuilder::default();
        assert_eq!(paths.root(), ANY_HOST);
        assert_eq!(labels.root(), 0);
        Self {
            paths,
            labels,
            roots: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn insert(
        &mut self,
        rule: u32,
        (pattern, query, languages): (&Pattern, &[QueryParameter], &[Vec<u8>]),
    ) {
        let root = match &pattern.host {
            None => ANY_HOST,
            Some(labels) => {
                let end = self.labels.insert(0, labels, None, rule) as usize;
                self.roots
                    .resize(self.labels.end_count() as usize, [None; 3]);
                let scheme = match pattern.scheme {
                    None => 0,
                    Some(Scheme::Http) => 1,
                    Some(Scheme::Https) => 2,
                };
                *self.roots[end][scheme].get_or_insert_with(|| self.paths.root())
            }
        };
        let splat = pattern.splat.as_ref();
        let end = self.paths.insert(root, &pattern.head, splat, rule) as usize;
        self.ends
            .resize_with(self.paths.end_count() as usize, Vec::new);
        let groups = &mut self.ends[end];
        let parameters: Vec<ParameterShape> = query.iter().map(shape).collect();
        let known = groups.iter_mut().find(|group| {
            let is_same = group.parameters == parameters && group.languages == languages;
            !query.is_empty() && is_same
        });
        let value = (query_key(query), rule);
        match known {
            Some(group) if group.values.iter().any(|(key, _)| *key == value.0) => {}
            Some(group) => group.values.push(value),
            None => groups.push(GrowingGroup {
                first: rule,
                languages: languages.to_vec(),
                parameters,
                values: vec![value],
            }),
        }
    }

    fn build(self, ignores_trailing_slash: bool) -> Matcher {
        let all_groups = self.ends.iter().flatten();
        let with_query = all_groups.filter(|group| !group.parameters.is_empty());
        let value_count = with_query.map(|group| group.values.len()).sum();
        let mut ends = Vec::with_capacity(self.ends.len());
        let mut groups = Vec::new();
        let mut query_values = Edges::with_capacity(value_count);
        for of_end in self.ends {
            let from = groups.len() as u32;
            for group in of_end {
                if !group.parameters.is_empty() {
                    let edge = (groups.len() as u32, Kind::Query);
                    for (key, rule) in &group.values {
                        query_values.insert(edge, key, b"", *rule);
                    }
                }
                groups.push(Group {
                    first: group.first,
                    languages: group.languages,
                    parameters: group.parameters,
                });
            }
            ends.push((from, groups.len() as u32));
        }
        let has_hosts = !self.roots.is_empty();
        Matcher {
            ignores_trailing_slash,
            paths: self.paths.build(),
            hosts: has_hosts.then(|| Hosts {
                labels: self.labels.build(),
                roots: self.roots,
            }),
            ends,
            groups,
            query_values,
        }
    }
}

fn shape(parameter: &QueryParameter) -> ParameterShape {
    ParameterShape {
        name: parameter.name.clone(),
        is_literal: matches!(parameter.value, QueryValue::Literal(_)),
    }
}

/// The literal values in one text, each preceded by its length.
fn query_key(query: &[QueryParameter]) -> Vec<u8> {
    let mut key = Vec::new();
    for parameter in query {
        if let QueryValue::Literal(value) = &parameter.value {
            key.extend_from_slice(&(value.len() as u16).to_le_bytes());
            key.extend_from_slice(value);
        }
    }
    key
}
