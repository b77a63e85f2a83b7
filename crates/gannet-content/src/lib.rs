//! What to answer: from a request and the properties of a resource to a response.
//!
//! Everything here is a pure function of its arguments: no file is opened, no clock is read. A live
//! directory uses [`directory::lookup`], which requests paths and receives what was found; for an
//! archive the same questions are answered at pack time, and the rest by [`archive`]. The server,
//! `explain` and `check` all use these two.
//!
//! ```text
//! target path ──▶ directory::lookup ──▶ a file ──▶ validators, mime ──▶ answer (ready fields)
//!                        │                                                    │
//!                        └──▶ redirect, directory::listing, error_page        ▼
//! request fields ───────────────────────────────────────────────────▶ plan ──▶ multipart
//! ```
#![forbid(unsafe_code)]

pub mod answer;
pub mod archive;
pub mod directory;
pub mod error_page;
pub mod host_name;
pub mod limits;
pub mod mime;
pub mod multipart;
pub mod negotiation;
pub mod plan;
pub mod policy;
pub mod routing;
pub mod rules;
pub mod stored_coding;
pub mod validators;
