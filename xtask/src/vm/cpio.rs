//! Writes initramfs archives: cpio in the `newc` format.
//!
//! The format is described in the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`: each entry has a header of 110
//! ASCII bytes, the zero-terminated name and the content; name and content are padded to 4 bytes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path};

/// Writes an archive. Parent folders of files are created automatically.
pub(super) struct Cpio<W> {
    out: W,
    inode: u32,
    folders: BTreeSet<String>,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl<W: Write> Cpio<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            inode: 0,
            folders: BTreeSet::new(),
        }
    }

    /// Adds a folder and its parents.
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        let mut done = String::new();
        for part in Path::new(path).components() {
            if let Component::Normal(part) = part {
                if !done.is_empty() {
                    done.push('/');
                }
                done.push_str(&part.to_string_lossy());
                if self.folders.insert(done.clone()) {
                    self.entry(&done, FOLDER, b"")?;
                }
            }
        }
        Ok(())
    }

    /// Adds an executable file with these bytes.
    pub(super) fn bytes(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.parent(path)?;
        self.entry(path.trim_start_matches('/'), PROGRAM, content)
    }

    /// Adds a file of the host at a path in the image.
    pub(super) fn file(&mut self, path: &str, source: &Path) -> io::Result<()> {
        let content = fs::read(source)
            .map_err(|error| io::Error::other(format!("'{}': {error}", source.display())))?;
        self.bytes(path, &content)
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.parent(path)?;
        self.entry(path.trim_start_matches('/'), LINK, target.as_bytes())
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, b"")?;
        Ok(self.out)
    }

    fn parent(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.folder(parent),
            None => Ok(()),
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let len = u32::try_from(content.len()).map_err(io::Error::other)?;
        let fields = [
            self.inode,
            mode,
            0,
            0,
            1,
            0,
            len,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(b"\0")?;
        self.pad(110 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, len: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..len.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries are aligned to four bytes; folders occur once, before their contents.
    #[test]
    fn entries_are_laid_out_as_the_kernel_reads_them() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.bytes("/a/b/file", b"12345").unwrap();
        cpio.bytes("/a/b/other", b"").unwrap();
        cpio.link("/a/link", "b").unwrap();
        let mut rest = &cpio.finish().unwrap()[..];
        let mut names = Vec::new();
        while !rest.is_empty() {
            assert_eq!(&rest[..6], b"070701");
            let field = |nth: usize| {
                let digits = std::str::from_utf8(&rest[6 + 8 * nth..14 + 8 * nth]).unwrap();
                usize::from_str_radix(digits, 16).unwrap()
            };
            let (len, name_len) = (field(6), field(11));
            names.push(String::from_utf8(rest[110..110 + name_len - 1].to_vec()).unwrap());
            rest = &rest[(110 + name_len).next_multiple_of(4) + len.next_multiple_of(4)..];
        }
        assert_eq!(
            names,
            ["a", "a/b", "a/b/file", "a/b/other", "a/link", "TRAILER!!!"]
        );
    }
}
