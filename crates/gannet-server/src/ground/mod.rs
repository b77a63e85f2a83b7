//! What every connection of a worker stands on: identifiers and tokens, timers, the worker's settings, and
//! messages from other threads.

pub(crate) mod alive;
pub(crate) mod delay;
pub(crate) mod held_hellos;
pub(crate) mod idle_queue;
pub(crate) mod inbox;
pub(crate) mod settings;
pub(crate) mod tails;
pub(crate) mod timers;
pub(crate) mod token;
pub(crate) mod turns;
