//! The bounds of a check, each with its reason.

/// Bytes of a page or style sheet that are read at most. Longer ones are reported, not read: they
/// are not written by hand, and each core holds one at a time.
pub(super) const PAGE_LEN_MAX: u64 = 64 << 20;

/// Findings that are kept. More are only counted: with so many, one fixes the first ones and checks
/// again.
pub(super) const FINDINGS_MAX: usize = 10_000;

/// Redirects that are followed from a link, as browsers and crawlers do.
pub(super) const REDIRECTS_MAX: usize = 20;
