//! Waiting for several descriptors at once (`poll`), for threads other than workers, which have no
//! engine.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The readiness to wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Input, or its end.
    Input,
    /// Room for output.
    Output,
}

/// Waits until one of the descriptors is ready or has failed, or the time is up; returns which, in
/// their order.
///
/// # Errors
/// `ENOMEM`, `EINVAL` beyond the limit of descriptors. A signal ends the wait early and is no
/// error.
pub fn wait(
    watched: &[(BorrowedFd<'_>, Interest)],
    timeout: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let flags = |interest| match interest {
        Interest::Input => PollFlags::IN,
        Interest::Output => PollFlags::OUT,
    };
    let mut fds: Vec<_> = watched
        .iter()
        .map(|(fd, interest)| PollFd::from_borrowed_fd(*fd, flags(*interest)))
        .collect();
    // A time beyond the range of the kernel's type means no limit.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Input, room and an end are distinguished from nothing.
    #[test]
    fn says_which_are_ready() {
        let (one, other) = UnixStream::pair().unwrap();
        let (silent, end) = UnixStream::pair().unwrap();
        let watched = [
            (one.as_fd(), Interest::Input),
            (one.as_fd(), Interest::Output),
            (other.as_fd(), Interest::Input),
            (end.as_fd(), Interest::Input),
        ];
        let now = Some(Duration::ZERO);
        assert_eq!(wait(&watched, now).unwrap(), [false, true, false, false]);
        (&one).write_all(b"x").unwrap();
        drop(silent);
        assert_eq!(wait(&watched, now).unwrap(), [false, true, true, true]);
    }
}
