//! The open streams of a connection: a table of fixed bound, and the queues of those that can send.
//!
//! A stream in the table is *open* or *half-closed (remote)*, depending on whether the request has
//! ended, or *half-closed (local)* once the response has. When both have, it leaves the table and
//! is *closed* (RFC 9113 section 5.1).

use super::Time;
use super::flow::SendWindow;
use super::limits::{CLOSED_MAX, CONTENT_LINGER_MS, CONTENT_UNWELCOME, STREAM_WINDOW, STREAMS_MAX};
use super::pace::Pace;
use crate::binary::priority::{LEVELS, Priority};

/// The state of the response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Response {
    /// The caller has the request and has not answered.
    Awaited,
    /// Content is being sent.
    Sending,
    /// All content has been announced.
    Done,
}

/// An open stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) send_window: SendWindow,
    /// How much the peer may still send.
    pub(crate) receive_left: u32,
    pub(crate) response: Response,
    pub(crate) priority: Priority,
    /// The peer has ended its part.
    pub(crate) is_request_ended: bool,
    pub(crate) is_head: bool,
    /// The caller does not have the content available.
    pub(crate) is_paused: bool,
    is_queued: bool,
    /// The next stream of the same queue.
    next: u16,
    /// Request content still to come, if its length was announced.
    pub(crate) request_left: Option<u64>,
    /// Response content announced so far, in bytes.
    pub(crate) sent: u64,
    /// Length of the response content.
    pub(crate) content_len: u64,
    /// When it was opened, or last sent or received content.
    pub(crate) progressed_at: Time,
    /// When it is ended, if it is waiting for its peer: see [`Pace`].
    pub(crate) deadline: Time,
    /// How much the connection had sent when the stream's time was restarted.
    pub(crate) seen: u64,
}

impl Stream {
    /// A stream whose request has just arrived.
    pub(crate) fn new(id: u32, initial_window: u32, now: Time, deadline: Time) -> Self {
        Self {
            id,
            send_window: SendWindow::new(initial_window),
            receive_left: STREAM_WINDOW,
            response: Response::Awaited,
            priority: Priority::default(),
            is_request_ended: false,
            is_head: false,
            is_paused: false,
            is_queued: false,
            next: NONE,
            request_left: None,
            sent: 0,
            content_len: 0,
            progressed_at: now,
            deadline,
            seen: 0,
        }
    }

    /// Content was sent or received.
    #[inline]
    pub(crate) fn progress(&mut self, now: Time, len: u32, pace: &Pace) {
        self.progressed_at = now;
        self.deadline = pace.after(self.deadline, now, len);
    }

    /// Restarts the timeout for whatever it waits for next. `seen` is what the connection has sent
    /// so far.
    #[inline]
    pub(crate) fn begin_anew(&mut self, now: Time, pace: &Pace, seen: u64) {
        self.progressed_at = now;
        self.deadline = pace.anew(now);
        self.seen = seen;
    }

    /// When it is ended, if it waits for its peer and makes no progress before.
    pub(crate) fn due_at(&self) -> Time {
        let is_too_long = self.receive_left < STREAM_WINDOW - CONTENT_UNWELCOME
            || self
                .request_left
                .is_some_and(|left| left > u64::from(self.receive_left));
        if self.response == Response::Done && is_too_long {
            let linger = self.progressed_at.plus_ms(CONTENT_LINGER_MS);
            return self.deadline.min(linger);
        }
        self.deadline
    }

    /// Whether it has content to send and a window to send it in.
    #[inline]
    fn is_sendable(&self) -> bool {
        self.response == Response::Sending && !self.is_paused && self.send_window.available() > 0
    }
}

/// A place in the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot(u16);

/// The table, and a queue per level of priority.
///
/// Invariants: a stream is in the queue of its level exactly if it is sendable; non-incremental
/// ones are there in the order of their identifiers. `count` is the number of slots with an
/// identifier other than 0, at most [`STREAMS_MAX`].
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// Identifiers by slot, 0 for a free one. Separate from the streams, so that a search touches
    /// little memory.
    ids: Vec<u32>,
    slots: Vec<Stream>,
    free: Vec<u16>,
    count: u32,
    queues: [Queue; LEVELS],
    /// Which queues are not empty: bit 0 is level 0.
    occupied: u16,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u16,
    last: u16,
}

const NONE: u16 = u16::MAX;

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            ids: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            count: 0,
            queues: [Queue {
                first: NONE,
                last: NONE,
            }; LEVELS],
            occupied: 0,
        }
    }

    /// The number of streams.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.count >= STREAMS_MAX
    }

    /// The slot of this stream, if it is open.
    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<Slot> {
        debug_assert!(id != 0, "the connection is no stream");
        let index = self.ids.iter().position(|&found| found == id)?;
        Some(Slot(index as u16))
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Stream {
        &self.slots[usize::from(slot.0)]
    }

    /// Must be followed by [`requeue`](Self::requeue) if a change affects whether the stream can
    /// send.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Stream {
        &mut self.slots[usize::from(slot.0)]
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
            + self.ids.capacity() * size_of::<u32>()
            + self.free.capacity() * size_of::<u16>()
    }

    /// All open streams.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Stream)> {
        let all = self.slots.iter().enumerate();
        all.filter(|(index, _)| self.ids[*index] != 0)
            .map(|(index, stream)| (Slot(index as u16), stream))
    }

    /// Inserts a stream; there must be room.
    #[inline]
    pub(crate) fn insert(&mut self, stream: Stream) -> Slot {
        assert!(!self.is_full(), "the caller looks for room");
        self.count += 1;
        if let Some(index) = self.free.pop() {
            self.ids[usize::from(index)] = stream.id;
            self.slots[usize::from(index)] = stream;
            return Slot(index);
        }
        self.ids.push(stream.id);
        self.slots.push(stream);
        Slot((self.slots.len() - 1) as u16)
    }

    /// Removes a stream.
    #[inline]
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        let index = usize::from(slot.0);
        debug_assert!(self.ids[index] != 0, "only open streams close");
        self.ids[index] = 0;
        self.free.push(slot.0);
        self.count -= 1;
    }

    /// The stream whose turn it is.
    #[inline]
    pub(crate) fn first_sendable(&self) -> Option<Slot> {
        if self.occupied == 0 {
            return None;
        }
        let level = self.occupied.trailing_zeros() as usize;
        Some(Slot(self.queues[level].first))
    }

    /// Puts a stream into its queue, or removes it from there, as its state requires after a
    /// change.
    #[inline]
    pub(crate) fn requeue(&mut self, slot: Slot) {
        let stream = self.get(slot);
        match (stream.is_sendable(), stream.is_queued) {
            (true, false) => self.push(slot),
            (false, true) => self.unlink(slot),
            _ => {}
        }
    }

    /// Gives the next stream of the same level its turn, after an incremental one had it.
    #[inline]
    pub(crate) fn rotate(&mut self, slot: Slot) {
        let stream = self.get(slot);
        if stream.is_queued && stream.next != NONE {
            self.unlink(slot);
            self.push_back(slot);
        }
    }

    /// Changes a stream's priority.
    pub(crate) fn prioritize(&mut self, slot: Slot, priority: Priority) {
        if self.get(slot).priority == priority {
            return;
        }
        self.unlink(slot);
        self.get_mut(slot).priority = priority;
        self.requeue(slot);
    }

    /// Puts a stream into the queue of its level.
    #[inline]
    fn push(&mut self, slot: Slot) {
        let stream = self.get(slot);
        let last = self.queues[usize::from(stream.priority.level())].last;
        if stream.priority.is_incremental || last == NONE || self.get(Slot(last)).id < stream.id {
            self.push_back(slot);
        } else {
            self.push_in_order(slot);
        }
    }

    /// Inserts a delayed response before those of later requests; there must be one.
    fn push_in_order(&mut self, slot: Slot) {
        let stream = self.get(slot);
        let id = stream.id;
        let level = usize::from(stream.priority.level());
        let mut before = NONE;
        let mut at = self.queues[level].first;
        while self.get(Slot(at)).id < id {
            before = at;
            at = self.get(Slot(at)).next;
        }
        let stream = self.get_mut(slot);
        stream.is_queued = true;
        stream.next = at;
        if before == NONE {
            self.queues[level].first = slot.0;
        } else {
            self.get_mut(Slot(before)).next = slot.0;
        }
    }

    #[inline]
    fn push_back(&mut self, slot: Slot) {
        let stream = self.get_mut(slot);
        let level = usize::from(stream.priority.level());
        stream.is_queued = true;
        stream.next = NONE;
        let last = self.queues[level].last;
        if last == NONE {
            self.queues[level].first = slot.0;
            self.occupied |= 1 << level;
        } else {
            self.get_mut(Slot(last)).next = slot.0;
        }
        self.queues[level].last = slot.0;
    }

    /// Removes a stream from its queue, if it is in one. It usually is the first; otherwise the
    /// queue, at most [`STREAMS_MAX`] long, is searched.
    fn unlink(&mut self, slot: Slot) {
        let stream = self.get_mut(slot);
        if !stream.is_queued {
            return;
        }
        stream.is_queued = false;
        let next = stream.next;
        let level = usize::from(stream.priority.level());
        let mut before = NONE;
        let mut at = self.queues[level].first;
        while at != slot.0 {
            before = at;
            at = self.get(Slot(at)).next;
        }
        let queue = &mut self.queues[level];
        if queue.last == slot.0 {
            queue.last = before;
        }
        if before == NONE {
            queue.first = next;
        } else {
            self.get_mut(Slot(before)).next = next;
        }
        if self.queues[level].first == NONE {
            self.occupied &= !(1 << level);
        }
    }
}

/// How a stream was closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Closed {
    /// Both ends have finished, or the peer has reset it: the peer sends no more.
    ByPeer,
    /// We have reset it: frames sent before the peer knew may still arrive.
    ByUs,
}

/// The streams closed most recently. Older ones are forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClosedStreams {
    /// Identifiers; since they are odd, bit 0 can encode how: 0 is [`Closed::ByUs`].
    ids: Vec<u32>,
    next: usize,
}

impl ClosedStreams {
    #[inline]
    pub(crate) fn note(&mut self, id: u32, how: Closed) {
        let entry = if how == Closed::ByUs { id & !1 } else { id };
        if self.ids.len() < CLOSED_MAX {
            self.ids.push(entry);
            return;
        }
        self.ids[self.next] = entry;
        self.next = (self.next + 1) % CLOSED_MAX;
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.ids.capacity() * size_of::<u32>()
    }

    pub(crate) fn find(&self, id: u32) -> Option<Closed> {
        let entry = self.ids.iter().find(|&&entry| entry | 1 == id)?;
        Some(if entry & 1 == 0 {
            Closed::ByUs
        } else {
            Closed::ByPeer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sendable(streams: &mut Streams, id: u32, urgency: u8) -> Slot {
        with_priority(streams, id, urgency, false)
    }

    fn with_priority(streams: &mut Streams, id: u32, urgency: u8, is_incremental: bool) -> Slot {
        let mut stream = Stream::new(id, 10, Time(0), Time(0));
        stream.priority = Priority {
            urgency,
            is_incremental,
        };
        stream.response = Response::Sending;
        let slot = streams.insert(stream);
        streams.requeue(slot);
        slot
    }

    /// The order in which streams get their turn, if each then leaves.
    fn order(streams: &Streams) -> Vec<u32> {
        let mut streams = streams.clone();
        let mut ids = Vec::new();
        while let Some(slot) = streams.first_sendable() {
            ids.push(streams.get(slot).id);
            streams.remove(slot);
        }
        ids
    }

    #[test]
    fn queues_are_in_order_of_urgency_and_of_arrival() {
        let mut streams = Streams::new();
        let slots: Vec<_> = [(1, 3), (3, 3), (5, 0), (7, 7), (9, 3)]
            .into_iter()
            .map(|(id, urgency)| sendable(&mut streams, id, urgency))
            .collect();
        assert_eq!(order(&streams), [5, 1, 3, 9, 7]);
        streams.get_mut(slots[4]).is_paused = true;
        streams.requeue(slots[4]);
        assert_eq!(order(&streams), [5, 1, 3, 7]);
        streams.prioritize(
            slots[0],
            Priority {
                urgency: 0,
                is_incremental: true,
            },
        );
        assert_eq!(order(&streams), [5, 1, 3, 7]);
        streams.remove(slots[2]);
        streams.get_mut(slots[4]).is_paused = false;
        streams.requeue(slots[4]);
        assert_eq!(order(&streams), [1, 3, 9, 7]);
        assert_eq!(
            (streams.count(), streams.find(5), streams.iter().count()),
            (4, None, 4)
        );
        let slot = sendable(&mut streams, 11, 3);
        assert_eq!((streams.find(11), slot), (Some(slot), slots[2]));
        assert_eq!(order(&streams), [1, 3, 9, 11, 7]);
    }

    /// Delayed responses are still sent in request order; incremental responses take turns after
    /// them.
    #[test]
    fn only_incremental_responses_take_turns() {
        let mut streams = Streams::new();
        let turns = [1, 3].map(|id| with_priority(&mut streams, id, 3, true));
        let whole = [5, 7, 9].map(|id| sendable(&mut streams, id, 3));
        assert_eq!(order(&streams), [5, 7, 9, 1, 3]);
        for slot in [whole[1], whole[0]] {
            streams.get_mut(slot).is_paused = true;
            streams.requeue(slot);
        }
        assert_eq!(order(&streams), [9, 1, 3]);
        for slot in [whole[1], whole[0]] {
            streams.get_mut(slot).is_paused = false;
            streams.requeue(slot);
        }
        assert_eq!(order(&streams), [5, 7, 9, 1, 3]);
        streams.rotate(turns[0]);
        assert_eq!(order(&streams), [5, 7, 9, 3, 1]);
        streams.get_mut(turns[1]).is_paused = true;
        streams.requeue(turns[1]);
        streams.get_mut(turns[1]).is_paused = false;
        streams.requeue(turns[1]);
        assert_eq!(order(&streams), [5, 7, 9, 1, 3], "a pause ends a turn");
    }

    #[test]
    fn closed_streams_are_remembered_for_a_while() {
        let mut closed = ClosedStreams::default();
        closed.note(1, Closed::ByUs);
        closed.note(3, Closed::ByPeer);
        assert_eq!(closed.find(1), Some(Closed::ByUs));
        assert_eq!(closed.find(3), Some(Closed::ByPeer));
        assert_eq!(closed.find(5), None);
        for index in 0..CLOSED_MAX as u32 - 1 {
            closed.note(5 + 2 * index, Closed::ByPeer);
        }
        assert_eq!(
            (closed.find(1), closed.find(3)),
            (None, Some(Closed::ByPeer))
        );
        assert_eq!(closed.ids.len(), CLOSED_MAX);
    }
}
