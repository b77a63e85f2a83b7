//! The anti-amplification limit (RFC 9000 sections 8.1 and 9.3).

use crate::bounds::quic::VENTURED_BY_MOVE;

/// A client's address may be spoofed: until it is validated, at most three times the bytes received
/// are sent to it. Counted here, because the library exceeds the limit by up to one datagram.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Bytes of datagrams received.
    received: u64,
    /// Bytes sent to addresses that were not validated.
    ventured: u64,
    /// Whether the present address is validated.
    is_shown: bool,
}

impl Allowance {
    /// For a client whose first datagram has `len` bytes. `is_shown`: it has a valid token.
    pub(super) fn new(len: usize, is_shown: bool) -> Self {
        Self {
            received: len as u64,
            ventured: 0,
            is_shown,
        }
    }

    /// Counts received bytes.
    pub(super) fn receive(&mut self, len: usize) {
        self.received += len as u64;
    }

    /// The present address is validated.
    pub(super) fn show(&mut self) {
        self.is_shown = true;
    }

    /// The client has migrated to an address that is not validated.
    pub(super) fn has_moved(&mut self) {
        self.is_shown = false;
    }

    /// Whether the present address is validated.
    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Bytes that may still be sent to addresses that are not validated.
    fn left(&self) -> u64 {
        (3 * self.received).saturating_sub(self.ventured)
    }

    /// Whether a migration is permitted.
    pub(super) fn lets_move(&self) -> bool {
        self.left() >= VENTURED_BY_MOVE
    }

    /// Maximum datagrams of up to `longest` bytes that may be sent now.
    pub(super) fn datagrams(&self, longest: u16) -> usize {
        match self.is_shown {
            true => usize::MAX,
            false => usize::try_from(self.left() / u64::from(longest.max(1))).unwrap_or(usize::MAX),
        }
    }

    /// Counts bytes sent to the present address, which is not validated.
    pub(super) fn sent(&mut self, len: usize) {
        self.ventured += len as u64;
    }
}
