//! Fields that a site gets by default: how long to store content, and what a browser may do.
//!
//! All of them are defaults: a rule of the site's `_headers` file replaces or removes them.

pub mod cache;
pub mod content_digest;
pub mod csp;
pub mod defaults;
pub mod dictionary;
pub mod digest;
pub mod hashed_name;
pub mod limits;
pub mod page;
pub mod references;
pub mod security;
pub mod tokens;
