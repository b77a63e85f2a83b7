//! Bounds on what is made of a site's files, each with its reason.

/// The longest content security policy that is made for a page, in bytes. Longer ones fill the
/// field block of a response, and pages with so many inline scripts are not protected by them.
pub const POLICY_MAX: usize = 8 * 1024;

/// How deep documents within attributes (`srcdoc`) are read.
pub const NESTED_DOCUMENTS_MAX: u8 = 3;

/// The most findings that are kept of one page: more of the same kind tell nothing new.
pub const FINDINGS_MAX: usize = 100;

/// The most bytes of text that a finding quotes.
pub const QUOTE_MAX: usize = 60;

/// The shortest and the longest run of hexadecimal digits that is taken for a content hash: the
/// shortest that bundlers use by default, and SHA-512.
pub const HEX_HASH_MIN: usize = 8;

/// See [`HEX_HASH_MIN`].
pub const HEX_HASH_MAX: usize = 128;
