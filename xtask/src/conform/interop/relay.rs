//! A path between clients and a server that delays, loses, damages and renumbers datagrams, and notes
//! what it sees of them.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use xtask::random::SplitMix;

/// What befalls datagrams.
#[derive(Clone, Copy, Default)]
pub(super) struct Weather {
    /// One way.
    pub(super) delay: Duration,
    /// Of 1,000 datagrams, each way.
    pub(super) lost: u64,
    /// The same: a byte is another one.
    pub(super) damaged: u64,
    /// Bytes a second to the client, with a queue of [`QUEUE_MAX`]; 0: no limit.
    pub(super) rate: u64,
    /// Bytes to the client after which the server sees its next address; 0: never.
    pub(super) rebind: u64,
    /// That next address is another one of loopback, else another port.
    pub(super) is_address: bool,
    /// Bytes to the client after which nothing passes for [`BLACK_HOLE`]; 0: never.
    pub(super) hole: u64,
    /// The client's second to seventh datagrams are lost.
    pub(super) withholds: bool,
}

/// Bytes that wait for a slow link: 25 datagrams.
const QUEUE_MAX: u64 = 25 * 1_500;

/// How long nothing passes.
const BLACK_HOLE: Duration = Duration::from_secs(2);

/// How often the relay looks for datagrams.
const LOOK: Duration = Duration::from_micros(200);

/// What passed.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) retries: u64,
    pub(super) early: u64,
    pub(super) negotiations: u64,
    pub(super) bytes_down: u64,
    /// Handshakes of the server without a certificate: it knew the client.
    pub(super) resumed: u64,
    pub(super) rebinds: u64,
    pub(super) holes: u64,
    pub(super) lost: u64,
    pub(super) damaged: u64,
    /// The server sent more than three times what it had received from a client without a packet that
    /// shows its address (RFC 9000 section 8.1).
    pub(super) amplified: u64,
}

/// A client, as the relay knows it.
struct Flow {
    /// Towards the server.
    socket: UdpSocket,
    bytes_up: u64,
    bytes_down: u64,
    datagrams_up: u64,
    next_rebind: u64,
    is_validated: bool,
    /// Of the server's Handshake packets.
    handshake_down: usize,
}

/// The certificate of the trial is some 6 KiB long; what else is in the server's handshake is not.
const HANDSHAKE_WITHOUT_CERTIFICATE_MAX: usize = 4 << 10;

/// A running relay.
pub(super) struct Relay {
    pub(super) port: u16,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Seen>>,
}

impl Relay {
    pub(super) fn start(server: u16, weather: Weather) -> Result<Self> {
        let client_side = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        client_side.set_nonblocking(true)?;
        let port = client_side.local_addr()?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let path = Path {
            weather,
            server: (Ipv4Addr::LOCALHOST, server).into(),
            client_side,
            flows: HashMap::new(),
            waiting: BTreeMap::new(),
            number: 0,
            random: SplitMix(1),
            seen: Seen::default(),
            link_free: Instant::now(),
            hole_until: None,
        };
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || path.run(&stopped));
        Ok(Self { port, stop, thread })
    }

    pub(super) fn stop(self) -> Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the relay panicked"))?
    }
}

struct Path {
    weather: Weather,
    server: SocketAddr,
    client_side: UdpSocket,
    flows: HashMap<SocketAddr, Flow>,
    /// Datagrams under way, by when they are due: the client, whether it goes to it, and its bytes.
    waiting: BTreeMap<(Instant, u64), (SocketAddr, bool, Vec<u8>)>,
    number: u64,
    random: SplitMix,
    seen: Seen,
    link_free: Instant,
    hole_until: Option<Instant>,
}

impl Path {
    fn run(mut self, stop: &AtomicBool) -> Result<Seen> {
        let mut buffer = vec![0; 65_536];
        loop {
            let is_stopped = stop.load(Ordering::Relaxed);
            let mut is_idle = true;
            while let Ok((len, client)) = self.client_side.recv_from(&mut buffer) {
                is_idle = false;
                self.up(client, buffer[..len].to_vec())?;
            }
            let clients: Vec<_> = self.flows.keys().copied().collect();
            for client in clients {
                while let Ok(len) = self.flows[&client].socket.recv(&mut buffer) {
                    is_idle = false;
                    self.down(client, buffer[..len].to_vec())?;
                }
            }
            is_idle &= !self.deliver();
            // A client that has ended may have said its last words a moment ago: they still arrive.
            if is_idle && is_stopped && self.waiting.is_empty() {
                break;
            }
            if is_idle {
                thread::sleep(LOOK);
            }
        }
        let without = 1..=HANDSHAKE_WITHOUT_CERTIFICATE_MAX;
        let resumed = self
            .flows
            .values()
            .filter(|it| without.contains(&it.handshake_down));
        self.seen.resumed = resumed.count() as u64;
        Ok(self.seen)
    }

    /// A datagram of a client.
    fn up(&mut self, client: SocketAddr, bytes: Vec<u8>) -> Result<()> {
        if !self.flows.contains_key(&client) {
            let flow = Flow {
                socket: self.towards_server(Ipv4Addr::LOCALHOST)?,
                bytes_up: 0,
                bytes_down: 0,
                datagrams_up: 0,
                next_rebind: self.weather.rebind,
                is_validated: false,
                handshake_down: 0,
            };
            self.flows.insert(client, flow);
        }
        let withholds = self.weather.withholds;
        let flow = self.flows.get_mut(&client).expect("it was added");
        flow.datagrams_up += 1;
        if withholds && (2..=7).contains(&flow.datagrams_up) {
            self.seen.lost += 1;
            return Ok(());
        }
        let early = kinds(&bytes).filter(|(kind, _)| *kind == Kind::Early);
        self.seen.early += early.count() as u64;
        self.send(client, false, bytes);
        Ok(())
    }

    /// A datagram of the server for a client.
    fn down(&mut self, client: SocketAddr, bytes: Vec<u8>) -> Result<()> {
        let len = bytes.len() as u64;
        self.seen.bytes_down += len;
        let flow = self.flows.get_mut(&client).expect("its socket is here");
        for (kind, len) in kinds(&bytes) {
            match kind {
                Kind::Retry => self.seen.retries += 1,
                Kind::Negotiation => self.seen.negotiations += 1,
                Kind::Handshake => flow.handshake_down += len,
                _ => {}
            }
        }
        flow.bytes_down += len;
        if !flow.is_validated && flow.bytes_down > 3 * flow.bytes_up {
            self.seen.amplified += 1;
        }
        if self.weather.rebind > 0 && flow.bytes_down >= flow.next_rebind {
            flow.next_rebind += self.weather.rebind;
            self.seen.rebinds += 1;
            let host = if self.weather.is_address {
                let last = 2 + self.seen.rebinds % 250;
                Ipv4Addr::new(127, 0, 0, last as u8)
            } else {
                Ipv4Addr::LOCALHOST
            };
            let socket = self.towards_server(host)?;
            self.flows.get_mut(&client).expect("it is here").socket = socket;
        }
        if self.weather.hole > 0
            && self.seen.bytes_down >= self.weather.hole
            && self.seen.holes == 0
        {
            self.seen.holes = 1;
            self.hole_until = Some(Instant::now() + BLACK_HOLE);
        }
        self.send(client, true, bytes);
        Ok(())
    }

    fn towards_server(&self, host: Ipv4Addr) -> Result<UdpSocket> {
        let socket = UdpSocket::bind((host, 0))?;
        socket.connect(self.server)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Puts a datagram on its way, unless it is lost.
    fn send(&mut self, client: SocketAddr, is_down: bool, mut bytes: Vec<u8>) {
        let now = Instant::now();
        let is_in_hole = self.hole_until.is_some_and(|until| now < until);
        if is_in_hole || self.random.next() % 1_000 < self.weather.lost {
            self.seen.lost += 1;
            return;
        }
        if self.random.next() % 1_000 < self.weather.damaged {
            self.seen.damaged += 1;
            let at = (self.random.next() % bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (self.random.next() % 8);
            }
        }
        let mut due = now;
        if is_down && self.weather.rate > 0 {
            let micros = |bytes: u64| Duration::from_micros(bytes * 1_000_000 / self.weather.rate);
            let free = self.link_free.max(now);
            if free - now > micros(QUEUE_MAX) {
                self.seen.lost += 1;
                return;
            }
            self.link_free = free + micros(bytes.len() as u64);
            due = self.link_free;
        }
        self.number += 1;
        let key = (due + self.weather.delay, self.number);
        self.waiting.insert(key, (client, is_down, bytes));
    }

    /// Delivers what is due; whether anything was.
    fn deliver(&mut self) -> bool {
        let now = Instant::now();
        let mut has_any = false;
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                break;
            }
            let (client, is_down, bytes) = first.remove();
            has_any = true;
            // A full buffer or a port that is closed by now loses a datagram, as networks do.
            if is_down {
                let _ = self.client_side.send_to(&bytes, client);
            } else if let Some(flow) = self.flows.get_mut(&client) {
                flow.bytes_up += bytes.len() as u64;
                // Its first Handshake packet shows the address (section 8.1), and so do later ones.
                flow.is_validated |=
                    kinds(&bytes).any(|(it, _)| matches!(it, Kind::Handshake | Kind::Short));
                let _ = flow.socket.send(&bytes);
            }
        }
        has_any
    }
}

/// What can be seen of a packet without keys (RFC 8999, RFC 9000 section 17).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Negotiation,
    Initial,
    Early,
    Handshake,
    Retry,
    Short,
}

/// The packets of a datagram with their lengths, as far as they can be read.
fn kinds(datagram: &[u8]) -> impl Iterator<Item = (Kind, usize)> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (kind, after) = kind(rest)?;
        let len = rest.len() - after.len();
        rest = after;
        Some((kind, len))
    })
}

/// The first packet, and what comes after it.
fn kind(bytes: &[u8]) -> Option<(Kind, &[u8])> {
    let first = *bytes.first()?;
    if first & 0x80 == 0 {
        return Some((Kind::Short, &[]));
    }
    let version = bytes.get(1..5)?;
    if version == [0; 4] {
        return Some((Kind::Negotiation, &[]));
    }
    let mut rest = bytes.get(5..)?;
    for _ in 0..2 {
        let len = usize::from(*rest.first()?);
        rest = rest.get(1 + len..)?;
    }
    let kind = match first >> 4 & 3 {
        0 => Kind::Initial,
        1 => Kind::Early,
        2 => Kind::Handshake,
        _ => return Some((Kind::Retry, &[])),
    };
    if kind == Kind::Initial {
        let (len, after) = number(rest)?;
        rest = after.get(len..)?;
    }
    let (len, after) = number(rest)?;
    Some((kind, after.get(len..)?))
}

/// A variable-length integer (RFC 9000 section 16).
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let (number, rest) = bytes.split_at_checked(len)?;
    let begin = usize::from(first & 0x3f);
    let value = number[1..]
        .iter()
        .fold(begin, |sum, it| sum << 8 | usize::from(*it));
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets in one datagram are all seen, and bytes that are none end the walk.
    #[test]
    fn packets_are_seen_without_keys() {
        let long = |first: u8, token: &[u8]| {
            let mut packet = vec![first, 0, 0, 0, 1, 2, 9, 9, 1, 9];
            packet.extend_from_slice(token);
            packet.extend_from_slice(&[0x40, 3, 1, 2, 3]);
            packet
        };
        let datagram = [
            long(0xc0, &[2, 7, 7]),
            long(0xd0, &[]),
            long(0xe0, &[]),
            vec![0x40, 1],
        ];
        let found: Vec<_> = kinds(&datagram.concat()).collect();
        let expect = [
            (Kind::Initial, 18),
            (Kind::Early, 15),
            (Kind::Handshake, 15),
            (Kind::Short, 2),
        ];
        assert_eq!(found, expect);
        assert_eq!(
            kinds(&[0xf0, 0, 0, 0, 1, 0, 0]).collect::<Vec<_>>(),
            [(Kind::Retry, 7)]
        );
        assert_eq!(
            kinds(&[0x80, 0, 0, 0, 0]).collect::<Vec<_>>(),
            [(Kind::Negotiation, 5)]
        );
        assert_eq!(kinds(&[0xc0, 0, 0, 0, 1, 200]).count(), 0);
    }
}
