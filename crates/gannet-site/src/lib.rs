//! Packs sites into archives, and predicts a server's answers offline.
//!
//! The program `gannet` is a command line around this crate; static site generators can use it to
//! write an archive beside their pages, or instead of them:
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
//! - [`pack`] writes archives, [`import`] reads other kinds of archives.
//! - [`offline`] resolves paths of a folder or an archive as a server does; [`check`] uses it to
//!   check the links of a site.
//! - [`bundle`] makes images for containers.
//! - [`archive`] opens, compares, verifies and extracts archives.
//!
//! Options are plain values, errors name the object and the cause, reports are data. Nothing here
//! uses the terminal, except to prompt for the password of a secret key.
#![forbid(unsafe_code)]

pub mod archive;
pub mod bundle;
pub mod check;
pub mod host_folders;
pub mod import;
pub mod offline;
pub mod pack;
pub mod target;
