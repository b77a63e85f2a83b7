//! Turns received bytes into requests.

use gannet_io::driver::{Driver, Lease, Peer};

use super::http1::Stop;
use super::{Active, Phase};
use crate::bounds::limits::{FRESH_MS, HELD_MAX};
use crate::clients::Client;
use crate::config::Scheme;
use crate::exchange::outgoing::Outgoing;
use crate::ground::delay::Arrived;
use crate::ground::settings::ListenerKind;
use crate::ground::token::Kind;
use crate::observe::stages::Stage;

impl<D: Driver> Active<'_, D> {
    /// Begins a connection that was accepted at a listener of this kind.
    pub(crate) fn begin(&mut self, kind: ListenerKind) {
        self.conn.scheme = kind.scheme;
        self.conn.address = kind.address;
        if kind.is_proxied {
            return self.begin_proxied();
        }
        let shared = &*self.shared;
        if shared.knows_clients() {
            let peer = shared.driver.peer(self.conn.socket);
            if !self.identify(peer) {
                return self.close();
            }
        }
        self.begin_protocol();
        self.arm_first_receive();
        self.set_deadline(self.shared.settings.limits.head_timeout_ms);
    }

    /// Notes who the client is. False if it may not have this connection.
    pub(super) fn identify(&mut self, peer: Peer) -> bool {
        let shared = &mut *self.shared;
        let counters = &mut shared.counters.clients;
        let mut client = Client::new(shared.settings.clients.as_ref(), peer);
        if !client.may_connect(counters) {
            shared.note_denied(peer);
            return false;
        }
        if !client.connect(shared.driver.now(), counters) {
            shared.note_too_many(peer, client.key());
            return false;
        }
        if let Some(rate) = client.pace() {
            shared.driver.pace(self.conn.socket, rate);
        }
        shared.note_client(self.conn.id, &client);
        self.conn.client = Some(Box::new(client));
        true
    }

    /// Counts it from now on as one that speaks this.
    pub(super) fn enter(&mut self, stage: Stage) {
        let stages = &mut self.shared.counters.stages;
        stages.move_on(&mut self.conn.stage, Some(stage));
    }

    /// Begins what the connection speaks.
    pub(super) fn begin_protocol(&mut self) {
        let shared = &mut *self.shared;
        if shared.stop_at.is_some() {
            self.conn.drain_http1();
        }
        if !shared.settings.has_clear_http2 {
            self.conn.protocol.exclude_http2();
        }
        match self.conn.scheme {
            Scheme::Https => self.begin_handshake(),
            Scheme::Redirect => {
                if let Some(http1) = self.conn.protocol.http1() {
                    http1.redirects = true;
                    http1.may_become_http2 = false;
                }
            }
            Scheme::Http => {}
        }
        if !self.conn.is_secure() && !self.conn.protocol.may_become_http2() {
            self.enter(Stage::Http1);
        }
    }

    /// Receives the first request of a connection. It may be the only one: further receives are
    /// armed when its response is being sent.
    pub(super) fn arm_first_receive(&mut self) {
        let conn = &mut *self.conn;
        conn.receiving = true;
        self.shared
            .driver
            .receive_once(conn.socket, conn.id.token(Kind::Receive));
    }

    pub(super) fn arm_receive(&mut self) {
        let conn = &mut *self.conn;
        debug_assert!(
            conn.phase != Phase::Free,
            "a closed connection receives nothing"
        );
        if !conn.receiving && !conn.ended && conn.phase != Phase::Free {
            conn.receiving = true;
            self.shared
                .driver
                .receive(conn.socket, conn.id.token(Kind::Receive));
        }
    }

    /// Keeps receiving during a disk operation, to notice a disconnect and skip operations not
    /// begun.
    pub(super) fn listen_for_end(&mut self) {
        if self.conn.intake.has_room() {
            self.arm_receive();
        }
    }

    /// Stops receiving, so that TCP applies back-pressure.
    pub(super) fn pause_receive(&mut self) {
        let conn = &mut *self.conn;
        if conn.receiving {
            conn.receiving = false;
            self.shared.driver.pause_receiving(conn.socket);
        }
    }

    /// Handles bytes received by the engine.
    pub(crate) fn received(&mut self, lease: Lease, more: bool) {
        self.conn.receiving = more;
        if self.shared.delays.is_on() {
            self.hold_back(lease);
        } else {
            self.arrived(Arrived::Lease(lease));
        }
    }

    /// Copies received bytes, because the engine's buffers are few, and holds them until they are
    /// due.
    fn hold_back(&mut self, lease: Lease) {
        let shared = &mut *self.shared;
        let bytes = shared.driver.received(&lease).to_vec();
        shared.driver.release(lease);
        let now = shared.driver.now();
        if shared.delays.push(now, self.conn.id, Some(bytes)) > HELD_MAX {
            // Processing the bytes arms receiving again.
            self.pause_receive();
        }
    }

    /// Processes received bytes.
    pub(crate) fn arrived(&mut self, arrived: Arrived<'_>) {
        if self.conn.protocol.may_become_http2() && !self.is_version_known(&arrived) {
            return arrived.release(&mut self.shared.driver);
        }
        let conn = &mut *self.conn;
        match conn.phase {
            Phase::Lingering => {
                let goes_on = conn.intake.hold(arrived.bytes(&self.shared.driver));
                arrived.release(&mut self.shared.driver);
                if !goes_on {
                    return self.close();
                }
                self.arm_receive();
            }
            Phase::Proxied => self.header_arrived(arrived),
            _ if conn.is_secure() => self.received_encrypted(arrived),
            _ => self.arrived_plain(arrived),
        }
    }

    /// The same for plaintext.
    pub(super) fn arrived_plain(&mut self, arrived: Arrived<'_>) {
        let conn = &mut *self.conn;
        let is_reading = conn.phase == Phase::Reading;
        if conn.protocol.is_http2() {
            self.streams_received(arrived);
        } else if is_reading && conn.intake.is_empty() {
            // The common case: whole requests in the engine's own buffer, answered without a copy.
            self.answer(arrived);
        } else {
            let has_room = conn.intake.hold(arrived.bytes(&self.shared.driver));
            arrived.release(&mut self.shared.driver);
            if is_reading {
                self.answer_held();
            } else if !has_room {
                self.pause_receive();
            }
        }
    }

    /// Continues with held input.
    pub(super) fn answer_held(&mut self) {
        let input = self.conn.intake.take();
        self.answer(Arrived::Held(input));
    }

    fn answer(&mut self, input: Arrived<'_>) {
        let mut out = self.shared.outgoing();
        let (_, stop) = self.answer_input(input, &mut out);
        self.after_answers(out, stop);
    }

    /// Answers the requests in `input`, until one has to wait, and holds the rest. Returns the
    /// number of bytes used.
    pub(super) fn answer_input(&mut self, input: Arrived<'_>, out: &mut Outgoing) -> (usize, Stop) {
        let conn = &mut *self.conn;
        let mut bench = self.shared.workbench(conn.is_secure(), None);
        let bytes = input.bytes(bench.driver);
        let (used, stop) = match conn.protocol.streams_mut() {
            Some(streams) => {
                let client = conn.client.as_deref();
                (
                    streams.run_frames(&mut bench, client, bytes, out),
                    Stop::NeedInput,
                )
            }
            None => conn.run_requests(&mut bench, bytes, out),
        };
        match input {
            Arrived::Held(bytes) => conn.intake.keep(bytes, used),
            input => {
                conn.intake.add(&input.bytes(&self.shared.driver)[used..]);
                input.release(&mut self.shared.driver);
            }
        }
        (used, stop)
    }

    pub(super) fn after_answers(&mut self, out: Outgoing, stop: Stop) {
        if let Stop::Wait(waiting) = stop {
            // Responses gathered before are sent together with the waiting one.
            return self.ask_disk(waiting, out, None);
        }
        if !out.is_empty() {
            return self.send(out);
        }
        self.shared.spare = out.finish().0.wire;
        match stop {
            // Malformed or excessive content is detected after its request was answered.
            Stop::Closing => self.finish(),
            _ => self.wait_for_input(),
        }
    }

    /// Waits for the peer, because there is nothing to send.
    pub(super) fn wait_for_input(&mut self) {
        let conn = &mut *self.conn;
        debug_assert!(
            !conn.intake.is_closed(),
            "a closing connection expects no input"
        );
        conn.phase = Phase::Reading;
        if conn.ended {
            // RFC 9112 section 8: a request cut off by the end of the stream is not answered.
            return self.close();
        }
        let is_idle = conn.protocol.is_idle() && conn.intake.is_empty();
        let is_untouched = conn.is_untouched();
        if self.sends_rest() {
            return;
        }
        if is_idle && is_untouched {
            // The deadline of the first request is running.
            return self.arm_receive();
        }
        if is_idle && self.shared.stop_at.is_some() {
            return self.wait_while_stopping();
        }
        let conn = &mut *self.conn;
        let limits = self.shared.settings.limits;
        if is_idle {
            conn.idle_since = self.shared.driver.now();
            self.set_deadline(limits.idle_timeout_ms);
        } else if !conn.is_head_timed {
            conn.is_head_timed = true;
            self.set_deadline(limits.head_timeout_ms);
        }
        self.arm_receive();
    }

    /// The same for an idle connection of a server that stops.
    #[cold]
    fn wait_while_stopping(&mut self) {
        if !self.shared.is_handed_over {
            return self.close();
        }
        self.conn.idle_since = self.shared.driver.now();
        // The last response may not have announced the end, and another request be on the way.
        self.set_deadline(FRESH_MS);
        self.arm_receive();
    }

    /// Handles the end of input reported by the engine.
    pub(crate) fn ended(&mut self) {
        self.conn.receiving = false;
        if self.shared.delays.is_on() {
            let now = self.shared.driver.now();
            self.shared.delays.push(now, self.conn.id, None);
        } else {
            self.arrived_end();
        }
    }

    /// Handles the peer's closing of its half: its complete requests are still answered.
    pub(crate) fn arrived_end(&mut self) {
        let conn = &mut *self.conn;
        conn.ended = true;
        if conn.protocol.is_http2() && conn.phase != Phase::Lingering {
            return self.go_on_streams();
        }
        match self.conn.phase {
            Phase::Shaking => self.ended_shaking(),
            Phase::Proxied => self.close(),
            // It may have ended its half alone, and still read: the deadline stands.
            Phase::Lingering if self.has_unacknowledged_records() => {}
            // Likewise; `close_notify` comes after the answers that the kernel holds.
            Phase::Reading if self.has_unacknowledged_records() => self.close(),
            Phase::Reading | Phase::Lingering => {
                if let Some(tls) = &mut self.conn.tls {
                    // Without a close_notify the peer is gone: it would not receive ours.
                    tls.is_over = true;
                }
                self.close();
            }
            Phase::Free | Phase::Waiting | Phase::Sending => {}
        }
    }
}
