//! Hosts that are added while an orderer runs: a server has sites for them, and clients request them.
//!
//! A client that requests a name decides when it is ordered, and a name may not lead to this server at
//! all. So there are bounds beside those of all orders: of names that wait, of orders in an hour (which
//! [`History`](super::history::History) counts over restarts), and a failed name is not tried again by
//! itself. Certificates that are there already are renewed like others.

use std::collections::{HashMap, HashSet};

use crate::limits::{ON_DEMAND_HOSTS_FAILED_MAX, ON_DEMAND_HOSTS_MAX, ON_DEMAND_HOSTS_WAITING_MAX};

/// What is known of hosts that are ordered on demand, besides their place among all hosts.
#[derive(Default)]
pub(super) struct OnDemandOrders {
    /// All that are among the hosts, in lower case.
    names: HashSet<String>,
    /// Of these, those that have no certificate yet.
    new: HashSet<String>,
    /// The last order has failed, and until this time none is made again.
    failed: HashMap<String, i64>,
}

impl OnDemandOrders {
    /// Adds a name at `now`, Unix seconds; returns false if it is known already, has just failed, or there
    /// are too many. `is_held`: it has a certificate.
    pub(super) fn add(&mut self, name: &str, is_held: bool, now: i64) -> bool {
        if self.names.len() >= ON_DEMAND_HOSTS_MAX || self.names.contains(name) {
            return false;
        }
        if !is_held && self.new.len() >= ON_DEMAND_HOSTS_WAITING_MAX {
            return false;
        }
        if self.failed.get(name).is_some_and(|again| now < *again) {
            return false;
        }
        self.failed.remove(name);
        self.names.insert(name.to_owned());
        if !is_held {
            self.new.insert(name.to_owned());
        }
        true
    }

    /// Whether a name is new: it was added, and has no certificate yet.
    pub(super) fn is_new(&self, name: &str) -> bool {
        self.new.contains(name)
    }

    /// Whether any was added.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Takes a name out; returns whether it was there.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.new.remove(name);
        self.names.remove(name)
    }

    /// A name has a certificate.
    pub(super) fn got(&mut self, name: &str) {
        self.new.remove(name);
    }

    /// An order has failed, and may be tried again at this time. Returns whether the name was new: it is
    /// taken out then, and tried again when it is requested again.
    pub(super) fn failed(&mut self, name: &str, again: i64, now: i64) -> bool {
        if !self.new.remove(name) {
            return false;
        }
        self.names.remove(name);
        if self.failed.len() >= ON_DEMAND_HOSTS_FAILED_MAX {
            self.failed.retain(|_, again| now < *again);
        }
        if self.failed.len() >= ON_DEMAND_HOSTS_FAILED_MAX {
            // The one that would be tried again first.
            let first = self.failed.iter().min_by_key(|(_, again)| **again);
            let first = first.map(|(name, _)| name.clone());
            first.and_then(|name| self.failed.remove(&name));
        }
        self.failed.insert(name.to_owned(), again);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_everything_is_bounded() {
        let mut orders = OnDemandOrders::default();
        let taken = (0..ON_DEMAND_HOSTS_WAITING_MAX * 4).filter(|it| {
            let name = format!("h{it}.test");
            orders.add(&name, false, 0)
        });
        assert_eq!(taken.count(), ON_DEMAND_HOSTS_WAITING_MAX);
        let taken = (0..ON_DEMAND_HOSTS_MAX * 2).filter(|it| {
            let name = format!("held{it}.test");
            orders.add(&name, true, 0)
        });
        assert_eq!(
            taken.count(),
            ON_DEMAND_HOSTS_MAX - ON_DEMAND_HOSTS_WAITING_MAX
        );
        // All fail: their failures are remembered up to a bound.
        for number in 0..ON_DEMAND_HOSTS_FAILED_MAX * 2 {
            let name = format!("f{number}.test");
            orders.remove("h0.test");
            orders.names.insert(name.clone());
            orders.new.insert(name.clone());
            assert!(orders.failed(&name, 1000 + number as i64, 0));
        }
        assert_eq!(orders.failed.len(), ON_DEMAND_HOSTS_FAILED_MAX);
    }

    #[test]
    fn a_name_that_failed_is_tried_when_it_is_requested_again_later() {
        let mut orders = OnDemandOrders::default();
        assert!(orders.add("a.test", false, 0));
        assert!(!orders.add("a.test", false, 0), "it is known");
        assert!(orders.failed("a.test", 150, 0));
        assert!(!orders.add("a.test", false, 149), "it has just failed");
        assert!(orders.add("a.test", false, 150));
        orders.got("a.test");
        assert!(
            !orders.failed("a.test", 900, 150),
            "it is renewed like others"
        );
        assert!(orders.remove("a.test") && !orders.remove("a.test"));
        assert!(orders.is_empty());
    }
}
