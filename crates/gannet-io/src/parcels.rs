//! A pair of sockets between two processes of this machine, for messages with descriptors.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};

/// The most descriptors of one message: below the kernel's `SCM_MAX_FD`.
pub const DESCRIPTORS_MAX: usize = 200;

/// The longest message that [`Parcels::receive`] takes, in bytes: a datagram of any length, and its
/// addresses.
pub const MESSAGE_MAX: usize = 66_000;

/// One end. Messages keep their borders and their order; what one end has not received yet is
/// bounded by the socket's buffer.
#[derive(Debug)]
pub struct Parcels(OwnedFd);

impl Parcels {
    /// Both ends, closed on exec.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn pair() -> io::Result<(Self, Self)> {
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Another descriptor of this end.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.as_fd().try_clone_to_owned()?))
    }

    /// How long [`receive`](Self::receive) waits; without this, for ever.
    ///
    /// # Errors
    /// None that are known.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(
            &self.0,
            Timeout::Recv,
            Some(patience),
        )?)
    }

    /// Sends a message with at most [`DESCRIPTORS_MAX`] descriptors, without waiting.
    ///
    /// # Errors
    /// `EAGAIN` if the other end has too much to receive, `EPIPE` if it is closed, `EMSGSIZE`.
    pub fn send(&self, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::MSGSIZE.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.0, &parts, &mut control, flags)?;
        Ok(())
    }

    /// Waits for the next message, and appends it to `bytes`. Returns its descriptors, which are
    /// closed on exec. An empty message means that the other end is closed.
    ///
    /// # Errors
    /// `EAGAIN` after the [patience](Self::set_patience); `EMSGSIZE` for a message that is longer
    /// than [`MESSAGE_MAX`], or has more descriptors than [`DESCRIPTORS_MAX`] or than this process may
    /// open.
    pub fn receive(&self, bytes: &mut Vec<u8>) -> io::Result<Vec<OwnedFd>> {
        bytes.resize(MESSAGE_MAX, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let parts = &mut [IoSliceMut::new(bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(&self.0, parts, &mut control, flags) {
                // The other end was closed before it had received everything: reported once, before what it
                // has sent.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                received => break received?,
            }
        };
        bytes.truncate(received.bytes);
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        match received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            true => Err(Errno::MSGSIZE.into()),
            false => Ok(descriptors),
        }
    }

    /// Ends this end's part of the conversation, for all its descriptors: the only direction that the
    /// sandbox lets it end.
    pub fn shut_down(&self) {
        // Fails only if the other end has ended it.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }
}

impl From<OwnedFd> for Parcels {
    /// The end that another process has passed.
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for Parcels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn messages_carry_descriptors() {
        let (one, other) = Parcels::pair().expect("a pair");
        let zeros = File::open("/dev/zero").expect("there");
        one.send(&[b"ab", b"c"], &[zeros.as_fd()]).expect("room");
        one.send(&[b"d"], &[]).expect("room");
        let mut bytes = Vec::new();
        let got = other.receive(&mut bytes).expect("sent");
        assert_eq!(bytes, b"abc");
        let mut room = [1; 4];
        let file = got.into_iter().next().expect("one was sent");
        File::from(file).read_exact(&mut room).expect("zeros");
        assert_eq!(room, [0; 4]);
        assert!(other.receive(&mut bytes).expect("sent").is_empty());
        assert_eq!(bytes, b"d");
        drop(one);
        other.receive(&mut bytes).expect("the end");
        assert!(bytes.is_empty());
        assert!(other.send(&[b"x"], &[]).is_err());
    }

    /// What was sent last arrives, also from an end that has not received everything.
    #[test]
    fn the_last_words_arrive() {
        let (one, other) = Parcels::pair().expect("a pair");
        one.send(&[b"not received"], &[]).expect("room");
        other.send(&[b"last"], &[]).expect("room");
        drop(other);
        let mut bytes = Vec::new();
        one.receive(&mut bytes).expect("sent");
        assert_eq!(bytes, b"last");
        one.receive(&mut bytes).expect("the end");
        assert!(bytes.is_empty());
    }

    /// What is not received is refused, and does not block.
    #[test]
    fn what_is_not_received_is_bounded() {
        let (one, _other) = Parcels::pair().expect("a pair");
        let datagram = [7; 1200];
        let sent = (0..100_000).find_map(|_| one.send(&[&datagram], &[]).err());
        assert_eq!(
            sent.map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
    }
}
