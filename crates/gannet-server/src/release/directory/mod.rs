//! A live directory: a worker's cache of it, and how long entries stay fresh.
//!
//! A request path that was answered a moment ago is answered from memory. After
//! [`BELIEVED_MS`](crate::bounds::limits::BELIEVED_MS) the file's metadata are compared with the cached
//! ones (identity, length, times), so a change is seen within a second on every file system,
//! without a watch per directory. After [`CONFIRMED_MS`](crate::bounds::limits::CONFIRMED_MS) the whole
//! path is looked up again.

mod cache;
mod coded;
pub(crate) mod copies;
pub(crate) mod fill;
mod folders;
pub(crate) mod kept_names;
pub(crate) mod listings;
pub(crate) mod long_copies;
mod on_the_fly;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use gannet_content::answer::{self, Resource};
use gannet_content::directory::coding::{self, CODED_UP_TO};
use gannet_content::directory::lookup::LookupOptions;
use gannet_content::mime::{Types, TypesError};
use gannet_content::negotiation::{self, Form};
use gannet_content::plan::{self, Representation};
use gannet_content::policy::cache::Lifetime;
use gannet_content::routing::Routing;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::validators::{self, LiveFile};
use gannet_http::h2::hpack;
use gannet_http::semantics::coding::{Coding, CodingSet, accept_encoding};
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::ready_fields::{CheckedLines, ReadyFields};
use gannet_http::semantics::request::Request;
use gannet_http::semantics::response::ReadyBlock;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Meta, Nanos, OpenedFile, Root};

use self::cache::Cache;
use self::coded::CodedAlone;
use self::copies::CopiesElsewhere;
use self::folders::Folders;
use self::kept_names::KeptNames;
pub(crate) use self::long_copies::{LongCopies, LongCopying};
use self::on_the_fly::OnTheFly;
use super::bodies::Bodies;
use super::files::{is_recent, is_settled};
use super::growing::VersionEnd;
use super::opened::OpenedDirectory;
use super::room::{Ageing, Pool, Room};
use super::rules::SiteRules;
use super::{Selected, ServedFile, Source};
use crate::bounds::ledger::Ledger;
use crate::bounds::limits::{CODED_PART, CODED_WEIGHT, SMALL_FILE_MAX, SNAPSHOT_MAX};
use crate::coder::Coder;
use crate::config::ContentOptions;
use crate::release::body::Body;

/// A live directory as one worker sees it: the directory at a path at some time, with its rules.
pub(crate) struct DirectorySite {
    /// `None` while the path names no directory.
    root: Option<Root>,
    /// See [`OpenedDirectory`].
    others: Vec<Root>,
    /// Its sidecars, if they are not beside its files.
    copies: Option<CopiesElsewhere>,
    /// The site's own rules.
    rules: Option<Arc<SiteRules>>,
    pub(crate) options: Arc<DirectoryOptions>,
    /// Names that browsers may cache, of all workers.
    kept: Arc<KeptNames>,
    /// Cached files; `None` once the site is retired.
    cache: RefCell<Option<Cache>>,
    /// What lookups know about its folders; `None` once the site is retired.
    folders: RefCell<Option<Folders>>,
    /// Decoded content of files that exist only in a coding: the last one.
    bodies: Bodies,
    /// Copies of longer files, for all sites and workers.
    long_copies: Arc<LongCopies>,
}

/// How a directory is served.
pub(crate) struct DirectoryOptions {
    pub(crate) lookup: LookupOptions,
    pub(crate) routing: Arc<Routing>,
    /// The fields that content has by default.
    fields: CheckedLines,
    pub(crate) types: Types,
    pub(crate) sidecars: bool,
    /// Codes text while it is served.
    pub(crate) coder: Option<Arc<Coder>>,
    /// Serve `NAME` from `NAME.gz` if there is no `NAME`.
    pub(crate) compressed_only: bool,
    /// Files up to this length are read whole before they are sent.
    read_max: u64,
    /// The same for text that is coded.
    coded_max: u64,
    /// Only this file of the directory is served, at `/` and at its name.
    pub(crate) single: Option<Vec<u8>>,
}

/// The cached representations of a file.
pub(crate) struct Cached {
    content_type: Cow<'static, str>,
    last_modified: Option<i64>,
    /// In order of length; the first acceptable one is sent.
    variants: Vec<CachedVariant>,
    /// The site's rules for the one path that this answers are applied to the fields.
    is_ruled: bool,
    /// One of its files changed just before the lookup: see [`is_settled`].
    is_brief: bool,
    /// One of its files changed recently: its bytes are read again at a lookup after this time.
    read_again_at: Option<Nanos>,
    /// It is the content of a path, not a substitute.
    is_own: bool,
    /// Other forms of it that exist.
    forms: Vec<OtherForm>,
    /// Its codings that are made while it is served, if it is ever coded.
    on_the_fly: Option<Box<OnTheFly>>,
}

/// Another form of a file, which is beside it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OtherForm {
    pub(crate) form: Form,
    /// Its path below the root.
    pub(crate) path: Vec<u8>,
    pub(crate) meta: Meta,
}

/// How the fields of a file's variants are rendered.
#[derive(Clone)]
struct Shaping {
    options: Arc<DirectoryOptions>,
    content_type: Cow<'static, str>,
    last_modified: Option<i64>,
    lifetime: Lifetime,
    /// There may be several codings.
    has_choice: bool,
    /// There are other forms.
    has_forms: bool,
    changes: Option<Rc<FieldChanges>>,
}

impl Shaping {
    /// Prepares a variant for sending. `None` if its fields cannot be rendered.
    fn variant(&self, draft: Draft, tag: String) -> Option<CachedVariant> {
        let ready = answer::ready_fields(&Resource {
            content_type: &self.content_type,
            coding: draft.coding,
            len: draft.len,
            entity_tag: &tag,
            last_modified: self.last_modified,
            vary: match (self.has_choice, self.has_forms) {
                (false, false) => None,
                (true, false) => Some(answer::VARY_BY_CODING),
                (false, true) => Some(answer::VARY_BY_TYPE),
                (true, true) => Some(answer::VARY_BY_CODING_AND_TYPE),
            },
            cache_control: Some(self.lifetime.cache_control()),
            fields: &[],
            common: Some(&self.options.fields),
        });
        let mut ready = ready.ok()?;
        if let Some(changes) = &self.changes {
            ready = changes.apply_to_block(ready.as_block()).ok()?;
        }
        Some(CachedVariant {
            draft,
            tag,
            hpack: OnceCell::new(),
            ready,
            sha256: OnceCell::new(),
            taken: Cell::new(0),
            live: RefCell::default(),
        })
    }
}

/// The use of a file in responses.
pub(crate) struct Role<'a> {
    /// It answers its own path, not paths without content.
    pub(crate) is_own: bool,
    /// It is sent with an error status.
    pub(crate) is_error: bool,
    /// Its path below the root; the file may exist only in a coding.
    pub(crate) name: &'a [u8],
    /// The changes have those of the site's rules, which are not determined for each request.
    pub(crate) is_ruled: bool,
    /// The changes to its fields, which also name the coding that it is stored in.
    pub(crate) changes: Option<&'a FieldChanges>,
    /// Other forms of it that exist.
    pub(crate) forms: &'a [OtherForm],
}

/// One content coding of a file as found on disk: the file itself, or a sidecar.
pub(crate) struct Draft {
    /// Its path below the root, or below the folder of the copies.
    pub(crate) path: Vec<u8>,
    /// It is one of the [`CopiesElsewhere`].
    pub(crate) is_elsewhere: bool,
    pub(crate) coding: Coding,
    /// Metadata of the file, even if the content is decoded from it.
    pub(crate) meta: Meta,
    /// Length of the content in bytes.
    pub(crate) len: u64,
    /// The content, once a request has needed it.
    pub(crate) body: OnceCell<Body>,
    /// That is one of the [`LongCopies`], which have room of their own.
    pub(crate) is_long_copy: bool,
    /// The file that it is decoded from before it is sent.
    pub(crate) coded: Option<Rc<CodedAlone>>,
}

/// A draft, ready to be sent.
struct CachedVariant {
    draft: Draft,
    tag: String,
    ready: ReadyFields,
    /// The same fields for HTTP/2, once it is cached.
    hpack: OnceCell<Option<ReadyFields>>,
    /// Its SHA-256, computed on the first request for it.
    sha256: OnceCell<[u8; 32]>,
    /// Bytes that requests took of it before there was a copy.
    taken: Cell<u64>,
    /// The file that it is being sent from.
    live: RefCell<Weak<ServedFile>>,
}

impl CachedVariant {
    /// Renders its fields for HTTP/2, once.
    fn render(&self) {
        let render = || hpack::ready::render(self.ready.as_block());
        self.hpack.get_or_init(render);
    }
}

/// Bytes that a cached file counts for besides its content.
const ENTRY_WEIGHT: u64 = 1_024;

impl Cached {
    /// Prepares a file's variants for sending. `None` if its fields cannot be rendered.
    fn new(
        content_type: Cow<'static, str>,
        mut drafts: Vec<Draft>,
        unix: i64,
        site: &DirectorySite,
        role: &Role<'_>,
    ) -> Option<Self> {
        let is_original = |draft: &&Draft| draft.coding == Coding::Identity;
        let original = drafts.iter().find(is_original).or(drafts.first())?;
        let last_modified = validators::last_modified(original.meta.mtime_ns, unix);
        let lifetime = match role {
            Role { is_own: true, .. } => site.lifetime(role.name, original, &content_type),
            Role { is_error: true, .. } => Lifetime::NoCache,
            Role { .. } => Lifetime::Revalidate,
        };
        let mut shaping = Shaping {
            options: Arc::clone(&site.options),
            content_type,
            last_modified,
            lifetime,
            has_choice: true,
            has_forms: !role.forms.is_empty(),
            changes: role.changes.cloned().map(Rc::new),
        };
        let on_the_fly = match site.may_keep_codings(original.len) {
            true => OnTheFly::new(original, &site.options, site.rules(), role, &shaping),
            false => None,
        };
        shaping.has_choice = drafts.len() > 1 || on_the_fly.is_some();
        // Variants that require decoding come last.
        drafts.sort_by_key(|draft| (draft.coded.is_some(), draft.len));
        let mut variants = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let mut tag = validators::live_tag(&LiveFile {
                mtime_ns: draft.meta.mtime_ns,
                ctime_ns: draft.meta.ctime_ns,
                len: draft.len,
                identity: draft.meta.identity,
            });
            if draft.coded.is_some() {
                // The coded representation of the same file has a tag as well.
                tag.insert_str(tag.len() - 1, "-i");
            }
            variants.push(shaping.variant(draft, tag)?);
        }
        Some(Self {
            content_type: shaping.content_type,
            last_modified,
            variants,
            is_ruled: role.is_ruled,
            is_own: role.is_own,
            is_brief: false,
            read_again_at: None,
            forms: role.forms.to_vec(),
            on_the_fly: on_the_fly.map(Box::new),
        })
    }

    /// The body in a coding, if its file is still this version.
    fn body(&self, coding: Coding, meta: &Meta) -> Option<Body> {
        self.variant(coding, meta)?.draft.body.get().cloned()
    }

    fn variant(&self, coding: Coding, meta: &Meta) -> Option<&CachedVariant> {
        let same = |v: &&CachedVariant| v.draft.coding == coding && v.draft.meta == *meta;
        self.variants.iter().find(same)
    }

    fn variant_in(&self, coding: Coding) -> Option<&CachedVariant> {
        self.variants.iter().find(|v| v.draft.coding == coding)
    }

    /// Renders what later requests need: once for all.
    fn render(&self) {
        self.variants.iter().for_each(CachedVariant::render);
    }

    /// Whether looking it up again costs little: its bodies are short, or it has none, and none is
    /// being coded.
    fn is_short(&self) -> bool {
        if self.made_weight() > 0 {
            return false;
        }
        let mut drafts = self.variants.iter().map(|variant| &variant.draft);
        drafts.all(|draft| draft.len <= SMALL_FILE_MAX && draft.coded.is_none())
    }

    /// Sets the content of a coding after it was read.
    pub(crate) fn set_body(&self, coding: Coding, body: Body) {
        if let Some(variant) = self.variant_in(coding) {
            // If it is already set, it was read from the same version.
            let _ = variant.draft.body.set(body);
            self.recognize();
        }
    }

    /// Whether to copy a coding, for a request that takes `needed` bytes of it: once requests have
    /// taken as many bytes as it has. Each counts as at least [`SMALL_FILE_MAX`]: without a copy, a
    /// lookup costs as much.
    pub(crate) fn is_worth_copying(&self, coding: Coding, needed: u64) -> bool {
        self.variant_in(coding).is_some_and(|variant| {
            let taken = variant.taken.get() + needed.max(SMALL_FILE_MAX);
            variant.taken.set(taken.min(variant.draft.len));
            taken >= variant.draft.len
        })
    }

    /// The file of a coding, to be sent directly: one descriptor for all concurrent responses, and
    /// none without any. `end` is that of this version, if it has changed recently.
    pub(crate) fn live(
        &self,
        coding: Coding,
        opened: OpenedFile,
        end: Option<VersionEnd>,
    ) -> Rc<ServedFile> {
        let OpenedFile { file, meta, .. } = opened;
        let opened = || Rc::new(ServedFile::live(file, meta, end));
        let Some(variant) = self.variant(coding, &meta) else {
            return opened();
        };
        let before = variant.live.borrow().upgrade();
        let is_same = |file: &Rc<ServedFile>| !file.is_over() && file.end() == end;
        before.filter(is_same).unwrap_or_else(|| {
            let file = opened();
            *variant.live.borrow_mut() = Rc::downgrade(&file);
            file
        })
    }

    /// The memory of its content, for reuse, if it has no other owner.
    pub(crate) fn into_vec(self: Rc<Self>) -> Option<Vec<u8>> {
        let variants = Rc::into_inner(self)?.variants.into_iter();
        let mut bodies = variants.filter_map(|it| it.draft.body.into_inner());
        bodies.find_map(Body::into_vec)
    }

    /// Whether it is the content of its path, sent with this status, and no page in its place.
    pub(crate) fn is_content(&self, status: Status) -> bool {
        self.is_own && status == Status::OK
    }

    /// The canonical path of another form that a request wants rather than this one.
    #[inline]
    pub(crate) fn better(&self, request: &Request<'_>, status: Status) -> Option<Vec<u8>> {
        match self.forms.is_empty() || !self.is_content(status) {
            true => None,
            false => self.chosen(request),
        }
    }

    #[cold]
    fn chosen(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let original = self.variant_in(Coding::Identity)?;
        let others = self.forms.iter().map(|it| (it.form, it.meta.len));
        let own = (&*self.content_type, original.draft.len);
        let chosen = negotiation::choose(&request.fields, own, others)?;
        Some([b"/", self.forms[chosen].path.as_slice()].concat())
    }

    /// Whether it consists of exactly these drafts, and has these other forms.
    fn is_made_of(&self, drafts: &[Draft], forms: &[OtherForm]) -> bool {
        let is_live = |draft: &Draft| draft.body.get().map(Body::is_live);
        self.forms == forms
            && self.variants.len() == drafts.len()
            && drafts.iter().all(|draft| {
                let variant = self.variant(draft.coding, &draft.meta);
                variant.is_some_and(|it| {
                    is_live(draft).is_none() || is_live(draft) == is_live(&it.draft)
                })
            })
    }

    /// The representation for a request: its smallest acceptable variant.
    pub(crate) fn select(&self, request: &Request<'_>, status: Status) -> Selected<'_> {
        let accepted = accept_encoding(request.fields.lines(KnownField::AcceptEncoding));
        let stored = self.stored(request, accepted);
        let made = self.made_for(request, accepted, stored.draft.len);
        self.selected(made.unwrap_or(stored), status)
    }

    /// The same among the variants that are files.
    pub(crate) fn select_stored(&self, request: &Request<'_>, status: Status) -> Selected<'_> {
        let accepted = accept_encoding(request.fields.lines(KnownField::AcceptEncoding));
        self.selected(self.stored(request, accepted), status)
    }

    /// Without an acceptable variant, the file itself (RFC 9110 section 12.5.3 lets a server
    /// disregard the field), which may be coded and too long to decode.
    fn stored(&self, request: &Request<'_>, accepted: CodingSet) -> &CachedVariant {
        let variants = self.variants.iter();
        let variants = variants.map(|it| (it.draft.coding, it.tag.as_bytes()));
        let accepted = plan::select_for_range(request, accepted, variants);
        self.variants
            .iter()
            .find(|v| accepted.contains(v.draft.coding))
            .or_else(|| self.variant_in(Coding::Identity))
            .or_else(|| self.variants.first())
            .expect("a cached file has a variant")
    }

    fn selected<'c>(&'c self, variant: &'c CachedVariant, status: Status) -> Selected<'c> {
        Selected {
            status,
            block: ReadyBlock {
                h1: variant.ready.as_block(),
                hpack: variant
                    .hpack
                    .get()
                    .and_then(|it| Some(it.as_ref()?.as_block())),
            },
            representation: Representation {
                len: variant.draft.len,
                coding: variant.draft.coding,
                entity_tag: Some(variant.tag.as_bytes()),
                last_modified: self.last_modified,
            },
            content_type: self.content_type.as_bytes(),
            source: match (variant.draft.body.get(), &variant.draft.coded) {
                (Some(body), _) => body.as_source(),
                (None, Some(coded)) => Source::Unloaded(coded.body(variant.draft.len)),
                (None, None) => Source::Unread,
            },
            sha256: (variant.draft.len <= SMALL_FILE_MAX).then_some(&variant.sha256),
            is_ruled: self.is_ruled,
            is_own: self.is_own,
            varies_by_type: false,
        }
    }

    /// Whether it is sent from a file that may change.
    fn is_live(&self) -> bool {
        self.files().any(|file| !file.is_constant())
    }

    /// Whether its entry goes when it is idle: it keeps a file open that may be deleted, or a longer copy,
    /// whose room others may need.
    fn goes_when_idle(&self) -> bool {
        self.is_live() || self.variants.iter().any(|v| v.draft.is_long_copy)
    }

    /// Whether a response is being sent from one of its files: dropping it would not close that.
    fn is_in_use(&self) -> bool {
        self.files().any(|file| Rc::strong_count(file) > 1)
    }

    /// Approximate bytes of memory that caching it takes.
    fn weight(&self) -> u64 {
        let bodies = self.variants.iter().map(|v| match v.draft.body.get() {
            Some(body) if !body.is_live() && !v.draft.is_long_copy => body.len(),
            _ => 0,
        });
        bodies.sum::<u64>() + self.made_weight() + ENTRY_WEIGHT
    }

    /// Descriptors that it keeps open.
    fn descriptors(&self) -> usize {
        self.files().count()
    }

    /// The files that it is sent from.
    fn files(&self) -> impl Iterator<Item = &Rc<ServedFile>> {
        self.variants
            .iter()
            .filter_map(|v| match v.draft.body.get() {
                Some(Body::File(file, _)) => Some(file),
                _ => v.draft.coded.as_ref().map(|coded| &coded.file),
            })
    }
}

impl DirectoryOptions {
    /// The options of a directory, or of a `single` file in it; `coder` codes its text.
    ///
    /// # Errors
    /// A configured content type is invalid.
    pub(crate) fn new(
        options: &ContentOptions,
        single: Option<Vec<u8>>,
        coder: Option<&Arc<Coder>>,
    ) -> Result<Self, TypesError> {
        let lookup = LookupOptions {
            clean_urls: options.clean_urls && single.is_none(),
            spa: options.spa && single.is_none(),
            listing: options.listing && single.is_none(),
            // A single file was named by the operator, even if it is a dotfile.
            dotfiles: options.dotfiles || single.is_some(),
        };
        let mut routing = options.routing.clone();
        if single.is_some() {
            routing.rules = None;
        }
        let types = options.types.iter();
        let fields = options.defaults.of_content(None);
        Ok(Self {
            lookup,
            routing: Arc::new(routing),
            fields: CheckedLines::new(fields.iter().map(|(name, value)| (*name, value.as_bytes())))
                .expect("they are this program's own"),
            types: Types::new(types.map(|(suffix, t)| (suffix.as_str(), t.as_str())))?,
            sidecars: options.sidecars,
            coder: coder.filter(|_| options.codes_text()).cloned(),
            compressed_only: options.compressed_only && single.is_none(),
            read_max: options.snapshot_max.clamp(SMALL_FILE_MAX, SNAPSHOT_MAX),
            coded_max: options
                .snapshot_max
                .saturating_mul(CODED_PART)
                .clamp(SMALL_FILE_MAX, CODED_UP_TO),
            single,
        })
    }
}

impl DirectorySite {
    /// A worker's site of the directory, whose cache has room in `pool`.
    pub(crate) fn new(
        opened: &OpenedDirectory,
        worker: usize,
        pool: &Rc<Pool>,
        long_copies: &Arc<LongCopies>,
    ) -> Self {
        let root = opened.roots.get(worker).cloned();
        let rules = match (&root, &opened.rules) {
            (None, Some(rules)) => rules.only_pages().map(Arc::new),
            (_, rules) => rules.clone(),
        };
        Self {
            rules,
            root,
            others: opened.others.clone(),
            copies: opened.copies.clone(),
            options: Arc::clone(&opened.options),
            kept: Arc::clone(&opened.kept),
            cache: RefCell::new(Some(Cache::new(pool))),
            folders: RefCell::new(Some(Folders::default())),
            bodies: Bodies::with_least_room(),
            long_copies: Arc::clone(long_copies),
        }
    }

    /// The length up to which a coding of the file at `path` is read whole before it is sent, if that
    /// has `len` bytes. What its cache could not keep is sent from the file: it would be copied again for
    /// one request after another.
    fn copied_up_to(&self, coding: Coding, path: &[u8], content_type: &str, len: u64) -> u64 {
        if len <= SMALL_FILE_MAX {
            return SMALL_FILE_MAX;
        }
        let options = &self.options;
        let can_make = |coder: &Arc<Coder>| !coder.can_make(len).is_empty();
        let may_be_coded =
            coding == Coding::Identity && options.coder.as_ref().is_some_and(can_make);
        match may_be_coded && coding::is_coded(path, content_type, len) {
            _ if !self.may_keep(len) => SMALL_FILE_MAX,
            true if self.may_keep_codings(len) => options.coded_max,
            _ => options.read_max,
        }
    }

    /// Whether its cache may have room for so many bytes of one file, if it has nothing else.
    pub(crate) fn may_keep(&self, bytes: u64) -> bool {
        let cache = self.cache.borrow();
        let may_keep =
            |cache: &Cache| bytes.saturating_add(ENTRY_WEIGHT) <= cache.pool().possible();
        cache.as_ref().is_none_or(may_keep)
    }

    /// The same for a file of `len` bytes and its codings.
    fn may_keep_codings(&self, len: u64) -> bool {
        self.may_keep(len.saturating_mul(CODED_WEIGHT))
    }

    /// Has its cache age; see [`Cache::age`].
    pub(crate) fn age(&self, ageing: &Ageing) -> Room {
        let mut cache = self.cache.borrow_mut();
        let cache = cache.as_mut();
        cache.map_or_else(Room::default, |it| it.age(ageing))
    }

    /// Drops the cached files, and what is known about folders.
    pub(crate) fn forget(&self) {
        if let Some(folders) = &mut *self.folders.borrow_mut() {
            folders.clear();
        }
        if let Some(cache) = &mut *self.cache.borrow_mut() {
            cache.clear();
        }
    }

    /// Drops decoded content.
    pub(crate) fn forget_bodies(&self) {
        self.bodies.forget();
    }

    /// Drops the caches and disables them: another release has replaced this one.
    pub(crate) fn retire(&self) {
        *self.cache.borrow_mut() = None;
        *self.folders.borrow_mut() = None;
        self.bodies.retire();
    }

    /// Bytes that may be cached of all sites; 0 once it is retired.
    pub(crate) fn memory(&self) -> u64 {
        let cache = self.cache.borrow();
        cache.as_ref().map_or(0, |cache| cache.pool().memory())
    }

    /// The directory, if its path names one.
    pub(crate) fn root(&self) -> Option<&Root> {
        self.root.as_ref()
    }

    /// The directories that are searched for a name in a framework's folder which is missing.
    pub(crate) fn others(&self) -> &[Root] {
        &self.others
    }

    /// Its sidecars, if they are not beside its files.
    pub(crate) fn copies(&self) -> Option<&CopiesElsewhere> {
        self.copies.as_ref()
    }

    /// A value unique among the worker's current sites.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// A value unique among the server's current sites, and the same in all workers.
    pub(crate) fn shared_address(&self) -> usize {
        Arc::as_ptr(&self.kept).addr()
    }

    /// The content of a file that exists only in a coding, to be decoded on demand. `None` if no
    /// number is left to identify it.
    pub(crate) fn coded_alone(
        &self,
        coded: &OpenedFile,
        coding: Coding,
        unix: i64,
    ) -> Option<CodedAlone> {
        let meta = coded.meta;
        // A file that has just changed may contain several versions.
        let version = is_settled(&meta, unix).then_some(meta);
        let file = Rc::new(ServedFile::live(coded.file.clone(), meta, None));
        CodedAlone::new(file, coding, (meta.len, version), &self.bodies)
    }

    /// How long the content of this file may be cached under `name`.
    fn lifetime(&self, name: &[u8], file: &Draft, content_type: &str) -> Lifetime {
        self.kept.lifetime(name, content_type, &file.meta)
    }

    /// The site's own rules.
    pub(crate) fn rules(&self) -> Option<&SiteRules> {
        self.rules.as_deref()
    }

    /// The cached entry for a path, if fresh. Files sent from disk are checked on every request: a
    /// response from an outdated version could not be completed.
    pub(crate) fn lookup<D: Driver>(
        &self,
        path: &[u8],
        now: Nanos,
        driver: &D,
    ) -> Option<(Rc<Cached>, Status)> {
        let root = self.root.as_ref()?;
        let is_variant_same = |draft: &Draft| {
            let copies = self.copies().filter(|_| draft.is_elsewhere);
            let root = copies.map_or(root, CopiesElsewhere::folder);
            driver.peek(root, &draft.path) == Some(draft.meta)
        };
        let is_same = |cached: &Cached| {
            cached.variants.iter().all(|v| is_variant_same(&v.draft))
                && cached
                    .forms
                    .iter()
                    .all(|it| driver.peek(root, &it.path) == Some(it.meta))
        };
        let found = self.cache.borrow_mut().as_mut()?.fresh(path, now, is_same);
        found.filter(|(cached, _)| {
            cached.files().all(|file| file.is_unchanged(driver))
                && !cached.wishes_copy(self.long_copies.max())
        })
    }

    /// Closes files kept open for later requests, the oldest first. False if none is open.
    pub(crate) fn drop_descriptors(&self) -> bool {
        let mut cache = self.cache.borrow_mut();
        cache.as_mut().is_some_and(Cache::drop_descriptors)
    }

    /// Has a coding made that a request for a cached path would have used.
    pub(crate) fn have_coded(
        &self,
        path: &[u8],
        cached: &Cached,
        request: &Request<'_>,
        ledger: &Ledger,
    ) {
        if cached.have_coded(request, ledger, |bytes| self.may_keep(bytes))
            && let Some(cache) = &mut *self.cache.borrow_mut()
        {
            cache.weigh_again(path);
        }
    }

    /// The cached entry for a path, fresh or stale.
    pub(crate) fn previous(&self, path: &[u8]) -> Option<Rc<Cached>> {
        let found = self.cache.borrow().as_ref()?.any(path);
        found.filter(|cached| !cached.files().any(|file| file.is_over()))
    }

    /// Caches the resolution of a request path, unless another release has replaced this one. True
    /// if that goes when it is idle.
    pub(crate) fn remember(
        &self,
        path: &[u8],
        cached: Rc<Cached>,
        status: Status,
        now: Nanos,
    ) -> bool {
        let goes_when_idle = cached.goes_when_idle();
        let mut cache = self.cache.borrow_mut();
        let Some(cache) = cache.as_mut() else {
            return false;
        };
        if !cache.admits(path, &cached) {
            return false;
        }
        cached.render();
        cache.insert(path, cached, status, now);
        goes_when_idle
    }

    /// Closes files that may change and have not been requested for a while: deleted ones occupy
    /// disk space as long as they are open. True if some remain open.
    pub(crate) fn close_idle(&self, now: Nanos) -> bool {
        let mut cache = self.cache.borrow_mut();
        cache.as_mut().is_some_and(|cache| cache.close_idle(now))
    }
}
