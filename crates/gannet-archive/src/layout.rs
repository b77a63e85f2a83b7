//! The position of each number in the file, and how numbers are read and written.
//!
//! Reading never panics: past the end it returns zero. Validation at open ensures that this never
//! happens; the zero only makes it evident here that no access can fail.

/// First bytes of every archive. The high bit catches seven-bit transfers, the line ends catch
/// newline conversion, the 0x1a stops a listing on a terminal.
pub(crate) const MAGIC: [u8; 12] = *b"\x89gannet\r\n\x1a\n\0";
/// First bytes of a partial copy of an archive, which is one otherwise, but for the blobs that it lacks.
pub(crate) const MAGIC_PARTIAL: [u8; 12] = *b"\x89gnpart\r\n\x1a\n\0";
/// The version this crate writes and reads.
pub(crate) const VERSION: u32 = 2;

/// The file continues after the archive (with a ZIP64 directory, say). Compatible.
pub(crate) const COMPATIBLE_TAIL: u64 = 1;
/// Compatible feature: field blocks for HTTP/2.
pub(crate) const COMPATIBLE_HPACK: u64 = 1 << 1;
/// Compatible feature, with a tail: it is the metadata region, as one frame of zstd.
pub(crate) const COMPATIBLE_PACKED: u64 = 1 << 3;
/// There are virtual hosts. Incompatible.
pub(crate) const INCOMPATIBLE_HOSTS: u64 = 1;
/// There is content that is coded with a dictionary. Incompatible.
pub(crate) const INCOMPATIBLE_DICTIONARIES: u64 = 1 << 1;
/// There are rules that the server has to evaluate. Incompatible.
pub(crate) const INCOMPATIBLE_RULES: u64 = 1 << 3;
/// There are name spaces beyond that of not-found pages. Incompatible.
pub(crate) const INCOMPATIBLE_NAMESPACES: u64 = 1 << 4;
/// There are blobs that are stored as gzip alone. Incompatible.
pub(crate) const INCOMPATIBLE_GZIP_ALONE: u64 = 1 << 5;
/// Field blocks have a common part beside their own. Incompatible.
pub(crate) const INCOMPATIBLE_COMMON: u64 = 1 << 6;
/// Each virtual host has rules of its own. Incompatible.
pub(crate) const INCOMPATIBLE_HOST_RULES: u64 = 1 << 7;
/// There are blobs that are stored as brotli alone. Incompatible.
pub(crate) const INCOMPATIBLE_BROTLI_ALONE: u64 = 1 << 8;
/// Incompatible features that this crate supports.
pub(crate) const INCOMPATIBLE_KNOWN: u64 = INCOMPATIBLE_HOSTS
    | INCOMPATIBLE_DICTIONARIES
    | INCOMPATIBLE_RULES
    | INCOMPATIBLE_NAMESPACES
    | INCOMPATIBLE_GZIP_ALONE
    | INCOMPATIBLE_COMMON
    | INCOMPATIBLE_HOST_RULES
    | INCOMPATIBLE_BROTLI_ALONE;

/// Offsets in the superblock.
pub(crate) mod superblock {
    pub(crate) const VERSION: usize = 12;
    pub(crate) const INCOMPATIBLE: usize = 16;
    pub(crate) const COMPATIBLE: usize = 24;
    pub(crate) const ARCHIVE_LEN: usize = 32;
    pub(crate) const METADATA_OFFSET: usize = 40;
    pub(crate) const METADATA_LEN: usize = 48;
    pub(crate) const OPTIONS: usize = 56;
    pub(crate) const SECTION_COUNT: usize = 60;
    pub(crate) const BUILD_ID: usize = 64;
    pub(crate) const SECTIONS: usize = 128;
    /// Reserved for a signature; not part of the build id.
    pub(crate) const SIGNATURE: usize = 3072;
    pub(crate) const CHECKSUM: usize = 4088;
}

/// A row of the section table.
pub(crate) mod section {
    pub(crate) const LEN: usize = 32;
    pub(crate) const KIND: usize = 0;
    pub(crate) const OFFSET: usize = 8;
    pub(crate) const BYTES: usize = 16;
    pub(crate) const CHECKSUM: usize = 24;
    /// Sections start at multiples of this.
    pub(crate) const ALIGN: u64 = 64;
}

/// The index: a header, then slots.
pub(crate) mod index {
    pub(crate) const HEADER_LEN: usize = 64;
    pub(crate) const SEED: usize = 0;
    pub(crate) const SLOT_COUNT: usize = 8;
    pub(crate) const PROBE_MAX: usize = 16;
    pub(crate) const HOME_BITS: usize = 20;

    pub(crate) const SLOT_LEN: usize = 16;
    pub(crate) const SLOT_HASH: usize = 0;
    pub(crate) const SLOT_ENTRY: usize = 8;
    pub(crate) const SLOT_PATH_LEN: usize = 12;
    /// The entry number of an empty slot.
    pub(crate) const EMPTY: u32 = u32::MAX;
}

/// An entry record.
pub(crate) mod entry {
    pub(crate) const LEN: usize = 64;
    pub(crate) const PATH_OFFSET: usize = 0;
    pub(crate) const VALUE_OFFSET: usize = 8;
    pub(crate) const LAST_MODIFIED: usize = 16;
    pub(crate) const PATH_LEN: usize = 24;
    pub(crate) const FIRST_VARIANT: usize = 28;
    pub(crate) const VALUE_LEN: usize = 32;
    /// Everything from here to `HOST` is reserved.
    pub(crate) const RESERVED_FIELDS: usize = 36;
    pub(crate) const HOST: usize = 40;
    pub(crate) const STATUS: usize = 42;
    pub(crate) const NAMESPACE: usize = 44;
    pub(crate) const KIND: usize = 45;
    pub(crate) const VARIANT_COUNT: usize = 46;
    pub(crate) const FLAGS: usize = 47;
    /// Eight bytes, reserved.
    pub(crate) const RESERVED: usize = 48;
    pub(crate) const FIRST_CODED: usize = 56;
    pub(crate) const CODED_COUNT: usize = 60;
    /// From here on reserved.
    pub(crate) const RESERVED_END: usize = 61;

    pub(crate) const KIND_CONTENT: u8 = 0;
    pub(crate) const KIND_REDIRECT: u8 = 1;
    pub(crate) const FLAG_LAST_MODIFIED: u8 = 1;
    pub(crate) const FLAG_ALIAS: u8 = 2;
    pub(crate) const FLAG_GENERATED: u8 = 4;
    pub(crate) const FLAGS_KNOWN: u8 = 7;
}

/// A variant record.
pub(crate) mod variant {
    pub(crate) const LEN: usize = 64;
    pub(crate) const H1_OFFSET: usize = 0;
    pub(crate) const HPACK_OFFSET: usize = 8;
    pub(crate) const H1_COMMON_OFFSET: usize = 16;
    pub(crate) const HPACK_COMMON_OFFSET: usize = 20;
    pub(crate) const ENTITY_TAG_OFFSET: usize = 24;
    pub(crate) const BLOB: usize = 32;
    pub(crate) const H1_LEN: usize = 36;
    pub(crate) const H1_LENGTH_END: usize = 38;
    pub(crate) const H1_SHARED_START: usize = 40;
    pub(crate) const HPACK_LEN: usize = 42;
    pub(crate) const HPACK_LENGTH_END: usize = 44;
    pub(crate) const HPACK_SHARED_START: usize = 46;
    pub(crate) const H1_COMMON_LEN: usize = 48;
    pub(crate) const H1_COMMON_SHARED_START: usize = 50;
    pub(crate) const HPACK_COMMON_LEN: usize = 52;
    pub(crate) const ENTITY_TAG_LEN: usize = 54;
    pub(crate) const CODING: usize = 56;
    pub(crate) const FLAGS: usize = 57;
    pub(crate) const HPACK_COMMON_SHARED_START: usize = 58;
    /// The number of the dictionary; zero for a coding without one.
    pub(crate) const DICTIONARY: usize = 60;

    /// The members named "common" are valid, and the entity tag is in fields-h1.
    pub(crate) const FLAG_COMMON: u8 = 1;
}

/// A dictionary record.
pub(crate) mod dictionary {
    pub(crate) const LEN: usize = 64;
    pub(crate) const SHA256: usize = 0;
    pub(crate) const SHA256_LEN: usize = 32;
    pub(crate) const PATH_OFFSET: usize = 32;
    pub(crate) const PATH_LEN: usize = 40;
    /// Four bytes, reserved.
    pub(crate) const RESERVED: usize = 44;
    pub(crate) const BYTES: usize = 48;
    /// Eight bytes, reserved.
    pub(crate) const RESERVED_END: usize = 56;
}

/// The record of a file that is carried on.
pub(crate) mod carried {
    pub(crate) const LEN: usize = 16;
    pub(crate) const ENTRY: usize = 0;
    /// Four bytes, reserved.
    pub(crate) const RESERVED: usize = 4;
    pub(crate) const SINCE: usize = 8;
}

/// A blob record and, in a separate section, its digest.
pub(crate) mod blob {
    use gannet_http::semantics::coding::Coding;

    pub(crate) const LEN: usize = 16;
    pub(crate) const OFFSET: usize = 0;
    pub(crate) const BYTES: usize = 8;
    pub(crate) const DIGEST_LEN: usize = 32;
    /// Marks an offset that holds a coding and the number of the coded blob instead.
    const DECODED: u64 = 1 << 63;
    /// The coding's number is above that of the blob, unless it is gzip.
    const CODING_SHIFT: u32 = 32;

    /// The value in place of the offset of a body that is stored only in a coding, as this blob.
    pub(crate) fn decoded_from(coding: Coding, number: u32) -> u64 {
        let coding = match coding {
            Coding::Gzip => 0,
            other => other as u64,
        };
        DECODED | coding << CODING_SHIFT | u64::from(number)
    }

    /// The coding and the blob, if an offset holds them instead. For a coding in which bodies may
    /// not be stored alone, [`decoded_from`] does not map the result back to that offset.
    #[inline]
    pub(crate) fn coded_of(offset: u64) -> Option<(Coding, u32)> {
        let coding = match (offset & !DECODED) >> CODING_SHIFT {
            0 => Coding::Gzip,
            _ => Coding::Brotli,
        };
        (offset & DECODED != 0).then_some((coding, offset as u32))
    }
}

/// `len` bytes at `at`, or nothing if not all of them exist.
#[inline]
pub(crate) fn slice(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    at.checked_add(len)
        .and_then(|end| bytes.get(at..end))
        .unwrap_or(&[])
}

/// A record of fixed length at a position; zeros if there is none. What is read of it then needs no
/// further check.
#[inline]
pub(crate) fn record<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .unwrap_or(&[0; N])
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    slice(bytes, at, N).try_into().unwrap_or([0; N])
}

#[inline]
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(array(bytes, at))
}

/// Writes `value` at `at` of a record that the caller has sized.
pub(crate) fn put(record: &mut [u8], at: usize, value: &[u8]) {
    record[at..at + value.len()].copy_from_slice(value);
}

/// `value` rounded up to a multiple of `align`, a power of two; `None` past 2^64.
pub(crate) fn align_up(value: u64, align: u64) -> Option<u64> {
    debug_assert!(align.is_power_of_two(), "alignments are powers of two");
    value.checked_add(align - 1).map(|sum| sum & !(align - 1))
}
