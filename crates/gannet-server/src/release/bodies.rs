//! Bodies that are read, copied or decoded before they are sent, and their cache.
//!
//! These are the bodies of an archive that is not in memory, which may be overwritten during a
//! send, and bodies stored only in a coding, for clients that do not accept it.
//!
//! A body that is short, or stored in a coding, is read and decoded whole, by the first request that sends
//! bytes of it. A longer one is copied into sealed memory, from which it leaves as pages, once responses have
//! taken as many bytes as it has; until then, and if there is no room, it is sent from its file slice by slice,
//! as are those longer than [`SNAPSHOT_MAX`]. All are cached while there is room for all sites' caches
//! ([`Pool`]). The last one of an archive stays while it is requested
//! whatever room there is, so that a client that requests one part after the other costs one decode. A
//! body that a connection is still sending is found as well: no body is ever in memory twice. All of them are charged
//! ([`Account::Copies`](crate::bounds::ledger::Account::Copies)). The worker decides when a body is
//! read and decoded (`exchange/loading`).

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use gannet_archive::limits::DECODED_LEN_MAX;
use gannet_archive::{Body, Coding, DecodeError, Stored, decode, decode_brotli, digest};
use gannet_io::driver::{Done, Driver, Errno, File, Meta, Started, Token};
use gannet_io::memory::Memory;

use super::body::{Body as Content, WeakBody};
use super::partial::PartialView;
use super::room::{Ageing, Part, Pool, Room};
use super::{ServedFile, Source};
use crate::bounds::ledger::Charge;
use crate::bounds::limits::{COPY_SLICE_MAX, LONG_COPY_PART, SMALL_FILE_MAX, SNAPSHOT_MAX};

/// One worker's cache of the bodies of one archive, or of a directory's files that exist only in a
/// coding.
#[derive(Clone)]
pub(crate) struct Bodies(Rc<RefCell<BodyTable>>);

struct BodyTable {
    /// All bodies in memory, by number.
    all: HashMap<u32, InMemory, foldhash::fast::RandomState>,
    /// Cached bodies with their numbers, oldest first.
    kept: VecDeque<(u32, Content)>,
    held: Room,
    /// Cached whatever room there is.
    least: u64,
    /// What they have of the room for all sites, if they may have more.
    part: Option<Part>,
    /// The last number assigned to a live file.
    number: u32,
    /// Bytes that responses have taken from the file, of longer bodies, by number.
    taken: HashMap<u32, u64, foldhash::fast::RandomState>,
    /// Recently requested versions of live files.
    numbers: HashMap<Meta, BodyVersion, foldhash::fast::RandomState>,
}

struct InMemory {
    body: WeakBody,
    /// It was loaded or asked for since the cached ones last aged.
    is_young: Cell<bool>,
}

/// A version of a live file.
struct BodyVersion {
    number: u32,
    /// Length of its content in bytes, once decoding has determined it; `Some(None)` if it cannot
    /// be decoded.
    len: Option<Option<u64>>,
}

/// A body that is loaded into memory on demand.
#[derive(Clone, Copy)]
pub(crate) struct Unloaded<'s> {
    pub(crate) bodies: &'s Bodies,
    /// The file that stores it.
    pub(crate) file: &'s Rc<ServedFile>,
    /// Identifies it among these bodies: in an archive, the number of its blob.
    pub(crate) number: u32,
    /// Selects it again in an archive: the numbers of its entry and variant.
    pub(crate) entry: u32,
    pub(crate) variant: u32,
    /// Its stored form.
    pub(crate) stored: Body<'s>,
    /// BLAKE3 digest of the decoded body, where known: brotli has no checksum.
    pub(crate) digest: Option<&'s [u8; 32]>,
}

/// Bytes of a body some of which are not here, and a view of its file.
pub(crate) struct Lacking {
    pub(crate) file: Rc<ServedFile>,
    pub(crate) range: Range<u64>,
}

/// The work that loads a body into memory.
pub(crate) struct Load {
    bodies: Bodies,
    file: Rc<ServedFile>,
    number: u32,
    /// Its stored coding, if any.
    coding: Option<Coding>,
    /// The stored bytes, or their place in the file.
    stored: Result<Vec<u8>, (u64, usize)>,
    /// Length of the body in bytes, if known.
    len: Option<u64>,
    digest: Option<[u8; 32]>,
}

/// What was read of a body.
pub(crate) enum Loaded {
    /// Its stored form, or its content.
    Bytes(Vec<u8>),
    /// Its content, in sealed memory.
    Copy(File),
}

impl Loaded {
    /// Its length in this process's own memory, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Copy(_) => 0,
        }
    }
}

impl TryFrom<Done> for Loaded {
    type Error = Errno;

    fn try_from(done: Done) -> Result<Self, Errno> {
        match done {
            Done::Read(bytes) => Ok(Self::Bytes(bytes)),
            Done::Copied(file) => Ok(Self::Copy(file)),
            _ => Err(Errno::IO),
        }
    }
}

impl Bodies {
    /// Caches bodies within the room of `pool`, and whatever that is, the last one while it is requested.
    pub(crate) fn with_room(pool: &Rc<Pool>) -> Self {
        Self::new(LEAST, Some(Part::new(pool)))
    }

    /// Caches the last body, or as many as fit into the room of the longest one.
    pub(crate) fn with_least_room() -> Self {
        Self::new(LEAST, None)
    }

    /// Caches none.
    pub(crate) fn uncached() -> Self {
        Self::new(0, None)
    }

    fn new(least: u64, part: Option<Part>) -> Self {
        Self(Rc::new(RefCell::new(BodyTable {
            all: HashMap::default(),
            kept: VecDeque::new(),
            held: Room::default(),
            least,
            part,
            number: 0,
            taken: HashMap::default(),
            numbers: HashMap::default(),
        })))
    }

    /// Drops what was not asked for since they last aged, or the older half of them, unless they have no more than
    /// they may keep. Returns what they had.
    pub(crate) fn age(&self, ageing: &Ageing) -> Room {
        self.0.borrow_mut().age(ageing)
    }

    /// Drops all bodies, and caches none from now on.
    pub(crate) fn retire(&self) {
        self.forget();
        let mut known = self.0.borrow_mut();
        known.part = None;
        known.least = 0;
    }

    /// Drops all cached bodies.
    pub(crate) fn forget(&self) {
        let mut known = self.0.borrow_mut();
        known.kept.clear();
        known.held = Room::default();
        known.note();
    }

    /// Drops the cached copies that have descriptors. False if there was none.
    pub(crate) fn drop_descriptors(&self) -> bool {
        let known = &mut *self.0.borrow_mut();
        let held = &mut known.held;
        let before = held.descriptors;
        known.kept.retain(|(_, body)| {
            let cost = cost(body);
            let stays = cost.descriptors == 0;
            *held = if stays { *held } else { *held - cost };
            stays
        });
        known.note();
        before > 0
    }

    /// The number of a live file: unique, and stable for the same version of a file as far as
    /// `version` identifies it. `None` if no number is left.
    pub(crate) fn number_of(&self, version: Option<Meta>) -> Option<u32> {
        let known = &mut *self.0.borrow_mut();
        if let Some(version) = version.and_then(|meta| known.numbers.get(&meta)) {
            return Some(version.number);
        }
        known.number = known.number.checked_add(1)?;
        if let Some(meta) = version {
            if known.numbers.len() >= NUMBERS_MAX {
                known.numbers.clear();
            }
            let number = known.number;
            known
                .numbers
                .insert(meta, BodyVersion { number, len: None });
        }
        Some(known.number)
    }

    /// Length in bytes of the content of a version that was decoded to determine it; `Some(None)`
    /// if it cannot be decoded.
    pub(crate) fn decoded_len(&self, version: &Meta) -> Option<Option<u64>> {
        self.0.borrow().numbers.get(version)?.len
    }

    /// Records the result for [`decoded_len`](Self::decoded_len).
    pub(crate) fn note_decoded_len(&self, version: &Meta, len: Option<u64>) {
        if let Some(version) = self.0.borrow_mut().numbers.get_mut(version) {
            version.len = Some(len);
        }
    }

    fn known(&self, number: u32) -> Option<Content> {
        let known = self.0.borrow();
        let found = known.all.get(&number)?;
        found.is_young.set(true);
        found.body.upgrade()
    }
}

impl<'s> Unloaded<'s> {
    /// The body, if it is in memory.
    pub(crate) fn body(&self) -> Option<Content> {
        self.bodies.known(self.number)
    }

    /// Where its file has it as it is sent.
    pub(crate) fn in_file(&self) -> Option<Source<'s>> {
        match self.stored {
            Body::Plain(Stored::Blob { offset, .. }) => Some(Source::File(self.file, offset)),
            _ => None,
        }
    }

    /// The same for a longer body that is not worth a copy yet, and notes that a response takes so many bytes
    /// of it. One of which `pages` can be sent never is.
    pub(crate) fn taken_from_file(&self, bytes: u64, pages: bool) -> Option<Source<'s>> {
        let Body::Plain(Stored::Blob { len, .. }) = self.stored else {
            return None;
        };
        let is_worth = len <= SMALL_FILE_MAX
            || !pages && len <= SNAPSHOT_MAX && {
                let known = &mut *self.bodies.0.borrow_mut();
                known.is_worth_copying((self.number, len), bytes)
            };
        self.in_file().filter(|_| !is_worth)
    }

    /// What has to be here before it is loaded, or before a response begins to send this range from its file, if
    /// some of that is not.
    pub(crate) fn lacking(&self, sent: Option<Range<u64>>) -> Option<Lacking> {
        let (stored, _) = self.stored_form();
        let Stored::Blob { offset, len } = stored else {
            return None;
        };
        let file = self.file.partial_at(offset)?;
        let slice = sent.map(|it| it.start..it.end.min(it.start.saturating_add(COPY_SLICE_MAX)));
        let slice = slice.unwrap_or(0..len);
        let range = offset + slice.start..offset + slice.end.min(len);
        file.partial.as_ref()?.lacking(&range)?;
        Some(Lacking { file, range })
    }

    /// Its stored form; the coding and the length of its content, if it is stored in a coding alone.
    fn stored_form(&self) -> (Stored<'s>, Option<(Coding, u64)>) {
        match self.stored {
            Body::Plain(stored) => (stored, None),
            Body::Decoded {
                stored,
                coding,
                len,
            } => (stored, Some((coding, len))),
        }
    }

    /// The work that loads it; `None` if it can never be loaded.
    pub(crate) fn load(&self) -> Option<Load> {
        let (stored, decoded) = self.stored_form();
        let (stored, stored_len) = match stored {
            Stored::Tiny(bytes) => (Ok(bytes.to_vec()), bytes.len() as u64),
            Stored::Blob { offset, len } => (Err((offset, usize::try_from(len).ok()?)), len),
        };
        Some(Load {
            bodies: self.bodies.clone(),
            file: match stored {
                Err((offset, _)) => self.file.partial_at(offset),
                Ok(_) => None,
            }
            .unwrap_or_else(|| Rc::clone(self.file)),
            number: self.number,
            coding: decoded.map(|(coding, _)| coding),
            stored,
            len: Some(decoded.map_or(stored_len, |(_, len)| len)),
            digest: self.digest.copied(),
        })
    }
}

impl Load {
    /// Identifies the body and its cache.
    pub(crate) fn key(&self) -> (usize, u32) {
        (Rc::as_ptr(&self.bodies.0).addr(), self.number)
    }

    /// The same work, for a body of unknown length.
    pub(crate) fn of_unknown_length(self) -> Self {
        Self { len: None, ..self }
    }

    /// Length of the body in bytes; if unknown, its maximum.
    pub(crate) fn len(&self) -> u64 {
        self.len.unwrap_or(DECODED_LEN_MAX)
    }

    /// Length of the stored form in bytes.
    pub(crate) fn stored_len(&self) -> u64 {
        match &self.stored {
            Ok(bytes) => bytes.len() as u64,
            Err((_, len)) => *len as u64,
        }
    }

    /// What it reads of a file only a part of which is here.
    pub(crate) fn part(&self) -> Option<(&PartialView, Range<u64>)> {
        let (offset, len) = *self.stored.as_ref().err()?;
        let partial = self.file.partial.as_ref()?;
        Some((partial, offset..offset + len as u64))
    }

    /// Whether the body must be decoded.
    pub(crate) fn is_coded(&self) -> bool {
        self.coding.is_some()
    }

    /// Whether it is copied, and can be sent from the file as well.
    pub(crate) fn is_copied(&self) -> bool {
        self.coding.is_none() && self.len() > SMALL_FILE_MAX
    }

    /// Reads the stored form, or copies it; that may complete later.
    pub(crate) fn read<D: Driver>(&mut self, driver: &mut D, waiter: Token) -> Started<Loaded> {
        let is_copied = self.is_copied();
        let file = &self.file.file;
        match &mut self.stored {
            Ok(bytes) => Started::Now(Ok(Loaded::Bytes(std::mem::take(bytes)))),
            Err(_) if self.file.is_over() => Started::Now(Err(Errno::IO)),
            Err((offset, len)) if !self.file.begins(*offset..*offset + *len as u64) => {
                Started::Now(Err(Errno::AGAIN))
            }
            Err((offset, len)) if is_copied => {
                let range = *offset..*offset + *len as u64;
                driver.copy(file, range, waiter).map(Loaded::Copy)
            }
            Err((offset, len)) => driver.read(file, *offset, *len, waiter).map(Loaded::Bytes),
        }
    }

    /// The body, if it has been loaded into memory meanwhile.
    pub(crate) fn known(&self) -> Option<Content> {
        self.bodies.known(self.number)
    }

    /// The content of the body.
    ///
    /// # Errors
    /// The input does not decode to a body of this length and digest ([`Errno::BADMSG`]); its file
    /// has changed since it was opened ([`Errno::IO`]); memory is short ([`Errno::NOMEM`]).
    pub(crate) fn finish<D: Driver>(&self, read: Loaded, driver: &D) -> Result<Loaded, Errno> {
        if self.stored.is_err() && !self.file.is_unchanged(driver) {
            // What was dropped meanwhile can be had again.
            let is_partial = self.file.partial.is_some();
            return Err(if is_partial { Errno::AGAIN } else { Errno::IO });
        }
        let stored = match read {
            Loaded::Bytes(stored) => stored,
            copy @ Loaded::Copy(_) => return Ok(copy),
        };
        let Some(coding) = self.coding else {
            let is_whole = self.len == Some(stored.len() as u64);
            return is_whole
                .then_some(Loaded::Bytes(stored))
                .ok_or(Errno::BADMSG);
        };
        let body = match self.len {
            Some(len) => decode(coding, &stored, len),
            None => decode_brotli(&stored),
        };
        let body = body.map_err(|error| match error {
            DecodeError::Memory => Errno::NOMEM,
            _ => Errno::BADMSG,
        })?;
        let is_sound = self.digest.is_none_or(|expect| expect == digest(&body));
        is_sound.then_some(Loaded::Bytes(body)).ok_or(Errno::BADMSG)
    }

    /// Caches the content with its charge.
    pub(crate) fn keep(&self, content: Loaded, charge: impl FnOnce(u64) -> Charge) -> Content {
        let body = match content {
            Loaded::Bytes(bytes) => {
                let charge = charge(bytes.len() as u64);
                Content::whole(Arc::new(Memory::from_vec_with(bytes, charge)))
            }
            Loaded::Copy(file) => {
                file.attach(charge(self.len()));
                Content::copy(file, self.len())
            }
        };
        self.bodies.0.borrow_mut().add(self.number, &body);
        body
    }
}

impl BodyTable {
    /// Bytes that may be cached, if each of the other sites has its own part.
    fn possible(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.pool().possible())
    }

    /// Whether responses have taken as many bytes of a longer body as it has, the next one not included, and
    /// it has room beside as many bytes of others.
    fn is_worth_copying(&mut self, (number, len): (u32, u64), next: u64) -> bool {
        if len > self.possible() / LONG_COPY_PART {
            return false;
        }
        if self.taken.len() >= NUMBERS_MAX && !self.taken.contains_key(&number) {
            self.taken.clear();
        }
        let taken = self.taken.entry(number).or_default();
        let before = *taken;
        *taken = before.saturating_add(next);
        before >= len
    }

    fn add(&mut self, number: u32, body: &Content) {
        self.taken.remove(&number);
        if self.all.len() > 2 * self.kept.len() + KNOWN_SPARE {
            self.all.retain(|_, it| it.body.is_held());
        }
        let cost = cost(body);
        let most = self.least.max(self.possible());
        self.make_room(most.saturating_sub(cost.memory));
        if cost.memory <= most {
            self.held = self.held + cost;
            self.kept.push_back((number, body.clone()));
        }
        let body = body.downgrade();
        let is_young = Cell::new(true);
        self.all.insert(number, InMemory { body, is_young });
        self.note();
    }

    fn age(&mut self, ageing: &Ageing) -> Room {
        let (held, all) = (self.held, &self.all);
        let is_memory = held.memory > ageing.keeps.memory;
        let is_files = held.descriptors > ageing.keeps.descriptors;
        let half = held / 2;
        let (now, mut left) = (&mut self.held, self.kept.len());
        self.kept.retain(|(number, body)| {
            let cost = cost(body);
            let may_go = is_memory || (is_files && cost.descriptors > 0);
            let may_stay = match ageing.is_more {
                // The oldest come first, and the last one stays.
                true => {
                    let is_over = (is_memory && now.memory > half.memory)
                        || (is_files && now.descriptors > half.descriptors);
                    !is_over || left == 1
                }
                false => all.get(number).is_some_and(|it| it.is_young.take()),
            };
            let goes = may_go && !may_stay;
            if goes {
                (*now, left) = (*now - cost, left - 1);
            }
            !goes
        });
        self.note();
        held
    }

    /// Drops cached ones, until the others are at most so many bytes: the oldest one, but one that was asked
    /// for since it was last its turn later.
    fn make_room(&mut self, bytes: u64) {
        while self.held.memory > bytes
            && let Some((number, body)) = self.kept.pop_front()
        {
            match self.all.get(&number) {
                Some(it) if it.is_young.take() => self.kept.push_back((number, body)),
                _ => self.held = self.held - cost(&body),
            }
        }
    }

    /// Notes what they have.
    fn note(&mut self) {
        if let Some(part) = &mut self.part {
            part.set(self.held);
        }
    }
}

fn cost(body: &Content) -> Room {
    Room {
        memory: body.len() + BODY_COST,
        descriptors: usize::from(matches!(body, Content::File(..))),
    }
}

/// Room for the longest body.
const LEAST: u64 = DECODED_LEN_MAX + BODY_COST;

/// Memory cost of a cached body besides its bytes.
const BODY_COST: u64 = 128;

/// Maximum number of live file versions whose numbers are kept, and of bodies whose use is counted.
const NUMBERS_MAX: usize = 4_096;

/// Uncached entries tolerated before dead ones are purged.
const KNOWN_SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use gannet_archive::Stored;
    use gannet_io::options::EngineOptions;
    use gannet_io::sim::{Faults, Sim};

    use super::*;
    use crate::bounds::ledger::Ledger;

    /// 36 bytes, compressed by gzip -9n.
    const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\xc0\x47\x72\x01\x00\xf3\xa0\x5d\xc7\x24\x00\x00\x00";

    /// The same, compressed by brotli at quality 11.
    const BROTLI: &[u8] = b"\x1b\x23\x00\xf8\x8d\x94\x6e\xde\x44\x55\x86\xd6\x0a\x20\x6c\x6f\x4a\x11\x7a\xe2\x80\x5e\x2d\x00";

    fn file() -> Rc<ServedFile> {
        let file = std::fs::File::open("/proc/self/exe").expect("it runs");
        Rc::new(ServedFile::constant(file.into()))
    }

    fn driver() -> Sim {
        Sim::new(0, 0, &EngineOptions::default(), Faults::none())
    }

    fn charge(bytes: u64) -> Charge {
        Ledger::new(0, 0, 0).charge(bytes)
    }

    fn in_memory(memory: u64) -> Room {
        Room {
            memory,
            descriptors: 0,
        }
    }

    /// The body of a number, decoded if it is not in memory.
    fn body(bodies: &Bodies, number: u32) -> Arc<Memory> {
        let body = decoded(bodies, number);
        Arc::clone(body.shared().expect("it was decoded"))
    }

    fn decoded(bodies: &Bodies, number: u32) -> Content {
        let body = Unloaded {
            bodies,
            file: &file(),
            number,
            entry: 0,
            variant: 0,
            stored: Body::Decoded {
                stored: Stored::Tiny(GZIP),
                coding: Coding::Gzip,
                len: 36,
            },
            digest: None,
        };
        let decode = || {
            let load = body.load().expect("it is in memory");
            let read = Loaded::Bytes(GZIP.to_vec());
            let content = load.finish(read, &driver()).expect("sound");
            load.keep(content, charge)
        };
        body.body().unwrap_or_else(decode)
    }

    #[test]
    fn a_body_is_decoded_once_while_there_is_room_or_somebody_has_it() {
        let room = Bodies::new(2 * (36 + BODY_COST), None);
        let first = body(&room, 1);
        assert_eq!(first.len(), 36);
        let held = Arc::as_ptr(&first);
        assert_eq!(Arc::as_ptr(&body(&room, 1)), held, "cached");
        let second = Arc::downgrade(&body(&room, 2));
        body(&room, 3);
        assert_eq!(
            Arc::as_ptr(&body(&room, 1)),
            held,
            "evicted, but still referenced"
        );
        body(&room, 4);
        assert!(second.upgrade().is_none(), "evicted by the third");
        assert_eq!(room.0.borrow().kept.len(), 2);
    }

    /// Room for this many bodies of the most bytes, of which archives may have a coding alone.
    fn pool(longest: u64, sites: usize) -> Rc<Pool> {
        let pool = Rc::new(Pool::default());
        pool.set(in_memory(longest * LEAST), sites);
        pool
    }

    fn add_longest(bodies: &Bodies, number: u32) {
        let longest = vec![0; DECODED_LEN_MAX as usize];
        let longest = Content::whole(Arc::new(Memory::from_vec(longest)));
        bodies.0.borrow_mut().add(number, &longest);
    }

    fn is_kept(bodies: &Bodies, number: u32) -> bool {
        bodies.known(number).is_some()
    }

    #[test]
    fn one_archive_has_all_the_room_and_of_several_each_leaves_others_their_part() {
        for (sites, most) in [(1, 8), (4, 5)] {
            let bodies = Bodies::with_room(&pool(8, sites));
            (0..20).for_each(|number| add_longest(&bodies, number));
            assert_eq!(bodies.0.borrow().kept.len(), most);
            assert!(is_kept(&bodies, 19) && !is_kept(&bodies, 20 - most as u32 - 1));
        }
    }

    /// Ages them as all caches do, each of which keeps so much.
    fn age(bodies: &Bodies, keeps: Room, is_more: bool) -> Room {
        bodies.age(&Ageing {
            keeps,
            is_more,
            next: 0,
            kept: Room::default(),
        })
    }

    fn count(bodies: &Bodies) -> usize {
        bodies.0.borrow().kept.len()
    }

    /// Whether it is cached, without asking for it.
    fn has(bodies: &Bodies, number: u32) -> bool {
        bodies.0.borrow().kept.iter().any(|(it, _)| *it == number)
    }

    #[test]
    fn what_is_not_asked_for_goes_unless_it_is_no_more_than_the_own_part() {
        let pool = pool(8, 2);
        let bodies = Bodies::with_room(&pool);
        (0..3).for_each(|number| add_longest(&bodies, number));
        let own = pool.own();
        assert_eq!(own.memory, 2 * LEAST);
        age(&bodies, own, false);
        assert_eq!(count(&bodies), 3, "all were young");
        add_longest(&bodies, 3);
        for _ in 0..3 {
            assert!(is_kept(&bodies, 0), "it is asked for");
            age(&bodies, in_memory(0), false);
            assert!(has(&bodies, 0) && !has(&bodies, 1));
        }
        assert_eq!(count(&bodies), 1);
        add_longest(&bodies, 4);
        for _ in 0..3 {
            assert_eq!(age(&bodies, own, false), own);
            assert!(has(&bodies, 0) && has(&bodies, 4));
        }
        // The last one stays while it is requested, however little room there is.
        for _ in 0..3 {
            assert!(is_kept(&bodies, 4));
            age(&bodies, in_memory(0), false);
            age(&bodies, in_memory(0), true);
            assert!(has(&bodies, 4) && count(&bodies) == 1);
        }
        age(&bodies, in_memory(0), false);
        assert_eq!(count(&bodies), 0);
        assert_eq!(bodies.0.borrow().held, Room::default());
        add_longest(&bodies, 5);
        bodies.retire();
        assert!(!is_kept(&bodies, 5) && count(&bodies) == 0);
    }

    #[test]
    fn half_of_those_goes_that_all_were_asked_for() {
        let bodies = Bodies::with_room(&pool(8, 1));
        (0..7).for_each(|number| add_longest(&bodies, number));
        age(&bodies, in_memory(0), false);
        age(&bodies, in_memory(7 * LEAST), true);
        assert_eq!(count(&bodies), 7);
        age(&bodies, in_memory(0), true);
        assert!(count(&bodies) == 3 && has(&bodies, 6));
    }

    #[test]
    fn a_body_that_stays_young_stays_while_others_come_and_go() {
        let bodies = Bodies::with_room(&pool(4, 1));
        let mut loads = 0;
        for number in 1..40 {
            add_longest(&bodies, number);
            if !is_kept(&bodies, 0) {
                add_longest(&bodies, 0);
                loads += 1;
            }
        }
        // Once more when all were asked for since it was loaded.
        assert!(loads <= 2, "{loads} loads");
        assert!(has(&bodies, 39) && count(&bodies) == 4);
    }

    #[test]
    fn without_room_nothing_is_remembered() {
        let none = Bodies::uncached();
        for number in 0..1000 {
            let one = Arc::downgrade(&body(&none, number));
            assert!(one.upgrade().is_none());
        }
        assert!(none.0.borrow().all.len() <= KNOWN_SPARE + 1);
        assert_eq!(none.0.borrow().held, Room::default());
    }

    #[test]
    fn there_is_always_room_for_the_longest_body() {
        for last in [Bodies::with_least_room(), Bodies::with_room(&pool(0, 1))] {
            add_longest(&last, 1);
            add_longest(&last, 2);
            assert!(is_kept(&last, 2) && !is_kept(&last, 1));
        }
    }

    #[test]
    fn what_is_not_as_announced_is_no_body() {
        let room = Bodies::with_least_room();
        let digests = [digest(b"hello hello hello hello hello hello\n"), [0; 32]];
        let check_all = |coding, coded: &[u8], len, digest: Option<&[u8; 32]>, expect: bool| {
            let body = Unloaded {
                bodies: &room,
                file: &file(),
                number: 7,
                entry: 0,
                variant: 0,
                stored: Body::Decoded {
                    stored: Stored::Tiny(coded),
                    coding,
                    len,
                },
                digest,
            };
            let load = body.load().expect("it is in memory");
            let found = load.finish(Loaded::Bytes(coded.to_vec()), &driver());
            assert_eq!(
                found.map(drop),
                if expect { Ok(()) } else { Err(Errno::BADMSG) }
            );
        };
        let check = |gzip: &[u8], len, expect: bool| {
            check_all(Coding::Gzip, gzip, len, None, expect);
        };
        check(GZIP, 35, false);
        check(GZIP, 37, false);
        check(GZIP, 1 << 40, false);
        check(b"nothing", 36, false);
        check(b"", 36, false);
        check(GZIP, 36, true);
        let check = |digest, expect| check_all(Coding::Brotli, BROTLI, 36, digest, expect);
        check(None, true);
        check(Some(&digests[0]), true);
        check(Some(&digests[1]), false);
        check_all(Coding::Gzip, GZIP, 36, Some(&digests[1]), false);
    }
}
