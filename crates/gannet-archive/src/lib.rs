#![forbid(unsafe_code)]
//! The `.gannet` archive: one immutable file that holds a whole site, ready to be sent.
//!
//! An archive has a *superblock* (its first 4096 bytes), *blobs* (stored bytes, kept once however
//! many resources share them) and, at its end, the *metadata region*: index, entries, variants,
//! field blocks, strings and the tiny blobs. `FORMAT.md` beside this crate is the byte-exact
//! specification.
//!
//! This crate reads and writes no files. A server reads the superblock and the metadata region into
//! memory, passes them to [`Superblock::parse`] and [`Archive::new`], and from then on every access
//! is bounded and cannot fail: anything invalid was rejected at open. Blob bytes are never needed
//! here; a [`Stored::Blob`] gives their location in the file.
//!
//! ```
//! use gannet_archive::{Archive, Coding, Content, FieldBlock, Key, Options, Superblock};
//! use gannet_archive::{VariantDraft, Writer};
//!
//! let mut writer = Writer::new(Options::default());
//! let placed = writer.add_bytes(b"hello\n");
//! assert_eq!(placed.write_at, None, "a tiny blob lives in the metadata region");
//! let variants = writer.add_variants(&[VariantDraft {
//!     coding: Coding::Identity,
//!     blob: placed.id,
//!     entity_tag: b"\"1\"",
//!     h1: FieldBlock {
//!         bytes: b"Content-Length: 6\r\nContent-Type: text/plain\r\nETag: \"1\"\r\n",
//!         length_end: 19,
//!         shared_start: 45,
//!         ..FieldBlock::default()
//!     },
//!     hpack: None,
//! }]);
//! writer.add_content(
//!     Key::content(b"/hello.txt"),
//!     &Content { content_type: b"text/plain", variants, ..Content::default() },
//! );
//! let parts = writer.finish()?;
//!
//! let superblock = Superblock::parse(&parts.superblock, parts.file_len)?;
//! let archive = Archive::new(superblock, parts.metadata)?;
//! let entry = archive.lookup(Key::content(b"/hello.txt")).expect("it was added above");
//! let variant = entry.select(Coding::Identity.into()).expect("it was stored as it is");
//! assert_eq!(variant.blob_len(), 6);
//! # Ok::<(), gannet_archive::ArchiveError>(())
//! ```

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
mod path;
pub mod signature;
mod stats;
mod superblock;
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
pub use inventory::{HeldContent, Inventory, ReadAt, of_metadata};
pub use path::is_normalised;
pub use stats::{CodingStats, Stats};
pub use superblock::{
    Options, SUPERBLOCK_LEN, Section, SectionKind, Superblock, put_signature, signed_text,
};
pub use writer::{
    BlobId, Content, DictionaryId, Finished, MemorySpool, Parts, Placed, Room, Spool, VariantDraft,
    VariantsId, Writer, digest,
};
