//! Datagrams (UDP): binding sockets, steering among workers, and what both real engines share of
//! receiving and sending.
//!
//! A driver gets bound sockets when it is created; what it does with them is the part of
//! [`Network`](crate::driver::Network) that deals in datagrams.

mod bind;
mod endpoint;
mod envelope;
mod receive;
mod steer;

pub use crate::udp::bind::{Transport, bind, bind_exclusive, free_for_both};
pub(crate) use crate::udp::endpoint::{DatagramEndpoint, check_train};
pub(crate) use crate::udp::envelope::{CONTROL_LEN, Envelope, NAME_LEN};
pub(crate) use crate::udp::receive::Batch;
pub use crate::udp::steer::{WORKER_MASK, steer};

/// The longest datagram, and the longest train, in bytes: what an IPv4 packet holds beside its
/// headers. A longer train is refused as a whole (`EMSGSIZE`).
pub const TRAIN_LEN_MAX: usize = 65_507;

/// The most datagrams of one train: the kernel's `UDP_MAX_SEGMENTS` before Linux 6.9.
pub const TRAIN_SEGMENTS_MAX: usize = 64;
