//! Unix stream listeners: created under another name, with mode and group, and then renamed.
//!
//! ```text
//!  bind: .gannet-PID-0, chown, chmod, listen ──▶ Beside ── publish: rename ──▶ Published
//!                                                   └────── dropped ──▶ gone ◀─────┘
//! ```
//!
//! The socket is never reachable before its mode and group are set, and the name is never missing
//! while the socket is replaced. The rename cannot destroy another process's file: either the name
//! was free, or the file that had it is checked after the exchange, and restored unless it is the
//! stale socket found before.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::limits;
use crate::user::group_id;

/// Who may connect. Omitted values follow the process's umask and group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Access {
    /// The file's permission bits; connecting requires write permission.
    pub mode: Option<u32>,
    /// The file's group, by name or number.
    pub group: Option<String>,
}

/// Binds a listener that will be reachable at `path` once its file is published.
///
/// # Errors
/// `EADDRINUSE` if a server listens there or the path is not a socket; `ENOENT` and `EACCES` of the
/// folder; `ENAMETOOLONG` beyond 107 bytes; `EPERM` for a group that this user is not in; an error
/// in words for a group that does not exist.
pub fn bind(path: &Path, access: &Access) -> io::Result<(OwnedFd, SocketFile)> {
    // Clients need the whole path in an address.
    SocketAddrUnix::new(path)?;
    let group = access.group.as_deref().map(group_id).transpose()?;
    let mut file = SocketFile::at(path)?;
    file.stale()?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    file.bind(&socket)?;
    file.open_to(access.mode, group)?;
    rustix::net::listen(&socket, limits::BACKLOG)?;
    Ok((socket, file))
}

/// Binds a listener without a file, at an address that the kernel chooses: one in the abstract
/// namespace, which ends with the listener. Anybody on this machine may connect.
///
/// # Errors
/// The kernel's error.
pub fn bind_unnamed() -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed())?;
    rustix::net::listen(&socket, limits::BACKLOG)?;
    let listener = UnixListener::from(socket);
    let address = listener.local_addr()?;
    Ok((listener.into(), address))
}

/// The file of a listener that another process has bound and published. This process removes it once
/// it is its own: see [`SocketFile::own`]. `None` if there is no socket at the path any more.
///
/// # Errors
/// As for [`bind`], for the folder, the mode and the group.
pub fn adopt(path: &Path, access: &Access) -> io::Result<Option<SocketFile>> {
    let group = access.group.as_deref().map(group_id).transpose()?;
    let mut file = SocketFile::at(path)?;
    match file.look(&file.name)? {
        Some((identity, FileType::Socket)) => file.adopted = Some(identity),
        _ => return Ok(None),
    }
    file.open_to(access.mode, group)?;
    Ok(Some(file))
}

/// Device and inode.
type Identity = (u64, u64);

/// The file of a listener, removed when dropped.
#[derive(Debug)]
pub struct SocketFile {
    folder: OwnedFd,
    /// Its name once it is published.
    name: OsString,
    /// Its name until then.
    temporary: Option<OsString>,
    path: PathBuf,
    /// Its identity, once the file exists and is this process's own.
    identity: Option<Identity>,
    /// Its identity while it is another process's.
    adopted: Option<Identity>,
}

/// The folder of the file.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Names to try before giving up on a folder full of them.
const NAMES_MAX: u32 = 64;

/// How often to try a name that appears and disappears.
const ATTEMPTS_MAX: u32 = 8;

impl SocketFile {
    /// A file that does not exist yet.
    fn at(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(parent(path), flags, Mode::empty())?;
        Ok(Self {
            folder,
            name,
            temporary: None,
            path: path.to_owned(),
            identity: None,
            adopted: None,
        })
    }

    /// Its path once it is published.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an adopted file this process's own: the other one has left it.
    pub fn own(&mut self) {
        if let Some(identity) = self.adopted.take() {
            self.identity = Some(identity);
        }
    }

    /// Leaves the file to another process, which has the listener as well.
    pub fn leave(mut self) {
        self.identity = None;
    }

    /// Gives the socket a temporary name in the folder.
    fn bind(&mut self, socket: &OwnedFd) -> io::Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..NAMES_MAX {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!(".gannet-{}-{number}", std::process::id()));
            // This name may be longer than the socket's, which just fits.
            let direct = SocketAddrUnix::new(parent(&self.path).join(&name));
            let address = direct.or_else(|_| {
                let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
                SocketAddrUnix::new(Path::new(&folder).join(&name))
            })?;
            match rustix::net::bind(socket, &address) {
                // Left behind by a killed process with the same number.
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.identity = self.look(&name)?.map(|(identity, _)| identity);
                    self.temporary = Some(name);
                    return Ok(());
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Grants access to the clients that may connect.
    fn open_to(&self, mode: Option<u32>, group: Option<u32>) -> io::Result<()> {
        if mode.is_none() && group.is_none() {
            return Ok(());
        }
        let name = self.temporary.as_ref().unwrap_or(&self.name);
        // A user who may write to the folder can put a link there, to another user's file.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, name, flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if kind != FileType::Socket {
            return Err(Errno::NOTSOCK.into());
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Some(group) = group {
            rustix::fs::chown(&path, None, Some(Gid::from_raw(group)))?;
        }
        if let Some(mode) = mode {
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    /// Gives the file its final name, in place of a stale socket.
    ///
    /// # Errors
    /// `EADDRINUSE` as for [`bind`]; errors of the file system.
    pub fn publish(&mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.clone() else {
            return Ok(());
        };
        for _ in 0..ATTEMPTS_MAX {
            let replaced = self.stale()?;
            let flags = match replaced {
                None => RenameFlags::NOREPLACE,
                Some(_) => RenameFlags::EXCHANGE,
            };
            match self.rename(&temporary, flags) {
                // A file has appeared, or disappeared, since the check.
                Err(Errno::EXIST | Errno::NOENT) => continue,
                // The file system supports neither flag; what is lost is a moment's certainty.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    self.rename(&temporary, RenameFlags::empty())?;
                }
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    let got = self.look(&temporary)?.map(|(identity, _)| identity);
                    if got != replaced {
                        // Not the stale socket: it gets its name back.
                        self.rename(&temporary, RenameFlags::EXCHANGE)?;
                        continue;
                    }
                    if replaced.is_some() {
                        rustix::fs::unlinkat(&self.folder, &temporary, AtFlags::empty())?;
                    }
                }
            }
            self.temporary = None;
            return Ok(());
        }
        Err(Errno::ADDRINUSE.into())
    }

    fn rename(&self, temporary: &OsStr, flags: RenameFlags) -> rustix::io::Result<()> {
        let folder = &self.folder;
        rustix::fs::renameat_with(folder, temporary, folder, &self.name, flags)
    }

    /// The stale socket at the name; `None` if the name is free.
    fn stale(&self) -> io::Result<Option<Identity>> {
        let Some((identity, kind)) = self.look(&self.name)? else {
            return Ok(None);
        };
        let refuses = || {
            UnixStream::connect(&self.path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if kind == FileType::Socket && refuses() {
            return Ok(Some(identity));
        }
        Err(Errno::ADDRINUSE.into())
    }

    /// The file that has this name in the folder; links are not followed.
    fn look(&self, name: &OsStr) -> io::Result<Option<(Identity, FileType)>> {
        match rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let identity = (stat.st_dev, stat.st_ino);
                Ok(Some((identity, FileType::from_raw_mode(stat.st_mode))))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let name = self.temporary.as_ref().unwrap_or(&self.name);
        // While we were finishing our responses, a new server may have put its own socket there.
        let is_ours =
            matches!(self.look(name), Ok(Some((found, _))) if Some(found) == self.identity);
        if is_ours {
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("gannet-socket-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let name = |it: io::Result<fs::DirEntry>| it.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names
    }

    fn published(path: &Path) -> (OwnedFd, SocketFile) {
        let (socket, mut file) = bind(path, &Access::default()).unwrap();
        file.publish().unwrap();
        (socket, file)
    }

    /// `EADDRINUSE`, whichever step fails.
    fn is_refused(path: &Path) -> bool {
        bind(path, &Access::default())
            .and_then(|(_, mut file)| file.publish())
            .is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    }

    /// Mode and group are the socket's, not those of a file that a link names.
    #[test]
    fn only_sockets_are_opened_to_others() {
        let folder = folder("opened");
        let (path, other) = (folder.join("socket"), folder.join("other"));
        fs::write(&other, "").unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
        let before = mode(&other);
        symlink(&other, &path).unwrap();
        let file = SocketFile::at(&path).unwrap();
        assert!(file.open_to(Some(0o666), None).is_err());
        assert!(file.open_to(None, Some(0)).is_err());
        assert_eq!(mode(&other), before);
        fs::remove_file(&path).unwrap();
        let (_socket, _file) = published(&path);
        file.open_to(Some(0o640), None).unwrap();
        assert_eq!(mode(&path), 0o640);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A stale socket is replaced; a live one, a file and a link are left alone.
    #[test]
    fn only_a_stale_socket_is_replaced() {
        let folder = folder("stale");
        let path = folder.join("socket");
        let (socket, file) = published(&path);
        assert!(is_refused(&path));
        // As if it were killed: the file remains.
        fs::rename(&path, folder.join("aside")).unwrap();
        drop(file);
        fs::rename(folder.join("aside"), &path).unwrap();
        drop(socket);
        assert!(UnixStream::connect(&path).is_err());
        let (_socket, file) = published(&path);
        UnixStream::connect(&path).unwrap();
        drop(file);
        assert_eq!(names(&folder), Vec::<String>::new());
        drop(UnixListener::bind(&path).unwrap());
        symlink(&path, folder.join("link")).unwrap();
        assert!(is_refused(&folder.join("link")));
        fs::write(folder.join("file"), "content").unwrap();
        assert!(is_refused(&folder.join("file")));
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"content");
        assert_eq!(names(&folder), ["file", "link", "socket"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// The file of a listener that was taken over goes with the new process, and not with the old
    /// one.
    #[test]
    fn a_file_is_left_and_adopted() {
        let folder = folder("adopted");
        let path = folder.join("socket");
        let (_socket, old) = published(&path);
        let access = Access {
            mode: Some(0o600),
            group: None,
        };
        // A process that does not come to serve removes nothing.
        drop(adopt(&path, &access).unwrap().expect("it is there"));
        assert_eq!(names(&folder), ["socket"]);
        let mut new = adopt(&path, &access).unwrap().expect("it is there");
        new.own();
        old.leave();
        assert_eq!(names(&folder), ["socket"]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(new);
        assert_eq!(names(&folder), Vec::<String>::new());
        assert!(adopt(&path, &access).unwrap().is_none());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A file that takes the name between check and rename keeps it.
    #[test]
    fn what_came_meanwhile_stays() {
        let folder = folder("meanwhile");
        let path = folder.join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let (_socket, mut file) = bind(&path, &Access::default()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "content").unwrap();
        let error = file.publish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(names(&folder), ["socket"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A second server has taken the name: the first one leaves its file alone when it ends.
    #[test]
    fn the_end_removes_no_other_socket() {
        let folder = folder("end");
        let path = folder.join("socket");
        let (_socket, file) = published(&path);
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(file);
        UnixStream::connect(&path).unwrap();
        drop(other);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Mode and group are set when the file appears, and no client can connect earlier.
    #[test]
    fn mode_and_group_are_set_before_it_is_published() {
        let folder = folder("mode");
        let path = folder.join("socket");
        let own = fs::metadata(&folder).unwrap().gid();
        let access = Access {
            mode: Some(0o620),
            group: Some(own.to_string()),
        };
        let (_socket, mut file) = bind(&path, &access).unwrap();
        assert!(!path.exists());
        file.publish().unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(
            (meta.permissions().mode() & 0o7777, meta.gid()),
            (0o620, own)
        );
        let unknown = Access {
            mode: None,
            group: Some("no such group".into()),
        };
        let error = bind(&folder.join("other"), &unknown).unwrap_err();
        assert_eq!(error.to_string(), "there is no group 'no such group'");
        drop(file);
        assert_eq!(names(&folder), Vec::<String>::new());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn groups_have_names() {
        assert_eq!(group_id("0").unwrap(), 0);
        assert_eq!(group_id("root").unwrap(), 0);
    }

    /// A path of the maximum length works, although the temporary name is longer.
    #[test]
    fn the_longest_path_fits() {
        let folder = folder("long");
        let length = 107 - folder.as_os_str().len() - 1;
        let deep = folder.join("d".repeat(length - 2));
        fs::create_dir(&deep).unwrap();
        let path = deep.join("s");
        assert_eq!(path.as_os_str().len(), 107);
        let (_socket, file) = published(&path);
        UnixStream::connect(&path).unwrap();
        drop(file);
        fs::remove_dir_all(&folder).unwrap();
    }
}
