//! The partial releases of a copy: what is there of them, how it is used, and what goes for want of room.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use gannet_archive::limits::GROUP_LEN;
use gannet_archive::{DigestTable, Unit};
use gannet_store::{PartialWriter, ReleaseId, SparseFile, Store};

use crate::fetcher::Want;
use crate::limits::{
    BLOBS_MAX, EVICTED_MAX, EVICTIONS_MAX, FETCH_LEN_MAX, RELEASES_OPEN_MAX, ROOM_SHARE, USE_MAX,
    USED_LEN_MAX,
};
use crate::warming::Glimpse;

/// See the module.
pub(crate) struct Cache {
    store: Store,
    room: u64,
    releases: Vec<Cached>,
    in_force: Option<ReleaseId>,
    /// Where the clock's hand is: a release and a unit.
    hand: (usize, u64),
}

/// A partial release that is open.
pub(crate) struct Cached {
    pub(crate) id: ReleaseId,
    pub(crate) writer: PartialWriter,
    /// Units that are on their way: fetched, or written and not synced.
    pub(crate) coming: HashSet<u64>,
    /// How often each unit was used, halved each time that the hand passes.
    used: Vec<u8>,
    /// Its blobs by digest, if later releases copy from it.
    by_digest: Option<DigestTable>,
}

impl Cache {
    pub(crate) fn new(store: Store, room: u64) -> Self {
        Self {
            store,
            room,
            releases: Vec::new(),
            in_force: None,
            hand: (0, 0),
        }
    }

    /// A partial release, which is opened if need be.
    pub(crate) fn get(&mut self, id: ReleaseId) -> io::Result<&mut Cached> {
        if let Some(at) = self.releases.iter().position(|it| it.id == id) {
            return Ok(&mut self.releases[at]);
        }
        let writer = PartialWriter::open(&self.store.partial_path(id))?;
        if ReleaseId::of_build_id(writer.superblock().build_id()) != id {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.releases.len() >= RELEASES_OPEN_MAX
            && let Some(idle) = self.releases.iter().position(|it| it.coming.is_empty())
        {
            self.releases.remove(idle);
            self.hand = (0, 0);
        }
        let count = usize::try_from(writer.units().count()).map_err(io::Error::other)?;
        self.releases.push(Cached {
            id,
            writer,
            coming: HashSet::new(),
            used: vec![0; count],
            by_digest: None,
        });
        self.releases
            .last_mut()
            .ok_or(io::ErrorKind::NotFound.into())
    }

    /// Closes what is another file by now, or none, unless some of it is on its way.
    fn close_stale(&mut self) {
        let store = &self.store;
        let is_current = |it: &Cached| {
            let id_of = |it: fs::Metadata| (it.dev(), it.ino());
            let named = fs::metadata(store.partial_path(it.id)).map(id_of);
            let open = it.writer.data().metadata().map(id_of);
            named.is_ok_and(|named| open.is_ok_and(|open| open == named))
        };
        let before = self.releases.len();
        self.releases
            .retain(|it| !it.coming.is_empty() || is_current(it));
        if self.releases.len() != before {
            self.hand = (0, 0);
        }
    }

    /// A partial release that a server asks for: the file that it has now.
    pub(crate) fn current(&mut self, id: ReleaseId) -> io::Result<&mut Cached> {
        self.close_stale();
        self.get(id)
    }

    /// A server has sent this.
    pub(crate) fn used(&mut self, want: &Want) {
        if let Ok(cached) = self.get(want.release) {
            let units = cached.writer.units();
            let end = want
                .range
                .end
                .min(want.range.start.saturating_add(USED_LEN_MAX));
            let units = units.in_blob(want.blob, want.range.start..end);
            cached.use_units(units);
        }
    }

    pub(crate) fn is_in_force(&self, id: ReleaseId) -> bool {
        self.in_force == Some(id)
    }

    /// Another release is in force: blobs that it has in common with the one before are copied from there. Returns
    /// that one.
    pub(crate) fn in_force(&mut self, id: ReleaseId) -> Option<ReleaseId> {
        self.close_stale();
        let before = self.in_force.filter(|before| *before != id);
        let source = before.or_else(|| self.last_used_but(id));
        self.in_force = Some(id);
        for other in self.releases.iter_mut().filter(|it| Some(it.id) != source) {
            other.by_digest = None;
        }
        self.get(source?).ok()?.list_digests(BLOBS_MAX);
        source
    }

    /// Of the other partial releases, the one to which something was added last.
    fn last_used_but(&self, id: ReleaseId) -> Option<ReleaseId> {
        let others = self
            .store
            .releases()
            .ok()?
            .into_iter()
            .filter(|it| *it != id);
        let added = |it: &ReleaseId| -> Option<SystemTime> {
            fs::metadata(self.store.presence_path(*it))
                .ok()?
                .modified()
                .ok()
        };
        let dated = others.filter_map(|it| Some((added(&it)?, it)));
        dated.max().map(|(_, it)| it)
    }

    /// A unit of a release.
    pub(crate) fn unit(&mut self, id: ReleaseId, number: u64) -> io::Result<Unit> {
        self.get(id)?.writer.unit(number)
    }

    /// The bytes that another release has in place of a unit's, if it has its blob. They are to be verified.
    pub(crate) fn copy_of(&mut self, id: ReleaseId, unit: &Unit) -> Option<Vec<u8>> {
        let digest = self.get(id).and_then(|it| it.digest_of(unit.blob)).ok()?;
        let mut others = self.releases.iter().filter(|it| it.id != id);
        others.find_map(|other| other.bytes_like(unit, &digest))
    }

    /// Bytes that there may be of all releases.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// The folders of the store.
    pub(crate) fn folders(&self) -> [PathBuf; 2] {
        self.store.folders()
    }

    /// Makes room for so many bytes; false if there is not as much, whatever goes.
    pub(crate) fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
        let taken = self.allocated()?.saturating_add(bytes);
        if taken <= self.room {
            return Ok(true);
        }
        self.open_all();
        let units = self.releases.iter().map(Cached::units_allocated);
        let units = units.sum::<io::Result<u64>>()?;
        if taken.saturating_sub(units) > self.room {
            // Whole releases, and metadata: nothing is gained if all units go.
            return Ok(false);
        }
        for _ in 0..EVICTIONS_MAX {
            // Pages that units share with those that stay are not freed: so perhaps once more.
            let taken = self.allocated()?.saturating_add(bytes);
            if taken <= self.room {
                return Ok(true);
            }
            if !self.evict(taken - self.room + self.room / ROOM_SHARE)? {
                return Ok(false);
            }
        }
        Ok(self.allocated()?.saturating_add(bytes) <= self.room)
    }

    /// Opens the releases that nothing has asked for since this process began: they give way, too.
    fn open_all(&mut self) {
        for id in self.store.releases().unwrap_or_default() {
            if self.releases.len() < RELEASES_OPEN_MAX {
                // One that is whole, or damaged, has nothing to remove.
                let _ = self.get(id);
            }
        }
    }

    /// Writes the verified bytes of a unit. Others may fill the disk before the room is full: then some goes.
    pub(crate) fn write(
        &mut self,
        id: ReleaseId,
        (number, unit): (u64, &Unit),
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut written = self.get(id)?.writer.write((number, unit), bytes);
        if written.as_ref().is_err_and(is_full) && self.give_way()? {
            written = self.get(id)?.writer.write((number, unit), bytes);
        }
        written?;
        self.get(id)?.coming.insert(number);
        Ok(())
    }

    /// Removes a part of what there may be; false if there is nothing to remove.
    pub(crate) fn give_way(&mut self) -> io::Result<bool> {
        self.open_all();
        self.evict(self.room / ROOM_SHARE)
    }

    /// Bytes that the files of all releases take on the disk.
    pub(crate) fn allocated(&self) -> io::Result<u64> {
        let [_, releases] = self.store.folders();
        let mut bytes = 0;
        for entry in fs::read_dir(releases)? {
            // One that is gone takes nothing.
            bytes += entry?
                .metadata()
                .map_or(0, |it| it.blocks().saturating_mul(512));
        }
        Ok(bytes)
    }

    /// Removes units that were not used for longest, until they have so many bytes, or as many were looked at as
    /// it takes to find any; false if none was.
    fn evict(&mut self, bytes: u64) -> io::Result<bool> {
        let units: u64 = self
            .releases
            .iter()
            .map(|it| it.writer.units().count())
            .sum();
        // Halved as often, every use is forgotten.
        let mut looks = units.saturating_mul(u64::from(USE_MAX.ilog2()) + 2);
        let mut victims: Vec<Vec<u64>> = vec![Vec::new(); self.releases.len()];
        let (mut found, mut count) = (0, 0);
        while found < bytes && count < EVICTED_MAX && looks > 0 {
            looks -= 1;
            let (at, unit) = self.hand;
            let Some(cached) = self.releases.get_mut(at) else {
                self.hand = (0, 0);
                continue;
            };
            if unit >= cached.writer.units().count() {
                self.hand = (at + 1, 0);
                continue;
            }
            self.hand.1 += 1;
            if !cached.writer.has(unit) {
                continue;
            }
            let used = &mut cached.used[unit as usize];
            if *used == CHOSEN {
                continue;
            }
            if *used > 0 {
                *used /= 2;
                continue;
            }
            *used = CHOSEN;
            found += cached.writer.unit(unit).map_or(0, |it| it.len);
            victims[at].push(unit);
            count += 1;
        }
        for (cached, victims) in self.releases.iter_mut().zip(&victims) {
            for unit in victims {
                cached.used[*unit as usize] = 0;
            }
        }
        for (cached, mut victims) in self.releases.iter_mut().zip(victims) {
            victims.sort_unstable();
            cached.writer.remove(&victims)?;
        }
        Ok(count > 0)
    }
}

/// In place of the uses of a unit that goes.
const CHOSEN: u8 = u8::MAX;

impl Cached {
    /// Bytes that its units take on the disk.
    fn units_allocated(&self) -> io::Result<u64> {
        let metadata = self.writer.superblock().metadata_range();
        let allocated = self.writer.data().allocated()?;
        Ok(allocated.saturating_sub(metadata.end - metadata.start))
    }

    /// What is needed to read its metadata elsewhere, and how often its units were used.
    pub(crate) fn glimpse(&self) -> (Glimpse, Vec<u8>) {
        let glimpse = Glimpse {
            superblock: self.writer.superblock().clone(),
            units: self.writer.units().clone(),
            data: Arc::clone(self.writer.data()),
        };
        (glimpse, self.used.clone())
    }

    /// The first units of a blob that are neither there nor on their way, and were used so often in another
    /// release.
    pub(crate) fn cold_units(&mut self, blob: u32, used: u8) -> Vec<u64> {
        let mut units = self
            .writer
            .units()
            .in_blob(blob, 0..FETCH_LEN_MAX)
            .collect::<Vec<_>>();
        units.retain(|unit| !self.writer.has(*unit) && !self.coming.contains(unit));
        for unit in &units {
            if let Some(known) = self.used.get_mut(*unit as usize) {
                *known = (*known).max(used);
            }
        }
        units
    }

    /// Notes that units are used.
    pub(crate) fn use_units(&mut self, units: Range<u64>) {
        for unit in units {
            if let Some(used) = self.used.get_mut(unit as usize) {
                *used = used.saturating_add(1).min(USE_MAX);
            }
        }
    }

    fn digest_of(&self, blob: u32) -> io::Result<[u8; 32]> {
        let data = self.writer.data();
        let units = self.writer.units();
        units.digest(blob, &mut |at, buffer| data.read_at(buffer, at))
    }

    /// Lists its blobs, unless there are more than `most`: then nothing is copied from them.
    pub(crate) fn list_digests(&mut self, most: u64) {
        self.by_digest = None;
        let blobs = self.writer.units().blobs();
        if u64::from(blobs) > most {
            return;
        }
        let mut table = DigestTable::with_capacity(blobs as usize);
        let data = self.writer.data();
        let mut read = |at: u64, buffer: &mut [u8]| data.read_at(buffer, at);
        let mut add = |number, digest: &[u8; 32]| table.insert(number, digest);
        let listed = self.writer.units().digests(&mut read, &mut add);
        self.by_digest = listed.ok().map(|()| table);
    }

    /// The bytes that this release has in the place of another one's unit, whose blob has this digest.
    fn bytes_like(&self, unit: &Unit, digest: &[u8; 32]) -> Option<Vec<u8>> {
        let has_it = |number| self.digest_of(number).is_ok_and(|it| it == *digest);
        let blob = self.by_digest.as_ref()?.find(digest, has_it)?;
        let start = unit.group.map_or(0, |group| group * GROUP_LEN);
        let number = self.writer.units().in_blob(blob, start..start + 1).next()?;
        let here = self.writer.unit(number).ok()?;
        if !self.writer.has(number) || here.len != unit.len {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(here.len).ok()?];
        self.writer.data().read_at(&mut bytes, here.offset).ok()?;
        Some(bytes)
    }
}

/// Whether the disk has no room.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}
