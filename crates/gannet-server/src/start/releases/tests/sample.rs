//! Releases, a store, and workers that take what they are sent when the test says so.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};

use gannet_archive::{
    Coding, Content as Entry, Key, Options, SUPERBLOCK_LEN, SectionKind, Superblock, VariantDraft,
    Writer,
};
use gannet_content::answer::{Resource, ready_fields};
use gannet_content::archive::{Entries, Host, Space};
use gannet_content::rules::memory::Replaced;
use gannet_content::rules::table::RedirectTable;
use gannet_content::rules::{Compat, SourceFile, redirects};
use gannet_http::semantics::coding::Coding as ContentCoding;
use gannet_io::driver::{Network, Token};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
use gannet_store::{Next, Publisher};

use super::*;
use crate::config::Content;
use crate::config::supply::Supply;
use crate::ground::inbox::Message;
use crate::ground::inbox::Remote;
use crate::observe::board::ContentFacts;
use crate::release::opened::Opened;
use crate::start::open::Followed;
use crate::start::releases::origin::InStore;

/// When each test begins, Unix seconds.
pub(super) const NOW: u64 = 1_800_000_000;

/// The current release, and the others in their order.
pub(super) type Seen = Option<(char, String)>;

pub(super) fn seen(current: char, others: &str) -> Seen {
    Some((current, others.to_owned()))
}

/// A release with one immutable file, which is named after it and a page for errors as well, and one rule.
pub(super) fn archive(letter: char) -> Vec<u8> {
    let body = vec![letter as u8; 5000];
    let mut writer = Writer::new(Options::default());
    let placed = writer.add_bytes(&body);
    let mut bytes = vec![0; placed.write_at.expect("it is new") as usize];
    bytes.extend(&body);
    let ready = ready_fields(&Resource {
        content_type: "text/plain",
        coding: ContentCoding::Identity,
        len: body.len() as u64,
        entity_tag: "\"x\"",
        last_modified: None,
        vary: None,
        cache_control: Some("max-age=31536000, immutable"),
        fields: &[],
        common: None,
    });
    let ready = ready.expect("fields that can be sent");
    let block = ready.as_block();
    let variants = writer.add_variants(&[VariantDraft {
        coding: Coding::Identity,
        blob: placed.id,
        entity_tag: b"\"x\"",
        h1: block,
        hpack: None,
    }]);
    let content = Entry {
        content_type: b"text/plain",
        variants,
        ..Entry::default()
    };
    writer.add_content(Key::content(path_of(letter).as_bytes()), &content);
    writer.add_content(Key::content(b"/503.html"), &content);
    let file = SourceFile {
        path: "_redirects",
        text: b"/old /new 301",
    };
    let (rules, _) = redirects::parse(&[file], Compat::Netlify);
    writer.set_section(
        SectionKind::RedirectRules,
        RedirectTable::new(rules).compile(),
    );
    let parts = writer.finish().expect("a sound archive");
    bytes.resize(parts.metadata_offset as usize, 0);
    bytes.extend_from_slice(&parts.metadata);
    bytes[..SUPERBLOCK_LEN].copy_from_slice(&parts.superblock);
    bytes
}

/// The length of each release.
pub(super) fn length() -> u64 {
    archive('a').len() as u64
}

/// The name of a release in a store.
pub(super) fn id(letter: char) -> ReleaseId {
    let bytes = archive(letter);
    let superblock = Superblock::parse(&bytes[..SUPERBLOCK_LEN], bytes.len() as u64);
    ReleaseId::of_build_id(superblock.expect("a sound archive").build_id())
}

fn path_of(letter: char) -> String {
    format!("/{letter}.txt")
}

pub(super) fn letter_of(archive: &OpenedArchive) -> char {
    let host = Host::of(&archive.archive, 0);
    let has = |letter: &char| {
        let path = path_of(*letter);
        host.find(Space::Content, path.as_bytes()).is_some()
    };
    ('a'..='z').find(has).expect("it has its file")
}

/// A worker that takes what it is sent when the test says so.
pub(super) struct Worker {
    inbox: Receiver<Message>,
    _driver: Sim,
}

impl Worker {
    /// Serves what it was sent; `None` if that is nothing.
    pub(super) fn take(&mut self) -> Seen {
        let Message::Release(opened, _applying) = self.inbox.try_iter().last()? else {
            panic!("no other message is sent");
        };
        let generations = &opened.contents[&0];
        let CheckedContent::Archive(current) = &generations.current.what else {
            panic!("an archive is followed");
        };
        let others = generations.others.iter().map(|it| letter_of(it));
        Some((letter_of(current), others.collect()))
    }
}

/// A follower with its surroundings.
pub(super) struct Follows {
    folder: PathBuf,
    pub(super) follower: ReleaseFollower,
    pub(super) workers: Vec<Worker>,
}

impl Follows {
    /// An archive at a path is followed, and copied into memory.
    pub(super) fn path(name: &str, workers: usize) -> Self {
        let folder = folder(name);
        fs::write(folder.join("site.gannet"), archive('a')).expect("written");
        let content = Content::Archive(folder.join("site.gannet"));
        Self::of(folder, &content, workers, 100 * length())
    }

    /// The same without copies.
    pub(super) fn file(name: &str) -> Self {
        let folder = folder(name);
        fs::write(folder.join("site.gannet"), archive('a')).expect("written");
        let content = Content::Archive(folder.join("site.gannet"));
        Self::of(folder, &content, 1, 0)
    }

    /// A store is followed to which `publish` has published.
    pub(super) fn store(name: &str, publish: impl FnOnce(&dyn Fn(char, &Change))) -> Self {
        let folder = folder(name);
        publish(&|letter, change| publish_to(&folder, letter, NOW, change));
        let content = Content::Store(folder.join("store"));
        Self::of(folder, &content, 1, 100 * length())
    }

    /// Another server that starts now with the same store.
    pub(super) fn restarted(mut self) -> Self {
        // Its folder must stay.
        let folder = mem::take(&mut self.folder);
        let content = Content::Store(folder.join("store"));
        Self::of(folder, &content, 1, 100 * length())
    }

    fn of(folder: PathBuf, content: &Content, workers: usize, cache_memory: u64) -> Self {
        PRINTED.take();
        let nowhere = || fs::File::open("/dev/null").expect("it is there");
        let options = Arc::new(ContentOptions {
            supply: Some(Supply::new(nowhere(), nowhere())),
            ..ContentOptions::default()
        });
        let room = Arc::new(ArchiveRoom::new(cache_memory));
        let opening = Opening {
            options: &options,
            workers,
            room: &room,
            coder: None,
            host: None,
            replaced: Replaced::default(),
        };
        let opened = match content {
            Content::Store(path) => {
                let store = InStore::open(path, None, "node", CLOCK.get()).expect("a store");
                opening.open_store(store, CLOCK.get())
            }
            _ => opening.open(content),
        };
        let (what, Followed::Releases(origin)) = opened.expect("a sound archive") else {
            panic!("an archive is followed");
        };
        let mut inboxes = Vec::new();
        let mut remotes = Vec::new();
        for _ in 0..workers {
            let (sender, inbox) = mpsc::channel();
            let mut driver = Sim::new(0, 0, &EngineOptions::default(), Faults::none());
            remotes.push(Remote::new(sender, driver.waker(Token(0))));
            inboxes.push(Worker {
                inbox,
                _driver: driver,
            });
        }
        let opened = Arc::new(Opened::one(what, &options));
        let current = Arc::clone(&opened.contents[&0].current);
        let surroundings = Surroundings {
            options,
            workers,
            room,
            published: Arc::new(Published::new(opened, remotes)),
            board: Arc::default(),
            patience: Duration::ZERO,
            clock: || CLOCK.get(),
            messages: &CAUGHT,
        };
        let source = ArchiveOrigin {
            place: 0,
            name: "site".into(),
            origin,
            host: None,
        };
        Self {
            folder,
            follower: ReleaseFollower::new(source, current, surroundings),
            workers: inboxes,
        }
    }

    pub(super) fn look(&mut self) {
        self.follower.look(false);
    }

    /// Looks on request.
    pub(super) fn ask(&mut self) {
        self.follower.look(true);
    }

    /// Nothing but the metadata of the release in force is there any more.
    pub(super) fn make_partial(&self) {
        let folder = self.folder.join("store");
        let publisher = Publisher::open(&folder, "test", CLOCK.get()).expect("a store");
        let pointer = publisher.store().pointer().expect("published");
        let part = publisher.part_path(pointer.release);
        fs::copy(self.folder.join("packed"), part).expect("copied");
        publisher.adopt_partial(&pointer).expect("its metadata");
        // It is gone already if this was done before.
        let _ = fs::remove_file(publisher.store().release_path(pointer.release));
    }

    /// Looks until nothing more happens, while the workers take all that they are sent; returns
    /// what the first of them has in the end, if that is new.
    pub(super) fn settle(&mut self) -> Seen {
        let mut last = None;
        for _ in 0..8 {
            self.look();
            let taken = self.workers.iter_mut().map(Worker::take);
            last = taken.collect::<Vec<_>>().swap_remove(0).or(last);
        }
        last
    }

    /// Renames another archive to the path.
    pub(super) fn replace(&self, letter: char) {
        let new = self.folder.join("new");
        fs::write(&new, archive(letter)).expect("written");
        fs::rename(new, self.site()).expect("renamed");
    }

    /// The path that is followed.
    pub(super) fn site(&self) -> PathBuf {
        self.folder.join("site.gannet")
    }

    pub(super) fn publish(&self, letter: char, change: &Change) {
        publish_to(&self.folder, letter, CLOCK.get(), change);
    }

    /// The file with the pointer in force.
    pub(super) fn pointer(&self) -> PathBuf {
        self.folder.join("store/current")
    }

    /// The log says of the second release that a copy of it takes all that kept ones may.
    pub(super) fn lengthen_second(&self) {
        let entry = self.pointer().with_file_name("log").join("2");
        let text = fs::read(&entry).expect("published");
        let mut pointer = Pointer::parse(&text).expect("a pointer");
        pointer.size = KEPT_COPIES_BYTES_MAX;
        fs::write(entry, pointer.to_text()).expect("written");
    }

    /// The file of a release.
    pub(super) fn release(&self, letter: char) -> PathBuf {
        let name = format!("store/releases/{}.gannet", id(letter));
        self.folder.join(name)
    }

    pub(super) fn facts(&self) -> ContentFacts {
        self.follower.surroundings.board.all().swap_remove(0)
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.follower.surroundings.board.late().is_at(CLOCK.get())
    }

    /// Asserts that this many copies use the budget.
    pub(super) fn assert_copies(&self, count: u64) {
        let room = &self.follower.surroundings.room;
        let left = (50 - count) * length();
        let taken = room.take(left);
        assert!(taken.is_some(), "more copies than {count} use it");
        assert!(room.take(1).is_none(), "fewer copies than {count} use it");
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        // A leftover temporary directory does no harm; another server may have taken it over.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// How a pointer differs from a plain one.
pub(super) type Change = dyn Fn(&mut Next);

fn publish_to(folder: &std::path::Path, letter: char, now: u64, change: &Change) {
    let publisher = Publisher::open(&folder.join("store"), "test", now).expect("a store");
    let file = folder.join("packed");
    fs::write(&file, archive(letter)).expect("written");
    publisher.copy(&file).expect("copied");
    let placed = publisher.place(id(letter), |_| true).expect("placed");
    let mut next = Next::at_once(id(letter), placed);
    change(&mut next);
    let pointer = publisher.next(next, now).expect("a pointer");
    let committed = publisher.commit(&pointer, &pointer.to_text());
    committed.expect("published");
}

/// A new folder, at the beginning of a test.
fn folder(name: &str) -> PathBuf {
    CLOCK.set(NOW);
    let name = format!("gannet-releases-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("made");
    folder
}

/// Lets time pass, in seconds.
pub(super) fn pass(seconds: u64) {
    CLOCK.set(CLOCK.get() + seconds);
}

/// The messages since the last call.
pub(super) fn printed() -> Vec<String> {
    PRINTED.take()
}

thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(NOW) };
    static PRINTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

static CAUGHT: Channel = Channel::new(|bytes| {
    let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
    PRINTED.with_borrow_mut(|printed| printed.push(text));
    Ok(())
});
