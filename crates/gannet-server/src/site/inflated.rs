//! Bodies of an archive that are stored as gzip alone, for clients that take no coding.
//!
//! A body is inflated whole, at the first request that sends bytes of it, and remembered as long as
//! there is room. Its length is bounded by the format, and so is what a request can cost. What a
//! connection still sends is found again, too: of no body there are two copies at a time, so slow
//! clients cannot hold more than the site is long.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use gannet_archive::{Gzip, inflate};
use gannet_io::memory::Memory;

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
    /// The whole archive.
    pub(crate) archive: &'s Arc<Memory>,
    pub(crate) number: u32,
    pub(crate) gzip: Gzip<'s>,
    /// Its length in bytes.
    pub(crate) len: u64,
}

impl Inflated {
    /// Remembers bodies of up to `memory` bytes together.
    pub(crate) fn new(memory: u64) -> Self {
        Self(Rc::new(RefCell::new(Bodies {
            known: HashMap::default(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_bytes_max: memory,
        })))
    }
}

impl GzipBody<'_> {
    /// The body; `None` if the gzip cannot be read, or is not that of a body of this length.
    pub(crate) fn inflate(&self) -> Option<Arc<Memory>> {
        let mut bodies = self.inflated.0.borrow_mut();
        if let Some(body) = bodies.known.get(&self.number).and_then(Weak::upgrade) {
            return Some(body);
        }
        let body = match self.gzip {
            Gzip::Tiny(gzip) => inflate(gzip, self.len),
            Gzip::Blob { offset, len } => {
                let start = usize::try_from(offset).ok()?;
                let range = start..start.checked_add(usize::try_from(len).ok()?)?;
                match self.archive.as_heap_slice() {
                    Some(bytes) => inflate(bytes.get(range)?, self.len),
                    None => {
                        let mut gzip = vec![0; range.len()];
                        self.archive.copy_to(range, &mut gzip).ok()?;
                        inflate(&gzip, self.len)
                    }
                }
            }
        };
        let body = Arc::new(Memory::from_vec(body.ok()?));
        bodies.add(self.number, &body);
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

    /// 36 bytes, by gzip -9n.
    const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\xc0\x47\x72\x01\x00\xf3\xa0\x5d\xc7\x24\x00\x00\x00";

    fn body<'s>(inflated: &'s Inflated, archive: &'s Arc<Memory>, number: u32) -> GzipBody<'s> {
        GzipBody {
            inflated,
            archive,
            number,
            gzip: Gzip::Tiny(GZIP),
            len: 36,
        }
    }

    #[test]
    fn a_body_is_inflated_once_while_there_is_room_or_somebody_has_it() {
        let archive = Arc::new(Memory::from_vec(Vec::new()));
        let room = Inflated::new(2 * (36 + BODY_COST));
        let get = |number| body(&room, &archive, number).inflate().expect("sound");
        let first = get(1);
        assert_eq!(first.as_heap_slice().map(<[u8]>::len), Some(36));
        let held = Arc::as_ptr(&first);
        assert_eq!(Arc::as_ptr(&get(1)), held, "remembered");
        let second = Arc::downgrade(&get(2));
        get(3);
        assert_eq!(Arc::as_ptr(&get(1)), held, "forgotten, but somebody has it");
        get(4);
        assert!(
            second.upgrade().is_none(),
            "there was no room for the third"
        );
        assert_eq!(room.0.borrow().kept.len(), 2);
    }

    #[test]
    fn without_room_nothing_is_remembered() {
        let archive = Arc::new(Memory::from_vec(Vec::new()));
        let none = Inflated::new(0);
        for number in 0..1000 {
            let one = Arc::downgrade(&body(&none, &archive, number).inflate().expect("sound"));
            assert!(one.upgrade().is_none());
        }
        assert!(none.0.borrow().known.len() <= KNOWN_SPARE + 1);
        assert_eq!(none.0.borrow().kept_bytes, 0);
    }

    #[test]
    fn what_is_not_as_announced_is_no_body() {
        let archive = Arc::new(Memory::from_vec([b"....", GZIP].concat()));
        let room = Inflated::new(1 << 20);
        let check = |gzip, len, expect: bool| {
            let body = GzipBody {
                gzip,
                len,
                ..body(&room, &archive, 7)
            };
            assert_eq!(body.inflate().is_some(), expect);
        };
        let blob = |offset, len| Gzip::Blob { offset, len };
        let len = GZIP.len() as u64;
        check(Gzip::Tiny(GZIP), 35, false);
        check(Gzip::Tiny(GZIP), 37, false);
        check(Gzip::Tiny(GZIP), 1 << 40, false);
        check(Gzip::Tiny(b"nothing"), 36, false);
        check(blob(0, len), 36, false);
        check(blob(4, len + 1), 36, false);
        check(blob(u64::MAX, len), 36, false);
        check(blob(4, len), 36, true);
    }
}
