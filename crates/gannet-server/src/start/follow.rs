//! Follows live directories by path: if the path names another directory later, that one is served
//! instead, and changed rules files are read again. In either case all workers get a new release.
//!
//! ```text
//!            two checks agree                    two checks agree
//!   served ───────────────────▶ another one ─┐  ┌──────────────── missing: 503
//!     ▲  └── rules files changed: read again │  │                    ▲
//!     └──────────────────────────────────────┴──┘   nothing there ───┘
//! ```

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_content::error_page::OWN_NAMES;
use gannet_content::rules::Compat;
use gannet_content::rules::files::redirects_files;
use gannet_content::rules::memory::Replaced;
use gannet_io::cause::cause;
use gannet_io::driver::Root;
use gannet_io::links::Outside;
use gannet_io::named_file;

use crate::bounds::limits::{
    APPLIED_MS, FOLLOW_MS, FOLLOWERS_MAX, KEPT_DIRECTORY, LOOKS_PART, OTHER_RELEASES_MAX,
    RULES_SEARCH_PART,
};
use crate::release::opened::{CheckedContent, Generations, OpenedContent, OpenedDirectory};
use crate::release::rules::{ReadAhead, SiteRules};
use crate::start::published::{Applied, Published};
use crate::start::sandbox::Readable;
use crate::watch::lookout::{Lookout, Quiet, Stamp};
use crate::watch::notices::ERRORS;

/// The location of a live directory, independent of the working directory at start.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    path: PlacePath,
    /// Folders elsewhere into which links may lead.
    outside: Outside,
}

#[derive(Clone, Debug)]
enum PlacePath {
    /// The target of this path, wherever it leads: the operator named it.
    Named(PathBuf),
    /// The entry of this name in a folder with one directory per host. A symbolic link there cannot
    /// lead outside of that folder, but into those that are named for that.
    Below(PathBuf, PathBuf),
}

impl Location {
    /// The place of a path; `is_host` if it is in a folder with one directory per host.
    ///
    /// # Errors
    /// The working directory cannot be determined.
    pub(crate) fn new(path: &Path, is_host: bool, outside: &Outside) -> io::Result<Self> {
        let full = absolute(path)?;
        let path = match (full.parent(), full.file_name()) {
            (Some(hosts), Some(name)) if is_host => PlacePath::Below(hosts.to_owned(), name.into()),
            _ => PlacePath::Named(full),
        };
        Ok(Self {
            path,
            outside: outside.clone(),
        })
    }

    /// Its path.
    fn path(&self) -> PathBuf {
        match &self.path {
            PlacePath::Named(path) => path.clone(),
            PlacePath::Below(hosts, name) => hosts.join(name),
        }
    }

    /// Opens the directory that is there now.
    ///
    /// # Errors
    /// The errors of [`Root::open`] and [`Root::open_below`].
    pub(crate) fn open(&self) -> io::Result<Root> {
        match &self.path {
            PlacePath::Named(path) => Root::open_with(path, &self.outside),
            PlacePath::Below(hosts, name) => {
                Root::open_with(hosts, &self.outside)?.open_below(name)
            }
        }
    }
}

/// A live directory and its rules files, as of their opening.
#[derive(Clone, Debug)]
pub(crate) struct LiveDirectory {
    /// The name given by the operator.
    name: PathBuf,
    place: Location,
    /// Its files that are read before any request.
    ahead: ReadAhead,
    /// The names of those that it may have.
    rules_files: Vec<String>,
    /// The directory that is served, or was last.
    root: Root,
    seen: DirectoryState,
    /// Number of workers, each with a descriptor of its own.
    workers: usize,
}

/// The state found by one check.
#[derive(Clone, Debug, Eq, PartialEq)]
struct DirectoryState {
    /// Identity of the directory, or why there is none.
    directory: Result<(u64, u64), ErrorKind>,
    /// Keyed by name: renaming a folder moves its files without changing their stamps.
    rules_files: Vec<(String, Option<Stamp>)>,
}

impl LiveDirectory {
    /// The directory named `name` by the operator and opened as `root` for `workers`
    /// workers. Read the rules after this: then no change is missed.
    pub(crate) fn new(
        name: &Path,
        (place, root): (Location, &Root),
        ahead: &ReadAhead,
        workers: usize,
    ) -> Self {
        let names = names_ahead(root, ahead);
        Self {
            seen: DirectoryState {
                directory: Ok(root.identity()),
                rules_files: stamps(root, &names),
            },
            name: name.to_owned(),
            place,
            ahead: ahead.clone(),
            root: root.clone(),
            rules_files: names,
            workers,
        }
    }
}

/// Follows the directories at these places, each on its own thread up to [`FOLLOWERS_MAX`], so that
/// a hanging file system delays no other directory.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn follow(
    sources: Vec<(usize, LiveDirectory)>,
    published: &Arc<Published>,
    readable: Option<Readable>,
) -> io::Result<Vec<Lookout>> {
    let count = sources.len().min(FOLLOWERS_MAX);
    let mut threads: Vec<Vec<Follower>> = (0..count).map(|_| Vec::new()).collect();
    for (at, (place, source)) in sources.into_iter().enumerate() {
        let follower = Follower::new(source, place, Arc::clone(published));
        threads[at % count].push(follower.within(readable.clone()));
    }
    let every = Duration::from_millis(FOLLOW_MS);
    let start = |mut followers: Vec<Follower>| {
        Lookout::start("gannet-follow", every, LOOKS_PART, move |is_asked| {
            for follower in &mut followers {
                follower.look(is_asked);
            }
        })
    };
    threads.into_iter().map(start).collect()
}

pub(crate) struct Follower {
    source: LiveDirectory,
    /// Index of the directory among the contents.
    place: usize,
    published: Arc<Published>,
    quiet: Quiet<DirectoryState>,
    /// Whether a directory is served, not 503.
    is_served: bool,
    /// Earlier directories, newest first, with the times when they were replaced.
    kept: Vec<(Root, Instant)>,
    /// When folders are next searched for rules files.
    next_search: Instant,
    /// The folders that the sandbox leaves readable; `None` without one.
    readable: Option<Readable>,
}

impl Follower {
    pub(crate) fn new(source: LiveDirectory, place: usize, published: Arc<Published>) -> Self {
        Self {
            place,
            published,
            quiet: Quiet::new(source.seen.clone()),
            is_served: true,
            kept: Vec::new(),
            source,
            next_search: Instant::now(),
            readable: None,
        }
    }

    /// The same within what the sandbox leaves readable.
    pub(crate) fn within(self, readable: Option<Readable>) -> Self {
        Self { readable, ..self }
    }

    /// Looks once for changes; acts on some only if that `is_asked` for.
    pub(crate) fn look(&mut self, is_asked: bool) {
        let opened = self.source.place.open();
        let now = match &opened {
            Ok(root) => {
                self.search(root);
                DirectoryState {
                    directory: Ok(root.identity()),
                    rules_files: stamps(root, &self.source.rules_files),
                }
            }
            Err(error) => DirectoryState {
                directory: Err(error.kind()),
                rules_files: Vec::new(),
            },
        };
        let is_due = self.quiet.is_due(&now);
        let was = self.quiet.known().directory;
        if !is_due && !is_asked {
            return;
        }
        match opened {
            Ok(root) if now.directory == was => {
                let has_rules = now.rules_files.iter().any(|(_, it)| it.is_some());
                if is_due || has_rules || self.rules_in_force().is_some() {
                    self.read_rules(&root, is_asked);
                }
            }
            Ok(_) if !self.is_readable() => self.refuse(),
            Ok(root) => self.take(&root, is_asked),
            Err(error) if now.directory != was => self.miss(&error),
            Err(_) => {}
        }
        self.quiet.acted(now);
    }

    /// Searches folders for rules files, if the next search is due.
    fn search(&mut self, root: &Root) {
        let begun = Instant::now();
        if begun >= self.next_search {
            self.source.rules_files = names_ahead(root, &self.source.ahead);
            self.next_search = Instant::now() + begun.elapsed() * RULES_SEARCH_PART;
        }
    }

    /// The rules that are in force, perhaps of files that are gone.
    fn rules_in_force(&self) -> Option<Arc<SiteRules>> {
        let rules = self.published.look(self.place, |content| {
            let CheckedContent::Directory(directory) = &content.current.what else {
                unreachable!("a directory is followed");
            };
            directory.rules.clone()
        });
        rules.flatten()
    }

    /// Serves the directory that has replaced the old one, or is that again. As in
    /// [`read_rules`](Self::read_rules), one without `_headers` is open to everyone only if that `is_asked` for.
    fn take(&mut self, root: &Root, is_asked: bool) {
        self.keep_some();
        let rules = self.load_rules(root);
        let is_bare = !is_asked && has_no_headers(root);
        let (mut is_for_the_same, mut loses_users) = (true, false);
        self.publish(|next| {
            let (old, new) = (next.rules.as_deref(), rules.as_ref().map(Option::as_ref));
            loses_users = is_bare && new.is_some_and(|new| SiteRules::loses_users(old, new));
            is_for_the_same =
                loses_users || new.is_none_or(|new| SiteRules::have_same_users(old, new));
        });
        let rules = rules.filter(|_| !loses_users);
        if !is_for_the_same {
            // Their rules would not be those by which users are known.
            self.kept.clear();
        }
        // First, all workers answer for its assets: no page that refers to them is sent earlier.
        let staged = is_for_the_same.then_some(root);
        let kept = self.kept.iter().map(|(root, _)| root);
        let others = staged.into_iter().chain(kept).cloned().collect();
        let staged = self.publish(|next| next.others = others);
        if !staged.wait(Duration::from_millis(APPLIED_MS)) {
            // Some page may be sent too early; the directory that it replaces may be gone already.
            let name = self.source.name.display();
            ERRORS.log(format_args!(
                "gannet: '{name}': a worker is slow to take the new directory"
            ));
        }
        let old = std::mem::replace(&mut self.source.root, root.clone());
        let is_back = old.identity() == root.identity();
        if is_for_the_same && !is_back {
            self.kept.insert(0, (old, Instant::now()));
        }
        self.keep_some();
        // If descriptors run out, workers share one, which costs them a little time.
        let own = || root.reopen().unwrap_or_else(|_| root.clone());
        let roots = (0..self.source.workers).map(|_| own()).collect();
        let others = self.kept.iter().map(|(root, _)| root.clone()).collect();
        let path = self.source.place.path();
        self.publish(|next| {
            next.roots = roots;
            next.others = others;
            if let Some(Ok(copies)) = next.copies.as_ref().map(|it| it.of(&path)) {
                next.copies = Some(copies);
            }
            if let Some(rules) = rules {
                next.rules = rules.map(Arc::new);
            }
        });
        self.is_served = true;
        let name = self.source.name.display();
        let what = match is_back {
            true => "is back, and served again",
            false => "was replaced; serving the new directory",
        };
        ERRORS.log(format_args!("gannet: '{name}' {what}"));
        if loses_users {
            self.log_lost_users();
        }
    }

    fn log_lost_users(&self) {
        let name = self.source.name.display();
        ERRORS.log(format_args!(
            "gannet: '{name}' no longer has '_headers'; its passwords and other rules stay until \
             it is back\nhelp: SIGHUP, or a restart, serves the directory as it is"
        ));
    }

    /// Whether the sandbox lets files be opened where the path leads now.
    fn is_readable(&self) -> bool {
        let readable = self.readable.as_ref();
        readable.is_none_or(|readable| readable.holds(&self.source.place.path()))
    }

    /// Keeps the old directory, as no file of the new one could be opened; if that is gone, answers
    /// 503.
    fn refuse(&mut self) {
        self.is_served &= !self.source.root.is_removed();
        let instead = match self.is_served {
            true => "keeping the old directory",
            false => {
                self.publish(|next| next.roots = Vec::new());
                "answering 503"
            }
        };
        let name = self.source.name.display();
        ERRORS.log(format_args!(
            "gannet: cannot serve the new '{name}': the sandbox has not left it readable; \
             {instead}\nhelp: start gannet again; with --sandbox off it follows any link and any \
             folder that is made again"
        ));
    }

    /// Answers 503 because there is no directory to serve.
    fn miss(&mut self, error: &io::Error) {
        self.is_served = false;
        self.publish(|next| next.roots = Vec::new());
        let cause = match error.kind() {
            ErrorKind::NotFound => "no such directory (ENOENT)".into(),
            _ => cause(error),
        };
        let name = self.source.name.display();
        ERRORS.log(format_args!(
            "gannet: cannot serve '{name}': {cause}; answering 503 until it is back"
        ));
    }

    /// Reads the rules again. A directory that is being built may have no `_headers` for a while: it is
    /// not open to everyone then, unless that `is_asked` for.
    fn read_rules(&self, root: &Root, is_asked: bool) {
        let Some(rules) = self.load_rules(root) else {
            return;
        };
        let is_bare = !is_asked && has_no_headers(root);
        let mut loses_users = false;
        self.publish(|next| {
            loses_users = is_bare && SiteRules::loses_users(next.rules.as_deref(), rules.as_ref());
            if !loses_users {
                next.rules = rules.map(Arc::new);
            }
        });
        if loses_users {
            return self.log_lost_users();
        }
        let name = self.source.name.display();
        ERRORS.log(format_args!("gannet: reloaded the rules of '{name}'"));
    }

    /// Reads the rules and error pages. `None` keeps the old ones, because the new ones are invalid.
    fn load_rules(&self, root: &Root) -> Option<Option<SiteRules>> {
        let in_force = self.rules_in_force();
        let replaced = in_force.as_ref().and_then(|rules| rules.memory());
        let replaced = replaced.map_or_else(Replaced::default, |room| room.replaced());
        match SiteRules::of_directory(root, &self.source.name, &self.source.ahead, replaced) {
            Ok(rules) => Some(rules),
            Err(error) => {
                let name = self.source.name.display();
                ERRORS.log(format_args!(
                    "gannet: cannot use the new rules of '{name}'; keeping the old ones:\n  {error}"
                ));
                None
            }
        }
    }

    /// Lets go of earlier directories that are old, too many, or removed.
    fn keep_some(&mut self) {
        let is_wanted =
            |(root, left): &(Root, Instant)| left.elapsed() < KEPT_DIRECTORY && !root.is_removed();
        self.kept.retain(is_wanted);
        // One is left for the staged directory.
        self.kept.truncate(OTHER_RELEASES_MAX - 1);
    }

    /// Publishes a change.
    fn publish(&self, change: impl FnOnce(&mut OpenedDirectory)) -> Applied {
        self.published.replace(self.place, |content| {
            let OpenedContent { hosts, what } = &*content.current;
            let CheckedContent::Directory(directory) = what else {
                unreachable!("a directory is followed");
            };
            let mut next = directory.clone();
            change(&mut next);
            Generations::only(OpenedContent {
                hosts: hosts.clone(),
                what: CheckedContent::Directory(next),
            })
        })
    }
}

fn has_no_headers(root: &Root) -> bool {
    let found = named_file::metadata_below(root, Path::new("_headers"));
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The rules files and error pages that may exist, relative to the directory.
fn names_ahead(root: &Root, ahead: &ReadAhead) -> Vec<String> {
    let rules = ahead.routing.as_ref().and_then(|routing| routing.rules);
    names(root, rules, ahead.pages)
}

/// The same of rules in this dialect, and of error pages if it has those.
pub(crate) fn names(root: &Root, rules: Option<Compat>, pages: bool) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(compat) = rules {
        // Reading the rules reports an excess of folders.
        names = redirects_files(compat, |folder| root.names(folder)).unwrap_or_default();
        names.push("_headers".into());
    }
    if pages {
        names.extend(OWN_NAMES.iter().map(|(name, _)| (*name).to_owned()));
    }
    names
}

fn stamps(root: &Root, names: &[String]) -> Vec<(String, Option<Stamp>)> {
    let stamp = |name: &String| (name.clone(), Stamp::below(root, Path::new(name)));
    names.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::Deref;
    use std::sync::mpsc::{self, Receiver};

    use gannet_io::driver::{Network, Token};
    use gannet_io::options::EngineOptions;
    use gannet_io::sim::{Faults, Sim};

    use gannet_content::rules::memory::{MemoryRoom, SitesMemory};
    use gannet_content::rules::{Compat, SourceFile, redirects};

    use super::*;
    use crate::config::{Content, ContentOptions};
    use crate::ground::inbox::Message;
    use crate::ground::inbox::Remote;
    use crate::release::archive_room::ArchiveRoom;
    use crate::release::opened::Opened;
    use crate::start::open::{Followed, Opening};

    /// A temporary folder with a site in it, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("gannet-follow-{name}-{}", std::process::id());
            let folder = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(folder.site()).expect("it is new");
            folder
        }

        fn site(&self) -> PathBuf {
            self.0.join("site")
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.site().join(name), text).expect("written");
        }

        fn follower(&self) -> FollowerAndWorker {
            self.follower_with(ArchiveRoom::new(0))
        }

        fn follower_with(&self, room: ArchiveRoom) -> FollowerAndWorker {
            let options = ContentOptions::default();
            let opening = Opening {
                options: &options,
                workers: 1,
                room: &Arc::new(room),
                coder: None,
                host: None,
                replaced: Replaced::default(),
            };
            let content = Content::Directory(self.site());
            let (what, source) = opening.open(&content).expect("it is there");
            let (sender, messages) = mpsc::channel();
            let mut driver = Sim::new(0, 0, &EngineOptions::default(), Faults::none());
            let worker = Remote::new(sender, driver.waker(Token(0)));
            let opened = Arc::new(Opened::one(what, &options));
            let published = Published::new(opened, vec![worker]);
            let Followed::Directory(source) = source else {
                panic!("a directory is followed");
            };
            FollowerAndWorker {
                follower: Follower::new(source, 0, Arc::new(published)),
                messages,
            }
        }
    }

    /// A follower, and the messages to its worker.
    struct FollowerAndWorker {
        follower: Follower,
        messages: Receiver<Message>,
    }

    impl FollowerAndWorker {
        fn look(&mut self, is_asked: bool) {
            self.follower.look(is_asked);
        }

        /// Whether the last release sent since the previous call has a directory, and rules.
        fn last_sent(&self) -> Option<(bool, bool)> {
            let Message::Release(opened, _) = self.messages.try_iter().last()? else {
                panic!("no other message is sent");
            };
            let CheckedContent::Directory(directory) = &opened.contents[&0].current.what else {
                panic!("a directory is followed");
            };
            Some((!directory.roots.is_empty(), directory.rules.is_some()))
        }
    }

    impl Deref for FollowerAndWorker {
        type Target = Follower;

        fn deref(&self) -> &Follower {
            &self.follower
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // A leftover temporary directory does no harm.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn half_written_rules_are_not_taken() {
        let folder = Folder::new("half");
        let mut follower = folder.follower();
        folder.write("_redirects", "/a /b 301\n");
        follower.look(false);
        assert_eq!(follower.last_sent(), None, "it may be half written");
        folder.write("_redirects", "/a /b 301\n/c /d 30");
        follower.look(false);
        assert_eq!(follower.last_sent(), None, "it was half written");
        folder.write("_redirects", "/a /b 301\n/c /d 301\n");
        follower.look(false);
        assert_eq!(follower.last_sent(), None);
        follower.look(false);
        assert_eq!(follower.last_sent(), Some((true, true)), "two checks agree");
        // On request, they are read at once.
        fs::remove_file(folder.site().join("_redirects")).expect("it was there");
        folder.write("_headers", "/*\n  x-y: z\n");
        follower.look(true);
        assert_eq!(follower.last_sent(), Some((true, true)));
        folder.write("_headers", "nonsense");
        follower.look(true);
        assert_eq!(follower.last_sent(), None, "the old ones are kept");
    }

    /// Neighbours that hold all memory that sites share keep no password from being changed.
    #[test]
    fn a_new_password_holds_whatever_neighbours_hold() {
        let folder = Folder::new("password");
        let rules = |password: &str| {
            let paths = (0..100).map(|at| format!("/{at}/*\n  Basic-Auth: user:{password}\n"));
            paths.collect::<String>()
        };
        folder.write("_headers", &rules("old"));
        let mut room = ArchiveRoom::new(0);
        let memory = Arc::new(SitesMemory::new(1 << 20));
        room.rules = Arc::clone(&memory);
        let mut follower = folder.follower_with(room);
        let base = memory.held();
        let neighbour = "/a /t\n".repeat(5_000);
        let neighbours: Vec<_> = (0..12)
            .map(|_| {
                let file = SourceFile {
                    path: "_redirects",
                    text: neighbour.as_bytes(),
                };
                let mut room = MemoryRoom::among(&memory, Replaced::default());
                let _ = redirects::parse_within(&[file], Compat::Netlify, &mut room);
                room
            })
            .collect();
        assert!(memory.held() + base > memory.max() / 2);
        folder.write("_headers", &rules("longer"));
        follower.look(true);
        assert_eq!(follower.last_sent(), Some((true, true)), "taken");
        drop(neighbours);
    }

    #[test]
    fn the_directory_is_followed_and_so_are_its_rules() {
        let folder = Folder::new("again");
        let mut follower = folder.follower();
        let first = follower.quiet.known().directory;
        fs::remove_dir(folder.site()).expect("empty");
        follower.look(false);
        assert_eq!(follower.quiet.known().directory, first, "it may come back");
        follower.look(false);
        assert_eq!(follower.quiet.known().directory, Err(ErrorKind::NotFound));
        assert_eq!(follower.last_sent(), Some((false, false)));
        fs::create_dir(folder.site()).expect("gone");
        folder.write("_redirects", "/a /b 301\n");
        follower.look(false);
        follower.look(false);
        let second = follower.quiet.known().directory;
        assert!(second.is_ok());
        assert_eq!(
            follower.last_sent(),
            Some((true, true)),
            "the rules of the new directory"
        );
        fs::rename(folder.site(), folder.0.join("old")).expect("moved");
        fs::create_dir(folder.site()).expect("gone");
        follower.look(false);
        follower.look(false);
        assert_ne!(follower.quiet.known().directory, second);
        assert_eq!(
            follower.last_sent(),
            Some((true, false)),
            "the new directory has none"
        );
        fs::remove_dir(folder.site()).expect("empty");
        fs::write(folder.site(), "a file").expect("written");
        follower.look(false);
        follower.look(false);
        let known = follower.quiet.known().directory;
        assert_eq!(known, Err(ErrorKind::NotADirectory));
    }
}
