//! Follows the releases of archives.
//!
//! ```text
//!   at its path or in its store: verified ──▶ staged ──▶ current ──▶ kept ──▶ gone
//!                                   │           │           ▲          │
//!                                   └─ refused  └── another one is published
//! ```
//!
//! A new release is *staged* first: every worker answers for its immutable assets where the current
//! release has nothing. Only when all of them do, and its time has come, it becomes *current*: no
//! page that refers to an asset is sent before every worker knows the asset. The release that it
//! replaces is *kept*: open pages refer to its assets. Work in progress finishes on its own release.
//!
//! All of this happens on a thread of its own, of lower priority than the workers.

pub(crate) mod board;
pub(crate) mod origin;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, mem};

use gannet_io::{heap, process};
use gannet_store::{Keep, Pointer, ReleaseId};

use self::board::{Board, Facts, ReleaseFacts, State};
use self::origin::{News, Origin, Refusal, UNREADABLE};
use crate::config::ContentOptions;
use crate::limits::{LATE_S, OTHER_RELEASES_MAX, RELEASES_LOOK_MS, UNLINKED_BYTES_MAX};
use crate::observe::notices::Channel;
use crate::release::opened::{Generations, OpenedArchive, OpenedContent, Preview, What};
use crate::start::archive::Proof;
use crate::start::archive_room::ArchiveRoom;
use crate::start::lookout::{Lookout, Stamp};
use crate::start::open::Opening;
use crate::start::published::{Applied, Published};

/// A content whose releases are followed, as it was opened.
pub(crate) struct Source {
    /// Index among the contents.
    pub(crate) place: usize,
    /// The name given by the operator.
    pub(crate) name: PathBuf,
    pub(crate) origin: Origin,
}

/// What all followers share.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) options: Arc<ContentOptions>,
    /// Number of workers, each with a descriptor of its own for the current release.
    pub(crate) workers: usize,
    /// Budget for archives copied into memory by default.
    pub(crate) room: Arc<ArchiveRoom>,
    pub(crate) published: Arc<Published>,
    pub(crate) board: Arc<Board>,
    /// How long one look waits for all workers to have a release.
    pub(crate) patience: Duration,
    /// The time, Unix seconds.
    pub(crate) clock: fn() -> u64,
    /// Where changes are told.
    pub(crate) messages: &'static Channel,
}

/// Follows the releases of these contents, each on its own thread up to a number: staging reads the
/// whole archive.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn follow(
    sources: Vec<Source>,
    contents: &[Generations],
    surroundings: &Surroundings,
) -> io::Result<Vec<Lookout>> {
    let count = sources.len().min(crate::limits::FOLLOWERS_MAX);
    let mut threads: Vec<Vec<Follower>> = (0..count).map(|_| Vec::new()).collect();
    for (at, source) in sources.into_iter().enumerate() {
        let content = Arc::clone(&contents[source.place].current);
        threads[at % count].push(Follower::new(source, content, surroundings.clone()));
    }
    let every = Duration::from_millis(RELEASES_LOOK_MS);
    let start = |mut followers: Vec<Follower>| {
        let mut is_new = true;
        // Staging may take long, and must not delay the next look.
        Lookout::start("gannet-releases", every, 0, move |is_asked| {
            if mem::take(&mut is_new) {
                // Staging must not delay answers; without permission it does a little.
                let _ = process::lower_priority();
            }
            for follower in &mut followers {
                follower.look(is_asked);
            }
        })
    };
    threads.into_iter().map(start).collect()
}

/// A release that will be current.
struct Staged {
    archive: Arc<OpenedArchive>,
    /// When, Unix seconds.
    activation: u64,
    /// Whether all workers answer for its assets.
    applied: Applied,
    /// In a store, the pointer to it.
    pointer: Option<Box<Pointer>>,
}

/// A release that was current.
struct Kept {
    archive: Arc<OpenedArchive>,
    /// When it was replaced, Unix seconds.
    left: u64,
}

/// A release that is no longer current, staged or kept.
struct Leaving {
    archive: Arc<OpenedArchive>,
    /// It is kept without its copy: only the copy is freed.
    is_kept: bool,
}

/// Follows the releases of one content.
pub(crate) struct Follower {
    source: Source,
    /// Number on the board.
    number: usize,
    surroundings: Surroundings,
    current: Arc<OpenedContent>,
    staged: Option<Staged>,
    /// The newest first.
    kept: Vec<Kept>,
    /// Releases whose memory workers still use: this thread frees it, not a worker.
    leaving: Vec<Leaving>,
    /// The last refusal, which is told once.
    refused: Option<String>,
    /// The last file of a release that was refused, as it was.
    bad: Option<(ReleaseId, Option<Stamp>)>,
    /// When a refused pointer's release should have become current, Unix seconds.
    due: Option<u64>,
    /// Nothing was published yet: neither kept releases nor previews.
    is_new: bool,
}

impl Follower {
    pub(crate) fn new(
        source: Source,
        current: Arc<OpenedContent>,
        surroundings: Surroundings,
    ) -> Self {
        let now = (surroundings.clock)();
        let number = surroundings.board.add(Facts {
            name: source.name.display().to_string(),
            activated: now,
            checked: now,
            ..Facts::default()
        });
        let follower = Self {
            is_new: true,
            source,
            number,
            surroundings,
            current,
            staged: None,
            kept: Vec::new(),
            leaving: Vec::new(),
            refused: None,
            bad: None,
            due: None,
        };
        follower.note(|_| ());
        follower
    }

    fn look(&mut self, is_asked: bool) {
        let now = self.now();
        match self.source.origin.news(is_asked, now) {
            News::None => self.note_checked(now),
            News::Unreachable => self.note_lateness(now),
            News::Archive => self.replaced(now),
            News::Gone => self.tell(format_args!(
                "nothing is there any more; serving release {} on",
                self.archive().short_id()
            )),
            News::Pointer(pointer) => self.pointed(pointer, now),
            News::Refused(refusal) => self.refuse(&refusal, now),
        }
        if mem::take(&mut self.is_new) {
            self.keep_from_store(now);
            self.publish();
        }
        self.go_on(now);
    }

    /// Serves the staged release if its time has come, and lets go of others.
    pub(crate) fn go_on(&mut self, now: u64) {
        self.activate_if_due();
        self.let_go(now);
    }

    fn now(&self) -> u64 {
        (self.surroundings.clock)()
    }

    fn archive(&self) -> &Arc<OpenedArchive> {
        match &self.current.what {
            What::Archive(archive) => archive,
            What::Directory(_) => unreachable!("an archive is followed"),
        }
    }

    /// The path has another archive, or the same one was written again.
    fn replaced(&mut self, now: u64) {
        let Origin::Path(at) = &self.source.origin else {
            return;
        };
        let path = at.path().to_owned();
        match self.open(&path, Proof::Digests) {
            Ok(archive) => self.found(archive, now),
            Err(refusal) => self.refuse(&refusal, now),
        }
    }

    /// The path has this archive now.
    pub(crate) fn found(&mut self, archive: OpenedArchive, now: u64) {
        let staged = self.staged.take();
        let is_superseded = staged.is_some();
        if let Some(staged) = staged {
            // It may have been current before.
            self.keep(staged.archive, now);
        }
        if !is_same(&archive, self.archive()) || !self.archive().is_copied {
            self.stage(archive, now, None);
        } else if is_superseded {
            self.note(|_| ());
            self.publish();
        }
    }

    /// The store has another pointer.
    fn pointed(&mut self, pointer: Box<Pointer>, now: u64) {
        let Origin::Store(store) = &mut self.source.origin else {
            return;
        };
        let activation = store.activation(&pointer);
        let path = store.store.release_path(pointer.release);
        self.drop_void(&pointer.void);
        if let Some(staged) = self
            .staged
            .take_if(|it| !is_named(&it.archive, pointer.release))
        {
            // Servers that have activated it refer to its assets.
            self.keep(staged.archive, now);
        }
        if is_named(self.archive(), pointer.release) {
            self.accept(&pointer, now);
            self.publish();
            return;
        }
        if let Some(staged) = &mut self.staged {
            staged.activation = activation;
            staged.pointer = Some(pointer);
            self.note_late(None, now);
            return;
        }
        let file = Some((pointer.release, Stamp::of(&path)));
        if self.bad == file {
            self.try_again(activation, now);
            return;
        }
        match self.open_of_store(&path, &pointer) {
            Ok(archive) => self.stage(archive, activation, Some(pointer)),
            Err(refusal) => {
                self.bad = file;
                self.try_again(activation, now);
                self.refuse(&refusal, now);
            }
        }
    }

    /// Opens the release that a pointer names. The pointer has the digest of the whole file.
    fn open_of_store(&self, path: &Path, pointer: &Pointer) -> Result<OpenedArchive, Refusal> {
        let archive = self.open(path, Proof::Pointer(pointer))?;
        if is_named(&archive, pointer.release) {
            return Ok(archive);
        }
        Err(Refusal {
            reason: "damaged",
            text: format!("'{}' is another release", path.display()),
        })
    }

    /// A release of the store cannot be staged: its file may still be on its way.
    fn try_again(&mut self, activation: u64, now: u64) {
        if let Origin::Store(store) = &mut self.source.origin {
            store.refused();
        }
        self.note_late(Some(activation), now);
    }

    /// Opens an archive.
    fn open(&self, path: &Path, proof: Proof<'_>) -> Result<OpenedArchive, Refusal> {
        let opening = Opening {
            options: &self.surroundings.options,
            workers: self.surroundings.workers,
            room: &self.surroundings.room,
        };
        opening.open_archive(path, proof).map_err(Refusal::from)
    }

    /// Drops a kept release that is the same as this one.
    fn drop_kept(&mut self, archive: &OpenedArchive) {
        let same = self.kept.extract_if(.., |it| is_same(&it.archive, archive));
        for same in same.collect::<Vec<_>>() {
            self.leave(same.archive);
        }
    }

    /// Has all workers answer for the immutable assets of a release.
    fn stage(&mut self, archive: OpenedArchive, activation: u64, pointer: Option<Box<Pointer>>) {
        let archive = Arc::new(archive);
        let now = self.now();
        self.drop_kept(&archive);
        self.staged = Some(Staged {
            archive: Arc::clone(&archive),
            activation: activation.max(now),
            applied: Applied::to_nobody(),
            pointer,
        });
        self.refused = None;
        self.note(|_| ());
        self.note_late(None, now);
        let applied = self.publish();
        if activation > now {
            self.tell(format_args!(
                "staged release {}{}, to be activated in {} s",
                archive.short_id(),
                self.serial_shown(),
                activation - now
            ));
        }
        if let Some(staged) = &mut self.staged {
            staged.applied = applied;
        }
    }

    /// Serves the staged release, if its time has come and all workers answer for its assets.
    fn activate_if_due(&mut self) {
        let now = self.now();
        let patience = self.surroundings.patience;
        let is_due = |it: &mut Staged| it.activation <= now && it.applied.wait(patience);
        let Some(staged) = self.staged.take_if(is_due) else {
            return;
        };
        let next = OpenedContent {
            hosts: self.current.hosts.clone(),
            what: What::Archive(staged.archive),
        };
        let old = Arc::clone(self.archive());
        self.current = Arc::new(next);
        self.keep(old, now);
        self.surroundings
            .board
            .change(self.number, |facts| facts.activated = now);
        match staged.pointer {
            Some(pointer) => self.accept(&pointer, now),
            None => self.note(|_| ()),
        }
        self.publish();
        self.tell(format_args!(
            "serving release {}{}",
            self.archive().short_id(),
            self.serial_shown()
        ));
    }

    /// Records a pointer whose release is current, and keeps what it says.
    fn accept(&mut self, pointer: &Pointer, now: u64) {
        if let Origin::Store(store) = &mut self.source.origin {
            store.pointer = pointer.clone();
        }
        self.refused = None;
        self.note_late(None, now);
        self.keep_from_store(now);
    }

    /// Keeps a release that is no longer current or staged.
    fn keep(&mut self, archive: Arc<OpenedArchive>, now: u64) {
        if !is_same(self.archive(), &archive) {
            self.drop_kept(&archive);
            let kept = self.without_copy(&archive);
            let is_kept = Arc::ptr_eq(&kept, &archive);
            let left = now;
            self.kept.insert(
                0,
                Kept {
                    archive: kept,
                    left,
                },
            );
            if !is_kept {
                let is_kept = true;
                self.leaving.push(Leaving { archive, is_kept });
            }
            return;
        }
        self.leave(archive);
    }

    /// Opens the releases that the store keeps, and lets go of those that it does not.
    fn keep_from_store(&mut self, now: u64) {
        let Origin::Store(store) = &self.source.origin else {
            return;
        };
        let pointers = store.kept(now);
        let path_of = |pointer: &Pointer| store.store.release_path(pointer.release);
        let files: Vec<_> = pointers.iter().map(|it| (path_of(it), it)).collect();
        let mut kept = Vec::new();
        for (path, pointer) in &files {
            let id = pointer.release;
            let is_staged = self
                .staged
                .as_ref()
                .is_some_and(|it| is_named(&it.archive, id));
            if is_staged || is_named(self.archive(), id) {
                continue;
            }
            if let Some(at) = self.kept.iter().position(|it| is_named(&it.archive, id)) {
                kept.push(self.kept.swap_remove(at));
                continue;
            }
            match self.open_to_keep(path, pointer) {
                Ok(archive) => kept.push(Kept { archive, left: now }),
                Err(refusal) => self.tell(format_args!(
                    "cannot keep release {}: {}",
                    id.short(),
                    refusal.text
                )),
            }
        }
        for gone in mem::replace(&mut self.kept, kept) {
            self.leave(gone.archive);
        }
        self.note(|_| ());
    }

    /// Opens a release for its immutable assets alone.
    fn open_to_keep(&self, path: &Path, pointer: &Pointer) -> Result<Arc<OpenedArchive>, Refusal> {
        let archive = Arc::new(self.open_of_store(path, pointer)?);
        Ok(self.without_copy(&archive))
    }

    /// A release as it is kept: without a copy in memory, unless copies were asked for, or its file
    /// was overwritten.
    fn without_copy(&self, archive: &Arc<OpenedArchive>) -> Arc<OpenedArchive> {
        let may_read = !self.surroundings.options.copies_archives();
        let without = may_read.then(|| archive.without_copy()).flatten();
        without.map_or_else(|| Arc::clone(archive), Arc::new)
    }

    /// Drops releases that must not answer any more.
    pub(crate) fn drop_void(&mut self, void: &[ReleaseId]) {
        let before = self.leaving.len();
        let is_void = |it: &OpenedArchive| void.iter().any(|id| is_named(it, *id));
        if let Some(staged) = self.staged.take_if(|it| is_void(&it.archive)) {
            self.leave(staged.archive);
        }
        let gone: Vec<_> = self
            .kept
            .extract_if(.., |it| is_void(&it.archive))
            .collect();
        for gone in gone {
            self.leave(gone.archive);
        }
        // At once: whether the pointer's own release can be staged is another matter.
        if self.leaving.len() > before {
            self.note(|_| ());
            self.publish();
        }
    }

    /// Frees a release once no worker uses it.
    fn leave(&mut self, archive: Arc<OpenedArchive>) {
        let is_kept = false;
        self.leaving.push(Leaving { archive, is_kept });
    }

    /// Lets go of releases that need not be kept any longer, and frees memory that is unused.
    fn let_go(&mut self, now: u64) {
        if matches!(self.source.origin, Origin::Path(_)) {
            let keep = Keep::default();
            let mut bytes = 0;
            let mut number = 0;
            let gone = self.kept.extract_if(.., |kept| {
                number += 1;
                bytes += kept.archive.len;
                let is_young = now.saturating_sub(kept.left) < keep.age_s;
                let is_wanted = number <= keep.most && (is_young || number <= keep.least);
                !is_wanted || bytes > UNLINKED_BYTES_MAX
            });
            let gone: Vec<_> = gone.collect();
            if !gone.is_empty() {
                for gone in gone {
                    self.leave(gone.archive);
                }
                self.note(|_| ());
                self.publish();
            }
        }
        let is_free = |it: &Leaving| match it.is_kept {
            true => !it.archive.is_copy_used(),
            false => !it.archive.is_used(),
        };
        let before = self.leaving.len();
        self.leaving.retain(|it| !is_free(it));
        if self.leaving.len() < before {
            // The allocator would keep the metadata of a large site for this thread alone.
            heap::give_back();
        }
    }

    /// Sends the releases to the workers.
    fn publish(&self) -> Applied {
        let staged = self.staged.iter().map(|it| &it.archive);
        let kept = self.kept.iter().map(|it| &it.archive);
        let others = staged.chain(kept).take(OTHER_RELEASES_MAX);
        let generations = Generations {
            current: Arc::clone(&self.current),
            others: others.cloned().collect(),
            previews: self.previews(),
        };
        let place = self.source.place;
        self.surroundings.published.replace(place, |_| generations)
    }

    /// All releases, to answer by themselves.
    fn previews(&self) -> Vec<Preview> {
        if self.surroundings.options.previews.is_none() {
            return Vec::new();
        }
        let staged = self.staged.iter().map(|it| &it.archive);
        let kept = self.kept.iter().map(|it| &it.archive);
        let all = [self.archive()].into_iter().chain(staged).chain(kept);
        let preview = |archive: &Arc<OpenedArchive>| Preview {
            id: id_of(archive).to_string(),
            archive: Arc::new(archive.for_preview()),
        };
        all.map(preview).collect()
    }

    fn refuse(&mut self, refusal: &Refusal, now: u64) {
        self.surroundings.board.change(self.number, |facts| {
            *facts.refused.entry(refusal.reason).or_default() += 1;
            if refusal.reason != UNREADABLE {
                facts.checked = now;
            }
        });
        if self.refused.as_ref() == Some(&refusal.text) {
            return;
        }
        self.refused = Some(refusal.text.clone());
        self.tell(format_args!(
            "refused the new release: {}; serving release {} on",
            refusal.text,
            self.archive().short_id()
        ));
    }

    fn tell(&self, text: std::fmt::Arguments<'_>) {
        let name = self.source.name.display();
        let messages = self.surroundings.messages;
        messages.tell(format_args!("gannet: '{name}': {text}"));
    }

    fn serial_shown(&self) -> String {
        let staged = self.staged.as_ref().and_then(|it| it.pointer.as_ref());
        let serial = match (&self.source.origin, staged) {
            (_, Some(pointer)) => pointer.serial,
            (Origin::Store(store), None) => store.pointer.serial,
            (Origin::Path(_), None) => return String::new(),
        };
        format!(" (serial {serial})")
    }

    /// Notes when a release should have become current that cannot; `None`: there is none.
    fn note_late(&mut self, due: Option<u64>, now: u64) {
        self.due = due;
        self.note_lateness(now);
    }

    fn note_checked(&self, now: u64) {
        self.surroundings
            .board
            .change(self.number, |facts| facts.checked = now);
        self.note_lateness(now);
    }

    fn note_lateness(&self, now: u64) {
        let staged = self.staged.as_ref().map(|it| it.activation + LATE_S);
        let is_late = self.due.into_iter().chain(staged).any(|due| due <= now);
        self.surroundings
            .board
            .change(self.number, |facts| facts.is_late = is_late);
    }

    /// Writes the releases on the board.
    fn note(&self, change: impl FnOnce(&mut Facts)) {
        let of = |archive: &OpenedArchive, state| ReleaseFacts {
            id: archive.short_id(),
            state,
            kept_answers: Arc::clone(&archive.kept_answers),
        };
        let current = [of(self.archive(), State::Current)];
        let staged = self.staged.iter().map(|it| of(&it.archive, State::Staged));
        let kept = self.kept.iter().map(|it| of(&it.archive, State::Kept));
        let releases = current.into_iter().chain(staged).chain(kept).collect();
        let serial = match &self.source.origin {
            Origin::Store(store) => Some(store.pointer.serial),
            Origin::Path(_) => None,
        };
        self.surroundings.board.change(self.number, |facts| {
            facts.releases = releases;
            facts.serial = serial;
            change(facts);
        });
    }
}

/// Whether both are the same release.
fn is_same(one: &OpenedArchive, other: &OpenedArchive) -> bool {
    one.archive.superblock().build_id() == other.archive.superblock().build_id()
}

/// Whether a release has this name in its store.
fn is_named(archive: &OpenedArchive, id: ReleaseId) -> bool {
    id_of(archive) == id
}

/// The name of a release in a store.
fn id_of(archive: &OpenedArchive) -> ReleaseId {
    ReleaseId::of_build_id(archive.archive.superblock().build_id())
}

/// Seconds since 1970-01-01T00:00:00Z.
pub(crate) fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
