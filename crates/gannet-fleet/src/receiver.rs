//! Takes a release that a publisher brings, with a pointer that is signed: a follower to which is brought
//! what it lacks.
//!
//! ```text
//! publisher                                receiver
//! gannet publish 1 LENGTH ─ pointer ─────▶ signature, serial, expiry, room
//!               ◀───────────── send 0 4096
//! superblock ────────────────────────────▶
//!               ◀───────────── send FROM TO  metadata, then what no local release has
//! bytes ─────────────────────────────────▶ part, digest of all, releases/<id>.gannet
//!               ◀───────────── whole
//! activate ──────────────────────────────▶ log, current
//!               ◀───────────── active
//! ```
//!
//! In place of any line, the receiver sends `refused CAUSE` and ends; to a pointer that is in force already it
//! says `active` at once. Whatever connection this takes place on sees to encryption and time; where it
//! ends early, the part stays, and the next conversation resumes it.

use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::Instant;

use gannet_archive::signature::{PublicKey, SignatureError};
use gannet_archive::{SUPERBLOCK_LEN, Superblock};
use gannet_io::cause::FileError;
use gannet_store::limits::POINTER_LEN_MAX;
use gannet_store::{Pointer, Publisher, ReleaseId, Store, StoreError};

use crate::draft::{Draft, discard};
use crate::error::{Cause, FleetError};
use crate::limits::{ASKED_AT_ONCE, CONVERSATION_PIECE, LINE_LEN_MAX, LOCK_WAIT};
use crate::unpacking::{Packed, Unpacking};

/// The first words of a publisher, with the version of what follows.
pub(crate) const HELLO: &str = "gannet publish 1 ";

/// How the line begins in which a receiver says why it ends.
pub(crate) const REFUSED: &str = "refused ";

/// A store that takes releases with pointers signed by one key. It holds nothing between two
/// conversations, and the store's lock only once a pointer has been found to be good and new.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The folder of the store, which the first release makes if it is missing.
    pub folder: PathBuf,
    /// The minisign public key, as in its file.
    pub key: String,
    /// Bytes that the releases in the store have together, at most.
    pub disk_max: u64,
    /// Who receives, for others that find the store busy.
    pub name: String,
}

/// A pointer with the signature of the key, which a publisher has shown.
#[derive(Debug)]
pub struct Offer {
    text: String,
    pointer: Pointer,
}

impl Offer {
    /// That of the pointer.
    pub(crate) fn serial(&self) -> u64 {
        self.pointer.serial
    }
}

/// How a conversation has ended that was not refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Received {
    /// The pointer.
    pub pointer: Pointer,
    /// Bytes of its release that were sent.
    pub bytes: u64,
    /// What has become of it.
    pub outcome: Outcome,
}

/// What has become of a pointer that was offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Its release is there, and the publisher has left before it had it put into force.
    Brought,
    /// It was put into force; or it was in force, and its file is here again.
    Activated,
    /// It was in force already.
    NoNews,
}

impl Receiver {
    /// Reads what a publisher offers. Nothing is made, locked or read of the store: what is not signed
    /// with the key costs a signature check, and learns that.
    ///
    /// # Errors
    /// It is no pointer with the signature of the key, which the publisher learns; or the connection
    /// fails.
    pub fn greet(&self, stream: &mut (impl Read + Write)) -> Result<Offer, FleetError> {
        let offer = self.read_offer(stream);
        refusing(stream, offer)
    }

    /// Takes what a publisher [offers](Self::greet). `now` is in Unix seconds. Of conversations that find the
    /// store busy, the one that has `waiting` waits for it, and the others are refused at once.
    ///
    /// # Errors
    /// It may not come into force, or its release is damaged, which the publisher learns; or the
    /// connection fails. The pointer that was in force still is.
    pub fn receive(
        &self,
        offer: Offer,
        stream: &mut (impl Read + Write),
        now: u64,
        waiting: &Mutex<()>,
    ) -> Result<Received, FleetError> {
        let received = self.take(offer, stream, now, waiting);
        refusing(stream, received)
    }

    fn read_offer(&self, stream: &mut impl Read) -> Result<Offer, FleetError> {
        let text = read_pointer(stream)?;
        let origin = PathBuf::from(ORIGIN);
        let key = PublicKey::parse(&self.key).ok_or(SignatureError::Key);
        let verified = key.and_then(|key| Pointer::verify(text.as_bytes(), &key));
        verified.map_err(|error| StoreError::Signature(origin.clone(), error))?;
        let pointer = Pointer::parse(text.as_bytes());
        let pointer = pointer.map_err(|error| StoreError::Pointer(origin, error))?;
        Ok(Offer { text, pointer })
    }

    fn take(
        &self,
        Offer { text, pointer }: Offer,
        stream: &mut (impl Read + Write),
        now: u64,
        waiting: &Mutex<()>,
    ) -> Result<Received, FleetError> {
        let begun = Instant::now();
        if !self.is_news(&pointer, now)? {
            say(stream, "active").map_err(talking)?;
            return Ok(Received {
                pointer,
                bytes: 0,
                outcome: Outcome::NoNews,
            });
        }
        let mut publisher = self.open_publisher(now, waiting)?;
        publisher.require(Some(&self.key))?;
        let mut upload = Arrival {
            // Another conversation may have ended meanwhile.
            is_new: publisher
                .store()
                .is_news(Path::new(ORIGIN), &pointer, now)?,
            publisher,
            pointer,
            now,
            stream,
            bytes: 0,
        };
        if upload.is_new {
            upload.make_room(self.disk_max, now)?;
        }
        upload.bring()?;
        upload.say("whole")?;
        // An upload may take hours.
        let later = || now.saturating_add(begun.elapsed().as_secs());
        let outcome = upload.activate(&text, later)?;
        Ok(Received {
            pointer: upload.pointer,
            bytes: upload.bytes,
            outcome,
        })
    }

    /// The store, locked. The conversation before, of the same publisher, may be about to end: that has a moment.
    /// One waits, so that those who have only seen a pointer do not take all places.
    fn open_publisher(&self, now: u64, waiting: &Mutex<()>) -> Result<Publisher, StoreError> {
        let busy = match Publisher::open(&self.folder, &self.name, now) {
            Err(error @ StoreError::Busy { .. }) => error,
            opened => return opened,
        };
        let _turn = match waiting.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(busy),
        };
        let begun = Instant::now();
        loop {
            match Publisher::open(&self.folder, &self.name, now) {
                Err(StoreError::Busy { .. }) if begun.elapsed() < LOCK_WAIT => {
                    thread::sleep(LOCK_WAIT / 100);
                }
                opened => return opened,
            }
        }
    }

    /// Whether a pointer is to be received, as far as that can be seen without the store's lock: what is in
    /// force with a file of its length is not, and what is older is refused.
    fn is_news(&self, pointer: &Pointer, now: u64) -> Result<bool, FleetError> {
        if !Store::is_store(&self.folder) {
            return Ok(true);
        }
        let store = Store::open(&self.folder, Some(&self.key))?;
        let is_new = store.is_news(Path::new(ORIGIN), pointer, now)?;
        let file = fs::metadata(store.release_path(pointer.release));
        Ok(is_new || file.map_or(true, |it| it.len() != pointer.size))
    }
}

/// Passes an outcome on, of which the publisher learns if it is a refusal.
fn refusing<T>(stream: &mut impl Write, outcome: Result<T, FleetError>) -> Result<T, FleetError> {
    if let Err(error) = &outcome
        && !is_of_connection(error)
    {
        // It may be gone.
        let _ = say(
            stream,
            &format!("{REFUSED}{}", one_line(&error.to_string())),
        );
    }
    outcome
}

/// Takes bytes of a release at their place.
type PieceSink<'p> = dyn FnMut(u64, &[u8]) -> Result<(), FleetError> + 'p;

/// A release that comes in.
struct Arrival<'u, S> {
    publisher: Publisher,
    pointer: Pointer,
    /// When it began, in Unix seconds.
    now: u64,
    is_new: bool,
    stream: &'u mut S,
    bytes: u64,
}

impl<S: Read + Write> Arrival<'_, S> {
    fn say(&mut self, line: &str) -> Result<(), FleetError> {
        say(self.stream, line).map_err(talking)
    }

    /// Sees to it that the release has room: kept ones give way to it.
    fn make_room(&self, most: u64, now: u64) -> Result<(), FleetError> {
        let Self {
            publisher, pointer, ..
        } = self;
        let left = most.saturating_sub(pointer.size);
        if pointer.size <= most && publisher.bytes_here(pointer.release) > left {
            // What could not be removed counts below.
            let _ = publisher.make_room(pointer, now, left);
        }
        let here = publisher.bytes_here(pointer.release);
        let bytes = here.saturating_add(pointer.size);
        match bytes > most {
            true => Err(FleetError::Disk {
                folder: publisher.store().folder().to_path_buf(),
                bytes,
                most,
            }),
            false => Ok(()),
        }
    }

    /// Removes a release that is only kept, as what others on this file system take counts as well; false if
    /// there is none.
    fn give_way(&self) -> bool {
        let here = self.publisher.bytes_here(self.pointer.release);
        let most = here.saturating_sub(1);
        let made = self.publisher.make_room(&self.pointer, self.now, most);
        !made.releases.is_empty()
    }

    /// Makes sure that the file of the release is here.
    fn bring(&mut self) -> Result<(), FleetError> {
        if self.publisher.store().intact_file(&self.pointer).is_ok() {
            return Ok(());
        }
        let id = self.pointer.release;
        let part = self.publisher.part_path(id);
        self.publisher.discard_parts(Some(id));
        if let Err(error) = self.bring_lacking(&part) {
            if error.is_full() {
                // Others on this file system need some, too.
                let _ = fs::remove_file(&part);
            }
            return Err(error);
        }
        if self.adopt(&part)? {
            return Ok(());
        }
        // Perhaps what lies between the blobs is not what the format says.
        let pointer = self.pointer.clone();
        let draft = Draft::open(&part, &pointer)?;
        let all = 0..pointer.size;
        self.ask(std::slice::from_ref(&all), &mut |at, piece| {
            draft.write(at, piece)
        })?;
        // What is open for writing gets no fs-verity.
        drop(draft);
        match self.adopt(&part)? {
            true => Ok(()),
            false => Err(refuse(Cause::OtherArchive)),
        }
    }

    fn bring_lacking(&mut self, part: &Path) -> Result<(), FleetError> {
        let pointer = self.pointer.clone();
        let draft = Draft::open(part, &pointer)?;
        let begun = draft.superblock();
        let superblock = match &begun {
            Some(superblock) => superblock.clone(),
            None => self.bring_head(&draft)?,
        };
        let lacking = loop {
            let archives = self.archives()?;
            match draft.lacking(&superblock, begun.is_some(), &archives) {
                Err(error) if error.is_full() && self.give_way() => {}
                lacking => break lacking?,
            }
        };
        for some in lacking.chunks(ASKED_AT_ONCE) {
            self.ask(some, &mut |at, piece| draft.write(at, piece))?;
        }
        Ok(())
    }

    /// Superblock and metadata, and whatever follows it.
    fn bring_head(&mut self, draft: &Draft<'_>) -> Result<Superblock, FleetError> {
        let size = self.pointer.size;
        let mut first = Vec::with_capacity(SUPERBLOCK_LEN);
        let superblock = 0..(SUPERBLOCK_LEN as u64).min(size);
        self.ask(&[superblock], &mut |_, piece| {
            first.extend_from_slice(piece);
            Ok(())
        })?;
        let superblock = draft.head(&first).map_err(refuse)?;
        let mut rest = superblock.metadata_range().start..size;
        if let Some(mut unpacking) = Unpacking::of(draft, &superblock, Packed::Kept) {
            let packed = unpacking.packed();
            self.ask(&[packed], &mut |at, piece| unpacking.take(at, piece))?;
            rest = unpacking.rest(&superblock)?;
        }
        if !rest.is_empty() {
            self.ask(&[rest], &mut |at, piece| draft.write(at, piece))?;
        }
        draft.begin(&first)?;
        Ok(superblock)
    }

    /// Asks for ranges, and passes them on with their places.
    fn ask(&mut self, ranges: &[Range<u64>], pass: &mut PieceSink<'_>) -> Result<(), FleetError> {
        let lines = ranges
            .iter()
            .map(|it| format!("send {} {}\n", it.start, it.end));
        let lines: String = lines.collect();
        let said = self.stream.write_all(lines.as_bytes());
        said.and_then(|()| self.stream.flush()).map_err(talking)?;
        let mut piece = vec![0; CONVERSATION_PIECE];
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let left = usize::try_from(range.end - at).unwrap_or(CONVERSATION_PIECE);
                let piece = &mut piece[..left.min(CONVERSATION_PIECE)];
                self.stream.read_exact(piece).map_err(talking)?;
                while let Err(error) = pass(at, piece) {
                    if !error.is_full() || !self.give_way() {
                        return Err(error);
                    }
                }
                at += piece.len() as u64;
                self.bytes += piece.len() as u64;
            }
        }
        Ok(())
    }

    /// Gives the part its name; returns whether it is what the pointer names, and removes it if not.
    fn adopt(&self, part: &Path) -> Result<bool, FleetError> {
        match self.publisher.adopt_release(&self.pointer) {
            Ok(()) => Ok(true),
            Err(StoreError::OtherFile(_)) => {
                discard(part)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The files of the other releases here; the one in force has most in common with the next.
    fn archives(&self) -> Result<Vec<PathBuf>, FleetError> {
        let store = self.publisher.store();
        let mut releases = store.releases()?;
        releases.retain(|id| *id != self.pointer.release);
        let in_force: Option<ReleaseId> = store.pointer().ok().map(|it| it.release);
        releases.sort_by_key(|id| Some(*id) != in_force);
        Ok(releases.iter().map(|id| store.release_path(*id)).collect())
    }

    /// Puts the pointer into force, if the publisher says so before it leaves.
    fn activate(&mut self, text: &str, now: impl Fn() -> u64) -> Result<Outcome, FleetError> {
        match read_line(self.stream) {
            Ok(line) if line == "activate" => {}
            Ok(_) => return Err(refuse_words()),
            // It brings the release to others first.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(self.outcome(Outcome::Brought));
            }
            Err(error) => return Err(talking(error)),
        }
        let now = now();
        if self.is_new {
            if self.pointer.is_expired(now) {
                let origin = PathBuf::from(ORIGIN);
                return Err(StoreError::Expired(origin, self.pointer.serial).into());
            }
            self.publisher.adopt(&self.pointer, text)?;
        }
        self.publisher.discard_parts(None);
        // What cannot be removed is tried again with the next one.
        let _ = self.publisher.prune(&self.pointer, now);
        // It is in force, whether the publisher learns of it or not.
        let _ = self.say("active");
        Ok(self.outcome(Outcome::Activated))
    }

    /// What has become of a pointer, if that becomes of a new one.
    fn outcome(&self, of_new: Outcome) -> Outcome {
        match self.is_new {
            true => of_new,
            // Its file was lacking.
            false if self.bytes > 0 => Outcome::Activated,
            // Another conversation has put it into force meanwhile.
            false => Outcome::NoNews,
        }
    }
}

/// Reads the first line, and the pointer that follows it.
fn read_pointer(stream: &mut impl Read) -> Result<String, FleetError> {
    let line = read_line(stream).map_err(talking)?;
    let len = line.strip_prefix(HELLO).and_then(|it| it.parse().ok());
    let len: usize = len.ok_or_else(refuse_words)?;
    if len > POINTER_LEN_MAX {
        return Err(refuse_words());
    }
    let mut text = vec![0; len];
    stream.read_exact(&mut text).map_err(talking)?;
    String::from_utf8(text).map_err(|_| refuse_words())
}

/// Reads a line of at most [`LINE_LEN_MAX`] bytes, and nothing after it.
pub(crate) fn read_line(stream: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        if line.len() == LINE_LEN_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        line.extend(byte);
    }
}

pub(crate) fn say(stream: &mut impl Write, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())?;
    stream.flush()
}

/// Whether it is the connection that has failed.
pub(crate) fn is_of_connection(error: &FleetError) -> bool {
    matches!(error, FleetError::Io(FileError { doing: TALK, .. }))
}

/// A text in one line that a publisher reads.
fn one_line(text: &str) -> String {
    let mut line = text.replace(char::is_control, " ");
    while line.len() > LINE_LEN_MAX - REFUSED.len() {
        line.pop();
    }
    line
}

fn talking(mut error: io::Error) -> FleetError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        // Without the words of the library, which are for programmers.
        error = io::Error::new(error.kind(), "it has closed the connection");
    }
    FleetError::io(TALK, Path::new("a publisher"))(error)
}

fn refuse(cause: Cause) -> FleetError {
    FleetError::Remote {
        doing: "receive",
        object: "release".to_owned(),
        cause,
    }
}

fn refuse_words() -> FleetError {
    FleetError::io("understand", Path::new("a publisher"))(io::ErrorKind::InvalidData.into())
}

/// Whether it is the store that has failed: no client can make many such errors.
pub(crate) fn is_of_store(error: &FleetError) -> bool {
    matches!(error, FleetError::Store(StoreError::Io(_)))
}

/// What errors call a pointer that is brought.
const ORIGIN: &str = "offered";

/// What failed where the connection did.
const TALK: &str = "receive from";

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use gannet_testkit::Folder;

    use super::*;

    /// Asks for four bytes, for which the disk has room while it has fewer releases than this; returns whether
    /// they came, and how many releases are left of three.
    fn ask(room: usize) -> (bool, usize) {
        let folder = Folder::new();
        let publisher = Publisher::open(&folder.join("store"), "ann@build", 0).unwrap();
        let store = Store::open(publisher.store().folder(), None).unwrap();
        let id = |digit: &str| digit.repeat(32).parse().unwrap();
        for kept in ["1", "2", "3"] {
            fs::write(store.release_path(id(kept)), "kept").unwrap();
        }
        let pointer = format!(
            "gannet pointer 1\nserial 1\nrelease {}\nsize 4\nblake3 {}\npublished 2026-01-01T00:00:00Z by ann\nkeep 7d 3..20 10GiB\n",
            "4".repeat(32),
            "0".repeat(64)
        );
        let mut stream = Cursor::new(b"send 0 4\nbody".to_vec());
        let mut arrival = Arrival {
            publisher,
            pointer: Pointer::parse(pointer.as_bytes()).unwrap(),
            now: 0,
            is_new: true,
            stream: &mut stream,
            bytes: 0,
        };
        let releases = || store.releases().unwrap().len();
        let asked = arrival.ask(std::slice::from_ref(&(0..4)), &mut |at, piece| {
            assert_eq!((at, piece), (0, &b"body"[..]));
            let full = FleetError::io("write", Path::new("part"));
            (releases() < room)
                .then_some(())
                .ok_or_else(|| full(io::ErrorKind::StorageFull.into()))
        });
        (asked.is_ok(), releases())
    }

    #[test]
    fn kept_releases_give_way_on_a_full_file_system_as_far_as_it_takes() {
        assert_eq!(ask(4), (true, 3));
        assert_eq!(ask(2), (true, 1));
        assert_eq!(ask(0), (false, 0));
    }
}
