//! Bounds on what is made of a site's files, each with its reason.

/// The longest content security policy that is made for a page, in bytes. Longer ones fill the
/// field block of a response, and pages with so many inline scripts are not protected by them.
pub const POLICY_MAX: usize = 8 * 1024;

/// How deep documents within attributes (`srcdoc`) are read.
pub const NESTED_DOCUMENTS_MAX: u8 = 3;

/// The most findings kept per page: more of the same kind add nothing.
pub const FINDINGS_MAX: usize = 100;

/// The most bytes of text that a finding quotes.
pub const QUOTE_MAX: usize = 60;

/// The fewest characters of a digest that a script's or style's name must have of its content:
/// what bundlers write at least. By accident one in 600 million names would have them.
pub const DIGEST_TOKEN_MIN: usize = 8;

/// The same for other files, of which a site may have millions: what Django writes.
pub const DIGEST_TOKEN_MIN_OTHER: usize = 12;

/// The most parts of a name that are compared with the digests of the content. Names of bundlers
/// have one or two.
pub const DIGEST_TOKENS_MAX: usize = 8;

/// The longest name of a file that is looked for in texts: what file systems have.
pub const NAME_MENTIONED_MAX: usize = 255;
