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

/// Whether a stream leads to systemd's journal, which has then named it by device and inode (systemd.exec(5)).
pub fn is_of_journal(stream: impl AsFd) -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let place = rustix::fs::fstat(stream).map(|it| format!("{}:{}", it.st_dev, it.st_ino));
    place.is_ok_and(|place| place == named)
}
