//! A site's own rules, as workers apply them: redirects first, fields last.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gannet_archive::{Archive, HostRules};
use gannet_content::routing::Routing;
use gannet_content::rules::evaluation::{Excess, TooMuch};
use gannet_content::rules::files::{RulesRoom, redirects_files};
use gannet_content::rules::headers::{self, FieldChanges};
use gannet_content::rules::language::first_language;
use gannet_content::rules::limits::{LOCATION_MAX, RULES_FILE_MAX, STEPS_MAX};
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::memory::{MemoryRoom, Replaced, SitesMemory};
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::problem::{Problem, has_errors};
use gannet_content::rules::protection::Forms;
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::{HeaderTable, RedirectTable, Ruled, TableError};
use gannet_content::rules::{Compat, SourceFile, redirects};
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_io::cause::printable;
use gannet_io::driver::Root;
use gannet_io::named_file;

use super::Release;
use super::archive_room::rules_room;
use super::error_pages::ErrorPages;
use crate::passwords;
use crate::release::access;
use crate::watch::notices::ERRORS;

/// The rules of a site. Shared by all workers, never written.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteRules {
    redirects: Option<Arc<RedirectTable>>,
    headers: Option<Arc<HeaderTable>>,
    /// What both hold of the memory for the rules of all sites.
    memory: Option<Arc<MemoryRoom>>,
    /// The site's own error pages, which are read with the rules.
    pages: Option<Arc<ErrorPages>>,
    /// It answers under the name of a preview, which search engines are not to list.
    is_preview: bool,
    /// A rule for fields may forbid to code content while it is served.
    may_forbid_coding: bool,
    /// Under which paths content is found, in an archive with index names of its own.
    forms: Option<Arc<Forms>>,
    /// The evaluations out of steps that were counted.
    overruns: Arc<AtomicU64>,
    /// Bytes of the fields that rules give an answer, at most.
    fields_len_max: usize,
    /// The folder of their files, for messages.
    folder: Option<Arc<Path>>,
    /// It was reported that they are too much for some answer.
    is_excess_reported: Arc<AtomicBool>,
}

/// Evaluations of the rules of all sites that were out of steps.
static OUT_OF_STEPS: AtomicU64 = AtomicU64::new(0);

/// How often rules were out of steps since the start.
pub(crate) fn out_of_steps() -> u64 {
    OUT_OF_STEPS.load(Ordering::Relaxed)
}

/// The files of a directory that are read before any request.
#[derive(Clone, Debug)]
pub(crate) struct ReadAhead {
    /// Rules files of its dialect, if it has one.
    pub(crate) routing: Option<Arc<Routing>>,
    /// Error pages.
    pub(crate) pages: bool,
    /// Compressed files may be all that there is of a file that has rules.
    pub(crate) compressed_only: bool,
    /// What the rules of all sites may hold.
    pub(crate) memory: Arc<SitesMemory>,
}

/// Why a site's rules files cannot be used.
#[derive(Clone, Debug)]
pub enum RulesError {
    /// A file cannot be read: its path and the cause.
    Io(String, Arc<io::Error>),
    /// All errors in the files.
    Problems(Vec<Problem>),
}

impl std::fmt::Display for RulesError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(name, error) => write!(out, "{name}: {}", gannet_io::cause::cause(error)),
            Self::Problems(problems) => {
                let errors = problems.iter().map(|problem| match problem.what.help() {
                    Some(help) => format!("{problem} ({help})"),
                    None => problem.to_string(),
                });
                out.write_str(&errors.collect::<Vec<_>>().join("\n  "))
            }
        }
    }
}

impl std::error::Error for RulesError {}

impl SiteRules {
    /// The rules in an archive for one of its hosts, if any, of which all have one `room`, which they
    /// [hold](Self::holding) once all are read.
    pub(crate) fn of_archive(
        archive: &Archive<Vec<u8>>,
        host: u16,
        room: &mut MemoryRoom,
    ) -> Result<Option<Self>, TableError> {
        let HostRules { redirects, fields } = archive.rules(host);
        let redirects =
            (!redirects.is_empty()).then(|| RedirectTable::parse_within(redirects, room));
        let headers = (!fields.is_empty()).then(|| HeaderTable::parse_within(fields, room));
        let headers = headers.transpose()?;
        let fields_len_max = headers
            .as_ref()
            .map_or(0, |table| table.headers().fields_len_max());
        let names: Vec<_> = archive.index_names().map(<[u8]>::to_vec).collect();
        let routing = (!names.is_empty()).then(|| Routing {
            index_names: names,
            ..Routing::default()
        });
        Ok(Self {
            redirects: redirects.transpose()?.map(Arc::new),
            fields_len_max,
            headers: match &routing {
                // Packing refuses what such patterns would leave open.
                Some(routing) => headers.map(|table| table.with_routing(routing, false)),
                None => headers,
            }
            .map(Arc::new),
            forms: routing.map(|routing| Arc::new(passwords::forms_of_archive(&routing))),
            ..Self::default()
        }
        .or_none())
    }

    /// The same rules, which hold their room in the memory for those of all sites.
    pub(crate) fn holding(self, room: &Arc<MemoryRoom>) -> Self {
        Self {
            memory: Some(Arc::clone(room)),
            ..self
        }
    }

    /// The rules and error pages in the files of a directory, if any, in the place of others that are
    /// `replaced`. `path` names it in messages.
    ///
    /// # Errors
    /// A rules file cannot be read or is invalid: see [`RulesError`].
    pub(crate) fn of_directory(
        root: &Root,
        path: &Path,
        ahead: &ReadAhead,
        replaced: Replaced,
    ) -> Result<Option<Self>, RulesError> {
        let rules = match &ahead.routing {
            Some(routing) => Self::in_files((root, path), (ahead, routing), replaced)?,
            None => None,
        };
        let pages = ahead.pages.then(|| ErrorPages::of_directory(root, path));
        Ok(rules.unwrap_or_default().with_pages(pages.flatten()))
    }

    fn in_files(
        (root, path): (&Root, &Path),
        (ahead, routing): (&ReadAhead, &Routing),
        replaced: Replaced,
    ) -> Result<Option<Self>, RulesError> {
        let Some(compat) = routing.rules else {
            return Ok(None);
        };
        let mut of_files = RulesRoom::default();
        let mut read = |name: &str| read(root, path, name, &mut of_files);
        let mut texts = Vec::new();
        let of_folder = |error| RulesError::Io(path.display().to_string(), Arc::new(error));
        let names = redirects_files(compat, |folder| root.names(folder)).map_err(of_folder)?;
        for name in names {
            texts.extend(read(&name)?.map(|text| (name, text)));
        }
        let files: Vec<SourceFile<'_>> = texts
            .iter()
            .map(|(path, text)| SourceFile { path, text })
            .collect();
        let headers = read("_headers")?;
        let texts = files.iter().map(|file| file.text).chain(headers.as_deref());
        let len = texts.map(<[u8]>::len).sum();
        let room = rules_room(len, (&ahead.memory, replaced)).map_err(of_folder)?;
        let rules =
            Self::parse(&files, headers.as_deref(), (compat, room)).map_err(|problems| {
                let problems = problems.into_iter().map(|problem| problem.of_site(path));
                RulesError::Problems(problems.collect())
            })?;
        Ok(rules.map(|rules| Self {
            headers: rules.headers.map(|table| {
                // No other has it yet.
                let table = Arc::unwrap_or_clone(table);
                Arc::new(table.with_routing(routing, ahead.compressed_only))
            }),
            folder: Some(path.into()),
            ..rules
        }))
    }

    /// The rules in files with redirects and in the text of `_headers`, if any.
    ///
    /// # Errors
    /// All problems, if any of them is an error.
    pub(crate) fn parse(
        files: &[SourceFile<'_>],
        headers: Option<&[u8]>,
        (compat, mut room): (Compat, MemoryRoom),
    ) -> Result<Option<Self>, Vec<Problem>> {
        let (redirects, mut problems) = redirects::parse_within(files, compat, &mut room);
        let mut found = Self::default();
        if let Some(text) = headers {
            let file = SourceFile {
                path: "_headers",
                text,
            };
            let (rules, more) = headers::parse_within(&file, compat, &mut room);
            problems.extend(more);
            found.may_forbid_coding = rules.may_forbid_coding();
            // What is refused needs no index.
            let is_needed = !rules.rules.is_empty() && !has_errors(&problems);
            let table = is_needed.then(|| HeaderTable::new(rules));
            problems.extend(table.as_ref().and_then(|table| table.problem(file.path)));
            found.fields_len_max = table.as_ref().map_or(0, |it| it.headers().fields_len_max());
            found.headers = table.map(Arc::new);
        }
        if has_errors(&problems) {
            return Err(problems);
        }
        found.redirects =
            (!redirects.rules.is_empty()).then(|| Arc::new(RedirectTable::new(redirects)));
        found.memory = Some(Arc::new(room));
        Ok(found.or_none())
    }

    /// The same rules, and a field that keeps search engines from listing any answer.
    pub(crate) fn for_preview(&self) -> Self {
        Self {
            is_preview: true,
            ..self.clone()
        }
    }

    /// The same rules, with these error pages; `None` if there is nothing of either.
    pub(crate) fn with_pages(self, pages: Option<ErrorPages>) -> Option<Self> {
        let pages = pages.map(Arc::new);
        Self { pages, ..self }.or_none()
    }

    /// The error pages alone, for a site that has no content at the moment.
    pub(crate) fn only_pages(&self) -> Option<Self> {
        let pages = self.pages.clone();
        Self {
            pages,
            ..Self::default()
        }
        .or_none()
    }

    fn or_none(self) -> Option<Self> {
        let has_rules = self.redirects.is_some() || self.headers.is_some();
        (has_rules || self.pages.is_some() || self.forms.is_some()).then_some(self)
    }

    /// The site's own error pages, if any.
    pub(crate) fn pages(&self) -> Option<&ErrorPages> {
        self.pages.as_deref()
    }

    /// Under which paths content is found, if that takes more than the names of dialects.
    pub(crate) fn forms(&self) -> Option<&Forms> {
        self.forms.as_deref()
    }

    /// Counts evaluations that were out of steps, and reports the first of them.
    pub(crate) fn note_overruns(&self) {
        let redirects = self.redirects.as_ref().map(|it| it.overruns().seen());
        let fields = self.headers.as_ref().map(|it| it.overruns().seen());
        let [of_redirects, of_fields] = [redirects, fields].map(Option::unwrap_or_default);
        let all = of_redirects.0 + of_fields.0;
        if all != self.overruns.load(Ordering::Relaxed) {
            self.report_overruns(all, of_redirects.1, of_fields.1);
        }
    }

    #[cold]
    fn report_overruns(&self, all: u64, redirect: Option<u32>, field: Option<u32>) {
        let before = self.overruns.swap(all, Ordering::Relaxed);
        OUT_OF_STEPS.fetch_add(all.saturating_sub(before), Ordering::Relaxed);
        if before > 0 {
            return;
        }
        let redirects = self.redirects.as_ref();
        let of_redirects = redirects.filter(|it| it.overruns().seen().0 > 0);
        let (file, line, outcome) = match of_redirects {
            Some(table) => {
                let rule = redirect.and_then(|it| table.redirects().rules.get(it as usize));
                let line = rule.map(|rule| rule.place.line);
                (
                    "_redirects",
                    line,
                    "files that its rules may precede were not sent",
                )
            }
            None => {
                let rules = self.headers.as_ref().map(|it| &it.headers().rules);
                let rule = rules.and_then(|rules| rules.get(field? as usize));
                let line = rule.map(|rule| rule.place.line);
                ("_headers", line, "it was refused")
            }
        };
        let file = match &self.folder {
            Some(folder) => folder.join(file),
            None => file.into(),
        };
        let file = printable(&file.to_string_lossy());
        // Where no rule was reached, the file as a whole is too much.
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        ERRORS.log(format_args!(
            "gannet: {file}{line}: a request takes too many of its {STEPS_MAX} steps through the \
             rules: {outcome}\nhelp: fewer rules that match the same requests; further \
             requests of this kind are only counted"
        ));
    }

    /// The redirects, if any.
    pub(crate) fn redirects(&self) -> Option<&RedirectTable> {
        self.redirects.as_deref()
    }

    /// What they hold of the memory for the rules of all sites.
    pub(crate) fn memory(&self) -> Option<&Arc<MemoryRoom>> {
        self.memory.as_ref()
    }

    /// Whether there are rules for fields.
    pub(crate) fn has_fields(&self) -> bool {
        self.headers.is_some()
    }

    /// Bytes that they add to the head of an answer, at most.
    pub(crate) fn head_len_max(&self) -> u64 {
        let location = if self.redirects.is_some() {
            LOCATION_MAX
        } else {
            0
        };
        (self.fields_len_max + location) as u64
    }

    /// The rules with users, if there are any.
    pub(crate) fn users(&self) -> Option<&HeaderTable> {
        self.headers.as_deref().filter(|table| table.has_users())
    }

    /// Whether these rules name users and those do not.
    pub(crate) fn loses_users(old: Option<&Self>, new: Option<&Self>) -> bool {
        old.and_then(Self::users).is_some() && new.and_then(Self::users).is_none()
    }

    /// Whether both name the same users for the same paths.
    pub(crate) fn have_same_users(one: Option<&Self>, other: Option<&Self>) -> bool {
        let users = |rules: Option<&Self>| {
            let table = rules.and_then(Self::users);
            let rules = table.into_iter().flat_map(|it| it.headers().rules.clone());
            let rules = rules.filter(|rule| !rule.users.is_empty());
            let found: Vec<_> = rules.map(|rule| (rule.pattern, rule.users)).collect();
            found
        };
        users(one) == users(other)
    }

    /// Whether the fields of a path's own content depend on the path alone, so that they are
    /// rendered once.
    pub(crate) fn fields_are_fixed(&self) -> bool {
        !self.is_preview && !self.headers.as_deref().is_some_and(HeaderTable::has_hosts)
    }

    /// Whether the fields of some response may forbid to code it.
    pub(crate) fn may_forbid_coding(&self) -> bool {
        self.may_forbid_coding
    }

    /// The changes to the fields of the response; `None` if there are none.
    ///
    /// # Errors
    /// They are not known.
    pub(crate) fn changes(
        &self,
        input: &RuleInput<'_>,
        steps: &Steps,
    ) -> Result<Option<FieldChanges>, FieldsUnknown> {
        let changes = match self.headers.as_ref().map(|it| it.changes(input, steps)) {
            Some(Err(excess)) => {
                self.note_excess(excess);
                return Err(FieldsUnknown);
            }
            Some(Ok(changes)) => Some(changes),
            None => None,
        };
        let mut changes = changes.unwrap_or_default();
        if self.is_preview {
            changes.set.retain(|(name, _)| name != ROBOTS.0);
            changes.set.push((ROBOTS.0.into(), ROBOTS.1.into()));
        }
        Ok((!changes.is_empty()).then_some(changes))
    }

    /// Counts an answer without the fields of the site, and reports the first one.
    #[cold]
    fn note_excess(&self, excess: Excess) {
        WITHOUT_FIELDS.fetch_add(1, Ordering::Relaxed);
        // What was out of steps is reported as that.
        if excess.what == TooMuch::Steps || self.is_excess_reported.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut problem = excess.problem("_headers");
        if let Some(folder) = &self.folder {
            problem = problem.of_site(folder);
        }
        let help = problem.what.help().unwrap_or_default();
        ERRORS.log(format_args!(
            "gannet: fields of an answer cannot be sent: {problem}\nhelp: {help}"
        ));
    }
}

/// The rules give an answer too many fields, or finding out which took too long: content that relies
/// on them is not sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldsUnknown;

/// Answers without the fields of their site, of all sites.
static WITHOUT_FIELDS: AtomicU64 = AtomicU64::new(0);

/// How many answers were built-in ones without the fields of their site's rules, which were too much.
pub(crate) fn answers_without_fields() -> u64 {
    WITHOUT_FIELDS.load(Ordering::Relaxed)
}

/// Not to be found by search engines. A convention of theirs.
const ROBOTS: (&str, &str) = ("x-robots-tag", "noindex");

/// Reads a file of the directory at `path`, if it exists, and takes its room.
fn read(
    root: &Root,
    path: &Path,
    name: &str,
    room: &mut RulesRoom,
) -> Result<Option<Vec<u8>>, RulesError> {
    let fail = |error| RulesError::Io(path.join(name).display().to_string(), Arc::new(error));
    match named_file::read_below(root, Path::new(name), RULES_FILE_MAX) {
        Ok(text) => room.take(&text).map(|()| Some(text)).map_err(fail),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fail(error)),
    }
}

/// The input of rules from a request; `path` is its decoded path, without the site's prefix.
pub(crate) fn rule_input<'a>(
    scheme: Scheme,
    request: &Request<'a>,
    (prefix, path): (&'a [u8], &'a [u8]),
) -> RuleInput<'a> {
    RuleInput {
        prefix,
        scheme,
        host: request.authority.unwrap_or_default(),
        path,
        query: request.target.query,
        language: request
            .fields
            .get(KnownField::AcceptLanguage)
            .map_or(b"", first_language),
    }
}

/// Whether what is at `path` may be sent as another form of what is at `own`: the same users may have
/// both, and no rule answers `path` with something else.
pub(crate) fn may_stand_for(
    of: (&Release, usize),
    ruling: Option<RequestRules<'_>>,
    [own, path]: [&[u8]; 2],
) -> bool {
    let rules = ruling.map(|ruling| ruling.rules);
    let steps = ruling.map(|ruling| ruling.steps);
    access::are_for_the_same(of, rules, [own, path], steps)
        && ruling.is_none_or(|ruling| ruling.at(path).before_files().is_none())
}

/// The rules, and the request that they apply to.
#[derive(Clone, Copy)]
pub(crate) struct RequestRules<'a> {
    rules: &'a SiteRules,
    pub(crate) input: RuleInput<'a>,
    /// Those of the request.
    pub(crate) steps: &'a Steps,
    /// The path that was requested: another one than the input's if another form of what is there is sent.
    asked: &'a [u8],
    extent: Extent,
}

/// Which fields rules may change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// All: the response is the content of the path itself, or a permanent redirect.
    All,
    /// All but those for caching: it is an error, or substitutes for the content of the path.
    Uncached,
    /// Security policies: it is for a client that has not proved to be one of those that may have the path.
    Policies,
}

impl<'a> RequestRules<'a> {
    pub(crate) fn new(rules: &'a SiteRules, input: RuleInput<'a>, steps: &'a Steps) -> Self {
        Self {
            rules,
            input,
            steps,
            asked: input.path,
            extent: Extent::All,
        }
    }

    /// For a response that is an error, or that substitutes for the content of the path.
    pub(crate) fn without_caching(self) -> Self {
        let extent = match self.extent {
            Extent::All => Extent::Uncached,
            less => less,
        };
        Self { extent, ..self }
    }

    /// For a response to a client that has not proved to be one of those that may have the path.
    pub(crate) fn for_stranger(self) -> Self {
        Self {
            extent: Extent::Policies,
            ..self
        }
    }

    /// The site's own error pages.
    pub(crate) fn pages(&self) -> Option<&'a ErrorPages> {
        self.rules.pages()
    }

    pub(crate) fn before_files(&self) -> Option<Ruled> {
        let redirects = self.rules.redirects()?;
        let ruled = redirects.before_files(&self.input, self.steps);
        self.rules.note_overruns();
        ruled
    }

    /// The same for the path of another form.
    pub(crate) fn at(self, path: &'a [u8]) -> Self {
        let input = RuleInput { path, ..self.input };
        Self { input, ..self }
    }

    pub(crate) fn for_missing(&self) -> Option<Ruled> {
        let redirects = self.rules.redirects()?;
        let ruled = redirects.for_missing(&self.input, self.steps);
        self.rules.note_overruns();
        ruled
    }

    /// Whether the answer varies by the client's language. `has_file` is whether it is the content of
    /// the path itself.
    pub(crate) fn varies_by_language(&self, has_file: bool) -> bool {
        let Some(redirects) = self.rules.redirects() else {
            return false;
        };
        let varies = |path| {
            let input = RuleInput { path, ..self.input };
            redirects.varies_by_language(&input, has_file, self.steps)
        };
        varies(self.asked) || (self.asked != self.input.path && varies(self.input.path))
    }

    /// What the rules change of the fields; `None` if nothing.
    ///
    /// # Errors
    /// It is not known.
    pub(crate) fn changes(&self) -> Result<Option<FieldChanges>, FieldsUnknown> {
        let changes = self.rules.changes(&self.input, self.steps);
        self.rules.note_overruns();
        Ok(changes?.map(|changes| match self.extent {
            Extent::All => changes,
            Extent::Uncached => changes.without_caching(),
            Extent::Policies => changes.policies(),
        }))
    }
}
