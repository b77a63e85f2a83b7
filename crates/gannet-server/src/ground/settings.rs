//! A worker's settings, constant during its life.

use std::sync::Arc;

use crate::clients::Clients;
use crate::config::supply::Supply;
use crate::config::{Limits, Scheme};
use crate::observe::incidents::Incidents;
use crate::passwords::checker::Checker;
use crate::quic::QuicSettings;
use crate::release::redirect::Redirect;
use crate::tls::certificates::CertificateStore;
use crate::tls::kernel::KernelTls;

/// What the connections of a listener speak.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ListenerKind {
    pub(crate) scheme: Scheme,
    /// They start with a header of the PROXY protocol.
    pub(crate) is_proxied: bool,
    /// The index of its address in [`WorkerSettings::addresses`].
    pub(crate) address: u16,
}

/// See the module documentation.
pub(crate) struct WorkerSettings {
    /// Index of the worker, from 0.
    pub(crate) number: usize,
    /// How many workers there are.
    pub(crate) workers: usize,
    /// Timeouts and limits.
    pub(crate) limits: Limits,
    /// Maximum number of connections of this worker.
    pub(crate) connections_max: usize,
    /// The listeners that the driver was created with.
    pub(crate) listeners: Vec<ListenerKind>,
    /// The addresses where these listen, as messages name them.
    pub(crate) addresses: Vec<String>,
    /// Where the worker reports what goes wrong for peers.
    pub(crate) incidents: Arc<Incidents>,
    /// HTTP/2 may start with its preface in clear text.
    pub(crate) has_clear_http2: bool,
    /// Rules about clients, if there are any.
    pub(crate) clients: Option<Arc<Clients>>,
    /// Compares passwords with hashes.
    pub(crate) checker: Arc<Checker>,
    /// Who fetches parts of releases on demand.
    pub(crate) supply: Option<Supply>,
    /// The HTTPS address that [`Scheme::Redirect`] listeners redirect to.
    pub(crate) redirect: Redirect,
    /// The certificates, if any listener speaks TLS.
    pub(crate) certificates: Option<Arc<CertificateStore>>,
    /// HTTP/3 settings, if enabled.
    pub(crate) quic: Option<QuicSettings>,
    /// Kernel support for TLS connections.
    pub(crate) kernel_tls: Option<KernelTls>,
    /// Bytes at the end of a long live file that are sent as copies.
    pub(crate) tail_len: u64,
    /// Records that one key of a connection may encrypt before it is replaced.
    pub(crate) key_records_max: u64,
    /// Bytes of archives copied into memory; reported by one worker only.
    pub(crate) archive_copied: u64,
    /// Responses and handshakes are measured, because the results are exported.
    pub(crate) is_measuring: bool,
    /// Random bytes, for delimiters that no client can predict.
    pub(crate) secret: [u8; 32],
}

impl WorkerSettings {
    /// Number of listeners.
    pub(crate) fn listener_count(&self) -> u32 {
        u32::try_from(self.listeners.len()).expect("listeners are few")
    }
}
