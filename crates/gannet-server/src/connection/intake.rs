//! Received bytes, until they are used.

use crate::bounds::limits::{HELD_MAX, LINGER_BYTES_MAX};

/// Bytes received and not used yet. A connection that is closing cannot hold any: further input is
/// counted and discarded.
///
/// A request's bytes are here only if they arrived in pieces, or during a response. A closed intake
/// never reopens, so nothing after the last request can be parsed.
#[derive(Debug)]
pub(crate) enum Intake {
    Open(Vec<u8>),
    /// Number of bytes discarded since.
    Closed(u64),
}

impl Default for Intake {
    fn default() -> Self {
        Self::Open(Vec::new())
    }
}

impl Intake {
    /// Discards held and further input.
    pub(super) fn close(&mut self) {
        if let Self::Open(_) = self {
            *self = Self::Closed(0);
        }
    }

    /// Whether further input is discarded.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// The held bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Open(bytes) => bytes,
            Self::Closed(_) => &[],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Memory that the bytes occupy.
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Open(bytes) => bytes.capacity(),
            Self::Closed(_) => 0,
        }
    }

    /// Whether there is room to receive more.
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Self::Open(bytes) => bytes.len() <= HELD_MAX,
            Self::Closed(dropped) => *dropped <= LINGER_BYTES_MAX,
        }
    }

    /// Adds input that may be held for long, so it reserves exactly. False if receiving should
    /// pause.
    #[must_use]
    pub(crate) fn hold(&mut self, input: &[u8]) -> bool {
        if let Self::Open(bytes) = self {
            bytes.reserve_exact(input.len());
        }
        self.add(input);
        self.has_room()
    }

    /// Adds input that is about to be processed.
    pub(crate) fn add(&mut self, input: &[u8]) {
        match self {
            Self::Open(bytes) => bytes.extend_from_slice(input),
            Self::Closed(dropped) => *dropped += input.len() as u64,
        }
    }

    /// Takes the bytes out; unused ones return by [`Intake::keep`].
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Open(bytes) => std::mem::take(bytes),
            Self::Closed(_) => Vec::new(),
        }
    }

    /// Returns bytes from [`Intake::take`], except the first `used`.
    pub(crate) fn keep(&mut self, mut input: Vec<u8>, used: usize) {
        if let Self::Open(bytes) = self
            && used < input.len()
        {
            debug_assert!(bytes.is_empty(), "no input was added meanwhile");
            input.drain(..used);
            if input.len() < input.capacity() / 2 {
                input.shrink_to_fit();
            }
            *bytes = input;
        }
    }

    /// Drops the bytes and frees their memory.
    pub(crate) fn clear(&mut self) {
        if let Self::Open(bytes) = self {
            *bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_comes_first_again() {
        let mut intake = Intake::default();
        assert!(intake.hold(b"abc") && intake.hold(b"def"));
        let taken = intake.take();
        assert!(intake.is_empty());
        intake.keep(taken, 2);
        intake.add(b"g");
        assert_eq!(intake.bytes(), b"cdefg");
        let taken = intake.take();
        intake.keep(taken, 4);
        assert_eq!(intake.bytes(), b"g");
        intake.clear();
        assert_eq!(intake.capacity(), 0);
    }

    #[test]
    fn after_the_last_request_nothing_is_held() {
        let mut intake = Intake::default();
        assert!(intake.hold(b"abc"));
        let taken = intake.take();
        intake.close();
        intake.keep(taken, 0);
        intake.add(b"def");
        assert!(intake.hold(&vec![0; HELD_MAX * 2]), "a peer may still send");
        assert!(intake.is_closed() && intake.is_empty());
        assert_eq!((intake.capacity(), intake.take().capacity()), (0, 0));
        let mut held = 0;
        while intake.hold(&[0; 4096]) {
            held += 4096;
            assert!(held <= LINGER_BYTES_MAX, "up to the limit");
        }
    }
}
