//! Notes how far the upload of a release has come, so that one which was killed is resumed, or taken
//! back.
//!
//! ```text
//! release <id> <size> <BLAKE3> <length of a part>
//! upload <what the storage calls it>
//! part <index> <what the storage calls it>
//! ```

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use gannet_io::named_file;
use gannet_store::ReleaseId;
use object_store::multipart::PartId;
use rustix::fs::OFlags;

use crate::error::FleetError;
use crate::limits::JOURNAL_LEN_MAX;
use crate::picture::write_anew;
use crate::writing::{Upload, part_len};

pub(crate) struct Journal {
    pub(crate) id: ReleaseId,
    size: u64,
    digest: String,
    /// Bytes of each part but the last one: another version may cut others.
    part_len: u64,
    /// What the storage calls the upload.
    pub(crate) multipart: String,
    /// The parts that are there.
    pub(crate) parts: BTreeMap<usize, PartId>,
}

impl Journal {
    /// What was begun; `None` if nothing was, or the file is damaged. A last line that is torn is
    /// removed, so that the next one does not continue it.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = named_file::read_text(path, JOURNAL_LEN_MAX).ok()?;
        let whole = &text[..=text.rfind('\n')?];
        if whole.len() < text.len() {
            let file = unlinked().write(true).open(path);
            file.and_then(|it| it.set_len(whole.len() as u64)).ok()?;
        }
        let mut lines = whole.lines();
        let mut first = lines.next()?.strip_prefix("release ")?.split(' ');
        let mut journal = Self {
            id: first.next()?.parse().ok()?,
            size: first.next()?.parse().ok()?,
            digest: first.next()?.to_owned(),
            part_len: first.next()?.parse().ok()?,
            multipart: lines.next()?.strip_prefix("upload ")?.to_owned(),
            parts: BTreeMap::new(),
        };
        for line in lines {
            let (index, content_id) = line.strip_prefix("part ")?.split_once(' ')?;
            let content_id = content_id.to_owned();
            journal
                .parts
                .insert(index.parse().ok()?, PartId { content_id });
        }
        Some(journal)
    }

    /// Begins one.
    pub(crate) fn begin(upload: &Upload<'_>, multipart: String) -> Result<Self, FleetError> {
        let journal = Self {
            id: upload.id,
            size: upload.size,
            digest: hex(&upload.digest),
            part_len: part_len(upload.size),
            multipart,
            parts: BTreeMap::new(),
        };
        let Self {
            id,
            size,
            digest,
            part_len,
            multipart,
            ..
        } = &journal;
        let text = format!("release {id} {size} {digest} {part_len}\nupload {multipart}\n");
        write_anew(upload.journal, text.as_bytes())?;
        Ok(journal)
    }

    pub(crate) fn is_of(&self, upload: &Upload<'_>) -> bool {
        self.id == upload.id
            && self.size == upload.size
            && self.digest == hex(&upload.digest)
            && self.part_len == part_len(upload.size)
    }

    /// Notes a part.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        index: usize,
        part: PartId,
    ) -> Result<(), FleetError> {
        let line = format!("part {index} {}\n", part.content_id);
        self.parts.insert(index, part);
        let file = unlinked().append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(FleetError::io("write", path))
    }

    /// Forgets it. One that stays is found to be of another upload, or complete.
    pub(crate) fn remove(path: &Path) {
        let _ = fs::remove_file(path);
    }
}

/// Options that follow no link, which would lead the bytes to another file.
fn unlinked() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
