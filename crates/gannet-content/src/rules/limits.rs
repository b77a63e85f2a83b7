//! Bounds on rules and on what a request makes of them, each with its reason.

/// The longest line of a rules file, in bytes, except where a dialect allows less. Longest known
/// in use are content security policies, with a few thousand bytes.
pub const LINE_MAX: usize = 8192;

/// The longest line of a `_redirects` file as Cloudflare documents it, in characters.
pub const CLOUDFLARE_REDIRECT_LINE_MAX: usize = 1000;

/// The longest line of a `_headers` file as Cloudflare documents it, in characters.
pub const CLOUDFLARE_HEADER_LINE_MAX: usize = 2000;

/// The most rules with neither `*` nor placeholder as Cloudflare documents it.
pub const CLOUDFLARE_STATIC_MAX: usize = 2000;

/// The most other redirect rules as Cloudflare documents it.
pub const CLOUDFLARE_DYNAMIC_MAX: usize = 100;

/// The most header rules as Cloudflare documents it.
pub const CLOUDFLARE_HEADERS_MAX: usize = 100;

/// The most rules in one table. Fifty times what the hosts allow; a table of so many takes some
/// tens of megabytes.
pub const RULES_MAX: usize = 100_000;

/// The most segments that a source has. A lookup goes one call deeper for each, so this bounds
/// the stack; deeper folders are matched by a `*`.
pub const SEGMENTS_MAX: usize = 64;

/// The most placeholders of one rule, the splat and those in its query included: what a lookup
/// captures lies in an array of this size.
pub const CAPTURES_MAX: usize = 16;

/// The most query parameters that a rule asks for. A query with more matches no such rule, so no
/// more are examined.
pub const QUERY_PARAMETERS_MAX: usize = 16;

/// The most bytes of decoded values by which a query is looked up: a buffer on the stack.
pub const QUERY_KEY_MAX: usize = 512;

/// The longest host name (RFC 1035 section 2.3.4).
pub const HOST_MAX: usize = 255;

/// The longest `location` made of a rule, in bytes. Longer ones make clients and proxies fail in
/// ways hard to find, so the rule counts as not matching.
pub const LOCATION_MAX: usize = 8192;

/// The most fields of one rule, so that a response's field block stays within its limit.
pub const FIELDS_MAX: usize = 64;

/// The most problems that are kept of one file: an archive of pictures named `_redirects` must
/// not give a million lines.
pub const PROBLEMS_MAX: usize = 1000;

/// The most redirects that are followed when a chain is looked for; browsers stop at twenty.
pub const CHAIN_MAX: usize = 20;

/// The most rules that are passed over for one request because they lead to where it already is.
/// Sites have one, for their host; a walk is made for each.
pub const PASSED_OVER_MAX: usize = 8;

/// The most rules with wildcards against which every later rule is held when shadowed rules are
/// looked for: each costs a comparison with each.
pub const BROAD_MAX: usize = 1000;

/// Bytes read of a live directory's `_redirects` or `_headers`. A hundred thousand rules of the
/// usual length fit.
pub const RULES_FILE_MAX: u64 = 8 << 20;

/// Folders of a live directory that are looked into for kawipiko's `_redirects`: a second's work.
pub const RULES_FOLDERS_MAX: usize = 100_000;
