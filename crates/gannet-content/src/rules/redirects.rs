//! The file `_redirects`: one rule per line, from a source to a target.
//!
//! ```text
//! # source      query     target                  status
//! /old                    /new
//! /news/*                 /blog/:splat            302
//! /store        id=:id    /product/:id            301
//! /*                      /index.html             200
//! ```

use super::limits::{
    CLOUDFLARE_DYNAMIC_MAX, CLOUDFLARE_REDIRECT_LINE_MAX, CLOUDFLARE_STATIC_MAX,
    LANGUAGE_RULES_MAX, LANGUAGES_MAX, LINE_MAX, QUERY_PARAMETERS_MAX, RULES_MAX,
};
use super::lines::{Line, Report, Token, Wrong, lines};
use super::memory::{MemoryRoom, redirect_len};
use super::pattern::{Pattern, Scheme, Syntax, name_len};
use super::percent;
use super::problem::Problem;
use super::target::Target;
use super::{Compat, Place, SourceFile, kawipiko, language};

/// The rules of a site, in the order in which they are matched.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Redirects {
    /// The dialect.
    pub compat: Compat,
    /// The rules.
    pub rules: Vec<Redirect>,
}

/// One rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Redirect {
    /// Its location.
    pub place: Place,
    /// The paths and hosts it applies to.
    pub pattern: Pattern,
    /// The parameters that the query must have, sorted by name; it may have others.
    pub query: Vec<QueryParameter>,
    /// The first language of the client has to be in one of these ranges, in lower case; any will do if
    /// there are none.
    pub languages: Vec<Vec<u8>>,
    /// Its target.
    pub target: Target,
    /// 301, 302, 303, 307 or 308: a redirect. 200: the target is sent instead. 404, 410 or 451:
    /// the target is sent instead, with this status.
    pub status: u16,
    /// It wins over a file, as every rule of Cloudflare does except a fallback.
    pub is_forced: bool,
}

/// A parameter that a query must have.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct QueryParameter {
    /// Its name, decoded.
    pub name: Vec<u8>,
    /// Its value.
    pub value: QueryValue,
}

/// The value of a query parameter.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum QueryValue {
    /// Exactly these bytes, decoded.
    Literal(Vec<u8>),
    /// Any value that is not empty, captured under this name.
    Placeholder(String),
}

impl Redirect {
    /// Whether the response is a redirect, not content.
    #[must_use]
    pub const fn is_redirect(&self) -> bool {
        matches!(self.status, 301 | 302 | 303 | 307 | 308)
    }

    /// The names of its captures, in the order of [`Captures`](super::pattern::Captures).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pattern.names().chain(self.query_names())
    }

    fn query_names(&self) -> impl Iterator<Item = &str> {
        self.query
            .iter()
            .filter_map(|parameter| match &parameter.value {
                QueryValue::Literal(_) => None,
                QueryValue::Placeholder(name) => Some(name.as_str()),
            })
    }
}

/// Parses the rules of a site. Finds all problems, not only the first; lines with problems give no
/// rule.
///
/// Netlify and Cloudflare read only the file at the root: others are left out. For kawipiko, the
/// files must be in the order of their folders, the root first.
#[must_use]
pub fn parse(files: &[SourceFile<'_>], compat: Compat) -> (Redirects, Vec<Problem>) {
    parse_within(files, compat, &mut MemoryRoom::default())
}

/// The same for one of several sites, with this room for what its rules hold.
#[must_use]
pub fn parse_within(
    files: &[SourceFile<'_>],
    compat: Compat,
    room: &mut MemoryRoom,
) -> (Redirects, Vec<Problem>) {
    let mut redirects = Redirects {
        compat,
        rules: Vec::new(),
    };
    let mut problems = Vec::new();
    room.begin_file();
    for (index, file) in files.iter().enumerate() {
        if compat != Compat::Kawipiko && file.path.contains('/') {
            continue;
        }
        let mut report = Report::new(file.path, &mut problems);
        parse_file((file, index as u16), &mut redirects, room, &mut report);
        report.finish();
    }
    if compat == Compat::Kawipiko {
        kawipiko::sort(&mut redirects.rules);
    }
    (redirects, problems)
}

fn parse_file(
    (file, index): (&SourceFile<'_>, u16),
    redirects: &mut Redirects,
    room: &mut MemoryRoom,
    report: &mut Report<'_>,
) {
    let compat = redirects.compat;
    let max = match compat {
        Compat::Cloudflare => CLOUDFLARE_REDIRECT_LINE_MAX,
        Compat::Netlify | Compat::Kawipiko => LINE_MAX,
    };
    let mut budget = Budget::default();
    for line in lines(file, max, report) {
        let rule = match compat {
            Compat::Kawipiko => kawipiko::parse(&line, file),
            Compat::Netlify | Compat::Cloudflare => parse_hosted(&line, compat),
        };
        let place = Place {
            file: index,
            line: line.number,
        };
        let rule = rule.and_then(|rule| {
            budget.spend(&rule, compat, redirects.rules.len())?;
            room.take_line(redirect_len(&rule))?;
            Ok(rule)
        });
        match rule {
            Ok(rule) => redirects.rules.push(Redirect { place, ..rule }),
            Err((column, wrong)) => report.error(line.number, column, wrong),
        }
        if room.is_used_up() {
            return;
        }
    }
}

/// How many more rules are allowed.
#[derive(Debug, Default)]
struct Budget {
    static_count: usize,
    dynamic_count: usize,
    language_count: usize,
}

impl Budget {
    /// Cloudflare counts every rule after the first dynamic one as dynamic, because their order
    /// must then be kept.
    fn spend(&mut self, rule: &Redirect, compat: Compat, count: usize) -> Result<(), Problems> {
        if count >= RULES_MAX {
            let found = format!("more than {RULES_MAX} rules");
            return Err((1, Wrong::words(found, "fewer")));
        }
        self.language_count += usize::from(!rule.languages.is_empty());
        if self.language_count > LANGUAGE_RULES_MAX {
            let found = format!("more than {LANGUAGE_RULES_MAX} rules for languages");
            return Err((1, Wrong::words(found, "fewer")));
        }
        if compat != Compat::Cloudflare {
            return Ok(());
        }
        if rule.pattern.is_static() && self.dynamic_count == 0 {
            self.static_count += 1;
            if self.static_count > CLOUDFLARE_STATIC_MAX {
                let found = format!("more than {CLOUDFLARE_STATIC_MAX} static rules");
                let wrong = Wrong::words(found, "fewer, as on Cloudflare");
                return Err((1, wrong.help(NO_LIMIT)));
            }
        } else {
            self.dynamic_count += 1;
            if self.dynamic_count > CLOUDFLARE_DYNAMIC_MAX {
                let found = format!(
                    "more than {CLOUDFLARE_DYNAMIC_MAX} rules from the first '*' or placeholder on"
                );
                let wrong = Wrong::words(found, "fewer, as on Cloudflare");
                return Err((1, wrong.help(NO_LIMIT)));
            }
        }
        Ok(())
    }
}

/// A problem and the column of the token it is in.
pub(super) type Problems = (u32, Wrong);

/// `source [name=value ...] target [status[!]] [condition ...]`.
fn parse_hosted(line: &Line<'_>, compat: Compat) -> Result<Redirect, Problems> {
    let mut tokens = line.tokens();
    let comment = tokens.iter().position(|token| token.text.starts_with('#'));
    tokens.truncate(comment.unwrap_or(tokens.len()));
    let Some((source, rest)) = tokens.split_first() else {
        return Err((1, Wrong::words("nothing", "a source")));
    };
    let for_languages = |token: &&Token<'_>| compat == Compat::Netlify && is_language(token.text);
    let is_marked = |token: &&Token<'_>| {
        is_condition(token.text)
            && token
                .text
                .starts_with(|first: char| first.is_ascii_uppercase())
    };
    let mut conditions = rest.iter().filter(is_marked);
    if let Some(condition) = conditions.find(|token| !for_languages(token)) {
        return Err((condition.column, unexpected_end(condition.text)));
    }
    let pattern = hosted_source(source.text, compat).map_err(at(source))?;
    let query_count = rest.iter().take_while(|token| is_query(token)).count();
    let (query, rest) = rest.split_at(query_count);
    let query = parse_query(query, compat)?;
    let Some((target, rest)) = rest.split_first() else {
        let end = line.column(line.text.trim_end().len());
        return Err((end, Wrong::words("nothing", "a target after the source")));
    };
    let (languages, rest) = match rest.split_last() {
        Some((last, rest)) if for_languages(&last) => (parse_languages(last)?, rest),
        _ => (Vec::new(), rest),
    };
    let mut rule = Redirect {
        place: Place::default(),
        pattern,
        query,
        languages,
        target: Target::default(),
        status: compat.default_status().unwrap_or(301),
        is_forced: false,
    };
    let names = rule.pattern.distinct_names(rule.query_names());
    let names = names.map_err(at(source))?;
    rule.target = Target::parse(target.text, Some(&names)).map_err(at(target))?;
    let mut rest = rest;
    if let Some((status, behind)) = rest.split_first() {
        (rule.status, rule.is_forced) = parse_status(status.text, compat).map_err(at(status))?;
        rest = behind;
    }
    if let Some(token) = rest.first() {
        return Err((token.column, unexpected_end(token.text)));
    }
    check_content_target(&rule).map_err(at(target))?;
    if compat == Compat::Cloudflare {
        let is_fallback = is_fallback(source.text, target.text);
        if is_fallback && rule.is_redirect() && rule.pattern.splat.is_some() {
            let wrong = Wrong::new(target.text, "a target that the rule itself does not take");
            return Err((target.column, wrong.help(REDIRECTED_FALLBACK)));
        }
        rule.is_forced = !is_fallback || rule.is_redirect();
    }
    Ok(rule)
}

/// Whether Cloudflare takes a rule for an endless loop and ignores it, as it does with
/// `/* /index.html 200`. Sites bring such rules from other hosts, and mean paths without a file: if
/// the rule hid the files, nothing of the application would load.
fn is_fallback(source: &str, target: &str) -> bool {
    let leads_to_folder = target.ends_with("/index.html") || target.ends_with("/index");
    leads_to_folder && target.starts_with('/') && (source.ends_with('/') || source.ends_with("/*"))
}

/// A rule that sends content must have it on this site.
fn check_content_target(rule: &Redirect) -> Result<(), Wrong> {
    if rule.is_redirect() {
        return Ok(());
    }
    if let Some(origin) = &rule.target.origin {
        let expected = format!("a path of this site with the status {}", rule.status);
        let wrong = Wrong::new(origin, expected);
        return Err(wrong.help("other servers are not proxied; a redirect is 301, 302, 307 or 308"));
    }
    Ok(())
}

fn hosted_source(text: &str, compat: Compat) -> Result<Pattern, Wrong> {
    let syntax = Syntax {
        has_wildcards: true,
        has_inner_placeholders: compat == Compat::Cloudflare,
        ignores_trailing_slash: compat.ignores_trailing_slash(),
    };
    let lower = text.to_ascii_lowercase();
    let schemes = [("http://", Scheme::Http), ("https://", Scheme::Https)];
    for (prefix, scheme) in schemes {
        if lower.starts_with(prefix) {
            if compat == Compat::Cloudflare {
                let wrong = Wrong::new(text, "a path: Cloudflare has no sources with a host");
                return Err(wrong.help("use '--compat netlify' for rules that name hosts"));
            }
            let pattern = parse_host_and_path(text, &text[prefix.len()..], syntax)?;
            return Ok(Pattern {
                scheme: Some(scheme),
                ..pattern
            });
        }
    }
    if text.starts_with("./") || text.starts_with("://") {
        let wrong = Wrong::new(text, "a path that starts with '/', or a URL");
        return Err(wrong.help("this is a source of kawipiko: use '--compat kawipiko'"));
    }
    Pattern::parse_path(text, syntax)
}

pub(super) fn parse_host_and_path(
    text: &str,
    rest: &str,
    syntax: Syntax,
) -> Result<Pattern, Wrong> {
    let offset = text.len() - rest.len();
    let slash = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(slash);
    let move_to = |offset| move |wrong| super::pattern::shift(wrong, text, offset);
    let host = Pattern::parse_host(host, false).map_err(move_to(offset))?;
    let path = if path.is_empty() { "/" } else { path };
    let pattern = Pattern::parse_path(path, syntax).map_err(move_to(offset + slash))?;
    Ok(Pattern {
        host: Some(host),
        ..pattern
    })
}

/// Whether a token between source and target is a query parameter.
fn is_query(token: &Token<'_>) -> bool {
    let is_target = token.text.starts_with('/') || token.text.contains("://");
    !is_target && token.text.contains('=')
}

fn parse_query(tokens: &[Token<'_>], compat: Compat) -> Result<Vec<QueryParameter>, Problems> {
    let mut query: Vec<QueryParameter> = Vec::new();
    for token in tokens {
        if compat == Compat::Cloudflare {
            let wrong = Wrong::new(token.text, "a target: Cloudflare matches no queries");
            return Err((
                token.column,
                wrong.help("use '--compat netlify' for such rules"),
            ));
        }
        let parameter = parse_parameter(token.text).map_err(at(token))?;
        if query.iter().any(|other| other.name == parameter.name) {
            let found = format!("'{}' twice", String::from_utf8_lossy(&parameter.name));
            return Err((token.column, Wrong::words(found, "each parameter once")));
        }
        query.push(parameter);
        if query.len() > QUERY_PARAMETERS_MAX {
            let expected = format!("at most {QUERY_PARAMETERS_MAX}");
            return Err((
                token.column,
                Wrong::words("more query parameters", expected),
            ));
        }
    }
    query.sort();
    Ok(query)
}

fn parse_parameter(text: &str) -> Result<QueryParameter, Wrong> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if name.is_empty() {
        return Err(Wrong::new(
            text,
            "a query parameter, 'name=value' or 'name=:placeholder'",
        ));
    }
    let value = match value.strip_prefix(':') {
        Some(name) if !name.is_empty() && name_len(name) == name.len() => {
            QueryValue::Placeholder(name.to_owned())
        }
        _ => QueryValue::Literal(percent::decode_query(value.as_bytes()).into_owned()),
    };
    let name = percent::decode_query(name.as_bytes()).into_owned();
    Ok(QueryParameter { name, value })
}

pub(super) fn parse_status(text: &str, compat: Compat) -> Result<(u16, bool), Wrong> {
    let statuses = compat.statuses();
    let (digits, is_forced) = match text.strip_suffix('!') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let status = digits
        .parse()
        .ok()
        .filter(|status| statuses.contains(status));
    let Some(status) = status else {
        let list: Vec<String> = statuses.iter().map(u16::to_string).collect();
        return Err(Wrong::new(text, format!("a status: {}", list.join(", "))));
    };
    if is_forced && compat != Compat::Netlify {
        let wrong = Wrong::new("!", "a status without '!'").at(text, digits.len());
        return Err(match compat {
            Compat::Cloudflare => wrong.help("on Cloudflare every rule wins over files"),
            _ => wrong.help("use '--compat netlify' for rules that win over files"),
        });
    }
    Ok((status, is_forced))
}

/// Whether a token is one of Netlify's conditions on the client, in upper or lower case. Before the
/// target it may be a parameter of the query.
fn is_condition(text: &str) -> bool {
    let name = text.split_once('=').map_or("", |(name, _)| name);
    let mut conditions = ["country", "language", "role", "cookie"].iter();
    conditions.any(|condition| name.eq_ignore_ascii_case(condition))
}

fn is_language(text: &str) -> bool {
    let name = text.split_once('=').map_or("", |(name, _)| name);
    name.eq_ignore_ascii_case("language")
}

/// `Language=en,zh-hant`.
fn parse_languages(token: &Token<'_>) -> Result<Vec<Vec<u8>>, Problems> {
    let (_, list) = token.text.split_once('=').unwrap_or_default();
    let list = list.to_ascii_lowercase();
    let languages: Vec<Vec<u8>> = list.split(',').map(|it| it.as_bytes().to_vec()).collect();
    let expected = match languages.len() > LANGUAGES_MAX {
        true => format!("at most {LANGUAGES_MAX} languages"),
        false if languages.iter().all(|it| language::is_range(it)) => return Ok(languages),
        false => "languages such as 'Language=en,zh-hant'".into(),
    };
    Err((token.column, Wrong::new(token.text, expected)))
}

fn unexpected_end(text: &str) -> Wrong {
    if is_language(text) {
        let expected = "a condition on languages at the end of a rule of Netlify's, once";
        return Wrong::new(text, expected)
            .help("with '--compat netlify', write it after the status");
    }
    if is_condition(text) {
        let expected = "no condition on country, role or cookie";
        let help = "answers depend on the URL, and on the language with 'Language='; remove the rule or \
            its condition";
        return Wrong::new(text, expected).help(help);
    }
    Wrong::new(text, "the end of the line after the status")
}

/// Locates a problem at a token.
pub(super) fn at(token: &Token<'_>) -> impl Fn(Wrong) -> Problems {
    let column = token.column;
    move |wrong| (column, wrong)
}

const REDIRECTED_FALLBACK: &str = "Cloudflare leaves such a rule out; '/* /index.html 200' \
     answers what no file is for";
const NO_LIMIT: &str = "'--compat netlify' has no such limit, but lets files win over rules";
