//! A live directory: which paths to try, which sidecars to prefer, how a listing looks.

pub mod listing;
pub mod lookup;
pub mod sidecars;
