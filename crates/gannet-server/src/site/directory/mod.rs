//! A live directory: what a worker remembers of it, and for how long it believes that.
//!
//! A request path that was answered a moment ago is answered from memory. After
//! [`BELIEVED_MS`](crate::limits::BELIEVED_MS) the metadata of its file is asked for and compared
//! with what is remembered (identity, length, times), so a change is seen within a second on every
//! file system, without a watch per directory. Now and then
//! ([`CONFIRMED_MS`](crate::limits::CONFIRMED_MS)) the whole path is looked up again.

mod cache;
pub(crate) mod fill;

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::answer::{self, Resource};
use gannet_content::directory::lookup::LookupOptions;
use gannet_content::mime::{Types, TypesError};
use gannet_content::plan::Representation;
use gannet_content::policy::cache as cache_policy;
use gannet_content::policy::defaults::DefaultFields;
use gannet_content::routing::Routing;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::validators::{self, LiveFile};
use gannet_http::h2::hpack::{self, ready::ReadyHpack};
use gannet_http::semantics::coding::{Coding, CodingSet};
use gannet_http::semantics::ready_fields::ReadyFields;
use gannet_http::semantics::response::ReadyBlock;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{File, Meta, Nanos, OpenedFile, Root};
use gannet_io::memory::Memory;

use self::cache::Cache;
use super::files::ServedFiles;
use super::rules::{Rules, SiteRules};
use super::{Selected, ServedFile, Source, Trust};
use crate::config::ContentOptions;
use crate::limits::SMALL_FILE_MAX;

/// A live directory, as one worker sees it.
pub(crate) struct DirectorySite {
    pub(crate) root: Root,
    pub(crate) options: DirectoryOptions,
    /// The site's own rules, as they were last read.
    rules: Option<Rules>,
    cache: Cache,
    /// Files that responses are sent from, with those of the worker's other sites.
    files: ServedFiles,
}

/// How a directory is served.
pub(crate) struct DirectoryOptions {
    pub(crate) lookup: LookupOptions,
    pub(crate) routing: Arc<Routing>,
    pub(crate) defaults: DefaultFields,
    pub(crate) types: Types,
    pub(crate) sidecars: bool,
    /// Files up to this length are read whole before they are sent.
    pub(crate) read_max: u64,
    /// Only this file of the directory is served, at `/` and at its name.
    pub(crate) single: Option<Vec<u8>>,
    /// Bytes of small files that are remembered.
    memory: u64,
}

/// A file's representations, remembered.
pub(crate) struct Cached {
    content_type: String,
    last_modified: Option<i64>,
    /// In order of length; the first acceptable one is sent.
    variants: Vec<CachedVariant>,
    /// The fields are what the site's rules make of them for the one path that this answers.
    is_ruled: bool,
}

/// What the disk said of one content coding of a file: the file itself, or a sidecar.
pub(crate) struct Draft {
    /// Its path below the root.
    pub(crate) path: Vec<u8>,
    pub(crate) coding: Coding,
    pub(crate) meta: Meta,
    pub(crate) body: CachedBody,
}

/// The same, ready to be sent.
struct CachedVariant {
    draft: Draft,
    tag: String,
    ready: ReadyFields,
    /// The same fields for HTTP/2.
    hpack: Option<ReadyHpack>,
    /// Its SHA-256, once somebody has asked for it.
    sha256: OnceCell<[u8; 32]>,
}

/// Where a variant's bytes are.
#[derive(Clone)]
pub(crate) enum CachedBody {
    Memory(Arc<Memory>),
    File(Rc<ServedFile>),
}

impl Cached {
    /// Makes a file's variants ready to be sent. `changes` are what the site's rules make of its
    /// fields, unless that is settled at each request. `None` if its fields cannot be rendered.
    fn new(
        content_type: String,
        mut drafts: Vec<Draft>,
        unix: i64,
        defaults: &DefaultFields,
        changes: Option<&FieldChanges>,
    ) -> Option<Self> {
        let original = drafts.iter().find(|d| d.coding == Coding::Identity)?;
        let last_modified = validators::last_modified(original.meta.mtime_ns, unix);
        let has_choice = drafts.len() > 1;
        let name = String::from_utf8_lossy(&original.path);
        let (lifetime, _) = cache_policy::lifetime(&name, &content_type, None);
        drafts.sort_by_key(|draft| draft.meta.len);
        let fields = defaults.of_content(&content_type, None);
        let fields: Vec<(&str, &[u8])> = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let mut variants = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let tag = validators::live_tag(&LiveFile {
                mtime_ns: draft.meta.mtime_ns,
                ctime_ns: draft.meta.ctime_ns,
                len: draft.meta.len,
                identity: draft.meta.identity,
            });
            let ready = answer::ready_fields(&Resource {
                content_type: &content_type,
                coding: draft.coding,
                len: draft.meta.len,
                entity_tag: &tag,
                last_modified,
                vary: has_choice,
                cache_control: Some(lifetime.cache_control()),
                fields: &fields,
            });
            let mut ready = ready.ok()?;
            if let Some(changes) = changes {
                ready = changes.apply_to_block(ready.as_block()).ok()?;
            }
            variants.push(CachedVariant {
                draft,
                tag,
                hpack: hpack::ready::render(ready.as_block()),
                ready,
                sha256: OnceCell::new(),
            });
        }
        Some(Self {
            content_type,
            last_modified,
            variants,
            is_ruled: changes.is_some(),
        })
    }

    /// The bytes of a coding, if its file is still this one.
    fn body(&self, coding: Coding, meta: &Meta) -> Option<CachedBody> {
        let same = |v: &&CachedVariant| v.draft.coding == coding && v.draft.meta == *meta;
        self.variants
            .iter()
            .find(same)
            .map(|v| v.draft.body.clone())
    }

    /// Whether it would be made of exactly these.
    fn is_made_of(&self, drafts: &[Draft]) -> bool {
        self.variants.len() == drafts.len()
            && drafts
                .iter()
                .all(|draft| self.body(draft.coding, &draft.meta).is_some())
    }

    /// The smallest acceptable variant; without one the file as it is (RFC 9110 section 12.5.3
    /// lets a server disregard the field).
    pub(crate) fn select(&self, codings: CodingSet, status: Status) -> Selected<'_> {
        let variant = self
            .variants
            .iter()
            .find(|v| codings.contains(v.draft.coding))
            .or_else(|| {
                self.variants
                    .iter()
                    .find(|v| v.draft.coding == Coding::Identity)
            })
            .expect("a cached file has its identity variant");
        Selected {
            status,
            block: ReadyBlock {
                hpack: variant.hpack.as_ref().map(ReadyHpack::as_block),
                ..variant.ready.as_block()
            },
            representation: Representation {
                len: variant.draft.meta.len,
                coding: variant.draft.coding,
                entity_tag: Some(variant.tag.as_bytes()),
                last_modified: self.last_modified,
            },
            content_type: self.content_type.as_bytes(),
            source: match &variant.draft.body {
                CachedBody::Memory(memory) => match memory.as_heap_slice() {
                    Some(bytes) if bytes.len() <= crate::limits::COPY_MAX => Source::Bytes(bytes),
                    _ => Source::Memory(memory, 0),
                },
                CachedBody::File(file) => Source::File(file, 0),
            },
            sha256: matches!(variant.draft.body, CachedBody::Memory(_)).then_some(&variant.sha256),
            is_ruled: self.is_ruled,
        }
    }

    /// Bytes of memory that remembering it costs, roughly.
    fn weight(&self) -> u64 {
        let bodies = self.variants.iter().map(|v| match &v.draft.body {
            CachedBody::Memory(memory) => memory.len() as u64,
            CachedBody::File(file) if file.trust.get() == Trust::Constant => v.draft.meta.len,
            CachedBody::File(_) => 0,
        });
        bodies.sum::<u64>() + 1_024
    }

    /// Descriptors that it keeps open.
    fn descriptors(&self) -> usize {
        self.variants
            .iter()
            .filter(|v| matches!(v.draft.body, CachedBody::File(_)))
            .count()
    }

    /// Whether any of its files is being changed by a writer that waits for our guard.
    fn is_broken(&self) -> bool {
        self.variants.iter().any(|v| match &v.draft.body {
            CachedBody::File(file) => file.trust.get() == Trust::Broken,
            CachedBody::Memory(_) => false,
        })
    }
}

impl DirectorySite {
    /// Serves `root`, remembering up to `memory` bytes of small files. What responses are sent
    /// from is put into `files`.
    ///
    /// # Errors
    /// When a configured content type cannot be one.
    pub(crate) fn new(
        root: Root,
        options: &ContentOptions,
        single: Option<Vec<u8>>,
        files: &ServedFiles,
        memory: u64,
    ) -> Result<Self, TypesError> {
        let lookup = LookupOptions {
            clean_urls: options.clean_urls && single.is_none(),
            spa: options.spa && single.is_none(),
            listing: options.listing && single.is_none(),
            // A single file was named by the operator, whatever it is called.
            dotfiles: options.dotfiles || single.is_some(),
        };
        let mut routing = options.routing.clone();
        if single.is_some() {
            routing.rules = None;
        }
        let options = DirectoryOptions {
            lookup,
            routing: Arc::new(routing),
            defaults: options.defaults.clone(),
            types: Types::new(
                options
                    .types
                    .iter()
                    .map(|(suffix, t)| (suffix.as_str(), t.as_str())),
            )?,
            sidecars: options.sidecars,
            read_max: options.snapshot_max.max(SMALL_FILE_MAX),
            single,
            memory,
        };
        Ok(Self {
            root,
            options,
            rules: None,
            cache: Cache::new(memory),
            files: files.clone(),
        })
    }

    /// The site's own rules.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    /// Other rules hold from now on. What was made under the old ones is forgotten.
    pub(crate) fn set_rules(&mut self, rules: Option<Arc<SiteRules>>) {
        self.rules = rules.map(Rc::new);
        self.cache = Cache::new(self.options.memory);
    }

    /// What is remembered for a request path, if it may still be believed. `peek` tells what is at
    /// a path now, if that can be told at once.
    pub(crate) fn lookup(
        &mut self,
        path: &[u8],
        now: Nanos,
        peek: impl Fn(&Root, &[u8]) -> Option<Meta>,
    ) -> Option<(Rc<Cached>, Status)> {
        let root = &self.root;
        let is_same = |cached: &Cached| {
            cached
                .variants
                .iter()
                .all(|v| peek(root, &v.draft.path) == Some(v.draft.meta))
        };
        self.cache
            .fresh(path, now, is_same)
            .filter(|(cached, _)| !cached.is_broken())
    }

    /// What is remembered for a request path, believed or not.
    pub(crate) fn previous(&mut self, path: &[u8]) -> Option<Rc<Cached>> {
        self.cache.any(path).filter(|cached| !cached.is_broken())
    }

    /// Remembers what a request path came to.
    pub(crate) fn remember(&mut self, path: &[u8], cached: Rc<Cached>, status: Status, now: Nanos) {
        self.cache.insert(path, cached, status, now);
    }

    /// Makes a file that responses can be sent from.
    pub(crate) fn serve_file(&self, opened: OpenedFile) -> Rc<ServedFile> {
        self.files
            .add(opened.file, Some(opened.meta), Trust::Copies)
    }

    /// Makes a file of a snapshot, which needs no guard.
    pub(crate) fn serve_snapshot(&self, file: File) -> Rc<ServedFile> {
        Rc::new(ServedFile {
            file,
            meta: None,
            trust: Cell::new(Trust::Constant),
            id: u32::MAX,
            files: None,
        })
    }
}
