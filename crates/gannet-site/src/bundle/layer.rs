//! Layers: tar archives (ustar, POSIX.1-1988) of files that belong to root.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use tar::{Builder, EntryType, Header};

use super::{BundleError, Program};

/// Of a tar: the unit of its length, and that of its header.
pub(super) const BLOCK: u64 = 512;

/// A user without rights, by a number that other images without a distribution use as well.
pub(super) const USER: u32 = 65_532;

/// The files of a layer in their order.
pub(super) struct Layer(pub(super) Vec<Member>);

/// A file, or an empty folder.
pub(super) struct Member {
    /// Without a leading slash.
    path: &'static str,
    mode: u32,
    /// `None` is a folder.
    content: Option<Content>,
}

enum Content {
    Bytes(Vec<u8>),
    /// A file with the length that it had when it was opened.
    File(PathBuf, File, u64),
}

impl Member {
    fn file(path: &'static str, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path,
            mode,
            content: Some(Content::Bytes(bytes.into())),
        }
    }

    fn folder(path: &'static str) -> Self {
        Self {
            path,
            mode: 0o755,
            content: None,
        }
    }

    /// The first `len` bytes of a file, readable by everyone.
    pub(super) fn from_file(path: &'static str, name: PathBuf, file: File, len: u64) -> Self {
        Self {
            path,
            mode: 0o644,
            content: Some(Content::File(name, file, len)),
        }
    }
}

impl Layer {
    /// Writes the tar to `out`, which is called `target` in errors: each file after the folders that
    /// it is in. Returns where in it the content of the last one is.
    pub(super) fn write(
        self,
        out: &mut dyn Write,
        target: &std::path::Path,
        time: u64,
    ) -> Result<Range<u64>, BundleError> {
        let mut archive = Builder::new(out);
        let mut made = BTreeSet::new();
        let mut last = 0..0_u64;
        let mut add = |path: &str, kind, mode, len: u64, content: &mut dyn Read| {
            let mut header = header(kind, mode, time);
            header.set_size(len);
            // Names are short enough for one header.
            let start = last.end.next_multiple_of(BLOCK) + BLOCK;
            last = start..start + len;
            archive.append_data(&mut header, path, content)
        };
        for Member {
            path,
            mode,
            content,
        } in self.0
        {
            let refuse = BundleError::io("write", target);
            let above = path.match_indices('/').map(|(at, _)| &path[..at]);
            let own = content.is_none().then_some(path);
            let mut folders = above.chain(own).filter(|it| made.insert((*it).to_owned()));
            let written = folders.try_for_each(|folder| {
                let name = format!("{folder}/");
                add(&name, EntryType::Directory, 0o755, 0, &mut io::empty())
            });
            written.map_err(refuse)?;
            let refuse = BundleError::io("write", target);
            match content {
                None => {}
                Some(Content::Bytes(bytes)) => {
                    let len = bytes.len() as u64;
                    add(path, EntryType::Regular, mode, len, &mut Cursor::new(bytes))
                        .map_err(refuse)?;
                }
                Some(Content::File(name, file, len)) => {
                    let mut source = FileReader {
                        file,
                        left: len,
                        error: None,
                    };
                    let added = add(path, EntryType::Regular, mode, len, &mut source);
                    if let Some(error) = source.error {
                        return Err(BundleError::io("read", &name)(error));
                    }
                    added.map_err(refuse)?;
                    if source.left > 0 {
                        return Err(BundleError::Changed(name));
                    }
                }
            }
        }
        archive.finish().map_err(BundleError::io("write", target))?;
        Ok(last)
    }
}

/// The header of a file of root's.
pub(super) fn header(kind: EntryType, mode: u32, time: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(time);
    header
}

/// Reads so much of a file, and tells its errors from those of writing.
struct FileReader {
    file: File,
    left: u64,
    error: Option<io::Error>,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (&mut self.file).take(self.left).read(buffer) {
            Ok(count) => {
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                self.error = Some(error);
                Err(kind.into())
            }
        }
    }
}

/// The root of a container with the program, and the name of its processor in images.
pub(super) fn of_program(program: &Program) -> Result<(Layer, &'static str), BundleError> {
    let path = &program.file;
    let bytes = fs::read(path).map_err(BundleError::io("read", path))?;
    let machine = match inspect(&bytes) {
        Ok(Elf {
            machine,
            is_dynamic: false,
        }) => machine,
        Ok(_) => return Err(BundleError::Dynamic(path.clone())),
        Err(why) => return Err(BundleError::Program(path.clone(), why)),
    };
    let users = format!("root:x:0:0::/:/sbin/nologin\ngannet:x:{USER}:{USER}::/:/sbin/nologin\n");
    let groups = format!("root:x:0:\ngannet:x:{USER}:\n");
    let docs = |name, bytes: &Vec<u8>| Member::file(name, 0o644, bytes.clone());
    let members = vec![
        Member::file("etc/passwd", 0o644, users),
        Member::file("etc/group", 0o644, groups),
        Member::folder("srv/www"),
        Member::file("usr/bin/gannet", 0o755, bytes),
        docs("usr/share/doc/gannet/gannet.cdx.json", &program.bill),
        docs("usr/share/doc/gannet/licenses.txt", &program.licences),
    ];
    Ok((Layer(members), machine))
}

struct Elf {
    machine: &'static str,
    is_dynamic: bool,
}

/// What the header of a program says (System V gABI, chapter 4, 64-bit little-endian).
fn inspect(bytes: &[u8]) -> Result<Elf, &'static str> {
    const INTERPRETER: u32 = 3;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err("not a 64-bit ELF program");
    }
    let number = |at: usize, len: usize| {
        let found = bytes.get(at..at.checked_add(len)?)?;
        let digits = found.iter().rev();
        Some(digits.fold(0_u64, |all, byte| all << 8 | u64::from(*byte)))
    };
    let place = |at, len| usize::try_from(number(at, len)?).ok();
    let torn = "its header is incomplete";
    let machine = match number(18, 2).ok_or(torn)? {
        62 => "amd64",
        183 => "arm64",
        _ => return Err("its processor is neither x86-64 nor AArch64"),
    };
    let table = place(32, 8).ok_or(torn)?;
    let (entry_len, count) = (place(54, 2).ok_or(torn)?, place(56, 2).ok_or(torn)?);
    let mut is_dynamic = false;
    for index in 0..count {
        let at = (entry_len * index).checked_add(table).ok_or(torn)?;
        is_dynamic |= number(at, 4).ok_or(torn)? == u64::from(INTERPRETER);
    }
    Ok(Elf {
        machine,
        is_dynamic,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A header with program headers of these types.
    pub(in crate::bundle) fn elf(machine: u16, kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = u8::try_from(kinds.len()).expect("few");
        for kind in kinds {
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.resize(bytes.len() + 52, 0);
        }
        bytes
    }

    #[test]
    fn programs_are_told_apart() {
        let found = |bytes: &[u8]| inspect(bytes).map(|it| (it.machine, it.is_dynamic));
        assert_eq!(found(&elf(62, &[1, 4])), Ok(("amd64", false)));
        assert_eq!(found(&elf(183, &[1, 3])), Ok(("arm64", true)));
        assert!(found(&elf(40, &[])).is_err());
        assert!(found(b"#!/bin/sh\n").is_err());
        let whole = elf(62, &[1, 3]);
        for len in 0..64 {
            assert!(found(&whole[..len]).is_err(), "{len}");
        }
        assert!(found(&whole[..120]).is_err());
    }
}
