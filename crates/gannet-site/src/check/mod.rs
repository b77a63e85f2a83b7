//! Checks a site: dead links, missing assets, dead anchors and ineffective rules.
//!
//! ```text
//! offline::Site ──files──▶ anchors of all pages (all cores) ──▶ references of all pages (all cores)
//!       │                                                              │ resolve, locate, follow
//!       └──rules──▶ gannet_content::rules::lint ──▶ findings ◀─────────┘
//! ```
//!
//! Pages are read twice, so that of each page only the hashes of its anchors stay in memory. The
//! network is not used: links to other hosts are not followed.

mod css;
mod encoding;
mod finding;
mod limits;
mod needs;
mod page;
mod resolve;

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use gannet_content::rules::lint::lint;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_content::stored_coding;
use gannet_io::cause::cause;

use crate::archive::SiteError;
use crate::offline::{Located, Place, RequestUrl, Rules, Site, SiteFile, SiteOptions, WhyNot};
use crate::target::url;

pub use finding::{Finding, Help, Severity};

use limits::{FINDINGS_MAX, PAGE_LEN_MAX, PREFIX_DEPTH_MAX, REDIRECTS_MAX};
use page::{AnchorHasher, Purpose, Reference};
use resolve::{Internal, Origins, Resolved, resolve};

/// What to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The site.
    pub site: SiteOptions,
    /// Hosts that links in its pages may use for this site.
    pub origins: Vec<String>,
    /// What its paths start with there (percent-encoded), which it does not know itself; without a slash at
    /// the end.
    pub prefix: String,
}

/// What was found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// In the order of files and lines; limited, while the counts are complete.
    pub findings: Vec<Finding>,
    /// Pages read.
    pub page_count: u64,
    /// Style sheets read.
    pub style_sheet_count: u64,
    /// References in them.
    pub reference_count: u64,
    /// Errors, including those not kept.
    pub error_count: u64,
    /// Warnings, including those not kept.
    pub warning_count: u64,
}

impl Report {
    /// Adds what was found in one of several sites, whose files are below this name.
    pub fn add(&mut self, name: &str, site: Self) {
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        let below = |finding: Finding| Finding {
            file: format!("{name}/{}", finding.file),
            ..finding
        };
        let found = site.findings.into_iter().take(room);
        self.findings.extend(found.map(below));
        self.page_count += site.page_count;
        self.style_sheet_count += site.style_sheet_count;
        self.reference_count += site.reference_count;
        self.error_count += site.error_count;
        self.warning_count += site.warning_count;
    }

    /// Adds one finding.
    pub fn note(&mut self, finding: Finding) {
        match finding.severity {
            Severity::Error => self.error_count += 1,
            Severity::Warning => self.warning_count += 1,
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Checks a site.
///
/// # Errors
/// The site cannot be read.
pub fn check(options: &CheckOptions) -> Result<Report, SiteError> {
    let site = Site::open(&options.site)?;
    if let Some(folder) = site.closed_folder() {
        let denied = std::io::Error::from(rustix::io::Errno::ACCESS);
        return Err(SiteError::io("read", &folder)(denied));
    }
    let check = Check {
        site: &site,
        origins: Origins {
            hosts: &options.origins,
            prefix: &options.prefix,
        },
        hasher: AnchorHasher::new(),
        anchors: (0..site.files().len()).map(|_| Mutex::default()).collect(),
        findings: Mutex::default(),
        counts: [const { AtomicU64::new(0) }; 5],
    };
    check.emptiness();
    check.rules();
    check.links();
    check.rules_of_others();
    check.on_all_files(|number| check.read_anchors(number));
    check.on_all_files(|number| check.check_file(number));
    Ok(check.into_report())
}

struct Check<'s> {
    site: &'s Site,
    origins: Origins<'s>,
    hasher: AnchorHasher,
    /// Indexed by file number: the sorted hashes of the anchors of a page.
    anchors: Vec<Mutex<Option<Box<[u64]>>>>,
    findings: Mutex<Vec<Finding>>,
    /// Pages, style sheets, references, errors, warnings.
    counts: [AtomicU64; 5],
}

/// The kinds of files with references.
#[derive(Clone, Copy, Eq, PartialEq)]
enum ReferrerKind {
    Page,
    Style,
}

/// The position of a reference.
struct ReferencePlace<'a> {
    number: usize,
    /// The base of relative URLs.
    base: &'a str,
    reference: &'a Reference,
}

impl Check<'_> {
    fn on_all_files(&self, work: impl Fn(usize) + Sync) {
        let next = AtomicUsize::new(0);
        let count = self.site.files().len();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads.min(count) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            break;
                        }
                        // Files of earlier releases are checked with those.
                        if !self.site.files()[number].is_carried {
                            work(number);
                        }
                    }
                });
            }
        });
    }

    fn kind(&self, number: usize) -> Option<ReferrerKind> {
        let content_type = &*self.site.files()[number].content_type;
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence {
            "text/html" | "application/xhtml+xml" => Some(ReferrerKind::Page),
            "text/css" => Some(ReferrerKind::Style),
            _ => None,
        }
    }

    /// A build that made nothing is no sound site.
    fn emptiness(&self) {
        let has_rules = |rules: &Rules| {
            rules.redirects().is_some() || rules.headers().is_some() || !rules.problems().is_empty()
        };
        let is_served = |file: &SiteFile| self.site.has_content(file.host, &file.url);
        let has_file = self.site.files().iter().any(is_served);
        if !has_file && !self.site.all_rules().any(|(_, it)| has_rules(it)) {
            let help = "is this the folder that the site's generator writes to?";
            let help = Some(Help::Text(help.into()));
            let message = "nothing in it is served";
            self.find_in(".", Severity::Error, "empty-site", message, help);
        }
    }

    fn rules(&self) {
        for (host, rules) in self.site.all_rules() {
            let mut problems = rules.problems().to_vec();
            if let Some(table) = rules.redirects() {
                let has_content = |path: &[u8]| self.site.has_content(host, path);
                problems.extend(lint(table, &rules.redirect_files(), &has_content));
            }
            if let Some(table) = rules.headers().filter(|_| !rules.is_of_archive()) {
                problems.extend(table.lint("_headers"));
            }
            for problem in &mut problems {
                if let Some(name) = self.site.host_name(host) {
                    problem.file = format!("{name}/{}", problem.file);
                }
                self.add((&*problem).into());
            }
        }
    }

    /// Finds the symbolic links that the server does not follow: to their author they look like
    /// files.
    fn links(&self) {
        for (path, why) in self.site.unfollowed_links() {
            let file = String::from_utf8_lossy(path);
            let help = Some(Help::Unserved(why));
            let message = format!("not served: {why}");
            self.find_in(file, Severity::Warning, "link-not-served", message, help);
        }
    }

    /// Finds the rules of other servers: what they deny, if anything, is open here.
    fn rules_of_others(&self) {
        for (number, file) in self.site.files().iter().enumerate() {
            let is_of_other = match &*file.url {
                b"/firebase.json" | b"/netlify.toml" | b"/vercel.json" => true,
                path => path.ends_with(b"/.htaccess") || path.ends_with(b"/web.config"),
            };
            if is_of_other && !file.is_carried {
                let message = "rules for another server, which are not obeyed: if they deny something, it is open";
                let help = "write what matters anew in _redirects and _headers, as docs/manual/migrating.md says";
                let help = Some(Help::Text(help.into()));
                let file = self.site.shown(number);
                self.find_in(file, Severity::Warning, "not-obeyed", message, help);
            }
        }
    }

    /// The request for a file's own path.
    fn own(&self, number: usize) -> RequestUrl<'_> {
        let file = &self.site.files()[number];
        self.asked(file.host, &file.url, None, false)
    }

    /// The content type with which a file is sent for a path.
    fn content_type(&self, asked: &RequestUrl<'_>, number: usize) -> String {
        let ruled = self.ruled(asked, "content-type");
        ruled.unwrap_or_else(|| self.site.files()[number].content_type.clone())
    }

    /// The value of a field according to the site's rules.
    fn ruled(&self, asked: &RequestUrl<'_>, name: &str) -> Option<String> {
        let table = self.site.rules(asked.host).headers()?;
        let changes = table.changes(&asked.rule_input(), &Steps::default()).ok()?;
        let (_, value) = changes.set.into_iter().find(|(set, _)| set == name)?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    /// Whether the server sends a file with `charset=utf-8`.
    fn is_sent_as_utf8(&self, number: usize) -> bool {
        let asked = self.own(number);
        let is_coded = stored_coding::of(asked.path).is_some();
        let content_type = self.content_type(&asked, number);
        let label = encoding::of_type(&content_type);
        !is_coded
            && label.is_some_and(encoding::is_utf8_label)
            && self.ruled(&asked, "content-encoding").is_none()
    }

    fn check_encoding(&self, number: usize, bytes: &[u8], declared: Option<(&str, u64)>) {
        let Some((line, message)) = encoding::mistake(bytes, declared) else {
            return;
        };
        self.add(Finding {
            severity: Severity::Warning,
            kind: "not-utf-8",
            message,
            help: Some(Help::Encoding),
            file: self.site.shown(number),
            line,
            column: 0,
            source: String::new(),
        });
    }

    fn read(&self, number: usize) -> Option<Vec<u8>> {
        let (severity, message) = match self.site.read(number, PAGE_LEN_MAX) {
            Ok(Some(bytes)) => return Some(bytes),
            _ if self.kind(number).is_none() => return None,
            Ok(None) => (Severity::Warning, "too large to be checked".to_owned()),
            Err(error) => (
                Severity::Error,
                format!("cannot be read: {}", cause(&error)),
            ),
        };
        self.unreadable(number, severity, message);
        None
    }

    fn unreadable(&self, number: usize, severity: Severity, message: String) {
        let file = self.site.shown(number);
        self.find_in(file, severity, "unreadable-page", message, None);
    }

    fn read_anchors(&self, number: usize) {
        if self.kind(number) != Some(ReferrerKind::Page) {
            return;
        }
        // Unreadable files are reported when their references are read.
        let Ok(Some(bytes)) = self.site.read(number, PAGE_LEN_MAX) else {
            return;
        };
        let Ok(page) = page::read(&String::from_utf8_lossy(&bytes), &self.hasher) else {
            return;
        };
        let slot = self.anchors[number].lock();
        *slot.unwrap_or_else(|e| e.into_inner()) = Some(page.anchors.into_boxed_slice());
    }

    fn check_file(&self, number: usize) {
        let (kind, is_utf8) = (self.kind(number), self.is_sent_as_utf8(number));
        if kind.is_none() && !is_utf8 {
            return;
        }
        let Some(bytes) = self.read(number) else {
            return;
        };
        let Some(kind) = kind else {
            return self.check_encoding(number, &bytes, None);
        };
        let text = String::from_utf8_lossy(&bytes);
        self.count(kind as usize, 1);
        let own = url(&self.site.files()[number].url);
        let (references, base, declared) = match kind {
            ReferrerKind::Page => match page::read(&text, &self.hasher) {
                Ok(page) => (page.references, page.base, page.encoding),
                Err(excess) => {
                    let message = format!("not checked: {excess}");
                    return self.unreadable(number, Severity::Warning, message);
                }
            },
            ReferrerKind::Style => {
                let declared = encoding::of_style(&text);
                let declared = declared.map(|(label, line)| (label.to_owned(), line));
                (style_references(&text), None, declared)
            }
        };
        if is_utf8 {
            let declared = declared
                .as_ref()
                .map(|(label, line)| (label.as_str(), *line));
            self.check_encoding(number, &bytes, declared);
        }
        let base = match base.map(|base| resolve(&own, &base, self.origins)) {
            None => own,
            Some(Resolved::Internal(base)) => url(&base.path),
            // All relative URLs point to another host.
            Some(_) => return,
        };
        let mut seen = HashSet::new();
        for reference in &references {
            self.count(2, 1);
            if !seen.insert((&reference.url, reference.purpose, reference.needs)) {
                continue;
            }
            self.check_reference(&ReferencePlace {
                number,
                base: &base,
                reference,
            });
        }
    }

    fn check_reference(&self, source: &ReferencePlace<'_>) {
        let reference = source.reference;
        let is_asset = reference.purpose == Purpose::Asset;
        if reference.purpose != Purpose::Link && reference.url.trim().is_empty() {
            return;
        }
        match resolve(source.base, &reference.url, self.origins) {
            Resolved::Internal(target) => self.check_target(source, &target),
            Resolved::Insecure if is_asset => {
                let message = format!("'{}' is loaded without TLS", reference.url);
                let help = "browsers block it on pages served over TLS; write https://";
                let help = Help::Text(help.into());
                self.find(
                    source,
                    Severity::Warning,
                    "mixed-content",
                    message,
                    Some(help),
                );
            }
            Resolved::Insecure | Resolved::Elsewhere => {}
            Resolved::Bad(why) => {
                let message = format!("'{}' is not a URL of this site: {why}", reference.url);
                self.find(source, Severity::Error, "bad-url", message, None);
            }
        }
    }

    /// Follows redirects and checks the final target.
    fn check_target(&self, source: &ReferencePlace<'_>, target: &Internal) {
        let mut path = target.path.clone();
        let mut query = target.query.clone();
        let mut passed = HashSet::new();
        // Rules name paths as the site itself knows them.
        let own = Origins {
            prefix: "",
            ..self.origins
        };
        for _ in 0..REDIRECTS_MAX {
            let asked = self.asked_by(source, &path, query.as_deref());
            match self.site.locate(asked) {
                Located::File(found, status) if status < 400 => {
                    if self.site.files()[found].is_carried {
                        return self.carried(source, target, &path);
                    }
                    self.check_type(source, &asked, found);
                    return self.check_anchor(source, target, found);
                }
                Located::Listing(status) if status < 400 => return,
                Located::Icon => return,
                Located::Redirect { location, .. } => {
                    if !passed.insert((path.clone(), query.clone())) {
                        break;
                    }
                    match resolve(&url(&path), &location, own) {
                        Resolved::Internal(next) => (path, query) = (next.path, next.query),
                        _ => return,
                    }
                }
                Located::File(..)
                | Located::Listing(_)
                | Located::Missing(..)
                | Located::Forbidden => {
                    return self.missing(source, target, &path);
                }
            }
        }
        let message = format!("'{}' redirects in a loop", url(&target.path));
        self.find(source, Severity::Error, "dead-link", message, None);
    }

    fn asked_by<'a>(
        &'a self,
        source: &ReferencePlace<'_>,
        path: &'a [u8],
        query: Option<&'a str>,
    ) -> RequestUrl<'a> {
        let host = self.site.files()[source.number].host;
        self.asked(host, path, query, source.reference.purpose == Purpose::Link)
    }

    fn asked<'a>(
        &'a self,
        host: u16,
        path: &'a [u8],
        query: Option<&'a str>,
        is_navigation: bool,
    ) -> RequestUrl<'a> {
        RequestUrl {
            host,
            host_name: self.origins.hosts.first().map_or("", String::as_str),
            scheme: Scheme::Https,
            path,
            query,
            is_navigation,
            language: "",
        }
    }

    /// Whether browsers accept the target's type for this use.
    fn check_type(&self, source: &ReferencePlace<'_>, asked: &RequestUrl<'_>, found: usize) {
        let Some(needs) = source.reference.needs else {
            return;
        };
        let content_type = self.content_type(asked, found);
        let essence = content_type.split(';').next().unwrap_or_default();
        if needs.takes(essence.trim()) {
            return;
        }
        let (refused, suffix) = needs.words();
        let shown = url(asked.path);
        let message = format!("'{shown}' is sent as {essence}: browsers do not {refused}");
        let help = format!("name it with {suffix}, or set its Content-Type in _headers");
        self.find(
            source,
            Severity::Error,
            "blocked-by-nosniff",
            message,
            Some(Help::Text(help)),
        );
    }

    /// A file that the site no longer has answers as long as it is carried on.
    fn carried(&self, source: &ReferencePlace<'_>, target: &Internal, path: &[u8]) {
        let kind = match source.reference.purpose {
            Purpose::Link => "dead-link",
            Purpose::Asset | Purpose::Preview => "missing-asset",
        };
        let message = format!(
            "{} is of an earlier release, and only carried on for a while",
            shown(target, path)
        );
        let help = "name what replaces it, or add it to the site again";
        self.find(
            source,
            Severity::Error,
            kind,
            message,
            Some(Help::Text(help.into())),
        );
    }

    fn missing(&self, source: &ReferencePlace<'_>, target: &Internal, path: &[u8]) {
        let shown = shown(target, path);
        let near = self
            .site
            .differently_spelled(self.asked_by(source, path, None));
        let bare = path.strip_suffix(b"/").unwrap_or(path);
        let near = near.map(|near| (near != bare, url(&near)));
        let why_not = self.site.why_not(path);
        let below = self.below(source, path);
        let help = match (&near, self.site.place()) {
            (Some((_, near)), _) => Some(Help::Text(format!("there is '{near}'"))),
            _ if below.is_some() => below,
            (None, Place::Directory(_)) if path.ends_with(b"/") => Some(Help::Listing),
            _ => why_not
                .filter(|why| matches!(why, WhyNot::CompressedOnly | WhyNot::ZstdOnly))
                .map(Help::Unserved),
        };
        let why = why_not.map_or("no file has this path".into(), |why| why.to_string());
        let (kind, message) = match (&near, source.reference.purpose) {
            (Some((true, _)), _) => (
                "wrong-case",
                format!("{shown} is spelled differently in the site"),
            ),
            (_, Purpose::Link) => ("dead-link", format!("{shown} is not found: {why}")),
            (_, Purpose::Asset | Purpose::Preview) => {
                ("missing-asset", format!("{shown} is not found: {why}"))
            }
        };
        self.find(source, Severity::Error, kind, message, help);
    }

    /// What a path leads to without its first segments: then the site may be for a place below a host,
    /// as pages of projects are.
    fn below(&self, source: &ReferencePlace<'_>, path: &[u8]) -> Option<Help> {
        if !self.origins.prefix.is_empty() || !source.reference.url.starts_with('/') {
            return None;
        }
        let slashes = (1..path.len()).filter(|at| path[*at] == b'/');
        let is_found =
            |at: &usize| match self.site.locate(self.asked_by(source, &path[*at..], None)) {
                Located::File(_, status) | Located::Listing(status) => status < 400,
                _ => false,
            };
        let at = slashes.take(PREFIX_DEPTH_MAX).find(is_found)?;
        Some(Help::Below {
            prefix: url(&path[..at]),
            path: url(&path[at..]),
        })
    }

    fn check_anchor(&self, source: &ReferencePlace<'_>, target: &Internal, found: usize) {
        let Some(fragment) = target.fragment.as_deref() else {
            return;
        };
        if source.reference.purpose != Purpose::Link {
            return;
        }
        // Text fragments are directives to the browser, not names.
        let name = fragment.split(":~:").next().unwrap_or_default();
        // A fragment may be a script route, and every page has the anchor `top`.
        let is_route = name.starts_with(['!', '/']);
        if name.is_empty() || is_route || name.eq_ignore_ascii_case("top") {
            return;
        }
        let slot = self.anchors[found].lock();
        let slot = slot.unwrap_or_else(|e| e.into_inner());
        // Fragments of other kinds of files are not anchors.
        let Some(anchors) = slot.as_deref() else {
            return;
        };
        let has = |name: &str| anchors.binary_search(&self.hasher.hash_one(name)).is_ok();
        // Pages of source code have an anchor for each line, and a script that marks a range of them:
        // `#14-19` of rustdoc, `#L14-L19` and `#L14-19` of others.
        let is_line = |it: &str| {
            let digits = it.strip_prefix('L').unwrap_or(it);
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number && (has(it) || has(&format!("L{digits}")))
        };
        let are_lines = |(first, last)| is_line(first) && is_line(last);
        if has(name) || has(&percent_decoded(name)) || name.split_once('-').is_some_and(are_lines) {
            return;
        }
        drop(slot);
        let page = url(&self.site.files()[found].url);
        let message = format!("'{page}' has no anchor '{name}'");
        self.find(source, Severity::Error, "dead-anchor", message, None);
    }

    /// Adds what was found of a file as a whole.
    fn find_in(
        &self,
        file: impl Into<String>,
        severity: Severity,
        kind: &'static str,
        message: impl Into<String>,
        help: Option<Help>,
    ) {
        self.add(Finding {
            severity,
            kind,
            message: message.into(),
            help,
            file: file.into(),
            line: 0,
            column: 0,
            source: String::new(),
        });
    }

    fn find(
        &self,
        source: &ReferencePlace<'_>,
        severity: Severity,
        kind: &'static str,
        message: String,
        help: Option<Help>,
    ) {
        let reference = source.reference;
        self.add(Finding {
            severity,
            kind,
            message,
            help,
            file: self.site.shown(source.number),
            line: reference.line,
            column: 0,
            source: format!("{} '{}'", reference.at, reference.url),
        });
    }

    fn add(&self, finding: Finding) {
        match finding.severity {
            Severity::Error => self.count(3, 1),
            Severity::Warning => self.count(4, 1),
        }
        let mut findings = self.findings.lock().unwrap_or_else(|e| e.into_inner());
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    fn count(&self, which: usize, more: u64) {
        self.counts[which].fetch_add(more, Ordering::Relaxed);
    }

    fn into_report(self) -> Report {
        let [
            page_count,
            style_sheet_count,
            reference_count,
            error_count,
            warning_count,
        ] = self.counts.map(AtomicU64::into_inner);
        let mut findings = self
            .findings
            .into_inner()
            .unwrap_or_else(|e| e.into_inner());
        // Threads report findings in any order.
        findings.sort_by(|a, b| {
            let key = |it: &Finding| (it.file.clone(), it.line, it.kind, it.message.clone());
            key(a).cmp(&key(b))
        });
        Report {
            findings,
            page_count,
            style_sheet_count,
            reference_count,
            error_count,
            warning_count,
        }
    }
}

/// The target at `path`, and the one that is referred to, if that redirects to it.
fn shown(target: &Internal, path: &[u8]) -> String {
    match path == target.path {
        true => format!("'{}'", url(path)),
        false => format!(
            "'{}' redirects to '{}', which",
            url(&target.path),
            url(path)
        ),
    }
}

fn style_references(text: &str) -> Vec<Reference> {
    let urls = css::urls(text).into_iter();
    urls.map(|(url, line)| Reference {
        purpose: Purpose::Asset,
        url,
        line,
        at: "url()".into(),
        needs: None,
    })
    .collect()
}

/// Decodes a fragment; invalid escapes are kept.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| str::from_utf8(hex).ok());
        match hex.map(|hex| u8::from_str_radix(hex, 16)) {
            Some(Ok(byte)) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
