//! Connections and streams that wait for a result, each by the token that wakes it.

use std::collections::VecDeque;

use gannet_io::driver::Token;

use crate::exchange::stream_waits::StreamWaits;
use crate::ground::alive::Alive;
use crate::ground::token::ConnId;
use crate::ground::token::{Kind, number};

/// All possible waiters.
#[derive(Default)]
pub(crate) struct Waiters {
    pub(crate) connections: Alive,
    pub(crate) streams: StreamWaits,
}

impl Waiters {
    /// The connection of a waiter.
    pub(crate) fn connection_of(&self, waiter: Token) -> ConnId {
        match Kind::of(waiter) {
            Kind::StreamDisk => self.streams.owner(number(waiter)),
            _ => ConnId::of(waiter),
        }
    }

    /// Forgets a waiter whose connection is gone; returns whether it is. A stream that was reset is
    /// still woken, because its connection counts pending operations.
    pub(crate) fn forget_if_gone(&mut self, waiter: Token) -> bool {
        match Kind::of(waiter) {
            Kind::StreamDisk => self
                .streams
                .forget_if_gone(&self.connections, number(waiter)),
            _ => !self.connections.has(ConnId::of(waiter)),
        }
    }
}

/// Waiters for the same result, in order of arrival.
#[derive(Default)]
pub(crate) struct Line(pub(crate) VecDeque<Token>);

impl Line {
    /// Adds a waiter. Before the queue grows, waiters whose connections are gone are removed.
    pub(crate) fn push(&mut self, waiter: Token, waiters: &mut Waiters) {
        if self.0.len() == self.0.capacity() {
            self.prune(waiters);
        }
        self.0.push_back(waiter);
    }

    /// Removes waiters whose connections are gone; returns whether any waiter is left.
    pub(crate) fn prune(&mut self, waiters: &mut Waiters) -> bool {
        self.0.retain(|waiter| !waiters.forget_if_gone(*waiter));
        !self.0.is_empty()
    }
}
