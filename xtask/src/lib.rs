//! What chores are made of: programs that are found, built and run, a server to look at, and a
//! certificate for it. The lab (`gannet-lab`) uses it, too.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod process;
pub mod served;
