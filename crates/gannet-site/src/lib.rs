//! Sites as files: a folder is packed into one archive, and what a server would answer is known
//! without one.
//!
//! The program `gannet` is a command line around this; a generator of static sites can use the same
//! to write an archive beside its pages, or in their place:
//!
//! ```
//! use gannet_site::pack::{NoProgress, PackOptions, pack};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = std::env::temp_dir().join(format!("gannet-site-{}", std::process::id()));
//! # std::fs::create_dir_all(place.join("public"))?;
//! # std::fs::write(place.join("public/index.html"), "<!DOCTYPE html><title>Home</title>")?;
//! let options = PackOptions {
//!     listing: true,
//!     ..PackOptions::new(place.join("public"), place.join("site.gannet"))
//! };
//! let report = pack(&options, &mut NoProgress)?;
//! assert_eq!(report.file_count, 1);
//! # std::fs::remove_dir_all(place)?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`pack`] makes archives, [`import`] reads other kinds of archive.
//! - [`offline`] resolves paths of a folder or an archive as a server does, [`check`] follows the
//!   links of a site by it.
//! - [`archive`] opens, compares, verifies and extracts archives.
//!
//! Options are plain values, errors name the object and the cause, reports are data. Nothing
//! here writes to the terminal, except that a secret key with a password asks for it.
#![forbid(unsafe_code)]

pub mod archive;
pub mod check;
pub mod host_folders;
pub mod host_name;
pub mod import;
pub mod offline;
pub mod pack;
pub mod target;
