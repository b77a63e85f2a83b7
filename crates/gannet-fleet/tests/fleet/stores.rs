//! Stores with releases of known content, and followers of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gannet_archive::{
    Coding, Content, FieldBlock, Key, Options, Parts, Superblock, TreeHasher, VariantDraft, Writer,
};
use gannet_fleet::{FleetError, Follower, Patience, Receiver, Remote, Round, Settings};
use gannet_store::{Next, Pointer, Publisher, ReleaseId};
use gannet_testkit::Folder;
use minisign::KeyPair;

/// The time, in Unix seconds.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// Bytes that differ from those of any other seed.
pub(crate) fn bytes(seed: u8, len: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// An archive of files.
pub(crate) fn archive(files: &[Vec<u8>]) -> Vec<u8> {
    archive_with(files, None)
}

/// Makes what follows an archive of its metadata.
pub(crate) type Tail<'t> = &'t dyn Fn(&[u8]) -> Vec<u8>;

/// An archive of files that may say that its metadata follows, packed.
pub(crate) fn archive_with(files: &[Vec<u8>], tail: Option<Tail<'_>>) -> Vec<u8> {
    let mut writer = Writer::new(Options::default());
    if tail.is_some() {
        writer.pack_metadata_from(0);
    }
    let mut file = vec![0; 4096];
    for (number, body) in files.iter().enumerate() {
        let mut hasher = TreeHasher::default();
        hasher.update(body);
        let (len, digest, tree) = hasher.finish();
        let placed = writer.add_hashed(digest, len);
        writer.set_tree(placed.id, tree);
        if let Some(offset) = placed.write_at {
            file.resize(usize::try_from(offset).unwrap(), 0);
            file.extend_from_slice(body);
        }
        let length = format!("Content-Length: {}\r\n", body.len());
        let block = format!("{length}Content-Type: text/plain\r\nETag: \"{number}\"\r\n");
        let shared = block.find("ETag").unwrap();
        let variants = writer.add_variants(&[VariantDraft {
            coding: Coding::Identity,
            blob: placed.id,
            entity_tag: format!("\"{number}\"").as_bytes(),
            h1: FieldBlock {
                bytes: block.as_bytes(),
                length_end: u16::try_from(length.len()).unwrap(),
                shared_start: u16::try_from(shared).unwrap(),
                ..FieldBlock::default()
            },
            hpack: None,
        }]);
        let path = format!("/{number}.txt");
        let content = Content {
            content_type: b"text/plain",
            variants,
            ..Content::default()
        };
        writer.add_content(Key::content(path.as_bytes()), &content);
    }
    let Parts {
        superblock,
        metadata_offset,
        metadata,
        ..
    } = writer.finish().unwrap();
    file.resize(usize::try_from(metadata_offset).unwrap(), 0);
    file.extend_from_slice(&metadata);
    file.extend(tail.map_or(Vec::new(), |tail| tail(&metadata)));
    file[..4096].copy_from_slice(&superblock);
    file
}

/// The archive of a release of eight files, of which the first is that of its letter.
pub(crate) fn release(letter: u8) -> Vec<u8> {
    let mut files: Vec<_> = (200..208).map(|seed| bytes(seed, 150_000)).collect();
    files[0] = bytes(letter, 150_000);
    archive(&files)
}

pub(crate) fn id_of(archive: &[u8]) -> ReleaseId {
    let superblock = Superblock::parse(&archive[..4096], archive.len() as u64).unwrap();
    ReleaseId::of_build_id(superblock.build_id())
}

/// A store, and a copy that is made of it.
pub(crate) struct Fleet {
    folder: Folder,
    keys: Option<KeyPair>,
    pub(crate) settings: Settings,
    /// Of the next follower.
    pub(crate) patience: Patience,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        Self {
            folder: Folder::new(),
            keys: None,
            settings: Settings::default(),
            patience: Patience {
                pause: Duration::from_millis(1),
                ..Patience::default()
            },
        }
    }

    /// Pointers are signed, and have to be.
    pub(crate) fn signed() -> Self {
        Self {
            keys: Some(KeyPair::generate_unencrypted_keypair().unwrap()),
            ..Self::new()
        }
    }

    /// The store.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("store")
    }

    /// The copy.
    pub(crate) fn copy(&self) -> PathBuf {
        self.folder.join("copy")
    }

    /// Publishes an archive to the store, with a change to what is to be in force.
    pub(crate) fn publish_with(
        &self,
        archive: &[u8],
        now: u64,
        change: impl FnOnce(&mut Next),
    ) -> Pointer {
        let publisher = Publisher::open(&self.store(), "ann@build", now).unwrap();
        let source = self.folder.write("archive", archive);
        publisher.copy(&source).unwrap();
        let id = id_of(archive);
        let placed = publisher.place(id, |_| true).unwrap();
        let mut next = Next::at_once(id, placed);
        change(&mut next);
        let pointer = publisher.next(next, now).unwrap();
        publisher.commit(&pointer, &self.text(&pointer)).unwrap();
        let pruned = publisher.prune(&pointer, now);
        assert!(pruned.errors.is_empty(), "{pruned:?}");
        pointer
    }

    pub(crate) fn publish(&self, letter: u8) -> Pointer {
        self.publish_with(&release(letter), now(), |_| {})
    }

    /// The text of a pointer, signed if the fleet signs.
    pub(crate) fn text(&self, pointer: &Pointer) -> String {
        let text = pointer.to_text();
        match &self.keys {
            None => text,
            Some(keys) => sign(&text, keys),
        }
    }

    /// A follower of the store at a URL.
    pub(crate) fn follower(&self, url: &str) -> Follower {
        let key = self.keys.as_ref().map(|keys| keys.pk.to_base64());
        let remote = Remote::open(url, self.patience).unwrap();
        let settings = self.settings.clone();
        Follower::open(
            remote,
            &self.copy(),
            key.as_deref(),
            settings,
            "node",
            now(),
        )
        .unwrap()
    }

    /// A receiver of what is signed with the fleet's key, whose store is the copy.
    pub(crate) fn receiver(&self) -> Receiver {
        Receiver {
            folder: self.copy(),
            key: self.keys.as_ref().unwrap().pk.to_base64(),
            disk_max: self.settings.disk_max,
            name: "node".to_owned(),
        }
    }

    /// The copy has what the store has.
    pub(crate) fn is_copied(&self) {
        let (store, copy) = (files(&self.store()), files(&self.copy()));
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&copy), names(&store));
        for (name, content) in store {
            assert!(copy[&name] == content, "{name:?} differs");
        }
    }
}

pub(crate) fn sign(text: &str, keys: &KeyPair) -> String {
    let signature = minisign::sign(None, &keys.sk, text.as_bytes(), None, None);
    format!("{text}{}", signature.unwrap().to_string())
}

/// The files of a store, but those whose names begin with a dot.
pub(crate) fn files(store: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in ["", "log", "releases"] {
        let Ok(entries) = fs::read_dir(store.join(folder)) else {
            continue;
        };
        for entry in entries.map(Result::unwrap) {
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if entry.path().is_file() && !is_hidden {
                let name = Path::new(folder).join(entry.file_name());
                found.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

/// A round that fails with this in its message, and leaves the copy as it was.
pub(crate) fn fails(fleet: &Fleet, follower: &mut Follower, expect: &str) -> FleetError {
    let before = files(&fleet.copy());
    let error = follower.round(now()).unwrap_err();
    assert!(error.to_string().contains(expect), "{error}");
    assert!(
        files(&fleet.copy()) == before,
        "the copy has changed: {error}"
    );
    error
}

/// A round that succeeds, after which the copy has what the store has.
pub(crate) fn succeeds(fleet: &Fleet, follower: &mut Follower) -> Round {
    let round = follower
        .round(now())
        .unwrap_or_else(|error| panic!("{error}"));
    fleet.is_copied();
    round
}
