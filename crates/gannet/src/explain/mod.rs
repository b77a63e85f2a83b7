//! `gannet explain`: what a URL comes to and why, and whether a running server agrees.

mod server;

pub use server::Server;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use gannet_archive::Entry;
use gannet_content::answer::{CACHE_IMMUTABLE, CACHE_REVALIDATE, Resource, ready_fields};
use gannet_content::directory::sidecars::{SIDECARS, is_usable, may_have_sidecars};
use gannet_content::policy::cache::{self, Reason};
use gannet_content::policy::security::{self, AnswerKind, SecurityOptions};
use gannet_content::rules::headers::FieldOperation;
use gannet_content::rules::matcher::Request;
use gannet_content::rules::pattern::Scheme;
use gannet_content::validators::{LiveFile, last_modified, live_tag};
use gannet_http::semantics::coding::{Coding, CodingSet, accept_encoding};

use crate::archive_commands::{self, CommandError};
use crate::messages::{Failure, printable};
use crate::offline::{Asked, DirectoryPlace, Located, Place, Site, SiteOptions};
use crate::pack::size;
use crate::target::Target;

/// What to explain.
#[derive(Clone, Debug)]
pub struct ExplainOptions {
    /// A URL, or its path.
    pub url: String,
    /// The site.
    pub site: SiteOptions,
    /// Fields of the request, `name: value`.
    pub fields: Vec<String>,
    /// A running server to ask as well.
    pub server: Option<Server>,
}

/// A form in which a content can be sent.
struct Variant {
    coding: Coding,
    len: u64,
    /// It is stored as gzip alone.
    is_inflated: bool,
}

/// A field of the answer and where it comes from.
struct Field {
    name: String,
    value: String,
    origin: String,
}

/// An answer as it is foreseen.
#[derive(Default)]
struct Answer {
    status: u16,
    fields: Vec<Field>,
}

/// Explains, and gives whether a running server answers differently.
///
/// # Errors
/// The URL cannot be read, the site or the server cannot be reached, or `out` takes no more.
pub fn explain(options: &ExplainOptions, out: &mut dyn Write) -> Result<bool, Failure> {
    let mut target = Target::parse(&options.url)
        .map_err(|why| Failure::new("explain", &options.url, why).as_usage())?;
    if let Some(server) = &options.server {
        // Rules for one scheme see the one that is spoken.
        target.is_https = server.is_secure();
    }
    let mut request = Vec::new();
    for field in &options.fields {
        let Some((name, value)) = field.split_once(':') else {
            return Err(
                Failure::usage(format!("'{}' is no field", printable(field)))
                    .help("write it as NAME: VALUE"),
            );
        };
        request.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let site = Site::open(&options.site)?;
    let mut text = String::new();
    let answer = foresee(&site, &target, &request, &mut text);
    let mut differs = false;
    if let Some(server) = &options.server {
        let got = server::ask(server, &target, &request)?;
        differs = compare(&answer, &got, &mut text);
    }
    let written = out.write_all(text.as_bytes());
    written.map_err(CommandError::Output)?;
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
    text: &mut String,
) -> Answer {
    let host = host_of(target, request);
    let asked = Asked {
        host: host_number(site, &host),
        host_name: &host,
        scheme: scheme(target),
        path: &target.path,
        query: target.query.as_deref(),
    };
    line(text, format!("GET {}", target.path_and_query()));
    let mut steps = Vec::new();
    let located = site.locate_and_tell(asked, &mut |step| steps.push(step));
    for step in steps {
        line(text, format!("  {step}"));
    }
    if let Some(why) = site.why_not(&target.path) {
        line(text, format!("  {why}"));
    }
    let mut answer = Answer::default();
    match located {
        Located::File(number, status) => {
            answer.status = status;
            content(site, number, request, &mut answer, text);
        }
        Located::Missing(Some(number)) => {
            answer.status = 404;
            content(site, number, request, &mut answer, text);
        }
        Located::Missing(None) => answer.status = 404,
        Located::Listing => answer.status = 200,
        Located::Forbidden => answer.status = 403,
        Located::Redirect {
            status,
            location,
            rule,
        } => {
            answer.status = status;
            let origin = match rule {
                Some(rule) => site.rules(asked.host).place_of_redirect(rule),
                None => "a slash is missing at the end of a folder".into(),
            };
            // The query goes along with what only adds a slash; a rule has decided already.
            let value = match (&target.query, rule) {
                (Some(query), None) => format!("{location}?{query}"),
                _ => location,
            };
            answer.set("location", &value, &origin);
        }
    }
    rules(site, target, &host, &mut answer);
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
    answer
}

/// The host that is asked for: a field `host` wins over the URL.
fn host_of(target: &Target, request: &[(String, String)]) -> String {
    let field = request.iter().find(|(name, _)| name == "host");
    let typed = field
        .map(|(_, value)| value.clone())
        .or_else(|| target.host.clone());
    let host = typed.unwrap_or_default().to_ascii_lowercase();
    host.split(':').next().unwrap_or_default().to_owned()
}

fn host_number(site: &Site, host: &str) -> u16 {
    let Place::Archive(archive) = site.place() else {
        return 0;
    };
    archive_commands::host_number(archive.file().archive(), host.as_bytes())
}

impl Answer {
    fn set(&mut self, name: &str, value: &str, origin: &str) {
        self.fields.retain(|field| field.name != name);
        self.fields.push(Field {
            name: name.to_owned(),
            value: value.to_owned(),
            origin: origin.to_owned(),
        });
    }
}

/// The variants of a file, the one that is sent, and its fields.
fn content(
    site: &Site,
    number: usize,
    request: &[(String, String)],
    answer: &mut Answer,
    text: &mut String,
) {
    let file = &site.files()[number];
    let accepted = accept_encoding(
        request
            .iter()
            .filter(|(name, _)| name == "accept-encoding")
            .map(|(_, value)| value.as_bytes()),
    );
    line(text, "");
    line(text, format!("file {}", site.shown(number)));
    let (mut variants, block) = match site.place() {
        Place::Archive(archive) => match archive.entry(number) {
            Some(entry) => of_archive(&entry, accepted),
            None => return,
        },
        Place::Directory(directory) => of_directory(directory, number, accepted),
    };
    variants.sort_by_key(|variant| variant.len);
    let place = |coding: Coding| variants.iter().position(|it| it.coding == coding);
    let chosen = variants.iter().position(|it| accepted.contains(it.coding));
    let is_accepted = chosen.is_some();
    let chosen = chosen.or_else(|| place(Coding::Identity));
    for (position, variant) in variants.iter().enumerate() {
        let why = match chosen {
            Some(chosen) if position == chosen && !is_accepted => "sent: none is accepted",
            Some(chosen) if position == chosen => "sent: the smallest that is accepted",
            _ if !accepted.contains(variant.coding) => "not accepted by the request",
            _ => "larger than what is sent",
        };
        let (name, len) = (variant.coding.name(), size(variant.len));
        let how = match variant.is_inflated {
            true => ", inflated from the gzip",
            false => "",
        };
        line(text, format!("  {name:<9}{len:>10}  {why}{how}"));
    }
    for (name, value) in block {
        let origin = match (name.as_str(), site.place()) {
            ("cache-control", Place::Archive(_)) => {
                let reason = lifetime_reason(&file.url, &file.content_type);
                packed_lifetime(reason, &value).to_owned()
            }
            _ => origin(&name, &file.url, &file.content_type, site.place()),
        };
        answer.set(&name, &value, &origin);
    }
}

/// Names and values of ready field lines.
fn lines_of(block: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(block);
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn of_archive(entry: &Entry<'_>, accepted: CodingSet) -> (Vec<Variant>, Vec<(String, String)>) {
    let coding = |variant: &gannet_archive::Variant<'_>| {
        Coding::parse(variant.coding().name().as_bytes()).unwrap_or(Coding::Identity)
    };
    let variants = entry.variants().map(|variant| Variant {
        coding: coding(&variant),
        len: variant.blob_len(),
        is_inflated: variant.is_inflated(),
    });
    let chosen = entry.variants().find(|it| accepted.contains(coding(it)));
    let chosen = chosen.or_else(|| entry.variants().find(|it| coding(it) == Coding::Identity));
    let block = chosen.map(|variant| lines_of(&variant.h1().whole()));
    (variants.collect(), block.unwrap_or_default())
}

fn of_directory(
    directory: &DirectoryPlace,
    number: usize,
    accepted: CodingSet,
) -> (Vec<Variant>, Vec<(String, String)>) {
    let Some(path) = directory.path_of(number) else {
        return Default::default();
    };
    let live = |path: &std::path::Path| {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Some(LiveFile {
            mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            len: metadata.len(),
            identity: (metadata.dev(), metadata.ino()),
        })
    };
    let Some(original) = live(&path) else {
        return Default::default();
    };
    let mut found = vec![(Coding::Identity, original)];
    let url = &directory_url(directory, number);
    if may_have_sidecars(url, original.len) {
        for sidecar in SIDECARS {
            let mut name = path.clone().into_os_string();
            name.push(String::from_utf8_lossy(sidecar.suffix).as_ref());
            let Some(file) = live(std::path::Path::new(&name)) else {
                continue;
            };
            if is_usable((file.mtime_ns, file.len), (original.mtime_ns, original.len)) {
                found.push((sidecar.coding, file));
            }
        }
    }
    found.sort_by_key(|(_, file)| file.len);
    let is_coded = found.len() > 1;
    let chosen = found.iter().find(|(coding, _)| accepted.contains(*coding));
    let chosen = chosen.or_else(|| found.iter().find(|(coding, _)| *coding == Coding::Identity));
    let content_type = gannet_content::mime::content_type(url);
    let block = chosen.and_then(|(coding, file)| {
        let name = String::from_utf8_lossy(url);
        let (lifetime, _) = cache::lifetime(name.trim_start_matches('/'), content_type, None);
        let kind = AnswerKind::of_content_type(content_type);
        let further = security::fields(kind, &SecurityOptions::default(), None);
        let further: Vec<_> = further
            .iter()
            .filter(|(name, _)| *name != "x-content-type-options")
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        let resource = Resource {
            content_type,
            coding: *coding,
            len: file.len,
            entity_tag: &live_tag(file),
            last_modified: last_modified(original.mtime_ns, i64::MAX),
            vary: is_coded,
            cache_control: Some(lifetime.cache_control()),
            fields: &further,
        };
        ready_fields(&resource)
            .ok()
            .map(|ready| lines_of(ready.as_block().bytes))
    });
    let variants = found.iter().map(|(coding, file)| Variant {
        coding: *coding,
        len: file.len,
        is_inflated: false,
    });
    (variants.collect(), block.unwrap_or_default())
}

fn directory_url(directory: &DirectoryPlace, number: usize) -> Vec<u8> {
    let files = directory.files();
    files
        .get(number)
        .map(|file| file.url.clone())
        .unwrap_or_default()
}

fn lifetime_reason(url: &[u8], content_type: &str) -> Reason {
    let path = String::from_utf8_lossy(url);
    cache::lifetime(path.trim_start_matches('/'), content_type, None).1
}

/// The reason that an archive has for a lifetime: if it is not that of the name alone, it is the
/// release that the archive was compared with.
fn packed_lifetime(by_name: Reason, value: &str) -> &'static str {
    words_of(match (by_name, value) {
        (Reason::PlainName, CACHE_IMMUTABLE) => Reason::RenamedWithContent,
        (Reason::HashedName, CACHE_REVALIDATE) => Reason::ChangedUnderName,
        (by_name, _) => by_name,
    })
}

fn words_of(reason: Reason) -> &'static str {
    match reason {
        Reason::HashedName => "the name has a content hash",
        Reason::RenamedWithContent => "the name changed with the content",
        Reason::ChangedUnderName => "the content changed under its name",
        Reason::Page => "a page is asked for again",
        Reason::PlainName => "the name has no content hash: it is asked for again",
    }
}

/// Where a field of a content comes from.
fn origin(name: &str, url: &[u8], content_type: &str, place: &Place) -> String {
    let is_archive = matches!(place, Place::Archive(_));
    let words = match name {
        "content-length" => "bytes of what is sent",
        "content-type" => "the suffix of the file's name",
        "content-encoding" => "the coding of what is sent",
        "etag" if is_archive => "the BLAKE3 of what is sent",
        "etag" => "time, length and inode of the file",
        "last-modified" => "the file's time of modification",
        "vary" => "there are several codings",
        "accept-ranges" => "parts can be asked for",
        "x-content-type-options" => "always sent",
        "cache-control" => words_of(lifetime_reason(url, content_type)),
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

/// What the rules for fields do. An archive without rules for single hosts has them applied.
fn rules(site: &Site, target: &Target, host: &str, answer: &mut Answer) {
    let own = site.rules(host_number(site, host));
    let Some(table) = own.headers() else {
        return;
    };
    let request = Request {
        scheme: scheme(target),
        host: host.as_bytes(),
        path: &target.path,
        query: target.query.as_deref().map(str::as_bytes),
    };
    let found = table.find(&request);
    let sets = |rule: u32, wanted: &str| {
        let rule = table.headers().rules.get(rule as usize);
        let mut operations = rule.into_iter().flat_map(|rule| &rule.operations);
        operations.any(|it| matches!(it, FieldOperation::Set { name, .. } if name == wanted))
    };
    let changes = table.changes(&request);
    answer
        .fields
        .retain(|field| !changes.remove.contains(&field.name));
    for (name, value) in &changes.set {
        let value = String::from_utf8_lossy(value);
        let places = found.iter().filter(|rule| sets(**rule, name));
        let places: Vec<_> = places.map(|it| own.place_of_header(*it)).collect();
        answer.set(name, &value, &places.join(", "));
    }
}

/// Tells what a server sent otherwise; what changes from moment to moment is left out.
fn compare(answer: &Answer, got: &server::Got, text: &mut String) -> bool {
    const OF_THE_MOMENT: [&str; 5] = ["date", "connection", "keep-alive", "age", "server"];
    let mut differences = Vec::new();
    if answer.status != got.status {
        differences.push(format!(
            "status {} (foreseen {})",
            got.status, answer.status
        ));
    }
    // Pages that the server makes itself are not foreseen in detail.
    let has_content = answer
        .fields
        .iter()
        .any(|field| field.name == "content-type");
    for Field { name, value, .. } in &answer.fields {
        match got.fields.iter().find(|(known, _)| known == name) {
            Some((_, sent)) if sent == value => {}
            Some((_, sent)) => differences.push(format!("{name}: {sent} (foreseen {value})")),
            None => differences.push(format!("{name} is not sent (foreseen {value})")),
        }
    }
    for (name, value) in got.fields.iter().filter(|_| has_content) {
        let is_foreseen = answer.fields.iter().any(|field| field.name == *name);
        if !is_foreseen && !OF_THE_MOMENT.contains(&name.as_str()) {
            differences.push(format!("{name}: {value} (not foreseen)"));
        }
    }
    line(text, "");
    if differences.is_empty() {
        line(text, "the server answers so");
    } else {
        line(text, "the server answers otherwise:");
    }
    for difference in &differences {
        line(text, format!("  {difference}"));
    }
    !differences.is_empty()
}
