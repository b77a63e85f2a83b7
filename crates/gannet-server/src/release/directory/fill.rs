//! A lookup on disk for one request: a chain of operations, each of which may complete later.
//!
//! ```text
//!   Looking ──file──▶ Sidecar ... ──▶ Form ... ──▶ done, or Reading ──▶ done
//!      └──directory, redirect, missing ──▶ done
//! ```
//!
//! Before the first sidecar, it may begin again when the names of the folder are known
//! (`exchange/surveying`).
//!
//! If enabled, a missing file is also searched in codings ([`coded_alone`]).
//!
//! Content is read last, and only if a request needs bytes of it (`exchange/first_reads`).

mod at_path;
mod coded_alone;
mod drafts;
mod forms;
mod others;
mod reading;
mod starts;
mod version_end;

use std::borrow::Cow;
use std::rc::Rc;

use gannet_content::directory::lookup::{AtPath, Found, Lookup, Step};
use gannet_content::directory::sidecars::{
    SIDECARS, Sidecar, is_copy_of, is_usable, may_have_sidecars,
};
use gannet_content::mime;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::Ruled;
use gannet_content::stored_coding;
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{
    Driver, Errno, FileKind, KeepName, Meta, Nanos, OpenedFile, Root, Started, Token,
};

use self::at_path::at_path;
use self::coded_alone::Alone;
use super::copies::CopiesElsewhere;
use super::folders::{Glance, folder_of, sidecar_hash};
use super::listings::ListingPage;
use super::{Cached, CodedAlone, DirectorySite, Draft, LongCopying, OtherForm};
use crate::bounds::ledger::Charge;
use crate::bounds::limits::DESCRIPTOR_TRIES_MAX;
use crate::release::ServedFile;
use crate::release::bodies::Load;
use crate::release::growing::VersionEnd;
use crate::release::rules::RequestRules;
use crate::release::wakeup::{Wakeup, is_shortage};

/// The final result of a lookup on disk.
pub(crate) enum Filled {
    /// A file, to be cached. Without cached content, it is sent from the given file.
    File(Rc<Cached>, Status, Option<Rc<ServedFile>>),
    /// A redirect: an encoded path.
    Redirect(Vec<u8>),
    /// A redirect by a rule: a complete location.
    Elsewhere(Status, Vec<u8>),
    /// A listing of this directory below the root is needed.
    Directory(Vec<u8>),
    /// A directory's listing.
    Listing(ListingPage),
    /// Not finished: this content must be decoded first; the lookup will be woken.
    Undecoded(Load),
    /// Not finished: at most this many names of the folder of the file found are worth to be read first.
    Unsurveyed(usize),
    /// Not finished: descriptors, memory or room in the disk queue are used up.
    Short,
    /// No content to send.
    Error(Status),
}

/// Retries for a file that changes while being read.
const READS_MAX: u32 = 4;

/// A lookup on disk.
pub(crate) struct DiskLookup {
    /// The site in the release with which the lookup began; all its operations use that.
    site: Rc<DirectorySite>,
    request: RequestCopy,
    /// The steps that the rules may take.
    steps: Steps,
    /// The outcome of rules that precede files.
    ruled: Option<Ruled>,
    /// The path being looked up, if it is another one.
    wanted: Option<Vec<u8>>,
    /// Which form of what is there may be sent.
    form: FormChoice,
    lookup: Lookup,
    state: State,
    findings: Findings,
    /// Relative path of the file found.
    file_path: Vec<u8>,
    content_type: Cow<'static, str>,
    /// It begins as gzip, if its name asks for that.
    is_gzip: bool,
    /// Admitted to read content.
    is_admitted: bool,
    /// One of its files has just changed.
    is_brief: bool,
    /// One of its files has changed recently.
    is_recent: bool,
    reads: u32,
    /// How often the end of a file was read.
    ends: u32,
    /// Attempts after closing other files.
    tries: u32,
    /// It has waited for the names of a folder.
    has_awaited_survey: bool,
    /// Operations that were asked for since they were last counted.
    asked: u64,
    /// Time of its last operation or wake-up, Unix seconds.
    unix: i64,
    /// When it began.
    began: Nanos,
    /// Its result counts as no newer than that: when it began, however long the disk takes, or when
    /// what it knows of the folder was confirmed.
    as_of: Nanos,
    /// What the operator has to know of.
    fault: Option<Box<Fault>>,
}

/// What a lookup has copied of its request: the input of rules, and what decides on the result.
struct RequestCopy {
    /// The canonical path; of another form, while that is looked up.
    path: Vec<u8>,
    scheme: Scheme,
    prefix: Vec<u8>,
    /// Empty without rules, like the query and the language.
    host: Vec<u8>,
    query: Option<Vec<u8>>,
    /// The first of the client's languages.
    language: Vec<u8>,
    /// A browser requests a page to show.
    is_navigation: bool,
    /// Short files may be read before their lengths are known: the request is for all bytes, as far as
    /// its fields show.
    reads_ahead: bool,
}

/// Which form of what is at a path may be sent, if it has several.
enum FormChoice {
    /// Any: none was chosen yet.
    Any,
    /// Another one is looked up instead of that at this requested path.
    Other(Vec<u8>),
    /// That at the requested path alone: the one that was chosen is gone.
    Own,
}

/// What was found since the lookup began or was restarted.
struct Findings {
    /// Number of directories in which the path is missing: it is being searched in the next one, and
    /// what is opened is of that one.
    missing_in: usize,
    /// The file or directory that the lookup's last step opened.
    opened: Option<OpenedFile>,
    /// Its coding, if it exists only in one.
    alone: Option<Alone>,
    status: Status,
    /// The result is the path's own content, not a substitute.
    is_own: bool,
    drafts: Vec<Draft>,
    /// Files whose content has not been read yet.
    unread: Vec<(Coding, OpenedFile)>,
    /// The end of the file found, with the version that it is of.
    end: Option<(Meta, VersionEnd)>,
    /// Sidecars that are known to be absent: a bit for each of [`SIDECARS`], then one for each form.
    absent: u8,
    /// The other forms found.
    forms: Vec<OtherForm>,
    /// What is known of the folder was considered.
    has_glanced: bool,
    /// The cached entry of the path, as it was when it was last needed without waiting since then.
    before: Option<Option<Rc<Cached>>>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            missing_in: 0,
            opened: None,
            alone: None,
            status: Status::OK,
            is_own: true,
            drafts: Vec::new(),
            unread: Vec::new(),
            end: None,
            absent: 0,
            forms: Vec::new(),
            has_glanced: false,
            before: None,
        }
    }
}

/// An error of the system at a path below the root.
pub(crate) struct Fault {
    pub(crate) path: Vec<u8>,
    pub(crate) errno: Errno,
}

/// The pending operation.
enum State {
    /// The lookup's next step.
    Looking,
    /// Reads the content of one coding from this file.
    Reading {
        cached: Rc<Cached>,
        coding: Coding,
        opened: OpenedFile,
        /// Charge of the memory that it is read into; a copy is charged elsewhere.
        charge: Option<Charge>,
    },
    /// Opens this sidecar.
    Sidecar(usize),
    /// Opens this one of the other forms that the file may have.
    Form(usize),
    /// Opens the missing file in this one of the codings.
    Alone(usize),
    /// Reads the last bytes of this gzip file.
    GzipEnd(OpenedFile),
    /// Reads the first bytes of the file found.
    Start(OpenedFile),
    /// Reads the last bytes of the file, which has changed recently.
    VersionEnd(OpenedFile),
    /// Determines the length of content that exists only in a coding.
    Measuring(OpenedFile, Rc<CodedAlone>),
    /// Decodes content that exists only in a coding.
    Decoding(Rc<Cached>),
}

impl DiskLookup {
    /// Begins a lookup of a canonical path, possibly for a browser that shows a page. `ruled` is
    /// the outcome of rules that precede files; `now` and `unix` (seconds) are the current time. The
    /// rules take what they still need from as many steps as the request has.
    #[cold]
    pub(crate) fn new(
        site: &Rc<DirectorySite>,
        (asked, is_navigation): (&RuleInput<'_>, bool),
        ruled: Option<Ruled>,
        (now, unix): (Nanos, i64),
        steps: &Steps,
    ) -> Self {
        let path = asked.path;
        let wanted = match &site.options.single {
            Some(name) if path == b"/" || &path[1..] == name.as_slice() => {
                Some([b"/", name.as_slice()].concat())
            }
            // Not a canonical path: the lookup reports it missing without an operation.
            Some(_) => Some(Vec::new()),
            None => None,
        };
        // Only rules depend on more than the path.
        let (host, query, language) = match site.rules() {
            Some(_) => (
                asked.host.to_vec(),
                asked.query.map(<[u8]>::to_vec),
                asked.language.to_vec(),
            ),
            None => (Vec::new(), None, Vec::new()),
        };
        Self {
            site: Rc::clone(site),
            lookup: lookup(
                site,
                wanted.as_deref().unwrap_or(path),
                is_navigation,
                ruled.clone(),
            ),
            request: RequestCopy {
                path: path.to_vec(),
                scheme: asked.scheme,
                prefix: asked.prefix.to_vec(),
                host,
                query,
                language,
                is_navigation,
                reads_ahead: false,
            },
            steps: steps.clone(),
            ruled,
            wanted,
            form: FormChoice::Any,
            state: State::Looking,
            findings: Findings::default(),
            file_path: Vec::new(),
            content_type: Cow::Borrowed(""),
            is_gzip: false,
            is_admitted: false,
            is_brief: false,
            is_recent: false,
            reads: 0,
            ends: 0,
            tries: 0,
            has_awaited_survey: false,
            asked: 0,
            unix,
            began: now,
            as_of: now,
            fault: None,
        }
    }

    /// Bytes of what it has copied of the request, and of the paths that it makes of that: two of its lookup,
    /// and that of a file.
    pub(crate) fn memory(&self) -> usize {
        let requested = match &self.form {
            FormChoice::Other(path) => Some(path),
            FormChoice::Any | FormChoice::Own => None,
        };
        let optional = [self.wanted.as_ref(), requested, self.request.query.as_ref()];
        let optional = optional.into_iter().flatten().map(Vec::len);
        let copied = [
            &self.request.path,
            &self.request.host,
            &self.request.language,
        ]
        .map(Vec::len);
        let ruled = match &self.ruled {
            Some(Ruled::Content { path, .. }) => path.len(),
            _ => 0,
        };
        optional.chain(copied).sum::<usize>() + 3 * self.wanted().len() + ruled
    }

    /// Whether short files may be read before their lengths are known, from now on.
    pub(crate) fn reads_ahead(&mut self, reads_ahead: bool) {
        self.request.reads_ahead = reads_ahead;
    }

    /// The number of operations that it asked for since the last time.
    pub(crate) fn take_asked(&mut self) -> u64 {
        std::mem::take(&mut self.asked)
    }

    /// The first error of the system, unless it only says that nothing is there.
    pub(crate) fn take_fault(&mut self) -> Option<Box<Fault>> {
        self.fault.take()
    }

    /// Notes an error at a path.
    #[cold]
    fn failed(&mut self, path: Vec<u8>, errno: Errno) {
        self.fault
            .get_or_insert_with(|| Box::new(Fault { path, errno }));
    }

    /// Applies the site's redirects to a path without a file.
    fn claim(&mut self) {
        match self.ruling().and_then(|ruling| ruling.for_missing()) {
            Some(ruled) => self.lookup.claim(ruled),
            None => self.lookup.go_on(),
        }
    }

    /// The site's own rules, and their input.
    pub(crate) fn ruling(&self) -> Option<RequestRules<'_>> {
        let rules = self.site.rules()?;
        let asked = RuleInput {
            prefix: &self.request.prefix,
            scheme: self.request.scheme,
            host: &self.request.host,
            path: match &self.form {
                FormChoice::Other(requested) => requested,
                FormChoice::Any | FormChoice::Own => &self.request.path,
            },
            query: self.request.query.as_deref(),
            language: &self.request.language,
        };
        Some(RequestRules::new(rules, asked, &self.steps).at(&self.request.path))
    }

    /// The steps of the request, of which its rules take theirs from now on.
    pub(crate) fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Whether a rule that precedes files has decided.
    pub(crate) fn is_ruled(&self) -> bool {
        self.ruled.is_some()
    }

    /// When it began.
    pub(crate) fn began(&self) -> Nanos {
        self.began
    }

    /// The site of the lookup.
    pub(crate) fn site(&self) -> &Rc<DirectorySite> {
        &self.site
    }

    /// Caches the result for later requests to the same release. True if that goes when it is idle.
    pub(crate) fn remember(&self, cached: Rc<Cached>, status: Status) -> bool {
        self.site.remember(&self.key(), cached, status, self.as_of)
    }

    /// The canonical request path.
    pub(crate) fn path(&self) -> &[u8] {
        &self.request.path
    }

    /// The path being looked up.
    fn wanted(&self) -> &[u8] {
        self.wanted.as_deref().unwrap_or(&self.request.path)
    }

    /// Continues until an operation is pending (`None`) or the result is known. `answer` is the
    /// result of the pending operation, if there was one.
    pub(crate) fn advance<D: Driver>(
        &mut self,
        driver: &mut D,
        token: Token,
        mut answer: Option<Result<Wakeup, Errno>>,
    ) -> Option<Filled> {
        self.unix = driver.unix_seconds();
        loop {
            // A lookup may be done without any operation.
            if let (State::Looking, Step::Done(_)) = (&self.state, self.lookup.step()) {
                let filled = self.looked();
                if filled.is_some() {
                    return filled;
                }
            }
            let result = match answer.take() {
                Some(result) => result,
                None => {
                    if let Some(max) = self.survey_due(driver) {
                        return Some(Filled::Unsurveyed(max));
                    }
                    let Some(root) = self.root().cloned() else {
                        return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
                    };
                    self.asked += 1;
                    match self.ask(driver, &root, token) {
                        Started::Now(result) => result,
                        Started::Pending => {
                            self.wait();
                            return None;
                        }
                    }
                }
            };
            let filled = self.woken(driver, result);
            if filled.is_some() {
                return filled;
            }
        }
    }

    /// An operation is pending: content that was read ahead is not kept meanwhile, which no request has
    /// charged, and the cache may change.
    fn wait(&mut self) {
        self.findings.before = None;
        let unread = self.findings.unread.iter_mut().map(|(_, opened)| opened);
        for opened in unread.chain(&mut self.findings.opened) {
            opened.content = Vec::new();
        }
    }

    fn ask<D: Driver>(&mut self, driver: &mut D, root: &Root, token: Token) -> Started<Wakeup> {
        // What is cached may be valid still.
        let is_new = self.request.reads_ahead && self.previous().is_none();
        let open = |started: Started<_>| started.map(Wakeup::Opened);
        match &self.state {
            State::Looking => match self.lookup.step() {
                Step::Open(path) => open(match self.site.plain(path, driver) {
                    Some(ahead) if self.findings.missing_in == 0 => {
                        let ahead = if is_new { ahead } else { 0 };
                        driver.open_plain(root, path, ahead, token)
                    }
                    _ => driver.open(root, path, token),
                }),
                Step::Done(_) => unreachable!("a finished lookup leaves this state"),
            },
            State::Sidecar(_) | State::Form(_) => {
                // Sidecars and forms are numbered as in `absent`.
                let index = match self.state {
                    State::Form(index) => SIDECARS.len() + index,
                    State::Sidecar(index) => index,
                    _ => unreachable!("it is one of these"),
                };
                if self.findings.absent >> index & 1 == 1 {
                    return Started::Now(Err(Errno::NOENT));
                }
                let copies = self.copies(index);
                let root = copies.map_or(root, CopiesElsewhere::folder);
                open(driver.open(root, &self.beside(index), token))
            }
            State::Alone(index) => open(driver.open(root, &self.coded_name(*index), token)),
            State::GzipEnd(opened) => Self::ask_end(driver, opened, token),
            State::Start(opened) => Self::ask_start(driver, opened, token),
            State::VersionEnd(opened) => Self::ask_version_end(driver, opened, token),
            State::Reading { .. } | State::Measuring(..) | State::Decoding(_) => {
                unreachable!("what is being read was asked for")
            }
        }
    }

    /// Handles the result of opening the path that the lookup asks for.
    fn path_opened(&mut self, result: Result<Wakeup, Errno>) -> Option<Filled> {
        let is_other = self.findings.missing_in > 0;
        let found = at_path(&result);
        if self.is_elsewhere(found) {
            return None;
        }
        let (found, result) = match is_other && self.findings.missing_in == 0 {
            true => (AtPath::Missing, Err(Errno::NOENT)),
            false => (found, result),
        };
        if found == AtPath::Missing && self.may_be_coded() {
            self.state = State::Alone(0);
            return None;
        }
        if let Err(errno) = result
            && found != AtPath::Missing
            && let Step::Open(path) = self.lookup.step()
        {
            self.failed(path.to_vec(), errno);
        }
        self.lookup.found(found);
        self.findings.alone = None;
        if let Ok(Wakeup::Opened(opened)) = result {
            self.findings.opened = Some(opened);
        }
        self.looked()
    }

    /// Handles a result and moves on to the next operation, or finishes.
    fn woken<D: Driver>(
        &mut self,
        driver: &mut D,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        // Content reads handle shortage themselves.
        let is_lookup = !matches!(
            self.state,
            State::VersionEnd(_)
                | State::Reading { .. }
                | State::Measuring(..)
                | State::Decoding(_)
        );
        if let Err(errno) = &result
            && is_lookup
            && is_shortage(*errno)
        {
            return self.lack(*errno);
        }
        match (std::mem::replace(&mut self.state, State::Looking), result) {
            (State::Looking, result) => self.path_opened(result),
            (State::Sidecar(index), Ok(Wakeup::Opened(opened))) if self.is_usable(&opened.meta) => {
                let coding = SIDECARS[index].coding;
                self.take(coding, opened, index + 1)
            }
            (State::Sidecar(index), result) => {
                self.note_unreadable(index, &result);
                self.next_sidecar(index + 1)
            }
            (State::Form(index), result) => self.form_opened(index, result),
            (State::Alone(index), result) => self.coded_opened(index, result),
            (State::GzipEnd(opened), result) => self.gzip_end(opened, result),
            (State::Start(opened), result) => self.started(opened, result),
            (State::VersionEnd(opened), result) => self.version_end(driver, opened, result),
            (reading @ State::Reading { .. }, result) => {
                self.state = reading;
                self.content_read(driver, result)
            }
            (State::Measuring(coded, alone), result) => {
                self.coded_measured(driver, (coded, alone), result)
            }
            (State::Decoding(cached), result) => self.decoded(driver, cached, result),
        }
    }

    /// Handles an exhausted resource: retries at once if closing files may help.
    fn lack(&mut self, errno: Errno) -> Option<Filled> {
        let is_full = errno == Errno::AGAIN || self.tries >= DESCRIPTOR_TRIES_MAX;
        if is_full || !self.site.drop_descriptors() {
            return Some(Filled::Short);
        }
        self.tries += 1;
        None
    }

    /// Checks whether the lookup is done.
    fn looked(&mut self) -> Option<Filled> {
        if let Step::Done(Found::Unclaimed) = self.lookup.step() {
            self.claim();
        }
        let found = match self.lookup.step() {
            Step::Open(_) => return None,
            Step::Done(found) => found,
        };
        Some(match found {
            Found::File {
                path,
                status,
                is_own,
            } => {
                self.file_path = path.to_vec();
                self.findings.status = status;
                self.findings.is_own = is_own;
                let opened = self.findings.opened.take()?;
                self.content_type = self.site.options.types.content_type(path);
                return match self.findings.alone.take() {
                    Some(alone) => self.take_alone(opened, alone),
                    None => self.found(opened),
                };
            }
            Found::Listing { path } => Filled::Directory(path.to_vec()),
            Found::Redirect { location } => Filled::Redirect(location.to_vec()),
            Found::Elsewhere {
                status, location, ..
            } => Filled::Elsewhere(status, location.to_vec()),
            Found::Unclaimed => Filled::Error(Status::NOT_FOUND),
            Found::Missing(status) => Filled::Error(status),
            Found::Forbidden => Filled::Error(Status::FORBIDDEN),
            Found::Failed => Filled::Error(Status::INTERNAL_SERVER_ERROR),
        })
    }

    /// The status of the result.
    pub(crate) fn status(&self) -> Status {
        self.findings.status
    }

    /// Begins to copy the longer file that its result is sent from, if it is requested often enough.
    pub(crate) fn begin_long_copy<D: Driver>(
        &self,
        cached: &Cached,
        driver: &D,
    ) -> Option<LongCopying> {
        self.site
            .begin_long_copy(self.key().into_owned(), cached, driver)
    }

    /// Admits the lookup to read content.
    pub(crate) fn admit(&mut self) {
        self.is_admitted = true;
    }

    /// Takes the admission to read content, if there is one.
    pub(crate) fn take_admission(&mut self) -> bool {
        std::mem::take(&mut self.is_admitted)
    }

    /// Restarts the lookup later; it holds nothing until then.
    pub(crate) fn defer(&mut self) {
        self.start_over();
        self.is_admitted = false;
    }

    /// Restarts the lookup from the beginning.
    pub(crate) fn start_over(&mut self) {
        // No rule decides on another form that is sent.
        let ruled = self.ruled.clone().filter(|_| !self.is_other_form());
        self.lookup = lookup(&self.site, self.wanted(), self.request.is_navigation, ruled);
        self.state = State::Looking;
        self.findings = Findings::default();
    }

    /// The names that a survey keeps.
    pub(crate) const KEPT_NAMES: KeepName = sidecar_hash;

    /// The path below the root of the folder of the file found.
    pub(crate) fn folder(&self) -> &[u8] {
        folder_of(&self.file_path)
    }

    /// Begins again when the names of a folder are known. It does so once: a folder may change all the
    /// time, and a disk take longer than what is known of it counts.
    pub(crate) fn await_survey(&mut self) {
        self.has_awaited_survey = true;
        self.defer();
    }

    /// The names to read before the next sidecar or form is opened, at most, if a survey is due.
    fn survey_due<D: Driver>(&mut self, driver: &D) -> Option<usize> {
        let is_next = matches!(self.state, State::Sidecar(_) | State::Form(_));
        if !is_next || self.findings.has_glanced {
            return None;
        }
        self.glance(driver).filter(|_| !self.has_awaited_survey)
    }

    /// Considers what is known of the folder of the file found. If that is nothing, perhaps a survey
    /// of at most so many names is due.
    fn glance<D: Driver>(&mut self, driver: &D) -> Option<usize> {
        self.findings.has_glanced = true;
        if self.findings.missing_in > 0 {
            return None;
        }
        let len = self
            .findings
            .drafts
            .first()
            .map_or(0, |draft| draft.meta.len);
        match self.site.glance((&self.file_path, len), driver) {
            Glance::Known { as_of, absent } => {
                self.as_of = self.as_of.min(as_of);
                self.findings.absent = match self.site.copies() {
                    // It is the names beside the file that are known.
                    Some(_) => absent >> SIDECARS.len() << SIDECARS.len(),
                    None => absent,
                };
                None
            }
            Glance::Due(max) => Some(max),
            Glance::Unknown => None,
        }
    }

    fn next_sidecar(&mut self, next: usize) -> Option<Filled> {
        let original_len = self
            .findings
            .drafts
            .first()
            .map_or(0, |draft| draft.meta.len);
        let has = |sidecar: &Sidecar| {
            self.findings
                .drafts
                .iter()
                .any(|it| it.coding == sidecar.coding)
        };
        let is_out =
            |(index, it): &(usize, &Sidecar)| self.findings.absent >> index & 1 == 1 || has(it);
        let others = SIDECARS.iter().enumerate().skip(next);
        let next = next + others.take_while(is_out).count();
        let wanted = self.site.options.sidecars
            && next < SIDECARS.len()
            && (self.findings.missing_in == 0 || self.site.copies().is_none())
            && may_have_sidecars(&self.file_path, original_len)
            && mime::is_compressible(&self.content_type, original_len)
            && !stored_coding::is_possible(&self.file_path);
        if wanted {
            self.state = State::Sidecar(next);
            return None;
        }
        self.next_form(0)
    }

    /// The path below the root of the file in a coding.
    fn variant_path(&self, coding: Coding) -> Vec<u8> {
        let sidecar = SIDECARS.iter().find(|sidecar| sidecar.coding == coding);
        let suffix = sidecar.map_or(b"".as_slice(), |sidecar| sidecar.suffix);
        match self.site.copies().filter(|_| !suffix.is_empty()) {
            Some(copies) => copies.shown(&self.file_path, suffix),
            None => [self.file_path.as_slice(), suffix].concat(),
        }
    }

    /// Whether an opened sidecar may substitute for the file found.
    fn is_usable(&self, sidecar: &Meta) -> bool {
        sidecar.kind == FileKind::Regular
            && self.findings.drafts.first().is_some_and(|original| {
                let original = &original.meta;
                let times = |it: &Meta| (it.mtime_ns, it.ctime_ns);
                (self.site.copies().is_none() || is_copy_of(times(sidecar), times(original)))
                    && is_usable(
                        (sidecar.mtime_ns, sidecar.len),
                        (original.mtime_ns, original.len),
                    )
            })
    }

    /// The cache key of the file: the request path, or for a page that substitutes for any number
    /// of paths (404.html, an application's front page) the page's own, separate for errors, which
    /// may not be cached.
    fn key(&self) -> Cow<'_, [u8]> {
        match (self.findings.is_own, self.findings.status.0) {
            (true, _) => Cow::Borrowed(&self.request.path),
            (false, 400..) => Cow::Owned([b"\0\0", self.file_path.as_slice()].concat()),
            (false, _) => Cow::Owned([b"\0", self.file_path.as_slice()].concat()),
        }
    }
}

/// A lookup of a path, unless rules have claimed it.
fn lookup(
    site: &DirectorySite,
    wanted: &[u8],
    is_navigation: bool,
    ruled: Option<Ruled>,
) -> Lookup {
    let options = &site.options;
    let lookup = Lookup::new(wanted, options.lookup, &options.routing);
    let mut lookup = lookup.of_navigation(is_navigation);
    if let Some(ruled) = ruled {
        lookup.claim(ruled);
    }
    lookup
}
