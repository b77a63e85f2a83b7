//! A request to the store for units that a release lacks.

use std::ops::Range;
use std::sync::Arc;

use gannet_archive::Unit;
use gannet_store::ReleaseId;
use tokio::time::{Instant, timeout};

use crate::error::{Cause, FleetError};
use crate::fetcher::{Effort, Reason};
use crate::limits::FETCH_TIMEOUT;
use crate::pace::Meter;
use crate::remote::Remote;

/// A request to the store for units.
pub(crate) struct Flight {
    pub(crate) release: ReleaseId,
    /// Bytes of the release's file.
    pub(crate) size: u64,
    /// Those that are lacking, in order, with their numbers.
    pub(crate) units: Vec<(u64, Unit)>,
    /// The question that it is for.
    pub(crate) needed: Range<u64>,
    /// The first time, bytes came that were not those of the release.
    pub(crate) is_second: bool,
}

/// A flight that has ended.
pub(crate) struct Landed {
    pub(crate) flight: Flight,
    /// The bytes from the first unit's on, or why they did not come.
    pub(crate) bytes: Result<Vec<u8>, FleetError>,
    pub(crate) effort: Effort,
}

impl Flight {
    /// The range of the file that has all of its units.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.units.first().map_or(0, |(_, unit)| unit.offset);
        let end = self
            .units
            .last()
            .map_or(start, |(_, unit)| unit.offset + unit.len);
        start..end
    }

    /// Fetches it. The other side has a bounded time, whatever it does.
    pub(crate) async fn until_landed(self, remote: Arc<Remote>) -> Landed {
        let begun = Instant::now();
        let range = self.range();
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut meter = Meter::new(None);
        let mut keep = |_: u64, piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        let object = (self.release, self.size);
        let fetched = remote.range(object, range, &mut meter, &mut keep);
        let fetched = timeout(FETCH_TIMEOUT, fetched).await;
        let fetched =
            fetched.unwrap_or_else(|_| Err(remote.refuse_release(self.release, Cause::NoAnswer)));
        Landed {
            bytes: fetched.map(|()| bytes),
            effort: Effort {
                fetched: meter.bytes,
                took: begun.elapsed(),
                unverified: 0,
            },
            flight: self,
        }
    }
}

/// Whose fault it is that nothing came.
pub(crate) fn reason_of(error: &FleetError) -> Reason {
    match error {
        FleetError::Remote {
            cause: Cause::OtherLen { .. } | Cause::Long,
            ..
        } => Reason::Damaged,
        _ => Reason::Unreachable,
    }
}
