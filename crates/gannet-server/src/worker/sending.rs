//! Answers leave: one operation at a time per connection, big bodies in slices.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use gannet_io::driver::{Driver, Piece, SendList, Started};
use gannet_io::memory::Memory;

use super::{Kind, Worker, token};
use crate::conn::{Part, Phase};
use crate::limits::{LOCAL_COPY_MAX, SLICE_MAX};
use crate::log::End;
use crate::outgoing::Outgoing;
use crate::site::{ServedFile, Trust};

/// Files noted per connection before those that the peer has taken whole are forgotten.
const QUEUED_MAX: usize = 4;

impl<D: Driver> Worker<D> {
    /// Sends what was gathered; what follows it goes out as each send completes.
    pub(super) fn send(&mut self, slot: u32, out: Outgoing) {
        let (mut list, parts) = out.finish();
        let conn = self.conns.at(slot);
        conn.phase = Phase::Sending;
        conn.is_head_timed = false;
        list.more = !parts.is_empty();
        if list.more {
            conn.work().parts = parts;
        }
        self.set_deadline(slot, self.settings.limits.progress_timeout_ms);
        let follows_file = list.more
            && list.pieces.is_empty()
            && matches!(
                self.conns.at(slot).work().parts.front(),
                Some(Part::File(..))
            );
        if follows_file {
            let Some(Part::File(file, range)) = self.conns.at(slot).work().parts.pop_front() else {
                return;
            };
            return self.send_slice(slot, list.wire, file, range);
        }
        self.send_list(slot, list);
    }

    pub(super) fn send_list(&mut self, slot: u32, list: SendList) {
        // Everything that leaves passes here, and is sealed here if the connection is secure.
        let Some(list) = self.sealed(slot, list) else {
            return;
        };
        self.cork(slot, false);
        let conn = self.conns.at(slot);
        conn.expected = list_len(&list);
        self.driver
            .send(conn.socket, token(Kind::Send, slot, conn.generation), list);
    }

    /// Sends `head` and the first slice of a file's range.
    fn send_slice(&mut self, slot: u32, head: Vec<u8>, file: Rc<ServedFile>, range: Range<u64>) {
        let Some((head, file, range)) = self.offer_to_kernel(slot, (head, file, range)) else {
            return;
        };
        let has_pages = self.may_send_pages(slot, &file, range.start);
        let len_max = if has_pages {
            // Later slices begin at its multiples.
            SLICE_MAX - range.start % SLICE_MAX
        } else {
            self.copy_slice_len(slot, !head.is_empty())
        };
        let len = (range.end - range.start).min(len_max);
        let rest = range.start + len..range.end;
        let is_last = rest.is_empty();
        if has_pages {
            let is_clear = !self.conns.at(slot).is_secure();
            self.cork(slot, is_clear && !is_last);
        }
        let conn = self.conns.at(slot);
        let (socket, generation) = (conn.socket, conn.generation);
        let work = conn.work();
        if !is_last {
            work.parts.push_front(Part::File(Rc::clone(&file), rest));
        }
        if has_pages {
            if file.trust.get() == Trust::Guarded {
                work.current = Some(Rc::clone(&file));
            }
            conn.expected = head.len() as u64 + len;
            let asker = token(Kind::Send, slot, generation);
            return self
                .driver
                .send_file(socket, asker, head, &file.file, range.start, len);
        }
        if let Some(memory) = file.file.sealed_memory() {
            let more = !work.parts.is_empty();
            let range = range.start as usize..(range.start + len) as usize;
            return self.send_memory(slot, head, Arc::clone(memory), range, more);
        }
        work.head = head;
        work.copied = Some(Rc::clone(&file));
        // A copy: what was read cannot change any more, whatever happens to the file.
        let asker = token(Kind::Disk, slot, generation);
        conn.expected = len;
        match self
            .driver
            .read(&file.file, range.start, len as usize, asker)
        {
            Started::Now(Ok(bytes)) => self.copy_read(slot, bytes),
            Started::Now(Err(_)) => self.cut_short(slot),
            Started::Pending => {}
        }
    }

    /// Has only whole segments leave while a large file goes out in slices, and what is left of
    /// them at once afterwards. Without it each slice ends in a small segment: the same gigabyte
    /// costs 4 to 8 % more here, and twice as much at the receiver.
    fn cork(&mut self, slot: u32, on: bool) {
        let conn = self.conns.at(slot);
        if conn.is_corked != on {
            conn.is_corked = on;
            self.driver.cork(conn.socket, on);
        }
    }

    /// Whether pages of the file may go to this peer from here on.
    fn may_send_pages(&mut self, slot: u32, file: &ServedFile, offset: u64) -> bool {
        if self.conns.at(slot).is_secure() {
            // They have to be sealed first. The kernel does that before anything is queued, so
            // that the queue holds no pages.
            let is_safe = matches!(file.trust.get(), Trust::Constant | Trust::Guarded);
            return is_safe && self.is_kernel(slot);
        }
        match file.trust.get() {
            Trust::Constant => true,
            Trust::Guarded => {
                // An archive is never written to; its guard is for mistakes.
                file.meta.is_none()
                    || offset >= LOCAL_COPY_MAX
                    || !self.driver.is_local(self.conns.at(slot).socket)
            }
            Trust::Copies | Trust::Broken => false,
        }
    }

    /// A slice of a file is in memory.
    pub(super) fn copy_read(&mut self, slot: u32, bytes: Vec<u8>) {
        let conn = self.conns.at(slot);
        let is_whole = bytes.len() as u64 >= conn.expected;
        let file = conn.work().copied.take();
        // The file may have become shorter than announced, or hold another version by now.
        let is_same = file.is_none_or(|file| {
            if file.meta.is_none() {
                return true;
            }
            let now = self.driver.meta(&file.file);
            now.is_ok_and(|now| file.is_same_version(&now))
        });
        if !is_whole || !is_same {
            return self.cut_short(slot);
        }
        let conn = self.conns.at(slot);
        let work = conn.work();
        let mut wire = std::mem::take(&mut work.head);
        let more = !work.parts.is_empty();
        if self.is_sealed_here(slot) {
            self.send_sealed(slot, wire, &bytes, more);
            return self.driver.give_back(bytes);
        }
        wire.extend_from_slice(&bytes);
        self.driver.give_back(bytes);
        let list = SendList {
            wire,
            more,
            ..SendList::default()
        };
        self.send_list(slot, list);
    }

    /// Sends `head` and a range of memory that nobody can change.
    fn send_memory(
        &mut self,
        slot: u32,
        head: Vec<u8>,
        memory: Arc<Memory>,
        range: Range<usize>,
        more: bool,
    ) {
        let mut pieces = Vec::with_capacity(2);
        if let Ok(len @ 1..) = u32::try_from(head.len()) {
            pieces.push(Piece::Wire(0..len));
        }
        pieces.push(Piece::Memory(memory, range));
        let list = SendList {
            wire: head,
            pieces,
            more,
        };
        self.send_list(slot, list);
    }

    /// The response cannot be finished truthfully: the connection ends short of its length.
    pub(super) fn cut_short(&mut self, slot: u32) {
        self.counters.cut_short += 1;
        self.reset(slot);
    }

    /// A send has completed.
    pub(super) fn sent(&mut self, slot: u32, bytes: u64) {
        self.counters.bytes_sent += bytes;
        let conn = self.conns.at(slot);
        conn.sent += bytes;
        if conn.phase == Phase::Shaking {
            return self.shaken(slot);
        }
        if conn.is_secure() && self.key_updated(slot) {
            return;
        }
        let conn = self.conns.at(slot);
        if conn.streams.is_some() {
            return self.streams_sent(slot);
        }
        if conn.work.is_some() {
            return self.sent_with_work(slot, bytes);
        }
        self.all_sent(slot);
    }

    fn sent_with_work(&mut self, slot: u32, bytes: u64) {
        let conn = self.conns.at(slot);
        let (sent, is_short) = (conn.sent, bytes < conn.expected);
        if let Some(file) = conn.work().current.take()
            && !conn.is_secure()
        {
            self.note_queued(slot, file, sent);
        }
        if is_short {
            return self.cut_short(slot);
        }
        if self.conns.at(slot).has_fault() {
            return self.end_by_fault(slot);
        }
        if self.conns.at(slot).work().parts.is_empty() {
            self.log_work(slot, End::Whole);
            let conn = self.conns.at(slot);
            if conn.work().is_empty() {
                conn.work = None;
            }
            return self.all_sent(slot);
        }
        self.send_next_part(slot);
    }

    /// Sends what follows the send that has just completed.
    pub(super) fn send_next_part(&mut self, slot: u32) {
        let work = self.conns.at(slot).work();
        let Some(part) = work.parts.pop_front() else {
            return;
        };
        let head = std::mem::take(&mut work.head);
        let more = !work.parts.is_empty();
        self.set_deadline(slot, self.settings.limits.progress_timeout_ms);
        match part {
            Part::Wire(wire) => {
                self.send_list(
                    slot,
                    SendList {
                        wire,
                        more,
                        ..SendList::default()
                    },
                );
            }
            Part::Memory(memory, range) => {
                let pieces = vec![Piece::Memory(memory, range)];
                self.send_list(
                    slot,
                    SendList {
                        pieces,
                        more,
                        ..SendList::default()
                    },
                );
            }
            Part::File(file, range) => self.send_slice(slot, head, file, range),
        }
    }

    /// Pages of a guarded file went into the socket's queue; they are there until the peer has
    /// acknowledged everything up to `end`.
    fn note_queued(&mut self, slot: u32, file: Rc<ServedFile>, end: u64) {
        let conn = self.conns.at(slot);
        if let Some(last) = conn.queued.iter_mut().find(|(f, _)| Rc::ptr_eq(f, &file)) {
            last.1 = end;
            return;
        }
        if conn.queued.len() >= QUEUED_MAX {
            let taken = self.driver.acknowledged(conn.socket);
            conn.queued.retain(|(_, end)| *end > taken);
        }
        conn.queued.push((file, end));
    }

    fn all_sent(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        if conn.has_fault() {
            return self.end_by_fault(slot);
        }
        if conn.closing {
            return self.finish(slot);
        }
        if conn.held.is_empty() {
            return self.wait_for_input(slot);
        }
        self.answer_held(slot);
    }

    /// Writes the log lines of the responses under way.
    pub(super) fn log_work(&mut self, slot: u32, end: End) {
        if !self.log.is_on() {
            return;
        }
        let (now, unix) = (self.driver.now().0, self.driver.unix_seconds());
        let conn = self.conns.at(slot);
        let Some(work) = &mut conn.work else { return };
        let peer = conn.peer.as_deref().unwrap_or("-");
        for record in work.records.drain(..) {
            self.log.add(&record, peer, end, now, unix);
        }
    }
}

/// Bytes that a list carries.
pub(super) fn list_len(list: &SendList) -> u64 {
    if list.pieces.is_empty() {
        list.wire.len() as u64
    } else {
        list.pieces.iter().map(piece_len).sum()
    }
}

fn piece_len(piece: &Piece) -> u64 {
    match piece {
        Piece::Wire(range) => u64::from(range.end - range.start),
        Piece::Memory(_, range) => range.len() as u64,
    }
}
