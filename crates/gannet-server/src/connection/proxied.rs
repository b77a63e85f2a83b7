//! Connections by proxies that name the client in their first bytes (PROXY protocol).

use gannet_http::proxy_protocol::{self, Origin};
use gannet_io::driver::{Driver, Peer};

use super::{Active, Phase};
use crate::clients::Clients;
use crate::ground::delay::Arrived;

impl<D: Driver> Active<'_, D> {
    /// Begins a connection whose first bytes have to be a header. Only a trusted proxy may name a client:
    /// anyone else is turned away.
    pub(super) fn begin_proxied(&mut self) {
        let shared = &mut *self.shared;
        let peer = shared.driver.peer(self.conn.socket);
        if !Clients::may_introduce(shared.settings.clients.as_deref(), peer) {
            // One whose peer has reset it already has no address any more: no client's attempt.
            if peer != Peer::Unknown {
                shared.counters.clients.untrusted += 1;
                shared.note_untrusted(peer, self.conn.address);
            }
            return self.close();
        }
        self.conn.phase = Phase::Proxied;
        self.arm_first_receive();
        // For the header and the first request together.
        self.set_deadline(self.shared.settings.limits.head_timeout_ms);
    }

    /// Handles bytes of the header, and those behind it.
    pub(super) fn header_arrived(&mut self, arrived: Arrived<'_>) {
        let conn = &mut *self.conn;
        let mut input = conn.intake.take();
        input.extend_from_slice(arrived.bytes(&self.shared.driver));
        arrived.release(&mut self.shared.driver);
        let (origin, len) = match proxy_protocol::parse(&input) {
            Ok(Some(header)) => header,
            Ok(None) => {
                // Less than the longest header is held.
                conn.intake.keep(input, 0);
                return self.arm_receive();
            }
            Err(_) => {
                self.shared.counters.clients.malformed_headers += 1;
                let peer = self.shared.driver.peer(self.conn.socket);
                self.shared.note_no_header(peer, self.conn.address);
                return self.close();
            }
        };
        self.shared.counters.clients.introduced += 1;
        if !self.introduced(origin) {
            return self.close();
        }
        self.conn.phase = Phase::Reading;
        self.begin_protocol();
        input.drain(..len);
        match input.is_empty() {
            true => self.arm_receive(),
            false => self.arrived(Arrived::Held(input)),
        }
    }

    /// Notes the client that a header names. False if it may not have this connection.
    fn introduced(&mut self, origin: Origin) -> bool {
        let shared = &*self.shared;
        if !shared.knows_clients() {
            return true;
        }
        let peer = match origin {
            Origin::Client(address) => Peer::Ip(address),
            Origin::Proxy => shared.driver.peer(self.conn.socket),
            Origin::Unknown => Peer::Unknown,
        };
        self.identify(peer)
    }
}
