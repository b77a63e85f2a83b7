//! A writer wants a file whose pages may be on their way: it waits until they have left.
//!
//! `sendfile` puts page-cache pages into the socket's queue. If the file is truncated before the
//! peer has them, the kernel sends zeros in their place. A guard (a read lease) tells us before
//! that can happen; the writer is held up by the kernel until we let it go.

use std::rc::Rc;

use gannet_io::driver::{Driver, Nanos};

use super::{Kind, Worker, token};
use crate::conn::{Conn, Phase};
use crate::limits::{DRAIN_CHECK_MS, GUARD_DRAIN_MS};
use crate::site::{ServedFile, Site, Trust};

/// How often connections are asked whether their queue has drained, milliseconds.
const CHECK_MS: u64 = 10;

/// A guard that a writer waits for.
pub(super) struct Breaking {
    file: Rc<ServedFile>,
    /// After this, connections that still hold pages are reset.
    until: Nanos,
    check_at: Nanos,
}

impl<D: Driver> Worker<D> {
    /// An archive is replaced by rename, never written to. If it is guarded all the same, even a
    /// mistaken write cannot make it send a wrong byte.
    pub(super) fn guard_archive(&mut self) {
        for site in self.sites.iter() {
            if let Site::Archive(archive) = site
                && !archive.is_sealed
                && archive.is_first_host
            {
                put_guard(&mut self.driver, &archive.file);
            }
        }
    }

    pub(super) fn guard_broken(&mut self, id: u32) {
        let Some(file) = self.sites.file(id) else {
            return;
        };
        file.trust.set(Trust::Broken);
        let now = self.driver.now();
        self.breaking.push(Breaking {
            file,
            until: now.plus_ms(GUARD_DRAIN_MS),
            check_at: now,
        });
    }

    /// When the queues are looked at again, if a writer waits.
    pub(super) fn next_guard_check(&self) -> Option<Nanos> {
        self.breaking.iter().map(|b| b.check_at).min()
    }

    pub(super) fn check_guards(&mut self) {
        let now = self.driver.now();
        let mut waiting = std::mem::take(&mut self.breaking);
        waiting.retain_mut(|breaking| {
            if breaking.check_at > now {
                return true;
            }
            breaking.check_at = now.plus_ms(CHECK_MS);
            let holders = self.holders(&breaking.file);
            if !holders.is_empty() && now < breaking.until {
                return true;
            }
            for slot in holders {
                self.cut_short(slot);
            }
            self.driver.unguard(&breaking.file.file);
            // From now on its bytes may change: they are copied.
            breaking.file.trust.set(Trust::Copies);
            false
        });
        waiting.append(&mut self.breaking);
        self.breaking = waiting;
    }

    /// A connection is over, but pages of files may be in its queue: once it is closed nobody
    /// would keep a writer waiting for them. It stays until the peer has taken them. True if so.
    pub(super) fn drains(&mut self, slot: u32) -> bool {
        let now = self.driver.now();
        let conn = self.conns.at(slot);
        if conn.queued.is_empty() {
            return false;
        }
        let taken = self.driver.acknowledged(conn.socket);
        conn.queued.retain(|(_, end)| *end > taken);
        if conn.queued.is_empty() {
            return false;
        }
        let until = now.plus_ms(self.settings.limits.progress_timeout_ms);
        let until = *conn.work().drains_until.get_or_insert(until);
        if now >= until {
            self.counters.timeouts += 1;
            self.cut_short(slot);
        } else if conn.phase == Phase::Lingering {
            self.set_deadline(slot, DRAIN_CHECK_MS);
        } else {
            self.linger(slot, DRAIN_CHECK_MS);
        }
        true
    }

    /// Ends the guards of files that nobody serves any more.
    pub(super) fn end_guards(&mut self) {
        for file in self.sites.take_dropped() {
            self.driver.unguard(&file);
        }
    }

    /// Connections that may have pages of the file in their queue.
    fn holders(&mut self, file: &Rc<ServedFile>) -> Vec<u32> {
        let candidates: Vec<u32> = self
            .conns
            .used()
            .filter(|(_, c)| may_hold(c, file))
            .map(|(slot, _)| slot)
            .collect();
        let mut holders = Vec::new();
        for slot in candidates {
            let conn = self.conns.at(slot);
            let taken = self.driver.acknowledged(conn.socket);
            conn.queued.retain(|(_, end)| *end > taken);
            if may_hold(conn, file) {
                holders.push(slot);
            }
        }
        holders
    }
}

/// Puts a guard on a file, so that pages of it may be handed to the kernel.
pub(super) fn put_guard<D: Driver>(driver: &mut D, file: &ServedFile) {
    if driver
        .guard(&file.file, token(Kind::Guard, file.id, 0))
        .is_ok()
    {
        file.trust.set(Trust::Guarded);
    }
}

fn may_hold(conn: &Conn, file: &Rc<ServedFile>) -> bool {
    let current = conn.work.as_ref().and_then(|work| work.current.as_ref());
    current.is_some_and(|f| Rc::ptr_eq(f, file))
        || conn.queued.iter().any(|(f, _)| Rc::ptr_eq(f, file))
}
