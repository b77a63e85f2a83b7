#![doc = include_str!("../README.md")]
//! # Modules
//!
//! - [`pack`] writes archives, [`import`] reads other kinds of archives.
//! - [`offline`] resolves paths of a folder or an archive as a server does; [`check`] uses it to
//!   check the links of a site.
//! - [`bundle`] makes images for containers.
//! - [`archive`] opens, compares, verifies and extracts archives.
#![forbid(unsafe_code)]

pub mod archive;
#[cfg(feature = "bundle")]
pub mod bundle;
pub mod check;
pub mod host_folders;
#[cfg(feature = "import")]
pub mod import;
pub mod offline;
pub mod pack;
pub mod target;
