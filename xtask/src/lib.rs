//! Building blocks of chores: finding, building and running programs, a server under test and others
//! beside it, asking them, a certificate, and numbers from a seed. Shared with the lab (`gannet-lab`).
#![forbid(unsafe_code)]

pub mod answer;
pub mod certificate;
pub mod other_server;
pub mod process;
pub mod random;
pub mod running;
pub mod served;
