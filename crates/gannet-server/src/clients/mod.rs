//! Who the client of a connection or of a request is, and what it may do.
//!
//! ```text
//!   the socket's peer ──▶ a PROXY header by a trusted proxy ──▶ the connection's client
//!                                                                  │ is it a trusted proxy, too?
//!                                                                  ▼
//!                                              Forwarded, X-Forwarded-* ──▶ a request's client
//! ```
//!
//! The log, rules and limits all ask here; who a client is by its certificate is for the log alone.
//! Nothing here costs anything unless the operator asks for it: then connections have a [`Client`].

pub(crate) mod forwarded;
mod table;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use gannet_content::rules::pattern::Scheme;
use gannet_http::semantics::fields::Fields;
use gannet_io::driver::{Nanos, Peer};

use self::forwarded::{Conflict, Forwarded};
use self::table::{ClientTable, NoPlace, Place};
use crate::bounds::clients::BURST_NS;
use crate::bounds::limits::UNTAKEN_MAX;
use crate::config::ClientRules;
use crate::config::network::Network;
use crate::config::rate::{charge, excess_ns};
use crate::config::supply::NO_CLIENT;
use crate::observe::log::ClientName;
use crate::observe::metrics::ClientCounters;
use crate::tls::certificates::Identity;
use crate::tls::negotiated::Negotiated;

/// The operator's rules about clients, and what these have used, shared by all workers.
#[derive(Debug)]
pub(crate) struct Clients {
    rules: ClientRules,
    /// If there are limits.
    table: Option<ClientTable>,
}

impl Clients {
    /// `None` if all clients are what they seem, and may do as they like.
    pub(crate) fn new(rules: &ClientRules) -> Option<Arc<Self>> {
        (*rules != ClientRules::default()).then(|| {
            Arc::new(Self {
                table: rules.has_limits().then(ClientTable::new),
                rules: rules.clone(),
            })
        })
    }

    /// Whether this is the address of a trusted proxy.
    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        let mut networks = self.rules.trust.iter();
        networks.any(|network| network.contains(address))
    }

    /// Whether this peer is a trusted proxy.
    pub(crate) fn is_proxy(clients: Option<&Self>, peer: Peer) -> bool {
        clients.is_some_and(|it| match peer {
            Peer::Ip(address) => it.is_trusted(address.ip()),
            Peer::Unix => it.rules.trust_unix,
            Peer::Unknown => false,
        })
    }

    /// Whether the PROXY headers of this peer count. Those of a Unix socket do: its permissions say
    /// who may connect.
    pub(crate) fn may_introduce(clients: Option<&Self>, peer: Peer) -> bool {
        peer == Peer::Unix || Self::is_proxy(clients, peer)
    }

    /// Whether a client is allowed: the longest matching prefix wins, `deny` between equal ones. A client
    /// in no list is allowed, unless there is an `allow`; [`HIDDEN`] is, unless there are lists.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        let longest = |networks: &[Network]| {
            let matching = networks.iter().filter(|network| network.contains(address));
            matching.map(Network::prefix_len).max()
        };
        if address == HIDDEN {
            return !self.rules.has_lists();
        }
        match (longest(&self.rules.allow), longest(&self.rules.deny)) {
            (None, None) => self.rules.allow.is_empty(),
            (allow, deny) => allow > deny,
        }
    }

    /// Charges content of a response to a client of a trusted proxy. It is unknown how much of it the
    /// client takes, so one response counts for no more than a burst.
    pub(crate) fn charge_response(&self, place: Option<Place>, len: u64, now: Nanos) {
        if let Some(cost) = self.cost_ns(len) {
            self.charge(place, cost.min(BURST_NS), now);
        }
    }

    /// The time that bytes take at the permitted rate, in nanoseconds; `None` if there is none.
    fn cost_ns(&self, bytes: u64) -> Option<u64> {
        let cost = u128::from(bytes) * 1_000_000_000;
        let cost = cost.checked_div(u128::from(self.rules.bytes_per_second))?;
        Some(u64::try_from(cost).unwrap_or(u64::MAX))
    }

    fn charge(&self, place: Option<Place>, cost_ns: u64, now: Nanos) {
        if let (Some(table), Some(place)) = (&self.table, place) {
            charge(&table.entry(place).bytes_paid_at, cost_ns, now);
        }
    }

    /// Takes a request of the client with this entry.
    fn take_request(&self, place: Place, now: Nanos) -> Verdict {
        let Some(table) = &self.table else {
            return Verdict::Answer;
        };
        let entry = table.entry(place);
        if self.rules.bytes_per_second > 0 {
            let excess_ns = excess_ns(&entry.bytes_paid_at, now);
            if excess_ns > 0 {
                return Verdict::TooManyBytes(excess_ns);
            }
        }
        match self.rules.requests {
            Some(rate) => match rate.take(&entry.requests_paid_at, now) {
                Ok(()) => Verdict::Answer,
                Err(ns) => Verdict::TooManyRequests(ns),
            },
            None => Verdict::Answer,
        }
    }
}

/// Stands for all clients that their trusted proxies do not name, or not in a way that can be read:
/// no packet comes from its network (RFC 6666), so that no other client is counted with them.
const HIDDEN: IpAddr = IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0));

/// A client as limits count it: an IPv4 address, or the /64 network of an IPv6 address.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ClientKey(u128);

impl ClientKey {
    /// It as a number, or [`NO_CLIENT`].
    pub(crate) fn number_of(key: Option<Self>) -> u128 {
        key.map_or(NO_CLIENT, |key| key.0)
    }
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Answer it.
    Answer,
    /// Its proxy contradicts itself: see [`Conflict`].
    Conflict,
    /// Its address is not validated yet, so there is no client to charge (RFC 8470 section 5.2).
    TooEarly,
    /// The client is not allowed.
    Denied,
    /// The client has sent too many; in so many nanoseconds it may send another one.
    TooManyRequests(u64),
    /// The same for bytes that it was sent.
    TooManyBytes(u64),
}

/// The client of a connection. Dropping it ends the count of the connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// For the log: `192.0.2.1:443`, `unix`.
    name: Box<str>,
    /// Unless it is a trusted proxy, or has none.
    address: Option<IpAddr>,
    /// It is a proxy that names the client of each request.
    pub(crate) is_trusted: bool,
    /// Its requests are answered only after a look at the rules.
    pub(crate) is_checked: bool,
    clients: Option<Arc<Clients>>,
    /// The connection has begun: before that, the address of a QUIC client may be a forged one.
    has_begun: bool,
    /// Its entry, if there was room for it.
    place: Option<Place>,
    /// Who it is by its certificate, if the log says it.
    identity: Option<Box<Identity>>,
    /// For the log.
    tls: Option<&'static Negotiated>,
}

impl Client {
    /// The client at the other end of a connection, or named by its PROXY header.
    pub(crate) fn new(clients: Option<&Arc<Clients>>, peer: Peer) -> Self {
        let is_trusted = Clients::is_proxy(clients.map(Arc::as_ref), peer);
        let (peer, address) = match peer {
            Peer::Ip(address) => {
                let ip = address.ip().to_canonical();
                let peer = Peer::Ip(SocketAddr::new(ip, address.port()));
                (peer, (!is_trusted).then_some(ip))
            }
            Peer::Unknown => (peer, Some(HIDDEN)),
            Peer::Unix => (peer, None),
        };
        Self {
            name: peer.to_string().into(),
            address,
            is_trusted,
            is_checked: is_trusted || clients.is_some_and(|it| it.rules.limits_requests()),
            clients: clients.map(Arc::clone),
            has_begun: false,
            place: None,
            identity: None,
            tls: None,
        }
    }

    /// Whom its connections count for; `None` for a trusted proxy, and for the peer of a Unix socket.
    pub(crate) fn key(&self) -> Option<ClientKey> {
        self.address.map(|address| ClientKey(table::key(address)))
    }

    /// The same for what it has done for itself: until the address of a QUIC client is validated, that counts for
    /// no single address, but for all of these clients together.
    pub(crate) fn key_validated(&self) -> Option<ClientKey> {
        match self.has_begun {
            true => self.key(),
            false => Some(ClientKey(table::key(HIDDEN))),
        }
    }

    /// How the log calls it, if the connection has a client.
    pub(crate) fn named(client: Option<&Self>) -> ClientName<'_> {
        ClientName {
            address: client.map_or("-", |client| &client.name),
            identity: client.and_then(|client| client.identity.as_deref()),
            tls: client.and_then(|client| client.tls),
        }
    }

    /// Its connection has agreed on this.
    pub(crate) fn secured(&mut self, tls: Option<&'static Negotiated>) {
        self.tls = tls;
    }

    /// It has shown who it is.
    pub(crate) fn identify(&mut self, identity: Identity) {
        self.identity = Some(Box::new(identity));
    }

    /// Bytes that are kept for the log about who it is.
    pub(crate) fn identity_bytes(client: Option<&Self>) -> u64 {
        let identity = client.and_then(|client| client.identity.as_ref());
        identity.map_or(0, |identity| identity.memory())
    }

    /// Whether a connection may begin; if not, it is counted why. Nothing is noted.
    pub(crate) fn may_connect(&self, counters: &mut ClientCounters) -> bool {
        let (Some(clients), Some(address)) = (&self.clients, self.address) else {
            return true;
        };
        let is_allowed = clients.allows(address);
        counters.denied_connections += u64::from(!is_allowed);
        is_allowed
    }

    /// Counts its connection. Returns whether it may have one more.
    pub(crate) fn connect(&mut self, now: Nanos, counters: &mut ClientCounters) -> bool {
        self.has_begun = true;
        let (Some(clients), Some(address)) = (&self.clients, self.address) else {
            return true;
        };
        let Some(table) = &clients.table else {
            return true;
        };
        let most = match clients.rules.connections {
            0 => u32::MAX,
            most => most,
        };
        match table.connect(address, now, most) {
            Ok(found) => {
                counters.forgotten += u64::from(found.has_forgotten);
                self.place = Some(found.place);
                true
            }
            Err(NoPlace::Full) => {
                counters.unenforced += 1;
                true
            }
            Err(NoPlace::Limit) => {
                counters.limited_connections += 1;
                false
            }
        }
    }

    /// Bytes a second that one connection of it is sent at most; `None` if there is no limit.
    pub(crate) fn pace(&self) -> Option<u64> {
        let rate = self.clients.as_ref()?.rules.bytes_per_second;
        (rate > 0 && self.address.is_some()).then_some(rate)
    }

    /// The most bytes of content in one send to this client: what its rate gives in a second, since all
    /// of it is charged at once.
    pub(crate) fn slice_most(client: Option<&Self>) -> u64 {
        let rate = client.and_then(Self::pace);
        rate.map_or(u64::MAX, |rate| rate.max(UNTAKEN_MAX))
    }

    /// The same client at another address: its limits are those of its connection.
    pub(crate) fn moved(&mut self, address: SocketAddr, counters: &mut ClientCounters) {
        let mut next = Self::new(self.clients.as_ref(), Peer::Ip(address));
        // One that is not allowed at its new address gets no answer there.
        next.is_checked |= self.is_checked || !next.may_connect(counters);
        next.is_trusted &= self.is_trusted;
        next.has_begun = self.has_begun;
        next.place = self.place.take();
        next.identity = self.identity.take();
        next.tls = self.tls;
        *self = next;
    }

    /// Charges bytes that are about to be sent on its connection: a client that resets it has taken some
    /// of them.
    #[inline(never)]
    pub(crate) fn sends(&self, bytes: u64, now: Nanos) {
        if let Some(clients) = &self.clients
            && let Some(cost) = clients.cost_ns(bytes)
        {
            clients.charge(self.place, cost, now);
        }
    }

    /// What a request says about its client; nothing unless it comes from a trusted proxy. Of its host
    /// nothing unless the operator says that the proxy sets these fields: others pass on what clients
    /// send, who could choose a site past the proxy's own rules.
    ///
    /// # Errors
    /// See [`Conflict`].
    pub(crate) fn forwarded<'a>(&self, fields: &Fields<'a>) -> Result<Forwarded<'a>, Conflict> {
        match &self.clients {
            Some(clients) if self.is_trusted => {
                let forwarded = Forwarded::read(fields, |address| clients.is_trusted(address))?;
                Ok(Forwarded {
                    authority: forwarded.authority.filter(|_| clients.rules.trust_host),
                    ..forwarded
                })
            }
            _ => Ok(Forwarded::default()),
        }
    }

    /// What to do with a request of this client, or of the one that it names; and the entry of that
    /// one. Trusted proxies themselves have no limits.
    pub(crate) fn judge(
        &self,
        forwarded: &Forwarded<'_>,
        now: Nanos,
        counters: &mut ClientCounters,
    ) -> (Verdict, Option<Place>) {
        let Some(clients) = &self.clients else {
            return (Verdict::Answer, None);
        };
        let of_proxy = forwarded
            .client
            .filter(|address| !clients.is_trusted(*address));
        let of_proxy = of_proxy.or(forwarded.is_hidden.then_some(HIDDEN));
        let Some(address) = of_proxy.or(self.address) else {
            return (Verdict::Answer, None);
        };
        if !clients.allows(address) {
            counters.denied_requests += 1;
            return (Verdict::Denied, None);
        }
        // A proxy's address may be forged as well as a client's.
        if !self.has_begun && (self.is_trusted || clients.rules.limits_requests()) {
            return (Verdict::TooEarly, None);
        }
        let place = match &clients.table {
            Some(table) if of_proxy.is_some() => match table.find(address, now) {
                Some(found) => {
                    counters.forgotten += u64::from(found.has_forgotten);
                    Some(found.place)
                }
                None => {
                    counters.unenforced += 1;
                    None
                }
            },
            _ => self.place,
        };
        let verdict = place.map_or(Verdict::Answer, |place| clients.take_request(place, now));
        match verdict {
            Verdict::TooManyRequests(_) => counters.limited_requests += 1,
            Verdict::TooManyBytes(_) => counters.limited_bytes += 1,
            _ => {}
        }
        (verdict, of_proxy.and(place))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let table = self.clients.as_ref().and_then(|it| it.table.as_ref());
        if let (Some(table), Some(place)) = (table, self.place) {
            table.disconnect(place);
        }
    }
}

/// What a trusted proxy has said about a request.
#[derive(Clone, Debug)]
pub(crate) struct ForwardedClient {
    /// The client, for the log.
    pub(crate) name: Option<Box<str>>,
    /// The host that the client has asked, for the log.
    pub(crate) authority: Option<Box<[u8]>>,
    /// The scheme by which it sent the request.
    pub(crate) scheme: Scheme,
    /// To whom the response is charged.
    pub(crate) place: Option<Place>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Limits are counted by network: those of hidden clients are theirs alone.
    #[test]
    fn who_is_hidden_is_counted_with_nobody() {
        let parse = |text: &str| text.parse().expect("an address");
        for real in ["::", "::1", "127.0.0.1", "2001:db8::1"] {
            assert_ne!(table::key(HIDDEN), table::key(parse(real)), "{real}");
        }
    }

    /// A number of a client is not that of none, and each has one of its own.
    #[test]
    fn numbers_tell_clients_apart() {
        let networks = [
            "::",
            "2001:db8::1",
            "127.0.0.1",
            "127.0.0.2",
            "ffff::",
            "255.255.255.255",
        ];
        let parse = |text: &&str| Some(ClientKey(table::key(text.parse().expect("an address"))));
        let numbers = networks.iter().map(parse).chain([None]);
        let numbers: HashSet<_> = numbers.map(ClientKey::number_of).collect();
        assert_eq!(numbers.len(), networks.len() + 1);
        assert_eq!(ClientKey::number_of(None), NO_CLIENT);
        assert_ne!(ClientKey::number_of(parse(&"::1")), NO_CLIENT);
    }

    #[test]
    fn the_most_specific_network_decides() {
        let check = |allow: &[&str], deny: &[&str], allowed: &[&str], denied: &[&str]| {
            let networks = |texts: &[&str]| {
                let parse = |text: &&str| Network::parse(text).expect("a network");
                texts.iter().flat_map(parse).collect()
            };
            let rules = ClientRules {
                allow: networks(allow),
                deny: networks(deny),
                ..ClientRules::default()
            };
            let clients = Clients::new(&rules).expect("there are rules");
            let allows = |text: &&&str| clients.allows(text.parse().expect("an address"));
            assert!(allowed.iter().all(|it| allows(&it)), "{allow:?} {deny:?}");
            assert!(!denied.iter().any(|it| allows(&it)), "{allow:?} {deny:?}");
        };
        check(
            &["10.0.0.0/8", "2001:db8::/32"],
            &[],
            &["10.1.2.3", "2001:db8::1"],
            &["192.0.2.1", "2001:db9::1", "::1"],
        );
        check(
            &[],
            &["192.0.2.0/24"],
            &["10.1.2.3", "::1"],
            &["192.0.2.1", "::ffff:192.0.2.1"],
        );
        check(
            &["10.1.0.0/16", "0.0.0.0/0"],
            &["10.0.0.0/8", "10.1.2.3"],
            &["10.1.2.4", "192.0.2.1"],
            &["10.2.0.1", "10.1.2.3", "::1"],
        );
        check(&["10.0.0.0/8"], &["10.0.0.0/8"], &[], &["10.1.2.3"]);
    }
}
