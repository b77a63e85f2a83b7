//! Sends responses: one operation at a time per connection, large bodies in slices.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use gannet_io::driver::{Driver, Errno, Piece, SendList, Started};
use gannet_io::memory::Memory;

use super::kernel_tls::Slice;
use super::{Active, Phase};
use crate::clients::Client;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::stream_waits::SliceRead;
use crate::ground::token::Kind;
use crate::observe::record::End;
use crate::release::ServedFile;
use crate::release::body::Body;
use crate::release::wakeup::Wakeup;

impl<D: Driver> Active<'_, D> {
    /// Sends the gathered responses; the content after them follows as each send completes.
    pub(super) fn send(&mut self, out: Outgoing) {
        let (mut list, parts) = out.finish();
        let conn = &mut *self.conn;
        conn.phase = Phase::Sending;
        conn.is_head_timed = false;
        list.more = !parts.is_empty();
        if list.more {
            conn.work().parts = parts;
        }
        if conn.work.is_some() && self.shared.is_recording() {
            self.begin_responses();
        }
        self.set_deadline(self.shared.settings.limits.progress_timeout_ms);
        if list.more && list.pieces.is_empty() {
            // Heads are sent with the first slice of the body.
            if let Some(body) = self.conn.work().parts.pop_front() {
                return self.send_body(list.wire, body);
            }
        }
        self.send_list(list);
    }

    /// The next send has the first bytes of the responses whose heads were written.
    fn begin_responses(&mut self) {
        let now = self.shared.driver.now();
        let records = &mut self.conn.work().records;
        records.iter_mut().for_each(|record| record.sends(now));
    }

    pub(super) fn send_list(&mut self, list: SendList) {
        // All output passes here, and is encrypted here if the connection is secure.
        let Some(list) = self.encrypted(list) else {
            return;
        };
        self.cork(false);
        self.note_send(list_len(&list));
        let conn = &mut *self.conn;
        conn.sends(list.wire.capacity());
        self.shared
            .driver
            .send(conn.socket, conn.id.token(Kind::Send), list);
    }

    /// Sends `head` and the first slice of the content after it.
    fn send_body(&mut self, head: Vec<u8>, body: Body) {
        match body {
            Body::Own(..) | Body::Shared(..) => self.send_memory_slice(head, body),
            Body::File(file, range) => self.send_slice(head, file, range),
        }
    }

    /// Sends `head` and the first slice of a file's range.
    fn send_slice(&mut self, head: Vec<u8>, file: Rc<ServedFile>, range: Range<u64>) {
        let Some((head, file, range)) = self.offer_to_kernel((head, file, range)) else {
            return;
        };
        if let Some(len) = self.pages_len(&file, &range) {
            return self.send_pages((head, file, range), len);
        }
        let Some(len) = self.copy_len(&range, !head.is_empty()) else {
            return self.hold_back_tail((head, file, range));
        };
        let rest = range.start + len..range.end;
        let conn = &mut *self.conn;
        let work = conn.work();
        if !rest.is_empty() {
            work.parts.push_front(Body::File(Rc::clone(&file), rest));
        }
        if let Some(memory) = file.file.sealed_memory() {
            let more = !work.parts.is_empty();
            let range = range.start as usize..(range.start + len) as usize;
            return self.send_memory(head, Arc::clone(memory), range, more);
        }
        work.head = head;
        work.copied = Some(Rc::clone(&file));
        // A copy: bytes once read cannot change any more, whatever happens to the file.
        conn.expected = len;
        let token = conn.id.token(Kind::Disk);
        let slice = range.start..range.start + len;
        match self.shared.read_slice(&file, slice, token) {
            Started::Now(result) => self.copy_read(result.map(Wakeup::Read)),
            Started::Pending => self.listen_for_end(),
        }
    }

    /// Sends `head` and the first `len` bytes of a range as pages of the file.
    fn send_pages(&mut self, slice: Slice, len: u64) {
        if !slice.1.is_unchanged(&self.shared.driver) {
            return self.cut_short();
        }
        let Some((head, file, range)) = self.counted_slice(slice, len) else {
            return;
        };
        let rest = range.start + len..range.end;
        let is_clear = !self.conn.is_secure();
        self.cork(is_clear && !rest.is_empty());
        if !rest.is_empty() {
            let rest = Body::File(Rc::clone(&file), rest);
            self.conn.work().parts.push_front(rest);
        }
        self.note_send(head.len() as u64 + len);
        let conn = &mut *self.conn;
        conn.sends(head.capacity());
        if is_clear && !file.cannot_change(&self.shared.driver) {
            conn.work().pages_end = Some(conn.sent + conn.expected);
        }
        let token = conn.id.token(Kind::Send);
        self.shared
            .driver
            .send_file(conn.socket, token, head, &file.file, range.start, len);
    }

    /// Lets only whole segments leave while a large file is sent in slices, and flushes the rest
    /// afterwards. Without it each slice ends in a small segment: the same gigabyte costs 4 to 8 %
    /// more here, and twice as much at the receiver.
    pub(super) fn cork(&mut self, on: bool) {
        let conn = &mut *self.conn;
        if conn.is_corked != on {
            conn.is_corked = on;
            self.shared.driver.cork(conn.socket, on);
        }
    }

    /// Sends a slice of a file that was read into memory.
    pub(super) fn copy_read(&mut self, wakeup: Result<Wakeup, Errno>) {
        let conn = &mut *self.conn;
        let (waiter, len) = (conn.id.token(Kind::Disk), conn.expected as usize);
        let Some(file) = conn.work().copied.take() else {
            return self.cut_short();
        };
        let bytes = match self.shared.slice_read((&file, len), wakeup, waiter) {
            SliceRead::Read(bytes) => bytes,
            SliceRead::Awaited | SliceRead::LengthAwaited => {
                self.conn.work().copied = Some(file);
                self.listen_for_end();
                return self.set_deadline(self.shared.settings.limits.progress_timeout_ms);
            }
            SliceRead::Lost => return self.reset(),
        };
        let conn = &mut *self.conn;
        let work = conn.work();
        let mut wire = std::mem::take(&mut work.head);
        let more = !work.parts.is_empty();
        if self.is_encrypted_here() {
            self.send_encrypted(wire, &bytes, more);
            return self.shared.driver.give_back(bytes);
        }
        if wire.is_empty() {
            // As it was read: no further copy.
            self.shared.keep_spare(std::mem::replace(&mut wire, bytes));
        } else {
            // Many slow readers at once have a slice each: without memory for one, its response ends.
            if wire.try_reserve_exact(bytes.len()).is_err() {
                return self.cut_short();
            }
            wire.extend_from_slice(&bytes);
            self.shared.driver.give_back(bytes);
        }
        let list = SendList {
            wire,
            more,
            ..SendList::default()
        };
        self.send_list(list);
    }

    /// Sends `head` and the first slice of a range of memory, no more than the socket has room for:
    /// encrypting or copying more at once would delay other connections, and the bytes might remain
    /// unsent.
    fn send_memory_slice(&mut self, head: Vec<u8>, mut body: Body) {
        let most = self.copy_slice_len(!head.is_empty());
        let Some((memory, slice)) = body.take(most) else {
            return debug_assert!(false, "it is in memory");
        };
        let parts = &mut self.conn.work().parts;
        if !body.is_empty() {
            parts.push_front(body);
        }
        let more = !parts.is_empty();
        self.send_memory(head, memory, slice, more);
    }

    /// Sends `head` and a range of unalterable memory.
    fn send_memory(&mut self, head: Vec<u8>, memory: Arc<Memory>, range: Range<usize>, more: bool) {
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
        self.send_list(list);
    }

    /// Resets the connection because the response cannot be completed correctly.
    pub(super) fn cut_short(&mut self) {
        self.shared.counters.cut_short += 1;
        self.reset();
    }

    /// Notes the length of the send that is about to begin.
    pub(super) fn note_send(&mut self, len: u64) {
        let conn = &mut *self.conn;
        conn.expected = len;
        if let Some(client) = &conn.client {
            client.sends(len, self.shared.driver.now());
        }
    }

    /// Handles a completed send.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.shared.counters.bytes_sent += bytes;
        let conn = &mut *self.conn;
        conn.sent += bytes;
        conn.in_flight = 0;
        if conn.phase == Phase::Shaking {
            return self.shaken();
        }
        if conn.is_secure() && self.key_updated() {
            return;
        }
        if self.conn.protocol.is_http2() {
            return self.streams_sent();
        }
        if self.conn.work.is_some() {
            return self.sent_with_work(bytes);
        }
        self.all_sent();
    }

    fn sent_with_work(&mut self, bytes: u64) {
        if bytes < self.conn.expected {
            return self.cut_short();
        }
        if self.conn.has_fault() {
            return self.end_by_fault();
        }
        if self.conn.work().parts.is_empty() {
            self.end_work(End::Whole);
            self.conn.work.take_if(|work| work.is_empty());
            return self.all_sent();
        }
        self.queue_up();
    }

    /// Sends the content after the send that has just completed.
    pub(super) fn send_next_part(&mut self) {
        let work = self.conn.work();
        let Some(body) = work.parts.pop_front() else {
            return;
        };
        let head = std::mem::take(&mut work.head);
        self.set_deadline(self.shared.settings.limits.progress_timeout_ms);
        self.send_body(head, body);
    }

    fn all_sent(&mut self) {
        let conn = &mut *self.conn;
        if conn.has_fault() {
            return self.end_by_fault();
        }
        if conn.intake.is_closed() {
            return self.finish();
        }
        if conn.intake.is_empty() {
            return self.wait_for_input();
        }
        self.answer_held();
    }

    /// Logs and measures the responses in progress, which end now.
    pub(super) fn end_work(&mut self, end: End) {
        if !self.shared.is_recording() {
            return;
        }
        let conn = &mut *self.conn;
        let Some(work) = &mut conn.work else { return };
        let named = Client::named(conn.client.as_deref());
        // Unsent content belongs to the last response.
        if let (End::CutShort, Some(last)) = (end, work.records.last_mut()) {
            last.cut(Body::len_of(&work.parts));
        }
        for record in work.records.drain(..) {
            self.shared.record_ended(&record, named, end);
        }
    }
}

/// Length of a list in bytes.
pub(super) fn list_len(list: &SendList) -> u64 {
    match list.pieces.as_slice() {
        [] => list.wire.len() as u64,
        pieces => pieces.iter().map(piece_len).sum(),
    }
}

fn piece_len(piece: &Piece) -> u64 {
    match piece {
        Piece::Wire(range) => u64::from(range.end - range.start),
        Piece::Memory(_, range) => range.len() as u64,
    }
}
