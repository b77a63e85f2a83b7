//! A live directory: which paths to try, which sidecars to prefer, what to code, and how to render a
//! listing.

pub mod coding;
pub mod listing;
pub mod lookup;
pub mod sidecars;
