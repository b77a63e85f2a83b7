//! Files named by an operator (certificates, configurations, archives) or by the author of a site
//! (rules).
//!
//! Only regular files are read. Opening a FIFO could wait for a writer indefinitely, opening a
//! device may have any effect, and the content of either changes from one read to the next.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Access, OFlags, access};
use rustix::io::Errno;

use crate::how::Purpose;
use crate::root::Root;

/// Opens a regular file for reading, following symbolic links. Never waits for a peer.
///
/// # Errors
/// The file does not exist, may not be read, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked before opening as well: opening a device may have effects.
    check(&std::fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    // Checked again: the path may name another file by now.
    check(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file below a directory for reading. The directory may be writable by others: a
/// symbolic link is followed only if it stays below it.
///
/// # Errors
/// As for [`open`]; `CrossesDevices` if a link leads outside.
pub fn open_below(root: &Root, path: &Path) -> io::Result<File> {
    check(&metadata_below(root, path)?)?;
    let file = File::from(root.below(path, Purpose::Read)?);
    check(&file.metadata()?)?;
    Ok(file)
}

/// Metadata of the file that [`open_below`] would open, of any type.
///
/// # Errors
/// The file does not exist, or a link leads outside.
pub fn metadata_below(root: &Root, path: &Path) -> io::Result<Metadata> {
    File::from(root.below(path, Purpose::Look)?).metadata()
}

/// Opens a file for appending lines, such as a log: a regular file, or a FIFO with a reader. Does
/// not wait for that reader. With `is_new` the file is created, and must not exist.
///
/// # Errors
/// The file may not be written, or is a FIFO without a reader (`ENXIO`).
pub fn append(path: &Path, is_new: bool) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .append(true)
        .create_new(is_new)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    // Only opening must not wait; a line is written whole.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Whether this process, by its real user, may make a file there, as far as its folder tells.
///
/// # Errors
/// It may not (`EACCES`, `EROFS`), or there is no such folder.
pub fn may_make(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Reads a whole file of at most `max` bytes, as [`open`] does.
///
/// # Errors
/// As for [`open`]; the file cannot be read, or is longer.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_all(&open(path)?, max)
}

/// As [`read`], for a file opened as by [`open_below`].
///
/// # Errors
/// As for [`open_below`]; the file cannot be read, or is longer.
pub fn read_below(root: &Root, path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_all(&open_below(root, path)?, max)
}

/// As [`read_text`], for a file that is open, from its beginning.
///
/// # Errors
/// The file cannot be read, is longer, or is not UTF-8.
pub fn read_text_of(file: &File, max: u64) -> io::Result<String> {
    let mut from_start = file;
    from_start.rewind()?;
    text(read_all(file, max)?)
}

fn read_all(file: &File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        let cause = format!("longer than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, cause));
    }
    Ok(bytes)
}

/// As [`read`], for text.
///
/// # Errors
/// As for [`read`]; the file is not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    text(read(path, max)?)
}

/// As [`read_below`], for text.
///
/// # Errors
/// As for [`read_below`]; the file is not UTF-8.
pub fn read_text_below(root: &Root, path: &Path, max: u64) -> io::Result<String> {
    text(read_below(root, path, max)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    let not_utf8 = |_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8");
    String::from_utf8(bytes).map_err(not_utf8)
}

fn check(meta: &Metadata) -> io::Result<()> {
    if meta.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !meta.is_file() {
        let cause = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    /// A link that stays below the root is followed.
    #[test]
    fn nothing_outside_a_root_is_read() {
        let folder = std::env::temp_dir().join(format!("gannet-below-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("site/inner")).unwrap();
        std::fs::write(folder.join("secret"), "secret").unwrap();
        std::fs::write(folder.join("site/file"), "text").unwrap();
        let root = Root::open(&folder.join("site")).unwrap();
        let read = |name: &str| {
            let read = read_below(&root, Path::new(name), 10);
            read.map_err(|error| error.kind())
        };
        for (target, name, expect) in [
            ("../file", "inner/beside", Ok(b"text".to_vec())),
            (
                "../../secret",
                "inner/out",
                Err(io::ErrorKind::CrossesDevices),
            ),
            ("../secret", "out", Err(io::ErrorKind::CrossesDevices)),
            (
                "/etc/hostname",
                "absolute",
                Err(io::ErrorKind::CrossesDevices),
            ),
            ("..", "up", Err(io::ErrorKind::CrossesDevices)),
            ("none", "dangling", Err(io::ErrorKind::NotFound)),
            ("inner", "folder", Err(io::ErrorKind::IsADirectory)),
        ] {
            symlink(target, folder.join("site").join(name)).unwrap();
            assert_eq!(read(name), expect, "{name}");
            let name = Path::new(name);
            assert_eq!(
                metadata_below(&root, name).is_err(),
                expect.is_err() && target != "inner"
            );
            assert_eq!(root.open_below(name).is_ok(), target == "inner", "{name:?}");
        }
        let mut names = root.names(Path::new("")).unwrap();
        names.retain(|(_, is_folder)| *is_folder);
        assert_eq!(names, [("inner".into(), true)]);
        assert!(root.names(Path::new("folder")).is_err(), "a link");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A FIFO without a writer is refused at once, as is every other special file.
    #[test]
    fn only_regular_files_are_read() {
        let folder = std::env::temp_dir().join(format!("gannet-named-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (fifo, file) = (folder.join("fifo"), folder.join("file"));
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        std::fs::write(&file, "text").unwrap();
        let kind = |path: &Path| read(path, 4).map_err(|error| error.kind());
        assert_eq!(kind(&fifo), Err(io::ErrorKind::InvalidInput));
        assert_eq!(
            kind(Path::new("/dev/null")),
            Err(io::ErrorKind::InvalidInput)
        );
        assert_eq!(kind(&folder), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind(&folder.join("none")), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(&file).as_deref(), Ok(b"text".as_slice()));
        assert_eq!(
            read_text(&file, 3).map_err(|error| error.kind()),
            Err(io::ErrorKind::FileTooLarge)
        );
        assert!(append(&fifo, false).is_err());
        let mut added = append(&file, false).unwrap();
        std::io::Write::write_all(&mut added, b"s").unwrap();
        assert_eq!(kind(&folder.join("new")), Err(io::ErrorKind::NotFound));
        append(&folder.join("new"), true).unwrap();
        assert_eq!(read_text(&file, 5).ok().as_deref(), Some("texts"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
