//! A live directory: which paths to try, which sidecars to prefer, and how to render a listing.

pub mod listing;
pub mod lookup;
pub mod sidecars;
