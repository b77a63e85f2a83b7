//! Resources left over after a run.

/// What a finished run must not leave behind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Leaks {
    /// Sockets that the server has not closed.
    pub open_sockets: usize,
    /// Receive buffers on loan.
    pub leases_out: usize,
    /// Files that are still open (caches of the server included).
    pub files_open: usize,
    /// Operations under way.
    pub operations_in_flight: usize,
}

impl Leaks {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}
