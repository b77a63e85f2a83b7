//! Long live files, sent as pages: the end is held back until the peer has the pages.
//!
//! ```text
//!   pages, slice by slice ──▶ the tail, as copies ──▶ its last slice, when the peer has all pages
//!          └── it has changed ──▶ reset                     └── it has changed ──▶ reset
//! ```
//! `sendfile` queues references to pages: a write to the file before the peer has them reaches the
//! peer. A response is therefore completed only if the file is unchanged after the peer has
//! every page ([`Receipt`]). The copies in between keep the connection busy, so that as a rule
//! nothing waits. Of a file that no process can change all pages are sent, to every peer.

use std::cmp::Reverse;
use std::ops::Range;

use gannet_io::driver::{Driver, Nanos, Receipt};

use super::Active;
use super::kernel_tls::Slice;
use crate::bounds::limits::{ACKNOWLEDGED_FIRST_NS, LAST_SLICE_PART, SLICE_MAX};
use crate::clients::{Client, Clients};
use crate::release::ServedFile;

impl<D: Driver> Active<'_, D> {
    /// Number of bytes at the beginning of a range to send to this peer as pages of the file;
    /// `None` if it gets copies.
    pub(super) fn pages_len(&mut self, file: &ServedFile, range: &Range<u64>) -> Option<u64> {
        if file.growth().is_some() || file.partial.is_some() {
            return None;
        }
        let is_secure = self.conn.is_secure();
        if is_secure && !self.is_kernel() {
            return None;
        }
        // Later slices begin at multiples of it.
        let aligned = SLICE_MAX - range.start % SLICE_MAX;
        let most = aligned.min(Client::slice_most(self.conn.client.as_deref()));
        let left = range.end - range.start;
        if file.cannot_change(&self.shared.driver) {
            return Some(left.min(most));
        }
        let tail = self.shared.settings.tail_len;
        let least = match self.conn.work().pages_end {
            Some(_) => tail,
            // Shorter ones are not worth a wait.
            None => tail * 4,
        };
        // The kernel encrypts pages as it takes them: none of them stay in the queue.
        let may_send = left > least && (is_secure || self.has_receipt());
        may_send.then(|| (left - tail).min(most))
    }

    /// Number of bytes at the beginning of a range to send as a copy; `None` if they are the last
    /// ones and the peer does not have all pages yet.
    pub(super) fn copy_len(&mut self, range: &Range<u64>, is_first: bool) -> Option<u64> {
        let left = range.end - range.start;
        let len = left.min(self.copy_slice_len(is_first));
        let conn = &mut *self.conn;
        let Some(end) = conn.work().pages_end else {
            return Some(len);
        };
        let last = self.shared.settings.tail_len / LAST_SLICE_PART;
        if left > last {
            return Some(len.min(left - last));
        }
        if self.shared.driver.received_by_peer(conn.socket) < end {
            return None;
        }
        conn.work().pages_end = None;
        Some(len)
    }

    /// Whether it can be known that the peer has pages. Queried once per response: a route seldom changes.
    fn has_receipt(&mut self) -> bool {
        let (shared, conn) = (&mut *self.shared, &mut *self.conn);
        let (socket, address) = (conn.socket, conn.address);
        *conn.work().has_receipt.get_or_insert_with(|| {
            // A proxy may pass pages on without reading them.
            let settings = &shared.settings;
            let mut listeners = settings.listeners.iter();
            let has_header = listeners.any(|it| it.is_proxied && it.address == address);
            let peer = shared.driver.peer(socket);
            let is_proxy = || has_header || Clients::is_proxy(settings.clients.as_deref(), peer);
            match shared.driver.receipt(socket) {
                Receipt::Acknowledged => true,
                Receipt::Read => !is_proxy(),
                Receipt::Unknown => false,
            }
        })
    }

    /// Holds the last slice back until the peer has the pages before it.
    pub(super) fn hold_back_tail(&mut self, slice: Slice) {
        self.cork(false);
        self.put_back(slice);
        let now = self.shared.driver.now();
        self.conn.work().waits_since = Some(now);
        let at = Nanos(now.0 + ACKNOWLEDGED_FIRST_NS);
        self.shared.tails.0.push(Reverse((at, self.conn.id)));
    }

    /// Continues if the peer has all pages.
    pub(crate) fn check_tail(&mut self) {
        let now = self.shared.driver.now();
        let (id, socket) = (self.conn.id, self.conn.socket);
        let work = self.conn.work();
        let (Some(since), Some(end)) = (work.waits_since, work.pages_end) else {
            return;
        };
        if self.shared.driver.received_by_peer(socket) >= end {
            work.waits_since = None;
            return self.send_next_part();
        }
        let more = ACKNOWLEDGED_FIRST_NS + (now.0 - since.0) / 8;
        let at = Nanos(now.0 + more);
        self.shared.tails.0.push(Reverse((at, id)));
    }
}
