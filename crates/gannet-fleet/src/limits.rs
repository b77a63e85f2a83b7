//! What a store that is copied can make a follower hold or do. The file of a release is bounded by
//! the pointer, which is signed if a key is required, and by [`crate::Settings::disk_max`].

use std::time::Duration;

/// Until a connection is made, an answer begins, or a pointer has arrived.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A body has to bring [`BODY_LEAST`] bytes within this time, again and again.
pub const BODY_WINDOW: Duration = Duration::from_secs(30);

/// 1 KiB a second: the slowest link that can still be told from a store that holds us up.
pub const BODY_LEAST: u64 = 30 << 10;

/// The lowest limit of the rate that may be set, in bytes a second: eight times what a body has to
/// bring, so that the limit itself never looks like a store that holds us up.
pub const RATE_LEAST: u64 = 8 << 10;

/// Bytes that are read of an answer that is an error: enough for its message.
pub const ERROR_BODY_LEN_MAX: usize = 4096;

/// Attempts at one range of a release in a round, each of which goes on where the last one broke off.
/// One that has brought [`BODY_LEAST`] bytes does not count.
pub const ATTEMPTS_MAX: u32 = 5;

/// Between two attempts, times the number of those made.
pub const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);

/// Bytes between two ranges that are fetched by one request: about what a connection brings in the
/// time that another request takes.
pub const JOIN_GAP_MAX: u64 = 64 << 10;

/// Blobs of an archive for which others are searched, about 200 bytes each in memory. One that has
/// more is fetched whole.
pub const BLOBS_MAX: u64 = 1 << 20;

/// Entries of the log that are fetched in a round, at most 1 KiB each: three times what is kept by
/// default.
pub const HISTORY_MAX: usize = 64;

/// The bytes of all releases in the copy, unless set otherwise.
pub const DISK_DEFAULT: u64 = 64 << 30;

/// Seconds until a release that was fetched whole, and is not what its pointer names, is fetched again
/// under the same pointer.
pub const DAMAGED_S: u64 = 3600;

/// Seconds between two looks at what is no longer kept, and what is lacking of that, while nothing
/// changes in the store.
pub const TIDY_S: u64 = 600;

/// The wait after a first failure; it doubles with each further one.
pub const BACK_OFF_LEAST: Duration = Duration::from_secs(1);

/// The longest wait after a failure. Copies are at most this far behind a store that is back.
pub const BACK_OFF_MOST: Duration = Duration::from_secs(300);

/// Bytes of a message from another program that are shown.
pub const WORDS_LEN_MAX: usize = 200;
