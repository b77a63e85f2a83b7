//! Standard output and standard error without the locks of the standard library.

use std::io::{self, Write};
use std::os::fd::AsFd;

/// Writes to a standard stream directly. A write that hangs holds no lock that another thread or
/// the process exit needs.
#[derive(Debug)]
pub struct Direct<T>(pub T);

impl<T: AsFd> Write for Direct<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
