//! Every state of a connection meets every event: bytes without end, the end of the stream, a
//! reset, silence, and a stop of the server. In each case little is kept of what was received, the
//! connection ends in time, and nothing is answered twice.

use std::sync::Arc;

use gannet_io::driver::Nanos;
use gannet_io::sim::{End, Faults};
use gannet_server::ledger::Account;
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use rustls::ClientConfig;

use crate::run::{LIMITS, Tls};
use crate::server::{Server, get};
use crate::wire::Wire;

const MS: u64 = 1_000_000;

/// Bytes of input that may be kept for a connection: a head, the record that is cut, and what comes
/// with them.
const KEPT_MAX: u64 = 64 << 10;

/// The longest that a connection may stay whose peer does nothing that counts: it is waited for, a
/// send has to get on (which is looked at twice), and the end lingers.
const QUIET_MS: u64 = 20_000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// A part of a ClientHello was sent.
    Shaking,
    /// A request was answered from early data; the client's handshake is not over.
    Early,
    /// The same, with an answer that does not fit the socket.
    EarlySending,
    /// Nothing was asked for.
    Fresh,
    /// A part of a head was sent.
    Head,
    /// A request was answered.
    Idle,
    /// A request waits for the disk.
    Waiting,
    /// An answer is under way that does not fit the socket.
    Sending,
    /// The same, and the connection ends behind it.
    ClosingSending,
    /// A request was refused; the peer has time to read that.
    Lingering,
}

const STATES: [State; 10] = [
    State::Shaking,
    State::Early,
    State::EarlySending,
    State::Fresh,
    State::Head,
    State::Idle,
    State::Waiting,
    State::Sending,
    State::ClosingSending,
    State::Lingering,
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Event {
    /// Requests without end.
    Requests,
    /// What is no request, without end.
    Noise,
    /// Bytes that TLS does not open. The same as noise in clear text.
    RawNoise,
    /// The peer has said that this is the end.
    End,
    /// TCP ends without a word.
    RawEnd,
    Reset,
    /// Nothing at all.
    Silence,
    /// The server is told to stop.
    Stop,
}

const EVENTS: [Event; 8] = [
    Event::Requests,
    Event::Noise,
    Event::RawNoise,
    Event::End,
    Event::RawEnd,
    Event::Reset,
    Event::Silence,
    Event::Stop,
];

/// One server and one connection.
struct Case {
    server: Server,
    wire: Wire,
    /// Bytes of answers that were read.
    got: Vec<u8>,
}

impl Case {
    /// Brings a connection into a state. `None` if there is no such state in clear text.
    fn new(tls: Tls, state: State) -> Option<Self> {
        let is_early = matches!(state, State::Early | State::EarlySending);
        let tls = match (tls, is_early) {
            (Tls::None, true) => return None,
            (Tls::None, false) if state == State::Shaking => return None,
            (_, true) => Tls::Early,
            (tls, false) => tls,
        };
        let (mut server, config) =
            Server::with_tls(Faults::none(), LIMITS, tls, ENCRYPTED_RECORDS_MAX);
        server.disk.put_file("slow", "slow");
        server.disk.slow_file("slow", 60_000 * MS);
        if is_early {
            visit(&mut server, config.as_ref());
        }
        let connect = || match state {
            State::Shaking => Wire::unsent(&server.disk, config.as_ref()),
            State::Early => Wire::early(&server.disk, config.as_ref(), &get("small")),
            State::EarlySending => Wire::early(&server.disk, config.as_ref(), &get("large")),
            _ => Wire::connect(&server.disk, config.as_ref(), usize::MAX),
        };
        let wire = connect().expect("it listens");
        let mut case = Self {
            server,
            wire,
            got: Vec::new(),
        };
        case.reach(state);
        Some(case)
    }

    fn reach(&mut self, state: State) {
        match state {
            State::Shaking => self
                .wire
                .client()
                .write(b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc"),
            State::Early | State::EarlySending | State::Fresh => {}
            State::Head => self.write(b"GET /small HTTP/1.1\r\nhost"),
            State::Idle => self.write(&get("small")),
            State::Waiting => self.write(&get("slow")),
            State::Sending => self.write(&get("large")),
            State::ClosingSending => {
                self.write(b"GET /large HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n");
            }
            State::Lingering => self.write(b"no request\r\n\r\n"),
        }
        let reads = matches!(state, State::Idle | State::Lingering);
        for _ in 0..10 {
            self.turn();
            if reads {
                self.read();
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        // The handshake first: its end would not be read later.
        for _ in 0..10 {
            if self.wire.is_shaking() {
                self.turn();
                self.read();
            }
        }
        self.wire.write(bytes);
    }

    fn read(&mut self) {
        // A fault of TLS ends what can be read.
        self.got
            .extend(self.wire.read_at_most(1 << 20).unwrap_or_default());
    }

    /// 10 ms.
    fn turn(&mut self) {
        let now = self.server.disk.now();
        self.server.disk.wake_at(Some(Nanos(now.0 + 10 * MS)));
        self.server.driven.turn(None).expect("it goes on");
    }

    fn is_over(&self) -> bool {
        self.wire.is_closed_by_server() || self.wire.end() == End::Reset
    }

    fn meet(&mut self, event: Event) {
        match event {
            Event::Requests => self.flood(&get("small").repeat(400), true),
            Event::Noise => self.flood(&[0; 16_000], true),
            Event::RawNoise => self.flood(&[0; 16_000], false),
            Event::End => self.wire.shutdown_write(),
            Event::RawEnd => self.wire.client().shutdown_write(),
            Event::Reset => self.wire.reset(),
            Event::Silence => {}
            Event::Stop => self.server.driven.stop(),
        }
    }

    /// Sends as long as the server receives, a megabyte at most.
    fn flood(&mut self, bytes: &[u8], is_encrypted: bool) {
        for _ in 0..64 {
            if self.is_over() {
                return;
            }
            if self.wire.client().unreceived() < 64 << 10 {
                match is_encrypted && !self.wire.is_shaking() {
                    true => self.wire.write(bytes),
                    false => self.wire.client().write(bytes),
                }
            }
            self.turn();
            self.check_kept();
        }
    }

    /// Bytes of memory with input.
    fn kept(&self) -> u64 {
        let holdings = self.server.driven.holdings();
        let mut input = holdings.iter().filter(|it| it.account == Account::Input);
        input.next().expect("an account").held
    }

    fn check_kept(&mut self) {
        let kept = self.kept();
        assert!(kept <= KEPT_MAX, "{kept} bytes of input are kept");
    }

    /// The connection ends in time, whoever reads nothing; what was sent is read afterwards.
    fn ends(&mut self) {
        let end = self.server.disk.now().plus_ms(QUIET_MS);
        while !self.is_over() {
            assert!(self.server.disk.now() < end, "it outstays its time");
            self.turn();
            self.check_kept();
        }
        self.read();
        for _ in 0..10 {
            self.turn();
        }
        let leaks = self.server.disk.leaks();
        assert_eq!((leaks.open_sockets, leaks.leases_out), (0, 0), "{leaks:?}");
        assert_eq!(self.kept(), 0, "of a connection that is gone");
        assert_eq!(self.server.disk.untaken(), 0);
    }

    /// Heads of answers among what was read.
    fn answers(&self) -> usize {
        let heads = self.got.windows(9).filter(|it| *it == b"HTTP/1.1 ");
        heads.count()
    }
}

/// A first connection, which gets a session for early data.
fn visit(server: &mut Server, config: Option<&Arc<ClientConfig>>) {
    let wire = Wire::connect(&server.disk, config, usize::MAX).expect("it listens");
    wire.write(&get("small"));
    server.until("a first answer", || {
        wire.read_at_most(1 << 20).expect("TLS").ends_with(b"small")
    });
    wire.shutdown_write();
    server.until("its end", || wire.is_closed_by_server());
}

/// Answers that may come at most: to what was asked, and one to what was sent behind it.
fn answers_max(state: State, event: Event) -> usize {
    let asked = match state {
        State::Shaking | State::Fresh => 0,
        // A head that does not come is answered, too (408).
        State::Head => 1,
        _ => 1,
    };
    let is_last = matches!(state, State::ClosingSending | State::Lingering);
    match event {
        _ if is_last => asked,
        // As many as fit the socket: the peer reads none.
        Event::Requests => usize::MAX,
        Event::Noise | Event::RawNoise => asked + usize::from(state != State::Head),
        _ => asked,
    }
}

#[test]
fn every_state_meets_every_event() {
    for tls in [Tls::None, Tls::Own, Tls::Kernel { can_update: true }] {
        for state in STATES {
            for event in EVENTS {
                let Some(mut case) = Case::new(tls, state) else {
                    continue;
                };
                let told = format!("{tls:?}, {state:?}, {event:?}");
                let run = std::panic::AssertUnwindSafe(|| {
                    assert!(!case.is_over(), "the state was reached");
                    case.meet(event);
                    case.ends();
                    let (answers, most) = (case.answers(), answers_max(state, event));
                    assert!(answers <= most, "{answers} answers, {most} at most");
                });
                let result = std::panic::catch_unwind(run);
                assert!(result.is_ok(), "{told}: see above");
            }
        }
    }
}
