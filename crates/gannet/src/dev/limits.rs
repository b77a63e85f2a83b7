//! The limits of `gannet dev`, each with its reason.

use std::time::Duration;

/// Connections at a time, each with a thread: more than a browser opens, even with many windows.
/// Further ones are closed at once.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// Streams of events at a time. A window that is visible has one; further ones get 503.
pub(super) const STREAMS_MAX: usize = 64;

/// From the first byte of a request until its head is complete.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a connection may be idle, and how long one may take nothing of an answer.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// The interval of empty events, which show whether the window is still there.
pub(super) const BEAT: Duration = Duration::from_secs(5);

/// How long the server behind may take for an answer, or for a part of it: it reads a local disk.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of the head of an answer: fields of a site's rules, several times over.
pub(super) const ANSWER_HEAD_MAX: usize = 256 << 10;

/// Bytes of a page that gets the script: each connection may hold one. A longer one is passed on as it
/// is.
pub(super) const PAGE_MAX: u64 = 8 << 20;

/// Bytes at the start of a page that are searched for the place of the script.
pub(super) const PLACE_MAX: usize = 64 << 10;

/// Changes that are remembered for windows that were away. Others load the page again.
pub(super) const CHANGES_MAX: usize = 256;

/// Files and folders that are watched. More are those of tools, or of the wrong folder.
pub(super) const WATCHED_MAX: usize = 100_000;

/// Bytes of a file whose content is compared: pages, styles and scripts are shorter. Longer ones are
/// compared by length and time.
pub(super) const COMPARED_LEN_MAX: u64 = 4 << 20;

/// Bytes that are read for that in one look at a folder: a fifth of a second from memory. Further files are
/// compared by length and time.
pub(super) const COMPARED_TOTAL_MAX: u64 = 256 << 20;

/// Folders within folders that are watched.
pub(super) const DEPTH_MAX: usize = 64;

/// Changes are handled once nothing has changed for this long: an editor replaces a file in several
/// steps.
pub(super) const QUIET: Duration = Duration::from_millis(50);

/// Changes are handled after this time even if more keep coming.
pub(super) const QUIET_MAX: Duration = Duration::from_millis(500);

/// The shortest interval of looking at all files where the kernel does not tell about changes.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A look at all files that takes longer is announced: six system calls for each folder and one for
/// each file take a second for some 50,000.
pub(super) const LOOK_LONG: Duration = Duration::from_secs(1);

/// The last bytes of the output of a build, which a page shows if it fails.
pub(super) const OUTPUT_SHOWN: usize = 32 << 10;

/// Builds in a row, each because of what changed during the one before.
pub(super) const ROUNDS_MAX: u32 = 2;

/// How long a build may take to end when it is stopped.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(2);
