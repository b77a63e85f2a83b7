//! The bounds of packing, each with its reason.

/// Bytes of sources being read and compressed at one time. Compressing needs a few times as much:
/// with this a packer stays below two gigabytes.
pub(super) const IN_FLIGHT_MAX: u64 = 256 << 20;

/// What a source counts for at least, so that millions of empty files do not queue up.
pub(super) const IN_FLIGHT_MIN: u64 = 64 << 10;

/// From this length on a file is copied without being held in memory, and not compressed: what is
/// so large is nearly always a download that is compressed already.
pub(super) const STREAMED_FROM: u64 = 64 << 20;

/// Folders within folders. Deeper than any site; symbolic links that multiply come to an end here.
pub(super) const DEPTH_MAX: usize = 128;

/// Bytes read or written at one time while copying.
pub(super) const COPY_CHUNK: usize = 1 << 20;

/// Lines of the report's list of largest files.
pub(super) const LARGEST_COUNT: usize = 10;

/// Paths with two files that warnings name one by one: a generator that writes every page twice
/// must not fill the terminal.
pub(super) const CLAIMS_LISTED: usize = 20;

/// A file that changed less than this before it was examined could change again unnoticed: the
/// kernel takes files' times from a clock that ticks every few milliseconds. Nanoseconds.
pub(super) const CLOCK_GRAIN_NS: i128 = 50_000_000;

/// Length of the file of stamps in bytes: twenty million files.
pub(super) const STAMPS_LEN_MAX: u64 = 1 << 30;

/// Stored bytes of an earlier archive up to this length are read into memory and checked; longer
/// ones are copied from file to file.
pub(super) const KEPT_READ_MAX: u64 = 1 << 20;

// What is stored as gzip alone is read so.
const _: () = assert!(gannet_archive::limits::DECODED_LEN_MAX <= KEPT_READ_MAX);

/// Archives that a cache directory keeps: enough for two branches of a site, or two recipes.
pub(super) const KEPT_ARCHIVES: usize = 2;

/// Pages longer than this get no content security policy of their own: reading one takes a few
/// times its length in memory.
pub(super) const POLICY_PAGE_MAX: u64 = 32 << 20;

/// Tables of an encoder below this length in bytes are not worth being kept for the next file.
pub(super) const ENCODER_MEMORY_MIN: usize = 16 << 10;

/// Longer ones, in bytes, are not kept: they belong to large files, where they cost nothing, and
/// every thread keeps its own.
pub(super) const ENCODER_MEMORY_MAX: usize = 8 << 20;

/// Length in bytes of the buffer for coded bytes that a thread keeps for the next file.
pub(super) const CODED_BUFFER_MAX: usize = 8 << 20;

/// Bytes of a section of the archive that are held in memory before they go to the disk.
pub(super) const SPOOLED_AT_ONCE: usize = 4 << 20;

/// A metadata region up to this length in bytes is opened once more before the archive gets its
/// name. Larger ones would fill the memory; their records were checked one by one.
pub(super) const REOPENED_MAX: u64 = 64 << 20;

/// Contents that a thread takes at one time at most.
pub(super) const BATCH_COUNT: usize = 128;

/// Their lengths together, in bytes, if they are several.
pub(super) const BATCH_LEN: u64 = 256 << 10;

/// Bytes of an earlier archive that are read at one time where bodies are small.
pub(super) const READ_AHEAD: usize = 256 << 10;

/// Places of earlier archives that a thread reads at alternately: bodies in the metadata, bodies
/// before it, and the same in another archive.
pub(super) const AHEAD_COUNT: usize = 4;

/// Common parts of field blocks, each of some hundred bytes. Files of a site have few types, and
/// most of them a modification time that others have; where all have their own, further blocks stand
/// for themselves, or the common parts would fill the memory of packer and server.
pub(super) const COMMON_COUNT_MAX: usize = 1 << 16;

/// Kinds of representations whose common parts are found without rendering them.
pub(super) const COMMON_FOUND_MAX: usize = 1 << 14;

/// Length in bytes of the recipe of an earlier archive: a few lines, and one with the exceptions of
/// content types.
pub(super) const RECIPE_LEN_MAX: usize = 1 << 20;

/// Bytes of an earlier archive that are copied together, but for the last blob: so many that the
/// number of calls does not count, and few enough for the progress to be seen.
pub(super) const KEPT_RUN_MAX: u64 = 256 << 20;

/// Files that look like secrets that the report names: enough to see what kind they are.
pub(super) const SECRETS_NAMED: usize = 3;

/// Bytes at the beginning of a file in which a private key is looked for: certificates of a chain
/// may come before it.
pub(super) const SECRET_LOOKED_AT: u64 = 16 << 10;

/// Bytes of pages, scripts and styles that are read for names of other files, in one build: what
/// most sites have, in about a second. A name that is not found by then is revalidated.
pub(super) const MENTIONS_READ_MAX: u64 = 1 << 30;

/// Files of one folder that are read for a digest that their name could have, without success. A
/// folder of files that are named by something else is not read whole.
pub(super) const DIGEST_FOLDER_FAILURES_MAX: usize = 16;

/// The same for the whole site, whose files may lie in a folder each.
pub(super) const DIGEST_FAILURES_MAX: usize = 10_000;

/// Names that an archive lists with the evidence for their lifetime; a server has them in memory.
/// What is not listed is found again by the next build.
pub(super) const LIFETIMES_LISTED_MAX: usize = 1 << 16;
