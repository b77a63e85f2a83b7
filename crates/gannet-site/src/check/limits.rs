//! The bounds of a check, each with its reason.

/// Maximum length in bytes of a page or style sheet. Longer ones are reported but not read: they
/// are not written by hand, and each core holds one at a time.
pub(super) const PAGE_LEN_MAX: u64 = 64 << 20;

/// Findings kept; further ones are only counted. With so many, users fix the first ones and check
/// again.
pub(super) const FINDINGS_MAX: usize = 10_000;

/// Redirects followed from a link, as by browsers and crawlers.
pub(super) const REDIRECTS_MAX: usize = 20;

/// Segments in front of a path that are tried as the place of a site below its host.
pub(super) const PREFIX_DEPTH_MAX: usize = 4;
