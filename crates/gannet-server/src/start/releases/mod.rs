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

mod kept;
pub(crate) mod origin;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem};

use gannet_io::process;
use gannet_store::{Pointer, ReleaseId, StoreError};

use self::kept::{EarlierReleases, Unkept};
use self::origin::{News, Origin, Refusal, again_after};
use self::report::Report;
use crate::bounds::limits::{APPLIED_MS, ERROR_PAGES_SAID_S, OTHER_RELEASES_MAX, RELEASES_LOOK_MS};
use crate::config::ContentOptions;
use crate::observe::board::Board;
use crate::release::archive_room::ArchiveRoom;
use crate::release::opened::{CheckedContent, Generations, OpenedArchive, OpenedContent, Preview};
use crate::release::room::Room;
use crate::start::archive::ArchiveProof;
use crate::start::open::Opening;
use crate::start::published::{Applied, Published};
use crate::watch::lookout::{Lookout, Stamp};
use crate::watch::notices::Channel;

/// A content whose releases are followed, as it was opened.
pub(crate) struct ArchiveOrigin {
    /// Index among the contents.
    pub(crate) place: usize,
    /// The name given by the operator.
    pub(crate) name: PathBuf,
    pub(crate) origin: Origin,
    /// The host whose entry in a folder of hosts it is.
    pub(crate) host: Option<String>,
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
    /// Where changes are reported.
    pub(crate) messages: &'static Channel,
}

impl Surroundings {
    /// Has the caches use `less` before the first archive is copied.
    pub(crate) fn make_room_for_copies(&self, less: Room) {
        let published = Arc::downgrade(&self.published);
        self.room.before_first(move || {
            if let Some(published) = published.upgrade() {
                let applied = published.publish(|opened| opened.room = less);
                applied.wait(Duration::from_millis(APPLIED_MS));
            }
        });
    }
}

/// Follows the releases of these contents, each on its own thread up to a number: staging reads the
/// whole archive.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn follow(
    sources: Vec<ArchiveOrigin>,
    contents: &BTreeMap<usize, Generations>,
    surroundings: &Surroundings,
) -> io::Result<Vec<Lookout>> {
    let count = sources.len().min(crate::bounds::limits::FOLLOWERS_MAX);
    let mut threads: Vec<Vec<ReleaseFollower>> = (0..count).map(|_| Vec::new()).collect();
    for (at, source) in sources.into_iter().enumerate() {
        let content = Arc::clone(&contents[&source.place].current);
        threads[at % count].push(ReleaseFollower::new(source, content, surroundings.clone()));
    }
    let every = Duration::from_millis(RELEASES_LOOK_MS);
    let start = |mut followers: Vec<ReleaseFollower>| {
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
    /// In a store, its file before it was opened.
    stamp: Option<Stamp>,
    /// It was current before.
    was_current: bool,
}

/// A release that is no longer current, staged or kept.
struct Leaving {
    archive: Arc<OpenedArchive>,
    /// It is kept without its copy: only the copy is freed.
    is_kept: bool,
}

/// What was refused for good: nothing but another file, or another pointer, changes that.
#[derive(Debug, Eq, PartialEq)]
struct Bad {
    /// The file as it was.
    stamp: Option<Stamp>,
    /// What the pointer says of it.
    release: ReleaseId,
    size: u64,
    digest: [u8; 32],
}

impl Bad {
    fn of(pointer: &Pointer, path: &Path) -> Self {
        Self {
            stamp: Stamp::of(path),
            release: pointer.release,
            size: pointer.size,
            digest: pointer.digest,
        }
    }
}

/// Follows the releases of one content.
pub(crate) struct ReleaseFollower {
    source: ArchiveOrigin,
    report: Report,
    surroundings: Surroundings,
    current: Arc<OpenedContent>,
    staged: Option<Staged>,
    kept: EarlierReleases,
    /// Releases whose memory workers still use: this thread frees it, not a worker.
    leaving: Vec<Leaving>,
    /// The last file of a release that was refused for good.
    bad: Option<Bad>,
    /// Releases that the store keeps, and that cannot be kept here.
    unkept: HashMap<ReleaseId, Unkept>,
    /// When there may be another kept release to open.
    keep_again_at: Option<Instant>,
    /// The file of the current release, in a store.
    file: CurrentFile,
    /// The period in which its pages for errors were said to be used last.
    pages_said: u64,
    /// Why the store's folders cannot be listed, which is reported once.
    unlisted: Option<String>,
    /// Nothing was published yet: neither kept releases nor previews.
    is_new: bool,
}

/// What is known of the file of the current release.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CurrentFile {
    /// It was served at the start, and is verified behind that.
    Unproven,
    /// It was what the pointer says, when it was this file.
    Proven(Option<Stamp>),
    /// It is not, since a moment (Unix seconds).
    Bad(Option<Stamp>, u64),
}

impl ReleaseFollower {
    pub(crate) fn new(
        source: ArchiveOrigin,
        current: Arc<OpenedContent>,
        surroundings: Surroundings,
    ) -> Self {
        let now = (surroundings.clock)();
        let board = Arc::clone(&surroundings.board);
        let report = Report::new(board, surroundings.messages, &source.name, now);
        let mut follower = Self {
            source,
            report,
            surroundings,
            current,
            staged: None,
            kept: EarlierReleases::default(),
            leaving: Vec::new(),
            bad: None,
            unkept: HashMap::new(),
            keep_again_at: None,
            file: CurrentFile::Unproven,
            pages_said: 0,
            unlisted: None,
            is_new: true,
        };
        follower.note();
        follower
    }

    /// Looks once for news; `is_asked`: also at what was refused.
    pub(crate) fn look(&mut self, is_asked: bool) {
        let now = self.now();
        if is_asked {
            self.bad = None;
            self.unkept.clear();
        }
        match self.source.origin.news(is_asked, now) {
            News::None => {
                self.report.checked(now);
                self.note_expiry(now);
            }
            News::Unreachable => {}
            News::Archive => self.replaced(now),
            News::Gone => self.report.log(format_args!(
                "nothing is there now; still serving release {}",
                self.archive().short_id()
            )),
            News::Pointer(pointer) => self.pointed(pointer, now),
            News::Refused(refusal) => self.refuse(&refusal, now),
        }
        if mem::take(&mut self.is_new) {
            self.publish();
        }
        self.go_on(now);
        self.prove(is_asked, now);
        self.keep_more(is_asked, now);
    }

    /// Reports that nothing was published for too long.
    fn note_expiry(&mut self, now: u64) {
        if let Origin::Store(store) = &self.source.origin
            && store.pointer.is_expired(now)
        {
            let expired = StoreError::Expired(store.store.pointer_path(), store.pointer.serial);
            let serving = self.archive().short_id();
            self.report.expired(expired.to_string(), &serving);
        }
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
            CheckedContent::Archive(archive) => archive,
            CheckedContent::Directory(_) => unreachable!("an archive is followed"),
        }
    }

    /// Verifies the release that was served at the start, and takes up the file of the current one
    /// where it was written anew and no copy of it is in memory.
    fn prove(&mut self, is_asked: bool, now: u64) {
        let Origin::Store(store) = &self.source.origin else {
            return;
        };
        if self.staged.is_some() {
            return;
        }
        let pointer = &store.pointer;
        let path = store.store.file_of(pointer.release);
        let stamp = Stamp::of(&path);
        let partial = self.archive().partial.clone();
        let is_partial = partial.is_some();
        if let Some(partial) = partial
            && !partial.is_stale(&path)
        {
            // At each look, it would soon fill the pipe if no process reads that.
            let period = now / ERROR_PAGES_SAID_S;
            if period != mem::replace(&mut self.pages_said, period)
                && let Some(supply) = &self.surroundings.options.supply
            {
                partial.use_pages(supply, period);
            }
            return;
        }
        match self.file {
            CurrentFile::Proven(known)
                if !is_partial && (known == stamp || self.archive().is_copied) =>
            {
                return;
            }
            CurrentFile::Bad(known, since) if known == stamp && !is_asked => {
                self.report.due(Some(since));
                return;
            }
            CurrentFile::Unproven
                if !is_partial && self.archive().is_proven_by(pointer).is_ok_and(|it| it) =>
            {
                self.file = CurrentFile::Proven(stamp);
                return;
            }
            _ => {}
        }
        let pointer = Box::new(pointer.clone());
        match self.open_of_store(&path, &pointer) {
            Ok(archive) => {
                self.file = CurrentFile::Proven(stamp);
                self.stage(archive, now, Some(pointer), stamp);
            }
            Err(refusal) => {
                let serving = self.archive().short_id();
                self.report.current_is_bad(&refusal, &serving);
                self.report.due(Some(now));
                self.file = CurrentFile::Bad(stamp, now);
            }
        }
    }

    /// The path has another archive, or the same one was written again.
    fn replaced(&mut self, now: u64) {
        let Origin::Path(at) = &self.source.origin else {
            return;
        };
        let path = at.path().to_owned();
        let begun = Instant::now();
        match self.open(&path, ArchiveProof::Digests) {
            Ok(archive) => self.found(archive, now),
            Err(refusal) => {
                let again_at = (!refusal.is_final).then(|| again_after(begun.elapsed()));
                if let Origin::Path(at) = &mut self.source.origin {
                    at.refused(again_at);
                }
                self.refuse(&refusal, now);
            }
        }
    }

    /// The path has this archive now.
    pub(crate) fn found(&mut self, archive: OpenedArchive, now: u64) {
        let is_superseded = self.supersede(now);
        if !is_same(&archive, self.archive()) || !self.archive().is_copied {
            self.stage(archive, now, None, None);
        } else if is_superseded {
            self.report.due(None);
            self.publish();
        }
    }

    /// Keeps the staged release, if there is one: other servers may have activated it, or this one
    /// did before. `left`: when the last of them leaves it.
    fn supersede(&mut self, left: u64) -> bool {
        let Some(staged) = self.staged.take() else {
            return false;
        };
        self.keep(staged.archive, left, staged.was_current);
        true
    }

    /// The store has another pointer.
    fn pointed(&mut self, pointer: Box<Pointer>, now: u64) {
        let Origin::Store(store) = &mut self.source.origin else {
            return;
        };
        let activation = store.activation();
        let path = store.store.file_of(pointer.release);
        self.drop_void(&pointer.void);
        let is_staged = |it: &Staged| is_named(&it.archive, pointer.release);
        if !self.staged.as_ref().is_some_and(is_staged)
            && self.supersede(pointer.settled().max(now))
        {
            self.publish();
        }
        if is_named(self.archive(), pointer.release) {
            self.report.due(None);
            self.accept(&pointer);
            self.publish();
            return;
        }
        self.report.due(Some(activation));
        if let Some(staged) = &mut self.staged {
            staged.activation = activation;
            staged.pointer = Some(pointer);
            self.log_staged(now);
            return;
        }
        let file = Bad::of(&pointer, &path);
        if self.bad.as_ref() == Some(&file) {
            self.try_again(Duration::ZERO);
            return;
        }
        let begun = Instant::now();
        match self.open_of_store(&path, &pointer) {
            Ok(archive) => self.stage(archive, activation, Some(pointer), file.stamp),
            Err(refusal) => {
                self.bad = refusal.is_final.then_some(file);
                self.try_again(begun.elapsed());
                self.refuse(&refusal, now);
            }
        }
    }

    /// Opens the release that a pointer names. The pointer has the digest of the whole file.
    fn open_of_store(&self, path: &Path, pointer: &Pointer) -> Result<OpenedArchive, Refusal> {
        let archive = self.open(path, ArchiveProof::Pointer(pointer))?;
        if is_named(&archive, pointer.release) {
            return Ok(archive);
        }
        Err(Refusal {
            reason: "damaged",
            text: format!("'{}' is another release", path.display()),
            is_final: true,
        })
    }

    /// A release of the store cannot be staged, and finding that out took this long: its file may still
    /// be on its way.
    fn try_again(&mut self, took: Duration) {
        if let Origin::Store(store) = &mut self.source.origin {
            store.refused(again_after(took));
        }
    }

    /// Opens an archive.
    fn open(&self, path: &Path, proof: ArchiveProof<'_>) -> Result<OpenedArchive, Refusal> {
        let opening = Opening {
            options: &self.surroundings.options,
            workers: self.surroundings.workers,
            room: &self.surroundings.room,
            coder: None,
            host: self.source.host.as_deref(),
            replaced: self.archive().rules_memory(),
        };
        opening.open_archive(path, proof).map_err(Refusal::from)
    }

    /// Has all workers answer for the immutable assets of a release.
    fn stage(
        &mut self,
        archive: OpenedArchive,
        activation: u64,
        pointer: Option<Box<Pointer>>,
        stamp: Option<Stamp>,
    ) {
        let archive = Arc::new(archive);
        let now = self.now();
        let was_kept = self.drop_kept(&archive);
        self.staged = Some(Staged {
            archive: Arc::clone(&archive),
            activation,
            applied: Applied::to_nobody(),
            pointer,
            stamp,
            was_current: was_kept.is_some_and(|it| it.was_current),
        });
        self.report.accepted();
        self.report.due(Some(activation));
        let applied = self.publish();
        self.log_staged(now);
        if let Some(staged) = &mut self.staged {
            staged.applied = applied;
        }
    }

    /// Logs what is staged, unless that is a matter of moments.
    fn log_staged(&self, now: u64) {
        if let Some(staged) = &self.staged
            && staged.activation > now
        {
            self.report.log(format_args!(
                "staged release {}{}, to be activated in {} s",
                staged.archive.short_id(),
                self.serial_shown(),
                staged.activation - now
            ));
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
            what: CheckedContent::Archive(staged.archive),
        };
        let old = Arc::clone(self.archive());
        self.current = Arc::new(next);
        // Its file may be another one, or have more of it.
        let is_other = !is_same(&old, self.archive());
        self.file = CurrentFile::Proven(staged.stamp);
        let (void, settled) = match &staged.pointer {
            Some(pointer) => (&pointer.void[..], pointer.settled()),
            None => (&[][..], now),
        };
        match void.contains(&id_of(&old)) {
            true => self.leave(old),
            false => self.keep(old, settled.max(now), true),
        }
        self.report.due(None);
        if let Some(pointer) = &staged.pointer {
            self.accept(pointer);
        }
        self.publish();
        if is_other {
            self.report.activated(now);
            self.report.log(format_args!(
                "serving release {}{}",
                self.archive().short_id(),
                self.serial_shown()
            ));
        }
    }

    /// Records a pointer whose release is current.
    fn accept(&mut self, pointer: &Pointer) {
        if let Origin::Store(store) = &mut self.source.origin {
            store.pointer = pointer.clone();
            // It may keep others.
            self.keep_again_at = Some(Instant::now());
            self.unkept.clear();
        }
        self.report.accepted();
    }

    /// Sends the releases to the workers, and writes them on the board.
    fn publish(&mut self) -> Applied {
        self.note();
        let staged = self.staged.iter().map(|it| &it.archive);
        let others = staged.chain(self.kept.archives()).take(OTHER_RELEASES_MAX);
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
        let kept = self.kept.archives();
        let all = [self.archive()].into_iter().chain(staged).chain(kept);
        let preview = |archive: &Arc<OpenedArchive>| Preview {
            id: id_of(archive).to_string(),
            archive: Arc::new(archive.for_preview()),
        };
        all.map(preview).collect()
    }

    fn refuse(&mut self, refusal: &Refusal, now: u64) {
        let serving = self.archive().short_id();
        self.report.refused(refusal, &serving, now);
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

    /// Writes the releases on the board.
    fn note(&mut self) {
        let staged = self.staged.iter().map(|it| &*it.archive);
        let kept = self.kept.archives().map(|it| &**it);
        let serial = match &self.source.origin {
            Origin::Store(store) => Some(store.pointer.serial),
            Origin::Path(_) => None,
        };
        self.report.releases(self.archive(), staged, kept, serial);
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
