//! The codings of a cached file that are made while it is served: see [`coder`](crate::coder).
//!
//! A coding is one more variant of the cached file, whose content is memory that all workers share.
//! It belongs to this cached version of the file and goes with it.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use gannet_content::directory::coding::{self, MADE};
use gannet_http::semantics::coding::{Coding, CodingSet, accept_encoding};
use gannet_http::semantics::entity_tag::{Comparison, EntityTag, list_matches};
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::{Method, Request};

use super::{Cached, CachedVariant, DirectoryOptions, Draft, ENTRY_WEIGHT, Role, Shaping};
use crate::bounds::ledger::Ledger;
use crate::coder::{Coder, CodingRequest, Codings, FileBytes};
use crate::release::body::Body;
use crate::release::rules::SiteRules;

/// See the module documentation.
pub(super) struct OnTheFly {
    coder: Arc<Coder>,
    shaping: Shaping,
    /// Length of the file in bytes.
    len: u64,
    /// The codings that can be made of so much.
    can_make: CodingSet,
    codings: OnceCell<Arc<Codings>>,
    /// What this one has replaced, until its own content is there.
    before: RefCell<Option<EarlierReading>>,
    /// In the order of [`MADE`]. Most files never have one.
    variants: [OnceCell<Box<CachedVariant>>; MADE.len()],
}

/// An earlier reading of a file whose metadata have not changed since.
struct EarlierReading {
    content: Body,
    codings: Arc<Codings>,
}

impl OnTheFly {
    /// `None` if the file is never coded.
    pub(super) fn new(
        original: &Draft,
        options: &DirectoryOptions,
        rules: Option<&SiteRules>,
        role: &Role<'_>,
        shaping: &Shaping,
    ) -> Option<Self> {
        let coder = options.coder.as_ref()?;
        let is_forbidden = match role.changes {
            Some(changes) => changes.forbid_coding(),
            // They differ from request to request.
            None => rules.is_some_and(|rules| rules.may_forbid_coding()),
        };
        let is_coded = original.coding == Coding::Identity
            && original.coded.is_none()
            && original.meta.len <= options.coded_max
            && coding::is_coded(&original.path, &shaping.content_type, original.len)
            && !is_forbidden;
        let can_make = coder.can_make(original.len);
        (is_coded && !can_make.is_empty()).then(|| Self {
            coder: Arc::clone(coder),
            shaping: shaping.clone(),
            len: original.len,
            can_make,
            codings: OnceCell::new(),
            before: RefCell::default(),
            variants: Default::default(),
        })
    }

    /// Bytes of memory that the codings take; each at most `len`.
    pub(super) fn weight(&self, len: u64) -> u64 {
        let before = self.before.borrow();
        let before = before.as_ref().map(|it| &it.codings);
        let all = self.codings.get().into_iter().chain(before);
        all.map(|codings| codings.weight(len)).sum()
    }

    /// A coding that was made of `original`, ready to be sent.
    fn variant(&self, coding: Coding, original: &CachedVariant) -> Option<&CachedVariant> {
        let place = MADE.iter().position(|made| *made == coding)?;
        if let Some(variant) = self.variants[place].get() {
            return Some(variant);
        }
        let made = self.codings.get()?.made(coding)?;
        let len = made.content.len();
        let mut tag = original.tag.clone();
        // Strong: of these bytes alone.
        tag.insert_str(
            tag.len() - 1,
            &format!("-{}{:08x}", coding.name(), made.mark),
        );
        let draft = Draft {
            path: original.draft.path.clone(),
            is_elsewhere: false,
            coding,
            meta: original.draft.meta,
            len: len as u64,
            body: OnceCell::from(Body::Shared(Arc::clone(&made.content), 0..len)),
            is_long_copy: false,
            coded: None,
        };
        let variant = self.shaping.variant(draft, tag)?;
        variant.render();
        Some(self.variants[place].get_or_init(|| Box::new(variant)))
    }
}

/// Whether `If-Match` names this tag, or is not there.
fn is_wanted(request: &Request<'_>, tag: &[u8]) -> bool {
    let lines = request.fields.lines(KnownField::IfMatch);
    !request.fields.has(KnownField::IfMatch)
        || list_matches(lines, EntityTag::parse(tag), Comparison::Strong)
}

/// Whether `If-Match` names representations, and not the one with this tag.
fn names_others_than(request: &Request<'_>, tag: &[u8]) -> bool {
    let mut lines = request.fields.lines(KnownField::IfMatch);
    lines.any(|line| line.trim_ascii() != b"*") && !is_wanted(request, tag)
}

impl Cached {
    /// The same, with the codings of what it replaces, if that has the same content: files that have
    /// changed a short while ago are read again and again, and clients have the tags of codings.
    pub(super) fn after(self, previous: Option<&Self>) -> Self {
        if let Some(fly) = &self.on_the_fly
            && let Some(previous) = previous
            && let Some(codings) = previous.on_the_fly.as_ref().and_then(|it| it.codings.get())
            && let Some(now) = self.variant_in(Coding::Identity)
            && let Some(then) = previous.variant_in(Coding::Identity)
            && now.draft.meta == then.draft.meta
            && let Some(content) = then.draft.body.get()
        {
            fly.before.replace(Some(EarlierReading {
                content: content.clone(),
                codings: Arc::clone(codings),
            }));
            self.recognize();
        }
        self
    }

    /// Takes over the codings of what it replaces, once its own content is there, if that is equal.
    pub(super) fn recognize(&self) {
        if let Some(fly) = &self.on_the_fly
            && let Some(original) = self.variant_in(Coding::Identity)
            && let Some(content) = original.draft.body.get()
            && let Some(before) = fly.before.take()
            && content.bytes().is_some()
            && content.bytes() == before.content.bytes()
        {
            let _ = fly.codings.set(before.codings);
        }
    }

    /// The same, with the codings that other workers have of this version.
    pub(super) fn with_known_codings(self) -> Self {
        if let Some(fly) = &self.on_the_fly
            && let Some(original) = self.variant_in(Coding::Identity)
            && self.read_again_at.is_none()
            && !self.is_brief
            && let Some(known) = fly.coder.known(&original.draft.meta)
        {
            let _ = fly.codings.set(known);
        }
        self
    }

    /// Bytes of memory that its codings take, or will.
    pub(super) fn made_weight(&self) -> u64 {
        let original = self.variant_in(Coding::Identity);
        let made = self.on_the_fly.as_ref().zip(original);
        made.map_or(0, |(fly, original)| fly.weight(original.draft.len))
    }

    /// The smallest coding made on the fly that a request accepts and that is smaller than `than`.
    ///
    /// A range is one of what the client has: of the coding whose tag `If-Range` names, otherwise of
    /// the file itself. With `If-Match`, the client wants what it has, too. Whether a coding was made
    /// meanwhile must not change what it gets.
    pub(super) fn made_for(
        &self,
        request: &Request<'_>,
        accepted: CodingSet,
        than: u64,
    ) -> Option<&CachedVariant> {
        let fly = self.on_the_fly.as_ref()?;
        let original = self.variant_in(Coding::Identity)?;
        // Another path to the same file may have had made what this one has a sidecar for.
        let is_usable =
            |coding: &Coding| accepted.contains(*coding) && self.variant_in(*coding).is_none();
        let variants = MADE.into_iter().filter(is_usable);
        let variants = variants.filter_map(|coding| fly.variant(coding, original));
        let mut variants = variants.filter(|it| is_wanted(request, it.tag.as_bytes()));
        if request.method == Method::Get && request.fields.has(KnownField::Range) {
            let mut named = request.fields.lines(KnownField::IfRange);
            return match named.next().map(<[u8]>::trim_ascii) {
                Some(tag) => variants.find(|it| it.tag.as_bytes() == tag),
                None if names_others_than(request, original.tag.as_bytes()) => variants.next(),
                None => None,
            };
        }
        let smaller = variants.filter(|it| it.draft.len < than);
        smaller.min_by_key(|it| it.draft.len)
    }

    /// Has the coding made that a request would have used, if it can be made now, and the cache may keep so
    /// many bytes of one file. True if the cached file takes more memory than before.
    pub(crate) fn have_coded(
        &self,
        request: &Request<'_>,
        ledger: &Ledger,
        may_keep: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(fly) = &self.on_the_fly else {
            return false;
        };
        let accepted = accept_encoding(request.fields.lines(KnownField::AcceptEncoding));
        let possible = |codings: &Arc<Codings>| codings.possible(fly.can_make);
        let can_make = fly.codings.get().map_or(fly.can_make, possible);
        let Some(coding) = coding::wanted(accepted.intersection(can_make), fly.len) else {
            return false;
        };
        let is_asked = |codings: &Arc<Codings>| codings.is_asked(coding);
        let is_range = request.fields.has(KnownField::Range);
        if request.method != Method::Get || is_range || fly.codings.get().is_some_and(is_asked) {
            return false;
        }
        self.ask(fly, coding, ledger, may_keep)
    }

    #[cold]
    fn ask(
        &self,
        fly: &OnTheFly,
        coding: Coding,
        ledger: &Ledger,
        may_keep: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(original) = self.variant_in(Coding::Identity) else {
            return false;
        };
        // A file that has just changed may be one of several versions; and there may be a sidecar.
        if self.is_brief || self.variant_in(coding).is_some() {
            return false;
        }
        let Some(codings) = self.codings(fly, original) else {
            return false;
        };
        if codings.is_asked(coding) {
            // By another worker.
            return true;
        }
        let len = original.draft.len;
        // One coding more than fits would displace the file, with those that it has.
        if !may_keep(self.weight() - ENTRY_WEIGHT + len) {
            return false;
        }
        let content = match original.draft.body.get() {
            Some(Body::Shared(memory, range)) => {
                FileBytes::Memory(Arc::clone(memory), range.clone())
            }
            Some(Body::File(file, _)) if file.is_constant() => FileBytes::Copy(file.file.clone()),
            _ => return false,
        };
        if !ledger.has_room_to_code(len) {
            fly.coder.refuse();
            return false;
        }
        let asked = CodingRequest {
            coding,
            content,
            charge: ledger.charge(len),
        };
        fly.coder.ask(codings, asked)
    }

    /// The codings of this version: shared with other workers, unless the file may be changing.
    fn codings<'f>(&self, fly: &'f OnTheFly, original: &CachedVariant) -> Option<&'f Arc<Codings>> {
        if fly.codings.get().is_none() {
            let codings = match self.read_again_at {
                None => fly.coder.codings_of(&original.draft.meta)?,
                Some(_) => Arc::default(),
            };
            let _ = fly.codings.set(codings);
        }
        fly.codings.get()
    }
}
