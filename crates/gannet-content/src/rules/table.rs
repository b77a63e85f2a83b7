//! Rules ready for lookup, as the server holds them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use gannet_http::semantics::status::Status;

use super::evaluation::{Excess, TooMuch, evaluate, excess, joined_singles, lines_of};
use super::headers::{FieldChanges, HeaderRule, Headers, ValuePart, expand};
use super::limits::{
    EVALUATION_STEPS_MAX, HOST_MAX, PASSED_OVER_MAX, PROBLEMS_MAX, RULED_LINES_MAX,
    TRIED_LINES_PART, TRIED_STEPS_MAX,
};
use super::matcher::{Matcher, RuleInput, captures, normal_host};
use super::memory::MemoryRoom;
use super::pattern::{Captures, Scheme};
use super::problem::Problem;
use super::protection::{Forms, Paths};
use super::redirects::{Redirect, Redirects};
use super::steps::{OutOfSteps, Overruns, Steps};
use super::target::{Captured, decoded};
use super::users::User;
pub use super::wire::TableError;
use super::{language, wire};
use crate::routing::Routing;

/// The redirects of a site with an index over their sources.
#[derive(Clone, Debug)]
pub struct RedirectTable {
    redirects: Redirects,
    matcher: Matcher,
    wins_over_files: bool,
    /// Some rule is for languages; some that wins over files is.
    for_languages: [bool; 2],
    overruns: Overruns,
}

/// The verdict of a rule on a request, with the location or path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ruled {
    /// A redirect to this location.
    Elsewhere {
        /// 301, 302, 303, 307 or 308.
        status: Status,
        /// The value of the field.
        location: Vec<u8>,
        /// The position of the rule.
        rule: u32,
    },
    /// The content of another path. If that is missing, 404.
    Content {
        /// 200, 404, 410 or 451.
        status: Status,
        /// The path, decoded.
        path: Vec<u8>,
        /// The position of the rule.
        rule: u32,
    },
    /// Out of steps before it was known whether a rule precedes the file: an error. The rule may keep
    /// visitors from the file, so that is not sent.
    Unknown,
}

/// The verdict of the redirects on a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// None: continue as without rules.
    Pass,
    /// A redirect with this status, to the location that was written.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The position of the rule.
        rule: u32,
    },
    /// The content at the path that was written, with this status. If that is missing, 404. Rules
    /// are not evaluated again for that path.
    Content {
        /// 200, 404, 410 or 451. Conditions and ranges apply only to a 200.
        status: u16,
        /// The position of the rule.
        rule: u32,
    },
    /// See [`Ruled::Unknown`].
    Unknown,
}

impl RedirectTable {
    /// Indexes rules.
    #[must_use]
    pub fn new(redirects: Redirects) -> Self {
        let rules = redirects.rules.iter();
        let sources = rules.map(|rule| (&rule.pattern, rule.query.as_slice()));
        let matcher = Matcher::new(sources, redirects.compat.ignores_trailing_slash());
        let wins_over_files = redirects.rules.iter().any(|rule| rule.is_forced);
        let mut for_languages = [false; 2];
        for rule in redirects.rules.iter().filter(|it| !it.languages.is_empty()) {
            for_languages[0] = true;
            for_languages[1] |= rule.is_forced;
        }
        Self {
            redirects,
            matcher,
            wins_over_files,
            for_languages,
            overruns: Overruns::default(),
        }
    }

    /// Serialises the rules; equal rules give equal bytes.
    #[must_use]
    pub fn compile(&self) -> Vec<u8> {
        wire::write_redirects(&self.redirects)
    }

    /// Parses the result of [`compile`](Self::compile). Every rule is checked again, so that no
    /// bytes can make the table fail or send what a rule could not express.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TableError> {
        Self::parse_within(bytes, &mut MemoryRoom::default())
    }

    /// The same for one of several sites, with this room for what its rules hold.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn parse_within(bytes: &[u8], room: &mut MemoryRoom) -> Result<Self, TableError> {
        wire::read_redirects(bytes, room).map(Self::new)
    }

    /// The rules.
    #[must_use]
    pub fn redirects(&self) -> &Redirects {
        &self.redirects
    }

    /// Whether a rule might apply where there is a file. If not, a request that finds its file
    /// needs no lookup.
    #[must_use]
    pub fn wins_over_files(&self) -> bool {
        self.wins_over_files
    }

    /// The steps that it took to index the rules.
    #[must_use]
    pub fn read_steps(&self) -> u32 {
        self.matcher.read_steps()
    }

    /// Evaluations that were out of steps: they found no rule.
    #[must_use]
    pub fn overruns(&self) -> &Overruns {
        &self.overruns
    }

    /// Whether the answer may depend on the client's language, and varies by `Accept-Language`
    /// therefore. `has_file` is whether it is that of the path itself. Out of steps it may.
    #[must_use]
    pub fn varies_by_language(
        &self,
        request: &RuleInput<'_>,
        has_file: bool,
        steps: &Steps,
    ) -> bool {
        if !self.for_languages[usize::from(has_file)] {
            return false;
        }
        let found = steps.evaluate(|steps| {
            self.matcher.candidates(request, steps, |index| {
                steps.one()?;
                let Some(rule) = self.rule(index) else {
                    return Ok(ControlFlow::Continue(()));
                };
                let counts = !rule.languages.is_empty() && (!has_file || rule.is_forced);
                let varies = counts && self.captures(rule, request, steps)?.is_some();
                Ok(break_if(varies.then_some(())))
            })
        });
        found.map_or(true, |found| found.is_some())
    }

    /// The first rule that matches, with its captures.
    #[must_use]
    pub fn find(&self, request: &RuleInput<'_>) -> Option<(u32, Captures)> {
        let found = Steps::default().evaluate(|steps| {
            self.matcher.candidates(request, steps, |index| {
                let matched = self.matched(index, request, steps)?;
                Ok(break_if(matched.map(|(_, captures)| (index, captures))))
            })
        });
        found.ok().flatten()
    }

    /// A rule and its captures, if it matches.
    fn matched(
        &self,
        index: u32,
        request: &RuleInput<'_>,
        steps: &Steps,
    ) -> Result<Option<(&Redirect, Captures)>, OutOfSteps> {
        steps.at(index);
        let Some(rule) = self.rule(index) else {
            return Ok(None);
        };
        if !rule.languages.is_empty() {
            steps.through(rule.languages.len())?;
            if !language::is_in(request.language, &rule.languages) {
                return Ok(None);
            }
        }
        let captures = self.captures(rule, request, steps)?;
        Ok(captures.map(|captures| (rule, captures)))
    }

    /// What a rule captures of a request in one of its languages, if it matches.
    fn captures(
        &self,
        rule: &Redirect,
        request: &RuleInput<'_>,
        steps: &Steps,
    ) -> Result<Option<Captures>, OutOfSteps> {
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(request.host, &mut buffer);
        let slash = self.redirects.compat.ignores_trailing_slash();
        captures(&rule.pattern, &rule.query, (request, host), slash, steps)
    }

    /// The response. `has_file` is whether there is content at the path; `out` receives the
    /// location or the path, and is undefined after [`Decision::Pass`].
    ///
    /// A redirect to where the request already is would never end: it does not match, and the next
    /// rule is tried. So a rule that leads everything to one host does not shadow the others on
    /// that host. The same applies to a target that becomes too long, or leads out of the site.
    ///
    /// Out of steps the rules see no query, whose length the client chooses: it must not take away
    /// those that hide a file. If that is too much as well, a file is not sent, and what is missing
    /// stays missing: see [`overruns`](Self::overruns).
    pub fn decide(
        &self,
        request: &RuleInput<'_>,
        has_file: bool,
        steps: &Steps,
        out: &mut Vec<u8>,
    ) -> Decision {
        let mut decide = |request: &RuleInput<'_>| {
            steps.evaluate(|steps| self.decide_within(request, has_file, steps, out))
        };
        let mut decided = decide(request);
        if decided.is_err() && request.query.is_some() {
            decided = decide(&RuleInput {
                query: None,
                ..*request
            });
        }
        decided.unwrap_or_else(|OutOfSteps| {
            self.overruns.note(steps);
            match has_file {
                true => Decision::Unknown,
                false => Decision::Pass,
            }
        })
    }

    /// As [`decide`](Self::decide), in one evaluation with these steps.
    ///
    /// # Errors
    /// They are not enough.
    pub fn decide_within(
        &self,
        request: &RuleInput<'_>,
        has_file: bool,
        steps: &Steps,
        out: &mut Vec<u8>,
    ) -> Result<Decision, OutOfSteps> {
        if has_file && !self.wins_over_files {
            return Ok(Decision::Pass);
        }
        let mut passed_over = 0;
        let found = self.matcher.candidates(request, steps, |index| {
            let Some((rule, captures)) = self.matched(index, request, steps)? else {
                return Ok(ControlFlow::Continue(()));
            };
            if has_file && !rule.is_forced {
                return Ok(ControlFlow::Break(Decision::Pass));
            }
            let is_target = self.expand(rule, request, &captures, out).is_some();
            steps.through(out.len())?;
            let (status, is_redirect) = (rule.status, rule.is_redirect());
            let rule = index;
            passed_over += 1;
            Ok(break_if(match (is_target, is_redirect) {
                (true, true) => Some(Decision::Redirect { status, rule }),
                (true, false) => Some(Decision::Content { status, rule }),
                (false, _) => (passed_over == PASSED_OVER_MAX).then_some(Decision::Pass),
            }))
        })?;
        Ok(found.unwrap_or(Decision::Pass))
    }

    /// The rule that precedes any file at the path.
    #[must_use]
    pub fn before_files(&self, request: &RuleInput<'_>, steps: &Steps) -> Option<Ruled> {
        match self.wins_over_files {
            true => self.ruled(request, true, steps),
            false => None,
        }
    }

    /// The rule that answers if no file does.
    #[must_use]
    pub fn for_missing(&self, request: &RuleInput<'_>, steps: &Steps) -> Option<Ruled> {
        self.ruled(request, false, steps)
    }

    fn ruled(&self, request: &RuleInput<'_>, has_file: bool, steps: &Steps) -> Option<Ruled> {
        let mut out = Vec::new();
        match self.decide(request, has_file, steps, &mut out) {
            Decision::Pass => None,
            Decision::Unknown => Some(Ruled::Unknown),
            Decision::Redirect { status, rule } => Some(Ruled::Elsewhere {
                status: Status(status),
                location: out,
                rule,
            }),
            Decision::Content { status, rule } => Some(Ruled::Content {
                status: Status(status),
                path: out,
                rule,
            }),
        }
    }

    /// Writes the target of a rule, unless there is none.
    fn expand(
        &self,
        rule: &Redirect,
        request: &RuleInput<'_>,
        captures: &Captures,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(request.host, &mut buffer);
        let from = Captured {
            host,
            path: request.path,
            query: request.query.unwrap_or_default(),
            captures,
        };
        if !rule.is_redirect() {
            return rule.target.write_path(from, out);
        }
        // The parameters that a rule requires are consumed.
        let passed_on = request.query.filter(|_| rule.query.is_empty());
        rule.target.write_location(from, passed_on, out)?;
        (!self.is_there(rule, request, host, out)).then_some(())
    }

    fn rule(&self, index: u32) -> Option<&Redirect> {
        self.redirects.rules.get(index as usize)
    }

    /// Whether a location is that of the request, so that the rule would match again.
    fn is_there(&self, rule: &Redirect, request: &RuleInput<'_>, host: &[u8], out: &[u8]) -> bool {
        let mut rest = out;
        let mut requested = Cow::Borrowed(request.path);
        if let Some(origin) = &rule.target.origin {
            let scheme: &[u8] = match request.scheme {
                Scheme::Http => b"http://",
                Scheme::Https => b"https://",
            };
            let is_origin = origin.as_bytes().strip_prefix(scheme) == Some(host);
            if !is_origin {
                return false;
            }
            rest = &out[origin.len()..];
            requested = Cow::Owned([request.prefix, request.path].concat());
        }
        let end = rest.iter().position(|byte| matches!(byte, b'?' | b'#'));
        let Some(path) = decoded(&rest[..end.unwrap_or(rest.len())]) else {
            return false;
        };
        let ignores_slash = self.redirects.compat.ignores_trailing_slash();
        let trim = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let requested: &[u8] = &requested;
        let is_same = path == requested || (ignores_slash && trim(&path) == trim(requested));
        // A rule that requires a query does not match again if the query is gone.
        is_same && (rule.query.is_empty() || rule.target.query.is_some())
    }
}

fn break_if<B>(found: Option<B>) -> ControlFlow<B> {
    match found {
        Some(found) => ControlFlow::Break(found),
        None => ControlFlow::Continue(()),
    }
}

/// The header rules of a site with an index over their sources.
#[derive(Clone, Debug)]
pub struct HeaderTable {
    headers: Headers,
    matcher: Matcher,
    /// The paths of rules with users, if there are such rules.
    protected: Option<Paths>,
    overruns: Overruns,
}

impl HeaderTable {
    /// Indexes rules.
    #[must_use]
    pub fn new(headers: Headers) -> Self {
        let sources = headers
            .rules
            .iter()
            .map(|rule| (&rule.pattern, [].as_slice()));
        let matcher = Matcher::new(sources, headers.compat.ignores_trailing_slash());
        let protected = protected(&headers, Forms::new([&Routing::new(headers.compat)]));
        Self {
            headers,
            matcher,
            protected,
            overruns: Overruns::default(),
        }
    }

    /// The same rules for a site whose files answer paths as this routing says, which may have other
    /// index names than those of the dialect; and where compressed files may be all that there is.
    #[must_use]
    pub fn with_routing(self, routing: &Routing, compressed_only: bool) -> Self {
        let forms = Forms::new([&Routing::new(self.headers.compat), routing]);
        let forms = forms.with_copies_alone(compressed_only);
        // Not both at once.
        let mut table = Self {
            protected: None,
            ..self
        };
        table.protected = protected(&table.headers, forms);
        table
    }

    /// Whether some path is for users alone.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.protected.is_some()
    }

    /// The users that may have a path: a user of each list may; every client, if there is none. Out of
    /// steps no client may: there is an empty list.
    pub fn users(&self, path: &[u8], steps: &Steps) -> impl Iterator<Item = &[User]> + use<'_> {
        let protected = self.protected.as_ref();
        let matching =
            protected.map(|protected| steps.evaluate(|steps| protected.matching(path, steps)));
        let (rules, no_user) = match matching.transpose() {
            Ok(rules) => (rules.unwrap_or_default(), None),
            Err(OutOfSteps) => {
                self.overruns.note(steps);
                (BTreeSet::new(), Some([].as_slice()))
            }
        };
        let rules = rules.into_iter();
        let users = rules.map(|rule| self.headers.rules[rule as usize].users.as_slice());
        users.chain(no_user)
    }

    /// The steps that it took to index the rules.
    #[must_use]
    pub fn read_steps(&self) -> u32 {
        let protected = self.protected.as_ref().map_or(0, Paths::read_steps);
        self.matcher.read_steps().saturating_add(protected)
    }

    /// Evaluations that were out of steps: they found no rule, or that no client may have a path.
    #[must_use]
    pub fn overruns(&self) -> &Overruns {
        &self.overruns
    }

    /// Serialises the rules; equal rules give equal bytes.
    #[must_use]
    pub fn compile(&self) -> Vec<u8> {
        wire::write_headers(&self.headers)
    }

    /// Parses the result of [`compile`](Self::compile), checking every rule again.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TableError> {
        Self::parse_within(bytes, &mut MemoryRoom::default())
    }

    /// The same for one of several sites, with this room for what its rules hold.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn parse_within(bytes: &[u8], room: &mut MemoryRoom) -> Result<Self, TableError> {
        let table = Self::new(wire::read_headers(bytes, room)?);
        match table.excess() {
            Some(_) => Err(TableError::TooMuch),
            None => Ok(table),
        }
    }

    /// The rules.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Whether the fields of a path may differ by host, so that they cannot be rendered at pack
    /// time.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        self.matcher.has_hosts()
    }

    /// The rules that match, in their order; none out of steps.
    #[must_use]
    pub fn find(&self, request: &RuleInput<'_>) -> Vec<u32> {
        let found = Steps::default().evaluate(|steps| self.matching(request, steps));
        found.unwrap_or_default()
    }

    /// The changes of the rules to the fields of a response, of all that match. The path is the
    /// requested one, not that of the file that answers.
    ///
    /// # Errors
    /// They are too much for a response, or out of steps. Then content that relies on them cannot be
    /// sent: the client has chosen the path, and must not take away a policy by its length.
    pub fn changes(&self, request: &RuleInput<'_>, steps: &Steps) -> Result<FieldChanges, Excess> {
        match steps.evaluate(|steps| self.matching(request, steps)) {
            Ok(rules) => self.changes_by(&rules, request),
            Err(OutOfSteps) => {
                self.overruns.note(steps);
                let (_, rule) = self.overruns.seen();
                let at = (rule.unwrap_or_default(), 0);
                Err(excess(&self.headers, at, TooMuch::Steps))
            }
        }
    }

    fn changes_by(&self, rules: &[u32], request: &RuleInput<'_>) -> Result<FieldChanges, Excess> {
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(request.host, &mut buffer);
        let slash = self.headers.compat.ignores_trailing_slash();
        evaluate(&self.headers, rules, |rule, value, out| {
            if let [ValuePart::Literal(text)] = value {
                return out.extend_from_slice(text);
            }
            // Those of a rule that matches took few steps before.
            let steps = Steps::new(u32::MAX);
            let rule = self.headers.rules.get(rule as usize);
            let captures =
                rule.map(|it| captures(&it.pattern, &[], (request, host), slash, &steps));
            let captures = captures.and_then(Result::ok).flatten();
            // An archive, or a host name that grows in ASCII, may have rules that match nothing.
            let captures = captures.unwrap_or(Captures::NONE);
            let from = Captured {
                host,
                path: request.path,
                query: b"",
                captures: &captures,
            };
            expand(value, from, out);
        })
    }

    /// The rules that match, in their order.
    fn matching(&self, request: &RuleInput<'_>, steps: &Steps) -> Result<Vec<u32>, OutOfSteps> {
        let mut rules = Vec::new();
        self.each(request, steps, |rule, _, _| {
            rules.push(rule);
            Ok(())
        })?;
        Ok(rules)
    }

    /// Visits all rules that match, in their order.
    fn each(
        &self,
        request: &RuleInput<'_>,
        steps: &Steps,
        mut visit: impl FnMut(u32, &HeaderRule, Captured<'_>) -> Result<(), OutOfSteps>,
    ) -> Result<(), OutOfSteps> {
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(request.host, &mut buffer);
        let slash = self.headers.compat.ignores_trailing_slash();
        let ended = self.matcher.candidates(request, steps, |index| {
            steps.at(index);
            let Some(rule) = self.headers.rules.get(index as usize) else {
                return Ok(ControlFlow::<()>::Continue(()));
            };
            let captures = captures(&rule.pattern, &[], (request, host), slash, steps)?;
            if let Some(captures) = captures {
                let from = Captured {
                    host,
                    path: request.path,
                    query: b"",
                    captures: &captures,
                };
                visit(index, rule, from)?;
            }
            Ok(ControlFlow::Continue(()))
        });
        ended.map(|_| ())
    }

    /// The lines from which a field has its value, of these rules that match a request; where a rule
    /// begins if its lines are not known.
    #[must_use]
    pub fn lines_of(&self, rules: &[u32], name: &str) -> Vec<u32> {
        lines_of(&self.headers, rules, name)
    }

    /// What is too much for a response whatever its request has.
    #[must_use]
    pub fn excess(&self) -> Option<Excess> {
        self.try_each(|rule, found, request| {
            // Where another rule takes away what it has, there may be paths that only it matches.
            let alone = self.changes_by(&[rule], request).err();
            alone.or_else(|| match found {
                Ok(found) => self.changes_by(found, request).err(),
                // More rules match than can be found for a request.
                Err(OutOfSteps) => Some(excess(&self.headers, (rule, 0), TooMuch::Steps)),
            })
        })
    }

    /// The problem of rules with an [`excess`](Self::excess), in this file.
    #[must_use]
    pub fn problem(&self, file: &str) -> Option<Problem> {
        Some(self.excess()?.problem(file))
    }

    /// Warns of fields that have one value, if lines of this file that apply to one request give them
    /// several.
    #[must_use]
    pub fn lint(&self, file: &str) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        self.try_each(|_, found, _| {
            problems.extend(joined_singles(
                &self.headers,
                found.unwrap_or_default(),
                file,
            ));
            (problems.len() >= PROBLEMS_MAX).then_some(())
        });
        problems.sort_by_key(|problem| problem.line);
        problems.dedup_by_key(|problem| problem.line);
        problems
    }

    /// Has `look` see which rules match one request that each rule matches, until it has found
    /// something, or all together have taken many times as long as reading the rules, or
    /// [`TRIED_STEPS_MAX`].
    fn try_each<T>(
        &self,
        mut look: impl FnMut(u32, Result<&[u32], OutOfSteps>, &RuleInput<'_>) -> Option<T>,
    ) -> Option<T> {
        let rules = &self.headers.rules;
        let line_count = |rule: &HeaderRule| 1 + rule.operations.len();
        let all: usize = rules.iter().map(line_count).sum();
        let mut left = RULED_LINES_MAX + TRIED_LINES_PART * all;
        let mut steps_left = TRIED_STEPS_MAX;
        for (number, rule) in (0..).zip(rules) {
            let (host, path) = rule.pattern.example();
            let request = RuleInput {
                prefix: b"",
                scheme: Scheme::Https,
                host: &host,
                path: &path,
                query: None,
                language: b"",
            };
            let steps = Steps::new(EVALUATION_STEPS_MAX);
            let found = self.matching(&request, &steps);
            let known = found.as_deref().map_err(|error| *error);
            if let Some(seen) = look(number, known, &request) {
                return Some(seen);
            }
            let found = found.unwrap_or_default();
            let matching = found.iter().filter_map(|&it| rules.get(it as usize));
            let lines: usize = matching.map(line_count).sum();
            left = left.checked_sub(lines)?;
            // What finds nothing because it is out of steps takes the longest.
            steps_left = steps_left.checked_sub(lines + steps.taken() as usize)?;
        }
        None
    }
}

/// The paths of the rules that have users, numbered as these rules are, if there are any.
fn protected(headers: &Headers, forms: Forms) -> Option<Paths> {
    let rules = (0..).zip(&headers.rules);
    let with_users = rules.filter(|(_, rule)| !rule.users.is_empty());
    let mut patterns = with_users
        .map(|(number, rule)| (number, &rule.pattern))
        .peekable();
    patterns.peek()?;
    let ignores_trailing_slash = headers.compat.ignores_trailing_slash();
    Some(Paths::numbered(patterns, ignores_trailing_slash, forms))
}
