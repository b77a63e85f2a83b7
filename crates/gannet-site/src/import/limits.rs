//! The limits of importing, each with its reason: archives may come from untrusted sources.

use gannet_content::rules::limits::RULES_FILE_MAX;

/// Files and folders per import; kawipiko's own maximum of files.
pub(super) const FILES_MAX: u64 = 1 << 24;

/// Folders that any archive may have, and further ones for each of its files: no site has more, and each takes longer
/// to create and to remove than its share of the bytes.
pub(super) const FOLDERS_FREE: u64 = 4_096;
pub(super) const FOLDERS_PER_FILE: u64 = 4;

/// Folders above a file: more than any site has, and few enough that a path costs little.
pub(super) const DEPTH_MAX: usize = 64;

/// Bytes that any archive, however small, may unpack to: files, [`ENTRY_COST`] for each file and
/// folder, and records that are read. Written in a second or two.
pub(super) const BYTES_FREE: u64 = 256 << 20;

/// Beyond that, unpacked bytes per byte of the archive. Pages compress to a tenth at best; higher
/// ratios are made to fill disks.
pub(super) const EXPANSION_MAX: u64 = 100;

/// What a file or folder counts as besides its content, bytes: the least that it occupies on most
/// file systems. 65,536 may come from any archive.
pub(super) const ENTRY_COST: u64 = 4 << 10;

/// Bytes of a tar's record with a long name; several times [`PATH_LEN_MAX`].
pub(super) const NAME_RECORD_MAX: u64 = 64 << 10;

/// Bytes of a tar's extended header, or of the content of an entry that is not a file: names, times
/// and attributes.
pub(super) const EXTENDED_HEADER_MAX: u64 = 1 << 20;

/// Bytes of a path; the server's limit.
pub(super) const PATH_LEN_MAX: usize = 4096;

/// Bytes of a key or a metadata record of kawipiko; both are a path and a few words.
pub(super) const RECORD_LEN_MAX: u32 = 64 << 10;

/// Skipped entries that a message lists; further ones are only counted.
pub(super) const LEFT_OUT_LISTED_MAX: usize = 100;

/// Bytes of a `_headers` file with the types of files without a suffix: enough for some ten
/// thousand files, and within the limit of a rules file.
pub(super) const HEADERS_LEN_MAX: usize = 2 << 20;

/// Bytes of the `_redirects` file of a kawipiko archive: a longer one could not be packed. One target
/// can be shared by any number of redirects.
pub(super) const REDIRECTS_LEN_MAX: usize = RULES_FILE_MAX as usize;
