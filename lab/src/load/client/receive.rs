//! What arrives on a connection: heads, content and records, each checked as it comes.

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{BODY_READ, Client, State};
use crate::load::{
    LoadError,
    coded::{Framing, Incoming},
    response::{self, Head},
    tls::Session,
};

/// Bytes read when a head is due: a head and a small body come with one call.
const FIRST_READ: usize = 20 * 1024;
/// Bytes of records read at once: they are opened while they are still in the cache.
const SEALED_READ: usize = 256 * 1024;
/// Reads on one connection before the others get their turn.
const READS_IN_A_ROW: usize = 8;

/// How the reading of records on one connection ended.
enum Read {
    /// There is no more for now.
    Empty,
    /// Others have their turn first.
    More,
    /// The peer closed.
    End,
}

impl Client<'_> {
    /// Reads what has arrived. `ended` says that the peer's end is among it, so that reading
    /// must go on until the kernel has no more: no further edge will come.
    pub(super) fn receive(&mut self, index: usize, ended: bool) -> Result<(), LoadError> {
        // The buffer is lent to the loop, so that its bytes can be looked at while slots change.
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = match self.slots[index].session.take() {
            None => self.receive_clear(index, ended, &mut buffer),
            Some(mut session) => {
                let read = self.receive_sealed(index, ended, &mut session, &mut buffer);
                self.slots[index].session = Some(session);
                read.and_then(|read| self.after_records(index, read))
            }
        };
        self.buffer = buffer;
        result
    }

    fn receive_clear(
        &mut self,
        index: usize,
        ended: bool,
        buffer: &mut [u8],
    ) -> Result<(), LoadError> {
        for _ in 0..READS_IN_A_ROW {
            let (want, discard) = self.next_read(index);
            let Some(socket) = self.slots[index].socket.as_ref() else {
                return Ok(());
            };
            let flags = if discard {
                RecvFlags::TRUNC
            } else {
                RecvFlags::empty()
            };
            let count = match recv(socket, &mut buffer[..want], flags) {
                Ok((_, count)) => count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => return Err(self.broken(index, format!("recv: {e}"))),
            };
            if count == 0 {
                return self.end_of_stream(index);
            }
            let done = match discard {
                true => self.advance(index, count as u64)?,
                false => self.take(index, &buffer[..count])?,
            };
            if done {
                self.finish(index)?;
            }
            if done && self.slots[index].state != State::AwaitingClose {
                // The next request is out; its answer is an edge of its own.
                return Ok(());
            }
            if !ended && (done || count < want) {
                return Ok(());
            }
        }
        self.again.push(index as u32);
        Ok(())
    }

    /// Reads records until the kernel has no more, or others must have their turn.
    fn receive_sealed(
        &mut self,
        index: usize,
        ended: bool,
        session: &mut Session,
        buffer: &mut [u8],
    ) -> Result<Read, LoadError> {
        for _ in 0..READS_IN_A_ROW {
            let Some(socket) = self.slots[index].socket.as_ref() else {
                return Ok(Read::Empty);
            };
            let kept = session.partial.len();
            buffer[..kept].copy_from_slice(&session.partial);
            let window = &mut buffer[kept..kept + SEALED_READ];
            let want = window.len();
            let count = match recv(socket, window, RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(Read::End),
                Ok((_, count)) => count,
                Err(Errno::AGAIN) => return Ok(Read::Empty),
                // The end of a response is known from its length: a reset after it is no loss.
                Err(Errno::CONNRESET) if self.slots[index].state == State::AwaitingClose => {
                    return Ok(Read::End);
                }
                Err(e) => return Err(self.broken(index, format!("recv: {e}"))),
            };
            let filled = kept + count;
            let mut take = |content: &[u8]| self.take(index, content).map(drop);
            let used = session.receive(&mut buffer[..filled], &mut take)?;
            session.partial.clear();
            session.partial.extend_from_slice(&buffer[used..filled]);
            let waits = !matches!(self.slots[index].state, State::InBody);
            if !ended && (count < want || waits) {
                return Ok(Read::Empty);
            }
        }
        Ok(Read::More)
    }

    /// Does what reading records has made due: the first request, the next one, a new connection.
    fn after_records(&mut self, index: usize, read: Read) -> Result<(), LoadError> {
        let slot = &mut self.slots[index];
        let session = slot.session.as_ref().expect("put back by the caller");
        if slot.state == State::Handshaking && session.is_open {
            self.counts.handshakes += 1;
            self.counts.resumed += u64::from(session.is_resumed());
            self.ready(index)?;
        }
        // Where the handshake goes on, or a request is held back, TLS may still have bytes to send.
        self.flush(index)?;
        if self.slots[index].state == State::Finished {
            self.finish(index)?;
        }
        // Some servers wait for the client to close first, once they have said that they will.
        let session = self.slots[index].session.as_ref();
        if self.slots[index].state == State::AwaitingClose && session.is_some_and(|s| s.is_closed) {
            return self.end_of_stream(index);
        }
        match read {
            Read::Empty => {}
            Read::More => self.again.push(index as u32),
            Read::End => self.end_of_stream(index)?,
        }
        Ok(())
    }

    /// How many bytes to read next, and whether they may be thrown away unread.
    fn next_read(&self, index: usize) -> (usize, bool) {
        let slot = &self.slots[index];
        if slot.state != State::InBody {
            return (FIRST_READ, false);
        }
        if slot.incoming.is_some() {
            return (BODY_READ, false);
        }
        let left = self.plan.targets[slot.target as usize].content.len() - slot.received;
        (left.min(BODY_READ as u64) as usize, !slot.verify)
    }

    /// Handles received `bytes`; true when they completed a response.
    fn take(&mut self, index: usize, bytes: &[u8]) -> Result<bool, LoadError> {
        match self.slots[index].state {
            State::AwaitingHead => self.take_head(index, bytes),
            State::InBody if self.slots[index].incoming.is_some() => self.take_coded(index, bytes),
            State::InBody => {
                self.compare(index, bytes)?;
                self.advance(index, bytes.len() as u64)
            }
            _ if bytes.is_empty() => Ok(false),
            _ => {
                let count = bytes.len();
                Err(self.wrong(
                    index,
                    format!("{count} bytes after the end of the response"),
                ))
            }
        }
    }

    fn take_head(&mut self, index: usize, bytes: &[u8]) -> Result<bool, LoadError> {
        let slot = &mut self.slots[index];
        let before = slot.partial.len();
        let codings = !self.plan.codings.is_empty();
        let parsed = if before == 0 {
            response::parse(bytes, codings)
        } else {
            slot.partial.extend_from_slice(bytes);
            response::parse(&slot.partial, codings)
        };
        let head = match parsed {
            Ok(Some(head)) => head,
            Ok(None) => {
                if before == 0 {
                    slot.partial.extend_from_slice(bytes);
                }
                return Ok(false);
            }
            Err(e) => return Err(self.wrong(index, format!("head: {e:?}"))),
        };
        slot.partial.clear();
        self.check_head(index, &head)?;
        // What was kept of the head in earlier reads is not among these bytes any more.
        let content = &bytes[head.len - before..];
        self.slots[index].state = State::InBody;
        if codings {
            return self.take_coded(index, content);
        }
        self.compare(index, content)?;
        self.advance(index, content.len() as u64)
    }

    fn check_head(&mut self, index: usize, head: &Head) -> Result<(), LoadError> {
        let expected = self.plan.targets[self.slots[index].target as usize]
            .content
            .len();
        if head.status != 200 {
            return Err(self.wrong(index, format!("status {} (expected 200)", head.status)));
        }
        let (is_coded, every) = (!self.plan.codings.is_empty(), self.plan.verify_every);
        if is_coded {
            let incoming = Incoming::new(head.coding, head.framing, expected);
            let incoming = incoming.map_err(|what| self.wrong(index, what))?;
            self.slots[index].incoming = Some(incoming);
        } else if head.framing != Framing::Length(expected) {
            let found = match head.framing {
                Framing::Length(found) => format!("length {found}"),
                Framing::Chunks => "chunks".into(),
            };
            return Err(self.wrong(index, format!("{found} (expected {expected})")));
        }
        let slot = &mut self.slots[index];
        slot.verify = is_coded || every > 0 && self.responses.is_multiple_of(every);
        slot.closing = head.close;
        Ok(())
    }

    /// Takes content in whatever form it comes, and checks it once it is whole; true when it was.
    fn take_coded(&mut self, index: usize, bytes: &[u8]) -> Result<bool, LoadError> {
        let now = self.now();
        let slot = &mut self.slots[index];
        let incoming = slot.incoming.as_mut().expect("made with the head");
        let received = incoming.receive(bytes);
        let count = received.map_err(|what| self.wrong(index, what))?;
        self.counts.body_bytes += count;
        self.last_arrival = now;
        let slot = &mut self.slots[index];
        slot.received += count;
        let Some(incoming) = slot.incoming.take_if(|incoming| incoming.is_whole()) else {
            return Ok(false);
        };
        let target = slot.target as usize;
        let content = &self.plan.targets[target].content;
        self.counts.coded += u64::from(incoming.is_coded());
        self.counts.wire_bytes.0 += incoming.len();
        self.counts.wire_bytes.1 += content.len();
        let checked = self.forms[target].check(incoming, content);
        checked.map_err(|what| self.wrong(index, what))?;
        self.slots[index].state = State::Finished;
        Ok(true)
    }

    fn compare(&mut self, index: usize, bytes: &[u8]) -> Result<(), LoadError> {
        let slot = &self.slots[index];
        if !slot.verify {
            return Ok(());
        }
        let content = &self.plan.targets[slot.target as usize].content;
        let offset = slot.received;
        if offset + bytes.len() as u64 <= content.len() && !content.matches(offset, bytes) {
            let end = offset + bytes.len() as u64;
            return Err(self.wrong(index, format!("content differs in bytes {offset} to {end}")));
        }
        Ok(())
    }

    /// Counts `bytes` more of the content; true when that completed the response.
    fn advance(&mut self, index: usize, bytes: u64) -> Result<bool, LoadError> {
        let slot = &mut self.slots[index];
        let expected = self.plan.targets[slot.target as usize].content.len();
        slot.received += bytes;
        self.counts.body_bytes += bytes;
        if slot.received > expected {
            let extra = slot.received - expected;
            return Err(self.wrong(index, format!("{extra} bytes more than announced")));
        }
        if slot.received < expected {
            if bytes > 0 {
                self.last_arrival = self.now();
            }
            return Ok(false);
        }
        self.slots[index].state = State::Finished;
        Ok(true)
    }

    /// A response is complete: sends the next request, or waits for the close.
    fn finish(&mut self, index: usize) -> Result<(), LoadError> {
        if !self.plan.keep_alive || self.slots[index].closing {
            self.slots[index].state = State::AwaitingClose;
            return Ok(());
        }
        let now = self.complete(index);
        if !self.plan.bursts {
            return self.send(index, now);
        }
        self.slots[index].state = State::Idle;
        Ok(())
    }

    /// Records a finished response; returns the time.
    fn complete(&mut self, index: usize) -> u64 {
        let now = self.now();
        let slot = &mut self.slots[index];
        slot.served += 1;
        self.responses += 1;
        self.last_arrival = now;
        self.counts.requests += 1;
        self.counts.verified += u64::from(slot.verify);
        self.latency.saturating_record(now - slot.started);
        if self.plan.bursts {
            self.outstanding -= 1;
            if self.outstanding == 0 {
                self.last.saturating_record(now - self.burst_began);
            }
        }
        now
    }

    pub(super) fn end_of_stream(&mut self, index: usize) -> Result<(), LoadError> {
        let slot = &self.slots[index];
        match slot.state {
            State::AwaitingClose => {
                self.complete(index);
                if self.plan.keep_alive {
                    self.counts.reconnects += 1;
                }
                self.slots[index].socket = None;
                self.slots[index].session = None;
                self.open(index)
            }
            State::AwaitingHead => Err(self.broken(index, "closed before a response".into())),
            State::Handshaking => Err(self.broken(index, "closed in the handshake".into())),
            State::Idle => Err(self.broken(index, "closed before the first request".into())),
            _ => {
                let (got, all) = (
                    slot.received,
                    self.plan.targets[slot.target as usize].content.len(),
                );
                Err(self.broken(index, format!("closed after {got} of {all} content bytes")))
            }
        }
    }
}
