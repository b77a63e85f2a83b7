//! Followers of stores behind a web server, honest and not.

mod demanding;
mod following;
mod frozen;
mod lies;
mod listening;
mod packed;
mod receive_checks;
mod receiving;
mod stand_in;
mod stores;
