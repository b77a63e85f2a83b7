//! Requests that wait for their site to be opened by another thread (`start/sites`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gannet_io::driver::Token;

use crate::bounds::limits::SITE_WAITERS_MAX;
use crate::exchange::waiters::{Line, Waiters};

/// A worker's requests for sites that are not open, by host.
#[derive(Default)]
pub(crate) struct Unopened {
    lines: HashMap<Arc<[u8]>, Line>,
    /// Waiters of all hosts, some of whose connections may be gone.
    count: usize,
    /// Those were looked for in this turn.
    is_pruned: bool,
}

impl Unopened {
    /// Has `waiter` wait for the site of a host, which the first one `ask`s for, and each that has `waited`
    /// before. False if too many wait already, or `ask` returns false. Before that, once a turn, those of `waiters` whose
    /// connections are gone are removed: a file system that hangs keeps no place for them.
    pub(crate) fn wait(
        &mut self,
        host: &Arc<[u8]>,
        (waiter, waited): (Token, Duration),
        waiters: &mut Waiters,
        ask: impl FnOnce(&Arc<[u8]>) -> bool,
    ) -> bool {
        if self.count >= SITE_WAITERS_MAX && !self.is_pruned {
            self.is_pruned = true;
            self.prune(waiters);
        }
        let is_asked = self.lines.contains_key(host) && waited.is_zero();
        if self.count >= SITE_WAITERS_MAX || (!is_asked && !ask(host)) {
            return false;
        }
        let line = self.lines.entry(Arc::clone(host)).or_default();
        line.0.push_back(waiter);
        self.count += 1;
        true
    }

    /// Another turn begins.
    pub(crate) fn begin_turn(&mut self) {
        self.is_pruned = false;
    }

    /// Hosts without a waiter stay: they were requested.
    fn prune(&mut self, waiters: &mut Waiters) {
        self.count = 0;
        for line in self.lines.values_mut() {
            line.prune(waiters);
            self.count += line.0.len();
        }
    }

    /// Those that waited for the site of a host.
    pub(crate) fn take(&mut self, host: &[u8]) -> VecDeque<Token> {
        let line = self.lines.remove(host).unwrap_or_default();
        self.count -= line.0.len();
        line.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::token::ConnId;
    use crate::ground::token::Kind;

    #[test]
    fn a_site_is_asked_for_once_and_waiters_are_bounded() {
        let mut unopened = Unopened::default();
        let mut waiters = Waiters::default();
        let most = u32::try_from(SITE_WAITERS_MAX).expect("a small number");
        let id = |slot| ConnId {
            generation: 1,
            slot,
        };
        let waiter = |slot| id(slot).token(Kind::Disk);
        (0..=most).for_each(|slot| waiters.connections.insert(id(slot)));
        let one: Arc<[u8]> = Arc::from(*b"one.example");
        let other: Arc<[u8]> = Arc::from(*b"other.example");
        let is_full = !unopened.wait(&one, (waiter(0), Duration::ZERO), &mut waiters, |_| false);
        assert!(is_full, "a full queue");
        assert!(unopened.wait(&one, (waiter(1), Duration::ZERO), &mut waiters, |_| true));
        let not_again = |_: &_| panic!("it was asked for");
        for slot in 2..=most {
            assert!(unopened.wait(
                &one,
                (waiter(slot), Duration::ZERO),
                &mut waiters,
                not_again
            ));
        }
        assert!(!unopened.wait(&one, (waiter(0), Duration::ZERO), &mut waiters, not_again));
        assert!(!unopened.wait(&other, (waiter(0), Duration::ZERO), &mut waiters, not_again));
        waiters.connections.remove(id(1));
        let is_full = !unopened.wait(&other, (waiter(0), Duration::ZERO), &mut waiters, not_again);
        assert!(is_full, "who is gone was looked for in this turn");
        unopened.begin_turn();
        assert!(unopened.wait(&other, (waiter(0), Duration::ZERO), &mut waiters, |_| true));
        assert_eq!(unopened.take(&one).len(), SITE_WAITERS_MAX - 1);
        assert!(unopened.take(&one).is_empty());
        assert_eq!(unopened.take(&other), [waiter(0)]);
        let is_asked = unopened.wait(&one, (waiter(2), Duration::ZERO), &mut waiters, |_| true);
        assert!(is_asked, "asked for anew");
    }
}
