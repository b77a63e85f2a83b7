//! Memory a worker holds for its peers now, counted from its data structures: see
//! [`ledger`](crate::bounds::ledger).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use gannet_io::driver::Driver;

use super::Worker;
use crate::bounds::ledger::{Account, AccountBound, BytesByAccount, Holding};
use crate::clients::Client;
use crate::connection::Conn;
use crate::connection::streams::Streams;
use crate::observe::record::Record;
use crate::release::body::Body;
use crate::release::growing::Growing;

/// The highest value found by any count.
#[derive(Default)]
pub(super) struct Peaks(Cell<BytesByAccount>);

impl<D: Driver> Worker<D> {
    /// All accounts with their current values.
    pub(crate) fn holdings(&self) -> Vec<Holding> {
        let (mut all, mut most) = (BytesByAccount::default(), BytesByAccount::default());
        for conn in self.conns.iter() {
            let mut one = of_connection(conn);
            one[Account::Input] += self.shared.delays.held_bytes(conn.id);
            for account in Account::ALL {
                all[account] += one[account];
                most[account] = most[account].max(one[account]);
            }
        }
        for one in self.quic_holdings() {
            for account in Account::ALL {
                all[account] += one[account];
                most[account] = most[account].max(one[account]);
            }
        }
        all[Account::Waiting] = self.shared.ledger.waiting().held();
        all[Account::Listings] = self.shared.listing.held_bytes();
        all[Account::FirstReads] = self.shared.first_reads.held_bytes();
        all[Account::Copies] = self.shared.ledger.copies();
        all[Account::Loads] = self.shared.loading.held_bytes();
        all[Account::Folders] = self.shared.release.folder_memory();
        // Those of all workers, reported by one.
        if self.shared.settings.number == 0 {
            all[Account::LongCopies] = self.shared.release.long_copies();
        }
        let mut peaks = self.peaks.0.get();
        let connections = self.shared.counters.connections_max;
        let holdings = Account::ALL.map(|account| {
            let bound = self.shared.ledger.bound(account, connections);
            let bounded = match bound {
                AccountBound::Connection(_) => most[account],
                AccountBound::Worker(_) if account == Account::Copies => {
                    self.shared.ledger.copies_peak()
                }
                AccountBound::Worker(_) if account == Account::Waiting => {
                    self.shared.ledger.waiting().peak()
                }
                AccountBound::Worker(_) => all[account],
            };
            peaks[account] = peaks[account].max(bounded);
            Holding {
                account,
                bound,
                held: all[account],
                bounded: match bound {
                    AccountBound::Connection(_) => most[account],
                    AccountBound::Worker(_) => all[account],
                },
                peak: peaks[account],
            }
        });
        self.peaks.0.set(peaks);
        holdings.into()
    }

    /// Bytes of the shared bodies that connections hold for sending, each body once: a check of the
    /// charges.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let mut pinned = HashMap::new();
        for conn in self.conns.iter() {
            let parts = conn.work.iter().flat_map(|work| &work.parts);
            let parts = parts.filter_map(Body::shared);
            let streams = conn.protocol.streams().into_iter();
            let streams = streams.flat_map(Streams::shared);
            pinned.extend(
                parts
                    .chain(streams)
                    .map(|it| (Arc::as_ptr(it), it.len() as u64)),
            );
        }
        let quic = self.quic_shared();
        pinned.extend(quic.map(|it| (Arc::as_ptr(it), it.len() as u64)));
        pinned.values().sum()
    }
}

/// Memory held by one connection.
fn of_connection(conn: &Conn) -> BytesByAccount {
    let mut held = BytesByAccount::default();
    held[Account::Input] += conn.intake.capacity() as u64;
    held[Account::Sends] += u64::from(conn.in_flight);
    if let Some(tls) = &conn.tls {
        held[Account::Input] += tls.held_bytes();
    }
    if let Some(work) = &conn.work {
        held[Account::Answers] += work.head.capacity() as u64 + Body::held_by(&work.parts);
        let copied = work.copied.iter().filter_map(|file| file.growth());
        held[Account::Answers] += copied.map(Growing::held_bytes).sum::<usize>() as u64;
        held[Account::Log] += work.records.iter().map(Record::memory).sum::<u64>();
        if let Some(parked) = &work.parked {
            held[Account::Answers] += parked.out.wire_len();
        }
    }
    held[Account::Log] += Client::identity_bytes(conn.client.as_deref());
    if let Some(streams) = conn.protocol.streams() {
        held[Account::Answers] += streams.held_bytes();
        held[Account::Log] += streams.log_bytes();
        held[Account::Streams] += streams.connection.memory() as u64;
    }
    held
}
