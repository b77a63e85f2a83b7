//! QUIC as part of a worker's turn.

use std::sync::Arc;

use bytes::BytesMut;
use gannet_io::driver::{Datagram, DatagramSocket, Driver, Errno, Nanos, Peer};
use gannet_io::memory::Memory;
use quinn_proto::{DatagramEvent, EcnCodepoint, EndpointEvent, Transmit};

use super::allowance::Allowance;
use super::connection::{ActiveQuic, QuicConn, failure};
use super::routing::{self, Issuer};
use super::sending::Trains;
use super::{FirstSeen, Quic};
use crate::bounds::ledger::{BytesByAccount, Work};
use crate::bounds::limits::UNTAKEN_MAX;
use crate::bounds::quic::{
    BARE_MAX, DELAYED_MAX, HANDSHAKES_UNVALIDATED_MAX, HANDSHAKES_UNVALIDATED_PART,
    SENT_PER_TURN_MAX,
};
use crate::clients::Client;
use crate::exchange::shared::Shared;
use crate::exchange::stream_waits::{DiskStreams, Question};
use crate::ground::inbox::RoutedDatagram;
use crate::ground::timers::Tick;
use crate::ground::token::ConnId;
use crate::ground::token::{Kind, token};
use crate::observe::stages::Stage;
use crate::release::wakeup::Wakeup;
use crate::tls::negotiated;
use crate::worker::Worker;

impl<D: Driver> Worker<D> {
    /// Starts receiving datagrams, if HTTP/3 is enabled. Called once, at the start of the worker.
    pub(crate) fn begin_quic(&mut self) {
        let shared = &mut self.shared;
        let settings = shared.settings.quic.clone();
        let (Some(settings), Some(certificates)) = (settings, shared.certificates.as_mut()) else {
            return;
        };
        let now = shared.driver.now();
        let (number, limits) = (shared.settings.number, &shared.settings.limits);
        self.quic = Some(Quic::new(&settings, number, limits, certificates, now));
        for (number, socket) in (0..).zip(&settings.sockets) {
            if socket.receives {
                let token = token(Kind::Datagram, number);
                let number = DatagramSocket(number);
                shared.driver.receive_datagrams(number, token);
            }
        }
    }

    /// Leaves the datagram sockets to the process that takes this one's place, as far as it has taken
    /// their addresses. Clients that were received already are accepted, and no others after them.
    pub(crate) fn leave_quic(&mut self, taken: &[bool]) {
        let shared = &mut self.shared;
        if let Some(settings) = &shared.settings.quic {
            for (number, socket) in (0..).zip(&settings.sockets) {
                let is_taken = taken.get(socket.address as usize);
                if socket.receives && is_taken == Some(&true) {
                    shared.driver.leave_datagrams(DatagramSocket(number));
                }
            }
        }
        while let Some(quic) = &mut self.quic
            && let Some(first) = quic.incoming.pop_front()
        {
            self.accept_quic(first);
        }
    }

    /// Takes a datagram that a socket has received, and forwards it if it belongs to another
    /// worker or another process.
    pub(crate) fn datagram(&mut self, socket: DatagramSocket, datagram: Datagram) {
        let settings = self.shared.settings.quic.as_ref();
        let of = settings.and_then(|settings| settings.sockets.get(socket.0 as usize));
        let socket = of.map_or(socket, |of| DatagramSocket(of.address));
        let driver = &mut self.shared.driver;
        let bytes = driver.received(&datagram.lease);
        let forwarded = RoutedDatagram {
            socket,
            bytes: BytesMut::from(bytes),
            peer: datagram.peer,
            local: datagram.local,
            ecn: datagram.ecn,
        };
        driver.release(datagram.lease);
        let Some(settings) = &self.shared.settings.quic else {
            return;
        };
        let counters = &mut self.shared.counters.quic;
        let issuer = routing::issuer(&forwarded.bytes);
        if let Some(Issuer { generation, .. }) =
            issuer.or_else(|| routing::possible_issuer(&forwarded.bytes))
            && generation != settings.generation
        {
            // Not for this process any more, which does not know that yet.
            if issuer.is_some() && generation == settings.generation.wrapping_add(1) {
                return;
            }
            if settings.elders.has(generation)
                && let Some(at) = settings.addresses.get(socket.0 as usize)
                && settings.elders.pass(generation, *at, &forwarded)
            {
                counters.forwarded += 1;
                return;
            }
        }
        let worker = match (issuer, settings.spread) {
            (Some(issuer), _) => Some(issuer.worker),
            (None, Some(workers)) => routing::spread(&forwarded.bytes, workers),
            (None, None) => None,
        };
        match worker {
            Some(worker)
                if usize::from(worker) != self.shared.settings.number && self.peers.has(worker) =>
            {
                counters.forwarded += u64::from(self.peers.forward(worker, forwarded));
            }
            _ => self.handle(forwarded),
        }
    }

    /// Handles a datagram of one of this worker's connections or of a new client, after the time of
    /// `--delay` if that is set.
    pub(crate) fn handle(&mut self, datagram: RoutedDatagram) {
        let delay_ms = self.shared.settings.limits.delay_ms;
        match &mut self.quic {
            Some(quic) if delay_ms > 0 => {
                // More are dropped, as by a network whose queues are full.
                if quic.delayed.len() < DELAYED_MAX {
                    let due = self.shared.driver.now().plus_ms(delay_ms);
                    quic.delayed.push_back((due, datagram));
                }
            }
            _ => self.handle_now(datagram),
        }
    }

    /// Handles the datagrams whose delay has passed.
    fn hand_on_datagrams(&mut self) {
        let now = self.shared.driver.now();
        while let Some(quic) = &mut self.quic
            && quic.delayed.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, datagram)) = quic.delayed.pop_front()
        {
            self.handle_now(datagram);
        }
    }

    fn handle_now(&mut self, datagram: RoutedDatagram) {
        let Some(quic) = &mut self.quic else { return };
        let shared = &mut self.shared;
        let now = quic.clock.at(shared.driver.now());
        let len = datagram.bytes.len();
        let has_our_id = routing::issuer(&datagram.bytes).is_some();
        let mut buffer = std::mem::take(&mut quic.trains.buffer);
        let event = quic.endpoint.handle(
            now,
            datagram.peer,
            datagram.local,
            EcnCodepoint::from_bits(datagram.ecn),
            datagram.bytes,
            &mut buffer,
        );
        quic.trains.buffer = buffer;
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Some(id) = quic.table.id_of(handle.0) else {
                    return;
                };
                if let Some(conn) = quic.table.find(id)
                    && conn.may_come_from(datagram.peer, len, has_our_id)
                {
                    let before = conn.quic.remote_address();
                    conn.quic.handle_event(event);
                    conn.datagrams_unchecked += 1;
                    // Only an authenticated packet changes the address, and with it the socket.
                    if conn.quic.remote_address() != before {
                        conn.socket = datagram.socket;
                        conn.allowance.has_moved();
                    } else if conn.is_shaking() && !conn.quic.is_handshaking() {
                        conn.allowance.show();
                    }
                    quic.table.mark(id);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let socket = datagram.socket;
                self.incoming(FirstSeen {
                    socket,
                    len,
                    incoming,
                });
            }
            Some(DatagramEvent::Response(transmit)) => {
                quic.respond(shared, datagram.socket, &transmit);
            }
        }
    }

    /// Handles the first packet of a client: accepts, defers, or asks it to validate its address.
    fn incoming(&mut self, first: FirstSeen) {
        let has_time = self.shared.budget.has_left(Work::Hello);
        let Some(quic) = &mut self.quic else { return };
        let under_way = quic.handshakes + quic.incoming.len();
        let places = self.shared.settings.connections_max / HANDSHAKES_UNVALIDATED_PART;
        if under_way >= places.min(HANDSHAKES_UNVALIDATED_MAX)
            && !first.incoming.remote_address_validated()
            && first.incoming.may_retry()
        {
            self.shared.counters.quic.retries += 1;
            let mut buffer = std::mem::take(&mut quic.trains.buffer);
            let transmit = quic.endpoint.retry(first.incoming, &mut buffer);
            quic.trains.buffer = buffer;
            if let Ok(transmit) = transmit {
                quic.respond(&mut self.shared, first.socket, &transmit);
            }
        } else if has_time && quic.incoming.is_empty() {
            self.accept_charged(first);
        } else {
            quic.incoming.push_back(first);
        }
    }

    /// Accepts clients that earlier turns deferred.
    fn accept_waiting(&mut self) {
        while self.has_room() && self.shared.budget.has_left(Work::Hello) {
            let Some(quic) = &mut self.quic else { return };
            let Some(first) = quic.incoming.pop_front() else {
                return;
            };
            self.accept_charged(first);
        }
    }

    /// Accepts a client at the cost of its handshake. Verifying its certificate, if it is asked for one,
    /// costs as much again, and the library cannot be made to wait before that.
    fn accept_charged(&mut self, first: FirstSeen) {
        for _ in 0..1 + u8::from(self.shared.asks_clients()) {
            self.shared.budget.take(Work::Hello, 1);
        }
        self.accept_quic(first);
    }

    fn accept_quic(&mut self, first: FirstSeen) {
        let FirstSeen {
            socket,
            len,
            incoming,
        } = first;
        // After a hand-over, clients are those that were received before it.
        let is_stopping = self.shared.stop_at.is_some() && !self.shared.is_handed_over;
        let is_full = is_stopping || !self.has_place();
        let now_open = self.connection_count() + 1;
        let Some(quic) = &mut self.quic else { return };
        let shared = &mut self.shared;
        let now = shared.driver.now();
        // The certificates may have changed since the packet arrived.
        let certificates = shared.certificates.as_mut();
        let config =
            certificates.map(|certificates| quic.adopt(certificates, &shared.settings.limits));
        let mut buffer = std::mem::take(&mut quic.trains.buffer);
        if is_full {
            shared.counters.shed += 1;
            let transmit = quic.endpoint.refuse(incoming, &mut buffer);
            quic.trains.buffer = buffer;
            return quic.respond(shared, socket, &transmit);
        }
        let clients = shared.settings.clients.as_ref();
        let client = shared.knows_clients().then(|| {
            let peer = Peer::Ip(incoming.remote_address());
            let mut client = Client::new(clients, peer);
            client.secured(Some(&negotiated::QUIC));
            Box::new(client)
        });
        let counters = &mut shared.counters.clients;
        if client.as_ref().is_some_and(|it| !it.may_connect(counters)) {
            shared.note_denied_packet(Peer::Ip(incoming.remote_address()));
            quic.trains.buffer = buffer;
            // The address may be a forged one: no answer.
            return quic.endpoint.ignore(incoming);
        }
        let at = quic.clock.at(now);
        // More that has come before now does not count.
        let allowance = Allowance::new(len, incoming.remote_address_validated());
        let accepted = quic.endpoint.accept(incoming, at, &mut buffer, config);
        quic.trains.buffer = buffer;
        match accepted {
            Ok((handle, connection)) => {
                let id = quic.table.next_id(handle.0);
                if let Some(client) = &client {
                    shared.note_client(id, client);
                }
                let mut conn =
                    QuicConn::new(id, handle, socket, connection, allowance, now, client);
                shared.waiters.connections.insert(id);
                quic.handshakes += 1;
                shared.counters.connected(now_open as u64);
                let stages = &mut shared.counters.stages;
                stages.move_on(&mut conn.stage, Some(Stage::QuicHandshake));
                quic.table.add(Box::new(conn));
                quic.idle.add(now, id, quic.table.len());
                quic.table.mark(id);
            }
            Err(error) => {
                shared.counters.tls.failed_by(failure(&error.cause));
                if let Some(transmit) = error.response {
                    quic.respond(shared, socket, &transmit);
                }
            }
        }
    }

    /// Whether one more connection may be accepted; closes an idle one to make room if necessary.
    fn has_place(&mut self) -> bool {
        let most = self.shared.settings.connections_max;
        self.connection_count() < most || self.shed_idle(1) > 0 || self.shed_quic(1) > 0
    }

    /// Resumes sending on a socket that accepts datagrams again.
    pub(crate) fn sendable(&mut self, socket: DatagramSocket) {
        let Some(quic) = &mut self.quic else { return };
        if quic.trains.send_held(&mut self.shared, socket) {
            let waiting = quic.table.iter().filter(|conn| conn.waits_for_socket);
            let waiting: Vec<_> = waiting.map(|conn| conn.id).collect();
            for id in waiting {
                quic.table.mark(id);
            }
        }
    }

    /// Runs QUIC's part of a turn, after all completions: deferred handshakes, timers, and each
    /// connection that is due. Returns early if memory is short.
    pub(crate) fn run_quic(&mut self) {
        self.hand_on_datagrams();
        self.accept_waiting();
        let now = self.shared.driver.now();
        let Some(quic) = &mut self.quic else { return };
        while let Some(id) = quic.table.next_due(now) {
            if let Some(conn) = quic.table.find(id) {
                let before = conn.quic.remote_address();
                conn.quic.handle_timeout(quic.clock.at(now));
                if conn.quic.remote_address() != before {
                    conn.returned();
                }
            }
            quic.table.mark(id);
        }
        quic.trains.gather();
        for _ in 0..quic.table.marked() {
            if !self.has_room() {
                break;
            }
            if let Some(quic) = &mut self.quic
                && let Some(id) = quic.table.next_marked()
            {
                quic.run(&mut self.shared, id, now);
            }
        }
        if let Some(quic) = &mut self.quic {
            quic.trains.send_gathered(&mut self.shared);
        }
    }

    /// When [`Self::run_quic`] must run next if no completion arrives before.
    pub(crate) fn quic_deadline(&self) -> Option<Nanos> {
        let quic = self.quic.as_ref()?;
        let is_due = quic.table.marked() > 0 || !quic.incoming.is_empty();
        match is_due {
            // Nothing can continue until memory is freed.
            true if !self.has_room() => Some(self.shed_at),
            true => Some(self.shared.driver.now()),
            false => {
                let delayed = quic.delayed.front().map(|(due, _)| *due);
                let all = [quic.table.next_deadline(), delayed];
                all.into_iter().flatten().min()
            }
        }
    }

    /// Passes the result of a lookup or read to the connection that waits for it.
    pub(crate) fn quic_woken(&mut self, question: Question, answer: Result<Wakeup, Errno>) {
        self.on_quic(question.conn, |active| {
            active.continue_stream(question, answer)
        });
    }

    /// Calls `act` with a connection, if it still exists. Its output is sent by the next
    /// [`Self::run_quic`]: in this turn, or in the next one if that has run already. If `act` has
    /// closed it, it is removed at once to free its memory.
    pub(crate) fn on_quic(&mut self, id: ConnId, act: impl FnOnce(&mut ActiveQuic<'_, D>)) {
        let Some(quic) = &mut self.quic else { return };
        let (now, clock) = (self.shared.driver.now(), quic.clock);
        let Some(conn) = quic.table.find(id) else {
            return;
        };
        act(&mut ActiveQuic {
            conn,
            shared: &mut self.shared,
            now: clock.at(now),
        });
        match conn.is_over() {
            true => quic.run(&mut self.shared, id, now),
            false => quic.table.mark(id),
        }
    }

    /// Closes up to `count` QUIC connections, those idle longest first. Returns how many were
    /// closed.
    pub(crate) fn shed_quic(&mut self, count: usize) -> usize {
        let now = self.shared.driver.now();
        for closed in 0..count {
            let quic = self.quic.as_mut();
            let oldest = quic.and_then(|quic| quic.idle.oldest(&mut quic.table, now));
            let Some((_, id)) = oldest else { return closed };
            self.on_quic(id, |conn| conn.shed());
        }
        count
    }

    /// The memory that each QUIC connection holds.
    pub(crate) fn quic_holdings(&self) -> impl Iterator<Item = BytesByAccount> {
        let conns = self.quic.iter().flat_map(|quic| quic.table.iter());
        conns.map(QuicConn::held)
    }

    /// The shared bodies that QUIC connections are sending.
    pub(crate) fn quic_shared(&self) -> impl Iterator<Item = &Arc<Memory>> {
        let conns = self.quic.iter().flat_map(|quic| quic.table.iter());
        conns.flat_map(|conn| conn.streams.shared())
    }

    /// When each QUIC connection times out, for the choice of those that must end.
    pub(crate) fn quic_deadlines(&self) -> impl Iterator<Item = (Tick, ConnId)> {
        let conns = self.quic.iter().flat_map(|quic| quic.table.iter());
        conns.map(|conn| {
            (
                conn.own_deadline.map_or(Tick::NEVER, Tick::at_or_after),
                conn.id,
            )
        })
    }

    /// The IDs of all QUIC connections.
    pub(crate) fn all_quic(&self) -> Vec<ConnId> {
        let conns = self.quic.iter().flat_map(|quic| quic.table.iter());
        conns.map(|conn| conn.id).collect()
    }

    /// Whether any QUIC connection exists.
    pub(crate) fn has_quic(&self) -> bool {
        self.quic.as_ref().is_some_and(|quic| quic.len() > 0)
    }
}

impl Quic {
    /// Sends the packet that the endpoint has written to the buffer; drops it if the socket is
    /// full.
    fn respond<D: Driver>(
        &mut self,
        shared: &mut Shared<D>,
        socket: DatagramSocket,
        transmit: &Transmit,
    ) {
        if self.trains.is_free(socket) {
            self.trains.send(shared, socket, transmit);
        } else {
            self.trains.buffer.clear();
        }
    }

    /// Runs the turn of one connection: handles its events, sends its packets, and sets its timer.
    ///
    /// A closed connection sends its CONNECTION_CLOSE and is removed, although RFC 9000 section
    /// 10.2 recommends to keep it for three probe timeouts: the peer controls how long these are.
    /// Later packets are answered with a stateless reset.
    fn run<D: Driver>(&mut self, shared: &mut Shared<D>, id: ConnId, now: Nanos) {
        let at = self.clock.at(now);
        let Some(conn) = self.table.find(id) else {
            return;
        };
        let was_shaking = conn.is_shaking();
        let mut active = ActiveQuic {
            conn,
            shared,
            now: at,
        };
        active.run();
        let handle = conn.handle;
        let mut is_drained = false;
        while let Some(event) = conn.quic.poll_endpoint_events() {
            is_drained |= event.is_drained();
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                conn.quic.handle_event(event);
            }
        }
        if was_shaking && !conn.is_shaking() {
            self.handshakes -= 1;
        }
        if conn.is_over() || is_drained {
            if !is_drained {
                if !conn.is_silent() {
                    Self::transmit(&mut self.trains, shared, conn, at);
                }
                let drained = EndpointEvent::drained();
                self.endpoint.handle_event(handle, drained);
            }
            if conn.is_shaking() {
                self.handshakes -= 1;
            }
            shared.counters.stages.move_on(&mut conn.stage, None);
            self.table.remove(id);
            shared.waiters.connections.remove(id);
            shared.fetching.clients.remove(&id);
            shared.ended += 1;
            return;
        }
        let has_more = Self::transmit(&mut self.trains, shared, conn, at);
        let library = conn.quic.poll_timeout().map(|at| self.clock.nanos(at));
        let deadline = [library, conn.own_deadline].into_iter().flatten().min();
        if has_more || conn.has_more {
            self.table.mark(id);
        }
        self.table.schedule(id, deadline);
    }

    /// Sends the packets of a connection, up to its limit for one turn. Returns whether it may have
    /// more.
    fn transmit<D: Driver>(
        trains: &mut Trains,
        shared: &mut Shared<D>,
        conn: &mut QuicConn,
        now: std::time::Instant,
    ) -> bool {
        let mut sent = 0;
        conn.waits_for_socket = false;
        let most_sent = match shared.budget.has_left(Work::Send) {
            true => SENT_PER_TURN_MAX,
            false => UNTAKEN_MAX as usize,
        };
        while sent < most_sent {
            if !trains.is_free(conn.socket) {
                conn.waits_for_socket = true;
                return false;
            }
            let most = conn.datagrams_max();
            if most == 0 {
                // It continues with what comes next.
                return false;
            }
            trains.buffer.clear();
            let was_shown = conn.allowance.is_shown();
            let counters = &mut shared.counters.clients;
            let transmit = conn.next_packets(now, most, &mut trains.buffer, counters);
            let Some(transmit) = transmit else {
                return false;
            };
            if !was_shown
                && conn.allowance.is_shown()
                && let Some(client) = &conn.client
            {
                // It may have moved to another address.
                shared.note_client(conn.id, client);
            }
            sent += transmit.size;
            let count = transmit
                .size
                .div_ceil(transmit.segment_size.unwrap_or(transmit.size));
            let streams_now = conn.quic.stats().frame_tx.stream;
            // Counts only trains with STREAM frames: echoes of path challenges are not part of a
            // response.
            if streams_now != conn.streams_sent {
                conn.streams_sent = streams_now;
                let bytes = transmit.size.saturating_sub(count * BARE_MAX) as u64;
                conn.sent += bytes;
                if let Some(client) = &conn.client {
                    client.sends(bytes, shared.driver.now());
                }
            }
            shared.budget.take(Work::Send, transmit.size as u64);
            let socket = conn.socket_for(transmit.destination);
            match trains.is_free(socket) {
                true => trains.send(shared, socket, &transmit),
                // Lost; the endpoint appends its answers to what is there.
                false => trains.buffer.clear(),
            }
        }
        true
    }
}
