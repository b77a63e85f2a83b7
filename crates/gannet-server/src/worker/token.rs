//! Tokens: what a completion of the engine is about, and who asked.

use gannet_io::driver::Token;

use crate::connection::{ConnId, GENERATION_MAX};

/// What a token asks for; the rest of the token names who asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A listener accepts: the slot is its number.
    Accept = 1,
    Receive = 2,
    Send = 3,
    /// The disk, on behalf of a connection.
    Disk = 4,
    /// Another thread has left a message.
    Wake = 5,
    /// The disk, on behalf of a stream: the slot is a number of
    /// [`StreamWaits`](crate::connection::stream_reads::StreamWaits).
    StreamDisk = 6,
    /// The disk, for a body that is to be loaded.
    Load = 7,
    /// The disk, for a listing.
    Listing = 8,
    /// The disk, for a copy of a live file.
    FirstRead = 9,
    /// Datagrams arrive: the slot is the number of a socket.
    Datagram = 10,
    /// A socket takes datagrams again, likewise.
    Sendable = 11,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Accept,
        Self::Receive,
        Self::Send,
        Self::Disk,
        Self::Wake,
        Self::StreamDisk,
        Self::Load,
        Self::Listing,
        Self::FirstRead,
        Self::Datagram,
        Self::Sendable,
    ];

    /// The kind of a token that was made by [`token`] or [`ConnId::token`].
    pub(crate) fn of(token: Token) -> Self {
        let number = (token.0 >> 56) as usize;
        debug_assert!((1..=Self::ALL.len()).contains(&number), "a token of ours");
        Self::ALL[number - 1]
    }
}

/// kind (8 bits) | generation (24) | slot (32). This one is not of a connection.
pub(crate) fn token(kind: Kind, number: u32) -> Token {
    Token(u64::from(kind as u8) << 56 | u64::from(number))
}

/// The number that [`token`] was called with.
pub(crate) fn number(token: Token) -> u32 {
    token.0 as u32
}

impl ConnId {
    /// What the engine answers a connection with.
    pub(crate) fn token(self, kind: Kind) -> Token {
        debug_assert!(self.generation <= GENERATION_MAX);
        Token(u64::from(kind as u8) << 56 | u64::from(self.generation) << 32 | u64::from(self.slot))
    }

    /// The connection that a token is about, if it was made by [`ConnId::token`].
    pub(crate) fn of(token: Token) -> Self {
        Self {
            slot: token.0 as u32,
            generation: (token.0 >> 32) as u32 & GENERATION_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_and_who() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(token(kind, u32::MAX)), kind);
            assert_eq!(number(token(kind, u32::MAX)), u32::MAX);
            let id = ConnId {
                slot: 7,
                generation: GENERATION_MAX,
            };
            assert_eq!(Kind::of(id.token(kind)), kind);
            assert_eq!(ConnId::of(id.token(kind)), id);
        }
    }
}
