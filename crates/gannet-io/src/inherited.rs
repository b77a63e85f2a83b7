//! Descriptors that this process was started with: sockets, and what they are, and those that a path names.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, FdFlags};
use rustix::net::{SocketAddrUnix, SocketType, sockopt};

use crate::limits::INHERITED_MAX;

/// The first descriptor that a service manager passes (sd_listen_fds(3)).
const FIRST: RawFd = 3;

/// Takes the sockets that a service manager has passed, with their names, as sd_listen_fds(3)
/// describes: `LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`. None if they are meant for another
/// process. They are closed on exec from now on. A second call returns none.
///
/// # Errors
/// The variables are malformed, name more than [`INHERITED_MAX`] descriptors, or one that is not
/// open (`EBADF`).
pub fn from_service_manager() -> io::Result<Vec<(OwnedFd, String)>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let pid = std::env::var("LISTEN_PID").unwrap_or_default();
    if pid != std::process::id().to_string() || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let count = std::env::var("LISTEN_FDS").unwrap_or_default();
    let names = named(&count, &names)?;
    let taken = (FIRST..).zip(names);
    // SAFETY: the service manager has given these descriptors to this process, and nothing else
    // has taken them: `TAKEN` was not set.
    taken
        .map(|(raw, name)| Ok((unsafe { taken_over(raw) }?, name)))
        .collect()
}

/// The name of each socket; "" without one.
fn named(count: &str, names: &str) -> io::Result<Vec<String>> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let count: usize = count
        .parse()
        .map_err(|_| invalid(format!("LISTEN_FDS={count} is not a number")))?;
    if count > INHERITED_MAX {
        return Err(invalid(format!(
            "LISTEN_FDS={count} is more than {INHERITED_MAX}"
        )));
    }
    let mut names = names.split(':').map(str::to_owned);
    Ok((0..count)
        .map(|_| names.next().unwrap_or_default())
        .collect())
}

/// Takes a descriptor that the predecessor of this process has passed, by its number.
///
/// # Errors
/// The number is malformed, or the descriptor is not open (`EBADF`).
pub fn from_predecessor(number: &OsStr) -> io::Result<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = number.to_str().and_then(|number| number.parse().ok());
    let raw: RawFd = number.filter(|raw| *raw >= FIRST).ok_or(Errno::BADF)?;
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the predecessor has given this descriptor to this process, and nothing else has taken
    // it: `TAKEN` was not set.
    unsafe { taken_over(raw) }
}

/// The descriptor that a path names: by its number, such as `/dev/fd/3`, or because standard output or standard
/// error is this very file, as with `/dev/stdout`, a link to it, or the file that a shell has opened there.
#[must_use]
pub fn of_path(path: &Path) -> Option<RawFd> {
    let number = ["/dev/fd/", "/proc/self/fd/"]
        .iter()
        .find_map(|folder| path.to_str()?.strip_prefix(folder));
    if let Some(number) = number {
        let raw: RawFd = number.parse().ok()?;
        return (raw >= 0 && raw.to_string() == number).then_some(raw);
    }
    let found = fs::metadata(path).ok()?;
    let is_open = |at: BorrowedFd<'_>| {
        let open = rustix::fs::fstat(at);
        open.is_ok_and(|it| (it.st_dev, it.st_ino) == (found.dev(), found.ino()))
    };
    let (out, err) = (io::stdout(), io::stderr());
    let all = [out.as_fd(), err.as_fd()];
    let it = all.into_iter().find(|it| is_open(*it))?;
    Some(it.as_raw_fd())
}

/// The open file at a descriptor, with its place in it. Opening a path to it would open the file once more, from
/// its beginning, and fail for a socket.
///
/// # Errors
/// No file is open there (`EBADF`).
pub fn copy_of(raw: RawFd) -> io::Result<File> {
    // SAFETY: the call takes any number; one that is not open fails, and touches nothing.
    let copy = unsafe { libc::fcntl(raw, libc::F_DUPFD_CLOEXEC, FIRST) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has opened it, and nothing else has it.
    Ok(unsafe { File::from_raw_fd(copy) })
}

/// Owns a descriptor, and has it closed on exec.
///
/// # Safety
/// - If it is open, nothing else in this process owns it.
unsafe fn taken_over(raw: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a call on a descriptor that is not open fails, and touches nothing.
    let borrowed = unsafe { BorrowedFd::borrow_raw(raw) };
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, as the call above has shown; the caller vouches for the ownership.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// What a socket is, and the address that it is bound to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SocketKind {
    /// A TCP listener.
    Tcp(SocketAddr),
    /// A stream listener at this path.
    Unix(PathBuf),
    /// A UDP socket.
    Udp(SocketAddr),
}

impl SocketKind {
    /// Finds out.
    ///
    /// # Errors
    /// `ENOTSOCK`; `EPROTONOSUPPORT` for any other kind, such as a socket that does not listen, or
    /// listens at an abstract Unix address.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let kind = sockopt::socket_type(&socket)?;
        let address = rustix::net::getsockname(&socket)?;
        let listens = kind == SocketType::STREAM && sockopt::socket_acceptconn(&socket)?;
        if let Ok(address) = SocketAddr::try_from(address.clone()) {
            match kind {
                SocketType::STREAM if listens => return Ok(Self::Tcp(address)),
                SocketType::DGRAM => return Ok(Self::Udp(address)),
                _ => {}
            }
        } else if listens
            && let Ok(unix) = SocketAddrUnix::try_from(address)
            && let Some(path) = unix.path()
        {
            let path = OsStr::from_bytes(path.to_bytes());
            return Ok(Self::Unix(path.into()));
        }
        Err(Errno::PROTONOSUPPORT.into())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn names_belong_to_sockets_by_their_order() {
        let check = |count, names, expect: &[&str]| {
            assert_eq!(named(count, names).expect("valid"), expect);
        };
        check("2", "http:https", &["http", "https"]);
        check("2", "http", &["http", ""]);
        check("1", "a:b", &["a"]);
        check("0", "", &[]);
        assert!(named("many", "").is_err());
        assert!(named("100000", "").is_err());
    }

    #[test]
    fn sockets_show_what_they_are() {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("free");
        let address = tcp.local_addr().expect("bound");
        assert_eq!(SocketKind::of(&tcp).expect("tcp"), SocketKind::Tcp(address));
        let udp = UdpSocket::bind("127.0.0.1:0").expect("free");
        let address = udp.local_addr().expect("bound");
        assert_eq!(SocketKind::of(&udp).expect("udp"), SocketKind::Udp(address));
        let path = std::env::temp_dir().join(format!("gannet-kind-{}", std::process::id()));
        let unix = UnixListener::bind(&path).expect("free");
        std::fs::remove_file(&path).expect("made");
        assert_eq!(SocketKind::of(&unix).expect("unix"), SocketKind::Unix(path));
        let (connected, _peer) = UnixStream::pair().expect("a pair");
        assert!(SocketKind::of(&connected).is_err());
        let file = std::fs::File::open("/dev/null").expect("there");
        assert!(SocketKind::of(&file).is_err());
    }
}
