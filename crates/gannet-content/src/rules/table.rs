//! Rules ready to be asked: what the server holds.

use gannet_http::semantics::status::Status;

use super::headers::{FieldChanges, Headers};
use super::limits::{HOST_MAX, PASSED_OVER_MAX};
use super::matcher::{Matcher, RuleInput, captures, normal_host};
use super::pattern::{Captures, Scheme};
use super::redirects::{Redirect, Redirects};
use super::target::{Captured, decoded};
use super::wire;
pub use super::wire::TableError;

/// The redirects of a site with an index over their sources.
#[derive(Clone, Debug)]
pub struct RedirectTable {
    redirects: Redirects,
    matcher: Matcher,
    wins_over_files: bool,
}

/// What a rule makes of a request, with where it leads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ruled {
    /// It is answered with this location.
    Elsewhere {
        /// 301, 302, 303, 307 or 308.
        status: Status,
        /// The value of the field.
        location: Vec<u8>,
        /// The position of the rule.
        rule: u32,
    },
    /// It is answered with the content of another path. What is not there is 404.
    Content {
        /// 200, 404, 410 or 451.
        status: Status,
        /// The path, decoded.
        path: Vec<u8>,
        /// The position of the rule.
        rule: u32,
    },
}

/// What the redirects have for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Nothing: go on as without rules.
    Pass,
    /// A redirect with this status, to the location that was written.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The position of the rule.
        rule: u32,
    },
    /// The content at the path that was written, with this status. What is not there is 404.
    /// Rules are not evaluated again for that path.
    Content {
        /// 200, 404, 410 or 451. Conditions and ranges apply only to a 200.
        status: u16,
        /// The position of the rule.
        rule: u32,
    },
}

impl RedirectTable {
    /// Indexes rules.
    #[must_use]
    pub fn new(redirects: Redirects) -> Self {
        let sources = redirects
            .rules
            .iter()
            .map(|rule| (&rule.pattern, rule.query.as_slice()));
        let matcher = Matcher::new(sources, redirects.compat.ignores_trailing_slash());
        let wins_over_files = redirects.rules.iter().any(|rule| rule.is_forced);
        Self {
            redirects,
            matcher,
            wins_over_files,
        }
    }

    /// The rules as bytes, which are the same for the same rules.
    #[must_use]
    pub fn compile(&self) -> Vec<u8> {
        wire::write_redirects(&self.redirects)
    }

    /// Reads what [`compile`](Self::compile) gives. Every rule is checked again, so that whatever
    /// the bytes are, what comes out neither fails nor sends what a rule could not say.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TableError> {
        wire::read_redirects(bytes).map(Self::new)
    }

    /// The rules.
    #[must_use]
    pub fn redirects(&self) -> &Redirects {
        &self.redirects
    }

    /// Whether a rule might apply where there is a file. If not, a request that finds its file
    /// need not be looked up.
    #[must_use]
    pub fn wins_over_files(&self) -> bool {
        self.wins_over_files
    }

    /// The first rule that matches, with what it captures.
    #[must_use]
    pub fn find(&self, request: &RuleInput<'_>) -> Option<(u32, Captures)> {
        self.find_from(request, 0)
    }

    fn find_from(&self, request: &RuleInput<'_>, from: u32) -> Option<(u32, Captures)> {
        let index = self.matcher.first(request, from)?;
        let rule = self.rule(index)?;
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(request.host, &mut buffer);
        let slash = self.redirects.compat.ignores_trailing_slash();
        let captures = captures(&rule.pattern, &rule.query, request, host, slash);
        assert!(captures.is_some(), "what the index finds matches");
        Some((index, captures?))
    }

    /// What to answer. `has_file` says whether there is content at the path; `out` takes the
    /// location or the path, and is undefined after [`Decision::Pass`].
    ///
    /// A redirect to where the request already is would never end: it counts as not matching, and
    /// the next rule is asked. So a rule that leads everything to one host does not stand in the
    /// way of the others there. The same holds for a target that comes out too long, or leads out
    /// of the site.
    pub fn decide(&self, request: &RuleInput<'_>, has_file: bool, out: &mut Vec<u8>) -> Decision {
        if has_file && !self.wins_over_files {
            return Decision::Pass;
        }
        let mut from = 0;
        for _ in 0..PASSED_OVER_MAX {
            let Some((index, captures)) = self.find_from(request, from) else {
                break;
            };
            let Some(rule) = self.rule(index) else { break };
            if has_file && !rule.is_forced {
                break;
            }
            if self.expand(rule, request, &captures, out).is_some() {
                let (status, is_redirect) = (rule.status, rule.is_redirect());
                let rule = index;
                return match is_redirect {
                    true => Decision::Redirect { status, rule },
                    false => Decision::Content { status, rule },
                };
            }
            from = index + 1;
        }
        Decision::Pass
    }

    /// What goes before any file at the path.
    #[must_use]
    pub fn before_files(&self, request: &RuleInput<'_>) -> Option<Ruled> {
        match self.wins_over_files {
            true => self.ruled(request, true),
            false => None,
        }
    }

    /// What answers where no file does.
    #[must_use]
    pub fn for_missing(&self, request: &RuleInput<'_>) -> Option<Ruled> {
        self.ruled(request, false)
    }

    fn ruled(&self, request: &RuleInput<'_>, has_file: bool) -> Option<Ruled> {
        let mut out = Vec::new();
        match self.decide(request, has_file, &mut out) {
            Decision::Pass => None,
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

    /// Writes where a rule leads, unless it leads nowhere.
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
        // What a rule asked for by name is used up.
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
        }
        let end = rest.iter().position(|byte| matches!(byte, b'?' | b'#'));
        let Some(path) = decoded(&rest[..end.unwrap_or(rest.len())]) else {
            return false;
        };
        let ignores_slash = self.redirects.compat.ignores_trailing_slash();
        let trim = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let is_same = path == request.path || (ignores_slash && trim(&path) == trim(request.path));
        // A rule that asks for a query does not match again where the query is gone.
        is_same && (rule.query.is_empty() || rule.target.query.is_some())
    }
}

/// The header rules of a site with an index over their sources.
#[derive(Clone, Debug)]
pub struct HeaderTable {
    headers: Headers,
    matcher: Matcher,
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
        Self { headers, matcher }
    }

    /// The rules as bytes, which are the same for the same rules.
    #[must_use]
    pub fn compile(&self) -> Vec<u8> {
        wire::write_headers(&self.headers)
    }

    /// Reads what [`compile`](Self::compile) gives, with every rule checked again.
    ///
    /// # Errors
    /// See [`TableError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, TableError> {
        wire::read_headers(bytes).map(Self::new)
    }

    /// The rules.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Whether the fields of a path may differ by host, so that they cannot be rendered when a
    /// site is packed.
    #[must_use]
    pub fn has_hosts(&self) -> bool {
        self.matcher.has_hosts()
    }

    /// The rules that match, in their order.
    #[must_use]
    pub fn find(&self, request: &RuleInput<'_>) -> Vec<u32> {
        let mut rules = Vec::new();
        self.matcher.all(request, &mut rules);
        rules
    }

    /// What the rules do to the fields of an answer: all that match, in their order. The path is
    /// the requested one, not that of the file that answers.
    #[must_use]
    pub fn changes(&self, request: &RuleInput<'_>) -> FieldChanges {
        let mut buffer = [0; HOST_MAX];
        let host = normal_host(request.host, &mut buffer);
        let slash = self.headers.compat.ignores_trailing_slash();
        let mut changes = FieldChanges::default();
        for index in self.find(request) {
            let Some(rule) = self.headers.rules.get(index as usize) else {
                continue;
            };
            let captures = captures(&rule.pattern, &[], request, host, slash);
            assert!(captures.is_some(), "what the index finds matches");
            if let Some(captures) = captures {
                let from = Captured {
                    host,
                    path: request.path,
                    query: b"",
                    captures: &captures,
                };
                changes.apply(rule, from);
            }
        }
        changes
    }
}
