//! `gannet explain`: how a URL is answered and why, and whether a running server agrees.

mod access;
mod forms;
mod live;
mod ruled;
mod server;
mod unserved;

pub use server::Server;

use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::RedirectTable;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::ArgMatches;
use gannet_archive::{Entry, SectionKind};
use gannet_content::answer::{
    CACHE_NO_CACHE, VARY_BY_LANGUAGE, VARY_BY_TYPE, private_cache_control,
};
use gannet_content::error_page::own_name;
use gannet_content::policy::cache::{Lifetimes, Reason};
use gannet_content::policy::defaults::DefaultFields;
use gannet_content::policy::dictionary;
use gannet_content::routing::{is_for_navigation, is_navigation};
use gannet_content::rules::headers::may_be_cached;
use gannet_content::rules::language::first_language;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_http::semantics::coding::{Coding, CodingSet, accept_encoding};
use gannet_http::semantics::fields::Fields;
use gannet_http::semantics::status::Status;
use gannet_server::FAVICON;
use gannet_site::archive::{self, SiteError};
use gannet_site::offline::{DirectoryPlace, Located, Place, RequestUrl, Site, SiteOptions};
use gannet_site::target::{Target, url};

use self::access::{challenge, is_protected, protect};
use self::unserved::{refused, unnamed};
use super::failure::of_why_not;
use super::part::{self, Part};
use super::{check_trust, host_entries, judge, text, texts};
use crate::command_line::site_arguments;
use crate::command_line::values::Compression;
use crate::messages::{Failure, printable};
use crate::quantities::size;

/// The codings that browsers accept over HTTPS; used if the request has no such field.
const BROWSERS_CODINGS: &str = "gzip, deflate, br, zstd";

/// What to explain.
#[derive(Clone, Debug)]
pub struct ExplainOptions {
    /// A URL, or its path.
    pub url: String,
    /// The site.
    pub site: SiteOptions,
    /// It is a directory that has an entry for each of many hosts.
    pub has_hosts: bool,
    /// Fields of the request, `name: value`.
    pub fields: Vec<String>,
    /// Where compressed text of a directory comes from.
    pub compression: Compression,
    /// A running server to compare with.
    pub server: Option<Server>,
}

/// What a content is chosen for.
struct ContentRequest<'a> {
    fields: &'a [(String, String)],
    is_https: bool,
    /// The host that is asked, with its port if that is named; this machine's for a path alone.
    authority: &'a str,
    /// No rule for fields forbids to code content while it is served.
    may_code: bool,
    /// Where compressed text of a directory comes from.
    compression: &'a Compression,
    /// What is here of a release that is served on demand.
    part: Option<&'a Part>,
}

/// A form in which a content can be sent.
struct Variant {
    coding: Coding,
    len: u64,
    /// The only coding that is stored, if this variant is decompressed from it.
    stored_as: Option<&'static str>,
    /// The dictionary that it needs, in words.
    dictionary: Option<String>,
    /// The client has that dictionary, and accepts the coding.
    is_coded_for_client: bool,
    /// Whether it is here, if the release is served on demand.
    place: &'static str,
}

/// A field of the answer and where it comes from.
struct Field {
    name: String,
    value: String,
    origin: String,
}

/// The expected answer.
#[derive(Default)]
struct Answer {
    status: u16,
    fields: Vec<Field>,
    /// A server codes the content after a first request; later answers have another length and tag.
    is_made_on_the_fly: bool,
    /// The server says that there are several codings only if it makes some.
    is_vary_of_made_ones: bool,
}

/// Returns 0, or 1 if a running server's answer differs from the expected one.
///
/// # Errors
/// As for [`explain`], or a flag has no effect.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let server = matches.get_one::<OsString>("server");
    let cacert = matches.get_one::<OsString>("cacert").map(PathBuf::from);
    let is_insecure = matches.get_flag("insecure");
    for (name, is_given) in [("insecure", is_insecure), ("cacert", cacert.is_some())] {
        if is_given && server.is_none() {
            return Err(
                Failure::usage(format!("--{name} has no effect without --server"))
                    .help("add --server URL, or leave it out"),
            );
        }
    }
    check_trust(is_insecure, cacert.as_ref())?;
    let options = ExplainOptions {
        url: text(matches, "url").to_string_lossy().into_owned(),
        site: site_arguments::options("explain", matches, !matches.get_flag("no-listing"))?,
        has_hosts: matches.get_flag("hosts"),
        fields: texts(matches, "field"),
        compression: site_arguments::compression("explain", matches)?,
        server: server.map(|it| Server {
            address: it.to_string_lossy().into_owned(),
            is_insecure,
            cacert,
        }),
    };
    judge(|out| explain(&options, out))
}

/// Explains; returns whether a running server answers differently.
///
/// # Errors
/// The URL cannot be parsed, the site or the server cannot be reached, or `out` cannot be written.
pub fn explain(options: &ExplainOptions, out: &mut dyn Write) -> Result<bool, Failure> {
    let mut target = Target::undecoded(&options.url).map_err(|why| {
        Failure::new("explain", &options.url, why)
            .as_usage()
            .help("write it as /PATH or http://HOST/PATH")
    })?;
    let is_taken = target.decode();
    let server = options.server.as_ref().map(|it| it.or_scheme_of(&target));
    if let Some(server) = &server {
        // The answer may depend on both.
        target.is_https = server.is_secure();
        target.host = target.host.or_else(|| server.authority());
    }
    let mut request = Vec::new();
    for field in &options.fields {
        let Some((name, value)) = field.split_once(':') else {
            return Err(
                Failure::usage(format!("'{}' is not a field", printable(field)))
                    .help("write it as NAME: VALUE"),
            );
        };
        request.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let host = host_of(&target, &request);
    let path = options.site.path.clone();
    let entry = match options.has_hosts {
        false => Some((String::new(), path)),
        true => host_entries::of(&options.site, &host)?,
    };
    let site = match entry {
        None => None,
        Some((name, path)) => {
            let own = options.site.clone();
            let (site, part) = part::open(&SiteOptions { path, ..own })?;
            Some((name, site, part))
        }
    };
    let mut text = String::new();
    if !request.iter().any(|(name, _)| name == "accept-encoding") {
        request.push(("accept-encoding".into(), BROWSERS_CODINGS.into()));
        line(
            &mut text,
            format!(
                "like a browser, with 'accept-encoding: {BROWSERS_CODINGS}' (to change it: -H \
                 'accept-encoding: identity')"
            ),
        );
    }
    let answer = match (&site, is_taken) {
        (_, false) => refused(&target, &mut text),
        (None, true) => unnamed(&target, &host, &mut text),
        (Some((entry, site, part)), true) => {
            if options.has_hosts {
                line(&mut text, format!("answered by the entry '{entry}'"));
            }
            let with = (&options.compression, part.as_ref());
            foresee(site, &target, &request, with, &mut text)
        }
    };
    let mut differs = false;
    if let Some(server) = &server {
        let got = server::ask(server, &target, &request)?;
        differs = got.compare(&answer, &mut text);
        got.write_http3(&authority_of(&target, &request), &mut text);
    }
    let written = out.write_all(text.as_bytes());
    written.map_err(SiteError::Output)?;
    Ok(differs)
}

fn line(text: &mut String, words: impl AsRef<str>) {
    text.push_str(&printable(words.as_ref()));
    text.push('\n');
}

fn foresee(
    site: &Site,
    target: &Target,
    request: &[(String, String)],
    (compression, part): (&Compression, Option<&Part>),
    text: &mut String,
) -> Answer {
    let host = host_of(target, request);
    let asked = RequestUrl {
        host: host_number(site, &host),
        host_name: &host,
        scheme: scheme(target),
        path: &target.path,
        query: target.query.as_deref(),
        is_navigation: navigates(request),
        language: language(request),
    };
    line(text, format!("GET {}", target.path_and_query()));
    if let Some(answer) = challenge(site, &asked, request, text) {
        return answer;
    }
    let mut steps = Vec::new();
    let located = site.locate_and_report(asked, &mut |step| steps.push(step));
    for step in steps {
        line(text, format!("  {step}"));
    }
    if let Some(why) = site.why_not(&target.path) {
        let flag = of_why_not(why).map_or(String::new(), |flag| format!("; {flag}"));
        line(text, format!("  {why}{flag}"));
    }
    let authority = authority_of(target, request);
    let to = ContentRequest {
        fields: request,
        is_https: target.is_https,
        authority: match authority.is_empty() {
            true => "localhost",
            false => &authority,
        },
        may_code: compression.is_made && !forbids_coding(site, target, &asked),
        compression,
        part,
    };
    let mut target = target.clone();
    let mut answer = located_answer(site, (&mut target, &asked), (&located, &to), request, text);
    if answer.status >= 400 {
        // Neither conditions nor ranges apply to an error's page.
        let unused = ["accept-ranges", "etag", "last-modified"];
        answer
            .fields
            .retain(|it| !unused.contains(&it.name.as_str()));
        if answer.fields.iter().any(|it| it.name == "cache-control") {
            answer.set("cache-control", CACHE_NO_CACHE, "errors are not cached");
        }
    }
    let stands_in =
        matches!(located, Located::File(..)) && !site.has_content(asked.host, asked.path);
    narrow(&asked, stands_in, request, &mut answer);
    // The built-in icon replaces the site's own.
    let may_cache = located != Located::Icon && !stands_in && may_be_cached(answer.status);
    let is_protected = is_protected(site, &asked);
    // Only content can be cached, by the client alone.
    let may_cache = may_cache && (!is_protected || answer.status < 300);
    ruled::rules(site, (&target, &host), may_cache, &mut answer, text);
    let has_file = may_cache && matches!(located, Located::File(..));
    let redirects = site.rules(asked.host).redirects();
    let varies = |it: &RedirectTable| {
        it.varies_by_language(&asked.rule_input(), has_file, &Steps::default())
    };
    if redirects.is_some_and(varies) {
        answer.vary_by(VARY_BY_LANGUAGE, "a rule of _redirects is for languages");
    }
    if is_protected {
        protect(&mut answer);
    }
    describe(&answer, text);
    answer
}

/// The answer with what is at the path, before rules change it. Another form's path becomes that of the target.
fn located_answer(
    site: &Site,
    (target, asked): (&mut Target, &RequestUrl<'_>),
    (located, to): (&Located, &ContentRequest<'_>),
    request: &[(String, String)],
    text: &mut String,
) -> Answer {
    let mut answer = Answer::default();
    match located {
        Located::File(number, status) => {
            answer.status = *status;
            let is_own = site.has_content(asked.host, asked.path) && *status == 200;
            let forms = match is_own {
                true => forms::of(site, asked, *number),
                false => Vec::new(),
            };
            let number = forms::choose(site, (asked, *number), &forms, request, text);
            if let Some(form) = forms.iter().find(|it| it.number == number) {
                target.path.clone_from(&form.path);
            }
            content(site, number, to, &mut answer, text);
            if !forms.is_empty() {
                answer.vary_by(VARY_BY_TYPE, "other forms of it are beside it");
            }
        }
        Located::Missing(Some(number), status) => {
            answer.status = *status;
            content(site, *number, to, &mut answer, text);
        }
        Located::Icon => icon(&mut answer),
        Located::Missing(None, status) => answer.status = *status,
        Located::Listing(status) => answer.status = *status,
        Located::Forbidden => {
            answer.status = 403;
            let has = |name: &str| {
                let path = format!("/{name}").into_bytes();
                let mut files = site.files().iter();
                files.any(|it| it.host == asked.host && it.url == path)
            };
            if let Some(page) = own_name(Status::FORBIDDEN, has) {
                line(text, format!("  the site's own page '{page}' is sent"));
            }
        }
        Located::Redirect {
            status,
            location,
            rule,
        } => {
            answer.status = *status;
            let origin = match rule {
                Some(rule) => site.rules(asked.host).place_of_redirect(*rule),
                None => "a slash is missing at the end of a folder".into(),
            };
            // The query is kept if only a slash is added; a rule has already decided about it.
            let value = match (&target.query, rule) {
                (Some(query), None) => format!("{location}?{query}"),
                _ => location.clone(),
            };
            answer.set("location", &value, &origin);
        }
    }
    answer
}

/// Writes the expected status and fields.
fn describe(answer: &Answer, text: &mut String) {
    line(text, "");
    line(text, format!("status {}", answer.status));
    for Field {
        name,
        value,
        origin,
    } in &answer.fields
    {
        line(text, format!("{name}: {value}"));
        line(text, format!("    {origin}"));
    }
}

/// Whether a browser would send this request to navigate to a page.
fn navigates(request: &[(String, String)]) -> bool {
    Fields::parse(section_of(request).as_bytes()).is_ok_and(|fields| is_navigation(&fields))
}

/// The first of the client's languages.
fn language(request: &[(String, String)]) -> &str {
    let mut lines = request.iter();
    let line = lines.find(|(name, _)| name.eq_ignore_ascii_case("accept-language"));
    let first = line.map_or(&b""[..], |(_, value)| first_language(value.as_bytes()));
    str::from_utf8(first).unwrap_or_default()
}

/// Fields as HTTP/1 sends them.
fn section_of(fields: &[(String, String)]) -> String {
    let lines = fields.iter();
    lines
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect()
}

/// Shortens how long the answer may be cached, where this request requires it.
fn narrow(
    asked: &RequestUrl<'_>,
    stands_in: bool,
    request: &[(String, String)],
    answer: &mut Answer,
) {
    if stands_in && is_for_navigation(asked.path, asked.is_navigation) {
        let why = "without navigation, the page does not answer for such a name";
        answer.set("cache-control", CACHE_NO_CACHE, why);
    }
    let has_authorization = request.iter().any(|(name, _)| name == "authorization");
    let mut fields = answer.fields.iter();
    let value = fields.find(|field| field.name == "cache-control");
    let private = value.and_then(|field| private_cache_control(field.value.as_bytes()));
    if let Some(value) = private.filter(|_| has_authorization) {
        let why = "the request has authorization, which only a proxy in front can check";
        answer.set("cache-control", value, why);
    }
}

/// The server's own icon.
fn icon(answer: &mut Answer) {
    answer.status = 200;
    let len = FAVICON.len().to_string();
    let origin = "of the built-in icon (disable: --no-favicon)";
    answer.set("content-length", &len, origin);
    answer.set("content-type", "image/png", origin);
    for (name, value) in DefaultFields::default().of_icon() {
        answer.set(name, &value, origin);
    }
}

/// The requested host: a field `host` takes precedence over the URL.
fn host_of(target: &Target, request: &[(String, String)]) -> String {
    let host = authority_of(target, request);
    host.split(':').next().unwrap_or_default().to_owned()
}

/// The host that is requested, with its port if that is named.
fn authority_of(target: &Target, request: &[(String, String)]) -> String {
    let field = request.iter().find(|(name, _)| name == "host");
    let typed = field
        .map(|(_, value)| value.clone())
        .or_else(|| target.host.clone());
    typed.unwrap_or_default().to_ascii_lowercase()
}

fn host_number(site: &Site, host: &str) -> u16 {
    let Place::Archive(archive) = site.place() else {
        return 0;
    };
    archive::host_number(archive.file().archive(), host.as_bytes())
}

impl Answer {
    /// Another request may get another answer, depending on a field.
    fn vary_by(&mut self, field: &str, origin: &str) {
        let known = self.fields.iter().find(|field| field.name == "vary");
        let value = match known {
            Some(known) => format!("{}, {field}", known.value),
            None => field.to_owned(),
        };
        self.set("vary", &value, origin);
        self.is_vary_of_made_ones = false;
    }

    fn set(&mut self, name: &str, value: &str, origin: &str) {
        self.fields.retain(|field| field.name != name);
        self.fields.push(Field {
            name: name.to_owned(),
            value: value.to_owned(),
            origin: origin.to_owned(),
        });
    }
}

/// Lists the variants of a file and the one that is sent, and sets its fields.
fn content(
    site: &Site,
    number: usize,
    asked: &ContentRequest<'_>,
    answer: &mut Answer,
    text: &mut String,
) {
    let accepted = accept_encoding(
        asked
            .fields
            .iter()
            .filter(|(name, _)| name == "accept-encoding")
            .map(|(_, value)| value.as_bytes()),
    );
    line(text, "");
    line(text, format!("file {}", site.shown(number)));
    let (mut variants, block) = match site.place() {
        Place::Archive(archive) => match archive.entry(number) {
            Some(entry) => of_archive(&entry, accepted, asked),
            None => return,
        },
        Place::Directory(directory) => live::of_directory(directory, number, accepted, asked),
    };
    let made = match site.place() {
        Place::Directory(directory) if asked.may_code => {
            answer.is_vary_of_made_ones = variants.len() == 1;
            live::made_on_the_fly(directory, number, accepted, &variants)
        }
        _ => None,
    };
    variants.sort_by_key(|variant| variant.len);
    let place = |coding: Coding| variants.iter().position(|it| it.coding == coding);
    let coded = variants.iter().position(|it| it.is_coded_for_client);
    let chosen = variants.iter().position(|it| accepted.contains(it.coding));
    let chosen = coded.or(chosen);
    let is_accepted = chosen.is_some();
    let chosen = chosen.or_else(|| place(Coding::Identity));
    for (position, variant) in variants.iter().enumerate() {
        let why = match chosen {
            Some(chosen) if position == chosen && !is_accepted => "sent: no coding is accepted",
            Some(chosen) if position == chosen => "sent: the smallest accepted",
            _ if variant.dictionary.is_some() => "not for this request",
            _ if !accepted.contains(variant.coding) => "not accepted by the client",
            _ => "larger than the one sent",
        };
        let (name, len) = (variant.coding.name(), size(variant.len));
        let how = match (variant.stored_as, &variant.dictionary) {
            (Some(coding), _) => format!(", decompressed from the {coding}"),
            (_, Some(dictionary)) => format!(", needs {dictionary}"),
            _ => String::new(),
        };
        let place = variant.place;
        line(text, format!("  {name:<9}{len:>10}  {why}{how}{place}"));
    }
    if let Some(coding) = made {
        answer.is_made_on_the_fly = true;
        let name = coding.name();
        line(
            text,
            format!(
                "  {name:<9}{:>10}  made by the server after a first request",
                "-"
            ),
        );
    }
    for (name, value) in block {
        let origin = match (name.as_str(), site.place()) {
            ("cache-control", _) => reason_of(site, number).to_string(),
            _ => origin(&name, site.place()),
        };
        answer.set(&name, &value, &origin);
    }
}

/// Names, in lower case, and values of a prepared field block.
fn lines_of(block: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(block);
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect()
}

fn of_archive(
    entry: &Entry<'_>,
    accepted: CodingSet,
    asked: &ContentRequest<'_>,
) -> (Vec<Variant>, Vec<(String, String)>) {
    let coded = with_dictionary(entry, asked);
    let variants = entry.dictionary_variants().chain(entry.variants());
    let variants = variants.map(|variant| Variant {
        coding: variant.coding(),
        len: variant.blob_len(),
        stored_as: variant.stored_as().map(Coding::name),
        dictionary: variant.dictionary().map(|dictionary| {
            let (path, len) = (url(dictionary.path), size(dictionary.len));
            format!("the dictionary '{}', {len}", printable(&path))
        }),
        is_coded_for_client: coded.is_some_and(|coded| coded.number() == variant.number()),
        place: asked
            .part
            .map_or("", |it| it.place(variant.stored_blob_number())),
    });
    let chosen = coded.or_else(|| entry.select(accepted));
    let chosen = chosen.or_else(|| entry.select(CodingSet::IDENTITY));
    let block = chosen.map(|variant| lines_of(&variant.h1().whole()));
    (variants.collect(), block.unwrap_or_default())
}

/// The variant for a client that has a dictionary.
fn with_dictionary<'e>(
    entry: &Entry<'e>,
    asked: &ContentRequest<'_>,
) -> Option<gannet_archive::Variant<'e>> {
    let section = section_of(asked.fields);
    let request = dictionary::Request {
        fields: &Fields::parse(section.as_bytes()).ok()?,
        is_https: asked.is_https,
        authority: Some(asked.authority.as_bytes()),
    };
    dictionary::select(entry, request, [].into_iter())
}

fn directory_url(directory: &DirectoryPlace, number: usize) -> Vec<u8> {
    let files = directory.files();
    files
        .get(number)
        .map(|file| file.url.clone())
        .unwrap_or_default()
}

/// The reason for the cache lifetime of a file.
fn reason_of(site: &Site, number: usize) -> Reason {
    let file = &site.files()[number];
    let archive = match site.place() {
        Place::Archive(archive) => archive.file().archive(),
        Place::Directory(directory) => return live_reason(directory, number),
    };
    let text = archive.section(SectionKind::Lifetimes).unwrap_or_default();
    let lifetimes = Lifetimes::parse(str::from_utf8(text).unwrap_or_default());
    let url = String::from_utf8_lossy(&file.url);
    let shown = match archive::host_name(archive, file.host) {
        "" => url.to_string(),
        host => format!("//{host}{url}"),
    };
    if let Some(found) = lifetimes.get(&shown) {
        return found;
    }
    let reason = Reason::of_name(url.trim_start_matches('/'), &file.content_type);
    match reason.pattern(&shown) {
        Some(pattern) if lifetimes.changed.contains(&pattern) => Reason::ChangedBeside,
        _ => reason,
    }
}

/// The reason in a live directory, as long as no content has changed.
fn live_reason(directory: &DirectoryPlace, number: usize) -> Reason {
    let url = directory_url(directory, number);
    let name = String::from_utf8_lossy(&url);
    let name = name.trim_start_matches('/');
    Reason::of_name(name, gannet_content::mime::content_type(&url))
}

/// The origin of a field of a representation.
fn origin(name: &str, place: &Place) -> String {
    let is_archive = matches!(place, Place::Archive(_));
    let words = match name {
        "content-length" => "length of the bytes sent",
        "content-type" => "suffix of the file name",
        "content-encoding" => "coding of the bytes sent",
        "etag" if is_archive => "BLAKE3 of the bytes sent",
        "etag" => "time, length and inode of the file",
        "last-modified" => "modification time of the file",
        "vary" => "there are several codings",
        "use-as-dictionary" => "browsers keep it as a dictionary for its next version",
        "accept-ranges" => "ranges are supported",
        "x-content-type-options" => "always sent",
        _ if is_archive => "packed into the archive",
        _ => "a default of the server",
    };
    words.to_owned()
}

fn scheme(target: &Target) -> Scheme {
    match target.is_https {
        true => Scheme::Https,
        false => Scheme::Http,
    }
}

/// Whether rules for fields keep a server from coding a file on the fly.
fn forbids_coding(site: &Site, target: &Target, asked: &RequestUrl<'_>) -> bool {
    let own = site.rules(asked.host);
    let Some(table) = own.headers() else {
        return false;
    };
    // Where the fields differ from request to request, any rule counts.
    if table.has_hosts() || !site.has_content(asked.host, asked.path) {
        return table.headers().may_forbid_coding();
    }
    let request = RuleInput {
        prefix: b"",
        scheme: scheme(target),
        host: b"",
        path: &target.path,
        query: None,
        language: b"",
    };
    table
        .changes(&request, &Steps::default())
        .unwrap_or_default()
        .forbid_coding()
}
