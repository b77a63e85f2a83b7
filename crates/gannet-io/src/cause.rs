//! Errors of the operating system in words, in one form for every message.

use std::io;

use rustix::io::Errno;

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

/// The name of an errno that a user may meet here.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_lower_case_and_carry_the_errno_name() {
        let check = |number: i32, expect: &str| {
            assert_eq!(cause(&io::Error::from_raw_os_error(number)), expect);
        };
        check(13, "permission denied (EACCES)");
        check(2, "no such file or directory (ENOENT)");
        check(20, "not a directory (ENOTDIR)");
    }
}
