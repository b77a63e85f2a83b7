//! What each client has used lately, in one table for all workers.
//!
//! Its size is fixed, and its entries are atomic integers: workers share it without locks, and
//! memory is the same for one client as for a million. A client's place is determined by a hash with
//! a random key, so clients cannot choose addresses that share a place. Eight clients have room at one
//! place; another one replaces the entry that has been paid for longest, but never one with open
//! connections, whose count would be lost.
//!
//! Between two operations another worker may replace an entry. A count of connections never changes
//! its owner, because both are one integer; a request or a few bytes may be charged to a newcomer.
//! Two workers may give a client two entries at the same moment; it may then use both.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use gannet_io::driver::Nanos;

use crate::bounds::clients::{CLIENTS_MAX, ENTRY_ATTEMPTS_MAX, PLACE_ENTRIES};
use crate::config::network::{is_mapped, number};

/// See the module documentation.
pub(crate) struct ClientTable {
    entries: Box<[Entry]>,
    hasher: RandomState,
}

/// A client.
#[derive(Default)]
pub(super) struct Entry {
    /// Of 64 bits, the upper 40 identify the client, and the others count its connections; 0 if the
    /// entry was never used.
    owner: AtomicU64,
    /// When the client will have paid for its requests: see [`rate`](crate::config::rate).
    pub(super) requests_paid_at: AtomicU64,
    /// The same for bytes.
    pub(super) bytes_paid_at: AtomicU64,
}

/// The part of [`Entry::owner`] that counts connections.
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// An entry of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place(u32);

/// A found or new entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FoundEntry {
    pub(super) place: Place,
    /// It was that of another client, which may now use more than its limits.
    pub(super) has_forgotten: bool,
}

/// Why a connection has no entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NoPlace {
    /// The client has as many connections as it may.
    Limit,
    /// All entries of its place have connections.
    Full,
}

impl ClientTable {
    pub(crate) fn new() -> Self {
        Self {
            entries: (0..CLIENTS_MAX).map(|_| Entry::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn entry(&self, place: Place) -> &Entry {
        &self.entries[place.0 as usize]
    }

    /// The entry of a client; `None` if its place is full.
    pub(super) fn find(&self, client: IpAddr, now: Nanos) -> Option<FoundEntry> {
        self.join(client, now, None).ok()
    }

    /// The same, for another connection of a client, which may have `most`. It counts until
    /// [`disconnect`](Self::disconnect).
    pub(super) fn connect(
        &self,
        client: IpAddr,
        now: Nanos,
        most: u32,
    ) -> Result<FoundEntry, NoPlace> {
        self.join(client, now, Some(most))
    }

    /// Ends a connection that [`connect`](Self::connect) has counted.
    pub(super) fn disconnect(&self, place: Place) {
        let before = self.entry(place).owner.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before & COUNT_MAX > 0, "it was counted");
    }

    fn join(&self, client: IpAddr, now: Nanos, most: Option<u32>) -> Result<FoundEntry, NoPlace> {
        let hash = self.hasher.hash_one(key(client));
        let owner = (hash | 1 << COUNT_BITS) & !COUNT_MAX;
        let places = CLIENTS_MAX / PLACE_ENTRIES;
        let first = (hash as usize % places) * PLACE_ENTRIES;
        let entries = &self.entries[first..first + PLACE_ENTRIES];
        // Another worker may be faster each time, but not for long.
        for _ in 0..ENTRY_ATTEMPTS_MAX {
            let own = |entry: &Entry| entry.owner.load(Ordering::Relaxed) & !COUNT_MAX == owner;
            let (at, before) = match entries.iter().position(own) {
                Some(at) => (at, entries[at].owner.load(Ordering::Relaxed)),
                None => longest_paid(entries).ok_or(NoPlace::Full)?,
            };
            let entry = &entries[at];
            let is_own = before & !COUNT_MAX == owner;
            let count = if is_own { before & COUNT_MAX } else { 0 };
            let after = match most {
                Some(most) if count >= u64::from(most) => return Err(NoPlace::Limit),
                Some(_) if count == COUNT_MAX => return Err(NoPlace::Full),
                Some(_) => owner + count + 1,
                None => owner + count,
            };
            let exchange = || {
                let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
                entry.owner.compare_exchange(before, after, set, get)
            };
            if before != after && exchange().is_err() {
                continue;
            }
            let has_forgotten = !is_own && entry.paid_at() > now.0;
            if !is_own {
                entry.requests_paid_at.store(0, Ordering::Relaxed);
                entry.bytes_paid_at.store(0, Ordering::Relaxed);
            }
            let place = Place((first + at) as u32);
            return Ok(FoundEntry {
                place,
                has_forgotten,
            });
        }
        Err(NoPlace::Full)
    }
}

impl Entry {
    fn paid_at(&self) -> u64 {
        let requests = self.requests_paid_at.load(Ordering::Relaxed);
        requests.max(self.bytes_paid_at.load(Ordering::Relaxed))
    }
}

/// The entry without connections that has been paid for longest, and its owner.
fn longest_paid(entries: &[Entry]) -> Option<(usize, u64)> {
    let owners = entries.iter().map(|it| it.owner.load(Ordering::Relaxed));
    owners
        .enumerate()
        .filter(|(_, owner)| owner & COUNT_MAX == 0)
        .min_by_key(|(at, owner)| (*owner != 0, entries[*at].paid_at()))
}

/// An IPv4 address, or the /64 network of an IPv6 address: each of its customers has at least one
/// from a provider, with as many addresses as it likes.
pub(super) fn key(client: IpAddr) -> u128 {
    let bits = number(client);
    match is_mapped(bits) {
        true => bits,
        false => bits >> 64 << 64,
    }
}

impl std::fmt::Debug for ClientTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;
    use crate::config::rate::{Rate, charge};

    const NOW: Nanos = Nanos(1_000_000_000_000);

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn place(table: &ClientTable, client: &str) -> Place {
        let client = client.parse().expect("an address");
        table.find(client, NOW).expect("room").place
    }

    #[test]
    fn clients_are_addresses_or_networks() {
        let table = ClientTable::new();
        let check = |one: &str, other: &str, is_same| {
            assert_eq!(
                place(&table, one) == place(&table, other),
                is_same,
                "{one} {other}"
            );
        };
        check("192.0.2.1", "192.0.2.1", true);
        check("192.0.2.1", "::ffff:192.0.2.1", true);
        check("192.0.2.1", "192.0.2.2", false);
        check("2001:db8::1", "2001:db8::ffff:1", true);
        check("2001:db8::1", "2001:db8:0:1::1", false);
        check("::1", "192.0.2.1", false);
    }

    /// A million addresses fit into the same table, and each has what it may have meanwhile.
    #[test]
    fn a_million_clients_take_no_more_memory() {
        let table = ClientTable::new();
        let rate = Rate::new(1, 1_000_000_000, Some(2)).expect("a rate");
        let mut places = HashSet::new();
        let mut forgotten = 0;
        for client in 0..1_000_000 {
            let now = Nanos(NOW.0 + u64::from(client) * 1_000);
            let found = table.find(v4(client), now).expect("none is connected");
            let entry = table.entry(found.place);
            let take = || rate.take(&entry.requests_paid_at, now);
            assert_eq!((take(), take(), take().is_err()), (Ok(()), Ok(()), true));
            places.insert(found.place.0);
            forgotten += u32::from(found.has_forgotten);
        }
        assert_eq!(table.entries.len(), CLIENTS_MAX);
        assert!(places.len() <= CLIENTS_MAX);
        assert!(forgotten > 0, "more than fit were over their limit at once");
        assert!(size_of::<Entry>() * CLIENTS_MAX <= 2 << 20);
    }

    /// A new client replaces who has paid, not who has just used its burst.
    #[test]
    fn those_that_have_paid_make_room() {
        let table = ClientTable::new();
        for client in 0..CLIENTS_MAX as u32 / 4 {
            let found = table.find(v4(client), NOW).expect("none is connected");
            charge(&table.entry(found.place).bytes_paid_at, 1 << 40, NOW);
        }
        let kept = (0..CLIENTS_MAX as u32 / 4).filter(|client| {
            // Strangers at every place, each for a moment.
            let _ = table.find(v4(!client), NOW).expect("none is connected");
            let found = table.find(v4(*client), NOW).expect("none is connected");
            table.entry(found.place).paid_at() > NOW.0
        });
        // A few places have more than eight of them.
        assert!(kept.count() > CLIENTS_MAX / 4 * 99 / 100);
    }

    #[test]
    fn connections_are_counted_exactly() {
        let table = ClientTable::new();
        let client = v4(7);
        let found: Vec<_> = (0..3)
            .map(|_| table.connect(client, NOW, 3).expect("allowed"))
            .collect();
        assert_eq!(table.connect(client, NOW, 3), Err(NoPlace::Limit));
        table.disconnect(found[0].place);
        let again = table.connect(client, NOW, 3).expect("allowed");
        assert_eq!(again.place, found[1].place);
        assert_eq!(table.connect(client, NOW, 3), Err(NoPlace::Limit));
    }

    /// However many others come, a client with connections keeps its entry; when all entries of a
    /// place have connections, the limit is not enforced there.
    #[test]
    fn who_is_connected_is_never_replaced() {
        let table = ClientTable::new();
        let mut places = HashSet::new();
        let mut full = 0;
        for client in 0..2 * CLIENTS_MAX as u32 {
            match table.connect(v4(client), NOW, 1) {
                Ok(found) => assert!(places.insert(found.place.0), "an entry of its own"),
                Err(NoPlace::Full) => full += 1,
                Err(NoPlace::Limit) => panic!("another client"),
            }
        }
        assert!(full >= CLIENTS_MAX);
        assert_eq!(table.connect(v4(0), NOW, 1), Err(NoPlace::Limit));
        for place in places {
            table.disconnect(Place(place));
        }
        assert!(table.connect(v4(0), NOW, 1).is_ok());
    }

    /// Workers at once: no count is lost while others come and go.
    #[test]
    fn workers_count_together() {
        let table = ClientTable::new();
        let work = |worker: u32| {
            let mut place = None;
            for step in 0..100_000 {
                let _ = table.find(v4(1_000 + step * 4 + worker), NOW);
                if let Some(place) = place.take() {
                    table.disconnect(place);
                } else if let Ok(found) = table.connect(v4(7), NOW, 2) {
                    place = Some(found.place);
                }
            }
            if let Some(place) = place {
                table.disconnect(place);
            }
        };
        thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || work(worker));
            }
        });
        let count = |entry: &Entry| entry.owner.load(Ordering::Relaxed) & COUNT_MAX;
        assert_eq!(table.entries.iter().map(count).sum::<u64>(), 0);
    }
}
