//! The hosts whose sites are opened at the first request, and the questions of workers for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::bounds::limits::SITE_QUEUE_MAX;
use crate::config::Content;

/// Hosts with their entries.
pub(crate) type HostTable = HashMap<Arc<[u8]>, Content, foldhash::fast::RandomState>;

/// The hosts whose sites are opened when they are requested, as workers know them.
#[derive(Clone)]
pub(crate) struct OnDemandHosts {
    table: Arc<HostTable>,
    /// Some are for all hosts below one.
    has_wildcards: bool,
    asks: SyncSender<Ask>,
}

/// A worker wants the site of a host.
pub(crate) struct Ask {
    pub(crate) worker: usize,
    pub(crate) host: Arc<[u8]>,
    /// For so long its request has waited before.
    pub(crate) waited: Duration,
}

impl OnDemandHosts {
    /// A table, and where its questions arrive.
    pub(crate) fn new(table: Arc<HostTable>) -> (Self, Receiver<Ask>) {
        let (asks, asked) = sync_channel(SITE_QUEUE_MAX);
        let mut hosts = Self {
            table: Arc::default(),
            has_wildcards: false,
            asks,
        };
        hosts.set_table(table);
        (hosts, asked)
    }

    /// Other hosts take the place of these.
    pub(crate) fn set_table(&mut self, table: Arc<HostTable>) {
        self.has_wildcards = table.keys().any(|host| host.starts_with(b"*."));
        self.table = table;
    }

    /// Whether some are for all hosts below one: `*.example.org`.
    pub(crate) fn has_wildcards(&self) -> bool {
        self.has_wildcards
    }

    /// The host as the table has it.
    pub(crate) fn host(&self, host: &[u8]) -> Option<&Arc<[u8]>> {
        self.table.get_key_value(host).map(|(host, _)| host)
    }

    /// Queues a question for a request that has `waited` before; false if too many are queued.
    pub(crate) fn ask(&self, worker: usize, host: &Arc<[u8]>, waited: Duration) -> bool {
        let ask = Ask {
            worker,
            host: Arc::clone(host),
            waited,
        };
        self.asks.try_send(ask).is_ok()
    }
}
