//! Bounds on rules and on what requests may expand them to, each with its reason.

use gannet_http::semantics::limits::{OPERATOR_FIELDS_LEN_MAX, READY_BLOCK_MAX, RESPONSE_HEAD_MAX};

/// The longest line of a rules file, in bytes, unless a dialect allows less. The longest known
/// lines are content security policies of a few thousand bytes.
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

/// The most rules in one table. Fifty times what the hosts allow; a table of this size takes some
/// tens of megabytes.
pub const RULES_MAX: usize = 100_000;

/// The most segments of a source. The index has a table for each; deeper folders are matched by a
/// `*`.
pub const SEGMENTS_MAX: usize = 64;

/// The most placeholders of one rule, including the splat and those in its query: captures are held
/// in an array of this size.
pub const CAPTURES_MAX: usize = 16;

/// The most query parameters of a rule: each is looked for in the whole query.
pub const QUERY_PARAMETERS_MAX: usize = 16;

/// The longest host name (RFC 1035 section 2.3.4).
pub const HOST_MAX: usize = 255;

/// The longest `location` expanded from a rule, in bytes. Longer ones make clients and proxies fail
/// in obscure ways, so the rule does not match.
pub const LOCATION_MAX: usize = 8192;

/// The most lines of one rule for fields. Rules of sites have fewer than twenty.
pub const FIELDS_MAX: usize = 64;

/// The longest name of a field in a rule, in bytes: twice the longest that is registered.
pub const FIELD_NAME_MAX: usize = 128;

/// The most lines of all rules for fields that apply to one request, a rule counted as one more: what
/// an evaluation may cost, about 0.2 ms.
pub const RULED_LINES_MAX: usize = 2_000;

/// The most bytes of the fields that rules give one response, as they are in a head: the longest real
/// ones have four. A field block of an archive has room for as many, and for the fields of a file.
pub const RULED_FIELDS_LEN_MAX: usize = 24 << 10;

/// Bytes of a head that are neither from a site nor from its operator: the status, fields of a single
/// answer such as `date`, `content-range` and `server-timing`, and what HPACK and QPACK take more than
/// HTTP/1 for long values.
pub const HEAD_REST_MAX: usize = 4 << 10;

const _: () = {
    let operator = OPERATOR_FIELDS_LEN_MAX + HEAD_REST_MAX;
    assert!(RULED_FIELDS_LEN_MAX + LOCATION_MAX + operator <= RESPONSE_HEAD_MAX);
    assert!(READY_BLOCK_MAX + operator <= RESPONSE_HEAD_MAX);
};

/// The most lines that are evaluated to find out, when rules are read, whether they are too much for
/// any request, for each line of the file: reading twice as many rules takes twice as long.
pub const TRIED_LINES_PART: usize = 64;

/// The most lines and steps together that are tried so in one file, however many lines it has: less
/// than a second. A hundred thousand rules that each match alone take about half as many.
pub const TRIED_STEPS_MAX: usize = 4_000_000;

/// The most problems that are reported per file: a picture archive named `_redirects` must not
/// produce a million lines.
pub const PROBLEMS_MAX: usize = 1000;

/// The most redirects followed when searching for chains; browsers stop at twenty.
pub const CHAIN_MAX: usize = 20;

/// The longest language tag, in bytes (RFC 5646 section 4.4.1).
pub const LANGUAGE_LEN_MAX: usize = 35;

/// The most languages of one rule.
pub const LANGUAGES_MAX: usize = 64;

/// The most rules of a table that are for languages. Those with one source are compared one after
/// the other for each request.
pub const LANGUAGE_RULES_MAX: usize = 1000;

/// The most steps that the rules of a site may cost one request: about two milliseconds, whatever its
/// author wrote. See [`Steps`](super::steps::Steps).
pub const STEPS_MAX: u32 = 20_000;

/// The most steps of one evaluation. A request has several: redirects before files and for missing
/// ones, each once more without a long query, the languages they depend on, users, fields, and the same
/// for another form of a page. Beyond it no path without a file is redirected, a file that a rule may precede
/// is not sent, no client may have a path that may be protected, and content whose fields are not known is
/// not sent.
pub const EVALUATION_STEPS_MAX: u32 = STEPS_MAX / 10;

/// The most steps of one evaluation that looking up the parameters of a query takes. The properties of
/// a request are gone through twice in one evaluation, and rules that need no parameter apply after it.
pub const QUERY_STEPS_MAX: u32 = EVALUATION_STEPS_MAX / 4;

/// The most rules skipped for one request because they lead to where it already is. Sites have one,
/// for their host; each costs a location.
pub const PASSED_OVER_MAX: usize = 8;

/// The most rules with wildcards against which every later rule is compared when searching for
/// shadowed rules: each is compared with each.
pub const BROAD_MAX: usize = 1000;

/// The most bytes read of a live directory's `_redirects` or `_headers`. A hundred thousand rules
/// of the usual length fit.
pub const RULES_FILE_MAX: u64 = 8 << 20;

/// The most bytes of all rules files of a site: a `_redirects` and a `_headers` of the greatest length,
/// or kawipiko's `_redirects` of many folders. All are in memory while they are read, and rules take
/// some ten times as much.
pub const SITE_RULES_LEN_MAX: u64 = 2 * RULES_FILE_MAX;

/// The most bytes of memory that the rules of a file may hold with their index, by a count that is
/// somewhat high: a hundred thousand rules of eight segments of the usual length. Those of 64 segments
/// would hold a gigabyte.
pub const RULES_MEMORY_MAX: usize = 192 << 20;

/// The most files with redirects of a site. Their rules count together: [`RULES_MAX`].
pub const RULES_FILES_MAX: usize = 10_000;

/// The most folders of a live directory searched for kawipiko's `_redirects`: a second's work.
pub const RULES_FOLDERS_MAX: usize = 100_000;

/// The most users of one rule or password file. A name is looked for among all of them.
pub const USERS_MAX: usize = 1000;

/// The longest credentials of a request, in bytes as they are sent, beside a name and a password of
/// reasonable length: each request with others costs a hash of all of them.
pub const CREDENTIALS_MAX: usize = 1024;

/// The longest hash of a password, in bytes of text: two parts of 64 bytes in Base64, and numbers.
pub const PASSWORD_HASH_MAX: usize = 256;

/// The highest cost of bcrypt: less than a second of a processor. Each step doubles it.
pub const BCRYPT_COST_MAX: u32 = 13;

/// The most memory of argon2id, in KiB: it is taken for each new password, one at a time.
pub const ARGON2_MEMORY_MAX: u32 = 256 << 10;

/// The most passes of argon2id over its memory.
pub const ARGON2_PASSES_MAX: u32 = 16;

/// The most memory times passes of argon2id, in KiB: less than a second of a processor.
pub const ARGON2_WORK_MAX: u32 = 512 << 10;

/// The most lanes of argon2id.
pub const ARGON2_LANES_MAX: u32 = 8;
