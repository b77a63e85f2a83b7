//! Bodies of an archive that are stored as gzip alone, for clients that take no coding.
//!
//! A body is inflated whole, at the first request that sends bytes of it, and remembered as long as
//! there is room; the last one always, so that a client which asks for one part after the other
//! costs it once. Its length is bounded by the format. What a connection still sends is found
//! again, too: of no body there are two copies at a time, so slow clients cannot hold more than the
//! site is long. When a body is read and inflated is the worker's business (`worker/inflating`).

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use gannet_archive::limits::INFLATED_LEN_MAX;
use gannet_archive::{Gzip, inflate};
use gannet_io::driver::{Driver, Started, Token};
use gannet_io::memory::Memory;

use super::ServedFile;

/// The inflated bodies of one archive, as one worker remembers them.
#[derive(Clone)]
pub(crate) struct Inflated(Rc<RefCell<Bodies>>);

struct Bodies {
    /// All that are in memory, by the numbers of their blobs.
    known: HashMap<u32, Weak<Memory>, foldhash::fast::RandomState>,
    /// Those that are remembered, oldest first.
    kept: VecDeque<Arc<Memory>>,
    kept_bytes: u64,
    kept_bytes_max: u64,
}

/// A body that is stored as gzip alone.
#[derive(Clone, Copy)]
pub(crate) struct GzipBody<'s> {
    pub(crate) inflated: &'s Inflated,
    /// The archive.
    pub(crate) file: &'s Rc<ServedFile>,
    pub(crate) number: u32,
    pub(crate) gzip: Gzip<'s>,
    /// Its length in bytes.
    pub(crate) len: u64,
}

/// What is to be done until a body is in memory.
pub(crate) struct Inflation {
    inflated: Inflated,
    file: Rc<ServedFile>,
    number: u32,
    /// The gzip, or where it is in the file.
    gzip: Result<Vec<u8>, (u64, usize)>,
    /// Length of the body in bytes.
    len: u64,
}

impl Inflated {
    /// Remembers bodies of up to `memory` bytes together, and always the last one.
    pub(crate) fn new(memory: u64) -> Self {
        Self::with_room(memory.max(INFLATED_LEN_MAX + BODY_COST))
    }

    fn with_room(bytes: u64) -> Self {
        Self(Rc::new(RefCell::new(Bodies {
            known: HashMap::default(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_bytes_max: bytes,
        })))
    }

    fn known(&self, number: u32) -> Option<Arc<Memory>> {
        let bodies = self.0.borrow();
        bodies.known.get(&number).and_then(Weak::upgrade)
    }
}

impl GzipBody<'_> {
    /// The body, if it is in memory.
    pub(crate) fn body(&self) -> Option<Arc<Memory>> {
        self.inflated.known(self.number)
    }

    /// What is to be done until it is; `None` if it can never be.
    pub(crate) fn inflation(&self) -> Option<Inflation> {
        let gzip = match self.gzip {
            Gzip::Tiny(gzip) => Ok(gzip.to_vec()),
            Gzip::Blob { offset, len } => Err((offset, usize::try_from(len).ok()?)),
        };
        Some(Inflation {
            inflated: self.inflated.clone(),
            file: Rc::clone(self.file),
            number: self.number,
            gzip,
            len: self.len,
        })
    }
}

impl Inflation {
    /// Which body of which file it is.
    pub(crate) fn key(&self) -> (u32, u32) {
        (self.file.id, self.number)
    }

    /// Length of the body in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Reads the gzip; what is not in memory comes later.
    pub(crate) fn read<D: Driver>(&mut self, driver: &mut D, asker: Token) -> Started<Vec<u8>> {
        match &mut self.gzip {
            Ok(gzip) => Started::Now(Ok(std::mem::take(gzip))),
            Err((offset, len)) => driver.read(&self.file.file, *offset, *len, asker),
        }
    }

    /// The body; `None` if the gzip cannot be read, or is not that of a body of this length.
    pub(crate) fn inflate(&self, gzip: &[u8]) -> Option<Arc<Memory>> {
        if let Some(known) = self.inflated.known(self.number) {
            return Some(known);
        }
        let body = inflate(gzip, self.len).ok()?;
        let body = Arc::new(Memory::from_vec(body));
        self.inflated.0.borrow_mut().add(self.number, &body);
        Some(body)
    }
}

impl Bodies {
    fn add(&mut self, number: u32, body: &Arc<Memory>) {
        if self.known.len() > 2 * self.kept.len() + KNOWN_SPARE {
            self.known.retain(|_, body| body.strong_count() > 0);
        }
        self.known.insert(number, Arc::downgrade(body));
        let cost = |body: &Memory| body.len() as u64 + BODY_COST;
        self.kept_bytes += cost(body);
        self.kept.push_back(Arc::clone(body));
        while self.kept_bytes > self.kept_bytes_max {
            match self.kept.pop_front() {
                Some(oldest) => self.kept_bytes -= cost(&oldest),
                None => break,
            }
        }
    }
}

/// What remembering a body costs beside its bytes.
const BODY_COST: u64 = 128;

/// Bodies that are known without being remembered, before those are looked for that are gone.
const KNOWN_SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Trust;
    use crate::site::files::ServedFiles;

    /// 36 bytes, by gzip -9n.
    const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\xc0\x47\x72\x01\x00\xf3\xa0\x5d\xc7\x24\x00\x00\x00";

    fn file() -> Rc<ServedFile> {
        let file = std::fs::File::open("/proc/self/exe").expect("it runs");
        ServedFiles::default().add(file.into(), None, Trust::Constant)
    }

    /// A body, inflated if it is not in memory.
    fn body(inflated: &Inflated, number: u32) -> Arc<Memory> {
        let body = GzipBody {
            inflated,
            file: &file(),
            number,
            gzip: Gzip::Tiny(GZIP),
            len: 36,
        };
        let inflate = || body.inflation().expect("it is in memory").inflate(GZIP);
        body.body().or_else(inflate).expect("sound")
    }

    #[test]
    fn a_body_is_inflated_once_while_there_is_room_or_somebody_has_it() {
        let room = Inflated::with_room(2 * (36 + BODY_COST));
        let first = body(&room, 1);
        assert_eq!(first.as_heap_slice().map(<[u8]>::len), Some(36));
        let held = Arc::as_ptr(&first);
        assert_eq!(Arc::as_ptr(&body(&room, 1)), held, "remembered");
        let second = Arc::downgrade(&body(&room, 2));
        body(&room, 3);
        assert_eq!(
            Arc::as_ptr(&body(&room, 1)),
            held,
            "forgotten, but somebody has it"
        );
        body(&room, 4);
        assert!(
            second.upgrade().is_none(),
            "there was no room for the third"
        );
        assert_eq!(room.0.borrow().kept.len(), 2);
    }

    #[test]
    fn without_room_nothing_is_remembered() {
        let none = Inflated::with_room(0);
        for number in 0..1000 {
            let one = Arc::downgrade(&body(&none, number));
            assert!(one.upgrade().is_none());
        }
        assert!(none.0.borrow().known.len() <= KNOWN_SPARE + 1);
        assert_eq!(none.0.borrow().kept_bytes, 0);
    }

    #[test]
    fn there_is_always_room_for_the_longest_body() {
        let last = Inflated::new(0);
        let one = Arc::downgrade(&body(&last, 1));
        assert!(one.upgrade().is_some());
        assert_eq!(last.0.borrow().kept_bytes_max, INFLATED_LEN_MAX + BODY_COST);
    }

    #[test]
    fn what_is_not_as_announced_is_no_body() {
        let room = Inflated::new(1 << 20);
        let check = |gzip: &[u8], len, expect: bool| {
            let body = GzipBody {
                inflated: &room,
                file: &file(),
                number: 7,
                gzip: Gzip::Tiny(gzip),
                len,
            };
            let inflation = body.inflation().expect("it is in memory");
            assert_eq!(inflation.inflate(gzip).is_some(), expect);
        };
        check(GZIP, 35, false);
        check(GZIP, 37, false);
        check(GZIP, 1 << 40, false);
        check(b"nothing", 36, false);
        check(b"", 36, false);
        check(GZIP, 36, true);
    }
}
