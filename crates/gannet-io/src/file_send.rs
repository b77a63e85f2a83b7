//! Sending a head and a range of a file on a non-blocking socket: one step at a time.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::file::File;
use crate::helpers::SlotKey;
use crate::limits;
use crate::operation::{Nanos, Token};
use crate::os_disk::{OsDisk, Ready, is_cold};
use crate::store::Store;

/// A `send_file` under way.
///
/// The bytes are sent in this order: the rest of `held` (first the head, later bytes that a helper
/// fetched), then `len` bytes of the file from `offset`.
#[derive(Debug)]
pub(crate) struct FileSend {
    pub(crate) token: Token,
    held: Vec<u8>,
    held_sent: usize,
    file: File,
    offset: u64,
    len: u64,
    sent: u64,
    /// The end of the range that a helper has just read into the page cache.
    warm_to: u64,
    /// Fetch bytes through a helper instead of calling `sendfile`, which could block or is not
    /// supported.
    fetches: bool,
    /// Waits for a helper, and not for room.
    pub(crate) is_helped: bool,
    /// How often the socket was full halfway.
    pub(crate) shorts: u64,
}

/// What a [`FileSend`] waits for.
#[derive(Debug)]
pub(crate) enum Step {
    /// Finished: how many bytes were sent.
    Done(Result<u64, Errno>),
    /// Room in the socket. `refused` if the last call sent nothing; otherwise it sent less than
    /// requested, which mostly means a full socket, and sometimes the end of the file.
    Room { refused: bool },
    /// A helper's answer.
    Helper,
}

impl FileSend {
    pub(crate) fn new(token: Token, head: Vec<u8>, file: &File, offset: u64, len: u64) -> Self {
        let fetches = file.as_os().store == Store::Remote;
        Self {
            token,
            held: head,
            held_sent: 0,
            file: file.clone(),
            offset,
            len,
            sent: 0,
            warm_to: 0,
            fetches,
            is_helped: false,
            shorts: 0,
        }
    }

    /// Sends as much as possible without waiting.
    pub(crate) fn step(
        &mut self,
        socket: BorrowedFd<'_>,
        disk: &mut OsDisk,
        key: SlotKey,
        now: Nanos,
    ) -> Step {
        let step = self.try_step(socket, disk, key, now);
        self.is_helped = matches!(step, Step::Helper);
        step
    }

    fn try_step(
        &mut self,
        socket: BorrowedFd<'_>,
        disk: &mut OsDisk,
        key: SlotKey,
        now: Nanos,
    ) -> Step {
        loop {
            let result = if self.held_sent < self.held.len() {
                self.send_held(socket)
            } else if self.len == 0 {
                return Step::Done(Ok(self.sent));
            } else if self.fetches {
                let len = self.len.min(limits::FETCH_LEN as u64) as usize;
                return match disk.fetch(&self.file, self.offset, len, key) {
                    Ok(()) => Step::Helper,
                    Err(errno) => Step::Done(Err(errno)),
                };
            } else if self.offset >= self.warm_to && is_cold(&self.file, self.offset, self.len, now)
            {
                return match disk.warm(&self.file, self.offset, self.len, key) {
                    Ok(()) => Step::Helper,
                    Err(errno) => Step::Done(Err(errno)),
                };
            } else {
                self.send_range(socket)
            };
            match result {
                Ok(true) | Err(Errno::INTR) => {}
                Ok(false) => {
                    self.shorts += 1;
                    return Step::Room { refused: false };
                }
                Err(Errno::AGAIN) => return Step::Room { refused: true },
                // The file system does not support `sendfile`.
                Err(Errno::INVAL | Errno::NOSYS) if !self.fetches => self.fetches = true,
                Err(errno) => return Step::Done(Err(errno)),
            }
        }
    }

    /// Continues with a helper's answer: call [`step`](Self::step) after it returned true.
    pub(crate) fn receive(&mut self, answer: Result<Ready, Errno>) -> Result<(), Errno> {
        match answer? {
            // Trusted without a check: under memory pressure the range could be evicted as fast as
            // it is read in.
            Ready::Warm => self.warm_to = self.offset + self.len,
            Ready::Bytes(bytes) => {
                let read = bytes.len() as u64;
                self.offset += read;
                // Nothing more to read: the file ended before the range did.
                self.len = if read == 0 {
                    0
                } else {
                    self.len - read.min(self.len)
                };
                self.held = bytes;
                self.held_sent = 0;
            }
        }
        Ok(())
    }

    /// Bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the vector of the head, for reuse.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.held
    }

    /// Whether everything was sent (false: the socket is full).
    fn send_held(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, self.len > 0);
        let rest = &self.held[self.held_sent..];
        let sent = rustix::net::send(socket, rest, flags)?;
        self.held_sent += sent;
        self.sent += sent as u64;
        Ok(self.held_sent == self.held.len())
    }

    fn send_range(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        let file = self.file.as_os();
        let mut place = file.place(self.offset);
        let asked = file.place(self.offset + self.len) - place;
        let sent = rustix::fs::sendfile(socket, file, Some(&mut place), asked as usize)? as u64;
        self.offset += sent;
        self.sent += sent;
        // Zero means the end of the file. Fewer than requested means a full socket, or the end of
        // the file, which the next call reports.
        self.len = if sent == 0 { 0 } else { self.len - sent };
        Ok(sent == 0 || sent == asked)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ops::Range;
    use std::os::fd::AsFd;

    use super::*;

    /// Sends a range of a file to a socket that has room for it; how many bytes were sent.
    pub(crate) fn send(socket: impl AsFd, file: &File, range: Range<u64>) -> u64 {
        let len = range.end - range.start;
        let mut send = FileSend::new(Token(0), Vec::new(), file, range.start, len);
        while send.len > 0 {
            send.send_range(socket.as_fd()).expect("there is room");
        }
        send.sent()
    }
}
