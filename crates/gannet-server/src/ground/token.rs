//! Tokens: the operation and the owner of a completion.

use gannet_io::driver::Token;

/// The operation of a token; the rest of the token names its owner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A listener accepts; the slot is the listener's number.
    Accept = 1,
    Receive = 2,
    Send = 3,
    /// A disk operation for a connection.
    Disk = 4,
    /// Another thread has left a message.
    Wake = 5,
    /// A disk operation for a stream; the slot is a number of
    /// [`StreamWaits`](crate::exchange::stream_waits::StreamWaits).
    StreamDisk = 6,
    /// A disk operation that loads a body.
    Load = 7,
    /// A disk operation for a listing.
    Listing = 8,
    /// A disk operation that copies a live file.
    FirstRead = 9,
    /// Datagrams arrive; the slot is the number of a socket.
    Datagram = 10,
    /// A socket can send datagrams again; the slot is the number of a socket.
    Sendable = 11,
    /// A disk operation that reads the names of a folder.
    Survey = 12,
}

impl Kind {
    const ALL: [Self; 12] = [
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
        Self::Survey,
    ];

    /// The kind of a token made by [`token`] or [`ConnId::token`].
    pub(crate) fn of(token: Token) -> Self {
        let number = (token.0 >> 56) as usize;
        debug_assert!((1..=Self::ALL.len()).contains(&number), "a token of ours");
        Self::ALL[number - 1]
    }
}

/// kind (8 bits) | generation (24) | slot (32). This one belongs to no connection.
pub(crate) fn token(kind: Kind, number: u32) -> Token {
    Token(u64::from(kind as u8) << 56 | u64::from(number))
}

/// The number that [`token`] was called with.
pub(crate) fn number(token: Token) -> u32 {
    token.0 as u32
}

/// Generations are counted modulo 2^24: they fit into a token beside kind and slot.
pub(crate) const GENERATION_MAX: u32 = (1 << 24) - 1;

/// Identifies a connection: its slot, and how often the slot was used before.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ConnId {
    /// Counted modulo [`GENERATION_MAX`] + 1, so that late completions find no connection. It is
    /// the first field: among connections accepted in one turn, those in more often used slots sort
    /// later.
    pub(crate) generation: u32,
    pub(crate) slot: u32,
}

/// The bit of a slot that marks the rest as a QUIC connection's number.
const QUIC: u32 = 1 << 31;

impl ConnId {
    /// The identifier of the QUIC connection with this number.
    pub(crate) fn of_quic(number: usize, generation: u32) -> Self {
        let number = u32::try_from(number).expect("connections are bounded");
        Self {
            generation,
            slot: number | QUIC,
        }
    }

    /// Whether it identifies a QUIC connection.
    pub(crate) fn is_quic(self) -> bool {
        self.slot & QUIC != 0
    }

    /// The number of a QUIC connection.
    pub(crate) fn quic_number(self) -> usize {
        (self.slot & !QUIC) as usize
    }
}

impl ConnId {
    /// The token for an operation of this connection.
    pub(crate) fn token(self, kind: Kind) -> Token {
        debug_assert!(self.generation <= GENERATION_MAX);
        Token(u64::from(kind as u8) << 56 | u64::from(self.generation) << 32 | u64::from(self.slot))
    }

    /// The connection that a token belongs to, if it was made by [`ConnId::token`].
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
