//! Chunked content (RFC 9112 section 7.1), parsed strictly in order to be discarded.
