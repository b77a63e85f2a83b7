//! The bounds of the format, each with its reason.

/// Bodies up to this many bytes are stored in the metadata region, so that a response is one send
/// from memory. One page: with the field block it still fits a small send.
pub const TINY_MAX: u64 = 4096;

/// The total length of the tiny blobs of one archive, in bytes. A server holds them in memory, and one on demand
/// begins when it has fetched them, as a follower does with each release; beyond this, further small bodies are stored
/// as ordinary blobs.
pub const TINY_TOTAL_MAX: u64 = 16 << 20;

/// Length in bytes of a body that is stored in a coding alone. A server decodes it whole, at once,
/// in a few milliseconds, while the other connections of the same worker wait.
pub const DECODED_LEN_MAX: u64 = 1 << 20;

/// Alignment of a blob: a cache line, so that small bodies stay dense.
pub const BLOB_ALIGN: u64 = 64;

/// From this length on a blob starts on a page, so that sending by pages wastes nothing.
pub const PAGE_ALIGNED_FROM: u64 = 64 << 10;

/// Alignment of a large blob and of the metadata region: the smallest page.
pub const PAGE_ALIGN: u64 = 4096;

/// Length of a path in bytes. Longer than any request line that a server accepts by default.
pub const PATH_LEN_MAX: u64 = 8192;

/// Length of a redirect location or a content type in bytes, for the same reason.
pub const VALUE_LEN_MAX: u64 = 8192;

/// Length of a field block in bytes. Clients commonly reject field sections beyond 32 KiB.
pub const FIELD_BLOCK_LEN_MAX: usize = 32 << 10;

/// The most slots that one lookup probes. The writer widens its table until this holds, so a
/// hostile file can make no lookup slow.
pub const PROBE_MAX: u32 = 64;

/// Sections of an archive: the room of the table in the superblock.
pub const SECTION_COUNT_MAX: usize = 64;

/// Entries of an archive: `u32::MAX` marks an empty slot of the index.
pub const ENTRY_COUNT_MAX: u64 = u32::MAX as u64 - 1;

/// Variants of one entry: one for each bit of a set of codings.
pub const VARIANT_COUNT_MAX: u8 = 8;

/// Bytes that checking the records of an archive may go through for each byte of its metadata: records may
/// share texts and field blocks, each of which is checked for each record. A writer's share a few hundred
/// bytes at most.
pub const SHARED_PER_BYTE_MAX: u64 = 32;

/// The same for an archive of any length: checked in a fraction of a second.
pub const SHARED_FREE: u64 = 64 << 20;

/// Length of the metadata region in bytes: it is read into memory whole.
pub const METADATA_LEN_MAX: u64 = 64 << 30;

/// From this length on, the metadata region is written a second time, compressed to a third: a copy of a release waits
/// for it. What is shorter is fetched in a moment.
pub const PACKED_FROM: u64 = 4 << 20;

/// The window for that, as a power of two: what every decoder has (RFC 8878 section 3.1.1.1.2).
pub const PACKED_WINDOW_LOG: u32 = 23;

/// Length in bytes of the names of index pages: dozens of them. A server compares protected paths with each.
pub const INDEX_NAMES_LEN_MAX: u64 = 1024;

/// Length in bytes of a dictionary, and of content that is coded with one. For more, a larger window
/// would be needed, which not every client allocates (RFC 9842 section 5).
pub const DICTIONARY_LEN_MAX: u64 = 8 << 20;

/// Length of a host name in bytes (RFC 1035 section 2.3.4).
pub const HOST_LEN_MAX: usize = 253;

/// Virtual hosts of an archive: the range of the number in an entry, in which 0 is any other host.
pub const HOST_COUNT_MAX: u16 = u16::MAX;

/// Length of a signature in bytes: the room in the superblock; minisign's have about 300.
pub const SIGNATURE_LEN_MAX: usize = 1014;

/// The total length of the common parts of field blocks, in bytes: variants refer to them by 32
/// bits, and a writer holds them in memory.
pub const COMMON_LEN_MAX: usize = 1 << 30;

/// The longest blob that is verified whole, in bytes: longer ones have a [tree](crate::SectionKind::Trees).
/// Fetched and hashed in milliseconds.
pub const UNIT_LEN_MAX: u64 = 1 << 20;

/// Bytes of a blob under one chaining value of its tree, which takes 32: one in two thousand. A multiple of the
/// alignment of such a blob, and a power of two, so that a group is a subtree.
pub const GROUP_LEN: u64 = 64 << 10;
