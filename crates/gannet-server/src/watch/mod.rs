//! Helpers of the threads beside the workers: looks at files that may change, work that a disk may hold
//! up, and messages to the operator.

pub(crate) mod in_time;
pub(crate) mod lookout;
pub mod notices;
