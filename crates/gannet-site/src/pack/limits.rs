//! The limits of packing, each with its reason.

/// Bytes of sources being read and compressed at a time. Compressing needs a few times as much:
/// this keeps a packer below two gigabytes.
pub(super) const IN_FLIGHT_MAX: u64 = 256 << 20;

/// The minimum that a source counts as, so that millions of empty files do not queue up.
pub(super) const IN_FLIGHT_MIN: u64 = 64 << 10;

/// Files of at least this length are copied without being held in memory, and not compressed:
/// nearly all of them are downloads that are compressed already.
pub(super) const STREAMED_FROM: u64 = 64 << 20;

/// Maximum depth of folders: deeper than any site, and a bound on recursive symbolic links.
pub(super) const DEPTH_MAX: usize = 128;

/// Bytes read or written at a time while copying.
pub(super) const COPY_CHUNK: usize = 1 << 20;

/// The level of zstd for the packed metadata: level 3 takes twice as long, and leaves 99 % of that.
pub(super) const PACKED_LEVEL: i32 = 1;

/// Entries of the report's list of largest files.
pub(super) const LARGEST_COUNT: usize = 10;

/// Conflicting paths that warnings name: a generator that writes every page twice must not fill the
/// terminal.
pub(super) const CLAIMS_LISTED: usize = 20;

/// A file modified less than this before it was examined could change again unnoticed: the kernel
/// takes file times from a clock that ticks every few milliseconds. Nanoseconds.
pub(super) const CLOCK_GRAIN_NS: i128 = 50_000_000;

/// Maximum length of the stamps file in bytes: twenty million files.
pub(super) const STAMPS_LEN_MAX: u64 = 1 << 30;

/// Maximum number of stamps files in a cache directory, one for each site. Builds in temporary folders
/// leave one each; a removed one costs one reading of its site's files.
pub(super) const STAMPS_FILES_MAX: usize = 128;

/// Stored bytes of an earlier archive up to this length are read into memory and verified; longer
/// ones are copied from file to file.
pub(super) const KEPT_READ_MAX: u64 = 1 << 20;

// Bodies stored only in a coding are read that way.
const _: () = assert!(gannet_archive::limits::DECODED_LEN_MAX <= KEPT_READ_MAX);

/// Archives kept in a cache directory: enough for two branches of a site, or two recipes.
pub(super) const KEPT_ARCHIVES: usize = 2;

/// Longer pages get no content security policy of their own: parsing one takes a few times its
/// length in memory.
pub(super) const POLICY_PAGE_MAX: u64 = 32 << 20;

/// Length in bytes of the buffer for coded bytes that a thread reuses.
pub(super) const CODED_BUFFER_MAX: usize = 8 << 20;

/// Bytes of a section of the archive held in memory before they are written to disk.
pub(super) const SPOOLED_AT_ONCE: usize = 4 << 20;

/// A metadata region up to this length in bytes is reopened before the archive gets its name.
/// Larger ones would fill the memory; their records were checked one by one.
pub(super) const REOPENED_MAX: u64 = 64 << 20;

/// Maximum number of contents in a batch for a thread.
pub(super) const BATCH_COUNT: usize = 128;

/// Maximum total length of a batch in bytes, if it has several contents.
pub(super) const BATCH_LEN: u64 = 256 << 10;

/// Bytes of an earlier archive read at a time where bodies are small.
pub(super) const READ_AHEAD: usize = 256 << 10;

/// Positions in earlier archives at which a thread reads alternately: bodies in the metadata,
/// bodies before it, and the same in another archive.
pub(super) const AHEAD_COUNT: usize = 4;

/// Common parts of field blocks, each of some hundred bytes. A site has few content types, and most
/// files share their modification time with others. Where every file has its own, further blocks
/// are stored whole, or the common parts would fill the memory of packer and server.
pub(super) const COMMON_COUNT_MAX: usize = 1 << 16;

/// Kinds of representations whose common parts are found without rendering them.
pub(super) const COMMON_FOUND_MAX: usize = 1 << 14;

/// Length in bytes of the recipe of an earlier archive: a few lines, and one with the exceptions of
/// content types.
pub(super) const RECIPE_LEN_MAX: usize = 1 << 20;

/// Bytes of an earlier archive copied at once, not counting the last blob: enough to make the
/// number of calls irrelevant, and few enough to show progress.
pub(super) const KEPT_RUN_MAX: u64 = 256 << 20;

/// Suspected secrets that the report names: enough to show their kind.
pub(super) const SECRETS_NAMED: usize = 3;

/// Bytes at the beginning of a file that are searched for a private key, which may follow a
/// certificate chain.
pub(super) const SECRET_LOOKED_AT: u64 = 16 << 10;

/// Bytes of pages, scripts and style sheets searched for file names per build: enough for most
/// sites, in about a second. A file whose name is not found within them is revalidated.
pub(super) const MENTIONS_READ_MAX: u64 = 1 << 30;

/// Files of a folder that may be hashed in vain to find a digest in their names. A folder with
/// another naming scheme is not read whole.
pub(super) const DIGEST_FOLDER_FAILURES_MAX: usize = 16;

/// The same for the whole site, whose files may be in a folder each.
pub(super) const DIGEST_FAILURES_MAX: usize = 10_000;

/// The shortest file, in bytes, that becomes a dictionary, or is coded with one: a shorter one fits a
/// few packets, whatever its coding.
pub(super) const DICTIONARY_LEN_MIN: u64 = 4 << 10;

/// Dictionaries of a file: its versions in as many earlier releases. Clients with older ones get the
/// whole file.
pub(super) const DICTIONARIES_MAX: usize = 3;

/// Files of a release whose names differ in the hash alone. Browsers keep one dictionary for all of
/// them, the last one that they loaded: with more files, it is rarely the one that was coded with.
pub(super) const ALIKE_MAX: usize = 4;

/// Percent of the smallest other coding that a file coded with a dictionary may have at most: less
/// of a difference is not worth a representation that caches keep for each dictionary.
pub(super) const DICTIONARY_PERCENT_MAX: u64 = 75;

/// Stored bytes of earlier releases that an archive carries on: the most recent first, host by host.
pub(super) const CARRIED_BYTES_MAX: u64 = 1 << 30;

/// Names listed in an archive with the evidence for their lifetime; a server holds them in memory.
/// Findings not listed are made again by the next build.
pub(super) const LIFETIMES_LISTED_MAX: usize = 1 << 16;
