//! Certificates are read again when their files change.
