//! The anti-amplification limit (RFC 9000 sections 8.1 and 9.3).

use crate::bounds::quic::VENTURED_BY_MOVE;

/// A client's address may be spoofed: until it is validated, at most three times the bytes received
/// are sent to it. Counted here, because the library exceeds the limit by up to one datagram.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Bytes of datagrams received.
    received: u64,
    /// Bytes sent to the present address while it was not validated.
    on_trial: u64,
    /// The same for all other addresses, of which none has answered.
    lost: u64,
    /// Whether the present address is validated.
    is_shown: bool,
}

impl Allowance {
    /// For a client whose first datagram has `len` bytes. `is_shown`: it has a valid token.
    pub(super) fn new(len: usize, is_shown: bool) -> Self {
        Self {
            received: len as u64,
            on_trial: 0,
            lost: 0,
            is_shown,
        }
    }

    /// Counts received bytes.
    pub(super) fn receive(&mut self, len: usize) {
        self.received += len as u64;
    }

    /// The present address is validated: by the handshake, or because the client has returned to it.
    pub(super) fn show(&mut self) {
        self.is_shown = true;
    }

    /// The client has migrated to an address that is not validated.
    pub(super) fn has_moved(&mut self) {
        self.is_shown = false;
        self.lost += std::mem::take(&mut self.on_trial);
    }

    /// The present address, to which the client has migrated, has answered its challenge: what was
    /// sent there no longer counts. Otherwise a client that only receives would run out of
    /// migrations.
    pub(super) fn has_answered(&mut self) {
        self.is_shown = true;
        self.on_trial = 0;
    }

    /// Whether the present address is validated.
    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Bytes that may still be sent to addresses that are not validated.
    fn left(&self) -> u64 {
        (3 * self.received).saturating_sub(self.on_trial + self.lost)
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
        self.on_trial += len as u64;
    }

    /// Counts bytes sent to another address, which is not validated either.
    pub(super) fn strayed(&mut self, len: usize) {
        self.lost += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::quic::DATAGRAM_MAX;

    const FULL: usize = DATAGRAM_MAX as usize;

    /// What one datagram permits: one migration that is not answered.
    fn allowance() -> Allowance {
        Allowance::new(FULL, true)
    }

    /// Sends as much as a migration may.
    fn venture(it: &mut Allowance) {
        it.has_moved();
        it.sent(2 * FULL);
    }

    #[test]
    fn a_client_that_answers_may_move_as_often_as_it_likes() {
        let mut it = allowance();
        for _ in 0..100 {
            assert!(it.lets_move());
            venture(&mut it);
            it.has_answered();
        }
    }

    #[test]
    fn an_answer_gives_back_nothing_of_other_addresses() {
        let mut it = allowance();
        venture(&mut it);
        // It never answered there: its next address does.
        it.has_moved();
        it.sent(FULL);
        assert_eq!(it.left(), 0);
        it.has_answered();
        assert_eq!(it.left(), FULL as u64);
        assert!(!it.lets_move());
    }

    #[test]
    fn a_return_gives_back_nothing() {
        let mut it = allowance();
        venture(&mut it);
        it.show();
        assert!(!it.lets_move());
        it.has_moved();
        it.has_answered();
        assert!(!it.lets_move());
    }

    #[test]
    fn an_answer_gives_back_nothing_that_strayed() {
        let mut it = allowance();
        it.has_moved();
        it.strayed(2 * FULL);
        it.has_answered();
        assert!(!it.lets_move());
    }
}
