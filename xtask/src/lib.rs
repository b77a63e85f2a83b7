//! Building blocks of chores: finding, building and running programs, a server under test, and a
//! certificate for it. Shared with the lab (`gannet-lab`).
#![forbid(unsafe_code)]

pub mod certificate;
pub mod process;
pub mod running;
pub mod served;
