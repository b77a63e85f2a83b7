//! Every state of a connection meets every event: endless input, the end of the stream, a reset,
//! silence, and a stop of the server. In each case little of the input is kept, the connection ends
//! in time, and no request is answered twice.

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

/// Bytes of input that may be held for a connection: a head, an incomplete record, and the input
/// that arrived with them.
const KEPT_MAX: u64 = 64 << 10;

/// The longest that a connection without progress may stay: a timeout, a progress deadline (checked
/// twice), and the linger.
const QUIET_MS: u64 = 20_000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// A part of a ClientHello was sent.
    Shaking,
    /// A request was answered from early data; the client's handshake is not finished.
    Early,
    /// The same, with a response that exceeds the socket's capacity.
    EarlySending,
    /// No request was sent.
    Fresh,
    /// A part of a head was sent.
    Head,
    /// A request was answered.
    Idle,
    /// A request waits for the disk.
    Waiting,
    /// A response in progress exceeds the socket's capacity.
    Sending,
    /// The same, and the connection ends afterwards.
    ClosingSending,
    /// A request was rejected; the peer has time to read the response.
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
    /// Endless requests.
    Requests,
    /// Endless invalid requests.
    Noise,
    /// Bytes that TLS cannot decrypt. In clear text the same as noise.
    RawNoise,
    /// The peer ends the stream in order (over TLS with `close_notify`).
    End,
    /// TCP ends without `close_notify`.
    RawEnd,
    Reset,
    /// No input.
    Silence,
    /// The server is stopped.
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
    /// Bytes of responses read so far.
    got: Vec<u8>,
}

impl Case {
    /// Brings a connection into a state. `None` if the state does not exist in clear text.
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
        // First the handshake: its end would not be read later.
        for _ in 0..10 {
            if self.wire.is_shaking() {
                self.turn();
                self.read();
            }
        }
        self.wire.write(bytes);
    }

    fn read(&mut self) {
        // A TLS fault ends what can be read.
        self.got
            .extend(self.wire.read_at_most(1 << 20).unwrap_or_default());
    }

    /// Runs a turn of 10 ms.
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

    /// Sends as long as the server receives, at most a megabyte.
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

    /// Bytes of memory that hold input.
    fn kept(&self) -> u64 {
        let holdings = self.server.driven.holdings();
        let mut input = holdings.iter().filter(|it| it.account == Account::Input);
        input.next().expect("an account").held
    }

    fn check_kept(&mut self) {
        let kept = self.kept();
        assert!(kept <= KEPT_MAX, "{kept} bytes of input are kept");
    }

    /// Checks that the connection ends in time although the client does not read; reads the rest
    /// afterwards.
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

    /// Number of response heads read.
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

/// Maximum number of responses: to the requests sent, and one to the input behind them.
fn answers_max(state: State, event: Event) -> usize {
    let asked = match state {
        State::Shaking | State::Fresh => 0,
        // An incomplete head is answered as well (408).
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
