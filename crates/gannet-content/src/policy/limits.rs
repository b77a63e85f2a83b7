//! Bounds on what is derived from a site's files, each with its reason.

/// The longest content security policy that is made for a page, in bytes. Longer ones fill the
/// field block of a response, and do not protect pages with so many inline scripts.
pub const POLICY_MAX: usize = 8 * 1024;

/// The depth to which documents within attributes (`srcdoc`) are read.
pub const NESTED_DOCUMENTS_MAX: u8 = 3;

/// The most findings kept per page: more of the same kind add no information.
pub const FINDINGS_MAX: usize = 100;

/// The most bytes of text that a finding quotes.
pub const QUOTE_MAX: usize = 60;

/// The fewest characters of a digest of its content in the name of a script or style: the minimum
/// that bundlers write. One in 600 million names would have them by accident.
pub const DIGEST_TOKEN_MIN: usize = 8;

/// The same for other files, of which a site may have millions: the number that Django writes.
pub const DIGEST_TOKEN_MIN_OTHER: usize = 12;

/// The most parts of a name that are compared with the digests of the content. Names written by
/// bundlers have one or two.
pub const DIGEST_TOKENS_MAX: usize = 8;

/// The longest path, in bytes, of a file that may become a dictionary: its pattern is sent with every
/// answer.
pub const DICTIONARY_PATH_MAX: usize = 1024;

/// The longest file name that is searched for in texts: the limit of file systems.
pub const NAME_MENTIONED_MAX: usize = 255;

/// The most attributes of a tag of a page that is read: each is compared with those before it. Hand-made
/// and generated tags have fewer than a hundred.
pub const ATTRIBUTES_MAX: usize = 512;

/// Looks of the parser at an open element, for each byte of a page. Most pages take fewer than ten; each
/// `div` in a thousand others takes a thousand. Up to the bound, a page takes 0.26 s of a processor for each
/// megabyte, a usual one 0.04 s.
pub const LOOKS_PER_BYTE_MAX: u64 = 32;

/// The same for a page of any length.
pub const LOOKS_FREE: u64 = 1 << 22;

/// What a comparison of two tags with all of their attributes counts as.
pub const COMPARISON_LOOKS: u64 = 8;
