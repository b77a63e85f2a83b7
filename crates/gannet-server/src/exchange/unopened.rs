//! Requests that wait for their site to be opened by another thread (`start/sites`).

use std::collections::HashMap;
use std::sync::Arc;

use gannet_io::driver::Token;

use crate::limits::SITE_WAITERS_MAX;

/// A worker's requests for sites that are not open, by host.
#[derive(Default)]
pub(crate) struct Unopened {
    waiters: HashMap<Arc<[u8]>, Vec<Token>>,
    /// Waiters of all hosts.
    count: usize,
}

impl Unopened {
    /// Has `waiter` wait for the site of a host, which the first one `ask`s for. False if too many
    /// wait already, or `ask` returns false.
    pub(crate) fn wait(
        &mut self,
        host: &Arc<[u8]>,
        waiter: Token,
        ask: impl FnOnce(&Arc<[u8]>) -> bool,
    ) -> bool {
        if self.count >= SITE_WAITERS_MAX || (!self.waiters.contains_key(host) && !ask(host)) {
            return false;
        }
        let waiters = self.waiters.entry(Arc::clone(host)).or_default();
        waiters.push(waiter);
        self.count += 1;
        true
    }

    /// Those that waited for the site of a host.
    pub(crate) fn take(&mut self, host: &[u8]) -> Vec<Token> {
        let waiters = self.waiters.remove(host).unwrap_or_default();
        self.count -= waiters.len();
        waiters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_asked_for_once_and_waiters_are_bounded() {
        let mut unopened = Unopened::default();
        let one: Arc<[u8]> = Arc::from(*b"one.example");
        let other: Arc<[u8]> = Arc::from(*b"other.example");
        assert!(!unopened.wait(&one, Token(0), |_| false), "a full queue");
        assert!(unopened.wait(&one, Token(1), |_| true));
        let not_again = |_: &_| panic!("it was asked for");
        for waiter in 2..=SITE_WAITERS_MAX as u64 {
            assert!(unopened.wait(&one, Token(waiter), not_again));
        }
        assert!(!unopened.wait(&one, Token(0), not_again));
        assert!(!unopened.wait(&other, Token(0), not_again));
        assert_eq!(unopened.take(&one).len(), SITE_WAITERS_MAX);
        assert!(unopened.take(&one).is_empty());
        assert!(unopened.wait(&one, Token(1), |_| true), "asked for anew");
    }
}
