//! Datagrams (UDP): binding sockets, steering among workers, and the receive and send code that
//! both real engines share.
//!
//! A driver gets bound sockets when it is created; its interface to them is the datagram part of
//! [`Network`](crate::driver::Network).

mod bind;
mod endpoint;
mod envelope;
mod receive;
mod steer;

pub use crate::udp::bind::{Transport, adopt, bind, bind_exclusive, free_for_both};
pub(crate) use crate::udp::endpoint::{DatagramEndpoint, of_one_call};
pub(crate) use crate::udp::envelope::{CONTROL_LEN, Envelope, NAME_LEN};
pub(crate) use crate::udp::receive::Batch;
pub use crate::udp::steer::{WORKER_MASK, steer};

/// The longest datagram, and the longest train, in bytes: the most that an IPv4 packet holds
/// besides its headers. A longer train is refused as a whole (`EMSGSIZE`).
pub const TRAIN_LEN_MAX: usize = 65_507;

/// The most datagrams of one train: the kernel's `UDP_MAX_SEGMENTS` before Linux 6.9.
pub const TRAIN_SEGMENTS_MAX: usize = 64;
