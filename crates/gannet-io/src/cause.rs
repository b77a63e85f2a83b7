//! Operating system errors in words, in one form for every message, and what the user can do about
//! them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Something with a file or folder that the system has refused.
#[derive(Debug)]
pub struct FileError {
    /// What was being done: `read`, `write`, ...
    pub doing: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    pub error: io::Error,
}

impl FileError {
    /// Makes an error of the system one of its caller, whose variant for it is `of`.
    pub fn when<E>(
        doing: &'static str,
        path: &Path,
        of: fn(Self) -> E,
    ) -> impl FnOnce(io::Error) -> E {
        move |error| {
            of(Self {
                doing,
                path: path.to_path_buf(),
                error,
            })
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, cause) = (self.path.display(), cause(&self.error));
        write!(out, "cannot {} '{path}': {cause}", self.doing)
    }
}

impl std::error::Error for FileError {}

/// An operating system error in words, with its name: `permission denied (EACCES)`.
#[must_use]
pub fn cause(error: &io::Error) -> String {
    let Some(number) = error.raw_os_error() else {
        return error.to_string();
    };
    let text = error.to_string();
    // The standard library writes "Permission denied (os error 13)".
    let words = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = words.chars();
    let words: String = match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    };
    match errno_name(number) {
        Some(name) => format!("{words} ({name})"),
        None => format!("{words} (errno {number})"),
    }
}

/// The name of an errno that a user may meet.
fn errno_name(number: i32) -> Option<&'static str> {
    const NAMES: &[(Errno, &str)] = &[
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NFILE, "ENFILE"),
        (Errno::MFILE, "EMFILE"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::ROFS, "EROFS"),
        (Errno::PIPE, "EPIPE"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::ADDRINUSE, "EADDRINUSE"),
        (Errno::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::CONNRESET, "ECONNRESET"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::STALE, "ESTALE"),
    ];
    let number = Errno::from_raw_os_error(number);
    NAMES
        .iter()
        .find(|(errno, _)| *errno == number)
        .map(|(_, name)| *name)
}

/// A remedy for an error of the system of which nothing more is known; `None` if only the cause
/// itself can suggest one.
#[must_use]
pub fn next_step(error: &io::Error) -> Option<&'static str> {
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    Some(match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::AlreadyExists => "choose another name, or remove what is there",
        io::ErrorKind::PermissionDenied => {
            "check its permissions and those of its folder ('namei -l PATH'), and the user that \
             gannet runs as"
        }
        io::ErrorKind::IsADirectory => "it is a folder: name a file",
        io::ErrorKind::NotADirectory => "a component of the path is not a folder: check the path",
        io::ErrorKind::InvalidInput => "name a regular file",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space there, or choose another place"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a writable place",
        io::ErrorKind::FileTooLarge => {
            "the file system or a limit (ulimit -f) does not allow files of this length"
        }
        io::ErrorKind::OutOfMemory => "free memory, or raise a limit on it (ulimit -v)",
        io::ErrorKind::CrossesDevices => "choose a place on the same file system",
        _ if is(Errno::MFILE) => "raise the limit of descriptors: 'ulimit -n'",
        _ if is(Errno::NFILE) => "raise the system's limit of open files: the sysctl fs.file-max",
        _ if is(Errno::AGAIN) => {
            "raise the limit of threads, or of memory: 'ulimit -u', 'ulimit -v'"
        }
        _ if is(Errno::LOOP) => "its symbolic links form a loop: check the path",
        _ if is(Errno::IO) => "the disk or its cable is failing: see 'dmesg'",
        _ => return None,
    })
}

/// Names come from disks, networks and other programs: characters that could control a terminal are
/// shown in escaped form, as are those that change the direction of text and so disguise a name.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        let turns = matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        if turns || letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_steer_a_terminal() {
        let name = "a\u{1b}[31m\u{202e}fdp.exe é ü";
        assert_eq!(printable(name), "a\\u{1b}[31m\\u{202e}fdp.exe é ü");
    }

    #[test]
    fn causes_are_lower_case_and_carry_the_errno_name() {
        let check = |number: i32, expect: &str| {
            assert_eq!(cause(&io::Error::from_raw_os_error(number)), expect);
        };
        check(13, "permission denied (EACCES)");
        check(2, "no such file or directory (ENOENT)");
        check(20, "not a directory (ENOTDIR)");
    }

    #[test]
    fn an_error_of_the_system_has_a_next_step() {
        let check = |errno: Errno, expect: &str| {
            let help = next_step(&errno.into()).unwrap_or_default();
            assert!(help.contains(expect), "{errno:?}: {help:?}");
        };
        check(Errno::NOENT, "check the path");
        check(Errno::ACCESS, "permissions");
        check(Errno::ISDIR, "name a file");
        check(Errno::NOSPC, "free some space");
        check(Errno::ROFS, "writable");
        check(Errno::MFILE, "ulimit -n");
        check(Errno::LOOP, "form a loop");
        assert_eq!(next_step(&io::Error::other("damaged")), None);
    }
}
