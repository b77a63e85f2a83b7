//! Why an archive was rejected: what was found, where, and which rule it breaks.

use core::fmt;

use crate::superblock::SectionKind;

/// Why an archive was rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ArchiveError {
    /// Fewer bytes than the archive declares, or than a superblock has.
    Truncated {
        /// Bytes required.
        expected: u64,
        /// Bytes present.
        found: u64,
    },
    /// No bytes at all.
    Empty,
    /// More bytes than the archive declares, without an announced tail.
    TrailingBytes {
        /// Bytes expected.
        expected: u64,
        /// Bytes present.
        found: u64,
    },
    /// Not an archive.
    Magic {
        /// The first four bytes.
        found: [u8; 4],
        /// What it seems to be instead.
        lookalike: Lookalike,
    },
    /// A format version other than this crate's.
    Version {
        /// The version found.
        found: u32,
    },
    /// Features that a reader must support, and this one does not.
    Features {
        /// The unknown bits.
        unknown: u64,
    },
    /// The superblock does not match its checksum.
    SuperblockChecksum {
        /// The recorded checksum.
        expected: u64,
        /// The checksum of the bytes.
        found: u64,
    },
    /// The superblock breaks a rule.
    Superblock(Rule),
    /// A section does not match its checksum.
    SectionChecksum {
        /// Which section.
        section: SectionKind,
        /// The recorded checksum.
        expected: u64,
        /// The checksum of the bytes.
        found: u64,
    },
    /// A record breaks a rule.
    Record {
        /// Which section.
        section: SectionKind,
        /// Which record of it, from 0.
        index: u64,
        /// Which rule.
        rule: Rule,
    },
}

/// What a file that is not an archive seems to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookalike {
    /// A zip file.
    Zip,
    /// A gzip file.
    Gzip,
    /// A zstd file.
    Zstd,
    /// A constant database, as kawipiko's archiver writes it.
    Cdb,
    /// A tar file.
    Tar,
    /// An HTML page, often an error page saved by a download.
    Html,
    /// An archive damaged by a transfer that converted line ends or cleared a bit.
    Converted,
    /// A partial copy of an archive, whose blobs are fetched when they are needed.
    Partial,
    /// Unknown.
    Unknown,
}

/// The rules of `FORMAT.md`, section "Validation".
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// An offset or a length goes beyond the allowed range.
    Range,
    /// An offset is not a multiple of its alignment.
    Alignment,
    /// Two ranges overlap, or are not in the order of their offsets.
    Overlap,
    /// A section is missing or occurs twice.
    SectionCount,
    /// The length of a section is not a whole number of records, or not as declared in its header.
    SectionLen,
    /// Bytes that must be zero are not.
    Reserved,
    /// The index declares longer probes than allowed, or a wrong table size.
    IndexShape,
    /// A slot of the index does not match its entry.
    IndexSlot,
    /// Entries that no lookup would find.
    IndexMissing,
    /// A path that is not normalised.
    Path,
    /// Entries are not in the order of their keys, or two have the same key.
    Order,
    /// A number outside of its set: kind, namespace, coding, flag, host.
    Value,
    /// A redirect with an invalid status or location.
    Redirect,
    /// A content type that could break a field.
    ContentType,
    /// An invalid entity tag (RFC 9110 section 8.8.3).
    EntityTag,
    /// Variants are not in the order of their lengths, or two have the same coding.
    Variants,
    /// A field block that is not a sequence of field lines, or carries a field of the message
    /// framing.
    FieldBlock,
    /// The content length of a field block is not the length of the blob.
    ContentLength,
    /// A length beyond the limit of the format.
    Limit,
    /// See [`SHARED_PER_BYTE_MAX`](crate::limits::SHARED_PER_BYTE_MAX).
    Shared,
}

impl ArchiveError {
    /// How to fix it, for a line `help: ...`.
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Magic { lookalike, .. } => match lookalike {
                Lookalike::Zip => {
                    "this is a zip file; unpack it and build an archive with 'gannet pack DIR -o site.gannet'"
                }
                Lookalike::Gzip | Lookalike::Zstd => {
                    "this is a compressed file; a .gannet archive is never compressed as a whole: unpack it first"
                }
                Lookalike::Cdb => {
                    "this is a cdb file, as kawipiko writes it; build an archive from the site's files with 'gannet pack DIR -o site.gannet'"
                }
                Lookalike::Tar => {
                    "this is a tar file; unpack it and build an archive with 'gannet pack DIR -o site.gannet'"
                }
                Lookalike::Html => {
                    "this is an HTML page, perhaps an error page that a download saved; check where the archive came from"
                }
                Lookalike::Converted => {
                    "this was an archive, but a transfer converted its bytes as text; copy it again in binary mode"
                }
                Lookalike::Partial => {
                    "this is part of a release, of which a server fetches the rest when it needs it; serve the URL of the store with --on-demand, or take the archive from there"
                }
                Lookalike::Unknown => {
                    "this is not an archive; build one with 'gannet pack DIR -o site.gannet'"
                }
            },
            Self::Truncated { .. } => "the file is cut short; copy or build it again",
            Self::Empty => {
                "a copy or a build may have ended before its first byte; copy or build it again"
            }
            Self::Version { found } if *found < crate::layout::VERSION => {
                "an older gannet wrote this archive; build it again with 'gannet pack DIR -o site.gannet'"
            }
            Self::Version { .. } | Self::Features { .. } => {
                "a newer gannet wrote this archive; update gannet, or build the archive again with this version"
            }
            Self::TrailingBytes { .. }
            | Self::SuperblockChecksum { .. }
            | Self::SectionChecksum { .. } => "the file is damaged; copy or build it again",
            Self::Superblock(_) | Self::Record { .. } => {
                "the file is damaged, or was not written by gannet; build it again"
            }
        })
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { expected, found } => {
                write!(
                    out,
                    "file is cut short (found {found} bytes, expected {expected})"
                )
            }
            Self::Empty => out.write_str("file is empty"),
            Self::TrailingBytes { expected, found } => {
                write!(
                    out,
                    "file continues after its end (found {found} bytes, expected {expected})"
                )
            }
            Self::Magic {
                found: [a, b, c, d],
                ..
            } => {
                write!(
                    out,
                    "wrong magic at offset 0 (found {a:02x}{b:02x}{c:02x}{d:02x})"
                )
            }
            Self::Version { found } => write!(
                out,
                "unknown format version (found {found}, expected {})",
                crate::layout::VERSION
            ),
            Self::Features { unknown } => {
                write!(
                    out,
                    "features this version does not know (bits {unknown:#x})"
                )
            }
            Self::SuperblockChecksum { expected, found } => write!(
                out,
                "wrong checksum of the superblock (found {found:016x}, expected {expected:016x})"
            ),
            Self::Superblock(rule) => write!(out, "bad superblock: {rule}"),
            Self::SectionChecksum {
                section,
                expected,
                found,
            } => write!(
                out,
                "wrong checksum of section {section} (found {found:016x}, expected {expected:016x})"
            ),
            Self::Record {
                section,
                index,
                rule,
            } => {
                write!(out, "bad record {index} of section {section}: {rule}")
            }
        }
    }
}

impl core::error::Error for ArchiveError {}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Range => "an offset or a length leaves the file or its section",
            Self::Alignment => "an offset is not aligned",
            Self::Overlap => "ranges overlap or are out of order",
            Self::SectionCount => "a section is missing or there twice",
            Self::SectionLen => "a section has a length that does not fit its records",
            Self::Reserved => "reserved bytes are not zero",
            Self::IndexShape => "the index has an impossible size or probe bound",
            Self::IndexSlot => "a slot of the index does not fit its entry",
            Self::IndexMissing => "the index does not find all entries",
            Self::Path => "a path is not normalised",
            Self::Order => "entries are out of order or there twice",
            Self::Value => "a number is outside of its set",
            Self::Redirect => "a redirect has an impossible status or location",
            Self::ContentType => "a content type has forbidden bytes",
            Self::EntityTag => "an entity tag is malformed",
            Self::Variants => "variants are out of order or there twice",
            Self::FieldBlock => "a field block is malformed",
            Self::ContentLength => "a content length is not the length of its blob",
            Self::Limit => "a length is beyond the limit of the format",
            Self::Shared => "records share so many bytes that checking them would take too long",
        })
    }
}
