#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]
//! # Reading
//!
//! A server reads the superblock and the metadata region into memory, and passes them to
//! [`Superblock::parse`] and [`Archive::new`]. Blob bytes are never needed here; a [`Stored::Blob`]
//! gives their location in the file.

mod archive;
mod carried;
mod decode;
mod dictionaries;
mod digest_table;
mod entry;
mod error;
mod field_block;
mod hosts;
mod hpack_block;
mod immutable;
mod index;
mod inventory;
mod layout;
pub mod limits;
mod listing;
mod path;
pub mod signature;
mod stats;
mod superblock;
mod tree;
mod units;
mod validate;
mod writer;

pub use archive::{Archive, Blob, Key, Namespace};
pub use decode::{DecodeError, decode, decode_brotli, is_decodable};
pub use dictionaries::{Dictionary, dictionary_head};
pub use digest_table::DigestTable;
pub use entry::{Body, Entry, EntryKind, Stored, Variant};
pub use error::{ArchiveError, Lookalike, Rule};
pub use gannet_http::semantics::coding::{Coding, CodingSet};
pub use gannet_http::semantics::response::FieldBlock;
pub use hosts::{HostRules, is_host_name};
pub use immutable::says_immutable;
pub use inventory::{HeldContent, Inventory, ReadAt, each_blob, of_metadata};
pub use listing::{Listed, Listing};
pub use path::is_normalised;
pub use stats::{CodingStats, Stats};
pub use superblock::{
    Options, SUPERBLOCK_LEN, Section, SectionKind, Superblock, archive_start, partial_start,
    put_signature, signed_text,
};
pub use tree::{GroupHash, TreeHasher, group_hash, has_tree, tree_root};
pub use units::{Unit, Units};
pub use writer::{
    BlobId, Content, DictionaryId, Finished, MemorySpool, Parts, Placed, Room, Spool, VariantDraft,
    VariantsId, Writer, digest,
};
