//! Tar, gzip and ar, with nothing in them that differs from run to run.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Result, ensure};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file of an archive, root's.
pub(super) struct Entry {
    /// Without a leading slash.
    pub(super) path: String,
    mode: u32,
    content: Vec<u8>,
}

impl Entry {
    pub(super) fn file(path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.to_owned(),
            mode,
            content: content.into(),
        }
    }

    /// Length of the content, bytes.
    pub(super) fn len(&self) -> u64 {
        self.content.len() as u64
    }
}

/// A tar archive of entries in their order, each after the folders that it is in.
pub(super) fn tar(entries: &[Entry], date: u64) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut made = BTreeSet::new();
    let mut add = |path: &str, kind, mode, content: &[u8]| {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(date);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content)
    };
    for entry in entries {
        let above = entry
            .path
            .match_indices('/')
            .map(|(at, _)| &entry.path[..at]);
        for folder in above {
            if made.insert(folder.to_owned()) {
                add(&format!("{folder}/"), EntryType::Directory, 0o755, &[])?;
            }
        }
        add(&entry.path, EntryType::Regular, entry.mode, &entry.content)?;
    }
    Ok(archive.into_inner()?)
}

/// gzip without a name or a time.
pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// An ar archive, as deb(5) describes it: names of up to 16 bytes, members at even offsets.
pub(super) fn ar(members: &[(&str, &[u8])], date: u64) -> Result<Vec<u8>> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        ensure!(name.len() <= 16, "'{name}' is too long for ar");
        let len = content.len();
        writeln!(
            archive,
            "{name:<16}{date:<12}0     0     100644  {len:<10}`"
        )?;
        archive.extend_from_slice(content);
        if len % 2 == 1 {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_once_before_what_is_in_them() {
        let entries = [
            Entry::file("usr/bin/a", 0o755, "x"),
            Entry::file("usr/bin/b", 0o644, "yy"),
        ];
        let bytes = tar(&entries, 7).expect("made");
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut found = Vec::new();
        for entry in archive.entries().expect("a tar") {
            let entry = entry.expect("sound");
            let header = entry.header();
            assert_eq!(header.mtime().expect("a number"), 7);
            assert_eq!(header.uid().expect("a number"), 0);
            let path = entry.path_bytes().into_owned();
            found.push((
                String::from_utf8(path).expect("UTF-8"),
                header.mode().expect("a number"),
            ));
        }
        let expect = [
            ("usr/", 0o755),
            ("usr/bin/", 0o755),
            ("usr/bin/a", 0o755),
            ("usr/bin/b", 0o644),
        ];
        assert_eq!(found, expect.map(|(path, mode)| (path.to_owned(), mode)));
        assert_eq!(tar(&entries, 7).expect("made"), bytes, "the same again");
    }

    #[test]
    fn members_of_ar_begin_at_even_offsets() {
        let bytes = ar(
            &[("debian-binary", b"2.0\n"), ("odd", b"x"), ("last", b"")],
            5,
        );
        let bytes = bytes.expect("made");
        let text = String::from_utf8(bytes).expect("ASCII");
        let header = "debian-binary   5           0     0     100644  4         `\n2.0\n";
        assert!(text.starts_with(&format!("!<arch>\n{header}")), "{text}");
        assert_eq!(text.len(), 8 + 3 * 60 + 4 + 2);
        assert!(ar(&[("a name that is too long", b"")], 5).is_err());
    }
}
