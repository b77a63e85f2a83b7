//! What the epoll engine knows of each socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::driver::Token;
use crate::file_send::FileSend;
use crate::ktls::{ControlRecord, Stage};
use crate::progress::Progress;

/// A socket.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) fd: Option<OwnedFd>,
    /// Tells a socket from the earlier ones of its slot, for helpers' answers and posted ends.
    pub(super) generation: u32,
    /// Bytes may be there: an event said so, and no call has found the contrary since.
    pub(super) is_readable: bool,
    /// The end of the stream (or an error) is there, behind the bytes: no further event will come.
    pub(super) has_ended: bool,
    /// The caller wants to receive.
    pub(super) wants: bool,
    /// It wants to receive only once.
    pub(super) wants_once: bool,
    /// It is in the list of sockets to receive from.
    pub(super) is_listed: bool,
    pub(super) receive_token: Option<Token>,
    pub(super) sending: Sending,
    /// End the sending half when the send under way is done.
    pub(super) shuts_down: bool,
    /// Bytes sent in all completed sends.
    pub(super) sent: u64,
    pub(super) kernel_tls: Stage,
}

/// The send of a socket that waits for room (or for a helper).
#[derive(Debug, Default)]
pub(super) enum Sending {
    #[default]
    Nothing,
    List(Token, Progress),
    Control(Token, ControlRecord),
    File {
        send: Box<FileSend>,
        /// Waits for a helper, not for room: events are of no interest.
        is_helped: bool,
    },
}

impl Slot {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.fd
            .as_ref()
            .expect("a slot in use has its descriptor")
            .as_fd()
    }
}

/// All sockets of a driver.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, fd: OwnedFd) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("descriptors number fewer than 2^31")
        });
        self.slots[index as usize].fd = Some(fd);
        index
    }

    /// Empties a slot; dropping its descriptor closes the socket and ends its registration.
    pub(super) fn remove(&mut self, index: u32) -> Sending {
        let slot = &mut self.slots[index as usize];
        assert!(slot.fd.is_some(), "a socket is closed once");
        let fresh = Slot {
            generation: slot.generation.wrapping_add(1),
            // Its entry in the list is still there, and is then the next socket's.
            is_listed: slot.is_listed,
            ..Slot::default()
        };
        let old = std::mem::replace(slot, fresh);
        self.free.push(index);
        old.sending
    }

    pub(super) fn get(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    pub(super) fn peek(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}
