//! An archive: everything was decided at packing time; a request is one lookup.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gannet_archive::{Archive, Body, Entry, EntryKind, Stored, Variant};
use gannet_content::archive::{Entries, Facts, Host, Resolution, Space, resolve};
use gannet_content::directory::listing::{Format, ListingRequest, json_path};
use gannet_content::negotiation::{self, Form};
use gannet_content::plan::{self, Representation};
use gannet_content::routing::{FallbackKind, is_navigation};
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_http::semantics::coding::CodingSet;
use gannet_http::semantics::response::{ReadyBlock, Status};
use gannet_io::memory::Memory;

use super::bodies::{Bodies, Unloaded};
use super::opened::OpenedArchive;
use super::partial::PartialView;
use super::rules::{RequestRules, SiteRules, may_stand_for};
use super::{Archived, RequestView, Resolved, Selected, ServedFile, Source};
use crate::bounds::limits::{SMALL_FILE_MAX, SNAPSHOT_MAX};

/// A selected representation whose body is not in memory yet, kept by its indices.
pub(crate) struct KeptEntry {
    entry: u32,
    variant: u32,
    status: Status,
    is_own: bool,
    varies_by_type: bool,
}

impl KeptEntry {
    /// The selected representation, with the `body` that is its source.
    pub(crate) fn new(selected: &Selected<'_>, body: &Unloaded<'_>) -> Self {
        Self {
            entry: body.entry,
            variant: body.variant,
            status: selected.status,
            is_own: selected.is_own,
            varies_by_type: selected.varies_by_type,
        }
    }
}

/// An archive, as seen by one worker.
pub(crate) struct ArchiveSite {
    /// Index, entries and field blocks, validated; shared by all workers, never written.
    pub(crate) archive: Arc<Archive<Vec<u8>>>,
    /// The whole file, if it was copied into unalterable memory. Each worker has its own handle, so
    /// that reference counting touches no cache line of another worker.
    pub(crate) memory: Option<Arc<Memory>>,
    /// The descriptor that large bodies are sent from; without a copy, all bodies are read from it.
    pub(crate) file: Rc<ServedFile>,
    /// Bodies that have to be read or decoded first.
    pub(crate) bodies: Bodies,
    /// Answer paths that name nothing with the front page.
    pub(crate) spa: bool,
    /// Index of this host in the archive.
    pub(crate) host: u16,
    /// The kinds of fallback page that it has, best first.
    pub(crate) fallbacks: Vec<FallbackKind>,
    /// The site's own rules.
    pub(crate) rules: Option<Arc<SiteRules>>,
    /// Some file may be another form of a file.
    has_forms: bool,
    /// Counts answers as another release than the current one.
    kept_answers: Arc<AtomicU64>,
}

/// A host of the current release, and the others.
struct Releases<'a, 'o> {
    current: &'a ArchiveSite,
    host: Host<'a, Vec<u8>>,
    others: &'o [Rc<ArchiveSite>],
    steps: &'o Steps,
}

impl<'a> Entries for Releases<'a, '_> {
    type Entry = Entry<'a>;

    #[inline]
    fn find(&self, space: Space, path: &[u8]) -> Option<Entry<'a>> {
        self.host.find(space, path)
    }

    fn has_content(&self, entry: &Entry<'a>) -> bool {
        self.host.has_content(entry)
    }

    fn is_file(&self, entry: &Entry<'a>) -> bool {
        self.host.is_file(entry)
    }

    fn is_listing(&self, entry: &Entry<'a>) -> bool {
        self.host.is_listing(entry)
    }

    fn is_kept(&self, path: &[u8]) -> bool {
        self.others
            .iter()
            .any(|site| self.current.kept_by(site, (path, self.steps)).is_some())
    }
}

impl Archived {
    /// Resolves a path, in the current release or as an immutable asset of another one. Returns the
    /// site that has it, and sets `ruling` to its rules.
    #[inline]
    pub(crate) fn resolve<'s>(
        &'s self,
        view: &RequestView<'s>,
        ruling: &mut Option<RequestRules<'s>>,
    ) -> (&'s Rc<ArchiveSite>, Resolved<'s>) {
        match self.current.resolve(view, ruling, &self.others) {
            Some(resolved) => (&self.current, resolved),
            None => {
                let (site, resolved) = self.asset(view);
                let rules = site.rules.as_deref();
                *ruling = rules.map(|rules| RequestRules::new(rules, view.input(), view.steps));
                (site, resolved)
            }
        }
    }

    /// The other release that has an immutable asset of this path, and its answer.
    #[cold]
    fn asset(&self, view: &RequestView<'_>) -> (&Rc<ArchiveSite>, Resolved<'_>) {
        let mut others = self.others.iter();
        let found = others
            .find_map(|site| Some((site, self.current.kept_by(site, (view.path, view.steps))?)));
        let Some((site, entry)) = found else {
            debug_assert!(false, "it was just found");
            return (&self.current, Resolved::Error(Status::NOT_FOUND));
        };
        site.kept_answers.fetch_add(1, Ordering::Relaxed);
        (site, site.answer(entry, view, Status::OK, true))
    }
}

impl ArchiveSite {
    /// A worker's sites of an archive, one per host. They share `bodies`.
    pub(crate) fn all(
        opened: &OpenedArchive,
        worker: usize,
        bodies: Bodies,
    ) -> impl Iterator<Item = Self> {
        let (file, memory) = opened.files[worker].clone();
        let file = Rc::new(match (&opened.partial, opened.is_copied) {
            (Some(partial), _) => {
                ServedFile::of_partial(file, PartialView::of(Arc::clone(partial)))
            }
            (None, true) => ServedFile::constant(file),
            (None, false) => ServedFile::of_archive(file, opened.meta, opened.origin.clone()),
        });
        opened.hosts.iter().map(move |(host, _, rules)| Self {
            archive: Arc::clone(&opened.archive),
            memory: memory.clone(),
            file: Rc::clone(&file),
            bodies: bodies.clone(),
            spa: opened.spa,
            host: *host,
            fallbacks: Host::of(&opened.archive, *host).fallbacks(),
            rules: rules.clone(),
            has_forms: opened.has_forms,
            kept_answers: Arc::clone(&opened.kept_answers),
        })
    }

    fn host(&self) -> Host<'_, Vec<u8>> {
        Host::of(&self.archive, self.host)
    }

    /// The entry of a path if it is an immutable asset that can be sent.
    fn immutable(&self, path: &[u8]) -> Option<Entry<'_>> {
        let entry = self.host().find(Space::Content, path)?;
        (entry.is_immutable() && !self.file.is_over()).then_some(entry)
    }

    /// The entry of another release for a path, if that may be sent: as an immutable asset that everyone
    /// may have there, or the same users as here.
    fn kept_by<'o>(&self, other: &'o Self, (path, steps): (&[u8], &Steps)) -> Option<Entry<'o>> {
        let lists = |site: &Self| {
            let table = site.rules.as_deref().and_then(SiteRules::users);
            let lists = table.into_iter().flat_map(|table| table.users(path, steps));
            lists.map(<[_]>::to_vec).collect::<Vec<_>>()
        };
        let entry = other.immutable(path)?;
        let theirs = lists(other);
        // Out of steps, no user may.
        let is_known = !theirs.iter().any(Vec::is_empty);
        (theirs.is_empty() || is_known && theirs == lists(self)).then_some(entry)
    }

    /// Resolves a path; `None` if only one of `others` has it, as an immutable asset.
    #[inline]
    fn resolve<'s>(
        &'s self,
        view: &RequestView<'_>,
        ruling: &mut Option<RequestRules<'s>>,
        others: &[Rc<Self>],
    ) -> Option<Resolved<'s>> {
        let rules = self.rules.as_deref();
        let facts = Facts {
            spa: self.spa,
            slash_redirects: self.archive.options().slash_redirects,
            has_unruled: rules.is_some_and(|it| it.has_fields() && it.fields_are_fixed()),
            fallbacks: &self.fallbacks,
            redirects: rules.and_then(|it| it.redirects()),
        };
        let unruled = RuleInput {
            prefix: b"",
            scheme: Scheme::Http,
            host: b"",
            path: view.path,
            query: None,
            language: b"",
        };
        let none = Steps::new(0);
        let (input, steps) = match ruling {
            Some(ruling) => (&ruling.input, ruling.steps),
            None => (&unruled, &none),
        };
        let releases = Releases {
            current: self,
            host: self.host(),
            others,
            steps: view.steps,
        };
        let outcome = resolve(&releases, &facts, (input, steps), || {
            is_navigation(&view.request.fields)
        });
        if let Some(rules) = rules {
            rules.note_overruns();
        }
        Some(match outcome {
            Resolution::Entry {
                entry,
                status,
                is_own,
            } => {
                let entry = match is_own && view.path.ends_with(b"/") {
                    true => self.in_form(entry, view),
                    false => entry,
                };
                match is_own && self.has_forms {
                    true => self.chosen(entry, view, ruling),
                    false => self.answer(entry, view, status, is_own),
                }
            }
            Resolution::Kept => return None,
            Resolution::Redirect(location) => Resolved::Redirect(location.into()),
            Resolution::Elsewhere {
                status, location, ..
            } => Resolved::Elsewhere(status, location),
            Resolution::Missing(status) => Resolved::Error(status),
        })
    }

    /// Answers with a path's own entry, or with another form that the request prefers, and sets
    /// `ruling` to its path.
    #[cold]
    fn chosen<'s>(
        &'s self,
        mut entry: Entry<'s>,
        view: &RequestView<'_>,
        ruling: &mut Option<RequestRules<'s>>,
    ) -> Resolved<'s> {
        let others = self.other_forms(&entry, view.path);
        if others.is_empty() {
            return self.answer(entry, view, Status::OK, true);
        }
        let own = (
            str::from_utf8(entry.content_type()).unwrap_or_default(),
            len_of(&entry),
        );
        let lens = others.iter().map(|(form, entry)| (*form, len_of(entry)));
        let chosen = negotiation::choose(&view.request.fields, own, lens);
        let chosen = chosen.map(|position| others[position].1);
        let may_be_sent = |it: &Entry<'s>| {
            may_stand_for((view.release, view.site), *ruling, [view.path, it.path()])
        };
        if let Some(chosen) = chosen.filter(may_be_sent) {
            entry = chosen;
            *ruling = ruling.map(|ruling| ruling.at(entry.path()));
        }
        match self.answer(entry, view, Status::OK, true) {
            Resolved::Selected(selected) => Resolved::Selected(Selected {
                varies_by_type: true,
                ..selected
            }),
            resolved => resolved,
        }
    }

    /// The other forms of what is at the path.
    fn other_forms<'s>(&'s self, entry: &Entry<'s>, path: &[u8]) -> Vec<(Form, Entry<'s>)> {
        let host = self.host();
        let content = |path: &[u8]| {
            let found = host.find(Space::Content, path);
            found.filter(|it| host.has_content(it) && !it.is_generated())
        };
        if entry.is_generated() || !host.has_content(entry) {
            return Vec::new();
        }
        let is_page = || {
            let is_html = entry.content_type().starts_with(b"text/html");
            let with_suffix = || host.find(Space::Content, &[path, b".html"].concat());
            is_html && (path.ends_with(b"/") || with_suffix().is_some())
        };
        let forms = negotiation::paths_of(path, is_page);
        let found = forms.into_iter().filter_map(|(form, path)| {
            let other = content(&path).filter(|it| len_of(it) > 0)?;
            Some((form, other))
        });
        found.collect()
    }

    /// Selects a kept representation again, with its body as it `is_loaded` now, or else in the
    /// file.
    pub(crate) fn selected_again(&self, kept: &KeptEntry, is_loaded: bool) -> Option<Selected<'_>> {
        let entry = self.archive.entry(kept.entry)?;
        let variant = entry.variant(kept.variant)?;
        let selected = self.selected(&entry, variant, (kept.status, kept.is_own));
        let source = match selected.source {
            Source::Unloaded(body) if !is_loaded => body.in_file()?,
            source => source,
        };
        Some(Selected {
            varies_by_type: kept.varies_by_type,
            source,
            ..selected
        })
    }

    /// Selects the JSON variant of a listing if the request asks for it; returns any other entry
    /// unchanged.
    fn in_form<'s>(&'s self, entry: Entry<'s>, view: &RequestView<'_>) -> Entry<'s> {
        let is_json = entry.is_generated()
            && ListingRequest::of(view.request, view.path).format == Format::Json;
        let json = is_json.then(|| self.host().find(Space::Content, &json_path(view.path)));
        // A file may have that name.
        let json = json.flatten().filter(Entry::is_generated);
        json.unwrap_or(entry)
    }

    fn answer<'s>(
        &'s self,
        entry: Entry<'s>,
        view: &RequestView<'_>,
        status: Status,
        is_own: bool,
    ) -> Resolved<'s> {
        match entry.kind() {
            EntryKind::Redirect { location, .. } => Resolved::Redirect(location.into()),
            // If no stored coding is acceptable, serve identity, as a directory does (RFC 9110
            // section 12.5.3).
            EntryKind::Content => match self.variant(&entry, view) {
                Some(variant) => {
                    let may_be_coded = entry.has_dictionary_variants() && is_own;
                    let coded = may_be_coded.then(|| self.coded(&entry, view));
                    let coded = coded.flatten();
                    let coded = coded.filter(|it| plan::may_be_of(view.request, it.entity_tag()));
                    let variant = coded.unwrap_or(variant);
                    Resolved::Selected(self.selected(&entry, variant, (status, is_own)))
                }
                None => Resolved::Error(Status::NOT_FOUND),
            },
        }
    }

    /// The variant for a request, without regard for dictionaries.
    #[inline]
    fn variant<'s>(&self, entry: &Entry<'s>, view: &RequestView<'_>) -> Option<Variant<'s>> {
        let variants = entry.variants().map(|it| (it.coding(), it.entity_tag()));
        let codings = plan::select_for_range(view.request, view.codings(), variants);
        let variant = entry.select(codings);
        // A short file may be stored in a coding alone, which every client gets.
        variant.or_else(|| entry.select(CodingSet::IDENTITY))
    }

    fn selected<'s>(
        &'s self,
        entry: &Entry<'s>,
        variant: Variant<'s>,
        (status, is_own): (Status, bool),
    ) -> Selected<'s> {
        let stored = variant.body();
        let unloaded = || {
            Source::Unloaded(Unloaded {
                bodies: &self.bodies,
                file: &self.file,
                number: variant.blob_number(),
                entry: entry.number(),
                variant: variant.number(),
                stored,
                digest: variant.digest().try_into().ok(),
            })
        };
        let (len, source) = match (stored, &self.memory) {
            (Body::Decoded { len, .. }, _) => (len, unloaded()),
            (Body::Plain(Stored::Tiny(bytes)), _) => (bytes.len() as u64, Source::Bytes(bytes)),
            (Body::Plain(Stored::Blob { offset, len }), memory) => match memory {
                Some(memory) if len <= SMALL_FILE_MAX => {
                    let offset = usize::try_from(offset).expect("it is in memory");
                    (len, Source::Memory(memory, offset))
                }
                None if len <= SNAPSHOT_MAX || self.file.partial.is_some() => (len, unloaded()),
                _ => (len, Source::File(&self.file, offset)),
            },
        };
        Selected {
            status,
            block: ReadyBlock {
                h1: variant.h1(),
                hpack: variant.hpack(),
            },
            representation: Representation {
                len,
                coding: variant.coding(),
                entity_tag: Some(variant.entity_tag()).filter(|tag| !tag.is_empty()),
                last_modified: entry.last_modified(),
            },
            content_type: variant.content_type(),
            source,
            sha256: None,
            is_ruled: is_own && self.rules.as_ref().is_none_or(|r| r.fields_are_fixed()),
            is_own,
            varies_by_type: false,
        }
    }
}

/// Length of an entry's content without coding, in bytes.
fn len_of(entry: &Entry<'_>) -> u64 {
    let lens = entry.variants().map(|variant| match variant.body() {
        Body::Plain(Stored::Tiny(bytes)) => bytes.len() as u64,
        Body::Plain(Stored::Blob { len, .. }) | Body::Decoded { len, .. } => len,
    });
    lens.max().unwrap_or(0)
}

/// Whether some file of an archive may be another form of a file.
pub(crate) fn has_forms(archive: &Archive<Vec<u8>>) -> bool {
    archive
        .entries()
        .any(|entry| negotiation::is_form(entry.path()))
}
