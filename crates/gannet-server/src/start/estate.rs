//! What a server hands over to the process that takes its place, and what it takes over from the one
//! before.
//!
//! ```text
//!  Running ── estate: descriptors ─▶ (the program) ─▶ Bound, Inheritance ── prepare, serve
//!     │                                                                         │
//!     └── hand_over: stops accepting and receiving, finishes its connections ◀──┘ ready
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gannet_io::parcels::Parcels;

use super::quic::QuicEstate;
use crate::bounds::limits::ELDERS_MAX;
use crate::config::ListenAddress;
use crate::quic::settings::SECRETS_LEN;

/// What a server takes over besides its listeners. The default is that of a server without a
/// predecessor.
#[derive(Default)]
pub struct Inheritance {
    /// The listener of the metrics.
    pub metrics: Option<OwnedFd>,
    /// The number of this process in a row of upgrades, modulo 256. Connection IDs of HTTP/3 name it.
    pub generation: u8,
    /// The secrets of HTTP/3.
    pub secrets: Option<[u8; SECRETS_LEN]>,
    /// Earlier processes that may still have HTTP/3 connections: the generation of each, and the link
    /// that takes datagrams for it.
    pub elders: Vec<(u8, Parcels)>,
}

/// One thing that a server hands over.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// Listeners at this address.
    Listeners(&'a ListenAddress, &'a [OwnedFd]),
    /// UDP sockets at this address, for HTTP/3.
    Datagrams(SocketAddr, &'a [OwnedFd]),
    /// The listener of the metrics.
    Metrics(BorrowedFd<'a>),
}

/// The descriptors of a running server, kept for the process that may take its place.
#[derive(Default)]
pub(crate) struct Estate {
    pub(crate) listeners: Vec<(ListenAddress, Vec<OwnedFd>)>,
    pub(crate) metrics: Option<OwnedFd>,
    pub(crate) quic: QuicEstate,
}

impl Estate {
    /// All of it, in an order that does not change.
    pub(crate) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let listeners = self.listeners.iter();
        let datagrams = self.quic.sockets.iter();
        listeners
            .map(|(address, sockets)| Item::Listeners(address, sockets))
            .chain(datagrams.map(|(address, sockets)| Item::Datagrams(*address, sockets)))
            .chain(self.metrics.iter().map(|it| Item::Metrics(it.as_fd())))
    }

    /// The links to the latest of the earlier processes, for a process that may get one more: its
    /// predecessor's.
    pub(crate) fn elders(&self) -> io::Result<Vec<(u8, Parcels)>> {
        let links = self.quic.elders.links();
        let mut all: Vec<_> = links
            .map(|(generation, link)| Ok((generation, link.try_clone()?)))
            .collect::<io::Result<_>>()?;
        // Older ones have had the grace period of several upgrades.
        let spare = (all.len() + 1).saturating_sub(ELDERS_MAX);
        all.drain(..spare);
        Ok(all)
    }
}
