//! A certificate for development.
