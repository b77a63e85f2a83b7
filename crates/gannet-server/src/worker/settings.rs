//! What a worker is made with, and what never changes afterwards.

use std::sync::Arc;

use crate::config::{Limits, Scheme};
use crate::exchange::redirect::Redirect;
use crate::quic::QuicSettings;
use crate::tls::certificates::CertificateStore;
use crate::tls::kernel::KernelTls;

/// What a worker is made with.
pub(crate) struct WorkerSettings {
    /// Which of the workers it is, counted from 0.
    pub(crate) number: usize,
    /// Timeouts and limits.
    pub(crate) limits: Limits,
    /// The most connections of this worker.
    pub(crate) connections_max: usize,
    /// What is spoken at each of the listeners that its driver was created with.
    pub(crate) listeners: Vec<Scheme>,
    /// Where HTTPS is, for connections that are sent there.
    pub(crate) redirect: Redirect,
    /// The certificates, if any listener speaks TLS.
    pub(crate) certificates: Option<Arc<CertificateStore>>,
    /// What HTTP/3 needs, if it is spoken.
    pub(crate) quic: Option<QuicSettings>,
    /// What the kernel does for connections over TLS.
    pub(crate) kernel_tls: Option<KernelTls>,
    /// How much of the end of a long live file leaves as copies.
    pub(crate) tail_len: u64,
    /// Records that a key of a connection encrypts before it is replaced.
    pub(crate) key_records_max: u64,
    /// Bytes of archives copied into memory; reported by one worker only.
    pub(crate) archive_copied: u64,
    /// Random bytes, for delimiters that nobody can foresee.
    pub(crate) secret: [u8; 32],
}

impl WorkerSettings {
    /// How many listeners there are.
    pub(crate) fn listener_count(&self) -> u32 {
        u32::try_from(self.listeners.len()).expect("listeners are few")
    }
}
