//! The epoll engine: does the call, keeps the operation on `EAGAIN`, posts a completion.
//!
//! One edge-triggered registration per socket, made when it is accepted and ended by closing it.
//! A small response costs one `recv`, one `send`, and its share of an `epoll_wait`.

mod buffers;
mod calls;
mod datagrams;
mod engine;
mod slots;

pub use crate::epoll::engine::Epoll;
