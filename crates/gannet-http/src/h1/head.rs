//! The head of a request: request line and field section, in one pass without copying.
