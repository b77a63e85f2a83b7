//! The wire form of a response head.
